"""Every effect of every verb, ended in every way: the state before or after, the next write works, no orphan."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import LakefmtError
from lakefmt.filegroups.access import TableAccess
from lakefmt.storage.memory import MemoryStore
from lakefmt.table import Table
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
NUMBERS = itertools.count()
OPTIONS = {"lakefmt.write.threads": 1, "lakefmt.durability": "none", "hoodie.client.heartbeat.tolerable.misses": 0}

VERBS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows(3, 9, ts=2)),
    "insert": lambda t: t.insert(rows(20, 24, ts=2)),
    "bulk_insert": lambda t: t.bulk_insert(rows(20, 24, ts=2)),
    "delete": lambda t: t.delete(["k1", "k2"]),
    "insert_overwrite": lambda t: t.insert_overwrite(rows(0, 2, ts=5)),
    "delete_partitions": lambda t: t.delete_partitions(["city=oslo"]),
    "rollback": lambda t: t.rollback(t.timeline.entries[-1].time),
}


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {"id": [f"k{n}" for n in numbers], "city": [("sf", "oslo")[n % 2] for n in numbers], "ts": [ts] * len(numbers)},
        schema=SCHEMA,
    )


def prepared() -> str:
    """A table with two commits in a fresh memory store; returns the store's name."""
    name = f"effects-{next(NUMBERS)}"
    table = lakefmt.create_table(
        f"memory://{name}", schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", options=OPTIONS
    )
    table.upsert(rows(0, 4, ts=1))
    table.upsert(rows(2, 6, ts=1))
    return name


def over(name: str, plan=None) -> tuple[Table, FaultStore]:  # type: ignore[no-untyped-def]
    store = FaultStore(MemoryStore(name)) if plan is None else FaultStore(MemoryStore(name), plan)
    return Table(TableAccess(store, OPTIONS)), store


def effects_of(verb: str) -> int:
    table, store = over(prepared())
    VERBS[verb](table)
    return len(store.effects)


def same(left: pa.Table, right: pa.Table) -> bool:
    return not multiset_difference(left, right)


#: A lost answer or request is told to a living process; everything else may also kill it.
ENDINGS = [
    *((mode, False) for mode in FaultMode),
    *((mode, True) for mode in FaultMode if mode not in (FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST)),
]


@pytest.mark.parametrize(("mode", "crash"), ENDINGS, ids=[f"{m.value}-{'dies' if c else 'error'}" for m, c in ENDINGS])
@pytest.mark.parametrize("verb", list(VERBS))
def test_before_or_after_and_no_orphan(verb: str, mode: FaultMode, crash: bool) -> None:
    name = prepared()
    reference, _ = over(name)
    before = reference.read()
    VERBS[verb](reference)
    after = reference.read()
    for n in range(1, effects_of(verb) + 1):
        name = prepared()
        table, store = over(name, fail_at(n, mode, crash=crash))
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            VERBS[verb](table)
        story = (
            f"{verb}, effect {n} ({store.effects[n - 1] if len(store.effects) >= n else 'not reached'}), {mode.value}"
        )
        healthy, _ = over(name)
        found = healthy.read()
        assert same(found, before) or same(found, after), story
        again = healthy.upsert(rows(0, 30, ts=9))
        assert again.instant is not None, story
        assert same(healthy.read(), rows(0, 30, ts=9)), story
        check_invariants(healthy)
        _no_orphan(healthy, name, story)


def _no_orphan(table: Table, name: str, story: str) -> None:
    state = table.access.load()
    committed = {s.path for i in state.timeline.commits for s in table.access.commit_metadata(state, i).stats}
    names = {item.name for item in MemoryStore(name).list()}
    data = {n for n in names if not n.startswith(".hoodie/") and not n.endswith(".hoodie_partition_metadata")}
    assert data <= committed, f"{story}: orphans {data - committed}"
    assert not {n for n in names if n.startswith((".hoodie/.temp/", ".hoodie/.heartbeat/"))}, story
    assert not state.timeline.pending, story
