"""Compaction of the metadata table: when it is due, and a base file for every file group (effects, under the table lock)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from lakefmt.metadata.layout import METADATA_DIRECTORY, PartitionKind
from lakefmt.metadata.services.file_slices import MetadataSlice, newest_slices
from lakefmt.metadata.services.merged_records import Entries, base_entries, log_entries, merge_entries
from lakefmt.metadata.timeline import MetadataTimeline
from lakefmt.metadata.writer import MetadataTableWriter, WrittenFile
from lakefmt.metadata.written_groups import KnownCommits, WrittenGroups
from lakefmt.timeline.instant import Action, format_instant_time, parse_instant_time
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.timeline.observer import PendingCompletion
from lakefmt.values import TableVersion

__all__ = ["compact_metadata_table", "compaction_instant", "has_logs_on"]

#: What Hudi appends to the last deltacommit's time for a compaction in version 6.
_COMPACTION_SUFFIX_V6 = "001"
#: With writers that always overlap there is never a moment without pending instants: then it is compacted all the same.
_OVERDUE = 3
_PLAN_VERSION = 2
_MAX_FILE_BYTES = 4 << 30


def compaction_instant(
    timeline: MetadataTimeline,
    pending: PendingCompletion,
    after: int,
    version: TableVersion,
    *,
    is_building: bool = False,
) -> str | None:
    """Return the instant of a compaction that is due; None when none is, or when it has to wait. Pure.

    Parameters:
        timeline: the metadata table's.
        pending: the instant that is about to be recorded.
        after: a compaction is due after as many deltacommits.
        version: the table version.
        is_building: whether a partition is being built, which a compaction would begin anew; it waits for some time.
    """
    last = timeline.last_compaction
    since = [one for one in timeline.completed(Action.DELTA_COMMIT) if last is None or one.time > last.time]
    regular = [one for one in since if not one.is_initialisation]
    if len(regular) < after:
        return None
    if is_building and len(regular) < _OVERDUE * after:
        return None
    waiting = [one.time for one in pending.timeline.pending if one.action is not Action.INDEXING]
    if any(one.time in waiting for one in timeline.completed(Action.DELTA_COMMIT)):
        return None  # recorded, and not complete: a base file cannot hold what may be rolled back
    if version is TableVersion.SIX:
        newest = max(one.time for one in since)
        return (
            None if any(time <= newest for time in waiting if time != pending.time) else newest + _COMPACTION_SUFFIX_V6
        )
    before = _millisecond_before(min(waiting, default=pending.time))
    if before > timeline.highest_time and all(before != one.time for one in pending.timeline):
        return before
    return pending.next_time() if len(regular) >= _OVERDUE * after else None


def _millisecond_before(time: str) -> str:
    return format_instant_time(parse_instant_time(time) - timedelta(milliseconds=1))


def has_logs_on(writer: MetadataTableWriter, instant: str) -> bool:
    """Return whether logs lie on the base files that a compaction was going to write.

    In version 6 other engines name a log after a compaction as soon as it is requested; it must be finished then.

    Parameters:
        writer: writes the metadata table.
        instant: of the compaction.
    """
    if writer.config.version.layout > 1:
        return False
    return any(
        file.version is not None and file.instant == instant
        for partition in writer.config.metadata_partitions
        for file in writer.files(partition)
    )


@dataclass(frozen=True, slots=True)
class _Operation:
    """One file group of a compaction."""

    partition: str
    file_slice: MetadataSlice


def compact_metadata_table(
    writer: MetadataTableWriter,
    timeline: MetadataTimeline,
    instant: str,
    pending: PendingCompletion,
    commits: KnownCommits | None = None,
) -> None:
    """Write a base file for every file group.

    Parameters:
        writer: writes the metadata table.
        timeline: the metadata table's.
        instant: of the compaction.
        pending: hands out the completion time.
        commits: of the metadata table that this handle knows.

    Raises:
        CorruptFile: a file of the metadata table is damaged or missing.
    """
    layout = writer.config.version.layout
    # The compaction will name all file groups that there are: a missing one could not be seen any more.
    due = WrittenGroups(writer.store, writer.config.version, timeline, commits or KnownCommits())
    operations = []
    for partition in writer.config.metadata_partitions:
        files = writer.files(partition)
        writer.checked_groups(partition, files, None if partition == PartitionKind.FILES.value else due)
        operations += [_Operation(partition, one) for one in newest_slices(files, timeline, layout).values()]
    body = encode_body(BodyKind.COMPACTION_PLAN, _plan(operations))
    writer.timeline_store.request(instant, Action.COMPACTION, body)
    done = frozenset(one.time for one in timeline.completed())
    first = min(done, default="")

    def counts(time: str) -> bool:
        return (time in done or time < first) and time < instant

    written = [_compacted(writer, one, instant, counts) for one in operations]
    writer.complete_compaction(instant, written, pending.proved_time())


def _compacted(
    writer: MetadataTableWriter, operation: _Operation, instant: str, counts: Callable[[str], bool]
) -> WrittenFile:
    entries: list[Entries] = []
    file_slice = operation.file_slice
    directory = f"{METADATA_DIRECTORY}/{operation.partition}"
    if file_slice.base is not None:
        path = f"{directory}/{file_slice.base.name}"
        entries.append(base_entries(writer.store.read(path, _MAX_FILE_BYTES), path))
    for log in file_slice.logs:
        path = f"{directory}/{log.name}"
        entries += log_entries(writer.store.read(path, _MAX_FILE_BYTES), path, counts)
    keys, values = merge_entries(operation.partition, entries, writer.form)
    return writer.put_base(operation.partition, file_slice.file_id, instant, keys, values)


def _plan(operations: Iterable[_Operation]) -> dict[str, object]:
    """Return the record of a requested compaction."""
    return {
        "operations": [
            {
                "baseInstantTime": base.instant if (base := one.file_slice.base) else one.file_slice.logs[0].instant,
                "deltaFilePaths": [log.name for log in one.file_slice.logs],
                "dataFilePath": None if base is None else base.name,
                "fileId": one.file_slice.file_id,
                "partitionPath": one.partition,
                "metrics": {
                    "TOTAL_LOG_FILES": float(len(one.file_slice.logs)),
                    "TOTAL_LOG_FILES_SIZE": 0.0,
                    "TOTAL_IO_READ_MB": 0.0,
                    "TOTAL_IO_WRITE_MB": 120.0,
                    "TOTAL_IO_MB": 120.0,
                },
                "bootstrapFilePath": None,
            }
            for one in operations
        ],
        "extraMetadata": None,
        "version": _PLAN_VERSION,
        "strategy": None,
        "preserveHoodieMetadata": False,
        "missingSchedulePartitions": None,
    }
