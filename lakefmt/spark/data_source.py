"""The data source ``lakefmt`` of PySpark 4 (effects): Spark calls it in processes of its own.

Spark gives a data source no shuffle. So tasks stage their rows, and the process that commits writes them; larger writes
than one process can take are refused (``lakefmt.spark.stage.max.bytes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.storage.open import open_store
from lakefmt.errors import (
    InvalidInputError,
    UnsupportedFeature,
)
from lakefmt.spark.options import NO_CATALOG_TABLE, WriteCall, log_notes, parse_write_options
from lakefmt.spark.reading import PlannedScan, PushedFilter, SparkScan, SparkSplit, open_scan, translate_filters
from lakefmt.spark.streams.sink import QUERY_PROPERTY, BatchLabel, choose_batch, encode_label, take_sink_options
from lakefmt.spark.types import spark_types
from lakefmt.spark.writing.dataframe import rows_schema, with_commit_metadata
from lakefmt.spark.writing.plan import take_limits
from lakefmt.spark.writing.staging import (
    StagedRows,
    check_size,
    existing_table,
    new_stage,
    read_staged,
    remove_stage,
    stage_rows,
    write_and_commit,
)

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # PySpark 4.0 has none
    DataSourceStreamArrowWriter = object

__all__ = ["FilteringDataSource", "LakefmtDataSource", "StagedStreamWriter"]


class LakefmtDataSource(DataSource):
    """``spark.read.format("lakefmt")`` and ``df.write.format("lakefmt")``."""

    #: How it reads.
    _reader_class: ClassVar[type[_Reader]]

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lakefmt"

    def schema(self) -> StructType:
        """Return the columns that a read gives."""
        return spark_types(self._open().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one query: it reads the state of this moment, all tasks the same."""
        # Not the state of `schema`: a view lives as long as its session, and its rows would never change.
        scan = self._open()
        known = set(scan.schema.names)
        unknown = [name for name in schema.names if name not in known]
        if unknown:
            raise InvalidInputError(f"no column {', '.join(map(repr, unknown))}; the table has {scan.schema.names}")
        return self._reader_class(scan, tuple(schema.names))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the names are those of Spark
        """Return the reader of one query of ``readStream``."""
        from lakefmt.spark.streams.source import TableStreamReader

        return TableStreamReader(_path(self.options), dict(self.options), schema.names)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of one batch of ``writeStream``, in sessions without ``register``."""
        if DataSourceStreamArrowWriter is object:
            raise UnsupportedFeature(
                "writeStream by the data source alone needs PySpark 4.1: call lakefmt.spark.register(spark) before it"
            )
        return StagedStreamWriter(_path(self.options), dict(self.options), overwrite, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of one statement."""
        options = dict(self.options)
        limit = take_limits(options).stage_bytes
        call = parse_write_options(options)
        log_notes(call.notes)
        path = _path(self.options)
        columns = rows_schema(schema, call, existing_table(path, call))
        return _Writer(path, "overwrite" if overwrite else "append", call, columns, limit)

    def _open(self) -> SparkScan:
        return open_scan(_path(self.options), dict(self.options))


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise InvalidInputError(f"lakefmt needs a path: save(path) or load(path). {NO_CATALOG_TABLE}")
    return path


@dataclass
class _Split(InputPartition):
    split: SparkSplit


class _Reader(DataSourceReader):
    def __init__(self, scan: SparkScan, names: Sequence[str]) -> None:
        self._scan, self._names = scan, list(names)
        self._filters: list[PushedFilter] = []
        self._planned: PlannedScan | None = None

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles a reader for its tasks before it asks for the splits, which the tasks need not have.
        return {**vars(self), "_planned": replace(self._plan(), splits=())}

    def partitions(self) -> list[InputPartition]:
        return [_Split(split) for split in self._plan().splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, _Split):  # a table without files: Spark asks once all the same
            yield from self._plan().read(partition.split)

    def _plan(self) -> PlannedScan:
        if self._planned is None:
            self._planned = self._scan.plan(self._filters, self._names)
        return self._planned


class _FilteringReader(_Reader):
    """A reader that Spark hands filters; it fails every read of a session that does not push them."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        self._filters = translate_filters(filters, self._scan.schema)
        return filters  # Spark evaluates all of them again


LakefmtDataSource._reader_class = _Reader


class FilteringDataSource(LakefmtDataSource):
    """The same for a session with ``spark.sql.python.filterPushdown.enabled``."""

    _reader_class = _FilteringReader


@dataclass
class _Staged(WriterCommitMessage):
    rows: StagedRows


@dataclass
class _Writer(DataSourceArrowWriter):
    path: str
    mode: str
    call: WriteCall
    rows_schema: pa.Schema
    limit: int
    stage: str = field(default_factory=new_stage)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        store = open_store(self.path, self.call.storage)
        return _Staged(stage_rows(store, self.stage, iterator, self.rows_schema, self.limit))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        store = open_store(self.path, self.call.storage)
        staged = [message.rows for message in messages if isinstance(message, _Staged)]
        check_size(sum(part.num_bytes for part in staged), self.limit)
        write_and_commit(self.path, self.mode, self.call, self.rows_schema, lambda: read_staged(store, staged))
        remove_stage(store, self.stage)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        remove_stage(open_store(self.path, self.call.storage), self.stage)


@dataclass
class _StagedBatch(WriterCommitMessage):
    rows: StagedRows
    query: str


class StagedStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream in sessions without ``register``, on PySpark from 4.1 on.

    Tasks stage the rows of a batch, and the process in which Spark runs the data source commits them, with the same labels as
    :mod:`lakefmt.spark.streams.sink`. A batch that was committed before Spark's own log said so comes again under the same
    number and is skipped.

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
        return _StagedBatch(stage_rows(store, self.stage, iterator, self.rows_schema, self.limit), query or "")

    # Spark calls it by the name of the argument.
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the batch, unless the table has it already."""
        store = open_store(self.path, self.call.storage)
        staged = [message for message in messages if isinstance(message, _StagedBatch)]
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
