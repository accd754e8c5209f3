"""The services that follow a commit (effects). A service that fails is reported; the commit stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakefmt.compaction.archive_run import run_archive
from lakefmt.compaction.clean_run import run_clean
from lakefmt.compaction.compact_run import run_compaction
from lakefmt.compaction.log_compact_run import run_log_compaction
from lakefmt.config import Settings, resolve_settings
from lakefmt.errors import LakefmtError
from lakefmt.filegroups.access import TableAccess
from lakefmt.timeline.instant import Action
from lakefmt.timeline.view import Timeline
from lakefmt.values import TableType

__all__ = ["run_services"]


def run_services(access: TableAccess, options: Mapping[str, object]) -> tuple[str, ...]:
    """Run what the settings ask for after a commit; return a sentence for each service that failed.

    Whether one is due is told by the timeline as the commit left it, so that a small commit pays nothing for those that are
    not; a service that runs looks again, under the lock.

    Args:
        access: the table.
        options: settings of the call that committed.
    """
    state = access.seen()
    config = state.config
    settings = resolve_settings({**access.options, **options}, None, config.properties)
    failures = []
    if config.table_type is TableType.MERGE_ON_READ:
        failures += _compact(access, options, settings)
        if settings.flag("hoodie.log.compaction.inline"):
            failures += _attempt("log compaction", lambda: run_log_compaction(access, options, force=False))
        state = access.seen()
    after = settings.integer("hoodie.clean.trigger.max.commits")
    if settings.flag("hoodie.clean.automatic") and _commits_since_clean(state.timeline) >= after:
        failures += _attempt("clean", lambda: run_clean(access, options))
    most = settings.integer("hoodie.keep.max.commits")
    if settings.flag("hoodie.archive.automatic") and len(state.timeline.commits) > most:
        failures += _attempt("archive step", lambda: run_archive(access, options, force=False))
    return tuple(failures)


def _compact(access: TableAccess, options: Mapping[str, object], settings: Settings) -> list[str]:
    """Compact, or schedule a compaction, when the trigger says so; one that is pending is carried out first."""
    if settings.flag("hoodie.compact.inline"):
        return _attempt("compaction", lambda: run_compaction(access, options, force=False))
    if settings.flag("hoodie.compact.schedule.inline"):
        pending = access.timeline_store(access.load_config()).load().pending
        if not any(instant.action is Action.COMPACTION for instant in pending):
            return _attempt("compaction's plan", lambda: run_compaction(access, options, schedule=True, force=False))
    return []


def _attempt(name: str, run: Callable[[], object]) -> list[str]:
    try:
        run()
    except LakefmtError as error:
        return [f"the {name} after the commit failed: {error}"]
    return []


def _commits_since_clean(timeline: Timeline) -> int:
    last = max((i.time for i in timeline.completed if i.action is Action.CLEAN), default="")
    return sum(i.time > last for i in timeline.commits)
