"""Sources of rows: their protocol, their checkpoints, and the buffer that holds the rows of a round.

A source knows neither the table nor its commits. Rows leave it as Arrow columns; what cannot be decoded leaves it as rejected records.

A source plans a round from where the last commit left it, and reads the round by batches (pure).

Rows of a round are held in memory up to a size, beyond that in a temporary file, in the order in which they came
(effects). Batches of one round may have different columns, as files of different days have. They are fitted together
when all have come.

Hudi has two generations of keys. A commit is asked for the second one first, then for the first; the newest commit that has any of them
decides. What Hudi's text cannot hold lies beside it, under a name that begins with Hudi's, so that engines that carry the checkpoint on
(``hoodie.write.meta.key.prefixes``) carry both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import groupby
from operator import attrgetter
from tempfile import TemporaryFile
from typing import IO, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.schema import conform
from lakefmt._core.schema.alter import evolve
from lakefmt._core.sorting import spilling
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.transactions.instant import newest_for_good
from lakefmt._core.values import InstantTime, TableType
from lakefmt._core.write.context import EntryView
from lakefmt.errors import CheckpointMoved, CorruptFile, SourceRefused

__all__ = [
    "DETAILS",
    "REJECTED",
    "SOURCE",
    "Checkpoint",
    "CheckpointCommit",
    "CheckpointFinder",
    "HearsOfCommits",
    "KnowsTableSchema",
    "Round",
    "RoundRows",
    "Source",
    "SourceBatch",
    "StoredCheckpoint",
    "StoresInstants",
    "check_kind",
    "check_source",
    "checkpoint_entries",
    "decode_checkpoint",
    "describe_checkpoint",
    "rejected_records",
    "resume_point",
    "unified_schema",
    "without_null_types",
]

#: The columns of records that could not be decoded or stored.
REJECTED: Final = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        #: Where it came from: a path with its line, or a topic with its partition and offset.
        pa.field("origin", pa.string(), nullable=False),
        pa.field("payload", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Checkpoint:
    """Where a source was after a commit.

    Args:
        text: Hudi's form, which its own tool reads: a time of files in milliseconds, ``topic,0:12,1:7``, or an instant.
        details: what that form cannot hold, by names of commit metadata that are lakefmt's own.
    """

    text: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceBatch:
    """Rows of a round, in the order in which they came.

    Args:
        rows: the decoded rows.
        kinds: the code of each row's :class:`~lakefmt.cdc.RowKind`; None: rows that the operation of the job writes.
        rejected: what could not be decoded, with the columns of :data:`REJECTED`.
    """

    rows: pa.RecordBatch
    kinds: npt.NDArray[np.int8] | None = None
    rejected: pa.RecordBatch | None = None


class Round(Protocol):
    """What one commit takes from a source."""

    @property
    def checkpoint(self) -> Checkpoint:
        """Return where the source is once the round is committed; asked for when all its batches were read."""

    @property
    def summary(self) -> str:
        """Return the range of the round for people."""

    @property
    def expected_rows(self) -> int | None:
        """Return how many rows will come; None: only reading tells."""

    def batches(self) -> Iterator[SourceBatch]:
        """Read the round; another call reads the same rows again."""


class Source(Protocol):
    """Rows that come from somewhere, read by rounds."""

    @property
    def name(self) -> str:
        """Return what messages call the source."""

    def schema(self) -> pa.Schema | None:
        """Return the schema of its rows if that is known before any is read."""

    def plan(self, after: Checkpoint | None, limit: int | None) -> Round | None:
        """Choose what comes next; None: there is nothing new.

        Args:
            after: of the newest commit that has one; None: from the source's beginning.
            limit: about how many rows or bytes a round has, as Hudi's ``--source-limit`` counts them for this source.

        Raises:
            SourceUnavailable: the source does not answer; the call may be repeated.
            PositionLost: what comes after the checkpoint is gone.
            SourceRefused: the checkpoint is of another kind of source, or a setting cannot be followed.
        """

    def close(self) -> None:
        """Release connections and files."""


@runtime_checkable
class KnowsTableSchema(Protocol):
    """A source whose data have no types of their own: before each plan it is told the columns of the table, None: there is none."""

    table_schema: pa.Schema | None


@runtime_checkable
class HearsOfCommits(Protocol):
    """A source that is notified of commits, such as a broker that shows consumer offsets; correctness does not depend on it."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """Note that a round was committed."""


@runtime_checkable
class StoresInstants(Protocol):
    """A source whose checkpoints are instants of a table, which Hudi stores under keys of two generations."""

    def checkpoint_version(self, table_version: int) -> int:
        """Return the generation of keys, 1 or 2, for a version of the table that is written."""


def rejected_records(reasons: list[str], origins: list[str], payloads: list[bytes | None]) -> pa.RecordBatch:
    """Return rejected records as a batch of :data:`REJECTED`."""
    columns = [pa.array(reasons, pa.string()), pa.array(origins, pa.string()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=REJECTED)


_BATCH_BYTES = 8 << 20


class RoundRows:
    """Rows of a round, which can be read again and again.

    Args:
        memory_bytes: what is held in memory.

    Example:
        >>> rows = RoundRows(100)
        >>> for n in range(50):
        ...     rows.add(pa.record_batch({"n": [n]}))
        >>> rows.add(pa.record_batch({"n": [50], "new": ["x"]}))
        >>> schema = rows.unified(pa.schema([]))
        >>> sum(table.num_rows for table in rows.tables(schema)), schema.names
        (51, ['n', 'new'])
        >>> rows.close()
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory = memory_bytes
        self._held = list[pa.RecordBatch]()
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        #: Where a stream of batches of one schema begins in the file.
        self._begins = list[int]()
        self.schemas = list[pa.Schema]()
        self.num_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            StorageError: the temporary directory could not take them.
        """
        if batch.schema not in self.schemas[-1:] and batch.schema not in self.schemas and len(batch.schema):
            self.schemas.append(batch.schema)
        if not batch.num_rows:
            return
        self._held.append(batch)
        self.num_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_bytes > self._memory:
            self._spill()

    def _spill(self) -> None:
        with spilling():
            if self._file is None:
                self._file = TemporaryFile(prefix="lakefmt-round-")  # noqa: SIM115 - closed by close()
            self._file.seek(0, 2)
            for schema, batches in groupby(_joined(self._held), attrgetter("schema")):
                self._begins.append(self._file.tell())
                with pa.ipc.new_stream(self._file, schema) as writer:
                    for batch in batches:
                        rows = max(1, _BATCH_BYTES * batch.num_rows // max(1, batch.nbytes))
                        writer.write_table(pa.Table.from_batches([batch]), max_chunksize=rows)
        self._held.clear()
        self._held_bytes = 0

    @property
    def are_many(self) -> bool:
        """Whether some of them wait in a temporary file."""
        return bool(self._begins)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they came; those of one schema that follow each other come together."""
        for begin in self._begins:
            if self._file is not None:
                self._file.seek(begin)
                with pa.ipc.open_stream(self._file) as reader:
                    yield from reader
        yield from _joined(self._held)

    def unified(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema that holds rows of a schema and all of these.

        Raises:
            SchemaMismatch: the types of a column do not go together.
        """
        return unified_schema(self.schemas, schema)

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows with the columns of a schema that holds them all.

        Raises:
            SchemaMismatch: a value does not fit.
        """
        for batch in self.batches():
            yield conform(
                pa.Table.from_batches([batch]).replace_schema_metadata(), schema, allow_null_list_elements=True
            )

    def clear(self) -> None:
        """Forget the rows."""
        self.close()
        self._held_bytes = self.num_rows = 0
        self._begins.clear()
        self.schemas.clear()

    def close(self) -> None:
        """Let go of the rows."""
        self._held.clear()
        if self._file is not None:
            self._file.close()
            self._file = None


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches joined with those of their schema behind them, up to some bytes.

    What is done with a batch costs by its columns, however few rows it has, and each small file is one.

    Example:
        >>> parts = [pa.record_batch({"n": [1]}), pa.record_batch({"n": [2]}), pa.record_batch({"m": [3]})]
        >>> [part.to_pydict() for part in _joined(parts)]
        [{'n': [1, 2]}, {'m': [3]}]
    """
    for schema, several in groupby(batches, attrgetter("schema")):
        pending, size = list[pa.RecordBatch](), 0
        for batch in several:
            pending.append(batch)
            size += batch.nbytes
            if size >= _BATCH_BYTES:
                yield from pa.Table.from_batches(pending, schema).combine_chunks().to_batches()
                pending, size = [], 0
        if pending:
            yield from pa.Table.from_batches(pending, schema).combine_chunks().to_batches()


def unified_schema(schemas: Iterable[pa.Schema], known: pa.Schema) -> pa.Schema:
    """Return a schema that holds rows of a known one and of all others.

    Raises:
        SchemaMismatch: the types of a column do not go together.
    """
    for each in schemas:
        plain = without_null_types(each.remove_metadata(), known)
        known = evolve(known, plain, missing="null") if len(known) else plain
    return known


def without_null_types(schema: pa.Schema, known: pa.Schema) -> pa.Schema:
    """Return a schema in which columns that have nothing but nulls have a type: the known one, or that of texts."""
    fields = [
        field
        if not pa.types.is_null(field.type)
        else field.with_type(known.field(field.name).type if field.name in known.names else pa.string())
        for field in schema
    ]
    return pa.schema(fields)


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
