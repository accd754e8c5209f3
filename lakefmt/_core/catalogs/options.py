"""What a sync does, from Hudi's options (pure)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from lakefmt._core.config.settings import Settings
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnsupportedFeature

__all__ = ["Extractor", "SyncOptions", "catalogs_asked", "parse_sync_options"]

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
    """Return the lines ``a=b`` of a setting."""
    lines = [line.strip() for line in (settings.text(key) or "").split("\n")]
    pairs = [line.partition("=") for line in lines if line]
    if any(not name.strip() or not sign for name, sign, _ in pairs):
        raise InvalidInputError(f"{key} takes lines of the form name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}
