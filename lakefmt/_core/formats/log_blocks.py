"""Read and write the framing of log blocks, and find the records in an Avro block (docs/format.md, Log blocks; Data blocks). Pure.

:func:`scan_blocks` reads a file by ranges, so a block with an unneeded content costs only its
header (docs/format.md, Block headers); lengths are checked against the file size.
:func:`encode_block` frames a content. Contents are those of
:mod:`~lakefmt._core.formats.log_data_block` and :mod:`~lakefmt._core.formats.log_delete_block`.

A log file that arrives in chunks is split into blocks as it comes. As in Hudi, damage does not stop the reader: bytes
outside of blocks become :class:`Corrupt`, and the search for the next block goes on; a block cut off by the end of the
file becomes :class:`Torn`. Only the bytes of an incomplete block are buffered.
"""

from __future__ import annotations

import enum
import struct
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.formats.avro.values import Decode, compile_decoder
from lakefmt._core.schema.avro import parse_avro_schema
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = [
    "CONTENT_VERSION",
    "MAGIC",
    "MAX_LOG_BYTES",
    "BlockKind",
    "HeaderKey",
    "LogBlock",
    "LogBlockReader",
    "NotABlock",
    "ReadAt",
    "WholeBlock",
    "decode_avro_record",
    "encode_block",
    "read_block",
    "read_entries",
    "record_spans",
    "scan_blocks",
    "split_avro_records",
]

#: The content version of Avro data, delete and change blocks.
CONTENT_VERSION = 3

I64 = npt.NDArray[np.int64]


#: The first six bytes of every block.
MAGIC = b"#HUDI#"
#: Log files are read whole, so larger ones are neither read nor written; Hudi starts a new file at
#: 1 GiB.
MAX_LOG_BYTES = (1 << 31) - 1

#: Returns ``count`` bytes from an offset, fewer only at the end of the file.
ReadAt = Callable[[int, int], bytes]

_FORMAT_VERSION = 1
_FRAME_HEAD = struct.Struct(">6sqiii")  # magic, block length, format version, block type, number of header entries
_HEADER_ENTRY = struct.Struct(">ii")
_LONG = struct.Struct(">q")
_BEFORE_LENGTH = len(MAGIC) + _LONG.size
_FIRST_READ_BYTES = 64 * 1024
_SEARCH_BYTES = 1024 * 1024
#: Size of the smallest block: format version, type, empty header, content and footer, reverse
#: pointer.
_LEAST_LENGTH = 4 + 4 + 4 + 8 + 4 + 8
_MAX_HEADER_ENTRIES = 64
_MAX_HEADER_BYTES = 64 * 1024 * 1024
#: Java casts lengths to 32 bits.
_MAX_BLOCK_BYTES = (1 << 31) - 1


class BlockKind(enum.IntEnum):
    """The block types (docs/format.md, Block types). ``CORRUPT`` is never stored: it means bytes outside of blocks."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(enum.IntEnum):
    """The keys of a block header (docs/format.md, Block headers)."""

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
    """One block: its header and its place in the file.

    Attributes:
        kind: the block type.
        start: offset of its magic.
        end: offset after its last byte.
        header: its entries.
        content_start: offset of its content.
        content_size: size of its content in bytes.
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
        """Avro JSON of its records."""
        return self.header.get(HeaderKey.SCHEMA)

    @property
    def is_partial(self) -> bool:
        """Whether its records have only some of the columns (docs/format.md, Partial updates)."""
        return self.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    @property
    def compacted_block_times(self) -> tuple[str, ...]:
        """The instants whose blocks this one replaces (docs/format.md, Reading a slice)."""
        return tuple(time for time in self.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "").split(",") if time)


class NotABlock(Exception):
    """The bytes at an offset are not a block; internal to the readers of log files."""


