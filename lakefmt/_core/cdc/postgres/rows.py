"""PostgreSQL's replication messages and rows: which column is which, and texts of its types as Arrow values (pure).

The log gives column names alone. The catalog gives each column a number that no other column ever gets, but only as of
now, and the log is of an earlier time. Three things hold for the columns of an event: those that existed then and exist
now are among them; they stand in the order of their numbers; and of the columns added since, the event has the earlier
ones.

Texts are those of a session with ``TimeZone`` UTC, ``DateStyle`` ISO and ``bytea_output`` hex. A value that the Arrow type cannot hold,
such as ``infinity`` in a column of dates, is refused or becomes null, never another value.

Messages are those of ``pgoutput``, protocol version 1. A value of a row is its text as bytes, None for null, or
:data:`UNSENT` for a large value that an update did not change.
"""

from __future__ import annotations

import enum
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import RowChanges, RowKind, SourceName, SourceTable
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import FormatError, SourceRefused

__all__ = [
    "TEXT",
    "UNSENT",
    "AttributeRow",
    "ChangeBuffer",
    "ColumnRow",
    "ColumnTypes",
    "KnownColumns",
    "OddValues",
    "TypeRow",
    "ValueType",
    "changes_of_names",
    "decode_message",
    "find_type",
    "numbers_of",
    "snapshot_changes",
    "table_of_texts",
    "to_arrow",
]


class ColumnRow(NamedTuple):
    """A column as an event or the catalog has it."""

    name: str
    type_id: int
    modifier: int


class AttributeRow(NamedTuple):
    """A column as the catalog has it now.

    Attributes:
        number: its own for ever.
        column: what it is.
        is_dropped: it is gone.
        is_sent: it is in the log: neither gone nor generated.
    """

    number: int
    column: ColumnRow
    is_dropped: bool
    is_sent: bool


