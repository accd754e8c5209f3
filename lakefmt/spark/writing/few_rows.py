"""Few rows of a DataFrame reach the driver by one job of Spark, without workers of Python (effects).

A task in Python costs a small batch more than its rows do: Spark collects the garbage of the worker after every task, and
the JVM and the worker hand each other what they have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lakefmt import Table
from lakefmt.data_classes import dataclass
from lakefmt.spark.options import WriteCall
from lakefmt.spark.writing.commit import request_of
from lakefmt.spark.writing.plan import Limits
from lakefmt.values import WriteOperation
from lakefmt.write.task_writer import SharedWrite, key_rows
from lakefmt.write.transaction import WriteTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FewRows", "can_collect", "collect_few", "rows_to_ask_for"]

_NUMBER: Final = "__lakefmt_partition_number"


@dataclass(frozen=True, slots=True)
class FewRows:
    """What was written of a batch of few rows.

    Attributes:
        rows: how many.
        num_bytes: their bytes, as Arrow holds them.
    """

    rows: int
    num_bytes: int


def can_collect(df: DataFrame) -> bool:
    """Return whether Spark hands the rows of a DataFrame to this process as Arrow has them; Connect of 3.5 does not."""
    return hasattr(df, "toArrow") or hasattr(df, "_collect_as_arrow")


def rows_to_ask_for(limits: Limits, row_bytes: float) -> int:
    """Return how many rows are few, where rows are as large as those of the batch before (pure).

    Example:
        >>> rows_to_ask_for(Limits(), 100.0), rows_to_ask_for(Limits(), 1 << 20), rows_to_ask_for(Limits(), 0.0)
        (50000, 32, 50000)
    """
    return min(limits.driver_rows, int(limits.driver_bytes / max(1.0, row_bytes)))


def collect_few(
    df: DataFrame, schema: pa.Schema, limits: Limits, row_bytes: float, table: Table, call: WriteCall
) -> pa.Table | None:
    """Return the rows of a DataFrame in their order; None: they are not few.

    Args:
        df: the rows; no more of them are handed to this process than are few, and one.
        schema: what they are cast to.
        limits: how much this process takes.
        row_bytes: about the bytes of a row: Spark limits rows and not their bytes.
        table: where they go.
        call: what the options ask for: an upsert or an insert.
    """
    most = rows_to_ask_for(limits, row_bytes)
    # A limit joins partitions in no order that is the same every time; which of two rows of a key wins may depend on it.
    numbered = df.selectExpr("*", f"spark_partition_id() AS {_NUMBER}").limit(most + 1)
    rows = _in_order(_collect(numbered, schema))
    if rows.num_rows > most:
        return None
    return rows if limits.fit_driver(rows.num_rows, rows.nbytes, _partitions(rows, limits, table, call)) else None


def _collect(df: Any, schema: pa.Schema) -> pa.Table:
    """Return rows with the number of their partition of Spark."""
    named = schema.append(pa.field(_NUMBER, pa.int32()))
    if hasattr(df, "toArrow"):
        rows = df.toArrow()
    else:
        batches = df._collect_as_arrow()
        rows = pa.Table.from_batches(batches) if batches else named.empty_table()
    return rows.select(named.names).cast(named)


def _in_order(rows: pa.Table) -> pa.Table:
    """Return rows by their partition, those of one in the order that they have (pure): a shuffle keeps it."""
    numbers = rows.column(_NUMBER).to_numpy()
    rows = rows.select(rows.column_names[:-1])
    is_sorted = bool((numbers[1:] >= numbers[:-1]).all())
    return rows if is_sorted else rows.take(pa.array(np.argsort(numbers, kind="stable")))


def _partitions(rows: pa.Table, limits: Limits, table: Table, call: WriteCall) -> int:
    """Return how many partition paths rows have; or how many they have at most, where that is few enough."""
    if rows.num_rows <= limits.driver_partitions:
        return int(rows.num_rows)
    request = request_of(WriteOperation.INSERT, call)
    planned = WriteTransaction.plan_only(table.client, request, rows.schema)
    keyed = key_rows(SharedWrite(planned.context, planned.state, planned.key_spec), [rows])
    return sum(len(batch.partitions.dictionary) for batch in keyed)  # one batch
