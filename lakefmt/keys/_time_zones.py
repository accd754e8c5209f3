"""Time zones of timestamp based partitions, as Hudi reads their names. Pure, but for the machine's zone database.

Hudi hands the text of the setting to Java's ``TimeZone.getTimeZone`` and the result to Joda. Java knows the names of the
zone database and offsets of the form ``GMT+8``. It takes every other text for GMT, ``UTC+8`` and ``+08:00`` among them.
Joda gives the short names of old Java releases their modern zone: ``EST`` is ``America/New_York``.

A region's rules come from the zone database of this machine; Joda has its own. Arrow applies the rules up to 2037; the
years after that are computed here.
"""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import InvalidKey, UnknownSetting, UnsupportedFeature

__all__ = ["Zone", "check_new_zone", "find_zone", "to_instants", "to_local"]

Times = npt.NDArray[np.int64]

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Java's form of an offset. The hours may be missing before a colon; three and more digits end with the minutes.
_OFFSET: Final = re.compile(r"GMT([+-])(?:([0-9]{0,2}):([0-9]{2})|([0-9]+))", re.ASCII)
#: What Java takes since release 23, and for GMT before that.
_OFFSET_WITH_SECONDS: Final = re.compile(r"GMT[+-][0-9]{1,2}:[0-9]{2}:[0-9]{2}", re.ASCII)
#: The short names that Java keeps from its first releases, with the zones that Joda gives them.
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
#: Names that Joda reads as links to another zone, where some copies of the zone database keep a past of their own for them.
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
#: Names of the zone database that Java does not have: it takes them for GMT.
_NOT_IN_JAVA: Final = frozenset({"Factory", "ROC", "localtime", "posixrules"})
#: A name that begins so may be one that this machine or the Java of another engine does not know yet.
_REGIONS: Final = re.compile(
    r"(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Brazil|Canada|Chile|Etc|Europe|Indian|Mexico|Pacific|US)/"
    r"[A-Za-z0-9_+/-]+",
    re.ASCII,
)
#: Java 17 takes these for GMT, and the Joda of Hudi's releases does not know them.
_TOO_NEW: Final = frozenset({"America/Coyhaique"})
_GREENWICH: Final = frozenset({"GMT", "GMT0", "Greenwich", "UCT", "UTC", "Universal", "Zulu"})
#: From here on Arrow knows no rules: it keeps the offset that was the last.
_RULES_END: Final = 2_114_380_800_000
#: Four centuries have a whole number of weeks, so rules give the same days again.
_CYCLE: Final = 146_097 * _DAY
_FIRST_CYCLE: Final = 2400


@dataclass(frozen=True, slots=True)
class Zone:
    """What a zone's name means.

    Attributes:
        name: the text of the setting.
        region: a name of the zone database; empty for a fixed offset.
        offset: milliseconds east of Greenwich where there is no region.
        is_guess: whether Hudi takes the text for GMT because Java does not know it.
    """

    name: str
    region: str = ""
    offset: int = 0
    is_guess: bool = False


@lru_cache(maxsize=256)
def find_zone(name: str) -> Zone:
    """Return what Hudi understands by the name of a zone.

    Raises:
        UnsupportedFeature: Hudi fails on that name, its reading depends on the release of Java, or the zone database of
            this machine does not have it.

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
    """Refuse a zone for a new table that Hudi would take for GMT silently.

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
    """Return the milliseconds of an offset in Java's form; None for any other text."""
    found = _OFFSET.fullmatch(name)
    if found is None:
        return None
    hours, minutes = found[2], found[3]
    if found[4] is not None:
        hours, minutes = (found[4], "0") if len(found[4]) <= 2 else (found[4][:-2], found[4][-2:])
    if int(hours or 0) > 23 or int(minutes) > 59:
        return None
    size = int(hours or 0) * _HOUR + int(minutes) * _MINUTE
    return -size if found[1] == "-" else size


@lru_cache(maxsize=1)
def _known_regions() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


# ------------------------------------------------------------------------------------------------------ instants and clocks


def to_local(instants: Times, zone: str) -> Times:
    """Return what the clocks of `zone` show at `instants`.

    Raises:
        UnsupportedFeature: see :func:`find_zone`.

    Example:
        >>> int(to_local(np.array([0]), "GMT+8")[0]) // 3_600_000
        8
    """
    found = find_zone(zone)
    return instants + (_offsets(instants, found) if found.region else found.offset)


def to_instants(local: Times, zone: str) -> Times:
    """Return the instants at which the clocks of `zone` show `local`; the earlier one where there are two.

    Raises:
        UnsupportedFeature: see :func:`find_zone`.
        InvalidKey: a time that the clocks of the zone leap over.
    """
    found = find_zone(zone)
    if not found.region:
        return local - found.offset
    is_far = local >= _RULES_END - _DAY
    near = pa.array(np.where(is_far, 0, local)).cast(pa.timestamp("ms"))
    # At 1970-01-01 some clocks were put forward: what is far is computed below and must not fail here.
    near = pc.if_else(pa.array(is_far), pa.scalar(None, near.type), near)
    try:
        known = pc.assume_timezone(near, found.region, ambiguous="earliest", nonexistent="raise").cast(pa.int64())
    except pa.ArrowInvalid as error:
        if "exist" in str(error):
            raise InvalidKey(f"a time that does not exist in the zone {zone}: {error}") from None
        raise UnsupportedFeature(f"the time zone {zone!r} cannot be used: {error}") from None
    instants = _numbers(pc.fill_null(known, 0))
    if is_far.any():
        instants = instants.copy()
        instants[is_far] = _far_instants(local[is_far], found)
    return instants


def _offsets(instants: Times, zone: Zone) -> Times:
    """Return the milliseconds between the clocks of a region and those of Greenwich."""
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
    """Return the earliest instants that a region's clocks show as `local`, which is late."""
    before, after = (_offsets(local + shift, zone) for shift in (-_DAY, _DAY))
    first, second = local - before, local - after
    is_first, is_second = (_offsets(at, zone) == offset for at, offset in ((first, before), (second, after)))
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
    """Return when the offset of a region changes in a year (of UTC), the year's start included, and the offsets."""
    zone = zoneinfo.ZoneInfo(region)

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(zone).utcoffset() or timedelta(0)

    first, last = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found = [(first, offset(first))]
    while (day := found[-1][0]) < last:
        at = day
        while at < last and offset(at) == found[-1][1]:
            at = min(at + timedelta(days=1), last)
        if at >= last and offset(last) == found[-1][1]:
            break
        low, high = at - timedelta(days=1), at
        while high - low > timedelta(seconds=1):
            middle = low + (high - low) // 2
            low, high = (low, middle) if offset(middle) != found[-1][1] else (middle, high)
        high = high.replace(microsecond=0)
        found.append((high, offset(high)))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    starts = [(moment - epoch) // timedelta(milliseconds=1) for moment, _ in found]
    return np.array(starts, np.int64), np.array([size // timedelta(milliseconds=1) for _, size in found], np.int64)


def _numbers(array: pa.Array) -> Times:
    return np.array(array.to_numpy(zero_copy_only=False), np.int64)
