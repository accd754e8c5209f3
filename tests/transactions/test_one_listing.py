"""Where one request lists all of ``.hoodie``: what a write asks for, and that it sees what others have changed."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata import listing
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.metadata.metadata_files import MetadataFileCache, handle_memory
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.storage.table_directory import SmallObjects, TableDirectory
from lakefmt._core.table import Table
from lakefmt._core.timeline.store import BACKUP, PROPERTIES, load_properties
from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired
from tests.kit import THOROUGH
from tests.storage.tree_store import LargeTreeStore, TreeStore

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": [f"k{n}" for n in numbers], "city": ["oslo"] * count, "ts": [1] * count}, SCHEMA)


def make(name: str, *, metadata: bool) -> MemoryStore:
    store = MemoryStore(name)
    lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        options={"hoodie.metadata.enable": metadata},
    )
    return store


def over(store: TreeStore, options: Mapping[str, object] | None = None) -> Table:
    return Table(TableClient(store, dict(options or {}), metadata_listing=ListingByMetadata()))


@pytest.mark.parametrize(("metadata", "most"), [(False, 10), (True, 18)], ids=["without", "with the metadata table"])
def test_an_append_asks_for_little(metadata: bool, most: int) -> None:
    store = TreeStore(make(f"append-{metadata}", metadata=metadata))
    table = over(store)
    for number in range(3):
        store.requests.clear()
        table.insert(rows(100 * number, 100))
    assert len(store.requests) <= most, store.requests
    assert store.requests.count("tree .hoodie") <= 2
    assert not [asked for asked in store.requests if "hoodie.properties" in asked]
    assert table.read().num_rows == 300


def test_properties_that_another_handle_changed_are_read_again() -> None:
    """A metadata table that another writer dropped is not written any more."""
    below = make("dropped", metadata=True)
    store = TreeStore(below)
    table = over(store)
    table.insert(rows(0, 10))
    over(TreeStore(below)).insert(rows(10, 10), options={"hoodie.metadata.enable": False})
    assert not [*below.list(".hoodie/metadata")]
    store.requests.clear()
    table.insert(rows(20, 10))
    assert [asked for asked in store.requests if "hoodie.properties" in asked]
    assert not [*below.list(".hoodie/metadata")]
    assert table.read().num_rows == 30


class OldProperties(TreeStore):
    """Tells of the properties for ever what it listed first."""

    first: ObjectInfo | None = None

    def _tree(self, prefix: str) -> list[ObjectInfo] | None:
        listed = super()._tree(prefix) or []
        self.first = self.first or next((info for info in listed if info.name == PROPERTIES), None)
        return [self.first if info.name == PROPERTIES and self.first else info for info in listed]


def test_marks_that_stay_would_hide_the_change() -> None:
    """The sabotage twin: by a listing that tells old marks, the dropped metadata table would be written."""
    below = make("hidden", metadata=True)
    table = over(OldProperties(below))
    table.insert(rows(0, 10))
    over(TreeStore(below)).insert(rows(10, 10), options={"hoodie.metadata.enable": False})
    table.insert(rows(20, 10))
    assert [*below.list(".hoodie/metadata")]


def test_an_interrupted_update_of_the_properties_is_undone() -> None:
    below = make("interrupted", metadata=False)
    store = TreeStore(below)
    table = over(store)
    table.insert(rows(0, 10))
    whole = below.read(PROPERTIES)
    below.put(BACKUP, whole)
    below.put(PROPERTIES, whole[: len(whole) // 2])
    table.insert(rows(10, 10))
    assert below.info(BACKUP) is None
    assert load_properties(below) == load_properties(store)
    assert table.read().num_rows == 20


def test_a_directory_of_many_objects_is_listed_by_parts() -> None:
    below = make("many", metadata=False)
    for number in range(1000):
        below.put(f".hoodie/.lakefmt/streams/s/{number}", b"")
    store = TreeStore(below)
    table = over(store)
    table.insert(rows(0, 10))
    store.requests.clear()
    table.insert(rows(10, 10))
    assert table.read().num_rows == 20
    assert "tree .hoodie" not in store.requests, "asked in vain once, it is not asked again"


def test_a_directory_tells_what_is_there() -> None:
    store = TreeStore(MemoryStore())
    for name in (".hoodie/hoodie.properties", ".hoodie/.temp/1/p/a.marker", ".hoodie/.temp/2/MARKERS0", "p/data"):
        store.put(name, name.encode())
    objects = SmallObjects(store)
    directory = objects.list_directory()
    assert isinstance(directory, TableDirectory)
    assert directory.directories(".hoodie/.temp") == [".hoodie/.temp/1", ".hoodie/.temp/2"]
    assert [info.name for info in directory.inside(".hoodie")] == [".hoodie/hoodie.properties"]
    assert (directory.has_objects(".hoodie/.temp"), directory.has_objects(".hoodie/timeline")) == (True, False)
    assert directory.info("p/data") is None


def test_small_objects_are_read_again_when_they_change() -> None:
    store = TreeStore(MemoryStore())
    store.put(".hoodie/a", b"one")
    objects = SmallObjects(store)
    assert objects.read(".hoodie/a", 9, objects.list_directory()) == b"one"
    store.requests.clear()
    assert objects.read(".hoodie/a", 9, objects.list_directory()) == b"one"
    assert store.requests == ["tree .hoodie"]
    store.put(".hoodie/a", b"two")
    assert objects.read(".hoodie/a", 9, objects.list_directory()) == b"two"
    with pytest.raises(CorruptFile):
        objects.read(".hoodie/a", 2)
    with pytest.raises(ObjectNotFound):
        objects.read(".hoodie/b", 9, objects.list_directory())
    with pytest.raises(ObjectNotFound):
        objects.read(".hoodie/b", 9)


class TornListing(LargeTreeStore):
    """Lists ``.hoodie`` once without the newest deltacommit of the metadata table, as if it came while that was listed."""

    tears = False

    def _tree(self, prefix: str) -> list[ObjectInfo] | None:
        listed = super()._tree(prefix)
        if listed is None or not self.tears:
            return listed
        self.tears = False
        newest = max(info.name for info in listed if "/metadata/.hoodie/timeline/" in info.name and "_" in info.name)
        return [info for info in listed if info.name != newest]


def written_and_torn(name: str) -> tuple[Table, TornListing]:
    """Return a handle that reads by the metadata table, before a listing that tears."""
    below = make(name, metadata=True)
    store = TornListing(below)
    table = over(store)
    handle_memory(table.client).of(MetadataFileCache).listed_instead = 1000
    for number in range(2):
        over(TreeStore(below)).insert(rows(10 * number, 10))
        assert table.read().num_rows == 10 * number + 10
    over(TreeStore(below)).insert(rows(20, 10))
    store.tears = True
    return table, store


def test_a_listing_that_lacks_the_deltacommit_of_a_commit_is_made_again() -> None:
    table, store = written_and_torn("torn")
    store.requests.clear()
    assert table.read().num_rows == 30
    assert store.requests.count("tree .hoodie") == 2


def test_a_listing_that_is_believed_would_lose_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twin."""
    table, _ = written_and_torn("believed")
    monkeypatch.setattr(listing, "records_all", lambda timeline, metadata: True)
    assert table.read().num_rows == 20


