"""SQL expressions computed step by step, so that a row for which a step fails has no value, and the others have theirs (pure).

Arrow computes a column or fails, and does not say which rows it fails for. Each operation that may fail is a step here: its operands are
columns, and where it fails a check by columns tells the rows. They get nulls as operands, and it is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.ordering import to_mask
from lakefmt._core.loads.csv_rows import Mask
from lakefmt._core.read.filter_terms import Column
from lakefmt._core.read.sql_expressions import ExpressionTranslator
from lakefmt.errors import InvalidExpression

if TYPE_CHECKING:
    from sqlglot.expressions import Column as SqlColumn
    from sqlglot.expressions import Expr

__all__ = ["StepwiseExpression"]

Function = Callable[..., pa.ChunkedArray]

_PREFIX: Final = "_lakefmt_step_"
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_WIDEST_DECIMAL: Final = 76
_DAY_SECONDS: Final = 86_400
_UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation that may fail.

    Attributes:
        name: of the column of its results.
        operands: its arguments; none where another column tells the rows for which it fails.
        needed: rows whose result is used; None: all.
        compute: returns the results, and for which rows there are none.
    """

    name: str
    operands: tuple[pc.Expression, ...]
    needed: pc.Expression | None
    compute: Callable[..., tuple[pa.ChunkedArray, Mask]]


class StepwiseExpression:
    """An expression over columns.

    Args:
        sql: as :func:`~lakefmt._core.read.sql_expressions.parse_expression` takes it, and has taken it.
        schema: the columns.
        failures: column → the column that tells the rows for which it could not be made.

    Example:
        >>> twice = StepwiseExpression("n * 2", pa.schema([("n", pa.int64())]), {})
        >>> values, fails = twice.compute(pa.table({"n": [5, 1 << 62, None]}))
        >>> values.to_pylist(), fails.tolist()
        ([10, None, None], [False, True, False])
    """

    def __init__(self, sql: str, schema: pa.Schema, failures: Mapping[str, str]) -> None:
        import sqlglot  # slow import

        translator = _StepTranslator(schema, failures)
        value = translator.value(sqlglot.parse_one(sql, dialect="duckdb", into=sqlglot.exp.Condition))
        self._steps, self._value, self.type = translator.steps, value.expression, value.type

    def compute(self, rows: pa.Table) -> tuple[pa.ChunkedArray, Mask]:
        """Return its value for each row, and for which rows it has none; there it is null.

        Raises:
            InvalidExpression: it is not known for which rows a step fails.
        """
        fails = np.zeros(rows.num_rows, bool)
        try:
            for step in self._steps:
                needed = pc.scalar(True) if step.needed is None else step.needed
                is_needed, *operands = _projected(rows, (needed, *step.operands)).columns
                values, fail = step.compute(*operands)
                fails |= fail & to_mask(pc.fill_null(is_needed, False))
                rows = rows.append_column(step.name, values)
            values = _projected(rows, [self._value]).column(0)
        except pa.ArrowException as error:
            raise InvalidExpression(str(error).splitlines()[0]) from error
        values = values if values.type.equals(self.type) else values.cast(self.type)
        return pc.if_else(pa.array(~fails), values, pa.scalar(None, self.type)), fails


def _projected(rows: pa.Table, expressions: Sequence[pc.Expression]) -> pa.Table:
    import pyarrow.dataset as ds  # slow import

    columns = {str(number): each for number, each in enumerate(expressions)}
    return ds.InMemoryDataset(rows).to_table(columns=columns, use_threads=False)


