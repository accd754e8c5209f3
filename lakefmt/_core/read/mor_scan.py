"""Read merge-on-read file slices: merge base file and logs, of small slices together; or give its states before and after each commit.

Before the merge columns are pruned to those that are requested, filtered by or needed to merge.
Filters run after the merge, because a log may change any column. A few slices are merged in
parallel, which bounds the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import accumulate, pairwise
from os import cpu_count
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.log_reader import LogRows, read_log_rows, read_log_rows_by_instant, read_logs_of_slices
from lakefmt._core.filegroups.merge import can_be_together, joined_in_schema
from lakefmt._core.filegroups.merged_slice import (
    check_can_merge,
    merge_logs,
    merge_logs_of_slices,
    with_delete_marks,
    without_deleted,
)
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.ordering import to_mask
from lakefmt._core.filegroups.precombine import combine_rows
from lakefmt._core.filegroups.reader import VirtualColumns
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.murmur import chained_hashes
from lakefmt._core.read.filters import keep_rows
from lakefmt._core.read.scan import Query
from lakefmt._core.schema import reconcile
from lakefmt._core.values import IS_DELETED, META_COLUMNS, RECORD_KEY, InstantTime
from lakefmt.errors import UnsupportedFeature

__all__ = ["SliceStates", "count_merged", "merged_tables", "slice_states"]

T = TypeVar("T")

_MOST_THREADS = 4
#: The most bytes of slices, and the most slices, that are merged together.
_GROUP_BYTES, _MOST_SLICES = 4 << 20, 64
#: A count asks the key filter of a base file of at least the first number of bytes for the keys of logs of at most the second one.
_LARGE_BYTES, _FEW_LOG_BYTES = 1 << 20, 256 << 10


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
    for tables in _group_by_group(_work(table_at, query, columns_of), slices, _merged_together):
        yield from tables


def count_merged(table_at: TableAt, slices: Sequence[FileSlice], query: Query) -> int:
    """Return how many rows of slices with logs a query keeps; arguments and errors are those of :func:`merged_tables`.

    Only rows of the base files whose keys are in the logs are merged; none where the logs change stored rows only.
    """
    work = _work(table_at, query, None)
    total, left = _count_updated(work, slices) if query.condition is None else (0, slices)
    return total + sum(_group_by_group(work, left, _count_together))


def _count_updated(work: _Work, slices: Sequence[FileSlice]) -> tuple[int, list[FileSlice]]:
    """Return the number of rows of slices whose logs only change rows of their base files, and the other slices.

    The keys of a base file are not read: a log's row is one of them where its block tells its position, and the file's key
    filter does not deny it.
    """
    # Of a store that is far away logs and files are better asked for side by side.
    is_near, has_positions = work.client.store.capabilities.low_latency, work.state.timeline.layout > 1
    if not is_near or not has_positions or work.unstored is not None or not can_be_together(work.rule, 2):
        return 0, list(slices)
    few: list[FileSlice] = []
    left: list[FileSlice] = []
    for each in slices:
        is_large = each.base is not None and each.base.size >= _LARGE_BYTES
        is_few = is_large and sum(log.size for log in each.logs) <= _FEW_LOG_BYTES
        (few if is_few else left).append(each)
    total = 0
    for begin in range(0, len(few), _MOST_SLICES):
        some = few[begin : begin + _MOST_SLICES]
        counts = _rows_updated(work, some)
        total += sum(filter(None, counts))
        left += [each for each, count in zip(some, counts, strict=True) if count is None]
    return total, left


def _rows_updated(work: _Work, slices: Sequence[FileSlice]) -> list[int | None]:
    """Return the number of rows of each slice; None: its logs may bring or delete rows."""
    timeline = work.state.timeline
    read = read_logs_of_slices(
        work.client.store,
        slices,
        [0] * len(slices),
        work.schema,
        work.rule,
        layout=timeline.layout,
        is_committed=lambda time: timeline.is_committed(InstantTime(time)),
        bound=timeline.bound,
    )
    positions = None if read is None else read[0].positions
    if read is None or positions is None:
        # Some slices have inserts: they are found one by one.
        return [count for each in slices for count in _rows_updated(work, [each])] if len(slices) > 1 else [None]
    logs, log_rows = read
    keys = logs.table.column(RECORD_KEY)
    if keys.null_count:
        return [None] * len(slices)
    hashes_of = cache(partial(chained_hashes, keys))
    spans = [slice(begin, end) for begin, end in pairwise(accumulate(log_rows, initial=0))]
    return [
        None
        if each.base is None or logs.deletes[span].any()
        else _rows_if_stored(work, each.base, partial(_hashes_in, hashes_of, span), positions[span])
        for each, span in zip(slices, spans, strict=True)
    ]


def _hashes_in(hashes_of: Callable[[int], npt.NDArray[np.uint32]], span: slice, count: int) -> npt.NDArray[np.uint32]:
    return hashes_of(count)[:, span]


def _rows_if_stored(
    work: _Work, file: BaseFile, hashes_of: Callable[[int], npt.NDArray[np.uint32]], positions: npt.NDArray[np.int64]
) -> int | None:
    """Return the number of rows of a base file; None: it may lack some keys."""
    rows, stored = work.client.reader.rows_and_keys(file, hashes_of)
    return rows if stored is not None and bool(stored.all()) and bool((positions < rows).all()) else None


def _work(table_at: TableAt, query: Query, columns_of: TableState | None) -> _Work:
    rule = merge_rule(table_at.config)
    schema = pa.schema([query.schema.field(name) for name in _needed_columns(query, rule)])
    unstored = table_at.client.at(columns_of or table_at.state).virtual_columns()
    return _Work(table_at.client, table_at.state, schema, rule, query, unstored)


def _group_by_group(
    work: _Work, slices: Sequence[FileSlice], act: Callable[[_Work, Sequence[FileSlice]], T]
) -> Iterator[T]:
    """Yield what `act` makes of slices that are merged together, of several groups in parallel."""
    groups = [[each] for each in slices] if work.unstored is not None else _groups(slices)
    if len(groups) < 2:  # nothing runs beside it
        for group in groups:
            yield act(work, group)
        return
    threads = min(_MOST_THREADS, cpu_count() or 1, len(groups))
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[T]] = deque()
        try:
            for group in groups:
                running.append(pool.submit(act, work, group))
                if len(running) > threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
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
        :func:`~lakefmt._core.filegroups.log_reader.read_log_rows_by_instant`.
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


@dataclass(frozen=True, slots=True)
class _ReadTogether:
    """The rows of slices that are merged together, one slice's behind the other's: those of base files, and those of logs."""

    base: pa.Table
    base_rows: Sequence[int]
    logs: LogRows
    log_rows: Sequence[int]

    def merged(self, rule: MergeRule) -> pa.Table | None:
        """Return the merged rows; None: a row has no key."""
        return merge_logs_of_slices(self.base, self.base_rows, self.logs, self.log_rows, rule)

    def of_logs(self) -> _ReadTogether:
        """Return the same without the rows of base files whose keys are in no log."""
        in_logs = to_mask(pc.is_in(self.base.column(RECORD_KEY), value_set=self.logs.table.column(RECORD_KEY)))
        ends = accumulate(self.base_rows, initial=0)
        counts = [int(in_logs[begin:end].sum()) for begin, end in pairwise(ends)]
        base = self.base.filter(from_numpy(in_logs))
        return _ReadTogether(base, counts, replace(self.logs, positions=None), self.log_rows)


def _read_together(work: _Work, slices: Sequence[FileSlice]) -> _ReadTogether | None:
    """Return the rows of slices; None: the merge rule, or what the logs have, does not allow to merge them together."""
    if not can_be_together(work.rule, len(slices)):
        return None
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
    return None if read is None else _ReadTogether(joined_in_schema(bases, work.schema), base_rows, *read)


def _merged_together(work: _Work, slices: Sequence[FileSlice]) -> list[pa.Table]:
    """Return the rows of slices in one table, where the merge rule allows that, or in one table for each."""
    read = _read_together(work, slices)
    rows = None if read is None else read.merged(work.rule)
    if rows is not None:
        return [keep_rows(rows, work.query.condition).select(list(work.query.columns))]
    return [_merged(work, each) for each in slices]


def _count_together(work: _Work, slices: Sequence[FileSlice]) -> int:
    """Return the number of rows in file slices that match the filter."""
    condition, read = work.query.condition, _read_together(work, slices)
    of_logs = None if read is None else read.of_logs()
    rows = None if of_logs is None else of_logs.merged(work.rule)
    if read is None or of_logs is None or rows is None:
        return sum(_merged(work, each).num_rows for each in slices)
    if condition is None:
        return int(read.base.num_rows - of_logs.base.num_rows + rows.num_rows)
    stored = (keep_rows(base, condition).num_rows for base in (read.base, of_logs.base))
    return int(next(stored) - next(stored) + keep_rows(rows, condition).num_rows)


def _needed_columns(query: Query, rule: MergeRule) -> list[str]:
    """Return the columns to read in table order: requested, filtered by, or needed to merge. Pure."""
    if rule.custom is not None:
        data = {name for name in query.schema.names if name not in META_COLUMNS}
        needed_columns = {RECORD_KEY, *data, *query.columns} | query.filter_columns
        return [name for name in query.schema.names if name in needed_columns]
    needed_columns = {RECORD_KEY, IS_DELETED, *query.columns, *(field.split(".", 1)[0] for field in rule.stored.fields)}
    if rule.delete is not None:
        needed_columns.add(rule.delete.field)
    needed_columns |= query.filter_columns
    return [name for name in query.schema.names if name in needed_columns]


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


# ----------------------------------------------------------------- states before and after each commit
#
# To read the whole slice for each commit would cost the square of the number of commits. Here the rows of all logs are decoded
# once, and of each commit only the rows of its keys are merged. Where merges can be folded, one row of a key stands for all of
# its rows so far, as in a log compaction (:func:`~lakefmt._core.filegroups.merged_slice.merge_log_blocks`); elsewhere all
# rows of the key are merged again.


Rows = npt.NDArray[np.int64]


class SliceStates:
    """The rows of a slice around its commits; only those of keys that the commit wrote.

    Args:
        base: the rows of the base file, possibly none.
        logs: the rows of all logs, with all columns.
        blocks: instant and number of rows of each block, in the order of the rows.
        order: the rank of each of these instants among them, by completion.
        rule: the table's merge rule.

    Example:
        >>> from lakefmt._core.values import RECORD_KEY
        >>> base = pa.table({RECORD_KEY: ["a", "b"], "v": [1, 2]})
        >>> rows, none = pa.table({RECORD_KEY: ["b", "c", "b"], "v": [7, 3, 8]}), np.zeros(3, dtype=bool)
        >>> logs = LogRows(rows, none, none, np.zeros(3, np.int64), (None,), of_deletes=none)
        >>> states = SliceStates(base, logs, [("1", 2), ("2", 1)], {"1": 0, "2": 1}, MergeRule())
        >>> [[state["v"].to_pylist() for state in states.around(time)] for time in ("1", "2")]
        [[[2], [7, 3]], [[7], [8]]]
    """

    def __init__(
        self,
        base: pa.Table,
        logs: LogRows,
        blocks: Sequence[tuple[str, int]],
        order: Mapping[str, int],
        rule: MergeRule,
    ) -> None:
        self._base, self._logs, self._rule, self._order = base, logs, rule, order
        ranks = np.array([order[instant] for instant, _ in blocks], np.int64)
        self._ranks: Rows = np.repeat(ranks, [count for _, count in blocks])
        encoded = logs.table.column(RECORD_KEY).combine_chunks().dictionary_encode()
        self._codes: Rows = encoded.indices.to_numpy().astype(np.int64)
        self._num_keys = len(encoded.dictionary)
        self._of_logs = _RowsOfKeys(np.arange(len(self._codes)), self._codes, self._num_keys)
        base_codes = pc.index_in(base.column(RECORD_KEY), value_set=encoded.dictionary).combine_chunks()
        stored = np.flatnonzero(base_codes.is_valid().to_numpy(zero_copy_only=False))
        self._of_base = _RowsOfKeys(stored, base_codes.drop_null().to_numpy().astype(np.int64), self._num_keys)
        # A row that comes to stand before others of its key is not folded: what discards rows would be forgotten.
        self._folds = _can_fold(rule) and bool((np.diff(self._ranks) >= 0).all())
        self._standing: Rows = np.full(self._num_keys, -1, np.int64)
        self._folded = 0

    def around(self, instant: str) -> tuple[pa.Table, pa.Table]:
        """Return the rows before and after a commit, of keys that it wrote."""
        rank = self._order[instant]
        if not self._folds:
            keys = np.unique(self._codes[self._ranks == rank])
            rows = self._of_logs.rows(keys)
            ranks = self._ranks[rows]
            return self._merged(keys, rows[ranks < rank]), self._merged(keys, rows[ranks <= rank])
        begin, end = (int(position) for position in np.searchsorted(self._ranks, [rank, rank + 1]))
        if begin < self._folded:
            self._standing[:], self._folded = -1, 0
        self._fold(np.arange(self._folded, begin))
        keys = np.unique(self._codes[begin:end])
        standing = np.sort(self._standing[keys])
        standing = standing[standing >= 0]
        before = self._merged(keys, standing)
        after = self._merged(keys, np.concatenate([standing, np.arange(begin, end)]))
        self._fold(np.arange(begin, end))
        self._folded = end
        return before, after

    def _merged(self, keys: Rows, rows: Rows) -> pa.Table:
        """Return the state of some keys that some rows of logs make of the base file's."""
        base = self._base.take(from_numpy(self._of_base.rows(keys)))
        return merge_logs(base, _some_rows(self._logs, rows), self._rule)

    def _fold(self, new: Rows) -> None:
        """Let one row of each key stand for what stood and what is new."""
        if not len(new):
            return
        keys = np.unique(self._codes[new])
        standing = np.sort(self._standing[keys])
        rows = np.concatenate([standing[standing >= 0], new])
        codes, logs = self._codes[rows], _some_rows(self._logs, rows)
        numbers = np.searchsorted(keys, codes)
        alive, deleted = without_deleted(numbers, logs.always, len(keys))
        # Of a key that is deleted whatever its time, the last such delete stands.
        last = np.full(len(keys), -1, np.int64)
        np.maximum.at(last, numbers, np.where(logs.always, rows, -1))
        self._standing[keys[deleted]] = last[deleted]
        left = np.flatnonzero(alive)
        combined = (
            combine_rows(with_delete_marks(_some_rows(logs, left)), codes[left], self._rule.for_logs())
            if len(left)
            else None
        )
        winners = left if combined is None else left[combined.winners]
        self._standing[codes[winners]] = rows[winners]


class _RowsOfKeys:
    """Row numbers by the code of their key."""

    def __init__(self, rows: Rows, codes: Rows, num_keys: int) -> None:
        order = np.argsort(codes, kind="stable")
        self._rows = rows[order]
        self._starts = np.searchsorted(codes[order], np.arange(num_keys + 1))

    def rows(self, keys: Rows) -> Rows:
        """Return the rows of some keys, ascending."""
        counts = self._starts[keys + 1] - self._starts[keys]
        ends = np.cumsum(counts)
        inside = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        return np.sort(self._rows[np.repeat(self._starts[keys], counts) + inside])


def _some_rows(logs: LogRows, rows: Rows) -> LogRows:
    return replace(
        logs,
        table=logs.table.take(from_numpy(rows)),
        deletes=logs.deletes[rows],
        always=logs.always[rows],
        brings=logs.brings[rows],
        positions=None,
        of_deletes=None if logs.of_deletes is None else logs.of_deletes[rows],
    )


def _can_fold(rule: MergeRule) -> bool:
    try:
        check_can_merge(rule)
    except UnsupportedFeature:
        return False
    return True
