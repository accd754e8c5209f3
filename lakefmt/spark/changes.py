"""Streams of changes into tables: row kinds and Debezium's envelopes in DataFrames (docs/spark.md, docs/cdc.md).

The work is Spark's: its tasks decode the envelopes and reduce the changes of a batch to the last one of each key. A batch is one commit,
exactly once, as with :func:`lakefmt.spark.stream_batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from lakefmt._core.arguments import text_argument
from lakefmt._core.cdc.events import RowKind
from lakefmt._core.values import IS_DELETED
from lakefmt.errors import InvalidInputError
from lakefmt.spark.options import SparkWriteOptions
from lakefmt.spark.streams.sink import StreamSink, stream_batch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ChangeSink", "change_batch", "debezium_rows", "last_changes"]

_ORDER: Final = "_lakefmt_order"
_RANK: Final = "_lakefmt_rank"
_KIND: Final = "_row_kind"
_DELETING: Final = (RowKind.UPDATE_BEFORE, RowKind.DELETE)


def change_batch(
    path: str,
    *,
    record_key: str | Sequence[str],
    row_kind_column: str = _KIND,
    order_column: str | None = None,
    **options: Unpack[SparkWriteOptions],
) -> ChangeSink:
    """Return a function for ``foreachBatch`` that applies the changes of every batch to a table in one commit, exactly once.

    The table has the column ``_hoodie_is_deleted``, as Hudi's tables whose rows are deleted by upserts.

    Args:
        path: the table; the first batch with rows creates it if there is none.
        record_key: the column or columns that make a row's key.
        row_kind_column: what happened to each row: a name, short form or code text of :class:`lakefmt.cdc.RowKind`.
        order_column: a larger value came later; None: rows came in the order of the batch.
        **options: as for :func:`lakefmt.spark.stream_batch`.

    Raises:
        InvalidInputError: options that contradict each other.
        UnknownSetting: an option that is not known.

    Example:
        >>> change_batch("memory://doc-changes", record_key="id", **{"hoodie.table.name": "t"}).keys
        ('id',)
    """
    keys = (record_key,) if isinstance(record_key, str) else tuple(record_key)
    if not keys:
        raise InvalidInputError("changes need a record_key: the last one of each key counts")
    named: dict[str, Any] = {
        "hoodie.datasource.write.recordkey.field": ",".join(keys),
        "hoodie.datasource.write.operation": "upsert",
        **options,
    }
    return ChangeSink(stream_batch(path, **named), keys, row_kind_column, order_column)


class ChangeSink:
    """Applies the changes of batches to a table; what ``foreachBatch`` calls.

    Args:
        sink: writes the reduced batches.
        keys: the columns of the record key.
        row_kind_column: what happened to each row.
        order_column: a larger value came later.
    """

    def __init__(self, sink: StreamSink, keys: tuple[str, ...], row_kind_column: str, order_column: str | None) -> None:
        self.sink, self.keys = sink, keys
        self.row_kind_column, self.order_column = row_kind_column, order_column

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Apply a batch; skip it if the table has it already.

        Raises:
            LakefmtError: the batch could not be written; nothing of it is visible.
        """
        self.sink(last_changes(df, self.keys, self.row_kind_column, self.order_column), batch_id)


def last_changes(
    df: DataFrame, record_key: str | Sequence[str], row_kind_column: str = _KIND, order_column: str | None = None
) -> DataFrame:
    """Return the last change of each key, with ``_hoodie_is_deleted`` in place of the row kind.

    Args:
        df: changes; a row before an update deletes its key, unless a later row brings the key back.
        record_key: the column or columns that make a row's key.
        row_kind_column: what happened to each row; text that is no row kind fails the query.
        order_column: a larger value came later; None: rows came in the order of the DataFrame.

    Example:
        >>> def deletes(df):  # a DataFrame with a column of row kinds
        ...     return last_changes(df, "id", "op").where("_hoodie_is_deleted").count()
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  (as Spark's own pages write it)

    text_argument(row_kind_column, "row_kind_column")
    keys = [record_key] if isinstance(record_key, str) else list(record_key)
    kind = F.upper(F.trim(F.col(row_kind_column).cast("string")))
    deletes = _is_one_of(kind, _DELETING)
    known = deletes | _is_one_of(kind, [each for each in RowKind if each not in _DELETING])
    wrong = F.raise_error(F.concat(F.lit("no kind of a row: "), F.coalesce(kind, F.lit("null")))).cast("boolean")
    order = F.monotonically_increasing_id() if order_column is None else F.col(order_column)
    ordered = df.withColumn(IS_DELETED, F.when(F.coalesce(known, F.lit(False)), deletes).otherwise(wrong)).withColumn(
        _ORDER, order
    )
    # Of a row before an update and the row after it with one order the latter counts.
    latest = Window.partitionBy(*keys).orderBy(F.col(_ORDER).desc(), F.col(IS_DELETED).asc())
    ranked = ordered.withColumn(_RANK, F.row_number().over(latest)).where(F.col(_RANK) == 1)
    return ranked.drop(_RANK, _ORDER, row_kind_column)


def _is_one_of(kind: Column, kinds: Sequence[RowKind]) -> Column:
    """Return whether a text names one of some kinds, in any of its forms."""
    texts = [text for each in kinds for text in (each.name, each.short, each.hudi, str(each.value))]
    return kind.isin(texts)


def debezium_rows(df: DataFrame, columns: str, value_column: str = "value") -> DataFrame:
    """Return the rows of Debezium's JSON envelopes, with what happened to each in ``_row_kind``.

    Tombstones, heartbeats and logical messages give no row; a truncate fails the query.

    Args:
        df: messages, such as those of Spark's Kafka source.
        columns: the columns of the table as Spark writes them in DDL, such as ``"id INT, name STRING"``.
        value_column: the column with the envelope, text or bytes, with or without its schema.

    Example:
        >>> def follow(stream):  # a DataFrame of spark.readStream.format("kafka")
        ...     rows = debezium_rows(stream, "id INT, name STRING")
        ...     return rows.writeStream.foreachBatch(change_batch("/lake/customers", record_key="id")).start()
    """
    from pyspark.sql import functions as F  # noqa: N812  (as Spark's own pages write it)

    envelope = f"op STRING, before STRUCT<{columns}>, after STRUCT<{columns}>"
    text = F.col(value_column).cast("string")
    parsed = F.from_json(text, f"payload STRUCT<{envelope}>, {envelope}", {"mode": "FAILFAST"})
    op, before, after = (F.coalesce(parsed["payload"][name], parsed[name]) for name in ("op", "before", "after"))

    def row(kind: RowKind, image: Column) -> Column:
        return F.struct(F.lit(kind.short).alias(_KIND), image.alias("row"))

    updates = F.when(before.isNull(), F.array(row(RowKind.UPDATE_AFTER, after))).otherwise(
        F.array(row(RowKind.UPDATE_BEFORE, before), row(RowKind.UPDATE_AFTER, after))
    )
    rows = (
        F.when(op.isin("c", "r"), F.array(row(RowKind.INSERT, after)))
        .when(op == "u", updates)
        .when(op == "d", F.array(row(RowKind.DELETE, before)))
        .when(
            op == "t",
            F.array(
                row(RowKind.DELETE, F.raise_error(F.lit("the source truncated the table")).cast(f"struct<{columns}>"))
            ),
        )
    )
    exploded = df.select(F.explode(rows).alias("change"))
    return exploded.select("change.row.*", f"change.{_KIND}")
