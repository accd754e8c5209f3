"""What the range of an expression says of the column that the expression is of. Pure.

Only functions that rise with their column are here. An index does not say in which time zone times were read (Hudi stores
none), so moments with a zone are taken as they may be in any: an end moves by the largest difference from UTC.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import UnsupportedFeature
from lakefmt.metadata.expressions.functions import TimePattern, compile_time_pattern
from lakefmt.metadata.index_definitions import IndexDefinition

__all__ = ["column_ranges", "is_rising", "wraps_around"]

I64 = npt.NDArray[np.int64]

_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS
#: Java's zones differ from UTC by 18 hours at most.
_ZONE_MICROS = 18 * 3600 * _MICROS
_UNIX_PATTERN = "yyyy-MM-dd HH:mm:ss"
#: Letters of a pattern whose texts are in the order of time, with their number of digits.
_ORDERED = (("y", 4), ("M", 2), ("d", 2), ("H", 2), ("m", 2), ("s", 2))
_UNITS: Mapping[str, int] = {"d": _DAY_MICROS, "H": 3600 * _MICROS, "m": 60 * _MICROS, "s": _MICROS}
#: Of more days a date could leave its range.
_MOST_DAYS = 100_000
#: Ends further away are not used: microseconds would not hold them.
_MOST_YEARS, _FURTHEST_DAY = 200_000, 73_000_000
#: Later and earlier seconds than these wrap around in from_unixtime.
_MOST_SECONDS = (1 << 63) // _MICROS - 86_400 * 366


def is_rising(definition: IndexDefinition, column: pa.DataType) -> bool:
    """Return whether the function of an index rises with its column, so that its range is one of the column's.

    Parameters:
        definition: of the index.
        column: the column's type.

    Example:
        >>> day = IndexDefinition("expr_index_d", "column_stats", "date_format", ("at",), {"format": "yyyy-MM-dd"})
        >>> is_rising(day, pa.timestamp("us", "UTC")), is_rising(day, pa.string())
        (True, False)
    """
    function, of_time = definition.function, pt.is_date32(column) or _is_timestamp(column)
    if function in ("date_format", "from_unixtime"):
        kind = pt.is_integer(column) if function == "from_unixtime" else of_time
        return bool(kind) and _pattern(definition) is not None
    if function in ("date_add", "date_sub"):
        return of_time and _days(definition) is not None
    return function in ("year", "to_date") and of_time


def wraps_around(definition: IndexDefinition, column: pa.DataType) -> tuple[int, int] | None:
    """Return the ends beyond which the function does not rise any more; None: there are none.

    Parameters:
        definition: of the index.
        column: the column's type.
    """
    return (-_MOST_SECONDS, _MOST_SECONDS) if definition.function == "from_unixtime" and pt.is_int64(column) else None


def column_ranges(definition: IndexDefinition, ranges: pa.Table, column: pa.DataType) -> pa.Table:
    """Return ranges of the column from ranges of the function, in the form of ``joined_ranges``.

    Parameters:
        definition: of an index whose function rises.
        ranges: of what the function gives.
        column: the column's type.

    Example:
        >>> day = IndexDefinition("expr_index_d", "column_stats", "date_format", ("d",), {"format": "yyyy-MM"})
        >>> flags = {name: [True] for name in ("has_nulls", "has_values", "is_known")}
        >>> found = column_ranges(day, pa.table({"min": ["2026-01"], "max": ["2026-02"], **flags}), pa.date32())
        >>> [str(found[name][0]) for name in ("min", "max")]
        ['2026-01-01', '2026-02-28']
    """
    first, behind = (_local_micros(definition, ranges[end].combine_chunks(), end == "max") for end in ("min", "max"))
    if not pt.is_date32(column) and not (_is_timestamp(column) and column.tz is None):
        first, behind = pc.subtract(first, _ZONE_MICROS), pc.add(behind, _ZONE_MICROS)
    low, high = _of_column(first, column), _of_column(pc.subtract(behind, 1), column)
    usable = pc.and_(ranges["has_values"], pc.and_(low.is_valid(), high.is_valid()))
    columns = {
        "min": low,
        "max": high,
        "has_nulls": pa.array(np.ones(len(ranges), bool)),
        "has_values": ranges["has_values"],
        # Files with nulls alone are not told from those of which nothing is known.
        "is_known": pc.and_(ranges["is_known"], usable),
    }
    return pa.table(columns)


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.unit in ("us", "ms"))


def _days(definition: IndexDefinition) -> int | None:
    """Return by how many days the function moves a date; None where it is no usual number."""
    try:
        days = int(definition.options.get("days", "0"))
    except ValueError:
        return None
    if abs(days) > _MOST_DAYS:
        return None
    return {"date_add": days, "date_sub": -days}.get(definition.function, 0)


def _pattern(definition: IndexDefinition) -> TimePattern | None:
    """Return the pattern of a function that prints times, if its texts are in the order of time."""
    default = _UNIX_PATTERN if definition.function == "from_unixtime" else ""
    try:
        pattern = compile_time_pattern(definition.options.get("format", default))
    except UnsupportedFeature:
        return None
    letters = tuple(part for part in pattern if part[0])
    return pattern if letters and letters == _ORDERED[: len(letters)] else None


def _local_micros(definition: IndexDefinition, ends: pa.Array, behind: bool) -> pa.Array:
    """Return the first local time, or the one behind the last, at which the function gives an end; null: not known."""
    function = definition.function
    if function == "year":
        years = pc.add(_within(ends.cast(pa.int64()), -_MOST_YEARS, _MOST_YEARS), int(behind))
        return _filled(lambda numbers: _month_micros(numbers * 12), pc.subtract(years, 1970))
    if function in ("date_format", "from_unixtime"):
        return _printed_micros(_pattern(definition) or (), ends, behind)
    days = _within(ends.cast(pa.int32()).cast(pa.int64()), -_FURTHEST_DAY, _FURTHEST_DAY)
    return pc.multiply(pc.subtract(days, (_days(definition) or 0) - int(behind)), _DAY_MICROS)


def _filled(compute: object, numbers: pa.Array) -> pa.Array:
    values = np.asarray(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), np.int64)
    made = pa.array(compute(values))  # type: ignore[operator]
    return pc.if_else(numbers.is_valid(), made, pa.scalar(None, pa.int64()))


def _month_micros(months: I64) -> I64:
    """Return when months begin, counted since 1970."""
    begins: I64 = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) * _DAY_MICROS
    return begins


def _printed_micros(pattern: TimePattern, texts: pa.Array, behind: bool) -> pa.Array:
    """Return the moments that texts of a pattern begin at, or end before."""
    expected = "".join(f"[0-9]{{{width}}}" if letter else _quoted(str(width)) for letter, width in pattern)
    texts = pc.if_else(
        pc.fill_null(pc.match_substring_regex(texts, f"^{expected}$"), False), texts, pa.scalar(None, pa.string())
    )
    numbers: dict[str, pa.Array] = {}
    place, last = 0, "y"
    for letter, width in pattern:
        stop = place + (int(width) if letter else len(str(width)))
        if letter:
            numbers[letter], last = pc.utf8_slice_codeunits(texts, place, stop).cast(pa.int64()), letter
        place = stop
    if behind:
        numbers[last] = pc.add(numbers[last], 1)
    months = pc.multiply(pc.subtract(numbers["y"], 1970), 12)
    micros = _filled(_month_micros, pc.add(months, pc.subtract(numbers["M"], 1)) if "M" in numbers else months)
    for letter, unit in _UNITS.items():
        if letter in numbers:
            micros = pc.add(micros, pc.multiply(pc.subtract(numbers[letter], int(letter == "d")), unit))
    return micros


def _quoted(text: str) -> str:
    return "".join(f"\\x{{{ord(char):x}}}" for char in text)


def _of_column(micros: pa.Array, column: pa.DataType) -> pa.Array:
    """Return local times as values of the column's type; null for those that it does not hold."""
    if pt.is_date32(column):
        days = _floor_divided(micros, _DAY_MICROS)
        return _within(days, -(1 << 31), (1 << 31) - 1).cast(pa.int32()).cast(column)
    if _is_timestamp(column):
        numbers = micros if column.unit == "us" else _floor_divided(micros, 1000)
        return numbers.cast(column)
    seconds = _floor_divided(micros, _MICROS)
    if pt.is_int32(column):
        # An end outside of the type is one of all its values.
        return pc.min_element_wise(pc.max_element_wise(seconds, -(1 << 31)), (1 << 31) - 1).cast(column)
    return seconds.cast(column)


def _floor_divided(micros: pa.Array, unit: int) -> pa.Array:
    return _filled(lambda numbers: numbers // unit, micros)


def _within(numbers: pa.Array, low: int, high: int) -> pa.Array:
    usual = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(pc.fill_null(usual, False), numbers, pa.scalar(None, pa.int64()))
