"""What a clean removes and keeps: the predicate against a model that tries every read, then the verb."""

from __future__ import annotations

import contextlib
import functools
import json
from datetime import UTC, datetime, timedelta
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.compaction.clean_plan import (
    CleanPolicy,
    CleanRules,
    Needs,
    clean_rules,
    earliest_to_retain,
    plan_clean,
)
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.filegroups.model import BaseFile, LogFile, all_slices, build_slices
from lakefmt._core.storage import MemoryStore
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt._core.timeline.timeline import timeline_from_names
from lakefmt.errors import CorruptFile, LakefmtError, SnapshotExpired, StateError, UnknownSetting, UnsafePath
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at, no_faults
from tests.crash.repeatable import Repeatable
from tests.example_counts import examples, in_turn

NOW = "20260102000000000"
GROUPS = ["f0-0", "f1-0", "f2-0"]


def instant(n: int) -> str:
    return f"20260101{n:09d}"


@st.composite
def histories(draw):
    """Return a timeline, its base files, and which group was replaced when."""
    count = draw(st.integers(1, 12))
    names, bases, replaced = [], [], {}
    for n in range(count):
        time = instant(n * 10)
        pending = draw(st.integers(0, 9)) == 0
        replacing = draw(st.integers(0, 5)) == 0
        action = "replacecommit" if replacing else "commit"
        names.append(
            f"{time}.{'inflight' if not replacing else 'replacecommit.inflight'}"
            if pending
            else f"{time}_{instant(n * 10 + 5)}.{action}"
        )
        for group in draw(st.sets(st.sampled_from(GROUPS), max_size=3)):
            if ("p", group) not in replaced:
                bases.append(BaseFile("p", f"{group}_0-0-0_{time}.parquet", group, "0-0-0", time, 7))
        if replacing and not pending:
            for group in draw(st.sets(st.sampled_from(GROUPS), max_size=1)):
                if any(b.file_id == group and b.instant < time for b in bases) and not any(
                    b.file_id == group and b.instant == time for b in bases
                ):
                    replaced.setdefault(("p", group), time)
    return timeline_from_names(names, 2), bases, replaced


def rules():
    return st.builds(
        CleanRules,
        st.sampled_from(list(CleanPolicy)),
        commits=st.integers(1, 5),
        versions=st.integers(1, 3),
        hours=st.just(1),
    )


def files_read(timeline, bases, replaced, bound):
    """What a reader of the state at `bound` opens; the model."""
    then = timeline.as_of(bound)
    hidden = {key: at for key, at in replaced.items() if at <= bound}
    return {s.base.path for s in build_slices(bases, [], then, hidden)}


@settings(max_examples=examples(400))
@given(histories(), rules(), st.integers(0, 12), st.sets(st.integers(0, 40), max_size=2))
def test_nothing_that_a_window_savepoint_plan_or_consumer_can_read_is_removed(history, rules, saved_at, read_to):
    timeline, bases, replaced = history
    saved = frozenset(files_read(timeline, bases, replaced, instant(saved_at * 10)))
    consumed = frozenset(instant(n * 10 + 5) for n in read_to)
    needs = Needs(saved, frozenset({("p", "f2-0")}), consumed)
    earliest = earliest_to_retain(timeline, rules, NOW, UTC)
    plan = plan_clean(timeline, all_slices(bases, [], timeline), replaced, rules, needs, earliest)
    gone = set(plan.paths)
    assert not gone & saved
    assert not {path for path in gone if "f2-0" in path}
    assert not gone & files_read(timeline, bases, replaced, "9" * 17)
    windows = [i.time for i in timeline.commits if earliest is not None and i.time >= earliest.time]
    for start in consumed:
        windows += [i.time for i in timeline.commits if i.order_time > start]
    for bound in windows:
        assert not gone & files_read(timeline, bases, replaced, bound)
    committed = {b.path for b in bases if timeline.is_committed(b.instant)}
    assert gone <= committed, "files that no commit owns are not a clean's business"


