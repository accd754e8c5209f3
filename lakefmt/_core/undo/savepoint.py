"""``table.savepoint`` keeps the state of a commit until the savepoint is deleted; ``table.restore`` brings it back.

docs/format.md, Savepoint; Restore.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from lakefmt._core.config.table_config import check_writable
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.notebook import NotebookText
from lakefmt._core.segments.pending import forget_committed
from lakefmt._core.storage.api import remove_abandoned
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.rollback import RestorePlan, restore_record, select_instants_to_undo
from lakefmt._core.timeline.savepoint import Savepoint, parse_savepoint, savepoint_record, savepoints_of
from lakefmt._core.transactions.client import WriteAt, WriteClient, open_write_client
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.transactions.rollback_executor import (
    check_rollback_allowed,
    execute_restore,
    finish_dead_restores,
    finish_rollback,
    plan_rollbacks,
)
from lakefmt._core.undo.rollback import check_whole, state_without
from lakefmt._core.values import InstantTime, PartitionPath, TableType
from lakefmt._core.write.commit.transaction import open_for_writing
from lakefmt.errors import AlreadyExistsError, InstantNotFound, StateError, WriterActive

__all__ = [
    "RestoreResult",
    "create_savepoint",
    "delete_savepoint",
    "list_savepoints",
    "plan_restore_of",
    "plan_savepoint_of",
    "restore_table",
]


def list_savepoints(client: TableClient) -> tuple[Savepoint, ...]:
    """Return the savepoints of a table, by the time of their commits.

    Raises:
        CorruptFile: the body of one is damaged.
    """
    state = client.load()
    return tuple(_load_savepoint(client.at(state), instant) for instant in savepoints_of(state.timeline))


def _load_savepoint(table_at: TableAt, instant: Instant) -> Savepoint:
    body = table_at.read_body(instant)
    record = decode_body(BodyKind.SAVEPOINT_METADATA, body, what=instant.file_name)
    return parse_savepoint(instant.time, record, instant.file_name)


def plan_savepoint_of(client: TableClient, instant: str | None, comment: str, user: str) -> Savepoint:
    """Return the savepoint that :func:`create_savepoint` would make; nothing is changed."""
    return _savepoint_plan(client.at(client.load()), instant, comment, user)[1]


def create_savepoint(
    client: TableClient,
    instant: str | None = None,
    comment: str = "",
    user: str = "",
    options: Mapping[str, object] | None = None,
) -> Savepoint:
    """Keep the state of a commit.

    Args:
        client: the table.
        instant: the commit's requested or completion time; None: the newest.
        comment: why.
        user: name kept in the savepoint.
        options: settings of the call.

    Raises:
        InstantNotFound: the timeline has no such instant, or no commit at all.
        AlreadyExistsError: a savepoint keeps it already.
        StateError: it is no completed commit, or a clean has removed files of its state.
        LockUnavailable: the table lock could not be had in time.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        state = _state_without_dead_restores(write_client, lease)
        target, savepoint, record = _savepoint_plan(client.at(state), instant, comment, user)
        lease.check()
        with InstantTransaction(write_client, target.time, Action.SAVEPOINT) as transaction:
            transaction.start(state.config)
            timeline = write_client.timeline(state.config).load()
            transaction.complete(lease, state.config, timeline, encode_body(BodyKind.SAVEPOINT_METADATA, record))
    return savepoint


def _state_without_dead_restores(write_client: WriteClient, lease: Lease) -> TableState:
    """Finish dead restores and return the table; call under the table lock."""
    config = write_client.client.load_config()
    check_writable(replace(config, metadata_partitions=()))  # a savepoint changes no file that a metadata table lists
    timeline_store = write_client.timeline(config)
    timeline = timeline_store.load()
    if finish_dead_restores(write_client, config, timeline, lease):
        timeline = timeline_store.load()
    return TableState(config, timeline)


def _savepoint_plan(
    table_at: TableAt, instant: str | None, comment: str, user: str
) -> tuple[Instant, Savepoint, dict[str, object]]:
    target = _find_commit_to_keep(table_at.state, instant)
    if any(i.time == target.time for i in savepoints_of(table_at.timeline)):
        raise AlreadyExistsError(f"a savepoint keeps {target.time} already")
    on_read = table_at.config.table_type is TableType.MERGE_ON_READ
    undone = select_instants_to_undo(table_at.timeline, target, merge_on_read=on_read)
    earlier = state_without(table_at, undone)
    slices = check_whole(table_at, earlier, f"the state of {target.time} cannot be kept")
    files: dict[PartitionPath, tuple[str, ...]] = {}
    for file_slice in slices:
        names = tuple(path.rpartition("/")[2] for path in file_slice.paths)
        files[file_slice.partition] = (*files.get(file_slice.partition, ()), *names)
    record = savepoint_record(user, comment, table_at.client.clock.now(), files)
    return target, parse_savepoint(target.time, record, "the savepoint"), record


def _find_commit_to_keep(state: TableState, instant: str | None) -> Instant:
    if instant is None:
        newest = state.timeline.latest_commit
        if newest is None:
            raise InstantNotFound("the table has no commit yet: there is nothing to keep")
        return newest
    target = state.timeline.find(instant)
    if target.action not in COMMIT_ACTIONS or not target.is_completed:
        raise StateError(f"{target} is no completed commit: only the state of one can be kept")
    return target


