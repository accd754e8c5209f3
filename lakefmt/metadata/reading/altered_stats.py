"""Find the statistics of a column that was altered, of files and of data partitions, under the names that it had (effects on reading only).

What each file needs depends on its instant (:mod:`lakefmt.schema.statistic_names`). A file for which several names are
looked at has several records, and its values are in one of them at least: they are joined as those of several files are.

A commit makes the statistics of its data partitions anew, under the names that columns have then: those under an older name stay
as they were. By Hudi they are joined from the statistics of files that stand under the new name, so files from before may be
missing in them. Here they count only where they are known to have every row of the partition:

* as many values were counted as record keys, which every file has; and
* none of the values is null (Hudi counts a column as null in each row of a log that was written under another name), or all rows are
  of commits since the column has the name; or they stand under the first name, and all rows are of commits from before the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.data_classes import dataclass
from lakefmt.metadata.layout import PartitionKind
from lakefmt.metadata.reading.reader import MetadataTable
from lakefmt.metadata.reading.stats_reader import read_stats, stats_schema
from lakefmt.schema.alter import convert_stored
from lakefmt.schema.statistic_names import NamesInPartitions, StatisticNames, StoredUnder
from lakefmt.values import COMMIT_TIME

__all__ = [
    "DatedFiles",
    "known_partitions",
    "of_all_rows",
    "read_altered_partitions",
    "read_altered_stats",
    "texts_of_days",
]

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_RECORD_COLUMNS = ("min", "max", "value_count", "null_count")
#: Texts of dates sort like the dates in these years alone; days since 1970.
_FIRST_DAY, _LAST_DAY = -719162, 2932896


@dataclass(frozen=True)
class DatedFiles:
    """Files with the instants that tell their columns.

    Attributes:
        names: of the files, without directories.
        instants: of each file.
        logs: whether each is a log.
        grows: whether each is a log to which later instants were written, too (table version 6).
    """

    names: pa.Array
    instants: Sequence[str]
    logs: Mask
    grows: Mask


def read_altered_stats(
    table: MetadataTable,
    column: str,
    kind: pa.DataType,
    names: StatisticNames,
    files: DatedFiles,
    partitions: Sequence[str] | None = None,
) -> pa.Table:
    """Return what values files have of a column that had other names or types.

    Parameters:
        table: the metadata table.
        column: the column's name today, with dots when it is nested.
        kind: its type today.
        names: the names that columns had.
        files: the files.
        partitions: paths of data partitions that they are in; None: all.

    Returns:
        Columns ``file`` (a position in `files`), ``min``, ``max``, ``value_count`` and ``null_count`` as of
        :func:`~lakefmt.metadata.reading.stats_reader.read_stats`, and ``is_absent``: the file has null in each row. Every
        file has a record or several: its values are in one of them, or, where one has only nulls (the numbers too), not known.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    instants, codes = np.unique(np.array(files.instants, str), return_inverse=True)
    under: dict[StoredUnder, list[int]] = {}
    for code, instant in enumerate(instants):  # one for each commit that wrote some of the files
        under.setdefault(names.of(column, str(instant)), []).append(code)
    stored = {
        name: _stats_under(table, name, kind, names.kinds(column), partitions)
        for name in dict.fromkeys(name for each in under for name in each.names)
    }
    places = {name: _places_of_files(stats, files.names) for name, stats in stored.items()}
    empty = {name: _marks_of_files(_has_only_nulls(stats), places[name]) for name, stats in stored.items()}
    is_told = np.zeros(len(codes), bool)
    parts: list[pa.Table] = []
    for each, some in under.items():
        asked = np.isin(codes, some) & ~(files.grows & (not each.is_same))
        if each.is_absent:
            # A log may hold rows of instants that are later than its name.
            chosen = np.flatnonzero(asked & ~files.logs)
            parts.append(_absent_records(chosen, kind))
            is_told[chosen] = True
        there = {name: asked & (places[name] >= 0) for name in each.names}
        # Hudi counts a column as null in every row of a log that was written under another name.
        unseen = {
            name: empty[name] & ((files.logs & (not each.is_same)) | (name in each.filled)) for name in each.names
        }
        for name, chosen in _choose_names(each, there, unseen):
            parts.append(
                _records_of_files(chosen, stored[name].select(_RECORD_COLUMNS).take(pa.array(places[name][chosen])))
            )
            is_told[chosen] = True
    rest = np.flatnonzero(~is_told)
    nothing = stats_schema(kind).empty_table().select(_RECORD_COLUMNS)
    parts.append(_records_of_files(rest, nothing.take(pa.nulls(len(rest), pa.int64()))))
    return pa.concat_tables(parts)


