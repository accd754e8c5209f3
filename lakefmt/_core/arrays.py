"""Arrow arrays of NumPy arrays, and the memory of Arrow arrays: offsets of texts, values of one width. Pure.

Replacing a few values of a column copies its memory with NumPy and stores the new values, because
Arrow's ``replace_with_mask`` visits every row. That needs values of equal width without nulls:
numbers, dates, times, decimals and texts of equal length, such as most keys.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

__all__ = [
    "common_length",
    "distinct",
    "from_numpy",
    "has_values",
    "one_array",
    "other_rows",
    "replaced_items",
    "text_offsets",
]

_Number = TypeVar("_Number", bound=np.integer)

#: To slice a row out takes as long as to copy some ten thousand bytes.
_LARGE_BYTES = 64 << 10
#: This many first values are enough to rule out most columns.
_SHOW = 64


def from_numpy(values: npt.NDArray[np.generic], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers or flags as an Arrow array, without copying numbers.

    ``pa.array`` does the same, but asks ``numpy.ma`` whether the array is masked: importing that takes 11 ms of a new process.

    Args:
        values: numbers or flags, one behind the other.
        valid: which of them are no nulls; None: all.

    Example:
        >>> from_numpy(np.array([True, False]), np.array([True, False])).to_pylist()
        [True, None]
    """
    is_flag = values.dtype == np.bool_
    data = (
        np.packbits(values.astype(np.bool_, copy=False), bitorder="little") if is_flag else np.ascontiguousarray(values)
    )
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    data_type = pa.bool_() if is_flag else pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(data_type, len(values), [mask, pa.py_buffer(data)])


def rows_at(rows: pa.Table, row_numbers: npt.NDArray[np.int64]) -> pa.Table:
    """Return some rows, in the order of `row_numbers`; large ones, and rows that follow one another, are not copied.

    Example:
        >>> rows_at(pa.table({"n": [10, 20, 30]}), np.array([1, 2]))["n"].to_pylist()
        [20, 30]
    """
    if follow_each_other(row_numbers):
        return rows.slice(int(row_numbers[0]), len(row_numbers))
    if not len(row_numbers) or not are_large(rows):
        return rows.take(from_numpy(row_numbers))
    starts = np.flatnonzero(np.diff(row_numbers, prepend=row_numbers[0]) != 1)
    ends = np.append(starts[1:], len(row_numbers))
    return pa.concat_tables(
        rows.slice(int(row_numbers[start]), int(end - start)) for start, end in zip(starts, ends, strict=True)
    )


def follow_each_other(row_numbers: npt.NDArray[np.int64]) -> bool:
    """Return whether row numbers rise by one from each to the next.

    Example:
        >>> follow_each_other(np.array([3, 4, 5])), follow_each_other(np.array([3, 5])), follow_each_other(np.array([], int))
        (True, False, False)
    """
    spans = len(row_numbers) > 0 and int(row_numbers[-1]) - int(row_numbers[0]) == len(row_numbers) - 1
    return spans and bool((np.diff(row_numbers) == 1).all())


def are_large(values: pa.Table | pa.Array | pa.ChunkedArray) -> bool:
    """Return whether rows or values are so large that to handle each takes less time than to copy it.

    Example:
        >>> are_large(pa.array(["x" * 100_000])), are_large(pa.array(["x" * 100] * 1000))
        (True, False)
    """
    return int(values.nbytes) >= len(values) * _LARGE_BYTES > 0


