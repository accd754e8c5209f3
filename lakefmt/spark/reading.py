"""Read tables as DataFrames by functions, on every release of PySpark that lakefmt takes (effects)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt.spark.native import is_native_query, native_dataframe
from lakefmt.spark.options import option_texts
from lakefmt.spark.scan import PlannedScan, open_scan
from lakefmt.spark.types import spark_types
from lakefmt.spark.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["native_rows", "read_dataframe"]


def read_dataframe(spark: SparkSession, path: str, **options: object) -> DataFrame:
    """Return the rows of a table as a DataFrame, which reads the state of this moment however often it is used.

    Args:
        spark: the session.
        path: the table.
        **options: Hudi's options for reads by their names, and ``storage.…`` for the store.

    Raises:
        TableNotFound: there is none.
        UnknownSetting: an option that is not known.
        UnsupportedFeature: Spark's workers do not run this release.
    """
    planned = open_scan(str(path), option_texts(options)).plan(slots=_slots(spark))
    native = native_dataframe(spark, planned)
    if native is not None:
        return native
    check_workers(spark)
    splits = len(planned.splits)
    numbers = spark.range(0, splits, 1, max(1, splits))
    return numbers.mapInArrow(_reading(planned), spark_types(planned.schema))


def native_rows(spark: SparkSession, path: str, **options: object) -> DataFrame | None:
    """Return the rows as a scan of Spark's own Parquet reader, where it reads the same rows; else None.

    Raises:
        TableNotFound: there is no table.
        UnknownSetting: an option that is not known.
    """
    scan = open_scan(path, option_texts(options))
    return native_dataframe(spark, scan.plan()) if is_native_query(scan.call) else None


def _reading(planned: PlannedScan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy():  # splits, not rows
                yield from planned.read(planned.splits[number])

    return run


def _slots(spark: SparkSession) -> int | None:
    """Return how many tasks run at the same time; None: this kind of session does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - a session of Spark Connect raises errors of its own
        return None
