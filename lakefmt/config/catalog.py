"""The table of settings: every one that lakefmt knows, with its type, default, class and reason (pure).

The documentation's table is generated from here; :mod:`lakefmt.config.settings` gives the settings of one call.

What a setting is: its key, type, default, class and reason (pure).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["ALL_SETTINGS", "Setting", "SettingClass", "SettingValue"]


SettingValue = str | int | float | bool | None


class SettingClass(enum.Enum):
    """What becomes of a setting."""

    HONOURED = "honoured"
    INERT = "inert"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key, type, default, and the reason for either.

    ``table_key`` marks settings that restate a property of the table: accepted when they agree with it.
    ``alias_of`` marks older names of another setting.
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


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _text(text: str) -> str:
    return text


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
    return Setting(key, _text, None, doc, SettingClass.INERT)


def _refused(key: str, doc: str) -> Setting:
    return Setting(key, _text, None, doc, SettingClass.REFUSED)


def _restated(key: str, table_key: str) -> Setting:
    return Setting(key, _text, None, f"must agree with the table's `{table_key}`", table_key=table_key)


def _alias(key: str, alias_of: str) -> Setting:
    return Setting(key, _text, None, f"older name of `{alias_of}`", alias_of=alias_of)


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
        "wait_time_ms_between_retry", int, None, "longest pause between two attempts; by default what suits the lock", 1
    ),
    _lock("num_retries", int, None, "most attempts within one wait, less one; by default as many as fit", 0),
    _lock("client.num_retries", int, 0, "how often the whole wait is repeated", 0),
    _lock("client.wait_time_ms_between_retry", int, 5000, "pause between two such waits", 0),
    _lock("heartbeat_interval_ms", int, 60000, "time between two signs of life of a lock in a Hive metastore", 10),
    _lock("filesystem.path", _text, None, "directory of the file `lock`; by default the table's `.hoodie`"),
    _lock("filesystem.expire", int, 0, "minutes after which an untouched lock file may be taken over; 0: never", 0),
    _lock("storage.validity.timeout.secs", int, 300, "how long the storage-based lock lasts unless it is renewed", 10),
    _lock("storage.renew.interval.secs", int, 30, "time between two renewals, at most a tenth of the validity", 1),
    _alias("hoodie.write.lock.storage.heartbeat.poll.secs", "hoodie.write.lock.storage.renew.interval.secs"),
    _lock("zookeeper.url", _text, None, "ZooKeeper's hosts, with or without ports, with commas between them"),
    _lock("zookeeper.port", int, 2181, "the port of hosts that name none", 1),
    _lock("zookeeper.base_path", _text, None, "the node below which locks live"),
    _lock("zookeeper.lock_key", _text, None, "the lock's node; by default the table's name"),
    _lock("zookeeper.session_timeout_ms", int, 60000, "silence after which a holder's node vanishes", 1),
    _lock("zookeeper.connection_timeout_ms", int, 15000, "longest wait for a connection (of a Hive metastore, too)", 1),
    _lock("dynamodb.table", _text, None, "DynamoDB's table of locks; made when it is missing"),
    _lock("dynamodb.partition_key", _text, None, "the lock's item; by default the table's name"),
    _lock("dynamodb.region", _text, None, "DynamoDB's region; by default that of the environment, or us-east-1"),
    _lock("dynamodb.endpoint_url", _text, None, "another address of DynamoDB"),
    _lock(
        "dynamodb.billing_mode",
        _text,
        "PAY_PER_REQUEST",
        "of a table of locks that is made",
        choices=("PAY_PER_REQUEST", "PROVISIONED"),
    ),
    _lock("dynamodb.read_capacity", int, 20, "of a table of locks that is made with PROVISIONED", 1),
    _lock("dynamodb.write_capacity", int, 10, "of a table of locks that is made with PROVISIONED", 1),
    _lock("dynamodb.table_creation_timeout", int, 600000, "milliseconds to wait for a table of locks that is made", 0),
    _lock("hivemetastore.database", _text, None, "the database whose table is locked"),
    _lock("hivemetastore.table", _text, None, "the table's name in the metastore"),
    _lock("hivemetastore.uris", _text, None, "`thrift://host:port` of the metastore, or several with commas"),
)

ALL_SETTINGS: Final[tuple[Setting, ...]] = (
    _honoured(
        "lakefmt.durability",
        _text,
        "fsync",
        "`fsync`: data files and completed instants reach the disk before "
        "a commit returns; `none`: they reach the page cache",
        choices=("fsync", "none"),
    ),
    _honoured(
        "lakefmt.merge.function",
        _text,
        None,
        "the function by which the table merges records, as `module:function` or a registered name; it is imported because "
        "the caller says so, never because the table does",
    ),
    _honoured("lakefmt.write.threads", int, 0, "threads that write files; 0: as many as cores, at most 8", minimum=0),
    _honoured(
        "lakefmt.write.window.bytes",
        int,
        128 * MIB,
        "memory in bytes for the rows of a stream: so many are gathered (up to a quarter more rather than leave a small rest of "
        "a table), then spread over partitions, an eighth of them "
        'at a time; with `sort="global"` a load keeps about within 48 MiB or more of it, and runs and ranges are an eighth of it less 30 MiB',
        minimum=1024,
    ),
    _honoured(
        "lakefmt.write.null_list_elements",
        _text,
        "allow",
        "`allow`: null elements in lists are written, with a warning in the result: Spark rewrites such a file only with "
        "`parquet.avro.write-old-list-structure=false` in its Hadoop configuration; `refuse`: they are refused",
        choices=("allow", "refuse"),
    ),
    _honoured(
        "lakefmt.write.colliding_keys",
        _text,
        "refuse",
        "what becomes of rows of one batch that differ in their key columns and have one record key, because Hudi joins "
        "several key columns without escaping (`x,b:y` in a column before `b`). `refuse`: the write is refused; `merge`: one "
        "of them is left, as in Hudi",
        choices=("refuse", "merge"),
    ),
    _honoured("hoodie.parquet.max.file.size", int, 120 * MIB, "target size of a base file in bytes", minimum=1024),
    _honoured(
        "hoodie.parquet.small.file.limit",
        int,
        100 * MIB,
        "base files below this many bytes take new rows before new files are made; 0 switches that off",
        minimum=0,
    ),
    _honoured(
        "hoodie.copyonwrite.record.size.estimate",
        int,
        0,
        "bytes per stored row when no earlier commit tells; 0: guessed from the batch",
        minimum=0,
    ),
    _honoured(
        "hoodie.parquet.compression.codec",
        lambda text: "none" if text == "uncompressed" else text,  # Arrow calls one otherwise than Parquet
        "zstd",
        "codec of base files, in either case of letters; uncompressed is none",
        choices=("zstd", "snappy", "gzip", "none", "uncompressed"),
    ),
    _honoured("lakefmt.parquet.compression.level", int, 1, "level of codecs that have one", minimum=1),
    _honoured(
        "hoodie.parquet.bloom.filter.enabled",
        _bool,
        True,
        "write a key filter into every base file; without one a Spark writer with the bloom index fails",
    ),
    _honoured(
        "hoodie.index.bloom.num_entries", int, 0, "planned keys per filter; 0: the file's and an eighth more", minimum=0
    ),
    _honoured("hoodie.index.bloom.fpp", float, 1e-9, "false positives per probe of a filter", minimum=0),
    _honoured(
        "hoodie.bloom.index.filter.dynamic.max.entries",
        int,
        100000,
        "most keys before a filter stops growing",
        minimum=1,
    ),
    _honoured("hoodie.bloom.index.prune.by.ranges", _bool, True, "use key ranges before filters"),
    _honoured(
        "hoodie.index.class",
        _text,
        None,
        "`module:Class`, an index of one's own; from a call or a handle only, never from the table's properties",
    ),
    _honoured(
        "lakefmt.index.threads",
        int,
        0,
        "files that a look-up reads at the same time; 0: as many as cores for local files, else 16",
        minimum=0,
    ),
    _honoured("hoodie.index.type", _text, None, "the index of this call instead of the table's"),
    _honoured(
        "hoodie.metadata.enable",
        _bool,
        None,
        "`false` drops an existing metadata table before the write, as "
        "Hudi does; `true` is refused, because lakefmt does not keep one yet",
    ),
    _honoured("hoodie.combine.before.upsert", _bool, True, "records of one batch with equal keys are combined first"),
    _honoured("hoodie.combine.before.insert", _bool, False, "the same for inserts"),
    _honoured("hoodie.combine.before.delete", _bool, True, "the same for deletes"),
    _honoured(
        "hoodie.write.lock.provider",
        _text,
        None,
        "Hudi's class name of the table lock, with or without its package ([locks.md](locks.md)); by default the best "
        "that the store offers",
    ),
    _honoured(
        "hoodie.write.concurrency.mode",
        _text,
        "single_writer",
        "`single_writer`: one writer at a time, a second one is refused while the first is alive; "
        "`optimistic_concurrency_control`: writers work side by side, and what cannot stand beside a commit that was "
        "faster is done again; `non_blocking_concurrency_control` is refused: it needs a bucket index",
        choices=("single_writer", "optimistic_concurrency_control", "non_blocking_concurrency_control"),
    ),
    _honoured(
        "hoodie.clean.failed.writes.policy",
        _text,
        None,
        "what a write does about those that died; `eager` and `lazy`: undoes them, `never`: leaves them to "
        "`table.rollback`. Unset: `eager` with a single writer, else `lazy`; `eager` is refused beside other writers",
        choices=("eager", "lazy", "never"),
    ),
    _alias("hoodie.cleaner.policy.failed.writes", "hoodie.clean.failed.writes.policy"),
    _honoured(
        "hoodie.write.num.retries.on.conflict.failures",
        int,
        None,
        "how often a write that lost against another one is done again, from the look-up of its keys on, before "
        "`CommitConflict` is raised; unset: 20 times beside other writers, never with a single one",
        minimum=0,
    ),
    _honoured(
        "hoodie.write.lock.conflict.resolution.strategy",
        _text,
        None,
        "`SimpleConcurrentFileWritesConflictResolutionStrategy` or `PreferWriterConflictResolutionStrategy`, by Hudi's "
        "class name: lakefmt's own rules keep what both promise; others are refused",
    ),
    _honoured(
        "hoodie.write.concurrency.early.conflict.detection.enable",
        _bool,
        False,
        "look before the files are written whether another writer is at the same file groups, or was",
    ),
    _honoured(
        "lakefmt.write.turn.after.conflicts",
        int,
        2,
        "after so many conflicts in a row a write holds the table lock from its begin to its commit, so that it cannot lose "
        "again ([concurrency.md](concurrency.md)); 0: never",
        minimum=0,
    ),
    _inert("hoodie.write.concurrency.early.conflict.check.commit.conflict", "early detection always asks the timeline"),
    _inert("hoodie.write.concurrency.early.conflict.detection.strategy", "there is one way: by direct markers"),
    _honoured(
        "lakefmt.write.services.background",
        _bool,
        False,
        "a thread of this process compacts, folds logs, cleans and archives beside the writer: the failed writes policy is "
        "then `lazy`, and `eager` is refused",
    ),
    _honoured("hoodie.write.lock.wait_time_ms", int, 60000, "longest wait for the table lock", minimum=0),
    *_LOCKS,
    _honoured("hoodie.client.heartbeat.interval_in_ms", int, 60000, "time between two signs of life", minimum=10),
    _honoured(
        "hoodie.client.heartbeat.tolerable.misses",
        int,
        10,
        "missed signs of life before a writer counts as dead",
        minimum=0,
    ),
    _honoured(
        "hoodie.datasource.write.operation",
        _text,
        None,
        "the verb, for callers that bring Spark's options",
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
        "inserts leave out rows whose key is stored or comes twice",
    ),
    _honoured(
        "hoodie.datasource.write.payload.class",
        _text,
        None,
        "`EmptyHoodieRecordPayload` turns an upsert into a delete of its keys; other classes must be the table's",
        choices=("org.apache.hudi.common.model.emptyhoodierecordpayload",),
    ),
    _honoured(
        "hoodie.bloom.index.update.partition.path",
        _bool,
        True,
        "with `global_bloom`: a row whose key is stored in another partition moves to its own; `false`: it is written "
        "where its key is",
    ),
    _honoured("hoodie.simple.index.update.partition.path", _bool, True, "the same for `global_simple`"),
    _honoured("hoodie.write.commit.callback.on", _bool, False, "post every commit to an address"),
    _honoured("hoodie.write.commit.callback.http.url", _text, None, "that address"),
    _honoured(
        "hoodie.write.commit.callback.http.timeout.seconds", int, 5, "longest wait for it, in seconds", minimum=1
    ),
    _honoured(
        "hoodie.write.commit.callback.http.api.key", _text, None, "sent as `HUDI-CALLBACK-KEY`; never kept anywhere"
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
    _inert("hoodie.write.auto.upgrade", "lakefmt never upgrades a table by itself"),
    _inert("hoodie.embed.timeline.server", "there is no timeline server"),
    _inert("hoodie.write.markers.type", "markers are always direct"),
    _inert("hoodie.upsert.shuffle.parallelism", "there is no shuffle"),
    _inert("hoodie.insert.shuffle.parallelism", "there is no shuffle"),
    _inert("hoodie.bulkinsert.shuffle.parallelism", "there is no shuffle"),
    _inert("hoodie.delete.shuffle.parallelism", "there is no shuffle"),
    _inert("hoodie.bloom.index.parallelism", "there is no shuffle"),
    _inert("hoodie.datasource.write.keygenerator.class", "keys are made as the table's properties say"),
    _inert("hoodie.datasource.write.keygenerator.type", "keys are made as the table's properties say"),
    _inert("hoodie.bloom.index.use.treebased.filter", "ranges are pruned on sorted arrays"),
    _inert("hoodie.bloom.index.bucketized.checking", "there is no shuffle"),
    _inert("hoodie.bloom.index.keys.per.bucket", "there is no shuffle"),
    _inert("hoodie.bloom.index.use.caching", "there is no shuffle"),
    _inert("hoodie.simple.index.use.caching", "there is no shuffle"),
    _inert("hoodie.bloom.index.input.storage.level", "there is no shuffle"),
    _inert("hoodie.bloom.index.fileid.key.sorting.enable", "there is no shuffle"),
    _inert("hoodie.simple.index.parallelism", "there is no shuffle"),
    _inert("hoodie.global.simple.index.parallelism", "there is no shuffle"),
    _honoured("hoodie.clean.automatic", _bool, False, "clean after every commit"),
    _honoured(
        "hoodie.clean.policy",
        _text,
        None,
        "what a clean keeps; default: by the count that is set, else by commits",
        choices=("keep_latest_commits", "keep_latest_file_versions", "keep_latest_by_hours"),
    ),
    _honoured("hoodie.clean.commits.retained", int, 10, "commits whose state a clean keeps readable", minimum=1),
    _honoured("hoodie.clean.fileversions.retained", int, 3, "file slices that a clean keeps per group", minimum=1),
    _honoured("hoodie.clean.hours.retained", int, 24, "hours whose states a clean keeps readable", minimum=1),
    _honoured(
        "hoodie.clean.incremental.enabled",
        _bool,
        True,
        "a clean looks only at partitions that changed since the last one",
    ),
    _honoured("hoodie.clean.trigger.max.commits", int, 1, "commits between two automatic cleans", minimum=1),
    _alias("hoodie.cleaner.policy", "hoodie.clean.policy"),
    _alias("hoodie.cleaner.commits.retained", "hoodie.clean.commits.retained"),
    _alias("hoodie.cleaner.fileversions.retained", "hoodie.clean.fileversions.retained"),
    _alias("hoodie.cleaner.hours.retained", "hoodie.clean.hours.retained"),
    _alias("hoodie.cleaner.incremental.mode", "hoodie.clean.incremental.enabled"),
    _alias("hoodie.clean.max.commits", "hoodie.clean.trigger.max.commits"),
    _inert("hoodie.clean.async.enabled", "`lakefmt.write.services.background` says where automatic services run"),
    _honoured(
        "hoodie.logfile.data.block.format",
        _text,
        "avro",
        "what the rows of log files are stored as",
        choices=("avro", "parquet"),
    ),
    _honoured(
        "hoodie.write.record.positions",
        _bool,
        True,
        "from version 8 on, rows in logs say which row of the base file they change, where that is known",
    ),
    _honoured(
        "hoodie.logfile.data.block.max.size",
        int,
        256 << 20,
        "bytes of rows, in memory, after which a log file gets another block",
        minimum=1,
    ),
    _honoured("hoodie.logfile.max.size", int, 1 << 30, "bytes after which a log goes on in another file", minimum=1),
    _honoured(
        "hoodie.merge.small.file.group.candidates.limit",
        int,
        1,
        "small base files per partition of a merge-on-read table that take new rows",
        minimum=0,
    ),
    _honoured("hoodie.archive.automatic", _bool, True, "archive after a commit when the timeline is too long"),
    _honoured("hoodie.keep.min.commits", int, 20, "completed commits that an archive step leaves active", minimum=1),
    _honoured("hoodie.keep.max.commits", int, 30, "completed commits beyond which an archive step is due", minimum=2),
    _refused("hoodie.archive.beyond.savepoint", "commits behind a savepoint stay active: a restore needs them"),
    _refused("hoodie.datasource.hive_sync.enable", "no catalogue is kept in step"),
    _refused("hoodie.datasource.meta.sync.enable", "no catalogue is kept in step"),
    _refused("hoodie.meta.sync.client.tool.class", "no catalogue is kept in step"),
    _refused("hoodie.clustering.inline", "clustering is not supported yet"),
    _honoured("hoodie.compact.inline", _bool, False, "after a commit, compact when the trigger asks for it"),
    _honoured(
        "hoodie.compact.schedule.inline", _bool, False, "after a commit, only schedule what the trigger asks for"
    ),
    _honoured(
        "hoodie.compact.inline.trigger.strategy",
        _text,
        "NUM_COMMITS",
        "what makes a compaction due: `NUM_COMMITS`, `NUM_COMMITS_AFTER_LAST_REQUEST`, `TIME_ELAPSED`, `NUM_AND_TIME` "
        "or `NUM_OR_TIME`",
    ),
    _honoured(
        "hoodie.compact.inline.max.delta.commits", int, 5, "deltacommits after which a compaction is due", minimum=1
    ),
    _honoured("hoodie.compact.inline.max.delta.seconds", int, 3600, "seconds after which one is due", minimum=0),
    _honoured(
        "hoodie.compaction.strategy",
        _text,
        "LogFileSizeBasedCompactionStrategy",
        "which file slices are compacted first, by the name of Hudi's class",
    ),
    _honoured(
        "hoodie.compaction.target.io",
        int,
        512000,
        "MiB to read and write after which bounded strategies stop",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.logfile.size.threshold",
        int,
        0,
        "log bytes below which LogFileSizeBasedCompactionStrategy leaves a slice alone",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.logfile.num.threshold",
        int,
        0,
        "log files below which LogFileNumBasedCompactionStrategy leaves a slice alone",
        minimum=0,
    ),
    _honoured(
        "hoodie.compaction.daybased.target.partitions", int, 10, "days that the strategies by day look at", minimum=1
    ),
    _honoured("hoodie.log.compaction.inline", _bool, False, "after a commit, fold logs when enough of them came"),
    _honoured(
        "hoodie.log.compaction.blocks.threshold",
        int,
        5,
        "blocks in the logs of a file slice from which on a log compaction folds them",
        minimum=1,
    ),
    _inert(
        "hoodie.log.compaction.enable", "in Hudi it is for the metadata table; `hoodie.log.compaction.inline` is asked"
    ),
    _inert("hoodie.compaction.lazy.block.read", "logs are read whole"),
    _inert("hoodie.compaction.reverse.log.read", "logs are read forwards"),
    _refused("hoodie.bloom.index.use.metadata", "lakefmt does not keep a metadata table yet"),
)
