"""The table's columns after a write with other ones, and those that a table is built on (docs/schema.md).

What keys, paths, merging and indexes are made of stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa
import pyarrow.types as pt

from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig, merge_rule
from lakefmt.errors import SchemaMismatch, UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.metadata.layout import PartitionKind, kind_of_partition
from lakefmt.metadata.manage import load_definitions
from lakefmt.schema import evolve
from lakefmt.schema.evolve import Missing
from lakefmt.schema.types import field_at
from lakefmt.transactions.client import WriteClient
from lakefmt.values import IS_DELETED
from lakefmt.write.commit.new_columns import check_new_columns

__all__ = ["bound_columns", "columns_after"]

_ORDERING = "an ordering column, which says which row of a key wins"
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
    bound |= dict.fromkeys(config.ordering_fields, _ORDERING)
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


def columns_after(
    write_client: WriteClient, state: TableState, brought: pa.Schema, mode: Literal["add", "strict"], *, partial: bool
) -> pa.Schema:
    """Return the table's columns after a write.

    Args:
        write_client: the table, and the settings that say what becomes of columns that the data lack.
        state: its properties and timeline.
        brought: the data's columns, without meta columns.
        mode: what new and wider columns do.
        partial: the data leave stored values of columns that they lack.

    Raises:
        SchemaMismatch: the table's columns cannot become such that they take the data, or what the table is built on would
            become another type.
    """
    client = write_client.client
    before, missing = client.schema(state), _missing_columns(write_client.settings)
    after = evolve(before, brought, mode, partial=partial, missing=missing)
    if after is before:
        return after
    _check_types(before, after, bound_columns(client, state))
    check_new_columns(client, state, before, after, comes_back=True)
    if missing == "drop":
        for name, what in bound_columns(client, state).items():
            if field_at(before, name) is not None and field_at(after, name) is None:
                raise SchemaMismatch(f"the data lack column {name!r}, which cannot be dropped: it is {what}")
    return after


def _check_types(before: pa.Schema, after: pa.Schema, bound: Mapping[str, str]) -> None:
    """Raise where the texts of stored values would be others: keys, paths and indexes are made of them.

    Raises:
        SchemaMismatch: rows bring a type to which such a column would be widened.
    """
    for name, what in bound.items():
        old, new = field_at(before, name), field_at(after, name)
        if old is None or new is None or old.type == new.type:
            continue
        # Wider numbers have the order of the stored ones; whole numbers that a double rounds have not.
        if what == _ORDERING and not (pt.is_integer(old.type) and pt.is_floating(new.type)):
            continue
        if _has_same_texts(old.type, new.type):
            continue
        raise SchemaMismatch(
            f"the data would make column {name!r} {new.type}, and it is {what}: cast the data to {old.type}"
        )


def _has_same_texts(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether values of a type and of a wider one have the same texts.

    Example:
        >>> _has_same_texts(pa.int32(), pa.int64()), _has_same_texts(pa.int64(), pa.float64())
        (True, False)
    """
    if pt.is_decimal(old) and pt.is_decimal(new):
        return bool(old.scale == new.scale)
    return bool(pt.is_integer(old) and pt.is_integer(new))


def _missing_columns(settings: Settings) -> Missing:
    """Return what becomes of columns that the data lack: Hudi reconciles before it drops."""
    nulls = ("hoodie.datasource.write.reconcile.schema", "hoodie.write.set.null.for.missing.columns")
    if any(settings.flag(name) for name in nulls):
        return "null"
    drops = settings.flag("hoodie.datasource.write.schema.allow.auto.evolution.column.drop")
    return "drop" if drops else "refuse"
