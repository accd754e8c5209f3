"""The path of a batch, room by room: keys → combine → look-up → assign → write → commit.

Each room takes a value and leaves a value; the two last ones have effects. ``table`` opens the seventh room, services.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config import Settings
from lakefmt.errors import InternalError
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.model import FileSlice
from lakefmt.index import Index, IndexKeys, key_files, locate_everywhere, moves_between_partitions
from lakefmt.keys import KeySpec
from lakefmt.schema import avro_to_arrow
from lakefmt.storage.api import ObjectStore
from lakefmt.table_config import merge_rule
from lakefmt.values import RECORD_KEY, IdSource, PartitionPath, TableType, WriteOperation
from lakefmt.write.assign import (
    Assigned,
    FileSizing,
    Routes,
    assign_rows,
    change_file,
    group_positions,
    group_rows,
    new_file,
    stable_order,
)
from lakefmt.write.changes import DoomedKeys
from lakefmt.write.files import MOVED_AWAY, POSITION, FileInProgress, prepare, write_assigned
from lakefmt.write.incoming import KeyedBatch, key_batch, record_keys
from lakefmt.write.log_state import (
    SliceReader,
    bring_stored,
    find_stored,
    log_placing,
    refuse_buckets,
    settle_in_logs,
    without_dead,
)
from lakefmt.write.moves import elsewhere, split_moves
from lakefmt.write.sorting import gather_windows, sort_stream
from lakefmt.write.values import WriteContext, WriteStatus

__all__ = ["append_files", "assign", "assign_deletes", "file_sizing", "route", "stream_files", "write_all"]

Rows = npt.NDArray[np.int64]
T = TypeVar("T")
U = TypeVar("U")

_FIRST_GUESS_OF_COMPRESSION = 0.4
_LEARN_FROM_COMMITS = 10
_LEARN_FROM_BYTES = 256 * 1024
#: Keys of open files take at most this part of the window's bytes; more of them wait on the disk.
_KEY_PARTS = 8
#: Rows that are put in the order of their partitions together: a column of them stays in the processor's caches.
_CHUNK_ROWS = 1 << 16
#: A window's partitions are written in so many groups, one after the other: each group's rows are held twice meanwhile.
_GROUPS = 3


def file_sizing(access: TableAccess, state: TableState, settings: Settings, sample: pa.Table | None) -> FileSizing:
    """Return how large files should be; the size of a row is learnt from the latest commits that wrote enough."""
    estimate = float(settings.integer("hoodie.copyonwrite.record.size.estimate"))
    if not estimate:
        estimate = _learnt_record_bytes(access, state) or _guessed_record_bytes(sample)
    merge_on_read = state.config.table_type is TableType.MERGE_ON_READ
    candidates = settings.values.get("hoodie.merge.small.file.group.candidates.limit", 1)
    return FileSizing(
        max_bytes=settings.integer("hoodie.parquet.max.file.size"),
        small_bytes=settings.integer("hoodie.parquet.small.file.limit"),
        record_bytes=estimate,
        candidates=int(str(candidates)) if merge_on_read else None,
    )


def _learnt_record_bytes(access: TableAccess, state: TableState) -> float:
    for instant in reversed(state.timeline.commits[-_LEARN_FROM_COMMITS:]):
        stats = [s for s in access.commit_metadata(state, instant).stats if not s.log_files]  # rows of logs are larger
        total, rows = sum(s.total_write_bytes for s in stats), sum(s.num_writes for s in stats)
        if rows and total >= _LEARN_FROM_BYTES:
            return total / rows
    return 0.0


def _guessed_record_bytes(sample: pa.Table | None) -> float:
    if sample is None or not sample.num_rows:
        return 1024.0
    # Meta columns and filter bits take about a hundred bytes a row before compression.
    row_bytes = float(sample.nbytes) / float(sample.num_rows)
    return max(8.0, (row_bytes + 100) * _FIRST_GUESS_OF_COMPRESSION)


def assign(
    access: TableAccess,
    context: WriteContext,
    state: TableState,
    batch: KeyedBatch,
    index: Index | None,
    sizing: FileSizing,
) -> list[Assigned]:
    """Look the keys up and give every row its file; `index` None appends without looking."""
    partitions = _partitions_to_list(access, batch, index)
    # Plain inserts look for small files only.
    slices = [] if index is None and not sizing.small_bytes else access.slices(state, partitions)
    logs = log_placing(access, state, positions=context.settings.flag("hoodie.write.record.positions"))
    routes = Routes(None)
    if index is not None:
        # On top of a delete in a log a partial row would find what was there before it.
        partial_rows = not set(avro_to_arrow(context.schema_text).names).issubset(batch.table.column_names)
        wanted = IndexKeys(record_keys(batch), batch.partitions)
        alive = partial_rows or context.operation is WriteOperation.DELETE or _completes_by_arrival(state)
        located = find_stored(access, state, index, wanted, slices, alive=alive)
        routes = Routes(located)
        if context.operation is WriteOperation.DELETE:
            # Keys that are nowhere need no file.
            routes = Routes(located, late=np.setdiff1d(np.arange(batch.num_rows), located.rows))
        elif index.is_global:
            moves = moves_between_partitions(index)
            reader = access.row_reader(state)
            if logs is not None:
                reader = SliceReader(access, state, slices)
                away = elsewhere(batch, located, slices) & moves
                located = without_dead(access, state, record_keys(batch), located, slices, away)
            routes = split_moves(batch, located, slices, state.config, reader, update_partition=moves)
    assigned = assign_rows(batch.partitions, routes, slices, sizing, context.instant, access.ids.new_uuid, logs)
    routed, expected = sum(len(a.rows) for a in assigned), routes.num_routed(batch.num_rows)
    if routed != expected:
        raise InternalError(f"{batch.num_rows} rows came in and {routed} of {expected} were routed; nothing is written")
    if logs is None:
        return assigned
    refuse_buckets(slices, assigned)
    return _bring(access, context, state, assigned, slices, batch.keys, batch.table.column_names)


def _completes_by_arrival(state: TableState) -> bool:
    """Tell whether a row on top of a delete in a log would be completed from what was there before the delete."""
    rule = merge_rule(state.config)
    return rule.partial is not None and not rule.stored.fields


def _bring(
    access: TableAccess,
    context: WriteContext,
    state: TableState,
    assigned: list[Assigned],
    slices: Sequence[FileSlice],
    keys: pa.StringArray | None,
    names: Sequence[str],
) -> list[Assigned]:
    """Let rows for logs bring what they lack from the stored rows.

    A delete by key, and a partial row without an event time, take that of the stored row, so that they win over it and
    lose against what is newer. In version 6, which knows no partial rows, they bring every column; so they do where the
    table completes rows by a rule of its own, which knows whole rows only.
    """
    schema, rule = avro_to_arrow(context.schema_text), merge_rule(state.config)
    order = {name.split(".", 1)[0] for name in rule.stored.fields}
    if context.operation is WriteOperation.DELETE:
        lacking = [field for field in schema if field.name in order]
    elif state.timeline.layout == 1 or rule.is_own:
        lacking = [field for field in schema if field.name not in names]
    else:
        lacking = [field for field in schema if field.name in order and field.name not in names]
    if not lacking or keys is None or all(one.assignment.log is None for one in assigned):
        return assigned
    return bring_stored(SliceReader(access, state, slices), assigned, slices, keys, lacking)


def assign_deletes(
    access: TableAccess,
    context: WriteContext,
    state: TableState,
    doomed: DoomedKeys,
    index: Index,
) -> list[Assigned]:
    """Return the rewrites that remove keys; rows of the assignments are numbers into them, keys that are nowhere are in none."""
    slices = access.slices(state, doomed.listed())
    if doomed.homes is None:
        located = locate_everywhere(index, doomed.keys, slices, key_files(access, state))
    else:
        located = index.locate(IndexKeys(doomed.keys, doomed.homes), slices, key_files(access, state))
    logs = log_placing(access, state, positions=context.settings.flag("hoodie.write.record.positions"))
    if logs is not None:
        located = settle_in_logs(access, state, doomed.keys, doomed.homes, located, slices, alive=True)
    places = group_positions(located, logs)
    assigned = [
        Assigned(change_file(slices[number], context.instant, at, len(rows), logs), rows, positions=places.get(number))
        for at, (number, rows) in enumerate(group_rows(located.slices, located.rows))
    ]
    return assigned if logs is None else _bring(access, context, state, assigned, slices, doomed.keys, ())


def _partitions_to_list(access: TableAccess, batch: KeyedBatch, index: Index | None) -> list[PartitionPath]:
    if index is not None and index.is_global:
        return access.listing().partitions()
    return [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows


def append_files(context: WriteContext, batch: KeyedBatch, sizing: FileSizing, ids: IdSource) -> list[Assigned]:
    """Give every row a new file, whatever is stored (overwrites)."""
    return assign_rows(batch.partitions, Routes(None), [], sizing, context.instant, ids.new_uuid)


def route(batch: KeyedBatch, assigned: Assigned) -> pa.Table:
    """Return an assignment's rows with their record keys, the way the workers take them."""
    table = _pick(batch, assigned.rows)
    if assigned.leaving is not None:
        table = table.append_column(MOVED_AWAY, pa.array(assigned.leaving))
    if assigned.positions is not None:
        table = table.append_column(POSITION, pa.array(assigned.positions))
    stored = pa.table({}) if assigned.stored is None else assigned.stored
    for name in stored.column_names:
        at = table.schema.get_field_index(name)
        table = (
            table.append_column(name, stored.column(name))
            if at < 0
            else table.set_column(at, name, stored.column(name))
        )
    return table


