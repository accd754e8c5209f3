"""Whole writes: rows, deleted keys, deleted partitions, and the merge of small files that follows (effects)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pyarrow as pa

from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.base_writer import named_rows, row_group_bytes
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.pending_plans import groups_of_plan
from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.index import moves_between_partitions, places_new_keys
from lakefmt._core.schema import reconcile
from lakefmt._core.sorting import gather_windows
from lakefmt._core.values import RECORD_KEY, CommitResult, FileId, PartitionPath, WriteOperation
from lakefmt._core.write.assign import (
    MOST_SMALL_FILES,
    FileSizing,
    choose_files_to_merge,
    crowded_partitions,
    is_small,
    new_file,
)
from lakefmt._core.write.commit.conflict_resolution import Footprint
from lakefmt._core.write.commit.transaction import FirstSchema
from lakefmt._core.write.context import (
    APPENDING,
    OVERWRITES,
    REPLACING,
    Announcements,
    WriteRequest,
    WriteStatus,
    prepare,
)
from lakefmt._core.write.files.base_file import FileInProgress, RowFacts
from lakefmt._core.write.ingest import KeyedBatch, read_all, with_stored_keys
from lakefmt._core.write.mutations import DeleteKeys
from lakefmt._core.write.pipeline import LocatedRows, PlacedRows, check_unknown_buckets
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import LakefmtError, UnsupportedFeature

__all__ = ["commit_located", "delete_keys", "delete_partitions", "run_write", "write_stream"]


def run_write(
    client: TableClient,
    request: WriteRequest,
    schema: pa.Schema | None,
    rows: pa.Table | Iterable[pa.Table],
    based_on: TableState | None = None,
    first: FirstSchema | None = None,
) -> CommitResult | None:
    """Write rows and commit; None when there was nothing to write and nothing to remember.

    Args:
        client: the table.
        request: what is asked for.
        schema: the schema of the rows; it may widen the table's.
        rows: all rows, or a stream of tables for a bulk insert.
        based_on: the state that the rows were read from, when they were.
        first: remembers the table's schema from attempt to attempt.

    Raises:
        CommitConflict: another commit completed meanwhile that this write would undo.
    """
    transaction = WriteTransaction.begin(client, request, schema, based_on, first, waits=False)
    transaction.is_followed = True
    with transaction.aborted_on_error():
        if not isinstance(rows, pa.Table):
            return transaction.commit_unless_empty(write_stream(transaction, rows, request.sort))
        located = transaction.locate(transaction.key(rows))
    result = commit_located(transaction, request, located)
    if result is None and transaction.left_out:
        return CommitResult(None, operation=request.operation, num_late=transaction.left_out)
    return result


def commit_located(transaction: WriteTransaction, request: WriteRequest, located: LocatedRows) -> CommitResult | None:
    """Place, write and commit rows, then merge small files where there are too many; None: there was nothing to commit.

    Args:
        transaction: the write; it is followed by the merge if it says so.
        request: what was asked for.
        located: its rows.

    Raises:
        CommitConflict: another commit completed meanwhile that this write would undo.
    """
    with transaction.aborted_on_error():
        placed = transaction.place(located)
        result = transaction.commit_unless_empty(transaction.write(placed))
    crowded = _crowded_partitions(located, placed) if transaction.is_followed else frozenset[PartitionPath]()
    if result is None or result.skipped or not crowded:
        return result

    failures = _merge_small_files(transaction.client, request, crowded, located.sizing)
    return replace(result, warnings=(*result.warnings, *failures)) if failures else result


def write_stream(
    transaction: WriteTransaction, tables: Iterable[pa.Table], sort: str, *, distinct: bool = False
) -> list[WriteStatus]:
    """Key, place and write a stream of rows in bounded memory.

    A stream is cut into parts, each of which is written as a batch is, where the file of a row follows from the row. New
    files are written as their rows come, without a sort on the disk, which would double the time of a load. Other rows are
    looked up in the order of their keys, and written in the order of their file groups.

    Args:
        transaction: the write.
        tables: the rows.
        sort: the order of a bulk insert.
        distinct: no key comes twice.
    """
    # Imported here: few writes have more rows than a window.
    from lakefmt._core.write.bulk_insert import stream_files
    from lakefmt._core.write.grouped_rows import combined_rows

    bound, operation, index = transaction.bound, transaction.context.operation, transaction.index
    keyed = partial(transaction.keyed, transaction.key_spec)
    parts = _independent_parts(transaction, keyed, tables, sort)
    if parts is not None:
        return _write_parts(transaction, parts)
    new_files = operation is WriteOperation.BULK_INSERT or operation in OVERWRITES
    if not new_files or transaction.context.drop_duplicates:
        return _write_by_group(transaction, keyed, tables, fills=not new_files, distinct=distinct)
    check_unknown_buckets(transaction.table_at)
    if transaction.combines:
        memory = bound.settings.integer("lakefmt.write.window.bytes")
        tables = combined_rows(transaction.key, keyed, tables, memory, across_partitions=index.is_global)
    spec, sizing = transaction.key_spec, transaction.sizing
    return stream_files(transaction.client, bound, spec, bound.schema, tables, keyed, sizing, sort)


def _independent_parts(
    transaction: WriteTransaction, keyed: Callable[[pa.Table], KeyedBatch], tables: Iterable[pa.Table], sort: str
) -> Iterator[pa.Table] | None:
    """Return the rows of a stream in parts that can be written one after the other; None: it has to be sorted."""
    index, memory = transaction.index, transaction.bound.settings.integer("lakefmt.write.window.bytes")
    if transaction.keeps_order:
        if sort != "none":
            raise UnsupportedFeature(
                "the rows of a bucket of this table stay in the order in which they come: sort nothing"
            )

        return (window for window, _ in gather_windows(tables, memory))
    if places_new_keys(index):
        from lakefmt._core.write.grouped_rows import group_names, placed_parts

        replaces = transaction.context.operation in REPLACING
        names = partial(group_names, transaction.table_at, index, keyed, replaces)
        return placed_parts((keyed(table).table for table in tables), names, memory)
    if transaction.context.partial and moves_between_partitions(index):
        # Some parts of the rows would be completed from stored ones, and others not.
        return iter([read_all(transaction.bound.schema, tables)])
    return None


def _write_parts(transaction: WriteTransaction, parts: Iterator[pa.Table]) -> list[WriteStatus]:
    statuses: list[WriteStatus] = []
    announcements = Announcements(transaction.bound)
    for part in parts:
        placed = transaction.place(transaction.locate(transaction.key(part)))
        del part
        statuses += transaction.write(placed, announcements)
        del placed
    return statuses


def _write_by_group(
    transaction: WriteTransaction,
    keyed: Callable[[pa.Table], KeyedBatch],
    tables: Iterable[pa.Table],
    *,
    fills: bool,
    distinct: bool,
) -> list[WriteStatus]:
    from lakefmt._core.write.grouped_rows import GroupOptions, write_by_group

    context, index = transaction.context, transaction.index
    appends = context.operation in APPENDING and not context.drop_duplicates
    if transaction.key_spec.auto_keys:  # rows on the disk have to keep the keys that they brought
        keyed = partial(_with_brought_keys, keyed)
    how = GroupOptions(
        transaction.bound.settings.integer("lakefmt.write.window.bytes"),
        looks_up=(transaction.combines or not appends) and not distinct,
        across_partitions=index.is_global,
        appends=context.operation in APPENDING,
        fills=fills,
        unique=transaction.combines or distinct,
    )
    statuses, partitions, footprint = write_by_group(transaction, keyed, tables, how)
    if not appends:
        # The keys are too many to be held: no other write may have changed anything where they are.
        footprint += Footprint(covers=None if index.is_global else partitions)
    transaction.rely_on(footprint)
    return statuses


def _with_brought_keys(keyed: Callable[[pa.Table], KeyedBatch], table: pa.Table) -> KeyedBatch:
    batch = keyed(table)
    return replace(batch, table=with_stored_keys(batch))


def _crowded_partitions(located: LocatedRows, placed: PlacedRows) -> frozenset[PartitionPath]:
    """Return the partitions that have too many small files after a write."""
    sizing = located.sizing
    opened = [each.assignment.partition for each in placed.assigned if each.assignment.opens_file_group]
    if not sizing.tiered or not sizing.small_bytes or not opened:
        return frozenset()
    small = (each.partition for each in located.slices if is_small(each, sizing.small_bytes))
    return crowded_partitions(small, opened, MOST_SMALL_FILES)


def delete_keys(
    client: TableClient, request: WriteRequest, keys: DeleteKeys, based_on: TableState | None
) -> CommitResult | None:
    """Delete keys and commit; None when the table has none of them."""
    transaction = WriteTransaction.begin(client, request, None, based_on, waits=False)
    with transaction.aborted_on_error():
        located = transaction.locate_deletes(keys)
        placed = transaction.place(located)
        statuses = transaction.write(placed)
        return transaction.commit_unless_empty(statuses)


def delete_partitions(
    client: TableClient, request: WriteRequest, partitions: Sequence[PartitionPath]
) -> CommitResult | None:
    """Hide every file group of the partitions and commit; None when there was none."""
    transaction = WriteTransaction.begin(client, request)
    with transaction.aborted_on_error():
        replaced = transaction.cover(partitions)
        if not replaced and not request.commit_metadata:
            transaction.abort()
            return None
        return transaction.commit([], replaced)


def _merge_small_files(
    client: TableClient,
    request: WriteRequest,
    partitions: Collection[PartitionPath],
    sizing: FileSizing,
) -> tuple[str, ...]:
    """Merge small files of partitions that have too many; return one sentence if that failed.

    A replacecommit of Hudi's operation CLUSTER. Rows keep their commit times and sequence numbers, so that increments do not
    return them again. Memory: a row group or two, and the keys of the files that become one.

    Args:
        client: the table.
        request: the write that it follows.
        partitions: those to look at.
        sizing: how large files should be.
    """
    try:
        transaction = WriteTransaction.begin(client, WriteRequest(WriteOperation.CLUSTER, request.options))
        _replace_small_files(transaction, sorted(partitions), sizing)
    except LakefmtError as error:
        return (f"small files were not merged after the commit: {error}",)
    return ()


def _replace_small_files(
    transaction: WriteTransaction, partitions: Sequence[PartitionPath], sizing: FileSizing
) -> None:
    with transaction.aborted_on_error():
        merges = _plan_merges(transaction, partitions, sizing)
        if not merges:
            transaction.abort()
            return
        statuses = [_write_merged(transaction, sequence, slices) for sequence, slices in enumerate(merges)]
        replaced: dict[PartitionPath, tuple[FileId, ...]] = {
            slices[0].partition: tuple(each.file_id for each in slices) for slices in merges
        }
        transaction.commit(statuses, replaced)


def _plan_merges(
    transaction: WriteTransaction, partitions: Sequence[PartitionPath], sizing: FileSizing
) -> list[list[FileSlice]]:
    """Return the file slices that become one file, for each partition with too many."""
    client, state = transaction.client, transaction.state
    table_at = client.at(state)
    busy = {group for pending in state.timeline.pending for group in groups_of_plan(table_at, pending)}
    small: dict[PartitionPath, list[FileSlice]] = {}
    for each in table_at.slices(partitions):
        if is_small(each, sizing.small_bytes) and (each.partition, each.file_id) not in busy:
            small.setdefault(each.partition, []).append(each)
    merges = []
    for slices in small.values():
        sizes = [each.base.size if each.base is not None else 0 for each in slices]
        numbers = choose_files_to_merge(sizes, sizing.max_bytes, MOST_SMALL_FILES)
        # Rows stay in the order in which they came.
        merges.append(sorted((slices[number] for number in numbers), key=lambda each: (each.instant, each.file_id)))
    return [slices for slices in merges if slices]


def _write_merged(transaction: WriteTransaction, sequence: int, slices: Sequence[FileSlice]) -> WriteStatus:
    """Write the rows of some base files into a new file group, a row group at a time."""
    bound, bases = transaction.bound, [each.base for each in slices if each.base is not None]
    reader = BaseFileReader(bound.store, transaction.table_at.virtual_columns())
    count = sum(reader.footer(base).num_rows for base in bases)
    new_uuid = transaction.client.ids.new_uuid
    assignment = new_file(slices[0].partition, bound.instant, sequence, new_uuid, rows=count)
    prepare(bound, assignment)
    with ExitStack() as stack:
        file = FileInProgress(bound, assignment, stack)
        groups = (reconcile(rows, file.schema) for base in bases for rows in reader.row_groups(base, file.schema.names))
        for rows, _ in gather_windows(groups, row_group_bytes()):
            named = named_rows(rows, assignment.file_name)
            file.fill(named, RowFacts(named.num_rows, {"inserts": named.num_rows}, named.column(RECORD_KEY)))
            del rows, named
        return file.finish()
