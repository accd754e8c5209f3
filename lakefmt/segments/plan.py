"""Which segments of a stream are still to be committed (pure).

A process that claims a stream lists its segments and notes the last one it saw of each earlier claim (``adopted``). What an
earlier owner writes after that was never confirmed: an owner looks for newer claims between writing a segment and confirming it.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakefmt.data_classes import dataclass
from lakefmt.segments.codec import Claim, Committed, SegmentHeader
from lakefmt.segments.names import SegmentPosition

__all__ = ["StreamPlan", "next_epoch", "next_sequence", "plan_stream"]


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What becomes of the segments of a stream.

    Attributes:
        stream: the stream.
        to_commit: durable and not in the table, in order.
        done: in the table; they can be deleted.
        unconfirmed: written by an owner that another one had replaced; they can be deleted.
        tail: durable, behind the last mark of a stream that marks offsets: its owner commits them with their mark, and
            where the owner is dead its source sends them again.
    """

    stream: str
    to_commit: tuple[SegmentHeader, ...] = ()
    done: tuple[SegmentPosition, ...] = ()
    unconfirmed: tuple[SegmentPosition, ...] = ()
    tail: tuple[SegmentHeader, ...] = ()


def plan_stream(
    stream: str, headers: Iterable[SegmentHeader], claims: Iterable[Claim], committed: Committed | None
) -> StreamPlan:
    """Return what becomes of a stream's segments.

    Args:
        stream: the stream.
        headers: of all its segments, in any order.
        claims: all claims on it.
        committed: the newest entry in a commit; None: there is none.

    Example:
        >>> headers = [SegmentHeader("w", 1, n, 1, 1, "", 0) for n in (1, 2, 3)]
        >>> plan = plan_stream("w", headers, [Claim(2, "o", "h", 1, adopts=SegmentPosition(1, 2))], Committed(1, 1))
        >>> [each.sequence for each in plan.to_commit], plan.done, plan.unconfirmed
        ([2], (SegmentPosition(epoch=1, sequence=1),), (SegmentPosition(epoch=1, sequence=3),))
    """
    noted = list(claims)
    to_commit, done, unconfirmed = [], [], []
    for header in sorted(headers, key=lambda each: each.position):
        place = header.position
        if committed is not None and place <= committed.position:
            done.append(place)
        elif any(claim.refuses(place) for claim in noted):
            unconfirmed.append(place)
        else:
            to_commit.append(header)
    marked = max((n + 1 for n, header in enumerate(to_commit) if not header.tail), default=0)
    return StreamPlan(stream, tuple(to_commit[:marked]), tuple(done), tuple(unconfirmed), tuple(to_commit[marked:]))


def next_epoch(claims: Iterable[int], positions: Iterable[SegmentPosition], committed: Committed | None) -> int:
    """Return the epoch of the next claim: above every one that was ever used.

    Example:
        >>> next_epoch([1, 2], [SegmentPosition(3, 1)], None)
        4
    """
    used = [*claims, *(each.epoch for each in positions), 0 if committed is None else committed.epoch]
    return max(used) + 1


def next_sequence(positions: Iterable[SegmentPosition], committed: Committed | None) -> int:
    """Return the number of the next segment: above every one that was ever used.

    Example:
        >>> next_sequence([SegmentPosition(1, 4)], Committed(1, 9))
        10
    """
    return max([*(each.sequence for each in positions), 0 if committed is None else committed.sequence]) + 1
