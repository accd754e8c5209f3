"""Which of two records wins, and a base file with a batch merged into it (spec 7.9, 7.10). Pure, by columns.

Two steps use the same rule: combining the records of one batch that share a key, and merging a batch with what is
stored. Commit time: the later one wins. Event time: the larger ordering value wins, the later one on a tie; which one is
larger is decided in :mod:`~lakefmt.filegroups.ordering`. Under a partial rule values of the winner that say nothing give
way to the other's.

Values of one width, replaced in place of others: a copy of the column and one store, not a walk over it. Pure.

Arrow's own ``replace_with_mask`` looks at every row of a column for the few that change; NumPy copies the column as memory
and stores the few. That needs values of one width without nulls: numbers, dates, times, decimals, and texts that all
have the same length, as keys often do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as made
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.arrays import common_length, text_offsets
from lakefmt.config.merge_rule import MergeRule, Partial
from lakefmt.config.mergers import CustomMerge
from lakefmt.filegroups.merge._custom import call_merger
from lakefmt.filegroups.ordering import (
    Mask,
    Rows,
    comparable,
    has_order,
    is_replaceable,
    ordering_columns,
    refuse_nulls,
    to_mask,
    unordered_deletes,
)
from lakefmt.formats.parquet.dictionary_columns import appended, decoded_dictionaries, replaced_codes
from lakefmt.schema import cast_rows
from lakefmt.values import META_COLUMNS, RECORD_KEY, MergeMode

__all__ = ["Incoming", "Mask", "Merged", "choose_survivors", "incoming_wins", "merge_into_base", "replaced_items"]


_Items = npt.NDArray[np.generic]
#: Numpy moves these as numbers, everything else as a piece of memory.
_NUMBERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def replaced_items(column: pa.Array, rows: npt.NDArray[np.int64], values: pa.Array) -> pa.Array | None:
    """Return a column with some rows replaced; None when its values are not all of one width.

    Args:
        column: the column.
        rows: the rows, each once.
        values: what comes in their places, of the column's type.

    Example:
        >>> replaced_items(pa.array([1, 2, 3]), np.array([2, 0]), pa.array([30, 10])).to_pylist()
        [10, 2, 30]
        >>> replaced_items(pa.array(["a", "b"]), np.array([0]), pa.array(["long"])) is None
        True
    """
    if column.type != values.type or column.null_count or values.null_count or not len(column):
        return None
    if pt.is_string(column.type) or pt.is_binary(column.type):
        return _replaced_texts(column, rows, values)
    width = _width(column.type)
    if not width:
        return None
    items = _fixed(column, width).copy()
    items[rows] = _fixed(values, width)
    return pa.Array.from_buffers(column.type, len(items), [None, pa.py_buffer(items)])


def _width(kind: pa.DataType) -> int:
    """Return the bytes of each value in memory; 0 when the type has no such."""
    plain = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_temporal(kind) or pt.is_decimal(kind)
    if not plain or pt.is_interval(kind):
        return 0
    return int(kind.bit_width) // 8


def _fixed(column: pa.Array, width: int) -> _Items:
    kind = np.dtype(_NUMBERS.get(width, f"V{width}"))
    buffer = column.buffers()[1]
    return np.empty(0, kind) if buffer is None else np.frombuffer(buffer, kind, len(column), column.offset * width)


def _replaced_texts(column: pa.Array, rows: npt.NDArray[np.int64], values: pa.Array) -> pa.Array | None:
    old, new = _texts(column), _texts(values)
    if old is None or (len(values) and (new is None or new.dtype != old.dtype)):
        return None
    items = old.copy()
    if new is not None:
        items[rows] = new
    offsets = np.arange(len(items) + 1, dtype=np.int32) * np.int32(items.itemsize)
    return pa.Array.from_buffers(column.type, len(items), [None, pa.py_buffer(offsets), pa.py_buffer(items)])


def _texts(column: pa.Array) -> _Items | None:
    """Return texts as pieces of memory; None when they are empty, or not all of one length."""
    offsets, data = text_offsets(column), column.buffers()[2]
    length = common_length(offsets)
    if not length or data is None:
        return None
    return np.frombuffer(data, f"V{length}", len(column), int(offsets[0]))


#: Text of one array counts its bytes in 31 bits: of more, old and new values are not put into one.
_MOST_TEXT = 1 << 30


def choose_survivors(codes: Rows, ordering: Sequence[pa.ChunkedArray], mode: MergeMode) -> Rows | None:
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
            # Null is the smallest.
            columns |= {f"valid{number}": pc.is_valid(column), f"value{number}": comparable(column)}
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
    mine, theirs = comparable(mine), comparable(theirs)
    mine_null, theirs_null = to_mask(pc.is_null(mine)), to_mask(pc.is_null(theirs))
    both = ~mine_null & ~theirs_null
    greater = (both & to_mask(pc.fill_null(pc.greater(mine, theirs), False))) | (~mine_null & theirs_null)
    equal = (both & to_mask(pc.fill_null(pc.equal(mine, theirs), False))) | (mine_null & theirs_null)
    return greater, equal


@dataclass(frozen=True, slots=True)
class Incoming:
    """Rows routed to one file group, one per key.

    Attributes:
        table: every column of the file with its meta columns, except the file name's meaning, which the writer sets;
            for a delete by key only the key column is needed.
        deletes: which of the rows remove their key.
        columns: the columns that replace stored values; None replaces all (a partial update leaves the others).
        lacks: for columns that some of the rows do not bring, which rows: the stored value stays there.
    """

    table: pa.Table
    deletes: Mask
    columns: frozenset[str] | None = None
    lacks: Mapping[str, Mask] = made(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Merged:
    """A base file's new content, and what became of the rows: every incoming row is in exactly one of the counts.

    ``replaced`` and ``removed`` number the stored rows that were changed and that went, ascending in ``removed``; the
    inserted rows are the last ones of ``table``.
    """

    table: pa.Table
    inserted: int
    updated: int
    deleted: int
    late: int
    ignored_deletes: int
    inserted_keys: pa.ChunkedArray
    replaced: Rows = made(default_factory=lambda: np.empty(0, np.int64))
    removed: Rows = made(default_factory=lambda: np.empty(0, np.int64))


def merge_into_base(
    base: pa.Table,
    incoming: Incoming,
    ordering: Sequence[str] = (),
    mode: MergeMode = MergeMode.COMMIT_TIME_ORDERING,
    *,
    rule: MergeRule | None = None,
    places: Rows | None = None,
) -> Merged:
    """Merge routed rows into a base file's rows.

    Stored rows whose key does not come in keep every column. A stored key that occurs several times (plain inserts
    allow it) is updated or deleted everywhere. Incoming rows without a stored key are appended, deletes among them
    ignored. A row that loses and yet completes the stored one (partial rules) counts as an update.

    Args:
        base: the stored rows, with their meta columns.
        incoming: the rows, one per key.
        ordering: ordering columns; counts without `rule` only.
        mode: which of two wins; counts without `rule` only.
        rule: how the table merges.
        places: the stored row that has the key of each incoming one, when that is known of all of them.

    Raises:
        InvalidInputError: an ordering value is not what the rule needs.
        MergerFailed: the table's own function did not do its part.
    """
    rule = MergeRule.plain(mode, tuple(ordering)) if rule is None else rule
    keys = incoming.table.column(RECORD_KEY).combine_chunks()
    if places is None:
        found = pc.index_in(base.column(RECORD_KEY), value_set=keys).combine_chunks()
        stored = np.flatnonzero(to_mask(pc.is_valid(found)))
        match = found.drop_null().to_numpy().astype(np.int64)
    else:
        match = np.argsort(places)
        stored = places[match]
    removes = incoming.deletes[match]
    wins = _winners(base, incoming, stored, match, rule)
    wins |= removes & (rule.deletes_win | unordered_deletes(incoming.table, incoming.deletes, rule)[match])
    known = np.zeros(len(keys), dtype=bool)
    known[match] = True
    fresh = np.flatnonzero(~known & ~incoming.deletes)
    inserts = incoming.table.take(pa.array(fresh)) if len(fresh) else incoming.table.slice(0, 0)
    removed = stored[wins & removes]
    if rule.custom is not None:
        met = _Pairs(stored, match).where(~removes)
        table, gone = _overlay_called(base, incoming, met, rule.custom)
        replaced, removed = np.setdiff1d(met.stored, gone), np.union1d(removed, gone)
    else:
        table, replaced = _overlay(base, incoming, _Pairs(stored, match), wins, rule.partial)
    if len(removed):
        keep = np.ones(table.num_rows, dtype=bool)
        keep[removed] = False
        table = table.filter(pa.array(keep))
    if len(fresh):
        new = cast_rows(inserts.select(table.column_names), decoded_dictionaries(table.schema))
        table = appended(table, new)
    return Merged(
        table=table,
        inserted=len(fresh),
        updated=len(replaced),
        deleted=len(removed),
        late=len(stored) - len(replaced) - len(removed),
        ignored_deletes=int(np.count_nonzero(~known & incoming.deletes)),
        inserted_keys=inserts.column(RECORD_KEY),
        replaced=replaced,
        removed=removed,
    )


def _winners(base: pa.Table, incoming: Incoming, stored: Rows, match: Rows, rule: MergeRule) -> Mask:
    if not has_order(rule.stored, incoming.table.column_names) or not len(stored):
        return np.ones(len(stored), dtype=bool)
    new = ordering_columns(incoming.table, rule.stored, match)
    refuse_nulls(new, rule.stored)
    return incoming_wins(new, ordering_columns(base, rule.stored, stored))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Row numbers that meet: of the base (ascending), and of what comes in."""

    stored: Rows
    incoming: Rows

    def where(self, which: Mask) -> _Pairs:
        return _Pairs(self.stored[which], self.incoming[which])