@settings(max_examples=examples(200))
@given(histories(), st.integers(1, 5))
def test_what_no_window_reaches_is_removed(history, commits):
    timeline, bases, replaced = history
    rules = CleanRules(commits=commits)
    earliest = earliest_to_retain(timeline, rules, NOW, UTC)
    plan = plan_clean(timeline, all_slices(bases, [], timeline), replaced, rules, Needs(), earliest)
    if earliest is None:
        assert not plan.paths
        return
    # Hudi keeps one slice older than the earliest commit per group; nothing older than that stays.
    for group in GROUPS:
        mine = sorted(b.instant for b in bases if b.file_id == group and timeline.is_committed(b.instant))
        older = [time for time in mine if time < earliest.time]
        left = [b for b in bases if b.file_id == group and b.instant in older and b.path not in set(plan.paths)]
        hidden = replaced.get(("p", group))
        expected = 0 if not older or (hidden and hidden < earliest.time) else 1
        assert len(left) == expected


@settings(max_examples=examples(200))
@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 3), st.sampled_from([*CleanPolicy]))
def test_the_newest_slice_stays_when_a_group_began_with_logs_alone(kinds, kept, policy):
    names = [f"{instant(n * 10)}_{instant(n * 10 + 5)}.{'deltacommit' if n < 6 else 'commit'}" for n in range(12)]
    timeline = timeline_from_names(names, 2)
    bases = [
        BaseFile("p", f"f-0_0-0-0_{instant(n * 10)}.parquet", "f-0", "0-0-0", instant(n * 10), 1)
        for n, is_base in enumerate(kinds)
        if is_base
    ]
    logs = [
        LogFile("p", f".f-0_{instant(n * 10)}.log.1_0-0-0", "f-0", instant(n * 10), 1, 1)
        for n, is_base in enumerate(kinds)
        if not is_base
    ]
    slices = all_slices(bases, logs, timeline)
    assert [piece.instant for piece in slices] == sorted(piece.instant for piece in slices)
    rules = CleanRules(policy, commits=kept, versions=kept)
    earliest = earliest_to_retain(timeline, rules, NOW, UTC)
    plan = plan_clean(timeline, slices, {}, rules, Needs(), earliest)
    read = {path for piece in build_slices(bases, logs, timeline, {}) for path in piece.paths}
    assert read
    assert not read & set(plan.paths)


def test_versions_are_counted_per_group():
    names = [f"{instant(n)}_{instant(n)}.commit" for n in range(0, 50, 10)]
    bases = [BaseFile("", f"f-0_0-0-0_{instant(n)}.parquet", "f-0", "0-0-0", instant(n), 1) for n in range(0, 50, 10)]
    timeline = timeline_from_names(names, 2)
    rules = CleanRules(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions=2)
    plan = plan_clean(timeline, all_slices(bases, [], timeline), {}, rules, Needs(), None)
    assert plan.files == {"": tuple(b.name for b in bases[:3])}
    assert plan.num_bytes == 3
    assert "KEEP_LATEST_FILE_VERSIONS" in str(plan)


def test_hours_and_a_pending_commit_bound_the_window():
    names = [f"2026010{d}000000000_2026010{d}000000500.commit" for d in range(1, 6)]
    timeline = timeline_from_names(names, 2)
    rules = CleanRules(CleanPolicy.KEEP_LATEST_BY_HOURS, hours=30)
    assert earliest_to_retain(timeline, rules, "20260105010000000", UTC).time == "20260104000000000"
    waiting = timeline_from_names([*names, "20260103120000000.inflight"], 2)
    assert earliest_to_retain(waiting, rules, "20260105010000000", UTC).time == "20260103000000000"


@pytest.mark.parametrize("strategy", ["DayBasedCompactionStrategy", "BoundedPartitionAwareCompactionStrategy"])
def test_spans_beyond_the_dates_of_python_mean_for_ever(strategy):
    table = lakefmt.create_table(
        f"memory://long-spans-{strategy}",
        schema=pa.schema([("id", pa.string()), ("day", pa.string())]),
        record_key="id",
        partition_by="day",
        table_type="mor",
        options={"hoodie.metadata.enable": "false", "hoodie.clean.automatic": "false"},
    )
    for _ in range(3):
        table.upsert(pa.table({"id": ["a", "b"], "day": ["2026-01-01", "1999-01-01"]}))
    longest = 2**31 - 1
    assert table.clean(options={"hoodie.clean.hours.retained": longest}, dry_run=True).plan.num_files == 0
    spans = {
        "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
        "hoodie.compact.inline.max.delta.seconds": longest,
    }
    targets = {"hoodie.compaction.strategy": strategy, "hoodie.compaction.daybased.target.partitions": longest}
    assert table.compact(options={**spans, **targets}, dry_run=True) is not None


