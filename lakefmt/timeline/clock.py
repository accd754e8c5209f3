"""Generate instant times: strictly increasing, larger than all on the timeline (docs/format.md, Instant times).

Pure except the given clock. Requested and completion times come from one generator, so R < C, and
an instant that starts after another completed has a larger time, even if the system clock steps
back.
"""

from __future__ import annotations

from datetime import UTC, timedelta, tzinfo
from threading import Lock

from lakefmt.timeline.instant import format_instant_time, parse_instant_time
from lakefmt.values import Clock, InstantTime

__all__ = ["InstantClock", "next_instant_time"]

_MILLISECOND = timedelta(milliseconds=1)


def next_instant_time(time: InstantTime, zone: tzinfo = UTC) -> InstantTime:
    """Return the instant time one millisecond later.

    Example:
        >>> next_instant_time("20261231235959999")
        '20270101000000000'
    """
    return format_instant_time(parse_instant_time(time, zone) + _MILLISECOND, zone)


class InstantClock:
    """Generates the instant times of one table."""

    def __init__(self, clock: Clock, zone: tzinfo | None = UTC) -> None:
        self._clock = clock
        self._zone = zone
        self._last = InstantTime("")
        self._lock = Lock()

    def next(self, above: InstantTime | None = None) -> InstantTime:
        """Return a time larger than `above` and than all times that this clock returned."""
        with self._lock:
            now = self._clock.now()
            zone = self._zone or now.astimezone().tzinfo or UTC
            candidate = format_instant_time(now, zone)
            floor = max(self._last, above or InstantTime(""))
            if candidate <= floor:
                # Compared as text, not by calendar, so that a local time inside a daylight-saving
                # gap is exceeded, too.
                candidate = next_instant_time(floor, UTC)
            self._last = candidate
            return candidate
