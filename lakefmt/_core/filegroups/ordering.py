"""Ordering values, delete markers and replaceable values of rows, compared as Hudi does. Pure.

One order serves batches, base files, logs and deletes (docs/format.md, Merge rules; Partial updates). It is
Java's ``compareTo``: NaN is the largest number and equals any NaN, -0.0 is smaller than 0.0, texts compare by
UTF-8 bytes, bytes compare signed (0x80 is the smallest), and null is smaller than every value. Arrow agrees
only for texts, so every comparison of ordering values uses :func:`comparable`.

"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.merge_rule import DeleteMark, MergeRule, Order, Partial, PartialMode
from lakefmt._core.data_classes import replace
from lakefmt._core.schema.avro import AVRO_DEFAULT
from lakefmt._core.values import IS_DELETED
from lakefmt.errors import InvalidInputError, UnsupportedFeature

__all__ = [
    "Mask",
    "Rows",
    "comparable",
    "has_order",
    "incoming_wins",
    "is_replaceable",
    "marked_deletes",
    "ordering_columns",
    "ordering_values",
    "refuse_nulls",
    "to_mask",
    "unordered_deletes",
]


#: The sign bit of a byte.
_SIGN: Final = np.uint8(0x80)
_UNORDERED: Final = (pt.is_nested, pt.is_null)


def comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values that Arrow compares as Hudi compares `values`; nulls stay null.

    Args:
        values: ordering values.

    Raises:
        UnsupportedFeature: the type has no order, such as a list.

    Example:
        >>> ranks = comparable(pa.array([float("nan"), 0.0, -0.0, float("inf")]))
        >>> ranks.type, np.argsort(ranks).tolist()
        (DataType(int64), [2, 1, 3, 0])
    """
    flat = _one_array(values)
    data_type = flat.type
    if pt.is_dictionary(data_type):
        return comparable(flat.dictionary_decode())
    if pt.is_float16(data_type):
        return _ordered_bits(flat.cast(pa.float32()), np.dtype(np.int32))
    if pt.is_float32(data_type):
        return _ordered_bits(flat, np.dtype(np.int32))
    if pt.is_float64(data_type):
        return _ordered_bits(flat, np.dtype(np.int64))
    if pt.is_binary(data_type) or pt.is_large_binary(data_type) or pt.is_fixed_size_binary(data_type):
        return _signed(flat)
    if any(check(data_type) for check in _UNORDERED):
        raise UnsupportedFeature(
            f"ordering values of type {data_type} have no order: order rows by a number, time or text"
        )
    return flat


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays([*values.chunks, pa.nulls(0, values.type)])


def _ordered_bits(values: pa.Array, width: np.dtype[np.signedinteger]) -> pa.Array:
    """Return floats as integers in the same order: in negative numbers all bits below the sign are flipped."""
    missing = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    whole = values if missing is None else values.fill_null(0.0)
    numbers = whole.to_numpy(zero_copy_only=False)
    bits = numbers.view(width)
    largest = np.iinfo(width).max
    ordered = np.where(bits < 0, bits ^ largest, bits)
    ordered[np.isnan(numbers)] = largest  # NaN: larger than infinity, whatever its bits
    return pa.array(ordered, mask=missing)


def _signed(values: pa.Array) -> pa.Array:
    """Return bytes with their sign bits flipped: the unsigned order of the result is the signed order."""
    *before, data = values.buffers()
    if data is None:
        return values
    turned = pa.py_buffer(np.frombuffer(data, np.uint8) ^ _SIGN)
    return pa.Array.from_buffers(values.type, len(values), [*before, turned], values.null_count, values.offset)


Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PLACE = r"^(?P<file>[0-9]{1,18})\.(?P<position>[0-9]{1,18})"


def to_mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    """Return booleans without nulls as a NumPy mask."""
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask: Mask = flat.to_numpy(zero_copy_only=False).astype(bool, copy=False)
    return mask


def has_order(order: Order, names: Sequence[str]) -> bool:
    """Return whether `order` can compare rows with columns `names`; False: the later row wins."""
    return bool(order.fields) and all(field.split(".", 1)[0] in names for field in order.fields)


