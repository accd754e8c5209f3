"""Undo: ``table.rollback``, ``table.savepoint`` and ``table.restore`` (docs/format.md, Rollback; Savepoint; Restore).

A savepoint protects the state of a commit until it is deleted; a restore brings that state back. A rollback undoes a pending instant,
or the newest completed commit; the action of the instant decides how:

* a write: its files are deleted and it leaves the timeline;
* a compaction or log compaction: its files are deleted and its plan becomes pending again; `withdraw` removes the plan, too;
* a clustering: its files and its plan are removed, as in Hudi; ``withdraw=False`` keeps the plan;
* a clean that has begun may have deleted files, so it is finished; one that is only requested is withdrawn;
* a rollback or restore whose process died is finished. (A savepoint whose process died has the time of its commit: the
  next write removes it.)

An earlier state can come back only where its files are still there (:func:`check_whole`): cleans may have deleted some, or
be about to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lakefmt._core.compaction.clean_run import finish_clean, parse_clean_plan
from lakefmt._core.compaction.compact_plan import check_inputs, read_plan
from lakefmt._core.config.table_config import check_writable
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice, build_slices, join_path, parse_files
from lakefmt._core.filegroups.pending_plans import groups_of_plan, is_copied_log, new_groups_of_plan
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.notebook import NotebookText
from lakefmt._core.segments.pending import forget_committed
from lakefmt._core.storage.api import ObjectInfo, remove_abandoned
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, check_transition
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.metadata_codec import (
    BodyKind,
    Savepoint,
    decode_body,
    encode_body,
    parse_savepoint,
    savepoint_record,
    savepoints_of,
)
from lakefmt._core.timeline.rollback import (
    KEEP_PLAN,
    RestorePlan,
    RollbackPlan,
    execute_rollback,
    logs_named_by_slice,
    plan_rollback_of,
    restore_record,
    select_instants_to_undo,
    timeline_before,
)
from lakefmt._core.timeline.timeline import build_timeline
from lakefmt._core.transactions.client import WriteAt, WriteClient, open_write_client
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.transactions.rollback_executor import (
    check_rollback_allowed,
    drop_rings,
    execute_restore,
    finish_dead_restores,
    finish_restore,
    finish_rollback,
    plan_rollbacks,
    run_rollback,
)
from lakefmt._core.values import CommitResult, InstantTime, PartitionPath, TableType, WriteStat
from lakefmt._core.write.commit.transaction import open_for_writing
from lakefmt.errors import AlreadyExistsError, InstantNotFound, StateError, UnsupportedFeature, WriterActive

if TYPE_CHECKING:
    from lakefmt._core.timeline.metadata_codec import Savepoint

__all__ = [
    "RestoreResult",
    "RollbackResult",
    "check_whole",
    "create_savepoint",
    "delete_savepoint",
    "list_savepoints",
    "plan_restore_of",
    "plan_savepoint_of",
    "plan_undo",
    "restore_table",
    "rollback_instant",
    "state_without",
]

#: partition → file name → the clean that removed it.
_RemovedFiles = Mapping[PartitionPath, Mapping[str, Instant]]


def state_without(table_at: TableAt, undone: Iterable[Instant]) -> TableState:
    """Return the state of a table before the instants `undone` became visible, with archived instants."""
    whole_state = table_at.with_history().state
    return TableState(table_at.config, timeline_before(whole_state.timeline, undone), whole_state.history)


def check_whole(table_at: TableAt, then: TableState, what: str, *, waiting: bool = True) -> list[FileSlice]:
    """Return the file slices of an earlier state.

    Args:
        table_at: the table, at one moment.
        then: the earlier state, from :func:`state_without`.
        what: begins the error message: what cannot be done without that state.
        waiting: whether cleans count that are only requested. False where the state becomes the newest at once: lakefmt's
            cleans delete nothing of the newest snapshot.

    Raises:
        StateError: a clean has removed one of its files, or a pending one is going to.
    """
    removed = _removed_by_cleans(table_at)
    bases, logs = table_at.client.storage_listing(table_at.config).files(None)
    present = {base.path for base in bases} | {log.path for log in logs}
    possibly_lost: dict[str, Instant] = {}
    for partition, names in removed.items():
        counting = {n: c for n, c in names.items() if waiting or c.state is not State.REQUESTED}
        deleted_by = {join_path(partition, name): clean for name, clean in counting.items()}
        possibly_lost |= {
            path: clean for path, clean in deleted_by.items() if path not in present or not clean.is_completed
        }
        missing = [ObjectInfo(path, 0) for path in deleted_by if path not in present]
        past_bases, past_logs = parse_files(partition, missing)
        bases, logs = [*bases, *past_bases], [*logs, *past_logs]
    slices = build_slices(
        bases, logs, table_at.client.at(then).slicing(bases, logs), table_at.client.at(then).replaced()
    )
    lost = [path for file_slice in slices for path in file_slice.paths if path in possibly_lost]
    if lost:
        clean = possibly_lost[lost[0]]
        did = "removed it" if clean.is_completed else "is going to remove it; roll that clean back first"
        raise StateError(f"{what}: {lost[0]} is needed, and the clean {clean.time} {did}")
    return slices


def _removed_by_cleans(table_at: TableAt) -> _RemovedFiles:
    removed: dict[PartitionPath, dict[str, Instant]] = {}
    for clean in table_at.timeline:
        if clean.action is not Action.CLEAN:
            continue
        for partition, names in _names_removed_by(table_at, clean).items():
            removed.setdefault(partition, {}).update(dict.fromkeys(names, clean))
    return removed


def _names_removed_by(table_at: TableAt, clean: Instant) -> Mapping[PartitionPath, tuple[str, ...]]:
    """Return the names of the files that a clean removed or is going to remove, by partition."""
    file = clean
    if not clean.is_completed:
        file = next((f for f in table_at.timeline.files_of(clean) if f.state is State.REQUESTED), clean)
    body = table_at.read_body(file)
    if not body:
        return {}
    if not clean.is_completed:
        plan = decode_body(BodyKind.CLEANER_PLAN, body, what=file.file_name)
        return parse_clean_plan(table_at.client.store, plan, file.file_name).files
    record: Mapping[str, Any] = decode_body(BodyKind.CLEAN_METADATA, body, what=file.file_name)
    return {
        PartitionPath(partition): tuple(
            name.rpartition("/")[2] for name in (*part["successDeleteFiles"], *part["deletePathPatterns"])
        )
        for partition, part in record["partitionMetadata"].items()
    }


_SERVICES_WITH_PLANS = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING})
_FINISHED_INSTEAD = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE})


@dataclass(frozen=True)
class RollbackResult(CommitResult):
    """What a rollback did: ``instant`` is the rollback's own, or that of the table service that was finished."""

    plan: RollbackPlan | None = None


