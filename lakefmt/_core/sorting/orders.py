"""Sort keys of rows: by columns, or along a curve through several columns (docs/services.md, Clustering). Pure.

Values become numbers or bytes that compare like the values (docs/format.md, Clustering). Nulls come first, NaN comes last,
0.0 and -0.0 are one value. A number of 64 bits keeps the order of two values or makes them equal; bytes keep every
difference.

The z-order curve and the Hilbert curve walk through a space of as many dimensions as there are columns and keep neighbours
near each other, so that a file of rows that follow each other covers a small range of every column. The Hilbert curve never
jumps; its index is computed as by J. Skilling ("Programming the Hilbert curve", 2004), for all rows at a time.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError

__all__ = [
    "ColumnScale",
    "Layout",
    "RowOrder",
    "check_order",
    "check_sortable",
    "column_scale",
    "hilbert_places",
    "order_columns",
    "ordered_bytes",
    "ordered_numbers",
    "sort_keys",
    "zorder_places",
]

Places = npt.NDArray[np.uint8]

Numbers = npt.NDArray[np.uint64]

_SIGN_BIT = np.uint64(1 << 63)
_WORD_BYTES = 8
_SCALED_BITS = 32
_ABSENT, _PRESENT = b"\x00", b"\x01"


def check_sortable(name: str, data_type: pa.DataType) -> None:
    """Raise unless values of a type have an order.

    Raises:
        InvalidInputError: they have none.

    Example:
        >>> check_sortable("n", pa.int32())
    """
    if not (_is_fixed_width(data_type) or _is_string_or_binary(data_type)):
        raise InvalidInputError(
            f"rows cannot be ordered by {name!r} of type {data_type}: choose columns of single values"
        )


def _is_fixed_width(data_type: pa.DataType) -> bool:
    return bool(
        pt.is_boolean(data_type)
        or pt.is_integer(data_type)
        or pt.is_floating(data_type)
        or pt.is_decimal(data_type)
        or pt.is_temporal(data_type)
    )


def _is_string_or_binary(data_type: pa.DataType) -> bool:
    return bool(
        pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
        or pt.is_fixed_size_binary(data_type)
    )


# ------------------------------------------------------------------------------------------------------------- numbers


@dataclass(frozen=True, slots=True)
class ColumnScale:
    """What a sample says of a column: its values become their rank in it, so that columns of any scale count alike.

    Attributes:
        prefix: what all sampled texts begin with; it tells nothing and is left out.
        sampled: the sampled values as numbers, ascending.
    """

    prefix: bytes
    sampled: Numbers


def column_scale(sample: pa.ChunkedArray) -> ColumnScale:
    """Return the scale of a column.

    Args:
        sample: some of its values.

    Example:
        >>> scale = column_scale(pa.chunked_array([["user-1", "user-3"]]))
        >>> scale.prefix, ordered_numbers(pa.chunked_array([["user-0", "user-2", "user-4"]]), scale) >> np.uint64(62)
        (b'user-', array([0, 1, 3], dtype=uint64))
    """
    present = _plain_array(sample).drop_null()
    prefix = _common_prefix(present) if _is_string_or_binary(present.type) else b""
    return ColumnScale(prefix, np.sort(_numbers_of(present, prefix)))


def ordered_numbers(column: pa.ChunkedArray, scale: ColumnScale | None = None) -> Numbers:
    """Return values as unsigned numbers of 64 bits in the same order; different values may become equal.

    Args:
        column: the values.
        scale: numbers are ranks in its sample; None: the values' own bits, of texts the first eight bytes.

    Example:
        >>> ordered_numbers(pa.chunked_array([[None, -1, 0, 1]])).argsort().tolist()
        [0, 1, 2, 3]
    """
    values = _plain_array(column)
    numbers = _numbers_of(values, b"" if scale is None else scale.prefix)
    if scale is not None:
        size = len(scale.sampled)
        ranks = (np.searchsorted(scale.sampled, numbers, "left") + np.searchsorted(scale.sampled, numbers, "right")) / 2
        top = float((1 << _SCALED_BITS) - 1)
        numbers = (ranks * (top / max(1, size))).astype(np.uint64) << np.uint64(64 - _SCALED_BITS)
    if values.null_count:
        numbers[np.asarray(values.is_null())] = 0
    return numbers


def _plain_array(column: pa.ChunkedArray) -> pa.Array:
    """Return one array without a dictionary; dates and times as numbers."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pt.is_temporal(values.type):
        bits = values.type.bit_width
        values = values.cast(pa.int64() if bits == 64 else pa.int32())
    return values


def _numbers_of(values: pa.Array, prefix: bytes) -> Numbers:
    data_type = values.type
    if _is_string_or_binary(data_type):
        return _text_words(values, prefix)
    if pt.is_decimal(data_type):
        values, data_type = values.cast(pa.float64()), pa.float64()
    if pt.is_floating(data_type):
        return _float_bits(values.cast(pa.float64()))
    if pt.is_unsigned_integer(data_type):
        return _zero_for_null(values.cast(pa.uint64())).astype(np.uint64)
    return _zero_for_null(values.cast(pa.int64())).astype(np.int64).view(np.uint64) ^ _SIGN_BIT


