"""Merge many rows into a base file in the order of its rows, so that only those that meet a part of it are held. Pure.

Each row is given the place of the stored row that it changes; a new one has the place behind the last. Put in the order of these places, rows
and base file are read side by side. Together the pieces are what :func:`~lakefmt._core.filegroups.merge.base.merge_into_base` returns,
but for the order of new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy, other_rows
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.filegroups.merge.base import Incoming, Merged, merge_into_base
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import CorruptFile

__all__ = ["MOST_ROWS_OF_A_PIECE", "PLACE", "merge_in_order", "rows_in_file_order"]

#: A column of rows on their way to a base file: the row of it that they change; its number of rows for new ones.
PLACE = "_lakefmt_place"
#: So many rows meet a base file at once: with their meta columns they take some 30 MiB, and three copies of them meanwhile.
MOST_ROWS_OF_A_PIECE = 1 << 17


def rows_in_file_order(rows: pa.Table, stored_keys: pa.ChunkedArray, piece_rows: int) -> Iterator[pa.Table]:
    """Yield rows in the order of their places, a piece at a time; a row whose key is stored several times comes as often.

    Args:
        rows: with their record keys, one row for each.
        stored_keys: of a base file, in its order.
        piece_rows: the most rows of a piece.

    Example:
        >>> rows = pa.table({RECORD_KEY: ["n", "b", "a"]})
        >>> [piece.to_pydict() for piece in rows_in_file_order(rows, pa.chunked_array([["a", "x", "b"]]), 2)]
        [{'_hoodie_record_key': ['a', 'b'], '_lakefmt_place': [0, 2]}, {'_hoodie_record_key': ['n'], '_lakefmt_place': [3]}]
    """
    found = pc.index_in(stored_keys, value_set=rows.column(RECORD_KEY).combine_chunks())
    places = np.flatnonzero(found.is_valid().to_numpy())
    match = found.drop_null().to_numpy().astype(np.int64)
    del found
    new = other_rows(rows.num_rows, match)
    order, places = np.append(match, new), np.append(places, np.full(len(new), len(stored_keys)))
    for start in range(0, len(order), piece_rows):
        span = slice(start, start + piece_rows)
        yield rows.take(from_numpy(order[span])).append_column(PLACE, from_numpy(places[span]))


def merge_in_order(
    base_parts: Iterable[pa.Table],
    num_rows: int,
    placed: Iterable[pa.Table],
    incoming: Callable[[pa.Table], Incoming],
    rule: MergeRule,
) -> Iterator[tuple[Merged, bool]]:
    """Yield the merge of rows into a base file piece by piece, and whether a piece is a whole part of the file.

    Row numbers are those of the piece. New rows come behind the last part.

    Args:
        base_parts: the stored rows with meta columns, part by part; one at least.
        num_rows: how many rows all parts have.
        placed: the rows in the order of their :data:`PLACE`; one at least.
        incoming: completes some of them.
        rule: the table's merge rule; without a merge function of its own, which is given all rows at once.

    Raises:
        InvalidInputError: an ordering value is not valid under the rule.
        CorruptFile: the parts have fewer or more rows.
    """
    coming, first = _RowsInOrder(placed), 0
    nothing: pa.Table | None = None
    for part in base_parts:
        is_whole = part.num_rows <= MOST_ROWS_OF_A_PIECE
        for start in range(0, part.num_rows, MOST_ROWS_OF_A_PIECE):
            piece = part.slice(start, MOST_ROWS_OF_A_PIECE)
            rows = coming.before(first + piece.num_rows)
            places = rows.column(PLACE).to_numpy() - first
            first += piece.num_rows
            yield merge_into_base(piece, incoming(rows), rule=rule, stored_rows=places), is_whole
            del piece, rows
        nothing = part.schema.empty_table()
        del part
    if first != num_rows or nothing is None:
        raise CorruptFile(f"a base file has {first:,} rows where its footer says {num_rows:,}")
    for rows in coming.rest():
        yield merge_into_base(nothing, incoming(rows), rule=rule, stored_rows=np.empty(0, np.int64)), False


class _RowsInOrder:
    """Rows that come in the order of their places, taken up to a place."""

    def __init__(self, placed: Iterable[pa.Table]) -> None:
        self._tables = iter(placed)
        self._left: pa.Table | None = next(self._tables)
        self._none = self._left.schema.empty_table()

    def before(self, place: int) -> pa.Table:
        """Take the rows with smaller places."""
        taken: list[pa.Table] = []
        while self._left is not None:
            count = int(np.searchsorted(self._left.column(PLACE).to_numpy(), place))
            if count:
                taken.append(self._left.slice(0, count))
            if count < self._left.num_rows:
                self._left = self._left.slice(count)
                break
            self._left = next(self._tables, None)
        return pa.concat_tables(taken) if taken else self._none

    def rest(self) -> Iterator[pa.Table]:
        """Take all others, no more than a piece at a time."""
        while self._left is not None:
            table, self._left = self._left, None
            for start in range(0, table.num_rows, MOST_ROWS_OF_A_PIECE):
                yield table.slice(start, MOST_ROWS_OF_A_PIECE)
            del table
            self._left = next(self._tables, None)
