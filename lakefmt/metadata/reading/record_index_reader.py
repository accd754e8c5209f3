"""Where record keys are stored, as the record index says (effects on reading only).

The value of a key depends on its data partition, file group and instant only, so few values are distinct: each of those is
decoded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakefmt.errors import CorruptFile
from lakefmt.metadata.layout import PartitionKind, escape_partition
from lakefmt.metadata.reading.reader import MetadataTable, RecordRun, newest_records
from lakefmt.metadata.records import RecordLocation, decode_record

__all__ = [
    "LOCATION_SCHEMA",
    "is_partitioned",
    "keys_in_file_group",
    "locations_of",
    "lookup_locations",
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
        places = [_place(value, schema, runs[0].what) for value in values.dictionary.to_pylist()]
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


def _place(value: bytes, schema: str, what: str) -> RecordLocation:
    location = decode_record(value, schema, f"a record of {what}").location
    if location is None:
        raise CorruptFile(f"{what}: a record of the record index says no location")
    return location
