"""Write rows of a stream that is more than memory, file group by file group, through temporary files.

1. Rows are put in the order of their keys on the disk, so that all rows of a key come together: they are combined and
   looked up part by part, as one batch is. 2. What is found goes to the disk again, in the order of the file groups; how many
   rows each file group takes is counted meanwhile. 3. The planner of every write makes files of these counts, and each file
   is written when its rows are there. New rows of a partition that are more than a part become new files as they come.

Where an index decides where a row goes, every file group is written once by a bulk insert, so all its rows have to be there.
Where rows of one key become one, all of these have to be. A stream that is more than a window is sorted on the disk, and
handed out in parts that share no file group, or no key.

The keys of such a stream are deleted the same way (:func:`delete_key_stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import field
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import base_file_name, has_bucket_number
from lakefmt._core.index import Index, IndexKeys, Located, PlacingIndex
from lakefmt._core.index.bucket_index import check_no_buckets
from lakefmt._core.sorting import gather_windows, sort_stream
from lakefmt._core.values import (
    PARTITION_PATH,
    RECORD_KEY,
    CommitResult,
    FileId,
    InstantTime,
    PartitionPath,
    Partitions,
    TableType,
)
from lakefmt._core.write.assign import Assigned, FileSizing, Logs, Routes, assign_rows, new_file, new_rows
from lakefmt._core.write.commit.conflict_resolution import Footprint
from lakefmt._core.write.context import MOVED_AWAY, Announcements, BoundContext, FileAssignment, LogTarget, WriteStatus
from lakefmt._core.write.files.base_file import may_be_merged_in_parts, write_assigned
from lakefmt._core.write.files.meta_columns import POSITION
from lakefmt._core.write.ingest import KeyedBatch, handed_out, in_no_partition, read_all, record_keys, with_keys
from lakefmt._core.write.mutations import DeleteKeys, GivenKeys, keys_and_partitions
from lakefmt._core.write.pipeline import LocatedRows, PlacedRows, complete_log_rows
from lakefmt._core.write.slice_state import log_placing

__all__ = [
    "NEW",
    "FoundRows",
    "GroupToWrite",
    "combined_rows",
    "delete_key_stream",
    "group_names",
    "numbered_file",
    "placed_parts",
    "plan_groups",
    "write_by_group",
]

Numbers = npt.NDArray[np.int64]

#: The file id of rows whose key is not stored.
NEW = FileId("")


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows that go to one file group, or to new ones.

    Attributes:
        partition: of the file group.
        file_id: of the file group; :data:`NEW`: the keys are new.
        rows: how many.
    """

    partition: PartitionPath
    file_id: FileId
    rows: int


@dataclass(frozen=True, slots=True)
class GroupToWrite:
    """One file to write.

    Attributes:
        assignment: the file.
        file_slice: what is stored of its file group; None: nothing.
        found_rows: rows whose key it has.
        new_rows: rows with new keys that it takes, as far as their number was known.
    """

    assignment: FileAssignment
    file_slice: FileSlice | None
    found_rows: int
    new_rows: int


