"""Merge incoming rows into a base file (docs/format.md, Merge rules; Partial updates). Pure.

Combining the records of a batch and merging a batch with stored rows use the same rule. Commit
time: the later record wins. Event time: the record with the larger ordering value wins
(:mod:`lakefmt._core.filegroups.ordering`), the later one on a tie. Under a partial rule, replaceable
values of the winner are filled from the other record.

A large base file is merged part by part, so that one part is stored while the next is merged (:func:`merge_in_parts`).
Many rows are merged in the order of the base file, so that only those that meet a part of it are in memory
(:func:`merge_in_order`): each row is given the place of the stored row that it changes, a new one the place behind the
last, and rows and base file are read side by side. Rows of several file groups are merged by one call
(:func:`grouped_rows`): a merge of a few rows costs its calls, not its rows. Keys are only unique within a file group,
so each key is preceded by the number of its group while the rows are together.

With a registered merge function, rows of one key are folded in the order of arrival: the first with
the second, the result with the third, and so on (:func:`fold_rows`). Each step calls the function
once, for all keys that have a row left. A delete discards the rows before it; the row after it
starts anew. The function sees the table's columns without meta columns, which are those of the
newer row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field as made
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.arrays import are_large, distinct, from_numpy, has_values, other_rows, replaced_items, rows_at
from lakefmt._core.config.merge_rule import CustomMerge, MergeRule, Partial
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.ordering import (
    Mask,
    Rows,
    comparable,
    has_order,
    incoming_wins,
    is_replaceable,
    ordering_columns,
    refuse_nulls,
    to_mask,
    unordered_deletes,
)
from lakefmt._core.formats.parquet.base_file import appended, decoded_dictionaries, replaced_codes
from lakefmt._core.schema import cast_rows, reconcile
from lakefmt._core.values import META_COLUMNS, RECORD_KEY, MergeMode
from lakefmt.errors import CorruptFile, MergerFailed

__all__ = [
    "GROUP_NUMBER",
    "MOST_ROWS_OF_A_PIECE",
    "PLACE",
    "Folded",
    "Incoming",
    "Mask",
    "Merged",
    "call_merger",
    "can_be_together",
    "choose_survivors",
    "fold_rows",
    "grouped_rows",
    "joined_in_schema",
    "merge_in_order",
    "merge_in_parts",
    "merge_into_base",
    "rows_in_file_order",
    "split_groups",
    "stored_keys",
    "sum_of_parts",
    "with_inserts",
]


#: A column of the rows while they are together: the number of the file group.
GROUP_NUMBER = "_lakefmt_group_number"
#: Characters of a group's number before each key.
_GROUP_DIGITS = 4
_MOST_GROUPS = 16**_GROUP_DIGITS
#: A text array has 31-bit offsets: above this size old and new values are not concatenated.
_MOST_TEXT_BYTES = 1 << 30
#: From this number of rows on new values are compared with the stored ones: a column that stays need not be encoded again.
_MANY_ROWS = 4096
#: A column of rows on their way to a base file: the row of it that they change; its number of rows for new ones.
PLACE = "_lakefmt_place"
#: So many rows meet a base file at once: with their meta columns they take some 30 MiB, and three copies of them meanwhile.
MOST_ROWS_OF_A_PIECE = 1 << 17


def choose_survivors(codes: Rows, ordering: Sequence[pa.ChunkedArray], mode: MergeMode) -> Rows | None:
    """Return the rows that win among records with equal `codes`.

    Args:
        codes: ``(n_rows,) int64`` key codes, rows in the order of arrival.
        ordering: ordering columns, most significant first; ignored under commit-time ordering.
        mode: the merge mode.

    Returns:
        Row numbers, ascending; None if every key is unique.

    Example:
        >>> choose_survivors(np.array([7, 8, 7]), [], MergeMode.COMMIT_TIME_ORDERING)
        array([1, 2])
    """
    if len(distinct(codes)) == len(codes):
        return None
    columns: dict[str, pa.Array | pa.ChunkedArray] = {"code": from_numpy(codes)}
    if mode is MergeMode.EVENT_TIME_ORDERING:
        for number, column in enumerate(ordering):
            # Null is smallest.
            columns |= {f"valid{number}": pc.is_valid(column), f"value{number}": comparable(column)}
    columns["arrival"] = from_numpy(np.arange(len(codes)))
    order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns]).to_numpy()
    sorted_codes = codes[order]
    last_of_run = np.append(sorted_codes[1:] != sorted_codes[:-1], True)
    survivors: Rows = np.sort(order[last_of_run]).astype(np.int64)
    return survivors


@dataclass(frozen=True, slots=True)
class Incoming:
    """The rows for one file group, one per key.

    Attributes:
        table: the columns of the file with meta columns (the file name is set later); a delete by
            key needs only the key column.
        deletes: ``(n_rows,)`` bool; the row deletes its key.
        columns: the columns that replace stored values; None: all.
        lacks: column → ``(n_rows,)`` bool; the rows that lack a value for it and keep the stored
            one.
    """

    table: pa.Table
    deletes: Mask
    columns: frozenset[str] | None = None
    lacks: Mapping[str, Mask] = made(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge: every incoming row is in exactly one of the counts.

    ``replaced``, ``removed`` and ``met``, those with an incoming row, are row numbers of the base file,
    ``removed`` ascending, with ``removed_keys``; ``ignored`` are those of the incoming deletes without a stored key. Inserted
    rows are last in ``table``. ``unchanged`` are columns whose values are those of the base file, row by row; ``group`` is
    its row group with all of these rows and no others, where that is known.
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
    met: Rows = made(default_factory=lambda: np.empty(0, np.int64))
    ignored: Rows = made(default_factory=lambda: np.empty(0, np.int64))
    removed_keys: pa.ChunkedArray = made(default_factory=lambda: pa.chunked_array([], pa.string()))
    unchanged: frozenset[str] = frozenset()
    group: int | None = None


def merge_into_base(
    base: pa.Table,
    incoming: Incoming,
    ordering: Sequence[str] = (),
    mode: MergeMode = MergeMode.COMMIT_TIME_ORDERING,
    *,
    rule: MergeRule | None = None,
    stored_rows: Rows | None = None,
) -> Merged:
    """Merge rows into the rows of a base file.

    Stored rows without an incoming row keep every column. A stored key with several rows is updated
    or deleted in all of them. Incoming rows without a stored key are appended, except deletes. A
    row that loses but fills values of the stored one (partial rules) counts as an update.

    Args:
        base: the stored rows with meta columns.
        incoming: the rows, one per key.
        ordering: ordering columns; used without `rule`.
        mode: merge mode; used without `rule`.
        rule: the table's merge rule.
        stored_rows: ``(n_rows,) int64``, the stored row of each incoming row; None: match by key.

    Raises:
        InvalidInputError: an ordering value is not valid under the rule.
        MergerFailed: the registered merge function failed.
    """
    rule = MergeRule.plain(mode, tuple(ordering)) if rule is None else rule
    keys = incoming.table.column(RECORD_KEY).combine_chunks()
    if stored_rows is None:
        match_index = pc.index_in(base.column(RECORD_KEY), value_set=keys).combine_chunks()
        stored = np.flatnonzero(to_mask(pc.is_valid(match_index)))
        match = match_index.drop_null().to_numpy().astype(np.int64)
    else:
        match = np.argsort(stored_rows)
        stored = stored_rows[match]
    removes = incoming.deletes[match]
    wins = _winning_rows(base, incoming, stored, match, rule)
    wins |= removes & (rule.deletes_win | unordered_deletes(incoming.table, incoming.deletes, rule)[match])
    is_stored = np.zeros(len(keys), dtype=bool)
    is_stored[match] = True
    fresh = np.flatnonzero(~is_stored & ~incoming.deletes)
    ignored = np.flatnonzero(~is_stored & incoming.deletes)
    inserts = rows_at(incoming.table, fresh) if len(fresh) else incoming.table.slice(0, 0)
    removed = stored[wins & removes]
    if rule.custom is not None:
        met = _MatchedRows(stored, match).where(~removes)
        table, deleted = _overlay_merged_by_function(base, incoming, met, rule.custom)
        replaced, removed = np.setdiff1d(met.stored, deleted), np.union1d(removed, deleted)
    else:
        table, replaced = _overlay_winners(base, incoming, _MatchedRows(stored, match), wins, rule.partial)
    is_whole = base.num_rows >= _MANY_ROWS and not len(removed) and not len(fresh)
    unchanged = _columns_sharing_memory(table, base) if is_whole else frozenset()
    if len(removed):
        keep = np.ones(table.num_rows, dtype=bool)
        keep[removed] = False
        table = table.filter(from_numpy(keep))
    return Merged(
        table=with_inserts(table, inserts),
        inserted=len(fresh),
        updated=len(replaced),
        deleted=len(removed),
        late=len(stored) - len(replaced) - len(removed),
        ignored_deletes=len(ignored),
        inserted_keys=inserts.column(RECORD_KEY),
        removed_keys=_keys_at(base, removed),
        replaced=replaced,
        removed=removed,
        met=stored,
        ignored=ignored,
        unchanged=unchanged,
    )


def _keys_at(base: pa.Table, rows: Rows) -> pa.ChunkedArray:
    """Return the record keys of some rows; of none without a look at the column, which Arrow would join for it."""
    return base.column(RECORD_KEY).take(from_numpy(rows)) if len(rows) else pa.chunked_array([], pa.string())


def _columns_sharing_memory(table: pa.Table, base: pa.Table) -> frozenset[str]:
    return frozenset(name for name in base.column_names if _shares_memory(table.column(name), base.column(name)))


def with_inserts(table: pa.Table, inserts: pa.Table) -> pa.Table:
    """Return the rows of a file with new rows behind them, cast to its columns."""
    if not inserts.num_rows:
        return table
    return appended(table, cast_rows(inserts.select(table.column_names), decoded_dictionaries(table.schema)))


def _winning_rows(base: pa.Table, incoming: Incoming, stored: Rows, match: Rows, rule: MergeRule) -> Mask:
    if not has_order(rule.stored, incoming.table.column_names) or not len(stored):
        return np.ones(len(stored), dtype=bool)
    new = ordering_columns(incoming.table, rule.stored, match)
    refuse_nulls(new, rule.stored)
    return incoming_wins(new, ordering_columns(base, rule.stored, stored))


@dataclass(frozen=True, slots=True)
class _MatchedRows:
    """Row numbers of matching rows: in the base (ascending) and in the incoming rows."""

    stored: Rows
    incoming: Rows

    def where(self, which: Mask) -> _MatchedRows:
        return _MatchedRows(self.stored[which], self.incoming[which])


def _overlay_winners(
    base: pa.Table, incoming: Incoming, pairs: _MatchedRows, wins: Mask, partial: Partial | None
) -> tuple[pa.Table, Rows]:
    """Return the base with winning values replaced, and the rows that changed."""
    alive = ~incoming.deletes[pairs.incoming]
    won = pairs.where(wins & alive)
    new = rows_at(incoming.table, won.incoming)
    weak = {} if partial is None else _replaceable_values(new, _data_fields(base), partial)
    weak |= {name: mask[won.incoming] for name, mask in incoming.lacks.items()}
    table = _replace_rows(base, won.stored, new, incoming.columns, weak)
    lost = pairs.where(~wins & alive)
    if partial is None or not partial.from_late or not len(lost.stored):
        return table, won.stored
    # Here the stored row wins: the incoming row only fills replaceable values.
    late_rows = incoming.table.take(from_numpy(lost.incoming))
    fields = [f for f in _data_fields(base) if incoming.columns is None or f.name in incoming.columns]
    stored_weak = _replaceable_values(base.take(from_numpy(lost.stored)), fields, partial)
    brings = _replaceable_values(late_rows, fields, partial)
    retained_masks = {name: ~(stored_weak[name] & ~brings[name]) for name in stored_weak}
    changed = ~np.logical_and.reduce([np.ones(len(lost.stored), dtype=bool), *retained_masks.values()])
    rows = {name: mask[changed] for name, mask in retained_masks.items()}
    table = _replace_rows(table, lost.stored[changed], late_rows.filter(from_numpy(changed)), incoming.columns, rows)
    return table, np.concatenate([won.stored, lost.stored[changed]])


def _overlay_merged_by_function(
    base: pa.Table, incoming: Incoming, pairs: _MatchedRows, custom: CustomMerge
) -> tuple[pa.Table, Rows]:
    """Return the base with the merge function's results, and the rows that it deletes."""
    if not len(pairs.stored):
        return base, pairs.stored
    older = base.take(from_numpy(pairs.stored))
    newer = incoming.table.take(from_numpy(pairs.incoming)).select(base.column_names)
    if incoming.columns is not None:
        brought = incoming.columns
        whole = [(newer if f.name in brought else older).column(f.name) for f in base.schema]
        newer = pa.table(whole, schema=base.schema)
    merged, deletes = call_merger(custom, older, newer)
    return _replace_rows(base, pairs.stored, merged, None, {}), pairs.stored[deletes]


