"""``table.upgrade``: upgrade a table to a newer version (docs/format.md, Table versions; Upgrade).

:func:`plan_upgrade` decides what has to change, file by file, and names what stands in the way. :func:`upgrade_table` executes
its plan under the table lock. The order of effects makes it crash-safe:

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime, tzinfo

from lakefmt._core.compaction.compact_run import run_compaction
from lakefmt._core.compaction.log_compact import run_log_compaction
from lakefmt._core.config.table_config import PAYLOADS, STRATEGY_IDS, TableConfig, check_writable
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.avro.container import MAGIC
from lakefmt._core.keys import key_properties, key_spec_from_properties
from lakefmt._core.notebook import NotebookText
from lakefmt._core.storage.api import remove_abandoned
from lakefmt._core.timeline.instant import (
    COMMIT_ACTIONS,
    Action,
    Instant,
    State,
    comparable_action,
    completed_action,
    format_instant_time,
    instant_file_name,
    millisecond_before,
    parse_instant_file,
    parse_instant_time,
)
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.lsm_timeline import HistoryEntry, HistoryPart, HistoryWriter, plan_of, plan_parts
from lakefmt._core.timeline.metadata_codec import BodyKind, body_kind, decode_body, encode_body
from lakefmt._core.timeline.store import MAX_BODY_BYTES, next_instant_time, recover_properties, update_properties
from lakefmt._core.timeline.timeline import Timeline, build_timeline
from lakefmt._core.timeline.v6_archive import ArchivedInstant, LogArchive, LogEntry
from lakefmt._core.transactions.client import WriteAt, WriteClient, drop_metadata_table, open_write_client
from lakefmt._core.transactions.indexing import IndexRequest, create_metadata_indexes, indexes_to_make_again
from lakefmt._core.transactions.recovery import undo_dead_writes
from lakefmt._core.values import InstantTime, MergeMode, TableType, TableVersion
from lakefmt._core.write.commit.transaction import open_for_writing
from lakefmt.errors import CommitConflict, CorruptFile, InvalidInputError, StateError, StorageError, UnsupportedFeature

__all__ = [
    "NEW_HISTORY",
    "NEW_TIMELINE",
    "OLD_TIMELINE",
    "TimelineMove",
    "UpgradePlan",
    "UpgradeScene",
    "completion_times",
    "plan_upgrade",
    "upgrade_table",
    "upgraded_body",
    "upgraded_properties",
]

#: The timeline directory before version 8 and from version 8 on, relative to the table.
OLD_TIMELINE = ".hoodie"
NEW_TIMELINE = ".hoodie/timeline"
#: The archive directory from version 8 on.
NEW_HISTORY = f"{NEW_TIMELINE}/history"

_SPEAKING_PAYLOADS = frozenset(
    {"OverwriteWithLatestAvroPayload", "DefaultHoodieRecordPayload", "EventTimeAvroPayload", ""}
)


@dataclass(frozen=True, slots=True)
class UpgradeScene:
    """The facts about a table besides properties and timeline.

    Attributes:
        now: current time as an instant time in the table's zone.
        modified: file name → modification time of timeline files, as instant times in the table's
            zone; for archived instants the archived time.
        clustering: requested times of replacecommits with a clustering plan.
        new_timeline: names of everything in the new timeline directory while the table has the old
            layout.
        old_timeline: names of timeline files of the old layout.
        archived: the completed instants of the old archive, by requested time.
        has_metadata_table: whether a metadata table exists, in the properties or not.
        indexes: those that the properties advertise.
        has_schema_history: whether schema history files exist.
        logs: number of log files in the newest snapshot.
    """

    now: InstantTime
    modified: Mapping[str, InstantTime] = field(default_factory=dict)
    clustering: frozenset[InstantTime] = frozenset()
    new_timeline: tuple[str, ...] = ()
    old_timeline: tuple[str, ...] = ()
    archived: tuple[Instant, ...] = ()
    has_metadata_table: bool = False
    indexes: tuple[IndexRequest, ...] = ()
    has_schema_history: bool = False
    logs: int = 0


@dataclass(frozen=True, slots=True)
class TimelineMove:
    """A timeline file of the old layout and its path in the new one, relative to the table."""

    instant: Instant
    target: str

    @property
    def source(self) -> str:
        """The path of the old file relative to the table."""
        return f"{OLD_TIMELINE}/{self.instant.file_name}"


@dataclass(frozen=True, slots=True)
class UpgradePlan(NotebookText):
    """The steps of an upgrade; prints as a list in order.

    Attributes:
        source: the current version.
        target: the new version.
        pending: instants to roll back first; refused while their writers live.
        logs: number of log files to compact first.
        drops_metadata_table: remove the metadata table.
        indexes: of the metadata table that is made again afterwards; empty: none is.
        stale: files of an interrupted upgrade, removed first.
        moves: timeline files to rewrite.
        history: files of the new archive with their instants; the old archive stays.
        properties: changed properties; None removes one.
        leftovers: timeline files of the old layout, removed last.
    """

    source: TableVersion
    target: TableVersion
    pending: tuple[Instant, ...] = ()
    logs: int = 0
    drops_metadata_table: bool = False
    indexes: tuple[IndexRequest, ...] = ()
    stale: tuple[str, ...] = ()
    moves: tuple[TimelineMove, ...] = ()
    history: tuple[HistoryPart, ...] = ()
    properties: Mapping[str, str | None] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the table has that version already and nothing is left to remove."""
        return self.source is self.target and not self.leftovers

    def __str__(self) -> str:
        if self.is_empty:
            return f"the table is of version {self.target.value} already: nothing to do"
        lines = [f"upgrade from version {self.source.value} to {self.target.value}:"]
        lines += ["  remove the metadata table"] if self.drops_metadata_table else []
        names = ", ".join(request.partition for request in self.indexes)
        lines += [f"  make a metadata table of the new version afterwards: {names}"] if names else []
        for instant in self.pending:
            lines.append(f"  {'carry out' if instant.action is Action.COMPACTION else 'roll back'} {instant}")
        lines += [f"  compact {self.logs} log files"] if self.logs else []
        lines += [f"  remove {name}, left by an upgrade that did not finish" for name in self.stale]
        lines += [f"  write {move.target} from {move.source}" for move in self.moves]
        for part in self.history:
            lines.append(f"  write {NEW_HISTORY}/{part.name} with {len(part.instants)} archived instants")
        for key, value in sorted(self.properties.items()):
            lines.append(f"  remove property {key}" if value is None else f"  set {key}={value}")
        if self.leftovers:
            lines.append(f"  remove {len(self.leftovers)} timeline files of version 6 from {OLD_TIMELINE}")
        return "\n".join(lines)


