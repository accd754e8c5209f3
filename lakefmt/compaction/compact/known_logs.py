"""What a handle knows of the logs of a table: whether a compaction may find something to merge.

Where the trigger asks for a compaction after every commit because none is ever made (a table that is only appended to, or whose
small files are rewritten), every commit would list the whole table to learn that there is no log. Once a listing has
shown none, the commits that completed since say whether one came.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from lakefmt.data_classes import dataclass
from lakefmt.errors import SnapshotExpired
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.reader import BaseFileReader
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import parse_log_file
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = ["Moment", "commits_to_look_at", "has_no_logs", "moment_of", "remember_logs"]

#: Completed actions that bring no log back. Others may: a restore and a rollback show older file slices again.
_HARMLESS = COMMIT_ACTIONS | {Action.CLEAN, Action.SAVEPOINT}

_moments: WeakKeyDictionary[BaseFileReader, Moment] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Moment:
    """A timeline at which the latest file slices had no logs.

    Attributes:
        completed: time and action of the completed instants.
        pending: requested times of the others.
        newest: the latest requested time of a completed commit.
    """

    completed: frozenset[tuple[InstantTime, Action]]
    pending: frozenset[InstantTime]
    newest: InstantTime


def moment_of(timeline: Timeline) -> Moment:
    """Return what is remembered of a timeline. Pure."""
    completed = frozenset((each.time, each.action) for each in timeline.completed)
    newest = max((each.time for each in timeline.commits), default=InstantTime(""))
    return Moment(completed, timeline.pending_times, newest)


def commits_to_look_at(moment: Moment, timeline: Timeline) -> tuple[Instant, ...] | None:
    """Return the commits that completed after a moment; None: the timeline does not tell what has happened since. Pure.

    Args:
        moment: of an earlier timeline of the same table.
        timeline: the active timeline now.

    Example:
        >>> from lakefmt.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.deltacommit" for n in range(3)]
        >>> moment = moment_of(timeline_from_names(names[:2], 2))
        >>> [each.time for each in commits_to_look_at(moment, timeline_from_names(names, 2)) or ()]
        ['20260101000002000']
    """
    first = timeline.first_active
    if first is None or first > moment.newest:
        return None  # commits that completed after the moment may be archived
    active = {each.time for each in timeline.instants}
    if any(time < first and time not in active for time in moment.pending):
        return None  # the same
    new = [each for each in timeline.completed if (each.time, each.action) not in moment.completed]
    if any(each.action not in _HARMLESS for each in new):
        return None
    return tuple(each for each in new if each.action in COMMIT_ACTIONS)


def has_no_logs(client: TableClient, state: TableState) -> bool:
    """Return whether this handle knows, without a listing, that no latest file slice has a log.

    Args:
        client: the table.
        state: the table as it is now.
    """
    moment = _moments.get(client.reader)
    commits = None if moment is None else commits_to_look_at(moment, state.timeline)
    if commits is None:
        return False
    try:
        if any(_writes_logs(client, state, commit) for commit in commits):
            return False
    except SnapshotExpired:  # undone meanwhile
        return False
    _moments[client.reader] = moment_of(state.timeline)
    return True


def remember_logs(client: TableClient, state: TableState, slices: Iterable[FileSlice]) -> None:
    """Remember what a listing has shown.

    Args:
        client: the table.
        state: the table as it was before it was listed.
        slices: the latest file slice of every file group.
    """
    if any(each.logs for each in slices):
        _moments.pop(client.reader, None)
    else:
        _moments[client.reader] = moment_of(state.timeline)


def _writes_logs(client: TableClient, state: TableState, commit: Instant) -> bool:
    stats = client.commit_metadata(state, commit).stats
    return any(parse_log_file(stat.file_name) is not None for stat in stats)
