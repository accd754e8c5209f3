"""``table.restore``: the state of a commit comes back (spec 10.11; effects)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

from lakefmt.errors import StateError, WriterActive
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.storage.api import remove_abandoned
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.timeline.restore import RestorePlan, restore_record, select_instants_to_undo
from lakefmt.timeline.rollback import finish_rollback
from lakefmt.timeline.savepoint import savepoints_of
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteClient, open_write_client, request_service
from lakefmt.transactions.restore_executor import execute_restore, finish_dead_restores, plan_rollbacks
from lakefmt.undo._historical_state import check_whole, state_without
from lakefmt.values import InstantTime, TableType
from lakefmt.write.commit.transaction import open_for_writing

__all__ = ["RestoreResult", "plan_restore_of", "restore_table"]


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What a restore did; prints as one readable line. ``instant`` None: nothing was to be undone, or a plan only."""

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
        StateError: that state cannot come back; the message says why.
    """
    open_write_client(client, options)  # settings that are wrong are refused here, too
    return _plan(client, client.load(), instant)


def restore_table(
    client: TableClient, instant: str, options: Mapping[str, object] | None = None, *, force: bool = False
) -> RestoreResult:
    """Bring the state of a commit back.

    Args:
        client: the table.
        instant: the commit's requested or completion time.
        options: settings of the call.
        force: also when writers of pending instants may be alive; theirs are undone, too.

    Raises:
        InstantNotFound: the timeline has no such instant.
        StateError: that state cannot come back: something of it was cleaned or archived, or a newer savepoint keeps
            what would have to go.
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
        _finish_rollbacks(write_client, state)
        body = encode_body(BodyKind.RESTORE_PLAN, restore_record(plan))
        heartbeat, time = request_service(write_client, state, Action.RESTORE, body, lease, start=True)
        try:
            planned = tuple((i.time, i.action) for i in plan.instants)
            done = execute_restore(write_client, config, time, planned, lease)
        except BaseException:
            heartbeat.abandon()  # dead from here on: the next writer carries the plan out
            raise
        heartbeat.stop()
        remove_abandoned(client.store)
    return RestoreResult(time, plan, done.completion, perf_counter() - begun)


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
        client.with_history(state).timeline.find(instant)  # InstantNotFound when nobody knows it
        raise StateError(
            f"{instant} is archived: only commits of the active timeline can be restored; use as_of to read"
        )
    target = state.timeline.find(instant)
    if target.action not in COMMIT_ACTIONS or not target.is_completed:
        raise StateError(f"{target} is no completed commit: only the state of one can come back")
    return target


def _check_nobody_writes(write_client: WriteClient, state: TableState, plan: RestorePlan) -> None:
    """Refuse while the writer of something that goes may be alive; a plan that nobody carries out has none."""
    for pending in (i for i in plan.instants if not i.is_completed):
        waits = pending.state is State.REQUESTED and pending.action not in COMMIT_ACTIONS
        if waits and write_client.client.store.info(heartbeat_name(pending.time)) is None:
            continue
        life = write_client.writer_liveness(state.config, state.timeline, pending)
        if life.alive:
            raise WriterActive(f"{pending} belongs to a writer that may be alive ({life.reason}); force=True undoes it")


def _finish_rollbacks(write_client: WriteClient, state: TableState) -> None:
    """Carry out rollbacks that died, so that no plan is left that speaks of what the restore takes away."""
    for pending in _pending_rollbacks(state.timeline):
        timeline_store = write_client.timeline(state.config)
        next_time = write_client.instant_time_generator(state.config, timeline_store.load())
        finish_rollback(write_client.client.store, timeline_store, state.timeline, pending, next_time)


def _pending_rollbacks(timeline: Timeline) -> list[Instant]:
    return [i for i in timeline.pending if i.action is Action.ROLLBACK]
