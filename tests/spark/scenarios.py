"""What is asked of PySpark in one session: run by an interpreter that has it, answers go to a JSON file.

python scenarios.py DIRECTORY ANSWERS [NAME …]
"""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import bucket_scenarios  # beside this file
import guide
import pyspark
import same_job
import stream_scenarios
import write_scenarios
from pyspark.sql import SparkSession

import lakefmt.spark as lakefmt_spark
from tests.judges.spark_settings import small_session

#: What a session needs that reads and writes by Hudi's JAR.
HUDI = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
MEMORY = "1g"
#: What jobs for Hudi's own data source say.
OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.upsert.shuffle.parallelism": "2",
    "lakefmt.spark.timestamp_ntz": "utc",
}
#: Statements that would make a table in Spark's catalog.
CATALOG_TABLES = [
    "create table trips_1 (id string, ts bigint) using lakefmt",
    "CREATE TABLE IF NOT EXISTS `trips_2`\nUSING LakeFmt AS SELECT 'a' AS id, 1L AS ts",
    "create table trips_3 using parquet as select 'using lakefmt' as id",
]
QUERY = "hoodie.datasource.query.type"
OPERATION = "hoodie.datasource.write.operation"
ROWS = """
select concat('k', id) as id, concat('c', id % 3) as city, id * 1.5D as v, id as ts, timestamp'2026-01-02 03:04:05' as at,
       timestamp_ntz'2026-01-02 03:04:05' as local, date'2026-01-02' as day, cast(id as decimal(10, 2)) as price,
       array(id, null) as list, named_struct('a', id, 'b', cast(null as string)) as struct, map('m', id) as map,
       cast(null as int) as nothing
from range({rows})
"""


def session() -> SparkSession:
    """Return a small local session, in a zone that is not UTC."""
    builder = SparkSession.builder.master("local[2,4]").appName("lakefmt")
    bundle = os.environ.get("LAKEFMT_HUDI_BUNDLE")
    connect = os.environ.get("LAKEFMT_CONNECT_JAR")  # Spark 3.5 has its server in a JAR of its own
    jars = [jar for jar in (bundle, connect) if jar]
    for name, value in {
        **({} if bundle is None else HUDI),
        **({"spark.driver.extraClassPath": os.pathsep.join(jars)} if jars else {}),
        **(_connect_server() if connect or not pyspark.__version__.startswith("3.") else {}),
        **small_session(MEMORY),
        "spark.sql.session.timeZone": "America/New_York",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _connect_server() -> dict[str, str]:
    """Return what lets a session serve Spark Connect beside, on a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": port}
    return {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin", **address}


def connect(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Let a client of Spark Connect, a process of its own, ask this session's server."""
    url, answers = f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}", root / "connected.json"
    client = [sys.executable, str(Path(__file__).with_name("connect_client.py")), url, str(root), str(answers)]
    try:
        failed = subprocess.run(client, capture_output=True, text=True, timeout=300, check=False).stderr[-4000:]
    except subprocess.TimeoutExpired as error:
        failed = str(error)
    return json.loads(answers.read_text("utf-8")) if answers.exists() else {"failed": failed}


def refusal(call: Callable[[], Any]) -> str:
    """Return the text of what a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def causes(error: Exception) -> list[str]:
    """Return what Java says below an error."""
    found, thrown = [], getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while thrown is not None and len(found) < 8:
        found.append(str(thrown.toString())[:500])
        thrown = thrown.getCause()
    return found


def rows_of(frame: Any, *columns: str) -> list[list[Any]]:
    """Return rows, in order, as plain values."""
    return sorted([list(row) for row in frame.select(*columns).collect()])


def verbs(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Create by the first write, upsert, delete, overwrite; read now, as of then, in increments and as changes."""
    path = str(root / "verbs")
    frame = spark.sql(ROWS.format(rows=30))
    writer = frame.write.format("lakefmt").options(**OPTIONS)
    writer.mode("append").save(path)
    changed = frame.where("ts < 3").selectExpr("*").drop("v").selectExpr("*", "-1.0D as v")
    changed.write.format("lakefmt").options(**OPTIONS).mode("append").save(path)
    frame.where("ts >= 27").write.format("lakefmt").options(**{**OPTIONS, OPERATION: "delete"}).mode("append").save(
        path
    )
    read = spark.read.format("lakefmt")
    now = read.load(path)
    times = [row[0] for row in now.select("_hoodie_commit_time").distinct().orderBy("_hoodie_commit_time").collect()]
    increment = read.option(QUERY, "incremental").option("hoodie.datasource.read.begin.instanttime", "000").load(path)
    first = spark.read.format("lakefmt").option("as.of.instant", times[0]).load(path)
    changes = (
        spark.read.format("lakefmt")
        .options(**{QUERY: "incremental", "hoodie.datasource.query.incremental.format": "cdc"})
        .load(path)
    )
    return {
        "columns": now.columns,
        "types": dict(now.dtypes),
        "rows": rows_of(now, "id", "v"),
        "partitions": rows_of(now.select("_hoodie_partition_path").distinct(), "_hoodie_partition_path"),
        "first": rows_of(first, "id", "v"),
        "increment": increment.count(),
        "changes": rows_of(changes.groupBy("op").count(), "op", "count"),
        "moment": now.where("ts = 5").select("at").collect()[0][0].astimezone(dt.UTC).isoformat(),
        "nested": now.where("ts = 5").selectExpr("to_json(struct(list, struct, map, price, day))").collect()[0][0],
    }


