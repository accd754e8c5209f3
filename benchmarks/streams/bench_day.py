"""A day of a stream on a virtual clock: timeline, files, segments, memory and reads stay as they are after an hour.

Usage::

    python -m benchmarks.streams.bench_day [--hours 24] [--rows 20]

Every 10 simulated seconds `--rows` rows of 1,000 keys are applied and flushed, every minute they are committed, and every
minute a process for services looks at the merge-on-read table (a compaction every 10 commits, 10 commits kept, 20 to 30 on the
timeline). Real time is that of a day of commits without its pauses. A line per hour.
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
from benchmarks.harness.machine import describe
from benchmarks.harness.memory import resident
from lakefmt.filegroups.table_client import TableClient
from lakefmt.services import ServiceLoop
from lakefmt.storage.open import open_store
from lakefmt.table import Table
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
    asked = parser.parse_args()
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
            for hour in range(1, asked.hours + 1):
                begun, commits = time.perf_counter(), list[float]()
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
                    at = time.perf_counter()
                    rows = reader.read(["id", "ts"])
                    reads.append(time.perf_counter() - at)
                if dict(zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True)) != last:
                    raise SystemExit("the table is not what was written")
                files = sum(1 for path in Path(work, "t").glob("*") if path.is_file())
                segments = sum(1 for path in Path(work, "t/.hoodie/.lakefmt/streams").rglob("*.arrow"))
                instants = len(reader.client.load().timeline.instants)
                print(
                    f"{hour:5}{instants:10,}{files:8,}{segments:10,}{(resident() or 0) / 1e6:8.0f}"
                    f"{1e3 * min(reads):9.1f}{1e3 * float(np.median(commits)):11.1f}{time.perf_counter() - begun:9.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
