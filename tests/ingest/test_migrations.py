"""Tables of other formats, once into a new table, with all rows compared."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lakefmt
from lakefmt._core.cli import main
from lakefmt._core.ingest.migrate import migrate
from lakefmt.errors import (
    DuplicateKey,
    InternalError,
    InvalidInputError,
    SourceUnavailable,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lakefmt.testing.stores import SimulatedCrash
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


def test_rows_that_differ_are_never_visible(tmp_path, monkeypatch):
    """Sabotage: one value changes between the source and the table."""
    import lakefmt._core.ingest.migrate as module

    (tmp_path / "in").mkdir()
    pq.write_table(ROWS, tmp_path / "in/a.parquet")
    counted = module._counted

    def one_value_else(batches, first, schema, digest):
        read = counted(batches, first, schema, digest).read_all()
        return read.set_column(1, schema.field("n"), pa.array([1, None, 4], schema.field("n").type))

    monkeypatch.setattr(module, "_counted", one_value_else)
    with pytest.raises(InternalError, match="nothing was committed"):
        migrate("parquet", str(tmp_path / "in"), str(tmp_path / "t"), key=["id"])
    monkeypatch.undo()
    with pytest.raises(TableNotFound):
        lakefmt.open_table(tmp_path / "t")
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


# -------------------------------------------------------------------------------------------------------- lakefmt.convert


def delta_table(tmp_path):
    """A Delta table with files that are not its own any more."""
    deltalake = pytest.importorskip("deltalake")
    where = str(tmp_path / "in")
    deltalake.write_deltalake(where, ROWS, partition_by=["city"])
    deltalake.DeltaTable(where).delete("id = 'b'")
    return where, deltalake.DeltaTable(where).to_pyarrow_table()


def iceberg_table(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", schema=ROWS.schema)
    made.append(ROWS)
    made.delete("id == 'b'")
    return made.location(), made.scan().to_arrow()


def parquet_folder(tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(ROWS, tmp_path / "in/a.parquet")
    return tmp_path / "in", ROWS


SOURCES = {"delta": delta_table, "iceberg": iceberg_table, "parquet": parquet_folder}


def sorted_rows(rows):
    return sorted(rows.select(ROWS.column_names).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", SOURCES)
def test_what_a_folder_holds_is_recognised_and_copied(tmp_path, kind, table_type):
    source, expected = SOURCES[kind](tmp_path)
    call = {"record_key": "id", "partition_by": "city", "ordering": "n", "table_type": table_type}
    done = lakefmt.convert(source, tmp_path / "t", **call)
    table = lakefmt.open_table(tmp_path / "t")
    assert (done.rows, done.instant) == (expected.num_rows, table.timeline.entries[-1].time)
    assert sorted_rows(table.read()) == sorted_rows(expected)
    assert table.check("full").is_clean
    again = lakefmt.convert(source, tmp_path / "t", **call)
    assert (again.rows, again.digest, again.instant) == (done.rows, done.digest, done.instant)
    assert commits_of(tmp_path / "t") == 1
    table.upsert(ROWS.slice(0, 1))
    with pytest.raises(TableExists):
        lakefmt.convert(source, tmp_path / "t", **call)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("ends", ["before the commit", "after it"])
def test_a_process_that_dies_leaves_nothing_half_visible(tmp_path, monkeypatch, kind, ends):
    """Deaths at all other effects of such a write are those of tests/crash."""
    import lakefmt._core.ingest.migrate as module

    source, expected = SOURCES[kind](tmp_path)

    replaced = module.replace

    def dies(done, *instant, **more):
        if ends == "before the commit" or "instant" in more:
            raise SimulatedCrash
        return replaced(done, **more)

    monkeypatch.setattr(module, "rows_of_files" if ends == "before the commit" else "replace", dies)
    with pytest.raises(SimulatedCrash):
        lakefmt.convert(source, tmp_path / "t", record_key="id")
    monkeypatch.undo()
    if ends == "before the commit":
        assert lakefmt.open_table(tmp_path / "t").read().num_rows == 0
    else:
        assert sorted_rows(lakefmt.open_table(tmp_path / "t").read()) == sorted_rows(expected)
    assert lakefmt.convert(source, tmp_path / "t", record_key="id").rows == expected.num_rows
    assert (commits_of(tmp_path / "t"), sorted_rows(lakefmt.open_table(tmp_path / "t").read())) == (
        1,
        sorted_rows(expected),
    )


@pytest.mark.parametrize("kind", SOURCES)
def test_what_fails_leaves_no_table(tmp_path, kind):
    source, _ = SOURCES[kind](tmp_path)
    with pytest.raises(lakefmt.LakefmtError):
        lakefmt.convert(source, tmp_path / "t", record_key="day")  # it has a null
    with pytest.raises(TableNotFound):
        lakefmt.open_table(tmp_path / "t")
    assert lakefmt.convert(source, tmp_path / "t", record_key="id").rows


def test_repeated_keys_are_refused_and_counted(tmp_path):
    (tmp_path / "in").mkdir()
    rows = pa.table({"id": ["a", "b", "a", "c", "c", "c"], "city": ["x", "x", "y", "x", "x", "x"], "n": range(6)})
    pq.write_table(rows.slice(0, 4), tmp_path / "in/a.parquet")
    pq.write_table(rows.slice(4), tmp_path / "in/b.parquet")
    with pytest.raises(DuplicateKey, match="2 record keys"):
        lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key="id")
    with pytest.raises(DuplicateKey, match="1 record keys"):
        lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key="id", partition_by="city")
    assert lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key=["id", "n"]).rows == 6
    assert lakefmt.convert(tmp_path / "in", tmp_path / "keyless").rows == 6


def test_what_is_not_copied_is_refused_by_its_name(tmp_path):
    hudi, foreign, half = tmp_path / "hudi", tmp_path / "paimon", tmp_path / "half"
    lakefmt.write_table(hudi, ROWS, record_key="id")
    for name in ("schema/schema-0", "snapshot/snapshot-1"):
        (foreign / name).parent.mkdir(parents=True)
        (foreign / name).write_text("{}")
    (half / "_temporary/0").mkdir(parents=True)
    pq.write_table(ROWS, half / "a.parquet")
    (half / "_temporary/0/b.parquet").write_bytes(b"")
    for source, message in (
        (hudi, "open_table"),
        (foreign, "Paimon"),
        (half, "_temporary"),
        (tmp_path / "no", "not exist"),
    ):
        with pytest.raises((InvalidInputError, SourceUnavailable), match=message):
            lakefmt.convert(source, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_the_files_of_a_delta_table_are_no_folder_of_parquet(tmp_path):
    """A deleted row would come back."""
    source, _ = delta_table(tmp_path)
    with pytest.raises(InvalidInputError, match="Delta"):
        migrate("parquet", source, str(tmp_path / "t"), key=["id"])


def test_a_damaged_file_ends_it(tmp_path):
    source, _ = parquet_folder(tmp_path)
    whole = (tmp_path / "in/a.parquet").read_bytes()
    (tmp_path / "in/b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(lakefmt.LakefmtError, match=r"b\.parquet"):
        lakefmt.convert(source, tmp_path / "t", record_key="id")
    with pytest.raises(TableNotFound):
        lakefmt.open_table(tmp_path / "t")


def test_two_newest_metadata_files_are_refused(tmp_path):
    for name in ("00001-a", "00002-a", "00002-b"):
        (tmp_path / "in/metadata").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"in/metadata/{name}.metadata.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="2 newest"):
        lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key="id")


def one_row_of(kind, tmp_path, name, row):
    """A source with one row; the sources of a kind have the same version."""
    if kind == "parquet":
        (tmp_path / name).mkdir()
        pq.write_table(row, tmp_path / name / "a.parquet")
        os.utime(tmp_path / name / "a.parquet", (1_700_000_000, 1_700_000_000))
    else:
        pytest.importorskip("deltalake").write_deltalake(str(tmp_path / name), row)
    return tmp_path / name


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_second_source_of_the_same_version_is_not_taken_for_the_first(tmp_path, monkeypatch, kind):
    first = one_row_of(kind, tmp_path, "first", pa.table({"id": ["a"], "n": [1]}))
    second = one_row_of(kind, tmp_path, "second", pa.table({"id": ["b"], "n": [1]}))
    done = lakefmt.convert(first, tmp_path / "t", record_key="id")
    with pytest.raises(TableExists):
        lakefmt.convert(second, tmp_path / "t", record_key="id")
    monkeypatch.chdir(tmp_path)
    assert lakefmt.convert("first/", "t", record_key="id").digest == done.digest
    with pytest.raises(InvalidInputError, match="record_key"):
        lakefmt.convert(first, tmp_path / "t", record_key="n")
    with pytest.raises(InvalidInputError, match="partition_by"):
        lakefmt.convert(first, tmp_path / "t", record_key="id", partition_by="n")


def test_a_delta_table_that_renames_columns_in_its_files_is_refused(tmp_path):
    """Version 2 of the reader's protocol has no feature for it: the columns would be null, or hold what another one left."""
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "in"), pa.table({"id": ["a"], "n": [1]}))
    log = tmp_path / "in/_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            columns = json.loads(action["metaData"]["schemaString"])
            for number, (column, name, stored) in enumerate(
                zip(columns["fields"], ["id", "m"], ["id", "n"], strict=True)
            ):
                ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored}
                column |= {"name": name, "metadata": ids}
            action["metaData"]["schemaString"] = json.dumps(columns)
            action["metaData"]["configuration"] = {
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": "1",
            }
    log.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(UnsupportedFeature, match="other names"):
        lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key="id")
    assert not (tmp_path / "t").exists()


def test_a_delta_table_with_partitions_of_bytes_is_refused(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "in"), pa.table({"id": ["a"], "b": [b"x"]}), partition_by=["b"])
    with pytest.raises(UnsupportedFeature, match="'b'"):
        lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key="id")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "properties",
    [{"hoodie.populate.meta.fields": "false"}, {"hoodie.datasource.write.drop.partition.columns": "true"}],
    ids=["no meta columns", "no partition columns"],
)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_files_that_hold_less_are_compared_as_their_table_reads_them(tmp_path, table_type, properties):
    call = {"partition_by": "city", "table_type": table_type, "properties": properties}
    source, expected = parquet_folder(tmp_path)
    assert lakefmt.convert(source, tmp_path / "t", record_key="id", **call).rows == 3
    assert sorted_rows(lakefmt.open_table(tmp_path / "t").read()) == sorted_rows(expected)
    pq.write_table(ROWS.slice(2), tmp_path / "in/b.parquet")
    with pytest.raises(DuplicateKey, match="1 record keys"):
        lakefmt.convert(source, tmp_path / "u", record_key="id", **call)
    with pytest.raises(TableNotFound):
        lakefmt.open_table(tmp_path / "u")
