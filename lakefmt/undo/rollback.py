"""``table.rollback``: undo a pending instant, or the newest completed commit (effects).

What an instant was going to do decides what undoing it means:

* a write: its files go and it leaves the timeline;
* a compaction or log compaction: its files go, its plan waits again; `withdraw` takes the plan away as well;
* a clustering: its files and its plan go, as in Hudi; ``withdraw=False`` keeps the plan;
* a clean that has begun may have deleted files already, so it is finished; one that only waits is withdrawn;
* a rollback or restore that died is finished. (A savepoint that died has its commit's time: the next write removes it.)
"""

from __future__ import annotations

from dataclasses import dataclass

from lakefmt.compaction.clean.run import finish_clean
from lakefmt.compaction.compact.pending import check_inputs, read_plan
from lakefmt.errors import StateError, UnsupportedFeature, WriterActive
from lakefmt.filegroups.model import build_slices
from lakefmt.filegroups.pending_plans import groups_of_plan
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt.timeline.locks.open import Lease
from lakefmt.timeline.metadata_codec import BodyKind, decode_body
from lakefmt.timeline.rollback import (
    KEEP_PLAN,
    RollbackPlan,
    execute_rollback,
    finish_rollback,
    plan_rollback_of,
    run_rollback,
)
from lakefmt.timeline.savepoint import savepoints_of
from lakefmt.timeline.timeline import build_timeline
from lakefmt.timeline.transitions import check_transition
from lakefmt.transactions.client import WriteClient, open_write_client
from lakefmt.transactions.restore_executor import finish_restore
from lakefmt.undo._historical_state import check_whole, state_without
from lakefmt.values import CommitResult, InstantTime, WriteStat
from lakefmt.write.commit.transaction import open_for_writing

__all__ = ["RollbackResult", "plan_undo", "rollback_instant"]

_PLANS = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING})
_FINISHED = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE})


@dataclass(frozen=True)
class RollbackResult(CommitResult):
    """What a rollback did: ``instant`` is the rollback's own, or that of the service that was finished."""

    plan: RollbackPlan | None = None


def plan_undo(client: TableClient, instant: str) -> RollbackPlan:
    """Return what :func:`rollback_instant` would do; nothing is changed.

    Raises:
        InstantNotFound: the timeline has no such instant.
        StateError: it is completed and not the newest commit, or what was before it is gone.
    """
    state = client.load()
    target = state.timeline.find(instant)
    _check_may_go(client, state, target)
    return _plan(client, state, target)


def rollback_instant(client: TableClient, instant: str, *, force: bool, withdraw: bool | None = None) -> RollbackResult:
    """Undo an instant; see ``Table.rollback``."""
    write_client = open_write_client(client)
    with write_client.lock.hold() as lease:
        config = open_for_writing(write_client)
        state = TableState(config, write_client.timeline(config).load())
        target = state.timeline.find(instant)
        _check_may_go(client, state, target)
        if not target.is_completed and not force:
            _check_dead(write_client, state, target)
            if target.action is Action.COMPACTION:
                check_inputs(write_client, state, target, read_plan(write_client, state, target))
        if target.action in _FINISHED:
            return _end(write_client, state, target, lease)
        plan = _plan(client, state, target)
        lease.check()
        if target.action in _PLANS or _is_clustering(write_client, state, target):
            time = _undo_service(write_client, state, target, plan, withdraw)
        else:
            time = _undo(write_client, state, target, plan)
    return RollbackResult(time, action=Action.ROLLBACK.value, plan=plan)


# ------------------------------------------------------------------------------------------------------- what may go


def _check_may_go(client: TableClient, state: TableState, target: Instant) -> None:
    if target.action is Action.INDEXING and not target.is_completed:
        raise UnsupportedFeature(f"{target}: a pending indexing is finished or dropped by the engine that began it")
    if not target.is_completed:
        return
    if target.action not in COMMIT_ACTIONS:
        raise StateError(f"{target} is a service that is done; only commits can be rolled back")
    if target != state.timeline.latest_commit:
        raise StateError(f"{target} is not the newest commit: roll back newer ones first, or restore an older state")
    if any(i.time == target.time for i in savepoints_of(state.timeline)):
        raise StateError(f"{target} is kept by a savepoint: delete the savepoint first")
    _check_nothing_is_planned_on_it(client, state, target)
    _check_past_is_there(client, state, target)


