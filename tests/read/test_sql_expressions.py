"""SQL expressions mean what they mean in DuckDB on the same rows, or fail with the reason; nothing overflows silently."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.read.sql_expressions import compute_expressions, parse_expression
from lakefmt.errors import InvalidExpression
from tests.example_counts import examples

COLUMNS = {
    "i": (pa.int32(), [-7, -1, 0, 3, None]),
    "n": (pa.int64(), [-(2**63), -2, 0, 5, 2**63 - 1, None]),
    "x": (pa.float64(), [-1.5, 0.0, 0.25, 1e300, None]),
    "d": (pa.decimal128(8, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("12.34"), None]),
    "s": (pa.string(), ["", "a", "Ab c", "ключ", " x ", None]),
    "u": (pa.string(), ["a", "b%", None]),
    "b": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2024, 2, 29), None]),
    "ts": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 5), datetime(2024, 2, 29, 12, 30), None]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])


def every_pair() -> pa.Table:
    """For every pair of columns every pair of their values."""
    lists = [values for _, values in COLUMNS.values()]
    rows = []
    for first, second in ((a, b) for a in range(len(lists)) for b in range(a)):
        for number, (v, w) in enumerate(product(lists[first], lists[second])):
            row = [values[number % len(values)] for values in lists]
            row[first], row[second] = v, w
            rows.append(row)
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)],
        schema=SCHEMA,
    )


ROWS = every_pair()


def wholes(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(["i", "n", "0", "2", "-3", "9223372036854775807", "length(s)", "year(day)", "month(ts)"]),
        st.sampled_from(["hour(ts)", "quarter(day)", "extract(day from ts)", "cast(b as bigint)", "null"]),
        st.builds("(cast({} as bigint) {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner),
        st.builds("abs({})".format, inner),
        st.builds("round({}, {})".format, inner, st.integers(-3, 1)),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("case when {} then {} else {} end".format, CONDITIONS, inner, inner),
        st.builds("case {} when {} then {} end".format, inner, inner, inner),
        st.builds("nullif({}, {})".format, inner, inner),
        st.builds("greatest({}, {})".format, inner, inner),
    )


def others(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Doubles."""
    return st.one_of(
        st.sampled_from(["x", "cast(i as double)", "cast(d as double)", "x / 4", "i / 4", "floor(x)", "ceil(x)"]),
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-"]), inner),
        st.builds("({} * 0.5)".format, inner),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("if({}, {}, {})".format, CONDITIONS, inner, inner),
    )


def texts(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(["s", "u", "'a'", "''", "'it''s'", "cast(n as varchar)", "cast(day as varchar)"]),
        st.builds("{}({})".format, st.sampled_from(["lower", "upper", "trim", "ltrim", "rtrim"]), inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("concat({}, {})".format, inner, inner),
        st.builds("substr({}, {}, {})".format, inner, st.integers(1, 3), st.integers(0, 3)),
        st.builds("{}({}, {})".format, st.sampled_from(["left", "right"]), inner, st.integers(1, 3)),
        st.builds("replace({}, 'a', 'xy')".format, inner),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("case when {} then {} end".format, CONDITIONS, inner),
    )


COMPARISON = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
CONDITIONS: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(
            ["b", "true", "s is null", "b is true", "b is not false", "s = u", "date(ts) = day", "ts < day"]
        ),
        st.builds("({} {} {})".format, WHOLES, COMPARISON, WHOLES),
        st.builds("({} {} {})".format, st.sampled_from(["i", "d", "x", "n"]), COMPARISON, st.sampled_from(["i", "d"])),
        st.builds(
            "({} {} {})".format, st.sampled_from(["i", "d", "x"]), COMPARISON, st.sampled_from(["1.5", "0", "-7"])
        ),
        st.builds("({} {} {})".format, TEXTS, COMPARISON, TEXTS),
        st.builds("({} between {} and {})".format, WHOLES, WHOLES, WHOLES),
        st.builds("({} {}in ({}, {}))".format, WHOLES, st.sampled_from(["", "not "]), WHOLES, WHOLES),
        st.builds("({} {}like {})".format, TEXTS, st.sampled_from(["", "not ", "i"]), st.sampled_from(["'a%'", "'_'"])),
        st.builds("(cast({} as decimal(9, 2)) {} d)".format, WHOLES, COMPARISON),
        st.builds("starts_with({}, 'a')".format, TEXTS),
        st.builds("contains({}, 'b')".format, TEXTS),
        st.builds("({} is distinct from {})".format, WHOLES, WHOLES),
        st.builds("(ts {} timestamp '2024-02-29 12:30:00')".format, COMPARISON),
        st.builds(
            "(date_trunc('{}', ts) {} day)".format, st.sampled_from(["year", "month", "week", "day"]), COMPARISON
        ),
        st.builds("(not {})".format, CONDITIONS),
        st.builds("({} {} {})".format, CONDITIONS, st.sampled_from(["and", "or"]), CONDITIONS),
    )
)
WHOLES = st.recursive(st.sampled_from(["i", "n", "1"]), wholes, max_leaves=6)
OTHERS = st.recursive(st.sampled_from(["x", "0.5"]), others, max_leaves=6)
TEXTS = st.recursive(st.sampled_from(["s", "u", "'a'"]), texts, max_leaves=5)