def test_the_policy_follows_the_count_that_is_set():
    assert clean_rules(resolve_settings({})).policy is CleanPolicy.KEEP_LATEST_COMMITS
    assert clean_rules(resolve_settings({"hoodie.cleaner.fileversions.retained": "2"})).versions == 2
    found = clean_rules(resolve_settings({"hoodie.cleaner.fileversions.retained": "2"}))
    assert found.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    with pytest.raises(UnknownSetting, match="contradicts"):
        resolve_settings({"hoodie.cleaner.commits.retained": 3, "hoodie.clean.commits.retained": 4})
    with pytest.raises(UnknownSetting):
        resolve_settings({"hoodie.clean.policy": "KEEP_EVERYTHING"})


# ------------------------------------------------------------------------------------------------------- the verb


def rows(*ids, v=0):
    return pa.table({"id": list(ids), "p": ["x" if i < "m" else "y" for i in ids], "v": [v] * len(ids)})


@pytest.fixture(params=[6, 8, 9])
def table(request, tmp_path):
    made = lakefmt.create_table(
        str(tmp_path / "t"),
        schema=rows("a").schema,
        record_key="id",
        partition_by="p",
        table_version=request.param,
        options={"lakefmt.durability": "none", "hoodie.clean.automatic": False},
    )
    for n in range(6):
        made.upsert(rows("a", "z", v=n))
    return made


def stored(table):
    return sorted(o.name for o in table.client.store.list() if o.name.endswith(".parquet") and ".hoodie" not in o.name)


def values(found):
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_a_clean_keeps_the_window_and_says_what_it_does(table):
    keep = {"hoodie.clean.commits.retained": 2}
    plan = table.clean(dry_run=True, options=keep)
    assert len(stored(table)) == 12
    assert plan.instant is None
    assert plan.plan.num_files == 6
    commits = [i.time for i in table.timeline.timeline.commits]
    result = table.clean(options=keep)
    assert result.files_deleted == 6
    assert len(stored(table)) == 6
    assert values(table.read()) == [("a", 5), ("z", 5)]
    for n, time in enumerate(commits):
        if n >= 3:  # one slice before the window serves readers at its edge
            assert values(table.read(as_of=time)) == [("a", n), ("z", n)]
        else:
            with pytest.raises(SnapshotExpired, match=result.instant):
                table.read(as_of=time)
    assert table.clean(options=keep).instant is None
    table.upsert(rows("a", v=6))
    again = table.clean(options=keep)
    assert again.files_deleted == 2  # both groups lost the slice before the new window's edge
    assert f"clean {again.instant}: 2 files deleted" in str(again)


def test_incremental_and_full_planning_agree(table):
    for n in range(6, 12):
        table.upsert(rows("a" if n % 2 else "z", v=n))
        full = table.clean(
            dry_run=True, options={"hoodie.clean.commits.retained": 2, "hoodie.clean.incremental.enabled": "false"}
        )
        quick = table.clean(options={"hoodie.clean.commits.retained": 2})
        assert quick.plan.files == full.plan.files


