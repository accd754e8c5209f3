"""Python values as Arrow values of a type: exactly, or not at all (docs/errors.md, Values). Pure.

The only way from a value of Python, NumPy, pandas or Polars to a column: keys, new values of an update, rows given as dicts,
rows of streams and named partitions come through here. Arrow's own conversion cuts fractions and times, ignores fields that a
struct does not have, takes text for a list, and ends the process for a null among the entries of a map; so a converter
hands it plain values only, in the one form that it stores as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Clamped, Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arguments import check_levels, error_text, foreign, shown
from lakefmt._core.schema.cast import conform
from lakefmt._core.schema.types import is_list_like, storage_type, struct_fields
from lakefmt.errors import SchemaMismatch

__all__ = ["Converter", "arrow_array", "arrow_scalar", "is_missing", "value_converter"]

#: Takes a value that is not None and returns what ``pyarrow.array`` stores as it is; raises ValueError or TypeError.
Converter: TypeAlias = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
#: Attoseconds, so that every unit of NumPy is a whole number of them.
_ATTOSECONDS: Final = {"as": 1, "fs": 10**3, "ps": 10**6, "ns": 10**9, "us": 10**12, "ms": 10**15, "s": 10**18} | {
    "m": 60 * 10**18,
    "h": 3600 * 10**18,
}
_INT64: Final = 1 << 63
#: The first number that rounds to infinity in 32 bits, and the largest that rounds to zero.
_FLOAT32_END: Final = 3.4028235677973366e38
_FLOAT32_ZERO: Final = 2.0**-150
_MOST_DIGITS: Final = 80
_MOST_DECIMAL: Final = 76
#: The types of columns whose values are all of one plain class.
_PLAIN: Final[Mapping[type, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}


# ------------------------------------------------------------------------------------------------ columns and scalars


def arrow_array(values: Sequence[object], data_type: pa.DataType | None, name: str) -> pa.Array:
    """Return Python values as an Arrow array.

    Args:
        values: the values of one column; missing ones are null.
        data_type: the type; None: the one that holds all of them.
        name: the column, for messages.

    Raises:
        SchemaMismatch: the values differ in type, or one does not fit it exactly.

    Example:
        >>> arrow_array([1, 2.0], pa.int64(), "n").to_pylist()
        [1, 2]
        >>> arrow_array(["a", b"b"], None, "x")
        Traceback (most recent call last):
            ...
        lakefmt.errors.SchemaMismatch: the values of column 'x' do not fit together: TypeError: one is string, another binary
    """
    if data_type is not None:
        convert = value_converter(name, data_type)
        return _array([convert(value) for value in values], data_type, name)
    classes = set(map(type, values))
    classes.discard(type(None))
    if len(classes) == 1 and (plain := _PLAIN.get(next(iter(classes)))) is not None:
        return _array(values, plain, name)
    check_levels(values, name)
    unfit = f"the values of column {name!r} do not fit together"
    data_type = foreign(lambda: _inferred(values), unfit, SchemaMismatch)
    try:
        convert = value_converter(name, data_type)
        return _array([convert(value) for value in values], data_type, name)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{unfit}: {error}") from error


def _array(values: Sequence[object], data_type: pa.DataType, name: str) -> pa.Array:
    unfit = f"the values of column {name!r} do not fit its type {data_type}"
    array = foreign(lambda: pa.array(values, data_type), unfit, SchemaMismatch)
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def arrow_scalar(value: object, data_type: pa.DataType, name: str) -> pa.Scalar:
    """Return a value as an Arrow scalar of a column's type.

    Raises:
        SchemaMismatch: the value does not fit exactly.

    Example:
        >>> arrow_scalar(1.5, pa.int64(), "n")
        Traceback (most recent call last):
            ...
        lakefmt.errors.SchemaMismatch: 1.5 does not fit column 'n' of type int64: it is no whole number
    """
    if isinstance(value, pa.Scalar):
        alone = pa.table({name: pa.repeat(value, 1)})
        return conform(alone, pa.schema([(name, data_type)]), allow_null_list_elements=True).column(0)[0]
    return arrow_array([value], data_type, name)[0]


def value_converter(
    name: str, data_type: pa.DataType, *, required: bool = False, null_elements: bool = True
) -> Callable[[object], object]:
    """Return the function that converts the values of a column.

    It returns what ``pyarrow.array`` stores as it is, and that no caller can change: dicts, lists and buffers are copies.

    Args:
        name: the column, for messages.
        data_type: its type.
        required: missing values are refused.
        null_elements: lists may have null elements.

    Raises:
        SchemaMismatch: values of Python cannot be stored as this type. The function raises it for a value that does not fit.

    Example:
        >>> convert = value_converter("at", pa.timestamp("ms", "UTC"))
        >>> convert(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), convert(None)
        (1000, None)
    """
    inner = _converter(data_type, null_elements)

    def convert(value: object) -> object:
        try:
            if value is None or is_missing(value):
                if not required:
                    return None
                reason = "must be set, and must not be null"
            else:
                return inner(value)
        except RecursionError as error:
            raise SchemaMismatch(f"column {name!r}: a value is nested too deeply") from error
        except (ValueError, TypeError, ArithmeticError) as error:
            reason = str(error)
        except Exception as error:
            raise SchemaMismatch(
                f"a value for column {name!r} of type {data_type} cannot be read: {error_text(error)}"
            ) from error
        if reason.startswith("must be set"):
            raise SchemaMismatch(f"column {name!r} {reason}")
        raise SchemaMismatch(f"{shown(value)} does not fit column {name!r} of type {data_type}: {reason}")

    return convert


def is_missing(value: object) -> bool:
    """Return whether a value stands for null: None, ``NaT`` of NumPy and pandas, ``pd.NA``. NaN is a number.

    Example:
        >>> is_missing(np.datetime64("NaT")), is_missing(float("nan"))
        (True, False)
    """
    if value is None:
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if isinstance(value, pa.Scalar):
        return not value.is_valid
    return type(value).__name__ in ("NaTType", "NAType")  # importing pandas takes half a second


# ---------------------------------------------------------------------------------------------------------- inference


def _inferred(values: Iterable[object]) -> pa.DataType:
    """Return the type that holds some values. Arrow's own inference cuts times, and fails on some nested values.

    Raises:
        TypeError: no type holds all of them, or one of them.
    """
    leaf: pa.DataType | None = None
    most = 0
    elements: list[object] | None = None
    fields: dict[str, list[object]] | None = None
    for each in values:
        value = _plain(each)
        if is_missing(value):
            continue
        if isinstance(value, Mapping):
            fields = {} if fields is None else fields
            for name, part in value.items():
                fields.setdefault(_to_str(name), []).append(part)
        elif _is_list(value):
            elements = [] if elements is None else elements
            elements.extend(_elements(value))
        else:
            # Numbers of NumPy have types of their own.
            value_type = _leaf_type(each.item() if isinstance(each, np.longdouble) else each)
            leaf = value_type if leaf is None or leaf == value_type else _common_type(leaf, value_type)
            most = max(most, abs(value)) if pt.is_integer(value_type) else most
    if sum(part is not None for part in (leaf, elements, fields)) > 1:
        raise TypeError("plain values, lists and dicts are mixed")
    if elements is not None:
        return pa.list_(_inferred(elements))
    if fields is not None:
        return pa.struct([(name, _inferred(parts)) for name, parts in fields.items()])
    if leaf is not None and pt.is_decimal(leaf):
        return _common_type(leaf, _decimal_of(len(str(most)), 0))
    return pa.null() if leaf is None else leaf


def _is_list(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, list | tuple | set | frozenset | pa.Array | pa.ChunkedArray) or _is_series(value)


def _leaf_type(value: object) -> pa.DataType:
    if isinstance(value, pa.Scalar):
        return storage_type(value.type)
    if isinstance(value, np.number) and not isinstance(value, np.timedelta64 | np.complexfloating | np.longdouble):
        return pa.from_numpy_dtype(value.dtype)
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] == "D":
        return pa.date32()
    if isinstance(value, datetime) and value.tzinfo is not None:
        return pa.timestamp("us", "UTC")
    if isinstance(value, Decimal):
        return _decimal_type(value)
    data_type = next((data_type for classes, data_type in _LEAVES if isinstance(value, classes)), None)
    if data_type is None:
        raise TypeError(f"a value of class {type(value).__name__} is none of a table")
    return data_type


#: In this order: a bool is an int, and a datetime is a date.
_LEAVES: Final[Sequence[tuple[tuple[type, ...], pa.DataType]]] = (
    ((bool, np.bool_), pa.bool_()),
    ((int,), pa.int64()),
    ((float, np.longdouble), pa.float64()),
    ((str,), pa.string()),
    ((UUID,), pa.binary(16)),
    ((bytes, bytearray, memoryview), pa.binary()),
    ((datetime, np.datetime64), pa.timestamp("us")),
    ((date,), pa.date32()),
    ((time,), pa.time64("us")),
    ((timedelta, np.timedelta64), pa.duration("us")),
)


def _decimal_type(value: Decimal) -> pa.DataType:
    digits, exponent = value.as_tuple()[1:]
    if not isinstance(exponent, int):
        return pa.decimal128(1, 0)  # no number: it is refused with its own message
    return _decimal_of(max(len(digits) + exponent, 0), max(-exponent, 0))


def _decimal_of(before: int, behind: int) -> pa.DataType:
    if before + behind > _MOST_DECIMAL:
        raise TypeError(f"a decimal has more than {_MOST_DECIMAL} digits")
    return (pa.decimal128 if before + behind <= 38 else pa.decimal256)(max(before + behind, 1), behind)


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds the values of two."""
    types = (one, other)
    if all(map(pt.is_integer, types)):
        return pa.int64()
    if all(pt.is_integer(data_type) or pt.is_floating(data_type) for data_type in types):
        return pa.float64()
    if all(pt.is_integer(data_type) or pt.is_decimal(data_type) for data_type in types):
        # How many digits the integers have is seen when all values are known.
        decimals = [data_type for data_type in types if pt.is_decimal(data_type)]
        return _decimal_of(
            max(data_type.precision - data_type.scale for data_type in decimals),
            max(data_type.scale for data_type in decimals),
        )
    if all(map(pt.is_timestamp, types)):
        return pa.timestamp("us", "UTC")
    raise TypeError(f"one is {one}, another {other}")


