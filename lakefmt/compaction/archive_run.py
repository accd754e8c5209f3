"""Archiving: old instants move from the active timeline into the history (metadata note 7; effects).

All of it under the table lock, in an order that loses nothing: first the history has them, then their pending files go,
then the completed ones, oldest first. Who dies in between leaves instants that are in both places, which readers count
once; the next run removes them from the active timeline before it plans anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter

from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.services import TableServices, open_services
from lakefmt.table_config import TableConfig, check_writable
from lakefmt.timeline.archive_plan import ArchivePlan, ArchiveRules, plan_archive
from lakefmt.timeline.history_plan import HistoryEntry, plan_of
from lakefmt.timeline.history_writer import HistoryWriter
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.view import Timeline
from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = ["ArchiveResult", "archive_rules", "plan_archive_of", "run_archive"]


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What an archive step did; prints as one readable line.

    Attributes:
        plan: what was to move.
        done: False for a plan only.
        finished: instants that an earlier run had put into the history and not yet taken off the active timeline.
    """

    plan: ArchivePlan
    done: bool = False
    finished: tuple[InstantTime, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.done:
            return str(self.plan)
        stopped = f"; stopped by {self.plan.barrier}" if self.plan.barrier else ""
        return f"{len(self.plan.instants)} instants archived, {self.seconds:.3f} s{stopped}"


def archive_rules(services: TableServices) -> ArchiveRules:
    """Return how long the active timeline may be."""
    settings = services.settings
    return ArchiveRules(settings.integer("hoodie.keep.min.commits"), settings.integer("hoodie.keep.max.commits"))


def plan_archive_of(access: TableAccess, options: Mapping[str, object] | None = None) -> ArchivePlan:
    """Return what :func:`run_archive` would move; nothing is changed."""
    services = open_services(access, options)
    config = access.load_config()
    _check_layout(config)
    return _plan(services, TableState(config, services.timeline(config).load()), force=True)


def run_archive(
    access: TableAccess, options: Mapping[str, object] | None = None, *, force: bool = True
) -> ArchiveResult:
    """Move old instants into the history.

    Args:
        access: the table.
        options: settings of the call.
        force: False waits until the timeline is longer than ``hoodie.keep.max.commits``.

    Raises:
        UnsupportedFeature: the table is of version 6.
        LockUnavailable: the table lock could not be had in time.
    """
    begun = perf_counter()
    services = open_services(access, options)
    with services.lock.hold() as lease:
        config = access.load_config()
        check_writable(config)
        _check_layout(config)
        timeline_store = services.timeline(config)
        timeline = timeline_store.load()
        if not force and not _is_due(timeline, archive_rules(services)):
            return ArchiveResult(ArchivePlan(), done=True, seconds=perf_counter() - begun)
        both = _in_both_places(access, TableState(config, timeline))
        if both:
            lease.check()
            _leave(services, config, timeline, both)
            timeline = timeline_store.load()
        plan = _plan(services, TableState(config, timeline), force=force)
        if plan.instants:
            writer = HistoryWriter(access.store, config.history_directory, durable=services.durable)
            writer.append(_entries(services, TableState(config, timeline), plan.instants))
            writer.merge()
            lease.check()
            _leave(services, config, timeline, plan.instants)
    finished = tuple(instant.time for instant in both)
    return ArchiveResult(plan, done=True, finished=finished, seconds=perf_counter() - begun)


def _check_layout(config: TableConfig) -> None:
    if config.version.layout == 1:
        raise UnsupportedFeature(
            "tables of version 6 are not archived: readers accept a long timeline; upgrade the table to archive it"
        )


def _is_due(timeline: Timeline, rules: ArchiveRules) -> bool:
    return len(timeline.commits) > rules.max_commits


def _plan(services: TableServices, state: TableState, *, force: bool) -> ArchivePlan:
    rules = archive_rules(services)
    if not force and not _is_due(state.timeline, rules):
        return ArchivePlan()
    return plan_archive(
        state.timeline,
        rules,
        retained_from=services.access.retained_from(state),
        hiding=_still_hiding(services.access, state, rules),
        force=force,
    )


def _still_hiding(access: TableAccess, state: TableState, rules: ArchiveRules) -> list[InstantTime]:
    """Return the replacecommits, among those that may be archived, whose replaced file groups still have files."""
    candidates = state.timeline.commits[: -rules.min_commits]
    found = []
    for instant in candidates:
        if instant.action is not Action.REPLACE_COMMIT:
            continue
        replaced = access.commit_metadata(state, instant).replaced_file_ids
        if _any_file(access, state, replaced):
            found.append(instant.time)
    return found


def _any_file(access: TableAccess, state: TableState, groups: Mapping[PartitionPath, Iterable[FileId]]) -> bool:
    bases, logs = access.listing(state.config).files(list(groups))
    present = {(f.partition, f.file_id) for f in bases} | {(f.partition, f.file_id) for f in logs}
    return any((partition, one) in present for partition, ids in groups.items() for one in ids)


def _in_both_places(access: TableAccess, state: TableState) -> list[Instant]:
    """Return the completed instants that the history has and the active timeline still shows."""
    history = access.with_history(state).history
    return [] if history is None else [i for i in state.timeline.completed if history.holds(i)]


def _entries(services: TableServices, state: TableState, instants: Iterable[Instant]) -> Iterator[HistoryEntry]:
    """Yield what the history keeps of each instant."""
    timeline_store = services.timeline(state.config)
    for instant in instants:
        pending = {f.state: f for f in state.timeline.files_of(instant) if not f.is_completed}
        bodies = {s: timeline_store.read_body(f) for s, f in pending.items()}
        begun = next((f.action for f in pending.values()), instant.action)
        plan = plan_of(begun, bodies.get(State.REQUESTED, b""), bodies.get(State.INFLIGHT, b""))
        yield HistoryEntry(instant, timeline_store.read_body(instant) or None, plan)


def _leave(services: TableServices, config: TableConfig, timeline: Timeline, instants: Iterable[Instant]) -> None:
    """Take instants off the active timeline: pending files first, else a completed deed would look pending."""
    chosen = sorted(instants, key=lambda i: i.time)
    files = [file for instant in chosen for file in timeline.files_of(instant)]
    timeline_store = services.timeline(config)
    timeline_store.remove_files(file for file in files if not file.is_completed)
    for instant in chosen:
        timeline_store.remove_files([instant])
