"""Measure files and a topic into a new table beside Spark: ``python -m benchmarks.ingest.bench_spark [--rows N] [--runs N]``.

Three ways, in turns in one process of PySpark 3.5 with two cores, after one warm run of each: ``lakefmt ingest``; ``lakefmt ingest --engine
spark``; and Spark's own reader with Hudi's writer for Spark (1.2.0), which is told the columns and their types. All write version 8, copy-on-write,
Parquet with Snappy, a metadata table. Each result is counted. Rows per second by the clock, and processor seconds of the process with its JVM and
Python workers: the median and the spread. Needs ``make spark-env`` and ``make kafka-env``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
PARTS = 4
COLUMNS = "id string, customer bigint, amount double, note string"
CODEC = {"hoodie.parquet.compression.codec": "snappy"}
HUDI = {
    **CODEC,
    "hoodie.table.name": "t",
    "hoodie.write.table.version": "8",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
}


def rows_of(begin: int, end: int) -> pa.Table:
    """Return rows of some numbers."""
    numbers = range(begin, end)
    return pa.table(
        {
            "id": pa.array([str(n) for n in numbers]),
            "customer": pa.array([n % 9973 for n in numbers], pa.int64()),
            "amount": pa.array([n % 1000 / 7 for n in numbers], pa.float64()),
            "note": pa.array([f"note number {n}" for n in numbers]),
        }
    )


def lines_of(rows: pa.Table) -> list[bytes]:
    """Return rows as JSON."""
    return [json.dumps(row).encode() for row in rows.to_pylist()]


def write_sources(root: Path, count: int, topic: Callable[[list[bytes], int], None] | None) -> None:
    """Write the rows as files of each kind, and into a topic."""
    for part in range(PARTS):
        rows = rows_of(count * part // PARTS, count * (part + 1) // PARTS)
        for kind in ("parquet", "csv", "jsonl"):
            (root / kind).mkdir(exist_ok=True)
        pq.write_table(rows, root / f"parquet/{part}.parquet", compression="snappy")
        csv.write_csv(rows, root / f"csv/{part}.csv")
        lines = lines_of(rows)
        (root / f"jsonl/{part}.jsonl").write_bytes(b"\n".join([*lines, b""]))
        if topic is not None:
            topic(lines, part)


# ------------------------------------------------------------------------------------------------ in the process of PySpark


def processor_seconds() -> float:
    """Return the processor seconds of this process, of those that it started, and of theirs.

    Of a process that ends while others are looked at the seconds may be missed or counted twice: the median of some looks is taken.
    """
    return statistics.median(_processor_seconds() for _ in range(5))


def _processor_seconds() -> float:
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended
                continue
            children.setdefault(int(fields[1]), []).append(int(folder.name))
            used[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    left, total = [os.getpid()], 0.0
    while left:
        each = left.pop()
        total += used.get(each, 0.0)
        left += children.get(each, [])
    return total


def by_lakefmt(source: str, table: Path, operation: str, session: SparkSession | None) -> None:
    """Take a source into a new table by ``lakefmt ingest``; with a session by Spark."""
    from lakefmt._core.ingest.options import resolve_table_job
    from lakefmt._core.ingest.run import Ingester
    from lakefmt.spark.ingest import SparkEngine

    given = {
        "source": source,
        "table": str(table),
        "key": "id",
        "operation": operation,
        "min_age": 0,
        "settings": CODEC,
    }
    job, _ = resolve_table_job([("bench", given)])
    Ingester([job], engine=None if session is None else SparkEngine(session), attempts=0).run()


def read_by_spark(session: SparkSession, source: str) -> DataFrame:
    """Return the rows of a source by Spark's own reader, which is told their types."""
    if not source.startswith("kafka://"):
        kind = source.rpartition("/")[2]
        reader = session.read.schema(COLUMNS).option("header", "true")
        return reader.format({"jsonl": "json"}.get(kind, kind)).load(source)
    address, _, topic = source.removeprefix("kafka://").partition("/")
    from pyspark.sql import functions as sql

    reader = session.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    values = reader.load().select(sql.from_json(sql.col("value").cast("string"), COLUMNS).alias("row"))
    return values.select("row.*")


