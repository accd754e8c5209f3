"""The changes that one write made to one file group, as rows before and after it (spec 9). Pure, by columns.

They come from a merge's own masks (:func:`changes_of_merge`), or from a slice's rows before and after
(:func:`compare_rows`). A row has changed when it was written again: its sequence number tells, and under rules that let a
late row fill a stored one its values do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config.table_config import CdcMode
from lakefmt.filegroups.merge.base import Merged
from lakefmt.filegroups.ordering import to_mask
from lakefmt.formats.avro.columnar.codec import encode_rows
from lakefmt.formats.log.cdc import AFTER, BEFORE, KEY, OP, TS_MS
from lakefmt.schema import arrow_to_avro, without_meta_columns
from lakefmt.values import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY

__all__ = [
    "DELETE",
    "INSERT",
    "UPDATE",
    "ChangedRows",
    "build_cdc_rows",
    "changes_of_merge",
    "compare_rows",
    "images",
    "match_keys",
    "operations",
]

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

INSERT, UPDATE, DELETE = "i", "u", "d"


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """What changed; all tables have one schema.

    Attributes:
        deleted: rows as they were.
        before: rows that were updated, as they were.
        after: the same rows, in the same order, as they are.
        inserted: rows that are new.
    """

    deleted: pa.Table
    before: pa.Table
    after: pa.Table
    inserted: pa.Table

    @property
    def num_rows(self) -> int:
        """How many changes there are."""
        return int(self.deleted.num_rows + self.after.num_rows + self.inserted.num_rows)


def changes_of_merge(base: pa.Table, merged: Merged) -> ChangedRows:
    """Return what a merge changed.

    Args:
        base: the rows that were merged into.
        merged: the result.

    Example:
        >>> from lakefmt.filegroups.merge.base import Incoming, merge_into_base
        >>> base = pa.table({RECORD_KEY: ["a", "b"], "v": [1, 2]})
        >>> incoming = Incoming(pa.table({RECORD_KEY: ["b", "c"], "v": [9, 3]}), np.zeros(2, dtype=bool))
        >>> found = changes_of_merge(base, merge_into_base(base, incoming))
        >>> found.before["v"].to_pylist(), found.after["v"].to_pylist(), found.inserted["v"].to_pylist()
        ([2], [9], [3])
    """
    moved = merged.replaced - np.searchsorted(merged.removed, merged.replaced)
    return ChangedRows(
        base.take(pa.array(merged.removed)),
        base.take(pa.array(merged.replaced)),
        merged.table.take(pa.array(moved)),
        merged.table.slice(merged.table.num_rows - merged.inserted),
    )


def compare_rows(before: pa.Table, after: pa.Table, *, by_value: bool = False) -> ChangedRows:
    """Return what changed between two states of a file group.

    A key that is stored several times is compared place by place: the first with the first.

    Args:
        before: the rows with their keys, commit times and sequence numbers.
        after: the same columns.
        by_value: rows that keep their sequence number may have changed all the same (rules that complete stored rows).

    Example:
        >>> rows = lambda keys, times: pa.table({COMMIT_TIME: times, COMMIT_SEQNO: times, RECORD_KEY: keys})
        >>> found = compare_rows(rows(["a", "b", "c"], ["1", "1", "1"]), rows(["b", "c", "d"], ["1", "2", "2"]))
        >>> [part[RECORD_KEY].to_pylist() for part in (found.deleted, found.after, found.inserted)]
        [['a'], ['c'], ['d']]
    """
    old, new = _identities(before.column(RECORD_KEY), after.column(RECORD_KEY))
    found = pc.index_in(new, value_set=old)
    known = to_mask(pc.is_valid(found))
    here = np.flatnonzero(known)
    there = found.drop_null().to_numpy().astype(np.int64)
    gone = np.ones(before.num_rows, dtype=bool)
    gone[there] = False
    changed = np.zeros(len(here), dtype=bool)
    for name in (COMMIT_TIME, COMMIT_SEQNO):
        changed |= _differ(before.column(name).take(pa.array(there)), after.column(name).take(pa.array(here)))
    if by_value:
        same = np.flatnonzero(~changed)
        changed[same] = _values_differ(before.take(pa.array(there[same])), after.take(pa.array(here[same])))
    return ChangedRows(
        before.filter(pa.array(gone)),
        before.take(pa.array(there[changed])),
        after.take(pa.array(here[changed])),
        after.filter(pa.array(~known)),
    )


def match_keys(keys: pa.ChunkedArray, stored: pa.ChunkedArray) -> pa.Array:
    """Return for each key the row that has it, null where none does; a key that comes again gets the next such row.

    Example:
        >>> match_keys(pa.chunked_array([["a", "x", "a"]]), pa.chunked_array([["b", "a", "a"]])).to_pylist()
        [1, None, 2]
    """
    wanted, there = _identities(keys, stored)
    return pc.index_in(wanted, value_set=there)


def _identities(old: pa.ChunkedArray, new: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys; where one is there twice, every key with its number among the equal ones."""
    joined = pa.chunked_array([*old.chunks, *new.chunks], old.type).combine_chunks()
    codes: Rows = joined.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    parts = codes[: len(old)], codes[len(old) :]
    if all(np.bincount(part).max(initial=0) <= 1 for part in parts):
        return pa.array(parts[0]), pa.array(parts[1])
    numbers = [_occurrences(part) for part in parts]
    width = int(max(part.max(initial=0) for part in numbers)) + 1
    first, second = (pa.array(part * width + number) for part, number in zip(parts, numbers, strict=True))
    return first, second


