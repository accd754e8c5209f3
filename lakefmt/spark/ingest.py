"""Rounds of `lakefmt ingest` by Spark: its tasks read and decode, its writer writes, checkpoints are as anywhere (effects).

Messages come by Spark's own source of Kafka, files are read by tasks, one after the other; what both are is decoded as
without Spark, so that types, rejected rows and their origins are the same. Decoded rows are packed until all tasks are
done: then their columns are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.cdc.events import RowKind
from lakefmt._core.ingest.api import CheckpointCommit, Round, SourceBatch, unified_schema
from lakefmt._core.ingest.files import FileRound, FileSource
from lakefmt._core.ingest.folders import ListedFile
from lakefmt._core.ingest.inputs import GuessedTypes
from lakefmt._core.ingest.kafka.client import MessageBatch
from lakefmt._core.ingest.kafka.options import KafkaOptions
from lakefmt._core.ingest.kafka.source import KafkaRound, MessageRows
from lakefmt._core.ingest.open import open_source
from lakefmt._core.ingest.options import TableJob
from lakefmt._core.ingest.sink import KIND, JobSink, RoundBatch, without_kind, write_kinds
from lakefmt._core.ingest.transforms import open_transforms
from lakefmt._core.schema import conform
from lakefmt._core.table import Table
from lakefmt._core.values import CommitResult
from lakefmt.errors import InvalidInputError, PositionLost, RowsRejected, SchemaMismatch, UnsupportedFeature
from lakefmt.spark.types import dataframe_schema, spark_schema, spark_types
from lakefmt.spark.workers import check_workers
from lakefmt.spark.writing.dataframe import CollectedRows, write_with_entries
from lakefmt.spark.writing.distributed import typed_errors
from lakefmt.spark.writing.staging import line_of, pack, unpack

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

__all__ = ["SparkEngine"]

_VIEW: Final = "lakefmt_source"
_PACKED: Final = "fields binary, rows bigint, data binary, rejected binary"
_PACKED_SCHEMA: Final = pa.schema(
    [("fields", pa.binary()), ("rows", pa.int64()), ("data", pa.binary()), ("rejected", pa.binary())]
)
_REASON: Final = "_lakefmt_ingest_reason"
#: Times without a zone are those of UTC, as without Spark.
_ZONELESS: Final = "utc"
#: What Spark says of messages that Kafka has removed.
_LOST_MESSAGES: Final = ("OffsetOutOfRange", "Some data may have been lost", "failOnDataLoss")

Decode = Callable[[Iterator[pa.RecordBatch]], Iterator[SourceBatch]]


class SparkEngine:
    """Reads and writes rounds of files and of Kafka with a session of Spark.

    Args:
        session: of Spark; None: the active one, or a new one with the configuration of the process (``spark-submit``).
        storage_options: credentials of the stores of files.
    """

    def __init__(
        self, session: SparkSession | None = None, storage_options: Mapping[str, object] | None = None
    ) -> None:
        self._session, self._storage_options = session, storage_options

    @property
    def session(self) -> SparkSession:
        """The session.

        Raises:
            UnsupportedFeature: PySpark is not installed.
        """
        if self._session is None:
            try:
                from pyspark.sql import SparkSession
            except ImportError:
                raise UnsupportedFeature("--engine spark needs lakefmt[spark]: install it with pip") from None
            self._session = SparkSession.builder.appName("lakefmt ingest").getOrCreate()
        return self._session

    def write(
        self, job: TableJob, planned: Round, sink: JobSink, batch: RoundBatch, entries: CheckpointCommit
    ) -> tuple[CommitResult, int] | None:
        """Write a round in one commit; rows that delete others come to this process, which writes them as it does without Spark.

        Args:
            job: of the table.
            planned: the round.
            sink: has the table, and makes it.
            batch: takes the rows that cannot be written.
            entries: what the commit says.

        Raises:
            UnsupportedFeature: the job asks for what Spark does not do here.
            RowsRejected: a row cannot be written, and there is no table for such rows; or too many cannot.
            SchemaMismatch: the rows have other columns than the job allows.
            PositionLost: messages of the round were removed meanwhile.
        """
        check_workers(self.session)
        queries = _queries(job)
        packed = self._packed(job, planned).persist()
        try:
            with typed_errors():
                schema, count = self._look(packed, sink, batch, has_queries=bool(queries))
            if not schema.names or not count:
                return None  # what there is to commit needs no tasks
            _check_policy(job, sink.table, without_kind(schema))
            rows = self._unpacked(packed, schema)
            if queries and KIND in schema.names:
                raise UnsupportedFeature(
                    "--engine spark runs no SQL over rows that delete others: what it makes of a row says nothing of its kind"
                )
            for query in queries:
                rows.createOrReplaceTempView(_VIEW)
                rows = self.session.sql(query)
            with typed_errors():
                before = batch.rejected_rows
                rows = self._without_bad(rows, job, batch)
                count -= batch.rejected_rows - before
                table = sink.ensure(without_kind(dataframe_schema(rows.schema, _ZONELESS) if queries else schema))
                sink.write_rejected(batch)
                batch.check_limits(count)
                if KIND in schema.names:
                    rows = _appended(rows, table)
                if KIND in rows.columns:
                    result = self._commit_kinds(rows, schema, table, batch, entries)
                else:
                    result = self._commit(rows, job, table, entries)
                return result, result.num_inserts + result.num_updates if queries else count
        finally:
            packed.unpersist()

    # ------------------------------------------------------------------------------------------------------ reading

    def _packed(self, job: TableJob, planned: Round) -> DataFrame:
        """Return what tasks make of a round: their rows in packs, by columns, and what they reject."""
        leading = tuple(name for name in job.transformers if not _is_query(name))
        if isinstance(planned, KafkaRound):
            options, known = planned.source.options, planned.source.table_schema
            messages = _messages(self.session, options, planned)
            return messages.mapInArrow(_packing(_decoder_of(options, known), leading, job.memory_bytes), _PACKED)
        if isinstance(planned, FileRound):
            read = _reader_of(job, self._storage_options, planned.files, planned.schema)
            # As many tasks as Spark has places for them: files next to each other go to one.
            numbers = self.session.range(len(planned.files))
            return numbers.mapInArrow(_packing(read, leading, job.memory_bytes), _PACKED)
        raise UnsupportedFeature("--engine spark reads files and Kafka; other sources are read without it")

    @staticmethod
    def _look(packed: DataFrame, sink: JobSink, batch: RoundBatch, *, has_queries: bool) -> tuple[pa.Schema, int]:
        """Return the columns of all packs and of the table, and how many rows there are; take what is rejected."""
        from pyspark.sql import functions as sql

        def look() -> list[Row]:
            kinds: list[Row] = (
                packed.select("fields", "rows", sql.monotonically_increasing_id().alias("number"))
                .where("fields IS NOT NULL")
                .groupBy("fields")
                .agg(sql.sum("rows").alias("rows"), sql.min("number").alias("number"))
                .orderBy("number")
                .collect()
            )
            for line in packed.where("rejected IS NOT NULL").select("rejected").toLocalIterator():
                for rejected in unpack(line["rejected"]).to_batches():
                    batch.take_rejected(rejected)
            return kinds

        kinds = run_foreign(look)
        if isinstance(kinds, Raised):
            if any(message in str(kinds.error) for message in _LOST_MESSAGES):
                raise PositionLost("messages of the round were removed before Spark had read them") from kinds.error
            raise kinds.error
        # What SQL makes of the rows has the columns of the table.
        known = pa.schema([]) if sink.table is None or has_queries else sink.table.schema
        schemas = [pa.ipc.read_schema(pa.py_buffer(line["fields"])) for line in kinds]
        return unified_schema(schemas, known), sum(line["rows"] for line in kinds)

    @staticmethod
    def _unpacked(packed: DataFrame, schema: pa.Schema) -> DataFrame:
        stored = spark_schema(schema)
        frame = packed.where("rows > 0").select("data")
        return frame.mapInArrow(_unpacking(schema, stored), spark_types(stored))

    @staticmethod
    def _without_bad(rows: DataFrame, job: TableJob, batch: RoundBatch) -> DataFrame:
        """Return the rows that can be written; take the others, with the reason of each.

        Raises:
            RowsRejected: a check does not hold, and the job ends then.
        """
        from pyspark.sql import functions as sql

        reason: Column = sql.lit(None).cast("string")
        for name, check in reversed(list(job.checks.items())):
            description = f"check {name!r} does not hold: {check}"
            reason = sql.when(~sql.coalesce(sql.expr(f"({check})"), sql.lit(False)), sql.lit(description)).otherwise(
                reason
            )
        for name in reversed(job.key):
            if name in rows.columns:
                reason = sql.when(sql.col(f"`{name}`").isNull(), sql.lit(f"key {name!r} is null")).otherwise(reason)
        checked = rows.withColumn(_REASON, reason)
        rejected = checked.where(f"{_REASON} IS NOT NULL")
        schema = dataframe_schema(rejected.schema, _ZONELESS)
        bad = pa.RecordBatchReader.from_stream(CollectedRows(rejected, schema)).read_all()
        for part in bad.to_batches():
            reasons = part.column(schema.get_field_index(_REASON)).to_pylist()
            broken = next((each for each in reasons if each.startswith("check ")), None)
            if broken is not None and job.on_check_failed == "abort":
                raise RowsRejected(f"{broken}; nothing of the round was committed")
            batch.reject(part.drop_columns([name for name in (_REASON, KIND) if name in part.schema.names]), reasons)
        return checked.where(f"{_REASON} IS NULL").drop(_REASON)

    # ------------------------------------------------------------------------------------------------------ writing

    def _commit(self, rows: DataFrame, job: TableJob, table: Table, entries: CheckpointCommit) -> CommitResult:
        options = {
            "hoodie.datasource.write.operation": job.operation,
            "lakefmt.spark.timestamp_ntz": _ZONELESS,
            **{name: str(value) for name, value in table.client.options.items()},
        }
        if job.operation == "upsert" and not table.properties.record_key_fields:
            options["hoodie.datasource.write.operation"] = "insert"
        if job.filter_dupes:
            options["hoodie.datasource.write.operation"] = "insert"
            options["hoodie.datasource.write.insert.drop.duplicates"] = "true"
        return write_with_entries(rows, table.client.store.url, "append", options, entries)

    @staticmethod
    def _commit_kinds(
        rows: DataFrame, schema: pa.Schema, table: Table, batch: RoundBatch, entries: CheckpointCommit
    ) -> CommitResult:
        """Commit rows that delete others beside those that they do not delete, in their order, which only one process knows.

        Args:
            rows: of the round, with their kinds.
            schema: of them.
            table: that is written.
            batch: holds them meanwhile.
            entries: what the commit says.
        """
        reader = pa.RecordBatchReader.from_stream(CollectedRows(rows, schema))
        for part in reader:
            batch.rows.add(part)
        return write_kinds(table, batch.rows, without_kind(batch.rows.unified(table.schema)), entries)


def _appended(rows: DataFrame, table: Table) -> DataFrame:
    """Return rows without their kinds where the table has no key and none of them is a delete: then new rows are one more each."""
    if table.properties.record_key_fields or rows.where(f"{KIND} = {RowKind.DELETE.value}").limit(1).collect():
        return rows
    return rows.where(f"{KIND} IS NULL OR {KIND} <> {RowKind.UPDATE_BEFORE.value}").drop(KIND)


def _check_policy(job: TableJob, table: Table | None, schema: pa.Schema) -> None:
    """Raise where rows bring columns and the job adds none.

    Raises:
        SchemaMismatch: so it is.
    """
    if (
        job.on_schema_change == "add"
        or table is None
        or schema.equals(table.schema)
        or any(map(_is_query, job.transformers))
    ):
        return
    known = table.schema
    new = [each.name for each in schema if each.name not in known.names or not each.equals(known.field(each.name))]
    raise SchemaMismatch(f"the rows have other columns than the table: {', '.join(map(repr, new))}")


# ------------------------------------------------------------------------------------------------------ transformers


def _is_query(name: str) -> bool:
    return name != "flatten" and not name.startswith("python:")


def _queries(job: TableJob) -> list[str]:
    """Return the SQL of a job, which comes behind what is done with batches.

    Raises:
        UnsupportedFeature: a batch would be changed behind SQL.
        InvalidInputError: the file of a query is not there.
    """
    is_query = [_is_query(name) for name in job.transformers]
    if is_query != sorted(is_query):
        raise UnsupportedFeature("--engine spark flattens rows and calls functions before it runs SQL, not behind it")
    texts = []
    for name in (each for each in job.transformers if _is_query(each)):
        if name.startswith("sql-file:"):
            path = Path(name.removeprefix("sql-file:").removeprefix("file://"))
            if not path.is_file():
                raise InvalidInputError(f"the SQL of a transformer is not in {path}")
            name = path.read_text(encoding="utf-8")
        query = name.removeprefix("sql:").strip().rstrip(";")
        texts.append(query.replace("<SRC>", _VIEW).replace("<src>", _VIEW))
    return texts


# ------------------------------------------------------------------------------------------------------------- tasks


def _packing(read: Decode, leading: Sequence[str], memory_bytes: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the task that reads, transforms and packs."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rejected = list[pa.RecordBatch]()

        def parts() -> Iterator[Any]:
            for part in read(batches):
                if part.rejected is not None and part.rejected.num_rows:
                    rejected.append(part.rejected)
                if part.rows.schema.names:
                    yield part.rows, part.kinds

        stream: Iterable[Any] = parts()
        for transform in open_transforms(leading, memory_bytes):
            stream = transform(stream)
        for rows, kinds in stream:
            table = pa.Table.from_batches([rows])
            if kinds is not None:
                table = table.append_column(KIND, pa.array(kinds, pa.int8()))
            fields = table.schema.remove_metadata().serialize().to_pybytes()
            yield line_of((fields, table.num_rows, pack(table), None), _PACKED_SCHEMA)
        for each in rejected:
            yield line_of((None, 0, None, pack(pa.Table.from_batches([each]))), _PACKED_SCHEMA)

    return run


def _unpacking(schema: pa.Schema, stored: pa.Schema) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the task that unpacks rows with the columns of all of them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column(0):
                table = conform(unpack(data.as_buffer()), schema, allow_null_list_elements=True)
                yield from table.cast(stored).combine_chunks().to_batches()

    return run


def _reader_of(
    job: TableJob,
    storage_options: Mapping[str, object] | None,
    files: Sequence[ListedFile],
    schema: pa.Schema | None,
) -> Decode:
    """Return the task that reads files by their numbers; the types of columns are inferred for each file."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[SourceBatch]:
        source = open_source(job, storage_options)
        assert isinstance(source, FileSource)  # noqa: S101  (so was the round)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                guesses = GuessedTypes(frozenset(source.format.keys))
                yield from source.read(files[number], schema or pa.schema([]), guesses)

    return read


