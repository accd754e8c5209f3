"""Compaction and log compaction of the metadata table: when they are due, and the files that they write (effects, under the table lock).

A compaction writes a base file for every file group. A log compaction writes one log for the logs of a file slice, which says what
the others say together, and names their instants; base files stay as they are. Its instant lies below that of the pending
instant, like that of a compaction: readers that know no log compaction take the logs in this order.

The records of a file slice are merged by columns: of most keys the newest entry is taken as it is. Entries are decoded only where
a key has several and its partition has a rule of its own, and where a file has another schema (docs/format.md, Metadata table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.log_reader import PlacedBlock, select_blocks
from lakefmt._core.filegroups.model import LogFile
from lakefmt._core.formats.hfile_container import HFileReader
from lakefmt._core.formats.log_blocks import BlockKind, scan_blocks
from lakefmt._core.formats.log_delete_block import decode_delete_content
from lakefmt._core.metadata.layout import (
    METADATA_DIRECTORY,
    WITHOUT_FILES,
    MetadataFileName,
    PartitionKind,
    kind_of_partition,
    parse_metadata_file,
)
from lakefmt._core.metadata.metadata_files import (
    CommittedLog,
    KnownCommits,
    WrittenGroups,
    log_damage,
    log_problem,
)
from lakefmt._core.metadata.records import (
    MetadataRecord,
    RecordFormat,
    combine_log_records,
    combine_records,
    decode_record,
    encode_record,
    is_replacing,
    same_layout,
)
from lakefmt._core.metadata.timeline import MetadataTimeline
from lakefmt._core.metadata.writer import ExtendedSlice, MetadataLog, MetadataTableWriter, WrittenFile
from lakefmt._core.timeline.instant import Action, millisecond_before
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt._core.timeline.observer import PendingCompletion
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableVersion
from lakefmt.errors import CorruptFile, UnsupportedFeature

__all__ = [
    "Entries",
    "LogRecords",
    "MetadataSlice",
    "base_entries",
    "compact_metadata_table",
    "compaction_instant",
    "has_logs_on",
    "instant_before",
    "instants_of_bases",
    "log_compact_metadata_table",
    "log_compaction_instant",
    "log_entries",
    "merge_entries",
    "merge_log_entries",
    "newest_slices",
    "slice_operation",
]


#: What Hudi appends to the last deltacommit's time for a compaction in version 6.
_COMPACTION_SUFFIX_V6 = "001"
#: Longer times have the suffix of a service or of an initialisation.
_LONGEST_TIME = 17
#: With writers that always overlap there is never a moment without pending instants: then it is compacted all the same.
_OVERDUE_FACTOR = 3
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
    if is_building and len(regular) < _OVERDUE_FACTOR * after:
        return None
    if _holds_pending(timeline, pending):
        return None
    before = instant_before(timeline, pending, max(delta.time for delta in since), version, _COMPACTION_SUFFIX_V6)
    if before is None and version is not TableVersion.SIX and len(regular) >= _OVERDUE_FACTOR * after:
        return pending.next_time()
    return before


def _waiting_times(pending: PendingCompletion) -> list[InstantTime]:
    return [each.time for each in pending.timeline.pending if each.action not in WITHOUT_FILES]


def _holds_pending(timeline: MetadataTimeline, pending: PendingCompletion) -> bool:
    """Return whether an instant is recorded and not complete: a service cannot take in what may be rolled back."""
    waiting = _waiting_times(pending)
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
    waiting = _waiting_times(pending)
    if version is TableVersion.SIX:
        if (
            len(newest) > _LONGEST_TIME
        ):  # of a service, whose writer died before its own deltacommit: the next one is near
            return None
        # The pending instant itself counts, too: below a compaction it could not be rolled back if its writer died.
        return None if any(time <= newest for time in (*waiting, pending.time)) else newest + suffix
    before = millisecond_before(min(waiting, default=pending.time))
    free = before > timeline.highest_time and all(before != each.time for each in pending.timeline)
    return before if free else None


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
class _CompactionOperation:
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
        operations += [_CompactionOperation(partition, item) for item in slices.values()]
    body = encode_body(BodyKind.COMPACTION_PLAN, _compaction_plan(operations))
    writer.timeline_store.request(instant, Action.COMPACTION, body)
    counts = _completed_before(timeline, instant)
    written = [_compacted_file_group(writer, item, instant, counts, committed[item.partition]) for item in operations]
    writer.complete_compaction(instant, written, pending.proved_time())


def _completed_before(timeline: MetadataTimeline, instant: str) -> Callable[[str], bool]:
    """Return a test of requested times: is a commit completed, or archived, and older than an instant?"""
    completed = frozenset(each.time for each in timeline.completed())
    first = min(completed, default="")
    return lambda time: (time in completed or time < first) and time < instant


def _compacted_file_group(
    writer: MetadataTableWriter,
    operation: _CompactionOperation,
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


def _compaction_plan(operations: Iterable[_CompactionOperation]) -> dict[str, object]:
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


# ------------------------------------------------------------------------------------------------------- log compaction

#: What Hudi appends to the last deltacommit's time for a log compaction in version 6.
_LOG_COMPACTION_SUFFIX_V6 = "005"
#: The most blocks of a log: deletes, records, deletes.
_BLOCKS_OF_LOG = 3


def log_compaction_instant(
    timeline: MetadataTimeline, pending: PendingCompletion, threshold: int, version: TableVersion
) -> str | None:
    """Return the instant of a log compaction that is due; None when none is, or when it has to wait. Pure.

    Parameters:
        timeline: the metadata table's.
        pending: the instant that is about to be recorded.
        threshold: due after as many deltacommits, counted from the last compaction or log compaction on.
        version: the table version.
    """
    last = timeline.last_compaction
    deltas = [delta for delta in timeline.completed(Action.DELTA_COMMIT) if last is None or delta.time > last.time]
    folded = max((delta.time for delta in deltas if delta.is_log_compaction), default="")
    since = [delta for delta in deltas if not delta.is_initialisation and delta.time > folded]
    if len(since) < threshold:
        return None
    return instant_before(timeline, pending, max(delta.time for delta in since), version, _LOG_COMPACTION_SUFFIX_V6)


@dataclass(frozen=True, slots=True)
class _LogFold:
    """The logs of one file slice that become one.

    Attributes:
        partition: the metadata table's partition.
        file_slice: the file slice.
        entries: of its logs, oldest first.
        instants: that the entries are of, oldest first.
    """

    partition: str
    file_slice: MetadataSlice
    entries: Sequence[Entries]
    instants: tuple[str, ...]


def log_compact_metadata_table(
    writer: MetadataTableWriter,
    timeline: MetadataTimeline,
    instant: str,
    threshold: int,
    pending: PendingCompletion,
    commits: KnownCommits | None = None,
) -> bool:
    """Write one log for the logs of every file slice that has enough blocks; return whether there was one.

    Parameters:
        writer: writes the metadata table.
        timeline: the metadata table's.
        instant: of the log compaction.
        threshold: blocks of a file slice from which its logs become one.
        pending: hands out the completion time.
        commits: of the metadata table that this handle knows.

    Raises:
        CorruptFile: a file of the metadata table is damaged.
    """
    counts = _completed_before(timeline, instant)
    folds = []
    layout = writer.config.version.layout
    written_files = WrittenGroups(writer.store, writer.config.version, timeline, commits or KnownCommits())
    for partition in writer.config.metadata_partitions:
        present = writer.sizes(partition)
        files = [file for file in map(parse_metadata_file, sorted(present)) if file is not None]
        slices = newest_slices(files, timeline, layout)
        if all(len(each.logs) * _BLOCKS_OF_LOG < threshold for each in slices.values()):
            continue
        committed = written_files.check_files(partition, present, instants_of_bases(slices))
        for file_slice in slices.values():
            if len(file_slice.logs) * _BLOCKS_OF_LOG >= threshold:
                fold = _fold_of_logs(writer, partition, file_slice, counts, committed)
                if len(fold.entries) >= threshold and len(fold.instants) > 1:
                    folds.append(fold)
    if not folds:
        return False
    writer.timeline_store.request(
        instant, Action.LOG_COMPACTION, encode_body(BodyKind.COMPACTION_PLAN, _log_compaction_plan(folds))
    )
    written = [_folded_log(writer, each, instant) for each in folds]
    writer.complete_compaction(instant, written, pending.proved_time(), of_logs=True)
    return True


def _fold_of_logs(
    writer: MetadataTableWriter,
    partition: str,
    file_slice: MetadataSlice,
    counts: Callable[[str], bool],
    committed: Mapping[str, CommittedLog],
) -> _LogFold:
    directory = f"{METADATA_DIRECTORY}/{partition}"
    logs = [(log, writer.store.read(f"{directory}/{log.name}", _MAX_FILE_BYTES)) for log in file_slice.logs]
    entries = log_entries(partition, logs, writer.config.version.layout, counts, committed)
    # Empty logs, by which file groups begin, have no instant to name.
    written = [each for each in entries if len(each.keys)]
    return _LogFold(partition, file_slice, written, tuple(dict.fromkeys(each.instant for each in written)))


def _folded_log(writer: MetadataTableWriter, fold: _LogFold, instant: str) -> WrittenFile:
    records = merge_log_entries(fold.partition, fold.entries, writer.form)
    base, logs = fold.file_slice.base, fold.file_slice.logs
    files = logs if base is None else (base, *logs)
    below = ExtendedSlice(fold.file_slice.file_id, files[0].instant, files)
    log = MetadataLog(records.begun_anew, records.keys, records.values, records.deleted, fold.instants)
    return writer.put_log(instant, fold.partition, below, log)


def _log_compaction_plan(folds: Iterable[_LogFold]) -> dict[str, object]:
    """Return the record of a requested log compaction."""
    return {
        "operations": [slice_operation(fold.partition, fold.file_slice) for fold in folds],
        "extraMetadata": None,
        "version": _PLAN_VERSION,
        "strategy": {
            "compactorClassName": "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper",
            "strategyParams": {},
            "version": 1,
        },
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None,
    }


# ---------------------------------------------------------------------------------------------------------- file slices


@dataclass(frozen=True, slots=True)
class MetadataSlice:
    """A base file and the logs on top of it.

    Attributes:
        file_id: the file group.
        base: the base file; None while there are logs only.
        logs: oldest first.
    """

    file_id: str
    base: MetadataFileName | None
    logs: tuple[MetadataFileName, ...]


def newest_slices(
    files: Iterable[MetadataFileName], timeline: MetadataTimeline, layout: int
) -> dict[str, MetadataSlice]:
    """Return the newest file slice of every file group.

    A log of layout 2 belongs to the last base file whose instant is not later than the log's completion; one of layout 1
    names the base file's instant. Files of instants that are not complete do not count.

    Parameters:
        files: of one partition of the metadata table.
        timeline: the metadata table's.
        layout: its timeline layout, 1 or 2.
    """
    groups: dict[str, list[MetadataFileName]] = {}
    for file in files:
        groups.setdefault(file.file_id, []).append(file)
    return {file_id: _newest_slice(file_id, own, timeline, layout) for file_id, own in sorted(groups.items())}


def instants_of_bases(slices: Mapping[str, MetadataSlice]) -> dict[str, str]:
    """Return the instant of the base file of each file slice, by file group; the empty text for none."""
    return {file_id: "" if each.base is None else each.base.instant for file_id, each in slices.items()}


def _newest_slice(
    file_id: str, files: list[MetadataFileName], timeline: MetadataTimeline, layout: int
) -> MetadataSlice:
    def completion(file: MetadataFileName) -> str | None:
        return timeline.completion_of(file.instant)

    bases = [file for file in files if file.version is None and completion(file) is not None]
    base = max(bases, key=lambda file: (file.instant, file.write_token), default=None)
    logs = [(completion(file), file) for file in files if file.version is not None]
    if layout == 1:
        begins = base.instant if base is not None else min((file.instant for _, file in logs), default="")
        log_files = [file for _, file in logs if file.instant == begins]
        return MetadataSlice(file_id, base, tuple(sorted(log_files, key=lambda file: (file.version or 0, file.name))))
    since = "" if base is None else base.instant
    placed = [(done, file) for done, file in logs if done is not None and done >= since]
    placed.sort(key=lambda pair: (pair[0], pair[1].version or 0, pair[1].write_token))
    return MetadataSlice(file_id, base, tuple(file for _, file in placed))


# ------------------------------------------------------------------------------------------------------- merged records

I64 = npt.NDArray[np.int64]
Combine = Callable[[MetadataRecord, MetadataRecord], MetadataRecord]

#: Of their keys the newest entry does not simply replace the older ones.
_COMBINED_PARTITIONS = frozenset(
    {
        PartitionKind.FILES,
        PartitionKind.COLUMN_STATS,
        PartitionKind.PARTITION_STATS,
        PartitionKind.EXPRESSION_INDEX,
    }
)


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of a base file or of a log block, in their order.

    Attributes:
        keys: an array of bytes.
        values: encoded records, an array of bytes; None: the entries delete their keys.
        schema: of the values.
        what: how the file is named in errors.
        instant: that wrote the block; the empty text for a base file.
    """

    keys: pa.Array
    values: pa.Array | None
    schema: str
    what: str
    instant: str = ""


