"""Upgrades of merge-on-read tables: compacted first, the same rows before and after, and after dying at any effect."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.upgrade import upgrade_table
from lakefmt._core.values import TableVersion
from lakefmt.errors import LakefmtError, StateError
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at, no_faults
from tests.judges.compare import assert_same_multiset
from tests.upgrade.test_upgrade import NUMBERS, OPTIONS, SCHEMA, UPGRADES, rows


def prepared(version: int) -> MemoryStore:
    """Logs with late rows and deletes, a compaction in between, one that waits, and a log on top."""
    store = MemoryStore(f"upgrade-mor-{next(NUMBERS)}")
    table = lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="mor",
        table_version=version,
        options=OPTIONS,
    )
    table.upsert(rows(0, 6, ts=3))
    table.upsert(rows(0, 3, ts=5))
    table.compact()
    table.upsert(rows(1, 4, ts=4))
    table.delete(["k5"])
    table.compact(schedule=True)
    table.upsert(rows(3, 5, ts=7))
    return store


def copied(source: MemoryStore) -> MemoryStore:
    copy = MemoryStore(f"upgrade-mor-{next(NUMBERS)}")
    for info in source.list():
        copy.put(info.name, source.read(info.name))
    return copy


def open_over(store: object) -> Table:
    return Table(TableClient(store, OPTIONS))  # type: ignore[arg-type]


def dead_write(table: Table) -> None:
    context = lowlevel.begin_write(table, "upsert")
    for assignment, batches in lowlevel.assign(context, rows(0, 6, ts=99)):
        lowlevel.write_files(context, assignment, batches)


@pytest.mark.parametrize(("source", "target"), UPGRADES)
def test_an_upgraded_table_reads_the_same(source: int, target: int) -> None:
    table = open_over(prepared(source))
    before = table.read()
    then = {i.time: table.read(as_of=i.time) for i in table.client.load().timeline.commits}
    changes = table.changes("000").to_pylist()
    assert {each["op"] for each in changes} == {"i", "u", "d"}
    plan = table.upgrade(target, dry_run=True)
    assert plan.logs == sum(len(piece.logs) for piece in table.client.at(table.client.load()).slices()) > 0
    assert f"compact {plan.logs} log files" in str(plan)
    assert "carry out" in str(plan)
    assert table.properties.version is TableVersion.parse(source)
    assert table.upgrade(target).logs == plan.logs
    assert table.properties.version is TableVersion.parse(target)
    assert_same_multiset(table.read(), before)
    assert_same_multiset(table.read(query="read_optimized"), before)
    for time, expected in then.items():
        assert_same_multiset(table.read(as_of=time), expected, what=f"as of {time}")
    assert table.changes("000").to_pylist() == changes
    table.upsert(rows(0, 8, ts=10))
    table.delete(["k7"])
    assert_same_multiset(table.read(), rows(0, 7, ts=10))
    table.compact(verify=True)
    assert_same_multiset(table.read(query="read_optimized"), rows(0, 7, ts=10))


def test_without_a_compaction_it_is_refused() -> None:
    table = open_over(prepared(6))
    with pytest.raises(StateError, match="pending"):
        upgrade_table(table.client, 8, compact=False)
    table.compact()
    table.upsert(rows(0, 1, ts=50))
    with pytest.raises(StateError, match="not compacted"):
        upgrade_table(table.client, 8, compact=False)
    assert table.properties.version is TableVersion.SIX
    table.compact()
    upgrade_table(table.client, 8, compact=False)
    assert table.properties.version is TableVersion.EIGHT


@pytest.mark.parametrize("source", [6, 8])
def test_a_dead_write_is_rolled_back_first(source: int) -> None:
    store = prepared(source)
    before = open_over(store).read()
    dead_write(open_over(store))
    table = open_over(store)
    table.upgrade(9)
    assert_same_multiset(table.read(), before)
    assert not table.client.load().timeline.pending
    assert {i.action for i in table.client.load().timeline.completed} >= {Action.ROLLBACK}


@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER])
def test_dying_anywhere(mode: FaultMode) -> None:
    made = prepared(6)
    counted = FaultStore(copied(made), no_faults)
    before = open_over(counted).read()
    open_over(counted).upgrade(9)
    assert len(counted.effects) > 40
    for n in range(1 + (mode is FaultMode.AFTER), len(counted.effects) + 1, 2):
        store = copied(made)
        dying = Table(TableClient(FaultStore(store, fail_at(n, mode)), {**OPTIONS, "lakefmt.write.threads": 1}))
        with contextlib.suppress(SimulatedCrash, LakefmtError):
            dying.upgrade(9)
        table = open_over(store)
        assert_same_multiset(table.read(), before, what=f"effect {n}")
        table.upgrade(9)
        assert table.properties.version is TableVersion.NINE
        assert_same_multiset(open_over(store).read(), before, what=f"effect {n}, upgraded")


@pytest.mark.parametrize("restores", [True, False])
@pytest.mark.parametrize(("source", "target"), UPGRADES)
def test_what_was_taken_back_after_an_upgrade_stays_away_when_it_is_archived(
    source: int, target: int, restores: bool
) -> None:
    """Logs of version 6 are named by their slice: those of an undone commit go, else an archived commit counts again."""
    table = lakefmt.create_table(
        f"memory://upgrade-mor-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="mor",
        table_version=source,
        options={**OPTIONS, "hoodie.archive.automatic": False},
    )
    table.upsert(rows(0, 6, ts=3))
    kept = table.upsert(rows(0, 2, ts=5)).instant
    before = table.read()
    table.delete(["k0", "k3"])
    table.upsert(rows(2, 6, ts=7))
    table.upgrade(target)
    if restores:
        table.restore(kept)
    else:
        compacted, *commits = [i.time for i in reversed(table.client.load().timeline.commits) if i.time > kept]
        table.rollback(compacted)
        table.rollback(compacted, withdraw=True)
        for instant in commits:
            table.rollback(instant)
    assert_same_multiset(table.read(), before)
    elsewhere = rows(0, 1, ts=9).set_column(SCHEMA.get_field_index("city"), "city", pa.array(["elsewhere"]))
    for _ in range(5):
        table.insert(elsewhere)
    table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    assert min(i.time for i in table.client.load().timeline.commits) > kept
    assert_same_multiset(table.read(filter="city <> 'elsewhere'"), before)
