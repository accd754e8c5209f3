"""Hudi's options of a sync to a catalog, as plain rows: ``catalog`` makes settings of them (pure).

A row is a name, the type of its value, the default and the meaning; a refused option has no type.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SYNC_CHOICES", "SYNC_HONOURED", "SYNC_REFUSED"]

_HIVE: Final = "hoodie.datasource.hive_sync."
_GLUE: Final = "hoodie.datasource.meta.sync.glue."

#: Name, type, default, meaning.
SYNC_HONOURED: Final[tuple[tuple[str, type, bool | int | str | None, str], ...]] = (
    (f"{_HIVE}enable", bool, False, "sync the table's entry in a catalog after each commit"),
    ("hoodie.datasource.meta.sync.enable", bool, False, "the same as `hoodie.datasource.hive_sync.enable`"),
    (
        "hoodie.meta.sync.client.tool.class",
        str,
        "org.apache.hudi.hive.HiveSyncTool",
        "which catalog: `HiveSyncTool`, `AwsGlueCatalogSyncTool`, or both with a comma, with their package",
    ),
    (f"{_HIVE}mode", str, "hms", "how a Hive metastore is spoken to: by itself"),
    (
        f"{_HIVE}metastore.uris",
        str,
        "thrift://localhost:9083",
        "the addresses of the Hive metastore, with commas between",
    ),
    (f"{_HIVE}database", str, None, "the database of the entry; default: the table's, or `default`"),
    (f"{_HIVE}table", str, None, "the name of the entry; default: the table's"),
    (f"{_HIVE}auto_create_database", bool, True, "make the database if it is missing"),
    (f"{_HIVE}partition_fields", str, None, "the partition columns: must be those of the table"),
    (
        f"{_HIVE}partition_extractor_class",
        str,
        None,
        "how a partition path becomes values, by Hudi's class; default: as the table makes its paths",
    ),
    (f"{_HIVE}skip_ro_suffix", bool, False, "the read-optimised entry of a merge-on-read table has the bare name"),
    (f"{_HIVE}table.strategy", str, "all", "which entries a merge-on-read table has"),
    (f"{_HIVE}support_timestamp", bool, True, "columns of times are `timestamp` in Hive; else `bigint`"),
    (f"{_HIVE}omit_metadata_fields", bool, False, "leave out the five `_hoodie_` columns"),
    (f"{_HIVE}sync_comment", bool, False, "take the comments of columns along"),
    (f"{_HIVE}sync_as_datasource", bool, True, "write what Spark reads the entry by as a Hudi table"),
    (f"{_HIVE}schema_string_length_thresh", int, 4000, "characters of each part of Spark's schema"),
    (f"{_HIVE}table_properties", str, None, "further properties of the entry, `a=b` on lines of their own"),
    (f"{_HIVE}serde_properties", str, None, "further properties of its decoder, likewise"),
    (f"{_HIVE}batch_num", int, 1000, "partitions of one request"),
    ("hoodie.datasource.meta.sync.base.path", str, None, "the table's location as readers of the catalog name it"),
    (
        "hoodie.datasource.meta_sync.condition.sync",
        bool,
        False,
        "leave an entry alone in which only times would change",
    ),
    (
        "hoodie.meta.sync.decode_partition",
        bool,
        None,
        "decode values of partitions; default: where the table encodes them",
    ),
    (
        "hoodie.meta.sync.sync_snapshot_with_table_name",
        bool,
        True,
        "a merge-on-read table has an entry without suffix, too, which reads its newest rows",
    ),
    ("hoodie.meta_sync.spark.version", str, None, "the release of Spark that the entry names as its maker"),
    (f"{_GLUE}database_name", str, None, "the database in Glue; default: `hoodie.datasource.hive_sync.database`"),
    (f"{_GLUE}table_name", str, None, "the name in Glue; default: `hoodie.datasource.hive_sync.table`"),
    (f"{_GLUE}catalogId", str, None, "the account whose Glue catalog is meant; default: that of the credentials"),
    (f"{_GLUE}skip_table_archive", bool, True, "Glue keeps no older version of an entry that is changed"),
    (f"{_GLUE}metadata_file_listing", bool, False, "readers of the entry list files by the metadata table"),
)
#: The values that some of them take.
SYNC_CHOICES: Final = {f"{_HIVE}mode": ("hms",), f"{_HIVE}table.strategy": ("all", "ro", "rt")}
#: What is refused, with the reason; ``false`` asks for nothing.
SYNC_REFUSED: Final = (
    (f"{_HIVE}create_managed_table", "DROP TABLE would delete the table's files: entries are external"),
    (f"{_HIVE}bucket_sync", "Hive's buckets are others than Hudi's"),
    (f"{_HIVE}use_pre_apache_input_format", "there is no such class any more"),
    (f"{_HIVE}assume_date_partitioning", "the table tells how its partition paths are made"),
)
