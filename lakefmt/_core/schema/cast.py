"""Cast Arrow tables to a table schema: input batches, and rows of older files. Pure.

Two functions share one walk through nested columns. :func:`conform` takes user data and loses
nothing: a value that does not fit exactly is an error with column and row. :func:`reconcile` takes
stored rows and widens them to the current schema. Nested arrays are split and rebuilt here, because
Arrow's casts differ between releases for views, maps and missing fields.

Null structs still have child values. Gathering and decoding leave nulls there, and Arrow's Parquet
writer and casts then report nulls in required fields. :func:`fill_unseen` replaces these nulls by
values.

Arrow loses the row count of a table without columns when it joins or casts it or changes its
metadata; :func:`join_tables`, :func:`cast_rows` and :func:`with_metadata` keep it.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.java_text import java_text, plain_array
from lakefmt._core.schema.types import is_list_like, normalise_field, struct_fields
from lakefmt.errors import CorruptFile, InvalidKey, LakefmtError, SchemaMismatch, UnsupportedFeature

__all__ = [
    "cast_rows",
    "check_required",
    "conform",
    "fill_unseen",
    "is_castable",
    "is_mislabelled",
    "join_tables",
    "list_offsets",
    "map_items",
    "null_element_columns",
    "plain_columns",
    "reconcile",
    "with_metadata",
]

Mask = npt.NDArray[np.bool_]

#: Casts non-nested values, or raises one of the refusals.
_LeafCast = Callable[[pa.Array, pa.DataType], pa.Array]
_CAST_REFUSALS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, InvalidKey)
_MOST_ELEMENTS: Final = np.iinfo(np.int32).max
#: What the name of a type has where it lays values out in a way of its own.
_LAYOUTS: Final = ("_view", "dictionary<", "run_end_encoded<", "union<")


def plain_columns(rows: pa.Table) -> pa.Table:
    """Return rows without the layouts that Arrow cannot take rows of: views, as Polars hands them over, dictionaries, runs.

    Raises:
        SchemaMismatch: a column is a union, which no table stores and whose rows end the process inside Arrow.

    Example:
        >>> plain_columns(pa.table({"city": pa.array(["oslo"], pa.string_view())})).schema.types
        [DataType(string)]
    """
    fields = [
        normalise_field(field, field.name) if any(map(str(field.type).__contains__, _LAYOUTS)) else field
        for field in rows.schema
    ]
    schema = pa.schema(fields)
    return rows if schema.equals(rows.schema) else conform(rows, schema, allow_null_list_elements=True)


def conform(
    table: pa.Table, schema: pa.Schema, *, allow_null_list_elements: bool = False, drops_fields: bool = False
) -> pa.Table:
    """Return `table` with exactly the columns and types of `schema`, without losing information.

    Columns match by name; a missing nullable column is null. A column with the right type is not
    copied.

    Args:
        table: the rows.
        schema: the wanted columns.
        allow_null_list_elements: lists may have null elements.
        drops_fields: nested fields that the schema does not have are left out; False: they are refused.

    Raises:
        SchemaMismatch: an unknown column; a missing or null required value; a value that does not
            fit (the message names column, types and row); null elements in a list, because Hudi on
            Spark cannot rewrite a file with them (docs/format.md, Lists and maps).

    Example:
        >>> schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        >>> conform(pa.table({"id": pa.array([1], pa.int8())}), schema).schema == schema
        True
    """
    names = schema.names
    known = set(names)
    unknown = [name for name in table.column_names if name not in known]
    if unknown:
        raise SchemaMismatch(f"the table has no column {', '.join(map(repr, unknown))}: it has {', '.join(names)}")
    _check_bytes(table)
    walk = _Walk(_cast_exactly, SchemaMismatch, drops=drops_fields)
    columns = walk.columns(table, schema)
    for column, field in zip(columns, schema, strict=True):
        if _has_promises(field):
            for chunk in column.chunks:
                _check_nulls(chunk, field, field.name, 0, allow_null_list_elements)
    return pa.Table.from_arrays(columns, schema=schema)


def null_element_columns(table: pa.Table) -> list[str]:
    """Return the columns with null elements in lists, at any depth.

    Example:
        >>> null_element_columns(pa.table({"a": [[1, None]], "b": [[1]], "c": [None]}))
        ['a']
    """
    nested = [n for n, field in enumerate(table.schema) if pt.is_nested(field.type) and _has_promises(field)]
    return [
        table.schema.field(n).name
        for n in nested
        if any(_has_null_elements(chunk, table.schema.field(n).type) for chunk in table.column(n).chunks)
    ]


def _has_null_elements(array: pa.Array, data_type: pa.DataType) -> bool:
    if pt.is_struct(data_type):
        fields = struct_fields(data_type)
        return any(_has_null_elements(child, inner.type) for child, inner in zip(array.flatten(), fields, strict=True))
    if pt.is_list(data_type):
        values = array.flatten()
        return values.null_count > 0 or _has_null_elements(values, data_type.value_type)
    return bool(pt.is_map(data_type)) and _has_null_elements(_entries_of_maps(array)[2], data_type.item_type)


def _check_bytes(table: pa.Table) -> None:
    # Arrow does not validate text; stored text that is not UTF-8 breaks readers that do.
    for name, column in zip(table.column_names, table.columns, strict=True):
        # Any bits are a number; for date64 the cast names the row that is not a whole day.
        if pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_date64(column.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"column {name!r} holds damaged values, store it as binary: {error}") from None


def reconcile(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return `table` from an older file in the current `schema` (docs/format.md, Table schema; Column types).

    Columns and nested fields match by name: missing ones are null, unknown ones are dropped, others
    are widened.

    Raises:
        CorruptFile: a column cannot be converted, or a required one is missing.

    Example:
        >>> old = pa.table({"n": pa.array([1], pa.int32()), "gone": [0]})
        >>> reconcile(old, pa.schema([("n", pa.string()), ("new", pa.int64())])).to_pylist()
        [{'n': '1', 'new': None}]
    """
    return pa.Table.from_arrays(_Walk(_cast_forward, CorruptFile, drops=True).columns(table, schema), schema=schema)


