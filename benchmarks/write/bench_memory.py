"""Peak memory and time of whole jobs, each in a process of its own, beside plain pyarrow doing the same.

Usage::

    python benchmarks/write/bench_memory.py [--load-rows 5000000] [--upsert-rows 1000000] [--jobs load scan upsert plain]

Rows have 14 columns: random keys of 36 characters, 30 dates that they are partitioned by, an event time, eight numbers
and three texts. Jobs:

* ``load``: the rows, from a generator, into ``bulk_insert``;
* ``scan``: all of them, batch by batch;
* ``upsert``: a hundredth of a smaller table's rows, late-arriving in all partitions;
* ``plain``: the same upsert by pyarrow alone, which reads, joins and rewrites the same files, as many at a time as there
  are cores, as lakefmt does.

A line tells the peak resident memory of the process, how far that is above the process before the job (everything
imported, pandas with it, which pyarrow imports where it is installed; the upsert's batch in memory), and seconds. Peaks are the operating system's (``VmHWM``), so Linux only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakefmt
from lakefmt._core.filegroups.model import FileSlice

DAYS = 30
STEP = 50_000
FIRST_DAY = np.datetime64("2026-01-01")
OPTIONS = {"lakefmt.durability": "none"}
NUMBERS = [f"i{n}" for n in range(4)] + [f"f{n}" for n in range(4)]
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("day", pa.string()),
        ("ts", pa.int64()),
        *((name, pa.int64() if name.startswith("i") else pa.float64()) for name in NUMBERS),
        ("city", pa.string()),
        ("name", pa.string()),
        ("note", pa.string()),
    ]
)


def random_keys(random: np.random.Generator, count: int) -> pa.Array:
    """Random keys of 36 characters, like UUIDs."""
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[random.integers(0, 16, (count, 36), np.uint8)]
    text[:, [8, 13, 18, 23]] = ord("-")
    offsets = np.arange(count + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text.reshape(-1))])


def chosen(random: np.random.Generator, texts: list[str], count: int) -> pa.Array:
    """Some of a few texts."""
    return pa.array(texts).take(pa.array(random.integers(0, len(texts), count)))


def generate(rows: int, step: int = STEP) -> Iterator[pa.Table]:
    """The rows, always the same, table by table."""
    random = np.random.default_rng(7)
    days = [str(FIRST_DAY + n) for n in range(DAYS)]
    for first in range(0, rows, step):
        count = min(step, rows - first)
        columns = [random_keys(random, count), chosen(random, days, count), pa.array(np.full(count, 1_000_000))]
        columns += [pa.array(random.integers(0, 10**6, count)) for _ in range(4)]
        columns += [pa.array(random.random(count)) for _ in range(4)]
        columns += [chosen(random, [f"{kind} {n}" for n in range(size)], count) for kind, size in KINDS]
        yield pa.table(columns, schema=SCHEMA)


KINDS = (("city", 100), ("name", 1000), ("a longer note with number", 5000))


def late_rows(rows: int) -> pa.Table:
    """A hundredth of the rows, changed and later."""
    late = pa.concat_tables([t.slice(0, -(-t.num_rows // 100)) for t in generate(rows)])
    later = pa.repeat(pa.scalar(2_000_000), late.num_rows)
    return late.set_column(late.schema.get_field_index("ts"), "ts", later).combine_chunks()


def make(place: str, rows: int) -> lakefmt.Table:
    """Write the rows."""
    table = lakefmt.create_table(
        place, schema=SCHEMA, record_key="key", partition_by="day", ordering="ts", options=OPTIONS
    )
    done = table.bulk_insert(generate(rows))
    assert done.num_inserts == rows
    return table


def plain_upsert(table: lakefmt.Table, late: pa.Table, target: Path) -> int:
    """What one writes without lakefmt, with the table's files as its own: read, join, rewrite."""
    root = table.client.store.url
    names = SCHEMA.names

    def rewrite(piece: FileSlice) -> int:
        assert piece.base is not None
        mine = late.filter(pc.equal(late["day"], piece.partition.rpartition("=")[2]))
        stored = pq.ParquetFile(f"{root}/{piece.base.path}").read(columns=names)
        known = pc.is_in(stored["key"], value_set=mine["key"].combine_chunks())
        whole = pa.concat_tables([stored.filter(pc.invert(known)), mine.select(names)])
        pq.write_table(whole, target / f"{piece.file_id}.parquet", compression="zstd", compression_level=1)
        return int(stored.num_rows + mine.num_rows - whole.num_rows)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sum(pool.map(rewrite, table.file_groups()))


def status(key: str) -> float:
    """A figure of this process, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(key + ":"))


def run(job: str, place: str, rows: int) -> None:
    """Do one job in this process and print what it took."""
    table = None if job == "load" else lakefmt.open_table(place, options=OPTIONS)
    late = late_rows(rows) if job in ("upsert", "plain") else None
    next(generate(1))
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    idle, begin = status("VmRSS"), time.perf_counter()
    if table is None:
        make(place, rows)
    elif late is None:
        assert sum(batch.num_rows for batch in table.scan()) == rows
    elif job == "upsert":
        assert table.upsert(late).num_updates == late.num_rows
    else:
        with tempfile.TemporaryDirectory() as target:
            assert plain_upsert(table, late, Path(target)) == late.num_rows
    took, peak = time.perf_counter() - begin, status("VmHWM")
    print(f"{job:7} {rows:9,} rows  peak {peak:5.0f} MiB, {peak - idle:5.0f} above idle  {took:6.2f} s", flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load-rows", type=int, default=5_000_000)
    parser.add_argument("--upsert-rows", type=int, default=1_000_000)
    parser.add_argument("--jobs", nargs="*", default=["load", "scan", "plain", "upsert"])
    parser.add_argument("--child", nargs=3, metavar=("JOB", "PLACE", "ROWS"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        run(asked.child[0], asked.child[1], int(asked.child[2]))
        return 0
    with tempfile.TemporaryDirectory() as place:
        for job in asked.jobs:
            large = job in ("load", "scan")
            at, rows = (f"{place}/large", asked.load_rows) if large else (f"{place}/small", asked.upsert_rows)
            if job != "load" and not Path(at).exists():
                child("load", at, rows)
            child(job, at, rows)
    return 0


def child(job: str, place: str, rows: int) -> None:
    """Run one job in a process of its own."""
    subprocess.run([sys.executable, __file__, "--child", job, place, str(rows)], check=True)


if __name__ == "__main__":
    sys.exit(main())
