"""Archiving: what leaves the active timeline is still read, at every instant, and dying anywhere loses nothing."""

from __future__ import annotations

import contextlib
import functools
from datetime import timedelta
from functools import cache
from itertools import count

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.compaction.scheduler import run_services
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action, parse_instant_file
from lakefmt._core.timeline.v6_archive import LogArchive
from lakefmt._core.values import SystemClock
from lakefmt.errors import LakefmtError, SnapshotExpired
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at, no_faults
from tests.crash.repeatable import Repeatable
from tests.example_counts import in_turn

OFF = {"lakefmt.durability": "none", "hoodie.clean.automatic": False, "hoodie.archive.automatic": "false"}
KEEP = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
NUMBERS = count()


def rows(*ids, v=0):
    return pa.table({"id": list(ids), "v": [v] * len(ids)})


def values(found):
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@cache
def objects(commits, version):
    name = f"archive-original-{next(NUMBERS)}"
    made = lakefmt.create_table(
        f"memory://{name}", schema=rows("a").schema, record_key="id", table_version=version, options=OFF
    )
    for n in range(commits):
        made.upsert(rows("a", f"n{n}", v=n))
    store = MemoryStore(name)
    return {item.name: store.read(item.name) for item in store.list()}


def lived(commits, plan=no_faults, version=8):
    """Return a table with commits of which each changes `a` and adds a row, and its store's name."""
    name = f"archive-{next(NUMBERS)}"
    store = MemoryStore(name)
    for path, data in objects(commits, version).items():
        store.put(path, data)
    return Table(TableClient(FaultStore(store, plan), OFF)), name


def expected(n):
    return sorted([("a", n), *((f"n{k}", k) for k in range(n + 1))])


def timeline_files(table):
    config = table.client.load_config()
    names = [o.name.rpartition("/")[2] for o in table.client.store.list(config.timeline_directory, recursive=False)]
    return sorted(n for n in names if parse_instant_file(n, config.version.layout) is not None)


def history_files(table):
    listed = table.client.store.list(table.client.load_config().history_directory)
    return sorted(o.name.rpartition("/")[2] for o in listed if o.name.endswith((".parquet", "_1-0-1")))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_every_state_and_increment_is_read_from_the_archive_as_before(version):
    table, name = lived(7, version=version)
    times = [i.time for i in table.timeline.timeline.commits]
    done = [i.order_time for i in table.timeline.timeline.commits]
    plan = table.archive(dry_run=True, options=KEEP).plan
    assert [i.time for i in plan.instants] == times[:5]
    assert len(timeline_files(table)) == 21
    result = table.archive(options=KEEP)
    assert result.done
    assert result.plan == plan
    assert len(timeline_files(table)) == 6
    fresh = Table(TableClient(MemoryStore(name), OFF))
    assert [i.time for i in fresh.timeline.timeline.commits] == times[5:]
    for n, time in enumerate(times):
        assert values(fresh.read(as_of=time)) == expected(n)
        newer = fresh.incremental(done[n])
        assert values(newer) == ([("a", 6), *((f"n{k}", k) for k in range(n + 1, 7))] if n < 6 else [])
    assert values(fresh.incremental("000")) == expected(6)
    fresh.upsert(rows("b", v=1))
    assert values(fresh.read()) == sorted([*expected(6), ("b", 1)])
    assert not fresh.archive(options={**KEEP, "hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4}).plan.instants


@pytest.mark.parametrize("version", [6, 8])
def test_it_follows_commits_by_itself(version):
    table = lakefmt.create_table(
        f"memory://archive-auto-{version}",
        schema=rows("a").schema,
        record_key="id",
        table_version=version,
        options={"lakefmt.durability": "none", "hoodie.clean.automatic": False},
    )
    lengths = []
    for n in range(70):
        assert table.upsert(rows("a", v=n)).warnings == ()
        lengths.append(len(table.client.load().timeline.commits))
    assert max(lengths) == 30
    assert min(lengths[30:]) == 20
    assert len(history_files(table)) == 4
    snapshot = table.snapshot()
    first = table.client.at(snapshot.state).with_history().timeline.commits[0].time
    assert values(table.read(as_of=first)) == [("a", 0)]


def test_many_archive_steps_are_merged_and_all_is_found():
    table, _ = lived(0)
    for n in range(26):
        table.upsert(rows("a", v=n))
        table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})
    assert sum(name.endswith("_1.parquet") for name in history_files(table)) == 2
    everything = table.client.at(table.client.load()).with_history().timeline.commits
    assert len(everything) == 26
    for n in (0, 9, 10, 19, 20, 25):
        assert values(table.read(as_of=everything[n].time)) == [("a", n)]


