"""Consistent hashing in one session of PySpark: tasks and Apache Hudi write, split and merge buckets of one table by turns.

Run by ``scenarios.py``, where the session has Hudi's JAR.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lakefmt
import lakefmt.spark as lakefmt_spark

OPERATION = "hoodie.datasource.write.operation"
OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
}
#: Tasks write, few as the rows are, several of them in one partition path.
BY_TASKS = {"lakefmt.spark.driver.max.rows": "0", "lakefmt.spark.task.bytes": "300"}
_CLUSTERING = "org.apache.hudi.client.clustering."
TWICE = {
    "hoodie.clustering.updates.strategy": f"{_CLUSTERING}update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
}
CLASSES = {
    "hoodie.clustering.plan.strategy.class": f"{_CLUSTERING}plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
    "hoodie.clustering.execution.strategy.class": f"{_CLUSTERING}run.strategy."
    "SparkConsistentBucketClusteringExecutionStrategy",
    **TWICE,
}
#: A bucket is too large at once; one that is split has two halves.
SPLIT = {
    "hoodie.parquet.max.file.size": "1024",
    "hoodie.bucket.index.max.num.buckets": "4",
    "hoodie.bucket.index.min.num.buckets": "1",
}
MERGE = {
    "hoodie.parquet.max.file.size": str(1 << 30),
    "hoodie.bucket.index.max.num.buckets": "4",
    "hoodie.bucket.index.min.num.buckets": "1",
}
HUDI = {
    **OPTIONS,
    **CLASSES,
    "hoodie.write.table.version": "8",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
}
SPLIT_BY_LAKEFMT = {"hoodie.bucket.index.max.num.buckets": 4, "hoodie.bucket.index.split.threshold": 0}


class Turns:
    """A table that both engines write, and what it must hold."""

    def __init__(self, spark: Any, path: Path) -> None:
        self.spark, self.path = spark, str(path)
        self.expected: dict[str, tuple[str, float]] = {}
        self.ways: list[str] = []
        self.answers: dict[str, Any] = {}

    def _frame(self, first: int, last: int, v: float) -> Any:
        self.expected |= {f"k{n}": (f"c{n % 3}", v) for n in range(first, last)}
        return self.spark.range(first, last).selectExpr(
            "concat('k', id) id", "concat('c', id % 3) city", f"{v}D v", f"{int(v)}L ts"
        )

    def tasks(self, first: int, last: int, v: float, **more: str) -> None:
        """Write by tasks."""
        rows, options = self._frame(first, last, v), {**OPTIONS, **BY_TASKS, **more}
        self.ways.append(lakefmt_spark.explain_write(rows, self.path, **options).way)
        lakefmt_spark.write(rows, self.path, **options)
        if more.get(OPERATION) == "delete":
            for n in range(first, last):
                del self.expected[f"k{n}"]

    def hudi(self, first: int, last: int, v: float, **more: str) -> None:
        """Write by Hudi."""
        rows = self._frame(first, last, v)
        rows.write.format("hudi").options(**{**HUDI, OPERATION: "upsert", **more}).mode("append").save(self.path)

    def call(self, op: str, **more: str) -> None:
        """Let Hudi plan or run a clustering."""
        settings = {**HUDI, **more}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            self.spark.sql(f"call run_clustering(path => '{self.path}', op => '{op}')").collect()
        finally:
            for name in settings:
                self.spark.conf.unset(name)

    def look(self, step: str) -> None:
        """Read by both engines; count the buckets of a partition."""
        frame = self.spark.read.format("hudi").load(self.path)
        by_hudi = {row["id"]: (row["city"], row["v"]) for row in frame.select("id", "city", "v").collect()}
        twice = frame.count() - len(by_hudi)
        table = lakefmt.open_table(self.path)
        ours = table.read(["id", "city", "v"]).to_pylist()
        by_lakefmt = {row["id"]: (row["city"], row["v"]) for row in ours}
        self.answers[step] = {
            "hudi": by_hudi == self.expected,
            "lakefmt": by_lakefmt == self.expected,
            "twice": [twice, len(ours) - len(by_lakefmt)],
            "waiting": len(table.client.load().timeline.pending_clusterings),
            "buckets": len([group for group in table.file_groups() if group.partition == "c0"]),
        }


def buckets_by_turns(spark: Any, root: Path) -> dict[str, Any]:
    """Tasks create; Hudi splits and merges; each writes on, also to both while a plan waits."""
    turns = Turns(spark, root / "buckets_by_turns")
    turns.tasks(0, 60, 1)
    turns.look("created")
    turns.hudi(50, 70, 2)
    turns.look("hudi upserts")
    turns.call("scheduleAndExecute", **SPLIT)
    turns.look("hudi splits")
    turns.tasks(60, 90, 3)
    turns.tasks(0, 5, 3, **{OPERATION: "delete"})
    turns.look("tasks write on")
    turns.call("schedule", **MERGE)
    turns.tasks(20, 100, 4, **TWICE)
    turns.tasks(5, 10, 4, **TWICE, **{OPERATION: "delete"})
    turns.look("tasks write to both")
    turns.hudi(90, 110, 5)
    turns.look("hudi writes to both")
    turns.call("execute")
    turns.look("hudi merges")
    turns.tasks(30, 120, 6)
    lakefmt.open_table(turns.path).cluster(schedule=True, options=SPLIT_BY_LAKEFMT)
    turns.tasks(100, 130, 7, **TWICE)
    turns.look("tasks write to both, planned by lakefmt")
    turns.call("execute")
    turns.look("hudi splits as planned by lakefmt")
    turns.tasks(0, 130, 8, **{OPERATION: "insert_overwrite_table"})
    turns.expected = {key: value for key, value in turns.expected.items() if value[1] == 8}
    turns.hudi(120, 140, 9)
    turns.look("hudi upserts what tasks replaced")
    return {"ways": sorted(set(turns.ways)), "steps": turns.answers}


WITH_HUDI = [buckets_by_turns]
