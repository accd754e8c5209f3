"""Format and parse times by Joda patterns, in the time zones that Hudi accepts (docs/format.md, Timestamp key generator). Pure.

Times are NumPy arrays of int64 milliseconds since the epoch: *instants* in UTC, *local* times as
the clock of a zone shows them. Patterns are compiled once; every step works on whole arrays.

Hudi passes the setting of a zone to Java's ``TimeZone.getTimeZone`` and the result to Joda. Java knows the
names of the zone database and offsets such as ``GMT+8``, and reads any other text as GMT, ``UTC+8``
and ``+08:00`` included. Joda maps short names of old Java releases to modern zones: ``EST`` is
``America/New_York``.

The rules of a region come from this machine's zone database; Joda has its own. Arrow applies rules
up to 2037; later years are computed here.
"""

from __future__ import annotations

import re
import string
import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.java_text import zero_padded
from lakefmt.errors import InvalidKey, UnknownSetting, UnsupportedFeature

__all__ = [
    "Parsed",
    "Pattern",
    "Times",
    "check_new_zone",
    "check_range",
    "compile_pattern",
    "find_zone",
    "format_times",
    "parse_times",
    "to_instants",
    "to_local",
]

Times = npt.NDArray[np.int64]

_MAX_PATTERN: Final = 200
#: Two quotes are a literal quote, one starts or ends a quotation, an open quotation ends with the
#: pattern.
_PIECE: Final = re.compile(r"''|'|" + "|".join(f"{letter}+" for letter in string.ascii_letters) + r"|[^A-Za-z']+")
_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Years 1 to 9999: a time outside is nearly always a number in the wrong unit.
_FIRST: Final = -62_135_596_800_000
_LAST: Final = 253_402_300_799_999

#: Letter → the maximum digits when parsed, and its resolution in milliseconds.
_LETTERS: Final[dict[str, tuple[int, int]]] = {
    "y": (9, _DAY),
    "Y": (9, _DAY),
    "M": (2, _DAY),
    "d": (2, _DAY),
    "D": (3, _DAY),
    "H": (2, _HOUR),
    "m": (2, _MINUTE),
    "s": (2, _SECOND),
    "S": (9, 1),
    "Z": (0, 1),
}
_LIMITS: Final = {"y": (1, 9999), "Y": (1, 9999), "M": (1, 12), "d": (1, 31), "D": (1, 366)}
_LIMITS_OF_DAY: Final = {"H": (0, 23), "m": (0, 59), "s": (0, 59)}


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled Joda pattern: segments ``(letter, count)``, or ``("", text)`` for literal text."""

    text: str
    pieces: tuple[tuple[str, int | str], ...]

    @property
    def has_zone(self) -> bool:
        """Whether texts of this pattern contain their offset."""
        return any(letter == "Z" for letter, _ in self.pieces)

    @property
    def step(self) -> int:
        """The resolution of the pattern in milliseconds."""
        return min((_LETTERS[letter][1] for letter, _ in self.pieces if letter), default=_DAY)

    @property
    def slashes(self) -> int:
        """The number of ``/`` in every text of this pattern."""
        return sum(str(literal).count("/") for letter, literal in self.pieces if not letter)


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern of ``yyyy MM dd HH mm ss SSS DDD Z`` with quoted and plain literals.

    Raises:
        UnsupportedFeature: the pattern has another letter, or a form that prints words.

    Example:
        >>> compile_pattern("yyyy/MM/dd'T'HH").pieces[-2:]
        (('', 'T'), ('H', 2))
    """
    if len(pattern) > _MAX_PATTERN:
        raise UnsupportedFeature(f"the date pattern {pattern[:40]!r}… is too long")
    segments: list[tuple[str, int | str]] = []
    quoted = False
    for part in _PIECE.findall(pattern):
        if part == "'":
            quoted = not quoted
        elif quoted or part[0] not in string.ascii_letters:
            segments.append(("", "'" if part == "''" else part))
        else:
            segments.append(_field(part, pattern))
    return Pattern(pattern, tuple(segments))


def _field(part: str, pattern: str) -> tuple[str, int]:
    letter, count = part[0], len(part)
    if letter not in _LETTERS or (letter in "MZ" and count > 2) or count > 9:
        raise UnsupportedFeature(f"the date pattern {pattern!r} uses {part!r}, which is not supported")
    if letter in "yY" and count == 2:
        raise UnsupportedFeature(f"the date pattern {pattern!r} uses years of two digits, which is not supported")
    return letter, count


