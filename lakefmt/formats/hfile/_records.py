"""Records of a data block by columns: where keys and values are, and the other way round. Pure.

A record is the length of its key with 12 bytes around it, the length of its value, the length of the key's content, the
content, ten bytes that are the same in every record, the value and a zero byte. No record says where the next one begins
but by its own lengths, so one would have to go from record to record. Instead every byte is asked at once whether a record
could begin there; what begins there by chance is found out afterwards, by following the lengths from all places together.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import from_numpy, text_offsets
from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, InvalidInputError
from lakefmt.formats.hfile._index import KEY_TAIL
from lakefmt.formats.hfile.prefixes import Prefixes

__all__ = [
    "AROUND_KEY",
    "LENGTHS",
    "MAX_KEY_BYTES",
    "DataBlock",
    "DecodedBlock",
    "EncodedKeyValues",
    "decoded_block",
    "encode_few",
    "encode_key_values",
    "read_records",
]

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

#: Java counts the bytes of a key in a signed short.
MAX_KEY_BYTES = (1 << 15) - 1
#: Lengths of key, value and content, in front of the content.
LENGTHS = struct.Struct(">iiH")
_HEAD = LENGTHS.size
#: The bytes of a key beside its content.
AROUND_KEY = 2 + len(KEY_TAIL)
#: The two lengths before a key, and the zero byte behind a value.
_AROUND_LENGTHS = 9
_LEAST_RECORD = _HEAD + len(KEY_TAIL) + 1
#: A block is kept decoded where there are at least this many records for each distinct value.
_RECORDS_PER_VALUE = 16
_FEW_RECORDS = 256
#: Bytes that are looked at together: as many as stay in the processor's caches.
_STEP = 1 << 18


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

    def rows_of(self, wanted: pa.BinaryArray) -> I64:
        """Return the numbers of the records whose key is one of `wanted`, ascending."""
        return np.flatnonzero(pc.is_in(self.keys(), value_set=wanted).to_numpy(zero_copy_only=False))

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

    def rows_of(self, wanted: pa.BinaryArray) -> I64:
        """Return the numbers of the records whose key is one of `wanted`, ascending."""
        return np.flatnonzero(pc.is_in(self._keys, value_set=wanted).to_numpy(zero_copy_only=False))

    def values(self, rows: I64) -> pa.BinaryArray:
        """Return the value of the records whose numbers are `rows`."""
        return self._values.dictionary.take(self._values.indices.take(from_numpy(rows)))


def decoded_block(block: DataBlock) -> DecodedBlock | None:
    """Return a block in less memory; None: it is small, or too many of its values are distinct."""
    if block.num_rows < _FEW_RECORDS:
        return None
    values = block.values().dictionary_encode()
    if len(values.dictionary) * _RECORDS_PER_VALUE > block.num_rows:
        return None
    keys = block.keys()
    return DecodedBlock(keys.nbytes + values.nbytes, keys, values)


def read_records(payload: bytes | memoryview, what: str) -> DataBlock:
    """Return the records of a data block.

    Raises:
        CorruptFile: the bytes are not a row of records.
    """
    if not len(payload):
        return DataBlock(0, pa.array([], pa.binary()))
    data = np.frombuffer(payload, np.uint8)
    starts, keys, values = _of_one_key_size(data) or _candidates(data)
    following = starts + _AROUND_LENGTHS + keys + values
    if len(starts) == 0 or starts[0] != 0 or following[-1] != len(data) or (following[:-1] != starts[1:]).any():
        rows = _chained(starts, following, len(data), what)
        starts, keys, values = starts[rows], keys[rows], values[rows]
    offsets = np.empty(4 * len(starts), np.int32)
    offsets[::4] = starts + _HEAD
    offsets[1::4] = starts + (_HEAD - AROUND_KEY) + keys
    offsets[2::4] = starts + (_HEAD - 2) + keys
    offsets[3::4] = starts + (_HEAD - 2) + keys + values
    parts = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(payload)])
    return DataBlock(len(starts), parts)


def _of_one_key_size(data: U8) -> tuple[I64, I64, I64] | None:
    """Return where records begin, and the bytes of their keys and values, when all keys are as long as the first one.

    Behind every key are the same ten bytes, so records are found by them. None: keys of several lengths, or other bytes.
    """
    tails = _key_tails(data)
    size = int.from_bytes(data[_HEAD - 2 : _HEAD].tobytes(), "big")
    starts = tails - (_HEAD + size)
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


def _candidates(data: U8) -> tuple[I64, I64, I64]:
    """Return where records may begin, by their own lengths, and as if they did the bytes of their keys and values."""
    end = len(data) - _LEAST_RECORD + 1
    candidates = [np.zeros(0, np.int64)]
    for begin in range(0, end, _STEP):
        size = min(_STEP, end - begin)
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


def _chained(starts: I64, following: I64, size: int, what: str) -> I64:
    """Return which of the candidates are reached from the first byte by going from each to the one that follows it.

    All are followed at once: after each round, twice as many steps have been made.
    """
    places = np.append(starts, size)
    end = len(starts)
    # Places behind the last one lead nowhere, and what leads nowhere stays where it is.
    jump = np.minimum(np.searchsorted(places, following), end)
    dead = (places[jump] != following) | (following <= starts)
    jump = np.append(np.where(dead, np.arange(end), jump), end)
    reached = np.zeros(end + 1, bool)
    reached[:1] = places[0] == 0
    for _ in range(end.bit_length() + 1):
        reached[jump[reached]] = True
        jump = jump[jump]
    if not reached[end]:
        raise CorruptFile(f"{what}: the lengths of the records in a block do not lead from one to the next")
    return np.flatnonzero(reached[:end])


# ---------------------------------------------------------------------------------------------------------- writing


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
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    _check_sizes(int(key_sizes.max(initial=0)), int(value_sizes.max(initial=0)))
    heads = np.empty(rows, _HEADS)
    heads["key"] = key_sizes + AROUND_KEY
    heads["value"] = value_sizes
    heads["content"] = key_sizes
    places = np.arange(0, _HEAD * rows + 1, _HEAD)
    fixed = pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(places), pa.py_buffer(heads)])
    records = pc.binary_join_element_wise(fixed, keys, _TAIL, values, _ZERO, _NOTHING)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(key_sizes + value_sizes + _LEAST_RECORD)])
    data = records.buffers()[2]
    data = memoryview(b"" if data is None else data)[: int(offsets[-1])]
    return EncodedKeyValues(data, offsets, int(key_sizes.sum()), int(value_sizes.sum()))


def encode_few(keys: Sequence[bytes], values: Sequence[bytes]) -> EncodedKeyValues:
    """Return the same of a few keys and values, one after the other.

    Raises:
        InvalidInputError: see :func:`encode_key_values`.
    """
    _check_sizes(max(map(len, keys), default=0), max(map(len, values), default=0))
    records: list[bytes] = []
    for key, value in zip(keys, values, strict=True):
        head = LENGTHS.pack(len(key) + AROUND_KEY, len(value), len(key))
        records.append(b"".join((head, key, KEY_TAIL, value, b"\0")))
    offsets = np.cumsum([0, *map(len, records)], dtype=np.int64)
    return EncodedKeyValues(memoryview(b"".join(records)), offsets, sum(map(len, keys)), sum(map(len, values)))


def _check_sizes(key: int, value: int) -> None:
    if key > MAX_KEY_BYTES:
        raise InvalidInputError(f"a key of {key:,} bytes: an HFile holds keys of {MAX_KEY_BYTES:,}")
    if value >= 1 << 30:
        raise InvalidInputError(f"a value of {value:,} bytes is too large for a block of an HFile")


_HEADS = np.dtype([("key", ">i4"), ("value", ">i4"), ("content", ">u2")])
_TAIL, _ZERO, _NOTHING = (pa.scalar(each, pa.large_binary()) for each in (KEY_TAIL, b"\0", b""))


def _sizes(texts: pa.Array) -> I64:
    return np.diff(text_offsets(texts)).astype(np.int64)
