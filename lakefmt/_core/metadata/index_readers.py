"""Read the record index, secondary indexes, expression indexes and column statistics of a metadata table (effects on reading only)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import distinct, text_offsets
from lakefmt._core.formats.avro.columnar.codec import decode_rows
from lakefmt._core.metadata.layout import (
    IndexDefinition,
    PartitionKind,
    column_key,
    escape_partition,
    partition_key,
    record_keys_of,
    secondary_index_prefixes,
)
from lakefmt._core.metadata.reader import MetadataTable, RecordRun, newest_records
from lakefmt._core.metadata.records import (
    MetadataRecord,
    RecordLocation,
    combine_records,
    decode_record,
    encode_record,
    record_schema,
)
from lakefmt._core.schema import is_mislabelled
from lakefmt.errors import CorruptFile

__all__ = [
    "LOCATION_SCHEMA",
    "decode_index_keys",
    "decode_statistics",
    "decode_stats",
    "is_partitioned",
    "keys_in_file_group",
    "locations_of",
    "lookup_locations",
    "lookup_record_keys",
    "read_expression_stats",
    "read_stats",
    "read_stats_of_keys",
    "scan_locations",
    "stats_schema",
]

#: Where a key is: data partition, file group, and the instant that put it there in milliseconds since 1970.
LOCATION_SCHEMA = pa.schema(
    [("key", pa.string()), ("partition", pa.string()), ("file_id", pa.string()), ("instant_millis", pa.int64())]
)
_RECORD_INDEX = PartitionKind.RECORD_INDEX.value


def is_partitioned(table: MetadataTable) -> bool:
    """Return whether the record index has file groups of its own for every data partition; a key may then be in several."""
    return None not in table.file_slices(_RECORD_INDEX)


def lookup_locations(table: MetadataTable, keys: pa.Array, partitions: Iterable[str] | None = None) -> pa.Table:
    """Return where record keys are stored; keys that are not are left out (:data:`LOCATION_SCHEMA`).

    Parameters:
        table: the metadata table.
        keys: record keys, strings without nulls.
        partitions: the data partitions to look in, where the record index is partitioned; None: all of them.

    Raises:
        CorruptFile: the index is damaged, or a file group of it is missing.
    """
    distinct_keys = keys.unique().cast(pa.binary())
    slices_of_runs = table.file_slices(_RECORD_INDEX)
    if None in slices_of_runs:
        runs: list[str | None] = [None]
    else:
        runs = list(slices_of_runs) if partitions is None else [escape_partition(path) for path in partitions]
    parts = (locations_of(table.lookup(_RECORD_INDEX, distinct_keys, run)) for run in runs)
    return pa.concat_tables([LOCATION_SCHEMA.empty_table(), *parts])


def keys_in_file_group(table: MetadataTable, keys: pa.Array, partition: str, file_id: str) -> pa.Array:
    """Return those of some record keys that the index says are in a file group.

    Parameters:
        table: the metadata table.
        keys: record keys, strings without nulls.
        partition: the file group's data partition.
        file_id: the file group.

    Raises:
        CorruptFile: see :func:`lookup_locations`.
    """
    slices_of_runs = table.file_slices(_RECORD_INDEX)
    if not len(keys) or (None not in slices_of_runs and escape_partition(partition) not in slices_of_runs):
        return keys[:0]
    locations = lookup_locations(table, keys, [partition])
    there = pa.compute.and_(
        pa.compute.equal(locations["partition"], partition), pa.compute.equal(locations["file_id"], file_id)
    )
    chunks = locations["key"].filter(there).chunks
    return pa.concat_arrays(chunks) if chunks else keys[:0]


def scan_locations(table: MetadataTable) -> pa.Table:
    """Return where every record key is stored (:data:`LOCATION_SCHEMA`).

    Parameters:
        table: the metadata table.

    Raises:
        CorruptFile: see :func:`lookup_locations`.
    """
    runs = list(table.file_slices(_RECORD_INDEX))
    parts = (locations_of(table.scan(_RECORD_INDEX, run)) for run in runs)
    return pa.concat_tables([LOCATION_SCHEMA.empty_table(), *parts])


def locations_of(runs: Sequence[RecordRun]) -> pa.Table:
    """Return where records of the record index say that their keys are (:data:`LOCATION_SCHEMA`).

    Parameters:
        runs: oldest first within a file group.

    Raises:
        CorruptFile: a record is damaged.
    """
    newest, schemas = newest_records(runs)
    parts = []
    for number, schema in enumerate(schemas):
        rows = newest.filter(pa.compute.equal(newest["schema"], number))
        values = rows["value"].combine_chunks().dictionary_encode()
        # Distinct values, of which there are a few for each file group.
        locations = [_location_in_record(value, schema, runs[0].what) for value in values.dictionary.to_pylist()]
        distinct = {
            "partition": pa.array([location.partition for location in locations], pa.string()),
            "file_id": pa.array([location.file_id for location in locations], pa.string()),
            "instant_millis": pa.array([location.instant_millis for location in locations], pa.int64()),
        }
        columns = {name: column.take(values.indices) for name, column in distinct.items()}
        try:
            parts.append(pa.table({"key": rows["key"].cast(pa.string()), **columns}, LOCATION_SCHEMA))
        except pa.ArrowInvalid as error:
            raise CorruptFile(f"{runs[0].what}: a key is no text: {error}") from None
    return pa.concat_tables([LOCATION_SCHEMA.empty_table(), *parts])


def _location_in_record(value: bytes, schema: str, what: str) -> RecordLocation:
    location = decode_record(value, schema, f"a record of {what}").location
    if location is None:
        raise CorruptFile(f"{what}: a record of the record index says no location")
    return location


def lookup_record_keys(table: MetadataTable, index: IndexDefinition, values: pa.Array) -> pa.Array:
    """Return the record keys of the rows in which the indexed column has one of some values.

    Parameters:
        table: the metadata table.
        index: the secondary index.
        values: of the indexed column's type, without nulls.

    Raises:
        CorruptFile: the index is damaged, or a file group of it is missing.
    """
    prefixes = secondary_index_prefixes(values.unique())
    placed_by = None if index.version in (None, "V1") else prefixes
    runs = table.lookup_prefixes(index.name, prefixes.cast(pa.binary()), placed_by)
    records, _ = newest_records(runs)
    return decode_index_keys(records["key"].combine_chunks(), index.name)


def decode_index_keys(keys: pa.Array, what: str) -> pa.Array:
    """Return the record keys in keys of a secondary index.

    Parameters:
        keys: binary.
        what: how the index is named in errors.

    Raises:
        CorruptFile: some of them are no such keys.
    """
    try:
        return record_keys_of(keys.cast(pa.string()))
    except (ValueError, pa.ArrowInvalid) as error:
        raise CorruptFile(f"the secondary index {what} is damaged: {error}") from None


def read_expression_stats(
    table: MetadataTable, index: str, column: str, data_type: pa.DataType, partitions: Iterable[str] | None = None
) -> pa.Table:
    """Return what an expression gives for the rows of each file.

    Parameters:
        table: the metadata table.
        index: the metadata table's partition, ``expr_index_…``, of type ``column_stats``.
        column: the column that the expression is of.
        data_type: the type of what the expression gives.
        partitions: paths of data partitions; None: all.

    Returns:
        Columns as of :func:`~lakefmt._core.metadata.index_readers.read_stats`, but ``value_count`` is without the
        rows with null.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    first = column_key(column)
    prefixes = [first] if partitions is None else [first + partition_key(path) for path in partitions]
    stats = read_stats_of_keys(table, index, prefixes, data_type, nulls_counted=False)
    return stats.filter(pc.invert(stats["is_tight"]))  # those of data partitions are tight


