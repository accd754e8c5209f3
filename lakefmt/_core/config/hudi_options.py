"""Hudi's published options that are no settings of lakefmt: what becomes of each (pure).

Settings are in :mod:`lakefmt._core.config.catalog`, options of Spark's data source in :mod:`lakefmt.spark.options`; every other name
that Hudi 0.15 to 1.2 publishes is here, with its reason. Only who meets a name that is no setting imports this module.
``tools/hudi_option_names.py`` asks Hudi's JARs for the names, and a test that none is missing.
"""

from __future__ import annotations

import enum
from difflib import get_close_matches
from functools import cache
from typing import Final

from lakefmt._core.config.catalog import ALL_SETTINGS, Setting, SettingClass
from lakefmt._core.data_classes import dataclass

__all__ = [
    "OptionClass",
    "PublishedOption",
    "find_published",
    "published_markdown",
    "published_options",
    "setting_of",
    "similar_names",
]


class OptionClass(enum.Enum):
    """How lakefmt treats a published option that is no setting."""

    INERT = "inert"
    REFUSED = "refused"
    TABLE = "table"
    DATA_SOURCE = "data source"
    ALIAS = "honoured"


@dataclass(frozen=True, slots=True)
class PublishedOption:
    """One published option.

    Attributes:
        name: as Hudi writes it.
        kind: how it is treated.
        reason: why, or what says the same.
        harmless: values of a refused option that ask for nothing.
        table_key: the table's property that it repeats; of an alias the setting that it names.
        default: the value of a table that does not say it.
    """

    name: str
    kind: OptionClass
    reason: str
    harmless: tuple[str, ...] = ()
    table_key: str | None = None
    default: str | None = None

    def refuses(self, value: str) -> bool:
        """Return whether a value asks for something that does not exist."""
        nothing = self.harmless or ("false",)
        return self.kind is OptionClass.REFUSED and value.strip().lower() not in ("", *(v.lower() for v in nothing))


