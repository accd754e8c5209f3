"""Pages of a file that its rewrite stores as they are, where no value of their column has changed. Pure.

To encode and compress a column again for the bytes that the file has already was two thirds of what rewriting it cost.
A row group takes such pages when it has all rows of an older row group, in their order; what the older footer says of them,
statistics among it, goes along.

The older footer is Arrow's: it is parsed by Arrow, written again by Arrow, and only that is walked here.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.errors import InternalError
from lakefmt.formats.parquet.duplicate_columns import ChunkNote, Span, are_within, chunk_notes, footer_of, leaf_paths

__all__ = ["keepable_chunks"]

_CREATED_BY = "parquet-cpp-arrow"


def keepable_chunks(
    metadata: pq.FileMetaData, schema: pa.Schema, codec: str, file_size: int
) -> list[Mapping[str, ChunkNote]]:
    """Return what a footer says of the columns whose pages another file can have as they are, row group by row group.

    Args:
        metadata: the footer of the file that has the pages, written by lakefmt.
        schema: the columns of the other file, as its writer stores them.
        codec: the compression of the other file.
        file_size: bytes of the file that has the pages.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if not metadata.created_by.startswith(_CREATED_BY):
        return []
    leaves = _equal_leaves(metadata, schema)
    try:
        noted = chunk_notes(_written_again(metadata))
    except (InternalError, IndexError):  # a footer that Arrow reads may still hold what is not expected here
        return []
    if [len(notes) for notes in noted] != [metadata.num_columns] * len(groups):
        return []
    keepable: list[Mapping[str, ChunkNote]] = []
    for group, notes in zip(groups, noted, strict=True):
        kept: dict[str, ChunkNote] = {}
        for name, leaf in leaves.items():
            chunk, note = group.column(leaf), notes[leaf]
            if note is not None and _fits(chunk, group.num_rows, codec) and _is_inside(note, file_size):
                kept[name] = note
        keepable.append(kept)
    return keepable


def _written_again(metadata: pq.FileMetaData) -> bytes:
    sink = io.BytesIO()
    metadata.write_metadata_file(sink)
    return footer_of(sink.getbuffer())


def _equal_leaves(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, int]:
    """Return the plain nullable columns that both files store in the same way, with their numbers in the older one."""
    sink = io.BytesIO()
    # As the writer of base files has it, but for what does not change how a column is declared.
    with pq.ParquetWriter(sink, schema, store_schema=False, use_compliant_nested_type=True, version="2.6") as writer:
        pass
    wanted = writer.writer.metadata
    declared = {path: wanted.schema.column(leaf) for leaf, path in enumerate(leaf_paths(wanted))}
    equal = {}
    for leaf, path in enumerate(leaf_paths(metadata)):
        column, other = metadata.schema.column(leaf), declared.get(path)
        is_plain = "." not in path and (column.max_definition_level, column.max_repetition_level) == (1, 0)
        if other is not None and is_plain and column.equals(other):
            equal[path] = leaf
    return equal


def _fits(chunk: pq.ColumnChunkMetaData, num_rows: int, codec: str) -> bool:
    wanted = "UNCOMPRESSED" if codec == "none" else codec.upper()
    return bool(chunk.compression == wanted and chunk.num_values == num_rows)


def _is_inside(note: ChunkNote, file_size: int) -> bool:
    return note.size > 0 and are_within([Span(note.begin, note.size)], file_size)
