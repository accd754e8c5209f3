"""Record every completion of an instant in the metadata table, and run its services before (effects, under the table lock).

What dead processes left is removed first. A compaction writes a base file for every file group of every partition; its instant lies
below that of the pending instant, which any engine can then still roll back (docs/format.md, Metadata table). A clean removes
the files that no reader needs any more.

What the table advertises is read from its properties for every instant anew: another engine deletes indexes that its own
settings do not ask for. An instant that is recorded twice, because its process died in between, is recorded anew.

A handle that writes one commit after the other keeps what it wrote last (:class:`WrittenRecords`), and reads nothing until another
writer writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache, partial
from itertools import compress

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.pending_plans import copied_logs
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.metadata.collect import FactCollector
from lakefmt._core.metadata.commit_updates import (
    logs_of_rollback,
    stats_columns,
    updates_of_clean,
    updates_of_commit,
    updates_of_rollback,
)
from lakefmt._core.metadata.compaction import (
    compact_metadata_table,
    compaction_instant,
    has_logs_on,
    log_compact_metadata_table,
    log_compaction_instant,
)
from lakefmt._core.metadata.index_readers import keys_in_file_group
from lakefmt._core.metadata.layout import (
    METADATA_DIRECTORY,
    WITHOUT_FILES,
    MetadataFileName,
    PartitionKind,
    column_stats_key,
    partition_identifier,
    without_definition,
)
from lakefmt._core.metadata.listing import (
    files_by_metadata,
    files_read_before,
    files_written_before,
    listed_files,
)
from lakefmt._core.metadata.manage import (
    MetadataTableManager,
    archive_metadata_timeline,
    expression_time_zone,
    inflight_partitions,
    instants_being_built,
    load_definitions,
    metadata_archive_rules,
    wanted_partitions,
)
from lakefmt._core.metadata.metadata_files import KnownCommits, handle_memory, known_commits
from lakefmt._core.metadata.reader import MetadataTable, check_seen, newest_records
from lakefmt._core.metadata.records import MetadataRecord, PartitionUpdate, RecordFormat, decode_record
from lakefmt._core.metadata.timeline import MetadataTimeline, MetadataTimelineStore
from lakefmt._core.metadata.writer import MetadataTableWriter, known_forms
from lakefmt._core.schema import avro_to_arrow, without_meta_columns
from lakefmt._core.schema.history import LATEST_SCHEMA
from lakefmt._core.storage.messages import printable_url
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.observer import PendingCompletion
from lakefmt._core.timeline.timeline import Timeline, timeline_with
from lakefmt._core.values import InstantTime, WriteOperation
from lakefmt.errors import CorruptFile, MetadataTablePresent, StateError

__all__ = [
    "MetadataTableObserver",
    "WrittenRecords",
    "clean_metadata_table",
    "earliest_kept_instant",
    "files_to_clean",
    "metadata_clean_plan",
    "metadata_clean_result",
    "run_metadata_services",
    "stored_records",
    "without_dead_instants",
    "written_records",
]

_log = logging.getLogger("lakefmt.metadata")
#: As many commits of the metadata table stay readable at least.
_LEAST_RETAINED = 20
_SERVICE_ACTIONS = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN})
#: What Hudi appends to the last deltacommit's time for a clean in version 6.
_CLEAN_SUFFIX_V6 = "002"
_CLEAN_POLICY = "KEEP_LATEST_COMMITS"
_CLEAN_PLAN_VERSION = 2


def run_metadata_services(
    writer: MetadataTableWriter,
    pending: PendingCompletion,
    settings: Settings,
    read_body: Callable[[Instant], bytes],
    loaded: MetadataTimeline,
    commits: KnownCommits | None = None,
) -> MetadataTimeline:
    """Remove what dead processes left, then run the services that are due.

    Returns the metadata table's timeline after them, with what was archived.

    Parameters:
        writer: writes the metadata table.
        pending: the instant that is about to be recorded.
        settings: of the call.
        read_body: reads a file of the data table's timeline.
        loaded: the metadata table's timeline.
        commits: of the metadata table that this handle knows.
    """
    timeline = without_dead_instants(writer, loaded, pending, read_body)
    after = settings.integer("hoodie.metadata.compact.max.delta.commits")
    building = bool(inflight_partitions(writer.config))
    instant = compaction_instant(timeline, pending, after, writer.config.version, is_building=building)
    retained = max(_LEAST_RETAINED, 2 * after)
    try:
        if instant is not None:
            check_seen(writer.config.version, pending.timeline, timeline)
            compact_metadata_table(writer, timeline, instant, pending, commits)
            clean_metadata_table(writer, pending, retained)
            timeline = writer.timeline_store.load()
        elif settings.flag("hoodie.metadata.log.compaction.enable") and not building:
            timeline = _log_compacted(writer, timeline, pending, settings, commits)
    except CorruptFile as error:
        # What is merged could not be seen to lack anything any more; the data need no metadata table.
        _log.warning("%s: the metadata table is not compacted: %s", printable_url(writer.store.url), error)
    archive_metadata_timeline(writer, timeline, pending, metadata_archive_rules(settings, retained))
    return timeline


def _log_compacted(
    writer: MetadataTableWriter,
    timeline: MetadataTimeline,
    pending: PendingCompletion,
    settings: Settings,
    commits: KnownCommits | None,
) -> MetadataTimeline:

    threshold = settings.integer("hoodie.metadata.log.compaction.blocks.threshold")
    instant = log_compaction_instant(timeline, pending, threshold, writer.config.version)
    if instant is None:
        return timeline
    check_seen(writer.config.version, pending.timeline, timeline)
    if not log_compact_metadata_table(writer, timeline, instant, threshold, pending, commits):
        return timeline
    return writer.timeline_store.load()


def without_dead_instants(
    writer: MetadataTableWriter,
    timeline: MetadataTimeline,
    pending: PendingCompletion,
    read_body: Callable[[Instant], bytes],
) -> MetadataTimeline:
    """End what a dead process left of services and deltacommits; return the timeline afterwards.

    The metadata table is written under the table lock only: under the lock nothing that is pending is still at work.

    Parameters:
        writer: writes the metadata table.
        timeline: the metadata table's.
        pending: the instant that is about to be recorded.
        read_body: reads a file of the data table's timeline.
    """
    # What fills a partition that is being built is not removed: its file groups are made with that instant.
    waiting = pending.timeline.pending_times | instants_being_built(writer)
    dead = [
        instant
        for instant in timeline.instants
        if instant.state is not State.COMPLETED and (instant.action in _SERVICE_ACTIONS or instant.time not in waiting)
    ]
    for instant in dead:
        if instant.action is Action.CLEAN:
            writer.timeline_store.remove_pending([instant])  # what it had to delete is found again
        elif instant.action is Action.COMPACTION and has_logs_on(writer, instant.time):
            compact_metadata_table(writer, timeline, instant.time, pending)
        elif instant.action in (Action.COMPACTION, Action.LOG_COMPACTION, Action.DELTA_COMMIT):
            writer.remove(instant.time, timeline)
    undone = _undone_deltacommits(timeline, pending.timeline, read_body)
    for time in undone:
        writer.remove(time, timeline)
    return writer.timeline_store.load() if dead or undone else timeline


def _undone_deltacommits(
    timeline: MetadataTimeline, data_timeline: Timeline, read_body: Callable[[Instant], bytes]
) -> list[str]:
    """Return the completed deltacommits whose instants of the data table were rolled back before.

    A writer that was taken for dead completes one when it wakes after its last proof of the lock.
    """
    present = {instant.time for instant in data_timeline}
    begun = data_timeline.first_active or ""
    strays = {
        deltacommit.time
        for deltacommit in timeline.completed(Action.DELTA_COMMIT)
        if deltacommit.time not in present and deltacommit.time > begun and not deltacommit.is_initialisation
    }
    undone: set[str] = set()
    for rollback in data_timeline.completed_of(Action.ROLLBACK) if strays else ():
        if rollback.time > min(strays):
            record = decode_body(BodyKind.ROLLBACK_METADATA, read_body(rollback), what=rollback.file_name)
            targets = record["commitsRollback"]
            undone |= strays & {str(time) for time in (targets if isinstance(targets, list) else ())}
    return sorted(undone)


def clean_metadata_table(writer: MetadataTableWriter, pending: PendingCompletion, retained: int) -> None:
    """Remove files that only old states of the metadata table need.

    Parameters:
        writer: writes the metadata table.
        pending: hands out instants.
        retained: how many of its newest commits stay readable.
    """
    store, timeline = writer.timeline_store, writer.timeline_store.load()
    earliest = earliest_kept_instant(timeline, retained)
    if earliest is None:
        return
    unneeded = {
        partition: files_to_clean(writer.files(partition), earliest, timeline)
        for partition in writer.config.metadata_partitions
    }
    files = {partition: names for partition, names in unneeded.items() if names}
    if not files:
        return
    instant, last = f"{pending.next_time()}{_CLEAN_SUFFIX_V6 if store.layout == 1 else ''}", timeline.highest_time
    plan = metadata_clean_plan(writer.store.url, files, earliest, last)
    store.request(instant, Action.CLEAN, encode_body(BodyKind.CLEANER_PLAN, plan))
    pending.prove_lock()
    writer.store.delete(f"{METADATA_DIRECTORY}/{path}/{name}" for path, names in files.items() for name in names)
    body = encode_body(BodyKind.CLEAN_METADATA, metadata_clean_result(instant, files, earliest, last))
    store.put_completed(instant, Action.CLEAN, pending.next_time(), body)


def earliest_kept_instant(timeline: MetadataTimeline, retained: int) -> str | None:
    """Return the instant from which on every state of the metadata table stays readable; None: all of them do.

    Parameters:
        timeline: the metadata table's.
        retained: how many of its newest commits and deltacommits stay readable.
    """
    done = timeline.completed(Action.DELTA_COMMIT, Action.COMMIT)
    regular = [each.time for each in done if not each.is_initialisation]
    return regular[-retained] if len(regular) > retained else None


def files_to_clean(files: Iterable[MetadataFileName], earliest: str, timeline: MetadataTimeline) -> list[str]:
    """Return the files of one partition that only states before an instant need.

    Parameters:
        files: of one partition of the metadata table.
        earliest: the state as of this instant stays readable.
        timeline: the metadata table's.

    Example:
        >>> from lakefmt._core.metadata.layout import parse_metadata_file
        >>> from lakefmt._core.metadata.timeline import parse_timeline
        >>> timeline = parse_timeline(["20260101000000000.commit", "20260102000000000.commit"], 1)
        >>> names = ["files-0000-0_0-0-0_20260101000000000.hfile", "files-0000-0_0-0-0_20260102000000000.hfile"]
        >>> files_to_clean([parse_metadata_file(name) for name in names], "20260103000000000", timeline)
        ['files-0000-0_0-0-0_20260101000000000.hfile']
    """
    groups: dict[str, list[MetadataFileName]] = {}
    for file in files:
        groups.setdefault(file.file_id, []).append(file)
    to_clean = []
    for own in groups.values():
        bases = [f.instant for f in own if f.version is None and timeline.completion_of(f.instant) is not None]
        base_instant = max((instant for instant in bases if instant <= earliest), default=None)
        if base_instant is None:
            continue
        for file in own:
            done = timeline.completion_of(file.instant)
            is_stray = done is None and not timeline.of_time(file.instant)
            last = file.instant if file.version is None or is_stray or file.instant in bases else done
            if last is not None and last < base_instant:
                to_clean.append(file.name)
    return sorted(to_clean)


def metadata_clean_plan(url: str, files: Mapping[str, list[str]], earliest: str, last: str) -> dict[str, object]:
    """Return the record of a requested clean.

    Parameters:
        url: of the data table.
        files: names by partition of the metadata table.
        earliest: the instant from which on states stay readable.
        last: the newest completed instant.
    """
    base = f"{url.rstrip('/')}/{METADATA_DIRECTORY}"
    return {
        "earliestInstantToRetain": {"timestamp": earliest, "action": Action.DELTA_COMMIT.value, "state": "COMPLETED"},
        "lastCompletedCommitTimestamp": last,
        "policy": _CLEAN_POLICY,
        "filesToBeDeletedPerPartition": {},
        "version": _CLEAN_PLAN_VERSION,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": f"{base}/{partition}/{name}", "isBootstrapBaseFile": False} for name in names]
            for partition, names in files.items()
        },
        "partitionsToBeDeleted": [],
        "extraMetadata": {},
    }


def metadata_clean_result(instant: str, files: Mapping[str, list[str]], earliest: str, last: str) -> dict[str, object]:
    """Return the record of a completed clean.

    Parameters:
        instant: its requested time.
        files: names by partition of the metadata table.
        earliest: the instant from which on states stay readable.
        last: the newest completed instant.
    """
    return {
        "startCleanTime": instant,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, files.values())),
        "earliestCommitToRetain": earliest,
        "lastCompletedCommitTimestamp": last,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": _CLEAN_POLICY,
                "deletePathPatterns": names,
                "successDeleteFiles": names,
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, names in files.items()
        },
        "version": _CLEAN_PLAN_VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": {},
    }


_MOST_KEPT_RECORDS = 10_000


#: Operations that change no column.
_SERVICE_OPERATIONS = frozenset({WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})


@dataclass
class MetadataTableObserver:
    """Keeps the metadata table of one table right; a table without one is left alone unless the settings ask for it.

    Attributes:
        client: the data table.
        settings: of the call.
    """

    client: TableClient
    settings: Settings

    @property
    def durable(self) -> bool:
        """Whether what is completed must reach the disk."""
        return self.settings.text("lakefmt.durability") == "fsync"

    def before_completion(self, pending: PendingCompletion) -> None:
        """Write what belongs to the instant.

        Raises:
            CorruptFile: the metadata table is damaged.
            UnsupportedFeature: it has a partition that lakefmt cannot keep.
        """
        config = pending.config
        configured_partitions = wanted_partitions(config, self.settings)
        if not (config.metadata_partitions or configured_partitions) or pending.action in WITHOUT_FILES:
            return
        manager = MetadataTableManager(self.client, config, pending.timeline, self.settings, pending.proved_time)
        if pending.action is Action.RESTORE:
            # What was restored may be in the metadata table's base files already: nothing but a new one is right.
            if config.metadata_partitions:
                manager.rebuild(after_undoing=True)
            return
        directory = pending.directory
        if pending.action is not Action.ROLLBACK:
            missing = [name for name in configured_partitions if name not in config.metadata_partitions]
            if missing:
                config, directory = manager.add(missing), None
        if not config.metadata_partitions:
            return
        timelines = MetadataTimelineStore(self.client.store, config.version, durable=self.durable)
        timeline = timelines.load(directory)
        if not timeline.completed():
            # Its directory is gone, or was never finished.
            config, directory = manager.rebuild(after_undoing=pending.action is Action.ROLLBACK), None
            timeline = timelines.load()
        try:
            self._record(pending, config, timeline, directory)
        except StateError:
            pending.prove_lock()  # who completed something else than this writer, had the lock meanwhile
            raise

    def _record(
        self,
        pending: PendingCompletion,
        config: TableConfig,
        loaded: MetadataTimeline,
        directory: TableDirectory | None,
    ) -> None:
        writer = MetadataTableWriter(
            self.client.store,
            config,
            self.durable,
            forms=known_forms(self.client),
            cache=files_written_before(self.client),
            commits=partial(known_commits, self.client),
        )
        if pending.action is Action.ROLLBACK:
            self._record_rollback(writer, pending, config, loaded)
            return
        read_body = self.client.timeline_store(config).read_body
        commits = known_commits(self.client)
        timeline = run_metadata_services(writer, pending, self.settings, read_body, loaded, commits)
        # What the services wrote and removed is not in the listing.
        directory = directory if timeline == loaded else None
        writer = replace(writer, directory=directory)
        definitions = load_definitions(self.client, config, directory)
        if pending.commit is not None:
            collector = self._collector(config, pending, timeline, directory)
            commit = self._with_copies(TableState(config, pending.timeline), pending.time, pending.commit)
            updates = updates_of_commit(config, writer.form, collector, definitions, commit)
        elif pending.action is Action.CLEAN:
            record = decode_body(BodyKind.CLEAN_METADATA, pending.body, what=f"the clean {pending.time}")
            updates = updates_of_clean(
                config, writer.form, self._collector(config, pending, timeline, directory), definitions, record
            )
        else:
            return
        completion = writer.write(pending.time, updates, pending.proved_time, timeline, commits)
        statistics = next(
            (update for update in updates if update.partition == PartitionKind.PARTITION_STATS.value), None
        )
        written_records(self.client).remember(statistics, writer.form, timeline, (pending.time, completion))

    def _with_copies(self, state: TableState, time: InstantTime, commit: CommitMetadata) -> CommitMetadata:
        """Return a clustering with the logs that it makes visible: rows that were written to its new buckets meanwhile.

        Hudi does not list them in a metadata table that it makes while the clustering waits.
        """
        if commit.operation is not WriteOperation.CLUSTER:
            return commit
        copies = copied_logs(self.client.at(state))
        own = tuple(stat for path, stat in copies.items() if f"_{time}." in path)
        return replace(commit, stats=(*commit.stats, *own)) if own else commit

    def _record_rollback(
        self, writer: MetadataTableWriter, pending: PendingCompletion, config: TableConfig, timeline: MetadataTimeline
    ) -> None:
        """Remove what the metadata table has of instants that are rolled back."""
        record = decode_body(BodyKind.ROLLBACK_METADATA, pending.body, what=f"the rollback {pending.time}")
        targets = record.get("commitsRollback")
        for time in targets if isinstance(targets, list) else ():
            if timeline.of_time(str(time)):
                writer.remove(str(time), timeline)
        updates = updates_of_rollback(record, writer.form)
        if logs := logs_of_rollback(record, named_by_slice=pending.timeline.layout == 1):
            definitions, collector = (
                load_definitions(self.client, config),
                self._collector(config, pending, timeline, None),
            )
            has_statistics = PartitionKind.COLUMN_STATS.value in config.metadata_partitions
            columns = stats_columns(config, collector, definitions) if has_statistics else ()
            known = self._known_logs(config, pending, writer.timeline_store.load(), logs, columns)
            if known:
                removed = {"partitionMetadata": {path: {"successDeleteFiles": names} for path, names in known.items()}}
                updates += updates_of_clean(config, writer.form, collector, definitions, removed)
        if updates:
            writer.write(pending.time, updates, pending.proved_time, writer.timeline_store.load())

    def _known_logs(
        self,
        config: TableConfig,
        pending: PendingCompletion,
        metadata_timeline: MetadataTimeline,
        logs: Mapping[str, Sequence[str]],
        columns: Sequence[str],
    ) -> dict[str, list[str]]:
        """Return those of some logs that the metadata table lists, or has statistics of, by data partition.

        An index that was made while an instant was pending may have its logs, although ``files``, made before, has not.
        """
        table = MetadataTable.at(self.client.store, config, pending.timeline, metadata_timeline)
        keys = pa.array([partition_identifier(path).encode() for path in logs], pa.binary())
        entries = listed_files(table.lookup(PartitionKind.FILES.value, keys))
        listed = pc.binary_join_element_wise(entries["key"].cast(pa.string()), entries["name"], "/")
        found: dict[str, list[str]] = {}
        for path, names in logs.items():
            paths = pa.array([f"{partition_identifier(path)}/{name}" for name in names], pa.string())
            is_known = pc.is_in(paths, value_set=listed.combine_chunks()).to_numpy(zero_copy_only=False)
            if columns:
                records = [column_stats_key(column, path, name).encode() for name in names for column in columns]
                newest, _ = newest_records(
                    table.lookup(PartitionKind.COLUMN_STATS.value, pa.array(records, pa.binary()))
                )
                has_record = pc.is_in(pa.array(records, pa.binary()), value_set=newest["key"].combine_chunks())
                by_name = has_record.to_numpy(zero_copy_only=False).reshape(len(names), len(columns))
                is_known = is_known | by_name.any(axis=1)
            if is_known.any():
                found[path] = list(compress(names, is_known))
        return found

    def _collector(
        self,
        config: TableConfig,
        pending: PendingCompletion,
        metadata_timeline: MetadataTimeline,
        directory: TableDirectory | None,
    ) -> FactCollector:
        before = TableState(config, pending.timeline)
        completed = timeline_with(pending.timeline, pending.time, pending.action, pending.next_time())
        # A service may have the columns of its plan; those of today are found in its files as in those of any instant.
        commit = pending.commit
        schema_json = None if commit is None or commit.operation in _SERVICE_OPERATIONS else commit.schema_text
        schema = (
            self.client.at(before).schema() if schema_json is None else without_meta_columns(avro_to_arrow(schema_json))
        )
        after = TableState(config, completed)

        building = inflight_partitions(config)
        has_keys = PartitionKind.RECORD_INDEX.value in config.metadata_partitions

        @cache
        def metadata_table() -> MetadataTable:
            known_files = files_read_before(self.client)
            commits = known_commits(self.client)
            return MetadataTable.at(
                self.client.store, config, pending.timeline, metadata_timeline, known_files, directory, commits
            )

        def remembered(keys: Sequence[str]) -> Mapping[str, MetadataRecord] | None:
            return written_records(self.client).look_up(keys, metadata_timeline, pending.timeline)

        def stored(keys: Sequence[str]) -> Mapping[str, MetadataRecord]:
            return stored_records(metadata_table(), PartitionKind.PARTITION_STATS.value, keys)

        def indexed(keys: pa.Array, partition: str, file_id: str) -> pa.Array:
            return keys_in_file_group(metadata_table(), keys, partition, file_id)

        def listed(paths: Collection[str]) -> frozenset[str]:
            keys = pa.array([partition_identifier(path).encode() for path in paths], pa.binary())
            newest, _ = newest_records(metadata_table().lookup(PartitionKind.FILES.value, keys))
            is_listed = pc.is_in(keys, value_set=newest["key"].combine_chunks()).to_numpy(zero_copy_only=False)
            return frozenset(compress(paths, is_listed))

        return FactCollector(
            self.client,
            before,
            after,
            pending.time,
            schema,
            remembered_statistics=remembered,
            stored_statistics=None if PartitionKind.PARTITION_STATS.value in building else stored,
            written_keys=pending.written_keys,
            indexed_keys=indexed if has_keys and PartitionKind.RECORD_INDEX.value not in building else None,
            listed_partitions=listed,
            known_files=None if directory is None else lambda paths: files_by_metadata(metadata_table(), paths),
            time_zone=expression_time_zone(self.settings),
            internal_schema=None if commit is None or schema_json is None else commit.extra_metadata.get(LATEST_SCHEMA),
        )

    def before_rollback(self, config: TableConfig, targets: Sequence[Instant]) -> None:
        """Refuse the rollback of an instant that a compaction of the metadata table has taken in.

        Raises:
            StateError: an instant is in a base file of the metadata table, from which nothing can be taken away.
            MetadataTablePresent: the metadata table would have to be made anew, and lakefmt cannot make one of its partitions.
        """
        if not config.metadata_partitions:
            return
        timeline = MetadataTimelineStore(self.client.store, config.version, durable=False).load()
        if not timeline.completed():
            unknown = without_definition(config.metadata_partitions, load_definitions(self.client, config))
            if unknown:
                raise MetadataTablePresent(
                    f"the metadata table has lost its timeline, and lakefmt cannot make its partition {unknown[0]} anew: drop "
                    "it first (hoodie.metadata.enable=false)"
                )
        for target in targets:
            holder = base_files_with(timeline, target, config.version.layout)
            if holder is not None:
                raise StateError(
                    f"{target.time} cannot be rolled back: {holder}, after {target.time} was recorded or complete, and "
                    "nothing can be taken out of a base file. Restore the table to an earlier commit instead, or drop "
                    "the metadata table first (hoodie.metadata.enable=false) and roll back then"
                )


def base_files_with(timeline: MetadataTimeline, target: Instant, layout: int) -> str | None:
    """Return what put an instant into base files of the metadata table; None: its logs are all there is of it. Pure.

    Parameters:
        timeline: the metadata table's.
        target: an instant of the data table.
        layout: the timeline layout, 1 or 2.
    """
    compaction = timeline.last_compaction
    recorded = [each.completion for each in timeline.of_time(target.time) if each.completion is not None]
    if compaction is not None and any(time < compaction.time for time in recorded):
        return f"the metadata table was compacted at {compaction.time}"
    if not target.is_completed:
        return None
    for deltacommit in timeline.completed(Action.DELTA_COMMIT):
        if deltacommit.is_log_compaction:
            continue  # it is taken back with the instant
        # Of version 6 the instant of a partition's making begins with that of the newest commit in it.
        if layout == 1:
            is_later = len(deltacommit.time) > len(target.time) and deltacommit.time >= target.time
        else:
            is_later = deltacommit.is_initialisation and (deltacommit.completion or "") > target.order_time
        if is_later:
            return f"an index of the metadata table was made at {deltacommit.completion}"
    return None


#: Requested and completion time of a deltacommit.
_Deltacommit = tuple[str, str | None]


@dataclass
class WrittenRecords:
    """Records of one partition of the metadata table as one handle wrote them last.

    They count while the newest deltacommit is the one that this handle wrote, and its instant is complete.
    """

    _newest: _Deltacommit | None = None
    #: Values by key, and the schema of each: most handles write once, and decode none of them.
    _records: dict[str, tuple[bytes, str]] = field(default_factory=dict)

    def look_up(
        self, keys: Sequence[str], metadata: MetadataTimeline, data: Timeline
    ) -> dict[str, MetadataRecord] | None:
        """Return the records of keys; None: they have to be read.

        Parameters:
            keys: as they are stored.
            metadata: the metadata table's timeline.
            data: the data table's timeline.
        """
        newest = self._newest
        if newest is None or newest != _newest_deltacommit(metadata) or not data.is_committed(InstantTime(newest[0])):
            return None
        stored = {key: self._records.get(key) for key in keys}
        values = {key: value for key, value in stored.items() if value is not None}
        return None if len(values) < len(stored) else {key: decode_record(*value) for key, value in values.items()}

    def remember(
        self, update: PartitionUpdate | None, form: RecordFormat, before: MetadataTimeline, after: _Deltacommit
    ) -> None:
        """Note what a deltacommit wrote.

        Parameters:
            update: of the partition; None: the deltacommit left it as it was.
            form: how its records are written.
            before: the metadata table's timeline without the deltacommit.
            after: the deltacommit.
        """
        is_repeated = bool(before.of_time(after[0]))
        if is_repeated or self._newest != _newest_deltacommit(before) or len(self._records) > _MOST_KEPT_RECORDS:
            self._records.clear()
        self._newest = None  # while the records of two deltacommits are mixed
        if update is not None and len(update) > _MOST_KEPT_RECORDS:
            return
        if update is not None:
            for key in update.deleted.to_pylist():
                self._records.pop(key, None)
            for key, value in zip(update.keys.to_pylist(), update.values.to_pylist(), strict=True):
                self._records[key] = value, form.schema
        self._newest = after


def _newest_deltacommit(timeline: MetadataTimeline) -> _Deltacommit | None:
    completed = ((instant.time, instant.completion) for instant in timeline.completed(Action.DELTA_COMMIT))
    return max(completed, key=lambda times: (times[1] or "", times[0]), default=None)


def written_records(client: TableClient) -> WrittenRecords:
    """Return what a table's handle knows of ``partition_stats``."""
    return handle_memory(client).of(WrittenRecords)


def stored_records(table: MetadataTable, partition: str, keys: Iterable[str]) -> Mapping[str, MetadataRecord]:
    """Return the newest records of a few keys; keys without one are left out.

    Parameters:
        table: the metadata table.
        partition: of which newer records replace older ones.
        keys: as they are stored.

    Raises:
        CorruptFile: the metadata table is damaged.
        SnapshotExpired: a file was removed meanwhile.
    """
    encoded_keys = pa.array([key.encode() for key in keys], pa.binary())
    newest, schemas = newest_records(table.lookup(partition, encoded_keys, newest_only=True))
    rows = zip(newest["key"].to_pylist(), newest["value"].to_pylist(), newest["schema"].to_pylist(), strict=True)
    return {key.decode(): decode_record(value, schemas[number], partition) for key, value, number in rows}
