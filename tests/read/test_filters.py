"""Filters in three forms: what they mean, what they prune, and what they say when they cannot be understood."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakefmt._core.read.filters import parse_filter, parse_sql
from lakefmt.errors import InvalidFilter

ROWS = pa.table(
    {
        "n": pa.array([-1, 0, 2, 3, None], pa.int32()),
        "big": pa.array([2**53, 2**53 + 1, -(2**63), 2**63 - 1, None], pa.int64()),
        "x": pa.array([0.5, -0.0, 2.5, 1e300, None], pa.float64()),
        "f": pa.array([0.5, 0.1, 2.5, 3.0, None], pa.float32()),
        "s": pa.array(["a", "A%b", "a_b", "", None], pa.string()),
        "b": pa.array([True, False, None, True, None], pa.bool_()),
        "d": pa.array([date(2026, 1, 1), date(2026, 1, 2), date(1969, 12, 31), date(2026, 1, 3), None], pa.date32()),
        "at": pa.array(
            [
                datetime(2026, 1, 1, 12, tzinfo=UTC),
                datetime(1969, 1, 1, tzinfo=UTC),
                None,
                datetime(2026, 1, 2, tzinfo=UTC),
                None,
            ],
            pa.timestamp("ms", "UTC"),
        ),
        "local": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2), None, None, None], pa.timestamp("us")),
        "amt": pa.array(
            [Decimal("1.25"), Decimal("-1.25"), Decimal("0.00"), Decimal("99.99"), None], pa.decimal128(4, 2)
        ),
        "raw": pa.array([b"a", b"\xff", b"", None, None], pa.binary()),
        "clock": pa.array([time(1), time(2), time(23, 59, 59, 999999), None, None], pa.time64("us")),
        "pos": pa.array([{"x": 1, "in": {"y": "p"}}, {"x": None, "in": None}, None, {"x": 3, "in": {"y": "q"}}, None]),
        "Mixed Case": pa.array(["u", "v", "w", None, "x"]),
        "a.b": pa.array([1, 2, 3, 4, 5]),
        "tags": pa.array([["a"], [], None, ["b"], ["c"]]),
    }
)


def kept(filter: Any) -> list[int]:
    """The numbers of the rows that a filter keeps."""
    numbered = ROWS.append_column("row", pa.array(range(ROWS.num_rows)))
    condition = parse_filter(filter, ROWS.schema)
    assert condition is not None
    return numbered.filter(condition.exact)["row"].to_pylist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("n > 0", [2, 3]),
        ("0 < n", [2, 3]),
        ("n <> 2", [0, 1, 3]),
        ("not n > 0", [0, 1]),
        ("n > 1.5 and n < 2.5", [2]),
        ("n = 1.5", []),
        ("n != 1.5", [0, 1, 2, 3]),
        ("not (n = 1.5)", [0, 1, 2, 3]),
        ("n < 1e30", [0, 1, 2, 3]),
        ("n > 1e30", []),
        ("n > -99999999999999999999", [0, 1, 2, 3]),
        ("n != 99999999999", [0, 1, 2, 3]),
        ("not (n = 99999999999)", [0, 1, 2, 3]),
        ("n = 99999999999", []),
        ("n = '2'", [2]),
        ("n in (2, 3.5, '0')", [1, 2]),
        ("n not in (2, 3.5)", [0, 1, 3]),
        ("n in (2, null)", [2]),
        ("n not in (2, null)", []),
        ("not (n in (2, null))", []),
        ("n = null", []),
        ("not (n = null)", []),
        ("n is null", [4]),
        ("n is not null", [0, 1, 2, 3]),
        ("n between 0 and 2", [1, 2]),
        ("n not between 0 and 2", [0, 3]),
        ("n not between 0 and null", [0]),
        ("big = 9007199254740993", [1]),
        ("big > 9007199254740992.5", [1, 3]),
        ("big >= -9223372036854775808", [0, 1, 2, 3]),
        ("x > 1", [2, 3]),
        ("not x > 1", [0, 1]),
        ("x = 0", [1]),
        ("f = 0.5", [0]),
        ("f in (0.5, 3)", [0, 3]),
        ("s = 'a'", [0]),
        ("s like 'a%'", [0, 2]),
        ("s ilike 'a%'", [0, 1, 2]),
        ("s like '_'", [0]),
        ("s like '%$%%' escape '$'", [1]),
        ("s like 'a$_b' escape '$'", [2]),
        ("s not like 'a%'", [1, 3]),
        ("not (s like 'a%' or s = '')", [1]),
        ("s like null", []),
        ("s not like null", []),
        ("b", [0, 3]),
        ("not b", [1]),
        ("b is true", [0, 3]),
        ("b is not true", [1, 2, 4]),
        ("b is false", [1]),
        ("b = true", [0, 3]),
        ("true", [0, 1, 2, 3, 4]),
        ("false or n = 0", [1]),
        ("d = '2026-01-01'", [0]),
        ("d = date '2026-01-01'", [0]),
        ("d > timestamp '2026-01-01 12:00:00'", [1, 3]),
        ("d < '1970-01-01'", [2]),
        ("at = '2026-01-01T12:00:00Z'", [0]),
        ("at = '2026-01-01 13:00:00+01:00'", [0]),
        ("at >= '2026-01-01 12:00:00.0005'", [3]),
        ("at >= '2026-01-01'", [0, 3]),
        ("at < timestamp '1970-01-01 00:00:00'", [1]),
        ("local > '2026-01-01 00:00:00'", [1]),
        ("amt = 1.25", [0]),
        ("amt > 1.249", [0, 3]),
        ("amt < -1.249", [1]),
        ("amt = 1.255", []),
        ("amt < 100", [0, 1, 2, 3]),
        ("amt in (0, 99.99, 1.001)", [2, 3]),
        ("raw = 'a'", [0]),
        ("clock > '01:30:00'", [1, 2]),
        ("pos.x = 1", [0]),
        ("pos.x > 0.5 and pos.\"in\".y = 'q'", [3]),
        ("pos is null", [2, 4]),
        ("\"Mixed Case\" = 'u'", [0]),
        ('"a.b" = 3', [2]),
        ("N = 2", [2]),
        ('n < "a.b"', [0, 1, 2, 3]),
        ('not n < "a.b"', []),
        ("(n = 0 or n = 2) and not (s = 'a_b' and b)", [1]),
    ],
)
def test_sql(text: str, rows: list[int]) -> None:
    assert kept(text) == rows


@pytest.mark.parametrize(
    ("filter", "rows"),
    [
        ([("n", ">", 0)], [2, 3]),
        (("n", ">", 0), [2, 3]),
        ([("n", ">", 0), ("s", "=", "")], [3]),
        ([[("n", "=", 0)], [("s", "==", "a")]], [0, 1]),
        ([("n", "in", {2, 3.5})], [2]),
        ([("n", "not in", [2])], [0, 1, 3]),
        ([("n", "not in", [2, None])], []),
        ([("n", "in", [])], []),
        ([("n", "not in", [])], [0, 1, 2, 3]),
        ([("n", "=", None)], [4]),
        ([("n", "!=", None)], [0, 1, 2, 3]),
        ([("n", "is", None)], [4]),
        ([("n", "is not", None)], [0, 1, 2, 3]),
        ([("n", "<", None)], []),
        ([("n", "<>", Decimal("2"))], [0, 1, 3]),
        ([("x", "<", Decimal("0.75"))], [0, 1]),
        ([("d", ">=", date(2026, 1, 2))], [1, 3]),
        ([("at", "<", datetime(2026, 1, 1, 13, tzinfo=UTC))], [0, 1]),
        ([("at", "=", date(2026, 1, 2))], [3]),
        ([("clock", "<=", time(2))], [0, 1]),
        ([("raw", "=", b"\xff")], [1]),
        ([("pos.x", "=", 3)], [3]),
        ([("a.b", "=", 3)], [2]),
        ([("s", "like", "a%")], [0, 2]),
        ([("s", "not like", "a%")], [1, 3]),
        ([("n", ">", pa.scalar(0))], [2, 3]),
        ([("n", "<", float("inf"))], [0, 1, 2, 3]),
        ([("n", "<", Decimal("1e999999"))], [0, 1, 2, 3]),
        ([("n", ">", Decimal("1e-999999"))], [2, 3]),
        (pc.field("n") > 0, [2, 3]),
    ],
)
def test_tuples_and_expressions(filter: Any, rows: list[int]) -> None:
    assert kept(filter) == rows


def test_no_filter_is_none() -> None:
    assert parse_filter(None, ROWS.schema) is None


@pytest.mark.parametrize(
    ("filter", "said"),
    [
        ("", "not an SQL condition"),
        ("n >", "not an SQL condition"),
        ("n = 1; drop table t", "not an SQL condition"),
        ("select 1", "not"),
        ("nope = 1", "names the column 'nope'"),
        ('"N" = 1', "names the column 'N'"),
        ("pos.nope = 1", "names the column 'pos.nope'"),
        ("t.n = 1", "names the column 't.n'"),
        ("n ^ 1 = 2", "the function power is not supported"),
        ("soundex(s) = 'a'", "the function soundex is not supported"),
        ("n in (select 1)", "not supported"),
        ("n = any(1)", "not"),
        ("n", "a condition is expected"),
        ("n is true", "a condition is expected"),
        ("exists (select 1)", "not supported"),
        ("case when n then true else false end", "a condition is expected"),
        ("n = 'abc'", "'abc' cannot be compared with column 'n' of type int32"),
        ("n = true", "True cannot be compared"),
        ("s = 5", "5 cannot be compared with column 's' of type string"),
        ("b = 1", "1 cannot be compared"),
        ("d = 'yesterday'", "'yesterday' cannot be compared"),
        ("d = '2026-02-30'", "cannot be compared"),
        ("at = '2026-01-01 00:00:00.0000001'", "cannot be compared"),
        ("amt = 'nan'", "cannot be compared"),
        ("tags = 'a'", "cannot be compared"),
        ("n like '1%'", "like needs a text column"),
        ("s like 5", "like needs a pattern"),
        ("s like 'a$' escape '$'", "escapes something"),
        ("s > n", "does not fit"),
        ("(" * 3000 + "b" + ")" * 3000, "nested too deeply"),
        ("x" * 1_000_001, "characters"),
        ([], "not a filter"),
        ({}, "not a filter"),
        (5, "not a filter"),
        ([5], "not a filter"),
        ([[]], "not a filter"),
        ([[5]], "not a filter"),
        ([("n", "=")], "not a filter term"),
        ([(5, "=", 1)], "not a filter term"),
        ([("n", "~", 1)], "unknown operator '~'"),
        ([("nope", "=", 1)], "names the column 'nope'"),
        ([("n", "in", "abc")], "a list, set, range, array or Series of values is expected"),
        ([("n", "in", 5)], "a list, set, range, array or Series of values is expected"),
        ([("n", "=", [1])], "cannot be compared"),
        ([("n", "=", float("nan"))], "cannot be compared"),
        ([("d", "=", 5)], "cannot be compared"),
        (pc.field("nope") == 1, "does not fit the table's columns"),
        (pc.field("s") + 1 > 2, "does not fit"),
    ],
)
def test_what_cannot_be_understood_is_told(filter: Any, said: str) -> None:
    with pytest.raises(InvalidFilter, match="(?i)" + said.replace("(", r"\(")):
        parse_filter(filter, ROWS.schema)


def test_ambiguous_names_need_quotes() -> None:
    schema = pa.schema([("A", pa.int32()), ("a", pa.int32()), ("Bc", pa.int32()), ("bC", pa.int32())])
    assert str(parse_filter("a = 1", schema).exact) == "(a == 1)"
    with pytest.raises(InvalidFilter, match="names the column 'bc'"):
        parse_filter("bc = 1", schema)


def test_comparisons_stay_in_the_columns_type_so_that_statistics_prune() -> None:
    schema = pa.schema([("n", pa.int32()), ("amt", pa.decimal128(4, 2)), ("at", pa.timestamp("ms", "UTC"))])
    assert str(parse_filter("n > 2.5", schema).exact) == "(n > 2)"
    assert str(parse_filter("n >= 2.5", schema).exact) == "(n > 2)"
    assert str(parse_filter("n < -2.5", schema).exact) == "(n <= -3)"
    assert str(parse_filter("amt <= 1.005", schema).exact) == "(amt <= 1.00)"
    assert "cast" not in str(parse_filter("at > '2026-01-01 00:00:00.0001'", schema).exact)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("when > 3", 'when is a word of SQL: the column is written "when"'),
        ("\"when\" > 3 and Select = 'a'", 'select is a word of SQL: the column is written "select"'),
        ("`when` > 3", "double quotes, not in backticks"),
        ("id > ", "such as \"city = 'sf' and fare > 10\""),
        ("id = 1 limit 3", "without clauses such as limit"),
    ],
)
def test_a_text_that_is_no_condition_is_told_what_mends_it(text: str, says: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("when", pa.int64()), ("select", pa.string())])
    with pytest.raises(InvalidFilter, match=re.escape(says)):
        parse_sql(text, schema)
