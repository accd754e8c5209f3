"""A row that a program fills value by value, each checked and converted to what Arrow stores, exactly (docs/realtime.md, Types). Pure.

The converter of a column is made once per stream from its SQL type and stored type (:func:`column_converter`). A converter
takes one value that is not None and returns one that ``pyarrow.array`` stores as it is: instants are whole microseconds,
dates whole days, decimals have their final scale. It raises ValueError or TypeError with the reason; the caller adds column
and table. Each begins with the one class that nearly all values have.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, is_dataclass
from dataclasses import fields as dataclass_fields
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.producers.stream.options import DELETES, WHOLE_ROWS, RowOperator
from lakefmt._core.producers.stream.rows import RowChecker
from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.realtime.errors import CastFailed, RowRefused
from lakefmt.realtime.statements import SqlField, SqlKind, SqlType

__all__ = [
    "UNSET",
    "ConversionNotes",
    "ConversionRules",
    "Row",
    "RowLayout",
]

Converter = Callable[[Any], Any]

_TRUE: Final = frozenset({"true", "t", "1"})
_FALSE: Final = frozenset({"false", "f", "0"})
_WHOLE_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]{1,40}\s*", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH_ORDINAL
_LAST_DAY: Final = date.max.toordinal() - _EPOCH_ORDINAL
_DAY_MICROS: Final = 86_400_000_000
_FIRST_INSTANT: Final = _FIRST_DAY * _DAY_MICROS
_LAST_INSTANT: Final = (_LAST_DAY + 1) * _DAY_MICROS - 1
_INT64: Final = 1 << 63
#: The first number that rounds to infinity in 32 bits.
_FLOAT32_END: Final = 3.4028235677973366e38
_LONGEST_NUMBER: Final = 1000


@dataclass
class ConversionNotes:
    """What conversions did that a caller may want to know.

    Attributes:
        truncated: values of CHAR and VARCHAR that were shortened.
        naive_instants: whether a TIMESTAMP_LTZ was given without a zone.
        on_naive: called once, with the name of the zone that was assumed.
    """

    truncated: int = 0
    naive_instants: bool = False
    on_naive: Callable[[str], None] = field(default=lambda zone: None)

    def note_naive(self, zone: tzinfo) -> None:
        """Say once that an instant without a zone was taken in `zone`."""
        if not self.naive_instants:
            self.naive_instants = True
            self.on_naive(str(zone))


@dataclass(frozen=True)
class ConversionRules:
    """The choices that conversions have.

    Attributes:
        zone: of instants that are given without one.
        refuse_overlong: whether a text that is too long for CHAR or VARCHAR is an error; else it is shortened.
        validate_json: whether a text for a JSON column must be JSON.
        ignore_extra: whether fields that a STRUCT does not have are ignored; else they are an error.
        null_elements: whether an ARRAY may have null elements.
    """

    zone: tzinfo = UTC
    refuse_overlong: bool = False
    validate_json: bool = False
    ignore_extra: bool = False
    null_elements: bool = True
    notes: ConversionNotes = field(default_factory=ConversionNotes, compare=False)


def boolean_converter() -> Converter:
    """Return the converter of BOOLEAN.

    Example:
        >>> [boolean_converter()(v) for v in (True, 0, "False", "t")]
        [True, False, False, True]
    """

    def convert(value: object) -> bool:
        if value is True or value is False:
            return bool(value)
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, (int, np.integer)) and value in (0, 1):
            return bool(value)
        if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
            return value.lower() in _TRUE
        raise ValueError("BOOLEAN takes a bool, 0, 1, or one of the texts true, false, t, f")

    return convert


def integer_converter(name: str, bits: int) -> Converter:
    """Return the converter of an integer type of `bits` bits.

    Example:
        >>> integer_converter("INT8", 8)(" 12 ")
        12
    """
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: object) -> int:
        if type(value) is int and low <= value <= high:
            return value
        number = _whole_number(value, name)
        if not low <= number <= high:
            raise ValueError(f"{name} holds whole numbers from {low} to {high}")
        return number

    return convert


def _whole_number(value: object, name: str) -> int:
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    # A decimal such as 1E+999999999 must not become a number of that many digits.
    if (
        isinstance(value, Decimal)
        and value.is_finite()
        and value.adjusted() < 20
        and value == value.to_integral_value()
    ):
        return int(value)
    raise ValueError(f"{name} takes an int, a text of digits or a whole float")


def float_converter(name: str, *, single: bool) -> Converter:
    """Return the converter of FLOAT (`single`) or DOUBLE.

    Example:
        >>> float_converter("DOUBLE", single=False)("2.5")
        2.5
    """

    def convert(value: object) -> float:
        number = value if type(value) is float else _float_of(value, name)
        if single and abs(number) >= _FLOAT32_END and math.isfinite(number):
            raise ValueError(f"{name} holds numbers up to 3.4e38")
        return number

    return convert


def _float_of(value: object, name: str) -> float:
    if not isinstance(value, (int, float, str, Decimal, np.number, np.bool_)) or isinstance(value, np.complexfloating):
        raise TypeError(f"{name} takes a float, an int, a Decimal or a text of a number")
    try:
        number = float(value)
    except (OverflowError, ValueError):
        raise ValueError(f"{name} takes a number in its range") from None
    if math.isinf(number) and isinstance(value, Decimal) and value.is_finite():
        raise ValueError(f"{name} takes a number in its range")
    return number


def decimal_converter(precision: int, scale: int) -> Converter:
    """Return the converter of DECIMAL: halves are rounded away from zero, a number with too many digits is an error.

    Example:
        >>> decimal_converter(5, 2)("1.005")
        Decimal('1.01')
    """
    context = Context(prec=precision)
    unit = Decimal(1).scaleb(-scale)

    def convert(value: object) -> Decimal:
        number = value if type(value) is Decimal else _decimal_of(value)
        if not number.is_finite():
            raise ValueError(f"DECIMAL({precision},{scale}) holds no NaN and no infinity")
        try:
            return number.quantize(unit, ROUND_HALF_UP, context)
        except DecimalException:
            raise ValueError(
                f"DECIMAL({precision},{scale}) holds {precision - scale} digits before the point"
            ) from None

    return convert


def _decimal_of(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal, np.integer, np.floating)):
        raise TypeError("DECIMAL takes a Decimal, an int, a float or a text of a number")
    if isinstance(value, str) and len(value) > _LONGEST_NUMBER:
        raise ValueError(f"DECIMAL takes texts of at most {_LONGEST_NUMBER} characters")
    try:
        return Decimal(value) if isinstance(value, (int, str)) else Decimal(str(value))
    except DecimalException:
        raise ValueError("DECIMAL takes a text only if it is a number") from None


def text_converter(name: str, rules: ConversionRules, most: int | None = None) -> Converter:
    """Return the converter of STRING, or of CHAR and VARCHAR of at most `most` characters (code points).

    Example:
        >>> text_converter("VARCHAR", ConversionRules(), 3)("abcd")
        'abc'
    """

    def convert(value: object) -> str:
        text = value if type(value) is str and value.isascii() else _text_of(value, name)
        if most is None or len(text) <= most:
            return text
        if rules.refuse_overlong:
            raise ValueError(f"{name}({most}) holds at most {most} characters, and the text has {len(text)}")
        rules.notes.truncated += 1
        return text[:most]

    return convert


def _text_of(value: object, name: str) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{name} takes bytes only if they are UTF-8") from None
    if not isinstance(value, str):
        raise TypeError(f"{name} takes a str or UTF-8 bytes, not {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} takes text that UTF-8 can hold: a surrogate stands alone") from None
    return str(value)


def json_converter(rules: ConversionRules) -> Converter:
    """Return the converter of JSON: text as it is, a dict or list as compact text.

    Example:
        >>> json_converter(ConversionRules())({"a": [1, None]})
        '{"a":[1,null]}'
    """

    def convert(value: object) -> str:
        if isinstance(value, (dict, list)):
            try:
                return _text_of(json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False), "JSON")
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(f"JSON cannot hold this {type(value).__name__}: {error}") from None
        json_text = _text_of(value, "JSON")
        if rules.validate_json:
            try:
                json.loads(json_text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"JSON takes valid JSON only: {error}") from None
        return json_text

    return convert


def binary_converter(width: int | None = None) -> Converter:
    r"""Return the converter of BINARY; `width` is the number of bytes where the column stores a fixed one.

    Example:
        >>> binary_converter()("é")
        b'\xc3\xa9'
    """

    def convert(value: object) -> bytes:
        if isinstance(value, str):
            value = _text_of(value, "BINARY").encode("utf-8")
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"BINARY takes bytes, a bytearray, a memoryview or a str, not {type(value).__name__}")
        stored = bytes(value)
        if width is not None and len(stored) != width:
            raise ValueError(f"the column holds exactly {width} bytes")
        return stored

    return convert


def date_converter() -> Converter:
    """Return the converter of DATE, to days since 1970-01-01.

    Example:
        >>> date_converter()("1969-12-31")
        -1
    """

    def convert(value: object) -> int:
        if type(value) is date:
            return value.toordinal() - _EPOCH_ORDINAL
        if isinstance(value, str):
            try:
                return date.fromisoformat(value).toordinal() - _EPOCH_ORDINAL
            except ValueError:
                raise ValueError("DATE takes a text only if it is an ISO date such as 2026-01-31") from None
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            if not _FIRST_DAY <= value <= _LAST_DAY:
                raise ValueError(f"DATE takes days since 1970-01-01 from {_FIRST_DAY} to {_LAST_DAY}")
            return int(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.toordinal() - _EPOCH_ORDINAL
        raise ValueError("DATE takes a date (not a datetime), an ISO text or an int of days since 1970-01-01")

    return convert


def instant_converter(rules: ConversionRules, *, milliseconds: bool = False) -> Converter:
    """Return the converter of TIMESTAMP_LTZ, to microseconds since 1970 in UTC.

    Args:
        rules: their zone is taken for datetimes without one.
        milliseconds: whether the column stores whole milliseconds.

    Example:
        >>> instant_converter(ConversionRules())(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
        1000000
    """
    zone, notes = rules.zone, rules.notes

    def convert(value: object) -> int:
        if not isinstance(value, datetime):
            return _microseconds(value, "TIMESTAMP_LTZ")
        if type(value) is not datetime:
            _check_moment(value)
        if value.utcoffset() is None:
            notes.note_naive(zone)
            value = value.replace(tzinfo=zone)
        return _instant_in_range(_exact_microseconds(value - _EPOCH), "TIMESTAMP_LTZ")

    return _in_milliseconds(convert) if milliseconds else convert


def wall_clock_converter(*, milliseconds: bool = False) -> Converter:
    """Return the converter of TIMESTAMP_NTZ: what the clock on the wall showed, without any shift.

    Example:
        >>> wall_clock_converter()(datetime(1970, 1, 1, 12)) // 3_600_000_000
        12
    """

    def convert(value: object) -> int:
        if not isinstance(value, datetime):
            return _microseconds(value, "TIMESTAMP_NTZ")
        if type(value) is not datetime:
            _check_moment(value)
        if value.utcoffset() is not None:
            raise ValueError("TIMESTAMP_NTZ takes a datetime without a zone")
        return _exact_microseconds(value.replace(tzinfo=UTC) - _EPOCH)

    return _in_milliseconds(convert) if milliseconds else convert


def _check_moment(value: object) -> None:
    """Refuse what subclasses of datetime can hold and a table cannot."""
    if value != value:
        raise ValueError("NaT is no instant: set None")
    if getattr(value, "nanosecond", 0):
        raise ValueError("the column holds microseconds, and the value has nanoseconds")


def _exact_microseconds(span: timedelta) -> int:
    # Whole numbers: a float holds too few digits for the microseconds of today.
    return span.days * _DAY_MICROS + span.seconds * 1_000_000 + span.microseconds


def _microseconds(value: object, name: str) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name} takes a datetime or an int of microseconds since 1970-01-01")
    return _instant_in_range(int(value), name)


def _instant_in_range(micros: int, name: str) -> int:
    if not _FIRST_INSTANT <= micros <= _LAST_INSTANT:
        raise ValueError(f"{name} holds the years 1 to 9999 in UTC")
    return micros


def _in_milliseconds(convert: Converter) -> Converter:
    def convert_milliseconds(value: object) -> int:
        milliseconds, rest = divmod(convert(value), 1000)
        if rest:
            raise ValueError("the column holds whole milliseconds")
        return int(milliseconds)

    return convert_milliseconds


def interval_converter() -> Converter:
    """Return the converter of INTERVAL_DAY_TIME, to microseconds.

    Example:
        >>> interval_converter()(timedelta(seconds=1))
        1000000
    """

    def convert(value: object) -> int:
        if isinstance(value, timedelta):
            if value != value:
                raise ValueError("NaT is no interval: set None")
            if getattr(value, "nanoseconds", 0):
                raise ValueError("INTERVAL_DAY_TIME holds microseconds, and the value has nanoseconds")
            # At most 8.64e19 microseconds: more than 64 bits hold.
            return _in_int64(_exact_microseconds(value))
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return _in_int64(int(value))
        raise ValueError("INTERVAL_DAY_TIME takes a timedelta or an int of microseconds")

    return convert


def _in_int64(micros: int) -> int:
    if not -_INT64 <= micros < _INT64:
        raise ValueError("INTERVAL_DAY_TIME holds 64 bits of microseconds, some 292,000 years")
    return micros


_INTEGER_BITS: Final = {SqlKind.INT8: 8, SqlKind.INT16: 16, SqlKind.INT32: 32, SqlKind.INT64: 64}


def column_converter(field: SqlField, stored: pa.DataType, rules: ConversionRules) -> Converter:
    """Return the function that converts a value of a column; it raises ValueError or TypeError with the reason.

    Args:
        field: the column.
        stored: the Arrow type that the table stores.
        rules: of this stream.

    Raises:
        UnsupportedFeature: rows cannot have such a column.

    Example:
        >>> field = SqlField("tags", SqlType(SqlKind.ARRAY, inner=(SqlField("element", SqlType(SqlKind.INT32)),)))
        >>> column_converter(field, pa.list_(pa.int32()), ConversionRules())(["1", None])
        [1, None]
    """
    sql_kind = field.type.kind
    if sql_kind is SqlKind.INTERVAL_YEAR_MONTH:
        raise UnsupportedFeature(f"column {field.name!r} has type INTERVAL_YEAR_MONTH: rows cannot hold it")
    if sql_kind in (SqlKind.ARRAY, SqlKind.VECTOR):
        return _list_converter(field.type, stored, rules)
    if sql_kind is SqlKind.MAP:
        return _map_converter(field.type, stored, rules)
    if sql_kind is SqlKind.STRUCT:
        return _struct_converter(field.type, stored, rules)
    return _scalar_converter(field.type, stored, rules)


def _scalar_converter(sql: SqlType, stored: pa.DataType, rules: ConversionRules) -> Converter:
    milliseconds = pt.is_timestamp(stored) and stored.unit == "ms"
    makers: dict[SqlKind, Callable[[], Converter]] = {
        SqlKind.BOOLEAN: boolean_converter,
        SqlKind.FLOAT: lambda: float_converter("FLOAT", single=True),
        SqlKind.DOUBLE: lambda: float_converter("DOUBLE", single=False),
        SqlKind.DECIMAL: lambda: decimal_converter(sql.precision, sql.scale),
        SqlKind.CHAR: lambda: text_converter("CHAR", rules, sql.length),
        SqlKind.VARCHAR: lambda: text_converter("VARCHAR", rules, sql.length),
        SqlKind.STRING: lambda: text_converter("STRING", rules),
        SqlKind.JSON: lambda: json_converter(rules),
        SqlKind.BINARY: lambda: binary_converter(stored.byte_width if pt.is_fixed_size_binary(stored) else None),
        SqlKind.DATE: date_converter,
        SqlKind.TIMESTAMP_LTZ: lambda: instant_converter(rules, milliseconds=milliseconds),
        SqlKind.TIMESTAMP_NTZ: lambda: wall_clock_converter(milliseconds=milliseconds),
        SqlKind.INTERVAL_DAY_TIME: interval_converter,
    }
    if sql.kind in _INTEGER_BITS:
        return integer_converter(sql.kind.value, _INTEGER_BITS[sql.kind])
    return makers[sql.kind]()


def _inner_converter(field: SqlField, stored: pa.DataType, rules: ConversionRules, what: str) -> Converter:
    """Return the converter of a value inside another one, which may be None."""
    convert = column_converter(field, stored, rules)

    def convert_inner(value: object) -> object:
        if value is not None:
            return convert(value)
        if not field.nullable:
            raise ValueError(f"{what} must not be null")
        return None

    return convert_inner


def _list_converter(sql: SqlType, stored: pa.DataType, rules: ConversionRules) -> Converter:
    field = sql.inner[0] if rules.null_elements else replace(sql.inner[0], nullable=False)
    element = _inner_converter(field, stored.value_type, rules, "an element")
    dimension = sql.length if sql.kind is SqlKind.VECTOR else None

    def convert(value: object) -> list[Any]:
        if dimension is not None and isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{sql.kind.value} takes a list or a tuple, not {type(value).__name__}")
        if dimension is not None and (len(value) != dimension or None in value):
            raise ValueError(f"{sql} takes exactly {dimension} numbers")
        return [element(each) for each in value]

    return convert


def _map_converter(sql: SqlType, stored: pa.DataType, rules: ConversionRules) -> Converter:
    as_map = pt.is_map(stored)
    key_type, value_type = (
        (stored.key_type, stored.item_type)
        if as_map
        else (stored.value_type.field(0).type, stored.value_type.field(1).type)
    )
    convert_key = column_converter(sql.inner[0], key_type, rules)
    convert_value = _inner_converter(sql.inner[1], value_type, rules, "a value")
    names = ("key", "value") if as_map else (stored.value_type.field(0).name, stored.value_type.field(1).name)

    def convert(value: object) -> list[Any]:
        pairs = list(value.items()) if isinstance(value, Mapping) else _map_pairs(value)
        if any(key is None for key, _ in pairs):
            raise ValueError("a key must not be null")
        converted = [(convert_key(key), convert_value(item)) for key, item in pairs]
        if len({repr(key) for key, _ in converted}) != len(converted):
            raise ValueError("a key is given more than once")
        return converted if as_map else [dict(zip(names, pair, strict=True)) for pair in converted]

    return convert


def _map_pairs(value: object) -> list[tuple[object, object]]:
    if isinstance(value, (list, tuple)) and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value):
        return [(key, item) for key, item in value]
    raise ValueError(f"MAP takes a dict or a list of pairs, not {type(value).__name__}")


def _struct_converter(sql: SqlType, stored: pa.DataType, rules: ConversionRules) -> Converter:
    names = [field.name for field in sql.inner]
    known_names = frozenset(names)
    converters = [
        _inner_converter(field, stored.field(n).type, rules, f"field {field.name!r}")
        for n, field in enumerate(sql.inner)
    ]

    def convert(value: object) -> dict[str, object]:
        values = _field_values(value, names)
        if isinstance(values, Mapping):
            if missing := [name for name in names if name not in values]:
                raise ValueError(f"field {missing[0]!r} is missing")
            if not rules.ignore_extra and (extra := [name for name in values if name not in known_names]):
                raise ValueError(f"{str(extra[0])!r} is not a field of this STRUCT")
            values = [values[name] for name in names]
        return {name: each(part) for name, each, part in zip(names, converters, values, strict=True)}

    return convert


def _field_values(value: object, names: list[str]) -> Mapping[str, object] | list[object]:
    """Return what was given for the fields: by name, or by position."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (str, bytes)):
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise TypeError("STRUCT takes a text only if it is a JSON object")
        return document
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclass_fields(value)}
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"STRUCT takes a dict, a tuple, a list, a dataclass or JSON text, not {type(value).__name__}")
    if len(value) != len(names):
        raise ValueError(f"STRUCT has {len(names)} fields, and {len(value)} values are given")
    return list(value)


