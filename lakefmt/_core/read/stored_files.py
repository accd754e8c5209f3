"""Base files that another reader of Parquet reads as they are: their footers and pages are checked here (effects: reads).

Other readers neither compare the checksums of pages nor know columns that were altered. A file of which they would make other rows
is left to :mod:`~lakefmt._core.read.scan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.reader import parquet_file, reading
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.formats.parquet.duplicate_columns import are_within, chunk_span, leaf_paths
from lakefmt._core.formats.parquet.page_search import are_whole
from lakefmt._core.read.scan import Query, reads_by_name

__all__ = ["StoredFile", "stored_files"]

#: Types of which all readers make the same values.
_PLAIN_TYPES: Final = (
    pt.is_boolean,
    pt.is_integer,
    pt.is_float32,
    pt.is_float64,
    pt.is_string,
    pt.is_binary,
    pt.is_date32,
    pt.is_timestamp,
    pt.is_decimal128,
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A local file from which any reader of Parquet gets the rows of a query.

    Attributes:
        path: of the file.
        decoded_bytes: of the columns of the query, about.
    """

    path: str
    decoded_bytes: int


def stored_files(
    table_at: TableAt, files: Sequence[BaseFile], query: Query
) -> Iterator[tuple[BaseFile, StoredFile | None]]:
    """Yield base files, each with what another reader needs of it; None: it has to be read here.

    Args:
        table_at: the table, at one moment.
        files: of it.
        query: the columns that are read, and the filter, which the other reader applies.

    Raises:
        SnapshotExpired: a file no longer exists.
        CorruptFile: a footer contradicts itself.
        StorageError: the store failed.
    """
    names = {*query.columns, *query.filter_columns}
    fields = [field for field in query.schema if field.name in names]
    filesystem, prefix = table_at.client.store.arrow_filesystem()
    are_plain = all(any(is_type(field.type) for is_type in _PLAIN_TYPES) for field in fields)
    if (
        not isinstance(filesystem, pafs.LocalFileSystem)
        or not are_plain
        or not fields
        or table_at.config.drop_partition_columns
    ):
        yield from ((file, None) for file in files)
        return
    has_names = reads_by_name(table_at, query)
    for file in files:
        yield file, _stored_file(filesystem, prefix + file.path, fields, file) if has_names(file) else None


def _stored_file(
    filesystem: pafs.FileSystem, path: str, fields: Sequence[pa.Field], file: BaseFile
) -> StoredFile | None:
    """Return a file if it has each column once, in its type, and all pages of these are whole."""
    decoded = 0
    with reading(file.path), filesystem.open_input_file(path) as source, parquet_file(source) as parquet:
        metadata, stored = parquet.metadata, parquet.schema_arrow
        check_row_counts(metadata)
        leaves = leaf_paths(metadata)
        numbers = [leaves.index(field.name) if leaves.count(field.name) == 1 else -1 for field in fields]
        if any(
            number < 0 or not stored.field(field.name).type.equals(field.type)
            for field, number in zip(fields, numbers, strict=True)
        ):
            return None
        for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
            for chunk in map(group.column, numbers):
                span = chunk_span(chunk)
                if not are_within([span], file.size):
                    return None
                if not are_whole(memoryview(source.read_at(span.size, span.offset))):
                    return None
                decoded += chunk.total_uncompressed_size
    return StoredFile(path, decoded)
