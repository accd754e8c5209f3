"""Read and write the parts of an HFile: blocks, records, indexes, trailer (docs/format.md, HFile). Pure.

A block is a header of 33 bytes, the compressed payload, and the checksum words behind it. An index block tells where each data
block is, and a key that none of its keys is smaller than. The last 4,096 bytes of a file are its trailer. The trailer and the file
info are Protocol Buffers messages; the few kinds of fields that they have are read and written here.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import distinct, from_numpy, text_offsets
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = [
    "AROUND_KEY",
    "HEADER_BYTES",
    "KEY_TAIL",
    "LENGTHS",
    "MAX_BLOCK_BYTES",
    "MAX_KEY_BYTES",
    "TRAILER_BYTES",
    "BlockFrame",
    "BlockType",
    "Codec",
    "DamagedMessage",
    "DataBlock",
    "DecodedBlock",
    "EncodedKeyValues",
    "IndexEntry",
    "Prefixes",
    "Trailer",
    "checksum_bytes",
    "decoded_block",
    "encode_few",
    "encode_fields",
    "encode_file_info",
    "encode_hfile_block",
    "encode_index",
    "encode_key_values",
    "encode_trailer",
    "encode_varint",
    "read_fields",
    "read_file_info",
    "read_frame",
    "read_leaf_index",
    "read_meta_index",
    "read_payload",
    "read_records",
    "read_root_index",
    "read_trailer",
    "read_varint",
]


# ------------------------------------------------------------------------------------------------------------- messages

_WIRE_VARINT, _WIRE_FIXED64, _WIRE_BYTES, _WIRE_FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_SMALL_VARINTS = [bytes((number,)) for number in range(0x80)]


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
        # Most tags and numbers are of one byte: those are read in line, a call for each would double the time.
        tag, position = (data[position], position + 1) if data[position] < 0x80 else read_varint(data, position)
        wire_type = tag & 7
        if wire_type in (_WIRE_BYTES, _WIRE_VARINT):
            small = position < end and data[position] < 0x80
            number, position = (data[position], position + 1) if small else read_varint(data, position)
            if wire_type == _WIRE_VARINT:
                yield tag >> 3, number
                continue
        elif wire_type in (_WIRE_FIXED32, _WIRE_FIXED64):
            number = 4 if wire_type == _WIRE_FIXED32 else 8
        else:
            raise DamagedMessage(f"a field has the unknown wire type {wire_type}")
        begin, position = position, position + number
        if position > end:
            raise DamagedMessage("a field is cut off")
        yield tag >> 3, data[begin:position]


def encode_varint(value: int) -> bytes:
    """Return an unsigned number.

    Example:
        >>> encode_varint(300).hex()
        'ac02'
    """
    if value < 0x80:
        return _SMALL_VARINTS[value]  # most numbers are small
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
            out += encode_varint(number << 3 | _WIRE_VARINT) + encode_varint(value)
        else:
            out += encode_varint(number << 3 | _WIRE_BYTES) + encode_varint(len(value)) + value
    return bytes(out)


# --------------------------------------------------------------------------------------------------------------- blocks


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
_BLOCK_HEADER = struct.Struct(">8siiqBii")
HEADER_BYTES = _BLOCK_HEADER.size
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
    magic, behind, uncompressed, _, _, _, with_header = _BLOCK_HEADER.unpack_from(data)
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
    return _decompressed_payload(payload, frame.uncompressed_size, what)


def _decompressed_payload(payload: memoryview, size: int, what: str) -> bytes:
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


def encode_hfile_block(
    block_type: BlockType, payload: bytes | memoryview, codec: Codec, level: int, previous: int
) -> bytes:
    """Return a block; its checksum words are reserved and zero, its checksum type says that there are none.

    Parameters:
        block_type: its type.
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
    header = _BLOCK_HEADER.pack(
        block_type.value,
        len(payload) + words,
        uncompressed,
        previous,
        _NO_CHECKSUM,
        _BYTES_PER_CHECKSUM,
        with_header,
    )
    return b"".join((header, payload, bytes(words)))