# ----------------------------------------------------------------------------------- column statistics
#
# Statistics records are decoded by columns: the smallest and largest value of each as Arrow arrays of the column's type. A value is
# stored in one of a dozen wrapper records, all of a column in the same one as a rule. Records are taken apart by their wrapper, and
# each part is decoded with a schema that has the plain type in its place.


I64 = npt.NDArray[np.int64]

_STATS_FIELD = "ColumnStatsMetadata"
_FIRST_STATS_FIELDS = ["fileName", "columnName", "minValue", "maxValue"]
_DECIMAL_SCALE = 15
_DECIMAL_BYTES = 16
_DECIMAL_DIGITS = 38
#: Units of numbers in statistics of version 9, by the number of their type; of version 8 they are microseconds.
_UNITS_BY_TYPE = {13: "ms", 14: "us", 15: "ms", 16: "us", 17: "ns", 18: "ms", 19: "us", 20: "ns"}
#: Milliseconds of the year 10000, and a little more.
_MOST_MILLIS = 260_000_000_000_000


def read_stats(
    table: MetadataTable,
    where: PartitionKind,
    column: str,
    data_type: pa.DataType,
    partitions: Iterable[str] | None = None,
) -> pa.Table:
    """Return what values of a column each file, or each data partition, has.

    Parameters:
        table: the metadata table.
        where: ``COLUMN_STATS`` or ``PARTITION_STATS``.
        column: the column's name, with dots when it is nested.
        data_type: its type in the table.
        partitions: paths of data partitions; None: all.

    Returns:
        Columns ``name`` (of the file, without directory, or the partition's path), ``min`` and ``max`` (of `data_type`; null: not
        known, or only nulls), ``value_count`` (rows, those with null included), ``null_count`` and ``is_tight``. A file that
        is missing is one of which nothing is known.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    first = column_key(column)
    prefixes = [first] if partitions is None else [first + partition_key(path) for path in partitions]
    return read_stats_of_keys(table, where.value, prefixes, data_type)


def decode_statistics(values: pa.BinaryArray, schema: str, data_type: pa.DataType) -> pa.Table:
    """Return records of one column as :func:`read_stats` would return them once they are written.

    Parameters:
        values: encoded records.
        schema: their Avro schema, as JSON text.
        data_type: the column's type in the table.
    """
    return decode_stats(values, schema, data_type, "statistics")


def read_stats_of_keys(
    table: MetadataTable, where: str, prefixes: Sequence[str], data_type: pa.DataType, *, nulls_counted: bool = True
) -> pa.Table:
    """Return the statistics whose keys begin with one of some texts.

    Parameters:
        table: the metadata table.
        where: its partition.
        prefixes: how the keys begin.
        data_type: the type of the values.
        nulls_counted: the rows that are counted include those with null.

    Returns:
        Columns as of :func:`read_stats`.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    if not prefixes:
        return stats_schema(data_type).empty_table()
    runs = table.lookup_prefixes(where, pa.array([prefix.encode() for prefix in prefixes], pa.binary()))
    statistics = _newest_stats(runs, data_type, nulls_counted)
    several = _keys_of_several(runs)
    # A tight record counts alone, as the newest one does; others are combined with those before them.
    if not len(several) or pc.all(statistics["is_tight"], min_count=0).as_py():
        return statistics
    return _newest_stats([*runs, _combined_run(runs, several, table)], data_type, nulls_counted)


