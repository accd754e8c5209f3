"""Runs jobs: rounds of one table after the other, once, until there is nothing new, or until it is stopped (effects).

A round is planned from the checkpoint that the table has, read, and committed with the checkpoint behind it. Nothing is remembered between
rounds that is not in the table, so a process may end anywhere.

Jobs are given as files or mappings: `run_jobs` runs them, `plan_jobs` says what their next round would do.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from lakefmt._core.arguments import Raised, error_text, run_foreign, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.ingest.api import (
    Checkpoint,
    CheckpointCommit,
    HearsOfCommits,
    KnowsTableSchema,
    Round,
    Source,
    StoredCheckpoint,
    StoresInstants,
    checkpoint_entries,
    resume_point,
)
from lakefmt._core.ingest.open import jobs_of_topics, open_source
from lakefmt._core.ingest.options import Layer, TableJob, is_number_within, resolve_table_job, table_layers
from lakefmt._core.ingest.sink import JobSink, RoundBatch, check_conditions
from lakefmt._core.ingest.transforms import Part, Transform, load_function, open_transforms
from lakefmt._core.storage.messages import printable_url
from lakefmt._core.storage.open import local_path, location_text
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.values import Clock, CommitResult, SystemClock
from lakefmt.errors import (
    ConflictError,
    InstantNotPending,
    InvalidInputError,
    LakefmtError,
    SourceUnavailable,
    StorageError,
)

__all__ = [
    "IngestPlan",
    "IngestProgress",
    "Ingester",
    "JobProgress",
    "RoundEngine",
    "load_config",
    "plan_jobs",
    "resolve_jobs",
    "run_jobs",
]

_log = logging.getLogger("lakefmt.ingest")

_LONGEST_PAUSE: Final = 60.0
#: What a thread can wait for.
_LONGEST_INTERVAL: Final = min(1e9, threading.TIMEOUT_MAX)


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What a job has done for one table since it began.

    Attributes:
        name: of the job.
        table: path or URL of the table.
        state: ``waiting`` (for its first round, or for table services), ``idle``, ``working`` or ``failed``.
        message: why it failed, or what the last round was.
        rounds: how often the source was asked.
        commits: commits.
        rows: rows written.
        rejected_rows: rows rejected.
        failures: rounds that failed.
        checkpoint: of the newest commit.
        instant: of the newest commit.
        seconds: spent in rounds that committed.
    """

    name: str
    table: str
    state: str = "waiting"
    message: str = ""
    rounds: int = 0
    commits: int = 0
    rows: int = 0
    rejected_rows: int = 0
    failures: int = 0
    checkpoint: str | None = None
    instant: str | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        rejected = f", {self.rejected_rows:,} rejected" if self.rejected_rows else ""
        message = f": {self.message}" if self.message else ""
        return f"{self.name}: {self.state}, {self.rows:,} rows in {self.commits:,} commits{rejected}{message}"


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """What a process has done for all its tables; prints a line for each.

    Attributes:
        tables: in the order of the job.
        is_stopping: it was asked to stop.
    """

    tables: tuple[JobProgress, ...] = ()
    is_stopping: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the newest round of a table failed."""
        return any(table.state == "failed" for table in self.tables)

    def __str__(self) -> str:
        return "\n".join(map(str, self.tables))


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What the next round of a table would do; prints as a page.

    Attributes:
        job: of the table.
        source: its name.
        after: the checkpoint that it begins behind; None: at the beginning of the source.
        checkpoint: that its commit would store; None: there is nothing new.
        summary: what it would read.
        expected_rows: how many rows, if the source tells.
        columns: of the table, or of the source; None: only reading tells.
        is_there: whether the table is there.
        notes: settings without effect.
    """

    job: TableJob
    source: str
    after: str | None
    checkpoint: str | None
    summary: str
    expected_rows: int | None
    columns: pa.Schema | None
    is_there: bool
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        job = self.job
        rows = "unknown before it is read" if self.expected_rows is None else f"{self.expected_rows:,}"
        columns = (
            "unknown before it is read"
            if self.columns is None
            else ", ".join(f"{f.name} {f.type}" for f in self.columns)
        )
        lines = [
            f"{job.shown_name}: {self.source} → {printable_url(job.table)}"
            + ("" if self.is_there else " (will be made)"),
            f"  begins behind: {self.after or 'nothing: at the beginning of the source'}",
            f"  takes: {self.summary}",
            f"  rows: {rows}",
            f"  columns: {columns}",
            f"  checkpoint: {self.checkpoint or 'stays'}",
        ]
        lines += [f"  {name} = {_shown_setting(job, name)} ({origin})" for name, origin in sorted(job.origins.items())]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _shown_setting(job: TableJob, name: str) -> str:
    """Return the value of a setting for people; those of a store or a source may be secrets."""
    value = getattr(job, name, None)
    if name in ("source", "table", "errors"):
        return printable_url(str(value))
    if isinstance(value, Mapping) or not hasattr(job, name):
        return "…"
    return ",".join(value) if isinstance(value, tuple) else str(value)


