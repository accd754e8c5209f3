"""Read merge-on-read file slices: merge base file and logs slice by slice (effects: reads only).

Before the merge columns are pruned to those that are requested, filtered by or needed to merge.
Filters run after the merge, because a log may change any column. A few slices are merged in
parallel, which bounds the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import cpu_count

import pyarrow as pa

from lakefmt.config.merge_rule import MergeRule
from lakefmt.config.table_config import merge_rule
from lakefmt.filegroups.logs.reader import read_log_rows
from lakefmt.filegroups.merge.merged_slice import merge_logs
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.filegroups.virtual_columns import VirtualColumns
from lakefmt.read.filters import keep_rows
from lakefmt.read.scan import Query
from lakefmt.schema import reconcile
from lakefmt.values import IS_DELETED, META_COLUMNS, RECORD_KEY, InstantTime

__all__ = ["merged_tables"]

_MOST_THREADS = 4


def merged_tables(
    client: TableClient,
    state: TableState,
    slices: Sequence[FileSlice],
    query: Query,
    columns_of: TableState | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of slices with logs, one table per slice, in the query's columns.

    Args:
        client: the table.
        state: which blocks count.
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
    rule = merge_rule(state.config)
    schema = pa.schema([query.schema.field(name) for name in _needed_columns(query, rule)])
    unstored = client.virtual_columns(columns_of or state)
    threads = min(_MOST_THREADS, cpu_count() or 1, len(slices))
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[pa.Table]] = deque()
        try:
            for file_slice in slices:
                running.append(pool.submit(_merged, client, state, file_slice, schema, rule, query, unstored))
                if len(running) > threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for waiting in running:
                waiting.cancel()


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


def _merged(
    client: TableClient,
    state: TableState,
    file_slice: FileSlice,
    schema: pa.Schema,
    rule: MergeRule,
    query: Query,
    unstored: VirtualColumns | None,
) -> pa.Table:
    base = schema.empty_table()
    if file_slice.base is not None:
        base = reconcile(client.reader.completing(unstored).rows(file_slice.base, schema.names), schema)
    logs = read_log_rows(
        client.store,
        file_slice,
        schema,
        rule,
        layout=state.timeline.layout,
        is_committed=lambda time: state.timeline.is_committed(InstantTime(time)),
        bound=state.timeline.bound,
        positions=True,
        unstored=unstored,
    )
    rows = keep_rows(merge_logs(base, logs, rule), query.condition)
    if unstored is not None and unstored.makes_keys and RECORD_KEY in query.columns:
        # Virtual record keys are in no file: a read that merges nothing does not return them
        # either.
        index = rows.schema.get_field_index(RECORD_KEY)
        rows = rows.set_column(index, rows.schema.field(index), pa.nulls(rows.num_rows, pa.string()))
    return rows.select(list(query.columns))
