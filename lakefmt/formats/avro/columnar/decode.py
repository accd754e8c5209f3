"""Avro records to Arrow columns: where every record stands is known, the columns are read one after the other. Pure.

The reader of a column gets the offsets of its values and the end of each record; it returns the values and the offsets at
which they end, where the next column begins. No position ever passes the end of its record, so that nothing is read, counted or
allocated that the record does not hold (:mod:`~lakefmt.formats.avro.columnar._nested` for arrays and maps).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lakefmt.arrays import distinct, from_numpy
from lakefmt.formats.avro.columnar._cursor import ByteCursor, DamagedInput
from lakefmt.formats.avro.columnar._nested import find_items, skip
from lakefmt.formats.avro.columnar.plan import Node
from lakefmt.formats.avro.columnar.varint import I64, U8, anywhere
from lakefmt.schema.types import struct_fields

__all__ = ["ByteCursor", "DamagedInput", "read_columns", "read_values", "spread"]

Flags = npt.NDArray[np.bool_]
_Read = tuple[pa.Array, I64]

_MAX_UNSCALED = 16


def read_columns(source: ByteCursor, root: Node, begins: I64, stops: I64, wanted: Sequence[int]) -> list[pa.Array]:
    """Return the columns of some records that have the numbers `wanted`, in this order.

    Raises:
        Damage: a record does not fit the schema.
        UnsupportedFeature: nulls would take far more memory than the file.
    """
    positions, limit = begins - source.begin, stops - source.begin
    arrays: dict[int, pa.Array] = {}
    last = max(wanted)
    for number, part in enumerate(root.parts[: last + 1]):
        if number in wanted:
            arrays[number], positions = read_values(source, part, positions, limit)
        else:
            positions = skip(source, part, positions, limit)
    if last == len(root.parts) - 1 and not np.array_equal(positions, limit):
        raise DamagedInput("bytes are left behind the last field")
    return [arrays[number] for number in wanted]


def read_values(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    """Return the values of `node` that begin at `positions`, and where they end; none passes its `limit`.

    Raises:
        Damage: a value does not fit.
        UnsupportedFeature: nulls would take far more memory than the file.
    """
    if node.branch is None:
        return _READERS[node.kind](source, node, positions, limit)
    valid = source.branches(node, positions, limit)
    if valid is None:
        return _READERS[node.kind](source, node, positions + 1, limit)
    there = np.flatnonzero(valid)
    source.charge((len(positions) - len(there)) * node.width, node)
    end = positions + 1
    if not len(there):
        return pa.nulls(len(positions), node.arrow), end
    dense, end[there] = _READERS[node.kind](source, node, end.take(there), limit.take(there))
    return spread(dense, valid), end


def spread(dense: pa.Array, valid: Flags) -> pa.Array:
    """Return the values with nulls between them."""
    place = np.cumsum(valid, dtype=np.int32)
    place -= 1
    return dense.take(from_numpy(place, valid))


def _array(node: Node, values: npt.NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(node.arrow, len(values), [None, pa.py_buffer(values)])


def _checked(array: pa.Array, node: Node) -> pa.Array:
    """Return an array whose values Arrow finds possible: UTF-8, times of a day, decimals of few enough digits."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DamagedInput(f"column {node.path!r}: {error}") from None
    return array


# ---------------------------------------------------------------------------------------------------- plain values


