"""Which file groups and files of the metadata table its commits have written: none may be missing (effects on reading only).

Hudi counts the file groups that it finds. A gap in their numbers shows which one is missing, but not when it is the last:
then every key is looked for, and stored, in a wrong place. Nor does Hudi see that a log is gone, empty or cut: the files or keys
in it are passed over, as if they had never been written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import NamedTuple

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired
from lakefmt.filegroups.table_client import TableClient
from lakefmt.formats.names import PARTITION_METADATA
from lakefmt.formats.properties import decode_properties
from lakefmt.metadata.layout import METADATA_DIRECTORY, PartitionKind, parse_metadata_file
from lakefmt.metadata.reading.handle_memory import handle_memory
from lakefmt.metadata.timeline import INITIALISATION, MetadataInstant, MetadataTimeline, MetadataTimelineStore
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.parallel import map_concurrently
from lakefmt.timeline.commit import decode_commit
from lakefmt.timeline.instant import Action
from lakefmt.timeline.store import MAX_BODY_BYTES
from lakefmt.values import TableVersion

__all__ = [
    "CommittedFile",
    "CommittedLog",
    "KnownCommits",
    "WrittenGroups",
    "known_commits",
    "log_damage",
    "log_problem",
]

#: More than a timeline holds between two archives.
_MOST_COMMITS = 512
#: Digits of the longest instant of the data table; in layout 1 those of services and of first records are longer.
_INSTANT_DIGITS = 17
_ADVICE = "make it anew with Table.index.check(repair=True) or `lakefmt index check --repair`"


class CommittedFile(NamedTuple):
    """A file of the metadata table as the commit that wrote it names it; ``size`` in bytes."""

    partition: str
    file_id: str
    name: str
    size: int


class CommittedLog(NamedTuple):
    """What commits say of a log: their instants, and how long it was after the last of them."""

    instants: frozenset[str]
    size: int


#: The files of a commit by partition.
_Files = Mapping[str, tuple[CommittedFile, ...]]


@dataclass
class KnownCommits:
    """The files of commits of the metadata table, as one handle read or wrote them; a commit never changes."""

    _files: dict[tuple[str, str | None], _Files] = field(default_factory=dict)

    def of(self, instant: MetadataInstant) -> _Files | None:
        """Return the files of a commit by partition; None: it has to be read."""
        return self._files.get((instant.time, instant.completion))

    def remember(self, time: str, completion: str | None, files: Iterable[CommittedFile]) -> None:
        """Keep the files of a commit.

        Parameters:
            time: its requested time.
            completion: its completion time, as its name on the timeline says.
            files: that it wrote.
        """
        if completion == time and (len(time) > _INSTANT_DIGITS or time.startswith(INITIALISATION)):
            return  # in layout 1 an index that is made anew may have the instants of the one before it
        if len(self._files) >= _MOST_COMMITS:
            self._files = {}
        self._files[time, completion] = _by_partition(files)


def known_commits(client: TableClient) -> KnownCommits:
    """Return what a table's handle knows of the commits of its metadata table."""
    return handle_memory(client).of(KnownCommits)


