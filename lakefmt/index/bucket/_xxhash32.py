"""XXH32 of whole columns, as Hudi's consistent hashing takes it (docs/format.md, Bucket index). Pure.

Values are hashed together, longest first: what has bytes left is then always the first part of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.arrays import text_offsets

__all__ = ["xxhash32"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]

_P1, _P2, _P3, _P4, _P5 = (np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))
_STRIPE: Final = 16
#: Values that are hashed together: what is made of them stays in the processor's caches.
_PART_ROWS: Final = 1 << 15


def xxhash32(texts: pa.StringArray) -> U32:
    """Return the XXH32 hash with seed 0 of each text's UTF-8 bytes.

    Args:
        texts: without nulls.

    Example:
        >>> (xxhash32(pa.array(["", "id1", "TXN-001"])) & 0x7FFFFFFF).tolist()
        [46947589, 1896058697, 849299051]
    """
    offsets = text_offsets(texts).astype(np.int64)
    stored = texts.buffers()[2]
    data = b"" if stored is None else memoryview(stored)[int(offsets[0]) : int(offsets[-1])]
    raw = np.append(np.frombuffer(data, np.uint8), np.zeros(4, np.uint8))
    # Four bytes as a number, from every byte on.
    words = np.ndarray(len(raw) - 3, "<u4", raw, strides=(1,))
    offsets -= offsets[0]
    hashes = np.empty(len(texts), np.uint32)
    for start in range(0, len(texts), _PART_ROWS):  # parts of a column
        ends = offsets[start : start + _PART_ROWS + 1]
        hashes[start : start + _PART_ROWS] = _hash_part(raw, words, ends[:-1], np.diff(ends))
    return hashes


def _hash_part(raw: U8, words: U32, begins: I64, lengths: I64) -> U32:
    order = np.argsort(-lengths, kind="stable")
    places, sizes = begins[order], lengths[order]
    hashes = _hash_stripes(words, places, sizes)
    hashes += sizes.astype(np.uint32)
    done = sizes // _STRIPE * _STRIPE
    for _ in range(_STRIPE // 4 - 1):
        left = np.flatnonzero(sizes - done >= 4)
        hashes[left] = _rotated(hashes[left] + words[places[left] + done[left]] * _P3, 17) * _P4
        done[left] += 4
    for _ in range(3):
        left = np.flatnonzero(done < sizes)
        hashes[left] = _rotated(hashes[left] + raw[places[left] + done[left]] * _P5, 11) * _P1
        done[left] += 1
    hashes = (hashes ^ (hashes >> np.uint32(15))) * _P2
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _P3
    result: U32 = np.empty_like(hashes)
    result[order] = hashes ^ (hashes >> np.uint32(16))
    return result


def _hash_stripes(words: U32, places: I64, sizes: I64) -> U32:
    """Return the hash of the whole stripes of each value, longest values first; short ones begin with a constant."""
    hashes: U32 = np.full(len(sizes), _P5, np.uint32)
    long = int(np.count_nonzero(sizes >= _STRIPE))
    if not long:
        return hashes
    zero = np.uint32(0)
    with np.errstate(over="ignore"):
        starts = (_P1 + _P2, _P2, zero, zero - _P1)
    lanes = [np.full(long, start, np.uint32) for start in starts]
    stripes = sizes[:long] // _STRIPE
    active = np.searchsorted(-stripes, -np.arange(1, int(stripes[0]) + 1), side="right")
    for number, count in enumerate(map(int, active)):  # stripes of the longest value, not rows
        for lane in range(4):
            values = words[places[:count] + (number * _STRIPE + 4 * lane)]
            lanes[lane][:count] = _rotated(lanes[lane][:count] + values * _P2, 13) * _P1
    hashes[:long] = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
    return hashes


def _rotated(values: U32, turn: int) -> U32:
    rotated: U32 = (values << np.uint32(turn)) | (values >> np.uint32(32 - turn))
    return rotated
