"""Split and merge the buckets of consistent hashing (effects): a replacecommit moves their rows to new file groups.

Rows keep their commit times and sequence numbers, so that increments do not return them again. Memory: the rows of the
buckets that are merged into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.base_writer import named_rows, write_base_file
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.pending_plans import groups_of_plan
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.index.bucket_ring import (
    BucketChange,
    SplittingIndex,
    plan_changes,
    resize_rules,
    ring_after,
    splits_buckets,
)
from lakefmt._core.schema import reconcile
from lakefmt._core.values import RECORD_KEY, FileId, InstantTime, PartitionPath, WriteOperation, WriteStat
from lakefmt._core.write.assign import open_file_group
from lakefmt._core.write.context import WriteRequest, WriteStatus, prepare
from lakefmt._core.write.slice_state import SliceReader
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import UnsupportedFeature

__all__ = ["ResizeResult", "resize_buckets"]


@dataclass(frozen=True, slots=True)
class ResizeResult:
    """What a resize of buckets did, or would do; prints as one line.

    Attributes:
        instant: its requested time; None: nothing was changed.
        changes: the buckets that were split and merged.
        rows: how many rows moved.
        seconds: how long it took.
    """

    instant: InstantTime | None
    changes: tuple[BucketChange, ...] = ()
    rows: int = 0
    seconds: float = 0.0

    @property
    def splits(self) -> int:
        """How many buckets were split."""
        return sum(change.is_split for change in self.changes)

    @property
    def merges(self) -> int:
        """How many buckets came out of a merge."""
        return len(self.changes) - self.splits

    def __str__(self) -> str:
        partitions = len({change.partition for change in self.changes})
        what = f"{self.splits:,} buckets split and {self.merges:,} merged in {partitions:,} partitions"
        if self.instant is None:
            return f"resize: {what}, not done"
        return f"resize {self.instant}: {what}, {self.rows:,} rows, {self.seconds:.3f} s"


def resize_buckets(
    client: TableClient,
    partitions: Sequence[PartitionPath] | None,
    options: Mapping[str, object],
    *,
    dry_run: bool = False,
) -> ResizeResult:
    """Split and merge the buckets that the settings name.

    Args:
        client: the table.
        partitions: those to look at; None: all of them.
        options: settings of the call.
        dry_run: change nothing; return the plan.

    Raises:
        UnsupportedFeature: the table has no bucket index with consistent hashing, or captures changes.
        CommitConflict: another writer changed the same buckets meanwhile.
        WriterActive: another writer is at work.
    """
    request = WriteRequest(WriteOperation.CLUSTER, options)
    if dry_run:
        planned = WriteTransaction.plan_only(client, request)
        return ResizeResult(None, tuple(_plan(planned, _index_of(planned), partitions)))
    started = perf_counter()
    transaction = WriteTransaction.begin(client, request)
    with transaction.aborted_on_error():
        index = _index_of(transaction)
        changes = _plan(transaction, index, partitions)
        if not changes:
            transaction.abort()
            return ResizeResult(None)
        by_partition: dict[PartitionPath, list[BucketChange]] = {}
        for change in changes:
            by_partition.setdefault(change.partition, []).append(change)
        for partition, of_partition in by_partition.items():
            index.rings.change(ring_after(index.rings.ring(partition), of_partition))
        # No other write may open file groups there meanwhile: it would know another ring.
        transaction.cover(index.rings.keep(transaction.context.instant))
        statuses = _move_rows(transaction, index, changes)
        result = transaction.commit(statuses, {partition: _moved(some) for partition, some in by_partition.items()})
        rows = sum(status.stat.num_writes for status in statuses)
        return ResizeResult(result.instant, tuple(changes), rows, perf_counter() - started)


def _moved(changes: Sequence[BucketChange]) -> tuple[FileId, ...]:
    return tuple(file_slice.file_id for change in changes for file_slice in change.slices)


def _index_of(transaction: WriteTransaction) -> SplittingIndex:
    index, bound = transaction.index, transaction.bound
    if not splits_buckets(index):
        raise UnsupportedFeature(
            "the table has no bucket index with consistent hashing: a fixed number of buckets changes with the rewrite of "
            "the table only; create it with hoodie.index.bucket.engine=CONSISTENT_HASHING"
        )
    if bound.cdc is not None or not bound.config.populate_meta_fields:
        raise UnsupportedFeature(
            "buckets of tables that capture changes (hoodie.table.cdc.enabled) or have no meta columns are not resized"
        )
    return index


def _plan(
    transaction: WriteTransaction, index: SplittingIndex, partitions: Sequence[PartitionPath] | None
) -> list[BucketChange]:
    client, state = transaction.client, transaction.state
    table_at = client.at(state)
    slices: dict[PartitionPath, list[FileSlice]] = {}
    for file_slice in table_at.slices(partitions):
        slices.setdefault(file_slice.partition, []).append(file_slice)
    busy = {group for pending in state.timeline.pending for group in groups_of_plan(table_at, pending)}
    rules = resize_rules(transaction.bound.settings, index.num_buckets)
    changes: list[BucketChange] = []
    for partition in sorted(slices):
        changes += plan_changes(index.ring_of(slices[partition]), slices[partition], busy, rules, client.ids.new_uuid)
    return changes


def _move_rows(
    transaction: WriteTransaction, index: SplittingIndex, changes: Sequence[BucketChange]
) -> list[WriteStatus]:
    """Write the rows of every change into the file groups of its new nodes."""
    schema = transaction.bound.file_schema
    statuses: list[WriteStatus] = []
    for change in changes:
        reader = SliceReader(transaction.client.at(transaction.state), change.slices)
        rows = pa.concat_tables([reconcile(reader.merged(file_slice), schema) for file_slice in change.slices])
        keys = rows.column(RECORD_KEY).combine_chunks().cast(pa.string())
        placed = index.rows_by_file_group(keys, change.partition)
        for file_id, numbers in placed:
            statuses.append(
                _write(transaction, change.partition, file_id, len(statuses), rows.take(from_numpy(numbers)))
            )
    return statuses


def _write(
    transaction: WriteTransaction, partition: PartitionPath, file_id: FileId, sequence: int, rows: pa.Table
) -> WriteStatus:
    """Write the first base file of a file group; the rows are complete."""
    bound = transaction.bound
    assignment = open_file_group(partition, file_id, bound.instant, sequence, rows.num_rows)
    prepare(bound, assignment)
    named = named_rows(rows, assignment.file_name)
    size = write_base_file(bound.store, assignment.path, named, bound.context.file_schema_text, bound.settings)
    stat = WriteStat(
        file_id=file_id,
        partition_path=partition,
        path=assignment.path,
        num_writes=rows.num_rows,
        num_inserts=rows.num_rows,
        total_write_bytes=size,
        file_size_in_bytes=size,
    )
    return WriteStatus(bound.instant, stat, rows.num_rows)
