"""Upgrades of tables with archived history: nothing of the past is lost, whatever the archive holds, whenever one dies."""

from __future__ import annotations

import functools
import io
import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core import upgrade
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table, open_table
from lakefmt._core.timeline.archive import HistoryStore
from lakefmt._core.timeline.instant import Action, State, parse_instant_file
from lakefmt._core.timeline.metadata_codec import BodyKind, body_kind, decode_body
from lakefmt._core.upgrade import upgrade_table
from lakefmt._core.values import TableVersion
from lakefmt.errors import CorruptFile, StateError
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import CountingStore, FaultStore
from tests.compat.fixture_tables import real_tables
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import Ending, endings_of_run, sweep
from tests.kit import SCHEMA, rows
from tests.read.archiving import archive_in, entry, pack_entries, real_entry_schema

VECTORS = Path(__file__).parents[1] / "data" / "timeline"
#: What Hudi 1.2.0 made of an archive of version 6.
BY_HUDI = VECTORS.parent / "history"
OPTIONS = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "hoodie.client.heartbeat.tolerable.misses": 0,
}
NUMBERS = itertools.count()
HISTORY = ".hoodie/timeline/history"
OLD_ARCHIVE = ".hoodie/archived/.commits_.archive.1_1-0-1"


def over(store: object) -> Table:
    return Table(TableClient(store, OPTIONS))  # type: ignore[arg-type]


def with_past(archived: int = 3, **how: bool) -> MemoryStore:
    """A table of version 6 whose oldest instants, an upsert, a delete and a rollback, are archived."""
    name = f"past-{next(NUMBERS)}"
    table = lakefmt.create_table(
        f"memory://{name}", schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", table_version=6,
        options=OPTIONS,
    )  # fmt: skip
    table.upsert(rows(0, 6, ts=1))
    table.delete(["k1"])
    undone = table.upsert(rows(0, 6, ts=9))
    assert undone.instant is not None
    table.rollback(undone.instant)
    table.upsert(rows(2, 9, ts=3))
    # Last, because an overwrite may not be archived before what it replaced was cleaned.
    table.insert_overwrite(rows(0, 1, ts=2))
    store = MemoryStore(name)
    archive_in(store, archived, **how)
    return store


def known(table: Table) -> list[str]:
    """Requested times and actions of everything that completed, archived or not."""
    state = table.client.at(table.client.load()).with_history().state
    return [
        f"{i.time} {i.action.value}"
        for i in sorted((*state.timeline.archived, *state.timeline.completed), key=lambda i: i.time)
    ]


def history_rows(store: MemoryStore) -> dict[str, dict[str, object]]:
    files = [o.name for o in store.list(HISTORY) if o.name.endswith(".parquet")]
    found = [row for name in files for row in pq.read_table(io.BytesIO(store.read(name))).to_pylist()]
    return {row["instantTime"]: row for row in found}


def same(left: pa.Table, right: pa.Table) -> bool:
    return not multiset_difference(left, right)


def test_the_archive_becomes_what_hudi_makes_of_it(tmp_path: Path) -> None:
    """Judged by the files that Hudi 1.2.0's own upgrade, on Spark, made of the same table."""
    real = next(table for table in real_tables() if table.name == "v6_cow_archived_0150")
    root = real.unpack(tmp_path)
    before = {path: path.read_bytes() for path in (root / ".hoodie/archived").iterdir()}
    table = open_table(str(root))
    seen = known(table)
    upgrade_table(table.client, 8)
    ours = {r["instantTime"]: r for f in (root / HISTORY).glob("*.parquet") for r in pq.read_table(f).to_pylist()}
    theirs = {
        row["instantTime"]: row
        for path in sorted(BY_HUDI.glob("v6_cow_archived_0150-history-*-upgraded-1.2.0.parquet"))
        for row in pq.read_table(path).to_pylist()
    }
    assert len(theirs) == 15
    assert ours.keys() == theirs.keys()
    for time, row in ours.items():
        other = theirs[time]
        for name in ("completionTime", "action", "version"):
            assert row[name] == other[name], (time, name)
        kind = body_kind(Action(row["action"]), State.COMPLETED)
        assert kind is not None
        assert decode_body(kind, row["metadata"]) == decode_body(kind, other["metadata"]), time
        # Hudi loses the plans of cleans on this way; its own archiving keeps them.
        assert (row["plan"] is not None) == (row["action"] == "clean")
        if row["plan"] is not None:
            assert decode_body(BodyKind.CLEANER_PLAN, row["plan"])["policy"] == "KEEP_LATEST_COMMITS"
    assert {path: path.read_bytes() for path in (root / ".hoodie/archived").iterdir()} == before
    assert known(open_table(str(root))) == seen


