"""Making and removing the metadata table and its indexes on request, outside of a commit; under the table lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from lakefmt.config.table_config import TableConfig, check_writable, parse_table_config
from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient
from lakefmt.metadata.index_definitions import (
    IndexDefinition,
    expression_index_definition,
    record_index_definition,
    secondary_index_definition,
)
from lakefmt.metadata.layout import BUILD_ORDER, PartitionKind, kind_of_partition
from lakefmt.metadata.manage import MetadataTableManager
from lakefmt.timeline.properties_store import recover_properties
from lakefmt.transactions.client import drop_metadata_table, open_write_client
from lakefmt.values import TableVersion

__all__ = ["create_expression_index", "create_metadata_index", "drop_metadata_index", "drop_metadata_table_of"]

#: What an index rests on: it is made with it when it is missing.
_NEEDS = {
    PartitionKind.PARTITION_STATS: PartitionKind.COLUMN_STATS,
    PartitionKind.SECONDARY_INDEX: PartitionKind.RECORD_INDEX,
}


def create_metadata_index(
    client: TableClient, name: str, column: str | None = None, options: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Make an index of the metadata table from what is committed; the metadata table too if there is none.

    Writers that are at work go on: what they complete afterwards is in the index as well.

    Parameters:
        client: the table.
        name: the metadata table's partition: ``column_stats``, ``partition_stats``, ``bloom_filters``, ``record_index`` or
            ``secondary_index_<name>``.
        column: the column of a secondary index.
        options: settings of the call.

    Returns:
        The partitions that the metadata table has now.

    Raises:
        InvalidInputError: the index is there, its name is unknown, or the table has no such column.
        UnsupportedFeature: lakefmt does not make such an index.
    """
    kind = kind_of_partition(name)
    if kind in (None, PartitionKind.EXPRESSION_INDEX):
        raise UnsupportedFeature(f"lakefmt does not make a metadata index {name!r}")
    return _changed(client, options, partial(_with_index, client, name, column)).metadata_partitions


def _with_index(client: TableClient, name: str, column: str | None, manager: MetadataTableManager) -> TableConfig:
    config = manager.config
    if name in config.metadata_partitions:
        raise InvalidInputError(f"the metadata table has {name} already")
    definition = _definition(client, manager, name, column)
    needed = [below for kind, below in _NEEDS.items() if kind is kind_of_partition(name)]
    wanted = {PartitionKind.FILES.value, *(one.value for one in needed), name}
    missing = [one for one in wanted if one not in config.metadata_partitions]
    missing.sort(key=lambda one: BUILD_ORDER.index(kind_of_partition(one) or BUILD_ORDER[0]))
    return manager.add(missing, definition)


def _definition(
    client: TableClient, manager: MetadataTableManager, name: str, column: str | None
) -> dict[str, IndexDefinition]:
    kind, config = kind_of_partition(name), manager.config
    if kind is PartitionKind.SECONDARY_INDEX:
        if config.version is TableVersion.SIX:
            raise UnsupportedFeature("tables of version 6 have no secondary indexes: upgrade the table")
        schema = manager.schema()
        if column is None or column not in schema.names:
            raise InvalidInputError(f"a secondary index is on one column; the table has {', '.join(schema.names)}")
        return {name: secondary_index_definition(name, column, config.version)}
    if kind is PartitionKind.RECORD_INDEX and config.version is not TableVersion.SIX:
        partitioned = manager.settings.flag("hoodie.metadata.record.level.index.enable")
        return {name: record_index_definition(partitioned=partitioned)}
    return {}


def create_expression_index(
    client: TableClient,
    name: str,
    column: str,
    function: str,
    index_type: str = "column_stats",
    function_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> tuple[str, ...]:
    """Make an expression index from what is committed; the metadata table too if there is none.

    Parameters:
        client: the table.
        name: the metadata table's partition, ``expr_index_<name>``.
        column: the column that the function is of.
        function: one of Spark's functions that lakefmt computes (docs/index.md).
        index_type: ``column_stats`` or ``bloom_filters``.
        function_options: such as ``format``; sizes of bloom filters too.
        options: settings of the call.

    Returns:
        The partitions that the metadata table has now.

    Raises:
        InvalidInputError: the index is there, or its name begins otherwise.
        UnsupportedFeature: lakefmt does not compute this function, or the table is of version 6.
    """

    def add(manager: MetadataTableManager) -> TableConfig:
        config = manager.config
        if config.version is TableVersion.SIX:
            raise UnsupportedFeature("tables of version 6 have no expression indexes: upgrade the table")
        if name in config.metadata_partitions:
            raise InvalidInputError(f"the metadata table has {name} already")
        stated = dict(function_options or {})
        definition = expression_index_definition(name, index_type, function, column, stated, config.version)
        manager.check_expression(definition)
        files = PartitionKind.FILES.value
        missing = [one for one in (files, name) if one not in config.metadata_partitions]
        return manager.add(missing, {name: definition})

    return _changed(client, options, add).metadata_partitions


def drop_metadata_index(client: TableClient, name: str, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Remove an index of the metadata table, with those that rest on it; without ``files`` all of it goes.

    Parameters:
        client: the table.
        name: the metadata table's partition; also one that lakefmt does not keep.
        options: settings of the call.

    Returns:
        The partitions that the metadata table has now.

    Raises:
        InvalidInputError: the table advertises no such index.
    """
    return _changed(client, options, lambda manager: manager.drop(name), unkept=True).metadata_partitions


def drop_metadata_table_of(client: TableClient, options: Mapping[str, object] | None = None) -> None:
    """Remove the metadata table of a table: first from its properties, then its directory.

    Parameters:
        client: the table.
        options: settings of the call.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        lease.check()
        drop_metadata_table(write_client)


def _changed(
    client: TableClient,
    options: Mapping[str, object] | None,
    change: Callable[[MetadataTableManager], TableConfig],
    *,
    unkept: bool = False,
) -> TableConfig:
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = parse_table_config(recover_properties(client.store, durable=write_client.durable))
        check_writable(replace(config, metadata_partitions=()) if unkept else config)
        timeline = write_client.timeline(config).load()
        next_time = write_client.instant_time_generator(config, timeline)
        lease.check()
        return change(MetadataTableManager(client, config, timeline, write_client.settings, next_time))
