"""Rolling back what is pending, of every action; logs that several writes share; what is refused, and why."""

from __future__ import annotations

import contextlib
import json

import pytest

from lakefmt._core.storage import LocalStore, ObjectStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action, State
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.rollback import scan_logs
from lakefmt._core.timeline.store import update_properties
from lakefmt.errors import (
    AlreadyExistsError,
    InstantNotFound,
    LakefmtError,
    MetadataTablePresent,
    StateError,
    WriterActive,
)
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.example_counts import in_turn
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.kit import rows
from tests.undo.scenarios import copy, make, over, same

LATER = "20991231235959000"


def pending(table: Table) -> list[str]:
    return [str(i) for i in table.client.load().timeline.pending]


# --- logs that several writes share ----------------------------------------------------------------------------------


def share_logs(store: ObjectStore) -> tuple[Table, str]:
    """Make a table of version 6 as stores that append have it: two deltacommits in one log. Return it and the second."""
    table = make(6, "mor")
    table.upsert(rows(0, 4, ts=1))
    table.upsert(rows(0, 4, ts=2))
    second = table.upsert(rows(0, 4, ts=3))
    inner = table.client.store
    body = json.loads(inner.read(f".hoodie/{second.instant}.deltacommit"))
    for stats in body["partitionToWriteStats"].values():
        for stat in stats:
            old = stat["path"]
            first = old.rpartition(".log.2_")[0] + ".log.1_"  # its token is that of another write
            (new,) = (found.name for found in inner.list() if found.name.startswith(first))
            inner.put(new, inner.read(new) + inner.read(old))
            inner.delete([old])
            stat["path"], stat["logFiles"] = new, [new.rpartition("/")[2]]
            stat["fileSizeInBytes"] = len(inner.read(new))
    inner.put(f".hoodie/{second.instant}.deltacommit", json.dumps(body).encode())
    for found in inner.list():
        store.put(found.name, inner.read(found.name))
    assert same(over(store).read(), rows(0, 4, ts=3))
    return over(store), str(second.instant)


def test_shared_logs_get_a_command_block(tmp_path, hudi_rs_judge: HudiRsJudge) -> None:  # type: ignore[no-untyped-def]
    table, second = share_logs(LocalStore(tmp_path / "t"))
    plan = table.rollback(second, dry_run=True).plan
    assert plan is not None
    assert plan.num_files == 0
    assert len(plan.shared) == 2
    assert "take its blocks back in 2 logs" in str(plan)
    done = table.rollback(second)
    assert same(table.read(), rows(0, 4, ts=2))
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), rows(0, 4, ts=2), what="hudi-rs after the command")
    store = table.client.store
    commands = {n: c for n, c in scan_logs(store, [o.name for o in store.list()]).items() if c.targets}
    assert len(commands) == 2
    assert all(content.targets == {second} and content.times == {done.instant} for content in commands.values())
    state = table.client.load()
    said = decode_body(
        BodyKind.ROLLBACK_METADATA, table.client.at(state).read_body(state.timeline.find(str(done.instant)))
    )
    names = {path for part in said["partitionMetadata"].values() for path in part["rollbackLogFiles"]}  # type: ignore[attr-defined]
    assert {name.rpartition("/")[2] for name in names} == {name.rpartition("/")[2] for name in commands}
    table.upsert(rows(2, 6, ts=9))
    expected = {r["id"]: r for r in (*rows(0, 4, ts=2).to_pylist(), *rows(2, 6, ts=9).to_pylist())}
    assert {r["id"]: r for r in table.read().to_pylist()} == expected
    table.compact()
    assert {r["id"]: r for r in table.read().to_pylist()} == expected


@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
def test_a_command_is_written_once_however_often_one_dies(mode: FaultMode) -> None:
    made, second = share_logs(make(6, "mor").client.store)
    counted = FaultStore(copy(made.client.store))
    over(counted).rollback(second)
    for number in in_turn(range(1, len(counted.effects) + 1), 2):
        store = copy(made.client.store)
        with contextlib.suppress(SimulatedCrash):
            over(FaultStore(store, fail_at(number, mode, crash=True))).rollback(second)
        story = f"effect {number}, {counted.effects[number - 1].name}"
        begun = over(store).read()
        assert same(begun, rows(0, 4, ts=3)) or same(begun, rows(0, 4, ts=2)), story
        over(store).upsert(rows(10, 12, ts=1))
        later = over(store).client.load().timeline
        if second not in [i.time for i in later.commits]:
            commands = [c for c in scan_logs(store, [o.name for o in store.list()]).values() if c.targets]
            assert len(commands) == 2, story
        assert not later.pending, story


