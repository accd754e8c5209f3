"""The expressions of the headers ``columns`` and ``where``: StarRocks' SQL as expressions of Arrow (pure).

sqlglot reads them, and :mod:`lakefmt._core.read.sql_expressions` translates what it lists; another function is refused by its name, and no
text is evaluated. Two things are added: fields of a CSV file are texts, and are numbers where a number is needed; and the functions
``from_unixtime`` and ``str_to_date``.

Texts and computed values also become values of a column's type here. The result for one value never depends on the values beside it: Arrow
converts a whole column only where its rules are these; what does not convert is null, and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.loads.csv_rows import Mask, has_no_number
from lakefmt._core.loads.protocol import Refusal
from lakefmt._core.loads.row_failures import StepwiseExpression
from lakefmt._core.read.sql_expressions import SqlExpression, compute_expressions, parse_expression
from lakefmt.errors import InvalidExpression

if TYPE_CHECKING:
    from datetime import tzinfo

    from sqlglot.expressions import Cast, Expr

__all__ = [
    "ColumnList",
    "Computed",
    "convert_texts",
    "fit_values",
    "local_times",
    "parse_columns",
]

_INTEGER: Final = r"^[+-]?0*[0-9]{1,38}$"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
#: Sign, digits before the point without zeros at the begin, and those behind it.
_DIGITS_OF_DECIMAL: Final = r"^(?P<s>[+-]?)0*(?P<i>[0-9]*)\.?(?P<f>[0-9]*)$"
_MOST_EXPONENT: Final = 100
_DATE: Final = r"^(?P<y>[0-9]{4})-(?P<m>[0-9]{1,2})-(?P<d>[0-9]{1,2})"
_TIME: Final = (
    r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"([ T]([01]?[0-9]|2[0-3])(:[0-5]?[0-9](:[0-5]?[0-9](\.[0-9]{1,9})?)?)?)?$"
)


def convert_texts(
    strings: pa.ChunkedArray, data_type: pa.DataType, zone: tzinfo | None = None
) -> tuple[pa.ChunkedArray, Mask]:
    """Return the values of strings, and a mask of strings that are no such values; those are null.

    Args:
        strings: null is null.
        data_type: of the values.
        zone: of times that name none; None: UTC.

    Example:
        >>> values, bad = convert_texts(pa.chunked_array([["1", "x", " 3", None]]), pa.int32())
        >>> values.to_pylist(), bad.tolist()
        ([1, None, 3, None], [False, True, False, False])
    """
    if (
        pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
    ):
        return strings.cast(data_type), np.zeros(len(strings), bool)
    if pt.is_nested(data_type):
        return _from_json(strings, data_type)
    trimmed = pc.utf8_trim_whitespace(strings)
    values = _cast_texts(trimmed, data_type, zone)
    if isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    bad = pc.and_(values.is_null(), strings.is_valid()).to_numpy()
    return values, bad


def _cast_texts(strings: pa.ChunkedArray, data_type: pa.DataType, zone: tzinfo | None) -> pa.ChunkedArray:
    if pt.is_timestamp(data_type) and data_type.tz is not None:
        return _zoned(strings, data_type, zone)
    whole = _whole_column(strings, data_type)
    if whole is not None:
        return whole
    if pt.is_boolean(data_type):
        lower = pc.utf8_lower(strings)
        is_flag = pc.is_in(lower, pa.array(["true", "false", "1", "0"]))
        return pc.if_else(is_flag, pc.is_in(lower, pa.array(["true", "1"])), pa.scalar(None, pa.bool_()))
    if pt.is_integer(data_type):
        return _integers(strings, data_type)
    if pt.is_floating(data_type):
        numbers = _matching(strings, _NUMBER).cast(data_type)
        return pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, data_type))
    if pt.is_decimal(data_type):
        return _decimals(strings, data_type)
    if pt.is_date(data_type):
        return _moments(strings, "s").cast(pa.date32()).cast(data_type)
    if pt.is_timestamp(data_type):
        return _at_unit(_moments(strings, "us"), data_type)
    if pt.is_time(data_type):
        clock = _matching(strings, r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$")
        moments = _moments(pc.binary_join_element_wise("1970-01-01", clock, " "), "us")
        return moments.cast(pa.time64("us")).cast(data_type, safe=False)
    raise Refusal(f"a column of type {data_type} is not loaded from text", rolls_back=True)


def _whole_column(strings: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray | None:
    """Return what Arrow makes of a column where its rules are these; None: its values are looked at one by one."""
    if pt.is_boolean(data_type) or pt.is_decimal(data_type):
        return None
    if pt.is_integer(data_type) and any(
        pc.fill_null(pc.starts_with(strings, mark), False).to_numpy().any() for mark in ("0x", "0X")
    ):
        return None  # Arrow reads hexadecimal, which has no sign
    try:
        values = strings.cast(data_type)
    except (pa.ArrowException, NotImplementedError):
        return None
    return None if has_no_number(values) else values


def _matching(strings: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    good = pc.fill_null(pc.match_substring_regex(strings, pattern), False)
    return pc.if_else(good, strings, pa.scalar(None, pa.string()))


def _integers(strings: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    digits = pc.replace_substring_regex(_matching(strings, _INTEGER), r"^([+-]?)0+([0-9])", r"\1\2")
    wide = digits.cast(pa.decimal128(38, 0))
    bits = data_type.bit_width
    signed = pt.is_signed_integer(data_type)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    bounds = [pa.scalar(Decimal(bound), pa.decimal128(38, 0)) for bound in (least, most)]
    fits = pc.and_(pc.greater_equal(wide, bounds[0]), pc.less_equal(wide, bounds[1]))
    return pc.if_else(pc.fill_null(fits, False), wide, pa.scalar(None, wide.type)).cast(data_type)


def _decimals(strings: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """Return decimals, rounded half away from zero; those that do not fit are null.

    Their digits are cut as texts: Arrow's division of decimals of 32 and more nines, which rounding takes, is one too small.
    """
    scale, whole_digits = data_type.scale, data_type.precision - data_type.scale
    parts = pc.extract_regex(_without_exponents(_matching(strings, _NUMBER)), _DIGITS_OF_DECIMAL)
    # A part that is missing is an empty text.
    fraction = pc.utf8_rpad(pc.struct_field(parts, "f"), scale + 1, "0")
    whole = pc.struct_field(parts, "i")
    whole = pc.if_else(pc.less_equal(pc.utf8_length(whole), whole_digits), whole, pa.scalar(None, pa.string()))
    head = pc.utf8_slice_codeunits(fraction, 0, scale)
    wide = pa.decimal256(data_type.precision + 2, scale)
    decimals = pc.binary_join_element_wise("0", whole, ".", head, "").cast(wide)
    rounds_up = pc.greater_equal(pc.utf8_slice_codeunits(fraction, scale, scale + 1), "5")
    unit = pa.scalar(Decimal(1).scaleb(-scale), wide)
    decimals = pc.if_else(
        rounds_up, pc.add(decimals, unit), decimals.cast(pa.decimal256(data_type.precision + 3, scale))
    )
    fits = pc.less(decimals, pa.scalar(Decimal(10) ** whole_digits, decimals.type))
    decimals = pc.if_else(fits, decimals, pa.scalar(None, decimals.type)).cast(data_type)
    return pc.if_else(pc.equal(pc.struct_field(parts, "s"), "-"), pc.negate(decimals), decimals)


def _without_exponents(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers written without exponents; null where that is long. One by one, each once: Arrow has no function for it."""
    has_exponent = pc.fill_null(pc.match_substring_regex(strings, "[eE]"), False)
    if not has_exponent.to_numpy().any():
        return strings
    values = strings.filter(has_exponent).unique()
    plain = pa.array([_without_exponent(number) for number in values.to_pylist()], pa.string())
    return pc.if_else(has_exponent, plain.take(pc.index_in(strings, values)), strings)


