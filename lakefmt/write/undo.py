"""``table.rollback``: undo a pending instant, or the newest completed commit (effects)."""

from __future__ import annotations

from lakefmt.errors import StateError, UnsupportedFeature, WriterActive
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.services import open_services
from lakefmt.filegroups.view import build_slices
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.rollback import RollbackPlan, list_files_of_instant, plan_rollback, run_rollback
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
    return plan_rollback(target, list_files_of_instant(access.store, target.time))


def _check_may_go(timeline: Timeline, target: Instant) -> None:
    if target.action not in COMMIT_ACTIONS and target.is_completed:
        raise StateError(f"{target} is a service that is done; only commits can be rolled back")
    if target.is_completed and target != timeline.latest_commit:
        raise StateError(f"{target} is not the newest commit: roll back newer ones first, or restore a savepoint")
    if target.is_completed and any(i.action is Action.SAVEPOINT and i.time == target.time for i in timeline):
        raise StateError(f"{target} is kept by a savepoint: delete the savepoint first")
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
        plan = plan_rollback(target, _files(access, target))
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
        if before in (None, "", "null"):
            continue
        bases, logs = access.listing(state.config).files([stat.partition_path])
        slices = build_slices(bases, logs, left.timeline, {})
        if not any(piece.file_id == stat.file_id for piece in slices):
            raise StateError(
                f"{target} cannot be rolled back: the file slice of {stat.file_id} before it was cleaned away; "
                "write the rows you want instead"
            )


def _files(access: TableAccess, target: Instant) -> list[str]:
    if not target.is_completed:
        return list_files_of_instant(access.store, target.time)
    # Its markers are gone: the listing tells, whatever other engines left.
    return [o.name for o in access.store.list() if not o.name.startswith(".hoodie/")]
