"""Conditions on rows, and the terms that they are made of: one column compared with values, exactly (pure).

A value that a column cannot store is neither an error nor rounded: it is between two values of the type, or outside its
range. A comparison uses the nearest lower value of the type with the same meaning. ``fare_cents > 2.5`` on integers is
``fare_cents > 2``, and a value outside the type's range is larger or smaller than all. So comparisons keep the column's
type, in which statistics prune.

A comparison with null is not true, and neither is its opposite, as in SQL.

Statistics of floating point columns ignore NaN and the sign of zero. Arrow takes them as bounds of all values: it drops
row groups in which ``not (x > 5)`` is true for NaN. A condition therefore has two expressions. One selects exactly the
rows; the other may be compared with statistics, because it is true for every selected row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.types as pt

from lakefmt._core.arguments import is_encodable
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.schema.types import is_binary, is_string
from lakefmt.errors import InvalidFilter

__all__ = [
    "Condition",
    "Grid",
    "all_of",
    "any_of",
    "compare",
    "compare_columns",
    "double",
    "exactly",
    "find_column",
    "grid_of",
    "held",
    "holds_floats",
    "is_in",
    "list_of",
    "matches_like",
    "one_of",
    "parse_number",
    "place",
    "plain",
    "plain_value",
    "satisfiable",
]

#: Arrow builds a deep tree from a chain and walks it recursively; a longer chain overflows the
#: stack.
_MOST_TERMS: Final = 4000
#: More values of one column are not kept beside a condition.
_MOST_KEPT_VALUES: Final = 10_000

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition on rows.

    Attributes:
        exact: true for exactly the selected rows.
        pruning: true for every selected row, also when evaluated on statistics; None: no pruning.
        may_fail: the exact expression is the caller's, of Arrow, and may raise when evaluated.
        terms: the number of joined comparisons.
        values: by column, with dots when it is nested, the values that it has in every selected row; few columns are there.
    """

    exact: pc.Expression
    pruning: pc.Expression | None
    may_fail: bool = False
    terms: int = 1
    values: Mapping[str, pa.Array] = field(default_factory=dict)

    @property
    def prunes_exactly(self) -> bool:
        """Whether pruning and exact expression are the same."""
        return self.pruning is self.exact

    def __and__(self, other: Condition) -> Condition:
        return all_of([self, other])

    def __or__(self, other: Condition) -> Condition:
        return any_of([self, other])


def exactly(expression: pc.Expression) -> Condition:
    """Return a condition that statistics may evaluate."""
    return Condition(expression, expression)