@pytest.mark.parametrize("archived", [1, 3, 4])
@pytest.mark.parametrize("target", [8, 9])
def test_the_past_reads_as_before(target: int, archived: int) -> None:
    store = with_past(archived)
    table = over(store)
    state = table.client.at(table.client.load()).with_history().state
    then = {i.time: table.read(as_of=i.time, meta_columns=True) for i in state.timeline.commits}
    bodies = {i.time: table.client.at(state).commit_metadata(i) for i in state.timeline.commits}
    seen = known(table)
    plan = upgrade_table(over(store).client, target, dry_run=True)
    assert str(upgrade_table(table.client, target)) == str(plan)
    for fresh in (table, over(store)):
        assert known(fresh) == seen
        now = fresh.client.at(fresh.client.load()).with_history().state
        assert len(now.timeline.archived) == archived
        completions = [
            str(i.completion) for i in sorted((*now.timeline.archived, *now.timeline.completed), key=lambda i: i.time)
        ]
        assert completions == sorted(set(completions))
        for instant in now.timeline.commits:
            assert same(fresh.read(as_of=instant.time, meta_columns=True), then[instant.time])
            assert same(fresh.read(as_of=str(instant.completion), meta_columns=True), then[instant.time])
            assert fresh.client.at(now).commit_metadata(instant).stats == bodies[instant.time].stats
        assert same(fresh.incremental("000"), fresh.read())
    check_invariants(over(store))
    table.upsert(rows(0, 8, ts=7))
    assert same(table.read(as_of=min(then), meta_columns=True), then[min(then)])
    assert upgrade_table(table.client, target).is_empty


def test_the_plan_shows_the_archive_and_the_properties_of_it() -> None:
    store = with_past(3)
    plan = upgrade_table(over(store).client, 8, dry_run=True)
    (part,) = plan.history
    assert f"  write {HISTORY}/{part.name} with 3 archived instants" in str(plan).split("\n")
    assert not list(store.list(".hoodie/timeline"))
    upgrade_table(over(store).client, 8)
    assert {o.name.rpartition("/")[2] for o in store.list(HISTORY)} == {part.name, "manifest_1", "_version_"}
    assert store.read(f"{HISTORY}/_version_") == b"1"


def test_an_overwrite_keeps_what_it_requested_as_the_plan() -> None:
    store = with_past(5)
    upgrade_table(over(store).client, 8)
    found = history_rows(store)
    plans = {row["action"]: row["plan"] for row in found.values()}
    assert plans["commit"] is None
    assert isinstance(plans["replacecommit"], bytes)
    assert decode_body(BodyKind.REQUESTED_REPLACE, plans["replacecommit"])["version"] == 1


def test_completion_times_are_those_of_the_archive_and_rise_without_them() -> None:
    store = with_past(3)
    upgrade_table(over(store).client, 8)
    assert all(int(str(row["completionTime"])) > int(time) for time, row in history_rows(store).items())
    silent = with_past(3, since=False)
    upgrade_table(over(silent).client, 8)
    times = [(time, str(row["completionTime"])) for time, row in sorted(history_rows(silent).items())]
    flat = [each for pair in times for each in pair]
    assert flat == sorted(set(flat))


def test_what_is_archived_and_still_active_counts_once_and_the_active_one_is_kept() -> None:
    store = with_past(2, keep=True)
    seen = known(over(store))
    assert upgrade_table(over(store).client, 8).history == ()
    assert known(over(store)) == seen
    assert not list(store.list(HISTORY))


def test_what_was_archived_twice_counts_once() -> None:
    store = with_past(2)
    store.put(OLD_ARCHIVE.replace(".1_", ".2_"), store.read(OLD_ARCHIVE))
    (part,) = upgrade_table(over(store).client, 8).history
    assert len(part.instants) == 2


def appended(store: MemoryStore, *entries: dict[str, object]) -> None:
    store.put(OLD_ARCHIVE, pack_entries(entries, real_entry_schema()) + store.read(OLD_ARCHIVE))


