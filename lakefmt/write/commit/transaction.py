"""The commit conversation: begin (claim, requested, inflight), commit (check, completed), abort (effects).

One place, one lock. What is decided is pure and lives below: transitions, conflicts, rollback plans. Here the effects
are put in order, so that dying between any two of them leaves the state before or the state after. What others left or are
at is looked at in ``settling`` (before) and ``rivals`` (after):

1. claim the instant time by its heartbeat, 2. requested, 3. inflight, … files with markers …, 4. completed: the only
moment at which anything becomes visible, 5. markers and heartbeat go; what is left of them after a death here is swept
by the next writer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import pyarrow as pa

from lakefmt.config.table_config import TableConfig, check_writable, parse_table_config
from lakefmt.errors import InstantNotPending, InternalError, StateError, UnsupportedFeature, WriterActive
from lakefmt.filegroups.cdc.files import cdc_paths
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.filegroups.virtual_columns import stored_schema
from lakefmt.schema import arrow_to_avro
from lakefmt.schema.history import LATEST_SCHEMA
from lakefmt.storage.local.process_lock import process_locks
from lakefmt.storage.parallel import map_concurrently
from lakefmt.timeline.commit import CommitMetadata, encode_commit
from lakefmt.timeline.heartbeat import Heartbeat, make_stamp
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt.timeline.locks.open import Lease
from lakefmt.timeline.markers import list_marked, remove_markers
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.timeline.properties_store import property_reads, recover_properties
from lakefmt.timeline.rollback import plan_rollback_of, run_rollback
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteClient, claim_instant, drop_metadata_table, open_write_client
from lakefmt.transactions.concurrency import Concurrency, check_concurrency
from lakefmt.transactions.recovery import read_under_lock, remove_marked_files, undo_dead_writes
from lakefmt.values import CommitResult, FileId, InstantTime, PartitionPath, TableType, WriteOperation
from lakefmt.write.commit.callbacks import SECRET_OPTIONS
from lakefmt.write.commit.conflict_resolution import WRITER, Footprint, resolve_conflicts
from lakefmt.write.commit.key_stats import (
    KEY_HASHES_ENTRY,
    KEY_RANGES_ENTRY,
    LOG_KEYS_ENTRY,
    key_stats_of,
    log_key_coverage_of,
)
from lakefmt.write.context import WriteContext, WriteRequest, WriteStatus

__all__ = [
    "LiveWrite",
    "abort_write",
    "begin_write",
    "commit_write",
    "concurrency_of",
    "open_for_writing",
    "rehearse_write",
    "undo_dead_writes",
]


@dataclass(frozen=True, slots=True)
class LiveWrite:
    """A write that this process began: its context, and the heartbeat that says it lives.

    Attributes:
        state: the table when it began.
        rules: how it behaves beside other writers.
        based_on: the older state that its rows were read from, when they were.
    """

    context: WriteContext
    heartbeat: Heartbeat
    state: TableState
    rules: Concurrency
    based_on: TableState | None = None


def concurrency_of(write_client: WriteClient) -> Concurrency:
    """Return how a writer behaves beside others.

    Raises:
        InvalidInputError: its settings could lose rows.
        UnsupportedFeature: a mode or strategy that lakefmt cannot keep.
    """
    store = write_client.client.store
    reaches_all = (
        process_locks(store) is not None
        or store.url.startswith("memory://")
        or write_client.settings.text("hoodie.write.lock.provider") is not None
    )
    return check_concurrency(write_client.settings, lock_reaches_all=reaches_all)


def begin_write(
    client: TableClient, request: WriteRequest, evolve: Callable[[pa.Schema], pa.Schema] = lambda schema: schema
) -> LiveWrite:
    """Begin a write: undo what the dead left, choose the instant, make it inflight.

    Args:
        client: the table.
        request: what is asked for; settings of the handle go behind those of the call.
        evolve: gives the table's schema after the write from the one before, or refuses.

    Raises:
        MetadataTablePresent: the table advertises a metadata table and the call did not ask to drop it.
        UnsupportedFeature: the table has a feature that lakefmt does not write.
        WriterActive: another writer's instant is pending and alive, and this one wants to be alone.
        InvalidInputError: the settings could lose rows.
        LockUnavailable: the table lock could not be had in time.
    """
    write_client = open_write_client(client, request.options)
    rules = concurrency_of(write_client)
    later: list[Callable[[], object]] = []
    with ExitStack() as held:
        with write_client.lock.hold() as lease:
            look = read_under_lock(write_client, client.known_config, property_reads(client.store))
            config = open_for_writing(write_client, look.properties)
            timeline = undo_dead_writes(write_client, config, rules, lease, look, later)
            state = TableState(config, timeline)
            schema = _evolved(client, state, evolve)
            action = _action(request, config)
            heartbeat, instant = claim_instant(
                write_client, config, timeline, action, _requested_body(action, request.operation)
            )
            # When it fails from here on, it is dead: the next writer undoes what there is.
            held.callback(heartbeat.abandon)
            lease.check()
        # Requested, it is on the timeline: nobody has to wait for the rest.
        write_client.timeline(config).start(instant, action)
        for sweep in later:
            sweep()
        held.pop_all()
    return LiveWrite(_context(write_client, request, config, schema, instant), heartbeat, state, rules)


def rehearse_write(
    client: TableClient, request: WriteRequest, evolve: Callable[[pa.Schema], pa.Schema] = lambda schema: schema
) -> LiveWrite:
    """Do what :func:`begin_write` decides and nothing of what it does: a write that can be planned, not run.

    Raises:
        MetadataTablePresent: as for the write itself.
        UnsupportedFeature: as for the write itself.
    """
    write_client = open_write_client(client, request.options)
    state = client.load()
    if not (state.config.metadata_partitions and write_client.settings.values["hoodie.metadata.enable"] is False):
        check_writable(state.config)
    schema = _evolved(client, state, evolve)
    instant = write_client.instant_time_generator(state.config, state.timeline)()
    context = _context(write_client, request, state.config, schema, instant)
    heartbeat = Heartbeat(client.store, instant, write_client.owner, 60.0, client.time_source)
    return LiveWrite(context, heartbeat, state, concurrency_of(write_client))


def _evolved(client: TableClient, state: TableState, evolve: Callable[[pa.Schema], pa.Schema]) -> pa.Schema:
    """Return the table's schema after a write."""
    before = client.schema(state)
    after = evolve(before)
    if not after.equals(before) and client.internal_schema(state) is not None:
        raise UnsupportedFeature(
            "the data would change the table's columns, and Spark has given these ids (hoodie.schema.on.read.enable), "
            "which lakefmt cannot give to new ones: change the columns with ALTER TABLE in Spark, then write the data"
        )
    return after


