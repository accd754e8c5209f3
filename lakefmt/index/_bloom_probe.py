"""Asking key filters in the text they are stored as (docs/format.md, Bloom filter bytes).

A filter is Base64 text in a footer, some hundred kilobytes; a look-up wants some dozen of its bits. Each of these bits
lies in exactly one character, so the text is asked as it stands and never decoded. Whatever is unusual about a text is
left to :func:`~lakefmt.formats.bloom.bloom_filter.decode_bloom_filter`, which decodes all of it or says what is wrong.

Keys are hashed once for all filters (:class:`SharedHashes`): a hash does not depend on a filter's size.
"""

from __future__ import annotations

import base64
import struct
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.errors import CorruptFile
from lakefmt.formats.bloom.bloom_filter import DYNAMIC, SIMPLE, BloomFilter, decode_bloom_filter
from lakefmt.formats.bloom.murmur import HashChain, KeyBlock, key_arrays, key_blocks
from lakefmt.formats.parquet.base_file import BLOOM_KEY, BLOOM_TYPE_KEY, LEGACY_BLOOM_KEY, BaseFileFooter

__all__ = ["SharedHashes", "StoredFilter", "stored_filter"]

Flags = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]

_HEADER: Final = struct.Struct(">iiBi")  # marker, hashes, kind of hash, bits
_COUNTERS: Final = struct.Struct(">iii")  # keys per row, keys in the last row, rows
_MARKER: Final = -1
_MURMUR: Final = 1
_MAX_HASHES: Final = 64
_MAX_ROWS: Final = 64
#: Positions are 32-bit numbers of bits.
_MAX_TEXT: Final = 1 << 28

#: Hashes that a first round asks about; of keys that are not in the file one in sixteen is left after it.
_FIRST_HASHES: Final = 4
#: Hashes of one look-up that are kept, and how many at most of one key: what a filter of one in 10^9 has. Keys that are
#: in a file are asked about to the end: hashed anew for every file, ten thousand of them cost thirty files' worth of calls.
_SHARED_HASHES: Final = 1 << 22
_SHARED_PER_KEY: Final = 30
#: Keys that are out are dropped when no more than this share is left: to drop some costs about as much as one hash.
_WORTH_DROPPING: Final = 0.75
#: Keys that one row of a filter is asked about at a time.
_KEYS_AT_A_TIME: Final = 1 << 15

_NO_CHARACTER: Final = 0xFF
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_VALUES: Final = np.full(256, _NO_CHARACTER, np.uint8)
_VALUES[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64, dtype=np.uint8)


