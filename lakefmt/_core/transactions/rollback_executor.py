"""Execute a rollback or a restore, finish one whose process died, or withdraw a pending clustering; under the table lock.

A rollback has its own instant. Every step may be repeated: one that died half-way is finished by the next writer from its
stored plan.

Readers rely on the order of the steps of a restore (docs/format.md, Restore). First every commit becomes invisible, newest
first: in between, the table reads as it was after some commit. Then their files are deleted, then they leave the timeline,
then the restore completes. Every step may be repeated: the plan is on the timeline, and what is done is no longer there to
be done.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.pending_plans import groups_of_plan, new_groups_of_plan, pending_clusterings
from lakefmt._core.filegroups.table_client import TableState
from lakefmt._core.formats.names import parse_log_file, ring_files
from lakefmt._core.storage.api import ObjectStore, remove_abandoned
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.markers import list_marked, remove_markers, remove_saved_writes
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.rollback import (
    KEEP_PLAN,
    RollbackPlan,
    choose_logs,
    execute_rollback,
    instants_left_to_undo,
    logs_named_by_slice,
    parse_restore_record,
    parse_rollback_plan,
    plan_rollback,
    plan_rollback_of,
    requested_as,
    restore_metadata_record,
    rollback_metadata_record,
    rollback_plan_record,
    scan_logs,
)
from lakefmt._core.timeline.store import TimelineStore
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import WriteAt, WriteClient
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType
from lakefmt.errors import StateError, WriterActive

__all__ = [
    "check_rollback_allowed",
    "discard_clustered_files",
    "drop_rings",
    "execute_restore",
    "finish_dead_restores",
    "finish_restore",
    "finish_rollback",
    "plan_rollbacks",
    "run_rollback",
    "withdraw_clustering",
    "withdraw_clusterings",
]


_PlannedInstants = tuple[tuple[InstantTime, Action], ...]


def check_rollback_allowed(
    write_client: WriteClient, config: TableConfig, targets: Sequence[Instant], *, restoring: bool = False
) -> None:
    """Ask every commit observer before instants are rolled back; whatever an observer raises refuses the rollback.

    Args:
        write_client: the table.
        config: its properties.
        targets: the instants.
        restoring: a restore undoes them, at the end of which the metadata table is made anew: it has no objection.
    """
    for observer in write_client.client.observers if restoring else write_client.observers(config):
        observer.before_rollback(config, targets)


def run_rollback(write_at: WriteAt, target: Instant, plan: RollbackPlan, lease: Lease | None) -> InstantTime:
    """Roll back an instant; call under the table lock.

    Args:
        write_at: the table and its writer, at one moment.
        target: the instant, pending or completed.
        plan: its files.
        lease: of the table lock.

    Returns:
        The rollback's own instant time.

    Raises:
        LeaseLost: the lock was lost; nothing is deleted.
    """
    check_rollback_allowed(write_at.write_client, write_at.config, [target])
    timeline_store = write_at.write_client.timeline(write_at.config)
    time = write_at.write_client.instant_time_generator(write_at.config, write_at.timeline)()
    rollback = InstantTransaction(write_at.write_client, time, Action.ROLLBACK)
    record = rollback_plan_record(write_at.client.store, plan)
    with rollback:
        rollback.request(write_at.config, encode_body(BodyKind.ROLLBACK_PLAN, record))
        if lease is not None:
            lease.check()  # a target that was completed while this process slept stays: the next writer drops the plan
        if target.is_completed:
            # After the plan is on the timeline, else a death in between would look like a completed file that was lost;
            # before any data file is deleted, else readers would miss rows.
            timeline_store.reopen(target)
        _execute_and_complete(rollback, write_at.config, plan, lease)
    return time


def finish_rollback(write_at: WriteAt, pending: Instant, lease: Lease | None) -> None:
    """Finish a rollback whose process died: execute its stored plan again; call under the table lock.

    Engines hide a completed target before they delete a file of it. A rollback whose target is still complete has
    deleted nothing, and others may have committed on top of the target since: it is removed from the timeline.

    Args:
        write_at: the table and its writer, at one moment.
        pending: the rollback's own instant.
        lease: of the table lock.
    """
    timeline_store, timeline = write_at.write_client.timeline(write_at.config), write_at.timeline
    requested = next((f for f in timeline.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline_store.read_body(requested)
    if not body:
        # It died before its plan was written, so nothing was deleted.
        timeline_store.remove_pending(pending.time, Action.ROLLBACK)
        return
    record = decode_body(BodyKind.ROLLBACK_PLAN, body, what=requested.file_name)
    plan = parse_rollback_plan(write_at.client.store, record)
    if any(commit.time == plan.target for commit in timeline.commits):
        timeline_store.remove_pending(pending.time, Action.ROLLBACK)
        return
    check_rollback_allowed(write_at.write_client, write_at.config, [Instant(plan.target, plan.action, State.INFLIGHT)])
    with InstantTransaction(write_at.write_client, pending.time, Action.ROLLBACK) as rollback:
        rollback.start(write_at.config)
        _execute_and_complete(rollback, write_at.config, plan, lease)


def _execute_and_complete(
    rollback: InstantTransaction, config: TableConfig, plan: RollbackPlan, lease: Lease | None
) -> None:
    write_client = rollback.write_client
    store = write_client.client.store
    command_sizes = execute_rollback(store, plan, rollback.time)
    # The target leaves the timeline before the rollback completes: when the process dies in between, the pending
    # rollback is found and finished; the other way round a pending instant without files would be rolled back again.
    _remove_target(write_client, config, plan)
    record = rollback_metadata_record(store, plan, rollback.time, command_sizes)
    timeline = write_client.timeline(config).load()
    # The caller has proved the lock before the first deletion. Only what observers wrote since can depend on it: without
    # them a completed rollback records what was done, whether the lock is still held or not.
    proof = lease if write_client.observers(config) else None
    # A writer that was taken for dead in the middle of its rollback may have completed it.
    with suppress(StateError):
        rollback.complete(proof, config, timeline, encode_body(BodyKind.ROLLBACK_METADATA, record))


def _remove_target(write_client: WriteClient, config: TableConfig, plan: RollbackPlan) -> None:
    """Remove an instant whose files are deleted from the timeline, with its markers and heartbeat; may be repeated.

    A writer that was only slow may have written on. Files with markers that are newer than the plan are deleted, too,
    because nothing else tells of them once the markers are removed.
    """
    store, timeline_store = write_client.client.store, write_client.timeline(config)
    if plan.action in KEEP_PLAN:
        timeline_store.revert_to_requested(plan.target, plan.action)
    else:
        timeline_store.remove_pending(plan.target, plan.action)
    late = {*(list_marked(store, plan.target) or ())}.difference(*plan.files.values())
    if late:
        target = Instant(plan.target, plan.action, State.INFLIGHT)
        late_plan = plan_rollback_of(store, target, timeline_store.layout, late)
        store.delete(name for names in late_plan.files.values() for name in names)
    remove_saved_writes(store, plan.target)
    remove_markers(store, plan.target)
    store.delete([heartbeat_name(plan.target)])


def plan_rollbacks(
    store: ObjectStore, config: TableConfig, timeline: Timeline, undone: tuple[Instant, ...]
) -> tuple[RollbackPlan, ...]:
    """List the files of instants and return the rollback of each; nothing is changed."""
    names = [item.name for item in store.list() if not item.name.startswith(".hoodie/")]
    content = scan_logs(store, _shared_logs(config, timeline, names)) if undone else {}
    plans = []
    planned_names: set[str] = set()
    for instant in undone:
        # As a commit: files named by the time of a compaction that is undone were written on top of it and go, too.
        plain = Action.COMMIT if instant.action is Action.COMPACTION else instant.action
        other_names = [name for name in names if name not in planned_names]
        logs = choose_logs(
            {name: log_content for name, log_content in content.items() if name not in planned_names}, instant.time
        )
        plan = plan_rollback(Instant(instant.time, plain, State.INFLIGHT), other_names, logs)
        planned_names.update(name for files in plan.files.values() for name in files)
        plans.append(RollbackPlan(instant.time, requested_as(timeline, instant), plan.files, plan.shared))
    return tuple(plans)


def _shared_logs(config: TableConfig, timeline: Timeline, names: Sequence[str]) -> Sequence[str]:
    """Return the logs that other instants may name than those that wrote them."""
    if config.table_type is not TableType.MERGE_ON_READ:
        return ()
    if config.version.layout == 1:
        return names
    from_before_upgrade = logs_named_by_slice(names, names)
    waiting = timeline.pending_clusterings
    parsed = ((name, parse_log_file(name.rpartition("/")[2])) for name in names) if waiting else ()
    copies = [name for name, log in parsed if log is not None and log.instant in waiting]  # for their new buckets
    return sorted({*from_before_upgrade, *copies})


def execute_restore(
    restore: InstantTransaction, config: TableConfig, planned: _PlannedInstants, lease: Lease | None = None
) -> Instant:
    """Do the rest of a restore and complete it; call under the table lock.

    Args:
        restore: the restore's instant, inflight.
        config: the table's properties.
        planned: the instants that the restore undoes, in this order.
        lease: of the table lock; nothing is hidden or completed once it is lost.
    """
    write_client, time = restore.write_client, restore.time
    store, timeline_store = write_client.client.store, write_client.timeline(config)
    timeline = timeline_store.load()
    undone = instants_left_to_undo(timeline, planned)
    for instant in undone:
        if instant.is_completed:
            _check_lease(lease)
            timeline_store.reopen(instant, requested_as(timeline, instant))
    plans = plan_rollbacks(store, config, timeline, undone)
    records: dict[InstantTime, object] = {}
    for plan in plans:
        records[plan.target] = rollback_metadata_record(store, plan, time, execute_rollback(store, plan, time))
    after = timeline_store.load()
    for instant in instants_left_to_undo(after, planned):
        _remove_from_timeline(store, timeline_store, after, instant)
    body = encode_body(BodyKind.RESTORE_METADATA, restore_metadata_record(time, planned, records))
    return restore.complete(lease, config, timeline_store.load(), body)


def _check_lease(lease: Lease | None) -> None:
    if lease is not None:
        lease.check()


def _remove_from_timeline(
    store: ObjectStore, timeline_store: TimelineStore, timeline: Timeline, instant: Instant
) -> None:
    """Remove an instant from the timeline: the inflight file first, else it would look as if it was never requested."""
    remove_markers(store, instant.time)
    pending = [file for file in timeline.files_of(instant) if not file.is_completed]
    for file in sorted(pending, key=lambda f: f.state.rank, reverse=True):
        timeline_store.remove_files([file])
    store.delete([heartbeat_name(instant.time)])


def finish_dead_restores(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, lease: Lease | None = None
) -> bool:
    """Finish restores and remove savepoints whose process died; return whether there were any; call under the table lock.

    A restore is finished, because half of it is done; a savepoint that is not complete keeps nothing, so it is removed.

    Raises:
        WriterActive: another process executes a restore.
    """
    changed = False
    for pending in timeline.pending:
        if pending.action not in (Action.RESTORE, Action.SAVEPOINT):
            continue
        life = write_client.writer_liveness(config, timeline, pending)
        if life.alive and pending.action is Action.RESTORE:
            raise WriterActive(f"{pending} may be at work ({life.reason}); try again later")
        if life.alive:
            continue
        changed = True
        if pending.action is Action.SAVEPOINT:
            write_client.timeline(config).remove_pending(pending.time, Action.SAVEPOINT)
        else:
            finish_restore(write_client, config, timeline, pending, lease)
    return changed


def finish_restore(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, pending: Instant, lease: Lease | None = None
) -> None:
    """Execute the stored plan of a restore whose process died, whichever engine began it; call under the table lock."""
    timeline_store = write_client.timeline(config)
    requested = next((f for f in timeline.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline_store.read_body(requested)
    if not body:
        # It died before its plan was written, so nothing was undone.
        timeline_store.remove_pending(pending.time, Action.RESTORE)
        return
    record = decode_body(BodyKind.RESTORE_PLAN, body, what=requested.file_name)
    planned = parse_restore_record(record, requested.file_name)
    check_rollback_allowed(write_client, config, instants_left_to_undo(timeline, planned), restoring=True)
    with InstantTransaction(write_client, pending.time, Action.RESTORE) as restore:
        restore.start(config)
        execute_restore(restore, config, planned, lease)
    write_client.client.store.delete([heartbeat_name(pending.time)])


def drop_rings(write_client: WriteClient, time: InstantTime, opened: Collection[tuple[PartitionPath, FileId]]) -> None:
    """Delete the rings that an attempt at a clustering of buckets stored; call under the table lock."""
    for partition in sorted({partition for partition, _ in opened}):
        write_client.client.store.delete(ring_files(partition, time))


def discard_clustered_files(write_at: WriteAt, time: InstantTime, partitions: Collection[PartitionPath]) -> None:
    """Delete the base files that an attempt at a clustering wrote; call under the table lock."""
    store = write_at.client.store
    store.delete(_attempted(write_at, time, partitions))
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


def _attempted(write_at: WriteAt, time: InstantTime, partitions: Collection[PartitionPath]) -> list[str]:
    bases, _ = write_at.client.storage_listing(write_at.config).files(partitions)
    return [file.path for file in bases if file.instant == time]


def withdraw_clustering(write_at: WriteAt, pending: Instant, lease: Lease) -> None:
    """Delete what a pending clustering wrote, then its plan; call under the table lock.

    An attempt that is only slow may put a file later: with a rollback on the timeline, the archive looks for it. Rows that
    writers have copied to the buckets that it is to open are in the old buckets, too. Commits name these logs, so that they
    also go with a rollback.
    """
    client = write_at.client
    opened = new_groups_of_plan(client.at(write_at.state), pending)
    partitions = sorted({partition for partition, _ in groups_of_plan(client.at(write_at.state), pending)})
    copies = []
    if opened:
        _, logs = client.storage_listing(write_at.config).files(partitions)
        copies = [log.path for log in logs if log.instant == pending.time]
    if copies or pending.state is State.INFLIGHT:
        plan = plan_rollback(pending, [*copies, *_attempted(write_at, pending.time, partitions)])
        run_rollback(write_at, pending, plan, lease)
        drop_rings(write_at.write_client, pending.time, opened)
        return
    check_rollback_allowed(write_at.write_client, write_at.config, [pending])
    lease.check()
    discard_clustered_files(write_at, pending.time, partitions)
    drop_rings(write_at.write_client, pending.time, opened)
    client.store.delete([heartbeat_name(pending.time)])
    write_at.write_client.timeline(write_at.config).remove_pending(pending.time, pending.action)


def withdraw_clusterings(write_at: WriteAt, times: Collection[InstantTime]) -> None:
    """Withdraw clusterings that no process executes, for a write that changes their file groups.

    Raises:
        WriterActive: a process executes one of them.
    """
    with write_at.lock.hold() as lease:
        now = TableState(write_at.config, write_at.write_client.timeline(write_at.config).load())
        for pending in pending_clusterings(write_at.client.at(now)):
            if pending.time in times:
                write_at.write_client.at(now).check_not_at_work(pending)
                withdraw_clustering(write_at.write_client.at(now), pending, lease)
