"""A key that a log has deleted is absent for one writer, and may be brought back by another in the same log: never twice."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import lakefmt
import lakefmt._core.write.commit.conflict_resolution as conflict_resolution
import lakefmt._core.write.transaction as transaction
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import CommitConflict
from tests.concurrency.green_threads import MANY
from tests.kit import product_or_diagonal

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def rows(city: str, n: int, *keys: str) -> pa.Table:
    return pa.table({"id": [*keys], "city": [city] * len(keys), "n": [n] * len(keys)}, schema=SCHEMA)


def insert_new(table: Table) -> object:
    return table.insert(rows("sf", 3, "a"), drop_duplicates=True)


def delete(table: Table) -> object:
    return table.delete(["a", "c"])


def partial(table: Table) -> object:
    return table.upsert(rows("sf", 3, "a").select(["id", "city"]), partial=True)


def move(table: Table) -> object:
    options = {"hoodie.index.type": "GLOBAL_BLOOM", "hoodie.bloom.index.update.partition.path": True}
    return table.upsert(rows("la", 3, "a"), options=options)


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize(
    ("write", "left"),
    [
        (insert_new, [("a", 2), ("c", 1)]),
        (delete, []),
        (partial, [("a", 2), ("c", 1)]),
        (move, [("a", 3), ("c", 1)]),
    ],
)
def test_a_write_that_takes_a_key_for_absent_minds_who_brings_it_back(version, write, left, monkeypatch):
    store = MemoryStore(f"deleted-{next(NUMBERS)}")
    first = lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type="mor",
        table_version=version,
        options=MANY,
    )
    first.insert(pa.concat_tables([rows("sf", 1, "a", "b"), rows("la", 1, "c")]))
    first.delete(["a"])
    rivals = [Table(TableClient(store, MANY))]
    real = transaction.complete_instant

    def after_a_rival(*given, **named):
        while rivals:
            rivals.pop().upsert(rows("sf", 2, "a"))
        return real(*given, **named)

    monkeypatch.setattr(transaction, "complete_instant", after_a_rival)
    write(Table(TableClient(store, MANY)))
    found = first.read()
    kept = sorted(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))
    assert kept == sorted([*left, ("b", 1)])


RECORD = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.record.index.max.filegroup.count": 1,
    "hoodie.index.type": "RECORD_INDEX",
}


@pytest.mark.parametrize("rival_index", ["RECORD_INDEX", "BLOOM"])
@pytest.mark.parametrize(
    ("write", "left"),
    [(insert_new, [("a", 2), ("c", 1)]), (delete, []), (partial, [("a", 2), ("c", 1)])],
)
def test_so_does_a_write_by_the_record_index(write, left, rival_index, monkeypatch):
    assert _beside_a_rival(write, rival_index, monkeypatch) == sorted([*left, ("b", 1)])


def test_without_asking_the_index_again_the_key_would_come_back(monkeypatch):
    monkeypatch.setattr(conflict_resolution, "_brought_in_logs", lambda *_: None)
    assert _beside_a_rival(delete, "BLOOM", monkeypatch) == [("a", 2), ("b", 1)]


def _beside_a_rival(write, rival_index, monkeypatch):
    """Rivals by the record index put the key into a new file, others into the log that deleted it."""
    options = {**MANY, **RECORD}
    store = MemoryStore(f"deleted-{next(NUMBERS)}")
    first = lakefmt.create_table(
        store.url, schema=SCHEMA, record_key="id", partition_by="city", table_type="mor", options=options
    )
    first.insert(pa.concat_tables([rows("sf", 1, "a", "b"), rows("la", 1, "c")]))
    first.delete(["a"])
    rivals = [Table(TableClient(store, {**options, "hoodie.index.type": rival_index}))]
    real = transaction.complete_instant

    def after_a_rival(*given, **named):
        while rivals:
            rivals.pop().upsert(rows("sf", 2, "a"))
        return real(*given, **named)

    monkeypatch.setattr(transaction, "complete_instant", after_a_rival)
    write(Table(TableClient(store, options)))
    found = first.read()
    return sorted(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


CONSISTENT = {"hoodie.bucket.index.num.buckets": "1", "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
INDEXES = {
    "bloom": ("bloom", {}),
    "global_simple": ("global_simple", {}),
    "record": ("record", {}),
    "bucket": ("bucket", {"hoodie.bucket.index.num.buckets": "1"}),
    "consistent": ("bucket", CONSISTENT),
}


@product_or_diagonal(index=list(INDEXES), version=[6, 8, 9])
@pytest.mark.parametrize("stored", [(), ("z",)])
@pytest.mark.parametrize("given", ["keys", "rows", "in steps"])
def test_a_key_that_is_nowhere_yet_is_gone_behind_its_delete(given, stored, version, index, monkeypatch):
    """Another write brings it in, in a file of its own or into the bucket of other keys, before the delete commits."""
    store, (name, properties) = MemoryStore(f"deleted-{next(NUMBERS)}"), INDEXES[index]
    first = lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type="mor",
        table_version=version,
        index=name,
        properties=properties,
        options=MANY,
    )
    first.insert(pa.concat_tables([rows("la", 1, "c"), rows("sf", 1, *stored)]))
    doomed = pa.concat_tables([rows("sf", 0, "a"), rows("la", 0, "c")])
    if given == "in steps":
        context = lowlevel.begin_write(first, "delete")
        statuses = [lowlevel.write_files(context, *each) for each in lowlevel.assign(context, doomed)]
        Table(TableClient(store, MANY)).upsert(rows("sf", 2, "a"))
        with pytest.raises(CommitConflict):
            lowlevel.commit(context, statuses)
        return
    rivals = [Table(TableClient(store, MANY))]
    real = transaction.complete_instant

    def after_a_rival(*given, **named):
        while rivals:
            rivals.pop().upsert(rows("sf", 2, "a"))
        return real(*given, **named)

    monkeypatch.setattr(transaction, "complete_instant", after_a_rival)
    first.delete(["a", "c"] if given == "keys" else doomed)
    assert sorted(first.read()["id"].to_pylist()) == sorted(stored)
