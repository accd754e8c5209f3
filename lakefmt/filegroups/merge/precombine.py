"""The rows of one batch that share a key become one row (spec 1.7, 7.10). Pure, by columns.

Hudi folds them in the order of arrival: two become one, that one and the third become one, and so on. What comes out
column by column can be said without the fold. A row *leads* when no earlier one of its key is larger. The last leader
wins. Where its value gives way, the value of the latest leader that has one is taken, else that of the first other row
that has one. A delete that leads wipes out what came before it; other deletes change nothing. A delete without an event
time wipes out what came before it whatever its order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config.merge_rule import MergeRule, Partial
from lakefmt.filegroups.merge._custom import fold_rows
from lakefmt.filegroups.merge.base import choose_survivors
from lakefmt.filegroups.ordering import (
    Mask,
    Rows,
    comparable,
    has_order,
    is_replaceable,
    marked_deletes,
    ordering_columns,
    unordered_deletes,
)
from lakefmt.values import MergeMode

__all__ = ["Combined", "Fold", "combine_rows", "order_ranks"]


@dataclass(frozen=True, slots=True)
class Combined:
    """One row per key.

    Attributes:
        table: the rows.
        winners: for each the number of the row that won, ascending.
        deletes: which of them a function of the table's own has deleted; None: it was not asked.
    """

    table: pa.Table
    winners: Rows
    deletes: Mask | None = None


def combine_rows(table: pa.Table, codes: Rows, rule: MergeRule) -> Combined | None:
    """Return the rows with those of equal `codes` combined, None when every key is there once.

    Args:
        table: the rows, in the order of arrival, in the table's schema.
        codes: one number per row; equal numbers mean equal keys.
        rule: how the table merges.

    Raises:
        InvalidInputError: an ordering value is not what the rule needs.
        MergerFailed: the table's own function did not do its part.

    Example:
        >>> from lakefmt.config.merge_rule import PartialMode
        >>> rule = MergeRule(partial=Partial(PartialMode.IGNORE_NULLS))
        >>> combine_rows(pa.table({"a": [1, None], "b": [1, 2]}), np.array([7, 7]), rule).table.to_pylist()
        [{'a': 1, 'b': 2}]
    """
    if len(np.unique(codes)) == len(codes):
        return None
    if rule.custom is not None:
        numbers = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        folded = fold_rows(rule.custom, table, numbers, marked_deletes(table, rule))
        by_arrival = np.argsort(folded.last)
        return Combined(folded.table.take(pa.array(by_arrival)), folded.last[by_arrival], folded.deletes[by_arrival])
    alive = _not_wiped(codes, unordered_deletes(table, marked_deletes(table, rule), rule))
    if not alive.all():
        return _combined_of(table, codes, np.flatnonzero(alive), rule)
    compared = has_order(rule.batch, table.column_names)
    ordering = ordering_columns(table, rule.batch) if compared else []
    if rule.partial is None or not rule.partial.in_batch:
        mode = MergeMode.EVENT_TIME_ORDERING if compared else MergeMode.COMMIT_TIME_ORDERING
        kept = choose_survivors(codes, [pa.chunked_array([column]) for column in ordering], mode)
        winners = np.arange(len(codes)) if kept is None else kept
        return Combined(table.take(pa.array(winners)), winners)
    fold = Fold(codes, order_ranks(ordering, len(codes)), marked_deletes(table, rule))
    return Combined(_completed(fold, table, rule.partial), fold.winners)


def _not_wiped(codes: Rows, wiping: Mask) -> Mask:
    """Return the rows that no later delete without an event time takes away; it stays itself where it is the last one."""
    if not wiping.any():
        return np.ones(len(codes), dtype=bool)
    numbers, places = np.unique(codes, return_inverse=True)[1], np.arange(len(codes))
    wiped, last = np.full(len(codes), -1), np.full(len(codes), -1)
    np.maximum.at(wiped, numbers[wiping], places[wiping])
    np.maximum.at(last, numbers, places)
    kept: Mask = (places > wiped[numbers]) | (places == last[numbers])
    return kept


def _combined_of(table: pa.Table, codes: Rows, rows: Rows, rule: MergeRule) -> Combined:
    some = table.take(pa.array(rows))
    combined = combine_rows(some, codes[rows], rule)
    return Combined(some, rows) if combined is None else replace(combined, winners=rows[combined.winners])


def order_ranks(columns: list[pa.Array], count: int) -> Rows:
    """Return numbers that compare as the rows do (lexicographic, nulls smallest); equal rows have equal ones."""
    if not columns:
        return np.zeros(count, dtype=np.int64)
    columns = [comparable(column) for column in columns]
    keys = {f"{part}{n}": value for n, c in enumerate(columns) for part, value in (("valid", pc.is_valid(c)), ("v", c))}
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]).to_numpy()
    rises = np.zeros(count, dtype=bool)
    for column in columns:
        values = column.take(pa.array(order))
        before, after = values.slice(0, count - 1), values.slice(1)
        same = pc.fill_null(pc.equal(before, after), False).to_numpy(zero_copy_only=False)
        none = pc.and_(pc.is_null(before), pc.is_null(after)).to_numpy(zero_copy_only=False)
        rises[1:] |= ~(same | none)
    ranks = np.empty(count, dtype=np.int64)
    ranks[order] = np.cumsum(rises)
    return ranks


class Fold:
    """Which row gives which value, for keys that come several times.

    Args:
        codes: one number per row, in the order of arrival; equal numbers mean equal keys.
        ranks: how the rows compare; see :func:`order_ranks`.
        deletes: which rows remove their key.

    Attributes:
        winners: for each key the number of the row that wins, ascending.
    """

    winners: Rows

    def __init__(self, codes: Rows, ranks: Rows, deletes: Mask) -> None:
        count = len(codes)
        self._order = np.argsort(codes, kind="stable")
        self._places = np.arange(count)
        opens = np.append(True, np.diff(codes[self._order]) != 0)
        self._starts = np.flatnonzero(opens)
        group = np.cumsum(opens) - 1
        # Groups ascend, so the running maximum starts anew in each.
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
        """Return for each of ``winners`` the row that gives a column's value, -1 where none does.

        Args:
            has: which rows have a value for the column.
            from_late: rows that do not lead give theirs where no leader has one.

        Example:
            >>> fold = Fold(np.array([7, 7, 8]), np.array([1, 0, 0]), np.zeros(3, dtype=bool))
            >>> fold.sources(np.array([False, True, False])).tolist()
            [1, -1]
        """
        here: Mask = has[self._order] & self._counts
        leader, other = self._latest(here & self._leads), self._first(here & ~self._leads & from_late)
        at = np.where(leader >= 0, leader, np.where(other < len(has), other, -1))
        return np.where(at >= 0, self._order[at], -1)[self._by_winner]


def _completed(fold: Fold, table: pa.Table, partial: Partial) -> pa.Table:
    """Return the winners, with their replaceable values taken from other rows."""
    columns = []
    for field in table.schema:
        column = table.column(field.name)
        weak, rows = is_replaceable(column, field, partial), fold.winners
        if weak.any():
            found = fold.sources(~weak, from_late=partial.from_late)
            rows = np.where(found >= 0, found, fold.winners)
        columns.append(column.take(pa.array(rows)))
    return pa.table(columns, schema=table.schema)