# -------------------------------------------------------------------------------------------------------- converters


def _converter(data_type: pa.DataType, null_elements: bool) -> Converter:
    """Return the converter of a type at any depth."""
    data_type = storage_type(data_type)
    if pt.is_struct(data_type):
        return _struct(data_type, null_elements)
    if pt.is_map(data_type):
        return _map(data_type, null_elements)
    if is_list_like(data_type):
        return _list(data_type, null_elements)
    convert = _scalar(data_type)

    def convert_plain(value: object) -> object:
        return convert(_plain(value))

    return convert_plain


def _scalar(data_type: pa.DataType) -> Converter:
    if pt.is_boolean(data_type):
        return _boolean
    if pt.is_integer(data_type):
        return _integer(data_type)
    if pt.is_floating(data_type):
        return _double if pt.is_float64(data_type) else _single
    if pt.is_decimal(data_type):
        return _decimal(data_type)
    if pt.is_string(data_type) or pt.is_large_string(data_type) or pt.is_string_view(data_type):
        return _to_str
    if pt.is_fixed_size_binary(data_type):
        return _fixed_bytes(data_type.byte_width)
    if pt.is_binary(data_type) or pt.is_large_binary(data_type) or pt.is_binary_view(data_type):
        return _bytes
    if pt.is_date32(data_type):
        return _date
    if pt.is_timestamp(data_type):
        return _timestamp(data_type)
    if pt.is_time(data_type):
        return _time(data_type)
    if pt.is_duration(data_type):
        return _duration(data_type)
    return _nothing(data_type)


