"""Runs the batches of a stream in processes that are killed; asked by ``test_spark_stream_kills.py``, one line for each run.

A line is ``[directory, effect or null, looks, kind, batches]``, where a kind of table is one that is clustered beside the stream,
and null none; the answer is the number of the signal that ended the process, or 0. Every run is
a process forked from this one, which has no threads.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from played_writes import RowsFrame, write_few, write_frame  # beside this file

from lakefmt.spark import services
from lakefmt.spark.streams import sink as stream_sink
from lakefmt.testing.crash import die_at

BATCHES, ROWS = 5, 3
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
#: Rows without a key: a batch that is written twice shows. A rollback that was killed has no heartbeat and counts as dead by age.
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.operation": "insert",
    "hoodie.client.heartbeat.interval_in_ms": "10",
    "hoodie.client.heartbeat.tolerable.misses": "1",
}
#: Rows with keys, one of which every batch changes: it is in a file group that is clustered.
CLUSTERED = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.streaming.retry.count": "1",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clustering.async.enabled": "true",
    "hoodie.clustering.async.max.commits": "2",
}
SHARED = "same"


class Frame(RowsFrame):
    """The rows of one batch."""

    def __init__(self, batch: int, *more: str) -> None:
        keys = [*(f"{batch}-{n}" for n in range(ROWS)), *more]
        super().__init__(pa.table({"id": keys, "v": [batch] * len(keys)}, schema=SCHEMA))


def run_query(root: Path) -> None:
    """Run the batches that Spark's log lacks, as Spark does: the log is written after the table's commit."""
    sink = stream_sink.StreamSink(str(root / "table"), "append", OPTIONS, query="q")
    log = root / "commits"
    done = [int(file.name) for file in log.iterdir()]
    for batch in range(max(done, default=-1) + 1, BATCHES):
        sink(Frame(batch), batch)
        (log / str(batch)).write_text("v1", "utf-8")


def run_clustered(root: Path, kind: str, batches: int) -> None:
    """The same with a clustering beside, which ends before the next batch, so that every run makes the same changes."""
    options = {**CLUSTERED, "hoodie.datasource.write.table.type": kind}
    sink = stream_sink.StreamSink(str(root / "table"), "append", options, query="q")
    log = root / "commits"
    done = [int(file.name) for file in log.iterdir()]
    for batch in range(max(done, default=-1) + 1, batches):
        sink(Frame(batch, SHARED), batch)
        (log / str(batch)).write_text("v1", "utf-8")
        sink.wait()


def run_here(_spark: Any, run_one: Callable[[int], Any], count: int, _what: str) -> list[Any]:
    """Run the tasks of a service in this process."""
    return [run_one(number) for number in range(count)]


def main() -> None:
    """Answer every line."""
    stream_sink.write_dataframe = write_frame
    stream_sink.write_few_rows = write_few
    services._run_tasks = run_here
    for line in sys.stdin:
        root, effect, looks, kind, batches = json.loads(line)
        child = os.fork()
        if child == 0:
            if not looks:
                stream_sink.choose_batch = lambda *_: True
            if effect is not None:
                die_at(effect)
            if kind is None:
                run_query(Path(root))
            else:
                run_clustered(Path(root), kind, batches)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
