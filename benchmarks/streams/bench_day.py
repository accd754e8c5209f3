"""A day of a stream on a virtual clock: timeline, files, segments, memory and reads stay as they are after an hour.

Usage::

    python -m benchmarks.streams.bench_day [--hours 24] [--rows 20] [--quick] [--points FILE]

Every 10 simulated seconds `--rows` rows of 1,000 keys are applied and flushed, every minute they are committed, and every
minute a process for services looks at the merge-on-read table (a compaction every 10 commits, 10 commits kept, 20 to 30 on the
timeline). Real time is that of a day of commits without its pauses. A line per hour; the rows of the table are compared with
what was written. ``--quick``: 4 hours, under three minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakefmt
from benchmarks.draw import keep_points
from benchmarks.harness.machine import describe
from benchmarks.harness.memory import resident
from benchmarks.streams.asked import at_most, print_figures
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table
from lakefmt.services import ServiceLoop
from lakefmt.testing.virtual_time import Process, VirtualTime

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.only": True,
    "hoodie.compact.inline.max.delta.commits": 10,
}
KEYS = 1_000


class _Clock:
    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._process.wall(), UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--points", type=Path)
    asked = parser.parse_args()
    hours: list[tuple[int, int, int, float, float, float]] = []
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        process = Process(VirtualTime())
        lakefmt.create_table(
            f"{work}/t", schema=SCHEMA, record_key="id", ordering="ts", table_type="mor", options=OPTIONS
        )
        client = TableClient(open_store(f"{work}/t"), OPTIONS, _Clock(process), time_source=process)
        table, loop = Table(client), ServiceLoop(f"{work}/t", options=OPTIONS)
        reader = lakefmt.open_table(f"{work}/t")
        dice = np.random.default_rng(1)
        last: dict[str, int] = {}
        print(
            f"{'hour':>5}{'instants':>10}{'files':>8}{'segments':>10}{'MB':>8}{'read ms':>9}{'commit ms':>11}{'seconds':>9}"
        )
        with table.open_stream(writer_id="day", commit_interval=3_600_000, flush_interval=0) as stream:
            number = 0
            for hour in range(1, (4 if asked.quick else asked.hours) + 1):
                begun, processor, commits = time.perf_counter(), time.process_time(), list[float]()
                for _ in range(60):
                    for _ in range(6):
                        keys = [f"k{key}" for key in dice.integers(0, KEYS, asked.rows)]
                        for key in keys:
                            number += 1
                            stream.upsert({"id": key, "ts": number, "v": number * 0.5})
                            last[key] = number
                        stream.flush()
                        process.sleep(10.0)
                    at = time.perf_counter()
                    stream.commit()
                    commits.append(time.perf_counter() - at)
                    loop.run(once=True)
                reads = []
                for _ in range(5):
                    at = time.process_time()
                    rows = reader.read(["id", "ts"])
                    reads.append(time.process_time() - at)
                if dict(zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True)) != last:
                    raise SystemExit("the table is not what was written")
                files = sum(1 for path in Path(work, "t").glob("*") if path.is_file())
                segments = sum(1 for path in Path(work, "t/.hoodie/.lakefmt/streams").rglob("*.arrow"))
                instants = len(reader.client.load().timeline.instants)
                used = time.process_time() - processor
                hours.append((instants, files, segments, (resident() or 0) / 1e6, 1e3 * min(reads), used))
                print(
                    f"{hour:5}{instants:10,}{files:8,}{segments:10,}{(resident() or 0) / 1e6:8.0f}"
                    f"{1e3 * min(reads):9.1f}{1e3 * float(np.median(commits)):11.1f}{time.perf_counter() - begun:9.1f}",
                    flush=True,
                )
    names = (
        "instants on the timeline",
        "files of the table",
        "segments",
        "resident MB",
        "read, ms of processor",
        "hour, s of processor",
    )
    # The first hour fills the table and the timeline; the later half of the others has to be as the earlier half was.
    half = (len(hours) + 1) // 2
    print_figures(
        [
            at_most(
                f"{name}, later / earlier half", 1.1, float(np.mean(column[half:]) / np.mean(column[1:half])), " ×", 2
            )
            for name, column in zip(names, zip(*hours, strict=True), strict=True)
            if name != "segments"
        ]
        + [at_most("segments after a commit", 0, max(hour[2] for hour in hours), "", 0)]
    )
    if asked.points is not None:
        for name, place in (("day-files", 1), ("day-read", 4)):
            points = [(float(number), float(hour[place])) for number, hour in enumerate(hours, 1)]
            keep_points(name, {"lakefmt, a commit a minute": points}, asked.points)


if __name__ == "__main__":
    main()