def _without_exponent(number_text: str) -> str | None:
    number = Decimal(number_text)
    return format(number, "f") if number.is_zero() or abs(number.adjusted()) < _MOST_EXPONENT else None


def _moments(strings: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    """Return timestamps without a zone of dates and times; days that there are not are null."""
    good = _matching(strings, _TIME)
    spaced = pc.replace_substring(good, "T", " ")
    head = pc.struct_field(pc.extract_regex(spaced, r"^(?P<head>[^.]*)"), "head")
    # What a time leaves out is zero.
    whole = head
    for pattern, rest in ((r"^[^ ]*$", " 00"), (r"^[^:]*$", ":00"), (r"^[^:]*:[^:]*$", ":00")):
        is_short = pc.fill_null(pc.match_substring_regex(whole, pattern), False)
        whole = pc.if_else(is_short, pc.binary_join_element_wise(whole, rest, ""), whole)
    moments = pc.strptime(whole, "%Y-%m-%d %H:%M:%S", "s", error_is_null=True)
    # A day that there is not becomes one of the next month: it is another day of the month then.
    parts = pc.extract_regex(whole, _DATE)
    day = pc.struct_field(parts, "d").cast(pa.int64())
    moments = pc.if_else(pc.equal(pc.day(moments), day), moments, pa.scalar(None, moments.type)).cast(
        pa.timestamp(unit)
    )
    if unit == "s":
        return moments
    digits = pc.struct_field(pc.extract_regex(spaced, r"\.(?P<part>[0-9]{1,9})$"), "part")
    micros = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, "0"), 0, 6).cast(pa.int64())
    return pc.add(moments, pc.fill_null(micros, 0).cast(pa.duration("us")))


