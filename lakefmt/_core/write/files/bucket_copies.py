"""Rows for buckets that a pending clustering splits or merges: they go to the new buckets, too (docs/index.md, Consistent hashing).

As Hudi's SparkConsistentBucketDuplicateUpdateStrategy. A copy is a log of the new file group that is named by the clustering:
readers do not see it before the clustering completes, and then it lies on top of the rows that were moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.index import Index, IndexKeys
from lakefmt._core.index.bucket_ring import SplittingIndex, splits_buckets
from lakefmt._core.index.bucket_ring_files import DecidedRings, WaitingMove, waiting_moves
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt._core.write.assign import Assigned
from lakefmt._core.write.commit.conflict_resolution import UpdateStrategy, update_strategy
from lakefmt._core.write.commit.transaction import PendingWrite
from lakefmt._core.write.context import FileAssignment, LogTarget
from lakefmt._core.write.files.bundles import joined
from lakefmt._core.write.ingest import KeyedBatch, record_keys

__all__ = ["BucketCopies", "SharedBuckets", "copies_of_write", "share_buckets"]

Group = tuple[PartitionPath, FileId]


@dataclass(frozen=True, slots=True)
class SharedBuckets:
    """What one process decides of the buckets of consistent hashing for the others of its write.

    A second attempt at a file must find the same copies as the first, and not take that one's for those of an earlier
    write: so the versions are among it.

    Attributes:
        rings: the instant of each partition's ring.
        moves: what pending clusterings do to the buckets of these partitions, where rows are to go to both.
        versions: the largest version of the copies of earlier writes, by new file group.
    """

    rings: Mapping[PartitionPath, str]
    moves: Mapping[PartitionPath, WaitingMove] = field(default_factory=dict)
    versions: Mapping[Group, int] = field(default_factory=dict)

    def index_for(self, index: Index, store: Callable[[], ObjectStore]) -> Index:
        """Return the index by which other processes place rows; it pickles if `store` does.

        Args:
            index: that of the write.
            store: opens the table's store.
        """
        return index.with_rings(DecidedRings(store, self.rings)) if splits_buckets(index) else index

    def applied(self, write: PendingWrite, index: Index) -> tuple[Index, BucketCopies]:
        """Return the index, and what makes the copies, of a write to these buckets in another process."""
        client = write.write_client.client
        index = self.index_for(index, lambda: client.store)
        return index, BucketCopies(client.at(write.state), index, self.moves, write.context.instant, self.versions)

    def numbers(self, index: SplittingIndex, index_keys: IndexKeys) -> npt.NDArray[np.int64]:
        """Return a number for each key of a partition: equal ones where rows go to one file group, copies included."""
        return index.node_numbers(index_keys, {partition: move.ring for partition, move in self.moves.items()})


class BucketCopies:
    """Makes the copies of one write.

    Args:
        table_at: the table, at one moment.
        index: places keys by the rings of the write.
        moves: what pending clusterings do to the buckets of each partition.
        instant: the write's.
        versions: the largest version of the copies that are there, where another process has looked; None: look here.
    """

    def __init__(
        self,
        table_at: TableAt,
        index: Index,
        moves: Mapping[PartitionPath, WaitingMove],
        instant: InstantTime,
        versions: Mapping[Group, int] | None = None,
    ) -> None:
        self._client = table_at.client
        self._state = table_at.state
        self._index = index
        self._moves = moves
        self._instant = instant
        self._versions: dict[Group, int] = dict(versions or {})
        self._listed: set[PartitionPath] = set() if versions is None else set(moves)
        #: The file groups of pending clusterings whose new rows are in their new buckets, too.
        self.copied: set[Group] = set()

    def of(self, batch: KeyedBatch, assigned: Sequence[Assigned]) -> list[Assigned]:
        """Return the logs for the new buckets.

        Args:
            batch: the rows.
            assigned: the files that they go to anyway.

        Raises:
            CorruptFile: a plan or a ring is damaged.
        """
        parts: dict[Group, list[Assigned]] = {}
        for each in assigned:
            partition, file_id = each.assignment.partition, each.assignment.file_id
            move = self._moves.get(partition)
            is_moved = move is not None and file_id in move.sources and each.assignment.log is not None
            if move is None or not is_moved or not splits_buckets(self._index):
                continue
            self.copied.add((partition, file_id))
            keys = record_keys(batch).take(from_numpy(each.rows))
            for new_id, numbers in self._index.rows_by_node(keys, move.ring):
                part = replace(
                    each,
                    rows=each.rows[numbers],
                    leaving=None if each.leaving is None else each.leaving[numbers],
                    stored=None if each.stored is None else each.stored.take(from_numpy(numbers)),
                    positions=None,  # the file that the clustering writes is not there yet
                )
                parts.setdefault((partition, new_id), []).append(part)
        self._list(sorted({partition for partition, _ in parts}))
        return [
            self._copy(self._moves[group[0]].time, group, joined(some), len(assigned) + number)
            for number, (group, some) in enumerate(parts.items())
        ]

    def _copy(self, time: InstantTime, group: Group, rows: Assigned, sequence: int) -> Assigned:
        version = self._versions[group] = self._versions.get(group, 0) + 1
        # As in version 6, the last part of the token keeps two writers' logs apart.
        name = f".{group[1]}_{time}.log.{version}_{sequence}-0-{int(self._instant[-9:])}"
        target = LogTarget(time if self._state.timeline.layout == 1 else self._instant, version)
        brings = rows.assignment.may_bring_keys
        file = FileAssignment(*group, name, None, True, len(rows.rows), sequence, log=target, may_bring_keys=brings)
        return replace(rows, assignment=replace(file, is_copy=True))

    def shared(self, rings: Mapping[PartitionPath, str]) -> SharedBuckets:
        """Return what other processes need to write to the buckets of some partitions.

        Args:
            rings: the instant of each partition's ring.
        """
        moves = {partition: move for partition, move in self._moves.items() if partition in rings}
        self._list(sorted(moves))
        versions = {group: version for group, version in self._versions.items() if group[0] in moves}
        return SharedBuckets(rings, moves, versions)

    def _list(self, partitions: Sequence[PartitionPath]) -> None:
        """Look which copies of earlier writes are there: later ones have larger versions, because readers go by them."""
        new_partitions = [partition for partition in partitions if partition not in self._listed]
        if not new_partitions:
            return
        self._listed.update(new_partitions)
        for log in self._client.storage_listing(self._state.config).files(new_partitions)[1]:
            move = self._moves.get(log.partition)
            if move is not None and log.instant == move.time:
                group = log.partition, log.file_id
                self._versions[group] = max(log.version, self._versions.get(group, 0))


def copies_of_write(write: PendingWrite, index: Index) -> BucketCopies:
    """Return what makes the copies of a write: none where its settings or its index do not ask for them.

    Raises:
        UnknownSetting: the settings name no strategy.
        CorruptFile: a plan or a ring is damaged.
    """
    client, moves = write.write_client.client, dict[PartitionPath, WaitingMove]()
    makes_copies = update_strategy(write.write_client.settings) is UpdateStrategy.DUPLICATE
    if makes_copies and splits_buckets(index):
        moves = waiting_moves(client.at(write.state), index.rings)
    return BucketCopies(client.at(write.state), index, moves, write.context.instant)


def share_buckets(
    write: PendingWrite, index: Index, partitions: Collection[PartitionPath]
) -> tuple[SharedBuckets | None, Sequence[PartitionPath]]:
    """Decide on the buckets of partitions for the other processes of a write.

    Args:
        write: the write, whose instant is inflight.
        index: its index.
        partitions: those that its rows are for.

    Returns:
        What they need, and the partitions whose ring was another one before.

    Raises:
        CommitConflict: another writer has begun the same partition with another ring.
        CorruptFile: a ring, or a plan that changes one, is damaged.
    """
    if not splits_buckets(index):
        return None, ()
    decided, changed = index.rings.decide(partitions, write.context.instant)
    if not write.state.timeline.pending_clusterings:
        return SharedBuckets(decided), changed
    return copies_of_write(write, index).shared(decided), changed
