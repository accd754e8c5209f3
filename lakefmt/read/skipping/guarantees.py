"""What statistics guarantee of the rows of file slices. Pure.

Statistics of the files of a slice are joined before they are compared with a condition: a merged row takes each value from
one of the files, perhaps another one for each column. So a slice is read or not read as a whole, and a log is never left
out alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

__all__ = [
    "SliceFiles",
    "all_known",
    "exact_in_partitions",
    "joined_ranges",
    "joined_records",
    "range_guarantees",
]

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_RECORD = ("min", "max", "value_count", "null_count")
#: Java orders these characters by other numbers than UTF-8 does, so an end that holds one may not be the outermost value.
_ORDERED_DIFFERENTLY = r"[\x{E000}-\x{10FFFF}]"


class SliceFiles:
    """The files of slices as columns.

    Parameters:
        names: of the files, without directories.
        slices: the number of the slice that each is of.
        logs: whether each is a log.
        count: how many slices there are.
    """

    def __init__(self, names: Sequence[str], slices: Sequence[int], logs: Sequence[bool], count: int) -> None:
        self.names = pa.array(names, pa.string())
        self.slices: I64 = np.array(slices, np.int64)
        self.logs: Mask = np.array(logs, bool)
        self.count = count


def joined_ranges(stats: pa.Table, files: SliceFiles) -> pa.Table:
    """Return what values of a column each slice has.

    Parameters:
        stats: the statistics of the column by file, as the metadata table has them.
        files: the files of the slices.

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
    places = pc.index_in(files.names, value_set=stats["name"].combine_chunks())
    records = pa.table({name: stats[name].combine_chunks().take(places) for name in _RECORD})
    return joined_records(records, files, np.arange(len(files.slices)))


def joined_records(records: pa.Table, files: SliceFiles, places: I64, absent: Mask | None = None) -> pa.Table:
    """Return what values of a column each slice has, as :func:`joined_ranges` does.

    Parameters:
        records: ``min``, ``max``, ``value_count`` and ``null_count``; nulls: nothing is known of the file.
        files: the files of the slices.
        places: the file that each record is of, by position; every file has one at least.
        absent: where the file is known to have only nulls.
    """
    low, high = (records[end].combine_chunks() for end in ("min", "max"))
    rows, nulls = (_numbers(records[name].combine_chunks()) for name in ("value_count", "null_count"))
    slices, logs = files.slices[places], files.logs[places]
    has_range = _has_range(low, high)
    is_empty = logs & (rows == 0) & (nulls == 0)  # a log of deletes
    only_nulls = (rows > 0) & (rows == nulls) & _tells_nulls(low.type)
    is_told = has_range | is_empty | only_nulls
    is_told = is_told if absent is None else is_told | absent
    columns = {
        "min": _outermost(low, slices, files.count, has_range, "ascending"),
        "max": _outermost(high, slices, files.count, has_range, "descending"),
        "has_nulls": np.bincount(slices[nulls != 0], minlength=files.count) > 0,
        "has_values": np.bincount(slices[has_range], minlength=files.count) > 0,
        "is_known": np.bincount(slices[~is_told], minlength=files.count) == 0,
    }
    return pa.table(columns)


def _numbers(values: pa.Array) -> I64:
    numbers: I64 = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)
    return numbers


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind) or pt.is_large_binary(kind))


def _tells_nulls(kind: pa.DataType) -> bool:
    """Return whether statistics with nulls alone mean that there are only nulls."""
    # Some releases say the same of texts that are too long for a footer, and of Spark's old timestamps.
    return not (_is_text(kind) or pt.is_timestamp(kind))


def _has_range(low: pa.Array, high: pa.Array) -> Mask:
    """Return where both ends are values that all others lie between."""
    kind = low.type
    is_usable = pc.and_(pc.is_valid(low), pc.is_valid(high))
    if pt.is_floating(kind):
        zero = pa.scalar(0.0, kind)
        # Of values with NaN some releases store zero as both ends.
        zeros = pc.and_(pc.equal(low, zero), pc.equal(high, zero))
        is_usable = pc.and_(is_usable, pc.invert(pc.fill_null(zeros, True)))
        is_usable = pc.and_(is_usable, pc.invert(pc.fill_null(pc.or_(pc.is_nan(low), pc.is_nan(high)), True)))
    if pt.is_string(kind) or pt.is_large_string(kind):
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
    places = np.full(count, -1, np.int64)
    places[numbers] = rows[ordered[firsts]]
    return ends.take(pa.array(places, mask=places < 0))


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


def exact_in_partitions(kind: pa.DataType) -> bool:
    """Return whether ranges of whole partitions can be relied on for a type.

    A range of a partition leaves out files whose ends are not known: floats with NaN, long texts, Spark's old timestamps.

    Example:
        >>> exact_in_partitions(pa.int64()), exact_in_partitions(pa.string())
        (True, False)
    """
    return _tells_nulls(kind) and not pt.is_floating(kind)