def base_entries(data: bytes, what: str) -> Entries:
    """Return the entries of a base file.

    Parameters:
        data: the whole file.
        what: how it is named in errors.

    Raises:
        CorruptFile: it is damaged, or names no schema.
    """
    return _hfile_entries(data, None, what)


def _hfile_entries(data: bytes | memoryview, schema: str | None, what: str) -> Entries:
    reader = HFileReader.from_bytes(data, what)
    named = schema or reader.schema
    if named is None:
        raise CorruptFile(f"{what} names no schema of its records")
    table = reader.read()
    return Entries(_one_array(table.column("key")), _one_array(table.column("value")), named, what)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([chunk.cast(pa.binary()) for chunk in column.chunks] or [pa.array([], pa.binary())])


def log_entries(
    partition: str,
    logs: Iterable[tuple[MetadataFileName, bytes]],
    layout: int,
    counts: Callable[[str], bool],
    committed: Mapping[str, CommittedLog] = MappingProxyType({}),
) -> list[Entries]:
    """Return the entries of the logs of a file slice, block by block; what was log-compacted comes once.

    Parameters:
        partition: the metadata table's partition.
        logs: the log files, oldest first, each with its bytes.
        layout: the timeline layout, 1 or 2.
        counts: tells whether the blocks of an instant count.
        committed: what commits say of the logs, in layout 1.

    Raises:
        CorruptFile: a block's content is damaged, or a log has lost one.
        UnsupportedFeature: a block of a kind that the metadata table does not have.
    """
    directory = PartitionPath(f"{METADATA_DIRECTORY}/{partition}")
    placed: list[PlacedBlock] = []
    contents: dict[str, bytes] = {}
    for name, data in logs:
        log = LogFile(
            directory, name.name, FileId(name.file_id), InstantTime(name.instant), name.version or 0, len(data)
        )
        contents[log.path] = data
        blocks = [PlacedBlock(log, block) for block in scan_blocks(partial(_bytes_at, data), len(data), log.path)]
        _check_log_is_whole(log, blocks, counts, committed.get(name.name), layout)
        placed += blocks
    selected_blocks = select_blocks(placed, layout=layout, is_committed=counts, bound=None)
    return [_block_entries(each, contents[each.file.path]) for each in selected_blocks]


