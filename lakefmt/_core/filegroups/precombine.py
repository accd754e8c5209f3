"""Combine the rows of a batch that share a key (docs/format.md, Merge rules; Partial updates). Pure.

Hudi folds rows in the order of arrival. This module computes the same result by columns. A row
*leads* if no earlier row of its key is larger; the last leader wins. A replaceable value of the
winner comes from the latest leader that has one, else from the first other row that has one. A
leading delete discards the rows before it; other deletes change nothing. A delete without an event
time discards the rows before it in any case.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import distinct, from_numpy, rows_at
from lakefmt._core.config.merge_rule import CustomMerge, MergeRule, Partial
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.merge import call_merger, choose_survivors, fold_rows
from lakefmt._core.filegroups.ordering import (
    Mask,
    Rows,
    comparable,
    has_order,
    is_replaceable,
    marked_deletes,
    ordering_columns,
    unordered_deletes,
)
from lakefmt._core.values import META_COLUMNS, MergeMode

__all__ = ["Combined", "Fold", "combine_pairs", "combine_rows", "order_ranks"]


@dataclass(frozen=True, slots=True)
class Combined:
    """The combined rows, one per key.

    Attributes:
        table: the combined rows.
        winners: ``(n_keys,) int64``, the number of the winning row, ascending.
        deletes: ``(n_keys,)`` bool, the rows that a merge function deleted; None: no such function.
    """

    table: pa.Table
    winners: Rows
    deletes: Mask | None = None


def combine_rows(table: pa.Table, codes: Rows, rule: MergeRule) -> Combined | None:
    """Return one row for each code; None if every key is unique.

    Args:
        table: the rows in the order of arrival, with the table schema.
        codes: ``(n_rows,) int64`` key codes.
        rule: the table's merge rule.

    Raises:
        InvalidInputError: an ordering value is not valid under the rule.
        MergerFailed: the registered merge function failed.

    Example:
        >>> from lakefmt._core.config.merge_rule import PartialMode
        >>> rule = MergeRule(partial=Partial(PartialMode.IGNORE_NULLS))
        >>> combine_rows(pa.table({"a": [1, None], "b": [1, 2]}), np.array([7, 7]), rule).table.to_pylist()
        [{'a': 1, 'b': 2}]
    """
    if len(distinct(codes)) == len(codes):
        return None
    if rule.custom is not None:
        numbers = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        folded = fold_rows(rule.custom, table, numbers, marked_deletes(table, rule))
        by_arrival = np.argsort(folded.last)
        return Combined(folded.table.take(from_numpy(by_arrival)), folded.last[by_arrival], folded.deletes[by_arrival])
    alive = _not_wiped(codes, unordered_deletes(table, marked_deletes(table, rule), rule))
    if not alive.all():
        return _combined_of(table, codes, np.flatnonzero(alive), rule)
    compared = has_order(rule.batch, table.column_names)
    ordering = ordering_columns(table, rule.batch) if compared else []
    if rule.partial is None or not rule.partial.in_batch:
        mode = MergeMode.EVENT_TIME_ORDERING if compared else MergeMode.COMMIT_TIME_ORDERING
        survivors = choose_survivors(codes, [pa.chunked_array([column]) for column in ordering], mode)
        winners = np.arange(len(codes)) if survivors is None else survivors
        return Combined(rows_at(table, winners), winners)
    fold = Fold(codes, order_ranks(ordering, len(codes)), marked_deletes(table, rule))
    return Combined(_completed(fold, table, rule.partial), fold.winners)


def combine_pairs(custom: CustomMerge, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, Mask]:
    """Return what a table's own function makes of pairs of rows, and which of them it deletes.

    Args:
        custom: the function.
        older: the older rows.
        newer: the newer rows; same keys, columns and order.

    Raises:
        MergerFailed: the function raised, or returned rows that do not match its arguments.
    """
    return call_merger(custom, older, newer)


def _not_wiped(codes: Rows, wiping: Mask) -> Mask:
    """Return the rows from the last delete without an event time of their key on, or that delete if it is last."""
    if not wiping.any():
        return np.ones(len(codes), dtype=bool)
    numbers, row_numbers = np.unique(codes, return_inverse=True)[1], np.arange(len(codes))
    wiped, last = np.full(len(codes), -1), np.full(len(codes), -1)
    np.maximum.at(wiped, numbers[wiping], row_numbers[wiping])
    np.maximum.at(last, numbers, row_numbers)
    mask: Mask = (row_numbers > wiped[numbers]) | (row_numbers == last[numbers])
    return mask


def _combined_of(table: pa.Table, codes: Rows, rows: Rows, rule: MergeRule) -> Combined:
    some = table.take(from_numpy(rows))
    combined = combine_rows(some, codes[rows], rule)
    return Combined(some, rows) if combined is None else replace(combined, winners=rows[combined.winners])


def order_ranks(columns: list[pa.Array], count: int) -> Rows:
    """Return int64 ranks in the order of the rows (fields in order, nulls smallest); equal rows have equal ranks."""
    if not columns or not count:
        return np.zeros(count, dtype=np.int64)
    columns = [comparable(column) for column in columns]
    keys = {f"{part}{n}": value for n, c in enumerate(columns) for part, value in (("valid", pc.is_valid(c)), ("v", c))}
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]).to_numpy()
    rises = np.zeros(count, dtype=bool)
    for column in columns:
        values = column.take(from_numpy(order))
        before, after = values.slice(0, count - 1), values.slice(1)
        same = pc.fill_null(pc.equal(before, after), False).to_numpy(zero_copy_only=False)
        none = pc.and_(pc.is_null(before), pc.is_null(after)).to_numpy(zero_copy_only=False)
        rises[1:] |= ~(same | none)
    ranks = np.empty(count, dtype=np.int64)
    ranks[order] = np.cumsum(rises)
    return ranks


class Fold:
    """Which row gives each value, for keys with several rows.

    Args:
        codes: ``(n_rows,) int64`` key codes in the order of arrival.
        ranks: ``(n_rows,) int64``; see :func:`order_ranks`.
        deletes: ``(n_rows,)`` bool; the row deletes its key.

    Attributes:
        winners: ``(n_keys,) int64``, the number of the winning row, ascending.
    """

    winners: Rows

    def __init__(self, codes: Rows, ranks: Rows, deletes: Mask) -> None:
        count = len(codes)
        self._order = np.argsort(codes, kind="stable")
        self._places = np.arange(count)
        opens = np.append(True, np.diff(codes[self._order]) != 0)
        self._starts = np.flatnonzero(opens)
        group = np.cumsum(opens) - 1
        # Groups ascend, so the running maximum restarts in each.
        height = group * (int(ranks.max()) + 1) + ranks[self._order]
        self._leads: Mask = height == np.maximum.accumulate(height)
        dead: Mask = deletes[self._order]
        self._last = self._latest(self._leads)
        wiped = self._latest(self._leads & dead)
        begin = self._first(self._leads & (self._places > wiped[group]))
        self._counts: Mask = ~dead & (self._places >= begin[group])
        won = self._order[self._last]
        self._by_winner = np.argsort(won)
        self.winners = won[self._by_winner]

    def _latest(self, which: Mask) -> Rows:
        return np.maximum.reduceat(np.where(which, self._places, -1), self._starts)

    def _first(self, which: Mask) -> Rows:
        return np.minimum.reduceat(np.where(which, self._places, len(which)), self._starts)

    def sources(self, has: Mask, *, from_late: bool = True) -> Rows:
        """Return for each winner the row that gives a column's value, -1 if none does.

        Args:
            has: ``(n_rows,)`` bool; the row has a value for the column.
            from_late: rows that do not lead give their value if no leader has one.

        Example:
            >>> fold = Fold(np.array([7, 7, 8]), np.array([1, 0, 0]), np.zeros(3, dtype=bool))
            >>> fold.sources(np.array([False, True, False])).tolist()
            [1, -1]
        """
        here: Mask = has[self._order] & self._counts
        leader, other = self._latest(here & self._leads), self._first(here & ~self._leads & from_late)
        row = np.where(leader >= 0, leader, np.where(other < len(has), other, -1))
        return np.where(row >= 0, self._order[row], -1)[self._by_winner]


def _completed(fold: Fold, table: pa.Table, partial: Partial) -> pa.Table:
    """Return the winners with replaceable values taken from other rows.

    The newest row that gives a value defines the meta columns: in logs a late row that fills a value has changed the row
    at its own commit, and increments from before that commit have to show it.
    """
    rows: dict[str, Rows] = {}
    for field in table.schema:
        weak = is_replaceable(table.column(field.name), field, partial)
        sources = fold.sources(~weak, from_late=partial.from_late) if weak.any() else fold.winners
        rows[field.name] = np.where(sources >= 0, sources, fold.winners)
    changed = np.maximum.reduce([fold.winners, *(rows[name] for name in rows if name not in META_COLUMNS)])
    rows |= {name: changed for name in META_COLUMNS if name in rows}
    columns = [table.column(name).take(from_numpy(rows[name])) for name in table.column_names]
    return pa.table(columns, schema=table.schema)
