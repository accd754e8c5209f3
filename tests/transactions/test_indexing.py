"""Indexes that are made while others write: plan, run, publish; died runs; plans of Apache Hudi."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.manage import PartitionBuild
from lakefmt._core.metadata.reader import ready_partitions
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.transactions.indexing import (
    IndexRequest,
    drop_metadata_index,
    parse_index_request,
    pending_indexing,
    run_indexing,
    schedule_indexing,
)
from lakefmt.errors import InstantNotFound, InvalidInputError, LakefmtError, UnsupportedFeature, WriterActive
from lakefmt.lowlevel import assign, begin_write, commit, write_files
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.example_counts import in_turn
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_metadata_dies import copy_of
from tests.metadata.test_metadata_table import OPTIONS, make, rows

PLAIN: dict[str, object] = {
    **OPTIONS,
    "hoodie.metadata.record.index.enable": "false",
    "hoodie.metadata.index.bloom.filter.enable": "false",
    "hoodie.metadata.index.column.stats.enable": "false",
}
ALL = ("column_stats", "partition_stats", "bloom_filters", "record_index")
KINDS = [("cow", 6), ("cow", 9), ("mor", 6), ("mor", 8)]


def requests(version: int) -> list[IndexRequest]:
    made = [parse_index_request(kind) for kind in ALL if version > 6 or kind != "partition_stats"]
    return [*made, parse_index_request("secondary_index", "v")] if version > 6 else made


def while_building(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let others act between the two holds of the lock."""
    build = PartitionBuild.first_records

    def slowly(self: PartitionBuild) -> object:
        monkeypatch.setattr(PartitionBuild, "first_records", build)
        found = self.first_records()
        action()
        return found

    monkeypatch.setattr(PartitionBuild, "first_records", slowly)


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_what_others_write_meanwhile_is_in_the_indexes(
    kind: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(kind, version, PLAIN)
    table.upsert(rows(0, 8, 1))
    table.upsert(rows(4, 12, 2))
    before = set(table.properties.metadata_partitions)
    time = schedule_indexing(table.client, requests(version))
    table.upsert(rows(11, 14, 3))
    assert set(table.properties.metadata_partitions) == before, "a plan makes nothing"

    def others() -> None:
        beside = Table(TableClient(table.client.store, PLAIN))
        assert set(ready_partitions(beside.properties)) == before, "readers do not use what is not whole"
        beside.upsert(rows(0, 3, 4))
        beside.delete(["k5", "k13"])
        beside.insert(rows(20, 24, 5, shift=1))
        beside.upsert(rows(4, 8, 6))

    while_building(monkeypatch, others)
    names = run_indexing(table.client)
    assert set(names) == before | {one.partition for one in requests(version)}
    content = check_metadata_table(table)
    assert {"k0", "k20", "k12"} <= set(content["record_index"])
    assert "k13" not in content["record_index"]
    done = table.timeline.timeline.completed_of(Action.INDEXING)
    assert [one.time for one in done] == [time]
    for number in range(6):  # past a compaction of the metadata table
        table.upsert(rows(number, number + 4, 10 + number))
    check_metadata_table(table)


@pytest.mark.slow
def test_other_threads_write_through_the_same_handle_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("cow", 8, PLAIN)
    table.upsert(rows(0, 8, 1))
    time = table.index.schedule("record_index")
    seen: list[bool] = []

    def another_thread() -> None:
        pool = ThreadPoolExecutor(1)  # the timeout is reached by a failure only
        try:
            pool.submit(table.upsert, rows(6, 12, 2)).result(timeout=60)
            pool.submit(table.delete, ["k0"]).result(timeout=60)
        finally:
            pool.shutdown(wait=False)
        seen.append(any(each.time == time for each in table.timeline.timeline.pending))

    while_building(monkeypatch, another_thread)
    assert table.index.run() == ("files", "record_index")
    assert seen == [True], "the others were done while the index was not"
    assert set(check_metadata_table(table)["record_index"]) == {f"k{n}" for n in range(1, 12)}
    table.upsert(rows(10, 14, 3))
    assert set(check_metadata_table(table)["record_index"]) == {f"k{n}" for n in range(1, 14)}


def test_writers_that_began_before_are_in_the_indexes() -> None:
    table = make("cow", 8, PLAIN)
    table.upsert(rows(0, 8, 1))
    slow = begin_write(table)
    written = [write_files(slow, *part) for part in assign(slow, rows(6, 12, 2))]
    schedule_indexing(table.client, requests(8))
    run_indexing(table.client)
    commit(slow, written)
    assert set(check_metadata_table(table)["record_index"]) == {f"k{n}" for n in range(12)}


@pytest.mark.parametrize("version", [6, 8])
def test_a_restore_a_compaction_and_a_clean_meanwhile(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("cow", version, PLAIN)
    for number in range(4):
        table.upsert(rows(number, number + 6, number))
    beside = Table(TableClient(table.client.store, PLAIN))

    def many() -> None:
        for number in range(16):  # overdue: the metadata table is compacted all the same
            beside.upsert(rows(number, number + 3, 10 + number))
        beside.clean(options={"hoodie.clean.commits.retained": 1})

    schedule_indexing(table.client, requests(version))
    while_building(monkeypatch, many)
    run_indexing(table.client)
    check_metadata_table(table)
    drop_metadata_index(table.client, "record_index")
    schedule_indexing(table.client, [parse_index_request("record_index")])
    while_building(monkeypatch, lambda: beside.restore(beside.timeline.timeline.commits[-2].time))
    run_indexing(table.client)
    assert "record_index" in ready_partitions(table.properties)
    check_metadata_table(table)


def test_an_index_that_is_dropped_meanwhile_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("cow", 8, PLAIN)
    table.upsert(rows(0, 4, 1))
    schedule_indexing(table.client, [parse_index_request("record_index")])
    while_building(monkeypatch, lambda: drop_metadata_index(TableClient(table.client.store, PLAIN), "record_index"))
    with pytest.raises(LakefmtError):
        run_indexing(table.client)
    assert "record_index" not in table.properties.metadata_partitions
    assert not pending_indexing(table.timeline.timeline)
    schedule_indexing(table.client, [parse_index_request("record_index")])
    drop_metadata_index(table.client, "record_index")  # a plan that nobody ran
    assert not pending_indexing(table.timeline.timeline)
    check_metadata_table(table)


def test_wrong_requests_are_refused() -> None:
    table = make("cow", 8, PLAIN)
    table.upsert(rows(0, 4, 1))
    with pytest.raises(InvalidInputError, match="no column"):
        schedule_indexing(table.client, [parse_index_request("secondary_index", "nothing")])
    schedule_indexing(table.client, [parse_index_request("record_index")])
    with pytest.raises(InvalidInputError, match="a plan of it"):
        schedule_indexing(table.client, [parse_index_request("record_index")])
    with pytest.raises(InvalidInputError, match="already"):
        schedule_indexing(table.client, [parse_index_request("files")])
    with pytest.raises(InstantNotFound):
        run_indexing(table.client, "20260101000000000")
    old = make("cow", 6, PLAIN)
    with pytest.raises(UnsupportedFeature):
        schedule_indexing(old.client, [parse_index_request("secondary_index", "v")])


def test_one_process_runs_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("cow", 8, PLAIN)
    table.upsert(rows(0, 4, 1))
    time = schedule_indexing(table.client, [parse_index_request("record_index")])

    def again() -> None:
        other = TableClient(table.client.store, PLAIN)
        with pytest.raises(WriterActive):
            run_indexing(other, time)
        run_indexing(other)  # passes over what somebody else is running

    while_building(monkeypatch, again)
    run_indexing(table.client)
    check_metadata_table(table)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", [6, 8])
def test_an_indexing_that_dies_anywhere_is_run_again_or_dropped(version: int) -> None:
    deadly = {**PLAIN, "hoodie.client.heartbeat.tolerable.misses": 0}

    def handle(store: ObjectStore) -> Table:
        return Table(TableClient(store, deadly))

    table = make("cow", version, PLAIN)
    table.upsert(rows(0, 4, 1))
    table.upsert(rows(2, 6, 2))
    schedule_indexing(table.client, [parse_index_request("record_index"), parse_index_request("column_stats")])
    faulty = FaultStore(copy_of(table.client.store))
    run_indexing(handle(faulty).client)
    for number in in_turn(range(1, len(faulty.effects) + 1), 3):
        store: MemoryStore = copy_of(table.client.store)
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            run_indexing(handle(FaultStore(store, fail_at(number, FaultMode.AFTER, crash=True))).client)
        healthy = handle(store)
        healthy.upsert(rows(1, 3, 5))
        assert not multiset_difference(healthy.read(["id"]), rows(0, 6, 0).select(["id"])), f"effect {number}"
        if number % 2:
            run_indexing(healthy.client)
            assert {"record_index", "column_stats"} <= set(ready_partitions(healthy.properties)), f"effect {number}"
        else:
            drop_metadata_index(healthy.client, "record_index")
            if "column_stats" in healthy.properties.metadata_partitions:
                drop_metadata_index(healthy.client, "column_stats")
            assert ready_partitions(healthy.properties) == ("files",)
        assert not pending_indexing(healthy.timeline.timeline), f"effect {number}"
        healthy.upsert(rows(4, 9, 6))
        check_metadata_table(healthy)