def _occurrences(codes: Rows) -> Rows:
    """Return for each code how many equal ones came before it.

    Example:
        >>> _occurrences(np.array([7, 8, 7, 7])).tolist()
        [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.append(True, ordered[1:] != ordered[:-1])[: len(codes)]
    places = np.arange(len(codes))
    counted = np.empty(len(codes), np.int64)
    counted[order] = places - np.maximum.accumulate(np.where(starts, places, 0))
    return counted


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    return ~to_mask(pc.fill_null(pc.equal(one, other), False))


def _values_differ(one: pa.Table, other: pa.Table) -> Mask:
    """Compare rows by the bytes that they take as Avro records: nested values and NaN included."""
    if not one.num_rows:
        return np.zeros(0, dtype=bool)
    schema = without_meta_columns(one.schema)
    text = arrow_to_avro(schema, "row")
    packed = []
    for table in (one, other):
        data, offsets = encode_rows(table.select(schema.names), text)
        packed.append(
            pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])
        )
    return to_mask(pc.not_equal(*packed))


# ----------------------------------------------------------------------------------------------------- what is written


def build_cdc_rows(changes: ChangedRows, mode: CdcMode, instant: str) -> pa.Table:
    """Return changes as a change file has them: deletes first, then updates, then inserts.

    Args:
        changes: what changed, in the table's columns with their meta columns.
        mode: what is written of each.
        instant: the instant that makes them.

    Example:
        >>> rows = pa.table({RECORD_KEY: ["a"], "v": [1]})
        >>> changes = ChangedRows(rows, rows[:0], rows[:0], rows[:0])
        >>> build_cdc_rows(changes, CdcMode.DATA_BEFORE, "20260101000000000").to_pylist()
        [{'op': 'd', 'record_key': 'a', 'before': {'v': 1}}]
    """
    deleted, before, after, inserted = changes.deleted, changes.before, changes.after, changes.inserted
    columns = {OP: operations(changes)}
    if mode is CdcMode.DATA_BEFORE_AFTER:
        columns[TS_MS] = pa.repeat(pa.scalar(instant, pa.string()), changes.num_rows)
    else:
        keys = [part.column(RECORD_KEY) for part in (deleted, after, inserted)]
        columns[KEY] = pa.chunked_array([chunk for key in keys for chunk in key.chunks], pa.string())
    kind = pa.struct(list(without_meta_columns(deleted.schema)))
    if mode is not CdcMode.OP_KEY_ONLY:
        columns[BEFORE] = images([deleted, before, inserted.num_rows], kind)
    if mode is CdcMode.DATA_BEFORE_AFTER:
        columns[AFTER] = images([deleted.num_rows, after, inserted], kind)
    return pa.table(columns)


def operations(changes: ChangedRows) -> pa.ChunkedArray:
    """Return the operation of each change: deletes, updates, inserts."""
    counts = ((DELETE, changes.deleted), (UPDATE, changes.after), (INSERT, changes.inserted))
    return pa.chunked_array([pa.repeat(pa.scalar(op), part.num_rows) for op, part in counts], pa.string())


def images(parts: list[pa.Table | int], kind: pa.DataType) -> pa.ChunkedArray:
    """Return rows as structs, one column of them; a number stands for so many nulls.

    Args:
        parts: tables that have the columns of `kind`, or numbers.
        kind: the struct.

    Example:
        >>> images([1, pa.table({"v": [1]})], pa.struct({"v": pa.int64()})).to_pylist()
        [None, {'v': 1}]
    """
    chunks: list[pa.Array] = []
    for part in parts:
        if isinstance(part, int):
            chunks.append(pa.nulls(part, kind))
            continue
        names = [kind.field(number).name for number in range(kind.num_fields)]
        batches = part.select(names).combine_chunks().to_batches()
        chunks += [pa.StructArray.from_arrays(batch.columns, fields=list(kind)) for batch in batches]
    return pa.chunked_array(chunks, kind)
