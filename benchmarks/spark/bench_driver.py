"""Memory of the driver while it plans a write by look-up: by file groups, and by new keys. No JVM runs.

    python -m benchmarks.spark.bench_driver [--files 100000] [--keys 5000000]

The table has as many files of one byte, which are listed through its metadata table. The plan is that of an upsert that changes ten
rows of every file group, then of one that brings new keys to one partition, too. Each step in a process of its own; peaks of
resident memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import lakefmt
from benchmarks.harness.machine import describe
from benchmarks.metadata.bench_listing import SCHEMA, make_table
from lakefmt._core.values import FileId, PartitionPath, WriteOperation
from lakefmt._core.write.tasks import FoundRows, SharedWrite, TaskWriter
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.writing.staging import request_of

PARTITIONS = 1000
#: The bytes of a stored row, from which the plan knows how many rows a file takes.
ROW_BYTES = 100.0
STEPS = ("open", "list", "plan", "plan new keys")


def peak() -> int:
    """Return the peak of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def run_step(root: str, step: str, keys: int) -> int:
    """Take all steps up to one, and return the peak."""
    table = lakefmt.open_table(root)
    request = request_of(WriteOperation.UPSERT, parse_write_options({}))
    planned = WriteTransaction.plan_only(table.client, request, SCHEMA)
    if step == "open":
        return peak()
    slices = list(table.client.at(planned.state).slices(None))
    if step == "list":
        return peak()
    found = [FoundRows(each.partition, each.file_id, 10) for each in slices]
    if step == "plan new keys":
        found.append(FoundRows(PartitionPath("part=00000"), FileId(""), keys))
    groups = TaskWriter(SharedWrite(planned.context, planned.state, planned.key_spec), 0, {}).plan(found, ROW_BYTES)
    if len(groups) < len(slices):
        raise SystemExit("file groups are missing in the plan")
    return peak()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument(
        "--step", nargs=2, metavar=("TABLE", "STEP"), help="take the steps up to STEP, and print the peak"
    )
    wanted = parser.parse_args()
    if wanted.step:
        print(run_step(*wanted.step, wanted.keys))
        return
    with TemporaryDirectory() as folder:
        make_table(Path(folder) / "table", wanted.files, PARTITIONS)
        command = [sys.executable, "-m", "benchmarks.spark.bench_driver", "--keys", str(wanted.keys), "--step"]
        peaks = [
            int(subprocess.run([*command, f"{folder}/table", step], check=True, capture_output=True).stdout)
            for step in STEPS
        ]
    opened, listed, planned, with_new = peaks
    print(describe(Path.cwd()))
    print(
        f"{wanted.files:,} files in {PARTITIONS:,} partitions: {opened} MiB when the table is open, {listed} with the"
    )
    print(
        f"list of its files, {planned} with a plan that changes them all, {with_new} with {wanted.keys:,} new keys, too"
    )


if __name__ == "__main__":
    main()
