"""Leave out slices by expression indexes and by key filters of the metadata table (effects: reads only).

An index of a function that rises with its column has ranges of the column. Of another function the values of a filter are
looked for: a row whose column is ``x`` is in no file whose range, or bloom filter, does not have ``f(x)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.filegroups.model import FileSlice
from lakefmt.formats.bloom.bloom_filter import decode_bloom_filter
from lakefmt.metadata.expressions.functions import find_expression
from lakefmt.metadata.expressions.index_updates import FILTERS, STATISTICS
from lakefmt.metadata.index_definitions import IndexDefinition
from lakefmt.metadata.keys import bloom_filter_key
from lakefmt.metadata.reading.index_readers import read_expression_stats
from lakefmt.metadata.reading.reader import MetadataTable, newest_records
from lakefmt.metadata.records import decode_record
from lakefmt.read._filter_conditions import Condition, satisfiable
from lakefmt.read.filters import filter_columns
from lakefmt.read.scan import Query
from lakefmt.read.skipping._by_statistics import files_of
from lakefmt.read.skipping.expression_ranges import column_ranges, is_rising, wraps_around
from lakefmt.read.skipping.guarantees import joined_ranges, range_guarantees

__all__ = ["MOST_FILTERS", "helps", "slices_by_expression", "slices_by_filters"]

#: Functions whose results depend on the value alone, not on a time zone.
_OF_VALUES = frozenset({"identity", "lower", "upper", "trim", "ltrim", "rtrim", "substring", "length"})
#: Of letters beyond ASCII the upper and lower case differ between releases of Unicode.
_OF_LETTERS = frozenset({"lower", "upper"})
#: Of more values a scan costs less.
_MOST_VALUES = 100
#: Filters of more files are too large to be read for one look.
MOST_FILTERS = 256
_VALUE = "value"


def helps(definition: IndexDefinition, query: Query) -> str | None:
    """Return why an expression index cannot leave out files of a read; None: it may. Pure.

    Parameters:
        definition: of the index.
        query: the read.
    """
    column = definition.columns[0] if len(definition.columns) == 1 else ""
    if query.condition is None or column not in query.schema.names:
        return "the filter does not compare its column"
    if definition.index_type == STATISTICS and is_rising(definition, query.schema.field(column).type):
        pruning = query.condition.pruning
        if pruning is not None and column in filter_columns(pruning, query.schema):
            return None
        return "the filter does not compare its column"
    if definition.function not in _OF_VALUES:
        return (
            f"values of {definition.function} depend on a time zone that no index says, and do not rise with the column"
        )
    values = values_of(definition, query.condition, query.schema)
    return None if values is not None else "the filter names no values of its column"


def values_of(definition: IndexDefinition, condition: Condition, schema: pa.Schema) -> pa.Array | None:
    """Return what the function gives for the values of which every selected row has one; None: not known. Pure.

    Parameters:
        definition: of an index whose function is of the value alone.
        condition: the filter.
        schema: the table's columns.
    """
    column = definition.columns[0]
    values = condition.values.get(column)
    if values is None or len(values) > _MOST_VALUES or not values.type.equals(schema.field(column).type):
        return None
    if definition.function in _OF_LETTERS and not pc.all(pc.string_is_ascii(values), min_count=0).as_py():
        return None
    results = find_expression(definition, schema, "UTC").values(pa.chunked_array([values])).combine_chunks()
    return None if results.null_count else results


def slices_by_expression(
    table: MetadataTable, definition: IndexDefinition, slices: Sequence[FileSlice], query: Query
) -> list[FileSlice]:
    """Return the slices whose rows may satisfy the filter, by an expression index.

    Parameters:
        table: the metadata table.
        definition: of an index that :func:`helps`.
        slices: the slices to choose from.
        query: the read.

    Raises:
        CorruptFile: the index is damaged.
        UnsupportedFeature: lakefmt does not compute the function.
    """
    condition = query.condition
    if condition is None or not slices:
        return list(slices)
    if definition.index_type == FILTERS:
        values = values_of(definition, condition, query.schema)
        return list(slices) if values is None else slices_by_filters(table, definition.name, slices, values)
    column = definition.columns[0]
    kind = query.schema.field(column).type
    expression = find_expression(definition, query.schema, "UTC")
    paths = list(dict.fromkeys(file_slice.partition for file_slice in slices))
    stats = read_expression_stats(table, definition.name, column, expression.result, paths)
    if not stats.num_rows:
        return list(slices)
    ranges = joined_ranges(stats, files_of(slices))
    if is_rising(definition, kind):
        kept = _by_column(definition, column_ranges(definition, ranges, kind), query, kind)
    else:
        values = values_of(definition, condition, query.schema)
        if values is None:
            return list(slices)
        guarantees = range_guarantees(pc.field(_VALUE), ranges)
        kept = satisfiable(guarantees, pc.field(_VALUE).isin(values), pa.schema([(_VALUE, expression.result)]))
    return [slices[number] for number in np.flatnonzero(kept).tolist()]


def _by_column(definition: IndexDefinition, ranges: pa.Table, query: Query, kind: pa.DataType) -> np.ndarray:
    condition, field = query.condition, pc.field(definition.columns[0])
    everything = np.ones(len(ranges), bool)
    if condition is None or condition.pruning is None:
        return everything
    ends = wraps_around(definition, kind)
    if ends is not None:
        beyond = [field < pc.scalar(pa.scalar(ends[0], kind)), field > pc.scalar(pa.scalar(ends[1], kind))]
        if satisfiable(beyond, condition.pruning, query.schema).any():
            return everything
    return satisfiable(range_guarantees(field, ranges), condition.pruning, query.schema)


def slices_by_filters(
    table: MetadataTable, where: str, slices: Sequence[FileSlice], values: pa.Array
) -> list[FileSlice]:
    """Return the slices that may hold one of some values, by the bloom filters of their base files.

    A slice with logs is kept: logs have no filters.

    Parameters:
        table: the metadata table.
        where: its partition.
        slices: the slices to choose from.
        values: record keys, or results of the expression.

    Raises:
        CorruptFile: the filters are damaged.
    """
    asked = [each for each in slices if each.base is not None and not each.logs]
    keys = {bloom_filter_key(each.partition, each.base.name): each for each in asked if each.base is not None}
    if not keys or len(keys) > MOST_FILTERS:
        return list(slices)
    newest, schemas = newest_records(table.lookup(where, pa.array([key.encode() for key in keys], pa.binary())))
    texts = values.cast(pa.string()) if not pt.is_string(values.type) else values
    columns = [newest[name].to_pylist() for name in ("key", "value", "schema")]  # files, not rows
    left_out = {
        keys[key.decode()].base
        for key, value, number in zip(*columns, strict=True)
        if not _may_hold(value, schemas[number], where, texts)
    }
    return [each for each in slices if each.logs or each.base not in left_out]


def _may_hold(value: bytes, schema: str, where: str, texts: pa.Array) -> bool:
    record = decode_record(value, schema, f"a record of {where}").bloom_filter
    if record is None or record.is_deleted:
        return True
    return bool(decode_bloom_filter(record.content, record.type_code).contains(texts).any())
