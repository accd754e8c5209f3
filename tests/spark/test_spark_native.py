"""Which tables Spark's own Parquet reader may read, file by file (no JVM; ``test_spark_data_source.py`` reads them)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt.spark.reading import fits_natively, native_paths, open_scan

OPTIONS = {"lakefmt.durability": "none", "lakefmt.write.threads": 1, "hoodie.clean.automatic": False}
NATIVE = "lakefmt.spark.read.native"
ROWS = pa.table({"id": ["a", "b", "c"], "city": ["x", "y", "x"], "v": pa.array([1, 2, 3], pa.int32()), "ts": [1, 2, 3]})


def make(path: Path, **more: object) -> lakefmt.Table:
    table = lakefmt.create_table(
        path, data=ROWS, record_key="id", partition_by="city", ordering="ts", options=OPTIONS, **more
    )
    table.upsert(ROWS)
    return table


def paths_of(path: Path, **options: str) -> list[str]:
    return native_paths(open_scan(str(path), options).plan())


def test_plain_tables_are_read_by_exactly_their_newest_files(tmp_path):
    table = make(tmp_path / "t")
    table.upsert(ROWS.slice(0, 1))
    paths = paths_of(tmp_path / "t")
    assert sorted(paths) == sorted(f"file:{tmp_path}/t/{one.base.path}" for one in table.file_groups())
    files = [pq.read_table(path.removeprefix("file:"), partitioning=None) for path in paths]
    read = pa.concat_tables(files).select(ROWS.column_names).sort_by("id")
    assert read.equals(table.read().sort_by("id").cast(read.schema))
    first = table.timeline.entries[0].time
    then = paths_of(tmp_path / "t", **{"as.of.instant": first})
    assert len(then) == 2
    assert set(then) != set(paths)
    assert paths_of(tmp_path / "t", **{NATIVE: "never"}) == []
    assert paths_of(tmp_path / "t", **{"hoodie.datasource.query.type": "incremental"}) == []


def test_logs_are_merged_by_lakefmt(tmp_path):
    table = make(tmp_path / "t", table_type="mor")
    assert len(paths_of(tmp_path / "t")) == 2
    table.upsert(ROWS.slice(0, 1))
    assert paths_of(tmp_path / "t") == []
    assert len(paths_of(tmp_path / "t", **{"hoodie.datasource.query.type": "read_optimized"})) == 2


def test_a_wider_type_is_read_by_lakefmt_and_a_new_column_is_not(tmp_path):
    table = make(tmp_path / "t")
    new = ROWS.slice(0, 1).append_column("new", pa.array(["n"]))
    table.upsert(new)
    assert len(paths_of(tmp_path / "t")) == 2
    wide = new.set_column(2, "v", pa.array([1 << 40], pa.int64()))
    table.upsert(wide)
    assert paths_of(tmp_path / "t") == []
    table.upsert(table.read())  # every file is written anew
    assert len(paths_of(tmp_path / "t")) == 2


@pytest.mark.parametrize(
    "stored",
    [{"hoodie.populate.meta.fields": "false"}, {"hoodie.datasource.write.drop.partition.columns": "true"}],
    ids=["no meta columns", "no partition columns"],
)
def test_columns_that_are_in_no_file_come_from_lakefmt(tmp_path, stored):
    make(tmp_path / "t", properties=stored)
    assert paths_of(tmp_path / "t") == []


@pytest.mark.parametrize("name", ["a*b", "a[b]", "a{b}", "_a", ".a", "a b", "a?"])
def test_names_that_spark_would_understand_in_another_way(tmp_path, name):
    make(tmp_path / name)
    assert paths_of(tmp_path / name) == []


def test_other_stores_are_read_natively_only_when_asked(tmp_path):
    lakefmt.create_table("memory://native/t", data=ROWS, record_key="id", options=OPTIONS).upsert(ROWS)
    scan = open_scan("memory://native/t", {})
    assert native_paths(scan.plan()) == []
    asked = open_scan("memory://native/t", {NATIVE: "always"}).plan()
    assert all(path.startswith("memory://") for path in native_paths(asked))
    assert len(native_paths(asked)) == 1


@pytest.mark.parametrize(
    ("stored", "table", "fits"),
    [
        (pa.int32(), pa.int32(), True),
        (pa.int32(), pa.int64(), False),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), True),
        (pa.timestamp("us"), pa.timestamp("us"), False),
        (pa.binary(16), pa.binary(16), False),
        (pa.list_(pa.struct([("t", pa.time64("us"))])), pa.list_(pa.struct([("t", pa.time64("us"))])), False),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int32()), ("b", pa.int32())]), False),
    ],
)
def test_types(stored, table, fits):
    assert fits_natively(pa.schema([("c", stored)]), pa.schema([("c", table)])) is fits


def test_names_that_differ_by_case_alone_are_one_name_for_spark():
    both = pa.schema([("a", pa.int32()), ("A", pa.int32())])
    assert not fits_natively(both, both)