# -------------------------------------------------------------------------------------------------------------- indexes

#: Behind the content of a key: no column family, the largest timestamp, the type Put. HBase needs it, Hudi skips it.
KEY_TAIL = bytes.fromhex("00 7fffffffffffffff 04")

_BLOCK_PLACE = struct.Struct(">qi")
_SHORT = struct.Struct(">H")
_INT = struct.Struct(">i")


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
        offset, size, key, position = _read_index_entry(payload, position, what)
        entries.append(IndexEntry(offset, size, _key_content(key, what)))
    return entries


def read_meta_index(payload: bytes | memoryview, count: int, what: str) -> list[IndexEntry]:
    """Return the entries of the index of meta blocks, whose keys are names.

    Raises:
        CorruptFile: the payload holds fewer.
    """
    entries, position = [], 0
    for _ in range(count):
        offset, size, key, position = _read_index_entry(payload, position, what)
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
    starts = struct.unpack_from(f">{count + 1}i", payload, _INT.size)
    entries = []
    for start, end in pairwise(starts):
        if not 0 <= start <= end - _BLOCK_PLACE.size or begin + end > len(payload):
            raise CorruptFile(f"{what}: a damaged index block")
        offset, size = _BLOCK_PLACE.unpack_from(payload, begin + start)
        key = bytes(payload[begin + start + _BLOCK_PLACE.size : begin + end])
        entries.append(IndexEntry(offset, size, _key_content(key, what)))
    return entries


def _read_index_entry(payload: bytes | memoryview, position: int, what: str) -> tuple[int, int, bytes, int]:
    if position + _BLOCK_PLACE.size + 1 > len(payload):
        raise CorruptFile(f"{what}: an index ends before its last entry")
    offset, size = _BLOCK_PLACE.unpack_from(payload, position)
    length, begin = _read_vlong(payload, position + _BLOCK_PLACE.size)
    if not 0 <= length <= len(payload) - begin:
        raise CorruptFile(f"{what}: a key of an index is cut off")
    return offset, size, bytes(payload[begin : begin + length]), begin + length


def _key_content(key: bytes, what: str) -> bytes:
    """Return what stands between the length and the tail of a key, which not every writer adds."""
    length = _SHORT.unpack_from(key)[0] if len(key) >= _SHORT.size else MAX_KEY_BYTES + 1
    if length > min(MAX_KEY_BYTES, len(key) - _SHORT.size):
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
        out += [_BLOCK_PLACE.pack(entry.offset, entry.size), _encode_vlong(len(key)), key]
    return b"".join(out)


# -------------------------------------------------------------------------------------------------------------- records

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

#: Java counts the bytes of a key in a signed short.
MAX_KEY_BYTES = (1 << 15) - 1
#: Lengths of key, value and content, in front of the content.
LENGTHS = struct.Struct(">iiH")
_RECORD_HEAD_BYTES = LENGTHS.size
#: The bytes of a key beside its content.
AROUND_KEY = 2 + len(KEY_TAIL)
#: The two lengths before a key, and the zero byte behind a value.
_AROUND_LENGTHS = 9
_LEAST_RECORD = _RECORD_HEAD_BYTES + len(KEY_TAIL) + 1
#: A block is kept decoded where there are at least this many records for each distinct value.
_RECORDS_PER_VALUE = 16
_FEWEST_DECODED_RECORDS = 256
#: Bytes that are looked at together: as many as stay in the processor's caches.
_CANDIDATE_STEP = 1 << 18


