"""Expressions of loads that cannot be computed for some rows: whatever their number, the others have their values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.loads.expressions import Computed
from lakefmt._core.loads.protocol import Refusal
from lakefmt._core.loads.row_failures import StepwiseExpression
from lakefmt._core.read.sql_expressions import compute_expressions, parse_expression
from lakefmt.errors import InvalidExpression
from tests.example_counts import examples
from tests.loads.loads_kit import loaded

LEAST, MOST = -(2**63), 2**63 - 1
Row = dict[str, int | None]


class CannotBeComputed(Exception):
    """A row has no value."""


@dataclass(frozen=True)
class Expression:
    """An expression over whole numbers: SQL, and what it is by Python's exact integers."""

    sql: str
    of: Callable[[Row], int | None]


def held(number: int, least: int = LEAST, most: int = MOST) -> int:
    if not least <= number <= most:
        raise CannotBeComputed
    return number


def quotient(a: int, b: int) -> int | None:
    """Whole numbers are divided towards zero; nothing is divided by zero."""
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int | None:
    whole = quotient(a, b)
    return None if whole is None else a - whole * b


def of_two(sign: str, function: Callable[[int, int], int | None]) -> Callable[[Expression, Expression], Expression]:
    def made(left: Expression, right: Expression) -> Expression:
        def value(row: Row) -> int | None:
            a, b = left.of(row), right.of(row)
            result = None if a is None or b is None else function(a, b)
            return None if result is None else held(result)

        return Expression(f"({left.sql} {sign} {right.sql})", value)

    return made


def of_one(sql: str, function: Callable[[int], int]) -> Callable[[Expression], Expression]:
    def made(inner: Expression) -> Expression:
        def value(row: Row) -> int | None:
            number = inner.of(row)
            return None if number is None else function(number)

        return Expression(sql.format(inner.sql), value)

    return made


def coalesce(first: Expression, second: Expression) -> Expression:
    def value(row: Row) -> int | None:
        number = first.of(row)
        return second.of(row) if number is None else number

    return Expression(f"coalesce({first.sql}, {second.sql})", value)


def case(left: Expression, right: Expression, then: Expression, other: Expression) -> Expression:
    def value(row: Row) -> int | None:
        a, b = left.of(row), right.of(row)
        return then.of(row) if a is not None and b is not None and a < b else other.of(row)

    return Expression(f"case when {left.sql} < {right.sql} then {then.sql} else {other.sql} end", value)


def column(name: str) -> Expression:
    return Expression(name, lambda row: row[name])


def literal(number: int) -> Expression:
    return Expression(str(number), lambda row: number)


