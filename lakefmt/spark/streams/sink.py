"""A table as the sink of a stream: every batch is one commit, written exactly once.

Every commit of a stream says which batch it holds: Hudi's ``_hudi_streaming_sink_checkpoint`` is a JSON mapping from the
stream's identifier to the number of the batch, and ``lakefmt.streaming.query`` one from the identifier to the id of the
query. Hudi compares numbers alone. A query with a new checkpoint folder counts from 0 again; by the id it is known as
another one.

Streams of changes (row kinds and Debezium's envelopes in DataFrames; docs/spark.md, docs/cdc.md) are reduced by Spark's
tasks to the last change of each key, and go the same way.
"""

from __future__ import annotations

import enum
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Unpack

from lakefmt import Table
from lakefmt._core.arguments import text_argument
from lakefmt._core.cdc.events import RowKind
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.values import IS_DELETED, TableType
from lakefmt.errors import (
    CommitConflict,
    CorruptFile,
    InvalidInputError,
    TableNotFound,
    UnknownSetting,
    UnsupportedError,
)
from lakefmt.spark.options import SparkWriteOptions, WriteCall, option_texts, parse_write_options
from lakefmt.spark.services import CLUSTER_INLINE, INLINE, SCHEDULE, SCHEDULE_CLUSTERING, StreamServices
from lakefmt.spark.writing.dataframe import partition_columns_apart, write_dataframe, write_few_rows
from lakefmt.spark.writing.staging import existing_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "CHECKPOINT",
    "OUTPUT_MODES",
    "QUERY",
    "QUERY_PROPERTY",
    "BatchLabel",
    "BatchStep",
    "ChangeSink",
    "SinkOptions",
    "StreamSink",
    "change_batch",
    "choose_batch",
    "choose_step",
    "debezium_rows",
    "decode_label",
    "encode_label",
    "last_changes",
    "list_labels",
    "query_of_batch",
    "stream_batch",
    "take_sink_options",
    "without_spark_options",
]

_log = logging.getLogger("lakefmt.spark")

CHECKPOINT: Final = "_hudi_streaming_sink_checkpoint"
QUERY: Final = "lakefmt.streaming.query"


@dataclass(frozen=True, slots=True)
class BatchLabel:
    """The label of one commit for one identifier.

    Attributes:
        batch: the number of the batch.
        query: the id of the query, which its checkpoint folder keeps; None: Hudi wrote the commit.
    """

    batch: int
    query: str | None = None


class BatchStep(enum.Enum):
    """What becomes of a batch."""

    WRITE = "write"
    #: The table has it already.
    SKIP = "skip"
    #: Another query wrote a batch of this number or a later one: this one is written, and a warning says so.
    WRITE_BESIDE_ANOTHER_QUERY = "write beside another query"


def encode_label(identifier: str, label: BatchLabel) -> dict[str, str]:
    """Return the entries of a commit's metadata.

    Example:
        >>> encode_label("trips", BatchLabel(3, "q"))
        {'_hudi_streaming_sink_checkpoint': '{"trips": "3"}', 'lakefmt.streaming.query': '{"trips": "q"}'}
    """
    entries = {CHECKPOINT: json.dumps({identifier: str(label.batch)})}
    if label.query is not None:
        entries[QUERY] = json.dumps({identifier: label.query})
    return entries


def decode_label(identifier: str, metadata: Mapping[str, str]) -> BatchLabel | None:
    """Return the label that a commit has for an identifier, None if it has none.

    Raises:
        CorruptFile: the entry is no mapping to numbers.

    Example:
        >>> decode_label("a", {"_hudi_streaming_sink_checkpoint": '{"a": "7", "b": "1"}'})
        BatchLabel(batch=7, query=None)
    """
    batches, queries = _label_mapping(metadata, CHECKPOINT), _label_mapping(metadata, QUERY)
    if identifier not in batches:
        return None
    batch_id, query = str(batches[identifier]), queries.get(identifier)
    number = batch_id.removeprefix("-")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise CorruptFile(f"the commit's {CHECKPOINT} names no number of a batch: {batch_id[:40]!r}")
    return BatchLabel(int(batch_id), None if query is None else str(query))


