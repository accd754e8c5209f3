"""The states of a file slice before and after each commit that wrote logs to it, from one look at its files. Pure.

To read the whole slice for each commit would cost the square of the number of commits. Here the rows of all logs are decoded
once, and of each commit only the rows of its keys are merged. Where merges can be folded, one row of a key stands for all of
its rows so far, as in a log compaction (:func:`~lakefmt._core.filegroups.merge.merged_slice.merge_log_blocks`); elsewhere all
rows of the key are merged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.logs.reader import LogRows
from lakefmt._core.filegroups.merge.merged_slice import (
    check_can_merge,
    merge_logs,
    with_delete_marks,
    without_deleted,
)
from lakefmt._core.filegroups.merge.precombine import combine_rows
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import UnsupportedFeature

__all__ = ["SliceStates"]

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
        places = pc.index_in(base.column(RECORD_KEY), value_set=encoded.dictionary).combine_chunks()
        stored = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
        self._of_base = _RowsOfKeys(stored, places.drop_null().to_numpy().astype(np.int64), self._num_keys)
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
        begin, end = (int(place) for place in np.searchsorted(self._ranks, [rank, rank + 1]))
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
