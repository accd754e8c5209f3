"""Bloom filters of base files, byte for byte as Hudi's Java writers make them (spec 6).

A filter says of a record key either "certainly not in the file" or "maybe". Two kinds exist: SIMPLE is one
row of bits, DYNAMIC_V0 appends rows while it grows. Both are stored as Base64 text in the footer of a Parquet
file. Pure: no storage, no clock; keys are Arrow columns and are hashed by columns (:mod:`~lakefmt.formats.bloom.murmur`).

The bits of a key filter being set: as a byte each, packed at the end, or packed at once (spec 6.3). Pure.
"""

from __future__ import annotations

import base64
import math
import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature
from lakefmt.formats.bloom.murmur import HashChain, hash_positions, key_arrays, key_blocks

__all__ = [
    "DYNAMIC",
    "SIMPLE",
    "BloomFilter",
    "add_to_filters",
    "decode_bloom_filter",
    "zeroed",
]


#: Bits are set as one byte each when so many are set that clearing and packing the bytes costs less than it gains.
_WORTH_UNPACKING = 128
#: From so many bytes on they are pages of their own, which the system has back at once. Freed as memory of the heap they
#: would teach the C library to keep as much for ever (it raises the size from which on it gives memory back).
_OWN_PAGES = 1 << 23
_PACKED_TOGETHER = 1 << 16
#: Up to so many bit positions of a block are worked out together.
_FEW_POSITIONS = 1 << 14


def zeroed(size: int) -> U8:
    """Return zeros; many of them in large pages, where the system has those: bits are set anywhere in them."""
    if size < _OWN_PAGES:
        return np.zeros(size, np.uint8)
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared ones come small
    with suppress(OSError):  # a system may be built without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def _set_flags(flags: U8, chunks: list[pa.Array], base: I64, k: int, m: int) -> None:
    """Set the bytes that stand for the bits of all keys, counted from each key's `base`."""
    for index in _flat_positions(chunks, base, k, m):
        flags[index] = 1


def _join_bits(bits: U8, flags: U8) -> None:
    """Set the bits of `flags`, some at a time."""
    flat = bits.reshape(-1)
    for start in range(0, len(flat), _PACKED_TOGETHER):
        part = flat[start : start + _PACKED_TOGETHER]
        part |= np.packbits(flags[8 * start : 8 * (start + len(part))], bitorder="little")


def _set_bits(bits: U8, chunks: list[pa.Array], rows: I64, k: int, m: int, most_unpacked: int) -> None:
    """Set the bits of all keys, each in its row of `bits`."""
    if not len(rows):
        return
    first, last = int(rows.min()), int(rows.max())
    part = bits[first : last + 1]
    base = (rows - first) * (8 * part.shape[1])
    if 8 * part.size <= min(most_unpacked, _WORTH_UNPACKING * k * len(rows)):
        flags = zeroed(8 * part.size)
        _set_flags(flags, chunks, base, k, m)
        _join_bits(part, flags)
    else:
        for index in _flat_positions(chunks, base, k, m):
            _set_packed(part, index)


def _set_placed(bits: U8, index: I64) -> None:
    """Set the bits at the positions `index`."""
    if 8 * bits.size <= _WORTH_UNPACKING * len(index):
        flags = zeroed(8 * bits.size)
        flags[index] = 1
        _join_bits(bits, flags)
    else:
        _set_packed(bits, index)


def _set_packed(bits: U8, index: I64) -> None:
    flat = bits.reshape(-1)
    mask, at = np.left_shift(np.uint8(1), index.astype(np.uint8) & np.uint8(7)), index >> 3
    while at.size:
        flat[at] = flat.take(at) | mask
        # Of several bits of one byte the last one stays: the others are set again.
        lost = np.flatnonzero(~flat.take(at) & mask)
        mask, at = mask[lost], at[lost]