class KnownColumns(NamedTuple):
    """The columns that a table had at a place of the log.

    Attributes:
        numbers: of the columns, in their order.
        columns: what they are.
        attributes: numbers up to this one had been given then; those that no column here has are of columns that were gone.
        storage: the number of the file that had the rows, and one that differs once a column is altered; zeros: not known.
    """

    numbers: tuple[int, ...]
    columns: tuple[ColumnRow, ...]
    attributes: int
    storage: tuple[int, int] = (0, 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


def numbers_of(
    columns: Sequence[ColumnRow], known: KnownColumns | None, catalog: Sequence[AttributeRow]
) -> tuple[int, ...] | None:
    """Return the numbers of the columns of an event; None: it cannot be told for sure.

    Args:
        columns: that the event has.
        known: the columns before it; None: they are not known.
        catalog: all columns at some time after the event, in the order of their numbers; empty: the table is gone.

    Example:
        >>> id, a, b, c, d = (ColumnRow(name, 23, -1) for name in ("id", "a", "b", "c", "d"))
        >>> known = KnownColumns((1, 2), (id, a), 2)
        >>> catalog = [AttributeRow(number, column, False, True) for number, column in ((1, id), (2, c), (3, d))]
        >>> numbers_of([id, b], known, catalog)  # renamed to b, and later to c
        (1, 2)
    """
    live = [each for each in catalog if each.is_sent]
    numbers = tuple(each.number for each in live)
    if known is None:
        if len(live) == len(catalog) >= len(columns):
            return numbers[: len(columns)]
        return numbers if [each.column for each in live] == list(columns) else None
    if not catalog:
        return known.numbers if [each.name for each in columns] == list(known.names) else None
    stayed = [number for number in numbers if number in known.numbers]
    new = [number for number in numbers if number not in known.numbers]
    dropped = [number for number in known.numbers if number not in numbers]
    dropped += [each.number for each in catalog if each.is_dropped and each.number > known.attributes]
    count = len(columns) - len(stayed)
    if count == 0:
        return tuple(stayed)
    if count == len(dropped) + len(new):
        return tuple(sorted([*stayed, *dropped, *new]))
    # Numbers grow: who has a column has all that were added before it. One that was generated before has an older number.
    if count > 0 and not dropped and all(number > known.attributes for number in new):
        return (*stayed, *new[:count])
    return None


def changes_of_names(
    known: KnownColumns | None,
    columns: Sequence[ColumnRow],
    numbers: tuple[int, ...] | None,
    storage: tuple[int, int] = (0, 0),
) -> tuple[Mapping[str, str], str]:
    """Return the renamed columns, and why the rows of the table have to be read again; "" if they have not.

    Args:
        known: the columns before; None: they are not known, and all are taken for those of their names.
        columns: that there are.
        numbers: of the columns; None: they are not known.
        storage: of the rows; zeros: not known.

    Example:
        >>> a, b, c = (ColumnRow(name, 23, -1) for name in ("a", "b", "c"))
        >>> changes_of_names(KnownColumns((1, 2), (a, b), 2), [c, b], (1, 2))
        ({'a': 'c'}, '')
        >>> changes_of_names(KnownColumns((1, 2), (a, b), 2), [a, b], (1, 3))
        ({}, "'b' is the name of a column that was dropped")
        >>> changes_of_names(KnownColumns((1, 2), (a, b), 2), [a, ColumnRow("b", 20, -1)], (1, 2))
        ({}, "'b' has another type, and may have other values")
    """
    if known is None:
        return {}, ""
    if numbers is None:
        was, now = ", ".join(map(repr, known.names)), ", ".join(repr(column.name) for column in columns)
        return (
            {},
            f"the columns were {was} and are {now}, and others came or went since: which of them are the same is not known",
        )
    columns_before = dict(zip(known.numbers, known.columns, strict=True))
    columns_now = dict(zip(numbers, columns, strict=True))
    renamed = {
        was.name: columns_now[number].name
        for number, was in columns_before.items()
        if columns_now.get(number, was).name != was.name
    }
    dropped = {was.name for number, was in columns_before.items() if number not in columns_now}
    again = [now.name for now in columns_now.values() if now.name in dropped]
    if again:
        return renamed, f"{again[0]!r} is the name of a column that was dropped"
    computed = [
        now.name for number, now in columns_now.items() if number not in columns_before and number <= known.attributes
    ]
    if computed:
        return renamed, f"{computed[0]!r} was generated, and is in the log now"
    # ALTER ... TYPE ... USING computes values of which no event tells.
    retyped = [
        now.name
        for number, now in columns_now.items()
        if number in columns_before and columns_before[number][1:] != now[1:]
    ]
    if retyped:
        return renamed, f"{retyped[0]!r} has another type, and may have other values"
    # The type may be the same, or a new column may have a default that differs from row to row: the rows are in another file then. So they
    # are after a TRUNCATE or VACUUM FULL, which alter no column.
    is_written_anew = all(was and now and was != now for was, now in zip(known.storage, storage, strict=True))
    return renamed, "its rows were written anew when a column was altered" if is_written_anew else ""


#: What happens to values that the Arrow type of their column cannot hold.
OddValues: TypeAlias = Literal["refuse", "null"]


class TypeRow(NamedTuple):
    """What the server's catalog says of a type.

    Attributes:
        name: its name.
        base: of a domain: the type below; else 0.
        base_modifier: of a domain: the modifier of the type below.
        element: of an array: the type of its elements; else 0.
    """

    name: str
    base: int
    base_modifier: int
    element: int


@dataclass(frozen=True, slots=True)
class ValueType:
    """How the texts of a column become values.

    Attributes:
        arrow: their type here.
        name: the server's name of the type.
        element: of an array: how its elements become values.
    """

    arrow: pa.DataType
    name: str
    element: ValueType | None = None


#: Every type that has none of its own here: its text is the value.
TEXT: Final = ValueType(pa.string(), "text")
_NUMERIC: Final = 1700
_FIXED: Final[Mapping[int, pa.DataType]] = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int32(),  # Hudi has no shorter whole number
    23: pa.int32(),
    26: pa.int64(),  # an object id has 32 bits without a sign
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1083: pa.time64("us"),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
}
#: Domains of domains, arrays of domains: a chain that is longer is none that the server made.
_DEEPEST: Final = 64
_MOST_DIGITS: Final = 38


