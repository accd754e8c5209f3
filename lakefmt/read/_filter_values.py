"""Filter values of Python, NumPy, Arrow and pandas, and their place in a column's type. Pure.

A value that a column cannot store is neither an error nor rounded: it is between two values of the
type, or outside its range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidFilter

__all__ = ["Grid", "double", "grid_of", "held", "list_of", "parse_number", "place", "plain", "plain_value"]

_MOST_DIGITS: Final = 60
_MOST_VALUES: Final = 10_000_000
_TICKS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LITERAL: Final = re.compile(r"([0-9._]+)[eE]([+-]?)[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Moment:
    """A moment in seconds since 1970, UTC; may be finer than Python's datetime."""

    seconds: Fraction


# ----------------------------------------------------------------------------------------------- as they are handed over


def list_of(value: object) -> list[object]:
    """Return the values of a list, set, range, NumPy or Arrow array, or Series.

    Raises:
        InvalidFilter: another type, or too many values.

    Example:
        >>> list_of(range(3)), list_of(np.array([1.5])), list_of(pa.array(["a"]))
        ([0, 1, 2], [np.float64(1.5)], [<pyarrow.StringScalar: 'a'>])
    """
    is_list = isinstance(value, Sequence | Set | pa.Array | pa.ChunkedArray) or (
        hasattr(value, "__len__") and hasattr(value, "__iter__")
    )
    if not is_list or isinstance(value, str | bytes | bytearray | memoryview | Mapping | pa.Scalar | pa.Table):
        raise InvalidFilter(f"a list, set, range, array or Series of values is expected, not {value!r:.200}")
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise InvalidFilter(f"an array of one dimension is expected, not of {value.ndim}")
    sized: Any = value
    if len(sized) > _MOST_VALUES:
        raise InvalidFilter(f"{len(sized):,} values are given; at most {_MOST_VALUES:,} are compared with")
    if type(value).__module__.partition(".")[0] == "pandas":
        return [
            None if isinstance(each, float) and math.isnan(each) else each for each in sized
        ]  # pandas' missing value
    return list(sized)


def plain_value(value: object) -> object:
    """Return a value as a Python object, None for missing values; other objects unchanged.

    Example:
        >>> plain_value(np.int8(3)), plain_value(pa.scalar("a")), plain_value(np.datetime64("NaT"))
        (3, 'a', None)
    """
    if isinstance(value, str):
        return _of_text(value)
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, pa.Scalar):
        return _of_scalar(value)
    if isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value):
        return None
    if isinstance(value, np.datetime64):
        return _of_datetime64(value)
    if isinstance(value, np.generic):
        return _of_numpy(value)
    if type(value).__name__ in ("NaTType", "NAType"):  # pandas: importing it takes half a second
        return None
    finer: Any = getattr(value, "nanosecond", None) if isinstance(value, datetime) else None
    if finer and isinstance(value, datetime):
        return _Moment(_since_epoch(value) + Fraction(int(finer), 1_000_000_000))
    return _of_subclass(value)


def _of_text(value: str) -> str:
    text = str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidFilter(f"the text {text!r:.80} holds half of a character, which no column can hold") from None
    return text


def _of_scalar(value: pa.Scalar) -> object:
    if not value.is_valid:
        return None
    if isinstance(value, pa.DictionaryScalar | pa.ExtensionScalar):
        return plain_value(value.as_py())
    if isinstance(value, pa.TimestampScalar):
        return _Moment(Fraction(value.value, _TICKS[value.type.unit]))
    return value.as_py()


def _of_datetime64(value: np.datetime64) -> object:
    unit, count = np.datetime_data(value.dtype)
    if unit in ("Y", "M", "W", "D"):
        return value.astype("datetime64[D]").item()
    if unit in _TICKS:
        return _Moment(Fraction(int(value.astype(np.int64)) * count, _TICKS[unit]))
    return value.astype("datetime64[s]").item() if unit in ("h", "m") else value


