"""Before a write: undoing what dead writers left, beside those that live (effects; under the table lock).

Dead is who cannot finish any more (:mod:`lakefmt.timeline.heartbeat`), never who is slow. Whoever lives keeps its files,
its markers and its claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import cast

from lakefmt.config.table_config import TableConfig
from lakefmt.errors import LakefmtError, UnsupportedFeature, WriterActive
from lakefmt.filegroups.missing_completions import missing_completion, pending_rollback_targets, was_complete
from lakefmt.filegroups.pending_plans import is_clustering
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.storage.api import ObjectStore, remove_abandoned
from lakefmt.storage.parallel import map_concurrently
from lakefmt.timeline.heartbeat import DIRECTORY as HEARTBEATS
from lakefmt.timeline.heartbeat import Liveness
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.markers import list_marked, remove_markers
from lakefmt.timeline.rollback import finish_rollback, list_data_files, plan_rollback_of, run_rollback
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteClient
from lakefmt.transactions.concurrency import Concurrency, FailedWrites
from lakefmt.transactions.restore_executor import finish_dead_restores
from lakefmt.values import InstantTime, TableType

__all__ = ["Consent", "Look", "read_under_lock", "remove_marked_files", "undo_dead_writes"]

#: How services behave that need the table to themselves (upgrades, repairs).
_ALONE = Concurrency(beside=False, failed_writes=FailedWrites.EAGER, retries=0, early=False)

_PLANS = frozenset({Action.COMPACTION, Action.CLUSTERING, Action.LOG_COMPACTION})


@dataclass(frozen=True, slots=True)
class Consent:
    """What is done about instants that were complete, and whose completed file is gone.

    Attributes:
        instants: those that somebody agreed to lose.
        leaves_others: whether the others stay as they are; otherwise they are an error.
    """

    instants: frozenset[InstantTime] = frozenset()
    leaves_others: bool = False


_NO_CONSENT = Consent()


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a table at once, under its lock.

    Attributes:
        directory: where the timeline was listed.
        timeline: the timeline.
        claims: the heartbeats' names.
        markers: the directories of markers.
        properties: what the looks at the properties found; empty: they were not asked.
    """

    directory: str
    timeline: Timeline
    claims: list[str]
    markers: list[str]
    properties: Sequence[object] = ()


def read_under_lock(write_client: WriteClient, config: TableConfig, first: Sequence[Callable[[], object]] = ()) -> Look:
    """Return what all is to be seen before a write, in the time of one look; call under the lock.

    Args:
        write_client: the table.
        config: its properties as they were; they say where its timeline is.
        first: the looks at the properties as they are.
    """
    looks: list[Callable[[], object]] = [
        *first,
        write_client.timeline(config).load,
        *_traces(write_client.client.store),
    ]
    found = map_concurrently(write_client.client.store, looks)
    timeline, claims, markers = cast("tuple[Timeline, list[str], list[str]]", found[len(first) :])
    return Look(config.timeline_directory, timeline, claims, markers, found[: len(first)])