def plan_upgrade(
    config: TableConfig, target: TableVersion, timeline: Timeline, scene: UpgradeScene, *, drop_metadata: bool = False
) -> UpgradePlan:
    """Return the steps to upgrade a table to version `target`. Pure.

    Args:
        config: the table properties.
        target: the requested version.
        timeline: the active timeline.
        scene: further facts.
        drop_metadata: no metadata table is made in place of the one that is removed.

    Raises:
        InvalidInputError: the table has a newer version.
        UnsupportedFeature: lakefmt does not write such tables, or cannot convert something.
        StateError: an instant is pending and archived as completed: rolling it back would delete
            committed files.

    Source: docs/format.md, Upgrade.

    Example:
        >>> from lakefmt._core.config.table_config import parse_table_config
        >>> from lakefmt._core.timeline.timeline import build_timeline
        >>> old = parse_table_config({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE",
        ...     "hoodie.table.version": "8", "hoodie.timeline.layout.version": "2",
        ...     "hoodie.table.precombine.field": "ts", "hoodie.record.merge.mode": "EVENT_TIME_ORDERING"})
        >>> print(plan_upgrade(old, TableVersion.NINE, build_timeline([], 2), UpgradeScene("20260101000000000")))
        upgrade from version 8 to 9:
          set hoodie.table.format=native
          set hoodie.table.ordering.fields=ts
          remove property hoodie.table.precombine.field
          set hoodie.table.version=9
    """
    if target < config.version:
        raise InvalidInputError(
            f"the table is of version {config.version.value}: it cannot go back to version {target.value}"
        )
    if target is config.version:
        leftovers = scene.old_timeline if target.layout == 2 else ()
        return UpgradePlan(target, target, leftovers=_newest_first(leftovers))
    _check_upgradable(config, target, scene)
    _check_pending(timeline, scene)
    moves: tuple[TimelineMove, ...] = ()
    history: tuple[HistoryPart, ...] = ()
    if config.version.layout == 1:
        # An interrupted archive step leaves instants in both timelines: the active one counts.
        archived = timeline.with_history(scene.archived).archived
        completions = completion_times((*archived, *timeline.completed), scene.modified, scene.now)
        moves = _moves(timeline, scene, completions)
        history = plan_parts([_archived(instant, completions[instant.file_name]) for instant in archived])
    targets = {move.target for move in moves}
    return UpgradePlan(
        config.version,
        target,
        pending=timeline.pending,
        logs=scene.logs,
        drops_metadata_table=scene.has_metadata_table or bool(config.metadata_partitions),
        indexes=() if drop_metadata else scene.indexes,
        stale=tuple(sorted(name for name in scene.new_timeline if name not in targets)),
        moves=moves,
        history=history,
        properties=upgraded_properties(config, target),
        leftovers=_newest_first(scene.old_timeline),
    )


