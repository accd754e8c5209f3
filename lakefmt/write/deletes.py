"""Which keys a delete means: given as keys, or found by a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import SchemaMismatch
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.keys import KeySpec, build_record_keys
from lakefmt.write.incoming import open_stream, read_all

__all__ = ["keys_to_delete"]


def keys_to_delete(access: TableAccess, state: TableState, what: object) -> pa.StringArray:
    """Return the record keys of `what`: values of the key column, or rows that have the key columns.

    Raises:
        SchemaMismatch: a key column is missing, or a value has another type than its column.
        InvalidKey: a key is null or empty.
    """
    spec = access.key_spec(state.config)
    rows = _as_rows(what, spec, access.schema(state))
    keys = build_record_keys(spec, rows)
    return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys


def _as_rows(what: Any, spec: KeySpec, schema: pa.Schema) -> pa.Table:
    fields = spec.record_key_fields
    if isinstance(what, pa.Array | pa.ChunkedArray) or _is_plain_list(what):
        if len(fields) != 1:
            raise SchemaMismatch(f"keys of this table have the columns {', '.join(fields)}: give dicts or a table")
        return _cast(pa.table({fields[0]: _array(what, schema, fields[0])}), fields, schema)
    table = read_all(*open_stream(what))
    missing = [name for name in fields if name.split(".", 1)[0] not in table.column_names]
    if missing:
        raise SchemaMismatch(f"keys lack the column {', '.join(missing)}")
    return _cast(table, fields, schema)


def _is_plain_list(what: object) -> bool:
    return isinstance(what, Sequence) and not any(isinstance(item, Mapping | pa.RecordBatch | pa.Table) for item in what)


def _array(what: Any, schema: pa.Schema, name: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(what, pa.Array | pa.ChunkedArray):
        return what
    kind = schema.field(name).type if name in schema.names else None
    try:
        return pa.array(what, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SchemaMismatch(f"keys do not fit column {name!r} of type {kind}: {error}") from error


def _cast(table: pa.Table, fields: Sequence[str], schema: pa.Schema) -> pa.Table:
    columns: dict[str, pa.ChunkedArray] = {}
    for name in {f.split(".", 1)[0] for f in fields}:
        try:
            columns[name] = pc.cast(table.column(name), schema.field(name).type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            kind = schema.field(name).type
            raise SchemaMismatch(f"keys do not fit column {name!r} of type {kind}: {error}") from error
    return pa.table(columns)
