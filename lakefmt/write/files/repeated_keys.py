"""Rows of one key in one rewritten file (pure): an upsert that combines nothing before it still stores one row of a key.

With ``hoodie.combine.before.upsert=false`` Hudi leaves rows of one key apart in new files and in logs, whose readers merge
them; a file that is rewritten takes one of them, by the table's rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakefmt.arrays import from_numpy
from lakefmt.config.merge_rule import MergeRule
from lakefmt.data_classes import replace
from lakefmt.write.assign import Assigned
from lakefmt.write.ingest import KeyedBatch, combine_alike, record_keys

__all__ = ["combine_in_files"]


def combine_in_files(
    batch: KeyedBatch, assigned: Sequence[Assigned], rule: MergeRule
) -> tuple[KeyedBatch, Sequence[Assigned]]:
    """Return the rows with one row for each key of a rewritten base file, and the files with the numbers of these rows.

    Args:
        batch: the rows.
        assigned: the files, and their rows by number.
        rule: the table's merge rule.

    Raises:
        InvalidInputError: an ordering value is not valid under the rule.
        MergerFailed: the registered merge function failed.
    """
    by_key = record_keys(batch).dictionary_encode().indices.to_numpy().astype(np.int64)
    # Rows that go elsewhere have codes of their own, behind those of (file, key).
    codes = np.arange(batch.num_rows, dtype=np.int64) + len(assigned) * batch.num_rows
    for number, each in enumerate(assigned):
        if each.assignment.base is not None and each.assignment.log is None:
            rows = each.rows if each.leaving is None else each.rows[~each.leaving]
            codes[rows] = number * batch.num_rows + by_key[rows]
    combined, winners = combine_alike(batch, codes, rule)
    if winners is None:
        return batch, assigned
    places = np.full(batch.num_rows, -1, np.int64)
    places[winners] = np.arange(len(winners))
    return combined, [_renumbered(each, places) for each in assigned]


def _renumbered(each: Assigned, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Assigned:
    """Return a file with the new numbers of its rows; -1: the row is there no more."""
    rows = places[each.rows]
    kept = rows >= 0
    leaving = None if each.leaving is None else each.leaving[kept]
    stored = None if each.stored is None else each.stored.filter(from_numpy(kept))
    positions = None if each.positions is None else each.positions[kept]
    assignment = replace(each.assignment, num_rows=None if each.assignment.num_rows is None else int(kept.sum()))
    return Assigned(assignment, rows[kept], leaving, stored, positions)