def _zoned(strings: pa.ChunkedArray, data_type: pa.DataType, zone: tzinfo | None) -> pa.ChunkedArray:
    """Return moments: texts that name no zone are of the load's."""
    parts = pc.extract_regex(strings, r"^(?P<t>.*?) ?(?P<s>[+-])(?P<h>0[0-9]|1[0-4]):?(?P<m>[0-5][0-9])$")
    has_offset = parts.is_valid()
    in_utc = pc.fill_null(pc.match_substring_regex(strings, "Z$"), False)
    plain = pc.if_else(
        has_offset, pc.struct_field(parts, "t"), pc.if_else(in_utc, pc.utf8_rtrim(strings, "Z"), strings)
    )
    local = _moments(plain, "us")
    minutes = pc.add(
        pc.multiply(pc.struct_field(parts, "h").cast(pa.int64()), 60), pc.struct_field(parts, "m").cast(pa.int64())
    )
    minutes = pc.if_else(pc.equal(pc.struct_field(parts, "s"), "-"), pc.negate(minutes), minutes)
    shift = pc.multiply(pc.fill_null(minutes, 0), 60_000_000).cast(pa.duration("us"))
    with_zone = pc.subtract(local, shift).cast(pa.timestamp("us", "UTC"))
    has_zone = pc.or_(has_offset, in_utc)
    return _at_unit(pc.if_else(has_zone, with_zone, _placed(local, zone)), data_type)


def _placed(local: pa.ChunkedArray, zone: tzinfo | None) -> pa.ChunkedArray:
    """Return the moments of times of a zone."""
    if isinstance(zone, timezone):
        return pc.subtract(local, _fixed_offset(zone)).cast(pa.timestamp("us", "UTC"))
    placed = pc.assume_timezone(local, str(zone or "UTC"), ambiguous="earliest", nonexistent="latest")
    placed = placed.cast(pa.timestamp("us", "UTC"))
    if zone is None or not (late := _is_late(local)).any():
        return placed
    by_calendar = pc.subtract(local, _offsets(local, late, lambda time: time.replace(tzinfo=zone).utcoffset()))
    return pc.if_else(from_numpy(late), by_calendar.cast(placed.type), placed)


def local_times(moments: pa.ChunkedArray, zone: tzinfo | None) -> pa.ChunkedArray:
    """Return the times that clocks of a zone show.

    Args:
        moments: microseconds of UTC, without a zone.
        zone: None: UTC.

    Example:
        >>> import zoneinfo
        >>> noon = pa.chunked_array([[datetime(2050, 7, 1, 12)]], pa.timestamp("us"))
        >>> local_times(noon, zoneinfo.ZoneInfo("Europe/Oslo")).to_pylist()
        [datetime.datetime(2050, 7, 1, 14, 0)]
    """
    if zone is None:
        return moments
    if isinstance(zone, timezone):
        return pc.add(moments, _fixed_offset(zone))
    local = pc.local_timestamp(moments.cast(pa.timestamp("us", str(zone))))
    if not (late := _is_late(moments)).any():
        return local
    last = datetime(9999, 12, 30)
    offsets = _offsets(moments, late, lambda time: min(time, last).replace(tzinfo=UTC).astimezone(zone).utcoffset())
    return pc.if_else(from_numpy(late), pc.add(moments, offsets), local)


