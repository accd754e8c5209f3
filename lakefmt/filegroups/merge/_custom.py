"""Merging by a function of one's own: what it is given, and what its answer must be. Pure, by columns.

Rows with one key are folded in the order of arrival: the first and the second become one, that one and the third, and so on.
A round of the fold calls the function once, with all keys that have a row left. A delete takes what came before it; the row
after it starts anew. The function sees the table's own columns, not the meta columns: these are the newer row's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakefmt.config.mergers import CustomMerge
from lakefmt.errors import MergerFailed
from lakefmt.filegroups.ordering import Mask, Rows
from lakefmt.schema import cast_rows
from lakefmt.values import META_COLUMNS

__all__ = ["Folded", "call_merger", "fold_rows"]


@dataclass(frozen=True, slots=True)
class Folded:
    """One row per key.

    Attributes:
        table: the rows, in the order of the keys' numbers.
        deletes: which of them stand for a key that is gone.
        last: for each the number of the last row that went into it.
    """

    table: pa.Table
    deletes: Mask
    last: Rows


def call_merger(custom: CustomMerge, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, Mask]:
    """Return the merged rows, with the newer ones' meta columns, and which of them are deleted.

    Args:
        custom: the function.
        older: rows.
        newer: rows of the same keys and columns.

    Raises:
        MergerFailed: the function raised, or its answer has other rows, columns, types or keys.

    Example:
        >>> keep = CustomMerge("doc:keep", lambda older, newer: older)
        >>> call_merger(keep, pa.table({"v": [1]}), pa.table({"v": [2]}))[0].to_pydict()
        {'v': [1]}
    """
    data = [name for name in newer.column_names if name not in META_COLUMNS]
    given = newer.select(data)
    try:
        answer = custom.function(older.select(data), given)
    except Exception as error:
        raise MergerFailed(f"merger {custom.name} raised {type(error).__name__}: {error}") from error
    said, gone = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    rows, deletes = _checked(custom, said, given), _mask(custom, gone, given.num_rows)
    kept = pa.array(~deletes)
    if any(rows.column(n).filter(kept) != given.column(n).filter(kept) for n in custom.fixed if n in data):
        raise MergerFailed(f"merger {custom.name} changed a key or partition column ({', '.join(custom.fixed)})")
    columns = [rows.column(f.name) if f.name in data else newer.column(f.name) for f in newer.schema]
    return pa.table(columns, schema=newer.schema), deletes


def _checked(custom: CustomMerge, rows: Any, given: pa.Table) -> pa.Table:
    """Return the answer in the schema of what was given."""
    if not isinstance(rows, pa.Table):
        raise MergerFailed(f"merger {custom.name} returned {type(rows).__name__}, not a table (and a mask)")
    if rows.num_rows != given.num_rows:
        raise MergerFailed(f"merger {custom.name} was given {given.num_rows} rows and returned {rows.num_rows}")
    said = {field.name: field.type for field in rows.schema}
    wrong = [f.name for f in given.schema if said.get(f.name) != f.type]
    if wrong or len(rows.column_names) != len(given.column_names):
        raise MergerFailed(
            f"merger {custom.name} returned {_types(rows.schema)}; the same columns and types as it was given are needed: "
            f"{_types(given.schema)}"
        )
    rows = rows.select(given.column_names)
    empty = [f.name for f in given.schema if not f.nullable and rows.column(f.name).null_count]
    if empty:
        raise MergerFailed(f"merger {custom.name} returned nulls in {', '.join(empty)}, which take none")
    return cast_rows(rows, given.schema)


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _mask(custom: CustomMerge, gone: Any, count: int) -> Mask:
    if gone is None:
        return np.zeros(count, dtype=bool)
    values = gone.to_numpy(zero_copy_only=False) if isinstance(gone, pa.Array) else gone
    values = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values
    mask = np.asarray(values)
    if mask.dtype != np.dtype(bool) or mask.shape != (count,):
        raise MergerFailed(f"merger {custom.name} returned a mask that is not {count} booleans without nulls")
    return mask


def fold_rows(custom: CustomMerge, table: pa.Table, codes: Rows, deletes: Mask) -> Folded:
    """Return one row per key.

    Args:
        custom: the function.
        table: rows in the order of arrival.
        codes: one number per row, from 0 on without gaps; equal numbers mean equal keys.
        deletes: which rows remove their key.

    Example:
        >>> import pyarrow.compute as pc
        >>> add = CustomMerge("doc:add", lambda a, b: pa.table({"v": pc.add(a["v"], b["v"])}))
        >>> rows = pa.table({"v": [1, 2, 3, 4]})
        >>> fold_rows(add, rows, np.array([0, 1, 0, 0]), np.zeros(4, dtype=bool)).table.to_pydict()
        {'v': [8, 2]}
    """
    counts = np.bincount(codes)
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    # Keys with many rows first: those of a round are then the first ones.
    ranked = np.argsort(-counts, kind="stable")
    held = table.take(pa.array(order[starts[ranked]]))
    dead = deletes[order[starts[ranked]]]
    for turn in range(1, int(counts.max(initial=0))):
        active = int(np.count_nonzero(counts > turn))
        rows = order[starts[ranked[:active]] + turn]
        held, dead = _round(custom, held, dead, table.take(pa.array(rows)), deletes[rows])
    back = np.argsort(ranked)
    last = order[starts + counts - 1] if len(counts) else order
    return Folded(held.take(pa.array(back)), dead[back], last)


def _round(custom: CustomMerge, held: pa.Table, dead: Mask, newer: pa.Table, removes: Mask) -> tuple[pa.Table, Mask]:
    """Fold one more row into each of the first keys held."""
    count = len(removes)
    older, was_dead = held.slice(0, count), dead[:count]
    meet = np.flatnonzero(~was_dead & ~removes)
    gone = removes.copy()
    if len(meet):
        at = pa.array(meet)
        merged, gone[meet] = call_merger(custom, older.take(at), newer.take(at))
        source = np.arange(count)
        source[meet] = count + np.arange(len(meet))
        newer = pa.concat_tables([newer, merged]).take(pa.array(source))
    rest = held.slice(count)
    return pa.concat_tables([newer, rest]).combine_chunks(), np.concatenate([gone, dead[count:]])