def _overlay(
    base: pa.Table, incoming: Incoming, pairs: _Pairs, wins: Mask, partial: Partial | None
) -> tuple[pa.Table, Rows]:
    """Return the base with the values that come in, and the rows that they changed."""
    alive = ~incoming.deletes[pairs.incoming]
    won = pairs.where(wins & alive)
    new = incoming.table.take(pa.array(won.incoming))
    weak = {} if partial is None else _weak(new, _data_fields(base), partial)
    weak |= {name: mask[won.incoming] for name, mask in incoming.lacks.items()}
    table = _replace_rows(base, won.stored, new, incoming.columns, weak)
    lost = pairs.where(~wins & alive)
    if partial is None or not partial.from_late or not len(lost.stored):
        return table, won.stored
    # The stored row is the winner here: what comes in fills only where its value gives way.
    mine = incoming.table.take(pa.array(lost.incoming))
    fields = [f for f in _data_fields(base) if incoming.columns is None or f.name in incoming.columns]
    theirs = _weak(base.take(pa.array(lost.stored)), fields, partial)
    brings = _weak(mine, fields, partial)
    kept = {name: ~(theirs[name] & ~brings[name]) for name in theirs}
    changed = ~np.logical_and.reduce([np.ones(len(lost.stored), dtype=bool), *kept.values()])
    rows = {name: mask[changed] for name, mask in kept.items()}
    table = _replace_rows(table, lost.stored[changed], mine.filter(pa.array(changed)), incoming.columns, rows)
    return table, np.concatenate([won.stored, lost.stored[changed]])