#: Names that change nothing here, by the reason.
_INERT: Final = {
    "there is no server of the file system's view, and no view that spills": """
        hoodie.filesystem.remote.backup.view.enable hoodie.filesystem.view.incr.timeline.sync.enable
        hoodie.filesystem.view.remote.host hoodie.filesystem.view.remote.port
        hoodie.filesystem.view.remote.retry.enable hoodie.filesystem.view.remote.retry.exceptions
        hoodie.filesystem.view.remote.retry.initial_interval_ms
        hoodie.filesystem.view.remote.retry.max_interval_ms hoodie.filesystem.view.remote.retry.max_numbers
        hoodie.filesystem.view.remote.timeout.secs hoodie.filesystem.view.rocksdb.base.path
        hoodie.filesystem.view.secondary.type hoodie.filesystem.view.spillable.bootstrap.base.file.mem.fraction
        hoodie.filesystem.view.spillable.clustering.mem.fraction
        hoodie.filesystem.view.spillable.compaction.mem.fraction hoodie.filesystem.view.spillable.dir
        hoodie.filesystem.view.spillable.log.compaction.mem.fraction hoodie.filesystem.view.spillable.mem
        hoodie.filesystem.view.spillable.replaced.mem.fraction hoodie.filesystem.view.type
        hoodie.file.index.cache.spillable.mem hoodie.file.index.cache.use.spillable.map
    """,
    "stores retry by themselves; options of the store are `storage_options`": """
        hoodie.filesystem.operation.retry.enable hoodie.filesystem.operation.retry.exceptions
        hoodie.filesystem.operation.retry.initial_interval_ms hoodie.filesystem.operation.retry.max_interval_ms
        hoodie.filesystem.operation.retry.max_numbers hoodie.fs.atomic_creation.support hoodie.storage.class
        hoodie.base.path
    """,
    "stores are consistent": """
        hoodie.consistency.check.enabled hoodie.consistency.check.initial_interval_ms
        hoodie.consistency.check.max_checks hoodie.consistency.check.max_interval_ms
        hoodie.optimistic.consistency.guard.sleep_time_ms _hoodie.optimistic.consistency.guard.enable
    """,
    "there is no timeline server": """
        hoodie.embed.timeline.server.async hoodie.embed.timeline.server.gzip hoodie.embed.timeline.server.port
        hoodie.embed.timeline.server.reuse.enabled hoodie.embed.timeline.server.threads
        hoodie.instant_state.timeline_server_based.enabled
        hoodie.instant_state.timeline_server_based.force_refresh.request.number
        hoodie.markers.timeline_server_based.batch.interval_ms
        hoodie.markers.timeline_server_based.batch.num_threads
        hoodie.write.concurrency.async.conflict.detector.initial_delay_ms
        hoodie.write.concurrency.async.conflict.detector.period_ms
    """,
    "how much runs at a time is said by `lakefmt.write.threads`, or by Spark": """
        hoodie.archive.delete.parallelism hoodie.clean.parallelism hoodie.cleaner.parallelism
        hoodie.clean.optimize.using.local.engine.context hoodie.clustering.group.read.parallelism
        hoodie.clustering.max.parallelism hoodie.clustering.plan.generation.use.local.engine.context
        hoodie.errortable.insert.shuffle.parallelism hoodie.errortable.upsert.shuffle.parallelism
        hoodie.bootstrap.parallelism hoodie.bloom.index.bucketized.checking.enable.dynamic.parallelism
        hoodie.bucket.index.remote.partitioner.enable hoodie.global.index.reconcile.parallelism
        hoodie.finalize.write.parallelism hoodie.markers.delete.parallelism hoodie.rollback.parallelism
        hoodie.metadata.index.bloom.filter.parallelism hoodie.metadata.index.column.stats.parallelism
        hoodie.metadata.index.expression.parallelism hoodie.metadata.index.partition.stats.parallelism
        hoodie.metadata.index.secondary.parallelism hoodie.metadata.max.init.parallelism
        hoodie.metadata.record.preparation.parallelism hoodie.metadata.repartition.default.partitions
        hoodie.metadata.repartition.min.partitions.threshold hoodie.metadata.range.repartition.random.seed
        hoodie.metadata.range.repartition.sampling.fraction
        hoodie.metadata.range.repartition.target.records.per.partition
        hoodie.metadata.streaming.write.datatable.write.statuses.coalesce.divisor
    """,
    "rows that wait are bounded by `lakefmt.write.window.bytes`": """
        hoodie.common.diskmap.compression.enabled hoodie.common.spillable.diskmap.type
        hoodie.memory.compaction.fraction hoodie.memory.compaction.max.size hoodie.memory.dfs.buffer.max.size
        hoodie.memory.merge.fraction hoodie.memory.merge.max.size hoodie.memory.spillable.map.path
        hoodie.memory.writestatus.failure.fraction hoodie.cdc.file.group.iterator.memory.spill.bytes
        hoodie.metadata.spillable.map.path hoodie.metadata.max.reader.memory
        hoodie.metadata.max.reader.buffer.size hoodie.metadata.file.cache.max.size.mb
        hoodie.hfile.block.cache.enabled hoodie.hfile.block.cache.size hoodie.hfile.block.cache.ttl.minutes
        hoodie.write.buffer.limit.bytes hoodie.write.buffer.record.cache.limit
        hoodie.write.buffer.record.sampling.rate hoodie.write.executor.disruptor.buffer.limit.bytes
        hoodie.write.executor.disruptor.wait.strategy hoodie.write.executor.type
        hoodie.release.resource.on.completion.enable
    """,
    "rows are Arrow batches, which Spark does not keep for a write": """
        hoodie.write.status.storage.level hoodie.write.tagged.record.storage.level
        hoodie.simple.index.input.storage.level hoodie.expression.index.range.metadata.storage.level
        hoodie.errortable.source.rdd.persist
    """,
    "one merge of rows serves every write, read and service; its Java classes are not asked": """
        hoodie.compact.merge.handle.class hoodie.write.concat.handle.class hoodie.write.merge.handle.class
        hoodie.write.merge.handle.fallback hoodie.writestatus.class hoodie.io.factory.class
        hoodie.avro.write.support.class hoodie.parquet.spark.row.write.support.class
        hoodie.parquet.flink.rowdata.write.support.class hoodie.fileid.prefix.provider.class
        hoodie.record.size.estimator.class hoodie.record.size.estimator.average.metadata.size
        _hoodie.record.size.estimator.max.commits hoodie.record.size.estimation.threshold
        hoodie.storage.layout.partitioner.class hoodie.compaction.plan.generator
        hoodie.file.group.reader.enabled hoodie.datasource.read.use.new.parquet.file.format
        hoodie.optimized.log.blocks.scan.enable hoodie.metadata.optimized.log.blocks.scan.enable
        hoodie.merge.use.record.positions _hoodie.hfile.use.native.reader
    """,
    "files are cut by their size in bytes (`hoodie.parquet.max.file.size`)": """
        hoodie.copyonwrite.insert.auto.split hoodie.copyonwrite.insert.split.size hoodie.parquet.block.size
        hoodie.parquet.page.size hoodie.parquet.compression.ratio hoodie.logfile.to.parquet.compression.ratio
        hoodie.parquet.dictionary.enabled
    """,
    "field ids are written where Spark writes them": """
        hoodie.parquet.field_id.write.enabled
    """,
    "of a file format that lakefmt does not write as base files": """
        hoodie.hfile.block.size hoodie.hfile.compression.algorithm hoodie.hfile.max.file.size
        hoodie.hfile.writes.allow.duplicates hoodie.lance.max.file.size hoodie.lance.read.allocator.size.bytes
        hoodie.lance.read.metadata.allocator.size.bytes hoodie.lance.write.allocator.size.bytes
        hoodie.lance.write.flush.byte.watermark hoodie.orc.block.size hoodie.orc.compression.codec
        hoodie.orc.max.file.size hoodie.orc.stripe.size
    """,
    "a bulk insert sorts by `hoodie.bulkinsert.sort.mode`; which file a row is in changes no answer": """
        hoodie.bulkinsert.sort.suffix.record_key hoodie.bulkinsert.user.defined.partitioner.class
        hoodie.bulkinsert.user.defined.partitioner.sort.columns
    """,
    "Hudi sets it itself": """
        hoodie.bulkinsert.overwrite.operation.type hoodie.bulkinsert.schema.ddl
        hoodie.static.overwrite.partition.paths hoodie.internal.schema hoodie.internal.sql.merge.into.writes
        hoodie.internal.write.schema.canonicalize hoodie.write.partial.update.schema hoodie.write.application.id
        hoodie.table.checksum hoodie.table.create.schema hoodie.table.initial.version
        hoodie.table.legacy.payload.class hoodie.table.index.defs.path hoodie.table.metadata.partitions
        hoodie.table.metadata.partitions.inflight hoodie.table.secondary.indexes.metadata
        hoodie.timeline.history.path hoodie.timeline.path hoodie.timeline.layout.version
        hoodie.archivelog.folder hoodie.table.timeline.timezone hoodie.table.partition_extractor_class
        _.hoodie.allow.multi.write.on.same.instant _hoodie.time.generator.reuse.enable
        _hoodie.metadata.ignore.spurious.deletes hoodie.sensitive.config.keys hoodie.schema.cache.enable
    """,
    "the archived timeline is packed by a rule of its own": """
        hoodie.archive.async hoodie.archive.block.on.latest.clean.ectr hoodie.archive.merge.enable
        hoodie.archive.merge.files.batch.size hoodie.archive.merge.small.file.limit.bytes
        hoodie.commits.archival.batch hoodie.timeline.compaction.batch.size
        hoodie.timeline.compaction.target.file.max.bytes hoodie.timeline.manifest.retained.versions
        hoodie.fail.on.timeline.archiving
    """,
    "use `lakefmt.write.services.background`": """
        hoodie.clean.async
    """,
    "one clean runs at a time, and takes all that may go": """
        hoodie.clean.allow.multiple hoodie.clean.multiple.enabled hoodie.clean.max.commits.to.clean
        hoodie.prewrite.cleaner.policy hoodie.write.empty.clean.interval.hours
    """,
    "failed plans are rolled back when their writer's heartbeat has ended": """
        hoodie.clustering.enable.expirations hoodie.clustering.expiration.threshold.mins
        hoodie.rollback.using.markers hoodie.rollback.avoid.duplicate.plan hoodie.rollback.instant.backup.dir
        hoodie.rollback.instant.backup.enabled
    """,
    "of which file slices a clustering takes first; all of a group are rewritten by rows": """
        hoodie.clustering.plan.strategy.binary.copy.schema.evolution.enable
        hoodie.clustering.plan.strategy.file.slices.sort.by hoodie.table.services.incremental.enabled
    """,
    "`hoodie.layout.optimize.strategy` says it, and `hoodie.enable.data.skipping`": """
        hoodie.layout.optimize.data.skipping.enable hoodie.layout.optimize.enable
        hoodie.bucket.index.query.pruning
    """,
    "a service that fails after a commit is a warning of the commit": """
        hoodie.fail.writes.on.inline.table.service.exception hoodie.write.can.ignore.post.commit.failures
        hoodie.post.commit.failures.ignored hoodie.metadata.write.fail.on.table.service.failures
    """,
    "what is written is always checked, and a row that cannot be written fails the write": """
        hoodie.merge.data.validation.enabled hoodie.write.ignore.failed hoodie.avro.schema.validate
        hoodie.fail.job.on.duplicate.data.file.detection hoodie.write.complex.keygen.validation.enable
        hoodie.skip.default.partition.validation
        hoodie.metadata.record.index.enable.validation.on.initialization
        hoodie.write.concurrency.schema.conflict.resolution.enable
        hoodie.clustering.fail.on.pending.ingestion.during.conflict.resolution
        hoodie.block.writes.on.speculative.execution
    """,
    "a batch without rows makes no commit where nothing would change": """
        hoodie.allow.empty.commit
    """,
    "instants are made one after another under the lock": """
        hoodie.time.generator.max_expected_clock_skew_ms hoodie.time.generator.type
        hoodie.auto.adjust.lock.configs hoodie.write.lock.max_wait_time_ms_between_retry hoodie.auto.commit
    """,
    "event times are not gathered for the commit": """
        hoodie.write.track.event.time.watermark hoodie.payload.event.time.field
    """,
    "no metadata of earlier commits is carried forward but that of streams": """
        hoodie.write.rolling.metadata.keys hoodie.write.rolling.metadata.timeline.lookback.commits
    """,
    "bloom filters are dynamic, sized by `hoodie.index.bloom.num_entries`": """
        hoodie.bloom.index.filter.type hoodie.metadata.bloom.filter.dynamic.max.entries
        hoodie.metadata.bloom.filter.enable hoodie.metadata.bloom.filter.fpp
        hoodie.metadata.bloom.filter.num.entries hoodie.metadata.bloom.filter.type
    """,
    "indexes of the metadata table are made by `table.index.create`, or by their own settings, whole and at once": """
        hoodie.expression.index.function hoodie.expression.index.type hoodie.index.name
        hoodie.metadata.index.async hoodie.metadata.index.bloom.filter.column.list
        hoodie.metadata.index.bloom.filter.file.group.count hoodie.metadata.index.check.timeout.seconds
        hoodie.metadata.index.column.stats.inMemory.projection.threshold
        hoodie.metadata.index.column.stats.processing.mode.override hoodie.metadata.index.expression.column
        hoodie.metadata.index.expression.enable hoodie.metadata.index.expression.file.group.count
        hoodie.metadata.index.expression.options hoodie.metadata.index.partition.stats.enable
        hoodie.metadata.index.partition.stats.file.group.count hoodie.metadata.index.secondary.column
        hoodie.metadata.index.secondary.enable hoodie.metadata.partitioned.record.index.max.filegroup.count
        hoodie.metadata.partitioned.record.index.min.filegroup.count hoodie.metadata.record.index.growth.factor
        hoodie.metadata.record.index.max.filegroup.size hoodie.metadata.record.level.index.defer.init
        hoodie.metadata.record.level.index.max.filegroup.count
        hoodie.metadata.record.level.index.min.filegroup.count
    """,
    "the metadata table is written and looked after with each commit": """
        hoodie.metadata.auto.delete.partitions hoodie.metadata.auto.initialize
        hoodie.metadata.compact.max.delta.seconds hoodie.metadata.compact.trigger.strategy
        hoodie.metadata.derive.from.datatable.clean.policy hoodie.metadata.max.deltacommits.when_pending
        hoodie.metadata.max.logfile.size hoodie.metadata.streaming.write.enabled
        hoodie.metadata.write.concurrency.mode hoodie.metadata.dir.filter.regex hoodie.assume.date.partitioning
    """,
    "no metrics are sent; commits and services are told by `table.history()` and the timeline": """
        hoodie.metadata.metrics.enable hoodie.metrics.cloudwatch.maxDatumsPerRequest
        hoodie.metrics.cloudwatch.metric.prefix hoodie.metrics.cloudwatch.namespace
        hoodie.metrics.cloudwatch.report.period.seconds hoodie.metrics.configs.properties
        hoodie.metrics.executor.enable hoodie.metrics.lock.enable hoodie.metrics.on
        hoodie.metrics.reporter.class hoodie.metrics.reporter.metricsname.prefix hoodie.metrics.reporter.type
        hoodie.metricscompaction.log.blocks.on hoodie.metrics.datadog.api.key
        hoodie.metrics.datadog.api.key.skip.validation hoodie.metrics.datadog.api.key.supplier
        hoodie.metrics.datadog.api.site hoodie.metrics.datadog.api.timeout.seconds
        hoodie.metrics.datadog.metric.host hoodie.metrics.datadog.metric.prefix
        hoodie.metrics.datadog.metric.tags hoodie.metrics.datadog.report.period.seconds
        hoodie.metrics.graphite.host hoodie.metrics.graphite.metric.prefix hoodie.metrics.graphite.port
        hoodie.metrics.graphite.report.period.seconds hoodie.metrics.jmx.host hoodie.metrics.jmx.port
        hoodie.metrics.m3.env hoodie.metrics.m3.host hoodie.metrics.m3.port hoodie.metrics.m3.service
        hoodie.metrics.m3.tags hoodie.metrics.prometheus.port hoodie.metrics.pushgateway.delete.on.shutdown
        hoodie.metrics.pushgateway.host hoodie.metrics.pushgateway.job.name hoodie.metrics.pushgateway.port
        hoodie.metrics.pushgateway.random.job.name.suffix hoodie.metrics.pushgateway.report.labels
        hoodie.metrics.pushgateway.report.period.seconds
    """,
    "of the HBase index, which `hoodie.index.type` refuses": """
        hoodie.hbase.index.update.partition.path hoodie.index.hbase.bucket.number
        hoodie.index.hbase.desired_puts_time_in_secs hoodie.index.hbase.dynamic_qps
        hoodie.index.hbase.get.batch.size hoodie.index.hbase.kerberos.user.keytab
        hoodie.index.hbase.kerberos.user.principal hoodie.index.hbase.master.kerberos.principal
        hoodie.index.hbase.max.qps.fraction hoodie.index.hbase.max.qps.per.region.server
        hoodie.index.hbase.min.qps.fraction hoodie.index.hbase.put.batch.size
        hoodie.index.hbase.put.batch.size.autocompute hoodie.index.hbase.qps.allocator.class
        hoodie.index.hbase.qps.fraction hoodie.index.hbase.regionserver.kerberos.principal
        hoodie.index.hbase.rollback.sync hoodie.index.hbase.security.authentication
        hoodie.index.hbase.sleep.ms.for.get.batch hoodie.index.hbase.sleep.ms.for.put.batch
        hoodie.index.hbase.table hoodie.index.hbase.zk.connection_timeout_ms
        hoodie.index.hbase.zk.session_timeout_ms hoodie.index.hbase.zknode.path
        hoodie.index.hbase.zkpath.qps_root hoodie.index.hbase.zkport hoodie.index.hbase.zkquorum
    """,
    "of Hudi's bootstrap: `lakefmt.convert(in_place=True)` makes such tables": """
        hoodie.bootstrap.data.queries.only hoodie.bootstrap.full.input.provider hoodie.bootstrap.mode.selector
        hoodie.bootstrap.mode.selector.regex hoodie.bootstrap.mode.selector.regex.mode
        hoodie.bootstrap.partitionpath.translator.class hoodie.bootstrap.index.class
        hoodie.bootstrap.index.enable hoodie.bootstrap.index.type hoodie.clean.delete.bootstrap.base.file
        hoodie.cleaner.delete.bootstrap.base.file
    """,
    "of an error table, which `hoodie.errortable.enable` refuses": """
        hoodie.errortable.base.path hoodie.errortable.target.table.name
        hoodie.errortable.validate.recordcreation.enable hoodie.errortable.validate.targetschema.enable
        hoodie.errortable.write.class hoodie.errortable.write.failure.strategy
        hoodie.errortable.write.union.enable
    """,
    "of partitions with an end, which `hoodie.partition.ttl.inline` refuses": """
        hoodie.partition.ttl.management.strategy.type hoodie.partition.ttl.strategy.class
        hoodie.partition.ttl.strategy.days.retain hoodie.partition.ttl.strategy.max.delete.partitions
        hoodie.partition.ttl.strategy.partition.selected
    """,
    "of a metaserver, which `hoodie.metaserver.enabled` refuses": """
        hoodie.metaserver.connect.retries hoodie.metaserver.connect.retry.delay hoodie.metaserver.uris
    """,
    "of a manager of services, which `hoodie.table.service.manager.enabled` refuses": """
        hoodie.table.service.manager.actions hoodie.table.service.manager.connection.retries
        hoodie.table.service.manager.connection.retry.delay.sec
        hoodie.table.service.manager.connection.timeout.sec hoodie.table.service.manager.deploy.extra.params
        hoodie.table.service.manager.deploy.parallelism hoodie.table.service.manager.deploy.queue
        hoodie.table.service.manager.deploy.resources hoodie.table.service.manager.deploy.username
        hoodie.table.service.manager.execution.engine hoodie.table.service.manager.uris
        hoodie.metadata.table.service.manager.actions
    """,
    "of the validators, which `hoodie.precommit.validators` refuses": """
        hoodie.precommit.validators.equality.sql.queries hoodie.precommit.validators.failure.policy
        hoodie.precommit.validators.inequality.sql.queries hoodie.precommit.validators.single.value.sql.queries
        hoodie.precommit.validators.streaming.offset.tolerance.percentage
    """,
    "every sync compares all partitions, and changes what differs": """
        hoodie.meta.sync.incremental hoodie.meta.sync.metadata_file_listing hoodie.meta.sync.no_partition_metadata
        hoodie.meta.sync.touch.partitions.enabled hoodie.datasource.hive_sync.filter_pushdown_enabled
        hoodie.datasource.hive_sync.filter_pushdown_max_size
        hoodie.datasource.meta.sync.glue.partition_change_parallelism
        hoodie.datasource.meta.sync.glue.changed_partitions_read_parallelism
        hoodie.datasource.meta.sync.glue.all_partitions_read_parallelism
    """,
    "a Hive metastore is spoken to by itself, without a server of Hive and its password": """
        hoodie.datasource.hive_sync.use_jdbc hoodie.datasource.hive_sync.jdbcurl
        hoodie.datasource.hive_sync.username hoodie.datasource.hive_sync.password
        hoodie.datasource.hive_sync.use_spark_catalog
    """,
    "a sync that fails after a commit is a warning of the commit": """
        hoodie.datasource.hive_sync.ignore_exceptions
    """,
    "an entry that cannot be changed is left as it is, and the sync fails": """
        hoodie.datasource.hive_sync.recreate_table_on_error
        hoodie.datasource.meta.sync.glue.recreate_table_on_error
    """,
    "the table tells how its partition paths are made; `hoodie.datasource.hive_sync.partition_extractor_class` says another way": """
        hoodie.datasource.partition_extractor_class
    """,
    "of Hive's buckets, which `hoodie.datasource.hive_sync.bucket_sync` refuses": """
        hoodie.datasource.hive_sync.bucket_sync_spec
    """,
    "of a catalog that lakefmt does not sync to": """
        hoodie.spark.polaris.catalog.class hoodie.meta_sync.global.replicate.timestamp
    """,
    "columns of blobs are read as they are stored": """
        hoodie.read.blob.inline.mode
    """,
    "complex keys are made as the table's stored keys are": """
        hoodie.write.complex.keygen.new.encoding
    """,
    "files are listed by the metadata table, where there is one": """
        hoodie.datasource.read.file.index.list.partitions.from.catalog
        hoodie.datasource.read.file.index.listing.mode
        hoodie.datasource.read.file.index.listing.partition-path-prefix.analysis.enabled
        hoodie.datasource.read.file.index.optimize.listing.using.path.filter hoodie.file.index.enable
        hoodie.file.listing.parallelism hoodie.read.timeline.holes.resolution.policy
    """,
    "of Spark's SQL, and of rows that are no Arrow batches": """
        hoodie.datasource.overwrite.mode hoodie.datasource.write.row.writer.enable
        hoodie.spark.sql.insert.into.operation hoodie.spark.sql.merge.into.partial.updates
        hoodie.spark.sql.optimized.writes.enable hoodie.sql.bulk.insert.enable hoodie.sql.insert.mode
    """,
}
#: Names that are refused, by the reason, with the values that ask for nothing (without one: an empty text and ``false``).
_REFUSED: Final = {
    "base files are Parquet and logs are Hudi's": """
        hoodie.base.file.format=PARQUET hoodie.table.base.file.format=PARQUET
        hoodie.datasource.hive_sync.base_file_format=PARQUET
        hoodie.table.ro.file.format=PARQUET hoodie.table.log.file.format=HOODIE_LOG
        hoodie.table.rt.file.format=HOODIE_LOG hoodie.table.format=native
        hoodie.table.multiple.base.file.formats.enable=false hoodie.partition.metafile.use.base.format=false
    """,
    "a write does not bootstrap: `lakefmt.convert(in_place=True)` does": """
        hoodie.bootstrap.base.path
    """,
    "checks of Java do not run in Python: check the rows before the write, or the table after it": """
        hoodie.precommit.validators hoodie.prewrite.validators
    """,
    "there is no error table: a row that cannot be written fails the write": """
        hoodie.errortable.enable=false
    """,
    "partitions are dropped by `table.delete_partitions`": """
        hoodie.partition.ttl.inline=false
    """,
    "the table is its own folder, without a server": """
        hoodie.metaserver.enabled=false
    """,
    "services run in the writer or by `lakefmt services`": """
        hoodie.table.service.manager.enabled=false hoodie.metadata.table.service.manager.enabled=false
    """,
    "the rows' own schema counts: cast them before the write": """
        hoodie.avro.schema hoodie.write.schema
    """,
    "stored rows are read in the newest schema, not rewritten in it": """
        hoodie.avro.schema.external.transformation=false hoodie.avro.schema.externalTransformation=false
    """,
    "classes of Java do not run in Python": """
        hoodie.client.init.callback.classes hoodie.parquet.write.config.injector.class
        hoodie.write.commit.callback.class=org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback
    """,
    "a callback is sent with the key of `hoodie.write.commit.callback.http.api.key` alone": """
        hoodie.write.commit.callback.http.custom.headers
    """,
    "an insert adds its rows: use `hoodie.datasource.write.insert.drop.duplicates`, or an upsert": """
        hoodie.merge.allow.duplicate.on.inserts=true
    """,
    "rows do not say their operation: use change data capture (`hoodie.table.cdc.enabled`)": """
        hoodie.allow.operation.metadata.field=false
    """,
    "timestamps are microseconds in UTC, in the present layout of Parquet": """
        hoodie.parquet.outputtimestamptype=TIMESTAMP_MICROS hoodie.parquet.writelegacyformat.enabled=false
        hoodie.parquet.write.utc-timezone.enabled=true
    """,
    "a clean starts by the number of commits, over all partitions": """
        hoodie.clean.trigger.strategy=NUM_COMMITS hoodie.clean.partition.filter.regex
        hoodie.clean.partition.filter.selected hoodie.cleaner.partition.filter.regex
        hoodie.cleaner.partition.filter.selected
    """,
    "a compaction takes file slices of all partitions": """
        hoodie.compaction.partition.path.regex
    """,
    "a clustering takes file slices by their size and partition": """
        hoodie.clustering.plan.strategy.earliest.commit.to.cluster
    """,
    "indexes are dropped by `table.index.drop`": """
        hoodie.metadata.index.drop
    """,
    "file groups are placed by the index": """
        hoodie.storage.layout.type=DEFAULT
    """,
    "partition paths of dates are written as the key generator makes them": """
        hoodie.datasource.write.slash.separated.date.partitioning=false
    """,
}
#: Names that say what a table is, with the property where it is kept and what a table is that does not say it.
_TABLE: Final = """
hoodie.table.type hoodie.table.type COPY_ON_WRITE
hoodie.table.version hoodie.table.version
hoodie.table.recordkey.fields hoodie.table.recordkey.fields
hoodie.table.partition.fields hoodie.table.partition.fields
hoodie.table.precombine.field hoodie.table.precombine.field
hoodie.table.ordering.fields hoodie.table.precombine.field
hoodie.payload.ordering.field hoodie.table.precombine.field
hoodie.table.cdc.enabled hoodie.table.cdc.enabled false
hoodie.table.cdc.supplemental.logging.mode hoodie.table.cdc.supplemental.logging.mode DATA_BEFORE_AFTER
hoodie.table.partial.update.mode hoodie.table.partial.update.mode
hoodie.populate.meta.fields hoodie.populate.meta.fields true
hoodie.database.name hoodie.database.name
hoodie.compaction.payload.class hoodie.compaction.payload.class
hoodie.compaction.record.merger.strategy hoodie.record.merge.strategy.id
hoodie.record.merge.strategy.id hoodie.record.merge.strategy.id
hoodie.record.merge.mode hoodie.record.merge.mode
hoodie.write.record.merge.mode hoodie.record.merge.mode
hoodie.write.record.merge.strategy.id hoodie.record.merge.strategy.id
hoodie.datasource.write.drop.partition.columns hoodie.datasource.write.drop.partition.columns false
"""
#: The end of names of time-based keys, which a table keeps behind ``hoodie.keygen.``; they began with ``hoodie.deltastreamer.``.
_TIME_KEYS: Final = """
datetime.parser.class timebased.input.dateformat timebased.input.dateformat.list.delimiter.regex timebased.input.timezone
timebased.output.dateformat timebased.output.timezone timebased.timestamp.scalar.time.unit timebased.timestamp.type
timebased.timezone
"""
#: Options of Spark's data source: in Python the verb, or its arguments, say the same.
_DATA_SOURCE: Final = """
as.of.instant hoodie.bulkinsert.sort.mode hoodie.datasource.clustering.async.enable
hoodie.datasource.clustering.inline.enable hoodie.datasource.compaction.async.enable
hoodie.datasource.insert.dup.policy hoodie.datasource.merge.type hoodie.datasource.query.incremental.format
hoodie.datasource.query.type hoodie.datasource.read.begin.instanttime
hoodie.datasource.read.create.filesystem.relation hoodie.datasource.read.end.instanttime
hoodie.datasource.read.extract.partition.values.from.path hoodie.datasource.read.incr.fallback.fulltablescan.enable
hoodie.datasource.read.incr.filters hoodie.datasource.read.incr.path.glob hoodie.datasource.read.incr.skip_cluster
hoodie.datasource.read.incr.skip_compact hoodie.datasource.read.incr.table.version
hoodie.datasource.read.partition.value.extractor.enabled hoodie.datasource.read.paths
hoodie.datasource.read.schema.use.end.instanttime hoodie.datasource.read.streaming.table.version
hoodie.datasource.read.table.valued.function.filesystem.relation.subpath
hoodie.datasource.read.table.valued.function.timeline.relation
hoodie.datasource.read.table.valued.function.timeline.relation.archived hoodie.datasource.streaming.startOffset
hoodie.datasource.view.type hoodie.datasource.write.commitmeta.key.prefix hoodie.datasource.write.partitions.to.delete
hoodie.datasource.write.record.merger.impls hoodie.datasource.write.record.merger.strategy
hoodie.datasource.write.secondarykey.column hoodie.datasource.write.storage.type
hoodie.datasource.write.streaming.checkpoint.identifier hoodie.datasource.write.streaming.disable.compaction
hoodie.datasource.write.streaming.ignore.failed.batch hoodie.datasource.write.streaming.retry.count
hoodie.datasource.write.streaming.retry.interval.ms hoodie.write.record.merge.custom.implementation.classes
"""
#: Beginnings of names that belong to other programs of Hudi, or to a sync, and change nothing here.
_FAMILIES: Final = {
    "hoodie.streamer.": "of Hudi's own ingestion tool",
    "hoodie.deltastreamer.": "of Hudi's own ingestion tool",
    "hoodie.kafka.": "of Hudi's connector for Kafka Connect",
    "hoodie.aws.": "credentials of a store are `storage_options`, or those of its own environment",
    "hoodie.gcp.bigquery.": "of a catalog that lakefmt does not sync to",
    "hoodie.datasource.hive_sync.": "of a sync to a catalog, which does not need it",
    "hoodie.datasource.meta.sync.": "of a sync to a catalog, which does not need it",
    "hoodie.meta.sync.": "of a sync to a catalog, which does not need it",
    "hive_sync.": "of Flink's sync to a catalog: `table.sync` says the same",
}
_OF_DATA_SOURCE: Final = "an option of Spark's data source: in Python the verb and its arguments say it"