def plan_groups(
    located_rows: Sequence[FoundRows],
    slices: Sequence[FileSlice],
    sizing: FileSizing,
    instant: InstantTime,
    new_uuid: Callable[[], str],
    logs: Logs | None,
    *,
    appends: bool,
) -> list[GroupToWrite]:
    """Return the files to write, by the planner of every write (:func:`~lakefmt._core.write.assign.assign_rows`).

    Args:
        located_rows: what the look-up found; of a file group one entry.
        slices: the latest file slices of the partitions.
        sizing: how large files should be.
        instant: the write's instant time.
        new_uuid: makes names for new file groups.
        logs: how changes go to logs; None: base files are rewritten.
        appends: no key was looked for.

    Example:
        >>> ids = iter(["1c1e4c0f-0000-4000-8000-000000000000"])
        >>> sizing = FileSizing(1000, 0, 1.0)
        >>> (group,) = plan_groups(
        ...     [FoundRows("p", NEW, 7)], [], sizing, "20260101000000000", lambda: next(ids), None, appends=False
        ... )
        >>> group.new_rows, group.assignment.file_name
        (7, '1c1e4c0f-0000-4000-8000-000000000000-0_0-0-0_20260101000000000.parquet')
    """
    numbers = {(each.partition, each.file_id): number for number, each in enumerate(slices)}
    new = [each for each in located_rows if each.file_id == NEW]
    old = [each for each in located_rows if each.file_id != NEW]
    names = list(dict.fromkeys(each.partition for each in located_rows))
    codes = {name: code for code, name in enumerate(names)}
    # One row stands for all that a file group has; of new ones the planner wants each.
    counts = [each.rows for each in new] + [1] * len(old)
    indices = np.repeat(np.array([codes[each.partition] for each in [*new, *old]], np.int32), counts)
    partitions = pa.DictionaryArray.from_arrays(from_numpy(indices), pa.array(names, pa.string()))
    num_new = len(indices) - len(old)
    stay = Located(
        np.arange(num_new, len(indices)), np.array([numbers[each.partition, each.file_id] for each in old], np.int64)
    )
    routes = Routes(None) if appends else Routes(stay)
    rows_of = {(each.partition, each.file_id): each.rows for each in old}
    return [
        GroupToWrite(
            replace(each.assignment, num_rows=None),
            _slice_of_file(each.assignment, slices, numbers),
            rows_of.get((each.assignment.partition, each.assignment.file_id), 0),
            int(np.count_nonzero(each.rows < num_new)),
        )
        for each in assign_rows(partitions, routes, slices, sizing, instant, new_uuid, logs)
    ]


def _slice_of_file(
    file: FileAssignment, slices: Sequence[FileSlice], numbers: Mapping[tuple[PartitionPath, FileId], int]
) -> FileSlice | None:
    number = numbers.get((file.partition, file.file_id))
    return None if number is None else slices[number]


def numbered_file(file: FileAssignment, instant: InstantTime, number: int) -> FileAssignment:
    """Return an assignment whose file has a sequence number of its own in the write.

    Args:
        file: the file.
        instant: the write's instant time.
        number: its sequence number.

    Example:
        >>> file = FileAssignment("p", "f-0", "f-0_0-0-0_20260101000000000.parquet", None, False, 1, 0)
        >>> numbered_file(file, "20260101000000000", 7).file_name
        'f-0_7-0-0_20260101000000000.parquet'
    """
    if file.log is None:
        name = base_file_name(file.file_id, f"{number}-0-0", instant)
        return replace(file, file_name=name, sequence=number)
    head, _, token = file.file_name.rpartition("_")
    token = f"{number}-{token.partition('-')[2]}"
    return _named_as_before(replace(file, file_name=f"{head}_{token}", sequence=number), file.log, token)


def _named_as_before(file: FileAssignment, log: LogTarget, token: str) -> FileAssignment:
    """Return an assignment of a log under the name that an earlier attempt gave it.

    Logs of version 6 are named by their slice and counted: that of an earlier attempt is among them, and is not another
    write's.
    """
    begin = file.file_name.rpartition(".log.")[0]
    own = [name for name in log.older if name.startswith(f"{begin}.log.") and name.endswith(f"_{token}")]
    if not own:
        return file
    versions = {name: int(name.removeprefix(f"{begin}.log.").partition("_")[0]) for name in own}
    first = min(own, key=versions.__getitem__)
    older = tuple(name for name in log.older if name not in versions)
    return replace(file, file_name=first, log=replace(log, version=versions[first], older=older))


