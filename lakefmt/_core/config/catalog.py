"""Every setting that lakefmt knows, with its type, default, class and meaning (pure).

The table in docs/settings.md is generated from here; :mod:`lakefmt._core.config.settings` resolves the settings of one call.

Hudi's options of a sync to a catalog come first, as plain rows of a name, the type of its value, the default and the meaning; a
refused option has no type.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from lakefmt._core.data_classes import dataclass

__all__ = [
    "ALL_SETTINGS",
    "Setting",
    "SettingClass",
    "SettingValue",
]

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


SettingValue = str | int | float | bool | None


class SettingClass(enum.Enum):
    """How lakefmt treats a setting."""

    HONOURED = "honoured"
    INERT = "inert"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        parse: converts the text of a value; raises ValueError.
        doc: its meaning, as docs/settings.md shows it.
        minimum: the smallest value, None: no limit.
        choices: the allowed values, empty: any.
        table_key: the table property that it must agree with, for settings that repeat one.
        alias_of: the present name, for an older name of a setting.
    """

    key: str
    parse: Callable[[str], SettingValue]
    default: SettingValue
    doc: str
    kind: SettingClass = SettingClass.HONOURED
    minimum: float | None = None
    choices: tuple[str, ...] = ()
    table_key: str | None = None
    alias_of: str | None = None


