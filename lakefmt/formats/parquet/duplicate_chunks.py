"""Columns of a Parquet file that may hold the same bytes: their chunks agree in sizes, value counts and encodings.

The caller compares the bytes and decodes one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq

from lakefmt.formats.parquet.duplicate_columns import Span, leaf_paths

__all__ = ["find_duplicate_column"]


def find_duplicate_column(metadata: pq.FileMetaData, name: str) -> tuple[str, list[tuple[Span, Span]]] | None:
    """Return a column that may hold the same bytes as the column `name`, and where both have theirs; None: there is none.

    Args:
        metadata: a file's footer.
        name: a column of text that is not nested.
    """
    paths = leaf_paths(metadata)
    if name not in paths or not metadata.num_row_groups:
        return None
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    key_leaf = paths.index(name)
    wanted = [_looks(group.column(key_leaf)) for group in groups]
    for leaf, path in enumerate(paths):
        first = metadata.row_group(0).column(leaf)
        if (
            leaf == key_leaf
            or first.total_compressed_size != wanted[0][0]
            or not _same_kind(metadata.schema, leaf, key_leaf)
        ):
            continue
        if [_looks(group.column(leaf)) for group in groups] == wanted:
            return path, [(_span(group.column(key_leaf)), _span(group.column(leaf))) for group in groups]
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


def _same_kind(schema: pq.ParquetSchema, first: int, other: int) -> bool:
    leaf, two = schema.column(first), schema.column(other)
    kinds = [
        (c.physical_type, str(c.logical_type), c.max_definition_level, c.max_repetition_level) for c in (leaf, two)
    ]
    return kinds[0] == kinds[1] and "." not in leaf.path


def _span(chunk: pq.ColumnChunkMetaData) -> Span:
    return Span(_begin(chunk), chunk.total_compressed_size)


def _begin(chunk: pq.ColumnChunkMetaData) -> int:
    return int(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)
