"""Which of two records of one key the metadata table shows: one rule per partition. Pure.

Log records are merged onto a base file's by these rules, oldest first (docs/format.md, Metadata table).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakefmt.metadata.record_schema import DECIMAL_ORDINAL
from lakefmt.metadata.records import ColumnStats, FileInfo, MetadataRecord, RecordType

__all__ = ["combine_files", "combine_log_records", "combine_records", "is_replacing"]

_LISTS = frozenset({RecordType.ALL_PARTITIONS, RecordType.FILES})
_STATISTICS = frozenset({RecordType.COLUMN_STATS, RecordType.PARTITION_STATS})


def combine_records(older: MetadataRecord, newer: MetadataRecord) -> MetadataRecord:
    """Return what two records of one key say together.

    Parameters:
        older: the record that was written first.
        newer: the record that was written after it.

    Example:
        >>> first = MetadataRecord(RecordType.FILES, files={"a": FileInfo(5), "b": FileInfo(7)})
        >>> second = MetadataRecord(RecordType.FILES, files={"b": FileInfo(0, True), "c": FileInfo(9)})
        >>> sorted(combine_records(first, second).files)
        ['a', 'c']
    """
    if newer.type in _LISTS:
        return MetadataRecord(newer.type, files=combine_files(older.files or {}, newer.files or {}))
    if newer.type in _STATISTICS and older.column_stats is not None and newer.column_stats is not None:
        return MetadataRecord(newer.type, column_stats=_combine_stats(older.column_stats, newer.column_stats))
    return newer


def combine_log_records(older: MetadataRecord, newer: MetadataRecord) -> MetadataRecord:
    """Return what two log records of one key say together, to be merged onto a base file's record later.

    A removal stays: the base file may list the same file.

    Parameters:
        older: the record that was written first.
        newer: the record that was written after it.

    Example:
        >>> first = MetadataRecord(RecordType.FILES, files={"a": FileInfo(5)})
        >>> second = MetadataRecord(RecordType.FILES, files={"a": FileInfo(0, True)})
        >>> combine_log_records(first, second).files
        {'a': FileInfo(size=0, is_deleted=True)}
    """
    if newer.type in _LISTS:
        files = combine_files(older.files or {}, newer.files or {}, keep_removals=True)
        return MetadataRecord(newer.type, files=files)
    return combine_records(older, newer)


def is_replacing(record: MetadataRecord) -> bool:
    """Return whether a record takes the place of every older one of its key: statistics that are tight, or of what is gone."""
    stats = record.column_stats
    return stats is not None and (stats.is_tight or stats.is_deleted)


def combine_files(
    older: Mapping[str, FileInfo], newer: Mapping[str, FileInfo], *, keep_removals: bool = False
) -> dict[str, FileInfo]:
    """Return two lists of files as one: a removal takes an entry away, and stays where it finds none.

    Parameters:
        older: the list that was written first.
        newer: the list that was written after it.
        keep_removals: a removal also stays where it takes an entry away.
    """
    files = dict(older)
    for name, info in newer.items():
        stored = files.get(name)
        if stored is None:
            files[name] = info
        elif not info.is_deleted:
            files[name] = FileInfo(max(stored.size, info.size))
        elif keep_removals:
            files[name] = info
        elif not stored.is_deleted:
            del files[name]
    return files


def _combine_stats(older: ColumnStats, newer: ColumnStats) -> ColumnStats:
    """Return the wider range of two; a tight or deleted record replaces what was there."""
    if older.is_deleted or newer.is_deleted or newer.is_tight:
        return newer
    if older.wrapper != newer.wrapper and older.wrapper is not None and newer.wrapper is not None:
        return newer  # the column's type was changed
    kind = newer.wrapper or older.wrapper
    lows = [end for end in (older.minimum, newer.minimum) if end is not None]
    highs = [end for end in (older.maximum, newer.maximum) if end is not None]
    return ColumnStats(
        newer.file_name,
        newer.column,
        kind,
        min(lows, key=_order(older, newer), default=None),
        max(highs, key=_order(older, newer), default=None),
        older.value_count + newer.value_count,
        older.null_count + newer.null_count,
        older.total_size + newer.total_size,
        older.total_uncompressed_size + newer.total_uncompressed_size,
        is_tight=False,
        value_type=newer.value_type or older.value_type,
    )


def _order(older: ColumnStats, newer: ColumnStats) -> Callable[[Any], Any]:
    """Return by what ends are compared: decimals are stored as the bytes of a number."""
    kind = newer.value_type or older.value_type
    wrapper = newer.wrapper or older.wrapper
    if wrapper == "DecimalWrapper" or (kind is not None and kind[0] == DECIMAL_ORDINAL):
        return lambda end: int.from_bytes(end, "big", signed=True)
    return lambda end: end
