"""Build record keys, partition paths and bucket keys of Arrow tables, and find the partitions that a caller names. Pure.

Forms: docs/format.md, Record keys; Partition paths; Timestamp key generator.

A caller names partitions by path, by value, or by the values of some partition columns (:func:`choose_partitions`). Values become
parts of a path as rows do and are compared with the existing paths. A text that is neither a path of the table nor a value of its
partition columns is an error.

A bucket key of an append table (docs/dev/append.md, Buckets) is hashed with MurmurHash3 (32 bits, x86), by columns. The
bytes of a value do not depend on the width of its type, so that a column that becomes wider keeps its buckets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arguments import foreign, shown
from lakefmt._core.arrays import from_numpy, one_array
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.keys.partition_path import (
    DEFAULT_PARTITION,
    check_paths,
    check_spark_reads,
    divide_path,
    encode_path_values,
)
from lakefmt._core.keys.spec import KeySpec, PartitionField
from lakefmt._core.schema.java_text import distinct_values, java_text, plain_array
from lakefmt._core.schema.python_values import arrow_scalar
from lakefmt._core.schema.types import field_at, storage_type
from lakefmt.errors import InvalidInputError, InvalidKey, LakefmtError, SchemaMismatch, UnsupportedFeature

__all__ = [
    "build_auto_keys",
    "build_auto_keys_of_many",
    "build_new_partition_paths",
    "build_partition_paths",
    "build_record_keys",
    "check_bucket_key",
    "check_colliding_keys",
    "choose_partitions",
    "key_buckets",
    "murmur3",
    "partition_items",
]

Codes = npt.NDArray[np.int64]

_NULL_PART: Final = "__null__"
_EMPTY_PART: Final = "__empty__"
#: Below this count the calls cost more than the digits.
_MANY_NUMBERS: Final = 1000
#: Without a type, Arrow tries to import dateutil and pandas before it infers one, at every call: 0.1 ms each where
#: they are not installed, as long as a join of a thousand texts takes.
_EMPTY_TEXT: Final = pa.scalar("", pa.string())
_SLASH: Final = pa.scalar("/", pa.string())
_DEFAULT_PART: Final = pa.scalar(DEFAULT_PARTITION, pa.string())
_TRUE: Final = pa.scalar(True, pa.bool_())


# ------------------------------------------------------------------------------------------------------ record keys


def build_record_keys(spec: KeySpec, table: pa.Table) -> pa.Array:
    """Return the record key of every row (docs/format.md, Record keys).

    A bare value, or ``f1:v1,f2:v2`` with ``__null__`` for null and ``__empty__`` for an empty text.

    Raises:
        InvalidKey: rows without a key (the message counts them), a missing column, or a type that
            cannot be a key.
        UnsupportedFeature: the key generator is not supported, or the form of its keys is unknown.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> build_record_keys(plan_key_spec(["a", "b"], None), pa.table({"a": [1], "b": ["x"]}))[0]
        <pyarrow.StringScalar: 'a:1,b:x'>
    """
    _check_supported(spec)
    if spec.auto_keys:
        raise UnsupportedFeature("the table has no record key fields: its keys are generated, not read from columns")
    if spec.prefixed is None:
        raise UnsupportedFeature(
            f"keys of this table are either 'value' or '{spec.record_key_fields[0]}:value' (a complex key generator with "
            "one field): look at a stored key first"
        )
    names = spec.record_key_fields
    texts = [_key_text(table, name, spec) for name in names]
    missing = [pc.fill_null(pc.equal(column, _EMPTY_TEXT), _TRUE) for column in texts]
    nothing = missing[0]
    for each in missing[1:]:
        nothing = pc.and_(nothing, each)
    _refuse_missing_keys(nothing, names)
    return _joined_key_fields(names, texts) if spec.prefixed else texts[0]


def _check_supported(spec: KeySpec) -> None:
    if spec.unsupported:
        raise UnsupportedFeature(f"keys of this table cannot be made here: {spec.unsupported}")


def _key_text(table: pa.Table, name: str, spec: KeySpec) -> pa.Array:
    chunks = [
        java_text(chunk, name, spec.consistent_logical_timestamps) for chunk in _key_or_path_column(table, name).chunks
    ]
    if len(chunks) == 1:
        return chunks[0]
    try:
        return pa.concat_arrays(chunks) if chunks else pa.array([], pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidKey(f"the keys of one batch exceed two gigabytes, write smaller batches: {error}") from None


def _key_or_path_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the column or nested field `name`; null where a struct above it is null."""
    if field_at(table.schema, name) is None:
        raise InvalidKey(
            f"key or partition field {name!r} is not a column: there are {', '.join(table.column_names[:20])}"
        )
    if table.column_names.count(name) == 1:
        return table.column(name)
    first, *rest = name.split(".")
    column = table.column(first)
    for part in rest:
        column = pc.struct_field(column, part)
    return column


