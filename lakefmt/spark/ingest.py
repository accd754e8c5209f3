"""Rounds of `lakefmt ingest` by Spark: files by its own readers, rows by the DataFrame writer, checkpoints as anywhere (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lakefmt._core.ingest.api import Round
from lakefmt._core.ingest.checkpoints import CheckpointCommit
from lakefmt._core.ingest.files.reading import file_format, hive_values
from lakefmt._core.ingest.files.source import FileRound
from lakefmt._core.ingest.options import TableJob
from lakefmt._core.ingest.sink import JobSink
from lakefmt._core.values import CommitResult
from lakefmt._core.write.context import AlreadyDone, EntryView
from lakefmt.errors import InvalidInputError, RowsRejected, SourceUnavailable, UnsupportedFeature
from lakefmt.spark.types import dataframe_schema, spark_schema, spark_types
from lakefmt.spark.writing.dataframe import write_with_entries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkEngine"]

_READERS: Final = {"jsonl": "json", "csv": "csv", "parquet": "parquet", "orc": "orc", "avro": "avro"}
_VIEW: Final = "lakefmt_source"


class SparkEngine:
    """Reads and writes rounds of files with a session of Spark.

    Args:
        session: of Spark; None: the active one, or a new one with the configuration of the process (``spark-submit``).
    """

    def __init__(self, session: SparkSession | None = None) -> None:
        self._session = session

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
        self, job: TableJob, planned: Round, sink: JobSink, entries: CheckpointCommit
    ) -> tuple[CommitResult, int]:
        """Write a round of files in one commit.

        Args:
            job: of the table.
            planned: the round.
            sink: has the table, and makes it.
            entries: what the commit says.

        Raises:
            UnsupportedFeature: the job asks for what Spark does not do here.
            RowsRejected: a check does not hold.
            SourceUnavailable: a file changed while it was read; the next round has it whole.
        """
        _check(job, planned)
        assert isinstance(planned, FileRound)  # noqa: S101  (what _check says)
        rows = self._transformed(self._read(job, planned, sink), job)
        table = sink.ensure(dataframe_schema(rows.schema))
        self._check_rows(rows, job)
        options = {
            "hoodie.datasource.write.operation": job.operation,
            **{n: str(v) for n, v in table.client.options.items()},
        }
        if job.operation == "upsert" and not table.properties.record_key_fields:
            options["hoodie.datasource.write.operation"] = "insert"
        options["hoodie.datasource.write.insert.drop.duplicates"] = "true" if job.filter_dupes else "false"
        unchanged = _WhileUnchanged(planned, entries)
        texts = {
            name: text for name, text in options.items() if text != "false" or not name.endswith("drop.duplicates")
        }
        result = write_with_entries(rows, table.client.store.url, "append", texts, unchanged)
        return result, result.num_inserts + result.num_updates

    def _read(self, job: TableJob, planned: FileRound, sink: JobSink) -> DataFrame:
        """Return the rows of the files; columns that the table has get the types of the table."""
        base = planned.folder.url
        base = base if "://" in base else f"file://{base if base.startswith('/') else _absolute(base)}"
        by_kind = dict[str, list[str]]()
        for file in planned.files:
            kind = file_format(file.name, planned.format)
            by_kind.setdefault(_READERS[kind[0] if kind else "jsonl"], []).append(f"{base}/{file.name}")
        parts = [self._frame(kind, paths, base, job) for kind, paths in by_kind.items()]
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionByName(part, allowMissingColumns=True)
        folders = {name for file in planned.files for name in hive_values(file.name)} if job.hive_columns else set()
        known = (
            {}
            if sink.table is None
            else {f.name: f.dataType for f in spark_types(spark_schema(sink.table.schema)).fields}
        )
        for name in rows.columns:
            if name in folders and name not in known:
                rows = rows.withColumn(name, rows[name].cast("string"))  # as the other engine has it
            if name in known and rows.schema[name].dataType != known[name]:
                rows = rows.withColumn(name, rows[name].cast(known[name]))
        return rows

    def _frame(self, kind: str, paths: list[str], base: str, job: TableJob) -> DataFrame:
        reader = self.session.read.format(kind).option("mode", "FAILFAST").option("recursiveFileLookup", "false")
        has_folders = job.hive_columns and any(hive_values(path) for path in paths)
        if has_folders:
            reader = reader.option("basePath", base)
        if kind == "csv":
            reader = (
                reader.option("sep", job.delimiter)
                .option("header", str(job.header).lower())
                .option("inferSchema", "true")
            )
        if kind in ("parquet", "orc"):
            reader = reader.option("mergeSchema", "true")
        return reader.load(paths)

    def _transformed(self, rows: DataFrame, job: TableJob) -> DataFrame:
        for name in job.transformers:
            text = name.removeprefix("sql:").strip().rstrip(";")
            rows.createOrReplaceTempView(_VIEW)
            rows = self.session.sql(text.replace("<SRC>", _VIEW).replace("<src>", _VIEW))
        return rows

    def _check_rows(self, rows: DataFrame, job: TableJob) -> None:
        for name, text in job.checks.items():
            bad = rows.where(f"NOT coalesce(({text}), false)").limit(1).collect()
            if bad:
                raise RowsRejected(f"check {name!r} ({text}) does not hold, for example for {str(bad[0])[:200]}")


class _WhileUnchanged:
    """Says what a round's commit says, if its files are still those that were listed: Spark has read them by then."""

    def __init__(self, planned: FileRound, entries: CheckpointCommit) -> None:
        self._planned, self._entries = planned, entries

    def __call__(self, view: EntryView) -> Mapping[str, str] | AlreadyDone:
        for file in self._planned.files:
            if self._planned.folder.look(file.name) != file:
                raise SourceUnavailable(f"{file.name} changed while Spark read it: the next round has it whole")
        return self._entries(view)


def _absolute(path: str) -> str:
    from pathlib import Path

    return str(Path(path).absolute())


def _check(job: TableJob, planned: Round) -> None:
    """Refuse what only the other engine does.

    Raises:
        UnsupportedFeature: so it is.
        InvalidInputError: CSV without a header.
    """
    if not isinstance(planned, FileRound):
        raise UnsupportedFeature("--engine spark reads files; other sources are read without it")
    odd = [name for name in job.transformers if name == "flatten" or name.startswith(("python:", "sql-file:"))]
    if odd:
        raise UnsupportedFeature(f"--engine spark transforms rows by SQL alone, not by {odd[0]!r}")
    if job.errors is not None:
        raise UnsupportedFeature(
            "--engine spark rejects no rows one by one: leave errors out, and a bad row ends the round"
        )
    if not job.header:
        raise InvalidInputError("--engine spark reads CSV with a header")