def _of_numpy(value: np.generic) -> object:
    item = value.item()
    if isinstance(item, np.floating) and float(item) == item:
        return float(item)  # a long double equal to a double
    return item


def _of_subclass(value: object) -> object:
    """Return a number or bytes of a subclass as the plain type."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def parse_number(text: str) -> int | Decimal:
    """Return the number of an SQL literal; a number beyond every type's range stands for all such numbers.

    Raises:
        InvalidFilter: the text is not a number.

    Example:
        >>> parse_number("12"), parse_number("1.5"), parse_number("1e99999999999999999999999")
        (12, Decimal('1.5'), Decimal('1E+999999'))
    """
    if text.isascii() and text.isdigit() and len(text) < 1000:
        return int(text)
    try:
        return Decimal(text)
    except InvalidOperation:
        # Decimal accepts exponents of at most 18 digits.
        literal = _LITERAL.fullmatch(text)
    if literal is None:
        raise InvalidFilter(f"{text!r:.80} is not a number")
    if not literal[1].strip("0._"):
        return Decimal(0)
    return Decimal("1E-999999" if literal[2] == "-" else "1E+999999")


# --------------------------------------------------------------------------------------------------------- in a type


@dataclass(frozen=True)
class Grid:
    """The values of a type as integers: days, ticks, cents; ``array`` converts them back."""

    low: int
    high: int
    array: Callable[[Sequence[int]], pa.Array]


def grid_of(kind: pa.DataType) -> Grid | None:
    """Return the grid of numbers, decimals and times; None for other types."""
    if pt.is_decimal(kind):
        most = 10**kind.precision - 1
        return Grid(-most, most, lambda numbers: pa.array([_decimal(n, kind.scale) for n in numbers], kind))
    if not (pt.is_integer(kind) or pt.is_date32(kind) or pt.is_timestamp(kind) or pt.is_time(kind)):
        return None
    low, high = _limits(kind)
    stored = kind if pt.is_integer(kind) else {32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    return Grid(low, high, lambda numbers: pa.array(numbers, stored).cast(kind))


def _limits(kind: pa.DataType) -> tuple[int, int]:
    if pt.is_time(kind):
        return 0, 86_400 * _TICKS[kind.unit] - 1
    bits = kind.bit_width
    return (0, (1 << bits) - 1) if pt.is_unsigned_integer(kind) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _decimal(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def unfit(value: object, kind: pa.DataType, name: str) -> InvalidFilter:
    """Return the error for a value that cannot be compared with a column."""
    return InvalidFilter(f"{value!r:.80} cannot be compared with column {name!r} of type {kind}")


def place(value: object, kind: pa.DataType, grid: Grid, name: str) -> Fraction:
    """Return the exact place of a value on the grid of a type.

    Raises:
        InvalidFilter: the value cannot be compared with the type.
    """
    fraction: Fraction | None = None
    try:
        if pt.is_integer(kind) or pt.is_decimal(kind):
            fraction = _number(value, kind.scale if pt.is_decimal(kind) else 0, grid)
        elif pt.is_date32(kind):
            fraction = _days(value)
        elif pt.is_timestamp(kind):
            fraction = _ticks(value, _TICKS[kind.unit])
        else:
            fraction = _time_ticks(value, _TICKS[kind.unit])
    except (ValueError, InvalidOperation):
        fraction = None
    if fraction is None:
        raise unfit(value, kind, name)
    return fraction


def _number(value: object, scale: int, grid: Grid) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = Decimal(value.strip())
    if isinstance(value, float):
        if math.isnan(value):
            return None
        value = Decimal(value)
    if isinstance(value, Decimal):
        if value.is_nan():
            return None
        # Outside every type's range: neither infinity nor a million digits become a fraction.
        if value.is_infinite() or (value and value.adjusted() > _MOST_DIGITS):
            return Fraction(grid.high + 1 if value > 0 else grid.low - 1)
        if value and value.adjusted() < -_MOST_DIGITS:
            return Fraction(1 if value > 0 else -1, 2)
        return Fraction(value) * Fraction(10**scale)
    return Fraction(value * 10**scale) if isinstance(value, int) else None


def _days(value: object) -> Fraction | None:
    if isinstance(value, _Moment):
        return value.seconds / 86_400
    if isinstance(value, str):
        value = date.fromisoformat(value) if len(value) <= 10 else _moment(value)
    if isinstance(value, datetime):
        return _since_epoch(value) / 86_400
    return Fraction((value - _EPOCH.date()).days) if isinstance(value, date) else None


def _ticks(value: object, per_second: int) -> Fraction | None:
    if isinstance(value, _Moment):
        return value.seconds * per_second
    if isinstance(value, str):
        value = _moment(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    return _since_epoch(value) * per_second if isinstance(value, datetime) else None


def _moment(text: str) -> datetime:
    digits = text.partition(".")[2].rstrip("Zz").partition("+")[0].partition("-")[0]
    if len(digits.rstrip("0")) > 6:
        raise ValueError("finer than microseconds")
    return datetime.fromisoformat(text.strip())


def _since_epoch(moment: datetime) -> Fraction:
    """Return seconds since 1970; a time without a zone is UTC."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return Fraction((aware - _EPOCH) // timedelta(microseconds=1), 1_000_000)


