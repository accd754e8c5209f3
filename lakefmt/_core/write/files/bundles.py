"""Write the files of a commit in bundles: logs, small new base files, rewrites of small base files; a large one alone.

Rows of logs are encoded as one table, rows of small new files are completed as one table, rows of small rewrites are
read and merged as one table; then they are cut into files. A file of a hundred rows costs its calls, not its rows; so
do key filters of few keys, which are made together. Every file has its marker, its name and its commit entry as if it
had been written alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.base_writer import carried_filter, new_filter, row_group_bytes
from lakefmt._core.filegroups.merge import (
    GROUP_NUMBER,
    Merged,
    can_be_together,
    grouped_rows,
    joined_in_schema,
    merge_into_base,
    split_groups,
    stored_keys,
)
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.ordering import to_mask
from lakefmt._core.filegroups.reader import BaseFileReader, KnownFooter
from lakefmt._core.formats.bloom_filter import BloomFilter, add_to_filters
from lakefmt._core.formats.parquet.base_file import BaseFileFooter, ColumnTraits, column_traits, key_ranges
from lakefmt._core.storage.api import SupportsPutBatch
from lakefmt._core.values import FILE_NAME, RECORD_KEY
from lakefmt._core.write.assign import Assigned
from lakefmt._core.write.context import MOVED_AWAY, BoundContext, FileAssignment, WriteStatus, prepare
from lakefmt._core.write.files.base_file import (
    FileInProgress,
    RowFacts,
    adopt,
    incoming_rows,
    merge_facts,
    rule_of_rows,
    write_assigned,
)
from lakefmt._core.write.files.meta_columns import POSITION, routed_deletes, with_meta_of
from lakefmt._core.write.ingest import KeyedBatch, pick_rows
from lakefmt.errors import InternalError

__all__ = [
    "FEWEST_FILES",
    "MOST_NEW_ROWS",
    "Bundle",
    "BundleLimits",
    "BundleSource",
    "FileBundle",
    "bloom_filters_of_parts",
    "bundle_limits",
    "can_be_written_together",
    "files_at_a_time",
    "grown_filters",
    "joined",
    "plan_bundles",
    "rewrite_together",
    "route",
    "write_small_files",
]

#: The most files of a bundle.
_MOST_FILES = 64
#: The most rows of a new file that is written with others.
MOST_NEW_ROWS = 999
#: Fewer files are rewritten one by one. A file of more bytes is rewritten alone; the most bytes of base files of a bundle.
FEWEST_FILES, _SMALL_BASE_BYTES, _BUNDLE_BYTES = 8, 512 << 10, 4 << 20
#: Bundles of rewrites for each thread: the last ones of all threads should end together.
_BUNDLES_OF_A_THREAD = 4
#: The most rows of a bundle of logs, and their bytes as Arrow holds them, in all threads.
_MOST_LOG_ROWS, _MOST_LOG_BYTES = 1 << 15, 32 << 20
#: Filters of files with more keys are made file by file: there the calls cost less than the hashes.
_FEW_FILTERED_KEYS = 1000
#: Keys whose bit positions are worked out together: thirty numbers each.
_MOST_KEYS_TOGETHER = 1 << 17


@dataclass(frozen=True, slots=True)
class BundleLimits:
    """What bounds the bundles of a write.

    Attributes:
        threads: how many threads write them.
        log_rows: a bundle of logs has no more rows.
        joins_new: new base files of few rows may be written together.
        joins_rewrites: small base files may be rewritten together.
    """

    threads: int
    log_rows: int
    joins_new: bool
    joins_rewrites: bool


def bundle_limits(bound: BoundContext, rows: pa.Table, threads: int) -> BundleLimits:
    """Return what bounds the bundles of a write.

    Args:
        bound: the write.
        rows: its rows.
        threads: how many threads write its files.
    """
    # The rows of logs are held twice while they are encoded: by every thread.
    log_rows = min(_MOST_LOG_ROWS, int(rows.num_rows * _MOST_LOG_BYTES / threads / max(1, rows.nbytes)))
    joins_new = can_be_written_together(bound)
    joins_rewrites = joins_new and bound.cdc is None and can_be_together(bound.rule, _MOST_FILES)
    return BundleLimits(threads, max(1, log_rows), joins_new, joins_rewrites)


@dataclass(frozen=True, slots=True)
class BundleSource:
    """What every bundle of a write takes its rows from.

    Attributes:
        bound: the write.
        batch: its rows.
        footer_of: returns the footer of a base file, where the look-up has read it.
        announced: what :class:`~lakefmt._core.write.context.Announcements` said of the write's files.
        is_alone: the write has one file, so that its columns may be read by several threads.
    """

    bound: BoundContext
    batch: KeyedBatch
    footer_of: Callable[[BaseFile], KnownFooter | None]
    announced: bool | None
    is_alone: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files of one type that are written together, by one thread; one file is a bundle of one.

    Attributes:
        positions: those of the files among all that the write assigns.
        assigned: the files, and the positions of their rows.
    """

    positions: tuple[int, ...]
    assigned: tuple[Assigned, ...]

    def write(self, source: BundleSource) -> list[WriteStatus]:
        """Write the files, or adopt those that an earlier attempt wrote.

        Raises:
            StorageError: the store failed; the call may be repeated.
        """
        bound, announced = source.bound, source.announced
        files, counts = [each.assignment for each in self.assigned], [len(each.rows) for each in self.assigned]
        rows = route(source.batch, joined(self.assigned))
        file = files[0]
        if file.log is not None:
            from lakefmt._core.write.files.log_payloads import write_log_files  # brings the formats of logs along

            return write_log_files(bound, files, counts, rows, announced=announced)
        if len(files) == 1:
            footer = None if file.base is None else source.footer_of(file.base)
            alone = source.is_alone
            return [write_assigned(bound, file, [rows], alone=alone, known_footer=footer, announced=announced)]
        if file.base is None:
            return write_small_files(bound, files, counts, rows, announced=announced)
        return rewrite_together(bound, files, counts, rows, source.footer_of, announced=announced)