def _plain(value: object) -> Any:
    """Return scalars of Arrow and numbers of NumPy as values of Python; anything else unchanged."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64 | str | bytes):
        item = value.item()
        if isinstance(item, np.floating):  # of more than 64 bits
            number = float(item)
            if number != item and item == item:
                raise ValueError("it has more digits than a double")
            return number
        return item
    return value


def _no(value: object, what: str) -> TypeError:
    return TypeError(f"a value of class {type(value).__name__} is no {what}")


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _no(value, "boolean")


def _integer(data_type: pa.DataType) -> Converter:
    if pt.is_unsigned_integer(data_type):
        low, high = 0, (1 << data_type.bit_width) - 1
    else:
        low, high = -(1 << (data_type.bit_width - 1)), (1 << (data_type.bit_width - 1)) - 1

    def convert(value: object) -> int:
        number = value if type(value) is int else _to_int(value)
        if not low <= number <= high:
            raise ValueError(f"it is not between {low} and {high}")
        return number

    return convert


def _to_int(value: object) -> int:
    if isinstance(value, bool):
        raise _no(value, "number")
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError("it is no whole number")
        return int(value)
    if isinstance(value, Decimal):
        # A decimal such as 1E+999999999 must not become a number of that many digits.
        if not value.is_finite() or value.adjusted() > _MOST_DIGITS or value != value.to_integral_value():
            raise ValueError("it is no whole number of this range")
        return int(value)
    raise _no(value, "number")


def _double(value: object) -> float:
    if isinstance(value, float):
        return float.__float__(value)
    number, exact = _number(value)
    if not exact:
        raise ValueError("a double does not hold it exactly")
    return number


def _number(value: object) -> tuple[float, bool]:
    """Return an int or a Decimal as the nearest double, and whether the two are equal."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _no(value, "number")
    if isinstance(value, Decimal) and not value.is_finite():
        raise ValueError("NaN and infinity are given as floats")
    try:
        number = float(value)
    except OverflowError:
        return math.inf, False
    if math.isinf(number):
        return number, False
    return number, (Decimal(number) if isinstance(value, Decimal) else int(number)) == value


