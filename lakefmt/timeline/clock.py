"""New instant times: strictly increasing, above everything on the timeline (spec 3.1).

Pure but for the clock that is handed in. Requested and completion times come from the same source, so R < C, and an
instant that starts after another completed gets a larger time, even when the machine's clock steps back.
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
    """Hands out instant times for one table."""

    def __init__(self, clock: Clock, zone: tzinfo | None = UTC) -> None:
        self._clock = clock
        self._zone = zone
        self._last = InstantTime("")
        self._lock = Lock()

    def next(self, above: InstantTime | None = None) -> InstantTime:
        """Return a time above `above` and above every time this clock handed out."""
        with self._lock:
            now = self._clock.now()
            zone = self._zone or now.astimezone().tzinfo or UTC
            candidate = format_instant_time(now, zone)
            floor = max(self._last, above or InstantTime(""))
            if candidate <= floor:
                # As text, not by calendar: a floor from a daylight-saving gap must still be passed.
                candidate = next_instant_time(floor, UTC)
            self._last = candidate
            return candidate
