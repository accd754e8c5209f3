"""Column statistics of data files: from Parquet footers, from rows, for whole partitions. Pure.

A range keeps its ends as comparable Python values: bool, int, float, str or bytes; decimals as unscaled integers, dates and
times as the integers that are stored. How an end is written depends on the column's type and on the version of the
statistics: version 1 (table versions 6 and 8) has a wrapper per logical type, version 2 (table version 9) names the type
by number and uses plain wrappers (docs/format.md, Metadata table).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.parquet.duplicate_columns import leaf_paths, parquet_schema
from lakefmt._core.metadata.records import ColumnStats
from lakefmt._core.schema.types import field_at
from lakefmt._core.values import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, TableVersion
from lakefmt.errors import CorruptFile

__all__ = [
    "MOST_COLUMNS",
    "ColumnRange",
    "column_stats_of",
    "footer_ranges",
    "indexed_columns",
    "merged_ranges",
    "row_ranges",
]

#: As many columns are indexed by default, in the order of the schema.
MOST_COLUMNS = 32
#: Meta columns that are always indexed, in this order.
_META_COLUMNS = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
#: Decimals are stored with this scale and at most this precision in version 1.
_DECIMAL_SCALE, _DECIMAL_PRECISION = 15, 30
_NULL_TYPE = 1

End = bool | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The values of a column in one file or several.

    Attributes:
        column: its name.
        minimum: the smallest value; None when there is none, or it is not known.
        maximum: the largest value.
        value_count: rows, those with null included.
        null_count: rows with null.
        total_size: compressed bytes; 0 for logs.
        total_uncompressed_size: bytes before compression; 0 for logs.
    """

    column: str
    minimum: Any
    maximum: Any
    value_count: int
    null_count: int
    total_size: int = 0
    total_uncompressed_size: int = 0


def is_indexable(data_type: pa.DataType) -> bool:
    """Return whether statistics of a column of this type are kept.

    Example:
        >>> is_indexable(pa.decimal128(10, 2)), is_indexable(pa.decimal128(38, 2)), is_indexable(pa.binary())
        (True, False, False)
    """
    if pt.is_decimal(data_type):
        return bool(
            data_type.scale <= _DECIMAL_SCALE
            and data_type.precision + _DECIMAL_SCALE - data_type.scale <= _DECIMAL_PRECISION
        )
    return any(check(data_type) for check in _INDEXABLE)


_INDEXABLE = (
    pt.is_boolean,
    pt.is_int32,
    pt.is_int64,
    pt.is_float32,
    pt.is_float64,
    pt.is_string,
    pt.is_date32,
    pt.is_time,
    pt.is_timestamp,
)


def indexed_columns(
    schema: pa.Schema, columns: Sequence[str] | None = None, *, meta_columns: bool = True, most: int = MOST_COLUMNS
) -> tuple[str, ...]:
    """Return the columns of a table whose statistics are kept.

    Parameters:
        schema: the table's columns, without meta columns.
        columns: names from ``hoodie.metadata.index.column.stats.column.list``, with dots for nested fields; None: the first
            columns.
        meta_columns: the table's files have the meta columns.
        most: how many, when none are asked for.

    Example:
        >>> indexed_columns(pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string()))]))
        ('_hoodie_commit_time', '_hoodie_partition_path', '_hoodie_record_key', 'id')
    """
    if columns is None:
        names = [each.name for each in schema if is_indexable(each.type)][:most]
    else:
        names = [name for name in columns if (field := field_at(schema, name)) is not None and is_indexable(field.type)]
    return (*(_META_COLUMNS if meta_columns else ()), *names)


# --------------------------------------------------------------------------------------------------------- from footers


def footer_ranges(
    metadata: pq.FileMetaData, columns: Iterable[str], types: Mapping[str, pa.DataType]
) -> tuple[dict[str, ColumnRange], tuple[str, ...]]:
    """Return the ranges of a base file's columns from its footer.

    Parameters:
        metadata: the footer.
        columns: names; those that the file does not have as plain columns are left out.
        types: the columns' types in the table.

    Returns:
        The ranges by column, and the columns whose ends the footer does not say: they have to be read.
    """
    schema = parquet_schema(metadata)
    index_by_path = {path: position for position, path in enumerate(leaf_paths(metadata))}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    ranges: dict[str, ColumnRange] = {}
    unknown = []
    for name in columns:
        if name not in index_by_path:
            continue
        chunks = [group.column(index_by_path[name]) for group in groups]
        ranges[name], has_ends = _chunk_range(name, chunks, types[name], metadata.num_rows)
        if not has_ends or not _is_stored_as(schema.column(index_by_path[name]), types[name]):
            unknown.append(name)
    return ranges, tuple(unknown)