def _newest_first(names: Iterable[str]) -> tuple[str, ...]:
    # A concurrent reader sees an earlier valid state of the table while they are removed.
    return tuple(sorted(names, reverse=True))


def _check_upgradable(config: TableConfig, target: TableVersion, scene: UpgradeScene) -> None:
    check_writable(replace(config, metadata_partitions=()))
    payload = config.properties.get("hoodie.compaction.payload.class", "").rsplit(".", 1)[-1]
    if payload not in _SPEAKING_PAYLOADS:
        raise UnsupportedFeature(f"the table names the payload class {payload}: upgrade it with Spark")
    if config.version is TableVersion.SIX and scene.has_schema_history:
        raise UnsupportedFeature("the table has a history of schemas (.hoodie/.schema): upgrade it with Spark")
    spec = key_spec_from_properties(config.properties)
    bare_possible = len(spec.record_key_fields) == 1 and spec.prefixed is None
    if target is TableVersion.NINE and bare_possible:
        raise UnsupportedFeature(
            "a complex key generator with one key field writes other keys in version 9 than some releases did before: "
            "the upgrade could make every key exist twice"
        )


def _check_pending(timeline: Timeline, scene: UpgradeScene) -> None:
    pending = {(instant.time, comparable_action(instant.action)) for instant in timeline.pending}
    for instant in scene.archived:
        if (instant.time, comparable_action(instant.action)) in pending:
            raise StateError(f"{instant} is archived and its pending files are not removed: remove them by hand")


def _archived(instant: Instant, completion: InstantTime) -> Instant:
    action = completed_action(instant.action)
    name = instant_file_name(instant.time, action, instant.state, 2, completion)
    return instant._replace(action=action, completion=completion, file_name=name)


def _moves(timeline: Timeline, scene: UpgradeScene, completions: Mapping[str, InstantTime]) -> tuple[TimelineMove, ...]:
    # Pending instants are rolled back before anything moves.
    moves = []
    for instant in timeline.completed:
        completion = completions[instant.file_name]
        for file in timeline.files_of(instant):
            action = file.action
            if not file.is_completed and action is Action.REPLACE_COMMIT and file.time in scene.clustering:
                action = Action.CLUSTERING
            name = instant_file_name(file.time, action, file.state, 2, completion if file.is_completed else None)
            moves.append(TimelineMove(file, f"{NEW_TIMELINE}/{name}"))
    return tuple(moves)


def completion_times(
    completed: Iterable[Instant], modified: Mapping[str, InstantTime], now: InstantTime
) -> dict[str, InstantTime]:
    """Return the completion time of each instant of layout 1 by file name. Pure.

    It is the modification time of the completed file, made unique and increasing with the requested
    times. A copied table has new modification times, so a time later than the next instant's
    request is not used.

    Example:
        >>> from lakefmt._core.timeline.instant import State
        >>> one = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED, file_name="a")
        >>> two = Instant(InstantTime("20260101000002000"), Action.COMMIT, State.COMPLETED, file_name="b")
        >>> completion_times([one, two], {"a": "20260101000000700", "b": "20260101000001000"}, "20260102000000000")
        {'a': '20260101000000700', 'b': '20260101000002001'}
    """
    ordered = sorted(completed, key=lambda i: (i.time, i.action.value))
    # A savepoint is made long after the commit whose time it shares, so it does not order commits.
    chain = [i for i in ordered if i.action is not Action.SAVEPOINT]
    used_times = {i.time for i in ordered}
    times: dict[str, InstantTime] = {}
    last = InstantTime("")
    for number, instant in enumerate(chain):
        later = [millisecond_before(chain[number + 1].time)] if number + 1 < len(chain) else []
        earliest_time = min(modified.get(instant.file_name, instant.time), now, *later)
        last = times[instant.file_name] = _free_time(earliest_time, max(last, instant.time), used_times)
    for instant in ordered:
        if instant.action is Action.SAVEPOINT:
            earliest_time = min(modified.get(instant.file_name, instant.time), now)
            times[instant.file_name] = _free_time(earliest_time, instant.time, used_times)
    return times


def _free_time(earliest_time: InstantTime, floor: InstantTime, used_times: set[InstantTime]) -> InstantTime:
    """Return the first unused time from `earliest_time` on above `floor`, and mark it used."""
    time = earliest_time if earliest_time > floor else next_instant_time(floor)
    while time in used_times:
        time = next_instant_time(time)
    used_times.add(time)
    return time


