"""On object stores a write claims its time beside the listing, and becomes inflight beside its marker; a file comes after both."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import TypeVar

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.values import SystemClock
from lakefmt._core.write import context
from lakefmt._core.write.files import base_file
from lakefmt.errors import SchemaMismatch, StorageError
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.store_wrapper import SimulatedCrash, Step
from tests.storage.tree_store import TreeStore

T = TypeVar("T")

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
WAITS_SECONDS = 5


def rows(ts: int) -> pa.Table:
    return pa.table({"id": ["a", "b"], "ts": [ts, ts]}, SCHEMA)


def make(name: str) -> MemoryStore:
    store = MemoryStore(name)
    lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", ordering="ts").upsert(rows(1))
    return store


def over(store: MemoryStore | TreeStore, **client: SystemClock) -> Table:
    options = {"hoodie.client.heartbeat.tolerable.misses": 0}
    return Table(TableClient(store, options, metadata_listing=ListingByMetadata(), **client))  # type: ignore[arg-type]


def claims(store: MemoryStore) -> list[str]:
    return [info.name for info in store.list(".hoodie/.heartbeat")]


class SlowInflight(TreeStore):
    """Answers the request for the inflight file only when the marker is there, and no data file comes; then, or never.

    Args:
        inner: what is wrapped.
        error: raised in place of the request.
    """

    def __init__(self, inner: MemoryStore, error: BaseException | None = None) -> None:
        super().__init__(inner)
        self.order: list[str] = []
        self._marked = threading.Event()
        self._written = threading.Event()
        self._error = error

    def perform(self, step: Step[T]) -> T:
        if step.name.endswith(".inflight") and "rollback" not in step.name:
            assert self._marked.wait(WAITS_SECONDS)
            self._written.wait(0.2)
            if self._error is not None:
                raise self._error
        result = super().perform(step)
        self.order.append(step.name)
        if ".marker." in step.name:
            self._marked.set()
        elif step.name.endswith(".parquet"):
            self._written.set()
        return result

    def place(self, part: str) -> int:
        return next(place for place, name in enumerate(self.order) if part in name)

    @property
    def first_file(self) -> int:
        return next(place for place, name in enumerate(self.order) if name.endswith(".parquet"))


def test_a_file_comes_after_its_marker_and_the_inflight_file() -> None:
    below = make("ordered")
    store = SlowInflight(below)
    over(store).upsert(rows(2))
    order = [*map(store.place, (".heartbeat/", ".requested", ".marker.", ".inflight")), store.first_file]
    assert order == sorted(order), store.order
    assert over(below).read()["ts"].to_pylist() == [2, 2]
    assert not claims(below)


def test_without_waiting_the_file_would_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twin: a rollback by Hudi removes no file of an instant that was only requested."""
    store = SlowInflight(make("unordered"))
    prepare = context.prepare

    def at_once(bound: base_file.BoundContext, *arguments: object, **named: object) -> bool:
        inflight, bound.inflight = bound.inflight, None
        try:
            return prepare(bound, *arguments, **named)  # type: ignore[arg-type]
        finally:
            bound.inflight = inflight

    monkeypatch.setattr(base_file, "prepare", at_once)
    over(store).upsert(rows(2))
    assert store.first_file < store.place(".inflight")


def test_a_write_that_does_not_become_inflight_is_undone() -> None:
    below = make("refused")
    store = SlowInflight(below, StorageError("no"))
    with pytest.raises(StorageError, match="no"):
        over(store).upsert(rows(2))
    assert not [name for name in store.order if name.endswith(".parquet")]
    assert not claims(below)
    assert not [*below.list(".hoodie/.temp")]
    table = over(below)
    assert not table.client.load().timeline.pending
    assert table.read()["ts"].to_pylist() == [1, 1]


def test_a_death_between_the_marker_and_the_inflight_file_is_rolled_back() -> None:
    below = make("dead")
    with pytest.raises(SimulatedCrash):
        over(SlowInflight(below, SimulatedCrash())).upsert(rows(2))
    assert [str(pending).split()[1:] for pending in over(below).client.load().timeline.pending] == [
        ["commit", "requested"]
    ]
    assert [*below.list(".hoodie/.temp")], "its marker is there"
    table = over(below)
    assert table.read()["ts"].to_pylist() == [1, 1]
    table.upsert(rows(3))
    assert table.read()["ts"].to_pylist() == [3, 3]
    check_invariants(table)
    check_no_orphans(table)


class Ahead(SystemClock):
    """Goes an hour ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


def test_a_claim_that_is_not_above_the_timeline_is_given_up() -> None:
    """The clock of another writer goes ahead of ours: the claim was made before its commit was seen."""
    below = make("ahead")
    other = over(TreeStore(below), clock=Ahead()).upsert(rows(2))
    assert other.completion_time is not None
    store = TreeStore(below)
    table = over(store)
    table.client.load_config()
    result = table.upsert(rows(3))
    assert result.instant > other.completion_time
    assert not claims(below)
    assert sum("heartbeat" in asked and asked.startswith("put") for asked in store.requests) == 2
    assert over(below).read()["ts"].to_pylist() == [3, 3]
    store.requests.clear()
    table.upsert(rows(4))
    assert sum("heartbeat" in asked and asked.startswith("put") for asked in store.requests) == 1, "seen by now"


def test_a_refused_write_leaves_no_claim() -> None:
    below = make("mismatch")
    table = over(TreeStore(below))
    with pytest.raises(SchemaMismatch):
        table.upsert(pa.table({"id": ["a"], "ts": ["late"]}))
    assert not claims(below)
    assert not table.client.load().timeline.pending


def test_a_writer_that_wants_to_be_alone_does_not_sweep_its_own_claim() -> None:
    below = make("own")
    seen: list[list[str]] = []

    class Watching(TreeStore):
        def perform(self, step: Step[T]) -> T:
            if step.name.endswith(".parquet"):
                seen.append(claims(below))
            return super().perform(step)

    result = over(Watching(below)).upsert(rows(2))
    assert seen == [[f".hoodie/.heartbeat/{result.instant}"]]
