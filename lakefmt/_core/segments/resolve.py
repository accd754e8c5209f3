"""Resolve a stream's rows by their operators: for each key one row, or its deletion (pure).

A stream is its rows applied by the verbs of the table one after the other. Rows with one key are numbered (the first, the
second …), and all rows of one number are handled together, so the work is per column and not per row.

Rows of segments first get the columns of the table: where it was altered since they were made, columns are found by id
(docs/dev/streams.md, Columns that change).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy, one_array
from lakefmt._core.config.merge_rule import CustomMerge, MergeRule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.ordering import (
    is_replaceable,
    marked_deletes,
    ordering_columns,
    ordering_values,
    unordered_deletes,
)
from lakefmt._core.filegroups.precombine import combine_pairs, combine_rows, order_ranks
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.log_delete_block import stores_every_ordering
from lakefmt._core.keys import KeySpec, build_partition_paths, build_record_keys
from lakefmt._core.schema import check_required, conform
from lakefmt._core.schema.types import field_at, struct_fields
from lakefmt._core.segments.codec import COLUMNS, OPERATOR, RowOperator, SegmentHeader
from lakefmt._core.timeline.instant import parse_instant_time
from lakefmt._core.values import PARTITION_PATH, RECORD_KEY
from lakefmt.errors import SchemaMismatch

if TYPE_CHECKING:
    from lakefmt._core.schema.column_ids import ColumnPlaces
    from lakefmt._core.schema.history import Column

__all__ = [
    "Resolved",
    "StreamRules",
    "check_altered_back",
    "check_storable",
    "codes_in",
    "columns_since",
    "current_rows",
    "dropped_columns",
    "fill_required",
    "fitted",
    "fitted_together",
    "is_set",
    "joined_rows",
    "key_columns_of",
    "last_rows",
    "moved_rows",
    "needs_stored",
    "number_keys",
    "operators_of",
    "placed_rows",
    "places_since",
    "previous_rows",
    "resolve_rows",
    "row_identities",
    "stored_identities",
    "stream_rules",
    "strict_violations",
    "without_operators",
]

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

#: Columns without ids are those of every instant.
_INSTANT_WITHOUT_IDS: Final = "0"


def columns_since(table_at: TableAt) -> str:
    """Return the instant from which a table has its columns; ``"0"``: they were never altered.

    Raises:
        CorruptFile: the history of the columns is damaged.
        UnsupportedFeature: it is missing.
    """
    history = table_at.schema_history()
    return _INSTANT_WITHOUT_IDS if history is None else str(history.latest.version)


def places_since(table_at: TableAt, since: str) -> ColumnPlaces | None:
    """Return where a table's columns are in rows with the columns of an instant; None: under their names.

    Args:
        table_at: the table, at one moment.
        since: what :func:`columns_since` said when the rows were made.
    """
    ids = table_at.column_ids()
    return None if ids is None or _is_undone(table_at, since) else ids.at(since)


def _is_undone(table_at: TableAt, since: str) -> bool:
    """Return whether the schema history lacks the schema of an instant because a restore removed it."""
    history = table_at.schema_history()
    versions = {_INSTANT_WITHOUT_IDS, *(str(schema.version) for schema in (() if history is None else history.schemas))}
    return since not in versions


def dropped_columns(table_at: TableAt, since: str) -> list[tuple[tuple[str, ...], float]]:
    """Return the columns and fields of structs that were dropped, and when, in epoch seconds.

    Args:
        table_at: the table, at one moment.
        since: what :func:`columns_since` said when they were all there.
    """
    history = table_at.schema_history()
    if history is None:
        return []
    then = history.at(since)
    later = [schema for schema in reversed(history.schemas) if schema.version > then.version]
    numbers_by_version = [
        (schema.version, frozenset(number for column in schema.columns for number in column.numbers()))
        for schema in later
    ]

    def gone(columns: Iterable[Column], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
        for column in columns:
            dropped = next((version for version, numbers in numbers_by_version if column.number not in numbers), None)
            if dropped is not None:
                at = parse_instant_time(str(dropped), table_at.writing_zone())
                yield (*path, column.name), at.timestamp()
            elif column.kind == "record":
                yield from gone(column.fields, (*path, column.name))

    return list(gone(then.columns, ()))


def current_rows(table_at: TableAt, headers: Sequence[SegmentHeader], tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return rows of segments with the names and types that their columns have now; dropped ones are left out.

    Args:
        table_at: the table, at one moment.
        headers: of the segments.
        tables: the rows of each.

    Raises:
        CorruptFile: a value cannot become what its column is now.
        SchemaMismatch: a restore took away the alteration that gave a column its name, or added it, and rows have values of it.
    """
    ids, moved = table_at.column_ids(), []
    for header, table in zip(headers, tables, strict=True):
        if header.columns:
            check_altered_back(table_at, header.columns, table)
            column_places = places_since(table_at, header.columns)
        else:  # headers of older releases do not name the columns of their rows
            column_places = None if ids is None else ids.at(_instant_of_segment(table_at, header))
        moved.append(moved_rows(table, column_places))
    return moved


