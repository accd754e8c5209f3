"""Hand-over: pandas, Polars and DuckDB get the rows of a table as it is read."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from tests.judges.compare import assert_same_multiset

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("amt", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("pos", pa.struct([("x", pa.float64())])),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {
            "id": n,
            "city": f"c{n % 2}",
            "amt": Decimal(n) / 4,
            "day": date(2026, 1, 1 + n),
            "at": datetime(2026, 1, 1, n, tzinfo=UTC),
            "tags": [f"t{n}"],
            "pos": {"x": n / 2},
        }
        for n in range(10)
    ],
    schema=SCHEMA,
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = lakefmt.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="city")
    made.insert(ROWS)
    return made


def test_pandas(table: Table) -> None:
    frame = table.to_pandas(columns=["id", "amt", "day", "at"], filter="id < 3")
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame["id"]) == [0, 1, 2]
    assert frame.set_index("id")["amt"][2] == Decimal("0.50")
    assert frame["at"].dt.tz is not None


def test_polars(table: Table) -> None:
    frame = table.to_polars()
    assert isinstance(frame, pl.DataFrame)
    assert_same_multiset(frame.to_arrow().cast(SCHEMA), ROWS)
    assert len(pl.from_arrow(pa.table(table))) == 10, "the table itself is a stream of Arrow data"
    assert table.to_polars(filter="city = 'c1'", columns=["id"]).height == 5


def test_duckdb(table: Table) -> None:
    with duckdb.connect() as connection:
        table.to_duckdb(connection, "trips", filter=[("id", ">=", 5)])
        assert connection.execute("select count(*), sum(amt) from trips").fetchone() == (5, Decimal("8.75"))
        reader = table.scan(columns=["id", "city"])  # noqa: F841 (DuckDB finds it by its name)
        assert connection.execute("select city, count(*) from reader group by 1 order by 1").fetchall() == [
            ("c0", 5),
            ("c1", 5),
        ]


def test_arrow(table: Table) -> None:
    assert_same_multiset(pa.table(table), ROWS)
    stream = table.scan(columns=["day", "id"])
    assert stream.schema == pa.schema([SCHEMA.field("day"), SCHEMA.field("id")])
    assert_same_multiset(stream.read_all(), ROWS.select(["day", "id"]))