def _refuse_missing_keys(nothing: pa.Array, names: tuple[str, ...]) -> None:
    if nothing.true_count:
        first = int(np.flatnonzero(nothing.to_numpy(zero_copy_only=False))[0])
        raise InvalidKey(
            f"{nothing.true_count} rows have a null or empty record key ({', '.join(names)}), the first is row {first}"
        )


def _joined_key_fields(names: tuple[str, ...], texts: list[pa.Array]) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    for number, (name, column) in enumerate(zip(names, texts, strict=True)):
        value = pc.fill_null(pc.if_else(pc.equal(column, ""), _EMPTY_PART, column), _NULL_PART)
        parts += [pa.scalar(f"{',' if number else ''}{name}:"), value]
    return pc.binary_join_element_wise(*parts, "")


def check_colliding_keys(
    spec: KeySpec, table: pa.Table, keys: pa.Array, within: pa.DictionaryArray | None = None
) -> None:
    """Raise if rows with different key columns have the same record key.

    Hudi joins key columns as ``a:x,b:y`` without escaping, so a text with ``,b:`` in it, or one
    that equals the placeholder of null or of an empty text, may give another row's key. Only rows
    with such texts are compared; a key of one column cannot collide.

    Args:
        spec: the table's key spec.
        table: the rows.
        keys: the result of :func:`build_record_keys`.
        within: the partition of each row, if keys are unique per partition.

    Raises:
        InvalidKey: two rows collide; the message names both.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> spec, rows = plan_key_spec(["a", "b"], None), pa.table({"a": ["x,b:y", "x"], "b": ["z", "y,b:z"]})
        >>> check_colliding_keys(spec, rows, build_record_keys(spec, rows))
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidKey: rows 0 and 1 differ in their key columns (a, b) and have one record key, 'a:x,b:y,b:z', because Hudi joins the columns without escaping: change the values, or take one key column; lakefmt.write.colliding_keys=merge merges such rows, as Hudi does
    """
    names = spec.record_key_fields
    if len(names) < 2:
        return
    columns = [_plain_column(_key_or_path_column(table, name)) for name in names]
    suspicious = _may_collide(names, columns)
    if suspicious is None or not any(chunk.true_count for chunk in suspicious.chunks):
        return
    chosen = pc.is_in(keys, pc.unique(keys.filter(suspicious)))
    numbers = from_numpy(np.flatnonzero(chosen.to_numpy(zero_copy_only=False)))
    partition_codes = pa.nulls(len(keys), pa.int8()) if within is None else within.indices
    given = [keys, partition_codes, *columns]
    rows = pa.table({f"{index}": column.filter(chosen) for index, column in enumerate(given)}).append_column(
        "row", numbers
    )
    different = rows.group_by([f"{index}" for index in range(len(given))]).aggregate([("row", "min")])
    collisions = different.group_by(["0", "1"]).aggregate([("row_min", how) for how in ("min", "max", "count")])
    collisions = collisions.filter(pc.greater(collisions.column("row_min_count"), 1)).sort_by("row_min_min")
    if not collisions.num_rows:
        return
    key, first, other = (collisions.column(name)[0].as_py() for name in ("0", "row_min_min", "row_min_max"))
    raise InvalidKey(
        f"rows {first} and {other} differ in their key columns ({', '.join(names)}) and have one record key, {key!r:.200}, "
        "because Hudi joins the columns without escaping: change the values, or take one key column; "
        "lakefmt.write.colliding_keys=merge merges such rows, as Hudi does"
    )


def _may_collide(names: tuple[str, ...], columns: list[pa.ChunkedArray]) -> pa.ChunkedArray | None:
    """Return which rows have an ambiguous key text; None if no column has texts."""
    ambiguous = None
    for number, column in enumerate(columns):
        if not pt.is_string(column.type):
            continue
        odd = pc.is_in(column, pa.array([_NULL_PART, _EMPTY_PART]))
        for after in names[number + 1 : number + 2]:
            odd = pc.or_(odd, pc.fill_null(pc.match_substring(column, f",{after}:"), False))
        ambiguous = odd if ambiguous is None else pc.or_(ambiguous, odd)
    return ambiguous


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([plain_array(chunk) for chunk in column.chunks], storage_type(column.type))


