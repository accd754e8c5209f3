"""Bytes of the log to Arrow columns (pure).

A value is what the server shows for it, so that rows of the log and rows of a SELECT are equal:

* dates and times with a zero year, month or day, and days that no calendar has, are null; so is a timestamp of zero;
* the year 0 is 0; the element 0 of an enum is ""; an empty set is an empty list;
* a UUID, an address of the internet: their text; BINARY(n): all n bytes; BIT(1): a boolean, BIT(n): bytes;
* unsigned 64-bit integers are decimals; decimals of more than 38 digits are strings;
* a time, which may exceed a day or be negative: microseconds.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.cdc.mysql.columns import value_type
from lakefmt._core.cdc.mysql.table_map import BINARY, LogColumn
from lakefmt.errors import SourceRefused

__all__ = ["calendar_days", "decimals", "decode_fixed", "decode_variable", "set_lists", "times_of_day"]

_Bytes = npt.NDArray[np.uint8]
_Integers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]
#: The server's character sets that Python names otherwise.
_CODECS: Final = {
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "tis620": "tis-620",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
    "hp8": "hp-roman8",
}
_UTF8: Final = frozenset(("utf8", "utf8mb3", "utf8mb4", "ascii"))
_SAME: Final = frozenset(
    ("gbk", "gb2312", "big5", "cp932", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866")
)
_MOST_BYTES: Final = 1 << 30


def codec_of(charset: str) -> str | None:
    """Return Python's name of a character set of the server; None: Python does not know it."""
    return _CODECS.get(charset) or (charset if charset in _SAME else "utf-8" if charset in _UTF8 else None)


def decode_fixed(column: LogColumn, data: _Bytes, nulls: _Mask, charsets: Mapping[int, str]) -> pa.Array:
    """Return the values of a column whose values have one width: a row of bytes each."""
    type_name = column.column.type
    if type_name == "enum":
        labels = ["", *_texts(column.labels, column.charset, charsets)]
        places = np.minimum(_little(data), len(labels) - 1)
        return pc.take(pa.array(labels, pa.string()), pa.array(places, mask=nulls))
    if type_name == "set":
        return _set(column, data, nulls, charsets)
    if type_name.startswith("decimal("):
        digits, scale = map(int, type_name[8:-1].split(","))
        return decimals(data, digits, scale, nulls)
    if type_name.startswith("bit("):
        return _bits(data, nulls, type_name == "bit(1)")
    if type_name in ("float", "double"):
        shown = np.dtype("<f4" if type_name == "float" else "<f8")
        return pa.array(_contiguous(data).view(shown).reshape(-1), value_type(type_name), mask=nulls)
    if type_name in _TIMES:
        return _TIMES[type_name](column, data, nulls)
    return _integers(type_name, data, nulls)


def _contiguous(data: _Bytes) -> _Bytes:
    return np.ascontiguousarray(data)


def _little(data: _Bytes) -> _Integers:
    """Unsigned numbers of up to eight bytes, the lowest first; those of eight bytes may wrap."""
    wide = np.zeros((len(data), 8), np.uint8)
    wide[:, : data.shape[1]] = data
    return wide.view("<i8").reshape(-1)


def _big(data: _Bytes) -> _Integers:
    return _little(data[:, ::-1])


def _integers(type_name: str, data: _Bytes, nulls: _Mask) -> pa.Array:
    numbers = _little(data)
    if type_name == "bigint unsigned":
        return _decimal_of_halves(numbers, np.zeros_like(numbers), 20, 0, nulls)
    width = 8 * data.shape[1]
    if type_name != "year" and not type_name.endswith("unsigned") and width < 64:
        numbers = (numbers << (64 - width)) >> (64 - width)
    if type_name == "year":
        numbers = np.where(numbers == 0, 0, numbers + 1900)
    return pa.array(numbers, mask=nulls).cast(value_type(type_name))


def _decimal_of_halves(low: _Integers, high: _Integers, digits: int, scale: int, nulls: _Mask) -> pa.Array:
    halves = np.stack([low, high], axis=1)
    validity = np.packbits(~nulls, bitorder="little")
    buffers = [pa.py_buffer(validity.tobytes()), pa.py_buffer(halves.tobytes())]
    return pa.Array.from_buffers(pa.decimal128(digits, scale), len(low), buffers)


