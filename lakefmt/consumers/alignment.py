"""Streams that read side by side wait for those that are behind in event time."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from lakefmt.arguments import number_argument
from lakefmt.data_classes import dataclass

__all__ = ["Mark", "WatermarkAlignment", "is_held_back"]


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one stream is.

    Attributes:
        watermark: of the commit that it read last; None: it has read none.
        at: when it said so, in seconds of a monotonic clock.
    """

    watermark: int | None
    at: float


def is_held_back(name: str, marks: Mapping[str, Mark], drift: int, now: float, idle: float | None) -> bool:
    """Return whether a stream waits before it reads its next commit: it is ahead of the slowest. Pure.

    Args:
        name: of the stream.
        marks: how far each stream of the group is.
        drift: the most milliseconds that a stream may be ahead.
        now: in seconds of the marks' clock.
        idle: streams that were silent for longer, in seconds, do not count; None: all count.

    Example:
        >>> marks = {"a": Mark(100, 0.0), "b": Mark(10, 0.0)}
        >>> is_held_back("a", marks, 50, 1.0, None), is_held_back("a", marks, 50, 9.0, 5.0)
        (True, False)
    """
    own = marks.get(name)
    if own is None or own.watermark is None:
        return False
    others = [mark for other, mark in marks.items() if other != name and (idle is None or now - mark.at <= idle)]
    return any(mark.watermark is None or own.watermark > mark.watermark + drift for mark in others)


class WatermarkAlignment:
    """A group of streams of one process, none of which runs ahead of the slowest by more than a number of milliseconds.

    Args:
        max_drift: how far a stream may be ahead, in milliseconds.
        idle_timeout: a stream without a new commit for longer, in seconds, holds no other back; None: it does.

    Example:
        >>> group = WatermarkAlignment(max_drift=60_000, idle_timeout=30.0)
        >>> group.join("a", 0.0); group.join("b", 0.0)
        >>> group.advance("a", 90_000, 1.0), group.advance("b", 10_000, 1.0)
        (None, None)
        >>> group.holds_back("a", 2.0), group.holds_back("b", 2.0)
        (True, False)
    """

    def __init__(self, max_drift: int, idle_timeout: float | None = None) -> None:
        self.max_drift = int(number_argument(max_drift, "max_drift", 0))
        self.idle_timeout = None if idle_timeout is None else number_argument(idle_timeout, "idle_timeout", 0)
        self._marks: dict[str, Mark] = {}
        self._lock = threading.Lock()

    def join(self, name: str, now: float) -> None:
        """Add a stream."""
        with self._lock:
            self._marks[name] = Mark(None, now)

    def advance(self, name: str, watermark: int | None, now: float) -> None:
        """Note the watermark that a stream has reached."""
        with self._lock:
            if watermark is not None and name in self._marks:
                self._marks[name] = Mark(watermark, now)

    def leave(self, name: str) -> None:
        """Remove a stream."""
        with self._lock:
            self._marks.pop(name, None)

    def holds_back(self, name: str, now: float) -> bool:
        """Return whether a stream waits before it reads its next commit."""
        with self._lock:
            return is_held_back(name, self._marks, self.max_drift, now, self.idle_timeout)
