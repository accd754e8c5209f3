"""Where the records of a delete block begin: their lengths are stored nowhere (spec 7.6). Pure.

One record is walked over byte by byte, and its form noted: the bytes that say how long its texts are and of which type
its ordering value is, and where its numbers end. Records of one block mostly follow one another in one form; as many as
do are found together. Where each has another form they are walked over one by one.
"""

from __future__ import annotations

from array import array

import numpy as np

from lakefmt.formats.avro_reading import read_block_count, read_long, read_span
from lakefmt.formats.avro_rows_words import I64, U8

__all__ = ["LOCAL_DATE", "SEVERAL", "record_starts"]

#: The branch of an array of ordering values; inside of one it is that of one more type, dates.
SEVERAL = LOCAL_DATE = 12
_NUMBERS = frozenset({2, 3, 8, 10, 11})
_SPANS = frozenset({6, 7, 9})
_FIXED = {1: 1, 4: 4, 5: 8}
#: Inside the array's wrapper: that there is one.
_THERE = 2

#: A byte of the form is the same in every record, or only tells whether its number goes on.
_SAME, _GOES_ON = 0xFF, 0x80
#: So many records are compared at first, and at most, with the one before them.
_FIRST_GUESS, _LAST_GUESS = 64, 1 << 14
#: Fewer of one form than this were not worth a guess; so many records are then walked over before the next.
_FEW, _MOST_WALKED = 8, 1 << 12

#: Offsets of the bytes of a record's form, and which of their bits belong to it.
_Form = list[tuple[int, int]]


def record_starts(data: bytes) -> I64:
    """Return where the records of an Avro array of delete records begin.

    Raises:
        ValueError: the bytes are no such array.
        IndexError: they end inside a record.

    Spec 7.6.

    Example:
        >>> record_starts(bytes.fromhex("06 02026b 00 00 02026c 00 00 02026d 00 00 00")).tolist()
        [1, 6, 11]
    """
    raw = np.frombuffer(data, np.uint8)
    found: list[I64] = []
    count, at = read_block_count(data, 0, "records")
    while count:
        at = _walk_block(data, raw, at, count, found)
        count, at = read_block_count(data, at, "records")
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes behind the last record")
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _walk_block(data: bytes, raw: U8, at: int, count: int, found: list[I64]) -> int:
    """Add where `count` records begin, the first of them at `at`; return where the last one ends."""
    walked = 1
    while count:
        form: _Form = []
        end = _skip_record(data, at, form)
        alike = _alike(raw, at, end - at, form, count)
        found.append(np.arange(at, at + alike * (end - at), end - at))
        at, count = at + alike * (end - at), count - alike
        walked = 1 if alike >= _FEW else min(2 * walked, _MOST_WALKED)
        if walked > 1 and count:
            singly = array("q")
            for _ in range(min(walked, count)):
                singly.append(at)
                at = _skip_record(data, at, None)
            count -= len(singly)
            found.append(np.array(singly, np.int64))
    return at


def _alike(raw: U8, at: int, length: int, form: _Form, most: int) -> int:
    """Return how many records in a row, at most `most`, have the form of the one at `at`: it is the first of them."""
    offsets, bits = (np.array(column, kind) for column, kind in zip(zip(*form, strict=True), "lB", strict=True))
    wanted = raw[at + offsets] & bits
    most = min(most, (len(raw) - at) // length)
    known, guess = 1, _FIRST_GUESS
    while known < most:
        guess = min(guess, most - known)
        begin = at + known * length
        rows = raw[begin : begin + guess * length].reshape(guess, length)
        other = ((rows.take(offsets, axis=1) & bits) != wanted).any(axis=1)
        first = int(other.argmax())
        if other[first]:
            return known + first
        known, guess = known + guess, min(2 * guess, _LAST_GUESS)
    return known


def _skip_record(data: bytes, at: int, form: _Form | None) -> int:
    """Return the offset behind a record, and note its form."""
    begin = at
    for _text in range(2):
        _note(form, range(at - begin, at - begin + 1))
        at = _skip_span(data, at + 1, begin, form) if data[at] else at + 1
    return _skip_ordering(data, at, begin, form)


def _skip_ordering(data: bytes, at: int, begin: int, form: _Form | None, inside: bool = False) -> int:
    """Return the offset behind an ordering value."""
    _note(form, range(at - begin, at - begin + 1))
    branch, at = data[at] >> 1, at + 1
    if branch == 0:
        return at
    if branch in _NUMBERS or (inside and branch == LOCAL_DATE):
        behind = read_long(data, at)[1]
        _note(form, range(at - begin, behind - begin), _GOES_ON)
        return behind
    if branch in _SPANS:
        return _skip_span(data, at, begin, form)
    if branch in _FIXED:
        return at + _FIXED[branch]
    if branch != SEVERAL:
        raise ValueError(f"branch {branch} of the ordering values")
    return _skip_several(data, at, begin, form)


def _skip_several(data: bytes, at: int, begin: int, form: _Form | None) -> int:
    if data[at] != _THERE:
        raise ValueError("several ordering values that are none")
    count, behind = read_block_count(data, at + 1)
    _note(form, range(at - begin, behind - begin))
    at = behind
    for _ in range(count):
        at = _skip_ordering(data, at, begin, form, inside=True)
    if not count:
        return at
    if data[at]:
        raise ValueError("several ordering values in several blocks")
    _note(form, range(at - begin, at - begin + 1))
    return at + 1


def _skip_span(data: bytes, at: int, begin: int, form: _Form | None) -> int:
    first, behind = read_span(data, at)
    _note(form, range(at - begin, first - begin))
    return behind


def _note(form: _Form | None, offsets: range, bits: int = _SAME) -> None:
    if form is not None:
        form.extend((offset, bits) for offset in offsets)