def _pick(batch: KeyedBatch, rows: Rows) -> pa.Table:
    """Return rows by number with their record keys; rows that follow one another are not copied."""
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        first = int(rows[0])
        table = batch.table.slice(first, len(rows))
        keys = None if batch.keys is None else batch.keys.slice(first, len(rows))
    else:
        numbers = pa.array(rows)
        table = batch.table.take(numbers)
        keys = None if batch.keys is None else batch.keys.take(numbers)
    return _with_keys(table, keys)


def _with_keys(table: pa.Table, keys: pa.StringArray | None) -> pa.Table:
    if keys is None:
        return table
    # A delete by key carries no columns, and a table without columns has no rows to add to.
    return table.add_column(0, RECORD_KEY, keys) if table.num_columns else pa.table({RECORD_KEY: keys})


def write_all(
    store: ObjectStore, context: WriteContext, batch: KeyedBatch, assigned: Sequence[Assigned]
) -> list[WriteStatus]:
    """Write every assigned file; threads run where Arrow lets them."""

    def write(one: Assigned) -> WriteStatus:
        return write_assigned(store, context, one.assignment, [route(batch, one)], alone=len(assigned) == 1)

    pa.default_memory_pool().release_unused()  # what the look-up took
    return _side_by_side(_threads(context), write, assigned)