def scan_blocks(read_at: ReadAt, size: int, what: str) -> Iterator[LogBlock]:
    r"""Yield the blocks of a log file in order; bytes outside of blocks become one ``CORRUPT`` block.

    A block counts if its two lengths agree and another block or the end of the file follows; after
    damage the scan resumes at the next magic, as in Hudi. A block cut off at the end is damage,
    too.

    Parameters:
        read_at: returns ``count`` bytes at an offset.
        size: size of the file in bytes.
        what: the file's name in errors.

    Raises:
        UnsupportedFeature: another format version, or an unknown block type or header key.

    Source: docs/format.md, Log blocks; Reading a slice.

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
    """Return the block at `start` without its content.

    Raises:
        NotABlock: the bytes are not a block.
        UnsupportedFeature: see :func:`scan_blocks`.
    """
    head = read_at(start, min(_FIRST_READ_BYTES, size - start))
    if len(head) < _FRAME_HEAD.size:
        raise NotABlock
    magic, length, version, type_number, entries = _FRAME_HEAD.unpack_from(head)
    end = start + _BEFORE_LENGTH + length
    if magic != MAGIC or not _LEAST_LENGTH <= length <= _MAX_BLOCK_BYTES or end > size:
        raise NotABlock
    if version != _FORMAT_VERSION:
        raise UnsupportedFeature(f"{what}: log format version {version} at byte {start}; version 1 is read")
    _check_block_end(read_at, length, end, size)
    header, content_start, content_size = _read_header(read_at, head, start, end, entries, what)
    return LogBlock(_block_kind(type_number, start, what), start, end, header, content_start, content_size)


def _check_block_end(read_at: ReadAt, length: int, end: int, size: int) -> None:
    tail = read_at(end - _LONG.size, min(_LONG.size + len(MAGIC), size - end + _LONG.size))
    follows = tail[_LONG.size :]
    if len(tail) < _LONG.size or _LONG.unpack_from(tail)[0] != length + len(MAGIC):
        raise NotABlock
    if len(follows) == len(MAGIC) and follows != MAGIC:
        raise NotABlock


def _block_kind(number: int, start: int, what: str) -> BlockKind:
    try:
        block_kind = BlockKind(number)
    except ValueError:
        raise UnsupportedFeature(f"{what}: block of unknown kind {number} at byte {start}") from None
    if block_kind is BlockKind.CORRUPT:
        raise NotABlock
    return block_kind


def _read_header(
    read_at: ReadAt, head: bytes, start: int, end: int, entries: int, what: str
) -> tuple[dict[HeaderKey, str], int, int]:
    """Return the header entries, and offset and size of the content after them."""
    if not 0 <= entries <= _MAX_HEADER_ENTRIES:
        raise NotABlock
    header: dict[HeaderKey, str] = {}
    offset = _FRAME_HEAD.size
    for _ in range(entries):
        head = _head_of_at_least(read_at, head, offset + _HEADER_ENTRY.size, start, end)
        key, length = _HEADER_ENTRY.unpack_from(head, offset)
        offset += _HEADER_ENTRY.size
        if not 0 <= length <= min(end - start - offset, _MAX_HEADER_BYTES):
            raise NotABlock
        head = _head_of_at_least(read_at, head, offset + length, start, end)
        header[_header_key(key, start, what)] = _entry_text(head[offset : offset + length])
        offset += length
    head = _head_of_at_least(read_at, head, offset + _LONG.size, start, end)
    (content_size,) = _LONG.unpack_from(head, offset)
    content_start = start + offset + _LONG.size
    # After the content: the number of footer entries and the reverse pointer.
    if not 0 <= content_size <= end - content_start - 4 - _LONG.size:
        raise NotABlock
    return header, content_start, content_size


def read_entries(data: bytes) -> dict[int, str]:
    """Return the entries of a footer: `data` is between content and reverse pointer.

    Raises:
        NotABlock: other bytes.
    """
    entries: dict[int, str] = {}
    if len(data) < 4:
        raise NotABlock
    offset = 4
    for _ in range(min(max(0, int.from_bytes(data[:4], "big", signed=True)), _MAX_HEADER_ENTRIES)):
        if offset + _HEADER_ENTRY.size > len(data):
            raise NotABlock
        key, length = _HEADER_ENTRY.unpack_from(data, offset)
        offset += _HEADER_ENTRY.size
        if not 0 <= length <= len(data) - offset:
            raise NotABlock
        entries[key] = _entry_text(data[offset : offset + length])
        offset += length
    if offset != len(data) or int.from_bytes(data[:4], "big", signed=True) != len(entries):
        raise NotABlock
    return entries


def _head_of_at_least(read_at: ReadAt, head: bytes, size: int, start: int, end: int) -> bytes:
    """Return at least `size` bytes from the start of the block."""
    if size <= len(head):
        return head
    if size > end - start:
        raise NotABlock
    more = read_at(start, min(max(size, 2 * len(head)), end - start))
    if len(more) < size:
        raise NotABlock
    return more


def _header_key(number: int, start: int, what: str) -> HeaderKey:
    try:
        return HeaderKey(number)
    except ValueError:
        raise UnsupportedFeature(f"{what}: unknown header key {number} in the block at byte {start}") from None


def _entry_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise NotABlock from None


def _next_magic(read_at: ReadAt, start: int, size: int) -> int:
    """Return the next possible start of a block: a magic, or the end of the file."""
    while start < size:
        chunk = read_at(start, min(_SEARCH_BYTES, size - start))
        index = chunk.find(MAGIC)
        if index >= 0:
            return start + index
        if start + len(chunk) >= size or len(chunk) < len(MAGIC):
            return size
        start += len(chunk) - len(MAGIC) + 1
    return size


# --------------------------------------------------------------------------------------------------------- writing


def encode_block(
    kind: BlockKind,
    header: Mapping[HeaderKey, str],
    *content: bytes | memoryview,
    footer: Mapping[int, str] | None = None,
) -> bytes:
    """Return a framed block; header entries keep their order.

    Parameters:
        kind: the block type.
        header: its entries.
        content: the content in chunks.
        footer: footer entries; Hudi writes none.

    Raises:
        InvalidInputError: the block exceeds 2 GiB, or the type is ``CORRUPT``.

    Source: docs/format.md, Log blocks.

    Example:
        >>> header = {HeaderKey.INSTANT_TIME: "20240101000000000"}
        >>> block = encode_block(BlockKind.AVRO_DATA, header, bytes(8))
        >>> [one.header for one in scan_blocks(lambda at, n: block[at : at + n], len(block), "a.log")] == [header]
        True
    """
    if kind is BlockKind.CORRUPT:
        raise InvalidInputError("a corrupt block cannot be written: it stands for bytes that are none")
    size = sum(len(memoryview(chunk).cast("B")) for chunk in content)
    head = struct.pack(">ii", _FORMAT_VERSION, kind) + _encode_entries(header) + _LONG.pack(size)
    tail = _encode_entries(footer or {})
    length = len(head) + size + len(tail) + _LONG.size
    if length > _MAX_BLOCK_BYTES:
        raise InvalidInputError(
            f"a block of {length:,} bytes cannot be read: write several, {_MAX_BLOCK_BYTES:,} at most"
        )
    return b"".join((MAGIC, _LONG.pack(length), head, *content, tail, _LONG.pack(length + len(MAGIC))))


def _encode_entries(entries: Mapping[HeaderKey, str] | Mapping[int, str]) -> bytes:
    parts = [struct.pack(">i", len(entries))]
    for key, value in entries.items():
        raw = value.encode()
        parts += [_HEADER_ENTRY.pack(key, len(raw)), raw]
    return b"".join(parts)


# ----------------------------------------------------------------------------------------------- records of Avro blocks

#: From this number of records on their offsets are searched from several starts in parallel
#: (minimum records, maximum starts).
_WORTH_LANES = 4096
_LEAST_LANE = 64
_MAX_LANES = 1024
#: The bytes of the first record to compare (mostly its commit time), and the window to search them
#: in.
_SAMPLE_BYTES = 16
_SAMPLE_WINDOW = 4096
_VERSION_AND_COUNT = struct.Struct(">ii")
_RECORD_LENGTH = struct.Struct(">i")


def record_spans(content: bytes | memoryview, what: str) -> tuple[I64, I64]:
    r"""Return the start and end offsets of the records in an Avro data block, int64.

    Raises:
        CorruptFile: the lengths do not fit the bytes.
        UnsupportedFeature: the content version is not 1, 2 or 3.

    Source: docs/format.md, Data blocks.

    Example:
        >>> starts, ends = record_spans(bytes.fromhex("00000003 00000001 00000002 0661"), "a.log")
        >>> starts.tolist(), ends.tolist()
        ([12], [14])
    """
    size = len(content)
    if size < _VERSION_AND_COUNT.size:
        raise CorruptFile(f"{what}: data block of {size} bytes is too short")
    version, count = _VERSION_AND_COUNT.unpack_from(content)
    if version not in (1, 2, 3):
        raise UnsupportedFeature(f"{what}: data block with content version {version}; versions 1 to 3 are read")
    if not 0 <= count <= (size - _VERSION_AND_COUNT.size) // 4:
        raise CorruptFile(f"{what}: data block of {size} bytes announces {count} records")
    starts = _spans_by_lanes(content, count) if count >= _WORTH_LANES else None
    if starts is None:
        starts = _spans_one_by_one(content, count, what)
    # Only a length is between two records.
    return starts, np.append(starts[1:] - 4, size)[:count]


def _spans_one_by_one(content: bytes | memoryview, count: int, what: str) -> I64:
    starts, size = array("q"), len(content)
    offset, unpack, begin = _VERSION_AND_COUNT.size, _RECORD_LENGTH.unpack_from, starts.append
    try:
        for _ in range(count):
            (length,) = unpack(content, offset)
            offset += 4
            begin(offset)
            offset += length
            if length < 0 or offset > size:
                raise CorruptFile(
                    f"{what}: record of {length} bytes at {offset - length} of a data block of {size} bytes"
                )
    except struct.error:
        raise CorruptFile(f"{what}: a data block of {size} bytes ends before its last record") from None
    if offset != size:
        raise CorruptFile(f"{what}: {size - offset} bytes behind the last record of a data block")
    return np.array(starts, np.int64)


def _spans_by_lanes(content: bytes | memoryview, count: int) -> I64 | None:
    """Return the record offsets, searched from several starts; None if a start was wrong.

    The first record's start is certain. Places that look like a record are further starts; if the
    walk from each start arrives exactly at the next, every start was one.
    """
    size = len(content)
    begins = _guessed_starts(content, min(_MAX_LANES, count // _LEAST_LANE))
    limits = np.append(begins[1:], size)
    lengths = np.ndarray((size - 3,), ">i4", content, 0, (1,))
    offsets, starts, total = begins, [], 0
    while len(offsets):
        if int(offsets.max()) > size - 4:
            return None
        length = lengths[offsets].astype(np.int64)
        total += len(offsets)
        starts.append(offsets + 4)
        offsets = offsets + length + 4
        if (length < 0).any() or (offsets > limits).any() or total > count:
            return None
        going_on = offsets < limits
        if not going_on.all():
            offsets, limits = offsets[going_on], limits[going_on]
    return np.sort(np.concatenate(starts)) if total == count else None


def _guessed_starts(content: bytes | memoryview, lanes: int) -> I64:
    """Return offsets where records seem to start: before bytes equal to the first record's."""
    size, first = len(content), _VERSION_AND_COUNT.size
    (length,) = _RECORD_LENGTH.unpack_from(content, first)
    sample = bytes(content[first + 4 : first + 4 + min(max(length, 0), _SAMPLE_BYTES)])
    offsets = [first]
    for lane in range(1, lanes):
        cut = first + (size - first) * lane // lanes
        index = bytes(content[cut + 4 : cut + _SAMPLE_WINDOW]).find(sample)
        if index >= 0 and cut + index > offsets[-1]:
            offsets.append(cut + index)
    return np.array(offsets, np.int64)


