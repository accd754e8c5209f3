"""The events of a source, the protocol of a source, and the columns of a table that follows one (pure).

Every source converts at its edge: rows are Arrow columns, and what happened to each row is a :class:`RowKind`. Positions are JSON values
whose meaning only the source knows. docs/cdc.md describes what becomes of the events.

Columns of the table that are no part of the key may be null whatever the source says: a delete has its key alone, and a value
without a counterpart, such as the date 0000-00-00, is null.
"""

from __future__ import annotations

import enum
import fnmatch
import glob
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.options import CdcOptions, TableSettings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.schema import normalise_schema
from lakefmt._core.schema.history import SchemaHistory
from lakefmt._core.schema.types import with_spark_types
from lakefmt.errors import InternalError, InvalidInputError, SourceChanged

__all__ = [
    "Border",
    "ChangeEndsFollower",
    "ColumnMap",
    "Event",
    "LeavesTablesOut",
    "RowChanges",
    "RowKind",
    "RowsComeAgain",
    "ShapeChange",
    "SourceFinding",
    "SourceName",
    "SourceReader",
    "SourceTable",
    "TableChanged",
    "TableGone",
    "TableLoaded",
    "TableTruncated",
    "are_before_updates",
    "comment_of",
    "first_schema",
    "is_followed",
    "left_out",
    "matches_pattern",
    "names_here",
    "names_left",
    "names_since",
    "plan_shape",
    "take_changes",
    "whole_pattern",
]

#: A position in a source, as a JSON value.
Position: TypeAlias = object


class RowKind(enum.Enum):
    """What a change did to its row; the values are Hudi's and Flink's codes.

    Example:
        >>> RowKind.UPDATE_AFTER.value, RowKind.UPDATE_AFTER.short, RowKind.UPDATE_AFTER.hudi
        (2, '+U', 'U')
    """

    INSERT = 0
    #: The row before an update.
    UPDATE_BEFORE = 1
    #: The row after an update.
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        """Flink's short form: ``+I``, ``-U``, ``+U``, ``-D``."""
        return _SHORT_FORMS[self.value]

    @property
    def hudi(self) -> str:
        """Hudi's text in ``_hoodie_operation``: ``I``, ``-U``, ``U``, ``D``."""
        return _HUDI_FORMS[self.value]

    @classmethod
    def parse(cls, value: object) -> RowKind:
        """Return the kind of a name, a short form, a code, a Hudi text or an operation of Debezium.

        Args:
            value: such as ``"INSERT"``, ``"+U"``, ``2``, ``"-U"``, ``"c"``.

        Raises:
            InvalidInputError: it is none of them.

        Example:
            >>> [RowKind.parse(text).name for text in ("update_after", "+I", 3, "c", "-U")]
            ['UPDATE_AFTER', 'INSERT', 'DELETE', 'INSERT', 'UPDATE_BEFORE']
        """
        if isinstance(value, RowKind):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3:
            return cls(value)
        row_kind = _KINDS_BY_TEXT.get(value.strip().upper()) if isinstance(value, str) else None
        if row_kind is None:
            raise InvalidInputError(f"{shown(value)} is no kind of a row: give one of {', '.join(cls.__members__)}")
        return row_kind


_SHORT_FORMS: Final = ("+I", "-U", "+U", "-D")
_HUDI_FORMS: Final = ("I", "-U", "U", "D")
#: Debezium's `u` has both images; where one kind is asked for, it is the row after the update.
_DEBEZIUM: Final = {"C": RowKind.INSERT, "R": RowKind.INSERT, "U": RowKind.UPDATE_AFTER, "D": RowKind.DELETE}
_KINDS_BY_TEXT: Final = {
    **{kind.name: kind for kind in RowKind},
    **{kind.short: kind for kind in RowKind},
    **{kind.hudi: kind for kind in RowKind},
    **_DEBEZIUM,
}


