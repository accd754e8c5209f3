"""Who lost often takes its turn: a bound on lost attempts, who holds the lock meanwhile, and when there is no turn."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt._core.write.transaction as transaction
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.table import Table
from lakefmt._core.timeline.locks.local import (
    HeldLock,
    InProcessLock,
    _Queue,
    _Ticket,
    expires_after,
    held_lock_of,
    held_lock_scope,
)
from lakefmt._core.write.commit.retry import retried
from lakefmt.errors import CommitConflict, LeaseLost, LockUnavailable
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.virtual_time import Process, RequestStore
from tests.concurrency.green_threads import MANY
from tests.example_counts import examples
from tests.simulation.green_clock import GreenletClock

NUMBERS = itertools.count()
TURN = "lakefmt.write.turn.after.conflicts"
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def rows(writer: int, number: int) -> pa.Table:
    return pa.table({"id": [f"w{writer}"], "n": [number]}, schema=SCHEMA)


def make(**options: object) -> Table:
    store = MemoryStore(f"losers-{next(NUMBERS)}")
    return lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", options={**MANY, **options})


class Counted(Process):
    """A process that says how often it began each of its calls."""

    def __init__(self, time: GreenletClock, number: int) -> None:
        super().__init__(time, number, latency=0.02)
        self.begun: list[int] = []


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> None:
    real = transaction.begin_instant

    def begin(client: TableClient, *given: Any, **named: Any) -> Any:
        if isinstance(client.time_source, Counted):
            client.time_source.begun[-1] += 1
        return real(client, *given, **named)

    monkeypatch.setattr(transaction, "begin_instant", begin)


def contend(writers: int, calls: int, lock: str, **options: object) -> list[int]:
    """Let writers change one file group; return how often each call was begun."""
    table, time = make(), GreenletClock()
    table.upsert(pa.concat_tables([rows(n, 0) for n in range(writers)]))
    said = {**MANY, "hoodie.clean.automatic": False, "hoodie.write.lock.provider": lock, **options}
    processes = [Counted(time, n) for n in range(writers)]
    tables = [Table(TableClient(RequestStore(table.client.store, p), said, time_source=p)) for p in processes]

    def work(writer: int) -> None:
        for number in range(calls):
            processes[writer].begun.append(0)
            tables[writer].upsert(rows(writer, number + 1))

    time.run([lambda n=n: work(n) for n in range(writers)])
    assert sorted(table.read()["n"].to_pylist()) == [calls] * writers, "a write was lost"
    check_invariants(table)
    check_no_orphans(table)
    return [count for process in processes for count in process.begun]


@pytest.mark.parametrize("lock", ["StorageBasedLockProvider", "FileSystemBasedLockProvider"])
@pytest.mark.parametrize("after", [1, 2])
def test_no_write_loses_more_often_than_it_has_to(lock: str, after: int, begins: None) -> None:
    assert max(contend(5, 2, lock, **{TURN: after})) <= 1 + after


def test_without_turns_some_write_loses_more_often(begins: None) -> None:
    assert max(contend(6, 2, "FileSystemBasedLockProvider", **{TURN: 0})) > 3


def test_looking_early_does_not_break_the_bound(begins: None) -> None:
    early = {"hoodie.write.concurrency.early.conflict.detection.enable": True, TURN: 1}
    assert max(contend(4, 2, "FileSystemBasedLockProvider", **early)) <= 2


# --- who holds the lock -----------------------------------------------------------------------------------------------


class Beaten:
    """A write whose first attempts lose; what its turn looks like from inside."""

    def __init__(self, table: Table, losses: int, time_source: Any = None, **options: object) -> None:
        self.client = TableClient(
            table.client.store, {**MANY, TURN: 1, **options}, time_source=time_source or SystemTimeSource()
        )
        self.table = table
        self.losses = losses
        self.leases: list[object] = []
        self.partition_changed: list[object] = []
        self.began: Callable[[], None] = lambda: None

    def run(self) -> Any:
        from lakefmt._core.values import WriteOperation
        from lakefmt._core.write.context import WriteRequest
        from lakefmt._core.write.transaction import begin_saved

        request = WriteRequest(WriteOperation.UPSERT)

        def attempt() -> Any:
            turn = held_lock_of(self.client.store.url)
            assert turn is not None
            self.leases.append(turn.lease)
            thread = threading.Thread(target=lambda: self.partition_changed.append(held_lock_of(self.client.store.url)))
            thread.start()
            thread.join()
            writing = begin_saved(self.client, request, SCHEMA)
            self.began()
            with writing.aborted_on_error():
                statuses = [
                    lowlevel.write_files(writing.context, a, b)
                    for a, b in lowlevel.assign(writing.context, rows(0, len(self.leases)))
                ]
                if len(self.leases) <= self.losses:
                    self.table.upsert(rows(0, 90 + len(self.leases)))
                return writing.commit(statuses)

        return retried(self.client, request, attempt)


def test_the_lock_is_kept_from_the_conflict_on_and_given_back_after_the_commit() -> None:
    table = make()
    table.upsert(rows(0, 0))
    beaten = Beaten(table, losses=1)
    beaten.run()
    assert [lease is not None for lease in beaten.leases] == [False, True]
    assert beaten.partition_changed == [None, None], "a thread beside the write does not hold its lock"
    assert held_lock_of(table.client.store.url) is None
    table.upsert(rows(0, 7), options={"hoodie.write.lock.wait_time_ms": 0})
    assert table.read()["n"].to_pylist() == [7]
    check_no_orphans(table)


def test_whoever_asks_for_the_lock_in_a_turn_waits() -> None:
    table = make()
    table.upsert(rows(0, 0))
    beaten = Beaten(table, losses=2)  # the rival of its second attempt meets the turn
    refused: list[BaseException] = []
    real = table.upsert

    def meet(data: pa.Table) -> Any:
        if len(beaten.leases) == 1:
            return real(data)

        def rival() -> None:
            try:
                Table(TableClient(table.client.store, {**MANY, "hoodie.write.lock.wait_time_ms": 1})).upsert(data)
            except LockUnavailable as error:
                refused.append(error)

        thread = threading.Thread(target=rival)
        thread.start()
        thread.join()
        return None

    beaten.table = type("Rival", (), {"upsert": staticmethod(meet)})()
    beaten.run()
    assert len(refused) == 1
    assert table.read()["n"].to_pylist() == [2]


@pytest.mark.parametrize("error", [CommitConflict("lost", can_rebase=False), KeyError("other"), SystemExit("going")])
def test_a_turn_that_fails_gives_the_lock_back(error: BaseException) -> None:
    table = make()
    table.upsert(rows(0, 0))
    beaten = Beaten(table, losses=1)

    def fail() -> None:
        if len(beaten.leases) == 2:
            raise error

    beaten.began = fail
    with pytest.raises(type(error)):
        beaten.run()
    assert held_lock_of(table.client.store.url) is None
    with InProcessLock(table.client.store.url, 0.0).hold():
        pass


class Slow(SystemTimeSource):
    """Every look at the clock takes longer than a turn may."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits = 0

    def monotonic(self) -> float:
        self.now += 4.0
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits += 1