def test_a_replacecommit_stays_while_its_replaced_files_are_there():
    table, _ = lived(2)
    replaced = table.insert_overwrite_table(rows("z", v=1)).instant
    for n in range(4):
        table.upsert(rows("z", v=n))
    plan = table.archive(dry_run=True, options={"hoodie.keep.min.commits": 1}).plan
    assert [i.time >= replaced for i in plan.instants] == [False, False]
    assert replaced in plan.barrier
    table.archive(options={"hoodie.keep.min.commits": 1})
    assert values(table.read()) == [("z", 3)]
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.archive(options={"hoodie.keep.min.commits": 1})
    assert replaced not in [i.time for i in table.timeline.timeline]
    assert values(table.read()) == [("z", 3)]


class _HourAhead(SystemClock):
    """Hands out instants ahead of the clock that stamps the files, as many instants in one millisecond do by a little."""

    def now(self):
        return super().now() + timedelta(hours=1)


@pytest.mark.parametrize("version", [6, 8])
def test_histories_of_columns_leave_with_their_commits(version):
    """Each commit of an altered table stores the whole history: these files were never removed."""
    table, name = lived(3, version=version)
    table.alter.rename_column("v", "w")
    for n in range(5):
        table.upsert(pa.table({"id": ["a"], "w": [n]}))
    renamed = table.timeline.timeline.commits[-1].time
    table.alter.rename_column("w", "v")
    for n in range(5):
        table.upsert(rows("a", v=n))
    before = values(table.read())
    table.archive(options=KEEP)
    left = {commit.time for commit in table.timeline.timeline.commits}
    files = [item.name for item in MemoryStore(name).list(".hoodie/.schema")]
    instants = sorted(file.rpartition("/")[2].partition(".")[0].partition("_")[0] for file in files)
    assert len(left) == 2
    assert set(instants[1:]) == left, "the newest of the archived ones stays"
    found = lakefmt.open_table(f"memory://{name}")
    assert values(found.read()) == before
    assert found.read(as_of=renamed, columns=["id", "w"]).num_rows == len(before)
    found.upsert(rows("a", v=7))
    found.alter.rename_column("v", "x")
    assert found.read(filter="id = 'a'")["x"].to_pylist() == [7]


def test_version_6_archives_no_state_as_reached_before_its_own_instant():
    _, name = lived(4, version=6)
    table = Table(TableClient(MemoryStore(name), OFF, clock=_HourAhead()))
    ahead = [table.upsert(rows("a", v=10 + n)).instant for n in range(4)]
    table.archive(options=KEEP)
    archived = LogArchive(table.client.store, ".hoodie/archived").load()
    assert ahead[0] in [one.completed.instant.time for one in archived]
    for one in archived:
        entries = (one.requested, one.inflight, one.completed)
        assert [entry.transition >= entry.instant.time for entry in entries] == [True] * 3


def test_version_6_counts_cleans_and_rollbacks_by_themselves_and_keeps_every_state():
    table, name = lived(4, version=6)
    for n in range(4):
        table.upsert(rows("a", v=10 + n))
        table.clean(options={"hoodie.clean.commits.retained": 2})
    times = [i.time for i in table.timeline.timeline.commits]
    cleans = [i.time for i in table.timeline.timeline.completed if i.action is Action.CLEAN]
    assert len(cleans) == 4
    plan = table.archive(dry_run=True, options=KEEP).plan
    assert [i.time for i in plan.instants if i.action is Action.CLEAN] == cleans[:2]
    assert [i.time for i in plan.instants if i.action is not Action.CLEAN] == times[:6]
    table.archive(options=KEEP)
    history = table.client.at(table.client.load()).with_history().state
    assert [i.time for i in history.timeline.commits] == times
    archived = LogArchive(table.client.store, ".hoodie/archived").load()
    assert [one.completed.instant.time for one in archived] == sorted([*times[:6], *cleans[:2]])
    for one in archived:
        assert one.requested is not None
        assert one.inflight is not None
        since = [entry.transition for entry in (one.requested, one.inflight, one.completed)]
        assert since == sorted(since)
        assert one.completed.instant.time <= since[-1] <= max(times) + "9"
    fresh = Table(TableClient(MemoryStore(name), OFF))
    assert values(fresh.read()) == sorted([("a", 13), *((f"n{k}", k) for k in range(4))])
    assert values(fresh.read(as_of=times[6])) == sorted([("a", 12), *((f"n{k}", k) for k in range(4))])
    with pytest.raises(SnapshotExpired, match=times[6]):
        fresh.read(as_of=times[2])
    assert not table.check(level="full").findings