def test_a_restore_takes_blocks_back_too() -> None:
    table, _ = share_logs(make(6, "mor").client.store)
    table.restore(table.client.load().timeline.commits[1].time)
    assert same(table.read(), rows(0, 4, ts=2))


# --- what is pending ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8])
def test_a_compaction_falls_back_to_its_plan_or_goes(version: int) -> None:
    table = make(version, "mor")
    table.upsert(rows(0, 4, ts=1))
    table.upsert(rows(0, 4, ts=2))
    planned = table.compact(schedule=True).instant
    assert planned is not None
    with pytest.raises(StateError, match="withdraw=True"):
        table.rollback(planned)
    timeline = table.client.timeline_store(table.client.load_config())
    timeline.start(planned, Action.COMPACTION)
    group = table.client.at(table.client.load()).slices()[0]
    stray = f"{group.partition}/{group.file_id}_0-0-0_{planned}.parquet"
    table.client.store.put(stray, b"PAR1")
    done = table.rollback(planned)
    assert (done.plan and done.plan.num_files, table.client.store.info(stray)) == (1, None)
    assert pending(table) == [f"{planned} compaction requested"]
    table.rollback(planned, withdraw=True)
    assert pending(table) == []
    assert same(table.read(), rows(0, 4, ts=2))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_the_plan_of_a_compaction_that_was_completed_waits_again(version: int) -> None:
    """It was left inflight: `check` took it for the work of a writer that had died."""
    table = make(version, "mor")
    for number in (1, 2):
        table.upsert(rows(0, 4, ts=number))
    compacted = table.compact().instant
    table.rollback(str(compacted))
    assert pending(table) == [f"{compacted} compaction requested"]
    assert table.check("full").is_clean
    assert table.compact().finished == (compacted,)
    assert same(table.read(), rows(0, 4, ts=2))


def test_a_compaction_below_logs_of_version_6_is_not_withdrawn() -> None:
    table = make(6, "mor")
    table.upsert(rows(0, 4, ts=1))
    table.upsert(rows(0, 4, ts=2))
    planned = table.compact(schedule=True).instant
    table.upsert(rows(0, 4, ts=3))
    with pytest.raises(StateError, match="lies on top of it"):
        table.rollback(str(planned), withdraw=True)
    table.compact()
    assert same(table.read(), rows(0, 4, ts=3))