def _newest_stats(runs: Sequence[RecordRun], data_type: pa.DataType, nulls_counted: bool) -> pa.Table:
    """Return the newest record of every key."""
    newest, schemas = newest_records(runs)
    parts = [
        decode_stats(
            newest.filter(pc.equal(newest["schema"], number))["value"].combine_chunks(),
            schema,
            data_type,
            runs[0].what,
            nulls_counted=nulls_counted,
        )
        for number, schema in enumerate(schemas)
        if schema
    ]
    return pa.concat_tables([stats_schema(data_type).empty_table(), *parts])


def _keys_of_several(runs: Sequence[RecordRun]) -> pa.Array:
    """Return the keys that were written more than once.

    They are few: files never change. But a log of version 6 grows, and a data partition is written to again and again.
    """
    chunks = [chunk for run in runs if run.values is not None for chunk in run.keys.chunks]
    counts = pa.chunked_array(chunks, pa.binary()).value_counts()
    return counts.field("values").filter(pc.greater(counts.field("counts"), 1))


def _combined_run(runs: Sequence[RecordRun], several: pa.Array, table: MetadataTable) -> RecordRun:
    """Return a run of what the records of keys that were written more than once say together."""
    combined: dict[bytes, MetadataRecord] = {}
    for run in runs:
        mask = pc.is_in(run.keys, value_set=several)
        keys = run.keys.filter(mask).to_pylist()
        if run.values is None:
            for key in keys:
                combined.pop(key, None)
            continue
        for key, value in zip(keys, run.values.filter(mask).to_pylist(), strict=True):
            record = decode_record(value, run.schema, f"a record of {run.what}")
            combined[key] = record if key not in combined else combine_records(combined[key], record)
    version = table.config.version
    values = [encode_record(record, version) for record in combined.values()]
    arrays = [pa.chunked_array([pa.array(each, pa.binary())]) for each in (list(combined), values)]
    return RecordRun(arrays[0], arrays[1], record_schema(version), runs[0].what)


