"""Format and parse times by Joda patterns (docs/format.md, Timestamp key generator). Pure.

Times are NumPy arrays of int64 milliseconds since the epoch: *instants* in UTC, *local* times as
the clock of a zone shows them. Patterns are compiled once; every step works on whole arrays.
"""

from __future__ import annotations

import re
import string
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidKey, UnsupportedFeature

__all__ = [
    "Parsed",
    "Pattern",
    "Times",
    "check_range",
    "compile_pattern",
    "format_times",
    "parse_times",
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
        return sum(str(text).count("/") for letter, text in self.pieces if not letter)


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern of ``yyyy MM dd HH mm ss SSS DDD Z`` with quoted and plain literals.

    Raises:
        UnsupportedFeature: the pattern has another letter, or a form that prints words.

    Example:
        >>> compile_pattern("yyyy/MM/dd'T'HH").pieces[-2:]
        (('', 'T'), ('H', 2))
    """
    if len(text) > _MAX_PATTERN:
        raise UnsupportedFeature(f"the date pattern {text[:40]!r}… is too long")
    segments: list[tuple[str, int | str]] = []
    quoted = False
    for part in _PIECE.findall(text):
        if part == "'":
            quoted = not quoted
        elif quoted or part[0] not in string.ascii_letters:
            segments.append(("", "'" if part == "''" else part))
        else:
            segments.append(_field(part, text))
    return Pattern(text, tuple(segments))


def _field(part: str, text: str) -> tuple[str, int]:
    letter, count = part[0], len(part)
    if letter not in _LETTERS or (letter in "MZ" and count > 2) or count > 9:
        raise UnsupportedFeature(f"the date pattern {text!r} uses {part!r}, which is not supported")
    if letter in "yY" and count == 2:
        raise UnsupportedFeature(f"the date pattern {text!r} uses years of two digits, which is not supported")
    return letter, count


def _numbers(array: pa.Array) -> Times:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.int64)


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
        return pa.repeat(pa.scalar("".join(str(text) for _, text in pattern.pieces)), len(local))
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
        return pc.utf8_slice_codeunits(pc.utf8_rpad(_padded(local % _SECOND, 3), max(count, 3), "0"), 0, count)
    return _padded(_number_of(letter, local), count)


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
    return pc.binary_join_element_wise(sign, _padded(minutes // 60, 2), between, _padded(minutes % 60, 2), "")


def _padded(numbers: Times, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


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
    numbers = {letter: _whole(text) for letter, text in fields.items() if letter != "S"}
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
    text = pc.fill_null(pc.struct_field(parts, "Z"), "")
    digits = pc.replace_substring(pc.utf8_slice_codeunits(text, 1), ":", "")
    hours = _whole(pc.utf8_slice_codeunits(digits, 0, 2))
    minutes = _whole(pc.utf8_slice_codeunits(digits, 2))
    size = hours * _HOUR + minutes * _MINUTE
    return np.where(np.asarray(pc.starts_with(text, "-").to_numpy(zero_copy_only=False), np.bool_), -size, size)
