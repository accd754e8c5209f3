"""Appends of 100 rows to a table without keys, with a process for services beside them.

Usage::

    python -m benchmarks.streams.bench_appends [--commits 10000] [--interval 2]

The writer has ``lakefmt.write.only=true``; ``lakefmt services`` packs, cleans and archives in a process of its own.
Milliseconds of an append, without syncing: the median of the first and of the last thousand, and the 99th percentile; files and
commits that the table has in between and in the end; bytes that services wrote, by those that were appended.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakefmt
from benchmarks.harness.machine import describe

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
ROWS = 100
OPTIONS = {"lakefmt.durability": "none", "lakefmt.write.only": True}


def batch(number: int) -> pa.Table:
    """Return the rows of one append."""
    ids = [f"{number}-{row}" for row in range(ROWS)]
    return pa.table([ids, [number] * ROWS, [0.5] * ROWS], schema=SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=2.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        url, page = f"{work}/t", Path(work, "status.json")
        lakefmt.create_table(
            url, schema=SCHEMA, record_key=None, options=OPTIONS, properties={"lakefmt.table.kind": "append"}
        )
        table = lakefmt.open_table(url, options=OPTIONS)
        append = getattr(table, "append", table.bulk_insert)
        served = subprocess.Popen(
            [
                *(sys.executable, "-m", "lakefmt.cli", "services", url, "--interval", str(asked.interval)),
                *("--status-file", str(page), "--option", "lakefmt.durability=none"),
            ],
            stdout=subprocess.DEVNULL,
        )
        taken, most, written = list[float](), 0, 0
        part = max(1, asked.commits // 10)
        print(f"{'appends':>8}{'50 % ms':>9}{'99 % ms':>9}{'files':>8}{'commits':>9}")
        try:
            for number in range(asked.commits):
                rows = batch(number)
                at = time.perf_counter()
                result = append(rows)
                taken.append(1e3 * (time.perf_counter() - at))
                written += result.bytes_written
                if (number + 1) % part == 0:
                    files = len(table.file_groups())
                    most = max(most, files)
                    shown = "".join(f"{float(np.percentile(taken[-part:], each)):9.1f}" for each in (50, 99))
                    print(f"{number + 1:8,}{shown}{files:8,}{len(table.client.load().timeline.commits):9,}", flush=True)
            time.sleep(3 * asked.interval)
        finally:
            served.terminate()
            served.wait(60)
        status = json.loads(page.read_text())["tables"][0]
        if len(table.read(["id"])) != asked.commits * ROWS:
            raise SystemExit("rows are missing, or came twice")
        print(f"services wrote {status['bytes_written'] / written:.2f} bytes for each appended one; {status['counts']}")


if __name__ == "__main__":
    main()
