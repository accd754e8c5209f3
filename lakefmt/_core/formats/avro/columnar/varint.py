"""What the Avro row codec does to bytes, on whole columns at once: numbers of variable length, spans, stores. Pure.

Numpy reads and writes at any byte through views whose items overlap: item ``p`` of ``words`` is the eight bytes from byte
``p`` on. One such store or load per value takes about four nanoseconds, arithmetic next to nothing; so a value is put
together in a word and stored once. Elements of any other width are stored as numpy's void type, which is as fast.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = [
    "I64",
    "PADDING",
    "U8",
    "U64",
    "Out",
    "anywhere",
    "copy_spans",
    "number_sizes",
    "number_words",
    "overlapping_words",
    "padded",
    "split_numbers",
    "voids",
    "zigzag",
]

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Void = npt.NDArray[np.void]

#: Bytes that may be read or written behind the last value.
PADDING = 64

_ONE = np.uint64(1)
_SEVEN = np.uint64(7)
_BYTE = np.uint64(0xFF)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH = np.uint64(0x8080808080808080)
#: Times a single set bit at the lowest place of byte k, this leaves k + 1 in the highest byte.
_COUNT = np.uint64(0x0102030405060708)
_STEPS = (
    (4, 0x000000000FFFFFFF, 0x00FFFFFFF0000000),
    (2, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000),
    (1, 0x007F007F007F007F, 0x3F803F803F803F80),
)
_SPREAD = tuple((shift, np.uint64(shift), np.uint64(low), np.uint64(high)) for shift, low, high in _STEPS)
_GATHER = tuple(
    (shift, np.uint64(shift), np.uint64(low), np.uint64(high << shift)) for shift, low, high in reversed(_STEPS)
)
#: By the number of bytes: the bits that say "more follows", and the bits of the value's own bytes.
_CONTINUE = np.array([0, *(sum(0x80 << 8 * at for at in range(size - 1)) for size in range(1, 9)), 0], np.uint64)
_CONTINUE[9] = 0x8080808080808080
_OWN = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
#: Spans up to this length are copied word by word, longer ones in chunks of this length.
_CHUNK = 64
#: Rows that follow may be a little larger than those that were seen.
_SLACK = 1.02
#: Rows that were seen may be much larger than those that follow: no more than this is reserved at once, or as much again.
_MOST_AHEAD = 1 << 28


def zigzag(values: I64) -> U64:
    """Return signed numbers in the order that Avro counts them in: 0, -1, 1, -2 and so on."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _unzigzag(numbers: U64) -> I64:
    """Return the signed numbers that Avro counts so; what they were in is used up."""
    signs = numbers & _ONE
    numbers >>= _ONE
    numbers ^= np.negative(signs, out=signs)
    return numbers.view(np.int64)


