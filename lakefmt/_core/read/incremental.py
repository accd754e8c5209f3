"""Plan incremental reads: the latest image of every row that a range of commits wrote (docs/format.md, Queries).

``plan_increment`` is pure and returns commits, files and commit times. The range is by completion
time from version 8 on, by requested time in version 6; start exclusive, end inclusive. Where the names of
the table's files say the same as the commits, ``plan_named_increment`` returns it without their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime, WriteOperation

__all__ = [
    "EARLIEST",
    "Increment",
    "ReadPosition",
    "are_told_by_names",
    "is_rewrite",
    "plan_increment",
    "plan_named_increment",
    "select_commits",
    "visible_at_end",
]

#: Before every commit.
EARLIEST: Final = "000"
_REWRITES = frozenset({WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})


@dataclass(frozen=True, slots=True)
class Increment:
    """The files to read for a range of commits, and the start of the next range.

    Attributes:
        commits: the commits of the range.
        files: the newest base file of each touched file group.
        groups: the touched file groups.
        next_start: the start of the next range.
        has_logs: some commits wrote logs: then slices as of the end are merged instead.
    """

    commits: tuple[InstantTime, ...]
    files: tuple[BaseFile, ...]
    next_start: str
    groups: frozenset[tuple[str, str]] = frozenset()
    has_logs: bool = False


def plan_increment(
    timeline: Timeline,
    start: str,
    end: str | None,
    content: Callable[[Instant], CommitMetadata],
    idle: Collection[InstantTime] = (),
) -> Increment:
    """Return the commits and files of ``(start, end]``.

    Only the newest file of the selected commits is read per file group: it has the latest image of
    every row. Table services rewrite rows without changing them, so they count only if they moved
    selected rows.

    Without completion times (version 6) a commit that began earlier may complete later: the range
    ends before the first pending write, so that the next pull misses nothing.

    Args:
        timeline: the active timeline.
        start: exclusive.
        end: inclusive; None: no bound.
        content: returns the metadata of a completed commit.
        idle: requested times of pending instants that add no rows, such as planned clusterings.
    """
    selected = select_commits(timeline, start, end, idle)
    files: dict[tuple[str, str], BaseFile | None] = {}
    times = []
    for instant in selected:
        commit = content(instant)
        if is_rewrite(commit):
            _follow(commit, files)
        else:
            times.append(instant.time)
            _take_out(commit, files)
            for key, file in _written(commit):
                _keep_newest(files, key, file)
    last = max((i.order_time for i in selected), default=InstantTime(start))
    base_files = [file for key in sorted(files) if (file := files[key]) is not None]
    return Increment(tuple(times), tuple(base_files), last, frozenset(files), len(base_files) < len(files))


def are_told_by_names(timeline: Timeline, selected: Sequence[Instant]) -> bool:
    """Return whether the names of a table's files tell what some commits wrote, as far as an increment asks for it.

    They do for ordinary commits of base files, up to the newest commit of the table: what such a commit wrote to a file group is
    there, or a newer file of that group, which a clean keeps. Replacecommits also say which groups they replaced,
    compactions have the action of a commit once they are complete, and a pending rollback or restore may have removed files.

    Args:
        timeline: the timeline.
        selected: commits as :func:`select_commits` returns them.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> time = "20260101000000000"
        >>> def told(kind: str) -> bool:
        ...     timeline = timeline_from_names([f"{time}.{kind}.requested", f"{time}_20260101000000009.commit"], 2)
        ...     return are_told_by_names(timeline, timeline.commits)
        >>> told("commit"), told("compaction")
        (True, False)
    """
    if not selected or timeline.bound is not None or selected[-1] is not timeline.commits_by_completion[-1]:
        return False
    if any(instant.action in (Action.ROLLBACK, Action.RESTORE) for instant in timeline.pending):
        return False
    return all(instant.action is Action.COMMIT and _began_as_commit(timeline, instant) for instant in selected)


def _began_as_commit(timeline: Timeline, instant: Instant) -> bool:
    begun = [file for file in timeline.files_of(instant) if not file.is_completed]
    return bool(begun) and all(file.action is Action.COMMIT for file in begun)


def plan_named_increment(selected: Sequence[Instant], bases: Iterable[BaseFile]) -> Increment | None:
    """Return the increment of commits that the names of files tell; None: those leave something open.

    Args:
        selected: commits of which :func:`are_told_by_names` holds.
        bases: the base files of the table.
    """
    times = {instant.time for instant in selected}
    files: dict[tuple[str, str], BaseFile] = {}
    for base in bases:
        if base.instant not in times:
            continue
        group = (str(base.partition), str(base.file_id))
        newest = files.get(group)
        if newest is not None and newest.instant == base.instant:
            return None  # two attempts of one task: the commit tells which of them counts
        if newest is None or newest.instant < base.instant:
            files[group] = base
    return Increment(
        commits=tuple(instant.time for instant in selected),
        files=tuple(files[group] for group in sorted(files)),
        next_start=max(instant.order_time for instant in selected),
        groups=frozenset(files),
    )


def select_commits(
    timeline: Timeline, start: str, end: str | None, idle: Collection[InstantTime] = ()
) -> list[Instant]:
    """Return the commits of ``(start, end]`` in completion order; arguments as above.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = ["20260101000000000_20260101000000009.commit"]
        >>> [i.order_time for i in select_commits(timeline_from_names(names, 2), "000", None)]
        ['20260101000000009']
    """
    barrier = _barrier(timeline, start, idle)
    return [
        i
        for i in timeline.commits_by_completion
        if start < i.order_time and (not end or i.order_time <= end) and (not barrier or i.order_time < barrier)
    ]


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Which commits of a table somebody has read.

    Attributes:
        time: commits up to this completion time (requested time in version 6).
        requested: commits requested up to this time, too, whenever they completed; "": no others. Somebody who read a table of version 6
            knows requested times only; an upgrade takes the times at which files of commits were modified for completion times, which
            may put commits into another order.
    """

    time: str
    requested: str = ""

    def has(self, commit: Instant) -> bool:
        """Return whether a commit was read.

        Example:
            >>> from lakefmt._core.timeline.timeline import timeline_from_names
            >>> early, late = timeline_from_names(
            ...     ["20260101000000001_20260101000000009.commit", "20260101000000003_20260101000000005.commit"], 2
            ... ).commits
            >>> ReadPosition("20260101000000004", "20260101000000002").has(early), ReadPosition("20260101000000004").has(late)
            (True, False)
        """
        return commit.order_time <= self.time or commit.time <= self.requested


