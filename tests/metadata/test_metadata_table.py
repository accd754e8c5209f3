"""The metadata table after every kind of write: all of it is what the files and rows of the table say."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.metadata.layout import (
    INDEX_DEFINITIONS,
    METADATA_DIRECTORY,
    IndexDefinition,
    parse_index_definitions,
)
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.store import update_properties
from lakefmt._core.transactions.indexing import drop_metadata_index
from lakefmt.errors import CorruptFile, InvalidInputError, MetadataTablePresent, StateError, UnsupportedFeature
from lakefmt.lowlevel import assign, begin_write, commit, write_files
from tests.metadata.metadata_content import check_metadata_table, metadata_content
from tests.metadata.metadata_indexes import create_metadata_index

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
NUMBERS = itertools.count()
DATA = Path(__file__).parents[1] / "data" / "metadata"
OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": 4,
}
KINDS = [(kind, version) for kind in ("cow", "mor") for version in (6, 8, 9)]


def rows(first: int, last: int, ts: int, shift: int = 0) -> pa.Table:
    numbers = range(first, last)
    cities = [("sf", "oslo")[(n + shift) % 2] for n in numbers]
    columns = {
        "id": [f"k{n}" for n in numbers],
        "city": cities,
        "v": [n % 4 or None for n in numbers],
        "ts": [ts] * len(numbers),
    }
    return pa.table(columns, schema=SCHEMA)


def make(
    kind: str = "cow",
    version: int = 8,
    more: Mapping[str, object] | None = None,
    partition_by: str | None = "city",
) -> Table:
    return lakefmt.create_table(
        f"memory://metadata-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by=partition_by,
        ordering="ts",
        table_type=kind,
        table_version=version,
        options={**OPTIONS, **(more or {})},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_every_kind_of_write_is_recorded(kind: str, version: int) -> None:
    table = make(kind, version)
    table.upsert(rows(0, 8, 1))
    check_metadata_table(table)
    table.upsert(rows(4, 12, 2))
    table.delete(["k1", "k5"])
    check_metadata_table(table)
    table.insert(rows(20, 24, 3))
    table.bulk_insert(rows(30, 34, 3))
    check_metadata_table(table)
    table.upsert(rows(0, 6, 4))
    if kind == "mor":
        table.compact()
    check_metadata_table(table)
    table.insert_overwrite(rows(40, 42, 5))
    check_metadata_table(table)
    table.clean(options={"hoodie.clean.commits.retained": 1})
    check_metadata_table(table)
    table.delete_partitions(["city=oslo"])
    check_metadata_table(table)
    table.insert_overwrite_table(rows(50, 54, 6))
    table.upsert(rows(50, 60, 7))
    content = check_metadata_table(table)
    assert set(content["record_index"]) == {f"k{n}" for n in range(50, 60)}
    assert any(each.name.endswith(".hfile") for each in table.client.store.list(f"{METADATA_DIRECTORY}/record_index"))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_table_without_partitions(version: int) -> None:
    table = make(version=version, partition_by=None)
    table.upsert(rows(0, 5, 1))
    table.upsert(rows(3, 9, 2))
    content = check_metadata_table(table)
    assert "partition_stats" not in content
    assert set(content["files"]) == {"__all_partitions__", "."}


def test_a_metadata_table_is_made_of_what_is_there() -> None:
    plain = lakefmt.create_table(
        f"memory://metadata-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="mor",
        options={"lakefmt.durability": "none"},
    )
    plain.upsert(rows(0, 6, 1))
    plain.upsert(rows(3, 9, 2))
    assert not plain.properties.metadata_partitions
    table = lakefmt.open_table(plain.client.store.url, options=OPTIONS)
    table.upsert(rows(8, 10, 3))
    assert len(table.properties.metadata_partitions) == 5
    check_metadata_table(table)
    plain.upsert(rows(0, 2, 4))
    check_metadata_table(plain)


def test_a_partition_is_added_later() -> None:
    table = make(
        more={"hoodie.metadata.record.index.enable": "false", "hoodie.metadata.index.bloom.filter.enable": "false"}
    )
    table.upsert(rows(0, 6, 1))
    assert "record_index" not in table.properties.metadata_partitions
    more = lakefmt.open_table(table.client.store.url, options=OPTIONS)
    more.upsert(rows(3, 9, 2))
    assert "record_index" in more.properties.metadata_partitions
    check_metadata_table(more)


@pytest.mark.parametrize("version", [8, 9])
def test_a_partitioned_record_index(version: int) -> None:
    table = make(
        version=version,
        more={
            "hoodie.metadata.record.index.enable": "false",
            "hoodie.metadata.record.level.index.enable": "true",
        },
    )
    table.upsert(rows(0, 4, 1))
    table.upsert(rows(2, 8, 2, shift=1))
    table.delete(["k0"])
    check_metadata_table(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_rollback_takes_its_deltacommit_along(kind: str) -> None:
    table = make(kind)
    table.upsert(rows(0, 4, 1))
    before = metadata_content(table)
    last = table.upsert(rows(2, 8, 2))
    assert last.instant is not None
    table.rollback(last.instant)
    assert metadata_content(table) == before
    check_metadata_table(table)
    table.upsert(rows(1, 5, 3))
    check_metadata_table(table)


def test_a_rollback_of_what_was_compacted_is_refused_before_a_file_is_deleted() -> None:
    table = make(more={"hoodie.metadata.compact.max.delta.commits": 1})
    table.upsert(rows(0, 4, 1))
    second = table.upsert(rows(2, 6, 2))
    table.savepoint()
    update = table.upsert(rows(2, 6, 3))
    assert update.instant is not None
    table.delete(["k0"])
    table.rollback(table.timeline.entries[-1].time)
    files = sorted(each.name for each in table.client.store.list())
    assert second.instant is not None
    with pytest.raises(StateError, match="was compacted at"):
        table.rollback(update.instant)
    kept = [name for name in files if not name.startswith(".hoodie/.lakefmt")]
    assert sorted(each.name for each in table.client.store.list() if each.name in kept) == kept
    check_metadata_table(table)


@pytest.mark.parametrize(("kind", "version"), KINDS)
@pytest.mark.slow
def test_a_restore_makes_the_metadata_table_anew(kind: str, version: int) -> None:
    table = make(kind, version)
    first = table.upsert(rows(0, 4, 1))
    for ts in range(2, 9):
        table.upsert(rows(ts, ts + 4, ts))
    assert first.instant is not None
    table.restore(first.instant)
    content = check_metadata_table(table)
    assert set(content["record_index"]) == {"k0", "k1", "k2", "k3"}
    table.upsert(rows(2, 8, 10))
    check_metadata_table(table)


def test_a_metadata_table_whose_directory_is_gone_is_made_anew() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    table.client.store.delete_tree(METADATA_DIRECTORY)
    lakefmt.open_table(table.client.store.url).upsert(rows(2, 6, 2))
    check_metadata_table(table)


def test_a_metadata_table_of_another_version_is_read_and_made_anew_by_the_next_write(tmp_path: Path) -> None:
    with ZipFile(DATA / "v6_data_v9_metadata_120.zip") as archive:
        archive.extractall(tmp_path)
    table = lakefmt.open_table(tmp_path, options=OPTIONS)
    assert table.read(filter=[("id", "=", "b")]).to_pylist() == [{"id": "b", "v": 2, "ts": 1}]
    assert not table.index.check().findings
    table.upsert(pa.table({"id": ["b", "d"], "v": [5, 6], "ts": [2, 2]}), options={"hoodie.index.type": "RECORD_INDEX"})
    properties = (tmp_path / METADATA_DIRECTORY / ".hoodie" / "hoodie.properties").read_text("utf-8")
    assert "hoodie.table.version=6" in properties
    assert sorted(lakefmt.open_table(tmp_path).read().column("v").to_pylist()) == [1, 3, 5, 6]
    check_metadata_table(table)
    assert not table.index.check().findings


def test_a_missing_file_group_is_refused() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    store = table.client.store
    gone = [each.name for each in store.list(f"{METADATA_DIRECTORY}/record_index") if "record-index-0000" in each.name]
    store.delete(gone)
    with pytest.raises(CorruptFile, match="record-index-0000-0"):
        table.upsert(rows(2, 30, 2))
    assert len(table.timeline.timeline.commits) == 1


def test_an_index_that_lakefmt_does_not_keep_is_refused() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    names = ",".join([*table.properties.metadata_partitions, "expr_index_day"])
    update_properties(
        table.client.store, {"hoodie.table.metadata.partitions": names}, table.client.clock.now(), durable=False
    )
    with pytest.raises(MetadataTablePresent, match="expr_index_day"):
        table.upsert(rows(2, 6, 2))


@pytest.mark.parametrize("change", ["rename", "drop"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_secondary_index_whose_column_another_engine_took_away_is_refused_until_it_is_dropped(
    kind: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 1.2.0 lets ALTER TABLE do so, and then fails on every write of its own."""
    table = make(kind)
    table.upsert(rows(0, 4, 1))
    table.index.create("secondary_index", "v")
    with monkeypatch.context() as patch:
        patch.setattr("lakefmt._core.write.columns._COLUMN_INDEXES", ())
        if change == "rename":
            table.alter.rename_column("v", "w")
        else:
            table.alter.drop_column("v")
    report = table.index.check()
    assert not report.findings
    assert "secondary_index_v is on 'v', which is no column of the table" in str(report)
    commits = table.timeline.timeline.commits
    newer = rows(2, 6, 2).rename_columns(["id", "city", "w", "ts"]) if change == "rename" else rows(2, 6, 2).drop("v")
    for write in (lambda: table.upsert(newer), lambda: table.delete(["k0"]), lambda: table.upsert(newer, dry_run=True)):
        with pytest.raises(MetadataTablePresent, match="secondary_index_v is on 'v'"):
            write()
    assert table.timeline.timeline.commits == commits
    table.index.drop("secondary_index_v")
    table.upsert(newer)
    assert table.read().num_rows == 6
    assert table.index.check().is_clean
    assert not table.index.check().skipped


