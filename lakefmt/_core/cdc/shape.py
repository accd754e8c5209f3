"""Columns of a table that follows a source: what they are at first, and how they follow (pure).

Columns that are no part of the key may be null here whatever the source says: a delete has its key alone, and a value without a
counterpart, such as the date 0000-00-00, is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.cdc.events import SourceTable
from lakefmt._core.cdc.options import CdcOptions, TableSettings
from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema import normalise_schema
from lakefmt._core.schema.history import SchemaHistory
from lakefmt._core.schema.types import with_spark_types
from lakefmt.errors import InvalidInputError, SourceChanged

__all__ = [
    "ChangeEndsFollower",
    "ColumnMap",
    "RowsComeAgain",
    "ShapeChange",
    "comment_of",
    "first_schema",
    "names_here",
    "names_left",
    "names_since",
    "plan_shape",
]

#: The name of the column that takes the values of a changed type as text.
_NEW_COLUMN_SUFFIX: Final = "__v2"
_TIMESTAMP: Final = pa.timestamp("us", "UTC")


class ChangeEndsFollower(SourceChanged):
    """A change of columns that ends the follower, because the options say so."""


class RowsComeAgain(SourceChanged):
    """A change of columns after which all rows have to be read again; then the table can follow."""


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """Where the values of a source's columns go.

    Attributes:
        targets: the name of each column of the source → the column here.
        types: the column here → its type.
    """

    targets: Mapping[str, str]
    types: Mapping[str, pa.DataType]

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return rows of the source with the columns of the table; a value that does not fit is refused when it is written."""
        names = [name for name in rows.column_names if name in self.targets]
        targets = [self.targets[name] for name in names]
        arrays = [
            pc.cast(rows.column(name), pa.string())
            if target.endswith(_NEW_COLUMN_SUFFIX) and target != name
            else rows.column(name)
            for name, target in zip(names, targets, strict=True)
        ]
        return pa.table(dict(zip(targets, arrays, strict=True)))


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """How a table has to change to take the rows of its source.

    Attributes:
        added: new columns and their types.
        widened: columns and the types that they get.
        dropped: columns that go.
        left: columns that the source does not have any more, and that stay.
        columns: where values go afterwards.
    """

    added: Mapping[str, pa.DataType]
    widened: Mapping[str, pa.DataType]
    dropped: tuple[str, ...]
    left: tuple[str, ...]
    columns: ColumnMap


def comment_of(schema: pa.Schema, name: str) -> str:
    """Return the comment of a column."""
    return bytes((schema.field(name).metadata or {}).get(b"avro.doc", b"")).decode("utf-8", "replace")


