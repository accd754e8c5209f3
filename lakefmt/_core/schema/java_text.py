"""Format column values and hash texts as Java does, for keys, partition paths and buckets (docs/format.md, Record keys). Pure.

The texts are those of Java's ``toString``, so that all engines build the same key. Types whose text
differs between Hudi's own writers are refused.

Java hashes UTF-16 units: ``h = 31 * h + unit``, in 32 bits. The hash of any span of a text is the difference of two prefix
sums of ``unit * 31**-k``, times ``31**(end - 1)``: 31 has an inverse among 32-bit numbers.
"""

from __future__ import annotations

import binascii
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import distinct, text_offsets
from lakefmt._core.schema.types import storage_type
from lakefmt.errors import InvalidInputError, InvalidKey, SchemaMismatch

__all__ = [
    "SpanHashes",
    "distinct_values",
    "java_hashes",
    "java_text",
    "plain_array",
    "text_parts",
    "text_spans",
    "zero_padded",
]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]

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


# ---------------------------------------------------------------------------------------------------------------- hashes

#: Bytes of texts that are hashed together: what is made of them stays in the processor's caches.
_HASHED_BYTES: Final = 1 << 18
_BASE: Final = 31
_BASE_INVERSE: Final = pow(_BASE, -1, 1 << 32)
#: So many powers are kept for the next texts: for a few of them, and for a part.
_KEPT_POWERS: Final = (1 << 16, 1 << 19)


def java_hashes(texts: pa.Array) -> npt.NDArray[np.int32]:
    """Return what Java's ``String.hashCode`` gives for texts.

    Args:
        texts: an array of strings or of UTF-8 bytes without nulls.

    Raises:
        InvalidInputError: bytes are not UTF-8.

    Example:
        >>> java_hashes(pa.array(["TXN-009", "TXN-008", "Amazon$", ""])).tolist()
        [-166313930, -166313931, 772100736, 0]
    """
    hashes = []
    for part in text_parts(texts, _HASHED_BYTES):
        raw, begins, ends = text_spans(part)
        hashes.append(SpanHashes(raw).of(begins, ends))
    return np.concatenate(hashes).view(np.int32) if hashes else np.empty(0, np.int32)


def text_parts(texts: pa.Array, part_bytes: int) -> list[pa.Array]:
    """Return an array in parts of about `part_bytes` bytes of text; one text is never cut."""
    if not len(texts):
        return []
    ends = text_offsets(texts)
    # A part begins with the first text that begins behind each multiple of the part's size.
    steps = np.arange(int(ends[0]), int(ends[-1]), part_bytes)[1:]
    starts = distinct(np.concatenate([[0], np.searchsorted(ends[:-1], steps)]))
    starts = starts[starts < len(texts)]
    lengths = np.diff(np.append(starts, len(texts)))
    return [texts.slice(int(start), int(length)) for start, length in zip(starts, lengths, strict=True)]


def text_spans(texts: pa.Array) -> tuple[U8, I64, I64]:
    """Return the bytes of an array's own texts, one text after the other, and where each begins and ends among them."""
    offsets = text_offsets(texts).astype(np.int64)
    data = texts.buffers()[2]
    raw: U8 = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return raw[offsets[0] : offsets[-1]], offsets[:-1] - offsets[0], offsets[1:] - offsets[0]


class SpanHashes:
    """Java's hashes of any spans of some UTF-8 bytes, from sums that are made once.

    Args:
        raw: the bytes.

    Raises:
        InvalidInputError: they are not UTF-8.
    """

    def __init__(self, raw: U8) -> None:
        units, self._unit_of = _utf16_units(raw)
        count = len(units)
        self._powers, inverses = _powers(count + 1)
        self._sums: U32 = np.zeros(count + 1, np.uint32)
        np.cumsum(units * inverses[:count], dtype=np.uint32, out=self._sums[1:])

    def of(self, begins: I64, ends: I64) -> U32:
        """Return the hashes of the spans from byte `begins` to before byte `ends`; 0 for empty ones."""
        if self._unit_of is not None:
            begins, ends = self._unit_of[begins], self._unit_of[ends]
        hashes: U32 = (self._sums[ends] - self._sums[begins]) * self._powers[np.maximum(ends - 1, 0)]
        return hashes


def _utf16_units(raw: U8) -> tuple[U32, I64 | None]:
    """Return UTF-8 bytes as UTF-16 units, and the unit at which each byte's character begins; None: its own number."""
    if not len(raw) or int(raw.max()) < 0x80:
        return raw.astype(np.uint32), None
    try:
        units = np.frombuffer(raw.tobytes().decode("utf-8").encode("utf-16-le"), "<u2").astype(np.uint32)
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"a key is not UTF-8: {error}") from None
    taken = ((raw & 0xC0) != 0x80).astype(np.int64) + (raw >= 0xF0)  # beyond U+FFFF a character is two units
    return units, np.append(0, np.cumsum(taken))


def _powers(length: int) -> tuple[U32, U32]:
    """Return the powers of 31 and of its inverse modulo 2**32, at least so many of each."""
    size = next((size for size in _KEPT_POWERS if size >= length), None)
    return _made_powers(length) if size is None else _kept_powers(size)


def _made_powers(length: int) -> tuple[U32, U32]:
    base, inverse = np.full(length, _BASE, np.uint32), np.full(length, _BASE_INVERSE, np.uint32)
    base[:1] = inverse[:1] = 1
    return np.multiply.accumulate(base, dtype=np.uint32), np.multiply.accumulate(inverse, dtype=np.uint32)


_kept_powers = lru_cache(maxsize=len(_KEPT_POWERS))(_made_powers)
