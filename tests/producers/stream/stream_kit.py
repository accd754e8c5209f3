"""What the tests of streams share: tables on a virtual clock, over stores that fail on demand."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.producers.stream.stream import Stream
from lakefmt._core.segments.codec import list_positions, list_streams
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.testing.store_wrapper import Step, WrapperStore
from lakefmt.testing.stores import Fault, FaultMode, FaultStore
from lakefmt.testing.virtual_time import Process, VirtualTime

NUMBERS = itertools.count()
KEYED = pa.schema([pa.field("id", pa.string(), nullable=False), ("v", pa.int64()), ("s", pa.string())])
PLAIN = pa.schema([("v", pa.int64()), ("s", pa.string())])
OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
#: Of a writer that expects others at work, as streams do.
OCC: dict[str, object] = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}


class Clock:
    """The wall clock of a process on virtual time."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.process.wall(), UTC)


def make(keyed: bool = True, store: ObjectStore | None = None, **more: Any) -> ObjectStore:
    """Make a table, and return its store."""
    store = store or MemoryStore(f"streams-{next(NUMBERS)}")
    made = {"schema": KEYED, "record_key": "id"} if keyed else {"schema": PLAIN}
    lakefmt.create_table(store.url, **{**made, **more})
    return store


def table_over(store: ObjectStore, time: VirtualTime | None = None, options: dict[str, object] | None = None) -> Table:
    """Return a table handle over a store, on a virtual clock if one is given."""
    client = TableClient(store, {**OPTIONS, **(options or {})})
    if time is not None:
        process = Process(time)
        client.time_source, client.clock = process, Clock(process)  # type: ignore[misc]
    return Table(client)


def durable(store: ObjectStore) -> int:
    """Return how many segments are durable and not deleted."""
    return sum(len(list_positions(store, stream)[0]) for stream in list_streams(store))


def rows_of(table: pa.Table, by: str = "v") -> list[dict[str, Any]]:
    """Return rows in an order."""
    return table.sort_by(by).to_pylist()


class GateStore(WrapperStore):
    """Effects whose name `holds` accepts wait until the gate is opened."""

    def __init__(self, inner: ObjectStore, holds: Callable[[str], bool]) -> None:
        super().__init__(inner)
        self.holds = holds
        self.waiting = threading.Event()
        self.open = threading.Event()

    def perform(self, step: Step[Any]) -> Any:
        if self.holds(step.name) and not self.open.is_set():
            self.waiting.set()
            assert self.open.wait(30)
        return step.run()


def is_segment(name: str) -> bool:
    """Return whether a name is of a segment's rows."""
    return "/streams/" in name and name.endswith(".arrow")


def kill(stream: Stream) -> None:
    """End the process of a stream: it writes nothing more, and nobody warns of it."""
    core = stream._core
    core.committer.stop()
    core.flusher.writer.held.release()
    with core._changed:
        core.is_closed = True
        core._changed.notify_all()


def copied(made: ObjectStore) -> MemoryStore:
    """Return a store with the same objects."""
    store = MemoryStore(f"streams-{next(NUMBERS)}")
    for found in made.list():
        store.put(found.name, made.read(found.name))
    return store


def refusing(store: ObjectStore, times: int) -> FaultStore:
    """Return a store that refuses to put the next segments, so many times."""
    left = [times]

    def plan(effect: object) -> Fault | None:
        if is_segment(effect.name) and left[0]:  # type: ignore[attr-defined]
            left[0] -= 1
            return Fault(FaultMode.BEFORE, crash=False)
        return None

    return FaultStore(store, plan)


def attempts(store: FaultStore) -> int:
    """Return how often a segment was put, refused ones included."""
    return sum(is_segment(effect.name) and effect.kind.startswith("put") for effect in store.effects)
