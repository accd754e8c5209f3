"""Runs the batches of a stream in processes that are killed; asked by ``test_spark_stream_kills.py``, one line for each run.

A line is ``[directory, effect or null, looks]``, the answer the number of the signal that ended the process, or 0. Every run is
a process forked from this one, which has no threads.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakefmt.spark.options import parse_write_options
from lakefmt.spark.streams import sink as stream_sink
from lakefmt.spark.writing.commit import write_and_commit, write_few_and_commit
from lakefmt.spark.writing.dataframe import with_commit_metadata
from lakefmt.spark.writing.few_rows import FewRows
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


class Frame:
    """Stands in for the rows of one batch."""

    sparkSession = None  # noqa: N815 - as Spark calls it

    def __init__(self, batch: int) -> None:
        self.rows = pa.table({"id": [f"{batch}-{n}" for n in range(ROWS)], "v": [batch] * ROWS}, schema=SCHEMA)

    def isEmpty(self) -> bool:
        return False


def write_frame(df: Any, path: str, mode: str, *, commit_metadata: dict[str, str], **options: str) -> None:
    """Write as ``write_dataframe`` does when the rows are few."""
    call = with_commit_metadata(parse_write_options(options), commit_metadata)
    write_and_commit(path, mode, call, SCHEMA, lambda: [df.rows])


def write_few(
    df: Any, path: str, *, table: Any, row_bytes: float | None, commit_metadata: dict[str, str], **options: Any
) -> FewRows:
    """Write as ``write_few_rows`` does, which later batches of a query go through."""
    call = with_commit_metadata(parse_write_options(options), commit_metadata)
    write_few_and_commit(table, "append", call, [df.rows])
    return FewRows(df.rows.num_rows, df.rows.nbytes)


def run_query(root: Path) -> None:
    """Run the batches that Spark's log lacks, as Spark does: the log is written after the table's commit."""
    sink = stream_sink.StreamSink(str(root / "table"), "append", OPTIONS, query="q")
    log = root / "commits"
    done = [int(file.name) for file in log.iterdir()]
    for batch in range(max(done, default=-1) + 1, BATCHES):
        sink(Frame(batch), batch)
        (log / str(batch)).write_text("v1", "utf-8")


def main() -> None:
    """Answer every line."""
    stream_sink.write_dataframe = write_frame
    stream_sink.write_few_rows = write_few
    for line in sys.stdin:
        root, effect, looks = json.loads(line)
        child = os.fork()
        if child == 0:
            if not looks:
                stream_sink.choose_batch = lambda *_: True
            if effect is not None:
                die_at(effect)
            run_query(Path(root))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
