"""The whole thread on S3: conditional puts, no directories, no rename, no cache between us and the store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from benchmarks.storage.s3_server import options_of, s3_server
from lakefmt.errors import TableExists, TableNotFound
from lakefmt.testing.invariants import check_invariants
from tests.compat.lock_objects import assert_lock_object_is_kept
from tests.judges.compare import assert_same_multiset

pytestmark = pytest.mark.s3
BUCKETS = itertools.count()


@pytest.fixture
def s3() -> Iterator[tuple[str, dict[str, Any]]]:
    """A fresh bucket of a service on this machine, and the options that reach it."""
    s3fs = pytest.importorskip("s3fs")
    bucket = f"lake-{next(BUCKETS)}"
    with s3_server() as server:
        options = options_of(server)
        s3fs.S3FileSystem(**options, skip_instance_cache=True).call_s3("create_bucket", Bucket=bucket)
        yield f"s3://{bucket}/trips", options


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{n}" for n in numbers],
            "city": [("sf", "são paulo")[n % 2] for n in numbers],
            "ts": [ts] * len(numbers),
        }
    )


def test_the_thread_on_s3(s3: tuple[str, dict[str, Any]]) -> None:
    url, options = s3
    table = lakefmt.create_table(
        url, data=rows(0, 1, 1), record_key="id", partition_by="city", ordering="ts", storage_options=options
    )
    with pytest.raises(TableExists):
        lakefmt.create_table(url, data=rows(0, 1, 1), record_key="id", storage_options=options)
    first = table.upsert(rows(0, 10, 1))
    other = lakefmt.open_table(url, storage_options=options)
    assert other.upsert(rows(5, 15, 2)).num_updates == 5
    assert_same_multiset(table.read(), pa.concat_tables([rows(0, 5, 1), rows(5, 15, 2)]), what="another handle's write")
    assert table.delete(["k0"]).num_deletes == 1
    assert_same_multiset(table.read(as_of=first.instant), rows(0, 10, 1), what="time travel")
    assert first.completion_time is not None
    assert table.incremental(first.completion_time).num_rows == 10
    assert table.read(filter=[("city", "=", "sf")]).num_rows == 7
    check_invariants(table)
    names = [item.name for item in table.client.store.list()]
    assert not [n for n in names if n.startswith((".hoodie/.temp/", ".hoodie/.heartbeat/"))]
    with pytest.raises(TableNotFound):
        lakefmt.open_table(url + "-not", storage_options=options)


def test_secrets_never_show(s3: tuple[str, dict[str, Any]]) -> None:
    import pickle

    from lakefmt import lowlevel

    url, options = s3
    table = lakefmt.create_table(url, data=rows(0, 1, 1), record_key="id", storage_options=options)
    context = lowlevel.begin_write(table)
    shown = [repr(table), str(table), repr(context), repr(table.client.store), pickle.dumps(context)]
    shown += [pickle.dumps(table), table.config.explain(), repr(table.properties)]
    lowlevel.abort(context)
    try:
        lakefmt.open_table(url.replace("lake-", "no-"), storage_options=options)
    except lakefmt.LakefmtError as error:
        shown.append(repr(error))
    assert not [s for s in shown if "very-secret-text" in str(s)]


@pytest.mark.newest_only("the oldest botocore has no If-Match; there the lock is refused with a typed error")
def test_hudis_lock_object_on_s3(s3: tuple[str, dict[str, Any]]) -> None:
    url, options = s3
    assert_lock_object_is_kept(url, options, rows)
