"""Make the updates of expression indexes for one instant, and their first records (effects on reading only).

Of a file that an instant wrote the column is read; what the index has of the other files of a data partition is taken from
the index itself.

Records are ranges or bloom filters of what a function gives for the rows of each file. Statistics count rows without nulls and
have the file's size, twice that as uncompressed size; those of a data partition are beside them under a key of their own
(docs/format.md, Expression indexes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.formats.bloom.bloom_filter import SIMPLE, BloomFilter
from lakefmt._core.metadata.collect import FactCollector, files_of_slice
from lakefmt._core.metadata.expressions.functions import Expression, find_expression
from lakefmt._core.metadata.index_definitions import IndexDefinition
from lakefmt._core.metadata.keys import bloom_filter_key, column_stats_key, expression_partition_stats_key
from lakefmt._core.metadata.layout import PartitionKind, kind_of_partition, partition_identifier
from lakefmt._core.metadata.reading.index_readers import read_expression_stats
from lakefmt._core.metadata.reading.reader import MetadataTable
from lakefmt._core.metadata.records import (
    BloomFilterRecord,
    ColumnStats,
    MetadataRecord,
    PartitionUpdate,
    RecordFormat,
    RecordType,
    update_of,
)
from lakefmt._core.metadata.statistics import ColumnRange, column_stats_of, merged_ranges, row_ranges
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.values import TableType, TableVersion
from lakefmt.errors import UnsupportedFeature

__all__ = [
    "STATISTICS",
    "IndexedFile",
    "check_filters",
    "expression_of",
    "expression_updates",
    "expressions_of",
    "filter_records",
    "first_expression_update",
    "known_range",
    "range_records",
    "removed_expression_updates",
    "removed_keys",
    "value_range",
]

#: Types of expression indexes: ranges, and bloom filters.
STATISTICS, FILTERS = "column_stats", "bloom_filters"
_USUAL_RATE = 1e-9
#: A filter with this number of entries at the smallest rate has 70 MB.
_MOST_FILTER_ENTRIES, _SMALLEST_RATE = 10_000_000, 1e-12


Definitions = Mapping[str, IndexDefinition]
Slices = Sequence[FileSlice]


def expressions_of(config: TableConfig, definitions: Definitions) -> list[IndexDefinition]:
    """Return the expression indexes that a table advertises. Pure.

    Raises:
        UnsupportedFeature: the file of definitions does not have one of them.
    """
    names = [name for name in config.metadata_partitions if kind_of_partition(name) is PartitionKind.EXPRESSION_INDEX]
    missing = [name for name in names if name not in definitions]
    if missing:
        raise UnsupportedFeature(f"the table's file of index definitions does not say what {missing[0]} is of")
    return [definitions[name] for name in names]


def expression_of(config: TableConfig, definition: IndexDefinition, schema: pa.Schema, zone: str) -> Expression:
    """Return the function of an index. Pure.

    Parameters:
        config: the table's properties.
        definition: of the index.
        schema: the table's columns.
        zone: the time zone in which times are read.

    Raises:
        UnsupportedFeature: lakefmt does not keep such an index.
    """
    expression = find_expression(definition, schema, zone)
    if definition.index_type not in (STATISTICS, FILTERS):
        raise UnsupportedFeature(f"the expression index {definition.name} is of type {definition.index_type!r}")
    if definition.index_type == FILTERS:
        if config.table_type is TableType.MERGE_ON_READ:
            raise UnsupportedFeature(
                f"the expression index {definition.name} is not supported: logs have no bloom filters, so merge-on-read "
                "tables have none of an expression"
            )
        check_filters(definition, expression)
    elif definition.function == "identity":
        raise UnsupportedFeature(
            f"the expression index {definition.name} is not supported: ranges of a column itself are in column_stats"
        )
    return expression


def expression_updates(
    config: TableConfig,
    form: RecordFormat,
    collector: FactCollector,
    definitions: Definitions,
    commit: CommitMetadata,
    slices: Slices,
) -> list[PartitionUpdate]:
    """Return the updates for a commit, deltacommit, replacecommit or compaction.

    Parameters:
        config: the table's properties.
        form: how records are written.
        collector: reads files.
        definitions: of the table's indexes.
        commit: what the instant wrote.
        slices: of the data partitions that it changed, with it.
    """
    expressions = expressions_of(config, definitions)
    if not expressions:
        return []
    table = MetadataTable.open(collector.client.store, config, collector.before.timeline)
    written = {stat.path for stat in commit.stats}
    updates = []
    for definition in expressions:
        expression = expression_of(config, definition, collector.schema, collector.time_zone)
        files = [
            _indexed_file(collector, expression, each)
            for file_slice in slices
            for each in files_of_slice(file_slice)
            if each.path in written
        ]
        if definition.index_type == FILTERS:
            records = filter_records(definition, files, form)
        else:
            ranges = [(file, value_range(expression, file)) for file in files]
            partitions = _partition_ranges(collector, table, definition, expression, slices, ranges)
            records = range_records(expression, ranges, partitions, form)
        updates.append(update_of(definition.name, records, form))
    return updates


def first_expression_update(
    config: TableConfig, form: RecordFormat, collector: FactCollector, definition: IndexDefinition, slices: Slices
) -> PartitionUpdate:
    """Return the first records of an index that is made from what the table has.

    Parameters:
        config: the table's properties.
        form: how records are written.
        collector: reads files.
        definition: of the index.
        slices: the newest file slices.

    Raises:
        UnsupportedFeature: see :func:`expression_of`.
    """
    expression = expression_of(config, definition, collector.schema, collector.time_zone)
    files = [_indexed_file(collector, expression, each) for file_slice in slices for each in files_of_slice(file_slice)]
    if definition.index_type == FILTERS:
        return update_of(definition.name, filter_records(definition, files, form), form)
    ranges = [(file, value_range(expression, file)) for file in files]
    partitions = _partition_ranges(collector, None, definition, expression, slices, ranges)
    return update_of(definition.name, range_records(expression, ranges, partitions, form), form)


def removed_expression_updates(
    config: TableConfig, form: RecordFormat, definitions: Definitions, files: Sequence[tuple[str, str]]
) -> list[PartitionUpdate]:
    """Return the updates for files that are gone, as after a clean. Pure.

    Parameters:
        config: the table's properties.
        form: how records are written.
        definitions: of the table's indexes.
        files: data partition and name of each.
    """
    return [
        update_of(expression.name, {}, form, removed_keys(expression, files))
        for expression in expressions_of(config, definitions)
    ]


def _indexed_file(collector: FactCollector, expression: Expression, file: BaseFile | LogFile) -> IndexedFile:
    values = expression.values(collector.column(file, expression.column))
    return IndexedFile(file.partition, file.name, file.size, file.instant, values)


def _partition_ranges(
    collector: FactCollector,
    table: MetadataTable | None,
    definition: IndexDefinition,
    expression: Expression,
    slices: Slices,
    new: Iterable[tuple[IndexedFile, ColumnRange | None]],
) -> dict[str, ColumnRange]:
    """Return the ranges of data partitions over all files of their slices."""
    parts: dict[str, list[ColumnRange | None]] = {}
    done: dict[str, set[str]] = {}
    for file, ranges in new:
        parts.setdefault(file.partition, []).append(ranges)
        done.setdefault(file.partition, set()).add(file.name)
    for path in dict.fromkeys(each.partition for each in slices):
        others = {
            file.name: file
            for each in slices
            if each.partition == path
            for file in files_of_slice(each)
            if file.name not in done.get(path, ())
        }
        parts.setdefault(path, []).extend(_ranges_of_others(collector, table, definition, expression, path, others))
    merged = {
        path: merged_ranges(value_range for value_range in ranges if value_range is not None)
        for path, ranges in parts.items()
    }
    return {
        path: replace(value_range, column=expression.column)
        for path, value_range in merged.items()
        if value_range is not None
    }


def _ranges_of_others(
    collector: FactCollector,
    table: MetadataTable | None,
    definition: IndexDefinition,
    expression: Expression,
    path: str,
    files: Mapping[str, BaseFile | LogFile],
) -> list[ColumnRange | None]:
    """Return the ranges of files that were there before: from the index, of those that it does not have from the rows."""
    if not files:
        return []
    ranges: list[ColumnRange | None] = []
    rest = set(files)
    if table is not None:
        stored = read_expression_stats(table, definition.name, expression.column, expression.result, [path])
        stored = stored.filter(pc.is_in(stored["name"], value_set=pa.array(list(files), pa.string())))
        names = stored["name"].to_pylist()
        ranges.append(known_range(expression, stored, {name: files[name].size for name in names}))
        rest -= set(names)
    # A file without rows has no record.
    return [
        *ranges,
        *(value_range(expression, _indexed_file(collector, expression, files[name])) for name in sorted(rest)),
    ]


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
            RecordType.COLUMN_STATS,
            column_stats=_stats_record(expression, value_range, file.name, form, is_tight=False),
        )
        for file, value_range in files
        if value_range is not None
    }
    of_partitions = {
        expression_partition_stats_key(column, path): MetadataRecord(
            RecordType.PARTITION_STATS,
            column_stats=_stats_record(expression, value_range, partition_identifier(path), form, is_tight=True),
        )
        for path, value_range in partitions.items()
    }
    return {**of_files, **of_partitions}


def _stats_record(
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
        rate = float(definition.options.get("fpp", _USUAL_RATE))
    except ValueError:
        entries, rate = 0, 0.0
    if not (1 <= entries <= _MOST_FILTER_ENTRIES and _SMALLEST_RATE <= rate < 1):
        raise UnsupportedFeature(
            f"the expression index {definition.name} is not supported: its filters need numentries from 1 to "
            f"{_MOST_FILTER_ENTRIES} and fpp from {_SMALLEST_RATE} to below 1"
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