def find_type(type_id: int, modifier: int, types: Mapping[int, TypeRow]) -> ValueType:
    """Return how values of a type become values here; what is not known stays text.

    Args:
        type_id: the object id of the type.
        modifier: as the column has it; -1: none.
        types: the catalog's rows of the types that are not built in, and of those that these rest on.

    Example:
        >>> find_type(1700, ((10 << 16) | 2) + 4, {}).arrow, find_type(1700, -1, {}).arrow
        (Decimal128Type(decimal128(10, 2)), DataType(string))
    """
    row = types.get(type_id)
    for _ in range(_DEEPEST):
        if row is None or not row.base:
            break
        type_id, modifier = row.base, row.base_modifier if modifier < 0 else modifier
        row = types.get(type_id)
    name = row.name if row is not None else str(type_id)
    if type_id in _FIXED:
        return ValueType(_FIXED[type_id], name)
    if type_id == _NUMERIC:
        return ValueType(_decimal(modifier), name)
    if row is not None and row.element and row.element != type_id:
        element = find_type(row.element, modifier, types)
        if element.element is None and element.name != "box":  # a box has commas, and its arrays other separators
            return ValueType(pa.list_(element.arrow), name, element)
    return ValueType(pa.string(), name)


def _decimal(modifier: int) -> pa.DataType:
    if modifier < 4:
        return pa.string()  # any number of digits
    precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
    scale -= 2048 if scale >= 1024 else 0  # eleven bits with a sign
    precision, scale = (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)
    return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else pa.string()


# -------------------------------------------------------------------------------------------------------- conversion


def to_arrow(strings: pa.Array, type: ValueType, odd: OddValues, column: str) -> pa.Array:
    """Return the values that strings of the server say.

    Args:
        strings: as the server prints values, null for null.
        type: of the column.
        odd: what happens to values that the type cannot hold.
        column: its name, for the message.

    Raises:
        SourceRefused: a value cannot be held, and `odd` says ``"refuse"``.
    """
    arrow = type.arrow
    if type.element is not None:
        return _arrays(strings, type, odd, column)
    if pa.types.is_string(arrow):
        return strings
    if pa.types.is_boolean(arrow):
        return pc.equal(strings, "t")
    if pa.types.is_binary(arrow):
        return _from_hex(strings, column)
    pattern = _pattern(arrow)
    if pattern:
        strings = _fitting(strings, pattern, type, odd, column)
    try:
        return _PARSERS[arrow.id](strings, arrow)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise SourceRefused(f"column {shown(column)} of type {type.name}: {error}") from error


def _pattern(arrow: pa.DataType) -> str:
    """Return what texts look like that the type can hold; empty: all texts of the server's type."""
    if pa.types.is_decimal(arrow):
        return r"^-?[0-9.]+$"
    if pa.types.is_date(arrow):
        return r"^\d{4}-\d\d-\d\d$"
    if pa.types.is_time(arrow):
        return r"^([01]\d|2[0-3]):"
    if pa.types.is_timestamp(arrow):
        return r"^\d{4}-[^ ]+ [0-9:.]+\+00$" if arrow.tz else r"^\d{4}-[^ ]+ [0-9:.]+$"
    return ""


def _fitting(strings: pa.Array, pattern: str, type: ValueType, odd: OddValues, column: str) -> pa.Array:
    fits = pc.match_substring_regex(strings, pattern)
    if pc.all(fits, min_count=0).as_py() is not False:
        return strings
    if odd == "null":
        return pc.if_else(fits, strings, None)
    first = strings.filter(pc.invert(fits)).slice(0, 1)
    _refuse(str(first[0].as_py()), type.name, column)
    raise AssertionError("unreachable")


def _refuse(value: str, type_name: str, column: str) -> None:
    raise SourceRefused(
        f"column {shown(column)} of type {type_name} has {shown(value)}, which no value here can be; read the column as text "
        f'(text_columns), or such values as null (odd_values="null")'
    )


def _cast(strings: pa.Array, arrow: pa.DataType) -> pa.Array:
    return pc.cast(strings, arrow)


def _timestamps(strings: pa.Array, arrow: pa.DataType) -> pa.Array:
    if arrow.tz:
        strings = pc.utf8_slice_codeunits(strings, 0, -3)
    return pc.cast(strings, pa.timestamp("us")).cast(arrow) if not arrow.tz else _in_utc(strings)


def _in_utc(strings: pa.Array) -> pa.Array:
    return pc.cast(pc.cast(pc.cast(strings, pa.timestamp("us")), pa.int64()), pa.timestamp("us", "UTC"))


