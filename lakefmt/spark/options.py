"""The options of Hudi's Spark data source, as arguments of lakefmt's own calls (pure).

The names and their defaults are those of Hudi 1.2.0, from its configuration page for Spark data sources. What configures
Spark itself is accepted and does nothing; what would break a promise is refused; all other settings (docs/settings.md) go
to the table's call, which knows them.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from lakefmt._core.config.hudi_options import OptionClass, find_published, similar_names
from lakefmt._core.config.merge_rule import is_payload_class
from lakefmt._core.config.settings import SETTINGS, raise_problems, resolve_settings
from lakefmt._core.config.table_config import STRATEGY_IDS
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.values import CommitResult
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.write.context import CommitEntries

__all__ = [
    "ALIASES",
    "KEEPS_STATE",
    "NO_CATALOG_TABLE",
    "SPARK_OPTIONS",
    "ReadCall",
    "SparkOption",
    "SparkReadOptions",
    "SparkServiceOptions",
    "SparkWriteOptions",
    "WriteCall",
    "find_option",
    "log_notes",
    "option_texts",
    "options_markdown",
    "parse_read_options",
    "parse_write_options",
    "with_notes",
]


@dataclass(frozen=True, slots=True)
class SparkOption:
    """What becomes of one option.

    Attributes:
        kind: ``honoured``; ``inert``: accepted, and changes nothing; ``refused``: an error.
        meaning: what it does, or why not.
        harmless: values of a refused option that ask for nothing, in small letters.
    """

    kind: str
    meaning: str
    harmless: tuple[str, ...] = ()

    def refuses(self, value: str) -> bool:
        """Return whether a value asks for something that does not exist."""
        return self.kind == "refused" and value.strip().lower() not in (*self.harmless, "", "false", "none")


def _honoured(meaning: str) -> SparkOption:
    return SparkOption("honoured", meaning)


def _inert(meaning: str) -> SparkOption:
    return SparkOption("inert", meaning)


def _refused(meaning: str, *harmless: str) -> SparkOption:
    return SparkOption("refused", meaning, harmless)


_NO_FUNCTION: Final = "use `table.timeline` and `table.file_groups()`"
_DRIVER_LISTS: Final = "the driver lists"
_SERVICES: Final = "table services add no rows here"
_VIEWS_ONLY: Final = "INSERT INTO a view runs the view's operation"

_WRITE_PREFIX: Final = "hoodie.datasource.write."
_READ_PREFIX: Final = "hoodie.datasource.read."

SPARK_OPTIONS: Final[dict[str, SparkOption]] = {
    # --- what is read
    "hoodie.datasource.query.type": _honoured("`snapshot` (default), `read_optimized` or `incremental`"),
    "hoodie.datasource.query.incremental.format": _honoured("`latest_state` (default) or `cdc`"),
    "as.of.instant": _honoured("an instant, date, time, or seconds or milliseconds since 1970"),
    f"{_READ_PREFIX}begin.instanttime": _honoured("exclusive start of an increment; `earliest` and `000`: all"),
    f"{_READ_PREFIX}end.instanttime": _honoured("inclusive end; default: the newest commit"),
    f"{_READ_PREFIX}incr.path.glob": _honoured("increments: files whose path ends so"),
    f"{_READ_PREFIX}incr.fallback.fulltablescan.enable": _honoured(
        "`true` (default): rows of cleaned files come from the newest files; `false`: an error"
    ),
    f"{_READ_PREFIX}incr.skip_cluster": _inert(_SERVICES),
    f"{_READ_PREFIX}incr.skip_compact": _inert(_SERVICES),
    f"{_READ_PREFIX}incr.filters": _refused("use `lakefmt.spark.read.filter`"),
    f"{_READ_PREFIX}incr.table.version": _refused("the table's own version decides"),
    f"{_READ_PREFIX}streaming.table.version": _refused("the table's own version decides"),
    f"{_READ_PREFIX}schema.use.end.instanttime": _refused(
        "rows have the newest schema; `as.of.instant` reads older ones"
    ),
    f"{_READ_PREFIX}paths": _refused("a table is read by its path; use `lakefmt.spark.read.filter` for partitions"),
    f"{_READ_PREFIX}extract.partition.values.from.path": _refused("partition columns are read from the files"),
    f"{_READ_PREFIX}partition.value.extractor.enabled": _refused("partition columns are read from the files"),
    "hoodie.datasource.merge.type": _refused("logs are always merged; or read `read_optimized`", "payload_combine"),
    f"{_READ_PREFIX}create.filesystem.relation": _refused(_NO_FUNCTION),
    f"{_READ_PREFIX}table.valued.function.filesystem.relation.subpath": _refused(_NO_FUNCTION),
    f"{_READ_PREFIX}table.valued.function.timeline.relation": _refused(_NO_FUNCTION),
    f"{_READ_PREFIX}table.valued.function.timeline.relation.archived": _refused(_NO_FUNCTION),
    f"{_READ_PREFIX}file.index.list.partitions.from.catalog": _inert(_DRIVER_LISTS),
    f"{_READ_PREFIX}file.index.listing.mode": _inert(_DRIVER_LISTS),
    f"{_READ_PREFIX}file.index.listing.partition-path-prefix.analysis.enabled": _inert(_DRIVER_LISTS),
    f"{_READ_PREFIX}file.index.optimize.listing.using.path.filter": _inert(_DRIVER_LISTS),
    "hoodie.file.index.enable": _inert(_DRIVER_LISTS),
    "hoodie.file.listing.parallelism": _inert(_DRIVER_LISTS),
    "hoodie.read.timeline.holes.resolution.policy": _inert(
        "ranges end before the first pending write (version 6), or go by completion times"
    ),
    "hoodie.schema.on.read.enable": _inert("schema histories are always followed"),
    # --- what is written
    f"{_WRITE_PREFIX}operation": _honoured(
        "`upsert` (default; `insert` without a record key), `insert`, `bulk_insert`, `delete`, `insert_overwrite`, "
        "`insert_overwrite_table`, `delete_partition`"
    ),
    f"{_WRITE_PREFIX}recordkey.field": _honoured("key columns; must agree with an existing table"),
    f"{_WRITE_PREFIX}partitionpath.field": _honoured("partition columns, likewise"),
    f"{_WRITE_PREFIX}precombine.field": _honoured("ordering columns, likewise; also `hoodie.table.ordering.fields`"),
    f"{_WRITE_PREFIX}table.type": _honoured("`COPY_ON_WRITE` (default) or `MERGE_ON_READ`"),
    f"{_WRITE_PREFIX}table.name": _honoured("name of a new table; default: last part of the path"),
    f"{_WRITE_PREFIX}keygenerator.class": _honoured(
        "Hudi's key generators, by class (`….keygenerator.type`: by type); must agree with an existing table"
    ),
    f"{_WRITE_PREFIX}hive_style_partitioning": _honoured("default `false`, as Hudi has it"),
    f"{_WRITE_PREFIX}partitionpath.urlencode": _honoured("default `false`, as Hudi has it"),
    f"{_WRITE_PREFIX}drop.partition.columns": _honoured("default `false`"),
    f"{_WRITE_PREFIX}partitions.to.delete": _honoured("partitions of `delete_partition`"),
    f"{_WRITE_PREFIX}insert.drop.duplicates": _honoured("inserts skip stored keys"),
    "hoodie.datasource.insert.dup.policy": _honoured("`none` (default) or `drop`; not `fail`"),
    f"{_WRITE_PREFIX}commitmeta.key.prefix": _honoured("prefix of options to store in the commit; default `_`"),
    f"{_WRITE_PREFIX}payload.class": _honoured(
        "`DefaultHoodieRecordPayload`, `EventTimeAvroPayload`: larger ordering value wins; `OverwriteWithLatestAvroPayload`: later write; `EmptyHoodieRecordPayload`: delete; [others of Hudi](guarantees.md#tables-that-merge-by-more-than-a-mode); the rest is refused"
    ),
    "hoodie.write.record.merge.mode": _honoured(
        "`EVENT_TIME_ORDERING` or `COMMIT_TIME_ORDERING`; `CUSTOM` with a payload class"
    ),
    "hoodie.write.record.merge.strategy.id": _honoured("ids of these modes"),
    "hoodie.write.record.merge.custom.implementation.classes": _honoured("Hudi's own mergers; others are refused"),
    f"{_WRITE_PREFIX}reconcile.schema": _honoured("`true`: fill missing columns with null"),
    "hoodie.write.set.null.for.missing.columns": _honoured("the same"),
    f"{_WRITE_PREFIX}secondarykey.column": _refused("use `table.index.create`"),
    f"{_WRITE_PREFIX}keygenerator.consistent.logical.timestamp.enabled": _honoured(
        "times in keys are dates; stored keys take precedence"
    ),
    f"{_WRITE_PREFIX}row.writer.enable": _inert("rows always come as Arrow batches"),
    # --- streams
    f"{_WRITE_PREFIX}streaming.checkpoint.identifier": _honoured(
        "streams: id of this stream at the table; default `default_single_writer`"
    ),
    f"{_WRITE_PREFIX}streaming.retry.count": _honoured("streams: attempts per batch; default 3"),
    f"{_WRITE_PREFIX}streaming.retry.interval.ms": _honoured(
        "streams: pause between attempts, doubled each time; default 2000"
    ),
    f"{_WRITE_PREFIX}streaming.ignore.failed.batch": _honoured("streams: `true` skips a batch that always fails"),
    f"{_WRITE_PREFIX}streaming.disable.compaction": _honoured("streams: `true`: no compaction"),
    "hoodie.datasource.compaction.async.enable": _honoured("streams: compact merge-on-read tables; default `true`"),
    "hoodie.clustering.async.enabled": _honoured(
        "streams: cluster every `hoodie.clustering.async.max.commits` commits (4); default `false`"
    ),
    "hoodie.datasource.streaming.startoffset": _honoured(
        "read streams without a checkpoint: `earliest` (default), `latest` or a time; `startOffset`"
    ),
    "maxfilespertrigger": _honoured("read streams: files per batch; `maxFilesPerTrigger`, PySpark 4.2"),
    "maxbytespertrigger": _honoured("read streams: bytes per batch; `maxBytesPerTrigger`, PySpark 4.2"),
    "failondataloss": _honoured("read streams: `false` skips what was cleaned; `failOnDataLoss`"),
    "checkpointlocation": _inert("Spark's own"),
    # --- other writers
    "hoodie.datasource.overwrite.mode": _inert("the operation decides"),
    "hoodie.sql.insert.mode": _inert(_VIEWS_ONLY),
    "hoodie.sql.bulk.insert.enable": _inert(_VIEWS_ONLY),
    "hoodie.spark.sql.insert.into.operation": _inert(_VIEWS_ONLY),
    "hoodie.spark.sql.merge.into.partial.updates": _inert("Python data sources have no MERGE INTO"),
    "hoodie.spark.sql.optimized.writes.enable": _inert("Python data sources have no UPDATE and DELETE"),
    "hoodie.streamer.source.kafka.value.deserializer.class": _inert("Hudi Streamer's"),
    # --- lakefmt's own
    "lakefmt.meta_columns": _honoured("reads: include the meta columns; default `true`"),
    "lakefmt.spark.cdc.images": _honoured("`before` and `after` are `json` texts (default) or `struct`"),
    "lakefmt.spark.read.filter": _honoured("reads: SQL filter as of `Table.read`, which skips partitions and files"),
    "lakefmt.spark.read.native": _honoured(
        "Spark's Parquet reader reads files that need no merge: `auto` (default: local files), `always` (with Hadoop's credentials), `never`"
    ),
    "lakefmt.spark.read.split.bytes": _honoured("reads: bytes per task; default: a few tasks per slot"),
    "lakefmt.spark.timestamp_ntz": _honoured(
        "writes: `refuse` columns of `timestamp_ntz` (default), or take them as `utc`"
    ),
    "lakefmt.spark.stage.max.bytes": _honoured("writes: most bytes of one process; default 1 GiB"),
    "lakefmt.spark.driver.max.rows": _honoured("most rows that the driver writes itself; default 50,000"),
    "lakefmt.spark.driver.max.bytes": _honoured("the same in Arrow bytes; default 32 MiB"),
    "lakefmt.spark.driver.max.partitions": _honoured("the same in partition paths; default 1,000"),
    "lakefmt.spark.task.bytes": _honoured("writes: rows and stored files per task; default 64 MiB"),
    "lakefmt.spark.task.max.bytes": _honoured(
        "rows of one partition path per task; with more, keys are looked up first; default 256 MiB"
    ),
    "hoodie.bulkinsert.sort.mode": _honoured(
        "`NONE` (default), `GLOBAL_SORT`; `PARTITION_SORT`, `PARTITION_PATH_REPARTITION` and `PARTITION_PATH_REPARTITION_AND_SORT` sort the rows of each partition path"
    ),
}
#: Names of the same option, older ones first.
ALIASES: Final = {
    "hoodie.datasource.view.type": "hoodie.datasource.query.type",
    "hoodie.datasource.write.storage.type": "hoodie.datasource.write.table.type",
    "hoodie.datasource.write.record.merger.impls": "hoodie.write.record.merge.custom.implementation.classes",
    "hoodie.datasource.write.record.merger.strategy": "hoodie.write.record.merge.strategy.id",
    "hoodie.datasource.clustering.async.enable": "hoodie.clustering.async.enabled",
    "hoodie.datasource.clustering.inline.enable": "hoodie.clustering.inline",
    "hoodie.deltastreamer.source.kafka.value.deserializer.class": "hoodie.streamer.source.kafka.value.deserializer.class",
    "hoodie.table.recordkey.fields": "hoodie.datasource.write.recordkey.field",
    "hoodie.table.partition.fields": "hoodie.datasource.write.partitionpath.field",
    "hoodie.table.precombine.field": "hoodie.datasource.write.precombine.field",
    "hoodie.table.ordering.fields": "hoodie.datasource.write.precombine.field",
    "hoodie.datasource.write.table.name": "hoodie.table.name",
    "hoodie.table.keygenerator.class": "hoodie.datasource.write.keygenerator.class",
    "hoodie.table.keygenerator.type": "hoodie.datasource.write.keygenerator.type",
    "hoodie.record.merge.mode": "hoodie.write.record.merge.mode",
    "hoodie.record.merge.strategy.id": "hoodie.write.record.merge.strategy.id",
    "hoodie.compaction.record.merger.strategy": "hoodie.write.record.merge.strategy.id",
    "hoodie.compaction.payload.class": "hoodie.datasource.write.payload.class",
    "hoodie.table.type": "hoodie.datasource.write.table.type",
    "hoodie.table.version": "hoodie.write.table.version",
}


# The keyword arguments of the functions of `lakefmt.spark`. Hudi's names have dots, so they are given in a dictionary,
# `write(df, path, **{"hoodie.table.name": "trips"})`: it may hold any option and setting, and the most used ones are
# listed here, for an editor. A keyword without dots that is not here is a misspelt one.

#: Of ``read``; what they do: ``SPARK_OPTIONS`` and docs/spark.md.
SparkReadOptions = TypedDict(
    "SparkReadOptions",
    {
        "hoodie.datasource.query.type": object,
        "hoodie.datasource.query.incremental.format": object,
        "as.of.instant": object,
        "hoodie.datasource.read.begin.instanttime": object,
        "hoodie.datasource.read.end.instanttime": object,
        "lakefmt.meta_columns": object,
        "lakefmt.spark.read.filter": object,
        "lakefmt.spark.read.native": object,
        "lakefmt.spark.read.split.bytes": object,
    },
    total=False,
)
#: Of ``write``, ``explain_write`` and ``stream_batch``.
SparkWriteOptions = TypedDict(
    "SparkWriteOptions",
    {
        "hoodie.table.name": object,
        "hoodie.datasource.write.operation": object,
        "hoodie.datasource.write.recordkey.field": object,
        "hoodie.datasource.write.partitionpath.field": object,
        "hoodie.datasource.write.precombine.field": object,
        "hoodie.datasource.write.table.type": object,
        "hoodie.datasource.write.partitions.to.delete": object,
        "hoodie.datasource.write.hive_style_partitioning": object,
        "hoodie.datasource.write.insert.drop.duplicates": object,
        "hoodie.datasource.write.reconcile.schema": object,
        "hoodie.index.type": object,
        "hoodie.bulkinsert.sort.mode": object,
        "lakefmt.spark.timestamp_ntz": object,
        "checkpointLocation": object,
        "queryName": object,
    },
    total=False,
)
#: Of ``compact``, ``cluster`` and ``clean``: settings (docs/settings.md).
SparkServiceOptions = TypedDict(
    "SparkServiceOptions",
    {
        "hoodie.compaction.strategy": object,
        "hoodie.compact.inline.max.delta.commits": object,
        "hoodie.clustering.plan.strategy.target.file.max.bytes": object,
        "hoodie.clustering.plan.strategy.small.file.limit": object,
        "hoodie.clustering.plan.strategy.sort.columns": object,
        "hoodie.clean.policy": object,
        "hoodie.clean.commits.retained": object,
    },
    total=False,
)


def find_option(name: str) -> SparkOption | None:
    """Return the row of an option, or that of its family (``….*``); None: the table has none.

    Example:
        >>> find_option("hoodie.datasource.overwrite.mode").kind
        'inert'
    """
    families = (row for family, row in SPARK_OPTIONS.items() if family.endswith("*") and name.startswith(family[:-1]))
    return SPARK_OPTIONS.get(name) or next(families, None)


def options_markdown() -> str:
    """Return the table of docs/settings.md."""
    older = {new: sorted(old for old, name in ALIASES.items() if name == new) for new in ALIASES.values()}
    # Options that are not honoured, for one reason, share a row.
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, option in sorted(SPARK_OPTIONS.items()):
        also = [f"`{old}`" for old in older.get(name, []) if old.startswith("hoodie.datasource.")]
        names_text = f"`{name}`" + (f", formerly {', '.join(also)}" if also else "")
        row = (option.kind, option.meaning, *([name] if option.kind == "honoured" else []))
        rows.setdefault(row, []).append(names_text)
    lines = [f"| {', '.join(names)} | {row[0]} | {row[1]} |" for row, names in rows.items()]
    return "\n".join(["| option | | meaning |", "|---|---|---|", *lines])


#: What SQL can do, for those who ask for more.
NO_CATALOG_TABLE: Final = (
    "Spark's catalog cannot hold a lakefmt table, because it hands a data source in Python no options, not even the path: "
    "save(path) or start(path) makes the table, SELECT and INSERT INTO work on a view of it (CREATE TEMPORARY VIEW name USING "
    "lakefmt OPTIONS (path '…', 'lakefmt.meta_columns' 'false')), and rows change by the operations upsert and delete"
)
#: The mark of a DataFrame that ``load`` gave: its state stays that of its first query, in views of it, too.
KEEPS_STATE: Final = "lakefmt.spark.keeps.state"
#: Options that become properties of a table that a write creates, with what Hudi's Spark data source takes by default.
_TABLE_PROPERTIES: Final = {
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.datasource.write.drop.partition.columns": None,
    "hoodie.populate.meta.fields": None,
    "hoodie.table.cdc.enabled": None,
    "hoodie.table.cdc.supplemental.logging.mode": None,
    "hoodie.table.partial.update.mode": None,
    "hoodie.index.type": None,
    "hoodie.bucket.index.num.buckets": None,
    "hoodie.bucket.index.hash.field": None,
    "hoodie.index.bucket.engine": None,
}
_KEY_GENERATORS: Final = {
    "hoodie.datasource.write.keygenerator.class": "hoodie.table.keygenerator.class",
    "hoodie.datasource.write.keygenerator.type": "hoodie.table.keygenerator.type",
}
_TIMED_PREFIX: Final = "hoodie.keygen."
_OLD_TIMED_PREFIX: Final = "hoodie.deltastreamer.keygen."
_TIMEBASED_PREFIX: Final = f"{_TIMED_PREFIX}timebased."
_OPERATION_OPTION: Final = "hoodie.datasource.write.operation"
_MERGE_MODE: Final = "hoodie.write.record.merge.mode"
_PAYLOAD_OPTION: Final = "hoodie.datasource.write.payload.class"
#: Payload classes that say no more than a merge mode, and the one that deletes.
_MERGE_MODE_OF_PAYLOAD: Final = {
    "DefaultHoodieRecordPayload": "EVENT_TIME_ORDERING",
    "EventTimeAvroPayload": "EVENT_TIME_ORDERING",
    "OverwriteWithLatestAvroPayload": "COMMIT_TIME_ORDERING",
}
_DELETING_PAYLOAD: Final = "EmptyHoodieRecordPayload"
_STRATEGY_OPTION: Final = "hoodie.write.record.merge.strategy.id"
_MERGERS_OPTION: Final = "hoodie.write.record.merge.custom.implementation.classes"
#: Mergers of Hudi that say no more than a merge mode; None: than the payload class.
_MODE_OF_MERGER: Final = {
    "DefaultSparkRecordMerger": "EVENT_TIME_ORDERING",
    "HoodieSparkRecordMerger": None,
    "HoodieAvroRecordMerger": None,
    "OverwriteWithLatestSparkRecordMerger": "COMMIT_TIME_ORDERING",
    "OverwriteWithLatestMerger": "COMMIT_TIME_ORDERING",
}
_MODE_OF_STRATEGY: Final = {identifier: mode.value for mode, identifier in STRATEGY_IDS.items()}
#: The strategy of a payload class.
_PAYLOAD_STRATEGY: Final = "00000000-0000-0000-0000-000000000000"
_ORDERING_OPTION: Final = "hoodie.datasource.write.precombine.field"
_UNKNOWN_OPTION: Final = "lakefmt.unknown.options"
#: Properties that are settings of a call, too: a table's own index is looked after elsewhere.
_INDEX_PROPERTIES: Final = frozenset(name for name in _TABLE_PROPERTIES if "index" in name)
_MERGE_MODES: Final = {"EVENT_TIME_ORDERING": "event_time", "COMMIT_TIME_ORDERING": "commit_time"}
_TABLE_TYPES: Final = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}
_OPERATIONS: Final = (
    "upsert",
    "insert",
    "bulk_insert",
    "delete",
    "insert_overwrite",
    "insert_overwrite_table",
    "delete_partition",
)
_QUERY_TYPES: Final = ("snapshot", "read_optimized", "incremental")
_STORAGE_PREFIX: Final = "storage."
_META_COLUMNS: Final = "lakefmt.meta_columns"
_SPLIT_BYTES: Final = "lakefmt.spark.read.split.bytes"
_ZONELESS_OPTION: Final = "lakefmt.spark.timestamp_ntz"
_SMALL_FILES: Final = "lakefmt.write.small.files"
_IMAGES_OPTION: Final = "lakefmt.spark.cdc.images"
_FILTER_OPTION: Final = "lakefmt.spark.read.filter"
_NATIVE_OPTION: Final = "lakefmt.spark.read.native"
_FALLBACK_OPTION: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
_FILLING_OPTIONS: Final = ("hoodie.datasource.write.reconcile.schema", "hoodie.write.set.null.for.missing.columns")
_EPOCH: Final = re.compile(r"([0-9]{10})([0-9]{3})?")
_FIRST_SECOND: Final = dt.datetime(1970, 1, 1)
_DATE_AND_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,3}))?)?"
)
#: Settings with capitals, by their names as Spark hands them.
_CAPITAL_SETTINGS: Final = {name.lower(): name for name in SETTINGS if name != name.lower()}
#: Table properties that are no settings of a call: they go to the creation alone.
_CREATION_OPTIONS: Final = frozenset(
    {
        *_TABLE_PROPERTIES,
        _MERGE_MODE,
        "hoodie.database.name",
    }
)


@dataclass(frozen=True, slots=True)
class WriteCall:
    """One write of a DataFrame.

    Attributes:
        operation: Hudi's name of the operation; None: upsert, and insert where the table has no record key.
        creation: arguments of ``create_table`` but the schema; used if there is no table.
        settings: settings of the call.
        restated: properties that were given, which have to be those of a table that is there.
        merging: the merge mode that was given, by its own name or that of a payload class; likewise.
        commit_metadata: texts for the commit.
        partitions: the partitions to delete.
        storage: credentials and settings of the store.
        fills_missing: columns that the rows lack are filled with null.
        zoneless: what becomes of times without a zone: ``refuse`` or ``utc``.
        notes: options that change nothing, each with the reason.
        entries: what the commit says, decided under the table lock; only for a table that is there.
    """

    operation: str | None
    creation: Mapping[str, Any]
    settings: Mapping[str, str]
    restated: Mapping[str, str] = field(default_factory=dict)
    merging: str | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    fills_missing: bool = False
    zoneless: str = "refuse"
    notes: tuple[str, ...] = ()
    entries: CommitEntries | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReadCall:
    """One read.

    Attributes:
        query: ``snapshot``, ``read_optimized``, ``incremental`` or ``cdc``.
        as_of: the instant of a time travel query.
        start: exclusive start of an incremental query.
        end: inclusive end of an incremental query.
        meta_columns: also the five ``_hoodie_*`` columns.
        settings: settings of the call.
        split_bytes: about how many bytes of files one task reads; None: as the table's size asks.
        path_glob: of an incremental query: what the end of a file's path must match.
        falls_back: of an incremental query: rows of files that were cleaned away come from the newest files.
        native: whether Spark's own Parquet reader may read files: ``auto``: on a local file system; ``always``, ``never``.
        filter: SQL text; only rows that it selects are read.
        images: of a query of changes: ``json``, or ``struct``: the form of the rows before and after.
        storage: credentials and settings of the store.
        notes: options that change nothing, each with the reason.
    """

    query: str
    as_of: str | None = None
    start: str = "000"
    end: str | None = None
    meta_columns: bool = True
    split_bytes: int | None = None
    path_glob: str | None = None
    falls_back: bool = True
    native: str = "auto"
    filter: str | None = None
    images: str = "json"
    settings: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Return options as Spark writes them: texts, flags in small letters; None leaves an option out."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


_T = TypeVar("_T")


class _Problems:
    """What is wrong with options, gathered so that one error tells all of it."""

    def __init__(self) -> None:
        self.found: list[UnknownSetting | UnsupportedFeature | InvalidInputError] = []
        self.notes: list[str] = []

    def gather(self, step: Callable[[], _T], otherwise: _T) -> _T:
        """Return what a step gives, or keep what it raises."""
        try:
            return step()
        except (UnsupportedFeature, InvalidInputError) as problem:
            self.found.append(problem)
            return otherwise


def parse_write_options(options: Mapping[str, str]) -> WriteCall:
    """Return what the options of a write ask for.

    Args:
        options: names in any case of letters.

    Raises:
        UnknownSetting: an option that neither Hudi nor lakefmt knows, or a value that it does not take. All problems are in
            one error.
        UnsupportedFeature: an option that would break a promise.

    Example:
        >>> call = parse_write_options({"hoodie.datasource.write.recordkey.field": "id,day", "hoodie.table.name": "t"})
        >>> call.creation["record_key"], call.creation["properties"]["hoodie.datasource.write.hive_style_partitioning"]
        (['id', 'day'], 'false')
    """
    problems = _Problems()
    remaining, storage = _split_storage(options, problems)
    prefix = remaining.pop("hoodie.datasource.write.commitmeta.key.prefix", "_")
    metadata = {name: remaining.pop(name) for name in sorted(remaining) if prefix and name.startswith(prefix)}
    operation = remaining.pop(_OPERATION_OPTION, None)
    if operation is not None:
        operation = problems.gather(lambda: _checked_choice("operation", str(operation), _OPERATIONS), "upsert")
        remaining[_OPERATION_OPTION] = operation
    partitions = remaining.pop("hoodie.datasource.write.partitions.to.delete", "")
    fills = [problems.gather(lambda name=name: _take_flag(remaining, name, False), False) for name in _FILLING_OPTIONS]  # type: ignore[misc]
    problems.gather(lambda: _take_duplicates_policy(remaining), None)
    zoneless = problems.gather(
        lambda: _checked_choice(_ZONELESS_OPTION, remaining.pop(_ZONELESS_OPTION, "refuse"), ("refuse", "utc")),
        "refuse",
    )
    merging = problems.gather(lambda: _merge_mode_or_payload(remaining), None)
    problems.gather(lambda: _take_payload_ordering(remaining), None)
    # Hudi's way, as with every default here: a small file is rewritten with the updates of its rows.
    settings = {_SMALL_FILES: "fill", **_call_settings(remaining, problems)}
    no_arguments: dict[str, Any] = {}
    creation = problems.gather(lambda: _creation_arguments(remaining, merging), no_arguments)
    raise_problems(problems.found)
    return WriteCall(
        operation,
        creation,
        settings,
        _stated_properties(remaining),
        merging,
        metadata,
        tuple(part.strip() for part in partitions.split(",") if part.strip()),
        storage,
        any(fills),
        zoneless,
        tuple(problems.notes),
    )


def _take_duplicates_policy(options: dict[str, str]) -> None:
    policy = options.pop("hoodie.datasource.insert.dup.policy", "none")
    if _checked_choice("hoodie.datasource.insert.dup.policy", policy, ("none", "drop")) == "drop":
        options.setdefault("hoodie.datasource.write.insert.drop.duplicates", "true")


def _take_payload_ordering(options: dict[str, str]) -> None:
    """Take the ordering column of the payload out of the options: it is that of the table."""
    column = options.pop("hoodie.payload.ordering.field", "").strip()
    ordering = options.get(_ORDERING_OPTION, "").strip()
    if column and ordering and column != ordering:
        raise InvalidInputError(
            f"hoodie.payload.ordering.field={column} and {_ORDERING_OPTION}={ordering} contradict each other: say the second"
        )
    if column:
        options[_ORDERING_OPTION] = column


def parse_read_options(options: Mapping[str, str]) -> ReadCall:
    """Return what the options of a read ask for.

    Raises:
        UnknownSetting: an option that is not known, or a value that it does not take. All problems are in one error.
        InvalidInputError: options that contradict each other.

    Example:
        >>> parse_read_options({"hoodie.datasource.query.type": "read_optimized"}).query
        'read_optimized'
    """
    problems = _Problems()
    remaining, storage = _split_storage(options, problems)

    def choice(name: str, default: str, choices: tuple[str, ...]) -> str:
        return problems.gather(lambda: _checked_choice(name, remaining.pop(name, default), choices), default)

    def flag(name: str) -> bool:
        return problems.gather(lambda: _take_flag(remaining, name, True), True)

    query = choice("hoodie.datasource.query.type", "snapshot", _QUERY_TYPES)
    shape = choice("hoodie.datasource.query.incremental.format", "latest_state", ("latest_state", "cdc"))
    as_of = _instant_digits(remaining.pop("as.of.instant", None))
    start = _instant_digits(remaining.pop("hoodie.datasource.read.begin.instanttime", None))
    end = _instant_digits(remaining.pop("hoodie.datasource.read.end.instanttime", None))
    meta_columns, falls_back = flag(_META_COLUMNS), flag(_FALLBACK_OPTION)
    native = choice(_NATIVE_OPTION, "auto", ("auto", "always", "never"))
    images = choice(_IMAGES_OPTION, "json", ("json", "struct"))
    where = remaining.pop(_FILTER_OPTION, "").strip()
    glob = remaining.pop("hoodie.datasource.read.incr.path.glob", "")
    split_bytes = problems.gather(lambda: _take_bytes(remaining, _SPLIT_BYTES), 0)
    if query != "incremental" and (start or end):
        problems.found.append(
            InvalidInputError(
                "hoodie.datasource.read.begin.instanttime and end need hoodie.datasource.query.type=incremental"
            )
        )
    if query == "incremental" and as_of:
        problems.found.append(
            InvalidInputError("as.of.instant and an incremental query do not go together: name an end instead")
        )
    settings = _call_settings(remaining, problems)
    raise_problems(problems.found)
    return ReadCall(
        "cdc" if query == "incremental" and shape == "cdc" else query,
        as_of,
        _start_instant(start),
        end,
        meta_columns,
        split_bytes or None,
        glob or None,
        falls_back,
        native,
        where or None,
        images,
        settings,
        storage,
        tuple(problems.notes),
    )


def _take_bytes(options: dict[str, str], name: str) -> int:
    value = options.pop(name, "0")
    if not value.isdecimal() or len(value) > 18:
        raise InvalidInputError(f"{name} takes a number of bytes, not {value[:40]!r}")
    return int(value)


def _instant_digits(value: str | None) -> str | None:
    """Return a date, a date and time, or seconds or milliseconds since 1970, as the digits of an instant; other text as it is.

    So does Hudi: what has no zone is in that of the table's timeline, which is UTC in tables of lakefmt.

    Example:
        >>> _instant_digits("2021-07-28 14:11:08.200"), _instant_digits("2021-07-28"), _instant_digits("earliest")
        ('20210728141108200', '20210728000000000', 'earliest')
        >>> _instant_digits("1627481468"), _instant_digits("1627481468200")
        ('20210728141108000', '20210728141108200')
    """
    if value is not None and (since := _EPOCH.fullmatch(value.strip())):
        seconds, milliseconds = since.groups(default="000")
        return f"{_FIRST_SECOND + dt.timedelta(seconds=int(seconds)):%Y%m%d%H%M%S}{milliseconds}"
    match = None if value is None else _DATE_AND_TIME.fullmatch(value.strip())
    if match is None:
        return value
    year, month, day, hour, minute, second, milliseconds = match.groups(default="")
    digits = f"{year}{month}{day}{hour or '00'}{minute or '00'}{second or '00'}"
    return digits + milliseconds.ljust(3, "0")


def _start_instant(value: str | None) -> str:
    return "000" if value is None or value.lower() == "earliest" else value


def _split_storage(options: Mapping[str, str], problems: _Problems) -> tuple[dict[str, str], dict[str, object]]:
    """Return the options under their present names, and those of the store."""
    present_options: dict[str, str] = {}
    storage: dict[str, object] = {}
    for written, value in options.items():
        name = written.lower()
        if name.startswith(_STORAGE_PREFIX):
            storage[written[len(_STORAGE_PREFIX) :]] = value
        elif name not in ("path", "paths", KEEPS_STATE):
            name = _CAPITAL_SETTINGS.get(name) or ALIASES.get(name, name)
            if name.startswith(_OLD_TIMED_PREFIX):
                name = _TIMED_PREFIX + name[len(_OLD_TIMED_PREFIX) :]
            if present_options.get(name, value) != value:
                problems.found.append(InvalidInputError(f"the option {name} is given twice, with two values"))
            present_options[name] = value
    return present_options, storage


def _take_flag(options: dict[str, str], name: str, default: bool) -> bool:
    """Take a flag out of the options."""
    return _checked_choice(name, options.pop(name, str(default)), ("true", "false")) == "true"


def _checked_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise UnknownSetting(f"{name} does not take {value!r}: expected {', '.join(choices)}")
    return value.lower()


def _call_settings(options: Mapping[str, str], problems: _Problems) -> dict[str, str]:
    """Return the options that are settings of a call of the table; keep what is wrong with others, and what changes nothing."""
    settings: dict[str, str] = {}
    leaves_unknown_out = options.get(_UNKNOWN_OPTION, "").lower() == "warn"
    for name, value in options.items():
        option = find_option(name)
        if option is not None and option.refuses(value):
            problems.found.append(UnsupportedFeature(f"{name}={value} is not supported: {option.meaning}"))
        elif name in SETTINGS and (option is None or option.kind == "honoured"):
            settings[name] = value
            resolved = problems.gather(lambda name=name, value=value: resolve_settings({name: value}), None)  # type: ignore[misc]
            problems.notes += [] if resolved is None else resolved.notes
        elif option is not None:
            problems.notes += [f"{name} has no effect: {option.meaning}"] if option.kind == "inert" else []
        elif not (name in _CREATION_OPTIONS or name.startswith(_TIMED_PREFIX)):
            _sort_published(name, value, leaves_unknown_out, problems)
    return settings


def _sort_published(name: str, value: str, leaves_unknown_out: bool, problems: _Problems) -> None:
    """Keep what becomes of an option that lakefmt does not have."""
    published = find_published(name)
    if published is None and leaves_unknown_out:
        problems.notes.append(f"{name} has no effect: there is no such option")
    elif published is None:
        near = similar_names(name, (*SPARK_OPTIONS, *ALIASES))
        hint = f"did you mean {near[0]!r}?" if near else f"{_UNKNOWN_OPTION}=warn leaves it out with a warning"
        problems.found.append(UnknownSetting(f"unknown option {name!r}: {hint}"))
    elif published.refuses(value):
        problems.found.append(UnsupportedFeature(f"{name}={value} is not supported: {published.reason}"))
    elif published.kind is OptionClass.INERT:
        problems.notes.append(f"{name} has no effect: {published.reason}")


def _merge_mode_or_payload(options: dict[str, str]) -> str | None:
    """Return the merge mode that options ask for, or the payload class that a table has to have; None: they ask for none.

    A class is taken out of the options, but that which deletes.
    """
    if options.get(_MERGE_MODE, "").upper() == "CUSTOM" and options.get(_PAYLOAD_OPTION, "").strip():
        del options[_MERGE_MODE]  # so the class says it
    mode = options.get(_MERGE_MODE)
    if mode is not None and mode.upper() not in _MERGE_MODES:
        raise UnsupportedFeature(
            f"{_MERGE_MODE}={mode} is not supported: {', '.join(_MERGE_MODES)} are, and CUSTOM with a payload class of Hudi's own"
        )
    stated = {_MERGE_MODE: None if mode is None else mode.upper()}
    for name in (_STRATEGY_OPTION, _MERGERS_OPTION):
        stated[name] = _mode_of_merger(name, options.pop(name, ""))
    payload = options.get(_PAYLOAD_OPTION, "").strip()
    short = payload.rsplit(".", 1)[-1]
    if payload and short != _DELETING_PAYLOAD:
        del options[_PAYLOAD_OPTION]
        stated[_PAYLOAD_OPTION] = _MERGE_MODE_OF_PAYLOAD.get(short, payload)
    modes = {name: value for name, value in stated.items() if value is not None}
    if len(set(modes.values())) > 1:
        raise InvalidInputError(
            f"{' and '.join(f'{name} ({value})' for name, value in modes.items())} contradict each other: leave one of them out"
        )
    return next(iter(modes.values()), None)


def _mode_of_merger(name: str, mergers: str) -> str | None:
    """Return the merge mode that Hudi's own mergers, or the id of a strategy, ask for; None: none but that of the payload."""
    words = [word.strip() for word in mergers.split(",") if word.strip()]
    modes: set[str | None] = set()
    for word in words:
        short = word.rsplit(".", 1)[-1]
        if word == _PAYLOAD_STRATEGY:
            modes.add(None)
        elif word in _MODE_OF_STRATEGY or short in _MODE_OF_MERGER:
            modes.add(_MODE_OF_STRATEGY.get(word) or _MODE_OF_MERGER.get(short))
        else:
            raise UnsupportedFeature(
                f"{name}={word} is not supported: mergers of Java do not run in Python; name a merge mode, or a merger of your own"
            )
    modes.discard(None)
    return modes.pop() if len(modes) == 1 else None