def stats_schema(data_type: pa.DataType) -> pa.Schema:
    """Return the columns of statistics of one column.

    Parameters:
        data_type: the column's type in the table.
    """
    return pa.schema(
        [
            ("name", pa.string()),
            ("min", data_type),
            ("max", data_type),
            ("value_count", pa.int64()),
            ("null_count", pa.int64()),
            ("is_tight", pa.bool_()),
        ]
    )


def decode_stats(
    values: pa.BinaryArray, schema: str, data_type: pa.DataType, what: str, *, nulls_counted: bool = True
) -> pa.Table:
    """Return statistics records of one column (:func:`stats_schema`), those of removed files left out.

    An end that is not known, or not of the column's type, is null.

    Parameters:
        values: encoded records.
        schema: the Avro schema of the records, as JSON text.
        data_type: the column's type in the table.
        what: how the file is named in errors.
        nulls_counted: the rows that are counted include those with null.

    Raises:
        CorruptFile: a record is damaged.
    """
    try:
        return _decoded_stats(values, schema, data_type, what, nulls_counted=nulls_counted)
    except (KeyError, pa.ArrowException) as error:  # the schema is part of a log's bytes
        raise CorruptFile(f"{what}: the schema of its statistics is damaged: {error!r:.200}") from None


def _decoded_stats(
    values: pa.BinaryArray, schema: str, data_type: pa.DataType, what: str, *, nulls_counted: bool
) -> pa.Table:
    plain = _plain_schema(schema)
    alike = _decoded_with_one_wrapper(values, plain, schema, what)
    if alike is not None:
        return _stats_table(alike, data_type, nulls_counted)
    parts = []
    branches = _stats_field(values, plain.of(None, upto=1), "minBranch", what)
    for branch in distinct(branches).tolist():  # one for each wrapper that occurs
        some = values.filter(pa.array(branches == branch))
        if not 0 <= branch < len(plain.wrappers):
            raise CorruptFile(f"{what}: statistics with an unknown kind of value")
        other = _stats_field(some, plain.of(branch, upto=2), "maxBranch", what) != branch
        # Ends of two kinds cannot be compared: nothing is known of those.
        some = some.filter(pa.array(~other))
        parts.append(_stats_table(_decode_structs(some, plain.of(branch, upto=3), what), data_type, nulls_counted))
    return pa.concat_tables([stats_schema(data_type).empty_table(), *parts])


def _decoded_with_one_wrapper(
    values: pa.BinaryArray, plain: _PlainSchema, schema: str, what: str
) -> pa.StructArray | None:
    """Return records decoded at once with the wrapper of the first one; None: another one has another wrapper.

    The number of a wrapper stands before its value, so it is read rightly up to the first value of another wrapper.
    """
    if not len(values):
        return None
    try:
        first = decode_record(values[0].as_py(), schema, what).column_stats
        branch = plain.names.index(None if first is None else first.wrapper)
        stats = _decode_structs(values, plain.of(branch, upto=3), what)
    except (CorruptFile, ValueError):
        return None  # what is damaged is said where the wrappers are looked at one by one
    numbers = (stats.field(name).to_numpy(zero_copy_only=False) for name in ("minBranch", "maxBranch"))
    return stats if all((each == branch).all() for each in numbers) else None


def _decode_structs(values: pa.BinaryArray, schema: str, what: str) -> pa.StructArray:
    offsets = text_offsets(values)
    decoded = decode_rows(values.buffers()[2] or b"", offsets[:-1], offsets[1:], schema, [_STATS_FIELD], what=what)
    stats = decoded[_STATS_FIELD].combine_chunks()
    if stats.null_count:
        raise CorruptFile(f"{what}: a record of statistics has none")
    return stats