def one_of(condition: Condition, column: str, values: pa.Array) -> Condition:
    """Return the condition, with the values of a column that every selected row has one of."""
    return condition if len(values) > _MOST_KEPT_VALUES else replace(condition, values={column: values})


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return the conjunction of conditions.

    Example:
        >>> both = all_of([exactly(pc.field("a") > 1), Condition(pc.field("b") != 2, None)])
        >>> both.exact, both.pruning
        (<pyarrow.compute.Expression ((a > 1) and (b != 2))>, <pyarrow.compute.Expression (a > 1)>)
    """
    terms = _checked_terms(conditions)
    exact = _balanced_chain([each.exact for each in conditions], lambda a, b: a & b)
    prunable = [each.pruning for each in conditions if each.pruning is not None]
    pruning = _balanced_chain(prunable, lambda a, b: a & b) if prunable else None
    values: dict[str, pa.Array] = {}
    for name, some in ((name, some) for each in conditions for name, some in each.values.items()):
        values[name] = min(values.get(name, some), some, key=len)
    return _joined_conditions(conditions, exact, pruning, terms, values)


def any_of(conditions: Sequence[Condition]) -> Condition:
    """Return the disjunction of conditions.

    Example:
        >>> either = any_of([exactly(pc.field("a") > 1), Condition(pc.field("b") != 2, None)])
        >>> either.exact, either.pruning
        (<pyarrow.compute.Expression ((a > 1) or (b != 2))>, None)
    """
    terms = _checked_terms(conditions)
    exact = _balanced_chain([each.exact for each in conditions], lambda a, b: a | b)
    prunable = [each.pruning for each in conditions if each.pruning is not None]
    pruning = _balanced_chain(prunable, lambda a, b: a | b) if len(prunable) == len(conditions) else None
    return _joined_conditions(conditions, exact, pruning, terms, _values_of_any(conditions))


def _values_of_any(conditions: Sequence[Condition]) -> dict[str, pa.Array]:
    """Return the values of columns that every condition names."""
    common = set.intersection(*({*each.values} for each in conditions))
    named = {name: [each.values[name] for each in conditions] for name in sorted(common)}
    return {name: pa.concat_arrays(some) for name, some in named.items() if sum(map(len, some)) <= _MOST_KEPT_VALUES}


def _checked_terms(conditions: Sequence[Condition]) -> int:
    terms = sum(each.terms for each in conditions)
    if terms > _MOST_TERMS:
        raise InvalidFilter(
            f"the filter joins {terms:,} comparisons; at most {_MOST_TERMS:,} are: use `in` for many values"
        )
    return terms


def _joined_conditions(
    conditions: Sequence[Condition],
    exact: pc.Expression,
    pruning: pc.Expression | None,
    terms: int,
    values: Mapping[str, pa.Array],
) -> Condition:
    same = all(each.prunes_exactly for each in conditions)
    return Condition(exact, exact if same else pruning, any(each.may_fail for each in conditions), terms, values)


def _balanced_chain(items: Sequence[_Item], join: Callable[[_Item, _Item], _Item]) -> _Item:
    """Return the items joined as a balanced tree: printing or hashing a deep one overflows the stack."""
    level = list(items)
    while len(level) > 1:
        pairs = [join(level[index], level[index + 1]) for index in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


def satisfiable(
    guarantees: Sequence[pc.Expression | None], condition: pc.Expression, schema: pa.Schema
) -> npt.NDArray[np.bool_]:
    """Return whether rows of which each guarantee is true may satisfy a condition.

    Parameters:
        guarantees: what is true of all rows of a file, slice or partition; None: nothing is known.
        condition: the condition.
        schema: the columns of both.

    Raises:
        pyarrow.ArrowException: the condition cannot be evaluated.

    Example:
        >>> a = pc.field("a")
        >>> satisfiable([a > 5, a < 5, None], a == 7, pa.schema([("a", pa.int64())])).tolist()
        [True, False, True]
    """
    import pyarrow.dataset as ds  # slow import that writers do not need

    # Arrow simplifies the condition under the guarantee of each fragment, and drops those for which it becomes false.
    source, layout = pafs.LocalFileSystem(), ds.ParquetFileFormat()
    fragments = [
        layout.make_fragment(
            str(number), source, partition_expression=pc.scalar(True) if guarantee is None else guarantee
        )
        for number, guarantee in enumerate(guarantees)
    ]
    mask = np.zeros(len(fragments), bool)
    dataset = ds.FileSystemDataset(fragments, schema, layout, source)
    mask[[int(fragment.path) for fragment in dataset.get_fragments(filter=condition)]] = True
    return mask


def holds_floats(data_type: pa.DataType) -> bool:
    """Return whether a type is or contains floating point numbers.

    Example:
        >>> holds_floats(pa.struct([("x", pa.list_(pa.float32()))])), holds_floats(pa.decimal128(4, 2))
        (True, False)
    """
    if isinstance(data_type, pa.BaseExtensionType):
        return holds_floats(data_type.storage_type)
    if pt.is_dictionary(data_type):
        return holds_floats(data_type.value_type)
    inner = (data_type.field(number).type for number in range(data_type.num_fields))
    return bool(pt.is_floating(data_type)) or any(map(holds_floats, inner))


_MOST_DIGITS: Final = 60
_MOST_LITERALS: Final = 10_000_000
_TICKS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXPONENT_NUMBER: Final = re.compile(r"([0-9._]+)[eE]([+-]?)[0-9]+", re.ASCII)


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
    if len(sized) > _MOST_LITERALS:
        raise InvalidFilter(f"{len(sized):,} values are given; at most {_MOST_LITERALS:,} are compared with")
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
        return _plain_text(value)
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, pa.Scalar):
        return _plain_scalar(value)
    if isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value):
        return None
    if isinstance(value, np.datetime64):
        return _plain_datetime64(value)
    if isinstance(value, np.generic):
        return _plain_numpy(value)
    if type(value).__name__ in ("NaTType", "NAType"):  # pandas: importing it takes half a second
        return None
    finer: Any = getattr(value, "nanosecond", None) if isinstance(value, datetime) else None
    if finer and isinstance(value, datetime):
        return _Moment(_seconds_since_epoch(value) + Fraction(int(finer), 1_000_000_000))
    return _plain_subclass(value)


def _plain_text(value: str) -> str:
    text = str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidFilter(f"the text {text!r:.80} holds half of a character, which no column can hold") from None
    return text


def _plain_scalar(value: pa.Scalar) -> object:
    if not value.is_valid:
        return None
    if isinstance(value, pa.DictionaryScalar | pa.ExtensionScalar):
        return plain_value(value.as_py())
    if isinstance(value, pa.TimestampScalar):
        return _Moment(Fraction(value.value, _TICKS[value.type.unit]))
    return value.as_py()


def _plain_datetime64(value: np.datetime64) -> object:
    unit, count = np.datetime_data(value.dtype)
    if unit in ("Y", "M", "W", "D"):
        return value.astype("datetime64[D]").item()
    if unit in _TICKS:
        return _Moment(Fraction(int(value.astype(np.int64)) * count, _TICKS[unit]))
    return value.astype("datetime64[s]").item() if unit in ("h", "m") else value


def _plain_numpy(value: np.generic) -> object:
    item = value.item()
    if isinstance(item, np.floating) and float(item) == item:
        return float(item)  # a long double equal to a double
    return item


def _plain_subclass(value: object) -> object:
    """Return a number or bytes of a subclass as the plain type."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def parse_number(numeral: str) -> int | Decimal:
    """Return the number of an SQL literal; a number beyond every type's range stands for all such numbers.

    Raises:
        InvalidFilter: the text is not a number.

    Example:
        >>> parse_number("12"), parse_number("1.5"), parse_number("1e99999999999999999999999")
        (12, Decimal('1.5'), Decimal('1E+999999'))
    """
    if numeral.isascii() and numeral.isdigit() and len(numeral) < 1000:
        return int(numeral)
    try:
        return Decimal(numeral)
    except InvalidOperation:
        # Decimal accepts exponents of at most 18 digits.
        literal = _EXPONENT_NUMBER.fullmatch(numeral)
    if literal is None:
        raise InvalidFilter(f"{numeral!r:.80} is not a number")
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


