"""Writes that one process begins and another one ends, beside other writers, in random order; every process may die at any effect.

The table is before or after each write. When all are dead, the next write of anybody and the services that were planned leave
nothing of them: nothing is pending, and neither ``vacuum`` nor ``check`` has anything to say.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline.markers import SAVED_WRITES
from lakefmt._core.write import transaction
from lakefmt._core.write.transaction import abort_context, resume_transaction
from lakefmt.errors import (
    CommitConflict,
    InstantNotPending,
    LakefmtError,
    LeaseLost,
    LockUnavailable,
    StorageError,
    WriterActive,
)
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.stores import Effect, Fault, FaultMode, FaultStore, SimulatedCrash, no_faults
from lakefmt.testing.virtual_time import Process, VirtualTime

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
NUMBERS = itertools.count()
EPOCH = 1_800_000_000.0
#: What a write beside others, or one that meets a failure, may raise.
EXPECTED = (WriterActive, CommitConflict, StorageError, LeaseLost, LockUnavailable, InstantNotPending, SimulatedCrash)

State = dict[tuple[str, str], int]


class Clock:
    """The wall clock of a process on virtual time."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.process.wall(), UTC)


class Writer:
    """A process with its own handle, its own running transactions, and the effect at which it fails or dies."""

    def __init__(self, walk: Walk, plan: Callable[[Effect], Fault | None]) -> None:
        self.process, self.store = Process(walk.time), FaultStore(walk.store, plan)
        self.client = TableClient(self.store, dict(walk.options))
        self.client.time_source, self.client.clock = self.process, Clock(self.process)  # type: ignore[misc]
        self.table = lakefmt.Table(self.client)
        self.running: dict[str, object] = {}

    def __enter__(self) -> Writer:
        transaction._running_transactions.clear()
        transaction._running_transactions.update(self.running)  # type: ignore[arg-type]
        return self

    def __exit__(self, *details: object) -> None:
        self.running = dict(transaction._running_transactions)
        transaction._running_transactions.clear()
        if self.store.crashed:
            self.process.die()


class Pending:
    """A write that was begun: its context, what was written, and the rows."""

    def __init__(self, context: lowlevel.WriteContext, statuses: list[lowlevel.WriteStatus], rows: State) -> None:
        self.context, self.statuses, self.rows = context, statuses, rows