def _flat_positions(chunks: list[pa.Array], base: I64, k: int, m: int) -> Iterator[I64]:
    """Yield all bit positions, some thousand at a time, each counted from its key's `base`."""
    shift = base.any()
    start = 0
    for chunk in chunks:
        for block in key_blocks(chunk):
            chain = HashChain(block)
            begin = base[start : start + len(chunk)][block.rows] if shift else None
            if k * block.size <= _FEW_POSITIONS:
                # Of few keys the calls cost more than the numbers: all positions at once.
                few = chain.all_positions(k, m).astype(np.intp)
                yield (few if begin is None else few + begin).reshape(-1)
                continue
            for _ in range(k):
                chain.advance()
                index = chain.positions(m).astype(np.intp)
                yield index if begin is None else np.add(index, begin, out=index)
        start += len(chunk)


#: The type codes of ``hoodie_bloom_filter_type_code`` (an absent footer means SIMPLE).
SIMPLE = "SIMPLE"
DYNAMIC = "DYNAMIC_V0"

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]

_HEADER = struct.Struct(">iiBi")
_COUNTERS = struct.Struct(">iii")
_MARKER = -1
_MURMUR = 1
_JENKINS = 0
_INT_MAX = 2**31 - 1
#: The smallest double asks for 1075 hashes; a filter that claims many more is damaged, and would take long.
_MAX_HASHES = 2048
#: Bits are collected as one byte each while keys are added (numpy sets bytes six times faster than bits): up to
#: this many bits, and when so many are set that clearing and packing the bytes costs less than it gains.
_MAX_UNPACKED = 1 << 26
#: Keys are dropped from a look-up when at most this share of them is left; copying the rest has a price.
_KEEP_SHARE = 0.75
#: Rows of bits times keys that are tested by one call.
_MAX_TESTS = 1 << 17