def test_entries_of_every_kind_come_over() -> None:
    store = with_past(1)
    plan = decode_body(BodyKind.COMPACTION_PLAN, (VECTORS / "v6-0.15.0-compaction-requested.avro").read_bytes())
    clean = decode_body(BodyKind.CLEAN_METADATA, (VECTORS / "v6-0.15.0-clean-completed.avro").read_bytes())
    commit = {"partitionToWriteStats": {}, "extraMetadata": {"schema": "{}"}, "operationType": "COMPACT"}
    appended(
        store,
        {**entry("20200101000000000", "compaction", "REQUESTED"), "hoodieCompactionPlan": plan},
        entry("20200101000000000", "compaction", "INFLIGHT"),
        entry("20200101000000000", "commit", "COMPLETED", commit),
        {
            **entry("20200102000000000", "clean", "COMPLETED"),
            "hoodieCommitMetadata": None,
            "hoodieCleanMetadata": clean,
        },
        {**entry("20200103000000000", "commit", "COMPLETED", commit), "actionState": None},
        entry("20200104000000", "commit", "COMPLETED", None),
        entry("20200105000000000", "commit", "INFLIGHT"),
        entry("20200106000000000", "dance", "COMPLETED"),
    )
    upgrade_table(over(store).client, 8)
    found = history_rows(store)
    old = {time[:8]: row for time, row in found.items() if time < "2021"}
    assert list(old) == ["20200101", "20200102", "20200103", "20200104"]
    compaction = old["20200101"]
    assert compaction["action"] == "commit"
    assert decode_body(BodyKind.COMPACTION_PLAN, compaction["plan"]) == plan  # type: ignore[arg-type]
    assert decode_body(BodyKind.COMMIT, compaction["metadata"])["operationType"] == "COMPACT"  # type: ignore[arg-type]
    assert decode_body(BodyKind.CLEAN_METADATA, old["20200102"]["metadata"]) == clean  # type: ignore[arg-type]
    # An instant whose file was empty stays one without a body, as Hudi has it.
    assert (old["20200104"]["metadata"], old["20200103"]["plan"]) == (None, None)


def test_an_archived_instant_that_seems_pending_is_no_case_for_a_roll_back() -> None:
    store = with_past(2, keep=True)
    completed = min(o.name for o in store.list(".hoodie", recursive=False) if o.name.endswith(".commit"))
    store.delete([completed])
    before = {o.name: store.read(o.name) for o in store.list("")}
    with pytest.raises(StateError, match="is archived and its pending files"):
        upgrade_table(over(store).client, 8)
    assert {o.name: store.read(o.name) for o in store.list("")} == before


