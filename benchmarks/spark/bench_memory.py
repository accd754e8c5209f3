"""Memory of the processes of a write by Spark's tasks: a load of many rows, then an upsert of every hundredth.

    python -m benchmarks.spark.bench_memory [--rows 10000000]

local[2]: the driver's Python and two Python workers. The peak of a worker follows the rows of one partition path that a task
takes and the largest base file, not the rows of the table: compare two sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.machine import describe
from benchmarks.spark.launch import find_spark, run_work

WORK = Path(__file__).with_name("memory_work.py")
MIB = 1024 * 1024


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the table; a table that lacks a row is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    wanted = parser.parse_args(arguments)
    paths = find_spark()
    if paths is None:
        return 1
    with TemporaryDirectory() as folder:
        run_work(paths, WORK, folder, str(wanted.rows))
        answer = json.loads((Path(folder) / "memory.json").read_text("utf-8"))
    print(describe(Path.cwd()))
    largest = answer["largest_file"] / MIB
    print(
        f"{wanted.rows:,} rows × 14 columns, 30 partitions, largest file {largest:.0f} MiB; PySpark {answer['pyspark']}\n"
    )
    print("| work | seconds | peak of the driver's Python | peak of a Python worker |\n|---|---|---|---|")
    for one in answer["works"]:
        driver, worker = one["driver"] / MIB, one["worker"] / MIB
        print(f"| {one['work']} | {one['seconds']:.1f} s | {driver:.0f} MiB | {worker:.0f} MiB |")
    changed = -(-wanted.rows // 100)
    if (answer["rows"], answer["changed"]) != (wanted.rows, changed):
        print(f"WRONG: {answer['rows']:,} rows and {answer['changed']:,} changed, not {wanted.rows:,} and {changed:,}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