def answer_of_duckdb(text: str) -> list[object] | None:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("rows", ROWS)
        try:
            return [value for (value,) in connection.execute(f"select {text} from rows").fetchall()]
        except duckdb.Error:
            return None


@pytest.mark.newest_only("the oldest sqlglot knows fewer functions; they are refused by name")
@given(text=st.one_of(WHOLES, OTHERS, TEXTS, CONDITIONS))
@settings(max_examples=examples(150), deadline=None)
def test_values_are_those_of_duckdb(text: str) -> None:
    theirs = answer_of_duckdb(text)
    refused = None
    try:
        ours = compute_expressions(ROWS, {"value": parse_expression(text, SCHEMA)})["value"].to_pylist()
    except InvalidExpression as error:
        refused = str(error)
    if refused is not None:
        reasons = (
            "overflow",
            "does not fit in precision",
            "divide by zero",
            "not in range",
            "precision",
            "out of bounds",
            "no common",
            "in one place",
        )
        assert any(reason in refused for reason in reasons), (text, refused)
        return
    # Where DuckDB fails, it computes in narrower integers, or what AND and CASE do not need.
    assert theirs is None or ours == theirs, text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n + 1", "overflow"),
        ("n * n", "overflow"),
        ("-n", "overflow"),
        ("abs(n)", "overflow"),
        ("5 // i", "divide by zero"),
        ("5 % i", "divide by zero"),
        ("1 / i", "divide by zero"),
        ("x / 0", "divide by zero"),
        ("cast(x as int)", "truncated|not in range"),
        ("cast(n as int)", "not in range"),
        ("cast(n as decimal(9, 2))", "does not fit in precision"),
        ("round(n, -1)", "would overflow"),
        ("cast(s as int)", "Failed to parse"),
        ("sqrt(i)", "square root"),
    ],
)
def test_what_has_no_exact_result_is_an_error(text: str, reason: str) -> None:
    parsed = parse_expression(text, SCHEMA)
    with pytest.raises(InvalidExpression, match=reason):
        compute_expressions(ROWS, {"value": parsed})


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("i", "cast(i as decimal(3, 2))", [Decimal("-7.00"), Decimal("-1.00"), Decimal("0.00"), Decimal("3.00"), None]),
        ("n", "cast(n // 9223372036854775807 as decimal(38, 37))", [-1, 0, 0, 0, 1, None]),
        ("i", "round(i, -1)", [-10, 0, 0, 0, None]),
        ("i", "round(i, 1)", [-7, -1, 0, 3, None]),
        ("n", "case when abs(n // 2) < 9 then round(n, -1) else 1 end", [1, 0, 0, 10, 1, 1]),
    ],
)
def test_whole_numbers_are_cast_and_rounded_by_their_values(name: str, text: str, values: list[object]) -> None:
    rows = pa.table({name: pa.array(COLUMNS[name][1], COLUMNS[name][0])})
    assert compute_expressions(rows, {"v": parse_expression(text, rows.schema)})["v"].to_pylist() == values


