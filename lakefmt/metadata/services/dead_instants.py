"""What dead processes left in the metadata table: found and removed before anything is recorded (under the table lock)."""

from __future__ import annotations

from collections.abc import Callable

from lakefmt.metadata.manage import instants_being_built
from lakefmt.metadata.services.compaction import compact_metadata_table, has_logs_on
from lakefmt.metadata.timeline import MetadataTimeline
from lakefmt.metadata.writer import MetadataTableWriter
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.metadata_codec import BodyKind, decode_body
from lakefmt.timeline.observer import PendingCompletion
from lakefmt.timeline.timeline import Timeline

__all__ = ["without_dead_instants"]

_SERVICES = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN})


def without_dead_instants(
    writer: MetadataTableWriter,
    timeline: MetadataTimeline,
    pending: PendingCompletion,
    read_body: Callable[[Instant], bytes],
) -> MetadataTimeline:
    """End what a dead process left of services and deltacommits; return the timeline afterwards.

    The metadata table is written under the table lock only: under the lock nothing that is pending is still at work.

    Parameters:
        writer: writes the metadata table.
        timeline: the metadata table's.
        pending: the instant that is about to be recorded.
        read_body: reads a file of the data table's timeline.
    """
    # What fills a partition that is being built is not removed: its file groups are made with that instant.
    waiting = pending.timeline.pending_times | instants_being_built(writer)
    dead = [
        instant
        for instant in timeline.instants
        if instant.state is not State.COMPLETED and (instant.action in _SERVICES or instant.time not in waiting)
    ]
    for instant in dead:
        if instant.action is Action.CLEAN:
            writer.timeline_store.remove_pending([instant])  # what it had to delete is found again
        elif instant.action is Action.COMPACTION and has_logs_on(writer, instant.time):
            compact_metadata_table(writer, timeline, instant.time, pending)
        elif instant.action in (Action.COMPACTION, Action.LOG_COMPACTION, Action.DELTA_COMMIT):
            writer.remove(instant.time, timeline)
    undone = _undone_deltacommits(timeline, pending.timeline, read_body)
    for time in undone:
        writer.remove(time, timeline)
    return writer.timeline_store.load() if dead or undone else timeline


def _undone_deltacommits(
    timeline: MetadataTimeline, data_timeline: Timeline, read_body: Callable[[Instant], bytes]
) -> list[str]:
    """Return the completed deltacommits whose instants of the data table were rolled back before.

    A writer that was taken for dead completes one when it wakes after its last proof of the lock.
    """
    present = {instant.time for instant in data_timeline}
    begun = data_timeline.first_active or ""
    strays = {
        deltacommit.time
        for deltacommit in timeline.completed(Action.DELTA_COMMIT)
        if deltacommit.time not in present and deltacommit.time > begun and not deltacommit.is_initialisation
    }
    undone: set[str] = set()
    for rollback in data_timeline.completed_of(Action.ROLLBACK) if strays else ():
        if rollback.time > min(strays):
            record = decode_body(BodyKind.ROLLBACK_METADATA, read_body(rollback), what=rollback.file_name)
            targets = record["commitsRollback"]
            undone |= strays & {str(time) for time in (targets if isinstance(targets, list) else ())}
    return sorted(undone)