def _choose_names(
    under: StoredUnder, there: Mapping[str, Mask], unseen: Mapping[str, Mask]
) -> Iterator[tuple[str, I64]]:
    """Yield the names under which statistics tell of a column, and of which files, by position.

    Parameters:
        under: the names.
        there: by name, the files of which statistics stand under it.
        unseen: by name, those of which they have nulls that may not be the column's.
    """
    has_own = np.zeros(0, bool)
    for name in (*under.own, *under.filled):
        usable = there[name] & ~unseen[name]
        has_own = has_own | usable if len(has_own) else usable
        yield name, np.flatnonzero(usable)
    if under.shared:
        has_all = np.all([there[name] for name in under.names], axis=0)
        for name in under.names:
            yield name, np.flatnonzero(has_all & ~has_own if len(has_own) else has_all)


def _stats_under(
    table: MetadataTable, name: str, kind: pa.DataType, kinds: frozenset[str], partitions: Sequence[str] | None
) -> pa.Table:
    """Return what stands under a name, with ends of older types as ends of today's."""
    stats = read_stats(table, PartitionKind.COLUMN_STATS, name, kind, partitions)
    if pt.is_float64(kind) and "float" in kinds:
        return _with_rounded_ends(stats)
    if pt.is_string(kind) and "date" in kinds and kinds <= {"date", "string"}:
        dates = read_stats(table, PartitionKind.COLUMN_STATS, name, pa.date32(), partitions)
        return pa.concat_tables(
            [stats.filter(_have_both_ends(stats)), _dates_as_texts(dates.filter(_have_both_ends(dates)))]
        )
    return stats


def _with_rounded_ends(stats: pa.Table) -> pa.Table:
    """Return ends between which values are, whether they were stored as floats or as doubles.

    A reader takes the double that is written like the float, Java and Arrow the one that equals it.
    """
    for end, outermost in (("min", pc.min_element_wise), ("max", pc.max_element_wise)):
        exact = stats[end].combine_chunks()
        single = exact.cast(pa.float32(), safe=False)
        written = convert_stored(single, "double")
        ends = pc.if_else(pc.equal(single.cast(pa.float64()), exact), outermost(exact, written), exact)
        stats = stats.set_column(stats.column_names.index(end), end, ends)
    return stats


def _dates_as_texts(dates: pa.Table) -> pa.Table:
    for end in ("min", "max"):
        dates = dates.set_column(dates.column_names.index(end), end, texts_of_days(dates[end].combine_chunks()))
    return dates.filter(_have_both_ends(dates))


def texts_of_days(dates: pa.Array) -> pa.Array:
    """Return dates as texts; null in years of which texts sort otherwise than dates.

    Example:
        >>> texts_of_days(pa.array([0, 2932897], pa.int32()).cast(pa.date32())).to_pylist()
        ['1970-01-01', None]
    """
    days = dates.cast(pa.int32())
    low, high = (pa.scalar(day, pa.int32()) for day in (_FIRST_DAY, _LAST_DAY))
    are_in_order = pc.and_(pc.greater_equal(days, low), pc.less_equal(days, high))
    return convert_stored(pc.if_else(are_in_order, dates, pa.scalar(None, dates.type)), "string")


def _have_both_ends(stats: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.is_valid(stats["min"]), pc.is_valid(stats["max"]))


def _places_of_files(stats: pa.Table, files: pa.Array) -> I64:
    """Return which statistics are of each file; -1: none, or several."""
    counts = stats["name"].value_counts()
    once = counts.field("values").filter(pc.equal(counts.field("counts"), 1))
    places: I64 = pc.fill_null(pc.index_in(files, value_set=stats["name"].combine_chunks()), -1).to_numpy()
    is_once: Mask = pc.is_in(files, value_set=once).to_numpy(zero_copy_only=False)
    return np.where(is_once, places, -1).astype(np.int64)


def _has_only_nulls(records: pa.Table) -> Mask:
    counts, nulls = records["value_count"], records["null_count"]
    mask: Mask = pc.and_(pc.greater(counts, 0), pc.equal(counts, nulls)).to_numpy()
    return mask