# --- Hudi on Flink, whose options do not begin with `hoodie.`

#: Other names of settings, with the same values and units.
_FLINK_ALIASES: Final = """
clean.policy hoodie.clean.policy
clean.retain_commits hoodie.clean.commits.retained
clean.retain_hours hoodie.clean.hours.retained
clean.retain_file_versions hoodie.clean.fileversions.retained
archive.max_commits hoodie.keep.max.commits
archive.min_commits hoodie.keep.min.commits
compaction.delta_commits hoodie.compact.inline.max.delta.commits
compaction.delta_seconds hoodie.compact.inline.max.delta.seconds
compaction.trigger.strategy hoodie.compact.inline.trigger.strategy
compaction.target_io hoodie.compaction.target.io
metadata.enabled hoodie.metadata.enable
metadata.compaction.delta_commits hoodie.metadata.compact.max.delta.commits
index.type hoodie.index.type
clustering.delta_commits hoodie.clustering.inline.max.commits
clustering.plan.partition.filter.mode hoodie.clustering.plan.partition.filter.mode
clustering.plan.strategy.class hoodie.clustering.plan.strategy.class
clustering.plan.strategy.cluster.begin.partition hoodie.clustering.plan.strategy.cluster.begin.partition
clustering.plan.strategy.cluster.end.partition hoodie.clustering.plan.strategy.cluster.end.partition
clustering.plan.strategy.daybased.lookback.partitions hoodie.clustering.plan.strategy.daybased.lookback.partitions
clustering.plan.strategy.daybased.skipfromlatest.partitions hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions
clustering.plan.strategy.max.num.groups hoodie.clustering.plan.strategy.max.num.groups
clustering.plan.strategy.partition.regex.pattern hoodie.clustering.plan.strategy.partition.regex.pattern
clustering.plan.strategy.partition.selected hoodie.clustering.plan.strategy.partition.selected
clustering.plan.strategy.sort.columns hoodie.clustering.plan.strategy.sort.columns
clustering.plan.strategy.target.file.max.bytes hoodie.clustering.plan.strategy.target.file.max.bytes
"""
_FLINK_INERT: Final = {
    "how much runs at a time is said by `lakefmt.write.threads`": """
        clustering.tasks compaction.tasks read.tasks write.bucket_assign.tasks write.index_bootstrap.tasks write.tasks
    """,
    "rows that wait are bounded by `lakefmt.write.window.bytes`": """
        compaction.max_memory write.batch.size write.merge.max_memory write.sort.memory write.task.max.size
    """,
    "services that follow commits are `hoodie.compact.inline`, `hoodie.clustering.inline`, `hoodie.clean.automatic` and their like": """
        clean.async.enabled clustering.async.enabled clustering.schedule.enabled compaction.async.enabled
        compaction.schedule.enabled compaction.timeout.seconds
    """,
    "keys are looked up in the table, not in a state of Flink": """
        index.bootstrap.enabled index.partition.regex index.state.ttl
    """,
    "of Flink's checkpoints": "write.client.id write.commit.ack.timeout write.retry.interval.ms write.retry.times",
    "a bulk insert sorts by `hoodie.bulkinsert.sort.mode`; which file a row is in changes no answer": """
        write.bulk_insert.shuffle_input write.bulk_insert.sort_input write.bulk_insert.sort_input.by_record_key
    """,
    "files are cut by their size in bytes (`hoodie.parquet.max.file.size`)": """
        write.log_block.size write.parquet.block.size write.parquet.page.size
    """,
    "the table has its columns": "source.avro-schema source.avro-schema.path",
}
_FLINK_REFUSED: Final = {
    "rows keep no `_hoodie_operation`: `table.changes` and `hoodie.table.cdc.enabled` tell changes": "changelog.enabled",
    "a row that cannot be stored fails the write": "write.ignore.failed",
    "no rate of rows is kept": "write.rate.limit=0",
    "times are those of UTC": "read.utc-timezone=true write.utc-timezone=true",
    'partitions by time are said when a table is made: `partition_by="ts:timestamp(yyyyMMdd)"`': "write.partition.format",
    "the partition of a null is `__HIVE_DEFAULT_PARTITION__`": "partition.default_name=__HIVE_DEFAULT_PARTITION__",
    "`index=` and `unique=` of a table say where a key is looked for": "index.global.enabled",
    "the number is in megabytes: say `hoodie.parquet.max.file.size`, in bytes": "write.parquet.max.file.size",
    "the number is in megabytes: say `hoodie.logfile.max.size`, in bytes": "write.log.max.size",
    "the number is in megabytes: say `hoodie.clustering.plan.strategy.small.file.limit`, in bytes": """
        clustering.plan.strategy.small.file.limit
    """,
    "a merger of Java does not run in Python": """
        record.merger.impls=org.apache.hudi.common.model.HoodieAvroRecordMerger
    """,
}
_FLINK_TABLE: Final = """
table.type hoodie.table.type COPY_ON_WRITE
precombine.field hoodie.table.precombine.field
write.precombine.field hoodie.table.precombine.field
payload.class hoodie.compaction.payload.class
write.payload.class hoodie.compaction.payload.class
record.merger.strategy hoodie.record.merge.strategy.id
cdc.enabled hoodie.table.cdc.enabled false
cdc.supplemental.logging.mode hoodie.table.cdc.supplemental.logging.mode DATA_BEFORE_AFTER
"""
#: Options of Flink's connector: in Python the verb, or its arguments, say the same.
_FLINK_CONNECTOR: Final = """
path write.operation write.precombine write.insert.cluster write.partition.overwrite.mode read.streaming.enabled
read.streaming.check-interval read.streaming.skip_clustering read.streaming.skip_compaction
read.streaming.skip_insertoverwrite read.start-commit read.end-commit read.commits.limit read.cdc.from.changelog
read.data.skipping.enabled
"""
_OF_CONNECTOR: Final = "an option of Flink's connector: in Python the verb and its arguments say it"