@pytest.mark.parametrize("last", ["record_index", "files"])
def test_the_definition_of_the_last_index_goes_with_it(last: str) -> None:
    """Spark refuses an overwrite of a table that has the definition of a secondary index, and makes the index again."""
    columns = {"id": ["a", "b"], "v": [1, 2]}
    table = lakefmt.create_table(
        f"memory://metadata-{next(NUMBERS)}", data=pa.table(columns), record_key="id", indexes=["record_index"]
    )
    table.upsert(pa.table(columns))
    table.index.create("secondary_index", "v")
    assert {*_definitions(table)} == {"record_index", "secondary_index_v"}
    table.index.drop(last)
    assert not _definitions(table)
    table.upsert(pa.table(columns))
    table.index.create("secondary_index", "v")
    assert {*_definitions(table)} == {"record_index", "secondary_index_v"}
    assert table.index.check().is_clean


def _definitions(table: Table) -> dict[str, IndexDefinition]:
    return parse_index_definitions(table.client.store.read(INDEX_DEFINITIONS))


def test_the_metadata_table_is_dropped_when_asked() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    lakefmt.open_table(table.client.store.url, options={"hoodie.metadata.enable": "false"}).upsert(rows(2, 6, 2))
    assert not table.properties.metadata_partitions
    assert not list(table.client.store.list(METADATA_DIRECTORY))


