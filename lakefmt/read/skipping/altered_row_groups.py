"""Which row groups of a file have rows for a filter on columns that were altered since: by its footer. Pure.

Arrow compares a footer with a filter by names and types, so it cannot leave out row groups of a file that has a column under
another name, or in another type. Here the ends of each row group get the name and the type of today, as its rows do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt.config.table_config import TableConfig
from lakefmt.errors import CorruptFile
from lakefmt.metadata.reading.altered_stats import texts_of_days
from lakefmt.read._filter_conditions import Condition, satisfiable
from lakefmt.read.skipping.compared_columns import Leaf, statistic_columns
from lakefmt.read.skipping.guarantees import SliceFiles, all_known, joined_records, range_guarantees
from lakefmt.schema import field_at, reconcile
from lakefmt.schema.column_ids import ColumnPlaces
from lakefmt.schema.type_changes import convert_stored

__all__ = ["row_groups_left"]

_COUNTS: Final = ("value_count", "null_count")


def row_groups_left(
    metadata: pq.FileMetaData,
    stored: pa.Schema,
    places: ColumnPlaces | None,
    condition: Condition,
    schema: pa.Schema,
    config: TableConfig,
) -> list[int]:
    """Return the row groups of a base file that may have rows that satisfy a condition.

    Parameters:
        metadata: the file's footer.
        stored: the columns that it has.
        places: where the columns of today are in it; None: under their names.
        condition: of rows.
        schema: the columns of today.
        config: the table's properties.
    """
    every = list(range(metadata.num_row_groups))
    # Values that are only in paths are not those of the file.
    if condition.pruning is None or config.drop_partition_columns or not every:
        return every
    leaves = statistic_columns(condition, schema, config, merged=False)
    by_leaf = [_guarantees(metadata, stored, places, leaf) for leaf in leaves]
    guarantees = [each for each in by_leaf if each is not None]
    if not guarantees:
        return every
    try:
        kept = satisfiable(all_known(guarantees), condition.pruning, schema)
    except pa.ArrowException:
        return every  # the rows tell what is wrong with the filter
    return [number for number in every if kept[number]]


def _guarantees(
    metadata: pq.FileMetaData, stored: pa.Schema, places: ColumnPlaces | None, leaf: Leaf
) -> list[pc.Expression | None] | None:
    """Return what is true of a column in each row group; None: nothing is known of any."""
    place = _place(leaf.name.split("."), places)
    if place is None:
        return [leaf.expression.is_null()] * metadata.num_row_groups
    names, kind = place
    path = ".".join(names)
    numbers = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == path]
    field = field_at(stored, path) if len(numbers) == 1 else None
    if field is None or not _keeps_order(field.type, leaf.kind, kind):
        return None
    records = _records(metadata, numbers[0], field.type, leaf.kind, kind)
    if records is None:
        return None
    count = metadata.num_row_groups
    groups = SliceFiles([""] * count, range(count), [False] * count, count)
    return range_guarantees(leaf.expression, joined_records(records, groups, np.arange(count)))


def _place(path: Sequence[str], places: ColumnPlaces | None) -> tuple[list[str], str | None] | None:
    """Return the names that lead to a column in the file, and the type it gets in Hudi's words; None: the file has no such column."""
    if places is None:
        return list(path), None
    names: list[str] = []
    kind: str | None = None
    inside = places.places
    for number, name in enumerate(path):
        place = next((each for each in inside if each.name == name), None)
        if place is None:
            # A column without an id has its name in every file.
            return (list(path), None) if not number and name not in places.known else None
        names.append(place.stored)
        kind = place.kind
        if place.fields is None:  # what it holds has the same names
            return [*names, *path[number + 1 :]], kind
        inside = place.fields
    return names, kind


def _keeps_order(stored: pa.DataType, current: pa.DataType, kind: str | None) -> bool:
    """Return whether the ends of stored values are, once they are converted, the ends of the converted values."""
    if pt.is_timestamp(stored) and stored.unit not in ("ms", "us"):
        return False
    if stored.equals(current):
        return not pt.is_nested(stored) and not isinstance(stored, pa.BaseExtensionType)
    if pt.is_signed_integer(stored):
        return bool(
            (pt.is_signed_integer(current) and current.bit_width >= stored.bit_width)
            or pt.is_floating(current)
            or pt.is_decimal(current)
        )
    if pt.is_float32(stored):
        return bool(pt.is_float64(current)) and kind == "double"
    if pt.is_decimal(stored) and pt.is_decimal(current):
        return bool(current.scale >= stored.scale)
    return bool(pt.is_date32(stored) and pt.is_string(current)) and kind == "string"


def _records(
    metadata: pq.FileMetaData, column: int, stored: pa.DataType, current: pa.DataType, kind: str | None
) -> pa.Table | None:
    """Return the ends and counts of a column in each row group, as values of today; None: they cannot be read."""
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
        ends = [_converted(pa.array(values, stored), current, kind) for values in (lows, highs)]
    except (pa.ArrowException, CorruptFile, ArithmeticError, TypeError, ValueError):
        return None  # years that Python has no date for, text that is no text
    numbers = [pa.array(values, pa.int64()) for values in zip(*counts, strict=True)]
    return pa.table([*ends, *numbers], names=["min", "max", *_COUNTS])


def _converted(ends: pa.Array, current: pa.DataType, kind: str | None) -> pa.Array:
    if pt.is_date32(ends.type) and pt.is_string(current):
        return texts_of_days(ends)
    values = ends if kind is None else convert_stored(ends, kind)
    return reconcile(pa.table({"end": values}), pa.schema([("end", current)])).column(0).combine_chunks()