@cache
def published_options() -> dict[str, PublishedOption]:
    """Return all options of this module by name.

    Example:
        >>> published_options()["hoodie.metrics.on"].kind.value
        'inert'
    """
    options = [
        PublishedOption(name, OptionClass.INERT, reason)
        for reason, names in (*_INERT.items(), *_FLINK_INERT.items())
        for name in names.split()
    ]
    for reason, names in (*_REFUSED.items(), *_FLINK_REFUSED.items()):
        for name, _, value in (word.partition("=") for word in names.split()):
            options.append(PublishedOption(name, OptionClass.REFUSED, reason, (value,) if value else ()))
    for line in f"{_TABLE}{_FLINK_TABLE}".split("\n"):
        if line:
            name, key, *default = line.split(" ")
            options.append(_of_table(name, key, default[0] if default else None))
    for end in _TIME_KEYS.split():
        key = f"hoodie.keygen.{end}"
        options += [_of_table(key, key), _of_table(f"hoodie.deltastreamer.keygen.{end}", key)]
    options += [PublishedOption(name, OptionClass.DATA_SOURCE, _OF_DATA_SOURCE) for name in _DATA_SOURCE.split()]
    options += [PublishedOption(name, OptionClass.DATA_SOURCE, _OF_CONNECTOR) for name in _FLINK_CONNECTOR.split()]
    aliases = (line.split(" ") for line in _FLINK_ALIASES.split("\n") if line)
    options += [PublishedOption(name, OptionClass.ALIAS, f"Flink's name of `{key}`", (), key) for name, key in aliases]
    return {option.name: option for option in options}


