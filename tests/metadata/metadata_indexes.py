"""Indexes of the metadata table, made one at a time and named as their partitions."""

from __future__ import annotations

from collections.abc import Mapping

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.layout import PartitionKind, kind_of_partition
from lakefmt._core.transactions.indexing import FunctionCall, IndexRequest, create_metadata_indexes
from lakefmt.errors import InvalidInputError, UnsupportedFeature

__all__ = ["create_expression_index", "create_metadata_index"]


def create_metadata_index(
    client: TableClient, name: str, column: str | None = None, options: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Make one index of the metadata table, named as its partition (:func:`create_metadata_indexes`).

    Args:
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

    Args:
        client: the table.
        name: the metadata table's partition, ``expr_index_<name>``.
        column: the column that the function is of.
        function: one of Spark's functions that lakefmt computes (docs/metadata-table.md).
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
