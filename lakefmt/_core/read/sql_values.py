"""Values and types of SQL expressions: literals that adapt to what stands beside them, common types, casts (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.read.filter_terms import Column, parse_number
from lakefmt.errors import InvalidExpression

__all__ = [
    "COMPARISONS",
    "FLIPPED",
    "TIMESTAMP",
    "TIMESTAMP_OF",
    "Value",
    "as_decimal",
    "assigned",
    "cast_type",
    "converted",
    "interval_of",
    "is_moment",
    "joined_numbers",
    "literal_of",
    "null_of",
    "null_value",
    "scalar_of_literal",
    "type_of_literal",
    "where_valid",
]

#: Nodes that compare two values → the operator, and the one for exchanged values.
COMPARISONS: Final = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
TIMESTAMP: Final = pa.timestamp("us", "UTC")
_CAST_TYPES: Final[dict[str, pa.DataType]] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": pa.timestamp("us"),
    "TIMESTAMPTZ": TIMESTAMP,
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
}
#: Seconds of the units of an interval; months and years differ in length.
_INTERVAL_SECONDS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of a row: an expression and its type; of a literal also its Python value.

    Attributes:
        expression: of Arrow.
        type: of its values; null for the literal NULL.
        literal: a text, number or boolean that adapts to the other operand; None: not a literal, or NULL.
        text: its SQL text, for messages.
    """

    expression: pc.Expression
    type: pa.DataType
    literal: str | int | Decimal | bool | None
    text: str

    @property
    def is_null(self) -> bool:
        """Whether it is the literal NULL."""
        return bool(pt.is_null(self.type))

    @property
    def column(self) -> Column:
        """As the terms of filters take it."""
        return self.expression, self.type


