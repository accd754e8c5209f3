"""Arrays of texts and of bytes as NumPy sees them: where each value begins and ends. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

__all__ = ["common_length", "text_offsets"]


def text_offsets(texts: pa.Array) -> npt.NDArray[np.signedinteger]:
    """Return where each value begins in the array's bytes, and behind them where the last one ends; nothing is copied.

    Args:
        texts: texts or bytes, plain or large.

    Example:
        >>> text_offsets(pa.array(["a", "bcd", "e"])[1:])
        array([1, 4, 5], dtype=int32)
    """
    kind = np.dtype(np.int64 if pt.is_large_string(texts.type) or pt.is_large_binary(texts.type) else np.int32)
    offsets = texts.buffers()[1]
    if offsets is None or not offsets.size:  # Arrow may leave them away where there are no values
        return np.zeros(1, kind)
    return np.frombuffer(offsets, kind, len(texts) + 1, texts.offset * kind.itemsize)


def common_length(offsets: npt.NDArray[np.signedinteger]) -> int | None:
    """Return the length of all values, in bytes; None when they differ, or there are none.

    Example:
        >>> common_length(text_offsets(pa.array(["ab", "cd"])))
        2
    """
    if len(offsets) < 2:
        return None
    length = int(offsets[1] - offsets[0])
    # The ends first: they tell most columns of many lengths for nothing.
    is_even = int(offsets[-1] - offsets[0]) == length * (len(offsets) - 1)
    return length if is_even and bool((np.diff(offsets) == length).all()) else None
