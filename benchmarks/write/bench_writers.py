"""Several writers of one table on a store with 20 ms latency: commits per second, conflicts, and who waits how long.

Usage::

    python benchmarks/write/bench_writers.py [--writers 8] [--commits 12]

Virtual time (``tests.simulation.green_clock``): every effect and every read of a writer takes 20 ms of a clock that only such waits
move, so the figures say how many of them a commit needs, and how many of them others wait for; computing costs nothing, and
the machine's mood does not count. Reads that one writer makes side by side take 20 ms together. All writers share one lock of
the process, so that the lock itself costs nothing.

*Disjoint*: each writer has a file
group of its own. *One file group*: all of them change the same one; then only one can complete at a time, and what is shown
is that everybody comes through.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

import lakefmt
import lakefmt._core.write.transaction as transaction
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.testing.stores import DelayStore
from lakefmt.testing.virtual_time import Process
from tests.simulation.green_clock import GreenletClock

NUMBERS = itertools.count()
MANY: dict[str, object] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "InProcessLockProvider",
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.archive.automatic": False,
    "hoodie.clean.automatic": False,
    "hoodie.write.lock.wait_time_ms": 600_000,
    "hoodie.write.num.retries.on.conflict.failures": 1000,
}


class Counting(Process):
    """Counts how often its writer began."""

    begun = 0

    def take(self, lock: threading.Lock, seconds: float) -> bool:
        while not lock.acquire(blocking=False):
            self.time.sleep(0.001 + 0.002 * self.jitter())
        return True


class Waiting:
    """Lets a request take its time; those of the threads of one pool take theirs beside each other, pools one by one."""

    def __init__(self, clock: GreenletClock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._beside: dict[str, float] = {}

    def __call__(self, seconds: float) -> None:
        if self._clock.is_turn:
            with self._guard:
                beside, self._beside = self._beside, {}
            self._clock.sleep(seconds + sum(beside.values()))
            return
        pool = threading.current_thread().name.rpartition("_")[0]  # Arrow's own threads have none: they are one
        with self._guard:
            self._beside[pool] = max(seconds, self._beside.get(pool, 0.0))


def counted(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return what begins a write, counting."""

    def begin(client: TableClient, *given: Any) -> Any:
        if isinstance(client.time_source, Counting):
            client.time_source.begun += 1
        return real(client, *given)

    return begin


def rows(writer: int, number: int, city: str) -> pa.Table:
    return pa.table({"id": [f"w{writer}"], "city": [city], "n": [number]})


def play(writers: int, commits: int, *, disjoint: bool) -> None:
    store = MemoryStore(f"writers-{next(NUMBERS)}")
    schema = rows(0, 0, "").schema
    first = lakefmt.create_table(store.url, schema=schema, record_key="id", partition_by="city", options=MANY)
    cities = [f"city {n}" if disjoint else "one" for n in range(writers)]
    first.upsert(pa.concat_tables([rows(n, 0, city) for n, city in enumerate(cities)]))
    clock = GreenletClock()
    pacings = [Counting(clock, n) for n in range(writers)]
    tables = [
        Table(TableClient(DelayStore(store, Waiting(clock)), MANY, time_source=time_source)) for time_source in pacings
    ]
    taken: list[list[float]] = [[] for _ in range(writers)]

    def work(writer: int) -> None:
        for number in range(commits):
            begin = clock.now
            tables[writer].upsert(rows(writer, number + 1, cities[writer]))
            taken[writer].append(clock.now - begin)

    clock.run([partial(work, writer) for writer in range(writers)])
    seconds = clock.now
    assert sorted(first.read()["n"].to_pylist()) == [commits] * writers, "a write was lost"
    each = [sum(of) for of in taken]
    every = [one for of in taken for one in of]
    kind = "disjoint" if disjoint else "one file group"
    print(
        f"| {kind} | {writers} | {writers * commits / seconds:.2f} | {statistics.median(every):.2f} | {max(every):.2f} | "
        f"{sum(p.begun - commits for p in pacings)} | {max(p.begun - commits for p in pacings)} | "
        f"{min(each):.1f}–{max(each):.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--commits", type=int, default=12)
    parser.add_argument("--only", choices=("disjoint", "one"))
    asked = parser.parse_args()
    transaction.begin_instant = counted(transaction.begin_instant)  # type: ignore[assignment]
    print("| file groups | writers | commits/s | p50 s | max s | lost attempts | most of one writer | s per writer |")
    print("|---|---|---|---|---|---|---|---|")
    for disjoint in [kind == "disjoint" for kind in ("disjoint", "one") if asked.only in (None, kind)]:
        for writers in (1, asked.writers):
            play(writers, asked.commits, disjoint=disjoint)


if __name__ == "__main__":
    main()