def grid_of(data_type: pa.DataType) -> Grid | None:
    """Return the grid of numbers, decimals and times; None for other types."""
    if pt.is_decimal(data_type):
        most = 10**data_type.precision - 1
        return Grid(
            -most, most, lambda numbers: pa.array([_scaled_decimal(n, data_type.scale) for n in numbers], data_type)
        )
    if not (pt.is_integer(data_type) or pt.is_date32(data_type) or pt.is_timestamp(data_type) or pt.is_time(data_type)):
        return None
    low, high = _integer_limits(data_type)
    stored = data_type if pt.is_integer(data_type) else {32: pa.int32(), 64: pa.int64()}[data_type.bit_width]
    return Grid(low, high, lambda numbers: pa.array(numbers, stored).cast(data_type))


def _integer_limits(data_type: pa.DataType) -> tuple[int, int]:
    if pt.is_time(data_type):
        return 0, 86_400 * _TICKS[data_type.unit] - 1
    bits = data_type.bit_width
    return (0, (1 << bits) - 1) if pt.is_unsigned_integer(data_type) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _scaled_decimal(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def unfit(value: object, data_type: pa.DataType, name: str) -> InvalidFilter:
    """Return the error for a value that cannot be compared with a column."""
    return InvalidFilter(f"{value!r:.80} cannot be compared with column {name!r} of type {data_type}")


def place(value: object, kind: pa.DataType, grid: Grid, name: str) -> Fraction:
    """Return the exact place of a value on the grid of a type.

    Raises:
        InvalidFilter: the value cannot be compared with the type.
    """
    fraction: Fraction | None = None
    try:
        if pt.is_integer(kind) or pt.is_decimal(kind):
            fraction = _number_on_grid(value, kind.scale if pt.is_decimal(kind) else 0, grid)
        elif pt.is_date32(kind):
            fraction = _days_since_epoch(value)
        elif pt.is_timestamp(kind):
            fraction = _ticks_since_epoch(value, _TICKS[kind.unit])
        else:
            fraction = _ticks_of_day(value, _TICKS[kind.unit])
    except (ValueError, InvalidOperation):
        fraction = None
    if fraction is None:
        raise unfit(value, kind, name)
    return fraction


def _number_on_grid(value: object, scale: int, grid: Grid) -> Fraction | None:
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


def _days_since_epoch(value: object) -> Fraction | None:
    if isinstance(value, _Moment):
        return value.seconds / 86_400
    if isinstance(value, str):
        value = date.fromisoformat(value) if len(value) <= 10 else _parse_moment(value)
    if isinstance(value, datetime):
        return _seconds_since_epoch(value) / 86_400
    return Fraction((value - _EPOCH.date()).days) if isinstance(value, date) else None


def _ticks_since_epoch(value: object, per_second: int) -> Fraction | None:
    if isinstance(value, _Moment):
        return value.seconds * per_second
    if isinstance(value, str):
        value = _parse_moment(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    return _seconds_since_epoch(value) * per_second if isinstance(value, datetime) else None


def _parse_moment(iso_moment: str) -> datetime:
    digits = iso_moment.partition(".")[2].rstrip("Zz").partition("+")[0].partition("-")[0]
    if len(digits.rstrip("0")) > 6:
        raise ValueError("finer than microseconds")
    return datetime.fromisoformat(iso_moment.strip())


def _seconds_since_epoch(moment: datetime) -> Fraction:
    """Return seconds since 1970; a time without a zone is UTC."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return Fraction((aware - _EPOCH) // timedelta(microseconds=1), 1_000_000)


def _ticks_of_day(value: object, per_second: int) -> Fraction | None:
    if isinstance(value, str):
        value = time.fromisoformat(value)
    if not isinstance(value, time):
        return None
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return (seconds + Fraction(value.microsecond, 1_000_000)) * per_second


def held(values: Sequence[object], data_type: pa.DataType, name: str) -> pa.Array:
    """Return the values that a type without floats can store.

    Raises:
        InvalidFilter: a value cannot be compared with values of the type.
    """
    grid = grid_of(data_type)
    if grid is None:
        if is_string(data_type) and all(type(value) is str for value in values):
            return pa.array(values, data_type)
        plain_values = [plain(value, data_type, name) for value in values]
        return pa.array([value for value, _ in plain_values], plain_values[0][1] if plain_values else data_type)
    if pt.is_integer(data_type) and all(type(value) is int for value in values):
        return grid.array([n for n in values if isinstance(n, int) and grid.low <= n <= grid.high])
    points = [place(value, data_type, grid, name) for value in values]
    return grid.array([int(point) for point in points if point.denominator == 1 and grid.low <= point <= grid.high])


def plain(value: object, data_type: pa.DataType, name: str) -> tuple[object, pa.DataType]:
    """Return a value for a type without a grid (texts, bytes, booleans), and the type to compare in.

    Raises:
        InvalidFilter: the value cannot be compared with the type.
    """
    try:
        if pt.is_boolean(data_type) and isinstance(value, str):
            value = {"true": True, "false": False}[value.strip().lower()]
        if (pt.is_boolean(data_type) and isinstance(value, bool)) or (is_string(data_type) and isinstance(value, str)):
            return value, data_type
        if is_binary(data_type) and isinstance(value, str | bytes):
            return (value.encode() if isinstance(value, str) else value), pa.binary()
    except (ValueError, KeyError):
        pass
    raise unfit(value, data_type, name)


def double(value: object, data_type: pa.DataType, name: str) -> tuple[float, bool]:
    """Return a number as a double, and whether it is finite but beyond all doubles (then infinite).

    Single precision columns are compared as doubles, too, so that 0.1 is not rounded.

    Raises:
        InvalidFilter: the value is not a number.

    Example:
        >>> double("0.5", pa.float32(), "f"), double(10**400, pa.float64(), "f")
        ((0.5, False), (inf, True))
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise unfit(value, data_type, name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if Decimal(value) > 0 else -math.inf
    except ValueError:
        raise unfit(value, data_type, name) from None
    if not math.isinf(number) or isinstance(value, float):
        return number, False
    exact = Decimal(value.strip()) if isinstance(value, str) else value
    return number, isinstance(exact, int) or not exact.is_infinite()


_COMPARISONS: Final[dict[str, Callable[[Any, Any], pc.Expression]]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

_LAST_CHARACTER: Final = 0x10FFFF
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000

#: The opposite of each comparison between non-null values.
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


Column = tuple[pc.Expression, pa.DataType]


def _no_row() -> Condition:
    # Created on first use: the first scalar makes Arrow import pandas, which takes most of a
    # second.
    return exactly(pc.scalar(False))


def find_column(schema: pa.Schema, path: tuple[str, ...]) -> Column | None:
    """Return the expression and type of the column or nested field `path`; None if it does not exist.

    A column of the null type has every field.

    Example:
        >>> find_column(pa.schema([("a", pa.struct([("b", pa.int32())]))]), ("a", "b"))
        (<pyarrow.compute.Expression FieldRef.Nested(FieldRef.Name(a) FieldRef.Name(b))>, DataType(int32))
    """
    if not all(map(is_encodable, path)) or schema.get_field_index(path[0]) < 0:
        return None
    data_type = schema.field(path[0]).type
    for number, name in enumerate(path[1:], 1):
        if pt.is_null(data_type):
            return pc.field(*path[:number]), data_type
        if not pt.is_struct(data_type) or data_type.get_field_index(name) < 0:
            return None
        data_type = data_type.field(data_type.get_field_index(name)).type
    return (pc.field(path[0]) if len(path) == 1 else pc.field(*path)), data_type


def compare(column: Column, operator: str, value: object, name: str, *, negated: bool = False) -> Condition:
    """Return ``column operator value`` or its opposite; operators are ``= != < <= > >=``.

    Neither is true for null. For NaN only ``!=`` is true, and the opposite of every other
    comparison.

    Raises:
        InvalidFilter: the value cannot be compared with the column.

    Example:
        >>> compare((pc.field("n"), pa.int32()), ">", 2.5, "n").exact
        <pyarrow.compute.Expression (n > 2)>
    """
    field, data_type = column
    operand = plain_value(value)
    if operand is None or pt.is_null(data_type):
        return _no_row()
    if pt.is_floating(data_type):
        return _compare_floats(column, operator, *double(operand, data_type, name), negated=negated)
    operator = _OPPOSITE[operator] if negated else operator
    grid = grid_of(data_type)
    if grid is None:
        operand, stored = plain(operand, data_type, name)
        condition = exactly(_COMPARISONS[operator](field, pc.scalar(pa.scalar(operand, stored))))
        return one_of(condition, name, pa.array([operand], stored)) if operator == "=" else condition
    point = place(operand, data_type, grid, name)
    if point > grid.high or point < grid.low:
        holds = operator == "!=" or (operator in ("<", "<=")) == (point > grid.high)
        return exactly(field.is_valid()) if holds and operator != "=" else _no_row()
    below = math.floor(point)
    if point != below:
        if operator in ("=", "!="):
            return exactly(field.is_valid()) if operator == "!=" else _no_row()
        operator = "<=" if operator in ("<", "<=") else ">"
    only = grid.array([below])
    condition = exactly(_COMPARISONS[operator](field, pc.scalar(only[0])))
    return one_of(condition, name, only) if operator == "=" else condition


def compare_columns(left: Column, operator: str, right: Column, *, negated: bool = False) -> Condition:
    """Return ``left operator right`` or its opposite; beside floating point numbers whole numbers become doubles."""
    if pt.is_null(left[1]) or pt.is_null(right[1]):
        return _no_row()
    if not (holds_floats(left[1]) or holds_floats(right[1])):
        return exactly(_COMPARISONS[_OPPOSITE[operator] if negated else operator](left[0], right[0]))
    # Arrow's own cast fails for whole numbers that no double holds. With NaN the opposite of `<` is not `>=`.
    comparison = _COMPARISONS[operator](*(_as_double(column) for column in (left, right)))
    return Condition(~comparison if negated else comparison, None)


def _as_double(column: Column) -> pc.Expression:
    field, data_type = column
    return field.cast(pa.float64(), safe=False) if pt.is_integer(data_type) else field


#: Comparisons whose result for a number beyond all doubles is that for infinity.
_BEYOND_DOUBLES: Final = {
    math.inf: {"<": "<", "<=": "<", ">": ">=", ">=": ">="},
    -math.inf: {"<": "<=", "<=": "<=", ">": ">", ">=": ">"},
}


def _compare_floats(column: Column, operator: str, value: float, beyond: bool, *, negated: bool) -> Condition:
    field = column[0]
    if beyond:
        if operator in ("=", "!="):
            return _no_row() if (operator == "=") != negated else exactly(field.is_valid())
        operator = _BEYOND_DOUBLES[value][operator]
    holds = _COMPARISONS[operator](field, pc.scalar(pa.scalar(value, pa.float64())))
    if negated or operator == "!=":
        return Condition(~holds if negated else holds, field.is_valid())
    return (
        Condition(holds, _pruning_comparison(column, operator, value)) if column[1] != pa.float64() else exactly(holds)
    )


def _pruning_comparison(column: Column, operator: str, value: float) -> pc.Expression:
    """Return a comparison in the column's own type that is true wherever the given one is."""
    if operator == "=":
        return _pruning_comparison(column, ">=", value) & _pruning_comparison(column, "<=", value)
    upwards = operator in ("<", "<=")
    with np.errstate(over="ignore"):
        bound = np.float32(value)
        # The nearest value may be on the wrong side.
        if upwards and float(bound) < value:
            bound = np.nextafter(bound, np.float32(np.inf))
        if not upwards and float(bound) > value:
            bound = np.nextafter(bound, np.float32(-np.inf))
    return _COMPARISONS["<=" if upwards else ">="](column[0], pc.scalar(pa.scalar(float(bound), pa.float32())))


def is_in(column: Column, values: Iterable[object], name: str, *, negated: bool) -> Condition:
    """Return whether the column equals a listed value; with a null in the list, *not in* is never true, as in SQL.

    Raises:
        InvalidFilter: a value cannot be compared with the column.

    Example:
        >>> is_in((pc.field("n"), pa.int32()), [1, 2.5], "n", negated=False).exact
        <pyarrow.compute.Expression is_in(n, {value_set=int32:[
          1
        ], null_matching_behavior=MATCH})>
    """
    field, data_type = column
    given = [plain_value(value) for value in values]
    present = [value for value in given if value is not None]
    if (negated and len(present) < len(given)) or pt.is_null(data_type):
        return _no_row()
    if pt.is_floating(data_type):
        return _float_is_in(column, [double(value, data_type, name) for value in present], negated=negated)
    storable = held(present, data_type, name)
    condition = field.isin(storable)
    return exactly(~condition & field.is_valid()) if negated else one_of(exactly(condition), name, storable)


def _float_is_in(column: Column, given: Sequence[tuple[float, bool]], *, negated: bool) -> Condition:
    """Return the chain of ``=`` over floats: both zeros are equal, and NaN equals nothing."""
    field = column[0]
    values = np.unique([value + 0.0 for value, beyond in given if not (beyond or math.isnan(value))])
    if not len(values):
        return exactly(field.is_valid()) if negated else _no_row()
    # A set distinguishes 0.0 from -0.0; adding 0.0 maps both to 0.0 and changes nothing else.
    normal = pc.add(field.cast(pa.float64()), pc.scalar(pa.scalar(0.0)))
    condition = normal.isin(pa.array(values, pa.float64()))
    if negated:
        return Condition(~condition & field.is_valid(), field.is_valid())
    ends = [compare(column, ">=", float(values[0]), ""), compare(column, "<=", float(values[-1]), "")]
    return Condition(condition, all_of(ends).pruning)


def matches_like(
    column: Column, pattern: object, escape: str | None, name: str, *, any_case: bool, negated: bool = False
) -> Condition:
    r"""Return whether a text matches an SQL pattern: ``%`` any characters, ``_`` one.

    Raises:
        InvalidFilter: the column or the pattern is not a text.

    Example:
        >>> matches_like((pc.field("s"), pa.string()), "%a", None, "s", any_case=False).exact
        <pyarrow.compute.Expression match_substring_regex(s, {pattern="^(?s:.*a)$", ignore_case=false})>
    """
    field, data_type = column
    if pt.is_null(data_type):
        return _no_row()
    if not (pt.is_string(data_type) or pt.is_large_string(data_type)):
        raise InvalidFilter(f"like needs a text column, and {name!r} is of type {data_type}")
    pattern = plain_value(pattern)
    if pattern is None:
        return _no_row()
    if not isinstance(pattern, str) or (escape is not None and len(escape) != 1):
        raise InvalidFilter(f"like needs a pattern in quotes and at most one escape character, not {pattern!r:.80}")
    # Arrow's LIKE always treats a backslash as an escape.
    condition = pc.match_substring_regex(field, f"^(?s:{_like_regex(pattern, escape)})$", ignore_case=any_case)
    if negated:
        return exactly(~condition)
    begins = None if any_case else _begins_with(field, _literal_prefix(pattern, escape))
    return exactly(condition if begins is None else begins & condition)


def _literal_prefix(pattern: str, escape: str | None) -> str:
    """Return what every text that matches a pattern begins with."""
    prefix = ""
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
        elif letter in ("%", "_"):
            break
        prefix += letter
    return prefix


def _begins_with(field: pc.Expression, prefix: str) -> pc.Expression | None:
    """Return a comparison that statistics can evaluate and that is true for texts with a prefix."""
    if not prefix:
        return None
    bound = prefix.rstrip(chr(_LAST_CHARACTER))
    least = field >= pc.scalar(prefix)
    if not bound:
        return least
    following = ord(bound[-1]) + 1
    # Surrogates are no characters.
    behind = bound[:-1] + chr(_AFTER_SURROGATES if following == _FIRST_SURROGATE else following)
    return least & (field < pc.scalar(behind))


def _like_regex(pattern: str, escape: str | None) -> str:
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape):
                raise InvalidFilter(f"the pattern {pattern!r:.80} escapes something that is neither % nor _")
            parts.append(_regex_letter(letter))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or _regex_letter(letter))
    return "".join(parts)


def _regex_letter(letter: str) -> str:
    return f"\\x{{{ord(letter):x}}}" if not letter.isalnum() else letter