def _marks_of_files(marks: Mask, places: I64) -> Mask:
    """Return the marks of statistics by file; of those without it is false."""
    return np.append(marks, False)[places]


def _records_of_files(files: I64, records: pa.Table, *, is_absent: bool = False) -> pa.Table:
    return records.add_column(0, "file", pa.array(files, pa.int64())).append_column(
        "is_absent", pa.array(np.full(len(files), is_absent))
    )


def _absent_records(files: I64, kind: pa.DataType) -> pa.Table:
    single = pa.array(np.ones(len(files), np.int64))
    ends = pa.nulls(len(files), kind)
    return _records_of_files(files, pa.table([ends, ends, single, single], names=_RECORD_COLUMNS), is_absent=True)


# ------------------------------------------------------------------------------------------------------ data partitions

_INSTANT_DIGITS = 17


def read_altered_partitions(
    table: MetadataTable,
    kind: pa.DataType,
    names: NamesInPartitions,
    keys: pa.Table,
    partitions: Sequence[str] | None = None,
    *,
    merges: bool,
) -> pa.Table:
    """Return what values of an altered column data partitions have, those of which it is known.

    Parameters:
        table: the metadata table.
        kind: the column's type today.
        names: that the column had.
        keys: the statistics of record keys in these partitions.
        partitions: their paths; None: all.
        merges: the table may have logs, whose rows do not say when they were written.

    Returns:
        Columns as of :func:`~lakefmt.metadata.reading.stats_reader.read_stats`.

    Raises:
        CorruptFile: the metadata table is damaged.
    """

    def stored(name: str | None, kind: pa.DataType) -> pa.Table:
        if name is None:
            return stats_schema(kind).empty_table()
        return read_stats(table, PartitionKind.PARTITION_STATS, name, kind, partitions)

    current = stored(names.current, kind)
    has_times = names.since is not None and not merges
    first, times = (
        stored(names.first if has_times else None, kind),
        stored(COMMIT_TIME if has_times else None, pa.string()),
    )
    return known_partitions(current, first, keys, times, names)


def known_partitions(
    current: pa.Table, first: pa.Table, keys: pa.Table, times: pa.Table, names: NamesInPartitions
) -> pa.Table:
    """Return the statistics that are known to be of all rows of a partition. Pure.

    Parameters:
        current: what stands under the column's name of today.
        first: what stands under its first name; nothing where rows do not say when they were written.
        keys: the statistics of record keys.
        times: those of commit times.
        names: that the column had.
    """
    keys, times = (of_all_rows(stats, keys) for stats in (keys, times))
    current, first = (of_all_rows(stats, keys) for stats in (current, first))
    if names.since is not None:
        has_values = pc.equal(current["null_count"], 0)
        current = current.filter(
            pc.or_(has_values, _partitions_where(pc.greater_equal, current, times, "min", names.since))
        )
    first = first.filter(_partitions_where(pc.less, first, times, "max", names.until))
    is_other = pc.invert(pc.is_in(first["name"], value_set=current["name"].combine_chunks()))
    return pa.concat_tables([current, first.filter(is_other)])


def of_all_rows(stats: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the statistics that were made of all files at once, and of as many rows as there are record keys. Pure.

    Hudi joins those of files: where a column has had statistics for a while only, older files are missing in them.

    Parameters:
        stats: of a column.
        keys: of record keys, which every file has.
    """
    places = pc.index_in(stats["name"], value_set=keys["name"].combine_chunks())
    rows = keys["value_count"].combine_chunks().take(places.combine_chunks())
    return stats.filter(pc.fill_null(pc.and_(stats["is_tight"], pc.equal(stats["value_count"], rows)), False))


def _partitions_where(compare: object, stats: pa.Table, times: pa.Table, end: str, instant: str) -> pa.ChunkedArray:
    """Return of which partitions an end of the commit times compares with an instant; false where it is not known."""
    whole = times.filter(
        pc.and_(pc.equal(times["null_count"], 0), pc.equal(pc.utf8_length(times[end]), _INSTANT_DIGITS))
    )
    passing = whole.filter(compare(whole[end], pa.scalar(instant)))  # type: ignore[operator]
    return pc.is_in(stats["name"], value_set=passing["name"].combine_chunks())