def _check_log_is_whole(
    log: LogFile,
    blocks: Sequence[PlacedBlock],
    counts: Callable[[str], bool],
    committed: CommittedLog | None,
    layout: int,
) -> None:
    """Raise for a log that lost something: what is merged or folded without it could not be seen to lack it any more."""
    if layout > 1 and not counts(log.instant):
        return
    whole = [each.block.instant_time for each in blocks if each.block.kind is not BlockKind.CORRUPT]
    is_whole = len(whole) == len(blocks)
    problem = log_problem(log.instant, log.size, whole, committed, layout=layout, is_whole=is_whole)
    if problem is not None:
        raise log_damage(log.path, problem)


def _bytes_at(data: bytes, begin: int, size: int) -> bytes:
    return data[begin : begin + size]


def _block_entries(placed: PlacedBlock, data: bytes) -> Entries:
    block, what = placed.block, placed.file.path
    content = data[block.content_start : block.content_start + block.content_size]
    instant = block.instant_time or ""
    if block.kind is BlockKind.HFILE_DATA:
        return replace(_hfile_entries(content, block.schema, what), instant=instant)
    if block.kind is BlockKind.DELETE:
        return Entries(decode_delete_content(content, what=what).keys.cast(pa.binary()), None, "", what, instant)
    raise UnsupportedFeature(f"{what}: a block of kind {block.kind.name} in a log of the metadata table")