class _StepTranslator(ExpressionTranslator):
    """Translates a tree into steps, and an expression of their results."""

    def __init__(self, schema: pa.Schema, failures: Mapping[str, str]) -> None:
        super().__init__(schema)
        self.steps: list[_Step] = []
        self._failures = failures

    def _step(
        self, operands: Sequence[pc.Expression], compute: Callable[..., tuple[pa.ChunkedArray, Mask]]
    ) -> pc.Expression:
        step = _Step(f"{_PREFIX}{len(self.steps)}", tuple(operands), self._needed, compute)
        self.steps.append(step)
        return pc.field(step.name)

    def _applied(
        self, function: Callable[..., pc.Expression], operands: Sequence[pc.Expression], data_type: pa.DataType
    ) -> pc.Expression:
        done = _moved if pt.is_timestamp(data_type) else function
        return self._step(operands, partial(_tried, done, _CHECKS[function]))

    def _converted(self, values: pc.Expression, source: pa.DataType, target: pa.DataType) -> pc.Expression:
        cast = partial(pc.cast, target_type=target, safe=not pt.is_floating(target))
        return self._step([values], partial(_tried, cast, partial(_cast_fails, target=target)))

    def _column(self, tree: Expr) -> Column:
        expression, data_type = super()._column(tree)
        name = str(tree.name)
        if len(_parts(tree)) == 1 and name in self._failures:
            return self._step([expression, pc.field(self._failures[name])], _with_failures), data_type
        return expression, data_type


def _parts(tree: Expr) -> Sequence[Expr]:
    column: SqlColumn = tree  # type: ignore[assignment]
    return column.parts


def _with_failures(values: pa.ChunkedArray, fails: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Mask]:
    return values, to_mask(fails)


def _tried(function: Function, check: Function, *operands: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Mask]:
    """Return what a function gives, and for which rows it fails; there it is null.

    Args:
        function: it.
        check: of the same operands: whether it fails; null is false.
        operands: its arguments.

    Raises:
        ArrowException: it fails for other rows, too.
    """
    try:
        return function(*operands), np.zeros(len(operands[0]), bool)
    except pa.ArrowException:
        fails = pc.fill_null(check(*operands), False)
        good = pc.invert(fails)
        return function(*(pc.if_else(good, each, pa.scalar(None, each.type)) for each in operands)), to_mask(fails)


# --- arithmetic ----------------------------------------------------------------------------------------------------------------


