"""Table services after a commit. A service that fails is reported, whatever the exception; the commit stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from lakefmt.compaction.clean.run import is_clean_due, run_clean, run_waiting_cleans
from lakefmt.config.settings import Settings, resolve_settings
from lakefmt.config.table_config import TableConfig
from lakefmt.errors import CommitConflict, InstantNotFound, LakefmtError
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.instant import Action
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime, TableType

__all__ = ["BACKGROUND", "ServicesBeside", "run_services", "run_waiting_services"]

#: The setting by which commits only plan services, and a thread executes them.
BACKGROUND: Final = "lakefmt.write.services.background"


class ServicesBeside(Protocol):
    """Executes table services beside the writes of a handle (:class:`lakefmt.compaction.background.BackgroundServices`)."""

    def take_failures(self) -> tuple[str, ...]:
        """Return what failed since the last call."""
        ...

    def wake(self, options: Mapping[str, object] | None = None) -> None:
        """Run what is due soon, with the settings of the call that committed."""
        ...


def run_services(
    client: TableClient, options: Mapping[str, object], *, beside: Callable[[], ServicesBeside] | None = None
) -> tuple[str, ...]:
    """Run the table services that the settings ask for after a commit; return one sentence for each that failed.

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
    failures += _attempt("choice of services", lambda: _run_due(client, options, beside, failures))
    return tuple(failures)


def _run_due(
    client: TableClient,
    options: Mapping[str, object],
    beside: Callable[[], ServicesBeside] | None,
    failures: list[str],
) -> None:
    # The commit has just read the properties and the timeline, so they are not read again.
    seen = client.seen()
    config, settings = seen.config, _settings_of(client, options, seen.config)
    if settings.flag("lakefmt.write.only"):
        return
    services = beside() if beside is not None and settings.flag(BACKGROUND) else None
    failures += () if services is None else services.take_failures()
    plans_only = services is not None
    if config.table_type is TableType.MERGE_ON_READ:
        failures += _attempt("compaction", lambda: _compact(client, options, settings, plans_only=plans_only))
        if settings.flag("hoodie.log.compaction.inline"):
            failures += _attempt("log compaction", lambda: _fold(client, options, config, plans_only=plans_only))
        seen = client.seen()
    if _wants_clustering(settings, plans_only=plans_only):
        failures += _attempt("clustering", lambda: _cluster(client, options, settings, plans_only=plans_only))
        seen = client.seen()
    failures += _attempt("clean", lambda: _clean(client, options, settings, seen, plans_only=plans_only))
    if services is None:
        failures += _attempt("archive step", lambda: _archive(client, options, settings, seen))
    else:
        services.wake(options)


def run_waiting_services(client: TableClient, options: Mapping[str, object]) -> tuple[str, ...]:
    """Execute pending compactions, log compactions and cleans, archive as the settings ask; return what failed.

    Args:
        client: the table.
        options: settings of the call that committed.
    """
    failures: list[str] = []
    failures += _attempt("choice of services", lambda: _run_waiting(client, options, failures))
    return tuple(failures)


def _run_waiting(client: TableClient, options: Mapping[str, object], failures: list[str]) -> None:
    config = client.seen().config
    settings = _settings_of(client, options, config)
    if config.table_type is TableType.MERGE_ON_READ:
        for time in _waiting(client, Action.COMPACTION):
            failures += _attempt("compaction", partial(_run_one, client, options, time))
        # In version 6 a log compaction is executed in the call of the commit: one that is pending here is being executed.
        for time in _waiting(client, Action.LOG_COMPACTION) if config.version.layout > 1 else ():
            failures += _attempt("log compaction", partial(_fold_one, client, options, time))
    if settings.flag("hoodie.clustering.async.enabled"):
        failures += _attempt("clustering", partial(_run_clusterings, client, options))
    if _waiting(client, Action.CLEAN):
        failures += _attempt("clean", lambda: run_waiting_cleans(client, options))
    failures += _attempt("archive step", lambda: _archive(client, options, settings, client.seen()))


def _settings_of(client: TableClient, options: Mapping[str, object], config: TableConfig) -> Settings:
    return resolve_settings({**client.options, **options}, None, config.properties)