class Walk:
    """A table, a dictionary of its rows, and the writes that are pending."""

    def __init__(self, seed: int, table_type: str, version: int, *, metadata: bool) -> None:
        self.random, self.time = random.Random(f"{seed} {table_type} {version} {metadata}"), VirtualTime()
        self.store = MemoryStore(f"random-saved-{next(NUMBERS)}", now=lambda: EPOCH + self.time.now)
        self.options: dict[str, object] = {
            "lakefmt.durability": "none",
            "lakefmt.write.threads": 1,
            "hoodie.metadata.enable": metadata,
            "hoodie.client.heartbeat.interval_in_ms": 1000,
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.clean.commits.retained": 2,
        }
        self.writers: list[Writer] = []
        self.pending: list[Pending] = []
        self.state: State = {}
        self.values = itertools.count()
        made = {"record_key": "id", "partition_by": "p", "table_type": table_type, "table_version": version}
        with self.writer():
            lakefmt.create_table(self.store.url, schema=SCHEMA, options=self.options, **made)  # type: ignore[arg-type]

    def writer(self, *, may_fail: bool = False) -> Writer:
        plan = self.plan() if may_fail and self.random.random() < 0.6 else no_faults
        self.writers.append(Writer(self, plan))
        return self.writers[-1]

    def plan(self) -> Callable[[Effect], Fault | None]:
        number, mode = self.random.randint(1, self.random.choice([6, 15, 40])), self.random.choice(list(FaultMode))
        fault = Fault(mode, self.random.random() < 0.6)
        return lambda effect: fault if effect.number == number else None

    def sleep(self, seconds: float) -> None:
        until = self.time.now + seconds
        while self.time.now < until:
            for writer in self.writers:
                if writer.store.crashed:
                    writer.process.die()
            try:
                self.time.sleep(until - self.time.now)
            except SimulatedCrash:
                continue  # of a heartbeat

    def rows(self) -> State:
        places = [(f"k{self.random.randint(0, 9)}", self.random.choice("ab")) for _ in range(self.random.randint(1, 4))]
        return {place: next(self.values) for place in places}

    def stored(self) -> State:
        with self.writer() as reader:
            return {(row["id"], row["p"]): row["v"] for row in reader.table.read().to_pylist()}

    def settled(self, error: BaseException | None, rows: State) -> None:
        """Whatever was raised, the table is before or after the write; without an error it is after it."""
        assert error is None or isinstance(error, EXPECTED) or "is missing: abort" in str(error), error
        stored, after = self.stored(), {**self.state, **rows}
        assert stored == after or (error is not None and stored == self.state)
        self.state = stored

    def begin(self) -> None:
        rows, writer = self.rows(), self.writer(may_fail=True)
        try:
            with writer:
                context = lowlevel.begin_write(writer.table)
                work = lowlevel.assign(context, as_rows(rows))
                statuses = [lowlevel.write_files(context, *each) for each in work]
        except EXPECTED as error:
            self.settled(error, {})
            return
        finally:
            if self.random.random() < 0.6:
                writer.process.die()
        self.pending.append(Pending(lowlevel.WriteContext.from_json(context.to_json()), statuses, rows))

    def end(self, *, commits: bool) -> None:
        """Another process ends a write; one that has ended is ended again at times."""
        if not self.pending:
            return
        given, error = self.random.choice(self.pending), None
        try:
            with self.writer(may_fail=True) as writer:
                if commits:
                    resume_transaction(writer.client, given.context).commit(given.statuses)
                else:
                    abort_context(writer.client, given.context)
        except (LakefmtError, SimulatedCrash) as raised:
            error = raised
        if error is None and self.random.random() < 0.8:
            self.pending.remove(given)
        self.settled(error, given.rows if commits else {})

    def other(self) -> None:
        rows, error = self.rows(), None
        verb = self.random.choice(["upsert", "upsert", "compact", "clean"])
        try:
            with self.writer(may_fail=True) as writer:
                if verb == "upsert":
                    writer.table.upsert(as_rows(rows))
                elif verb == "clean" or self.stored_as_logs(writer):
                    getattr(writer.table, verb)()
        except EXPECTED as raised:
            error = raised
        self.settled(error, rows if verb == "upsert" else {})

    def stored_as_logs(self, writer: Writer) -> bool:
        return writer.client.load_config().table_type.value == "MERGE_ON_READ"

    def settle(self) -> None:
        """All are dead; the next writer and the services that were planned leave nothing of them."""
        for writer in self.writers:
            writer.process.die()
        self.pending.clear()
        self.sleep(400)
        rows = self.rows()
        with self.writer() as healthy:
            table = healthy.table
            table.upsert(as_rows(rows))
            table.clean()
            if self.stored_as_logs(healthy):
                table.compact()
            assert not table.client.load().timeline.pending
            assert not [*self.store.list(SAVED_WRITES), *self.store.list(".hoodie/.heartbeat")]
            check_invariants(table)
            check_no_orphans(table)
            assert not table.vacuum(orphans=True, older_than=0, dry_run=True).plan.items
            assert not table.check().findings
        self.settled(None, rows)
        healthy.process.die()

    def step(self) -> None:
        self.sleep(self.random.choice([0.0, 0.0, 1.5, 4.0]))
        act = self.random.choice(["begin"] * 3 + ["commit"] * 3 + ["abort", "other", "other"])
        if act in ("commit", "abort"):
            self.end(commits=act == "commit")
        else:
            (self.begin if act == "begin" else self.other)()


def as_rows(rows: State) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "p": place, "v": value} for (key, place), value in rows.items()], SCHEMA)


@pytest.mark.parametrize(
    ("table_type", "version", "metadata"), [("cow", 6, False), ("cow", 8, True), ("mor", 9, False), ("mor", 8, True)]
)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_left_of_writes_that_end_elsewhere(seed: int, table_type: str, version: int, metadata: bool) -> None:
    walk = Walk(seed, table_type, version, metadata=metadata)
    try:
        for number in range(24):
            walk.step()
            if number % 8 == 7:
                walk.settle()
    finally:
        transaction._running_transactions.clear()