def test_one_changed_byte_is_seen() -> None:
    """The check that closes every case can say no."""
    table = make()
    table.upsert(rows(0, 4, 1))
    check_metadata_table(table)
    store = table.client.store
    assert isinstance(store, MemoryStore)
    name = next(each.name for each in store.list() if each.name.endswith(".parquet"))
    store.put(name, store.read(name) + b"\0")
    with pytest.raises((AssertionError, CorruptFile)):
        check_metadata_table(table)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_secondary_index_is_made_kept_and_dropped(kind: str, version: int) -> None:
    table = make(kind, version)
    table.upsert(rows(0, 8, 1))
    names = create_metadata_index(table.client, "secondary_index_v", "v", OPTIONS)
    assert "secondary_index_v" in names
    check_metadata_table(table)
    table.upsert(rows(4, 12, 2, shift=0))
    table.update("id = 'k2'", {"v": 99})
    table.delete(["k1", "k4"])
    content = check_metadata_table(table)
    assert "99$k2" in content["secondary_index_v"]
    assert "2$k2" not in content["secondary_index_v"]
    for ts in range(3, 6):
        table.upsert(rows(ts, ts + 2, ts))
    check_metadata_table(table)
    left = drop_metadata_index(table.client, "record_index")
    assert set(left) == {"files", "column_stats", "bloom_filters", "partition_stats"}
    assert not list(table.client.store.list(f"{METADATA_DIRECTORY}/secondary_index_v"))
    without = lakefmt.open_table(table.client.store.url)
    without.upsert(rows(0, 3, 7))
    check_metadata_table(without)


def test_an_index_is_made_while_another_writer_is_at_work() -> None:
    table = make(more={"hoodie.metadata.record.index.enable": "false"})
    table.upsert(rows(0, 4, 1))
    context = begin_write(table)
    written = [write_files(context, *piece) for piece in assign(context, rows(2, 9, 2))]
    create_metadata_index(table.client, "record_index", options=OPTIONS)
    commit(context, written)
    content = check_metadata_table(table)
    assert set(content["record_index"]) == {f"k{n}" for n in range(9)}


