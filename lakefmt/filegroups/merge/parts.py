"""Merge rows into a large base file part by part, so that one part is stored while the next is merged. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config.merge_rule import MergeRule
from lakefmt.filegroups.merge.base import Incoming, Merged, merge_into_base, with_inserts
from lakefmt.filegroups.ordering import to_mask
from lakefmt.values import RECORD_KEY

__all__ = ["merge_in_parts", "sum_of_parts"]


def merge_in_parts(base: pa.Table, incoming: Incoming, rule: MergeRule, part_rows: int) -> Iterator[Merged]:
    """Yield the merge of rows into a base file, for one part of the base file after the other.

    Together the parts are what :func:`merge_into_base` returns: the same rows in the same order, the same counts. Row
    numbers are those of the part. Rows without a stored key come with the last part.

    Args:
        base: the stored rows with meta columns.
        incoming: the rows, one per key.
        rule: the table's merge rule; without a merge function of its own, which is given all rows at once.
        part_rows: stored rows of a part.

    Raises:
        InvalidInputError: an ordering value is not valid under the rule.
    """
    keys = incoming.table.column(RECORD_KEY).combine_chunks()
    is_stored = np.zeros(len(keys), dtype=bool)
    merged = merge_into_base(base.slice(0, 0), _rows_of(incoming, np.empty(0, np.int64)), rule=rule)
    for start in range(0, base.num_rows, part_rows):
        part = base.slice(start, part_rows)
        match_index = pc.index_in(part.column(RECORD_KEY), value_set=keys).combine_chunks()
        places = np.flatnonzero(to_mask(pc.is_valid(match_index)))
        match = match_index.drop_null().to_numpy().astype(np.int64)
        is_stored[match] = True
        merged = merge_into_base(part, _rows_of(incoming, match), rule=rule, places=places)
        if start + part_rows < base.num_rows:
            yield merged
    yield _with_new_rows(merged, incoming, ~is_stored)


def sum_of_parts(parts: list[Merged]) -> Merged:
    """Return the counts of all parts; rows and new keys are those of the last one."""
    names = ("inserted", "updated", "deleted", "late", "ignored_deletes")
    counts = {name: sum(getattr(part, name) for part in parts) for name in names}
    return replace(parts[-1], **counts)


def _rows_of(incoming: Incoming, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Incoming:
    lacks = {name: mask[rows] for name, mask in incoming.lacks.items()}
    return Incoming(incoming.table.take(pa.array(rows)), incoming.deletes[rows], incoming.columns, lacks)


def _with_new_rows(merged: Merged, incoming: Incoming, is_new: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Merged:
    inserts = incoming.table.filter(pa.array(is_new & ~incoming.deletes))
    return replace(
        merged,
        table=with_inserts(merged.table, inserts),
        inserted=inserts.num_rows,
        ignored_deletes=int(np.count_nonzero(is_new & incoming.deletes)),
        inserted_keys=inserts.column(RECORD_KEY),
    )
