"""Statistics of a data partition to which a commit only added files. Pure.

They are what was stored, widened by the new files: the cost of a commit does not grow with the files that are there already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from lakefmt.data_classes import replace
from lakefmt.metadata.keys import partition_stats_key
from lakefmt.metadata.layout import PartitionKind, partition_identifier
from lakefmt.metadata.merge import combine_records
from lakefmt.metadata.record_schema import RecordFormat
from lakefmt.metadata.records import ColumnStats, MetadataRecord, PartitionUpdate, RecordType, update_of
from lakefmt.metadata.statistics import ColumnRange, column_stats_of
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.values import WriteOperation

__all__ = ["only_adds_files", "only_opens_groups", "widened_partition_stats"]

_SERVICES = frozenset({WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.CLUSTER})
_NO_COMMIT = frozenset({"", "null"})


def only_adds_files(commit: CommitMetadata) -> bool:
    """Return whether every file that was live before a commit is live after it.

    Parameters:
        commit: its metadata.

    Example:
        >>> only_adds_files(CommitMetadata(WriteOperation.INSERT)), only_adds_files(CommitMetadata(WriteOperation.COMPACT))
        (True, False)
    """
    if commit.compacted or commit.replaced_file_ids or commit.operation in _SERVICES:
        return False
    return all(stat.log_files or stat.prev_commit in _NO_COMMIT for stat in commit.stats)


def only_opens_groups(commit: CommitMetadata) -> bool:
    """Return whether a commit wrote base files of new file groups and nothing else."""
    return only_adds_files(commit) and not any(stat.log_files for stat in commit.stats)


def widened_partition_stats(
    stored: Mapping[str, MetadataRecord],
    added: Mapping[str, Mapping[str, ColumnRange]],
    types: Mapping[str, pa.DataType],
    form: RecordFormat,
    new: Collection[str] = (),
) -> PartitionUpdate | None:
    """Return the update of ``partition_stats`` for files that were added; None: all files have to be asked.

    Parameters:
        stored: records of the partition by key, as they were before the commit.
        added: by data partition and column the values of the new files.
        types: the indexed columns' types in the table.
        form: how records are written.
        new: data partitions that had no file before the commit.
    """
    records: dict[str, MetadataRecord] = {}
    for path, columns in added.items():
        for column, values in columns.items():
            key = partition_stats_key(column, path)
            name = partition_identifier(path)
            newer = column_stats_of(values, types[column], name, form.version, is_tight=True)
            older = stored[key].column_stats if key in stored else None
            if older is None:
                widened = newer if path in new else None
            else:
                widened = _widened(older, newer)
            if widened is None:
                return None
            records[key] = MetadataRecord(RecordType.PARTITION_STATS, column_stats=widened)
    return update_of(PartitionKind.PARTITION_STATS.value, records, form)


def _widened(older: ColumnStats, newer: ColumnStats) -> ColumnStats | None:
    """Return the range of both; None where the older one is no range of live rows, or is of another type."""
    kinds = {stats.value_type for stats in (older, newer) if stats.value_count}
    wrappers = {stats.wrapper for stats in (older, newer) if stats.wrapper is not None}
    if older.is_deleted or not older.is_tight or len(kinds) > 1 or len(wrappers) > 1:
        return None
    kind = next(iter(kinds), newer.value_type)
    records = [
        MetadataRecord(RecordType.PARTITION_STATS, column_stats=replace(stats, is_tight=False, value_type=kind))
        for stats in (older, newer)
    ]
    both = combine_records(*records).column_stats
    return None if both is None else replace(both, is_tight=True)
