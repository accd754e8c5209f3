"""Write many small files together: new ones, and rewrites of small base files.

Rows of small new files are completed as one table, rows of small rewrites are read and merged as one table; then they are
cut into files. A file of a hundred rows costs its calls, not its rows; so do key filters of few keys, which are made
together. Every file has its marker, its name and its commit entry as if it had been written alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.base_writer import carried_filter, new_filter, row_group_bytes
from lakefmt._core.filegroups.merge.base import (
    GROUP_NUMBER,
    Incoming,
    Merged,
    can_be_together,
    grouped_rows,
    joined_in_schema,
    merge_into_base,
    split_groups,
    stored_keys,
)
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.ordering import has_order
from lakefmt._core.filegroups.reader import BaseFileReader, KnownFooter
from lakefmt._core.formats.bloom.bloom_filter import BloomFilter, add_to_filters
from lakefmt._core.formats.parquet.base_file import BaseFileFooter, ColumnTraits, column_traits, key_ranges
from lakefmt._core.storage.api import SupportsPutBatch
from lakefmt._core.values import FILE_NAME, META_COLUMNS, RECORD_KEY, WriteOperation
from lakefmt._core.write.assign import Assigned
from lakefmt._core.write.bound_context import BoundContext, prepare
from lakefmt._core.write.context import FileAssignment, WriteStatus
from lakefmt._core.write.files.base_file import FileInProgress, adopt, write_assigned
from lakefmt._core.write.files.meta_columns import routed_deletes, with_meta_of
from lakefmt.errors import InternalError

__all__ = [
    "FEWEST_FILES",
    "FEWEST_NEW_FILES",
    "MOST_NEW_ROWS",
    "FileBundle",
    "bloom_filters_of_parts",
    "bloom_filters_of_small_files",
    "bundle_rewrites",
    "can_be_written_together",
    "files_at_a_time",
    "grown_filters",
    "rewrite_together",
    "write_small_files",
    "writes_together",
]

#: Filters of files with more keys are made file by file: there the calls cost less than the hashes.
_FEW_FILTERED_KEYS = 1000
#: Keys whose bit positions are worked out together: thirty numbers each.
_MOST_KEYS_TOGETHER = 1 << 17


def bloom_filters_of_small_files(
    bound: BoundContext, keys: pa.StringArray | None, assigned: Sequence[Assigned]
) -> dict[int, BloomFilter]:
    """Return the key filters of new files of few keys, by the number of their assignment."""
    new = [
        number
        for number, each in enumerate(assigned)
        if each.assignment.base is None and each.assignment.log is None and 0 < len(each.rows) <= _FEW_FILTERED_KEYS
    ]
    wanted = bound.config.populate_meta_fields and bound.writes_filters
    if (
        keys is None
        or not wanted
        or len(new) < 2
        or sum(len(assigned[number].rows) for number in new) > _MOST_KEYS_TOGETHER
    ):
        return {}
    keys_of_files = [keys.take(from_numpy(assigned[number].rows)) for number in new]
    return dict(zip(new, _filters_of(bound, keys_of_files), strict=True))


def bloom_filters_of_parts(bound: BoundContext, parts: Sequence[pa.Table]) -> list[BloomFilter | None]:
    """Return the key filters of new files whose rows are all there; None for those that are made file by file.

    Args:
        bound: the write.
        parts: the rows of each file, with their keys.
    """
    blooms: list[BloomFilter | None] = [None] * len(parts)
    if not bound.config.populate_meta_fields or not bound.writes_filters:
        return blooms
    few = [
        n for n, rows in enumerate(parts) if 0 < rows.num_rows <= _FEW_FILTERED_KEYS and RECORD_KEY in rows.column_names
    ]
    if len(few) < 2 or sum(parts[number].num_rows for number in few) > _MOST_KEYS_TOGETHER:
        return blooms
    keys = [parts[number].column(RECORD_KEY).combine_chunks() for number in few]
    for number, bloom in zip(few, _filters_of(bound, keys), strict=True):
        blooms[number] = bloom
    return blooms


def grown_filters(
    bound: BoundContext, footers: Sequence[BaseFileFooter], parts: Sequence[Merged]
) -> list[BloomFilter | None]:
    """Return the key filters of rewritten files: each one's own with its new keys, None where a new filter is better.

    Args:
        bound: the write.
        footers: those of the files that are rewritten.
        parts: the merged rows of each file.
    """
    blooms = [
        carried_filter(footer.bloom_filter(), footer.num_rows, part.table.num_rows, part.inserted, bound.settings)
        for footer, part in zip(footers, parts, strict=True)
    ]
    growing = [
        (b, part.inserted_keys) for b, part in zip(blooms, parts, strict=True) if b is not None and part.inserted
    ]
    if growing:
        add_to_filters([bloom for bloom, _ in growing], [keys.combine_chunks() for _, keys in growing])
    return blooms


def _filters_of(bound: BoundContext, keys_of_files: Sequence[pa.StringArray]) -> list[BloomFilter]:
    blooms = [new_filter(bound.settings, len(keys)) for keys in keys_of_files]
    add_to_filters(blooms, keys_of_files)
    return blooms


class FileBundle:
    """Writes some small files; a durable write waits for the disk once for all of them, not for each.

    Args:
        bound: the write.
    """

    def __init__(self, bound: BoundContext) -> None:
        self._bound = bound
        self._stack = ExitStack()
        store = bound.store
        self._batch = store.put_batch() if bound.durable and isinstance(store, SupportsPutBatch) else None
        self._closed: list[FileInProgress] = []
        self._statuses: list[WriteStatus] = []

    def __enter__(self) -> FileBundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @contextmanager
    def file(self, assignment: FileAssignment, bloom: BloomFilter | None = None) -> Iterator[FileInProgress]:
        """Give a file that takes its rows within this context.

        Args:
            assignment: the file.
            bloom: the filter of all its keys, where it has been made.

        Raises:
            StorageError: the store failed.
        """
        if self._batch is None:
            with ExitStack() as stack:
                file = FileInProgress(self._bound, assignment, stack, bloom)
                yield file
                self._statuses.append(file.finish())
            return
        file = FileInProgress(self._bound, assignment, self._stack, bloom)
        yield file
        file.close()
        self._batch.add(file.sink)
        self._closed.append(file)

    def put(self) -> list[WriteStatus]:
        """Give the files their names, and return what was written, in order.

        Raises:
            StorageError: the store failed, or does not say whether a file is there.
        """
        if self._batch is None:
            return self._statuses
        return [file.placed(outcome) for file, outcome in zip(self._closed, self._batch.put_if_absent(), strict=True)]


#: Fewer files are written one by one; the most rows of a file that is written with others, and the most files.
FEWEST_NEW_FILES, MOST_NEW_ROWS = 8, 999
_MOST_NEW_FILES = 64


def can_be_written_together(bound: BoundContext) -> bool:
    """Return whether new files of a write have all meta columns, and no changes to log."""
    return bound.cdc is None and bound.virtual_columns is None


def files_at_a_time(files: int, threads: int) -> int:
    """Return how many of some small files are written together, so that each thread has its share.

    Example:
        >>> [files_at_a_time(files, 2) for files in (10, 30, 2500)]
        [8, 15, 64]
    """
    return min(_MOST_NEW_FILES, max(FEWEST_NEW_FILES, -(-files // threads)))


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
        announced: what :func:`~lakefmt._core.write.bound_context.announce` said of the write's files.
    """

    def write(numbers: Sequence[int]) -> list[WriteStatus]:
        filters = [blooms.get(number) for number in numbers]
        return write_small_files(bound, *parts_of(numbers), filters, announced=announced)

    for numbers in _bundles_of_new_files(bound, assigned):
        yield numbers, partial(write, numbers)


