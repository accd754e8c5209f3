"""Where a job was: checkpoints in the metadata of commits, by Hudi's keys and rules (effects).

Hudi has two generations of keys. A commit is asked for the second one first, then for the first; the newest commit that has any of them
decides. What Hudi's text cannot hold lies beside it, under a name that begins with Hudi's, so that engines that carry the checkpoint on
(``hoodie.write.meta.key.prefixes``) carry both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.ingest.api import Checkpoint
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.transactions.instant import newest_for_good
from lakefmt._core.values import InstantTime, TableType
from lakefmt._core.write.context import EntryView
from lakefmt.errors import CheckpointMoved, CorruptFile, SourceRefused

__all__ = [
    "DETAILS",
    "SOURCE",
    "CheckpointCommit",
    "CheckpointFinder",
    "StoredCheckpoint",
    "check_kind",
    "check_source",
    "checkpoint_entries",
    "decode_checkpoint",
    "describe_checkpoint",
    "resume_point",
]

_KEYS: Final = {1: "deltastreamer.checkpoint.key", 2: "streamer.checkpoint.key.v2"}
_RESETS: Final = {1: "deltastreamer.checkpoint.reset_key", 2: "streamer.checkpoint.reset.key.v2"}
_IGNORE: Final = "deltastreamer.checkpoint.ignore_key"
#: What Hudi's text does not hold, and the text that it belongs to.
DETAILS: Final = "deltastreamer.checkpoint.key.lakefmt"
#: Of the details: whose place the checkpoint is.
SOURCE: Final = "source"
_MOST_CHARACTERS: Final = 16 << 20


@dataclass(frozen=True)
class StoredCheckpoint:
    """What a commit says of a job.

    Attributes:
        text: where the source was; None: only a reset was noted.
        details: what lakefmt keeps beside the text.
        reset: the value of ``--checkpoint`` that the job had begun with; None: none.
        ignore: the value of ``--ignore-checkpoint`` of that time; None: none.
        version: 1 or 2, the generation of its keys.
        instant: of the commit.
    """

    text: str | None
    details: Mapping[str, str]
    reset: str | None = None
    ignore: str | None = None
    version: int = 1
    instant: InstantTime | None = None

    @property
    def is_at(self) -> tuple[object, ...]:
        """All fields but the instant: two commits with the same fields have one position."""
        return (self.text, dict(self.details), self.reset, self.ignore)


def decode_checkpoint(extra: Mapping[str, str], instant: InstantTime | None = None) -> StoredCheckpoint | None:
    """Return what the extra metadata of a commit say of a job; None: nothing.

    Raises:
        CorruptFile: lakefmt's own entry is damaged.

    Example:
        >>> decode_checkpoint({"deltastreamer.checkpoint.key": "1700000000000"}).text
        '1700000000000'
        >>> decode_checkpoint({"streamer.checkpoint.key.v2": "", "schema": "{}"}) is None
        True
    """
    for version in (2, 1):
        checkpoint, reset = extra.get(_KEYS[version]) or None, extra.get(_RESETS[version]) or None
        if checkpoint is not None or reset is not None:
            details = _details_of(extra, checkpoint, instant)
            return StoredCheckpoint(checkpoint, details, reset, extra.get(_IGNORE) or None, version, instant)
    return None


def _details_of(extra: Mapping[str, str], checkpoint: str | None, instant: InstantTime | None) -> Mapping[str, str]:
    """Return the details of a checkpoint; those of another text were carried on by an engine that does not know them."""
    stored = extra.get(DETAILS)
    if stored is None:
        return {}
    try:
        fields: object = json.loads(stored) if len(stored) <= _MOST_CHARACTERS else None
    except (ValueError, RecursionError):
        fields = None
    fields = fields if isinstance(fields, dict) else {}
    details = fields.get("details")
    if not isinstance(details, dict) or not all(isinstance(each, str) for each in details.values()):
        raise CorruptFile(
            f"commit {instant}: {DETAILS} is damaged: roll it back, or begin with a checkpoint of your own"
        )
    return details if fields.get("checkpoint") == checkpoint else {}


def checkpoint_entries(
    point: Checkpoint | None, *, reset: str | None = None, ignore: str | None = None, version: int = 1
) -> dict[str, str]:
    """Return the entries of a commit.

    Args:
        point: where the source is after it; None: nowhere yet.
        reset: the job's ``--checkpoint``.
        ignore: the job's ``--ignore-checkpoint``.
        version: of the keys.

    Example:
        >>> checkpoint_entries(Checkpoint("17", {}), reset="5")
        {'deltastreamer.checkpoint.key': '17', 'deltastreamer.checkpoint.reset_key': '5'}
    """
    entries = dict[str, str]()
    if point is not None:
        entries[_KEYS[version]] = point.text
        if point.details:
            fields = {"checkpoint": point.text, "details": dict(point.details)}
            entries[DETAILS] = json.dumps(fields, separators=(",", ":"), sort_keys=True)
    if reset is not None:
        entries[_RESETS[version]] = reset
    if ignore is not None:
        entries[_IGNORE] = ignore
    return entries


def resume_point(stored: StoredCheckpoint | None, reset: str | None, ignore: str | None) -> Checkpoint | None:
    """Return where a job goes on; None: at the beginning of its source.

    A reset, and an order to ignore the checkpoint, are followed once: the commit notes them, and the same one given again does nothing.

    Example:
        >>> stored = StoredCheckpoint("9", {}, reset="5")
        >>> resume_point(stored, "5", None).text, resume_point(stored, "3", None).text, resume_point(stored, "3", "now")
        ('9', '3', None)
    """
    if stored is None:
        return None if reset is None else Checkpoint(reset)
    if ignore is not None and ignore != stored.ignore:
        return None
    if reset is not None and reset != stored.reset:
        # At the very place where the job is, it goes on, perhaps from a source that has moved.
        same = {} if reset != stored.text else {name: text for name, text in stored.details.items() if name != SOURCE}
        return Checkpoint(reset, same)
    if stored.text is not None:
        return Checkpoint(stored.text, stored.details)
    return None if stored.reset is None else Checkpoint(stored.reset)


class CheckpointFinder:
    """Finds the newest checkpoint of a table, and remembers where the last search began.

    Args:
        orders: whether the reset, or the order to ignore the checkpoint, that the job noted last matters: commits that carry a
            checkpoint on leave them out, and older ones with the same text have to be asked.
    """

    def __init__(self, *, orders: bool = False) -> None:
        self._orders = orders
        self._found: tuple[str, StoredCheckpoint | None] | None = None

    def find(self, table_at: TableAt) -> StoredCheckpoint | None:
        """Return what the newest completed commit says that says anything; None: none does.

        In a merge-on-read table Hudi looks at delta commits alone where there are any. Commits that replace partitions count here, too:
        a job that overwrites makes no others. Where the active timeline has none, Hudi begins anew or gives up; here the archived
        one is asked.

        Raises:
            CorruptFile: a commit, or the archive, is damaged.
        """
        active = table_at.timeline.commits_by_completion
        checkpoint, is_whole = self._search(table_at, self._commits(table_at, active), None)
        if not is_whole and table_at.has_history:
            active_times = {instant.time for instant in active}
            older = table_at.with_history()
            rest = [each for each in older.timeline.commits_by_completion if each.time not in active_times]
            checkpoint, _ = self._search(older, self._commits(older, rest), checkpoint)
        latest = newest_for_good(table_at.timeline)
        self._found = None if latest is None else (latest.file_name, checkpoint)
        return checkpoint

    def _commits(self, table_at: TableAt, commits: Iterable[Instant]) -> list[Instant]:
        commits = list(commits)
        if table_at.config.table_type is not TableType.MERGE_ON_READ:
            return commits
        without_compactions = [each for each in commits if each.action is not Action.COMMIT]
        return (
            without_compactions if any(each.action is Action.DELTA_COMMIT for each in without_compactions) else commits
        )

    def _search(
        self, table_at: TableAt, commits: list[Instant], found: StoredCheckpoint | None
    ) -> tuple[StoredCheckpoint | None, bool]:
        """Return the newest checkpoint, as `found` in newer commits or here, and whether older commits can add nothing to it."""
        for instant in reversed(commits):
            is_known = self._found is not None and instant.file_name == self._found[0]
            if self._found is not None and is_known:
                stored = self._found[1]
            else:
                stored = decode_checkpoint(table_at.commit_metadata(instant).extra_metadata, instant.time)
            if found is None:
                found = stored
            elif stored is not None and stored.text == found.text:
                found = replace(found, reset=stored.reset, ignore=stored.ignore)
            elif stored is not None:
                return found, True
            is_whole = found is not None and (not self._orders or found.reset is not None or found.ignore is not None)
            if is_whole or is_known:
                return found, True
        return found, False


class CheckpointCommit:
    """What the commit of a round says, decided under the table lock: only behind the very checkpoint that the round began from.

    A process that slept, or another one of the same job, finds that the checkpoint has moved, and nothing of its round becomes visible.

    Args:
        finder: of the table.
        before: what was stored when the round was planned.
        entries: what the commit says.
    """

    def __init__(self, finder: CheckpointFinder, before: StoredCheckpoint | None, entries: Mapping[str, str]) -> None:
        self._finder, self._before, self._entries = finder, before, entries

    def __call__(self, view: EntryView) -> Mapping[str, str]:
        """Return the entries of the commit.

        Raises:
            CheckpointMoved: another process of the job committed meanwhile.
        """
        now = self._finder.find(view.client.at(view.state))
        here = None if self._before is None else self._before.is_at
        if (None if now is None else now.is_at) != here:
            raise CheckpointMoved(
                f"{view.client.store.url}: another process moved the checkpoint "
                f"{'to ' + shown(now.text) + ' ' if now is not None else ''}while this round was read: nothing of the round was "
                "committed. Let one process run a job; the next round goes on behind the other's"
            )
        return self._entries


#: Instants of tables have fourteen digits or more, and begin with a year.
_FILE_TIME: Final = re.compile(r"-?[0-9]{1,13}")
_INSTANT: Final = re.compile(r"[0-9]{14}([0-9]{3})?")
_OFFSETS: Final = re.compile(r"[^,]+(,[0-9]+:[0-9]+)+")


def describe_checkpoint(checkpoint: str) -> str:
    """Return what kind of source a checkpoint is of.

    Example:
        >>> describe_checkpoint("1700000000000"), describe_checkpoint("orders,0:5,1:7")
        ('files', 'Kafka')
        >>> describe_checkpoint("20260101000000000"), describe_checkpoint("?")
        ('a Hudi table', 'another source')
    """
    if _FILE_TIME.fullmatch(checkpoint):
        return "files"
    if _OFFSETS.fullmatch(checkpoint):
        return "Kafka"
    is_instant = _INSTANT.fullmatch(checkpoint) or checkpoint.startswith("resumeFromInstant")
    return "a Hudi table" if is_instant else "another source"


def check_kind(checkpoint: str, kind: str, source: str) -> None:
    """Refuse the checkpoint of another kind of source.

    Args:
        checkpoint: the checkpoint.
        kind: what :func:`describe_checkpoint` calls the kind of this source.
        source: its name.

    Raises:
        SourceRefused: so it is.

    Example:
        >>> check_kind("orders,0:5", "files", "/in")
        Traceback (most recent call last):
        lakefmt.errors.SourceRefused: /in reads files, and the checkpoint 'orders,0:5' is one of Kafka: give the job's own table, or \
begin anew with --checkpoint or --ignore-checkpoint
    """
    actual_kind = describe_checkpoint(checkpoint)
    if actual_kind != kind:
        raise SourceRefused(
            f"{source} reads {kind}, and the checkpoint {shown(checkpoint)} is one of {actual_kind}: give the job's own table, or begin anew "
            "with --checkpoint or --ignore-checkpoint"
        )


def check_source(after: Checkpoint, source: str) -> None:
    """Refuse the checkpoint of another source of the same kind: what is new there would lie behind it unseen.

    Args:
        after: the checkpoint.
        source: what tells the source from others.

    Raises:
        SourceRefused: so it is.

    Example:
        >>> check_source(Checkpoint("5", {"source": "/a"}), "/b")
        Traceback (most recent call last):
        lakefmt.errors.SourceRefused: the checkpoint '5' is one of another source, '/a', and not of '/b': one table has the \
checkpoint of one source. If it has moved, go on with --checkpoint 5
    """
    stored = after.details.get(SOURCE, source)
    if stored != source:
        raise SourceRefused(
            f"the checkpoint {shown(after.text)} is one of another source, {shown(stored)}, and not of {shown(source)}: one table "
            f"has the checkpoint of one source. If it has moved, go on with --checkpoint {after.text}"
        )
