"""A table as the sink of a stream: every batch is one commit, written exactly once (effects)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lakefmt import Table
from lakefmt.arguments import text_argument
from lakefmt.errors import InvalidInputError, TableNotFound, UnsupportedError
from lakefmt.spark.options import WriteCall, option_texts, parse_write_options
from lakefmt.spark.streams.compaction_beside import INLINE, SCHEDULE, CompactionBeside
from lakefmt.spark.streams.labels import BatchLabel, BatchStep, choose_step, encode_label
from lakefmt.spark.streams.options import take_sink_options
from lakefmt.spark.streams.stored_labels import list_labels
from lakefmt.spark.writing.commit import existing_table
from lakefmt.spark.writing.dataframe import write_dataframe, write_few_rows
from lakefmt.storage.time_source import SystemTimeSource
from lakefmt.values import TableType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OUTPUT_MODES", "QUERY_PROPERTY", "StreamSink", "choose_batch", "query_of_batch", "stream_batch"]

OUTPUT_MODES: Final = ("append", "update", "complete")
#: Where Spark keeps the id of the query that runs a job.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
_OPERATION: Final = "hoodie.datasource.write.operation"
#: How many batches after one of many rows are written without a try by :func:`write_few_rows`.
_BATCHES_WITHOUT_TRY: Final = 10
_log = logging.getLogger("lakefmt.spark")


def stream_batch(path: str, *, output_mode: str = "append", **options: object) -> StreamSink:
    """Return a function for ``foreachBatch`` that writes every batch of a stream in one commit, exactly once.

    Args:
        path: the table; the first batch with rows creates it if there is none.
        output_mode: that of the query: ``complete`` replaces all rows by those of the batch.
        **options: as for :func:`lakefmt.spark.write`, ``hoodie.datasource.write.streaming.…``, and on Connect
            ``checkpointLocation``, which tells the query's id there.

    Raises:
        InvalidInputError: an output mode that does not exist, or options that contradict each other.
        UnknownSetting: an option that is not known.
        UnsupportedFeature: an option that would break a promise.

    Example:
        >>> stream_batch("memory://doc-stream", **{"hoodie.table.name": "t"}).path
        'memory://doc-stream'
    """
    return StreamSink(text_argument(path, "path"), output_mode, option_texts(options))


class StreamSink:
    """Writes the batches of one query to one table; what ``foreachBatch`` calls. It pickles, without its memory.

    Args:
        path: the table.
        output_mode: that of the query.
        options: of the sink and of its writes.
        query: the id of the query, when it is known.
    """

    def __init__(self, path: str, output_mode: str, options: Mapping[str, str], query: str | None = None) -> None:
        if output_mode not in OUTPUT_MODES:
            raise InvalidInputError(f"unknown output mode {output_mode!r}: expected {', '.join(OUTPUT_MODES)}")
        self.path, self.query, self.output_mode = path, query, output_mode
        self.checkpoint = next((v for name, v in options.items() if name.lower() == "checkpointlocation"), None)
        self.options, rest = take_sink_options(options)
        self.replaces = output_mode == "complete"
        if self.replaces:
            rest = {name: value for name, value in rest.items() if name.lower() != _OPERATION}
            rest[_OPERATION] = "insert_overwrite_table"
        # A batch plans a compaction alone: the tasks of the cluster execute it, beside the stream or before the next batch.
        given = {name.lower(): value for name, value in rest.items()}
        self.compacts_inline = given.get(INLINE, "false").lower() == "true"
        self.compacts = self.compacts_inline or self.options.compacts
        if self.compacts:
            rest = {name: value for name, value in rest.items() if name.lower() not in (INLINE, SCHEDULE)}
            rest[SCHEDULE] = "true"
        self.write_options = rest
        parse_write_options({name: value for name, value in rest.items() if not name.startswith("lakefmt.spark.")})
        self._last: BatchLabel | None = None
        self._table: Table | None = None
        self._batches_without_try = 1  # the first batch may make the table
        self._row_bytes: float | None = None  # of the latest batch of few rows
        self._beside = CompactionBeside(path, rest)
        self._sleep = SystemTimeSource().sleep

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch, unless the table has it already.

        Raises:
            LakefmtError: the batch could not be written; nothing of it is visible, and Spark runs it again after a restart.
        """
        self.query = self.query or query_of_batch(df, self.checkpoint)
        pause = self.options.interval_ms / 1000
        for attempt in range(1, self.options.attempts + 1):
            try:
                return self._write(df, BatchLabel(int(batch_id), self.query))
            except (InvalidInputError, UnsupportedError):
                raise  # the next attempt would say the same
            except Exception as error:  # every kind of failure of a batch is tried again, as Hudi does
                self._last = self._table = None  # it may have been committed all the same
                if attempt == self.options.attempts:
                    if not self.options.ignore_failed:
                        raise
                    _log.warning("%s: batch %d is left out: %s", self.path, batch_id, error)
                    return None
                _log.warning("%s: batch %d failed and is tried again: %s", self.path, batch_id, error)
                self._sleep(pause)
                pause *= 2
        return None

    def _write(self, df: DataFrame, label: BatchLabel) -> None:
        follows = self._last is not None and self._last.batch < label.batch
        if not follows and not choose_batch(self.path, self._call(), self.options.identifier, label):
            return
        entries = encode_label(self.options.identifier, label)
        options: dict[str, Any] = dict(self.write_options)
        if self._write_few(df, entries, options):
            self._compact(df)
        elif not df.isEmpty() or (self.replaces and existing_table(self.path, self._call()) is not None):
            write_dataframe(df, self.path, "append", commit_metadata=entries, **options)
            self._compact(df)
        self._last = label

    def _write_few(self, df: DataFrame, entries: Mapping[str, str], options: dict[str, Any]) -> bool:
        """Write a batch of few rows with one job of Spark, unless a batch before had many."""
        if self._batches_without_try or self.replaces:
            self._batches_without_try = max(0, self._batches_without_try - 1)
            return False
        table, size = self._existing(), self._row_bytes
        few = write_few_rows(df, self.path, commit_metadata=entries, table=table, row_bytes=size, **options)
        self._batches_without_try = _BATCHES_WITHOUT_TRY if few is None else 0
        if few is not None and few.rows:
            self._row_bytes = few.num_bytes / few.rows
        return few is not None

    def _compact(self, df: DataFrame) -> None:
        table = self._existing() if self.compacts else None
        if table is None or table.properties.table_type is not TableType.MERGE_ON_READ:
            return
        if self.compacts_inline:
            self._beside.run(df.sparkSession)
        else:
            self._beside.wake(df.sparkSession)

    def _existing(self) -> Table | None:
        """Return the table, None where there is none; one handle for all batches, since it knows what earlier ones read."""
        if self._table is not None:
            try:
                self._table.client.load_config()
            except TableNotFound:
                self._table = None
        if self._table is None:
            self._table = existing_table(self.path, self._call())
        return self._table

    def wait(self) -> None:
        """Return when no compaction runs beside the stream any more."""
        self._beside.wait()

    def _call(self) -> WriteCall:
        names = {name: value for name, value in self.write_options.items() if not name.startswith("lakefmt.spark.")}
        return parse_write_options(names)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None, "_table": None, "_beside": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._beside = CompactionBeside(self.path, self.write_options)


