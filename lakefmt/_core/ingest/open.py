"""Opens the source that a job names (effects)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakefmt._core.arguments import shown
from lakefmt._core.ingest.api import Source
from lakefmt._core.ingest.options import TableJob
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.values import Clock
from lakefmt.errors import InvalidInputError

__all__ = ["open_source"]


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
    given: Any = job.source
    if hasattr(given, "plan") and hasattr(given, "close"):
        return given  # type: ignore[no-any-return]
    if not isinstance(given, str):
        if callable(given) or isinstance(given, Iterable):
            from lakefmt._core.ingest.iterables import IterableSource

            return IterableSource(given, job.shown_name)
        raise InvalidInputError(f"{shown(given)} is no source: give a path, a URL, a topic, or an iterable of rows")
    if job.source_kind == "kafka" or given.startswith("kafka://"):
        return _kafka(job)
    if job.source_kind == "table":
        from lakefmt._core.ingest.tables import TableSource

        return TableSource(given, job.source_options, storage_options)
    if job.source_kind == "query":
        from lakefmt._core.ingest.queries import open_query_source

        return open_query_source(given, job.source_options)
    if job.source_kind == "rows":
        from lakefmt._core.ingest.iterables import named_source

        return named_source(given)
    return _files(job, given, storage_options, clock, time_source)


def _files(
    job: TableJob,
    location: str,
    storage_options: Mapping[str, object] | None,
    clock: Clock | None,
    time_source: TimeSource | None,
) -> Source:
    from lakefmt._core.ingest.files.reading import FileFormat
    from lakefmt._core.ingest.files.source import FileSource

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


def _kafka(job: TableJob) -> Source:
    """Return a topic; the properties of the job are those of Hudi's streamer and of the client."""
    from lakefmt._core.ingest.kafka.source import open_kafka_source

    told = {"hoodie.streamer.source.kafka.topic": str(job.source)}
    if job.format is not None:
        told["lakefmt.ingest.kafka.format"] = {"jsonl": "json"}.get(job.format, job.format)
    return open_kafka_source({**job.source_options, **told})