@dataclass(frozen=True, slots=True)
class LogRecords:
    """What the logs of a file slice say together, to be written as one log.

    Attributes:
        begun_anew: keys that were deleted and written again, or whose older records were replaced; what the base file has of
            them is not merged.
        keys: of the records.
        values: the records, encoded.
        deleted: keys that are deleted.
    """

    begun_anew: pa.Array
    keys: pa.Array
    values: pa.Array
    deleted: pa.Array


def merge_log_entries(partition: str, entries: Iterable[Entries], form: RecordFormat) -> LogRecords:
    """Return what the entries of logs say together, without the base file that they lie on.

    Parameters:
        partition: the metadata table's partition.
        entries: oldest first.
        form: the schema that is wanted.
    """
    parts = list(entries)
    keys, codes, last_delete, alive = _numbered_keys(parts)
    last_record = np.full(len(last_delete), -1)
    np.maximum.at(last_record, codes[alive], alive)
    deleted = last_delete[(last_delete >= 0) & (last_record < 0)]
    # Of other partitions a newer record replaces what is below it anyway.
    combined = kind_of_partition(partition) in _COMBINED_PARTITIONS
    anew = last_delete[(last_delete >= 0) & (last_record >= 0)] if combined else deleted[:0]
    merged_keys, values, replaced = _merged_entries(partition, parts, form, combine_log_records)
    begun_anew = pa.concat_arrays([keys.take(from_numpy(anew)), replaced]).unique()
    return LogRecords(begun_anew, merged_keys, values, keys.take(from_numpy(deleted)))


