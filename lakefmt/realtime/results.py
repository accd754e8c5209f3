"""The rows of a SELECT, from what a table stores to what its SQL types mean. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakefmt.realtime.sql_types import SqlField, SqlKind

__all__ = ["as_python", "typed_columns"]


def typed_columns(rows: pa.Table, fields: Sequence[SqlField]) -> pa.Table:
    """Return rows whose columns have the types that their SQL types mean.

    A TIMESTAMP_NTZ loses the zone that it is stored with, and an INTERVAL_DAY_TIME becomes a duration.
    """
    columns = [_typed(column, field) for column, field in zip(rows.columns, fields, strict=True)]
    return pa.Table.from_arrays(columns, names=rows.column_names)


def _typed(column: pa.ChunkedArray, field: SqlField) -> pa.ChunkedArray:
    if field.type.kind is SqlKind.TIMESTAMP_NTZ and pt.is_timestamp(column.type) and column.type.tz:
        return column.cast(pa.timestamp(column.type.unit))
    if field.type.kind is SqlKind.INTERVAL_DAY_TIME and pt.is_int64(column.type):
        return column.cast(pa.duration("us"))
    return column


def as_python(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as tuples of Python values; maps as dicts."""
    columns = []
    for column in rows.columns:
        values = column.to_pylist()
        if pt.is_map(column.type):
            values = [None if value is None else dict(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))