def split_avro_records(content: bytes, what: str) -> list[bytes]:
    r"""Return the records of an Avro data block as datums, for the few of an archive file.

    Raises:
        CorruptFile: the lengths do not fit the bytes.
        UnsupportedFeature: the content version is not 1, 2 or 3.

    Source: docs/format.md, Data blocks.

    Example:
        >>> split_avro_records(bytes.fromhex("00000003 00000001 00000002 0661"), "a.log")
        [b'\x06a']
    """
    spans = zip(*record_spans(content, what), strict=True)
    return [content[start:end] for start, end in spans]


def decode_avro_record(datum: bytes, schema: str, what: str, reader: str | None = None) -> dict[str, object]:
    r"""Return a record of an Avro data block as a dict.

    Parameters:
        datum: a record from :func:`split_avro_records`.
        schema: Avro JSON from the block's header.
        what: the file's name in errors.
        reader: Avro JSON of the result; None: that of the block.

    Raises:
        CorruptFile: the bytes are damaged or do not fit the schema.

    Source: docs/format.md, Data blocks.

    Example:
        >>> note = '{"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}'
        >>> decode_avro_record(bytes.fromhex("0261"), note, "a.log")
        {'text': 'a'}
    """
    try:
        record, end = _record_decoder(schema, reader)(datum, 0)
    except IndexError:
        raise CorruptFile(f"{what}: a record of a data block ends too early") from None
    except ValueError as error:
        raise CorruptFile(f"{what}: damaged data block: {error}") from None
    if not isinstance(record, dict) or end != len(datum):
        raise CorruptFile(f"{what}: a record of a data block does not fit its schema")
    return record


