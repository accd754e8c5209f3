"""Any number of processes open, freeze, lose answers, die and recover streams of one table, on virtual time.

The law: a row whose flush returned is in the table once; of two rows of one key the one whose flush began after the other's
had returned wins, whoever commits them and when; a row that was refused is not in the table unless it is sent again. A
source that goes on at ``last_committed`` is in the table once.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.producers.stream.options import FlushMode
from lakefmt._core.producers.stream.stream import Stream
from lakefmt._core.segments.codec import claim_name, list_positions, list_streams
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import FlushFailed, LakefmtError, StorageError
from lakefmt.testing.store_wrapper import SimulatedCrash, Step, WrapperStore
from lakefmt.testing.stores import Fault, FaultMode
from lakefmt.testing.virtual_time import Process, RequestStore
from tests.example_counts import examples
from tests.producers.stream.stream_kit import Clock, kill, make, refusing, table_over
from tests.simulation.green_clock import GreenletClock

T = TypeVar("T")

NUMBERS = itertools.count()
EPOCH = 1_800_000_000.0
LEASE_MS = 10_000
SETTINGS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "StorageBasedLockProvider",
    "hoodie.archive.automatic": False,
    "hoodie.clean.automatic": False,
}
STREAM: dict[str, Any] = {
    "flush_mode": FlushMode.AUTO_FLUSH_SYNC,
    "flush_interval": 0,
    "commit_interval": 10**9,
    "lease_interval_ms": LEASE_MS,
    "request_failed_retry_times": 2,
    "request_failed_retry_interval_ms": 1_000,
}
KEYS = ("a", "b", "c")
#: What a program follows when it marks: row number n has the value -n - 1.
SOURCE_ROWS = 12


@dataclass
class Sent:
    """A row of a flush: when it began, and when it returned; None: it did not."""

    value: int
    key: str
    begun: float
    ended: float | None = None
    refused: bool = False


@dataclass
class World:
    """One table, its processes, and what was acknowledged."""

    seed: int
    keyed: bool
    ties: bool = False
    calm: bool = False
    time: GreenletClock = field(default_factory=GreenletClock)
    sent: list[Sent] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(f"world {self.seed}")
        self.store = MemoryStore(f"owners-{next(NUMBERS)}", now=lambda: EPOCH + self.time.now)
        make(self.keyed, self.store, **({"ordering": "s"} if self.ties else {}))
        self.values = itertools.count(1)
        self.processes: list[Process] = []
        self.streams: list[Stream] = []
        self.numbers = itertools.count(1)

    def say(self, process: Process, what: str) -> None:
        self.trace.append(f"{self.time.now:9.3f} process {process.number}: {what}")

    def table(self) -> tuple[Table, Process]:
        """Return the table as a new process sees it; the clocks of machines differ."""
        number = next(self.numbers)
        dice = random.Random(f"process {self.seed} {number}")
        process = Process(self.time, number, skew=0.0 if self.calm else dice.uniform(-2, 2), latency=0.02)
        self.processes.append(process)
        if not self.calm:
            process.faults = lambda _: self.fault(process, dice)
        client = TableClient(FreezingStore(self.store, process, dice, self), SETTINGS)
        client.time_source, client.clock = process, Clock(process)
        return Table(client), process

    def fault(self, process: Process, dice: random.Random) -> Fault | None:
        luck = dice.random()
        if luck < 0.004:
            self.say(process, "dies")
            return Fault(dice.choice((FaultMode.BEFORE, FaultMode.AFTER)), crash=True)
        if luck < 0.012:
            return Fault(dice.choice((FaultMode.REQUEST_LOST, FaultMode.ANSWER_LOST)), crash=False)
        return None

    def rows(self) -> list[tuple[str, int]]:
        """Return the rows of the table for who asks for all that is durable."""
        calm, _ = self.table()
        read = calm.read(include_uncommitted=True).to_pylist()
        return [(row.get("id", ""), row["v"]) for row in read]


class Place(str):
    """The base of a table as a process sees it: equal bases are those of one process, which alone shares locks in memory."""

    number: int

    def __new__(cls, base: str, number: int) -> Place:
        place = super().__new__(cls, base)
        place.number = number
        return place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and (str(self), self.number) == (str(other), other.number)

    def __hash__(self) -> int:
        return hash((str(self), self.number))


class FreezingStore(RequestStore):
    """A store of a process that stops for longer than its claims last, before what it does with segments and claims."""

    def __init__(self, inner: MemoryStore, process: Process, dice: random.Random, world: World) -> None:
        super().__init__(inner, process)
        self.dice, self.world = dice, world

    @property
    def url(self) -> str:
        return Place(self.inner.url, self._process.number)

    def perform(self, step: Step[T]) -> T:
        self.freeze(step.name, step.kind)
        return super().perform(step)

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        self.freeze(name, kind)
        return super().look(kind, name, run)

    def freeze(self, name: str, kind: str) -> None:
        if self.world.calm or "/streams" not in name or self._process.dead or self.dice.random() >= 0.04:
            return
        self.world.say(self._process, f"is frozen before {kind} {name[-40:]}")
        self._process.pause()
        self._process.sleep(self.dice.choice((5.0, 3 * LEASE_MS / 1000, 12 * LEASE_MS / 1000)))
        self._process.wake()


class Program:
    """A program that is started again whenever it dies."""

    def __init__(self, world: World, number: int, name: str | None) -> None:
        self.world, self.name = world, name
        self.dice = random.Random(f"program {world.seed} {number}")

    def run(self, calls: int) -> None:
        world = self.world
        table, process = world.table()
        stream: Stream | None = None
        for _ in range(calls):
            process.sleep(self.dice.random() * self.dice.choice((0.1, 5.0)))
            try:
                stream = self.step(table, process, stream)
            except SimulatedCrash:
                stream = None
                world.time.sleep(self.dice.choice((0.5, 40.0)))
                table, process = world.table()
            except LakefmtError as error:
                world.say(process, f"hears {type(error).__name__}: {error}"[:200])
        if stream is not None and self.dice.random() < 0.5:
            try:
                stream.close()
            except (SimulatedCrash, LakefmtError):
                return

    def opened(self, table: Table) -> Stream:
        stream = table.open_stream(writer_id=self.name, **STREAM)
        self.world.streams.append(stream)
        return stream

    def step(self, table: Table, process: Process, stream: Stream | None) -> Stream | None:
        if stream is None:
            self.world.say(process, "opens")
            stream = self.opened(table)
            self.world.say(process, f"has opened {stream.writer_id} at epoch {stream._core.flusher.writer.held.epoch}")
        luck = self.dice.random()
        if luck < 0.6:
            return self.send(process, stream, [next(self.world.values) for _ in range(self.dice.choice((1, 2)))])
        if luck < 0.7:
            self.look(process)
        elif luck < 0.8:
            stream.commit()
            self.world.say(process, "has committed")
        elif luck < 0.9:
            table.recover_streams()
        else:
            stream.close()
            self.world.say(process, "has closed")
            return None
        return stream

    def send(self, process: Process, stream: Stream, values: list[int]) -> Stream | None:
        world = self.world
        rows = [Sent(value, self.dice.choice(KEYS), world.time.now) for value in values]
        for row in rows:
            stream.extend([{"v": row.value, "s": "x"} | ({"id": row.key} if world.keyed else {})])
        world.sent += rows
        try:
            stream.flush()
        except FlushFailed as error:
            world.say(process, f"{values} are not durable: {error}"[:200])
            return self.after_failure(process, stream, rows)
        for row in rows:
            row.ended = world.time.now
        world.say(process, f"{[(row.key, row.value) for row in rows]} are durable")
        return stream

    def after_failure(self, process: Process, stream: Stream, rows: list[Sent]) -> Stream | None:
        batches = stream.failed_rows()
        failed = {value for batch in batches for value in batch.rows["v"].to_pylist()}
        unknown = {value for batch in batches if batch.may_be_committed for value in batch.rows["v"].to_pylist()}
        for row in rows:
            row.refused = row.value in failed - unknown
            if row.value not in failed:
                row.ended = self.world.time.now
        if self.dice.random() < 0.3:
            stream.close(discard=True)
            return None
        left = {value for batch in stream.reopen() for value in batch.rows["v"].to_pylist()}
        self.world.say(process, f"opened again; {sorted(left)} of {sorted(failed)} are to be sent again")
        for row in rows:
            if row.value in failed:
                row.refused = row.value in left
                row.ended = None if row.refused else self.world.time.now
        if left and self.dice.random() < 0.7:
            for row in rows:
                row.refused &= row.value not in left
            again = [row for row in rows if row.value in left]
            self.world.sent = [row for row in self.world.sent if row not in again]
            return self.send(process, stream, sorted(left))
        return stream

    def look(self, process: Process) -> None:
        """Read what is durable: no key may have a row that was replaced before the read began."""
        world, begun = self.world, self.world.time.now
        store_of_all = world.rows()
        if world.keyed:
            check_order(world, store_of_all, begun)


class Source(Program):
    """A program that follows a source: it asks how far the table is, and goes on there."""

    def step(self, table: Table, process: Process, stream: Stream | None) -> Stream | None:
        if stream is None:
            stream = self.opened(table)
            done = stream.last_committed
            self.next = 0 if done is None or done.offset is None else int(done.offset)
            self.world.say(process, f"has opened the source at {self.next}")
        count = self.dice.choice((1, 2, 3))
        rows = range(self.next, min(SOURCE_ROWS, self.next + count))
        stream.extend({"v": -n - 1, "s": "x"} | ({"id": f"source {n}"} if self.world.keyed else {}) for n in rows)
        stream.mark(rows.stop if rows else self.next)
        try:
            stream.flush()
        except FlushFailed as error:
            self.world.say(process, f"the source {[*rows]} failed: {error}"[:200])
            stream.close(discard=True)
            return None
        self.world.say(process, f"rows {[*rows]} of the source are durable")
        self.next = max(self.next, rows.stop)
        if self.dice.random() < 0.3:
            stream.close()
            return None
        return stream


def check_order(world: World, rows: list[tuple[str, int]], begun: float) -> None:
    """Note every row that one whose flush returned before `begun` had replaced."""
    by_value = {row.value: row for row in world.sent}
    seen = dict(rows)
    for row in world.sent:
        if row.ended is None or row.ended > begun:
            continue
        value = seen.get(row.key)
        if value is None:
            world.wrong.append(f"key {row.key} is gone, and {row.value} was durable at {row.ended}")
            continue
        winner = by_value.get(value)
        if winner is not None and winner.ended is not None and winner.ended < row.begun:
            world.wrong.append(f"key {row.key} has {value}, which {row.value} replaced at {row.ended}")


def end(world: World) -> None:
    """Long afterwards a process that nothing happens to recovers everything."""
    for process in world.processes:
        process.die()
    for each in world.streams:
        kill(each)
    world.time.now += 100_000.0
    world.calm = True
    table, process = world.table()
    with table.open_stream(writer_id="source", **STREAM) as stream:
        done = stream.last_committed
        first = 0 if done is None or done.offset is None else int(done.offset)
        world.say(process, f"ends the source from {first}")
        ids = ({"id": f"source {n}"} if world.keyed else {} for n in range(first, SOURCE_ROWS))
        stream.extend({"v": -n - 1, "s": "x"} | key for n, key in zip(range(first, SOURCE_ROWS), ids, strict=True))
        stream.mark(SOURCE_ROWS)
    table.recover_streams()
    left = [(stream, list_positions(world.store, stream)[0]) for stream in list_streams(world.store)]
    world.wrong += [f"segments are left: {each}" for each in left if each[1]]
    rows = [(row.get("id", ""), row["v"]) for row in table.read().to_pylist()]
    counted = Counter(value for _, value in rows)
    world.wrong += [f"{value} is there {count} times" for value, count in counted.items() if count > 1]
    world.wrong += [f"{-n - 1} of the source is lost" for n in range(SOURCE_ROWS) if -n - 1 not in counted]
    world.wrong += [
        f"{row.value} was refused and is there" for row in world.sent if row.refused and row.value in counted
    ]
    if world.keyed:
        check_order(world, [row for row in rows if row[1] > 0], world.time.now)
    else:
        acknowledged = [row.value for row in world.sent if row.ended is not None]
        world.wrong += [f"{value} was durable and is lost" for value in acknowledged if value not in counted]


def play(seed: int, keyed: bool, ties: bool = False) -> World:
    """Run one history; `ties`: the table has an ordering column, and all rows have one value of it."""
    world = World(seed, keyed, ties)
    dice = random.Random(f"names {seed}")
    names = [dice.choice((None, None, "w")) for _ in range(3)]
    programs = [Program(world, number, name) for number, name in enumerate(names)]
    sources = [Source(world, 10 + number, "source") for number in range(dice.choice((0, 1, 2)))]
    calls = dice.choice((6, 12))
    world.time.run([*(lambda p=p: p.run(calls) for p in programs), *(lambda s=s: s.run(5) for s in sources)])
    end(world)
    return world


#: Histories that were wrong once, and the first ones.
SEEDS = (2091, 2071, 362, 410, 5, 58, 0, 1, 2, 3, 4, *range(6, 58))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("keyed", "ties"), [(True, False), (True, True), (False, False)])
def test_each_acknowledged_row_is_there_once_and_the_last_one_wins(keyed: bool, ties: bool) -> None:
    for seed in SEEDS[: examples(3)]:
        world = play(seed, keyed, ties)
        assert not world.wrong, "\n".join([f"seed {seed}", *world.wrong, *world.trace])


# --- single rules ------------------------------------------------------------------------------------------------------


def taken_over(store: MemoryStore, how: str) -> tuple[Stream, Stream]:
    """Return a stream, and the one that replaces it between the write of a segment and its confirmation."""
    first = table_over(store).open_stream(writer_id="w", request_failed_retry_times=1, commit_interval=10**9)
    held, later = first._core.flusher.writer.held, list[Stream]()
    check = held.check

    def late() -> None:
        if not later:
            later.append(table_over(store).open_stream(writer_id="w", commit_interval=10**9))
        check()

    if how == "after the header":
        held.check = late  # type: ignore[method-assign]
    else:
        later.append(table_over(store).open_stream(writer_id="w", commit_interval=10**9))
    first.insert({"v": 1})
    if how == "after the header":
        first.flush()
    else:
        with pytest.raises(FlushFailed, match="are not durable"):
            first.flush()
    return first, later[0]


@pytest.mark.parametrize("how", ["after the header", "before it"])
def test_who_sends_refused_rows_again_doubles_none(how: str) -> None:
    store = MemoryStore(f"owners-{next(NUMBERS)}")
    make(False, store)
    first, later = taken_over(store, how)
    failed = [row for batch in first.failed_rows() for row in batch.rows["v"].to_pylist()]
    assert failed == ([] if how == "after the header" else [1])
    for value in failed:
        later.insert({"v": value})
    later.close()
    first.close(discard=True)
    assert table_over(store).read()["v"].to_pylist() == [1]


class SilentStore(WrapperStore):
    """A store whose answers to what it is told of headers are lost for a while."""

    def __init__(self, inner: MemoryStore, *, applies: bool) -> None:
        super().__init__(inner)
        self.silent, self.applies, self.told = False, applies, False

    def perform(self, step: Step[T]) -> T:
        if self.silent and step.name.endswith("00000000001.json"):
            if self.applies and step.kind == "put_if_absent" and not self.told:
                step.run()
            self.told = True
            raise StorageError("the store does not answer", transient=True)
        return step.run()


@pytest.mark.parametrize("applies", [True, False], ids=["it was written", "it was not"])
def test_rows_that_may_be_committed_are_told_by_reopen(applies: bool) -> None:
    store = MemoryStore(f"owners-{next(NUMBERS)}")
    make(False, store)
    silent = SilentStore(store, applies=applies)
    with table_over(silent).open_stream(request_failed_retry_enable=False, commit_interval=10**9) as stream:
        stream.insert({"v": 1})
        silent.silent = True
        with pytest.raises(FlushFailed, match="may be committed"):
            stream.flush()
        assert [batch.may_be_committed for batch in stream.failed_rows()] == [True]
        silent.silent = False
        again = stream.reopen()
        assert [batch.rows["v"].to_pylist() for batch in again] == ([] if applies else [[1]])
        for batch in again:
            stream.write_arrow(batch.rows, operator_column="_lakefmt_operator")
    assert table_over(store).read()["v"].to_pylist() == [1]


def test_a_commit_takes_along_what_others_made_durable_before() -> None:
    store = MemoryStore(f"owners-{next(NUMBERS)}", now=lambda: EPOCH)  # one moment for all: the writers' clocks decide
    make(True, store)
    table = table_over(store)
    older, newer, marks = (
        table.open_stream(commit_interval=10**9),
        table.open_stream(commit_interval=10**9),
        table.open_stream(writer_id="marks", commit_interval=10**9, mutation_buffer_lines_num=1),
    )
    marks.mark(0)
    marks.upsert({"id": "m", "v": 1})  # behind its last mark: its source may send it again
    marks._core.drain()
    older.upsert({"id": "a", "v": 1})
    older.flush()
    newer.upsert({"id": "a", "v": 2})
    newer.flush()
    newer.commit()
    assert [(row["id"], row["v"]) for row in table.read().to_pylist()] == [("a", 2)]
    older.close()
    assert [(row["id"], row["v"]) for row in table.read().to_pylist()] == [("a", 2)]
    newer.close()
    marks.mark(1)
    marks.close()
    assert sorted((row["id"], row["v"]) for row in table.read().to_pylist()) == [("a", 2), ("m", 1)]


def test_a_damaged_segment_of_another_stream_is_not_in_the_way() -> None:
    store = MemoryStore(f"owners-{next(NUMBERS)}")
    make(True, store)
    table = table_over(store)
    broken, good = table.open_stream(commit_interval=10**9), table.open_stream(commit_interval=10**9)
    broken.upsert({"id": "b", "v": 1})
    broken.flush()
    (name,) = (found.name for found in store.list() if found.name.endswith(".arrow"))
    store.put(name, b"torn")
    good.upsert({"id": "g", "v": 1})
    good.close()
    assert table.read()["id"].to_pylist() == ["g"]
    kill(broken)


def test_an_owner_file_without_content_is_in_the_way_of_nobody() -> None:
    store = MemoryStore(f"owners-{next(NUMBERS)}", now=lambda: EPOCH / 2)  # long ago
    make(False, store)
    table = table_over(store)
    with table.open_stream(writer_id="w") as stream:
        stream.insert({"v": 1})
    store.put(claim_name("w", 7), b"")
    assert table.read(include_uncommitted=True).num_rows == 1
    (finding,) = table.check().findings
    assert "owner" in str(finding)
    table.repair(table.check().plan)
    assert not table.check().findings
    store.put(claim_name("w", 9), b"")
    table.recover_streams()
    with table.open_stream(writer_id="w") as stream:
        stream.insert({"v": 2})
    assert sorted(table.read()["v"].to_pylist()) == [1, 2]


def test_failed_rows_can_be_sent_as_they_are() -> None:
    store = MemoryStore(f"owners-{next(NUMBERS)}")
    make(True, store)
    table_over(store).upsert([{"id": name, "v": 0, "s": "stored"} for name in ("a", "b")])
    with table_over(refusing(store, 1)).open_stream(request_failed_retry_enable=False) as stream:
        stream.update({"id": "a", "s": "set"})
        stream.delete("b")
        stream.upsert({"id": "c", "v": 1, "s": "new"})
        with pytest.raises(FlushFailed, match="are not durable"):
            stream.flush()
        for batch in stream.reopen():
            stream.write_arrow(batch.rows, operator_column="_lakefmt_operator")
    rows = {row["id"]: (row["v"], row["s"]) for row in table_over(store).read().to_pylist()}
    assert rows == {"a": (0, "set"), "c": (1, "new")}


def test_a_strict_insert_sees_what_became_of_rows_that_another_stream_committed() -> None:
    store = MemoryStore(f"owners-{next(NUMBERS)}")
    make(True, store)
    table = table_over(store)
    strict, other = table.open_stream(commit_interval=10**9), table.open_stream(commit_interval=10**9)
    strict.insert({"id": "a", "v": 1})
    strict.flush()
    other.upsert({"id": "b", "v": 1})
    other.commit()
    table.delete(["a"])
    strict.insert({"id": "a", "v": 2})  # the first one was committed, and deleted since
    strict.close()
    other.close()
    assert sorted((row["id"], row["v"]) for row in table.read().to_pylist()) == [("a", 2), ("b", 1)]
