"""Which buckets of consistent hashing wait for a clustering, and the rings that it will bring (effects: reads plans)."""

from __future__ import annotations

from lakefmt.data_classes import dataclass
from lakefmt.filegroups.pending_plans import PlannedMove, moves_of_plan
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.index.bucket.child_nodes import decode_node_change, ring_with
from lakefmt.index.bucket.consistent import Rings
from lakefmt.index.bucket.ring import HashRing
from lakefmt.timeline.instant import Instant
from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = ["WaitingMove", "waiting_moves"]


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


def waiting_moves(client: TableClient, state: TableState, rings: Rings) -> dict[PartitionPath, WaitingMove]:
    """Return what pending clusterings do to the buckets of each partition.

    A plan that does not fit the ring of a partition is left out: it never completes. So are two plans for one partition.

    Args:
        client: the table.
        state: its properties and timeline.
        rings: tells the rings as they are.

    Raises:
        CorruptFile: a plan or a ring is damaged.
    """
    moves_by_partition: dict[PartitionPath, list[WaitingMove | None]] = {}
    for pending in state.timeline.pending:
        if pending.time not in state.timeline.pending_clusterings:
            continue
        by_partition: dict[PartitionPath, list[PlannedMove]] = {}
        for move in moves_of_plan(client, state, pending):
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
