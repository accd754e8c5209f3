"""What an expression index says of files and data partitions (effects on reading only)."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.metadata.keys import column_key, expression_partition_stats_key, partition_key
from lakefmt.metadata.reading.reader import MetadataTable
from lakefmt.metadata.reading.stats_reader import read_stats_of_keys

__all__ = ["read_expression_partition_stats", "read_expression_stats"]


def read_expression_stats(
    table: MetadataTable, index: str, column: str, kind: pa.DataType, partitions: Iterable[str] | None = None
) -> pa.Table:
    """Return what an expression gives for the rows of each file.

    Parameters:
        table: the metadata table.
        index: the metadata table's partition, ``expr_index_…``, of type ``column_stats``.
        column: the column that the expression is of.
        kind: the type of what the expression gives.
        partitions: paths of data partitions; None: all.

    Returns:
        Columns as of :func:`~lakefmt.metadata.reading.stats_reader.read_stats`, but ``value_count`` is without the
        rows with null.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    first = column_key(column)
    prefixes = [first] if partitions is None else [first + partition_key(path) for path in partitions]
    stats = read_stats_of_keys(table, index, prefixes, kind, nulls_counted=False)
    return stats.filter(pc.invert(stats["is_tight"]))  # those of data partitions are tight


def read_expression_partition_stats(
    table: MetadataTable, index: str, column: str, kind: pa.DataType, partitions: Iterable[str]
) -> pa.Table:
    """Return what an expression gives for the rows of each data partition; ``name`` is its path.

    Parameters:
        table: the metadata table.
        index: the metadata table's partition, ``expr_index_…``, of type ``column_stats``.
        column: the column that the expression is of.
        kind: the type of what the expression gives.
        partitions: paths of data partitions.

    Returns:
        Columns as of :func:`read_expression_stats`.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    keys = [expression_partition_stats_key(column, path) for path in partitions]
    return read_stats_of_keys(table, index, keys, kind, nulls_counted=False)
