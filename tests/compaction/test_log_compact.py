"""Log compactions: what is read is the same before and after, alone and with what comes later; whoever dies where."""

from __future__ import annotations

import contextlib
import functools
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.compaction.compact_run import run_compaction
from lakefmt._core.compaction.log_compact import (
    abandon_log_compaction,
    is_log_compaction_due,
    plan_log_compaction_of,
    run_log_compaction,
)
from lakefmt._core.filegroups.log_reader import select_log_blocks
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.log_blocks import HeaderKey
from lakefmt._core.storage import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.timeline import timeline_from_names
from lakefmt.errors import CommitConflict, InstantNotFound, UnsupportedFeature, WriterActive
from lakefmt.testing.invariants import check_no_orphans, check_visible
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at, no_faults
from tests.compaction.mor_tables import OPTIONS, MorTable, fresh_name, rows
from tests.compaction.test_compact import Later, assert_same_rows, data_files, everything, steps
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import numbers_of_run, sweep, versions_and_endings
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

FOLD = {**OPTIONS, "hoodie.log.compaction.blocks.threshold": 2}
ONE_THREAD = {**FOLD, "lakefmt.write.threads": 1, "hoodie.client.heartbeat.tolerable.misses": 0}


def made(version: int = 8, ordering: str | None = "ts") -> tuple[MorTable, str]:
    """A table in memory and its store's name: two groups with three logs each, one of them logs only."""
    name = fresh_name()
    mor = MorTable(f"memory://{name}", version, ordering)
    mor.base(rows(["a", "b", "c", "e"]))
    mor.log(rows(["a", "d"], ts=2, v=5.0), ["b"], 3)
    mor.log(rows(["a", "b"], ts=1, v=6.0))
    mor.log(None, ["e"], None)
    for ts in (1, 3, 2):
        mor.log(rows(["y1", f"y{ts}"], ts=ts, v=float(ts), partition="y"), partition="y")
    return mor, name


def pending(table: Table) -> list[str]:
    return [str(i) for i in table.client.load().timeline.pending if i.action is Action.LOG_COMPACTION]


def num_blocks(table: Table) -> int:
    state = table.client.load()
    return sum(len(select_log_blocks(table.client.store, p, state.timeline)) for p in table.client.at(state).slices())


# ----------------------------------------------------------------------------------------------------------- the law


@settings(max_examples=examples(12))
@given(st.sampled_from([6, 8, 9]), st.sampled_from(["ts", None]), st.booleans(), steps(), st.sets(st.integers(0, 6)))
def test_what_is_read_stays_whatever_comes_before_and_after(version, ordering, with_base, found, cuts):
    """A twin of the table is never folded: both are read alike after every step, and after a compaction at the end."""
    folded, twin = (MorTable(f"memory://{fresh_name()}", version, ordering) for _ in range(2))
    for mor in (folded, twin):
        if with_base:
            mor.base(rows("abc", ts=2))
    for number, (kind, keys, ts) in enumerate(found):
        data = None if kind == "deletes" else rows(keys, ts=ts, v=float(number))
        for mor in (folded, twin):
            mor.log(data, keys[:2] if kind != "rows" else (), ts)
        if number in cuts:
            before = everything(folded.table)
            run_log_compaction(folded.table.client, FOLD)
            assert_same_multiset(everything(folded.table), before)
        assert_same_multiset(folded.table.read(), twin.table.read())
    run_compaction(folded.table.client, OPTIONS, verify=True)
    assert_same_multiset(folded.table.read(query="read_optimized"), twin.table.read())


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_log_compaction_says_what_it_does(version):
    mor, _ = made(version)
    before, client = everything(mor.table), mor.table.client
    times = [i.time for i in client.load().timeline.commits]
    states = {time: mor.table.read(as_of=time) for time in times}
    plan = plan_log_compaction_of(client, FOLD)
    assert [len(o.log_names) for o in plan.operations] == [3, 3]
    assert str(plan).startswith("log compact: 2 slices, 6 logs, ")
    result = mor.table.compact(log=True, options=FOLD)
    assert f"log compact {result.instant}: 6 logs folded into 2, 5 rows, 2 deletes" in str(result)
    assert_same_multiset(everything(mor.table), before)
    assert num_blocks(mor.table) == 4, "data, deletes with an event time, deletes without one; data"
    state = client.load()
    instant = state.timeline.find(result.instant)
    assert instant.action is Action.DELTA_COMMIT
    commit = client.at(state).commit_metadata(instant)
    assert commit.operation.value == "LOG_COMPACT"
    assert commit.schema_text == mor.plain_text
    assert [stat.extra["totalLogBlocks"] for stat in commit.stats] == [4, 3]
    for piece in client.at(state).slices():
        blocks = select_log_blocks(client.store, piece, state.timeline)
        assert {block.block.instant_time for block in blocks} == {result.instant}
        assert all(len(block.block.header[HeaderKey.COMPACTED_BLOCK_TIMES].split(",")) == 3 for block in blocks)
    for time, expected in states.items():
        assert_same_multiset(mor.table.read(as_of=time), expected, what=time)
    last = state.timeline.find(times[-1]).order_time
    assert mor.table.incremental(last).num_rows == 0, "no row has changed"
    assert mor.table.compact(log=True, options=FOLD).instant is None, "what is folded is not folded again"
    check_visible(mor.table)
    check_no_orphans(mor.table)
    assert not list(client.store.list(".hoodie/.temp"))


