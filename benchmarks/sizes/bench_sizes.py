"""Large sizes of one thing, once: files, columns, partitions of a commit, keys to delete, a row, and a slow store.

Usage::

    python -m benchmarks.sizes.bench_sizes files --size 100000
    python -m benchmarks.sizes.bench_sizes columns --size 4000
    python -m benchmarks.sizes.bench_sizes partitions --size 10000
    python -m benchmarks.sizes.bench_sizes delete --size 1000000
    python -m benchmarks.sizes.bench_sizes row --size 100
    python -m benchmarks.sizes.bench_sizes slow --size 30

Of each step: seconds by the clock and of the processor, requests to the store where they are counted, and the largest memory that
the process has had so far, in MiB. Results are compared with what was written. ``row`` counts in MB, ``slow`` in milliseconds that
each request takes; the server shares the processors, so the same is measured where they take nothing, in turns, and then where one of
a hundred requests is answered by 503. Tables lie in a temporary folder (``TMPDIR``).
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakefmt
from benchmarks.harness.machine import describe
from benchmarks.page.large_table import make_large_table
from benchmarks.storage.bench_requests import BUCKET, counted_service
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table
from lakefmt.testing.stores import CountingStore


@contextmanager
def step(name: str, store: CountingStore | None = None) -> Iterator[None]:
    """Print what a step took."""
    if store is not None:
        store.reset()
    begin, used = time.perf_counter(), time.process_time()
    yield
    took, used = time.perf_counter() - begin, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    requests = "" if store is None else f"{len(store.log):8,} requests"
    print(f"{name:44}{took:9.3f} s {used:9.3f} s of processor {peak:7.0f} MiB{requests}", flush=True)


def counting(path: str) -> tuple[Table, CountingStore]:
    """Return a new handle on a table, and the store that counts."""
    store = CountingStore(open_store(path))
    return Table(TableClient(store, {}, metadata_listing=ListingByMetadata())), store


def same(found: object, expected: object) -> None:
    """End unless two values are the same."""
    if found != expected:
        raise SystemExit(f"{found!r:.200}, where {expected!r:.200} is expected")


def files(folder: Path, size: int) -> None:
    """Open a table of many files and read one of its partitions, with the metadata table; clean it and check it."""
    path = folder / "t"
    with step(f"made: {size:,} files in 1,000 partitions"):
        make_large_table(path, max(1, size // 100), min(size, 100), is_readable=True)
    for word in ("without", "with"):
        if word == "with":
            with step("metadata table made"):
                lakefmt.open_table(str(path)).index.create("files")
        for time_of_process in ("first", "second"):
            with step(f"open + plan of a partition, {word}, {time_of_process}"):
                same(len(lakefmt.open_table(str(path)).file_groups(partitions=[{"day": "p0000"}])), -(-size // 1000))
            # The store that counts looks at each file that it lists; a table on a disk reads names alone.
            table, store = counting(str(path))
            table.file_groups(partitions=[{"day": "p0000"}])
            print(f"{'':44}{len(store.log):,} requests")
            table, store = counting(str(path))
            with step(f"open + read of a partition, {word}, {time_of_process}", store):
                found = table.read(columns=["id"], filter="day = 'p0000'")
            same(found.num_rows, -(-size // 1000))
            print(f"{'':44}of these {sum(each.name.endswith('.parquet') for each in store.log):,} to its data files")
    table, store = counting(str(path))
    with step("clean with nothing to do", store):
        table.clean()
    table, store = counting(str(path))
    with step("quick check", store):
        report = table.check()
    same(len(report.findings), 0)


def columns(folder: Path, size: int) -> None:
    """Write and read a table of many columns."""
    data = pa.table({"id": [f"k{n}" for n in range(100)]} | {f"c{n}": [float(n)] * 100 for n in range(size)})
    table = lakefmt.create_table(str(folder / "t"), schema=data.schema, record_key="id")
    for name, work in _wide(table, data):
        with step(name):
            work()
    same(table.count(), 100)


def _wide(table: Table, data: pa.Table) -> list[tuple[str, Callable[[], object]]]:
    few = data.slice(0, 10)
    return [
        (f"load of {data.num_columns:,} columns", lambda: table.bulk_insert(data)),
        ("upsert of 10 rows", lambda: table.upsert(few)),
        ("read", lambda: same(table.read().num_columns, data.num_columns)),
        ("read of one column", lambda: same(table.read(columns=["c7"]).num_rows, 100)),
        ("filter on one column", lambda: same(table.read(filter="c7 = 7").num_rows, 100)),
        (
            "filter on 50 columns",
            lambda: table.read(columns=["id"], filter=" and ".join(f"c{n} < 9" for n in range(50))),
        ),
    ]


def partitions(folder: Path, size: int) -> None:
    """Load one commit into many partitions."""
    keys = [f"k{n}" for n in range(2 * size)]
    data = pa.table({"id": keys, "part": [f"p{n % size:06}" for n in range(2 * size)], "v": list(range(2 * size))})
    lakefmt.create_table(str(folder / "t"), schema=data.schema, record_key="id", partition_by="part")
    table, store = counting(str(folder / "t"))
    with step(f"load into {size:,} partitions", store):
        table.bulk_insert(data)
    with step("plan of one of them", store):
        same(len(table.file_groups(partitions=[{"part": "p000001"}])), 1)
    with step("read", store):
        same(table.read().num_rows, 2 * size)


def delete(folder: Path, size: int) -> None:
    """Delete many keys, given as a file."""
    data = pa.table({"id": pa.array(range(2 * size)).cast(pa.string()), "v": pa.array(range(2 * size))})
    pq.write_table(data.select(["id"]).slice(0, size), folder / "keys.parquet")
    table = lakefmt.create_table(str(folder / "t"), schema=data.schema, record_key="id")
    with step(f"load of {2 * size:,} rows"):
        table.bulk_insert(data)
    with step(f"delete of {size:,} keys of a file"):
        done = table.delete(pq.read_table(folder / "keys.parquet"))
    same((done.num_deletes, table.count()), (size, size))


def row(folder: Path, size: int) -> None:
    """Write and read a row of many MB."""
    data = pa.table({"id": ["large", "small"], "v": pa.array([b"x" * (size * 10**6), b"y"], pa.large_binary())})
    for kind in ("cow", "mor"):
        table = lakefmt.create_table(str(folder / kind), schema=data.schema, record_key="id", table_type=kind)
        for number in range(2):
            with step(f"{kind}: upsert {number + 1} of a row of {size:,} MB"):
                table.upsert(data)
        with step(f"{kind}: read"):
            same(table.read().sort_by("id")["v"][0].as_py(), data["v"][0].as_py())


def slow(folder: Path, size: int) -> None:
    """Load, append and read on a store whose requests take long, and on the same store where they do not, in turns."""
    wait = [0.0]
    took: dict[str, dict[float, list[float]]] = {}
    load, base = _slow_rows(), f"s3://{BUCKET}/lake"

    def measured(name: str, act: Callable[[], object]) -> None:
        begin = time.perf_counter()
        act()
        took.setdefault(name, {}).setdefault(wait[0], []).append(time.perf_counter() - begin)

    with counted_service(lambda: wait[0]) as (options, _):
        given: dict[str, Any] = {"storage_options": options}
        for turn in range(2 * _TURNS):
            # Which comes first changes, too.
            wait[0] = size / 1000 if turn % 4 in (1, 2) else 0.0
            path = f"{base}/t{turn}"
            table = lakefmt.create_table(path, schema=load.schema, record_key="id", partition_by="place", **given)
            measured("load of 30 partitions", lambda: table.bulk_insert(load))  # noqa: B023 - called at once
            for number in range(5):
                measured("append of 100 rows", partial(table.insert, _few_rows(number)))
            measured(
                "open and read of one partition",
                lambda: same(lakefmt.open_table(path, **given).read(filter="place = 'p02'").num_rows, 100),  # noqa: B023
            )
    print(f"medians of {_TURNS} turns; the difference is what the requests that wait for each other take:")
    for name, each in took.items():
        without, with_wait = median(each[0.0]), median(each[size / 1000])
        more = with_wait - without
        print(
            f"{name:34}{without:8.3f} s at 0 ms, {with_wait:8.3f} s at {size} ms: {more:6.3f} s more, {more / size * 1000:.1f} requests"
        )
    with counted_service(size / 1000, refused_each=100) as (options, requests):
        table = lakefmt.create_table(
            f"{base}/refused", schema=load.schema, record_key="id", partition_by="place", storage_options=options
        )
        table.bulk_insert(load)
        for number in range(15):
            measured("append, one of a hundred refused", partial(table.insert, _few_rows(number)))
        same(table.count(), 4500)
        times = took["append, one of a hundred refused"][wait[0]]
        print(
            f"appends, one of a hundred requests refused: median {median(times):.3f} s, largest {max(times):.3f}, {len(requests)} requests"
        )


#: How often each is measured.
_TURNS = 3


def _slow_rows() -> pa.Table:
    places = [f"p{n:02}" for n in range(30)]
    return pa.table({"id": [f"k{n}" for n in range(3000)], "place": places * 100, "v": list(range(3000))})


def _few_rows(number: int) -> pa.Table:
    return pa.table({"id": [f"n{number}-{n}" for n in range(100)], "place": ["p01"] * 100, "v": list(range(100))})


SIZES: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "files": (files, 100_000),
    "columns": (columns, 4_000),
    "partitions": (partitions, 10_000),
    "delete": (delete, 1_000_000),
    "row": (row, 100),
    "slow": (slow, 30),
}


def main() -> None:
    """Measure one of the sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=SIZES)
    parser.add_argument("--size", type=int, default=0, help="how many; 0: as many as the documentation has")
    given = parser.parse_args()
    measure, usual = SIZES[given.what]
    with tempfile.TemporaryDirectory() as folder:
        print(describe(Path(folder)))
        measure(Path(folder), given.size or usual)


if __name__ == "__main__":
    main()
