"""Merge with a registered merge function: its arguments and the checks of its result. Pure.

Rows of one key are folded in the order of arrival: the first with the second, the result with the
third, and so on. Each step calls the function once, for all keys that have a row left. A delete
discards the rows before it; the row after it starts anew. The function sees the table's columns
without meta columns, which are those of the newer row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.config.merge_rule import CustomMerge
from lakefmt.data_classes import dataclass
from lakefmt.errors import MergerFailed
from lakefmt.filegroups.ordering import Mask, Rows
from lakefmt.schema import cast_rows
from lakefmt.values import META_COLUMNS

__all__ = ["Folded", "call_merger", "fold_rows"]


@dataclass(frozen=True, slots=True)
class Folded:
    """The rows after a fold, one per key.

    Attributes:
        table: the rows in the order of the key codes.
        deletes: ``(n_keys,)`` bool; the key is deleted.
        last: ``(n_keys,) int64``; the number of the last row folded into each.
    """

    table: pa.Table
    deletes: Mask
    last: Rows


def call_merger(custom: CustomMerge, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, Mask]:
    """Return the merged rows, with the meta columns of the newer ones, and which of them are deleted.

    Args:
        custom: the function.
        older: the older rows.
        newer: the newer rows; same keys, columns and order.

    Raises:
        MergerFailed: the function raised, or returned other rows, columns, types or keys.

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
    merged, mask = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    rows, deletes = _checked(custom, merged, given), _mask(custom, mask, given.num_rows)
    kept = from_numpy(~deletes)
    if any(rows.column(n).filter(kept) != given.column(n).filter(kept) for n in custom.fixed if n in data):
        raise MergerFailed(f"merger {custom.name} changed a key or partition column ({', '.join(custom.fixed)})")
    columns = [rows.column(f.name) if f.name in data else newer.column(f.name) for f in newer.schema]
    return pa.table(columns, schema=newer.schema), deletes


def _checked(custom: CustomMerge, rows: Any, given: pa.Table) -> pa.Table:
    """Return the function's result with the schema of its arguments."""
    if not isinstance(rows, pa.Table):
        raise MergerFailed(f"merger {custom.name} returned {type(rows).__name__}, not a table (and a mask)")
    if rows.num_rows != given.num_rows:
        raise MergerFailed(f"merger {custom.name} was given {given.num_rows} rows and returned {rows.num_rows}")
    returned = {field.name: field.type for field in rows.schema}
    wrong = [f.name for f in given.schema if returned.get(f.name) != f.type]
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


def _mask(custom: CustomMerge, answer: Any, count: int) -> Mask:
    if answer is None:
        return np.zeros(count, dtype=bool)
    values = answer.to_numpy(zero_copy_only=False) if isinstance(answer, pa.Array) else answer
    values = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values
    mask = np.asarray(values)
    if mask.dtype != np.dtype(bool) or mask.shape != (count,):
        raise MergerFailed(f"merger {custom.name} returned a mask that is not {count} booleans without nulls")
    return mask


def fold_rows(custom: CustomMerge, table: pa.Table, codes: Rows, deletes: Mask) -> Folded:
    """Return one row per key.

    Args:
        custom: the function.
        table: the rows in the order of arrival.
        codes: ``(n_rows,) int64``; key codes from 0 on without gaps.
        deletes: ``(n_rows,)`` bool; the row deletes its key.

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
    # Keys with many rows come first, so the keys of a step are a prefix.
    ranked = np.argsort(-counts, kind="stable")
    folded = table.take(from_numpy(order[starts[ranked]]))
    deleted = deletes[order[starts[ranked]]]
    for step in range(1, int(counts.max(initial=0))):
        active = int(np.count_nonzero(counts > step))
        rows = order[starts[ranked[:active]] + step]
        folded, deleted = _round(custom, folded, deleted, table.take(from_numpy(rows)), deletes[rows])
    inverse = np.argsort(ranked)
    last = order[starts + counts - 1] if len(counts) else order
    return Folded(folded.take(from_numpy(inverse)), deleted[inverse], last)


def _round(custom: CustomMerge, held: pa.Table, dead: Mask, newer: pa.Table, removes: Mask) -> tuple[pa.Table, Mask]:
    """Fold one more row into each of the first keys."""
    count = len(removes)
    older, was_dead = held.slice(0, count), dead[:count]
    both = np.flatnonzero(~was_dead & ~removes)
    deleted_after = removes.copy()
    if len(both):
        indices = from_numpy(both)
        merged, deleted_after[both] = call_merger(custom, older.take(indices), newer.take(indices))
        source = np.arange(count)
        source[both] = count + np.arange(len(both))
        newer = pa.concat_tables([newer, merged]).take(from_numpy(source))
    rest = held.slice(count)
    return pa.concat_tables([newer, rest]).combine_chunks(), np.concatenate([deleted_after, dead[count:]])