def test_a_log_compaction_can_be_rolled_back():
    for version in (6, 8):
        mor, _ = made(version)
        before, files = everything(mor.table), data_files(mor.table)
        result = mor.table.compact(log=True, options=FOLD)
        mor.table.rollback(result.instant)
        assert_same_multiset(everything(mor.table), before)
        assert data_files(mor.table) == files
        assert not pending(mor.table), "its plan is gone, too"
        assert mor.table.compact(log=True, options=FOLD).instant is not None
        assert not pending(mor.table)
        assert_same_multiset(everything(mor.table), before)


def test_folded_logs_are_folded_again_with_what_came_later():
    mor, _ = made(9)
    first = mor.table.compact(log=True, options=FOLD)
    for n in range(3):
        mor.log(rows(["a", "q"], ts=5 + n, v=float(n)), ["c"], 9)
    before = everything(mor.table)
    second = mor.table.compact(log=True, options=FOLD)
    assert [len(o.log_names) for o in second.plan.operations] == [7]
    assert_same_multiset(everything(mor.table), before)
    state = mor.table.client.load()
    (block, *_) = select_log_blocks(mor.table.client.store, mor.table.client.at(state).slices()[0], state.timeline)
    assert first.instant in block.block.compacted_block_times
    run_compaction(mor.table.client, OPTIONS, verify=True)
    assert_same_multiset(everything(mor.table, "read_optimized"), before)


# ------------------------------------------------------------------------------------------------------ others at work


@pytest.mark.parametrize("version", [6, 8])
def test_writers_go_on_beside_a_plan_that_waits(version):
    mor, _ = made(version)
    client = mor.table.client
    planned = run_log_compaction(client, FOLD, schedule=True)
    assert pending(mor.table) == [f"{planned.instant} logcompaction requested"]
    assert not plan_log_compaction_of(client, FOLD).operations, "its groups are taken"
    mor.table.upsert(rows(["a", "n"], ts=9, v=9.0), options=OPTIONS)
    before = everything(mor.table)
    if version == 6:
        # There the number in its name would make the folded log the newer one for who knows no folded logs.
        with pytest.raises(CommitConflict, match="do it again"):
            mor.table.compact(run=planned.instant, options=FOLD)
        assert not pending(mor.table)
        assert_same_multiset(everything(mor.table), before)
    assert mor.table.compact(log=True, options=FOLD).plan.operations
    assert_same_multiset(everything(mor.table), before)
    check_no_orphans(mor.table)


def test_a_write_that_straddles_a_log_compaction_stays_on_top():
    mor, _ = made(8, ordering=None)
    straddling = mor.write_log(mor.begin(), rows(["a"], v=7.0))
    run_log_compaction(mor.table.client, FOLD)
    mor.complete(*straddling)
    assert mor.table.read(filter="id = 'a'")["v"].to_pylist() == [7.0]


