"""A compaction that is held at one of its effects while two deltacommits are made beside it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore, ObjectStore
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.table import Table
from lakefmt.testing.model import ModelTable, Row
from lakefmt.testing.stores import FaultMode, FaultStore, FreezeStore, SimulatedCrash, fail_at, no_faults

OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "lakefmt.write.threads": 1,
    "hoodie.archive.automatic": False,
}
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
PATIENCE = 60.0
NUMBERS = itertools.count()
SCENES: dict[int, MemoryStore] = {}


def some(*keys: str, ts: int, v: float, city: str = "sf") -> list[Row]:
    return [{"id": key, "city": city, "ts": ts, "v": v} for key in keys]


def arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=SCHEMA)


class Later:
    """A clock by which every heartbeat has expired."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=1)


class Impatient(SystemTimeSource):
    """Tells when somebody has to wait for the table lock."""

    def __init__(self, waits: threading.Event) -> None:
        self._waits = waits

    def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
        if lock.acquire(blocking=False):
            return True
        self._waits.set()
        return lock.acquire(timeout=seconds)


class Story:
    """A table with something to compact, its store, and the model of what it should hold.

    Parameters:
        version: the table's; alike ones are made once and copied object by object.
    """

    def __init__(self, version: int) -> None:
        scene = SCENES.get(version) or SCENES.setdefault(version, _made(version))
        self.store = MemoryStore(f"held-{next(NUMBERS)}")
        for found in scene.list():
            self.store.put(found.name, scene.read(found.name))
        self.model = ModelTable("id", "city", "ts")
        for verb, given in BEFORE:
            getattr(self.model, verb)(given)

    def open(self, store: ObjectStore | None = None, **client: Any) -> Table:
        """Open the table, through another store or with another clock."""
        return Table(TableClient(store or self.store, OPTIONS, **client))

    def deltas(self, time_source: SystemTimeSource | None = None) -> None:
        """Two deltacommits in the file groups being compacted: newer rows, a late one, a delete, new keys."""
        table = self.open(time_source=time_source or SystemTimeSource())
        table.upsert(arrow(DELTA))
        table.delete(["b", "o2"])

    def with_deltas(self) -> None:
        """The same for the model."""
        self.model.upsert(DELTA)
        self.model.delete(["b", "o2"])

    def dump(self, root: Path) -> Path:
        """Put the table on a disk, where other engines can read it."""
        for found in self.store.list():
            path = root / found.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.store.read(found.name))
        return root

    @property
    def expected(self) -> pa.Table:
        """The rows of the model."""
        return arrow(self.model.rows())


BEFORE: list[tuple[str, Any]] = [
    ("upsert", some("a", "b", "c", "d", ts=1, v=0.0) + some("o1", "o2", ts=1, v=0.0, city="oslo")),
    ("upsert", some("a", "e", ts=3, v=1.0) + some("o1", ts=3, v=1.0, city="oslo")),
    ("delete", ["d"]),
]
DELTA = some("a", "new", ts=5, v=2.0) + some("c", ts=0, v=9.0) + some("o1", "fresh", ts=4, v=2.0, city="oslo")


def _made(version: int) -> MemoryStore:
    store = MemoryStore(f"held-{next(NUMBERS)}")
    table = lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="mor",
        table_version=version,
        options=OPTIONS,
    )
    for verb, given in BEFORE:
        getattr(table, verb)(arrow(given) if verb == "upsert" else given)
    return store


def count_effects(version: int, act: Callable[[Table], object]) -> int:
    """Return how many effects a service has when nobody disturbs it."""
    story = Story(version)
    store = FaultStore(story.store, no_faults)
    act(story.open(store))
    return len(store.effects)


def hold(story: Story, act: Callable[[Table], object], at: int, *, dies: FaultMode | None = None) -> bool:
    """Hold a service at effect `at` until two deltacommits are done or wait for its lock; then let it go on, or die.

    Returns:
        True when the deltacommits were done before the service went on.
    """
    waits = threading.Event()
    frozen = FreezeStore(FaultStore(story.store, fail_at(at, dies) if dies else no_faults), at=at)
    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(act, story.open(frozen))
        try:
            assert frozen.wait_until_frozen(PATIENCE), f"there is no effect {at}"
            beside = pool.submit(story.deltas, Impatient(waits))
            beside.add_done_callback(lambda _: waits.set())
            assert waits.wait(PATIENCE)
            done = beside.done()
        finally:
            frozen.release()
        try:
            held.result(PATIENCE)
            assert dies is None, "it should have died"
        except SimulatedCrash:
            assert dies is not None
        beside.result(PATIENCE)
    story.with_deltas()
    return done
