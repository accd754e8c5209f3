"""Format column values as Java does, for record keys and partition paths (docs/format.md, Record keys). Pure.

The texts are those of Java's ``toString``, so that all engines build the same key. Types whose text
differs between Hudi's own writers are refused.
"""

from __future__ import annotations

import binascii
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import text_offsets
from lakefmt._core.schema.types import storage_type
from lakefmt.errors import InvalidKey, SchemaMismatch

__all__ = ["distinct_values", "java_text", "plain_array", "zero_padded"]

_FIRST_DAY: Final = -719162  # 0001-01-01
_LAST_DAY: Final = 2932896  # 9999-12-31
_DAY_MS: Final = 86_400_000
_NUMBER: Final = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?(?:e(?P<power>[+-][0-9]+))?$"


def java_text(array: pa.Array, name: str, consistent_timestamps: bool = False) -> pa.Array:
    """Return the key text of every value; nulls stay null.

    Numbers are Java's (``1.0``, ``1.0E10``, ``1E-10``), dates ISO, bytes lower-case hexadecimal,
    timestamps their epoch number in the column's unit, or ``yyyy-MM-dd HH:mm:ss.f`` in UTC with
    `consistent_timestamps`. `name` is the column in errors. Java before release 19 prints a few
    very large or small doubles with one digit too many (``9.999999999999999E22`` for 1e23, none
    between 0.001 and 1e7); this function returns the shortest text.

    Raises:
        InvalidKey: values of that type, or one of the values, cannot be a key.

    Example:
        >>> java_text(pa.array([1.5, 1e10, None]), "x")
        <pyarrow.lib.StringArray object at ...>
        [
          "1.5",
          "1.0E10",
          null
        ]
    """
    array = plain_array(array)
    data_type = array.type
    if pt.is_string(data_type):
        return array
    if pt.is_null(data_type) or pt.is_integer(data_type) or pt.is_boolean(data_type) or _is_text(data_type):
        return array.cast(pa.string())
    if pt.is_floating(data_type):
        return _float_text(array)
    if pt.is_decimal(data_type):
        # Arrow before release 18 writes 1.E-7 instead of 1E-7.
        return pc.replace_substring(array.cast(pa.string()), ".E", "E")
    if pt.is_date(data_type):
        return _date_text(array, name)
    if pt.is_timestamp(data_type):
        return _timestamp_text(array, name) if consistent_timestamps else _epoch(array, name).cast(pa.string())
    if pt.is_time(data_type):
        return array.cast(pa.int32() if data_type.bit_width == 32 else pa.int64()).cast(pa.string())
    if pt.is_binary(data_type) or pt.is_large_binary(data_type):
        return _hex_text(array.cast(pa.binary()))
    raise InvalidKey(f"column {name!r} of type {data_type} cannot be part of a record key or a partition path")


def plain_array(array: pa.Array) -> pa.Array:
    """Return `array` as its :func:`~lakefmt._core.schema.types.storage_type`, without wrapper types."""
    while array.type != storage_type(array.type):
        array = _decoded(array) if pt.is_dictionary(array.type) else array.storage
    return array


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary array; Arrow cannot decode dictionaries of views."""
    large_type = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}.get(str(array.type.value_type))
    if large_type is None:
        return array.dictionary_decode()
    try:
        return array.dictionary.cast(large_type).take(array.indices).cast(array.type.value_type)
    except pa.ArrowNotImplementedError as error:
        raise SchemaMismatch(
            f"Arrow {pa.__version__} cannot read a dictionary of views, release 18 can: {error}"
        ) from None


def distinct_values(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Return a code for every row of `column` and the value of every code; the last value is null."""
    plain = pa.chunked_array([plain_array(chunk) for chunk in column.chunks], storage_type(column.type))
    if not len(plain):  # Arrow cannot encode some types without values
        return np.zeros(0, np.int64), pa.nulls(1, plain.type)
    encoded = plain.dictionary_encode().unify_dictionaries().combine_chunks()
    if not encoded.null_count:
        # The usual case; in a small batch each step below costs as much as the rows.
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, pa.concat_arrays([encoded.dictionary, pa.nulls(1, encoded.dictionary.type)])
    values = encoded.dictionary.filter(encoded.dictionary.is_valid())
    codes = pc.fill_null(encoded.indices.cast(pa.int64()), len(values)).to_numpy(zero_copy_only=False)
    return codes, pa.concat_arrays([values, pa.nulls(1, values.type)])


def zero_padded(numbers: npt.NDArray[np.int64], width: int) -> pa.Array:
    """Return numbers as text, padded with zeros to `width` digits."""
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pt.is_large_string(data_type) or pt.is_string_view(data_type))


def _float_text(array: pa.Array) -> pa.Array:
    if pt.is_float16(array.type):
        array = array.cast(pa.float32())
    decimals, size = array.cast(pa.string()), pc.abs(array)
    plain = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(size, 0.0))
    pointed = pc.if_else(pc.match_substring(decimals, "."), decimals, pc.binary_join_element_wise(decimals, ".0", ""))
    needs_exponent = pc.fill_null(pc.invert(plain), False)
    if not needs_exponent.true_count:
        return pointed
    return pc.replace_with_mask(
        pointed, needs_exponent, _exponent_text(array.filter(needs_exponent), decimals.filter(needs_exponent))
    )


