"""What is asked of a session of Spark Connect: run by a client that has no JVM, answers go to a JSON file.

python connect_client.py URL DIRECTORY ANSWERS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import stream_scenarios as streams  # beside this file
from pyspark.sql import SparkSession

import lakefmt.spark as lakefmt_spark

OPTIONS = {
    "hoodie.table.name": "connected",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
}


def batches(spark: Any, root: Path) -> dict[str, Any]:
    """Create, upsert and read by the format's name and by functions."""
    path = str(root / "connected")
    frame = spark.range(30).selectExpr("concat('k', id) as id", "id as v", "id as ts")
    frame.write.format("lakefmt").options(**OPTIONS).mode("append").save(path)
    changed = lakefmt_spark.write(frame.where("ts < 3").selectExpr("id", "-v - 1 as v", "ts"), path, **OPTIONS)
    return {
        "changed": changed.num_updates,
        "format": spark.read.format("lakefmt").load(path).where("v < 0").count(),
        "function": lakefmt_spark.read(spark, path).count(),
        "rows": [len(streams.rows(path)), streams.rows(path)[0]],
        "again": streams.refusal(lambda: frame.write.format("lakefmt").options(**OPTIONS).save(path)),
    }


def queries(spark: Any, root: Path) -> dict[str, Any]:
    """Write a stream and read one; a batch that is in the table stays out after a restart."""
    source, path, checkpoint = root / "connected-in", str(root / "streamed"), root / "connected-checkpoint"
    streams.batches(source, 2)
    stream = streams.stream_of(spark, source)
    sink = {**OPTIONS, "hoodie.datasource.write.streaming.retry.interval.ms": "0"}
    failed = streams.run(stream.writeStream.format("lakefmt").options(**sink), checkpoint, path)
    answers = {"failed": failed, "commits": len(streams.commits(path)), "rows": len(streams.rows(path))}
    streams.forget(checkpoint, 1)
    answers["restart failed"] = streams.run(stream.writeStream.format("lakefmt").options(**sink), checkpoint, path)
    answers["after restart"] = len(streams.commits(path))
    copy = str(root / "connected-copy")
    reading = spark.readStream.format("lakefmt").load(path)
    answers["copy failed"] = streams.run(
        reading.writeStream.format("lakefmt").options(**sink), root / "connected-copying", copy
    )
    answers["copied"] = not answers["copy failed"] and streams.rows(copy) == streams.rows(path)
    return answers


def services(spark: Any, root: Path) -> dict[str, Any]:
    """Compact by tasks of the server."""
    path = str(root / "connected-mor")
    for v in (1, 2):
        streams.upsert(path, "a", "b", v=v, table_type="mor")
    return {"files": len(lakefmt_spark.compact(spark, path).files), "rows": streams.rows(path)}


def main() -> None:
    """Ask everything and write what was answered, errors included."""
    url, root, answers = sys.argv[1:]
    spark = SparkSession.builder.remote(url).getOrCreate()
    before = streams.methods(spark)
    lakefmt_spark.register(spark)
    assert streams.methods(spark) != before
    told: dict[str, Any] = {}
    for scenario in (batches, queries, services):
        try:
            told[scenario.__name__] = scenario(spark, Path(root))
        except Exception as error:
            told[scenario.__name__] = {"failed": f"{type(error).__name__}: {error}"[:4000]}
    lakefmt_spark.unregister()
    told["unregistered"] = streams.methods(spark) == before
    Path(answers).write_text(json.dumps(told, default=str), "utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
