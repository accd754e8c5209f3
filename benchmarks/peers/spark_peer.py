"""Apache Hudi on Spark ``local[2]``: a copy-on-write table of version 8, bloom index, without metadata table.

One warm session for all; rows are handed over as a cached frame, since reading them is no part of a job. Settings come
from the environment: ``LAKEFMT_BENCH_HUDI`` (the bundle's path) and ``LAKEFMT_BENCH_SCRATCH`` (a folder).
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.peers.base import Peer


def session() -> SparkSession:
    """Return the session; every setting must stand before the JVM starts."""
    jar, scratch = os.environ["LAKEFMT_BENCH_HUDI"], os.environ["LAKEFMT_BENCH_SCRATCH"]
    settings = {
        "spark.driver.extraClassPath": jar,
        "spark.executor.extraClassPath": jar,
        "spark.driver.memory": "6g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Djava.io.tmpdir={scratch} -XX:-UsePerfData",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": scratch,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    builder = SparkSession.builder.master("local[2]").appName("lakefmt-bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class SparkPeer(Peer):
    """No options."""

    packages: ClassVar[tuple[str, ...]] = ("pyspark",)
    _spark: ClassVar[SparkSession | None] = None

    @classmethod
    def spark(cls) -> SparkSession:
        """Return this process's session."""
        if cls._spark is None:
            cls._spark = session()
        return cls._spark

    def create(self, schema: pa.Schema) -> None:
        self.spark()  # the first write makes the table

    def open(self) -> None:
        self.spark()

    def _scratch(self) -> str:
        return f"{os.environ['LAKEFMT_BENCH_SCRATCH']}/{uuid.uuid4()}"

    def prepare(self, data: pa.Table) -> Any:
        place = self._scratch()
        Path(place).mkdir(parents=True)
        pq.write_table(data, f"{place}/rows.parquet")
        self.spark().catalog.clearCache()
        frame = self.spark().read.parquet(place).cache()
        if frame.count() != data.num_rows:
            raise RuntimeError("Spark counts other rows than it was handed")
        return frame

    def _write(self, frame: Any, operation: str) -> None:
        settings = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": self.key,
            "hoodie.datasource.write.partitionpath.field": self.partition,
            "hoodie.datasource.write.precombine.field": self.ordering,
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.partitionpath.urlencode": "true",
            "hoodie.datasource.write.operation": operation,
            "hoodie.index.type": "BLOOM",
            "hoodie.write.table.version": "8",
            "hoodie.write.auto.upgrade": "false",
            "hoodie.metadata.enable": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            "hoodie.embed.timeline.server": "false",
            "hoodie.write.markers.type": "DIRECT",
            "hoodie.parquet.compression.codec": "zstd",
        }
        frame.write.format("hudi").options(**settings).mode("append").save(self.path)

    def load(self, data: Any) -> None:
        self._write(data, "bulk_insert")

    def append(self, data: Any) -> None:
        self._write(data, "insert")

    def upsert(self, data: Any) -> None:
        self._write(data, "upsert")

    def scan(self) -> pa.Table:
        place = self._scratch()
        rows = self.spark().read.format("hudi").load(self.path)
        rows.select(*[name for name in rows.columns if not name.startswith("_hoodie")]).write.parquet(place)
        found = pq.read_table(place)
        shutil.rmtree(place)
        return found