def plan_undo(client: TableClient, instant: str) -> RollbackPlan:
    """Return what :func:`rollback_instant` would do; nothing is changed.

    Raises:
        InstantNotFound: the timeline has no such instant.
        StateError: it is completed and not the newest commit, or the state before it is not complete any more.
    """
    state = client.load()
    table_at = client.at(state)
    target = state.timeline.find(instant)
    _check_target_may_go(table_at, target)
    return _plan_of_target(table_at, target)


def rollback_instant(client: TableClient, instant: str, *, force: bool, withdraw: bool | None = None) -> RollbackResult:
    """Undo an instant; see ``Table.rollback``."""
    write_client = open_write_client(client)
    with write_client.lock.hold() as lease:
        config = open_for_writing(write_client)
        state = TableState(config, write_client.timeline(config).load())
        target = state.timeline.find(instant)
        _check_target_may_go(client.at(state), target)
        if not target.is_completed and not force:
            _check_writer_is_dead(write_client.at(state), target)
            if target.action is Action.COMPACTION:
                check_inputs(write_client.at(state), target, read_plan(write_client.at(state), target))
        if target.action in _FINISHED_INSTEAD:
            return _end_service(write_client.at(state), target, lease)
        plan = _plan_of_target(client.at(state), target)
        opened = new_groups_of_plan(client.at(state), target)
        lease.check()
        if target.is_completed:
            forget_committed(client.at(state))
        if target.action in _SERVICES_WITH_PLANS or _is_clustering(write_client.at(state), target):
            time = _undo_service(write_client.at(state), target, plan, lease, withdraw)
        else:
            time = _undo_write(write_client.at(state), target, plan, lease)
        drop_rings(write_client, target.time, opened)
    return RollbackResult(time, action=Action.ROLLBACK.value, plan=plan)


# ------------------------------------------------------------------------------------------------------- what may go


def _check_target_may_go(table_at: TableAt, target: Instant) -> None:
    if target.action is Action.INDEXING and not target.is_completed:
        raise UnsupportedFeature(f"{target}: a pending indexing is finished or dropped by the engine that began it")
    if not target.is_completed:
        return
    if target.action not in COMMIT_ACTIONS:
        raise StateError(f"{target} is a service that is done; only commits can be rolled back")
    if target != table_at.timeline.latest_commit:
        raise StateError(f"{target} is not the newest commit: roll back newer ones first, or restore an older state")
    if any(i.time == target.time for i in savepoints_of(table_at.timeline)):
        raise StateError(f"{target} is kept by a savepoint: delete the savepoint first")
    _check_nothing_is_planned_on_it(table_at, target)
    _check_past_is_there(table_at, target)


