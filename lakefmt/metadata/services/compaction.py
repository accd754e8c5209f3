"""Compaction of the metadata table: when it is due, and a base file for every file group (effects, under the table lock)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from lakefmt.data_classes import dataclass
from lakefmt.metadata.layout import METADATA_DIRECTORY, WITHOUT_FILES, PartitionKind, parse_metadata_file
from lakefmt.metadata.reading.written_groups import CommittedLog, KnownCommits, WrittenGroups
from lakefmt.metadata.services.file_slices import MetadataSlice, instants_of_bases, newest_slices
from lakefmt.metadata.services.merged_records import Entries, base_entries, log_entries, merge_entries
from lakefmt.metadata.timeline import MetadataTimeline
from lakefmt.metadata.writer import MetadataTableWriter, WrittenFile
from lakefmt.timeline.instant import Action, format_instant_time, parse_instant_time
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.timeline.observer import PendingCompletion
from lakefmt.values import InstantTime, TableVersion

__all__ = ["compact_metadata_table", "compaction_instant", "has_logs_on", "instant_before", "slice_operation"]

#: What Hudi appends to the last deltacommit's time for a compaction in version 6.
_COMPACTION_SUFFIX_V6 = "001"
#: Longer times have the suffix of a service or of an initialisation.
_LONGEST_TIME = 17
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
    since = [delta for delta in timeline.completed(Action.DELTA_COMMIT) if last is None or delta.time > last.time]
    regular = [delta for delta in since if not delta.is_initialisation]
    if len(regular) < after:
        return None
    if is_building and len(regular) < _OVERDUE * after:
        return None
    if _holds_pending(timeline, pending):
        return None
    before = instant_before(timeline, pending, max(delta.time for delta in since), version, _COMPACTION_SUFFIX_V6)
    if before is None and version is not TableVersion.SIX and len(regular) >= _OVERDUE * after:
        return pending.next_time()
    return before


def _waiting(pending: PendingCompletion) -> list[InstantTime]:
    return [each.time for each in pending.timeline.pending if each.action not in WITHOUT_FILES]


def _holds_pending(timeline: MetadataTimeline, pending: PendingCompletion) -> bool:
    """Return whether an instant is recorded and not complete: a service cannot take in what may be rolled back."""
    waiting = _waiting(pending)
    return any(each.time in waiting for each in timeline.completed(Action.DELTA_COMMIT))


def instant_before(
    timeline: MetadataTimeline, pending: PendingCompletion, newest: str, version: TableVersion, suffix: str
) -> str | None:
    """Return an instant for a service that lies above what is recorded and below what is pending; None: there is none. Pure.

    Parameters:
        timeline: the metadata table's.
        pending: the instant that is about to be recorded.
        newest: the last deltacommit.
        version: the table version.
        suffix: what the service's instant has behind that of the last deltacommit in version 6.
    """
    if _holds_pending(timeline, pending):
        return None
    waiting = _waiting(pending)
    if version is TableVersion.SIX:
        if (
            len(newest) > _LONGEST_TIME
        ):  # of a service, whose writer died before its own deltacommit: the next one is near
            return None
        # The pending instant itself counts, too: below a compaction it could not be rolled back if its writer died.
        return None if any(time <= newest for time in (*waiting, pending.time)) else newest + suffix
    before = _millisecond_before(min(waiting, default=pending.time))
    free = before > timeline.highest_time and all(before != each.time for each in pending.timeline)
    return before if free else None


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
    committed: dict[str, Mapping[str, CommittedLog]] = {}
    for partition in writer.config.metadata_partitions:
        present = writer.sizes(partition)
        files = [file for file in map(parse_metadata_file, sorted(present)) if file is not None]
        writer.checked_groups(partition, files, None if partition == PartitionKind.FILES.value else due)
        slices = newest_slices(files, timeline, layout)
        committed[partition] = due.check_files(partition, present, instants_of_bases(slices))
        operations += [_Operation(partition, item) for item in slices.values()]
    body = encode_body(BodyKind.COMPACTION_PLAN, _plan(operations))
    writer.timeline_store.request(instant, Action.COMPACTION, body)
    done = frozenset(each.time for each in timeline.completed())
    first = min(done, default="")

    def counts(time: str) -> bool:
        return (time in done or time < first) and time < instant

    written = [_compacted(writer, item, instant, counts, committed[item.partition]) for item in operations]
    writer.complete_compaction(instant, written, pending.proved_time())


def _compacted(
    writer: MetadataTableWriter,
    operation: _Operation,
    instant: str,
    counts: Callable[[str], bool],
    committed: Mapping[str, CommittedLog],
) -> WrittenFile:
    entries: list[Entries] = []
    file_slice = operation.file_slice
    directory = f"{METADATA_DIRECTORY}/{operation.partition}"
    if file_slice.base is not None:
        path = f"{directory}/{file_slice.base.name}"
        entries.append(base_entries(writer.store.read(path, _MAX_FILE_BYTES), path))
    logs = [(log, writer.store.read(f"{directory}/{log.name}", _MAX_FILE_BYTES)) for log in file_slice.logs]
    entries += log_entries(operation.partition, logs, writer.config.version.layout, counts, committed)
    keys, values = merge_entries(operation.partition, entries, writer.form)
    return writer.put_base(operation.partition, file_slice.file_id, instant, keys, values)


def _plan(operations: Iterable[_Operation]) -> dict[str, object]:
    """Return the record of a requested compaction."""
    return {
        "operations": [slice_operation(each.partition, each.file_slice) for each in operations],
        "extraMetadata": None,
        "version": _PLAN_VERSION,
        "strategy": None,
        "preserveHoodieMetadata": False,
        "missingSchedulePartitions": None,
    }


def slice_operation(partition: str, file_slice: MetadataSlice) -> dict[str, object]:
    """Return what a plan says of one file slice. Pure.

    Parameters:
        partition: the metadata table's partition.
        file_slice: the file slice.
    """
    base = file_slice.base
    return {
        "baseInstantTime": file_slice.logs[0].instant if base is None else base.instant,
        "deltaFilePaths": [log.name for log in file_slice.logs],
        "dataFilePath": None if base is None else base.name,
        "fileId": file_slice.file_id,
        "partitionPath": partition,
        "metrics": {
            "TOTAL_LOG_FILES": float(len(file_slice.logs)),
            "TOTAL_LOG_FILES_SIZE": 0.0,
            "TOTAL_IO_READ_MB": 0.0,
            "TOTAL_IO_WRITE_MB": 120.0,
            "TOTAL_IO_MB": 120.0,
        },
        "bootstrapFilePath": None,
    }
