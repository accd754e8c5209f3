"""Log files as blocks: the framing, both ways (spec 7.1–7.3, 7.9). Pure.

A log file is a row of blocks without a file header. :func:`scan_blocks` walks over it by ranges, so that a block whose
content nobody wants costs its header only; every length is checked against the bytes there are before it is believed.
What reads the ranges is handed in. :func:`encode_block` puts a frame around a content. What the contents are is said by
:mod:`~lakefmt.formats.log.data_block` and :mod:`~lakefmt.formats.log.delete_block`; bytes that arrive in pieces are decoded by
:mod:`~lakefmt.formats.log.reader`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.formats.log._records import decode_avro_record, split_avro_records

__all__ = [
    "MAGIC",
    "MAX_LOG_BYTES",
    "BlockKind",
    "HeaderKey",
    "LogBlock",
    "NotABlock",
    "decode_avro_record",
    "encode_block",
    "read_block",
    "read_entries",
    "scan_blocks",
    "split_avro_records",
]

#: Every block begins with these six bytes.
MAGIC = b"#HUDI#"
#: A log file is read whole, so no larger one is read or made; Hudi rolls to a new one at one gigabyte.
MAX_LOG_BYTES = (1 << 31) - 1

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

    @property
    def instant_time(self) -> str | None:
        """The instant that wrote the block."""
        return self.header.get(HeaderKey.INSTANT_TIME)

    @property
    def schema(self) -> str | None:
        """The Avro schema of its records, as JSON text."""
        return self.header.get(HeaderKey.SCHEMA)

    @property
    def is_partial(self) -> bool:
        """Whether its records hold some of the table's columns only (spec 7.10)."""
        return self.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    @property
    def compacted_block_times(self) -> tuple[str, ...]:
        """The instants whose blocks this one stands for (spec 7.9)."""
        return tuple(time for time in self.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "").split(",") if time)


class NotABlock(Exception):
    """The bytes at a place are no block; never leaves the readers of log files."""


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
            block = read_block(read_at, start, size, what)
        except NotABlock:
            end = _next_magic(read_at, start + 1, size)
            block = LogBlock(BlockKind.CORRUPT, start, end)
        yield block
        start = block.end


def read_block(read_at: ReadAt, start: int, size: int, what: str) -> LogBlock:
    """Return the block that begins at `start`; its content is not read.

    Raises:
        NotABlock: none begins there.
        UnsupportedFeature: see :func:`scan_blocks`.
    """
    head = read_at(start, min(_FIRST_READ, size - start))
    if len(head) < _FRAME.size:
        raise NotABlock
    magic, length, version, kind, entries = _FRAME.unpack_from(head)
    end = start + _BEFORE_LENGTH + length
    if magic != MAGIC or not _LEAST_LENGTH <= length <= _MAX_BLOCK_BYTES or end > size:
        raise NotABlock
    if version != _FORMAT_VERSION:
        raise UnsupportedFeature(f"{what}: log format version {version} at byte {start}; version 1 is read")
    _check_end(read_at, length, end, size)
    header, content_start, content_size = _read_header(read_at, head, start, end, entries, what)
    return LogBlock(_kind(kind, start, what), start, end, header, content_start, content_size)


def _check_end(read_at: ReadAt, length: int, end: int, size: int) -> None:
    tail = read_at(end - _LONG.size, min(_LONG.size + len(MAGIC), size - end + _LONG.size))
    follows = tail[_LONG.size :]
    if len(tail) < _LONG.size or _LONG.unpack_from(tail)[0] != length + len(MAGIC):
        raise NotABlock
    if len(follows) == len(MAGIC) and follows != MAGIC:
        raise NotABlock


def _kind(number: int, start: int, what: str) -> BlockKind:
    try:
        kind = BlockKind(number)
    except ValueError:
        raise UnsupportedFeature(f"{what}: block of unknown kind {number} at byte {start}") from None
    if kind is BlockKind.CORRUPT:
        raise NotABlock
    return kind


