"""Compactions: rows before equal rows after, whatever is in the logs, whoever planned it, wherever somebody dies."""

from __future__ import annotations

import functools
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.compaction import compact_merge
from lakefmt._core.compaction.compact_plan import abandon_compaction
from lakefmt._core.compaction.compact_run import plan_compaction_of, run_compaction
from lakefmt._core.filegroups.base_writer import NewBaseFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt.errors import (
    CommitConflict,
    InstantNotFound,
    InternalError,
    SnapshotExpired,
    StateError,
    UnsupportedFeature,
    WriterActive,
)
from lakefmt.testing.stores import FaultMode, FaultStore, FreezeStore, SimulatedCrash, WatchStore, fail_at, no_faults
from tests.compaction.mor_tables import OPTIONS, MorTable, fresh_name, rows
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import numbers_of_run, sweep, versions_and_endings
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

DATA = Path(__file__).parents[1] / "data" / "compaction"
FILE_NAME = "_hoodie_file_name"


def made(version: int = 8, ordering: str | None = "ts") -> tuple[MorTable, str]:
    """A table in memory and its store's name: two groups, one of them logs only."""
    name = fresh_name()
    mor = MorTable(f"memory://{name}", version, ordering)
    mor.base(rows(["a", "b", "c"]))
    mor.log(rows(["a", "d"], ts=2, v=5.0), ["b"], 3)
    mor.log(rows(["y1"], partition="y"), partition="y")
    return mor, name


def everything(table: Table, query: str = "snapshot") -> pa.Table:
    """The rows with their meta columns, without the one that says in which file they are."""
    return table.read(query=query, meta_columns=True).drop_columns([FILE_NAME])


def data_files(table: Table) -> list[str]:
    return sorted(o.name for o in table.client.store.list() if not o.name.startswith(".hoodie"))


def pending(table: Table) -> list[str]:
    return [str(i) for i in table.client.load().timeline.pending if i.action is Action.COMPACTION]


# ----------------------------------------------------------------------------------------------------------- the law


@st.composite
def steps(draw):
    keys = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)
    stamps = st.integers(0, 4)
    one = st.one_of(
        st.tuples(st.just("rows"), keys, stamps),
        st.tuples(st.just("deletes"), keys, st.none() | stamps),
        st.tuples(st.just("both"), keys, stamps),
    )
    return draw(st.lists(one, min_size=1, max_size=6))


@settings(max_examples=examples(30))
@given(st.sampled_from([6, 8, 9]), st.sampled_from(["ts", None]), st.booleans(), steps(), st.integers(0, 6))
def test_what_was_merged_before_is_stored_afterwards(version, ordering, with_base, found, cut):
    mor = MorTable(f"memory://{fresh_name()}", version, ordering)
    if with_base:
        mor.base(rows("abc", ts=2))
    for number, (kind, keys, ts) in enumerate(found):
        data = None if kind == "deletes" else rows(keys, ts=ts, v=float(number))
        mor.log(data, keys[:2] if kind != "rows" else (), ts)
        if number == cut:
            run_compaction(mor.table.client, OPTIONS, verify=True)
    before = everything(mor.table)
    result = run_compaction(mor.table.client, OPTIONS)
    assert_same_multiset(everything(mor.table), before)
    assert_same_multiset(everything(mor.table, "read_optimized"), before)
    if result.instant is not None:
        (stat,) = result.files
        assert stat.num_writes == before.num_rows == result.num_rows
        assert {name.rpartition("_")[2][:17] for name in mor.table.read(meta_columns=True)[FILE_NAME].to_pylist()} <= {
            result.instant
        }


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_compaction_says_what_it_does(version):
    mor, _ = made(version)
    before, client = everything(mor.table), mor.table.client
    plan = plan_compaction_of(client, OPTIONS)
    assert len(plan.operations) == 2
    assert plan.num_logs == 2
    assert "not due yet" in str(plan)
    assert plan.operations[1].base_name is None
    result = run_compaction(client, OPTIONS, verify=True)
    assert f"compact {result.instant}: 2 logs merged into 2 base files, 4 rows" in str(result)
    assert_same_multiset(everything(mor.table, "read_optimized"), before)
    one, two = result.files
    assert (one.num_inserts, one.num_update_writes, one.num_deletes, one.num_writes) == (1, 1, 1, 3)
    assert (two.num_inserts, two.prev_commit) == (1, "null")
    assert one.extra["totalLogFiles"] == 1
    assert one.extra["totalLogRecords"] == 3
    state = client.load()
    commit = client.at(state).commit_metadata(state.timeline.find(result.instant))
    assert commit.compacted
    assert commit.operation.value == "COMPACT"
    assert commit.schema_text == mor.plain_text
    assert commit.stats[0].prev_base_file == one.prev_base_file is not None
    assert run_compaction(client, OPTIONS).instant is None
    assert not list(client.store.list(".hoodie/.temp"))