class _Unset:
    """The place of a value that was not set; None is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
_LONGEST: Final = 60


class RowLayout:
    """What every row of a stream shares: columns, converters and keys. Made once per stream and schema.

    Args:
        table: the table's name, for messages.
        fields: its columns.
        checker: of the same columns as the table stores them; its keys identify a row, partition columns among them.
        rules: of conversions.
        later: columns that the table has got since the stream was opened, and that may be null: rows need not set them.
        look_again: returns the layout of the table's columns as they are now; None: they stay as they are.
    """

    def __init__(
        self,
        table: str,
        fields: Sequence[SqlField],
        checker: RowChecker,
        rules: ConversionRules,
        later: Collection[str] = (),
        look_again: Callable[[], RowLayout] | None = None,
    ) -> None:
        schema = checker.schema
        self.table = table
        self.checker = checker
        self.rules = rules
        self.later = frozenset(later)
        self.look_again = look_again
        self.names: tuple[str, ...] = tuple(field.name for field in fields)
        self.fields = tuple(fields)
        #: Positions by name and by position, so that a row has one look-up for both.
        self.positions: dict[str | int, int] = {n: n for n in range(len(fields))} | {
            field.name: n for n, field in enumerate(fields)
        }
        self.converters: tuple[Converter, ...] = tuple(
            column_converter(field, schema.field(n).type, rules) for n, field in enumerate(fields)
        )
        self.required: tuple[bool, ...] = tuple(not field.nullable for field in fields)
        self.key_positions: tuple[int, ...] = tuple(self.positions[name] for name in checker.keys)
        self.empty: list[Any] = [UNSET] * len(fields)
        #: Of a row that has every column.
        self.empty_whole: list[Any] = [None if field.name in self.later else UNSET for field in fields]

    def unknown(self, column: object) -> InvalidInputError:
        """Return the error of a column that the table does not have."""
        return InvalidInputError(
            f"table {self.table!r} has no column {shown(column)}: it has {', '.join(self.names[:20])}"
            + (", …" if len(self.names) > 20 else "")
        )

    def cast_failed(self, position: int, value: object, why: object) -> CastFailed:
        """Return the error of a value that does not fit its column."""
        shown_value = shown(value)
        short = shown_value if len(shown_value) <= _LONGEST else f"{shown_value[: _LONGEST - 1]}…"
        return CastFailed(
            f"Failed to cast value for column {self.names[position]!r} of table {self.table!r}, "
            f"type {self.fields[position].type}: {why}; the value is {short}"
        )


class Row:
    """One row; made by ``stream.create_row``, filled by :meth:`set_value`, handed to ``stream.apply``."""

    __slots__ = ("_layout", "_positions", "_values", "operator")

    def __init__(self, layout: RowLayout, operator: RowOperator) -> None:
        self._layout = layout
        self._positions = layout.positions
        self._values = (layout.empty_whole if operator in WHOLE_ROWS else layout.empty)[:]
        self.operator = operator

    def __repr__(self) -> str:
        values = dict(zip(self._layout.names, map(shown, self._values), strict=True))
        return f"Row({self.operator.name}, {values})"

    def set_value(self, column: str | int, value: object) -> None:
        """Set a column by its exact name or its position from 0; convert the value (docs/realtime.md, Types).

        Args:
            column: name or position.
            value: None for null.

        Raises:
            CastFailed: the value does not fit; its text begins with ``Failed to cast value for column``.
            InvalidInputError: the table has no such column.
        """
        try:
            position = self._positions[column]
        except (KeyError, TypeError):
            position = self._position_after(column)
        if value is None:
            if self._layout.required[position]:
                raise self._layout.cast_failed(position, value, "the column is NOT NULL")
            self._values[position] = None
            return
        try:
            self._values[position] = self._layout.converters[position](value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise self._layout.cast_failed(position, value, error) from error

    def _position_after(self, column: object) -> int:
        """Return the position of a column that another writer has added meanwhile.

        Raises:
            InvalidInputError: there is none.
        """
        looks = self._layout.look_again
        layout = self._layout if looks is None or not isinstance(column, str) else looks()
        if layout is self._layout or not isinstance(column, str) or column not in layout.positions:
            raise self._layout.unknown(column)
        row = self.moved(layout)
        self._layout, self._positions, self._values = layout, layout.positions, row._values
        return layout.positions[column]

    def is_null_at(self, index: int) -> bool:
        """Return whether the column at a position is null or was not set."""
        value = self._values[index]
        return value is None or value is UNSET

    def get_memory_size(self) -> int:
        """Return the bytes of the values, estimated."""
        return sum(8 if value is None or value is UNSET else _size(value) for value in self._values)

    def validate(self) -> None:
        """Raise unless the row has the columns that its operator needs.

        Raises:
            RowRefused: names the columns.
        """
        values, layout = self._values, self._layout
        if self.operator in WHOLE_ROWS:
            if any(value is UNSET for value in values):
                missing = [name for name, value in zip(layout.names, values, strict=True) if value is UNSET]
                raise RowRefused(
                    f"Failed to apply row to table {layout.table!r}: {self.operator.name} needs all columns to be set, null "
                    f"included, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not"
                )
            return
        for position in layout.key_positions:
            value = values[position]
            if value is UNSET or value is None:
                raise RowRefused(
                    f"Failed to apply row to table {layout.table!r}: {self.operator.name} needs the key column "
                    f"{layout.names[position]!r}"
                )

    def taken(self) -> tuple[list[Any], tuple[str, ...] | None]:
        """Return a copy of the values with None where not set, and the columns that were set; None: all of them."""
        values, layout = self._values, self._layout
        if self.operator in WHOLE_ROWS:
            return values[:], None
        if self.operator in DELETES:
            column_numbers = frozenset(layout.key_positions)
        else:
            column_numbers = frozenset(n for n, value in enumerate(values) if value is not UNSET)
        return (
            [value if n in column_numbers else None for n, value in enumerate(values)],
            tuple(name for n, name in enumerate(layout.names) if n in column_numbers),
        )

    def moved(self, layout: RowLayout) -> Row:
        """Return this row for another state of the table's columns, matched by name.

        Raises:
            RowRefused: a column that was set is gone, or a new column must not be null.
        """
        if self._layout is layout:
            return self
        row = Row(layout, self.operator)
        for name, value in zip(self._layout.names, self._values, strict=True):
            if name not in layout.positions:
                if value is not UNSET and (value is not None or name not in self._layout.later):
                    raise RowRefused(f"Failed to apply row: table {layout.table!r} has no column {name!r} any more")
            elif value is not UNSET:
                row._take(self._layout, name, value)
        if self.operator in WHOLE_ROWS:
            listed = frozenset(self._layout.names)
            for n, name in enumerate(layout.names):
                if name not in listed and not layout.required[n]:
                    row._values[n] = None
        return row

    def _take(self, old: RowLayout, name: str, value: object) -> None:
        """Set a value that was converted under the layout `old`."""
        position = self._layout.positions[name]
        if old.fields[old.positions[name]].type == self._layout.fields[position].type:
            self._values[position] = value
        else:
            self.set_value(name, value)

    def as_dict(self) -> Mapping[str, Any]:
        """Return what was set, converted, by column."""
        return {name: value for name, value in zip(self._layout.names, self._values, strict=True) if value is not UNSET}

    @property
    def layout(self) -> RowLayout:
        """What the rows of the stream shared when this one was made."""
        return self._layout


def _size(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return len(value) + 8
    if isinstance(value, (list, tuple)):
        return 8 + sum(map(_size, value))
    if isinstance(value, Mapping):
        return 8 + sum(map(_size, value.values()))
    return 16
