"""The bits of bloom filters, set at the places that keys hash to. Pure.

Bits are set in one of two ways: one byte per bit (a flag), packed at the end, or packed directly.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.formats.bloom.murmur import HashChain, key_blocks

__all__ = ["join_bits", "set_bits", "set_flags", "set_placed", "zeroed"]

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

#: Bits are set as one byte each if this share of them is set: then clearing and packing the bytes
#: pays off.
_WORTH_UNPACKING = 128
#: Allocate buffers above this size with mmap: they are returned to the OS when freed and do not
#: raise glibc's mmap threshold.
_OWN_PAGES = 1 << 23
_PACKED_TOGETHER = 1 << 16
#: Up to this number the bit positions of a block are computed at once.
_FEW_POSITIONS = 1 << 14
#: Positions that are sorted together.
_SORTED_TOGETHER = 1 << 20


def zeroed(size: int) -> U8:
    """Return zeroed bytes, in huge pages where available: bits are set at random places."""
    if size < _OWN_PAGES:
        return np.zeros(size, np.uint8)
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # small buffers come from the heap
    with suppress(OSError):  # the system may lack huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def set_flags(flags: U8, chunks: list[pa.Array], base: I64, k: int, m: int, *, in_order: bool = False) -> None:
    """Set the flag bytes of all keys, relative to each key's `base`."""
    positions = _flat_positions(chunks, base, k, m)
    for index in _sorted(positions) if in_order and len(flags) <= 1 << 32 else positions:
        flags[index] = 1


def _sorted(positions: Iterable[U32 | I64]) -> Iterator[U32]:
    """Yield positions in ascending order, many together: neighbours then lie in one page, or one line of a cache."""
    waiting: list[U32] = []
    for index in positions:
        waiting.append(index.astype(np.uint32))  # NumPy sorts narrow numbers in half the time
        if sum(map(len, waiting)) >= _SORTED_TOGETHER:
            yield _ascending(waiting)
            waiting = []
    if waiting:
        yield _ascending(waiting)


def _ascending(parts: list[U32]) -> U32:
    joined = np.concatenate(parts)
    joined.sort()
    return joined


def join_bits(bits: U8, flags: U8) -> None:
    """Pack the bits of `flags` into `part`, in steps."""
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


def _flat_positions(chunks: list[pa.Array], base: I64, k: int, m: int) -> Iterator[U32 | I64]:
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