def _threads(context: WriteContext) -> int:
    return context.settings.integer("lakefmt.write.threads") or min(8, os.cpu_count() or 1)


def _side_by_side(threads: int, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    # Threads that end give back what Arrow's allocator keeps for each of them.
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(work, items))


def _sort_key(batch: KeyedBatch) -> pa.Array:
    """Return each row's partition and key as one string: the order of a sorted bulk insert."""
    names = batch.partitions.cast(pa.string())
    return names if batch.keys is None else pc.binary_join_element_wise(names, batch.keys, "\x00")


def stream_files(
    access: TableAccess,
    context: WriteContext,
    spec: KeySpec,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    sizing: Callable[[pa.Table], FileSizing],
    sort: str,
) -> tuple[list[WriteStatus], int]:
    """Write new files from a stream in bounded memory: one open file per partition; returns the rows that came in.

    Rows wait in a window until it is full; then each partition's part becomes a row group of its file.
    """
    window_bytes = context.settings.integer("lakefmt.write.window.bytes")
    allow_null = context.settings.text("lakefmt.write.null_list_elements") == "allow"
    keyed = partial(key_batch, spec, schema=schema, allow_null_elements=allow_null)
    statuses: list[WriteStatus] = []
    rows_in = 0
    with ExitStack() as stack:
        writer: _PartitionWriter | None = None
        if sort == "global":
            windows = sort_stream(tables, lambda table: _sort_key(keyed(table)), window_bytes)
        else:
            windows = gather_windows(tables, window_bytes)
        for window in windows:
            if writer is None:
                writer = _PartitionWriter(access, context, sizing(window), stack)
            rows_in += window.num_rows
            statuses += writer.write(keyed(window), in_order=sort == "partition")
            # What is freed goes back to the system; what is still named would be held while the next rows gather.
            del window
            if sort == "global":
                statuses += writer.finish_passed()
        if writer is not None:
            statuses += writer.close()
    return statuses, rows_in


