"""Datasets, lazy frames, counts and limits: what is opened, what is pinned, and what is refused."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.formats.parquet.duplicate_columns import chunk_span
from lakefmt._core.read import dataset as dataset_module
from lakefmt._core.read import polars_scan, verbs
from lakefmt._core.read.polars_scan import implied_condition_of_polars
from lakefmt.errors import InvalidInputError, UnsupportedFeature

pytestmark = pytest.mark.newest_only("older releases of Polars and DuckDB hand over other filters")

ROWS = pa.table(
    {
        "id": [f"k{number:04}" for number in range(600)],
        "city": [["sf", "oslo", "rome"][number % 3] for number in range(600)],
        "n": pa.array(range(600), pa.int32()),
        "x": [None if number % 7 == 0 else number / 4 for number in range(600)],
    }
)
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
}


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakefmt.Table:
    made = lakefmt.create_table(
        str(tmp_path / "t"),
        data=ROWS,
        record_key="id",
        partition_by="city",
        table_type=request.param,
        indexes=["column_stats", "record_index"],
        options=OPTIONS,
    )
    for start in (0, 300):
        made.insert(ROWS.slice(start, 300))
    if request.param == "mor":
        made.upsert(ROWS.slice(0, 3))
    return made


def opened(table: lakefmt.Table, read: Any) -> int:
    """The number of base files and merged slices that a read takes."""
    seen: list[int] = []
    planned = dataset_module.planned_files

    def spy(*arguments: Any) -> Any:
        files, logged = planned(*arguments)
        seen.append(len(files) + len(logged))
        return files, logged

    with mock.patch.object(dataset_module, "planned_files", spy):
        read()
    return sum(seen)


def test_only_files_that_may_hold_rows_are_opened(table: lakefmt.Table) -> None:
    frame, rows = table.scan_polars(), table.dataset()
    assert opened(table, lambda: frame.collect()) == 6
    assert opened(table, lambda: frame.filter(pl.col("city") == "sf").collect()) == 2
    assert opened(table, lambda: frame.filter(pl.col("id") == "k0500").collect()) == 1  # the record index
    assert opened(table, lambda: frame.filter(pl.col("id").is_in(["k0500", "nope"])).collect()) == 1
    assert opened(table, lambda: frame.filter((pl.col("city") == "sf") & (pl.col("n") >= 300)).collect()) <= 2
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        assert opened(table, lambda: connection.execute("select sum(n) from rows where city = 'sf'").fetchall()) == 2


def test_a_dataset_keeps_its_moment_and_travels(table: lakefmt.Table) -> None:
    before, frame = table.dataset(), table.scan_polars()
    table.delete(ROWS.slice(1, 1).select(["id", "city"]))
    assert (before.count_rows(), frame.select(pl.len()).collect().item()) == (600, 600)
    assert (table.dataset().count_rows(), table.count()) == (599, 599)
    again = pickle.loads(pickle.dumps(before.filter(pc.field("n") < 10)))
    assert sorted(again.to_table(columns=["n"])["n"].to_pylist()) == list(range(10))
    assert again.count_rows() == 10


def test_a_dataset_behaves_as_one_of_arrow(table: lakefmt.Table) -> None:
    rows, same = table.dataset(), ds.dataset(ROWS)
    assert isinstance(rows, ds.Dataset)
    assert rows.schema.equals(same.schema)
    computed = {"twice": pc.field("n") * 2, "city": pc.field("city")}
    found, expected = (
        each.to_table(columns=computed, filter=pc.field("n") < 5).sort_by("twice") for each in (rows, same)
    )
    assert found.equals(expected)
    assert rows.head(7).num_rows == 7
    assert rows.take([0, 1], columns=["id"]).num_rows == 2
    assert rows.sort_by([("n", "descending")]).head(1)["n"].to_pylist() == [599]
    assert rows.join(ds.dataset(ROWS.select(["id"]).slice(0, 4)), "id", join_type="inner").to_table().num_rows == 4
    assert rows.to_table(columns=["n", "n"]).num_columns == 2
    assert sum(batch.num_rows for batch in rows.to_batches(filter=pc.field("city") == "sf")) == 200
    assert sum(part.count_rows() for part in rows.get_fragments()) == 600
    assert rows.replace_schema(ROWS.schema).count_rows() == 600
    with pytest.raises(InvalidInputError, match="no column 'nope'"):
        rows.to_table(columns=["nope"])


def test_what_takes_the_object_in_place_of_its_methods_fails(table: lakefmt.Table) -> None:
    with pytest.raises(OSError, match="read by its own methods"):
        ds.Scanner.from_dataset(table.dataset()).to_table()


def test_limits_are_counts(table: lakefmt.Table) -> None:
    assert [table.read(limit=limit).num_rows for limit in (0, 1, 599, 1000)] == [0, 1, 599, 600]
    assert table.read(["n"], "n >= 590", limit=4)["n"].to_pylist() != []
    assert sum(batch.num_rows for batch in table.scan(limit=250)) == 250
    assert table.read([], limit=3).num_rows == 3
    assert table.head().num_rows == 5
    for wrong in (-1, "3", float("nan")):
        with pytest.raises(InvalidInputError):
            table.read(limit=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "first_rows",
    [
        lambda table: table.head(10).num_rows,
        lambda table: table.dataset().head(10).num_rows,
        lambda table: table.scan_polars().head(10).collect().height,
    ],
    ids=["head", "dataset", "polars"],
)
def test_a_limit_opens_few_files(tmp_path: Path, first_rows: Any) -> None:
    made = lakefmt.create_table(str(tmp_path / "l"), data=ROWS, record_key="id", options=OPTIONS)
    for start in range(0, 600, 50):
        made.insert(ROWS.slice(start, 50))
    from lakefmt._core.read import scan

    checked: list[int] = []
    footers, stored_file = scan._check_footers, polars_scan._stored_file

    def spy(client: Any, fragments: Any, prefix: str) -> None:
        checked.append(len(fragments))
        footers(client, fragments, prefix)

    def spy_on_file(*arguments: Any) -> Any:
        checked.append(1)
        return stored_file(*arguments)

    with mock.patch.object(scan, "_check_footers", spy), mock.patch.object(polars_scan, "_stored_file", spy_on_file):
        assert first_rows(made) == 10
    assert sum(checked) == 1


def test_large_files_come_in_batches_with_the_same_rows(table: lakefmt.Table) -> None:
    few, whole = pl.col("n") % 3 == 1, pl.DataFrame(ROWS)
    collect_batches, used = pl.LazyFrame.collect_batches, []

    def noted(frame: pl.LazyFrame) -> Any:
        used.append(frame)
        return collect_batches(frame)

    with (
        mock.patch.object(polars_scan, "_TOGETHER_BYTES", 0),
        mock.patch.object(pl.LazyFrame, "collect_batches", noted),
    ):
        for engine in ("in-memory", "streaming"):
            found = table.scan_polars().filter(few).collect(engine=engine)  # type: ignore[call-overload]
            assert found.sort("n").equals(whole.filter(few).sort("n"))
        assert table.scan_polars().head(7).collect().height == 7
    assert len(used) >= 3


def test_polars_does_not_find_a_dropped_column_under_its_name(tmp_path: Path) -> None:
    made = lakefmt.create_table(str(tmp_path / "t"), data=ROWS, record_key="id", options=OPTIONS)
    made.insert(ROWS.slice(0, 100))
    made.alter.drop_column("x")
    made.alter.add_column("x", pa.float64())
    made.insert(ROWS.slice(100, 200))
    frame = made.scan_polars().filter(pl.col("x").is_not_null()).select("n", "x")
    expected = pl.DataFrame(ROWS.slice(100, 200).select(["n", "x"])).filter(pl.col("x").is_not_null())
    assert frame.collect().sort("n").equals(expected)
    with mock.patch.object(polars_scan, "reads_by_name", return_value=lambda file: True):
        assert frame.collect().height > expected.height, "the file has the values of the column that was dropped"


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]


def test_polars_reads_no_page_with_a_flipped_bit(tmp_path: Path) -> None:
    made = lakefmt.create_table(str(tmp_path / "t"), data=ROWS, record_key="id", options=OPTIONS)
    made.insert(ROWS)
    (path,) = (tmp_path / "t").glob("*.parquet")
    content, expected = path.read_bytes(), sorted(map(repr, made.scan_polars().collect().rows()))
    metadata = pq.ParquetFile(path).metadata
    chunks = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
    spans = [chunk_span(chunk) for chunk in chunks if chunk.path_in_schema in ROWS.column_names]
    other_rows = 0
    for position in (span.offset + span.size - 4 for span in spans):
        path.write_bytes(flipped(content, position))
        with pytest.raises(Exception, match="cannot be read"):
            made.scan_polars().collect()
        with mock.patch.object(polars_scan, "are_whole", return_value=True), suppress(Exception):
            other_rows += sorted(map(repr, made.scan_polars().collect().rows())) != expected
    assert other_rows, "Polars itself would find what is flipped here"


def test_counts_are_those_of_the_rows(table: lakefmt.Table) -> None:
    for text in (None, "city = 'sf'", "n % 2 = 0", "x > 10", "x is null", "n < 0", "id = 'k0007'", "not (x > 10)"):
        assert table.count(text) == table.read(filter=text).num_rows, text


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_counts_rows_without_reading_any(table: lakefmt.Table, engine: Any) -> None:
    frame, few = table.scan_polars(), pl.col("n") < 10
    with mock.patch.object(polars_scan, "_Scan", side_effect=AssertionError("rows are read")):
        assert frame.select(pl.len()).collect(engine=engine).item() == 600
        assert frame.filter(pl.lit(True)).select(pl.len()).collect(engine=engine).item() == 600
        assert frame.filter(pl.lit(False)).select(pl.len()).collect(engine=engine).item() == 0
        assert table.scan_polars(columns=[]).select(pl.len()).collect(engine=engine).item() == 600
        assert table.scan_polars(filter="city = 'sf'").select(pl.len()).collect(engine=engine).item() == 200
    for counted, rows in ((frame.filter(few), 10), (frame.filter(few).head(3), 3)):
        assert counted.select(pl.len()).collect(engine=engine).item() == rows
    assert frame.select(pl.len(), pl.col("n").sum()).collect(engine=engine).row(0) == (600, sum(range(600)))
    assert frame.with_row_index("number").select(pl.col("number").max()).collect(engine=engine).item() == 599


def test_the_column_without_values_has_a_name_of_its_own(tmp_path: Path) -> None:
    name = polars_scan._UNSTORED
    made = lakefmt.create_table(
        str(tmp_path / "t"), data=ROWS.rename_columns(["id", "city", name, "x"]), record_key="id", options=OPTIONS
    )
    made.insert(ROWS.rename_columns(["id", "city", name, "x"]))
    frame = made.scan_polars()
    assert frame.collect_schema().names() == ["id", "city", name, "x"]
    assert frame.select(pl.len(), pl.col(name).sum()).collect().row(0) == (600, sum(range(600)))
    assert frame.select(pl.len()).collect().item() == 600


def test_increments_and_moments_are_datasets(table: lakefmt.Table) -> None:
    assert table.dataset(start="000").count_rows() == 600
    assert table.dataset(start="000", columns=["n"], filter="n < 5").to_table().num_rows == 5
    with pytest.raises(InvalidInputError, match="end="):
        table.dataset(end="2026")
    with pytest.raises(InvalidInputError, match="start="):
        table.dataset(start="000", as_of="2026")
    with pytest.raises(InvalidInputError, match="unknown query"):
        table.dataset(query="other")


@pytest.mark.parametrize("verb", ["insert", "upsert", "bulk_insert"])
def test_a_lazy_frame_is_written_by_batches(table: lakefmt.Table, verb: str) -> None:
    more = pl.DataFrame(ROWS).lazy().with_columns((pl.col("id") + "-2").alias("id")).filter(pl.col("n") < 20)
    getattr(table, verb)(more)
    assert table.count("id like '%-2'") == 20
    table.delete(more.select("id", "city"))
    assert table.count() == 600


def test_a_lazy_frame_that_fails_changes_nothing(table: lakefmt.Table) -> None:
    def fail(frame: pl.DataFrame) -> pl.DataFrame:
        raise RuntimeError("no rows today")

    broken = pl.DataFrame(ROWS).lazy().map_batches(fail, schema=pl.DataFrame(ROWS).schema)
    with pytest.raises(InvalidInputError, match="LazyFrame cannot be read"):
        table.upsert(broken)
    assert table.count() == 600


def test_frames_of_pandas_have_the_asked_size(table: lakefmt.Table) -> None:
    parts = list(table.to_pandas(batches=256, columns=["n"]))
    assert [len(part) for part in parts] == [256, 256, 88]
    assert sorted(number for part in parts for number in part["n"]) == list(range(600))
    with pytest.raises(InvalidInputError):
        table.to_pandas(batches=0)


def test_duckdb_gets_a_relation_or_a_view(table: lakefmt.Table) -> None:
    with duckdb.connect() as connection:
        table.to_duckdb(connection, "seven", filter="n < 7")
        assert connection.execute("select count(*) from seven").fetchall() == [(7,)]
        table.to_duckdb(connection, "three", limit=3)
        assert connection.execute("select count(*) from three").fetchall() == [(3,)]
        table.to_duckdb(connection).filter("n < 9").create_view("nine")
        assert connection.execute("select count(*) from nine").fetchall() == [(9,)]
    trips = table
    assert trips.count() == 600
    assert duckdb.execute("select count(*) from trips where n < 5").fetchall() == [(5,)]


def test_a_library_that_is_missing_is_named() -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'polars'", name="polars")

    made = lakefmt.create_table("memory://lazy-missing", data=ROWS, record_key="id")
    with (
        mock.patch.object(verbs, "_import_polars", missing),
        pytest.raises(UnsupportedFeature, match=r"lakefmt\[polars\]"),
    ):
        made.scan_polars()


def test_unknown_forms_of_predicates_prune_nothing() -> None:
    with mock.patch.object(polars_scan.json, "loads", return_value={"Novel": {}}):
        assert implied_condition_of_polars(pl.col("n") == 1, ROWS.schema) is None
    assert implied_condition_of_polars(pl.col("x") > 1.0, ROWS.schema) is None  # NaN is larger for Polars
    assert implied_condition_of_polars(pl.col("n").is_in([1, None]), ROWS.schema) is not None


def test_a_scan_that_is_left_early_does_not_end_the_interpreter(table: lakefmt.Table) -> None:
    program = (
        "import lakefmt, duckdb, polars\n"
        f"t = lakefmt.open_table({table.client.store.url!r})\n"
        "t.scan_polars().head(3).collect(); d = t.dataset()\n"
        "duckdb.execute('select * from d limit 2').fetchall(); next(iter(t.scan()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


ONE_PROCESSOR = """
import sys, pyarrow as pa, lakefmt
assert pa.cpu_count() == int(sys.argv[2])
table = lakefmt.open_table(sys.argv[1])
for query in ({}, {"columns": ["id"], "filter": "city = 'c1' and n > 3"}, {"filter": "lower(city) = 'c1' and n % 2 = 1"}):
    dataset = table.dataset(**query)
    expected = table.read(**query).num_rows
    assert dataset.to_table().num_rows == dataset.count_rows() == expected
    assert sum(batch.num_rows for part in dataset.get_fragments() for batch in part.to_batches()) == expected
    assert table.to_polars(**query).height == expected
assert pa.cpu_count() == int(sys.argv[2])
print("read")
"""


@pytest.mark.slow
@pytest.mark.parametrize("processors", [1, 2])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_dataset_is_read_on_few_processors(tmp_path: Path, table_type: str, processors: int) -> None:
    """A container, or a worker of Ray, has one: reading a slice within a thread of Arrow's waited for a second one, for ever."""
    data = pa.table({"id": [f"k{n}" for n in range(60)], "city": [f"c{n % 3}" for n in range(60)], "n": range(60)})
    table = lakefmt.create_table(
        tmp_path / "t", schema=data.schema, record_key="id", partition_by="city", table_type=table_type
    )
    for begin in range(0, 60, 20):
        table.insert(data.slice(begin, 20), options={"hoodie.parquet.small.file.limit": 0})
    table.upsert(data.slice(10, 20))
    done = subprocess.run(
        [sys.executable, "-c", ONE_PROCESSOR, str(tmp_path / "t"), str(processors)],
        env={**os.environ, "OMP_NUM_THREADS": str(processors)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "read\n", done.stderr
