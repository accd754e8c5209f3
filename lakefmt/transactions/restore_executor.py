"""Carrying a restore out, and to its end when its process died (spec 10.11; effects).

The order of the effects is what readers rely on. First every commit becomes invisible, newest first: in between the
table reads as it was after some commit. Then their files go, which nobody counts any more; then they leave the timeline,
and the restore completes. Each step may be repeated: the plan is on the timeline, what is done is not there to be done.
"""

from __future__ import annotations

from lakefmt.config.table_config import TableConfig
from lakefmt.errors import WriterActive
from lakefmt.storage.api import ObjectStore
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.locks.open import Lease
from lakefmt.timeline.markers import remove_markers
from lakefmt.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.timeline.restore import (
    instants_already_undone,
    parse_restore_record,
    requested_as,
    restore_metadata_record,
)
from lakefmt.timeline.rollback import (
    RollbackPlan,
    choose_logs,
    execute_rollback,
    plan_rollback,
    rollback_metadata_record,
    scan_logs,
)
from lakefmt.timeline.store import TimelineStore
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteClient
from lakefmt.values import InstantTime, TableType

__all__ = ["execute_restore", "finish_dead_restores", "finish_restore", "plan_rollbacks"]

_Planned = tuple[tuple[InstantTime, Action], ...]


def plan_rollbacks(
    store: ObjectStore, config: TableConfig, timeline: Timeline, undone: tuple[Instant, ...]
) -> tuple[RollbackPlan, ...]:
    """Look for the files of instants and return what undoes each; nothing is changed."""
    names = [item.name for item in store.list() if not item.name.startswith(".hoodie/")]
    shares_logs = config.version.layout == 1 and config.table_type is TableType.MERGE_ON_READ
    content = scan_logs(store, names) if shares_logs and undone else {}
    plans = []
    taken: set[str] = set()
    for instant in undone:
        # As a plain write: whatever has the time of a compaction that goes was written on top of it, and goes, too.
        plain = Action.COMMIT if instant.action is Action.COMPACTION else instant.action
        rest = [name for name in names if name not in taken]
        logs = choose_logs({name: said for name, said in content.items() if name not in taken}, instant.time)
        plan = plan_rollback(Instant(instant.time, plain, State.INFLIGHT), rest, logs)
        taken.update(name for files in plan.files.values() for name in files)
        plans.append(RollbackPlan(instant.time, requested_as(timeline, instant), plan.files, plan.shared))
    return tuple(plans)


def execute_restore(
    write_client: WriteClient, config: TableConfig, time: InstantTime, planned: _Planned, lease: Lease | None = None
) -> Instant:
    """Do what is left to do of a restore, and complete it; call under the lock.

    Args:
        write_client: the table.
        config: its properties.
        time: the restore's instant, inflight.
        planned: what it undoes, in this order.
        lease: the lock's; nothing is hidden or completed once it is lost.
    """
    store, timeline_store = write_client.client.store, write_client.timeline(config)
    timeline = timeline_store.load()
    undone = instants_already_undone(timeline, planned)
    for instant in undone:
        if instant.is_completed:
            _check(lease)
            timeline_store.reopen(instant, requested_as(timeline, instant))
    plans = plan_rollbacks(store, config, timeline, undone)
    said: dict[InstantTime, object] = {}
    for plan in plans:
        said[plan.target] = rollback_metadata_record(store, plan, time, execute_rollback(store, plan, time))
    after = timeline_store.load()
    for instant in instants_already_undone(after, planned):
        _leave(store, timeline_store, after, instant)
    completion = write_client.instant_time_generator(config, after)()
    body = encode_body(BodyKind.RESTORE_METADATA, restore_metadata_record(time, planned, said))
    _check(lease)
    return timeline_store.complete(time, Action.RESTORE, completion, body)


def _check(lease: Lease | None) -> None:
    if lease is not None:
        lease.check()


def _leave(store: ObjectStore, timeline_store: TimelineStore, timeline: Timeline, instant: Instant) -> None:
    """Take an instant off the timeline: what is inflight first, or it would look as if it had never been requested."""
    remove_markers(store, instant.time)
    pending = [file for file in timeline.files_of(instant) if not file.is_completed]
    for file in sorted(pending, key=lambda f: f.state.rank, reverse=True):
        timeline_store.remove_files([file])
    store.delete([heartbeat_name(instant.time)])


def finish_dead_restores(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, lease: Lease | None = None
) -> bool:
    """Finish what restores and savepoints began and did not end; tell whether anything was; call under the lock.

    A restore goes on, because half of it is done; a savepoint that is not complete keeps nothing, so it goes.

    Raises:
        WriterActive: a restore is at work.
    """
    found = False
    for pending in timeline.pending:
        if pending.action not in (Action.RESTORE, Action.SAVEPOINT):
            continue
        life = write_client.writer_liveness(config, timeline, pending)
        if life.alive and pending.action is Action.RESTORE:
            raise WriterActive(f"{pending} may be at work ({life.reason}); try again later")
        if life.alive:
            continue
        found = True
        if pending.action is Action.SAVEPOINT:
            write_client.timeline(config).remove_pending(pending.time, Action.SAVEPOINT)
        else:
            finish_restore(write_client, config, timeline, pending, lease)
    return found


def finish_restore(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, pending: Instant, lease: Lease | None = None
) -> None:
    """Carry out the stored plan of a restore that died, whichever engine began it; call under the lock."""
    timeline_store = write_client.timeline(config)
    requested = next((f for f in timeline.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline_store.read_body(requested)
    if not body:
        # It died before its plan was written: nothing was undone, so it never was.
        timeline_store.remove_pending(pending.time, Action.RESTORE)
        return
    record = decode_body(BodyKind.RESTORE_PLAN, body, what=requested.file_name)
    timeline_store.start(pending.time, Action.RESTORE)
    execute_restore(write_client, config, pending.time, parse_restore_record(record, requested.file_name), lease)
    write_client.client.store.delete([heartbeat_name(pending.time)])
