"""The functions of expression indexes, computed by columns with Spark's results. Pure.

An index is on one column and has one of the functions that Hudi knows. Those that lakefmt computes exactly as Spark does are
here; of the others, and of options that would change their results, the index is refused (docs/format.md, Expression
indexes). Times are read in the zone of the setting ``lakefmt.expression.timezone``, which stands for the time zone of the
Spark sessions that use the table.

Times become texts by the patterns of Spark's ``date_format`` and ``from_unixtime``. Spark formats with Java's
``DateTimeFormatter`` and counts years from before Christ downwards. Of its letters those that print numbers are known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.keys.joda import find_zone, to_local
from lakefmt._core.metadata.index_definitions import IndexDefinition
from lakefmt._core.metadata.statistics import is_indexable
from lakefmt.errors import UnsupportedFeature

__all__ = [
    "FUNCTIONS",
    "Expression",
    "TimePattern",
    "compile_time_pattern",
    "find_expression",
    "format_local_times",
]

I64 = npt.NDArray[np.int64]


Compute = Callable[[pa.Array], pa.Array]

#: Earlier offsets of zones are those of this moment, about the year -9000: Arrow has no rules before the year -32767.
_EARLIEST_MILLIS = -346_000_000_000_000
_EXPRESSION_OPTION = "expr"
_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
#: Letters for private use have neither upper nor lower case.
_FIRST_PRIVATE = 0xE000
_INT_MAX, _INT_MIN = (1 << 31) - 1, -(1 << 31)


@dataclass(frozen=True, slots=True)
class Expression:
    """A function of a column.

    Attributes:
        column: the column's name.
        source: its type.
        result: the type of what the function gives.
        compute: gives the values for an array of the column.
    """

    column: str
    source: pa.DataType
    result: pa.DataType
    compute: Compute

    def values(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return what the function gives for the values of a column; null for null."""
        return pa.chunked_array([self.compute(chunk.cast(self.source)) for chunk in column.chunks], self.result)


@dataclass(frozen=True, slots=True)
class _FunctionCall:
    """A function with its options, before the type of its column is known."""

    name: str
    options: Mapping[str, str]
    zone: str

    def number(self, key: str) -> int:
        text = self.options.get(key, "")
        try:
            number = int(text)
        except ValueError:
            raise UnsupportedFeature(f"the function {self.name} of an expression index needs a number {key}") from None
        if not _INT_MIN <= number <= _INT_MAX:
            raise UnsupportedFeature(f"{key}={number} of the function {self.name} does not fit into 32 bits")
        return number


def find_expression(definition: IndexDefinition, schema: pa.Schema, zone: str) -> Expression:
    """Return the function of an expression index.

    Parameters:
        definition: of the index.
        schema: the table's columns.
        zone: the time zone in which times are read.

    Raises:
        UnsupportedFeature: lakefmt does not compute this function, for a column of this type or with these options.

    Example:
        >>> definition = IndexDefinition("expr_index_n", "column_stats", "upper", ("n",))
        >>> expression = find_expression(definition, pa.schema([("n", pa.string())]), "UTC")
        >>> expression.values(pa.chunked_array([["straße", None]])).to_pylist()
        ['STRASSE', None]
    """
    function = definition.function
    build_function = FUNCTIONS.get(function)
    refusal = f"the expression index {definition.name} is not supported: "
    if build_function is None or len(definition.columns) != 1:
        raise UnsupportedFeature(
            f"{refusal}lakefmt computes {', '.join(FUNCTIONS)} of one column, not {function!r} of "
            f"{', '.join(definition.columns) or 'none'}"
        )
    column, (build, allowed) = definition.columns[0], build_function
    unknown = set(definition.options) - {_EXPRESSION_OPTION, *allowed, *_BLOOM_OPTIONS}
    if unknown:
        raise UnsupportedFeature(f"{refusal}{function} has no option {', '.join(sorted(unknown))}")
    if column not in schema.names:
        raise UnsupportedFeature(f"{refusal}the table has no column {column!r} at its top level")
    source = schema.field(column).type
    # Of short names such as EST Spark has another idea than Hudi's key generators.
    if zone not in ("UTC", find_zone(zone).region):
        raise UnsupportedFeature(f"{refusal}{zone!r} is neither UTC nor a name of the zone database")
    try:
        expression = build(_FunctionCall(function, definition.options, zone), source)
    except UnsupportedFeature as error:
        raise UnsupportedFeature(refusal + str(error)) from None
    if expression is None:
        raise UnsupportedFeature(f"{refusal}lakefmt does not compute {function} of a column of type {source}")
    result, compute = expression
    return Expression(column, source, result, compute)


