"""The sink of ``writeStream`` in sessions without ``register``, on PySpark from 4.1 on (effects).

Spark's tasks stage the rows of a batch, and the process in which Spark runs the data source commits them, with the same
labels as :mod:`lakefmt.spark.streams.sink`. A batch that was committed before Spark's own log said so comes again under the
same number and is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.streams.labels import BatchLabel, encode_label
from lakefmt.spark.streams.options import take_sink_options
from lakefmt.spark.streams.sink import QUERY_PROPERTY, choose_batch
from lakefmt.spark.writing.commit import existing_table, write_and_commit
from lakefmt.spark.writing.dataframe import with_commit_metadata
from lakefmt.spark.writing.input import rows_schema
from lakefmt.spark.writing.limits import take_limits
from lakefmt.spark.writing.staging import (
    StagedRows,
    check_size,
    new_stage,
    read_staged,
    remove_stage,
    stage_rows,
)
from lakefmt.storage.open import open_store

__all__ = ["StagedStreamWriter"]


@dataclass
class _Staged(WriterCommitMessage):
    rows: StagedRows
    query: str


class StagedStreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch.

    Args:
        path: the table.
        options: as Spark hands them.
        overwrite: the output mode is ``complete``.
        schema: of the rows.
    """

    def __init__(self, path: str, options: Mapping[str, str], overwrite: bool, schema: StructType) -> None:
        self.path, self.overwrite, self.stage = path, overwrite, new_stage()
        self.sink, rest = take_sink_options({name: value for name, value in options.items() if name.lower() != "path"})
        if self.sink.clusters:
            raise UnsupportedFeature(
                "hoodie.clustering.async.enabled needs lakefmt.spark.register(spark) before the stream: without it no process of "
                "lakefmt has a session whose tasks could cluster"
            )
        self.limit = take_limits(rest).stage_bytes
        self.call = parse_write_options(rest)
        self.rows_schema = rows_schema(schema, self.call, existing_table(path, self.call))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_PROPERTY)
        store = open_store(self.path, self.call.storage)
        return _Staged(stage_rows(store, self.stage, iterator, self.rows_schema, self.limit), query or "")

    # Spark calls it by the name of the argument.
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the batch, unless the table has it already."""
        store = open_store(self.path, self.call.storage)
        staged = [message for message in messages if isinstance(message, _Staged)]
        parts = [message.rows for message in staged]
        label = BatchLabel(int(batchId), next((message.query for message in staged), ""))
        try:
            check_size(sum(part.num_bytes for part in parts), self.limit)
            has_rows = any(part.rows for part in parts)
            if has_rows and not label.query:
                raise InvalidInputError(
                    "Spark does not tell the id of the query: call lakefmt.spark.register(spark) first"
                )
            if (has_rows or self.overwrite) and choose_batch(self.path, self.call, self.sink.identifier, label):
                call = with_commit_metadata(self.call, encode_label(self.sink.identifier, label))
                mode = "overwrite" if self.overwrite else "append"
                write_and_commit(self.path, mode, call, self.rows_schema, lambda: read_staged(store, parts))
        finally:
            remove_stage(store, self.stage)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what was staged."""
        remove_stage(open_store(self.path, self.call.storage), self.stage)