def test_new_files_tell_their_keys():
    mor, _ = made()
    run_compaction(mor.table.client, OPTIONS)
    mor.log(rows(["a", "0", "zz"], ts=9))
    run_compaction(mor.table.client, OPTIONS)
    state = mor.table.client.load()
    for piece in mor.table.client.at(state).slices():
        keys = mor.table.client.reader.keys(piece.base)
        footer = mor.table.client.reader.footer(piece.base)
        assert (footer.min_key, footer.max_key) == (min(keys.to_pylist()), max(keys.to_pylist()))
        assert footer.bloom_filter().contains(keys).all()
        assert footer.entries["parquet.avro.schema"] == mor.schema_text


def test_old_states_stay_readable():
    mor, _ = made()
    times = [i.time for i in mor.table.client.load().timeline.commits]
    before = [mor.table.read(as_of=time) for time in times]
    run_compaction(mor.table.client, OPTIONS)
    for time, expected in zip(times, before, strict=True):
        assert_same_multiset(mor.table.read(as_of=time), expected, what=time)


def test_a_copy_on_write_table_has_nothing_to_compact():
    table = lakefmt.create_table(f"memory://{fresh_name()}", data=pa.table({"id": ["a"]}), record_key="id")
    with pytest.raises(UnsupportedFeature, match="copy-on-write"):
        run_compaction(table.client)


def test_the_trigger_decides_when_nobody_asks():
    mor, _ = made()
    often = {**OPTIONS, "hoodie.compact.inline.max.delta.commits": 4}
    assert run_compaction(mor.table.client, often, force=False).instant is None
    mor.log(rows(["e"]))
    assert run_compaction(mor.table.client, often, force=False).instant is not None
    assert run_compaction(mor.table.client, often, force=False).instant is None


def test_the_newest_partitions_first_under_a_bound():
    mor, _ = made()
    some = {
        **OPTIONS,
        "hoodie.compaction.strategy": "LogFileSizeBasedCompactionStrategy",
        "hoodie.compaction.target.io": 0,
    }
    result = run_compaction(mor.table.client, some)
    assert result.plan.left == 1
    assert len(result.files) == 1
    assert len(run_compaction(mor.table.client, some).files) == 1
    assert run_compaction(mor.table.client, some).instant is None


# ------------------------------------------------------------------------------------------------- plans that wait


@pytest.mark.parametrize("version", [6, 8, 9])
def test_logs_come_on_top_of_a_plan_that_waits(version):
    mor, _ = made(version)
    client = mor.table.client
    planned = run_compaction(client, OPTIONS, schedule=True)
    assert planned.instant is not None
    assert pending(mor.table) == [f"{planned.instant} compaction requested"]
    mor.log(rows(["a"], ts=9, v=9.0), ["c"], 9)
    before = everything(mor.table)
    assert not plan_compaction_of(client, OPTIONS).operations, "its groups are taken"
    done = run_compaction(client, OPTIONS, run=planned.instant)
    assert done.instant == planned.instant
    assert_same_multiset(everything(mor.table), before)
    optimized = mor.table.read(query="read_optimized")
    assert sorted(optimized["id"].to_pylist()) == ["a", "c", "d", "y1"], "what came later waits for the next one"
    again = run_compaction(client, OPTIONS)
    assert again.plan.num_logs == 1
    assert_same_multiset(everything(mor.table, "read_optimized"), before)