def _read_number(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    values, end = source.numbers(node, positions, limit)
    if node.kind == "int":
        if int(values.max(initial=0)) >= 1 << 31 or int(values.min(initial=0)) < -(1 << 31):
            raise DamagedInput(f"column {node.path!r}: an int of more than 32 bits")
        values = values.astype(np.int32)
    array = _array(node, values)
    return _checked(array, node) if pt.is_time(node.arrow) else array, end


def _read_boolean(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    end = source.skip_bytes(node, positions, 1, limit)
    values = source.data.take(positions)
    if int(values.max(initial=0)) > 1:
        raise DamagedInput(f"column {node.path!r}: a boolean is neither 0 nor 1")
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(node.arrow, len(positions), [None, pa.py_buffer(bits)]), end


def _read_float(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    size = 4 if node.kind == "float" else 8
    end = source.skip_bytes(node, positions, size, limit)
    return _array(node, anywhere(source.data, size)[positions]), end


def _read_fixed(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    end = source.skip_bytes(node, positions, node.size, limit)
    items = anywhere(source.data, node.size)[positions]
    if not pt.is_decimal(node.arrow):
        return _array(node, items), end
    return _decimal(node, items.view(np.uint8).reshape(-1, node.size)), end


def _read_enum(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    values, end = source.numbers(node, positions, limit)
    if int(values.max(initial=0)) >= len(node.symbols) or int(values.min(initial=0)) < 0:
        raise DamagedInput(f"column {node.path!r}: a symbol that the schema does not have")
    source.charge(len(positions) * max(map(len, node.symbols)), node)
    return pa.array(node.symbols, pa.string()).take(from_numpy(values)), end


# ------------------------------------------------------------------------------------------------- text and bytes


def _read_text(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    begins, lengths, end = source.spans(node, positions, limit)
    if pt.is_decimal(node.arrow):
        return _short_decimals(source, node, begins, lengths), end
    offsets = np.zeros(len(positions) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = _joined(source, begins, lengths, end)
    buffers = [None, pa.py_buffer(offsets), data]
    array = pa.Array.from_buffers(node.arrow, len(positions), buffers)
    if node.kind == "string" and data.size and int(np.frombuffer(data, np.uint8).max()) > 127:
        _checked(array, node)
    return array, end


def _joined(source: ByteCursor, begins: I64, lengths: I64, end: I64) -> pa.Buffer:
    """Return the spans of the source one behind the other."""
    length = int(lengths[0]) if len(lengths) else 0
    if (lengths == length).all():
        items = anywhere(source.data, length)[begins] if length else np.empty(0, np.uint8)
        return pa.py_buffer(items)
    # What lies between the spans are texts, too, for Arrow: every other one is taken.
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2] = begins
    bounds[1::2] = end
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(source.data)]
    every = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return every.take(from_numpy(np.arange(0, len(bounds), 2, dtype=np.int32))).buffers()[2]


def _short_decimals(source: ByteCursor, node: Node, begins: I64, lengths: I64) -> pa.Array:
    table = np.empty((len(begins), _MAX_UNSCALED), np.uint8)
    for size in distinct(lengths):
        if not 0 < size <= _MAX_UNSCALED:
            raise DamagedInput(f"column {node.path!r}: a decimal of {size} bytes")
        rows = np.flatnonzero(lengths == size)
        items = anywhere(source.data, int(size))[begins[rows]].view(np.uint8).reshape(-1, int(size))
        table[rows] = _unscaled(node, items)
    return _checked(_array(node, table.reshape(-1).view("V16")), node)


def _decimal(node: Node, items: U8) -> pa.Array:
    return _checked(_array(node, _unscaled(node, items).reshape(-1).view("V16")), node)


def _unscaled(node: Node, items: U8) -> U8:
    """Return big-endian numbers as little-endian ones of sixteen bytes."""
    size = items.shape[1]
    sign = (items[:, :1] >> 7) * np.uint8(255)
    table = np.empty((len(items), _MAX_UNSCALED), np.uint8)
    extra = max(0, size - _MAX_UNSCALED)
    used = items[:, extra:]
    table[:, : size - extra] = used[:, ::-1]
    table[:, size - extra :] = sign
    if (extra and (items[:, :extra] != sign).any()) or (used[:, :1] ^ sign > 127).any():
        raise DamagedInput(f"column {node.path!r}: a decimal of more than 128 bits")
    return table


# ---------------------------------------------------------------------------------------------------------- nested


def _read_record(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    arrays = []
    for part in node.parts:
        array, positions = read_values(source, part, positions, limit)
        arrays.append(array)
    return pa.StructArray.from_arrays(arrays, fields=struct_fields(node.arrow)), positions


def _read_items(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _Read:
    items = find_items(source, node, positions, limit)
    offsets = np.zeros(len(positions) + 1, np.int32)
    np.cumsum(items.counts, out=offsets[1:])
    arrays, here = [], items.starts
    for part in node.parts:
        array, here = read_values(source, part, here, items.limits)
        arrays.append(array)
    inner = arrays[0]
    if node.kind == "map":
        fields = [pa.field("key", pa.string(), nullable=False), node.arrow.item_field]
        inner = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.Array.from_buffers(node.arrow, len(positions), [None, pa.py_buffer(offsets)], children=[inner]), items.end


_READERS: dict[str, Callable[[ByteCursor, Node, I64, I64], _Read]] = {
    "boolean": _read_boolean,
    "int": _read_number,
    "long": _read_number,
    "float": _read_float,
    "double": _read_float,
    "bytes": _read_text,
    "string": _read_text,
    "fixed": _read_fixed,
    "enum": _read_enum,
    "record": _read_record,
    "array": _read_items,
    "map": _read_items,
}
