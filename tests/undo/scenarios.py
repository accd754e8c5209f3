"""Tables with a past, and copies of them."""

from __future__ import annotations

import itertools

import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.testing.multiset import multiset_difference
from tests.kit import SCHEMA

OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": "false",
    "hoodie.client.heartbeat.tolerable.misses": 0,
}
NUMBERS = itertools.count()


def make(version: int = 8, table_type: str = "cow", store: ObjectStore | None = None) -> Table:
    """Return a fresh table, in memory unless a store is given."""
    store = store or MemoryStore(f"undo-{next(NUMBERS)}")
    table = lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        table_version=version,
        options=OPTIONS,
    )
    return Table(TableClient(table.client.store, OPTIONS))


def copy(store: ObjectStore) -> MemoryStore:
    """Return a store with the same objects."""
    made = MemoryStore(f"undo-{next(NUMBERS)}")
    for found in store.list():
        made.put(found.name, store.read(found.name))
    return made


def over(store: ObjectStore) -> Table:
    """Open the table of a store."""
    return Table(TableClient(store, OPTIONS))


def same(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables hold the same rows."""
    return not multiset_difference(left, right)
