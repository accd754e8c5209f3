"""A bound on the rows and bytes that a stream takes in a second (effects: waits)."""

from __future__ import annotations

import threading
from dataclasses import field

from lakefmt.data_classes import dataclass
from lakefmt.producers.stream.options import StreamOptions
from lakefmt.storage.time_source import TimeSource

__all__ = ["RateLimit"]


@dataclass(slots=True)
class RateLimit:
    """Lets through as much as the rates allow; what comes faster waits.

    Attributes:
        time_source: waits.
        rows_per_second: None: any number.
        bytes_per_second: None: any number.
    """

    time_source: TimeSource
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    _free_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, options: StreamOptions, time_source: TimeSource) -> RateLimit | None:
        """Return the bound of a stream's options; None: there is none."""
        if options.rows_per_second is None and options.bytes_per_second is None:
            return None
        return cls(time_source, options.rows_per_second, options.bytes_per_second)

    def take(self, rows: int, size: int) -> None:
        """Wait until so much may come."""
        costs = [0.0]
        if self.rows_per_second is not None:
            costs.append(rows / self.rows_per_second)
        if self.bytes_per_second is not None:
            costs.append(size / self.bytes_per_second)
        with self._lock:
            now = self.time_source.monotonic()
            begins = max(now, self._free_at)
            self._free_at = begins + max(costs)
        if begins > now:
            self.time_source.sleep(begins - now)