def _overlay_called(base: pa.Table, incoming: Incoming, pairs: _Pairs, custom: CustomMerge) -> tuple[pa.Table, Rows]:
    """Return the base with what the table's function makes of the rows that meet, and the rows that it deletes."""
    if not len(pairs.stored):
        return base, pairs.stored
    older = base.take(pa.array(pairs.stored))
    newer = incoming.table.take(pa.array(pairs.incoming)).select(base.column_names)
    if incoming.columns is not None:
        brought = incoming.columns
        whole = [(newer if f.name in brought else older).column(f.name) for f in base.schema]
        newer = pa.table(whole, schema=base.schema)
    merged, deletes = call_merger(custom, older, newer)
    return _replace_rows(base, pairs.stored, merged, None, {}), pairs.stored[deletes]


def _data_fields(base: pa.Table) -> list[pa.Field]:
    return [field for field in base.schema if field.name not in META_COLUMNS]


def _weak(rows: pa.Table, fields: Sequence[pa.Field], partial: Partial) -> dict[str, Mask]:
    return {f.name: is_replaceable(rows.column(f.name), f, partial) for f in fields if f.name in rows.column_names}


def _replace_rows(
    base: pa.Table, rows: Rows, replacements: pa.Table, names: frozenset[str] | None, kept: Mapping[str, Mask]
) -> pa.Table:
    """Return the base with rows replaced, but for columns not in `names` and the values that `kept` keeps."""
    if not len(rows):
        return base
    columns = []
    places, keys = _Places(rows, base.num_rows), base.column(RECORD_KEY)
    for field in base.schema:
        column = base.column(field.name)
        stays = kept.get(field.name)
        if field.name == RECORD_KEY or (names is not None and field.name not in names):
            columns.append(column)  # rows meet by their key: it is the same
        elif _is_same(column, keys) and replacements.column(field.name).equals(replacements.column(RECORD_KEY)):
            columns.append(column)  # it holds the keys, too
        elif stays is None or not stays.any():
            columns.append(_replaced(column, places, replacements.column(field.name)))
        elif stays.all():
            columns.append(column)
        else:
            some = replacements.column(field.name).filter(pa.array(~stays))
            columns.append(_replaced(column, _Places(rows[~stays], base.num_rows), some))
    return pa.table(columns, schema=base.schema)