def _times(strings: pa.Array, arrow: pa.DataType) -> pa.Array:
    moments = pc.cast(pc.binary_join_element_wise("1970-01-01", strings, " "), pa.timestamp("us"))
    return pc.cast(pc.cast(moments, pa.int64()), arrow)


_PARSERS: Final[Mapping[int, Callable[[pa.Array, pa.DataType], pa.Array]]] = {
    pa.int32().id: _cast,
    pa.int64().id: _cast,
    pa.float32().id: _cast,
    pa.float64().id: _cast,
    pa.date32().id: _cast,
    pa.decimal128(1).id: _cast,
    pa.timestamp("us").id: _timestamps,
    pa.time64("us").id: _times,
}

_NIBBLES: Final = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789", np.uint8)] = np.arange(10)
_NIBBLES[np.frombuffer(b"abcdef", np.uint8)] = np.arange(10, 16)


def _from_hex(strings: pa.Array, column: str) -> pa.Array:
    """Return the bytes of strings of hexadecimal digits, each after a backslash and an x."""
    strings = strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings
    present = np.asarray(strings.is_valid())
    data = np.frombuffer(strings.buffers()[2] or b"", np.uint8)
    offsets = np.frombuffer(strings.buffers()[1], np.int32)[strings.offset : strings.offset + len(strings) + 1]
    data = data[offsets[0] : offsets[-1]]
    starts = (offsets[:-1] - offsets[0])[present]
    lengths = np.diff(offsets)
    digits = np.ones(len(data), bool)
    digits[starts] = digits[starts + 1] = False
    nibbles = _NIBBLES[data[digits]]
    if (lengths[present] % 2).any() or (nibbles == 255).any():
        raise SourceRefused(f"column {shown(column)}: bytes that are not in hexadecimal digits")
    sizes = np.where(present, lengths // 2 - 1, 0)
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    values = (nibbles[0::2] << 4) | nibbles[1::2]
    binary = pa.Array.from_buffers(
        pa.binary(), len(strings), [None, pa.py_buffer(ends), pa.py_buffer(values.tobytes())]
    )
    return binary if present.all() else pc.if_else(pa.array(present), binary, None)


# ------------------------------------------------------------------------------------------------------------ arrays

#: An array of one dimension without quotes.
_PLAIN_ARRAY: Final = r'^\{[^{}"\\]*\}$'
_ITEM: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"\\]+)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def _arrays(strings: pa.Array, type: ValueType, odd: OddValues, column: str) -> pa.Array:
    assert type.element is not None  # noqa: S101  (the caller asked)
    strings = _fitting(strings, r"^\{[^{]", type, odd, column) if odd == "refuse" else _one_dimension(strings)
    strings = strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings
    if pc.all(pc.match_substring_regex(strings, _PLAIN_ARRAY), min_count=0).as_py():
        inner = pc.utf8_slice_codeunits(strings, 1, -1)
        split = pc.split_pattern(inner, ",")
        split = pc.if_else(pc.equal(inner, ""), pa.scalar([], pa.list_(pa.string())), split)
        items = split.flatten()
        items = pc.if_else(pc.equal(items, "NULL"), None, items)
        lengths = np.asarray(pc.fill_null(pc.list_value_length(split), 0))
    else:
        parsed = [None if string is None else _items(string) for string in strings.to_pylist()]
        items = pa.array([item for row in parsed if row is not None for item in row], pa.string())
        lengths = np.array([0 if row is None else len(row) for row in parsed], np.int64)
    values = to_arrow(items, type.element, odd, column)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    lists = pa.ListArray.from_arrays(ends, values)
    return pc.if_else(strings.is_valid(), lists, None) if strings.null_count else lists


def _one_dimension(strings: pa.Array) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(strings, r"^\{[^{]"), strings, None)


def _items(array_literal: str) -> list[str | None]:
    """Return the elements of an array of one dimension."""
    items: list[str | None] = []
    for match in _ITEM.finditer(array_literal, 1, len(array_literal) - 1):
        quoted, plain = match.groups()
        items.append(_ESCAPED.sub(r"\1", quoted) if quoted is not None else None if plain == "NULL" else plain)
    return items


def schema_of(names: Sequence[str], types: Sequence[ValueType], keys: Sequence[str]) -> pa.Schema:
    """Return the columns as a schema: key columns are never null, of all others the log does not say it."""
    fields = zip(names, types, strict=True)
    return pa.schema([pa.field(name, value_type.arrow, nullable=name not in keys) for name, value_type in fields])


