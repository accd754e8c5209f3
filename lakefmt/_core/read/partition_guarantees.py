"""What statistics guarantee of the rows of file slices and row groups.

Statistics of the files of a slice are joined before they are compared with a condition: a merged row takes each value from
one of the files, perhaps another one for each column. So a slice is read or not read as a whole, and a log is never left
out alone.

Statistics are used where a column has had its name and type since the file was written. Of a column that was renamed, given
another type, or dropped and added again, nothing is known in older files: they are opened.

Arrow leaves out row groups of the files that it reads by names and types. Of other files the ends of each row group are
compared here, for the columns that stayed as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.parquet.duplicate_columns import leaf_paths
from lakefmt._core.read.filter_terms import Condition, satisfiable
from lakefmt._core.read.filters import filter_columns
from lakefmt._core.schema import field_at
from lakefmt._core.schema.column_ids import ColumnPlaces, unaltered_since
from lakefmt._core.schema.history import SchemaHistory
from lakefmt._core.values import COMMIT_TIME, META_COLUMNS, RECORD_KEY

__all__ = [
    "Leaf",
    "SliceFiles",
    "all_known",
    "alterations",
    "exact_in_partitions",
    "joined_ranges",
    "joined_records",
    "range_guarantees",
    "row_groups_left",
    "statistic_columns",
]

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_RECORD_COLUMNS = ("min", "max", "value_count", "null_count")
#: Java orders these characters by other numbers than UTF-8 does, so an end that holds one may not be the outermost value.
_ORDERED_DIFFERENTLY = r"[\x{E000}-\x{10FFFF}]"


class SliceFiles:
    """The files of slices as columns.

    Parameters:
        names: of the files, without directories.
        slices: the number of the slice that each is of.
        logs: whether each is a log.
        count: how many slices there are.
        instants: of each file; none: they do not matter.
    """

    def __init__(
        self,
        names: Sequence[str],
        slices: Sequence[int],
        logs: Sequence[bool],
        count: int,
        instants: Sequence[str] = (),
    ) -> None:
        self.names = pa.array(names, pa.string())
        self.slices: I64 = np.array(slices, np.int64)
        self.logs: Mask = np.array(logs, bool)
        self.count = count
        self.instants = instants

    def older_than(self, instant: int) -> Mask:
        """Return which files are older than an instant; 0: none is."""
        if not instant:
            return np.zeros(len(self.names), bool)
        instants, codes = np.unique(np.array(self.instants, str), return_inverse=True)
        is_older = [not each.isdecimal() or int(each) < instant for each in instants.tolist()]
        older: Mask = np.array(is_older, bool)[codes]
        return older


def joined_ranges(stats: pa.Table, files: SliceFiles, since: int = 0) -> pa.Table:
    """Return what values of a column each slice has.

    Parameters:
        stats: the statistics of the column by file, as the metadata table has them.
        files: the files of the slices.
        since: the instant since which the column has had its name and type: of older files nothing is known.

    Returns:
        Columns ``min`` and ``max`` (null: there are only nulls, or nothing is known), ``has_nulls``, ``has_values`` and
        ``is_known``; one row for each slice.

    Example:
        >>> stats = pa.table({"name": ["b", "l"], "min": [1, 7], "max": [3, 9], "value_count": [2, 1], "null_count": [0, 0]})
        >>> joined_ranges(stats, SliceFiles(["b", "l"], [0, 0], [False, True], 1)).to_pylist()
        [{'min': 1, 'max': 9, 'has_nulls': False, 'has_values': True, 'is_known': True}]
    """
    counts = stats["name"].value_counts()
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    stats = stats.filter(pc.invert(pc.is_in(stats["name"], value_set=twice))) if len(twice) else stats
    indices = pc.index_in(files.names, value_set=stats["name"].combine_chunks())
    if since:
        indices = pc.if_else(files.older_than(since), pa.scalar(None, indices.type), indices)
    return joined_records(
        pa.table({name: stats[name].combine_chunks().take(indices) for name in _RECORD_COLUMNS}), files
    )


def joined_records(records: pa.Table, files: SliceFiles) -> pa.Table:
    """Return what values of a column each slice has, as :func:`joined_ranges` does.

    Parameters:
        records: ``min``, ``max``, ``value_count`` and ``null_count`` of each file; nulls: nothing is known of it.
        files: the files of the slices.
    """
    low, high = (records[end].combine_chunks() for end in ("min", "max"))
    rows, nulls = (_counts_or_minus_one(records[name].combine_chunks()) for name in ("value_count", "null_count"))
    slices = files.slices
    has_range = _has_range(low, high)
    is_empty = files.logs & (rows == 0) & (nulls == 0)  # a log of deletes
    only_nulls = (rows > 0) & (rows == nulls) & _tells_nulls(low.type)
    is_told = has_range | is_empty | only_nulls
    columns = {
        "min": _outermost(low, slices, files.count, has_range, "ascending"),
        "max": _outermost(high, slices, files.count, has_range, "descending"),
        "has_nulls": np.bincount(slices[nulls != 0], minlength=files.count) > 0,
        "has_values": np.bincount(slices[has_range], minlength=files.count) > 0,
        "is_known": np.bincount(slices[~is_told], minlength=files.count) == 0,
    }
    return pa.table(columns)


def _counts_or_minus_one(values: pa.Array) -> I64:
    numbers: I64 = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)
    return numbers


def _is_string_or_binary(data_type: pa.DataType) -> bool:
    return bool(
        pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
    )


def _tells_nulls(data_type: pa.DataType) -> bool:
    """Return whether statistics with nulls alone mean that there are only nulls."""
    # Some releases say the same of texts that are too long for a footer, and of Spark's old timestamps.
    return not (_is_string_or_binary(data_type) or pt.is_timestamp(data_type))


def _has_range(low: pa.Array, high: pa.Array) -> Mask:
    """Return where both ends are values that all others lie between."""
    data_type = low.type
    is_usable = pc.and_(pc.is_valid(low), pc.is_valid(high))
    if pt.is_floating(data_type):
        zero = pa.scalar(0.0, data_type)
        # Of values with NaN some releases store zero as both ends.
        zeros = pc.and_(pc.equal(low, zero), pc.equal(high, zero))
        is_usable = pc.and_(is_usable, pc.invert(pc.fill_null(zeros, True)))
        is_usable = pc.and_(is_usable, pc.invert(pc.fill_null(pc.or_(pc.is_nan(low), pc.is_nan(high)), True)))
    if pt.is_string(data_type) or pt.is_large_string(data_type):
        other = [pc.fill_null(pc.match_substring_regex(end, _ORDERED_DIFFERENTLY), True) for end in (low, high)]
        is_usable = pc.and_(is_usable, pc.invert(pc.or_(*other)))
    in_order = pc.fill_null(pc.less_equal(low, high), False)
    mask: Mask = pc.and_(is_usable, in_order).to_numpy(zero_copy_only=False)
    return mask


def _outermost(ends: pa.Array, slices: I64, count: int, counts: Mask, order: str) -> pa.Array:
    """Return the first of the ends of each slice in an order; null where there is none."""
    rows = np.flatnonzero(counts)
    parts = pa.table({"slice": slices[rows], "end": ends.take(pa.array(rows))})
    ordered = pc.sort_indices(parts, sort_keys=[("slice", "ascending"), ("end", order)]).to_numpy()
    numbers, firsts = np.unique(slices[rows][ordered], return_index=True)
    indices = np.full(count, -1, np.int64)
    indices[numbers] = rows[ordered[firsts]]
    return ends.take(pa.array(indices, mask=indices < 0))


def range_guarantees(column: pc.Expression, ranges: pa.Table) -> list[pc.Expression | None]:
    """Return what is true of a column's values in each slice; None: nothing is known.

    Parameters:
        column: the column's expression.
        ranges: what :func:`joined_ranges` returned.
    """
    lows, highs = ranges["min"], ranges["max"]
    flags = zip(*(ranges[name].to_pylist() for name in ("is_known", "has_values", "has_nulls")), strict=True)
    absent = column.is_null()
    guarantees: list[pc.Expression | None] = []
    for number, (is_known, has_values, has_nulls) in enumerate(flags):  # one for each slice
        if not is_known:
            guarantees.append(None)
        elif not has_values:
            guarantees.append(absent)
        else:
            above, below = column >= pc.scalar(lows[number]), column <= pc.scalar(highs[number])
            guarantees.append((above | absent) & (below | absent) if has_nulls else above & below)
    return guarantees


def all_known(parts: Sequence[Sequence[pc.Expression | None]]) -> list[pc.Expression | None]:
    """Return for each slice all that is known of its columns."""
    rows = ([each for each in row if each is not None] for row in zip(*parts, strict=True))
    return [reduce(lambda a, b: a & b, row) if row else None for row in rows]


def exact_in_partitions(data_type: pa.DataType) -> bool:
    """Return whether ranges of whole partitions can be relied on for a type.

    A range of a partition leaves out files whose ends are not known: floats with NaN, long texts, Spark's old timestamps.

    Example:
        >>> exact_in_partitions(pa.int64()), exact_in_partitions(pa.string())
        (True, False)
    """
    return _tells_nulls(data_type) and not pt.is_floating(data_type)


class Leaf(NamedTuple):
    """A column, or a nested field, that may have statistics.

    Attributes:
        since: the instant since which it has had its name and type: statistics of older files are not used.
    """

    name: str
    expression: pc.Expression
    kind: pa.DataType
    since: int = 0


def statistic_columns(
    condition: Condition | None, schema: pa.Schema, config: TableConfig, *, merged: bool
) -> list[Leaf]:
    """Return the columns and nested fields that a condition compares and that may have statistics.

    Parameters:
        condition: of the rows that are read.
        schema: the columns that it may name.
        config: the table's properties.
        merged: some slices have logs, whose rows do not say themselves when they were written.
    """
    if condition is None or condition.pruning is None:
        return []
    used = filter_columns(condition.pruning, schema)
    meta = {RECORD_KEY} if merged else {RECORD_KEY, COMMIT_TIME}
    left_out = {*META_COLUMNS} - (meta if config.populate_meta_fields else set())
    fields = [field for field in schema if field.name in used - left_out and "." not in field.name]
    return [leaf for field in fields for leaf in _leaf_columns((field.name,), field.type)]


def _leaf_columns(path: tuple[str, ...], data_type: pa.DataType) -> Iterator[Leaf]:
    if pt.is_struct(data_type):
        for number in range(data_type.num_fields):
            if "." not in data_type.field(number).name:
                yield from _leaf_columns((*path, data_type.field(number).name), data_type.field(number).type)
    elif not (pt.is_nested(data_type) or isinstance(data_type, pa.BaseExtensionType)):
        yield Leaf(".".join(path), pc.field(path[0]) if len(path) == 1 else pc.field(*path), data_type)


def alterations(table_at: TableAt, columns: Iterable[str]) -> dict[str, int | None]:
    """Return since which instant columns have had their names and types; 0: always; None: nothing is known.

    Parameters:
        table_at: the table, at one moment.
        columns: of that moment, with dots where they are nested fields.

    Raises:
        UnsupportedFeature: the history of the columns is missing.
    """
    # Statistics may be newer than the moment that is read.
    newest = table_at.client.at(replace(table_at.state, timeline=table_at.timeline.unbounded))
    histories = (table_at.schema_history(), newest.schema_history())
    if histories == (None, None):
        return dict.fromkeys(columns, 0)
    return {column: 0 if column in META_COLUMNS else _since(column, *histories) for column in columns}


def _since(column: str, now: SchemaHistory | None, newest: SchemaHistory | None) -> int | None:
    known = now or newest
    since = None if known is None else unaltered_since(column, known, newest or known)
    # Where one of both has no ids, files have no schema by their instants in it.
    return since if (now is not None and newest is not None) or not since else None


def row_groups_left(
    metadata: pq.FileMetaData,
    stored: pa.Schema,
    column_places: ColumnPlaces | None,
    condition: Condition,
    schema: pa.Schema,
    config: TableConfig,
) -> list[int]:
    """Return the row groups of a base file that may have rows that satisfy a condition.

    Parameters:
        metadata: the file's footer.
        stored: the columns that it has.
        column_places: where the columns of today are in it; None: under their names.
        condition: of rows.
        schema: the columns of today.
        config: the table's properties.
    """
    every = list(range(metadata.num_row_groups))
    # Values that are only in paths are not those of the file.
    if condition.pruning is None or config.drop_partition_columns or not every:
        return every
    leaves = statistic_columns(condition, schema, config, merged=False)
    by_leaf = [_row_group_guarantees(metadata, stored, column_places, leaf) for leaf in leaves]
    guarantees = [each for each in by_leaf if each is not None]
    if not guarantees:
        return every
    try:
        mask = satisfiable(all_known(guarantees), condition.pruning, schema)
    except pa.ArrowException:
        return every  # the rows tell what is wrong with the filter
    return [number for number in every if mask[number]]


def _row_group_guarantees(
    metadata: pq.FileMetaData, stored: pa.Schema, column_places: ColumnPlaces | None, leaf: Leaf
) -> list[pc.Expression | None] | None:
    """Return what is true of a column in each row group; None: nothing is known of any."""
    if column_places is not None and not column_places.stays_inside(leaf.name.split(".")):
        return None
    numbers = [number for number, path in enumerate(leaf_paths(metadata)) if path == leaf.name]
    field = field_at(stored, leaf.name) if len(numbers) == 1 else None
    if field is None or not _has_usable_ends(field.type, leaf.kind):
        return None
    records = _row_group_records(metadata, numbers[0], field.type)
    if records is None:
        return None
    count = metadata.num_row_groups
    groups = SliceFiles([""] * count, range(count), [False] * count, count)
    return range_guarantees(leaf.expression, joined_records(records, groups))


def _has_usable_ends(stored: pa.DataType, current: pa.DataType) -> bool:
    if pt.is_timestamp(stored) and stored.unit not in ("ms", "us"):
        return False
    return stored.equals(current) and not pt.is_nested(stored) and not isinstance(stored, pa.BaseExtensionType)


def _row_group_records(metadata: pq.FileMetaData, column: int, stored: pa.DataType) -> pa.Table | None:
    """Return the ends and counts of a column in each row group; None: they cannot be read."""
    lows: list[Any] = []
    highs: list[Any] = []
    counts: list[tuple[int | None, int | None]] = []
    try:
        for number in range(metadata.num_row_groups):  # one for each row group
            chunk = metadata.row_group(number).column(column)
            statistics = chunk.statistics
            has_ends = statistics is not None and statistics.has_min_max
            lows.append(statistics.min if has_ends else None)
            highs.append(statistics.max if has_ends else None)
            nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
            counts.append((chunk.num_values, nulls))
        ends = [pa.array(values, stored) for values in (lows, highs)]
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        return None  # years that Python has no date for, text that is no text
    numbers = [pa.array(values, pa.int64()) for values in zip(*counts, strict=True)]
    return pa.table([*ends, *numbers], names=list(_RECORD_COLUMNS))
