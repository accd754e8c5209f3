"""The zone of a LOCAL timeline, told by when its newest instants were stored (docs/timeline.md, Local timelines).

Such a timeline has the wall-clock times of whoever wrote it, and nothing says where that was. An instant that is ahead of the other
writers' clocks would hide what they write next, so the lowest offset counts that the newest instants allow.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final

from lakefmt._core.timeline.instant import parse_instant_time
from lakefmt.errors import InvalidInputError

__all__ = ["LOWEST_ZONE", "NEWEST", "offset_of", "reading_zone", "writing_zone"]

#: Instants that are looked at.
NEWEST: Final = 8
#: No clock is behind this one.
LOWEST_ZONE: Final = timezone(timedelta(hours=-12))

_QUARTER: Final = 900
#: A file of an instant is stored so many seconds after its time; clocks of stores may be a little behind.
_LATEST: Final = 60.0
_EARLIEST: Final = -2.0


def offset_of(times: Iterable[tuple[str, float]]) -> tuple[int, float] | None:
    """Return the lowest offset from UTC, in seconds, of the zones that instants were written in, and when; None: nothing tells it.

    Args:
        times: the requested time of each, and when its first file was stored, in epoch seconds; 0.0: that is unknown.

    Example:
        >>> stored = datetime(2026, 1, 1, 10, 0, 1, tzinfo=UTC).timestamp()
        >>> offset_of([("20260101153000000", stored)])[0] / 3600, offset_of([("20250101153000000", stored)])
        (5.5, None)
    """
    known = [(time, stored) for time, stored in times if stored]
    told = [(offset, stored) for time, stored in known if (offset := _offset(time, stored)) is not None]
    # The files of a copied table have the time of the copy: that one of them fits is chance.
    if 2 * len(told) < len(known) or not told:
        return None
    return min(offset for offset, _ in told), max(stored for _, stored in told)


def _offset(time: str, stored: float) -> int | None:
    try:
        ahead = parse_instant_time(time, UTC).timestamp() - stored
    except InvalidInputError:
        return None
    offset = -int(-(ahead + _EARLIEST) // _QUARTER) * _QUARTER
    is_zone = _EARLIEST <= offset - ahead <= _LATEST and offset in _offsets_at(int(stored) // _QUARTER)
    return offset if is_zone else None


def writing_zone(offset: int, stored: float, now: datetime) -> tzinfo:
    """Return a zone for new instants that no other writer's clock is behind.

    Args:
        offset: what :func:`offset_of` returned.
        stored: when the newest instant of it was stored.
        now: the time.

    Example:
        >>> before, after = (datetime(2026, month, 1, tzinfo=UTC) for month in (10, 11))
        >>> writing_zone(7200, before.timestamp(), after).utcoffset(None)
        datetime.timedelta(seconds=3600)
    """
    return timezone(timedelta(seconds=_lowest_now(offset, int(stored) // _QUARTER, int(now.timestamp()) // _QUARTER)))


def reading_zone(offset: int, stored: float) -> tzinfo | None:
    """Return the zone of times that a caller names; None: the machine's own, which has the same offset.

    Args:
        offset: what :func:`offset_of` returned.
        stored: when the newest instant of it was stored.
    """
    own = datetime.fromtimestamp(stored, UTC).astimezone().utcoffset()
    return None if own == timedelta(seconds=offset) else timezone(timedelta(seconds=offset))


@lru_cache(maxsize=64)
def _offsets_at(quarter: int) -> frozenset[int]:
    return frozenset(_by_zone(quarter).values())


@lru_cache(maxsize=64)
def _by_zone(quarter: int) -> dict[str, int]:
    """Return the offset of every zone in a quarter of an hour."""
    moment = datetime.fromtimestamp(quarter * _QUARTER, UTC)
    offsets = {name: moment.astimezone(zoneinfo.ZoneInfo(name)).utcoffset() for name in _names()}
    return {name: int(offset.total_seconds()) for name, offset in offsets.items() if offset is not None}


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    # Nobody writes tables at the one station whose clocks are set back by two hours; its zone would hold others back, too.
    return tuple(sorted(zoneinfo.available_timezones() - {"Factory", "localtime", "Antarctica/Troll"}))


@lru_cache(maxsize=256)
def _lowest_now(offset: int, then: int, now: int) -> int:
    if then == now:
        return offset
    later = _by_zone(now)
    return min((later[name] for name, each in _by_zone(then).items() if each == offset), default=offset)
