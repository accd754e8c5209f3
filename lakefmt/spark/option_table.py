"""The options of Hudi's Spark data source, and what becomes of each (pure).

The names and their defaults are those of Hudi 1.2.0. Not here are the settings of a table (docs/settings.md), which a call
of Spark takes as well.
"""

from __future__ import annotations

from typing import Final

from lakefmt.data_classes import dataclass

__all__ = ["ALIASES", "SPARK_OPTIONS", "SparkOption", "find_option", "options_markdown"]


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


_NO_SYNC: Final = "lakefmt does not sync to a catalog"
_NO_FUNCTION: Final = "`table.timeline` and `table.file_groups()` tell it, and so does the command line"
_DRIVER_LISTS: Final = "the driver lists, from the metadata table where there is one"
_SERVICES: Final = "table services add no rows here"
_VIEWS_ONLY: Final = "INSERT INTO a temporary view runs the operation of the view's options"

_WRITE: Final = "hoodie.datasource.write."
_READ: Final = "hoodie.datasource.read."
_SYNC: Final = "hoodie.datasource.hive_sync."

SPARK_OPTIONS: Final[dict[str, SparkOption]] = {
    # --- what is read
    "hoodie.datasource.query.type": _honoured("`snapshot` (default), `read_optimized` or `incremental`"),
    "hoodie.datasource.query.incremental.format": _honoured("`latest_state` (default) or `cdc`"),
    "as.of.instant": _honoured("the table as of an instant"),
    f"{_READ}begin.instanttime": _honoured("start of an incremental query, exclusive; `earliest` and `000`: all"),
    f"{_READ}end.instanttime": _honoured("end of an incremental query, inclusive; default: the newest commit"),
    f"{_READ}incr.path.glob": _honoured("of an incremental query: only files whose path matches, behind any beginning"),
    f"{_READ}incr.fallback.fulltablescan.enable": _honoured(
        "`true` (default): where a file of the range was cleaned away, its rows come from the newest files; `false`: an error"
    ),
    f"{_READ}incr.skip_cluster": _inert(_SERVICES),
    f"{_READ}incr.skip_compact": _inert(_SERVICES),
    f"{_READ}incr.filters": _refused("use `lakefmt.spark.read.filter`"),
    f"{_READ}incr.table.version": _refused("the table's own version decides"),
    f"{_READ}streaming.table.version": _refused("the table's own version decides"),
    f"{_READ}schema.use.end.instanttime": _refused("rows have the newest schema; `as.of.instant` reads older ones"),
    f"{_READ}paths": _refused("a table is read by its path; use `lakefmt.spark.read.filter` for partitions"),
    f"{_READ}extract.partition.values.from.path": _refused("partition columns are read from the files"),
    f"{_READ}partition.value.extractor.enabled": _refused("partition columns are read from the files"),
    "hoodie.datasource.merge.type": _refused(
        "logs are always merged; `read_optimized` reads base files alone", "payload_combine"
    ),
    f"{_READ}create.filesystem.relation": _refused(_NO_FUNCTION),
    f"{_READ}table.valued.function.filesystem.relation.subpath": _refused(_NO_FUNCTION),
    f"{_READ}table.valued.function.timeline.relation": _refused(_NO_FUNCTION),
    f"{_READ}table.valued.function.timeline.relation.archived": _refused(_NO_FUNCTION),
    f"{_READ}file.index.list.partitions.from.catalog": _inert(_DRIVER_LISTS),
    f"{_READ}file.index.listing.mode": _inert(_DRIVER_LISTS),
    f"{_READ}file.index.listing.partition-path-prefix.analysis.enabled": _inert(_DRIVER_LISTS),
    f"{_READ}file.index.optimize.listing.using.path.filter": _inert(_DRIVER_LISTS),
    "hoodie.file.index.enable": _inert(_DRIVER_LISTS),
    "hoodie.file.listing.parallelism": _inert(_DRIVER_LISTS),
    "hoodie.read.timeline.holes.resolution.policy": _inert(
        "a range ends before the first pending write (version 6), or goes by completion times"
    ),
    "hoodie.schema.on.read.enable": _inert("a schema history is followed wherever there is one"),
    # --- what is written
    f"{_WRITE}operation": _honoured(
        "`upsert` (default; `insert` without a record key), `insert`, `bulk_insert`, `delete`, `insert_overwrite`, "
        "`insert_overwrite_table`, `delete_partition`"
    ),
    f"{_WRITE}recordkey.field": _honoured("key columns of a table that is created; must agree with one that is there"),
    f"{_WRITE}partitionpath.field": _honoured("partition columns, in the same way"),
    f"{_WRITE}precombine.field": _honoured("ordering columns, in the same way; also `hoodie.table.ordering.fields`"),
    f"{_WRITE}table.type": _honoured("`COPY_ON_WRITE` (default) or `MERGE_ON_READ`"),
    f"{_WRITE}table.name": _honoured("name of a table that is created; default: the last part of the path"),
    f"{_WRITE}keygenerator.class": _honoured(
        "Hudi's key generators, by class; `….keygenerator.type` by type; must agree with a table that is there"
    ),
    f"{_WRITE}hive_style_partitioning": _honoured("default `false`, as Hudi has it"),
    f"{_WRITE}partitionpath.urlencode": _honoured("default `false`, as Hudi has it"),
    f"{_WRITE}drop.partition.columns": _honoured("default `false`"),
    f"{_WRITE}partitions.to.delete": _honoured("the partitions of the operation `delete_partition`"),
    f"{_WRITE}insert.drop.duplicates": _honoured("an insert leaves stored keys out"),
    "hoodie.datasource.insert.dup.policy": _honoured("`none` (default), or `drop`: as the option above; not `fail`"),
    f"{_WRITE}commitmeta.key.prefix": _honoured("options that begin so go into the commit; default `_`"),
    f"{_WRITE}payload.class": _honoured(
        "`DefaultHoodieRecordPayload` and `EventTimeAvroPayload`: the larger ordering value wins; "
        "`OverwriteWithLatestAvroPayload`: the later write; `EmptyHoodieRecordPayload`: keys are deleted; others are refused, "
        "but for the table's own"
    ),
    "hoodie.write.record.merge.mode": _honoured("`EVENT_TIME_ORDERING` or `COMMIT_TIME_ORDERING`"),
    "hoodie.write.record.merge.strategy.id": _refused("name the merge mode"),
    "hoodie.write.record.merge.custom.implementation.classes": _refused("mergers of Java do not run in Python"),
    f"{_WRITE}reconcile.schema": _honoured("`true`: columns that the rows lack are filled with null"),
    "hoodie.write.set.null.for.missing.columns": _honoured("the same"),
    f"{_WRITE}secondarykey.column": _refused("make the index: `table.index.create`"),
    f"{_WRITE}keygenerator.consistent.logical.timestamp.enabled": _honoured(
        "times in keys are dates, not numbers; what is stored counts before it"
    ),
    f"{_WRITE}row.writer.enable": _inert("rows always come as Arrow batches"),
    # --- streams
    f"{_WRITE}streaming.checkpoint.identifier": _honoured(
        "of a stream: tells the streams apart that write one table; default `default_single_writer`"
    ),
    f"{_WRITE}streaming.retry.count": _honoured("of a stream: how often a batch is tried; default 3"),
    f"{_WRITE}streaming.retry.interval.ms": _honoured(
        "of a stream: pause between tries, doubled each time; default 2000"
    ),
    f"{_WRITE}streaming.ignore.failed.batch": _honoured("of a stream: `true` leaves a batch out that fails every time"),
    f"{_WRITE}streaming.disable.compaction": _honoured("of a stream: `true`: no compaction beside it"),
    "hoodie.datasource.compaction.async.enable": _honoured(
        "of a stream: a merge-on-read table is compacted beside it; default `true`"
    ),
    "hoodie.clustering.async.enabled": _honoured(
        "of a stream: the table is clustered beside it, every `hoodie.clustering.async.max.commits` commits (default 4); default "
        "`false`; a write that is no stream plans no clustering by it, as in Hudi"
    ),
    "hoodie.datasource.streaming.startoffset": _honoured(
        "of a stream that reads, without a checkpoint: `earliest` (default), `latest` or a time; written `startOffset`"
    ),
    "maxfilespertrigger": _honoured(
        "of a stream that reads: about how many files a batch takes; `maxFilesPerTrigger`; from PySpark 4.2 on"
    ),
    "maxbytespertrigger": _honoured(
        "of a stream that reads: about how many bytes a batch takes; `maxBytesPerTrigger`; from PySpark 4.2 on"
    ),
    "failondataloss": _honoured("of a stream that reads: `false` leaves out what a clean removed; `failOnDataLoss`"),
    "checkpointlocation": _inert("Spark's own"),
    # --- other writers
    "hoodie.datasource.overwrite.mode": _inert("the operation says what is overwritten"),
    "hoodie.sql.insert.mode": _inert(_VIEWS_ONLY),
    "hoodie.sql.bulk.insert.enable": _inert(_VIEWS_ONLY),
    "hoodie.spark.sql.insert.into.operation": _inert(_VIEWS_ONLY),
    "hoodie.spark.sql.merge.into.partial.updates": _inert("Spark has no MERGE INTO for a data source in Python"),
    "hoodie.spark.sql.optimized.writes.enable": _inert("Spark has no UPDATE and DELETE for a data source in Python"),
    # --- catalogs
    f"{_SYNC}enable": _refused(_NO_SYNC),
    f"{_SYNC}*": _inert(_NO_SYNC),
    "hoodie.datasource.meta.sync.enable": _refused(_NO_SYNC),
    "hoodie.datasource.meta.sync.*": _inert(_NO_SYNC),
    "hoodie.datasource.meta_sync.condition.sync": _inert(_NO_SYNC),
    "hoodie.datasource.partition_extractor_class": _inert(_NO_SYNC),
    "hoodie.meta.sync.client.tool.class": _inert(_NO_SYNC),
    "hoodie.spark.polaris.catalog.class": _inert(_NO_SYNC),
    "hoodie.streamer.source.kafka.value.deserializer.class": _inert("of Hudi's own ingestion tool"),
    # --- lakefmt's own
    "lakefmt.meta_columns": _honoured("of a read: also the five `_hoodie_*` columns; default `true`"),
    "lakefmt.spark.cdc.images": _honoured(
        "of a query of changes: `before` and `after` are texts of JSON (`json`, default, as in Hudi) or structs (`struct`)"
    ),
    "lakefmt.spark.read.filter": _honoured(
        "of a read: SQL text as `Table.read` takes it; partitions and files without such rows are left out before there are tasks"
    ),
    "lakefmt.spark.read.native": _honoured(
        "of a read: Spark's own Parquet reader reads files that need no merge: `auto` (default): on a local file system; "
        "`always`: on others, too, with Hadoop's credentials; `never`"
    ),
    "lakefmt.spark.read.split.bytes": _honoured(
        "of a read: about the bytes of files of one task; default: a few tasks a slot"
    ),
    "lakefmt.spark.timestamp_ntz": _honoured(
        "of a write: `refuse` (default): columns of `timestamp_ntz` are refused; `utc`: their values are times in UTC"
    ),
    "lakefmt.spark.stage.max.bytes": _honoured("of a write: bytes of rows that one process may take; default 1 GiB"),
    "lakefmt.spark.driver.max.rows": _honoured(
        "of a write by functions: the driver writes no more rows; default 50,000"
    ),
    "lakefmt.spark.driver.max.bytes": _honoured("the same in bytes of rows, as Arrow holds them; default 32 MiB"),
    "lakefmt.spark.driver.max.partitions": _honoured("the same in partition paths of the rows; default 1,000"),
    "lakefmt.spark.task.bytes": _honoured("of a write by functions: rows and stored files of one task; default 64 MiB"),
    "lakefmt.spark.task.max.bytes": _honoured(
        "rows of one partition path that one task takes; of more, keys are looked up first; default 256 MiB"
    ),
    "hoodie.bulkinsert.sort.mode": _honoured(
        "of a write by functions: `NONE` (default), `PARTITION_SORT` or `GLOBAL_SORT`"
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
}


def find_option(name: str) -> SparkOption | None:
    """Return the row of an option, or that of its family (``….*``); None: the table has none.

    Example:
        >>> find_option("hoodie.datasource.hive_sync.database").kind
        'inert'
    """
    families = (row for family, row in SPARK_OPTIONS.items() if family.endswith("*") and name.startswith(family[:-1]))
    return SPARK_OPTIONS.get(name) or next(families, None)


def options_markdown() -> str:
    """Return the table of docs/spark.md."""
    older = {new: sorted(old for old, name in ALIASES.items() if name == new) for new in ALIASES.values()}
    rows = []
    for name, option in sorted(SPARK_OPTIONS.items()):
        also = [f"`{old}`" for old in older.get(name, []) if old.startswith("hoodie.datasource.")]
        shown = f"`{name}`" + (f", formerly {', '.join(also)}" if also else "")
        rows.append(f"| {shown} | {option.kind} | {option.meaning} |")
    return "\n".join(["| option | | meaning |", "|---|---|---|", *rows])