@pytest.mark.parametrize("done", [False, True])
def test_a_compaction_overtakes_a_log_compaction(done):
    """Its log would stand on a base file that has newer rows."""
    mor, _ = made(8, ordering=None)
    client, before = mor.table.client, None
    planned = run_log_compaction(client, FOLD, schedule=True)
    mor.log(rows(["a"], v=8.0))
    # Another engine's compaction takes no notice of a log compaction that waits.
    at = find_requested(client, planned.instant)
    hidden = client.store.read(at)
    client.store.delete([at])
    run_compaction(client, OPTIONS, schedule=not done)
    client.store.put(at, hidden)
    before = everything(mor.table)
    assert run_log_compaction(client, FOLD, run=planned.instant).instant is None
    assert not pending(mor.table)
    run_compaction(client, OPTIONS)
    assert_same_multiset(everything(mor.table), before)


def find_requested(client: TableClient, time: str) -> str:
    (name,) = [o.name for o in client.store.list() if o.name.endswith(f"{time}.logcompaction.requested")]
    return name


def test_a_compaction_planned_while_logs_are_folded_wins(monkeypatch):
    mor, _ = made(8, ordering=None)
    client = mor.table.client
    before, files = everything(mor.table), data_files(mor.table)
    from lakefmt._core.compaction import log_compact

    folds = log_compact.LogMerge.run

    def slowly(self, plan):
        stats = folds(self, plan)
        state = client.load()
        time = client.instant_clock(state.config).next(state.timeline.highest_time)
        client.timeline_store(state.config, durable=False).request(time, Action.COMPACTION)
        return stats

    monkeypatch.setattr(log_compact.LogMerge, "run", slowly)
    with pytest.raises(CommitConflict, match="withdrawn"):
        run_log_compaction(client, FOLD)
    assert not pending(mor.table)
    assert data_files(mor.table) == files
    assert_same_multiset(everything(mor.table), before)


def test_a_plan_is_withdrawn_or_named():
    mor, _ = made()
    planned = mor.table.compact(log=True, schedule=True, options=FOLD)
    mor.table.compact(abandon=planned.instant)
    assert not pending(mor.table)
    with pytest.raises(InstantNotFound, match="logcompaction"):
        abandon_log_compaction(mor.table.client, planned.instant)
    again = mor.table.compact(log=True, schedule=True, options=FOLD)
    assert mor.table.compact(run=again.instant).instant == again.instant
    third = mor.table.compact(dry_run=True, log=True)
    assert not third.plan.operations


def test_it_runs_after_a_commit_when_enough_came():
    table = lakefmt.create_table(
        f"memory://{fresh_name()}",
        schema=rows("a").schema,
        record_key="id",
        ordering="ts",
        table_type="mor",
        options={**FOLD, "hoodie.log.compaction.inline": True},
    )
    for ts in range(5):
        table.upsert(rows("ab", ts=ts, v=float(ts)))
    state = table.client.load()
    operations = [table.client.at(state).commit_metadata(i).operation.value for i in state.timeline.commits]
    assert operations == ["UPSERT", "UPSERT", *["UPSERT", "LOG_COMPACT"] * 3]
    assert_same_multiset(table.read(), rows("ab", ts=4, v=4.0))


def test_enough_are_counted_from_the_last_compaction_of_either_kind():
    deltas = [f"2026010100000{n}000_2026010100000{n}500.deltacommit" for n in range(3)]
    compacted = [*deltas, "20260101000000700_20260101000000900.commit"]
    folded = [
        *deltas,
        *(f"20260101000001700{rest}" for rest in (".logcompaction.requested", "_20260101000001900.deltacommit")),
    ]
    due = [is_log_compaction_due(timeline_from_names(n, 2), 3) for n in (deltas, compacted, folded)]
    assert due == [True, False, False]
    # Hudi counts the log compaction itself.
    assert is_log_compaction_due(timeline_from_names(folded, 2), 2)


# ------------------------------------------------------------------------------------------------- what is not folded


