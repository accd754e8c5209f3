"""Which instants a restore undoes, in which order, and what its files hold (docs/format.md, Restore). Pure.

Instants are undone newest first, in the order in which they became visible: a reader sees the table in between as it was
after some commit, never a mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakefmt._core.data_classes import dataclass
from lakefmt._core.notebook import NotebookText
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, comparable_action
from lakefmt._core.timeline.rollback import RollbackPlan
from lakefmt._core.timeline.timeline import Timeline, build_timeline
from lakefmt._core.values import InstantTime, check_instant_time
from lakefmt.errors import CorruptFile, InvalidInputError

__all__ = [
    "RestorePlan",
    "instants_left_to_undo",
    "parse_restore_record",
    "requested_as",
    "restore_metadata_record",
    "restore_record",
    "select_instants_to_undo",
    "timeline_before",
]


#: Plans that change no row: those that are older than the restored state are kept.
_REWRITING_PLANS = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING})


@dataclass(frozen=True, slots=True)
class RestorePlan(NotebookText):
    """What a restore does; prints one line per instant.

    Attributes:
        target: the commit whose state is restored.
        is_savepoint: whether a savepoint keeps it.
        instants: the instants to undo, in this order.
        rollbacks: the rollback of each of them.
    """

    target: InstantTime
    is_savepoint: bool = False
    instants: tuple[Instant, ...] = ()
    rollbacks: tuple[RollbackPlan, ...] = ()

    @property
    def num_files(self) -> int:
        """How many files are deleted."""
        return sum(plan.num_files for plan in self.rollbacks)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are deleted, relative to the table."""
        return tuple(name for plan in self.rollbacks for names in plan.files.values() for name in names)

    def __str__(self) -> str:
        kind = "savepoint" if self.is_savepoint else "commit"
        lines = [f"restore to {kind} {self.target}: undo {len(self.instants)} instants, delete {self.num_files} files"]
        files = {plan.target: plan.num_files for plan in self.rollbacks}
        lines += [f"  {instant}, {files.get(instant.time, 0)} files" for instant in self.instants]
        return "\n".join(lines)


def select_instants_to_undo(timeline: Timeline, target: Instant, *, merge_on_read: bool) -> tuple[Instant, ...]:
    """Return the instants to undo for the state of `target`, in the order in which they are undone.

    First pending commits, whenever they began; then completed commits that became visible after `target`, newest first. A
    compaction changes no row: one that was requested before `target` is kept, because later logs may lie on top of it, as
    in Hudi. Plans that were requested after it are removed with their instants.

    Args:
        timeline: the active timeline.
        target: a completed commit.
        merge_on_read: the table's type; there a ``commit`` is a compaction.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.commit" for n in range(4)] + ["20260101000009000.inflight"]
        >>> view = timeline_from_names(names, 2)
        >>> [i.time for i in select_instants_to_undo(view, view.commits[1], merge_on_read=False)]
        ['20260101000009000', '20260101000003000', '20260101000002000']
    """

    def is_later(instant: Instant) -> bool:
        if merge_on_read and Action.COMMIT in (instant.action, target.action):
            return instant.time > target.time
        return (instant.order_time, instant.time) > (target.order_time, target.time)

    pending = [i for i in timeline.pending if i.action in COMMIT_ACTIONS or i.action in _REWRITING_PLANS]
    pending_to_undo = [i for i in pending if i.time > target.time or _may_hold_rows(i)]
    completed_to_undo = [i for i in timeline.completed if i.action in COMMIT_ACTIONS and i != target and is_later(i)]
    return (
        *sorted(pending_to_undo, key=lambda i: i.time, reverse=True),
        *sorted(completed_to_undo, key=lambda i: (i.order_time, i.time), reverse=True),
    )


def _may_hold_rows(pending: Instant) -> bool:
    if pending.action is Action.REPLACE_COMMIT:
        return pending.state is State.INFLIGHT  # requested, it may be a clustering of version 6 that waits
    return pending.action in COMMIT_ACTIONS


def timeline_before(timeline: Timeline, undone: Iterable[Instant]) -> Timeline:
    """Return the timeline with the instants `undone` as pending, so that their files are not visible.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> view = timeline_from_names(["20260101000000000_20260101000000500.commit"], 2)
        >>> timeline_before(view, view.commits).commits
        ()
    """
    hidden = {(i.time, i.action) for i in undone}
    earlier = build_timeline(
        (
            i._replace(state=State.INFLIGHT, completion=None) if (i.time, i.action) in hidden and i.is_completed else i
            for i in timeline
        ),
        timeline.layout,
    )
    return earlier.with_history(timeline.archived)


def requested_as(timeline: Timeline, instant: Instant) -> Action:
    """Return the action that an instant has while it is pending: a completed compaction began as one."""
    return next((file.action for file in timeline.files_of(instant) if not file.is_completed), instant.action)


def restore_record(plan: RestorePlan) -> dict[str, object]:
    """Return the content of the requested file."""
    return {
        "instantsToRollback": [{"commitTime": i.time, "action": i.action.value} for i in plan.instants],
        "version": 2,
        "savepointToRestoreTimestamp": plan.target,
    }


def parse_restore_record(record: Mapping[str, Any], what: str) -> tuple[tuple[InstantTime, Action], ...]:
    """Return the instants that a requested restore undoes, in its order.

    Raises:
        CorruptFile: it names something that is no instant.

    Example:
        >>> plan = RestorePlan("20260101000000000", instants=(Instant("20260102000000000", Action.COMMIT, State.COMPLETED),))
        >>> parse_restore_record(restore_record(plan), "a restore")[0][1].value
        'commit'
    """
    planned = []
    actions = {action.value: action for action in Action}
    for entry in record["instantsToRollback"]:
        try:
            time = check_instant_time(str(entry["commitTime"]))
        except InvalidInputError as error:
            raise CorruptFile(f"{what} would undo {error}") from None
        action = actions.get(str(entry["action"]))
        if action not in COMMIT_ACTIONS and action not in _REWRITING_PLANS:
            raise CorruptFile(f"{what} would undo a {entry['action']}: only what writes data is undone")
        planned.append((time, action))
    return tuple(planned)


def instants_left_to_undo(timeline: Timeline, planned: Sequence[tuple[InstantTime, Action]]) -> tuple[Instant, ...]:
    """Return the planned instants that are still on the timeline, in the order of the plan."""
    instants_by_key = {(i.time, comparable_action(i.action)): i for i in timeline}
    left = (instants_by_key.get((time, comparable_action(action))) for time, action in planned)
    return tuple(i for i in left if i is not None)


def restore_metadata_record(
    time: InstantTime, planned: Sequence[tuple[InstantTime, Action]], rollbacks: Mapping[InstantTime, object]
) -> dict[str, object]:
    """Return the content of the completed file.

    Args:
        time: the instant of the restore.
        planned: the instants that it undid, in order.
        rollbacks: instant → its rollback metadata; without the instants that an earlier attempt had undone.
    """
    return {
        "startRestoreTime": time,
        "timeTakenInMillis": 0,
        "instantsToRollback": [undone for undone, _ in planned],
        "hoodieRestoreMetadata": {undone: [rollbacks[undone]] if undone in rollbacks else [] for undone, _ in planned},
        "version": 1,
        "restoreInstantInfo": [{"commitTime": undone, "action": action.value} for undone, action in planned],
    }
