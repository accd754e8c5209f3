"""Where the columns of a table lie in a file that was written before they were changed: by column id. Pure.

A file has the names and types of its instant's schema. :class:`ColumnPlaces` gives its rows the names and types of
another schema of the same table; :func:`lakefmt._core.schema.reconcile` fills what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.alter import convert_stored, is_followed_by_name
from lakefmt._core.schema.cast import list_offsets, map_items
from lakefmt._core.schema.history import Column, SchemaHistory, decimal_of
from lakefmt._core.schema.types import list_type, map_type, struct_fields
from lakefmt.errors import CorruptFile

__all__ = ["ColumnIds", "ColumnPlaces", "Place", "find_places", "unaltered_since"]


@dataclass(frozen=True, slots=True)
class Place:
    """One column of the table and its name in a file.

    Attributes:
        name: its name in the table.
        stored: its name in the file.
        kind: the type that its values become; None: the file's.
        fields: the places of what it holds; None: they have the same names and types.
    """

    name: str
    stored: str
    kind: str | None = None
    fields: tuple[Place, ...] | None = None

    @property
    def is_same(self) -> bool:
        """Whether the file has the column as the table has it."""
        return self.name == self.stored and self.kind is None and self.fields is None


@dataclass(frozen=True, slots=True)
class ColumnPlaces:
    """The places of a table's columns in the files of an instant.

    Attributes:
        places: columns that the file can have.
        known: the names of the file's columns that have an id.
    """

    places: tuple[Place, ...]
    known: frozenset[str]

    def stored_names(self, names: Sequence[str]) -> list[str]:
        """Return the names in the file of the table's columns `names`; those that it cannot have are left out.

        Example:
            >>> ColumnPlaces((Place("c", "b"),), frozenset({"b", "gone"})).stored_names(["c", "gone", "other"])
            ['b', 'other']
        """
        by_name = {place.name: place.stored for place in self.places}
        stored = (by_name.get(name) or (None if name in self.known else name) for name in names)
        return [name for name in stored if name is not None]

    def current_names(self, stored: Iterable[str]) -> frozenset[str]:
        """Return the table's names of a file's columns."""
        have = frozenset(stored)
        return frozenset({place.name for place in self.places if place.stored in have} | (have - self.known))

    def left_out(self, stored: Iterable[str]) -> list[str]:
        """Return those of a file's columns that the table does not have any more.

        Example:
            >>> ColumnPlaces((Place("c", "b"),), frozenset({"b", "gone"})).left_out(["b", "gone", "other"])
            ['gone']
        """
        placed = {place.stored for place in self.places}
        return [name for name in stored if name in self.known and name not in placed]

    def stays(self, name: str) -> bool:
        """Return whether the file has column `name`, if at all, as the table has it."""
        place = next((place for place in self.places if place.name == name), None)
        return place.is_same if place is not None else name not in self.known

    def stays_inside(self, path: Sequence[str]) -> bool:
        """Return whether the file has a column, or a field of a struct, under the same names and in the same type.

        A column without an id has its name in every file.

        Example:
            >>> places = ColumnPlaces((Place("s", "s", None, (Place("p", "p"), Place("q", "r"))),), frozenset({"s"}))
            >>> [places.stays_inside(path.split(".")) for path in ("s.p", "s.q", "s.new", "other")]
            [True, False, False, True]
        """
        inside = self.places
        for number, name in enumerate(path):
            place = next((each for each in inside if each.name == name), None)
            if place is None:
                return not number and name not in self.known
            if place.stored != name or place.kind is not None:
                return False
            if place.fields is None:  # what it holds has the same names and types
                return True
            inside = place.fields
        return True

    def current(self, rows: pa.Table) -> pa.Table:
        """Return a file's rows with the table's names and types; columns that the table no longer has are left out.

        Raises:
            CorruptFile: a value cannot be converted.

        Example:
            >>> places = ColumnPlaces((Place("c", "b", "double"),), frozenset({"b", "gone"}))
            >>> places.current(pa.table({"b": pa.array([1.1], pa.float32()), "gone": [0]})).to_pylist()
            [{'c': 1.1}]
        """
        names, columns = [], []
        placed = {place.stored: place for place in self.places}
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            place = placed.get(name)
            if place is None and name in self.known:
                continue
            names.append(name if place is None else place.name)
            columns.append(column if place is None else _moved(column, place))
        if not names:
            return rows.select([])
        return pa.table(columns, names=names)


def _moved(column: pa.ChunkedArray, place: Place) -> pa.ChunkedArray:
    if place.kind is None and place.fields is None:
        return column
    try:
        chunks = [_moved_array(chunk, place) for chunk in column.chunks] or [_moved_array(_empty(column.type), place)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptFile(f"column {place.name!r} cannot become {place.kind or 'what it is now'}: {error}") from None
    return pa.chunked_array(chunks)


def _empty(data_type: pa.DataType) -> pa.Array:
    return pa.array([], data_type)


def _moved_array(array: pa.Array, place: Place) -> pa.Array:
    if place.kind is not None:
        return convert_stored(array.dictionary_decode() if pt.is_dictionary(array.type) else array, place.kind)
    if place.fields is None:
        return array
    mask = array.is_null() if array.null_count else None
    if pt.is_struct(array.type):
        return _moved_struct(array, place.fields, mask)
    if pt.is_list(array.type):
        values = _moved_array(array.flatten(), place.fields[0])
        element = array.type.value_field.with_type(values.type)
        return pa.ListArray.from_arrays(list_offsets(array), values, type=list_type(element), mask=mask)
    if pt.is_map(array.type):
        offsets, keys, items = map_items(array)
        items = _moved_array(items, place.fields[0])
        moved_type = map_type(array.type.item_field.with_type(items.type))
        return pa.MapArray.from_arrays(offsets, keys, items, type=moved_type, mask=mask)
    return array


def _moved_struct(array: pa.StructArray, places: Sequence[Place], mask: pa.Array | None) -> pa.Array:
    placed = {place.stored: place for place in places}
    children, fields = [], []
    for child, stored in zip(array.flatten(), struct_fields(array.type), strict=True):
        place = placed.get(stored.name)
        if place is not None:
            children.append(_moved_array(child, place))
            fields.append(stored.with_name(place.name).with_type(children[-1].type))
    if not fields:  # all were added since; a field that no table can have keeps which structs are null
        children, fields = [pa.nulls(len(array))], [pa.field(" ", pa.null())]
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


# -------------------------------------------------------------------------------------------------------------- finding


def find_places(stored: Sequence[Column], current: Sequence[Column]) -> tuple[Place, ...]:
    """Return where the columns of one schema lie in files of another one.

    Args:
        stored: the columns of the files.
        current: the columns of the table.

    Example:
        >>> find_places([Column(0, "a", "int"), Column(1, "b", "float")], [Column(1, "c", "double"), Column(2, "a", "int")])
        (Place(name='c', stored='b', kind='double', fields=None),)
    """
    by_number = {column.number: column for column in stored}
    return tuple(_match_columns(by_number[column.number], column) for column in current if column.number in by_number)


def _match_columns(stored: Column, current: Column) -> Place:
    if not current.fields or stored.kind != current.kind:
        hudi_type = None if is_followed_by_name(stored.kind, current.kind) else current.kind
        return Place(current.name, stored.name, hudi_type)
    parts = stored.fields, current.fields
    if current.kind == "map":
        parts = stored.fields[1:], current.fields[1:]
    places = find_places(*parts)
    return Place(current.name, stored.name, None, None if _is_all_same(parts[0], parts[1], places) else places)


def _is_all_same(stored: Sequence[Column], current: Sequence[Column], places: Sequence[Place]) -> bool:
    """Return whether names alone lead to the same values: none is another column's, and none has another type."""
    placed = {place.name for place in places}
    stored_names = {column.name for column in stored}
    return all(place.is_same for place in places) and not any(
        column.name in stored_names for column in current if column.name not in placed
    )


