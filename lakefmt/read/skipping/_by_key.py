"""Find the file groups of rows by a record index, or by a secondary index and that (effects: reads only)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.metadata.index_definitions import IndexDefinition
from lakefmt.metadata.layout import EMPTY_PARTITION, PartitionKind, kind_of_partition
from lakefmt.metadata.reading.index_readers import lookup_locations, lookup_record_keys
from lakefmt.metadata.reading.reader import MetadataTable, ready_partitions
from lakefmt.values import PartitionPath

__all__ = ["Groups", "groups_of_keys", "groups_of_values", "secondary_indexes"]

#: Of as many keys the places are made distinct sooner one by one.
_FEW_KEYS: Final = 64

#: File groups: partition path and file id of each.
Groups = frozenset[tuple[PartitionPath, str]]


def groups_of_keys(table: MetadataTable, keys: pa.Array, partitions: Sequence[PartitionPath] | None) -> Groups:
    """Return the file groups that have rows with these record keys.

    Parameters:
        table: the metadata table.
        keys: record keys, strings.
        partitions: the only data partitions that matter; None: all.

    Raises:
        CorruptFile: the record index is damaged, or a file group of it is missing.
    """
    locations = lookup_locations(table, keys, partitions)
    if len(locations) > _FEW_KEYS:
        locations = locations.group_by(["partition", "file_id"], use_threads=False).aggregate([])
    pairs = zip(locations["partition"].to_pylist(), locations["file_id"].to_pylist(), strict=True)
    return frozenset((PartitionPath("" if path == EMPTY_PARTITION else path), file_id) for path, file_id in pairs)


def groups_of_values(
    table: MetadataTable, index: IndexDefinition, values: pa.Array, partitions: Sequence[PartitionPath] | None
) -> Groups:
    """Return the file groups that have rows in which the column of a secondary index has one of some values.

    Parameters:
        table: the metadata table.
        index: the secondary index.
        values: of the column's type.
        partitions: the only data partitions that matter; None: all.

    Raises:
        CorruptFile: an index is damaged, or a file group of it is missing.
    """
    return groups_of_keys(table, lookup_record_keys(table, index, values), partitions)


def secondary_indexes(client: TableClient, state: TableState) -> list[IndexDefinition]:
    """Return the secondary indexes that readers may use, in the order in which they were made."""
    names = {
        name for name in ready_partitions(state.config) if kind_of_partition(name) is PartitionKind.SECONDARY_INDEX
    }
    if not names:
        return []
    from lakefmt.metadata.manage import load_definitions  # needed only for these

    definitions = load_definitions(client, state.config)
    return [each for name, each in definitions.items() if name in names and len(each.columns) == 1]
