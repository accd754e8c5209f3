"""Merge small base files of a partition into one (effects): a replacecommit of Hudi's operation CLUSTER.

It follows a write that opened more files than a partition is to have. Rows keep their commit times and sequence numbers, so
that increments do not return them again. Memory: the rows of the files that become one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt.errors import LakefmtError
from lakefmt.filegroups.base_writer import named_rows, write_base_file
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.pending_plans import groups_of_plan
from lakefmt.filegroups.table_client import TableClient
from lakefmt.schema import reconcile
from lakefmt.values import FileId, PartitionPath, WriteOperation, WriteStat
from lakefmt.write._slice_state import SliceReader
from lakefmt.write.assign import MOST_SMALL_FILES, FileSizing, is_small, new_file
from lakefmt.write.bound_context import prepare
from lakefmt.write.context import WriteRequest, WriteStatus
from lakefmt.write.small_files import choose_files_to_merge

if TYPE_CHECKING:
    from lakefmt.write.transaction import WriteTransaction

    _Begin = Callable[[TableClient, WriteRequest], WriteTransaction]

__all__ = ["merge_small_files"]


def merge_small_files(
    begin: _Begin,
    client: TableClient,
    request: WriteRequest,
    partitions: Collection[PartitionPath],
    sizing: FileSizing,
) -> tuple[str, ...]:
    """Merge small files of partitions that have too many; return one sentence if that failed.

    Args:
        begin: begins a write.
        client: the table.
        request: the write that it follows.
        partitions: those to look at.
        sizing: how large files should be.
    """
    try:
        transaction = begin(client, WriteRequest(WriteOperation.CLUSTER, request.options))
        _merge(transaction, sorted(partitions), sizing)
    except LakefmtError as error:
        return (f"small files were not merged after the commit: {error}",)
    return ()


def _merge(transaction: WriteTransaction, partitions: Sequence[PartitionPath], sizing: FileSizing) -> None:
    with transaction.aborted_on_error():
        merges = _plan(transaction, partitions, sizing)
        if not merges:
            transaction.abort()
            return
        statuses = [_write(transaction, sequence, slices) for sequence, slices in enumerate(merges)]
        replaced: dict[PartitionPath, tuple[FileId, ...]] = {
            slices[0].partition: tuple(each.file_id for each in slices) for slices in merges
        }
        transaction.commit(statuses, replaced)


def _plan(
    transaction: WriteTransaction, partitions: Sequence[PartitionPath], sizing: FileSizing
) -> list[list[FileSlice]]:
    """Return the file slices that become one file, for each partition with too many."""
    client, state = transaction.client, transaction.state
    busy = {group for pending in state.timeline.pending for group in groups_of_plan(client, state, pending)}
    small: dict[PartitionPath, list[FileSlice]] = {}
    for each in client.slices(state, partitions):
        if is_small(each, sizing.small_bytes) and (each.partition, each.file_id) not in busy:
            small.setdefault(each.partition, []).append(each)
    merges = []
    for slices in small.values():
        sizes = [each.base.size if each.base is not None else 0 for each in slices]
        numbers = choose_files_to_merge(sizes, sizing.max_bytes, MOST_SMALL_FILES)
        # Rows stay in the order in which they came.
        merges.append(sorted((slices[number] for number in numbers), key=lambda each: (each.instant, each.file_id)))
    return [slices for slices in merges if slices]


def _write(transaction: WriteTransaction, sequence: int, slices: Sequence[FileSlice]) -> WriteStatus:
    """Write the rows of some file slices into a new file group."""
    bound = transaction.bound
    reader = SliceReader(transaction.client, transaction.state, slices)
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