def _single(value: object) -> float:
    """Return a number for a column of single precision: a float becomes the nearest one, other numbers are exact."""
    if isinstance(value, float):
        size = abs(value)
        if _FLOAT32_END <= size < math.inf or 0 < size <= _FLOAT32_ZERO:
            raise ValueError("it is beyond the numbers of single precision")
        return float.__float__(value)
    number, exact = _number(value)
    if not exact or abs(number) >= _FLOAT32_END or float(np.float32(number)) != number:
        raise ValueError("single precision does not hold it exactly")
    return number


def _decimal(data_type: pa.DataType) -> Converter:
    unit = Decimal(1).scaleb(-data_type.scale)
    traps = [Inexact, InvalidOperation, Overflow, Clamped]
    context = Context(prec=max(data_type.precision, 1), traps=traps)

    def convert(value: object) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise _no(value, "Decimal or int")
        if isinstance(value, int):
            if value.bit_length() > 4 * _MOST_DIGITS:
                raise ValueError(f"it has more than {data_type.precision} digits")
            value = Decimal(int(value))
        if not value.is_finite():
            raise ValueError("a decimal holds no NaN and no infinity")
        try:
            rescaled: Decimal = value.quantize(unit, context=context)
        except DecimalException:
            before = data_type.precision - data_type.scale
            raise ValueError(f"the type holds {before} digits before and {data_type.scale} behind the point") from None
        return rescaled

    return convert