def _compact(client: TableClient, options: Mapping[str, object], settings: Settings, *, plans_only: bool) -> None:
    """Compact, or request a compaction, when the trigger asks for it; pending ones are executed first."""
    inline, planned = settings.flag("hoodie.compact.inline"), settings.flag("hoodie.compact.schedule.inline")
    if not inline and not plans_only and not planned:
        return
    from lakefmt.compaction.compact.run import run_compaction  # by default no commit compacts

    if inline:
        run_compaction(client, options, force=False)
    elif not _waiting(client, Action.COMPACTION):
        run_compaction(client, options, schedule=True, force=False)


def _fold(client: TableClient, options: Mapping[str, object], config: TableConfig, *, plans_only: bool) -> None:
    """Run or request a log compaction when there are enough deltacommits."""
    from lakefmt.compaction.log_compact.run import run_log_compaction

    if not plans_only or config.version.layout == 1:
        # In version 6 log versions order logs: every later write would come before the result of a plan that waits.
        run_log_compaction(client, options, force=False)
    elif not _waiting(client, Action.LOG_COMPACTION):
        run_log_compaction(client, options, schedule=True, force=False)


def _wants_clustering(settings: Settings, *, plans_only: bool) -> bool:
    asked = settings.values
    if asked["hoodie.clustering.inline"] or asked["hoodie.clustering.schedule.inline"]:
        return True
    return plans_only and bool(asked["hoodie.clustering.async.enabled"])


def _cluster(client: TableClient, options: Mapping[str, object], settings: Settings, *, plans_only: bool) -> None:
    """Cluster, or request a clustering, when enough commits came; pending ones are executed first."""
    # Imported here: most commits cluster nothing.
    from lakefmt.compaction.cluster.run import has_pending_clustering, run_clustering

    if settings.flag("hoodie.clustering.inline") and not plans_only:
        run_clustering(client, options, force=False)
    elif not has_pending_clustering(client):
        run_clustering(client, options, schedule=True, force=False)


def _run_clusterings(client: TableClient, options: Mapping[str, object]) -> None:
    # Imported here: most commits cluster nothing.
    from lakefmt.compaction.cluster.run import run_waiting_clusterings

    run_waiting_clusterings(client, options)


def _waiting(client: TableClient, action: Action) -> list[InstantTime]:
    pending = client.timeline_store(client.load_config()).load().pending
    return [instant.time for instant in pending if instant.action is action]


def _run_one(client: TableClient, options: Mapping[str, object], time: InstantTime) -> None:
    from lakefmt.compaction.compact.run import run_compaction

    try:
        run_compaction(client, options, run=time)
    except InstantNotFound:
        return  # another process has executed or withdrawn it


def _fold_one(client: TableClient, options: Mapping[str, object], time: InstantTime) -> None:
    from lakefmt.compaction.log_compact.run import run_log_compaction

    try:
        run_log_compaction(client, options, run=time)
    except (CommitConflict, InstantNotFound):
        return  # a compaction was planned after it, or another process has executed or withdrawn it


def _clean(
    client: TableClient, options: Mapping[str, object], settings: Settings, seen: TableState, *, plans_only: bool
) -> None:
    if not settings.flag("hoodie.clean.automatic") or (plans_only and _waiting(client, Action.CLEAN)):
        return
    if _commits_since_clean(seen.timeline) < settings.integer("hoodie.clean.trigger.max.commits"):
        return
    # Most commits leave nothing to delete: then no lock is taken and no directory is listed.
    if is_clean_due(client, settings, seen):
        run_clean(client, options, schedule=plans_only)


def _archive(client: TableClient, options: Mapping[str, object], settings: Settings, seen: TableState) -> None:
    if not settings.values["hoodie.archive.automatic"]:
        return
    commits = len(seen.timeline.commits)
    if commits <= settings.integer("hoodie.keep.max.commits"):
        return
    from lakefmt.compaction.archive import archive_limits, run_archive  # few commits archive

    if commits > archive_limits(settings)[1]:
        run_archive(client, options, force=False)


def _attempt(name: str, run: Callable[[], object]) -> list[str]:
    """Run a service; return a sentence when it fails, also by a defect: who repeats a write that is complete writes it twice."""
    try:
        run()
    except LakefmtError as error:
        return [f"the {name} after the commit failed: {error}"]
    except Exception as error:  # noqa: BLE001 - whatever a service does, the commit stands
        return [f"the {name} after the commit failed: {type(error).__name__}: {error}"]
    return []


def _commits_since_clean(timeline: Timeline) -> int:
    last = max((i.time for i in timeline.completed_of(Action.CLEAN)), default="")
    return sum(i.time > last for i in timeline.commits)
