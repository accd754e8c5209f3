"""Ingest: anything that holds Arrow data becomes a batch in the table's schema with keys and partition paths."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arguments import field_names, foreign, foreign_items, shown
from lakefmt._core.arrays import distinct, follow_each_other, from_numpy, rows_at
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.precombine import combine_rows
from lakefmt._core.keys import KeySpec, build_new_partition_paths, build_partition_paths, build_record_keys
from lakefmt._core.schema import conform
from lakefmt._core.schema.python_values import arrow_array
from lakefmt._core.schema.types import holds_type
from lakefmt._core.values import META_COLUMNS, OPERATION, PARTITION_PATH, RECORD_KEY
from lakefmt._core.write.assign import Assigned
from lakefmt._core.write.context import MOVED_AWAY
from lakefmt.errors import InvalidInputError, InvalidKey, SchemaMismatch

__all__ = [
    "STORED_KEY",
    "KeyedBatch",
    "SupportsArrow",
    "brought_keys",
    "check_frame",
    "combine",
    "combine_alike",
    "combine_in_files",
    "handed_out",
    "holds_no_rows",
    "in_no_partition",
    "is_lazy_frame",
    "is_pandas_frame",
    "is_stream",
    "key_batch",
    "memory_of_rows",
    "object_values",
    "open_stream",
    "pick_rows",
    "read_all",
    "record_keys",
    "rows_of_dicts",
    "with_keys",
    "with_stored_keys",
    "without_index",
    "without_stored_keys",
]

T = TypeVar("T")

#: The meta columns that tell a stored row again.
STORED_KEY: Final = (RECORD_KEY, PARTITION_PATH)

Rows = npt.NDArray[np.int64]

#: How Arrow names a level of an index that has no name.
_UNNAMED_INDEX: Final = re.compile(r"__index_level_[0-9]+__", re.ASCII)
#: What pandas calls objects of one class, whose values Arrow takes as they are.
_ARROW_KINDS_OF_PANDAS: Final = frozenset({"string", "bytes", "boolean", "integer", "floating", "decimal", "empty"})


#: Values among which maps may be.
_NESTED: Final = (Mapping, list, tuple)


@runtime_checkable
class SupportsArrow(Protocol):
    """Anything with Arrow's stream interface: pandas, Polars, and the like."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the data as an Arrow stream capsule."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Rows with their keys and partitions; equal lengths, no nulls among keys. ``keys`` None: they are generated."""

    table: pa.Table
    keys: pa.StringArray | None
    partitions: pa.DictionaryArray

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.partitions)

    def take(self, rows: pa.Array) -> KeyedBatch:
        """Return the rows numbered."""
        keys = None if self.keys is None else self.keys.take(rows)
        return KeyedBatch(self.table.take(rows), keys, self.partitions.take(rows))

    def partitions_and_keys(self) -> pa.Array:
        """Return each row's partition and key as one string; where keys are generated, the partition."""
        names = self.partitions.cast(pa.string())
        return names if self.keys is None else pc.binary_join_element_wise(names, self.keys, "\x00")


def record_keys(batch: KeyedBatch) -> pa.StringArray:
    """Return a batch's keys.

    Raises:
        InvalidKey: the table's keys are generated, so rows have none that could be looked up.
    """
    if batch.keys is None:
        raise InvalidKey(
            "the table has no record key (its keys are generated): rows can be inserted, and updated where they bring the "
            f"{RECORD_KEY} with which they were read (meta_columns=True)"
        )
    return batch.keys


def in_no_partition(rows: int) -> pa.DictionaryArray:
    """Return the partitions of rows that are meant for none in particular, as a delete by key has them."""
    return pa.DictionaryArray.from_arrays(from_numpy(np.zeros(rows, np.int32)), pa.array([""], pa.string()))


def pick_rows(batch: KeyedBatch, rows: Rows) -> pa.Table:
    """Return rows by number with their record keys; rows that follow one another are not copied."""
    table = rows_at(batch.table, rows)
    if batch.keys is None:
        return table
    follows = follow_each_other(rows)
    return with_keys(table, batch.keys.slice(int(rows[0]), len(rows)) if follows else batch.keys.take(from_numpy(rows)))