def check_altered_back(table_at: TableAt, since: str, rows: pa.Table) -> None:
    """Refuse values of columns that the table lacks since a restore undid the alteration that brought them.

    The history of the columns does not know where they belong, as it does of columns that were dropped or renamed.

    Args:
        table_at: the table, at one moment.
        since: what :func:`columns_since` said when the rows were made.
        rows: with the columns of then.

    Raises:
        SchemaMismatch: there are some.
    """
    if not _is_undone(table_at, since):
        return
    for path in _paths_that_lack(rows.schema, {field.name: field for field in table_at.schema()}):
        if path[0] not in (OPERATOR, COLUMNS) and is_set(rows, path).any():
            raise SchemaMismatch(
                f"a restore took column {'.'.join(path)!r} from the table, and waiting rows have values of it: add it, or rename its column back, "
                "before they are committed"
            )


def _paths_that_lack(
    fields: Iterable[pa.Field], fields_by_name: Mapping[str, pa.Field], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of columns, and fields of structs, that are not among the known ones."""
    for field in fields:
        if (other := fields_by_name.get(field.name)) is None:
            yield (*path, field.name)
        elif pt.is_struct(field.type) and pt.is_struct(other.type):
            inner = {each.name: each for each in struct_fields(other.type)}
            yield from _paths_that_lack(struct_fields(field.type), inner, (*path, field.name))


def is_set(rows: pa.Table, path: Sequence[str]) -> Mask:
    """Return which rows have a value in a column, or in a field of a struct."""
    if path[0] not in rows.column_names:
        return np.zeros(rows.num_rows, bool)
    values = rows.column(path[0])
    leaf_values = pc.struct_field(values, list(path[1:])) if len(path) > 1 else values
    mask: Mask = leaf_values.is_valid().to_numpy()
    return mask


def _instant_of_segment(table_at: TableAt, header: SegmentHeader) -> str:
    """Return when a segment was written, as an instant."""
    moment = datetime.fromtimestamp(header.at / 1000, table_at.writing_zone())
    return f"{moment:%Y%m%d%H%M%S}{header.at % 1000:03}"


def moved_rows(rows: pa.Table, column_places: ColumnPlaces | None) -> pa.Table:
    """Return rows of a segment with the present names and types of their columns.

    Args:
        rows: with the columns of the stream.
        column_places: where the table's columns are in them; None: under their names.

    Raises:
        CorruptFile: a value cannot become what its column is now.

    Example:
        >>> from lakefmt._core.schema.column_ids import ColumnPlaces, Place
        >>> places = ColumnPlaces((Place("b", "a"),), frozenset({"a", "gone"}))
        >>> moved_rows(pa.table({"a": [1], "gone": [2], COLUMNS: ['["a","gone"]']}), places).to_pylist()
        [{'b': 1, '_lakefmt_columns': '["b"]'}]
    """
    if column_places is None:
        return rows
    moved = column_places.current(rows)
    if COLUMNS not in rows.column_names:
        return moved
    names: dict[str, str | None] = dict.fromkeys(column_places.known)
    return _with_new_names(
        moved, names | {column_place.stored: column_place.name for column_place in column_places.places}
    )


def _with_new_names(rows: pa.Table, names: Mapping[str, str | None]) -> pa.Table:
    """Return rows whose updates name the columns that they set by their new names; None: there is no such column now."""
    column_sets = rows.column(COLUMNS).combine_chunks().dictionary_encode()
    column_sets = column_sets.combine_chunks() if isinstance(column_sets, pa.ChunkedArray) else column_sets
    sets = [json.loads(json_text) for json_text in column_sets.dictionary.to_pylist()]  # sets of columns, not rows
    new = [[name for old in each if (name := names.get(old, old)) is not None] for each in sets]
    new_texts = pa.array([json.dumps(each, separators=(",", ":")) for each in new], pa.string())
    index = rows.schema.get_field_index(COLUMNS)
    return rows.set_column(index, rows.schema.field(COLUMNS), new_texts.take(column_sets.indices))


_INSERT, _INSERT_IGNORE, _UPDATE = RowOperator.INSERT.value, RowOperator.INSERT_IGNORE.value, RowOperator.UPDATE.value
_UPDATES = (RowOperator.UPDATE.value, RowOperator.UPDATE_IGNORE.value)
_DELETES = (RowOperator.DELETE.value, RowOperator.DELETE_IGNORE.value)


@dataclass(frozen=True, slots=True)
class StreamRules:
    """What a table makes of rows with one key.

    Attributes:
        merge: which of two rows wins, and what it gets from the other.
        remembers: a delete keeps the event time of the row that it deletes, and a row that is older than that is late.
        always_timed: a delete without an event time would lose against the stored row.
    """

    merge: MergeRule = MergeRule()
    remembers: bool = False
    always_timed: bool = False

    @property
    def ordering(self) -> tuple[str, ...]:
        """The columns with the event time."""
        return tuple(dict.fromkeys(name.split(".", 1)[0] for name in self.merge.stored.fields))

    @property
    def is_plain(self) -> bool:
        """Whether the last row of a key wins, whole."""
        return not self.merge.stored.fields and not self.merge.needs_stored


_LAST_WINS: Final = StreamRules()


@dataclass(frozen=True, slots=True)
class Resolved:
    """One row for each key that changes.

    Attributes:
        rows: in the order of their last change, without the columns of the stream.
        deletes: which of them delete their key.
        source: number of an incoming row of the same key.
        first: what has to be committed before: the stored row of a key that was deleted and came back would win over its
            new row, and what deletes a key that came and went remembers nothing of it while it is not stored. None: nothing.
    """

    rows: pa.Table
    deletes: Mask
    source: Numbers
    first: Resolved | None = None


def stream_rules(merge: MergeRule, schema: pa.Schema, *, has_logs: bool) -> StreamRules:
    """Return what a table makes of rows with one key.

    Args:
        merge: the table's merge rule.
        schema: its columns.
        has_logs: it is merge-on-read: deletes are log records, which have an event time where one can be stored.
    """
    fields = [field for name in merge.stored.fields if (field := field_at(schema, name)) is not None]
    timed = bool(fields) and all(stores_every_ordering(field.type) for field in fields)
    required = any(not schema.field(name).nullable for name in StreamRules(merge).ordering)
    always = len(merge.stored.fields) > 1 or merge.stored.required or required
    return StreamRules(merge, has_logs and timed and not merge.blocks_win, always)


def joined_rows(tables: list[pa.Table]) -> pa.Table:
    """Return tables of segments as one; a column that one of them lacks is null there.

    Example:
        >>> joined_rows([pa.table({"a": [1]}), pa.table({"a": [2], "b": [3]})]).to_pydict()
        {'a': [1, 2], 'b': [None, 3]}
    """
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return pa.concat_tables(tables)
    return pa.concat_tables(tables, promote_options="permissive")


def needs_stored(incoming: pa.Table, codes: Numbers, rules: StreamRules) -> Mask:
    """Return the rows whose result depends on the stored row of their key.

    Args:
        incoming: rows with the columns of a segment, in the stream's order.
        codes: the key of each, as a number from 0.
        rules: of the table.

    Example:
        >>> rows = pa.table({OPERATOR: pa.array([4, 6, 3, 4], pa.int8())})
        >>> needs_stored(rows, np.array([0, 0, 1, 1]), StreamRules()).tolist()
        [False, False, True, True]
    """
    operators = operators_of(incoming)
    asks = np.isin(operators, (_INSERT_IGNORE, *_UPDATES))
    if not rules.is_plain:
        deletes = np.isin(operators, _DELETES)
        timed = _timed_deletes(incoming, deletes, rules.merge)
        if rules.remembers or rules.always_timed:
            asks |= deletes & ~timed  # they take their event time from the stored row
        several, last = np.bincount(codes)[codes] > 1, np.zeros(len(codes), bool)
        last[last_rows(codes)] = True
        asks |= ((deletes | marked_deletes(incoming, rules.merge)) & ~last) | (timed & several)
        partial = rules.merge.partial
        if partial is not None and partial.from_late and rules.merge.stored.fields:
            asks |= several
    of_key = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    of_key[codes[asks]] = True
    return of_key[codes]


def _timed_deletes(rows: pa.Table, deletes: Mask, rule: MergeRule) -> Mask:
    """Return which deletes bring an event time of their own: one that is older than the stored row does nothing."""
    timed = deletes & ~unordered_deletes(rows, deletes, rule)
    if not rule.stored.fields or rule.custom is not None or not timed.any():
        return np.zeros(len(deletes), bool)
    for field in rule.stored.fields:
        timed &= ordering_values(rows, field).is_valid().to_numpy(zero_copy_only=False)
    return timed


def operators_of(table: pa.Table) -> npt.NDArray[np.int8]:
    """Return the numbers of the rows' operators."""
    values: npt.NDArray[np.int8] = table.column(OPERATOR).to_numpy()
    return values


def resolve_rows(
    incoming: pa.Table,
    codes: Numbers,
    stored: pa.Table | None,
    stored_codes: Numbers,
    rules: StreamRules = _LAST_WINS,
    looked_up: Mask | None = None,
) -> Resolved:
    """Return the rows and deletes that rows with operators result in.

    Args:
        incoming: rows with the columns of a segment, in the stream's order.
        codes: ``(n_rows,)`` the key of each, as a number from 0.
        stored: the stored rows of these keys, with the same columns; None: they are not needed.
        stored_codes: the key of each of those.
        rules: of the table.
        looked_up: the rows whose keys' stored rows are given; None: all.

    Example:
        >>> rows = pa.table({"id": [1, 2, 1], OPERATOR: pa.array([4, 4, 6], pa.int8())})
        >>> got = resolve_rows(rows, np.array([0, 1, 0]), None, np.array([], np.int64))
        >>> got.rows.to_pydict(), got.deletes.tolist()
        ({'id': [2, 1]}, [False, True])
    """
    if stored is None:
        return _combined_by_key(incoming, codes, rules.merge)
    return _KeyStates(incoming, codes, stored, stored_codes, rules).resolved(looked_up)


def _combined_by_key(incoming: pa.Table, codes: Numbers, rule: MergeRule) -> Resolved:
    """Return the result of inserts, upserts and last deletes: they meet the stored rows when they are written."""
    operators, plain = operators_of(incoming), without_operators(incoming)
    last = last_rows(codes)
    dead = np.isin(operators[last], _DELETES)
    by_last = Resolved(plain.take(from_numpy(last)), dead, last)
    if len(last) == len(codes) or StreamRules(rule).is_plain:
        return by_last
    is_deleted = np.zeros(int(codes.max()) + 1, bool)
    is_deleted[codes[last[dead]]] = True
    surviving = np.flatnonzero(~is_deleted[codes])
    combined = combine_rows(plain.take(from_numpy(surviving)), codes[surviving], rule.for_logs())
    if combined is None:
        return by_last
    source = np.concatenate([last[dead], surviving[combined.winners]])
    deletes = np.arange(len(source)) < np.count_nonzero(dead)
    if combined.deletes is not None:
        deletes[np.count_nonzero(dead) :] = combined.deletes
    order = np.argsort(source)
    rows = pa.concat_tables([plain.take(from_numpy(last[dead])), combined.table]).take(from_numpy(order))
    return Resolved(rows, deletes[order], source[order])


def without_operators(table: pa.Table) -> pa.Table:
    """Return the rows without the columns that say what each row does."""
    return table.drop_columns([name for name in (OPERATOR, COLUMNS) if name in table.column_names])


def last_rows(codes: Numbers) -> Numbers:
    """Return the last row of each key, ascending."""
    _, first = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - first).astype(np.int64)


