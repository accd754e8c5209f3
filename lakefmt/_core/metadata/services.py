"""Run the services of the metadata table before an instant is recorded in it (effects, under the table lock).

What dead processes left is found and removed first. A compaction writes a base file for every file group of every partition. Its
instant lies below that of the pending instant, which can then still be rolled back by any engine (docs/format.md, Metadata table).
A clean removes the files that no reader needs any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from lakefmt._core.config.settings import Settings
from lakefmt._core.metadata.compaction import (
    compact_metadata_table,
    compaction_instant,
    has_logs_on,
    log_compact_metadata_table,
    log_compaction_instant,
)
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, MetadataFileName
from lakefmt._core.metadata.manage import (
    archive_metadata_timeline,
    inflight_partitions,
    instants_being_built,
    metadata_archive_rules,
)
from lakefmt._core.metadata.reading.metadata_files import KnownCommits
from lakefmt._core.metadata.reading.reader import check_seen
from lakefmt._core.metadata.timeline import MetadataTimeline
from lakefmt._core.metadata.writer import MetadataTableWriter
from lakefmt._core.storage.redaction import printable_url
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.observer import PendingCompletion
from lakefmt._core.timeline.timeline import Timeline
from lakefmt.errors import CorruptFile

__all__ = [
    "clean_metadata_table",
    "earliest_kept_instant",
    "files_to_clean",
    "metadata_clean_plan",
    "metadata_clean_result",
    "run_metadata_services",
    "without_dead_instants",
]


_log = logging.getLogger("lakefmt.metadata")
#: As many commits of the metadata table stay readable at least.
_LEAST_RETAINED = 20
_SERVICE_ACTIONS = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN})
#: What Hudi appends to the last deltacommit's time for a clean in version 6.
_CLEAN_SUFFIX_V6 = "002"
_CLEAN_POLICY = "KEEP_LATEST_COMMITS"
_CLEAN_PLAN_VERSION = 2


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
    retained = max(_LEAST_RETAINED, 2 * after)
    try:
        if instant is not None:
            check_seen(writer.config.version, pending.timeline, timeline)
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

    threshold = settings.integer("hoodie.metadata.log.compaction.blocks.threshold")
    instant = log_compaction_instant(timeline, pending, threshold, writer.config.version)
    if instant is None:
        return timeline
    check_seen(writer.config.version, pending.timeline, timeline)
    if not log_compact_metadata_table(writer, timeline, instant, threshold, pending, commits):
        return timeline
    return writer.timeline_store.load()


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
        if instant.state is not State.COMPLETED and (instant.action in _SERVICE_ACTIONS or instant.time not in waiting)
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


def clean_metadata_table(writer: MetadataTableWriter, pending: PendingCompletion, retained: int) -> None:
    """Remove files that only old states of the metadata table need.

    Parameters:
        writer: writes the metadata table.
        pending: hands out instants.
        retained: how many of its newest commits stay readable.
    """
    store, timeline = writer.timeline_store, writer.timeline_store.load()
    earliest = earliest_kept_instant(timeline, retained)
    if earliest is None:
        return
    unneeded = {
        partition: files_to_clean(writer.files(partition), earliest, timeline)
        for partition in writer.config.metadata_partitions
    }
    files = {partition: names for partition, names in unneeded.items() if names}
    if not files:
        return
    instant, last = f"{pending.next_time()}{_CLEAN_SUFFIX_V6 if store.layout == 1 else ''}", timeline.highest_time
    plan = metadata_clean_plan(writer.store.url, files, earliest, last)
    store.request(instant, Action.CLEAN, encode_body(BodyKind.CLEANER_PLAN, plan))
    pending.prove_lock()
    writer.store.delete(f"{METADATA_DIRECTORY}/{path}/{name}" for path, names in files.items() for name in names)
    body = encode_body(BodyKind.CLEAN_METADATA, metadata_clean_result(instant, files, earliest, last))
    store.put_completed(instant, Action.CLEAN, pending.next_time(), body)


def earliest_kept_instant(timeline: MetadataTimeline, retained: int) -> str | None:
    """Return the instant from which on every state of the metadata table stays readable; None: all of them do.

    Parameters:
        timeline: the metadata table's.
        retained: how many of its newest commits and deltacommits stay readable.
    """
    done = timeline.completed(Action.DELTA_COMMIT, Action.COMMIT)
    regular = [each.time for each in done if not each.is_initialisation]
    return regular[-retained] if len(regular) > retained else None


def files_to_clean(files: Iterable[MetadataFileName], earliest: str, timeline: MetadataTimeline) -> list[str]:
    """Return the files of one partition that only states before an instant need.

    Parameters:
        files: of one partition of the metadata table.
        earliest: the state as of this instant stays readable.
        timeline: the metadata table's.

    Example:
        >>> from lakefmt._core.metadata.layout import parse_metadata_file
        >>> from lakefmt._core.metadata.timeline import parse_timeline
        >>> timeline = parse_timeline(["20260101000000000.commit", "20260102000000000.commit"], 1)
        >>> names = ["files-0000-0_0-0-0_20260101000000000.hfile", "files-0000-0_0-0-0_20260102000000000.hfile"]
        >>> files_to_clean([parse_metadata_file(name) for name in names], "20260103000000000", timeline)
        ['files-0000-0_0-0-0_20260101000000000.hfile']
    """
    groups: dict[str, list[MetadataFileName]] = {}
    for file in files:
        groups.setdefault(file.file_id, []).append(file)
    to_clean = []
    for own in groups.values():
        bases = [f.instant for f in own if f.version is None and timeline.completion_of(f.instant) is not None]
        base_instant = max((instant for instant in bases if instant <= earliest), default=None)
        if base_instant is None:
            continue
        for file in own:
            done = timeline.completion_of(file.instant)
            is_stray = done is None and not timeline.of_time(file.instant)
            last = file.instant if file.version is None or is_stray or file.instant in bases else done
            if last is not None and last < base_instant:
                to_clean.append(file.name)
    return sorted(to_clean)


def metadata_clean_plan(url: str, files: Mapping[str, list[str]], earliest: str, last: str) -> dict[str, object]:
    """Return the record of a requested clean.

    Parameters:
        url: of the data table.
        files: names by partition of the metadata table.
        earliest: the instant from which on states stay readable.
        last: the newest completed instant.
    """
    base = f"{url.rstrip('/')}/{METADATA_DIRECTORY}"
    return {
        "earliestInstantToRetain": {"timestamp": earliest, "action": Action.DELTA_COMMIT.value, "state": "COMPLETED"},
        "lastCompletedCommitTimestamp": last,
        "policy": _CLEAN_POLICY,
        "filesToBeDeletedPerPartition": {},
        "version": _CLEAN_PLAN_VERSION,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": f"{base}/{partition}/{name}", "isBootstrapBaseFile": False} for name in names]
            for partition, names in files.items()
        },
        "partitionsToBeDeleted": [],
        "extraMetadata": {},
    }


def metadata_clean_result(instant: str, files: Mapping[str, list[str]], earliest: str, last: str) -> dict[str, object]:
    """Return the record of a completed clean.

    Parameters:
        instant: its requested time.
        files: names by partition of the metadata table.
        earliest: the instant from which on states stay readable.
        last: the newest completed instant.
    """
    return {
        "startCleanTime": instant,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, files.values())),
        "earliestCommitToRetain": earliest,
        "lastCompletedCommitTimestamp": last,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": _CLEAN_POLICY,
                "deletePathPatterns": names,
                "successDeleteFiles": names,
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, names in files.items()
        },
        "version": _CLEAN_PLAN_VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": {},
    }
