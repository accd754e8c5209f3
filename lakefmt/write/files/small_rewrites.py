"""Rewrites many small base files together: their rows are read and merged as one table, and cut into files.

A rewrite of a hundred rows costs its calls, not its rows. Every file has its marker, its name and its commit entry as if it
had been written alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.data_classes import dataclass
from lakefmt.errors import InternalError
from lakefmt.filegroups.merge.base import (
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
from lakefmt.filegroups.model import BaseFile
from lakefmt.filegroups.ordering import has_order
from lakefmt.filegroups.reader import BaseFileReader, KnownFooter
from lakefmt.formats.parquet.base_file import BaseFileFooter, ColumnTraits, column_traits, key_ranges
from lakefmt.values import FILE_NAME, META_COLUMNS, WriteOperation
from lakefmt.write.assign import Assigned
from lakefmt.write.bound_context import BoundContext, prepare
from lakefmt.write.context import FileAssignment, WriteStatus
from lakefmt.write.files.base_file import adopt, write_assigned
from lakefmt.write.files.key_filters import grown_filters
from lakefmt.write.files.meta_columns import routed_deletes, with_meta_of

__all__ = ["FEWEST_FILES", "bundle_rewrites", "rewrite_together"]

#: A file of more bytes is rewritten alone; the most bytes of files, and the most files, that are rewritten together.
_SMALL_BYTES, _BUNDLE_BYTES, _MOST_FILES = 512 << 10, 4 << 20, 64
#: Fewer files are rewritten one by one.
FEWEST_FILES = 8
#: Bundles for each thread: the last ones of all threads should end together.
_BUNDLES_OF_A_THREAD = 4


def bundle_rewrites(bound: BoundContext, assigned: Sequence[Assigned]) -> list[list[int]]:
    """Return which small files are rewritten together, as numbers of `assigned`."""
    small = [number for number, each in enumerate(assigned) if _is_small(each)]
    if len(small) < FEWEST_FILES or bound.cdc is not None or bound.virtual_columns is not None:
        return []
    if not can_be_together(bound.rule, len(small)):
        return []
    most = min(_MOST_FILES, max(FEWEST_FILES, -(-len(small) // (bound.threads * _BUNDLES_OF_A_THREAD))))
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


def _is_small(each: Assigned) -> bool:
    assignment = each.assignment
    if assignment.base is None or assignment.log is not None or not assignment.match_keys:
        return False
    return assignment.base.size <= _SMALL_BYTES and each.leaving is None and each.stored is None


@dataclass(frozen=True, slots=True)
class _Base:
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
        announced: what :func:`~lakefmt.write.bound_context.announce` said of the write's files.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    firsts = [prepare(bound, assignment, announced=announced) for assignment in assignments]
    if not all(firsts) and any(adopt(bound, assignment) is not None for assignment in assignments):
        return _one_by_one(bound, assignments, counts, rows, announced)
    kept = bound.file_schema.remove(bound.file_schema.get_field_index(FILE_NAME))
    reader = BaseFileReader(bound.store)
    bases = [_read(reader, assignment, kept, footer_of) for assignment in assignments]
    base_rows = [base.rows.num_rows for base in bases]
    stored = joined_in_schema([base.rows for base in bases], kept)
    merged = _merge(bound, assignments, counts, rows, stored, base_rows)
    if merged is None:
        return _one_by_one(bound, assignments, counts, rows, announced)
    parts, traits = merged
    footers = [base.footer for base in bases]
    filters, new_ends = grown_filters(bound, footers, parts), _new_ends(parts)
    from lakefmt.write.files.file_bundle import FileBundle  # few writes have many

    with FileBundle(bound) as bundle:
        for assignment, part, count, footer, bloom, ends in zip(
            assignments, parts, counts, footers, filters, new_ends, strict=True
        ):
            with bundle.file(assignment) as file:
                file.store_merged(part, count, footer, bloom, traits, ends)
        return bundle.put()


def _new_ends(parts: Sequence[Merged]) -> list[tuple[str, str] | None]:
    """Return the range of each file's new keys, None where it gets none."""
    growing = [part for part in parts if part.inserted]
    if not growing:
        return [None] * len(parts)
    keys = pa.chunked_array([chunk for part in growing for chunk in part.inserted_keys.chunks], pa.string())
    ranges = iter(key_ranges(keys, [part.inserted for part in growing]))
    return [next(ranges) if part.inserted else None for part in parts]


def _one_by_one(
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


def _read(
    reader: BaseFileReader,
    assignment: FileAssignment,
    kept: pa.Schema,
    footer_of: Callable[[BaseFile], KnownFooter | None],
) -> _Base:
    base = assignment.base
    if base is None:
        raise InternalError("there is no base file to rewrite")
    stored, footer = reader.rows_and_footer(base, kept.names, use_threads=False, known_footer=footer_of(base))
    return _Base(stored, footer)


def _merge(
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
    return _cut(merged, bound.file_schema, assignments, counts, base_rows)


def _cut(
    merged: Merged,
    schema: pa.Schema,
    assignments: Sequence[FileAssignment],
    counts: Sequence[int],
    base_rows: Sequence[int],
) -> tuple[list[Merged], ColumnTraits]:
    """Return the part of each file, with its name in its rows, and what the rows of all have in common."""
    files = len(assignments)
    new = merged.table.column(GROUP_NUMBER).slice(merged.table.num_rows - merged.inserted).to_numpy()
    inserted = _counted(new, files)
    of_base, of_incoming = np.repeat(np.arange(files), base_rows), np.repeat(np.arange(files), counts)
    updated, deleted = _counted(of_base[merged.replaced], files), _counted(of_base[merged.removed], files)
    met, ignored = _counted(of_base[merged.met], files), _counted(of_incoming[merged.ignored], files)
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


def _counted(numbers: npt.NDArray[np.int64], files: int) -> list[int]:
    return [int(count) for count in np.bincount(numbers, minlength=files)]