def _decoder_of(options: KafkaOptions, schema: pa.Schema | None) -> Decode:
    """Return the decoder of the messages."""

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[SourceBatch]:
        rows = MessageRows(options)
        rows.table_schema = schema
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            if options.has_headers:
                columns[5] = [[(each["key"], each["value"]) for each in line or ()] for line in columns[5]]
            if batch.num_rows:
                yield from rows.decode(MessageBatch(*columns))

    return decode


# ------------------------------------------------------------------------------------------------------------- Kafka


def _messages(session: SparkSession, options: KafkaOptions, planned: KafkaRound) -> DataFrame:
    """Return the messages of a round, by Spark's own source.

    Raises:
        UnsupportedFeature: the connector is missing, or a setting of the client has no other name there.
    """
    ranges = [each for each in planned.ranges if each.end > each.begin]
    begins = {options.topic: {str(each.partition): each.begin for each in ranges}}
    ends = {options.topic: {str(each.partition): each.end for each in ranges}}
    reader = session.read.format("kafka").options(**_java_settings(options.client))
    reader = reader.option("assign", json.dumps({options.topic: sorted(each.partition for each in ranges)}))
    reader = reader.option("startingOffsets", json.dumps(begins)).option("endingOffsets", json.dumps(ends))
    reader = reader.option("failOnDataLoss", "true").option("includeHeaders", str(options.has_headers).lower())
    headers = "headers" if options.has_headers else "CAST(NULL AS STRING) AS headers"
    messages = run_foreign(reader.load)
    if isinstance(messages, Raised):
        message = str(messages.error).lower()
        if "kafka" not in message or "find data source" not in message:
            raise messages.error
        release = session.version
        scala = "2.13" if int(release.partition(".")[0]) > 3 else "2.12"
        raise UnsupportedFeature(
            "--engine spark reads Kafka by Spark's own source: start it with "
            f"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_{scala}:{release}"
        ) from messages.error
    return messages.selectExpr("partition", "offset", "key", "value", "unix_millis(timestamp) AS timestamp", headers)


