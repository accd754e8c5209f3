"""One number for a bag of rows: the same for equal rows in any order, in every environment (pyarrow and NumPy only).

Each value becomes 64 bits, each row is mixed from its columns' values and names, and the rows are added up modulo 2^64. A
value, a row or a column more, less or changed gives another number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ODD = np.uint64(0x9E3779B97F4A7C15)
_NULL = 0x6A09E667F3BCC908
Words = np.ndarray[Any, np.dtype[np.uint64]]


def digest(table: pa.Table, columns: Sequence[str] | None = None) -> str:
    """Return rows and digest of `table`, over `columns` (default: all), as ``rows:hexadecimal``.

    Raises TypeError for columns of other types than integers, floats, booleans, times, decimals and texts.
    """
    total = np.uint64(0)
    names = list(columns) if columns is not None else sorted(table.column_names)
    with np.errstate(over="ignore"):
        for batch in table.select(names).to_batches(max_chunksize=1 << 18):
            rows = np.zeros(batch.num_rows, np.uint64)
            for name, column in zip(names, batch.columns, strict=True):
                salt = np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))
                rows = _mixed(rows ^ _mixed(_words(column) + salt) + _ODD)
            total += np.add.reduce(rows, dtype=np.uint64)
    return f"{table.num_rows}:{int(total):016x}"


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _words(column: pa.Array) -> Words:
    """Return 64 bits per value, the same whatever the column's encoding is."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_temporal(kind):
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us"), safe=False)
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.string())
    kind, valid = column.type, column.is_valid()
    if pa.types.is_string(kind):
        words = _text_words(column)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        words = np.asarray(pc.fill_null(column.cast(pa.int64()), 0)).view(np.uint64)
    elif pa.types.is_floating(kind):
        words = np.ascontiguousarray(pc.fill_null(column.cast(pa.float64()), 0.0)).view(np.uint64)
    else:
        raise TypeError(f"no digest for a column of {kind}")
    return words if column.null_count == 0 else np.where(np.asarray(valid), words, np.uint64(_NULL))


def _text_words(column: pa.Array) -> Words:
    """Return a number per text: of all its bytes where the texts are equally long, else of its dictionary's entry."""
    column = pc.fill_null(column, "") if column.null_count else column
    lengths = np.asarray(pc.binary_length(column))
    if len(lengths) and lengths[0] and (lengths == lengths[0]).all() and lengths[0] % 4 == 0 and lengths[0] > 12:
        width = int(lengths[0])
        start = int(np.frombuffer(column.buffers()[1], np.int32)[column.offset])
        data = np.frombuffer(column.buffers()[2], np.uint8, len(column) * width, start).reshape(-1, width)
        parts = np.ascontiguousarray(data).view(np.uint32).astype(np.uint64)
        words = np.full(len(column), np.uint64(width))
        for part in range(parts.shape[1]):
            words = (words ^ parts[:, part]) * _ODD
            words ^= words >> np.uint64(29)
        return words
    coded = column.dictionary_encode()
    entries = [int.from_bytes(_short_hash(text), "little") for text in coded.dictionary.to_pylist()]
    return np.array(entries, np.uint64)[np.asarray(coded.indices)] if entries else np.zeros(len(column), np.uint64)


def _short_hash(text: str) -> bytes:
    """Hash one text as its bytes alone decide: the fixed-width road must agree for texts that take it elsewhere."""
    data = text.encode()
    if data and len(data) % 4 == 0 and len(data) > 12:
        word = len(data)
        for at in range(0, len(data), 4):
            word = ((word ^ int.from_bytes(data[at : at + 4], "little")) * int(_ODD)) & 0xFFFFFFFFFFFFFFFF
            word ^= word >> 29
        return word.to_bytes(8, "little")
    return hashlib.blake2b(data, digest_size=8).digest()