def _zero_for_null(values: pa.Array) -> npt.NDArray[np.generic]:
    full = pc.fill_null(values, 0) if values.null_count else values
    return np.array(full.to_numpy(zero_copy_only=False))


def _float_bits(values: pa.Array) -> Numbers:
    floats = _zero_for_null(values).astype(np.float64) + 0.0  # -0.0 becomes 0.0
    floats[np.isnan(floats)] = np.nan
    bits = floats.view(np.uint64)
    return np.where(bits & _SIGN_BIT != 0, ~bits, bits | _SIGN_BIT)


def _text_words(values: pa.Array, prefix: bytes) -> Numbers:
    """Return the eight bytes of each text that follow the prefix, as a number; texts beside the prefix at the ends."""
    binary = values.cast(pa.large_binary()) if len(values) else pa.array([], pa.large_binary())
    binary = pc.fill_null(binary, b"") if binary.null_count else binary
    offsets = np.frombuffer(binary.buffers()[1], np.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = np.frombuffer(binary.buffers()[2] or b"", np.uint8)
    starts, ends = offsets[:-1], offsets[1:]
    numbers = np.zeros(len(binary), np.uint64)
    for offset in range(_WORD_BYTES):
        positions = starts + len(prefix) + offset
        there = positions < ends
        byte = np.zeros(len(binary), np.uint64)
        byte[there] = data[positions[there]]
        numbers = (numbers << np.uint64(8)) | byte
    if prefix:
        begins = pc.binary_slice(binary, 0, len(prefix))
        numbers[np.asarray(pc.less(begins, prefix))] = 0
        numbers[np.asarray(pc.greater(begins, prefix))] = np.iinfo(np.uint64).max
    return numbers


def _common_prefix(values: pa.Array) -> bytes:
    """Return what all texts begin with: what the smallest and the largest have in common."""
    if not len(values):
        return b""
    ends = pc.min_max(values.cast(pa.large_binary()))
    low, high = np.frombuffer(ends["min"].as_buffer(), np.uint8), np.frombuffer(ends["max"].as_buffer(), np.uint8)
    shared = min(len(low), len(high))
    different = np.flatnonzero(low[:shared] != high[:shared])
    return low[: different[0] if len(different) else shared].tobytes()


# --------------------------------------------------------------------------------------------------------------- bytes


def ordered_bytes(column: pa.ChunkedArray) -> pa.Array:
    """Return values as bytes that compare like them and that no other value's bytes begin with.

    Example:
        >>> made = ordered_bytes(pa.chunked_array([["b", None, "", "a"]]))
        >>> pc.sort_indices(made).to_pylist()
        [1, 2, 3, 0]
    """
    values = _plain_array(column)
    data_type = values.type
    if _is_string_or_binary(data_type):
        whole = values.cast(pa.binary())
        escaped = pc.replace_substring(whole, pattern=b"\x00", replacement=b"\x00\xff")
        body = pc.binary_join_element_wise(escaped, pa.scalar(b"\x00\x00"), pa.scalar(b""))
    elif pt.is_decimal(data_type):
        body = _decimal_bytes(values)
    else:
        body = _fixed_width_bytes(_numbers_of(values, b"").astype(">u8").tobytes(), _WORD_BYTES)
    present = pc.if_else(values.is_valid(), pa.scalar(_PRESENT), pa.scalar(_ABSENT))
    if values.null_count:
        body = pc.if_else(values.is_valid(), body, pa.scalar(b""))
    return pc.binary_join_element_wise(present, body, pa.scalar(b""))


def _decimal_bytes(values: pa.Array) -> pa.Array:
    width = values.type.byte_width
    raw = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, width)
    turned = raw[values.offset : values.offset + len(values), ::-1].copy()
    turned[:, 0] ^= 0x80
    return _fixed_width_bytes(turned.tobytes(), width)


def _fixed_width_bytes(data: bytes, width: int) -> pa.Array:
    count = len(data) // width
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


#: The bits of this many rows are spread out at a time, one byte for each.
_CURVE_CHUNK_ROWS = 1 << 14


