"""Reads the rows, or the changes, of the parts of a stream, lists of them side by side (effects: reads, threads).

Each list is read in its order, with a bounded number of batches ahead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.consumers.position import StreamPart, StreamStep
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.cdc import DELETE, INSERT, UPDATE
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.reader import read_small_file
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.log.data_block import AFTER, BEFORE, OP
from lakefmt._core.read.changes import ChangesPlan, SliceMemory, plan_changes_read, read_planned_changes
from lakefmt._core.read.filters import Filter, keep_rows
from lakefmt._core.read.mor_scan import merged_tables
from lakefmt._core.read.scan import BATCH_ROWS, Query, plan_query, scan_batches
from lakefmt._core.read.snapshot import written_by
from lakefmt._core.read.splits import ChangesSplit, changes_of_split
from lakefmt._core.schema import cast_rows
from lakefmt.errors import InvalidInputError, UnsupportedFeature

__all__ = [
    "ROW_KIND",
    "PartReader",
    "ReadBatch",
    "is_keyed",
    "read_lanes",
]

#: The column of row kinds, as Paimon names them.
ROW_KIND: Final = "_row_kind"
_ADDED_KIND: Final = "+I"
Lane: TypeAlias = Sequence[tuple[StreamStep, StreamPart]]
Read: TypeAlias = Callable[[StreamStep, StreamPart], Iterator[pa.RecordBatch]]


def is_keyed(state: TableState) -> bool:
    """Return whether a table has record keys: then a stream hands out changes."""
    return bool(state.config.record_key_fields)


@dataclass(frozen=True)
class PartReader:
    """Reads parts of a table as a stream has planned them; may be used by several threads.

    Attributes:
        client: the table.
        state: the table when the parts were planned.
        columns: the columns to read; None: all.
        filter: of rows.
        kinds: add the column ``_row_kind``.
        changes: where the changes of the planned commits are; None: rows are read.
    """

    client: TableClient
    state: TableState
    columns: Sequence[str] | None = None
    filter: Filter = None
    kinds: bool = False
    changes: ChangesPlan | None = None

    @property
    def table_at(self) -> TableAt:
        """The table as it is read."""
        return self.client.at(self.state)

    def with_changes(self, start: str, steps: Sequence[StreamStep]) -> PartReader:
        """Return the reader that knows the changes of some commits.

        Args:
            start: a completion time before them.
            steps: the commits.

        Raises:
            SnapshotExpired: files were cleaned away.
        """
        last = max(step.instant.order_time for step in steps)
        return replace(self, changes=plan_changes_read(self.table_at, start, last))

    def batches(self, step: StreamStep, part: StreamPart, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part without the first `skip` ones; never an empty batch.

        Raises:
            SnapshotExpired: a file was cleaned away.
        """
        for batch in self._all(step, part):
            if batch.num_rows > skip:
                yield batch.slice(skip) if skip else batch
            skip = max(0, skip - batch.num_rows)

    def _all(self, step: StreamStep, part: StreamPart) -> Iterator[pa.RecordBatch]:
        if part.sources:
            yield from self._changes(step, part)
            return
        for batch in self._rows(step, part):
            if self.kinds:
                yield _with_first_column(batch, ROW_KIND, pa.repeat(pa.scalar(_ADDED_KIND), batch.num_rows))
            elif is_keyed(self.state):
                yield _with_first_column(batch, OP, pa.repeat(pa.scalar(INSERT), batch.num_rows))
            else:
                yield batch

    @cached_property
    def _memory(self) -> SliceMemory | None:
        return None if self.changes is None else SliceMemory(self.changes, threading.Lock())

    @cached_property
    def _plan_query(self) -> Query:
        query = plan_query(self.state.config, self.table_at.schema(), self.columns, self.filter, meta_columns=False)
        _check_name_is_free(query, kinds=self.kinds, keyed=is_keyed(self.state))
        return query

    @cached_property
    def _fields(self) -> list[pa.Field]:
        """The columns of the result and of the filter; to find those takes longer than to read a small file."""
        query = self._plan_query
        return [query.schema.field(name) for name in dict.fromkeys([*query.columns, *sorted(query.filter_columns)])]

    def _rows(self, step: StreamStep, part: StreamPart) -> Iterator[pa.RecordBatch]:
        query = self._plan_query
        schema, file_slice = query.result_schema, part.file_slice
        if file_slice is None:
            return
        if not part.adds_only:
            if not self.state.config.populate_meta_fields:
                raise UnsupportedFeature(
                    f"{file_slice.paths[0]} has rows of several commits, and without meta columns nothing tells them apart"
                )
            query = replace(query, condition=written_by([step.instant.time], query))
        small = self._small_rows(file_slice) if part.adds_only else None
        if small is not None:
            rows = pa.Table.from_arrays(keep_rows(small, query.condition).select(schema.names).columns, schema=schema)
            yield from (batch for batch in rows.to_batches(max_chunksize=BATCH_ROWS) if batch.num_rows)
        elif file_slice.logs:
            for table in merged_tables(self.table_at, [file_slice], query):
                yield from cast_rows(table, schema).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
        elif file_slice.base is not None:
            for batch in scan_batches(self.table_at, [file_slice.base], query):
                if batch.num_rows:
                    yield batch if batch.schema.equals(schema) else batch.cast(schema)

    def _small_rows(self, file_slice: FileSlice) -> pa.Table | None:
        """Return the rows of a small file with the columns that the stream and its filter need, as it has them.

        None: it is not small, has logs, or has some column otherwise than it is asked for, by name, by type or by id.
        """
        file, fields = file_slice.base, self._fields
        if file is None or file_slice.logs or not fields or self.state.config.drop_partition_columns:
            return None
        ids = self.table_at.column_ids() if self.client.cache.has_seen_column_ids else None
        if ids is not None and not ids.keeps((field.name for field in fields), file.instant):
            return None
        return read_small_file(self.client.store, file, fields)

    def _changes(self, step: StreamStep, part: StreamPart) -> Iterator[pa.RecordBatch]:
        if self.changes is None:
            raise UnsupportedFeature("the changes of the commit were not planned")
        query = plan_query(self.state.config, self.table_at.schema(), self.columns, None, meta_columns=False)
        _check_name_is_free(query, kinds=self.kinds, keyed=True)
        file_group_keys = {(source.partition, source.file_id) for source in part.sources}
        groups = tuple(
            (file_group_key, self.changes.files.groups[file_group_key])
            for file_group_key in file_group_keys
            if file_group_key in self.changes.files.groups
        )
        split = ChangesSplit(((step.instant, part.sources),), groups, 0)
        plan = changes_of_split(self.changes, split)
        table = read_planned_changes(self.client, plan, self.columns, self.filter, self._memory)
        rows = _kind_rows(table) if self.kinds else _op_rows(table)
        yield from rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _with_first_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    schema = pa.schema([pa.field(name, pa.string()), *batch.schema])
    return pa.RecordBatch.from_arrays([column, *batch.columns], schema=schema)


