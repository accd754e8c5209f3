"""Values of one width, replaced in place of others: a copy of the column and one store, not a walk over it. Pure.

Arrow's own ``replace_with_mask`` looks at every row of a column for the few that change; NumPy copies the column as memory
and stores the few. That needs values of one width without nulls: numbers, dates, times, decimals, and texts that all
have the same length, as keys often do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lakefmt.values_texts import common_length, text_offsets

__all__ = ["replaced_items"]

_Items = npt.NDArray[np.generic]
#: Numpy moves these as numbers, everything else as a piece of memory.
_NUMBERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def replaced_items(column: pa.Array, rows: npt.NDArray[np.int64], values: pa.Array) -> pa.Array | None:
    """Return a column with some rows replaced; None when its values are not all of one width.

    Args:
        column: the column.
        rows: the rows, each once.
        values: what comes in their places, of the column's type.

    Example:
        >>> replaced_items(pa.array([1, 2, 3]), np.array([2, 0]), pa.array([30, 10])).to_pylist()
        [10, 2, 30]
        >>> replaced_items(pa.array(["a", "b"]), np.array([0]), pa.array(["long"])) is None
        True
    """
    if column.type != values.type or column.null_count or values.null_count or not len(column):
        return None
    if pt.is_string(column.type) or pt.is_binary(column.type):
        return _replaced_texts(column, rows, values)
    width = _width(column.type)
    if not width:
        return None
    items = _fixed(column, width).copy()
    items[rows] = _fixed(values, width)
    return pa.Array.from_buffers(column.type, len(items), [None, pa.py_buffer(items)])


def _width(kind: pa.DataType) -> int:
    """Return the bytes of each value in memory; 0 when the type has no such."""
    plain = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_temporal(kind) or pt.is_decimal(kind)
    if not plain or pt.is_interval(kind):
        return 0
    return int(kind.bit_width) // 8


def _fixed(column: pa.Array, width: int) -> _Items:
    kind = np.dtype(_NUMBERS.get(width, f"V{width}"))
    buffer = column.buffers()[1]
    return np.empty(0, kind) if buffer is None else np.frombuffer(buffer, kind, len(column), column.offset * width)


def _replaced_texts(column: pa.Array, rows: npt.NDArray[np.int64], values: pa.Array) -> pa.Array | None:
    old, new = _texts(column), _texts(values)
    if old is None or (len(values) and (new is None or new.dtype != old.dtype)):
        return None
    items = old.copy()
    if new is not None:
        items[rows] = new
    offsets = np.arange(len(items) + 1, dtype=np.int32) * np.int32(items.itemsize)
    return pa.Array.from_buffers(column.type, len(items), [None, pa.py_buffer(offsets), pa.py_buffer(items)])


def _texts(column: pa.Array) -> _Items | None:
    """Return texts as pieces of memory; None when they are empty, or not all of one length."""
    offsets, data = text_offsets(column), column.buffers()[2]
    length = common_length(offsets)
    if not length or data is None:
        return None
    return np.frombuffer(data, f"V{length}", len(column), int(offsets[0]))
