"""Rows of segments in the columns of a table, and the numbers of their keys (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.arrays import from_numpy
from lakefmt.keys import KeySpec, build_partition_paths, build_record_keys
from lakefmt.schema import check_required, conform
from lakefmt.segments.codec import COLUMNS, OPERATOR
from lakefmt.segments.resolve import joined_rows
from lakefmt.values import PARTITION_PATH, RECORD_KEY

__all__ = [
    "check_storable",
    "codes_in",
    "fill_required",
    "fitted",
    "fitted_together",
    "key_columns_of",
    "number_keys",
    "row_identities",
    "stored_identities",
]

Numbers = npt.NDArray[np.int64]


def key_columns_of(spec: KeySpec) -> tuple[str, ...]:
    """Return the columns that make a row's key and its partition path."""
    names = (*spec.record_key_fields, *(field.name for field in spec.partition_fields))
    return tuple(dict.fromkeys(name.split(".", 1)[0] for name in names))


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of segments with the columns of a table, all nullable, and the columns of the stream.

    A column or field that the table does not have any more is left out, as it is from the table's own rows.

    Args:
        rows: of segments, with the names of today.
        schema: the table's.

    Raises:
        SchemaMismatch: a value does not fit its column any more.
    """
    wanted = pa.schema([field.with_nullable(True) for field in schema])
    kept = rows.select([name for name in rows.column_names if name in schema.names])
    made = conform(kept, wanted, allow_null_list_elements=True, drops_fields=True)
    for name in (OPERATOR, COLUMNS):
        if name in rows.column_names:
            made = made.append_column(name, rows.column(name))
    return made


def fitted_together(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the rows of several segments as one table, with the columns that :func:`fitted` gives them.

    Args:
        tables: the rows of each segment, with the names of today; their structs may have other fields.
        schema: the table's.

    Raises:
        SchemaMismatch: a value does not fit its column any more.
    """
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return fitted(pa.concat_tables(tables), schema)
    # Releases of Arrow join structs with other fields in different ways, or not at all.
    return joined_rows([fitted(table, schema) for table in tables])


def row_identities(spec: KeySpec, rows: pa.Table, *, across: bool) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return what tells a row of others, its record key and its partition path.

    Args:
        spec: how keys are made.
        rows: with the columns that make them.
        across: a key is one row of the whole table; False: of its partition.

    Raises:
        InvalidKey: a key or partition value cannot be used.
    """
    keys, partitions = _flat(build_record_keys(spec, rows)), _flat(build_partition_paths(spec, rows)).cast(pa.string())
    return _identities(keys, partitions, across=across), keys, partitions


def check_storable(spec: KeySpec, rows: pa.Table, *, keyed: bool) -> None:
    """Refuse rows that no commit could store: once durable, they would be in the way of every commit of their stream.

    Args:
        spec: how keys and partition paths are made.
        rows: of a segment; columns that an operator does not need are null.
        keyed: they have record keys of their own.

    Raises:
        InvalidKey: a key or partition value cannot be used.
        SchemaMismatch: a value inside a column is null, and must not be.
    """
    if keyed:
        build_record_keys(spec, rows)
    if spec.partition_fields:
        build_partition_paths(spec, rows)
    check_required(rows)


def stored_identities(rows: pa.Table, *, across: bool) -> pa.Array:
    """Return what tells stored rows, which have meta columns, of others."""
    return _identities(
        _flat(rows.column(RECORD_KEY)), _flat(rows.column(PARTITION_PATH)).cast(pa.string()), across=across
    )


def _identities(keys: pa.Array, partitions: pa.Array, *, across: bool) -> pa.Array:
    return keys if across else pc.binary_join_element_wise(partitions, keys, "\x00")


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def number_keys(identities: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return a number for each row, the same for the same key, and the keys by number.

    Example:
        >>> numbers, keys = number_keys(pa.array(["a", "b", "a"]))
        >>> numbers.tolist(), keys.to_pylist()
        ([0, 1, 0], ['a', 'b'])
    """
    coded = identities.dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary


def codes_in(identities: pa.Array, keys: pa.Array) -> Numbers:
    """Return the number of each key among `keys`; -1: it is not there."""
    places = _flat(pc.fill_null(pc.index_in(identities, value_set=keys), -1))
    codes: Numbers = places.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def fill_required(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in a schema; nulls in its required columns become zeros.

    Rows that delete their key have no values there, and what stands for them is never stored.
    """
    columns = []
    for field in schema:
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            zero = pa.array([_zero(field.type)], field.type)
            both = pa.chunked_array([*column.chunks, zero], field.type)
            places = np.where(column.is_null().to_numpy(zero_copy_only=False), len(column), np.arange(len(column)))
            column = both.take(from_numpy(places))
        columns.append(column)
    return pa.table(columns, schema=schema)


def _zero(kind: pa.DataType) -> Any:
    """Return a value of a type."""
    if pt.is_struct(kind):
        return {field.name: None if field.nullable else _zero(field.type) for field in kind}
    if pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind):
        return []
    if pt.is_fixed_size_list(kind):
        return [_zero(kind.value_type)] * kind.list_size
    if pt.is_string(kind) or pt.is_large_string(kind):
        return ""
    if pt.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return b""
    return False if pt.is_boolean(kind) else 0
