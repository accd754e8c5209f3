"""Which keys a delete means, and which rows an update makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arguments import field_names, foreign, foreign_items, shown
from lakefmt._core.arrays import distinct, from_numpy
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.stored_keys import asked_form, keyed_rows, stored_key_spec
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.index import IndexKeys, choose_index
from lakefmt._core.index.api import partitions_to_list, places_new_keys
from lakefmt._core.keys import KeySpec, build_partition_paths, build_record_keys
from lakefmt._core.read.filters import is_filter
from lakefmt._core.schema import conform
from lakefmt._core.schema.python_values import arrow_array, arrow_scalar
from lakefmt._core.schema.types import field_at, struct_fields
from lakefmt._core.values import META_COLUMNS, PARTITION_PATH, RECORD_KEY, PartitionPath
from lakefmt._core.write.commit.retry import read_or_spool
from lakefmt._core.write.ingest import (
    STORED_KEY,
    KeyedBatch,
    check_frame,
    in_no_partition,
    is_lazy_frame,
    is_pandas_frame,
    is_stream,
    object_values,
    open_stream,
    read_all,
)
from lakefmt._core.write.slice_state import find_stored
from lakefmt.errors import InvalidInputError, InvalidKey, SchemaMismatch

if TYPE_CHECKING:
    from lakefmt._core.write.commit.retry import SpooledRows

__all__ = [
    "DeleteKeys",
    "GivenKeys",
    "delete_rows",
    "given_to_delete",
    "keys_and_partitions",
    "keys_anywhere",
    "keys_to_delete",
    "slices_of_keys",
    "take_keys",
    "updated_rows",
]

_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Keys to remove, each once.

    Attributes:
        keys: record keys.
        homes: the partition of each; None: wherever they are.
        partitions: look only there; None: anywhere.
        selected: a filter selected them among the stored rows; False: the caller gave them, stored or not.
    """

    keys: pa.StringArray
    homes: pa.DictionaryArray | None = None
    partitions: tuple[PartitionPath, ...] | None = None
    selected: bool = False

    def listed(self) -> Sequence[PartitionPath] | None:
        """Return the partitions whose files have to be looked at; None: all."""
        if self.homes is None:
            return self.partitions
        present = self.homes.dictionary.to_pylist()  # partitions, not rows
        return [PartitionPath(p) for p in present if self.partitions is None or p in self.partitions]


def _resolve_delete_keys(keys: pa.StringArray, partitions: Sequence[str] | None) -> DeleteKeys:
    """Return keys that go wherever they are, or in the partitions named."""
    paths = None if partitions is None else tuple(PartitionPath(p) for p in partitions)
    return DeleteKeys(pc.unique(keys), None, paths)


def delete_rows(table_at: TableAt, rows: pa.Table, partitions: Sequence[str] | None) -> DeleteKeys:
    """Return the keys of rows that a filter selected, each in its own partition only.

    Args:
        table_at: the table, at one moment.
        rows: their key columns.
        partitions: look only there; None: anywhere.
    """
    return replace(_in_their_partitions(keyed_rows(table_at, rows), partitions), selected=True)


def _in_their_partitions(rows: pa.Table, partitions: Sequence[str] | None) -> DeleteKeys:
    """Return the keys of rows, each in its own partition, once."""
    pairs = rows.group_by([RECORD_KEY, PARTITION_PATH]).aggregate([])
    paths = None if partitions is None else tuple(PartitionPath(p) for p in partitions)
    own_partitions = pairs.column(PARTITION_PATH).combine_chunks().dictionary_encode()
    return DeleteKeys(pairs.column(RECORD_KEY).combine_chunks(), own_partitions, paths)


