"""The rows of a write as Spark hands them: what must hold before anything is computed (effects: asks the workers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt import Table
from lakefmt.spark.options import WriteCall
from lakefmt.spark.types import dataframe_schema, spark_schema, spark_types
from lakefmt.spark.workers import check_workers
from lakefmt.values import RECORD_KEY
from lakefmt.write.ingest import STORED_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["accept_rows", "rows_schema", "shape_rows"]


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
    schema = rows_schema(df.schema, call, table)
    if call.fills_missing and table is not None and call.operation != "delete":
        df = _filled(df, spark_schema(table.schema))
        schema = rows_schema(df.schema, call, table)
    return df, schema


def rows_schema(schema: StructType, call: WriteCall, table: Table | None) -> pa.Schema:
    """Return the schema of the rows to write, in a table's types.

    Rows of a table that generates its keys keep the key with which they were read: it tells which rows they change.

    Args:
        schema: of the DataFrame.
        call: what the options ask for.
        table: the table, if there is one.

    Raises:
        UnsupportedFeature: a column holds times without a zone.
    """
    generates_keys = table is not None and table.client.key_spec(table.properties).auto_keys
    by_stored_key = generates_keys and call.operation in (None, "upsert", "delete") and RECORD_KEY in schema.names
    rows = dataframe_schema(schema, call.zoneless, stored_keys=by_stored_key)
    if by_stored_key and call.operation == "delete":
        return pa.schema([rows.field(name) for name in STORED_KEY if name in rows.names])
    return rows


def _filled(df: DataFrame, stored: pa.Schema) -> DataFrame:
    from pyspark.sql.functions import lit

    lacking = {field.name: field.dataType for field in spark_types(stored) if field.name not in df.columns}
    return df.withColumns({name: lit(None).cast(kind) for name, kind in lacking.items()}) if lacking else df
