"""Whole writes: rows, deleted keys, deleted partitions, and the merge of small files that follows (effects)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.base_writer import named_rows, write_base_file
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.pending_plans import groups_of_plan
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.schema import reconcile
from lakefmt._core.values import IS_DELETED, CommitResult, FileId, PartitionPath, WriteOperation, WriteStat
from lakefmt._core.write._slice_state import SliceReader
from lakefmt._core.write.assign import (
    MOST_SMALL_FILES,
    FileSizing,
    choose_files_to_merge,
    is_small,
    new_file,
)
from lakefmt._core.write.bound_context import prepare
from lakefmt._core.write.commit.transaction import (
    FirstSchema,
)
from lakefmt._core.write.context import (
    WriteRequest,
    WriteStatus,
)
from lakefmt._core.write.mutations import DeleteKeys
from lakefmt._core.write.pipeline import LocatedRows
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import (
    LakefmtError,
)

__all__ = ["delete_keys", "delete_partitions", "run_write"]


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
            return transaction.commit_unless_empty(transaction.write_stream(rows, request.sort))
        keyed = transaction.key(rows)
        located = transaction.locate(keyed)
        placed = transaction.place(located)
        statuses = transaction.write(placed)
        result = _with_late_rows(transaction.commit_unless_empty(statuses), transaction, located)
    crowded = transaction.crowded(located, placed)
    if result is None or result.skipped or not crowded:
        return result

    failures = _merge_small_files(client, request, crowded, located.sizing)
    return replace(result, warnings=(*result.warnings, *failures)) if failures else result


def _with_late_rows(
    result: CommitResult | None, transaction: WriteTransaction, located: LocatedRows
) -> CommitResult | None:
    """Return the result with the number of rows that lost to stored ones, where the counts of the commit tell it."""
    if result is None or result.operation is not WriteOperation.UPSERT or result.num_deletes or result.skipped:
        return result
    # In logs rows lose when they are merged; marks of deletion are in no count where nothing was stored.
    ordered = transaction.state.config.ordering_fields and transaction.combines and located.logs is None
    if not ordered or IS_DELETED in located.batch.table.schema.names:
        return result
    return replace(result, num_late=max(0, located.batch.num_rows - result.num_inserts - result.num_updates))


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
    return them again. Memory: the rows of the files that become one.

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
    """Write the rows of some file slices into a new file group."""
    bound = transaction.bound
    reader = SliceReader(transaction.client.at(transaction.state), slices)
    rows = pa.concat_tables([reconcile(reader.merged(each), bound.file_schema) for each in slices])
    assignment = new_file(
        slices[0].partition, bound.instant, sequence, transaction.client.ids.new_uuid, rows=rows.num_rows
    )
    prepare(bound, assignment)
    named = named_rows(rows, assignment.file_name)
    size = write_base_file(bound.store, assignment.path, named, bound.context.file_schema_text, bound.settings)
    stat = WriteStat(
        file_id=assignment.file_id,
        partition_path=assignment.partition,
        path=assignment.path,
        num_writes=rows.num_rows,
        num_inserts=rows.num_rows,
        total_write_bytes=size,
        file_size_in_bytes=size,
    )
    return WriteStatus(bound.instant, stat, rows.num_rows)
