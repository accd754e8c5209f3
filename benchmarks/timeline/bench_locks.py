"""What a lock costs: take it, prove it, give it back; p50 and p95 per provider, on a local disk and in memory.

Usage::

    python benchmarks/timeline/bench_locks.py [--rounds 500]

Services (ZooKeeper, DynamoDB, Hive) cost what their network does and are left out. Each line is one lock held by one thread
that nobody disputes; ``requests`` is how many effects and reads one round sends to the store.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from lakefmt._core.storage import LocalStore, MemoryStore
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.locks.api import TableLock
from lakefmt._core.timeline.locks.open import LockOptions, open_lock
from lakefmt.testing.stores import CountingStore

PROVIDERS = ("", "InProcessLockProvider", "FileSystemBasedLockProvider", "StorageBasedLockProvider")


def stores() -> Iterator[tuple[str, Callable[[], ObjectStore]]]:
    numbers = itertools.count()
    folder = tempfile.mkdtemp(prefix="lakefmt-bench-")
    yield "local disk", lambda: LocalStore(f"{folder}/{next(numbers)}")
    yield "memory", MemoryStore


def once(lock: TableLock) -> float:
    begin = time.perf_counter()
    with lock.hold() as lease:
        lease.check()
    return (time.perf_counter() - begin) * 1000


def requests(store: ObjectStore, provider: str) -> int:
    counting = CountingStore(store)
    lock = open_lock(counting, LockOptions(provider or None), "bench")
    once(lock)
    counting.reset()
    once(lock)
    return len(counting.log)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=500)
    rounds = parser.parse_args().rounds
    print("| store | provider | p50 ms | p95 ms | requests |")
    print("|---|---|---|---|---|")
    for where, make in stores():
        for provider in PROVIDERS:
            lock = open_lock(make(), LockOptions(provider or None), "bench")
            once(lock)
            taken = sorted(once(lock) for _ in range(rounds))
            p95 = taken[int(len(taken) * 0.95) - 1]
            name = provider or "none named"
            print(f"| {where} | {name} | {statistics.median(taken):.3f} | {p95:.3f} | {requests(make(), provider)} |")


if __name__ == "__main__":
    main()