class Prefixes:
    """How the keys that are looked for begin.

    Parameters:
        texts: binary; nulls are not looked for, an empty one is the beginning of every key.

    Attributes:
        texts: distinct, without nulls.
    """

    def __init__(self, texts: pa.Array) -> None:
        self.texts: pa.BinaryArray = pc.unique(texts.cast(pa.binary())).drop_null()

    @cached_property
    def by_length(self) -> dict[int, pa.BinaryArray]:
        """The texts by their length in bytes."""
        lengths = pc.binary_length(self.texts)
        return {int(length): self.texts.filter(pc.equal(lengths, length)) for length in distinct(lengths.to_numpy())}

    @cached_property
    def heads(self) -> tuple[bytes, ...]:
        """The texts one by one."""
        return tuple(self.texts.to_pylist())


@dataclass(frozen=True, slots=True, eq=False)
class DataBlock:
    """The records of a decompressed data block.

    Attributes:
        num_rows: how many there are.
    """

    num_rows: int
    # Every record is four of these: key, tail, value, and what is between the value and the next key.
    _parts: pa.BinaryArray

    def keys(self, rows: I64 | None = None) -> pa.BinaryArray:
        """Return the key of the records whose numbers are `rows`; None: of all."""
        rows = np.arange(self.num_rows) if rows is None else rows
        return self._parts.take(from_numpy(4 * rows))

    def _key_heads(self, length: int) -> pa.BinaryArray:
        """Return the first `length` bytes of every key; shorter keys are whole."""
        offsets = np.frombuffer(self._parts.buffers()[1], np.int32)
        heads = np.empty(2 * self.num_rows, np.int32)
        heads[::2] = offsets[::4]
        heads[1::2] = np.minimum(offsets[::4] + length, offsets[1::4])
        data = self._parts.buffers()[2]
        parts = pa.Array.from_buffers(pa.binary(), len(heads) - 1, [None, pa.py_buffer(heads), data])
        return parts.take(from_numpy(np.arange(0, len(heads), 2)))

    def rows_of(self, keys: pa.BinaryArray) -> I64:
        """Return the numbers of the records whose key is one of `keys`, ascending."""
        return np.flatnonzero(pc.is_in(self.keys(), value_set=keys).to_numpy(zero_copy_only=False))

    def rows_beginning(self, prefixes: Prefixes) -> I64:
        """Return the numbers of the records whose key begins with one of `prefixes`, ascending."""
        fits = np.zeros(self.num_rows, bool)
        for length, texts in prefixes.by_length.items():
            fits |= pc.is_in(self._key_heads(length), value_set=texts).to_numpy(zero_copy_only=False)
        return np.flatnonzero(fits)

    def values(self, rows: I64 | None = None) -> pa.BinaryArray:
        """Return the value of the records whose numbers are `rows`; None: of all."""
        rows = np.arange(self.num_rows) if rows is None else rows
        return self._parts.take(from_numpy(4 * rows + 2))


@dataclass(frozen=True, slots=True, eq=False)
class DecodedBlock:
    """The records of a data block in less memory than its bytes: keys, and values of which few are distinct.

    Attributes:
        nbytes: of memory.
    """

    nbytes: int
    _keys: pa.BinaryArray
    _values: pa.DictionaryArray

    def keys(self, rows: I64) -> pa.BinaryArray:
        """Return the key of the records whose numbers are `rows`."""
        return self._keys.take(from_numpy(rows))

    def rows_of(self, keys: pa.BinaryArray) -> I64:
        """Return the numbers of the records whose key is one of `keys`, ascending."""
        return np.flatnonzero(pc.is_in(self._keys, value_set=keys).to_numpy(zero_copy_only=False))

    def values(self, rows: I64) -> pa.BinaryArray:
        """Return the value of the records whose numbers are `rows`."""
        return self._values.dictionary.take(self._values.indices.take(from_numpy(rows)))


def decoded_block(block: DataBlock) -> DecodedBlock | None:
    """Return a block in less memory; None: it is small, or too many of its values are distinct."""
    if block.num_rows < _FEWEST_DECODED_RECORDS:
        return None
    values = block.values().dictionary_encode()
    if len(values.dictionary) * _RECORDS_PER_VALUE > block.num_rows:
        return None
    keys = block.keys()
    return DecodedBlock(keys.nbytes + values.nbytes, keys, values)


