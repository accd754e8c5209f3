"""``table.upgrade``: upgrade a table to a newer version (docs/format.md, Table versions; Upgrade).

:func:`upgrade_table` executes a plan of :mod:`lakefmt._core.upgrade.plan` under the table lock. The order
of effects makes it crash-safe:

1. Compact a merge-on-read table, because logs of version 6 have less information. Roll back failed
   writes, as any write does, and remove the metadata table.
2. Write the timeline and the archive again in the new layout, where readers of the old version do
   not look.
3. Switch the properties: from this moment the table has the new version.
4. Remove the old timeline files, where readers of the new version do not look. The old archive
   stays, as in Hudi.
5. Make the metadata table again, with the indexes that it had.

A crash before 3 leaves a table of the old version; the next upgrade removes or rewrites the new
timeline, because other writes may have happened meanwhile. A crash after 3 leaves a table of the
new version; the next upgrade removes the rest. Besides the timeline store only this module creates
and removes timeline files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo

from lakefmt._core.compaction.compact.run import run_compaction
from lakefmt._core.compaction.log_compact import run_log_compaction
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.storage.api import remove_abandoned
from lakefmt._core.timeline.archive.lsm_timeline import HistoryEntry, HistoryPart, HistoryWriter, plan_of
from lakefmt._core.timeline.archive.v6_log import ArchivedInstant, LogArchive, LogEntry
from lakefmt._core.timeline.instant import (
    COMMIT_ACTIONS,
    Action,
    Instant,
    State,
    comparable_action,
    format_instant_time,
    parse_instant_file,
    parse_instant_time,
)
from lakefmt._core.timeline.locks.open import Lease
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.properties_store import recover_properties, update_properties
from lakefmt._core.timeline.store import MAX_BODY_BYTES
from lakefmt._core.timeline.timeline import Timeline, build_timeline
from lakefmt._core.transactions.client import WriteAt, WriteClient, drop_metadata_table, open_write_client
from lakefmt._core.transactions.indexing import IndexRequest, create_metadata_indexes, indexes_to_make_again
from lakefmt._core.transactions.recovery import undo_dead_writes
from lakefmt._core.upgrade.plan import (
    NEW_HISTORY,
    NEW_TIMELINE,
    OLD_TIMELINE,
    UpgradePlan,
    UpgradeScene,
    plan_upgrade,
    upgraded_body,
)
from lakefmt._core.values import InstantTime, TableType, TableVersion
from lakefmt._core.write.commit.transaction import open_for_writing
from lakefmt.errors import CommitConflict, CorruptFile, InvalidInputError, StateError, StorageError

__all__ = ["upgrade_table"]

_METADATA_TABLE = ".hoodie/metadata"
_EVERYTHING = {"hoodie.compaction.strategy": "UnBoundedCompactionStrategy"}


def upgrade_table(
    client: TableClient,
    to: int | str | TableVersion,
    *,
    dry_run: bool = False,
    compact: bool = True,
) -> UpgradePlan:
    """Upgrade a table; see ``Table.upgrade``.

    Args:
        client: the table client; with its option ``hoodie.metadata.enable=false`` no metadata table is made
            in place of an old one.
        to: the new version: 8 or 9.
        dry_run: return the plan without changing anything.
        compact: compact all logs first; False: refuse a table with logs.

    Returns:
        The executed or planned steps.

    Raises:
        InvalidInputError: the table has a newer version.
        UnsupportedVersion: lakefmt does not support that version.
        MetadataTablePresent: the metadata table has an index that lakefmt cannot make again.
        UnsupportedFeature: lakefmt does not write such tables, or cannot convert something.
        WriterActive: the writer of a pending instant may be alive.
        StateError: a pending instant cannot be rolled back, or logs remain after the compaction.
        CorruptFile: a body or the archive is damaged.
        LockUnavailable: the table lock was not acquired in time.
    """
    target = TableVersion.parse(to)
    write_client = open_write_client(client)
    archive = LogArchive(client.store, client.load_config().history_directory)
    if dry_run:
        return _look(write_client, target, archive)
    first = _compacted(write_client, target, archive, compact=compact)
    with write_client.lock.hold() as lease:
        recover_properties(client.store, durable=write_client.durable)
        plan = _look(write_client, target, archive)
        if plan.source is not target:
            plan = _prepare(write_client, plan, archive, lease)
        _execute(write_client, plan, archive, lease)
    if plan.indexes:
        create_metadata_indexes(client, plan.indexes)
    return plan if first is None else replace(plan, pending=first.pending, logs=first.logs)


def _compacted(
    write_client: WriteClient, target: TableVersion, archive: LogArchive, *, compact: bool
) -> UpgradePlan | None:
    """Compact the logs of a merge-on-read table; return the plan before that, None if nothing was compacted."""
    plan = _look(write_client, target, archive)
    waiting = any(instant.action in (Action.COMPACTION, Action.LOG_COMPACTION) for instant in plan.pending)
    if plan.source is target or not compact or not (plan.logs or waiting):
        return None
    with write_client.lock.hold() as lease:
        # A rollback may leave a log, and next to a pending write of version 6 nothing is compacted.
        undo_dead_writes(write_client, open_for_writing(write_client), lease=lease)
    if any(instant.action is Action.LOG_COMPACTION for instant in plan.pending):
        with suppress(CommitConflict):  # its logs have changed since: the plan is withdrawn
            run_log_compaction(write_client.client, _EVERYTHING)
    run_compaction(write_client.client, _EVERYTHING)
    return plan


def _look(write_client: WriteClient, target: TableVersion, archive: LogArchive) -> UpgradePlan:
    config = write_client.client.load_config()
    timeline = _full_timeline(write_client, config)
    drop = write_client.settings.values["hoodie.metadata.enable"] is False
    # A table of the version already, and one whose metadata table just goes, are not asked for what they have.
    asks = not drop and config.version is not target
    indexes = indexes_to_make_again(write_client.client, config) if asks else ()
    scene = _scene(write_client, config, timeline, archive, indexes)
    return plan_upgrade(config, target, timeline, scene, drop_metadata=drop)


def _full_timeline(write_client: WriteClient, config: TableConfig) -> Timeline:
    """Return the timeline with sizes and modification times, which readers do not need."""
    layout = config.version.layout
    listed = write_client.client.store.list(config.timeline_directory, recursive=False)
    parsed = (parse_instant_file(o.name.rpartition("/")[2], layout, o.size, o.modified) for o in listed)
    return build_timeline((i for i in parsed if i is not None), layout)


def _scene(
    write_client: WriteClient,
    config: TableConfig,
    timeline: Timeline,
    archive: LogArchive,
    indexes: tuple[IndexRequest, ...],
) -> UpgradeScene:
    client = write_client.client
    store, is_old, zone = client.store, config.version.layout == 1, client.reading_zone(config, timeline)
    hidden = [o.name for o in store.list(OLD_TIMELINE, recursive=False)]
    files = [file for group in timeline.files.values() for file in group]
    archived = [archived_entry.completed for archived_entry in archive.load()] if is_old else []
    return UpgradeScene(
        now=format_instant_time(client.clock.now(), client.writing_zone(config, timeline)),
        modified={entry.instant.file_name: _since(entry) for entry in archived if entry.transition}
        | {
            f.file_name: _instant_time(zone, datetime.fromtimestamp(f.modified, UTC))
            for f in files
            if f.is_completed and f.modified > 0
        },
        clustering=_clustering_times(write_client, config, files) if is_old else frozenset(),
        new_timeline=tuple(o.name for o in store.list(NEW_TIMELINE)) if is_old else (),
        old_timeline=tuple(name for name in hidden if parse_instant_file(name.rpartition("/")[2], 1) is not None),
        archived=tuple(entry.instant for entry in archived),
        has_metadata_table=_METADATA_TABLE in store.list_directories(OLD_TIMELINE),
        indexes=indexes,
        has_schema_history=any(".schemacommit" in o.name for o in store.list(".hoodie/.schema")),
        logs=_count_logs(write_client.at(TableState(config, timeline))),
    )


def _count_logs(write_at: WriteAt) -> int:
    if write_at.config.table_type is not TableType.MERGE_ON_READ:
        return 0
    return sum(len(file_slice.logs) for file_slice in write_at.slices())


def _instant_time(zone: tzinfo | None, moment: datetime) -> InstantTime:
    # For a table in the machine's zone each moment has its own offset, because of daylight saving.
    return format_instant_time(moment, zone or moment.astimezone().tzinfo or UTC)


def _since(entry: LogEntry) -> InstantTime:
    try:
        parse_instant_time(entry.transition)
    except InvalidInputError:
        raise CorruptFile(
            f"{entry.name} says that {entry.instant} is so since {entry.transition!r:.40}, which is no instant time"
        ) from None
    return InstantTime(entry.transition)


def _clustering_times(
    write_client: WriteClient, config: TableConfig, files: Sequence[Instant]
) -> frozenset[InstantTime]:
    times = set()
    for file in files:
        if file.action is Action.REPLACE_COMMIT and file.state is State.REQUESTED and file.size:
            body = write_client.timeline(config).read_body(file)
            record = decode_body(BodyKind.REQUESTED_REPLACE, body, what=file.file_name)
            if record.get("clusteringPlan") is not None:
                times.add(file.time)
    return frozenset(times)


def _prepare(write_client: WriteClient, plan: UpgradePlan, archive: LogArchive, lease: Lease) -> UpgradePlan:
    """Roll back failed writes, remove the metadata table; return the plan for the result.

    What is refused is refused before the metadata table is gone.
    """
    client, dropped = write_client.client, False
    try:
        undo_dead_writes(write_client, client.load_config(), lease=lease)
    except StateError:
        # Nothing can be taken out of base files of the metadata table, and it goes anyway.
        if not plan.drops_metadata_table or _stays(_look(write_client, plan.target, archive).pending):
            raise
        drop_metadata_table(write_client, is_made_again=bool(plan.indexes))
        undo_dead_writes(write_client, client.load_config(), lease=lease)
        dropped = True
    final = _look(write_client, plan.target, archive)
    if final.pending:
        raise StateError(
            f"{final.pending[0]} is pending and is not rolled back: finish it with the engine that made it"
        )
    if final.logs:
        raise StateError(f"{final.logs} log files are not compacted: compact the table, then upgrade it")
    if plan.drops_metadata_table and not dropped:
        drop_metadata_table(write_client, is_made_again=bool(plan.indexes))
        final = _look(write_client, plan.target, archive)
    return replace(final, pending=plan.pending, drops_metadata_table=plan.drops_metadata_table, indexes=plan.indexes)


def _stays(pending: Sequence[Instant]) -> bool:
    """Return whether an instant is pending that no writer rolls back: the plan of a service."""
    return any(instant.action not in (*COMMIT_ACTIONS, Action.ROLLBACK) for instant in pending)


def _execute(write_client: WriteClient, plan: UpgradePlan, archive: LogArchive, lease: Lease) -> None:
    client = write_client.client
    lease.check()
    if plan.source.layout != plan.target.layout:
        _write_timeline(write_client, plan, archive)
    if plan.properties:
        lease.check()
        update_properties(client.store, plan.properties, client.clock.now(), durable=write_client.durable)
    client.store.delete(plan.leftovers)
    # The files of an interrupted upgrade: timeline files, properties, claims, markers.
    remove_abandoned(client.store, OLD_TIMELINE)


def _write_timeline(write_client: WriteClient, plan: UpgradePlan, archive: LogArchive) -> None:
    """Write the new timeline. The table still has the old version, so readers ignore existing files there."""
    store = write_client.client.store
    store.delete(plan.stale)
    store.make_directories([NEW_HISTORY, NEW_TIMELINE])
    for move in plan.moves:
        body = upgraded_body(move.instant, store.read(move.source, MAX_BODY_BYTES))
        store.put(move.target, body, durable=write_client.durable)
    expected_names = {move.target for move in plan.moves}
    if plan.history:
        expected_names |= _write_history(write_client, plan.history, archive)
    if {o.name for o in store.list(NEW_TIMELINE)} != expected_names:
        raise StorageError(f"{NEW_TIMELINE} does not list as it was written; the table is still of the old version")


def _write_history(write_client: WriteClient, parts: Sequence[HistoryPart], archive: LogArchive) -> set[str]:
    """Write the new archive from the old one, file by file; return the names of its files."""
    archived = {_action_times(entry.completed.instant): entry for entry in archive.load()}
    writer = HistoryWriter(write_client.client.store, NEW_HISTORY, durable=write_client.durable)
    files = [writer.write(part.name, _history_entries(part.instants, archived, archive)) for part in parts]
    writer.publish(1, files)
    return {f"{NEW_HISTORY}/{name}" for name in (*(file.name for file in files), "manifest_1", "_version_")}


def _action_times(instant: Instant) -> tuple[InstantTime, Action]:
    return instant.time, comparable_action(instant.action)


def _history_entries(
    instants: Sequence[Instant], archived: Mapping[tuple[InstantTime, Action], ArchivedInstant], archive: LogArchive
) -> Iterator[HistoryEntry]:
    for instant in instants:
        archived_entry = archived.get(_action_times(instant))
        if archived_entry is None:
            raise StateError(
                f"{instant} left the archive while it was carried over: another program works on the table"
            )
        requested, inflight = (
            archive.body(entry) if entry else b"" for entry in (archived_entry.requested, archived_entry.inflight)
        )
        pending = archived_entry.requested or archived_entry.inflight
        plan = plan_of(pending.instant.action, requested, inflight) if pending else None
        yield HistoryEntry(instant, archive.body(archived_entry.completed) or None, plan)
