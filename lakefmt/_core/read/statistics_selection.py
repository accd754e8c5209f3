"""Leave out slices and partitions by what the metadata table has of their columns: statistics and expression indexes.

An index of a function that rises with its column has ranges of the column. An index does not say in which time zone times
were read (Hudi stores none), so moments with a zone are taken as they may be in any: an end moves by the largest difference
from UTC. Of another function the values of a filter are looked for: a row whose column is ``x`` is in no file whose range,
or bloom filter, does not have ``f(x)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.model import FileSlice, LogFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.bloom_filter import decode_bloom_filter
from lakefmt._core.metadata.expressions import (
    FILTERS,
    STATISTICS,
    TimePattern,
    compile_time_pattern,
    find_expression,
)
from lakefmt._core.metadata.index_readers import read_expression_stats, read_stats
from lakefmt._core.metadata.layout import IndexDefinition, PartitionKind, bloom_filter_key
from lakefmt._core.metadata.reader import MetadataTable, newest_records
from lakefmt._core.metadata.records import decode_record
from lakefmt._core.read.filter_terms import Condition, satisfiable
from lakefmt._core.read.filters import filter_columns
from lakefmt._core.read.partition_guarantees import (
    Leaf,
    SliceFiles,
    all_known,
    exact_in_partitions,
    joined_ranges,
    range_guarantees,
)
from lakefmt._core.read.scan import Query
from lakefmt._core.values import RECORD_KEY, PartitionPath
from lakefmt.errors import UnsupportedFeature

__all__ = [
    "MOST_FILTERS",
    "helps",
    "listed_leaves",
    "partitions_by_statistics",
    "slices_by_expression",
    "slices_by_filters",
    "slices_by_statistics",
]

#: Of more partitions the statistics of a column are read as a whole.
_MANY_PARTITIONS = 64


def slices_by_statistics(
    table: MetadataTable, slices: Sequence[FileSlice], leaves: Sequence[Leaf], query: Query
) -> list[FileSlice]:
    """Return the slices whose rows may satisfy the filter, by the statistics of their files.

    Parameters:
        table: the metadata table.
        slices: the slices to choose from.
        leaves: the columns to look at.
        query: the read; its condition may be compared with statistics.

    Raises:
        CorruptFile: the statistics are damaged.
    """
    if query.condition is None or query.condition.pruning is None or not slices:
        return list(slices)
    paths = list(dict.fromkeys(file_slice.partition for file_slice in slices))
    partition_filter = paths if len(paths) <= _MANY_PARTITIONS else None
    files, guarantees = files_of(slices), []
    for leaf in leaves:
        stats = read_stats(table, PartitionKind.COLUMN_STATS, leaf.name, leaf.kind, partition_filter)
        if stats.num_rows:
            guarantees.append(range_guarantees(leaf.expression, joined_ranges(stats, files, leaf.since)))
    if not guarantees:
        return list(slices)
    mask = satisfiable(all_known(guarantees), query.condition.pruning, query.schema)
    return [slices[number] for number in np.flatnonzero(mask).tolist()]


def files_of(slices: Sequence[FileSlice]) -> SliceFiles:
    """Return the files of slices as columns. Pure."""
    stored = [
        (file, number)
        for number, file_slice in enumerate(slices)
        for file in (file_slice.base, *file_slice.logs)
        if file is not None
    ]
    files, numbers = [file for file, _ in stored], [number for _, number in stored]
    logs, instants = [isinstance(file, LogFile) for file in files], [file.instant for file in files]
    return SliceFiles([file.name for file in files], numbers, logs, len(slices), instants)


def listed_leaves(client: TableClient, config: TableConfig, leaves: Sequence[Leaf]) -> list[Leaf]:
    """Return the columns of which each write keeps statistics: of others, those of a data partition stay as they were.

    Hudi stores with each commit which columns its settings name. Version 6 and old tables have no such list.

    Parameters:
        client: the table.
        config: its properties.
        leaves: the columns of a filter.

    Raises:
        CorruptFile: the definitions of indexes are damaged.
    """
    from lakefmt._core.metadata.manage import load_definitions  # needed only for statistics of partitions

    definition = load_definitions(client, config).get(PartitionKind.COLUMN_STATS.value)
    return [leaf for leaf in leaves if definition is None or leaf.name in definition.columns]


def partitions_by_statistics(
    table: MetadataTable, partitions: Sequence[PartitionPath], leaves: Sequence[Leaf], query: Query
) -> list[PartitionPath]:
    """Return the partitions whose rows may satisfy the filter, by what is stored in them now.

    Parameters:
        table: the metadata table, of a table with meta columns.
        partitions: their paths.
        leaves: the columns to look at, which were never altered, and of which each write keeps statistics.
        query: the read; its condition may be compared with statistics.

    Raises:
        CorruptFile: the statistics are damaged.
    """
    if query.condition is None or query.condition.pruning is None:
        return list(partitions)
    count = len(partitions)
    partition_filter = partitions if count <= _MANY_PARTITIONS else None
    rows = SliceFiles(partitions, range(count), [False] * count, count)
    guarantees = []
    keys = read_stats(table, PartitionKind.PARTITION_STATS, RECORD_KEY, pa.string(), partition_filter)
    for leaf in leaves:
        if exact_in_partitions(leaf.kind):
            stats = read_stats(table, PartitionKind.PARTITION_STATS, leaf.name, leaf.kind, partition_filter)
            stats = of_all_rows(stats, keys)
            ranges = joined_ranges(stats, rows)
            # Files that are older than a column have null in it, and no statistics.
            ranges = ranges.set_column(2, "has_nulls", pa.array(np.ones(count, bool)))
            guarantees.append(range_guarantees(leaf.expression, ranges))
    if not guarantees:
        return list(partitions)
    mask = satisfiable(all_known(guarantees), query.condition.pruning, query.schema)
    return [partitions[number] for number in np.flatnonzero(mask).tolist()]


def of_all_rows(stats: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the statistics that were made of all files at once, and of as many rows as there are record keys.

    Hudi joins those of files: where a column has had statistics for a while only, older files are missing in them.

    Parameters:
        stats: of a column.
        keys: of record keys, which every file has.
    """
    indices = pc.index_in(stats["name"], value_set=keys["name"].combine_chunks())
    rows = keys["value_count"].combine_chunks().take(indices.combine_chunks())
    return stats.filter(pc.fill_null(pc.and_(stats["is_tight"], pc.equal(stats["value_count"], rows)), False))


