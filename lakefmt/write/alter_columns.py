"""Alter a table's columns: a commit without files (Hudi: ALTER_SCHEMA) that gives every column an id (docs/schema.md)."""

from __future__ import annotations

from lakefmt.config.table_config import TableConfig, merge_rule
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.metadata.layout import PartitionKind, kind_of_partition
from lakefmt.metadata.manage import load_definitions
from lakefmt.values import IS_DELETED, CommitResult
from lakefmt.write.context import WritePlan, WriteRequest
from lakefmt.write.transaction import WriteTransaction

__all__ = ["bound_columns", "plan_alteration", "run_alteration"]

_INDEXES = (PartitionKind.SECONDARY_INDEX, PartitionKind.EXPRESSION_INDEX)


def run_alteration(client: TableClient, request: WriteRequest) -> CommitResult:
    """Commit the alteration of a request.

    Raises:
        CommitConflict: another commit completed meanwhile.
        SchemaMismatch: what the alteration raises.
    """
    transaction = WriteTransaction.begin(client, request)
    with transaction.aborted_on_error():
        return transaction.commit([])


def plan_alteration(client: TableClient, request: WriteRequest) -> WritePlan:
    """Raise what the alteration of a request would raise; change nothing.

    Raises:
        SchemaMismatch: what the alteration raises.
    """
    WriteTransaction.plan_only(client, request)
    return WritePlan(None, operation=request.operation, assignments=(), replaced={}, rows=0)


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
