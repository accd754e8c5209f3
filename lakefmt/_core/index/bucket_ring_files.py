"""Read and write the rings of a table's partitions in its files, and tell how pending clusterings will change them (effects).

A ring counts when the instant that brings it has completed. Engines leave an empty file ``<instant>.commit`` beside it, so
that this is known when the instant has left the timeline (docs/format.md, Bucket index).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.pending_plans import PlannedMove, moves_of_plan
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.names import ring_directory, ring_files
from lakefmt._core.index.bucket_ring import (
    FIRST_RING,
    HashRing,
    Rings,
    decode_node_change,
    decode_ring,
    encode_ring,
    first_ring,
    ring_with,
)
from lakefmt._core.storage.api import ObjectStore, PutOutcome
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.timeline.instant import Instant
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import CommitConflict, CorruptFile, InternalError, InvalidInputError, StorageError

__all__ = [
    "DecidedRings",
    "RingFiles",
    "WaitingMove",
    "mark_ring",
    "newest_ring",
    "waiting_moves",
]

_RING_NAME: Final = re.compile(r"([0-9]{14,17})\.hashing_meta", re.ASCII)
_MARK_NAME: Final = re.compile(r"([0-9]{14,17})\.commit", re.ASCII)
_MAX_RING_BYTES: Final = 32 << 20

Decided = tuple[dict[PartitionPath, str], list[PartitionPath]]


def mark_ring(store: ObjectStore, partition: PartitionPath, instant: str) -> None:
    """Say beside a ring that its instant has completed."""
    store.put_if_absent(f"{ring_directory(partition)}/{instant}.commit", b"")


def newest_ring(
    rings: Collection[str], marks: Collection[str], timeline: Timeline, has_files: Callable[[str], bool]
) -> str | None:
    """Return the instant whose ring counts; None: there is none.

    An instant that has left the timeline may have been rolled back before it did: it counts when it is marked, or when file
    groups of its ring are stored.

    Args:
        rings: the instants of the rings that are kept.
        marks: those of them that are marked as completed.
        timeline: the table's.
        has_files: whether a file group of an instant's ring is stored in the partition.
    """
    for instant in sorted(rings, reverse=True):
        if instant == FIRST_RING:
            return instant
        if not timeline.is_committed(InstantTime(instant)):
            continue
        first = timeline.first_active
        if first is None or instant >= first or instant in marks or has_files(instant):
            return instant
    return None


class RingFiles:
    """The rings by which one write places its rows.

    Args:
        table_at: the table, at one moment.
        num_buckets: nodes of the ring of a new partition.
    """

    def __init__(self, table_at: TableAt, num_buckets: int) -> None:
        self._client = table_at.client
        self._state = table_at.state
        self._num_buckets = num_buckets
        self._rings: dict[PartitionPath, HashRing] = {}
        self._stored: dict[PartitionPath, HashRing | None] = {}
        self._read_ahead: dict[PartitionPath, HashRing | None] = {}
        self._spent: Mapping[tuple[str, str], InstantTime] | None = None
        self._replaces = False
        self._unmarked: list[tuple[PartitionPath, str]] = []
        #: Rings whose instant is neither committed nor pending: it was undone, unless it began after this state.
        self._undone: list[tuple[PartitionPath, str]] = []

    def ring(self, partition: PartitionPath) -> HashRing:
        """Return the ring by which rows of a partition are placed; nodes whose file group is replaced have another one."""
        if partition not in self._rings:
            ahead = self._read_ahead
            stored = ahead.pop(partition) if partition in ahead else self.stored_ring(partition)
            self._stored[partition] = stored
            ring = stored or first_ring(partition, self._num_buckets)
            if self._spent is None:
                self._spent = self._client.at(self._state).replaced()
            spent = {file_id for path, file_id in self._spent if path == partition}
            if self._replaces:
                spent |= {node.file_id for node in ring.nodes}
            if any(node.file_id in spent for node in ring.nodes):
                ring = ring.renewed("", spent)
            self._rings[partition] = ring
        return self._rings[partition]

    def decide(self, partitions: Collection[PartitionPath], instant: InstantTime) -> Decided:
        """Store the rings of partitions that other processes are to place rows by; slow stores are asked for many at once.

        Returns:
            The instant of each partition's ring, and the partitions whose ring was another one before.

        Raises:
            CommitConflict: another writer has begun the same partition with another ring.
            CorruptFile: a ring is damaged.
        """
        new = [partition for partition in sorted(partitions) if partition not in self._rings]
        rings = map_concurrently(self._client.store, [partial(self.stored_ring, partition) for partition in new])
        self._read_ahead.update(zip(new, rings, strict=True))
        for partition in new:
            self.ring(partition)
        changed = self.keep(instant)
        return {partition: self._rings[partition].instant for partition in partitions}, changed

    def stored_ring(self, partition: PartitionPath) -> HashRing | None:
        """Return the ring of a partition that counts; None: it has none.

        Raises:
            CorruptFile: it is damaged.
            UnsupportedFeature: it is of a later version.
        """
        directory = ring_directory(partition)
        names = [info.name.rpartition("/")[2] for info in self._client.store.list(directory, recursive=False)]
        rings = {match[1] for match in map(_RING_NAME.fullmatch, names) if match}
        marks = {match[1] for match in map(_MARK_NAME.fullmatch, names) if match}

        def has_files(instant: str) -> bool:
            ids = {node.file_id for node in _read_ring(self._client.store, partition, instant).nodes}
            return any(file_slice.file_id in ids for file_slice in self._client.at(self._state).slices([partition]))

        timeline = self._state.timeline
        instant = newest_ring(rings, marks, timeline, has_files)
        self._undone += [
            (partition, ring)
            for ring in rings - {FIRST_RING} - timeline.pending_times
            if not timeline.is_committed(InstantTime(ring))
        ]
        if instant is None:
            return None
        if instant not in marks and instant != FIRST_RING:
            self._unmarked.append((partition, instant))
        return _read_ring(self._client.store, partition, instant)

    def replace_all(self) -> None:
        """From now on give every node a new file group: what is stored in the partitions is replaced."""
        self._replaces = True

    def change(self, ring: HashRing) -> None:
        """Use another ring for its partition from now on."""
        self.ring(ring.partition)
        self._rings[ring.partition] = ring

    def keep(self, instant: InstantTime) -> list[PartitionPath]:
        """Store the rings that were made, before the first file that relies on them is written.

        Returns:
            The partitions whose ring was another one before.

        Raises:
            CommitConflict: another writer has begun the same partition with another ring.
        """
        changed: list[PartitionPath] = []
        for partition, earlier in self._unmarked:
            mark_ring(self._client.store, partition, earlier)
        self._unmarked.clear()
        # Releases before 1.1 believe the mark, whatever became of the instant.
        undone = [ring_files(path, ring) for path, ring in self._undone if ring < instant]
        self._undone.clear()
        for names in zip(*undone, strict=True):
            self._client.store.delete(names)
        made = {partition: ring for partition, ring in self._rings.items() if ring != self._stored[partition]}
        for partition, ring in made.items():
            if ring.instant != FIRST_RING:
                made[partition] = replace(ring, instant=instant)
                changed.append(partition)
        map_concurrently(self._client.store, [partial(self._put, *each) for each in made.items()])
        self._rings |= made
        self._stored |= made
        return changed

    def _put(self, partition: PartitionPath, ring: HashRing) -> None:
        name = f"{ring_directory(partition)}/{ring.instant}.hashing_meta"
        outcome = put_if_absent_confirmed(self._client.store, name, encode_ring(ring), durable=True)
        is_taken = outcome is PutOutcome.REFUSED
        if is_taken and _read_ring(self._client.store, ring.partition, ring.instant).nodes != ring.nodes:
            raise CommitConflict(
                f"another writer began partition {partition!r} with another number of buckets; the next attempt uses its ring"
            )

    def mark_completed(self, instant: InstantTime) -> None:
        """Mark the rings of an instant that has completed; when the store fails, the next writer does."""
        for partition, ring in self._rings.items():
            if ring.instant == instant:
                with suppress(StorageError):
                    mark_ring(self._client.store, partition, instant)


class DecidedRings:
    """The rings that one process has decided on and stored (:meth:`RingFiles.decide`), as another one reads them.

    Which ring of a partition counts is not asked again: all tasks of a write place rows by the same one.

    Args:
        open_store: opens the table's store when the first ring is asked for.
        instants: the instant of each partition's ring.
    """

    def __init__(self, open_store: Callable[[], ObjectStore], instants: Mapping[PartitionPath, str]) -> None:
        self._open_store = open_store
        self._instants = instants
        self._store: ObjectStore | None = None
        self._rings: dict[PartitionPath, HashRing] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return DecidedRings, (self._open_store, self._instants)

    def ring(self, partition: PartitionPath) -> HashRing:
        """Return the ring of a partition.

        Raises:
            InvalidInputError: the partition was not there when the rows were counted.
            CorruptFile: the ring is damaged.
        """
        if partition not in self._instants:
            raise InvalidInputError(
                f"no row of partition {partition!r} was counted and some came to a task: the input of this write is not "
                "repeatable; store it first (a checkpoint, a table), then write it"
            )
        if partition not in self._rings:
            self._store = self._store or self._open_store()
            self._rings[partition] = _read_ring(self._store, partition, self._instants[partition])
        return self._rings[partition]

    def decide(self, partitions: Collection[PartitionPath], instant: InstantTime) -> Decided:
        """Return the rings of partitions as they were decided."""
        return {partition: self._instants[partition] for partition in partitions}, []

    def replace_all(self) -> None:
        """Do nothing: file groups that are replaced have others in these rings."""

    def change(self, ring: HashRing) -> None:
        """Refuse."""
        raise InternalError(f"partition {ring.partition!r}: a task changes no ring")

    def keep(self, instant: InstantTime) -> list[PartitionPath]:
        """Return no partition: the rings are stored."""
        return []

    def mark_completed(self, instant: InstantTime) -> None:
        """Do nothing: who commits marks the rings."""


def _read_ring(store: ObjectStore, partition: PartitionPath, instant: str) -> HashRing:
    name = f"{ring_directory(partition)}/{instant}.hashing_meta"
    ring = decode_ring(store.read(name, _MAX_RING_BYTES), partition, name)
    if ring.instant != instant:
        raise CorruptFile(f"{name} is the ring of instant {ring.instant!r:.50}")
    return ring


@dataclass(frozen=True, slots=True)
class WaitingMove:
    """How a pending clustering changes the buckets of a partition.

    Attributes:
        time: the requested time of the clustering.
        sources: the file groups whose rows move.
        ring: the partition's ring as it is afterwards.
    """

    time: InstantTime
    sources: frozenset[FileId]
    ring: HashRing


def waiting_moves(table_at: TableAt, rings: Rings) -> dict[PartitionPath, WaitingMove]:
    """Return what pending clusterings do to the buckets of each partition.

    A plan that does not fit the ring of a partition is left out: it never completes. So are two plans for one partition.

    Args:
        table_at: the table, at one moment.
        rings: tells the rings as they are.

    Raises:
        CorruptFile: a plan or a ring is damaged.
    """
    moves_by_partition: dict[PartitionPath, list[WaitingMove | None]] = {}
    for pending in table_at.timeline.pending:
        if pending.time not in table_at.timeline.pending_clusterings:
            continue
        by_partition: dict[PartitionPath, list[PlannedMove]] = {}
        for move in moves_of_plan(table_at, pending):
            by_partition.setdefault(move.partition, []).append(move)
        for partition, moves in by_partition.items():
            moves_by_partition.setdefault(partition, []).append(_waiting_move(pending, partition, moves, rings))
    return {
        partition: move for partition, (move, *others) in moves_by_partition.items() if move is not None and not others
    }


def _waiting_move(
    pending: Instant, partition: PartitionPath, moves: list[PlannedMove], rings: Rings
) -> WaitingMove | None:
    if not all(move.opened for move in moves):
        return None  # rows go to any file group
    what, ring = f"the plan of {pending}", rings.ring(partition)
    changes = [decode_node_change(move.entries, partition, what) for move in moves]
    if any(change.sequence != ring.sequence for change in changes):
        return None
    sources = [{file_id for _, file_id in move.sources} for move in moves]
    return WaitingMove(pending.time, frozenset().union(*sources), ring_with(ring, changes, sources, what))