@dataclass(frozen=True)
class WrittenGroups:
    """The file groups that the commits of a metadata table have written.

    Attributes:
        store: the data table's store.
        version: the table version.
        timeline: the metadata table's.
        known: commits that were read before.
    """

    store: ObjectStore
    version: TableVersion
    timeline: MetadataTimeline
    known: KnownCommits = field(default_factory=KnownCommits)
    _read_now: dict[str, _Files] = field(default_factory=dict, repr=False)

    def check(self, partition: str, present: Collection[str]) -> None:
        """Raise when commits wrote to file groups of a partition that are not there.

        Parameters:
            partition: the metadata table's partition.
            present: the ids of the file groups that its directory has.

        Raises:
            CorruptFile: a file group is missing.
        """
        # Where there are none at all, every commit is asked whether there ever was one.
        everything = not present
        lost = self._read("", everything=everything).get(partition, frozenset()).difference(present)
        if lost:  # unless it was dropped and made anew with fewer of them
            lost &= self._read(self._made_at(partition), everything=everything).get(partition, frozenset())
        if lost:
            raise CorruptFile(
                f"{METADATA_DIRECTORY}/{partition} lacks the file group {min(lost)}: keys would be looked for in wrong "
                "places; drop this index, a later write can build it again"
            )

    def _made_at(self, partition: str) -> str:
        """Return when a partition was made; the empty text where no instant on the timeline says so."""
        name = f"{METADATA_DIRECTORY}/{partition}/{PARTITION_METADATA}"
        try:
            maker = decode_properties(self.store.read(name, MAX_BODY_BYTES), what=name).get("commitTime", "")
        except ObjectNotFound:
            return ""
        commits = self.timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)
        return max((_order_time(each) for each in commits if each.time == maker), default="")

    def check_files(
        self, partition: str, present: Mapping[str, int], bases: Mapping[str, str]
    ) -> Mapping[str, CommittedLog]:
        """Raise when a file of the newest file slices is gone, or shorter than the commit says that wrote it.

        Where a request takes long, a commit is not read whose log in ``files`` is there: such stores put objects whole.

        Parameters:
            partition: the metadata table's partition.
            present: the files in its directory, in bytes.
            bases: the instant of the newest complete base file of each of its file groups; the empty text for none.

        Returns:
            The logs of layout 1 by name: they have blocks of several instants.

        Raises:
            CorruptFile: a file is gone or was cut.
            SnapshotExpired: the metadata table was changed meanwhile.
        """
        since = min(bases.values(), default="")
        commits = [
            each for each in self.timeline.completed(Action.COMMIT, Action.DELTA_COMMIT) if _order_time(each) >= since
        ]
        told: set[str] = set()
        if partition == PartitionKind.FILES.value and self._is_lazy:
            told = {parsed.instant for parsed in map(parse_metadata_file, present) if parsed is not None}
        self._load_all([each for each in commits if each.time not in told])
        named = [(commit, file) for commit in commits for file in self._needed(commit, partition, bases)]
        # What was cut of a base file shows when it is opened.
        doubtful = [
            (commit, file)
            for commit, file in named
            if file.name not in present or (file.name.startswith(".") and present[file.name] < file.size)
        ]
        if doubtful:
            self._check_doubtful(partition, doubtful, present)
        return {} if self.version.layout > 1 else _logs(named)

    @property
    def tells_begin(self) -> bool:
        """Whether the timeline has what made the oldest files of the newest file slices: a compaction, or the first records."""
        return bool(self.timeline.completed(Action.COMMIT)) or any(
            each.is_initialisation or (self.version.layout == 1 and len(each.time) > _INSTANT_DIGITS)
            for each in self.timeline.completed(Action.DELTA_COMMIT)
        )

    @property
    def _is_lazy(self) -> bool:
        return self.version.layout > 1 and not self.store.capabilities.low_latency

    def _needed(self, commit: MetadataInstant, partition: str, bases: Mapping[str, str]) -> list[CommittedFile]:
        """Return the files of a commit that the newest file slices have."""
        needed = []
        for file in (self._files_of(commit) or {}).get(partition, ()):
            parsed, base = parse_metadata_file(file.name), bases.get(file.file_id, "")
            if parsed is None:
                continue
            # A log of layout 2 lies on the newest base file when it was completed after that was requested.
            placed = parsed.instant if parsed.version is None or self.version.layout == 1 else _order_time(commit)
            if placed >= base:
                needed.append(file)
        return needed

    def _check_doubtful(
        self,
        partition: str,
        doubtful: Sequence[tuple[MetadataInstant, CommittedFile]],
        present: Mapping[str, int],
    ) -> None:
        made = self._made_at(partition)
        now = MetadataTimelineStore(self.store, self.version, durable=False).load()
        completed = {(each.time, each.completion) for each in now.completed()}
        for commit, file in doubtful:
            if _order_time(commit) < made:
                continue  # of the partition of this name that was dropped
            if (
                commit.time,
                commit.completion,
            ) not in completed or now.last_compaction != self.timeline.last_compaction:
                raise SnapshotExpired(f"{METADATA_DIRECTORY} was changed meanwhile; read again")
            self._load(commit)
            if all(file.name != other.name for other in (self._files_of(commit) or {}).get(partition, ())):
                continue  # it was recorded again meanwhile
            size = present.get(file.name)
            what = "is gone" if size is None else f"has {size:,} of {file.size:,} bytes"
            raise CorruptFile(
                f"{METADATA_DIRECTORY}/{partition}/{file.name} {what}, as {commit.time} wrote it: {_ADVICE}"
            )

    def _read(self, since: str, *, everything: bool) -> Mapping[str, frozenset[str]]:
        """Return the file groups by partition: the last compaction names all of them.

        Before the first compaction there are a few deltacommits, and all of those are read.

        Parameters:
            since: only commits that were completed at this time or later.
            everything: read all commits, also those before the last compaction.
        """
        deltas = [each for each in self.timeline.completed(Action.DELTA_COMMIT) if _order_time(each) >= since]
        compactions = [each for each in self.timeline.completed(Action.COMMIT) if _order_time(each) >= since]
        last = sorted(compactions, key=_order_time)[-1:]
        commits = [*compactions, *deltas] if everything else last or deltas
        self._load_all(commits)
        written: dict[str, frozenset[str]] = {}
        for commit in commits:
            for name, files in (self._files_of(commit) or {}).items():
                written[name] = written.get(name, frozenset()) | {file.file_id for file in files}
        return written

    def _files_of(self, commit: MetadataInstant) -> _Files | None:
        """Return the files of a commit by partition; None: it was not read, or is archived meanwhile."""
        return self._read_now.get(commit.time) or self.known.of(commit)

    def _load_all(self, commits: Iterable[MetadataInstant]) -> None:
        unread = [each for each in commits if self._files_of(each) is None]
        map_concurrently(self.store, [partial(self._load, each) for each in unread])

    def _load(self, instant: MetadataInstant) -> None:
        name = next(name for name in instant.file_names if not name.endswith((".requested", ".inflight")))
        try:
            body = MetadataTimelineStore(self.store, self.version, durable=False).read_body(name)
        except ObjectNotFound:
            return  # archived meanwhile
        files = [
            CommittedFile(stat.partition_path, stat.file_id, stat.file_name, stat.file_size_in_bytes)
            for stat in decode_commit(body, name).stats
        ]
        self._read_now[instant.time] = _by_partition(files)
        self.known.remember(instant.time, instant.completion, files)


