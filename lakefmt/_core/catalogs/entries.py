"""The protocol of a catalog, and what a catalog must say of a table, from the table at one moment and Hudi's options (pure).

Its entries, their partitions, and its columns in the words of Hive and Spark.

Hive, Glue and a catalog of your own follow the protocol; a catalog in memory is here.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
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
    "CatalogColumn",
    "CatalogPartition",
    "CatalogTable",
    "Extractor",
    "MemoryCatalog",
    "Metastore",
    "SyncOptions",
    "TableEntries",
    "catalogs_asked",
    "hive_columns",
    "hive_type",
    "parse_sync_options",
    "request_batches",
    "spark_schema_json",
    "table_entries",
    "values_in_path",
]

_HIVE: Final = "hoodie.datasource.hive_sync."
_GLUE: Final = "hoodie.datasource.meta.sync.glue."
_TOOLS: Final = {"HiveSyncTool": "hive", "AwsGlueCatalogSyncTool": "glue", "AWSGlueCatalogSyncTool": "glue"}


class Extractor(enum.Enum):
    """How a partition path becomes values; the value is the end of Hudi's class name."""

    PARTS = "MultiPartKeysValueExtractor"
    WHOLE = "SinglePartPartitionValueExtractor"
    HIVE_STYLE = "HiveStylePartitionValueExtractor"
    DAY = "SlashEncodedDayPartitionValueExtractor"
    HOUR = "SlashEncodedHourPartitionValueExtractor"
    NONE = "NonPartitionedExtractor"


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """One sync.

    Attributes:
        database: where the entries are; None: in the table's database.
        table: their name; None: the table's.
        location: of the table, as the catalog's readers name it; None: as it was opened.
        creates_database: a missing database is made.
        partition_fields: the partition columns that were given; None: none were.
        extractor: how paths become values; None: as the table makes its paths.
        decodes: values are decoded; None: where the table encodes them.
        strategy: ``all``, ``ro`` or ``rt``: which entries a merge-on-read table has.
        bare_read_optimized: the read-optimised entry has no suffix.
        bare_snapshot: there is an entry without suffix that reads the newest rows.
        timestamps: times are Hive's ``timestamp``.
        meta_columns: the entry has the meta columns.
        comments: comments are taken along.
        for_spark: the entry says how Spark reads it.
        schema_part: characters of each part of Spark's schema.
        spark_version: the release of Spark that is named as maker.
        properties: further properties.
        serde_properties: further properties of the decoder.
        only_changes: an entry in which only times would change is left alone.
        batch: partitions of one request.
        glue_listing: the text that Glue's readers take for listing by the metadata table.
    """

    database: str | None
    table: str | None
    location: str | None
    creates_database: bool
    partition_fields: tuple[str, ...] | None
    extractor: Extractor | None
    decodes: bool | None
    strategy: str
    bare_read_optimized: bool
    bare_snapshot: bool
    timestamps: bool
    meta_columns: bool
    comments: bool
    for_spark: bool
    schema_part: int
    spark_version: str | None
    properties: Mapping[str, str]
    serde_properties: Mapping[str, str]
    only_changes: bool
    batch: int
    glue_listing: str


def catalogs_asked(settings: Settings) -> tuple[str, ...]:
    """Return the addresses of the catalogs that the settings name.

    Raises:
        UnsupportedFeature: a class that is no catalog of lakefmt.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> catalogs_asked(resolve_settings({}))
        ('thrift://localhost:9083',)
    """
    addresses = []
    for tool in (settings.text("hoodie.meta.sync.client.tool.class") or "").split(","):
        catalog_type = _TOOLS.get(tool.strip().rpartition(".")[2])
        if catalog_type is None:
            raise UnsupportedFeature(
                f"hoodie.meta.sync.client.tool.class={tool.strip()[:200]} is not supported: {', '.join(sorted({*_TOOLS}))} are"
            )
        account = settings.text(f"{_GLUE}catalogId")
        glue = "glue:" if account is None else f"glue://{account}@"
        addresses.append(glue if catalog_type == "glue" else settings.text(f"{_HIVE}metastore.uris") or "")
    return tuple(dict.fromkeys(addresses))