def build_auto_keys(instant: str, partition_id: int, start: int, n: int) -> pa.Array:
    """Return `n` generated keys ``<instant>_<partition_id>_<row>`` from row `start` on (docs/format.md, Record keys).

    Example:
        >>> build_auto_keys("20260101000000000", 3, 7, 1)[0]
        <pyarrow.StringScalar: '20260101000000000_3_7'>
    """
    prefix = f"{instant}_{partition_id}_"
    if n < _MANY_NUMBERS:
        rows = from_numpy(np.arange(start, start + n, dtype=np.int64)).cast(pa.string())
        return pc.binary_join_element_wise(pa.scalar(prefix, pa.string()), rows, _EMPTY_TEXT)
    parts = []
    for width in range(len(str(start)), len(str(start + n - 1)) + 1):
        low, high = (10 ** (width - 1) if width > 1 else 0), 10**width
        parts.append(_numbered_texts(prefix.encode(), max(start, low), min(start + n, high), width))
    return pa.concat_arrays(parts)


def build_auto_keys_of_many(instant: str, partition_ids: Sequence[int], counts: Sequence[int]) -> pa.Array:
    """Return generated keys from row 0 on for each of some partition ids, one's behind the other's.

    Args:
        instant: the writing instant.
        partition_ids: the ids.
        counts: how many keys of each.

    Example:
        >>> build_auto_keys_of_many("20260101000000000", [3, 5], [2, 1]).to_pylist()
        ['20260101000000000_3_0', '20260101000000000_3_1', '20260101000000000_5_0']
    """
    total = sum(counts)
    if total >= _MANY_NUMBERS * len(counts):
        pairs = zip(partition_ids, counts, strict=True)
        return pa.concat_arrays([build_auto_keys(instant, number, 0, count) for number, count in pairs])
    starts = np.cumsum([0, *counts[:-1]])
    rows = from_numpy(np.arange(total) - np.repeat(starts, counts)).cast(pa.string())
    prefixes = pa.array([f"{instant}_{number}_" for number in partition_ids], pa.string())
    return pc.binary_join_element_wise(
        prefixes.take(from_numpy(np.repeat(np.arange(len(counts)), counts))), rows, _EMPTY_TEXT
    )


def _numbered_texts(prefix: bytes, low: int, high: int, width: int) -> pa.Array:
    """Return prefix and `width` digits for each number in ``[low, high)``.

    Texts of one length form a byte matrix: four times faster than joining texts.
    """
    row = len(prefix) + width
    made = np.frombuffer(bytearray(prefix + bytes(width)) * (high - low), np.uint8).reshape(high - low, row)
    numbers = np.arange(low, high, dtype=np.uint32 if high < 1 << 32 else np.uint64)
    for digit in range(1, width + 1):
        tens = np.floor_divide(numbers, 10)
        made[:, -digit] = np.subtract(numbers, np.multiply(tens, 10)) + ord("0")
        numbers = tens
    offsets = np.arange(high - low + 1, dtype=np.int64) * row
    data_type, number = (pa.string(), np.int32) if offsets[-1] < 1 << 31 else (pa.large_string(), np.int64)
    buffers = [None, pa.py_buffer(offsets.astype(number)), pa.py_buffer(made)]
    return pa.Array.from_buffers(data_type, high - low, buffers).cast(pa.string())


# -------------------------------------------------------------------------------------------------- partition paths


