"""SQL filters mean what they mean in DuckDB, on the same rows: nulls, not in, between, like, times, decimals, names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.read.filters import parse_filter
from tests.example_counts import examples

TEXTS = ["", "a", "A", "ab", "a_b", "a%b", "ключ", "日本", "it's", "x\ny", "\\"]
DAYS = [date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 28), date(2026, 3, 1)]
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
    datetime(2026, 3, 1, tzinfo=UTC),
    datetime(2026, 3, 1, 0, 0, 0, 1000, UTC),
]

COLUMNS = {
    "i": (pa.int32(), [-3, -2, 0, 1, 2]),
    "big": (pa.int64(), [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "x": (pa.float64(), [-1.5, -0.25, 0.0, 0.25, 1.5, 2.0, 1e300]),
    "s": (pa.string(), TEXTS),
    "b": (pa.bool_(), [True, False]),
    "d": (pa.date32(), DAYS),
    "moment": (pa.timestamp("us", "UTC"), MOMENTS),
    "ms": (pa.timestamp("ms"), [moment.replace(tzinfo=None) for moment in MOMENTS]),
    "amt": (pa.decimal128(6, 2), [Decimal(text) for text in ("-9999.99", "-1.25", "0.00", "1.20", "1.21", "9999.99")]),
    'Wei"rd na.me': (pa.int32(), [-2, -1, 0, 1, 2]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
COUNT = 300


def rows_with_everything() -> pa.Table:
    """Every value of a column, and null, beside many combinations of the others."""
    columns = [
        pa.array([[*values, None][(n // step + n) % (len(values) + 1)] for n in range(COUNT)], kind)
        for step, (kind, values) in enumerate(COLUMNS.values(), 3)
    ]
    return pa.table(columns, schema=SCHEMA).append_column("row", pa.array(range(COUNT)))


ROWS = rows_with_everything()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text_of(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@st.composite
def literals(draw: st.DrawFn, name: str) -> str:
    kind = COLUMNS[name][0]
    if draw(st.integers(0, 5)) == 0:
        return "null"
    if pa.types.is_string(kind):
        return text_of(draw(st.sampled_from(TEXTS)))
    if pa.types.is_boolean(kind):
        return draw(st.sampled_from(["true", "false"]))
    if pa.types.is_date(kind):
        day = draw(st.sampled_from(DAYS)) + timedelta(days=draw(st.integers(-1, 1)))
        return draw(st.sampled_from([f"date '{day}'", f"timestamp '{day} 12:00:00'", f"'{day}'"]))
    if pa.types.is_timestamp(kind):
        moment = draw(st.sampled_from(MOMENTS)) + timedelta(microseconds=draw(st.integers(-1, 1)))
        plain = moment.replace(tzinfo=None).isoformat(" ")
        return f"timestamptz '{plain}+00'" if kind.tz and draw(st.booleans()) else f"timestamp '{plain}'"
    numbers = ["-2", "0", "1", "1.5", "-0.25", "1.20", "1.205", "9007199254740993", "-9223372036854775808"]
    if pa.types.is_decimal(kind):
        numbers = ["-1.25", "0", "1.2", "1.205", "100", "9999.99", "-9999.991"]
    return draw(st.sampled_from(numbers))


ANY_COLUMN = st.sampled_from(list(COLUMNS))


@st.composite
def terms(draw: st.DrawFn) -> str:
    name = draw(ANY_COLUMN)
    column = quoted(name) if draw(st.booleans()) or not name.isalnum() else name
    form = draw(st.sampled_from(["compare", "compare", "in", "between", "null", "like", "column", "bool", "flip"]))
    no = draw(st.sampled_from(["", "not "]))
    if form == "in":
        values = draw(st.lists(literals(name), min_size=1, max_size=4))
        return f"{column} {no}in ({', '.join(values)})"
    if form == "between":
        return f"{column} {no}between {draw(literals(name))} and {draw(literals(name))}"
    if form == "null":
        return f"{column} is {no}null"
    if form == "like":
        pattern = text_of(
            draw(st.sampled_from(["%", "a%", "%b", "_", "__", "a_b", "%ю%", "%ч%", "", "\\", "x%y", "%.%"]))
        )
        return f"s {no}{draw(st.sampled_from(['like', 'ilike']))} {pattern}"
    if form == "column":
        left, right = draw(st.sampled_from(PAIRS))
        return f"{quoted(left)} {draw(OPERATORS)} {quoted(right)}"
    if form == "bool":
        return draw(st.sampled_from(["b", "not b", "b is true", "b is not true", "b is false", "b is not false"]))
    if form == "flip":
        return f"{draw(literals(name))} {draw(OPERATORS)} {column}"
    return f"{column} {draw(OPERATORS)} {draw(literals(name))}"


#: Columns that are compared with each other; some whole numbers are between doubles.
PAIRS = [("i", "big"), ("i", 'Wei"rd na.me'), ("big", "i"), ("s", "s"), ("big", "x"), ("x", "i")]
OPERATORS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])


def joined(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(children, st.sampled_from(["and", "or"]), children)
    return pairs.map(lambda pair: f"({pair[0]}) {pair[1]} ({pair[2]})") | children.map(lambda one: f"not ({one})")


CONDITIONS = st.recursive(terms(), joined, max_leaves=5)


@pytest.fixture(scope="module")
def judge() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        # A table of its own: older releases of DuckDB hand decimals down to Arrow wrongly.
        connection.register("handed_over", ROWS)
        connection.execute("create table everything as select * from handed_over")
        yield connection


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("no", ["", "not "])
def test_two_columns_compare_as_in_duckdb(judge: duckdb.DuckDBPyConnection, no: str, operator: str) -> None:
    for left, right in PAIRS:
        condition = f"{no}{quoted(left)} {operator} {quoted(right)}"
        expected = judge.execute(f"select row from everything where {condition} order by row").fetchall()
        found = ROWS.filter(parse_filter(condition, SCHEMA).exact)["row"].to_pylist()
        assert found == [row for (row,) in expected], condition


@settings(max_examples=examples(300))
@given(condition=CONDITIONS)
def test_conditions_keep_the_rows_that_duckdb_keeps(judge: duckdb.DuckDBPyConnection, condition: str) -> None:
    expected = judge.execute(f"select row from everything where {condition} order by row").fetchall()
    found = ROWS.filter(parse_filter(condition, SCHEMA).exact)["row"].to_pylist()
    assert found == [row for (row,) in expected], condition