def _bool(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return value.lower() == "true"


#: How the values of plain rows are read.
_PARSERS: Final[dict[type, Callable[[str], SettingValue]]] = {bool: _bool, int: int, str: str}


def _honoured(
    key: str,
    parse: Callable[[str], SettingValue],
    default: SettingValue,
    doc: str,
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Setting:
    return Setting(key, parse, default, doc, minimum=minimum, choices=choices)


def _inert(key: str, doc: str) -> Setting:
    return Setting(key, str, None, doc, SettingClass.INERT)


def _refused(key: str, doc: str) -> Setting:
    return Setting(key, str, None, doc, SettingClass.REFUSED)


def _restated(key: str, table_key: str) -> Setting:
    return Setting(key, str, None, f"must agree with the table's `{table_key}`", table_key=table_key)


def _alias(key: str, alias_of: str) -> Setting:
    return Setting(key, str, None, f"older name of `{alias_of}`", alias_of=alias_of)


MIB = 1024 * 1024


def _lock(
    key: str,
    parse: Callable[[str], SettingValue],
    default: SettingValue,
    doc: str,
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Setting:
    return _honoured(f"hoodie.write.lock.{key}", parse, default, doc, minimum, choices)


_LOCKS: Final[tuple[Setting, ...]] = (
    _lock(
        "wait_time_ms_between_retry",
        int,
        None,
        "maximum pause in milliseconds between two attempts to acquire the lock; default: depends on the provider",
        1,
    ),
    _lock(
        "num_retries",
        int,
        None,
        "maximum number of retries within one wait; default: no limit but `hoodie.write.lock.wait_time_ms`",
        0,
    ),
    _lock("client.num_retries", int, 0, "number of times that the whole wait is repeated", 0),
    _lock("client.wait_time_ms_between_retry", int, 5000, "pause in milliseconds between two waits", 0),
    _lock(
        "heartbeat_interval_ms", int, 60000, "interval in milliseconds of the heartbeats of a Hive metastore lock", 10
    ),
    _lock("filesystem.path", str, None, "directory of the lock file; default: the table's `.hoodie`"),
    _lock("filesystem.expire", int, 0, "minutes after which a lock file expires; 0: never", 0),
    _lock(
        "storage.validity.timeout.secs",
        int,
        300,
        "seconds after which the storage-based lock expires unless it is renewed",
        10,
    ),
    _lock("storage.renew.interval.secs", int, 30, "seconds between two renewals, at most a tenth of the validity", 1),
    _alias("hoodie.write.lock.storage.heartbeat.poll.secs", "hoodie.write.lock.storage.renew.interval.secs"),
    _lock("zookeeper.url", str, None, "ZooKeeper hosts, with or without ports, separated by commas"),
    _lock("zookeeper.port", int, 2181, "port of hosts without one", 1),
    _lock("zookeeper.base_path", str, None, "parent node of the locks"),
    _lock("zookeeper.lock_key", str, None, "node of the lock; default: the table's name"),
    _lock(
        "zookeeper.session_timeout_ms",
        int,
        60000,
        "session timeout in milliseconds; after it ZooKeeper releases the lock",
        1,
    ),
    _lock(
        "zookeeper.connection_timeout_ms", int, 15000, "connection timeout in milliseconds, also of a Hive metastore", 1
    ),
    _lock("dynamodb.table", str, None, "DynamoDB table of the locks; created if it is missing"),
    _lock("dynamodb.partition_key", str, None, "partition key of the lock; default: the table's name"),
    _lock("dynamodb.region", str, None, "region of DynamoDB; default: that of the environment, or us-east-1"),
    _lock("dynamodb.endpoint_url", str, None, "URL of a DynamoDB endpoint other than the region's"),
    _lock(
        "dynamodb.billing_mode",
        str,
        "PAY_PER_REQUEST",
        "billing mode of a lock table that lakefmt creates",
        choices=("PAY_PER_REQUEST", "PROVISIONED"),
    ),
    _lock("dynamodb.read_capacity", int, 20, "read capacity of a lock table created with PROVISIONED", 1),
    _lock("dynamodb.write_capacity", int, 10, "write capacity of a lock table created with PROVISIONED", 1),
    _lock("dynamodb.table_creation_timeout", int, 600000, "timeout in milliseconds for creating the lock table", 0),
    _lock("hivemetastore.database", str, None, "Hive database of the table to lock"),
    _lock("hivemetastore.table", str, None, "name of the table to lock in the metastore"),
    _lock(
        "hivemetastore.uris",
        str,
        None,
        "metastore address `thrift://host:port`, or several separated by commas",
    ),
)

ALL_SETTINGS: Final[tuple[Setting, ...]] = (
    _honoured(
        "lakefmt.durability",
        str,
        "fsync",
        "`fsync`: data files and completed instants are on disk when a commit returns; `none`: they are in the page cache",
        choices=("fsync", "none"),
    ),
    _honoured(
        "lakefmt.expression.timezone",
        str,
        "UTC",
        "the time zone in which expression indexes read times: the same as `spark.sql.session.timeZone` of the Spark jobs "
        "that use the table",
    ),
    _honoured(
        "lakefmt.merge.function",
        str,
        None,
        "function that merges records, as `module:function` or a registered name; only the caller can set it, never a "
        "table property",
    ),
    _honoured(
        "lakefmt.unknown.options",
        str,
        "refuse",
        "names that neither lakefmt nor Hudi knows: `refuse`: an error; `warn`: a warning in the result",
        choices=("refuse", "warn"),
    ),
    _honoured(
        "lakefmt.write.threads", int, 0, "number of threads that write files; 0: number of cores, at most 8", minimum=0
    ),
    _honoured(
        "lakefmt.write.open.files",
        int,
        256,
        "files that a bulk insert, or an append of a stream, has open at a time. Rows of more partitions are put in the order of "
        "their partitions first, through temporary files; where later rows are for more, the file that was written to longest ago "
        "is finished, and its partition gets another one. Paimon's `write-max-writers-to-spill`",
        minimum=1,
    ),
    _honoured(
        "lakefmt.merge.source.bytes",
        int,
        2048 * MIB,
        "the most bytes of a merge's source that come as a stream: they are held in memory",
        minimum=1024,
    ),
    _honoured(
        "lakefmt.write.window.bytes",
        int,
        128 * MIB,
        "memory in bytes that a write uses for rows of a stream; more of them wait in temporary files (a row that "
        "is upserted counts a hundred bytes more than it has). Of a table, a frame or a list, which is in memory already, no rows wait. A bulk insert uses up to a quarter more if "
        'the stream ends soon. With `sort="global"`: from 48 MiB up, peak memory stays near this value; sort runs use '
        "(value − 30 MiB) / 8",
        minimum=1024,
    ),
    _honoured(
        "lakefmt.create.types",
        str,
        "spark",
        "column types of new tables. `spark`: `timestamp[ms]` is stored as `timestamp[us]` and `fixed_size_binary` as `binary`, "
        "because Spark cannot upsert the former; no value changes. `exact`: both are stored as they are",
        choices=("spark", "exact"),
    ),
    _honoured(
        "lakefmt.write.null_list_elements",
        str,
        "allow",
        "null elements in lists. `allow`: they are written, with a warning in the result: Spark rewrites such a file only with "
        "`parquet.avro.write-old-list-structure=false` in its Hadoop configuration; `refuse`: the write fails",
        choices=("allow", "refuse"),
    ),
    _honoured(
        "lakefmt.realtime.time.zone",
        str,
        "UTC",
        "the zone of datetimes without one that `lakefmt.realtime` rows set in a TIMESTAMP_LTZ column, such as `Asia/Shanghai`",
    ),
    _honoured(
        "lakefmt.realtime.overlong",
        str,
        "truncate",
        "text that is too long for a CHAR or VARCHAR column of a `lakefmt.realtime` row: `truncate` shortens and counts it, "
        "`refuse` is an error",
        choices=("truncate", "refuse"),
    ),
    _honoured(
        "lakefmt.realtime.json",
        str,
        "any",
        "text of a JSON column of a `lakefmt.realtime` row: `validate` refuses what is not JSON, `any` stores it",
        choices=("any", "validate"),
    ),
    _honoured(
        "lakefmt.realtime.extra.fields",
        str,
        "refuse",
        "fields of a dict that a STRUCT column of a `lakefmt.realtime` row does not have: `refuse` or `ignore`",
        choices=("refuse", "ignore"),
    ),
    _honoured(
        "lakefmt.write.colliding_keys",
        str,
        "refuse",
        "rows of one batch with different key columns and the same record key. They exist because Hudi joins several key "
        "columns without escaping (`x,b:y` in a column before `b`). `refuse`: the write fails; `merge`: one row is written, "
        "as in Hudi",
        choices=("refuse", "merge"),
    ),
    _honoured("hoodie.parquet.max.file.size", int, 120 * MIB, "target size of a base file in bytes", minimum=1024),
    _honoured(
        "hoodie.parquet.small.file.limit",
        int,
        100 * MIB,
        "base files smaller than this number of bytes receive new rows before new files are created; 0: off",
        minimum=0,
    ),
    _honoured(
        "lakefmt.write.small.files",
        str,
        "tiers",
        "which small files take new rows. `tiers`: those that are rewritten anyway, or are small beside the new rows; other "
        "rows open files, and of more than 16 small ones in a partition some are merged in a clustering. `fill`: all, as in "
        "Hudi, so that a small commit rewrites a file. Tables of version 6, with change data or without meta columns always fill",
        choices=("tiers", "fill"),
    ),
    _honoured(
        "hoodie.copyonwrite.record.size.estimate",
        int,
        0,
        "bytes per stored row, used until a commit has written a file; 0: estimated from the batch",
        minimum=0,
    ),
    _honoured(
        "hoodie.parquet.compression.codec",
        lambda text: "none" if text == "uncompressed" else text,  # Arrow calls one otherwise than Parquet
        "zstd",
        "compression codec of base files; `uncompressed` means `none`",
        choices=("zstd", "snappy", "gzip", "none", "uncompressed"),
    ),
    _honoured("lakefmt.parquet.compression.level", int, 1, "compression level, for codecs that have levels", minimum=1),
    _honoured(
        "hoodie.parquet.bloom.filter.enabled",
        _bool,
        True,
        "write a bloom filter into each base file; Spark writers with the bloom index need it",
    ),
    _honoured(
        "hoodie.index.bloom.num_entries",
        int,
        0,
        "number of keys that a bloom filter is sized for; 0: the keys of the file plus one eighth",
        minimum=0,
    ),
    _honoured(
        "hoodie.index.bloom.fpp",
        float,
        1e-9,
        "false positive rate of bloom filters; not given: 1e-6 in filters of more than 16,384 keys",
        minimum=0,
    ),
    _honoured(
        "hoodie.bloom.index.filter.dynamic.max.entries",
        int,
        100000,
        "maximum number of keys of a dynamic bloom filter; it grows up to that",
        minimum=1,
    ),
    _honoured(
        "hoodie.bloom.index.prune.by.ranges", _bool, True, "skip files by their key ranges before reading bloom filters"
    ),
    _honoured(
        "hoodie.bloom.index.use.metadata",
        _bool,
        False,
        "bloom indexes take key ranges and filters from the metadata table (`column_stats`, `bloom_filters`) instead of the "
        "footers of files",
    ),
    _honoured(
        "hoodie.index.class",
        str,
        None,
        "custom index as `module:Class`; only the caller can set it, never a table property",
    ),
    _honoured(
        "lakefmt.index.threads",
        int,
        0,
        "number of files that an index lookup reads in parallel; 0: number of cores for local files, else 16",
        minimum=0,
    ),
    _honoured(
        "hoodie.index.type",
        str,
        None,
        "index of this call; default: the table's. A call or a handle may also name an index of an installed package "
        "([index.md](index.md))",
    ),
    _honoured("lakefmt.index.path", str, None, "path of the data of an index of an installed package"),
    _honoured(
        "hoodie.bucket.index.num.buckets",
        int,
        None,
        "bucket index: buckets of each partition, one file group each; kept in the table's properties when it is created "
        "(256 unless named) and fixed from then on. Tables of other engines do not keep it: name it as it was written with",
        minimum=1,
    ),
    _honoured(
        "hoodie.bucket.index.hash.field",
        str,
        None,
        "bucket index: the record key fields that are hashed; all of them unless named, kept in the table's properties",
    ),
    _honoured(
        "hoodie.bucket.index.partition.expressions",
        str,
        None,
        "bucket index: numbers of buckets by partition, `regex,number;regex,number`; the first regular expression found in "
        "the partition's path counts, without one `hoodie.bucket.index.num.buckets` ([index.md](index.md))",
    ),
    _honoured(
        "hoodie.bucket.index.partition.rule.type",
        str,
        None,
        "bucket index: how `hoodie.bucket.index.partition.expressions` are read",
        choices=("regex",),
    ),
    _honoured(
        "hoodie.bucket.index.min.num.buckets",
        int,
        None,
        "consistent hashing: a partition keeps this many buckets when buckets are merged; default: as many as it begins with",
        minimum=1,
    ),
    _honoured(
        "hoodie.bucket.index.max.num.buckets",
        int,
        None,
        "consistent hashing: a partition gets no more buckets than these; default: as many as it begins with",
        minimum=1,
    ),
    _honoured(
        "hoodie.bucket.index.split.threshold",
        float,
        2.0,
        "consistent hashing: buckets of more than this many times `hoodie.parquet.max.file.size` are split",
        minimum=0,
    ),
    _honoured(
        "hoodie.bucket.index.merge.threshold",
        float,
        0.2,
        "consistent hashing: neighbours of less than this many times `hoodie.parquet.max.file.size` are merged",
        minimum=0,
    ),
    _honoured(
        "hoodie.index.bucket.engine",
        str,
        None,
        "bucket index: `simple`, a fixed number of buckets, or `consistent_hashing`, whose buckets can be split and merged "
        "([index.md](index.md))",
        choices=("simple", "consistent_hashing"),
    ),
    _honoured(
        "hoodie.metadata.enable",
        _bool,
        None,
        "`true` makes a metadata table, or the missing partitions of one; `false` drops an existing one before the write, "
        "as Hudi does; without it one that is there is kept right",
    ),
    _honoured(
        "hoodie.enable.data.skipping",
        _bool,
        True,
        "reads with a filter leave out files by the statistics and indexes of the metadata table",
    ),
    _honoured(
        "hoodie.fileIndex.dataSkippingFailureMode",
        str,
        "fallback",
        "a read that finds them damaged: `fallback` logs a warning and opens all files, `strict` raises",
        choices=("fallback", "strict"),
    ),
    _honoured(
        "hoodie.metadata.index.column.stats.enable",
        _bool,
        True,
        "a metadata table that is made has the statistics of columns, by file and by partition",
    ),
    _honoured(
        "hoodie.metadata.index.column.stats.column.list",
        str,
        None,
        "the columns whose statistics are kept, with commas between them; by default the first ones",
    ),
    _honoured(
        "hoodie.metadata.index.column.stats.max.columns.to.index",
        int,
        32,
        "how many columns that is by default",
        minimum=1,
    ),
    _honoured(
        "hoodie.metadata.index.column.stats.file.group.count",
        int,
        1,
        "how many file groups the partition `column_stats` of a metadata table is made with; a commit writes a log to each of them "
        "(Hudi makes two)",
        minimum=1,
    ),
    _honoured(
        "hoodie.metadata.index.bloom.filter.enable",
        _bool,
        False,
        "a metadata table that is made has the bloom filters of base files",
    ),
    _honoured(
        "hoodie.metadata.global.record.level.index.enable",
        _bool,
        False,
        "a metadata table that is made has an index of all record keys, unique in the table",
    ),
    _alias("hoodie.metadata.record.index.enable", "hoodie.metadata.global.record.level.index.enable"),
    _honoured(
        "hoodie.metadata.record.level.index.enable",
        _bool,
        False,
        "the same for record keys that are unique in their partition",
    ),
    _honoured(
        "hoodie.metadata.global.record.level.index.min.filegroup.count",
        int,
        10,
        "least file groups of a new index of record keys",
        minimum=1,
    ),
    _alias(
        "hoodie.metadata.record.index.min.filegroup.count",
        "hoodie.metadata.global.record.level.index.min.filegroup.count",
    ),
    _honoured(
        "hoodie.metadata.global.record.level.index.max.filegroup.count",
        int,
        10000,
        "most file groups of a new index of record keys",
        minimum=1,
    ),
    _alias(
        "hoodie.metadata.record.index.max.filegroup.count",
        "hoodie.metadata.global.record.level.index.max.filegroup.count",
    ),
    _honoured(
        "hoodie.metadata.compact.max.delta.commits",
        int,
        10,
        "the metadata table is compacted after this many of its deltacommits",
        minimum=1,
    ),
    _inert(
        "hoodie.schema.on.read.enable", "column ids are followed wherever a table has them ([schema.md](schema.md))"
    ),
    _honoured(
        "hoodie.datasource.write.reconcile.schema",
        _bool,
        False,
        "data that lack columns of the table are written with nulls in them ([schema.md](schema.md))",
    ),
    _honoured("hoodie.write.set.null.for.missing.columns", _bool, False, "the same, by Hudi's newer name"),
    _honoured(
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        _bool,
        False,
        "data that lack columns of the table take these out of it ([schema.md](schema.md))",
    ),
    _honoured(
        "hoodie.metadata.log.compaction.enable",
        _bool,
        False,
        "the logs of the metadata table are merged into one between its compactions",
    ),
    _honoured(
        "hoodie.metadata.log.compaction.blocks.threshold",
        int,
        5,
        "number of deltacommits, and of log blocks of a file slice, after which that is done",
        minimum=1,
    ),
    _honoured(
        "hoodie.combine.before.upsert",
        _bool,
        True,
        "combine records with the same key within a batch before an upsert; if not, new files and logs take all of them, a "
        "file that is rewritten one by the table's rule, and a global index that moves keys combines them all the same",
    ),
    _honoured(
        "hoodie.combine.before.insert", _bool, False, "combine them before an insert, a bulk insert or an overwrite"
    ),
    _honoured("hoodie.combine.before.delete", _bool, True, "the same before a delete"),
    _honoured(
        "hoodie.write.lock.provider",
        str,
        None,
        "lock provider: Hudi's class name, with or without its package ([locks.md](locks.md)); default: depends on the "
        "store",
    ),
    _honoured(
        "hoodie.write.meta.key.prefixes",
        str,
        "",
        "how entries of commits begin, with commas between, that every later commit carries on: with "
        "`deltastreamer.checkpoint.key` the commits of other writers keep the place of Hudi Streamer and of `lakefmt ingest`",
    ),
    _honoured(
        "hoodie.write.concurrency.mode",
        str,
        "single_writer",
        "`single_writer`: a second writer is refused while the first is active; `optimistic_concurrency_control`: writers "
        "run concurrently, and a write that conflicts with a completed commit is retried; "
        "`non_blocking_concurrency_control`: writers append logs to the same file groups without conflict, in merge-on-read "
        "tables of version 8 or 9 with a bucket index",
        choices=("single_writer", "optimistic_concurrency_control", "non_blocking_concurrency_control"),
    ),
    _honoured(
        "hoodie.clean.failed.writes.policy",
        str,
        None,
        "failed writes of other writers: `eager` and `lazy` roll them back before a write, `never` leaves them to "
        "`table.rollback`. Default: `eager` with a single writer, else `lazy`; `eager` is refused with several writers",
        choices=("eager", "lazy", "never"),
    ),
    _alias("hoodie.cleaner.policy.failed.writes", "hoodie.clean.failed.writes.policy"),
    _honoured(
        "hoodie.write.num.retries.on.conflict.failures",
        int,
        None,
        "number of retries of a write that conflicts with another one, before `CommitConflict` is raised; a retry starts "
        "with the index lookup. Default: 20 with several writers or services in the background, else 0",
        minimum=0,
    ),
    _honoured(
        "hoodie.write.lock.conflict.resolution.strategy",
        str,
        None,
        "`SimpleConcurrentFileWritesConflictResolutionStrategy`, `PreferWriterConflictResolutionStrategy` or "
        "`BucketIndexConcurrentFileWritesConflictResolutionStrategy`, by Hudi's class name; lakefmt's conflict rules "
        "satisfy all of them, other strategies are refused",
    ),
    _honoured(
        "hoodie.write.concurrency.early.conflict.detection.enable",
        _bool,
        False,
        "check for conflicts with other writers before the files are written, too",
    ),
    _honoured(
        "lakefmt.write.turn.after.conflicts",
        int,
        2,
        "number of conflicts in a row after which a write holds the table lock from its start to its commit, so that it "
        "cannot conflict again ([concurrency.md](concurrency.md)); 0: never",
        minimum=0,
    ),
    _inert(
        "hoodie.write.concurrency.early.conflict.check.commit.conflict",
        "early conflict detection always checks the timeline",
    ),
    _inert(
        "hoodie.write.concurrency.early.conflict.detection.strategy",
        "early conflict detection always uses direct markers",
    ),
    _honoured(
        "lakefmt.write.services.background",
        _bool,
        False,
        "run compaction, log compaction, clean and archive in a thread of this process instead of in the write; the failed "
        "writes policy is then `lazy`, and `eager` is refused",
    ),
    _honoured(
        "lakefmt.write.only",
        _bool,
        False,
        "run no table service: another process, such as `lakefmt services`, does; small files of append tables are left to "
        "it, too",
    ),
    _honoured(
        "hoodie.write.lock.wait_time_ms", int, 60000, "maximum wait for the table lock in milliseconds", minimum=0
    ),
    *_LOCKS,
    _honoured(
        "hoodie.client.heartbeat.interval_in_ms",
        int,
        60000,
        "interval of a writer's heartbeat in milliseconds",
        minimum=10,
    ),
    _honoured(
        "hoodie.client.heartbeat.tolerable.misses",
        int,
        10,
        "number of missed heartbeats after which a writer counts as failed",
        minimum=0,
    ),
    _honoured(
        "hoodie.datasource.write.operation",
        str,
        None,
        "the operation, for callers that pass Spark's options; must agree with the method called",
        choices=(
            "upsert",
            "insert",
            "bulk_insert",
            "delete",
            "insert_overwrite",
            "insert_overwrite_table",
            "delete_partition",
        ),
    ),
    _honoured(
        "hoodie.datasource.write.insert.drop.duplicates",
        _bool,
        False,
        "inserts skip rows whose key is stored already or appears twice",
    ),
    _honoured(
        "hoodie.datasource.write.payload.class",
        str,
        None,
        "`EmptyHoodieRecordPayload` turns an upsert into a delete of its keys; other classes must be the table's",
        choices=("org.apache.hudi.common.model.emptyhoodierecordpayload",),
    ),
    _honoured(
        "hoodie.bloom.index.update.partition.path",
        _bool,
        True,
        "with `global_bloom`: a row whose key is stored in another partition moves to its new partition; `false`: it is "
        "written to the partition of the stored key, with that partition's values",
    ),
    _honoured("hoodie.simple.index.update.partition.path", _bool, True, "the same for `global_simple`"),
    _honoured("hoodie.record.index.update.partition.path", _bool, False, "the same for `record`"),
    _honoured("hoodie.write.commit.callback.on", _bool, False, "send an HTTP POST for each commit"),
    _honoured("hoodie.write.commit.callback.http.url", str, None, "URL of the POST"),
    _honoured("hoodie.write.commit.callback.http.timeout.seconds", int, 5, "timeout of the POST in seconds", minimum=1),
    _honoured(
        "hoodie.write.commit.callback.http.api.key",
        str,
        None,
        "value of the header `HUDI-CALLBACK-KEY`; never stored",
    ),
    _restated("hoodie.table.name", "hoodie.table.name"),
    _restated("hoodie.datasource.write.table.name", "hoodie.table.name"),
    _restated("hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields"),
    _restated("hoodie.datasource.write.partitionpath.field", "hoodie.table.partition.fields"),
    _restated("hoodie.datasource.write.precombine.field", "hoodie.table.precombine.field"),
    _restated("hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.hive_style_partitioning"),
    _restated("hoodie.datasource.write.partitionpath.urlencode", "hoodie.datasource.write.partitionpath.urlencode"),
    _restated("hoodie.datasource.write.table.type", "hoodie.table.type"),
    _restated("hoodie.write.table.version", "hoodie.table.version"),
    _honoured(
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
        _bool,
        None,
        "times in keys and paths are dates (`2016-12-29 09:54:00.0`), not numbers; an error where stored rows say otherwise",
    ),
    _inert("hoodie.write.auto.upgrade", "only `table.upgrade` upgrades a table"),
    _inert("hoodie.embed.timeline.server", "there is no timeline server"),
    _inert("hoodie.write.markers.type", "markers are always direct"),
    _inert("hoodie.upsert.shuffle.parallelism", "there is no shuffle"),
    _inert("hoodie.insert.shuffle.parallelism", "there is no shuffle"),
    _inert("hoodie.bulkinsert.shuffle.parallelism", "there is no shuffle"),
    _inert("hoodie.delete.shuffle.parallelism", "there is no shuffle"),
    _inert("hoodie.bloom.index.parallelism", "there is no shuffle"),
    _honoured("hoodie.datasource.write.keygenerator.class", str, None, "must be the table's key generator, by class"),
    _honoured("hoodie.datasource.write.keygenerator.type", str, None, "must be the table's key generator, by type"),
    _honoured("hoodie.table.keygenerator.class", str, None, "must be the table's key generator, by class"),
    _honoured("hoodie.table.keygenerator.type", str, None, "must be the table's key generator, by type"),
    _inert("hoodie.bloom.index.use.treebased.filter", "ranges are pruned on sorted arrays"),
    _inert("hoodie.bloom.index.bucketized.checking", "there is no shuffle"),
    _inert("hoodie.bloom.index.keys.per.bucket", "there is no shuffle"),
    _inert("hoodie.bloom.index.use.caching", "there is no shuffle"),
    _inert("hoodie.simple.index.use.caching", "there is no shuffle"),
    _inert("hoodie.bloom.index.input.storage.level", "there is no shuffle"),
    _inert("hoodie.bloom.index.fileid.key.sorting.enable", "there is no shuffle"),
    _inert("hoodie.simple.index.parallelism", "there is no shuffle"),
    _inert("hoodie.record.index.use.caching", "there is no shuffle"),
    _inert("hoodie.record.index.input.storage.level", "there is no shuffle"),
    _inert("hoodie.global.simple.index.parallelism", "there is no shuffle"),
    _honoured(
        "hoodie.table.services.enabled",
        _bool,
        True,
        "`false`: commits run and plan no service: no clean, no archiving, no compaction, no clustering, whatever else is said",
    ),
    _honoured("hoodie.clean.automatic", _bool, True, "clean after a commit if file slices have become unneeded"),
    _honoured(
        "hoodie.clean.policy",
        str,
        None,
        "cleaning policy; default: the one whose count is set, else `keep_latest_commits`",
        choices=("keep_latest_commits", "keep_latest_file_versions", "keep_latest_by_hours"),
    ),
    _honoured(
        "hoodie.clean.commits.retained",
        int,
        10,
        "number of latest commits whose states stay readable; archiving leaves one more where this is set",
        minimum=1,
    ),
    _honoured(
        "hoodie.clean.fileversions.retained", int, 3, "number of file slices that stay in each file group", minimum=1
    ),
    _honoured("hoodie.clean.hours.retained", int, 24, "number of hours for which states stay readable", minimum=1),
    _honoured(
        "hoodie.clean.incremental.enabled",
        _bool,
        True,
        "plan from the partitions that changed since the last clean only",
    ),
    _honoured(
        "lakefmt.clean.change.files",
        _bool,
        False,
        "delete all change files (CDC), those of the newest file slices, too: no change before the clean can be read then",
    ),
    _honoured("hoodie.clean.trigger.max.commits", int, 1, "number of commits between two automatic cleans", minimum=1),
    _alias("hoodie.cleaner.policy", "hoodie.clean.policy"),
    _alias("hoodie.cleaner.commits.retained", "hoodie.clean.commits.retained"),
    _alias("hoodie.cleaner.fileversions.retained", "hoodie.clean.fileversions.retained"),
    _alias("hoodie.cleaner.hours.retained", "hoodie.clean.hours.retained"),
    _alias("hoodie.cleaner.incremental.mode", "hoodie.clean.incremental.enabled"),
    _alias("hoodie.clean.max.commits", "hoodie.clean.trigger.max.commits"),
    _inert("hoodie.clean.async.enabled", "use `lakefmt.write.services.background`"),
    _honoured(
        "hoodie.logfile.data.block.format",
        str,
        "avro",
        "format of the data blocks in log files",
        choices=("avro", "parquet"),
    ),
    _honoured(
        "hoodie.write.record.positions",
        _bool,
        True,
        "from version 8 on, log blocks store the positions of the base file's rows that they change, where known",
    ),
    _honoured(
        "hoodie.logfile.data.block.max.size",
        int,
        256 << 20,
        "maximum size of a log block: bytes of its rows in memory",
        minimum=1,
    ),
    _honoured("hoodie.logfile.max.size", int, 1 << 30, "maximum size of a log file in bytes", minimum=1),
    _honoured(
        "hoodie.merge.small.file.group.candidates.limit",
        int,
        1,
        "number of small base files per partition of a merge-on-read table that receive new rows",
        minimum=0,
    ),
    _honoured(
        "hoodie.archive.automatic", _bool, True, "archive after a commit when `hoodie.keep.max.commits` is exceeded"
    ),
    _honoured(
        "hoodie.keep.min.commits",
        int,
        20,
        "number of completed commits that archiving leaves on the active timeline",
        minimum=1,
    ),
    _honoured(
        "hoodie.keep.max.commits", int, 30, "number of completed commits above which archiving starts", minimum=2
    ),
    _refused("hoodie.archive.beyond.savepoint", "commits after a savepoint stay active: a restore needs them"),
    *(
        _honoured(key, _PARSERS[kind], default, doc, choices=SYNC_CHOICES.get(key, ()))
        for key, kind, default, doc in SYNC_HONOURED
    ),
    *(_refused(key, reason) for key, reason in SYNC_REFUSED),
    _honoured("hoodie.clustering.inline", _bool, False, "cluster after a commit when enough commits came"),
    _honoured("hoodie.clustering.schedule.inline", _bool, False, "only schedule that clustering"),
    _honoured(
        "hoodie.clustering.inline.max.commits", int, 4, "number of commits after which a clustering starts", minimum=1
    ),
    _honoured(
        "hoodie.clustering.async.enabled",
        _bool,
        False,
        "with `lakefmt.write.services.background`: a commit plans a clustering, and the thread executes it",
    ),
    _honoured(
        "hoodie.clustering.async.max.commits",
        int,
        4,
        "number of commits after which that clustering is planned",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.class",
        str,
        "SparkSizeBasedClusteringPlanStrategy",
        "which file slices are clustered: Hudi's class name, of any engine",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.small.file.limit",
        int,
        300 << 20,
        "bytes below which a file slice is packed with others; 0: none is",
        minimum=0,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.target.file.max.bytes",
        int,
        1 << 30,
        "bytes at which a clustered file is full",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.max.bytes.per.group",
        int,
        2 << 30,
        "bytes of the file slices that are rewritten together",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.max.num.groups", int, 30, "groups of one clustering; the rest waits", minimum=1
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled",
        _bool,
        True,
        "a group may have one file slice, when its rows get their order",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.sort.columns",
        str,
        None,
        "columns by which clustered rows are ordered, separated by commas",
    ),
    _honoured(
        "hoodie.clustering.plan.partition.filter.mode",
        str,
        "NONE",
        "which partitions are clustered: `NONE` (all), `RECENT_DAYS`, `SELECTED_PARTITIONS` or `DAY_ROLLING`",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.daybased.lookback.partitions",
        int,
        2,
        "number of latest partitions for `RECENT_DAYS`",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions",
        int,
        0,
        "number of latest partitions that `RECENT_DAYS` passes over",
        minimum=0,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.cluster.begin.partition",
        str,
        None,
        "first partition for `SELECTED_PARTITIONS`",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.cluster.end.partition",
        str,
        None,
        "last partition for `SELECTED_PARTITIONS`",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.partition.selected",
        str,
        None,
        "the partitions that are clustered, separated by commas; without it all",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.partition.regex.pattern",
        str,
        None,
        "only partitions that this regular expression matches are clustered",
    ),
    _honoured(
        "hoodie.layout.optimize.strategy",
        str,
        "LINEAR",
        "how rows are ordered by several columns: `LINEAR`, `ZORDER` or `HILBERT`",
    ),
    _honoured(
        "hoodie.layout.optimize.curve.build.method",
        str,
        "sample",
        "`sample`: a value counts by its rank in a sample, so that columns of any scale count alike; `direct`: by its bits",
        choices=("sample", "direct"),
    ),
    _honoured(
        "hoodie.layout.optimize.build.curve.sample.size",
        int,
        200_000,
        "number of rows of that sample, for each group",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.updates.strategy",
        str,
        "SparkRejectUpdateStrategy",
        "a write meets a planned clustering of the same file groups: `SparkRejectUpdateStrategy` refuses the write, "
        "`SparkAllowUpdateStrategy` withdraws the plan unless it is at work, `SparkConsistentBucketDuplicateUpdateStrategy` "
        "writes to the old and to the new buckets of consistent hashing; with or without the package",
    ),
    _inert("hoodie.clustering.rollback.pending.replacecommit.on.conflict", "said by the updates strategy"),
    _inert("hoodie.clustering.execution.strategy.class", "rows are ordered and packed as the plan says"),
    _inert("hoodie.clustering.preserve.commit.metadata", "rows keep their commit times"),
    _honoured("hoodie.compact.inline", _bool, False, "compact after a commit when the trigger strategy says so"),
    _honoured("hoodie.compact.schedule.inline", _bool, False, "only schedule that compaction"),
    _honoured(
        "hoodie.compact.inline.trigger.strategy",
        str,
        "NUM_COMMITS",
        "when a compaction starts: `NUM_COMMITS`, `NUM_COMMITS_AFTER_LAST_REQUEST`, `TIME_ELAPSED`, `NUM_AND_TIME` "
        "or `NUM_OR_TIME`",
    ),
    _honoured(
        "hoodie.compact.inline.max.delta.commits",
        int,
        5,
        "number of deltacommits after which a compaction starts",
        minimum=1,
    ),
    _honoured(
        "hoodie.compact.inline.max.delta.seconds", int, 3600, "seconds after which a compaction starts", minimum=0
    ),
    _honoured(
        "hoodie.compaction.strategy",
        str,
        "LogFileSizeBasedCompactionStrategy",
        "which file slices are compacted, and in which order: Hudi's class name",
    ),
    _honoured(
        "hoodie.compaction.target.io",
        int,
        512000,
        "MiB that bounded strategies may read and write in one compaction",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.logfile.size.threshold",
        int,
        0,
        "minimum bytes of log files of a file slice for LogFileSizeBasedCompactionStrategy",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.logfile.num.threshold",
        int,
        0,
        "minimum number of log files of a file slice for LogFileNumBasedCompactionStrategy",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.daybased.target.partitions",
        int,
        10,
        "number of days that day-based strategies compact",
        minimum=1,
    ),
    _honoured(
        "hoodie.log.compaction.inline",
        _bool,
        False,
        "run a log compaction after a commit when the threshold is reached",
    ),
    _honoured(
        "hoodie.log.compaction.blocks.threshold",
        int,
        5,
        "number of log blocks of a file slice from which a log compaction merges them",
        minimum=1,
    ),
    _inert(
        "hoodie.log.compaction.enable",
        "use `hoodie.log.compaction.inline`, or `hoodie.metadata.log.compaction.enable` for the metadata table",
    ),
    _inert("hoodie.compaction.lazy.block.read", "logs are read whole"),
    _inert("hoodie.compaction.reverse.log.read", "logs are read forwards"),
)