def _fixed_offset(zone: timezone) -> pa.Scalar:
    return pa.scalar(zone.utcoffset(None), pa.duration("us"))


def _is_late(times: pa.ChunkedArray) -> Mask:
    """Return which times are so late that Arrow knows no summer time of them."""
    late: Mask = pc.fill_null(pc.greater(pc.year(times), 2037), False).to_numpy()
    return late


def _offsets(times: pa.ChunkedArray, late: Mask, offset: Callable[[datetime], timedelta | None]) -> pa.ChunkedArray:
    """Return the offsets of late times from UTC; of others null. One by one, each time once: only Python's zones know them."""
    values = times.filter(from_numpy(late)).unique()
    offsets = pa.array([offset(time) for time in values.to_pylist()], pa.duration("us"))
    return offsets.take(pc.index_in(times, values))


def _at_unit(moments: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """Return microseconds as a coarser unit, the earlier one of two: a cast takes the later one before 1970."""
    unit = {"s": "second", "ms": "millisecond"}.get(data_type.unit)
    return (moments if unit is None else pc.floor_temporal(moments, unit=unit)).cast(data_type, safe=False)


def _from_json(strings: pa.ChunkedArray, data_type: pa.DataType) -> tuple[pa.ChunkedArray, Mask]:
    """Return lists, structs and maps made of JSON; one by one, since Arrow has no function for it."""
    values, bad = list[Any](), np.zeros(len(strings), bool)
    for number, json_text in enumerate(strings.to_pylist()):
        try:
            value = None if json_text is None else json.loads(json_text)
            if isinstance(value, dict) and pt.is_map(data_type):
                value = list(value.items())
            pa.scalar(value, data_type)
            values.append(value)
        except (ValueError, TypeError, RecursionError, pa.ArrowException):
            values.append(None)
            bad[number] = True
    return pa.chunked_array([pa.array(values, data_type)]), bad


def fit_values(
    values: pa.ChunkedArray, data_type: pa.DataType, zone: tzinfo | None = None
) -> tuple[pa.ChunkedArray, Mask]:
    """Return the values of an expression as a column has them, and which do not fit; those are null.

    Args:
        values: numbers lose their fraction where the column has none, as in a cast of SQL; texts become values as in :func:`convert_texts`.
        data_type: of the column.
        zone: of times that name none; None: UTC.

    Example:
        >>> fit_values(pa.chunked_array([[14.5, 1e16, 3e9]]), pa.int32())[0].to_pylist()
        [14, None, None]
    """
    if values.type.equals(data_type) or pt.is_null(values.type):
        return values.cast(data_type), np.zeros(len(values), bool)
    number = pt.is_integer(values.type) or pt.is_floating(values.type) or pt.is_decimal(values.type)
    if number and (pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_decimal(data_type)):
        fitted = _fit_numbers(values, data_type)
        return fitted, pc.and_(fitted.is_null(), values.is_valid()).to_numpy()
    if not pt.is_string(values.type):
        try:
            return values.cast(data_type), np.zeros(len(values), bool)
        except (pa.ArrowException, NotImplementedError):
            values = values.cast(pa.string())
    return convert_texts(values, data_type, zone)


def _fit_numbers(values: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    none = pa.scalar(None, values.type)
    if pt.is_floating(values.type):
        values = pc.if_else(pc.is_finite(values), values, none)
    if pt.is_floating(data_type):
        if pt.is_decimal(values.type):
            values = values.cast(pa.float64())
        floats = values.cast(data_type, safe=False)
        return pc.if_else(pc.is_finite(floats), floats, pa.scalar(None, data_type))
    if pt.is_decimal(values.type):
        digits = values.cast(pa.string())
        if pt.is_decimal(data_type):
            return _decimals(digits, data_type)
        # A small fraction is written with an exponent.
        digits = pc.if_else(pc.match_substring(digits, "E-"), pa.scalar("0"), digits)
        return _integers(pc.replace_substring_regex(digits, r"\..*$", ""), data_type)
    if pt.is_integer(values.type):
        values = values.cast(pa.decimal128(20, 0))
    if pt.is_decimal(data_type):
        if pt.is_floating(values.type):
            values = pc.round(values, data_type.scale, "half_towards_infinity")
        fits = pc.less(pc.abs(values), _bound(10 ** (data_type.precision - data_type.scale), values.type))
    else:
        values = pc.trunc(values)
        bits = data_type.bit_width - pt.is_signed_integer(data_type)
        least = _bound(-(1 << bits) if pt.is_signed_integer(data_type) else 0, values.type)
        fits = pc.and_(pc.greater_equal(values, least), pc.less(values, _bound(1 << bits, values.type)))
    return pc.if_else(pc.fill_null(fits, False), values, pa.scalar(None, values.type)).cast(data_type)


def _bound(number: int, data_type: pa.DataType) -> pa.Scalar:
    return pa.scalar(float(number)) if pt.is_floating(data_type) else pa.scalar(Decimal(number), pa.decimal256(39, 0))


_MAX_ITEMS: Final = 10_000
_OWN: Final = re.compile(
    r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\b(from_unixtime|str_to_date|substr)(?=\s*\()", re.IGNORECASE
)
_OWN_PREFIX: Final = "lakefmt_"
_NAME = re.compile(r"`([^`]+)`|([^\s`=()',\"]+)")
#: Nodes whose texts are numbers.
_NUMERIC: Final = frozenset(
    {"Add", "Sub", "Mul", "Div", "IntDiv", "Mod", "Neg", "Abs", "Round", "Floor", "Ceil", "Sqrt"}
)
_COMPARED: Final = frozenset({"EQ", "NEQ", "LT", "LTE", "GT", "GTE", "Between", "In"})
#: MySQL's signs of a date format, as Arrow has them; others are the same.
_DATE_SIGNS: Final = {"%i": "%M", "%s": "%S", "%T": "%H:%M:%S", "%k": "%H", "%e": "%d", "%c": "%m", "%M": "%B"}


@dataclass(frozen=True, slots=True)
class ColumnList:
    """The header ``columns``.

    Attributes:
        names: of the fields of a row, in their order.
        expressions: columns that are computed.
    """

    names: tuple[str, ...]
    expressions: Mapping[str, str]


def parse_columns(header_value: str) -> ColumnList:
    """Return what the header says.

    Raises:
        Refusal: it is no list of names and expressions, or names one twice.

    Example:
        >>> parse_columns("id, `v`, w = concat(v, ', '), __op")
        ColumnList(names=('id', 'v', '__op'), expressions={'w': "concat(v, ', ')"})
    """
    names, expressions = list[str](), dict[str, str]()
    for item in _items(header_value):
        match = _NAME.match(item)
        rest = "" if match is None else item[match.end() :].strip()
        if match is None or (rest and not rest.startswith("=")) or rest == "=":
            raise Refusal(
                f"Invalid columns: {item[:80]!r} is neither a name nor a name with an expression", rolls_back=True
            )
        name = match[1] or match[2]
        if name in expressions or (name in names and not rest):
            raise Refusal(f"Invalid columns: {name!r} is named twice", rolls_back=True)
        if rest:
            expressions[name] = rest[1:].strip()
        else:
            names.append(name)
    if not names:
        raise Refusal("Invalid columns: no field of the rows is named", rolls_back=True)
    return ColumnList(tuple(names), expressions)


def _items(header_value: str) -> list[str]:
    """Return the parts between commas that are outside quotes and parentheses."""
    items, depth, begin = list[str](), 0, 0
    for match in re.finditer(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[(),]", header_value):
        sign = match[0]
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            items.append(header_value[begin : match.start()].strip())
            begin = match.end()
    items.append(header_value[begin:].strip())
    if items and not items[-1]:
        items.pop()
    if len(items) > _MAX_ITEMS or not all(items):
        raise Refusal("Invalid columns: a name is missing between commas, or there are too many", rolls_back=True)
    return items


#: Returns a column, and for which rows it could not be made; there it is null.
_Make = Callable[[pa.Table], tuple[pa.ChunkedArray, Mask]]


class Computed:
    """An expression over the fields of a load, ready to be computed.

    Args:
        expression: of it.
        schema: the fields; those of CSV are texts.
        zone: of times that name none, and of those that are made of seconds; None: UTC.

    Raises:
        Refusal: it cannot be understood, names an unknown column or an unsupported function.

    Example:
        >>> Computed("a + 1", pa.schema([("a", pa.string())])).values(pa.table({"a": ["1", "x"]})).to_pylist()
        [2.0, None]
    """

    def __init__(self, expression: str, schema: pa.Schema, zone: tzinfo | None = None) -> None:
        self.text, self._schema, self._zone = expression, schema, zone
        #: Columns that are made before the expression is computed, in their order.
        self._made: list[tuple[str, _Make]] = []
        #: Those of them that may fail → the column that tells the rows.
        self._failures: dict[str, str] = {}
        self._numbers: dict[str, str] = {}
        import sqlglot  # slow import
        from sqlglot import errors

        own = _OWN.sub(_called, expression)
        try:
            tree = sqlglot.parse_one(own, dialect="mysql", into=sqlglot.exp.Condition)
            self._expression = parse_expression(self._prepared(tree).sql("duckdb"), self._schema)
        except (errors.SqlglotError, RecursionError) as error:
            raise Refusal(
                f"Invalid expression {expression[:200]!r}: {str(error).splitlines()[0][:200]}", rolls_back=True
            ) from None
        except InvalidExpression as error:
            raise Refusal(f"Invalid expression {expression[:200]!r}: {error}", rolls_back=True) from None

    @property
    def type(self) -> pa.DataType:
        """The type of its values."""
        return self._expression.type

    @property
    def columns(self) -> Sequence[str]:
        """The fields that there are."""
        return list(map(str, self._schema.names))

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return its value for each row.

        Raises:
            Refusal: it cannot be computed for a row.
        """
        values, fails = self.tried(rows)
        if fails.any():
            raise Refusal(f"the expression {self.text!r:.200} cannot be computed for every row", rolls_back=True)
        return values

    def tried(self, rows: pa.Table) -> tuple[pa.ChunkedArray, Mask]:
        """Return its value for each row, and which rows have none since it cannot be computed, such as by an overflow; there it is null.

        Raises:
            Refusal: it is not known for which rows it cannot be computed.
        """
        try:
            for name, make in self._made:
                values, fails = make(rows)
                rows = rows.append_column(name, values)
                if name in self._failures:
                    rows = rows.append_column(self._failures[name], pa.array(fails))
            return _tried(rows, self._expression, self._schema, self._failures)
        except InvalidExpression as error:
            raise Refusal(str(error), rolls_back=True) from None

    # --- what the translator does not know ---------------------------------------------------------------------------------

    def _prepared(self, tree: Expr) -> Expr:
        from sqlglot import exp

        def change(node: Expr) -> Expr:
            if isinstance(node, exp.Anonymous) and str(node.this).startswith(_OWN_PREFIX):
                return exp.column(self._own(str(node.this)[len(_OWN_PREFIX) :], node.expressions), quoted=True)
            if isinstance(node, exp.Mod | exp.IntDiv) and not isinstance(node.expression, exp.Nullif):
                # By zero comes to null.
                divisor = exp.Nullif(this=node.expression.copy(), expression=exp.Literal.number(0))
                node.set("expression", divisor)
            if isinstance(node, exp.Sqrt) and not isinstance(node.this, exp.Case):
                negative = exp.LT(this=node.this.copy(), expression=exp.Literal.number(0))
                node.set("this", exp.Case(ifs=[exp.If(this=negative, true=exp.Null())], default=node.this.copy()))
            if isinstance(node, exp.Cast) and (self._is_text(node.this) or self._is_computed_text(node)):
                return exp.column(self._cast(node), quoted=True)
            if isinstance(node, exp.Column) and self._is_number(node):
                return exp.column(self._number(node.name), quoted=True)
            return node

        # From the inside out: what a function of ours gets may have one.
        for node in reversed(list(tree.walk())):
            changed = change(node)
            if changed is not node:
                if node is tree:
                    return changed
                node.replace(changed)
        return tree

    def _is_number(self, column: Expr) -> bool:
        """Return whether the text of a field stands where a number is needed."""
        if not self._is_text(column):
            return False
        parent: Any = column.parent
        while type(parent).__name__ == "Paren":
            parent = parent.parent
        class_name = type(parent).__name__
        if class_name in _NUMERIC:
            return True
        others = [part for part in parent.iter_expressions() if part is not column] if class_name in _COMPARED else []
        return any(type(part).__name__ == "Literal" and not part.is_string for part in others)

    def _is_text(self, node: Expr) -> bool:
        index = self._schema.get_field_index(node.name) if type(node).__name__ == "Column" else -1
        return index >= 0 and pt.is_string(self._schema.field(index).type)

    def _is_computed_text(self, node: Expr) -> bool:
        """Return whether a cast makes another value of a text that is computed."""
        if type(node).__name__ != "Cast" or type(node.this).__name__ in ("Literal", "Null", "Column"):
            return False
        is_text = pt.is_string(parse_expression(node.this.sql("duckdb"), self._schema).type)
        return is_text and not pt.is_string(self._cast_type(cast("Cast", node)))

    def _cast_type(self, node: Cast) -> pa.DataType:
        return parse_expression(f"cast(null as {node.to.sql('duckdb')})", self._schema).type

    def _cast(self, node: Cast) -> str:
        """Return the column that a cast of a text makes.

        A field that is no such value is null. If the text is computed, the expression cannot be computed for that row.
        """
        data_type = self._cast_type(node)
        if self._is_text(node.this):
            name = node.this.name
            return self._add(data_type, lambda rows: convert_texts(rows.column(name), data_type, self._zone))
        argument = self._argument(node.this)

        def converted(rows: pa.Table) -> tuple[pa.ChunkedArray, Mask]:
            texts, fails = argument(rows)
            values, bad = convert_texts(texts, data_type, self._zone)
            return values, fails | bad

        return self._add(data_type, converted, may_fail=True)

    def _argument(self, node: Expr) -> _Make:
        """Return what computes an expression over the fields and the columns that are made by now."""
        inner, schema, failures = parse_expression(node.sql("duckdb"), self._schema), self._schema, {**self._failures}
        return lambda rows: _tried(rows, inner, schema, failures)

    def _add(self, data_type: pa.DataType, make: _Make, *, may_fail: bool = False) -> str:
        name = f"_lakefmt_{len(self._made)}"
        self._made.append((name, make))
        self._schema = self._schema.append(pa.field(name, data_type))
        if may_fail:
            self._failures[name] = f"{name}_fails"
        return name

    def _number(self, name: str) -> str:
        if name not in self._numbers:
            self._numbers[name] = self._add(pa.float64(), lambda rows: convert_texts(rows.column(name), pa.float64()))
        return self._numbers[name]

    def _own(self, function: str, arguments: Sequence[Expr]) -> str:
        if not 1 <= len(arguments) <= 2 or (function == "str_to_date" and len(arguments) != 2):
            raise InvalidExpression(f"{function} has another number of arguments")
        pattern = _DATE_FORMAT if len(arguments) == 1 else _format_of(function, arguments[1])
        argument = self._argument(arguments[0])

        def dates(rows: pa.Table) -> tuple[pa.ChunkedArray, Mask]:
            values, fails = argument(rows)
            return _dates(values.cast(pa.string()), pattern), fails

        if function == "str_to_date":
            return self._add(pa.timestamp("us"), dates, may_fail=True)

        def moments(rows: pa.Table) -> tuple[pa.ChunkedArray, Mask]:
            seconds, fails = argument(rows)
            if pt.is_string(seconds.type):
                good = pc.match_substring_regex(seconds, r"^-?[0-9]{1,12}$")
                seconds = pc.if_else(pc.fill_null(good, False), seconds, None)
            elif pt.is_floating(seconds.type):
                seconds = pc.floor(seconds)
            seconds = fit_values(seconds, pa.int64())[0]
            is_in_range = pc.and_(pc.greater_equal(seconds, 0), pc.less_equal(seconds, _LAST_SECOND))
            good = pc.if_else(is_in_range, seconds, None).cast(pa.timestamp("s")).cast(pa.timestamp("us"))
            return pc.strftime(local_times(good, self._zone).cast(pa.timestamp("s")), pattern), fails

        return self._add(pa.string(), moments, may_fail=True)


def _tried(
    rows: pa.Table, expression: SqlExpression, schema: pa.Schema, failures: Mapping[str, str]
) -> tuple[pa.ChunkedArray, Mask]:
    """Return the values of an expression, and for which rows there are none (:class:`StepwiseExpression`)."""
    if not any(rows.column(fails).to_numpy().any() for fails in failures.values()):
        try:
            values = compute_expressions(rows, {"value": expression}).column("value")
            return values, np.zeros(rows.num_rows, bool)
        except InvalidExpression:
            pass  # of some rows
    return StepwiseExpression(expression.text, schema, failures).compute(rows)


#: The last one of the year 9999.
_LAST_SECOND: Final = 253_402_300_799


def _dates(strings: pa.ChunkedArray, date_format: str) -> pa.ChunkedArray:
    """Return the times of texts; of a day or second that there is not there is none, and strptime gives the next one."""
    moments = pc.strptime(strings, date_format, "s", error_is_null=True)
    pattern = _date_pattern(date_format)
    parts = pc.extract_regex(strings, pattern)
    for group, part in (("d", pc.day), ("S", pc.second)):
        if f"<{group}>" in pattern:
            number = pc.struct_field(parts, group).cast(pa.int64())
            is_other = pc.fill_null(pc.not_equal(number, part(moments)), False)
            moments = pc.if_else(is_other, pa.scalar(None, moments.type), moments)
    return moments.cast(pa.timestamp("us"))


def _date_pattern(date_format: str) -> str:
    r"""Return a regular expression of texts of a format, whose groups are the numbers of the day and the second.

    Example:
        >>> _date_pattern("%d/%m %%")
        '^(?P<d>[0-9]{1,2})/[0-9]{1,2}\\s*%$'
    """
    date_format = date_format.replace("%T", "%H:%M:%S").replace("%r", "%I:%M:%S %p")
    parts, groups = list[str](), set[str]()
    for match in re.finditer(r"%(.)|\s+|[^%\s]+|%", date_format, re.DOTALL):
        sign = match[1]
        if sign in ("d", "S") and sign not in groups:
            groups.add(sign)
            parts.append(f"(?P<{sign}>[0-9]{{1,2}})")
        elif sign in _DIGITS:
            parts.append(f"[0-9]{{1,{_DIGITS[sign]}}}")
        elif sign is None or sign == "%":
            parts.append(r"\s*" if match[0].isspace() else re.escape("%" if sign else match[0]))
        else:
            parts.append(".+?")
    return f"^{''.join(parts)}{'' if groups else '(?P<all>)'}$"


#: Signs of a date format that are numbers, and of how many digits.
_DIGITS: Final = {"Y": 4, **dict.fromkeys("ymdHIMS", 2), "j": 3}


def _called(match: re.Match[str]) -> str:
    """Return a name of a function as it is parsed; texts between quotes stay."""
    if not match[1]:
        return match[0]
    name = match[0].lower()
    return "substring" if name == "substr" else _OWN_PREFIX + name


_DATE_FORMAT: Final = "%Y-%m-%d %H:%M:%S"


def _format_of(function: str, node: Expr) -> str:
    if type(node).__name__ != "Literal" or not node.is_string:
        raise InvalidExpression(f"the format of {function} is a text")
    date_format = str(node.this).replace("yyyy", "%Y").replace("MM", "%m").replace("dd", "%d").replace("HH", "%H")
    date_format = date_format.replace("mm", "%i").replace("ss", "%s")
    return re.sub("%.", lambda found: _DATE_SIGNS.get(found[0], found[0]), date_format)
