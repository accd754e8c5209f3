"""Appends of 100 rows to a table without keys, with a process for services beside them.

Usage::

    python -m benchmarks.streams.bench_appends [--commits 10000] [--interval 2] [--quick] [--points FILE]

The writer has ``lakefmt.write.only=true``; ``lakefmt services`` packs, cleans and archives in a process of its own.
Milliseconds of an append, without syncing, on the wall and of the writer's processor: medians and the 99th percentile of each
tenth; files and commits that the table has in between; bytes and processor time that services took. After each tenth 30 appends by
turns to this table and to a young one, of 20 appends: a table that does not grow costs what the young one costs, however busy the
machine is. All rows are counted at the end. ``--quick``: 2,000 appends, under two minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakefmt
from benchmarks.draw import keep_points
from benchmarks.harness.machine import describe
from benchmarks.streams.asked import Figure, at_most, print_figures

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
ROWS = 100
OPTIONS = {"lakefmt.durability": "none", "lakefmt.write.only": True}


def batch(number: int) -> pa.Table:
    """Return the rows of one append."""
    ids = [f"{number}-{row}" for row in range(ROWS)]
    return pa.table([ids, [number] * ROWS, [0.5] * ROWS], schema=SCHEMA)


def timed(table: lakefmt.Table, number: int) -> tuple[float, float, int]:
    """Append once; return the milliseconds on the wall and of the processor, and the bytes that were written."""
    rows = batch(number)
    at, processor = time.perf_counter(), time.process_time()
    result = table.append(rows)
    return 1e3 * (time.perf_counter() - at), 1e3 * (time.process_time() - processor), result.bytes_written


def create(url: str) -> lakefmt.Table:
    """Return a new table of the writer."""
    lakefmt.create_table(url, schema=SCHEMA, kind="append", options=OPTIONS)
    return lakefmt.open_table(url, options=OPTIONS)


def beside_young(table: lakefmt.Table, url: str, number: int) -> tuple[float, list[int]]:
    """Return what an append costs by that to a young table, in processor time, and the bytes that were written to this one."""
    young, old, new, written = create(url), list[float](), list[float](), list[int]()
    for turn in range(50):
        new.append(timed(young, turn)[1])
        if turn >= 20:
            _, own, size = timed(table, number + turn)
            old.append(own)
            written.append(size)
    shutil.rmtree(url)
    return float(np.median(old) / np.median(new[20:])), written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--points", type=Path)
    asked = parser.parse_args()
    count = 2_000 if asked.quick else asked.commits
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        url, page = f"{work}/t", Path(work, "status.json")
        table = create(url)
        served = subprocess.Popen(
            [
                *(sys.executable, "-m", "lakefmt", "services", url, "--interval", str(asked.interval)),
                *("--status-file", str(page), "--option", "lakefmt.durability=none"),
            ],
            stdout=subprocess.DEVNULL,
        )
        wall, own, sizes, ratios, most_files = list[float](), list[float](), list[int](), list[float](), 0
        part = max(1, count // 10)
        print(f"{'appends':>8}{'50 % ms':>9}{'99 % ms':>9}{'processor':>11}{'files':>8}{'commits':>9}{'× young':>9}")
        try:
            for number in range(count):
                seconds, processor, size = timed(table, number)
                wall.append(seconds)
                own.append(processor)
                sizes.append(size)
                if (number + 1) % part == 0:
                    files, commits = len(table.file_groups()), len(table.client.load().timeline.commits)
                    most_files = max(most_files, files)
                    shown = "".join(f"{float(np.percentile(wall[-part:], each)):9.1f}" for each in (50, 99))
                    print(f"{number + 1:8,}{shown}{np.median(own[-part:]):11.1f}{files:8,}{commits:9,}", end="")
                    ratio, more = beside_young(table, f"{work}/young", 10 * count + number)
                    ratios.append(ratio)
                    sizes += more
                    print(f"{ratio:9.2f}", flush=True)
            time.sleep(3 * asked.interval)
        finally:
            served.terminate()
            served.wait(120)
        status = json.loads(page.read_text())["tables"][0]
        if len(table.read(["id"])) != len(sizes) * ROWS:
            raise SystemExit("rows are missing, or came twice")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"services: {status['counts']}")
    print_figures(
        [
            at_most("append, median on the wall", 8, float(np.median(wall)), " ms"),
            Figure("append, median of processor", "", f"{np.median(own):.1f} ms"),
            at_most(
                "append / append to a young table, processor",
                1.25,
                float(np.median(ratios[len(ratios) // 2 :])),
                " ×",
                2,
            ),
            Figure("file groups, most seen", "", f"{most_files:,}"),
            Figure("services, bytes for each appended one", "", f"{status['bytes_written'] / sum(sizes):.2f}"),
            Figure("services, processor for an append", "", f"{1e3 * (used.ru_utime + used.ru_stime) / count:.1f} ms"),
        ]
    )
    if asked.points is not None:
        step = max(10, count // 100)
        points = [
            (float(start), float(np.median(own[start : start + step]))) for start in range(0, count - step + 1, step)
        ]
        keep_points("appends", {"lakefmt, services beside": points}, asked.points)


if __name__ == "__main__":
    main()
