"""Execute a restore, or finish one whose process died (docs/format.md, Restore); under the table lock.

Readers rely on the order of the steps. First every commit becomes invisible, newest first: in between, the table reads as
it was after some commit. Then their files are deleted, then they leave the timeline, then the restore completes. Every
step may be repeated: the plan is on the timeline, and what is done is no longer there to be done.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakefmt.config.table_config import TableConfig
from lakefmt.errors import WriterActive
from lakefmt.formats.names import parse_log_file
from lakefmt.storage.api import ObjectStore
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.markers import remove_markers
from lakefmt.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.timeline.rollback import (
    RollbackPlan,
    choose_logs,
    execute_rollback,
    logs_named_by_slice,
    plan_rollback,
    rollback_metadata_record,
    scan_logs,
)
from lakefmt.timeline.savepoint import (
    instants_left_to_undo,
    parse_restore_record,
    requested_as,
    restore_metadata_record,
)
from lakefmt.timeline.store import TimelineStore
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteClient
from lakefmt.transactions.instant import InstantTransaction
from lakefmt.transactions.rollback_executor import check_rollback_allowed
from lakefmt.values import InstantTime, TableType

__all__ = ["execute_restore", "finish_dead_restores", "finish_restore", "plan_rollbacks"]

_Planned = tuple[tuple[InstantTime, Action], ...]


def plan_rollbacks(
    store: ObjectStore, config: TableConfig, timeline: Timeline, undone: tuple[Instant, ...]
) -> tuple[RollbackPlan, ...]:
    """List the files of instants and return the rollback of each; nothing is changed."""
    names = [item.name for item in store.list() if not item.name.startswith(".hoodie/")]
    content = scan_logs(store, _shared_logs(config, timeline, names)) if undone else {}
    plans = []
    taken: set[str] = set()
    for instant in undone:
        # As a commit: files named by the time of a compaction that is undone were written on top of it and go, too.
        plain = Action.COMMIT if instant.action is Action.COMPACTION else instant.action
        other_names = [name for name in names if name not in taken]
        logs = choose_logs(
            {name: log_content for name, log_content in content.items() if name not in taken}, instant.time
        )
        plan = plan_rollback(Instant(instant.time, plain, State.INFLIGHT), other_names, logs)
        taken.update(name for files in plan.files.values() for name in files)
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
    restore: InstantTransaction, config: TableConfig, planned: _Planned, lease: Lease | None = None
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
            _check(lease)
            timeline_store.reopen(instant, requested_as(timeline, instant))
    plans = plan_rollbacks(store, config, timeline, undone)
    records: dict[InstantTime, object] = {}
    for plan in plans:
        records[plan.target] = rollback_metadata_record(store, plan, time, execute_rollback(store, plan, time))
    after = timeline_store.load()
    for instant in instants_left_to_undo(after, planned):
        _leave(store, timeline_store, after, instant)
    body = encode_body(BodyKind.RESTORE_METADATA, restore_metadata_record(time, planned, records))
    return restore.complete(lease, config, timeline_store.load(), body)


def _check(lease: Lease | None) -> None:
    if lease is not None:
        lease.check()


def _leave(store: ObjectStore, timeline_store: TimelineStore, timeline: Timeline, instant: Instant) -> None:
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