def _is_same(column: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Return whether two columns are the same memory, as a reader leaves them that found them the same in the file."""
    pairs = zip(column.chunks, other.chunks, strict=False)
    return (column.type, column.num_chunks) == (other.type, other.num_chunks) and all(
        (one.offset, len(one)) == (two.offset, len(two)) and _places_of(one) == _places_of(two) for one, two in pairs
    )


def _places_of(array: pa.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in array.buffers()]


@dataclass(frozen=True)
class _Places:
    """Which rows of `count` give way to others, in the two forms in which columns want to know it."""

    rows: Rows
    count: int

    @cached_property
    def mask(self) -> pa.BooleanArray:
        selected = np.zeros(self.count, dtype=bool)
        selected[self.rows] = True
        return pa.array(selected)

    @cached_property
    def order(self) -> pa.Int64Array:
        """Where each row is, when those that come stand behind those that were there."""
        order = np.arange(self.count)
        order[self.rows] = self.count + np.arange(len(self.rows))
        return pa.array(order)


def _replaced(column: pa.ChunkedArray, places: _Places, values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    new = values.combine_chunks()
    if pa.types.is_dictionary(column.type):
        return replaced_codes(column, new, lambda old, some: _replaced(old, places, some))
    if pa.types.is_nested(column.type):
        # replace_with_mask knows no nested types: gather from both instead.
        return pa.chunked_array([*column.chunks, new], column.type).take(places.order)
    old = column.combine_chunks()
    found = replaced_items(old, places.rows, new)
    if found is not None:
        return found
    if pa.types.is_string(column.type) and old.nbytes + new.nbytes <= _MOST_TEXT:
        # Of text the mask goes value by value, in twice the time.
        return pa.concat_arrays([old, new]).take(places.order)
    return pc.replace_with_mask(old, places.mask, new)
