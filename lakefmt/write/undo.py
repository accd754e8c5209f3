"""``table.rollback``: undo a pending instant, or the newest completed commit (effects)."""

from __future__ import annotations

from lakefmt.errors import StateError, UnsupportedFeature, WriterActive
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.services import open_services
from lakefmt.filegroups.view import build_slices
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.rollback import RollbackPlan, plan_rollback_of, run_rollback
from lakefmt.timeline.view import Timeline, build_timeline
from lakefmt.values import CommitResult, InstantTime

__all__ = ["plan_undo", "rollback_instant"]


def plan_undo(access: TableAccess, instant: str) -> RollbackPlan:
    """Return what :func:`rollback_instant` would do; nothing is changed.

    Raises:
        InstantNotFound: the timeline has no such instant.
        StateError: it is completed and not the newest commit.
    """
    state = access.load()
    target = state.timeline.find(instant)
    _check_may_go(state.timeline, target)
    return _plan(access, state, target)


def _check_may_go(timeline: Timeline, target: Instant) -> None:
    if target.action not in COMMIT_ACTIONS and target.is_completed:
        raise StateError(f"{target} is a service that is done; only commits can be rolled back")
    if target.is_completed and target != timeline.latest_commit:
        raise StateError(f"{target} is not the newest commit: roll back newer ones first, or restore a savepoint")
    if target.is_completed and any(i.action is Action.SAVEPOINT and i.time == target.time for i in timeline):
        raise StateError(f"{target} is kept by a savepoint: delete the savepoint first")
    if target.action is Action.COMPACTION:
        raise UnsupportedFeature(f"{target}: Table.compact(abandon={target.time!r}) withdraws a pending compaction")
    if target.action in (Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING, Action.SAVEPOINT):
        raise UnsupportedFeature(f"{target}: a pending service is finished by the next write, not rolled back")


def rollback_instant(access: TableAccess, instant: str, *, force: bool) -> CommitResult:
    """Undo an instant; see ``Table.rollback``."""
    services = open_services(access)
    with services.lock.hold() as lease:
        config = access.load_config()
        timeline_store = services.timeline(config)
        timeline = timeline_store.load()
        target = timeline.find(instant)
        _check_may_go(timeline, target)
        if not target.is_completed and not force:
            life = services.life_of(config, timeline, target)
            if life.alive:
                raise WriterActive(
                    f"{target} belongs to a writer that may be alive ({life.reason}); force=True undoes it"
                )
        plan = _plan(access, TableState(config, timeline), target)
        if target.is_completed:
            _check_past_is_there(access, TableState(config, timeline), target)
        lease.check()
        if target.is_completed:
            timeline_store.reopen(target)
        time = run_rollback(access.store, timeline_store, plan, services.times_after(config, timeline))
    return CommitResult(InstantTime(time), action=Action.ROLLBACK.value)


def _check_past_is_there(access: TableAccess, state: TableState, target: Instant) -> None:
    """Refuse to undo a commit when the file slices before it were cleaned away: rows would be missing."""
    left = TableState(state.config, build_timeline((i for i in state.timeline if i != target), state.timeline.layout))
    if target.time < (left.timeline.first_active or ""):
        raise StateError(f"{target} is the oldest commit of the active timeline: what was before it is archived")
    for stat in access.commit_metadata(state, target).stats:
        before = stat.prev_base_file or stat.prev_commit
        if before in (None, "", "null", target.time):  # a log of version 8 or later names its own instant
            continue
        bases, logs = access.listing(state.config).files([stat.partition_path])
        slices = build_slices(bases, logs, left.timeline, {})
        if not any(piece.file_id == stat.file_id for piece in slices):
            raise StateError(
                f"{target} cannot be rolled back: the file slice of {stat.file_id} before it was cleaned away; "
                "write the rows you want instead"
            )


def _plan(access: TableAccess, state: TableState, target: Instant) -> RollbackPlan:
    layout = state.timeline.layout
    if not target.is_completed:
        return plan_rollback_of(access.store, target, layout)
    # Its markers are gone: the listing tells, whatever other engines left; logs that other instants name are in its stats.
    files = [o.name for o in access.store.list() if not o.name.startswith(".hoodie/")]
    logs = [stat.path for stat in access.commit_metadata(state, target).stats if stat.log_files]
    return plan_rollback_of(access.store, target, layout, files, logs)