def _check_name_is_free(query: Query, *, kinds: bool, keyed: bool) -> None:
    """Raise where a column of the table has the name of the column that a stream adds.

    Raises:
        InvalidInputError: it has.
    """
    name = ROW_KIND if kinds else OP if keyed else None
    if name in query.columns:
        other = "leave it out with columns=" if kinds else "leave it out with columns=, or give include_row_kind=True"
        raise InvalidInputError(f"the table has a column {name!r}, which a stream adds: {other}")


def _op_rows(table: pa.Table) -> pa.Table:
    """Return one row for each change: after it, of a delete before it."""
    deleted = pc.equal(table.column(OP), DELETE)
    before, after = table.column(BEFORE), table.column(AFTER)
    columns = [
        pc.if_else(deleted, pc.struct_field(before, [number]), pc.struct_field(after, [number]))
        for number in range(after.type.num_fields)
    ]
    schema = pa.schema([pa.field(OP, pa.string()), *after.type])
    return pa.table([table.column(OP), *columns], schema=schema)


def _kind_rows(table: pa.Table) -> pa.Table:
    """Return one row for each image: an update gives ``-U`` and ``+U``."""
    op, count = table.column(OP), table.num_rows
    updates = pc.equal(op, UPDATE).to_numpy()
    twice = np.repeat(np.arange(count), np.where(updates, 2, 1))
    is_before = np.zeros(len(twice), dtype=bool)
    # Of the two rows of an update the first is the row before it.
    is_before[1:] = twice[1:] != twice[:-1]
    is_before[:1] = True
    is_before &= updates[twice]
    is_delete = pc.equal(op, DELETE).to_numpy()[twice]
    rows = pa.array(twice)
    kinds = np.where(updates[twice], np.where(is_before, "-U", "+U"), np.where(is_delete, "-D", _ADDED_KIND))
    old = pa.array(is_before | is_delete)
    before, after = table.column(BEFORE).take(rows), table.column(AFTER).take(rows)
    columns = [
        pc.if_else(old, pc.struct_field(before, [number]), pc.struct_field(after, [number]))
        for number in range(after.type.num_fields)
    ]
    schema = pa.schema([pa.field(ROW_KIND, pa.string()), *after.type])
    return pa.table([pa.array(kinds.astype(object), pa.string()), *columns], schema=schema)