def _check_nothing_is_planned_on_it(table_at: TableAt, target: Instant) -> None:
    """Raise when a pending plan will read files of the commit: it could never be executed."""
    commit = table_at.commit_metadata(target)
    touched = {(stat.partition_path, stat.file_id) for stat in commit.stats}
    for pending in table_at.timeline.pending:
        if pending.time > target.time and touched & groups_of_plan(table_at, pending):
            raise StateError(
                f"{target} cannot be rolled back: {pending} was planned on top of it and waits; run it, or withdraw it "
                f"first (Table.rollback({pending.time!r}, withdraw=True))"
            )


def _check_past_is_there(table_at: TableAt, target: Instant) -> None:
    """Raise when file slices before the commit were cleaned: rows would be missing."""
    without_target = TableState(
        table_at.config, build_timeline((i for i in table_at.timeline if i != target), table_at.timeline.layout)
    )
    if target.time < (without_target.timeline.first_active or ""):
        raise StateError(f"{target} is the oldest commit of the active timeline: what was before it is archived")
    commit = table_at.commit_metadata(target)
    groups = {(stat.partition_path, stat.file_id) for stat in commit.stats if _had_a_past(stat, target)}
    # The rows of these logs are in other file groups, too.
    groups -= {
        (stat.partition_path, stat.file_id)
        for stat in commit.stats
        if is_copied_log(table_at.timeline, target, stat.file_name)
    }
    groups |= {(partition, file_id) for partition, ids in commit.replaced_file_ids.items() for file_id in ids}
    if groups:
        bases, logs = table_at.client.storage_listing(table_at.config).files(
            sorted({partition for partition, _ in groups})
        )
        slices = build_slices(bases, logs, table_at.client.at(without_target).slicing(bases, logs), {})
        present = {(file_slice.partition, file_slice.file_id) for file_slice in slices}
        lost = sorted(groups - present)
        if lost:
            raise StateError(
                f"{target} cannot be rolled back: the file slice of {lost[0][1]} before it was cleaned away; "
                "write the rows you want instead"
            )
    earlier = state_without(table_at, [target])
    check_whole(table_at, earlier, f"{target} cannot be rolled back", waiting=False)


def _had_a_past(stat: WriteStat, target: Instant) -> bool:
    before = stat.prev_base_file or stat.prev_commit
    # A log of version 8 or later names its own instant.
    return before not in (None, "", "null", target.time)


def _check_writer_is_dead(write_at: WriteAt, target: Instant) -> None:
    """Raise while the writer of the instant may be alive; a plan that only waits has no writer."""
    beats = write_at.client.store.info(heartbeat_name(target.time)) is not None
    is_plan = target.action in (*_SERVICES_WITH_PLANS, Action.CLEAN) or _is_clustering(write_at, target)
    if target.state is State.REQUESTED and not beats and is_plan:
        return
    life = write_at.write_client.writer_liveness(write_at.config, write_at.timeline, target)
    if life.alive:
        raise WriterActive(f"{target} belongs to a writer that may be alive ({life.reason}); force=True undoes it")


def _is_clustering(write_at: WriteAt, target: Instant) -> bool:
    """Return whether a pending replacecommit is a clustering of version 6, by its plan."""
    if target.action is not Action.REPLACE_COMMIT or target.is_completed:
        return False
    requested = next((f for f in write_at.timeline.files_of(target) if f.state is State.REQUESTED), None)
    body = b"" if requested is None else write_at.write_client.timeline(write_at.config).read_body(requested)
    if requested is None or not body:
        return False
    return decode_body(BodyKind.REQUESTED_REPLACE, body, what=requested.file_name).get("clusteringPlan") is not None


# ------------------------------------------------------------------------------------------------------------ undoing