def _action(request: WriteRequest, config: TableConfig) -> Action:
    if request.action is Action.COMMIT and config.table_type is TableType.MERGE_ON_READ:
        return Action.DELTA_COMMIT  # inserts into base files too (spec 3.2)
    return request.action


def _context(
    write_client: WriteClient, request: WriteRequest, config: TableConfig, schema: pa.Schema, instant: InstantTime
) -> WriteContext:
    options = {**write_client.client.options, **request.options}
    return WriteContext(
        url=write_client.client.store.url,
        owner=write_client.owner,
        instant=instant,
        action=_action(request, config).value,
        operation=request.operation,
        schema_text=arrow_to_avro(schema, config.name),
        file_schema_text=arrow_to_avro(stored_schema(config, schema), config.name, with_meta=True),
        properties=dict(config.properties),
        options={key: value for key, value in options.items() if key not in SECRET_OPTIONS},
        commit_metadata=dict(request.commit_metadata),
    )


def open_for_writing(write_client: WriteClient, found: Sequence[object] = ()) -> TableConfig:
    """Return the properties of a table that may be written; drops its metadata table when the call asked for that.

    Args:
        write_client: the table.
        found: what the looks at the properties found under this very lock.

    Raises:
        MetadataTablePresent: the table advertises a metadata table and the call did not ask to drop it.
        UnsupportedFeature: the table has a feature that lakefmt does not write.
    """
    store = write_client.client.store
    config = parse_table_config(recover_properties(store, found, durable=write_client.durable))
    if write_client.settings.values["hoodie.metadata.enable"] is True:
        raise UnsupportedFeature("hoodie.metadata.enable=true: lakefmt does not keep a metadata table yet")
    if config.metadata_partitions and write_client.settings.values["hoodie.metadata.enable"] is False:
        check_writable(replace(config, metadata_partitions=()))  # a refusal changes nothing, so it comes first
        _check_nobody_keeps_it(write_client, config)
        config = drop_metadata_table(write_client)
    check_writable(config)
    return config


