"""Log files as blocks: the framing, and the records of Avro data blocks (spec 7.1–7.5). Pure.

A log file is a row of blocks without a file header. :func:`scan_blocks` walks over it by ranges, so that a block whose
content nobody wants costs its header only; every length is checked against the bytes there are before it is believed.
What reads the ranges is handed in.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lakefmt.errors import CorruptFile, UnsupportedFeature
from lakefmt.formats.avro_reading import Decode, compile_decoder
from lakefmt.formats.avro_schema import parse_schema

__all__ = ["MAGIC", "BlockKind", "HeaderKey", "LogBlock", "decode_avro_record", "scan_blocks", "split_avro_records"]

#: Every block begins with these six bytes.
MAGIC = b"#HUDI#"

#: Returns the bytes from an offset on, as many as asked for, fewer only at the end of the file.
ReadAt = Callable[[int, int], bytes]

_FORMAT_VERSION = 1
_FRAME = struct.Struct(">6sqiii")  # magic, block length, format version, kind, number of header entries
_ENTRY = struct.Struct(">ii")
_LONG = struct.Struct(">q")
_PAIR = struct.Struct(">ii")
_BEFORE_LENGTH = len(MAGIC) + _LONG.size
_FIRST_READ = 64 * 1024
_SEARCH = 1024 * 1024
#: The smallest block: format version, kind, no header, no content, no footer, reverse pointer.
_LEAST_LENGTH = 4 + 4 + 4 + 8 + 4 + 8
_MAX_HEADER_ENTRIES = 64
_MAX_HEADER_BYTES = 64 * 1024 * 1024
#: Java casts lengths to 32 bits.
_MAX_BLOCK_BYTES = (1 << 31) - 1


class BlockKind(enum.IntEnum):
    """What a block holds (spec 7.2). ``CORRUPT`` is never stored: it stands for bytes that are no block."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(enum.IntEnum):
    """What an entry of a block's header says (spec 7.3)."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8
    VERSION = 9


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block: what it is and where its bytes are.

    Attributes:
        kind: what it holds.
        start: offset of its magic in the file.
        end: offset behind its last byte.
        header: its entries.
        content_start: offset of its content.
        content_size: bytes of its content.
    """

    kind: BlockKind
    start: int
    end: int
    header: Mapping[HeaderKey, str] = field(default_factory=dict)
    content_start: int = 0
    content_size: int = 0


class _Damage(Exception):
    """The bytes at a place are no block; never leaves this module."""


def scan_blocks(read_at: ReadAt, size: int, what: str) -> Iterator[LogBlock]:
    r"""Yield the blocks of a log file in order; bytes that are no block come as one ``CORRUPT`` block.

    A block counts when its two lengths agree and another block or the end of the file follows (spec 7.9); after damage
    the walk goes on at the next magic, as Hudi's does. A block that a crash cut off at the end is damage, too.

    Parameters:
        read_at: reads bytes of the file.
        size: bytes of the file.
        what: how the file is named in errors.

    Raises:
        UnsupportedFeature: a block has another format version, an unknown kind or an unknown header key.

    Spec 7.1, 7.9.

    Example:
        >>> block = bytes.fromhex("234855444923 0000000000000020 00000001 00000000 00000000"
        ...     "0000000000000000 00000000 0000000000000026")
        >>> [one.kind.name for one in scan_blocks(lambda at, n: block[at : at + n], len(block), "a.log")]
        ['COMMAND']
    """
    start = 0
    while start < size:
        try:
            block = _read_block(read_at, start, size, what)
        except _Damage:
            end = _next_magic(read_at, start + 1, size)
            block = LogBlock(BlockKind.CORRUPT, start, end)
        yield block
        start = block.end


def _read_block(read_at: ReadAt, start: int, size: int, what: str) -> LogBlock:
    head = read_at(start, min(_FIRST_READ, size - start))
    if len(head) < _FRAME.size:
        raise _Damage
    magic, length, version, kind, entries = _FRAME.unpack_from(head)
    end = start + _BEFORE_LENGTH + length
    if magic != MAGIC or not _LEAST_LENGTH <= length <= _MAX_BLOCK_BYTES or end > size:
        raise _Damage
    if version != _FORMAT_VERSION:
        raise UnsupportedFeature(f"{what}: log format version {version} at byte {start}; version 1 is read")
    _check_end(read_at, length, end, size)
    header, content_start, content_size = _read_header(read_at, head, start, end, entries, what)
    return LogBlock(_kind(kind, start, what), start, end, header, content_start, content_size)


def _check_end(read_at: ReadAt, length: int, end: int, size: int) -> None:
    tail = read_at(end - _LONG.size, min(_LONG.size + len(MAGIC), size - end + _LONG.size))
    follows = tail[_LONG.size :]
    if len(tail) < _LONG.size or _LONG.unpack_from(tail)[0] != length + len(MAGIC):
        raise _Damage
    if len(follows) == len(MAGIC) and follows != MAGIC:
        raise _Damage


def _kind(number: int, start: int, what: str) -> BlockKind:
    try:
        kind = BlockKind(number)
    except ValueError:
        raise UnsupportedFeature(f"{what}: block of unknown kind {number} at byte {start}") from None
    if kind is BlockKind.CORRUPT:
        raise _Damage
    return kind