def test_a_compaction_carries_out_what_waits_and_goes_on():
    mor, _ = made()
    planned = run_compaction(mor.table.client, OPTIONS, schedule=True)
    mor.log(rows(["q"], partition="y"), partition="y")
    result = run_compaction(mor.table.client, OPTIONS)
    assert result.finished == (planned.instant,)
    assert len(result.files) == 1
    with pytest.raises(InstantNotFound, match=planned.instant):
        run_compaction(mor.table.client, OPTIONS, run=planned.instant)


def test_a_write_that_straddles_the_plan_is_not_in_it():
    mor, _ = made(8)
    time = mor.begin()
    straddling = mor.write_log(time, rows(["a"], ts=7, v=7.0))
    run_compaction(mor.table.client, OPTIONS)
    mor.complete(*straddling)
    assert 7.0 in mor.table.read(filter="id = 'a'")["v"].to_pylist()
    before = everything(mor.table)
    assert run_compaction(mor.table.client, OPTIONS).plan.num_logs == 1
    assert_same_multiset(everything(mor.table, "read_optimized"), before)


def test_a_base_file_that_came_below_the_plan_is_not_hidden():
    mor, _ = made(8)
    straddling = mor.write_base(mor.begin(), rows(["a", "new"]))
    planned = run_compaction(mor.table.client, OPTIONS, schedule=True)
    mor.complete(*straddling)
    before = everything(mor.table)
    with pytest.raises(CommitConflict, match="abandon"):
        run_compaction(mor.table.client, OPTIONS, run=planned.instant)
    assert_same_multiset(everything(mor.table), before)
    assert abandon_compaction(mor.table.client, planned.instant)
    run_compaction(mor.table.client, OPTIONS, verify=True)
    assert_same_multiset(everything(mor.table, "read_optimized"), before)


def test_on_version_6_a_pending_write_comes_first():
    mor, _ = made(6)
    straddling = mor.write_log(mor.begin(), rows(["a"], ts=7, v=7.0))
    files = data_files(mor.table)
    with pytest.raises(WriterActive, match="version 6"):
        run_compaction(mor.table.client, OPTIONS)
    assert data_files(mor.table) == files
    assert not pending(mor.table)
    mor.complete(*straddling)
    assert run_compaction(mor.table.client, OPTIONS).plan.num_logs == 3


@pytest.mark.parametrize("version", [6, 8])
def test_a_plan_can_be_withdrawn(version):
    mor, name = made(version)
    client = mor.table.client
    planned = run_compaction(client, OPTIONS, schedule=True)
    before, files = everything(mor.table), data_files(mor.table)
    died = Table(TableClient(FaultStore(MemoryStore(name), dies_at_the_end), OPTIONS))
    with pytest.raises(SimulatedCrash):
        run_compaction(died.client, OPTIONS, run=planned.instant)
    assert len(data_files(mor.table)) == len(files) + 2
    with pytest.raises(WriterActive):
        abandon_compaction(client, planned.instant)
    later = TableClient(MemoryStore(name), OPTIONS, clock=Later())
    assert abandon_compaction(later, planned.instant)
    assert data_files(mor.table) == files
    assert not pending(mor.table)
    assert_same_multiset(everything(mor.table), before)
    with pytest.raises(InstantNotFound):
        abandon_compaction(client, planned.instant)
    assert run_compaction(client, OPTIONS).instant is not None


def test_on_version_6_a_plan_with_logs_on_top_stays():
    mor, _ = made(6)
    planned = run_compaction(mor.table.client, OPTIONS, schedule=True)
    mor.log(rows(["a"], ts=9, v=9.0))
    before = everything(mor.table)
    assert not abandon_compaction(mor.table.client, planned.instant)
    assert pending(mor.table) == [f"{planned.instant} compaction requested"]
    assert_same_multiset(everything(mor.table), before)
    run_compaction(mor.table.client, OPTIONS)
    assert_same_multiset(everything(mor.table, "read_optimized"), before)


def test_a_plan_whose_files_are_gone_says_so():
    mor, _ = made()
    planned = run_compaction(mor.table.client, OPTIONS, schedule=True)
    mor.table.client.store.delete([name for name in data_files(mor.table) if "f111" in name])
    with pytest.raises(SnapshotExpired, match="abandon"):
        run_compaction(mor.table.client, OPTIONS, run=planned.instant)