def merge_on_read(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Read slices with logs, and their base files alone."""
    path = str(root / "mor")
    options = {**OPTIONS, "hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.write.table.version": "9"}
    frame = spark.sql(ROWS.format(rows=30)).select("id", "city", "v", "ts")
    for part in (frame, frame.where("ts < 5").selectExpr("id", "city", "-1.0D as v", "ts + 100 as ts")):
        part.write.format("lakefmt").options(**options).mode("append").save(path)
    read = spark.read.format("lakefmt")
    merged = read.load(path).where("v < 0").count()
    return {"merged": merged, "base": read.option(QUERY, "read_optimized").load(path).where("v < 0").count()}


def overwrites(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Replace partitions, then everything; delete a partition."""
    path = str(root / "overwrites")
    frame = spark.sql(ROWS.format(rows=9)).select("id", "city", "v", "ts")

    def counts() -> list[list[Any]]:
        return rows_of(spark.read.format("lakefmt").load(path).groupBy("city").count(), "city", "count")

    answers = {}
    frame.write.format("lakefmt").options(**OPTIONS).mode("append").save(path)
    part = {**OPTIONS, OPERATION: "insert_overwrite"}
    frame.where("id = 'k0'").write.format("lakefmt").options(**part).mode("append").save(path)
    answers["partition"] = counts()
    dropped = {**OPTIONS, OPERATION: "delete_partition", "hoodie.datasource.write.partitions.to.delete": "c1"}
    frame.limit(0).write.format("lakefmt").options(**dropped).mode("append").save(path)
    answers["dropped"] = counts()
    frame.where("city = 'c2'").write.format("lakefmt").options(**OPTIONS).mode("overwrite").save(path)
    answers["table"] = counts()
    return answers


def views(spark: SparkSession, root: Path) -> dict[str, Any]:
    """SQL on a temporary view; a catalog table is refused."""
    path = str(root / "views")
    frame = spark.sql(ROWS.format(rows=5)).select("id", "city", "v", "ts")
    frame.write.format("lakefmt").options(**OPTIONS).mode("append").save(path)
    spark.sql(f"create temporary view trips using lakefmt options (path '{path}', 'lakefmt.meta_columns' 'false')")
    spark.sql("insert into trips values ('k9', 'c0', 9.0, 9)")
    return {
        "rows": rows_of(spark.sql("select id from trips where ts > 3"), "id"),
        "catalog": refusal(lambda: frame.write.format("lakefmt").mode("append").saveAsTable("catalog_trips")),
    }


def fresh_views(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Count the rows of views and DataFrames after writes by the view, by another session and by this process."""
    import lakefmt

    path = str(root / "fresh")
    frame = spark.sql("select 'a' as id, 'c' as city, 1.0D as v, 1L as ts")
    lakefmt_spark.write(frame, path, **OPTIONS)
    lakefmt_spark.register(spark)
    try:
        using = f"using lakefmt options (path '{path}', 'lakefmt.meta_columns' 'false')"
        spark.sql(f"create temporary view fresh {using}")
        spark.sql(f"create global temporary view fresh_global {using}")
        spark.sql("create temporary view fresh_text as select id from fresh where v > 0")
        loaded = spark.read.format("lakefmt").option("lakefmt.spark.read.native", "never").load(path)
        loaded.createOrReplaceTempView("loaded")

        def counts() -> list[int]:
            names = ("fresh", "global_temp.fresh_global", "fresh_text", "loaded")
            asked = [spark.sql(f"select count(*) from {name}").collect()[0][0] for name in names]
            return [*asked, spark.table("fresh").count(), spark.read.table("fresh").count(), loaded.count()]

        told = {"first": counts()}
        spark.sql("insert into fresh values ('b', 'c', 2.0, 2)")
        told["inserted"] = counts()
        lakefmt.open_table(path).upsert([{"id": "c", "city": "c", "v": 3.0, "ts": 3}])
        told["python"] = counts()
        of_view = spark.sql("select * from fresh")
        told["collected"] = [len(of_view.collect())]
        other = spark.newSession()
        other.sql(f"create temporary view fresh {using}")
        other.sql("insert into fresh values ('d', 'c', 4.0, 4)")
        told["collected"].append(len(of_view.collect()))
        told["other session"] = counts()
        spark.sql("cache table fresh")
        spark.sql("insert into fresh values ('e', 'c', 5.0, 5)")
        told["cached"] = [spark.sql("select * from fresh").count()]
        spark.sql("uncache table fresh")
    finally:
        lakefmt_spark.unregister()
    return told


def keyless(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Change rows of a table without a record key as Hudi's quick start does: by save, by the function, by tasks, and deletes."""
    path, frame = str(root / "keyless_changed"), spark.sql(ROWS.format(rows=30)).select("id", "city", "v", "ts")
    options = {"hoodie.table.name": "keyless_changed", "hoodie.datasource.write.partitionpath.field": "city"}
    lakefmt_spark.register(spark)
    try:
        frame.write.format("lakefmt").options(**options).mode("overwrite").save(path)

        def read() -> Any:
            return spark.read.format("lakefmt").load(path)

        def changed(where: str, value: float) -> Any:
            return (
                read()
                .where(where)
                .selectExpr("_hoodie_record_key", "_hoodie_partition_path", "id", "city", f"double({value}) v", "ts")
            )

        changed("ts < 3", -1.0).write.format("lakefmt").options(**options).mode("append").save(path)
        by_tasks = {**options, "lakefmt.spark.driver.max.rows": "0"}
        lakefmt_spark.write(changed("ts between 3 and 7", -2.0), path, **by_tasks)
        deleted = lakefmt_spark.write(read().where("ts > 26"), path, **options, **{OPERATION: "delete"}).num_deletes
        frame.where("ts = 9").write.format("lakefmt").options(**options).mode("append").save(path)
    finally:
        lakefmt_spark.unregister()
    if hasattr(spark, "dataSource"):  # without `register`, too
        changed("ts = 20", -3.0).write.format("lakefmt").options(**options).mode("append").save(path)
    return {"deleted": deleted, "rows": rows_of(lakefmt_spark.read(spark, path), "id", "v")}


def refusals(spark: SparkSession, root: Path) -> dict[str, Any]:
    """What is refused leaves no table, no rows and nothing staged."""
    path = root / "refusals"
    frame = spark.sql(ROWS.format(rows=50)).select("id", "city", "v", "ts")

    def save(more: dict[str, str], to: Path = path, rows: Any = frame, mode: str = "append") -> str:
        return refusal(lambda: rows.write.format("lakefmt").options(**{**OPTIONS, **more}).mode(mode).save(str(to)))

    answers = {
        "unknown": save({"hoodie.datasource.write.operatoin": "upsert"}),
        "sync": save({"hoodie.datasource.hive_sync.create_managed_table": "true"}),
        "key": save({"hoodie.datasource.write.recordkey.field": "nope"}),
        "large": save({"lakefmt.spark.stage.max.bytes": "10"}),
        "ordering": save({"hoodie.datasource.write.precombine.field": "nope"}),
        "zoneless": save({"lakefmt.spark.timestamp_ntz": "refuse"}, rows=spark.sql(ROWS.format(rows=2))),
        "pathless": refusal(lambda: frame.write.format("lakefmt").options(**OPTIONS).mode("append").save()),
        "task": save({}, rows=frame.selectExpr("id", "city", "v", "raise_error('a task fails') as ts")),
    }
    answers["exists"] = (path / ".hoodie" / "hoodie.properties").exists()
    frame.write.format("lakefmt").options(**OPTIONS).mode("append").save(str(path))
    answers["contradiction"] = save({"hoodie.datasource.write.recordkey.field": "city"})
    answers["types"] = save({}, rows=frame.selectExpr("id", "city", "'no number' as v", "ts"))
    answers["lacking"] = save({}, rows=frame.select("id", "city", "ts"))
    answers["glob"] = refusal(
        lambda: spark.read.format("lakefmt").option("hoodie.datasource.read.paths", "a").load(str(path))
    )
    answers["late"] = save({"lakefmt.spark.stage.max.bytes": "10"})
    answers["rows"] = spark.read.format("lakefmt").load(str(path)).count()
    answers["staged"] = [str(found) for found in (path / ".hoodie/.lakefmt").glob("stage/*")]
    return answers


def registered(spark: SparkSession, root: Path) -> dict[str, Any]:
    """After `register` the modes that Spark keeps to itself work, and other formats are as before."""
    path, plain = str(root / "registered"), str(root / "plain")
    frame = spark.sql(ROWS.format(rows=5)).select("id", "city", "v", "ts")
    lakefmt_spark.register(spark)
    lakefmt_spark.register(spark)
    try:
        frame.write.format("lakefmt").options(**OPTIONS).save(path)
        again = refusal(lambda: frame.write.format("lakefmt").options(**OPTIONS).save(path))
        frame.write.format("lakefmt").options(**OPTIONS).mode("ignore").save(path)
        default = refusal(lambda: frame.write.format("lakefmt").options(**OPTIONS).mode("Default").save(path))
        frame.write.format("lakefmt").options(**OPTIONS).mode("Ignore").save(path)
        frame.write.format("lakefmt").options(**OPTIONS).mode("OverWrite").save(path)
        frame.write.format("parquet").mode("overwrite").save(plain)
        written = lakefmt_spark.last_commit(path)
        answers = {
            "rows": spark.read.format("lakefmt").load(path).count(),
            "again": again,
            "default": default,
            "partition_by": [
                refusal(
                    lambda column=column: frame.write.partitionBy(column).format("lakefmt").mode("append").save(path)
                )
                for column in ("city", "v")
            ],
            "sql": [refusal(lambda text=text: spark.sql(text)) for text in CATALOG_TABLES],
            "catalog": refusal(lambda: frame.write.format("lakefmt").mode("append").saveAsTable("catalog_trips")),
            "plain": spark.read.format("parquet").load(plain).count(),
            "last": None if written is None else written.num_inserts,
        }
    finally:
        lakefmt_spark.unregister()
    frame.write.format("parquet").mode("overwrite").save(plain)
    answers["after"] = spark.read.format("parquet").load(plain).count()
    return answers


def functions(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Read and write by functions, on every release."""
    path = str(root / "functions")
    frame = spark.sql(ROWS.format(rows=30))
    created = lakefmt_spark.write(frame, path, **OPTIONS)
    changed = lakefmt_spark.write(frame.where("ts < 3"), path, **OPTIONS)
    empty = lakefmt_spark.read(spark, path, **{"lakefmt.meta_columns": False}).where("ts > 99")
    read = lakefmt_spark.read(spark, path)
    by_tasks = lakefmt_spark.read(spark, path, **{"lakefmt.spark.read.native": "never"})
    whole = [same_job.shown(frame) for frame in (read, by_tasks)]
    chosen = lakefmt_spark.read(spark, path, **{"lakefmt.spark.read.filter": "city = 'c1' and ts > 20"})
    lacking = frame.where("ts = 9").drop("v", "list")
    answers = {
        "created": created.num_inserts,
        "changed": changed.num_updates,
        "rows": rows_of(read, "id", "v"),
        "empty": [empty.columns[0], empty.count()],
        "ways": ["parquet" in plan_of(read), "parquet" in plan_of(by_tasks), whole[0] == whole[1], len(whole[0])],
        "chosen": rows_of(chosen, "id"),
        "lacking": refusal(lambda: lakefmt_spark.write(lacking, path, **OPTIONS)),
        "months": refusal(lambda: lakefmt_spark.write(frame.selectExpr("*", "interval 1 month as m"), path, **OPTIONS)),
    }
    filling = {**OPTIONS, "hoodie.datasource.write.reconcile.schema": True}
    answers["letters"] = refusal(lambda: lakefmt_spark.write(lacking.selectExpr("*", "1.5D as V"), path, **filling))
    lakefmt_spark.write(lacking, path, **filling)
    answers["filled"] = rows_of(lakefmt_spark.read(spark, path).where("ts = 9"), "id", "v", "day")
    spark.conf.unset("lakefmt.spark.workers.release")
    with patch.object(lakefmt_spark.workers, "__version__", "9.9.9"):
        answers["release"] = refusal(lambda: lakefmt_spark.write(frame, path, **OPTIONS))
    answers["after"] = lakefmt_spark.read(spark, path).count()
    return answers


def merges(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Merge a DataFrame: every clause, values of every type, and a source without rows."""
    path = str(root / "merges")
    frame = spark.sql(ROWS.format(rows=6))
    lakefmt_spark.write(frame.where("ts < 4"), path, **OPTIONS)
    source = frame.selectExpr("*").where("ts > 1")
    settings = {"lakefmt.spark.timestamp_ntz": "utc", "lakefmt.write.threads": 1}
    merge = lakefmt_spark.merge(source, path, **settings)
    result = (
        merge.when_matched_delete(where="s.ts = 3")
        .when_matched({"v": "t.v * 100", "at": "s.at"})
        .when_not_matched()
        .when_not_matched_by_source(update={"nothing": 7}, where="t.id = 'k0'")
        .execute(commit_metadata={"job": "merge"})
    )
    nothing = lakefmt_spark.merge(source.where("ts > 99"), path, "id", **settings).when_matched().execute()
    read = lakefmt_spark.read(spark, path)
    written = str(root / "merges_written")
    lakefmt_spark.write(frame.where("id = 'k4'"), written, **OPTIONS)
    inserted, plain = (
        each.where("id = 'k4'").drop(*[name for name in each.columns if name.startswith("_hoodie")])
        for each in (read, lakefmt_spark.read(spark, written))
    )
    return {
        "counts": [result.num_inserts, result.num_updates, result.num_deletes, nothing.instant],
        "rows": rows_of(read, "id", "v", "nothing"),
        "inserted": same_job.shown(inserted.select(*plain.columns)),
        "written": same_job.shown(plain),
        "missing": refusal(lambda: lakefmt_spark.merge(source, str(root / "no table"))),
    }


def plan_of(frame: Any) -> str:
    """Return how Spark runs a query."""
    return frame._jdf.queryExecution().executedPlan().toString().lower()


def flights(spark: SparkSession, root: Path) -> dict[str, Any]:
    """The job of ``make demo-spark``, on the batches that the tests have stored."""
    from examples.spark import job

    if not (root / "batches").exists():
        return {}
    lakefmt_spark.register(spark)
    try:
        job.write(spark, str(root / "flights"), root / "batches")
        job.read(spark, "lakefmt", str(root / "flights"), str(root / "flights_read"))
    finally:
        lakefmt_spark.unregister()
    return {"done": True}


def main() -> None:
    """Run scenarios and write what they answered, errors included."""
    root, answers, *names = sys.argv[1:]
    scenarios = [
        verbs,
        merge_on_read,
        overwrites,
        views,
        fresh_views,
        keyless,
        refusals,
        registered,
        functions,
        merges,
        flights,
    ]
    scenarios += [
        *write_scenarios.SCENARIOS,
        *stream_scenarios.SCENARIOS,
        *same_job.SCENARIOS,
        *guide.SCENARIOS,
        *bucket_scenarios.SCENARIOS,
        connect,
    ]
    if os.environ.get("LAKEFMT_HUDI_BUNDLE"):
        scenarios += [*same_job.WITH_HUDI, *guide.WITH_HUDI, *stream_scenarios.WITH_HUDI, *bucket_scenarios.WITH_HUDI]
    spark = session()
    spark.sparkContext.setLogLevel("OFF")
    told, begin = {"release": pyspark.__version__}, time.monotonic()
    for scenario in scenarios:
        if names and scenario.__name__ not in names:
            continue
        print(f"{time.monotonic() - begin:6.0f} s: {scenario.__name__}", file=sys.stderr, flush=True)
        try:
            told[scenario.__name__] = scenario(spark, Path(root))
        except Exception as error:
            told[scenario.__name__] = {"failed": f"{type(error).__name__}: {error}", "causes": causes(error)}
        Path(answers).write_text(json.dumps(told, default=str), "utf-8")  # what was answered before a scenario hangs
    spark.stop()


if __name__ == "__main__":
    main()
