"""Merge-on-read tables are repaired where nothing of their logs can be lost; elsewhere the repair says what to do."""

from __future__ import annotations

import contextlib
import itertools

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.check.findings import Kind, RewriteFile
from lakefmt._core.check.repair import repair_table
from lakefmt._core.check.run import check_table
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import LakefmtError
from lakefmt.testing.stores import SimulatedCrash, fail_at, no_faults
from tests.check.kit import BLOOM_KEY, Scene, tamper, with_column
from tests.check.mor_kit import mor_scene
from tests.check.test_repair_dies import ENDINGS
from tests.example_counts import in_turn
from tests.judges.compare import assert_same_multiset

NUMBERS = itertools.count()
DEAD: dict[str, object] = {"lakefmt.durability": "none", "hoodie.client.heartbeat.tolerable.misses": 0}


def rows(ts: int, *keys: str) -> pa.Table:
    return pa.table({"id": [*keys], "ts": [ts] * len(keys)})


def make(version: int) -> tuple[MemoryStore, lakefmt.Table]:
    store = MemoryStore(f"mor-repair-{next(NUMBERS)}")
    table = lakefmt.create_table(
        store.url,
        data=rows(1, "a"),
        record_key="id",
        ordering="ts",
        table_type="mor",
        table_version=version,
        options=DEAD,
    )
    table.upsert(rows(1, "a", "b", "c"))
    table.upsert(rows(2, "a"))
    return store, table


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_dead_deltacommit_is_rolled_back(version: int) -> None:
    _, table = make(version)
    before = table.read()
    context = lowlevel.begin_write(table, "upsert")
    for assignment, batches in lowlevel.assign(context, rows(9, "a", "b")):
        lowlevel.write_files(context, assignment, batches)
    lowlevel_session_dies(context)
    report = check_table(table.client, "full")
    assert Kind.STUCK_INSTANT in {finding.kind for finding in report.findings}
    done = repair_table(table.client, report.plan, check_table)
    assert {outcome.state for outcome in done.outcomes} <= {"done", "passed"}, str(done)
    assert done.after.is_clean, str(done.after)
    assert_same_multiset(table.read(), before)
    assert not table.client.load().timeline.pending


def without_filter(found: pa.Table, footers: dict[str, str]) -> pa.Table:
    del footers[BLOOM_KEY]
    return found


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_base_file_with_logs_is_rewritten_with_its_logs(version: int) -> None:
    store, table = make(version)
    before = table.read()
    (piece,) = table.client.at(table.client.load()).slices()
    assert piece.base is not None
    scene = Scene(store.url.removeprefix("memory://"), version)
    tamper(scene, piece.base.path, without_filter)
    report = check_table(table.client, "full")
    assert any(isinstance(step, RewriteFile) for step in report.plan.steps), str(report)
    assert "by compaction, with its logs" in str(report.plan)
    done = repair_table(table.client, report.plan, check_table)
    assert [outcome.state for outcome in done.outcomes] == ["done"], str(done)
    assert done.is_clean, str(done)
    assert_same_multiset(table.read(), before)
    assert_same_multiset(table.read(query="read_optimized"), before)


@pytest.mark.parametrize("version", [6, 8])
def test_what_compaction_does_not_mend_is_in_the_next_plan(version: int) -> None:
    """Rows of another partition: their group is merged first, then they move; a group without logs is mended at once."""
    scene = mor_scene(version)
    before = scene.open().read()
    file = next(p.base for p in scene.open().file_groups() if p.base is not None and p.partition == "city=oslo")
    other = next(p.base for p in scene.open().file_groups() if p.base is not None and p.partition == "city=sf")
    tamper(scene, other.path, without_filter)
    tamper(scene, file.path, lambda found, _: with_column(found, "city", ["sf"] * found.num_rows))
    seen = scene.open().read()
    client = scene.open().client
    done = repair_table(client, check_table(client, "full").plan, check_table, accept_loss=True)
    assert {outcome.state for outcome in done.outcomes} == {"done", "passed"}, str(done)
    assert_same_multiset(scene.open().read(), seen)
    assert {finding.kind for finding in done.after.findings} == {Kind.WRONG_PARTITION}, str(done)
    assert {p.partition for p in scene.open().file_groups() if p.logs} == {"city=são paulo"}, "others are left alone"
    done = repair_table(client, done.after.plan, check_table, accept_loss=True)
    assert done.is_clean, str(done)
    assert_same_multiset(scene.open().read().select(["id"]), before.select(["id"]))


def test_what_a_pending_service_holds_is_passed_over() -> None:
    store, table = make(8)
    before = table.read()
    (piece,) = table.client.at(table.client.load()).slices()
    assert piece.base is not None
    tamper(Scene(store.url.removeprefix("memory://"), 8), piece.base.path, without_filter)
    report = check_table(table.client, "full")
    table.compact(schedule=True)
    done = repair_table(table.client, report.plan, check_table)
    assert [outcome.state for outcome in done.outcomes] == ["passed"], str(done)
    assert done.is_clean, "the compaction that waited was carried out first"
    assert_same_multiset(table.read(), before)


@pytest.mark.parametrize("version", [6, 8])
def test_a_damaged_base_file_with_logs_is_not_given_up(version: int) -> None:
    """Its logs hold rows that could be had again with a good copy of it."""
    scene = mor_scene(version)
    path = next(piece.base.path for piece in scene.open().file_groups() if piece.base is not None and piece.logs)
    good = scene.store.read(path)
    before = scene.open().read()
    scene.store.put(path, good[: len(good) // 2])
    client = scene.open().client
    done = repair_table(client, check_table(client, "full").plan, check_table, accept_loss=True)
    assert {outcome.state for outcome in done.outcomes} == {"failed"}, str(done)
    assert "put a good copy back" in str(done)
    scene.store.put(path, good)
    assert_same_multiset(scene.open().read(), before)
    assert check_table(scene.open().client, "full").is_clean


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8])
def test_dying_anywhere_while_it_merges(version: int) -> None:
    scene = mor_scene(version)
    path = next(piece.base.path for piece in scene.open().file_groups() if piece.base is not None and piece.logs)
    tamper(scene, path, without_filter)
    before, objects = scene.open().read(), scene.listed()
    client, counting = scene.over(no_faults)
    plan = check_table(client, "full").plan
    assert repair_table(client, plan, check_table).is_clean
    for number in in_turn(range(1, len(counting.effects) + 1), 3):
        mode, crash = ENDINGS[number % len(ENDINGS)]
        faulty, _ = scene.put_back(objects).over(fail_at(number, mode, crash=crash))
        with contextlib.suppress(SimulatedCrash, LakefmtError):
            repair_table(faulty, plan, check_table)
        assert_same_multiset(scene.open().read(), before, what=f"effect {number}")
        client = scene.open().client
        repair_table(client, plan, check_table)
        # What the dead one planned is a compaction that waits.
        scene.open().compact()
        left = check_table(client, "full")
        assert repair_table(client, left.plan, check_table).is_clean, f"effect {number}: {left}"
        assert_same_multiset(scene.open().read(), before, what=f"effect {number}")


def lowlevel_session_dies(context: object) -> None:
    from lakefmt._core.write.transaction import find_transaction

    transaction = find_transaction(context)  # type: ignore[arg-type]
    assert transaction is not None
    transaction._abandon()
