"""Which buckets of consistent hashing a clustering splits, merges and orders (docs/index.md, Consistent hashing). Pure.

As Hudi's SparkConsistentBucketClusteringPlanStrategy, but for buckets that are neither split nor merged: they are rewritten
only where their rows have not the wanted order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from lakefmt.compaction.cluster.plan import ClusteringGroup, ClusteringPlan, ClusteringRules, GroupKey, slice_to_cluster
from lakefmt.filegroups.model import FileSlice
from lakefmt.index.bucket.child_nodes import NodeChange
from lakefmt.index.bucket.resize import BucketChange, ResizeRules, plan_changes
from lakefmt.index.bucket.ring import HashNode, HashRing

__all__ = ["plan_bucket_clustering"]


def plan_bucket_clustering(
    rings: Collection[HashRing],
    slices: Collection[FileSlice],
    busy: Collection[GroupKey],
    rules: ClusteringRules,
    resize: ResizeRules,
    new_uuid: Callable[[], str],
    *,
    only: Collection[GroupKey] | None = None,
    ordered: Collection[GroupKey] = (),
    due: bool = True,
) -> ClusteringPlan:
    """Return what a clustering rewrites; nothing in a partition with a file group in a pending plan.

    Args:
        rings: those of the chosen partitions.
        slices: the latest committed slices of these partitions.
        busy: file groups in pending plans.
        rules: how rows are ordered, and how many groups a plan has.
        resize: when buckets are split and merged.
        new_uuid: makes the ids of new file groups.
        only: plan these file groups only; None: all of them.
        ordered: file groups whose rows have the wanted order already.
        due: whether enough commits came; it is passed on.
    """
    by_partition: dict[str, list[FileSlice]] = {}
    for file_slice in slices:
        by_partition.setdefault(file_slice.partition, []).append(file_slice)
    groups: list[ClusteringGroup] = []
    for ring in sorted(rings, key=lambda each: each.partition):
        stored = {each.file_id: each for each in by_partition.get(ring.partition, ())}
        if any((ring.partition, file_id) in busy for file_id in stored):
            continue
        changes = plan_changes(ring, list(stored.values()), busy, resize, new_uuid)
        chosen = [
            each for each in changes if only is None or {(s.partition, s.file_id) for s in each.slices} <= {*only}
        ]
        groups += [_group(ring, change) for change in chosen]
        moved = {each.file_id for change in chosen for each in change.slices}
        rest = {node: stored[node.file_id] for node in ring.nodes if node.file_id in stored.keys() - moved}
        groups += _unordered(ring, rest, rules, only, ordered, new_uuid)
    chosen_groups = tuple(groups[: rules.max_groups])
    return ClusteringPlan(chosen_groups, rules.order, rules.target_bytes, len(groups) - len(chosen_groups), due)


def _group(ring: HashRing, change: BucketChange) -> ClusteringGroup:
    renewed = {node.value for node in change.nodes}
    dropped = tuple(value for value in change.dropped if value not in renewed)
    nodes = NodeChange(ring.sequence, dropped, change.nodes)
    return ClusteringGroup(tuple(map(slice_to_cluster, change.slices)), len(change.nodes), nodes)


def _unordered(
    ring: HashRing,
    slices: Mapping[HashNode, FileSlice],
    rules: ClusteringRules,
    only: Collection[GroupKey] | None,
    ordered: Collection[GroupKey],
    new_uuid: Callable[[], str],
) -> list[ClusteringGroup]:
    """Return the buckets whose rows get the wanted order, each in a file group of its own."""
    if not rules.order.columns:
        return []
    return [
        ClusteringGroup(
            (slice_to_cluster(each),), 1, NodeChange(ring.sequence, (), (HashNode(node.value, new_uuid()),))
        )
        for node, each in slices.items()
        if (each.partition, each.file_id) not in ordered and (only is None or (each.partition, each.file_id) in only)
    ]