class _Spread:
    """A window's rows, with their keys, by partition; a partition's stay in order.

    Chunk by chunk: each is put in the order of its partitions while it is in the processor's caches, and cut. Rows taken
    from the whole window, partition by partition, cost four times as much.
    """

    def __init__(self, batch: KeyedBatch, threads: int) -> None:
        table = _with_keys(batch.table, batch.keys)
        if table.num_columns and table.column(0).num_chunks * _CHUNK_ROWS > 4 * table.num_rows > 4 * _CHUNK_ROWS:
            table = table.combine_chunks()
        self._threads = threads
        self._chunks = table.to_batches(max_chunksize=_CHUNK_ROWS)
        self._names = [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows
        codes = batch.partitions.indices.to_numpy(zero_copy_only=False)
        self._counts = np.bincount(codes, minlength=len(self._names))
        ends = np.cumsum([len(chunk) for chunk in self._chunks])
        self._orders = _side_by_side(threads, self._order, np.split(codes, ends[:-1]))

    def _order(self, codes: npt.NDArray[np.int32]) -> tuple[Rows | None, list[int]]:
        """Return the order of a chunk's rows, None when they are in order, and where each partition begins in it."""
        order = stable_order(codes) if (codes[1:] < codes[:-1]).any() else None
        ordered = codes if order is None else codes[order]
        return order, list(map(int, np.searchsorted(ordered, np.arange(len(self._names) + 1))))

    def groups(self) -> Iterator[list[tuple[PartitionPath, pa.Table]]]:
        """Yield the partitions that have rows, some at a time: no more than those are held twice."""
        shares = np.cumsum(self._counts)[:-1] * _GROUPS // max(1, int(self._counts.sum()))
        ends = map(int, np.flatnonzero(np.diff(shares)) + 1)
        for low, high in pairwise([0, *ends, len(self._names)]):
            cuts = _side_by_side(self._threads, partial(self._cut, low, high), range(len(self._chunks)))
            found = ([piece for piece in mine if len(piece)] for mine in zip(*cuts, strict=True))
            del cuts
            group = zip(self._names[low:high], found, strict=False)
            yield [(name, pa.Table.from_batches(pieces)) for name, pieces in group if pieces]

    def _cut(self, low: int, high: int, number: int) -> list[pa.RecordBatch]:
        """Return a chunk's rows of each of the partitions from `low` to `high`."""
        chunk, (order, starts) = self._chunks[number], self._orders[number]
        first, end = starts[low], starts[high]
        mine = chunk.slice(first, end - first) if order is None else chunk.take(pa.array(order[first:end]))
        return [mine.slice(at - first, to - at) for at, to in pairwise(starts[low : high + 1])]


class _PartitionWriter:
    """New files of a bulk insert, one open per partition; full ones are finished and followed by the next."""

    def __init__(self, access: TableAccess, context: WriteContext, sizing: FileSizing, stack: ExitStack) -> None:
        self._access = access
        self._context = context
        self._sizing = sizing
        self._stack = stack
        self._open: dict[PartitionPath, FileInProgress] = {}
        self._next_sequence = 0
        self._starting = Lock()
        self._threads = _threads(context)
        self._window_bytes = context.settings.integer("lakefmt.write.window.bytes")

    def write(self, batch: KeyedBatch, *, in_order: bool = False) -> list[WriteStatus]:
        """Append a window's rows to their partitions' files; returns what was finished.

        Args:
            batch: the rows.
            in_order: sort them by partition and key first.
        """
        if in_order:
            batch = batch.take(pc.sort_indices(_sort_key(batch)))
        done: list[WriteStatus] = []
        for group in _Spread(batch, self._threads).groups():
            for partition, _ in group:
                if partition not in self._open:
                    self._open[partition] = self._start(partition)
            for finished in _side_by_side(self._threads, lambda part: self._append(*part), group):
                done += finished
            del group
            pa.default_memory_pool().release_unused()
        self._spill_keys()
        return done

    def _append(self, partition: PartitionPath, rows: pa.Table) -> list[WriteStatus]:
        finished = []
        while rows.num_rows:
            if partition not in self._open:
                self._open[partition] = self._start(partition)
            file = self._open[partition]
            room = self._sizing.room(file.size_bytes) if file.num_rows else self._sizing.rows_per_file
            if room:
                file.append(rows.slice(0, room))
                rows = rows.slice(room)
            if file.size_bytes >= self._sizing.max_bytes or rows.num_rows:
                finished.append(file.finish())
                del self._open[partition]
        return finished

    def _spill_keys(self) -> None:
        if sum(file.held_bytes for file in self._open.values()) > self._window_bytes // _KEY_PARTS:
            for file in self._open.values():
                file.spill()

    def _start(self, partition: PartitionPath) -> FileInProgress:
        with self._starting:
            sequence, self._next_sequence = self._next_sequence, self._next_sequence + 1
            assignment = new_file(partition, self._context.instant, sequence, self._access.ids.new_uuid, rows=None)
            prepare(self._access.store, self._context, assignment)
            return FileInProgress(self._access.store, self._context, assignment, self._stack)

    def finish_passed(self) -> list[WriteStatus]:
        """Finish the files of partitions that a sorted stream has left behind: their keys need not be held."""
        passed = sorted(self._open)[:-1]
        return _side_by_side(self._threads, FileInProgress.finish, [self._open.pop(path) for path in passed])

    def close(self) -> list[WriteStatus]:
        """Finish every open file."""
        return _side_by_side(self._threads, FileInProgress.finish, list(self._open.values()))
