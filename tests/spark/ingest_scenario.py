"""A job by Spark, in turns with the same job without it: prints what it came to as JSON."""

import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lakefmt
from lakefmt._core.ingest.options import resolve_table_job
from lakefmt._core.ingest.run import Ingester
from lakefmt.errors import LakefmtError
from lakefmt.spark.ingest import SparkEngine

base = pathlib.Path(sys.argv[1])
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
answers = {}


def ingest(spark: bool, folder: str = "in", name: str = "t", **more: object) -> int:
    given = {"source": str(base / folder), "table": str(base / name), "key": "id", "min_age": 0, **more}
    job, _ = resolve_table_job([("test", given)])
    done = Ingester([job], engine=SparkEngine(session) if spark else None, attempts=0).run()
    return done.tables[0].rows


def own_rows() -> list[dict[str, object]]:
    """Return rows of the program, which tasks of Spark do not have."""
    return [{"id": "z", "n": 1}]


def put(name: str, text: str) -> None:
    path = base / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def refused(**more: object) -> str:
    try:
        ingest(True, **more)
    except LakefmtError as error:
        return type(error).__name__
    return ""


def rows_of(name: str) -> list[dict[str, object]]:
    return sorted(lakefmt.open_table(str(base / name)).read().to_pylist(), key=lambda row: json.dumps(row, default=str))


put("in/day=1/a.jsonl", '{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n')
put("in/day=1/a.csv", "id,n\nx,9\n")
answers["rows"] = [ingest(True), ingest(True)]
put("in/day=2/b.jsonl", '{"id": "b", "n": 3}\n{"id": "c", "n": 4}\n')
answers["rows"] += [ingest(False), ingest(True)]
put("in/day=2/c.jsonl", '{"id": "d", "n": 5, "new": 1.5}\n')
answers["rows"] += [ingest(True, transformers=["SELECT id, n * 2 AS n, new, day FROM <SRC>"], checks={"fine": "n > 0"})]
put("in/day=2/d.jsonl", '{"id": "e", "n": -5}\n')
answers["refused"] = [
    refused(checks={"fine": "n > 0"}),
    refused(transformers=["SELECT * FROM <SRC>", "flatten"]),
    refused(name="rows", source_kind="rows", source="__main__:own_rows"),
]
answers["table"] = rows_of("t")
answers["commits"] = len(lakefmt.open_table(str(base / "t")).client.load().timeline.commits)

# What is bad goes to the errors by either engine, under the same names; the rows are equal, too.
put("odd/a[1].jsonl", '{"id": "007", "n": 1, "at": "2026-01-01", "deep": {"x": 1}}\nno JSON\n{"id": null, "n": 5}\n')
put("odd/b {x}.csv", "id,n\n007,2\n07,3\n")
pq.write_table(pa.table({"id": ["p", "007"], "n": [2**53 + 1, 4]}), base / "odd/c.parquet")
put("odd/d.parquet", "no Parquet")
for name, spark in (("by_spark", True), ("by_python", False)):
    how = {"errors": str(base / f"{name}_e"), "transformers": ["flatten"], "checks": {"small": "n != 3"}}
    answers[name] = [ingest(spark, "odd", name, on_check_failed="quarantine", **how), rows_of(name)]
    # A row of Spark has the columns of all files.
    payloads = [(row["origin"].partition("@")[0], row["payload"], row["reason"]) for row in rows_of(f"{name}_e")]
    answers[name] += [sorted([o, str(p).replace(', "at": null, "deep_x": null', ""), r] for o, p, r in payloads)]

# Nothing but bad rows still moves the checkpoint.
put("odd/e.jsonl", "no JSON\n")
answers["bad alone"] = [
    ingest(True, "odd", "by_spark", errors=str(base / "by_spark_e"), transformers=["flatten"]) for _ in range(2)
]
answers["bad alone"] += [len(rows_of("by_spark_e"))]
print("answers:" + json.dumps(answers))
