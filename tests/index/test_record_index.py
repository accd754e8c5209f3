"""The record index of the metadata table as the index of writes: keys none lost, none doubled, whatever happens to it."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import CorruptFile, UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient
from lakefmt.metadata.layout import METADATA_DIRECTORY
from lakefmt.storage.memory import MemoryStore
from lakefmt.table import Table
from lakefmt.testing.stores import CountingStore
from lakefmt.transactions.metadata_indexes import create_metadata_index, drop_metadata_index
from tests.metadata.metadata_content import check_metadata_table

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
}
MOVES: dict[str, object] = {"hoodie.record.index.update.partition.path": True}
DIRECTORY = f"{METADATA_DIRECTORY}/record_index"


def rows(first: int, last: int, v: int, shift: int = 0) -> pa.Table:
    numbers = range(first, last)
    cities = [("sf", "oslo")[(n + shift) % 2] for n in numbers]
    return pa.table({"id": [f"k{n}" for n in numbers], "city": cities, "v": [v] * len(numbers)})


def make(index: str = "record", version: int = 8, kind: str = "cow", **more: Any) -> Table:
    given = {"options": OPTIONS, "partition_by": "city", **more}
    url = f"memory://record-{next(NUMBERS)}"
    return lakefmt.create_table(
        url,
        schema=rows(0, 1, 0).schema,
        record_key="id",
        table_type=kind,
        table_version=version,
        index=index,
        **given,
    )


def values(table: Table) -> dict[str, int]:
    found = [(row["id"], row["v"]) for row in table.read().to_pylist()]
    assert len(dict(found)) == len(found), f"a key is there twice: {found}"
    return dict(found)


KINDS = [(kind, version) for kind in ("cow", "mor") for version in (6, 8, 9)]


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_a_table_is_made_with_its_record_index(kind: str, version: int) -> None:
    table = make(version=version, kind=kind)
    assert table.properties.metadata_partitions == ("files", "record_index")
    assert table.index.name == "record"
    table.upsert(rows(0, 4, 1))
    assert table.upsert(rows(2, 6, 2)).num_updates == 2
    table.delete(["k0", "k5", "nowhere"])
    table.upsert(rows(0, 1, 3))
    assert values(table) == {"k0": 3, "k1": 1, "k2": 2, "k3": 2, "k4": 2}
    check_metadata_table(table)


def test_keys_are_found_without_reading_data_files() -> None:
    table = make(kind="mor")
    for v in range(4):
        table.upsert(rows(2 * v, 2 * v + 6, v))
    store = CountingStore(table.client.store)
    again = Table(TableClient(store, table.client.options, metadata_listing=table.client.metadata_listing))
    report = again.index.explain(["k0", "k11", "k99"])
    assert (report.index, report.found) == ("record", 2)
    assert [step.name for step in report.steps] == ["in the record index", "found"]
    read = [one.name for one in store.log if not one.name.startswith(".hoodie")]
    assert not read, "neither a data file nor a directory of one is touched"


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("moves", [False, True])
def test_a_key_is_unique_in_the_table(kind: str, moves: bool) -> None:
    table = make(kind=kind, options={**OPTIONS, **(MOVES if moves else {})})
    table.upsert(rows(0, 6, 1))
    result = table.upsert(rows(3, 9, 2, shift=1))
    assert values(table) == {f"k{n}": 1 if n < 3 else 2 for n in range(9)}
    places = {file.partition_path for file in result.files}
    assert places == {"city=sf", "city=oslo"}
    stored = table.read(columns=["id", "_hoodie_partition_path"]).to_pylist()
    homes = {row["id"]: row["_hoodie_partition_path"] for row in stored}
    assert homes["k4"] == ("city=oslo" if moves else "city=sf")
    check_metadata_table(table)


def test_a_partitioned_index_keeps_a_key_for_each_partition() -> None:
    table = make("partitioned_record", 9)
    table.upsert(rows(0, 4, 1))
    table.upsert(rows(2, 6, 2, shift=1))
    assert table.read().num_rows == 8
    assert table.upsert(rows(0, 6, 3)).num_updates == 4
    assert table.delete(["k3"]).num_deletes == 2
    check_metadata_table(table)


def test_a_dropped_index_is_replaced_by_the_simple_one_and_the_write_says_so() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    drop_metadata_index(table.client, "record_index")
    result = table.upsert(rows(2, 6, 2, shift=1))
    assert "no record index" in result.warnings[0]
    assert "global_simple" in result.warnings[0]
    assert values(table) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 2, "k5": 2}
    create_metadata_index(table.client, "record_index", options=OPTIONS)
    assert table.upsert(rows(4, 8, 3)).warnings == ()
    assert table.index.name == "record"
    check_metadata_table(table)


def test_an_index_whose_directory_is_gone_is_made_anew_and_no_key_doubles() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    table.client.store.delete_tree(METADATA_DIRECTORY)
    assert "gone" in table.upsert(rows(2, 6, 2)).warnings[0]
    assert values(table) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 2, "k5": 2}
    assert table.upsert(rows(4, 8, 3)).warnings == ()
    check_metadata_table(table)


def test_without_metadata_table_the_write_falls_back() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    result = table.upsert(rows(2, 6, 2), options={"hoodie.metadata.enable": False})
    assert any("hoodie.metadata.enable=false" in text for text in result.warnings)
    assert len(values(table)) == 6
    made = table.upsert(
        rows(5, 7, 3), options={**OPTIONS, "hoodie.metadata.enable": True, "hoodie.metadata.record.index.enable": True}
    )
    assert made.warnings == (), "this commit makes the index"
    assert table.upsert(rows(5, 8, 4)).warnings == ()
    assert len(values(table)) == 8


def _lose(store: MemoryStore, which: str) -> None:
    names = [one.name for one in store.list(DIRECTORY) if which in one.name]
    assert names
    store.delete(names)


@pytest.mark.parametrize("which", ["record-index-0000", "record-index-0001", "record-index-"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_missing_file_group_of_the_index_is_refused(which: str, compacted: bool) -> None:
    table = make(options={**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 2 if compacted else 20})
    for v in range(3):
        table.upsert(rows(0, 4 + v, v))
    before = values(table)
    store = table.client.store
    assert isinstance(store, MemoryStore)
    _lose(store, which)
    again = lakefmt.open_table(store.url, options=OPTIONS)
    with pytest.raises(CorruptFile, match="record-index"):
        again.upsert(rows(0, 9, 9))
    assert values(again) == before


def test_a_partitioned_index_that_lost_all_is_refused() -> None:
    table = make("partitioned_record", 9)
    table.upsert(rows(0, 4, 1))
    store = table.client.store
    assert isinstance(store, MemoryStore)
    _lose(store, "record-index-")
    with pytest.raises(CorruptFile, match="record-index"):
        lakefmt.open_table(store.url, options=OPTIONS).upsert(rows(0, 9, 9))


def test_a_sharing_of_names_with_hudi() -> None:
    table = make("RECORD_INDEX")
    table.upsert(rows(0, 4, 1))
    for name in ("RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "record"):
        assert table.upsert(rows(2, 4, 2), options={"hoodie.index.type": name}).num_updates == 2
    with pytest.raises(UnsupportedFeature, match="RECORD_INDEX"):
        table.upsert(rows(2, 4, 2), options={"hoodie.index.type": "RECORD_LEVEL_INDEX"})


def test_a_global_look_up_works_in_a_partitioned_index() -> None:
    table = make("RECORD_LEVEL_INDEX", 9)
    table.upsert(rows(0, 4, 1))
    table.upsert(rows(2, 6, 2, shift=1), options={"hoodie.index.type": "RECORD_INDEX"})
    assert values(table) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 2, "k5": 2}
    check_metadata_table(table)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"index": "partitioned_record"}, "table_version=9"),
        ({"properties": {"hoodie.populate.meta.fields": "false"}}, "global_simple"),
        ({"record_key": None}, "record key"),
    ],
)
def test_tables_that_cannot_have_one_are_refused(more: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"schema": rows(0, 1, 0).schema, "record_key": "id", "index": "record", **more}
    with pytest.raises(UnsupportedFeature, match=said):
        lakefmt.create_table(f"memory://record-{next(NUMBERS)}", **given)
