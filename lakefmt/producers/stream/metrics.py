"""Counters of a stream."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import field
from threading import Lock
from typing import Any, Final

from lakefmt.data_classes import dataclass

__all__ = ["BOUNDS", "StreamMetrics"]

#: Upper bounds of the classes of a histogram, in seconds.
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(slots=True)
class StreamMetrics:
    """What a stream has done; :meth:`as_dict` gives a copy.

    Example:
        >>> metrics = StreamMetrics()
        >>> metrics.flushed("rows", 10, 0.002)
        >>> metrics.as_dict()["flushes"], metrics.as_dict()["rows_durable"]
        ({'rows': 1}, 10)
    """

    rows_applied: int = 0
    rows_durable: int = 0
    rows_committed: int = 0
    rows_rejected: int = 0
    rows_truncated: int = 0
    dead_letter_rows: int = 0
    backpressure_seconds: float = 0.0
    commit_seconds: float = 0.0
    commits: int = 0
    commit_failures: int = 0
    last_commit_error: str | None = None
    last_commit_instant: str | None = None
    flushes: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    flush_seconds: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    flush_seconds_sum: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def flushed(self, trigger: str, rows: int, seconds: float) -> None:
        """Count a segment that became durable."""
        with self._lock:
            self.rows_durable += rows
            self.flushes[trigger] += 1
            self.flush_seconds[bisect_left(BOUNDS, seconds)] += 1
            self.flush_seconds_sum += seconds

    def committed(self, rows: int, seconds: float, instant: str | None) -> None:
        """Count a commit."""
        with self._lock:
            self.rows_committed += rows
            self.commits += 1
            self.commit_seconds += seconds
            self.last_commit_instant = instant or self.last_commit_instant
            self.last_commit_error = None

    def commit_failed(self, error: BaseException) -> None:
        """Count a commit that failed, after all its attempts."""
        with self._lock:
            self.commit_failures += 1
            self.last_commit_error = f"{type(error).__name__}: {error}"

    def retried(self, status: str) -> None:
        """Count an attempt after a failure."""
        with self._lock:
            self.retries[status] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return every counter by name."""
        with self._lock:
            made = {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
            classes = dict(zip(map(str, (*BOUNDS, "inf")), self.flush_seconds, strict=True))
            made |= {"flushes": dict(self.flushes), "retries": dict(self.retries), "flush_seconds": classes}
            return made
