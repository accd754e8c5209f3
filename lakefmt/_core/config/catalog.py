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
        "catalog: `HiveSyncTool`, `AwsGlueCatalogSyncTool`, or both separated by a comma, with package",
    ),
    (f"{_HIVE}mode", str, "hms", "protocol of the metastore"),
    (
        f"{_HIVE}metastore.uris",
        str,
        "thrift://localhost:9083",
        "addresses of the Hive metastore, comma-separated",
    ),
    (f"{_HIVE}database", str, None, "database of the entry; default: the table's, or `default`"),
    (f"{_HIVE}table", str, None, "name of the entry; default: the table's"),
    (f"{_HIVE}auto_create_database", bool, True, "create a missing database"),
    (f"{_HIVE}partition_fields", str, None, "must be the table's partition columns"),
    (
        f"{_HIVE}partition_extractor_class",
        str,
        None,
        "Hudi's class that turns paths into values; default: by the table's key generator",
    ),
    (f"{_HIVE}skip_ro_suffix", bool, False, "the read-optimised entry has the plain name"),
    (f"{_HIVE}table.strategy", str, "all", "entries of a merge-on-read table"),
    (f"{_HIVE}support_timestamp", bool, True, "times are `timestamp` in Hive, else `bigint`"),
    (f"{_HIVE}omit_metadata_fields", bool, False, "leave out the meta columns"),
    (f"{_HIVE}sync_comment", bool, False, "sync column comments"),
    (f"{_HIVE}sync_as_datasource", bool, True, "add properties that make Spark read it as a Hudi table"),
    (f"{_HIVE}schema_string_length_thresh", int, 4000, "characters per part of Spark's schema"),
    (f"{_HIVE}table_properties", str, None, "further properties, one `a=b` per line"),
    (f"{_HIVE}serde_properties", str, None, "further serde properties, likewise"),
    (f"{_HIVE}batch_num", int, 1000, "partitions per request"),
    ("hoodie.datasource.meta.sync.base.path", str, None, "table location to store in the catalog"),
    (
        "hoodie.datasource.meta_sync.condition.sync",
        bool,
        False,
        "skip an update that changes times only",
    ),
    (
        "hoodie.meta.sync.decode_partition",
        bool,
        None,
        "decode partition values; default: if the table encodes them",
    ),
    (
        "hoodie.meta.sync.sync_snapshot_with_table_name",
        bool,
        True,
        "a merge-on-read table also has an entry without suffix, for snapshots",
    ),
    ("hoodie.meta_sync.spark.version", str, None, "Spark release that the entry names"),
    (f"{_GLUE}database_name", str, None, "the database in Glue; default: `hoodie.datasource.hive_sync.database`"),
    (f"{_GLUE}table_name", str, None, "the name in Glue; default: `hoodie.datasource.hive_sync.table`"),
    (f"{_GLUE}catalogId", str, None, "account of the Glue catalog; default: that of the credentials"),
    (f"{_GLUE}skip_table_archive", bool, True, "do not keep older versions of an entry"),
    (f"{_GLUE}metadata_file_listing", bool, False, "readers list files by the metadata table"),
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
        "longest pause between attempts, ms; default: by provider",
        1,
    ),
    _lock(
        "num_retries",
        int,
        None,
        "retries within one wait; default: until `hoodie.write.lock.wait_time_ms`",
        0,
    ),
    _lock("client.num_retries", int, 0, "repetitions of the whole wait", 0),
    _lock("client.wait_time_ms_between_retry", int, 5000, "pause between waits, ms", 0),
    _lock("heartbeat_interval_ms", int, 60000, "heartbeat of a Hive metastore lock, ms", 10),
    _lock("filesystem.path", str, None, "directory of the lock file; default: the table's `.hoodie`"),
    _lock("filesystem.expire", int, 0, "minutes after which a lock file expires; 0: never", 0),
    _lock(
        "storage.validity.timeout.secs",
        int,
        300,
        "seconds until a storage-based lock expires without renewal",
        10,
    ),
    _lock("storage.renew.interval.secs", int, 30, "seconds between renewals, at most a tenth of the validity", 1),
    _alias("hoodie.write.lock.storage.heartbeat.poll.secs", "hoodie.write.lock.storage.renew.interval.secs"),
    _lock("zookeeper.url", str, None, "ZooKeeper hosts, comma-separated, with optional ports"),
    _lock("zookeeper.port", int, 2181, "port of hosts without one", 1),
    _lock("zookeeper.base_path", str, None, "parent node of the locks"),
    _lock("zookeeper.lock_key", str, None, "node of the lock; default: the table's name"),
    _lock(
        "zookeeper.session_timeout_ms",
        int,
        60000,
        "session timeout, ms, after which the lock is released",
        1,
    ),
    _lock("zookeeper.connection_timeout_ms", int, 15000, "connection timeout, ms, also of a Hive metastore", 1),
    _lock("dynamodb.table", str, None, "DynamoDB table of locks, created if missing"),
    _lock("dynamodb.partition_key", str, None, "partition key of the lock; default: the table's name"),
    _lock("dynamodb.region", str, None, "region; default: from the environment, or us-east-1"),
    _lock("dynamodb.endpoint_url", str, None, "URL of another DynamoDB endpoint"),
    _lock(
        "dynamodb.billing_mode",
        str,
        "PAY_PER_REQUEST",
        "billing mode of a new lock table",
        choices=("PAY_PER_REQUEST", "PROVISIONED"),
    ),
    _lock("dynamodb.read_capacity", int, 20, "read capacity for PROVISIONED", 1),
    _lock("dynamodb.write_capacity", int, 10, "write capacity for PROVISIONED", 1),
    _lock("dynamodb.table_creation_timeout", int, 600000, "timeout for creating the lock table, ms", 0),
    _lock("hivemetastore.database", str, None, "Hive database of the table to lock"),
    _lock("hivemetastore.table", str, None, "table to lock in the metastore"),
    _lock(
        "hivemetastore.uris",
        str,
        None,
        "metastore addresses `thrift://host:port`, comma-separated",
    ),
)

