"""What the operators of a stream's rows come to: for each key one row, or its deletion (pure).

Rows are taken in their order. Rows with one key are numbered (the first, the second …), and all rows of one number are
handled together, so the work is per column and not per row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.data_classes import dataclass
from lakefmt.segments.codec import COLUMNS, OPERATOR
from lakefmt.segments.operators import RowOperator

__all__ = ["Resolved", "joined_rows", "needs_stored", "operators_of", "resolve_rows", "strict_violations"]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_INSERT, _INSERT_IGNORE, _UPDATE = RowOperator.INSERT.value, RowOperator.INSERT_IGNORE.value, RowOperator.UPDATE.value
_DELETES = (RowOperator.DELETE.value, RowOperator.DELETE_IGNORE.value)


@dataclass(frozen=True, slots=True)
class Resolved:
    """One row for each key that changes.

    Attributes:
        rows: in the order of their last change, without the columns of the stream.
        deletes: which of them delete their key.
        source: number of an incoming row of the same key.
    """

    rows: pa.Table
    deletes: Mask
    source: Numbers


def joined_rows(tables: list[pa.Table]) -> pa.Table:
    """Return tables of segments as one; a column that one of them lacks is null there.

    Example:
        >>> joined_rows([pa.table({"a": [1]}), pa.table({"a": [2], "b": [3]})]).to_pydict()
        {'a': [1, 2], 'b': [None, 3]}
    """
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return pa.concat_tables(tables)
    return pa.concat_tables(tables, promote_options="permissive")


def needs_stored(operators: npt.NDArray[np.int8]) -> bool:
    """Return whether what rows come to depends on the stored rows of their keys.

    Example:
        >>> needs_stored(np.array([4, 6], np.int8)), needs_stored(np.array([3], np.int8))
        (False, True)
    """
    return bool(np.isin(operators, (_INSERT_IGNORE, _UPDATE)).any())


def operators_of(table: pa.Table) -> npt.NDArray[np.int8]:
    """Return the numbers of the rows' operators."""
    numbers: npt.NDArray[np.int8] = table.column(OPERATOR).to_numpy()
    return numbers


def resolve_rows(incoming: pa.Table, codes: Numbers, stored: pa.Table | None, stored_codes: Numbers) -> Resolved:
    """Return what rows come to.

    Args:
        incoming: rows with the columns of a segment, in the stream's order.
        codes: ``(n_rows,)`` the key of each, as a number from 0.
        stored: the stored rows of these keys, with the same columns; None: they are not needed.
        stored_codes: the key of each of those.

    Example:
        >>> rows = pa.table({"id": [1, 2, 1], OPERATOR: pa.array([4, 4, 6], pa.int8())})
        >>> got = resolve_rows(rows, np.array([0, 1, 0]), None, np.array([], np.int64))
        >>> got.rows.to_pydict(), got.deletes.tolist()
        ({'id': [2, 1]}, [False, True])
    """
    operators, plain = operators_of(incoming), _plain(incoming)
    if stored is None:
        last = _last_rows(codes)
        return Resolved(plain.take(from_numpy(last)), np.isin(operators[last], _DELETES), last)
    return _folded(incoming, plain, operators, codes, stored, stored_codes)


def _plain(table: pa.Table) -> pa.Table:
    return table.drop_columns([name for name in (OPERATOR, COLUMNS) if name in table.column_names])


def _last_rows(codes: Numbers) -> Numbers:
    """Return the last row of each key, ascending."""
    _, first = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - first).astype(np.int64)


def _by_number(codes: Numbers) -> Iterator[Numbers]:
    """Yield the first rows of all keys, then their second rows, and so on."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(codes[order]) != 0))
    ranks = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    by_rank = np.argsort(ranks, kind="stable")
    bounds = np.cumsum(np.bincount(ranks)) if len(ranks) else np.array([], np.int64)
    yield from (order[rows] for rows in np.split(by_rank, bounds[:-1]) if len(rows))


def _folded(
    incoming: pa.Table,
    plain: pa.Table,
    operators: npt.NDArray[np.int8],
    codes: Numbers,
    stored: pa.Table,
    stored_codes: Numbers,
) -> Resolved:
    count, offset, names = int(codes.max()) + 1 if len(codes) else 0, stored.num_rows, plain.column_names
    # Which row gives each value of each key: stored rows are numbered first.
    sources = {name: np.full(count, -1, np.int64) for name in names}
    present, touched = np.zeros(count, bool), np.full(count, -1, np.int64)
    for name in names:
        sources[name][stored_codes] = np.arange(offset)
    present[stored_codes] = True
    was_present, sets = present.copy(), _column_sets(incoming)
    for rows in _by_number(codes):
        kinds, keys = operators[rows], codes[rows]
        whole = ~np.isin(kinds, (_UPDATE, _INSERT_IGNORE, *_DELETES)) | ((kinds == _INSERT_IGNORE) & ~present[keys])
        changed = (kinds == _UPDATE) & present[keys]
        removed = np.isin(kinds, _DELETES)
        for name in names:
            taken = whole | (changed & sets[name][rows])
            sources[name][keys[taken]] = rows[taken] + offset
        present[keys[whole]] = True
        present[keys[removed]] = False
        done = whole | changed | removed
        touched[keys[done]] = rows[done]
    changes = np.flatnonzero((touched >= 0) & (present | was_present))
    changes = changes[np.argsort(touched[changes], kind="stable")]
    deletes = ~present[changes]
    both = pa.concat_tables([stored.select(names).cast(plain.schema), plain])
    columns = [
        both.column(name).take(from_numpy(np.where(deletes, touched[changes] + offset, sources[name][changes])))
        for name in names
    ]
    return Resolved(pa.table(columns, schema=plain.schema), deletes, touched[changes])


def _column_sets(incoming: pa.Table) -> dict[str, Mask]:
    """Return for each column which rows set it."""
    count = incoming.num_rows
    sets = {name: np.ones(count, bool) for name in incoming.column_names}
    if COLUMNS not in incoming.column_names:
        return sets
    texts = incoming.column(COLUMNS).combine_chunks().dictionary_encode()
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    codes = texts.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for number, text in enumerate(texts.dictionary.to_pylist()):  # sets of columns, not rows
        named = frozenset(json.loads(text))
        for name in sets:
            if name not in named:
                sets[name] &= codes != number
    return sets


def strict_violations(operators: npt.NDArray[np.int8], codes: Numbers, present: Mask, first: int = 0) -> Mask:
    """Return the rows that a strict operator refuses: an insert of a key that is there, a change of one that is not.

    Args:
        operators: of the rows, in their order.
        codes: the key of each, as a number from 0.
        present: which keys are stored.
        first: rows before this one were accepted earlier.

    Example:
        >>> strict_violations(np.array([1, 1, 5, 3], np.int8), np.array([0, 0, 1, 0]), np.array([False, False])).tolist()
        [False, True, True, False]
    """
    present, refused = present.copy(), np.zeros(len(codes), bool)
    for rows in _by_number(codes):
        kinds, keys = operators[rows], codes[rows]
        wrong = ((kinds == _INSERT) & present[keys]) | (
            np.isin(kinds, (_UPDATE, RowOperator.DELETE.value)) & ~present[keys]
        )
        wrong &= rows >= first
        refused[rows[wrong]] = True
        inserts = ~wrong & ~np.isin(kinds, (_UPDATE, *_DELETES))
        present[keys[inserts]] = True
        present[keys[~wrong & np.isin(kinds, _DELETES)]] = False
    return refused