def ordering_columns(table: pa.Table, order: Order, rows: Rows | None = None) -> list[pa.Array]:
    """Return the columns to compare, most significant first; nulls are smallest.

    Args:
        table: has the columns of `order`.
        order: how records are compared.
        rows: row numbers, int64; None: all rows.

    Raises:
        InvalidInputError: a value is not a binlog position, where the order needs one.
    """
    columns = []
    for field in order.fields:
        values = ordering_values(table, field, rows)
        columns += _places(values, field) if order.numbered else [values]
    return [_mirrored(values, order) for values in columns] if order.reverse else columns


def ordering_values(table: pa.Table, field: str, rows: Rows | None = None) -> pa.Array:
    """Return the values of one ordering field as they are stored; null where a struct above it is.

    Args:
        table: has its column.
        field: its name, with dots when it is nested.
        rows: row numbers, int64; None: all rows.

    Example:
        >>> ordering_values(pa.table({"s": [{"ts": 7}, None]}), "s.ts").to_pylist()
        [7, None]
    """
    name, *inner = field.split(".")
    column = table.column(name)
    column = column if rows is None else column.take(from_numpy(rows))
    return pc.struct_field(column.combine_chunks(), inner) if inner else column.combine_chunks()


def incoming_wins(new: Sequence[pa.Array], old: Sequence[pa.Array]) -> Mask:
    """Return for each pair of rows whether the incoming one wins by event time (fields compared in order).

    Example:
        >>> incoming_wins([pa.array([1, 2, None])], [pa.array([1, 3, None])])
        array([ True, False,  True])
    """
    count = len(new[0]) if new else 0
    decided = np.zeros(count, dtype=bool)
    wins = np.zeros(count, dtype=bool)
    for new_values, old_values in zip(new, old, strict=True):
        greater, equal = _compare(new_values, old_values)
        wins |= ~decided & greater
        decided |= ~equal
    wins |= ~decided
    return wins


def _compare(new: pa.Array, old: pa.Array) -> tuple[Mask, Mask]:
    new, old = comparable(new), comparable(old)
    new_null, old_null = to_mask(pc.is_null(new)), to_mask(pc.is_null(old))
    both = ~new_null & ~old_null
    greater = (both & to_mask(pc.fill_null(pc.greater(new, old), False))) | (~new_null & old_null)
    equal = (both & to_mask(pc.fill_null(pc.equal(new, old), False))) | (new_null & old_null)
    return greater, equal


def _mirrored(values: pa.Array, order: Order) -> pa.Array:
    """Return values in reverse order; nulls stay smallest."""
    # As integers: a float is negated by its rank, so that NaN becomes smallest and 0.0 precedes -0.0.
    values = comparable(values) if pt.is_floating(values.type) else values
    data_type = values.type
    if pt.is_decimal(data_type):
        return pc.negate(values)
    if pt.is_integer(data_type) or pt.is_temporal(data_type):
        # Flipping every bit cannot overflow.
        wide = pa.int32() if data_type.bit_width == 32 else pa.int64()
        return pc.bit_wise_not(values if pt.is_integer(data_type) else values.cast(wide))
    raise UnsupportedFeature(
        f"{', '.join(order.fields)} is {data_type}, and the table's payload class lets the smaller value win: lakefmt compares "
        "numbers and times so; write with Spark"
    )


def refuse_nulls(columns: Sequence[pa.Array], order: Order) -> None:
    """Raise when incoming rows lack a required ordering value.

    Raises:
        InvalidInputError: there is a null.
    """
    count = max((column.null_count for column in columns), default=0) if order.required else 0
    if count:
        raise InvalidInputError(
            f"{', '.join(order.fields)} is null in {count} rows: the table's payload class orders changes by it"
        )


def _places(values: pa.Array, field: str) -> list[pa.Array]:
    """Return the two numbers of binlog positions such as ``000003.000000154``."""
    parts = pc.extract_regex(values.cast(pa.string()), _PLACE)
    if parts.null_count != values.null_count:
        first = int(np.flatnonzero(to_mask(pc.and_(pc.is_null(parts), pc.is_valid(values))))[0])
        raise InvalidInputError(f"{field} holds {str(values[first])[:50]!r}, which is no place file.position")
    return [pc.struct_field(parts, name).cast(pa.int64()) for name in ("file", "position")]