def with_keys(table: pa.Table, keys: pa.StringArray | None) -> pa.Table:
    """Return rows with their record keys as the first column; as they are when keys are generated."""
    if keys is None:
        return table
    # A delete by key carries no columns, and a table without columns has no rows to add to.
    return table.add_column(0, RECORD_KEY, keys) if table.num_columns else pa.table({RECORD_KEY: keys})


def open_stream(
    data: object, *, stored_keys: bool = False, table_schema: Callable[[], pa.Schema] | None = None
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Return the schema and the tables of anything that holds Arrow data; iterables are not read ahead.

    Meta columns among the data are dropped, so that what was read with them can be written again.

    Args:
        data: what holds the rows.
        stored_keys: keep those columns that tell a stored row again (``STORED_KEY``): a table that generates its keys knows
            it by no other.
        table_schema: returns the table's columns; called for rows given as dicts where values do not tell the type: dicts
            among them may be maps, and a column may have nothing but missing values. None: dicts are structs.

    Raises:
        InvalidInputError: `data` holds no Arrow data, or its holder fails to give it.
        SchemaMismatch: rows given as dicts do not fit together, or rows have no columns.
    """
    schema, tables = _open_data(data, table_schema)
    foreign(lambda: schema.names, _cannot_read(data))  # a name that is no UTF-8 fails here
    extra = [name for name in (*META_COLUMNS, OPERATION, *_unnamed_index(schema)) if name in schema.names]
    if stored_keys and RECORD_KEY in extra:
        extra = [name for name in extra if name not in STORED_KEY]
    stored_schema = pa.schema([f for f in schema if f.name not in extra]) if extra else schema
    if not stored_schema.names:
        return stored_schema, _refuse_rows(tables, schema)
    return (stored_schema, (table.select(stored_schema.names) for table in tables)) if extra else (schema, tables)


def without_index(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the index of a pandas frame that has no name: Arrow carries it as a column.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"id": ["a", "b"]})[1:]
        >>> without_index(pa.Table.from_pandas(frame, preserve_index=True).schema).names
        ['id']
    """
    index = _unnamed_index(schema)
    return pa.schema([f for f in schema if f.name not in index], schema.metadata) if index else schema


def _unnamed_index(schema: pa.Schema) -> list[str]:
    notes = schema.metadata if isinstance(schema, pa.Schema) else None  # what is no schema is refused where it is read
    note = None if notes is None else notes.get(b"pandas")
    if note is None:
        return []
    try:
        columns = json.loads(note)["index_columns"]
        return [name for name in columns if isinstance(name, str) and _UNNAMED_INDEX.fullmatch(name)]
    except (ValueError, KeyError, TypeError):
        return []  # whoever wrote it, the columns are there


def _refuse_rows(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield tables that have no columns, as long as they have no rows either."""
    for table in tables:
        if table.num_rows:
            raise SchemaMismatch(f"{table.num_rows} rows have no columns{' but meta columns' if schema.names else ''}")
        yield table.select([])


def _open_data(data: Any, table_schema: Callable[[], pa.Schema] | None = None) -> tuple[pa.Schema, Iterator[pa.Table]]:
    if isinstance(data, pa.Table):
        return data.schema, iter([data])
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([pa.Table.from_batches([data])])
    if isinstance(data, pa.RecordBatchReader):
        return _open_reader(data, data)
    if _is_dataset(data):
        return data.schema, (
            pa.Table.from_batches([batch]) for batch in foreign_items(data.to_batches(), _cannot_read(data))
        )
    if is_lazy_frame(data):
        return _open_lazy_frame(data)
    check_frame(data)
    if is_pandas_frame(data):
        table = foreign(lambda: _table_of_pandas(data, table_schema), _cannot_read(data))
        return table.schema, iter([table])
    if is_stream(data):
        return _open_reader(foreign(lambda: pa.RecordBatchReader.from_stream(data), _cannot_read(data)), data)
    if not isinstance(data, type) and callable(getattr(data, "to_arrow", None)):
        return _open_data(foreign(data.to_arrow, _cannot_read(data)))
    if isinstance(data, list) and all(isinstance(row, Mapping) for row in data):
        table = rows_of_dicts(data, table_schema)
        return table.schema, iter([table])
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _from_iterable(foreign_items(data, _cannot_read(data)), table_schema)
    raise InvalidInputError(f"{type(data).__name__} holds no Arrow data: {_instead_of(data)}")


def _instead_of(data: object) -> str:
    """Return what to give in place of an object that holds no rows."""
    if isinstance(data, Mapping):
        return "give a list of dicts, one for each row, or pyarrow.table(…) of lists, one for each column"
    if isinstance(data, str | os.PathLike):
        return (
            "read a file first, such as by pyarrow.csv.read_csv or pyarrow.parquet.read_table, or take `lakefmt write`"
        )
    return "give a table, a frame, a list of dicts or batches"


def _open_reader(reader: pa.RecordBatchReader, data: object) -> tuple[pa.Schema, Iterator[pa.Table]]:
    return reader.schema, (pa.Table.from_batches([batch]) for batch in foreign_items(reader, _cannot_read(data)))


def _cannot_read(data: object) -> str:
    """Return how a message begins when rows of another library cannot be had."""
    return f"the rows of this {type(data).__name__} cannot be read"


def is_stream(data: object) -> TypeGuard[SupportsArrow]:
    """Say whether a value (not a class) has Arrow's stream interface."""
    return isinstance(data, SupportsArrow) and not isinstance(data, type)


def _is_dataset(data: object) -> bool:
    # pyarrow.dataset takes a second to import; who holds a dataset has done so.
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(data, module.Dataset)


def is_lazy_frame(data: object) -> bool:
    """Return whether a value is a frame of Polars that is not computed yet."""
    polars = sys.modules.get("polars")  # who holds a frame has imported its library
    return polars is not None and isinstance(data, polars.LazyFrame)


def _open_lazy_frame(data: Any) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Return the schema of a lazy frame and its rows, which Polars computes batch by batch where it can."""
    polars = sys.modules["polars"]
    cannot = _cannot_read(data)
    empty = polars.DataFrame(schema=foreign(data.collect_schema, cannot))

    def frames() -> Iterator[Any]:
        # Older releases compute all of it at once.
        return iter(data.collect_batches()) if hasattr(data, "collect_batches") else iter([data.collect()])

    def tables() -> Iterator[pa.Table]:
        for frame in foreign_items(foreign(frames, cannot), cannot):
            if frame.height:
                yield _arrow_of_polars(polars, frame)

    return _arrow_of_polars(polars, empty).schema, tables()


def _arrow_of_polars(polars: Any, frame: Any) -> pa.Table:
    """Return a frame without views of strings, which the oldest PyArrow cannot cut."""
    level = getattr(polars, "CompatLevel", None)  # releases before it give no views
    return frame.to_arrow() if level is None else frame.to_arrow(compat_level=level.oldest())


def is_pandas_frame(data: object) -> bool:
    """Return whether data are a frame of pandas."""
    pandas = sys.modules.get("pandas")  # who holds a frame has imported its library
    return pandas is not None and isinstance(data, pandas.DataFrame)


def check_frame(data: Any) -> None:
    """Refuse frames that cannot be taken as they are; what is no frame passes.

    Raises:
        SchemaMismatch: a frame of pandas has a column twice, or values in one another without end.
    """
    if is_pandas_frame(data) and not data.columns.is_unique:
        twice = ", ".join(shown(name) for name in data.columns[data.columns.duplicated()].unique())
        raise SchemaMismatch(f"column names appear more than once: {twice}")


def _table_of_pandas(frame: Any, table_schema: Callable[[], pa.Schema] | None) -> pa.Table:
    """Return a frame of pandas with the levels of its index that have a name as its last columns."""
    own = [n for n, dtype in enumerate(frame.dtypes) if isinstance(dtype, np.dtype) and dtype.kind == "O"]
    own = [n for n in own if _pandas_kind(frame.iloc[:, n]) not in _ARROW_KINDS_OF_PANDAS]
    plain = frame.copy(deep=False) if own else frame
    for name in frame.columns[own]:
        del plain[name]  # drop() of older pandas copies the other columns
    table = pa.Table.from_pandas(plain, preserve_index=False)
    columns = {str(frame.columns[n]): object_values(frame.iloc[:, n]) for n in own}
    for n, (name, array) in zip(own, _arrays(columns, table_schema).items(), strict=True):
        table = table.add_column(n, name, array)
    # A level that is a column, too, is that column. The class of an index says nothing: pandas makes a RangeIndex of a
    # column whose numbers have equal steps.
    for level, name in enumerate(frame.index.names):
        if name is not None and str(name) not in table.column_names:
            values = frame.index.get_level_values(level).to_series(index=range(len(frame)))
            table = table.append_column(str(name), pa.chunked_array([pa.array(values, from_pandas=True)]))
    if len(set(table.column_names)) < table.num_columns:
        raise SchemaMismatch(f"column names appear more than once: {', '.join(table.column_names)}")
    return table.replace_schema_metadata(None)


def _pandas_kind(series: Any) -> str:
    return str(sys.modules["pandas"].api.types.infer_dtype(series))


def object_values(series: Any) -> list[object]:
    """Return the values of a series of Python objects; NaN is its missing value."""
    return [None if isinstance(each, float) and each != each else each for each in series]


def rows_of_dicts(
    rows: Sequence[Mapping[str, object]], table_schema: Callable[[], pa.Schema] | None = None
) -> pa.Table:
    """Return rows given as dicts as a table; a field that a row lacks is null.

    Args:
        rows: the rows.
        table_schema: as for :func:`open_stream`.

    Raises:
        SchemaMismatch: the values of a column do not fit together, or rows have no fields.

    Example:
        >>> rows_of_dicts([{"id": 1}, {"id": 2, "tags": {"a": 1}}]).schema.field("tags").type
        StructType(struct<a: int64>)
        >>> map_type = pa.map_(pa.string(), pa.int64())
        >>> rows_of_dicts([{"id": 2, "tags": {"a": 1}}], lambda: pa.schema([("tags", map_type)])).schema.field("tags").type
        MapType(map<string, int64>)
    """
    # The caller's rows are Python objects already; only their field names are gathered here.
    names = field_names(rows)
    if rows and not names:
        raise SchemaMismatch(f"{len(rows)} rows given as dicts have no fields")
    columns = _arrays({name: [row.get(name) for row in rows] for name in names}, table_schema)
    return foreign(lambda: pa.table(columns), "rows given as dicts do not fit together", SchemaMismatch)


def _arrays(
    columns: Mapping[str, Sequence[object]], table_schema: Callable[[], pa.Schema] | None
) -> dict[str, pa.Array]:
    """Return columns of Python values as Arrow arrays of the type that holds the values.

    Values do not tell it where they are dicts, which may be maps, or all missing: there it is the table's.
    """
    nested = {name for name, values in columns.items() if any(isinstance(value, _NESTED) for value in values)}
    missing = {name for name, values in columns.items() if all(value is None for value in values)}
    types = {
        field.name: field.type
        for field in (table_schema() if nested | missing and table_schema is not None else ())
        if field.name in missing or (field.name in nested and holds_type(field.type, pt.is_map))
    }
    return {name: arrow_array(values, types.get(name), name) for name, values in columns.items()}


def _from_iterable(
    items: Iterator[object], table_schema: Callable[[], pa.Schema] | None
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    first = next(items, None)
    if first is None:
        return pa.schema([]), iter([])
    schema, tables = _open_item(first, table_schema)
    rest = chain.from_iterable(_open_item(item, table_schema)[1] for item in items)
    return schema, chain(tables, rest)


def _open_item(item: object, table_schema: Callable[[], pa.Schema] | None) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Open one batch of an iterable; an iterable among the batches is not followed: it may hold itself."""
    rows = isinstance(item, list) and all(isinstance(row, Mapping) for row in item)
    if isinstance(item, Iterable) and not (rows or is_stream(item) or hasattr(item, "to_arrow")):
        given = (
            "dicts one by one: give a list of them"
            if isinstance(item, Mapping)
            else "give tables, frames or lists of dicts"
        )
        raise InvalidInputError(f"a {type(item).__name__} among batches holds no Arrow data: {given}")
    return _open_data(item, table_schema)


def read_all(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    """Return a stream as one table.

    Raises:
        SchemaMismatch: a later batch has other columns than the first.
    """
    parts = list(tables)
    try:
        return pa.concat_tables(parts) if parts else schema.empty_table()
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"batches of one write must have one schema: {error}") from error


#: What a row takes beside its own bytes while it is written: meta columns, its key, bits of a filter, numbers.
_BYTES_BESIDE_A_ROW: Final = 100


def memory_of_rows(rows: pa.Table) -> int:
    """Return an estimate of the memory in bytes that rows take while they are written, overhead for each row included.

    Example:
        >>> memory_of_rows(pa.table({"n": [1, 2]}))
        216
    """
    return int(rows.nbytes) + _BYTES_BESIDE_A_ROW * int(rows.num_rows)


def handed_out(items: list[T]) -> Iterator[T]:
    """Yield items without holding on to them; the list is emptied."""
    while items:
        yield items.pop(0)


def holds_no_rows(rows: object) -> bool:
    """Return whether rows are a table without any; of a stream that is not known before it is read."""
    return isinstance(rows, pa.Table) and not rows.num_rows


def without_stored_keys(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the columns that tell a stored row again."""
    if not any(name in STORED_KEY for name in schema.names):
        return schema
    return pa.schema([field for field in schema if field.name not in STORED_KEY])


def with_stored_keys(batch: KeyedBatch) -> pa.Table:
    """Return rows of a table that generates its keys such that :func:`key_batch` finds the keys that they brought."""
    return batch.table if batch.keys is None else batch.table.append_column(RECORD_KEY, batch.keys)


def brought_keys(data: object) -> tuple[bool, object]:
    """Return whether rows bring the keys with which they were read, and the rows: an iterator is not read twice."""
    schema, tables = open_stream(data, stored_keys=True)
    is_held = isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader) or hasattr(data, "__len__")
    return RECORD_KEY in schema.names, data if is_held else pa.RecordBatchReader.from_batches(
        schema, (batch for table in tables for batch in table.to_batches())
    )


def _stored_keys(table: pa.Table, partitions: pa.DictionaryArray) -> pa.StringArray | None:
    """Return the keys that rows of a table bring which generates its keys; None: they bring none.

    Raises:
        InvalidKey: a row has none, or its partition columns have changed since it was read.
    """
    if RECORD_KEY not in table.column_names:
        return None
    keys = table.column(RECORD_KEY).cast(pa.string()).combine_chunks()
    if keys.null_count:
        raise InvalidKey(
            f"{keys.null_count} of {len(keys)} rows have no {RECORD_KEY}: the table generates its keys, so rows that were read "
            "are updated by it; insert new ones by a call of their own"
        )
    if PARTITION_PATH in table.column_names:
        stored = table.column(PARTITION_PATH).cast(pa.string()).combine_chunks()
        moved = pc.fill_null(pc.not_equal(stored, partitions.cast(pa.string())), False)
        if moved.true_count:
            first = stored.filter(moved)[0]
            raise InvalidKey(
                f"{moved.true_count} rows have other partition columns than when they were read, the first in {str(first)!r:.200}: "
                "the table generates its keys, so delete them there and insert them anew"
            )
    return keys


def key_batch(
    spec: KeySpec,
    table: pa.Table,
    schema: pa.Schema,
    *,
    allow_null_elements: bool = False,
    new_rows: bool = True,
) -> KeyedBatch:
    """Return rows in the table's schema with their keys and partition paths.

    Args:
        spec: how keys and paths are made.
        table: the rows.
        schema: the table's.
        allow_null_elements: lists may hold nulls.
        new_rows: the rows are to be stored; False: they tell what is to be deleted, wherever another engine has put it.

    Raises:
        SchemaMismatch: a value does not fit its column.
        InvalidKey: a key or partition value cannot be used.
    """
    brought = table
    if RECORD_KEY in table.column_names:
        table, schema = (
            table.drop_columns([n for n in table.column_names if n in STORED_KEY]),
            without_stored_keys(schema),
        )
    conformed = conform(table, schema, allow_null_list_elements=allow_null_elements)
    partitions = (build_new_partition_paths if new_rows else build_partition_paths)(spec, conformed)
    if isinstance(partitions, pa.ChunkedArray):
        partitions = partitions.unify_dictionaries().combine_chunks()
    if spec.auto_keys:
        return KeyedBatch(conformed, _stored_keys(brought, partitions), partitions)
    keys = build_record_keys(spec, conformed)
    flat = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    return KeyedBatch(conformed, flat, partitions)


def combine(batch: KeyedBatch, rule: MergeRule, *, across_partitions: bool, whole: bool = True) -> KeyedBatch:
    """Leave one record per key (per key and partition unless `across_partitions`): the table's rule makes it.

    Raises:
        InvalidKey: the table's keys are generated.
        InvalidInputError: an ordering value is not what the rule needs, or rows of one key lack columns that the table's
            own function would be given.
    """
    keys = record_keys(batch)
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    if not across_partitions:
        partition_codes = batch.partitions.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * max(1, len(batch.partitions.dictionary)) + partition_codes
    if rule.custom is not None and not whole and len(distinct(codes)) < len(codes):
        raise InvalidInputError(
            f"the partial rows have a key several times, and merger {rule.custom.name} takes whole rows only: bring each once"
        )
    return combine_alike(batch, codes, rule)[0]


def combine_alike(batch: KeyedBatch, codes: Rows, rule: MergeRule) -> tuple[KeyedBatch, Rows | None]:
    """Leave one record per code, and return which rows stay; None: every code is unique.

    Args:
        batch: the rows.
        codes: ``(n_rows,) int64``.
        rule: the table's merge rule.

    Raises:
        InvalidInputError: an ordering value is not what the rule needs.
        MergerFailed: the registered merge function failed.
    """
    combined = combine_rows(batch.table, codes, rule)
    if combined is None:
        return batch, None
    winners, table = from_numpy(combined.winners), combined.table
    if combined.deletes is not None and combined.deletes.any():
        table = table.append_column(MOVED_AWAY, from_numpy(combined.deletes))
    combined_batch = KeyedBatch(table, record_keys(batch).take(winners), batch.partitions.take(winners))
    return combined_batch, combined.winners


def combine_in_files(
    batch: KeyedBatch, assigned: Sequence[Assigned], rule: MergeRule
) -> tuple[KeyedBatch, Sequence[Assigned]]:
    """Return the rows with one row for each key of a rewritten base file, and the files with the numbers of these rows.

    With ``hoodie.combine.before.upsert=false`` Hudi leaves rows of one key apart in new files and in logs, whose readers merge
    them; a file that is rewritten takes one of them, by the table's rule.

    Args:
        batch: the rows.
        assigned: the files, and their rows by number.
        rule: the table's merge rule.

    Raises:
        InvalidInputError: an ordering value is not valid under the rule.
        MergerFailed: the registered merge function failed.
    """
    by_key = record_keys(batch).dictionary_encode().indices.to_numpy().astype(np.int64)
    # Rows that go elsewhere have codes of their own, behind those of (file, key).
    codes = np.arange(batch.num_rows, dtype=np.int64) + len(assigned) * batch.num_rows
    for number, each in enumerate(assigned):
        if each.assignment.base is not None and each.assignment.log is None:
            rows = each.rows if each.leaving is None else each.rows[~each.leaving]
            codes[rows] = number * batch.num_rows + by_key[rows]
    combined, winners = combine_alike(batch, codes, rule)
    if winners is None:
        return batch, assigned
    new_rows = np.full(batch.num_rows, -1, np.int64)
    new_rows[winners] = np.arange(len(winners))
    return combined, [_renumbered_file(each, new_rows) for each in assigned]


def _renumbered_file(each: Assigned, new_rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Assigned:
    """Return a file with the new numbers of its rows; -1: the row is there no more."""
    rows = new_rows[each.rows]
    mask = rows >= 0
    leaving = None if each.leaving is None else each.leaving[mask]
    stored = None if each.stored is None else each.stored.filter(from_numpy(mask))
    positions = None if each.positions is None else each.positions[mask]
    assignment = replace(each.assignment, num_rows=None if each.assignment.num_rows is None else int(mask.sum()))
    return Assigned(assignment, rows[mask], leaving, stored, positions)