def _stats_field(values: pa.BinaryArray, schema: str, name: str, what: str) -> I64:
    numbers: I64 = _decode_structs(values, schema, what).field(name).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _stats_table(stats: pa.StructArray, data_type: pa.DataType, nulls_counted: bool) -> pa.Table:
    """Return records of one wrapper as :func:`stats_schema`."""
    names = {field.name for field in stats.type}
    nothing = pa.nulls(len(stats), pa.int32())
    has_type = "valueType" in names
    ordinals = pc.struct_field(stats, ["valueType", "typeOrdinal"]) if has_type else nothing
    details = pc.struct_field(stats, ["valueType", "additionalInfo"]) if has_type else nothing.cast(pa.string())
    if pt.is_decimal(data_type):
        ordinals = _decimal_scales(pc.is_valid(ordinals), details, data_type)
    ends = [
        _typed_ends(stats.field(name), ordinals, data_type) if name in names else pa.nulls(len(stats), data_type)
        for name in ("minValue", "maxValue")
    ]
    zero = pa.scalar(0, pa.int64())
    counts, nulls = (pc.fill_null(stats.field(name), zero) for name in ("valueCount", "nullCount"))
    # Where all values are null, some releases store 0 or false as both ends.
    nothing_known = pc.equal(counts, nulls if nulls_counted else zero)
    ends = [pc.if_else(nothing_known, pa.scalar(None, data_type), end) for end in ends]
    tight = stats.field("isTightBound") if "isTightBound" in names else pa.array(np.zeros(len(stats), bool))
    columns = [
        stats.field("fileName"),
        *ends,
        counts,
        nulls,
        tight,
    ]
    return pa.table(columns, schema=stats_schema(data_type)).filter(pc.invert(stats.field("isDeleted")))