def read_records(payload: bytes | memoryview, what: str) -> DataBlock:
    """Return the records of a data block by columns: where their keys and values are.

    A record is the length of its key with 12 bytes around it, the length of its value, the length of the key's content, the
    content, ten bytes that are the same in every record, the value and a zero byte. No record says where the next one begins
    but by its own lengths, so one would have to go from record to record. Instead every byte is asked at once whether a record
    could begin there; what begins there by chance is found out afterwards, by following the lengths from all places together.

    Raises:
        CorruptFile: the bytes are not a row of records.
    """
    if not len(payload):
        return DataBlock(0, pa.array([], pa.binary()))
    data = np.frombuffer(payload, np.uint8)
    starts, keys, values = _records_of_one_key_size(data) or _record_candidates(data)
    following = starts + _AROUND_LENGTHS + keys + values
    if len(starts) == 0 or starts[0] != 0 or following[-1] != len(data) or (following[:-1] != starts[1:]).any():
        rows = _reached_candidates(starts, following, len(data), what)
        starts, keys, values = starts[rows], keys[rows], values[rows]
    offsets = np.empty(4 * len(starts), np.int32)
    offsets[::4] = starts + _RECORD_HEAD_BYTES
    offsets[1::4] = starts + (_RECORD_HEAD_BYTES - AROUND_KEY) + keys
    offsets[2::4] = starts + (_RECORD_HEAD_BYTES - 2) + keys
    offsets[3::4] = starts + (_RECORD_HEAD_BYTES - 2) + keys + values
    parts = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(payload)])
    return DataBlock(len(starts), parts)


def _records_of_one_key_size(data: U8) -> tuple[I64, I64, I64] | None:
    """Return where records begin, and the bytes of their keys and values, when all keys are as long as the first one.

    Behind every key are the same ten bytes, so records are found by them. None: keys of several lengths, or other bytes.
    """
    tails = _key_tails(data)
    size = int.from_bytes(data[_RECORD_HEAD_BYTES - 2 : _RECORD_HEAD_BYTES].tobytes(), "big")
    starts = tails - (_RECORD_HEAD_BYTES + size)
    if size > MAX_KEY_BYTES or not len(starts) or starts[0] != 0 or (starts[:-1] >= starts[1:]).any():
        return None
    # The lengths of key and value, four bytes each.
    lengths = np.ndarray((len(data) - 7,), ">u8", data, 0, (1,))[starts].astype(np.uint64)
    values = (lengths & np.uint64(0xFFFFFFFF)).astype(np.int64)
    following = tails + (len(KEY_TAIL) + 1) + values
    shorts: npt.NDArray[np.uint16] = np.ndarray((len(data) - 1,), ">u2", data, 0, (1,))
    if (following[:-1] != starts[1:]).any() or following[-1] != len(data):
        return None
    if ((lengths >> np.uint64(32)) != size + AROUND_KEY).any() or (shorts[starts + 8] != size).any():
        return None
    return starts, np.full(len(starts), size + AROUND_KEY), values


