"""Blocks of an HFile: the header of 33 bytes, the compressed payload, the checksum words behind it. Pure."""

from __future__ import annotations

import enum
import struct
import zlib
from typing import Final

import pyarrow as pa

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, UnsupportedFeature

__all__ = [
    "HEADER_BYTES",
    "MAX_BLOCK_BYTES",
    "BlockFrame",
    "BlockType",
    "Codec",
    "checksum_bytes",
    "encode_hfile_block",
    "read_frame",
    "read_payload",
]


class BlockType(bytes, enum.Enum):
    """The eight bytes that a block begins with."""

    DATA = b"DATABLK*"
    META = b"METABLKc"
    LEAF_INDEX = b"IDXLEAF2"
    INTERMEDIATE_INDEX = b"IDXINTE2"
    ROOT_INDEX = b"IDXROOT2"
    FILE_INFO = b"FILEINF2"


class Codec(enum.IntEnum):
    """How payloads are compressed: the numbers of the trailer."""

    LZO = 0
    GZIP = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6


@dataclass(frozen=True, slots=True)
class BlockFrame:
    """What the header of a block says.

    Attributes:
        size: bytes of the block in the file, header and checksum words included.
        payload_size: bytes of its compressed payload.
        uncompressed_size: bytes of its payload when decompressed.
    """

    size: int
    payload_size: int
    uncompressed_size: int


#: Magic, size without header, uncompressed size, offset of the block before, checksum type, bytes per checksum word, size
#: without checksum words.
_HEADER = struct.Struct(">8siiqBii")
HEADER_BYTES = _HEADER.size
_BYTES_PER_CHECKSUM = 16384
_CHECKSUM_WORD = 4
_NO_CHECKSUM = 0
#: A block is decompressed as a whole. Hudi's are of one mebibyte, or of one record that is larger.
MAX_BLOCK_BYTES = 1 << 30
#: Deflate makes at most this many bytes of one.
_MOST_INFLATION = 1032
_GZIP_WINDOW = 31
_GZIP_MAGIC: Final = b"\x1f\x8b"
#: A payload of this many bytes is decompressed at once: fewer Python's zlib has as soon, and of more the claim is not believed.
_LEAST_AT_ONCE, _MOST_AT_ONCE = 64 << 10, 16 << 20
#: To make ready the memory that deflate takes by default costs more than to compress a few kilobytes.
_SMALL_PAYLOAD, _LITTLE_MEMORY = 8192, 4


def read_frame(data: memoryview, expected: BlockType, what: str) -> BlockFrame:
    """Return what the header of a block says, whose bytes are the first of `data`.

    Raises:
        CorruptFile: it is no such block, or its sizes contradict each other.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptFile(f"{what}: the header of a block is cut off")
    magic, behind, uncompressed, _, _, _, with_header = _HEADER.unpack_from(data)
    if magic != expected.value:
        raise CorruptFile(f"{what}: {magic!r} instead of a block of type {expected.name}")
    payload = with_header - HEADER_BYTES
    if not 0 <= payload <= behind or not 0 <= uncompressed <= MAX_BLOCK_BYTES:
        raise CorruptFile(f"{what}: a block of {behind:,} bytes says that {payload:,} of them are its payload")
    return BlockFrame(HEADER_BYTES + behind, payload, uncompressed)


def read_payload(data: memoryview, expected: BlockType, codec: Codec, what: str) -> bytes | memoryview:
    """Return the decompressed payload of the block whose bytes are the first of `data`.

    Raises:
        CorruptFile: it is no such block, is cut off, or does not decompress to the size that it claims.
        UnsupportedFeature: the codec is neither gzip nor none.
    """
    frame = read_frame(data, expected, what)
    if frame.size > len(data):
        raise CorruptFile(f"{what}: a block of {frame.size:,} bytes is cut off after {len(data):,}")
    payload = data[HEADER_BYTES : HEADER_BYTES + frame.payload_size]
    if codec is Codec.NONE:
        if len(payload) != frame.uncompressed_size:
            raise CorruptFile(f"{what}: {len(payload):,} bytes in a block of {frame.uncompressed_size:,}")
        return payload
    if codec is not Codec.GZIP:
        raise UnsupportedFeature(f"{what}: blocks are compressed with {codec.name}; Hudi uses gzip, or no compression")
    return _decompressed(payload, frame.uncompressed_size, what)


def _decompressed(payload: memoryview, size: int, what: str) -> bytes:
    if size > len(payload) * _MOST_INFLATION:
        raise CorruptFile(f"{what}: {len(payload):,} compressed bytes cannot hold the {size:,} that the block claims")
    # A stream ends with the number of its bytes, which is checked when it is decompressed: then none is missing.
    says = int.from_bytes(payload[-4:], "little") if bytes(payload[:2]) == _GZIP_MAGIC else -1
    if _LEAST_AT_ONCE <= size <= _MOST_AT_ONCE and says == size:
        try:
            return bytes(pa.Codec("gzip").decompress(payload, size, asbytes=True))
        except OSError as error:
            raise CorruptFile(f"{what}: a block does not decompress: {error}") from None
    inflate = zlib.decompressobj(_GZIP_WINDOW)
    try:
        # One byte more than claimed, so that the end of the stream is seen and a longer one is noticed.
        data = inflate.decompress(payload, size + 1)
    except zlib.error as error:
        raise CorruptFile(f"{what}: a block does not decompress: {error}") from None
    if len(data) != size or not inflate.eof or inflate.unused_data:
        raise CorruptFile(f"{what}: a block does not decompress to the {size:,} bytes that it claims")
    return data


def checksum_bytes(block_size: int) -> int:
    """Return the bytes of the checksum words of a block, of which `block_size` bytes are header and payload.

    Readers count the words over the words, too; so one more is reserved where both ways of counting differ.

    Example:
        >>> checksum_bytes(92), checksum_bytes(16384), checksum_bytes(16383)
        (4, 8, 8)
    """
    words = -(-block_size // _BYTES_PER_CHECKSUM)
    while (needed := -(-(block_size + _CHECKSUM_WORD * words) // _BYTES_PER_CHECKSUM)) > words:
        words = needed
    return _CHECKSUM_WORD * words


def encode_hfile_block(kind: BlockType, payload: bytes | memoryview, codec: Codec, level: int, previous: int) -> bytes:
    """Return a block; its checksum words are reserved and zero, its checksum type says that there are none.

    Parameters:
        kind: its type.
        payload: what it holds.
        codec: gzip or none.
        level: effort of the compression, 1 to 9.
        previous: offset of the block of this type before it; -1: there is none.
    """
    uncompressed = len(payload)
    if codec is Codec.GZIP:
        memory = _LITTLE_MEMORY if uncompressed <= _SMALL_PAYLOAD else zlib.DEF_MEM_LEVEL
        deflate = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW, memory)
        payload = deflate.compress(payload) + deflate.flush()
    with_header = HEADER_BYTES + len(payload)
    words = checksum_bytes(with_header)
    header = _HEADER.pack(
        kind.value,
        len(payload) + words,
        uncompressed,
        previous,
        _NO_CHECKSUM,
        _BYTES_PER_CHECKSUM,
        with_header,
    )
    return b"".join((header, payload, bytes(words)))