def test_a_file_that_lacks_a_row_is_found_out(monkeypatch):
    mor, _ = made()
    before, files = everything(mor.table), data_files(mor.table)
    append = NewBaseFile.append
    monkeypatch.setattr(NewBaseFile, "append", lambda file, rows: append(file, rows.slice(1)))
    with pytest.raises(InternalError, match="does not hold the rows"):
        run_compaction(mor.table.client, OPTIONS, verify=True)
    assert_same_multiset(everything(mor.table), before)
    monkeypatch.undo()
    assert len(pending(mor.table)) == 1
    assert pending(mor.table)[0].endswith("requested")
    assert data_files(mor.table) == files, "the attempt took its files along"
    assert len(run_compaction(mor.table.client, OPTIONS, verify=True).finished) == 1
    assert len(data_files(mor.table)) == len(files) + 2
    assert_same_multiset(everything(mor.table, "read_optimized"), before)


NAN = float("nan")
NESTED = pa.schema(
    [
        ("id", pa.string()),
        ("f", pa.float32()),
        ("list", pa.list_(pa.float64())),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("struct", pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])),
    ]
)
ROW = {"id": "a", "f": NAN, "list": [1.0, NAN], "map": [("k", NAN)], "struct": {"x": NAN, "y": ["s"]}}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "b"},
        {"f": 1.0},
        {"f": None},
        {"list": [NAN, 1.0]},
        {"list": [1.0, NAN, NAN]},
        {"list": None},
        {"map": [("l", NAN)]},
        {"map": [("k", 0.0)]},
        {"map": []},
        {"struct": None},
        {"struct": {"x": NAN, "y": ["t"]}},
        {"struct": {"x": NAN, "y": []}},
    ],
)
def test_rows_are_compared_value_by_value(change):
    def table(*found):
        return pa.Table.from_pylist([*found, dict.fromkeys(NESTED.names)], schema=NESTED)

    assert compact_merge.same_rows(table(ROW, ROW), table(ROW, ROW)), "NaN is NaN"
    assert compact_merge.same_rows(table(ROW, ROW).slice(1), table(ROW))
    assert not compact_merge.same_rows(table(ROW, ROW), table(ROW, {**ROW, **change}))
    assert not compact_merge.same_rows(table(ROW), table(ROW, ROW))


# --------------------------------------------------------------------------------------------- dying, and others at work

ONE_THREAD = {**OPTIONS, "lakefmt.write.threads": 1}


@functools.cache
def repeatable(version):
    return Repeatable(MemoryStore(made(version)[1]))


def dies_at_the_end(effect):
    """Let everything pass up to the completed file."""
    return fail_at(effect.number, FaultMode.BEFORE)(effect) if effect.name.endswith(".commit") else None


class Later:
    """A clock by which every heartbeat has expired."""

    def now(self):
        return datetime.now(UTC) + timedelta(hours=1)


@versions_and_endings("compaction-dies", (6, 9))
def test_dying_anywhere_leaves_the_rows_and_the_next_compaction_ends_it(ending, version):
    origin = repeatable(version)
    whole = FaultStore(origin.copy(), no_faults)
    before = everything(Table(TableClient(whole, ONE_THREAD)))
    run_compaction(origin.client(whole, ONE_THREAD), ONE_THREAD)
    assert len(whole.effects) > 8
    call = lambda store: run_compaction(origin.client(store, ONE_THREAD), ONE_THREAD)  # noqa: E731
    for left in sweep(origin, call, numbers_of_run(whole.effects, ending), ending):
        store, n = left.store, left.number
        healthy = origin.table(store, OPTIONS, process=0.01)
        assert_same_rows(healthy, before, n)
        run_compaction(origin.client(store, OPTIONS, process=1), OPTIONS, verify=True)
        assert_same_rows(healthy, before, n)
        assert_same_rows(healthy, before, n, "read_optimized")
        assert not healthy.client.load().timeline.pending, f"effect {n}"
        # The old base file, two logs, two partitions' metadata, and one new base file per group.
        assert len(data_files(healthy)) == 7, f"effect {n}: {data_files(healthy)}"
        completed = {i.time for i in healthy.client.load().timeline.completed}
        left = {o.name.split("/")[2] for o in healthy.client.store.list(".hoodie/.temp")}
        assert left <= completed, f"effect {n}: what is left of completed ones the next writer sweeps"


