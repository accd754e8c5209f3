"""The Spark judge's process: one Hudi bundle, one session, requests as JSON lines on standard input.

Run by the interpreter of the judge's own environment (pyspark, nothing of lakefmt); started by ``spark.py``. Every
answer is one JSON line on what was standard output; everything Spark and the JVM print goes to standard error. The
process ends when its input ends, and the JVM with it.

A request is ``{"op": …}``; an answer holds what the operation gives, or ``error`` (class), ``message`` (its first
lines) and ``causes`` (the chain below it).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import spark_worker_indexing
import spark_worker_locks  # beside this file; nothing of lakefmt
from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from spark_settings import BUFFER_BYTES, FEW_ROWS, class_path, java_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

Request = dict[str, Any]
Answer = dict[str, Any]
SAMPLE = 5
#: Columns of a comparison, beside those of the rows: which side a row came from, and how many came from the table.
SIDE, ROWS = "__side", "__rows"

METASTORE = "hive.metastore.uris"
#: Settings of Hadoop that Spark makes, one without a default in the code, and where the catalog is.
HADOOP_KEPT = (
    "fs.AbstractFileSystem.file.impl",
    "fs.local.block.size",
    "fs.s3a.downgrade.syncable.exceptions",
    "fs.s3a.endpoint",
    METASTORE,
    "io.file.buffer.size",
    "mapreduce.fileoutputcommitter.algorithm.version",
)


def session(jar: str, scratch: str, memory: str, metastore: str = "") -> SparkSession:
    """The session, with the catalog of a metastore where one is named; every setting must stand before the JVM starts."""
    java = [
        "-Duser.timezone=UTC",
        f"-Djava.io.tmpdir={scratch}",
        "-XX:-UsePerfData",
    ]  # leaves nothing behind when killed
    java += java_options(memory)
    # Hudi measures the bloom index's view of files, locks included, when it reads ranges from the metadata table.
    java += [f"--add-opens=java.base/java.util.concurrent{part}=ALL-UNNAMED" for part in ("", ".atomic", ".locks")]
    settings = {
        "spark.driver.extraClassPath": class_path(jar),
        "spark.executor.extraClassPath": jar,
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": scratch,
        "spark.hadoop.fs.local.block.size": str(BUFFER_BYTES),  # Hudi's buffer for an HFile; the default is 32 MiB
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        **FEW_ROWS,
        "spark.sql.adaptive.enabled": "false",
    }
    if metastore:
        settings |= {"spark.sql.catalogImplementation": "hive", f"spark.hadoop.{METASTORE}": metastore}
    builder = SparkSession.builder.master("local[2]").appName("lakefmt-judge")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")  # to the log only; without it a failed record write has no cause
    forget_defaults(spark)
    open_with_small_buffers(spark)
    return spark


def forget_defaults(spark: SparkSession) -> None:
    """Take what Hadoop's own default files say, as its code does, too, out of the settings that every task is sent.

    Hudi sends a table's client along with a task, and with it a thousand settings, each compressed for itself.
    """
    packages, hadoop = spark._jvm.org.apache.hadoop, spark.sparkContext._jsc.hadoopConfiguration()
    packages.mapred.JobConf()  # the defaults of both classes are read now, for later they would come back
    packages.hdfs.HdfsConfiguration()
    kept = {name: hadoop.get(name) for name in HADOOP_KEPT}
    hadoop.clear()
    for name, value in kept.items():
        if value is not None:
            hadoop.set(name, value)


def open_with_small_buffers(spark: SparkSession) -> None:
    """Change the default of the size of a log's buffer, 16 MiB, which Hudi 1.2 takes in metadata tables whatever is set."""
    settings = spark._jvm.org.apache.hudi.common.config.HoodieMemoryConfig
    if not isinstance(settings, JavaClass):
        return  # before 1.0 it is elsewhere, and heeded
    buffer = settings.MAX_DFS_STREAM_BUFFER_SIZE
    default = buffer.getClass().getDeclaredField("defaultValue")
    default.setAccessible(True)
    default.set(buffer, BUFFER_BYTES)


def load(spark: SparkSession, request: Request) -> DataFrame:
    """The table a request names, filtered and projected."""
    rows = spark.read.format("hudi").options(**request.get("options") or {}).load(request["path"])
    if request.get("filter"):
        rows = rows.where(request["filter"])
    return rows.select(*[quoted(name) for name in request["columns"]]) if request.get("columns") else rows


def quoted(name: str) -> str:
    return f"`{name}`"


def ping(spark: SparkSession, request: Request) -> Answer:
    java = spark._jvm.java.lang.System.getProperty("java.version")
    return {"spark": spark.version, "java": java, "zone": spark.conf.get("spark.sql.session.timeZone")}


def read(spark: SparkSession, request: Request) -> Answer:
    """Rows as Parquet in the directory `out`, typed as Spark has them."""
    rows = load(spark, request)
    rows.coalesce(1).write.mode("overwrite").parquet(request["out"])
    return {"out": request["out"], "schema": rows.schema.json()}


def write(spark: SparkSession, request: Request) -> Answer:
    """The rows of the Parquet file `input`, written to the table, under Hadoop settings that hold for this request only."""
    rows = spark.read.parquet(request["input"]).coalesce(1)
    writer = rows.write.format("hudi").options(**request["options"])
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    settings = request.get("hadoop") or {}
    for key, value in settings.items():
        hadoop.set(key, value)
    try:
        writer.mode(request.get("mode", "append")).save(request["path"])
    finally:
        for key in settings:
            hadoop.unset(key)
    return {}


