"""Writes many small new files together: their rows are completed as one table, and cut into files.

A file of a hundred rows costs its calls, not its rows. Every file has its marker, its name and its commit entry as if it
had been written alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

import pyarrow as pa

from lakefmt.filegroups.base_writer import row_group_bytes
from lakefmt.formats.bloom.bloom_filter import BloomFilter
from lakefmt.formats.parquet.base_file import column_traits, key_ranges
from lakefmt.values import RECORD_KEY
from lakefmt.write.assign import Assigned
from lakefmt.write.bound_context import BoundContext, prepare
from lakefmt.write.context import FileAssignment, WriteStatus
from lakefmt.write.files.base_file import adopt, write_assigned
from lakefmt.write.files.file_bundle import FileBundle
from lakefmt.write.files.key_filters import bloom_filters_of_parts
from lakefmt.write.files.meta_columns import routed_deletes, with_meta_of

__all__ = [
    "FEWEST_NEW_FILES",
    "MOST_NEW_ROWS",
    "can_be_written_together",
    "files_at_a_time",
    "write_small_files",
    "writes_together",
]

#: Fewer files are written one by one; the most rows of a file that is written with others, and the most files.
FEWEST_NEW_FILES, MOST_NEW_ROWS = 8, 999
_MOST_FILES = 64


def can_be_written_together(bound: BoundContext) -> bool:
    """Return whether new files of a write have all meta columns, and no changes to log."""
    return bound.cdc is None and bound.virtual_columns is None


def files_at_a_time(files: int, threads: int) -> int:
    """Return how many of some small files are written together, so that each thread has its share.

    Example:
        >>> [files_at_a_time(files, 2) for files in (10, 30, 2500)]
        [8, 15, 64]
    """
    return min(_MOST_FILES, max(FEWEST_NEW_FILES, -(-files // threads)))


def writes_together(
    bound: BoundContext,
    assigned: Sequence[Assigned],
    parts_of: Callable[[Sequence[int]], tuple[list[FileAssignment], list[int], pa.Table]],
    blooms: Mapping[int, BloomFilter],
    announced: bool | None,
) -> Iterator[tuple[list[int], Callable[[], list[WriteStatus]]]]:
    """Yield the small new files of a write that are written together, by their numbers, and what writes them.

    Args:
        bound: the write.
        assigned: its files.
        parts_of: tells files by their numbers, how many rows each takes, and the rows, one file's behind the other's.
        blooms: by number, the filters of all keys of files, where they have been made.
        announced: what :func:`~lakefmt.write.bound_context.announce` said of the write's files.
    """

    def write(numbers: Sequence[int]) -> list[WriteStatus]:
        filters = [blooms.get(number) for number in numbers]
        return write_small_files(bound, *parts_of(numbers), filters, announced=announced)

    for numbers in _bundles(bound, assigned):
        yield numbers, partial(write, numbers)


def _bundles(bound: BoundContext, assigned: Sequence[Assigned]) -> list[list[int]]:
    small = [
        number
        for number, each in enumerate(assigned)
        if each.assignment.base is None
        and each.assignment.log is None
        and each.leaving is None
        and each.stored is None
        and 0 < len(each.rows) <= MOST_NEW_ROWS
    ]
    if len(small) < FEWEST_NEW_FILES or not can_be_written_together(bound):
        return []
    most = files_at_a_time(len(small), bound.threads)
    return [small[first : first + most] for first in range(0, len(small), most)]


def write_small_files(
    bound: BoundContext,
    assignments: Sequence[FileAssignment],
    counts: Sequence[int],
    rows: pa.Table,
    blooms: Sequence[BloomFilter | None] | None = None,
    *,
    announced: bool | None,
) -> list[WriteStatus]:
    """Write new base files of few rows, or adopt those that an earlier attempt wrote.

    Args:
        bound: the write.
        assignments: the files, none with a base.
        counts: how many of the rows are each one's.
        rows: routed rows with their record keys, one file's behind the other's.
        blooms: for each file the filter of all its keys, where it has been made; None: they are made here.
        announced: what :func:`~lakefmt.write.bound_context.announce` said of the write's files.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    firsts = [prepare(bound, assignment, announced=announced) for assignment in assignments]
    starts = list(accumulate(counts, initial=0))
    if blooms is None:
        parts = [rows.slice(start, count) for start, count in zip(starts, counts, strict=False)]
        blooms = bloom_filters_of_parts(bound, parts)
    cuts = list(zip(assignments, starts, counts, blooms, strict=False))
    is_repeated = not all(firsts) and any(adopt(bound, assignment) is not None for assignment in assignments)
    if is_repeated or _is_large(rows) or routed_deletes(bound, rows).any():
        return [
            write_assigned(bound, assignment, [rows.slice(first, count)], bloom=bloom, announced=announced)
            for assignment, first, count, bloom in cuts
        ]
    complete = with_meta_of(bound.instant, assignments, counts, rows, bound.file_schema)
    traits, ranges = column_traits(complete, max(counts)), key_ranges(complete.column(RECORD_KEY), counts)
    with FileBundle(bound) as bundle:
        for (assignment, first, count, bloom), ends in zip(cuts, ranges, strict=True):
            with bundle.file(assignment, bloom) as file:
                file.store_new(complete.slice(first, count), traits, ends)
        return bundle.put()


def _is_large(rows: pa.Table) -> bool:
    """Tell whether all rows together take more than a row group, so that one file alone may."""
    # Whole buffers know their size; slices are counted one by one.
    return bool(rows.get_total_buffer_size() > row_group_bytes() and rows.nbytes > row_group_bytes())
