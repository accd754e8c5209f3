"""Memory of an upsert, or a delete, whose rows come as a stream and are many times what may be held.

Usage::

    python -m benchmarks.write.bench_stream_upsert [rows] [stored rows] [cow|mor] [upsert|delete]

Loads the stored rows in one process, gives the stream to another and prints the peak of its resident memory. Every stored
key is among those of the stream; the table is counted afterwards.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakefmt

PARTITIONS, BATCH_ROWS = 30, 100_000


def rows_of(first: int, count: int, ts: int) -> pa.Table:
    """Return rows of 14 columns; the keys are spread over all partitions."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    random = np.random.default_rng(first + ts)
    keys = pa.array(numbers * 0x9E3779B1 % (1 << 40)).cast(pa.string())
    places = pa.array([f"2026-01-{day + 1:02d}" for day in range(PARTITIONS)])
    columns: dict[str, object] = {
        "uuid": pc.binary_join_element_wise("key-of-a-row", pc.utf8_lpad(keys, 20, "0"), "-"),
        "day": places.take(pa.array(numbers % PARTITIONS)),
        "ts": np.full(count, ts, np.int64),
    }
    columns |= {f"d{n}": random.random(count) for n in range(5)}
    columns |= {f"i{n}": random.integers(0, 1 << 30, count) for n in range(4)}
    columns |= {f"s{n}": places.take(pa.array(random.integers(0, PARTITIONS, count))) for n in range(2)}
    return pa.table(columns)


def stream(count: int, ts: int) -> Iterator[pa.Table]:
    """Yield rows, one batch after the other."""
    for first in range(0, count, BATCH_ROWS):
        yield rows_of(first, min(BATCH_ROWS, count - first), ts)


def work(path: str, count: int, stored: int, verb: str) -> None:
    """Upsert the rows of the stream, or delete their keys, and print what it took."""
    begun = perf_counter()
    table, rows = lakefmt.open_table(path), stream(count, 2)
    result = table.upsert(rows) if verb == "upsert" else table.delete(each.select(["uuid"]) for each in rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = perf_counter() - begun
    print(
        f"{verb} of {count:,} rows, {stored:,} stored: {seconds:.0f} s, peak {peak:.0f} MiB, "
        f"{result.num_inserts:,} inserts, {result.num_updates:,} updates, {result.num_deletes:,} deletes, {len(result.files)} files"
    )


def main(count: int, stored: int, kind: str, verb: str) -> None:
    """Load, upsert or delete in another process, count."""
    with TemporaryDirectory(prefix="lakefmt-bench-") as path:
        table = lakefmt.create_table(
            path, schema=rows_of(0, 1, 1).schema, record_key="uuid", partition_by="day", ordering="ts", table_type=kind
        )
        table.bulk_insert(stream(stored, 1))
        command = [
            sys.executable,
            "-m",
            "benchmarks.write.bench_stream_upsert",
            "--work",
            path,
            str(count),
            str(stored),
            verb,
        ]
        subprocess.run(command, check=True)
        times = lakefmt.open_table(path).read(["ts"]).column("ts")
        print(f"{len(times):,} rows, of which {pc.sum(pc.equal(times, 2)).as_py() or 0:,} of the stream")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        given = sys.argv[1:]
        main(
            int(given[0]) if given else 20_000_000,
            int(given[1]) if given[1:] else 2_000_000,
            given[2] if given[2:] else "cow",
            given[3] if given[3:] else "upsert",
        )