def assert_same_rows(table, expected, effect, query="snapshot"):
    # Every run has its own instants.
    columns = ["id", "p", "ts", "v"]
    assert_same_multiset(everything(table, query).select(columns), expected.select(columns), what=f"effect {effect}")


@pytest.mark.parametrize("version", [6, 8])
def test_deltacommits_go_on_while_a_compaction_is_at_work(version):
    """The compaction is held at every effect outside the lock, while two deltacommits finish."""
    _, name = made(version)
    seen = []
    run_compaction(TableClient(WatchStore(MemoryStore(name), seen.append), ONE_THREAD), ONE_THREAD)
    unlocked = [e.number for e in seen if e.name.startswith(("p=", ".hoodie/.temp/")) and "delete" not in e.kind]
    assert len(unlocked) >= 4
    for n in unlocked:
        mor, name = made(version)

        def write_two(effect, mor=mor, n=n):
            if effect.number == n:
                mor.log(rows(["a", "n"], ts=8, v=8.0))
                mor.log(rows(["m"], ts=9, v=9.0, partition="y"), ["y1"], 9, partition="y")

        run_compaction(TableClient(WatchStore(MemoryStore(name), write_two), ONE_THREAD), ONE_THREAD)
        found = {r["id"]: r["v"] for r in mor.table.read().to_pylist()}
        assert found == {"a": 8.0, "c": 0.0, "d": 5.0, "n": 8.0, "m": 9.0}, f"effect {n}"
        before = everything(mor.table)
        run_compaction(mor.table.client, OPTIONS)
        assert_same_multiset(everything(mor.table, "read_optimized"), before, what=f"effect {n}")


def test_who_was_thought_dead_does_not_complete_what_another_does():
    """A process sleeps before it completes; another takes its files away and does the work; it wakes up."""
    mor, name = made()
    before = everything(mor.table)
    seen = []
    _, other = made()
    run_compaction(TableClient(WatchStore(MemoryStore(other), seen.append), ONE_THREAD), ONE_THREAD)
    last_file = max(e.number for e in seen if e.name.startswith("p=") and "put" in e.kind)
    frozen = FreezeStore(MemoryStore(name), at=last_file)
    with ThreadPoolExecutor(1) as pool:
        sleeper = pool.submit(run_compaction, TableClient(frozen, ONE_THREAD), ONE_THREAD)
        try:
            assert frozen.wait_until_frozen()
            with pytest.raises(WriterActive):
                run_compaction(mor.table.client, OPTIONS)
            late = run_compaction(TableClient(MemoryStore(name), OPTIONS, clock=Later()), OPTIONS, verify=True)
            assert len(late.finished) == 1
        finally:
            frozen.release()
        with pytest.raises(StateError):
            sleeper.result()
    assert_same_multiset(everything(mor.table), before)
    assert_same_multiset(everything(mor.table, "read_optimized"), before)


# --------------------------------------------------------------------------------------------------------- real tables


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.zip")))
def test_real_tables_hold_the_same_rows_afterwards(name: str, tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    root = tmp_path / name
    table = lakefmt.open_table(str(root), options=OPTIONS)
    drop_metadata(table)
    before, theirs = everything(table), hudi_rs_judge.snapshot(root)
    planned = [i.time for i in table.client.load().timeline.pending if i.action is Action.COMPACTION]
    result = run_compaction(table.client, OPTIONS, verify=True)
    assert list(result.finished) == planned
    assert result.files
    assert_same_multiset(everything(table), before)
    assert_same_multiset(everything(table, "read_optimized"), before)
    assert_same_multiset(hudi_rs_judge.snapshot(root), theirs, what="hudi-rs")
    assert_same_multiset(hudi_rs_judge.read_optimized(root), theirs, what="hudi-rs, read optimised")


def drop_metadata(table: Table) -> None:
    """Take the metadata table away, as a write with hoodie.metadata.enable=false does."""
    from lakefmt._core.transactions.client import drop_metadata_table, open_write_client

    if table.properties.metadata_partitions:
        drop_metadata_table(open_write_client(table.client))
