"""Bloom filters of base files, byte for byte those of Hudi's Java writers (docs/format.md, Bloom filter bytes). Pure.

A filter answers "not in the file" or "maybe" for a record key. SIMPLE has one row of bits,
DYNAMIC_V0 adds rows as it grows. Both are Base64 text in the footer of a Parquet file. Keys are
Arrow columns and are hashed by columns (:mod:`lakefmt._core.formats.murmur`).

Bits are set in one of two ways: one byte per bit (a flag), packed at the end, or packed directly.
"""

from __future__ import annotations

import base64
import math
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.formats.murmur import HashChain, chained_hashes, key_arrays, key_blocks, positions_of
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = [
    "DYNAMIC",
    "SIMPLE",
    "BloomFilter",
    "add_to_filters",
    "are_in_text",
    "decode_bloom_filter",
    "filter_size",
    "join_bits",
    "set_bits",
    "set_flags",
    "set_placed",
    "zeroed",
]

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]


#: The values of ``hoodie_bloom_filter_type_code``; without an entry the type is SIMPLE.
SIMPLE = "SIMPLE"
DYNAMIC = "DYNAMIC_V0"
Flags = npt.NDArray[np.bool_]
_FILTER_HEADER = struct.Struct(">iiBi")
_DYNAMIC_COUNTERS = struct.Struct(">iii")
#: Groups of three bytes that have the header and the counters.
_HEAD_GROUPS = -(-(_FILTER_HEADER.size + _DYNAMIC_COUNTERS.size) // 3)
_BASE64_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
#: The six bits that each character stands for.
_BASE64_VALUES = np.zeros(256, np.uint8)
_BASE64_VALUES[np.frombuffer(_BASE64_ALPHABET, np.uint8)] = np.arange(64)
_FILTER_MARKER = -1
_MURMUR_HASH = 1
_JENKINS_HASH = 0
_INT_MAX = 2**31 - 1
#: The smallest positive double as rate needs 1075 hashes; more means a damaged filter, and would be
#: slow.
_MAX_HASHES = 2048
#: NumPy sets bytes six times faster than bits. Bits are collected as bytes up to this number, if
#: enough of them are set to pay for clearing and packing.
_MAX_UNPACKED = 1 << 26
#: Keys leave a look-up only if at most this share remains, because copying the rest costs time.
_KEEP_SHARE = 0.75
#: Maximum of rows of bits × keys per call.
_MAX_TESTS = 1 << 17

#: Bits are set as one byte each if this share of them is set: then clearing and packing the bytes
#: pays off.
_WORTH_UNPACKING = 128
#: Allocate buffers above this size with mmap: they are returned to the OS when freed and do not
#: raise glibc's mmap threshold.
_OWN_PAGES_BYTES = 1 << 23
_PACKED_TOGETHER_BYTES = 1 << 16
#: Bytes of a filter that are made text together.
_ENCODED_TOGETHER_BYTES = 1 << 18
#: Up to this number the bit positions of a block are computed at once.
_FEW_POSITIONS = 1 << 14
#: Positions that are sorted together.
_SORTED_TOGETHER = 1 << 20


class BloomFilter:
    """A growing or simple bloom filter over record keys (docs/format.md, Bloom filter bytes).

    Created by :meth:`sized`, :meth:`simple` or :func:`decode_bloom_filter`. Reading
    (:meth:`contains`, :meth:`encode`) is thread-safe; :meth:`add` needs exclusive access.

    Example:
        >>> bloom = BloomFilter.sized(1000, fpp=1e-9)
        >>> bloom.add(pa.array(["id1", "id2"]))
        >>> bloom.contains(pa.array(["id1", "id3"])).tolist()
        [True, False]
        >>> decode_bloom_filter(bloom.encode(), bloom.type_code) == bloom
        True
    """

    __slots__ = (
        "_bits",
        "_flags",
        "_full",
        "_in_row",
        "_max_entries",
        "_per_row",
        "_text",
        "_turn",
        "k",
        "m",
        "type_code",
    )

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
        # The bytes do not tell whether a full filter has begun to rotate; like Java, start over.
        self._full = False
        self._turn = 0
        # The added bits as one byte each, during add_pieces.
        self._flags: U8 | None = None
        # What the filter was decoded from, until keys are added: a rewrite mostly stores it on.
        self._text: str | None = None

    @classmethod
    def sized(
        cls, num_entries: int, fpp: float, max_entries: int | None = None, *, few_hashes: bool = False
    ) -> BloomFilter:
        """Return an empty DYNAMIC_V0 filter with `num_entries` keys per row (docs/format.md, Bloom filter size).

        `fpp` is the rate of false positives, `max_entries` the number of keys up to which rows are
        added (None: one row). A full filter accepts more keys at a higher rate. `few_hashes` is that of
        :func:`filter_size`.

        Raises:
            InvalidInputError: a number is out of range, or the filter would exceed 2**31 - 1 bits.

        Example:
            >>> bloom = BloomFilter.sized(60000, 1e-9, max_entries=100000)
            >>> bloom.m, bloom.k, bloom.capacity
            (2587966, 30, 120000)
        """
        limit = num_entries if max_entries is None else max_entries
        if not 1 <= limit <= _INT_MAX:
            raise InvalidInputError(f"a bloom filter cannot grow to {limit} keys")
        m, k = filter_size(num_entries, fpp, few_hashes=few_hashes)
        return cls(DYNAMIC, k, m, _empty_rows(1, m), num_entries, 0, limit)

    @classmethod
    def simple(cls, num_entries: int, fpp: float) -> BloomFilter:
        """Return an empty SIMPLE filter for `num_entries` keys at the false positive rate `fpp`.

        Raises:
            InvalidInputError: a number is out of range, or the filter would exceed 2**31 - 1 bits.

        Example:
            >>> bloom = BloomFilter.simple(10, 0.01)
            >>> bloom.add(pa.array(["a", "日本", "é"]))
            >>> bloom.encode()
            '/////wAAAAcBAAAAYKAgAEFgYERQhAKAGA=='
        """
        m, k = filter_size(num_entries, fpp)
        return cls(SIMPLE, k, m, _empty_rows(1, m), num_entries, 0, num_entries)

    # ------------------------------------------------------------------------------------------- numbers

    @property
    def rows(self) -> int:
        """The number of rows of bits; 1 for SIMPLE."""
        return len(self._bits)

    @property
    def num_keys(self) -> int | None:
        """The number of added keys with repetitions; None for a decoded SIMPLE filter, which does not store it."""
        if self._in_row < 0:
            return None
        return (self.rows - 1) * self._per_row + self._in_row

    @property
    def capacity(self) -> int:
        """The number of keys up to which the false positive rate holds.

        For a decoded filter that of its rows; for SIMPLE an estimate from its size.
        """
        return max(self.rows, -(-self._max_entries // self._per_row)) * self._per_row

    def has_room(self, count: int) -> bool:
        """Return whether `num_keys` more keys fit into the current row."""
        return self._in_row + count <= self._per_row

    def __eq__(self, other: object) -> bool:
        """Filters are equal if their bytes are."""
        if not isinstance(other, BloomFilter):
            return NotImplemented
        return self._head() == other._head() and np.array_equal(self._bits, other._bits)

    def __repr__(self) -> str:
        return f"BloomFilter({self.type_code}, k={self.k}, m={self.m}, rows={self.rows}, num_keys={self.num_keys})"

    # -------------------------------------------------------------------------------------------- adding

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Add the keys of a text or binary column in order, as Java does one by one.

        An error leaves the filter unchanged.

        Raises:
            InvalidKey: a null, a type other than text or bytes, or a key above 1 MiB.
            InvalidInputError: the row's counter would exceed 2**31 - 1.

        Example:
            >>> bloom = BloomFilter.sized(1000, 1e-9)
            >>> bloom.add(pa.chunked_array([["a", "b"], ["c"]]))
            >>> bloom.num_keys
            3
        """
        self._add(keys, _MAX_UNPACKED)

    def _add(self, keys: pa.Array | pa.ChunkedArray, most_unpacked: int, *, in_order: bool = False) -> None:
        chunks = key_arrays(keys)
        total = len(keys)
        if self._in_row + total > _INT_MAX:
            raise InvalidInputError(f"a bloom filter counts up to {_INT_MAX:,} keys; this one would pass that")
        self._text = None
        if self.type_code == DYNAMIC:
            rows = self._next_rows(total)
            self._grow(int(rows.max(initial=0)) + 1)
        else:
            rows = np.zeros(total, np.int64)
            self._in_row += total if self._in_row >= 0 else 0
        if self._flags is None:
            set_bits(self._bits, chunks, rows, self.k, self.m, most_unpacked)
        else:
            set_flags(self._flags, chunks, rows * (8 * self._bits.shape[1]), self.k, self.m, in_order=in_order)

    def add_pieces(
        self, parts: Iterable[pa.Array | pa.ChunkedArray], memory_bytes: int, *, in_order: bool = False
    ) -> None:
        """Add the keys of all `parts` in order.

        Args:
            parts: arrays of keys; each is released before the next is requested.
            memory_bytes: if the bits as one byte each exceed this, they are set packed, which takes
                up to 50 % longer.
            in_order: sort the places of bits before they are set: quicker where memory is slow.

        Raises:
            InvalidKey: as :meth:`add`; earlier pieces stay added.
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
            for keys in parts:
                self._add(keys, most_unpacked, in_order=in_order)
                del keys
        finally:
            self._pack()

    def _add_hashed(self, hashes: U32) -> None:
        """Add keys that fit into the last row, by their chained hashes, one column for each key."""
        self._text = None
        set_placed(self._bits[-1:], positions_of(hashes, self.m).reshape(-1).astype(np.intp))
        self._in_row += hashes.shape[1]

    def _pack(self) -> None:
        if self._flags is not None:
            join_bits(self._bits, self._flags)
            self._flags = None

    def _grow(self, rows: int) -> None:
        if rows > self.rows:
            self._pack()
            self._bits = np.concatenate([self._bits, _empty_rows(rows - self.rows, self.m)])

    def _next_rows(self, total: int) -> I64:
        """Return the row of each of the next `total` keys, and count the keys (docs/format.md, Bloom filter bytes).

        Keys fill the last row, then new ones. When no row may be added, the first key without room
        goes to row 0, and the keys after it rotate from row 0 on.
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
        """Return for every key whether it may have been added; False is certain.

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
        """Return which keys left in `chain` are in any row of `bits`; drop keys that are in none."""
        hits = np.ones((len(bits), chain.block.size), np.bool_)
        for i in range(self.k):
            chain.advance()
            position = chain.positions(self.m)
            bit = np.right_shift(bits.take(position >> np.uint32(3), axis=1), position.astype(np.uint8) & np.uint8(7))
            hits &= (bit & np.uint8(1)).view(np.bool_)
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
        """Return the filter as Base64 text for the footer (docs/format.md, Bloom filter bytes).

        Example:
            >>> BloomFilter.sized(1, 0.5).encode()
            '/////wAAAAIBAAAAAgAAAAEAAAAAAAAAAf////8AAAACAQAAAAIA'
        """
        return self._text or b"".join(self.text_parts()).decode("ascii")

    @property
    def text_bytes(self) -> int:
        """Bytes of the text that :meth:`encode` returns."""
        if self._text is not None:
            return len(self._text)
        row_head = _FILTER_HEADER.size if self.type_code == DYNAMIC else 0
        return -(-(len(self._head()) + self.rows * row_head + self._bits.size) // 3) * 4

    def text_parts(self) -> Iterator[bytes]:
        """Yield the text that :meth:`encode` returns, part by part: of a large filter it is longer than the filter.

        Example:
            >>> bloom = BloomFilter.sized(1, 0.5)
            >>> b"".join(bloom.text_parts()).decode() == bloom.encode(), bloom.text_bytes
            (True, 52)
        """
        if self._text is not None:
            yield self._text.encode("ascii")
            return
        rest = b""
        for part in self._byte_parts():
            data = rest + part
            whole = len(data) - len(data) % 3  # three bytes are four characters
            yield base64.b64encode(memoryview(data)[:whole])
            rest = data[whole:]
        yield base64.b64encode(rest)

    def _byte_parts(self) -> Iterator[bytes]:
        """Yield the bytes of the filter, each row of bits behind its header."""
        yield self._head()
        header = np.frombuffer(self._row_head() if self.type_code == DYNAMIC else b"", np.uint8)
        width = self._bits.shape[1]
        together = max(1, _ENCODED_TOGETHER_BYTES // (len(header) + width))
        for first in range(0, self.rows, together):
            rows = self._bits[first : first + together]
            for start in range(0, width, _ENCODED_TOGETHER_BYTES):
                part = rows[:, start : start + _ENCODED_TOGETHER_BYTES]
                if not start:
                    part = np.concatenate([np.broadcast_to(header, (len(part), len(header))), part], axis=1)
                yield part.tobytes()

    def _row_head(self) -> bytes:
        return _FILTER_HEADER.pack(_FILTER_MARKER, self.k, _MURMUR_HASH, self.m)

    def _head(self) -> bytes:
        if self.type_code == SIMPLE:
            return self._row_head()
        return self._row_head() + _DYNAMIC_COUNTERS.pack(self._per_row, self._in_row, self.rows)


def add_to_filters(filters: Sequence[BloomFilter], keys: Sequence[pa.Array]) -> None:
    """Add keys to small filters, each its own, as :meth:`BloomFilter.add`; the keys are hashed together.

    For few keys the calls dominate: thirty filters of forty keys would cost as much as one of
    1,200. A hash does not depend on the size of its filter; only its bit position does.

    Raises:
        InvalidKey: as :meth:`BloomFilter.add`; no filter is changed then.

    Example:
        >>> two = [BloomFilter.sized(1000, 1e-9), BloomFilter.sized(1000, 1e-9)]
        >>> add_to_filters(two, [pa.array(["a"]), pa.array(["b", "c"])])
        >>> [bloom.num_keys for bloom in two]
        [1, 2]
    """
    counts = [len(filter_keys) for filter_keys in keys]
    hashes_of_each = {bloom.k for bloom in filters}
    fits = all(bloom.type_code == DYNAMIC and bloom.has_room(n) for bloom, n in zip(filters, counts, strict=True))
    if len(hashes_of_each) != 1 or not fits:
        for bloom, filter_keys in zip(filters, keys, strict=True):
            bloom.add(filter_keys)
        return
    hashes = chained_hashes(pa.chunked_array(keys), filters[0].k)
    for bloom, of_filter in zip(filters, np.split(hashes, np.cumsum(counts)[:-1], axis=1), strict=True):
        bloom._add_hashed(of_filter)


def decode_bloom_filter(encoded: str | bytes, type_code: str | None = None) -> BloomFilter:
    """Return the filter of a Base64 text; `type_code` None means SIMPLE (docs/format.md, Parquet footer).

    Keys can be added. A decoded DYNAMIC_V0 filter adds no rows, as in Java: the bytes lack the
    maximum number of keys.

    Raises:
        CorruptFile: the text is not a filter of this type.
        UnsupportedFeature: an unknown type, or the Jenkins hash of Hudi's predecessors.

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
        data = base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise CorruptFile(f"a bloom filter is not Base64 text: {error}") from error
    k, m = _decode_header(data)
    bloom = _decode_dynamic(data, k, m) if type_code == DYNAMIC else _decode_simple(data, k, m)
    bloom._text = encoded if isinstance(encoded, str) else encoded.decode("ascii")
    return bloom


def are_in_text(text: bytes, type_code: str | None, hashes_of: Callable[[int], U32]) -> Flags | None:
    """Return for each of a few keys whether it may have been added to the filter of a Base64 text; only their bits are decoded.

    Args:
        text: the filter, as for :func:`decode_bloom_filter`.
        type_code: of the filter; None means SIMPLE.
        hashes_of: returns a number of chained hashes of each key, as :func:`chained_hashes` does.

    Returns:
        None if all of it has to be decoded: it is not as it is expected to be, or has too many rows.

    Example:
        >>> text = b"/////wAAAAcBAAAAYKAgAEFgYERQhAKAGA=="
        >>> are_in_text(text, None, lambda k: chained_hashes(pa.array(["é", "e"]), k)).tolist()
        [True, False]
    """
    characters = np.frombuffer(text, np.uint8)
    begin, header, rows = _FILTER_HEADER.size, 0, 1
    try:
        data = base64.b64decode(text[: 4 * _HEAD_GROUPS])
        k, m = _decode_header(data)
        if type_code == DYNAMIC:
            rows = _DYNAMIC_COUNTERS.unpack_from(data, begin)[2]
            begin, header = begin + _DYNAMIC_COUNTERS.size, _FILTER_HEADER.size
    except (ValueError, struct.error, CorruptFile, UnsupportedFeature):
        return None
    if len(text) % 4 or rows < 1 or type_code not in (None, SIMPLE, DYNAMIC):
        return None
    width, padding = header + _bytes_of(m), text[-2:].count(b"=")
    if len(text) // 4 * 3 - padding != begin + rows * width:
        return None
    positions = positions_of(hashes_of(k), m).astype(np.int64)
    if rows * positions.size > _MAX_UNPACKED:
        return None
    found = np.zeros(positions.shape[1], np.bool_)
    for row in range(rows):
        places = begin + row * width + header + (positions >> 3)
        first = places // 3 * 4
        three = np.zeros(places.shape, np.int64)
        for number in range(4):
            three = three << 6 | _BASE64_VALUES[characters[first + number]]
        bits = three >> (16 - 8 * (places % 3)) >> (positions & 7) & 1
        found |= bits.all(axis=0)
    return found


def _decode_header(data: bytes) -> tuple[int, int]:
    if len(data) < _FILTER_HEADER.size:
        raise CorruptFile(f"a bloom filter of {len(data)} bytes is too short for its header")
    marker, k, hash_type, m = _FILTER_HEADER.unpack_from(data)
    if marker > 0 or (marker == _FILTER_MARKER and hash_type == _JENKINS_HASH):
        raise UnsupportedFeature(
            "the bloom filter uses the Jenkins hash of very old writers; rewrite the file with Hudi"
        )
    if marker != _FILTER_MARKER or hash_type != _MURMUR_HASH:
        raise CorruptFile(f"a bloom filter begins with marker {marker} and hash type {hash_type}, not with -1 and 1")
    if not 1 <= k <= _MAX_HASHES or m < 1:
        raise CorruptFile(f"a bloom filter cannot have {k} hashes and {m} bits")
    return k, m


def _decode_simple(data: bytes, k: int, m: int) -> BloomFilter:
    bits = _decode_rows(data, _FILTER_HEADER.size, 1, 0, m)
    # Sizing gives k = ln 2 * m / n, rounded up.
    planned = max(1, math.floor(math.log(2) * m / k))
    return BloomFilter(SIMPLE, k, m, bits, planned, -1, planned)


def _decode_dynamic(data: bytes, k: int, m: int) -> BloomFilter:
    begin = _FILTER_HEADER.size + _DYNAMIC_COUNTERS.size
    if len(data) < begin:
        raise CorruptFile(f"a DYNAMIC_V0 bloom filter of {len(data)} bytes is too short for its counters")
    per_row, in_row, rows = _DYNAMIC_COUNTERS.unpack_from(data, _FILTER_HEADER.size)
    if per_row < 1 or in_row < 0 or rows < 1:
        raise CorruptFile(f"a bloom filter cannot have {rows} rows for {per_row} keys, the last one with {in_row}")
    bits = _decode_rows(data, begin, rows, _FILTER_HEADER.size, m)
    return BloomFilter(DYNAMIC, k, m, bits, per_row, in_row, 0)


def _decode_rows(data: bytes, begin: int, rows: int, header: int, m: int) -> U8:
    """Return the bits of `rows` rows, each after `header` bytes that repeat the start of `data`."""
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
        # Java ignores bits after the last one.
        bits[:, -1] &= np.uint8((1 << m % 8) - 1)
    return bits


# --------------------------------------------------------------------------------------------------- bits


def filter_size(num_entries: int, fpp: float, *, few_hashes: bool = False) -> tuple[int, int]:
    """Return the numbers of bits and hashes, with Java's rounding (docs/format.md, Bloom filter size).

    Args:
        num_entries: number of keys.
        fpp: rate of false positives with that many keys.
        few_hashes: half the hashes at the same rate, for a fifth more bits.

    Raises:
        InvalidInputError: a number is out of range, or there would be more than 2**31 - 1 bits.

    Example:
        >>> filter_size(60000, 1e-9), filter_size(60000, 1e-9, few_hashes=True)
        ((2587966, 30), (3111300, 15))
    """
    if not 1 <= num_entries <= _INT_MAX or not 0.0 < fpp < 1.0:
        raise InvalidInputError(f"no bloom filter for {num_entries} keys with a false positive share of {fpp}")
    ln2 = math.log(2)
    m = math.ceil(num_entries * (-math.log(fpp) / (ln2 * ln2)))
    k = math.ceil(ln2 * m / num_entries)
    if few_hashes and k > 1:
        k //= 2
        # n keys leave a bit unset with the chance exp(-k n / m); all k bits of another key are set with the chance fpp.
        m = math.ceil(num_entries * k / -math.log1p(-(fpp ** (1 / k))))
    if m > _INT_MAX:
        raise InvalidInputError(
            f"a bloom filter for {num_entries:,} keys at {fpp} would have {m:,} bits, above 2^31 - 1"
        )
    return m, k


def _bytes_of(m: int) -> int:
    return (m + 7) // 8


def _empty_rows(rows: int, m: int) -> U8:
    return zeroed(rows * _bytes_of(m)).reshape(rows, _bytes_of(m))


def _any_row(hits: Flags) -> Flags:
    if len(hits) == 1:
        return hits.reshape(-1)
    in_any: Flags = np.logical_or.reduce(hits)
    return in_any


def zeroed(size: int) -> U8:
    """Return zeroed bytes, in huge pages where available: bits are set at random places."""
    if size < _OWN_PAGES_BYTES:
        return np.zeros(size, np.uint8)
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # small buffers come from the heap
    with suppress(OSError):  # the system may lack huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def set_flags(flags: U8, chunks: list[pa.Array], base: I64, k: int, m: int, *, in_order: bool = False) -> None:
    """Set the flag bytes of all keys, relative to each key's `base`."""
    positions = _bit_positions(chunks, base, k, m)
    for index in _sorted_positions(positions) if in_order and len(flags) <= 1 << 32 else positions:
        flags[index] = 1


def _sorted_positions(positions: Iterable[U32 | I64]) -> Iterator[U32]:
    """Yield positions in ascending order, many together: neighbours then lie in one page, or one line of a cache."""
    waiting: list[U32] = []
    for index in positions:
        waiting.append(index.astype(np.uint32))  # NumPy sorts narrow numbers in half the time
        if sum(map(len, waiting)) >= _SORTED_TOGETHER:
            yield _joined_ascending(waiting)
            waiting = []
    if waiting:
        yield _joined_ascending(waiting)


def _joined_ascending(parts: list[U32]) -> U32:
    joined = np.concatenate(parts)
    joined.sort()
    return joined


def join_bits(bits: U8, flags: U8) -> None:
    """Pack the bits of `flags` into `bits`, in steps."""
    flat = bits.reshape(-1)
    for start in range(0, len(flat), _PACKED_TOGETHER_BYTES):
        part = flat[start : start + _PACKED_TOGETHER_BYTES]
        part |= np.packbits(flags[8 * start : 8 * (start + len(part))], bitorder="little")


def set_bits(bits: U8, chunks: list[pa.Array], rows: I64, k: int, m: int, most_unpacked: int) -> None:
    """Set the bits of all keys, each in its row of `bits`."""
    if not len(rows):
        return
    first, last = int(rows.min()), int(rows.max())
    part = bits[first : last + 1]
    base = (rows - first) * (8 * part.shape[1])
    if 8 * part.size <= min(most_unpacked, _WORTH_UNPACKING * k * len(rows)):
        flags = zeroed(8 * part.size)
        set_flags(flags, chunks, base, k, m)
        join_bits(part, flags)
    else:
        for index in _bit_positions(chunks, base, k, m):
            _set_packed(part, index.astype(np.intp, copy=False))


def set_placed(bits: U8, index: I64) -> None:
    """Set the bits at the positions `index`."""
    if 8 * bits.size <= _WORTH_UNPACKING * len(index):
        flags = zeroed(8 * bits.size)
        flags[index] = 1
        join_bits(bits, flags)
    else:
        _set_packed(bits, index)


def _set_packed(bits: U8, index: I64) -> None:
    flat = bits.reshape(-1)
    mask, byte = np.left_shift(np.uint8(1), index.astype(np.uint8) & np.uint8(7)), index >> 3
    while byte.size:
        flat[byte] = flat.take(byte) | mask
        # If several bits of one byte are set at once the last one stays: set the others again.
        lost = np.flatnonzero(~flat.take(byte) & mask)
        mask, byte = mask[lost], byte[lost]


def _bit_positions(chunks: list[pa.Array], base: I64, k: int, m: int) -> Iterator[U32 | I64]:
    """Yield all bit positions in batches, each relative to its key's `base`; a batch is valid until the next."""
    shift = base.any()
    start = 0
    for chunk in chunks:
        for block in key_blocks(chunk):
            chain = HashChain(block)
            begin = base[start : start + len(chunk)][block.rows] if shift else None
            if k * block.size <= _FEW_POSITIONS:
                # For few keys the calls dominate: compute all positions at once.
                few = chain.all_positions(k, m)
                yield (few if begin is None else few + begin).reshape(-1)
                continue
            for _ in range(k):
                chain.advance()
                index = chain.positions(m)
                yield index if begin is None else index + begin
        start += len(chunk)
