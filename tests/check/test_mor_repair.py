"""Merge-on-read tables are repaired where nothing of their logs can be lost; elsewhere the repair says what to do."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt.filegroups.damage import Kind, RewriteFile
from lakefmt.read.check import check_table
from lakefmt.storage.memory import MemoryStore
from lakefmt.write.repair import repair_table
from tests.check.kit import BLOOM_KEY, Scene, tamper
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
    report = check_table(table.access, "full")
    assert Kind.STUCK_INSTANT in {finding.kind for finding in report.findings}
    done = repair_table(table.access, report.plan, check_table)
    assert {outcome.state for outcome in done.outcomes} <= {"done", "passed"}, str(done)
    assert done.after.is_clean, str(done.after)
    assert_same_multiset(table.read(), before)
    assert not table.access.load().timeline.pending


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_base_file_with_logs_is_not_rewritten(version: int) -> None:
    store, table = make(version)
    before = table.read()
    (piece,) = table.access.slices(table.access.load())
    assert piece.base is not None
    scene = Scene(store.url.removeprefix("memory://"), version)

    def without_filter(found: pa.Table, footers: dict[str, str]) -> pa.Table:
        del footers[BLOOM_KEY]
        return found

    tamper(scene, piece.base.path, without_filter)
    report = check_table(table.access, "full")
    assert any(isinstance(step, RewriteFile) for step in report.plan.steps), str(report)
    done = repair_table(table.access, report.plan, check_table, accept_loss=True)
    assert_same_multiset(table.read(), before)
    assert "compact the table" in str(done)
    table.compact()
    assert check_table(table.access, "fast").plan.steps == ()
    assert_same_multiset(table.read(), before)


def lowlevel_session_dies(context: object) -> None:
    from lakefmt.write.session import find_session

    session = find_session(context)  # type: ignore[arg-type]
    assert session is not None
    session._live.heartbeat.abandon()