def _key_tails(data: U8) -> I64:
    """Return where the ten bytes begin that stand behind every key, and maybe other places.

    Seven of them are 255, so four of those are a whole word, of which there are a fourth as many as bytes.
    """
    shift = -data.ctypes.data % 4
    words = data[shift : shift + (len(data) - shift) // 4 * 4].view(np.uint32)
    ends: I64 = 4 * np.flatnonzero(words == 0xFFFFFFFF) + (shift + 4)
    ends = ends[ends + 3 < len(data)]
    more = data[ends] == 255
    steps: I64 = more.astype(np.int64)
    for step in (1, 2):
        more &= data[ends + step] == 255
        steps += more
    tails: I64 = ends + steps - (len(KEY_TAIL) - 1)
    return tails


def _record_candidates(data: U8) -> tuple[I64, I64, I64]:
    """Return where records may begin, by their own lengths, and as if they did the bytes of their keys and values."""
    end = len(data) - _LEAST_RECORD + 1
    candidates = [np.zeros(0, np.int64)]
    for begin in range(0, end, _CANDIDATE_STEP):
        size = min(_CANDIDATE_STEP, end - begin)
        # The length of a key is at most 32,779, so its two highest bytes are zero; its lowest one follows from the
        # length of the content.
        upper = data[begin : begin + size] | data[begin + 1 : begin + 1 + size]
        fits = (data[begin + 3 : begin + 3 + size] - data[begin + 9 : begin + 9 + size]) == AROUND_KEY
        fits &= upper == 0
        candidates.append(np.flatnonzero(fits) + begin)
    starts = np.concatenate(candidates)
    shorts = np.ndarray((max(0, len(data) - 1),), ">u2", data, 0, (1,))
    ints = np.ndarray((max(0, len(data) - 3),), ">i4", data, 0, (1,))
    content = shorts[starts + 8].astype(np.int64)
    keys, values = shorts[starts + 2].astype(np.int64), ints[starts + 4].astype(np.int64)
    fits = (keys == content + AROUND_KEY) & (content <= MAX_KEY_BYTES) & (values >= 0)
    fits &= keys + values <= len(data) - starts - _AROUND_LENGTHS
    return (starts, keys, values) if fits.all() else (starts[fits], keys[fits], values[fits])


def _reached_candidates(starts: I64, following: I64, size: int, what: str) -> I64:
    """Return which of the candidates are reached from the first byte by going from each to the one that follows it.

    All are followed at once: after each round, twice as many steps have been made.
    """
    positions = np.append(starts, size)
    end = len(starts)
    # Places behind the last one lead nowhere, and what leads nowhere stays where it is.
    jump = np.minimum(np.searchsorted(positions, following), end)
    dead = (positions[jump] != following) | (following <= starts)
    jump = np.append(np.where(dead, np.arange(end), jump), end)
    reached = np.zeros(end + 1, bool)
    reached[:1] = positions[0] == 0
    for _ in range(end.bit_length() + 1):
        reached[jump[reached]] = True
        jump = jump[jump]
    if not reached[end]:
        raise CorruptFile(f"{what}: the lengths of the records in a block do not lead from one to the next")
    return np.flatnonzero(reached[:end])


# ----------------------------------------------------------------------------------------------------- records, written


@dataclass(frozen=True, slots=True, eq=False)
class EncodedKeyValues:
    """Records of a data block, one behind the other.

    Attributes:
        data: their bytes.
        offsets: where each begins in `data`, and where the last one ends.
        key_bytes: of all keys together.
        value_bytes: of all values together.
    """

    data: memoryview
    offsets: I64
    key_bytes: int
    value_bytes: int


def encode_key_values(keys: pa.Array, values: pa.Array) -> EncodedKeyValues:
    """Return records of keys and values, both as large binary arrays without nulls.

    Raises:
        InvalidInputError: a key or a value is longer than the format counts.
    """
    rows = len(keys)
    key_sizes, value_sizes = _text_sizes(keys), _text_sizes(values)
    _check_record_sizes(int(key_sizes.max(initial=0)), int(value_sizes.max(initial=0)))
    heads = np.empty(rows, _RECORD_HEADS)
    heads["key"] = key_sizes + AROUND_KEY
    heads["value"] = value_sizes
    heads["content"] = key_sizes
    head_offsets = np.arange(0, _RECORD_HEAD_BYTES * rows + 1, _RECORD_HEAD_BYTES)
    fixed = pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(head_offsets), pa.py_buffer(heads)])
    records = pc.binary_join_element_wise(fixed, keys, _KEY_TAIL_SCALAR, values, _ZERO_BYTE_SCALAR, _EMPTY_SCALAR)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(key_sizes + value_sizes + _LEAST_RECORD)])
    data = records.buffers()[2]
    data = memoryview(b"" if data is None else data)[: int(offsets[-1])]
    return EncodedKeyValues(data, offsets, int(key_sizes.sum()), int(value_sizes.sum()))


