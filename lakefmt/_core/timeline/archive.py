"""The archived timeline of a table, of either layout: select instants, add them, read them and their bodies.

Layout 2 has sorted Parquet files, layout 1 log files (docs/format.md, Archived timeline). Loading reads an index of times
and actions; bodies are read on demand. Files are immutable, so results are cached by name and size. Reads of the newest
snapshot do not need the archive.

Instants that are added stay on the active timeline: the caller deletes them there once they are archived.

The active timeline has between a minimum and a maximum of completed commits. A prefix of it is
archived: files older than the first active commit count as committed, so no pending, hiding or
protected instant may fall behind. Cleans and rollbacks are archived with the commits after them. On
layout 1 they are counted separately, each action by the same limits, and restores stay: the archive
has no field for them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, tzinfo
from itertools import accumulate
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.instant import (
    COMMIT_ACTIONS,
    Action,
    Instant,
    State,
    comparable_action,
    format_instant_time,
    parse_instant_time,
)
from lakefmt._core.timeline.lsm_timeline import (
    HistoryEntry,
    HistoryFile,
    HistoryWriter,
    check_group,
    load_manifest,
    open_archived,
    plan_of,
)
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.timeline.v6_archive import LogArchive, LogRecord
from lakefmt._core.values import InstantTime
from lakefmt.errors import CorruptFile, InstantNotFound, InvalidInputError, ObjectNotFound

__all__ = [
    "ArchiveDirectory",
    "ArchiveEdges",
    "ArchivePlan",
    "ArchiveRules",
    "History",
    "HistoryStore",
    "plan_archive",
]

_TimeAndAction = tuple[InstantTime, Action]


@dataclass(frozen=True, slots=True)
class ArchiveDirectory:
    """The archive of one timeline, and how that timeline's files are read.

    Attributes:
        store: the table's store.
        directory: of the archive.
        read_body: returns the content of a file of the active timeline.
        zone: the table's time zone; None: the machine's.
        durable: whether the archive must reach the disk before a call returns.
    """

    store: ObjectStore
    directory: str
    read_body: Callable[[Instant], bytes]
    zone: tzinfo | None
    durable: bool

    def append(self, timeline: Timeline, instants: Iterable[Instant]) -> None:
        """Write instants to the archive.

        Args:
            timeline: the active timeline; of layout 1 with the modification times of its files.
            instants: completed ones of it.

        Raises:
            StorageError: the store failed; the call may be repeated.
        """
        if timeline.layout == 1:
            LogArchive(self.store, self.directory).append(self._records(timeline, instants), durable=self.durable)
            return
        writer = HistoryWriter(self.store, self.directory, durable=self.durable)
        writer.append(self._entries(timeline, instants))
        writer.merge()

    def _entries(self, timeline: Timeline, instants: Iterable[Instant]) -> Iterator[HistoryEntry]:
        """Yield the archive entry of each instant, for layout 2."""
        for instant in instants:
            pending = {f.state: f for f in timeline.files_of(instant) if not f.is_completed}
            bodies = {s: self.read_body(f) for s, f in pending.items()}
            pending_action = next((f.action for f in pending.values()), instant.action)
            plan = plan_of(pending_action, bodies.get(State.REQUESTED, b""), bodies.get(State.INFLIGHT, b""))
            yield HistoryEntry(instant, self.read_body(instant) or None, plan)

    def _records(self, timeline: Timeline, instants: Iterable[Instant]) -> Iterator[LogRecord]:
        """Yield the archive records of each instant, for layout 1: one for each state, with the time of its file."""
        for instant in instants:
            for file in sorted(timeline.files_of(instant), key=lambda f: f.state.rank):
                since = datetime.fromtimestamp(file.modified, UTC)
                # In the machine's time zone every moment has its own offset, because of daylight saving.
                modified = format_instant_time(since, self.zone or since.astimezone().tzinfo or UTC)
                # Several instants of one millisecond get later times than the clock that stamps their files.
                yield LogRecord(file, self.read_body(file), max(modified, instant.time))


#: Hudi merges files up to 1000 MiB; the last source may be as large again.
_MAX_FILE_BYTES = 4 << 30
_INDEX_COLUMNS = ("instantTime", "completionTime", "action")

_INSTANT_TIME = "^[0-9]{14}([0-9]{3})?$"
_LAST_TIME = 10**17 - 1


@dataclass(frozen=True, slots=True)
class _FileIndex:
    """The index of an archive file: its completed instants, access to their bodies, and their completion times."""

    instants: Sequence[Instant]
    body: Callable[[int], bytes]
    transitions: Sequence[str] = ()


@dataclass(frozen=True)
class History:
    """The archived completed instants, ordered by requested time.

    Example:
        >>> History().instants
        ()
    """

    instants: tuple[Instant, ...] = ()
    _places: Mapping[_TimeAndAction, tuple[_FileIndex, int]] = field(default_factory=dict, repr=False)

    def holds(self, instant: Instant) -> bool:
        """Return whether an instant is archived."""
        return (instant.time, comparable_action(instant.action)) in self._places

    def body(self, instant: Instant) -> bytes:
        """Return the body of an instant's completed file.

        Raises:
            InstantNotFound: the instant is not archived.
            ObjectNotFound: the archive was merged meanwhile; load it again.
            CorruptFile: the archive is damaged.
        """
        location = self._places.get((instant.time, comparable_action(instant.action)))
        if location is None:
            raise InstantNotFound(f"no instant {instant.time} in the archived timeline")
        index, row = location
        return index.body(row)

    def transition(self, instant: Instant) -> InstantTime | None:
        """Return the archived creation time of the completed file of a layout 1 instant, or None.

        Instants of layout 2 have a completion time.

        Example:
            >>> done = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED)
            >>> index = _FileIndex([done], lambda at: b"", ["20260101000000500"])
            >>> History((done,), {(done.time, done.action): (index, 0)}).transition(done), History().transition(done)
            ('20260101000000500', None)
        """
        index, row = self._places.get((instant.time, comparable_action(instant.action)), (None, 0))
        if index is None or not index.transitions:
            return None
        try:
            parse_instant_time(index.transitions[row])
        except InvalidInputError:
            return None  # empty before Hudi 0.14; not checked
        return InstantTime(index.transitions[row])


class HistoryStore:
    """The archive directory of one table."""

    def __init__(self, store: ObjectStore, directory: str, layout: int) -> None:
        self._store = store
        self._directory = directory
        self._layout = layout
        self._logs = LogArchive(store, directory)
        self._indexes: dict[tuple[str, int], _FileIndex] = {}

    def files(self) -> list[HistoryFile]:
        """Return the archive files, oldest first; only names of layout 2 say which times a file holds.

        Raises:
            CorruptFile: the manifest is damaged.
            StorageError: the store failed.
        """
        if self._layout == 2:
            return load_manifest(self._store, self._directory)[1]
        return [HistoryFile(name, size) for name, size in self._logs.files()]

    def load_between(self, files: Iterable[HistoryFile], lower: int, upper: int) -> History:
        """Return the archived instants of some of :meth:`files` between two times; nothing stays in memory here.

        Args:
            files: where they are looked for.
            lower: the first requested time, of 17 digits.
            upper: the last one.

        Raises:
            ObjectNotFound: the archive was merged meanwhile.
            CorruptFile: a file is damaged.
            StorageError: the store failed.
        """
        read = self._index_sorted_file if self._layout == 2 else self._index_log
        return _history_of([read(file.name, file.size, (lower, upper)) for file in files])

    def times(self, file: HistoryFile) -> pa.Table:
        """Return the requested times and the actions of one of :meth:`files`; nothing of it stays in memory.

        Raises:
            ObjectNotFound: the archive was merged meanwhile.
            CorruptFile: it is damaged.
            StorageError: the store failed.
        """
        if self._layout == 1:
            instants = self._index_log(file.name, file.size).instants
            columns = {"instantTime": [i.time for i in instants], "action": [i.action.value for i in instants]}
            return pa.table(columns, pa.schema(dict.fromkeys(columns, pa.string())))
        with open_archived(self._store, self.path(file.name)) as source, pq.ParquetFile(source) as parquet:
            self._check_sorted_file(parquet, file.name, file.size)
            table = parquet.read(columns=list(_INDEX_COLUMNS))
            self._check_times(table, file.name)
        return table.select(["instantTime", "action"])

    def load(self) -> History:
        """Return the archived instants; empty without an archive.

        Raises:
            CorruptFile: a manifest or an archive file is damaged.
            StorageError: the store failed.
        """
        try:
            return self._load()
        except ObjectNotFound:
            # The archive was merged between listing and reading: the new files have the same
            # instants.
            return self._load()

    def find(self, instants: Iterable[Instant]) -> list[Instant]:
        """Return the instants that are archived; reads only files that may contain one.

        Of a log archive it reads the newest files: an interrupted archive step left its instants in
            the last file.

        Raises:
            CorruptFile: a manifest or an archive file is damaged.
            StorageError: the store failed.
        """
        instants_by_key = {(i.time, comparable_action(i.action)): i for i in instants}
        try:
            archived = (
                self._find_in_sorted_files(instants_by_key)
                if self._layout == 2
                else self._find_in_logs(instants_by_key)
            )
        except ObjectNotFound:
            archived = (
                self._find_in_sorted_files(instants_by_key)
                if self._layout == 2
                else self._find_in_logs(instants_by_key)
            )
        return [instant for key, instant in instants_by_key.items() if key in archived]

    def _find_in_sorted_files(self, instants_by_key: Mapping[_TimeAndAction, Instant]) -> set[_TimeAndAction]:
        times = sorted(time for time, _ in instants_by_key)
        archived: set[_TimeAndAction] = set()
        for file in load_manifest(self._store, self._directory)[1]:
            low, high = sorted((file.first, file.last))
            if bisect_left(times, low) < bisect_right(times, high):
                archived |= self._actions(file.name, file.size) & instants_by_key.keys()
        return archived

    def _find_in_logs(self, instants_by_key: Mapping[_TimeAndAction, Instant]) -> set[_TimeAndAction]:
        archived: set[_TimeAndAction] = set()
        for name, size in reversed(self._logs.files()):
            here = self._actions(name, size) & instants_by_key.keys()
            if not here:
                break
            archived |= here
        return archived

    def _actions(self, name: str, size: int) -> set[_TimeAndAction]:
        key = (name, size)
        if key not in self._indexes:
            self._indexes[key] = self._index_sorted_file(*key) if self._layout == 2 else self._index_log(*key)
        return {(i.time, comparable_action(i.action)) for i in self._indexes[key].instants}

    def _load(self) -> History:
        files = self._sorted_files() if self._layout == 2 else self._logs.files()
        read = self._index_sorted_file if self._layout == 2 else self._index_log
        indexes = {key: self._indexes.get(key) or read(*key) for key in files}
        self._indexes = indexes
        return _history_of(indexes.values())

    def _index_log(self, name: str, size: int, between: tuple[int, int] = (0, _LAST_TIME)) -> _FileIndex:
        lower, upper = (f"{bound:017}" for bound in between)
        completed = [
            entry
            for entry in self._logs.entries(name, size)
            if entry.instant.is_completed and lower <= entry.instant.time.ljust(17, "0") <= upper
        ]

        def body(row: int) -> bytes:
            data, instant = self._logs.body(completed[row]), completed[row].instant
            if not data and instant.action is not Action.CLEAN:
                raise CorruptFile(f"{self.path(name)} has no content for instant {instant}")
            return data

        return _FileIndex([entry.instant for entry in completed], body, [entry.transition for entry in completed])

    def path(self, name: str) -> str:
        """Return a file's path relative to the table."""
        return f"{self._directory}/{name}"

    # ------------------------------------------------------------------------------------------------- layout 2: sorted

    def _sorted_files(self) -> list[tuple[str, int]]:
        return [(file.name, file.size) for file in load_manifest(self._store, self._directory)[1]]

    def _index_sorted_file(self, name: str, size: int, between: tuple[int, int] | None = None) -> _FileIndex:
        if size > _MAX_FILE_BYTES:
            raise CorruptFile(f"{self._directory}/{name} has {size:,} bytes; at most {_MAX_FILE_BYTES:,} are read")
        with open_archived(self._store, self.path(name)) as source, pq.ParquetFile(source) as file:
            self._check_sorted_file(file, name, size)
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            table = file.read(columns=list(_INDEX_COLUMNS))
            if sum(groups) != len(table):
                raise CorruptFile(f"{self._directory}/{name} announces {sum(groups):,} rows and has {len(table):,}")
            is_known = pc.is_in(table.column("action"), pa.array(_ACTIONS))
            numbers = pc.indices_nonzero(is_known)
            self._check_times(table.take(numbers), name)
            if between is not None:
                times = numbers_of_times(table.column("instantTime").take(numbers))
                inside = pc.and_(pc.greater_equal(times, between[0]), pc.less_equal(times, between[1]))
                numbers = numbers.filter(inside.combine_chunks())
            # One row per instant, with three short texts.
            texts = (table.column(each).take(numbers).to_numpy() for each in _INDEX_COLUMNS)
            completed = State.COMPLETED
            instants = [
                Instant(
                    time, _ACTIONS[action], completed, completion, f"{time}_{completion}{_COMPLETED_SUFFIXES[action]}"
                )
                for time, completion, action in zip(*texts, strict=True)
            ]
        rows, ends, column = numbers.to_numpy(), list(accumulate(groups)), _LastColumn(self, name)

        def body(entry: int) -> bytes:
            row = int(rows[entry])
            group = bisect_right(ends, row)
            value = column.value(group, row - (ends[group] - groups[group]))
            if not value and instants[entry].action is not Action.CLEAN:
                raise CorruptFile(f"{column.path} has no content for instant {instants[entry]}")
            return value or b""

        return _FileIndex(instants, body)

    def _check_times(self, table: pa.Table, name: str) -> None:
        """Raise unless every row has a requested and a completion time."""
        requested, completed = (pc.match_substring_regex(table.column(position), _INSTANT_TIME) for position in (0, 1))
        sound = pc.fill_null(pc.and_kleene(requested, completed), fill_value=False).to_numpy()
        if sound.all():
            return
        time, completion, action = (column.to_numpy()[sound.argmin()] for column in table.columns)
        raise CorruptFile(
            f"{self._directory}/{name} holds a {action} at {time!r:.40}, completed at {completion!r:.40}: "
            "these are no instant times"
        )

    def _check_sorted_file(self, file: pq.ParquetFile, name: str, size: int) -> None:
        schema, count = file.schema_arrow, file.metadata.num_rows
        wrong = [each for each in _INDEX_COLUMNS if each not in schema.names or schema.field(each).type != pa.string()]
        if "metadata" not in schema.names or schema.field("metadata").type != pa.binary():
            wrong.append("metadata")
        if wrong:
            raise CorruptFile(f"{self._directory}/{name} is no archive: {', '.join(wrong)} missing or of another type")
        check_row_counts(file.metadata)
        # Requested times are unique, so a row takes at least one byte.
        if not 0 <= count <= size:
            raise CorruptFile(f"{self._directory}/{name} announces {count:,} rows in {size:,} bytes")

    def read_bodies(self, name: str, group: int) -> pa.ChunkedArray:
        """Return the bodies in a row group of a sorted file."""
        with open_archived(self._store, self.path(name)) as source, pq.ParquetFile(source) as file:
            check_group(file, group, self.path(name))
            return file.read_row_group(group, columns=["metadata"]).column(0)


