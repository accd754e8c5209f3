"""Values that nobody sees: what Arrow keeps under a null struct, where the field inside allows no null. Pure.

A null struct has a place for each of its fields all the same. Gathering, decoding and making columns of nulls leave nulls
there, too; Arrow's Parquet writer and its casts then say that a required field holds nulls. Here such places get a value.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lakefmt.schema_types import struct_fields

__all__ = ["cast_rows", "fill_unseen"]

Mask = npt.NDArray[np.bool_]


def cast_rows(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table cast to `schema`, which has its columns; required fields under null structs are no hindrance.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    table = fill_unseen(table)
    return table if table.schema.equals(schema, check_metadata=True) else table.cast(schema)


def fill_unseen(table: pa.Table) -> pa.Table:
    """Return a table without nulls in required fields of structs that are null themselves; else nothing changes.

    Example:
        >>> kind = pa.struct([pa.field("n", pa.int64(), nullable=False)])
        >>> rows = fill_unseen(pa.table({"s": pa.nulls(2, kind)}))
        >>> rows.column("s").null_count, rows.column("s").chunk(0).field(0).null_count
        (2, 0)
    """
    for at, field in enumerate(table.schema):
        if _has_required(field.type):
            column = table.column(at)
            chunks = [_filled(chunk, np.zeros(len(chunk), dtype=bool)) for chunk in column.chunks]
            table = table.set_column(at, field, pa.chunked_array(chunks, field.type))
    return table


@lru_cache(maxsize=4096)
def _has_required(kind: pa.DataType) -> bool:
    """Say whether a struct somewhere in the type has a field that allows no null."""
    if pt.is_struct(kind):
        return any(not field.nullable or _has_required(field.type) for field in struct_fields(kind))
    if pt.is_map(kind):
        return _has_required(kind.item_type)
    return bool(pt.is_list(kind)) and _has_required(kind.value_type)


def _filled(array: pa.Array, unseen: Mask) -> pa.Array:
    """Return an array whose required fields have a value where they are `unseen` or their struct is null."""
    kind = array.type
    if not _has_required(kind):
        return array
    if not pt.is_struct(kind):
        return _filled_items(array)
    nulls = array.is_null() if array.null_count else None
    if nulls is not None:
        unseen = unseen | nulls.to_numpy(zero_copy_only=False)
    children = []
    for number, field in enumerate(struct_fields(kind)):
        child = array.field(number)
        if not field.nullable and child.null_count:
            child = _with_values(child, unseen & child.is_null().to_numpy(zero_copy_only=False))
        children.append(_filled(child, unseen))
    return pa.StructArray.from_arrays(children, fields=struct_fields(kind), mask=nulls)


def _filled_items(array: pa.Array) -> pa.Array:
    kind, bounds = array.type, array.offsets.to_numpy()
    first, count = int(bounds[0]), int(bounds[-1] - bounds[0])
    offsets = pa.array(bounds - bounds[0])
    mask = array.is_null() if array.null_count else None
    # Items of lists that are null are items nobody sees, too.
    lengths = np.diff(bounds)
    unseen = np.zeros(count, dtype=bool) if mask is None else np.repeat(mask.to_numpy(zero_copy_only=False), lengths)
    if pt.is_map(kind):
        keys, items = array.keys.slice(first, count), _filled(array.items.slice(first, count), unseen)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    items = array.values.slice(first, count)
    if not kind.value_field.nullable and items.null_count:
        items = _with_values(items, unseen & items.is_null().to_numpy(zero_copy_only=False))
    return pa.ListArray.from_arrays(offsets, _filled(items, unseen), type=kind, mask=mask)


def _with_values(array: pa.Array, where: Mask) -> pa.Array:
    if not where.any():
        return array
    order = np.arange(len(array))
    order[where] = len(array)
    return pa.concat_arrays([array, _some_value(array.type)]).take(pa.array(order))


def _some_value(kind: pa.DataType) -> pa.Array:
    """Return an array of one value: zero, false, an empty text, an empty list, a struct of such values."""
    if pt.is_struct(kind):
        children = [pa.nulls(1, f.type) if f.nullable else _some_value(f.type) for f in struct_fields(kind)]
        return pa.StructArray.from_arrays(children, fields=struct_fields(kind))
    if pt.is_fixed_size_binary(kind):
        return pa.array([bytes(kind.byte_width)], kind)
    if pt.is_map(kind) or pt.is_list(kind):
        return pa.array([[]], kind)
    if pt.is_string(kind) or pt.is_binary(kind):
        return pa.array([b""], pa.binary()).cast(kind)
    # Everything else is a number of a fixed width in memory.
    width = 1 if pt.is_boolean(kind) else kind.bit_width // 8
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(max(8, width)))])
