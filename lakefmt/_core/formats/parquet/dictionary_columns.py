"""Texts that repeat, kept as a base file has them: a list of values, and a number into it for each row. Pure.

A rewritten file takes most of its rows over from the file before. A column of few texts is stored there by a dictionary;
to spell its texts out, row by row, only to collect them again for the new file, is a tenth of an upsert.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy
from lakefmt._core.formats.parquet.duplicate_columns import leaf_paths

__all__ = [
    "appended",
    "decoded_dictionaries",
    "dictionary_column_names",
    "dictionary_schema",
    "replaced_codes",
    "same_text",
    "with_dictionaries",
    "without_unused",
]

#: With fewer rows than this, the calls cost more than the texts.
_MANY_ROWS = 4096
#: Bytes of each value, in the file but before compression, of a column whose dictionary did not overflow: a dictionary with
#: a number for each row takes less, texts take more.
_FEW_BYTES = 4


def dictionary_column_names(metadata: pq.FileMetaData, names: Collection[str]) -> list[str]:
    """Return which of the columns `names` a file stores by dictionaries that are small beside its rows."""
    if metadata.num_rows < _MANY_ROWS:
        return []
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        path
        for leaf, path in enumerate(leaf_paths(metadata))
        if path in names and all(_is_coded(group.column(leaf), group.num_rows) for group in groups)
    ]


def _is_coded(chunk: pq.ColumnChunkMetaData, num_rows: int) -> bool:
    return bool(chunk.has_dictionary_page) and chunk.total_uncompressed_size <= _FEW_BYTES * num_rows


def with_dictionaries(schema: pa.Schema, columns: Iterable[pa.Array | pa.ChunkedArray | pa.Field | None]) -> pa.Schema:
    """Return `schema` with dictionaries where `columns`, in its order, have them of the same texts."""
    given = list(columns)
    if len(given) != len(schema):
        raise ValueError(f"{len(given)} columns for a schema of {len(schema)}")
    for number, column in enumerate(given):
        # Most files have no such column: fields are looked at where one is.
        if column is not None and isinstance(column.type, pa.DictionaryType):
            field = schema.field(number)
            if column.type.value_type == field.type:
                schema = schema.set(number, field.with_type(column.type))
    return schema


def dictionary_schema(schema: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """Return `schema` with dictionaries where `stored` has them of the same texts."""
    names = set(stored.names)
    return with_dictionaries(schema, [stored.field(name) if name in names else None for name in schema.names])


def decoded_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with texts where it has dictionaries of them."""
    for number, field in enumerate(schema):
        if pt.is_dictionary(field.type):
            schema = schema.set(number, field.with_type(field.type.value_type))
    return schema


def same_text(text: str, count: int) -> pa.DictionaryArray:
    """Return a column of one text.

    Example:
        >>> same_text("a", 2).to_pylist()
        ['a', 'a']
    """
    return pa.DictionaryArray.from_arrays(from_numpy(np.zeros(count, np.int32)), pa.array([text], pa.string()))


def replaced_codes(
    column: pa.ChunkedArray, values: pa.Array, replace: Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.Array]
) -> pa.DictionaryArray:
    """Return a column with the texts `values` in some rows.

    Args:
        column: texts by a dictionary.
        values: texts, spelt out.
        replace: puts the second column's numbers, one for each of `values`, in some rows of the first one.

    Example:
        >>> kind = pa.dictionary(pa.int32(), pa.string())
        >>> first_goes = lambda old, new: pa.concat_arrays([*new.chunks, *old.slice(len(new)).chunks])
        >>> replaced_codes(pa.chunked_array([["a", "b"]], kind), pa.array(["c"]), first_goes).to_pylist()
        ['c', 'b']
    """
    old, new = _joined(column), values.dictionary_encode()
    old_codes = pc.index_in(new.dictionary, value_set=old.dictionary)
    added = new.dictionary.filter(pc.is_null(old_codes))
    dictionary = pa.concat_arrays([old.dictionary, added]) if len(added) else old.dictionary
    numbers = pc.index_in(new.dictionary, value_set=dictionary).take(new.indices)
    indices = replace(pa.chunked_array([old.indices]), pa.chunked_array([numbers.cast(old.indices.type)]))
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def appended(rows: pa.Table, more: pa.Table) -> pa.Table:
    """Return rows with `more` behind them, whose texts are spelt out."""
    for number, field in enumerate(rows.schema):
        if pt.is_dictionary(field.type):
            more = more.set_column(number, field, more.column(number).cast(field.type))
    return pa.concat_tables([rows, more])


def without_unused(rows: pa.Table) -> pa.Table:
    """Return rows whose dictionaries hold no text that no row has: what was replaced or deleted must not be stored on."""
    for number, field in enumerate(rows.schema):
        if pt.is_dictionary(field.type):
            rows = rows.set_column(number, field, _tidy(_joined(rows.column(number))))
    return rows


def _tidy(column: pa.DictionaryArray) -> pa.DictionaryArray:
    indices = column.indices.drop_null() if column.indices.null_count else column.indices
    used = np.bincount(indices.to_numpy(zero_copy_only=True), minlength=len(column.dictionary)) > 0
    if used.all():
        return column
    new_indices = from_numpy((np.cumsum(used) - 1).astype(np.int32))
    dictionary = column.dictionary.filter(from_numpy(used))
    return pa.DictionaryArray.from_arrays(new_indices.take(column.indices), dictionary)


def _joined(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