def log_problem(
    instant: str,
    size: int,
    blocks: Sequence[str | None],
    committed: CommittedLog | None,
    *,
    layout: int,
    is_whole: bool,
) -> str | None:
    """Return what a log of a complete instant has lost; None: nothing. Pure.

    Parameters:
        instant: as the log's name has it.
        size: of the log, in bytes.
        blocks: the instants of its blocks.
        committed: what commits say of the log; None: they do not tell.
        layout: the timeline layout: in 2 a log is of one instant.
        is_whole: whether all its bytes are blocks.

    Example:
        >>> log_problem("1", 9, ["1"], None, layout=2, is_whole=True), log_problem("1", 0, [], None, layout=2, is_whole=True)
        (None, 'holds no block')
    """
    no_block = "holds bytes that are no log block"
    if layout > 1:
        others = [block for block in blocks if block != instant]
        if not is_whole:
            return no_block
        return "holds no block" if not blocks else f"holds a block of the instant {others[0]}" if others else None
    if committed is None:
        return None
    lost = sorted(committed.instants.difference(block or "" for block in blocks))
    if lost:
        return f"holds no block of the instant {lost[0]}, which wrote to it"
    return no_block if not is_whole and size <= committed.size else None


def log_damage(path: str, problem: str) -> CorruptFile:
    """Return the error for a log that has lost something."""
    return CorruptFile(f"{path} {problem}: {_ADVICE}")


def _by_partition(files: Iterable[CommittedFile]) -> _Files:
    parts: dict[str, list[CommittedFile]] = {}
    for file in files:
        parts.setdefault(file.partition, []).append(file)
    return {partition: tuple(own) for partition, own in parts.items()}


def _logs(named: Iterable[tuple[MetadataInstant, CommittedFile]]) -> dict[str, CommittedLog]:
    logs: dict[str, CommittedLog] = {}
    for commit, file in named:
        before = logs.get(file.name, CommittedLog(frozenset(), 0))
        logs[file.name] = CommittedLog(before.instants | {commit.time}, max(before.size, file.size))
    return logs


def _order_time(instant: MetadataInstant) -> str:
    return instant.completion or instant.time