def _rows_by_occurrence(codes: Numbers) -> Iterator[Numbers]:
    """Yield the first rows of all keys, then their second rows, and so on."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(codes[order]) != 0))
    ranks = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    by_rank = np.argsort(ranks, kind="stable")
    bounds = np.cumsum(np.bincount(ranks)) if len(ranks) else np.array([], np.int64)
    yield from (order[rows] for rows in np.split(by_rank, bounds[:-1]) if len(rows))


class _KeyStates:
    """Rows applied to the stored rows of their keys, one number after the other.

    Of each key it keeps which row gives each value: the stored rows are numbered first. What it had keeps its place when it is
    deleted, where the table remembers its event time.
    """

    def __init__(
        self, incoming: pa.Table, codes: Numbers, stored: pa.Table, stored_codes: Numbers, rules: StreamRules
    ) -> None:
        plain = without_operators(incoming)
        self._plain, self._codes, self._operators, self._rules = plain, codes, operators_of(incoming), rules
        self._offset, self._sets = stored.num_rows, _column_sets(incoming)
        self._both = pa.concat_tables([stored.select(plain.column_names).cast(plain.schema), plain])
        self._ranks = _event_time_ranks(self._both, rules.merge)
        rule = rules.merge
        marked = marked_deletes(self._both, rule)
        self._marked = marked
        self._timed = _timed_deletes(plain, np.isin(self._operators, _DELETES), rule)
        self._always = marked & (rule.deletes_win | unordered_deletes(self._both, marked, rule))
        self._weak = (
            {}
            if rule.partial is None
            else {
                field.name: is_replaceable(self._both.column(field.name), field, rule.partial) for field in plain.schema
            }
        )
        count = int(codes.max(initial=-1)) + 1
        self._sources = {name: np.full(count, -1, np.int64) for name in plain.column_names}
        for source in self._sources.values():
            source[stored_codes] = np.arange(self._offset)
        self._stored_rows = np.full(count, -1, np.int64)
        self._stored_rows[stored_codes] = np.arange(self._offset)
        self._present, self._touched = self._stored_rows >= 0, np.full(count, -1, np.int64)
        self._lived, self._wiped = np.zeros(count, bool), np.zeros(count, bool)
        # With a merge function of the table: the row that the rows of the stream come to without the stored one.
        self._brought = np.full(count, -1, np.int64)
        for rows in _rows_by_occurrence(codes):
            self._apply(rows)

    def _apply(self, rows: Numbers) -> None:
        """Apply rows, at most one of each key."""
        keys, operators = self._codes[rows], self._operators[rows]
        there = self._present[keys]
        timed = self._timed[rows]
        removes = np.isin(operators, _DELETES) & ~timed
        changes = np.isin(operators, _UPDATES) & there
        brings = (
            timed
            | ~np.isin(operators, (*_UPDATES, _INSERT_IGNORE, *_DELETES))
            | ((operators == _INSERT_IGNORE) & ~there)
        )
        sets = {name: brings | (changes & self._sets[name][rows]) for name in self._sources}
        wins = self._wins(rows, keys, sets) | self._always[rows + self._offset]
        marked = brings & wins & (timed | self._marked[rows + self._offset])
        stays = wins & (brings | changes) & ~marked
        filled = np.zeros(len(rows), bool)
        partial = self._rules.merge.partial
        if self._rules.merge.custom is not None:
            removes = removes | self._called(rows, keys, stays, sets, self._rules.merge.custom)
            stays = stays & ~removes
        for name, source in {} if self._rules.merge.custom is not None else self._sources.items():
            takes = stays & sets[name]
            if partial is not None:
                weak = self._weak[name]
                takes &= ~(there & weak[rows + self._offset])
                if partial.from_late:
                    lacking = there & ~wins & ~timed & weak[source[keys]] & sets[name] & ~weak[rows + self._offset]
                    filled |= lacking
                    takes |= lacking
            source[keys[takes]] = rows[takes] + self._offset
        self._present[keys[stays]] = True
        self._lived[keys[stays]] = True
        changed = stays | marked | removes | filled
        self._touched[keys[changed]] = rows[changed]
        self._remove(rows[marked | removes], keys[marked | removes], marked[marked | removes])

    def _called(self, rows: Numbers, keys: Numbers, stays: Mask, sets: dict[str, Mask], custom: CustomMerge) -> Mask:
        """Let the merge function join rows with what their key has; return which keys it deletes.

        It is called for what the key has in the table, which an update changes, and for what the stream alone has brought,
        which will meet the stored row when it is written.
        """
        row_indices = np.flatnonzero(stays)
        at = {
            n: np.where(sets[n], rows + self._offset, source[keys])[row_indices] for n, source in self._sources.items()
        }
        newer = pa.table([self._both.column(name).take(from_numpy(at[name])) for name in at], schema=self._plain.schema)
        row_numbers, deletes = self._added(newer), np.zeros(len(rows), bool)
        any_source = next(iter(self._sources.values()))
        for before, is_stored in ((np.where(self._present, any_source, -1), True), (self._brought, False)):
            older, now = before[keys[row_indices]], row_numbers.copy()
            met = np.flatnonzero(older >= 0)
            if len(met):
                merged, deleted = combine_pairs(
                    custom, self._both.take(from_numpy(older[met])), newer.take(from_numpy(met))
                )
                now[met] = self._added(merged)
                if is_stored:
                    deletes[row_indices[met[deleted]]] = True
            for target in self._sources.values() if is_stored else (self._brought,):
                target[keys[row_indices]] = now
        return deletes

    def _added(self, rows: pa.Table) -> Numbers:
        """Add rows to those that values are taken from, and return their numbers."""
        first = self._both.num_rows
        self._both = pa.concat_tables([self._both, rows])
        return np.arange(first, first + rows.num_rows)

    def _wins(self, rows: Numbers, keys: Numbers, sets: dict[str, Mask]) -> Mask:
        """Return which rows are not older than what their key has, or had."""
        decided, wins = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        for name, ranks in self._ranks:
            of_key = np.where(self._sources[name][keys] >= 0, ranks[self._sources[name][keys]], -1)
            new = np.where(sets[name], ranks[rows + self._offset], of_key)
            wins |= ~decided & (new > of_key)
            decided |= new != of_key
        return wins | ~decided

    def _remove(self, rows: Numbers, keys: Numbers, marked: Mask) -> None:
        """Delete keys; `marked` rows say so themselves, and have an event time of their own."""
        self._present[keys] = False
        self._wiped[keys] = True
        self._brought[keys] = -1
        if self._rules.remembers:
            for name in self._rules.ordering:
                self._sources[name][keys[marked]] = rows[marked] + self._offset
            return
        for source in self._sources.values():
            source[keys] = -1

    def resolved(self, looked_up: Mask | None) -> Resolved:
        """Return the result of the rows; a key that was not looked up may be stored."""
        was_present = self._stored_rows >= 0
        is_known = np.ones(len(was_present), bool)
        if looked_up is not None:
            is_known[self._codes[~looked_up]] = False
        changed = (self._touched >= 0) & (self._present | was_present | ~is_known)
        came_and_went = self._rules.remembers & is_known & ~was_present & ~self._present & self._lived & self._wiped
        returned = changed & was_present & self._present & self._wiped & self._loses()
        main = self._rows_of(np.flatnonzero(changed | came_and_went), self._present)
        if not (came_and_went | returned).any():
            return main
        first = self._rows_of(np.flatnonzero(came_and_went | returned), came_and_went)
        return Resolved(main.rows, main.deletes, main.source, first)

    def _loses(self) -> Mask:
        """Return of which keys the stored row would win over the new one, or give it values."""
        count = len(self._present)
        if self._rules.merge.needs_stored:
            return np.ones(count, bool)
        decided, loses = np.zeros(count, bool), np.zeros(count, bool)
        for name, ranks in self._ranks:
            new, old = ranks[self._sources[name]], ranks[self._stored_rows]
            loses |= ~decided & (new < old)
            decided |= new != old
        return loses

    def _rows_of(self, keys: Numbers, alive: Mask) -> Resolved:
        """Return the rows of keys, or what deletes them: that has the event time of what it deletes."""
        keys = keys[np.argsort(self._touched[keys], kind="stable")]
        deletes, touched = ~alive[keys], self._touched[keys]
        columns = []
        for name in self._plain.column_names:
            source = (self._sources[name] if self._rules.merge.custom is None else self._brought)[keys]
            if name in self._rules.ordering:
                times = source if self._rules.remembers else self._stored_rows[keys]
                of_delete = np.where(times >= 0, times, touched + self._offset)
            else:
                of_delete = touched + self._offset
            columns.append(self._both.column(name).take(from_numpy(np.where(deletes, of_delete, source))))
        return Resolved(pa.table(columns, schema=self._plain.schema), deletes, touched)


def _event_time_ranks(rows: pa.Table, rule: MergeRule) -> Sequence[tuple[str, Numbers]]:
    """Return for each part of the event time its column, and the ranks of the rows by it."""
    if not rule.stored.fields or rule.custom is not None:
        return []
    ranks = []
    for field in rule.stored.fields:
        parts = ordering_columns(rows, replace(rule.stored, fields=(field,)))
        ranks.append((field.split(".", 1)[0], order_ranks(parts, rows.num_rows)))
    return ranks


def _column_sets(incoming: pa.Table) -> dict[str, Mask]:
    """Return for each column which rows set it."""
    count = incoming.num_rows
    sets = {name: np.ones(count, bool) for name in incoming.column_names}
    if COLUMNS not in incoming.column_names:
        return sets
    column_sets = incoming.column(COLUMNS).combine_chunks().dictionary_encode()
    column_sets = column_sets.combine_chunks() if isinstance(column_sets, pa.ChunkedArray) else column_sets
    codes = column_sets.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for number, json_text in enumerate(column_sets.dictionary.to_pylist()):  # sets of columns, not rows
        names = frozenset(json.loads(json_text))
        for name in sets:
            if name not in names:
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
    for rows in _rows_by_occurrence(codes):
        row_operators, keys = operators[rows], codes[rows]
        wrong = ((row_operators == _INSERT) & present[keys]) | (
            np.isin(row_operators, (_UPDATE, RowOperator.DELETE.value)) & ~present[keys]
        )
        wrong &= rows >= first
        refused[rows[wrong]] = True
        inserts = ~wrong & ~np.isin(row_operators, (*_UPDATES, *_DELETES))
        present[keys[inserts]] = True
        present[keys[~wrong & np.isin(row_operators, _DELETES)]] = False
    return refused


def key_columns_of(spec: KeySpec) -> tuple[str, ...]:
    """Return the columns that make a row's key and its partition path."""
    names = (*spec.record_key_fields, *(field.name for field in spec.partition_fields))
    return tuple(dict.fromkeys(name.split(".", 1)[0] for name in names))


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of segments with the columns of a table, all nullable, and the columns of the stream.

    A column or field that the table does not have any more is left out, as it is from the table's own rows.

    Args:
        rows: of segments, with the names of today.
        schema: the table's.

    Raises:
        SchemaMismatch: a value does not fit its column any more.
    """
    nullable_schema = pa.schema([field.with_nullable(True) for field in schema])
    names = set(schema.names)
    known_columns = rows.select([name for name in rows.column_names if name in names])
    table = conform(known_columns, nullable_schema, allow_null_list_elements=True, drops_fields=True)
    for name in (OPERATOR, COLUMNS):
        if name in rows.column_names:
            table = table.append_column(name, rows.column(name))
    return table


def fitted_together(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the rows of several segments as one table, with the columns that :func:`fitted` gives them.

    Args:
        tables: the rows of each segment, with the names of today; their structs may have other fields.
        schema: the table's.

    Raises:
        SchemaMismatch: a value does not fit its column any more.
    """
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return fitted(pa.concat_tables(tables), schema)
    # Releases of Arrow join structs with other fields in different ways, or not at all.
    return joined_rows([fitted(table, schema) for table in tables])


