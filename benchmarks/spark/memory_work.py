"""The part of `bench_memory` that runs in an interpreter with PySpark: a load and an upsert, and the memory of each process.

    python memory_work.py FOLDER ROWS

``FOLDER/memory.json`` gets the seconds of each work and the peak of resident memory, in bytes, of the driver's Python and of the
largest Python worker while it ran.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from session_work import LAKEFMT_ONLY, OPERATION, OPTIONS, session

import lakefmt
import lakefmt.spark
from benchmarks.harness.memory import resident

POLL_SECONDS = 0.05


def rows_of(spark: SparkSession, rows: int, step: int, ts: int) -> DataFrame:
    """Return every `step`-th of `rows` rows of 14 columns, which follow from their number."""
    frame = spark.range(0, rows, step, numPartitions=16)
    number, mixed = f.col("id"), f.xxhash64("id")
    text = f.concat(f.lit("text "), (f.abs(mixed) % 97).cast("string"))
    return frame.select(
        f.concat(f.hex(mixed), f.lpad(number.cast("string"), 20, "0")).alias("uuid"),
        f.concat(f.lit("2026-01-"), f.lpad((f.abs(mixed) % 30 + 1).cast("string"), 2, "0")).alias("day"),
        f.lit(ts).cast("long").alias("ts"),
        *((mixed % 1000003 / (n + 2)).alias(f"f{n}") for n in range(5)),
        *((f.abs(mixed) % (10 ** (n + 2))).alias(f"i{n}") for n in range(4)),
        text.alias("s0"),
        (f.abs(mixed) % 13).cast("string").alias("s1"),
    )


class Watch:
    """Takes the resident memory of this process and of the Python workers of Spark, until it is stopped."""

    def __init__(self) -> None:
        self.driver = self.worker = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            self.driver = max(self.driver, resident() or 0)
            self.worker = max([self.worker, *map(_resident_of, _workers())])


def _workers() -> list[int]:
    """Return the processes that run Spark's tasks: children of its daemon."""
    command = {int(path.name): _text(path / "cmdline") for path in Path("/proc").iterdir() if path.name.isdigit()}
    return [pid for pid, text in command.items() if "pyspark.daemon" in text and pid != os.getpid()]


def _resident_of(pid: int) -> int:
    lines = _text(Path(f"/proc/{pid}/status")).splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def main() -> None:
    """Load and upsert, and store the figures."""
    folder, rows = Path(sys.argv[1]), int(sys.argv[2])
    spark = session(folder)
    lakefmt.spark.register(spark)
    path = str(folder / "table")
    answer: dict[str, Any] = {"pyspark": spark.version, "works": []}
    for operation, step, ts in (("bulk_insert", 1, 1), ("upsert", 100, 2)):
        started = perf_counter()
        with Watch() as watch:
            frame = rows_of(spark, rows, step, ts)
            frame.write.format("lakefmt").options(**OPTIONS, **LAKEFMT_ONLY, **{OPERATION: operation}).mode(
                "append"
            ).save(path)
        seconds = perf_counter() - started
        answer["works"].append({"work": operation, "seconds": seconds, "driver": watch.driver, "worker": watch.worker})
    changed = 0
    for batch in lakefmt.open_table(path).scan(columns=["ts"]):
        answer["rows"] = answer.get("rows", 0) + batch.num_rows
        changed += pc.sum(pc.equal(batch.column("ts"), 2)).as_py() or 0
    answer["changed"] = changed
    answer["largest_file"] = max(one.stat().st_size for one in Path(path).glob("*/*.parquet"))
    (folder / "memory.json").write_text(json.dumps(answer), "utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
