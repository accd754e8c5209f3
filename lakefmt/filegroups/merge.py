"""Which of two records wins, and a base file with a batch merged into it (spec 7.9). Pure, by columns.

Two steps use the same rule: combining the records of one batch that share a key, and merging a batch with what is
stored. Commit time: the later one wins. Event time: the larger ordering value wins, the later one on a tie; a null
ordering value is the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.values import RECORD_KEY, MergeMode

__all__ = ["Incoming", "Merged", "choose_survivors", "incoming_wins", "merge_into_base"]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def choose_survivors(codes: npt.NDArray[np.int64], ordering: Sequence[pa.ChunkedArray], mode: MergeMode) -> Rows | None:
    """Return the rows that survive when records with equal `codes` are combined, in order of arrival.

    Args:
        codes: one number per row; equal numbers mean equal keys.
        ordering: ordering columns, most significant first; ignored under commit-time ordering.
        mode: which of two wins.

    Returns:
        Row numbers, ascending; None when every key is there once.

    Example:
        >>> choose_survivors(np.array([7, 8, 7]), [], MergeMode.COMMIT_TIME_ORDERING)
        array([1, 2])
    """
    if len(np.unique(codes)) == len(codes):
        return None
    columns: dict[str, pa.Array | pa.ChunkedArray] = {"code": pa.array(codes)}
    if mode is MergeMode.EVENT_TIME_ORDERING:
        for number, column in enumerate(ordering):
            columns |= {f"valid{number}": pc.is_valid(column), f"value{number}": column}  # null is the smallest
    columns["arrival"] = pa.array(np.arange(len(codes)))
    order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns]).to_numpy()
    sorted_codes = codes[order]
    last_of_run = np.append(sorted_codes[1:] != sorted_codes[:-1], True)
    survivors: Rows = np.sort(order[last_of_run]).astype(np.int64)
    return survivors


def incoming_wins(new: Sequence[pa.Array], old: Sequence[pa.Array]) -> Mask:
    """Return for each pair of rows whether the incoming one wins by event time (lexicographic over the fields).

    Example:
        >>> incoming_wins([pa.array([1, 2, None])], [pa.array([1, 3, None])])
        array([ True, False,  True])
    """
    count = len(new[0]) if new else 0
    decided = np.zeros(count, dtype=bool)
    wins = np.zeros(count, dtype=bool)
    for mine, theirs in zip(new, old, strict=True):
        greater, equal = _compare(mine, theirs)
        wins |= ~decided & greater
        decided |= ~equal
    wins |= ~decided
    return wins


def _compare(mine: pa.Array, theirs: pa.Array) -> tuple[Mask, Mask]:
    mine_null, theirs_null = _mask(pc.is_null(mine)), _mask(pc.is_null(theirs))
    both = ~mine_null & ~theirs_null
    greater = (both & _mask(pc.fill_null(pc.greater(mine, theirs), False))) | (~mine_null & theirs_null)
    equal = (both & _mask(pc.fill_null(pc.equal(mine, theirs), False))) | (mine_null & theirs_null)
    return greater, equal


def _mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask: Mask = flat.to_numpy(zero_copy_only=False).astype(bool, copy=False)
    return mask


@dataclass(frozen=True, slots=True)
class Incoming:
    """Rows routed to one file group, one per key.

    Attributes:
        table: every column of the file with its meta columns, except the file name's meaning, which the writer sets;
            for a delete by key only the key column is needed.
        deletes: which of the rows remove their key.
        columns: the columns that replace stored values; None replaces all (a partial update leaves the others).
    """

    table: pa.Table
    deletes: Mask
    columns: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """A base file's new content, and what became of the rows: every incoming row is in exactly one of the counts."""

    table: pa.Table
    inserted: int
    updated: int
    deleted: int
    late: int
    ignored_deletes: int
    inserted_keys: pa.ChunkedArray


def merge_into_base(base: pa.Table, incoming: Incoming, ordering: Sequence[str], mode: MergeMode) -> Merged:
    """Merge routed rows into a base file's rows.

    Stored rows whose key does not come in keep every column. A stored key that occurs several times (plain inserts
    allow it) is updated or deleted everywhere. Incoming rows without a stored key are appended, deletes among them
    ignored.
    """
    keys = incoming.table.column(RECORD_KEY).combine_chunks()
    found = pc.index_in(base.column(RECORD_KEY), value_set=keys).combine_chunks()
    stored = np.flatnonzero(_mask(pc.is_valid(found)))
    match = found.drop_null().to_numpy().astype(np.int64)
    wins = _winners(base, incoming, stored, match, ordering, mode)
    removes = incoming.deletes[match]
    replaced, removed = stored[wins & ~removes], stored[wins & removes]
    known = np.zeros(len(keys), dtype=bool)
    known[match] = True
    fresh = np.flatnonzero(~known & ~incoming.deletes)
    inserts = incoming.table.take(pa.array(fresh)) if len(fresh) else incoming.table.slice(0, 0)
    if len(replaced):
        base = _replace_rows(base, replaced, incoming.table.take(pa.array(match[wins & ~removes])), incoming.columns)
    if len(removed):
        keep = np.ones(base.num_rows, dtype=bool)
        keep[removed] = False
        base = base.filter(pa.array(keep))
    table = pa.concat_tables([base, inserts.select(base.column_names).cast(base.schema)]) if len(fresh) else base
    return Merged(
        table=table,
        inserted=len(fresh),
        updated=len(replaced),
        deleted=len(removed),
        late=int(len(stored) - len(replaced) - len(removed)),
        ignored_deletes=int(np.count_nonzero(~known & incoming.deletes)),
        inserted_keys=inserts.column(RECORD_KEY),
    )


def _winners(
    base: pa.Table, incoming: Incoming, stored: Rows, match: Rows, ordering: Sequence[str], mode: MergeMode
) -> Mask:
    comparable = all(name in incoming.table.column_names for name in ordering)
    if mode is not MergeMode.EVENT_TIME_ORDERING or not ordering or not comparable or not len(stored):
        return np.ones(len(stored), dtype=bool)
    new = [incoming.table.column(name).take(pa.array(match)).combine_chunks() for name in ordering]
    old = [base.column(name).take(pa.array(stored)).combine_chunks() for name in ordering]
    return incoming_wins(new, old)


def _replace_rows(base: pa.Table, rows: Rows, replacements: pa.Table, names: frozenset[str] | None) -> pa.Table:
    selected = np.zeros(base.num_rows, dtype=bool)
    selected[rows] = True
    mask = pa.array(selected)
    order: pa.Array | None = None
    columns = []
    for field in base.schema:
        column = base.column(field.name)
        if names is not None and field.name not in names:
            columns.append(column)
            continue
        new = replacements.column(field.name).combine_chunks()
        if pa.types.is_nested(field.type):
            # replace_with_mask knows no nested types: gather from both instead.
            order = _gather_order(base.num_rows, rows) if order is None else order
            columns.append(pa.chunked_array([*column.chunks, new], field.type).take(order))
        else:
            columns.append(pc.replace_with_mask(column.combine_chunks(), mask, new))
    return pa.table(columns, schema=base.schema)


def _gather_order(num_rows: int, rows: Rows) -> pa.Array:
    order = np.arange(num_rows)
    order[rows] = num_rows + np.arange(len(rows))
    return pa.array(order)