def choose_batch(path: str, call: WriteCall, identifier: str, label: BatchLabel) -> bool:
    """Return whether a batch is to be written: the table does not have it.

    Args:
        path: the table.
        call: the options of the write.
        identifier: of the stream.
        label: the batch.

    Raises:
        CorruptFile: a commit of the table is damaged.
    """
    table = existing_table(path, call)
    if table is None:
        return True
    step = choose_step(list_labels(table.client, identifier), label.query or "", label.batch)
    if step is BatchStep.SKIP:
        _log.info("%s: batch %d of the stream %s was committed before", path, label.batch, identifier)
    if step is BatchStep.WRITE_BESIDE_ANOTHER_QUERY:
        _log.warning(
            "%s: another query wrote batch %d of the stream %s: this query has a checkpoint folder of its own, and its "
            "batch is written; Hudi would drop it. Streams that write one table side by side need identifiers "
            "(hoodie.datasource.write.streaming.checkpoint.identifier)",
            path,
            label.batch,
            identifier,
        )
    return step is not BatchStep.SKIP


def query_of_batch(df: DataFrame, checkpoint: str | None) -> str:
    """Return the id of the query that runs a batch.

    Raises:
        InvalidInputError: nothing tells it.
    """
    context = getattr(df.sparkSession, "_sc", None)
    query = None if context is None else context.getLocalProperty(QUERY_PROPERTY)
    if query:
        return str(query)
    if checkpoint is None:
        raise InvalidInputError(
            "the id of the query is not known here: give stream_batch the query's checkpointLocation as an option, too"
        )
    # Spark keeps the id there under its own file systems, so Spark reads it.
    lines = df.sparkSession.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()
    return str(json.loads("".join(line[0] for line in lines))["id"])