#: Rows that are no more than this part of the memory are not sorted: writing them takes as much again.
_UNSORTED_MEMORY_PARTS: Final = 4
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def group_names(
    table_at: TableAt, index: PlacingIndex, keyed: Callable[[pa.Table], KeyedBatch], replaces: bool, table: pa.Table
) -> pa.Array:
    """Return for each row a text that names its file group, the same one in every call.

    Args:
        table_at: the table, at one moment.
        index: decides where a row goes.
        keyed: makes the keys of rows.
        replaces: the write replaces what is stored.
        table: the rows.
    """
    batch = keyed(table)
    partitions = [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows
    slices = [] if replaces else table_at.slices(partitions)
    placed = index.place(IndexKeys(record_keys(batch), batch.partitions), slices, lambda: _NO_UUID)
    names = pa.array([f"{partition}\x00{file_id}" for partition, file_id in placed.file_groups], pa.string())
    return names.take(from_numpy(placed.groups))


def placed_parts(
    tables: Iterable[pa.Table], names: Callable[[pa.Table], pa.Array], memory_bytes: int
) -> Generator[pa.Table]:
    """Yield the rows of a stream in tables; no file group has rows in two of them.

    Args:
        tables: the rows.
        names: gives each row a text that names its file group.
        memory_bytes: what may be held. A table holds about an eighth of it, or the rows of one file group if these are more.

    Raises:
        StorageError: the temporary directory could not take the rows.

    Example:
        >>> rows = [pa.table({"g": ["a", "b"]}), pa.table({"g": ["a"]})]
        >>> [t["g"].to_pylist() for t in placed_parts(rows, lambda t: t["g"].combine_chunks(), 1 << 20)]
        [['a', 'b', 'a']]
    """
    with closing(gather_windows(tables, memory_bytes // _UNSORTED_MEMORY_PARTS)) as windows:
        first, is_last = next(windows, (None, True))
        if first is None:
            return
        second = None if is_last else next(windows, None)
        if second is None:
            yield first
            return
        begun = [first, second[0]]
        del first, second
        rest = chain(handed_out(begun), (window for window, _ in windows))
        with closing(sort_stream(rest, names, memory_bytes)) as ordered:
            yield from _whole_groups(ordered, names)


def combined_rows(
    key: Callable[[pa.Table], KeyedBatch],
    keyed: Callable[[pa.Table], KeyedBatch],
    tables: Iterable[pa.Table],
    memory_bytes: int,
    *,
    across_partitions: bool,
) -> Generator[pa.Table]:
    """Yield the rows of a stream in the order of their keys, those of one key combined.

    Args:
        key: combines the rows of each key of a table.
        keyed: makes the keys of rows, as they come.
        tables: the rows.
        memory_bytes: what may be held.
        across_partitions: a key is one row of the whole table.

    Raises:
        StorageError: the temporary directory could not take the rows.
    """
    with closing(parts_by_key(keyed, tables, memory_bytes, across_partitions=across_partitions)) as parts:
        for part in parts:
            rows = key(part).table
            if MOVED_AWAY in rows.column_names:  # rows that a table's own function deletes
                stays = pc.invert(rows.column(MOVED_AWAY))
                rows = rows.filter(stays).drop_columns([MOVED_AWAY])
            yield rows


def parts_by_key(
    keyed: Callable[[pa.Table], KeyedBatch], tables: Iterable[pa.Table], memory_bytes: int, *, across_partitions: bool
) -> Generator[pa.Table]:
    """Return the rows of a stream in tables; no key has rows in two of them. Arguments as for :func:`combined_rows`."""
    conformed = (keyed(table).table for table in tables)
    return placed_parts(conformed, lambda table: _key_order(keyed(table), across_partitions), memory_bytes)


def _key_order(batch: KeyedBatch, across_partitions: bool) -> pa.Array:
    """Return each row's partition and key as one text; with a key of the whole table the key alone."""
    keys = record_keys(batch)
    if across_partitions:
        return keys
    return pc.binary_join_element_wise(batch.partitions.cast(pa.string()), keys, "\x00")


def _whole_groups(ordered: Iterable[pa.Table], names: Callable[[pa.Table], pa.Array]) -> Iterator[pa.Table]:
    """Join tables of one file group that follow each other: a sort hands these out in several tables."""
    waiting: list[pa.Table] = []
    group: str | None = None
    for table in ordered:
        ends = names(pa.concat_tables([table.slice(0, 1), table.slice(table.num_rows - 1)])).to_pylist()
        if waiting and ends[0] != group:
            yield _joined_and_emptied(waiting)
        waiting.append(table)
        del table
        group = ends[1]
    if waiting:
        yield _joined_and_emptied(waiting)


def _joined_and_emptied(waiting: list[pa.Table]) -> pa.Table:
    whole = waiting[0] if len(waiting) == 1 else read_all(waiting[0].schema, list(waiting))
    waiting.clear()
    return whole


#: The column that tells the file group of a row while it is on the disk.
_GROUP_COLUMN: Final = "_lakefmt_file_group"
#: What is held at a time is this part of the memory: rows are there several times while they are made ready.
_HELD_MEMORY_PARTS: Final = 8
#: New rows that are planned together, and files that are written together.
_MOST_ROWS_PLANNED, _FILES_WRITTEN = 1 << 20, 1000


class GroupSteps(Protocol):
    """What this way of writing asks of a write."""

    client: TableClient
    bound: BoundContext
    state: TableState

    def key(self, table: pa.Table, /) -> KeyedBatch:
        """Return rows with their keys, combined where the operation asks for it."""
        ...

    def locate(self, batch: KeyedBatch, /) -> LocatedRows:
        """Return where the keys of a batch are stored."""
        ...

    def check_early(self, assigned: Sequence[Assigned], /) -> None:
        """Raise when files that are about to be written cannot stand."""
        ...

    def write(self, placed: PlacedRows, announcements: Announcements, /) -> list[WriteStatus]:
        """Write every file of a placement."""
        ...


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How rows are written by file group.

    Attributes:
        memory_bytes: what may be held of them.
        looks_up: rows of a key have to come together: they are combined, or their keys looked up.
        across_partitions: a key is one row of the whole table.
        appends: no key is looked for.
        fills: new rows may go to stored files that are small.
        unique: no two rows that are written have one key.
    """

    memory_bytes: int
    looks_up: bool
    across_partitions: bool
    appends: bool
    fills: bool
    unique: bool


def write_by_group(
    write: GroupSteps, keyed: Callable[[pa.Table], KeyedBatch], tables: Iterable[pa.Table], how: GroupOptions
) -> tuple[list[WriteStatus], frozenset[PartitionPath], Footprint]:
    """Write the rows of a stream.

    Args:
        write: the write.
        keyed: makes the keys of rows, as they come.
        tables: the rows.
        how: what may be held, and what the operation asks for.

    Returns:
        What was written, the partitions that have rows, and what these rely on. The keys are too many to be held: who
        relies on them covers their partitions.

    Raises:
        StorageError: the temporary directory could not take the rows, or the store failed.
    """
    counted = _FoundCounts()
    parts: Generator[pa.Table]
    if how.looks_up:
        parts = parts_by_key(keyed, tables, how.memory_bytes, across_partitions=how.across_partitions)
    else:
        conformed = (keyed(table).table for table in tables)
        parts = (table for table, _ in gather_windows(conformed, how.memory_bytes // _HELD_MEMORY_PARTS))
    with closing(parts):
        rows = _located_parts(write, parts, counted)
        with closing(
            sort_stream(rows, lambda table: table.column(_GROUP_COLUMN).combine_chunks(), how.memory_bytes)
        ) as ordered:
            first = next(ordered, None)  # all rows have been looked up by then
            if first is None:
                return [], counted.partitions, counted.footprint
            files = _FilesInOrder(write, counted, how)
            return files.write(_starting_with([first], ordered)), counted.partitions, counted.footprint


def _starting_with(first: list[pa.Table], rest: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables without holding on to the first."""
    yield first.pop()
    yield from rest


@dataclass(slots=True)
class _FoundCounts:
    """What the look-ups have found, counted."""

    counts: dict[tuple[PartitionPath, FileId], int] = field(default_factory=dict)
    rows: int = 0
    num_bytes: int = 0
    sizing: FileSizing | None = None
    footprint: Footprint = Footprint()

    @property
    def partitions(self) -> frozenset[PartitionPath]:
        return frozenset(partition for partition, _ in self.counts)

    def add(self, groups: Sequence[tuple[PartitionPath, FileId]], counts: Sequence[int]) -> None:
        for group, count in zip(groups, counts, strict=True):  # file groups, not rows
            if count:
                self.counts[group] = self.counts.get(group, 0) + count


def _located_parts(write: GroupSteps, parts: Iterable[pa.Table], counted: _FoundCounts) -> Iterator[pa.Table]:
    """Look up parts of the rows, and yield them with the file group of each."""
    for part in parts:
        located = write.locate(write.key(part))
        del part
        counted.sizing = counted.sizing or located.sizing
        counted.footprint += located.footprint.without_keys()
        rows = _rows_by_group(located, counted)
        counted.rows += rows.num_rows
        counted.num_bytes += rows.nbytes
        yield rows
        del rows, located


def _rows_by_group(located: LocatedRows, counted: _FoundCounts) -> pa.Table:
    batch, routes = located.batch, located.routes
    stay, leave, new = routes.stay, routes.leave, new_rows(batch.num_rows, routes)
    pairs = [each for each in (stay, leave) if each is not None]
    rows = np.concatenate([*(each.rows for each in pairs), new])
    # The groups are numbered: first the slices, then the partitions for new rows.
    names = [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows
    groups = [(each.partition, each.file_id) for each in located.slices] + [(name, NEW) for name in names]
    new_codes = batch.partitions.indices.to_numpy(zero_copy_only=False)[new].astype(np.int64) + len(located.slices)
    codes = np.concatenate([*(each.slices for each in pairs), new_codes])
    counted.add(groups, np.bincount(codes, minlength=len(groups)).tolist())
    table = with_keys(batch.table, batch.keys)
    marks = np.zeros(batch.num_rows, bool)
    if MOVED_AWAY in table.column_names:
        marks = table.column(MOVED_AWAY).to_numpy().astype(bool)
        table = table.drop_columns([MOVED_AWAY])
    marks = marks[rows]
    positions = np.full(len(rows), -1, np.int64)
    if stay is not None and stay.positions is not None:
        positions[: len(stay.rows)] = stay.positions
    if leave is not None:
        before = len(rows) - len(new) - len(leave.rows)
        marks[before : before + len(leave.rows)] = True
    texts = pa.array([_text_of_group(each) for each in groups], pa.string()).take(from_numpy(codes))
    more = {_GROUP_COLUMN: texts, MOVED_AWAY: from_numpy(marks), POSITION: from_numpy(positions)}
    taken = table.take(from_numpy(rows))
    for name, column in more.items():
        taken = taken.append_column(name, column)
    return taken


def _text_of_group(group: tuple[PartitionPath, FileId]) -> str:
    return f"{group[0]}\x00{group[1]}"


@dataclass(frozen=True, slots=True)
class _ReadyFile:
    """A file whose rows are all there."""

    group: GroupToWrite
    rows: pa.Table


class _FilesInOrder:
    """The files of a write whose rows come in the order of their file groups; new rows of a partition come first."""

    def __init__(self, write: GroupSteps, counted: _FoundCounts, how: GroupOptions) -> None:
        self._write = write
        self._bound = write.bound
        self._found = counted
        self._how = how
        self._sizing = counted.sizing or FileSizing(1, 0, 1.0)
        self._logs = log_placing(
            write.client.at(write.state), positions=write.bound.settings.flag("hoodie.write.record.positions")
        )
        self._announcements = Announcements(self._bound)
        self._held_bytes = how.memory_bytes // _HELD_MEMORY_PARTS
        self._sequence = 0
        self._row_bytes = row_bytes = counted.num_bytes / max(1, counted.rows)
        #: Partitions with more new rows than are held: they are written as they come.
        self._many = frozenset(
            partition
            for (partition, file_id), count in counted.counts.items()
            if file_id == NEW and count * row_bytes > self._held_bytes
        )
        self._planned: dict[tuple[PartitionPath, FileId], GroupToWrite] = {}
        #: Files of each partition that take new rows, in the order in which they take them.
        self._takers: dict[PartitionPath, list[GroupToWrite]] = {}
        self._slices: dict[tuple[PartitionPath, FileId], FileSlice] = {}
        for some in self._chunks():
            self._plan(some)

    def _chunks(self) -> Iterator[list[FoundRows]]:
        """Yield what was found, whole partitions at a time; of new rows only those that are planned."""
        some: list[FoundRows] = []
        rows = 0
        by_partition = sorted(self._found.counts.items(), key=itemgetter(0))
        for partition, counts in groupby(by_partition, key=lambda each: each[0][0]):
            for (_, file_id), count in counts:
                if file_id != NEW or partition not in self._many:
                    some.append(FoundRows(partition, file_id, count))
                    rows += count if file_id == NEW else 1
            if rows > _MOST_ROWS_PLANNED:
                yield some
                some, rows = [], 0
        if some:
            yield some

    def _plan(self, some: Sequence[FoundRows]) -> None:
        write, instant = self._write, self._bound.instant
        names = list(dict.fromkeys(each.partition for each in some))
        slices = write.client.at(write.state).slices(names) if self._how.fills or not self._how.appends else []
        opened = {each.partition for each in some if each.file_id == NEW} | self._many
        if any(has_bucket_number(each.file_id) for each in slices):
            check_no_buckets(slices, opened)
        sizing = self._sizing if self._how.fills else replace(self._sizing, small_bytes=0)
        new_uuid = write.client.ids.new_uuid
        for group in plan_groups(some, slices, sizing, instant, new_uuid, self._logs, appends=self._how.appends):
            file = numbered_file(group.assignment, instant, self._next_number())
            group = replace(group, assignment=replace(file, num_rows=group.found_rows + group.new_rows))
            where = (file.partition, file.file_id)
            self._planned[where] = group
            if group.new_rows:
                self._takers.setdefault(file.partition, []).append(group)
            if group.file_slice is not None:
                self._slices[where] = group.file_slice

    def _next_number(self) -> int:
        number, self._sequence = self._sequence, self._sequence + 1
        return number

    def write(self, ordered: Iterable[pa.Table]) -> list[WriteStatus]:
        """Write all files."""
        statuses: list[WriteStatus] = []
        waiting: list[_ReadyFile] = []
        held = 0
        for ready in self._ready(ordered, statuses):
            waiting.append(ready)
            held += ready.rows.nbytes
            if held >= self._held_bytes or len(waiting) >= _FILES_WRITTEN:
                statuses += self._flush(waiting)
                held = 0
        if waiting:
            statuses += self._flush(waiting)
        return statuses

    def _ready(self, ordered: Iterable[pa.Table], statuses: list[WriteStatus]) -> Iterator[_ReadyFile]:
        """Yield each file when its rows are there; new files of many rows are written here."""
        shares: dict[FileId, pa.Table] = {}
        for name, parts_of_group in groupby(_pieces_of_groups(ordered), key=itemgetter(0)):
            first, _, last = name.partition("\x00")
            partition, file_id = PartitionPath(first), FileId(last)
            rows = (part_rows for _, part_rows in parts_of_group)
            if file_id == NEW and partition in self._many:
                statuses += self._stream(partition, self._found.counts[partition, NEW], rows)
                continue
            if (group := self._large_rewrite(partition, file_id)) is not None:
                statuses.append(self._rewrite(group, rows, shares.pop(file_id, None)))
                continue
            whole = pa.concat_tables([part.drop_columns([_GROUP_COLUMN]) for part in rows])
            if file_id != NEW:
                group = self._planned[partition, file_id]
                more = shares.pop(file_id, None)
                yield _ReadyFile(group, whole if more is None else pa.concat_tables([whole, more]))
                continue
            start = 0
            for group in self._takers[partition]:
                share = whole.slice(start, group.new_rows)
                start += group.new_rows
                if group.found_rows:
                    shares[group.assignment.file_id] = share  # its other rows come next
                else:
                    yield _ReadyFile(group, share)

    def _large_rewrite(self, partition: PartitionPath, file_id: FileId) -> GroupToWrite | None:
        """Return a file that takes more rows than are held, where they can be merged as they come."""
        if file_id == NEW or not self._how.unique:
            return None
        group = self._planned[partition, file_id]
        is_large = group.found_rows * self._row_bytes > self._held_bytes
        return group if is_large and may_be_merged_in_parts(self._bound, group.assignment) else None

    def _rewrite(self, group: GroupToWrite, rows: Iterator[pa.Table], more: pa.Table | None) -> WriteStatus:
        """Write one file whose rows are merged as they come."""
        self._write.check_early([Assigned(group.assignment, np.arange(0))])
        announced = self._announcements.announce([group.assignment])
        plain = (table.drop_columns([_GROUP_COLUMN]) for table in rows)
        tables = plain if more is None else chain(plain, [more])
        status = write_assigned(self._bound, group.assignment, tables, alone=True, held=False, announced=announced)
        pa.default_memory_pool().release_unused()
        return status

    def _stream(self, partition: PartitionPath, count: int, rows: Iterator[pa.Table]) -> Iterator[WriteStatus]:
        """Write new files of one partition as their rows come."""
        per_file, coming = self._sizing.rows_per_file, _ComingRows(rows)
        while count:
            size = min(count, per_file)
            count -= size
            new_uuid, number = self._write.client.ids.new_uuid, self._next_number()
            file: FileAssignment = new_file(partition, self._bound.instant, number, new_uuid, rows=size)
            announced = self._announcements.announce([file])
            yield write_assigned(self._bound, file, coming.take(size), alone=True, announced=announced)
            pa.default_memory_pool().release_unused()

    def _flush(self, waiting: list[_ReadyFile]) -> list[WriteStatus]:
        """Write files whose rows are there, side by side."""
        table = pa.concat_tables([each.rows for each in waiting])
        groups = [each.group for each in waiting]
        counts = [each.rows.num_rows for each in waiting]
        waiting.clear()
        marks, all_positions = table.column(MOVED_AWAY).to_numpy(), table.column(POSITION).to_numpy()
        table = table.drop_columns([POSITION] if marks.any() else [POSITION, MOVED_AWAY])
        keys = None
        if RECORD_KEY in table.column_names:
            keys = table.column(RECORD_KEY).combine_chunks()
            table = table.drop_columns([RECORD_KEY])
        ends = np.cumsum([0, *counts])
        assigned = []
        for number, group in enumerate(groups):
            span = slice(int(ends[number]), int(ends[number + 1]))
            positions = all_positions[span] if self._are_placed(group, all_positions[span], marks[span]) else None
            assigned.append(Assigned(group.assignment, np.arange(span.start, span.stop), positions=positions))
        batch = KeyedBatch(table, keys, in_no_partition(len(marks)))
        slices = [
            self._slices[where]
            for where in ((g.assignment.partition, g.assignment.file_id) for g in groups)
            if where in self._slices
        ]
        assigned = (
            complete_log_rows(
                self._write.client.at(self._write.state), self._bound, assigned, slices, keys, table.column_names
            )
            if self._bound.config.table_type is TableType.MERGE_ON_READ
            else assigned
        )
        del table
        self._write.check_early(assigned)
        statuses = self._write.write(PlacedRows(batch, assigned), self._announcements)
        del batch, keys, assigned
        pa.default_memory_pool().release_unused()
        return statuses

    def _are_placed(self, group: GroupToWrite, positions: Numbers, marks: npt.NDArray[np.bool_]) -> bool:
        """Tell whether a log's rows bring their places in the base file along."""
        if self._logs is None or not self._logs.positions or group.assignment.log is None:
            return False
        return bool((positions >= 0).any()) and not marks.any()


def _pieces_of_groups(ordered: Iterable[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each file group as they come, with its name."""
    for table in ordered:
        runs = pc.run_end_encode(table.column(_GROUP_COLUMN).combine_chunks(), run_end_type=pa.int64())
        start = 0
        for name, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):  # file groups, not rows
            yield name, table.slice(start, end - start)
            start = end


class _ComingRows:
    """Tables that are taken a number of rows at a time."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._rest: pa.Table | None = None

    def take(self, rows: int) -> Iterator[pa.Table]:
        """Yield the next rows, as many as said."""
        while rows:
            table = next(self._tables) if self._rest is None else self._rest
            self._rest = table.slice(rows) if table.num_rows > rows else None
            given = table.slice(0, rows)
            rows -= given.num_rows
            yield given.drop_columns([_GROUP_COLUMN, POSITION])


class DeleteSteps(Protocol):
    """What a delete by file group asks of a write."""

    client: TableClient
    bound: BoundContext
    state: TableState

    @property
    def index(self) -> Index:
        """The index of the write."""
        ...

    def rely_on(self, footprint: Footprint) -> None:
        """Remember what other writers must not change."""
        ...

    def aborted_on_error(self) -> AbstractContextManager[None]:
        """Undo the write where the block fails."""
        ...

    def commit_unless_empty(self, statuses: Sequence[WriteStatus]) -> CommitResult | None:
        """Commit; when there are no files and nothing to remember, abort and return None."""
        ...

    def locate_deletes(self, keys: DeleteKeys, /) -> LocatedRows:
        """Return where keys are stored."""
        ...

    def check_early(self, assigned: Sequence[Assigned], /) -> None:
        """Raise when files that are about to be written cannot stand."""
        ...

    def write(self, placed: PlacedRows, announcements: Announcements, /) -> list[WriteStatus]:
        """Write every file of a placement."""
        ...


def delete_key_stream(
    write: DeleteSteps, rows: Iterable[pa.Table], partitions: Partitions | None
) -> CommitResult | None:
    """Delete the keys of a stream of rows in bounded memory, and commit; None when the table has none of them.

    Args:
        write: the write that deletes them.
        rows: tables with the key columns.
        partitions: look only there; None: anywhere.

    Raises:
        SchemaMismatch: a key column is missing, or a value has another type than its column.
        InvalidKey: a key is null or empty, or a partition value cannot be one.
        StorageError: the temporary directory could not take the keys, or the store failed.
    """
    with write.aborted_on_error():
        memory_bytes = write.bound.settings.integer("lakefmt.write.window.bytes")
        listed = None if partitions is None else write.client.at(write.state).chosen_partitions(partitions)
        keys = _DeletedKeys(write, listed, everywhere=write.index.is_global)
        how = GroupOptions(memory_bytes, looks_up=True, across_partitions=True, appends=False, fills=False, unique=True)
        statuses, _, footprint = write_by_group(keys, _keyed, map(keys.keys_of, rows), how)
        # The keys are too many to be held: no other write may have changed anything where they are.
        write.rely_on(footprint + Footprint(covers=keys.covered))
        return write.commit_unless_empty(statuses)


class _DeletedKeys:
    """The keys of a stream of rows, looked up part by part.

    Args:
        write: the write that deletes them.
        partitions: look only there; None: anywhere.
        everywhere: a key is deleted in whichever partition it is, also where the rows have the partition columns.
    """

    def __init__(self, write: DeleteSteps, partitions: Sequence[PartitionPath] | None, *, everywhere: bool) -> None:
        self.client, self.bound, self.state = write.client, write.bound, write.state
        self._write = write
        self._listed = None if partitions is None else tuple(partitions)
        self._everywhere = everywhere
        self._named = set[PartitionPath]()

    @property
    def covered(self) -> frozenset[PartitionPath] | None:
        """The partitions into which no other write may have brought one of the keys; None: all."""
        if not self._everywhere:
            return frozenset(self._named)
        return None if self._listed is None else frozenset(self._listed)

    def keys_of(self, table: pa.Table) -> pa.Table:
        """Return the record keys of rows, with their partitions where these count."""
        keys, partitions = keys_and_partitions(self.client.at(self.state), GivenKeys(rows=table), self.bound.settings)
        if partitions is None:
            self._everywhere = True
        if self._everywhere or partitions is None:
            return pa.table({RECORD_KEY: keys})
        self._named.update(map(PartitionPath, partitions.dictionary.to_pylist()))  # partitions, not rows
        return pa.table({RECORD_KEY: keys, PARTITION_PATH: partitions.cast(pa.string())})

    def key(self, table: pa.Table) -> KeyedBatch:
        """Return every key once."""
        return _keyed(table.group_by(table.column_names).aggregate([]))

    def locate(self, batch: KeyedBatch) -> LocatedRows:
        """Return where keys are stored."""
        own_partitions = None if self._everywhere else batch.partitions
        return self._write.locate_deletes(DeleteKeys(record_keys(batch), own_partitions, self._listed))

    def check_early(self, assigned: Sequence[Assigned]) -> None:
        """Raise when files that are about to be written cannot stand."""
        self._write.check_early(assigned)

    def write(self, placed: PlacedRows, announcements: Announcements) -> list[WriteStatus]:
        """Write every file of a placement."""
        return self._write.write(placed, announcements)


def _keyed(table: pa.Table) -> KeyedBatch:
    if PARTITION_PATH in table.column_names:
        partitions = table.column(PARTITION_PATH).combine_chunks().dictionary_encode()
    else:
        partitions = in_no_partition(table.num_rows)
    return KeyedBatch(table, table.column(RECORD_KEY).combine_chunks(), partitions)