def test_automatic_cleaning_follows_commits(table):
    auto = {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": 1}
    assert table.upsert(rows("a", "z", v=9), options=auto).warnings == ()
    assert len(stored(table)) == 4
    assert values(table.read()) == [("a", 9), ("z", 9)]


def test_a_scheduled_clean_is_carried_out_by_the_next_one(table):
    planned = table.clean(schedule=True, options={"hoodie.clean.commits.retained": 1})
    assert planned.instant is not None
    assert planned.files_deleted == 0
    assert len(stored(table)) == 12
    table.upsert(rows("a", v=7))  # a pending clean is in nobody's way
    done = table.clean(options={"hoodie.clean.commits.retained": 10})
    assert done.finished == (planned.instant,)
    assert len(stored(table)) == 5
    assert values(table.read()) == [("a", 7), ("z", 5)]


def test_a_plan_does_not_take_what_a_rollback_made_reachable(table):
    table.clean(schedule=True, options={"hoodie.clean.fileversions.retained": 1})
    table.rollback(table.timeline.timeline.latest_commit.time)
    table.clean(options={"hoodie.clean.commits.retained": 10})
    assert values(table.read()) == [("a", 4), ("z", 4)]


def test_a_commit_whose_past_is_cleaned_is_not_rolled_back(table):
    table.clean(options={"hoodie.clean.fileversions.retained": 1})
    before = stored(table)
    with pytest.raises(StateError, match="cleaned"):
        table.rollback(table.timeline.timeline.latest_commit.time)
    assert stored(table) == before
    assert values(table.read()) == [("a", 5), ("z", 5)]


def test_registered_consumers_hold_what_they_have_not_read(table):
    commits = table.timeline.timeline.commits
    progress = {"next_start": commits[1].order_time, "updated": datetime.now(UTC).isoformat()}
    table.client.store.put(".hoodie/.lakefmt/consumers/c.json", json.dumps(progress).encode())
    plan = table.clean(dry_run=True, options={"hoodie.clean.commits.retained": 1}).plan
    assert {name.rpartition("_")[2][:17] for path in plan.paths for name in [path]} == {commits[0].time}
    stale = {**progress, "updated": (datetime.now(UTC) - timedelta(days=8)).isoformat()}
    table.client.store.put(".hoodie/.lakefmt/consumers/c.json", json.dumps(stale).encode())
    assert table.clean(dry_run=True, options={"hoodie.clean.commits.retained": 1}).plan.num_files == 8
    table.client.store.put(".hoodie/.lakefmt/consumers/c.json", b"{}")
    with pytest.raises(CorruptFile, match=r"consumers/c\.json"):
        table.clean()


@pytest.mark.parametrize(
    ("path", "error"),
    [("../../etc/f-0_0-0-0_20260101000000000.parquet", UnsafePath), ("p=x/.hoodie_partition_metadata", CorruptFile)],
)
def test_a_stored_plan_that_names_other_things_is_refused(table, path, error):
    time = "20260101000000000"
    record = {
        "earliestInstantToRetain": None,
        "lastCompletedCommitTimestamp": "",
        "policy": "KEEP_LATEST_COMMITS",
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "partitionsToBeDeleted": [],
        "extraMetadata": {},
        "filePathsToBeDeletedPerPartition": {"p=x": [{"filePath": path, "isBootstrapBaseFile": False}]},
    }
    where = table.properties.timeline_directory
    table.client.store.put(f"{where}/{time}.clean.requested", encode_body(BodyKind.CLEANER_PLAN, record))
    before = stored(table)
    with pytest.raises(error):
        table.clean()
    assert stored(table) == before


OPTIONS = {"lakefmt.durability": "none", "hoodie.clean.automatic": False}
KEEP = {"hoodie.clean.commits.retained": 1}
NUMBERS = count()


@functools.cache
def lived():
    """Return a table with four commits, of which copies are made."""
    name = f"clean-{next(NUMBERS)}"
    made = lakefmt.create_table(
        f"memory://{name}", schema=rows("a").schema, record_key="id", partition_by="p", options=OPTIONS
    )
    for n in range(4):
        made.upsert(rows("a", "z", v=n))
    return Repeatable(MemoryStore(name))


ENDINGS = [(mode, crash) for mode in FaultMode for crash in (False, True)]


@pytest.mark.xdist_group("clean-dies")  # one process asks all endings: it knows the states that it has checked
@pytest.mark.parametrize(("mode", "crash"), ENDINGS, ids=[f"{m.value}-{'dies' if c else 'error'}" for m, c in ENDINGS])
def test_dying_anywhere_leaves_the_rows_and_the_next_clean_ends_it(mode, crash):
    origin, whole = lived(), FaultStore(lived().copy(), no_faults)
    origin.table(whole, OPTIONS).clean(options=KEEP)
    assert len(whole.effects) > 5
    for n in in_turn(range(1, len(whole.effects) + 1), 2):
        store = origin.copy()
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            origin.table(FaultStore(store, fail_at(n, mode, crash=crash)), OPTIONS).clean(options=KEEP)
        if not origin.is_new(store):
            continue
        healthy = origin.table(store, OPTIONS, process=0.01)
        assert values(healthy.read()) == [("a", 3), ("z", 3)], f"effect {n}"
        healthy.upsert(rows("b", v=1))
        origin.table(store, OPTIONS, process=1).clean(options=KEEP)
        assert values(healthy.read()) == [("a", 3), ("b", 1), ("z", 3)], f"effect {n}"
        assert not healthy.client.load().timeline.pending, f"effect {n}"
        # x: the newest slice and the one before the window; y, which the window does not touch: the newest.
        assert len(stored(healthy)) == 3, f"effect {n}: {stored(healthy)}"


class Later:
    """A clock by which every heartbeat has expired."""

    def now(self):
        return datetime.now(UTC) + timedelta(hours=1)
