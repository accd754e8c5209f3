"""One job for Hudi's Spark data source; the name of the format is the only thing that differs.

Run inside a session of PySpark by ``scenarios.py``. What it answers is compared between engines and releases of Spark, so
instants, file names and sequence numbers, which differ from run to run, are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lakefmt.spark as lakefmt_spark

KEY = "hoodie.datasource.write.recordkey.field"
OPERATION = "hoodie.datasource.write.operation"
QUERY = "hoodie.datasource.query.type"
BEGIN, END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
JOB = {
    "hoodie.table.name": "trips",
    KEY: "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.upsert.shuffle.parallelism": "2",
}
CAPTURE = {"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": "data_before_after"}
ROWS = """
select concat('k', id) as id, concat('c', id % 3) as city, id * 1.5D as v, id as ts, timestamp'2026-01-02 03:04:05.678' as at,
       date'2026-01-02' as day, cast(id as decimal(10, 2)) as price, array(id, id + 1) as list,
       named_struct('a', id, 'b', cast(null as string)) as struct, map('m', id) as map, id % 2 = 0 as even,
       cast(null as int) as nothing, cast(id / 3 as float) as third, cast('NaN' as double) as nan, id * 1e10 as large
from range({rows})
"""
#: Of the meta columns these say the same in every run.
STEADY = ["_hoodie_record_key", "_hoodie_partition_path"]
UNSTEADY = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"]


def save(rows: Any, name: str, path: Path, mode: str = "append", **more: str) -> None:
    """Write rows as a job does."""
    rows.write.format(name).options(**JOB, **more).mode(mode).save(str(path))


def load(spark: Any, name: str, path: Path, **options: str) -> Any:
    """Read a table as a job does."""
    return spark.read.format(name).options(**options).load(str(path))


def shown(frame: Any) -> list[str]:
    """Return the rows as JSON that Spark writes, in order."""
    steady = frame.drop(*UNSTEADY)
    return sorted(row[0] for row in steady.selectExpr(f"to_json(struct({', '.join(steady.columns)}))").collect())


def commits(path: Path) -> list[tuple[str, str]]:
    """Return the requested and completion times of the commits of a table, first to last."""
    names = [file.name.partition(".") for file in (path / ".hoodie" / "timeline").iterdir() if file.is_file()]
    done = [stem for stem, _, action in names if "_" in stem and action in ("commit", "deltacommit", "replacecommit")]
    return sorted((requested, completed) for requested, _, completed in (stem.partition("_") for stem in done))


def run_job(spark: Any, name: str, path: Path, table_type: str) -> dict[str, Any]:
    """Create, upsert, delete, overwrite, delete a partition; read now, as of then and in increments."""
    kind = {"hoodie.datasource.write.table.type": table_type, "hoodie.compact.inline": "false"}
    frame = spark.sql(ROWS.format(rows=30))
    changed = frame.where("ts < 6").drop("v").selectExpr("*", "-1.0D as v").select(*frame.columns)
    late = frame.where("ts between 6 and 8").drop("ts", "v").selectExpr("*", "0L as ts", "-9.0D as v")
    more = spark.sql(ROWS.format(rows=33)).where("ts >= 30")
    save(frame, name, path, "overwrite", **kind)
    save(changed.unionByName(late).unionByName(more), name, path, **kind)
    save(frame.where("ts >= 27"), name, path, **{OPERATION: "delete", **kind})
    answers = {"changed": shown(load(spark, name, path))}
    if table_type == "COPY_ON_WRITE":
        save(frame.where("id = 'k0'"), name, path, **{OPERATION: "insert_overwrite", **kind})
        dropped = {OPERATION: "delete_partition", "hoodie.datasource.write.partitions.to.delete": "c1"}
        save(frame.limit(0), name, path, **dropped, **kind)
        save(more, name, path, **{OPERATION: "bulk_insert", **kind})
    now, times = load(spark, name, path), commits(path)
    increment = {QUERY: "incremental", BEGIN: times[0][1]}
    answers |= {
        "columns": [list(pair) for pair in now.dtypes],
        "commits": len(times),
        "filtered": shown(now.where("city = 'c2' and ts > 10 and even and day = date'2026-01-02'")),
        "now": shown(now),  # after a filter on the same DataFrame, which must not stay
        "then": shown(load(spark, name, path, **{"as.of.instant": times[1][0]})),
        "bounded": shown(load(spark, name, path, **increment, **{END: times[1][1]})),
        "optimized": shown(load(spark, name, path, **{QUERY: "read_optimized"})),
    }
    if table_type == "COPY_ON_WRITE":
        answers["increment"] = shown(load(spark, name, path, **increment))
    return answers


def run_capture(spark: Any, name: str, path: Path) -> dict[str, Any]:
    """Capture changes, and read them."""
    frame = spark.sql(ROWS.format(rows=12))
    save(frame.where("ts < 9"), name, path, "overwrite", **CAPTURE)
    save(frame.where("ts >= 6").drop("v").selectExpr("*", "7.25D as v").select(*frame.columns), name, path, **CAPTURE)
    save(frame.where("ts < 2"), name, path, **{OPERATION: "delete", **CAPTURE})
    cdc = {QUERY: "incremental", "hoodie.datasource.query.incremental.format": "cdc", BEGIN: commits(path)[0][1]}
    changes = load(spark, name, path, **cdc)
    rows = changes.drop("ts_ms").collect()
    return {"columns": [list(pair) for pair in changes.dtypes], "changes": sorted(str(list(row)) for row in rows)}


def run_both(spark: Any, name: str, path: Path) -> dict[str, Any]:
    """Run all jobs with one format."""
    return {
        "cow": run_job(spark, name, path / "cow", "COPY_ON_WRITE"),
        "mor": run_job(spark, name, path / "mor", "MERGE_ON_READ"),
        "cdc": run_capture(spark, name, path / "cdc"),
    }


def go_on(spark: Any, root: Path) -> dict[str, Any]:
    """Each engine goes on with the other's table; both read both."""
    frame = spark.sql(ROWS.format(rows=40)).where("ts % 4 = 0").drop("v").selectExpr("*", "4.0D as v")
    answers: dict[str, Any] = {}
    for kind in ("cow", "mor"):
        for made, other in (("hudi", "lakefmt"), ("lakefmt", "hudi")):
            path = root / made / kind
            save(frame, other, path)
            answers[f"{kind} of {made}"] = {name: shown(load(spark, name, path)) for name in ("hudi", "lakefmt")}
    return answers


def same_job_of_lakefmt(spark: Any, root: Path) -> dict[str, Any]:
    """The job that is the same for Hudi, by lakefmt."""
    lakefmt_spark.register(spark)
    try:
        return run_both(spark, "lakefmt", root / "same_job" / "lakefmt")
    finally:
        lakefmt_spark.unregister()


def same_job_of_hudi(spark: Any, root: Path) -> dict[str, Any]:
    """The same job by Hudi's JAR; then each engine goes on with the other's tables."""
    return run_both(spark, "hudi", root / "same_job" / "hudi")


def each_goes_on(spark: Any, root: Path) -> dict[str, Any]:
    """Each engine goes on with the tables of the other."""
    lakefmt_spark.register(spark)
    try:
        return go_on(spark, root / "same_job")
    finally:
        lakefmt_spark.unregister()


SCENARIOS = [same_job_of_lakefmt]
WITH_HUDI = [same_job_of_hudi, each_goes_on]
