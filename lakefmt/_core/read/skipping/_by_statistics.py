"""Leave out slices and partitions by the statistics that the metadata table has of their columns (effects: reads only)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.model import FileSlice, LogFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.layout import PartitionKind
from lakefmt._core.metadata.reading.reader import MetadataTable
from lakefmt._core.metadata.reading.stats_reader import read_stats
from lakefmt._core.read.filter_terms import satisfiable
from lakefmt._core.read.scan import Query
from lakefmt._core.read.skipping.guarantees import (
    Leaf,
    SliceFiles,
    all_known,
    exact_in_partitions,
    joined_ranges,
    range_guarantees,
)
from lakefmt._core.values import RECORD_KEY, PartitionPath

__all__ = ["files_of", "listed_leaves", "partitions_by_statistics", "slices_by_statistics"]

#: Of more partitions the statistics of a column are read as a whole.
_MANY_PARTITIONS = 64


def slices_by_statistics(
    table: MetadataTable, slices: Sequence[FileSlice], leaves: Sequence[Leaf], query: Query
) -> list[FileSlice]:
    """Return the slices whose rows may satisfy the filter, by the statistics of their files.

    Parameters:
        table: the metadata table.
        slices: the slices to choose from.
        leaves: the columns to look at.
        query: the read; its condition may be compared with statistics.

    Raises:
        CorruptFile: the statistics are damaged.
    """
    if query.condition is None or query.condition.pruning is None or not slices:
        return list(slices)
    paths = list(dict.fromkeys(file_slice.partition for file_slice in slices))
    wanted = paths if len(paths) <= _MANY_PARTITIONS else None
    files, guarantees = files_of(slices), []
    for leaf in leaves:
        stats = read_stats(table, PartitionKind.COLUMN_STATS, leaf.name, leaf.kind, wanted)
        if stats.num_rows:
            guarantees.append(range_guarantees(leaf.expression, joined_ranges(stats, files, leaf.since)))
    if not guarantees:
        return list(slices)
    kept = satisfiable(all_known(guarantees), query.condition.pruning, query.schema)
    return [slices[number] for number in np.flatnonzero(kept).tolist()]


def files_of(slices: Sequence[FileSlice]) -> SliceFiles:
    """Return the files of slices as columns. Pure."""
    stored = [
        (file, number)
        for number, file_slice in enumerate(slices)
        for file in (file_slice.base, *file_slice.logs)
        if file is not None
    ]
    files, numbers = [file for file, _ in stored], [number for _, number in stored]
    logs, instants = [isinstance(file, LogFile) for file in files], [file.instant for file in files]
    return SliceFiles([file.name for file in files], numbers, logs, len(slices), instants)


def listed_leaves(client: TableClient, config: TableConfig, leaves: Sequence[Leaf]) -> list[Leaf]:
    """Return the columns of which each write keeps statistics: of others, those of a data partition stay as they were.

    Hudi stores with each commit which columns its settings name. Version 6 and old tables have no such list.

    Parameters:
        client: the table.
        config: its properties.
        leaves: the columns of a filter.

    Raises:
        CorruptFile: the definitions of indexes are damaged.
    """
    from lakefmt._core.metadata.manage import load_definitions  # needed only for statistics of partitions

    definition = load_definitions(client, config).get(PartitionKind.COLUMN_STATS.value)
    return [leaf for leaf in leaves if definition is None or leaf.name in definition.columns]


def partitions_by_statistics(
    table: MetadataTable, partitions: Sequence[PartitionPath], leaves: Sequence[Leaf], query: Query
) -> list[PartitionPath]:
    """Return the partitions whose rows may satisfy the filter, by what is stored in them now.

    Parameters:
        table: the metadata table, of a table with meta columns.
        partitions: their paths.
        leaves: the columns to look at, which were never altered, and of which each write keeps statistics.
        query: the read; its condition may be compared with statistics.

    Raises:
        CorruptFile: the statistics are damaged.
    """
    if query.condition is None or query.condition.pruning is None:
        return list(partitions)
    count = len(partitions)
    wanted = partitions if count <= _MANY_PARTITIONS else None
    rows = SliceFiles(partitions, range(count), [False] * count, count)
    guarantees = []
    keys = read_stats(table, PartitionKind.PARTITION_STATS, RECORD_KEY, pa.string(), wanted)
    for leaf in leaves:
        if exact_in_partitions(leaf.kind):
            stats = read_stats(table, PartitionKind.PARTITION_STATS, leaf.name, leaf.kind, wanted)
            stats = of_all_rows(stats, keys)
            ranges = joined_ranges(stats, rows)
            # Files that are older than a column have null in it, and no statistics.
            ranges = ranges.set_column(2, "has_nulls", pa.array(np.ones(count, bool)))
            guarantees.append(range_guarantees(leaf.expression, ranges))
    if not guarantees:
        return list(partitions)
    kept = satisfiable(all_known(guarantees), query.condition.pruning, query.schema)
    return [partitions[number] for number in np.flatnonzero(kept).tolist()]


def of_all_rows(stats: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the statistics that were made of all files at once, and of as many rows as there are record keys.

    Hudi joins those of files: where a column has had statistics for a while only, older files are missing in them.

    Parameters:
        stats: of a column.
        keys: of record keys, which every file has.
    """
    places = pc.index_in(stats["name"], value_set=keys["name"].combine_chunks())
    rows = keys["value_count"].combine_chunks().take(places.combine_chunks())
    return stats.filter(pc.fill_null(pc.and_(stats["is_tight"], pc.equal(stats["value_count"], rows)), False))
