"""Tables that Hudi bootstrapped: base files with meta columns alone, whose rows lie in files elsewhere."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.filegroups.bootstrap import decode_sources, encode_sources, is_bootstrapped
from lakefmt._core.formats.avro.container import _read_header, decode_container, encode_container
from lakefmt._core.formats.hfile_container import HFileReader, encode_hfile
from lakefmt._core.formats.properties import decode_properties, encode_properties
from lakefmt._core.table import Table
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.values import PartitionPath, TableType
from lakefmt.errors import CorruptFile, UnsafePath, UnsupportedFeature

DATA = Path(__file__).parents[1] / "data" / "bootstrap"
INDEX = ".hoodie/.aux/.bootstrap/.partitions/00000000-0000-0000-0000-000000000000-0_1-0-1_00000000000001.hfile"
NAMES = ("v9_cow_bootstrap_120", "v6_mor_bootstrap_120")
COLUMNS = ("id", "v", "ts", "name", "city")
Row = tuple[Any, ...]
#: What was bootstrapped, and what Spark read after its upsert and its delete.
SOURCE: list[Row] = [
    (f"{city}{n}{i}", i * n, 100 + i, f"n{i}", city) for city in ("oslo", "rome") for n in (1, 2) for i in range(3)
]
NEW: list[Row] = [("oslo10", 99, 500, "up", "oslo"), ("new1", 7, 500, "new", "oslo"), ("new2", 7, 500, "new", "bern")]
STORED = [*(row for row in SOURCE if row[0] not in ("oslo10", "rome21")), *NEW]


def unpacked(name: str, into: Path) -> Path:
    """Unpack a table with its source; return its folder, whose paths are right."""
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(into)
    change_properties(into / "table", {"hoodie.bootstrap.base.path": str(into / "source")})
    index, base = into / "table" / INDEX, written_in(name)
    stored = HFileReader.from_bytes(index.read_bytes(), "index").read().to_pylist()
    sources = {
        PartitionPath(each["key"].decode().removeprefix("part=")): {
            file_id: (source, 0.0) for file_id, source in decode_sources(each["value"], base, "index").items()
        }
        for each in stored
    }
    for file, data in encode_sources(str(into / "source"), sources, 0).items():
        (into / "table" / file).write_bytes(data)
    return into / "table"


def written_in(name: str) -> str:
    """Return where the source of a table was when Spark bootstrapped it."""
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        properties = decode_properties(archive.read("table/.hoodie/hoodie.properties"), what="properties")
    return properties["hoodie.bootstrap.base.path"]


def change_properties(table: Path, changes: dict[str, str]) -> None:
    """Change properties of a table."""
    path = table / ".hoodie" / "hoodie.properties"
    path.write_bytes(encode_properties({**decode_properties(path.read_bytes(), what="properties"), **changes}))


def change_index(
    table: Path, place: Callable[[str], str] = str, change: Callable[[dict[str, Any]], object] = lambda record: None
) -> None:
    """Change the paths in the index of a table, or its records."""
    path = table / INDEX
    stored = HFileReader.from_bytes(path.read_bytes(), "index").read()
    values = []
    for value in stored.column("value").to_pylist():
        record: dict[str, Any] = decode_container(value)
        for status in record["fileIdToBootstrapFile"].values():
            status["path"]["uri"] = place(status["path"]["uri"])
        change(record)
        values.append(encode_container(_read_header(value)[0]["avro.schema"].decode(), record))
    path.write_bytes(encode_hfile(stored.column("key"), pa.array(values, pa.binary())))


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file."""
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def values_of(rows: pa.Table) -> list[Row]:
    """Return rows in the order of their keys."""
    return sorted(zip(*(rows.column(name).to_pylist() for name in COLUMNS), strict=True))


