"""Micro-batches of a stream of PySpark into a table: seconds of each batch, and whether they grow.

    python -m benchmarks.spark.bench_stream [--batches 200] [--rows 1000] [--hudi] [--keep-history]

Each batch is one file of `--rows` rows whose keys are drawn from 100,000, into 30 partitions, upserted by default settings of a
stream, compactions beside it included. The table must have one row for each key in the end. ``--hudi`` writes the same stream
with Apache Hudi, too. ``--keep-history`` lets no clean remove older file slices: then every listing grows with the batches.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.harness.machine import describe
from benchmarks.spark.launch import find_spark, run_work

WORK = Path(__file__).with_name("stream_work.py")
PROMISED_SECONDS = 0.5


def row_of(stream: dict[str, object]) -> str:
    """Return the line of one stream. Pure."""
    seconds = np.asarray(stream["seconds"], np.float64)[1:]  # the first batch makes the table and warms up
    fifths = " → ".join(f"{np.median(part):.2f}" for part in np.array_split(seconds, 5))
    figures = f"{np.median(seconds):.2f} s | {np.quantile(seconds, 0.99):.2f} s | {fifths} s"
    return f"| {stream['engine']}, {stream['kind']} | {figures} |"


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the table; a table that lacks a row or has one twice is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--hudi", action="store_true", help="write the same stream with Apache Hudi, too")
    parser.add_argument("--keep-history", action="store_true", help="remove no older file slices")
    wanted = parser.parse_args(arguments)
    paths = find_spark()
    if paths is None:
        return 1
    engines = ["lakefmt", "hudi"] if wanted.hudi else ["lakefmt"]
    cleans = "false" if wanted.keep_history else "true"
    with TemporaryDirectory() as folder:
        run_work(paths, WORK, folder, str(wanted.batches), str(wanted.rows), cleans, *engines)
        answer = json.loads((Path(folder) / "batches.json").read_text("utf-8"))
    print(describe(Path.cwd()))
    print(
        f"{wanted.batches} batches of {wanted.rows:,} rows; PySpark {answer['pyspark']}, local[2]; asked: p50 ≤ {PROMISED_SECONDS} s\n"
    )
    print("| stream | p50 | p99 | p50 of each fifth |\n|---|---|---|---|")
    print("\n".join(map(row_of, answer["streams"])))
    wrong = [one for one in answer["streams"] if one["rows"] != answer["keys"]]
    for one in wrong:
        print(f"WRONG: {one['engine']} {one['kind']} has {one['rows']:,} rows, not {answer['keys']:,}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
