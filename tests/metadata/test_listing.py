"""Files listed through the metadata table: those of storage, whatever engine and version wrote it; sabotage is seen."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.listing import StorageListing
from lakefmt._core.filegroups.model import BaseFile, LogFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import (
    ListingByMetadata,
    MetadataListing,
    listed_files,
    open_metadata_table,
    reading_newest,
)
from lakefmt._core.metadata.reader import RecordRun
from lakefmt._core.metadata.records import (
    FileInfo,
    MetadataRecord,
    RecordType,
    combine_files,
    encode_record,
    record_schema,
)
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table
from lakefmt._core.values import PartitionPath, TableVersion
from lakefmt.errors import CorruptFile, LakefmtError, SnapshotExpired, StateError
from lakefmt.testing.stores import CountingStore
from tests.example_counts import examples
from tests.formats.hfile.test_hfile_hudi_rs import rewrite_listing
from tests.metadata.metadata_fixtures import (
    NOT_PARTITIONED,
    PARTITIONED_INDEX,
    TABLES,
    VERSION_6,
    client_of,
    died,
    engine_records,
    unpacked,
)

#: Its metadata table has the partition ``files`` only.
SIMPLE = "v9_cow_no_meta_120"
Files = tuple[list[BaseFile], list[LogFile]]


def sizes(files: Files) -> dict[str, int]:
    return {file.path: file.size for file in (*files[0], *files[1])}


def without(files: dict[str, int], instant: str) -> dict[str, int]:
    return {path: size for path, size in files.items() if not instant or instant not in path}


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_the_files_are_those_of_storage(name: str, tmp_path: Path):
    client = client_of(unpacked(name, tmp_path))
    config = client.load_config()
    listing, storage = client.listing(config), client.storage_listing(config)
    assert isinstance(listing, MetadataListing)
    # Files of a write that died are on storage, and the metadata table's deltacommit of it does not count.
    expected = without(sizes(storage.files(None)), died(name))
    assert sizes(listing.files(None)) == expected
    assert listing.partitions() == listing.candidates() == storage.partitions()
    for path in storage.partitions():
        found = listing.files([path])
        assert sizes(found) == {p: size for p, size in expected.items() if p.rpartition("/")[0] == path}
    assert expected


@pytest.mark.parametrize("name", [PARTITIONED_INDEX, VERSION_6, NOT_PARTITIONED])
def test_the_files_are_those_that_the_engine_lists(name: str, tmp_path: Path):
    client = client_of(unpacked(name, tmp_path))
    listed = sizes(client.listing(client.load_config()).files(None))
    engine = {
        f"{record['key']}/{file}".removeprefix("./"): info["size"]
        for record in engine_records(name)
        if record["type"] == RecordType.FILES
        for file, info in record["filesystemMetadata"].items()
        if not info["isDeleted"]
    }
    assert listed == engine
    assert engine


@pytest.mark.judge_rs
@pytest.mark.slow
@pytest.mark.parametrize("name", [PARTITIONED_INDEX, NOT_PARTITIONED, SIMPLE])
def test_hudi_rs_lists_the_same(name: str, tmp_path: Path, hudi_rs_judge):
    root = unpacked(name, tmp_path)
    client = client_of(root)
    slices = client.at(client.load()).slices()
    assert sorted(one.base.name for one in slices if one.base is not None) == hudi_rs_judge.base_files(root)


@pytest.mark.slow
def test_a_changed_name_is_seen(tmp_path: Path):
    root = unpacked(SIMPLE, tmp_path)
    client = client_of(root)
    before = sizes(client.listing(client.load_config()).files(None))
    name = sorted(before)[0].rpartition("/")[2].encode()

    def change(table: pa.Table) -> pa.Table:
        values = [value.replace(name, b"0" + name[1:]) for value in table["value"].to_pylist()]
        return table.set_column(1, table.schema.field(1), pa.array(values, pa.binary()))

    rewrite_listing(root, change)
    client = client_of(root)
    listed = sizes(client.listing(client.load_config()).files(None))
    assert set(listed) ^ set(before) == {one for one in {*listed, *before} if one.endswith(name.decode()[1:])}
    with pytest.raises(SnapshotExpired):
        lakefmt.open_table(str(root)).read()


def test_rows_are_read_through_the_metadata_table(tmp_path: Path):
    """A file that it does not list is invisible, although it is there."""
    root = unpacked(SIMPLE, tmp_path)
    rows = lakefmt.open_table(str(root)).read().num_rows
    one = next(path for path in root.rglob("*.parquet") if ".hoodie" not in path.parts)
    copy = one.with_name(one.name.replace(one.name[:8], "ffffffff"))
    shutil.copy(one, copy)
    assert lakefmt.open_table(str(root)).read().num_rows == rows
    assert lakefmt.open_table(str(root), options={"hoodie.metadata.enable": "false"}).read().num_rows > rows


def test_an_instant_that_is_pending_on_the_data_table_does_not_count(tmp_path: Path):
    root = unpacked(SIMPLE, tmp_path)
    client = client_of(root)
    before = sizes(client.listing(client.load_config()).files(None))
    timeline = root / ".hoodie" / "timeline"
    newest = max(timeline.glob("*_*.*commit"), key=lambda path: path.name)
    time = newest.name[:17]
    mine = {path for path in before if time in path}
    assert mine
    newest.unlink()
    after = sizes(client_of(root).listing(client.load_config()).files(None))
    assert set(before) - set(after) == mine


def test_without_a_directory_storage_is_listed(tmp_path: Path):
    root = unpacked(SIMPLE, tmp_path)
    client = client_of(root)
    listing = client.listing(client.load_config())
    before = sizes(listing.files(None))
    shutil.rmtree(root / ".hoodie" / "metadata")
    assert sizes(listing.files(None)) == before
    assert listing.partitions() == client.storage_listing(client.load_config()).partitions()


def test_a_reader_may_say_no(tmp_path: Path):
    root = unpacked(SIMPLE, tmp_path)
    for value in ("false", "False", False):
        client = client_of(root, **{"hoodie.metadata.enable": value})
        config = client.load_config()
        assert isinstance(client.listing(config), StorageListing)
        assert open_metadata_table(client, config) is None
    assert isinstance(client_of(root, **{"hoodie.metadata.enable": "true"}).listing(config), MetadataListing)


def test_a_table_that_advertises_none_is_listed_on_storage():
    table = lakefmt.create_table("memory://metadata-none", schema=pa.schema([("id", pa.string())]), record_key="id")
    assert isinstance(table.client.listing(table.client.load_config()), StorageListing)


def test_a_metadata_table_that_was_never_completed_is_named(tmp_path: Path):
    root = unpacked(SIMPLE, tmp_path)
    for path in (root / ".hoodie/metadata/.hoodie/timeline").glob("*_*"):
        path.unlink()
    client = client_of(root)
    with pytest.raises(CorruptFile, match="no completed instant"):
        client.listing(client.load_config()).files(None)


@pytest.mark.parametrize(
    ("stray", "refused"),
    [
        ("..files-0000-0_00000000000000000.log.1_0-0-0.crc", False),
        (".files-0000-0_00000000000000000.log.1_0-0-0.crc", False),
        ("..files-0000-0_00000000000000000.log.1_0-0-0", False),
        ("README.txt", False),
        (".files-0001-0_00000000000000000.log.1_0-0-0", True),
        ("col-stats-0000-0_0-0-0_00000000000000000.hfile", True),
    ],
)
def test_foreign_files_are_no_file_groups_and_with_too_many_groups_storage_is_listed(
    tmp_path: Path, stray: str, refused: bool, caplog: pytest.LogCaptureFixture
):
    root = unpacked(SIMPLE, tmp_path)
    client = client_of(root)
    before = sizes(client.listing(client.load_config()).files(None))
    (root / ".hoodie/metadata/files" / stray).write_bytes(b"")
    assert sizes(client.listing(client.load_config()).files(None)) == before
    assert ("storage is listed" in caplog.text) == refused


def test_a_partition_that_is_not_there_has_no_files(tmp_path: Path):
    client = client_of(unpacked(SIMPLE, tmp_path))
    assert client.listing(client.load_config()).files([PartitionPath("no/such")]) == ([], [])
    assert client.listing(client.load_config()).files([]) == ([], [])


def test_few_requests_whatever_the_number_of_partitions(tmp_path: Path):
    root = unpacked(VERSION_6, tmp_path)
    client = client_of(root)
    client.store = CountingStore(open_store(str(root)))
    config = client.load_config()
    listing = client.listing(config)
    begin = len(client.store.log)
    listing.files(None)
    assert len(client.store.log) - begin <= 3 + 12, "two timelines, one directory, the files of one slice"
    begin = len(client.store.log)
    listing.files(None)
    kinds = {access.kind for access in client.store.log[begin:]}
    assert "read" not in kinds, "files never change: they were kept"


@pytest.mark.slow
def test_any_damaged_byte_is_an_error_of_lakefmt_or_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    root = unpacked(SIMPLE, tmp_path)
    client = client_of(root)
    right = sizes(client.listing(client.load_config()).files(None))
    refused = 0
    for path in sorted((root / ".hoodie/metadata/files").iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 40)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
            client = client_of(root)
            try:
                assert sizes(client.listing(client.load_config()).files(None)) == right
            except LakefmtError:
                refused += 1
        path.write_bytes(data)
    assert refused + caplog.text.count("storage is listed") > 10


def test_a_file_that_was_cleaned_meanwhile_is_looked_for_anew():
    calls = []

    def read() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise SnapshotExpired("gone")
        return "found"

    assert reading_newest(read) == "found"
    calls.clear()

    def never() -> str:
        calls.append(1)
        raise SnapshotExpired("gone")

    with pytest.raises(SnapshotExpired):
        reading_newest(never)
    assert len(calls) == 3


# ------------------------------------------------------------------------------------- a state, and what came later

#: The metadata table compacts often; files of the table stay.
_OFTEN = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "2",
    "hoodie.clean.automatic": "false",
    "lakefmt.durability": "none",
}
_NUMBERS = count()


def rows_of(*places: str, value: int = 0) -> pa.Table:
    return pa.table({"id": ["a"] * len(places), "place": places, "v": [value] * len(places)})


def table_of(places: int, **options: str) -> Table:
    data = rows_of(*(f"p{number}" for number in range(places)))
    path = f"memory://listing-{next(_NUMBERS)}"
    settings = _OFTEN | options
    table = lakefmt.create_table(path, data=data, record_key="id", partition_by="place", options=settings)
    table.insert(data)
    return table


@pytest.mark.parametrize("places", [2, 40])
def test_the_plan_of_one_partition_asks_for_nothing_twice(places: int):
    store = CountingStore(table_of(places).client.store)
    table = Table(TableClient(store, metadata_listing=ListingByMetadata()))
    assert len(table.file_groups([{"place": "p1"}])) == 1
    requests = [(access.kind, access.name) for access in store.log]
    of_commits = [name for _, name in requests if name.endswith(".deltacommit") or ".log." in name]
    assert len(set(requests)) == len(requests) == 6 + len(of_commits), requests


def run_steps(table: Table, steps: Sequence[str]) -> None:
    """Upsert into the partitions named; a commit that one of these steps made may be rolled back."""
    made: list[str] = []
    for number, step in enumerate(steps, 1):
        if step != "rollback":
            made.append(str(table.upsert(rows_of(step, value=number)).instant))
        elif made:
            with suppress(StateError):  # the metadata table was compacted since
                table.rollback(made.pop())


_STEPS = st.sampled_from(["p0", "p1", "new", "rollback"])


@settings(max_examples=examples(40))
@given(st.lists(_STEPS, max_size=5), st.lists(_STEPS, max_size=7), st.booleans())
def test_a_state_has_its_files_whatever_became_complete_before_they_are_listed(
    before: list[str], after: list[str], archives: bool
):
    few = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
    table = table_of(3, **(few if archives else {}))
    run_steps(table, before)
    store = CountingStore(table.client.store)
    client = TableClient(store, _OFTEN, metadata_listing=ListingByMetadata())
    table_at = client.at()
    right = sorted(path for each in table.file_groups() for path in each.paths)
    run_steps(table, after)
    store.reset()
    assert sorted(path for each in table_at.slices() for path in each.paths) == right
    assert {access.name.partition("/")[0] for access in store.log} == {".hoodie"}, "no partition is listed"


@pytest.mark.parametrize(("steps", "times"), [([], 0), (["p0"], 1), (["p0", "p1", "p0", "p1"], 1)])
def test_the_timeline_is_listed_anew_where_the_metadata_table_has_gone_on(steps: list[str], times: int):
    table = table_of(3)
    store = CountingStore(table.client.store)
    table_at = TableClient(store, _OFTEN, metadata_listing=ListingByMetadata()).at()
    run_steps(table, steps)
    store.reset()
    table_at.slices()
    assert [access.name for access in store.log].count(".hoodie/timeline") == times


# ------------------------------------------------------------------------------------------- the law of merging lists

_NAMES = st.sampled_from(["a", "b", "c"])
_INFOS = st.builds(lambda size, gone: FileInfo(0 if gone else size, gone), st.integers(1, 99), st.booleans())
_LISTS = st.dictionaries(_NAMES, _INFOS, max_size=3)
_KEYS = st.sampled_from(["p", "q", "__all_partitions__"])
_RUNS = st.lists(st.one_of(st.dictionaries(_KEYS, _LISTS, max_size=3), st.sets(_KEYS, max_size=2)), max_size=6)


def as_run(records: dict[str, dict[str, FileInfo]] | set[str], version: TableVersion) -> RecordRun:
    keys = pa.chunked_array([pa.array([key.encode() for key in sorted(records)], pa.binary())])
    if isinstance(records, set):
        return RecordRun(keys, None, "", "a.log")
    values = [encode_record(MetadataRecord(RecordType.FILES, files=records[key]), version) for key in sorted(records)]
    return RecordRun(keys, pa.chunked_array([pa.array(values, pa.binary())]), record_schema(version), "a.log")


@pytest.mark.slow
@given(_RUNS, st.lists(st.sampled_from(list(TableVersion)), min_size=6, max_size=6))
def test_lists_are_merged_as_one_record_after_the_other(
    runs: Sequence[dict[str, dict[str, FileInfo]] | set[str]], versions: Sequence[TableVersion]
):
    expected: dict[str, dict[str, FileInfo]] = {}
    for records in runs:
        for key in records:
            if isinstance(records, set):
                expected.pop(key, None)
            else:
                expected[key] = combine_files(expected.get(key, {}), records[key])
    found = listed_files([as_run(records, version) for records, version in zip(runs, versions, strict=False)])
    rows = {(row["key"], row["name"]): row["size"] for row in found.to_pylist()}
    assert len(rows) == found.num_rows
    assert rows == {
        (key, name): info.size for key, files in expected.items() for name, info in files.items() if not info.is_deleted
    }


def test_a_name_that_leads_out_of_the_table_is_no_file():
    """Names are parsed by the grammar of data files, partition paths are checked."""
    client = lakefmt.create_table(
        "memory://metadata-unsafe", schema=pa.schema([("id", pa.string())]), record_key="id"
    ).client
    run = as_run({"../up": {"f-0_1-0-0_20260101000000000.parquet": FileInfo(5)}}, TableVersion.EIGHT)

    class Fake:
        def scan(self, partition: str) -> list[RecordRun]:
            return [run]

    listing = MetadataListing(client, lambda: Fake(), client.storage_listing())
    with pytest.raises(LakefmtError, match=r"\.\."):
        listing.files(None)


def test_a_listing_is_chosen_without_reading():
    store = CountingStore(MemoryStore("metadata-choice"))
    table = lakefmt.create_table("memory://metadata-choice", schema=pa.schema([("id", pa.string())]), record_key="id")
    config = table.client.load_config()
    ListingByMetadata()(table.client, config, StorageListing(store))
    assert not store.log