def first_schema(table: SourceTable, settings: TableSettings, options: CdcOptions) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns and the key of a new table.

    Args:
        table: of the source.
        settings: of the table.
        options: of the follower.

    Raises:
        InvalidInputError: a table that mirrors its source has no key, two columns get one name, or a column of the log has a name of the
            source's.

    Example:
        >>> from lakefmt._core.cdc.events import SourceName
        >>> columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
        >>> source = SourceTable(SourceName("shop", "orders"), columns, ("id",))
        >>> schema, keys = first_schema(source, TableSettings(), CdcOptions(mode="append_log"))
        >>> schema.names, keys
        (['id', 'v', '_operation', '_event_time', '_position', '_transaction'], ())
    """
    targets = _target_names(table, settings)
    keys = tuple(targets.get(name, name) for name in settings.record_key or table.keys)
    if options.logs:
        keys = ()
    elif not keys:
        raise InvalidInputError(
            f"{table.name} has no primary key: name one with record_key, or keep every change with mode='append_log'"
        )
    if unknown := [name for name in keys if name not in targets.values()]:
        raise InvalidInputError(f"{table.name} has no column {unknown[0]!r} for its key")
    fields = [
        pa.field(targets[each.name], each.type, nullable=targets[each.name] not in keys) for each in table.columns
    ]
    metadata_columns = _own_columns(options)
    if conflicts := sorted(set(metadata_columns) & set(targets.values())):
        raise InvalidInputError(
            f"{table.name} has a column {conflicts[0]!r} itself: give the option another name, or rename it"
        )
    return pa.schema([*fields, *(pa.field(name, column_type) for name, column_type in metadata_columns.items())]), keys


def _own_columns(options: CdcOptions) -> dict[str, pa.DataType]:
    """Return the columns that the table has and its source does not."""
    if not options.logs:
        return {options.deleted_at_column: _TIMESTAMP} if options.marks_deletes else {}
    names = (options.operation_column, options.event_time_column, options.position_column, options.transaction_column)
    types = (pa.string(), _TIMESTAMP, pa.string(), pa.string())
    return {name: column_type for name, column_type in zip(names, types, strict=True) if name is not None}


def _target_names(table: SourceTable, settings: TableSettings) -> dict[str, str]:
    targets = {name: settings.rename.get(name, name) for name in table.columns.names}
    if len(set(targets.values())) != len(targets):
        raise InvalidInputError(f"{table.name}: two columns get one name by rename={dict(settings.rename)!r}")
    return targets


def names_since(history: SchemaHistory | None, since: str) -> dict[str, str]:
    """Return the columns that were renamed since an instant: their first name since then → the one that they have now.

    Args:
        history: of the table's columns; None: they were never altered.
        since: the instant.
    """
    if history is None:
        return {}
    then = history.at(since)
    schemas = [schema for schema in reversed(history.schemas) if schema.version >= then.version]
    first_names, renamed = dict[int, str](), dict[str, str]()
    for column in (column for schema in schemas for column in schema.columns):
        first_names.setdefault(column.number, column.name)
    names = {column.number: column.name for column in history.latest.columns}
    for number, name in first_names.items():
        if names.get(number, name) != name:
            renamed.setdefault(name, names[number])
    return renamed


def names_left(pairs: Mapping[str, str], ahead: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the renames that are not applied yet, and the applied ones that the source has not reported yet.

    Args:
        pairs: renames that the source reports: the old name → the new one.
        ahead: renames that a process applied before it died: the name in the source → the name in the table.

    Example:
        >>> names_left({"a": "b", "x": "y"}, {"a": "c"})
        ({'x': 'y'}, {'b': 'c'})
    """
    told = {pairs[old]: here for old, here in ahead.items() if old in pairs and pairs[old] != here}
    untold = {old: here for old, here in ahead.items() if old not in pairs}
    return {old: new for old, new in pairs.items() if old not in ahead}, untold | told


