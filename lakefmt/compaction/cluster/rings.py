"""The rings of consistent hashing that a clustering changes: checked, stored before it completes, marked behind it (effects)."""

from __future__ import annotations

from contextlib import suppress

from lakefmt.compaction.cluster.plan import ClusteringPlan
from lakefmt.config.settings import Settings
from lakefmt.errors import CommitConflict, StorageError, UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.index import choose_index
from lakefmt.index.bucket.child_nodes import ring_with
from lakefmt.index.bucket.consistent import ConsistentBucketIndex
from lakefmt.index.bucket.ring import HashRing
from lakefmt.index.bucket.ring_files import RingFiles, mark_ring
from lakefmt.values import InstantTime, PartitionPath

__all__ = ["changed_rings", "index_of_buckets", "keep_rings", "mark_rings"]


def index_of_buckets(client: TableClient, state: TableState, settings: Settings) -> ConsistentBucketIndex:
    """Return the index of a table whose buckets a plan splits or merges.

    Raises:
        UnsupportedFeature: neither the table nor the call says that it has one.
    """
    index = choose_index(client, settings, state.config, state)
    if not isinstance(index, ConsistentBucketIndex):
        raise UnsupportedFeature(
            "a pending clustering splits or merges the buckets of consistent hashing: name hoodie.index.type=BUCKET and "
            "hoodie.index.bucket.engine=CONSISTENT_HASHING, which the table does not keep"
        )
    return index


def changed_rings(rings: RingFiles, time: InstantTime, plan: ClusteringPlan) -> dict[PartitionPath, HashRing]:
    """Return the rings of a plan's partitions as they are after it; none of a plan without buckets.

    Args:
        rings: the table's.
        time: the requested time of the clustering.
        plan: its groups.

    Raises:
        CommitConflict: the ring of a partition was changed after the plan was made.
        CorruptFile: the plan does not fit the ring, or a ring is damaged.
    """
    after: dict[PartitionPath, HashRing] = {}
    for partition in plan.partitions:
        groups = [group for group in plan.groups if group.partition == partition]
        changes = [group.buckets for group in groups if group.buckets is not None]
        if not changes:
            continue
        ring = rings.stored_ring(partition)
        if ring is None or any(change.sequence != ring.sequence for change in changes):
            raise CommitConflict(
                f"the buckets of partition {partition!r} were changed after the clustering {time} was planned: withdraw it "
                f"(table.cluster(abandon={time!r})), then cluster again"
            )
        sources = [{each.file_id for each in group.slices} for group in groups]
        after[partition] = ring_with(ring, changes, sources, f"the clustering {time}")
    return after


def keep_rings(client: TableClient, state: TableState, time: InstantTime, plan: ClusteringPlan) -> None:
    """Store the rings that a clustering brings, before it completes; call under the table lock.

    Raises:
        CommitConflict: the ring of a partition was changed after the plan was made.
        CorruptFile: the plan does not fit the ring, or a ring is damaged.
    """
    rings = RingFiles(client, state, 1)  # every partition of a plan has a ring
    for ring in changed_rings(rings, time, plan).values():
        rings.change(ring)
    rings.keep(time)


def mark_rings(client: TableClient, time: InstantTime, plan: ClusteringPlan) -> None:
    """Mark the rings of a clustering that has completed; when the store fails, the next writer does."""
    for partition in {group.partition for group in plan.groups if group.buckets is not None}:
        with suppress(StorageError):
            mark_ring(client.store, partition, time)