class RoundEngine(Protocol):
    """Another engine that reads and writes the rounds that are planned here."""

    def write(
        self, job: TableJob, planned: Round, sink: JobSink, batch: RoundBatch, entries: CheckpointCommit
    ) -> tuple[CommitResult, int] | None:
        """Write a round in one commit; return its result, and how many rows it had. None: there is no row to write.

        Args:
            job: of the table.
            planned: the round.
            sink: has the table, and makes it.
            batch: takes the rows that cannot be written; they are stored before the commit.
            entries: what the commit says, decided under the table lock.
        """


class _TableRounds:
    """The rounds of one table."""

    def __init__(
        self,
        job: TableJob,
        storage_options: Mapping[str, object] | None,
        clock: Clock,
        time_source: TimeSource,
        notes: tuple[str, ...] = (),
        engine: RoundEngine | None = None,
    ) -> None:
        self.job, self._storage_options, self._engine = job, storage_options, engine
        self._clock, self._time, self.notes = clock, time_source, notes
        self.sink = JobSink(job, storage_options)
        if engine is None:
            check_conditions(job.checks)
        self._source: Source | None = None
        self._transforms: tuple[Transform, ...] = (
            () if engine is not None else open_transforms(job.transformers, job.memory_bytes)
        )
        self._hooks = [load_function(name, "a hook") for name in job.hooks]
        self.progress = JobProgress(job.shown_name, printable_url(job.table))
        self.attempts = 0

    @property
    def source(self) -> Source:
        """The source, opened when it is first needed."""
        if self._source is None:
            self._source = open_source(self.job, self._storage_options, clock=self._clock, time_source=self._time)
        return self._source

    def close(self) -> None:
        """Release the source."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _after(self, stored: StoredCheckpoint | None) -> Checkpoint | None:
        """Return where the next round begins; None: at the beginning of the source."""
        after = resume_point(stored, self.job.checkpoint, self.job.ignore_checkpoint)
        return self.sink.initial_checkpoint() if stored is None and after is None else after

    def plan(self) -> IngestPlan:
        """Return what the next round would do."""
        stored, table_at = self.sink.look()
        if table_at is None:
            self.sink.check_key()
        after = self._after(stored)
        planned = self._planned(after, None if table_at is None else table_at.schema())
        return IngestPlan(
            self.job,
            printable_url(self.source.name),
            None if after is None else after.text,
            None if planned is None else planned.checkpoint.text,
            "nothing: there is nothing new" if planned is None else planned.summary,
            0 if planned is None else planned.expected_rows,
            self.source.schema() if table_at is None else table_at.schema(),
            table_at is not None,
            self.notes,
        )

    def _planned(self, after: Checkpoint | None, schema: pa.Schema | None) -> Round | None:
        source = self.source
        if isinstance(source, KnowsTableSchema):
            # What has no types gets those of the table; what is transformed has others.
            source.table_schema = None if self.job.transformers else schema
        return source.plan(after, self.job.source_limit)

    def run(self, *, may_wait: bool = False) -> bool:
        """Do one round; return whether there was something new.

        Args:
            may_wait: there is no round while more table services are pending than the job allows.

        Raises:
            LakefmtError: it failed, and nothing of it is visible.
        """
        start = self._time.monotonic()
        self.progress = replace(self.progress, state="working", rounds=self.progress.rounds + 1)
        stored, table_at = self.sink.look()
        if may_wait and table_at is not None and (reason := self.sink.waits_for(table_at)):
            self.progress = replace(self.progress, state="waiting", message=reason)
            return False
        after = self._after(stored)
        planned = self._planned(after, None if table_at is None else table_at.schema())
        if planned is None and not self._commits_empty(stored, after):
            self.progress = replace(self.progress, state="idle", message="nothing new")
            return False
        batch = self.sink.begin(self.source.name, table_at, self._name_of_round(after))
        try:
            engine_result = None
            if planned is not None and self._engine is not None:
                commit = self.sink.entries_behind(stored, self._entries(planned.checkpoint))
                engine_result = self._engine.write(self.job, planned, self.sink, batch, commit)
            elif planned is not None:
                self._read(planned, batch)
            checkpoint = after if planned is None else planned.checkpoint
            result, rows = engine_result or (self._commit(batch, stored, checkpoint), batch.rows.num_rows)
        finally:
            batch.close()
        if result is None:
            self.progress = replace(self.progress, state="idle", message="no rows yet, and no table")
            return False
        seconds = self._time.monotonic() - start
        self._note(result, rows, batch.rejected_rows, checkpoint, planned, seconds)
        return planned is not None

    def _name_of_round(self, after: Checkpoint | None) -> str:
        """Return what tells a round from those of other tables, and from others that begin at the same time of files."""
        details = {} if after is None else dict(after.details)
        checkpoint = "" if after is None else after.text
        what = json.dumps([self.job.table, checkpoint, details, self.job.ignore_checkpoint], sort_keys=True)
        return f"{checkpoint}.{hashlib.blake2b(what.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"

    def _commits_empty(self, stored: StoredCheckpoint | None, after: Checkpoint | None) -> bool:
        """Return whether a round without rows commits: the job asks for it, or a reset must be noted."""
        if self.sink.table is None:
            return False
        if self.job.commit_empty:
            return True
        job = self.job
        noted = (
            stored is not None
            and job.checkpoint in (None, stored.reset)
            and job.ignore_checkpoint in (None, stored.ignore)
        )
        moved = after is not None and (stored is None or stored.text != after.text)
        return moved and not noted

    def _read(self, planned: Round, batch: RoundBatch) -> None:
        def parts() -> Iterator[Part]:
            for part in planned.batches():
                batch.take_rejected(part.rejected)
                if len(part.rows.schema):
                    yield part.rows, part.kinds

        stream = parts()
        for transform in self._transforms:
            stream = transform(stream)
        for rows, kinds in stream:
            batch.add(rows, kinds)

    def _commit(
        self, batch: RoundBatch, stored: StoredCheckpoint | None, checkpoint: Checkpoint | None
    ) -> CommitResult | None:
        self.sink.write_rejected(batch)
        batch.check_limits()
        return self.sink.write(batch, stored, self._entries(checkpoint))

    def _entries(self, checkpoint: Checkpoint | None) -> dict[str, str]:
        """Return what the commit of a round says."""
        source = self.source
        version = source.checkpoint_version(self.sink.version) if isinstance(source, StoresInstants) else 1
        return checkpoint_entries(
            checkpoint, reset=self.job.checkpoint, ignore=self.job.ignore_checkpoint, version=version
        )

    def _note(
        self,
        result: CommitResult,
        rows: int,
        rejected: int,
        checkpoint: Checkpoint | None,
        planned: Round | None,
        seconds: float,
    ) -> None:
        was = self.progress
        self.progress = replace(
            was,
            state="idle",
            message="an empty commit" if planned is None else planned.summary,
            commits=was.commits + 1,
            rows=was.rows + rows,
            rejected_rows=was.rejected_rows + rejected,
            checkpoint=None if checkpoint is None else checkpoint.text,
            instant=result.instant,
            seconds=was.seconds + seconds,
        )
        source = self.source
        if isinstance(source, HearsOfCommits) and checkpoint is not None:
            answer = run_foreign(lambda: source.committed(checkpoint))
            if isinstance(answer, Raised):
                _log.warning("%s: the source could not be told of a commit: %s", was.name, error_text(answer.error))
        for name, hook in zip(self.job.hooks, self._hooks, strict=True):
            outcome = run_foreign(partial(hook, result))
            if isinstance(outcome, Raised):  # the commit stands, whatever is made of it
                _log.warning("%s: hook %s failed after the commit: %s", was.name, name, error_text(outcome.error))


def _check_places(jobs: Sequence[TableJob]) -> None:
    """Check that what jobs read and write are different places, however they are spelt.

    Raises:
        InvalidInputError: two of them are one.
    """
    tables = [_canonical_path(job.table) for job in jobs]
    if len(set(tables)) < len(tables):
        raise InvalidInputError("two jobs write into one table, whose checkpoint can be that of one source only")
    for job, table in zip(jobs, tables, strict=True):
        errors = None if job.errors is None else _canonical_path(job.errors)
        if errors in tables:
            raise InvalidInputError(
                f"{printable_url(job.table)}: its rejected rows would go to a table of rows: give another one"
            )
        if not isinstance(job.source, str | os.PathLike) or job.source_kind not in ("files", "table"):
            continue
        source = _canonical_path(job.source)
        if source == table or (errors is not None and source == errors):
            raise InvalidInputError(f"{printable_url(job.table)} would be read and written by one job")
        inside = [path for path in (table, errors) if path is not None and path.startswith(f"{source}/")]
        if job.source_kind == "files" and any(not _is_hidden(path.removeprefix(source)) for path in inside):
            raise InvalidInputError(
                f"{printable_url(job.table)}: a table would lie in the folder {printable_url(source)}, and its files would be read as those of the "
                "source: names that begin with _ or . are left out"
            )


def _canonical_path(location: str | os.PathLike[str]) -> str:
    """Return one text for a place, whichever way a local path is written."""
    path = location_text(location)
    if path.startswith(("file:", "local://")):
        path = local_path(path)
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


class Ingester:
    """Runs the rounds of some tables; :attr:`progress` may be read from any thread.

    Args:
        jobs: one for each table.
        storage_options: credentials of stores.
        interval: seconds between the beginnings of two rounds of a table, in continuous runs.
        attempts: after a failure that may pass, before a run gives up.
        retry_interval: seconds before the first of them; doubled each time, up to a minute.
        clock: tells the time of files.
        time_source: how time passes.
        on_round: called with the progress after each round.
        notes: of each job, what has no effect.
        engine: reads and writes the rounds; None: this process does.
        stop: when set, the round at hand ends with its commit, and the run returns.
    """

    def __init__(
        self,
        jobs: Sequence[TableJob],
        *,
        storage_options: Mapping[str, object] | None = None,
        interval: float = 10.0,
        attempts: int = 10,
        retry_interval: float = 1.0,
        clock: Clock | None = None,
        time_source: TimeSource | None = None,
        on_round: Callable[[IngestProgress], None] | None = None,
        notes: Sequence[tuple[str, ...]] = (),
        stop: threading.Event | None = None,
        engine: RoundEngine | None = None,
    ) -> None:
        if not jobs:
            raise InvalidInputError("there is no table to ingest into")
        if not is_number_within(interval, 0, _LONGEST_INTERVAL):
            raise InvalidInputError(f"interval is a number of seconds from 0 on, not {shown(interval)}")
        if attempts < 0 or retry_interval < 0:
            raise InvalidInputError("intervals and attempts are not negative")
        _check_places(jobs)
        self._time = time_source or SystemTimeSource()
        self._real_time = time_source is None
        padded_notes = [*notes, *[()] * len(jobs)]
        self._tables = [
            _TableRounds(job, storage_options, clock or SystemClock(), self._time, note, engine)
            for job, note in zip(jobs, padded_notes, strict=False)
        ]
        self._interval, self._attempts, self._retry_interval = interval, attempts, retry_interval
        self._on_round = on_round
        #: Tables run in threads: who is told of their rounds is told of one at a time.
        self._telling = threading.Lock()
        self._stop = stop or threading.Event()

    @property
    def progress(self) -> IngestProgress:
        """The progress so far."""
        return IngestProgress(tuple(each.progress for each in self._tables), self._stop.is_set())

    def stop(self) -> None:
        """Let the round at hand end, with its commit, and :meth:`run` return; a signal handler may call it."""
        self._stop.set()

    def plans(self) -> list[IngestPlan]:
        """Return what the next round of each table would do; nothing is changed.

        Raises:
            LakefmtError: a source or a table cannot be asked.
        """
        try:
            return [each.plan() for each in self._tables]
        finally:
            self._close()

    def run(self, mode: str = "once") -> IngestProgress:
        """Run rounds.

        Args:
            mode: ``"once"``: one round of each table; ``"until_idle"``: until no source has anything new; ``"continuous"``: until
                :meth:`stop`.

        Raises:
            LakefmtError: the only table failed. Of several tables each goes on without the others; the progress tells.
        """
        if mode not in ("once", "until_idle", "continuous"):
            raise InvalidInputError(f"unknown mode {mode!r}: give 'once', 'until_idle' or 'continuous'")
        failure: LakefmtError | None = None
        try:
            if len(self._tables) == 1:
                failure = self._run_table(self._tables[0], mode)
            else:
                # Each in a thread of its own: a slow or failing source holds up no other.
                threads = [
                    threading.Thread(target=self._run_table, args=(each, mode), name=f"lakefmt-ingest-{n}", daemon=True)
                    for n, each in enumerate(self._tables)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        finally:
            self._close()
        if failure is not None:
            raise failure
        return self.progress

    def _close(self) -> None:
        for each in self._tables:
            each.close()

    def _run_table(self, table: _TableRounds, mode: str) -> LakefmtError | None:
        """Run the rounds of one table; return what ended them, if it was an error."""
        while not self._stop.is_set():
            start = self._time.monotonic()
            try:
                news = table.run(may_wait=mode == "continuous")
                table.attempts = 0
            except LakefmtError as error:
                table.progress = replace(
                    table.progress, state="failed", message=str(error), failures=table.progress.failures + 1
                )
                self._report()
                if not self._may_try_again(table, error, mode):
                    if len(self._tables) > 1:  # the error of the only table is raised
                        _log.error("%s: %s", table.progress.name, error)
                    return error
                continue
            self._report()
            if mode == "once" or (mode == "until_idle" and not news):
                break
            if mode == "continuous" and not self._wait(self._interval - (self._time.monotonic() - start)):
                break
        return None

    def _report(self) -> None:
        if self._on_round is not None:
            with self._telling:
                self._on_round(self.progress)

    def _may_try_again(self, table: _TableRounds, error: LakefmtError, mode: str) -> bool:
        """Wait and return True where a failure may pass: the source or the store do not answer, or another writer was faster."""
        passes = isinstance(error, SourceUnavailable | ConflictError | InstantNotPending) or (
            isinstance(error, StorageError) and error.transient
        )
        table.attempts += 1
        if not passes or table.attempts > self._attempts or (mode == "once" and isinstance(error, ConflictError)):
            return False
        seconds = min(_LONGEST_PAUSE, self._retry_interval * 2.0 ** (table.attempts - 1))
        _log.warning("%s: %s; next attempt in %.1f s", table.progress.name, error, seconds)
        table.close()
        return self._wait(seconds)

    def _wait(self, seconds: float) -> bool:
        """Wait; return False when the run is to end."""
        if seconds > 0:
            if self._real_time:
                self._stop.wait(seconds)
            else:
                self._time.sleep(seconds)
        return not self._stop.is_set()


# ------------------------------------------------------------------------------------------- jobs as files and mappings

_MOST_CONFIG_BYTES = 16 << 20


def load_config(path: str | os.PathLike[str]) -> dict[str, object]:
    """Read a TOML job file and return its settings.

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
    interval: Any = loaded.pop("interval", 10.0)
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
