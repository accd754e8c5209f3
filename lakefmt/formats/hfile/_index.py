"""Index blocks of an HFile: where each data block is, and a key that none of its keys is smaller than. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile

__all__ = ["KEY_TAIL", "IndexEntry", "encode_index", "read_leaf_index", "read_meta_index", "read_root_index"]

#: Behind the content of a key: no column family, the largest timestamp, the type Put. HBase needs it, Hudi skips it.
KEY_TAIL = bytes.fromhex("00 7fffffffffffffff 04")

_PLACE = struct.Struct(">qi")
_SHORT = struct.Struct(">H")
_INT = struct.Struct(">i")
_MAX_KEY = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One block that an index names.

    Attributes:
        offset: where it begins in the file.
        size: its bytes in the file.
        key: no key of the block is smaller, every key of the blocks before it is; for a meta block its name.
    """

    offset: int
    size: int
    key: bytes


def read_root_index(payload: bytes | memoryview, count: int, what: str) -> list[IndexEntry]:
    """Return the entries of a root index; the caller has compared `count` with the size of the file.

    Raises:
        CorruptFile: the payload holds fewer.
    """
    entries, position = [], 0
    for _ in range(count):
        offset, size, key, position = _read_entry(payload, position, what)
        entries.append(IndexEntry(offset, size, _key_content(key, what)))
    return entries


def read_meta_index(payload: bytes | memoryview, count: int, what: str) -> list[IndexEntry]:
    """Return the entries of the index of meta blocks, whose keys are names.

    Raises:
        CorruptFile: the payload holds fewer.
    """
    entries, position = [], 0
    for _ in range(count):
        offset, size, key, position = _read_entry(payload, position, what)
        entries.append(IndexEntry(offset, size, key))
    return entries


def read_leaf_index(payload: bytes | memoryview, most: int, what: str) -> list[IndexEntry]:
    """Return the entries of a leaf or intermediate index; `most` is how many blocks the file can hold.

    Raises:
        CorruptFile: the payload is no such index.
    """
    count = _INT.unpack_from(payload)[0] if len(payload) >= _INT.size else -1
    begin = _INT.size * (count + 2)
    if not 0 <= count <= most or begin > len(payload):
        raise CorruptFile(f"{what}: a damaged index block")
    places = struct.unpack_from(f">{count + 1}i", payload, _INT.size)
    entries = []
    for place, end in pairwise(places):
        if not 0 <= place <= end - _PLACE.size or begin + end > len(payload):
            raise CorruptFile(f"{what}: a damaged index block")
        offset, size = _PLACE.unpack_from(payload, begin + place)
        key = bytes(payload[begin + place + _PLACE.size : begin + end])
        entries.append(IndexEntry(offset, size, _key_content(key, what)))
    return entries


def _read_entry(payload: bytes | memoryview, place: int, what: str) -> tuple[int, int, bytes, int]:
    if place + _PLACE.size + 1 > len(payload):
        raise CorruptFile(f"{what}: an index ends before its last entry")
    offset, size = _PLACE.unpack_from(payload, place)
    length, begin = _read_vlong(payload, place + _PLACE.size)
    if not 0 <= length <= len(payload) - begin:
        raise CorruptFile(f"{what}: a key of an index is cut off")
    return offset, size, bytes(payload[begin : begin + length]), begin + length


def _key_content(key: bytes, what: str) -> bytes:
    """Return what stands between the length and the tail of a key, which not every writer adds."""
    length = _SHORT.unpack_from(key)[0] if len(key) >= _SHORT.size else _MAX_KEY + 1
    if length > min(_MAX_KEY, len(key) - _SHORT.size):
        raise CorruptFile(f"{what}: a key of an index is damaged")
    return key[_SHORT.size : _SHORT.size + length]


def _read_vlong(data: bytes | memoryview, begin: int) -> tuple[int, int]:
    """Return a number of Hadoop's variable length and the offset behind it; -1 when it is cut off or negative."""
    first = struct.unpack_from("b", data, begin)[0]
    if first >= -112:
        return first, begin + 1
    size = -112 - first
    if size > 8 or begin + 1 + size > len(data):
        return -1, begin
    return int.from_bytes(data[begin + 1 : begin + 1 + size], "big"), begin + 1 + size


def _encode_vlong(value: int) -> bytes:
    if value <= 127:
        return bytes((value,))
    size = (value.bit_length() + 7) // 8
    return struct.pack("b", -112 - size) + value.to_bytes(size, "big")


def encode_index(entries: Sequence[IndexEntry], *, is_meta: bool = False) -> bytes:
    """Return the payload of a root index, or of the index of meta blocks.

    Example:
        >>> encode_index([IndexEntry(96, 300, b"bloomFilter")], is_meta=True).hex()
        '00000000000000600000012c0b626c6f6f6d46696c746572'
    """
    out = []
    for entry in entries:
        key = entry.key if is_meta else _SHORT.pack(len(entry.key)) + entry.key + KEY_TAIL
        out += [_PLACE.pack(entry.offset, entry.size), _encode_vlong(len(key)), key]
    return b"".join(out)
