"""Thrift's compact protocol, in which the footers and page headers of Parquet files are: going through it, writing it. Pure.

Bytes that are not what they should be raise ``IndexError``, ``InternalError`` or ``RecursionError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from lakefmt.errors import InternalError

__all__ = [
    "BINARY",
    "I64",
    "STRUCT",
    "ByteRange",
    "Field",
    "Readable",
    "after_list",
    "count_at",
    "encode_integer",
    "encode_list",
    "encode_number",
    "encode_struct",
    "fields_of",
    "integer_at",
    "number_at",
    "only_field",
]

# Kinds of Thrift's compact protocol.
_INTEGERS, I64, BINARY, _LISTS, STRUCT = (4, 5, 6), 6, 8, (9, 10), 12
_TRUTHS = (1, 2)
#: Bytes of values of a fixed size, by kind; the kind of a boolean field is its value.
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}
_STOP = 0
_MORE = 0x80
_LONG_LIST = 15
#: A number of 64 bits has ten bytes of seven each.
_MOST_NUMBER_BITS = 70

ByteRange = tuple[int, int]


class Readable(Protocol):
    """Bytes of which each can be asked for."""

    def __getitem__(self, place: int, /) -> int:
        """Return the byte at a place."""
        ...


class Field(NamedTuple):
    """A field of a struct: where its value begins and ends, and where the structs of a list do."""

    number: int
    kind: int
    start: int
    end: int
    items: list[ByteRange]


def fields_of(data: Readable, position: int = 0, stop: int = 0) -> list[Field]:
    """Return the fields of the struct that begins at a byte; the field `stop`, the last one then, is not gone through."""
    fields, number = [], 0
    while (head := data[position]) != _STOP:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            number, position = integer_at(data, position), _after_number(data, position)
        items: list[ByteRange] = []
        end = position if number == stop else _after(data, position, head & 15, items)
        fields.append(Field(number, head & 15, position, end, items))
        if number == stop:
            break
        position = end
    return fields


def _after(data: Readable, position: int, kind: int, items: list[ByteRange] | None = None) -> int:
    """Return where a value ends; where the structs of a list begin and end goes into `items`."""
    if kind in _INTEGERS:
        return _after_number(data, position)
    if kind == STRUCT:
        return _after_struct(data, position)
    if kind == BINARY:
        return _after_number(data, position) + _number(data, position)
    if kind in _LISTS:
        return after_list(data, position, items)
    if kind in _FIXED:
        return position + _FIXED[kind]
    raise InternalError(f"a Parquet footer has a value of kind {kind}")


def _after_struct(data: Readable, position: int) -> int:
    # Asked of some hundred structs with a thousand fields per file: the usual kinds are looked at here.
    while (head := data[position]) != _STOP:
        position += 1
        if head < 1 << 4:
            position = _after_number(data, position)
        kind = head & 15
        if 4 <= kind <= 6:
            while data[position] >= _MORE:
                position += 1
            position += 1
        elif kind == STRUCT:
            position = _after_struct(data, position)
        elif kind == BINARY and data[position] < _MORE:
            position += 1 + data[position]
        else:
            position = _after(data, position, kind)
    return position + 1


def after_list(data: Readable, position: int, items: list[ByteRange] | None = None) -> int:
    """Return where a list ends; where the structs in it begin and end goes into `items`."""
    kind = data[position] & 15
    count, position = count_at(data, position)
    for _ in range(count):
        end = position + 1 if kind in _TRUTHS else _after(data, position, kind)
        if items is not None and kind == STRUCT:
            items.append((position, end))
        position = end
    return position


def count_at(data: Readable, position: int) -> tuple[int, int]:
    """Return the number of items of a list, and where the first begins."""
    count = data[position] >> 4
    return (
        (count, position + 1)
        if count != _LONG_LIST
        else (_number(data, position + 1), _after_number(data, position + 1))
    )


def _after_number(data: Readable, position: int) -> int:
    last = position + _MOST_NUMBER_BITS // 7
    while data[position] >= _MORE:
        position += 1
        if position > last:
            raise InternalError("a number of a Parquet footer has too many bytes")
    return position + 1


def _number(data: Readable, position: int) -> int:
    number = shift = 0
    while (byte := data[position]) >= _MORE:
        number |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > _MOST_NUMBER_BITS:  # each further byte would take longer than the one before it
            raise InternalError("a number of a Parquet footer has too many bytes")
    return number | byte << shift


def number_at(data: Readable, position: int) -> tuple[int, int]:
    """Return the number that begins at a byte, such as the length of a text, and where what is behind it begins."""
    return _number(data, position), _after_number(data, position)


def integer_at(data: Readable, position: int) -> int:
    """Return the signed number that begins at a byte."""
    encoded = _number(data, position)
    return encoded >> 1 ^ -(encoded & 1)


def encode_number(number: int) -> bytes:
    """Return a number that is not negative, such as a length."""
    made = bytearray()
    while number >= _MORE:
        made.append(number & 0x7F | _MORE)
        number >>= 7
    made.append(number)
    return bytes(made)


def encode_integer(number: int) -> bytes:
    """Return a signed number."""
    return encode_number(number << 1 if number >= 0 else (-number << 1) - 1)


def encode_list(items: list[bytes], kind: int = STRUCT) -> bytes:
    """Return a list of values that are encoded already."""
    count = len(items)
    head = bytes([count << 4 | kind]) if count < _LONG_LIST else bytes([0xF0 | kind]) + encode_number(count)
    return head + b"".join(items)


def encode_struct(data: bytes, fields: Iterable[Field], changed: Mapping[int, bytes]) -> bytes:
    """Return a struct with some of its values changed."""
    made, last = [], 0
    for field in fields:
        step = field.number - last
        last = field.number
        made.append(bytes([step << 4 | field.kind]) if 0 < step < 16 else bytes([field.kind]) + encode_integer(last))
        made.append(changed.get(field.number, data[field.start : field.end]))
    return b"".join([*made, bytes([_STOP])])


def only_field(fields: Iterable[Field], number: int) -> Field:
    """Return the field of a number.

    Raises:
        InternalError: there is none.
    """
    field = next((each for each in fields if each.number == number), None)
    if field is None:
        raise InternalError(f"a Parquet footer lacks its field {number}")
    return field
