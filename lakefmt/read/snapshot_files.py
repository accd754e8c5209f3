"""Keep a snapshot consistent: find archived instants and detect removed files (effects).

A clean removes files that only old snapshots need; a rollback or restore removes commits. Both
leave traces on the timeline. So the timeline is read again after every listing, or was found to be the same by
it, and a snapshot that would lose rows raises instead (docs/format.md, Committed files; Queries).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from lakefmt.errors import InstantNotFound, SnapshotExpired
from lakefmt.filegroups.listing import FileListing
from lakefmt.filegroups.model import BaseFile, FileSlice, LogFile, build_slices, parse_files
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.storage.api import ObjectInfo
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.metadata_codec import BodyKind, decode_body
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime, PartitionPath

__all__ = ["cleaned_files", "covers_archived", "files_of_clean", "lost_files", "pinned_slices", "record_of_clean"]

#: Larger than every instant time.
_END = "9" * 17

_Replaced = Mapping[tuple[str, str], InstantTime]


def covers_archived(client: TableClient, state: TableState) -> TableState:
    """Return the state, with the archive if its bound is older than the active timeline."""
    timeline = state.timeline
    if timeline.bound is None or timeline.first_active is None or timeline.bound >= timeline.first_active:
        return state
    return client.with_history(state)


def pinned_slices(
    client: TableClient,
    state: TableState,
    partitions: Sequence[PartitionPath] | None = None,
    *,
    end: str | None = None,
    groups: Collection[tuple[str, str]] | None = None,
    listing: FileListing | None = None,
) -> list[FileSlice]:
    """Return the latest slices of a state, of all or of the given partitions and file groups.

    Args:
        state: properties and timeline; a bound of the timeline makes it an earlier state.
        partitions: None: all.
        end: completion time of the state, if later commits were taken out of its timeline.
        groups: (partition, file id) pairs; None: all.
        listing: the files of the table, listed after the state was loaded; None: they are listed now.

    Raises:
        SnapshotExpired: a clean, rollback or restore removed files of the state.
    """
    listing = listing or client.listing(state.config, state.timeline)
    bases, logs = _of_groups(listing.files(partitions), groups)
    if state.history is not None:
        _check_reach(state.timeline, bases)
    replaced = client.replaced(state)
    now = TableState(state.config, listing.timeline_after or client.timeline_store(state.config).load())
    _check_present(client, state, now, partitions, end, groups, (bases, logs), replaced)
    return build_slices(bases, logs, client.slicing(state, bases, logs), replaced)


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
    client: TableClient,
    state: TableState,
    now: TableState,
    partitions: Sequence[PartitionPath] | None,
    end: str | None,
    groups: Collection[tuple[str, str]] | None,
    present: tuple[Sequence[BaseFile], Sequence[LogFile]],
    replaced: _Replaced,
) -> None:
    _check_not_undone(client, state.timeline, now)
    bound = state.timeline.bound or end
    wanted = None if partitions is None else frozenset(partitions)
    for clean in _later_cleans(client, state, now, bound):
        bases, logs = _of_groups(cleaned_files(record_of_clean(client, now, clean)), groups)
        if wanted is not None:
            bases = [f for f in bases if f.partition in wanted]
            logs = [f for f in logs if f.partition in wanted]
        timeline = client.slicing(state, [*present[0], *bases], [*present[1], *logs])
        lost = lost_files(present, (bases, logs), timeline, replaced)
        if lost:
            raise SnapshotExpired(
                f"{lost[0]} is gone: the clean {clean.time} removed it, and "
                + (f"the table as of {bound}" if bound else "this snapshot")
                + f" needs it; {_hint(client.retained_from(now))}"
            )


def _of_groups(
    files: tuple[list[BaseFile], list[LogFile]], groups: Collection[tuple[str, str]] | None
) -> tuple[list[BaseFile], list[LogFile]]:
    if groups is None:
        return files
    bases, logs = files
    return (
        [f for f in bases if (f.partition, f.file_id) in groups],
        [f for f in logs if (f.partition, f.file_id) in groups],
    )


def _hint(oldest: str | None) -> str:
    return f"every instant from {oldest} on can be read" if oldest else "take a new snapshot"


def _check_not_undone(client: TableClient, before: Timeline, now: TableState) -> None:
    """Raise if a commit of the snapshot was rolled back; archived commits may leave the timeline."""
    still = {(i.time, i.action) for i in now.timeline.completed}
    first = now.timeline.first_active
    for commit in before.completed:
        suspect = (commit.time, commit.action) not in still and (first is None or commit.time >= first)
        if suspect and commit in before.commits and not _is_archived(client, now, commit):
            raise SnapshotExpired(f"commit {commit.time} was undone after this snapshot was taken; take a new one")


def _is_archived(client: TableClient, state: TableState, instant: Instant) -> bool:
    history = client.with_history(state).history
    return history is not None and history.holds(instant)


def _later_cleans(client: TableClient, state: TableState, now: TableState, bound: str | None) -> list[Instant]:
    """Return the cleans that may have removed files of the state.

    Cleans that were complete in the state are harmless, unless the state is older than what they
    retain.
    """
    seen = {i.time for i in state.timeline.completed_of(Action.CLEAN)}
    unseen = [i for i in now.timeline if i.action is Action.CLEAN and i.time not in seen]
    oldest = None if bound is None else client.retained_from(now)
    if bound is None or (oldest is not None and oldest <= bound):
        return unseen
    past = [i for i in state.timeline.completed_of(Action.CLEAN) if i.time > bound]
    if past or unseen:
        # A state that had no archive tells nothing of what was archived since.
        archived = client.with_history(state if state.has_history else now).timeline.archived
        past = [i for i in archived if i.action is Action.CLEAN and i.time > bound] + past
    return past + unseen


def files_of_clean(client: TableClient, state: TableState, clean: Instant) -> tuple[list[BaseFile], list[LogFile]]:
    """Return the base files and logs that a clean removed or will remove."""
    return cleaned_files(record_of_clean(client, state, clean))


def record_of_clean(client: TableClient, state: TableState, clean: Instant) -> Mapping[str, Any]:
    """Return the metadata of a clean, or its plan."""
    if clean.state is State.COMPLETED:
        body = client.read_body(client.with_history(state) if _is_gone(state, clean) else state, clean)
        return decode_body(BodyKind.CLEAN_METADATA, body, what=clean.file_name)
    files = state.timeline.files_of(clean)
    requested = next((i for i in files if i.state is State.REQUESTED), None)
    body = b"" if requested is None else client.read_body(state, requested)
    if requested is None or not body:
        return {}
    return decode_body(BodyKind.CLEANER_PLAN, body, what=requested.file_name)


def _is_gone(state: TableState, instant: Instant) -> bool:
    return instant not in state.timeline.instants


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


_Files = tuple[Sequence[BaseFile], Sequence[LogFile]]


def lost_files(present: _Files, removed: _Files, timeline: Timeline, replaced: _Replaced) -> list[str]:
    """Return the removed files that the timeline's latest slices would contain, as paths. Pure.

    Args:
        present: the listed base files and logs.
        removed: the base files and logs that cleans removed.
        timeline: the timeline of the state.
        replaced: the replaced file groups.

    Example:
        >>> from lakefmt.timeline.timeline import build_timeline
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
