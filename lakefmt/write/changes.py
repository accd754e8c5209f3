"""Which keys a delete means, and which rows an update makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import InvalidInputError, SchemaMismatch
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.keys import KeySpec, build_partition_paths, build_record_keys
from lakefmt.schema import conform
from lakefmt.values import PARTITION_PATH, RECORD_KEY, PartitionPath
from lakefmt.write.incoming import open_stream, read_all

__all__ = ["DoomedKeys", "doomed_keys", "doomed_rows", "key_columns", "keys_to_delete", "updated_rows"]


@dataclass(frozen=True, slots=True)
class DoomedKeys:
    """Keys to remove, each once.

    Attributes:
        keys: record keys.
        homes: the partition of each; None: wherever they are.
        partitions: look only there; None: anywhere.
    """

    keys: pa.StringArray
    homes: pa.DictionaryArray | None = None
    partitions: tuple[PartitionPath, ...] | None = None

    def listed(self) -> Sequence[PartitionPath] | None:
        """Return the partitions whose files have to be looked at; None: all."""
        if self.homes is None:
            return self.partitions
        present = self.homes.dictionary.to_pylist()  # partitions, not rows
        return [PartitionPath(p) for p in present if self.partitions is None or p in self.partitions]


def doomed_keys(keys: pa.StringArray, partitions: Sequence[str] | None) -> DoomedKeys:
    """Return keys that go wherever they are, or in the partitions named."""
    places = None if partitions is None else tuple(PartitionPath(p) for p in partitions)
    return DoomedKeys(pc.unique(keys), None, places)


def key_columns(access: TableAccess, state: TableState) -> list[str]:
    """Return the columns that tell a row's key and partition path: the meta columns, or what they are made from."""
    if state.config.populate_meta_fields:
        return [RECORD_KEY, PARTITION_PATH]
    spec = access.key_spec(state.config)
    names = (*spec.record_key_fields, *(field.name for field in spec.partition_fields))
    return list(dict.fromkeys(name.split(".", 1)[0] for name in names))


def doomed_rows(access: TableAccess, state: TableState, rows: pa.Table, partitions: Sequence[str] | None) -> DoomedKeys:
    """Return the keys of rows that a filter selected, each in its own partition only.

    Args:
        access: the table.
        state: the table when the rows were read.
        rows: their :func:`key_columns`.
        partitions: look only there; None: anywhere.
    """
    if not state.config.populate_meta_fields:
        spec = access.key_spec(state.config)
        places = build_partition_paths(spec, rows).cast(pa.string())
        rows = pa.table({RECORD_KEY: build_record_keys(spec, rows), PARTITION_PATH: places})
    pairs = rows.group_by([RECORD_KEY, PARTITION_PATH]).aggregate([])
    places = None if partitions is None else tuple(PartitionPath(p) for p in partitions)
    homes = pairs.column(PARTITION_PATH).combine_chunks().dictionary_encode()
    return DoomedKeys(pairs.column(RECORD_KEY).combine_chunks(), homes, places)


def keys_to_delete(access: TableAccess, state: TableState, what: object) -> pa.StringArray:
    """Return the record keys of `what`: values of the key column, or rows that have the key columns.

    Raises:
        SchemaMismatch: a key column is missing, or a value has another type than its column.
        InvalidKey: a key is null or empty.
    """
    spec = access.key_spec(state.config)
    if spec.auto_keys:
        return _stored_keys(what)
    rows = _as_rows(what, spec, access.schema(state))
    keys = build_record_keys(spec, rows)
    return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys


def _stored_keys(what: object) -> pa.StringArray:
    """Return keys of a table that generates them: nobody knows them but from ``_hoodie_record_key``."""
    try:
        keys = what if isinstance(what, pa.Array | pa.ChunkedArray) else pa.array(what, pa.string())
        return pc.cast(keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise SchemaMismatch(f"the table generates its keys: give stored keys as texts ({error})") from error


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
    return isinstance(what, Sequence) and not any(
        isinstance(item, Mapping | pa.RecordBatch | pa.Table) for item in what
    )


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


def updated_rows(access: TableAccess, state: TableState, rows: pa.Table, values: Mapping[str, object]) -> pa.Table:
    """Return rows with columns set to new values.

    Args:
        access: the table.
        state: the table when the rows were read.
        rows: every column of the rows to change.
        values: column → literal or Arrow expression over the row.

    Raises:
        InvalidInputError: a column is not there, or makes the key or the partition path.
        SchemaMismatch: a value does not fit its column.
    """
    spec = access.key_spec(state.config)
    fixed = {name.split(".", 1)[0] for name in (*spec.record_key_fields, *(f.name for f in spec.partition_fields))}
    for name in values:
        if name not in rows.column_names:
            raise InvalidInputError(f"no column {name!r}; the table has {rows.column_names}")
        if name in fixed:
            raise InvalidInputError(
                f"column {name!r} makes the row's key or partition: delete the row and insert it anew"
            )
    projection = {
        name: _new_value(values[name], rows.schema.field(name)) if name in values else pc.field(name)
        for name in rows.column_names
    }
    import pyarrow.dataset as ds  # takes long to import, and few calls need it

    try:
        made = ds.dataset(rows).to_table(columns=projection)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaMismatch(f"a new value cannot be computed: {error}") from error
    return conform(made, rows.schema)


def _new_value(value: object, field: pa.Field) -> pc.Expression:
    if isinstance(value, pc.Expression):
        return value
    try:
        return pc.scalar(value if isinstance(value, pa.Scalar) else pa.scalar(value, field.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaMismatch(f"{value!r} does not fit column {field.name!r} of type {field.type}: {error}") from error
