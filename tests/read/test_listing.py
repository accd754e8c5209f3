"""Listing: only what is needed, every form of partition, nothing that is none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.filegroups.listing import StorageListing, partition_levels
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.keys import key_spec_from_properties, plan_key_spec
from lakefmt._core.storage import LocalStore, MemoryStore, open_store
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.table import Table
from lakefmt.testing.stores import CountingStore

META = ".hoodie_partition_metadata"
FILE = "f-0_1-0-0_20260101000000000.parquet"
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("day", pa.date32()), ("n", pa.int64())])


def filled(store: ObjectStore, *names: str) -> ObjectStore:
    for name in names:
        store.put(name, b"x")
    return store


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A store with directories, and one without."""
    return LocalStore(str(tmp_path)) if request.param == "local" else MemoryStore()


def found(store: ObjectStore, levels: int | None = None) -> tuple[list[str], list[str]]:
    listing = StorageListing(store, levels)
    return listing.partitions(), sorted(file.path for file in listing.files(None)[0])


TABLE = [".hoodie/hoodie.properties", f".hoodie/metadata/files/{FILE}", f".hoodie/metadata/files/{META}"]


@pytest.mark.parametrize("name", [META, f"{META}.parquet", f"{META}.orc"])
def test_a_directory_with_partition_metadata_is_a_partition(store: ObjectStore, name: str) -> None:
    filled(store, *TABLE, f"a/{name}", f"a/{FILE}", f"b/c/{name}", f"b/c/{FILE}", f"stray/{FILE}", f"b/{FILE}", FILE)
    assert found(store) == (["a", "b/c"], [f"a/{FILE}", f"b/c/{FILE}"])


def test_directories_of_the_right_depth_without_metadata_are_none(store: ObjectStore) -> None:
    filled(store, *TABLE, f"a/{META}", f"a/{FILE}", f"stray/{FILE}", f"deep/er/{META}", f"deep/er/{FILE}", "empty/x")
    assert found(store, 1) == (["a"], [f"a/{FILE}"])


@pytest.mark.parametrize("levels", [1, None])
def test_partitions_are_chosen_of_those_that_are_there_and_no_others_are_looked_at(
    store: ObjectStore, levels: int | None
) -> None:
    """Reading takes the first of two names that is a partition: a directory that is none must not stand in for it."""
    filled(store, *TABLE, f"a/{META}", f"a/{FILE}", f"stray/{FILE}", *(f"p{number}/{META}" for number in range(30)))

    def first_of(*names: str) -> tuple[list[str], int]:
        counting = CountingStore(store)
        listing = StorageListing(counting, levels)
        taken = listing.chosen(lambda there: [name for name in names if name in there][:1])  # type: ignore[arg-type]
        return list(taken), sum(counting.statistics().by_kind.values())

    assert first_of("a")[0] == first_of("none", "a")[0] == first_of("stray", "a")[0] == ["a"]
    assert first_of("none")[0] == []
    if levels is not None:
        assert first_of("a")[1] <= 3


def test_an_unpartitioned_table_is_its_own_partition(store: ObjectStore) -> None:
    filled(store, *TABLE, META, FILE, f"a/{META}", f"a/{FILE}")
    assert found(store, 0) == ([""], [FILE])
    assert found(store) == ([""], [FILE])


def test_a_table_that_says_less_than_it_has_is_walked(store: ObjectStore) -> None:
    filled(store, *TABLE, f"a/{META}", f"a/{FILE}")
    assert found(store, 0) == (["a"], [f"a/{FILE}"])


def test_below_a_partition_there_is_no_other_one(store: ObjectStore) -> None:
    filled(store, *TABLE, f"a/{META}", f"a/{FILE}", f"a/b/{META}", f"a/b/{FILE}")
    assert found(store) == (["a"], [f"a/{FILE}"])


@pytest.mark.parametrize("count", [3, 30])
def test_few_and_many_partitions_are_found_alike(store: ObjectStore, count: int) -> None:
    filled(store, *TABLE, *(f"p={n:02d}/{name}" for n in range(count) for name in (META, FILE)))
    names = [f"p={n:02d}" for n in range(count)]
    for levels in (None, 1):
        assert found(store, levels) == (names, [f"{name}/{FILE}" for name in names])
    chosen = StorageListing(store, None).files(["p=01", "p=02", "none"])  # type: ignore[list-item]
    assert sorted(file.path for file in chosen[0]) == [f"p=01/{FILE}", f"p=02/{FILE}"]


def test_an_object_store_is_listed_once_as_a_whole() -> None:
    inner = MemoryStore()
    filled(inner, *TABLE, *(f"p={n:02d}/{name}" for n in range(30) for name in (META, FILE)))
    store = CountingStore(inner)
    assert len(StorageListing(store).files(None)[0]) == 30
    assert store.statistics().of("list", "list_directories", "info") == 2


