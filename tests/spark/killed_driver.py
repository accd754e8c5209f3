"""A driver of PySpark whose stream writes a table until it is killed, with its JVM; run by ``test_spark_driver_kills.py``.

python killed_driver.py DIRECTORY MOMENT NUMBER LOOKS

The moments: ``commit``, behind the table's commit of the NUMBER-th batch and before Spark's; ``effect``, before the NUMBER-th
change of the file system by this process; ``task``, when the first task has written its files; ``time``: the test chooses,
and the driver says when its first batch begins; ``end``: not at all, the query ends when nothing is left to read.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from stream_scenarios import stream_of  # beside this file

import lakefmt.spark as lakefmt_spark
from lakefmt.spark.streams import sink as stream_sink
from lakefmt.spark.writing import distributed
from lakefmt.testing import crash
from tests.judges.spark_settings import small_session

MEMORY = "512m"
#: Rows without a key: a batch that is written twice shows. A batch of more rows than ten is written by tasks, and who is dead
#: counts as dead when the next driver has started.
OPTIONS = {
    "hoodie.table.name": "events",
    "hoodie.datasource.write.operation": "insert",
    "hoodie.datasource.write.partitionpath.field": "v",
    "lakefmt.spark.driver.max.rows": "10",
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "1",
}


def session() -> SparkSession:
    """Return a small session."""
    builder = SparkSession.builder.master("local[2]").appName("killed")
    for name, value in small_session(MEMORY).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def kill_group(group: int) -> None:
    """End this driver, its JVM and whatever else is of their group, all at once."""
    os.killpg(group, signal.SIGKILL)


def dying_sink(sink: Callable[[Any, int], None], batches: int) -> Callable[[Any, int], None]:
    """Return a sink that ends the driver when so many batches are in the table, and the last not yet in Spark's log."""
    written = 0

    def write(frame: Any, number: int) -> None:
        nonlocal written
        sink(frame, number)
        written += 1
        if written == batches:
            kill_group(os.getpgrp())

    return write


def deadly_task(made: Callable[[Any], Iterator[Any]], group: int) -> Callable[[Any], Iterator[Any]]:
    """Return a task that ends the driver when it has written its files."""

    def run(batches: Any) -> Iterator[Any]:
        answers = list(made(batches))
        if answers:
            os.killpg(group, signal.SIGKILL)
        yield from answers

    return run


def telling(write: Callable[..., None]) -> Callable[..., None]:
    """Return a sink that says when a batch begins."""

    def tell(self: Any, frame: Any, number: int) -> None:
        print(number, flush=True)
        write(self, frame, number)

    return tell


def main() -> None:
    """Run the stream."""
    root, moment, number, looks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "True"
    path, group = str(root / "table"), os.getpgrp()
    spark = session()
    spark.sparkContext.setLogLevel("OFF")
    lakefmt_spark.register(spark)
    if not looks:
        stream_sink.choose_batch = lambda *_: True
    if moment == "time":
        stream_sink.StreamSink.__call__ = telling(stream_sink.StreamSink.__call__)
    if moment == "task":
        made = distributed.write_task
        distributed.write_task = lambda *given: deadly_task(made(*given), group)
    writer = stream_of(spark, root / "in").writeStream
    if moment == "commit":
        writer = writer.foreachBatch(dying_sink(lakefmt_spark.stream_batch(path, **OPTIONS), number))
    else:
        writer = writer.format("lakefmt").options(**OPTIONS).option("path", path)
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    if moment == "end":
        writer = writer.trigger(availableNow=True)
    print(spark.sparkContext._gateway.proc.pid, flush=True)
    # The process that dies takes its group along.
    with mock.patch.object(crash.os, "kill", os.killpg):
        if moment == "effect":
            crash.die_at(number)
        query = writer.start()
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
