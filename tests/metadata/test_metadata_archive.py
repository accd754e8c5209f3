"""The metadata table's timeline over many commits: old instants are archived, none is lost, and everything stays right."""

from __future__ import annotations

import contextlib

import pytest

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.layout import METADATA_DIRECTORY
from lakefmt._core.metadata.timeline import MetadataTimelineStore
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.archive import HistoryStore
from lakefmt._core.timeline.v6_archive import LogArchive
from lakefmt.errors import LakefmtError
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_metadata_dies import copy_of
from tests.metadata.test_metadata_table import OPTIONS, make, rows

SHORT: dict[str, object] = {
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.index.bloom.filter.enable": False,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 5,
    "hoodie.clean.commits.retained": 1,
}


def timeline_store(table: Table) -> MetadataTimelineStore:
    return MetadataTimelineStore(table.client.store, table.properties.version, durable=False)


def timeline_files(table: Table) -> list[str]:
    """Names of the active timeline of the metadata table."""
    listed = table.client.store.list(timeline_store(table).directory, recursive=False)
    return [each.name for each in listed if not each.name.endswith(".properties")]


def archived_times(table: Table) -> list[str]:
    store = timeline_store(table)
    if store.layout == 2:
        return [i.time for i in HistoryStore(table.client.store, store.archive_directory, 2).load().instants]
    return [name for name, _ in LogArchive(table.client.store, store.archive_directory).files()]


def handle(store: ObjectStore) -> Table:
    return Table(TableClient(store, {**OPTIONS, **SHORT, "hoodie.client.heartbeat.tolerable.misses": 0}))


def is_archive(name: str) -> bool:
    """Whether an effect writes the archive, or removes an instant that it has."""
    return name.startswith(METADATA_DIRECTORY) and ("/history/" in name or "/archived/" in name)


def write(table: Table, commits: int) -> list[int]:
    counts = []
    for number in range(commits):
        table.upsert(rows(number % 7, number % 7 + 2, number))
        counts.append(len(timeline_files(table)))
    return counts


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", [6, 9])
def test_the_timeline_of_the_metadata_table_stays_short(version: int) -> None:
    table = make("cow", version, SHORT)
    counts = write(table, 60)
    assert max(counts[40:]) <= 150, "an instant has three files, and every commit comes with a clean"
    assert archived_times(table)
    check_metadata_table(table)


@pytest.mark.slow
def test_every_instant_is_active_or_archived_and_a_new_index_gets_an_instant_of_its_own() -> None:
    table = make("cow", 8, SHORT)
    write(table, 30)
    known = archived_times(table)
    assert "00000000000000000" in known
    active = {one.time for one in timeline_store(table).load().instants}
    assert not active & set(known)
    state = table.client.at(table.client.load()).with_history().state
    commits = {i.time for i in state.timeline.commits}
    assert len(commits) == 30
    assert commits <= active | set(known)
    table.upsert(rows(0, 3, 40), options={"hoodie.metadata.index.bloom.filter.enable": True})
    assert "bloom_filters" in table.properties.metadata_partitions
    fresh = [one.time for one in timeline_store(table).load().initialisations]
    assert len(fresh) == 1
    assert fresh[0] not in known
    check_metadata_table(table)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", [6, 8])
def test_dying_in_the_archive_loses_no_instant(version: int) -> None:
    table = make("cow", version, SHORT)
    write(table, 13)
    made, archiving = table.client.store, []
    while not archiving:
        made = copy_of(table.client.store)
        faulty = FaultStore(copy_of(made))
        handle(faulty).upsert(rows(0, 4, 50))
        names = [effect.name for effect in faulty.effects]
        if any(map(is_archive, names)):
            first = next(number for number, name in enumerate(names) if is_archive(name))
            archiving = [n + 1 for n in range(first, len(names)) if f"{METADATA_DIRECTORY}/.hoodie" in names[n]]
        table.upsert(rows(0, 4, 50))
    before = {one.time for one in timeline_store(handle(made)).load().completed()}
    for number in archiving[:6] + archiving[6:-3:19] + archiving[-3:]:
        store = copy_of(made)
        dying = FaultStore(store, fail_at(number, FaultMode.AFTER, crash=True))
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            handle(dying).upsert(rows(0, 4, 50))
        healthy = handle(store)
        healthy.upsert(rows(0, 9, 60))
        check_metadata_table(healthy)
        if version == 8:
            now = {one.time for one in timeline_store(healthy).load().instants}
            archived = archived_times(healthy)
            assert len(archived) == len(set(archived)), f"effect {number}"
            assert before <= now | set(archived), f"effect {number}"
