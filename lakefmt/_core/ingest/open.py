"""Open the source that a job names, and read rows from iterables: lists of dicts, Arrow tables, functions, resources of dlt (effects).

An iterable has no position from which a later run could go on: every run takes all of it, and a table with a key holds each row once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from lakefmt._core.arguments import foreign, foreign_items, shown
from lakefmt._core.data_classes import replace
from lakefmt._core.ingest.api import Checkpoint, Source, SourceBatch
from lakefmt._core.ingest.files import FileFormat, FileSource
from lakefmt._core.ingest.http import open_http_source
from lakefmt._core.ingest.options import TableJob
from lakefmt._core.ingest.queries import open_query_source
from lakefmt._core.ingest.transforms import load_function
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.values import Clock
from lakefmt._core.write.ingest import is_pandas_frame, open_stream, rows_of_dicts
from lakefmt.errors import InvalidInputError, SourceRefused

__all__ = [
    "IterableSource",
    "jobs_of_topics",
    "named_source",
    "open_source",
]

_RUN: Final = re.compile(r"rows-run-([0-9]{1,12})")
_ROWS: Final = 10_000


class _IterableRound:
    def __init__(self, rows: Iterable[Any], name: str, number: int, table_schema: pa.Schema | None) -> None:
        self._rows, self._name, self._table_schema = rows, name, table_schema
        self.checkpoint = Checkpoint(f"rows-run-{number}")

    @property
    def summary(self) -> str:
        """Return that it is all of it."""
        return f"all rows of {self._name}"

    @property
    def expected_rows(self) -> int | None:
        """Return None: only reading tells."""
        return None

    def batches(self) -> Iterator[SourceBatch]:
        """Read the rows."""
        items = foreign_items(self._rows, f"the rows of {self._name} cannot be read")
        for batch in _batches(items, self._name, self._table_schema):
            yield SourceBatch(batch)


def _batches(items: Iterator[Any], name: str, table_schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """Yield what Arrow holds as it is, and dicts in batches."""
    rows = list[Mapping[str, Any]]()
    for item in items:
        if isinstance(item, Mapping):
            rows.append(item)
        elif isinstance(item, list):  # dlt hands rows over in pages
            rows += item
        else:
            yield from _of_dicts(rows, table_schema)
            rows = []
            yield from _arrow_batches(item, name)
        while len(rows) >= _ROWS:
            yield from _of_dicts(rows[:_ROWS], table_schema)
            rows = rows[_ROWS:]
    yield from _of_dicts(rows, table_schema)


def _of_dicts(rows: list[Mapping[str, Any]], table_schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    if rows:
        yield from rows_of_dicts(rows, None if table_schema is None else lambda: table_schema).to_batches()


def _arrow_batches(item: Any, name: str) -> Iterator[pa.RecordBatch]:
    if isinstance(item, pa.RecordBatch):
        yield item
        return
    if not hasattr(item, "__arrow_c_stream__"):
        raise InvalidInputError(f"{name} gave {shown(item)}: rows are dicts, lists of dicts, or Arrow data")
    if is_pandas_frame(item):  # its stream has its index by other rules than a write of it
        for table in open_stream(item)[1]:
            yield from table.to_batches()
        return
    yield from foreign(lambda: pa.RecordBatchReader.from_stream(item), f"the rows of {name} cannot be read")


class IterableSource:
    """Rows of the caller, all in one round.

    Args:
        given: an iterable, or a function that returns one.
        name: in messages.
    """

    def __init__(self, items: Iterable[Any] | Callable[[], Iterable[Any]], name: str) -> None:
        self._given, self._name = items, name
        self._number: int | None = None
        self.table_schema: pa.Schema | None = None

    @property
    def name(self) -> str:
        """Return what messages call it."""
        return self._name

    def schema(self) -> pa.Schema | None:
        """Return None: the rows tell."""
        return None

    def close(self) -> None:
        """Do nothing."""

    def plan(self, after: Checkpoint | None, limit: int | None) -> _IterableRound | None:
        """Take all rows, once.

        Args:
            after: of the newest commit that has one.
            limit: without meaning here.

        Raises:
            SourceRefused: the checkpoint is of another kind of source.
        """
        number = 0
        if after is not None:
            matched = _RUN.fullmatch(after.text)
            if matched is None:
                raise SourceRefused(
                    f"{self._name} gives rows that have no place, and the checkpoint is {shown(after.text)}"
                )
            number = int(matched[1])
        if self._number is not None and number >= self._number:
            return None  # this run's rows are committed
        self._number = number + 1
        rows = self._given() if callable(self._given) and not isinstance(self._given, Iterable) else self._given
        if not isinstance(rows, Iterable):
            raise InvalidInputError(f"{self._name} gave {shown(rows)}, no rows")
        single = isinstance(rows, pa.Table | pa.RecordBatch) or hasattr(rows, "__arrow_c_stream__")
        return _IterableRound([rows] if single else rows, self._name, self._number, self.table_schema)


def named_source(name: str) -> IterableSource:
    """Return the rows that a function ``module:function`` gives, such as a resource of dlt.

    Raises:
        InvalidInputError: there is none.
    """
    return IterableSource(load_function(name, "a source of rows"), name)


#: Stands for the name of a topic in the paths of tables, where the job has a pattern of topics.
_TOPIC: Final = "{topic}"


def open_source(
    job: TableJob,
    storage_options: Mapping[str, object] | None = None,
    *,
    clock: Clock | None = None,
    time_source: TimeSource | None = None,
) -> Source:
    """Return the source of a job.

    Args:
        job: of the table.
        storage_options: credentials of the store of files and tables.
        clock: the clock of the store of files.
        time_source: how time passes.

    Raises:
        InvalidInputError: the job does not say enough.
        UnsupportedFeature: a package is missing.
    """
    source: Any = job.source
    if hasattr(source, "plan") and hasattr(source, "close"):
        return source  # type: ignore[no-any-return]
    if not isinstance(source, str):
        if callable(source) or isinstance(source, Iterable):
            return IterableSource(source, job.shown_name)
        raise InvalidInputError(f"{shown(source)} is no source: give a path, a URL, a topic, or an iterable of rows")
    if job.source_kind == "kafka" or source.startswith("kafka://"):
        from lakefmt._core.ingest.kafka.source import open_kafka_source

        return open_kafka_source(_kafka_properties(job))
    if job.source_kind == "table":
        from lakefmt._core.ingest.tables import TableSource

        return TableSource(source, job.source_options, storage_options)
    if job.source_kind == "query":
        return open_query_source(source, job.source_options)
    if job.source_kind == "http" or (job.source_kind == "files" and source.startswith(("http://", "https://"))):
        return open_http_source(source, job.source_options, job.format, time_source)
    if job.source_kind == "rows":
        return named_source(source)
    return _files(job, source, storage_options, clock, time_source)


def _files(
    job: TableJob,
    location: str,
    storage_options: Mapping[str, object] | None,
    clock: Clock | None,
    time_source: TimeSource | None,
) -> Source:
    names = () if job.header else job.columns
    keys = (*job.key, *(each.partition(":")[0] for each in job.partition_by))
    how = FileFormat(job.format, job.delimiter, job.nulls, names, job.hive_columns, keys)
    return FileSource(
        location,
        how,
        min_age=job.min_age,
        late_window=job.late_window,
        quarantine=job.quarantines,
        storage_options=storage_options,
        clock=clock,
        time_source=time_source,
    )


def _kafka_properties(job: TableJob) -> dict[str, str]:
    """Return the properties of a job, which are those of Hudi's streamer and of the client, with its topic."""
    properties = {"hoodie.streamer.source.kafka.topic": str(job.source)}
    if job.format is not None:
        properties["lakefmt.ingest.kafka.format"] = {"jsonl": "json"}.get(job.format, job.format)
    return {**job.source_options, **properties}


