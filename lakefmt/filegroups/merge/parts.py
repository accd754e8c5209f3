"""Merge rows into a large base file part by part, so that one part is stored while the next is merged. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import from_numpy
from lakefmt.config.merge_rule import MergeRule
from lakefmt.data_classes import replace
from lakefmt.errors import CorruptFile
from lakefmt.filegroups.merge.base import Incoming, Merged, merge_into_base, with_inserts
from lakefmt.filegroups.ordering import to_mask
from lakefmt.values import RECORD_KEY

__all__ = ["merge_in_parts", "sum_of_parts"]


def merge_in_parts(
    base_parts: Iterable[pa.Table], num_rows: int, incoming: Incoming, rule: MergeRule
) -> Iterator[Merged]:
    """Yield the merge of rows into a base file, for one part of the base file after the other.

    Together the parts are what :func:`merge_into_base` returns: the same rows in the same order, the same counts. Row
    numbers are those of the part. Rows without a stored key come with the last part; parts without rows behind it are left out.

    Args:
        base_parts: the stored rows with meta columns, part by part.
        num_rows: how many rows all parts have.
        incoming: the rows, one per key.
        rule: the table's merge rule; without a merge function of its own, which is given all rows at once.

    Raises:
        InvalidInputError: an ordering value is not valid under the rule.
        CorruptFile: the parts have fewer or more rows.
    """
    keys = incoming.table.column(RECORD_KEY).combine_chunks()
    is_stored = np.zeros(len(keys), dtype=bool)
    merged_rows, has_new = 0, False
    for part in base_parts:
        if has_new:
            merged_rows += part.num_rows  # row groups without rows follow behind the last rows
            continue
        match_index = pc.index_in(part.column(RECORD_KEY), value_set=keys).combine_chunks()
        places = np.flatnonzero(to_mask(pc.is_valid(match_index)))
        match = match_index.drop_null().to_numpy().astype(np.int64)
        is_stored[match] = True
        merged = merge_into_base(part, _rows_of(incoming, match), rule=rule, places=places)
        merged_rows += part.num_rows
        del part
        has_new = merged_rows >= num_rows
        yield _with_new_rows(merged, incoming, ~is_stored) if has_new else merged
        del merged
    if merged_rows != num_rows:
        raise CorruptFile(f"a base file has {merged_rows:,} rows where its footer says {num_rows:,}")


def sum_of_parts(parts: list[Merged]) -> Merged:
    """Return the counts of all parts, and the keys of rows that were removed; rows and new keys are those of the last one."""
    names = ("inserted", "updated", "deleted", "late", "ignored_deletes")
    counts = {name: sum(getattr(part, name) for part in parts) for name in names}
    removed = [chunk for part in parts for chunk in part.removed_keys.chunks]
    return replace(parts[-1], removed_keys=pa.chunked_array(removed, pa.string()), **counts)


def _rows_of(incoming: Incoming, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Incoming:
    lacks = {name: mask[rows] for name, mask in incoming.lacks.items()}
    return Incoming(incoming.table.take(from_numpy(rows)), incoming.deletes[rows], incoming.columns, lacks)


def _with_new_rows(merged: Merged, incoming: Incoming, is_new: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Merged:
    inserts = incoming.table.filter(from_numpy(is_new & ~incoming.deletes))
    return replace(
        merged,
        table=with_inserts(merged.table, inserts),
        inserted=inserts.num_rows,
        ignored_deletes=int(np.count_nonzero(is_new & incoming.deletes)),
        inserted_keys=inserts.column(RECORD_KEY),
        unchanged=frozenset() if inserts.num_rows else merged.unchanged,
    )