class BloomFilter:
    """A growing or a simple bloom filter over record keys (spec 6).

    Made by :meth:`sized`, :meth:`simple` or :func:`decode_bloom_filter`. Reading (:meth:`contains`,
    :meth:`encode`) may run in many threads; :meth:`add` needs the filter for itself.

    Example:
        >>> bloom = BloomFilter.sized(1000, fpp=1e-9)
        >>> bloom.add(pa.array(["id1", "id2"]))
        >>> bloom.contains(pa.array(["id1", "id3"])).tolist()
        [True, False]
        >>> decode_bloom_filter(bloom.encode(), bloom.type_code) == bloom
        True
    """

    __slots__ = ("_bits", "_flags", "_full", "_in_row", "_max_entries", "_per_row", "_turn", "k", "m", "type_code")

    k: int
    m: int
    type_code: str

    def __init__(self, type_code: str, k: int, m: int, bits: U8, per_row: int, in_row: int, max_entries: int) -> None:
        self.type_code = type_code
        self.k = k
        self.m = m
        self._bits = bits
        self._per_row = per_row
        self._in_row = in_row
        self._max_entries = max_entries
        # The bytes do not tell whether a full filter has begun to rotate, nor where: Java starts over, so do we.
        self._full = False
        self._turn = 0
        # The bits that were added, one byte each, while pieces are.
        self._flags: U8 | None = None

    @classmethod
    def sized(cls, num_entries: int, fpp: float, max_entries: int | None = None) -> BloomFilter:
        """Return an empty DYNAMIC_V0 filter whose rows hold `num_entries` keys each (spec 6.2).

        `fpp` is the wanted share of false "maybe" answers, `max_entries` the number of keys up to which rows are
        added (None: one row is all there will be). More keys can be added to a full filter; it then answers
        "maybe" more often.

        Raises:
            InvalidInputError: a number is out of range, or the filter would have more than 2^31 - 1 bits.

        Example:
            >>> bloom = BloomFilter.sized(60000, 1e-9, max_entries=100000)
            >>> bloom.m, bloom.k, bloom.capacity
            (2587966, 30, 120000)
        """
        limit = num_entries if max_entries is None else max_entries
        if not 1 <= limit <= _INT_MAX:
            raise InvalidInputError(f"a bloom filter cannot grow to {limit} keys")
        m, k = _size(num_entries, fpp)
        return cls(DYNAMIC, k, m, _empty_rows(1, m), num_entries, 0, limit)

    @classmethod
    def simple(cls, num_entries: int, fpp: float) -> BloomFilter:
        """Return an empty SIMPLE filter for `num_entries` keys with the share `fpp` of false "maybe" (spec 6.2).

        Raises:
            InvalidInputError: a number is out of range, or the filter would have more than 2^31 - 1 bits.

        Example:
            >>> bloom = BloomFilter.simple(10, 0.01)
            >>> bloom.add(pa.array(["a", "日本", "é"]))
            >>> bloom.encode()
            '/////wAAAAcBAAAAYKAgAEFgYERQhAKAGA=='
        """
        m, k = _size(num_entries, fpp)
        return cls(SIMPLE, k, m, _empty_rows(1, m), num_entries, 0, num_entries)

    # ------------------------------------------------------------------------------------------- numbers

    @property
    def rows(self) -> int:
        """The number of rows of bits; 1 for SIMPLE."""
        return len(self._bits)

    @property
    def num_keys(self) -> int | None:
        """The number of keys added, repetitions included; None for a decoded SIMPLE filter, whose bytes do not tell."""
        if self._in_row < 0:
            return None
        return (self.rows - 1) * self._per_row + self._in_row

    @property
    def capacity(self) -> int:
        """The number of keys up to which the wanted share of false answers holds.

        For a decoded filter: of the rows it has, and for SIMPLE an estimate from its size.
        """
        return max(self.rows, -(-self._max_entries // self._per_row)) * self._per_row

    def has_room(self, count: int) -> bool:
        """Tell whether so many keys more fit into the row of bits that is being filled."""
        return self._in_row + count <= self._per_row

    def __eq__(self, other: object) -> bool:
        """Filters are equal when their bytes are."""
        if not isinstance(other, BloomFilter):
            return NotImplemented
        return self._head() == other._head() and np.array_equal(self._bits, other._bits)

    def __repr__(self) -> str:
        return f"BloomFilter({self.type_code}, k={self.k}, m={self.m}, rows={self.rows}, num_keys={self.num_keys})"

    # -------------------------------------------------------------------------------------------- adding

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Add every key of a text or binary column, in its order, as Java does one by one (spec 6.3).

        Nothing is added when an error is raised.

        Raises:
            InvalidKey: a null, a type that is neither text nor bytes, or a key above 1 MiB.
            InvalidInputError: the row's counter would pass 2^31 - 1.

        Example:
            >>> bloom = BloomFilter.sized(1000, 1e-9)
            >>> bloom.add(pa.chunked_array([["a", "b"], ["c"]]))
            >>> bloom.num_keys
            3
        """
        self._add(keys, _MAX_UNPACKED)

    def _add(self, keys: pa.Array | pa.ChunkedArray, most_unpacked: int) -> None:
        chunks = key_arrays(keys)
        total = len(keys)
        if self._in_row + total > _INT_MAX:
            raise InvalidInputError(f"a bloom filter counts up to {_INT_MAX:,} keys; this one would pass that")
        if self.type_code == DYNAMIC:
            rows = self._next_rows(total)
            self._grow(int(rows.max(initial=0)) + 1)
        else:
            rows = np.zeros(total, np.int64)
            self._in_row += total if self._in_row >= 0 else 0
        if self._flags is None:
            _set_bits(self._bits, chunks, rows, self.k, self.m, most_unpacked)
        else:
            _set_flags(self._flags, chunks, rows * (8 * self._bits.shape[1]), self.k, self.m)

    def add_pieces(self, pieces: Iterable[pa.Array | pa.ChunkedArray], memory_bytes: int) -> None:
        """Add the keys of all `pieces`, one after the other (spec 6.3).

        Args:
            pieces: the keys; each piece is let go before the next is asked for.
            memory_bytes: where the filter's bits, as a byte each, take more than this, they are set packed: that takes
                up to half as long again.

        Raises:
            InvalidKey: as :meth:`add`; the pieces before stay added.
            InvalidInputError: as :meth:`add`.

        Example:
            >>> bloom = BloomFilter.sized(1000, 1e-9)
            >>> bloom.add_pieces([pa.array(["a", "b"]), pa.array(["c"])], memory_bytes=1 << 20)
            >>> bloom.num_keys
            3
        """
        most_unpacked = min(_MAX_UNPACKED, memory_bytes)
        if 8 * self._bits.size <= most_unpacked:
            self._flags = zeroed(8 * self._bits.size)
        try:
            for keys in pieces:
                self._add(keys, most_unpacked)
                del keys
        finally:
            self._pack()

    def _add_placed(self, positions: U32) -> None:
        """Add keys that fit into the last row, by their bit positions."""
        _set_placed(self._bits[-1:], positions.reshape(-1).astype(np.intp))
        self._in_row += len(positions)

    def _pack(self) -> None:
        if self._flags is not None:
            _join_bits(self._bits, self._flags)
            self._flags = None

    def _grow(self, rows: int) -> None:
        if rows > self.rows:
            self._pack()
            self._bits = np.concatenate([self._bits, _empty_rows(rows - self.rows, self.m)])

    def _next_rows(self, total: int) -> I64:
        """Return the row that each of the next `total` keys goes to, and count the keys (spec 6.3).

        Keys fill the last row and then new ones; when there may be no more rows, the first key that finds no
        room goes to row 0, and those after it go round, beginning with row 0 once more.
        """
        most_rows = max(self.rows, -(-self._max_entries // self._per_row))
        begin = min(self._in_row, self._per_row)
        room = 0 if self._full else (most_rows - self.rows + 1) * self._per_row - begin
        filling = min(total, room)
        new_rows = np.arange(begin, begin + filling, dtype=np.int64) // self._per_row
        if filling:
            self._in_row = (begin + filling - 1) % self._per_row + 1
        late = total - filling
        self._in_row += late
        return np.concatenate([self.rows - 1 + new_rows, self._round_robin(late, most_rows)])

    def _round_robin(self, count: int, rows: int) -> I64:
        first = 1 if count and not self._full else 0
        self._full |= count > 0
        turns = self._turn + np.arange(count - first, dtype=np.int64)
        self._turn = (self._turn + count - first) % rows
        return np.concatenate([np.zeros(first, np.int64), turns % rows])

    # ------------------------------------------------------------------------------------------- asking

    def contains(self, keys: pa.Array | pa.ChunkedArray) -> Flags:
        """Return for every key whether it may have been added; False is certain (spec 6.3).

        Raises:
            InvalidKey: a null, a type that is neither text nor bytes, or a key above 1 MiB.

        Example:
            >>> bloom = BloomFilter.simple(1000, 1e-9)
            >>> bloom.contains(pa.array(["id1"])).tolist()
            [False]
        """
        answer = np.zeros(len(keys), np.bool_)
        start = 0
        for chunk in key_arrays(keys):
            target = answer[start : start + len(chunk)]
            for block in key_blocks(chunk):
                step = max(1, _MAX_TESTS // block.size)
                for low in range(0, self.rows, step):
                    chain = HashChain(block)
                    hits = self._probe(chain, self._bits[low : low + step])
                    target[chain.block.rows] |= hits
            start += len(chunk)
        return answer

    def _probe(self, chain: HashChain, bits: U8) -> Flags:
        """Return which keys left in `chain` are in any row of `bits`; drop keys that are in none on the way."""
        hits = np.ones((len(bits), chain.block.size), np.bool_)
        for i in range(self.k):
            chain.advance()
            position = chain.positions(self.m)
            found = np.right_shift(bits.take(position >> np.uint32(3), axis=1), position.astype(np.uint8) & np.uint8(7))
            hits &= (found & np.uint8(1)).view(np.bool_)
            alive = _any_row(hits)
            left = np.count_nonzero(alive)
            if left <= _KEEP_SHARE * alive.size and i + 1 < self.k:
                index = np.flatnonzero(alive)
                chain.keep(index)
                if not left:
                    return np.zeros(0, np.bool_)
                hits = hits.take(index, axis=1)
        return _any_row(hits)

    # ------------------------------------------------------------------------------------------- bytes

    def encode(self) -> str:
        """Return the filter as the Base64 text that goes into the footer (spec 6.3).

        Example:
            >>> BloomFilter.sized(1, 0.5).encode()
            '/////wAAAAIBAAAAAgAAAAEAAAAAAAAAAf////8AAAACAQAAAAIA'
        """
        body = self._bits
        if self.type_code == DYNAMIC:
            header = np.frombuffer(self._row_head(), np.uint8)
            body = np.concatenate([np.broadcast_to(header, (self.rows, len(header))), body], axis=1)
        return base64.b64encode(self._head() + body.tobytes()).decode("ascii")

    def _row_head(self) -> bytes:
        return _HEADER.pack(_MARKER, self.k, _MURMUR, self.m)

    def _head(self) -> bytes:
        if self.type_code == SIMPLE:
            return self._row_head()
        return self._row_head() + _COUNTERS.pack(self._per_row, self._in_row, self.rows)


def add_to_filters(filters: Sequence[BloomFilter], keys: Sequence[pa.Array]) -> None:
    """Add keys to small filters, to each its own, as :meth:`BloomFilter.add` would; they are hashed together (spec 6.3).

    Of few keys the calls take longer than the hashes: thirty filters of forty keys each cost as much as one of 1,200.

    Raises:
        InvalidKey: as :meth:`BloomFilter.add`; nothing is added then.

    Example:
        >>> two = [BloomFilter.sized(1000, 1e-9), BloomFilter.sized(1000, 1e-9)]
        >>> add_to_filters(two, [pa.array(["a"]), pa.array(["b", "c"])])
        >>> [bloom.num_keys for bloom in two]
        [1, 2]
    """
    counts = [len(mine) for mine in keys]
    alike = {(bloom.type_code, bloom.k, bloom.m, bloom.rows) for bloom in filters}
    fits = all(bloom.type_code == DYNAMIC and bloom.has_room(n) for bloom, n in zip(filters, counts, strict=True))
    if len(alike) != 1 or not fits:
        for bloom, mine in zip(filters, keys, strict=True):
            bloom.add(mine)
        return
    positions = hash_positions(pa.chunked_array(keys), filters[0].k, filters[0].m)
    for bloom, mine in zip(filters, np.split(positions, np.cumsum(counts)[:-1]), strict=True):
        bloom._add_placed(mine)


def decode_bloom_filter(text: str | bytes, type_code: str | None = None) -> BloomFilter:
    """Return the filter stored as the Base64 `text`; `type_code` None means SIMPLE (spec 5.1, 6.3).

    Keys can be added to it; a decoded DYNAMIC_V0 filter adds no rows any more, as in Java, whose bytes do not
    keep the largest number of keys.

    Raises:
        CorruptFile: the text is not a filter of that type.
        UnsupportedFeature: an unknown type, or the hash of Hudi's forerunners (Jenkins).

    Example:
        >>> bloom = decode_bloom_filter("/////wAAAAcBAAAAYKAgAEFgYERQhAKAGA==")
        >>> bloom
        BloomFilter(SIMPLE, k=7, m=96, rows=1, num_keys=None)
        >>> bloom.contains(pa.array(["é", "e"])).tolist()
        [True, False]
    """
    if type_code not in (None, SIMPLE, DYNAMIC):
        raise UnsupportedFeature(f"bloom filters of type {type_code!r} are not known; SIMPLE and DYNAMIC_V0 are")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise CorruptFile(f"a bloom filter is not Base64 text: {error}") from error
    k, m = _decode_header(data)
    return _decode_dynamic(data, k, m) if type_code == DYNAMIC else _decode_simple(data, k, m)


def _decode_header(data: bytes) -> tuple[int, int]:
    if len(data) < _HEADER.size:
        raise CorruptFile(f"a bloom filter of {len(data)} bytes is too short for its header")
    marker, k, kind, m = _HEADER.unpack_from(data)
    if marker > 0 or (marker == _MARKER and kind == _JENKINS):
        raise UnsupportedFeature(
            "the bloom filter uses the Jenkins hash of very old writers; rewrite the file with Hudi"
        )
    if marker != _MARKER or kind != _MURMUR:
        raise CorruptFile(f"a bloom filter begins with marker {marker} and hash type {kind}, not with -1 and 1")
    if not 1 <= k <= _MAX_HASHES or m < 1:
        raise CorruptFile(f"a bloom filter cannot have {k} hashes and {m} bits")
    return k, m


def _decode_simple(data: bytes, k: int, m: int) -> BloomFilter:
    bits = _decode_rows(data, _HEADER.size, 1, 0, m)
    # Sizing makes k = ln 2 * m / n, rounded up.
    planned = max(1, math.floor(math.log(2) * m / k))
    return BloomFilter(SIMPLE, k, m, bits, planned, -1, planned)


def _decode_dynamic(data: bytes, k: int, m: int) -> BloomFilter:
    begin = _HEADER.size + _COUNTERS.size
    if len(data) < begin:
        raise CorruptFile(f"a DYNAMIC_V0 bloom filter of {len(data)} bytes is too short for its counters")
    per_row, in_row, rows = _COUNTERS.unpack_from(data, _HEADER.size)
    if per_row < 1 or in_row < 0 or rows < 1:
        raise CorruptFile(f"a bloom filter cannot have {rows} rows for {per_row} keys, the last one with {in_row}")
    bits = _decode_rows(data, begin, rows, _HEADER.size, m)
    return BloomFilter(DYNAMIC, k, m, bits, per_row, in_row, 0)


def _decode_rows(data: bytes, begin: int, rows: int, header: int, m: int) -> U8:
    """Return the bits of `rows` rows, each after `header` bytes that must repeat the first bytes of `data`."""
    width = header + _bytes_of(m)
    if len(data) - begin != rows * width:
        raise CorruptFile(
            f"a bloom filter of {rows} rows of {m} bits has {len(data)} bytes, not {begin + rows * width}"
        )
    table = np.frombuffer(data, np.uint8, offset=begin).reshape(rows, width)
    if (table[:, :header] != np.frombuffer(data, np.uint8, header)).any():
        raise CorruptFile("a row of a DYNAMIC_V0 bloom filter does not repeat the filter's header")
    bits = table[:, header:].copy()
    if m % 8:
        # Java forgets what stands behind the last bit.
        bits[:, -1] &= np.uint8((1 << m % 8) - 1)
    return bits


# --------------------------------------------------------------------------------------------------- bits


def _size(num_entries: int, fpp: float) -> tuple[int, int]:
    """Return bits and hashes (spec 6.2), the operations in Java's order so that rounding agrees."""
    if not 1 <= num_entries <= _INT_MAX or not 0.0 < fpp < 1.0:
        raise InvalidInputError(f"no bloom filter for {num_entries} keys with a false positive share of {fpp}")
    ln2 = math.log(2)
    m = math.ceil(num_entries * (-math.log(fpp) / (ln2 * ln2)))
    if m > _INT_MAX:
        raise InvalidInputError(
            f"a bloom filter for {num_entries:,} keys at {fpp} would have {m:,} bits, above 2^31 - 1"
        )
    return m, math.ceil(ln2 * m / num_entries)


def _bytes_of(m: int) -> int:
    return (m + 7) // 8


def _empty_rows(rows: int, m: int) -> U8:
    return np.zeros((rows, _bytes_of(m)), np.uint8)


def _any_row(hits: Flags) -> Flags:
    if len(hits) == 1:
        return hits.reshape(-1)
    found: Flags = np.logical_or.reduce(hits)
    return found
