"""A write that one process begins and another one ends: dead at every effect of either, it is before or after.

Beside the data, nothing of the write is left once the next writer has run: no saved write, no claim, no marker.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from dataclasses import dataclass

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.markers import SAVED_WRITES, saved_write_name
from lakefmt._core.values import WriteOperation
from lakefmt._core.write import transaction as saved_transaction
from lakefmt._core.write.context import WriteRequest
from lakefmt._core.write.files.base_file import write_assigned
from lakefmt._core.write.files.bundles import route
from lakefmt._core.write.transaction import abort_context, begin_saved, resume_transaction
from lakefmt.errors import InstantNotPending
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import FaultStore
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import DIES, Ending, endings_of_run, sweep
from tests.kit import SCHEMA, product_or_diagonal, rows

NUMBERS = itertools.count()
#: A heartbeat that is not renewed at once counts as dead: whoever comes next takes it over.
OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.client.heartbeat.tolerable.misses": 0,
}


BEFORE, CHANGES = rows(0, 4, ts=1), rows(2, 6, ts=2)
AFTER = pa.concat_tables([rows(0, 2, ts=1), CHANGES])


@dataclass
class Pending:
    """What the process that began hands on."""

    context: lowlevel.WriteContext
    statuses: list[lowlevel.WriteStatus]


@functools.cache
def made(table_type: str) -> Repeatable:
    store = MemoryStore(f"saved-{next(NUMBERS)}")
    table = lakefmt.create_table(
        store.url, schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", table_type=table_type,
        options=OPTIONS,
    )  # fmt: skip
    table.upsert(BEFORE)
    return Repeatable(store)


@functools.cache
def begun(table_type: str) -> tuple[Repeatable, Pending]:
    """A table with a write that one process has begun and written."""
    store = made(table_type).copy()
    pending = begin_and_write(made(table_type).client(store, OPTIONS))
    return Repeatable(store), pending


def begin_and_write(client: TableClient) -> Pending:
    """What the first process does: it begins, assigns and writes."""
    saved_transaction._running_transactions.clear()  # every process has its own
    transaction = begin_saved(client, WriteRequest(WriteOperation.UPSERT, OPTIONS), SCHEMA)
    placed = transaction.place(transaction.locate(transaction.key(CHANGES)))
    written = [write_assigned(transaction.bound, a.assignment, [route(placed.batch, a)]) for a in placed.assigned]
    return Pending(lowlevel.WriteContext.from_json(transaction.context.to_json()), written)


def commit_elsewhere(client: TableClient, pending: Pending) -> None:
    saved_transaction._running_transactions.clear()
    resume_transaction(client, pending.context).commit(pending.statuses)


def same(found: pa.Table, expected: pa.Table) -> bool:
    return not multiset_difference(found.select(SCHEMA.names), expected)


def check_nothing_left(origin: Repeatable, store: MemoryStore, story: str) -> None:
    """The next write succeeds, and nothing of the dead one is left."""
    saved_transaction._running_transactions.clear()
    healthy = origin.table(store, OPTIONS, process=3)
    assert healthy.upsert(rows(0, 8, ts=9)).instant is not None, story
    assert same(healthy.read(), rows(0, 8, ts=9)), story
    left = [item.name for item in (*store.list(SAVED_WRITES), *store.list(".hoodie/.heartbeat"))]
    assert not left, f"{story}: {left}"
    check_invariants(healthy)
    check_no_orphans(healthy)


@functools.cache
def effects_of(table_type: str) -> tuple[int, int]:
    """Return how many effects beginning and writing has, and ending it elsewhere."""
    origin = made(table_type)
    store = origin.copy()
    first, second = FaultStore(store), FaultStore(store)
    commit_elsewhere(origin.client(second, OPTIONS, process=1), begin_and_write(origin.client(first, OPTIONS)))
    return len(first.effects), len(second.effects)


#: One process asks all endings of a table type: it knows the states that it has checked.
TABLE_TYPES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"saved-writes-{kind}")) for kind in ("cow", "mor")]


@pytest.mark.slow
@product_or_diagonal(table_type=TABLE_TYPES, ending=endings_of_run(also=[DIES]))
def test_the_process_that_begins_dies(table_type: str, ending: Ending) -> None:
    origin, (effects, _) = made(table_type), effects_of(table_type)
    call = lambda store: begin_and_write(origin.client(store, OPTIONS))  # noqa: E731
    for left in sweep(origin, call, effects, ending, what=lambda left: left.result):
        store, pending, story = left.store, left.result, left.story
        if pending is not None:  # it met a failure and went on
            commit_elsewhere(origin.client(store, OPTIONS, process=1), pending)
        assert same(Table(TableClient(store, OPTIONS)).read(), BEFORE if pending is None else AFTER), story
        check_nothing_left(origin, store, story)


@pytest.mark.slow
@product_or_diagonal(table_type=TABLE_TYPES, ending=endings_of_run(also=[DIES]), then=["nothing", "abort", "commit"])
def test_the_process_that_commits_dies(table_type: str, ending: Ending, then: str) -> None:
    (origin, pending), (_, effects) = begun(table_type), effects_of(table_type)
    call = lambda store: commit_elsewhere(origin.client(store, OPTIONS, process=1), pending)  # noqa: E731
    for left in sweep(origin, call, effects, ending, what=lambda left: then):
        store, story = left.store, f"{left.story}, then {then}"
        committed = same(Table(TableClient(store, OPTIONS)).read(), AFTER)
        third = origin.client(store, OPTIONS, process=2)
        if then == "commit":
            with contextlib.suppress(InstantNotPending) if committed else contextlib.nullcontext():
                commit_elsewhere(third, pending)
            committed = True
        elif then == "abort":
            saved_transaction._running_transactions.clear()
            abort_context(third, pending.context)
        assert same(Table(TableClient(store, OPTIONS)).read(), AFTER if committed else BEFORE), story
        check_nothing_left(origin, store, story)


def test_a_saved_write_that_is_left_would_be_seen() -> None:
    origin = made("cow")
    store = origin.copy()
    store.put(saved_write_name(lakefmt._core.values.InstantTime("20990101000000000")), b"{}")
    with pytest.raises(AssertionError, match=r"20990101000000000\.json"):
        check_nothing_left(origin, store, "sabotaged")
