"""Requests that verbs cost on S3, counted by moto's server on the loopback address: 30 partitions, small files.

Usage::

    python -m benchmarks.storage.bench_requests

Prints a table with the metadata table off and on. A request is one message of HTTP that reached the server, whatever it asks.
Needs s3fs and moto (``lakefmt[s3,test]``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

import lakefmt

PARTITIONS, FILES_OF_ONE = 30, 8
#: Of the table that is read: 30 files of the load, 7 more in one partition, one more in each of 29.
FILES = PARTITIONS + FILES_OF_ONE - 1 + PARTITIONS - 1
BUCKET = "counted"


@contextmanager
def counted_service() -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the options of a service on this machine, and the list that grows by every request it gets."""
    import s3fs
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    application, requests = server._server.app, []

    def gate(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}")
        return application(environ, start_response)

    options = {
        "key": "made-up",
        "secret": "made-up",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"},
    }
    try:
        s3fs.S3FileSystem(**options, skip_instance_cache=True).call_s3("create_bucket", Bucket=BUCKET)
        server._server.app = gate
        yield options, requests
    finally:
        server.stop()


def rows(first: int, count: int, partition: int | None = None, ts: int = 1) -> pa.Table:
    """Return rows of one partition, or of all by turns."""
    numbers = range(first, first + count)
    places = [f"p{(number if partition is None else partition) % PARTITIONS:02d}" for number in numbers]
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "place": places,
            "ts": [ts] * count,
            "v": [number / 4 for number in numbers],
        }
    )


def measure(storage_options: dict[str, Any], requests: list[str], *, metadata: bool) -> dict[str, list[str]]:
    """Return the requests of each step on a new table."""
    url = f"s3://{BUCKET}/{'with' if metadata else 'without'}"
    found: dict[str, list[str]] = {}

    def step(name: str, act: Callable[[], Any]) -> Any:
        requests.clear()
        result = act()
        found[name] = [*requests]
        return result

    def opened() -> lakefmt.Table:
        return lakefmt.open_table(url, storage_options=storage_options)

    table = lakefmt.create_table(
        url,
        schema=rows(0, 1).schema,
        record_key="id",
        partition_by="place",
        ordering="ts",
        storage_options=storage_options,
        options={"hoodie.metadata.enable": metadata},
    )
    step("load into 30 partitions", lambda: table.bulk_insert(rows(0, 3000)))
    for number in range(FILES_OF_ONE - 1):
        table.bulk_insert(rows(10_000 + 100 * number, 100, partition=3))
    others = rows(20_000, 3000)
    table.bulk_insert(others.filter(pa.compute.field("place") != "p03"))
    cold = step("open", opened)
    step("read one partition, cold, 8 files", lambda: cold.read(filter=[("place", "=", "p03")]))
    cold = opened()
    assert step("read all, 66 files", cold.read).num_rows == 6_000 - 100 + 700
    cold = opened()
    step("increment over everything", lambda: cold.incremental("000"))
    # Every tenth commit compacts the metadata table, too: of three in a row two do not.
    for number in range(3):
        name = "append of 100 rows, one partition"
        before = found.pop(name, None)
        step(name, partial(table.insert, rows(30_000 + 100 * number, 100, partition=7)))
        found[name] = min(filter(None, (before, found[name])), key=len)
    table.upsert(rows(30_000, 10, partition=7, ts=2))
    step("upsert of 10 rows, one partition, warm", lambda: table.upsert(rows(30_010, 10, partition=7, ts=2)))
    return found


def main() -> None:
    """Print the table."""
    with counted_service() as (options, requests):
        counts = [measure(options, requests, metadata=metadata) for metadata in (False, True)]
    print("| step | metadata table off | on |\n|---|---|---|")
    for name in counts[0]:
        print(f"| {name} | {len(counts[0][name])} | {len(counts[1][name])} |")


if __name__ == "__main__":
    main()
