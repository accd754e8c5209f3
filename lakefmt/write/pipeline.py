"""The path of a batch, room by room: keys → combine → look-up → assign → write → commit.

Each room takes a value and leaves a value; the two last ones have effects. ``table`` opens the seventh room, services.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config import Settings
from lakefmt.errors import InternalError
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.merge import choose_survivors
from lakefmt.index import Index, IndexKeys, key_files, locate_everywhere, moves_between_partitions
from lakefmt.keys import KeySpec
from lakefmt.storage.api import ObjectStore
from lakefmt.values import RECORD_KEY, IdSource, MergeMode, PartitionPath, WriteOperation
from lakefmt.write.assign import Assigned, FileSizing, Routes, assign_rows, group_rows, new_file, rewrite_file
from lakefmt.write.changes import DoomedKeys
from lakefmt.write.files import MOVED_AWAY, FileInProgress, prepare, write_assigned
from lakefmt.write.incoming import KeyedBatch, key_batch, read_all, record_keys
from lakefmt.write.moves import split_moves
from lakefmt.write.sorting import sort_stream
from lakefmt.write.values import WriteContext, WriteStatus

__all__ = ["append_files", "assign", "assign_deletes", "combine", "file_sizing", "route", "stream_files", "write_all"]

_FIRST_GUESS_OF_COMPRESSION = 0.4
#: Spreads a window over partitions without cutting.
_ONE_FILE = FileSizing(1 << 62, 0, 1.0)
_LEARN_FROM_COMMITS = 10
_LEARN_FROM_BYTES = 256 * 1024


def combine(batch: KeyedBatch, ordering: Sequence[str], mode: MergeMode, *, across_partitions: bool) -> KeyedBatch:
    """Leave one record per key (per key and partition unless `across_partitions`): the table's rule chooses it."""
    codes = record_keys(batch).dictionary_encode().indices.to_numpy().astype(np.int64)
    if not across_partitions:
        places = batch.partitions.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * max(1, len(batch.partitions.dictionary)) + places
    columns = [batch.table.column(name) for name in ordering if name in batch.table.column_names]
    kept = choose_survivors(codes, columns, mode)
    return batch if kept is None else batch.take(pa.array(kept))


def file_sizing(access: TableAccess, state: TableState, settings: Settings, sample: pa.Table | None) -> FileSizing:
    """Return how large files should be; the size of a row is learnt from the latest commits that wrote enough."""
    estimate = float(settings.integer("hoodie.copyonwrite.record.size.estimate"))
    if not estimate:
        estimate = _learnt_record_bytes(access, state) or _guessed_record_bytes(sample)
    return FileSizing(
        max_bytes=settings.integer("hoodie.parquet.max.file.size"),
        small_bytes=settings.integer("hoodie.parquet.small.file.limit"),
        record_bytes=estimate,
    )


def _learnt_record_bytes(access: TableAccess, state: TableState) -> float:
    for instant in reversed(state.timeline.commits[-_LEARN_FROM_COMMITS:]):
        stats = access.commit_metadata(state, instant).stats
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
    routes = Routes(None)
    if index is not None:
        located = index.locate(IndexKeys(record_keys(batch), batch.partitions), slices, key_files(access))
        routes = Routes(located)
        if context.operation is WriteOperation.DELETE:
            # Keys that are nowhere need no file.
            routes = Routes(located, late=np.setdiff1d(np.arange(batch.num_rows), located.rows))
        elif index.is_global:
            moves = moves_between_partitions(index)
            routes = split_moves(batch, located, slices, state.config, access.reader, update_partition=moves)
    assigned = assign_rows(batch.partitions, routes, slices, sizing, context.instant, access.ids.new_uuid)
    routed, expected = sum(len(a.rows) for a in assigned), routes.num_routed(batch.num_rows)
    if routed != expected:
        raise InternalError(f"{batch.num_rows} rows came in and {routed} of {expected} were routed; nothing is written")
    return assigned


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
        located = locate_everywhere(index, doomed.keys, slices, key_files(access))
    else:
        located = index.locate(IndexKeys(doomed.keys, doomed.homes), slices, key_files(access))
    return [
        Assigned(rewrite_file(slices[number], context.instant, at, len(rows), match_keys=True), rows)
        for at, (number, rows) in enumerate(group_rows(located.slices, located.rows))
    ]


