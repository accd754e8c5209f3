"""Time zones of timestamp partitions, by the names that Hudi accepts. Pure, except for the zone database.

Hudi passes the setting to Java's ``TimeZone.getTimeZone`` and the result to Joda. Java knows the
names of the zone database and offsets such as ``GMT+8``, and reads any other text as GMT, ``UTC+8``
and ``+08:00`` included. Joda maps short names of old Java releases to modern zones: ``EST`` is
``America/New_York``.

The rules of a region come from this machine's zone database; Joda has its own. Arrow applies rules
up to 2037; later years are computed here.
"""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidKey, UnknownSetting, UnsupportedFeature

__all__ = ["Zone", "check_new_zone", "find_zone", "to_instants", "to_local"]

Times = npt.NDArray[np.int64]

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Java's form of an offset. Hours may be missing before a colon; three or more digits end with the
#: minutes.
_OFFSET: Final = re.compile(r"GMT([+-])(?:([0-9]{0,2}):([0-9]{2})|([0-9]+))", re.ASCII)
#: Accepted by Java from release 23 on, GMT before.
_OFFSET_WITH_SECONDS: Final = re.compile(r"GMT[+-][0-9]{1,2}:[0-9]{2}:[0-9]{2}", re.ASCII)
#: The short names of Java's first releases, with Joda's zones for them.
_SHORT_NAMES: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "CET",
    "EST": "America/New_York",
    "HST": "Pacific/Honolulu",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MET": "CET",
    "MIT": "Pacific/Apia",
    "MST": "America/Denver",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
#: Names that Joda links to another zone, but some zone databases define separately.
_LINKS: Final = {
    "Africa/Asmera": "Africa/Asmara",
    "Africa/Timbuktu": "Africa/Bamako",
    "America/Coral_Harbour": "America/Atikokan",
    "America/Virgin": "America/St_Thomas",
    "Antarctica/South_Pole": "Antarctica/McMurdo",
    "Atlantic/Jan_Mayen": "Europe/Oslo",
    "Iceland": "Atlantic/Reykjavik",
    "Pacific/Ponape": "Pacific/Pohnpei",
    "Pacific/Truk": "Pacific/Chuuk",
    "Pacific/Yap": "Pacific/Chuuk",
}
#: Names of the zone database that Java lacks: it reads them as GMT.
_NOT_IN_JAVA: Final = frozenset({"Factory", "ROC", "localtime", "posixrules"})
#: A name with this beginning may be unknown to this machine or to another engine's Java.
_REGIONS: Final = re.compile(
    r"(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Brazil|Canada|Chile|Etc|Europe|Indian|Mexico|Pacific|US)/"
    r"[A-Za-z0-9_+/-]+",
    re.ASCII,
)
#: Java 17 reads these as GMT, and the Joda of Hudi's releases does not know them.
_TOO_NEW: Final = frozenset({"America/Coyhaique"})
_GREENWICH: Final = frozenset({"GMT", "GMT0", "Greenwich", "UCT", "UTC", "Universal", "Zulu"})
#: From this year on Arrow has no rules and keeps the last offset.
_RULES_END: Final = 2_114_380_800_000
#: Four centuries are a whole number of weeks, so rules repeat on the same days.
_CYCLE: Final = 146_097 * _DAY
_FIRST_CYCLE: Final = 2400


@dataclass(frozen=True, slots=True)
class Zone:
    """The meaning of a zone name.

    Attributes:
        name: the setting.
        region: a name of the zone database; empty for a fixed offset.
        offset: of a fixed offset, milliseconds east of UTC.
        is_guess: Java does not know the text, so Hudi reads it as GMT.
    """

    name: str
    region: str = ""
    offset: int = 0
    is_guess: bool = False


@lru_cache(maxsize=256)
def find_zone(name: str) -> Zone:
    """Return the zone that Hudi reads from a name.

    Raises:
        UnsupportedFeature: Hudi fails on the name, the result depends on the Java release, or this
            machine's zone database lacks it.

    Example:
        >>> find_zone("EST").region, find_zone("GMT+5:30").offset, find_zone("UTC+8").offset
        ('America/New_York', 19800000, 0)
    """
    region = _SHORT_NAMES.get(name) or _LINKS.get(name, name)
    if region in _GREENWICH:
        return Zone(name)
    if name.startswith("SystemV/"):
        raise UnsupportedFeature(f"the time zone {name!r} cannot be used: Hudi fails on it")
    if name in _TOO_NEW or _OFFSET_WITH_SECONDS.fullmatch(name):
        raise UnsupportedFeature(
            f"the time zone {name!r} cannot be used: releases of Java differ in whether they know it, and those that do not "
            "take it for GMT"
        )
    if region in _known_regions() and region not in _NOT_IN_JAVA:
        return Zone(name, region)
    if region != name or _REGIONS.fullmatch(name) or not _known_regions():
        raise UnsupportedFeature(
            f"the time zone {name!r} cannot be used: the zone database of this machine does not have it"
        )
    offset = _custom_offset(name)
    return Zone(name, offset=offset or 0, is_guess=offset is None)


def check_new_zone(name: str) -> None:
    """Raise for a zone of a new table that Hudi would silently read as GMT.

    Raises:
        UnknownSetting: Hudi does not know the zone.
        UnsupportedFeature: see :func:`find_zone`.

    Example:
        >>> check_new_zone("Asia/Tokyo")
    """
    if find_zone(name).is_guess:
        raise UnknownSetting(
            f"{name!r} is no time zone that Hudi knows, and Hudi would take it for GMT: write a name such as 'Asia/Tokyo', an "
            "offset such as 'GMT+8', or 'UTC'"
        )