_BEFORE: Final = RowKind.UPDATE_BEFORE.value
_AFTER: Final = RowKind.UPDATE_AFTER.value
_DELETE: Final = RowKind.DELETE.value
_INSERT: Final = RowKind.INSERT.value
#: Bytes that a row takes beside its values.
_ROW_BYTES: Final = 64
_MOST_BYTES: Final = 8 << 20
_MOST_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """A table as a part of the log has it.

    Attributes:
        table: what its events say of it.
        types: how the texts of its columns become values.
        key_places: where its key columns are.
        filled: the values that columns have in rows that are older than they.
        columns: as the server has them.
        known: the numbers of the columns; None: they are not known.
    """

    table: SourceTable
    types: tuple[ValueType, ...]
    key_places: tuple[int, ...]
    filled: Mapping[str, pa.Scalar] = field(default_factory=dict)
    columns: tuple[ColumnRow, ...] = ()
    known: KnownColumns | None = None

    @classmethod
    def of(cls, name: SourceName, names: list[str], types: list[ValueType], keys: tuple[str, ...]) -> ColumnTypes:
        """Describe a table by its columns and its key."""
        table = SourceTable(name, schema_of(names, types, keys), keys)
        return cls(table, tuple(types), tuple(names.index(key) for key in keys))


class ChangeBuffer:
    """The changes of a table between two borders, or of a part of a large transaction."""

    def __init__(self, shape: ColumnTypes, odd: OddValues) -> None:
        self.shape = shape
        self._odd: OddValues = odd
        self._columns: list[list[bytes | None]] = [[] for _ in shape.types]
        self._kinds: list[int] = []
        self._sent: list[str | None] = []
        self._has_unsent = False
        self._positions: list[str] = []
        self._micros: list[int] = []
        self._xids: list[str] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def is_full(self) -> bool:
        """Whether the buffer has enough rows for a batch."""
        return self.bytes > _MOST_BYTES or len(self._kinds) >= _MOST_ROWS

    def insert(self, new: Values, at: tuple[str, int, str]) -> None:
        """Add a new row; `at` is its position, its time and its transaction."""
        self._add(_INSERT, new, at)

    def update(self, old: Values | None, is_key_only: bool, new: Values, at: tuple[str, int, str]) -> None:
        """Add a changed row, and the row before where the server sent it."""
        if old is not None and not is_key_only:
            new = [was if value is UNSENT else value for was, value in zip(old, new, strict=True)]
        if old is not None and (not is_key_only or self._has_other_key(old, new)):
            self._add(_BEFORE, old, at)
        self._add(_AFTER, new, at)

    def delete(self, old: Values, at: tuple[str, int, str]) -> None:
        """Add a row that is gone."""
        self._add(_DELETE, old, at)

    def _has_other_key(self, old: Values, new: Values) -> bool:
        return any(new[index] is not UNSENT and old[index] != new[index] for index in self.shape.key_places)

    def _add(self, kind_code: int, values: Values, at: tuple[str, int, str]) -> None:
        if len(values) != len(self._columns):
            raise FormatError(
                f"a row of {self.shape.table.name} has {len(values)} values for {len(self._columns)} columns"
            )
        size, unsent = _ROW_BYTES, False
        for column, value in zip(self._columns, values, strict=True):
            if value is UNSENT:
                unsent = True
                column.append(None)
            else:
                column.append(value)
                size += len(value) if value is not None else 0
        self._sent.append(self._names_of_sent(values) if unsent else None)
        self._has_unsent = self._has_unsent or unsent
        self._kinds.append(kind_code)
        position, micros, xid = at
        self._positions.append(position)
        self._micros.append(micros)
        self._xids.append(xid)
        self.bytes += size

    def _names_of_sent(self, values: list[Value]) -> str:
        names = self.shape.table.columns.names
        return json.dumps(
            [name for name, value in zip(names, values, strict=True) if value is not UNSENT], ensure_ascii=False
        )

    def take(self) -> RowChanges:
        """Return the changes, and begin anew."""
        strings = [_strings(column, self.shape.table.name) for column in self._columns]
        changes = RowChanges(
            self.shape.table.name,
            table_of_texts(self.shape, strings, self._odd),
            pa.array(self._kinds, pa.int8()),
            sent=pa.array(self._sent, pa.string()) if self._has_unsent else None,
            times=pa.array(self._micros, pa.timestamp("us", "UTC")),
            positions=pa.array(self._positions, pa.string()),
            transactions=pa.array(self._xids, pa.string()),
        )
        self.__init__(self.shape, self._odd)  # type: ignore[misc]
        return changes


