"""Recovery before a write: roll back what dead writers left, and finish rollbacks and restores; under the table lock.

A writer is dead when its heartbeat has expired (:mod:`lakefmt.timeline.heartbeat`); slowness alone is not enough. Files,
markers and heartbeats of live writers are left alone.

A rollback has its own instant. Every step may be repeated: one that died half-way is finished by the next writer from its
stored plan.

Readers rely on the order of the steps of a restore (docs/format.md, Restore). First every commit becomes invisible, newest
first: in between, the table reads as it was after some commit. Then their files are deleted, then they leave the timeline,
then the restore completes. Every step may be repeated: the plan is on the timeline, and what is done is no longer there to
be done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import cast

from lakefmt.config.table_config import TableConfig
from lakefmt.data_classes import dataclass
from lakefmt.errors import LakefmtError, StateError, WriterActive
from lakefmt.filegroups.table_client import TableAt, TableState
from lakefmt.formats.names import parse_log_file
from lakefmt.storage.api import ObjectInfo, ObjectStore, SupportsLevels, remove_abandoned
from lakefmt.storage.parallel import map_concurrently
from lakefmt.storage.table_directory import TableDirectory
from lakefmt.timeline.heartbeat import DIRECTORY as HEARTBEATS
from lakefmt.timeline.heartbeat import Liveness, heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.markers import list_marked, remove_markers, remove_saved_writes
from lakefmt.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.timeline.properties_store import BACKUP, backup_among, property_reads
from lakefmt.timeline.rollback import (
    KEEP_PLAN,
    RollbackPlan,
    choose_logs,
    execute_rollback,
    logs_named_by_slice,
    parse_rollback_plan,
    plan_rollback,
    plan_rollback_of,
    rollback_metadata_record,
    rollback_plan_record,
    scan_logs,
)
from lakefmt.timeline.savepoint import (
    instants_left_to_undo,
    parse_restore_record,
    requested_as,
    restore_metadata_record,
)
from lakefmt.timeline.store import TimelineStore
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteAt, WriteClient
from lakefmt.transactions.concurrency import Concurrency, FailedWrites
from lakefmt.transactions.instant import InstantTransaction
from lakefmt.values import InstantTime, TableType

__all__ = [
    "Consent",
    "Look",
    "check_rollback_allowed",
    "execute_restore",
    "finish_dead_restores",
    "finish_restore",
    "finish_rollback",
    "plan_rollbacks",
    "read_under_lock",
    "remove_marked_files",
    "run_rollback",
    "undo_dead_writes",
]

_PlannedInstants = tuple[tuple[InstantTime, Action], ...]


def check_rollback_allowed(
    write_client: WriteClient, config: TableConfig, targets: Sequence[Instant], *, restoring: bool = False
) -> None:
    """Ask every commit observer before instants are rolled back; whatever an observer raises refuses the rollback.

    Args:
        write_client: the table.
        config: its properties.
        targets: the instants.
        restoring: a restore undoes them, at the end of which the metadata table is made anew: it has no objection.
    """
    for observer in write_client.client.observers if restoring else write_client.observers(config):
        observer.before_rollback(config, targets)


def run_rollback(write_at: WriteAt, target: Instant, plan: RollbackPlan, lease: Lease | None) -> InstantTime:
    """Roll back an instant; call under the table lock.

    Args:
        write_at: the table and its writer, at one moment.
        target: the instant, pending or completed.
        plan: its files.
        lease: of the table lock.

    Returns:
        The rollback's own instant time.

    Raises:
        LeaseLost: the lock was lost; nothing is deleted.
    """
    check_rollback_allowed(write_at.write_client, write_at.config, [target])
    timeline_store = write_at.write_client.timeline(write_at.config)
    time = write_at.write_client.instant_time_generator(write_at.config, write_at.timeline)()
    rollback = InstantTransaction(write_at.write_client, time, Action.ROLLBACK)
    record = rollback_plan_record(write_at.client.store, plan)
    with rollback:
        rollback.request(write_at.config, encode_body(BodyKind.ROLLBACK_PLAN, record))
        if lease is not None:
            lease.check()  # a target that was completed while this process slept stays: the next writer drops the plan
        if target.is_completed:
            # After the plan is on the timeline, else a death in between would look like a completed file that was lost;
            # before any data file is deleted, else readers would miss rows.
            timeline_store.reopen(target)
        _execute_and_complete(rollback, write_at.config, plan, lease)
    return time


def finish_rollback(write_at: WriteAt, pending: Instant, lease: Lease | None) -> None:
    """Finish a rollback whose process died: execute its stored plan again; call under the table lock.

    Engines hide a completed target before they delete a file of it. A rollback whose target is still complete has
    deleted nothing, and others may have committed on top of the target since: it is removed from the timeline.

    Args:
        write_at: the table and its writer, at one moment.
        pending: the rollback's own instant.
        lease: of the table lock.
    """
    timeline_store, timeline = write_at.write_client.timeline(write_at.config), write_at.timeline
    requested = next((f for f in timeline.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline_store.read_body(requested)
    if not body:
        # It died before its plan was written, so nothing was deleted.
        timeline_store.remove_pending(pending.time, Action.ROLLBACK)
        return
    record = decode_body(BodyKind.ROLLBACK_PLAN, body, what=requested.file_name)
    plan = parse_rollback_plan(write_at.client.store, record)
    if any(commit.time == plan.target for commit in timeline.commits):
        timeline_store.remove_pending(pending.time, Action.ROLLBACK)
        return
    check_rollback_allowed(write_at.write_client, write_at.config, [Instant(plan.target, plan.action, State.INFLIGHT)])
    with InstantTransaction(write_at.write_client, pending.time, Action.ROLLBACK) as rollback:
        rollback.start(write_at.config)
        _execute_and_complete(rollback, write_at.config, plan, lease)


def _execute_and_complete(
    rollback: InstantTransaction, config: TableConfig, plan: RollbackPlan, lease: Lease | None
) -> None:
    write_client = rollback.write_client
    store = write_client.client.store
    command_sizes = execute_rollback(store, plan, rollback.time)
    # The target leaves the timeline before the rollback completes: when the process dies in between, the pending
    # rollback is found and finished; the other way round a pending instant without files would be rolled back again.
    _remove_target(write_client, config, plan)
    record = rollback_metadata_record(store, plan, rollback.time, command_sizes)
    timeline = write_client.timeline(config).load()
    # The caller has proved the lock before the first deletion. Only what observers wrote since can depend on it: without
    # them a completed rollback records what was done, whether the lock is still held or not.
    proof = lease if write_client.observers(config) else None
    # A writer that was taken for dead in the middle of its rollback may have completed it.
    with suppress(StateError):
        rollback.complete(proof, config, timeline, encode_body(BodyKind.ROLLBACK_METADATA, record))


def _remove_target(write_client: WriteClient, config: TableConfig, plan: RollbackPlan) -> None:
    """Remove an instant whose files are deleted from the timeline, with its markers and heartbeat; may be repeated.

    A writer that was only slow may have written on. Files with markers that are newer than the plan are deleted, too,
    because nothing else tells of them once the markers are removed.
    """
    store, timeline_store = write_client.client.store, write_client.timeline(config)
    if plan.action in KEEP_PLAN:
        timeline_store.revert_to_requested(plan.target, plan.action)
    else:
        timeline_store.remove_pending(plan.target, plan.action)
    late = {*(list_marked(store, plan.target) or ())}.difference(*plan.files.values())
    if late:
        target = Instant(plan.target, plan.action, State.INFLIGHT)
        late_plan = plan_rollback_of(store, target, timeline_store.layout, late)
        store.delete(name for names in late_plan.files.values() for name in names)
    remove_saved_writes(store, plan.target)
    remove_markers(store, plan.target)
    store.delete([heartbeat_name(plan.target)])


def plan_rollbacks(
    store: ObjectStore, config: TableConfig, timeline: Timeline, undone: tuple[Instant, ...]
) -> tuple[RollbackPlan, ...]:
    """List the files of instants and return the rollback of each; nothing is changed."""
    names = [item.name for item in store.list() if not item.name.startswith(".hoodie/")]
    content = scan_logs(store, _shared_logs(config, timeline, names)) if undone else {}
    plans = []
    taken: set[str] = set()
    for instant in undone:
        # As a commit: files named by the time of a compaction that is undone were written on top of it and go, too.
        plain = Action.COMMIT if instant.action is Action.COMPACTION else instant.action
        other_names = [name for name in names if name not in taken]
        logs = choose_logs(
            {name: log_content for name, log_content in content.items() if name not in taken}, instant.time
        )
        plan = plan_rollback(Instant(instant.time, plain, State.INFLIGHT), other_names, logs)
        taken.update(name for files in plan.files.values() for name in files)
        plans.append(RollbackPlan(instant.time, requested_as(timeline, instant), plan.files, plan.shared))
    return tuple(plans)


def _shared_logs(config: TableConfig, timeline: Timeline, names: Sequence[str]) -> Sequence[str]:
    """Return the logs that other instants may name than those that wrote them."""
    if config.table_type is not TableType.MERGE_ON_READ:
        return ()
    if config.version.layout == 1:
        return names
    from_before_upgrade = logs_named_by_slice(names, names)
    waiting = timeline.pending_clusterings
    parsed = ((name, parse_log_file(name.rpartition("/")[2])) for name in names) if waiting else ()
    copies = [name for name, log in parsed if log is not None and log.instant in waiting]  # for their new buckets
    return sorted({*from_before_upgrade, *copies})


def execute_restore(
    restore: InstantTransaction, config: TableConfig, planned: _PlannedInstants, lease: Lease | None = None
) -> Instant:
    """Do the rest of a restore and complete it; call under the table lock.

    Args:
        restore: the restore's instant, inflight.
        config: the table's properties.
        planned: the instants that the restore undoes, in this order.
        lease: of the table lock; nothing is hidden or completed once it is lost.
    """
    write_client, time = restore.write_client, restore.time
    store, timeline_store = write_client.client.store, write_client.timeline(config)
    timeline = timeline_store.load()
    undone = instants_left_to_undo(timeline, planned)
    for instant in undone:
        if instant.is_completed:
            _check_lease(lease)
            timeline_store.reopen(instant, requested_as(timeline, instant))
    plans = plan_rollbacks(store, config, timeline, undone)
    records: dict[InstantTime, object] = {}
    for plan in plans:
        records[plan.target] = rollback_metadata_record(store, plan, time, execute_rollback(store, plan, time))
    after = timeline_store.load()
    for instant in instants_left_to_undo(after, planned):
        _remove_from_timeline(store, timeline_store, after, instant)
    body = encode_body(BodyKind.RESTORE_METADATA, restore_metadata_record(time, planned, records))
    return restore.complete(lease, config, timeline_store.load(), body)


def _check_lease(lease: Lease | None) -> None:
    if lease is not None:
        lease.check()


def _remove_from_timeline(
    store: ObjectStore, timeline_store: TimelineStore, timeline: Timeline, instant: Instant
) -> None:
    """Remove an instant from the timeline: the inflight file first, else it would look as if it was never requested."""
    remove_markers(store, instant.time)
    pending = [file for file in timeline.files_of(instant) if not file.is_completed]
    for file in sorted(pending, key=lambda f: f.state.rank, reverse=True):
        timeline_store.remove_files([file])
    store.delete([heartbeat_name(instant.time)])


def finish_dead_restores(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, lease: Lease | None = None
) -> bool:
    """Finish restores and remove savepoints whose process died; return whether there were any; call under the table lock.

    A restore is finished, because half of it is done; a savepoint that is not complete keeps nothing, so it is removed.

    Raises:
        WriterActive: another process executes a restore.
    """
    changed = False
    for pending in timeline.pending:
        if pending.action not in (Action.RESTORE, Action.SAVEPOINT):
            continue
        life = write_client.writer_liveness(config, timeline, pending)
        if life.alive and pending.action is Action.RESTORE:
            raise WriterActive(f"{pending} may be at work ({life.reason}); try again later")
        if life.alive:
            continue
        changed = True
        if pending.action is Action.SAVEPOINT:
            write_client.timeline(config).remove_pending(pending.time, Action.SAVEPOINT)
        else:
            finish_restore(write_client, config, timeline, pending, lease)
    return changed


def finish_restore(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, pending: Instant, lease: Lease | None = None
) -> None:
    """Execute the stored plan of a restore whose process died, whichever engine began it; call under the table lock."""
    timeline_store = write_client.timeline(config)
    requested = next((f for f in timeline.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline_store.read_body(requested)
    if not body:
        # It died before its plan was written, so nothing was undone.
        timeline_store.remove_pending(pending.time, Action.RESTORE)
        return
    record = decode_body(BodyKind.RESTORE_PLAN, body, what=requested.file_name)
    planned = parse_restore_record(record, requested.file_name)
    check_rollback_allowed(write_client, config, instants_left_to_undo(timeline, planned), restoring=True)
    with InstantTransaction(write_client, pending.time, Action.RESTORE) as restore:
        restore.start(config)
        execute_restore(restore, config, planned, lease)
    write_client.client.store.delete([heartbeat_name(pending.time)])


#: For services that need the table to themselves (upgrades, repairs).
_EXCLUSIVE = Concurrency(beside=False, failed_writes=FailedWrites.EAGER, retries=0, early=False)

_KEPT_PLANS = frozenset({Action.COMPACTION, Action.CLUSTERING, Action.LOG_COMPACTION})


@dataclass(frozen=True, slots=True)
class Consent:
    """What is done about instants that were complete and whose completed file is missing.

    Attributes:
        instants: those that the user agreed to lose.
        leaves_others: whether the others stay as they are; otherwise they are an error.
    """

    instants: frozenset[InstantTime] = frozenset()
    leaves_others: bool = False


_NO_CONSENT = Consent()


@dataclass(frozen=True, slots=True)
class Look:
    """What a writer reads of a table under its lock, in one round of requests.

    Attributes:
        directory: where the timeline was listed.
        timeline: the timeline.
        claims: names of the heartbeats.
        markers: directories of markers.
        properties: results of the requests for the properties; empty: there were none.
    """

    directory: str
    timeline: Timeline
    claims: list[str]
    markers: list[str]
    properties: Sequence[object] = ()


def read_under_lock(write_client: WriteClient, config: TableConfig, *, properties: bool = False) -> Look:
    """Read what a writer needs before it begins, in one round of requests; call under the table lock.

    Args:
        write_client: the table.
        config: properties as they were read before; they say where the timeline is.
        properties: read these anew, too.
    """
    store = write_client.client.store
    directory = write_client.client.list_directory()
    if directory is not None:
        return _look_in_directory(write_client, config, directory, properties=properties)
    first = property_reads(store) if properties else []
    if isinstance(store, SupportsLevels) and config.version.layout > 1:
        return _look_by_levels(write_client, config, store, first[:1])
    requests: list[Callable[[], object]] = [
        *first,
        write_client.timeline(config).load,
        *_trace_requests(store),
    ]
    results = map_concurrently(store, requests)
    timeline, claims, markers = cast("tuple[Timeline, list[str], list[str]]", results[len(first) :])
    return Look(config.timeline_directory, timeline, claims, markers, results[: len(first)])


def _look_in_directory(
    write_client: WriteClient, config: TableConfig, directory: TableDirectory, *, properties: bool
) -> Look:
    """Take the same from one listing; properties are read only where it shows that they were changed."""
    client = write_client.client
    read = property_reads(client.store, client.listed.small_objects(directory))[0]
    reads = (read(), directory.info(BACKUP)) if properties else ()
    timeline = write_client.timeline(config).load(directory)
    client.listed.keep(timeline, directory)
    claims = [info.name for info in directory.inside(HEARTBEATS)]
    return Look(config.timeline_directory, timeline, claims, directory.directories(".hoodie/.temp"), reads)


def _look_by_levels(
    write_client: WriteClient, config: TableConfig, levels: SupportsLevels, first: Sequence[Callable[[], object]]
) -> Look:
    """Read the same where one request tells what is directly inside ``.hoodie``: most tables have no traces, and no backup."""
    store = write_client.client.store
    requests: list[Callable[[], object]] = [
        *first,
        write_client.timeline(config).load,
        partial(levels.list_level, ".hoodie"),
    ]
    results = map_concurrently(store, requests)
    timeline, (objects, directories) = cast(
        "tuple[Timeline, tuple[list[ObjectInfo], list[str]]]", tuple(results[len(first) :])
    )
    list_claims, list_markers = _trace_requests(store)
    names = {name.rsplit("/", 1)[-1] for name in directories}
    claims = list_claims() if HEARTBEATS.rsplit("/", 1)[-1] in names else []
    markers = list_markers() if ".temp" in names else []
    backups = (results[0], backup_among(objects)) if first else ()
    return Look(config.timeline_directory, timeline, claims, markers, backups)


def undo_dead_writes(
    write_client: WriteClient,
    config: TableConfig,
    rules: Concurrency = _EXCLUSIVE,
    lease: Lease | None = None,
    look: Look | None = None,
    later: list[Callable[[], object]] | None = None,
    consent: Consent = _NO_CONSENT,
    own: InstantTime | None = None,
) -> Timeline:
    """Roll back the pending instants of dead writers, and remove what completed ones left; call under the table lock.

    Args:
        write_client: the table.
        config: its properties.
        rules: how the caller behaves beside other writers.
        lease: checked before each rollback: a writer that slept too long may see an instant as pending that is
            completed by now.
        look: what was read under this lock.
        later: receives the removals that need no lock; without it they are done here.
        consent: what is done about instants that were complete and whose completed file is missing.
        own: the instant time that the caller has claimed.

    Returns:
        The timeline afterwards.

    Raises:
        CompletedFileMissing: an instant was complete, its completed file is missing, and the user did not agree to lose
            its rows.
        LeaseLost: the lock was lost.
        WriterActive: the writer of a pending instant may be alive and the caller needs to be alone, or a restore runs.
        UnsupportedFeature: a table service is pending beside which lakefmt cannot write alone.
    """
    store = write_client.client.store
    if look is None or look.directory != config.timeline_directory:
        look = read_under_lock(write_client, config)
    may_restore = any(pending.action in (Action.RESTORE, Action.SAVEPOINT) for pending in look.timeline.pending)
    changed = False
    if may_restore:
        changed = finish_dead_restores(write_client, config, look.timeline, lease)
        look = read_under_lock(write_client, config) if changed else look
    timeline = look.timeline
    state = TableState(config, timeline)
    at_work: set[InstantTime | None] = set()  # targets of rollbacks that live writers execute
    waiting = sorted(timeline.pending, key=lambda i: i.action is not Action.ROLLBACK)
    to_check = [pending for pending in waiting if not _may_stay_pending(write_client.at(state), pending, rules)]
    requests: list[Callable[[], object]] = [
        partial(write_client.writer_liveness, config, timeline, pending) for pending in to_check
    ]
    requests.append(partial(_read_newest_commit, write_client.client.at(state)))
    results = map_concurrently(store, requests)
    were_complete = _were_complete(write_client.client.at(state), to_check, look, rules) - consent.instants
    for pending, life in zip(to_check, cast("list[Liveness]", results[:-1]), strict=True):
        if pending.time in were_complete:
            if consent.leaves_others:
                continue
            from lakefmt.filegroups.missing_completions import missing_completion  # few tables have lost a file

            raise missing_completion(state, pending)
        if life.alive and not (rules.beside and pending.action is not Action.RESTORE):
            raise _writer_active(pending, life)
        if life.alive:
            if pending.action is Action.ROLLBACK:
                at_work |= _targets_of(write_client.client.at(state), pending)
            continue
        if rules.failed_writes is FailedWrites.NEVER or at_work & {pending.time, None}:
            continue
        changed = True
        _roll_back_dead_write(write_client.at(state), pending, lease)
    if changed:
        look = read_under_lock(write_client, config)
        state = TableState(config, look.timeline)
    if _sweep_traces(write_client.at(state), rules, look, own) or changed:
        remove_abandoned(store)
    behind = _removals_behind_completed(store, look)
    if later is None:
        for sweep in behind:
            sweep()
    else:
        later += behind
    return look.timeline


def _writer_active(pending: Instant, life: Liveness) -> WriterActive:
    return WriterActive(
        f"{pending} belongs to a writer that may be alive ({life.reason}); try again later. If it is dead for sure, "
        f"rollback({str(pending.time)!r}, force=True) undoes it now"
    )


def _targets_of(table_at: TableAt, rollback: Instant) -> frozenset[InstantTime | None]:
    """Return what a pending rollback undoes."""
    from lakefmt.filegroups.missing_completions import pending_rollback_targets  # few writers meet a rollback

    timeline = table_at.timeline
    alone = Timeline(timeline.layout, (rollback,), timeline.files, names=timeline.names)
    return frozenset(pending_rollback_targets(table_at.client.at(TableState(table_at.config, alone))))


def _roll_back_dead_write(write_at: WriteAt, pending: Instant, lease: Lease | None) -> None:
    """Undo one dead write, or end the rollback that a dead writer began."""
    from lakefmt.timeline.rollback import plan_rollback_of  # few writers meet a dead one

    plan = None
    if pending.action is not Action.ROLLBACK:
        plan = plan_rollback_of(write_at.client.store, pending, write_at.timeline.layout)
    if lease is not None:
        lease.check()
    if plan is None:
        finish_rollback(write_at, pending, lease)
    else:
        run_rollback(write_at, pending, plan, lease)


def _were_complete(
    table_at: TableAt, to_check: Sequence[Instant], look: Look, rules: Concurrency
) -> frozenset[InstantTime]:
    """Return those of the instants to be rolled back that were complete and lost their completed file."""
    if rules.failed_writes is FailedWrites.NEVER or not to_check:
        return frozenset()
    from lakefmt.filegroups.missing_completions import was_complete

    traces = {_instant_of_path(name) for name in (*look.claims, *look.markers)}
    without = (pending for pending in to_check if pending.time not in traces)
    return frozenset(pending.time for pending in without if was_complete(table_at, pending))


def _read_newest_commit(table_at: TableAt) -> None:
    """Read the newest commit beside the other requests: its schema is needed next, while the lock is held."""
    if table_at.timeline.commits and not table_at.client.store.capabilities.low_latency:
        with suppress(LakefmtError):  # who needs the commit reads it again and gets the error
            table_at.commit_metadata(table_at.timeline.commits[-1])


def _may_stay_pending(write_at: WriteAt, pending: Instant, rules: Concurrency) -> bool:
    """Return whether a pending instant may stay pending beside a write."""
    from lakefmt.filegroups.pending_plans import is_clustering

    on_top = pending.action in (Action.COMPACTION, Action.LOG_COMPACTION)
    if on_top and write_at.config.table_type is TableType.MERGE_ON_READ:
        return True  # new logs lie on top of what it will write; a compacted log takes the place of the logs that it replaces
    if pending.action in _KEPT_PLANS or is_clustering(write_at, pending):
        return True  # conflicts with its file groups are looked for before files are written and before the commit
    # A clean deletes nothing that the newest snapshot needs; the next clean finishes it.
    return pending.action in (Action.SAVEPOINT, Action.INDEXING, Action.CLEAN)


def _trace_requests(store: ObjectStore) -> list[Callable[[], list[str]]]:
    """Return the requests that list the heartbeats and the directories of markers."""
    return [
        lambda: [item.name for item in store.list(HEARTBEATS, recursive=False)],
        lambda: list(store.list_directories(".hoodie/.temp")),
    ]


def _sweep_traces(write_at: WriteAt, rules: Concurrency, look: Look, own: InstantTime | None) -> bool:
    """Remove heartbeats and markers of instants that are not on the timeline; return whether there were any.

    Args:
        write_at: the table and its writer, at one moment.
        rules: how the caller behaves beside other writers.
        look: names the heartbeats and markers.
        own: the caller's claim, which stays.
    """
    store = write_at.client.store
    removed = remove_abandoned(store, HEARTBEATS, recursive=False) > 0
    if not look.claims and not look.markers:
        return removed
    on_timeline = {i.time for i in write_at.timeline}
    for name in look.claims:
        time = _instant_of_path(name)
        if time != own and time not in on_timeline and (not rules.beside or _writer_is_dead(write_at, time)):
            removed = True
            remove_saved_writes(store, time)
            store.delete([name])
    for directory in look.markers:
        time = _instant_of_path(directory)
        if time.isdigit() and time not in on_timeline:
            removed = True
            remove_marked_files(write_at, time)
            remove_saved_writes(store, time)
            remove_markers(store, time)
    return removed


def _removals_behind_completed(store: ObjectStore, look: Look) -> list[Callable[[], object]]:
    """Return the removals of heartbeats and markers of completed instants: their writers died, or are about to do it."""
    if not look.claims and not look.markers:
        return []
    completed = {i.time for i in look.timeline.completed} - {i.time for i in look.timeline.pending}
    claims = [name for name in look.claims if _instant_of_path(name) in completed]
    times = [time for time in map(_instant_of_path, look.markers) if time in completed]
    left = {*times, *map(_instant_of_path, claims)}
    # Saved writes first: the claims and the markers are what tells of them.
    sweeps: list[Callable[[], object]] = [partial(remove_saved_writes, store, *sorted(left))] if left else []
    sweeps += [partial(store.delete, claims)] if claims else []
    sweeps += [partial(remove_markers, store, time) for time in times]
    return [*sweeps, partial(remove_abandoned, store)] if sweeps else []


def _instant_of_path(path: str) -> InstantTime:
    return InstantTime(path.rpartition("/")[2])


def _writer_is_dead(write_at: WriteAt, time: InstantTime) -> bool:
    """Return whether the writer of an instant that is not on the timeline is dead, so that its heartbeat can go."""
    # Other engines write the heartbeat first and the requested file after it, not always under the lock.
    claimed = Instant(time, Action.COMMIT, State.REQUESTED)
    return not write_at.write_client.writer_liveness(write_at.config, write_at.timeline, claimed).alive


def remove_marked_files(table_at: TableAt, time: InstantTime, *, unmarked: bool = False) -> None:
    """Delete files that a slow writer wrote after its instant had been rolled back.

    Such files would count as committed once every commit of their age is archived (docs/format.md, Committed files).

    Args:
        table_at: the table, at one moment.
        time: the instant.
        unmarked: list the whole table, for files whose markers the rollback removed.
    """
    from lakefmt.timeline.rollback import list_data_files, plan_rollback_of

    if any(i.time == time for i in table_at.timeline):
        return
    marked = list_marked(table_at.client.store, time) or []
    files = sorted({*marked, *list_data_files(table_at.client.store)}) if unmarked else marked
    if not files or any(i.time == time for i in table_at.with_history().timeline.archived):
        return
    action = Action.COMMIT if table_at.config.table_type is TableType.COPY_ON_WRITE else Action.DELTA_COMMIT
    layout, target = table_at.timeline.layout, Instant(time, action, State.INFLIGHT)
    plan = plan_rollback_of(table_at.client.store, target, layout, files, files if layout == 1 else marked)
    table_at.client.store.delete(name for names in plan.files.values() for name in names)