@dataclass(frozen=True, slots=True)
class GivenKeys:
    """What a caller wants deleted, taken out of whatever held it, so that it can be looked at more than once.

    Attributes:
        values: values of the one key column; None: they came as rows.
        rows: rows that have the key columns; None: they came as values.
        lacking: fields that some of the rows, given as dicts, have and others do not.
        spooled: rows that have the key columns, in a temporary file: they are more than may be held.
    """

    values: pa.ChunkedArray | Sequence[object] | None = None
    rows: pa.Table | None = None
    lacking: frozenset[str] = frozenset()
    spooled: SpooledRows | None = None

    def close(self) -> None:
        """Let go of a temporary file."""
        if self.spooled is not None:
            self.spooled.close()


def take_keys(what: Any, memory_bytes: Callable[[], int] | None = None) -> GivenKeys:
    """Return keys, or rows that hold them, out of any array, series, frame, list, set or iterator.

    Args:
        what: the keys or rows.
        memory_bytes: what may be held of a stream of rows: more of them go to a temporary file. None: all are held.

    Raises:
        InvalidInputError: it holds neither, or may be a filter.
        SchemaMismatch: rows do not fit together.
        StorageError: the temporary directory could not take the rows.
    """
    if is_lazy_frame(what):
        what = open_stream(what, stored_keys=True)[1]
    if memory_bytes is not None and isinstance(what, Iterator | pa.RecordBatchReader):
        return _take_stream(what, memory_bytes)
    if is_filter(what):
        raise InvalidInputError(
            f"{shown(what)} may be a filter or keys: give a filter as SQL text or as an Arrow expression, and keys that look "
            "like one as an Arrow array"
        )
    if isinstance(what, pa.Array | pa.ChunkedArray):
        return _column(pa.chunked_array([what]) if isinstance(what, pa.Array) else what)
    if isinstance(what, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return GivenKeys(rows=read_all(*open_stream(what, stored_keys=True)))
    check_frame(what)
    cannot = f"the keys of this {type(what).__name__} cannot be read"
    if str(getattr(what, "dtype", "")) == "object" and type(what).__name__ == "Series":
        return GivenKeys(values=foreign(lambda: object_values(what), cannot))
    if is_pandas_frame(what):  # its stream may lack its index
        return GivenKeys(rows=read_all(*open_stream(what, stored_keys=True)))
    if is_stream(what):
        # A series is a stream, too: of values instead of rows.
        return _column(foreign(lambda: pa.chunked_array(what), cannot))
    if not isinstance(what, type) and callable(getattr(what, "to_arrow", None)):
        return take_keys(foreign(what.to_arrow, cannot))
    if not isinstance(what, Iterable | Mapping) or isinstance(what, bytes | bytearray | memoryview):
        raise InvalidInputError(
            f"{shown(what)} is no list of keys: give one, also of a single key, such as [{shown(what)}]"
        )
    if isinstance(what, str | Mapping):
        return GivenKeys(rows=read_all(*open_stream(what, stored_keys=True)))
    items = list(foreign_items(what, cannot))
    if any(isinstance(item, Mapping) or is_stream(item) for item in items):
        return GivenKeys(rows=read_all(*open_stream(items, stored_keys=True)), lacking=_lacking(items))
    return GivenKeys(values=items)


def _take_stream(what: Any, memory_bytes: Callable[[], int]) -> GivenKeys:
    items = foreign_items(what, f"the keys of this {type(what).__name__} cannot be read")
    first = list(islice(items, 1))
    coming = chain(first, items)
    if not first or not is_stream(first[0]):
        return take_keys(coming)
    rows = read_or_spool(*open_stream(coming, stored_keys=True), memory_bytes())
    return GivenKeys(rows=rows) if isinstance(rows, pa.Table) else GivenKeys(spooled=rows)


def _column(column: pa.ChunkedArray) -> GivenKeys:
    if not pt.is_struct(column.type):
        return GivenKeys(values=column)
    batches = [pa.RecordBatch.from_struct_array(chunk) for chunk in column.chunks]
    return GivenKeys(rows=pa.Table.from_batches(batches, pa.schema(struct_fields(column.type))))


def _lacking(rows: Sequence[object]) -> frozenset[str]:
    dicts = [row for row in rows if isinstance(row, Mapping)]
    lacking = {name for name in field_names(dicts) if any(name not in row for row in dicts)}
    for name in set().union(*dicts) if any(isinstance(v, Mapping) for row in dicts for v in row.values()) else ():
        inner = [part if isinstance(part := row.get(name), Mapping) else {} for row in dicts]
        lacking.update(f"{name}.{each}" for each in _lacking(inner))
    return frozenset(lacking)


def keys_to_delete(table_at: TableAt, what: object) -> pa.StringArray:
    """Return the record keys of `what`: values of the key column, or rows that have the key columns.

    Raises:
        SchemaMismatch: a key column is missing, or a value has another type than its column.
        InvalidKey: a key is null or empty.
    """
    given = what if isinstance(what, GivenKeys) else take_keys([what] if isinstance(what, str) else what)
    return keys_and_partitions(table_at, given)[0]


def given_to_delete(
    table_at: TableAt, what: GivenKeys, partitions: Sequence[str] | None, options: Mapping[str, object]
) -> DeleteKeys:
    """Return the keys that a caller gave, each in its own partition where the rows have the partition columns.

    Args:
        table_at: the table, at one moment.
        what: what was given.
        partitions: look only there; None: anywhere.
        options: settings of the call: with a global index a key is one row of the whole table, and goes wherever it is.

    Raises:
        SchemaMismatch: a key column is missing, or a value has another type than its column.
        InvalidKey: a key is null or empty, or a partition value cannot be one.
    """
    settings = resolve_settings(options, table_at.client.options, table_at.config.properties)
    keys, own_partitions = keys_and_partitions(table_at, what, settings)
    if own_partitions is None or choose_index(table_at.client, settings, table_at.config).is_global:
        return _resolve_delete_keys(keys, partitions)
    rows = pa.table({RECORD_KEY: keys, PARTITION_PATH: own_partitions.cast(pa.string())})
    return _in_their_partitions(rows, partitions)


def keys_and_partitions(
    table_at: TableAt, what: GivenKeys, settings: Settings | None = None
) -> tuple[pa.StringArray, pa.DictionaryArray | None]:
    """Return the record keys that a caller gave, and their partitions where rows with the partition columns were given.

    Raises:
        SchemaMismatch: a key column is missing, or a value has another type than its column.
        InvalidKey: a key is null or empty, or a partition value cannot be one.
        UnsupportedFeature: keys are stored by another rule than the properties, or the settings, say.
    """
    settings = settings or resolve_settings({}, table_at.client.options, table_at.config.properties)
    anywhere = what.rows is None or choose_index(table_at.client, settings, table_at.config).is_global
    spec = stored_key_spec(table_at, asked_form(settings), anywhere=anywhere)
    if spec.auto_keys:
        return _stored_keys(what)
    rows = _as_rows(what, spec, table_at.schema())
    keys = build_record_keys(spec, rows)
    partitions = None
    own = [field.name for field in spec.partition_fields]
    if what.rows is not None and own and all(name in rows.column_names for name in own):
        partitions = build_partition_paths(spec, rows)
    return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys, partitions


def keys_anywhere(spec: KeySpec, rows: pa.Table, schema: pa.Schema) -> KeyedBatch:
    """Return keys to delete wherever they are, each once, and as rows the columns that they are made of.

    Args:
        spec: how keys are made; the table does not generate them.
        rows: rows that have the key columns.
        schema: the table's columns.

    Raises:
        SchemaMismatch: a key column is missing, or a value has another type than its column.
        InvalidKey: a key is null or empty.
    """
    names = {name.split(".", 1)[0] for name in spec.record_key_fields}
    own_columns = rows.select([name for name in rows.column_names if name in names])
    keys = build_record_keys(spec, _as_rows(GivenKeys(rows=own_columns), spec, schema))
    key_schema = pa.schema([schema.field(name).with_nullable(True) for name in own_columns.column_names])
    keyed = conform(own_columns, key_schema, allow_null_list_elements=True)
    flat = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    first = np.unique(flat.dictionary_encode().indices.to_numpy(zero_copy_only=False), return_index=True)[1]
    if len(first) < len(flat):
        once = from_numpy(np.sort(first))
        keyed, flat = keyed.take(once), flat.take(once)
    return KeyedBatch(keyed, flat, in_no_partition(len(flat)))


def _has(table: pa.Table, names: Iterable[str]) -> bool:
    return all(field_at(table.schema, name) is not None for name in names)


def _stored_keys(what: GivenKeys) -> tuple[pa.StringArray, pa.DictionaryArray | None]:
    """Return keys of a table that generates them, as texts or among rows: only ``_hoodie_record_key`` has them."""
    if what.values is not None:
        given = pa.table({RECORD_KEY: _values(what.values, pa.string(), RECORD_KEY)})
    elif what.rows is not None and RECORD_KEY in what.rows.column_names and RECORD_KEY not in what.lacking:
        given = what.rows.select([name for name in STORED_KEY if name in what.rows.column_names])
    else:
        raise SchemaMismatch(
            f"the table generates its keys: give stored keys as texts, or rows that bring the {RECORD_KEY} with which they "
            "were read (meta_columns=True)"
        )
    conformed = conform(given, pa.schema([pa.field(name, pa.string()) for name in given.column_names]))
    keys = conformed.column(RECORD_KEY).combine_chunks()
    if keys.null_count:
        raise InvalidKey(f"{keys.null_count} of {len(keys)} keys are null")
    if PARTITION_PATH not in given.column_names or conformed.column(PARTITION_PATH).null_count:
        return keys, None
    return keys, conformed.column(PARTITION_PATH).combine_chunks().dictionary_encode()


def _as_rows(what: GivenKeys, spec: KeySpec, schema: pa.Schema) -> pa.Table:
    """Return the fields that make the key, and those of the partition that were given, each as a column of its own name.

    A field inside a struct may be given as the struct, which need not have other fields, or as a column such as ``s.id``.
    """
    fields = spec.record_key_fields
    if what.values is not None:
        if len(fields) != 1:
            raise SchemaMismatch(f"keys of this table have the columns {', '.join(fields)}: give dicts or a table")
        field = field_at(schema, fields[0])
        table = pa.table({fields[0]: _values(what.values, None if field is None else field.type, fields[0])})
    else:
        table = what.rows
    paths = list(dict.fromkeys((*fields, *(field.name for field in spec.partition_fields))))
    columns = {path: column for path in paths if (column := _column_at(table, path)) is not None}
    if missing := [name for name in fields if name not in columns]:
        raise SchemaMismatch(f"keys lack the column {', '.join(missing)}")
    # A null is a partition of its own: where a row is meant to be that does not name its partition is not known.
    needed_paths = {".".join(path.split(".")[: n + 1]) for path in paths for n in range(path.count(".") + 1)}
    if unclear := sorted(what.lacking & needed_paths):
        raise SchemaMismatch(f"some rows lack the field {', '.join(map(repr, unclear))} that others have")
    # What is asked of the columns that are stored is asked of no others.
    key_fields = {path: field for path in columns if (field := field_at(schema, path)) is not None}
    if unknown := [path for path in columns if path not in key_fields]:
        raise SchemaMismatch(
            f"the table has no column {', '.join(map(repr, unknown))}: it has {', '.join(schema.names)}"
        )
    types = pa.schema([(path, field.type) for path, field in key_fields.items()])
    return conform(pa.table(columns), types, allow_null_list_elements=True)


def _column_at(table: pa.Table, path: str) -> pa.ChunkedArray | None:
    """Return a column, or a field of one that holds structs; None: the rows do not have it."""
    first, *rest = path.split(".")
    if twice := [name for name in {path, first} if table.column_names.count(name) > 1]:
        raise SchemaMismatch(f"column names appear more than once: {', '.join(twice)}")
    if path in table.column_names:
        return table.column(path)
    if first not in table.column_names:
        return None
    column = table.column(first)
    for part in rest:
        if not pt.is_struct(column.type) or column.type.get_field_index(part) < 0:
            return None
        column = pc.struct_field(column, part)
    return column


def _values(what: Any, data_type: pa.DataType | None, name: str) -> pa.Array | pa.ChunkedArray:
    return what if isinstance(what, pa.ChunkedArray) else arrow_array(what, data_type, name)


def updated_rows(
    table_at: TableAt, rows: pa.Table, values: Mapping[str, object], expressions: Mapping[str, str] | None = None
) -> pa.Table:
    """Return rows with columns set to new values.

    Args:
        table_at: the table, at one moment.
        rows: every column of the rows to change.
        values: column → literal or Arrow expression over the row.
        expressions: column → SQL expression over the row.

    Raises:
        InvalidInputError: a column is not there, or makes the key or the partition path.
        InvalidExpression: an expression cannot be understood.
        SchemaMismatch: a value does not fit its column.
    """
    spec = table_at.key_spec()
    fixed = {name.split(".", 1)[0] for name in (*spec.record_key_fields, *(f.name for f in spec.partition_fields))}
    for name in (*values, *(expressions or ())):
        if name not in rows.column_names or name in META_COLUMNS:
            there = [each for each in rows.column_names if each not in META_COLUMNS]
            raise InvalidInputError(f"no column {name!r}; the table has {there}")
        if name in fixed:
            raise InvalidInputError(
                f"column {name!r} makes the row's key or partition: delete the row and insert it anew"
            )
    # Where keys are generated the rows bring their own.
    names = [name for name in rows.column_names if name not in META_COLUMNS or name in STORED_KEY]
    rows = rows.select(names)
    if expressions:
        from lakefmt._core.read.sql_expressions import parse_expression  # few programs update by SQL

        values = {
            **values,
            **{
                name: parse_expression(sql, rows.schema, target=rows.schema.field(name).type).expression
                for name, sql in expressions.items()
            },
        }
    projection = {
        name: _new_value(values[name], rows.schema.field(name)) if name in values else pc.field(name) for name in names
    }
    import pyarrow.dataset as ds  # takes long to import, and few calls need it

    # Arrow makes no column of an empty batch and a list that is the same for all rows.
    filled = pa.Table.from_batches([batch for batch in rows.to_batches() if batch.num_rows], rows.schema)
    made = foreign(
        lambda: ds.dataset(filled).to_table(columns=projection), "a new value cannot be computed", SchemaMismatch
    )
    return conform(made, rows.schema, allow_null_list_elements=True)  # the write refuses what a setting refuses


def _new_value(value: object, field: pa.Field) -> pc.Expression:
    if isinstance(value, pc.Expression):
        return value
    return pc.scalar(arrow_scalar(value, field.type, field.name))


def slices_of_keys(
    table_at: TableAt, options: Mapping[str, object], keys: pa.StringArray, partitions: pa.Array
) -> list[FileSlice]:
    """Return the file slices in which some keys are, or were deleted.

    Args:
        table_at: the table, at one moment.
        options: settings of the call; they may name another index.
        keys: the keys.
        partitions: the partition path that each is meant for; a global index looks in all of them.

    Raises:
        SnapshotExpired: a file is gone.
        CorruptFile: a footer or a key column is damaged.
    """
    settings = resolve_settings({**table_at.client.options, **options}, None, table_at.config.properties)
    index = choose_index(table_at.client, settings, table_at.config, table_at.state)
    index_keys = IndexKeys(keys, partitions.dictionary_encode())
    if places_new_keys(index):
        slices = table_at.slices([PartitionPath(path) for path in index_keys.partition_names()])
        groups = set(index.place(index_keys, slices, lambda: _NO_UUID).file_groups)
        return [each for each in slices if (each.partition, each.file_id) in groups]
    slices = table_at.slices(partitions_to_list(index, index_keys))
    located = find_stored(table_at, index, index_keys, slices, alive=False)
    return [slices[number] for number in distinct(located.slices)]
