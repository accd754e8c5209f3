"""Terms of filters: one column against values, exactly. Pure.

A value that a column cannot hold is no error and is never rounded: the comparison becomes the one with the nearest value
below that means the same. ``fare_cents > 2.5`` on whole numbers is ``fare_cents > 2``, and what lies outside a type's
range is larger or smaller than every value. That keeps comparisons in the column's own type, where statistics prune.

Every term is true or not true: a comparison with null is not true, and neither is its opposite, as in SQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import InvalidFilter

__all__ = ["OPPOSITE", "compare", "compare_columns", "find_column", "is_in", "matches_like"]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], pc.Expression]]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

#: What holds when a comparison does not, between values that are not null.
OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


_MOST_DIGITS: Final = 60
_TICKS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Column = tuple[pc.Expression, pa.DataType]


def _never() -> pc.Expression:
    # Made when needed: the first scalar makes Arrow look for pandas, which takes most of a second.
    return pc.scalar(False)


def find_column(schema: pa.Schema, path: tuple[str, ...]) -> Column | None:
    """Return the column or nested field that `path` names, and its type; None when there is none.

    Example:
        >>> find_column(pa.schema([("a", pa.struct([("b", pa.int32())]))]), ("a", "b"))
        (<pyarrow.compute.Expression FieldRef.Nested(FieldRef.Name(a) FieldRef.Name(b))>, DataType(int32))
    """
    if schema.get_field_index(path[0]) < 0:
        return None
    kind = schema.field(path[0]).type
    for name in path[1:]:
        if not pt.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(kind.get_field_index(name)).type
    return (pc.field(path[0]) if len(path) == 1 else pc.field(*path)), kind


def compare(column: Column, operator: str, value: object, name: str) -> pc.Expression:
    """Return ``column operator value``, where the operator is one of ``= != < <= > >=``.

    Raises:
        InvalidFilter: values of that kind cannot be compared with the column.

    Example:
        >>> compare((pc.field("n"), pa.int32()), ">", Decimal("2.5"), "n")
        <pyarrow.compute.Expression (n > 2)>
    """
    field, kind = column
    if value is None:
        return _never()
    if isinstance(value, pa.Scalar):
        return _COMPARISONS[operator](field, pc.scalar(value))
    grid = _grid(kind)
    if grid is None:
        value, kind = _plain(value, kind, name)
        return _COMPARISONS[operator](field, pc.scalar(pa.scalar(value, kind)))
    wanted = _place(value, kind, grid, name)
    if wanted > grid.high or wanted < grid.low:
        holds = operator == "!=" or (operator in ("<", "<=")) == (wanted > grid.high)
        return field.is_valid() if holds and operator != "=" else _never()
    below = math.floor(wanted)
    if wanted != below:
        if operator in ("=", "!="):
            return field.is_valid() if operator == "!=" else _never()
        operator = "<=" if operator in ("<", "<=") else ">"
    return _COMPARISONS[operator](field, pc.scalar(grid.array([below])[0]))


def compare_columns(left: Column, operator: str, right: Column) -> pc.Expression:
    """Return ``left operator right``."""
    return _COMPARISONS[operator](left[0], right[0])


def is_in(column: Column, values: Iterable[object], name: str, *, negated: bool) -> pc.Expression:
    """Return whether the column is in (or not in) a list; a null in the list makes *not in* never true, as in SQL.

    Raises:
        InvalidFilter: a value cannot be compared with the column.

    Example:
        >>> is_in((pc.field("n"), pa.int32()), [1, 2.5], "n", negated=False)
        <pyarrow.compute.Expression is_in(n, {value_set=int32:[
          1
        ], null_matching_behavior=MATCH})>
    """
    field, kind = column
    given = list(values)
    if negated and any(value is None for value in given):
        return _never()
    found = field.isin(_held([value for value in given if value is not None], kind, name))
    return (~found & field.is_valid()) if negated else found


def matches_like(column: Column, pattern: object, escape: str | None, name: str, *, any_case: bool) -> pc.Expression:
    r"""Return whether a text matches an SQL pattern: ``%`` any characters, ``_`` one; no escapes unless one is given.

    Raises:
        InvalidFilter: the column is no text, or the pattern is none.

    Example:
        >>> matches_like((pc.field("s"), pa.string()), "a%", None, "s", any_case=False)
        <pyarrow.compute.Expression match_substring_regex(s, {pattern="^(?s:a.*)$", ignore_case=false})>
    """
    field, kind = column
    if not (pt.is_string(kind) or pt.is_large_string(kind)):
        raise InvalidFilter(f"like needs a text column, and {name!r} is of type {kind}")
    if pattern is None:
        return _never()
    if not isinstance(pattern, str) or (escape is not None and len(escape) != 1):
        raise InvalidFilter(f"like needs a pattern in quotes and at most one escape character, not {pattern!r:.80}")
    # Arrow's own LIKE always takes a backslash for an escape.
    return pc.match_substring_regex(field, f"^(?s:{_regex(pattern, escape)})$", ignore_case=any_case)


def _regex(pattern: str, escape: str | None) -> str:
    pieces = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape):
                raise InvalidFilter(f"the pattern {pattern!r:.80} escapes something that is neither % nor _")
            pieces.append(_quoted(letter))
        else:
            pieces.append({"%": ".*", "_": "."}.get(letter) or _quoted(letter))
    return "".join(pieces)


def _quoted(letter: str) -> str:
    return f"\\x{{{ord(letter):x}}}" if not letter.isalnum() else letter


# ------------------------------------------------------------------------------------------------------------ values


@dataclass(frozen=True)
class _Grid:
    """The values of a type as whole numbers: days, ticks, cents. ``array`` makes values of the type from them."""

    low: int
    high: int
    array: Callable[[Sequence[int]], pa.Array]


def _grid(kind: pa.DataType) -> _Grid | None:
    """Return the grid of numbers, decimals and times; None for types whose values lie on none."""
    if pt.is_decimal(kind):
        most = 10**kind.precision - 1
        return _Grid(-most, most, lambda numbers: pa.array([_decimal(n, kind.scale) for n in numbers], kind))
    if not (pt.is_integer(kind) or pt.is_date32(kind) or pt.is_timestamp(kind) or pt.is_time(kind)):
        return None
    low, high = _limits(kind)
    stored = kind if pt.is_integer(kind) else {32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    return _Grid(low, high, lambda numbers: pa.array(numbers, stored).cast(kind))


def _limits(kind: pa.DataType) -> tuple[int, int]:
    if pt.is_time(kind):
        return 0, 86_400 * _TICKS[kind.unit] - 1
    bits = kind.bit_width
    return (0, (1 << bits) - 1) if pt.is_unsigned_integer(kind) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _decimal(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _place(value: object, kind: pa.DataType, grid: _Grid, name: str) -> Fraction:
    """Return where a value lies on the grid of a type, exactly."""
    found: Fraction | None = None
    try:
        if pt.is_integer(kind) or pt.is_decimal(kind):
            found = _number(value, kind.scale if pt.is_decimal(kind) else 0, grid)
        elif pt.is_date32(kind):
            found = _days(value)
        elif pt.is_timestamp(kind):
            found = _ticks(value, _TICKS[kind.unit])
        else:
            found = _time_ticks(value, _TICKS[kind.unit])
    except (ValueError, InvalidOperation):
        found = None
    if found is None:
        raise InvalidFilter(f"{value!r:.80} cannot be compared with column {name!r} of type {kind}")
    return found


def _number(value: object, scale: int, grid: _Grid) -> Fraction | None:
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
        # Beyond every type: neither infinity nor a million digits are turned into a fraction.
        if value.is_infinite() or (value and value.adjusted() > _MOST_DIGITS):
            return Fraction(grid.high + 1 if value > 0 else grid.low - 1)
        if value and value.adjusted() < -_MOST_DIGITS:
            return Fraction(1 if value > 0 else -1, 2)
        return Fraction(value) * Fraction(10**scale)
    return Fraction(value * 10**scale) if isinstance(value, int) else None


def _days(value: object) -> Fraction | None:
    if isinstance(value, str):
        value = date.fromisoformat(value) if len(value) <= 10 else _moment(value)
    if isinstance(value, datetime):
        return _since_epoch(value) / 86_400
    return Fraction((value - _EPOCH.date()).days) if isinstance(value, date) else None


def _ticks(value: object, per_second: int) -> Fraction | None:
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
    """Return seconds since 1970; what has no zone is taken for UTC."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return Fraction((aware - _EPOCH) // timedelta(microseconds=1), 1_000_000)


