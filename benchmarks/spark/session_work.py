"""The part that runs in an interpreter with PySpark: every work by every engine, in turns, in one session.

    python session_work.py FOLDER ROUNDS ENGINE …       ENGINE: lakefmt, hudi

FOLDER holds ``base.parquet``, ``late.parquet`` and ``tiny.parquet``; seconds go to ``FOLDER/seconds.json``. Needs nothing
but PySpark and lakefmt. The first round warms up and is not counted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lakefmt
import lakefmt.spark

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.write.table.version": "8",
    "hoodie.metadata.enable": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.parquet.compression.codec": "zstd",
}
#: What the other engine takes to do the same work.
HUDI_ONLY = {
    "hoodie.write.auto.upgrade": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.index.type": "BLOOM",
}
LAKEFMT_ONLY = {"lakefmt.durability": "none"}
_HUDI_SESSION = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
OPERATION = "hoodie.datasource.write.operation"
TYPE = "hoodie.datasource.write.table.type"


def session(folder: Path) -> SparkSession:
    """Return the session."""
    bundle = os.environ.get("LAKEFMT_HUDI_BUNDLE")
    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    if bundle:
        settings |= {"spark.driver.extraClassPath": bundle, **_HUDI_SESSION}
    builder = SparkSession.builder.master("local[2]").appName("lakefmt-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Round:
    """One round of works of one engine."""

    def __init__(self, spark: SparkSession, engine: str, folder: Path, frames: dict[str, Any]) -> None:
        self.spark, self.engine, self.folder, self.frames = spark, engine, folder, frames
        self.seconds: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        """Run every work on new tables and return their seconds."""
        for kind in ("cow", "mor"):
            table = self.folder / "tables" / self.engine / kind
            shutil.rmtree(table, ignore_errors=True)
            self._take(f"load {kind}", self._save, "base", table, "bulk_insert")
            if kind == "cow":
                self._read(table)
                self._take("100-row upsert cow", self._save, "tiny", table, "upsert")
                if self.engine == "lakefmt":
                    rows = pq.read_table(self.folder / "tiny.parquet")
                    self._take("100-row upsert cow, plain table.upsert", _upsert, table, rows)
            self._take(f"1 % upsert {kind}", self._save, "late", table, "upsert")
        return self.seconds

    def _take(self, work: str, do: Callable[..., object], *given: object) -> None:
        started = perf_counter()
        do(*given)
        self.seconds[work] = perf_counter() - started

    def _save(self, part: str, table: Path, operation: str) -> None:
        more = HUDI_ONLY if self.engine == "hudi" else LAKEFMT_ONLY
        kind = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[table.name]
        options = {**OPTIONS, **more, OPERATION: operation, TYPE: kind}
        self.frames[part].write.format(self.engine).options(**options).mode("append").save(str(table))

    def _read(self, table: Path) -> None:
        rows = self.spark.read
        files = [str(path) for path in sorted(table.glob("*/*.parquet"))]
        ways: dict[str, Callable[[], Any]] = {"": lambda: rows.format(self.engine).load(str(table))}
        if self.engine == "lakefmt":
            never = {"lakefmt.spark.read.native": "never"}
            ways[", by its own tasks"] = lambda: lakefmt.spark.read(self.spark, str(table), **never)
            ways[", Spark's Parquet reader over the same files"] = lambda: rows.parquet(*files)
        for way, load in ways.items():
            self._take(f"read all{way}", _drain, load)
            self._take(f"sum of a column{way}", _add_up, load)


def _upsert(table: Path, rows: pa.Table) -> None:
    lakefmt.open_table(str(table), options=LAKEFMT_ONLY).upsert(rows)


def _drain(load: Callable[[], Any]) -> None:
    load().write.format("noop").mode("overwrite").save()


def _add_up(load: Callable[[], Any]) -> None:
    load().groupBy().sum("f0").collect()


def main() -> None:
    """Run the rounds and store the seconds."""
    folder, rounds, engines = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    spark = session(folder)
    lakefmt.spark.register(spark)
    frames = {part: spark.read.parquet(str(folder / f"{part}.parquet")).cache() for part in ("base", "late", "tiny")}
    counted = {part: frame.count() for part, frame in frames.items()}
    found: list[dict[str, Any]] = []
    for number in range(rounds + 1):
        for engine in engines if number % 2 else reversed(engines):
            seconds = Round(spark, engine, folder, frames).run()
            if number:
                found.append({"engine": engine, "round": number, "seconds": seconds})
    versions = {"pyspark": spark.version, "lakefmt": lakefmt.__version__}
    answer = {"rows": counted, "versions": versions, "rounds": found, "processor": process_time()}
    (folder / "seconds.json").write_text(json.dumps(answer), "utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
