"""The bits of a key filter being set: as a byte each, packed at the end, or packed at once (spec 6.3). Pure."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.formats.murmur import HashChain, key_blocks

__all__ = ["join_bits", "set_bits", "set_flags", "set_placed", "zeroed"]

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

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


def set_flags(flags: U8, chunks: list[pa.Array], base: I64, k: int, m: int) -> None:
    """Set the bytes that stand for the bits of all keys, counted from each key's `base`."""
    for index in _flat_positions(chunks, base, k, m):
        flags[index] = 1


def join_bits(bits: U8, flags: U8) -> None:
    """Set the bits of `flags`, some at a time."""
    flat = bits.reshape(-1)
    for start in range(0, len(flat), _PACKED_TOGETHER):
        part = flat[start : start + _PACKED_TOGETHER]
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
        for index in _flat_positions(chunks, base, k, m):
            _set_packed(part, index)


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