def _time_ticks(value: object, per_second: int) -> Fraction | None:
    if isinstance(value, str):
        value = time.fromisoformat(value)
    if not isinstance(value, time):
        return None
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return (seconds + Fraction(value.microsecond, 1_000_000)) * per_second


def held(values: Sequence[object], kind: pa.DataType, name: str) -> pa.Array:
    """Return the values that a type without floats can store.

    Raises:
        InvalidFilter: a value cannot be compared with values of the type.
    """
    grid = grid_of(kind)
    if grid is None:
        if _is_text(kind) and all(type(value) is str for value in values):
            return pa.array(values, kind)
        plain_values = [plain(value, kind, name) for value in values]
        return pa.array([value for value, _ in plain_values], plain_values[0][1] if plain_values else kind)
    if pt.is_integer(kind) and all(type(value) is int for value in values):
        return grid.array([n for n in values if isinstance(n, int) and grid.low <= n <= grid.high])
    places = [place(value, kind, grid, name) for value in values]
    return grid.array([int(point) for point in places if point.denominator == 1 and grid.low <= point <= grid.high])


def plain(value: object, kind: pa.DataType, name: str) -> tuple[object, pa.DataType]:
    """Return a value for a type without a grid (texts, bytes, booleans), and the type to compare in.

    Raises:
        InvalidFilter: the value cannot be compared with the type.
    """
    try:
        if pt.is_boolean(kind) and isinstance(value, str):
            value = {"true": True, "false": False}[value.strip().lower()]
        if (pt.is_boolean(kind) and isinstance(value, bool)) or (_is_text(kind) and isinstance(value, str)):
            return value, kind
        if _is_bytes(kind) and isinstance(value, str | bytes):
            return (value.encode() if isinstance(value, str) else value), pa.binary()
    except (ValueError, KeyError):
        pass
    raise unfit(value, kind, name)


def double(value: object, kind: pa.DataType, name: str) -> tuple[float, bool]:
    """Return a number as a double, and whether it is finite but beyond all doubles (then infinite).

    Single precision columns are compared as doubles, too, so that 0.1 is not rounded.

    Raises:
        InvalidFilter: the value is not a number.

    Example:
        >>> double("0.5", pa.float32(), "f"), double(10**400, pa.float64(), "f")
        ((0.5, False), (inf, True))
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise unfit(value, kind, name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if Decimal(value) > 0 else -math.inf
    except ValueError:
        raise unfit(value, kind, name) from None
    if not math.isinf(number) or isinstance(value, float):
        return number, False
    exact = Decimal(value.strip()) if isinstance(value, str) else value
    return number, isinstance(exact, int) or not exact.is_infinite()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))
