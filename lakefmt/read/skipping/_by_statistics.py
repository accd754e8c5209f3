"""Leave out slices and partitions by the statistics that the metadata table has of their columns (effects: reads only)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakefmt.config.table_config import TableConfig
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.table_client import TableClient
from lakefmt.metadata.layout import PartitionKind
from lakefmt.metadata.reading.altered_stats import of_all_rows, read_altered_partitions
from lakefmt.metadata.reading.reader import MetadataTable
from lakefmt.metadata.reading.stats_reader import read_stats
from lakefmt.read.filter_terms import satisfiable
from lakefmt.read.scan import Query
from lakefmt.read.skipping.altered_columns import (
    Leaf,
    SliceFiles,
    all_known,
    altered_ranges,
    exact_in_partitions,
    joined_ranges,
    range_guarantees,
)
from lakefmt.values import RECORD_KEY, PartitionPath

__all__ = ["files_of", "listed_leaves", "partitions_by_statistics", "slices_by_statistics"]

#: Of more partitions the statistics of a column are read as a whole.
_MANY_PARTITIONS = 64


def slices_by_statistics(
    table: MetadataTable, slices: Sequence[FileSlice], leaves: Sequence[Leaf], query: Query, layout: int
) -> list[FileSlice]:
    """Return the slices whose rows may satisfy the filter, by the statistics of their files.

    Parameters:
        table: the metadata table.
        slices: the slices to choose from.
        leaves: the columns to look at.
        query: the read; its condition may be compared with statistics.
        layout: of the table's timeline.

    Raises:
        CorruptFile: the statistics are damaged.
    """
    if query.condition is None or query.condition.pruning is None or not slices:
        return list(slices)
    paths = list(dict.fromkeys(file_slice.partition for file_slice in slices))
    wanted = paths if len(paths) <= _MANY_PARTITIONS else None
    guarantees = []
    for leaf in leaves:
        ranges = _ranges_of_leaf(table, slices, leaf, wanted, layout)
        if ranges is not None:
            guarantees.append(range_guarantees(leaf.expression, ranges))
    if not guarantees:
        return list(slices)
    kept = satisfiable(all_known(guarantees), query.condition.pruning, query.schema)
    return [slices[number] for number in np.flatnonzero(kept).tolist()]


def _ranges_of_leaf(
    table: MetadataTable, slices: Sequence[FileSlice], leaf: Leaf, partitions: Sequence[str] | None, layout: int
) -> pa.Table | None:
    """Return what values of a column each slice has; None: nothing is known of any."""
    if leaf.altered is not None:
        return altered_ranges(table, leaf.name, leaf.kind, leaf.altered, slices, layout, partitions)
    stats = read_stats(table, PartitionKind.COLUMN_STATS, leaf.name, leaf.kind, partitions)
    return joined_ranges(stats, files_of(slices)) if stats.num_rows else None


def files_of(slices: Sequence[FileSlice]) -> SliceFiles:
    """Return the files of slices as columns. Pure."""
    names = [(number, path.rpartition("/")[2]) for number, file_slice in enumerate(slices) for path in file_slice.paths]
    logs = [is_log for file_slice in slices for is_log in _are_logs(file_slice)]
    return SliceFiles([name for _, name in names], [number for number, _ in names], logs, len(slices))


def _are_logs(file_slice: FileSlice) -> list[bool]:
    return [*([] if file_slice.base is None else [False]), *(True for _ in file_slice.logs)]


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
    from lakefmt.metadata.manage import load_definitions  # needed only for statistics of partitions

    definition = load_definitions(client, config).get(PartitionKind.COLUMN_STATS.value)
    return [leaf for leaf in leaves if definition is None or _names(leaf) & set(definition.columns)]


def _names(leaf: Leaf) -> set[str | None]:
    names = None if leaf.altered is None else leaf.altered.in_partitions(leaf.name)
    return {leaf.name} if names is None else {names.current, names.first}


def partitions_by_statistics(
    table: MetadataTable, partitions: Sequence[PartitionPath], leaves: Sequence[Leaf], query: Query, *, merges: bool
) -> list[PartitionPath]:
    """Return the partitions whose rows may satisfy the filter, by what is stored in them now.

    Parameters:
        table: the metadata table, of a table with meta columns.
        partitions: their paths.
        leaves: the columns to look at, of which each write keeps statistics.
        query: the read; its condition may be compared with statistics.
        merges: the table may have logs.

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
        names = None if leaf.altered is None else leaf.altered.in_partitions(leaf.name)
        if exact_in_partitions(leaf.kind) and (leaf.altered is None or names is not None):
            if names is None:
                stats = of_all_rows(
                    read_stats(table, PartitionKind.PARTITION_STATS, leaf.name, leaf.kind, wanted), keys
                )
            else:
                stats = read_altered_partitions(table, leaf.kind, names, keys, wanted, merges=merges)
            ranges = joined_ranges(stats, rows)
            # Files that are older than a column have null in it, and no statistics.
            ranges = ranges.set_column(2, "has_nulls", pa.array(np.ones(count, bool)))
            guarantees.append(range_guarantees(leaf.expression, ranges))
    if not guarantees:
        return list(partitions)
    kept = satisfiable(all_known(guarantees), query.condition.pruning, query.schema)
    return [partitions[number] for number in np.flatnonzero(kept).tolist()]