def encode_few(keys: Sequence[bytes], values: Sequence[bytes]) -> EncodedKeyValues:
    """Return the same of a few keys and values, one after the other.

    Raises:
        InvalidInputError: see :func:`encode_key_values`.
    """
    _check_record_sizes(max(map(len, keys), default=0), max(map(len, values), default=0))
    records: list[bytes] = []
    for key, value in zip(keys, values, strict=True):
        head = LENGTHS.pack(len(key) + AROUND_KEY, len(value), len(key))
        records.append(b"".join((head, key, KEY_TAIL, value, b"\0")))
    offsets = np.cumsum([0, *map(len, records)], dtype=np.int64)
    return EncodedKeyValues(memoryview(b"".join(records)), offsets, sum(map(len, keys)), sum(map(len, values)))


def _check_record_sizes(key: int, value: int) -> None:
    if key > MAX_KEY_BYTES:
        raise InvalidInputError(f"a key of {key:,} bytes: an HFile holds keys of {MAX_KEY_BYTES:,}")
    if value >= 1 << 30:
        raise InvalidInputError(f"a value of {value:,} bytes is too large for a block of an HFile")


_RECORD_HEADS = np.dtype([("key", ">i4"), ("value", ">i4"), ("content", ">u2")])
_KEY_TAIL_SCALAR, _ZERO_BYTE_SCALAR, _EMPTY_SCALAR = (
    pa.scalar(each, pa.large_binary()) for each in (KEY_TAIL, b"\0", b"")
)


def _text_sizes(texts: pa.Array) -> I64:
    return np.diff(text_offsets(texts)).astype(np.int64)


# ------------------------------------------------------------------------------------------------ trailer and file info

TRAILER_BYTES = 4096
_TRAILER_MAGIC = b'TRABLK"$'
_VERSION_BYTES = 4
_MAJOR_VERSION = 3
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_INFO_MAGIC = b"PBUF"
#: Hudi writes a dozen.
_MAX_INFO_ENTRIES = 1024
_NO_OFFSET = (1 << 64) - 1

# Numbers of the fields of the trailer's message.
_FILE_INFO_OFFSET, _LOAD_ON_OPEN_OFFSET, _INDEX_BYTES = 1, 2, 3
_DATA_INDEX_COUNT, _META_INDEX_COUNT, _ENTRY_COUNT, _INDEX_LEVELS = 5, 6, 7, 8
_FIRST_DATA_OFFSET, _LAST_DATA_OFFSET, _COMPARATOR_NAME, _COMPRESSION = 9, 10, 11, 12


@dataclass(frozen=True, slots=True)
class Trailer:
    """What the end of the file says.

    Attributes:
        load_on_open_offset: where the root index begins; the index of meta blocks and the file info follow it.
        file_info_offset: where the file info begins; only written, its place follows from the blocks before it.
        data_index_count: entries of the root index.
        meta_index_count: entries of the index of meta blocks.
        entry_count: records of the file.
        index_levels: 1 when the root index names data blocks, one more for each level of indexes below it.
        codec: how payloads are compressed.
        last_data_offset: where the last data block begins; None: there is none. Only written.
        index_bytes: bytes of the root index. Only written.
    """

    load_on_open_offset: int
    file_info_offset: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    codec: Codec
    last_data_offset: int | None = None
    index_bytes: int = 0