def _to_str(value: object) -> str:
    if not isinstance(value, str):
        raise _no(value, "text")
    text = str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half a surrogate pair, for which UTF-8 has no form") from None
    return text


def _bytes(value: object) -> bytes:
    if isinstance(value, UUID):
        return value.bytes
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _no(value, "bytes")
    return bytes(value)


def _fixed_bytes(width: int) -> Converter:
    def convert(value: object) -> bytes:
        stored = _bytes(value)
        if len(stored) != width:
            raise ValueError(f"the type holds exactly {width} bytes, and these are {len(stored)}")
        return stored

    return convert


def _date(value: object) -> int:
    if isinstance(value, np.datetime64):
        unit, count = np.datetime_data(value.dtype)
        if unit != "D":
            raise ValueError("a datetime is no date: take its day")
        return int(value.astype(np.int64)) * count
    if isinstance(value, datetime):
        raise TypeError("a datetime is no date: take its .date()")
    if not isinstance(value, date):
        raise _no(value, "date")
    return value.toordinal() - _EPOCH_DAY


def _timestamp(data_type: pa.TimestampType) -> Converter:
    per_tick, has_zone, unit = _NANOSECONDS[data_type.unit], data_type.tz is not None, data_type.unit

    def convert(value: object) -> int:
        if isinstance(value, np.datetime64):
            return _ticks(_of_numpy(value), per_tick, unit)
        if not isinstance(value, datetime):
            raise _no(value, "datetime")
        # Of pandas, whose own arithmetic is of nanoseconds.
        finer = int(getattr(value, "nanosecond", 0))
        wall = datetime(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
        offset = value.utcoffset()
        if offset is not None and not has_zone:
            raise ValueError("it has a time zone, and the column holds wall-clock times")
        span = wall.replace(tzinfo=UTC) - _EPOCH - (offset or timedelta())
        return _ticks(_nanoseconds(span) + finer, per_tick, unit)

    return convert


def _nanoseconds(span: timedelta) -> int:
    return ((span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds) * 1_000


def _of_numpy(value: np.datetime64 | np.timedelta64) -> int:
    """Return nanoseconds since 1970, or of a span."""
    unit, count = np.datetime_data(value.dtype)
    if unit not in _ATTOSECONDS:
        raise ValueError(f"its unit {unit!r} is no time of day")
    nanoseconds, rest = divmod(int(value.astype(np.int64)) * count * _ATTOSECONDS[unit], 10**9)
    if rest:
        raise ValueError("it is finer than nanoseconds")
    return nanoseconds


def _ticks(nanoseconds: int, per_tick: int, unit: str) -> int:
    ticks, rest = divmod(nanoseconds, per_tick)
    if rest:
        raise ValueError(f"the type holds whole {unit}, and it has more")
    if not -_INT64 <= ticks < _INT64:
        raise ValueError("it is beyond the years that the type holds")
    return ticks


def _time(data_type: pa.DataType) -> Converter:
    per_tick, unit = _NANOSECONDS[data_type.unit], data_type.unit

    def convert(value: object) -> int:
        if not isinstance(value, time):
            raise _no(value, "time of day")
        if value.tzinfo is not None:
            raise ValueError("it has a time zone, and the column holds times of day")
        seconds = value.hour * 3600 + value.minute * 60 + value.second
        return _ticks((seconds * 1_000_000 + value.microsecond) * 1_000, per_tick, unit)

    return convert


def _duration(data_type: pa.DataType) -> Converter:
    per_tick, unit = _NANOSECONDS[data_type.unit], data_type.unit

    def convert(value: object) -> int:
        if isinstance(value, np.timedelta64):
            return _ticks(_of_numpy(value), per_tick, unit)
        if not isinstance(value, timedelta):
            raise _no(value, "timedelta")
        plain = timedelta(value.days, value.seconds, value.microseconds)
        return _ticks(_nanoseconds(plain) + int(getattr(value, "nanoseconds", 0)), per_tick, unit)

    return convert


def _nothing(data_type: pa.DataType) -> Converter:
    def convert(value: object) -> object:
        raise TypeError(f"values of Python are not converted to {data_type}: give an Arrow array")

    return convert


# ------------------------------------------------------------------------------------------------------------- nested


def _inner(field: pa.Field, null_elements: bool, what: str, *, is_element: bool = False) -> Converter:
    """Return the converter of a value inside another one, which may be missing."""
    convert = _converter(field.type, null_elements)
    takes_null = field.nullable and (null_elements or not is_element)

    def convert_inner(value: object) -> object:
        if value is not None and not is_missing(value):
            try:
                return convert(value)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"{what}: {error}") from None
        if not takes_null:
            raise ValueError(f"{what} must not be null")
        return None

    return convert_inner


def _list(data_type: pa.DataType, null_elements: bool) -> Converter:
    element = _inner(data_type.value_field, null_elements, "an element", is_element=True)
    size = data_type.list_size if pt.is_fixed_size_list(data_type) else None

    def convert(value: object) -> list[object]:
        converted = [element(each) for each in _elements(value)]
        if size is not None and len(converted) != size:
            raise ValueError(f"the type holds exactly {size} elements, and these are {len(converted)}")
        return converted

    return convert


def _elements(value: Any) -> Sequence[object]:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, np.ndarray) and value.ndim:
        return list(value)
    if isinstance(value, set | frozenset | pa.Array | pa.ChunkedArray) or _is_series(value):
        return list(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return value
    raise _no(value, "list")


def _is_series(value: object) -> bool:
    return type(value).__name__ == "Series" and type(value).__module__.partition(".")[0] in ("pandas", "polars")


def _map(data_type: pa.MapType, null_elements: bool) -> Converter:
    convert_key = _converter(data_type.key_type, null_elements)
    convert_item = _inner(data_type.item_field, null_elements, "a value of the map")

    def convert(value: object) -> list[tuple[object, object]]:
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        pairs = list(value.items()) if isinstance(value, Mapping) else _pairs(value)
        if any(is_missing(key) for key, _ in pairs):
            raise ValueError("a key of the map must not be null")
        converted = [(convert_key(key), convert_item(item)) for key, item in pairs]
        if len({key for key, _ in converted}) != len(converted):
            raise ValueError("a key of the map is given more than once")
        return converted

    return convert


def _pairs(value: object) -> list[tuple[object, object]]:
    if isinstance(value, list | tuple | np.ndarray) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in value
    ):
        return [(key, item) for key, item in value]
    raise TypeError("a map takes a dict or a list of pairs")


def _struct(data_type: pa.DataType, null_elements: bool) -> Converter:
    fields = struct_fields(data_type)
    names = [field.name for field in fields]
    parts = [(each.name, _inner(each, null_elements, f"field {each.name!r}")) for each in fields]

    def convert(value: object) -> dict[str, object]:
        values = _field_values(value, names)
        if not values.keys() <= set(names):
            unknown = next(name for name in values if name not in names)
            raise ValueError(f"{shown(unknown)} is no field of it")
        return {name: part(values.get(name)) for name, part in parts}

    return convert


def _field_values(value: object, names: list[str]) -> Mapping[str, object]:
    """Return the values of a struct by name: from a mapping, an object with named fields, a tuple, or a list of pairs."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclass_fields(value)}
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return dict(zip(value._fields, value, strict=True))
        if len(value) != len(names):
            raise ValueError(f"the struct has {len(names)} fields, and these are {len(value)} values")
        return dict(zip(names, value, strict=True))
    if isinstance(value, list) and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        by_name = dict(value)
        if len(by_name) == len(value):
            return by_name
        raise ValueError("a field is given more than once")
    raise _no(value, "struct: give a dict")
