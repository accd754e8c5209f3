"""Requests that verbs cost on S3, counted by moto's server on the loopback address: 30 partitions, small files.

Usage::

    python -m benchmarks.storage.bench_requests [--delay MILLISECONDS]

Prints a table with the metadata table off and on: requests, and the longest chain of requests that wait for each other. A
request is one message of HTTP that reached the server, whatever it asks. With a delay for each of them, the seconds that the
steps take by the clock are printed, too.
Needs s3fs and moto (``lakefmt[s3,test]``).
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

import lakefmt
from benchmarks.storage.request_depth import RequestClock
from benchmarks.storage.s3_server import options_of, s3_server

PARTITIONS, FILES_OF_ONE = 30, 8
#: Of the table that is read: 30 files of the load, 7 more in one partition, one more in each of 29.
FILES = PARTITIONS + FILES_OF_ONE - 1 + PARTITIONS - 1
BUCKET = "counted"


@dataclass(frozen=True)
class Step:
    """One step: its requests in the order of arrival, how many of them wait for each other, and the seconds it took."""

    requests: list[str]
    depth: int
    counted_by_clock: int
    seconds: float


@contextmanager
def counted_service(
    delay_seconds: float | Callable[[], float] = 0.0, refused_each: int = 0
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the options of a service on this machine, and the list that grows by every request it gets.

    Args:
        delay_seconds: that each request takes; a function is asked at each of them.
        refused_each: one of so many requests is answered by 503; 0: none.
    """
    import s3fs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_server() as server:
        application, requests = server._server.app, []

        def gate(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}")
            wait = delay_seconds() if callable(delay_seconds) else delay_seconds
            if wait:
                time.sleep(wait)
            if refused_each and len(requests) % refused_each == 0:
                start_response("503 Slow Down", [("Content-Type", "application/xml")])
                return [b"<Error><Code>SlowDown</Code><Message>reduce your rate</Message></Error>"]
            return application(environ, start_response)

        options = options_of(server)
        s3fs.S3FileSystem(**options, skip_instance_cache=True).call_s3("create_bucket", Bucket=BUCKET)
        server._server.app = gate
        yield options, requests


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


def measure(storage_options: dict[str, Any], requests: list[str], *, metadata: bool) -> dict[str, Step]:
    """Return the requests of each step on a new table."""
    clock = RequestClock()
    with clock.installed():
        return _measure(storage_options, requests, clock, metadata=metadata)


def _measure(
    storage_options: dict[str, Any], requests: list[str], clock: RequestClock, *, metadata: bool
) -> dict[str, Step]:
    url = f"s3://{BUCKET}/{'with' if metadata else 'without'}"
    steps: dict[str, Step] = {}

    def step(name: str, act: Callable[[], Any]) -> Any:
        requests.clear()
        begun, counted, seconds = clock.now, clock.requests, time.perf_counter()
        result = act()
        seconds = time.perf_counter() - seconds
        steps[name] = Step([*requests], clock.now - begun, clock.requests - counted, seconds)
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
        before = steps.pop(name, None)
        step(name, partial(table.insert, rows(30_000 + 100 * number, 100, partition=7)))
        steps[name] = min(filter(None, (before, steps[name])), key=lambda each: len(each.requests))
    table.upsert(rows(30_000, 10, partition=7, ts=2))
    step("upsert of 10 rows, one partition, warm", lambda: table.upsert(rows(30_010, 10, partition=7, ts=2)))
    return steps


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds that each request takes")
    delay = parser.parse_args().delay / 1000
    with counted_service(delay) as (options, requests):
        off, on = (measure(options, requests, metadata=metadata) for metadata in (False, True))
    print("| step | metadata table off | on | in a row, off | on |" + (" seconds, off | on |" if delay else ""))
    print("|---|---|---|---|---|" + ("---|---|" if delay else ""))
    for name, one in off.items():
        other = on[name]
        timed = f" {one.seconds:.2f} | {other.seconds:.2f} |" if delay else ""
        counts = f"{len(one.requests)} | {len(other.requests)} | {one.depth} | {other.depth}"
        print(f"| {name} | {counts} |{timed}")


if __name__ == "__main__":
    main()