def _numbers(array: pa.Array) -> Times:
    return np.array(array.to_numpy(zero_copy_only=False), np.int64)


# ------------------------------------------------------------------------------------------------------- printing


def format_times(instants: Times, local: Times, pattern: Pattern) -> pa.Array:
    """Format `local`; `instants` are used only if the pattern prints the offset.

    Raises:
        InvalidKey: a time outside the years 1 to 9999.

    Example:
        >>> at = np.array([1_700_000_000_000])
        >>> format_times(at, at, compile_pattern("yyyy/MM/dd HH:00"))[0]
        <pyarrow.StringScalar: '2023/11/14 22:00'>
    """
    check_range(local)
    parts = [
        pa.scalar(str(count)) if not letter else _printed(letter, int(count), instants, local)
        for letter, count in pattern.pieces
    ]
    if not any(letter for letter, _ in pattern.pieces):
        return pa.repeat(pa.scalar("".join(str(literal) for _, literal in pattern.pieces)), len(local))
    return pc.binary_join_element_wise(*parts, "")


def check_range(local: Times) -> None:
    """Raise for times outside the years 1 to 9999.

    Raises:
        InvalidKey: with their number.
    """
    outside = int(np.count_nonzero((local < _FIRST) | (local > _LAST)))
    if outside:
        raise InvalidKey(f"{outside} times lie outside the years 1 to 9999: is the unit of the column another one?")


def _printed(letter: str, count: int, instants: Times, local: Times) -> pa.Array:
    if letter == "Z":
        return _printed_offset(local - instants, ":" if count == 2 else "")
    if letter == "S":
        return pc.utf8_slice_codeunits(pc.utf8_rpad(zero_padded(local % _SECOND, 3), max(count, 3), "0"), 0, count)
    return zero_padded(_number_of(letter, local), count)


