"""Hadoop's 32-bit MurmurHash2 over columns of keys (docs/format.md, Bloom filter hash).

It differs from the textbook's function: the last one to three bytes of a key are taken in reverse
order and sign-extended, so no library function fits. Every step runs on all keys of a block:

* A block has some ten thousand keys: its columns fit into the processor's caches, and NumPy calls
  are amortized.
* Column ``w`` has word ``w`` of every key that has one. Keys are sorted by length, longest first,
  so that the keys with word ``w`` are a prefix of the block.
* The mixing of a word does not depend on the seed and is done once per block; each chained hash
  needs only a multiplication and an exclusive-or per word.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arrays import text_offsets
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError, InvalidKey

__all__ = [
    "HashChain",
    "KeyBlock",
    "chained_hashes",
    "key_arrays",
    "key_blocks",
    "murmur_hadoop",
    "positions_of",
]

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

#: Bytes of a block's columns. Measured: at half the size the calls cost 20 % on files of a few ten
#: thousand keys; twice the size exceeds the caches.
BLOCK_BYTES = 3 << 20
#: Maximum and minimum keys per block; short keys gain nothing from more.
MAX_BLOCK_KEYS = 1 << 16
MIN_BLOCK_KEYS = 1 << 10
#: Keys sorted by length at once.
SORT_KEYS = 4 * MAX_BLOCK_KEYS
#: Chunks are joined up to this number of keys and bytes: a chunk of a few keys costs as many calls
#: as a full block.
JOIN_KEYS = MAX_BLOCK_KEYS
JOIN_BYTES = 1 << 28
#: Maximum key size in bytes. A round takes one NumPy call per word of the longest key, so this
#: bounds hostile input.
_MAX_KEY_BYTES = 1 << 20

_M = np.uint32(0x5BD1E995)
#: As arrays: for a hundred keys NumPy converts a Python number as slowly as it multiplies.
_FACTOR, _BY_13, _BY_15 = (np.array(number, np.uint32) for number in (_M, 13, 15))


def key_arrays(keys: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """Return `keys` as arrays of (large) string or binary without nulls, checked before hashing.

    `keys` are string, binary, their large and view forms, fixed-size binary or a dictionary of
    these.

    Raises:
        InvalidKey: another type, a null, or a key above ``_MAX_KEY_BYTES`` bytes.

    Example:
        >>> [chunk.type for chunk in key_arrays(pa.array(["a", "b"]).dictionary_encode())]
        [DataType(string)]
    """
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    plain = [_plain(chunk) for chunk in chunks if len(chunk)]
    for chunk in plain:
        if chunk.null_count:
            raise InvalidKey(f"{chunk.null_count} of {len(chunk)} record keys are null; every row needs a key")
        longest = int(np.diff(_offsets(chunk)).max())
        if longest > _MAX_KEY_BYTES:
            raise InvalidKey(f"a record key has {longest:,} bytes; at most {_MAX_KEY_BYTES:,} are supported")
    return _joined(plain)


def murmur_hadoop(keys: pa.Array | pa.ChunkedArray, seed: int = 0) -> U32:
    """Return the hash of every key for one 32-bit `seed` as unsigned number.

    Raises:
        InvalidKey: see :func:`key_arrays`.

    Example:
        >>> [hex(h) for h in murmur_hadoop(pa.array(["a", "id1"]))]
        ['0x92685f5e', '0x73464131']
    """
    out = np.empty(len(keys), np.uint32)
    for block, target in _placed(keys, out):
        target[block.rows] = HashChain(block, seed).advance()
    return out


def chained_hashes(keys: pa.Array | pa.ChunkedArray, k: int) -> U32:
    """Return `k` chained hashes of every key, shape ``(k, n_keys)``; :func:`positions_of` makes bit positions of them.

    Raises:
        InvalidInputError: `k` is not positive.
        InvalidKey: see :func:`key_arrays`.

    Example:
        >>> positions_of(chained_hashes(pa.array(["id1"]), 3), m=2587966)[:, 0].tolist()
        [773447, 542080, 1764904]
    """
    if k < 1:
        raise InvalidInputError(f"a bloom filter with {k} hashes does not exist")
    hashes = np.empty((k, len(keys)), np.uint32)
    for block, target in _placed(keys, hashes.T):
        HashChain(block).advance_into(target.T)
    return hashes


def positions_of(hashes: U32, m: int) -> U32:
    """Return the bit position of every hash in a filter of `m` bits; `hashes` stay.

    Raises:
        InvalidInputError: `m` is not positive, or exceeds 2**31 - 1.
    """
    if not 1 <= m < 1 << 31:
        raise InvalidInputError(f"a bloom filter of {m} bits does not exist")
    return _positions(hashes, np.empty(hashes.shape, np.uint32), m)


def _placed(keys: pa.Array | pa.ChunkedArray, out: U32) -> Iterator[tuple[KeyBlock, U32]]:
    """Yield the blocks of `keys`, each with its part of `out`."""
    start = 0
    for chunk in key_arrays(keys):
        for block in key_blocks(chunk):
            yield block, out[start : start + len(chunk)]
        start += len(chunk)


# ------------------------------------------------------------------------------------------------ hashing


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """Keys in columns of words, longest key first.

    Attributes:
        rows: index of each key in its array.
        lengths: size of each key in bytes; one number if all are equal.
        words: entry ``w`` has the mixed word ``w`` of the first ``len(words[w])`` keys.
        tail: value of the last one to three bytes for the exclusive-or; None if no key has such
            bytes.
        factor: multiplier after the tail: 1 for keys without one.
    """

    rows: slice | I64
    size: int
    lengths: U32 | np.uint32
    words: list[U32]
    tail: U32 | None
    factor: U32 | np.uint32

    def take(self, index: I64) -> KeyBlock:
        """Return the block of the keys at ascending indexes `index`."""
        sizes = np.searchsorted(index, [len(word) for word in self.words]).tolist() if self.words else []
        return KeyBlock(
            rows=index + self.rows.start if isinstance(self.rows, slice) else self.rows.take(index),
            size=len(index),
            lengths=self.lengths.take(index) if isinstance(self.lengths, np.ndarray) else self.lengths,
            words=[word.take(index[:size]) for word, size in zip(self.words, sizes, strict=True) if size],
            tail=None if self.tail is None else self.tail.take(index),
            factor=self.factor.take(index) if isinstance(self.factor, np.ndarray) else self.factor,
        )


class HashChain:
    """The chained hashes of a block: each hash is the seed of the next."""

    __slots__ = ("_hash", "_scratch", "_steps", "block")

    def __init__(self, block: KeyBlock, seed: int = 0) -> None:
        self._begin(block, np.full(block.size, seed & 0xFFFFFFFF, np.uint32))

    def _begin(self, block: KeyBlock, state: U32) -> None:
        self.block = block
        self._hash = state
        self._scratch = np.empty_like(state)
        self._steps = [(state[: len(word)], word) for word in block.words]

    def advance(self) -> U32:
        """Replace each hash by its successor and return them (valid until the next call)."""
        state, scratch, block = self._hash, self._scratch, self.block
        multiply, xor, factor = np.multiply, np.bitwise_xor, _FACTOR
        xor(state, block.lengths, state)
        for head, word in self._steps:
            multiply(head, factor, head)
            xor(head, word, head)
        if block.tail is not None:
            xor(state, block.tail, state)
            multiply(state, block.factor, state)
        np.right_shift(state, _BY_13, scratch)
        xor(state, scratch, state)
        multiply(state, factor, state)
        np.right_shift(state, _BY_15, scratch)
        xor(state, scratch, state)
        return state

    def advance_into(self, hashes: U32) -> None:
        """Advance once per row of `hashes`, ``(steps, n_keys)``, and store the hashes there, in the columns of the keys."""
        for row in hashes:
            row[self.block.rows] = self.advance()

    def positions(self, m: int) -> U32:
        """Return each key's bit position in a filter of `m` bits (valid until the next call).

        The hash is signed: its magnitude is the smaller of h and 2**32 - h, also for the smallest number, and the
        magnitude of Java's truncated remainder is the remainder of the magnitude. NumPy divides vectors by one number
        fast, but has no fast remainder, so it is computed from the quotient.
        """
        return _positions(self._hash, self._scratch, m)

    def all_positions(self, k: int, m: int) -> U32:
        """Advance `k` times; return the bit positions after each step, one row each."""
        states = np.empty((k, self.block.size), np.uint32)
        for step in range(k):
            states[step] = self.advance()
        return _positions(states, np.empty_like(states), m)

    def keep(self, index: I64) -> None:
        """Drop all keys except those at ascending indexes `index`."""
        self._begin(self.block.take(index), self._hash.take(index))


def _positions(state: U32, position: U32, m: int) -> U32:
    """Fill `position` with the bit positions of hashes and return it; see :meth:`HashChain.positions`."""
    size = np.uint32(m)
    np.negative(state, out=position)
    np.minimum(state, position, out=position)
    quotient = position // size
    np.multiply(quotient, size, out=quotient)
    remainder: U32 = np.subtract(position, quotient, out=position)
    return remainder


# ------------------------------------------------------------------------------------------------- layout


def key_blocks(keys: pa.Array) -> Iterator[KeyBlock]:
    """Yield the keys of an array from :func:`key_arrays` as blocks; ``rows`` are indexes of the array."""
    data = _data(keys)
    offsets = _offsets(keys)
    for start in range(0, len(keys), SORT_KEYS):
        part = offsets[start : start + SORT_KEYS + 1]
        lengths = np.diff(part)
        if (lengths == lengths[0]).all():
            yield from _even_blocks(data[part[0] : part[-1]].reshape(len(lengths), int(lengths[0])), start)
        else:
            yield from _uneven_blocks(data, part[:-1], lengths, start)


def _even_blocks(table: U8, start: int) -> Iterator[KeyBlock]:
    """Yield blocks of keys of one length; nothing is gathered."""
    size, length = table.shape
    step = _block_keys(size, length)
    for low in range(0, size, step):
        part = table[low : low + step]
        yield _block([part], slice(start + low, start + low + len(part)))


def _uneven_blocks(data: U8, begins: I64, lengths: I64, start: int) -> Iterator[KeyBlock]:
    """Yield blocks of keys of different lengths, longest first.

    No block has keys with less than half the words of its longest key, because its columns have
    that size.
    """
    order = _longest_first(lengths)
    lengths = lengths.take(order)
    low = 0
    while low < len(order):
        longest = int(lengths[low])
        # Lengths descend, their negatives ascend; the first too short key ends the block.
        half = low + int(np.searchsorted(-lengths[low:], -(longest // 8 * 4), side="right"))
        high = min(half, low + _block_keys(half - low, longest))
        rows = order[low:high]
        yield _block(_gather(data, begins.take(rows), lengths[low:high]), rows + start)
        low = high


def _longest_first(lengths: I64) -> I64:
    # NumPy sorts 16-bit numbers by radix, ten times faster than wide ones.
    narrow = lengths.astype(np.uint16) if int(lengths.max()) <= 0xFFFF else lengths
    return np.argsort(narrow, kind="stable")[::-1]


def _block_keys(size: int, length: int) -> int:
    """Return the number of keys per block for `size` keys of up to `length` bytes, in blocks of similar size."""
    most = min(MAX_BLOCK_KEYS, max(MIN_BLOCK_KEYS, BLOCK_BYTES // (length + 8)))
    return -(-size // -(-size // most))


def _gather(data: U8, begins: I64, lengths: I64) -> list[U8]:
    """Return a byte matrix for every run of equal lengths; each row is a key.

    Fancy indexing copies whole elements, so a key is taken as one element of its size.
    """
    bounds = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
    tables = []
    for low, high in itertools.pairwise(bounds):
        length = int(lengths[low])
        if length:
            anywhere = np.ndarray((len(data) - length + 1,), f"V{length}", data, 0, (1,))
            tables.append(anywhere[begins[low:high]].view(np.uint8).reshape(high - low, length))
        else:
            tables.append(np.empty((high - low, 0), np.uint8))
    return tables


def _block(tables: list[U8], rows: slice | I64) -> KeyBlock:
    """Lay out the keys of `tables`, one byte matrix per length, longest first."""
    sizes = [len(table) for table in tables]
    lengths = np.array([table.shape[1] for table in tables])
    columns = np.empty((int(lengths[0]) // 4, sum(sizes)), np.uint32)
    tail = np.zeros(sum(sizes), np.uint32) if (lengths & 3).any() else None
    start = 0
    for table in tables:
        end = start + len(table)
        _fill(columns[:, start:end], table)
        if tail is not None and table.shape[1] & 3:
            tail[start:end] = _tail(table)
        start = end
    words = [_mixed(column[:size]) for column, size in zip(columns, _having_word(sizes, lengths >> 2), strict=True)]
    if len(tables) == 1:
        return KeyBlock(rows, start, np.uint32(lengths[0]), words, tail, _M)
    factor = np.where(lengths & 3, _M, np.uint32(1))
    return KeyBlock(rows, start, lengths.astype(np.uint32).repeat(sizes), words, tail, factor.repeat(sizes))


def _fill(columns: U32, table: U8) -> None:
    count, length = table.shape
    if length >= 4:
        packed = np.ndarray((count, length // 4), "<u4", table, 0, (length, 4))
        np.copyto(columns[: length // 4], packed.T)


def _tail(table: U8) -> U32:
    signed = table.view(np.int8)
    tail = signed[:, -1].astype(np.int32)
    for back in range(1, table.shape[1] & 3):
        tail ^= signed[:, -1 - back].astype(np.int32) << (8 * back)
    return tail.view(np.uint32)


def _having_word(sizes: list[int], words: I64) -> list[int]:
    """Return for each word the number of keys that have it; `words` descends."""
    keys = np.cumsum(sizes)
    groups = np.searchsorted(-words, -np.arange(int(words[0])), side="left")
    having: list[int] = keys.take(groups - 1).tolist()
    return having


def _mixed(words: U32) -> U32:
    """Mix words in place, as a round does before it combines them with the hash."""
    np.multiply(words, _M, out=words)
    np.bitwise_xor(words, words >> np.uint32(24), out=words)
    return np.multiply(words, _M, out=words)


# -------------------------------------------------------------------------------------------------- Arrow


def _plain(chunk: pa.Array) -> pa.Array:
    """Return `chunk` as an array with offsets and data."""
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.cast(chunk.type.value_type)
    data_type = chunk.type
    if _is_plain(data_type):
        return chunk
    if (
        pa.types.is_fixed_size_binary(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_binary_view(data_type)
    ):
        try:
            return chunk.cast(pa.large_binary())
        except pa.ArrowNotImplementedError as error:
            raise InvalidKey(
                f"this pyarrow cannot convert record keys of type {data_type}; hand them in as text"
            ) from error
    raise InvalidKey(f"record keys are text or bytes, not {data_type}")


def _joined(chunks: list[pa.Array]) -> list[pa.Array]:
    """Join runs of short chunks; the order of the keys stays."""
    runs: list[list[pa.Array]] = []
    keys = size = 0
    for chunk in chunks:
        keys, size = keys + len(chunk), size + chunk.nbytes
        if runs and keys <= JOIN_KEYS and size <= JOIN_BYTES:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
            keys, size = len(chunk), chunk.nbytes
    return [run[0] if len(run) == 1 else pa.concat_arrays(run) for run in runs]


def _is_plain(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(data_type)
        or types.is_large_string(data_type)
        or types.is_binary(data_type)
        or types.is_large_binary(data_type)
    )


def _offsets(keys: pa.Array) -> I64:
    return text_offsets(keys).astype(np.int64)


def _data(keys: pa.Array) -> U8:
    data = keys.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
