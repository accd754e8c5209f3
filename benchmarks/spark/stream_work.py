"""The part of `bench_stream` that runs in an interpreter with PySpark: one stream for each engine, batch by batch.

    python stream_work.py FOLDER BATCHES ROWS CLEANS ENGINE …       CLEANS: true, false; ENGINE: lakefmt, hudi

The seconds of every batch go to ``FOLDER/batches.json``, by engine and table type, with the rows that the table has in the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from session_work import HUDI_ONLY, LAKEFMT_ONLY, OPERATION, OPTIONS, TYPE, session

import lakefmt.spark

KINDS = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
KEYS = 100_000
WAIT_SECONDS = 3600


def store_batches(folder: Path, batches: int, rows: int) -> int:
    """Store one Parquet file a batch, and return how many keys they have together."""
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, KEYS, (batches, rows))
    folder.mkdir()
    for number, batch in enumerate(numbers):
        columns: dict[str, Any] = {
            "uuid": [f"{key:036d}" for key in batch.tolist()],
            "day": [f"2026-01-{key % 30 + 1:02d}" for key in batch.tolist()],
            "ts": np.full(rows, number, np.int64),
            "f0": rng.random(rows),
            "text": [f"text {key % 97}" for key in batch.tolist()],
        }
        pq.write_table(pa.table(columns), folder / f"{number:05d}.parquet")
    return len(np.unique(numbers))


def run_stream(spark: SparkSession, engine: str, kind: str, cleans: str, source: Path, folder: Path) -> list[float]:
    """Write every file of `source` as one batch, and return the seconds of each from its trigger to its commit."""
    more = HUDI_ONLY if engine == "hudi" else LAKEFMT_ONLY
    options = {**OPTIONS, **more, OPERATION: "upsert", TYPE: KINDS[kind], "hoodie.clean.automatic": cleans}
    schema = spark.read.parquet(str(source)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = stream.writeStream.format(engine).options(**options)
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{engine}-{kind}"))
    query = writer.trigger(availableNow=True).start(str(folder / f"{engine}-{kind}"))
    query.awaitTermination(WAIT_SECONDS)
    error = query.exception()
    if error is not None:
        raise RuntimeError(f"the stream of {engine} into {kind} failed: {error}")
    return [one["durationMs"]["triggerExecution"] / 1000 for one in query.recentProgress if one["numInputRows"]]


def main() -> None:
    """Run the streams and store their seconds."""
    folder, batches, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    cleans, engines = sys.argv[4], sys.argv[5:]
    keys = store_batches(folder / "source", batches, rows)
    spark = session(folder)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + 10))
    lakefmt.spark.register(spark)
    answer: dict[str, Any] = {"keys": keys, "pyspark": spark.version, "streams": []}
    for kind in KINDS:
        for engine in engines:
            seconds = run_stream(spark, engine, kind, cleans, folder / "source", folder)
            stored = spark.read.format(engine).load(str(folder / f"{engine}-{kind}")).count()
            answer["streams"].append({"engine": engine, "kind": kind, "seconds": seconds, "rows": stored})
    (folder / "batches.json").write_text(json.dumps(answer), "utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
