"""What was written between two moments (spec 3.10): the latest image of every row that a range of commits wrote.

``plan_increment`` is pure: which commits, which files, which commit times. By completion time from version 8 on, by
requested time in version 6; the start is exclusive, the end inclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.model import BaseFile
from lakefmt.formats.names import parse_base_file
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.instant import COMMIT_ACTIONS, Instant
from lakefmt.timeline.view import Timeline
from lakefmt.values import InstantTime, WriteOperation

__all__ = ["Increment", "plan_increment"]

_REWRITES = frozenset({WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})


@dataclass(frozen=True, slots=True)
class Increment:
    """What to open for a range of commits, and where the next range starts."""

    commits: tuple[InstantTime, ...]
    files: tuple[BaseFile, ...]
    next_start: str


def plan_increment(
    timeline: Timeline,
    start: str,
    end: str | None,
    content: Callable[[Instant], CommitMetadata],
    idle: Collection[InstantTime] = (),
) -> Increment:
    """Return the commits and files of ``(start, end]``.

    Per file group only the newest file that a selected commit wrote is opened: it holds the latest image of every row.
    Commits of services rewrite rows without changing them; they are followed only where they moved selected rows.

    Without completion times (version 6) a commit that began earlier may still complete later: the range ends before the
    first pending write, so that the next pull misses nothing.

    Args:
        timeline: what happened.
        start: exclusive.
        end: inclusive; None: everything.
        content: what a completed commit says.
        idle: requested times of pending instants that will add no rows, such as planned clusterings.

    Raises:
        UnsupportedFeature: a selected commit wrote log files.
    """
    barrier = _barrier(timeline, start, idle)
    selected = [
        i
        for i in timeline.commits_by_completion
        if start < i.order_time and (not end or i.order_time <= end) and (not barrier or i.order_time < barrier)
    ]
    files: dict[tuple[str, str], BaseFile] = {}
    times = []
    for instant in selected:
        commit = content(instant)
        if commit.operation in _REWRITES or commit.compacted:
            _follow(commit, files)
        else:
            times.append(instant.time)
            _take_out(commit, files)
            for file in _written(commit):
                _keep_newest(files, file)
    last = max((i.order_time for i in selected), default=InstantTime(start))
    return Increment(tuple(times), tuple(files[key] for key in sorted(files)), last)


def _barrier(timeline: Timeline, start: str, idle: Collection[InstantTime]) -> InstantTime | None:
    if timeline.layout != 1:
        return None
    waiting = (i.time for i in timeline.pending if i.action in COMMIT_ACTIONS and i.time not in idle)
    return min((time for time in waiting if time > start), default=None)


def _take_out(commit: CommitMetadata, files: dict[tuple[str, str], BaseFile]) -> set[str]:
    """Forget the file groups that a commit replaced; return the partitions of those that were known."""
    replaced = [(partition, one) for partition, ids in commit.replaced_file_ids.items() for one in ids]
    return {key[0] for key in replaced if files.pop(key, None) is not None}


def _follow(commit: CommitMetadata, files: dict[tuple[str, str], BaseFile]) -> None:
    """Go along with a service: what it wrote takes the place of known files that it rewrote or replaced."""
    known = set(files)
    partitions = _take_out(commit, files)
    if partitions or any((stat.partition_path, stat.file_id) in known for stat in commit.stats):
        for file in _written(commit):
            if file.partition in partitions or (file.partition, file.file_id) in known:
                _keep_newest(files, file)


def _keep_newest(files: dict[tuple[str, str], BaseFile], file: BaseFile) -> None:
    """Remember a file unless a later image of its group is known, which may have become visible before."""
    known = files.get((file.partition, file.file_id))
    if known is None or file.instant > known.instant:
        files[(file.partition, file.file_id)] = file


def _written(commit: CommitMetadata) -> list[BaseFile]:
    files = []
    for stat in commit.stats:
        if not stat.path:
            continue
        name = parse_base_file(stat.file_name)
        if name is None:
            raise UnsupportedFeature(f"{stat.path} is a log file: increments of merge-on-read tables are not read yet")
        files.append(
            BaseFile(
                stat.partition_path,
                stat.file_name,
                name.file_id,
                name.write_token,
                name.instant,
                stat.file_size_in_bytes,
            )
        )
    return files