def read_trailer(data: bytes, what: str) -> Trailer:
    """Return the trailer, whose bytes are all of `data`.

    Raises:
        CorruptFile: it is none.
        UnsupportedFeature: the file has another major version.
    """
    if len(data) != TRAILER_BYTES or not data.startswith(_TRAILER_MAGIC):
        raise CorruptFile(f"{what}: no HFile, or one that was cut off: it does not end in a trailer")
    major = int.from_bytes(data[-_VERSION_BYTES + 1 :], "big")
    if major != _MAJOR_VERSION:
        raise UnsupportedFeature(f"{what}: an HFile of version {major}; version {_MAJOR_VERSION} is read")
    try:
        size, begin = read_varint(data, len(_TRAILER_MAGIC))
        if size > TRAILER_BYTES - _VERSION_BYTES - begin:
            raise DamagedMessage("it is longer than the trailer")
        fields = {number: value for number, value in read_fields(data[begin : begin + size]) if isinstance(value, int)}
    except DamagedMessage as error:
        raise CorruptFile(f"{what}: its trailer is damaged: {error}") from None
    missing = [n for n in (_LOAD_ON_OPEN_OFFSET, _DATA_INDEX_COUNT, _ENTRY_COUNT) if n not in fields]
    if missing:
        raise CorruptFile(f"{what}: its trailer lacks the fields {missing}")
    return Trailer(
        fields[_LOAD_ON_OPEN_OFFSET],
        fields.get(_FILE_INFO_OFFSET, 0),
        fields[_DATA_INDEX_COUNT],
        fields.get(_META_INDEX_COUNT, 0),
        fields[_ENTRY_COUNT],
        fields.get(_INDEX_LEVELS, 1),
        _codec_of_number(fields.get(_COMPRESSION, Codec.NONE), what),
    )


def _codec_of_number(number: int, what: str) -> Codec:
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedFeature(f"{what}: unknown compression codec {number}") from None


def encode_trailer(trailer: Trailer) -> bytes:
    """Return the trailer as the last bytes of a file."""
    last = trailer.last_data_offset
    message = encode_fields(
        [
            (_FILE_INFO_OFFSET, trailer.file_info_offset),
            (_LOAD_ON_OPEN_OFFSET, trailer.load_on_open_offset),
            (_INDEX_BYTES, trailer.index_bytes),
            (_DATA_INDEX_COUNT, trailer.data_index_count),
            (_META_INDEX_COUNT, trailer.meta_index_count),
            (_ENTRY_COUNT, trailer.entry_count),
            (_INDEX_LEVELS, trailer.index_levels),
            (_FIRST_DATA_OFFSET, _NO_OFFSET if last is None else 0),
            (_LAST_DATA_OFFSET, 0 if last is None else last),
            (_COMPARATOR_NAME, _COMPARATOR),
            (_COMPRESSION, trailer.codec),
        ]
    )
    head = _TRAILER_MAGIC + encode_varint(len(message)) + message
    return head.ljust(TRAILER_BYTES - _VERSION_BYTES, b"\0") + _MAJOR_VERSION.to_bytes(_VERSION_BYTES, "big")


def read_file_info(payload: bytes, what: str) -> dict[str, bytes]:
    """Return the entries of the file info.

    Raises:
        CorruptFile: the payload is none.
    """
    entries: dict[str, bytes] = {}
    try:
        if not payload.startswith(_INFO_MAGIC):
            raise DamagedMessage("it does not begin with PBUF")
        size, begin = read_varint(payload, len(_INFO_MAGIC))
        if size > len(payload) - begin:
            raise DamagedMessage("it is cut off")
        for number, (_, entry) in enumerate(read_fields(payload[begin : begin + size])):
            if number >= _MAX_INFO_ENTRIES or not isinstance(entry, bytes):
                raise DamagedMessage("its entries are no pairs, or too many")
            pair = {field: part for field, part in read_fields(entry) if isinstance(part, bytes)}
            entries[pair.get(1, b"").decode()] = pair.get(2, b"")
    except (DamagedMessage, UnicodeDecodeError) as error:
        raise CorruptFile(f"{what}: its file info is damaged: {error}") from None
    return entries


def encode_file_info(entries: Mapping[str, bytes]) -> bytes:
    """Return the payload of the file info."""
    message = encode_fields((1, encode_fields([(1, key.encode()), (2, value)])) for key, value in entries.items())
    return _INFO_MAGIC + encode_varint(len(message)) + message