class SharedHashes:
    """The keys of one look-up and, of each, the first hashes of its chain (docs/format.md, Bloom filter hash), made when first asked for.

    A few keys are hashed as often as any usual filter asks for. When there are many keys, only what the first round needs is kept;
    the few that are left after it are hashed anew.

    Args:
        keys: every key wanted.
        rounds: hashes to keep of each; None: as many as are worth it.
    """

    def __init__(self, keys: pa.StringArray, rounds: int | None = None) -> None:
        self.keys = keys
        if rounds is None:
            rounds = min(_SHARED_PER_KEY, max(_FIRST_HASHES, _SHARED_HASHES // max(1, len(keys))))
        self.rounds = rounds
        self._made: U32 | None = None
        self._lock = Lock()

    def of(self, rows: I64, first: int, last: int) -> U32:
        """Return hashes number `first` to `last` of the keys `rows`, shape (hashes, keys)."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
        return self._made[first:last].take(rows, axis=1)

    def _make(self) -> U32:
        made = np.empty((self.rounds, len(self.keys)), np.uint32)
        start = 0
        for chunk in key_arrays(self.keys):
            target = made[:, start : start + len(chunk)]
            for block in key_blocks(chunk):
                HashChain(block).advance_into(target)
            start += len(chunk)
        return made


class StoredFilter:
    """A key filter as the text it is stored as.

    Example:
        >>> stored = StoredFilter("/////wAAAAcBAAAAYKAgAEFgYERQhAKAGA==")
        >>> stored.contains(SharedHashes(pa.array(["é", "e"])), np.array([0, 1])).tolist()
        [True, False]
    """

    def __init__(self, text: str, type_code: str | None = None) -> None:
        """Take a filter's text; `type_code` None means SIMPLE.

        Raises:
            CorruptFile: the text is not a filter of that type.
            UnsupportedFeature: an unknown type or hash.
        """
        self._text = text
        layout = _layout(text, type_code)
        self._decoded: BloomFilter | None = None if layout else decode_bloom_filter(text, type_code)
        if layout:
            self._characters = np.frombuffer(text.encode("ascii"), np.uint8)
            self._hashes, self._bits, self._begins = layout

    def contains(self, keys: SharedHashes, rows: I64) -> Flags:
        """Return for each of `rows` whether its key may be in the file; False is certain.

        Raises:
            CorruptFile: a character that was looked at is no Base64.
        """
        if self._decoded is not None:
            return self._decoded.contains(keys.keys.take(from_numpy(rows)))
        answer = np.zeros(len(rows), np.bool_)
        step = max(1, _KEYS_AT_A_TIME // len(self._begins))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            answer[start : start + step][self._maybe_here(keys, some)] = True
        return answer

    def _maybe_here(self, keys: SharedHashes, rows: I64) -> I64:
        """Return the positions in `rows` of keys that may be in the file."""
        left = np.arange(len(rows))
        alive = np.ones((len(self._begins), len(rows)), np.bool_)
        shared = min(keys.rounds, self._hashes)
        first = min(_FIRST_HASHES, shared)
        for low, high in ((0, first), (first, shared)):
            if low < high and len(left):
                alive &= self._bits_at(_remainders(keys.of(rows[left], low, high), self._bits)).all(axis=1)
                kept = np.flatnonzero(alive.any(axis=0))
                left, alive = left[kept], alive[:, kept]
        if shared < self._hashes and len(left):
            left = left[self._hash_anew(keys.keys.take(from_numpy(rows[left])))]
        return left

    def _hash_anew(self, keys: pa.StringArray) -> Flags:
        answer = np.zeros(len(keys), np.bool_)
        start = 0
        for chunk in key_arrays(keys):
            target = answer[start : start + len(chunk)]
            for block in key_blocks(chunk):
                left, hits = self._survivors(block)
                target[left.rows] = hits
            start += len(chunk)
        return answer

    def _survivors(self, block: KeyBlock) -> tuple[KeyBlock, Flags]:
        """Return the keys of a block that were asked to the end, and which of them may be in the file."""
        chain = HashChain(block)
        alive = np.ones((len(self._begins), block.size), np.bool_)
        for _ in range(self._hashes):
            chain.advance()
            alive &= self._bits_at(chain.positions(self._bits)[np.newaxis])[:, 0]
            kept = np.flatnonzero(alive.any(axis=0))
            if len(kept) <= _WORTH_DROPPING * alive.shape[1]:
                chain.keep(kept)
                alive = alive[:, kept]
                if not len(kept):
                    break
        hits: Flags = np.logical_or.reduce(alive, axis=0)
        return chain.block, hits

    def _bits_at(self, positions: U32) -> Flags:
        """Return the bits at `positions` of shape (hashes, keys), of every row of bits: shape (rows, hashes, keys)."""
        # Within a byte, bits count from the least significant one; within a stream of characters from the most.
        place = self._begins + (positions ^ np.uint32(7))
        words_at = place // np.uint32(6)
        values = _VALUES.take(self._characters.take(words_at))
        if values.size and int(values.max()) == _NO_CHARACTER:
            raise CorruptFile("a bloom filter is not Base64 text")
        down = (np.uint32(5) - (place - words_at * np.uint32(6))).astype(np.uint8)
        bits: Flags = (np.right_shift(values, down) & np.uint8(1)).view(np.bool_)
        return bits


def stored_filter(footer: BaseFileFooter) -> StoredFilter | None:
    """Return the key filter of a file, ready to be asked; None when the file has none (docs/format.md, Parquet footer).

    Raises:
        CorruptFile: it is damaged.
        UnsupportedFeature: an unknown type or hash.
    """
    text = footer.entries.get(BLOOM_KEY) or footer.entries.get(LEGACY_BLOOM_KEY)
    return None if text is None else StoredFilter(text, footer.entries.get(BLOOM_TYPE_KEY))


def _remainders(hashes: U32, bits: int) -> U32:
    """Return |hash| modulo `bits`, the hash being a signed number as in Java."""
    magnitude = np.minimum(hashes, np.negative(hashes))
    remainders: U32 = magnitude % np.uint32(bits)
    return remainders


def _layout(text: str, type_code: str | None) -> tuple[int, int, U32] | None:
    """Return hashes, bits and the first bit of every row in the text; None when the text is not plainly a filter."""
    if len(text) % 4 or len(text) > _MAX_TEXT or not text.isascii() or type_code not in (None, SIMPLE, DYNAMIC):
        return None
    size = len(text) // 4 * 3 - text[-2:].count("=")
    is_dynamic = type_code == DYNAMIC
    head = _bytes_at(text, 0, _HEADER.size + (_COUNTERS.size if is_dynamic else 0))
    if head is None:
        return None
    marker, hashes, kind, bits = _HEADER.unpack_from(head)
    if (marker, kind) != (_MARKER, _MURMUR) or not 1 <= hashes <= _MAX_HASHES or bits < 1:
        return None
    width = (bits + 7) // 8
    begins = np.array([_HEADER.size])
    if is_dynamic:
        rows = _rows(text, head, width)
        if rows is None:
            return None
        width += _HEADER.size
        begins = len(head) + _HEADER.size + np.arange(rows) * width
    if size != (_HEADER.size if not is_dynamic else len(head)) + len(begins) * width:
        return None
    return hashes, bits, (8 * begins).astype(np.uint32).reshape(-1, 1, 1)


def _rows(text: str, head: bytes, width: int) -> int | None:
    """Return the number of rows of bits; None when there are many, or one of them does not repeat the header."""
    per_row, in_row, rows = _COUNTERS.unpack_from(head, _HEADER.size)
    if per_row < 1 or in_row < 0 or not 1 <= rows <= _MAX_ROWS:
        return None
    for row in range(rows):
        offset = len(head) + row * (_HEADER.size + width)
        if _bytes_at(text, offset, _HEADER.size) != head[: _HEADER.size]:
            return None
    return int(rows)


def _bytes_at(text: str, start: int, size: int) -> bytes | None:
    """Return `size` decoded bytes from byte `start`; None when the text ends before, or is no Base64 there."""
    first, last = start // 3 * 4, -(-(start + size) // 3) * 4
    try:
        decoded = base64.b64decode(text[first:last], validate=True)[start % 3 :][:size]
    except ValueError:
        return None
    return decoded if len(decoded) == size else None
