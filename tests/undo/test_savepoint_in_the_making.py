"""A savepoint has the time of the commit that it keeps: while it is made or deleted, everybody sees that commit as before.

Its maker may be at work, asleep or dead. ``LAKEFMT_HYPOTHESIS=thorough`` (`make test-all`) tries every index with every table.
"""

from __future__ import annotations

import itertools
import os

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.timeline import Timeline, extend_timeline, timeline_from_names
from lakefmt._core.values import InstantTime
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.undo.scenarios import OPTIONS, copy

THOROUGH = os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough"
INDEXES = ("bloom", "record", "global_bloom", "simple", "bucket")
TABLES = [
    (version, table_type, INDEXES[number % len(INDEXES)])
    for number, (version, table_type) in enumerate(itertools.product((6, 8, 9), ("cow", "mor")))
]
if THOROUGH:
    TABLES = list(itertools.product((6, 8, 9), ("cow", "mor"), INDEXES))
NUMBERS = itertools.count()
#: The maker of a savepoint counts as alive, and nothing ends what it has begun.
ALIVE: dict[str, object] = {**OPTIONS, "hoodie.client.heartbeat.tolerable.misses": 1000}


def rows(ids: list[str], v: int) -> pa.Table:
    return pa.table({"id": ids, "v": [v] * len(ids)})


def over(store: ObjectStore, **more: object) -> Table:
    return Table(TableClient(store, {**ALIVE, **more}, metadata_listing=ListingByMetadata()))


def made(version: int, table_type: str, index: str) -> MemoryStore:
    """Return a table whose second commit a savepoint keeps, with two commits after it."""
    store = MemoryStore(f"savepoint-{next(NUMBERS)}")
    lakefmt.create_table(
        store.url,
        data=rows(["a"], 1),
        record_key="id",
        table_type=table_type,
        table_version=version,
        index=index,
        indexes=["column_stats"],
        options={**ALIVE, **({"hoodie.bucket.index.num.buckets": 2} if index == "bucket" else {})},
    )
    table = over(store)
    table.upsert(rows(["a"], 1))
    table.savepoint()
    table.upsert(rows(["a", "b"], 2))
    table.upsert(rows(["b", "c"], 3))
    return store


EXPECTED = [("a", 2), ("b", 3), ("c", 3)]


def content(table: Table) -> list[tuple[str, int]]:
    return sorted((row["id"], row["v"]) for row in table.read().to_pylist())


def half_done(store: MemoryStore) -> list[MemoryStore]:
    """Return the table as it is whenever a savepoint of its newest commit is half made, or its older one half deleted."""
    states = []
    for delete in (False, True):
        for number in itertools.count(1):
            copied = copy(store)
            faulty = FaultStore(copied, fail_at(number, FaultMode.AFTER))
            table = Table(TableClient(faulty, ALIVE, metadata_listing=ListingByMetadata()))
            try:
                table.delete_savepoint(table.savepoints()[0].instant) if delete else table.savepoint()
            except SimulatedCrash:
                if any(".savepoint.inflight" in info.name for info in copied.list(".hoodie")):
                    states.append(copied)
                continue
            break
    return states


@pytest.mark.slow
@pytest.mark.parametrize(("version", "table_type", "index"), TABLES)
def test_a_savepoint_that_is_made_or_deleted_hides_no_commit(version: int, table_type: str, index: str):
    states = half_done(made(version, table_type, index))
    assert len(states) >= 3, "a savepoint was to be caught half made and half deleted"
    for store in states:
        assert content(over(store)) == EXPECTED
        assert content(over(store, **{"hoodie.metadata.enable": False})) == EXPECTED
        result = over(store).upsert(rows(["b", "d"], 4))
        assert (result.num_inserts, result.num_updates) == (1, 1)
        over(store).delete(["c"])
        assert content(over(store)) == [("a", 2), ("b", 4), ("d", 4)]


@pytest.mark.slow
@pytest.mark.parametrize(("version", "table_type", "index"), TABLES[::2])
def test_services_beside_a_savepoint_in_the_making_change_no_row(version: int, table_type: str, index: str):
    for store in half_done(made(version, table_type, index)):
        table = over(store)
        if table_type == "mor":
            table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
        if index != "bucket":
            table.cluster(options={"hoodie.clustering.plan.strategy.small.file.limit": 1 << 30})
        table.clean(options={"hoodie.clean.commits.retained": 1})
        if version > 6:
            table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})
        assert content(over(store)) == EXPECTED
        assert content(over(store, **{"hoodie.metadata.enable": False})) == EXPECTED
        assert not [each for each in over(store).check("full").findings if each.kind.value != "stuck_instant"]


# ------------------------------------------------------------------------------------------- what a timeline says by time

TIMES = tuple(InstantTime(f"202601010000{n:02}000") for n in range(12))


@st.composite
def names_of_commits(draw: st.DrawFn) -> list[str]:
    """Names of files of commits, completed or not, some of them archived."""
    numbers = draw(st.sets(st.integers(2, 10), min_size=1))
    names = []
    for number in numbers:
        names += [f"{TIMES[number]}.commit.requested", f"{TIMES[number]}.inflight"]
        if draw(st.booleans()):
            names.append(f"{TIMES[number]}_{TIMES[number + 1][:-3]}500.commit")
    return names


def answers(timeline: Timeline) -> list[object]:
    """What it says of its instants, and of older ones, which are archived."""
    times = {*TIMES[:2], *(instant.time for instant in timeline)}
    by_time = [
        (t, timeline.is_committed(t), timeline.has_left(t), timeline.completion_of(t), timeline.tells_completion_of(t))
        for t in sorted(times)
    ]
    return [by_time, timeline.commits, timeline.latest_commit, timeline.pending_times]


@given(names_of_commits(), st.data())
def test_a_pending_savepoint_changes_nothing_that_a_timeline_says_by_time(names: list[str], data: st.DataObject):
    without = timeline_from_names(names, 2)
    assume(without.commits)
    kept = data.draw(st.sampled_from(without.commits)).time
    savepoint = f"{kept}.savepoint.inflight"
    assert answers(timeline_from_names([*names, savepoint], 2)) == answers(without)
    assert answers(extend_timeline(without, [savepoint])) == answers(without)


def test_an_old_commit_stays_no_start_while_its_savepoint_is_deleted():
    """An engine archived beyond a savepoint: what lies between its commit and the next active one counts as committed."""
    names = [f"{TIMES[1]}_{TIMES[1][:-3]}500.commit", f"{TIMES[8]}_{TIMES[8][:-3]}500.commit"]
    for savepoint in (f"{TIMES[1]}_{TIMES[9]}.savepoint", f"{TIMES[1]}.savepoint.inflight"):
        assert timeline_from_names([*names, savepoint], 2).is_committed(TIMES[4])
