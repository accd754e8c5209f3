"""Sort keys of rows: by columns, or along a curve through several columns (docs/services.md, Clustering). Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnknownSetting
from lakefmt.sorting._ordered_values import ColumnScale, check_sortable, column_scale, ordered_bytes, ordered_numbers
from lakefmt.sorting._space_curves import hilbert_places, zorder_places

__all__ = ["ColumnScale", "Layout", "RowOrder", "check_order", "column_scale", "order_columns", "sort_keys"]


class Layout(enum.Enum):
    """How rows are ordered by several columns, with Hudi's names."""

    LINEAR = "linear"
    ZORDER = "zorder"
    HILBERT = "hilbert"

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Return the layout of a name.

        Raises:
            UnknownSetting: there is none of that name.

        Example:
            >>> Layout.parse("ZORDER").name
            'ZORDER'
        """
        try:
            return cls(text.lower())
        except ValueError:
            names = ", ".join(layout.value for layout in cls)
            raise UnknownSetting(f"unknown order {text!r}: expected one of {names}") from None


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