def _stated_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are properties of a table and no settings of a call."""
    names = [
        name
        for name in options
        if name in _TABLE_PROPERTIES or name in _KEY_GENERATORS or name.startswith(_TIMEBASED_PREFIX)
    ]
    return {
        name: options[name]
        for name in (*names, "hoodie.database.name")
        if name in options and name not in _INDEX_PROPERTIES
    }


def _creation_arguments(options: Mapping[str, str], merging: str | None) -> dict[str, Any]:
    """Return the arguments of ``create_table`` for a table that the write creates, with the defaults of Hudi's data source."""
    properties = {name: options.get(name, default) for name, default in _TABLE_PROPERTIES.items()}
    properties |= {property_name: options.get(name) for name, property_name in _KEY_GENERATORS.items()}
    properties |= {name: value for name, value in options.items() if name.startswith(_TIMEBASED_PREFIX)}
    ordering = _field_names(options.get(_ORDERING_OPTION))
    if merging is not None and is_payload_class(merging):
        properties["hoodie.compaction.payload.class"] = merging
    # Hudi's default payload class says nothing in a table without an ordering column.
    merge = None if _MERGE_MODE not in options and ordering is None else _MERGE_MODES.get(merging or "")
    table_type = options.get("hoodie.datasource.write.table.type", "COPY_ON_WRITE").upper()
    version = options.get("hoodie.write.table.version", "8")
    if table_type not in _TABLE_TYPES:
        raise UnknownSetting(
            f"hoodie.datasource.write.table.type does not take {table_type!r}: expected {', '.join(_TABLE_TYPES)}"
        )
    if version not in ("6", "8", "9"):
        raise UnknownSetting(f"hoodie.write.table.version does not take {version!r}: expected 6, 8 or 9")
    return {
        "record_key": _field_names(options.get("hoodie.datasource.write.recordkey.field")),
        "partition_by": _field_names(options.get("hoodie.datasource.write.partitionpath.field")),
        "ordering": ordering,
        "table_type": _TABLE_TYPES[table_type],
        "table_version": int(version),
        "merge": merge,
        "name": options.get("hoodie.table.name"),
        "database": options.get("hoodie.database.name"),
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def _field_names(value: str | None) -> list[str] | None:
    names = [] if value is None else [name.strip() for name in value.split(",") if name.strip()]
    return names or None


_log = logging.getLogger("lakefmt.spark")
_said: Final[set[str]] = set()


def log_notes(notes: Sequence[str]) -> None:
    """Log what was not logged before, in one warning.

    Args:
        notes: of the options of a read or write, one for each option.
    """
    new = [note for note in notes if note not in _said]
    if new:
        _said.update(new)
        _log.warning("%d options change nothing: %s", len(new), "; ".join(new))


def with_notes(result: CommitResult, notes: Sequence[str]) -> CommitResult:
    """Return a result whose warnings have the notes, each once."""
    new = tuple(note for note in notes if note not in result.warnings)
    return replace(result, warnings=(*result.warnings, *new)) if new else result