def _history_of(indexes: Iterable[_FileIndex]) -> History:
    locations: dict[_TimeAndAction, tuple[_FileIndex, int]] = {}
    for index in indexes:
        locations.update(
            ((i.time, _COMPARABLE_ACTIONS[i.action]), (index, row)) for row, i in enumerate(index.instants)
        )
    ordered = [index.instants[row] for index, row in locations.values()]
    ordered.sort(key=attrgetter("time"))
    if len({time for time, _ in locations}) < len(ordered):
        ordered.sort(key=lambda i: (i.time, i.action.value))
    return History(tuple(ordered), locations)


def numbers_of_times(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return instant times as numbers of 17 digits, which have their order.

    Example:
        >>> numbers_of_times(pa.chunked_array([["20260101000000000", "20260101000000"]])).to_pylist()
        [20260101000000000, 20260101000000000]
    """
    return pc.cast(pc.utf8_rpad(times, 17, "0"), pa.int64())


_ACTIONS = {action.value: action for action in Action}
_COMPARABLE_ACTIONS = {action: comparable_action(action) for action in Action}
#: The suffix of a completed file's name.
_COMPLETED_SUFFIXES = {action.value: f".{comparable_action(action).value}" for action in Action}


class _LastColumn:
    """Cache of the last row group: bodies are requested in order."""

    def __init__(self, store: HistoryStore, name: str) -> None:
        self._store = store
        self._name = name
        self._last: tuple[int, pa.ChunkedArray] | None = None

    @property
    def path(self) -> str:
        return self._store.path(self._name)

    def value(self, group: int, row: int) -> bytes | None:
        last = self._last
        if last is None or last[0] != group:
            last = self._last = (group, self._store.read_bodies(self._name, group))
        if row >= len(last[1]):
            raise CorruptFile(f"{self.path} has content for {len(last[1]):,} of its instants only")
        value = last[1][row].as_buffer()
        return None if value is None else bytes(value)


#: Actions archived together with the commits after them.
_COMPANIONS = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})
#: Actions that layout 1 counts separately.
_COUNTED = (Action.CLEAN, Action.ROLLBACK)


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """The limits of the active timeline, in completed commits.

    Attributes:
        min_commits: the number after an archive step.
        max_commits: above this number an archive step is due.
        delta_commits: for merge-on-read tables whose compactions are triggered by number: this
            number of latest deltacommits stays, and with fewer the last compaction, because the
            trigger counts them; 0 for other tables.
    """

    min_commits: int = 20
    max_commits: int = 30
    delta_commits: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.min_commits < self.max_commits:
            raise InvalidInputError(
                f"the active timeline keeps between hoodie.keep.min.commits={self.min_commits} and "
                f"hoodie.keep.max.commits={self.max_commits} commits: the first must be the smaller one"
            )


@dataclass(frozen=True, slots=True)
class ArchiveEdges:
    """Limits that are not in the names of the timeline.

    Attributes:
        retained_from: earliest commit that the last clean retained; it and newer ones stay.
        straddling: deltacommits that overlap a compaction request and whose logs exist: their
            completion time places the logs, and some readers do not read the archive.
        hiding: replacecommits whose replaced file groups still have files: only they hide those
            rows.
        has_metadata_table: instants that the metadata table has not compacted stay.
        metadata_compacted: newest compaction of the metadata table; None without one.
        others: further instants that stay with all newer ones, and why.
    """

    retained_from: InstantTime | None = None
    straddling: Collection[InstantTime] = ()
    hiding: Collection[InstantTime] = ()
    has_metadata_table: bool = False
    metadata_compacted: InstantTime | None = None
    others: tuple[tuple[InstantTime, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The instants of an archive step; prints one line each.

    Attributes:
        instants: completed instants, oldest first.
        barrier: why no more instants are archived; "" if only the count limits them.
    """

    instants: tuple[Instant, ...] = ()
    barrier: str = ""

    @property
    def num_commits(self) -> int:
        """The number of commits among them."""
        return sum(instant.action in COMMIT_ACTIONS for instant in self.instants)

    def __str__(self) -> str:
        stopped = f"; stopped by {self.barrier}" if self.barrier else ""
        lines = [f"archive {len(self.instants)} instants, {self.num_commits} of them commits{stopped}"]
        return "\n".join([*lines, *(f"  {instant}" for instant in self.instants)])


def plan_archive(
    timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges | None = None, *, force: bool = False
) -> ArchivePlan:
    """Return the instants to archive.

    Args:
        timeline: the active timeline.
        rules: the limits.
        edges: further limits.
        force: archive also below the maximum.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"202601010000{n:05d}_202601010000{n:05d}.commit" for n in range(10)]
        >>> plan = plan_archive(timeline_from_names(names, 2), ArchiveRules(2, 4))
        >>> plan.num_commits, plan.instants[-1].time
        (8, '20260101000000007')
    """
    known_edges = edges or ArchiveEdges()
    commits, barrier = _leaving(timeline, rules, known_edges, force)
    leaving = (*commits, *_companions(timeline, rules, known_edges, commits[-1].time if commits else None, force))
    return ArchivePlan(tuple(sorted(leaving, key=lambda i: (i.time, i.action.value))), barrier)


def _leaving(timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges, force: bool) -> tuple[list[Instant], str]:
    """Return the commits to archive, and what keeps the others."""
    commits = timeline.completed_of(*COMMIT_ACTIONS)
    if len(commits) <= (rules.min_commits if force else rules.max_commits):
        return [], ""
    candidates = commits[: len(commits) - rules.min_commits]
    limit, barrier = _barrier(timeline, rules, edges)
    leaving = [i for i in candidates if limit is None or i.time < limit]
    return leaving, barrier if len(leaving) < len(candidates) else ""


def _companions(
    timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges, last: InstantTime | None, force: bool
) -> list[Instant]:
    # The newest clean stays: it records the earliest readable state.
    newest_clean = max((i.time for i in timeline.completed_of(Action.CLEAN)), default=None)
    if timeline.layout == 1:
        by_action = [timeline.completed_of(action) for action in _COUNTED]
        enough = rules.min_commits if force else rules.max_commits
        counted = [i for group in by_action if len(group) > enough for i in group[: len(group) - rules.min_commits]]
        edge = _metadata_edge(timeline, edges)[:1]
        return [i for i in counted if all(i.time < time for time, _ in edge)]
    if last is None:
        return []
    before = (i for i in timeline.completed if i.action in _COMPANIONS and i.time < last)
    return [i for i in before if i.action is not Action.CLEAN or i.time != newest_clean]


def _barrier(timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges) -> tuple[InstantTime | None, str]:
    """Return the first instant that must stay active, and the reason."""
    barriers = [*_waiting_edge(timeline), *_compaction_edge(timeline, rules), *_metadata_edge(timeline, edges)]
    barriers += edges.others
    saved = [i.time for i in timeline.completed_of(Action.SAVEPOINT)]
    barriers += [(time, f"the savepoint of {time}") for time in saved]
    barriers += [(time, f"the replacecommit {time}, whose replaced files are not cleaned yet") for time in edges.hiding]
    barriers += [
        (time, f"the deltacommit {time}, whose logs lie on what was requested before it completed")
        for time in edges.straddling
    ]
    if edges.retained_from is not None:
        barriers.append((edges.retained_from, f"{edges.retained_from}, from which on the last clean keeps every state"))
    return min(barriers, default=(None, ""), key=lambda pair: pair[0] or "")


_Edge = tuple[InstantTime, str]


def _waiting_edge(timeline: Timeline) -> list[_Edge]:
    """The limits by the oldest pending write or plan, and by the commits that its conflict check reads.

    These are all commits that completed since it began, and, as in Hudi, the last one before it.
    """
    waiting = next((i for i in timeline.pending if i.action not in _COMPANIONS), None)
    if waiting is None:
        return []
    began = min((file.modified for file in timeline.files_of(waiting)), default=0.0)
    commits = timeline.completed_of(*COMMIT_ACTIONS)
    before = [i.time for i in commits if i.time < waiting.time][-1:]
    # Version 6 has no completion times: file times are used.
    late = [
        i.time for i in commits if (i.completion or "") > waiting.time or (i.completion is None and i.modified > began)
    ]
    return [(min((*before, *late, waiting.time)), str(waiting))]


def _compaction_edge(timeline: Timeline, rules: ArchiveRules) -> list[_Edge]:
    """The limit by compaction triggers that count deltacommits."""
    if not rules.delta_commits:
        return []
    compacted = max((i.time for i in timeline.completed_of(Action.COMMIT)), default=None)
    deltas = [i.time for i in timeline.completed_of(Action.DELTA_COMMIT) if i.time > (compacted or "")]
    latest_deltas = deltas[-rules.delta_commits :]
    if not latest_deltas:
        return []
    first = compacted if compacted is not None and len(deltas) < rules.delta_commits else latest_deltas[0]
    return [(first, f"{first}, from which on the trigger of compactions counts deltacommits")]


def _metadata_edge(timeline: Timeline, edges: ArchiveEdges) -> list[_Edge]:
    """The first instant that the metadata table has only in logs: its readers look for it on this timeline."""
    if not edges.has_metadata_table:
        return []
    compacted = edges.metadata_compacted
    first = next((i.time for i in timeline.completed if compacted is None or i.order_time > compacted), None)
    return [] if first is None else [(first, "the metadata table, which was not compacted since")]
