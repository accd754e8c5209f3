"""Services of the metadata table, run before an instant is recorded in it (effects, under the table lock).

A compaction writes a base file for every file group of every partition. Its instant lies below that of the pending
instant, which can then still be rolled back by any engine (docs/format.md, Metadata table).
"""

from __future__ import annotations

from lakefmt.config.settings import Settings
from lakefmt.metadata.services.archive import archive_metadata_timeline, metadata_archive_rules
from lakefmt.metadata.services.clean import clean_metadata_table
from lakefmt.metadata.services.compaction import compact_metadata_table, compaction_instant
from lakefmt.metadata.timeline import MetadataTimeline
from lakefmt.metadata.writer import MetadataTableWriter
from lakefmt.timeline.instant import Action, State
from lakefmt.timeline.observer import PendingCompletion

__all__ = ["run_metadata_services"]

#: As many commits of the metadata table stay readable at least.
_RETAINED = 20


def run_metadata_services(writer: MetadataTableWriter, pending: PendingCompletion, settings: Settings) -> None:
    """Run the services that are due.

    Parameters:
        writer: writes the metadata table.
        pending: the instant that is about to be recorded.
        settings: of the call.
    """
    timeline = _without_dead_services(writer, writer.timeline_store.load(), pending)
    after = settings.integer("hoodie.metadata.compact.max.delta.commits")
    instant = compaction_instant(timeline, pending, after, writer.config.version)
    retained = max(_RETAINED, 2 * after)
    if instant is not None:
        compact_metadata_table(writer, timeline, instant, pending)
        clean_metadata_table(writer, pending, retained)
        timeline = writer.timeline_store.load()
    archive_metadata_timeline(writer, timeline, pending.timeline, metadata_archive_rules(settings, retained))


def _without_dead_services(
    writer: MetadataTableWriter, timeline: MetadataTimeline, pending: PendingCompletion
) -> MetadataTimeline:
    """End compactions and cleans whose process died; return the timeline afterwards."""
    dead = [
        one
        for one in timeline.instants
        if one.action in (Action.COMPACTION, Action.CLEAN) and one.state is not State.COMPLETED
    ]
    for one in dead:
        if one.action is Action.COMPACTION and writer.config.version.layout == 1:
            # Logs may be named by it already: they lie on the base files that it lacks.
            compact_metadata_table(writer, timeline, one.time, pending)
        elif one.action is Action.COMPACTION:
            writer.remove(one.time, timeline)
        else:
            writer.timeline_store.remove([one])  # what it had to delete is found again
    return writer.timeline_store.load() if dead else timeline
