"""Rows of the log: what the log says of a table, and its bytes as Arrow columns (pure).

A value is what the server shows for it, so that rows of the log and rows of a SELECT are equal:

* dates and times with a zero year, month or day, and days that no calendar has, are null; so is a timestamp of zero;
* the year 0 is 0; the element 0 of an enum is ""; an empty set is an empty list;
* a UUID, an address of the internet: their text; BINARY(n): all n bytes; BIT(1): a boolean, BIT(n): bytes;
* unsigned 64-bit integers are decimals; decimals of more than 38 digits are strings;
* a time, which may exceed a day or be negative: microseconds.

Values of a fixed width stand side by side in one block of bytes for each row, so that NumPy decodes a column at once; values of
variable width are slices. What is done for each row is to find where its values end: that is how the log is written.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.cdc.events import SourceName
from lakefmt._core.cdc.mysql.log import read_length
from lakefmt._core.cdc.mysql.statements import HINTS, SourceColumn, value_type
from lakefmt.errors import SourceRefused

__all__ = [
    "LogColumn",
    "RowBuffer",
    "TableMap",
    "calendar_days",
    "decimals",
    "decode_fixed",
    "decode_variable",
    "read_table_map",
    "read_table_name",
    "set_lists",
    "times_of_day",
]

_DECIMAL, _TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _NULL, _OLD_TIMESTAMP, _LONGLONG, _INT24 = range(10)
_DATE, _OLD_TIME, _OLD_DATETIME, _YEAR, _NEWDATE, _VARCHAR, _BIT, _TIMESTAMP, _DATETIME, _TIME = range(10, 20)
_BLOB_COMPRESSED, _VARCHAR_COMPRESSED = 140, 141
_NEWDECIMAL, _ENUM, _SET, _TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB, _BLOB, _VAR_STRING, _STRING, _GEOMETRY = range(246, 256)

_INTEGERS: Final = {
    _TINY: ("tinyint", 1),
    _SHORT: ("smallint", 2),
    _INT24: ("mediumint", 3),
    _LONG: ("int", 4),
    _LONGLONG: ("bigint", 8),
}
#: How many bytes describe_table a column of a type.
_DESCRIPTIONS: Final = {
    **dict.fromkeys((_FLOAT, _DOUBLE, _TIMESTAMP, _DATETIME, _TIME, _BLOB, _BLOB_COMPRESSED, _GEOMETRY), 1),
    **dict.fromkeys((_TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB), 1),
    **dict.fromkeys((_VARCHAR, _VARCHAR_COMPRESSED, _BIT, _NEWDECIMAL, _ENUM, _SET, _VAR_STRING, _STRING), 2),
}
_WITH_SIGN: Final = frozenset((*_INTEGERS, _FLOAT, _DOUBLE, _NEWDECIMAL, _YEAR))
_WITH_CHARSET: Final = frozenset(
    (
        _VARCHAR,
        _VAR_STRING,
        _STRING,
        _BLOB,
        _TINY_BLOB,
        _MEDIUM_BLOB,
        _LONG_BLOB,
        _BLOB_COMPRESSED,
        _VARCHAR_COMPRESSED,
        _GEOMETRY,
    )
)
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS, _KEYS, _PREFIX_KEYS = 1, 2, 3, 4, 5, 6, 8, 9
_LABELS_DEFAULT_CHARSET, _LABELS_CHARSETS = 10, 11
#: The id of the character set of bytes.
BINARY: Final = 63
_OLD: Final = (
    "has a column in the format of MySQL 5.5 for times: ALTER TABLE … FORCE with mysql56_temporal_format=ON mends it"
)


class LogColumn(NamedTuple):
    """A column, and how its values lie in the log.

    Attributes:
        column: its name and type.
        width: the bytes of each value; 0: a length of `prefix` bytes stands before each.
        prefix: see `width`.
        fraction: digits of a second's fraction.
        charset: the id of the character set (and collation) of strings and labels.
        labels: of an enum or a set, in order.
        padded: bytes are filled up to this length with zeros, which the log leaves out.
        is_compressed: each value is compressed by itself.
    """

    column: SourceColumn
    width: int = 0
    prefix: int = 0
    fraction: int = 0
    charset: int = BINARY
    labels: tuple[bytes, ...] = ()
    padded: int = 0
    is_compressed: bool = False


class TableMap(NamedTuple):
    """A table as the log describes it."""

    name: SourceName
    columns: tuple[LogColumn, ...]
    keys: tuple[str, ...]

    @property
    def shape(self) -> tuple[tuple[SourceColumn, ...], tuple[str, ...]]:
        """The columns and the key, which tell whether the table changed."""
        return tuple(each.column for each in self.columns), self.keys


def read_table_name(body: bytes) -> tuple[int, SourceName, int]:
    """Return the number of a table in the log, its name, and where the description of its columns begins."""
    number = int.from_bytes(body[:6], "little")
    at = 8
    names = []
    for _ in range(2):
        length = body[at]
        names.append(body[at + 1 : at + 1 + length].decode("utf-8"))
        at += length + 2
    return number, SourceName(*names), at


def read_table_map(body: bytes, hints: Mapping[str, str]) -> TableMap:
    """Return a table.

    Args:
        body: of the event.
        hints: columns of which the server says that they are a UUID or an address.

    Raises:
        SourceRefused: the names of columns are missing, or a type is not known.
    """
    _, name, at = read_table_name(body)
    count, at = read_length(body, at)
    if not count:
        raise SourceRefused(f"the log describes {name} without columns: it is damaged")
    types = body[at : at + count]
    length, at = read_length(body, at + count)
    described = _descriptions(types, body[at : at + length])
    at += length
    width = (count + 7) // 8
    nullable = int.from_bytes(body[at : at + width], "little")
    fields = _fields(body, at + width)
    if _NAMES not in fields:
        raise SourceRefused(f"the log does not name the columns of {name}: SET GLOBAL binlog_row_metadata = FULL")
    names = _strings(fields[_NAMES])
    real_types = [code for code, _ in described]
    unsigned = _unsigned(real_types, fields.get(_SIGNS, b""))
    charsets = _charsets(
        [i for i, code in enumerate(real_types) if code in _WITH_CHARSET],
        fields.get(_DEFAULT_CHARSET),
        fields.get(_CHARSETS),
    )
    charsets |= _charsets(
        [i for i, code in enumerate(real_types) if code in (_ENUM, _SET)],
        fields.get(_LABELS_DEFAULT_CHARSET),
        fields.get(_LABELS_CHARSETS),
    )
    labels = _labels(real_types, fields)
    columns = []
    for i, (code, description) in enumerate(described):
        column_name = names[i].decode("utf-8")
        column = _column(
            name, column_name, code, description, i in unsigned, charsets.get(i, BINARY), labels.get(i, ())
        )
        hint = hints.get(column_name) if column.padded in (4, 16) else None
        type_name = hint if hint in HINTS else column.column.type
        columns.append(column._replace(column=SourceColumn(column_name, str(type_name), bool(nullable >> i & 1))))
    return TableMap(name, tuple(columns), tuple(names[i].decode("utf-8") for i in _keys(fields)))


def _descriptions(types: bytes, data: bytes) -> list[tuple[int, bytes]]:
    # The real type of each column and what describes it: strings, enums and sets share one type.
    at, descriptions = 0, []
    for code in types:
        width = _DESCRIPTIONS.get(code, 0)
        description = data[at : at + width]
        at += width
        real = code
        if code == _STRING:
            real, low = description
            if real & 0x30 != 0x30:  # a CHAR of more than 255 bytes
                description = bytes((low, ((real & 0x30) ^ 0x30) >> 4))
                real |= 0x30
            else:
                description = bytes((low, 0))
        descriptions.append((real, description))
    return descriptions


def _fields(body: bytes, at: int) -> dict[int, bytes]:
    fields = {}
    while at < len(body):
        length, begin = read_length(body, at + 1)
        fields[body[at]] = body[begin : begin + length]
        at = begin + length
    return fields


def _strings(data: bytes) -> list[bytes]:
    at, strings = 0, []
    while at < len(data):
        length, begin = read_length(data, at)
        strings.append(data[begin : begin + length])
        at = begin + length
    return strings


def _numbers(data: bytes) -> list[int]:
    at, numbers = 0, []
    while at < len(data):
        number, at = read_length(data, at)
        numbers.append(number)
    return numbers


def _unsigned(types: Sequence[int], bits: bytes) -> set[int]:
    numeric = [i for i, code in enumerate(types) if code in _WITH_SIGN]
    return {i for bit_number, i in enumerate(numeric) if bits and bits[bit_number // 8] >> (7 - bit_number % 8) & 1}


def _charsets(column_numbers: Sequence[int], default: bytes | None, each: bytes | None) -> dict[int, int]:
    if each is not None:
        return dict(zip(column_numbers, _numbers(each), strict=True))
    if default is None:
        return {}
    usual, *exceptions = _numbers(default)
    charsets = dict.fromkeys(column_numbers, usual)
    charsets |= {
        column_numbers[index]: charset for index, charset in zip(exceptions[::2], exceptions[1::2], strict=True)
    }
    return charsets


def _labels(types: Sequence[int], fields: Mapping[int, bytes]) -> dict[int, tuple[bytes, ...]]:
    labels_by_column = {}
    for code, field in ((_ENUM, _ENUMS), (_SET, _SETS)):
        data, at = fields.get(field, b""), 0
        for i in (i for i, each in enumerate(types) if each == code):
            count, at = read_length(data, at)
            labels = []
            for _ in range(count):
                length, begin = read_length(data, at)
                labels.append(data[begin : begin + length])
                at = begin + length
            labels_by_column[i] = tuple(labels)
    return labels_by_column


def _keys(fields: Mapping[int, bytes]) -> list[int]:
    if _KEYS in fields:
        return _numbers(fields[_KEYS])
    return _numbers(fields.get(_PREFIX_KEYS, b""))[::2]


_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_width(digits: int, scale: int) -> int:
    """Return how many bytes a decimal has in the log."""
    integer_digits = digits - scale
    return integer_digits // 9 * 4 + _DIGIT_BYTES[integer_digits % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def _column(
    table: SourceName,
    name: str,
    code: int,
    description: bytes,
    is_unsigned: bool,
    charset: int,
    labels: tuple[bytes, ...],
) -> LogColumn:
    def of(type_name: str, width: int = 0, **more: Any) -> LogColumn:
        return LogColumn(SourceColumn(name, type_name, True), width, **more)

    text_type = "binary" if charset == BINARY else "string"
    if code in _INTEGERS:
        type_name, width = _INTEGERS[code]
        return of(type_name + " unsigned" * is_unsigned, width)
    if code in (_TIMESTAMP, _DATETIME, _TIME):
        type_name, width = {_TIMESTAMP: ("timestamp", 4), _DATETIME: ("datetime", 5), _TIME: ("time", 3)}[code]
        return of(type_name, width + (description[0] + 1) // 2, fraction=description[0])
    if code in (_FLOAT, _DOUBLE, _DATE, _YEAR):
        type_name, width = {_FLOAT: ("float", 4), _DOUBLE: ("double", 8), _DATE: ("date", 3), _YEAR: ("year", 1)}[code]
        return of(type_name, width)
    if code == _NEWDECIMAL:
        digits, scale = description
        return of(f"decimal({digits},{scale})", decimal_width(digits, scale))
    if code in (_ENUM, _SET):
        return of("enum" if code == _ENUM else "set", description[0], charset=charset, labels=labels)
    if code == _BIT:
        bits = description[0] + 8 * description[1]
        return of(f"bit({bits})", (bits + 7) // 8)
    if code in (_VARCHAR, _VAR_STRING, _STRING, _VARCHAR_COMPRESSED):
        most = int.from_bytes(description, "little")
        padded = most if code == _STRING and text_type == "binary" else 0
        prefix = 1 if most < 256 else 2
        return of(text_type, prefix=prefix, charset=charset, padded=padded, is_compressed=code == _VARCHAR_COMPRESSED)
    if code in (_BLOB, _TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB, _BLOB_COMPRESSED):
        return of(text_type, prefix=description[0], charset=charset, is_compressed=code == _BLOB_COMPRESSED)
    if code == _GEOMETRY:
        return of("geometry", prefix=description[0])
    if code in (_OLD_TIMESTAMP, _OLD_DATETIME, _OLD_TIME):
        raise SourceRefused(f"{table}.{name} {_OLD}")
    raise SourceRefused(f"{table}.{name} has the type {code} in the log, which is not known here")


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
        indices = np.minimum(_little(data), len(labels) - 1)
        return pc.take(pa.array(labels, pa.string()), pa.array(indices, mask=nulls))
    if type_name == "set":
        return _set(column, data, nulls, charsets)
    if type_name.startswith("decimal("):
        digits, scale = map(int, type_name[8:-1].split(","))
        return decimals(data, digits, scale, nulls)
    if type_name.startswith("bit("):
        return _bits(data, nulls, type_name == "bit(1)")
    if type_name in ("float", "double"):
        dtype = np.dtype("<f4" if type_name == "float" else "<f8")
        return pa.array(_contiguous(data).view(dtype).reshape(-1), value_type(type_name), mask=nulls)
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
    integers = _little(data)
    if type_name == "bigint unsigned":
        return _decimal_of_halves(integers, np.zeros_like(integers), 20, 0, nulls)
    width = 8 * data.shape[1]
    if type_name != "year" and not type_name.endswith("unsigned") and width < 64:
        integers = (integers << (64 - width)) >> (64 - width)
    if type_name == "year":
        integers = np.where(integers == 0, 0, integers + 1900)
    return pa.array(integers, mask=nulls).cast(value_type(type_name))


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
    integer_digits = digits - scale
    sizes = [integer_digits % 9, *[9] * (integer_digits // 9), *[9] * (scale // 9), scale % 9]
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
    whole_text = (
        pc.utf8_ltrim(pc.utf8_slice_codeunits(joined, 0, integer_digits), "0")
        if integer_digits
        else pa.array([""] * len(data))
    )
    whole_text = pc.if_else(pc.equal(whole_text, ""), "0", whole_text)
    parts = [sign, whole_text]
    if scale:
        parts += [pa.scalar("."), pc.utf8_slice_codeunits(joined, integer_digits, digits)]
    literals = pc.binary_join_element_wise(*parts, "")
    literals = pc.if_else(pa.array(nulls), pa.scalar(None, pa.string()), literals)
    return literals.cast(value_type(f"decimal({digits},{scale})"))


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
    indices = np.nonzero(members)[1]
    values = pc.take(pa.array(labels, pa.string()), pa.array(indices, pa.int64()))
    list_offsets = pa.array(offsets, pa.int32())
    if nulls.any():
        list_offsets = pa.array(offsets, pa.int32(), mask=np.append(nulls, False))
    return pa.ListArray.from_arrays(list_offsets, values)


# --- dates and times ----------------------------------------------------------------------------------------------


def calendar_days(years: _Integers, months: _Integers, days: _Integers) -> tuple[_Integers, _Mask]:
    """Return dates as days since 1970, and a mask of the dates that do not exist."""
    impossible = (years < 1) | (months < 1) | (months > 12) | (days < 1)
    first = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    dates = first.astype("datetime64[D]") + (days - 1)
    impossible |= dates.astype("datetime64[M]") != first
    return dates.astype(np.int64), impossible


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
    decode = codecs.lookup(codec or "utf-8").decode
    errors = "lakefmt_c1" if codec == "cp1252" else "strict"
    return [None if value is None else decode(value, errors)[0] for value in values]


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
    hex_digits = value.hex()
    return f"{hex_digits[:8]}-{hex_digits[8:12]}-{hex_digits[12:16]}-{hex_digits[16:20]}-{hex_digits[20:]}"


def _inet4(value: bytes) -> str:
    return ".".join(map(str, value))


def _inet6(value: bytes) -> str:
    import socket

    return socket.inet_ntop(socket.AF_INET6, value)


_NETWORK: Final[dict[str, Any]] = {"uuid": _uuid, "inet4": _inet4, "inet6": _inet6}


class RowBuffer:
    """Rows of tables of one shape, as bytes by column, until :meth:`take` makes Arrow columns of them."""

    def __init__(self, columns: Sequence[LogColumn], charsets: dict[int, str]) -> None:
        self._columns = tuple(columns)
        self._charsets = charsets
        self._bitmap_bytes = (len(columns) + 7) // 8
        self._steps: dict[bytes, tuple[tuple[Any, int], ...]] = {}
        self._begin()

    def _begin(self) -> None:
        self._fixed: list[bytes] = []
        self._variable: list[list[bytes | None]] = [[] for column in self._columns if not column.width]
        self._bitmaps: list[bytes] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._bitmaps)

    def add(self, body: bytes, at: int) -> int:
        """Add the rows of an event, which go to its end; return how many they are.

        Raises:
            SourceRefused: the event is damaged.
        """
        before = len(self._bitmaps)
        end, width = len(body), self._bitmap_bytes
        self.bytes += end - at
        fixed, bitmaps, known_steps = self._fixed, self._bitmaps, self._steps
        while at < end:
            bitmap = body[at : at + width]
            at += width
            steps = known_steps.get(bitmap)
            if steps is None:
                steps = known_steps[bitmap] = self._steps_of(bitmap)
            bitmaps.append(bitmap)
            for target, size in steps:
                if target is None:
                    fixed.append(body[at : at + size])
                    at += size
                elif size > 0:
                    begin = at + size
                    at = begin + int.from_bytes(body[at:begin], "little")
                    target.append(body[begin:at])
                elif size == 0:
                    target.append(None)
                else:
                    fixed.append(target)
        if at != end:
            raise SourceRefused("the log has an event of rows that is damaged")
        return len(bitmaps) - before

    def _steps_of(self, bitmap: bytes) -> tuple[tuple[Any, int], ...]:
        # (None, width): bytes of fixed width; (list, prefix): a value of variable width; (list, 0): a null of one;
        # (zeros, -1): nulls of fixed width.
        nulls = int.from_bytes(bitmap, "little")
        steps: list[tuple[object, int]] = []
        variable = 0
        for i, column in enumerate(self._columns):
            is_null = bool(nulls >> i & 1)
            if not column.width:
                steps.append((self._variable[variable], 0 if is_null else column.prefix))
                variable += 1
            elif is_null:
                steps.append((bytes(column.width), -1))
            elif steps and steps[-1][0] is None:
                steps[-1] = (None, steps[-1][1] + column.width)
            else:
                steps.append((None, column.width))
        return tuple(steps)

    def take(self) -> list[pa.Array]:
        """Return the columns of the rows, and be empty."""
        count = len(self._bitmaps)
        bits = _matrix(self._bitmaps, count, self._bitmap_bytes)
        nulls = np.unpackbits(bits, axis=1, bitorder="little").astype(bool)
        fixed = _matrix(self._fixed, count, sum(column.width for column in self._columns))
        arrays, at, variable = [], 0, 0
        for i, column in enumerate(self._columns):
            if column.width:
                arrays.append(decode_fixed(column, fixed[:, at : at + column.width], nulls[:, i], self._charsets))
                at += column.width
            else:
                arrays.append(decode_variable(column, self._variable[variable], self._charsets))
                variable += 1
        self._begin()
        self._steps.clear()  # they hold the lists
        return arrays


def _matrix(pieces: Sequence[bytes], rows: int, width: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(pieces), np.uint8).reshape(rows, width)
