"""Places on a z-order curve and on a Hilbert curve, as bytes that compare like them. Pure.

Both walk through a space of as many dimensions as there are columns and keep neighbours near each other, so that a file of
rows that follow each other covers a small range of every column. The Hilbert curve never jumps; its index is computed as
by J. Skilling ("Programming the Hilbert curve", 2004), for all rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["hilbert_places", "zorder_places"]

Numbers = npt.NDArray[np.uint64]
Places = npt.NDArray[np.uint8]

#: The bits of this many rows are spread out at a time, one byte for each.
_CHUNK_ROWS = 1 << 14


def zorder_places(columns: Sequence[Numbers], bits: int = 64) -> Places:
    """Return the place of each row on the z-order curve: the bits of its numbers in turn, the highest first.

    Args:
        columns: the numbers of each column.
        bits: how many of their lowest bits count.

    Returns:
        One row of bytes for each row, of full bytes: lower bits are 0.

    Example:
        >>> x, y = np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 0, 1], np.uint64)
        >>> (zorder_places([x, y], bits=1) >> 6).tolist()
        [[0], [1], [2], [3]]
    """
    count, width = len(columns[0]), -(-bits * len(columns) // 8)
    places = np.empty((count, width), np.uint8)
    for start in range(0, count, _CHUNK_ROWS):  # chunks, not rows
        part = np.stack([column[start : start + _CHUNK_ROWS] for column in columns], axis=1)
        spread = np.unpackbits(part.astype(">u8")[..., None].view(np.uint8), axis=2)[:, :, 64 - bits :]
        in_turn = spread.transpose(0, 2, 1).reshape(len(part), -1)
        places[start : start + _CHUNK_ROWS] = np.packbits(in_turn, axis=1)
    return places


def hilbert_places(columns: Sequence[Numbers], bits: int = 64) -> Places:
    """Return the place of each row on the Hilbert curve; arguments and result as of :func:`zorder_places`.

    Example:
        >>> x, y = np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 1, 0], np.uint64)
        >>> (hilbert_places([x, y], bits=1) >> 6).tolist()
        [[0], [1], [2], [3]]
    """
    axes = [np.array(column, np.uint64) for column in columns]
    for level in range(bits - 1, 0, -1):
        bit, below = np.uint64(1 << level), np.uint64((1 << level) - 1)
        for number, axis in enumerate(axes):
            is_set = axis & bit != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axes[number] = axis ^ swapped
            axes[0] = (
                axes[0] ^ np.where(is_set, below, swapped)
                if number
                else axes[0] ^ np.where(is_set, below, np.uint64(0))
            )
    for number in range(1, len(axes)):
        axes[number] ^= axes[number - 1]
    turned = np.zeros_like(axes[-1])
    for level in range(bits - 1, 0, -1):
        is_set = axes[-1] & np.uint64(1 << level) != 0
        turned ^= np.where(is_set, np.uint64((1 << level) - 1), np.uint64(0))
    return zorder_places([axis ^ turned for axis in axes], bits)