def _check_nobody_keeps_it(write_client: WriteClient, config: TableConfig) -> None:
    """Raise when a live writer is about to write to the metadata table that would be dropped."""
    timeline = write_client.timeline(config).load()
    for pending in timeline.pending:
        if pending.action in COMMIT_ACTIONS and write_client.writer_liveness(config, timeline, pending).alive:
            raise WriterActive(f"{pending} is at work and may keep the metadata table: drop it when nobody writes")


def _requested_body(action: Action, operation: WriteOperation) -> bytes:
    if action is not Action.REPLACE_COMMIT:
        return b""
    # The operation tells whoever finds the instant pending that it may hide file groups without writing a file.
    nothing = {"operationType": operation.name, "clusteringPlan": None, "extraMetadata": None, "version": 1}
    return encode_body(BodyKind.REQUESTED_REPLACE, nothing)


def commit_write(
    write_client: WriteClient,
    live: LiveWrite,
    statuses: Sequence[WriteStatus],
    replaced: Mapping[PartitionPath, tuple[FileId, ...]] | None = None,
    footprint: Footprint | None = None,
) -> CommitResult:
    """Make a write visible, or refuse and leave everything as it was before.

    Args:
        write_client: the table and its lock.
        live: the write.
        statuses: what the workers wrote; of one file only one is counted.
        replaced: file groups that readers no longer see, by partition (replacecommits only).
        footprint: what the files do not tell and other writers may mind.

    Raises:
        CommitConflict: it cannot stand beside what happened meanwhile.
        InstantNotPending: another writer declared this one dead and rolled it back.
        LeaseLost: the table lock was lost; nothing was completed.
    """
    context = live.context
    stats = _distinct(context, statuses)
    metadata = CommitMetadata(
        operation=context.operation,
        stats=tuple(stat for s in stats for stat in s.stats),
        replaced_file_ids=replaced or {},
        extra_metadata={**_notes(live, statuses), "schema": context.schema_text},
        compacted=False,
    )
    # What others wait for is only what needs the lock: the attempts that lost are this write's own.
    strays = _strays(write_client, context, metadata)
    with write_client.lock.hold() as lease:
        config, timeline, _ = _looked_again(write_client, context)
        check_writable(config)
        _check_pending(timeline, context.instant)
        begun, now = live.based_on or live.state, TableState(config, timeline)
        metadata = resolve_conflicts(write_client, context, begun, metadata, footprint or Footprint(), now)
        internal = write_client.client.internal_schema(now)
        if internal is not None:  # else Spark would give the columns other ids when it changes them next
            metadata = replace(metadata, extra_metadata={**metadata.extra_metadata, LATEST_SCHEMA: internal})
        if strays:
            write_client.client.store.delete(strays)
        completed = _complete(write_client, config, timeline, context, metadata, lease)
    remove_markers(write_client.client.store, context.instant)
    live.heartbeat.stop()
    return _result(context, completed, stats)


def _looked_again(
    write_client: WriteClient, context: WriteContext, beside: Callable[[], list[str] | None] = lambda: None
) -> tuple[TableConfig, Timeline, list[str] | None]:
    """Return the properties and the timeline as they are now, and what is looked up beside them."""
    looks: list[Callable[[], object]] = [
        write_client.client.load_config,
        write_client.timeline(context.config).load,
        beside,
    ]
    found = map_concurrently(write_client.client.store, looks)
    config, timeline, more = cast("tuple[TableConfig, Timeline, list[str] | None]", found)
    if config.timeline_directory != context.config.timeline_directory:
        timeline = write_client.timeline(config).load()
    return config, timeline, more


def _notes(live: LiveWrite, statuses: Sequence[WriteStatus]) -> dict[str, str]:
    """Return what the caller wants remembered and, beside others, who writes and which keys: for those who come next."""
    own = (KEY_RANGES_ENTRY, KEY_HASHES_ENTRY, LOG_KEYS_ENTRY)
    said = {key: value for key, value in live.context.commit_metadata.items() if key not in own}
    said |= log_key_coverage_of(stat for status in statuses for stat in status.stats)
    if not live.rules.beside:
        return said
    stamp = json.loads(make_stamp(live.context.owner))
    return {**said, WRITER: f"{stamp['owner']} on {stamp['host']}, process {stamp['pid']}", **key_stats_of(statuses)}