def undo_dead_writes(
    write_client: WriteClient,
    config: TableConfig,
    rules: Concurrency = _ALONE,
    lease: Lease | None = None,
    look: Look | None = None,
    later: list[Callable[[], object]] | None = None,
    consent: Consent = _NO_CONSENT,
) -> Timeline:
    """Roll back the pending instants of dead writers and sweep what completed ones left; call under the lock.

    Args:
        write_client: the table.
        config: its properties.
        rules: how the caller behaves beside other writers.
        lease: proved to be held before each instant is undone: who slept too long may look at a timeline on which the
            instant is pending, and it is completed by now.
        look: what was seen under this very lock.
        later: takes what needs no lock: sweeping after writes that are complete; done here when there is no such list.
        consent: what is done about instants that were complete, and whose completed file is gone.

    Raises:
        CompletedFileMissing: an instant was complete, its completed file is gone, and nobody agreed to lose its rows.
        LeaseLost: the lock is somebody else's by now.
        WriterActive: a pending instant's writer may be alive, and the caller wants to be alone, or a restore is at work.
        UnsupportedFeature: a service is pending beside which lakefmt cannot write alone.
    """
    store, timeline_store = write_client.client.store, write_client.timeline(config)
    if look is None or look.directory != config.timeline_directory:
        look = read_under_lock(write_client, config)
    next_time = write_client.instant_time_generator(config, look.timeline)
    changed = finish_dead_restores(write_client, config, look.timeline, lease)
    look = read_under_lock(write_client, config) if changed else look
    timeline = look.timeline
    state = TableState(config, timeline)
    at_work: set[InstantTime | None] = set()  # what others are rolling back
    waiting = sorted(timeline.pending, key=lambda i: i.action is not Action.ROLLBACK)
    asked = [pending for pending in waiting if not _may_wait(write_client, state, pending, rules)]
    looks: list[Callable[[], object]] = [
        partial(write_client.writer_liveness, config, timeline, pending) for pending in asked
    ]
    looks.append(partial(_read_ahead, write_client.client, state))
    found = map_concurrently(store, looks)
    kept = _were_complete(write_client.client, state, asked, look, rules) - consent.instants
    for pending, life in zip(asked, cast("list[Liveness]", found[:-1]), strict=True):
        if pending.time in kept:
            if consent.leaves_others:
                continue
            raise missing_completion(state, pending)
        if life.alive and not (rules.beside and pending.action is not Action.RESTORE):
            raise WriterActive(f"{pending} belongs to a writer that may be alive ({life.reason}); try again later")
        if life.alive:
            if pending.action is Action.ROLLBACK:
                alone = Timeline(timeline.layout, (pending,), timeline.files, names=timeline.names)
                at_work |= pending_rollback_targets(write_client.client, TableState(config, alone))
            continue
        if rules.failed_writes is FailedWrites.NEVER or at_work & {pending.time, None}:
            continue
        changed = True
        plan = None if pending.action is Action.ROLLBACK else plan_rollback_of(store, pending, timeline.layout)
        if lease is not None:
            lease.check()
        if plan is None:
            finish_rollback(store, timeline_store, timeline, pending, next_time)
        else:
            run_rollback(store, timeline_store, plan, next_time)
    look = read_under_lock(write_client, config) if changed else look
    if _sweep(write_client, TableState(config, look.timeline), rules, look.claims, look.markers) or changed:
        remove_abandoned(store)
    behind = _behind_completed(store, look)
    if later is None:
        for sweep in behind:
            sweep()
    else:
        later += behind
    return look.timeline


def _were_complete(
    client: TableClient, state: TableState, asked: Sequence[Instant], look: Look, rules: Concurrency
) -> frozenset[InstantTime]:
    """Return the instants, among those that are to be undone, that were complete and lost their completed file."""
    if rules.failed_writes is FailedWrites.NEVER:
        return frozenset()
    traces = {_time_of(name) for name in (*look.claims, *look.markers)}
    without = (pending for pending in asked if pending.time not in traces)
    return frozenset(pending.time for pending in without if was_complete(client, state, pending))


def _read_ahead(client: TableClient, state: TableState) -> None:
    """Read the newest commit beside other looks: the schema is asked of it next, and others wait meanwhile."""
    if state.timeline.commits and not client.store.capabilities.low_latency:
        with suppress(LakefmtError):  # who needs it will be told
            client.commit_metadata(state, state.timeline.commits[-1])


