"""Statistics of data partitions of a column that was altered (effects on reading only).

A commit makes the statistics of its partitions anew, under the names that columns have then: those under an older name stay as they
were. By Hudi they are joined from the statistics of files that stand under the new name, so files from before may be
missing in them. Here they count only where they are known to have every row of the partition:

* as many values were counted as record keys, which every file has; and
* none of the values is null (Hudi counts a column as null in each row of a log that was written under another name), or all rows are
  of commits since the column has the name; or they stand under the first name, and all rows are of commits from before the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.metadata.layout import PartitionKind
from lakefmt.metadata.reading._stats_columns import stats_schema
from lakefmt.metadata.reading.reader import MetadataTable
from lakefmt.metadata.reading.stats_reader import read_stats
from lakefmt.schema.statistic_names import NamesInPartitions
from lakefmt.values import COMMIT_TIME

__all__ = ["known_partitions", "of_all_rows", "read_altered_partitions"]

_DIGITS = 17


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
        current = current.filter(pc.or_(has_values, _compared(pc.greater_equal, current, times, "min", names.since)))
    first = first.filter(_compared(pc.less, first, times, "max", names.until))
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


def _compared(compare: object, stats: pa.Table, times: pa.Table, end: str, instant: str) -> pa.ChunkedArray:
    """Return of which partitions an end of the commit times compares with an instant; false where it is not known."""
    whole = times.filter(pc.and_(pc.equal(times["null_count"], 0), pc.equal(pc.utf8_length(times[end]), _DIGITS)))
    passing = whole.filter(compare(whole[end], pa.scalar(instant)))  # type: ignore[operator]
    return pc.is_in(stats["name"], value_set=passing["name"].combine_chunks())