BORDERS = [0, 1, -1, 2, -2, 3, LEAST, LEAST + 1, MOST, MOST - 1, LEAST // 2, MOST // 2 + 1, 2**31, -(2**31), 2**32 + 1]
NUMBERS = st.sampled_from(BORDERS) | st.integers(LEAST, MOST) | st.integers(-(2**33), 2**33)
LEAVES = st.sampled_from([column("a"), column("b")]) | st.sampled_from([0, 1, 2, 7, MOST, 2**31]).map(literal)


def grown(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    twos = [
        of_two("+", operator.add),
        of_two("-", operator.sub),
        of_two("*", operator.mul),
        of_two("div", quotient),
        of_two("%", remainder),
        coalesce,
    ]
    ones = [
        of_one("-({})", lambda n: held(-n)),
        of_one("abs({})", lambda n: held(abs(n))),
        of_one("cast({} + 0 as int)", lambda n: held(n, -(2**31), 2**31 - 1)),
        of_one("cast({} + 0 as smallint)", lambda n: held(n, -(2**15), 2**15 - 1)),
        of_one("cast(cast({} + 0 as char) as bigint)", lambda n: n),
        of_one("cast(cast({} + 0 as decimal(20, 0)) as bigint)", lambda n: n),
    ]
    return st.one_of(
        st.builds(lambda make, a, b: make(a, b), st.sampled_from(twos), inner, inner),
        st.builds(lambda make, a: make(a), st.sampled_from(ones), inner),
        st.builds(case, inner, inner, inner, inner),
    )


@settings(max_examples=examples(150), deadline=None)
@given(
    st.recursive(LEAVES, grown, max_leaves=7),
    st.lists(st.tuples(st.none() | NUMBERS, st.none() | NUMBERS), min_size=1, max_size=30),
    st.sampled_from([1, 1, 1, 400]),
)
def test_each_row_is_what_pythons_integers_say(
    expression: Expression, pairs: list[tuple[int | None, int | None]], times: int
) -> None:
    rows: list[Row] = [{"a": a, "b": b} for a, b in pairs]
    expected, failing = list[int | None](), list[bool]()
    for row in rows:
        try:
            expected.append(expression.of(row))
            failing.append(False)
        except CannotBeComputed:
            expected.append(None)
            failing.append(True)
    table = pa.table({name: pa.array([row[name] for row in rows] * times, pa.int64()) for name in "ab"})
    values, fails = Computed(expression.sql, table.schema).tried(table)
    assert values.to_pylist() == expected * times
    assert fails.tolist() == failing * times


BIG = Decimal("99999999.99")
COLUMNS = pa.table(
    {
        "i": pa.array([127, 128, -129, 32768, None, 0, -1, 2**31 - 1], pa.int32()),
        "n": pa.array([LEAST, MOST, 0, -1, 1, None, 2**31, 86_400], pa.int64()),
        "u": pa.array([0, 2**64 - 1, 2**63, 2**63 - 1, None, 1, 2, 3], pa.uint64()),
        "x": pa.array([0.0, -0.5, 2.0**63, -(2.0**63), float("nan"), float("inf"), None, 99999.995]),
        "f": pa.array([0.5, 2.0**31, -(2.0**31), float("nan"), None, 1.0, 2.0**63, -3.0], pa.float32()),
        "m": pa.array([BIG, -BIG, Decimal("0.10"), None, Decimal("-0.01"), Decimal(7), BIG, BIG], pa.decimal128(10, 2)),
        "w": pa.array([Decimal(10) ** 37, Decimal(5), -(Decimal(10) ** 37), None] * 2, pa.decimal128(38, 0)),
        "d": pa.array([date(1970, 1, 1), date(9999, 12, 31), date(1, 1, 1), None] * 2, pa.date32()),
        "e": pa.array([-(2**31), 2**31 - 1, 0, None] * 2, pa.int32()).cast(pa.date32()),
        "t": pa.array([datetime(1970, 1, 1), datetime(9999, 12, 31), datetime(1, 1, 1), None] * 2, pa.timestamp("us")),
        "o": pa.array([LEAST, MOST, 0, None, 1_001, 1_000, -1_001, 86_400 * 10**9], pa.int64()).cast(
            pa.timestamp("ns")
        ),
        "h": pa.array([LEAST + 1, MOST, 0, None, 1, -1, 2**40, 86_400], pa.int64()).cast(pa.timestamp("s")),
    }
)
FAILING = [
    *(f"cast({name} as {kind})" for name in "inuxfmw" for kind in ("tinyint", "smallint", "int", "bigint")),
    *(f"cast({name} as decimal({size}))" for name in "inuxfmw" for size in ("7, 2", "3, 0", "38, 10", "5, 5", "38, 0")),
    *(f"cast({name} as {kind})" for name in "deto" for kind in ("date", "timestamp", "timestamptz")),
    *("cast(h as timestamp)", "cast(o as date) - 1", "o = t", "t = h", "e = o", "greatest(d, o)", "coalesce(h, o)"),
    *("e + n", "d - n", "e + 1", "e - 1", "d + interval 1 day", "h + interval 3 week"),
    *("o - interval 2 day", "t - interval 100000 week", "e + interval 1 hour"),
    *(f"{name}({column})" for name in ("-", "abs", "floor", "ceil", "round", "sqrt") for column in "inuxfmw"),
    *("round(m, 1)", "round(m, -3)", "round(w, -37)", "u + 1", "u * n", "m * n", "m + w", "n // i", "n % i"),
    *("x / i", "x / n", "n / 0", "m / m", "i + n", "i * n * n", "n + x", "cast(x as int) + i", "cast(m as int) * n"),
    *("case when i > 0 then cast(n as int) else i - n end", "n > 0 and n + n > 5", "n < 0 or n + 1 > 5"),
    *("coalesce(i + n - n, 0)", "n + 1 is null", "cast(n + 1 as text)", "cast(n = 1 as int) + n", "least(u, n + 1)"),
]


@pytest.mark.parametrize("sql", FAILING)
def test_each_row_is_what_arrow_says_of_it_alone(sql: str) -> None:
    """The judge computes one row or fails."""
    parsed = parse_expression(sql, COLUMNS.schema)
    expected, failing = list[object](), list[bool]()
    for number in range(COLUMNS.num_rows):
        try:
            alone = compute_expressions(COLUMNS.slice(number, 1), {"v": parsed}).column("v")
            expected += alone.cast(pa.string()).to_pylist()
            failing.append(False)
        except InvalidExpression:
            expected.append(None)
            failing.append(True)
    table = pa.concat_tables([COLUMNS] * 2)
    values, fails = StepwiseExpression(sql, table.schema, {}).compute(table)
    assert values.type.equals(parsed.type)
    assert fails.tolist() == failing * 2
    assert values.cast(pa.string()).to_pylist() == expected * 2


TEXTS = pa.table(
    {
        "s": ["$12.50", "x", None, "", " 7 ", "2026-01-05", "99999999999999999999", "-0"],
        "n": pa.array([1, MOST, LEAST, None, 0, -1, 2**40, 86_400], pa.int64()),
        "x": [0.5, 1e300, float("nan"), None, -1.0, float("inf"), 86_400.9, 7.0],
    }
)


@pytest.mark.parametrize(
    ("sql", "failing"),
    [
        ("cast(replace(s, '$', '') as decimal(10, 2))", [1, 3, 5, 6]),
        ("cast(trim(s) as bigint)", [0, 1, 3, 5, 6]),
        ("cast(substring(s, 1, 10) as date)", [0, 1, 3, 4, 6, 7]),
        ("coalesce(cast(trim(s) as bigint), 0)", [0, 1, 3, 5, 6]),
        ("case when n > 0 then cast(trim(s) as bigint) else n end", [0, 1, 6]),
        ("cast(s as bigint) + n", []),
        ("from_unixtime(n + n)", [1, 2]),
        ("concat(from_unixtime(n * 2), s)", [1, 2]),
        ("case when n > 5 then from_unixtime(n + n) else s end", [1]),
        ("from_unixtime(x)", []),
        ("str_to_date(concat(cast(n + 2 as char), '-01-01'), '%Y-%m-%d')", [1]),
        ("from_unixtime(cast(trim(s) as bigint))", [0, 1, 3, 5, 6]),
    ],
)
def test_what_is_made_of_texts_concerns_its_row_alone(sql: str, failing: list[int]) -> None:
    computed = Computed(sql, TEXTS.schema)
    parts = [computed.tried(TEXTS.slice(number, 1)) for number in range(TEXTS.num_rows)]
    assert [number for number, (_, fails) in enumerate(parts) if fails[0]] == failing
    values, fails = computed.tried(pa.concat_tables([TEXTS] * 1_001))
    assert np.flatnonzero(fails[: len(TEXTS)]).tolist() == failing
    assert fails.sum() == 1_001 * len(failing)
    assert values.to_pylist() == [values[0].as_py() for values, _ in parts] * 1_001
    if failing:
        with pytest.raises(Refusal, match="cannot be computed for every row"):
            computed.values(TEXTS)


@pytest.mark.parametrize("strict", [False, True])
def test_any_number_of_rows_may_overflow(strict: bool) -> None:
    numbers = [5, MOST, -(2**62), 2**62] * 1_000
    body = "".join(f"{key},{number}\n" for key, number in enumerate(numbers)).encode()
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    told = {"columns": "id,a,n=cast(a as bigint) * 2", "column_separator": ",", "strict_mode": str(strict).lower()}
    rows, reply = loaded(body, schema, max_filter_ratio="0.5", **told)
    doubled = {5: 10, -(2**62): LEAST}
    expected = [(key, doubled.get(number)) for key, number in enumerate(numbers) if not strict or number in doubled]
    assert sorted(rows) == expected
    assert reply["NumberFilteredRows"] == (2_000 if strict else 0)


def test_a_sum_of_many_terms_is_understood_in_little_time() -> None:
    computed = Computed(" + ".join(["a"] * 100), pa.schema([("a", pa.int64())]))
    values, fails = computed.tried(pa.table({"a": [1, MOST // 50]}))
    assert (values.to_pylist(), fails.tolist()) == ([100, None], [False, True])
