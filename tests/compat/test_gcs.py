"""The whole thread on Google Cloud Storage: conditional puts by generation, no directories, no rename."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import TableExists
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.suites import together
from tests.compat.lock_objects import PROVIDER, assert_lock_object_is_kept
from tests.judges.compare import assert_same_multiset
from tests.judges.gcs import gcs_options, gcs_service

pytestmark = [pytest.mark.gcs, pytest.mark.newest_only("older releases of gcsfs know no conditions")]

BUCKETS = itertools.count()
LOCKED = {**PROVIDER, "hoodie.write.concurrency.mode": "optimistic_concurrency_control"}


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with gcs_service() as endpoint:
        yield endpoint


@pytest.fixture
def gcs(service: str) -> tuple[str, dict[str, Any]]:
    """A fresh bucket, and the options that reach it."""
    import gcsfs

    options, bucket = gcs_options(service), f"lake-{next(BUCKETS)}"
    fs = gcsfs.GCSFileSystem(**options, skip_instance_cache=True)
    fs.call("POST", "b", json={"name": bucket}, project="made-up", json_out=True)
    return f"gs://{bucket}/trips", options


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    columns = [[f"k{n}" for n in numbers], [("sf", "são paulo")[n % 2] for n in numbers], [ts] * len(numbers)]
    return pa.table(columns, pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())]))


def test_the_thread_on_google_cloud_storage(gcs: tuple[str, dict[str, Any]]) -> None:
    url, options = gcs
    table = lakefmt.create_table(
        url, data=rows(0, 1, 1), record_key="id", partition_by="city", ordering="ts", storage_options=options
    )
    assert table.client.store.capabilities.put_if_absent
    with pytest.raises(TableExists):
        lakefmt.create_table(url, data=rows(0, 1, 1), record_key="id", storage_options=options)
    first = table.upsert(rows(0, 10, 1))
    other = lakefmt.open_table(url, storage_options=options)
    assert other.upsert(rows(5, 15, 2)).num_updates == 5
    assert_same_multiset(table.read(), pa.concat_tables([rows(0, 5, 1), rows(5, 15, 2)]), what="another handle's write")
    assert table.delete(["k0"]).num_deletes == 1
    assert_same_multiset(table.read(as_of=first.instant), rows(0, 10, 1), what="time travel")
    assert table.read(filter=[("city", "=", "sf")]).num_rows == 7
    check_invariants(table)
    names = [item.name for item in table.client.store.list()]
    assert not [n for n in names if n.startswith((".hoodie/.temp/", ".hoodie/.heartbeat/"))]


def test_hudis_lock_object_on_google_cloud_storage(gcs: tuple[str, dict[str, Any]]) -> None:
    url, options = gcs
    assert_lock_object_is_kept(url, options, rows)


def test_writers_at_once_lose_nothing(gcs: tuple[str, dict[str, Any]]) -> None:
    url, options = gcs
    schema = rows(0, 0, 1).schema
    lakefmt.create_table(url, schema=schema, record_key="id", ordering="ts", storage_options=options)

    def write(first: int) -> int:
        table = lakefmt.open_table(url, storage_options=options, options=LOCKED)
        return table.upsert(rows(first, first + 10, 1)).num_inserts

    assert sum(together([lambda n=n: write(10 * n) for n in range(4)])) == 40
    table = lakefmt.open_table(url, storage_options=options)
    assert_same_multiset(table.read(), rows(0, 40, 1), what="all four")
    check_invariants(table)
