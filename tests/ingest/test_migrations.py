"""Tables of other formats, once into a new table, with all rows compared."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lakefmt
from lakefmt._core.cli import main
from lakefmt._core.ingest.migrate import migrate
from lakefmt.errors import InternalError, InvalidInputError, TableExists, UnsupportedFeature
from tests.ingest.ingest_kit import commits_of, extra_of, ingest, rows_of

ROWS = pa.table(
    {
        "id": ["a", "b", "c"],
        "n": pa.array([1, None, 3], pa.int32()),
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(10, 2)),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "day": [date(2026, 1, 1), date(2026, 1, 2), None],
        "tags": [["x"], [], None],
        "city": ["oslo", "lima", "oslo"],
    }
)


def test_a_folder_of_parquet_becomes_a_table_and_goes_on(tmp_path):
    (tmp_path / "in/city=oslo").mkdir(parents=True)
    pq.write_table(ROWS.drop_columns(["city"]), tmp_path / "in/city=oslo/a.parquet")
    done = migrate("parquet", str(tmp_path / "in"), str(tmp_path / "t"), key=["id"], partition_by=["city"])
    assert (done.rows, commits_of(tmp_path / "t")) == (3, 1)
    assert {row["city"] for row in rows_of(tmp_path / "t")} == {"oslo"}
    assert extra_of(tmp_path / "t")["deltastreamer.checkpoint.key"] == done.version
    pq.write_table(ROWS.drop_columns(["city"]).slice(0, 1), tmp_path / "in/city=oslo/b.parquet")
    assert ingest(tmp_path / "in", tmp_path / "t", min_age=0) in (0, 1)
    with pytest.raises(TableExists, match="has commits"):
        migrate("parquet", str(tmp_path / "in"), str(tmp_path / "t"), key=["id"])


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_delta_table_becomes_a_table(tmp_path, table_type):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "delta"), ROWS, partition_by=["city"])
    deltalake.write_deltalake(str(tmp_path / "delta"), ROWS.slice(0, 1).set_column(0, "id", [["d"]]), mode="append")
    deltalake.DeltaTable(str(tmp_path / "delta")).delete("id = 'b'")
    command = ["--from-delta", tmp_path / "delta", "--table", tmp_path / "t", "--key", "id", "--table-type", table_type]
    done = CliRunner().invoke(main, ["ingest", *map(str, command), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert (told["rows"], told["version"]) == (3, "delta-version-2")
    expected = deltalake.DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()
    columns = expected.schema.names
    assert rows_of(tmp_path / "t", columns) == sorted(
        expected.to_pylist(), key=lambda row: json.dumps(row, sort_keys=True, default=str)
    )


def test_an_iceberg_table_becomes_a_table(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", schema=ROWS.schema)
    made.append(ROWS)
    done = migrate("iceberg", made.metadata_location, str(tmp_path / "t"), key=["id"])
    assert done.rows == 3
    assert rows_of(tmp_path / "t", ["id", "n"]) == ROWS.select(["id", "n"]).to_pylist()


def test_rows_that_differ_are_rolled_back(tmp_path, monkeypatch):
    """Sabotage: one value changes between the source and the table."""
    import lakefmt._core.ingest.migrate as module

    (tmp_path / "in").mkdir()
    pq.write_table(ROWS, tmp_path / "in/a.parquet")
    counted = module._counted

    def one_value_else(batches, first, schema, digest):
        read = counted(batches, first, schema, digest).read_all()
        return read.set_column(1, schema.field("n"), pa.array([1, None, 4], schema.field("n").type))

    monkeypatch.setattr(module, "_counted", one_value_else)
    with pytest.raises(InternalError, match="rolled back"):
        migrate("parquet", str(tmp_path / "in"), str(tmp_path / "t"), key=["id"])
    monkeypatch.undo()
    assert lakefmt.open_table(str(tmp_path / "t")).read().num_rows == 0
    assert migrate("parquet", str(tmp_path / "in"), str(tmp_path / "t"), key=["id"]).rows == 3


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("parquet", InvalidInputError, "no Parquet files"),
        ("orc", InvalidInputError, "unknown format"),
        ("delta", InvalidInputError, "cannot be read as delta"),
    ],
)
def test_what_is_not_there_is_told(tmp_path, kind, error, message):
    if kind == "delta":
        pytest.importorskip("deltalake")
    (tmp_path / "in").mkdir()
    with pytest.raises(error, match=message):
        migrate(kind, str(tmp_path / "in"), str(tmp_path / "t"))


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    import sys

    for kind, package in (("delta", "deltalake"), ("iceberg", "pyiceberg.table")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UnsupportedFeature, match=package.partition(".")[0]):
            migrate(kind, str(tmp_path), str(tmp_path / "t"))
