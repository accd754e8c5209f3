"""Runs table services after a commit: in its call, or in a thread of the writing process.

A service that fails is reported, whatever the exception; the commit stays.

In the background a commit starts the thread; it compacts, cleans and archives as the settings say, under the table lock like every
writer, and ends when nothing is due. It is a daemon thread: a process that ends waits some seconds for a running service; a
service that takes longer stays pending, and the next run of the service finishes it.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Final, Protocol
from weakref import WeakSet

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.compaction.clean_plan import commits_since_clean, is_clean_due
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import InstantTime, TableType
from lakefmt.errors import CommitConflict, InstantNotFound, LakefmtError, ServicesFailed, StateError

__all__ = [
    "BACKGROUND",
    "BackgroundServices",
    "ServicesBeside",
    "run_services",
    "run_waiting_services",
]

#: The setting by which commits only plan services, and a thread executes them.
BACKGROUND: Final = "lakefmt.write.services.background"
#: Between a commit and the services that it starts; long enough that a burst of commits starts them once.
_PAUSE_SECONDS = 0.01
_BUSY_WAIT_SECONDS = 1.0
#: How long a process that ends waits for running services.
_ENDING_SECONDS = 10.0
_log = logging.getLogger("lakefmt.services")
_SYNC_FLAGS: Final = ("hoodie.datasource.hive_sync.enable", "hoodie.datasource.meta.sync.enable")


class ServicesBeside(Protocol):
    """Executes table services beside the writes of a handle (:class:`lakefmt._core.compaction.scheduler.BackgroundServices`)."""

    def take_failures(self) -> tuple[str, ...]:
        """Return what failed since the last call."""
        ...

    def wake(self, options: Mapping[str, object] | None = None) -> None:
        """Run what is due soon, with the settings of the call that committed."""
        ...


def run_services(
    client: TableClient, options: Mapping[str, object], *, beside: Callable[[], ServicesBeside] | None = None
) -> tuple[str, ...]:
    """Run the table services that the settings ask for after a commit, then the sync to a catalog; return a sentence for each that failed.

    The timeline as the commit left it decides which are due, so that a small commit pays nothing for the others; a service
    that runs decides again, under the lock.

    Args:
        client: the table.
        options: settings of the call that committed.
        beside: returns the background services of the handle, asked where the settings want services in the background;
            then services are only planned here. They are planned now because no write of this writer is pending: beside
            one, a clean could delete files that it reads, and a compaction of a version 6 table could not begin.
    """
    failures: list[str] = []
    failures += _attempt("choice of services", lambda: _run_due_services(client, options, beside, failures))
    if any(key in options or key in client.options for key in _SYNC_FLAGS):
        failures += _attempt("sync to a catalog", lambda: _sync_if_asked(client, options))
    return tuple(failures)


def _sync_if_asked(client: TableClient, options: Mapping[str, object]) -> None:
    settings = _settings_of(client, options, client.seen().config)
    if not any(settings.flag(key) for key in _SYNC_FLAGS):
        return
    from lakefmt._core.catalogs.sync import sync_to_catalogs  # few tables have an entry in a catalog

    sync_to_catalogs(client, settings)


def _run_due_services(
    client: TableClient,
    options: Mapping[str, object],
    beside: Callable[[], ServicesBeside] | None,
    failures: list[str],
) -> None:
    # The commit has just read the properties and the timeline, so they are not read again.
    state = client.seen()
    config, settings = state.config, _settings_of(client, options, state.config)
    if settings.flag("lakefmt.write.only"):
        return
    services = beside() if beside is not None and settings.flag(BACKGROUND) else None
    failures += () if services is None else services.take_failures()
    plans_only = services is not None
    if config.table_type is TableType.MERGE_ON_READ:
        failures += _attempt("compaction", lambda: _compact_if_due(client, options, settings, plans_only=plans_only))
        if settings.flag("hoodie.log.compaction.inline"):
            failures += _attempt(
                "log compaction", lambda: _log_compact_if_due(client, options, config, plans_only=plans_only)
            )
        state = client.seen()
    if _wants_clustering(settings, plans_only=plans_only):
        failures += _attempt("clustering", lambda: _cluster_if_due(client, options, settings, plans_only=plans_only))
        state = client.seen()
    failures += _attempt("clean", lambda: _clean_if_due(client.at(state), options, settings, plans_only=plans_only))
    if services is None:
        failures += _attempt("archive step", lambda: _archive_if_due(client.at(state), options, settings))
    else:
        services.wake(options)


def run_waiting_services(client: TableClient, options: Mapping[str, object]) -> tuple[str, ...]:
    """Execute pending compactions, log compactions and cleans, archive as the settings ask; return what failed.

    Args:
        client: the table.
        options: settings of the call that committed.
    """
    failures: list[str] = []
    failures += _attempt("choice of services", lambda: _run_pending_services(client, options, failures))
    return tuple(failures)


def _run_pending_services(client: TableClient, options: Mapping[str, object], failures: list[str]) -> None:
    config = client.seen().config
    settings = _settings_of(client, options, config)
    if config.table_type is TableType.MERGE_ON_READ:
        for time in _pending_times(client, Action.COMPACTION):
            failures += _attempt("compaction", partial(_run_pending_compaction, client, options, time))
        # In version 6 a log compaction is executed in the call of the commit: one that is pending here is being executed.
        for time in _pending_times(client, Action.LOG_COMPACTION) if config.version.layout > 1 else ():
            failures += _attempt("log compaction", partial(_run_pending_log_compaction, client, options, time))
    if settings.flag("hoodie.clustering.async.enabled"):
        from lakefmt._core.compaction.cluster_run import run_waiting_clusterings

        failures += _attempt("clustering", lambda: run_waiting_clusterings(client, options))
    if _pending_times(client, Action.CLEAN):
        from lakefmt._core.compaction.clean_run import run_waiting_cleans

        failures += _attempt("clean", lambda: run_waiting_cleans(client, options))
    failures += _attempt("archive step", lambda: _archive_if_due(client.at(client.seen()), options, settings))


def _settings_of(client: TableClient, options: Mapping[str, object], config: TableConfig) -> Settings:
    return resolve_settings({**client.options, **options}, None, config.properties)


def _compact_if_due(
    client: TableClient, options: Mapping[str, object], settings: Settings, *, plans_only: bool
) -> None:
    """Compact, or request a compaction, when the trigger makes it due; pending ones are executed first."""
    inline, planned = settings.flag("hoodie.compact.inline"), settings.flag("hoodie.compact.schedule.inline")
    if not inline and not plans_only and not planned:
        return
    from lakefmt._core.compaction.compact_run import run_compaction  # by default no commit compacts

    if inline:
        run_compaction(client, options, force=False)
    elif not _pending_times(client, Action.COMPACTION):
        run_compaction(client, options, schedule=True, force=False)


def _log_compact_if_due(
    client: TableClient, options: Mapping[str, object], config: TableConfig, *, plans_only: bool
) -> None:
    """Run or request a log compaction when there are enough deltacommits."""
    from lakefmt._core.compaction.log_compact import run_log_compaction

    if not plans_only or config.version.layout == 1:
        # In version 6 log versions order logs: every later write would come before the result of a plan that waits.
        run_log_compaction(client, options, force=False)
    elif not _pending_times(client, Action.LOG_COMPACTION):
        run_log_compaction(client, options, schedule=True, force=False)


def _wants_clustering(settings: Settings, *, plans_only: bool) -> bool:
    values = settings.values
    if values["hoodie.clustering.inline"] or values["hoodie.clustering.schedule.inline"]:
        return True
    return plans_only and bool(values["hoodie.clustering.async.enabled"])


def _cluster_if_due(
    client: TableClient, options: Mapping[str, object], settings: Settings, *, plans_only: bool
) -> None:
    """Cluster, or request a clustering, when enough commits came; pending ones are executed first."""
    # Imported here: most commits cluster nothing.
    from lakefmt._core.compaction.cluster_run import has_pending_clustering, run_clustering

    if settings.flag("hoodie.clustering.inline") and not plans_only:
        run_clustering(client, options, force=False)
    elif not has_pending_clustering(client):
        run_clustering(client, options, schedule=True, force=False)


def _pending_times(client: TableClient, action: Action) -> list[InstantTime]:
    pending = client.timeline_store(client.load_config()).load().pending
    return [instant.time for instant in pending if instant.action is action]


def _run_pending_compaction(client: TableClient, options: Mapping[str, object], time: InstantTime) -> None:
    from lakefmt._core.compaction.compact_run import run_compaction

    try:
        run_compaction(client, options, run=time)
    except InstantNotFound:
        return  # another process has executed or withdrawn it


def _run_pending_log_compaction(client: TableClient, options: Mapping[str, object], time: InstantTime) -> None:
    from lakefmt._core.compaction.log_compact import run_log_compaction

    try:
        run_log_compaction(client, options, run=time)
    except (CommitConflict, InstantNotFound):
        return  # a compaction was planned after it, or another process has executed or withdrawn it


def _clean_if_due(table_at: TableAt, options: Mapping[str, object], settings: Settings, *, plans_only: bool) -> None:
    if not settings.flag("hoodie.clean.automatic") or (plans_only and _pending_times(table_at.client, Action.CLEAN)):
        return
    if commits_since_clean(table_at.timeline) < settings.integer("hoodie.clean.trigger.max.commits"):
        return
    # Most commits leave nothing to delete: then no lock is taken and no directory is listed.
    if is_clean_due(table_at, settings):
        from lakefmt._core.compaction.clean_run import run_clean

        run_clean(table_at.client, options, schedule=plans_only)


def _archive_if_due(table_at: TableAt, options: Mapping[str, object], settings: Settings) -> None:
    if not settings.values["hoodie.archive.automatic"]:
        return
    commits = len(table_at.timeline.commits)
    if commits <= settings.integer("hoodie.keep.max.commits"):
        return
    from lakefmt._core.compaction.archive import archive_limits, run_archive  # few commits archive

    if commits > archive_limits(settings)[1]:
        run_archive(table_at.client, options, force=False)


def _attempt(name: str, run: Callable[[], object]) -> list[str]:
    """Run a service; return a sentence when it fails, also by a defect: who repeats a write that is complete writes it twice."""
    outcome = run_foreign(run)
    if not isinstance(outcome, Raised):
        return []
    error = outcome.error
    words = str(error) if isinstance(error, LakefmtError) else f"{type(error).__name__}: {error}"
    return [f"the {name} after the commit failed: {words}"]


# ---------------------------------------------------------------------------------------------------- in the background


class BackgroundServices:
    """Runs the table services of one table handle in the background; failures are kept until they are reported.

    A context manager: its end waits for what is due and raises failures that were not reported.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> t = lakefmt.create_table("memory://doc-background", schema=pa.schema([("id", pa.string())]),
        ...     record_key="id", table_type="mor", options={"hoodie.compact.inline.max.delta.commits": 2})
        >>> with t.services():
        ...     for _ in range(3): _ = t.upsert(pa.table({"id": ["a"]}))
        >>> "commit" in {instant.action.value for instant in t.timeline.timeline.commits}
        True
    """

    def __init__(self, client: TableClient) -> None:
        self._client = client
        self._options = dict(client.options)
        client.options = {**client.options, BACKGROUND: True}
        self._guard = Lock()  # protects the attributes below; held for moments
        self._due: dict[str, object] | None = None
        self._stop: Callable[[], None] | None = None
        self._failures: list[str] = []
        self._closed = False
        self._busy = Lock()  # held while services run

    @property
    def is_closed(self) -> bool:
        """Whether the services were closed."""
        return self._closed

    def wake(self, options: Mapping[str, object] | None = None) -> None:
        """Run what is due soon; every commit of the handle calls this.

        Args:
            options: settings of the call that committed.

        Raises:
            StateError: the services were closed.
        """
        with self._guard:
            if self._closed:
                raise StateError("these services are closed: ask the table for new ones")
            self._due = {**(self._due or {}), **(options or {})}
            if self._stop is None:
                _services_at_work.add(self)
                self._stop = self._client.time_source.schedule_periodic(
                    _PAUSE_SECONDS, self._beside, "lakefmt-services"
                )

    def wait(self) -> None:
        """Return when nothing is due and nothing runs; what is due may run in this call.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-services-wait", data=pa.table({"id": ["a"]}), record_key="id")
            >>> with t.services() as services:
            ...     _ = t.upsert(pa.table({"id": ["a"]}))
            ...     services.wait()
            ...     services.take_failures()
            ()
        """
        while not self._client.time_source.acquire_lock(self._busy, _BUSY_WAIT_SECONDS):
            pass  # a compaction may take long; it raises when it cannot take the table lock
        try:
            self._run_due()
        finally:
            self._busy.release()

    def take_failures(self) -> tuple[str, ...]:
        """Return what failed since the last call, one sentence each; :meth:`wait` has an example."""
        with self._guard:
            failures, self._failures = tuple(self._failures), []
        return failures

    def close(self) -> None:
        """Wait for what is due and end; later commits run their services in their own call.

        Raises:
            ServicesFailed: services failed, and no commit has reported it; the commits stand.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-services-close", data=pa.table({"id": ["a"]}), record_key="id")
            >>> services = t.services()
            >>> _ = t.upsert(pa.table({"id": ["a"]}))
            >>> services.close()
            >>> services.is_closed
            True
        """
        with self._guard:
            was_closed, self._closed = self._closed, True
        self.wait()
        if not was_closed:
            self._client.options = self._options
        failures = self.take_failures()
        if failures:
            raise ServicesFailed("; ".join(failures))

    def __enter__(self) -> BackgroundServices:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ServicesFailed as failed:
            if error is None:
                raise
            error.add_note(f"besides, {failed}")

    # ------------------------------------------------------------------------------------------------------- the thread

    def _beside(self) -> None:
        if not self._busy.acquire(blocking=False):
            return  # the round before still runs, and sees what has become due
        try:
            self._run_due()
        except BaseException as error:  # noqa: BLE001 - nothing catches what a thread raises: reported like the others
            self._tell((f"the background services ended: {type(error).__name__}: {error}",))
        finally:
            self._busy.release()

    def _run_due(self) -> None:
        while (options := self._next()) is not None:
            outcome = run_foreign(partial(run_waiting_services, self._client, options))
            if isinstance(outcome, Raised):
                outcome = (f"a background service failed: {type(outcome.error).__name__}: {outcome.error}",)
            self._tell(outcome)

    def _next(self) -> dict[str, object] | None:
        """Take what is due; when nothing is due, the thread ends."""
        with self._guard:
            options, self._due = self._due, None
            if options is None and self._stop is not None:
                self._stop()
                self._stop = None
        return options

    def _tell(self, failures: tuple[str, ...]) -> None:
        for failure in failures:
            _log.warning("%s: %s", self._client.store.url, failure)
        with self._guard:
            self._failures += failures

    def hold(self, seconds: float) -> bool:
        """Let no service begin any more.

        Args:
            seconds: how long to wait for one that runs.

        Returns:
            False when one still runs after that.
        """
        return self._busy.acquire(timeout=max(0.0, seconds))


#: Background services that ran something.
_services_at_work: WeakSet[BackgroundServices] = WeakSet()


def hold_all(seconds: float = _ENDING_SECONDS) -> bool:
    """Let no service begin any more, and wait for running ones; False when one still runs after `seconds`.

    An interpreter that ends stops a daemon thread where it returns from Arrow, and that aborts the process in C++. The table
    would be safe, as after any death of a process.
    """
    end = time.monotonic() + seconds
    outcomes = [
        services.hold(end - time.monotonic()) for services in list(_services_at_work)
    ]  # hold all of them, also after one that is slow
    return all(outcomes)


atexit.register(hold_all)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_services_at_work.clear)  # the child has no threads of its parent