def build_partition_paths(spec: KeySpec, table: pa.Table) -> pa.DictionaryArray:
    """Return the partition path of every row, dictionary encoded; the dictionary has only paths with rows.

    Rows with a null or empty value get ``__HIVE_DEFAULT_PARTITION__`` (docs/format.md, Partition
    paths).

    Raises:
        InvalidKey: a missing column, a type or time that cannot be a path, or an unsafe path.
        UnsupportedFeature: the key generator is not supported.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> paths = build_partition_paths(plan_key_spec("id", "city"), pa.table({"id": [1, 2], "city": ["s/f", None]}))
        >>> paths.dictionary[0], paths.dictionary[1]
        (<pyarrow.StringScalar: 'city=s%2Ff'>, <pyarrow.StringScalar: 'city=__HIVE_DEFAULT_PARTITION__'>)
    """
    _check_supported(spec)
    codes, paths = np.zeros(table.num_rows, np.int64), pa.array([""], pa.string())
    for number, field in enumerate(spec.partition_fields):
        more, parts = _encoded_parts(field, _key_or_path_column(table, field.name), spec)
        codes, paths = _joined_path_parts(codes, paths, more, parts) if number else (more, parts)
    used = from_numpy(codes).dictionary_encode()
    # Different values may have one path: null and empty text, or two times of one day.
    unique = paths.take(used.dictionary).dictionary_encode()
    if spec.partition_fields:
        check_paths(unique.dictionary)
    indices = unique.indices.take(used.indices).cast(pa.int32())
    return pa.DictionaryArray.from_arrays(indices, unique.dictionary)


def build_new_partition_paths(spec: KeySpec, table: pa.Table) -> pa.DictionaryArray:
    """Return the partition paths of rows to write, as :func:`build_partition_paths`, if Spark reads them as the same values.

    Raises:
        InvalidKey: as there, or Spark would not.
        UnsupportedFeature: the key generator is not supported.
    """
    paths = build_partition_paths(spec, table)
    if spec.partition_fields:
        check_spark_reads(spec, paths.dictionary)
    return paths


def _encoded_parts(field: PartitionField, column: pa.ChunkedArray, spec: KeySpec) -> tuple[Codes, pa.Array]:
    """Return a code per row and a path part per code: texts are built per distinct value."""
    if pt.is_nested(storage_type(column.type)):
        raise InvalidKey(f"partition column {field.name!r} of type {column.type} cannot be part of a path")
    if field.timestamp is not None:
        from lakefmt._core.keys.timestamp import time_parts  # few tables have times in their paths

        codes, path_parts = time_parts(field.name, column, field.timestamp, spec.consistent_logical_timestamps)
    else:
        codes, values = distinct_values(column)
        path_parts = java_text(values, field.name, spec.consistent_logical_timestamps)
        path_parts = pc.fill_null(
            pc.if_else(pc.equal(path_parts, _EMPTY_TEXT), _DEFAULT_PART, path_parts), _DEFAULT_PART
        )
    if spec.url_encode:
        path_parts = encode_path_values(path_parts)
    if spec.hive_style:
        path_parts = pc.binary_join_element_wise(pa.scalar(f"{field.name}=", pa.string()), path_parts, _EMPTY_TEXT)
    return codes, path_parts


