"""Plays what a stream's sink asks of Spark: batches are rows that this process has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakefmt.spark.options import parse_write_options
from lakefmt.spark.writing.dataframe import with_commit_metadata
from lakefmt.spark.writing.plan import FewRows
from lakefmt.spark.writing.staging import write_and_commit, write_few_and_commit


class RowsFrame:
    """Stands in for the DataFrame of one batch."""

    sparkSession = None  # noqa: N815 - as Spark calls it

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def isEmpty(self) -> bool:
        return False


def write_frame(df: Any, path: str, mode: str, *, commit_metadata: dict[str, str], **options: str) -> None:
    """Write as ``write_dataframe`` does when the rows are few."""
    call = with_commit_metadata(parse_write_options(options), commit_metadata)
    write_and_commit(path, mode, call, df.rows.schema, lambda: [df.rows])


def write_few(
    df: Any, path: str, *, table: Any, row_bytes: float | None, commit_metadata: dict[str, str], **options: Any
) -> FewRows:
    """Write as ``write_few_rows`` does, which later batches of a query go through."""
    call = with_commit_metadata(parse_write_options(options), commit_metadata)
    write_few_and_commit(table, "append", call, [df.rows])
    return FewRows(df.rows.num_rows, df.rows.nbytes)