def parse_sync_options(settings: Settings, *, glue: bool = False) -> SyncOptions:
    """Return what a sync does.

    Args:
        settings: of the call.
        glue: whether it goes to Glue, which has options of its own for names.

    Raises:
        InvalidInputError: a value is none of those that its option takes.
        UnsupportedFeature: a class that lakefmt does not have.
    """
    database, table = settings.text(f"{_HIVE}database"), settings.text(f"{_HIVE}table")
    if glue:
        database = settings.text(f"{_GLUE}database_name") or database
        table = settings.text(f"{_GLUE}table_name") or table
    fields = settings.text(f"{_HIVE}partition_fields")
    part, batch = settings.integer(f"{_HIVE}schema_string_length_thresh"), settings.integer(f"{_HIVE}batch_num")
    if part < 1 or batch < 1:
        raise InvalidInputError(f"{_HIVE}schema_string_length_thresh and {_HIVE}batch_num are 1 or more")
    decodes = settings.values["hoodie.meta.sync.decode_partition"]
    return SyncOptions(
        database=database,
        table=table,
        location=settings.text("hoodie.datasource.meta.sync.base.path") or None,
        creates_database=settings.flag(f"{_HIVE}auto_create_database"),
        partition_fields=None if not fields else tuple(name.strip() for name in fields.split(",")),
        extractor=_extractor(settings.text(f"{_HIVE}partition_extractor_class")),
        decodes=None if decodes is None else bool(decodes),
        strategy=settings.text(f"{_HIVE}table.strategy") or "all",
        bare_read_optimized=settings.flag(f"{_HIVE}skip_ro_suffix"),
        bare_snapshot=settings.flag("hoodie.meta.sync.sync_snapshot_with_table_name"),
        timestamps=settings.flag(f"{_HIVE}support_timestamp"),
        meta_columns=not settings.flag(f"{_HIVE}omit_metadata_fields"),
        comments=settings.flag(f"{_HIVE}sync_comment"),
        for_spark=settings.flag(f"{_HIVE}sync_as_datasource"),
        schema_part=part,
        spark_version=settings.text("hoodie.meta_sync.spark.version") or None,
        properties=_pairs(settings, f"{_HIVE}table_properties"),
        serde_properties=_pairs(settings, f"{_HIVE}serde_properties"),
        only_changes=settings.flag("hoodie.datasource.meta_sync.condition.sync"),
        batch=batch,
        glue_listing=str(settings.flag(f"{_GLUE}metadata_file_listing")).lower(),
    )


def _extractor(class_name: str | None) -> Extractor | None:
    if not class_name:
        return None
    end = class_name.rpartition(".")[2]
    extractor = next((each for each in Extractor if each.value == end), None)
    if extractor is None:
        known = ", ".join(each.value for each in Extractor)
        raise UnsupportedFeature(f"{_HIVE}partition_extractor_class={class_name[:200]} is not supported: {known} are")
    return extractor