_SAME: Final = frozenset(
    {"bootstrap.servers", "security.protocol", "isolation.level", "client.id", "client.rack", "check.crcs"}
)
_OTHER_NAMES: Final = {"sasl.mechanisms": "sasl.mechanism", "sasl.mechanism": "sasl.mechanism"}


def _java_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Return settings of librdkafka by the names of Kafka's Java client.

    Raises:
        UnsupportedFeature: one that decides who may read has no other name.

    Example:
        >>> _java_settings({"bootstrap.servers": "b:9092", "fetch.wait.max.ms": "5"})
        {'kafka.isolation.level': 'read_committed', 'kafka.bootstrap.servers': 'b:9092'}
    """
    settings = {"kafka.isolation.level": "read_committed"}
    for name, value in client.items():
        if name in _SAME:
            settings[f"kafka.{name}"] = value
        elif name in _OTHER_NAMES:
            settings[f"kafka.{_OTHER_NAMES[name]}"] = value
        elif name == "ssl.ca.location":
            settings |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": value}
        elif name.startswith(("sasl.", "ssl.")) and name not in ("sasl.username", "sasl.password"):
            raise UnsupportedFeature(f"--engine spark has no setting for {name} of librdkafka")
    if "sasl.username" in client:
        is_plain = settings.get("kafka.sasl.mechanism", "PLAIN").upper() == "PLAIN"
        module = "plain.PlainLoginModule" if is_plain else "scram.ScramLoginModule"
        login = " ".join(
            f'{name}="{client.get(f"sasl.{name}", "").translate(_IN_QUOTES)}"' for name in ("username", "password")
        )
        settings["kafka.sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {login};"
    return settings


_IN_QUOTES: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})