def _check_nothing_is_planned_on_it(client: TableClient, state: TableState, target: Instant) -> None:
    """Refuse to undo a commit whose files a plan that waits will read: it could never be carried out."""
    commit = client.commit_metadata(state, target)
    touched = {(stat.partition_path, stat.file_id) for stat in commit.stats}
    for pending in state.timeline.pending:
        if pending.time > target.time and touched & groups_of_plan(client, state, pending):
            raise StateError(
                f"{target} cannot be rolled back: {pending} was planned on top of it and waits; carry it out, or withdraw it "
                f"first (Table.rollback({pending.time!r}, withdraw=True))"
            )


def _check_past_is_there(client: TableClient, state: TableState, target: Instant) -> None:
    """Refuse to undo a commit when the file slices before it were cleaned away: rows would be missing."""
    left = TableState(state.config, build_timeline((i for i in state.timeline if i != target), state.timeline.layout))
    if target.time < (left.timeline.first_active or ""):
        raise StateError(f"{target} is the oldest commit of the active timeline: what was before it is archived")
    commit = client.commit_metadata(state, target)
    groups = {(stat.partition_path, stat.file_id) for stat in commit.stats if _had_a_past(stat, target)}
    groups |= {(partition, one) for partition, ids in commit.replaced_file_ids.items() for one in ids}
    if groups:
        bases, logs = client.listing(state.config).files(sorted({partition for partition, _ in groups}))
        slices = build_slices(bases, logs, client.slicing(left, bases, logs), {})
        present = {(file_slice.partition, file_slice.file_id) for file_slice in slices}
        lost = sorted(groups - present)
        if lost:
            raise StateError(
                f"{target} cannot be rolled back: the file slice of {lost[0][1]} before it was cleaned away; "
                "write the rows you want instead"
            )
    then = state_without(client, state, [target])
    check_whole(client, state, then, f"{target} cannot be rolled back", waiting=False)


def _had_a_past(stat: WriteStat, target: Instant) -> bool:
    before = stat.prev_base_file or stat.prev_commit
    # A log of version 8 or later names its own instant.
    return before not in (None, "", "null", target.time)


def _check_dead(write_client: WriteClient, state: TableState, target: Instant) -> None:
    """Refuse while the instant's writer may be alive; a plan that nobody carries out has none."""
    beats = write_client.client.store.info(heartbeat_name(target.time)) is not None
    if target.state is State.REQUESTED and not beats and target.action in (*_PLANS, Action.CLEAN):
        return
    life = write_client.writer_liveness(state.config, state.timeline, target)
    if life.alive:
        raise WriterActive(f"{target} belongs to a writer that may be alive ({life.reason}); force=True undoes it")


def _is_clustering(write_client: WriteClient, state: TableState, target: Instant) -> bool:
    """Tell whether a pending replacecommit is a clustering of version 6, by its plan."""
    if target.action is not Action.REPLACE_COMMIT or target.is_completed:
        return False
    requested = next((f for f in state.timeline.files_of(target) if f.state is State.REQUESTED), None)
    body = b"" if requested is None else write_client.timeline(state.config).read_body(requested)
    if requested is None or not body:
        return False
    return decode_body(BodyKind.REQUESTED_REPLACE, body, what=requested.file_name).get("clusteringPlan") is not None


# ------------------------------------------------------------------------------------------------------------ undoing