def _plan_of_target(table_at: TableAt, target: Instant) -> RollbackPlan:
    layout = table_at.timeline.layout
    if target.action in _FINISHED_INSTEAD:
        return RollbackPlan(target.time, target.action)
    if not target.is_completed and target.action not in _SERVICES_WITH_PLANS:
        return plan_rollback_of(table_at.client.store, target, layout)
    # Its markers may be gone, so the table is listed. Logs that are named by other instants are in its stats.
    files = [o.name for o in table_at.client.store.list() if not o.name.startswith(".hoodie/")]
    if not target.is_completed:
        logs_of_others = files if layout == 1 else logs_named_by_slice(files, files)
        return plan_rollback_of(table_at.client.store, target, layout, files, logs_of_others)
    logs = {stat.path for stat in table_at.commit_metadata(target).stats if stat.log_files}
    directories = {path.rpartition("/")[0] for path in logs}
    # Command blocks that were appended later are in other logs of the slice.
    beside = {name for name in files if ".log." in name and name.rpartition("/")[0] in directories}
    logs |= beside if layout == 1 else set(logs_named_by_slice(beside, files))
    return plan_rollback_of(table_at.client.store, target, layout, files, logs)


def _undo_write(write_at: WriteAt, target: Instant, plan: RollbackPlan, lease: Lease) -> InstantTime:
    time = run_rollback(write_at, target, plan, lease)
    timeline_store = write_at.write_client.timeline(write_at.config)
    actions = {file.action for file in write_at.timeline.files_of(target)}
    for service in actions & {Action.LOG_COMPACTION, Action.CLUSTERING}:
        # Unlike a compaction's plan, that of a log compaction or a clustering is not kept.
        timeline_store.remove_pending(target.time, service)
    if Action.COMPACTION in actions:
        # The plan waits again; left inflight it would look like the work of a writer that died.
        timeline_store.revert_to_requested(target.time, Action.COMPACTION)
    return time


def _undo_service(
    write_at: WriteAt, target: Instant, plan: RollbackPlan, lease: Lease, withdraw: bool | None
) -> InstantTime | None:
    """Delete what a pending table service wrote; keep or remove its plan.

    A clustering plan that is kept needs no rollback on the timeline: files of a pending instant are not visible, and
    the executor of the plan removes what is left of them.
    """
    keeps = target.action in KEEP_PLAN if withdraw is None else not withdraw
    store, timeline_store = write_at.client.store, write_at.write_client.timeline(write_at.config)
    if keeps and target.state is State.REQUESTED:
        raise StateError(f"{target} has written nothing yet; withdraw=True takes its plan off the timeline")
    if not keeps and target.action is Action.COMPACTION:
        _check_nothing_on_top(write_at, target)
    if keeps and target.action not in KEEP_PLAN:
        check_rollback_allowed(write_at.write_client, write_at.config, [target])
        execute_rollback(store, plan, target.time)
        check_transition(Action.CLUSTERING, State.INFLIGHT, State.REQUESTED)
        timeline_store.remove_files(f for f in write_at.timeline.files_of(target) if f.state is State.INFLIGHT)
        store.delete([heartbeat_name(target.time)])
        return None
    time = run_rollback(write_at, target, plan, lease)
    if not keeps:
        timeline_store.remove_pending(target.time, target.action)
    return time


def _check_nothing_on_top(write_at: WriteAt, target: Instant) -> None:
    """Raise when logs of version 6 lie on top of the compaction: other engines find their slice by its plan."""
    if write_at.timeline.layout > 1:
        return
    _, logs = write_at.client.storage_listing(write_at.config).files(None)
    above = [log.path for log in logs if log.instant == target.time]
    if above:
        raise StateError(f"{target} cannot be withdrawn: {above[0]} lies on top of it; run the compaction")


def _end_service(write_at: WriteAt, target: Instant, lease: Lease) -> RollbackResult:
    """Finish a table service whose process died where it may have deleted files, else withdraw it."""
    store, config = write_at.client.store, write_at.config
    timeline_store = write_at.write_client.timeline(config)
    plan = RollbackPlan(target.time, target.action)
    if target.action is Action.CLEAN and target.state is State.REQUESTED:
        timeline_store.remove_pending(target.time, target.action)
        store.delete([heartbeat_name(target.time)])
        return RollbackResult(None, action=target.action.value, plan=plan)
    if target.action is Action.CLEAN:
        finish_clean(write_at, target, lease)
    elif target.action is Action.ROLLBACK:
        finish_rollback(write_at, target, lease)
    else:
        finish_restore(write_at.write_client, config, write_at.timeline, target, lease)
    return RollbackResult(target.time, action=target.action.value, plan=plan)


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
        commits = state.timeline.commits
        is_compaction = newest.action is Action.COMMIT and state.config.table_type is TableType.MERGE_ON_READ
        if is_compaction and any(commit.time > newest.time for commit in commits):
            # A restore to a compaction undoes what was requested after its plan: the state of now is that of the last write.
            writes = (commit for commit in commits if commit.action is not Action.COMMIT)
            return max(writes, key=lambda commit: (commit.order_time, commit.time))
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
