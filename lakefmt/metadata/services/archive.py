"""Archive of the metadata table's timeline: old instants leave it after every commit that is due (under the table lock).

What no base file holds yet stays: readers look for the instants of log blocks on the active timeline. What is not older
than the first commit of the data table stays, too (docs/format.md, Metadata table).
"""

from __future__ import annotations

from lakefmt.config.settings import Settings
from lakefmt.metadata.timeline import INITIALISATION, MetadataTimeline
from lakefmt.metadata.writer import MetadataTableWriter
from lakefmt.timeline.archive.append import ArchiveDirectory
from lakefmt.timeline.archive.plan import ArchiveEdges, ArchivePlan, ArchiveRules, plan_archive
from lakefmt.timeline.archive.store import HistoryStore
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.observer import PendingCompletion
from lakefmt.timeline.timeline import Timeline

__all__ = ["archive_metadata_timeline", "archived_initialisations", "metadata_archive_plan", "metadata_archive_rules"]


def metadata_archive_rules(settings: Settings, retained: int) -> ArchiveRules:
    """Return how long the metadata table's timeline may be: one commit more than the data table's. Pure.

    Parameters:
        settings: of the call.
        retained: how many of its newest commits a clean leaves readable; they stay on the timeline.
    """
    least = max(settings.integer("hoodie.keep.min.commits"), retained) + 1
    most = max(settings.integer("hoodie.keep.max.commits") + 1, least + 1)
    return ArchiveRules(least, most, settings.integer("hoodie.metadata.compact.max.delta.commits"))


def metadata_archive_plan(timeline: Timeline, data_timeline: Timeline, rules: ArchiveRules) -> ArchivePlan:
    """Return the instants of the metadata table that leave its timeline. Pure.

    Parameters:
        timeline: the metadata table's, with all its files.
        data_timeline: the data table's.
        rules: how long the timeline may be.
    """
    compactions = timeline.completed_of(Action.COMMIT)
    first = [i.time for i in (*data_timeline.commits[:1], *data_timeline.pending[:1])]
    edges = ArchiveEdges(
        has_metadata_table=True,
        metadata_compacted=compactions[-1].time if compactions else None,
        others=tuple((time, f"{time}, which is on the table's own timeline") for time in first),
    )
    return plan_archive(timeline, rules, edges)


def archive_metadata_timeline(
    writer: MetadataTableWriter, metadata_timeline: MetadataTimeline, pending: PendingCompletion, rules: ArchiveRules
) -> None:
    """Move old instants of the metadata table into its archive, if its timeline is too long.

    Parameters:
        writer: writes the metadata table.
        metadata_timeline: its timeline.
        pending: the instant that is about to be recorded, with the data table's timeline.
        rules: how long the timeline may be.

    Raises:
        LeaseLost: the lock was lost.
        StorageError: the store failed; the next call goes on.
    """
    if len(metadata_timeline.completed(*COMMIT_ACTIONS)) <= rules.max_commits:
        return
    store = writer.timeline_store
    timeline = store.load_files()
    instants = metadata_archive_plan(timeline, pending.timeline, rules).instants
    if not instants:
        return
    new = _without_archived(writer, store.archive_directory, instants)
    pending.prove_lock()
    if new:
        ArchiveDirectory(
            writer.store,
            store.archive_directory,
            lambda file: store.read_body(file.file_name),
            writer.config.zone,
            writer.durable,
        ).append(timeline, new)
    # First the pending files: without its completed file an instant would look pending.
    store.remove_files(file for i in instants for file in timeline.files_of(i) if not file.is_completed)
    for instant in instants:
        store.remove_files([instant])


def archived_initialisations(writer: MetadataTableWriter) -> frozenset[str]:
    """Return the instants of initialisations that are archived: a new one must not be named like an old one.

    In version 6 they are named after an instant of the data table, and never twice the same.
    """
    store = writer.timeline_store
    if store.layout == 1:
        return frozenset()
    archived = HistoryStore(writer.store, store.archive_directory, store.layout).load()
    return frozenset(i.time for i in archived.instants if i.time.startswith(INITIALISATION))


def _without_archived(writer: MetadataTableWriter, directory: str, instants: tuple[Instant, ...]) -> list[Instant]:
    """Return the instants that are not archived yet: a process may have died after it had archived some."""
    layout = writer.config.version.layout
    if layout == 1:
        return list(instants)  # of two entries of one instant in an archived log readers take the later one
    archived = {i.time for i in HistoryStore(writer.store, directory, layout).find(instants)}
    return [i for i in instants if i.time not in archived]