def test_a_snapshot_whose_metadata_table_was_dropped_lists_storage() -> None:
    below = make("dropped-later", metadata=True)
    over(TreeStore(below)).insert(rows(0, 10))
    table = over(LargeTreeStore(below))
    handle_memory(table.client).of(MetadataFileCache).listed_instead = 1000
    snapshot = table.snapshot()
    over(TreeStore(below)).insert(rows(10, 10), options={"hoodie.metadata.enable": False})
    assert snapshot.read().num_rows == 10
    assert table.read().num_rows == 20


def test_the_cheaper_listing_is_taken() -> None:
    """Of a large table: a new handle lists storage; one that reads again and again reads the metadata table once, and then what is
    new."""
    below = make("cheaper", metadata=True)
    writer = over(TreeStore(below))
    for number in range(6):
        writer.insert(rows(10 * number, 10))
    store = LargeTreeStore(below)
    table = over(store)
    table.client.load_config()  # as opening does
    counts, of_metadata = [], []
    for _ in range(12):
        store.requests.clear()
        assert table.read(filter=[("city", "=", "oslo")]).num_rows == 60
        counts.append(len(store.requests))
        of_metadata.append(sum("/metadata/files/" in asked for asked in store.requests))
    assert of_metadata[0] == 0
    assert sum(of_metadata) == max(of_metadata) >= 6, "read once"
    assert counts[-1] < counts[0]
    writer.insert(rows(60, 10))
    store.requests.clear()
    assert table.read(filter=[("city", "=", "oslo")]).num_rows == 70
    assert sum("/metadata/files/" in asked for asked in store.requests) <= 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_appends_ask_for_as_much_after_hundreds_of_commits() -> None:
    store = TreeStore(make("flat", metadata=False))
    table = over(store)
    counts = []
    commits = 500 if THOROUGH else 260
    for number in range(commits):
        store.requests.clear()
        table.insert(rows(10 * number, 10))
        counts.append(len(store.requests))
    early, late = counts[60:160], counts[commits - 100 :]
    assert median(late) <= min(median(early), 11), (early, late)
    assert sum(late) <= 1.1 * sum(early), (early, late)


def test_a_pinned_snapshot_sees_cleans_that_were_archived_since() -> None:
    """That there was no archive when it was taken says nothing of later."""
    below = make("pinned", metadata=False)
    table = over(TreeStore(below))
    first = table.upsert(rows(0, 10)).instant
    table.upsert(rows(0, 10))
    pinned = table.snapshot(as_of=first)
    other = over(TreeStore(below))
    archiving = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.cleaner.commits.retained": 1}
    for _ in range(8):
        other.upsert(rows(0, 10), options=archiving)
    with pytest.raises(SnapshotExpired):
        pinned.read()
