"""What a catalog must say of a table, from the table at one moment: its entries, their partitions, and columns in the words of Hive and Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.catalogs.api import CatalogColumn, CatalogPartition, CatalogTable
from lakefmt._core.catalogs.options import Extractor, SyncOptions
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.keys import KeySpec
from lakefmt._core.keys.partition_path import decode_path_value, divide_path
from lakefmt._core.schema.avro import AVRO_DOC
from lakefmt._core.schema.types import field_at, struct_fields, with_meta_columns
from lakefmt._core.values import TableType
from lakefmt.errors import InvalidInputError, UnsupportedFeature

__all__ = [
    "OWNED_PREFIX",
    "SYNCED",
    "TableEntries",
    "hive_columns",
    "hive_type",
    "spark_schema_json",
    "table_entries",
    "values_in_path",
]

#: Properties that a sync writes last: up to which commit the entry is synced.
SYNCED: Final = ("last_commit_time_sync", "last_commit_completion_time_sync")
#: Properties with this beginning are the sync's own: those that are not written any more are removed.
OWNED_PREFIX: Final = "spark.sql.sources.schema."
_SNAPSHOT_FORMAT: Final = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
_MERGING_FORMAT: Final = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
_OUTPUT_FORMAT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_DIGITS_OF_SLASHED: Final = {Extractor.DAY: (4, 2, 2), Extractor.HOUR: (4, 2, 2, 2)}


@dataclass(frozen=True, slots=True)
class TableEntries:
    """What a catalog must say of one table.

    Attributes:
        tables: its entries: one, or of a merge-on-read table up to three.
        partitions: of each of them.
        synced: the properties of :data:`SYNCED`; empty before the first commit.
    """

    tables: tuple[CatalogTable, ...]
    partitions: tuple[CatalogPartition, ...]
    synced: Mapping[str, str]


def table_entries(table_at: TableAt, options: SyncOptions) -> TableEntries:
    """Return what a catalog must say of a table.

    Raises:
        InvalidInputError: the options contradict the table, or a partition path does not have the table's form.
        UnsupportedFeature: a column has a type that catalogs lack.
    """
    config, spec = table_at.config, table_at.key_spec()
    fields = tuple(field.name for field in spec.partition_fields)
    if options.partition_fields is not None and options.partition_fields != fields:
        raise InvalidInputError(
            f"hoodie.datasource.hive_sync.partition_fields={','.join(options.partition_fields)} contradicts the table, "
            f"whose partition columns are {', '.join(fields) or 'none'}"
        )
    if options.extractor is Extractor.NONE:
        fields = ()
    schema = table_at.schema()
    catalog_schema = with_meta_columns(schema) if options.meta_columns and config.populate_meta_fields else schema
    location = options.location or table_at.client.store.url
    tables = tuple(
        _entry(config, options, name, location, catalog_schema, _keys(spec, fields, schema, options), fields, view)
        for name, view in _views(config, options)
    )
    partitions = _partitions(table_at, spec, options, location) if fields else ()
    return TableEntries(tables, partitions, _synced(table_at))


def _views(config: TableConfig, options: SyncOptions) -> list[tuple[str, tuple[bool, bool]]]:
    """Return the name of each entry, whether it merges logs and whether it is the read-optimised one of a pair."""
    name = (options.table or config.name).lower()
    merging, read_optimized = (True, False), (False, True)
    if config.table_type is TableType.COPY_ON_WRITE:
        return [(name, (False, False))]
    if options.strategy == "ro":
        return [(name, read_optimized)]
    if options.strategy == "rt":
        return [(name, merging)]
    views = [(name if options.bare_read_optimized else f"{name}_ro", read_optimized), (f"{name}_rt", merging)]
    return [*views, (name, merging)] if options.bare_snapshot and not options.bare_read_optimized else views


def _entry(
    config: TableConfig,
    options: SyncOptions,
    name: str,
    location: str,
    schema: pa.Schema,
    keys: tuple[CatalogColumn, ...],
    fields: tuple[str, ...],
    view: tuple[bool, bool],
) -> CatalogTable:
    merges, read_optimized = view
    columns = hive_columns(schema, timestamps=options.timestamps, comments=options.comments)
    key_names = {key.name for key in keys}
    decoder = {**options.serde_properties, "serialization.format": "1"}
    properties = {**options.properties, "EXTERNAL": "TRUE"}
    if options.for_spark:
        decoder |= {"path": location, "hoodie.query.as.ro.table": str(read_optimized).lower()}
        properties |= _spark_properties(schema, fields, options)
    return CatalogTable(
        database=(options.database or config.database or "default").lower(),
        name=name,
        location=location,
        columns=tuple(column for column in columns if column.name not in key_names),
        partition_keys=keys,
        input_format=_MERGING_FORMAT if merges else _SNAPSHOT_FORMAT,
        output_format=_OUTPUT_FORMAT,
        serde=_SERDE,
        serde_properties=decoder,
        properties=properties,
    )


def _spark_properties(schema: pa.Schema, fields: tuple[str, ...], options: SyncOptions) -> dict[str, str]:
    schema_json, size = spark_schema_json(schema, fields), options.schema_part
    parts = [schema_json[start : start + size] for start in range(0, len(schema_json), size)]
    properties = {"spark.sql.sources.provider": "hudi", f"{OWNED_PREFIX}numParts": str(len(parts))}
    properties |= {f"{OWNED_PREFIX}part.{number}": part for number, part in enumerate(parts)}
    if options.spark_version:
        properties["spark.sql.create.version"] = options.spark_version
    if fields:
        properties[f"{OWNED_PREFIX}numPartCols"] = str(len(fields))
        properties |= {f"{OWNED_PREFIX}partCol.{number}": name for number, name in enumerate(fields)}
    return properties


def _keys(spec: KeySpec, fields: tuple[str, ...], schema: pa.Schema, options: SyncOptions) -> tuple[CatalogColumn, ...]:
    keys = []
    for field in spec.partition_fields if fields else ():
        column = field_at(schema, field.name)
        # Formatted times are texts, whatever their column holds.
        tells = column is not None and field.timestamp is None and options.extractor not in _DIGITS_OF_SLASHED
        hive_name = hive_type(column.type, timestamps=options.timestamps) if column is not None and tells else "string"
        keys.append(CatalogColumn(field.name.lower(), hive_name))
    return tuple(keys)


def _partitions(table_at: TableAt, spec: KeySpec, options: SyncOptions, location: str) -> tuple[CatalogPartition, ...]:
    decodes = spec.url_encode if options.decodes is None else options.decodes
    by_values: dict[tuple[str, ...], CatalogPartition] = {}
    for path in sorted({file_slice.partition for file_slice in table_at.slices()}):
        values = values_in_path(spec, str(path), options.extractor, decodes=decodes)
        partition = CatalogPartition(values, f"{location.rstrip('/')}/{path}")
        if by_values.setdefault(values, partition) is not partition:
            raise InvalidInputError(
                f"the partitions {path!r} and {by_values[values].location!r} have the same values: {', '.join(values)}"
            )
    return tuple(by_values.values())


def values_in_path(spec: KeySpec, path: str, extractor: Extractor | None, *, decodes: bool) -> tuple[str, ...]:
    """Return the values of a partition, one for each partition column.

    Args:
        spec: how paths are made.
        path: of the partition.
        extractor: how values are taken from it; None: as they were put there.
        decodes: whether they are decoded.

    Raises:
        InvalidInputError: the path does not have that form.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> values_in_path(plan_key_spec("id", ["a", "b"]), "a=1/b=x%2Fy", None, decodes=True)
        ('1', 'x/y')
        >>> values_in_path(plan_key_spec("id", "day"), "day=2026/01/31", Extractor.DAY, decodes=False)
        ('2026-01-31',)
    """
    names = [field.name for field in spec.partition_fields]
    if extractor in _DIGITS_OF_SLASHED:
        texts = [part.rpartition("=")[2] for part in path.split("/")]
        digits = tuple(len(text) if text.isdecimal() else 0 for text in texts)
        if len(names) != 1 or digits != _DIGITS_OF_SLASHED[extractor]:
            raise InvalidInputError(f"partition {path[:200]!r} is not of the form that {extractor.value} takes")
        return ("-".join(texts),)
    parts = divide_path(spec, path)
    if parts is None:
        raise InvalidInputError(f"partition {path[:200]!r} does not have a part for each of {', '.join(names)}")
    values = [parts[name].removeprefix(f"{name}=") for name in names]
    return tuple((decode_path_value(value) or value) if decodes else value for value in values)


def _synced(table_at: TableAt) -> dict[str, str]:
    commits = table_at.timeline.commits
    if not commits:
        return {}
    times = [commits[-1].time, max((c.completion for c in commits if c.completion), default=None)]
    return {key: str(time) for key, time in zip(SYNCED, times, strict=True) if time is not None}


# ----------------------------------------------------------- columns in the words of Hive and of Spark


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


def hive_type(data_type: pa.DataType, *, timestamps: bool = True) -> str:
    """Return the name of the Hive type for a stored type.

    Args:
        data_type: as a table stores it.
        timestamps: whether times are ``timestamp``, or the ``bigint`` that they are stored as.

    Raises:
        UnsupportedFeature: Hive has no such type.

    Example:
        >>> hive_type(pa.list_(pa.struct([("a", pa.int32()), ("at", pa.timestamp("us", "UTC"))])))
        'array<struct<a:int,at:timestamp>>'
    """
    if data_type in _HIVE_NAMES:
        return _HIVE_NAMES[data_type]
    if pt.is_timestamp(data_type):
        return "timestamp" if timestamps else "bigint"
    if pt.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pt.is_fixed_size_binary(data_type):
        return "binary"
    if pt.is_list(data_type):
        return f"array<{hive_type(data_type.value_type, timestamps=timestamps)}>"
    if pt.is_map(data_type):
        return f"map<string,{hive_type(data_type.item_type, timestamps=timestamps)}>"
    if pt.is_struct(data_type):
        inner = (f"{field.name}:{hive_type(field.type, timestamps=timestamps)}" for field in struct_fields(data_type))
        return f"struct<{','.join(inner)}>".lower()
    raise UnsupportedFeature(f"a catalog has no type for {data_type}")


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


def _spark_type(data_type: pa.DataType) -> object:
    if pt.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    if pt.is_list(data_type):
        element = data_type.value_field
        return {"type": "array", "elementType": _spark_type(element.type), "containsNull": element.nullable}
    if pt.is_map(data_type):
        item = data_type.item_field
        return {
            "type": "map",
            "keyType": "string",
            "valueType": _spark_type(item.type),
            "valueContainsNull": item.nullable,
        }
    if pt.is_struct(data_type):
        return _spark_struct(struct_fields(data_type))
    name = hive_type(data_type)
    return _SPARK_NAMES.get(name, name)