def check_doors(table: Table, rows: Sequence[Row]) -> None:
    """Assert that every way to read gives some rows."""
    expected = sorted(rows)
    assert values_of(table.read()) == expected
    assert table.count() == len(rows)
    assert values_of(pa.Table.from_batches(table.scan(), table.read().schema)) == expected
    assert values_of(table.dataset().to_table()) == expected
    assert values_of(pickle.loads(pickle.dumps(table.snapshot())).read()) == expected
    fragments = pickle.loads(pickle.dumps(list(table.dataset().get_fragments())))
    assert values_of(pa.concat_tables(each.to_table() for each in fragments)) == expected
    if importlib.util.find_spec("polars.io.plugins") is not None:  # the oldest Polars takes no sources
        assert values_of(table.scan_polars().collect().to_arrow()) == expected
    connection = pytest.importorskip("duckdb").connect()
    table.to_duckdb(connection, "bootstrapped")
    found = connection.sql("select id, v, ts, name, city from bootstrapped where v >= 2").fetchall()
    assert sorted(found) == [row for row in expected if row[1] >= 2]
    assert table.read(limit=3).num_rows == 3
    for column, name in enumerate(COLUMNS):
        assert sorted(table.read(columns=[name]).column(0).to_pylist()) == sorted(row[column] for row in rows)
        for value in sorted({row[column] for row in rows})[::3]:
            text = f"'{value}'" if isinstance(value, str) else str(value)
            equal, more = f"{name} = {text}", f"{name} > {text}"
            assert values_of(table.read(filter=equal)) == [row for row in expected if row[column] == value]
            assert values_of(table.read(filter=more)) == [row for row in expected if row[column] > value]
            assert table.count(filter=more) == sum(row[column] > value for row in rows)
    meta = table.read(meta_columns=True)
    assert [f"city={city}" for city in meta["city"].to_pylist()] == meta["_hoodie_partition_path"].to_pylist()
    assert meta["id"].to_pylist() == meta["_hoodie_record_key"].to_pylist()
    assert table.check().is_clean


