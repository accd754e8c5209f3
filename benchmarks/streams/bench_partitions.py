"""An append of a stream of rows to 10,000 partitions: memory, open files and processor time do not grow with the rows.

Usage::

    python -m benchmarks.streams.bench_partitions [--partitions 10000] [--rows 40000] [--window 8] [--quick]

Rows come in batches, each with rows of all partitions. A process of its own appends them and tells its peak of resident memory; in
its folder of open files is looked every 10 ms. Twice: the rows that are asked for, and four times as many. All rows are counted and
their numbers added up. ``--quick``: 2,000 partitions, under two minutes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakefmt
from benchmarks.harness.machine import describe
from benchmarks.streams.asked import Figure, at_most, print_figures

SCHEMA = pa.schema([("p", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
OPTIONS = {"lakefmt.durability": "none"}


def batches(partitions: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of all partitions, batch by batch, in no order."""
    dice = np.random.default_rng(1)
    for first in range(0, rows, partitions):
        numbers = np.arange(first, min(rows, first + partitions))
        text = pa.array(np.char.add("some text of a row, number ", numbers.astype("U12")))
        yield pa.record_batch(
            [pa.array(dice.permutation(partitions)[: len(numbers)]), pa.array(numbers), text], schema=SCHEMA
        )


def append(url: str, partitions: int, rows: int, window: int) -> None:
    """Append rows, and print what it took: megabytes, open files, seconds of the processor."""
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            most[0] = max(most[0], sum(1 for _ in Path("/proc/self/fd").iterdir()))

    threading.Thread(target=watch, daemon=True).start()
    table = lakefmt.open_table(url, options={**OPTIONS, "lakefmt.write.window.bytes": window << 20})
    before, processor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(partitions, rows))
    result = table.append(reader)
    ended.set()
    used, peak = time.process_time() - processor, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(before / 1024, peak / 1024, most[0], used, len(result.files))


def measured(work: str, partitions: int, rows: int, window: int) -> list[float]:
    """Return what an append in a process of its own took; raise when rows are not those that were given."""
    url = f"{work}/t{rows}"
    lakefmt.create_table(url, schema=SCHEMA, kind="append", partition_by="p", options=OPTIONS)
    arguments = [url, str(partitions), str(rows), str(window)]
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.streams.bench_partitions", "--child", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    stored = lakefmt.open_table(url).read(["n"])
    if stored.num_rows != rows or pc.sum(stored["n"]).as_py() != rows * (rows - 1) // 2:
        raise SystemExit("rows are missing, or came twice")
    return [float(value) for value in told.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--window", type=int, default=8, help="megabytes of rows in memory")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child is not None:
        append(asked.child[0], *map(int, asked.child[1:]))
        return
    partitions, rows = (2_000, 20_000) if asked.quick else (asked.partitions, asked.rows)
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        small = measured(work, partitions, rows, asked.window)
        large = measured(work, partitions, 4 * rows, asked.window)
    print_figures(
        [
            Figure(
                f"{rows:,} rows: peak, files, processor", "", f"{small[1]:.0f} MB, {small[4]:,.0f}, {small[3]:.1f} s"
            ),
            Figure(
                f"{4 * rows:,} rows: peak, files, processor",
                "",
                f"{large[1]:.0f} MB, {large[4]:,.0f}, {large[3]:.1f} s",
            ),
            at_most("peak of four times the rows", 1.25, large[1] / small[1], " ×", 2),
            at_most("open files (two for each that is written)", 2 * 256 + 64, max(small[2], large[2]), "", 0),
            at_most("files for each partition", 1, max(small[4], large[4]) / partitions, "", 2),
        ]
    )


if __name__ == "__main__":
    main()