def number_sizes(numbers: U64) -> tuple[int, int, I64 | int]:
    """Return the least and the most bytes that a number takes, and the bytes of each (one int when all agree)."""
    if not len(numbers):
        return 1, 1, 1
    least, most = (max(1, -(-int(edge).bit_length() // 7)) for edge in (numbers.min(), numbers.max()))
    if least == most:
        return least, most, most
    sizes = np.full(len(numbers), least, np.int64)
    for size in range(least, most):
        sizes += numbers >= np.uint64(1 << 7 * size)
    return least, most, sizes


def number_words(numbers: U64, sizes: I64 | int, most: int = 10) -> U64:
    """Return the first eight bytes of every number; those of nine and ten have them all set to go on.

    `most` is what the largest of them takes at most.
    """
    words = numbers
    for bytes_each, shift, low, high in _SPREAD:
        if most > bytes_each:
            upper = words & high
            upper <<= shift
            words = words & low
            words |= upper
    return words | _CONTINUE.take(sizes if most <= 9 else np.minimum(sizes, 9))


def split_numbers(data: U8, words: U64, positions: I64) -> tuple[I64, I64, bool]:
    """Return the numbers that begin at `positions`, the offsets behind them, and whether all are of at most 64 bits.

    The bytes behind the data must be padding.
    """
    first = data.take(positions)
    if int(first.max(initial=0)) < 128:
        signed = (first >> np.uint8(1)) ^ np.negative(first & np.uint8(1))
        return signed.view(np.int8).astype(np.int64), positions + 1, True
    word = words[positions]
    stop = ~word & _HIGH
    stop &= ~stop + _ONE
    size = (((stop >> _SEVEN) * _COUNT) >> np.uint64(56)).view(np.int64)
    long = np.flatnonzero(stop == 0)
    most = 8 if len(long) else int(size.max())
    word &= stop ^ (stop - _ONE)
    word &= _LOW7
    for bytes_each, shift, low, high in _GATHER:
        if most > bytes_each:
            upper = word & high
            upper >>= shift
            word &= low
            word |= upper
    if not len(long):
        return _unzigzag(word), positions + size, True
    tail = words[positions[long] + 8]
    ninth, tenth = tail & _BYTE, (tail >> np.uint64(8)) & _BYTE
    ten = ninth > 127
    size[long] = 9 + ten
    word[long] |= ((ninth & np.uint64(127)) << np.uint64(56)) | np.where(ten, tenth << np.uint64(63), 0)
    return _unzigzag(word), positions + size, bool((tenth[ten] <= 1).all())


# ----------------------------------------------------------------------------------------------------------- memory


def padded(data: U8, begin: int, end: int) -> U8:
    """Return `data` from `begin` on with at least :data:`PADDING` readable bytes behind `end`, copied only if needed."""
    if len(data) - end >= PADDING:
        return data[begin:]
    copy = np.zeros(end - begin + PADDING, np.uint8)
    copy[: end - begin] = data[begin:end]
    return copy


def anywhere(data: U8, size: int) -> Void:
    """Return the view of `data` whose item ``p`` is the `size` bytes from byte ``p`` on."""
    return np.ndarray((max(0, len(data) - size + 1),), f"V{size}", data, 0, (1,))


def overlapping_words(data: U8) -> U64:
    """Return the view of `data` whose item ``p`` is the little-endian word from byte ``p`` on."""
    return np.ndarray((max(0, len(data) - 7),), "<u8", data, 0, (1,))


def voids(items: npt.NDArray[np.generic], size: int) -> Void:
    """Return the first `size` bytes of every item of a contiguous array."""
    return np.ndarray((len(items),), f"V{size}", items, 0, (items.itemsize,))


class Out:
    """Bytes being written: items may be stored at any byte.

    A plain store of a word writes up to seven bytes too many. They are harmless where something is written over them
    later: `room` says how many bytes behind the values those are. Otherwise what was there before is put back. Both count
    on numpy storing in order, and on ascending positions.
    """

    __slots__ = ("data", "words", "words_as_voids")

    def __init__(self, size: int) -> None:
        self._use(np.empty(size + PADDING, np.uint8))

    def _use(self, data: U8) -> None:
        self.data = data
        self.words = overlapping_words(data)
        self.words_as_voids = anywhere(data, 8)

    def reserve(self, size: int, used: int, share: float) -> None:
        """Make room for `size` bytes, and for `share` times as many if that is what all rows are going to take.

        The first `used` bytes are kept. Memory that is touched for the first time costs more than what is done with it,
        so there is one array for all blocks.
        """
        if size + PADDING > len(self.data):
            ahead = min(int(size * (max(1.0, share) * _SLACK - 1)), max(size, _MOST_AHEAD))
            data = np.empty(size + ahead + PADDING, np.uint8)
            data[:used] = self.data[:used]
            self._use(data)

    def put_bytes(self, positions: I64, values: U8 | int) -> None:
        """Store one byte per position."""
        self.data[positions] = values

    def put_items(self, positions: I64, items: Void) -> None:
        """Store items of one size, no byte more."""
        anywhere(self.data, items.itemsize)[positions] = items

    def put_words(self, positions: I64, words: U64, sizes: I64 | int, spill: bool) -> None:
        """Store the first `sizes` bytes of every word, eight at most; `spill` allows to write the others, too."""
        if not spill:
            mask = _OWN.take(sizes)
            words = (words & mask) | (self.words[positions] & ~mask)
        self.words_as_voids[positions] = voids(words, 8)


def copy_spans(out: Out, positions: I64, source: U8, begins: I64, lengths: I64, spill: bool) -> None:
    """Copy a span of `source` (which is padded) to every position: word by word, the long ones in chunks."""
    most = int(lengths.max(initial=0))
    if most > _CHUNK:
        long = lengths >= _CHUNK
        _copy_chunks(out, positions[long], source, begins[long], lengths[long])
        short = ~long
        positions, begins, lengths = positions[short], begins[short], lengths[short]
        most = min(most, _CHUNK - 1)
    words = overlapping_words(source)
    for offset in range(0, most, 8):
        more = lengths > offset
        if not more.all():
            positions, begins, lengths = positions[more], begins[more], lengths[more]
        size = np.minimum(lengths - offset, 8)
        out.put_words(positions + offset, words[begins + offset], size, spill)


def _copy_chunks(out: Out, positions: I64, source: U8, begins: I64, lengths: I64) -> None:
    """Copy spans of a chunk or more; the last chunk of a span overlaps the one before it."""
    chunks = -(-lengths // _CHUNK)
    total = int(chunks.sum())
    number = np.arange(total) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    offset = np.minimum(number * _CHUNK, np.repeat(lengths - _CHUNK, chunks))
    out.put_items(np.repeat(positions, chunks) + offset, anywhere(source, _CHUNK)[np.repeat(begins, chunks) + offset])
