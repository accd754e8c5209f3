"""``table.restore``: bring back the state of a commit (docs/format.md, Restore)."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from lakefmt.data_classes import dataclass
from lakefmt.errors import StateError, WriterActive
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.segments.pending import forget_committed
from lakefmt.storage.api import remove_abandoned
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.timeline.savepoint import RestorePlan, restore_record, savepoints_of, select_instants_to_undo
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteClient, open_write_client
from lakefmt.transactions.instant import InstantTransaction
from lakefmt.transactions.recovery import (
    check_rollback_allowed,
    execute_restore,
    finish_dead_restores,
    finish_rollback,
    plan_rollbacks,
)
from lakefmt.undo._historical_state import check_whole, state_without
from lakefmt.values import InstantTime, TableType
from lakefmt.write.commit.transaction import open_for_writing

__all__ = ["RestoreResult", "plan_restore_of", "restore_table"]


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What a restore did; prints as one line. ``instant`` None: there was nothing to undo, or it is only a plan."""

    instant: InstantTime | None
    plan: RestorePlan
    completion_time: InstantTime | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.instant is None:
            return str(self.plan)
        return (
            f"restored to {self.plan.target}: {len(self.plan.instants)} instants undone, {self.plan.num_files:,} files "
            f"deleted, by restore {self.instant}, {self.seconds:.3f} s"
        )


def plan_restore_of(client: TableClient, instant: str, options: Mapping[str, object] | None = None) -> RestorePlan:
    """Return what :func:`restore_table` would do; nothing is changed.

    Raises:
        InstantNotFound: the timeline has no such instant.
        StateError: the state cannot be brought back; the message says why.
    """
    open_write_client(client, options)  # wrong settings are refused here, too
    return _plan(client, client.load(), instant)


def restore_table(
    client: TableClient, instant: str, options: Mapping[str, object] | None = None, *, force: bool = False
) -> RestoreResult:
    """Bring the state of a commit back.

    Args:
        client: the table.
        instant: the commit's requested or completion time.
        options: settings of the call.
        force: also roll back pending instants whose writers may be alive.

    Raises:
        InstantNotFound: the timeline has no such instant.
        StateError: the state cannot be brought back: a part of it was cleaned or archived, or a newer savepoint keeps
            what would have to be deleted.
        WriterActive: a writer may be alive.
        MetadataTablePresent: the table advertises a metadata table and the call did not ask to drop it.
        LockUnavailable: the table lock could not be had in time.
    """
    begun = perf_counter()
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = open_for_writing(write_client)
        timeline_store = write_client.timeline(config)
        timeline = timeline_store.load()
        if finish_dead_restores(write_client, config, timeline, lease):
            timeline = timeline_store.load()
        state = TableState(config, timeline)
        plan = _plan(client, state, instant)
        if not force:
            _check_nobody_writes(write_client, state, plan)
        if not plan.instants:
            return RestoreResult(None, plan, seconds=perf_counter() - begun)
        check_rollback_allowed(write_client, config, plan.instants, restoring=True)
        _finish_rollbacks(write_client, state, lease)
        forget_committed(client, state)
        body = encode_body(BodyKind.RESTORE_PLAN, restore_record(plan))
        # When it fails from here on, the next writer finishes it.
        with InstantTransaction.claim(write_client, state, Action.RESTORE, lease, body) as restore:
            planned = tuple((i.time, i.action) for i in plan.instants)
            completed = execute_restore(restore, config, planned, lease)
        restore.finish(has_markers=False)
        remove_abandoned(client.store)
    return RestoreResult(restore.time, plan, completed.completion, perf_counter() - begun)


def _plan(client: TableClient, state: TableState, instant: str) -> RestorePlan:
    target = _find_target(client, state, instant)
    timeline = state.timeline
    kept = {i.time for i in savepoints_of(timeline)}
    on_read = state.config.table_type is TableType.MERGE_ON_READ
    undone = select_instants_to_undo(timeline, target, merge_on_read=on_read)
    saved = sorted(i.time for i in undone if i.is_completed and i.time in kept)
    if saved:
        raise StateError(
            f"a restore to {target.time} would undo {', '.join(saved)}, which a savepoint keeps: delete it first"
        )
    then = state_without(client, state, undone)
    if any(i.time > target.time for i in then.timeline.archived if i.action in COMMIT_ACTIONS):
        raise StateError(f"commits after {target.time} were archived: what they wrote cannot be taken back any more")
    if undone:
        check_whole(client, state, then, f"the state of {target.time} cannot come back")
    plans = plan_rollbacks(client.store, state.config, timeline, undone)
    return RestorePlan(target.time, target.time in kept, undone, plans)


def _find_target(client: TableClient, state: TableState, instant: str) -> Instant:
    if not any(instant in (i.time, i.completion) for i in state.timeline):
        client.with_history(state).timeline.find(instant)  # InstantNotFound when it is not archived either
        raise StateError(
            f"{instant} is archived: only commits of the active timeline can be restored; use as_of to read"
        )
    target = state.timeline.find(instant)
    if target.action not in COMMIT_ACTIONS or not target.is_completed:
        raise StateError(f"{target} is no completed commit: only the state of one can come back")
    return target


def _check_nobody_writes(write_client: WriteClient, state: TableState, plan: RestorePlan) -> None:
    """Raise while the writer of an instant that would be undone may be alive; a plan that only waits has no writer."""
    for pending in (i for i in plan.instants if not i.is_completed):
        waits = pending.state is State.REQUESTED and pending.action not in COMMIT_ACTIONS
        if waits and write_client.client.store.info(heartbeat_name(pending.time)) is None:
            continue
        life = write_client.writer_liveness(state.config, state.timeline, pending)
        if life.alive:
            raise WriterActive(f"{pending} belongs to a writer that may be alive ({life.reason}); force=True undoes it")


def _finish_rollbacks(write_client: WriteClient, state: TableState, lease: Lease) -> None:
    """Finish rollbacks whose process died, so that none is left that names what the restore removes."""
    for pending in _pending_rollbacks(state.timeline):
        finish_rollback(write_client, state, pending, lease)


def _pending_rollbacks(timeline: Timeline) -> list[Instant]:
    return [i for i in timeline.pending if i.action is Action.ROLLBACK]