def _may_wait(write_client: WriteClient, state: TableState, pending: Instant, rules: Concurrency) -> bool:
    """Return whether a pending instant is nothing that a write has to end.

    Raises:
        UnsupportedFeature: it is a service beside which lakefmt cannot write alone.
    """
    on_top = pending.action in (Action.COMPACTION, Action.LOG_COMPACTION)
    if on_top and state.config.table_type is TableType.MERGE_ON_READ:
        return True  # logs go on top of it (spec 4.4); a folded log stands where the logs stood that it replaces
    if rules.beside and (pending.action in _PLANS or is_clustering(write_client.client, state, pending)):
        return True  # whose file groups it takes in is asked before files are written, and before the commit
    if pending.action in _PLANS:
        raise UnsupportedFeature(
            f"{pending} is pending: lakefmt cannot write beside it yet; run or withdraw it with the engine that made it"
        )
    # A clean takes nothing that the newest state needs; the next clean finishes it.
    return pending.action in (Action.SAVEPOINT, Action.INDEXING, Action.CLEAN)


def _traces(store: ObjectStore) -> list[Callable[[], list[str]]]:
    """Return the looks that find the claims and the directories of markers."""
    return [
        lambda: [item.name for item in store.list(HEARTBEATS, recursive=False)],
        lambda: list(store.list_directories(".hoodie/.temp")),
    ]


def _sweep(
    write_client: WriteClient, state: TableState, rules: Concurrency, claims: Sequence[str], markers: Sequence[str]
) -> bool:
    """Remove claims and markers whose instant died before it was requested, or was undone; tell whether any was."""
    store = write_client.client.store
    known = {i.time for i in state.timeline}
    found = remove_abandoned(store, HEARTBEATS, recursive=False) > 0
    for name in claims:
        time = _time_of(name)
        if time not in known and (not rules.beside or _is_over(write_client, state, time)):
            found = True
            store.delete([name])
    for directory in markers:
        time = _time_of(directory)
        if time.isdigit() and time not in known:
            found = True
            remove_marked_files(write_client.client, state, time)
            remove_markers(store, time)
    return found


def _behind_completed(store: ObjectStore, look: Look) -> list[Callable[[], object]]:
    """Return what sweeps after completed instants: their writers died before they did, or are about to."""
    completed = {i.time for i in look.timeline.completed} - {i.time for i in look.timeline.pending}
    claims = [name for name in look.claims if _time_of(name) in completed]
    times = [time for time in map(_time_of, look.markers) if time in completed]
    sweeps: list[Callable[[], object]] = [partial(store.delete, claims)] if claims else []
    sweeps += [partial(remove_markers, store, time) for time in times]
    return [*sweeps, partial(remove_abandoned, store)] if sweeps else []


def _time_of(path: str) -> InstantTime:
    return InstantTime(path.rpartition("/")[2])


def _is_over(write_client: WriteClient, state: TableState, time: InstantTime) -> bool:
    """Return whether nobody needs the claim on an instant that is not on the timeline: its author died."""
    # Other engines make the claim first and the requested file after it, not always under the lock.
    claimed = Instant(time, Action.COMMIT, State.REQUESTED)
    return not write_client.writer_liveness(state.config, state.timeline, claimed).alive


def remove_marked_files(client: TableClient, state: TableState, time: InstantTime, *, unmarked: bool = False) -> None:
    """Delete what a write left after it had been rolled back: it took itself for alive and wrote on.

    Such files would count as committed once every commit of their age is archived (spec 3.9). With `unmarked` the whole
    table is listed, for files whose markers the rollback took away.
    """
    if any(i.time == time for i in state.timeline):
        return
    marked = list_marked(client.store, time) or []
    files = sorted({*marked, *list_data_files(client.store)}) if unmarked else marked
    if not files or any(i.time == time for i in client.with_history(state).timeline.archived):
        return
    action = Action.COMMIT if state.config.table_type is TableType.COPY_ON_WRITE else Action.DELTA_COMMIT
    plan = plan_rollback_of(client.store, Instant(time, action, State.INFLIGHT), state.timeline.layout, files)
    client.store.delete(name for names in plan.files.values() for name in names)
