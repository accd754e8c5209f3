"""What others wait for: under the table lock a write does one thing after the other only where it must."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import sleep
from typing import TypeVar

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.api import Capabilities
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.locks.local import InProcessLock
from lakefmt.testing.store_wrapper import Step, WrapperStore

T = TypeVar("T")
NUMBERS = itertools.count()
MANY: dict[str, object] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "InProcessLockProvider",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}


class FarStore(WrapperStore):
    """A store that is far away: writes down what the writer's own thread does while it holds the lock."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.is_held = False
        self.under_the_lock: list[str] = []
        self.beside: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, low_latency=False)

    def _note(self, kind: str, name: str) -> None:
        if self.is_held:
            own = threading.current_thread() is threading.main_thread()
            steps = self.under_the_lock if own else self.beside
            steps.append(f"{kind} {name.rpartition('.')[2] if 'timeline' in name else name[:18]}")

    def perform(self, step: Step[T]) -> T:
        self._note(step.kind, step.name)
        return step.run()

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        self._note(kind, name)
        return run()


def rows(city: str, n: int) -> pa.Table:
    return pa.table({"id": [city], "city": [city], "n": [n]})


def test_a_write_puts_its_request_and_its_commit_and_its_claim_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(f"under-the-lock-{next(NUMBERS)}")
    far = FarStore(store)
    real = InProcessLock.hold

    @contextmanager
    def hold(lock: InProcessLock) -> Iterator[Lease]:
        with real(lock) as lease:
            far.is_held = True
            try:
                yield lease
            finally:
                far.is_held = False

    other = lakefmt.create_table(
        store.url, schema=rows("a", 0).schema, record_key="id", partition_by="city", options=MANY
    )
    other.upsert(pa.concat_tables([rows("a", 0), rows("b", 0)]))
    table = Table(TableClient(far, MANY))
    table.upsert(rows("a", 1))
    other.upsert(rows("b", 1))  # somebody else's commit, which has to be read
    monkeypatch.setattr(InProcessLock, "hold", hold)
    sleep(0.02)  # a claim of the very millisecond in which the other commit completed would be given up
    table.upsert(rows("a", 2))
    # Of all that is read the rival's commit alone, as nothing else is to be read with it.
    assert far.under_the_lock == ["read commit", "put_if_absent requested", "put_if_absent commit"]
    assert "put_if_absent .hoodie/.heartbeat" in far.beside
    assert sorted(other.read()["n"].to_pylist()) == [1, 2]
