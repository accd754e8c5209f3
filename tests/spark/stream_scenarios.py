"""What is asked of streams in one session of PySpark; `scenarios.py` runs these beside its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lakefmt
import lakefmt.spark as lakefmt_spark

OPTIONS = {
    "hoodie.table.name": "events",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.streaming.retry.interval.ms": "0",
}
SCHEMA = "id string, v long, ts long"
CHECKPOINT = "_hudi_streaming_sink_checkpoint"


def feed(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    """Add one file, which is one batch of the stream that reads the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(json.dumps(row) for row in rows)
    half = folder / f".half-{number}"
    half.write_text(text + "\n", "utf-8")
    half.rename(folder / f"{number:04}.json")


def batches(folder: Path, count: int, start: int = 0) -> None:
    """Add `count` files of three new keys each, and one key that all of them change."""
    for number in range(start, start + count):
        rows = [{"id": f"{number}-{n}", "v": n, "ts": number} for n in range(3)]
        feed(folder, number, [*rows, {"id": "same", "v": number, "ts": number}])


def stream_of(spark: Any, folder: Path) -> Any:
    """Return a stream whose batches are the files of a folder."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def run(writer: Any, checkpoint: Path, path: str | None = None) -> str:
    """Run a query until nothing is left to read; return how it failed, or nothing."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    try:
        query = writer.start() if path is None else writer.start(path)
        query.awaitTermination()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def commits(path: str) -> list[str]:
    """Return the operations of a table's commits, oldest first."""
    client = lakefmt.open_table(path).client
    state = client.load()
    return [client.commit_metadata(state, i).operation.value for i in state.timeline.commits]


def label_of(path: str) -> str:
    """Return the label of the newest commit."""
    client = lakefmt.open_table(path).client
    state = client.load()
    return client.commit_metadata(state, state.timeline.commits[-1]).extra_metadata.get(CHECKPOINT, "")


def rows(path: str) -> list[list[Any]]:
    """Return the rows of a table, in order."""
    return sorted(map(list, zip(*lakefmt.open_table(path).read(["id", "v"]).to_pydict().values(), strict=True)))


def sinks(spark: Any, root: Path) -> dict[str, Any]:
    """Write batches, crash between the table's commit and Spark's, begin with another folder, replace everything."""
    source, path, checkpoint = root / "sinks-in", str(root / "sinks"), root / "sinks-checkpoint"
    lakefmt_spark.register(spark)
    try:
        batches(source, 2)
        answers: dict[str, Any] = {
            "failed": run(stream_of(spark, source).writeStream.format("lakefmt").options(**OPTIONS), checkpoint, path),
            "commits": commits(path),
            "label": label_of(path),
        }
        batches(source, 2, start=2)
        sink = lakefmt_spark.stream_batch(path, **OPTIONS)
        crashed = run(stream_of(spark, source).writeStream.foreachBatch(crashing(sink, 2)), checkpoint)
        answers["crashed"] = "stopped after the commit" in crashed
        answers["before restart"] = len(commits(path))
        run(stream_of(spark, source).writeStream.format("lakefmt").options(**OPTIONS), checkpoint, path)
        answers["after restart"] = len(commits(path))
        answers["rows"] = rows(path)
        run(stream_of(spark, source).writeStream.format("lakefmt").options(**OPTIONS), root / "other", path)
        answers["another folder"] = [len(commits(path)), label_of(path), len(rows(path))]
        feed(source, 9, [])
        run(stream_of(spark, source).writeStream.format("lakefmt").options(**OPTIONS), checkpoint, path)
        answers["empty"] = len(commits(path))
        counts = stream_of(spark, source).groupBy("id").count().selectExpr("id", "count as v", "0L as ts")
        totals = str(root / "sinks-totals")
        complete = counts.writeStream.format("lakefmt").outputMode("complete").options(**OPTIONS)
        answers["complete failed"] = run(complete, root / "totals-checkpoint", totals)
        answers["complete"] = [commits(totals)[-1], dict(rows(totals))["same"], len(rows(totals))]
        answers["table"] = refusal(lambda: stream_of(spark, source).writeStream.format("lakefmt").toTable("nowhere"))
    finally:
        lakefmt_spark.unregister()
    return answers


def crashing(sink: Callable[[Any, int], None], at: int) -> Callable[[Any, int], None]:
    """Return the sink of a driver that dies when batch `at` is in the table."""

    def write(frame: Any, number: int) -> None:
        sink(frame, number)
        if number == at:
            raise RuntimeError("stopped after the commit")

    return write


def refusal(call: Callable[[], Any]) -> str:
    """Return the text of what a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


SCENARIOS = (sinks,)