@pytest.mark.parametrize(
    ("damage", "story"),
    [
        (lambda raw: raw[:-5], "damaged between"),
        (lambda raw: raw[: len(raw) // 2], "damaged between"),
        (lambda raw: b"no archive", "damaged between"),
        (lambda raw: pack_entries([{**entry("20200101000000000", "commit", "COMPLETED"), "stateTransitionTime": "soon"}], real_entry_schema()) + raw, "no instant time"),
        (lambda raw: pack_entries([{**entry("20200101000000000", "commit", "COMPLETED"), "stateTransitionTime": "20209999000000000"}], real_entry_schema()) + raw, "no instant time"),
    ],
)  # fmt: skip
def test_a_damaged_archive_stops_an_upgrade_before_anything_changes(damage, story) -> None:  # type: ignore[no-untyped-def]
    store = with_past(2)
    store.put(OLD_ARCHIVE, damage(store.read(OLD_ARCHIVE)))
    before = {o.name: store.read(o.name) for o in store.list("")}
    with pytest.raises(CorruptFile, match=story):
        upgrade_table(over(store).client, 9)
    assert {o.name: store.read(o.name) for o in store.list("")} == before


def test_an_archive_that_changes_meanwhile_stops_before_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:

    store = with_past(2)
    real = upgrade._write_history

    def disturbed(services, parts, archive):  # type: ignore[no-untyped-def]
        store.delete([OLD_ARCHIVE])
        return real(services, parts, archive)

    monkeypatch.setattr(upgrade, "_write_history", disturbed)
    with pytest.raises(StateError, match="left the archive"):
        upgrade_table(over(store).client, 8)
    assert over(store).properties.version is TableVersion.SIX


@functools.cache
def repeatable() -> Repeatable:
    made = with_past(3)
    made.put(f"{HISTORY}/_version_", b"7")
    made.put(f"{HISTORY}/manifest_7", b"{}")
    made.put(f"{HISTORY}/20200101000000000_20200102000000000_0.parquet", b"stale")
    return Repeatable(made)


# One process asks all endings: it knows the states that it has checked.
@pytest.mark.xdist_group("upgrade-with-history-dies")
@pytest.mark.parametrize("ending", endings_of_run(), ids=str)
def test_dying_anywhere_keeps_the_past_and_the_next_upgrade_ends_it(ending: Ending) -> None:
    origin = repeatable()
    counted = FaultStore(origin.copy())
    table = origin.table(counted, OPTIONS)
    seen, oldest = (
        known(table),
        min(i.time for i in table.client.at(table.client.load()).with_history().timeline.commits),
    )
    before, past = table.read(), table.read(as_of=oldest)
    upgrade_table(table.client, 8)
    touched = [e.name for e in counted.effects]
    assert f"{HISTORY}/manifest_1" in touched
    assert f"{HISTORY}/_version_" in touched
    call = lambda store: upgrade_table(origin.client(store, OPTIONS), 8)  # noqa: E731
    for left in sweep(origin, call, len(touched), ending, what=lambda left: left.number % 4 == 0):
        store, number, story = left.store, left.number, left.story
        healthy = origin.table(store, OPTIONS, process=1)
        assert known(healthy) == seen, story
        assert same(healthy.read(), before), story
        assert same(healthy.read(as_of=oldest), past), story
        if number % 4 == 0 and healthy.properties.version is TableVersion.SIX:
            # Life goes on: another archiving makes the plan of the dead upgrade a stale one.
            archive_in(store, 1)
            assert known(over(store)) == seen, story
        upgrade_table(healthy.client, 8)
        end = over(store)
        assert end.properties.version is TableVersion.EIGHT, story
        assert known(end) == seen, story
        assert same(end.read(as_of=oldest), past), story
        names = {o.name for o in store.list(".hoodie/timeline")}
        assert not any(name.rpartition("/")[2].startswith(("2020", "manifest_7")) for name in names), story
        timeline = {n for n in names if not n.startswith(HISTORY)}
        assert all(parse_instant_file(n.rpartition("/")[2], 2) is not None for n in timeline), story


def many_archived(count: int) -> MemoryStore:
    """A table of version 6 with `count` made-up instants of long ago in its archive."""
    store = with_past(1)
    commit = {"partitionToWriteStats": {}, "extraMetadata": {"schema": "{}"}, "operationType": "UPSERT"}
    entries = [entry(f"2020{n:013d}"[:4] + "0101" + f"{n:09d}", "commit", "COMPLETED", commit) for n in range(count)]
    blocks = [pack_entries(entries[at : at + 50], real_entry_schema()) for at in range(0, count, 50)]
    store.put(".hoodie/archived/.commits_.archive.0_1-0-1", b"".join(blocks))
    return store


@pytest.mark.parametrize("upgraded", [False, True])
def test_opening_and_reading_cost_the_same_however_long_the_archive_is(upgraded: bool) -> None:
    logs = []
    for count in (50, 1200):
        store = many_archived(count)
        if upgraded:
            plan = upgrade_table(over(store).client, 8)
            assert len(plan.history) == (6 if count == 50 else 4), plan.history
        counting = CountingStore(store)
        table = Table(TableClient(counting))
        table.read()
        logs.append(
            [(one.kind, one.name if "/archived" in one.name or "/history" in one.name else "") for one in counting.log]
        )
    assert logs[0] == logs[1]
    assert not [name for _, name in logs[1] if name]


def test_history_of_the_upgraded_table_is_found_without_the_old_archive() -> None:
    store = with_past(3)
    seen = known(over(store))
    upgrade_table(over(store).client, 8)
    store.delete_tree(".hoodie/archived")
    assert known(over(store)) == seen
    history = HistoryStore(store, HISTORY, 2).load()
    assert all(history.body(instant) for instant in history.instants)


def test_a_body_that_does_not_decode_stops_before_the_switch() -> None:
    store = with_past(2)
    raw = bytearray(store.read(OLD_ARCHIVE))
    raw[raw.rindex(b"UPSERT")] = 0xFF  # the index does not look at it
    store.put(OLD_ARCHIVE, bytes(raw))
    with pytest.raises(CorruptFile):
        upgrade_table(over(store).client, 8)
    assert over(store).properties.version is TableVersion.SIX