def _plan(client: TableClient, state: TableState, target: Instant) -> RollbackPlan:
    layout = state.timeline.layout
    if target.action in _FINISHED:
        return RollbackPlan(target.time, target.action)
    if not target.is_completed and target.action not in _PLANS:
        return plan_rollback_of(client.store, target, layout)
    # Its markers are gone, or may be: the listing tells, whatever other engines left; logs that other instants name are
    # in its stats.
    files = [o.name for o in client.store.list() if not o.name.startswith(".hoodie/")]
    if not target.is_completed:
        return plan_rollback_of(client.store, target, layout, files)
    logs = {stat.path for stat in client.commit_metadata(state, target).stats if stat.log_files}
    groups = {path.rpartition("/")[0] for path in logs}
    # Commands that were put behind them are in other logs of the slice.
    logs |= {name for name in files if ".log." in name and name.rpartition("/")[0] in groups}
    return plan_rollback_of(client.store, target, layout, files, logs)


def _undo(write_client: WriteClient, state: TableState, target: Instant, plan: RollbackPlan) -> InstantTime:
    timeline_store = write_client.timeline(state.config)
    next_time = write_client.instant_time_generator(state.config, state.timeline)
    completed = target if target.is_completed else None
    time = run_rollback(write_client.client.store, timeline_store, plan, next_time, completed)
    if any(file.action is Action.LOG_COMPACTION for file in state.timeline.files_of(target)):
        timeline_store.remove_pending(target.time, Action.LOG_COMPACTION)  # its plan is not kept, unlike a compaction's
    return time


def _undo_service(
    write_client: WriteClient, state: TableState, target: Instant, plan: RollbackPlan, withdraw: bool | None
) -> InstantTime | None:
    """Take back what a pending service wrote; its plan waits again, or goes.

    A plan that stays needs no rollback on the timeline: files of a pending instant count nowhere, and whoever carries the
    plan out removes what is left of them.
    """
    keeps = target.action in KEEP_PLAN if withdraw is None else not withdraw
    store, timeline_store = write_client.client.store, write_client.timeline(state.config)
    if keeps and target.state is State.REQUESTED:
        raise StateError(f"{target} has written nothing yet; withdraw=True takes its plan off the timeline")
    if not keeps and target.action is Action.COMPACTION:
        _check_nothing_on_top(write_client, state, target)
    if keeps and target.action not in KEEP_PLAN:
        execute_rollback(store, plan, target.time)
        check_transition(Action.CLUSTERING, State.INFLIGHT, State.REQUESTED)
        timeline_store.remove_files(f for f in state.timeline.files_of(target) if f.state is State.INFLIGHT)
        store.delete([heartbeat_name(target.time)])
        return None
    time = run_rollback(store, timeline_store, plan, write_client.instant_time_generator(state.config, state.timeline))
    if not keeps:
        timeline_store.remove_pending(target.time, target.action)
    return time


def _check_nothing_on_top(write_client: WriteClient, state: TableState, target: Instant) -> None:
    """Refuse to withdraw a compaction of version 6 on which logs lie: other engines find their slice by its plan."""
    if state.timeline.layout > 1:
        return
    _, logs = write_client.client.listing(state.config).files(None)
    above = [log.path for log in logs if log.instant == target.time]
    if above:
        raise StateError(f"{target} cannot be withdrawn: {above[0]} lies on top of it; carry the compaction out")


def _end(write_client: WriteClient, state: TableState, target: Instant, lease: Lease) -> RollbackResult:
    """Bring a service that died to an end: forward where it may have deleted something, back where it has not."""
    store, config = write_client.client.store, state.config
    timeline_store = write_client.timeline(config)
    plan = RollbackPlan(target.time, target.action)
    if target.action is Action.CLEAN and target.state is State.REQUESTED:
        timeline_store.remove_pending(target.time, target.action)
        store.delete([heartbeat_name(target.time)])
        return RollbackResult(None, action=target.action.value, plan=plan)
    if target.action is Action.CLEAN:
        finish_clean(write_client, config, target, lease)
    elif target.action is Action.ROLLBACK:
        next_time = write_client.instant_time_generator(config, state.timeline)
        finish_rollback(store, timeline_store, state.timeline, target, next_time)
    else:
        finish_restore(write_client, config, state.timeline, target, lease)
    return RollbackResult(target.time, action=target.action.value, plan=plan)