@cache
def _by_small_letters() -> dict[str, PublishedOption]:
    return {name.lower(): option for name, option in published_options().items()}


def _of_table(name: str, key: str, default: str | None = None) -> PublishedOption:
    return PublishedOption(name, OptionClass.TABLE, f"must agree with the table's `{key}`", (), key, default)


def find_published(name: str) -> PublishedOption | None:
    """Return what becomes of a published option that is no setting; None: Hudi publishes no such name.

    Args:
        name: in any case of letters, since Spark hands options in small ones.

    Example:
        >>> find_published("hoodie.deltastreamer.source.dfs.root").reason
        "of Hudi's own ingestion tool"
        >>> find_published("hoodie.metrics.of") is None
        True
    """
    small = name.lower()
    option = _by_small_letters().get(small)
    if option is None:
        reason = next((why for beginning, why in _FAMILIES.items() if small.startswith(beginning)), None)
        return None if reason is None else PublishedOption(name, OptionClass.INERT, reason)
    return option


def setting_of(name: str) -> Setting | None:
    """Return a published option as a setting of a call; None: Hudi publishes no such name."""
    option = find_published(name)
    if option is None:
        return None
    if option.kind is OptionClass.ALIAS:
        return Setting(name, str, None, option.reason, alias_of=option.table_key)
    if option.kind is OptionClass.TABLE:
        return Setting(name, str, option.default, option.reason, table_key=option.table_key)
    setting_class = SettingClass.INERT if option.kind is OptionClass.INERT else SettingClass.REFUSED
    return Setting(
        name, str, None, option.reason, setting_class, choices=tuple(value.lower() for value in option.harmless)
    )