I64 = npt.NDArray[np.int64]

_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS
#: Java's zones differ from UTC by 18 hours at most.
_ZONE_MICROS = 18 * 3600 * _MICROS
_UNIX_PATTERN = "yyyy-MM-dd HH:mm:ss"
#: Letters of a pattern whose texts are in the order of time, with their number of digits.
_ORDERED_LETTERS = (("y", 4), ("M", 2), ("d", 2), ("H", 2), ("m", 2), ("s", 2))
_LETTER_MICROS: Mapping[str, int] = {"d": _DAY_MICROS, "H": 3600 * _MICROS, "m": 60 * _MICROS, "s": _MICROS}
#: Of more days a date could leave its range.
_MOST_ADDED_DAYS = 100_000
#: Ends further away are not used: microseconds would not hold them.
_MOST_YEARS, _FURTHEST_DAY = 200_000, 73_000_000
#: Later and earlier seconds than these wrap around in from_unixtime.
_MOST_SECONDS = (1 << 63) // _MICROS - 86_400 * 366


def is_rising(definition: IndexDefinition, column: pa.DataType) -> bool:
    """Return whether the function of an index rises with its column, so that its range is one of the column's.

    Parameters:
        definition: of the index.
        column: the column's type.

    Example:
        >>> day = IndexDefinition("expr_index_d", "column_stats", "date_format", ("at",), {"format": "yyyy-MM-dd"})
        >>> is_rising(day, pa.timestamp("us", "UTC")), is_rising(day, pa.string())
        (True, False)
    """
    function, of_time = definition.function, pt.is_date32(column) or _is_timestamp(column)
    if function in ("date_format", "from_unixtime"):
        has_fitting_type = pt.is_integer(column) if function == "from_unixtime" else of_time
        return bool(has_fitting_type) and _ordered_pattern(definition) is not None
    if function in ("date_add", "date_sub"):
        return of_time and _added_days(definition) is not None
    return function in ("year", "to_date") and of_time


def wraps_around(definition: IndexDefinition, column: pa.DataType) -> tuple[int, int] | None:
    """Return the ends beyond which the function does not rise any more; None: there are none.

    Parameters:
        definition: of the index.
        column: the column's type.
    """
    return (-_MOST_SECONDS, _MOST_SECONDS) if definition.function == "from_unixtime" and pt.is_int64(column) else None