def _strings(values: list[bytes | None], name: SourceName) -> pa.Array:
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise SourceRefused(f"{name}: a value is not UTF-8: {error}", tables=[name]) from error


def table_of_texts(shape: ColumnTypes, strings: list[pa.Array], odd: OddValues) -> pa.Table:
    """Return texts as the table's columns with their types."""
    name = shape.table.name
    # Rows of a key alone have nulls in columns that the source never leaves null: the schema of a batch says it.
    try:
        columns = [
            to_arrow(column, value_type, odd, f"{name}.{field.name}")
            for column, value_type, field in zip(strings, shape.types, shape.table.columns, strict=True)
        ]
    except SourceRefused as error:
        raise SourceRefused(str(error), tables=[name]) from error
    return pa.table(columns, schema=shape.table.columns)


def snapshot_changes(shape: ColumnTypes, columns: list[pa.Array], odd: OddValues, position: str) -> RowChanges:
    """Return rows that were read from the table as insertions."""
    rows = table_of_texts(shape, columns, odd)
    count = rows.num_rows
    return RowChanges(
        shape.table.name,
        rows,
        pa.repeat(pa.scalar(_INSERT, pa.int8()), count),
        positions=pa.repeat(pa.scalar(position), count),
        is_snapshot=True,
    )


class Unsent(enum.Enum):
    """The mark of a value that the server did not send because it did not change."""

    UNSENT = "unsent"


UNSENT: Final = Unsent.UNSENT
Value: TypeAlias = bytes | Literal[Unsent.UNSENT] | None
Values: TypeAlias = list[Value]

#: Seconds from 1970 to 2000, where PostgreSQL's clock begins.
_EPOCH_MICROS: Final = 946_684_800_000_000
#: A table has at most 1,600 columns.
_MOST_COLUMNS: Final = 1_664

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_TYPE: Final = struct.Struct(">Ii")
_TRUNCATE: Final = struct.Struct(">IB")


class Begin(NamedTuple):
    """A transaction begins; they come whole, in the order of their commits.

    Attributes:
        lsn: where the record of its commit begins in the log.
        micros: when it was committed, in microseconds since 1970.
        xid: its number.
    """

    lsn: int
    micros: int
    xid: int


class Commit(NamedTuple):
    """A transaction is complete.

    Attributes:
        lsn: where the record of the commit begins in the log.
        end: where it ends.
        micros: when it was committed, in microseconds since 1970.
    """

    lsn: int
    end: int
    micros: int


class RelationColumn(NamedTuple):
    """A column as a message describes it.

    Attributes:
        name: its name.
        is_key: it belongs to the replica identity.
        type_id: the object id of its type.
        modifier: of its type, such as precision and scale; -1: none.
    """

    name: str
    is_key: bool
    type_id: int
    modifier: int


class Relation(NamedTuple):
    """The shape of a table from here on.

    Attributes:
        id: the object id of the table.
        schema: its schema.
        name: its name.
        identity: ``d`` the primary key, ``f`` the whole row, ``i`` an index, ``n`` nothing.
        columns: its columns.
    """

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    """A new row."""

    relation: int
    new: Values


class Update(NamedTuple):
    """A changed row; `old` is there if the identity is the whole row, or if its key changed and `is_key_only`."""

    relation: int
    old: Values | None
    is_key_only: bool
    new: Values


class Delete(NamedTuple):
    """A row that is gone; `old` is the whole row, or its key with nulls elsewhere if `is_key_only`."""

    relation: int
    old: Values
    is_key_only: bool


class Truncate(NamedTuple):
    """The tables of a truncate statement."""

    relations: tuple[int, ...]


class Other(NamedTuple):
    """A message that says nothing about rows: a type's name, a transaction's origin, a message of an application."""

    kind: str


Message: TypeAlias = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