@lru_cache(maxsize=32)
def _record_decoder(schema: str, reader: str | None) -> Decode:
    writer = parse_avro_schema(schema)
    return compile_decoder(writer, writer if reader is None else parse_avro_schema(reader))


_HEAD = len(MAGIC) + 8
_POINTER = 8
_MAX_LENGTH = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class WholeBlock:
    """A block with its bytes.

    Attributes:
        block: its header and place in the file.
        content: its content; a view of the fed bytes if it arrived in one chunk.
        footer: its footer entries; Hudi writes none.
    """

    block: LogBlock
    content: bytes | memoryview
    footer: Mapping[int, str]

    @property
    def kind(self) -> BlockKind:
        """The block type."""
        return self.block.kind


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Bytes outside of blocks from `start` up to `end`, where the next block may begin."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Torn:
    """The beginning of a block cut off by the end of the file, from `start` up to `end`."""

    start: int
    end: int


class LogBlockReader:
    r"""Decodes one log file.

    Feed the bytes in order, in chunks of any size, and take complete blocks; :meth:`finish` returns
    the rest.

    Parameters:
        what: the file's name in errors.

    Example:
        >>> block = bytes.fromhex("234855444923 0000000000000020 00000001 00000000 00000000"
        ...     "0000000000000000 00000000 0000000000000026")
        >>> reader = LogBlockReader("a.log")
        >>> reader.feed(block + block[:20])
        >>> [each.kind.name for each in reader.take()], list(reader.finish())
        (['COMMAND'], [Torn(start=46, end=66)])
    """

    def __init__(self, what: str) -> None:
        self._what = what
        # The last fed bytes, uncopied while they are all there is.
        self._buffer: bytearray | memoryview = bytearray()
        self._base = 0
        self._wanted = _HEAD
        self._ended = False
        # Where to search the next magic, after the bytes at the start turned out not to be a block.
        self._search = 0

    def feed(self, data: bytes | memoryview) -> None:
        """Add the next bytes of the file; they must not change until they are taken."""
        if not len(self._buffer):
            self._buffer = memoryview(data).cast("B")
        else:
            self._writable_buffer().extend(data)

    def _writable_buffer(self) -> bytearray:
        if not isinstance(self._buffer, bytearray):
            self._buffer = bytearray(self._buffer)
        return self._buffer

    def take(self) -> Iterator[WholeBlock | Corrupt | Torn]:
        """Yield the complete blocks of the bytes fed so far, each once.

        Raises:
            UnsupportedFeature: another format version, or an unknown block type or header key.
        """
        while (item := self._next()) is not None:
            yield item

    def finish(self) -> Iterator[WholeBlock | Corrupt | Torn]:
        """Yield the rest after the end of the file.

        Raises:
            UnsupportedFeature: see :meth:`take`.
        """
        self._ended = True
        yield from self.take()

    def _next(self) -> WholeBlock | Corrupt | Torn | None:
        while len(self._buffer):
            if self._search:
                return self._damage()
            if not self._ended and len(self._buffer) < self._wanted:
                return None
            end = self._claimed_end()
            if end is not None and not self._ended and len(self._buffer) < end + len(MAGIC):
                # The bytes after a block decide whether it is one.
                self._wanted = end + len(MAGIC)
                return None
            try:
                return self._block()
            except NotABlock:
                self._search = 1
        return None

    def _claimed_end(self) -> int | None:
        """Return the end that the block claims; None if no block begins here."""
        length = int.from_bytes(self._buffer[len(MAGIC) : _HEAD], "big", signed=True)
        if len(self._buffer) < _HEAD or bytes(self._buffer[: len(MAGIC)]) != MAGIC or not 0 <= length <= _MAX_LENGTH:
            return None
        return _HEAD + length

    def _block(self) -> WholeBlock:
        data = self._buffer
        block = read_block(lambda start, count: bytes(data[start : start + count]), 0, len(data), self._what)
        content_end = block.content_start + block.content_size
        footer = read_entries(bytes(data[content_end : block.end - _POINTER]))
        content = data[block.content_start : content_end]
        base = self._base
        moved = replace(block, start=base, end=base + block.end, content_start=base + block.content_start)
        self._drop(block.end)
        return WholeBlock(moved, bytes(content) if isinstance(content, bytearray) else content, footer)

    def _damage(self) -> Corrupt | Torn | None:
        index = self._writable_buffer().find(MAGIC, self._search)
        if index < 0 and not self._ended:
            # The magic may be split between two chunks.
            self._search = max(self._search, len(self._buffer) - len(MAGIC) + 1)
            return None
        start = self._base
        is_torn = index < 0 and self._is_cut_off()
        self._drop(len(self._buffer) if index < 0 else index)
        return Torn(start, self._base) if is_torn else Corrupt(start, self._base)

    def _is_cut_off(self) -> bool:
        if len(self._buffer) < _HEAD:
            return MAGIC.startswith(bytes(self._buffer[: len(MAGIC)]))
        end = self._claimed_end()
        return end is not None and end > len(self._buffer)

    def _drop(self, size: int) -> None:
        if isinstance(self._buffer, bytearray):
            del self._buffer[:size]
        else:
            self._buffer = self._buffer[size:]
        self._base += size
        self._wanted = _HEAD
        self._search = 0
