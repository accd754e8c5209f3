"""Services of the metadata table, run before an instant is recorded in it (effects, under the table lock).

A compaction writes a base file for every file group of every partition. Its instant lies below that of the pending
instant, which can then still be rolled back by any engine (docs/format.md, Metadata table).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lakefmt.config.settings import Settings
from lakefmt.errors import CorruptFile
from lakefmt.metadata.manage import inflight_partitions
from lakefmt.metadata.reading.written_groups import KnownCommits
from lakefmt.metadata.services.archive import archive_metadata_timeline, metadata_archive_rules
from lakefmt.metadata.services.clean import clean_metadata_table
from lakefmt.metadata.services.compaction import compact_metadata_table, compaction_instant
from lakefmt.metadata.services.dead_instants import without_dead_instants
from lakefmt.metadata.timeline import MetadataTimeline
from lakefmt.metadata.writer import MetadataTableWriter
from lakefmt.storage.redaction import printable_url
from lakefmt.timeline.instant import Instant
from lakefmt.timeline.observer import PendingCompletion

__all__ = ["run_metadata_services"]

_log = logging.getLogger("lakefmt.metadata")

#: As many commits of the metadata table stay readable at least.
_RETAINED = 20


def run_metadata_services(
    writer: MetadataTableWriter,
    pending: PendingCompletion,
    settings: Settings,
    read_body: Callable[[Instant], bytes],
    loaded: MetadataTimeline,
    commits: KnownCommits | None = None,
) -> MetadataTimeline:
    """Remove what dead processes left, then run the services that are due.

    Returns the metadata table's timeline after them, with what was archived.

    Parameters:
        writer: writes the metadata table.
        pending: the instant that is about to be recorded.
        settings: of the call.
        read_body: reads a file of the data table's timeline.
        loaded: the metadata table's timeline.
        commits: of the metadata table that this handle knows.
    """
    timeline = without_dead_instants(writer, loaded, pending, read_body)
    after = settings.integer("hoodie.metadata.compact.max.delta.commits")
    building = bool(inflight_partitions(writer.config))
    instant = compaction_instant(timeline, pending, after, writer.config.version, is_building=building)
    retained = max(_RETAINED, 2 * after)
    try:
        if instant is not None:
            compact_metadata_table(writer, timeline, instant, pending, commits)
            clean_metadata_table(writer, pending, retained)
            timeline = writer.timeline_store.load()
        elif settings.flag("hoodie.metadata.log.compaction.enable") and not building:
            timeline = _log_compacted(writer, timeline, pending, settings, commits)
    except CorruptFile as error:
        # What is merged could not be seen to lack anything any more; the data need no metadata table.
        _log.warning("%s: the metadata table is not compacted: %s", printable_url(writer.store.url), error)
    archive_metadata_timeline(writer, timeline, pending, metadata_archive_rules(settings, retained))
    return timeline


def _log_compacted(
    writer: MetadataTableWriter,
    timeline: MetadataTimeline,
    pending: PendingCompletion,
    settings: Settings,
    commits: KnownCommits | None,
) -> MetadataTimeline:
    # Imported here: few tables ask for it.
    from lakefmt.metadata.services.log_compaction import log_compact_metadata_table, log_compaction_instant

    threshold = settings.integer("hoodie.metadata.log.compaction.blocks.threshold")
    instant = log_compaction_instant(timeline, pending, threshold, writer.config.version)
    if instant is None or not log_compact_metadata_table(writer, timeline, instant, threshold, pending, commits):
        return timeline
    return writer.timeline_store.load()