def _read_header(
    read_at: ReadAt, head: bytes, start: int, end: int, entries: int, what: str
) -> tuple[dict[HeaderKey, str], int, int]:
    """Return the header's entries, and the offset and size of the content behind them."""
    if not 0 <= entries <= _MAX_HEADER_ENTRIES:
        raise NotABlock
    header: dict[HeaderKey, str] = {}
    at = _FRAME.size
    for _ in range(entries):
        head = _at_least(read_at, head, at + _ENTRY.size, start, end)
        key, length = _ENTRY.unpack_from(head, at)
        at += _ENTRY.size
        if not 0 <= length <= min(end - start - at, _MAX_HEADER_BYTES):
            raise NotABlock
        head = _at_least(read_at, head, at + length, start, end)
        header[_key(key, start, what)] = _text(head[at : at + length])
        at += length
    head = _at_least(read_at, head, at + _LONG.size, start, end)
    (content_size,) = _LONG.unpack_from(head, at)
    content_start = start + at + _LONG.size
    # Behind the content: the number of footer entries and the reverse pointer.
    if not 0 <= content_size <= end - content_start - 4 - _LONG.size:
        raise NotABlock
    return header, content_start, content_size


def read_entries(data: bytes) -> dict[int, str]:
    """Return the entries of a footer: `data` is what stands between a content and the reverse pointer.

    Raises:
        NotABlock: it is anything else.
    """
    found: dict[int, str] = {}
    if len(data) < 4:
        raise NotABlock
    at = 4
    for _ in range(min(max(0, int.from_bytes(data[:4], "big", signed=True)), _MAX_HEADER_ENTRIES)):
        if at + _ENTRY.size > len(data):
            raise NotABlock
        key, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if not 0 <= length <= len(data) - at:
            raise NotABlock
        found[key] = _text(data[at : at + length])
        at += length
    if at != len(data) or int.from_bytes(data[:4], "big", signed=True) != len(found):
        raise NotABlock
    return found


def _at_least(read_at: ReadAt, head: bytes, wanted: int, start: int, end: int) -> bytes:
    """Return the block's first bytes, `wanted` of them or more."""
    if wanted <= len(head):
        return head
    if wanted > end - start:
        raise NotABlock
    more = read_at(start, min(max(wanted, 2 * len(head)), end - start))
    if len(more) < wanted:
        raise NotABlock
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
        raise NotABlock from None


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


# --------------------------------------------------------------------------------------------------------- writing


def encode_block(
    kind: BlockKind,
    header: Mapping[HeaderKey, str],
    *content: bytes | memoryview,
    footer: Mapping[int, str] | None = None,
) -> bytes:
    """Return a block with its frame; header entries keep their order.

    Parameters:
        kind: what it holds.
        header: its entries.
        content: its content in pieces.
        footer: entries behind the content; Hudi writes none.

    Raises:
        InvalidInputError: the block would be larger than readers take (2 GiB), or is of the kind that stands for damage.

    Spec 7.1.

    Example:
        >>> header = {HeaderKey.INSTANT_TIME: "20240101000000000"}
        >>> block = encode_block(BlockKind.AVRO_DATA, header, bytes(8))
        >>> [one.header for one in scan_blocks(lambda at, n: block[at : at + n], len(block), "a.log")] == [header]
        True
    """
    if kind is BlockKind.CORRUPT:
        raise InvalidInputError("a corrupt block cannot be written: it stands for bytes that are none")
    size = sum(len(memoryview(piece).cast("B")) for piece in content)
    head = struct.pack(">ii", _FORMAT_VERSION, kind) + _entries(header) + _LONG.pack(size)
    tail = _entries(footer or {})
    length = len(head) + size + len(tail) + _LONG.size
    if length > _MAX_BLOCK_BYTES:
        raise InvalidInputError(
            f"a block of {length:,} bytes cannot be read: write several, {_MAX_BLOCK_BYTES:,} at most"
        )
    return b"".join((MAGIC, _LONG.pack(length), head, *content, tail, _LONG.pack(length + len(MAGIC))))


def _entries(entries: Mapping[HeaderKey, str] | Mapping[int, str]) -> bytes:
    pieces = [struct.pack(">i", len(entries))]
    for key, text in entries.items():
        raw = text.encode()
        pieces += [_ENTRY.pack(key, len(raw)), raw]
    return b"".join(pieces)
