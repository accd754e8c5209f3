"""What a table must hold after its writes, worked out by DuckDB from the data files alone."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from benchmarks.harness.data import Dataset, load_table
from benchmarks.harness.digest import digest


def after_upserts(data: Dataset, batches: Sequence[pa.Table]) -> str:
    """Return the digest of the base rows with `batches` upserted: of each key the row with the largest ordering value."""
    with duckdb.connect() as connection:
        names = []
        for number, table in enumerate([load_table(data.path("base")), *batches]):
            connection.register(f"part{number}", table)
            names.append(f"SELECT * FROM part{number}")
        rows = connection.sql(
            f"SELECT * FROM ({' UNION ALL '.join(names)}) QUALIFY row_number() OVER"
            f" (PARTITION BY {data.key}, {data.partition} ORDER BY {data.ordering} DESC) = 1"
        )
        return digest(_arrow(rows))


def of_part(data: Dataset, part: str, rows: int | None = None) -> str:
    """Return the digest of one part's first rows."""
    return digest(load_table(data.path(part)).slice(0, rows))


def of_keys(data: Dataset) -> str:
    """Return the digest of the base rows that the look-up asks for."""
    with duckdb.connect() as connection:
        connection.register("base", load_table(data.path("base")))
        connection.register("wanted", load_table(data.path("lookup")))
        rows = connection.sql(f"SELECT base.* FROM base SEMI JOIN wanted USING ({data.key})")
        return digest(_arrow(rows))


def _arrow(rows: duckdb.DuckDBPyRelation) -> pa.Table:
    """Return rows as Arrow; older releases of DuckDB have another word for it."""
    found: pa.Table = rows.to_arrow_table() if hasattr(rows, "to_arrow_table") else rows.fetch_arrow_table()
    return found
