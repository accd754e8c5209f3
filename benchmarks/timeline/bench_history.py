"""What a long history costs: opening a table that has it, reading it, and an archive step that adds to it.

Usage::

    python -m benchmarks.timeline.bench_history [--archived 10000] [--repeat 15]

A table with twenty commits is made twice, once with so many archived commits before them, in files and levels as single
archive steps leave them. Medians; opening alternates between the two tables, so that a busy machine disturbs both.
Prints what is asked beside what was measured.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import LocalStore
from lakefmt._core.timeline.archive import HistoryStore
from lakefmt._core.timeline.instant import Action, Instant, State, format_instant_time, instant_file_name
from lakefmt._core.timeline.lsm_timeline import HistoryEntry, HistoryWriter, plan_parts
from lakefmt._core.timeline.v6_archive import LogArchive, LogRecord

OPTIONS = {"lakefmt.durability": "none", "hoodie.archive.automatic": "false"}


def make_table(root: Path, archived: int, version: int = 8) -> lakefmt.Table:
    """Make a table with twenty commits, and `archived` ones before them in its history."""
    rows = pa.table({"id": [f"k{n}" for n in range(100)], "v": [1] * 100})
    table = lakefmt.create_table(str(root), schema=rows.schema, record_key="id", table_version=version, options=OPTIONS)
    for _ in range(20):
        table.upsert(rows)
    state = table.client.load()
    body = table.client.at(state).read_body(state.timeline.commits[0])
    layout, begin = state.config.version.layout, datetime(2020, 1, 1, tzinfo=UTC)
    past = []
    for number in range(archived):
        time, done = (format_instant_time(begin + timedelta(seconds=number, milliseconds=ms), UTC) for ms in (0, 500))
        name = instant_file_name(time, Action.COMMIT, State.COMPLETED, layout, done if layout == 2 else None)
        past.append(Instant(time, Action.COMMIT, State.COMPLETED, done if layout == 2 else None, name))
    directory = state.config.history_directory
    if layout == 2 and past:
        writer = HistoryWriter(table.client.store, directory, durable=False)
        files = [writer.write(part.name, (HistoryEntry(i, body) for i in part.instants)) for part in plan_parts(past)]
        writer.publish(1, files)
    logs = LogArchive(table.client.store, directory)
    for at in range(0, len(past) if layout == 1 else 0, 10):
        logs.append((LogRecord(i, body, i.time) for i in past[at : at + 10]), durable=False)
    return table


def read_history(root: Path, version: int, repeat: int) -> tuple[float, float, int]:
    """Return the medians of elapsed and processor ms of reading the index of the history, and the instants in it."""
    store, config = LocalStore(str(root)), lakefmt.open_table(str(root)).client.load_config()
    walls, works, count = [], [], 0
    for _ in range(repeat):
        begun, worked = perf_counter(), process_time()
        count = len(HistoryStore(store, config.history_directory, config.version.layout).load().instants)
        walls.append(perf_counter() - begun)
        works.append(process_time() - worked)
    return 1e3 * median(walls), 1e3 * median(works), count


def open_both(plain: Path, long: Path, repeat: int) -> tuple[float, float]:
    """Return the medians of ms of opening a table and reading its newest state's file list."""
    times: dict[Path, list[float]] = {plain: [], long: []}
    for _ in range(repeat):
        for root in (plain, long):
            begun = process_time()
            table = lakefmt.open_table(str(root))
            table.client.at(table.client.load()).slices()
            times[root].append(process_time() - begun)
    return 1e3 * median(times[plain]), 1e3 * median(times[long])


def archive_steps(root: Path, commits: int) -> float:
    """Return the ms of archive steps per commit, behind the history that is there."""
    options = {**OPTIONS, "hoodie.keep.min.commits": 20, "hoodie.keep.max.commits": 30}
    table, spent = lakefmt.open_table(str(root), options=options), 0.0
    rows = pa.table({"id": ["k0"], "v": [2]})
    for number in range(commits):
        table.upsert(rows)
        if number % 10 == 9:
            fresh = lakefmt.Table(TableClient(table.client.store, options))
            begun = process_time()
            fresh.archive()
            spent += process_time() - begun
    return 1e3 * spent / commits


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archived", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=15)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plain, long, old = (Path(scratch) / name for name in ("plain", "long", "old"))
        make_table(plain, 0)
        make_table(long, asked.archived)
        make_table(old, asked.archived, version=6)
        quick, slow = open_both(plain, long, 8 * asked.repeat)
        print(
            f"open, {asked.archived:,} archived: {slow:.2f} ms, none: {quick:.2f} ms: {slow / quick:.2f} x (asked: <= 1.2 x)"
        )
        for name, root, version in (("sorted files (8, 9)", long, 8), ("log archive (6)", old, 6)):
            wall, work, count = read_history(root, version, asked.repeat if version == 8 else 2)
            goal = "asked: <= 32 ms" if version == 8 else "nothing asked"
            print(f"read {count:,} archived actions, {name}: {wall:.1f} ms, {work:.1f} ms of processor ({goal})")
        for name, root in (("8", long), ("6", old)):
            print(
                f"archive step, version {name}: {archive_steps(root, 40):.2f} ms of processor per commit (asked: <= 20 ms)"
            )


if __name__ == "__main__":
    main()
