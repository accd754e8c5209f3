"""Writes that were undone while their writer was only slow: nothing of theirs stays, and they are not committed."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.locks.local import held_lock_scope
from lakefmt._core.timeline.markers import remove_markers
from lakefmt._core.transactions.client import open_write_client
from lakefmt._core.transactions.recovery import undo_dead_writes
from lakefmt._core.values import WriteOperation
from lakefmt._core.write import transaction
from lakefmt._core.write.commit.transaction import concurrency_of
from lakefmt._core.write.context import WriteRequest
from lakefmt._core.write.transaction import WriteTransaction, begin_saved
from lakefmt.errors import InstantNotPending, LeaseLost, StorageError
from lakefmt.testing.invariants import check_no_orphans
from tests.concurrency.green_threads import MANY

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
ROWS = pa.table({"id": ["a"], "n": [1]}, schema=SCHEMA)


class Patient(SystemTimeSource):
    """Does not wait, and remembers for how long it would have."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def make() -> Table:
    store = MemoryStore(f"undone-{next(NUMBERS)}")
    return lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", options=MANY)


def begin(table: Table, time_source: Patient) -> WriteTransaction:
    client = TableClient(table.client.store, MANY, time_source=time_source)
    return begin_saved(client, WriteRequest(WriteOperation.UPSERT), SCHEMA)


def write(writing: WriteTransaction) -> None:
    for assignment, batches in lowlevel.assign(writing.context, ROWS):
        lowlevel.write_files(writing.context, assignment, batches)


def test_a_write_that_lost_its_turn_is_undone_under_a_lock_of_its_own() -> None:
    class Lost:
        token = "t"

        def check(self) -> None:
            raise LeaseLost("it is somebody else's")

    table = make()
    with held_lock_scope(table.client.store.url) as turn:
        writing = begin(table, Patient())
        write(writing)
        turn.lease = Lost()
        with pytest.raises(KeyError), writing.aborted_on_error():
            raise KeyError("what the caller is told")
    assert table.client.load().timeline.pending == ()
    check_no_orphans(table)


@pytest.mark.parametrize(("failures", "left"), [(1, 0), (3, 0), (4, 1)])
def test_a_write_is_undone_when_the_store_answers_again(failures: int, left: int, monkeypatch) -> None:
    table, time_source, real = make(), Patient(), transaction.abort_instant
    failed: list[int] = []

    def flaky(*given, **named):
        if len(failed) < failures:
            failed.append(1)
            raise StorageError("no answer", transient=True)
        return real(*given, **named)

    monkeypatch.setattr(transaction, "abort_instant", flaky)
    writing = begin(table, time_source)
    write(writing)
    with pytest.raises(KeyError), writing.aborted_on_error():
        raise KeyError("what the caller is told")
    assert time_source.waits == [0.05, 0.2, 0.5][:failures]
    assert len(table.client.load().timeline.pending) == left


def test_an_inflight_file_that_came_after_its_rollback_is_no_pending_write() -> None:
    table = make()
    context = lowlevel.begin_write(table)
    statuses = [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, ROWS)]
    store, pending = table.client.store, table.client.load().timeline
    (requested,) = (f.file_name for f in pending.files_of(pending.pending[0]) if f.state.name == "REQUESTED")
    store.delete([f".hoodie/timeline/{requested}"])
    remove_markers(store, context.instant)
    with pytest.raises(InstantNotPending):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    assert table.client.load().timeline.pending == ()
    check_no_orphans(table)


@pytest.mark.parametrize("good", [0, 1, 2])
def test_whoever_undoes_others_proves_the_lock_before_each(good: int) -> None:
    """Who slept may see a write as pending that has completed by now, and would delete its files (seed 7145)."""

    class Slipping:
        checks = 0

        def check(self) -> None:
            self.checks += 1
            if self.checks > 2 * good:  # each rollback proves it before its plan and before its first delete
                raise LeaseLost("it is somebody else's")

    table = make()
    for _ in range(2):
        begin(table, Patient())._abandon()
    first, second = [instant.time for instant in table.client.load().timeline.pending]
    options = {**MANY, "hoodie.client.heartbeat.tolerable.misses": 0}
    services = open_write_client(TableClient(MemoryStore(table.client.store.url.removeprefix("memory://")), options))
    config, lease = services.client.load_config(), Slipping()
    rules = concurrency_of(services)
    if good < 2:
        with pytest.raises(LeaseLost):
            undo_dead_writes(services, config, rules, lease)
    else:
        undo_dead_writes(services, config, rules, lease)
    left = {instant.time for instant in services.timeline(config).load().pending}
    assert left == {0: {first, second}, 1: {second}, 2: set()}[good]
    undone = [i for i in services.timeline(config).load().completed if i.action is Action.ROLLBACK]
    assert len(undone) == good