def sql(spark: SparkSession, request: Request) -> Answer:
    """The statements' results, under settings that hold for this request only."""
    settings = request.get("settings") or {}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        results = [spark.sql(text) for text in request["statements"]]
        return {"results": [{"columns": r.columns, "rows": [list(row) for row in r.collect()]} for r in results]}
    finally:
        for key in settings:
            spark.conf.unset(key)


def except_all(spark: SparkSession, request: Request) -> Answer:
    """How many rows the table has beyond those of the Parquet file `expected`, and lacks; counted by Spark."""
    ignored = set(request.get("ignore") or [])
    ours = load(spark, request)
    theirs = spark.read.parquet(request["expected"])
    names = [sorted(set(frame.columns) - ignored) for frame in (ours, theirs)]
    if names[0] != names[1]:
        return {"differs": f"columns of the table {names[0]}, expected {names[1]}"}
    types = {n: [frame.schema[n].dataType.simpleString() for frame in (ours, theirs)] for n in names[0]}
    wrong = [f"{n}: {a} in the table, {b} expected" for n, (a, b) in types.items() if a != b]
    if wrong:  # set operations would widen one side in silence
        return {"differs": "types: " + "; ".join(wrong)}
    # What EXCEPT ALL does, both ways in one pass over either side: equal rows are counted, theirs less ours.
    sides = [comparable(frame, names[0]).withColumn(SIDE, sf.lit(sign)) for frame, sign in ((ours, 1), (theirs, -1))]
    groups = sides[0].union(sides[1]).groupBy(*map(quoted, names[0]))
    counted = groups.agg(sf.sum(SIDE).alias(SIDE), sf.sum(sf.expr(f"if({SIDE} > 0, 1, 0)")).alias(ROWS))
    beyond = {"rows": ROWS, "table_only": f"greatest({SIDE}, 0)", "expected_only": f"greatest(-{SIDE}, 0)"}
    sums = [sf.coalesce(sf.sum(sf.expr(what)), sf.lit(0)).alias(name) for name, what in beyond.items()]
    answer: Answer = counted.agg(*sums).collect()[0].asDict()
    for name, what in list(beyond.items())[1:]:
        rows = counted.where(f"{what} > 0").drop(SIDE, ROWS).limit(SAMPLE) if answer[name] else None
        answer[f"{name}_sample"] = rows.toJSON().collect() if rows else []
    return answer


def comparable(frame: DataFrame, names: list[str]) -> DataFrame:
    """The columns in one order, maps as sorted lists of entries: set operations refuse maps."""
    return frame.select(*[settable(sf.col(quoted(n)), frame.schema[n].dataType).alias(n) for n in names])


def settable(column: Column, type_: st.DataType) -> Column:
    if isinstance(type_, st.MapType):

        def entry(e: Column) -> Column:
            return sf.struct(e["key"].alias("key"), settable(e["value"], type_.valueType).alias("value"))

        return sf.array_sort(sf.transform(sf.map_entries(column), entry))
    if isinstance(type_, st.ArrayType) and holds_map(type_):
        return sf.transform(column, lambda e: settable(e, type_.elementType))
    if isinstance(type_, st.StructType) and holds_map(type_):
        fields = [settable(column[f.name], f.dataType).alias(f.name) for f in type_.fields]
        return sf.when(column.isNotNull(), sf.struct(*fields))
    return column


def holds_map(type_: st.DataType) -> bool:
    return "map<" in type_.simpleString()


OPERATIONS: dict[str, Callable[[SparkSession, Request], Answer]] = {
    "ping": ping,
    "read": read,
    "write": write,
    "upsert": write,
    "sql": sql,
    "except_all": except_all,
    **spark_worker_indexing.OPERATIONS,
    **spark_worker_locks.OPERATIONS,
}


def answer(spark: SparkSession, request: Request) -> Answer:
    """What the request gives, or what went wrong; never an exception."""
    if request.get("op") == "batch":
        return {"answers": [answer(spark, one) for one in request["requests"]]}
    try:
        return OPERATIONS[request["op"]](spark, request)
    except Exception as error:  # the judge's whole business is to tell what was refused
        return failure(error)


def failure(error: Exception) -> Answer:
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    chain: list[str] = []
    while thrown is not None and len(chain) < 8:
        chain.append(f"{thrown.getClass().getName()}: {first_lines(thrown.getMessage() or '', 3)}")
        thrown = thrown.getCause()
    name = chain[0].split(":")[0] if chain else type(error).__name__
    text = chain[0].split(": ", 1)[1] if chain else first_lines(str(error), 5)
    return {"error": name, "message": text, "causes": chain[1:]}


def first_lines(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[:lines])[:2000]


def main() -> None:
    jar, scratch, memory, *metastore = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # before the JVM starts: it inherits this
    spark = session(jar, scratch, memory, *metastore)
    answers.write(json.dumps(ping(spark, {})) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("op") == "quit":
            break
        answers.write(json.dumps({"id": request.get("id"), **answer(spark, request)}, default=str) + "\n")
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)  # the client may be gone


if __name__ == "__main__":
    main()
