"""The few Protocol Buffers messages of an HFile: its trailer and its file info. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["DamagedMessage", "encode_fields", "encode_varint", "read_fields", "read_varint"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10


class DamagedMessage(ValueError):
    """The bytes are no message; the readers of HFiles turn it into an error that names the file."""


def read_varint(data: bytes, begin: int) -> tuple[int, int]:
    """Return the number at `begin` and the offset behind it.

    Raises:
        DamagedMessage: it does not end within the bytes, or takes more than 64 bits.
    """
    if begin < len(data) and data[begin] < 0x80:
        return data[begin], begin + 1  # most numbers are small
    value = 0
    for size in range(_MOST_VARINT_BYTES):
        if begin + size >= len(data):
            raise DamagedMessage("a number is cut off")
        byte = data[begin + size]
        value |= (byte & 0x7F) << 7 * size
        if byte < 0x80:
            if value >> 64:
                break
            return value, begin + size + 1
    raise DamagedMessage("a number takes more than 64 bits")


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field of a message; fields of fixed width come as bytes.

    Raises:
        DamagedMessage: the bytes are no message.
    """
    position, end = 0, len(data)
    while position < end:
        tag = data[position]
        position += 1
        if tag >= 0x80:  # most numbers are small
            tag, position = read_varint(data, position - 1)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = read_varint(data, position)
        else:
            if kind == _BYTES:
                size, position = read_varint(data, position)
            elif kind in (_FIXED32, _FIXED64):
                size = 4 if kind == _FIXED32 else 8
            else:
                raise DamagedMessage(f"a field has the unknown wire type {kind}")
            begin, position = position, position + size
            if position > end:
                raise DamagedMessage("a field is cut off")
            value = data[begin:position]
        yield tag >> 3, value


def encode_varint(value: int) -> bytes:
    """Return an unsigned number.

    Example:
        >>> encode_varint(300).hex()
        'ac02'
    """
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_fields(fields: Iterable[tuple[int, int | bytes]]) -> bytes:
    """Return a message of the fields, in order."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += encode_varint(number << 3 | _VARINT) + encode_varint(value)
        else:
            out += encode_varint(number << 3 | _BYTES) + encode_varint(len(value)) + value
    return bytes(out)
