"""What optimistic concurrency costs: the conflict check, and a small append beside nobody.

Prints four figures: the check of one write against commits that completed since it began, whose bodies are read from the disk;
the same when every one of them added rows to the partition: keys of other ranges, as the commits tell, and keys of ranges that
overlap, so that the filters of all files are asked; and the median of a 100-row append with a single writer, and with optimistic
concurrency under Hudi's file-system lock, taken in turn so that the machine's mood is the same for both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from typing import Any

import pyarrow as pa

import lakefmt
import lakefmt._core.write.commit.transaction as conversation
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import LocalStore
from lakefmt._core.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
QUICK: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "hoodie.archive.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
}
MANY: dict[str, object] = {**QUICK, "hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
LOCKED: dict[str, object] = {**MANY, "hoodie.write.lock.provider": "FileSystemBasedLockProvider"}


def rows(count: int, first: int, city: str, step: int = 1) -> pa.Table:
    """Make rows of one partition."""
    numbers = range(first, first + step * count, step)
    return pa.table({"id": [f"k{n:09d}" for n in numbers], "city": [city] * count, "v": [*numbers]}, schema=SCHEMA)


def make(root: str) -> None:
    """Make an empty table."""
    lakefmt.create_table(root, schema=SCHEMA, record_key="id", partition_by="city", options=QUICK)


def check_seconds(root: str, rivals: int, mine: str, *, mixed: bool = False) -> tuple[float, float]:
    """Return seconds, and seconds of processor, of the check of a write into `mine` against commits into ``there``."""
    wide = 7000 if mixed else 1
    make(root)
    quick = {**MANY, "lakefmt.durability": "none"}
    table = Table(TableClient(LocalStore(root), quick))
    context = lowlevel.begin_write(table, "upsert")
    statuses = [
        lowlevel.write_files(context, a, b)
        for a, b in lowlevel.assign(context, rows(100, 500, mine, 1000 if mixed else 1))
    ]
    other = Table(TableClient(LocalStore(root), quick))
    for number in range(1, rivals + 1):
        other.insert(rows(20, number if mixed else number * 1000, "there", wide))
    real, took = conversation.resolve_conflicts, []

    def timed(*given: Any) -> Any:
        begin, cpu = time.perf_counter(), time.process_time()
        try:
            return real(*given)
        finally:
            took.append((time.perf_counter() - begin, time.process_time() - cpu))

    conversation.resolve_conflicts = timed  # type: ignore[assignment]
    try:
        lowlevel.commit(context, statuses)
    finally:
        conversation.resolve_conflicts = real
    return took[0]


def append_seconds(root: str, rounds: int) -> tuple[tuple[float, float], ...]:
    """Return the median seconds, and of processor, of an append by a single writer, and by one of many with the file lock."""
    took: tuple[list[tuple[float, float]], ...] = ([], [])
    tables = []
    for name, options in (("alone", QUICK), ("locked", LOCKED)):
        make(f"{root}/{name}")
        tables.append(lakefmt.open_table(f"{root}/{name}", options=options))
    for number in range(rounds + 5):
        for table, seconds in zip(tables, took, strict=True):
            begin, cpu = time.perf_counter(), time.process_time()
            table.insert(rows(100, number * 100, "there"))
            seconds.append((time.perf_counter() - begin, time.process_time() - cpu))
    return tuple((statistics.median(w for w, _ in t[5:]), statistics.median(c for _, c in t[5:])) for t in took)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rivals", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        apart = min(check_seconds(f"{place}/apart{n}", asked.rivals, "here") for n in range(3))
        same = min(check_seconds(f"{place}/same{n}", asked.rivals, "there") for n in range(3))
        mixed = min(check_seconds(f"{place}/mixed{n}", asked.rivals, "there", mixed=True) for n in range(3))
        alone, locked = append_seconds(place, asked.rounds)
    kinds = (
        ("other partitions", apart),
        ("the same partition, other ranges of keys", same),
        ("the same partition, ranges that overlap", mixed),
    )
    for where, (wall, cpu) in kinds:
        print(
            f"check against {asked.rivals} commits in {where}: {wall * 1e3:.1f} ms, {cpu * 1e3:.1f} of processor (asked: 10)"
        )
    for name, (wall, cpu) in (("alone", alone), ("beside others, with the file lock", locked)):
        print(f"append of 100 rows, {name}: {wall * 1e3:.1f} ms, {cpu * 1e3:.1f} of processor")
    print(
        f"more: {(locked[0] - alone[0]) * 1e3:+.1f} ms, {(locked[1] - alone[1]) * 1e3:+.1f} of processor (asked: at most 5)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
