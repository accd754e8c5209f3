"""What the metadata table holds of some keys before an instant is recorded in it (effects on reading only)."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakefmt.metadata.reading.reader import MetadataTable, newest_records
from lakefmt.metadata.records import MetadataRecord, decode_record

__all__ = ["stored_records"]


def stored_records(table: MetadataTable, partition: str, keys: Iterable[str]) -> dict[str, MetadataRecord]:
    """Return the newest records of a few keys; keys without one are left out.

    Parameters:
        table: the metadata table.
        partition: of which newer records replace older ones.
        keys: as they are stored.

    Raises:
        CorruptFile: the metadata table is damaged.
        SnapshotExpired: a file was removed meanwhile.
    """
    wanted = pa.array([key.encode() for key in keys], pa.binary())
    newest, schemas = newest_records(table.lookup(partition, wanted))
    rows = zip(newest["key"].to_pylist(), newest["value"].to_pylist(), newest["schema"].to_pylist(), strict=True)
    return {key.decode(): decode_record(value, schemas[number], partition) for key, value, number in rows}
