"""Opens the source that a job names (effects)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import replace
from lakefmt._core.ingest.api import Source
from lakefmt._core.ingest.files.reading import FileFormat
from lakefmt._core.ingest.files.source import FileSource
from lakefmt._core.ingest.http import open_http_source
from lakefmt._core.ingest.iterables import IterableSource, named_source
from lakefmt._core.ingest.options import TableJob
from lakefmt._core.ingest.queries import open_query_source
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.values import Clock
from lakefmt.errors import InvalidInputError, SourceRefused

__all__ = ["jobs_of_topics", "open_source"]

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