def check_required(table: pa.Table) -> None:
    """Raise for a null where the schema allows none, at any depth; values under null structs and lists are ignored.

    Newer Arrow releases check this when they write Parquet; older ones silently write a zero or a
    null struct.

    Raises:
        SchemaMismatch: a required column, field, element or map value is null.

    Example:
        >>> kind = pa.struct([pa.field("n", pa.int64(), nullable=False)])
        >>> check_required(pa.table({"s": pa.nulls(2, kind)}))
        >>> check_required(pa.table({"s": pa.array([{"n": 1}, {"n": None}], kind)}))
        Traceback (most recent call last):
            ...
        lakefmt.errors.SchemaMismatch: column 's.n' has 1 nulls, and the table requires values in it
    """
    for number, field in enumerate(table.schema):
        # A plain nullable column needs no check, and looking up a type costs more than finding that
        # out.
        if (not field.nullable or pt.is_nested(field.type)) and _is_required_within(field):
            for chunk in table.column(number).chunks:
                _check_nulls(chunk, field, field.name, 0, null_elements=True)


# ---------------------------------------------------------------------------------------------------- nested columns


@dataclass(frozen=True)
class _Walk:
    """A walk through nested columns: `leaf` casts non-nested values, `error` is the class of errors."""

    leaf: _LeafCast
    error: type[LakefmtError]
    drops: bool

    def columns(self, table: pa.Table, schema: pa.Schema) -> list[pa.ChunkedArray]:
        names = table.column_names
        have = dict(zip(names, table.columns, strict=True))
        if len(have) != len(names):
            raise self.error(f"column names appear more than once: {', '.join(names)}")
        return [self.column(have.get(field.name), table.num_rows, field) for field in schema]

    def column(self, column: pa.ChunkedArray | None, num_rows: int, field: pa.Field) -> pa.ChunkedArray:
        if column is None:
            return pa.chunked_array([self.missing(field, field.name, num_rows)], field.type)
        if _is_same_type(column.type, field.type):
            return column
        chunks, row = [], 0
        for chunk in column.chunks:
            chunks.append(self.array(chunk, field, field.name, row))
            row += len(chunk)
        return pa.chunked_array(chunks, field.type)

    def missing(self, field: pa.Field, path: str, length: int) -> pa.Array:
        if not field.nullable and length:
            raise self.error(f"column {path!r} is missing, and the table requires a value in it")
        return pa.nulls(length, field.type)

    def array(self, array: pa.Array, field: pa.Field, path: str, row: int | None) -> pa.Array:
        array, data_type = plain_array(array), field.type
        if _is_same_type(array.type, data_type):
            return array
        if pt.is_null(array.type):
            return pa.nulls(len(array), data_type)
        if pt.is_struct(data_type) and pt.is_struct(array.type):
            return self.struct(array, data_type, path)
        if pt.is_list(data_type) and is_list_like(array.type):
            return self.list(array, data_type, path)
        if pt.is_map(data_type) and pt.is_map(array.type):
            return self.map(array, data_type, path)
        try:
            return self.leaf(array, data_type)
        except _CAST_REFUSALS as error:
            failing = None if row is None else _first_row_that_fails(array, data_type, self.leaf)
            where = (
                ""
                if failing is None or row is None
                else f" (first at row {row + failing}: {_shown_value(array[failing])})"
            )
            raise self.error(
                f"column {path!r} holds {array.type}, not the table's {data_type}: {error}{where}"
            ) from None

    def struct(self, array: pa.StructArray, data_type: pa.DataType, path: str) -> pa.Array:
        have = {field.name: child for field, child in zip(struct_fields(array.type), array.flatten(), strict=True)}
        want = struct_fields(data_type)
        unknown = sorted(set(have) - {field.name for field in want})
        if self.drops and _SHREDDED_FIELD in unknown and {field.name for field in want} == _VARIANT_FIELDS:
            raise UnsupportedFeature(
                f"column {path!r} is a VARIANT whose values a file holds in columns of their own (shredded): they cannot be read here"
            )
        if unknown and not self.drops:
            raise self.error(f"column {path!r} has no field {', '.join(map(repr, unknown))} in the table")
        children = [
            self.array(have[field.name], field, f"{path}.{field.name}", None)
            if field.name in have
            else self.missing(field, f"{path}.{field.name}", len(array))
            for field in want
        ]
        return pa.StructArray.from_arrays(children, fields=want, mask=_null_mask(array))

    def list(self, array: pa.Array, data_type: pa.DataType, path: str) -> pa.Array:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        values = self.array(array.flatten(), data_type.value_field, f"{path}.element", None)
        return pa.ListArray.from_arrays(
            _offsets_of_lengths(lengths, path), values, type=data_type, mask=_null_mask(array)
        )

    def map(self, array: pa.MapArray, data_type: pa.DataType, path: str) -> pa.Array:
        lengths, keys, items = _entries_of_maps(array)
        keys = self.array(keys, data_type.key_field, f"{path}.key", None)
        items = self.array(items, data_type.item_field, f"{path}.value", None)
        return pa.MapArray.from_arrays(
            _offsets_of_lengths(lengths, path), keys, items, type=data_type, mask=_null_mask(array)
        )