# --------------------------------------------------------------------------------------------------------- side by side


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Rows of a part.

    Attributes:
        step: the commit.
        part: its part.
        rows: some of its rows; None: it has none that were asked for.
        is_last: nothing of the part is left.
    """

    step: StreamStep
    part: StreamPart
    rows: pa.RecordBatch | None
    is_last: bool


def read_lanes(lanes: Sequence[Lane], read: Read, *, threads: int, ahead: int) -> Iterator[ReadBatch]:
    """Yield the batches of all lists; those of one list come in its order.

    Args:
        lanes: lists of parts.
        read: reads one part.
        threads: how many lists are read side by side.
        ahead: the most batches that are read and not yet taken; 0: read in the calling thread.

    Example:
        >>> step, part = StreamStep(None), StreamPart("k", "", "f-0")
        >>> rows = pa.record_batch({"a": [1]})
        >>> [batch.is_last for batch in read_lanes([[(step, part)]], lambda s, p: iter([rows, rows]), threads=2, ahead=1)]
        [False, True]
    """
    if ahead == 0:
        for lane in lanes:
            for step, part in lane:
                yield from _batches_of_part(step, part, read)
        return
    buffer = _LaneBuffer(ahead, lanes)
    count = max(1, min(threads, len(lanes)))
    workers = [
        threading.Thread(target=buffer.fill, args=(read,), name="lakefmt-stream", daemon=True) for _ in range(count)
    ]
    try:
        for worker in workers:
            worker.start()
        while (batch := buffer.take()) is not None:
            yield batch
    finally:
        buffer.stop()
        for worker in workers:
            if worker.ident is not None:
                worker.join()


def _batches_of_part(step: StreamStep, part: StreamPart, read: Read) -> Iterator[ReadBatch]:
    """Yield the batches of a part; the last one says so."""
    waiting: pa.RecordBatch | None = None
    for rows in read(step, part):
        if waiting is not None:
            yield ReadBatch(step, part, waiting, False)
        waiting = rows
    yield ReadBatch(step, part, waiting, True)


class _LaneBuffer:
    """Hands lists to threads and batches to the caller."""

    def __init__(self, ahead: int, lanes: Sequence[Lane]) -> None:
        self._ahead, self._lanes = ahead, deque(lanes)
        self._changed = threading.Condition()
        self._ready: deque[ReadBatch] = deque()
        self._left = len(self._lanes)
        self._failure: BaseException | None = None
        self._stopped = False

    def fill(self, read: Read) -> None:
        """Read lists until none is left; what fails is raised where batches are taken."""
        try:
            while (lane := self._next_lane()) is not None:
                for step, part in lane:
                    for batch in _batches_of_part(step, part, read):
                        if not self._put(batch):
                            return
                self._ended()
        except BaseException as error:  # noqa: BLE001 - raised by take()
            with self._changed:
                self._failure = self._failure or error
                self._stopped = True
                self._changed.notify_all()

    def _next_lane(self) -> Lane | None:
        with self._changed:
            return None if self._stopped or not self._lanes else self._lanes.popleft()

    def _put(self, batch: ReadBatch) -> bool:
        with self._changed:
            while len(self._ready) >= self._ahead and not self._stopped:
                self._changed.wait()
            if not self._stopped:
                self._ready.append(batch)
                self._changed.notify_all()
            return not self._stopped

    def _ended(self) -> None:
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def take(self) -> ReadBatch | None:
        """Return the next batch; None: nothing is left."""
        with self._changed:
            while not self._ready and self._left and self._failure is None:
                self._changed.wait()
            if self._ready:
                batch = self._ready.popleft()
                self._changed.notify_all()
                return batch
            if self._failure is not None:
                raise self._failure
            return None

    def stop(self) -> None:
        """Let the threads end."""
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()