def row_identities(spec: KeySpec, rows: pa.Table, *, across: bool) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the identities of rows: record key and partition path.

    Args:
        spec: how keys are made.
        rows: with the columns that make them.
        across: a key is one row of the whole table; False: of its partition.

    Raises:
        InvalidKey: a key or partition value cannot be used.
    """
    keys, partitions = (
        one_array(build_record_keys(spec, rows)),
        one_array(build_partition_paths(spec, rows)).cast(pa.string()),
    )
    return _identities(keys, partitions, across=across), keys, partitions


def check_storable(spec: KeySpec, rows: pa.Table, *, keyed: bool) -> None:
    """Refuse rows that no commit could store: once durable, they would be in the way of every commit of their stream.

    Args:
        spec: how keys and partition paths are made.
        rows: of a segment; columns that an operator does not need are null.
        keyed: they have record keys of their own.

    Raises:
        InvalidKey: a key or partition value cannot be used.
        SchemaMismatch: a value inside a column is null, and must not be.
    """
    if keyed:
        build_record_keys(spec, rows)
    if spec.partition_fields:
        build_partition_paths(spec, rows)
    check_required(rows)


def stored_identities(rows: pa.Table, *, across: bool) -> pa.Array:
    """Return the identities of stored rows, which have meta columns."""
    return _identities(
        one_array(rows.column(RECORD_KEY)), one_array(rows.column(PARTITION_PATH)).cast(pa.string()), across=across
    )


def _identities(keys: pa.Array, partitions: pa.Array, *, across: bool) -> pa.Array:
    return keys if across else pc.binary_join_element_wise(partitions, keys, "\x00")


def number_keys(identities: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return a number for each row, the same for the same key, and the keys by number.

    Example:
        >>> numbers, keys = number_keys(pa.array(["a", "b", "a"]))
        >>> numbers.tolist(), keys.to_pylist()
        ([0, 1, 0], ['a', 'b'])
    """
    coded = identities.dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary


