"""What automatic cleaning costs a 100-row append that leaves nothing to delete: ``python -m benchmarks.timeline.bench_clean``.

Two tables take the same appends in turn, one with automatic cleaning; the difference is taken commit by commit.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid

import numpy as np
import pyarrow as pa

import lakefmt

_SETTINGS = {"lakefmt.durability": "none", "hoodie.parquet.small.file.limit": 0}
#: Commits before the first one that counts: from then on some have left the ten that are retained.
_WARM_UP = 40


def batch() -> pa.Table:
    """Return 100 new rows of one day."""
    return pa.table({"id": [uuid.uuid4().hex for _ in range(100)], "day": ["d"] * 100, "v": np.arange(100.0)})


def measure(commits: int) -> dict[str, list[tuple[float, float]]]:
    """Return wall and processor milliseconds of each commit, without and with automatic cleaning."""
    found: dict[str, list[tuple[float, float]]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory() as folder:
        tables = {
            name: lakefmt.create_table(
                f"{folder}/{name}",
                data=batch(),
                record_key="id",
                partition_by="day",
                options={**_SETTINGS, "hoodie.clean.automatic": name == "on"},
            )
            for name in found
        }
        for number in range(_WARM_UP + commits):
            rows = batch()
            for name in ("on", "off") if number % 2 else ("off", "on"):
                wall, processor = time.perf_counter(), time.process_time()
                tables[name].insert(rows)
                found[name].append(((time.perf_counter() - wall) * 1e3, (time.process_time() - processor) * 1e3))
    return {name: times[_WARM_UP:] for name, times in found.items()}


def main() -> None:
    """Measure and print the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commits", type=int, default=200)
    found = measure(parser.parse_args().commits)
    for kind, column in (("wall", 0), ("processor", 1)):
        off, on = ([times[column] for times in found[name]] for name in ("off", "on"))
        added = statistics.median(b - a for a, b in zip(off, on, strict=True))
        print(f"{kind}: off {statistics.median(off):.2f} ms, on {statistics.median(on):.2f} ms, added {added:.2f} ms")


if __name__ == "__main__":
    main()
