"""The order of ordering values: one for batches, base files, logs and deletes (spec 7.9). Pure.

It is Java's ``compareTo``, by which Hudi merges. NaN is the largest number and equals every other NaN, -0.0 is smaller than
0.0. Texts compare by their UTF-8 bytes. Bytes compare as Java's signed ones, so that 0x80 is the smallest byte. Null is
smaller than every value. Arrow's own comparisons differ in all of this but texts, so every comparison of ordering values
goes through :func:`comparable`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakefmt.errors import UnsupportedFeature

__all__ = ["comparable"]

#: The bit that Java's signed bytes have and that unsigned ones lack.
_SIGN: Final = np.uint8(0x80)
_UNORDERED: Final = (pt.is_nested, pt.is_null)


def comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values that Arrow compares as Hudi compares `values`; nulls stay null.

    Args:
        values: ordering values of any type.

    Raises:
        UnsupportedFeature: the type has no order, such as a list.

    Example:
        >>> ranks = comparable(pa.array([float("nan"), 0.0, -0.0, float("inf")]))
        >>> ranks.type, np.argsort(ranks).tolist()
        (DataType(int64), [2, 1, 3, 0])
    """
    flat = _one_array(values)
    kind = flat.type
    if pt.is_dictionary(kind):
        return comparable(flat.dictionary_decode())
    if pt.is_float16(kind):
        return _ordered_bits(flat.cast(pa.float32()), np.dtype(np.int32))
    if pt.is_float32(kind):
        return _ordered_bits(flat, np.dtype(np.int32))
    if pt.is_float64(kind):
        return _ordered_bits(flat, np.dtype(np.int64))
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return _signed(flat)
    if any(check(kind) for check in _UNORDERED):
        raise UnsupportedFeature(f"ordering values of type {kind} have no order: order rows by a number, time or text")
    return flat


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays([*values.chunks, pa.nulls(0, values.type)])


def _ordered_bits(values: pa.Array, width: np.dtype[np.signedinteger]) -> pa.Array:
    """Return floats as integers in the same order: the bits, those below the sign turned over in negative numbers."""
    missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    whole = values if missing is None else values.fill_null(0.0)
    numbers = whole.to_numpy(zero_copy_only=False)
    bits = numbers.view(width)
    largest = np.iinfo(width).max
    ordered = np.where(bits < 0, bits ^ largest, bits)
    ordered[np.isnan(numbers)] = largest  # larger than infinity, whatever its bits are
    return pa.array(ordered, mask=missing)


def _signed(values: pa.Array) -> pa.Array:
    """Return bytes with the sign bit of each turned over: compared as unsigned ones they have the signed order."""
    *before, data = values.buffers()
    if data is None:
        return values
    turned = pa.py_buffer(np.frombuffer(data, np.uint8) ^ _SIGN)
    return pa.Array.from_buffers(values.type, len(values), [*before, turned], values.null_count, values.offset)
