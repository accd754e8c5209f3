"""Data skipping on tables that Spark wrote, by a secondary index, beside later commits, and where statistics are damaged."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.metadata import commit_updates
from lakefmt._core.read import file_selection
from lakefmt._core.values import PartitionPath
from lakefmt.errors import CorruptFile, SchemaMismatch
from tests.metadata.metadata_fixtures import NOT_PARTITIONED, PARTITIONED_INDEX, VERSION_6, unpacked
from tests.metadata.metadata_indexes import create_metadata_index

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.int64())])
OPTIONS = {
    "lakefmt.durability": "none",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}


def rows(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {"id": [f"k{n}" for n in numbers], "city": [f"c{n % 4}" for n in numbers], "fare": [*numbers]}, SCHEMA
    )


def made(root: Path, table_type: str = "COPY_ON_WRITE", version: int = 9, **more: str) -> lakefmt.Table:
    table = lakefmt.create_table(
        str(root / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        table_version=version,
        options={**OPTIONS, **more},
    )
    table.upsert(rows(0, 16))
    return table


@pytest.fixture(autouse=True)
def statistics_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES"):
        monkeypatch.setattr(file_selection, name, 0)
    monkeypatch.setattr(file_selection, "FEW_PARTITIONS", 0)


#: Before it is set to none for these tests.
FEW_NEAR_FILES = file_selection.FEW_NEAR_FILES


def test_of_twenty_files_the_statistics_are_read_not_all_footers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_selection, "FEW_NEAR_FILES", FEW_NEAR_FILES)
    table = made(tmp_path, **{"hoodie.parquet.small.file.limit": "0"})  # four files
    for number in range(1, 5):
        table.upsert(rows(16 * number, 16 * number + 16))
    names = [step.name for step in table.explain(filter="fare < 3").steps]
    assert names[-2:] == ["column_stats", "footers"]
    assert table.explain(filter="fare < 3").steps[-2].files == 3
    few = {index.name: index.reason for index in table.explain(filter="fare < 3 and city = 'c1'").unused}
    assert few["column_stats"] == "the footers of 5 files are read sooner"


def sorted_rows(found: pa.Table) -> list[str]:
    return sorted(map(repr, found.to_pylist()))


@pytest.mark.slow
@pytest.mark.parametrize("name", [NOT_PARTITIONED, PARTITIONED_INDEX, VERSION_6])
def test_tables_by_spark_give_the_same_rows(name: str, tmp_path: Path):
    root = unpacked(name, tmp_path)
    table = lakefmt.open_table(str(root))
    plain = lakefmt.open_table(str(root), options={"hoodie.enable.data.skipping": "false"})
    everything = plain.read(meta_columns=True)
    left_out = set()
    names = [name for name in everything.column_names if not pa.types.is_nested(everything.schema.field(name).type)]
    for column in names[:3:2] + names[5:12:2]:
        values = everything[column].unique().drop_null().to_pylist()
        filters = [[(column, "is", None)], *([(column, operator, values[0])] for operator in ("=", "<") if values)]
        filters += [[(column, "in", values[-2:])]] if values else []
        for query in filters:
            assert sorted_rows(table.read(filter=query)) == sorted_rows(plain.read(filter=query)), query
            report = table.explain(query)
            left_out |= {a.name for a, b in zip(report.steps[1:], report.steps, strict=False) if a.files < b.files}
    assert "column_stats" in left_out or "record_index" in left_out


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_secondary_index_leads_to_the_file_groups(tmp_path: Path, table_type: str, version: int):
    table = made(tmp_path, table_type, version)
    create_metadata_index(table.client, "secondary_index_fare", "fare", OPTIONS)
    table.upsert(pa.table({"id": ["k3", "k9"], "city": ["c3", "c1"], "fare": [500, None]}, SCHEMA))
    table.delete(["k5"])
    for query, ids, groups in (
        ("fare = 500", {"k3"}, 1),
        ("fare in (4, 500)", {"k4", "k3"}, 2),
        ("fare = 5", set(), 0),
        ("fare = 3", set(), 0),
        ("fare = 9 or fare = 2", {"k2"}, 1),
    ):
        steps = {step.name: step.file_groups for step in table.explain(query).steps}
        assert steps["secondary_index_fare"] == groups, query
        assert set(table.read(filter=query)["id"].to_pylist()) == ids


@pytest.mark.slow
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_secondary_index_may_be_on_a_field_of_a_struct(tmp_path: Path, kind: str, version: int):
    place = pa.struct([("name", pa.string()), ("floor", pa.int32())])
    schema = pa.schema([("id", pa.string()), ("place", place)])

    def told(**names: str | None) -> pa.Table:
        rows = [
            {"id": key, "place": None if name is None else {"name": name, "floor": 1}} for key, name in names.items()
        ]
        return pa.Table.from_pylist(rows, schema)

    table = lakefmt.create_table(
        str(tmp_path / "t"),
        schema=schema,
        record_key="id",
        table_type=kind,
        table_version=version,
        options={**OPTIONS, "hoodie.parquet.small.file.limit": "0"},
    )
    table.upsert(told(a="red", b="blue", c=None))
    table.insert(told(d="red", e="red"))
    table.index.create("secondary_index", "place.name", name="place_name")
    table.upsert(told(a="green", c="blue", d=None))
    table.delete(["e"])
    table.compact() if kind == "mor" else table.cluster("id")
    assert table.index.check().is_clean
    for name, ids in (("red", []), ("blue", ["b", "c"]), ("green", ["a"])):
        query = f"place.name = '{name}'"
        assert sorted(table.read(filter=query)["id"].to_pylist()) == ids
        assert "secondary_index_place_name" in [step.name for step in table.explain(query).steps]
    for change in (lambda: table.alter.rename_column("place.name", "x"), lambda: table.alter.drop_column("place")):
        with pytest.raises(SchemaMismatch, match="secondary_index_place_name"):
            change()


def test_of_several_secondary_indexes_on_logs_the_first_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Hudi 1.2.0 keeps no other when it writes logs, in its own tables either."""
    table = made(tmp_path, "MERGE_ON_READ")
    table.upsert(pa.table({"id": ["k1"], "city": ["c1"], "fare": [1], "note": ["old"]}))
    for column in ("fare", "note"):
        create_metadata_index(table.client, f"secondary_index_{column}", column, OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(commit_updates, "secondary_columns", lambda *_: {"secondary_index_fare": "fare"})
        table.upsert(pa.table({"id": ["k1"], "city": ["c1"], "fare": [500], "note": ["new"]}))
    assert not table.index.check().is_clean
    for query, ids in (("fare = 500", ["k1"]), ("fare = 1", []), ("note = 'new'", ["k1"]), ("note = 'old'", [])):
        assert table.read(filter=query)["id"].to_pylist() == ids, query
    assert "secondary_index_fare" in [step.name for step in table.explain("fare = 500").steps]
    unused = {index.name: index.reason for index in table.explain("note = 'new'").unused}
    assert "keeps the first" in unused["secondary_index_note"]


@pytest.mark.parametrize("version", [8, 9])
def test_an_indexed_text_may_hold_what_separates_keys(tmp_path: Path, version: int):
    table = made(tmp_path, version=version)
    table.upsert(pa.table({"id": ["x$1"], "city": ["c1"], "fare": [1], "note": ["a$b\\"]}))
    create_metadata_index(table.client, "secondary_index_note", "note", OPTIONS)
    table.upsert(pa.table({"id": ["y"], "city": ["c2"], "fare": [1], "note": ["a$b\\"]}))
    query = [("note", "=", "a$b\\")]
    assert "secondary_index_note" in [step.name for step in table.explain(query).steps]
    assert sorted(table.read(filter=query)["id"].to_pylist()) == ["x$1", "y"]


def test_a_key_is_read_from_one_file_group(tmp_path: Path):
    table = made(tmp_path)
    table.upsert(pa.table({"id": ["k3"], "city": ["c3"], "fare": [500]}, SCHEMA))
    for query in ("id = 'k3'", [("_hoodie_record_key", "=", "k3")], "id = 'k3' and fare > 100"):
        last = table.explain(query).steps[-1]
        assert (last.partitions, last.file_groups) == (1, 1)
        assert table.read(filter=query)["fare"].to_pylist() == [500]
    assert table.read(filter="id = 'absent'").num_rows == 0


def test_an_earlier_state_is_not_read_by_an_index_of_the_newest_one(tmp_path: Path):
    table = made(tmp_path)
    before, pinned = table.timeline.timeline.latest_commit, table.snapshot()
    table.delete(["k3"])
    assert before is not None
    assert pinned.read(filter="id = 'k3'").num_rows == 1
    assert table.read(filter="id = 'k3'", as_of=before.time).num_rows == 1
    assert table.read(filter="id = 'k3'").num_rows == 0
    unused = {index.name: index.reason for index in table.explain("id = 'k3'", as_of=before.time).unused}
    assert "newest state" in unused["record_index"]


def test_an_index_that_names_other_file_groups_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = made(tmp_path)
    elsewhere = frozenset({(PartitionPath("city=c3"), "00000000-0000-0000-0000-000000000000-0")})
    monkeypatch.setattr(file_selection, "groups_of_keys", lambda *_: elsewhere)
    assert table.read(filter="id = 'k3'")["fare"].to_pylist() == [3]


def test_what_completes_during_a_look_up_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A commit that takes a row away between the pinned state and the look-up does not take it out of the snapshot."""
    table, look_up = made(tmp_path), file_selection.groups_of_keys

    def delete_first(*arguments: Any) -> Any:
        monkeypatch.setattr(file_selection, "groups_of_keys", look_up)
        lakefmt.open_table(str(tmp_path / "t")).delete(["k3"])
        return frozenset()

    monkeypatch.setattr(file_selection, "groups_of_keys", delete_first)
    assert table.read(filter="id = 'k3'")["fare"].to_pylist() == [3]


def test_base_files_alone_are_not_found_by_key(tmp_path: Path):
    table = made(tmp_path, "MERGE_ON_READ")
    table.delete(["k3"])
    assert table.read(filter="id = 'k3'", query="read_optimized").num_rows == 1
    assert table.read(filter="id = 'k3'").num_rows == 0


@pytest.mark.parametrize(("partition", "filter"), [("column_stats", "fare = 3"), ("record_index", "id = 'k3'")])
def test_damaged_statistics_lose_no_row(tmp_path: Path, partition: str, filter: str, caplog: pytest.LogCaptureFixture):
    made(tmp_path)
    root = tmp_path / "t"
    for file in (root / ".hoodie/metadata" / partition).iterdir():
        file.write_bytes(file.read_bytes()[:-8] + b"damaged!")
    with caplog.at_level(logging.WARNING, "lakefmt.read"):
        assert lakefmt.open_table(str(root)).read(filter=filter)["fare"].to_pylist() == [3]
    assert partition in caplog.text
    report = lakefmt.open_table(str(root)).explain(filter)
    assert "cannot be read" in {index.name: index.reason for index in report.unused}[partition]
    strict = lakefmt.open_table(str(root), options={"hoodie.fileIndex.dataSkippingFailureMode": "strict"})
    with pytest.raises(CorruptFile):
        strict.read(filter=filter)


def test_statistics_are_read_for_filters_only_and_may_be_turned_off(tmp_path: Path):
    table = made(tmp_path)
    assert [step.name for step in table.explain().steps] == ["stored"]
    for option in ("hoodie.enable.data.skipping", "hoodie.metadata.enable"):
        off = lakefmt.open_table(str(tmp_path / "t"), options={option: "false"})
        assert [step.name for step in off.explain("fare = 3").steps] == ["stored", "partition values", "footers"]
        assert off.read(filter="fare = 3").num_rows == 1


def test_the_report_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = made(tmp_path)
    monkeypatch.setattr(file_selection, "FEW_PARTITIONS", 8)
    text = str(table.explain("city <> 'c0' and fare = 1"))
    lines = [line.split()[:-1] for line in text.splitlines()]
    assert text.startswith("reads 1 of 4 files, ")
    assert lines[2:6] == [
        ["stored", "4", "4", "4"],
        ["partition", "values", "3", "3", "3"],
        ["column_stats", "1", "1", "1"],
        ["footers", "1", "1", "1"],
    ]
    assert "partition_stats not used: 3 partitions are listed sooner" in text