def delete_savepoint(client: TableClient, instant: str, options: Mapping[str, object] | None = None) -> None:
    """Delete a savepoint: the next clean may delete its files, the next archive step may move its commit.

    Args:
        client: the table.
        instant: the requested or completion time of its commit, or the completion time of the savepoint.
        options: settings of the call.

    Raises:
        InstantNotFound: there is no such savepoint.
        LockUnavailable: the table lock could not be had in time.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        state = _state_without_dead_restores(write_client, lease)
        timeline_store = write_client.timeline(state.config)
        commits = {i.time for i in state.timeline.commits if instant in (i.time, i.completion)}
        savepoints = [
            i for i in savepoints_of(state.timeline) if i.time in commits or instant in (i.time, i.completion)
        ]
        if not savepoints:
            raise InstantNotFound(f"no savepoint keeps {instant}; table.savepoints() names those there are")
        lease.check()
        timeline_store.reopen(savepoints[0])
        timeline_store.remove_pending(savepoints[0].time, Action.SAVEPOINT)


@dataclass(frozen=True, slots=True)
class RestoreResult(NotebookText):
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
    return _restore_plan(client.at(client.load()), instant)


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
    start = perf_counter()
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = open_for_writing(write_client)
        timeline_store = write_client.timeline(config)
        timeline = timeline_store.load()
        if finish_dead_restores(write_client, config, timeline, lease):
            timeline = timeline_store.load()
        state = TableState(config, timeline)
        plan = _restore_plan(client.at(state), instant)
        if not force:
            _check_nobody_writes(write_client.at(state), plan)
        if not plan.instants:
            return RestoreResult(None, plan, seconds=perf_counter() - start)
        check_rollback_allowed(write_client, config, plan.instants, restoring=True)
        _finish_rollbacks(write_client.at(state), lease)
        forget_committed(client.at(state))
        body = encode_body(BodyKind.RESTORE_PLAN, restore_record(plan))
        # When it fails from here on, the next writer finishes it.
        with InstantTransaction.claim(write_client.at(state), Action.RESTORE, lease, body) as restore:
            planned = tuple((i.time, i.action) for i in plan.instants)
            completed = execute_restore(restore, config, planned, lease)
        restore.finish(has_markers=False)
        remove_abandoned(client.store)
    return RestoreResult(restore.time, plan, completed.completion, perf_counter() - start)


def _restore_plan(table_at: TableAt, instant: str) -> RestorePlan:
    target = _find_commit_to_restore(table_at, instant)
    timeline = table_at.timeline
    savepoint_times = {i.time for i in savepoints_of(timeline)}
    on_read = table_at.config.table_type is TableType.MERGE_ON_READ
    undone = select_instants_to_undo(timeline, target, merge_on_read=on_read)
    saved = sorted(i.time for i in undone if i.is_completed and i.time in savepoint_times)
    if saved:
        raise StateError(
            f"a restore to {target.time} would undo {', '.join(saved)}, which a savepoint keeps: delete it first"
        )
    then = state_without(table_at, undone)
    if any(i.time > target.time for i in then.timeline.archived if i.action in COMMIT_ACTIONS):
        raise StateError(f"commits after {target.time} were archived: what they wrote cannot be taken back any more")
    if undone:
        check_whole(table_at, then, f"the state of {target.time} cannot come back")
    plans = plan_rollbacks(table_at.client.store, table_at.config, timeline, undone)
    return RestorePlan(target.time, target.time in savepoint_times, undone, plans)


def _find_commit_to_restore(table_at: TableAt, instant: str) -> Instant:
    if not any(instant in (i.time, i.completion) for i in table_at.timeline):
        table_at.with_history().timeline.find(instant)  # InstantNotFound when it is not archived either
        raise StateError(
            f"{instant} is archived: only commits of the active timeline can be restored; use as_of to read"
        )
    target = table_at.timeline.find(instant)
    if target.action not in COMMIT_ACTIONS or not target.is_completed:
        raise StateError(f"{target} is no completed commit: only the state of one can come back")
    return target


def _check_nobody_writes(write_at: WriteAt, plan: RestorePlan) -> None:
    """Raise while the writer of an instant that would be undone may be alive; a plan that only waits has no writer."""
    for pending in (i for i in plan.instants if not i.is_completed):
        waits = pending.state is State.REQUESTED and pending.action not in COMMIT_ACTIONS
        if waits and write_at.client.store.info(heartbeat_name(pending.time)) is None:
            continue
        life = write_at.write_client.writer_liveness(write_at.config, write_at.timeline, pending)
        if life.alive:
            raise WriterActive(f"{pending} belongs to a writer that may be alive ({life.reason}); force=True undoes it")


def _finish_rollbacks(write_at: WriteAt, lease: Lease) -> None:
    """Finish rollbacks whose process died, so that none is left that names what the restore removes."""
    for pending in write_at.timeline.pending:
        if pending.action is Action.ROLLBACK:
            finish_rollback(write_at, pending, lease)