def _joined_path_parts(codes: Codes, paths: pa.Array, more: Codes, parts: pa.Array) -> tuple[Codes, pa.Array]:
    """Return codes and paths of the pairs that occur, at most one per row."""
    pairs = from_numpy(codes * len(parts) + more).dictionary_encode()
    pairs_present = pairs.dictionary.to_numpy(zero_copy_only=False)
    left, right = (
        paths.take(from_numpy(pairs_present // len(parts))),
        parts.take(from_numpy(pairs_present % len(parts))),
    )
    joined = pc.binary_join_element_wise(left, right, _SLASH)
    return pairs.indices.to_numpy(zero_copy_only=False).astype(np.int64), joined


# --------------------------------------------------------------------------------------- partitions that a caller names

#: The errors of values that make no path.
_VALUE_ERRORS: Final = (LakefmtError, pa.ArrowException, TypeError, ValueError, OverflowError)


def choose_partitions(
    spec: KeySpec, schema: pa.Schema, existing: Sequence[str], partitions: object, *, must_exist: bool = False
) -> list[str]:
    """Return the partition paths that `partitions` names; a text that names none is returned unchanged.

    Args:
        spec: the table's key spec.
        schema: the table schema.
        existing: the table's partition paths.
        partitions: one item or several. A text is an existing path; else one or more ``column=value``
            joined by ``/``; else the value of the only partition column. A mapping has values of
            some partition columns and names every partition with them. A tuple has one value per
            partition column, in order. Anything else is the value of the only partition column;
            None is a missing value.

        must_exist: raise for an item without a partition, and for an empty text, whose rows share a partition with others.

    Raises:
        InvalidInputError: not a partition column or not a value of one, or no items.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> spec, schema = plan_key_spec("id", ["city", "n"]), pa.schema([("city", pa.string()), ("n", pa.int32())])
        >>> known = ["city=oslo/n=1", "city=oslo/n=2", "city=lima/n=1"]
        >>> choose_partitions(spec, schema, known, [{"city": "oslo"}, ("lima", 1)])
        ['city=oslo/n=1', 'city=oslo/n=2', 'city=lima/n=1']
    """
    chooser = _PartitionChooser(spec, schema, existing, whole=must_exist)
    chosen: dict[str, None] = {}
    for item in partition_items(partitions):
        paths = foreign(partial(chooser.paths_of, item), "a partition cannot be read")
        if must_exist and (not paths or not chooser.known_texts.issuperset(paths)):
            raise InvalidInputError(f"no partition {shown(item)}; see table.partitions()")
        chosen |= dict.fromkeys(paths)
    return list(chosen)


def partition_items(partitions: object) -> list[object]:
    """Return the named partitions item by item; reads an iterator once.

    Raises:
        InvalidInputError: `partitions` cannot be iterated.
    """
    if isinstance(partitions, str | bytes | Mapping) or not isinstance(partitions, Iterable):
        return [partitions]
    return foreign(lambda: list(partitions), "the partitions cannot be read")


@dataclass(frozen=True)
class _PartitionChooser:
    """Finds partitions among the existing ones."""

    spec: KeySpec
    schema: pa.Schema
    known: Sequence[str]
    #: Whole partitions are meant, not places to look for rows in.
    whole: bool = False

    def paths_of(self, item: object) -> list[str]:
        """Return the paths that one item names."""
        fields = self.spec.partition_fields
        if isinstance(item, str):
            return self._of_text(item)
        self._check_fields(item)
        if isinstance(item, Mapping):
            return self._with_values(item)
        if isinstance(item, tuple | list):
            if len(item) != len(fields):
                raise InvalidInputError(f"{item!r:.200} has {len(item)} values for the partition columns {self._names}")
            return self._with_values({field.name: value for field, value in zip(fields, item, strict=True)})
        return self._of_value(item)

    @property
    def _names(self) -> str:
        return ", ".join(field.name for field in self.spec.partition_fields)

    def _check_fields(self, item: object) -> None:
        if not self.spec.partition_fields:
            raise InvalidInputError(f"{item!r:.200} is no partition: the table has no partition columns")
        if self.spec.unsupported:
            raise InvalidInputError(
                f"{item!r:.200} is not a partition path of the table, and values cannot be looked up: {self.spec.unsupported}"
            )

    def _of_text(self, text: str) -> list[str]:
        fields = self.spec.partition_fields
        if text in self.known_texts or not fields or self.spec.unsupported:
            return [text]
        values = self._hive_values(text)
        if values is not None:
            # A value may begin like a path; for paths that do not exist the error says no more.
            matching = self._with_values(values)
            return matching or (self._of_value(text) if len(fields) == 1 and self._is_text(fields[0]) else []) or [text]
        if len(fields) == 1:
            return self._of_value(text) or [text]
        if len(text.split("/")) >= len(fields):
            return [text]  # as a path, only that none exists
        raise InvalidInputError(
            f"{text!r:.200} is not a partition path of the table, and it has the partition columns {self._names}: give a "
            "mapping, a tuple with a value for each, or name=value"
        )

    def _hive_values(self, path: str) -> dict[str, object] | None:
        """Return the values of a text such as ``city=sf/day=2026-01-01``, a Hive style path."""
        names = "|".join(re.escape(field.name) for field in self.spec.partition_fields)
        if not re.match(rf"(?:{names})=", path):
            return None
        pairs = [part.split("=", 1) for part in re.split(rf"/(?=(?:{names})=)", path)]
        values: dict[str, object] = {pair[0]: pair[1] for pair in pairs}
        return values if len(values) == len(pairs) else None

    def _is_text(self, field: PartitionField) -> bool:
        column = field_at(self.schema, field.name)
        return column is None or pt.is_string(column.type)

    def _of_value(self, value: object) -> list[str]:
        fields = self.spec.partition_fields
        if len(fields) > 1:
            raise InvalidInputError(
                f"{value!r:.200} is one value, and the table has the partition columns {self._names}: give a mapping or a tuple"
            )
        return self._with_values({fields[0].name: value})

    def _with_values(self, values: Mapping[str, object]) -> list[str]:
        """Return the partitions whose paths have these values."""
        fields = {field.name: field for field in self.spec.partition_fields}
        unknown = [name for name in values if name not in fields]
        if unknown or not values:
            raise InvalidInputError(f"{dict(values)!r:.200} names no partition columns; the table has {self._names}")
        readings_by_name = {name: self._parts(fields[name], value) for name, value in values.items()}
        # Of several readings of a text the first one that a partition has counts.
        found: set[int] | None = None
        for name, readings in readings_by_name.items():
            index_sets = (self._places.get((name, part), set()) for part in readings)
            found = next((some for each in index_sets if (some := each if found is None else each & found)), set())
        return [self.known[index] for index in sorted(found or ())]

    @cached_property
    def _places(self) -> dict[tuple[str, str], set[int]]:
        """The places of the known paths with each part of each column."""
        indices: dict[tuple[str, str], set[int]] = {}
        for index, path in enumerate(self.known):
            for item in (divide_path(self.spec, path) or {}).items():
                indices.setdefault(item, set()).add(index)
        return indices

    @cached_property
    def known_texts(self) -> frozenset[str]:
        """The existing paths."""
        return frozenset(self.known)

    def _parts(self, field: PartitionField, value: object) -> list[str]:
        """Return the possible path parts of a value, most likely first."""
        column = field_at(self.schema, field.name)
        data_type = pa.string() if column is None else column.type
        if self.whole and isinstance(value, str) and not value:
            raise InvalidInputError(
                f"the empty text as {field.name!r} names no partition of its own: its rows lie with those without a value, as in "
                f"Hudi; name the path with {DEFAULT_PARTITION} (or None) for both, or delete rows by a filter"
            )
        try:
            parts = [self._path_part(field, data_type, value)]
        except _VALUE_ERRORS as error:
            texts = self._path_texts(field, value)
            if not texts or not (field.timestamp or any(self._has(field, part) for part in texts)):
                raise InvalidInputError(
                    f"{value!r:.200} is no value of partition column {field.name!r} of type {data_type}: {error}"
                ) from error
            return texts
        return [*parts, *self._path_texts(field, value)]

    def _path_texts(self, field: PartitionField, value: object) -> list[str]:
        """Return the path parts that equal a text: a formatted time, or an encoded value."""
        if not isinstance(value, str) or not value:
            return []
        try:
            formatted = self._path_part(PartitionField(field.name), pa.string(), value)
        except _VALUE_ERRORS:
            return []
        return [formatted, f"{field.name}={value}" if self.spec.hive_style else value]

    def _has(self, field: PartitionField, part: str) -> bool:
        return (field.name, part) in self._places

    def _path_part(self, field: PartitionField, data_type: pa.DataType, value: object) -> str:
        """Return the path part of a row with the value."""
        alone = replace(self.spec, partition_fields=(field,))
        rows = pa.table({field.name: _array_of_value(value, data_type)})
        return str(build_partition_paths(alone, rows).dictionary[0])


def _array_of_value(value: object, data_type: pa.DataType) -> pa.Array:
    """Return one value as an array of a type; texts are parsed."""
    if isinstance(value, str) and not pt.is_string(data_type):
        return pa.array([str(value)]).cast(data_type)
    return pa.repeat(arrow_scalar(value, data_type, "partition"), 1)


# --------------------------------------------------------------------------------------------------- partitions by time


U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def key_buckets(table: pa.Table, columns: Sequence[str], buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket of every row.

    The hash of a column is the seed of the next one; the first seed is 0.

    Args:
        table: the rows.
        columns: the bucket key.
        buckets: how many there are.

    Raises:
        SchemaMismatch: a column is not there, or has a type that is not hashed.

    Example:
        >>> key_buckets(pa.table({"product": ["apple", "pear", "apple", None]}), ["product"], 8).tolist()
        [0, 5, 0, 0]
    """
    check_bucket_key(table.schema, columns, buckets)
    hashes: U32 = np.zeros(table.num_rows, np.uint32)
    for name in columns:
        hashes = murmur3(*_bytes_of(one_array(table.column(name))), hashes)
    return (hashes.astype(np.int64)) % buckets


def check_bucket_key(schema: pa.Schema, columns: Sequence[str], buckets: int) -> None:
    """Raise unless rows of a schema have such buckets.

    Raises:
        InvalidInputError: there is no column, or no bucket.
        SchemaMismatch: a column is not there, or has a type that is not hashed.
    """
    if not columns or not 1 <= buckets < 10_000_000:
        raise InvalidInputError("buckets need a key of at least one column, and a number from 1 to 9,999,999")
    for name in columns:
        if name not in schema.names:
            raise SchemaMismatch(f"bucket_key column {name!r} is not in the schema {schema.names}")
        if not _is_hashed(schema.field(name).type):
            raise SchemaMismatch(
                f"bucket_key column {name!r} has type {schema.field(name).type}: texts, binary, integers, booleans, dates, "
                "times and timestamps have buckets"
            )


def _is_hashed(data_type: pa.DataType) -> bool:
    if pt.is_dictionary(data_type):
        return _is_hashed(data_type.value_type)
    is_text = (
        pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
    )
    return (
        is_text
        or pt.is_integer(data_type)
        or pt.is_boolean(data_type)
        or (pt.is_temporal(data_type) and not pt.is_interval(data_type))
    )


def _bytes_of(values: pa.Array) -> tuple[U8, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bytes of values in one buffer, where each begins, and how many it has; a null has none."""
    if pt.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    data_type = values.type
    if pt.is_integer(data_type) or pt.is_boolean(data_type) or pt.is_temporal(data_type):
        return _bytes_of_numbers(values)
    texts = values.cast(pa.large_binary())
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, texts.offset * 8)
    data = texts.buffers()[2]
    buffer = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.where(texts.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    return buffer, offsets[:-1], lengths


def _bytes_of_numbers(values: pa.Array) -> tuple[U8, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return numbers as eight bytes, the smallest first: dates as days, times and timestamps in microseconds."""
    data_type, valid = values.type, values.is_valid().to_numpy(zero_copy_only=False)
    if pt.is_timestamp(data_type):
        values = values.cast(pa.timestamp("us", data_type.tz), safe=False)
    elif pt.is_time(data_type):
        values = values.cast(pa.time64("us"), safe=False)
    elif pt.is_duration(data_type):
        values = values.cast(pa.duration("us"), safe=False)
    elif pt.is_date(data_type):
        values = values.cast(pa.date32()).cast(pa.int32())
    wide = values.cast(pa.uint64() if data_type == pa.uint64() else pa.int64())
    zero = pa.scalar(0, wide.type)
    numbers = np.ascontiguousarray(pc.fill_null(wide, zero).to_numpy(zero_copy_only=False)).astype(
        "<i8", casting="unsafe"
    )
    starts = np.arange(len(numbers), dtype=np.int64) * 8
    return numbers.view(np.uint8), starts, np.where(valid, 8, 0)


def murmur3(data: U8, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seeds: U32) -> U32:
    """Return MurmurHash3 (x86, 32 bits) of many values.

    Args:
        data: the bytes of all values.
        starts: where each begins.
        lengths: how many bytes it has.
        seeds: the seed of each.

    Example:
        >>> data = np.frombuffer(b"hello", np.uint8)
        >>> [hex(h) for h in murmur3(data, np.array([0]), np.array([5]), np.zeros(1, np.uint32))]
        ['0x248bfa47']
    """
    with np.errstate(over="ignore"):
        hashes = seeds.astype(np.uint32, copy=True)
        blocks = lengths // 4
        padded = np.concatenate([data, np.zeros(4, np.uint8)])
        order = np.argsort(-blocks, kind="stable")
        for block in range(int(blocks.max(initial=0))):  # over four bytes of every value at a time
            rows = order[: int(np.searchsorted(-blocks[order], -block, side="left"))]
            mixed = hashes[rows] ^ _scrambled(_words(padded, starts[rows] + 4 * block, np.full(len(rows), 4)))
            hashes[rows] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashes ^= _scrambled(_words(padded, starts + 4 * blocks, lengths % 4))
        hashes ^= lengths.astype(np.uint32)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
        return cast("U32", hashes ^ (hashes >> np.uint32(16)))


def _words(data: U8, starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> U32:
    """Return up to four bytes at each start as a number, the first byte the lowest."""
    words = np.zeros(len(starts), np.uint32)
    for offset in range(4):
        byte = data[np.minimum(starts + offset, len(data) - 1)].astype(np.uint32)
        words |= np.where(offset < counts, byte, np.uint32(0)) << np.uint32(8 * offset)
    return words


def _scrambled(words: U32) -> U32:
    return cast("U32", _rotated(words * _C1, 15) * _C2)


def _rotated(words: U32, bits: int) -> U32:
    return cast("U32", (words << np.uint32(bits)) | (words >> np.uint32(32 - bits)))
