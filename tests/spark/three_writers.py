"""Two Spark drivers and a plain process upsert one table at the same time, under the file-system lock.

Run by an interpreter with PySpark: python three_writers.py DIRECTORY ANSWERS
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import pyarrow as pa

import lakefmt
from lakefmt.errors import CommitConflict, LockUnavailable

ROUNDS, OWN, SHARED, TRIES = 4, 20, 5, 40
WRITERS = ("driver-0", "driver-1", "plain")
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "lakefmt.spark.driver.max.rows": "0",
    "lakefmt.spark.task.bytes": "700",
}
#: What the plain process gives a table that is there already.
PLAIN = {name: value for name, value in OPTIONS.items() if name.startswith(("hoodie.write.",))}


def rows_of(writer: str, number: int) -> pa.Table:
    """Return what a writer upserts in a round: keys of its own, and keys that all of them change."""
    ids = [*(f"{writer}/{n}" for n in range(OWN)), *(f"all/{n}" for n in range(SHARED))]
    value = WRITERS.index(writer) * 100 + number
    cities = [f"c{n % 3}" for n in range(len(ids))]
    return pa.table([ids, cities, [value] * len(ids)], schema=SCHEMA)


def upsert(writer: str, path: str) -> None:
    """Upsert every round, again after a conflict."""
    spark: Any = None
    if writer != "plain":
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
    Path(path).parent.joinpath(f"ready {writer}").touch()
    sys.stdin.readline()  # all begin at once
    conflicts = 0
    for number in range(ROUNDS):
        rows = rows_of(writer, number)
        for last in (*[False] * TRIES, True):
            try:
                write(spark, rows, path)
                break
            except (CommitConflict, LockUnavailable):
                conflicts += 1
                if last:
                    raise
    print(json.dumps({"conflicts": conflicts}))


def write(spark: Any, rows: pa.Table, path: str) -> None:
    """Upsert once, by tasks or in this process."""
    if spark is None:
        lakefmt.open_table(path, options=PLAIN).upsert(rows)
        return
    import lakefmt.spark as lakefmt_spark

    frame = spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], "id string, city string, v long")
    lakefmt_spark.write(frame, path, **OPTIONS)


def main() -> None:
    """Run the three and tell what they left."""
    root, answers = sys.argv[1:]
    path = str(Path(root) / "t")
    write_first = rows_of("plain", 0).slice(0, 1)
    made = {name.removeprefix("hoodie.table."): value for name, value in OPTIONS.items() if "table.name" in name}
    lakefmt.write_table(path, write_first, record_key="id", partition_by="city", name=made["name"], options=PLAIN)
    command = [sys.executable, __file__, "--writer"]
    started = [
        subprocess.Popen([*command, each, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for each in WRITERS
    ]
    for each, process in zip(WRITERS, started, strict=True):
        while not Path(root, f"ready {each}").exists() and process.poll() is None:
            os.sched_yield()
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=400)[0] for process in started]
    table = lakefmt.open_table(path)
    found = dict(zip(*table.read(["id", "v"]).to_pydict().values(), strict=True))
    own = {f"{w}/{n}": i * 100 + ROUNDS - 1 for i, w in enumerate(WRITERS) for n in range(OWN)}
    answer = {
        "codes": [process.returncode for process in started],
        "conflicts": [json.loads(each)["conflicts"] if each.strip() else None for each in told],
        "own": {key: value for key, value in found.items() if not key.startswith("all/")} == own,
        "shared": sorted({value % 100 for key, value in found.items() if key.startswith("all/")}),
        "keys": len(found),
        "commits": len(table.client.load().timeline.commits),
        "pending": [str(instant) for instant in table.client.load().timeline.pending],
        "findings": [str(finding) for finding in table.check("full").findings],
    }
    Path(answers).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    upsert(*sys.argv[2:]) if sys.argv[1] == "--writer" else main()
