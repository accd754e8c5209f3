"""Updates of expression indexes for one instant, and their first records (effects on reading only).

Of a file that an instant wrote the column is read; what the index has of the other files of a data partition is taken from
the index itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config.table_config import TableConfig
from lakefmt.data_classes import replace
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt.metadata.collect import FactCollector, files_of_slice
from lakefmt.metadata.expressions.functions import Expression, find_expression
from lakefmt.metadata.expressions.index_records import (
    FILTERS,
    STATISTICS,
    IndexedFile,
    check_filters,
    filter_records,
    known_range,
    range_records,
    removed_keys,
    value_range,
)
from lakefmt.metadata.index_definitions import IndexDefinition
from lakefmt.metadata.layout import PartitionKind, kind_of_partition
from lakefmt.metadata.reading.expression_index_reader import read_expression_stats
from lakefmt.metadata.reading.reader import MetadataTable
from lakefmt.metadata.record_schema import RecordFormat
from lakefmt.metadata.records import PartitionUpdate, update_of
from lakefmt.metadata.statistics import ColumnRange, merged_ranges
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.values import TableType

__all__ = [
    "expression_of",
    "expression_updates",
    "expressions_of",
    "first_expression_update",
    "removed_expression_updates",
]

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
            _indexed(collector, expression, each)
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
    files = [_indexed(collector, expression, each) for file_slice in slices for each in files_of_slice(file_slice)]
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


def _indexed(collector: FactCollector, expression: Expression, file: BaseFile | LogFile) -> IndexedFile:
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
        *(value_range(expression, _indexed(collector, expression, files[name])) for name in sorted(rest)),
    ]