def jobs_of_topics(job: TableJob) -> list[TableJob]:
    """Return the job of each topic that a job's pattern matches now; of a job without a pattern, that job.

    Args:
        job: whose topic is a regular expression where it begins with ``^``, as for librdkafka; the paths of its table and of its
            errors have the name of the topic in place of ``{topic}``.

    Raises:
        InvalidInputError: the pattern is none, or all topics would go into one table.
        SourceRefused: no topic matches.
        SourceUnavailable: the brokers do not answer.

    Example:
        >>> job = TableJob(source="kafka://localhost:9092/orders", table="/lake/orders")
        >>> jobs_of_topics(job) == [job]
        True
    """
    source = job.source
    if not isinstance(source, str) or not (job.source_kind == "kafka" or source.startswith("kafka://")):
        return [job]
    address, slash, pattern = source.rpartition("/") if source.startswith("kafka://") else ("", "", source)
    if not pattern.startswith("^"):
        return [job]
    if _TOPIC not in job.table:
        raise InvalidInputError(
            f"{shown(pattern)} is a pattern of topics: the path of the table has {_TOPIC} in it, so that each has its own"
        )
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise InvalidInputError(f"{shown(pattern)} is no regular expression: {error}") from None
    from lakefmt._core.ingest.kafka.client import list_topics

    names = [name for name in list_topics(_kafka_properties(job)) if expression.search(name)]
    if not names:
        raise SourceRefused(f"no topic matches {shown(pattern)}")
    return [
        replace(
            job,
            source=f"{address}{slash}{name}",
            table=job.table.replace(_TOPIC, name),
            name=f"{job.name}.{name}" if job.name else "",
            errors=None if job.errors is None else job.errors.replace(_TOPIC, name),
        )
        for name in names
    ]