def _data_fields(base: pa.Table) -> list[pa.Field]:
    return [field for field in base.schema if field.name not in META_COLUMNS]


def _replaceable_values(rows: pa.Table, fields: Sequence[pa.Field], partial: Partial) -> dict[str, Mask]:
    names = set(rows.column_names)
    return {f.name: is_replaceable(rows.column(f.name), f, partial) for f in fields if f.name in names}


def _replace_rows(
    base: pa.Table, rows: Rows, replacements: pa.Table, names: frozenset[str] | None, retained_masks: Mapping[str, Mask]
) -> pa.Table:
    """Return the base with rows replaced, except columns outside of `names` and values masked in `retained_masks`."""
    if not len(rows):
        return base
    columns = []
    replaced_rows, keys = _ReplacedPlaces(rows, base.num_rows), base.column(RECORD_KEY)
    for field in base.schema:
        column = base.column(field.name)
        stays = retained_masks.get(field.name)
        if field.name == RECORD_KEY or (names is not None and field.name not in names):
            columns.append(column)  # rows match by key: it is the same
        elif _shares_memory(column, keys) and replacements.column(field.name).equals(replacements.column(RECORD_KEY)):
            columns.append(column)  # a copy of the keys
        elif stays is None or not stays.any():
            new = replacements.column(field.name)
            is_large = base.num_rows >= _MANY_ROWS
            columns.append(
                column if is_large and has_values(column, rows, new) else _replaced_values(column, replaced_rows, new)
            )
        elif stays.all():
            columns.append(column)
        else:
            some = replacements.column(field.name).filter(from_numpy(~stays))
            columns.append(_replaced_values(column, _ReplacedPlaces(rows[~stays], base.num_rows), some))
    return pa.table(columns, schema=base.schema)


