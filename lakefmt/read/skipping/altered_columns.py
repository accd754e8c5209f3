"""What statistics tell of columns that were altered: the ranges of file slices, or of single files (effects: reads only)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakefmt.data_classes import replace
from lakefmt.filegroups.model import FileSlice, LogFile
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.metadata.reading.altered_stats import DatedFiles, read_altered_stats
from lakefmt.metadata.reading.reader import MetadataTable
from lakefmt.read.skipping.guarantees import SliceFiles, joined_records
from lakefmt.schema.statistic_names import StatisticNames

__all__ = ["altered_ranges", "names_of_columns"]


def names_of_columns(client: TableClient, state: TableState) -> StatisticNames | None:
    """Return the names that the columns of a state ever had; None: they have no ids.

    Parameters:
        client: the table.
        state: properties and timeline, perhaps of an earlier time.

    Raises:
        UnsupportedFeature: the history of the columns is missing.
    """
    # Statistics may be newer than what is read.
    newest = replace(state, timeline=state.timeline.unbounded)
    now, then = client.schema_history(state), client.schema_history(newest)
    return None if now is None or then is None else StatisticNames(now, then)


def altered_ranges(
    table: MetadataTable,
    column: str,
    kind: pa.DataType,
    names: StatisticNames,
    slices: Sequence[FileSlice],
    layout: int,
    partitions: Sequence[str] | None = None,
    *,
    by_file: bool = False,
) -> pa.Table:
    """Return what values of an altered column each slice has (:func:`~lakefmt.read.skipping.guarantees.joined_ranges`).

    Parameters:
        table: the metadata table.
        column: its name in the rows that are read, with dots when it is nested.
        kind: its type there.
        names: that columns had.
        slices: the slices.
        layout: of the table's timeline.
        partitions: paths of data partitions that they are in; None: all.
        by_file: one row for each file instead, base files before their logs.

    Raises:
        CorruptFile: the statistics are damaged.
    """
    stored = [
        (number, file, file_slice)
        for number, file_slice in enumerate(slices)
        for file in (file_slice.base, *file_slice.logs)
        if file is not None
    ]
    logs = [isinstance(file, LogFile) for _, file, _ in stored]
    numbers = range(len(stored)) if by_file else [number for number, _, _ in stored]
    count = len(stored) if by_file else len(slices)
    files = SliceFiles([file.name for _, file, _ in stored], numbers, logs, count)
    grows = np.array([isinstance(file, LogFile) and _may_grow(file, each, layout) for _, file, each in stored], bool)
    dated = DatedFiles(files.names, [file.instant for _, file, _ in stored], files.logs, grows)
    records = read_altered_stats(table, column, kind, names, dated, partitions)
    places, absent = (records[name].to_numpy() for name in ("file", "is_absent"))
    return joined_records(records, files, places, absent)


def _may_grow(log: LogFile, file_slice: FileSlice, layout: int) -> bool:
    """Return whether later instants may have written to a log: one of table version 6, which has its slice's instant."""
    alike = sum(each.instant == log.instant for each in file_slice.logs)
    return layout == 1 or (log.instant == file_slice.instant and (file_slice.base is not None or alike > 1))
