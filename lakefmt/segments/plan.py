"""Which segments of a stream are still to be committed (pure).

A process that claims a stream lists its segments and notes the last one it saw of each earlier claim (``adopted``). What an
earlier owner writes after that was never confirmed: an owner looks for newer claims between writing a segment and confirming it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lakefmt.data_classes import dataclass, replace
from lakefmt.segments.codec import Claim, Committed, SegmentHeader
from lakefmt.segments.names import SegmentPosition

__all__ = ["StreamPlan", "adopted_by", "first_bytes", "in_order", "next_epoch", "next_sequence", "plan_stream"]

#: Of so many earlier claims a claim says which segments count.
_MOST_EPOCHS: Final = 1000


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
        committed: what the table has of the stream; None: nothing.
    """

    stream: str
    to_commit: tuple[SegmentHeader, ...] = ()
    done: tuple[SegmentPosition, ...] = ()
    unconfirmed: tuple[SegmentPosition, ...] = ()
    tail: tuple[SegmentHeader, ...] = ()
    committed: Committed | None = None


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
    marked_segments, tail = tuple(to_commit[:marked]), tuple(to_commit[marked:])
    return StreamPlan(stream, marked_segments, tuple(done), tuple(unconfirmed), tail, committed)


def adopted_by(claims: Sequence[Claim], seen: Iterable[SegmentPosition], committed: Committed | None) -> Claim:
    """Return the newest claim with the last segment that counts of each earlier claim; what was decided before stays so.

    Args:
        claims: on the stream, oldest first.
        seen: the segments that were there after the newest claim was made.
        committed: what the table has of the stream.

    Example:
        >>> claims = [Claim(2, "o", "h", 1, adopts=SegmentPosition(1, 4), adopted=(SegmentPosition(1, 4),)), Claim(3, "o", "h", 1)]
        >>> adopted_by(claims, [SegmentPosition(1, 5), SegmentPosition(2, 6)], None).adopted
        (SegmentPosition(epoch=1, sequence=4), SegmentPosition(epoch=2, sequence=6))
    """
    claim = claims[-1]
    earlier = [each for each in claims[:-1] if each.adopted is not None]
    found = [*seen, *([] if committed is None else [committed.position])]
    since = earlier[-1].epoch if earlier else 0
    newest = {each.epoch: each for each in sorted(found) if since <= each.epoch < claim.epoch}
    newest |= {each.epoch: each for each in (earlier[-1].adopted or () if earlier else ())}
    adopted = tuple(newest[epoch] for epoch in sorted(newest)[-_MOST_EPOCHS:])
    return replace(claim, adopts=max([*found, *adopted, SegmentPosition(0, 0)]), adopted=adopted)


def in_order(
    streams: Iterable[Sequence[SegmentHeader]],
    times: Mapping[tuple[str, SegmentPosition], float],
    until: str | None = None,
) -> list[SegmentHeader]:
    """Return the segments of several streams in the order in which they became durable.

    The store's clock decides, then that of the writers. What stands behind a mark counts from its own mark on.

    Args:
        streams: the segments of each, in its order.
        times: when the store got the header of each, in epoch seconds.
        until: a stream: what became durable after its last segment is left out. None: nothing is.

    Example:
        >>> one, two = SegmentHeader("a", 1, 1, 1, 1, "", 7), SegmentHeader("b", 1, 1, 1, 1, "", 5)
        >>> [each.stream for each in in_order([[one], [two]], {})]
        ['b', 'a']
        >>> [each.stream for each in in_order([[one], [two]], {("a", one.position): 1.0, ("b", two.position): 2.0}, "a")]
        ['a']
    """
    placed, last = list[tuple[tuple[float, int], str, int, SegmentHeader]](), None
    for headers in streams:
        moments, latest = list[tuple[float, int]](), (0.0, 0)
        for header in headers:
            latest = max(latest, (times.get((header.stream, header.position), 0.0), header.at))
            moments.append(latest)
        for number in range(len(headers) - 2, -1, -1):
            if headers[number].tail:
                moments[number] = moments[number + 1]
        placed += [
            (moment, header.stream, n, header) for n, (moment, header) in enumerate(zip(moments, headers, strict=True))
        ]
        if headers and headers[0].stream == until:
            last = moments[-1]
    return [each[3] for each in sorted(placed, key=lambda each: each[:3]) if last is None or each[0] <= last]


def first_bytes(headers: Sequence[SegmentHeader], most_bytes: int) -> Sequence[SegmentHeader]:
    """Return the first of some segments: as many as have so many bytes, at least one, and none without its mark.

    Example:
        >>> headers = [SegmentHeader("a", 1, n, 1, 10, "", 0, tail=n == 1) for n in (1, 2, 3)]
        >>> [each.sequence for each in first_bytes(headers, 10)], len(first_bytes(headers, 30))
        ([1, 2], 3)
    """
    end, size = 0, 0
    unmarked = set[str]()
    for number, header in enumerate(headers, start=1):
        if end and size + header.bytes > most_bytes:
            break
        size += header.bytes
        (unmarked.add if header.tail else unmarked.discard)(header.stream)
        end = number if not unmarked else end
    return headers[:end] if end else headers


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