#: Sizes of the filters of an index on bloom filters; the function does not depend on them.
_BLOOM_OPTIONS = ("filtertype", "numentries", "fpp", "maxentries")

Build = Callable[[_FunctionCall, pa.DataType], tuple[pa.DataType, Compute] | None]

# --------------------------------------------------------------------------------------------------------------- texts


def _identity(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    # Spark's smallest and largest number take NaN for a number; no index on them is known.
    return (source, lambda values: values) if is_indexable(source) and not pt.is_floating(source) else None


def _of_text(compute: Compute, result: pa.DataType | None = None) -> Build:
    def build(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
        return (result or pa.string(), compute) if pt.is_string(source) else None

    return build


def _changed_case(of_ascii: Compute, change: Callable[[str], str]) -> Compute:
    def compute(values: pa.Array) -> pa.Array:
        given = values.drop_null()
        if not len(given) or pc.all(pc.string_is_ascii(given)).as_py():
            return of_ascii(values)
        # One text of all values: the boundary is a letter that they do not have, which no rule of upper and lower case
        # looks beyond.
        whole = _as_one_text(given, "")
        boundary = next(char for char in map(chr, count(_FIRST_PRIVATE)) if char not in whole)
        changed = pa.array(change(_as_one_text(given, boundary)).split(boundary), pa.string())
        places = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
        return changed.take(pc.if_else(values.is_valid(), places, pa.scalar(None, pa.int64())))

    return compute


def _as_one_text(values: pa.Array, boundary: str) -> str:
    return str(pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), boundary)[0])


def _trim(plain: Callable[..., pa.Array]) -> Build:
    def build(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
        characters = call.options.get("trimString", " ")
        if not pt.is_string(source):
            return None
        return pa.string(), (lambda values: plain(values, characters=characters) if characters else values)

    return build


def _substring(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    position, length = call.number("pos"), call.number("len")
    if not pt.is_string(source):
        return None
    start = position - 1 if position > 0 else position
    stop: int | None = start + length
    if stop is not None and (stop > _INT_MAX or (start < 0 <= stop)):
        stop = None  # up to the end
    if length <= 0:
        start, stop = 0, 0
    return pa.string(), (lambda values: pc.utf8_slice_codeunits(values, start, stop))


# --------------------------------------------------------------------------------------------------------------- times


def _as_int64(values: pa.Array) -> I64:
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64)


def _with_nulls(made: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), made, pa.scalar(None, made.type))