def _shares_memory(column: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Return whether two columns share memory, as the reader returns columns that are equal in the file."""
    pairs = zip(column.chunks, other.chunks, strict=False)
    return (column.type, column.num_chunks) == (other.type, other.num_chunks) and all(
        (left.offset, len(left)) == (right.offset, len(right)) and _buffer_addresses(left) == _buffer_addresses(right)
        for left, right in pairs
    )


def _buffer_addresses(array: pa.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in array.buffers()]


@dataclass(frozen=True)
class _ReplacedPlaces:
    """The rows of a column to replace, as a mask and as an order."""

    rows: Rows
    count: int

    @cached_property
    def mask(self) -> pa.BooleanArray:
        selected = np.zeros(self.count, dtype=bool)
        selected[self.rows] = True
        return from_numpy(selected)

    @cached_property
    def order(self) -> pa.Int64Array:
        """Index of each value in the concatenation of the stored and the new values."""
        order = np.arange(self.count)
        order[self.rows] = self.count + np.arange(len(self.rows))
        return from_numpy(order)


def _replaced_values(
    column: pa.ChunkedArray, replaced_rows: _ReplacedPlaces, values: pa.ChunkedArray
) -> pa.ChunkedArray | pa.Array:
    if not pa.types.is_dictionary(column.type) and column.type == values.type:
        if len(replaced_rows.rows) == len(column):
            return values  # in the order of the stored rows
        if are_large(column) or are_large(values):
            return _replaced_in_pieces(column, replaced_rows.rows, values)
    new = values.combine_chunks()
    if pa.types.is_dictionary(column.type):
        return replaced_codes(column, new, lambda old, some: _replaced_values(old, replaced_rows, some))
    if pa.types.is_nested(column.type):
        # replace_with_mask does not support nested types: gather from both columns.
        return pa.chunked_array([*column.chunks, new], column.type).take(replaced_rows.order)
    old = column.combine_chunks()
    replaced = replaced_items(old, replaced_rows.rows, new)
    if replaced is not None:
        return replaced
    if pa.types.is_string(column.type) and old.nbytes + new.nbytes <= _MOST_TEXT_BYTES:
        # For text replace_with_mask takes twice as long.
        return pa.concat_arrays([old, new]).take(replaced_rows.order)
    return pc.replace_with_mask(old, replaced_rows.mask, new)


def _replaced_in_pieces(column: pa.ChunkedArray, rows: Rows, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of few large values, some of them replaced, without a copy of any."""
    pieces: list[pa.Array] = []
    end = 0
    for number, row in enumerate(rows.tolist()):
        pieces += [*column.slice(end, row - end).chunks, *values.slice(number, 1).chunks]
        end = row + 1
    return pa.chunked_array([*pieces, *column.slice(end).chunks], column.type)


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
        stored_rows = np.flatnonzero(to_mask(pc.is_valid(match_index)))
        match = match_index.drop_null().to_numpy().astype(np.int64)
        is_stored[match] = True
        merged = merge_into_base(part, _incoming_rows_at(incoming, match), rule=rule, stored_rows=stored_rows)
        merged_rows += part.num_rows
        del part
        has_new = merged_rows >= num_rows
        yield _with_new_rows(merged, incoming, ~is_stored) if has_new else merged
        del merged
    if merged_rows != num_rows:
        raise CorruptFile(f"a base file has {merged_rows:,} rows where its footer says {num_rows:,}")


def sum_of_parts(parts: list[Merged]) -> Merged:
    """Return the counts of all parts, and the keys of rows that are new or were removed; rows are those of the last one."""
    names = ("inserted", "updated", "deleted", "late", "ignored_deletes")
    counts = {name: sum(getattr(part, name) for part in parts) for name in names}
    keys = {
        name: pa.chunked_array([chunk for part in parts for chunk in getattr(part, name).chunks], pa.string())
        for name in ("inserted_keys", "removed_keys")
    }
    return replace(parts[-1], **keys, **counts)


def _incoming_rows_at(incoming: Incoming, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Incoming:
    lacks = {name: mask[rows] for name, mask in incoming.lacks.items()}
    return Incoming(rows_at(incoming.table, rows), incoming.deletes[rows], incoming.columns, lacks)


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


def can_be_together(rule: MergeRule, groups: int) -> bool:
    """Return whether a rule compares and replaces whole rows by their keys, and nothing else."""
    return rule.custom is None and rule.partial is None and not rule.is_own and 1 < groups <= _MOST_GROUPS


def joined_in_schema(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return tables one behind the other in the current `schema` (:func:`~lakefmt._core.schema.reconcile`)."""
    if all(table.schema.equals(tables[0].schema) for table in tables):
        return reconcile(pa.concat_tables(tables), schema)
    return pa.concat_tables([reconcile(table, schema) for table in tables])


def grouped_rows(rows: pa.Table, counts: Sequence[int]) -> pa.Table | None:
    """Return the rows of several file groups with numbers in front of their keys, and with the column of numbers.

    Args:
        rows: one group's rows behind the other's.
        counts: the number of rows of each group.

    Returns:
        None if a row has no key.

    Example:
        >>> grouped_rows(pa.table({RECORD_KEY: ["a", "a"]}), [1, 1]).to_pydict()
        {'_hoodie_record_key': ['0000a', '0001a'], '_lakefmt_group_number': [0, 1]}
    """
    index = rows.schema.get_field_index(RECORD_KEY)
    keys = rows.column(index)
    if keys.null_count:
        return None
    numbers = from_numpy(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    texts = pa.array([f"{number:0{_GROUP_DIGITS}x}" for number in range(len(counts))], pa.string())
    marked = pc.binary_join_element_wise(texts.take(numbers), keys, pa.scalar("", pa.string()))
    return rows.set_column(index, rows.schema.field(index), marked).append_column(GROUP_NUMBER, numbers)


def split_groups(rows: pa.Table, groups: int) -> tuple[pa.Table, list[int]]:
    """Return merged rows ordered by group, their keys as they were, and the number of rows of each group.

    Example:
        >>> rows = pa.table({RECORD_KEY: ["0000a", "0001a", "0000b"], GROUP_NUMBER: [0, 1, 0]})
        >>> ordered, counts = split_groups(rows, 2)
        >>> ordered.to_pydict(), counts
        ({'_hoodie_record_key': ['a', 'b', 'a']}, [2, 1])
    """
    numbers = rows.column(GROUP_NUMBER).to_numpy()
    rows = rows.drop_columns([GROUP_NUMBER])
    if (np.diff(numbers) < 0).any():  # rows that are new in their group come last
        rows = rows.take(from_numpy(np.argsort(numbers, kind="stable")))
    index = rows.schema.get_field_index(RECORD_KEY)
    keys = stored_keys(rows.column(index))
    counts = np.bincount(numbers, minlength=groups)
    return rows.set_column(index, rows.schema.field(index), keys), list(map(int, counts))


def stored_keys(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return keys without the numbers of their groups."""
    return pc.utf8_slice_codeunits(keys, _GROUP_DIGITS)


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
    answer = run_foreign(lambda: custom.function(older.select(data), given))
    if isinstance(answer, Raised):
        raise MergerFailed(
            f"merger {custom.name} raised {type(answer.error).__name__}: {answer.error}"
        ) from answer.error
    merged, mask = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    rows, deletes = _checked_result(custom, merged, given), _checked_delete_mask(custom, mask, given.num_rows)
    live_rows = from_numpy(~deletes)
    if any(rows.column(n).filter(live_rows) != given.column(n).filter(live_rows) for n in custom.fixed if n in data):
        raise MergerFailed(f"merger {custom.name} changed a key or partition column ({', '.join(custom.fixed)})")
    columns = [rows.column(f.name) if f.name in data else newer.column(f.name) for f in newer.schema]
    return pa.table(columns, schema=newer.schema), deletes


def _checked_result(custom: CustomMerge, rows: Any, given: pa.Table) -> pa.Table:
    """Return the function's result with the schema of its arguments."""
    if not isinstance(rows, pa.Table):
        raise MergerFailed(f"merger {custom.name} returned {type(rows).__name__}, not a table (and a mask)")
    if rows.num_rows != given.num_rows:
        raise MergerFailed(f"merger {custom.name} was given {given.num_rows} rows and returned {rows.num_rows}")
    returned = {field.name: field.type for field in rows.schema}
    wrong = [f.name for f in given.schema if returned.get(f.name) != f.type]
    if wrong or len(rows.column_names) != len(given.column_names):
        raise MergerFailed(
            f"merger {custom.name} returned {_described_types(rows.schema)}; the same columns and types as it was given are needed: "
            f"{_described_types(given.schema)}"
        )
    rows = rows.select(given.column_names)
    empty = [f.name for f in given.schema if not f.nullable and rows.column(f.name).null_count]
    if empty:
        raise MergerFailed(f"merger {custom.name} returned nulls in {', '.join(empty)}, which take none")
    return cast_rows(rows, given.schema)


def _described_types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _checked_delete_mask(custom: CustomMerge, answer: Any, count: int) -> Mask:
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
        folded, deleted = _fold_next_rows(custom, folded, deleted, table.take(from_numpy(rows)), deletes[rows])
    inverse = np.argsort(ranked)
    last = order[starts + counts - 1] if len(counts) else order
    return Folded(folded.take(from_numpy(inverse)), deleted[inverse], last)


def _fold_next_rows(
    custom: CustomMerge, held: pa.Table, dead: Mask, newer: pa.Table, removes: Mask
) -> tuple[pa.Table, Mask]:
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
        """Yield the remaining rows in pieces of at most :data:`MOST_ROWS_OF_A_PIECE` rows."""
        while self._left is not None:
            table, self._left = self._left, None
            for start in range(0, table.num_rows, MOST_ROWS_OF_A_PIECE):
                yield table.slice(start, MOST_ROWS_OF_A_PIECE)
            del table
            self._left = next(self._tables, None)
