"""Thousands of commits of 100 rows with default settings: does the last one cost what the thousandth did?

Usage::

    python -m benchmarks.timeline.bench_many_commits [--commits 10000] [--parts 20] [--durability fsync] [--metadata] [--points FILE]

Appends go into one partition of a copy-on-write table through one handle; small files are merged, cleans and archiving run
as the defaults have them. After every part of the commits: the median and the 99th percentile of its commits by the clock, and
the mean of the processor, in milliseconds; files of the table and instants of its active timeline; the memory of the process
that commits, in MB; lines of lakefmt's Python that one more commit runs, and its requests, counted; what another process takes to open the table and to read all its rows, in milliseconds, the latter by the
million rows. Rows are counted after every part. ``--points`` keeps the points of two charts, for
``python -m benchmarks.draw``. With ``--metadata`` the table has a metadata table with statistics of columns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import mean

import numpy as np

import lakefmt
from benchmarks.draw import keep_points
from benchmarks.harness.machine import describe
from benchmarks.harness.memory import resident
from benchmarks.metadata.bench_commit_cost import ROWS, STATISTICS, batch, rows
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.table import Table
from tests.growth.kit import Cost, GrowthStore, counted


@dataclass(frozen=True)
class Part:
    """What was seen after a part of the commits."""

    commits: int
    median: float
    slowest: float
    processor: float
    files: int
    instants: int
    memory: float
    lines: int
    requests: int
    opened: float
    read: float


@dataclass(frozen=True)
class Seen:
    """What a reader saw: milliseconds of opening the table and of reading a million rows, files and instants."""

    opening: float
    reading: float
    files: int
    instants: int


def measure(folder: Path, commits: int, parts: int, durability: str, *, metadata: bool = False) -> Iterator[Part]:
    """Append to a new table, and yield what each part of the commits took."""
    options: dict[str, object] = {"lakefmt.durability": durability}
    if metadata:
        options |= STATISTICS
    table = lakefmt.create_table(
        str(folder), data=rows(np.arange(1), 0), record_key="uuid", partition_by="day", ordering="ts", options=options
    )
    size = max(1, commits // parts)
    # Another process reads: the memory that is counted is what commits take.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as readers:
        for first in range(0, commits, size):
            count = min(size, commits - first)
            clock, processor = append(table, first, count - 1)
            cost = counted_commit(table, first + count - 1)
            looked = readers.submit(look, str(folder), (first + count) * ROWS).result()
            yield Part(
                first + count,
                float(np.percentile(clock, 50)),
                float(np.percentile(clock, 99)),
                mean(processor),
                looked.files,
                looked.instants,
                (resident() or 0) / 1e6,
                cost.steps,
                cost.requests,
                looked.opening,
                looked.reading,
            )


def append(table: lakefmt.Table, first: int, count: int) -> tuple[list[float], list[float]]:
    """Append `count` batches; return the milliseconds of each, by the clock and of the processor."""
    clock, processor = list[float](), list[float]()
    for number in range(first, first + count):
        data = batch("append", number)
        begin, used = time.perf_counter(), time.process_time()
        table.insert(data)
        clock.append(1e3 * (time.perf_counter() - begin))
        processor.append(1e3 * (time.process_time() - used))
    return clock, processor


def counted_commit(table: lakefmt.Table, number: int) -> Cost:
    """Append one batch through a handle that counts, and that has made a commit before."""
    store = GrowthStore(table.client.store)
    handle = Table(TableClient(store, table.client.options))
    handle.insert(batch("append", number)[:0])
    return counted(lambda: handle.insert(batch("append", number)), store)


def look(folder: str, stored: int) -> Seen:
    """Open a table and read its rows, the second time that this process does so; count them."""
    lakefmt.open_table(folder).file_groups()
    begin = time.perf_counter()
    opened = lakefmt.open_table(folder)
    opening = 1e3 * (time.perf_counter() - begin)
    begin = time.perf_counter()
    keys = opened.read()["uuid"]
    reading = 1e3 * (time.perf_counter() - begin) * 1e6 / stored
    if len(keys.unique()) != stored:
        raise SystemExit(f"{len(keys.unique())} keys, where {stored} were written")
    return Seen(opening, reading, len(opened.file_groups()), len(opened.client.load().timeline.instants))


def keep_charts(name: str, parts: list[Part], path: Path) -> None:
    """Keep the points of the charts `name` of what commits and reads take, and of what the table has."""

    def line(figure: str) -> list[tuple[float, float]]:
        # A read of few rows is no measure of a million.
        shown = [part for part in parts if figure != "read" or part.commits >= 1_000]
        return [(float(part.commits), float(getattr(part, figure))) for part in shown]

    times = {"commit, median": "median", "commit, 99 %": "slowest", "open": "opened", "read, a million rows": "read"}
    sizes = {"files": "files", "instants": "instants"}
    keep_points(name, {f"lakefmt, {label}": line(figure) for label, figure in times.items()}, path)
    keep_points(f"{name}-files", {f"lakefmt, {label}": line(figure) for label, figure in sizes.items()}, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--durability", default="fsync", choices=("fsync", "none"))
    parser.add_argument("--metadata", action="store_true")
    parser.add_argument("--points", type=Path)
    asked = parser.parse_args()
    seen = list[Part]()
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        names = (
            "commits",
            "50 % ms",
            "99 % ms",
            "cpu ms",
            "files",
            "instants",
            "MB",
            "lines",
            "requests",
            "open ms",
            "read ms/M",
        )
        print("".join(f"{name:>10}" for name in names))
        for part in measure(Path(work) / "t", asked.commits, asked.parts, asked.durability, metadata=asked.metadata):
            seen.append(part)
            print(
                "".join(f"{value:10.1f}" if isinstance(value, float) else f"{value:10,}" for value in astuple(part)),
                flush=True,
            )
    if asked.points is not None:
        keep_charts("many-commits-metadata" if asked.metadata else "many-commits", seen, asked.points)


if __name__ == "__main__":
    main()