def _numbered_keys(parts: list[Entries]) -> tuple[pa.Array, I64, I64, I64]:
    """Return the keys of all entries, a number for each different key, its last delete (or -1), and the entries that live."""
    keys = pa.concat_arrays([part.keys for part in parts] or [pa.array([], pa.binary())])
    deletes = np.repeat(np.array([part.values is None for part in parts], bool), [len(part.keys) for part in parts])
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    last_delete = np.full(int(codes.max(initial=-1)) + 1, -1)
    np.maximum.at(last_delete, codes[deletes], np.flatnonzero(deletes))
    alive = np.flatnonzero(~deletes & (np.arange(len(codes)) > last_delete[codes]))
    return keys, codes, last_delete, alive


def merge_entries(partition: str, entries: Iterable[Entries], form: RecordFormat) -> tuple[pa.Array, pa.Array]:
    """Return the live records of a file slice, by their keys in any order, in one schema.

    Parameters:
        partition: the metadata table's partition.
        entries: of the base file, then of the logs, oldest first.
        form: the schema that is wanted.

    Returns:
        Keys and encoded records, arrays of bytes.
    """
    keys, values, _ = _merged_entries(partition, list(entries), form, combine_records)
    return keys, values


def _merged_entries(
    partition: str, parts: list[Entries], form: RecordFormat, combine: Combine
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return keys and encoded records, and the keys of which an older record than the newest replaced all before it."""
    keys, codes, last_delete, alive = _numbered_keys(parts)
    values = _values_in_form(parts, form)
    newest = np.full(len(last_delete), -1)
    np.maximum.at(newest, codes[alive], alive)
    rows = np.sort(newest[newest >= 0])
    if kind_of_partition(partition) not in _COMBINED_PARTITIONS:
        return keys.take(from_numpy(rows)), values.take(from_numpy(rows)), keys[:0]
    return _combined_by_rule(keys, values, codes, alive, rows, form, combine)


def _values_in_form(parts: list[Entries], form: RecordFormat) -> pa.Array:
    """Return the values of all entries in one schema; those of deletes are empty."""
    arrays = [
        pa.array([b""], pa.binary()).take(from_numpy(np.zeros(len(part.keys), np.int64)))
        if part.values is None
        else _recoded_values(part, part.values, form)
        for part in parts
    ]
    return pa.concat_arrays(arrays or [pa.array([], pa.binary())])


def _recoded_values(part: Entries, values: pa.Array, form: RecordFormat) -> pa.Array:
    if same_layout(part.schema, form.schema_version):
        return values
    # Of the many values of an index few are different.
    encoded = values.dictionary_encode()
    changed = [
        encode_record(decode_record(value, part.schema, part.what), form.schema_version)
        for value in encoded.dictionary.to_pylist()
    ]
    return pa.array(changed, pa.binary()).take(encoded.indices)


def _combined_by_rule(
    keys: pa.Array,
    values: pa.Array,
    codes: I64,
    alive: I64,
    rows: I64,
    form: RecordFormat,
    combine: Combine,
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the records of keys with several entries put together by their partition's rule."""
    several = np.flatnonzero(np.bincount(codes[alive], minlength=int(codes.max(initial=-1)) + 1) > 1)
    singles = rows[~np.isin(codes[rows], several)]
    repeated = alive[np.isin(codes[alive], several)]
    folded: dict[int, MetadataRecord] = {}
    row_by_code: dict[int, int] = {}
    replaced: set[int] = set()
    for row, code, value in zip(repeated, codes[repeated], values.take(from_numpy(repeated)).to_pylist(), strict=True):
        record = decode_record(value, form.schema)
        folded[code] = combine(folded[code], record) if code in folded else record
        row_by_code[code] = int(row)
        if is_replacing(record):
            replaced.add(code)
    merged = pa.array([encode_record(record, form.schema_version) for record in folded.values()], pa.binary())
    both = np.concatenate([singles, np.array(list(row_by_code.values()), np.int64)])
    hidden = [row_by_code[code] for code in replaced if not is_replacing(folded[code])]
    return (
        keys.take(from_numpy(both)),
        pa.concat_arrays([values.take(from_numpy(singles)), merged]),
        keys.take(pa.array(hidden, pa.int64())),
    )