def _exponent_text(array: pa.Array, decimals: pa.Array) -> pa.Array:
    """Return Java's text of numbers with an exponent, and of NaN and infinities (no nulls)."""
    formatted = _scientific(_two_digits(array, decimals))
    formatted = pc.if_else(pc.is_nan(array), "NaN", formatted)
    return pc.if_else(pc.is_inf(array), pc.if_else(pc.greater(array, 0), "Infinity", "-Infinity"), formatted)


def _two_digits(array: pa.Array, decimals: pa.Array) -> pa.Array:
    """Give subnormal numbers at least two digits, as Java does."""
    smallest = float(np.finfo(np.float32 if pt.is_float32(array.type) else np.float64).smallest_normal)
    tiny = pc.and_(pc.less(pc.abs(array), smallest), pc.match_substring_regex(decimals, "^-?[0-9]e"))
    if not tiny.true_count:
        return decimals
    subnormals = array.filter(tiny).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return pc.replace_with_mask(decimals, tiny, pa.array(np.char.mod("%.1e", subnormals), pa.string()))


def _scientific(decimals: pa.Array) -> pa.Array:
    """Return Java's ``d.dddE±n`` for shortest decimal texts; null for infinities and NaN."""
    parts = pc.extract_regex(decimals, _NUMBER)
    sign, integer_part, part, power = (pc.struct_field(parts, name) for name in ("sign", "whole", "part", "power"))
    digits = pc.utf8_ltrim(pc.binary_join_element_wise(integer_part, part, ""), "0")
    small = pc.equal(integer_part, "0")
    zeros = pc.subtract(pc.utf8_length(part), pc.utf8_length(pc.utf8_ltrim(part, "0")))
    point = pc.if_else(small, pc.subtract(-1, zeros), pc.subtract(pc.utf8_length(integer_part), 1))
    stated = pc.if_else(pc.equal(power, ""), "0", pc.utf8_ltrim(power, "+")).cast(pa.int32())
    digits = pc.utf8_rtrim(digits, "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    exponent = pc.add(point, stated).cast(pa.string())
    mantissa = pc.binary_join_element_wise(sign, pc.utf8_slice_codeunits(digits, 0, 1), ".", rest, "")
    return pc.binary_join_element_wise(mantissa, exponent, "E")


def _date_text(array: pa.Array, name: str) -> pa.Array:
    days = array.cast(pa.date32())
    _check_years(days.cast(pa.int32()), _FIRST_DAY, _LAST_DAY, name)
    return days.cast(pa.string())


def _epoch(array: pa.Array, name: str) -> pa.Array:
    if array.type.unit in ("s", "ns"):
        try:
            array = array.cast(pa.timestamp("us", array.type.tz))
        except pa.ArrowInvalid as error:
            raise InvalidKey(f"column {name!r} has times that are no whole microseconds: {error}") from None
    return array.cast(pa.int64())


def _timestamp_text(array: pa.Array, name: str) -> pa.Array:
    epoch = _epoch(array, name)
    if array.type.unit != "ms":
        try:
            millis = epoch.cast(pa.timestamp("us")).cast(pa.timestamp("ms"))
        except pa.ArrowInvalid:
            # One Hudi writer drops the microseconds here, another keeps them.
            raise InvalidKey(
                f"column {name!r} has times finer than a millisecond: Hudi's writers differ here"
            ) from None
    else:
        millis = epoch.cast(pa.timestamp("ms"))
    _check_years(millis.cast(pa.int64()), _FIRST_DAY * _DAY_MS, (_LAST_DAY + 1) * _DAY_MS - 1, name)
    timestamps = pc.utf8_rtrim(millis.cast(pa.string()), "0")
    return pc.if_else(pc.ends_with(timestamps, "."), pc.binary_join_element_wise(timestamps, "0", ""), timestamps)


def _check_years(numbers: pa.Array, first: int, last: int, name: str) -> None:
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    if outside.true_count:
        raise InvalidKey(f"column {name!r} has {outside.true_count} dates outside the years 1 to 9999")


def _hex_text(array: pa.Array) -> pa.Array:
    if not len(array):
        return pa.array([], pa.string())
    data = array.buffers()[2]
    bounds = text_offsets(array)
    raw = memoryview(data)[bounds[0] : bounds[-1]] if data is not None else b""
    doubled = (bounds.astype(np.int64) - bounds[0]) * 2
    if doubled[-1] > np.iinfo(np.int32).max:
        raise InvalidKey("binary keys of more than a gigabyte in one batch: write smaller batches")
    hex_digits = pa.StringArray.from_buffers(
        len(array), pa.py_buffer(doubled.astype(np.int32)), pa.py_buffer(binascii.hexlify(raw))
    )
    return pc.if_else(array.is_valid(), hex_digits, None)
