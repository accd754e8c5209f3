"""The order of a bulk insert by columns: within each partition, as a clustering orders rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arguments import shown, text_argument
from lakefmt.errors import InvalidInputError
from lakefmt.sorting.orders import (
    ColumnScale,
    Layout,
    RowOrder,
    check_order,
    column_scale,
    order_column,
    sort_keys,
)
from lakefmt.write.ingest import KeyedBatch

__all__ = ["OrderInPartitions", "parse_sort", "sort_text_of"]


def sort_text_of(columns: object, order: object) -> str:
    """Return how a write request names an order.

    Raises:
        InvalidInputError: the arguments are no names of columns, or of an order.

    Example:
        >>> sort_text_of(["a", "b"], "zorder")
        'zorder:a,b'
    """
    given = [columns] if isinstance(columns, str) else columns
    if not isinstance(given, Sequence) or not given:
        raise InvalidInputError(f"columns are names of columns, not {shown(columns)}")
    names = [text_argument(name, "columns") for name in given]
    if any("," in name or not name for name in names):
        raise InvalidInputError(f"columns are names of columns without commas, not {shown(columns)}")
    return f"{Layout.parse(text_argument(order, 'order')).value}:{','.join(names)}"


def parse_sort(text: str) -> RowOrder | None:
    """Return the order that a write request names; None: it names none by columns.

    Raises:
        UnknownSetting: there is no such order.
        InvalidInputError: it names no column.

    Example:
        >>> parse_sort("linear:a"), parse_sort("global")
        (RowOrder(columns=('a',), layout=<Layout.LINEAR: 'linear'>), None)
    """
    layout, colon, names = text.partition(":")
    if not colon:
        return None
    columns = tuple(filter(None, (name.strip() for name in names.split(","))))
    if not columns:
        raise InvalidInputError(f"sort={text!r} names no column to order rows by")
    return RowOrder(columns, Layout.parse(layout))


class OrderInPartitions:
    """Sort keys of a stream: by partition, then by columns. The first rows are the sample that scales columns of a curve.

    Args:
        order: the columns, and how.
        schema: the table's columns.

    Raises:
        InvalidInputError: rows of the table cannot be ordered so.
    """

    def __init__(self, order: RowOrder, schema: pa.Schema) -> None:
        check_order(order, schema)
        self._order = order
        self._scales: dict[str, ColumnScale] | None = None

    def keys(self, batch: KeyedBatch) -> pa.Array:
        """Return each row's partition and place in the order as one text of bytes."""
        if self._scales is None:
            columns = self._order.columns if self._order.layout is not Layout.LINEAR else ()
            self._scales = {name: column_scale(order_column(batch.table, name)) for name in columns}
        partitions = batch.partitions.cast(pa.string()).cast(pa.binary())
        return pc.binary_join_element_wise(partitions, sort_keys(batch.table, self._order, self._scales), b"\x00")