def names_here(
    source: SourceTable, settings: TableSettings, ahead: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the table's names of a source's columns, and the renames that the source has not reported yet.

    Args:
        source: as its events show it.
        settings: of the table.
        ahead: renames that the table has and the source may not have reported yet: the old name → the new one.

    Example:
        >>> from lakefmt._core.cdc.events import SourceName
        >>> source = SourceTable(SourceName("s", "t"), pa.schema([("id", pa.int64()), ("a", pa.string())]), ("id",))
        >>> names_here(source, TableSettings(), {"a": "b"})
        ({'id': 'id', 'a': 'b'}, {'a': 'b'})
        >>> names_here(source, TableSettings(), {"old": "a"})
        ({'id': 'id', 'a': 'a'}, {})
    """
    names = {name: settings.rename.get(name, name) for name in source.columns.names}
    # A source that shows the new name of a column does not report the rename any more.
    while past := [old for old, new in ahead.items() if new in names.values() and new not in ahead]:
        ahead = {old: new for old, new in ahead.items() if old not in past}
    return {name: ahead.get(here, here) for name, here in names.items()}, dict(ahead)


def plan_shape(
    stored: pa.Schema, stored_keys: tuple[str, ...], table: SourceTable, settings: TableSettings, options: CdcOptions
) -> ShapeChange:
    """Return how a table follows the columns of its source.

    Args:
        stored: the table's columns.
        stored_keys: the columns of its record key; empty: it has none.
        table: of the source, from now on.
        settings: of the table.
        options: of the follower.

    Raises:
        SourceChanged: the key changed, or a type that the table cannot follow; both are named.

    Example:
        >>> from lakefmt._core.cdc.events import SourceName
        >>> source = SourceTable(SourceName("s", "t"), pa.schema([("id", pa.int64()), ("v", pa.int64())]), ("id",))
        >>> shape = plan_shape(pa.schema([("id", pa.int32())]), ("id",), source, TableSettings(), CdcOptions())
        Traceback (most recent call last):
        lakefmt.errors.SourceChanged: s.t: the key column 'id' was int32 and is int64: a key does not change its type
        >>> plan_shape(pa.schema([("id", pa.int64()), ("w", pa.int8())]), ("id",), source, TableSettings(), CdcOptions()).added
        {'v': DataType(int64)}
    """
    source_schema, keys = first_schema(table, settings, options)
    if keys != stored_keys:
        raise SourceChanged(
            f"{table.name}: the key was ({', '.join(stored_keys)}) and is ({', '.join(keys)}): the table needs to be made anew"
        )
    targets = _target_names(table, settings)
    added, widened = dict[str, pa.DataType](), dict[str, pa.DataType]()
    types_here = with_spark_types(normalise_schema(source_schema))
    for name in source_schema.names:
        new_type = types_here.field(name).type
        if name not in stored.names:
            added[name] = new_type
            continue
        common = _common_type(stored.field(name).type, new_type)
        if common == stored.field(name).type:
            continue
        if name in keys:
            raise SourceChanged(
                f"{table.name}: the key column {name!r} was {stored.field(name).type} and is {new_type}: a key does not change its type"
            )
        if common is not None and options.on_type_changed != "fail":
            widened[name] = common
            continue
        if options.on_type_changed != "new_column":
            raise (ChangeEndsFollower if options.on_type_changed == "fail" else SourceChanged)(
                f"{table.name}: column {name!r} was {stored.field(name).type} and is {new_type}: no type here holds both "
                "(on_type_changed='new_column' takes the new values as text)"
            )
        source_name = next(old for old, new in targets.items() if new == name)
        targets[source_name] = f"{name}{_NEW_COLUMN_SUFFIX}"
        if targets[source_name] not in stored.names:
            added[targets[source_name]] = pa.string()
    absent = _columns_missing_in_source(stored, source_schema, targets, table, options)
    dropped, retained = (absent, ()) if options.on_column_dropped == "drop" else ((), absent)
    types = {name: stored.field(name).type for name in stored.names} | added | widened
    return ShapeChange(added, widened, dropped, retained, ColumnMap(targets, types))


def _columns_missing_in_source(
    stored: pa.Schema, source_schema: pa.Schema, targets: Mapping[str, str], table: SourceTable, options: CdcOptions
) -> tuple[str, ...]:
    """Return the columns that the source dropped."""
    absent = tuple(
        name
        for name in stored.names
        if name not in source_schema.names and name not in targets.values() and not name.endswith(_NEW_COLUMN_SUFFIX)
    )
    if absent and options.on_column_dropped == "fail":
        raise ChangeEndsFollower(f"{table.name}: the column {absent[0]!r} was dropped")
    return absent


def _common_type(stored: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """Return the type that holds every value of both; None: there is none.

    Example:
        >>> _common_type(pa.int64(), pa.int32()), _common_type(pa.float32(), pa.float64()), _common_type(pa.int64(), pa.float64())
        (DataType(int64), DataType(double), None)
    """
    if stored == new:
        return stored
    if pt.is_list(stored) and pt.is_list(new):  # the names of their elements differ from engine to engine
        return stored if stored.value_type == new.value_type else None
    if pt.is_floating(stored) != pt.is_floating(new) or pt.is_binary(stored) != pt.is_binary(new):
        return None  # Arrow finds types for these, which do not hold every value
    try:
        unified = pa.unify_schemas([pa.schema([("c", stored)]), pa.schema([("c", new)])], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None
    return unified.field("c").type
