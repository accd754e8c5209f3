"""The part of the demonstration that runs in an interpreter with PySpark; needs nothing else of the examples.

    python job.py write TABLE BATCHES            every batch of the folder, in order, by lakefmt
    python job.py read FORMAT TABLE FILE         the table's rows, without meta columns, into one Parquet file

With ``LAKEFMT_HUDI_BUNDLE`` the session has Apache Hudi's JAR, and FORMAT may be ``hudi``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import lakefmt.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS = {
    "hoodie.table.name": "flights",
    "hoodie.datasource.write.recordkey.field": "carrier,flight,origin,scheduled",
    "hoodie.datasource.write.partitionpath.field": "month",
    "hoodie.datasource.write.precombine.field": "updated",
}
_HUDI = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}


def session() -> SparkSession:
    """Return a small local session."""
    bundle = os.environ.get("LAKEFMT_HUDI_BUNDLE")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    if bundle:
        settings |= {"spark.driver.extraClassPath": bundle, **_HUDI}
    builder = SparkSession.builder.master("local[2]").appName("flights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def write(spark: SparkSession, table: str, batches: Path) -> None:
    """Write every batch; the name of its file says the operation: ``03-upsert.parquet``."""
    for file in sorted(batches.glob("*.parquet")):
        rows: DataFrame = spark.read.parquet(str(file))
        operation = {"hoodie.datasource.write.operation": file.stem.partition("-")[2]}
        rows.write.format("lakefmt").options(**OPTIONS, **operation).mode("append").save(table)
        sys.stdout.write(f"{file.stem}: {lakefmt.spark.last_commit(table)}\n")
        sys.stdout.flush()


def read(spark: SparkSession, name: str, table: str, file: str) -> None:
    """Read the table and leave its rows in one file."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    rows = spark.read.format(name).load(table)
    kept = rows.select(*[column for column in rows.columns if not column.startswith("_hoodie_")])
    kept.coalesce(1).write.mode("overwrite").parquet(file)


def main() -> None:
    """Run one command."""
    command, *arguments = sys.argv[1:]
    spark = session()
    lakefmt.spark.register(spark)
    try:
        if command == "write":
            write(spark, arguments[0], Path(arguments[1]))
        else:
            read(spark, *arguments)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
