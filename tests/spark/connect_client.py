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

import lakefmt
import lakefmt.spark as lakefmt_spark

OPTIONS = {
    "hoodie.table.name": "connected",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
}


def count_of(frame: Any) -> int:
    """Return the number of rows; Connect of 3.5 counts in NumPy's integers."""
    return int(frame.count())


def batches(spark: Any, root: Path) -> dict[str, Any]:
    """Create, upsert and read by the format's name and by functions."""
    path = str(root / "connected")
    frame = spark.range(30).selectExpr("concat('k', id) as id", "id as v", "id as ts")
    frame.write.format("lakefmt").options(**OPTIONS).mode("append").save(path)
    changed = lakefmt_spark.write(frame.where("ts < 3").selectExpr("id", "-v - 1 as v", "ts"), path, **OPTIONS)
    return {
        "changed": changed.num_updates,
        "format": count_of(spark.read.format("lakefmt").load(path).where("v < 0")),
        "function": count_of(lakefmt_spark.read(spark, path)),
        "rows": [len(streams.rows(path)), streams.rows(path)[0]],
        "again": streams.refusal(lambda: frame.write.format("lakefmt").options(**OPTIONS).save(path)),
    }


def tasks(spark: Any, root: Path) -> dict[str, Any]:
    """Write and delete by tasks of the server, by each way; replace and leave out by modes; read older states."""
    path, place = str(root / "connected-tasks"), "hoodie.datasource.write.partitionpath.field"
    options = {**OPTIONS, place: "city", "lakefmt.spark.driver.max.rows": 0}
    frame = spark.range(20).selectExpr("concat('k', id) as id", "id as v", "id as ts", "concat('c', id % 3) as city")
    batch_rows = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    some, operation = frame.where("ts < 5"), "hoodie.datasource.write.operation"
    writes: list[tuple[Any, dict[str, Any]]] = [
        (frame, {operation: "bulk_insert"}),
        (some.selectExpr("id", "-v - 1 as v", "ts", "city"), {}),
        (some.selectExpr("id", "-v - 2 as v", "ts", "city"), {"lakefmt.spark.task.max.bytes": 1}),
        (some.where("ts > 2").select("id", "city"), {operation: "delete"}),
    ]
    ways = []
    for rows, more in writes:
        ways.append(lakefmt_spark.explain_write(rows, path, **options, **more).way)
        last = lakefmt_spark.write(rows, path, **options, **more)
    told: dict[str, Any] = {"ways": ways, "written": streams.rows(path), "deleted": last.num_deletes}
    told["conf"] = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == batch_rows
    times = [instant.time for instant in lakefmt.open_table(path).client.load().timeline.commits]
    query = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "000"}
    by_tasks = {"lakefmt.spark.read.native": "never"}
    first = spark.read.format("lakefmt").options(**{"as.of.instant": times[0]}).load(path)
    told["first"] = count_of(first.where("v < 0"))
    told["increment"] = count_of(lakefmt_spark.read(spark, path, **query))
    changes = {**query, "hoodie.datasource.query.incremental.format": "cdc"}
    told["changes"] = count_of(lakefmt_spark.read(spark, path, **changes))
    told["by tasks"] = spark.read.format("lakefmt").options(**by_tasks).load(path).selectExpr("sum(ts)").collect()[0][0]
    frame.write.format("lakefmt").options(**options).mode("ignore").save(path)
    told["ignored"] = len(lakefmt.open_table(path).client.load().timeline.commits) - len(times)
    some.write.format("lakefmt").options(**options).mode("overwrite").save(path)
    told["overwritten"] = len(streams.rows(path))
    return told


def queries(spark: Any, root: Path) -> dict[str, Any]:
    """Write a stream and read one; a batch that is in the table stays out after a restart."""
    source, path, checkpoint = root / "connected-in", str(root / "streamed"), root / "connected-checkpoint"
    streams.batches(source, 2)
    stream = streams.stream_of(spark, source)
    sink = {**OPTIONS, "hoodie.datasource.write.streaming.retry.interval.ms": "0"}
    failed = streams.run(stream.writeStream.format("lakefmt").options(**sink), checkpoint, path)
    if failed:
        return {"failed": failed}
    answers: dict[str, Any] = {"failed": "", "commits": len(streams.commits(path)), "rows": len(streams.rows(path))}
    streams.forget(checkpoint, 1)
    answers["restart failed"] = streams.run(stream.writeStream.format("lakefmt").options(**sink), checkpoint, path)
    answers["after restart"] = len(streams.commits(path))
    if not hasattr(spark, "dataSource"):
        answers["source"] = streams.refusal(lambda: spark.readStream.format("lakefmt").load(path))
        return answers
    copy = str(root / "connected-copy")
    reading = spark.readStream.format("lakefmt").load(path)
    answers["copy failed"] = streams.run(
        reading.writeStream.format("lakefmt").options(**sink), root / "connected-copying", copy
    )
    answers["copied"] = not answers["copy failed"] and streams.rows(copy) == streams.rows(path)
    return answers


def services(spark: Any, root: Path) -> dict[str, Any]:
    """Compact, cluster and clean by tasks of the server."""
    path = str(root / "connected-mor")
    for v in (1, 2):
        streams.upsert(path, "a", "b", v=v, table_type="mor")
    answers: dict[str, Any] = {"files": len(lakefmt_spark.compact(spark, path).files), "rows": streams.rows(path)}
    answers["clustered"] = lakefmt_spark.cluster(spark, path, "id").num_rows
    answers["cleaned"] = lakefmt_spark.clean(spark, path, **{"hoodie.clean.commits.retained": 1}).files_deleted > 0
    answers["left"] = streams.rows(path)
    return answers


def main() -> None:
    """Ask everything and write what was answered, errors included."""
    url, root, answers = sys.argv[1:]
    spark = SparkSession.builder.remote(url).getOrCreate()
    before = streams.methods(spark)
    lakefmt_spark.register(spark)
    assert streams.methods(spark) != before
    told: dict[str, Any] = {}
    for scenario in (batches, tasks, queries, services):
        try:
            told[scenario.__name__] = scenario(spark, Path(root))
        except Exception as error:
            told[scenario.__name__] = {"failed": f"{type(error).__name__}: {error}"[:4000]}
        Path(answers).write_text(json.dumps(told, default=str), "utf-8")  # what was answered before a scenario hangs
    lakefmt_spark.unregister()
    told["unregistered"] = streams.methods(spark) == before
    Path(answers).write_text(json.dumps(told, default=str), "utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
