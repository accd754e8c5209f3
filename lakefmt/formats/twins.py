"""Columns that a base file stores twice: the record key and the column it comes from, byte for byte the same. Pure.

Keys are the longest values of most rows, and hard to compress: to encode or to decode the second copy is an eighth of
writing or reading a file. Two chunks of the same bytes, types and numbers hold the same values; chunks that differ may do
so, too, and are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Span", "equal_column", "leaf_paths", "possible_twin"]

#: So many first rows show of most columns that they are not the keys.
_SHOW = 64


@dataclass(frozen=True, slots=True)
class Span:
    """Where bytes are in a file."""

    offset: int
    size: int

    def is_within(self, file_size: int) -> bool:
        """Tell whether a file of that many bytes has them all: a footer may claim anything."""
        return 0 <= self.offset <= self.offset + self.size <= file_size


def equal_column(table: pa.Table, texts: pa.ChunkedArray, among: Sequence[str]) -> str | None:
    """Return the first of some columns whose values are `texts` in all rows; None: there is none.

    Example:
        >>> table = pa.table({"n": ["x", "y"], "id": ["a", "b"]})
        >>> equal_column(table, pa.chunked_array([["a"], ["b"]]), ["n", "id"])
        'id'
    """
    first = texts.slice(0, _SHOW)
    for name in among:
        column = table.column(name)
        if column.type == texts.type and column.slice(0, _SHOW).equals(first) and column.equals(texts):
            return name
    return None


def leaf_paths(metadata: pq.FileMetaData) -> list[str]:
    """Return the path of every column that a file stores, in its order."""
    return [metadata.schema.column(at).path for at in range(metadata.num_columns)]


def possible_twin(metadata: pq.FileMetaData, name: str) -> tuple[str, list[tuple[Span, Span]]] | None:
    """Return a column that may hold the same bytes as the column `name`, and where both have theirs; None: there is none.

    Args:
        metadata: a file's footer.
        name: a column of text that is not nested.
    """
    paths = leaf_paths(metadata)
    if name not in paths or not metadata.num_row_groups:
        return None
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    mine = paths.index(name)
    wanted = [_looks(group.column(mine)) for group in groups]
    for at, path in enumerate(paths):
        first = metadata.row_group(0).column(at)
        if at == mine or first.total_compressed_size != wanted[0][0] or not _same_kind(metadata.schema, at, mine):
            continue
        if [_looks(group.column(at)) for group in groups] == wanted:
            return path, [(_span(group.column(mine)), _span(group.column(at))) for group in groups]
    return None


def _looks(chunk: pq.ColumnChunkMetaData) -> tuple[int, int, int, str, Sequence[str], int]:
    """Return what two chunks of the same bytes have in common: sizes, values, how they are encoded, where pages begin."""
    return (
        chunk.total_compressed_size,
        chunk.total_uncompressed_size,
        chunk.num_values,
        chunk.compression,
        chunk.encodings,
        chunk.data_page_offset - _begin(chunk),
    )


def _same_kind(schema: pq.ParquetSchema, at: int, other: int) -> bool:
    one, two = schema.column(at), schema.column(other)
    kinds = [(c.physical_type, str(c.logical_type), c.max_definition_level, c.max_repetition_level) for c in (one, two)]
    return kinds[0] == kinds[1] and "." not in one.path


def _span(chunk: pq.ColumnChunkMetaData) -> Span:
    return Span(_begin(chunk), chunk.total_compressed_size)


def _begin(chunk: pq.ColumnChunkMetaData) -> int:
    return int(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)