class SourceName(NamedTuple):
    """The name of a table in its source.

    Attributes:
        schema: the database of MySQL and MariaDB, the schema of PostgreSQL.
        table: the table.
    """

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the source as its events show it from some position on.

    Attributes:
        name: its name.
        columns: its columns, with the types that values have here; the nullability is the source's.
        keys: the columns of its primary key, in order; empty: it has none.
    """

    name: SourceName
    columns: pa.Schema
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of rows of one table, in the order of the source.

    A row before an update stands directly before the row after it, in the same batch. A source that does not have the row before
    leaves it out, unless the key changed: then it has at least the key. A deleted row has at least its key.

    Attributes:
        name: the table.
        rows: a row for each image, with the columns of the newest :class:`TableChanged` of the table.
        kinds: the code of each row's :class:`RowKind`, int8.
        sent: which columns the source sent of a row after an update, as a JSON list of names; null: all. A column that is not among
            them keeps its stored value, so that the rows of a table have to be read at one position. None: all rows have all columns.
        times: when each change was committed in the source, timestamp of microseconds in UTC; None: not known.
        positions: a text for each row that sorts as the changes of its key happened; None: not known.
        transactions: the id of each row's transaction in the source; None: not known.
        is_snapshot: the rows were read from the table, not from its log. Changes of the log may repeat them.
        precedes_snapshot: changes of the log that came before all rows of the table were read: a row that an update completes may be
            read later.
    """

    name: SourceName
    rows: pa.Table
    kinds: pa.Array
    sent: pa.Array | None = None
    times: pa.Array | None = None
    positions: pa.Array | None = None
    transactions: pa.Array | None = None
    is_snapshot: bool = False
    precedes_snapshot: bool = False

    def __post_init__(self) -> None:
        described = (self.kinds, self.sent, self.times, self.positions, self.transactions)
        if any(array is not None and len(array) != self.rows.num_rows for array in described):
            raise InternalError(f"changes of {self.name}: arrays of different lengths")


@dataclass(frozen=True, slots=True)
class TableChanged:
    """The columns of a table from here on; comes before its first changes, and whenever they differ from those before.

    Attributes:
        table: the table.
        before: what it was; None: its first appearance since the source was opened.
        renamed: columns that the source says were renamed: the old name → the new one.
        filled: columns that were added with a value for the rows that were there, of which no event tells: the name → the value. A source that
            tells it reads the rows of a table at one position.
        comes_again: why rows that are there have, or may have, the values of other columns under these names, so that they have to be read again;
            "": they have not.
    """

    table: SourceTable
    before: SourceTable | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    filled: Mapping[str, pa.Scalar] = field(default_factory=dict)
    comes_again: str = ""


@dataclass(frozen=True, slots=True)
class TableLoaded:
    """All rows of a table that began without a position have been read.

    Attributes:
        name: the table.
    """

    name: SourceName


@dataclass(frozen=True, slots=True)
class TableTruncated:
    """All rows of a table are gone, and no event tells which.

    Attributes:
        name: the table.
    """

    name: SourceName


@dataclass(frozen=True, slots=True)
class TableGone:
    """A table was dropped, or has another name now.

    Attributes:
        name: the table.
        new_name: its name now; None: it was dropped.
    """

    name: SourceName
    new_name: SourceName | None = None


@dataclass(frozen=True, slots=True)
class Border:
    """A point between two transactions, where what came before may be committed. A source that waits gives one every second.

    Attributes:
        position_of: returns the position that a table's commit stores, when all events before are in it: a JSON value, of at most some
            hundred thousand characters.
        at: when the last change before was committed in the source, in seconds since 1970; None: not known.
        caught_up: nothing was left to read when this came.
    """

    position_of: Callable[[SourceName], Position]
    at: float | None = None
    caught_up: bool = False


Event: TypeAlias = RowChanges | TableChanged | TableLoaded | TableTruncated | TableGone | Border


def take_changes(changes: RowChanges, row_numbers: npt.NDArray[np.int64]) -> RowChanges:
    """Return some rows of changes."""
    chosen = pa.array(row_numbers)
    described: dict[str, Any] = {
        name: None if array is None else array.take(chosen)
        for name in ("rows", "kinds", "sent", "times", "positions", "transactions")
        for array in (getattr(changes, name),)
    }
    return replace(changes, **described)


def are_before_updates(changes: RowChanges) -> npt.NDArray[np.bool_]:
    """Return which rows stand before updates.

    Raises:
        SourceChanged: one of them is not followed by the row after the update.
    """
    kinds = changes.kinds.to_numpy(zero_copy_only=False)
    before: npt.NDArray[np.bool_] = kinds == RowKind.UPDATE_BEFORE.value
    after = np.zeros(len(kinds), bool)
    after[:-1] = kinds[1:] == RowKind.UPDATE_AFTER.value
    if (before & ~after).any():
        raise SourceChanged(f"{changes.name}: the source sent a row before an update without the row after it")
    return before


def matches_pattern(name: SourceName, pattern: str) -> bool:
    """Return whether a pattern names a table: letter by letter, or the schema and the table each with ``*``, ``?`` and ``[…]``.

    Example:
        >>> matches_pattern(SourceName("shop", "orders"), "sh*.orders"), matches_pattern(SourceName("shop.eu", "orders"), "shop.*")
        (True, False)
    """
    if pattern in ("*", str(name)):
        return True
    # Names may have dots of their own.
    dots = [index for index, letter in enumerate(pattern) if letter == "."]
    return any(
        fnmatch.fnmatchcase(name.schema, pattern[:dot]) and fnmatch.fnmatchcase(name.table, pattern[dot + 1 :])
        for dot in dots
    )