_DIGITS_OF_BYTES: Final = {0: 0, 1: 2, 2: 4, 3: 6, 4: 9}
_BYTES_OF_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimals(data: _Bytes, digits: int, scale: int, nulls: _Mask) -> pa.Array:
    """Return decimals: groups of nine digits in four bytes, the sign in the first bit, negative ones inverted."""
    negative = data[:, 0] & 0x80 == 0
    plain = np.where(negative[:, None], ~data, data)
    plain[:, 0] ^= 0x80
    whole = digits - scale
    sizes = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    groups, at = [], 0
    for size in sizes:
        width = _BYTES_OF_DIGITS[size]
        if size:
            groups.append((size, _big(plain[:, at : at + width])))
        at += width
    if digits <= 18:
        number = np.zeros(len(data), np.int64)
        for size, group in groups:
            number = number * 10**size + group
        number = np.where(negative, -number, number)
        return _decimal_of_halves(number, number >> 63, digits, scale, nulls)
    strings = [pc.utf8_lpad(pa.array(group).cast(pa.string()), size, "0") for size, group in groups]
    joined = pc.binary_join_element_wise(*strings, "")
    sign = pc.if_else(pa.array(negative), "-", "")
    whole_text = pc.utf8_ltrim(pc.utf8_slice_codeunits(joined, 0, whole), "0") if whole else pa.array([""] * len(data))
    whole_text = pc.if_else(pc.equal(whole_text, ""), "0", whole_text)
    parts = [sign, whole_text]
    if scale:
        parts += [pa.scalar("."), pc.utf8_slice_codeunits(joined, whole, digits)]
    text = pc.binary_join_element_wise(*parts, "")
    text = pc.if_else(pa.array(nulls), pa.scalar(None, pa.string()), text)
    return text.cast(value_type(f"decimal({digits},{scale})"))


def _bits(data: _Bytes, nulls: _Mask, is_flag: bool) -> pa.Array:
    if is_flag:
        return pa.array(data[:, 0].astype(bool), mask=nulls)
    return _byte_strings(data, nulls)


def _byte_strings(data: _Bytes, nulls: _Mask) -> pa.Array:
    # Strings of one length each.
    offsets = np.arange(len(data) + 1, dtype=np.int32) * data.shape[1]
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.binary(),
        len(data),
        [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(_contiguous(data).tobytes())],
    )


def _set(column: LogColumn, data: _Bytes, nulls: _Mask, charsets: Mapping[int, str]) -> pa.Array:
    labels = _texts(column.labels, column.charset, charsets)
    members = np.unpackbits(_contiguous(data), axis=1, bitorder="little")[:, : len(labels)].astype(bool)
    return set_lists(labels, members, nulls)


def set_lists(labels: Sequence[str], members: _Mask, nulls: _Mask) -> pa.Array:
    """Return lists of the labels that are members, in the order of the labels."""
    members = members & ~nulls[:, None]
    offsets = np.concatenate([[0], np.cumsum(members.sum(axis=1))]).astype(np.int32)
    places = np.nonzero(members)[1]
    values = pc.take(pa.array(labels, pa.string()), pa.array(places, pa.int64()))
    shown = pa.array(offsets, pa.int32())
    if nulls.any():
        shown = pa.array(offsets, pa.int32(), mask=np.append(nulls, False))
    return pa.ListArray.from_arrays(shown, values)


# --- dates and times ----------------------------------------------------------------------------------------------


def calendar_days(years: _Integers, months: _Integers, days: _Integers) -> tuple[_Integers, _Mask]:
    """Return days since 1970, and which are in no calendar."""
    impossible = (years < 1) | (months < 1) | (months > 12) | (days < 1)
    first = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    found = first.astype("datetime64[D]") + (days - 1)
    impossible |= found.astype("datetime64[M]") != first
    return found.astype(np.int64), impossible


def times_of_day(hours: _Integers, minutes: _Integers, seconds: _Integers) -> _Integers:
    """Return microseconds."""
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000


def _fractions(raw: _Integers, width: int) -> _Integers:
    return raw * int(100 ** (3 - width))


