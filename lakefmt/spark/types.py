"""Arrow types on their way to Spark and back (pure).

Spark takes batches of exactly the types it makes of its own schema: plain texts and bytes, microseconds, UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.values import META_COLUMNS
from lakefmt._core.write.ingest import STORED_KEY
from lakefmt.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["dataframe_schema", "spark_schema", "spark_types", "table_schema"]


def spark_types(schema: pa.Schema) -> StructType:
    """Return Spark's types of a schema by :func:`spark_schema`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    types: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return types


def dataframe_schema(schema: StructType, zoneless: str = "refuse", *, stored_keys: bool = False) -> pa.Schema:
    """Return the schema of a DataFrame's rows for a table, without meta columns.

    Args:
        schema: of the DataFrame.
        zoneless: what becomes of ``timestamp_ntz``: ``refuse``, or ``utc``: the values are times in UTC.
        stored_keys: keep the meta columns that tell a stored row again.

    Raises:
        UnsupportedFeature: a column holds times without a zone, or values of a type that Arrow does not have.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    # Releases from 4.2 on ask for the zone of timestamps, older ones always take UTC.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    left_out = [name for name in META_COLUMNS if not (stored_keys and name in STORED_KEY)]
    arrow_schema = run_foreign(lambda: to_arrow_schema(schema, **zone))
    if isinstance(arrow_schema, Raised):  # types without a counterpart, such as intervals of months
        raise UnsupportedFeature(
            f"Arrow cannot hold a column of the DataFrame: {arrow_schema.error}"
        ) from arrow_schema.error
    rows = table_schema(arrow_schema, left_out)
    zoneless_columns = [field.name for field in rows if _holds_zoneless(field.type)]
    if zoneless_columns and zoneless == "refuse":
        raise UnsupportedFeature(
            f"column {zoneless_columns[0]!r} holds timestamp_ntz, times without a zone, and a table stores moments: cast it to timestamp, "
            "which takes the session's zone, or set lakefmt.spark.timestamp_ntz=utc, which takes UTC"
        )
    return rows


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that Spark sees for a table's schema; every column may hold nulls.

    Raises:
        UnsupportedFeature: Spark has no type for a column.

    Example:
        >>> spark_schema(pa.schema([pa.field("t", pa.timestamp("ms", "UTC"), nullable=False)])).field("t").type
        TimestampType(timestamp[us, tz=UTC])
    """
    return pa.schema([pa.field(f.name, _to_spark(f.type, f.name)) for f in schema])


def table_schema(schema: pa.Schema, stored: Sequence[str] = ()) -> pa.Schema:
    """Return the schema of a DataFrame's rows for a table: times with a zone in UTC, no meta columns.

    Args:
        schema: of the DataFrame, as Spark hands its batches.
        stored: names to leave out.
    """
    return pa.schema([pa.field(f.name, _from_spark(f.type)) for f in schema if f.name not in stored])


def _to_spark(data_type: pa.DataType, name: str) -> pa.DataType:
    if pt.is_timestamp(data_type):
        return pa.timestamp("us", None if data_type.tz is None else "UTC")
    if pt.is_large_string(data_type) or pt.is_string_view(data_type):
        return pa.string()
    if pt.is_large_binary(data_type) or pt.is_fixed_size_binary(data_type) or pt.is_binary_view(data_type):
        return pa.binary()
    if pt.is_dictionary(data_type):
        return _to_spark(data_type.value_type, name)
    if pt.is_time(data_type) or pt.is_duration(data_type):
        raise UnsupportedFeature(f"Spark has no type for column {name!r} of type {data_type}")
    return _nested(data_type, lambda inner: _to_spark(inner, name))


def _from_spark(data_type: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp(data_type.unit, "UTC")
    return _nested(data_type, _from_spark)


def _holds_zoneless(data_type: pa.DataType) -> bool:
    inner = (data_type.field(number).type for number in range(data_type.num_fields))
    return bool(pt.is_timestamp(data_type) and data_type.tz is None) or any(map(_holds_zoneless, inner))


def _nested(data_type: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pt.is_struct(data_type):
        return pa.struct([pa.field(f.name, convert(f.type)) for f in data_type])
    if pt.is_map(data_type):
        return pa.map_(convert(data_type.key_type), convert(data_type.item_type))
    if pt.is_list(data_type) or pt.is_large_list(data_type) or pt.is_fixed_size_list(data_type):
        return pa.list_(convert(data_type.value_type))
    return data_type