def test_indexes_that_cannot_be_made_are_refused() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    with pytest.raises(InvalidInputError, match="already"):
        create_metadata_index(table.client, "record_index")
    with pytest.raises(InvalidInputError, match="no column"):
        create_metadata_index(table.client, "secondary_index_x", "no such column")
    with pytest.raises(UnsupportedFeature):
        create_metadata_index(table.client, "expr_index_x")
    with pytest.raises(InvalidInputError, match="no metadata partition"):
        drop_metadata_index(table.client, "expr_index_x")


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 8])
def test_old_files_of_the_metadata_table_are_cleaned(version: int) -> None:
    table = make(version=version, more={"hoodie.metadata.compact.max.delta.commits": 3})
    for ts in range(1, 40):
        table.upsert(rows(ts % 5, ts % 5 + 2, ts))
    check_metadata_table(table)
    names = [each.name for each in table.client.store.list(f"{METADATA_DIRECTORY}/files")]
    assert any(each.name.endswith(".clean") for each in table.client.store.list(METADATA_DIRECTORY))
    assert sum(name.endswith(".hfile") for name in names) <= 8
    assert len(names) < 36


def test_a_write_says_once_which_index_another_writer_dropped() -> None:
    table = make()
    assert not table.upsert(rows(0, 4, 1)).warnings
    plain = lakefmt.open_table(table.client.store.url, options={"lakefmt.durability": "none"})
    drop_as_hudi_does(plain, "record_index")
    (warning,) = plain.upsert(rows(4, 6, 2)).warnings
    assert warning.startswith("the index record_index of the metadata table is gone: another writer dropped it")
    assert not plain.upsert(rows(4, 6, 3)).warnings
    drop_as_hudi_does(plain, *plain.properties.metadata_partitions)
    (warning,) = plain.delete(["k1"]).warnings
    assert warning.startswith("the metadata table is gone: another writer dropped it")
    assert not plain.upsert(rows(4, 6, 4)).warnings


def drop_as_hudi_does(table: Table, *names: str) -> None:
    """Remove partitions of the metadata table as a writer of Hudi with other settings does."""
    left = [name for name in table.properties.metadata_partitions if name not in names]
    changes = {"hoodie.table.metadata.partitions": ",".join(left)}
    store = table.client.store
    update_properties(store, changes, table.client.clock.now(), durable=False)
    for name in names:
        store.delete_tree(f"{METADATA_DIRECTORY}/{name}" if left else METADATA_DIRECTORY)


def test_what_lakefmt_drops_itself_is_no_news() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    plain = lakefmt.open_table(table.client.store.url, options={"lakefmt.durability": "none"})
    plain.index.drop("record_index")
    assert not plain.upsert(rows(4, 6, 2)).warnings
    plain.index.drop("files")
    assert not plain.upsert(rows(4, 6, 3)).warnings
    assert "lakefmt.metadata.partitions" not in plain.properties.properties


@pytest.mark.parametrize("version", [6, 8])
def test_an_index_is_made_anew_with_another_number_of_file_groups(version: int) -> None:
    table = make(version=version, more={"hoodie.metadata.compact.max.delta.commits": 50})
    table.upsert(rows(0, 12, 1))
    setting = "hoodie.metadata.record.index.{}.filegroup.count"
    for count in (4, 2, 3):
        table.index.drop("record_index")
        table.index.create("record_index", options={setting.format(end): count for end in ("min", "max")})
        table.upsert(rows(2, 6, 2))
        (index,) = (each for each in table.index.list() if each.name == "record_index")
        assert (index.state.value, index.file_groups) == ("complete", count)
        assert table.index.check().is_clean


@pytest.mark.parametrize("count", [None, 2, 3])
def test_column_statistics_have_as_many_file_groups_as_are_asked_for(count: int | None) -> None:
    """One by default: a commit writes a log to each of them."""
    more = {} if count is None else {"hoodie.metadata.index.column.stats.file.group.count": count}
    table = make(more=more)
    table.upsert(rows(0, 12, 1))
    table.upsert(rows(2, 6, 2))
    (index,) = (each for each in table.index.list() if each.name == "column_stats")
    assert (index.state.value, index.file_groups) == ("complete", count or 1)
    assert table.index.check().is_clean