def joined(some: Sequence[Assigned]) -> Assigned:
    """Return the rows of a bundle, those of one file after those of the one before, under the first file's name."""
    if len(some) == 1:
        return some[0]
    stored = [each.stored for each in some if each.stored is not None]
    marks = [np.zeros(len(each.rows), bool) if each.leaving is None else each.leaving for each in some]
    positions = [np.full(len(each.rows), -1, np.int64) if each.positions is None else each.positions for each in some]
    return Assigned(
        some[0].assignment,
        np.concatenate([each.rows for each in some]),
        np.concatenate(marks) if any(each.leaving is not None for each in some) else None,
        pa.concat_tables(stored) if stored else None,
        np.concatenate(positions) if any(each.positions is not None for each in some) else None,
    )


def _with_leaving(table: pa.Table, leaving: npt.NDArray[np.bool_]) -> pa.Table:
    """Mark the rows whose key leaves the file, beside those that bring the deletion of their key."""
    if MOVED_AWAY in table.column_names:
        leaving = leaving | to_mask(table.column(MOVED_AWAY))
        table = table.drop_columns([MOVED_AWAY])
    return table.append_column(MOVED_AWAY, from_numpy(leaving))


def route(batch: KeyedBatch, assigned: Assigned) -> pa.Table:
    """Return an assignment's rows with their record keys, the way the workers take them."""
    table = pick_rows(batch, assigned.rows)
    if assigned.leaving is not None:
        table = _with_leaving(table, assigned.leaving)
    if assigned.positions is not None:
        table = table.append_column(POSITION, from_numpy(assigned.positions))
    stored = pa.table({}) if assigned.stored is None else assigned.stored
    for name in stored.column_names:
        index = table.schema.get_field_index(name)
        table = (
            table.append_column(name, stored.column(name))
            if index < 0
            else table.set_column(index, name, stored.column(name))
        )
    return table


def plan_bundles(assigned: Sequence[Assigned], limits: BundleLimits) -> list[Bundle]:
    """Return the bundles in which files are written; each file is in one of them.

    Args:
        assigned: the files to write, and the positions of their rows.
        limits: what bounds a bundle.
    """
    by_form: dict[object, list[int]] = {}
    for position, each in enumerate(assigned):
        by_form.setdefault(_form_of(each, limits) or position, []).append(position)
    return [
        Bundle(tuple(position for position, _ in some), tuple(each for _, each in some))
        for positions in by_form.values()
        for some in _cut([(position, assigned[position]) for position in positions], limits)
    ]


