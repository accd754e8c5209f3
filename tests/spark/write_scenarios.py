"""What is asked of writes by Spark's tasks in one session of PySpark; `scenarios.py` runs these beside its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

import lakefmt
import lakefmt.spark as lakefmt_spark
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.spark.writing import distributed

OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    # So small a write would be the driver's.
    "lakefmt.spark.driver.max.rows": "0",
    "lakefmt.spark.task.bytes": "700",
}
OPERATION = "hoodie.datasource.write.operation"
LOOK_UP = {"lakefmt.spark.task.max.bytes": "1"}
MOR = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
BUCKET = {**MOR, "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
CONSISTENT = {**BUCKET, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
#: Rows go to the old and the new buckets of a clustering that waits, and what such a clustering is.
TWICE = {"hoodie.clustering.updates.strategy": "SparkConsistentBucketDuplicateUpdateStrategy"}
SPLIT = {"hoodie.bucket.index.max.num.buckets": 4, "hoodie.bucket.index.split.threshold": 0}
#: Table → its options, and the way of its upsert.
TABLES: dict[str, tuple[dict[str, str], str]] = {
    "partition": ({}, "partition"),
    "lookup": ({**MOR, **LOOK_UP}, "lookup"),
    "bucket": (BUCKET, "bucket"),
    "consistent": (CONSISTENT, "bucket"),
    "splitting": ({**CONSISTENT, **TWICE}, "bucket"),
    "global": ({"hoodie.index.type": "GLOBAL_BLOOM"}, "lookup"),
    "own": ({**MOR, "hoodie.index.class": "own_index:ByFile"}, "lookup"),
    "record": (
        {**MOR, "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX", "hoodie.metadata.record.index.enable": "true"},
        "lookup",
    ),
}
OLDEST = ("partition", "lookup", "splitting", "own")
#: Table whose keys are deleted wherever they are → its options; with a global index the rows name another partition path.
ANYWHERE: dict[str, dict[str, str]] = {
    "plain": {},
    # The partition column that a key lacks is not filled.
    "logs": {**MOR, "hoodie.datasource.write.reconcile.schema": "true"},
    "consistent": CONSISTENT,
    "own": {**MOR, "hoodie.index.class": "own_index:ByFile"},
    "global": {"hoodie.index.type": "GLOBAL_SIMPLE"},
}
#: More than the driver writes to, and enough for several tasks.
PARTITIONS = 1200


def frame_of(spark: Any, first: int, last: int, v: float = 1.5) -> Any:
    """Return rows with the keys from `first` to before `last`."""
    return spark.range(first, last).selectExpr(
        "concat('k', id) id", "concat('c', id % 3) city", f"id * {v}D v", "id ts"
    )


def written_by_tasks(spark: Any, root: Path) -> dict[str, Any]:
    """Create, upsert and delete by tasks, each way; where the index is global a key moves to another partition."""
    answers: dict[str, Any] = {}
    for name in TABLES if hasattr(spark, "dataSource") else OLDEST:
        options, path = {**OPTIONS, **TABLES[name][0]}, str(root / f"tasks_{name}")
        created = lakefmt_spark.write(frame_of(spark, 0, 60), path, **options)
        if name == "splitting":
            lakefmt.open_table(path).cluster(schedule=True, options=SPLIT)
        changed = frame_of(spark, 50, 70, 2.0)
        plan = lakefmt_spark.explain_write(changed, path, **options)
        upserted = lakefmt_spark.write(changed, path, **options)
        deleted = lakefmt_spark.write(frame_of(spark, 0, 4), path, **options, **{OPERATION: "delete"})
        if name == "global":
            moved = frame_of(spark, 4, 6).selectExpr("id", "'c9' city", "-1D v", "ts + 1 ts")
            lakefmt_spark.write(moved, path, **options)
        answers[name] = [created.num_inserts, upserted.num_inserts + upserted.num_updates, deleted.num_deletes]
        answers[name] += [plan.way, str(plan).splitlines()[0]]
    return answers


def deletes_anywhere(spark: Any, root: Path) -> dict[str, Any]:
    """Delete keys that do not say where they are: some are in two partition paths, and some nowhere."""
    answers: dict[str, Any] = {}
    for name, more in ANYWHERE.items():
        options, path = {**OPTIONS, **more, "lakefmt.spark.task.bytes": "200"}, str(root / f"anywhere_{name}")
        lakefmt_spark.write(frame_of(spark, 0, 60), path, **options)
        columns = ["concat('k', id) id"]
        if name == "global":
            columns.append("'c9' city")
        else:
            again = spark.range(0, 6).selectExpr("concat('k', id) id", "'c9' city", "-1D v", "id ts")
            lakefmt_spark.write(again, path, **options, **{OPERATION: "insert"})
        options[OPERATION] = "delete"
        keys = spark.range(3, 90, 2).selectExpr(*columns)
        plan = lakefmt_spark.explain_write(keys, path, **options)
        few = {**options, "lakefmt.spark.driver.max.rows": "50"}
        answers[name] = [plan.way, plan.why, plan.tasks > 1, lakefmt_spark.explain_write(keys, path, **few).way]
        before = len(lakefmt.open_table(path).file_groups())
        deleted = lakefmt_spark.write(keys, path, **options)
        nowhere = lakefmt_spark.write(spark.range(500, 600).selectExpr(*columns), path, **options)
        opened = len(lakefmt.open_table(path).file_groups()) - before
        answers[name] += [deleted.num_deletes, opened, nowhere.instant]
    return answers


def shapes_of_input(spark: Any, root: Path) -> dict[str, Any]:
    """No rows, one key, one large partition, generated keys, every operation; few and many tasks, adaptive or not."""
    path, answers = str(root / "shapes"), {}

    def write(rows: Any, partitions: int, adaptive: bool, **more: str) -> Any:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        spark.conf.set("spark.sql.adaptive.enabled", str(adaptive).lower())
        return lakefmt_spark.write(rows, path, **{**OPTIONS, **more})

    try:
        answers["skewed"] = write(
            spark.range(100).selectExpr("concat('s', id) id", "if(id < 90, 'large', 'small') city", "1D v", "id ts"),
            200,
            True,
        ).num_inserts
        answers["one key"] = write(
            spark.range(500).selectExpr("'s0' id", "'large' city", "2D v", "id ts"), 1, False
        ).num_updates
        answers["none"] = write(spark.range(0).selectExpr("'n' id", "'large' city", "2D v", "id ts"), 2, True).instant
        new = spark.range(100, 110).selectExpr("concat('s', id) id", "'large' city", "3D v", "id ts")
        answers["insert"] = write(new, 2, False, **{OPERATION: "insert"}).num_inserts
        answers["dropped"] = write(
            new, 2, True, **{OPERATION: "insert", "hoodie.datasource.write.insert.drop.duplicates": "true"}
        ).num_inserts
        bulk = spark.range(200, 220, 1, 3).selectExpr("concat('s', id) id", "'large' city", "4D v", "id ts")
        for mode in ("NONE", "PARTITION_SORT", "GLOBAL_SORT"):
            more = {OPERATION: "bulk_insert", "hoodie.bulkinsert.sort.mode": mode}
            answers[f"bulk {mode}"] = write(bulk, 2, True, **more).num_inserts
        overwrite = {OPERATION: "insert_overwrite"}
        answers["overwrite"] = write(new.selectExpr("id", "'small' city", "v", "ts"), 2, True, **overwrite).num_inserts
        wider = new.selectExpr("id", "city", "5D v", "id > 's104' flag", "ts").where("id = 's105'")
        answers["wider"] = write(wider, 2, True).num_updates
        flags = lakefmt.open_table(path).read(["id", "flag"]).to_pylist()
        answers["flags"] = [row["id"] for row in flags if row["flag"] is not None]
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
        spark.conf.set("spark.sql.adaptive.enabled", "true")
    cities = (
        lakefmt.open_table(path).read(["id", "city", "v"]).group_by("city").aggregate([("v", "count"), ("v", "sum")])
    )
    answers["cities"] = sorted(map(list, zip(*cities.to_pydict().values(), strict=True)))
    keyless = str(root / "keyless")
    options = {name: value for name, value in OPTIONS.items() if "recordkey" not in name and "precombine" not in name}
    for _ in range(2):
        lakefmt_spark.write(frame_of(spark, 0, 40), keyless, **options)
    keys = lakefmt.open_table(keyless).read(["_hoodie_record_key"], meta_columns=True)["_hoodie_record_key"]
    answers["generated"] = [len(keys), len(keys.unique())]
    return answers


def many_partitions(spark: Any, root: Path) -> dict[str, Any]:
    """Two rows for each of many partitions: inserted and upserted by tasks, few as they are."""
    few_rows = {"lakefmt.spark.driver.max.rows": str(2 * PARTITIONS), "lakefmt.spark.task.bytes": str(64 << 20)}
    options = {**OPTIONS, **few_rows, "lakefmt.durability": "none"}
    path, answers = str(root / "many_partitions"), {}
    rows = spark.range(0, 2 * PARTITIONS, 1, 2).selectExpr(
        "concat('k', id) id", f"concat('c', id % {PARTITIONS}) city", "1D v", "id ts"
    )
    changed = rows.selectExpr("id", "city", "2D v", "ts")
    answers["ways"] = []
    for name, frame in (("inserted", rows), ("upserted", changed)):
        answers["ways"].append(lakefmt_spark.explain_write(frame, path, **options).way)
        result = lakefmt_spark.write(frame, path, **options)
        answers[name] = [result.num_inserts, result.num_updates, len(result.files)]
    table = lakefmt.open_table(path)
    values = table.read(["id", "v"])
    answers["rows"] = [len(values["id"].unique()), sum(values["v"].to_pylist()), len(table.partitions())]
    return answers


def faults(spark: Any, root: Path) -> dict[str, Any]:
    """A task that fails after its files, rows that are lost, an input that changes, a commit that fails."""
    path = root / "faults"
    first = frame_of(spark, 0, 30)
    lakefmt_spark.write(first, str(path), **OPTIONS)
    commits = len(lakefmt.open_table(path).client.load().timeline.commits)

    def refused(rows: Any, **more: str) -> list[Any]:
        try:
            lakefmt_spark.write(rows, str(path), **{**OPTIONS, **more})
        except Exception as error:
            kind = f"{type(error).__name__}: {error}"
        else:
            kind = "nothing was raised"
        timeline = lakefmt.open_table(path).client.load().timeline
        return [kind, len(timeline.commits) - commits, [str(instant) for instant in timeline.pending]]

    answers: dict[str, Any] = {}
    counted = distributed.SparkWrite._counted

    def one_more(write: Any) -> Any:
        first_part, *others = counted(write)
        return [replace(first_part, rows=first_part.rows + 1), *others]

    with mock.patch.object(distributed.SparkWrite, "_counted", one_more):
        answers["lost"] = refused(frame_of(spark, 0, 30, 3.0))
        answers["lost in look-up"] = refused(frame_of(spark, 0, 30, 3.0), **LOOK_UP)
        answers["lost keys"] = refused(frame_of(spark, 0, 30).select("id"), **{OPERATION: "delete"})
    group = distributed.group_task
    with mock.patch.object(distributed, "group_task", lambda *given: _losing(group(*given))):
        answers["lost after look-up"] = refused(frame_of(spark, 0, 30).select("id"), **{OPERATION: "delete"})
    answers["changing"] = refused(_changing(spark, root / "changing"))
    with mock.patch.object(WriteTransaction, "commit", side_effect=RuntimeError("the commit fails")):
        answers["commit"] = refused(frame_of(spark, 0, 30, 3.0))
    key = spark.range(3).selectExpr("if(id = 1, null, concat('k', id)) id", "'c0' city", "1D v", "id ts")
    answers["key"] = refused(key)
    ways = {"retried": {}, "retried look-up": LOOK_UP, "retried buckets": CONSISTENT}
    ways["retried split"] = {**CONSISTENT, **TWICE}
    for name, more in ways.items():
        answers[name] = _failing_once(spark, root / name.replace(" ", "_"), more)
    return answers


def _losing(made: Any) -> Any:
    """Return a task that gets all of its packed rows but the first."""

    def run(batches: Any) -> Any:
        packed = pa.Table.from_batches(list(batches)).slice(1)
        yield from made(iter(packed.to_batches()))

    return run


def _changing(spark: Any, marks: Path) -> Any:
    """Return rows that are fewer every time they are computed, and that Spark does not keep."""
    marks.mkdir()

    def grow(batches: Any) -> Any:
        from uuid import uuid4

        (marks / uuid4().hex).touch()
        seen = len(list(marks.iterdir()))
        for batch in batches:
            yield batch.slice(seen)

    rows = frame_of(spark, 0, 30).coalesce(1).mapInArrow(grow, "id string, city string, v double, ts bigint")
    kept = rows.mapInArrow
    forget = lambda *given: _NotKept(kept(*given))  # noqa: E731
    rows.mapInArrow = forget
    return rows


class _NotKept:
    """A DataFrame that is computed every time."""

    def __init__(self, df: Any) -> None:
        self._df = df

    def persist(self) -> Any:
        self._df.unpersist = lambda: None
        return self._df


def _failing_once(spark: Any, path: Path, more: dict[str, str]) -> list[Any]:
    """Let every task fail after it has written its files, once."""
    options = {**OPTIONS, **more}
    lakefmt_spark.write(frame_of(spark, 0, 30), str(path), **options)
    if "hoodie.clustering.updates.strategy" in more:
        lakefmt.open_table(path).cluster(schedule=True, options=SPLIT)
    before = set(data_files(path))
    marks = str(path) + "_marks"
    Path(marks).mkdir()

    def failing(made: Any) -> Any:
        def run(batches: Any) -> Any:
            from pyspark import TaskContext

            answers = list(made(batches))
            mark = Path(marks, str(TaskContext.get().partitionId()))
            if answers and not mark.exists():
                mark.touch()
                raise RuntimeError("this task fails after its files")
            yield from answers

        return run

    write, group = distributed.write_task, distributed.group_task
    with (
        mock.patch.object(distributed, "write_task", lambda *given: failing(write(*given))),
        mock.patch.object(distributed, "group_task", lambda *given: failing(group(*given))),
    ):
        result = lakefmt_spark.write(frame_of(spark, 20, 40, 2.0), str(path), **options)
    files = sorted(set(data_files(path)) - before)
    groups = {(name.parent, name.name.split("_")[0]) for name in files}
    rows = lakefmt.open_table(path).read(["id", "v"])
    return [len(list(Path(marks).iterdir())) > 0, len(files) - len(groups), len(files) - len(result.files), _rows(rows)]


def data_files(path: Path) -> list[Path]:
    """Return the base files and logs of a table on disk."""
    files = (file for file in path.rglob("*") if ".hoodie" not in file.parts)
    return [file for file in files if file.name.endswith(".parquet") or ".log." in file.name]


def _rows(table: pa.Table) -> list[list[Any]]:
    return sorted(map(list, zip(*table.to_pydict().values(), strict=True)))


def own_indexes(spark: Any, root: Path) -> dict[str, Any]:
    """An index of one's own is asked for keys by the driver, batch by batch, and told of commits; a global one stays there."""
    import own_index  # beside this file

    path = str(root / "own_indexes")
    # New keys go to new files: a key that is taken for new is stored twice.
    options = {**OPTIONS, "hoodie.index.class": "own_index:ByFile", "hoodie.parquet.small.file.limit": "0"}
    lakefmt_spark.write(frame_of(spark, 0, 60), path, **options)
    own_index.ByFile.asked.clear()
    own_index.ByFile.told.clear()
    result = lakefmt_spark.write(
        frame_of(spark, 40, 80, 2.0), path, **options, **{"lakefmt.spark.driver.max.bytes": "8"}
    )
    answers = {"asked": list(own_index.ByFile.asked), "told": own_index.ByFile.told == [result.instant]}
    answers["rows"] = _rows(lakefmt.open_table(path).read(["id", "v"]))
    answers["inserted"] = lakefmt_spark.write(
        frame_of(spark, 80, 90), path, **options, **{OPERATION: "insert"}
    ).num_inserts
    everywhere = {**options, "hoodie.index.class": "own_index:ByFileEverywhere"}
    answers["global"] = str(lakefmt_spark.explain_write(frame_of(spark, 0, 3), path, **everywhere)).splitlines()[0]
    return answers


SCENARIOS = [written_by_tasks, deletes_anywhere, own_indexes, shapes_of_input, many_partitions, faults]
