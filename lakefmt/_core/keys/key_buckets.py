"""The bucket of a row in a table that keeps the order of rows in a bucket (docs/dev/append.md, Buckets).

A bucket key is hashed with MurmurHash3 (32 bits, x86), by columns. The bytes of a value do not depend on the width of its
type, so that a column that becomes wider keeps its buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import one_array
from lakefmt.errors import InvalidInputError, SchemaMismatch

__all__ = ["check_bucket_key", "key_buckets", "murmur3"]

U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def key_buckets(table: pa.Table, columns: Sequence[str], buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket of every row.

    The hash of a column is the seed of the next one; the first seed is 0.

    Args:
        table: the rows.
        columns: the bucket key.
        buckets: how many there are.

    Raises:
        SchemaMismatch: a column is not there, or has a type that is not hashed.

    Example:
        >>> key_buckets(pa.table({"product": ["apple", "pear", "apple", None]}), ["product"], 8).tolist()
        [0, 5, 0, 0]
    """
    check_bucket_key(table.schema, columns, buckets)
    hashes: U32 = np.zeros(table.num_rows, np.uint32)
    for name in columns:
        hashes = murmur3(*_bytes_of(one_array(table.column(name))), hashes)
    return (hashes.astype(np.int64)) % buckets


def check_bucket_key(schema: pa.Schema, columns: Sequence[str], buckets: int) -> None:
    """Raise unless rows of a schema have such buckets.

    Raises:
        InvalidInputError: there is no column, or no bucket.
        SchemaMismatch: a column is not there, or has a type that is not hashed.
    """
    if not columns or not 1 <= buckets < 10_000_000:
        raise InvalidInputError("buckets need a key of at least one column, and a number from 1 to 9,999,999")
    for name in columns:
        if name not in schema.names:
            raise SchemaMismatch(f"bucket_key column {name!r} is not in the schema {schema.names}")
        if not _is_hashed(schema.field(name).type):
            raise SchemaMismatch(
                f"bucket_key column {name!r} has type {schema.field(name).type}: texts, binary, integers, booleans, dates, "
                "times and timestamps have buckets"
            )


def _is_hashed(data_type: pa.DataType) -> bool:
    if pt.is_dictionary(data_type):
        return _is_hashed(data_type.value_type)
    is_text = (
        pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
    )
    return (
        is_text
        or pt.is_integer(data_type)
        or pt.is_boolean(data_type)
        or (pt.is_temporal(data_type) and not pt.is_interval(data_type))
    )


def _bytes_of(values: pa.Array) -> tuple[U8, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bytes of values in one buffer, where each begins, and how many it has; a null has none."""
    if pt.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    data_type = values.type
    if pt.is_integer(data_type) or pt.is_boolean(data_type) or pt.is_temporal(data_type):
        return _bytes_of_numbers(values)
    texts = values.cast(pa.large_binary())
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, texts.offset * 8)
    data = texts.buffers()[2]
    buffer = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.where(texts.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    return buffer, offsets[:-1], lengths


def _bytes_of_numbers(values: pa.Array) -> tuple[U8, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return numbers as eight bytes, the smallest first: dates as days, times and timestamps in microseconds."""
    data_type, valid = values.type, values.is_valid().to_numpy(zero_copy_only=False)
    if pt.is_timestamp(data_type):
        values = values.cast(pa.timestamp("us", data_type.tz), safe=False)
    elif pt.is_time(data_type):
        values = values.cast(pa.time64("us"), safe=False)
    elif pt.is_duration(data_type):
        values = values.cast(pa.duration("us"), safe=False)
    elif pt.is_date(data_type):
        values = values.cast(pa.date32()).cast(pa.int32())
    wide = values.cast(pa.uint64() if data_type == pa.uint64() else pa.int64())
    zero = pa.scalar(0, wide.type)
    numbers = np.ascontiguousarray(pc.fill_null(wide, zero).to_numpy(zero_copy_only=False)).astype(
        "<i8", casting="unsafe"
    )
    starts = np.arange(len(numbers), dtype=np.int64) * 8
    return numbers.view(np.uint8), starts, np.where(valid, 8, 0)


def murmur3(data: U8, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seeds: U32) -> U32:
    """Return MurmurHash3 (x86, 32 bits) of many values.

    Args:
        data: the bytes of all values.
        starts: where each begins.
        lengths: how many bytes it has.
        seeds: the seed of each.

    Example:
        >>> data = np.frombuffer(b"hello", np.uint8)
        >>> [hex(h) for h in murmur3(data, np.array([0]), np.array([5]), np.zeros(1, np.uint32))]
        ['0x248bfa47']
    """
    with np.errstate(over="ignore"):
        hashes = seeds.astype(np.uint32, copy=True)
        blocks = lengths // 4
        padded = np.concatenate([data, np.zeros(4, np.uint8)])
        order = np.argsort(-blocks, kind="stable")
        for block in range(int(blocks.max(initial=0))):  # over four bytes of every value at a time
            rows = order[: int(np.searchsorted(-blocks[order], -block, side="left"))]
            mixed = hashes[rows] ^ _scrambled(_words(padded, starts[rows] + 4 * block, np.full(len(rows), 4)))
            hashes[rows] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashes ^= _scrambled(_words(padded, starts + 4 * blocks, lengths % 4))
        hashes ^= lengths.astype(np.uint32)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
        return cast("U32", hashes ^ (hashes >> np.uint32(16)))


def _words(data: U8, starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> U32:
    """Return up to four bytes at each start as a number, the first byte the lowest."""
    words = np.zeros(len(starts), np.uint32)
    for offset in range(4):
        byte = data[np.minimum(starts + offset, len(data) - 1)].astype(np.uint32)
        words |= np.where(offset < counts, byte, np.uint32(0)) << np.uint32(8 * offset)
    return words


def _scrambled(words: U32) -> U32:
    return cast("U32", _rotated(words * _C1, 15) * _C2)


def _rotated(words: U32, bits: int) -> U32:
    return cast("U32", (words << np.uint32(bits)) | (words >> np.uint32(32 - bits)))
