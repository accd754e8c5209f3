"""Read merge-on-read file slices: merge base file and logs, of small slices together (effects: reads only).

Before the merge columns are pruned to those that are requested, filtered by or needed to merge.
Filters run after the merge, because a log may change any column. A few slices are merged in
parallel, which bounds the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import cpu_count

import pyarrow as pa

from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.logs.reader import read_log_rows, read_log_rows_by_instant, read_logs_of_slices
from lakefmt._core.filegroups.merge.base import can_be_together, joined_in_schema
from lakefmt._core.filegroups.merge.merged_slice import merge_logs, merge_logs_of_slices
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.filegroups.virtual_columns import VirtualColumns
from lakefmt._core.read.filters import keep_rows
from lakefmt._core.read.scan import Query
from lakefmt._core.read.slice_states import SliceStates
from lakefmt._core.schema import reconcile
from lakefmt._core.values import IS_DELETED, META_COLUMNS, RECORD_KEY, InstantTime

__all__ = ["merged_tables", "slice_states"]

_MOST_THREADS = 4
#: The most bytes of slices, and the most slices, that are merged together.
_GROUP_BYTES, _MOST_SLICES = 4 << 20, 64


def merged_tables(
    table_at: TableAt, slices: Sequence[FileSlice], query: Query, columns_of: TableState | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of slices with logs, slice by slice, in the query's columns; small slices share a table.

    Args:
        table_at: the table, at one moment.
        slices: with logs.
        query: columns and filter.
        columns_of: the state whose columns the query has, where that is another one.

    Raises:
        SnapshotExpired: a file no longer exists.
        CorruptFile: a file or block is damaged.
        UnsupportedFeature: the merge rule is unknown, or a row has no key.
    """
    if not slices:
        return
    rule = merge_rule(table_at.config)
    schema = pa.schema([query.schema.field(name) for name in _needed_columns(query, rule)])
    work = _Work(
        table_at.client,
        table_at.state,
        schema,
        rule,
        query,
        table_at.client.at(columns_of or table_at.state).virtual_columns(),
    )
    groups = [[each] for each in slices] if work.unstored is not None else _groups(slices)
    if len(groups) == 1:  # nothing runs beside it
        yield from _merged_together(work, groups[0])
        return
    threads = min(_MOST_THREADS, cpu_count() or 1, len(groups))
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[list[pa.Table]]] = deque()
        try:
            for group in groups:
                running.append(pool.submit(_merged_together, work, group))
                if len(running) > threads:
                    yield from running.popleft().result()
            while running:
                yield from running.popleft().result()
        finally:
            for waiting in running:
                waiting.cancel()


def slice_states(
    table_at: TableAt,
    file_slice: FileSlice,
    query: Query,
    order: Mapping[str, int],
    columns_of: TableState,
) -> SliceStates | None:
    """Return the states of a slice around its commits, without the filter.

    Args:
        table_at: the table, at one moment.
        file_slice: with the logs of the commits.
        query: its columns are read.
        order: the rank of each log's instant among them, by completion.
        columns_of: the state whose columns the query has.

    Returns:
        None if the states have to be read one by one: columns are virtual, or see
        :func:`~lakefmt._core.filegroups.logs.reader.read_log_rows_by_instant`.
    """
    if table_at.client.at(columns_of).virtual_columns() is not None:
        return None
    rule, timeline = merge_rule(table_at.config), table_at.timeline
    schema = pa.schema([query.schema.field(name) for name in _needed_columns(query, rule)])
    read = read_log_rows_by_instant(
        table_at.client.store,
        file_slice,
        schema,
        rule,
        layout=timeline.layout,
        is_committed=lambda time: timeline.is_committed(InstantTime(time)),
        bound=timeline.bound,
    )
    if read is None or read[0].table.column(RECORD_KEY).null_count:
        return None
    work = _Work(table_at.client, table_at.state, schema, rule, query, None)
    base = reconcile(_stored_rows(work, file_slice, use_threads=True), schema)
    return SliceStates(base, *read, order, rule)


