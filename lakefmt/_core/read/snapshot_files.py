"""Keep a snapshot consistent: find archived instants and detect removed files (effects).

A clean removes files that only old snapshots need; a rollback or restore removes commits. Both
leave traces on the timeline. So the timeline is read again after every listing, or was found to be the same by
it, and a snapshot that would lose rows raises instead (docs/format.md, Committed files; Queries).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from lakefmt._core.filegroups.listing import FileListing
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile, build_slices, parse_files
from lakefmt._core.filegroups.table_client import TableAt, TableState
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime, PartitionPath
from lakefmt.errors import InstantNotFound, SnapshotExpired

__all__ = [
    "cleaned_files",
    "cleans_beyond_promise",
    "covers_archived",
    "lost_files",
    "pinned_slices",
    "record_of_clean",
    "unseen_cleans",
]

#: Larger than every instant time.
_END = "9" * 17

_Replaced = Mapping[tuple[str, str], InstantTime]
_Files = tuple[Sequence[BaseFile], Sequence[LogFile]]
#: Returns those of some partitions that a query reads.
Prune = Callable[[Sequence[PartitionPath]], Collection[PartitionPath]]


def covers_archived(table_at: TableAt) -> TableState:
    """Return the state, with the archive if its bound is older than the active timeline."""
    timeline = table_at.timeline
    if timeline.bound is None or timeline.first_active is None or timeline.bound >= timeline.first_active:
        return table_at.state
    return table_at.with_history().state


def pinned_slices(
    table_at: TableAt,
    partitions: Sequence[PartitionPath] | None = None,
    *,
    end: str | None = None,
    groups: Collection[tuple[str, str]] | None = None,
    listing: FileListing | None = None,
    prune: Prune | None = None,
) -> list[FileSlice]:
    """Return the latest slices of a state, of all or of the given partitions and file groups.

    Args:
        state: properties and timeline; a bound of the timeline makes it an earlier state.
        partitions: None: all.
        end: completion time of the state, if later commits were taken out of its timeline.
        groups: (partition, file id) pairs; None: all.
        listing: the files of the table, listed after the state was loaded; None: they are listed now.
        prune: how `partitions` were chosen among those that the table has now: the state may have had others.

    Raises:
        SnapshotExpired: a clean, rollback or restore removed files of the state.
    """
    listing = listing or table_at.listing()
    bases, logs = _of_groups(listing.files(partitions), groups)
    if table_at.history is not None:
        _check_reach(table_at.timeline, bases)
    bases = table_at.without_lost_attempts(bases)
    replaced = table_at.replaced()
    now = TableState(table_at.config, listing.timeline_after or table_at.client.timeline_store(table_at.config).load())
    partition_set = None if partitions is None else frozenset(partitions)
    _check_not_undone(table_at.client.at(now), table_at.timeline)
    for clean, record in _later_cleans(table_at.client.at(now), table_at.state, end):
        removed = _of_groups(cleaned_files(record), groups)
        if partition_set is not None:
            removed = _of_partitions(removed, partition_set, prune)
        _check_present(table_at.client.at(now), table_at.state, (bases, logs), removed, replaced, clean, end)
    return build_slices(bases, logs, table_at.slicing(bases, logs), replaced)


def _check_reach(timeline: Timeline, present: Iterable[BaseFile]) -> None:
    """Raise for a bound before the oldest known commit if older files show that the archive is incomplete."""
    commits = timeline.as_of(_END).commits
    oldest = commits[0].time if commits else _END
    if timeline.bound is not None and timeline.bound < oldest and any(f.instant < oldest for f in present):
        raise InstantNotFound(
            f"the table as of {timeline.bound} cannot be read: its timeline reaches back to {oldest}, older commits "
            "were archived and their archive is not there"
        )


def _check_present(
    table_at: TableAt,
    state: TableState,
    present: _Files,
    removed: _Files,
    replaced: _Replaced,
    clean: Instant,
    end: str | None,
) -> None:
    """Raise when a clean removed a file that the state has."""
    timeline = table_at.client.at(state).slicing([*present[0], *removed[0]], [*present[1], *removed[1]])
    lost = lost_files(present, removed, timeline, replaced)
    if lost:
        bound = state.timeline.bound or end
        raise SnapshotExpired(
            f"{lost[0]} is gone: the clean {clean.time} removed it, and "
            + (f"the table as of {bound}" if bound else "this snapshot")
            + f" needs it; {_hint(table_at.retained_from())}"
        )


def _of_partitions(files: _Files, partitions: Collection[PartitionPath], prune: Prune | None) -> _Files:
    """Return the files of chosen partitions, and of those that would have been chosen, were they still there."""
    others = {file.partition for part in files for file in part}.difference(partitions)
    if prune is not None and others:
        partitions = {*partitions, *prune(sorted(others))}
    return [f for f in files[0] if f.partition in partitions], [f for f in files[1] if f.partition in partitions]


def _of_groups(files: _Files, groups: Collection[tuple[str, str]] | None) -> _Files:
    if groups is None:
        return files
    bases, logs = files
    return (
        [f for f in bases if (f.partition, f.file_id) in groups],
        [f for f in logs if (f.partition, f.file_id) in groups],
    )


def _hint(oldest: str | None) -> str:
    return f"every instant from {oldest} on can be read" if oldest else "take a new snapshot"


def _check_not_undone(table_at: TableAt, before: Timeline) -> None:
    """Raise if a commit of the snapshot was rolled back; archived commits may leave the timeline."""
    gone = [commit for commit in _left_since(before, table_at.timeline) if commit in before.commits]
    history = table_at.with_history().history if gone else None
    for commit in gone:
        if history is None or not history.holds(commit):
            raise SnapshotExpired(f"commit {commit.time} was undone after this snapshot was taken; take a new one")


def _left_since(before: Timeline, now: Timeline) -> list[Instant]:
    """Return the completed instants of a timeline that are not on the later one: they were archived or undone."""
    if now is before or now.completed == before.completed:
        return []
    still = {(i.time, i.action) for i in now.completed}
    return [i for i in before.completed if (i.time, i.action) not in still]


_Cleans = list[tuple[Instant, Mapping[str, Any]]]


def _later_cleans(table_at: TableAt, state: TableState, end: str | None) -> _Cleans:
    """Return the cleans that may have removed files of the state, with their records.

    Cleans that were complete in the state are harmless, unless the state is older than what they
    retain.
    """
    unseen = unseen_cleans(table_at, state)
    since = state.timeline.bound or end
    first = min(filter(None, (state.timeline.bound, _first_left_out(state.timeline, end))), default=None)
    if since is None or first is None:
        return unseen
    times = {clean.time for clean, _ in unseen}
    past = cleans_beyond_promise(table_at, since, first)
    return [(clean, record) for clean, record in past if clean.time not in times] + unseen


def unseen_cleans(table_at: TableAt, state: TableState) -> _Cleans:
    """Return the cleans that were not complete in the state; of those that are archived by now the archive tells."""
    before = state.timeline
    seen = before.completed_of(Action.CLEAN)
    times = {i.time for i in seen}
    unseen = [i for i in table_at.timeline if i.action is Action.CLEAN and i.time not in times]
    # Cleans are archived oldest first: while all those of the state are active, later ones are, too.
    if _left_since(before, table_at.timeline) or (unseen and not seen):
        table_at = table_at.with_history()
        pending = {i.time for i in before.pending if i.action is Action.CLEAN}
        last = seen[-1].time if seen else before.highest_time or ""
        archived = (i for i in table_at.timeline.archived if i.action is Action.CLEAN)
        unseen = [*(i for i in archived if i.time > last or i.time in pending), *unseen]
    return [(clean, record_of_clean(table_at, clean)) for clean in unseen]


def _first_left_out(timeline: Timeline, end: str | None) -> InstantTime | None:
    """Return the first instant that a state of an earlier end leaves out; None: there is none.

    The state is what the table was up to that instant, and commits that were requested after it: all of it is kept by a clean
    that retains this instant. One that retains a later instant may have kept what was left out in the place of what is needed.
    """
    return min((i.time for i in timeline.pending), default=None) if end else None


def cleans_beyond_promise(table_at: TableAt, since: str, first: str) -> _Cleans:
    """Return the cleans that do not promise to have kept the states from an instant on, with their records.

    Args:
        table_at: the table, at one moment.
        since: cleans before this time have seen no later commit, so they removed nothing.
        first: the instant.
    """
    cleans = [i for i in table_at.timeline if i.action is Action.CLEAN]
    newest = max((i for i in cleans if i.is_completed), default=None, key=lambda i: i.time)
    # The archive ends before what the newest clean retains.
    if newest is not None and not _promises(newest, record_of_clean(table_at, newest), first):
        table_at = table_at.with_history()
        cleans = [*(i for i in table_at.timeline.archived if i.action is Action.CLEAN), *cleans]
    later = [i for i in cleans if i.time > since]
    records = map_concurrently(table_at.client.store, [partial(record_of_clean, table_at, clean) for clean in later])
    pairs = zip(later, records, strict=True)
    return [(clean, record) for clean, record in pairs if not _promises(clean, record, first)]


def _promises(clean: Instant, record: Mapping[str, object], first: str) -> bool:
    """Return whether a clean says that it kept every state from an instant on."""
    retained = record.get("earliestCommitToRetain") if clean.is_completed else None
    return bool(retained) and str(retained) <= first


def record_of_clean(table_at: TableAt, clean: Instant) -> Mapping[str, object]:
    """Return the metadata of a clean, or its plan."""
    if clean.state is State.COMPLETED:
        body = table_at.read_body(clean)
        return decode_body(BodyKind.CLEAN_METADATA, body, what=clean.file_name)
    files = table_at.timeline.files_of(clean)
    requested = next((i for i in files if i.state is State.REQUESTED), None)
    body = b"" if requested is None else table_at.read_body(requested)
    if requested is None or not body:
        return {}
    return decode_body(BodyKind.CLEANER_PLAN, body, what=requested.file_name)


def cleaned_files(record: Mapping[str, Any]) -> tuple[list[BaseFile], list[LogFile]]:
    """Return the base files and logs in a clean's metadata or plan. Pure.

    Example:
        >>> name = "f-0_1-0-0_20260101000000000.parquet"
        >>> plan = {"filePathsToBeDeletedPerPartition": {"p": [{"filePath": f"file:/t/p/{name}"}]}}
        >>> [file.path for file in cleaned_files(plan)[0]]
        ['p/f-0_1-0-0_20260101000000000.parquet']
    """
    named: list[tuple[str, Iterable[str]]] = []
    for partition, part in (record.get("partitionMetadata") or {}).items():
        named.append((partition, (*part["successDeleteFiles"], *part["deletePathPatterns"])))
    for partition, files in (record.get("filePathsToBeDeletedPerPartition") or {}).items():
        named.append((partition, [file["filePath"] or "" for file in files]))
    named += (record.get("filesToBeDeletedPerPartition") or {}).items()
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    for partition, paths in named:
        names = dict.fromkeys(path.rpartition("/")[2] for path in paths)
        parsed = parse_files(PartitionPath(partition), (ObjectInfo(name, 0) for name in names))
        bases += parsed[0]
        logs += parsed[1]
    return list(dict.fromkeys(bases)), list(dict.fromkeys(logs))


def lost_files(present: _Files, removed: _Files, timeline: Timeline, replaced: _Replaced) -> list[str]:
    """Return the removed files that the timeline's latest slices would contain, as paths. Pure.

    Args:
        present: the listed base files and logs.
        removed: the base files and logs that cleans removed.
        timeline: the timeline of the state.
        replaced: the replaced file groups.

    Example:
        >>> from lakefmt._core.timeline.timeline import build_timeline
        >>> lost_files(([], []), ([], []), build_timeline([], 2), {})
        []
    """
    here = {file.path for files in present for file in files}
    absent = {file.path for files in removed for file in files} - here
    if not absent:
        return []
    lacking_bases = [file for file in removed[0] if file.path in absent]
    lacking_logs = [log for log in removed[1] if log.path in absent]
    groups = {(f.partition, f.file_id) for f in lacking_bases} | {(f.partition, f.file_id) for f in lacking_logs}
    bases = [*(f for f in present[0] if (f.partition, f.file_id) in groups), *lacking_bases]
    logs = [*(f for f in present[1] if (f.partition, f.file_id) in groups), *lacking_logs]
    latest = build_slices(bases, logs, timeline, replaced)
    return [path for file_slice in latest for path in file_slice.paths if path in absent]