def _form_of(each: Assigned, limits: BundleLimits) -> object:
    """Return what files have in common that may be written together; None: a file is written alone."""
    file, rows = each.assignment, len(each.rows)
    if file.log is not None:
        return ("log", None if each.stored is None else each.stored.schema) if rows <= limits.log_rows else None
    if each.leaving is not None or each.stored is not None:
        return None
    if file.base is None:
        return ("new",) if limits.joins_new and 0 < rows <= MOST_NEW_ROWS else None
    joins = limits.joins_rewrites and file.match_keys and file.base.size <= _SMALL_BASE_BYTES
    return ("rewrite",) if joins else None


def _cut(files: Sequence[tuple[int, Assigned]], limits: BundleLimits) -> list[list[tuple[int, Assigned]]]:
    """Return files of one form in bundles, in their order."""
    first = files[0][1].assignment
    most_files, most_weight = files_at_a_time(len(files), limits.threads), limits.log_rows
    if first.log is None:
        most_weight = _BUNDLE_BYTES
        if first.base is not None:
            share = -(-len(files) // (limits.threads * _BUNDLES_OF_A_THREAD))
            most_files = min(_MOST_FILES, max(FEWEST_FILES, share)) if len(files) >= FEWEST_FILES else 1
    bundles: list[list[tuple[int, Assigned]]] = []
    weight = 0
    for position, each in files:
        added = _weight_of(each)
        weight += added
        if not bundles or weight > most_weight or len(bundles[-1]) >= most_files:
            bundles.append([])
            weight = added
        bundles[-1].append((position, each))
    return bundles


def _weight_of(each: Assigned) -> int:
    """Return the rows of a log, or the bytes of a base file that is read; new files are bounded by their number."""
    if each.assignment.log is not None:
        return len(each.rows)
    return 0 if each.assignment.base is None else each.assignment.base.size


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
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(error_type, error, trace)

    @contextmanager
    def file(self, assignment: FileAssignment) -> Iterator[FileInProgress]:
        """Give a file that takes its rows within this context.

        Args:
            assignment: the file.

        Raises:
            StorageError: the store failed.
        """
        if self._batch is None:
            with ExitStack() as stack:
                file = FileInProgress(self._bound, assignment, stack)
                yield file
                self._statuses.append(file.finish())
            return
        file = FileInProgress(self._bound, assignment, self._stack)
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


def can_be_written_together(bound: BoundContext) -> bool:
    """Return whether new files of a write store every column, and so can be written together."""
    return bound.virtual_columns is None


def files_at_a_time(files: int, threads: int) -> int:
    """Return how many of some small files are written together, so that each thread has its share.

    Example:
        >>> [files_at_a_time(files, 2) for files in (10, 30, 2500)]
        [5, 15, 64]
    """
    return max(1, min(_MOST_FILES, -(-files // threads)))


def write_small_files(
    bound: BoundContext,
    assignments: Sequence[FileAssignment],
    counts: Sequence[int],
    rows: pa.Table,
    *,
    announced: bool | None,
) -> list[WriteStatus]:
    """Write new base files of few rows, or adopt those that an earlier attempt wrote.

    Args:
        bound: the write.
        assignments: the files, none with a base.
        counts: how many of the rows are each one's.
        rows: routed rows with their record keys, one file's behind the other's.
        announced: what :class:`~lakefmt._core.write.context.Announcements` said of the write's files.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    firsts = [prepare(bound, assignment, announced=announced) for assignment in assignments]
    parts = _parts(rows, counts)
    is_repeated = not all(firsts) and any(adopt(bound, assignment) is not None for assignment in assignments)
    if is_repeated or _is_more_than_a_row_group(rows) or routed_deletes(bound, rows).any():
        return _write_one_by_one(bound, assignments, parts, announced)
    blooms = bloom_filters_of_parts(bound, parts)
    complete = with_meta_of(bound.instant, assignments, counts, rows, bound.file_schema)
    traits, ranges = column_traits(complete, max(counts)), key_ranges(complete.column(RECORD_KEY), counts)
    with FileBundle(bound) as bundle:
        for assignment, part, bloom, ends in zip(assignments, _parts(complete, counts), blooms, ranges, strict=True):
            with bundle.file(assignment) as file:
                rows_in, keys = part.num_rows, part.column(RECORD_KEY)
                file.fill(part, RowFacts(rows_in, {"inserts": rows_in}, keys, ends, bloom), traits=traits)
        return bundle.put()


def _parts(rows: pa.Table, counts: Sequence[int]) -> list[pa.Table]:
    """Return the rows of each file."""
    return [rows.slice(first, count) for first, count in zip(accumulate(counts, initial=0), counts, strict=False)]


def _is_more_than_a_row_group(rows: pa.Table) -> bool:
    """Tell whether all rows together take more than a row group, so that one file alone may."""
    # Whole buffers know their size; slices are counted one by one.
    return bool(rows.get_total_buffer_size() > row_group_bytes() and rows.nbytes > row_group_bytes())


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
        announced: what :class:`~lakefmt._core.write.context.Announcements` said of the write's files.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    firsts = [prepare(bound, assignment, announced=announced) for assignment in assignments]
    if not all(firsts) and any(adopt(bound, assignment) is not None for assignment in assignments):
        return _write_one_by_one(bound, assignments, _parts(rows, counts), announced)
    stored_schema = bound.file_schema.remove(bound.file_schema.get_field_index(FILE_NAME))
    reader = BaseFileReader(bound.store)
    bases = [_read_base(reader, assignment, stored_schema, footer_of) for assignment in assignments]
    base_rows = [base.rows.num_rows for base in bases]
    stored = joined_in_schema([base.rows for base in bases], stored_schema)
    merged = _merge_bases(bound, assignments, counts, rows, stored, base_rows)
    if merged is None:
        return _write_one_by_one(bound, assignments, _parts(rows, counts), announced)
    parts, traits = merged
    footers = [base.footer for base in bases]
    filters, new_ends = grown_filters(bound, footers, parts), _ends_of_new_keys(parts)

    with FileBundle(bound) as bundle:
        for assignment, part, count, footer, bloom, ends in zip(
            assignments, parts, counts, footers, filters, new_ends, strict=True
        ):
            with bundle.file(assignment) as file:
                facts = merge_facts(file, part, part.table.column(RECORD_KEY), count, footer, bloom, ends)
                file.fill(part.table, facts, traits=traits)
        return bundle.put()


def _ends_of_new_keys(parts: Sequence[Merged]) -> list[tuple[str, str] | None]:
    """Return the range of each file's new keys, None where it gets none."""
    growing = [part for part in parts if part.inserted]
    if not growing:
        return [None] * len(parts)
    keys = pa.chunked_array([chunk for part in growing for chunk in part.inserted_keys.chunks], pa.string())
    ranges = iter(key_ranges(keys, [part.inserted for part in growing]))
    return [next(ranges) if part.inserted else None for part in parts]


def _write_one_by_one(
    bound: BoundContext, assignments: Sequence[FileAssignment], parts: Sequence[pa.Table], announced: bool | None
) -> list[WriteStatus]:
    return [
        write_assigned(bound, assignment, [part], announced=announced)
        for assignment, part in zip(assignments, parts, strict=True)
    ]


def _read_base(
    reader: BaseFileReader,
    assignment: FileAssignment,
    stored_schema: pa.Schema,
    footer_of: Callable[[BaseFile], KnownFooter | None],
) -> _BaseToRewrite:
    base = assignment.base
    if base is None:
        raise InternalError("there is no base file to rewrite")
    stored, footer = reader.rows_and_footer(base, stored_schema.names, use_threads=False, known_footer=footer_of(base))
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
    incoming = grouped_rows(with_meta_of(bound.instant, assignments, counts, rows, bound.file_schema), counts)
    stored = grouped_rows(base, base_rows)
    if incoming is None or stored is None:
        return None
    merged = merge_into_base(stored, incoming_rows(bound, incoming, rows), rule=rule_of_rows(bound, rows))
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