def _distinct(context: WriteContext, statuses: Sequence[WriteStatus]) -> list[WriteStatus]:
    by_path: dict[str, WriteStatus] = {}
    for status in statuses:
        if status.instant != context.instant:
            raise StateError(f"a status of instant {status.instant} does not belong to the write {context.instant}")
        known = by_path.setdefault(status.stat.path, status)
        if known.stats != status.stats:
            raise InternalError(f"two attempts at {status.stat.path} tell different things; nothing is committed")
    return list(by_path.values())


def _strays(write_client: WriteClient, context: WriteContext, metadata: CommitMetadata) -> list[str]:
    """Return files of this instant that are announced but not in the commit (attempts that lost)."""
    wanted = {path for stat in metadata.stats for path in (stat.path, *cdc_paths(stat))}
    store = write_client.client.store
    strays = [path for path in list_marked(store, context.instant) or () if path not in wanted]
    if not strays:
        return []
    mine = Instant(context.instant, Action(context.action), State.INFLIGHT)
    plan = plan_rollback_of(store, mine, context.config.version.layout, strays)
    return [name for names in plan.files.values() for name in names]


def _check_pending(timeline: Timeline, time: InstantTime) -> None:
    """Raise unless the instant is inflight: its files are on the timeline that was just listed."""
    for pending in timeline.pending:
        started = any(file.state is State.INFLIGHT for file in timeline.files_of(pending))
        if pending.time == time and started and _was_requested(timeline, pending):
            return
    raise InstantNotPending(f"instant {time} is no longer pending: another writer rolled it back")


def _was_requested(timeline: Timeline, pending: Instant) -> bool:
    """Return whether the requested file is there: without it, what is inflight was rolled back before its request came."""
    return any(file.state is State.REQUESTED for file in timeline.files_of(pending))


def _complete(
    write_client: WriteClient,
    config: TableConfig,
    timeline: Timeline,
    context: WriteContext,
    metadata: CommitMetadata,
    lease: Lease,
) -> Instant:
    action = Action(context.action)
    body = encode_commit(metadata, config.version, replace=action is Action.REPLACE_COMMIT)
    completion = write_client.instant_time_generator(config, timeline)()
    lease.check()
    completed = write_client.timeline(config).complete(context.instant, action, completion, body)
    write_client.client.keep_commit(completed, metadata)
    return completed


def _result(context: WriteContext, completed: Instant, statuses: Sequence[WriteStatus]) -> CommitResult:
    stats = tuple(stat for s in statuses for stat in s.stats)
    return CommitResult(
        instant=context.instant,
        completion_time=completed.completion,
        action=context.action,
        operation=context.operation,
        num_inserts=sum(s.num_inserts for s in stats),
        num_updates=sum(s.num_update_writes for s in stats),
        num_deletes=sum(s.num_deletes for s in stats),
        files=stats,
        bytes_written=sum(s.file_size_in_bytes for s in stats),
    )


def abort_write(write_client: WriteClient, context: WriteContext, heartbeat: Heartbeat | None) -> None:
    """Undo a write that began: its files go, its instant leaves the timeline; twice is fine."""
    client = write_client.client
    with write_client.lock.hold() as lease:
        marked = partial(list_marked, client.store, context.instant)
        config, timeline, files = _looked_again(write_client, context, marked)
        timeline_store = write_client.timeline(config)
        pending = [i for i in timeline.pending if i.time == context.instant and i.action.value == context.action]
        # A rollback may have come before a slow request of ours: then an inflight file is there again, its markers may not be.
        undone = any(not _was_requested(timeline, instant) for instant in pending)
        for instant in pending:
            if files is None:
                # No marker, so no file: the instant can leave without a rollback of its own.
                timeline_store.remove_pending(instant.time, instant.action)
                continue
            plan = plan_rollback_of(client.store, instant, timeline.layout, files)
            lease.check()
            run_rollback(client.store, timeline_store, plan, write_client.instant_time_generator(config, timeline))
        if undone or not pending:
            # Undone by somebody who took us for dead: markers went with it, maybe between a marker of ours and its file.
            state = TableState(config, timeline_store.load() if undone else timeline)
            remove_marked_files(client, state, context.instant, unmarked=True)
    remove_markers(client.store, context.instant)
    if heartbeat is not None:
        heartbeat.stop()