ALL_SETTINGS: Final[tuple[Setting, ...]] = (
    _honoured(
        "lakefmt.durability",
        str,
        "fsync",
        "`fsync`: files are on disk when a commit returns; `none`: in the page cache",
        choices=("fsync", "none"),
    ),
    _honoured(
        "lakefmt.expression.timezone",
        str,
        "UTC",
        "time zone of expression indexes: the `spark.sql.session.timeZone` of the table's Spark jobs",
    ),
    _honoured(
        "lakefmt.merge.function",
        str,
        None,
        "merge function, `module:function` or a registered name; never a table property",
    ),
    _honoured(
        "lakefmt.unknown.options",
        str,
        "refuse",
        "unknown names: an error, or a warning in the result",
        choices=("refuse", "warn"),
    ),
    _honoured("lakefmt.write.threads", int, 0, "threads that write files; 0: cores, at most 8", minimum=0),
    _honoured(
        "lakefmt.write.open.files",
        int,
        256,
        "files that a bulk insert or an append of a stream has open. With more partitions, rows are first sorted by partition on disk, or the least recently written file is closed. Paimon's `write-max-writers-to-spill`",
        minimum=1,
    ),
    _honoured(
        "lakefmt.merge.source.bytes",
        int,
        2048 * MIB,
        "largest streamed source of a merge: it is held in memory",
        minimum=1024,
    ),
    _honoured(
        "lakefmt.write.window.bytes",
        int,
        128 * MIB,
        'bytes of memory for rows of a stream; more wait in temporary files (an upserted row counts 100 bytes more). Data already in memory does not wait. With `sort="global"` (from 48 MiB) it bounds peak memory',
        minimum=1024,
    ),
    _honoured(
        "lakefmt.create.types",
        str,
        "spark",
        "types of new tables. `spark`: store `timestamp[ms]` as `timestamp[us]` and `fixed_size_binary` as `binary`, because Spark cannot upsert them; `exact`: store both as they are",
        choices=("spark", "exact"),
    ),
    _honoured(
        "lakefmt.write.null_list_elements",
        str,
        "allow",
        "null elements in lists: write with a warning (Spark rewrites such files only with `parquet.avro.write-old-list-structure=false`), or fail",
        choices=("allow", "refuse"),
    ),
    _honoured(
        "lakefmt.realtime.time.zone",
        str,
        "UTC",
        "zone of datetimes without one in TIMESTAMP_LTZ columns of `lakefmt.realtime`",
    ),
    _honoured(
        "lakefmt.realtime.overlong",
        str,
        "truncate",
        "text too long for a CHAR or VARCHAR column of `lakefmt.realtime`: shorten and count it, or fail",
        choices=("truncate", "refuse"),
    ),
    _honoured(
        "lakefmt.realtime.json",
        str,
        "any",
        "JSON columns of `lakefmt.realtime`: `validate` refuses invalid JSON",
        choices=("any", "validate"),
    ),
    _honoured(
        "lakefmt.realtime.extra.fields",
        str,
        "refuse",
        "dict fields that a STRUCT column of `lakefmt.realtime` does not have",
        choices=("refuse", "ignore"),
    ),
    _honoured(
        "lakefmt.write.colliding_keys",
        str,
        "refuse",
        "rows of a batch with different key columns but one record key (Hudi joins key columns without escaping): fail, or write one row as Hudi does",
        choices=("refuse", "merge"),
    ),
    _honoured("hoodie.parquet.max.file.size", int, 120 * MIB, "target size of a base file in bytes", minimum=1024),
    _honoured(
        "hoodie.parquet.small.file.limit",
        int,
        100 * MIB,
        "base files below this size receive new rows; 0: off",
        minimum=0,
    ),
    _honoured(
        "lakefmt.write.small.files",
        str,
        "tiers",
        "small files that take new rows. `tiers`: those rewritten anyway or small beside the new rows; of more than 16 in a partition some are merged. `fill`: all, as in Hudi; always in tables of version 6, with change data or without meta columns",
        choices=("tiers", "fill"),
    ),
    _honoured(
        "hoodie.copyonwrite.record.size.estimate",
        int,
        0,
        "bytes per row before the first commit; 0: estimated",
        minimum=0,
    ),
    _honoured(
        "hoodie.parquet.compression.codec",
        lambda text: "none" if text == "uncompressed" else text,  # Arrow calls one otherwise than Parquet
        "zstd",
        "codec of base files; `uncompressed` is `none`",
        choices=("zstd", "snappy", "gzip", "none", "uncompressed"),
    ),
    _honoured("lakefmt.parquet.compression.level", int, 1, "compression level, if the codec has levels", minimum=1),
    _honoured(
        "hoodie.parquet.bloom.filter.enabled",
        _bool,
        True,
        "bloom filters in base files; Spark's bloom index needs them",
    ),
    _honoured(
        "hoodie.index.bloom.num_entries",
        int,
        0,
        "keys that a bloom filter is sized for; 0: the file's keys plus an eighth",
        minimum=0,
    ),
    _honoured(
        "hoodie.index.bloom.fpp",
        float,
        1e-9,
        "false positive rate; unless given, 1e-6 above 16,384 keys",
        minimum=0,
    ),
    _honoured(
        "hoodie.bloom.index.filter.dynamic.max.entries",
        int,
        100000,
        "keys up to which a dynamic bloom filter grows",
        minimum=1,
    ),
    _honoured(
        "hoodie.bloom.index.prune.by.ranges", _bool, True, "skip files by their key ranges before reading bloom filters"
    ),
    _honoured(
        "hoodie.bloom.index.use.metadata",
        _bool,
        False,
        "read key ranges and filters from the metadata table instead of footers",
    ),
    _honoured(
        "hoodie.index.class",
        str,
        None,
        "index of your own, `module:Class`; never a table property",
    ),
    _honoured(
        "lakefmt.index.threads",
        int,
        0,
        "files that a lookup reads in parallel; 0: cores for local files, else 16",
        minimum=0,
    ),
    _honoured(
        "hoodie.index.type",
        str,
        None,
        "index of the call; default: the table's. Also an index of an installed package ([index.md](index.md))",
    ),
    _honoured("lakefmt.index.path", str, None, "data path of such an index"),
    _honoured(
        "hoodie.bucket.index.num.buckets",
        int,
        None,
        "buckets of each partition; fixed at creation (256 unless given). For tables of other engines, give what they were written with",
        minimum=1,
    ),
    _honoured(
        "hoodie.bucket.index.hash.field",
        str,
        None,
        "record key fields that are hashed; default: all; fixed at creation",
    ),
    _honoured(
        "hoodie.bucket.index.partition.expressions",
        str,
        None,
        "numbers of buckets by partition, `regex,number;regex,number`: the first that is found in the path ([index.md](index.md))",
    ),
    _honoured(
        "hoodie.bucket.index.partition.rule.type",
        str,
        None,
        "how `hoodie.bucket.index.partition.expressions` are read",
        choices=("regex",),
    ),
    _honoured(
        "hoodie.bucket.index.min.num.buckets",
        int,
        None,
        "consistent hashing: fewest buckets of a partition; default: the initial number",
        minimum=1,
    ),
    _honoured(
        "hoodie.bucket.index.max.num.buckets",
        int,
        None,
        "consistent hashing: most buckets of a partition; default: the initial number",
        minimum=1,
    ),
    _honoured(
        "hoodie.bucket.index.split.threshold",
        float,
        2.0,
        "consistent hashing: split buckets above this many times `hoodie.parquet.max.file.size`",
        minimum=0,
    ),
    _honoured(
        "hoodie.bucket.index.merge.threshold",
        float,
        0.2,
        "consistent hashing: merge neighbours below this many times `hoodie.parquet.max.file.size`",
        minimum=0,
    ),
    _honoured(
        "hoodie.index.bucket.engine",
        str,
        None,
        "fixed buckets, or buckets that can be split and merged ([index.md](index.md))",
        choices=("simple", "consistent_hashing"),
    ),
    _honoured(
        "hoodie.metadata.enable",
        _bool,
        None,
        "`true`: create the metadata table or its missing partitions; `false`: drop it, as Hudi does; not set: maintain an existing one",
    ),
    _honoured(
        "hoodie.enable.data.skipping",
        _bool,
        True,
        "filtered reads skip files by the metadata table",
    ),
    _honoured(
        "hoodie.fileIndex.dataSkippingFailureMode",
        str,
        "fallback",
        "if it is damaged: open all files with a warning, or raise",
        choices=("fallback", "strict"),
    ),
    _honoured(
        "hoodie.metadata.index.column.stats.enable",
        _bool,
        True,
        "a new metadata table has column statistics, by file and partition",
    ),
    _honoured(
        "hoodie.metadata.index.column.stats.column.list",
        str,
        None,
        "columns with statistics, comma-separated; default: the first ones",
    ),
    _honoured(
        "hoodie.metadata.index.column.stats.max.columns.to.index",
        int,
        32,
        "number of those first columns",
        minimum=1,
    ),
    _honoured(
        "hoodie.metadata.index.column.stats.file.group.count",
        int,
        1,
        "file groups of a new partition `column_stats` (Hudi: 2); a commit writes a log to each",
        minimum=1,
    ),
    _honoured(
        "hoodie.metadata.index.bloom.filter.enable",
        _bool,
        False,
        "a new metadata table has the bloom filters of base files",
    ),
    _honoured(
        "hoodie.metadata.global.record.level.index.enable",
        _bool,
        False,
        "a new metadata table has an index of record keys, unique in the table",
    ),
    _alias("hoodie.metadata.record.index.enable", "hoodie.metadata.global.record.level.index.enable"),
    _honoured(
        "hoodie.metadata.record.level.index.enable",
        _bool,
        False,
        "the same, unique in their partition",
    ),
    _honoured(
        "hoodie.metadata.global.record.level.index.min.filegroup.count",
        int,
        10,
        "least file groups of a new record index",
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
        "most file groups of a new record index",
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
        "deltacommits between compactions of the metadata table",
        minimum=1,
    ),
    _inert("hoodie.schema.on.read.enable", "column ids are always followed ([schema.md](schema.md))"),
    _honoured(
        "hoodie.datasource.write.reconcile.schema",
        _bool,
        False,
        "fill missing columns with null ([schema.md](schema.md))",
    ),
    _honoured("hoodie.write.set.null.for.missing.columns", _bool, False, "the same"),
    _honoured(
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        _bool,
        False,
        "drop missing columns from the table ([schema.md](schema.md))",
    ),
    _honoured(
        "hoodie.metadata.log.compaction.enable",
        _bool,
        False,
        "merge logs of the metadata table between compactions",
    ),
    _honoured(
        "hoodie.metadata.log.compaction.blocks.threshold",
        int,
        5,
        "deltacommits, and log blocks of a slice, after which that is done",
        minimum=1,
    ),
    _honoured(
        "hoodie.combine.before.upsert",
        _bool,
        True,
        "combine rows with one key before an upsert; `false`: new files and logs take all of them, rewritten files and moves by a global index still one",
    ),
    _honoured("hoodie.combine.before.insert", _bool, False, "the same before an insert, bulk insert or overwrite"),
    _honoured("hoodie.combine.before.delete", _bool, True, "the same before a delete"),
    _honoured(
        "hoodie.write.lock.provider",
        str,
        None,
        "Hudi's class name, with or without package ([locks.md](locks.md)); default: by store",
    ),
    _honoured(
        "hoodie.write.meta.key.prefixes",
        str,
        "",
        "prefixes of commit entries that later commits repeat, comma-separated; `deltastreamer.checkpoint.key` preserves checkpoints of Hudi Streamer and `lakefmt ingest`",
    ),
    _honoured(
        "hoodie.write.concurrency.mode",
        str,
        "single_writer",
        "refuse a second active writer; retry conflicting writes; or add logs to the same file groups (merge-on-read, version 8 or 9, bucket index) ([concurrency.md](concurrency.md))",
        choices=("single_writer", "optimistic_concurrency_control", "non_blocking_concurrency_control"),
    ),
    _honoured(
        "hoodie.clean.failed.writes.policy",
        str,
        None,
        "failed writes: `eager` (default with one writer, refused with several) and `lazy` roll them back before a write, `never` leaves them to `table.rollback`",
        choices=("eager", "lazy", "never"),
    ),
    _alias("hoodie.cleaner.policy.failed.writes", "hoodie.clean.failed.writes.policy"),
    _honoured(
        "hoodie.write.num.retries.on.conflict.failures",
        int,
        None,
        "retries of a conflicting write before `CommitConflict`. Default: 20 with several writers or background services, else 0",
        minimum=0,
    ),
    _honoured(
        "hoodie.write.lock.conflict.resolution.strategy",
        str,
        None,
        "`SimpleConcurrentFileWritesConflictResolutionStrategy`, `PreferWriterConflictResolutionStrategy` or `BucketIndexConcurrentFileWritesConflictResolutionStrategy`: lakefmt's rules satisfy all three",
    ),
    _honoured(
        "hoodie.write.concurrency.early.conflict.detection.enable",
        _bool,
        False,
        "also check for conflicts before files are written",
    ),
    _honoured(
        "lakefmt.write.turn.after.conflicts",
        int,
        2,
        "conflicts in a row after which a write holds the table lock from its start ([concurrency.md](concurrency.md)); 0: never",
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
        "run table services in a thread instead of in the write; failed writes are then handled lazily, and `eager` is refused",
    ),
    _honoured(
        "lakefmt.write.only",
        _bool,
        False,
        "run no table service here: `lakefmt services` or another process does, also for small files of append tables",
    ),
    _honoured("hoodie.write.lock.wait_time_ms", int, 60000, "longest wait for the table lock, ms", minimum=0),
    *_LOCKS,
    _honoured(
        "hoodie.client.heartbeat.interval_in_ms",
        int,
        60000,
        "interval of a writer's heartbeat, ms",
        minimum=10,
    ),
    _honoured(
        "hoodie.client.heartbeat.tolerable.misses",
        int,
        10,
        "missed heartbeats after which a writer counts as failed",
        minimum=0,
    ),
    _honoured(
        "hoodie.datasource.write.operation",
        str,
        None,
        "must agree with the method that is called",
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
        "inserts skip stored and repeated keys",
    ),
    _honoured(
        "hoodie.datasource.write.payload.class",
        str,
        None,
        "`EmptyHoodieRecordPayload`: an upsert deletes its keys; other classes must be the table's",
        choices=("org.apache.hudi.common.model.emptyhoodierecordpayload",),
    ),
    _honoured(
        "hoodie.bloom.index.update.partition.path",
        _bool,
        True,
        "with `global_bloom`: a row whose key is in another partition moves; `false`: it is written where the key is, with that partition's values",
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
        "times in keys and paths are dates (`2016-12-29 09:54:00.0`), not numbers; must agree with stored rows",
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
        "`false`: commits run and plan no service, whatever else is set",
    ),
    _honoured("hoodie.clean.automatic", _bool, True, "clean after commits"),
    _honoured(
        "hoodie.clean.policy",
        str,
        None,
        "default: the one whose count is set, else `keep_latest_commits`",
        choices=("keep_latest_commits", "keep_latest_file_versions", "keep_latest_by_hours"),
    ),
    _honoured(
        "hoodie.clean.commits.retained",
        int,
        10,
        "latest commits whose states stay readable; if set, archiving leaves one more",
        minimum=1,
    ),
    _honoured("hoodie.clean.fileversions.retained", int, 3, "slices that stay in each file group", minimum=1),
    _honoured("hoodie.clean.hours.retained", int, 24, "hours for which states stay readable", minimum=1),
    _honoured(
        "hoodie.clean.incremental.enabled",
        _bool,
        True,
        "plan only partitions that changed since the last clean",
    ),
    _honoured(
        "lakefmt.clean.change.files",
        _bool,
        False,
        "also delete change files of the newest slices: earlier changes are then unreadable",
    ),
    _honoured("hoodie.clean.trigger.max.commits", int, 1, "commits between automatic cleans", minimum=1),
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
        "format of data blocks in logs",
        choices=("avro", "parquet"),
    ),
    _honoured(
        "hoodie.write.record.positions",
        _bool,
        True,
        "from version 8 on, log blocks store the positions of the rows that they change",
    ),
    _honoured(
        "hoodie.logfile.data.block.max.size",
        int,
        256 << 20,
        "size of a log block: bytes of its rows in memory",
        minimum=1,
    ),
    _honoured("hoodie.logfile.max.size", int, 1 << 30, "size of a log file in bytes", minimum=1),
    _honoured(
        "hoodie.merge.small.file.group.candidates.limit",
        int,
        1,
        "small base files per partition of a merge-on-read table that receive rows",
        minimum=0,
    ),
    _honoured("hoodie.archive.automatic", _bool, True, "archive after commits beyond `hoodie.keep.max.commits`"),
    _honoured(
        "hoodie.keep.min.commits",
        int,
        20,
        "commits that archiving leaves active",
        minimum=1,
    ),
    _honoured("hoodie.keep.max.commits", int, 30, "commits above which archiving starts", minimum=2),
    _refused("hoodie.archive.beyond.savepoint", "a restore needs the commits after a savepoint"),
    *(
        _honoured(key, _PARSERS[kind], default, doc, choices=SYNC_CHOICES.get(key, ()))
        for key, kind, default, doc in SYNC_HONOURED
    ),
    *(_refused(key, reason) for key, reason in SYNC_REFUSED),
    _honoured("hoodie.clustering.inline", _bool, False, "cluster after commits"),
    _honoured("hoodie.clustering.schedule.inline", _bool, False, "only schedule that clustering"),
    _honoured("hoodie.clustering.inline.max.commits", int, 4, "commits between clusterings", minimum=1),
    _honoured(
        "hoodie.clustering.async.enabled",
        _bool,
        False,
        "with `lakefmt.write.services.background`: cluster in the thread",
    ),
    _honoured(
        "hoodie.clustering.async.max.commits",
        int,
        4,
        "commits between those clusterings",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.class",
        str,
        "SparkSizeBasedClusteringPlanStrategy",
        "slices to cluster: Hudi's class name, of any engine",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.small.file.limit",
        int,
        300 << 20,
        "bytes below which a slice is packed with others; 0: off",
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
        "bytes that are rewritten together",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.max.num.groups", int, 30, "groups of one clustering; the rest waits", minimum=1
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled",
        _bool,
        True,
        "a group to sort may have one slice",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.sort.columns",
        str,
        None,
        "columns that order rows, comma-separated",
    ),
    _honoured(
        "hoodie.clustering.plan.partition.filter.mode",
        str,
        "NONE",
        "partitions to cluster: `NONE` (all), `RECENT_DAYS`, `SELECTED_PARTITIONS` or `DAY_ROLLING`",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.daybased.lookback.partitions",
        int,
        2,
        "latest partitions for `RECENT_DAYS`",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions",
        int,
        0,
        "latest partitions that `RECENT_DAYS` skips",
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
        "partitions to cluster, comma-separated; default: all",
    ),
    _honoured(
        "hoodie.clustering.plan.strategy.partition.regex.pattern",
        str,
        None,
        "regular expression of partitions to cluster",
    ),
    _honoured(
        "hoodie.layout.optimize.strategy",
        str,
        "LINEAR",
        "`LINEAR`, `ZORDER` or `HILBERT`",
    ),
    _honoured(
        "hoodie.layout.optimize.curve.build.method",
        str,
        "sample",
        "order by the rank of a value in a sample, or by its bits",
        choices=("sample", "direct"),
    ),
    _honoured(
        "hoodie.layout.optimize.build.curve.sample.size",
        int,
        200_000,
        "rows of that sample, per group",
        minimum=1,
    ),
    _honoured(
        "hoodie.clustering.updates.strategy",
        str,
        "SparkRejectUpdateStrategy",
        "a write meets a planned clustering: `SparkRejectUpdateStrategy` refuses the write, `SparkAllowUpdateStrategy` withdraws the plan unless it runs, `SparkConsistentBucketDuplicateUpdateStrategy` writes to old and new buckets of consistent hashing",
    ),
    _inert("hoodie.clustering.rollback.pending.replacecommit.on.conflict", "said by the updates strategy"),
    _inert("hoodie.clustering.execution.strategy.class", "rows are ordered and packed as the plan says"),
    _inert("hoodie.clustering.preserve.commit.metadata", "rows keep their commit times"),
    _honoured("hoodie.compact.inline", _bool, False, "compact after commits, by the trigger strategy"),
    _honoured("hoodie.compact.schedule.inline", _bool, False, "only schedule that compaction"),
    _honoured(
        "hoodie.compact.inline.trigger.strategy",
        str,
        "NUM_COMMITS",
        "`NUM_COMMITS`, `NUM_COMMITS_AFTER_LAST_REQUEST`, `TIME_ELAPSED`, `NUM_AND_TIME` or `NUM_OR_TIME`",
    ),
    _honoured(
        "hoodie.compact.inline.max.delta.commits",
        int,
        5,
        "deltacommits between compactions",
        minimum=1,
    ),
    _honoured("hoodie.compact.inline.max.delta.seconds", int, 3600, "seconds between compactions", minimum=0),
    _honoured(
        "hoodie.compaction.strategy",
        str,
        "LogFileSizeBasedCompactionStrategy",
        "slices to compact and their order: Hudi's class name",
    ),
    _honoured(
        "hoodie.compaction.target.io",
        int,
        512000,
        "MiB that bounded strategies read and write per compaction",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.logfile.size.threshold",
        int,
        0,
        "least log bytes of a slice for LogFileSizeBasedCompactionStrategy",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.logfile.num.threshold",
        int,
        0,
        "least logs of a slice for LogFileNumBasedCompactionStrategy",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.daybased.target.partitions",
        int,
        10,
        "days that day-based strategies compact",
        minimum=1,
    ),
    _honoured(
        "hoodie.log.compaction.inline",
        _bool,
        False,
        "run log compactions after commits",
    ),
    _honoured(
        "hoodie.log.compaction.blocks.threshold",
        int,
        5,
        "log blocks of a slice from which they are merged",
        minimum=1,
    ),
    _inert(
        "hoodie.log.compaction.enable",
        "use `hoodie.log.compaction.inline`, or `hoodie.metadata.log.compaction.enable` for the metadata table",
    ),
    _inert("hoodie.compaction.lazy.block.read", "logs are read whole"),
    _inert("hoodie.compaction.reverse.log.read", "logs are read forwards"),
)
