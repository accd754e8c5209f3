"""A queue of 100 buckets read in parallel as a stream, beside a plain scan of the same table.

Usage::

    python -m benchmarks.streams.bench_buckets [--rows 2000000] [--commits 5] [--repeats 3] [--threads 4] [--quick]

Every commit opens a file in each bucket. "stream" reads all commits from the earliest with ``order="bucket"``, "scan" is
``table.scan()``, "packed" is the stream after `table.cluster()` has packed each bucket's files, which hands out the whole table
first (``start="full"``). By turns; the best of the repeats counts, rows per second on the wall and of the processor. Rows are
counted, their numbers added up, and each bucket's order is checked. ``--quick``: 500,000 rows, under a minute.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakefmt
from benchmarks.harness.machine import describe
from benchmarks.streams.asked import Figure, at_least, print_figures

SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64()), ("text", pa.string()), ("v", pa.float64())])
OPTIONS = {"lakefmt.durability": "none"}
BUCKETS = 100


def batch(first: int, rows: int) -> pa.Table:
    """Return the rows of one commit: numbers from `first` on."""
    numbers = np.arange(first, first + rows)
    text = pa.array(np.char.add("row number ", numbers.astype("U12")))
    return pa.table(
        [pa.array(numbers * 7919 % 10_007), pa.array(numbers), text, pa.array(numbers * 0.5)], schema=SCHEMA
    )


def streamed(table: lakefmt.Table, start: str, threads: int, ordered: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bounded stream; raise when those of a bucket are not in order."""
    last: dict[object, int] = {}
    with table.stream(start, follow=False, order="bucket", threads=threads) as stream:
        for each in stream:
            rows = each.rows
            if ordered and rows.num_rows:
                numbers = rows.column("n").to_numpy()
                if (np.diff(numbers) < 0).any() or numbers[0] < last.get(each.bucket, -1):
                    raise SystemExit(f"bucket {each.bucket} is not in order")
                last[each.bucket] = int(numbers[-1])
            yield rows


def timed(read: Callable[[], Iterator[pa.RecordBatch]], rows: int) -> tuple[float, float]:
    """Return the seconds on the wall and of the processor; raise when rows are not those that were written."""
    begun, processor = time.perf_counter(), time.process_time()
    parts = list(read())
    seconds = (time.perf_counter() - begun, time.process_time() - processor)
    if sum(part.num_rows for part in parts) != rows:
        raise SystemExit("rows are missing, or came twice")
    if sum(pc.sum(part.column("n")).as_py() or 0 for part in parts) != rows * (rows - 1) // 2:
        raise SystemExit("other rows came")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--commits", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    rows = 500_000 if asked.quick else asked.rows
    part = rows // asked.commits
    rows = part * asked.commits
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        table = lakefmt.create_table(
            f"{work}/t", schema=SCHEMA, kind="append", order="per_bucket", bucket_key="key", buckets=BUCKETS
        )
        table = lakefmt.open_table(f"{work}/t", options=OPTIONS)
        for number in range(asked.commits):
            table.append(batch(number * part, part))
        print(f"{rows:,} rows, {asked.commits} commits, {len(table.file_groups()):,} files")
        ways: dict[str, Callable[[], Iterator[pa.RecordBatch]]] = {
            "scan": lambda: iter(table.scan()),
            "stream": lambda: streamed(table, "earliest", asked.threads, ordered=True),
        }
        best = measured(ways, rows, asked.repeats)
        table.cluster()
        print(f"packed: {len(table.file_groups()):,} files")
        packed: dict[str, Callable[[], Iterator[pa.RecordBatch]]] = {
            "scan, packed": lambda: iter(table.scan()),
            "stream, packed": lambda: streamed(table, "full", asked.threads, ordered=True),
        }
        best |= measured(packed, rows, asked.repeats)
    figures = [
        at_least("stream / scan, wall", 0.6, best["scan"][0] / best["stream"][0], " ×", 2),
        Figure("stream / scan, processor", "", f"{best['scan'][1] / best['stream'][1]:.2f} ×"),
        at_least("stream / scan, packed, wall", 0.6, best["scan, packed"][0] / best["stream, packed"][0], " ×", 2),
        Figure("stream / scan, packed, processor", "", f"{best['scan, packed'][1] / best['stream, packed'][1]:.2f} ×"),
    ]
    rates = [
        Figure(f"{name}, rows/s (of processor)", "", f"{rows / wall:,.0f} ({rows / own:,.0f})")
        for name, (wall, own) in best.items()
    ]
    print_figures([*rates, *figures])


def measured(
    ways: dict[str, Callable[[], Iterator[pa.RecordBatch]]], rows: int, repeats: int
) -> dict[str, tuple[float, float]]:
    """Return the best seconds of each way, which take turns."""
    runs = [{name: timed(way, rows) for name, way in ways.items()} for _ in range(repeats)]
    return {name: (min(run[name][0] for run in runs), min(run[name][1] for run in runs)) for name in ways}


if __name__ == "__main__":
    main()