def _pairs(settings: Settings, key: str) -> dict[str, str]:
    """Parse a setting of ``name=value`` lines."""
    lines = [line.strip() for line in (settings.text(key) or "").split("\n")]
    pairs = [line.partition("=") for line in lines if line]
    if any(not name.strip() or not sign for name, sign, _ in pairs):
        raise InvalidInputError(f"{key} takes lines of the form name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


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
    for part in spec.partition_fields if fields else ():
        column = field_at(schema, part.name)
        # Formatted times are texts, whatever their column holds.
        tells = column is not None and part.timestamp is None and options.extractor not in _DIGITS_OF_SLASHED
        hive_name = hive_type(column.type, timestamps=options.timestamps) if column is not None and tells else "string"
        keys.append(CatalogColumn(part.name.lower(), hive_name))
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


T = TypeVar("T")


def request_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield up to `size` items at a time: a catalog takes only so many in one request."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column as a catalog knows it.

    Attributes:
        name: in small letters.
        data_type: in Hive's words, such as ``map<string,int>``.
        comment: empty when there is none.
    """

    name: str
    data_type: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The entry of a table.

    Attributes:
        database: its database.
        name: its name.
        location: the folder or URL of the table.
        columns: those that are no partition keys.
        partition_keys: the columns that partitions are told apart by.
        input_format: the Java class by which Hive reads it; ``output_format``: writes it; ``serde``: decodes rows.
        serde_properties: properties of the decoder.
        properties: properties of the table.
        is_external: whether the catalog leaves the files alone when the entry is dropped.
        record: what the catalog itself keeps of the entry; it is handed back with a change.
    """

    database: str
    name: str
    location: str
    columns: tuple[CatalogColumn, ...]
    partition_keys: tuple[CatalogColumn, ...] = ()
    input_format: str = ""
    output_format: str = ""
    serde: str = ""
    serde_properties: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    is_external: bool = True
    record: object = None


@dataclass(frozen=True, slots=True)
class CatalogPartition:
    """The entry of a partition.

    Attributes:
        values: one text for each partition key.
        location: its folder or URL.
        columns: of the entry, where the catalog keeps them for each partition.
        input_format: the Java class by which Hive reads it.
        record: what the catalog itself keeps of the entry; it is handed back with a change.
    """

    values: tuple[str, ...]
    location: str
    columns: tuple[CatalogColumn, ...] = ()
    input_format: str = ""
    record: object = None


class Metastore(Protocol):
    """A catalog. Everything may raise StorageError; a request that failed may have taken effect all the same."""

    @property
    def what(self) -> str:
        """The catalog, for people."""
        ...

    def has_database(self, database: str) -> bool:
        """Return whether there is such a database."""
        ...

    def create_database(self, database: str) -> None:
        """Make a database; one that is there already is fine."""
        ...

    def load_table(self, database: str, name: str) -> CatalogTable | None:
        """Return an entry; None: there is none."""
        ...

    def create_table(self, table: CatalogTable) -> None:
        """Make an entry; one of that name that is there already stays as it is."""
        ...

    def replace_table(self, table: CatalogTable) -> None:
        """Put an entry in the place of the one that was loaded, with all of its record that is not said here."""
        ...

    def list_tables(self, database: str | None = None) -> list[CatalogTable]:
        """Return the entries of a database; None: of all."""
        ...

    def list_partitions(self, table: CatalogTable) -> list[CatalogPartition]:
        """Return the partitions of an entry."""
        ...

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions with the columns of the entry; those that are there already stay as they are."""
        ...

    def replace_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Give partitions, as they were listed but for their location, that location and the columns of the entry."""
        ...

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Remove the entries of partitions, never files; those that are gone are fine."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


# --------------------------------------------------------------------------------- a catalog in memory


class MemoryCatalog:
    """Databases, entries and partitions as dictionaries.

    Example:
        >>> catalog = MemoryCatalog()
        >>> catalog.create_database("trips")
        >>> catalog.has_database("trips"), catalog.list_tables()
        (True, [])
    """

    what = "a catalog in memory"

    def __init__(self) -> None:
        self._databases: dict[str, dict[str, CatalogTable]] = {}
        self._partitions: dict[tuple[str, str], dict[tuple[str, ...], CatalogPartition]] = {}

    def has_database(self, database: str) -> bool:
        """Return whether there is such a database."""
        return database in self._databases

    def create_database(self, database: str) -> None:
        """Make a database."""
        self._databases.setdefault(database, {})

    def load_table(self, database: str, name: str) -> CatalogTable | None:
        """Return an entry."""
        return self._databases.get(database, {}).get(name)

    def create_table(self, table: CatalogTable) -> None:
        """Make an entry."""
        self._databases[table.database].setdefault(table.name, table)

    def replace_table(self, table: CatalogTable) -> None:
        """Replace the stored entry."""
        self._databases[table.database][table.name] = table

    def list_tables(self, database: str | None = None) -> list[CatalogTable]:
        """Return the entries of a database; None: of all."""
        databases = self._databases if database is None else {database: self._databases.get(database, {})}
        return [table for tables in databases.values() for table in tables.values()]

    def list_partitions(self, table: CatalogTable) -> list[CatalogPartition]:
        """Return the partitions of an entry."""
        return [*self._of(table).values()]

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions."""
        for partition in partitions:
            self._of(table).setdefault(partition.values, _with_columns(table, partition))

    def replace_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Change partitions."""
        self._of(table).update({each.values: _with_columns(table, each) for each in partitions})

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Remove partitions."""
        for partition in partitions:
            self._of(table).pop(partition.values, None)

    def close(self) -> None:
        """Do nothing: a catalog in memory has no connection."""

    def _of(self, table: CatalogTable) -> dict[tuple[str, ...], CatalogPartition]:
        return self._partitions.setdefault((table.database, table.name), {})


def _with_columns(table: CatalogTable, partition: CatalogPartition) -> CatalogPartition:
    return replace(partition, columns=table.columns, input_format=table.input_format)
