"""A table as the log describes it before its rows, with `binlog_row_metadata=FULL` (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from lakefmt._core.cdc.events import SourceName
from lakefmt._core.cdc.mysql.columns import HINTS, SourceColumn
from lakefmt._core.cdc.mysql.log_events import read_length
from lakefmt.errors import SourceRefused

__all__ = ["LogColumn", "TableMap", "read_table_map", "read_table_name"]

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
        named = names[i].decode("utf-8")
        column = _column(name, named, code, description, i in unsigned, charsets.get(i, BINARY), labels.get(i, ()))
        hint = hints.get(named) if column.padded in (4, 16) else None
        shown = hint if hint in HINTS else column.column.type
        columns.append(column._replace(column=SourceColumn(named, str(shown), bool(nullable >> i & 1))))
    return TableMap(name, tuple(columns), tuple(names[i].decode("utf-8") for i in _keys(fields)))


def _descriptions(types: bytes, data: bytes) -> list[tuple[int, bytes]]:
    # The real type of each column and what describes it: strings, enums and sets share one type.
    at, found = 0, []
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
        found.append((real, description))
    return found


def _fields(body: bytes, at: int) -> dict[int, bytes]:
    fields = {}
    while at < len(body):
        length, begin = read_length(body, at + 1)
        fields[body[at]] = body[begin : begin + length]
        at = begin + length
    return fields


def _strings(data: bytes) -> list[bytes]:
    at, found = 0, []
    while at < len(data):
        length, begin = read_length(data, at)
        found.append(data[begin : begin + length])
        at = begin + length
    return found


def _numbers(data: bytes) -> list[int]:
    at, found = 0, []
    while at < len(data):
        number, at = read_length(data, at)
        found.append(number)
    return found


def _unsigned(types: Sequence[int], bits: bytes) -> set[int]:
    numeric = [i for i, code in enumerate(types) if code in _WITH_SIGN]
    return {i for place, i in enumerate(numeric) if bits and bits[place // 8] >> (7 - place % 8) & 1}


def _charsets(places: Sequence[int], default: bytes | None, each: bytes | None) -> dict[int, int]:
    if each is not None:
        return dict(zip(places, _numbers(each), strict=True))
    if default is None:
        return {}
    usual, *others = _numbers(default)
    found = dict.fromkeys(places, usual)
    found |= {places[index]: charset for index, charset in zip(others[::2], others[1::2], strict=True)}
    return found


def _labels(types: Sequence[int], fields: Mapping[int, bytes]) -> dict[int, tuple[bytes, ...]]:
    found = {}
    for code, field in ((_ENUM, _ENUMS), (_SET, _SETS)):
        data, at = fields.get(field, b""), 0
        for i in (i for i, each in enumerate(types) if each == code):
            count, at = read_length(data, at)
            labels = []
            for _ in range(count):
                length, begin = read_length(data, at)
                labels.append(data[begin : begin + length])
                at = begin + length
            found[i] = tuple(labels)
    return found


def _keys(fields: Mapping[int, bytes]) -> list[int]:
    if _KEYS in fields:
        return _numbers(fields[_KEYS])
    return _numbers(fields.get(_PREFIX_KEYS, b""))[::2]


_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_width(digits: int, scale: int) -> int:
    """Return how many bytes a decimal has in the log."""
    whole = digits - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def _column(
    table: SourceName,
    name: str,
    code: int,
    description: bytes,
    is_unsigned: bool,
    charset: int,
    labels: tuple[bytes, ...],
) -> LogColumn:
    def of(shown: str, width: int = 0, **more: Any) -> LogColumn:
        return LogColumn(SourceColumn(name, shown, True), width, **more)

    text = "binary" if charset == BINARY else "string"
    if code in _INTEGERS:
        shown, width = _INTEGERS[code]
        return of(shown + " unsigned" * is_unsigned, width)
    if code in (_TIMESTAMP, _DATETIME, _TIME):
        shown, width = {_TIMESTAMP: ("timestamp", 4), _DATETIME: ("datetime", 5), _TIME: ("time", 3)}[code]
        return of(shown, width + (description[0] + 1) // 2, fraction=description[0])
    if code in (_FLOAT, _DOUBLE, _DATE, _YEAR):
        shown, width = {_FLOAT: ("float", 4), _DOUBLE: ("double", 8), _DATE: ("date", 3), _YEAR: ("year", 1)}[code]
        return of(shown, width)
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
        padded = most if code == _STRING and text == "binary" else 0
        prefix = 1 if most < 256 else 2
        return of(text, prefix=prefix, charset=charset, padded=padded, is_compressed=code == _VARCHAR_COMPRESSED)
    if code in (_BLOB, _TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB, _BLOB_COMPRESSED):
        return of(text, prefix=description[0], charset=charset, is_compressed=code == _BLOB_COMPRESSED)
    if code == _GEOMETRY:
        return of("geometry", prefix=description[0])
    if code in (_OLD_TIMESTAMP, _OLD_DATETIME, _OLD_TIME):
        raise SourceRefused(f"{table}.{name} {_OLD}")
    raise SourceRefused(f"{table}.{name} has the type {code} in the log, which is not known here")