@pytest.mark.parametrize(("version", "action"), [(6, Action.REPLACE_COMMIT), (8, Action.CLUSTERING)])
@pytest.mark.parametrize("withdraw", [None, False])
def test_a_clustering_goes_or_waits_again(version: int, action: Action, withdraw: bool | None) -> None:
    table = make(version)
    table.upsert(rows(0, 4, ts=1))
    timeline = table.client.timeline_store(table.client.load_config())
    plan = {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": []}, "extraMetadata": None, "version": 1}
    timeline.request(LATER, action, encode_body(BodyKind.REQUESTED_REPLACE, plan))  # type: ignore[arg-type]
    timeline.start(LATER, action)  # type: ignore[arg-type]
    stray = f"city=sf/new-0_0-0-0_{LATER}.parquet"
    table.client.store.put(stray, b"PAR1")
    table.rollback(LATER, withdraw=withdraw)
    assert table.client.store.info(stray) is None
    assert pending(table) == ([] if withdraw is None else [f"{LATER} {action.value} requested"])
    assert same(table.read(), rows(0, 4, ts=1))


def test_a_clean_that_waits_is_withdrawn_and_one_that_began_is_finished() -> None:
    table = make()
    for ts in range(3):
        table.upsert(rows(0, 4, ts=ts))
    options = {"hoodie.clean.commits.retained": 1}
    planned = table.clean(schedule=True, options=options).instant
    assert table.rollback(str(planned)).instant is None
    assert pending(table) == []
    faulty = FaultStore(table.client.store, fail_at(4, FaultMode.AFTER, crash=True))
    with contextlib.suppress(SimulatedCrash, LakefmtError):
        over(faulty).clean(options=options)
    (waiting,) = table.client.load().timeline.pending
    assert (waiting.action, waiting.state) == (Action.CLEAN, State.INFLIGHT)
    assert table.rollback(waiting.time).action == "clean"
    assert pending(table) == []
    assert table.client.load().timeline.find(waiting.time).is_completed
    assert table.clean(options=options).instant is None


@pytest.mark.parametrize(
    ("verb", "number", "action"), [("rollback", 4, Action.ROLLBACK), ("restore", 5, Action.RESTORE)]
)
def test_rollbacks_and_restores_that_died_come_to_an_end(verb: str, number: int, action: Action) -> None:
    table = make()
    kept = str(table.upsert(rows(0, 4, ts=1)).instant)
    last = str(table.upsert(rows(0, 4, ts=2)).instant)
    faulty = over(FaultStore(table.client.store, fail_at(number, FaultMode.AFTER, crash=True)))
    with contextlib.suppress(SimulatedCrash):
        faulty.rollback(last) if verb == "rollback" else faulty.restore(kept)
    half = next(i for i in table.client.load().timeline.pending if i.action is action)
    table.rollback(half.time)
    assert pending(table) == []
    assert same(table.read(), rows(0, 4, ts=1))


def test_a_savepoint_that_died_keeps_nothing_and_goes_with_the_next_write() -> None:
    table = make()
    kept = str(table.upsert(rows(0, 4, ts=1)).instant)
    with contextlib.suppress(SimulatedCrash):
        over(FaultStore(table.client.store, fail_at(1, FaultMode.AFTER, crash=True))).savepoint()
    assert pending(table) == [f"{kept} savepoint inflight"]
    table.upsert(rows(0, 4, ts=2))
    assert pending(table) == []
    assert table.savepoints() == ()


# --- what is refused -----------------------------------------------------------------------------------------------


def test_what_is_refused_and_nothing_moves() -> None:
    table = make()
    with pytest.raises(InstantNotFound, match="nothing to keep"):
        table.savepoint()
    times = [str(table.upsert(rows(0, 4, ts=ts)).instant) for ts in range(4)]
    kept = table.savepoint(times[2], comment="why", user="ann")
    assert kept.files
    with pytest.raises(AlreadyExistsError):
        table.savepoint(times[2])
    with pytest.raises(InstantNotFound):
        table.savepoint("20200101000000000")
    with pytest.raises(InstantNotFound):
        table.delete_savepoint(times[1])
    with pytest.raises(StateError, match=f"would undo {times[2]}, which a savepoint keeps"):
        table.restore(times[1])
    with pytest.raises(InstantNotFound):
        table.restore("20200101000000000")
    table.clean(options={"hoodie.clean.commits.retained": 1})
    with pytest.raises(StateError, match=r"cannot be kept: .* is needed, and the clean"):
        table.savepoint(times[0])
    table.delete_savepoint(times[2])
    with pytest.raises(StateError, match=r"cannot come back: .* is needed, and the clean"):
        table.restore(times[0])
    table.archive(options={"hoodie.keep.min.commits": 1})
    with pytest.raises(StateError, match="is archived"):
        table.restore(times[0])
    assert same(table.read(), rows(0, 4, ts=3))


def test_a_clean_that_is_planned_counts() -> None:
    table = make()
    times = [str(table.upsert(rows(0, 4, ts=ts)).instant) for ts in range(3)]
    planned = table.clean(schedule=True, options={"hoodie.clean.commits.retained": 1}).instant
    with pytest.raises(StateError, match="is going to remove it; roll that clean back first"):
        table.savepoint(times[0])
    table.rollback(str(planned))
    table.savepoint(times[0])
    assert table.clean(options={"hoodie.clean.commits.retained": 1}).plan.num_files == 0
    table.restore(times[0])
    assert same(table.read(), rows(0, 4, ts=0))


@pytest.mark.parametrize("version", [6, 8])
def test_what_a_savepoint_will_want_is_kept_as_well(version: int) -> None:
    """A compaction that was pending when the savepoint was made stays in a restore: so do its base files."""
    table = make(version, "mor")
    for ts in range(3):
        table.upsert(rows(0, 4, ts=ts))
    planned = table.compact(schedule=True).instant
    table.upsert(rows(1, 2, ts=4))  # in one partition; in the other no log of the savepoint lies on top of the plan
    kept = table.savepoint()
    expected = table.read()
    table.compact(run=planned)
    table.upsert(rows(0, 4, ts=5))
    table.compact()
    table.upsert(rows(0, 4, ts=6))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.restore(kept.instant)
    assert planned in [i.time for i in table.client.load().timeline.commits]
    assert same(table.read(), expected)


def test_living_writers_are_waited_for_unless_forced() -> None:
    table = make()
    kept = str(table.upsert(rows(0, 4, ts=1)).instant)
    timeline = table.client.timeline_store(table.client.load_config())
    timeline.request(LATER, Action.COMMIT)  # type: ignore[arg-type]
    timeline.start(LATER, Action.COMMIT)  # type: ignore[arg-type]
    table.client.options = {**table.client.options, "hoodie.client.heartbeat.tolerable.misses": 10}
    with pytest.raises(WriterActive):
        table.restore(kept)
    assert pending(table) == [f"{LATER} commit inflight"]
    table.restore(kept, force=True)
    assert pending(table) == []


def test_a_metadata_table_is_dropped_when_asked() -> None:
    table = make()
    kept = str(table.upsert(rows(0, 4, ts=1)).instant)
    table.upsert(rows(0, 4, ts=2))
    store = table.client.store
    update_properties(
        store, {"hoodie.table.metadata.partitions": "expr_index_x,files"}, table.client.clock.now(), durable=False
    )
    store.put(".hoodie/metadata/files/x", b"1")
    assert table.savepoint(kept).instant == kept, "it lists no file anew"
    for call in (lambda: table.restore(kept), lambda: table.rollback(table.timeline.entries[-1].time)):
        with pytest.raises(MetadataTablePresent):
            call()
    table.restore(kept, options={"hoodie.metadata.enable": "false"})
    assert store.info(".hoodie/metadata/files/x") is None
    assert same(table.read(), rows(0, 4, ts=1))


def test_an_overwrite_whose_past_was_cleaned_stays() -> None:
    table = make()
    table.upsert(rows(0, 4, ts=1))
    over_written = str(table.insert_overwrite_table(rows(0, 1, ts=2)).instant)
    assert table.rollback(over_written, dry_run=True).plan is not None
    state = table.client.load()
    groups = table.client.at(state).commit_metadata(state.timeline.find(over_written)).replaced_file_ids
    gone = [
        f"{p}/{o.name.rpartition('/')[2]}"
        for p in groups
        for o in table.client.store.list(p)
        if any(i in o.name for i in groups[p])
    ]
    table.client.store.delete(gone)
    with pytest.raises(StateError, match="was cleaned away"):
        table.rollback(over_written)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_commit_on_which_a_compaction_is_planned_stays_until_the_plan_is_withdrawn(version: int) -> None:
    table = make(version, "mor")
    table.upsert(rows(0, 4, ts=1))
    newest = table.upsert(rows(0, 4, ts=2))
    planned = table.compact(schedule=True)
    assert newest.instant is not None
    assert planned.instant is not None
    with pytest.raises(StateError, match="withdraw"):
        table.rollback(newest.instant)
    assert same(table.read(), rows(0, 4, ts=2))
    table.rollback(planned.instant, withdraw=True)
    table.rollback(newest.instant)
    assert same(table.read(), rows(0, 4, ts=1))


def test_logs_named_before_an_upgrade_show_in_an_increment_what_was_visible_at_its_end() -> None:
    table = make(6, "mor")
    commits = [table.upsert(rows(0, 4, ts=ts)) for ts in (1, 2, 3)]
    table.upgrade(9)
    state = table.client.at(table.client.load()).with_history().state
    ends = [state.timeline.find(str(done.instant)).order_time for done in commits]
    for ts, end in enumerate(ends, 1):
        assert same(table.incremental("000", end), rows(0, 4, ts=ts))