def test_work_that_takes_long_gets_no_turn() -> None:
    table = make()
    table.upsert(rows(0, 0))
    beaten = Beaten(table, 2, Slow(), **{"hoodie.write.lock.wait_time_ms": 15_000})
    beaten.run()
    assert beaten.leases == [None] * 3
    quick = Beaten(table, 2, Slow(), **{"hoodie.write.lock.wait_time_ms": 1_500_000})
    quick.table = Table(TableClient(table.client.store, {**MANY, "hoodie.write.lock.wait_time_ms": 1}))
    with pytest.raises(LockUnavailable):  # its rival, a part of this very thread, waits for it in vain
        quick.run()
    assert quick.leases[0] is None
    assert quick.leases[1] is not None


# --- leases -----------------------------------------------------------------------------------------------------------


class Leased:
    """A lock whose lease can be lost."""

    token = "t"

    def __init__(self, expires: float | None = None) -> None:
        self.expires = expires
        self.held = 0
        self.lost = False

    def check(self) -> None:
        if self.lost:
            raise LeaseLost("it is somebody else's")

    @contextmanager
    def hold(self) -> Iterator[Leased]:
        self.held += 1
        try:
            yield self
        finally:
            self.held -= 1


def conflict_under(turn: HeldLock, lock: Leased, error: BaseException) -> None:
    with pytest.raises(type(error)), turn.over(lock).hold():
        raise error


def test_only_a_conflict_that_another_attempt_may_avoid_keeps_the_lock() -> None:
    lock = Leased()
    with held_lock_scope("u") as turn:
        conflict_under(turn, lock, CommitConflict("nobody wants it"))
        assert lock.held == 0
        turn.keeps = lambda lease: True
        conflict_under(turn, lock, CommitConflict("no help", can_rebase=False))
        conflict_under(turn, lock, LeaseLost("gone"))
        assert lock.held == 0
        conflict_under(turn, lock, CommitConflict("again"))
        assert (lock.held, turn.lease) == (1, lock)
        with turn.over(lock).hold() as lease:
            assert (lease, lock.held) == (lock, 1)
        lock.lost = True
        with pytest.raises(LeaseLost), turn.over(lock).hold():
            raise AssertionError("nobody works under a lock that was lost")
    assert lock.held == 0


def test_a_lease_that_ends_too_soon_is_no_turn() -> None:
    assert expires_after(Leased(None), 1e9, 5.0)
    assert expires_after(Leased(10.0), 4.0, 6.0)
    assert not expires_after(Leased(10.0), 4.5, 6.0)


# --- the queue --------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["ask", "leave", "release"]), st.integers(0, 4)), max_size=40))
@settings(max_examples=examples(200))
def test_the_lock_of_a_process_goes_to_whoever_waited_longest(steps: list[tuple[str, int]]) -> None:
    queue, tickets = _Queue(), {}
    model: list[int] = []  # who holds it, then who waits
    for step, who in steps:
        if step == "ask":
            mine = tickets.setdefault(who, _Ticket(queue))
            if not (model and model[0] == who):
                got = mine.acquire(blocking=False)
                model += [who] if who not in model else []
                assert got == (model[0] == who)
                if got:
                    tickets[who] = mine
        elif step == "leave" and who in tickets and who in model[1:]:
            tickets.pop(who).leave()
            model.remove(who)
        elif step == "release" and model:
            tickets.pop(model.pop(0), None)
            queue.release()
            if model:  # it finds the lock its own when it asks next
                assert tickets[model[0]].acquire(blocking=False)
    assert queue.is_held == bool(model)
    assert len(queue.waiting) == max(0, len(model) - 1)


def test_who_gives_up_while_the_lock_is_handed_over_hands_it_on() -> None:
    queue = _Queue()
    first, second, third = (_Ticket(queue) for _ in range(3))
    assert [ticket.acquire(blocking=False) for ticket in (first, second, third)] == [True, False, False]
    queue.release()  # the second has it now, and does not know
    second.leave()
    assert third.acquire(blocking=False)
