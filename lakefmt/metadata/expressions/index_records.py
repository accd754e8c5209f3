"""The records of an expression index: ranges or bloom filters of what a function gives for the rows of each file. Pure.

Statistics count rows without nulls and have the file's size, twice that as uncompressed size; those of a data partition are
beside them under a key of their own (docs/format.md, Expression indexes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import UnsupportedFeature
from lakefmt.formats.bloom.bloom_filter import SIMPLE, BloomFilter
from lakefmt.metadata.expressions.functions import Expression
from lakefmt.metadata.index_definitions import IndexDefinition
from lakefmt.metadata.keys import bloom_filter_key, column_stats_key, expression_partition_stats_key
from lakefmt.metadata.layout import partition_identifier
from lakefmt.metadata.record_schema import RecordFormat
from lakefmt.metadata.records import BloomFilterRecord, ColumnStats, MetadataRecord, RecordType
from lakefmt.metadata.statistics import ColumnRange, column_stats_of, row_ranges
from lakefmt.values import TableVersion

__all__ = [
    "STATISTICS",
    "IndexedFile",
    "check_filters",
    "filter_records",
    "known_range",
    "range_records",
    "removed_keys",
    "value_range",
]

#: Types of expression indexes: ranges, and bloom filters.
STATISTICS, FILTERS = "column_stats", "bloom_filters"
_FPP = 1e-9
#: A filter with this number of entries at the smallest rate has 70 MB.
_MOST_ENTRIES, _SMALLEST_RATE = 10_000_000, 1e-12


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A base file or log file of the data table, with what the function gives for its rows.

    Attributes:
        partition: the data partition's path.
        name: without directory.
        size: in bytes.
        instant: the instant that wrote it.
        values: one for each row; null for null.
    """

    partition: str
    name: str
    size: int
    instant: str
    values: pa.ChunkedArray


# -------------------------------------------------------------------------------------------------------------- ranges


def value_range(expression: Expression, file: IndexedFile) -> ColumnRange | None:
    """Return the range of a file's values; None for a file without rows, which has no record."""
    if not len(file.values):
        return None
    value_range = row_ranges(pa.table({expression.column: file.values}), [expression.column])[expression.column]
    return replace(
        value_range,
        value_count=value_range.value_count - value_range.null_count,
        total_size=file.size,
        total_uncompressed_size=2 * file.size,
    )


def known_range(expression: Expression, records: pa.Table, sizes: Mapping[str, int]) -> ColumnRange | None:
    """Return the range of the files of some records together; None for no record.

    Parameters:
        expression: the function.
        records: of files, as the reader of the index returns them.
        sizes: of these files, by name.
    """
    if not records.num_rows:
        return None
    ends = pa.chunked_array([*records["min"].chunks, *records["max"].chunks], expression.result)
    value_range = row_ranges(pa.table({expression.column: ends}), [expression.column])[expression.column]
    size = sum(sizes.values())
    return replace(
        value_range,
        value_count=pc.sum(records["value_count"]).as_py(),
        null_count=pc.sum(records["null_count"]).as_py(),
        total_size=size,
        total_uncompressed_size=2 * size,
    )


def range_records(
    expression: Expression,
    files: Iterable[tuple[IndexedFile, ColumnRange | None]],
    partitions: Mapping[str, ColumnRange],
    form: RecordFormat,
) -> dict[str, MetadataRecord]:
    """Return the records of files and of data partitions by their keys.

    Parameters:
        expression: the function.
        files: files with their ranges.
        partitions: ranges of all live files, by data partition.
        form: how records are written.
    """
    column = expression.column
    of_files = {
        column_stats_key(column, file.partition, file.name): MetadataRecord(
            RecordType.COLUMN_STATS, column_stats=_stats(expression, value_range, file.name, form, is_tight=False)
        )
        for file, value_range in files
        if value_range is not None
    }
    of_partitions = {
        expression_partition_stats_key(column, path): MetadataRecord(
            RecordType.PARTITION_STATS,
            column_stats=_stats(expression, value_range, partition_identifier(path), form, is_tight=True),
        )
        for path, value_range in partitions.items()
    }
    return {**of_files, **of_partitions}


def _stats(
    expression: Expression, value_range: ColumnRange, name: str, form: RecordFormat, *, is_tight: bool
) -> ColumnStats:
    # Its type is that of the function, also where all values are null.
    typed = column_stats_of(
        replace(value_range, value_count=1), expression.result, name, form.version, is_tight=is_tight
    )
    wrapper = typed.wrapper
    if wrapper is not None and pt.is_timestamp(expression.result) and form.version is not TableVersion.NINE:
        wrapper = "TimestampMicrosWrapper"
    return replace(typed, value_count=value_range.value_count, wrapper=wrapper)


# ------------------------------------------------------------------------------------------------------------- filters


def check_filters(definition: IndexDefinition, expression: Expression) -> None:
    """Raise unless filters of these values can be made.

    Raises:
        UnsupportedFeature: Spark writes values of this type into filters otherwise than it looks for them, or a size is
            no number.
    """
    kind = expression.result
    if not (pt.is_string(kind) or pt.is_int32(kind) or pt.is_int64(kind)):
        raise UnsupportedFeature(
            f"the expression index {definition.name} is not supported: bloom filters are kept of texts and whole numbers, "
            f"not of {kind}"
        )
    _empty_filter(definition, 1)


def filter_records(
    definition: IndexDefinition, files: Iterable[IndexedFile], form: RecordFormat
) -> dict[str, MetadataRecord]:
    """Return the records of base files by their keys: a bloom filter of the values as texts, nulls left out.

    Parameters:
        definition: of the index; its options may say the filters' sizes.
        files: base files.
        form: how records are written.
    """
    records = {}
    for file in files:
        texts = file.values.drop_null().cast(pa.string()).unique()
        bloom = _empty_filter(definition, len(texts))
        bloom.add(texts)
        record = BloomFilterRecord(bloom.type_code, file.instant, bloom.encode().encode("ascii"))
        records[bloom_filter_key(file.partition, file.name)] = MetadataRecord(
            RecordType.BLOOM_FILTER, bloom_filter=record
        )
    return records


def _empty_filter(definition: IndexDefinition, num_values: int) -> BloomFilter:
    try:
        entries = int(definition.options.get("numentries", 0)) or max(1, num_values + num_values // 8)
        rate = float(definition.options.get("fpp", _FPP))
    except ValueError:
        entries, rate = 0, 0.0
    if not (1 <= entries <= _MOST_ENTRIES and _SMALLEST_RATE <= rate < 1):
        raise UnsupportedFeature(
            f"the expression index {definition.name} is not supported: its filters need numentries from 1 to "
            f"{_MOST_ENTRIES} and fpp from {_SMALLEST_RATE} to below 1"
        )
    if definition.options.get("filtertype", "").upper() == SIMPLE:
        return BloomFilter.simple(entries, rate)
    return BloomFilter.sized(entries, rate, max(entries, num_values))


# ------------------------------------------------------------------------------------------------------------ removals


def removed_keys(definition: IndexDefinition, files: Iterable[tuple[str, str]]) -> list[str]:
    """Return the keys of files that are gone.

    Parameters:
        definition: of the index.
        files: data partition and name of each.
    """
    if definition.index_type == STATISTICS:
        return [column_stats_key(definition.columns[0], path, name) for path, name in files]
    return [bloom_filter_key(path, name) for path, name in files if not name.startswith(".")]
