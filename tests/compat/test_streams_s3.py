"""A stream over an object store: its process is gone, and another machine goes on (RS-3, RS-32)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import lakefmt
from benchmarks.storage.s3_server import options_of, s3_server
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.segments.codec import list_streams
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table
from lakefmt.testing.virtual_time import Process, VirtualTime
from tests.producers.stream.stream_kit import PLAIN, kill

pytestmark = pytest.mark.s3
BUCKETS = itertools.count()


@pytest.fixture
def s3() -> Iterator[tuple[str, dict[str, Any]]]:
    """A fresh bucket of a service on this machine, and the options that reach it."""
    s3fs = pytest.importorskip("s3fs")
    bucket = f"streams-{next(BUCKETS)}"
    with s3_server() as server:
        options = options_of(server)
        s3fs.S3FileSystem(**options, skip_instance_cache=True).call_s3("create_bucket", Bucket=bucket)
        yield f"s3://{bucket}/trips", options


def test_rs_3_rs_32_another_machine_goes_on(s3: tuple[str, dict[str, Any]]) -> None:
    url, options = s3
    lakefmt.create_table(url, schema=PLAIN, storage_options=options)
    store, clock = open_store(url, options), VirtualTime()

    def machine() -> Table:
        client = TableClient(store)
        client.time_source = Process(clock)
        return Table(client)

    first = machine().open_stream(writer_id="w", lease_interval_ms=600_000)
    first.extend({"v": number} for number in range(5))
    first.mark(5)
    first.flush()
    assert machine().read().num_rows == 0
    assert machine().read(include_uncommitted=True).num_rows == 5
    (found,) = machine().recover_streams()
    assert found.left  # its claim is fresh: it may be alive
    kill(first)
    with machine().open_stream(writer_id="w") as second:
        assert second.last_committed is not None
        assert second.last_committed.offset == 5
        second.extend({"v": number} for number in range(5, 8))
    assert sorted(machine().read()["v"].to_pylist()) == list(range(8))
    assert list_streams(store) == ["w"]
