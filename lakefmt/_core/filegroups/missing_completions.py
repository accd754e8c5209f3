"""Find instants whose completed file was removed (effects: reads only).

A writer keeps a heartbeat or markers until its instant completes, and all engines write a marker before each
file. An instant with files but without heartbeat and markers was therefore complete, and someone deleted its
completed file. Rolling it back would lose committed rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt._core.timeline.markers import marker_directory
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.rollback import RollbackPlan, plan_rollback_of, rolled_back_instants
from lakefmt._core.values import InstantTime, WriteOperation
from lakefmt.errors import (
    CompletedFileMissing,
    CorruptFile,
    ObjectNotFound,
)

__all__ = ["missing_completion", "pending_rollback_targets", "was_complete"]

#: Operations that may replace file groups without writing a file; the requested file names the operation.
_HIDES_ONLY = frozenset(
    {
        WriteOperation.DELETE_PARTITION.name,
        WriteOperation.INSERT_OVERWRITE.name,
        WriteOperation.INSERT_OVERWRITE_TABLE.name,
    }
)


#: Actions of writers, who begin anew as another instant after a rollback.
_WRITERS = frozenset({Action.COMMIT, Action.DELTA_COMMIT})


def was_complete(table_at: TableAt, pending: Instant, plan: RollbackPlan | None = None) -> bool:
    """Return whether a pending instant was completed and has lost its completed file.

    Args:
        table_at: the table, at one moment.
        pending: the instant.
        plan: the rollback plan; None: compute it.
    """
    if pending.action not in COMMIT_ACTIONS or _has_traces(table_at.client, pending):
        return False
    if any(other.action is Action.RESTORE for other in table_at.timeline.pending):
        return False
    if pending.time in _rollback_targets(table_at) or _was_rolled_back(table_at, pending):
        return False
    plan = plan or plan_rollback_of(table_at.client.store, pending, table_at.timeline.layout)
    if not (_has_files(pending, plan) or plan.shared or _hides_only(table_at, pending)):
        return False
    # A writer that completes meanwhile removes the traces last: so check the traces first, then the timeline.
    if _has_traces(table_at.client, pending):
        return False
    return pending.time in table_at.client.timeline_store(table_at.config).load().pending_times


def _has_files(pending: Instant, plan: RollbackPlan) -> bool:
    if pending.action is not Action.REPLACE_COMMIT:
        return plan.num_files > 0
    # In version 6 logs are named by a clustering that waits when writers copy rows to its new buckets.
    return any(parse_base_file(name.rpartition("/")[2]) is not None for names in plan.files.values() for name in names)


def _has_traces(client: TableClient, pending: Instant) -> bool:
    store = client.store
    if next(iter(store.list(marker_directory(pending.time))), None) is not None:
        return True
    return store.info(heartbeat_name(pending.time)) is not None


def _hides_only(table_at: TableAt, pending: Instant) -> bool:
    """Return whether an inflight instant replaces file groups and needs no files of its own."""
    files = table_at.timeline.files_of(pending)
    if pending.action is not Action.REPLACE_COMMIT or all(file.state is not State.INFLIGHT for file in files):
        return False
    requested = _requested_body(table_at, pending, BodyKind.REQUESTED_REPLACE)
    return requested.get("operationType") in _HIDES_ONLY


def _rollback_targets(table_at: TableAt) -> set[InstantTime | None]:
    """Return the targets of pending rollbacks; None stands for an unreadable target."""
    return {_rollback_target(table_at, i) for i in table_at.timeline.pending if i.action is Action.ROLLBACK}


def _was_rolled_back(table_at: TableAt, pending: Instant) -> bool:
    """Return whether a completed rollback undid the instant, whose writer slept meanwhile and went on behind it.

    Plans of table services stay, and are executed again after a rollback.
    """
    is_planned = any(file.state is State.REQUESTED for file in table_at.timeline.files_of(pending))
    if pending.action not in _WRITERS and is_planned:
        return False
    store = table_at.client.timeline_store(table_at.config)
    for rollback in table_at.timeline.completed_of(Action.ROLLBACK):
        if rollback.time < pending.time:
            continue
        record = decode_body(BodyKind.ROLLBACK_METADATA, store.read_body(rollback), what=rollback.file_name)
        if any(each.time == pending.time for each in rolled_back_instants(record, table_at.config.table_type)):
            return True
    return False


def _rollback_target(table_at: TableAt, rollback: Instant) -> InstantTime | None:
    """Return the instant that a rollback undoes; None if its plan does not name one."""
    plan = _requested_body(table_at, rollback, BodyKind.ROLLBACK_PLAN)
    target = plan.get("instantToRollback") or {}
    return InstantTime(str(target["commitTime"])) if target.get("commitTime") else None


def _requested_body(table_at: TableAt, pending: Instant, kind: BodyKind) -> Mapping[str, Any]:
    requested = next((f for f in table_at.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    try:
        body = b"" if requested is None else table_at.client.timeline_store(table_at.config).read_body(requested)
        return decode_body(kind, body, what=pending.file_name) if body else {}
    except (ObjectNotFound, CorruptFile):
        return {}


def missing_completion(state: TableState, pending: Instant) -> CompletedFileMissing:
    """Return the error for an instant without its completed file, with advice."""
    force = ", force=True" if pending.action is Action.COMPACTION else ""
    return CompletedFileMissing(
        f"{pending} was complete, and its completed file in {state.config.timeline_directory} is gone: its rows are not "
        f"read, and to undo it would lose them. Put the file back. If the rows may go, roll it back by name "
        f"(Table.rollback({str(pending.time)!r}{force})) or run Table.repair with accept_loss=True"
    )


def pending_rollback_targets(table_at: TableAt, time: InstantTime | None = None) -> set[InstantTime | None]:
    """Return the targets of pending rollbacks, or of the one at `time`; None stands for an unreadable target."""
    targets = _rollback_targets(table_at)
    return targets if time is None else targets & {time}
