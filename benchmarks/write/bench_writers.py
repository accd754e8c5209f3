"""Several writers of one table on a store with 20 ms latency: commits per second, conflicts, and who waits how long.

Usage::

    python benchmarks/write/bench_writers.py [--writers 8] [--commits 12]

Real threads and real time: each writer has a handle of its own, its store sleeps 20 ms before every effect and after every
read, and all of them share one lock (in-process, so that the lock itself costs nothing). *Disjoint*: each writer has a file
group of its own. *One file group*: all of them change the same one; then only one can complete at a time, and what is shown
is that everybody comes through.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time

import pyarrow as pa

import lakefmt
from lakefmt.filegroups.access import TableAccess
from lakefmt.storage.memory import MemoryStore
from lakefmt.storage.pacing import SystemPacing
from lakefmt.table import Table
from lakefmt.testing.stores import DelayStore

NUMBERS = itertools.count()
LATENCY = 0.02
MANY: dict[str, object] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.archive.automatic": False,
    "hoodie.clean.automatic": False,
    "hoodie.write.lock.wait_time_ms": 600_000,
    "hoodie.write.num.retries.on.conflict.failures": 1000,
}


class Counting(SystemPacing):
    """Counts how often its writer lost."""

    def __init__(self) -> None:
        self.lost = 0

    def sleep(self, seconds: float) -> None:
        self.lost += 1
        super().sleep(seconds)


def rows(writer: int, number: int, city: str) -> pa.Table:
    return pa.table({"id": [f"w{writer}"], "city": [city], "n": [number]})


def play(writers: int, commits: int, *, disjoint: bool) -> None:
    store = MemoryStore(f"writers-{next(NUMBERS)}")
    schema = rows(0, 0, "").schema
    first = lakefmt.create_table(store.url, schema=schema, record_key="id", partition_by="city", options=MANY)
    cities = [f"city {n}" if disjoint else "one" for n in range(writers)]
    first.upsert(pa.concat_tables([rows(n, 0, city) for n, city in enumerate(cities)]))
    pacings = [Counting() for _ in range(writers)]
    tables = [Table(TableAccess(DelayStore(store, time.sleep), MANY, pacing=pacing)) for pacing in pacings]
    taken: list[list[float]] = [[] for _ in range(writers)]
    go = threading.Barrier(writers + 1)

    def work(writer: int) -> None:
        go.wait()
        for number in range(commits):
            begin = time.perf_counter()
            tables[writer].upsert(rows(writer, number + 1, cities[writer]))
            taken[writer].append(time.perf_counter() - begin)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    go.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    assert sorted(first.read()["n"].to_pylist()) == [commits] * writers, "a write was lost"
    each = [sum(of) for of in taken]
    every = [one for of in taken for one in of]
    kind = "disjoint" if disjoint else "one file group"
    print(
        f"| {kind} | {writers} | {writers * commits / seconds:.2f} | {statistics.median(every):.2f} | {max(every):.2f} | "
        f"{sum(p.lost for p in pacings)} | {max(p.lost for p in pacings)} | {min(each):.1f}–{max(each):.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--commits", type=int, default=12)
    asked = parser.parse_args()
    print("| file groups | writers | commits/s | p50 s | max s | lost attempts | most of one writer | s per writer |")
    print("|---|---|---|---|---|---|---|---|")
    for disjoint in (True, False):
        for writers in (1, asked.writers):
            play(writers, asked.commits, disjoint=disjoint)


if __name__ == "__main__":
    main()