def is_rewrite(commit: CommitMetadata) -> bool:
    """Return whether a commit is that of a table service, which moves rows and changes none.

    Example:
        >>> is_rewrite(CommitMetadata(WriteOperation.CLUSTER)), is_rewrite(CommitMetadata(WriteOperation.UPSERT))
        (True, False)
    """
    return commit.operation in _REWRITES or bool(commit.compacted)


def _barrier(timeline: Timeline, start: str, idle: Collection[InstantTime]) -> InstantTime | None:
    if timeline.layout != 1:
        return None
    waiting = (i.time for i in timeline.pending if i.action in COMMIT_ACTIONS and i.time not in idle)
    return min((time for time in waiting if time > start), default=None)


def visible_at_end(timeline: Timeline, end: str | None) -> Timeline:
    """Return the timeline as of the moment when everything up to `end` was visible: later commits are pending on it.

    Were they left out, one that was requested before the first active commit would be taken for an archived one.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> late = timeline_from_names(["20260101000000000_20260101000000009.commit"], 2)
        >>> then = visible_at_end(late, "20260101000000005")
        >>> len(then.commits), len(then.pending)
        (0, 1)
    """
    if not end:
        return timeline
    later = {(i.time, i.action) for i in timeline.commits if i.order_time > end}
    active_instants, old = (
        [i for i in instants if (i.time, i.action) not in later] for instants in (timeline.instants, timeline.archived)
    )
    active_instants += [Instant(time, action, State.INFLIGHT) for time, action in later]
    return replace(timeline, instants=tuple(sorted(active_instants, key=lambda i: i.time)), archived=tuple(old))


_Files = dict[tuple[str, str], BaseFile | None]


def _take_out(commit: CommitMetadata, files: _Files) -> set[str]:
    """Remove the file groups that a commit replaced; return the partitions of the removed ones."""
    replaced = [(partition, file_id) for partition, ids in commit.replaced_file_ids.items() for file_id in ids]
    tracked = [key for key in replaced if key in files]
    for key in tracked:
        del files[key]
    return {partition for partition, _ in tracked}


def _follow(commit: CommitMetadata, files: _Files) -> None:
    """Follow a table service: its files replace the tracked files that it rewrote or replaced."""
    tracked = set(files)
    partitions = _take_out(commit, files)
    if partitions or any((stat.partition_path, stat.file_id) in tracked for stat in commit.stats):
        for key, file in _written(commit):
            if key[0] in partitions or key in tracked:
                _keep_newest(files, key, file)


def _keep_newest(files: _Files, key: tuple[str, str], file: BaseFile | None) -> None:
    """Keep a file unless a later file of its group, possibly visible before, is tracked.

    A log means that the group must be merged: None.
    """
    newest = files.get(key)
    if file is None or key not in files or (newest is not None and file.instant > newest.instant):
        files[key] = file


def _written(commit: CommitMetadata) -> list[tuple[tuple[str, str], BaseFile | None]]:
    """Return the file groups that a commit wrote to, with its base file, or None for a log."""
    written: list[tuple[tuple[str, str], BaseFile | None]] = []
    for stat in commit.stats:
        if not stat.path:
            continue
        key = (str(stat.partition_path), str(stat.file_id))
        name = parse_base_file(stat.file_name)
        if name is None:
            written.append((key, None))
            continue
        partition, size = stat.partition_path, stat.file_size_in_bytes
        file = BaseFile(partition, stat.file_name, name.file_id, name.write_token, name.instant, size)
        written.append(((str(partition), str(name.file_id)), file))
    return written
