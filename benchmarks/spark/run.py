"""``make bench-spark``: lakefmt and Apache Hudi on Spark, in one warm session, on the same rows.

    python -m benchmarks.spark.run [--rows 1000000] [--rounds 3]

Prints a table for docs/dev/speed.md. A machine that was busy makes all figures worse, those of both engines about alike: the
ratios say more than the seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness.data import Dataset, load_table, prepare
from benchmarks.spark.launch import ROOT, find_spark, run_work

WORK = Path(__file__).with_name("session_work.py")
#: Work → the share of Hudi's time that lakefmt may take, where the project promises one.
PROMISED = {"load cow": 0.65, "1 % upsert cow": 0.33, "1 % upsert mor": 0.4}
#: Read → the share of the time of Spark's own Parquet reader over the same files.
PROMISED_READS = {"read all": 1.3, "sum of a column": 1.5}
PLAIN = ", plain table.upsert"
OTHER = ", Spark's Parquet reader over the same files"


def store_parts(data: Dataset, folder: Path) -> None:
    """Store what is written as Parquet, which the session reads and caches."""
    for part in ("base", "late", "tiny"):
        rows = load_table(data.path(part))
        pq.write_table(rows.slice(0, data.tiny_rows) if part == "tiny" else rows, folder / f"{part}.parquet")


def run_session(found: Mapping[str, Any], folder: Path, rounds: int) -> dict[str, Any]:
    """Run the works in one session, and return the seconds."""
    run_work(found, WORK, str(folder), str(rounds), "lakefmt", "hudi")
    return dict(json.loads((folder / "seconds.json").read_text("utf-8")))


def medians(answer: Mapping[str, Any], engine: str) -> dict[str, float]:
    """Return the median seconds of every work of an engine."""
    of_engine = [one["seconds"] for one in answer["rounds"] if one["engine"] == engine]
    return {work: statistics.median(one[work] for one in of_engine) for work in of_engine[0]}


def table_lines(ours: Mapping[str, float], theirs: Mapping[str, float]) -> list[str]:
    """Return the table of the works. Pure."""
    lines = ["| work | promised | lakefmt | beside it | share |", "|---|---|---|---|---|"]
    for work, seconds in ours.items():
        if work.endswith((OTHER, PLAIN)):
            continue
        beside = ours.get(f"{work}{OTHER}", theirs.get(work))
        promised = PROMISED.get(work) or PROMISED_READS.get(work)
        if beside is not None:
            limit = f"≤ {promised} ×" if promised else "–"
            named = "Spark's Parquet reader" if f"{work}{OTHER}" in ours else "Hudi"
            lines.append(f"| {work} | {limit} | {seconds:.2f} s | {named} {beside:.2f} s | {seconds / beside:.2f} × |")
        else:
            lines.append(f"| {work} | – | {seconds:.2f} s | – | – |")
        if f"{work}{PLAIN}" in ours:
            plain = ours[f"{work}{PLAIN}"]
            lines.append(f"| the same | plain + 0.3 s | {seconds:.2f} s | `table.upsert` {plain:.2f} s | – |")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.spark.run")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args(arguments)
    found = find_spark()
    if found is None:
        return 1
    data = prepare(ROOT / ".cache" / "bench-data", wanted.rows)
    with TemporaryDirectory() as folder:
        store_parts(data, Path(folder))
        before = os.getloadavg()[0]
        answer = run_session(found, Path(folder), wanted.rounds)
    print(f"{wanted.rows:,} rows × 14 columns, medians of {wanted.rounds} rounds, one warm session of PySpark")
    print(f"{answer['versions']['pyspark']}, local[2]; load of the machine before: {before:.1f}\n")
    print("\n".join(table_lines(medians(answer, "lakefmt"), medians(answer, "hudi"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