def _custom_offset(name: str) -> int | None:
    """Return the milliseconds of an offset in Java's form; None for other texts."""
    match = _OFFSET.fullmatch(name)
    if match is None:
        return None
    hours, minutes = match[2], match[3]
    if match[4] is not None:
        hours, minutes = (match[4], "0") if len(match[4]) <= 2 else (match[4][:-2], match[4][-2:])
    if int(hours or 0) > 23 or int(minutes) > 59:
        return None
    size = int(hours or 0) * _HOUR + int(minutes) * _MINUTE
    return -size if match[1] == "-" else size


@lru_cache(maxsize=1)
def _known_regions() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


# ------------------------------------------------------------------------------------------------------ instants and clocks


def to_local(instants: Times, zone: str) -> Times:
    """Return the local time of each instant in `zone`, both int64 milliseconds.

    Raises:
        UnsupportedFeature: see :func:`find_zone`.

    Example:
        >>> int(to_local(np.array([0]), "GMT+8")[0]) // 3_600_000
        8
    """
    resolved = find_zone(zone)
    return instants + (_offsets(instants, resolved) if resolved.region else resolved.offset)


def to_instants(local: Times, zone: str) -> Times:
    """Return the instant of each local time in `zone`, the earlier of two; both int64 milliseconds.

    Raises:
        UnsupportedFeature: see :func:`find_zone`.
        InvalidKey: a local time that does not exist in the zone.
    """
    resolved = find_zone(zone)
    if not resolved.region:
        return local - resolved.offset
    is_far = local >= _RULES_END - _DAY
    near = pa.array(np.where(is_far, 0, local)).cast(pa.timestamp("ms"))
    # Some zones skip 1970-01-01T00:00; late times are replaced by it only for Arrow and must not
    # fail here.
    near = pc.if_else(pa.array(is_far), pa.scalar(None, near.type), near)
    try:
        near_instants = pc.assume_timezone(near, resolved.region, ambiguous="earliest", nonexistent="raise").cast(
            pa.int64()
        )
    except pa.ArrowInvalid as error:
        if "exist" in str(error):
            raise InvalidKey(f"a time that does not exist in the zone {zone}: {error}") from None
        raise UnsupportedFeature(f"the time zone {zone!r} cannot be used: {error}") from None
    instants = _numbers(pc.fill_null(near_instants, 0))
    if is_far.any():
        instants = instants.copy()
        instants[is_far] = _far_instants(local[is_far], resolved)
    return instants


def _offsets(instants: Times, zone: Zone) -> Times:
    """Return the offsets of a region from UTC in milliseconds."""
    is_far = instants >= _RULES_END
    near = np.where(is_far, 0, instants)
    try:
        moments = pa.array(near).cast(pa.timestamp("ms", zone.region))
        offsets = _numbers(pc.local_timestamp(moments).cast(pa.int64())) - near
    except pa.ArrowInvalid as error:
        raise UnsupportedFeature(f"the time zone {zone.name!r} cannot be used: {error}") from None
    if is_far.any():
        offsets[is_far] = _far_offsets(instants[is_far], zone.region)
    return offsets


def _far_instants(local: Times, zone: Zone) -> Times:
    """Return the earliest instants of late local times in a region."""
    before, after = (_offsets(local + shift, zone) for shift in (-_DAY, _DAY))
    first, second = local - before, local - after
    is_first, is_second = (
        _offsets(candidate, zone) == offset for candidate, offset in ((first, before), (second, after))
    )
    if not (is_first | is_second).all():
        raise InvalidKey(f"a time that does not exist in the zone {zone.name}: its clocks leap over it")
    return np.asarray(np.where(is_first, first, second), np.int64)


def _far_offsets(instants: Times, region: str) -> Times:
    years = instants.astype("datetime64[ms]").astype("datetime64[Y]").astype(np.int64) + 1970
    cycles = np.maximum((years - _FIRST_CYCLE) // 400, 0)
    wanted = [_year_of(region, int(year)) for year in np.unique(years - 400 * cycles)]  # years, not rows
    starts = np.concatenate([starts for starts, _ in wanted])
    offsets = np.concatenate([offsets for _, offsets in wanted])
    return np.asarray(offsets[np.searchsorted(starts, instants - cycles * _CYCLE, side="right") - 1], np.int64)


@lru_cache(maxsize=4096)
def _year_of(region: str, year: int) -> tuple[Times, Times]:
    """Return the moments of a UTC year at which a region's offset changes, its start included, and the offsets."""
    zone = zoneinfo.ZoneInfo(region)

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(zone).utcoffset() or timedelta(0)

    first, last = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    changes = [(first, offset(first))]
    while (day := changes[-1][0]) < last:
        day_start = day
        while day_start < last and offset(day_start) == changes[-1][1]:
            day_start = min(day_start + timedelta(days=1), last)
        if day_start >= last and offset(last) == changes[-1][1]:
            break
        low, high = day_start - timedelta(days=1), day_start
        while high - low > timedelta(seconds=1):
            middle = low + (high - low) // 2
            low, high = (low, middle) if offset(middle) != changes[-1][1] else (middle, high)
        high = high.replace(microsecond=0)
        changes.append((high, offset(high)))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    starts = [(moment - epoch) // timedelta(milliseconds=1) for moment, _ in changes]
    return np.array(starts, np.int64), np.array([size // timedelta(milliseconds=1) for _, size in changes], np.int64)


def _numbers(array: pa.Array) -> Times:
    return np.array(array.to_numpy(zero_copy_only=False), np.int64)