@dataclass(frozen=True, slots=True)
class ColumnIds:
    """The columns of a table by id, and where they lie in files of any instant.

    Attributes:
        history: its first schema is the one that rows are read as.
    """

    history: SchemaHistory
    _found: dict[int, ColumnPlaces | None] = field(default_factory=dict, repr=False, compare=False)

    def keeps(self, names: Iterable[str], instant: str) -> bool:
        """Return whether the files of an instant have some columns, if at all, as the table has them."""
        places = self.at(instant)
        return places is None or all(places.stays(name) for name in names)

    def at(self, instant: str) -> ColumnPlaces | None:
        """Return the places of the columns in the files of an instant; None: names alone are right.

        Example:
            >>> from lakefmt._core.schema.history import InternalSchema
            >>> was, now = (InternalSchema(n, (Column(0, name, "int"),), 0) for n, name in ((0, "a"), (5, "b")))
            >>> ids = ColumnIds(SchemaHistory("", (now, was)))
            >>> ids.at("4").places, ids.at("5")
            ((Place(name='b', stored='a', kind=None, fields=None),), None)
        """
        stored, current = self.history.at(instant), self.history.latest
        if stored.version not in self._found:
            places = find_places(stored.columns, current.columns)
            same = _is_all_same(stored.columns, current.columns, places)
            names = frozenset(column.name for column in stored.columns)
            self._found[stored.version] = None if same else ColumnPlaces(places, names)
        return self._found[stored.version]

    @property
    def changed(self) -> frozenset[str]:
        """The table's columns that some older file has under another name, with another type, or has another column for."""
        older = [self.at(str(schema.version)) for schema in self.history.schemas]
        names = [column.name for column in self.history.latest.columns]
        return frozenset(name for name in names if not all(each is None or each.stays(name) for each in older))

    @property
    def is_needed(self) -> bool:
        """Whether names alone do not lead to every value."""
        return any(self.at(str(schema.version)) is not None for schema in self.history.schemas)


