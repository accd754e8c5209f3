"""Log compaction of the metadata table: when it is due, and one log for the logs of a file slice (effects, under the table lock).

The new log says what the others say together, and names their instants; base files stay as they are. Its instant lies below
that of the pending instant, like that of a compaction: readers that know no log compaction take the logs in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lakefmt.data_classes import dataclass
from lakefmt.metadata.layout import METADATA_DIRECTORY, parse_metadata_file
from lakefmt.metadata.reading.written_groups import CommittedLog, KnownCommits, WrittenGroups
from lakefmt.metadata.services.compaction import instant_before, slice_operation
from lakefmt.metadata.services.file_slices import MetadataSlice, instants_of_bases, newest_slices
from lakefmt.metadata.services.merged_records import Entries, log_entries, merge_log_entries
from lakefmt.metadata.timeline import MetadataTimeline
from lakefmt.metadata.writer import ExtendedSlice, MetadataLog, MetadataTableWriter, WrittenFile
from lakefmt.timeline.instant import Action
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.timeline.observer import PendingCompletion
from lakefmt.values import TableVersion

__all__ = ["log_compact_metadata_table", "log_compaction_instant"]

#: What Hudi appends to the last deltacommit's time for a log compaction in version 6.
_SUFFIX_V6 = "005"
_PLAN_VERSION = 2
_MAX_FILE_BYTES = 4 << 30
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
    return instant_before(timeline, pending, max(delta.time for delta in since), version, _SUFFIX_V6)


@dataclass(frozen=True, slots=True)
class _Fold:
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
    done = frozenset(each.time for each in timeline.completed())
    first = min(done, default="")

    def counts(time: str) -> bool:
        return (time in done or time < first) and time < instant

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
                fold = _fold(writer, partition, file_slice, counts, committed)
                if len(fold.entries) >= threshold and len(fold.instants) > 1:
                    folds.append(fold)
    if not folds:
        return False
    writer.timeline_store.request(
        instant, Action.LOG_COMPACTION, encode_body(BodyKind.COMPACTION_PLAN, _log_compaction_plan(folds))
    )
    written = [_folded(writer, each, instant) for each in folds]
    writer.complete_compaction(instant, written, pending.proved_time(), of_logs=True)
    return True


def _fold(
    writer: MetadataTableWriter,
    partition: str,
    file_slice: MetadataSlice,
    counts: Callable[[str], bool],
    committed: Mapping[str, CommittedLog],
) -> _Fold:
    directory = f"{METADATA_DIRECTORY}/{partition}"
    logs = [(log, writer.store.read(f"{directory}/{log.name}", _MAX_FILE_BYTES)) for log in file_slice.logs]
    entries = log_entries(partition, logs, writer.config.version.layout, counts, committed)
    # Empty logs, by which file groups begin, have no instant to name.
    written = [each for each in entries if len(each.keys)]
    return _Fold(partition, file_slice, written, tuple(dict.fromkeys(each.instant for each in written)))


def _folded(writer: MetadataTableWriter, fold: _Fold, instant: str) -> WrittenFile:
    records = merge_log_entries(fold.partition, fold.entries, writer.form)
    base, logs = fold.file_slice.base, fold.file_slice.logs
    files = logs if base is None else (base, *logs)
    below = ExtendedSlice(fold.file_slice.file_id, files[0].instant, files)
    log = MetadataLog(records.begun_anew, records.keys, records.values, records.deleted, fold.instants)
    return writer.put_log(instant, fold.partition, below, log)


def _log_compaction_plan(folds: Iterable[_Fold]) -> dict[str, object]:
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
