"""Recovery before a write: roll back what dead writers left, and finish rollbacks and restores; under the table lock.

A writer is dead when its heartbeat has expired (:mod:`lakefmt._core.timeline.heartbeat`); slowness alone is not enough. Files,
markers and heartbeats of live writers are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import cast

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.pending_plans import is_clustering
from lakefmt._core.filegroups.table_client import TableAt, TableState
from lakefmt._core.storage.api import ObjectInfo, ObjectStore, SupportsLevels, remove_abandoned
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.heartbeat import DIRECTORY as HEARTBEATS
from lakefmt._core.timeline.heartbeat import Liveness
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.markers import list_marked, remove_markers, remove_saved_writes
from lakefmt._core.timeline.store import BACKUP, backup_among, property_reads
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import Concurrency, FailedWrites, WriteAt, WriteClient
from lakefmt._core.values import InstantTime, TableType
from lakefmt.errors import LakefmtError, WriterActive

__all__ = ["Consent", "Look", "read_under_lock", "remove_marked_files", "undo_dead_writes"]


#: For services that need the table to themselves (upgrades, repairs).
_EXCLUSIVE = Concurrency(beside=False, background=False, failed_writes=FailedWrites.EAGER, retries=0, early=False)

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
        from lakefmt._core.transactions.rollback_executor import finish_dead_restores  # few tables have one

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
            from lakefmt._core.filegroups.missing_completions import missing_completion  # few tables have lost a file

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
        f"{pending} belongs to a writer that may be alive ({life.reason}); try again later. If it is dead for sure, such as a "
        f"failed job, undo it now: table.rollback({str(pending.time)!r}, force=True), or `lakefmt rollback TABLE {pending.time} "
        "--force`. To write beside others, set hoodie.write.concurrency.mode=optimistic_concurrency_control for every writer"
    )


def _targets_of(table_at: TableAt, rollback: Instant) -> frozenset[InstantTime | None]:
    """Return what a pending rollback undoes."""
    from lakefmt._core.filegroups.missing_completions import pending_rollback_targets  # few writers meet a rollback

    timeline = table_at.timeline
    alone = Timeline(timeline.layout, (rollback,), timeline.files, names=timeline.names)
    return frozenset(pending_rollback_targets(table_at.client.at(TableState(table_at.config, alone))))


def _roll_back_dead_write(write_at: WriteAt, pending: Instant, lease: Lease | None) -> None:
    """Undo one dead write, or end the rollback that a dead writer began."""
    from lakefmt._core.timeline.rollback import plan_rollback_of
    from lakefmt._core.transactions.rollback_executor import (  # few writers find a dead one
        finish_rollback,
        run_rollback,
    )

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
    from lakefmt._core.filegroups.missing_completions import was_complete

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


def _sweep_traces(write_at: WriteAt, rules: Concurrency, look: Look, own_time: InstantTime | None) -> bool:
    """Remove heartbeats and markers of instants that are not on the timeline; return whether there were any.

    Args:
        write_at: the table and its writer, at one moment.
        rules: how the caller behaves beside other writers.
        look: names the heartbeats and markers.
        own_time: the caller's claim, which stays.
    """
    store = write_at.client.store
    removed = remove_abandoned(store, HEARTBEATS, recursive=False) > 0
    if not look.claims and not look.markers:
        return removed
    on_timeline = {i.time for i in write_at.timeline}
    for name in look.claims:
        time = _instant_of_path(name)
        if time != own_time and time not in on_timeline and (not rules.beside or _writer_is_dead(write_at, time)):
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
    times_to_sweep = {*times, *map(_instant_of_path, claims)}
    # Saved writes first: the claims and the markers are what tells of them.
    sweeps: list[Callable[[], object]] = (
        [partial(remove_saved_writes, store, *sorted(times_to_sweep))] if times_to_sweep else []
    )
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
    from lakefmt._core.timeline.rollback import list_data_files, plan_rollback_of

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