def _number_of(letter: str, local: Times) -> Times:
    step = _LETTERS[letter][1]
    if step < _DAY:
        return _as_times(local // step % (24 if step == _HOUR else 60))
    moments = local.astype("datetime64[ms]")
    if letter in "yY":
        return _as_times(moments.astype("datetime64[Y]")) + 1970
    unit, whole = {"M": ("M", "Y"), "d": ("D", "M"), "D": ("D", "Y")}[letter]
    start = moments.astype(f"datetime64[{whole}]").astype(f"datetime64[{unit}]")
    return _as_times(moments.astype(f"datetime64[{unit}]") - start) + 1


def _as_times(values: npt.NDArray[np.generic]) -> Times:
    return values.astype(np.int64)


def _printed_offset(offset: Times, between: str) -> pa.Array:
    minutes = np.abs(offset) // _MINUTE
    sign = pc.if_else(pa.array(offset < 0), "-", "+")
    return pc.binary_join_element_wise(sign, zero_padded(minutes // 60, 2), between, zero_padded(minutes % 60, 2), "")


# -------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Parsed:
    """Parsed texts: local times, offsets (None without a zone in the pattern), and which texts match."""

    local: Times
    offset: Times | None
    fits: npt.NDArray[np.bool_]


def parse_times(texts: pa.Array, pattern: Pattern) -> Parsed:
    """Parse `texts` (no nulls) by `pattern`; missing parts have Joda's defaults: year 2000, or 1970.

    Raises:
        InvalidKey: a text matches the pattern but is not a time, such as February 30.
    """
    parts = pc.extract_regex(texts, _regex(pattern))
    fits = np.asarray(parts.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    fields: dict[str, pa.Array] = {
        letter: pc.fill_null(pc.struct_field(parts, letter), "") for letter in _letters(pattern) if letter != "Z"
    }
    numbers = {letter: _whole(digits) for letter, digits in fields.items() if letter != "S"}
    for letter, (low, high) in {**_LIMITS, **_LIMITS_OF_DAY}.items():
        if letter in numbers:
            _check_numbers(numbers[letter][fits], low, high, letter)
    local = _assemble(numbers, len(texts), fits)
    if "S" in fields:
        local = local + _whole(pc.utf8_slice_codeunits(pc.utf8_rpad(fields["S"], 3, "0"), 0, 3))
    return Parsed(local, _offsets(parts) if pattern.has_zone else None, fits)


def _letters(pattern: Pattern) -> list[str]:
    return list(dict.fromkeys(letter for letter, _ in pattern.pieces if letter))


def _regex(pattern: Pattern) -> str:
    groups, seen = [], set[str]()
    for number, (letter, count) in enumerate(pattern.pieces):
        if not letter:
            groups.append(f"(?i:{_literal(str(count))})")
            continue
        if letter in seen:
            raise UnsupportedFeature(f"the date pattern {pattern.text!r} has {letter!r} twice, which cannot be read")
        seen.add(letter)
        following = pattern.pieces[number + 1][0] if number + 1 < len(pattern.pieces) else ""
        groups.append(_digits(letter, int(count), adjacent=bool(following) and following != "Z"))
    return f"^{''.join(groups)}$"


def _literal(text: str) -> str:
    return "".join(f"\\x{{{ord(char):x}}}" for char in text)


def _digits(letter: str, count: int, *, adjacent: bool) -> str:
    if letter == "Z":
        return r"(?P<Z>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)"
    most = count if letter == "S" or (adjacent and letter in "yY") else max(count, _LETTERS[letter][0])
    # A number directly before another has all its digits: otherwise its end would be ambiguous.
    quantity = f"{{{most}}}" if adjacent else f"{{1,{most}}}"
    sign = "[+-]?" if letter == "y" and not adjacent else ""
    return f"(?P<{letter}>{sign}[0-9]{quantity})"


def _whole(texts: pa.Array) -> Times:
    plain = pc.utf8_ltrim(texts, "+")
    return _numbers(pc.if_else(pc.equal(plain, ""), "0", plain).cast(pa.int64()))


def _check_numbers(numbers: Times, low: int, high: int, letter: str) -> None:
    wrong = numbers[(numbers < low) | (numbers > high)]
    if len(wrong):
        raise InvalidKey(f"{len(wrong)} times have an impossible value for {letter!r}, the first is {wrong[0]}")


def _assemble(numbers: dict[str, Times], length: int, fits: npt.NDArray[np.bool_]) -> Times:
    def number(letter: str, default: int) -> Times:
        return np.where(fits, numbers[letter], default) if letter in numbers else np.full(length, default)

    # A day without a year is one of 2000; without day and year it is 1970-01-01.
    year = 2000 if {"M", "d", "D"} & numbers.keys() else 1970
    years = (number("y" if "y" in numbers else "Y", year) - 1970).astype("datetime64[Y]")
    months = years.astype("datetime64[M]") + (number("M", 1) - 1)
    if "D" in numbers:
        days = years.astype("datetime64[D]") + (number("D", 1) - 1)
        beyond = days.astype("datetime64[Y]") != years
    else:
        days = months.astype("datetime64[D]") + (number("d", 1) - 1)
        beyond = days.astype("datetime64[M]") != months
    if np.any(beyond):
        raise InvalidKey(f"{int(np.count_nonzero(beyond))} times name a day that their month or year does not have")
    time = number("H", 0) * _HOUR + number("m", 0) * _MINUTE + number("s", 0) * _SECOND
    return days.astype("datetime64[ms]").astype(np.int64) + time


def _offsets(parts: pa.Array) -> Times:
    offset_texts = pc.fill_null(pc.struct_field(parts, "Z"), "")
    digits = pc.replace_substring(pc.utf8_slice_codeunits(offset_texts, 1), ":", "")
    hours = _whole(pc.utf8_slice_codeunits(digits, 0, 2))
    minutes = _whole(pc.utf8_slice_codeunits(digits, 2))
    size = hours * _HOUR + minutes * _MINUTE
    return np.where(np.asarray(pc.starts_with(offset_texts, "-").to_numpy(zero_copy_only=False), np.bool_), -size, size)


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
    return instants + (_region_offsets(instants, resolved) if resolved.region else resolved.offset)


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


def _region_offsets(instants: Times, zone: Zone) -> Times:
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
    before, after = (_region_offsets(local + shift, zone) for shift in (-_DAY, _DAY))
    first, second = local - before, local - after
    is_first, is_second = (
        _region_offsets(candidate, zone) == offset for candidate, offset in ((first, before), (second, after))
    )
    if not (is_first | is_second).all():
        raise InvalidKey(f"a time that does not exist in the zone {zone.name}: its clocks leap over it")
    return np.asarray(np.where(is_first, first, second), np.int64)


def _far_offsets(instants: Times, region: str) -> Times:
    years = instants.astype("datetime64[ms]").astype("datetime64[Y]").astype(np.int64) + 1970
    cycles = np.maximum((years - _FIRST_CYCLE) // 400, 0)
    transitions = [_year_of(region, int(year)) for year in np.unique(years - 400 * cycles)]  # years, not rows
    starts = np.concatenate([starts for starts, _ in transitions])
    offsets = np.concatenate([offsets for _, offsets in transitions])
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