@pytest.fixture(params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the folder of a table."""
    return unpacked(request.param, tmp_path)


def test_all_ways_to_read_give_the_rows_of_spark(folder: Path) -> None:
    check_doors(lakefmt.open_table(str(folder)), STORED)


def test_the_past_is_read(folder: Path) -> None:
    table = lakefmt.open_table(str(folder))
    bootstrap, upsert, _ = table.client.load().timeline.commits
    assert values_of(table.read(as_of=bootstrap.time)) == sorted(SOURCE)
    assert values_of(table.read(as_of=upsert.time)) == sorted([*SOURCE[1:], *NEW])
    assert values_of(table.incremental("000")) == sorted(STORED)
    changes = table.changes(bootstrap.completion or bootstrap.time, columns=["id", "v"]).to_pylist()
    assert sorted((row["op"], (row["after"] or row["before"])["id"]) for row in changes) == [
        ("d", "rome21"),
        ("i", "new1"),
        ("i", "new2"),
        ("u", "oslo10"),
    ]


def test_writes_go_on(folder: Path) -> None:
    before = digests(folder.parent / "source")
    table = lakefmt.open_table(str(folder))
    more: list[Row] = [("rome12", 50, 600, "more", "rome"), ("new3", 1, 600, "more", "rome")]
    table.upsert(pa.table({name: [row[n] for row in more] for n, name in enumerate(COLUMNS)}))
    rows = [*(row for row in STORED if row[0] != "rome12"), *more]
    check_doors(table, rows)
    table.delete("id = 'rome10'")
    table.update("city = 'rome'", expressions={"v": "v + 1"})
    rows = [(key, v + (row[-1] == "rome"), *row) for key, v, *row in rows if key != "rome10"]
    check_doors(table, rows)
    savepoint = table.savepoint()
    table.delete("city = 'oslo'")
    assert table.count() == sum(row[-1] != "oslo" for row in rows)
    table.restore(savepoint.instant)
    check_doors(table, rows)
    if table.properties.table_type is TableType.MERGE_ON_READ:
        table.compact()
    table.cluster()
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.vacuum(orphans=True, older_than=0)
    check_doors(lakefmt.open_table(str(folder)), rows)
    assert digests(folder.parent / "source") == before


def test_plans_name_the_sources_for_whoever_carries_them_out(tmp_path: Path) -> None:
    folder = unpacked(NAMES[1], tmp_path)
    table = lakefmt.open_table(str(folder))
    compaction = table.compact(schedule=True, options={"hoodie.compact.inline.max.delta.commits": 1})
    record = decode_body(BodyKind.COMPACTION_PLAN, plan_of(folder, compaction.instant), what="plan")
    (operation,) = record["operations"]
    assert operation["bootstrapFilePath"].startswith(f"file:{tmp_path}/source/city=rome/part-")
    table.compact(run=compaction.instant)
    clustering = table.cluster(schedule=True)
    record = decode_body(BodyKind.REQUESTED_REPLACE, plan_of(folder, clustering.instant), what="plan")
    slices = [each for group in record["clusteringPlan"]["inputGroups"] for each in group["slices"]]
    assert len(slices) > 2
    for each in slices:
        assert bool(each["bootstrapFilePath"]) == each["dataFilePath"].endswith("_00000000000001.parquet")
    table.cluster(run=clustering.instant)
    check_doors(table, STORED)


def plan_of(folder: Path, instant: str | None) -> bytes:
    """Return the requested file of an instant."""
    (requested,) = (folder / ".hoodie").glob(f"{instant}.*.requested")
    return requested.read_bytes()


@pytest.mark.parametrize("kind", ["bloom", "simple", "global_bloom", "global_simple", "record_index"])
def test_indexes_find_the_rows(tmp_path: Path, kind: str) -> None:
    table = lakefmt.open_table(str(unpacked(NAMES[0], tmp_path)), options={"hoodie.index.type": kind.upper()})
    if kind == "record_index":
        table.index.create("record_index")
    changed = pa.table({name: [row[n] for row in STORED] for n, name in enumerate(COLUMNS)})
    changed = changed.set_column(1, "v", pa.array(range(len(STORED)), pa.int64())).set_column(
        2, "ts", pa.array([1000] * len(STORED), pa.int64())
    )
    result = table.upsert(changed)
    assert (result.num_inserts, result.num_updates) == (0, len(STORED))
    check_doors(table, values_of(changed))


def test_what_is_not_right_is_an_error_and_never_wrong_rows(tmp_path: Path) -> None:
    table = unpacked(NAMES[0], tmp_path / "whole")

    def copied(name: str) -> tuple[Path, Path]:
        shutil.copytree(table.parent, tmp_path / name)
        place = tmp_path / name / "source"
        change_properties(tmp_path / name / "table", {"hoodie.bootstrap.base.path": str(place)})
        change_index(tmp_path / name / "table", lambda uri: f"file:{place}{uri.partition('source')[2]}")
        return tmp_path / name / "table", place / "city=rome" / "part-1.parquet"

    folder, source = copied("gone")
    source.unlink()
    with pytest.raises(CorruptFile, match="gone"):
        lakefmt.open_table(str(folder)).read()

    folder, source = copied("larger")
    source.write_bytes(source.read_bytes() + b" ")
    with pytest.raises(CorruptFile, match="changed since"):
        lakefmt.open_table(str(folder)).read()

    folder, source = copied("fewer")
    pq.write_table(pq.read_table(source, partitioning=None).slice(1), source)
    size = source.stat().st_size

    def resize(record: dict[str, Any]) -> None:
        for status in record["fileIdToBootstrapFile"].values():
            if status["path"]["uri"].endswith("city=rome/part-1.parquet"):
                status["length"] = size

    change_index(folder, change=resize)
    with pytest.raises(CorruptFile, match="3 rows were bootstrapped, and the source file has 2"):
        lakefmt.open_table(str(folder)).count(filter="v >= 0")

    folder, source = copied("outside")
    for wrong in (
        "file:/etc/passwd",
        f"file:{source.parents[1]}/../else.parquet",
        f"{source.parents[1]}else/a.parquet",
    ):
        change_index(folder, lambda uri, wrong=wrong: wrong)  # type: ignore[misc]
        with pytest.raises(UnsafePath):
            lakefmt.open_table(str(folder)).read()

    folder, _ = copied("unknown")
    change_index(folder, change=lambda record: record["fileIdToBootstrapFile"].clear())
    with pytest.raises(CorruptFile, match="names no source file"):
        lakefmt.open_table(str(folder)).read()
    (folder / INDEX).unlink()
    with pytest.raises(CorruptFile, match="is gone"):
        lakefmt.open_table(str(folder)).read()


@pytest.mark.parametrize(
    "properties",
    [
        {"hoodie.bootstrap.base.path": "s3://bucket/source"},
        {"hoodie.bootstrap.base.path": "source"},
        {"hoodie.bootstrap.index.enable": "false"},
        {"hoodie.bootstrap.index.class": "org.apache.hudi.common.bootstrap.index.NoOpBootstrapIndex"},
    ],
)
def test_other_bootstraps_are_refused(tmp_path: Path, properties: dict[str, str]) -> None:
    folder = unpacked(NAMES[0], tmp_path)
    change_properties(folder, properties)
    with pytest.raises(UnsupportedFeature, match="bootstrap"):
        lakefmt.open_table(str(folder)).read()


def test_statistics_that_know_meta_columns_alone_are_neither_used_nor_made(tmp_path: Path) -> None:
    folder = unpacked(NAMES[0], tmp_path)
    table = lakefmt.open_table(str(folder))
    with pytest.raises(UnsupportedFeature, match="bootstrapped, and column_stats"):
        table.index.create("column_stats")
    table.upsert(
        pa.table({name: [row[n] for row in NEW] for n, name in enumerate(COLUMNS)}),
        options={"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True},
    )
    assert table.properties.metadata_partitions == ("files",)
    check_doors(table, STORED)
    change_properties(folder, {"hoodie.table.metadata.partitions": "column_stats,files"})
    with pytest.raises(UnsupportedFeature, match="bootstrapped, and column_stats"):
        lakefmt.open_table(str(folder)).delete("id = 'new1'")


def test_rows_of_source_files_cannot_be_erased(folder: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="stay in its source files"):
        lakefmt.open_table(str(folder)).erase("id = 'rome10'")


@pytest.mark.parametrize("name", NAMES)
def test_an_index_is_written_as_hudi_writes_it(name: str) -> None:
    for file in (INDEX, INDEX.replace(".partitions", ".fileids")):
        with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
            theirs = HFileReader.from_bytes(archive.read(f"table/{file}"), "theirs")
            records = HFileReader.from_bytes(archive.read(f"table/{INDEX}"), "theirs").read().to_pylist()
        base = written_in(name)
        sources = {
            PartitionPath(each["key"].decode().removeprefix("part=")): {
                file_id: (source, 1.5) for file_id, source in decode_sources(each["value"], base, "theirs").items()
            }
            for each in records
        }
        ours = HFileReader.from_bytes(encode_sources(base, sources, 7)[file], "ours")
        assert ours.read()["key"].equals(theirs.read()["key"])
        pairs = [*zip(ours.read()["value"].to_pylist(), theirs.read()["value"].to_pylist(), strict=True)]
        for our_bytes, their_bytes in [*pairs, (ours.info["INDEX_INFO"], theirs.info["INDEX_INFO"])]:
            schemas = [json.loads(_read_header(data)[0]["avro.schema"]) for data in (our_bytes, their_bytes)]
            assert schemas[0] == schemas[1]
            assert without_times(decode_container(our_bytes)) == without_times(decode_container(their_bytes))


def without_times(value: Any) -> Any:
    """Return a record without its times."""
    if not isinstance(value, dict):
        return value
    times = ("modificationTime", "accessTime", "createdTimestamp")
    return {name: without_times(each) for name, each in value.items() if name not in times}


def test_which_files_are_bootstrapped() -> None:
    assert is_bootstrapped("f_0-1-2_00000000000001.parquet")
    assert not is_bootstrapped("f_0-1-2_00000000000002.parquet")
    assert not is_bootstrapped(".hoodie/metadata/f_0-1-2_00000000000001.parquet")
    assert not is_bootstrapped(".f_00000000000001.log.1_0-1-2")
