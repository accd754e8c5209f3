"""The services that follow a commit (effects). A service that fails is reported; the commit stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lakefmt.compaction.archive import run_archive
from lakefmt.compaction.clean.run import run_clean, run_waiting_cleans
from lakefmt.compaction.compact.run import run_compaction
from lakefmt.compaction.log_compact.run import run_log_compaction
from lakefmt.config.settings import Settings, resolve_settings
from lakefmt.config.table_config import TableConfig
from lakefmt.errors import CommitConflict, InstantNotFound, LakefmtError
from lakefmt.filegroups.table_client import TableClient
from lakefmt.timeline.instant import Action
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime, TableType

__all__ = ["run_services", "run_waiting_services"]


def run_services(
    client: TableClient, options: Mapping[str, object], *, wake: Callable[[Mapping[str, object]], None] | None = None
) -> tuple[str, ...]:
    """Run what the settings ask for after a commit; return a sentence for each service that failed.

    Whether one is due is told by the timeline as the commit left it, so that a small commit pays nothing for those that are
    not; a service that runs looks again, under the lock.

    Args:
        client: the table.
        options: settings of the call that committed.
        wake: has :func:`run_waiting_services` run in the background. Here everything is only planned, because now no write
            of this writer is pending: beside one a clean could take away what it reads, and a compaction of a version 6
            table could not begin.
    """
    config, settings = _settings(client, options)
    failures = []
    if config.table_type is TableType.MERGE_ON_READ:
        failures += _compact(client, options, settings, plans_only=wake is not None)
        if settings.flag("hoodie.log.compaction.inline"):
            failures += _fold(client, options, config, plans_only=wake is not None)
    failures += _clean(client, options, settings, plans_only=wake is not None)
    if wake is None:
        failures += _archive(client, options, settings)
    else:
        wake(options)
    return tuple(failures)


def run_waiting_services(client: TableClient, options: Mapping[str, object]) -> tuple[str, ...]:
    """Carry out compactions, log compactions and cleans that wait, archive as the settings ask; return what failed.

    Args:
        client: the table.
        options: settings of the call that committed.
    """
    config, settings = _settings(client, options)
    failures: list[str] = []
    if config.table_type is TableType.MERGE_ON_READ:
        for time in _waiting(client, Action.COMPACTION):
            failures += _attempt("compaction", partial(_run_one, client, options, time))
        # In version 6 they are carried out in the call, where one at work would be met here.
        for time in _waiting(client, Action.LOG_COMPACTION) if config.version.layout > 1 else ():
            failures += _attempt("log compaction", partial(_fold_one, client, options, time))
    if _waiting(client, Action.CLEAN):
        failures += _attempt("clean", lambda: run_waiting_cleans(client, options))
    return (*failures, *_archive(client, options, settings))


def _settings(client: TableClient, options: Mapping[str, object]) -> tuple[TableConfig, Settings]:
    config = client.seen().config
    return config, resolve_settings({**client.options, **options}, None, config.properties)


def _compact(client: TableClient, options: Mapping[str, object], settings: Settings, *, plans_only: bool) -> list[str]:
    """Compact, or schedule a compaction, when the trigger says so; one that is pending is carried out first."""
    if settings.flag("hoodie.compact.inline"):
        return _attempt("compaction", lambda: run_compaction(client, options, force=False))
    if (plans_only or settings.flag("hoodie.compact.schedule.inline")) and not _waiting(client, Action.COMPACTION):
        return _attempt("compaction's plan", lambda: run_compaction(client, options, schedule=True, force=False))
    return []


def _fold(client: TableClient, options: Mapping[str, object], config: TableConfig, *, plans_only: bool) -> list[str]:
    """Fold logs, or only schedule it, when enough deltacommits came."""
    if not plans_only or config.version.layout == 1:
        # In version 6 numbers order logs: the next write would overtake a plan that waits, and every one after it.
        return _attempt("log compaction", lambda: run_log_compaction(client, options, force=False))
    if _waiting(client, Action.LOG_COMPACTION):
        return []
    return _attempt("log compaction's plan", lambda: run_log_compaction(client, options, schedule=True, force=False))


def _waiting(client: TableClient, action: Action) -> list[InstantTime]:
    pending = client.timeline_store(client.load_config()).load().pending
    return [instant.time for instant in pending if instant.action is action]


def _run_one(client: TableClient, options: Mapping[str, object], time: InstantTime) -> None:
    try:
        run_compaction(client, options, run=time)
    except InstantNotFound:
        return  # somebody else has carried it out or withdrawn it meanwhile


def _fold_one(client: TableClient, options: Mapping[str, object], time: InstantTime) -> None:
    try:
        run_log_compaction(client, options, run=time)
    except (CommitConflict, InstantNotFound):
        return  # a compaction has overtaken it, or somebody else has carried it out or withdrawn it meanwhile


def _clean(client: TableClient, options: Mapping[str, object], settings: Settings, *, plans_only: bool) -> list[str]:
    if not settings.flag("hoodie.clean.automatic") or (plans_only and _waiting(client, Action.CLEAN)):
        return []
    if _commits_since_clean(client.seen().timeline) < settings.integer("hoodie.clean.trigger.max.commits"):
        return []
    return _attempt("clean", lambda: run_clean(client, options, schedule=plans_only))


def _archive(client: TableClient, options: Mapping[str, object], settings: Settings) -> list[str]:
    if not settings.flag("hoodie.archive.automatic"):
        return []
    if len(client.seen().timeline.commits) <= settings.integer("hoodie.keep.max.commits"):
        return []
    return _attempt("archive step", lambda: run_archive(client, options, force=False))


def _attempt(name: str, run: Callable[[], object]) -> list[str]:
    try:
        run()
    except LakefmtError as error:
        return [f"the {name} after the commit failed: {error}"]
    return []


def _commits_since_clean(timeline: Timeline) -> int:
    last = max((i.time for i in timeline.completed_of(Action.CLEAN)), default="")
    return sum(i.time > last for i in timeline.commits)