def _local_times(micros: I64, zone: str) -> I64:
    """Return what the clocks of a zone show at moments, both in microseconds."""
    if zone == "UTC":
        return micros
    millis = np.maximum(micros // 1000, _EARLIEST_MILLIS)
    local: I64 = micros + (to_local(millis, zone) - millis) * 1000
    return local


def _local_micros(call: _FunctionCall, source: pa.DataType, *, dates: bool = True) -> Callable[[pa.Array], I64] | None:
    """Return how the local times of a column's values are found; None for a column of another type."""
    if dates and pt.is_date32(source):
        return lambda values: _as_int64(values.cast(pa.int32())) * _DAY_MICROS
    if not pt.is_timestamp(source) or source.unit not in ("us", "ms"):
        return None
    zone = "UTC" if source.tz is None else call.zone
    factor = 1 if source.unit == "us" else 1000
    return lambda values: _local_times(_as_int64(values.cast(pa.int64())) * factor, zone)


def _part_of_time(take: Callable[[I64], I64], *, dates: bool = True) -> Build:
    def build(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
        local = _local_micros(call, source, dates=dates)
        if local is None:
            return None
        return pa.int32(), lambda values: _with_nulls(pa.array(take(local(values)), pa.int32()), values)

    return build


def _months(micros: I64) -> npt.NDArray[np.datetime64]:
    return (micros // _DAY_MICROS).astype("datetime64[D]").astype("datetime64[M]")


def _year(micros: I64) -> I64:
    return _months(micros).astype("datetime64[Y]").astype(np.int64) + 1970


def _month(micros: I64) -> I64:
    return _months(micros).astype(np.int64) % 12 + 1


def _day(micros: I64) -> I64:
    first = _months(micros).astype("datetime64[D]").astype(np.int64)
    return micros // _DAY_MICROS - first + 1


def _hour(micros: I64) -> I64:
    return micros // (3600 * _MICROS) % 24


def _date_format(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    if "format" not in call.options:
        raise UnsupportedFeature("date_format needs the option format")
    pattern = compile_time_pattern(call.options["format"])
    # A date is midnight in the zone, which the clocks of some zones leap over: only its days are certain.
    local = _local_micros(call, source, dates=not any(letter in "HmsS" for letter, _ in pattern if letter))
    if local is None:
        return None
    return pa.string(), lambda values: _with_nulls(format_local_times(local(values), pattern), values)


def _from_unixtime(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    pattern = compile_time_pattern(call.options.get("format", _DEFAULT_PATTERN))
    if not (pt.is_int64(source) or pt.is_int32(source)):
        return None

    def compute(values: pa.Array) -> pa.Array:
        with np.errstate(over="ignore"):
            micros = _as_int64(values) * _MICROS  # too large a number wraps around, as in Java
        return _with_nulls(format_local_times(_local_times(micros, call.zone), pattern), values)

    return pa.string(), compute


def _without_format(call: _FunctionCall) -> None:
    if "format" in call.options:
        raise UnsupportedFeature(f"lakefmt computes {call.name} without the option format")


def _to_date(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    _without_format(call)
    return _moved_date(call, source, 0)


def _moved_date(call: _FunctionCall, source: pa.DataType, days: int) -> tuple[pa.DataType, Compute] | None:
    local = _local_micros(call, source)
    if local is None:
        return None

    def compute(values: pa.Array) -> pa.Array:
        moved = (local(values) // _DAY_MICROS + days).astype(np.int32)  # wraps around, as in Java
        return _with_nulls(pa.array(moved).cast(pa.date32()), values)

    return pa.date32(), compute


def _to_timestamp(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    _without_format(call)
    return (source, lambda values: values) if pt.is_timestamp(source) and source == pa.timestamp("us", "UTC") else None


def _unix_timestamp(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    _without_format(call)
    if not pt.is_timestamp(source) or source.unit != "us" or source.tz is None:
        return None

    def compute(values: pa.Array) -> pa.Array:
        return _with_nulls(pa.array(_as_int64(values.cast(pa.int64())) // _MICROS), values)

    return pa.int64(), compute


#: By the name in the index's definition: how the function is made, and the options that it takes.
FUNCTIONS: Mapping[str, tuple[Build, tuple[str, ...]]] = {
    "identity": (_identity, ()),
    "lower": (_of_text(_changed_case(pc.ascii_lower, str.lower)), ()),
    "upper": (_of_text(_changed_case(pc.ascii_upper, str.upper)), ()),
    "trim": (_trim(pc.utf8_trim), ("trimString",)),
    "ltrim": (_trim(pc.utf8_ltrim), ("trimString",)),
    "rtrim": (_trim(pc.utf8_rtrim), ("trimString",)),
    "length": (_of_text(pc.utf8_length, pa.int32()), ()),
    "substring": (_substring, ("pos", "len")),
    "year": (_part_of_time(_year), ()),
    "month": (_part_of_time(_month), ()),
    "day": (_part_of_time(_day), ()),
    "hour": (_part_of_time(_hour, dates=False), ()),
    "date_format": (_date_format, ("format",)),
    "from_unixtime": (_from_unixtime, ("format",)),
    "unix_timestamp": (_unix_timestamp, ("format",)),
    "to_date": (_to_date, ("format",)),
    "to_timestamp": (_to_timestamp, ("format",)),
    "date_add": (lambda call, source: _moved_date(call, source, call.number("days")), ("days",)),
    "date_sub": (lambda call, source: _moved_date(call, source, -call.number("days")), ("days",)),
}


# -------------------------------------------------------------------------------------------------------- time patterns

#: Letters with their numbers of digits, or texts.
TimePattern = tuple[tuple[str, int | str], ...]
_MOST_PATTERN_CHARACTERS = 200
_PATTERN_PIECE = re.compile(r"''|'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z'#{}\[\]]+")
#: How often a letter may stand in a row.
_LETTER_WIDTHS = {
    "y": (1, 4),
    "M": (1, 2),
    "d": (1, 2),
    "H": (1, 2),
    "m": (1, 2),
    "s": (1, 2),
    "S": tuple(range(1, 10)),
}
_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS
_LETTER_DIVISORS = {"H": 3600 * _MICROS, "m": 60 * _MICROS, "s": _MICROS}
_LETTER_RANGES = {"H": 24, "m": 60, "s": 60}
#: Years with more digits have their sign printed.
_FOUR_DIGITS = 9999


@lru_cache(maxsize=64)
def compile_time_pattern(text: str) -> TimePattern:
    """Return the parts of a pattern.

    Raises:
        UnsupportedFeature: it has a letter that prints words or depends on a country, or a part in brackets.

    Example:
        >>> compile_time_pattern("yyyy-MM'T'HH")
        (('y', 4), ('', '-'), ('M', 2), ('', 'T'), ('H', 2))
    """
    parts: list[tuple[str, int | str]] = []
    place = 0
    while place < len(text) <= _MOST_PATTERN_CHARACTERS:
        match = _PATTERN_PIECE.match(text, place)
        letters = "" if match is None else match.group()
        if not letters or (
            letters[0].isascii() and letters[0].isalpha() and len(letters) not in _LETTER_WIDTHS.get(letters[0], ())
        ):
            break
        if letters[0].isascii() and letters[0].isalpha():
            parts.append((letters[0], len(letters)))
        else:
            inner = letters[1:-1] if letters[0] == "'" and letters != "''" else letters
            parts.append(("", inner.replace("''", "'")))
        place += len(letters)
    if place != len(text) or not text:
        raise UnsupportedFeature(
            f"the time pattern {text[:40]!r} is not supported: lakefmt writes yyyy, MM, dd, HH, mm, ss, S and plain text"
        )
    return tuple(parts)


def format_local_times(micros: I64, pattern: TimePattern) -> pa.Array:
    """Return local times as texts.

    Parameters:
        micros: what the clock of a zone shows, in microseconds since 1970.
        pattern: from :func:`compile_time_pattern`.

    Example:
        >>> format_local_times(np.array([0, -1]), compile_time_pattern("yyyy/MM/dd HH:mm:ss.SSS")).to_pylist()
        ['1970/01/01 00:00:00.000', '1969/12/31 23:59:59.999']
    """
    days, within = np.divmod(micros, _DAY_MICROS)
    texts = [
        pa.scalar(str(width), pa.string()) if not letter else _printed_letter(letter, int(width), days, within)
        for letter, width in pattern
    ]
    empty = pa.array(np.zeros(len(micros), "U1"), pa.string())
    return pc.binary_join_element_wise(empty, *texts, "")


def _printed_letter(letter: str, width: int, days: I64, within: I64) -> pa.Array:
    if letter in _LETTER_RANGES:
        return _padded_numbers(within // _LETTER_DIVISORS[letter] % _LETTER_RANGES[letter], width)
    if letter == "S":
        nanos = _padded_numbers(within % _MICROS * 1000, 9)
        return pc.utf8_slice_codeunits(nanos, 0, width)
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    if letter == "d":
        return _padded_numbers((dates - months.astype("datetime64[D]")).astype(np.int64) + 1, width)
    if letter == "M":
        return _padded_numbers(months.astype(np.int64) % 12 + 1, width)
    return _printed_years(months.astype("datetime64[Y]").astype(np.int64) + 1970, width)


def _padded_numbers(numbers: I64, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def _printed_years(years: I64, width: int) -> pa.Array:
    plus = "+" if width > 1 else ""
    sign = pc.if_else(pa.array(years < 0), "-", pc.if_else(pa.array(years > _FOUR_DIGITS), plus, ""))
    return pc.binary_join_element_wise(sign, _padded_numbers(np.abs(years), width), "")