def test_partial_rows_stay_as_they_are():
    table = lakefmt.create_table(
        f"memory://{fresh_name()}",
        schema=rows("a").schema,
        record_key="id",
        ordering="ts",
        table_type="mor",
        options=FOLD,
    )
    table.upsert(rows("ab"))
    for ts in (2, 3):
        table.upsert(rows("a", ts=ts).drop_columns(["v"]), partial=True)
    assert table.compact(log=True).instant is None
    cow = lakefmt.create_table(f"memory://{fresh_name()}", data=pa.table({"id": ["a"]}), record_key="id")
    with pytest.raises(UnsupportedFeature, match="copy-on-write"):
        cow.compact(log=True)


# -------------------------------------------------------------------------------------------------------------- dying


@functools.cache
def repeatable(version):
    return Repeatable(MemoryStore(made(version)[1]))


@versions_and_endings("log-compaction-dies", (6, 9))
def test_dying_anywhere_leaves_the_rows_and_the_next_one_ends_it(version, ending):
    origin = repeatable(version)
    whole = FaultStore(origin.copy(), no_faults)
    before = everything(Table(TableClient(whole, ONE_THREAD)))
    run_log_compaction(origin.client(whole, ONE_THREAD), ONE_THREAD)
    call = lambda store: run_log_compaction(origin.client(store, ONE_THREAD), ONE_THREAD)  # noqa: E731
    for left in sweep(origin, call, numbers_of_run(whole.effects, ending), ending):
        store, n = left.store, left.number
        healthy = origin.table(store, FOLD, process=0.01)
        assert_same_rows(healthy, before, n)
        healthy.upsert(rows(["zz"], ts=1))
        later = origin.client(store, FOLD, process=1)
        with contextlib.suppress(CommitConflict):
            run_log_compaction(later, FOLD)
        assert not healthy.client.load().timeline.pending, f"effect {n}"
        healthy.delete(["zz"])
        assert_same_rows(healthy, before, n)
        check_visible(healthy)
        check_no_orphans(healthy)


def test_who_is_at_work_is_let_alone():
    mor, name = made()
    died = Table(TableClient(FaultStore(MemoryStore(name), dies_at_the_end), OPTIONS))
    with pytest.raises(SimulatedCrash):
        run_log_compaction(died.client, FOLD)
    before, files = everything(mor.table), data_files(mor.table)
    with pytest.raises(WriterActive):
        run_log_compaction(mor.table.client, FOLD)
    (waiting,) = mor.table.client.load().timeline.pending
    with pytest.raises(WriterActive):
        abandon_log_compaction(mor.table.client, waiting.time)
    result = run_log_compaction(TableClient(MemoryStore(name), OPTIONS, clock=Later()), FOLD)
    assert result.instant is not None, "the dead one is withdrawn, as Hudi does, and another one made"
    assert result.finished == ()
    assert len(data_files(mor.table)) == len(files)
    assert_same_multiset(everything(mor.table), before)


def dies_at_the_end(effect):
    return fail_at(effect.number, FaultMode.BEFORE)(effect) if effect.name.endswith(".deltacommit") else None


# ------------------------------------------------------------------------------------------------------------- judges


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("ordering", ["ts", None])
def test_hudi_rs_reads_folded_logs(tmp_path, hudi_rs_judge: HudiRsJudge, version, ordering):
    mor = MorTable(str(tmp_path / "t"), version, ordering)
    mor.base(rows(["a", "b", "c", "e"]))
    for n in range(4):
        mor.log(rows(["a", "d"], ts=2 + n, v=float(n)), ["b"], 3)
    run_log_compaction(mor.table.client, FOLD)
    expected = mor.table.read()
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), expected)
    mor.log(rows(["a"], ts=9, v=9.0), ["d"], 9)
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), mor.table.read())


def test_a_folded_log_with_another_value_is_found_out(tmp_path, hudi_rs_judge: HudiRsJudge):
    """The judge of the test above can say no."""
    mor = MorTable(str(tmp_path / "t"), 8)
    mor.base(rows(["a", "b"]))
    for n in range(3):
        mor.log(rows(["a"], ts=2 + n, v=n + 0.5))
    result = run_log_compaction(mor.table.client, FOLD)
    expected = mor.table.read()
    path = tmp_path / "t" / result.files[0].path
    path.write_bytes(path.read_bytes().replace(struct.pack("<d", 2.5), struct.pack("<d", 7.5)))
    with pytest.raises(AssertionError, match=r"7\.5"):
        assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), expected)