def _read_header(
    read_at: ReadAt, head: bytes, start: int, end: int, entries: int, what: str
) -> tuple[dict[HeaderKey, str], int, int]:
    """Return the header's entries, and the offset and size of the content behind them."""
    if not 0 <= entries <= _MAX_HEADER_ENTRIES:
        raise _Damage
    header: dict[HeaderKey, str] = {}
    at = _FRAME.size
    for _ in range(entries):
        head = _at_least(read_at, head, at + _ENTRY.size, start, end)
        key, length = _ENTRY.unpack_from(head, at)
        at += _ENTRY.size
        if not 0 <= length <= min(end - start - at, _MAX_HEADER_BYTES):
            raise _Damage
        head = _at_least(read_at, head, at + length, start, end)
        header[_key(key, start, what)] = _text(head[at : at + length])
        at += length
    head = _at_least(read_at, head, at + _LONG.size, start, end)
    (content_size,) = _LONG.unpack_from(head, at)
    content_start = start + at + _LONG.size
    # Behind the content: the number of footer entries and the reverse pointer.
    if not 0 <= content_size <= end - content_start - 4 - _LONG.size:
        raise _Damage
    return header, content_start, content_size


def _at_least(read_at: ReadAt, head: bytes, wanted: int, start: int, end: int) -> bytes:
    """Return the block's first bytes, `wanted` of them or more."""
    if wanted <= len(head):
        return head
    if wanted > end - start:
        raise _Damage
    more = read_at(start, min(max(wanted, 2 * len(head)), end - start))
    if len(more) < wanted:
        raise _Damage
    return more


def _key(number: int, start: int, what: str) -> HeaderKey:
    try:
        return HeaderKey(number)
    except ValueError:
        raise UnsupportedFeature(f"{what}: unknown header key {number} in the block at byte {start}") from None


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _Damage from None


def _next_magic(read_at: ReadAt, start: int, size: int) -> int:
    """Return where the next block may begin: at a magic, else at the end of the file."""
    while start < size:
        piece = read_at(start, min(_SEARCH, size - start))
        found = piece.find(MAGIC)
        if found >= 0:
            return start + found
        if start + len(piece) >= size or len(piece) < len(MAGIC):
            return size
        start += len(piece) - len(MAGIC) + 1
    return size


# ------------------------------------------------------------------------------------------------ Avro data blocks


def split_avro_records(content: bytes, what: str) -> list[bytes]:
    r"""Return the records of an Avro data block's content, each as its datum.

    Raises:
        CorruptFile: the lengths do not fit the bytes.
        UnsupportedFeature: the content version is not 1, 2 or 3.

    Spec 7.4, 7.5.

    Example:
        >>> split_avro_records(bytes.fromhex("00000003 00000001 00000002 0661"), "a.log")
        [b'\x06a']
    """
    if len(content) < _PAIR.size:
        raise CorruptFile(f"{what}: data block of {len(content)} bytes is too short")
    version, count = _PAIR.unpack_from(content)
    if version not in (1, 2, 3):
        raise UnsupportedFeature(f"{what}: data block with content version {version}; versions 1 to 3 are read")
    if not 0 <= count <= (len(content) - _PAIR.size) // 4:
        raise CorruptFile(f"{what}: data block of {len(content)} bytes announces {count} records")
    records, at = [], _PAIR.size
    for _ in range(count):
        length = int.from_bytes(content[at : at + 4], "big", signed=True)
        at += 4
        if not 0 <= length <= len(content) - at:
            raise CorruptFile(f"{what}: record of {length} bytes at {at} of a data block of {len(content)} bytes")
        records.append(content[at : at + length])
        at += length
    if at != len(content):
        raise CorruptFile(f"{what}: {len(content) - at} bytes behind the last record of a data block")
    return records


def decode_avro_record(datum: bytes, schema: str, what: str, reader: str | None = None) -> dict[str, object]:
    r"""Return one record of an Avro data block as a dictionary.

    Parameters:
        datum: the record, one of those that :func:`split_avro_records` finds.
        schema: the Avro schema in the block's header, as JSON text.
        what: how the file is named in errors.
        reader: the Avro schema of the shape that is wanted; None: the shape that was stored.

    Raises:
        CorruptFile: the bytes are damaged or do not fit the schema.

    Spec 7.5.

    Example:
        >>> note = '{"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}'
        >>> decode_avro_record(bytes.fromhex("0261"), note, "a.log")
        {'text': 'a'}
    """
    try:
        record, end = _decoder(schema, reader)(datum, 0)
    except IndexError:
        raise CorruptFile(f"{what}: a record of a data block ends too early") from None
    except ValueError as error:
        raise CorruptFile(f"{what}: damaged data block: {error}") from None
    if not isinstance(record, dict) or end != len(datum):
        raise CorruptFile(f"{what}: a record of a data block does not fit its schema")
    return record


@lru_cache(maxsize=32)
def _decoder(schema: str, reader: str | None) -> Decode:
    writer = parse_schema(schema)
    return compile_decoder(writer, writer if reader is None else parse_schema(reader))