def _bundles_of_new_files(bound: BoundContext, assigned: Sequence[Assigned]) -> list[list[int]]:
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
        announced: what :func:`~lakefmt._core.write.bound_context.announce` said of the write's files.

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
    if is_repeated or _is_more_than_a_row_group(rows) or routed_deletes(bound, rows).any():
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


def _is_more_than_a_row_group(rows: pa.Table) -> bool:
    """Tell whether all rows together take more than a row group, so that one file alone may."""
    # Whole buffers know their size; slices are counted one by one.
    return bool(rows.get_total_buffer_size() > row_group_bytes() and rows.nbytes > row_group_bytes())


#: A file of more bytes is rewritten alone; the most bytes of files, and the most files, that are rewritten together.
_SMALL_BASE_BYTES, _BUNDLE_BYTES, _MOST_REWRITES = 512 << 10, 4 << 20, 64
#: Fewer files are rewritten one by one.
FEWEST_FILES = 8
#: Bundles for each thread: the last ones of all threads should end together.
_BUNDLES_OF_A_THREAD = 4


def bundle_rewrites(bound: BoundContext, assigned: Sequence[Assigned]) -> list[list[int]]:
    """Return which small files are rewritten together, as numbers of `assigned`."""
    small = [number for number, each in enumerate(assigned) if _is_small_rewrite(each)]
    if len(small) < FEWEST_FILES or bound.cdc is not None or bound.virtual_columns is not None:
        return []
    if not can_be_together(bound.rule, len(small)):
        return []
    most = min(_MOST_REWRITES, max(FEWEST_FILES, -(-len(small) // (bound.threads * _BUNDLES_OF_A_THREAD))))
    bundles: list[list[int]] = []
    size = _BUNDLE_BYTES
    for number in small:
        base = assigned[number].assignment.base
        size += 0 if base is None else base.size
        if not bundles or size > _BUNDLE_BYTES or len(bundles[-1]) >= most:
            bundles.append([])
            size = 0 if base is None else base.size
        bundles[-1].append(number)
    return bundles


def _is_small_rewrite(each: Assigned) -> bool:
    assignment = each.assignment
    if assignment.base is None or assignment.log is not None or not assignment.match_keys:
        return False
    return assignment.base.size <= _SMALL_BASE_BYTES and each.leaving is None and each.stored is None


@dataclass(frozen=True, slots=True)
class _BaseToRewrite:
    """A file to rewrite: its rows as they are stored, without the column of its name, and its footer."""

    rows: pa.Table
    footer: BaseFileFooter


def rewrite_together(
    bound: BoundContext,
    assignments: Sequence[FileAssignment],
    counts: Sequence[int],
    rows: pa.Table,
    footer_of: Callable[[BaseFile], KnownFooter | None],
    *,
    announced: bool | None,
) -> list[WriteStatus]:
    """Write rewritten base files, or adopt those that an earlier attempt wrote.

    Args:
        bound: the write.
        assignments: the files.
        counts: how many of the rows are each one's.
        rows: routed rows with their record keys, one file's behind the other's.
        footer_of: tells the footer of a base file, where the look-up has read it.
        announced: what :func:`~lakefmt._core.write.bound_context.announce` said of the write's files.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    firsts = [prepare(bound, assignment, announced=announced) for assignment in assignments]
    if not all(firsts) and any(adopt(bound, assignment) is not None for assignment in assignments):
        return _rewrite_one_by_one(bound, assignments, counts, rows, announced)
    kept = bound.file_schema.remove(bound.file_schema.get_field_index(FILE_NAME))
    reader = BaseFileReader(bound.store)
    bases = [_read_base(reader, assignment, kept, footer_of) for assignment in assignments]
    base_rows = [base.rows.num_rows for base in bases]
    stored = joined_in_schema([base.rows for base in bases], kept)
    merged = _merge_bases(bound, assignments, counts, rows, stored, base_rows)
    if merged is None:
        return _rewrite_one_by_one(bound, assignments, counts, rows, announced)
    parts, traits = merged
    footers = [base.footer for base in bases]
    filters, new_ends = grown_filters(bound, footers, parts), _ends_of_new_keys(parts)

    with FileBundle(bound) as bundle:
        for assignment, part, count, footer, bloom, ends in zip(
            assignments, parts, counts, footers, filters, new_ends, strict=True
        ):
            with bundle.file(assignment) as file:
                file.store_merged(part, count, footer, bloom, traits, ends)
        return bundle.put()


def _ends_of_new_keys(parts: Sequence[Merged]) -> list[tuple[str, str] | None]:
    """Return the range of each file's new keys, None where it gets none."""
    growing = [part for part in parts if part.inserted]
    if not growing:
        return [None] * len(parts)
    keys = pa.chunked_array([chunk for part in growing for chunk in part.inserted_keys.chunks], pa.string())
    ranges = iter(key_ranges(keys, [part.inserted for part in growing]))
    return [next(ranges) if part.inserted else None for part in parts]


def _rewrite_one_by_one(
    bound: BoundContext,
    assignments: Sequence[FileAssignment],
    counts: Sequence[int],
    rows: pa.Table,
    announced: bool | None,
) -> list[WriteStatus]:
    parts = [rows.slice(first, count) for first, count in zip(accumulate(counts, initial=0), counts, strict=False)]
    return [
        write_assigned(bound, assignment, [part], announced=announced)
        for assignment, part in zip(assignments, parts, strict=True)
    ]


def _read_base(
    reader: BaseFileReader,
    assignment: FileAssignment,
    kept: pa.Schema,
    footer_of: Callable[[BaseFile], KnownFooter | None],
) -> _BaseToRewrite:
    base = assignment.base
    if base is None:
        raise InternalError("there is no base file to rewrite")
    stored, footer = reader.rows_and_footer(base, kept.names, use_threads=False, known_footer=footer_of(base))
    return _BaseToRewrite(stored, footer)


def _merge_bases(
    bound: BoundContext,
    assignments: Sequence[FileAssignment],
    counts: Sequence[int],
    rows: pa.Table,
    base: pa.Table,
    base_rows: Sequence[int],
) -> tuple[list[Merged], ColumnTraits] | None:
    """Return each file's merged rows with all columns, and what these have in common; None if a row has no key."""
    rule = bound.rule
    if bound.operation is WriteOperation.DELETE or not has_order(rule.stored, rows.column_names):
        rule = rule.without_order()  # without an event time the later write wins
    incoming = grouped_rows(with_meta_of(bound.instant, assignments, counts, rows, bound.file_schema), counts)
    stored = grouped_rows(base, base_rows)
    if incoming is None or stored is None:
        return None
    present = frozenset((*META_COLUMNS, *rows.column_names))
    columns = None if present.issuperset(bound.file_schema.names) else present
    merged = merge_into_base(stored, Incoming(incoming, routed_deletes(bound, rows), columns), rule=rule)
    return _cut_into_files(merged, bound.file_schema, assignments, counts, base_rows)


def _cut_into_files(
    merged: Merged,
    schema: pa.Schema,
    assignments: Sequence[FileAssignment],
    counts: Sequence[int],
    base_rows: Sequence[int],
) -> tuple[list[Merged], ColumnTraits]:
    """Return the part of each file, with its name in its rows, and what the rows of all have in common."""
    files = len(assignments)
    new = merged.table.column(GROUP_NUMBER).slice(merged.table.num_rows - merged.inserted).to_numpy()
    inserted = _counts_of_files(new, files)
    of_base, of_incoming = np.repeat(np.arange(files), base_rows), np.repeat(np.arange(files), counts)
    updated, deleted = (
        _counts_of_files(of_base[merged.replaced], files),
        _counts_of_files(of_base[merged.removed], files),
    )
    met, ignored = _counts_of_files(of_base[merged.met], files), _counts_of_files(of_incoming[merged.ignored], files)
    new_keys, old_keys = stored_keys(merged.inserted_keys), stored_keys(merged.removed_keys)
    table, sizes = split_groups(merged.table, files)
    names = pa.array([assignment.file_name for assignment in assignments], pa.string())
    index = schema.get_field_index(FILE_NAME)
    table = table.add_column(index, FILE_NAME, names.take(from_numpy(np.repeat(np.arange(files), sizes))))
    parts, row, key, old_key = [], 0, 0, 0
    for number in range(files):
        part = Merged(
            table=table.slice(row, sizes[number]),
            inserted=inserted[number],
            updated=updated[number],
            deleted=deleted[number],
            late=met[number] - updated[number] - deleted[number],
            ignored_deletes=ignored[number],
            inserted_keys=new_keys.slice(key, inserted[number]),
            removed_keys=old_keys.slice(old_key, deleted[number]),
        )
        parts.append(part)
        row, key, old_key = row + sizes[number], key + inserted[number], old_key + deleted[number]
    return parts, column_traits(table, max(sizes))


def _counts_of_files(numbers: npt.NDArray[np.int64], files: int) -> list[int]:
    return [int(count) for count in np.bincount(numbers, minlength=files)]