@pytest.mark.parametrize(
    ("mode", "crash"), [(FaultMode.ANSWER_LOST, False), (FaultMode.REQUEST_LOST, False), (FaultMode.AFTER, True)]
)
def test_a_log_archive_whose_step_died_or_lost_its_answer_holds_each_instant_once(mode, crash):
    """The step that follows finds in the newest file what is active still, and appends nothing twice."""
    plain, _ = lived(5, version=6)
    plain.archive(options=KEEP)
    appended = next(n for n, effect in enumerate(plain.client.store.effects, 1) if ".archive.1_" in effect.name)
    table, name = lived(5, fail_at(appended, mode, crash=crash), version=6)
    with contextlib.suppress(LakefmtError, SimulatedCrash):
        table.archive(options=KEEP)
    healthy = Table(TableClient(MemoryStore(name), OFF))
    healthy.archive(options=KEEP)
    stored = [one.completed.instant.time for one in LogArchive(MemoryStore(name), ".hoodie/archived").load()]
    entries = sum(len(LogArchive(MemoryStore(name), ".hoodie/archived").entries(*f)) for f in
                  LogArchive(MemoryStore(name), ".hoodie/archived").files())  # fmt: skip
    assert len(stored) == 3
    assert entries == 9
    assert len(timeline_files(healthy)) == 6


def test_a_commit_looks_for_services_without_asking_the_store():
    table, _ = lived(2)
    table.upsert(rows("b", v=9))
    looks = []
    store = table.client.store
    look = store.look
    store.look = lambda kind, name, run: looks.append(name) or look(kind, name, run)
    assert run_services(table.client, {"hoodie.clean.automatic": "true", "hoodie.clean.trigger.max.commits": 9}) == ()
    assert run_services(table.client, {"hoodie.archive.automatic": "true", "hoodie.keep.max.commits": 30}) == ()
    assert looks == []
    assert len(table.client.seen().timeline.commits) == 3
    assert run_services(table.client, {**KEEP, "hoodie.archive.automatic": "true", "hoodie.keep.min.commits": 1,
                                       "hoodie.keep.max.commits": 2}) == ()  # fmt: skip
    assert looks
    assert len(table.client.load().timeline.commits) == 1


ENDINGS = [(mode, crash) for mode in FaultMode for crash in (False, True)]


@functools.cache
def repeatable(version):
    return Repeatable(lived(5, version=version)[0].client.store)


@pytest.mark.xdist_group("archive-dies")  # one process asks all endings: it knows the states that it has checked
@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize(("mode", "crash"), ENDINGS, ids=[f"{m.value}-{'dies' if c else 'error'}" for m, c in ENDINGS])
def test_dying_anywhere_loses_no_instant(mode, crash, version):
    origin = repeatable(version)
    whole = FaultStore(origin.copy(), no_faults)
    origin.table(whole, OFF).archive(options=KEEP)
    assert len(whole.effects) > 5
    for n in in_turn(range(1, len(whole.effects) + 1), 2):
        store = origin.copy()
        healthy = origin.table(store, OFF, process=0.01)
        times = [i.time for i in healthy.timeline.timeline.commits]
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            origin.table(FaultStore(store, fail_at(n, mode, crash=crash)), OFF).archive(options=KEEP)
        if not origin.is_new(store):
            continue
        for reader in (healthy, Table(TableClient(store, OFF))):
            assert [values(reader.read(as_of=t)) for t in times] == [expected(k) for k in range(5)], f"effect {n}"
        healthy.upsert(rows("b", v=1))
        healthy.archive(options=KEEP)
        everything = healthy.client.at(healthy.client.load()).with_history().timeline
        assert [i.time for i in everything.commits][:-1] == times, f"effect {n}"
        assert len(healthy.timeline.timeline.commits) == 2, f"effect {n}"
        assert not healthy.client.load().timeline.pending, f"effect {n}"
        assert values(healthy.read()) == sorted([*expected(4), ("b", 1)]), f"effect {n}"
