"""A job by Spark, in turns with the same job without it: prints what it came to as JSON."""

import json
import pathlib
import sys

from pyspark.sql import SparkSession

import lakefmt
from lakefmt._core.ingest.options import resolve_table_job
from lakefmt._core.ingest.run import Ingester
from lakefmt.errors import LakefmtError
from lakefmt.spark.ingest import SparkEngine

base = pathlib.Path(sys.argv[1])
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
answers = {}


def ingest(spark: bool, **more: object) -> int:
    given = {"source": str(base / "in"), "table": str(base / "t"), "key": "id", "min_age": 0, **more}
    job, _ = resolve_table_job([("test", given)])
    done = Ingester([job], engine=SparkEngine(session) if spark else None, attempts=0).run()
    return done.tables[0].rows


def put(name: str, text: str) -> None:
    path = base / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def refused(**more: object) -> str:
    try:
        ingest(True, **more)
    except LakefmtError as error:
        return type(error).__name__
    return ""


put("day=1/a.jsonl", '{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n')
put("day=1/a.csv", "id,n\nx,9\n")
answers["rows"] = [ingest(True), ingest(True)]
put("day=2/b.jsonl", '{"id": "b", "n": 3}\n{"id": "c", "n": 4}\n')
answers["rows"] += [ingest(False), ingest(True)]
put("day=2/c.jsonl", '{"id": "d", "n": 5, "new": 1.5}\n')
answers["rows"] += [ingest(True, transformers=["SELECT id, n * 2 AS n, new, day FROM <SRC>"], checks={"fine": "n > 0"})]
put("day=2/d.jsonl", '{"id": "e", "n": -5}\n')
answers["refused"] = [
    refused(checks={"fine": "n > 0"}),
    refused(errors=str(base / "e")),
    refused(transformers=["flatten"]),
]
table = lakefmt.open_table(str(base / "t"))
answers["table"] = sorted(table.read().to_pylist(), key=lambda row: row["id"])
answers["commits"] = len(table.client.load().timeline.commits)
print("answers:" + json.dumps(answers))