def codes_in(identities: pa.Array, keys: pa.Array) -> Numbers:
    """Return the number of each key among `keys`; -1: it is not there."""
    indices = one_array(pc.fill_null(pc.index_in(identities, value_set=keys), -1))
    codes: Numbers = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def previous_rows(codes: Numbers) -> Numbers:
    """Return for each row the number of the previous row with its key; -1: there is none.

    Example:
        >>> previous_rows(np.array([7, 3, 7, 7, 3])).tolist()
        [-1, -1, 0, 2, 1]
    """
    by_key = np.argsort(codes, kind="stable")
    same = codes[by_key[1:]] == codes[by_key[:-1]]
    previous = np.full(len(codes), -1, np.int64)
    previous[by_key[1:][same]] = by_key[:-1][same]
    return previous


def placed_rows(
    rows: pa.Table, keys: pa.Array, gone: Mask, lacks: Mask, stored: pa.Table, stored_keys: pa.Array
) -> tuple[pa.Table, Mask]:
    """Give rows the partition of the row that their key had before them: of the row before in the batch, else of the stored one.

    Args:
        rows: in order.
        keys: the record key of each.
        gone: which of them end the row of their key.
        lacks: which of them do not tell the partition.
        stored: the partition's columns of stored rows of these keys.
        stored_keys: the record keys of those.

    Returns:
        The rows, and for each whether its key had a row.

    Example:
        >>> rows = pa.table({"id": ["a", "a", "b"], "city": ["oslo", None, None]})
        >>> gone, stored = np.array([False, True, True]), pa.table({"city": ["rome"]})
        >>> placed, there = placed_rows(rows, pa.array(["a", "a", "b"]), gone, gone, stored, pa.array(["b"]))
        >>> placed["city"].to_pylist(), there.tolist()
        (['oslo', 'oslo', 'rome'], [True, True, True])
    """
    count = rows.num_rows
    key_numbers, _ = number_keys(keys)
    row_numbers = np.flatnonzero(lacks)
    before = previous_rows(key_numbers)[row_numbers]
    stored_index = codes_in(keys.take(pa.array(row_numbers)), stored_keys)
    is_first = before < 0
    is_there = np.where(is_first, stored_index >= 0, ~gone[before])
    order = np.arange(count)
    order[row_numbers[is_there]] = np.where(is_first, count + stored_index, before)[is_there]
    for number, name in enumerate(rows.column_names):
        if name in stored.column_names:
            field = rows.field(name)
            both = pa.chunked_array(
                [*rows.column(name).chunks, *stored.column(name).cast(field.type).chunks], field.type
            )
            rows = rows.set_column(number, field.with_nullable(True), both.take(pa.array(order)))
    had_row = np.ones(count, bool)
    had_row[row_numbers[~is_there]] = False
    return rows, had_row


def fill_required(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in a schema; nulls in its required columns become zeros.

    Rows that delete their key have no values there, and what stands for them is never stored.
    """
    columns = []
    for field in schema:
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            zero = pa.array([_some_value(field.type)], field.type)
            both = pa.chunked_array([*column.chunks, zero], field.type)
            indices = np.where(column.is_null().to_numpy(zero_copy_only=False), len(column), np.arange(len(column)))
            column = both.take(from_numpy(indices))
        columns.append(column)
    return pa.table(columns, schema=schema)


def _some_value(data_type: pa.DataType) -> Any:
    """Return a value of a type."""
    if pt.is_struct(data_type):
        return {field.name: None if field.nullable else _some_value(field.type) for field in data_type}
    if pt.is_map(data_type) or pt.is_list(data_type) or pt.is_large_list(data_type):
        return []
    if pt.is_fixed_size_list(data_type):
        return [_some_value(data_type.value_type)] * data_type.list_size
    if pt.is_string(data_type) or pt.is_large_string(data_type):
        return ""
    if pt.is_fixed_size_binary(data_type):
        return bytes(data_type.byte_width)
    if pt.is_binary(data_type) or pt.is_large_binary(data_type):
        return b""
    return False if pt.is_boolean(data_type) else 0