def _time_ticks(value: object, per_second: int) -> Fraction | None:
    if isinstance(value, str):
        value = time.fromisoformat(value)
    if not isinstance(value, time):
        return None
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return (seconds + Fraction(value.microsecond, 1_000_000)) * per_second


def _held(values: Sequence[object], kind: pa.DataType, name: str) -> pa.Array:
    """Return those of the values that the type can hold."""
    grid = _grid(kind)
    if grid is None:
        plain = [_plain(value, kind, name) for value in values]
        return pa.array([value for value, _ in plain], plain[0][1] if plain else kind)
    places = [_place(value, kind, grid, name) for value in values]
    return grid.array([int(at) for at in places if at.denominator == 1 and grid.low <= at <= grid.high])


def _plain(value: object, kind: pa.DataType, name: str) -> tuple[object, pa.DataType]:
    """Return a value for a type without a grid, and the type to compare in: texts, bytes, truth values, floats."""
    try:
        if pt.is_floating(kind) and isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
            # As double also against a float column: 0.1 must not become the float next to it.
            return float(value), pa.float64()
        if pt.is_boolean(kind) and isinstance(value, str):
            value = {"true": True, "false": False}[value.strip().lower()]
        if (pt.is_boolean(kind) and isinstance(value, bool)) or (_is_text(kind) and isinstance(value, str)):
            return value, kind
        if _is_bytes(kind) and isinstance(value, str | bytes):
            return (value.encode() if isinstance(value, str) else value), pa.binary()
    except (ValueError, KeyError, OverflowError):
        pass
    raise InvalidFilter(f"{value!r:.80} cannot be compared with column {name!r} of type {kind}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))
