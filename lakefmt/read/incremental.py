"""What was written between two moments (spec 3.10): the latest image of every row that a range of commits wrote.

``plan_increment`` is pure: which commits, which files, which commit times. By completion time from version 8 on, by
requested time in version 6; the start is exclusive, the end inclusive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.model import BaseFile
from lakefmt.formats.names import parse_base_file
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.instant import Instant
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
    timeline: Timeline, start: str, end: str | None, content: Callable[[Instant], CommitMetadata]
) -> Increment:
    """Return the commits and files of ``(start, end]``.

    Per file group only the newest file that a selected commit wrote is opened: it holds the latest image of every row.
    Commits of services rewrite rows without changing them and are passed over.

    Raises:
        UnsupportedFeature: a selected commit wrote log files.
    """
    selected = [i for i in timeline.commits_by_completion if start < i.order_time and (not end or i.order_time <= end)]
    newest: dict[tuple[str, str], BaseFile] = {}
    times = []
    for instant in selected:
        commit = content(instant)
        for partition, ids in commit.replaced_file_ids.items():
            for file_id in ids:
                newest.pop((partition, file_id), None)
        for file in _written(commit):
            known = newest.get((file.partition, file.file_id))
            if commit.operation not in _REWRITES or known is not None:
                newest[(file.partition, file.file_id)] = file
        if commit.operation not in _REWRITES:
            times.append(instant.time)
    last = max((i.order_time for i in selected), default=InstantTime(start))
    files = tuple(newest[key] for key in sorted(newest))
    return Increment(tuple(times), files, last)


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
