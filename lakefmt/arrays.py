"""The value offsets of Arrow text and binary arrays, as NumPy arrays. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

__all__ = ["common_length", "text_offsets"]


def text_offsets(texts: pa.Array) -> npt.NDArray[np.signedinteger]:
    """Return the ``(n + 1,)`` offsets of the values in the array's bytes, without copying.

    Args:
        texts: text or bytes, plain or large.

    Example:
        >>> text_offsets(pa.array(["a", "bcd", "e"])[1:])
        array([1, 4, 5], dtype=int32)
    """
    kind = np.dtype(np.int64 if pt.is_large_string(texts.type) or pt.is_large_binary(texts.type) else np.int32)
    offsets = texts.buffers()[1]
    if offsets is None or not offsets.size:  # Arrow may omit them for arrays without values
        return np.zeros(1, kind)
    return np.frombuffer(offsets, kind, len(texts) + 1, texts.offset * kind.itemsize)


def common_length(offsets: npt.NDArray[np.signedinteger]) -> int | None:
    """Return the common length of all values in bytes; None if lengths differ or there are no values.

    Example:
        >>> common_length(text_offsets(pa.array(["ab", "cd"])))
        2
    """
    if len(offsets) < 2:
        return None
    length = int(offsets[1] - offsets[0])
    # The first and last offset settle most columns of different lengths cheaply.
    is_even = int(offsets[-1] - offsets[0]) == length * (len(offsets) - 1)
    return length if is_even and bool((np.diff(offsets) == length).all()) else None