def _partitions_to_list(access: TableAccess, batch: KeyedBatch, index: Index | None) -> list[PartitionPath]:
    if index is not None and index.is_global:
        return access.listing().partitions()
    return [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows


def append_files(context: WriteContext, batch: KeyedBatch, sizing: FileSizing, ids: IdSource) -> list[Assigned]:
    """Give every row a new file, whatever is stored (overwrites)."""
    return assign_rows(batch.partitions, Routes(None), [], sizing, context.instant, ids.new_uuid)


def route(batch: KeyedBatch, assigned: Assigned) -> pa.Table:
    """Return an assignment's rows with their record keys, the way the workers take them."""
    rows = assigned.rows
    everything = len(rows) == batch.num_rows and bool((np.diff(rows) == 1).all())
    table = batch.table if everything else batch.table.take(pa.array(rows))
    if batch.keys is not None:
        keys = batch.keys if everything else batch.keys.take(pa.array(rows))
        # A delete by key carries no columns, and a table without columns has no rows to add to.
        table = table.add_column(0, RECORD_KEY, keys) if table.num_columns else pa.table({RECORD_KEY: keys})
    if assigned.leaving is not None:
        table = table.append_column(MOVED_AWAY, pa.array(assigned.leaving))
    return table


def write_all(
    store: ObjectStore, context: WriteContext, batch: KeyedBatch, assigned: Sequence[Assigned]
) -> list[WriteStatus]:
    """Write every assigned file; threads run where Arrow lets them."""

    def write(one: Assigned) -> WriteStatus:
        return write_assigned(store, context, one.assignment, [route(batch, one)])

    threads = context.settings.integer("lakefmt.write.threads") or min(8, os.cpu_count() or 1)
    if threads == 1 or len(assigned) < 2:
        return [write(one) for one in assigned]
    with ThreadPoolExecutor(min(threads, len(assigned))) as pool:
        return list(pool.map(write, assigned))


def _sort_key(batch: KeyedBatch) -> pa.Array:
    """Return each row's partition and key as one string: the order of a sorted bulk insert."""
    names = batch.partitions.cast(pa.string())
    return names if batch.keys is None else pc.binary_join_element_wise(names, batch.keys, "\x00")


def _sorted(batch: KeyedBatch) -> KeyedBatch:
    return batch.take(pc.sort_indices(_sort_key(batch)))


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
    settings = context.settings
    window_bytes = settings.integer("lakefmt.write.window.bytes")
    allow_null = settings.text("lakefmt.write.null_list_elements") == "allow"
    statuses: list[WriteStatus] = []
    rows_in = 0
    with ExitStack() as stack:
        writer: _PartitionWriter | None = None
        windows = _windows(tables, window_bytes // 4 if sort == "global" else window_bytes)
        if sort == "global":
            windows = sort_stream(windows, lambda t: _sort_key(key_batch(spec, t, schema)), window_bytes)
        for window in windows:
            if writer is None:
                writer = _PartitionWriter(access, context, sizing(window), stack)
            batch = key_batch(spec, window, schema, allow_null_elements=allow_null)
            rows_in += window.num_rows
            statuses += writer.write(_sorted(batch) if sort == "partition" else batch)
            if sort == "global":
                statuses += writer.finish_passed()
        if writer is not None:
            statuses += writer.close()
    return statuses, rows_in


def _windows(tables: Iterable[pa.Table], window_bytes: int) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    held = 0
    for table in tables:
        for piece in _slices_of(table, window_bytes):
            waiting.append(piece)
            held += piece.nbytes
            if held >= window_bytes:
                yield read_all(waiting[0].schema, waiting)
                waiting, held = [], 0
    if waiting:
        yield read_all(waiting[0].schema, waiting)


def _slices_of(table: pa.Table, window_bytes: int) -> Iterator[pa.Table]:
    if not table.num_rows:
        return
    step = max(1, int(table.num_rows * window_bytes / max(table.nbytes, 1)))
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


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
        threads = context.settings.integer("lakefmt.write.threads") or min(8, os.cpu_count() or 1)
        self._pool = stack.enter_context(ThreadPoolExecutor(threads))

    def write(self, batch: KeyedBatch) -> list[WriteStatus]:
        """Append a window's rows to their partitions' files; returns what was finished."""
        pieces = [
            (a.assignment.partition, route(batch, a))
            for a in assign_rows(batch.partitions, Routes(None), [], _ONE_FILE, self._context.instant, lambda: "window")
        ]
        for partition, _ in pieces:
            if partition not in self._open:
                self._open[partition] = self._start(partition)
        return [done for finished in self._pool.map(self._append, pieces) for done in finished]

    def _append(self, piece: tuple[PartitionPath, pa.Table]) -> list[WriteStatus]:
        partition, rows = piece
        finished = []
        while rows.num_rows:
            file = self._open[partition]
            room = max(1, self._sizing.room(file.size_bytes)) if file.num_rows else self._sizing.rows_per_file
            file.append(rows.slice(0, room))
            rows = rows.slice(room)
            if rows.num_rows or file.size_bytes >= self._sizing.max_bytes:
                finished.append(file.finish())
                if rows.num_rows:
                    self._open[partition] = self._start(partition)
                else:
                    del self._open[partition]
        return finished

    def _start(self, partition: PartitionPath) -> FileInProgress:
        with self._starting:
            sequence, self._next_sequence = self._next_sequence, self._next_sequence + 1
            assignment = new_file(partition, self._context.instant, sequence, self._access.ids.new_uuid, rows=None)
            prepare(self._access.store, self._context, assignment)
            return FileInProgress(self._access.store, self._context, assignment, self._stack)

    def finish_passed(self) -> list[WriteStatus]:
        """Finish the files of partitions that a sorted stream has left behind: their keys need not be held."""
        passed = sorted(self._open)[:-1]
        return list(self._pool.map(FileInProgress.finish, [self._open.pop(path) for path in passed]))

    def close(self) -> list[WriteStatus]:
        """Finish every open file."""
        return list(self._pool.map(FileInProgress.finish, self._open.values()))
