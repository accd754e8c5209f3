"""The rows of a write as Spark hands them: what must hold before anything is computed (effects: asks the workers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt import Table
from lakefmt.spark.options import WriteCall
from lakefmt.spark.types import dataframe_schema, spark_schema, spark_types
from lakefmt.spark.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["accept_rows", "shape_rows"]


def accept_rows(df: DataFrame, call: WriteCall, table: Table | None) -> tuple[DataFrame, pa.Schema]:
    """Return the rows to write and their schema.

    Args:
        df: what the user gave.
        call: may ask that columns which the rows lack are filled with null; keys to delete need none.
        table: the table, if there is one.

    Raises:
        UnsupportedFeature: a column holds times without a zone, or the workers do not run this release.
    """
    df, schema = shape_rows(df, call, table)
    check_workers(df.sparkSession)
    return df, schema


def shape_rows(df: DataFrame, call: WriteCall, table: Table | None) -> tuple[DataFrame, pa.Schema]:
    """Return the rows to write and their schema, as :func:`accept_rows`; no worker is asked.

    Raises:
        UnsupportedFeature: a column holds times without a zone.
    """
    schema = dataframe_schema(df.schema, call.zoneless)
    if call.fills_missing and table is not None and call.operation != "delete":
        df = _filled(df, spark_schema(table.schema))
        schema = dataframe_schema(df.schema, call.zoneless)
    return df, schema


def _filled(df: DataFrame, stored: pa.Schema) -> DataFrame:
    from pyspark.sql.functions import lit

    lacking = {field.name: field.dataType for field in spark_types(stored) if field.name not in df.columns}
    return df.withColumns({name: lit(None).cast(kind) for name, kind in lacking.items()}) if lacking else df
