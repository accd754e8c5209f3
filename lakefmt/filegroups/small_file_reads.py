"""Read a small base file at once: a scanner of Arrow for it costs more than its rows (effects: reads only)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.filegroups.model import BaseFile
from lakefmt.filegroups.reader import parquet_file, reading
from lakefmt.formats.parquet.base_file import check_row_counts
from lakefmt.storage.api import ObjectStore

__all__ = ["SMALL_BYTES", "read_small_file"]

#: A file of more bytes, of more rows, or whose columns are larger once they are decoded, is not small.
SMALL_BYTES: Final = 1 << 20
_MOST_ROWS, _MOST_DECODED_BYTES = 1 << 17, 16 << 20


def read_small_file(store: ObjectStore, file: BaseFile, fields: Sequence[pa.Field]) -> pa.Table | None:
    """Return columns of a base file; None: it is not small, or does not have each of them in its type.

    Args:
        store: the table's.
        file: the file.
        fields: the columns, at least one.

    Raises:
        SnapshotExpired: the file no longer exists.
        CorruptFile: it is damaged.
        StorageError: the store failed.
    """
    if not 0 < file.size <= SMALL_BYTES:
        return None
    filesystem, prefix = store.arrow_filesystem()
    with reading(file.path):
        with filesystem.open_input_file(prefix + file.path) as source:
            size = source.size()  # the commit may name another one
            if size > SMALL_BYTES:
                return None
            data = source.read_buffer(size)
        with parquet_file(pa.BufferReader(data)) as parquet:
            check_row_counts(parquet.metadata)
            if not (_is_small(parquet.metadata) and _has_all(parquet.schema_arrow, fields)):
                return None
            names = [field.name for field in fields]
            return parquet.read(columns=names, use_threads=False).select(names)


def _is_small(metadata: pq.FileMetaData) -> bool:
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return bool(
        metadata.num_rows <= _MOST_ROWS and sum(group.total_byte_size for group in groups) <= _MOST_DECODED_BYTES
    )


def _has_all(stored: pa.Schema, fields: Sequence[pa.Field]) -> bool:
    """Return whether a file has each of some columns once, in its type."""
    places = map(stored.get_field_index, (field.name for field in fields))
    return all(
        place >= 0 and stored.field(place).type.equals(field.type) for place, field in zip(places, fields, strict=True)
    )