def _date(_: LogColumn, data: _Bytes, nulls: _Mask) -> pa.Array:
    value = _little(data)
    days, impossible = calendar_days(value >> 9, value >> 5 & 15, value & 31)
    return pa.array(days.astype(np.int32), pa.int32(), mask=nulls | impossible).cast(pa.date32())


def _datetime(_: LogColumn, data: _Bytes, nulls: _Mask) -> pa.Array:
    value = _big(data[:, :5]) - (1 << 39)
    months = value >> 22
    days, impossible = calendar_days(months // 13, months % 13, value >> 17 & 31)
    micros = days * 86_400_000_000 + times_of_day(value >> 12 & 31, value >> 6 & 63, value & 63)
    micros += _fractions(_big(data[:, 5:]), data.shape[1] - 5)
    return pa.array(micros, mask=nulls | impossible).cast(pa.timestamp("us"))


def _timestamp(_: LogColumn, data: _Bytes, nulls: _Mask) -> pa.Array:
    seconds = _big(data[:, :4])
    micros = seconds * 1_000_000 + _fractions(_big(data[:, 4:]), data.shape[1] - 4)
    return pa.array(micros, mask=nulls | (micros == 0)).cast(pa.timestamp("us", "UTC"))


def _time(_: LogColumn, data: _Bytes, nulls: _Mask) -> pa.Array:
    width = data.shape[1] - 3
    value = _big(data) - (1 << (23 + 8 * width))
    size = np.abs(value)
    clock = size >> (8 * width)
    micros = times_of_day(clock >> 12 & 0x3FF, clock >> 6 & 63, clock & 63)
    micros += _fractions(size & ((1 << 8 * width) - 1), width)
    return pa.array(np.where(value < 0, -micros, micros), mask=nulls)


_TIMES: Final[dict[str, Any]] = {"date": _date, "datetime": _datetime, "timestamp": _timestamp, "time": _time}


# --- strings ------------------------------------------------------------------------------------------------------


def decode_variable(column: LogColumn, values: list[bytes | None], charsets: Mapping[int, str]) -> pa.Array:
    """Return the values of a column whose values have lengths of their own."""
    if column.is_compressed:
        values = [None if value is None else _plain(value) for value in values]
    type_name = column.column.type
    if column.padded:
        values = [None if value is None else value.ljust(column.padded, b"\0") for value in values]
    if type_name in _NETWORK:
        return pa.array([None if value is None else _NETWORK[type_name](value) for value in values], pa.string())
    raw = pa.array(values, pa.binary())
    if type_name != "string":
        return raw
    charset = charsets.get(column.charset, "")
    if charset in _UTF8:
        return raw.cast(pa.string())
    return pa.array(_texts(values, column.charset, charsets), pa.string())


def _texts(values: Sequence[bytes | None], charset: int, charsets: Mapping[int, str]) -> list[Any]:
    name = charsets.get(charset, str(charset))
    codec = codec_of(name)
    if codec is None and charset != BINARY:
        raise SourceRefused(f"the character set {name} cannot be decoded")
    found = codecs.lookup(codec or "utf-8").decode
    errors = "lakefmt_c1" if codec == "cp1252" else "strict"
    return [None if value is None else found(value, errors)[0] for value in values]


def _c1(error: UnicodeError) -> tuple[str, int]:
    # The server's latin1 has the control characters where Windows' code page has nothing.
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("lakefmt_c1", _c1)


def _plain(value: bytes) -> bytes:
    # A byte with the method, whether zlib's frame is left out, and the width of the length; the length; the bytes.
    if not value or not value[0]:
        return value[1:]
    width = value[0] & 7
    size = int.from_bytes(value[1 : 1 + width], "big")
    if value[0] >> 4 != 8 or size > _MOST_BYTES:
        raise SourceRefused("a value is compressed in a way that is not known")
    engine = zlib.decompressobj(-15 if value[0] & 8 else 15)
    plain = engine.decompress(value[1 + width :], size + 1)
    if len(plain) != size:
        raise SourceRefused("a compressed value is damaged")
    return plain


def _uuid(value: bytes) -> str:
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _inet4(value: bytes) -> str:
    return ".".join(map(str, value))


def _inet6(value: bytes) -> str:
    import socket

    return socket.inet_ntop(socket.AF_INET6, value)


_NETWORK: Final[dict[str, Any]] = {"uuid": _uuid, "inet4": _inet4, "inet6": _inet6}