def _is_stored_as(stored: pq.ColumnSchema, arrow_type: pa.DataType) -> bool:
    """Return whether a file's ends are of the column's type: files are older than a change of the table's columns."""
    if pt.is_string(arrow_type):
        return bool(stored.physical_type == "BYTE_ARRAY")
    if pt.is_decimal(arrow_type):
        return bool(stored.logical_type.type == "DECIMAL" and stored.scale == arrow_type.scale)
    if pt.is_timestamp(arrow_type) or pt.is_time(arrow_type):
        return _UNIT_NAMES[arrow_type.unit] in str(stored.logical_type)
    return bool(stored.physical_type != "BYTE_ARRAY")


#: As Parquet's logical types print them.
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def _chunk_range(
    name: str, chunks: Sequence[pq.ColumnChunkMetaData], arrow_type: pa.DataType, rows: int
) -> tuple[ColumnRange, bool]:
    ends: list[End] = []
    nulls, has_ends = 0, True
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            has_ends = False
            continue
        nulls += statistics.null_count
        if statistics.has_min_max:
            low, high = _raw_end(statistics.min_raw, arrow_type), _raw_end(statistics.max_raw, arrow_type)
            # Older releases of Arrow show an end that was too long to be stored as empty: it is no upper bound.
            has_ends = has_ends and low is not None and high is not None and statistics.max_raw != b""
            ends += [end for end in (low, high) if end is not None]
        elif statistics.null_count < chunk.num_values:
            has_ends = False
    return (
        ColumnRange(
            name,
            min(ends) if ends and has_ends else None,
            max(ends) if ends and has_ends else None,
            rows,
            nulls,
            sum(chunk.total_compressed_size for chunk in chunks),
            sum(chunk.total_uncompressed_size for chunk in chunks),
        ),
        has_ends,
    )


def _raw_end(raw: object, arrow_type: pa.DataType) -> Any:
    """Return an end as Parquet stores it as a comparable value; None when it is of another form than the type's."""
    if pt.is_string(arrow_type):
        if not isinstance(raw, bytes):
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise CorruptFile("a footer's column statistics are not UTF-8") from None
    if pt.is_decimal(arrow_type):
        return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    if pt.is_boolean(arrow_type):
        return raw if isinstance(raw, bool) else None
    if pt.is_floating(arrow_type):
        return float(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) else None
    return raw if isinstance(raw, int) and not isinstance(raw, bool) else None


# ------------------------------------------------------------------------------------------------------------ from rows


def row_ranges(rows: pa.Table, columns: Iterable[str]) -> dict[str, ColumnRange]:
    """Return the ranges of columns of rows, as of the records of a log file; sizes are 0.

    Parameters:
        rows: the rows.
        columns: names; those that the rows do not have are left out.

    Example:
        >>> row_ranges(pa.table({"v": [3, None, 1]}), ["v"])["v"]
        ColumnRange(column='v', minimum=1, maximum=3, value_count=3, null_count=1, total_size=0, total_uncompressed_size=0)
    """
    leaves = {name: leaf_values(rows, name) for name in columns}
    return {name: _row_range(name, values) for name, values in leaves.items() if values is not None}


def leaf_values(rows: pa.Table, name: str) -> pa.ChunkedArray | None:
    """Return a column or nested field, null where a struct above it is; None where the rows do not have it.

    Example:
        >>> leaf_values(pa.table({"s": [{"x": 1}, None]}), "s.x").to_pylist()
        [1, None]
    """
    if name in rows.column_names:
        return rows.column(name)
    first, *path = name.split(".")
    if not path or field_at(rows.schema, name) is None:
        return None
    values = pc.struct_field(rows.column(first), path)
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _row_range(name: str, values: pa.ChunkedArray) -> ColumnRange:
    stored = _as_stored(values)
    ends = pc.min_max(stored)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if pt.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        # Arrow passes over it, and for Spark it is the largest number. As an end Spark keeps it in a cache that passes over it, too.
        low, high = (math.inf if math.isnan(low) else low), math.inf  # NaN is an end for Arrow where there is no number
    if pt.is_decimal(values.type) and low is not None:
        low, high = (int(end.scaleb(values.type.scale)) for end in (low, high))
    return ColumnRange(name, low, high, len(values), values.null_count)


