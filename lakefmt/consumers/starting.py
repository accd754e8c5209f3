"""Where a stream begins and ends in a table (effects: reads only)."""

from __future__ import annotations

from datetime import UTC, datetime

from lakefmt.consumers.arguments import End, Start
from lakefmt.consumers.planning import CommitFinder
from lakefmt.consumers.position import EARLIEST, StreamPosition
from lakefmt.errors import InvalidInputError
from lakefmt.filegroups.table_client import TableClient
from lakefmt.read.snapshot import resolve_bound
from lakefmt.timeline.instant import parse_instant_time

__all__ = ["completion_moment", "end_time", "start_position"]


def start_position(client: TableClient, finder: CommitFinder, start: Start) -> StreamPosition:
    """Return where a stream begins.

    Args:
        client: the table.
        finder: of the stream.
        start: what the caller asked for.

    Raises:
        InvalidInputError: no such time.
    """
    if start.position is not None:
        return start.position
    if start.moment is not None:
        return StreamPosition(resolve_bound(start.moment, client.reading_zone(client.load_config())))
    if start.word in ("latest", "full"):
        newest = finder.newest(client.load())
        return StreamPosition(newest, whole=start.word == "full") if newest else StreamPosition()
    earliest = _earliest(client, finder)
    if start.watermark is None:
        return _oldest_whole(client, earliest)
    # Commits with a larger watermark that were cleaned away are not passed over: the stream says so.
    return StreamPosition(EARLIEST if _has_rows(finder, earliest) else earliest)


def _oldest_whole(client: TableClient, earliest: str) -> StreamPosition:
    """Return where a stream begins that leaves out no row: at the first commit, or with the oldest state that is whole.

    Args:
        client: the table.
        earliest: the position from which on nothing was cleaned away.
    """
    if earliest == EARLIEST:
        return StreamPosition()
    state = client.load()
    retained = client.retained_from(state) or ""
    times = [instant.order_time for instant in state.timeline.commits if instant.time <= retained]
    return StreamPosition(max([earliest, *times]), whole=True)


def _has_rows(finder: CommitFinder, end: str) -> bool:
    """Return whether commits up to a completion time hand out rows."""
    done = EARLIEST
    while done < end:
        coming = finder.find(done, end)
        if any(step.parts for step in coming.steps):
            return True
        if coming.is_all:
            break
        done = coming.steps[-1].instant.order_time
    return False


def _earliest(client: TableClient, finder: CommitFinder) -> str:
    """Return the position from which on nothing was cleaned away."""
    done = looked_up_to = EARLIEST
    retained = client.retained_from(client.load())
    while retained is not None:
        coming = finder.find(looked_up_to)
        old = [step for step in coming.steps if step.instant.time <= retained]
        lost, _ = finder.oldest_readable(coming.state, old)
        done = lost or done
        if coming.is_all or len(old) < len(coming.steps):
            break
        looked_up_to = coming.steps[-1].instant.order_time
    return done


def end_time(client: TableClient, finder: CommitFinder, end: End) -> str | None:
    """Return the completion time up to which a stream reads; None: no end by time.

    Args:
        client: the table.
        finder: of the stream.
        end: what the caller asked for.
    """
    moment = None if end.moment is None else resolve_bound(end.moment, client.reading_zone(client.load_config()))
    if not end.newest:
        return moment
    newest = finder.newest(client.load()) or EARLIEST
    return newest if moment is None else min(newest, moment)


def completion_moment(client: TableClient, time: str) -> datetime | None:
    """Return a completion time as a moment; None for a text that is none."""
    zone = client.reading_zone(client.known_config) or datetime.now(UTC).astimezone().tzinfo or UTC
    if len(time) not in (14, 17):
        return None
    try:
        return parse_instant_time(time, zone)
    except (ValueError, InvalidInputError):
        return None