def column_ranges(definition: IndexDefinition, ranges: pa.Table, column: pa.DataType) -> pa.Table:
    """Return ranges of the column from ranges of the function, in the form of ``joined_ranges``.

    Parameters:
        definition: of an index whose function rises.
        ranges: of what the function gives.
        column: the column's type.

    Example:
        >>> day = IndexDefinition("expr_index_d", "column_stats", "date_format", ("d",), {"format": "yyyy-MM"})
        >>> flags = {name: [True] for name in ("has_nulls", "has_values", "is_known")}
        >>> found = column_ranges(day, pa.table({"min": ["2026-01"], "max": ["2026-02"], **flags}), pa.date32())
        >>> [str(found[name][0]) for name in ("min", "max")]
        ['2026-01-01', '2026-02-28']
    """
    first, behind = (_local_micros(definition, ranges[end].combine_chunks(), end == "max") for end in ("min", "max"))
    if not pt.is_date32(column) and not (_is_timestamp(column) and column.tz is None):
        first, behind = pc.subtract(first, _ZONE_MICROS), pc.add(behind, _ZONE_MICROS)
    low, high = _as_column_values(first, column), _as_column_values(pc.subtract(behind, 1), column)
    usable = pc.and_(ranges["has_values"], pc.and_(low.is_valid(), high.is_valid()))
    columns = {
        "min": low,
        "max": high,
        "has_nulls": pa.array(np.ones(len(ranges), bool)),
        "has_values": ranges["has_values"],
        # Files with nulls alone are not told from those of which nothing is known.
        "is_known": pc.and_(ranges["is_known"], usable),
    }
    return pa.table(columns)


def _is_timestamp(data_type: pa.DataType) -> bool:
    return bool(pt.is_timestamp(data_type) and data_type.unit in ("us", "ms"))


def _added_days(definition: IndexDefinition) -> int | None:
    """Return by how many days the function moves a date; None where it is no usual number."""
    try:
        days = int(definition.options.get("days", "0"))
    except ValueError:
        return None
    if abs(days) > _MOST_ADDED_DAYS:
        return None
    return {"date_add": days, "date_sub": -days}.get(definition.function, 0)


def _ordered_pattern(definition: IndexDefinition) -> TimePattern | None:
    """Return the pattern of a function that prints times, if its texts are in the order of time."""
    default = _UNIX_PATTERN if definition.function == "from_unixtime" else ""
    try:
        pattern = compile_time_pattern(definition.options.get("format", default))
    except UnsupportedFeature:
        return None
    letters = tuple(part for part in pattern if part[0])
    return pattern if letters and letters == _ORDERED_LETTERS[: len(letters)] else None


def _local_micros(definition: IndexDefinition, ends: pa.Array, behind: bool) -> pa.Array:
    """Return the first local time, or the one behind the last, at which the function gives an end; null: not known."""
    function = definition.function
    if function == "year":
        years = pc.add(_null_outside(ends.cast(pa.int64()), -_MOST_YEARS, _MOST_YEARS), int(behind))
        return _computed_with_nulls(lambda numbers: _month_micros(numbers * 12), pc.subtract(years, 1970))
    if function in ("date_format", "from_unixtime"):
        return _printed_micros(_ordered_pattern(definition) or (), ends, behind)
    days = _null_outside(ends.cast(pa.int32()).cast(pa.int64()), -_FURTHEST_DAY, _FURTHEST_DAY)
    return pc.multiply(pc.subtract(days, (_added_days(definition) or 0) - int(behind)), _DAY_MICROS)


def _computed_with_nulls(compute: object, numbers: pa.Array) -> pa.Array:
    values = np.asarray(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), np.int64)
    made = pa.array(compute(values))  # type: ignore[operator]
    return pc.if_else(numbers.is_valid(), made, pa.scalar(None, pa.int64()))


def _month_micros(months: I64) -> I64:
    """Return when months begin, counted since 1970."""
    begins: I64 = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) * _DAY_MICROS
    return begins


def _printed_micros(pattern: TimePattern, texts: pa.Array, behind: bool) -> pa.Array:
    """Return the first moment, in microseconds, of the period that each formatted time names; `behind`: of the next period."""
    expected = "".join(f"[0-9]{{{width}}}" if letter else _quoted_for_regex(str(width)) for letter, width in pattern)
    texts = pc.if_else(
        pc.fill_null(pc.match_substring_regex(texts, f"^{expected}$"), False), texts, pa.scalar(None, pa.string())
    )
    numbers: dict[str, pa.Array] = {}
    start, last = 0, "y"
    for letter, width in pattern:
        stop = start + (int(width) if letter else len(str(width)))
        if letter:
            numbers[letter], last = pc.utf8_slice_codeunits(texts, start, stop).cast(pa.int64()), letter
        start = stop
    if behind:
        numbers[last] = pc.add(numbers[last], 1)
    months = pc.multiply(pc.subtract(numbers["y"], 1970), 12)
    micros = _computed_with_nulls(
        _month_micros, pc.add(months, pc.subtract(numbers["M"], 1)) if "M" in numbers else months
    )
    for letter, unit in _LETTER_MICROS.items():
        if letter in numbers:
            micros = pc.add(micros, pc.multiply(pc.subtract(numbers[letter], int(letter == "d")), unit))
    return micros


