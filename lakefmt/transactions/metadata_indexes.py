"""Making and removing the metadata table and its indexes on request, outside of a commit; under the table lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lakefmt.config.table_config import TableConfig, check_writable, parse_table_config
from lakefmt.data_classes import replace
from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient
from lakefmt.metadata.index_definitions import IndexDefinition
from lakefmt.metadata.layout import PartitionKind, kind_of_partition
from lakefmt.metadata.manage import MetadataTableManager, inflight_partitions, load_definitions
from lakefmt.timeline.properties_store import recover_properties
from lakefmt.transactions.client import drop_metadata_table, open_write_client
from lakefmt.transactions.index_request import (
    FunctionCall,
    IndexRequest,
    definition_of,
    in_build_order,
    requests_of_definitions,
)
from lakefmt.transactions.indexing import withdraw_indexing
from lakefmt.values import TableVersion

__all__ = [
    "change_metadata_table",
    "create_expression_index",
    "create_metadata_index",
    "create_metadata_indexes",
    "drop_metadata_index",
    "drop_metadata_table_of",
    "indexes_to_make_again",
]


def create_metadata_indexes(
    client: TableClient, requests: Sequence[IndexRequest], options: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Make indexes of the metadata table from what is committed; the metadata table too if there is none.

    Writers that are at work go on: what they complete afterwards is in the indexes as well. What an index rests on is
    made with it; indexes that are there already stay as they are if others need them.

    Parameters:
        client: the table.
        requests: the indexes.
        options: settings of the call.

    Returns:
        The partitions that the metadata table has now.

    Raises:
        InvalidInputError: an index is there already, or the table has no such column.
        UnsupportedFeature: the table's version cannot have it.
    """
    return change_metadata_table(client, options, partial(_with_indexes, requests)).metadata_partitions


def indexes_to_make_again(client: TableClient, config: TableConfig) -> tuple[IndexRequest, ...]:
    """Return the indexes of a metadata table that is about to be dropped and made again.

    Parameters:
        client: the table.
        config: its properties.

    Raises:
        MetadataTablePresent: there is one that lakefmt cannot make.
    """
    if not config.metadata_partitions:
        return ()
    definitions = load_definitions(client, config)
    return requests_of_definitions(config, definitions, client.schema(client.load()))


def create_metadata_index(
    client: TableClient, name: str, column: str | None = None, options: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Make one index of the metadata table, named as its partition (:func:`create_metadata_indexes`).

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
    if kind is None or kind is PartitionKind.EXPRESSION_INDEX:
        raise UnsupportedFeature(f"lakefmt does not make a metadata index {name!r}")
    if kind is PartitionKind.SECONDARY_INDEX:
        if column is None:
            raise InvalidInputError("a secondary index is on one column: name it")
        request = IndexRequest(kind, (column,), name.removeprefix(kind.value))
    else:
        request = IndexRequest(kind)
    return create_metadata_indexes(client, [request], options)


def _with_indexes(requests: Sequence[IndexRequest], manager: MetadataTableManager) -> TableConfig:
    config, settings = manager.config, manager.settings
    there = [each.partition for each in requests if each.partition in config.metadata_partitions]
    if there:
        raise InvalidInputError(f"the metadata table has {', '.join(there)} already: drop it before you make it anew")
    by_option = settings.flag("hoodie.metadata.record.level.index.enable") and config.version is not TableVersion.SIX
    schema = manager.schema()
    definitions: dict[str, IndexDefinition] = {}
    for request in requests:
        is_record_index = request.kind is PartitionKind.RECORD_INDEX
        asked = replace(request, partitioned=request.partitioned or by_option) if is_record_index else request
        most = settings.integer("hoodie.metadata.index.column.stats.max.columns.to.index")
        made = definition_of(asked, config, schema, most)
        if request.kind is PartitionKind.EXPRESSION_INDEX:
            manager.check_expression(made[request.partition])
        definitions |= made
    wanted = {name for each in requests for name in each.needs if name not in config.metadata_partitions}
    return manager.add(in_build_order(wanted), definitions)


def create_expression_index(
    client: TableClient,
    name: str,
    column: str,
    function: str,
    index_type: str = "column_stats",
    function_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> tuple[str, ...]:
    """Make one expression index, named as its partition (:func:`create_metadata_indexes`).

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
        InvalidInputError: the index is there already.
        UnsupportedFeature: lakefmt does not compute this function, or the table is of version 6.
    """
    kind = PartitionKind.EXPRESSION_INDEX
    function_call = FunctionCall(function, index_type, dict(function_options or {}))
    request = IndexRequest(kind, (column,), name.removeprefix(kind.value), function=function_call)
    return create_metadata_indexes(client, [request], options)


def drop_metadata_index(client: TableClient, name: str, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Remove an index of the metadata table, with those that rest on it; without ``files`` all of it goes.

    A plan that would make the index is withdrawn, with the other indexes that it has begun.

    Parameters:
        client: the table.
        name: the metadata table's partition; also one that lakefmt does not keep.
        options: settings of the call.

    Returns:
        The partitions that the metadata table has now.

    Raises:
        InvalidInputError: the table advertises no such index.
    """
    return change_metadata_table(client, options, partial(_without_index, name), writable=False).metadata_partitions


def _without_index(name: str, manager: MetadataTableManager) -> TableConfig:
    planned = withdraw_indexing(manager, name)
    for other in planned - {name}:  # what was begun with it would never be finished
        if other in inflight_partitions(manager.config):
            manager = replace(manager, config=manager.drop(other))
    if name in planned and name not in manager.config.metadata_partitions:
        return manager.config
    return manager.drop(name)


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


def change_metadata_table(
    client: TableClient,
    options: Mapping[str, object] | None,
    change: Callable[[MetadataTableManager], TableConfig],
    *,
    writable: bool = True,
) -> TableConfig:
    """Change the metadata table under the table lock; return the table's properties afterwards.

    Parameters:
        client: the table.
        options: settings of the call.
        change: what is done, given a manager with what the table is under the lock.
        writable: whether lakefmt must be able to keep every partition that is there.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = parse_table_config(recover_properties(client.store, durable=write_client.durable))
        check_writable(config if writable else replace(config, metadata_partitions=()))
        timeline = write_client.timeline(config).load()
        next_time = write_client.instant_time_generator(config, timeline)
        lease.check()
        return change(MetadataTableManager(client, config, timeline, write_client.settings, next_time))
