"""Programs that send a source from their last committed offset on, in every flush mode, with failures and kills: each row once.

Buffers are flushed by threads and timers of the stream, so that a story is not the same twice; the promises hold in every one.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.producers.stream.options import ErrorTypeHandler, FlushMode
from lakefmt._core.producers.stream.stream import Stream
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import FlushFailed, LakefmtError
from lakefmt.testing.stores import Effect, Fault, FaultMode, FaultStore
from tests.producers.stream.stream_kit import OPTIONS, kill, table_over

NUMBERS = itertools.count()
SCHEMA = pa.schema([("source", pa.string()), ("v", pa.int64())])
LETTERS = ".hoodie/.lakefmt/dead-letters"
ACTS = ["rows"] * 6 + ["mark", "flush", "flush", "commit", "wait", "kill", "leave", "close", "fail", "fail"]


class Source:
    """Numbers from 0 on, and the program that sends them."""

    def __init__(self, walk: Walk, name: str) -> None:
        self.walk, self.name, self.random = walk, name, walk.random
        self.stream: Stream | None = None
        self.next = self.safe = 0
        self.marks = {0}
        self.failures = 0

    def plan(self, effect: Effect) -> Fault | None:
        if not self.failures or "/streams/" not in effect.name or not effect.kind.startswith("put"):
            return None
        self.failures -= 1
        return Fault(list(FaultMode)[effect.number % len(FaultMode)], crash=False)

    def open(self) -> Stream:
        """Open the stream, and go on where the table is."""
        if self.stream is not None:
            return self.stream
        self.failures = 0
        choice = self.random.choice
        size = choice([150, 10_000])
        self.stream = table_over(FaultStore(self.walk.store, self.plan)).open_stream(
            writer_id=self.name,
            flush_mode=choice(list(FlushMode)),
            flush_interval=choice([0, 3]),
            mutation_buffer_lines_num=choice([2, 3, 20]),
            mutation_buffer_max_num=choice([1, 50]),
            mutation_buffer_space=min(size, 1_000),
            grpc_max_message_length=size,
            commit_interval=choice([0, 10, 10_000]),
            request_failed_retry_times=choice([1, 3]),
            request_failed_retry_interval_ms=1,
            request_failed_retry_deadline_ms=10_000,
            error_type_handler=choice([ErrorTypeHandler.TERMINATE_INSTANCE, self.walk.handler]),
            dead_letter_path="letters",
        )
        done = self.stream.last_committed
        offset = 0 if done is None or done.offset is None else done.offset
        assert offset in self.marks
        assert offset >= self.safe or self.walk.letters()
        self.next = self.safe = offset
        if not offset:
            self.stream.mark(0)  # the table does not know yet that this program marks
        return self.stream

    def send(self, numbers: list[int]) -> None:
        self.open().extend({"source": self.name, "v": number} for number in numbers)

    def mark(self) -> None:
        self.marks.add(self.next)
        self.open().mark(self.next)

    def rows(self) -> None:
        stream = self.open()
        for _ in range(self.random.randint(1, 6)):
            taken = stream.metrics()["rows_applied"]
            try:
                self.send([self.next])
            finally:
                self.next += stream.metrics()["rows_applied"] - taken
            if self.random.random() < 0.3:
                self.mark()

    def after_failure(self) -> None:
        """Send the failed rows again, or start anew."""
        stream, self.failures = self.open(), 0
        if stream.closed or self.random.random() < 0.5:
            self.kill()
            return
        failed = [number for batch in stream.failed_rows() for number in batch.rows["v"].to_pylist()]
        assert failed == list(range(self.next - len(failed), self.next)) or self.walk.letters()
        stream.reopen()
        self.send(failed)
        self.mark()

    def kill(self) -> None:
        kill(self.open())
        self.stream = None

    def step(self, act: str) -> None:
        stream = self.open()
        try:
            if act == "rows":
                self.rows()
            elif act == "fail":
                self.failures = self.random.choice([1, 2, 9])
            elif act == "wait":
                time.sleep(0.01)
            elif act == "kill":
                self.kill()
            elif act == "leave":
                with contextlib.suppress(RuntimeWarning):
                    stream.close(discard=True)
                self.stream = None
            else:
                self.mark()
                {"mark": lambda: None, "flush": stream.flush, "commit": stream.commit, "close": stream.close}[act]()
                self.safe = self.next if act != "mark" else self.safe
                self.stream = None if act == "close" else stream
        except FlushFailed:
            with contextlib.suppress(FlushFailed):
                self.after_failure()
                return
            self.kill()
        except LakefmtError:
            return  # of a commit: the rows are durable


class Walk:
    """A table and two sources."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = MemoryStore(f"random-sources-{next(NUMBERS)}")
        lakefmt.create_table(self.store.url, schema=SCHEMA, options=OPTIONS)
        self.sources = [Source(self, name) for name in "ab"]

    def handler(self, batch: object, error: object) -> str:
        return self.random.choice(["retry", "skip", "fail"])

    def letters(self) -> Counter[tuple[str, int]]:
        tables = [
            pa.ipc.open_stream(self.store.read(each.name)).read_all()
            for each in self.store.list(LETTERS)
            if each.name.endswith(".arrow")
        ]
        return Counter((row["source"], row["v"]) for table in tables for row in table.to_pylist())

    def check(self) -> None:
        """Of each source the table has the rows up to a mark, each once, but for those in the dead letters."""
        reads: list[Callable[[], pa.Table]] = [
            lambda: table_over(self.store).read(),
            lambda: table_over(self.store).read(include_uncommitted=True),
        ]
        for read in reads:
            stored = Counter((row["source"], row["v"]) for row in read().to_pylist())
            letters = self.letters()
            assert not stored or max(stored.values()) == 1
            for source in self.sources:
                numbers = {number for name, number in stored if name == source.name}
                buried = {number for name, number in letters if name == source.name}
                ends = [set(range(mark)) for mark in source.marks]
                assert any(numbers <= rows <= numbers | buried for rows in ends), (source.name, numbers, source.marks)

    def end(self) -> None:
        for source in self.sources:
            source.failures = 0
            with contextlib.suppress(FlushFailed):
                source.mark()
                source.open().close()
            source.stream = None
            source.open()
            source.rows()
            source.mark()
            source.open().close()
        stored = Counter((row["source"], row["v"]) for row in table_over(self.store).read().to_pylist())
        every = {(source.name, number) for source in self.sources for number in range(source.next)}
        assert set(stored) <= every <= set(stored) | set(self.letters())
        assert max(stored.values()) == 1


@pytest.mark.filterwarnings("ignore:.*were dropped:RuntimeWarning")
@pytest.mark.parametrize("seed", range(8))
def test_each_row_of_a_source_is_stored_once(seed: int) -> None:
    walk = Walk(seed)
    try:
        for _ in range(30):
            walk.random.choice(walk.sources).step(walk.random.choice(ACTS))
            walk.check()
        walk.end()
    finally:
        for source in walk.sources:
            if source.stream is not None:
                source.kill()
