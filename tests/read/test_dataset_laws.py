"""What engines push down never changes an answer: DuckDB, Polars and Arrow get from a table, with filters of their own, the
rows that they keep of the same rows in memory; of copy-on-write and merge-on-read tables of all versions, with altered
columns, nulls, NaN and odd partitions, now and at another moment.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.read import mor_scan
from lakefmt._core.read.dataset import SnapshotRows
from tests.example_counts import examples, seed_of_run

pytestmark = pytest.mark.newest_only("older releases of Polars and DuckDB hand over other filters")

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
}
NAN = float("nan")
DOUBLES = [-1.5, -0.0, 0.0, 0.25, 7.0, 1e300, float("inf"), NAN, None]
TEXTS = ["", "a", "ab", "a%b", "A", "ключ", "it's", None]
PLACES = ["sf", "a/b", "ä ö", "x=1", "", None]
DAYS = [date(1969, 12, 31), date(2024, 2, 29), date(2026, 1, 1), None]
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(2024, 2, 29, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 30, tzinfo=UTC),
    datetime(2024, 3, 1, 0, 0, 0, 1, UTC),
]
AMOUNTS = [Decimal("-1.25"), Decimal("0.00"), Decimal("99.90"), None]

FIRST = pa.schema(
    [
        ("id", pa.string()),
        ("place", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("old", pa.string()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(8, 2)),
        ("b", pa.bool_()),
    ]
)
#: After `n` was widened, `old` renamed and `more` added.
SECOND = pa.schema(
    [
        pa.field("n", pa.int64()) if field.name == "n" else pa.field("s", pa.string()) if field.name == "old" else field
        for field in FIRST
    ]
    + [pa.field("more", pa.int32())]
)


def rows_of(numbers: range, schema: pa.Schema, seed: int, places: list[str | None]) -> pa.Table:
    """Rows with the keys of some numbers; the values of 16 keys that follow each other are close."""
    choose = random.Random(seed)
    near = {number // 16: choose.randrange(4) for number in numbers}
    values: dict[str, Callable[[int], object]] = {
        "id": lambda number: f"k{number:03}",
        # The partition of a key does not change: it would be another row.
        "place": lambda number: places[number % len(places)],
        "n": lambda number: choose.choice([near[number // 16] * 10 + choose.randrange(10), None, -5]),
        "x": lambda _: choose.choice(DOUBLES),
        "f": lambda _: choose.choice([0.1, 0.5, -2.0, NAN, None]),
        "old": lambda _: choose.choice(TEXTS),
        "s": lambda _: choose.choice(TEXTS),
        "d": lambda number: DAYS[near[number // 16]],
        "ts": lambda number: MOMENTS[number // 16 % 4],
        "m": lambda _: choose.choice(AMOUNTS),
        "b": lambda _: choose.choice([True, False, None]),
        "more": lambda number: number,
    }
    return pa.table([pa.array([values[f.name](n) for n in numbers], f.type, from_pandas=False) for f in schema], schema)


@dataclass
class Case:
    """A table, and the rows that it must have: now, at its first commit, and written since."""

    name: str
    table: lakefmt.Table
    views: dict[str, tuple[pa.Table, dict[str, Any]]]


KINDS: list[tuple[str, dict[str, Any]]] = [
    ("cow6", {"table_type": "cow", "table_version": 6, "partition_by": "place"}),
    ("mor6", {"table_type": "mor", "table_version": 6, "partition_by": "place"}),
    ("cow8 statistics", {"table_type": "cow", "table_version": 8, "indexes": ["column_stats", "record_index"]}),
    ("mor8 by day", {"table_type": "mor", "table_version": 8, "partition_by": lakefmt.day("ts")}),
    (
        "cow9 no hive style",
        {
            "table_type": "cow",
            "table_version": 9,
            "partition_by": "place",
            "properties": {"hoodie.datasource.write.hive_style_partitioning": "false"},
            "indexes": ["column_stats", "partition_stats"],
        },
    ),
    (
        "mor9 record index",
        {"table_type": "mor", "table_version": 9, "partition_by": "place", "indexes": ["record_index"]},
    ),
    (
        "cow8 by day, statistics",
        {"table_type": "cow", "table_version": 8, "partition_by": lakefmt.day("ts"), "indexes": ["column_stats"]},
    ),
    ("mor8 no partitions", {"table_type": "mor", "table_version": 8, "indexes": ["column_stats"]}),
    (
        "cow9 virtual keys",
        {"table_type": "cow", "table_version": 9, "properties": {"hoodie.populate.meta.fields": "false"}},
    ),
    (
        "cow8 dropped partition column",
        {
            "table_type": "cow",
            "table_version": 8,
            "partition_by": "place",
            "properties": {"hoodie.datasource.write.drop.partition.columns": "true"},
        },
    ),
]
IN_MEMORY = {"cow6", "mor8 no partitions"}


def make_case(name: str, kind: dict[str, Any], seed: int, folder: Path | None = None) -> Case:
    """A table in a folder, whose files Polars may read by itself, or in memory."""
    number = next(NUMBERS)
    url = f"memory://dataset-law-{number}" if folder is None else str(folder / f"table {number}")
    table = lakefmt.create_table(url, schema=FIRST, record_key="id", options=OPTIONS, **kind)
    # Version 6 and other paths do not tell an empty text from null.
    places = PLACES if kind.get("partition_by") == "place" else ["sf", "a/b"]
    properties = kind.get("properties", {})
    if "hoodie.datasource.write.drop.partition.columns" in properties:
        places = ["sf", "b", "ä ö"]
    if "hoodie.datasource.write.hive_style_partitioning" in properties:
        places = ["sf", "b", "ä ö", None]
    first = rows_of(range(80), FIRST, seed, places)
    for start in range(0, 80, 16):
        inserted = table.insert(first.slice(start, 16))
    table.alter.update_column("n", type=pa.int64())
    table.alter.rename_column("old", "s")
    altered = table.alter.add_column("more", pa.int32())
    second = rows_of(range(48, 112), SECOND, seed + 1, places)
    upserted = table.upsert(second)
    gone = pc.field("id").isin([f"k{number:03}" for number in (3, 4, 50, 111)])
    stored = pa.concat_tables([in_second_schema(first.filter(~pc.field("id").isin(second["id"]))), second])
    for rows in (first, second):
        table.delete(rows.filter(gone).select(["id", "place", "ts"]))
    now = stored.filter(~gone)
    views: dict[str, tuple[pa.Table, dict[str, Any]]] = {
        "now": (now, {}),
        "inserted": (first, {"as_of": inserted.instant}),
        "upserted": (stored, {"as_of": upserted.instant}),
        "increment": (second, {"start": end_of(altered), "end": end_of(upserted)}),
        "with meta columns": (now, {"meta_columns": True}),
    }
    if "hoodie.populate.meta.fields" in properties:
        del views["increment"]  # refused: rows do not tell their commit
    # Without logs a table is as it was inserted, in the columns of now; copy-on-write tables have none.
    new = second.filter(~pc.field("id").isin(first["id"]))
    optimized = now if kind["table_type"] == "cow" else pa.concat_tables([in_second_schema(first), new])
    views["optimized"] = (optimized, {"query": "read_optimized"})
    return Case(name, table, views)


def end_of(commit: lakefmt.CommitResult) -> str | None:
    return commit.completion_time or commit.instant


def in_second_schema(rows: pa.Table) -> pa.Table:
    columns = {"n": rows["n"].cast(pa.int64()), "s": rows["old"], "more": pa.nulls(len(rows), pa.int32())}
    return pa.table(
        [columns.get(f.name, rows[f.name] if f.name in rows.column_names else None) for f in SECOND], SECOND
    )


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("laws")
    return [
        make_case(name, kind, seed_of_run() + number, None if name in IN_MEMORY else folder)
        for number, (name, kind) in enumerate(KINDS)
    ]


# ----------------------------------------------------------------------------------------------------- filters of DuckDB

SQL_VALUES: dict[str, list[str]] = {
    "id": ["'k000'", "'k050'", "'k099'", "'zz'"],
    "place": ["'sf'", "'a/b'", "'ä ö'", "'x=1'", "''", "'nope'"],
    "n": ["-5", "0", "12", "31", "9000000000"],
    "x": ["-1.5::double", "0::double", "7::double", "'nan'::double", "'inf'::double", "0.3::double"],
    "f": ["0.1::float", "0.5::float", "'nan'::float", "0.1::double"],
    "s": ["''", "'a'", "'ab'", "'ключ'", "'it''s'"],
    "d": ["date '2024-02-29'", "date '1969-12-31'", "date '2025-01-01'"],
    "ts": [
        "timestamptz '2024-02-29 00:00:00+00'",
        "timestamptz '2024-03-01 00:00:00.000001+00'",
        "timestamptz '1970-01-01 00:00:00+00'",
    ],
    "m": ["-1.25", "0", "99.9", "50.001"],
    "b": ["true", "false"],
    "more": ["50", "60", "100"],
}


def names_in(schema: pa.Schema) -> list[str]:
    return [
        "old" if name == "s" and "old" in schema.names else name
        for name in SQL_VALUES
        if name in schema.names or (name == "s" and "old" in schema.names)
    ]


def values_of(name: str) -> list[str]:
    return SQL_VALUES["s" if name == "old" else name]


@st.composite
def sql_filters(draw: st.DrawFn, schema: pa.Schema, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        left, right = draw(sql_filters(schema, depth - 1)), draw(sql_filters(schema, depth - 1))
        return draw(st.sampled_from([f"({left} and {right})", f"({left} or {right})", f"not ({left})"]))
    name = draw(st.sampled_from(names_in(schema)))
    value, other = draw(st.sampled_from(values_of(name))), draw(st.sampled_from(values_of(name)))
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "is distinct from"]))
    forms = [
        f"{name} {operator} {value}",
        f"{value} {operator} {name}",
        f"{name} in ({value}, {other})",
        f"{name} not in ({value}, {other})",
        f"{name} between {value} and {other}",
        f"{name} is null",
        f"{name} is not null",
    ]
    if name in ("id", "place", "s", "old"):
        forms += [f"{name} like 'a%'", f"lower({name}) = 'a'", f"starts_with({name}, 'k0')", f"length({name}) > 1"]
    if name in ("n", "more"):
        forms += [f"{name} % 2 = 0", f"{name} + 1 > 10"]
    if name == "ts":
        forms += ["ts::date = '2024-02-29'", "year(ts) = 2024"]
    return draw(st.sampled_from(forms))


def sorted_rows(rows: list[tuple[object, ...]]) -> list[str]:
    return sorted(map(repr, rows))


def ask_duckdb(source: object, query: str) -> list[str]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("given", source)
        if isinstance(source, pa.Table):
            # Its own storage, so that nothing at all is pushed into Arrow.
            connection.execute("create table rows as select * from given")
            query = query.replace("given", "rows")
        return sorted_rows(connection.execute(query).fetchall())


def check_duckdb(case: Case, view: str, condition: str, columns: list[str]) -> None:
    rows, options = case.views[view]
    dataset = case.table.dataset(**options)
    for query in (
        f"select {', '.join(columns)} from given where {condition}",
        f"select count(*) from given where {condition}",
    ):
        assert ask_duckdb(dataset, query) == ask_duckdb(rows, query), (case.name, view, query)


@given(data=st.data())
@settings(max_examples=examples(120), deadline=None)
def test_duckdb_gets_the_rows_of_the_same_table_in_memory(cases: list[Case], data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(cases), label="table")
    view = data.draw(st.sampled_from(sorted(case.views)))
    schema = case.views[view][0].schema
    columns = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=4, unique=True))
    check_duckdb(case, view, data.draw(sql_filters(schema)), columns)


# ----------------------------------------------------------------------------------------------------- filters of Polars

POLARS_VALUES: dict[str, list[Any]] = {
    "id": ["k000", "k050", "zz"],
    "place": ["sf", "a/b", "ä ö", "", "nope"],
    "n": [-5, 0, 12, 31],
    "x": [-1.5, 0.0, 7.0, NAN, float("inf")],
    "f": [0.1, 0.5, NAN],
    "s": ["", "a", "ab", "ключ"],
    "d": [date(2024, 2, 29), date(1969, 12, 31), date(2025, 1, 1)],
    "ts": [*MOMENTS, datetime(2025, 1, 1, tzinfo=UTC)],
    "m": [Decimal("-1.25"), Decimal("0"), Decimal("99.90")],
    "b": [True, False],
    "more": [50, 60],
}


@st.composite
def polars_filters(draw: st.DrawFn, schema: pa.Schema, depth: int = 2) -> pl.Expr:
    if depth and draw(st.booleans()):
        left, right = draw(polars_filters(schema, depth - 1)), draw(polars_filters(schema, depth - 1))
        # Expressions are chosen by their position: Polars' `==` makes another expression.
        return [left & right, left | right, ~left][draw(st.integers(0, 2))]
    name = draw(st.sampled_from(names_in(schema)))
    values = POLARS_VALUES["s" if name == "old" else name]
    column, value, other = pl.col(name), draw(st.sampled_from(values)), draw(st.sampled_from(values))
    forms = [
        column == value,
        column != value,
        column < value,
        column <= value,
        column > value,
        column >= value,
        pl.lit(value) < column,
        column.is_in([value, other]),
        column.is_null(),
        column.is_not_null(),
        column.eq_missing(value),
        column.ne_missing(value),
    ]
    if name != "b":
        forms += [
            column.is_between(
                pl.lit(value), pl.lit(other), closed=draw(st.sampled_from(["both", "left", "right", "none"]))
            )
        ]
    if name in ("id", "place", "s", "old"):
        forms += [
            column.str.starts_with(value),
            column.str.contains("a", literal=True),
            column.str.to_lowercase() == "a",
        ]
    if name in ("n", "more"):
        forms += [column % 2 == 0, column + 1 > 10, column.cast(pl.Float64) > 11.5, column < 11.5]
    if name == "ts":
        forms += [column.dt.date() == date(2024, 2, 29), column.dt.date() > date(2024, 2, 28), column.dt.year() == 2024]
    if name == "b":
        forms += [column]
    return forms[draw(st.integers(0, len(forms) - 1))]


def frame_rows(frame: pl.DataFrame) -> list[str]:
    return sorted_rows(frame.rows())


def check_polars(case: Case, view: str, condition: pl.Expr, columns: list[str]) -> None:
    rows, options = case.views[view]
    whole = pl.DataFrame(rows)
    lazy = (
        pl.scan_pyarrow_dataset(case.table.dataset(**options))
        if "start" in options
        else case.table.scan_polars(**options)
    )
    for engine in ("in-memory", "streaming"):
        if "start" in options:
            # Polars translates its expression for Arrow: asked about the same rows in memory, by the same way.
            expected = pl.scan_pyarrow_dataset(ds.dataset(rows)).filter(condition).select(columns).collect()
        else:
            expected = whole.filter(condition).select(columns)
        found = lazy.filter(condition).select(columns).collect(engine=engine)  # type: ignore[call-overload]
        assert frame_rows(found) == frame_rows(expected), (case.name, view, str(condition), engine)
        with mock.patch.object(mor_scan, "_LARGE_BYTES", 0):
            counts = [each.select(pl.len()).collect(engine=engine).item() for each in (lazy, lazy.filter(condition))]  # type: ignore[call-overload]
        assert counts == [whole.height, expected.height], (case.name, view, str(condition), engine)
    if "start" not in options:
        some = lazy.filter(condition).select(columns).head(3).collect()
        assert some.height == min(3, expected.height)
        assert {*frame_rows(some)} <= {*frame_rows(expected)}


@given(data=st.data())
@settings(max_examples=examples(120), deadline=None)
def test_polars_gets_the_rows_of_the_same_table_in_memory(cases: list[Case], data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(cases), label="table")
    view = data.draw(st.sampled_from(sorted(case.views)))
    schema = case.views[view][0].schema
    columns = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=4, unique=True))
    check_polars(case, view, data.draw(polars_filters(schema)), columns)


# ------------------------------------------------------------------------------------------------ Arrow's own expressions


@st.composite
def arrow_filters(draw: st.DrawFn, schema: pa.Schema, depth: int = 2) -> pc.Expression:
    if depth and draw(st.booleans()):
        left, right = draw(arrow_filters(schema, depth - 1)), draw(arrow_filters(schema, depth - 1))
        return [left & right, left | right, ~left][draw(st.integers(0, 2))]
    name = draw(st.sampled_from(names_in(schema)))
    values = POLARS_VALUES["s" if name == "old" else name]
    data_type = schema.field(name).type
    value, other = (pa.scalar(draw(st.sampled_from(values)), safe_type(data_type)) for _ in range(2))
    column = pc.field(name)
    forms = [column == value, column != value, column < value, column >= value, column.is_null(), column.is_valid()]
    if not pa.types.is_decimal(data_type):
        forms.append(column.isin(pa.array([value, other])))
    return forms[draw(st.integers(0, len(forms) - 1))]


def safe_type(data_type: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_integer(data_type) else data_type


def check_arrow(case: Case, view: str, condition: pc.Expression, columns: list[str]) -> None:
    rows, options = case.views[view]
    expected = table_rows(rows.filter(condition).select(columns))
    dataset = case.table.dataset(**options)
    assert table_rows(dataset.to_table(columns=columns, filter=condition)) == expected, (
        case.name,
        view,
        str(condition),
    )
    assert dataset.count_rows(filter=condition) == len(expected)
    assert dataset.filter(condition).count_rows() == len(expected)
    parts = [part.to_table(columns=columns, filter=condition) for part in dataset.get_fragments(condition)]
    assert sorted(row for part in parts for row in table_rows(part)) == expected, (case.name, view, str(condition))


def table_rows(rows: pa.Table) -> list[str]:
    return sorted_rows([tuple(row.values()) for row in rows.to_pylist()])


@given(data=st.data())
@settings(max_examples=examples(120), deadline=None)
def test_arrow_gets_the_rows_of_the_same_table_in_memory(cases: list[Case], data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(cases), label="table")
    view = data.draw(st.sampled_from(sorted(case.views)))
    schema = case.views[view][0].schema
    columns = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=4, unique=True))
    check_arrow(case, view, data.draw(arrow_filters(schema)), columns)


# --------------------------------------------------------------------------------------------------------------- sabotage


def ignoring(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, columns, condition, options: original(self, columns, None, options)


def test_a_dataset_that_ignores_a_filter_is_found(cases: list[Case]) -> None:
    with mock.patch.object(SnapshotRows, "scanner", ignoring(SnapshotRows.scanner)):
        for case in cases[:2]:
            with pytest.raises(AssertionError):
                check_duckdb(case, "now", "n = 12 or n = 31", ["id"])
            with pytest.raises(AssertionError):
                check_arrow(case, "now", pc.field("b"), ["id"])


def test_a_scan_that_prunes_too_much_is_found(cases: list[Case]) -> None:
    from lakefmt._core.read import dataset

    planned = dataset.planned_files

    def too_few(*arguments: Any) -> Any:
        files, logged = planned(*arguments)
        return files[1:], logged[1:]

    with mock.patch.object(dataset, "planned_files", too_few):
        for case in cases[:2]:
            with pytest.raises(AssertionError):
                check_duckdb(case, "now", "n is not null", ["id"])
            with pytest.raises(AssertionError):
                check_polars(case, "now", pl.col("n").is_not_null(), ["id"])


def test_polars_trusts_a_source_with_its_predicate(cases: list[Case]) -> None:
    rows, _ = cases[0].views["now"]
    with mock.patch.object(pl.DataFrame, "filter", lambda frame, *_: frame):
        found = cases[0].table.scan_polars().filter(pl.col("x") > 1).collect()
    assert found.height > pl.DataFrame(rows).filter(pl.col("x") > 1).height