def distinct(numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return the different numbers in ascending order (``np.unique`` without more arguments imports ``numpy.ma``, too).

    Example:
        >>> distinct(np.array([3, 1, 3]))
        array([1, 3])
    """
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def other_rows(count: int, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the row numbers below `count` that are not among `rows`.

    Example:
        >>> other_rows(4, np.array([2, 0]))
        array([1, 3])
    """
    is_other = np.ones(count, np.bool_)
    is_other[rows] = False
    return np.flatnonzero(is_other)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of a column in one array.

    Example:
        >>> one_array(pa.chunked_array([["a"], ["b"]])).to_pylist(), one_array(pa.chunked_array([], pa.string())).type
        (['a', 'b'], DataType(string))
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def text_offsets(texts: pa.Array) -> npt.NDArray[np.signedinteger]:
    """Return the ``(n + 1,)`` offsets of the values in the array's bytes, without copying.

    Args:
        texts: text or bytes, plain or large.

    Example:
        >>> text_offsets(pa.array(["a", "bcd", "e"])[1:])
        array([1, 4, 5], dtype=int32)
    """
    dtype = np.dtype(np.int64 if pt.is_large_string(texts.type) or pt.is_large_binary(texts.type) else np.int32)
    offsets = texts.buffers()[1]
    if offsets is None or not offsets.size:  # Arrow may omit them for arrays without values
        return np.zeros(1, dtype)
    return np.frombuffer(offsets, dtype, len(texts) + 1, texts.offset * dtype.itemsize)


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


def has_values(column: pa.ChunkedArray, rows: npt.NDArray[np.int64], values: pa.ChunkedArray) -> bool:
    """Return whether a column has the given values in some rows already, bit for bit; False for nested columns.

    Args:
        column: plain, or a dictionary of the type of `values`.
        rows: row numbers.
        values: a value for each of them.

    Example:
        >>> column = pa.chunked_array([[1.5, 0.0], [None]])
        >>> [has_values(column, np.array([1, 2]), pa.chunked_array([[zero, None]])) for zero in (0.0, -0.0)]
        [True, False]
    """
    data_type = column.type.value_type if pt.is_dictionary(column.type) else column.type
    if pt.is_nested(data_type) or data_type != values.type or not _bits_of(data_type):
        return False

    def are_equal(count: int) -> bool:
        stored, given = column.take(from_numpy(rows[:count])).cast(data_type), values.slice(0, count)
        return bool(_as_bits(stored).equals(_as_bits(given)))

    return are_equal(_SHOW) and (len(rows) <= _SHOW or are_equal(len(rows)))


def _bits_of(data_type: pa.DataType) -> pa.DataType | None:
    """Return a type that compares values of `data_type` by their bits: a float equals its negative zero; None if there is none."""
    if pt.is_floating(data_type):
        return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[data_type.bit_width]
    whole = (
        pt.is_integer(data_type) or pt.is_temporal(data_type) or pt.is_decimal(data_type) or pt.is_boolean(data_type)
    )
    texts = pt.is_string(data_type) or pt.is_binary(data_type) or pt.is_fixed_size_binary(data_type)
    return data_type if (whole and not pt.is_interval(data_type)) or texts else None


def _as_bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    bits_type = _bits_of(values.type)
    if not pt.is_floating(values.type):
        return values
    return pa.chunked_array([chunk.view(bits_type) for chunk in values.chunks], bits_type)


_Items = npt.NDArray[np.generic]
#: NumPy moves these widths as integers, all others as void.
_NUMBERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def replaced_items(column: pa.Array, rows: npt.NDArray[np.int64], values: pa.Array) -> pa.Array | None:
    """Return a column with some rows replaced; None if its values do not have one width.

    Args:
        rows: distinct row numbers, int64.
        values: the new values, of the column's type.

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


def _width(data_type: pa.DataType) -> int:
    """Return the width of a value in bytes; 0 if the type has no fixed width."""
    plain = (
        pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_temporal(data_type) or pt.is_decimal(data_type)
    )
    if not plain or pt.is_interval(data_type):
        return 0
    return int(data_type.bit_width) // 8


def _fixed(column: pa.Array, width: int) -> _Items:
    dtype = np.dtype(_NUMBERS.get(width, f"V{width}"))
    buffer = column.buffers()[1]
    return np.empty(0, dtype) if buffer is None else np.frombuffer(buffer, dtype, len(column), column.offset * width)


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
    """Return texts as fixed-width values; None if they are empty or differ in length."""
    offsets, data = text_offsets(column), column.buffers()[2]
    length = common_length(offsets)
    if not length or data is None:
        return None
    return np.frombuffer(data, f"V{length}", len(column), int(offsets[0]))
