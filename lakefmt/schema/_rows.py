"""Join and cast tables, also those without columns, without losing the row count. Pure.

Arrow loses the row count of a table without columns when it joins or casts it or changes its
metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakefmt.schema.cast import cast_rows

__all__ = ["join_tables", "with_metadata"]


def join_tables(parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the rows of tables as one table of `schema`, whose columns they have.

    Raises:
        pa.ArrowInvalid: a value does not fit.

    Example:
        >>> ones = pa.table({"n": [1, 1]})
        >>> join_tables([ones, ones], pa.schema([("n", pa.int64())])).num_rows
        4
        >>> join_tables([ones.select([]), ones.select([])], pa.schema([])).num_rows
        4
    """
    tables = list(parts)
    if not len(schema):
        return _counted(sum(part.num_rows for part in tables), schema.metadata)
    return pa.concat_tables([cast_rows(part, schema) for part in tables]) if tables else schema.empty_table()


def with_metadata(table: pa.Table, metadata: Mapping[bytes, bytes]) -> pa.Table:
    """Return a table with other metadata.

    Example:
        >>> with_metadata(pa.table({"n": [1, 2]}).select([]), {b"a": b"b"}).num_rows
        2
    """
    return table.replace_schema_metadata(metadata) if table.num_columns else _counted(table.num_rows, metadata)


def _counted(rows: int, metadata: Mapping[bytes, bytes] | None) -> pa.Table:
    return pa.table({"row": pa.nulls(rows)}, metadata=metadata).select([])