def _quoted_for_regex(literal: str) -> str:
    return "".join(f"\\x{{{ord(char):x}}}" for char in literal)


def _as_column_values(micros: pa.Array, column: pa.DataType) -> pa.Array:
    """Return local times as values of the column's type; null for those that it does not hold."""
    if pt.is_date32(column):
        days = _floor_divided(micros, _DAY_MICROS)
        return _null_outside(days, -(1 << 31), (1 << 31) - 1).cast(pa.int32()).cast(column)
    if _is_timestamp(column):
        numbers = micros if column.unit == "us" else _floor_divided(micros, 1000)
        return numbers.cast(column)
    seconds = _floor_divided(micros, _MICROS)
    if pt.is_int32(column):
        # An end outside of the type is one of all its values.
        return pc.min_element_wise(pc.max_element_wise(seconds, -(1 << 31)), (1 << 31) - 1).cast(column)
    return seconds.cast(column)


def _floor_divided(micros: pa.Array, unit: int) -> pa.Array:
    return _computed_with_nulls(lambda numbers: numbers // unit, micros)


def _null_outside(numbers: pa.Array, low: int, high: int) -> pa.Array:
    usual = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(pc.fill_null(usual, False), numbers, pa.scalar(None, pa.int64()))


#: Functions whose results depend on the value alone, not on a time zone.
_TEXT_FUNCTIONS = frozenset({"identity", "lower", "upper", "trim", "ltrim", "rtrim", "substring", "length"})
#: Of letters beyond ASCII the upper and lower case differ between releases of Unicode.
_CASE_FUNCTIONS = frozenset({"lower", "upper"})
#: Of more values a scan costs less.
_MOST_LOOKED_UP_VALUES = 100
#: Filters of more files are too large to be read for one look.
MOST_FILTERS = 256
_VALUE_COLUMN = "value"


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
    if definition.function not in _TEXT_FUNCTIONS:
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
    if values is None or len(values) > _MOST_LOOKED_UP_VALUES or not values.type.equals(schema.field(column).type):
        return None
    if definition.function in _CASE_FUNCTIONS and not pc.all(pc.string_is_ascii(values), min_count=0).as_py():
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
    column_type = query.schema.field(column).type
    expression = find_expression(definition, query.schema, "UTC")
    paths = list(dict.fromkeys(file_slice.partition for file_slice in slices))
    stats = read_expression_stats(table, definition.name, column, expression.result, paths)
    if not stats.num_rows:
        return list(slices)
    ranges = joined_ranges(stats, files_of(slices))
    if is_rising(definition, column_type):
        mask = _files_by_column_range(definition, column_ranges(definition, ranges, column_type), query, column_type)
    else:
        values = values_of(definition, condition, query.schema)
        if values is None:
            return list(slices)
        guarantees = range_guarantees(pc.field(_VALUE_COLUMN), ranges)
        mask = satisfiable(
            guarantees, pc.field(_VALUE_COLUMN).isin(values), pa.schema([(_VALUE_COLUMN, expression.result)])
        )
    return [slices[number] for number in np.flatnonzero(mask).tolist()]


def _files_by_column_range(
    definition: IndexDefinition, ranges: pa.Table, query: Query, column_type: pa.DataType
) -> np.ndarray:
    condition, field = query.condition, pc.field(definition.columns[0])
    everything = np.ones(len(ranges), bool)
    if condition is None or condition.pruning is None:
        return everything
    ends = wraps_around(definition, column_type)
    if ends is not None:
        beyond = [
            field < pc.scalar(pa.scalar(ends[0], column_type)),
            field > pc.scalar(pa.scalar(ends[1], column_type)),
        ]
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
    plain_slices = [each for each in slices if each.base is not None and not each.logs]
    keys = {bloom_filter_key(each.partition, each.base.name): each for each in plain_slices if each.base is not None}
    if not keys or len(keys) > MOST_FILTERS:
        return list(slices)
    newest, schemas = newest_records(table.lookup(where, pa.array([key.encode() for key in keys], pa.binary())))
    texts = values.cast(pa.string()) if not pt.is_string(values.type) else values
    columns = [newest[name].to_pylist() for name in ("key", "value", "schema")]  # files, not rows
    left_out = {
        keys[key.decode()].base
        for key, value, number in zip(*columns, strict=True)
        if not _filter_may_hold(value, schemas[number], where, texts)
    }
    return [each for each in slices if each.logs or each.base not in left_out]


def _filter_may_hold(value: bytes, schema: str, where: str, texts: pa.Array) -> bool:
    record = decode_record(value, schema, f"a record of {where}").bloom_filter
    if record is None or record.is_deleted:
        return True
    return bool(decode_bloom_filter(record.content, record.type_code).contains(texts).any())