def _is_same_type(have: pa.DataType, want: pa.DataType) -> bool:
    # Arrow takes lists as equal if only their element names differ; Parquet writers do not.
    return bool(have == want) and (not pt.is_nested(want) or str(have) == str(want))


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets_of_lengths(lengths: npt.NDArray[np.int64], path: str) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    if offsets[-1] > _MOST_ELEMENTS:
        raise SchemaMismatch(f"column {path!r} has {offsets[-1]} elements in one batch: write smaller batches")
    return from_numpy(offsets.astype(np.int32))


def list_offsets(array: pa.Array) -> pa.Array:
    """Return the offsets of a list array's elements without those of null lists, as ``flatten`` gives them."""
    return _offsets_of_lengths(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False), "")


def map_items(array: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return offsets, keys and items of a map array, without those of null maps."""
    lengths, keys, items = _entries_of_maps(array)
    return _offsets_of_lengths(lengths, ""), keys, items


def _entries_of_maps(array: pa.MapArray) -> tuple[npt.NDArray[np.int64], pa.Array, pa.Array]:
    """Return the number of entries of every map, and keys and items in order, without those of null maps."""
    bounds = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), np.diff(bounds), 0)
    if lengths.sum() == bounds[-1] - bounds[0]:
        start, count = int(bounds[0]), int(bounds[-1] - bounds[0])
        return lengths, array.keys.slice(start, count), array.items.slice(start, count)
    gaps = np.repeat(bounds[:-1] - (np.cumsum(lengths) - lengths), lengths)
    indices = from_numpy(gaps + np.arange(len(gaps)))
    return lengths, array.keys.take(indices), array.items.take(indices)


# ------------------------------------------------------------------------------------------------------ plain values


_TYPE_FAMILIES: Final[Sequence[tuple[str, Callable[[pa.DataType], bool]]]] = (
    ("boolean", pt.is_boolean),
    ("integer", pt.is_integer),
    ("float", pt.is_floating),
    ("decimal", pt.is_decimal),
    ("text", lambda kind: pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)),
    ("bytes", lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind)),
    ("bytes", pt.is_fixed_size_binary),
    ("date", pt.is_date),
    ("time", pt.is_time),
    ("timestamp", pt.is_timestamp),
)
_EXACT_CASTS: Final = frozenset({("integer", "float"), ("integer", "decimal"), ("float", "integer")})


def _family(data_type: pa.DataType) -> str:
    return next((name for name, check in _TYPE_FAMILIES if check(data_type)), str(data_type))


def is_castable(have: pa.DataType, want: pa.DataType) -> bool:
    """Return whether values of type `have` may be stored as `want` if they fit exactly (both not nested).

    Example:
        >>> is_castable(pa.int64(), pa.int32()), is_castable(pa.string(), pa.int32())
        (True, False)
    """
    families = _family(have), _family(want)
    return pt.is_null(have) or families[0] == families[1] or families in _EXACT_CASTS


def _cast_exactly(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast without losing information, or raise Arrow's error."""
    if not is_castable(array.type, data_type):
        raise pa.ArrowTypeError("one is not the other")
    if pt.is_integer(array.type) and pt.is_decimal(data_type):
        # Arrow checks the largest number of the type, not the actual ones.
        array = array.cast(pa.decimal128(38, 0))
    if pt.is_decimal(array.type) and pt.is_decimal(data_type) and _is_too_large(array, data_type):
        raise pa.ArrowInvalid(f"a number has more than {data_type.precision - data_type.scale} digits before the point")
    converted = array.cast(data_type)
    if pt.is_floating(data_type) and pt.is_floating(array.type) and data_type.bit_width < array.type.bit_width:
        # Arrow rounds here, even in safe casts.
        rounded = pc.and_(pc.not_equal(converted.cast(array.type), array), pc.invert(pc.is_nan(array)))
        if rounded.true_count:
            raise pa.ArrowInvalid("a number would be rounded")
    return converted


def _is_too_large(array: pa.Array, decimal_type: pa.DataType) -> bool:
    """Return whether a decimal has more integer digits than `decimal_type`: Arrow lets some of them overflow."""
    integer_digits = decimal_type.precision - decimal_type.scale
    if array.type.precision - array.type.scale <= integer_digits:
        return False
    bound = pa.scalar(decimal.Decimal(10**integer_digits), array.type)
    return bool(pc.greater_equal(pc.abs(array), bound).true_count)


def _first_row_that_fails(array: pa.Array, data_type: pa.DataType, leaf: _LeafCast) -> int | None:
    """Return the first row that `leaf` cannot cast, by bisection; None if it cannot cast even an empty array."""
    good, bad = 0, len(array)
    if _fails_to_cast(array.slice(0, 0), data_type, leaf):
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        if _fails_to_cast(array.slice(good, middle - good), data_type, leaf):
            bad = middle
        else:
            good = middle
    return good


def _fails_to_cast(array: pa.Array, data_type: pa.DataType, leaf: _LeafCast) -> bool:
    try:
        leaf(array, data_type)
    except _CAST_REFUSALS:
        return True
    return False


def _shown_value(value: pa.Scalar) -> str:
    try:
        return str(value)[:100]
    except (OverflowError, ValueError):
        return "a value that Python cannot show"


def is_mislabelled(stored: pa.DataType, data_type: pa.DataType) -> bool:
    """Return whether times of a file are milliseconds that are labelled as microseconds.

    Hudi 0.14 to 1.0 wrote files so where the table's schema says ``timestamp-millis``. Newer releases take every such label for
    wrong, because no writer makes a column of microseconds one of milliseconds.

    Example:
        >>> is_mislabelled(pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"))
        True
    """
    return bool(
        pt.is_timestamp(data_type) and data_type.unit == "ms" and pt.is_timestamp(stored) and stored.unit == "us"
    )


def _cast_forward(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast stored values to the current schema as Hudi's readers do."""
    have, want = _family(array.type), _family(data_type)
    if is_mislabelled(array.type, data_type):
        return array.cast(pa.int64()).cast(data_type)
    if want == "text" and have not in ("text", "bytes"):
        return java_text(array, "").cast(data_type)
    if (have, want) in (("integer", "float"), ("timestamp", "timestamp"), ("time", "time")):
        # Widening a long to a float rounds; finer times come only from files of other engines.
        return array.cast(data_type, safe=False)
    if (have, want) in (("integer", "timestamp"), ("integer", "date"), ("integer", "time")):
        # A file without the annotation: the number is the time.
        return array.cast(data_type)
    if {have, want} == {"text", "bytes"} or (have, want) == ("timestamp", "integer"):
        return array.cast(data_type)
    return _cast_exactly(array, data_type)


# ------------------------------------------------------------------------------------------------------------ nulls


def _has_promises(field: pa.Field) -> bool:
    """Return whether the field forbids nulls at any depth, as required fields and lists do."""
    data_type = field.type
    if not field.nullable or pt.is_list(data_type):
        return True
    if pt.is_struct(data_type):
        return any(_has_promises(child) for child in struct_fields(data_type))
    return bool(pt.is_map(data_type)) and _has_promises(data_type.item_field)


#: The parts of a VARIANT as it is stored, and the one that takes values out of them.
_VARIANT_FIELDS: Final = frozenset({"metadata", "value"})
_SHREDDED_FIELD: Final = "typed_value"


@lru_cache(maxsize=4096)
def _is_required_within(field: pa.Field) -> bool:
    """Return whether the field or any nested field is required."""
    data_type = field.type
    if not field.nullable:
        return True
    if pt.is_struct(data_type):
        return any(_is_required_within(child) for child in struct_fields(data_type))
    if pt.is_map(data_type):
        return _is_required_within(data_type.item_field)
    return bool(pt.is_list(data_type)) and _is_required_within(data_type.value_field)


def _check_nulls(array: pa.Array, field: pa.Field, path: str, above: int, null_elements: bool) -> None:
    """Raise for forbidden nulls; `above` of them come from null parents."""
    data_type = field.type
    if not field.nullable and array.null_count > above:
        raise SchemaMismatch(
            f"column {path!r} has {array.null_count - above} nulls, and the table requires values in it"
        )
    if pt.is_struct(data_type):
        for child, inner in zip(array.flatten(), struct_fields(data_type), strict=True):
            _check_nulls(child, inner, f"{path}.{inner.name}", array.null_count, null_elements)
    elif pt.is_list(data_type):
        values = array.flatten()
        if values.null_count and not null_elements:
            raise SchemaMismatch(
                f"column {path!r} has {values.null_count} null elements in its lists: Hudi on Spark fails to rewrite "
                "a file that holds them (its writer stores lists without room for a null), so drop or replace them"
            )
        _check_nulls(values, data_type.value_field, f"{path}.element", 0, null_elements)
    elif pt.is_map(data_type):
        _, _, items = _entries_of_maps(array)
        _check_nulls(items, data_type.item_field, f"{path}.value", 0, null_elements)


def cast_rows(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table cast to `schema`, which has its columns; required fields under null structs are allowed.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    table = fill_unseen(table)
    return table if table.schema.equals(schema, check_metadata=True) else table.cast(schema)


def fill_unseen(table: pa.Table) -> pa.Table:
    """Return a table with values in required fields of null structs; everything else is unchanged.

    Example:
        >>> kind = pa.struct([pa.field("n", pa.int64(), nullable=False)])
        >>> rows = fill_unseen(pa.table({"s": pa.nulls(2, kind)}))
        >>> rows.column("s").null_count, rows.column("s").chunk(0).field(0).null_count
        (2, 0)
    """
    for index, field in enumerate(table.schema):
        if _has_required(field.type):
            column = table.column(index)
            chunks = [_with_filled_fields(chunk, np.zeros(len(chunk), dtype=bool)) for chunk in column.chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    return table


@lru_cache(maxsize=4096)
def _has_required(data_type: pa.DataType) -> bool:
    """Return whether a struct in the type has a required field."""
    if pt.is_struct(data_type):
        return any(not field.nullable or _has_required(field.type) for field in struct_fields(data_type))
    if pt.is_map(data_type):
        return _has_required(data_type.item_type)
    return bool(pt.is_list(data_type)) and _has_required(data_type.value_type)


def _with_filled_fields(array: pa.Array, unseen: Mask) -> pa.Array:
    """Return an array whose required fields have a value where they are `unseen` or their struct is null."""
    data_type = array.type
    if not _has_required(data_type):
        return array
    if not pt.is_struct(data_type):
        return _with_filled_items(array)
    nulls = array.is_null() if array.null_count else None
    if nulls is not None:
        unseen = unseen | nulls.to_numpy(zero_copy_only=False)
    children = []
    for number, field in enumerate(struct_fields(data_type)):
        child = array.field(number)
        if not field.nullable and child.null_count:
            child = _with_some_values(child, unseen & child.is_null().to_numpy(zero_copy_only=False))
        children.append(_with_filled_fields(child, unseen))
    return pa.StructArray.from_arrays(children, fields=struct_fields(data_type), mask=nulls)


def _with_filled_items(array: pa.Array) -> pa.Array:
    data_type, bounds = array.type, array.offsets.to_numpy()
    first, count = int(bounds[0]), int(bounds[-1] - bounds[0])
    offsets = from_numpy(bounds - bounds[0])
    mask = array.is_null() if array.null_count else None
    # Items of null lists are unseen, too.
    lengths = np.diff(bounds)
    unseen = np.zeros(count, dtype=bool) if mask is None else np.repeat(mask.to_numpy(zero_copy_only=False), lengths)
    if pt.is_map(data_type):
        keys, items = array.keys.slice(first, count), _with_filled_fields(array.items.slice(first, count), unseen)
        return pa.MapArray.from_arrays(offsets, keys, items, type=data_type, mask=mask)
    items = array.values.slice(first, count)
    if not data_type.value_field.nullable and items.null_count:
        items = _with_some_values(items, unseen & items.is_null().to_numpy(zero_copy_only=False))
    return pa.ListArray.from_arrays(offsets, _with_filled_fields(items, unseen), type=data_type, mask=mask)


def _with_some_values(array: pa.Array, where: Mask) -> pa.Array:
    if not where.any():
        return array
    order = np.arange(len(array))
    order[where] = len(array)
    return pa.concat_arrays([array, _some_value(array.type)]).take(from_numpy(order))


def _some_value(data_type: pa.DataType) -> pa.Array:
    """Return an array of one value: zero, false, an empty text, an empty list, or a struct of these."""
    if pt.is_struct(data_type):
        children = [pa.nulls(1, f.type) if f.nullable else _some_value(f.type) for f in struct_fields(data_type)]
        return pa.StructArray.from_arrays(children, fields=struct_fields(data_type))
    if pt.is_fixed_size_binary(data_type):
        return pa.array([bytes(data_type.byte_width)], data_type)
    if pt.is_map(data_type) or pt.is_list(data_type):
        return pa.array([[]], data_type)
    if pt.is_string(data_type) or pt.is_binary(data_type):
        return pa.array([b""], pa.binary()).cast(data_type)
    # All other types are numbers of fixed width.
    width = 1 if pt.is_boolean(data_type) else data_type.bit_width // 8
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(bytes(max(8, width)))])


def join_tables(parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the rows of tables as one table of `schema`, whose columns they have.

    Raises:
        pa.ArrowInvalid: a value does not fit.

    Example:
        >>> ones = pa.table({"n": [1, 1]})
        >>> join_tables([ones, ones], pa.schema([("n", pa.int64())])).num_rows
        4
        >>> join_tables([ones.select([]), ones.select([])], pa.schema([])).num_rows
        4
    """
    tables = list(parts)
    if not len(schema):
        return _table_without_columns(sum(part.num_rows for part in tables), schema.metadata)
    return pa.concat_tables([cast_rows(part, schema) for part in tables]) if tables else schema.empty_table()


def with_metadata(table: pa.Table, metadata: Mapping[bytes, bytes]) -> pa.Table:
    """Return a table with other metadata.

    Example:
        >>> with_metadata(pa.table({"n": [1, 2]}).select([]), {b"a": b"b"}).num_rows
        2
    """
    return (
        table.replace_schema_metadata(metadata)
        if table.num_columns
        else _table_without_columns(table.num_rows, metadata)
    )


def _table_without_columns(rows: int, metadata: Mapping[bytes, bytes] | None) -> pa.Table:
    return pa.table({"row": pa.nulls(rows)}, metadata=metadata).select([])
