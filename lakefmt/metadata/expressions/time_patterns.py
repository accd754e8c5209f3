"""Times as texts, by the patterns of Spark's ``date_format`` and ``from_unixtime``. Pure.

Spark formats with Java's ``DateTimeFormatter`` and counts years from before Christ downwards. Of its letters those that
print numbers are known here (docs/format.md, Expression indexes).
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import UnsupportedFeature

__all__ = ["TimePattern", "compile_time_pattern", "format_local_times"]

I64 = npt.NDArray[np.int64]
#: Letters with their numbers of digits, or texts.
TimePattern = tuple[tuple[str, int | str], ...]

_MOST_CHARACTERS = 200
_PIECE = re.compile(r"''|'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z'#{}\[\]]+")
#: How often a letter may stand in a row.
_WIDTHS = {"y": (1, 4), "M": (1, 2), "d": (1, 2), "H": (1, 2), "m": (1, 2), "s": (1, 2), "S": tuple(range(1, 10))}
_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS
_DIVISORS = {"H": 3600 * _MICROS, "m": 60 * _MICROS, "s": _MICROS}
_RANGES = {"H": 24, "m": 60, "s": 60}
#: Years with more digits have their sign printed.
_FOUR_DIGITS = 9999


@lru_cache(maxsize=64)
def compile_time_pattern(text: str) -> TimePattern:
    """Return the parts of a pattern.

    Raises:
        UnsupportedFeature: it has a letter that prints words or depends on a country, or a part in brackets.

    Example:
        >>> compile_time_pattern("yyyy-MM'T'HH")
        (('y', 4), ('', '-'), ('M', 2), ('', 'T'), ('H', 2))
    """
    parts: list[tuple[str, int | str]] = []
    place = 0
    while place < len(text) <= _MOST_CHARACTERS:
        match = _PIECE.match(text, place)
        letters = "" if match is None else match.group()
        if not letters or (
            letters[0].isascii() and letters[0].isalpha() and len(letters) not in _WIDTHS.get(letters[0], ())
        ):
            break
        if letters[0].isascii() and letters[0].isalpha():
            parts.append((letters[0], len(letters)))
        else:
            inner = letters[1:-1] if letters[0] == "'" and letters != "''" else letters
            parts.append(("", inner.replace("''", "'")))
        place += len(letters)
    if place != len(text) or not text:
        raise UnsupportedFeature(
            f"the time pattern {text[:40]!r} is not supported: lakefmt writes yyyy, MM, dd, HH, mm, ss, S and plain text"
        )
    return tuple(parts)


def format_local_times(micros: I64, pattern: TimePattern) -> pa.Array:
    """Return local times as texts.

    Parameters:
        micros: what the clock of a zone shows, in microseconds since 1970.
        pattern: from :func:`compile_time_pattern`.

    Example:
        >>> format_local_times(np.array([0, -1]), compile_time_pattern("yyyy/MM/dd HH:mm:ss.SSS")).to_pylist()
        ['1970/01/01 00:00:00.000', '1969/12/31 23:59:59.999']
    """
    days, within = np.divmod(micros, _DAY_MICROS)
    texts = [
        pa.scalar(str(width), pa.string()) if not letter else _printed(letter, int(width), days, within)
        for letter, width in pattern
    ]
    empty = pa.array(np.zeros(len(micros), "U1"), pa.string())
    return pc.binary_join_element_wise(empty, *texts, "")


def _printed(letter: str, width: int, days: I64, within: I64) -> pa.Array:
    if letter in _RANGES:
        return _padded(within // _DIVISORS[letter] % _RANGES[letter], width)
    if letter == "S":
        nanos = _padded(within % _MICROS * 1000, 9)
        return pc.utf8_slice_codeunits(nanos, 0, width)
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    if letter == "d":
        return _padded((dates - months.astype("datetime64[D]")).astype(np.int64) + 1, width)
    if letter == "M":
        return _padded(months.astype(np.int64) % 12 + 1, width)
    return _years(months.astype("datetime64[Y]").astype(np.int64) + 1970, width)


def _padded(numbers: I64, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def _years(years: I64, width: int) -> pa.Array:
    plus = "+" if width > 1 else ""
    sign = pc.if_else(pa.array(years < 0), "-", pc.if_else(pa.array(years > _FOUR_DIGITS), plus, ""))
    return pc.binary_join_element_wise(sign, _padded(np.abs(years), width), "")
