"""Writes that were undone while their writer was only slow: nothing of theirs stays, and they are not committed."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import lakefmt
import lakefmt.write.session as session
from lakefmt import lowlevel
from lakefmt.errors import InstantNotPending, LeaseLost, StorageError
from lakefmt.filegroups.access import TableAccess
from lakefmt.storage.memory import MemoryStore
from lakefmt.storage.pacing import SystemPacing
from lakefmt.table import Table
from lakefmt.testing.invariants import check_no_orphans
from lakefmt.timeline.lock_turn import turn_at
from lakefmt.timeline.markers import remove_markers
from lakefmt.values import WriteOperation
from lakefmt.write.request import WriteRequest
from tests.concurrency.turns import MANY

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
ROWS = pa.table({"id": ["a"], "n": [1]}, schema=SCHEMA)


class Patient(SystemPacing):
    """Does not wait, and remembers for how long it would have."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def make() -> Table:
    store = MemoryStore(f"undone-{next(NUMBERS)}")
    return lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", options=MANY)


def begin(table: Table, pacing: Patient) -> session.WriteSession:
    access = TableAccess(table.access.store, MANY, pacing=pacing)
    return session.WriteSession.begin(access, WriteRequest(WriteOperation.UPSERT), SCHEMA)


def write(writing: session.WriteSession) -> None:
    for assignment, batches in writing.assign(ROWS):
        lowlevel.write_files(writing.context, assignment, batches)


def test_a_write_that_lost_its_turn_is_undone_under_a_lock_of_its_own() -> None:
    class Lost:
        token = "t"

        def check(self) -> None:
            raise LeaseLost("it is somebody else's")

    table = make()
    with turn_at(table.access.store.url) as turn:
        writing = begin(table, Patient())
        write(writing)
        turn._lease = Lost()
        with pytest.raises(KeyError), writing.undone_on_error():
            raise KeyError("what the caller is told")
    assert table.access.load().timeline.pending == ()
    check_no_orphans(table)


@pytest.mark.parametrize(("failures", "left"), [(1, 0), (3, 0), (4, 1)])
def test_a_write_is_undone_when_the_store_answers_again(failures: int, left: int, monkeypatch) -> None:
    table, pacing, real = make(), Patient(), session.abort_write
    failed: list[int] = []

    def flaky(*given):
        if len(failed) < failures:
            failed.append(1)
            raise StorageError("no answer", transient=True)
        return real(*given)

    monkeypatch.setattr(session, "abort_write", flaky)
    writing = begin(table, pacing)
    write(writing)
    with pytest.raises(KeyError), writing.undone_on_error():
        raise KeyError("what the caller is told")
    assert pacing.waits == [0.05, 0.2, 0.5][:failures]
    assert len(table.access.load().timeline.pending) == left


def test_an_inflight_file_that_came_after_its_rollback_is_no_pending_write() -> None:
    table = make()
    context = lowlevel.begin_write(table)
    statuses = [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, ROWS)]
    store, pending = table.access.store, table.access.load().timeline
    (requested,) = (f.file_name for f in pending.files_of(pending.pending[0]) if f.state.name == "REQUESTED")
    store.delete([f".hoodie/timeline/{requested}"])
    remove_markers(store, context.instant)
    with pytest.raises(InstantNotPending):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    assert table.access.load().timeline.pending == ()
    check_no_orphans(table)
