"""Images of changed rows as texts, as Hudi's Spark data source shows them: Avro's text of a record (pure).

The texts are JSON. Times are numbers, and decimals lists of bytes, as they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.schema.java_text import java_text

__all__ = ["image_texts", "with_image_texts"]

_ESCAPES: Final = (
    ("\\", "\\\\"),
    ('"', '\\"'),
    ("\b", "\\b"),
    ("\f", "\\f"),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
)
#: Characters that Avro writes as ``\\uXXXX``.
_CODED: Final = (*range(0x20), *range(0x7F, 0xA0), *range(0x2000, 0x2100))
_ANY_CODED: Final = r"[\x00-\x1f\x7f-\x{9f}\x{2000}-\x{20ff}]"


def with_image_texts(changes: pa.Table) -> pa.Table:
    """Return changes with ``before`` and ``after`` as texts; a missing image is the text ``null``, as in Hudi."""
    for name in ("before", "after"):
        number = changes.schema.get_field_index(name)
        texts = [image_texts(chunk) for chunk in changes.column(number).chunks]
        changes = changes.set_column(number, name, pa.chunked_array(texts, pa.string()))
    return changes


def image_texts(images: pa.Array) -> pa.Array:
    """Return the text of every value of a column, of any type.

    Example:
        >>> rows = pa.array([{"id": "a", "v": 1.0, "n": None}, None])
        >>> image_texts(rows).to_pylist()
        ['{"id": "a", "v": 1.0, "n": null}', 'null']
    """
    kind = images.type
    if pt.is_struct(kind):
        fields = [kind.field(number).name for number in range(kind.num_fields)]
        texts = _record_texts(fields, [image_texts(child) for child in images.flatten()], len(images))
    elif pt.is_map(kind):
        texts = _map_texts(images)
    elif pt.is_list(kind) or pt.is_large_list(kind):
        texts = _enclosed(_joined(image_texts(images.flatten()), images), "[", "]")
    elif pt.is_floating(kind):
        plain = java_text(images, "")
        texts = pc.if_else(pc.is_finite(images), plain, _enclosed(plain, '"', '"'))
    elif pt.is_date(kind):
        texts = images.cast(pa.int32()).cast(pa.string())
    elif pt.is_decimal(kind):
        texts = _decimal_texts(images)
    elif pt.is_binary(kind) or pt.is_large_binary(kind):
        texts = _enclosed(_escaped(_latin(images)), '"', '"')
    elif pt.is_string(kind) or pt.is_large_string(kind):
        texts = _enclosed(_escaped(images.cast(pa.string())), '"', '"')
    else:
        texts = java_text(images, "")
    return pc.if_else(images.is_valid(), texts, "null").cast(pa.string())


def _enclosed(texts: pa.Array, before: str, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _record_texts(names: Sequence[str], values: Sequence[pa.Array], rows: int) -> pa.Array:
    if not names:
        return pa.repeat(pa.scalar("{}", pa.string()), rows)
    pairs = [_enclosed(texts, f'"{name}": ', "") for name, texts in zip(names, values, strict=True)]
    return _enclosed(pc.binary_join_element_wise(*pairs, ", "), "{", "}")


def _map_texts(maps: pa.Array) -> pa.Array:
    lists = maps.cast(pa.list_(pa.struct([maps.type.key_field, maps.type.item_field])))
    keys, values = lists.flatten().flatten()
    pairs = pc.binary_join_element_wise(image_texts(keys), image_texts(values), ": ")
    return _enclosed(_joined(pairs, lists), "{", "}")


def _joined(texts: pa.Array, lists: pa.Array) -> pa.Array:
    """Return the texts of each list's elements, one after the other."""
    lengths = pc.fill_null(pc.list_value_length(lists).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ", ")


def _decimal_texts(numbers: pa.Array) -> pa.Array:
    """Return the bytes of decimals, most significant first, as lists of signed numbers: they are stored in such bytes."""
    size = next(n for n in range(1, 17) if 10**numbers.type.precision <= 1 << (8 * n - 1))
    stored = np.frombuffer(numbers.buffers()[1], np.int8).reshape(-1, 16)
    chosen = stored[numbers.offset : numbers.offset + len(numbers), size - 1 :: -1]
    texts = pa.array(chosen.reshape(-1)).cast(pa.string())
    offsets = pa.array(np.arange(0, (len(numbers) + 1) * size, size, dtype=np.int32))
    return _enclosed(pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ", "), "[", "]")


def _latin(values: pa.Array) -> pa.Array:
    """Return bytes as the characters of the same numbers."""
    values = values.cast(pa.binary())
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    # Bytes from 0x80 on take two in UTF-8: 0xC2 or 0xC3, and their low bits.
    high = data >= 0x80
    ends = np.cumsum(1 + high)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    out[ends - 1] = np.where(high, 0x80 | (data & 0x3F), data)
    out[(ends - 2)[high]] = 0xC0 | (data[high] >> 6)
    placed = np.concatenate(([0], ends))[offsets - offsets[0]].astype(np.int32)
    buffers = [None, pa.py_buffer(placed.tobytes()), pa.py_buffer(out.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _escaped(texts: pa.Array) -> pa.Array:
    for plain, code in _ESCAPES:
        texts = pc.replace_substring(texts, plain, code)
    if pc.match_substring_regex(texts, _ANY_CODED).true_count:
        for number in _CODED:
            texts = pc.replace_substring(texts, chr(number), f"\\u{number:04X}")
    return texts
