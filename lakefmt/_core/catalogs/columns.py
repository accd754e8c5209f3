"""Stored columns in the words of Hive, and as the schema that Spark keeps in a catalog's properties (pure)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.catalogs.api import CatalogColumn
from lakefmt._core.schema.avro import AVRO_DOC
from lakefmt._core.schema.types import struct_fields
from lakefmt.errors import InvalidInputError, UnsupportedFeature

__all__ = ["hive_columns", "hive_type", "spark_schema_json"]

#: Hive's database keeps no longer ones.
_MOST_COMMENT: Final = 255
_HIVE_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.time32("ms"): "int",
    pa.time64("us"): "bigint",
}
_SPARK_NAMES: Final = {
    "boolean": "boolean",
    "int": "integer",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "string": "string",
    "binary": "binary",
}


def hive_type(kind: pa.DataType, *, timestamps: bool = True) -> str:
    """Return the name of the Hive type for a stored type.

    Args:
        kind: as a table stores it.
        timestamps: whether times are ``timestamp``, or the ``bigint`` that they are stored as.

    Raises:
        UnsupportedFeature: Hive has no such type.

    Example:
        >>> hive_type(pa.list_(pa.struct([("a", pa.int32()), ("at", pa.timestamp("us", "UTC"))])))
        'array<struct<a:int,at:timestamp>>'
    """
    if kind in _HIVE_NAMES:
        return _HIVE_NAMES[kind]
    if pt.is_timestamp(kind):
        return "timestamp" if timestamps else "bigint"
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_fixed_size_binary(kind):
        return "binary"
    if pt.is_list(kind):
        return f"array<{hive_type(kind.value_type, timestamps=timestamps)}>"
    if pt.is_map(kind):
        return f"map<string,{hive_type(kind.item_type, timestamps=timestamps)}>"
    if pt.is_struct(kind):
        inner = (f"{field.name}:{hive_type(field.type, timestamps=timestamps)}" for field in struct_fields(kind))
        return f"struct<{','.join(inner)}>".lower()
    raise UnsupportedFeature(f"a catalog has no type for {kind}")


def hive_columns(schema: pa.Schema, *, timestamps: bool, comments: bool) -> tuple[CatalogColumn, ...]:
    """Return the columns of a stored schema.

    Args:
        schema: meta columns included, where the catalog is to have them.
        timestamps: as for :func:`hive_type`.
        comments: whether comments are taken along.

    Raises:
        InvalidInputError: two names differ in their case alone, which a catalog cannot tell apart.
        UnsupportedFeature: a column has a type that Hive lacks.
    """
    columns = tuple(
        CatalogColumn(
            field.name.lower(), hive_type(field.type, timestamps=timestamps), _comment(field) if comments else ""
        )
        for field in schema
    )
    names = [column.name for column in columns]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InvalidInputError(f"columns {', '.join(twins)}: a catalog cannot tell names apart by capital letters")
    return columns


def _comment(field: pa.Field) -> str:
    return bytes((field.metadata or {}).get(AVRO_DOC, b"")).decode("utf-8", "replace")[:_MOST_COMMENT]


def spark_schema_json(schema: pa.Schema, last: Sequence[str]) -> str:
    """Return a schema in the JSON form that Spark stores in the properties of a catalog table.

    Args:
        schema: meta columns included, where the catalog is to have them.
        last: the partition columns, which Spark has behind all others.

    Example:
        >>> spark_schema_json(pa.schema([pa.field("city", pa.string()), pa.field("n", pa.int64(), False)]), ["city"])
        '{"type":"struct","fields":[{"name":"n","type":"long","nullable":false,"metadata":{}},{"name":"city","type":"string","nullable":true,"metadata":{}}]}'
    """
    fields = [field for field in schema if field.name not in last]
    fields += [schema.field(name) for name in last if name in schema.names]
    return json.dumps(_spark_struct(fields), separators=(",", ":"), ensure_ascii=False)


def _spark_struct(fields: Sequence[pa.Field]) -> dict[str, object]:
    return {"type": "struct", "fields": [_spark_field(field) for field in fields]}


def _spark_field(field: pa.Field) -> dict[str, object]:
    comment = _comment(field)
    return {
        "name": field.name,
        "type": _spark_type(field.type),
        "nullable": field.nullable,
        "metadata": {"comment": comment} if comment else {},
    }


def _spark_type(kind: pa.DataType) -> object:
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_list(kind):
        element = kind.value_field
        return {"type": "array", "elementType": _spark_type(element.type), "containsNull": element.nullable}
    if pt.is_map(kind):
        item = kind.item_field
        return {
            "type": "map",
            "keyType": "string",
            "valueType": _spark_type(item.type),
            "valueContainsNull": item.nullable,
        }
    if pt.is_struct(kind):
        return _spark_struct(struct_fields(kind))
    name = hive_type(kind)
    return _SPARK_NAMES.get(name, name)