TIMESTAMP_OF: Final = {unit: pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")}


def null_of(data_type: pa.DataType) -> pc.Expression:
    """Return null of a type."""
    return pc.scalar(pa.scalar(None, data_type))


def null_value() -> Value:
    """Return the literal NULL."""
    return Value(pc.scalar(None), pa.null(), None, "NULL")


def where_valid(operands: Sequence[pc.Expression], holds: pc.Expression) -> pc.Expression:
    """Return a condition that is null where an operand is."""
    valid = reduce(lambda a, b: a & b, (operand.is_valid() for operand in operands))
    return pc.if_else(valid, holds, null_of(pa.bool_()))


def is_moment(data_type: pa.DataType) -> bool:
    """Return whether a type is a date or a timestamp."""
    return bool(pt.is_date32(data_type) or pt.is_timestamp(data_type))


def literal_of(tree: Any) -> str | int | Decimal | bool | None:
    """Return the value of a literal, also of a negated one or in parentheses; None: the tree is none, or NULL."""
    name = type(tree).__name__
    if name == "Boolean":
        return bool(tree.this)
    if name == "Literal":
        return str(tree.this) if tree.is_string else parse_number(tree.this)
    if name == "Paren":
        return literal_of(tree.this)
    inner = literal_of(tree.this) if name == "Neg" else None
    if isinstance(inner, Decimal):
        return inner.copy_negate()  # negation could round
    return -inner if isinstance(inner, int) and not isinstance(inner, bool) else None


def type_of_literal(value: str | int | Decimal | None) -> pa.DataType:
    """Return the narrowest type of a literal's class: int64, a decimal of its digits, double or string."""
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return pa.int64()
    _sign, digits, exponent = Decimal(value or 0).as_tuple()
    if not isinstance(exponent, int):
        return pa.float64()
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    return pa.float64() if precision > 38 else pa.decimal128(precision, scale)


def scalar_of_literal(value: str | int | Decimal | bool | None) -> pa.Scalar:
    """Return a literal in its own type; a number of more than 38 digits is the nearest double.

    Raises:
        InvalidExpression: no double is near.

    Example:
        >>> scalar_of_literal(Decimal("1e40")), scalar_of_literal(Decimal("1.50"))
        (<pyarrow.DoubleScalar: 1e+40>, <pyarrow.Decimal128Scalar: Decimal('1.50')>)
    """
    data_type = type_of_literal(value)
    if value is None or isinstance(value, str) or not pt.is_floating(data_type):
        return pa.scalar(value, data_type)
    number = float(str(value))
    if math.isinf(number):
        raise InvalidExpression(f"{value!s:.200} is larger than every double")
    return pa.scalar(number, data_type)


def converted(value: Value, target: pa.DataType) -> pa.Scalar:
    """Return a literal in another type, exactly or as the nearest double.

    Raises:
        InvalidExpression: the type does not hold it.
    """
    literal = value.literal
    try:
        if isinstance(literal, str) and is_moment(target):
            return _moment_of(literal, target)
        if pt.is_floating(target) and not isinstance(literal, bool) and literal is not None:
            return pa.scalar(float(literal), target)
        if isinstance(literal, Decimal) and pt.is_integer(target):
            if literal != int(literal):
                raise ValueError("PyArrow would cut the fraction off")
            return pa.scalar(int(literal), target)
        if isinstance(literal, int) and not isinstance(literal, bool) and pt.is_decimal(target):
            return pa.scalar(Decimal(literal), target)
        if isinstance(literal, bool) != bool(pt.is_boolean(target)) and not isinstance(literal, str):
            return pa.scalar(literal).cast(target)
        return pa.scalar(literal).cast(target) if isinstance(literal, str) else pa.scalar(literal, target)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InvalidExpression(f"{value.text:.200} is not a value of type {target}") from error


def assigned(value: Value, target: pa.DataType) -> Value:
    """Return a value as a column of a type takes it in SQL.

    The text of a date or time is a literal of it, a decimal becomes the nearest floating point number, and 2.0 is a whole number. Other
    values are returned as they are: who stores them says whether they fit.

    Raises:
        InvalidExpression: a text is no date or time.
    """
    literal = value.literal
    is_fraction = isinstance(literal, Decimal) and literal != literal.to_integral_value()
    takes_number = pt.is_floating(target) or (pt.is_integer(target) and not is_fraction)
    # Whole numbers are stored exactly or refused, also in floating point columns: only fractions are rounded.
    if (isinstance(literal, str) and is_moment(target)) or (isinstance(literal, Decimal) and takes_number):
        return Value(pc.scalar(converted(value, target)), target, literal, value.text)
    if pt.is_decimal(value.type) and pt.is_floating(target):
        return Value(value.expression.cast(target, safe=False), target, None, value.text)
    return value


def _moment_of(iso_moment: str, target: pa.DataType) -> pa.Scalar:
    """Return a date or a timestamp; a time without a zone is UTC."""
    moment = datetime.fromisoformat(iso_moment.strip())
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if pt.is_date32(target):
        return pa.scalar(aware.date(), target)
    return pa.scalar(aware if target.tz else aware.replace(tzinfo=None), target)


def as_decimal(data_type: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds all integers of a type; a decimal type unchanged."""
    if pt.is_decimal(data_type):
        return data_type
    digits = {8: 3, 16: 5, 32: 10, 64: 19 if pt.is_signed_integer(data_type) else 20}
    return pa.decimal128(1 if pt.is_null(data_type) else digits[data_type.bit_width], 0)


def joined_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the type of numbers in which values of two types are computed."""
    if pt.is_floating(a) or pt.is_floating(b):
        return pa.float64()
    if pt.is_integer(a) and pt.is_integer(b) and not (pt.is_uint64(a) or pt.is_uint64(b)):
        return pa.int64()
    a, b = as_decimal(a), as_decimal(b)
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    return pa.float64() if precision > 76 else (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)


def cast_type(tree: Any) -> pa.DataType:
    """Return the type that a cast names.

    Raises:
        InvalidExpression: it is not supported.
    """
    name = str(getattr(tree.this, "name", tree.this)).upper()
    if name == "DECIMAL":
        sizes = [int(str(each.this.this)) for each in tree.expressions] or [18, 3]
        try:
            return pa.decimal128(*sizes)
        except (ValueError, TypeError) as error:
            raise InvalidExpression(f"{tree.sql()}: a decimal has 1 to 38 digits") from error
    if name not in _CAST_TYPES or tree.args.get("expressions"):
        names = ", ".join(sorted({*map(str.lower, _CAST_TYPES), "decimal(p, s)"}))
        raise InvalidExpression(f"a cast to {tree.sql('duckdb')} is not supported; supported types are {names}")
    return _CAST_TYPES[name]


def interval_of(tree: Any) -> timedelta:
    """Return the length of an interval.

    Raises:
        InvalidExpression: it has none that is fixed.
    """
    unit = str(getattr(tree.args.get("unit"), "name", "")).upper().rstrip("S")
    try:
        number = Decimal(str(getattr(tree.this, "this", "")))
    except ArithmeticError:
        raise InvalidExpression(f"{tree.sql('duckdb')!r:.200} is not an interval of a number and a unit") from None
    if unit not in _INTERVAL_SECONDS:
        raise InvalidExpression(
            f"{tree.sql('duckdb')!r:.200}: intervals are of {', '.join(map(str.lower, _INTERVAL_SECONDS))}; months and years differ in length"
        )
    return timedelta(microseconds=int(number * _INTERVAL_SECONDS[unit] * 1_000_000))