def whole_pattern(pattern: str, schema: str) -> str:
    """Return a pattern qualified with a schema; one that names a schema stays as it is, and a leading ``!`` stays in front.

    Example:
        >>> whole_pattern("!audit", "shop"), whole_pattern("other.*", "shop")
        ('!shop.audit', 'other.*')
    """
    bare = pattern.removeprefix("!")
    return pattern if "." in bare or not schema else f"{pattern[: len(pattern) - len(bare)]}{schema}.{bare}"


def is_followed(name: SourceName, patterns: Sequence[str], schema: str = "") -> bool:
    """Return whether a table is one of those that patterns name.

    Args:
        name: of the table.
        patterns: such as ``shop.*``; one that begins with ``!`` leaves tables out, and alone it leaves them out of all.
        schema: of patterns without a dot; empty: a pattern stands as it is.

    Example:
        >>> is_followed(SourceName("shop", "orders"), ["shop.*", "!shop.audit_*"])
        True
        >>> is_followed(SourceName("shop", "audit_2026"), ["!audit_*"], schema="shop")
        False
    """

    def matches(pattern: str) -> bool:
        return matches_pattern(name, pattern if pattern == "*" else whole_pattern(pattern, schema))

    inclusions = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    return any(map(matches, inclusions)) and not any(matches(each[1:]) for each in patterns if each.startswith("!"))


@dataclass(frozen=True, slots=True)
class SourceFinding:
    """What a source lacks.

    Attributes:
        message: what is wrong, in one sentence.
        mend: the SQL statement or the setting that mends it; empty: there is none.
        stops: it cannot be followed like this; False: a warning.
        table: the table that it is about, without which the others can be followed; None: it is about the server.
    """

    message: str
    mend: str = ""
    stops: bool = True
    table: SourceName | None = None

    def __str__(self) -> str:
        return f"{self.message} ({self.mend})" if self.mend else self.message


def left_out(names: Iterable[SourceName]) -> tuple[str, ...]:
    """Return patterns that exclude exactly these tables.

    Example:
        >>> left_out([SourceName("shop", "a[1]")])
        ('!shop.a[[]1]',)
        >>> is_followed(SourceName("shop", "a1"), ["shop.*", *left_out([SourceName("shop", "a[1]")])])
        True
    """
    return tuple(f"!{glob.escape(name.schema)}.{glob.escape(name.table)}" for name in names)


class SourceReader(Protocol):
    """Where changes come from. One thread uses it; :meth:`close` may be called by another.

    Errors: :class:`lakefmt.errors.SourceUnavailable` when the connection is lost, of which nothing is lost: the caller opens a new source
    at the positions that were committed; :class:`lakefmt.errors.SourceRefused` when the source cannot be followed;
    :class:`lakefmt.errors.PositionLost` when it does not have the changes behind a position any more.
    """

    @property
    def identity(self) -> str:
        """An identity of this source among those of its type, without a secret, such as ``mariadb://db.example:3306``."""

    def preflight(self) -> Sequence[SourceFinding]:
        """Return what the server and the tables lack."""

    def tables(self) -> Sequence[SourceTable]:
        """Return the tables that are followed, as they are now."""

    def events(self, positions: Mapping[SourceName, Position], *, logs: bool, until_now: bool) -> Iterator[Event]:
        """Return the events from some positions on, in order; a table without a position begins with its present rows.

        Changes that a table's position covers do not come for that table.

        Args:
            positions: what the newest commit of each table stores.
            logs: every change is kept, so none may come twice or be left out, also while a table's rows of now are read. False: the
                last state of each row is enough, and rows may repeat.
            until_now: end when everything came that was committed in the source when this was called.
        """

    def latest(self) -> Position:
        """Return the present position: after everything that was committed in the source so far."""

    def confirm(self, positions: Mapping[SourceName, Position]) -> None:
        """Take note of what is committed: the source may forget what is before all of these positions."""

    def lag(self) -> Mapping[str, float]:
        """Return what the source knows of how far behind the reader is, by name: bytes of log, chunks left and read."""

    def close(self) -> None:
        """Close the connections; :meth:`events` ends. A second call does nothing."""


@runtime_checkable
class LeavesTablesOut(Protocol):
    """A source that can be read without some of its tables."""

    def leave_out(self, names: Sequence[SourceName]) -> None:
        """Exclude tables from the source; call it before :meth:`SourceReader.tables`."""


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
    """Return the schema and the key columns of a new table.

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