def by_hudi(session: SparkSession, source: str, table: Path, operation: str) -> None:
    """Take a source into a new table by Spark's own reader and Hudi's writer."""
    options = {**HUDI, "hoodie.datasource.write.operation": operation}
    read_by_spark(session, source).write.format("hudi").options(**options).mode("append").save(str(table))


def measure(root: Path, count: int, runs: int, topic: str) -> None:
    """Measure all sources by all ways, in turns."""
    from pyspark.sql import SparkSession

    import lakefmt

    builder = SparkSession.builder.master("local[2]")
    settings = json.loads(os.environ["LAKEFMT_BENCH_SPARK"])
    for name, text in settings.items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    ways: dict[str, Callable[[str, Path, str], None]] = {
        "lakefmt ingest": lambda *a: by_lakefmt(*a, None),
        "lakefmt ingest --engine spark": lambda *a: by_lakefmt(*a, session),
        "Spark and Hudi's writer": lambda *a: by_hudi(session, *a),
    }
    sources = [(str(root / kind), kind, "bulk_insert") for kind in ("parquet", "csv", "jsonl")]
    sources += [(topic, "Kafka, JSON", "bulk_insert")] if topic else []
    sources += [(str(root / "parquet"), "parquet", "upsert")]
    for source, shown, operation in sources:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for run in range(runs + 1):
            for name, way in ways.items():
                table = root / f"t{run}"
                used, begun = processor_seconds(), time.perf_counter()
                way(source, table, operation)
                took = time.perf_counter() - begun, processor_seconds() - used
                if run:  # the first one is to warm
                    found[name].append(took)
                stored = lakefmt.open_table(table).read(columns=["id"])["id"]
                assert (len(stored), len(stored.unique())) == (count, count), (name, len(stored))
                shutil.rmtree(table)
        for name, both in found.items():
            rates, used_by = sorted(count / took for took, _ in both), sorted(used for _, used in both)
            print(
                f"{f'{shown} {operation}, {name}':<60} {statistics.median(rates):>10,.0f} rows/s ({rates[0]:,.0f}–{rates[-1]:,.0f}), "
                f"{statistics.median(used_by):.1f} processor seconds ({used_by[0]:.1f}–{used_by[-1]:.1f})",
                flush=True,
            )


# ------------------------------------------------------------------------------------------------ in the process that begins


def environment(root: Path, jars: list[str]) -> Mapping[str, str]:
    """Return the variables of the process of PySpark."""
    import confluent_kafka

    from tests.judges.spark import spark_environment

    found = spark_environment()
    packages = root / "packages"
    packages.mkdir()
    for package in Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka*"):
        (packages / package.name).symlink_to(package)
    settings = {
        "spark.jars": ",".join([found.bundles["1.2.0"], *jars]),
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(root / "scratch"),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.shuffle.partitions": "2",
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    return kept | {
        "JAVA_HOME": str(found.java),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(found.python),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, packages))),
        "PYTHONWARNINGS": "ignore",
        "LAKEFMT_BENCH_SPARK": json.dumps(settings),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--worker", nargs=2, metavar=("FOLDER", "TOPIC"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        measure(Path(given.worker[0]), given.rows, given.runs, given.worker[1])
        return
    from benchmarks.harness.machine import describe
    from tests.judges.kafka import kafka_broker, kafka_environment

    root = Path(tempfile.mkdtemp(prefix="lakefmt-bench-spark-"))
    print(describe(root))
    try:
        connector = kafka_environment(spark=True)
        jars = [str(path) for path in sorted(Path(connector["connector_jars"]).glob("*.jar"))]
        with kafka_broker() as broker:
            topic = broker.create_topic(PARTS)
            write_sources(root, given.rows, lambda lines, part: broker.send_values(topic, lines, part))
            command: list[Any] = [sys.executable, "-m", "benchmarks.ingest.bench_spark"]
            variables = environment(root, jars)
            command = [variables["PYSPARK_PYTHON"], *command[1:], "--rows", str(given.rows), "--runs", str(given.runs)]
            command += ["--worker", str(root), f"kafka://{broker.address}/{topic}"]
            subprocess.run(command, env=variables, cwd=ROOT, check=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