@pytest.mark.parametrize(
    "text",
    [
        "case when i <> 0 then 10 // i else 0 end",
        "if(i = 0, 0, 10 // i)",
        "coalesce(nullif(i, 0), 10 // nullif(i, 0), 10 // (i + 1))",
        "i <> 0 and 10 // i > 1",
        "i = 0 or 10 // i > 1",
        "case i when 0 then 0 when 3 then 10 // i else 10 // i end",
    ],
)
def test_branches_that_are_not_needed_do_not_fail(text: str) -> None:
    values = compute_expressions(ROWS, {"value": parse_expression(text, SCHEMA)})["value"]
    assert len(values) == ROWS.num_rows


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("n in (select 1)", "a subquery"),
        ("i & 1 = 1", "bitwise"),
        ("now()", "now()"),
        ("ts > now() - interval 1 day", "now()"),
        ("soundex(s)", "the function soundex"),
        ("sum(i)", "the function sum"),
        ("i[1]", "access by"),
        ("s + 1", "a number is expected"),
        ("lower(i)", "a text is expected"),
        ("year(s)", "a date or a timestamp is expected"),
        ('s = "retail"', "a text stands in single quotes"),
        ("ts + interval 1 month", "months and years differ in length"),
        ("cast(x as varchar)", "not cast to text"),
        ("cast(s as uuid)", "a cast to UUID is not supported"),
        ("case when i then 1 end", "a condition is expected"),
        ("coalesce(s, day)", "in one place"),
        ("", "not an SQL expression"),
        ("i +", "not an SQL expression"),
    ],
)
def test_messages_name_what_is_not_supported(text: str, named: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse_expression(text, SCHEMA)
    assert named in str(caught.value)


def test_names_are_resolved_by_the_caller() -> None:
    import pyarrow.compute as pc

    rows = pa.table({"source.n": [1, 2], "target.n": [10, None]})

    def find(path: tuple[str, ...]) -> tuple[pc.Expression, pa.DataType] | None:
        name = ".".join(path)
        return (pc.field(name), pa.int64()) if name in rows.column_names else None

    parsed = parse_expression("coalesce(target.n, 0) + source.n", rows.schema, find)
    assert compute_expressions(rows, {"n": parsed})["n"].to_pylist() == [11, 2]
    with pytest.raises(InvalidExpression, match=r"no column 'other\.n'"):
        parse_expression("other.n", rows.schema, find)


def test_deep_parentheses_take_no_time_of_their_own() -> None:
    assert parse_expression("(" * 40 + "i" + ")" * 40, SCHEMA).type == pa.int32()
    assert parse_expression("- (- (" * 10 + "1" + "))" * 10, SCHEMA).type == pa.int64()


@given(st.from_regex(r"[0-9]{1,45}(\.[0-9]{0,12})?(e[+-]?[0-9]{1,4})?", fullmatch=True), st.sampled_from(["", "-"]))
def test_a_number_of_any_length_is_its_value_or_refused(digits: str, sign: str) -> None:
    text = f"{sign}{digits}"
    exact = Decimal(text)
    for written in (text, f"({text}) + 0", f"x + {text}" if exact else "x + 0"):
        if math.isinf(float(text)):
            with pytest.raises(InvalidExpression, match="larger than every double"):
                parse_expression(written, SCHEMA)
            continue
        value = compute_expressions(pa.table({"x": [0.0]}), {"v": parse_expression(written, SCHEMA)})["v"][0].as_py()
        assert value == exact or float(value) == float(text)