def _label_mapping(metadata: Mapping[str, str], name: str) -> Mapping[str, object]:
    json_text = metadata.get(name)
    if not json_text:
        return {}
    try:
        value = json.loads(json_text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CorruptFile(f"the commit's {name} is no JSON mapping: {json_text[:80]!r}")
    return value


def choose_step(labels: Iterable[BatchLabel], query: str, batch: int) -> BatchStep:
    """Return what becomes of a batch.

    A commit of Hudi tells no query, so it counts for every query, as it does for Hudi; one of lakefmt counts for its own
    query.

    Args:
        labels: those of the stream's identifier in the table's commits, newest first; read as far as needed.
        query: the id of the query.
        batch: the number of the batch.

    Example:
        >>> [choose_step([BatchLabel(4, "new"), BatchLabel(9, "q")], "q", batch).name for batch in (9, 10)]
        ['SKIP', 'WRITE']
        >>> choose_step([BatchLabel(9, "q")], "new", 0).name
        'WRITE_BESIDE_ANOTHER_QUERY'
    """
    beside = False
    for label in labels:
        if label.query is None or label.query == query:
            if batch <= label.batch:
                return BatchStep.SKIP
            break
        beside = beside or batch <= label.batch
    return BatchStep.WRITE_BESIDE_ANOTHER_QUERY if beside else BatchStep.WRITE


def list_labels(client: TableClient, identifier: str) -> Iterator[BatchLabel]:
    """Yield the labels of an identifier, newest commit first; the archive is read when the active timeline is used up.

    Args:
        client: the table.
        identifier: ``hoodie.datasource.write.streaming.checkpoint.identifier``.

    Raises:
        CorruptFile: a commit, or the archive, is damaged.
    """
    state = client.load()
    active = set()
    for instant in reversed(state.timeline.commits_by_completion):
        active.add((instant.time, instant.action))
        label = decode_label(identifier, client.at(state).commit_metadata(instant).extra_metadata)
        if label is not None:
            yield label
    state = client.at(client.load()).with_history().state
    for instant in reversed(state.timeline.commits_by_completion):
        if (instant.time, instant.action) not in active:
            label = decode_label(identifier, client.at(state).commit_metadata(instant).extra_metadata)
            if label is not None:
                yield label


_STREAMING_PREFIX: Final = "hoodie.datasource.write.streaming."
#: The names of one option.
_CLUSTERING_OPTIONS: Final = ("hoodie.clustering.async.enabled", "hoodie.datasource.clustering.async.enable")
#: Options of a stream that are Spark's own.
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname", "failondataloss"})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How the sink writes a batch.

    Attributes:
        identifier: tells the streams that write one table apart.
        attempts: how often a batch is tried.
        interval_ms: pause before the second attempt; each later one is twice as long.
        ignore_failed: a batch that fails every time is left out with a warning.
        compacts: merge-on-read tables are compacted beside the stream.
        clusters: tables are clustered beside the stream.
    """

    identifier: str = "default_single_writer"
    attempts: int = 3
    interval_ms: int = 2000
    ignore_failed: bool = False
    compacts: bool = True
    clusters: bool = False


def take_sink_options(options: Mapping[str, str]) -> tuple[SinkOptions, dict[str, str]]:
    """Return the sink's own options, and those of the write of each batch.

    Args:
        options: names in any case of letters.

    Raises:
        UnknownSetting: a value that an option does not take.
        InvalidInputError: an option is given twice, with two values.

    Example:
        >>> took, rest = take_sink_options({"checkpointLocation": "/c", "hoodie.table.name": "t",
        ...     "hoodie.datasource.write.streaming.retry.count": "5"})
        >>> took.attempts, rest
        (5, {'hoodie.table.name': 't'})
    """
    rest = without_spark_options(options)
    lowered = {name.lower(): name for name in rest}

    def take(name: str, default: str) -> str:
        written = lowered.get(name)
        return default if written is None else rest.pop(written)

    defaults = SinkOptions()
    identifier = take(f"{_STREAMING_PREFIX}checkpoint.identifier", defaults.identifier)
    attempts = _number_option(
        f"{_STREAMING_PREFIX}retry.count", take(f"{_STREAMING_PREFIX}retry.count", str(defaults.attempts))
    )
    interval = _number_option(
        f"{_STREAMING_PREFIX}retry.interval.ms",
        take(f"{_STREAMING_PREFIX}retry.interval.ms", str(defaults.interval_ms)),
    )
    ignore = _flag_option(
        f"{_STREAMING_PREFIX}ignore.failed.batch", take(f"{_STREAMING_PREFIX}ignore.failed.batch", "false")
    )
    disabled = _flag_option(
        f"{_STREAMING_PREFIX}disable.compaction", take(f"{_STREAMING_PREFIX}disable.compaction", "false")
    )
    beside = _flag_option(
        "hoodie.datasource.compaction.async.enable", take("hoodie.datasource.compaction.async.enable", "true")
    )
    clusters = {_flag_option(name, take(name, "")) for name in _CLUSTERING_OPTIONS if name in lowered}
    if len(clusters) > 1:
        raise InvalidInputError(f"the option {_CLUSTERING_OPTIONS[0]} is given twice, with two values")
    if not identifier:
        raise UnknownSetting(f"{_STREAMING_PREFIX}checkpoint.identifier does not take an empty text")
    return SinkOptions(identifier, max(1, attempts), interval, ignore, beside and not disabled, any(clusters)), rest


def without_spark_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options but those by which Spark runs a query.

    Example:
        >>> without_spark_options({"checkpointLocation": "/c", "path": "/t"})
        {'path': '/t'}
    """
    return {name: value for name, value in options.items() if name.lower() not in _SPARK_OPTIONS}


def _number_option(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > 9:
        raise UnknownSetting(f"{name} takes a number, not {value[:40]!r}")
    return int(value)


def _flag_option(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise UnknownSetting(f"{name} takes true or false, not {value[:40]!r}")
    return value.lower() == "true"


OUTPUT_MODES: Final = ("append", "update", "complete")
#: Where Spark keeps the id of the query that runs a job.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
#: Where it keeps the id of the run: every start of a query is a run of its own.
_RUN_PROPERTY: Final = "spark.jobGroup.id"
_OPERATION_OPTION: Final = "hoodie.datasource.write.operation"
#: How many batches after one of many rows are written without a try by :func:`write_few_rows`.
_BATCHES_WITHOUT_TRY: Final = 10


def stream_batch(path: str, *, output_mode: str = "append", **options: Unpack[SparkWriteOptions]) -> StreamSink:
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


class _RunMemory:
    """What a sink remembers of one run of one query."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.last: BatchLabel | None = None
        self.table: Table | None = None
        self.batches_without_try = 1  # the first batch may make the table
        self.row_bytes: float | None = None  # of the latest batch of few rows

    def forget_table(self) -> None:
        """Look for the next batch in the table again: a write that failed may have been committed all the same."""
        self.last = self.table = None

    def follows(self, label: BatchLabel) -> bool:
        """Return whether this run wrote the batch before, so that the table cannot have this one."""
        return self.last is not None and self.last.batch + 1 == label.batch


class StreamSink:
    """Writes the batches of queries to one table; what ``foreachBatch`` calls. It pickles, without its memory.

    Several queries may share one, one after the other or at the same time: what it remembers, it remembers of each run of
    each query.

    Args:
        path: the table.
        output_mode: that of the query.
        options: of the sink and of its writes.
        query: the id of the query, where the session does not tell it.
    """

    def __init__(self, path: str, output_mode: str, options: Mapping[str, str], query: str | None = None) -> None:
        if output_mode not in OUTPUT_MODES:
            raise InvalidInputError(f"unknown output mode {output_mode!r}: expected {', '.join(OUTPUT_MODES)}")
        self.path, self.query, self.output_mode = path, query, output_mode
        self.checkpoint = next((v for name, v in options.items() if name.lower() == "checkpointlocation"), None)
        self.options, rest = take_sink_options(options)
        self.replaces = output_mode == "complete"
        if self.replaces:
            rest = {name: value for name, value in rest.items() if name.lower() != _OPERATION_OPTION}
            rest[_OPERATION_OPTION] = "insert_overwrite_table"
        # A batch plans services alone: the tasks of the cluster execute them, beside the stream or before the next batch.
        settings = parse_write_options(_write_options(rest)).settings
        self.compacts_inline = settings.get(INLINE, "false").lower() == "true"
        serves = settings.get("hoodie.table.services.enabled", "true").lower() == "true"
        self.compacts = serves and (self.compacts_inline or self.options.compacts)
        self.clusters = serves and self.options.clusters and settings.get(CLUSTER_INLINE, "false").lower() != "true"
        if self.compacts:
            rest = {name: value for name, value in rest.items() if name.lower() not in (INLINE, SCHEDULE)}
            rest[SCHEDULE] = "true"
        if self.clusters:
            rest = {name: value for name, value in rest.items() if name.lower() != SCHEDULE_CLUSTERING}
            rest[SCHEDULE_CLUSTERING] = "true"
        self.write_options = rest
        self._runs: dict[str, _RunMemory] = {}
        self._beside = self._services()
        self._sleep = SystemTimeSource().sleep

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch, unless the table has it already.

        Raises:
            LakefmtError: the batch could not be written; nothing of it is visible, and Spark runs it again after a restart.
        """
        label = BatchLabel(int(batch_id), self._query_of(df))
        memory = self._memory_of(df, str(label.query))
        pause, attempt = self.options.interval_ms / 1000, 1
        while True:
            clustered = self._beside.ended_clusterings
            try:
                return self._write(df, label, memory)
            except (InvalidInputError, UnsupportedError):
                raise  # the next attempt would say the same
            except Exception as error:  # every kind of failure of a batch is tried again, as Hudi does
                memory.forget_table()
                if isinstance(error, CommitConflict) and self._ends_clustering(df, clustered):
                    continue
                if attempt == self.options.attempts:
                    if not self.options.ignore_failed:
                        raise
                    _log.warning("%s: batch %d is left out: %s", self.path, batch_id, error)
                    return None
                _log.warning("%s: batch %d failed and is tried again: %s", self.path, batch_id, error)
                self._sleep(pause)
                pause *= 2
                attempt += 1

    def _query_of(self, df: DataFrame) -> str:
        """Return the id of the query that runs a batch; the session tells it of each batch anew."""
        query_id = _local_property(df, QUERY_PROPERTY)
        if query_id is None and self.query is None:
            # Connect makes a copy of the sink for each run of a query, which keeps the id.
            self.query = query_of_batch(df, self.checkpoint)
        return query_id or str(self.query)

    def _memory_of(self, df: DataFrame, query: str) -> _RunMemory:
        """Return what is remembered of a run: what a query committed in between, elsewhere, no older run knows."""
        run = _local_property(df, _RUN_PROPERTY) or ""
        memory = self._runs.get(query)
        if memory is None or memory.run != run:
            memory = self._runs[query] = _RunMemory(run)
        return memory

    def _ends_clustering(self, df: DataFrame, before: int) -> bool:
        """Wait for the clusterings that a batch may have met; return whether one has ended since there were `before`.

        A write of file groups that are being clustered is refused. After the clustering it is not, so this is no failure.
        """
        if self.clusters:
            self._beside.wake(df.sparkSession)  # nothing executes a plan that a dead driver has left
            self._beside.wait()
        return self._beside.ended_clusterings > before

    def _write(self, df: DataFrame, label: BatchLabel, memory: _RunMemory) -> None:
        if not memory.follows(label) and not choose_batch(self.path, self._call(), self.options.identifier, label):
            return
        entries = encode_label(self.options.identifier, label)
        options: dict[str, Any] = dict(self.write_options)
        if self._write_few(df, entries, options, memory):
            self._serve(df, memory)
        elif not df.isEmpty() or (self.replaces and existing_table(self.path, self._call()) is not None):
            write_dataframe(df, self.path, "append", commit_metadata=entries, **options)
            self._serve(df, memory)
        memory.last = label

    def _write_few(
        self, df: DataFrame, entries: Mapping[str, str], options: dict[str, Any], memory: _RunMemory
    ) -> bool:
        """Write a batch of few rows with one job of Spark, unless a batch before had many."""
        if memory.batches_without_try or self.replaces:
            memory.batches_without_try = max(0, memory.batches_without_try - 1)
            return False
        table, size = self._existing(memory), memory.row_bytes
        few = write_few_rows(df, self.path, commit_metadata=entries, table=table, row_bytes=size, **options)
        memory.batches_without_try = _BATCHES_WITHOUT_TRY if few is None else 0
        if few is not None and few.rows:
            memory.row_bytes = few.num_bytes / few.rows
        return few is not None

    def _serve(self, df: DataFrame, memory: _RunMemory) -> None:
        """Execute planned services, or let them be executed beside the stream."""
        table = self._existing(memory) if self.compacts or self.clusters else None
        if table is None:
            return
        compacts = self.compacts and table.properties.table_type is TableType.MERGE_ON_READ
        if compacts and self.compacts_inline:
            self._beside.compact(df.sparkSession)
        if self.clusters or (compacts and not self.compacts_inline):
            self._beside.wake(df.sparkSession)

    def _services(self) -> StreamServices:
        compacts = self.compacts and not self.compacts_inline
        return StreamServices(self.path, self.write_options, compacts=compacts, clusters=self.clusters)

    def _existing(self, memory: _RunMemory) -> Table | None:
        """Return the table, None where there is none; one handle for all batches, since it knows what earlier ones read."""
        if memory.table is not None:
            try:
                memory.table.client.load_config()
            except TableNotFound:
                memory.table = None
        if memory.table is None:
            memory.table = existing_table(self.path, self._call())
        return memory.table

    def wait(self) -> None:
        """Return when no service runs beside the stream any more."""
        self._beside.wait()

    def _call(self) -> WriteCall:
        return parse_write_options(_write_options(self.write_options))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}, "_beside": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._beside = self._services()


def _write_options(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if not name.startswith("lakefmt.spark.")}


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


def _local_property(df: DataFrame, name: str) -> str | None:
    """Return what Spark tells the thread that runs a batch; None: nothing, as always on Connect."""
    context = getattr(df.sparkSession, "_sc", None)
    return (context.getLocalProperty(name) or None) if context is not None else None


def query_of_batch(df: DataFrame, checkpoint: str | None) -> str:
    """Return the id of the query that runs a batch.

    Args:
        df: the rows of the batch.
        checkpoint: the query's checkpoint folder; asked where the session does not tell the id.

    Raises:
        InvalidInputError: nothing tells it, or the folder is that of a query that does not run.
    """
    query = _local_property(df, QUERY_PROPERTY)
    if query is not None:
        return query
    if checkpoint is None:
        raise InvalidInputError(
            "the id of the query is not known here: give stream_batch the query's checkpointLocation as an option, too"
        )
    # Spark keeps the id there under its own file systems, so Spark reads it.
    lines = df.sparkSession.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()
    query = str(json.loads("".join(line[0] for line in lines))["id"])
    active = [str(each.id) for each in df.sparkSession.streams.active]
    if active and query not in active:
        raise InvalidInputError(
            f"stream_batch was given checkpointLocation={checkpoint!r}, the folder of query {query}, which does not run: a "
            "function for foreachBatch that knows one folder serves one query; make one for each query"
        )
    return query


# -------------------------------------------------------------------------------------------------------------- changes

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

    The table has the column ``_hoodie_is_deleted``, as Hudi's tables whose rows are deleted by upserts. Unless its index is
    global, a row that leaves its partition is deleted there by the row before the update, and deletes name their partition.

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
    options_by_name: dict[str, Any] = {
        "hoodie.datasource.write.recordkey.field": ",".join(keys),
        "hoodie.datasource.write.operation": "upsert",
        **options,
    }
    return ChangeSink(stream_batch(path, **options_by_name), keys, row_kind_column, order_column)


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
        self._partition_columns: Sequence[str] | None = None  # not known before the first batch

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Apply a batch; skip it if the table has it already.

        Raises:
            LakefmtError: the batch could not be written; nothing of it is visible.
        """
        if self._partition_columns is None:
            rows = last_changes(df, self.keys, self.row_kind_column, self.order_column)
            self._partition_columns = partition_columns_apart(rows, self.sink.path, self.sink.write_options)
        partitions = self._partition_columns
        self.sink(
            last_changes(df, self.keys, self.row_kind_column, self.order_column, partition_by=partitions), batch_id
        )


def last_changes(
    df: DataFrame,
    record_key: str | Sequence[str],
    row_kind_column: str = _KIND,
    order_column: str | None = None,
    *,
    partition_by: str | Sequence[str] = (),
) -> DataFrame:
    """Return the last change of each key, with ``_hoodie_is_deleted`` in place of the row kind.

    Args:
        df: changes; a row before an update deletes its key, unless a later row brings the key back.
        record_key: the column or columns that make a row's key.
        row_kind_column: what happened to each row; text that is no row kind fails the query.
        order_column: a larger value came later; None: rows came in the order of the DataFrame.
        partition_by: the columns that make the partition of a table whose keys are unique within a partition alone. A row whose
            partition changes is deleted in the one that the row before names; deletes without a partition fail the query.

    Example:
        >>> def deletes(df):  # a DataFrame with a column of row kinds
        ...     return last_changes(df, "id", "op").where("_hoodie_is_deleted").count()
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  (as Spark's own pages write it)

    text_argument(row_kind_column, "row_kind_column")
    keys = [record_key] if isinstance(record_key, str) else list(record_key)
    partitions = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    row_kind = F.upper(F.trim(F.col(row_kind_column).cast("string")))
    deletes = _is_one_of(row_kind, _DELETING)
    known = deletes | _is_one_of(row_kind, [each for each in RowKind if each not in _DELETING])
    wrong = F.raise_error(F.concat(F.lit("no kind of a row: "), F.coalesce(row_kind, F.lit("null")))).cast("boolean")
    order = F.monotonically_increasing_id() if order_column is None else F.col(order_column)
    ordered = df.withColumn(IS_DELETED, F.when(F.coalesce(known, F.lit(False)), deletes).otherwise(wrong)).withColumn(
        _ORDER, order
    )
    # Of a row before an update and the row after it with one order the latter counts.
    latest = Window.partitionBy(*keys, *partitions).orderBy(F.col(_ORDER).desc(), F.col(IS_DELETED).asc())
    # Several values of a column may make one partition path: all rows of a key go to one task, the last change at the end.
    spread = ordered.repartition(*keys) if partitions else ordered
    ranked = spread.withColumn(_RANK, F.row_number().over(latest)).where(F.col(_RANK) == 1)
    if partitions:
        ranked = ranked.sortWithinPartitions(*keys, F.col(_ORDER).asc(), F.col(IS_DELETED).desc())
        message = f"a row that is deleted does not tell its partition ({', '.join(partitions)})"
        lost = F.col(IS_DELETED) & reduce(or_, [F.col(name).isNull() for name in partitions])
        is_deleted = F.when(lost, F.raise_error(F.lit(message)).cast("boolean")).otherwise(F.col(IS_DELETED))
        ranked = ranked.withColumn(IS_DELETED, is_deleted)
    return ranked.drop(_RANK, _ORDER, row_kind_column)


def _is_one_of(row_kind: Column, kinds: Sequence[RowKind]) -> Column:
    """Return whether a text names one of some kinds, in any of its forms."""
    texts = [text for each in kinds for text in (each.name, each.short, each.hudi, str(each.value))]
    return row_kind.isin(texts)


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
    envelope_json = F.col(value_column).cast("string")
    parsed = F.from_json(envelope_json, f"payload STRUCT<{envelope}>, {envelope}", {"mode": "FAILFAST"})
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