def _as_stored(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times as the integers that are stored."""
    if pt.is_date32(values.type) or pt.is_time32(values.type):
        return values.cast(pa.int32())
    if pt.is_time64(values.type) or pt.is_timestamp(values.type):
        return values.cast(pa.int64())
    return values


def merged_ranges(ranges: Iterable[ColumnRange]) -> ColumnRange | None:
    """Return the range of a column over several files; None for no file.

    Example:
        >>> merged_ranges([ColumnRange("v", 3, 4, 2, 0), ColumnRange("v", None, None, 1, 1), ColumnRange("v", 1, 2, 2, 0)])
        ColumnRange(column='v', minimum=1, maximum=4, value_count=5, null_count=1, total_size=0, total_uncompressed_size=0)
    """
    parts = list(ranges)
    if not parts:
        return None
    return ColumnRange(
        parts[0].column,
        min((part.minimum for part in parts if part.minimum is not None), default=None),
        max((part.maximum for part in parts if part.maximum is not None), default=None),
        sum(part.value_count for part in parts),
        sum(part.null_count for part in parts),
        sum(part.total_size for part in parts),
        sum(part.total_uncompressed_size for part in parts),
    )


# ---------------------------------------------------------------------------------------------------------- as a record


@dataclass(frozen=True, slots=True)
class _Stored:
    """How ends of a type are written: the wrapper, and in version 2 the number and the details of the type."""

    wrapper: str
    ordinal: int
    details: str | None = None


def _stored(data_type: pa.DataType, version: TableVersion) -> _Stored:
    for check, wrapper, ordinal in _PLAIN:
        if check(data_type):
            return _Stored(wrapper, ordinal)
    typed = version is TableVersion.NINE
    if pt.is_date32(data_type):
        return _Stored("IntWrapper" if typed else "DateWrapper", 12)
    if pt.is_decimal(data_type):
        return _Stored("BytesWrapper" if typed else "DecimalWrapper", 10, f"{data_type.precision},{data_type.scale}")
    if pt.is_time32(data_type):
        return _Stored("IntWrapper", 13)
    if pt.is_time64(data_type):
        return _Stored("LongWrapper" if typed else "TimeMicrosWrapper", 14)
    if pt.is_timestamp(data_type) and data_type.unit in _TIMESTAMPS:
        return _Stored("LongWrapper", _TIMESTAMPS[data_type.unit] + (0 if data_type.tz is not None else 3))
    return _Stored("BytesWrapper", 8)


_PLAIN = (
    (pt.is_boolean, "BooleanWrapper", 2),
    (pt.is_int32, "IntWrapper", 3),
    (pt.is_int64, "LongWrapper", 4),
    (pt.is_float32, "FloatWrapper", 5),
    (pt.is_float64, "DoubleWrapper", 6),
    (pt.is_string, "StringWrapper", 7),
)
#: With a zone; without one the numbers are three higher.
_TIMESTAMPS = {"ms": 15, "us": 16, "ns": 17}
_MILLIS_TO_MICROS = 1000


def _written_end(end: End | None, data_type: pa.DataType, version: TableVersion) -> object:
    if end is None:
        return None
    typed = version is TableVersion.NINE
    if pt.is_decimal(data_type):
        number = int(end) if typed else int(end) * 10 ** (_DECIMAL_SCALE - data_type.scale)
        return number.to_bytes(
            number.bit_length() // 8 + 1 if number >= 0 else (~number).bit_length() // 8 + 1, "big", signed=True
        )
    if pt.is_timestamp(data_type) and data_type.unit == "ms" and not typed:
        return int(end) * _MILLIS_TO_MICROS
    return end


def column_stats_of(
    value_range: ColumnRange, data_type: pa.DataType, file_name: str, version: TableVersion, *, is_tight: bool = False
) -> ColumnStats:
    """Return a range as the metadata table stores it.

    Parameters:
        found: the range.
        data_type: the column's type in the table.
        file_name: the file's name, or the data partition's path.
        version: the table version, which decides how ends are written.
        is_tight: the ends are values of live rows.

    Example:
        >>> stats = column_stats_of(ColumnRange("price", 4500, 500000, 9, 0), pa.decimal128(15, 2), "f", TableVersion.NINE)
        >>> stats.minimum.hex(), stats.maximum.hex(), stats.value_type
        ('1194', '07a120', (10, '15,2'))
    """
    stored = _stored(data_type, version)
    typed = version is TableVersion.NINE
    ordinal = (stored.ordinal, stored.details) if value_range.value_count else (_NULL_TYPE, None)
    return ColumnStats(
        file_name,
        value_range.column,
        None if value_range.minimum is None and value_range.maximum is None else stored.wrapper,
        _written_end(value_range.minimum, data_type, version),
        _written_end(value_range.maximum, data_type, version),
        value_range.value_count,
        value_range.null_count,
        value_range.total_size,
        value_range.total_uncompressed_size,
        is_tight=is_tight,
        value_type=ordinal if typed else None,
    )