def similar_names(name: str, others: tuple[str, ...] = ()) -> list[str]:
    """Return the known name that a misspelt one is nearest to, or none where nothing is near.

    Args:
        name: what was given.
        others: names that are known beside settings and published options.

    Example:
        >>> similar_names("hoodie.clean.comits.retained"), similar_names("hoodie.nothing.like.it")
        (['hoodie.clean.commits.retained'], [])
    """
    known = [*(setting.key for setting in ALL_SETTINGS), *published_options(), *others]
    return get_close_matches(name, known, 1, cutoff=0.86)


def published_markdown() -> str:
    """Return the table of docs/dev/hudi-options.md: options of one class and reason share a row.

    Example:
        >>> published_markdown().splitlines()[0]
        '| options | class | reason |'
    """
    rows: dict[tuple[str, str], list[str]] = {}
    for option in published_options().values():
        value = "".join(f" (but `{value}`)" for value in option.harmless)
        rows.setdefault((option.kind.value, option.reason), []).append(f"`{option.name}`{value}")
    lines = [f"| {', '.join(names)} | {class_name} | {reason} |" for (class_name, reason), names in rows.items()]
    families = [f"| `{beginning}*` | inert | {reason} |" for beginning, reason in _FAMILIES.items()]
    return "\n".join(["| options | class | reason |", "|---|---|---|", *lines, *families])
