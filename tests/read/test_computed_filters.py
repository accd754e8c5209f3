"""Filters that compute keep the rows that DuckDB keeps, whatever is pruned; days, years and prefixes prune."""

from __future__ import annotations

from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.read.filters import parse_filter
from lakefmt.errors import InvalidFilter
from tests.example_counts import examples
from tests.read.test_sql_expressions import CONDITIONS, ROWS

MOMENTS = [datetime(2023, 12, 30) + timedelta(hours=7 * n, microseconds=n) for n in range(40)]
TIMES = pa.table(
    {
        "id": [f"k{n:03}" for n in range(41)],
        "ts": pa.array([*MOMENTS, None], pa.timestamp("us", "UTC")),
        "day": pa.array([*(moment.date() for moment in MOMENTS), None], pa.date32()),
        "s": [["ab", "abc", "b", "a%", "é", "a_x"][n % 6] for n in range(40)] + [None],
    }
)
DAYS = ["2023-12-29", "2023-12-31", "2024-01-01", "2024-01-05", "2024-01-11"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]


def kept_by_duckdb(rows: pa.Table, text: str, key: str) -> list[object]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("rows", rows)
        return [value for (value,) in connection.execute(f"select {key} from rows where {text} order by 1").fetchall()]


@st.composite
def time_conditions(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(["ts", "day"]))
    day, operator = draw(st.sampled_from(DAYS)), draw(st.sampled_from(OPERATORS))
    text = draw(
        st.sampled_from(
            [
                f"date({column}) {operator} '{day}'",
                f"'{day}' {operator} date({column})",
                f"cast({column} as date) {operator} date '{day}'",
                f"year({column}) {operator} {day[:4]}",
                f"extract(year from {column}) {operator} {day[:4]}",
                f"date({column}) between '{DAYS[1]}' and '{day}'",
                f"date({column}) in ('{DAYS[2]}', '{day}')",
                f"starts_with(s, '{draw(st.sampled_from(['a', 'ab', 'a%', 'é']))}')",
                f"left(s, 2) = '{draw(st.sampled_from(['ab', 'a%', 'a']))}'",
                f"substr(s, 1, 1) = '{draw(st.sampled_from(['a', 'é']))}'",
            ]
        )
    )
    return f"not ({text})" if draw(st.booleans()) else text


CONDITION = st.one_of(
    time_conditions(),
    st.builds("({} {} {})".format, time_conditions(), st.sampled_from(["and", "or"]), time_conditions()),
)


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> lakefmt.Table:
    """A table whose files and row groups hold days in order."""
    table = lakefmt.create_table(
        str(tmp_path_factory.mktemp("times") / "t"),
        data=TIMES,
        record_key="id",
        indexes=["column_stats"],
        options={"hoodie.parquet.small.file.limit": 0},
    )
    for start in range(0, 41, 8):
        table.insert(TIMES.slice(start, 8))
    return table


@pytest.mark.newest_only("the judge: the oldest DuckDB has no function date")
@given(text=CONDITION)
@settings(max_examples=examples(100), deadline=None)
def test_what_prunes_drops_no_row(times: lakefmt.Table, text: str) -> None:
    assert sorted(times.read(["id"], text)["id"].to_pylist()) == kept_by_duckdb(TIMES, text, "id")


@pytest.mark.parametrize(
    "text",
    [
        "date(ts) = '2024-01-05'",
        "cast(day as date) = '2024-01-05'",
        "ts::date in ('2024-01-05')",
        "year(ts) = 2023",
        "year(day) < 2024",
    ],
)
def test_days_and_years_prune_files(times: lakefmt.Table, text: str) -> None:
    report = times.explain(text)
    assert report.steps[-1].files < report.steps[0].files, str(report)


@pytest.mark.newest_only("the oldest sqlglot knows fewer functions; they are refused by name")
@given(text=CONDITIONS)
@settings(max_examples=examples(60), deadline=None)
def test_any_condition_keeps_what_duckdb_keeps(text: str) -> None:
    rows = ROWS.append_column("row", pa.array(range(ROWS.num_rows)))
    try:
        expected = kept_by_duckdb(rows, text, "row")
    except duckdb.Error:
        return
    refused = None
    try:
        condition = parse_filter(text, rows.schema)
        assert condition is not None
        kept = rows.filter(condition.exact)["row"].to_pylist()
    except (pa.ArrowInvalid, InvalidFilter) as error:
        refused = str(error)
    if refused is not None:
        reasons = ("overflow", "divide by zero", "in one place", "no common", "not in range", "does not fit")
        assert any(reason in refused for reason in reasons), (text, refused)
        return
    assert kept == expected, text
    if condition.pruning is not None:
        assert set(kept) <= set(rows.filter(condition.pruning)["row"].to_pylist()), text


def test_a_join_before_decides_what_must_be_computed(times: lakefmt.Table) -> None:
    rows = pa.table({"a": [0, 1, 5, None], "number": [0, 1, 2, 3]})
    for text, expected in [
        ("a <> 0 and 10 // a > 2", [1]),
        ("a = 0 or 10 // a > 2", [0, 1]),
        ("not (a = 0 or 10 // a <= 2)", [1]),
        ("not (a <> 0 and 10 // a <= 2)", [0, 1]),
        ("number < 9 and (a is not null and (a > 0 and 10 // a = 2))", [2]),
    ]:
        condition = parse_filter(text, rows.schema)
        assert condition is not None
        assert rows.filter(condition.exact)["number"].to_pylist() == expected, text
    with pytest.raises(InvalidFilter, match="divide by zero"):
        times.read(filter="10 // (length(id) - 4) = 1")
