"""Jobs as files and mappings, run and planned (effects)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lakefmt._core.ingest.open import jobs_of_topics
from lakefmt._core.ingest.options import Layer, TableJob, resolve_table_job, table_layers
from lakefmt._core.ingest.run import Ingester, IngestPlan, IngestProgress
from lakefmt.errors import InvalidInputError

__all__ = ["load_config", "plan_jobs", "resolve_jobs", "run_jobs"]

_MOST_CONFIG_BYTES = 16 << 20


def load_config(path: str | os.PathLike[str]) -> dict[str, object]:
    """Return the settings of a job file in TOML.

    Args:
        path: of the file.

    Raises:
        InvalidInputError: it is not there, or no TOML.

    Example:
        >>> load_config("/no/such/job.toml")
        Traceback (most recent call last):
        lakefmt.errors.InvalidInputError: /no/such/job.toml is not there
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(f"{path} is not there")
    if file.stat().st_size > _MOST_CONFIG_BYTES:
        raise InvalidInputError(f"{path} is too large for the file of a job")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is no TOML: {error}") from error


def resolve_jobs(tables: Sequence[Sequence[Layer]]) -> list[tuple[TableJob, tuple[str, ...]]]:
    """Return the jobs of some tables, one for each topic where one has a pattern of topics, and what has no effect.

    Args:
        tables: the layers of each.

    Raises:
        InvalidInputError: one is not valid.
        SourceError: the brokers of a pattern of topics cannot be asked, or have no such topic.
    """
    resolved = [resolve_table_job(layers) for layers in tables]
    return [(each, notes) for job, notes in resolved for each in jobs_of_topics(job)]


def _ingester(
    config: Mapping[str, object] | str | os.PathLike[str],
    storage_options: Mapping[str, object] | None,
    on_round: Callable[[IngestProgress], None] | None = None,
) -> Ingester:
    origin = "config" if isinstance(config, Mapping) else str(config)
    loaded = dict(config) if isinstance(config, Mapping) else load_config(config)
    interval = loaded.pop("interval", 10.0)
    if not isinstance(interval, int | float):
        raise InvalidInputError("interval is a number of seconds")
    jobs = resolve_jobs(table_layers(loaded, origin))
    return Ingester(
        [job for job, _ in jobs],
        storage_options=storage_options,
        interval=interval,
        on_round=on_round,
        notes=[notes for _, notes in jobs],
    )


def run_jobs(
    config: Mapping[str, object] | str | os.PathLike[str],
    *,
    mode: str = "once",
    storage_options: Mapping[str, object] | None = None,
    on_round: Callable[[IngestProgress], None] | None = None,
) -> IngestProgress:
    """Take what is new in the sources of a job into its tables.

    Args:
        config: the settings of :class:`~lakefmt.ingest.TableJob`, or Hudi's; several tables under ``table``; or the path of a TOML file of them.
        mode: ``"once"``: one round, which is one commit of each table at most; ``"until_idle"``: rounds until nothing is new;
            ``"continuous"``: until the process is stopped.
        storage_options: credentials of the stores of files and tables.
        on_round: called with the progress after every round.

    Raises:
        InvalidInputError: the job is not valid, or its rows are not.
        SourceRefused: the checkpoint is of another kind of source.
        SourceUnavailable: the source does not answer, after all attempts.
        CheckpointMoved: another process of the same job was faster.
        LakefmtError: the only table of the job cannot be written. Of several, each goes on without the others.

    Example:
        >>> import lakefmt, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.jsonl").write_text('{"id": "a", "n": 1}')
        >>> job = {"source": str(folder), "table": "memory://doc-ingest", "key": "id", "min_age": 0}
        >>> run_jobs(job).tables[0].rows, run_jobs(job).tables[0].rows
        (1, 0)
        >>> lakefmt.open_table("memory://doc-ingest").read().to_pylist()
        [{'id': 'a', 'n': 1}]
    """
    return _ingester(config, storage_options, on_round).run(mode)


def plan_jobs(
    config: Mapping[str, object] | str | os.PathLike[str], *, storage_options: Mapping[str, object] | None = None
) -> list[IngestPlan]:
    """Return what the next round of each table would do; nothing is changed.

    Args:
        config: as for :func:`run_jobs`.
        storage_options: as for :func:`run_jobs`.

    Raises:
        InvalidInputError: the job is not valid.
        SourceError: the source cannot be asked.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.jsonl").write_text('{"id": "a", "n": 1}')
        >>> job = {"source": str(folder), "table": "memory://doc-ingest-plan", "key": "id", "min_age": 0}
        >>> plan_jobs(job)[0].summary
        '1 files, 19 bytes: a.jsonl'
    """
    return _ingester(config, storage_options).plans()
