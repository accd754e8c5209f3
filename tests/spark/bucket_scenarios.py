"""Consistent hashing in one session of PySpark: tasks and Apache Hudi write, split and merge buckets of one table by turns.

Run by ``scenarios.py``, where the session has Hudi's JAR.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from bucket_options import BY_TASKS, HUDI, MERGE, OPERATION, OPTIONS, SPLIT, SPLIT_BY_LAKEFMT, TWICE  # beside this file
from write_scenarios import data_files

import lakefmt
import lakefmt.spark as lakefmt_spark
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.spark.writing import distributed


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


def bucket_faults(spark: Any, root: Path) -> dict[str, Any]:
    """Every task runs twice at the same time; a commit fails after tasks have written to new and to moving buckets."""
    path = root / "bucket_faults"
    turns = Turns(spark, path)
    turns.tasks(0, 60, 1)
    lakefmt.open_table(path).cluster(schedule=True, options=SPLIT_BY_LAKEFMT)
    before, made = set(data_files(path)), distributed.write_task
    with mock.patch.object(distributed, "write_task", lambda *given: twice_at_once(made(*given))):
        turns.tasks(40, 90, 2, **TWICE)
    answers = {"doubled": _left(turns, before)}
    files, expected = set(data_files(path)), dict(turns.expected)
    with mock.patch.object(WriteTransaction, "commit", side_effect=RuntimeError("the commit fails")):
        try:
            turns.tasks(80, 120, 3, **TWICE)
        except RuntimeError:
            answers["undone"] = [set(data_files(path)) == files]
    turns.expected = expected
    answers["undone"] += _left(turns, files)[1:]
    turns.tasks(80, 120, 4, **TWICE)
    answers["again"] = _left(turns, files)
    (plan,) = lakefmt.open_table(path).client.load().timeline.pending_clusterings
    lakefmt.open_table(path).cluster(run=plan)
    answers["run"] = _left(turns, files)[1:]
    return answers


def _left(turns: Turns, before: set[Path]) -> list[Any]:
    """Return whether the new files are those of the last commit, the rows right, and what a check finds."""
    table, last = lakefmt.open_table(turns.path), lakefmt_spark.last_commit(turns.path)
    new = sorted(file.name for file in set(data_files(Path(turns.path))) - before)
    rows = {row["id"]: (row["city"], row["v"]) for row in table.read(["id", "city", "v"]).to_pylist()}
    pending = [str(instant) for instant in table.client.load().timeline.pending]
    named = last is not None and new == sorted(file.file_name for file in last.files)
    return [named, rows == turns.expected, len(pending), [str(finding) for finding in table.check("full").findings]]


def twice_at_once(made: Any) -> Any:
    """Return a task that two attempts do at the same time, as where Spark doubles a slow one."""

    def run(batches: Any) -> Any:
        from concurrent.futures import ThreadPoolExecutor

        given = list(batches)
        with ThreadPoolExecutor(2) as pool:
            attempts = [pool.submit(lambda: list(made(iter(given)))) for _ in range(2)]
        yield from [attempt.result() for attempt in attempts][1]

    return run


SCENARIOS = [bucket_faults]
WITH_HUDI = [buckets_by_turns]