@dataclass(frozen=True, slots=True)
class _Work:
    """What the merges of one read share.

    Attributes:
        client: the table.
        state: its properties and timeline, at one moment.
        schema: the columns to read.
        rule: the table's merge rule.
        query: columns and filter.
        unstored: columns that files lack.
    """

    client: TableClient
    state: TableState
    schema: pa.Schema
    rule: MergeRule
    query: Query
    unstored: VirtualColumns | None


def _groups(slices: Sequence[FileSlice]) -> list[list[FileSlice]]:
    """Return the slices in groups to merge together: small ones that follow each other."""
    groups: list[list[FileSlice]] = []
    size = 0
    for file_slice in slices:
        size += file_slice.size_bytes
        if groups and size <= _GROUP_BYTES and len(groups[-1]) < _MOST_SLICES:
            groups[-1].append(file_slice)
        else:
            groups.append([file_slice])
            size = file_slice.size_bytes
    return groups


def _merged_together(work: _Work, slices: Sequence[FileSlice]) -> list[pa.Table]:
    """Return the rows of slices in one table, where the merge rule allows that, or in one table for each."""
    if can_be_together(work.rule, len(slices)):
        bases = [_stored_rows(work, each, use_threads=False) for each in slices]
        base_rows = [base.num_rows for base in bases]
        state = work.state
        read = read_logs_of_slices(
            work.client.store,
            slices,
            base_rows,
            work.schema,
            work.rule,
            layout=state.timeline.layout,
            is_committed=lambda time: state.timeline.is_committed(InstantTime(time)),
            bound=state.timeline.bound,
        )
        if read is not None:
            logs, log_rows = read
            rows = merge_logs_of_slices(joined_in_schema(bases, work.schema), base_rows, logs, log_rows, work.rule)
            if rows is not None:
                return [keep_rows(rows, work.query.condition).select(list(work.query.columns))]
    return [_merged(work, each) for each in slices]


def _needed_columns(query: Query, rule: MergeRule) -> list[str]:
    """Return the columns to read in table order: requested, filtered by, or needed to merge. Pure."""
    if rule.custom is not None:
        data = {name for name in query.schema.names if name not in META_COLUMNS}
        wanted = {RECORD_KEY, *data, *query.columns} | query.filter_columns
        return [name for name in query.schema.names if name in wanted]
    wanted = {RECORD_KEY, IS_DELETED, *query.columns, *(field.split(".", 1)[0] for field in rule.stored.fields)}
    if rule.delete is not None:
        wanted.add(rule.delete.field)
    wanted |= query.filter_columns
    return [name for name in query.schema.names if name in wanted]


def _stored_rows(work: _Work, file_slice: FileSlice, *, use_threads: bool) -> pa.Table:
    """Return the rows of a slice's base file with those columns that it has."""
    if file_slice.base is None:
        return work.schema.empty_table()
    reader = work.client.reader.completing(work.unstored)
    return reader.rows(file_slice.base, work.schema.names, use_threads=use_threads)


def _merged(work: _Work, file_slice: FileSlice) -> pa.Table:
    base = reconcile(_stored_rows(work, file_slice, use_threads=True), work.schema)
    state = work.state
    logs = read_log_rows(
        work.client.store,
        file_slice,
        work.schema,
        work.rule,
        layout=state.timeline.layout,
        is_committed=lambda time: state.timeline.is_committed(InstantTime(time)),
        bound=state.timeline.bound,
        positions=True,
        unstored=work.unstored,
    )
    rows = keep_rows(merge_logs(base, logs, work.rule), work.query.condition)
    if work.unstored is not None and work.unstored.makes_keys and RECORD_KEY in work.query.columns:
        # Virtual record keys are in no file: a read that merges nothing does not return them
        # either.
        index = rows.schema.get_field_index(RECORD_KEY)
        rows = rows.set_column(index, rows.schema.field(index), pa.nulls(rows.num_rows, pa.string()))
    return rows.select(list(work.query.columns))