def upgraded_body(instant: Instant, data: bytes) -> bytes:
    """Return the layout 2 content of a layout 1 timeline file. Pure.

    Args:
        instant: the instant of the file.
        data: the bytes of the file.

    Raises:
        CorruptFile: the bytes are not valid for such a file.

    Source: docs/format.md, Timeline bodies.

    Example:
        >>> from lakefmt._core.timeline.instant import State
        >>> done = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED)
        >>> body = upgraded_body(done, b'{"partitionToWriteStats": {}, "operationType": "UPSERT"}')
        >>> decode_body(BodyKind.COMMIT, body)["operationType"]
        'UPSERT'
    """
    kind = body_kind(instant.action, instant.state)
    if kind is None or data.startswith(MAGIC):
        return data
    if data:
        return encode_body(kind, decode_body(kind, data, what=instant.file_name))
    if kind is BodyKind.CLEAN_METADATA:
        # In version 6 an empty clean may have an empty completed file; later versions do not allow
        # that.
        return encode_body(kind, _clean_of_nothing(instant.time))
    if instant.is_completed:
        raise CorruptFile(f"{instant.file_name} is empty: a completed instant must have a body")
    return data


def _clean_of_nothing(time: InstantTime) -> dict[str, object]:
    return {
        "startCleanTime": time,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": 0,
        "earliestCommitToRetain": "",
        "partitionMetadata": {},
        "version": 2,
        "bootstrapPartitionMetadata": {},
    }


def upgraded_properties(config: TableConfig, target: TableVersion) -> dict[str, str | None]:
    """Return the properties that an upgrade changes; None removes one. Pure.

    Raises:
        UnsupportedFeature: lakefmt does not know the table's key generator.

    Source: docs/format.md, Property keys; Merge modes; Upgrade.

    Example:
        >>> from lakefmt._core.config.table_config import parse_table_config
        >>> old = parse_table_config({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE",
        ...     "hoodie.table.version": "6", "hoodie.timeline.layout.version": "1"})
        >>> upgraded_properties(old, TableVersion.EIGHT)["hoodie.timeline.layout.version"]
        '2'
    """
    properties = dict(config.properties)
    if config.version is TableVersion.SIX:
        _turn_to_eight(config, properties)
    if target is TableVersion.NINE:
        _turn_to_nine(config, properties)
    changed: dict[str, str | None] = dict.fromkeys(config.properties.keys() - properties.keys())
    return changed | {key: value for key, value in properties.items() if config.properties.get(key) != value}


def _turn_to_eight(config: TableConfig, properties: dict[str, str]) -> None:
    spec = key_spec_from_properties(config.properties)
    keys = key_properties(spec, TableVersion.EIGHT)
    spoken = ("hoodie.table.keygenerator.type", "hoodie.table.partition.fields")
    mode = config.merge_mode
    payload = properties.get("hoodie.compaction.payload.class", "")
    # The three must agree: without an ordering field an event-time payload has no effect.
    agrees = payload and payload.endswith("OverwriteWithLatestAvroPayload") == (mode is MergeMode.COMMIT_TIME_ORDERING)
    properties |= {
        "hoodie.table.version": "8",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.table.initial.version": properties.get("hoodie.table.initial.version") or "6",
        "hoodie.record.merge.mode": mode.value,
        "hoodie.record.merge.strategy.id": STRATEGY_IDS[mode],
        "hoodie.compaction.payload.class": payload if agrees else PAYLOADS[mode],
        **{key: keys[key] for key in spoken if key in keys},
    }
    # The old strategy always means event time, and later versions read it as another name of the
    # strategy id.
    for key in ("hoodie.compaction.record.merger.strategy", "hoodie.table.secondary.indexes.metadata"):
        properties.pop(key, None)


def _turn_to_nine(config: TableConfig, properties: dict[str, str]) -> None:
    properties.pop("hoodie.record.merge.strategy.id", None)
    properties.pop("hoodie.compaction.record.merger.strategy", None)
    payload = properties.pop("hoodie.compaction.payload.class", "")
    if payload:
        properties["hoodie.table.legacy.payload.class"] = payload
    properties.pop("hoodie.table.precombine.field", None)
    if config.ordering_fields:
        properties["hoodie.table.ordering.fields"] = ",".join(config.ordering_fields)
    for key in ("hoodie.payload.delete.field", "hoodie.payload.delete.marker"):
        if key in properties:
            properties[f"hoodie.record.merge.property.{key}"] = properties.pop(key)
    properties |= {
        "hoodie.table.version": "9",
        "hoodie.record.merge.mode": config.merge_mode.value,
        "hoodie.table.format": "native",
    }


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