def marked_deletes(table: pa.Table, rule: MergeRule) -> Mask:
    """Return which rows are deletes by ``_hoodie_is_deleted`` or by the table's delete marker.

    Example:
        >>> marked_deletes(pa.table({"Op": ["I", "d"]}), MergeRule(delete=DeleteMark("Op", "D", any_case=True)))
        array([False,  True])
    """
    flags: Mask = np.zeros(table.num_rows, dtype=bool)
    if IS_DELETED in table.column_names:
        flags |= to_mask(pc.fill_null(table.column(IS_DELETED), False))
    if rule.delete is not None and rule.delete.field in table.column_names:
        flags |= _marked(table.column(rule.delete.field), rule.delete)
    return flags


def _marked(column: pa.ChunkedArray, mark: DeleteMark) -> Mask:
    texts, value = column.cast(pa.string()), mark.value
    if mark.any_case:
        texts, value = pc.utf8_lower(texts), value.lower()
    return to_mask(pc.fill_null(pc.equal(texts, value), False))


def unordered_deletes(table: pa.Table, deletes: Mask, rule: MergeRule) -> Mask:
    """Return which deletes have no event time: they delete any stored row, and any later row brings the key back.

    In Hudi a delete has no event time if its ordering value is null, or 0 of a 32-bit integer type.

    Args:
        table: rows with their ordering column.
        deletes: ``(n_rows,)`` bool.
        rule: how the table merges.

    Example:
        >>> rows = pa.table({"ts": pa.array([0, 7, None], pa.int32())})
        >>> unordered_deletes(rows, np.ones(3, dtype=bool), MergeRule(Order(("ts",)), Order(("ts",))))
        array([ True, False,  True])
    """
    order = rule.stored
    if len(order.fields) != 1 or order.required or not deletes.any() or not has_order(order, table.column_names):
        return np.zeros(len(deletes), dtype=bool)
    # The two numbers of one text are null together.
    values = ordering_columns(table, replace(order, reverse=False))[0]
    untimed = values.is_null()
    if (pt.is_integer(values.type) or pt.is_temporal(values.type)) and values.type.bit_width == 32:
        untimed = pc.or_(untimed, pc.fill_null(pc.equal(values.cast(pa.int32()), 0), True))
    return deletes & to_mask(untimed)


def is_replaceable(values: pa.Array | pa.ChunkedArray, field: pa.Field, partial: Partial) -> Mask:
    """Return which values of a winning record are replaced by those of the other record.

    Args:
        values: the column's.
        field: its metadata has the Avro default, if that is not null.
        partial: the partial update mode.

    Example:
        >>> is_replaceable(pa.array([None, 7]), pa.field("v", pa.int64()), Partial(PartialMode.IGNORE_NULLS))
        array([ True, False])
    """
    if partial.mode is PartialMode.FILL_UNAVAILABLE:
        if partial.text is None or not (pt.is_string(field.type) or pt.is_binary(field.type)):
            return np.zeros(len(values), dtype=bool)
        stands_for_it = pa.scalar(partial.text.encode(), pa.binary()).cast(field.type)
        return to_mask(pc.fill_null(pc.equal(values, stands_for_it), False))
    default = _default(field) if partial.mode is PartialMode.IGNORE_DEFAULTS else None
    if default is None:
        return to_mask(pc.is_null(values))
    if not default.is_valid:  # a default that Hudi does not compare
        return np.zeros(len(values), dtype=bool)
    return to_mask(pc.fill_null(pc.equal(values, default), False))


def _default(field: pa.Field) -> pa.Scalar | None:
    """Return a column's default: None for null, a null scalar for a default that Hudi does not compare."""
    default_json = (field.metadata or {}).get(AVRO_DEFAULT)
    if default_json is None:
        return None
    data_type = field.type
    value = json.loads(default_json)
    if pt.is_nested(data_type) or pt.is_decimal(data_type):
        return pa.scalar(None, data_type)
    if pt.is_temporal(data_type):
        width = pa.int64() if data_type.bit_width == 64 else pa.int32()
        return pa.scalar(value, width).cast(data_type)
    return pa.scalar(
        value.encode("latin-1") if isinstance(value, str) and not pt.is_string(data_type) else value, data_type
    )