def _decimal_scales(typed: pa.Array, details: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return how many digits behind the point decimals are stored with; from version 9 on the type says its own."""
    own = pc.struct_field(pc.extract_regex(details, r"^\s*\d+\s*,\s*(?P<scale>\d{1,2})\s*$"), "scale")
    return pc.if_else(typed, pc.fill_null(own.cast(pa.int32()), data_type.scale), _DECIMAL_SCALE)


def _typed_ends(ends: pa.Array, ordinals: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return ends of one wrapper as values of the column's type, null where they are of another one.

    Parameters:
        ends: what is stored.
        ordinals: the number of the type of each; of decimals the digits behind the point.
        data_type: the column's type.
    """
    if pt.is_decimal(data_type):
        return _decimal_ends(ends, ordinals, data_type) if pt.is_binary(ends.type) else pa.nulls(len(ends), data_type)
    if pt.is_timestamp(data_type) or pt.is_time(data_type):
        return _time_ends(ends, ordinals, data_type) if pt.is_integer(ends.type) else pa.nulls(len(ends), data_type)
    if pt.is_string(ends.type) != (pt.is_string(data_type) or pt.is_large_string(data_type)):
        return pa.nulls(len(ends), data_type)
    try:
        # Days are numbers of 32 bits; what was stored under the name of a column may be of another one.
        return (ends.cast(pa.int32()) if pt.is_date32(data_type) and pt.is_integer(ends.type) else ends).cast(data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(ends), data_type)


def _time_ends(ends: pa.Array, ordinals: pa.Array, data_type: pa.DataType) -> pa.Array:
    joined = pa.nulls(len(ends), data_type)
    codes = pc.fill_null(ordinals, 0).to_numpy(zero_copy_only=False)
    for code in distinct(codes).tolist():  # one unit as a rule
        unit = _UNITS_BY_TYPE.get(code, "us")
        stored: pa.DataType
        if pt.is_time(data_type):
            stored = pa.time32("ms") if unit == "ms" else pa.time64(unit)
        else:
            stored = pa.timestamp(unit, data_type.tz)
        numbers = ends.cast(pa.int32() if stored == pa.time32("ms") else pa.int64(), safe=False)
        if is_mislabelled(stored, data_type):
            # As microseconds the milliseconds of every year up to 9999 lie near 1970: nothing is known of such ends.
            doubtful = pc.and_(pc.less(numbers, _MOST_MILLIS), pc.greater(numbers, -_MOST_MILLIS))
            numbers = pc.if_else(doubtful, pa.scalar(None, pa.int64()), numbers)
        try:
            moments = numbers.cast(stored).cast(data_type)
        except pa.ArrowInvalid:
            continue
        joined = pc.if_else(pa.array(codes == code), moments, joined)
    return joined


def _decimal_ends(ends: pa.Array, scales: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return numbers that are stored as bytes, each with its own digits behind the point."""
    lengths = pc.fill_null(pc.binary_length(ends), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if int(lengths.max(initial=0)) > _DECIMAL_BYTES:
        return pa.nulls(len(ends), data_type)
    behind = text_offsets(ends)[1:].astype(np.int64)
    raw = np.frombuffer(ends.buffers()[2] or b"\0", np.uint8)
    digits = np.zeros((len(ends), _DECIMAL_BYTES), np.uint8)
    some = lengths > 0
    first = np.zeros(len(ends), np.uint8)
    first[some] = raw[(behind - lengths)[some]]
    digits[first >= 0x80] = 0xFF
    for byte_index in range(int(lengths.max(initial=0))):
        there = lengths > byte_index
        digits[there, byte_index] = raw[behind[there] - 1 - byte_index]
    joined = pa.nulls(len(ends), data_type)
    digits_behind = scales.to_numpy(zero_copy_only=False)
    for scale in distinct(digits_behind).tolist():  # one as a rule
        if scale <= _DECIMAL_DIGITS:
            stored = pa.Array.from_buffers(
                pa.decimal128(_DECIMAL_DIGITS, scale), len(ends), [None, pa.py_buffer(digits)]
            )
            has_scale = pc.and_(pa.array(digits_behind == scale), ends.is_valid())
            try:
                joined = pc.if_else(
                    has_scale, pc.if_else(has_scale, stored, pa.scalar(None, stored.type)).cast(data_type), joined
                )
            except pa.ArrowInvalid:
                continue
    return joined


# ------------------------------------------------------------------------------------------------------------- schemas


@lru_cache(maxsize=32)
def _parsed_record_schema(schema: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a metadata record, and that of its statistics.

    Raises:
        CorruptFile: it is no schema of a metadata record.
    """
    try:
        record = json.loads(schema)
        (field,) = (each for each in record["fields"] if each["name"] == _STATS_FIELD)
        stats = next(each for each in field["type"] if isinstance(each, dict))
        if [each["name"] for each in stats["fields"]][: len(_FIRST_STATS_FIELDS)] != _FIRST_STATS_FIELDS or field[
            "type"
        ][0] != "null":
            raise ValueError("its statistics have other fields")
        return record, stats
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise CorruptFile(f"the schema of a metadata record is damaged: {error!r:.200}") from None


class _PlainSchema:
    """Schemas of statistics records in which plain types stand in the place of wrappers.

    Parameters:
        schema: the schema that was stored, as JSON text.
    """

    def __init__(self, schema: str) -> None:
        self._record, self._stats = _parsed_record_schema(schema)
        try:
            union = self._stats["fields"][2]["type"]
            self.wrappers: list[str | None] = [None, *(_plain_type(each) for each in union[1:])]
            self.names: list[str | None] = [None, *(each["name"] for each in union[1:])]
        except (KeyError, TypeError, IndexError) as error:
            raise CorruptFile(f"the schema of a metadata record is damaged: {error!r:.200}") from None
        self._made: dict[tuple[int | None, int], str] = {}

    def of(self, branch: int | None, *, upto: int) -> str:
        """Return a schema that reads the numbers of wrappers as numbers.

        Parameters:
            branch: the wrapper of both ends; None: not known yet.
            upto: 1: up to the number of the first wrapper; 2: up to that of the second; 3: everything.
        """
        made = self._made.get((branch, upto))
        if made is None:
            made = self._made[branch, upto] = self._make(branch, upto)
        return made

    def _make(self, branch: int | None, upto: int) -> str:
        fields = self._stats["fields"]
        own: list[object] = [*fields[:2], {"name": "minBranch", "type": "long"}]
        avro_type = None if branch is None else self.wrappers[branch]
        if upto > 1:
            own += [] if avro_type is None else [{"name": "minValue", "type": avro_type}]
            own.append({"name": "maxBranch", "type": "long"})
        if upto > 2:
            own += [] if avro_type is None else [{"name": "maxValue", "type": avro_type}]
            own += fields[4:]
        names = [each["name"] for each in self._record["fields"]]
        before = self._record["fields"][: names.index(_STATS_FIELD)]
        stats = {"name": _STATS_FIELD, "type": ["null", {**self._stats, "fields": own}]}
        return json.dumps({**self._record, "fields": [*before, stats, {"name": "lakefmt_rest", "type": "long"}]})


@lru_cache(maxsize=32)
def _plain_schema(schema: str) -> _PlainSchema:
    return _PlainSchema(schema)


def _plain_type(wrapper: dict[str, Any]) -> str:
    """Return the type of a wrapper's value; of one that holds several it does not matter."""
    avro_type = wrapper["fields"][0]["type"]
    while isinstance(avro_type, dict):
        avro_type = avro_type["type"]
    return avro_type if isinstance(avro_type, str) else "null"