def decode_message(body: bytes) -> Message:
    """Decode one message of ``pgoutput``.

    Raises:
        FormatError: it is cut, has more bytes than it needs, or is none of the protocol's first version.
    """
    try:
        message, end = _decode(body)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"a message of pgoutput of {len(body)} bytes cannot be read: {error}") from error
    if end != len(body):
        raise FormatError(f"a message of pgoutput has {len(body)} bytes, of which {end} were read")
    return message


def _decode(body: bytes) -> tuple[Message, int]:
    message_code = body[:1]
    if message_code == b"I":
        _expect(body, 5, b"N")
        new, end = _values(body, 6)
        return Insert(_U32.unpack_from(body, 1)[0], new), end
    if message_code == b"U":
        return _update(body)
    if message_code == b"D":
        _expect(body, 5, b"KO")
        old, end = _values(body, 6)
        return Delete(_U32.unpack_from(body, 1)[0], old, body[5:6] == b"K"), end
    if message_code == b"B":
        lsn, micros, xid = _BEGIN.unpack_from(body, 1)
        return Begin(lsn, micros + _EPOCH_MICROS, xid), 1 + _BEGIN.size
    if message_code == b"C":
        _, lsn, end_lsn, micros = _COMMIT.unpack_from(body, 1)
        return Commit(lsn, end_lsn, micros + _EPOCH_MICROS), 1 + _COMMIT.size
    if message_code == b"R":
        return _relation(body)
    if message_code == b"T":
        count, _ = _TRUNCATE.unpack_from(body, 1)
        ids = struct.unpack_from(f">{_bounded(count, (len(body) - 6) // 4)}I", body, 6)
        return Truncate(ids), 6 + 4 * count
    if message_code in (b"Y", b"O", b"M"):
        return Other(message_code.decode("ascii")), len(body)
    raise ValueError(f"unknown kind {message_code!r}")


def _update(body: bytes) -> tuple[Update, int]:
    _expect(body, 5, b"NKO")
    old, image_code, at = None, body[5:6], 5
    if image_code != b"N":
        old, at = _values(body, 6)
        _expect(body, at, b"N")
    new, end = _values(body, at + 1)
    return Update(_U32.unpack_from(body, 1)[0], old, image_code == b"K", new), end


def _values(body: bytes, at: int) -> tuple[Values, int]:
    count = _bounded(_U16.unpack_from(body, at)[0], len(body) - at)
    at += 2
    values: Values = []
    for _ in range(count):
        value_code = body[at]
        at += 1
        if value_code == 0x74:  # t
            start = at + 4
            at = start + int.from_bytes(body[at:start], "big")
            if at > len(body):
                raise ValueError("a value is longer than its message")
            values.append(body[start:at])
        elif value_code == 0x6E:  # n
            values.append(None)
        elif value_code == 0x75:  # u
            values.append(UNSENT)
        else:
            raise ValueError(f"unknown kind of value {value_code}")
    return values, at


def _relation(body: bytes) -> tuple[Relation, int]:
    schema, at = _string(body, 5)
    name, at = _string(body, at)
    identity = body[at : at + 1].decode("ascii")
    if identity not in ("d", "f", "i", "n"):
        raise ValueError(f"unknown replica identity {identity!r}")
    count = _bounded(_U16.unpack_from(body, at + 1)[0], len(body) - at)
    at += 3
    columns = []
    for _ in range(count):
        flags = body[at]
        column, at = _string(body, at + 1)
        type_id, modifier = _TYPE.unpack_from(body, at)
        at += _TYPE.size
        columns.append(RelationColumn(column, bool(flags & 1), type_id, modifier))
    # The server leaves out the name of its own catalog's schema.
    return Relation(_U32.unpack_from(body, 1)[0], schema or "pg_catalog", name, identity, tuple(columns)), at


def _string(body: bytes, at: int) -> tuple[str, int]:
    end = body.index(b"\0", at)
    return body[at:end].decode("utf-8"), end + 1


def _expect(body: bytes, at: int, kinds: bytes) -> None:
    if body[at] not in kinds:
        raise ValueError(f"unknown kind of row {body[at]}")


def _bounded(count: int, available: int) -> int:
    if count > min(available, _MOST_COLUMNS * 64):
        raise ValueError(f"a count of {count} with {available} bytes left")
    return int(count)
