"""Read the record index, secondary indexes and expression indexes of a metadata table (effects on reading only).

The record index says where record keys are stored. The value of a key depends on its data partition, file group and instant only,
so few values are distinct: each of those is decoded once. A secondary index has record keys by the value of another column, an
expression index the ranges of files and data partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.metadata.index_definitions import IndexDefinition
from lakefmt._core.metadata.keys import (
    column_key,
    expression_partition_stats_key,
    partition_key,
    record_keys_of,
    secondary_index_prefixes,
)
from lakefmt._core.metadata.layout import PartitionKind, escape_partition
from lakefmt._core.metadata.reading.reader import MetadataTable, RecordRun, newest_records
from lakefmt._core.metadata.reading.stats_reader import read_stats_of_keys
from lakefmt._core.metadata.records import RecordLocation, decode_record
from lakefmt.errors import CorruptFile

__all__ = [
    "LOCATION_SCHEMA",
    "decode_index_keys",
    "is_partitioned",
    "keys_in_file_group",
    "locations_of",
    "lookup_locations",
    "lookup_record_keys",
    "read_expression_partition_stats",
    "read_expression_stats",
    "scan_locations",
]

#: Where a key is: data partition, file group, and the instant that put it there in milliseconds since 1970.
LOCATION_SCHEMA = pa.schema(
    [("key", pa.string()), ("partition", pa.string()), ("file_id", pa.string()), ("instant_millis", pa.int64())]
)
_RECORD_INDEX = PartitionKind.RECORD_INDEX.value


def is_partitioned(table: MetadataTable) -> bool:
    """Return whether the record index has file groups of its own for every data partition; a key may then be in several."""
    return None not in table.file_slices(_RECORD_INDEX)


def lookup_locations(table: MetadataTable, keys: pa.Array, partitions: Iterable[str] | None = None) -> pa.Table:
    """Return where record keys are stored; keys that are not are left out (:data:`LOCATION_SCHEMA`).

    Parameters:
        table: the metadata table.
        keys: record keys, strings without nulls.
        partitions: the data partitions to look in, where the record index is partitioned; None: all of them.

    Raises:
        CorruptFile: the index is damaged, or a file group of it is missing.
    """
    wanted = keys.unique().cast(pa.binary())
    slices_of_runs = table.file_slices(_RECORD_INDEX)
    if None in slices_of_runs:
        runs: list[str | None] = [None]
    else:
        runs = list(slices_of_runs) if partitions is None else [escape_partition(path) for path in partitions]
    parts = (locations_of(table.lookup(_RECORD_INDEX, wanted, run)) for run in runs)
    return pa.concat_tables([LOCATION_SCHEMA.empty_table(), *parts])


def keys_in_file_group(table: MetadataTable, keys: pa.Array, partition: str, file_id: str) -> pa.Array:
    """Return those of some record keys that the index says are in a file group.

    Parameters:
        table: the metadata table.
        keys: record keys, strings without nulls.
        partition: the file group's data partition.
        file_id: the file group.

    Raises:
        CorruptFile: see :func:`lookup_locations`.
    """
    slices_of_runs = table.file_slices(_RECORD_INDEX)
    if not len(keys) or (None not in slices_of_runs and escape_partition(partition) not in slices_of_runs):
        return keys[:0]
    places = lookup_locations(table, keys, [partition])
    there = pa.compute.and_(
        pa.compute.equal(places["partition"], partition), pa.compute.equal(places["file_id"], file_id)
    )
    chunks = places["key"].filter(there).chunks
    return pa.concat_arrays(chunks) if chunks else keys[:0]


def scan_locations(table: MetadataTable) -> pa.Table:
    """Return where every record key is stored (:data:`LOCATION_SCHEMA`).

    Parameters:
        table: the metadata table.

    Raises:
        CorruptFile: see :func:`lookup_locations`.
    """
    runs = list(table.file_slices(_RECORD_INDEX))
    parts = (locations_of(table.scan(_RECORD_INDEX, run)) for run in runs)
    return pa.concat_tables([LOCATION_SCHEMA.empty_table(), *parts])


def locations_of(runs: Sequence[RecordRun]) -> pa.Table:
    """Return where records of the record index say that their keys are (:data:`LOCATION_SCHEMA`).

    Parameters:
        runs: oldest first within a file group.

    Raises:
        CorruptFile: a record is damaged.
    """
    newest, schemas = newest_records(runs)
    parts = []
    for number, schema in enumerate(schemas):
        rows = newest.filter(pa.compute.equal(newest["schema"], number))
        values = rows["value"].combine_chunks().dictionary_encode()
        # Distinct values, of which there are a few for each file group.
        places = [_location_in_record(value, schema, runs[0].what) for value in values.dictionary.to_pylist()]
        distinct = {
            "partition": pa.array([place.partition for place in places], pa.string()),
            "file_id": pa.array([place.file_id for place in places], pa.string()),
            "instant_millis": pa.array([place.instant_millis for place in places], pa.int64()),
        }
        columns = {name: column.take(values.indices) for name, column in distinct.items()}
        try:
            parts.append(pa.table({"key": rows["key"].cast(pa.string()), **columns}, LOCATION_SCHEMA))
        except pa.ArrowInvalid as error:
            raise CorruptFile(f"{runs[0].what}: a key is no text: {error}") from None
    return pa.concat_tables([LOCATION_SCHEMA.empty_table(), *parts])


def _location_in_record(value: bytes, schema: str, what: str) -> RecordLocation:
    location = decode_record(value, schema, f"a record of {what}").location
    if location is None:
        raise CorruptFile(f"{what}: a record of the record index says no location")
    return location


def lookup_record_keys(table: MetadataTable, index: IndexDefinition, values: pa.Array) -> pa.Array:
    """Return the record keys of the rows in which the indexed column has one of some values.

    Parameters:
        table: the metadata table.
        index: the secondary index.
        values: of the indexed column's type, without nulls.

    Raises:
        CorruptFile: the index is damaged, or a file group of it is missing.
    """
    prefixes = secondary_index_prefixes(values.unique())
    placed_by = None if index.version in (None, "V1") else prefixes
    runs = table.lookup_prefixes(index.name, prefixes.cast(pa.binary()), placed_by)
    records, _ = newest_records(runs)
    return decode_index_keys(records["key"].combine_chunks(), index.name)


def decode_index_keys(keys: pa.Array, what: str) -> pa.Array:
    """Return the record keys in keys of a secondary index.

    Parameters:
        keys: binary.
        what: how the index is named in errors.

    Raises:
        CorruptFile: some of them are no such keys.
    """
    try:
        return record_keys_of(keys.cast(pa.string()))
    except (ValueError, pa.ArrowInvalid) as error:
        raise CorruptFile(f"the secondary index {what} is damaged: {error}") from None


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
        Columns as of :func:`~lakefmt._core.metadata.reading.stats_reader.read_stats`, but ``value_count`` is without the
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