# ---------------------------------------------------------------------------------------------------------- alterations


def unaltered_since(column: str, now: SchemaHistory, newest: SchemaHistory) -> int | None:
    """Return the instant since which a column has had its name and type; 0: always; None: the newest schema has it otherwise.

    A column that was added under a name that no other had was not altered.

    Args:
        column: its name in the schema of `now`, with dots when it is a nested field.
        now: its first schema is the one that rows are read as.
        newest: up to the newest schema, with which statistics may have been made.

    Example:
        >>> from lakefmt._core.schema.history import InternalSchema
        >>> was, now = (InternalSchema(n, (Column(0, name, "int"), Column(1, "c", "int")), 1) for n, name in ((0, "a"), (5, "b")))
        >>> history, before = SchemaHistory("", (now, was)), SchemaHistory("", (was,))
        >>> unaltered_since("b", history, history), unaltered_since("c", history, history), unaltered_since("a", before, history)
        (5, 0, None)
    """
    current_leaf = dict(_leaves(now.latest.columns)).get(column)
    if current_leaf is None:
        return None
    since: int | None = None
    is_first = True
    for schema in sorted(newest.schemas, key=lambda each: each.version):
        leaves = dict(_leaves(schema.columns))
        same = leaves.get(column)
        if same is not None and same.number == current_leaf.number and _is_same_type(same.kind, current_leaf.kind):
            since = (0 if is_first else schema.version) if since is None else since
        elif same is not None or not is_first or any(leaf.number == current_leaf.number for leaf in leaves.values()):
            since = None
        else:
            continue  # neither the column nor another one under its name was there
        is_first = False
    return since


def _is_same_type(one: str, other: str) -> bool:
    decimal = decimal_of(one)
    return one == other or (decimal is not None and decimal == decimal_of(other))


def _leaves(columns: Sequence[Column], prefix: str = "") -> Iterator[tuple[str, Column]]:
    """Yield columns and fields of records with their paths; statistics know nothing of what lists and maps hold."""
    for column in columns:
        yield prefix + column.name, column
        if column.kind == "record":
            yield from _leaves(column.fields, f"{prefix}{column.name}.")
