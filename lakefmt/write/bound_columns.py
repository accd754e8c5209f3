"""Columns that a table is built on: what keys, paths, merging and indexes are made of stays as it is (docs/schema.md)."""

from __future__ import annotations

import pyarrow as pa

from lakefmt.config.table_config import TableConfig, merge_rule
from lakefmt.errors import SchemaMismatch, UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.metadata.layout import PartitionKind, kind_of_partition
from lakefmt.metadata.manage import load_definitions
from lakefmt.values import IS_DELETED

__all__ = ["bound_columns", "check_dropped"]

_INDEXES = (PartitionKind.SECONDARY_INDEX, PartitionKind.EXPRESSION_INDEX)


def bound_columns(client: TableClient, state: TableState) -> dict[str, str]:
    """Return the columns that cannot be dropped, renamed or changed, each with what the table makes of it.

    Args:
        client: the table.
        state: its properties.
    """
    config, spec = state.config, client.key_spec(state.config)
    bound = {IS_DELETED: "the mark of deleted rows"}
    bound |= dict.fromkeys(_of_merging(config), "what the table's function of merging may take")
    bound |= dict.fromkeys(config.ordering_fields, "an ordering column, which says which row of a key wins")
    bound |= {field.name: "a partition column, and the paths hold its values" for field in spec.partition_fields}
    bound |= dict.fromkeys(spec.record_key_fields, "part of the record key")
    if config.metadata_partitions:
        for name, definition in load_definitions(client, config).items():
            if kind_of_partition(name) in _INDEXES:
                bound |= dict.fromkeys(definition.columns, f"the column of index {name}: drop the index first")
    return bound


def _of_merging(config: TableConfig) -> list[str]:
    try:
        rule = merge_rule(config)
    except UnsupportedFeature:  # another engine's function
        return []
    return [] if rule.delete is None else [rule.delete.field]


def check_dropped(client: TableClient, state: TableState, after: pa.Schema) -> None:
    """Raise when a write would drop a column that the table is built on, because its data lack it.

    Args:
        client: the table.
        state: its properties.
        after: its columns after the write.

    Raises:
        SchemaMismatch: names the column.
    """
    before = client.schema(state).names
    for name, what in bound_columns(client, state).items():
        top = name.split(".", 1)[0]
        if top in before and top not in after.names:
            raise SchemaMismatch(f"the data lack column {name!r}, which cannot be dropped: it is {what}")
