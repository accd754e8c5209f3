"""Savepoints and restores: what their files hold, and which instants a restore undoes. Pure.

Files: docs/format.md, Savepoint; Restore.

Instants are undone newest first, in the order in which they became visible: a reader sees the table in between as it was
after some commit, never a mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, InvalidInputError, UnsafePath
from lakefmt.storage.object_names import check_name
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, comparable_action
from lakefmt.timeline.rollback import RollbackPlan
from lakefmt.timeline.timeline import Timeline, build_timeline
from lakefmt.values import InstantTime, PartitionPath, check_instant_time

__all__ = [
    "RestorePlan",
    "Savepoint",
    "instants_left_to_undo",
    "parse_restore_record",
    "parse_savepoint",
    "requested_as",
    "restore_metadata_record",
    "restore_record",
    "savepoint_record",
    "savepoints_of",
    "select_instants_to_undo",
    "timeline_before",
]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A commit whose state is kept: cleans do not delete its files, and archiving stops before it. Prints as one line.

    Attributes:
        instant: requested time of the commit.
        user: who made it.
        comment: why.
        created: when; None when the time is out of range.
        files: the files of the state, relative to the table.
    """

    instant: InstantTime
    user: str = ""
    comment: str = ""
    created: datetime | None = None
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        when = "" if self.created is None else f" at {self.created:%Y-%m-%d %H:%M:%S}Z"
        who = f" by {self.user}" if self.user else ""
        why = f": {self.comment}" if self.comment else ""
        return f"savepoint {self.instant}, {len(self.files):,} files, made{when}{who}{why}"


def savepoints_of(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the completed savepoints of a timeline, by the time of their commits.

    Example:
        >>> from lakefmt.timeline.timeline import timeline_from_names
        >>> names = ["20260101000000000_20260101000000500.savepoint", "20260102000000000.savepoint.inflight"]
        >>> [str(instant) for instant in savepoints_of(timeline_from_names(names, 2))]
        ['20260101000000000 savepoint completed']
    """
    return timeline.completed_of(Action.SAVEPOINT)


def savepoint_record(
    user: str, comment: str, created: datetime, files: Mapping[PartitionPath, tuple[str, ...]]
) -> dict[str, object]:
    """Return the content of a savepoint's completed file.

    Args:
        user: who makes it.
        comment: why.
        created: the present.
        files: names of the files of the state, by partition.
    """
    return {
        "savepointedBy": user,
        "savepointedAt": int(created.timestamp() * 1000),
        "comments": comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in files.items()
        },
        "version": 1,
    }


def parse_savepoint(instant: InstantTime, record: Mapping[str, Any], what: str) -> Savepoint:
    """Return the savepoint in the content of a completed file.

    Args:
        instant: requested time of its commit.
        record: the decoded content.
        what: name of the file in errors.

    Raises:
        CorruptFile: the content is not that of a savepoint.
        UnsafePath: it names a file outside the table.

    Example:
        >>> record = savepoint_record("ann", "before the move", datetime(2026, 1, 2, tzinfo=UTC), {"p": ("f-0_1.parquet",)})
        >>> print(parse_savepoint("20260101000000000", record, "savepoint"))
        savepoint 20260101000000000, 1 files, made at 2026-01-02 00:00:00Z by ann: before the move
    """
    files: list[str] = []
    for partition, part in record["partitionMetadata"].items():
        files += [f"{partition}/{name}" if partition else name for name in part["savepointDataFile"]]
    try:
        checked = tuple(check_name(path) for path in files)
    except UnsafePath as error:
        raise UnsafePath(f"{what}: {error}") from None
    if not isinstance(record["savepointedAt"], int):
        raise CorruptFile(f"{what}: savepointedAt is {record['savepointedAt']!r}, no number")
    return Savepoint(
        instant, str(record["savepointedBy"]), str(record["comments"]), _moment_of(record["savepointedAt"]), checked
    )


def _moment_of(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


#: Plans that change no row: those that are older than the restored state are kept.
_REWRITING_PLANS = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING})


@dataclass(frozen=True, slots=True)
class RestorePlan:
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
        >>> from lakefmt.timeline.timeline import timeline_from_names
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
        >>> from lakefmt.timeline.timeline import timeline_from_names
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


# -------------------------------------------------------------------------------------------------- content of the files


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