def zorder_places(columns: Sequence[Numbers], bits: int = 64) -> Places:
    """Return the place of each row on the z-order curve: the bits of its numbers in turn, the highest first.

    Args:
        columns: the numbers of each column.
        bits: how many of their lowest bits count.

    Returns:
        One row of bytes for each row, of full bytes: lower bits are 0.

    Example:
        >>> x, y = np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 0, 1], np.uint64)
        >>> (zorder_places([x, y], bits=1) >> 6).tolist()
        [[0], [1], [2], [3]]
    """
    count, width = len(columns[0]), -(-bits * len(columns) // 8)
    places = np.empty((count, width), np.uint8)
    for start in range(0, count, _CURVE_CHUNK_ROWS):  # chunks, not rows
        part = np.stack([column[start : start + _CURVE_CHUNK_ROWS] for column in columns], axis=1)
        spread = np.unpackbits(part.astype(">u8")[..., None].view(np.uint8), axis=2)[:, :, 64 - bits :]
        in_turn = spread.transpose(0, 2, 1).reshape(len(part), -1)
        places[start : start + _CURVE_CHUNK_ROWS] = np.packbits(in_turn, axis=1)
    return places


def hilbert_places(columns: Sequence[Numbers], bits: int = 64) -> Places:
    """Return the place of each row on the Hilbert curve; arguments and result as of :func:`zorder_places`.

    Example:
        >>> x, y = np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 1, 0], np.uint64)
        >>> (hilbert_places([x, y], bits=1) >> 6).tolist()
        [[0], [1], [2], [3]]
    """
    axes = [np.array(column, np.uint64) for column in columns]
    for level in range(bits - 1, 0, -1):
        bit, below = np.uint64(1 << level), np.uint64((1 << level) - 1)
        for number, axis in enumerate(axes):
            is_set = axis & bit != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axes[number] = axis ^ swapped
            axes[0] = (
                axes[0] ^ np.where(is_set, below, swapped)
                if number
                else axes[0] ^ np.where(is_set, below, np.uint64(0))
            )
    for number in range(1, len(axes)):
        axes[number] ^= axes[number - 1]
    turned = np.zeros_like(axes[-1])
    for level in range(bits - 1, 0, -1):
        is_set = axes[-1] & np.uint64(1 << level) != 0
        turned ^= np.where(is_set, np.uint64((1 << level) - 1), np.uint64(0))
    return zorder_places([axis ^ turned for axis in axes], bits)


class Layout(enum.Enum):
    """How rows are ordered by several columns, with Hudi's names."""

    LINEAR = "linear"
    ZORDER = "zorder"
    HILBERT = "hilbert"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of rows; without columns rows stay as they are.

    Attributes:
        columns: what they are ordered by; a dot leads into a struct.
        layout: how.
    """

    columns: tuple[str, ...] = ()
    layout: Layout = Layout.LINEAR

    def __str__(self) -> str:
        return f"{self.layout.value} by {', '.join(self.columns)}" if self.columns else "as they are"


def check_order(order: RowOrder, schema: pa.Schema) -> None:
    """Raise unless rows of a schema can be put in an order.

    Raises:
        InvalidInputError: a column is missing, comes twice, or has values without an order.

    Example:
        >>> check_order(RowOrder(("n",)), pa.schema([("n", pa.int64())]))
    """
    if len(set(order.columns)) != len(order.columns):
        raise InvalidInputError(f"rows are ordered by a column twice: {', '.join(order.columns)}")
    for column in order.columns:
        names = column.split(".")
        field: pa.Field | None = None
        within: pa.Schema | pa.StructType = schema
        for name in names:
            index = within.get_field_index(name)
            if index < 0:
                raise InvalidInputError(f"rows cannot be ordered by {column!r}: the table has no such column")
            field = within.field(index)
            if name is not names[-1] and not pa.types.is_struct(field.type):
                raise InvalidInputError(f"rows cannot be ordered by {column!r}: {field.name!r} is no struct")
            within = field.type if pa.types.is_struct(field.type) else pa.schema([])
        if field is not None:
            check_sortable(column, field.type)


def order_columns(order: RowOrder) -> list[str]:
    """Return the columns of a table that an order needs.

    Example:
        >>> order_columns(RowOrder(("place.city", "n")))
        ['place', 'n']
    """
    return list(dict.fromkeys(column.split(".")[0] for column in order.columns))


def sort_keys(rows: pa.Table, order: RowOrder, scales: Mapping[str, ColumnScale] | None = None) -> pa.Array:
    """Return for each row bytes that compare as the rows are ordered.

    Args:
        rows: the rows.
        order: by which columns, and how.
        scales: of the columns of a curve, by name; without one the bits of its values count.

    Example:
        >>> rows = pa.table({"x": [0, 3, 1], "y": [0, 3, 0]})
        >>> [pc.sort_indices(sort_keys(rows, RowOrder(("x", "y"), layout))).to_pylist() for layout in Layout]
        [[0, 2, 1], [0, 2, 1], [0, 2, 1]]
    """
    columns = [order_column(rows, name) for name in order.columns]
    if order.layout is Layout.LINEAR or len(columns) == 1:
        return joined_bytes([ordered_bytes(column) for column in columns])
    by_name = scales or {}
    numbers = [ordered_numbers(column, by_name.get(name)) for column, name in zip(columns, order.columns, strict=True)]
    curve = zorder_places if order.layout is Layout.ZORDER else hilbert_places
    places = curve(numbers)
    width = places.shape[1]
    offsets = np.arange(0, (rows.num_rows + 1) * width, width, dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(places))]
    return pa.Array.from_buffers(pa.large_binary(), rows.num_rows, buffers).cast(pa.binary())


def order_column(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """Return a column of rows; a dot leads into a struct."""
    first, *inner = column.split(".")
    values = rows.column(first)
    return pc.struct_field(values, inner) if inner else values


def joined_bytes(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of each row, part after part."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(b""))
