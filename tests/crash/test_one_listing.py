"""A writer that lists all of ``.hoodie`` with one request dies at every effect; the next one finds what it left."""

from __future__ import annotations

import functools

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import FaultStore
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import DIES, Ending, endings_of_run, sweep
from tests.kit import product_or_diagonal
from tests.storage.tree_store import TreeStore

OPTIONS: dict[str, object] = {"lakefmt.write.threads": 1, "hoodie.client.heartbeat.tolerable.misses": 0}
EVERY_ROW = pa.table({"id": [f"k{n}" for n in range(12)], "city": ["sf", "oslo", "rome"] * 4, "ts": [9] * 12})


def rows(first: int, last: int, ts: int) -> pa.Table:
    return EVERY_ROW.slice(first, last - first).set_column(2, "ts", pa.array([ts] * (last - first)))


def over(origin: Repeatable, store: ObjectStore, process: int = 0) -> Table:
    """Return a handle on a copy of a table."""
    return origin.table(TreeStore(store), OPTIONS, process, metadata_listing=ListingByMetadata())


@functools.cache
def made(*, metadata: bool) -> Repeatable:
    """A table with files in two of three partitions, and a handle that has not written before."""
    store = MemoryStore(f"one-listing-{metadata}")
    table = lakefmt.create_table(
        store.url,
        schema=EVERY_ROW.schema,
        record_key="id",
        partition_by="city",
        ordering="ts",
        options={**OPTIONS, "hoodie.metadata.enable": metadata},
    )
    table.upsert(rows(0, 2, ts=1))
    return Repeatable(store)


@pytest.mark.slow
@pytest.mark.timeout(300)
@product_or_diagonal(
    # One process asks all endings of a table: it knows the states that it has checked.
    metadata=[
        pytest.param(metadata, id=name, marks=pytest.mark.xdist_group(f"one-listing-{metadata}"))
        for metadata, name in ((False, "without"), (True, "with the metadata table"))
    ],
    ending=endings_of_run(also=[DIES]),
)
def test_before_or_after_and_no_orphan(metadata: bool, ending: Ending) -> None:
    origin = made(metadata=metadata)
    before = over(origin, origin.copy()).read()
    whole = FaultStore(origin.copy())
    over(origin, whole).upsert(rows(1, 6, ts=2))
    after = over(origin, whole).read()
    assert len(whole.effects) >= (18 if metadata else 10)
    call = lambda store: over(origin, store).upsert(rows(1, 6, ts=2))  # noqa: E731
    for left in sweep(origin, call, len(whole.effects), ending):
        healthy = over(origin, left.store, process=1)
        seen = healthy.read()
        assert not multiset_difference(seen, before) or not multiset_difference(seen, after), left.story
        healthy.upsert(EVERY_ROW)
        assert not multiset_difference(healthy.read(), EVERY_ROW), left.story
        check_invariants(healthy)
        check_no_orphans(healthy)