@pytest.mark.parametrize(
    ("fields", "encoded", "levels"),
    [
        (None, True, 0),
        ("city", True, 1),
        (["city", "day"], True, 2),
        ("city", False, None),
        (["city", "day"], False, None),
    ],
)
def test_levels_are_known_when_values_cannot_hold_slashes(fields, encoded, levels) -> None:
    assert partition_levels(plan_key_spec("id", fields, url_encode=encoded, schema=SCHEMA)) == levels


@pytest.mark.parametrize(("encoded", "levels"), [("true", 1), ("false", 3)])
def test_levels_of_times(encoded: str, levels: int) -> None:
    properties = {
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "n",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
        "hoodie.datasource.write.partitionpath.urlencode": encoded,
    }
    assert partition_levels(key_spec_from_properties(properties)) == levels


# --- filters ------------------------------------------------------------------------------------------------------


def rows(cities: int, each: int = 20) -> pa.Table:
    count = cities * each
    return pa.table(
        {
            "id": range(count),
            "city": [f"c{n // each:02d}" for n in range(count)],
            "day": pa.array([n % 3 for n in range(count)], pa.int32()).cast(pa.date32()),
            "n": range(count),
        },
        schema=SCHEMA,
    )


@pytest.fixture(params=["local", "memory"])
def counted(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Table, CountingStore]:
    path = str(tmp_path / "t") if request.param == "local" else f"memory://listing-{request.node.name}"
    lakefmt.create_table(path, schema=SCHEMA, record_key="id", partition_by="city").insert(rows(12))
    store = CountingStore(open_store(path))
    return Table(TableClient(store)), store


@pytest.mark.parametrize("filter", ["city = 'c07'", [("city", "=", "c07")], [("city", "in", ["c07"]), ("n", ">", 1)]])
def test_a_filter_on_one_partition_lists_and_opens_that_partition_only(
    counted: tuple[Table, CountingStore], filter: object
) -> None:
    table, store = counted
    assert table.read(filter=filter).num_rows == 20  # type: ignore[arg-type]
    outside = [one for one in store.log if not one.name.startswith(".hoodie")]
    touched = {one.name for one in outside if one.kind != "list_directories"}
    assert touched
    assert all(name.startswith("city=c07") for name in touched)
    assert [one.name for one in outside if one.kind == "list_directories"] == [""]


def test_without_a_filter_no_directory_is_looked_at_twice(counted: tuple[Table, CountingStore]) -> None:
    table, store = counted
    assert table.read().num_rows == 240
    outside = [one for one in store.log if not one.name.startswith(".hoodie")]
    assert not [one for one in outside if one.kind == "info"]
    listed = [one.name for one in outside if one.kind == "list"]
    assert len(listed) == len(set(listed)) <= 12


def test_a_filter_on_statistics_reads_a_fifth_of_a_clustered_table(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = lakefmt.create_table(str(tmp_path / "t"), schema=schema, record_key="id")
    count = 60_000
    noise = [hashlib.sha512(str(n).encode()).hexdigest() for n in range(count)]
    table.insert(pa.table({"id": range(count), "text": noise}, schema=schema))
    file = next((tmp_path / "t").glob("*.parquet"))
    # Sorted by key in twenty row groups, as a clustering leaves it.
    written = pq.ParquetFile(file)
    footers = {key: value for key, value in written.metadata.metadata.items() if key != b"ARROW:schema"}
    content = written.read().sort_by("id")
    with pq.ParquetWriter(file, content.schema, store_schema=False) as writer:
        writer.write_table(content, row_group_size=count // 20)
        writer.add_key_value_metadata(footers)
    store = CountingStore(open_store(str(tmp_path / "t")))
    counted = Table(TableClient(store))
    assert counted.read(filter=f"id between {count // 2} and {count // 2 + 1000}").num_rows == 1001
    assert store.statistics().bytes_read <= file.stat().st_size // 5
    store.reset()
    assert counted.read(["id"]).num_rows == count
    assert store.statistics().bytes_read <= file.stat().st_size // 5


def test_a_partition_whose_name_begins_like_the_tables_own_directory_is_read(tmp_path):
    """Hudi writes such values, and reads them; only the directory itself is none."""
    rows = pa.table({"id": ["a", "b"], "city": ["x", "y"]})
    plain = {"hoodie.datasource.write.hive_style_partitioning": "false"}
    table = lakefmt.create_table(tmp_path, schema=rows.schema, record_key="id", partition_by="city", properties=plain)
    table.insert(rows)
    (tmp_path / "x").rename(tmp_path / ".hoodiex")
    assert sorted(StorageListing(table.client.store).partitions()) == [".hoodiex", "y"]
    assert StorageListing(table.client.store, 1).candidates() == [".hoodiex", "y"]