def _whole(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers, times or lengths of time as whole numbers of 64 bits."""
    return values if pt.is_integer(values.type) else values.cast(pa.int64())


def _is_negative(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.less(values, 0)


def _sum_overflows(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    a, b = _whole(left), _whole(right)
    total = pc.add(a, b)  # wraps: its sign is then none of the operands'
    return _is_negative(pc.bit_wise_and(pc.bit_wise_xor(a, total), pc.bit_wise_xor(b, total)))


def _difference_overflows(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    a, b = _whole(left), _whole(right)
    return _is_negative(pc.bit_wise_and(pc.bit_wise_xor(a, b), pc.bit_wise_xor(a, pc.subtract(a, b))))


def _product_overflows(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    # Wraps; divided by the left operand it is the right one only if it did not.
    product = pc.multiply(left, right)
    is_opposite = pc.equal(left, -1)
    divisor = pc.if_else(pc.or_(is_opposite, pc.equal(left, 0)), 1, left)
    wraps = pc.and_(pc.equal(divisor, left), pc.not_equal(pc.divide(product, divisor), right))
    return pc.or_(wraps, pc.and_(is_opposite, pc.equal(right, _LEAST)))


def _quotient_fails(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    by_zero = pc.and_(pc.equal(right, 0), left.is_valid())
    if pt.is_floating(left.type):
        return by_zero
    return pc.or_(by_zero, pc.and_(pc.equal(left, _LEAST), pc.equal(right, -1)))


def _is_least(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.equal(values, _LEAST)


def _moved(moments: pa.ChunkedArray, steps: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return moments and lengths of time added; Arrow's sum of these also fails for what a null hides."""
    return pc.add_checked(_whole(moments), _whole(steps)).cast(moments.type)


_CHECKS: Final[Mapping[object, Function]] = {
    pc.add_checked: _sum_overflows,
    pc.subtract_checked: _difference_overflows,
    pc.multiply_checked: _product_overflows,
    pc.divide_checked: _quotient_fails,
    pc.negate_checked: _is_least,
    pc.abs_checked: _is_least,
    pc.sqrt_checked: _is_negative,
}


# --- casts -----------------------------------------------------------------------------------------------------------------


def _cast_fails(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return which values a cast fails for; of types of which nothing is known none."""
    source = values.type
    if pt.is_integer(target) and (pt.is_integer(source) or pt.is_floating(source) or pt.is_decimal(source)):
        return _is_no_integer(values, target)
    if pt.is_decimal(target):
        return _is_no_decimal(values, target)
    if pt.is_timestamp(target) and (pt.is_timestamp(source) or pt.is_date32(source)):
        return _is_no_moment(values, target)
    if pt.is_date32(target) and pt.is_timestamp(source):
        per_day = _DAY_SECONDS * _UNITS_PER_SECOND[source.unit]
        return _is_outside(_whole(values), -(1 << 31) * per_day, ((1 << 31) * per_day) - 1)
    return _none_fails(values)


def _none_fails(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(values.is_null(), values.is_valid())


def _is_outside(values: pa.ChunkedArray, least: int, most: int) -> pa.ChunkedArray:
    """Return which integers are outside of a range; its ends need not be of their type."""
    signed, bits = pt.is_signed_integer(values.type), values.type.bit_width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    below = pc.less(values, pa.scalar(max(low, least), values.type))
    return pc.or_(below, pc.greater(values, pa.scalar(min(high, most), values.type)))


def _is_no_integer(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    bits = target.bit_width - pt.is_signed_integer(target)
    least, end = -(1 << bits) if pt.is_signed_integer(target) else 0, 1 << bits
    if pt.is_integer(values.type):
        return _is_outside(values, least, end - 1)
    has_fraction = pc.not_equal(values, pc.trunc(values))
    if pt.is_floating(values.type):
        ends = [pa.scalar(float(number), values.type) for number in (least, end)]
        has_fraction = pc.or_(has_fraction, pc.invert(pc.is_finite(values)))
    else:
        ends = [pa.scalar(Decimal(number), pa.decimal256(20, 0)) for number in (least, end)]
    return pc.or_(has_fraction, pc.or_(pc.less(values, ends[0]), pc.greater_equal(values, ends[1])))


def _has_more_digits(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return which decimals have more digits before the point than a decimal type."""
    whole_digits = target.precision - target.scale
    end = pa.scalar(Decimal(10) ** whole_digits, pa.decimal256(whole_digits + 1, 0))
    return pc.greater_equal(pc.abs(values), end)


def _is_no_decimal(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if pt.is_decimal(values.type):
        too_large = _has_more_digits(values, target)
        if target.scale >= values.type.scale:
            return too_large
        return pc.or_(too_large, pc.not_equal(values, pc.round(values, target.scale, "towards_zero")))
    if pt.is_floating(values.type):
        wide = pa.decimal256(_WIDEST_DECIMAL, target.scale)
        end = pa.scalar(10.0 ** (target.precision - target.scale + 1), values.type)
        is_far = pc.fill_null(pc.invert(pc.less(pc.abs(values), end)), False)
        near = pc.if_else(is_far, pa.scalar(None, values.type), values).cast(wide)
        return pc.or_(is_far, pc.fill_null(_has_more_digits(near, target), False))
    return _none_fails(values)


def _is_no_moment(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    per_second = _UNITS_PER_SECOND[target.unit]
    if pt.is_date32(values.type):
        numbers, old_per_second = values.cast(pa.int32()).cast(pa.int64()), 1
        per_second *= _DAY_SECONDS
    else:
        numbers, old_per_second = _whole(values), _UNITS_PER_SECOND[values.type.unit]
    if per_second >= old_per_second:
        factor = per_second // old_per_second
        return _is_outside(numbers, -(-_LEAST // factor), _MOST // factor)
    factor = old_per_second // per_second
    return pc.not_equal(pc.multiply(pc.divide(numbers, factor), factor), numbers)
