"""Offsets of a topic: checkpoints in Hudi's form, and which offsets a round takes (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from lakefmt._core.arguments import shown
from lakefmt.errors import PositionLost, SourceRefused

__all__ = [
    "OffsetRange",
    "begin_offsets",
    "checkpoint_text",
    "parse_offsets",
    "parse_single_offset",
    "parse_timestamp",
    "plan_ranges",
    "share_limit",
]

_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,19})")
_MOST: Final = 2**63 - 1
#: Longer texts are none of ours: a topic has at most some hundred thousand partitions.
_MOST_CHARACTERS: Final = 8 << 20


class OffsetRange(NamedTuple):
    """What a round takes of a partition.

    Attributes:
        partition: its number.
        begin: the first offset.
        end: the offset behind the last one; equal to `begin`: nothing.
    """

    partition: int
    begin: int
    end: int


def checkpoint_text(topic: str, offsets: Mapping[int, int]) -> str:
    """Return the checkpoint of next offsets, as Hudi writes it.

    Example:
        >>> checkpoint_text("orders", {1: 7, 0: 12})
        'orders,0:12,1:7'
    """
    return ",".join([topic, *(f"{partition}:{offsets[partition]}" for partition in sorted(offsets))])


def parse_offsets(checkpoint: str, topic: str) -> dict[int, int]:
    """Return the next offset of each partition in a checkpoint.

    Raises:
        SourceRefused: it is none of Kafka, or of another topic.

    Example:
        >>> parse_offsets("orders,0:12,1:7", "orders")
        {0: 12, 1: 7}
    """
    name, *parts = checkpoint[:_MOST_CHARACTERS].split(",")
    parsed = [_PLACE.fullmatch(item) for item in parts]
    offsets = {int(match[1]): int(match[2]) for match in parsed if match is not None}
    if not parts or len(checkpoint) > _MOST_CHARACTERS or len(offsets) < len(parts) or max(offsets.values()) > _MOST:
        raise SourceRefused(
            f"the checkpoint {shown(checkpoint)} is none of a topic of Kafka, such as '{topic},0:12,1:7': "
            "it comes from a source of another kind, or from another type of checkpoint"
        )
    if name != topic:
        raise SourceRefused(f"the checkpoint is of the topic {shown(name)}, and the job reads {shown(topic)}")
    return offsets


def parse_timestamp(checkpoint: str) -> int | None:
    """Return the milliseconds since 1970 of a checkpoint of 10 digits (seconds) or 13 (milliseconds); None: it is no such time.

    Example:
        >>> parse_timestamp("1700000000"), parse_timestamp("1700000000123"), parse_timestamp("orders,0:1")
        (1700000000000, 1700000000123, None)
    """
    if not re.fullmatch(r"[0-9]{10}|[0-9]{13}", checkpoint):
        return None
    return int(checkpoint) * (1000 if len(checkpoint) == 10 else 1)


def parse_single_offset(checkpoint: str) -> int | None:
    """Return the next offset of a topic's only partition; None: the text is no number."""
    return int(checkpoint) if re.fullmatch(r"[0-9]{1,18}", checkpoint) else None


def begin_offsets(
    topic: str,
    stored: Mapping[int, int],
    earliest: Mapping[int, int],
    latest: Mapping[int, int],
    *,
    skips_lost: bool,
) -> dict[int, int]:
    """Return where each partition of the topic goes on.

    Args:
        topic: its name.
        stored: the checkpoint's offsets; a partition that it does not have begins at 0.
        earliest: the first offset that the topic still has, of each partition.
        latest: the offset behind its last message.
        skips_lost: messages that the topic no longer has are left out, in their partitions alone.

    Raises:
        PositionLost: a partition no longer has the messages behind its offset, or is not the one that the checkpoint was made of.

    Example:
        >>> begin_offsets("orders", {0: 12}, {0: 0, 1: 0}, {0: 20, 1: 5}, skips_lost=False)
        {0: 12, 1: 0}
    """
    missing = sorted(set(stored) - set(latest))
    if missing:
        raise PositionLost(
            f"the topic {shown(topic)} has no partition {missing[0]}, of which the checkpoint has offset {stored[missing[0]]}: "
            "it was made anew; begin with another checkpoint"
        )
    begins = {partition: stored.get(partition, 0) for partition in sorted(latest)}
    for partition, begin in begins.items():
        if begin > latest[partition]:
            raise PositionLost(
                f"partition {partition} of {shown(topic)}: the checkpoint is at offset {begin}, and the topic ends at {latest[partition]}: "
                "it was made anew or lost messages; begin with another checkpoint"
            )
        if begin < earliest[partition] and not skips_lost:
            raise PositionLost(
                f"partition {partition} of {shown(topic)}: the checkpoint is at offset {begin}, and the topic begins at "
                f"{earliest[partition]}: {earliest[partition] - begin} offsets are gone, by retention or deletion; "
                "hoodie.streamer.source.kafka.enable.failOnDataLoss=false goes on behind them"
            )
    return {partition: max(begin, earliest[partition]) for partition, begin in begins.items()}


def share_limit(available: Mapping[int, int], limit: int) -> dict[int, int]:
    """Return how many messages of each partition a limited round takes, as Hudi shares them: evenly, again and again.

    A limit that is smaller than the number of partitions serves those with the most messages first, so that none waits for ever.

    Args:
        available: the messages that each partition has.
        limit: the most of all together.

    Example:
        >>> share_limit({0: 10, 1: 2, 2: 10}, 9)
        {0: 4, 1: 2, 2: 3}
    """
    order = sorted(available)
    if limit < sum(1 for count in available.values() if count):
        order.sort(key=lambda partition: -available[partition])
    shares = dict.fromkeys(sorted(available), 0)
    remaining = min(limit, sum(available.values()))
    unfilled = order
    while remaining > 0:
        share = -(-remaining // len(unfilled))
        for partition in unfilled:
            portion = min(share, available[partition] - shares[partition], remaining)
            shares[partition] += portion
            remaining -= portion
        unfilled = [partition for partition in unfilled if shares[partition] < available[partition]]
    return shares


def plan_ranges(begins: Mapping[int, int], latest: Mapping[int, int], limit: int | None) -> tuple[OffsetRange, ...]:
    """Return the ranges of a round, one for each partition, also of those without news.

    Args:
        begins: where each partition goes on.
        latest: the offset behind its last message.
        limit: the most messages; None: all there are.

    Example:
        >>> plan_ranges({0: 12, 1: 0}, {0: 20, 1: 5}, 8)
        (OffsetRange(partition=0, begin=12, end=16), OffsetRange(partition=1, begin=0, end=4))
    """
    available = {partition: latest[partition] - begin for partition, begin in begins.items()}
    shares = available if limit is None else share_limit(available, limit)
    return tuple(
        OffsetRange(partition, begins[partition], begins[partition] + shares[partition]) for partition in sorted(begins)
    )
