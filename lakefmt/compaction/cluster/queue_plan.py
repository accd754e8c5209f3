"""Which file slices a clustering packs in a table that keeps the order of rows in a bucket (docs/append.md). Pure.

Only neighbours of one bucket become one file, in their order, so that the order of rows stays. A call packs every run of
small neighbours. After commits only runs of at least sixteen of about the same size are packed: a row is written once more
each time its file grows to sixteen times its size, and not with every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from math import log
from typing import Final

from lakefmt.compaction.cluster.plan import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringRules,
    ClusteringSlice,
    GroupKey,
    slice_to_cluster,
)
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.model import FileSlice
from lakefmt.formats.queue_names import queue_bucket_of, queue_position_of
from lakefmt.values import InstantTime, PartitionPath

__all__ = ["plan_queue_clustering"]

#: Neighbours of about the same size that are packed after a commit.
_FAN_IN: Final = 16


def plan_queue_clustering(
    slices: Iterable[FileSlice],
    busy: Collection[GroupKey],
    rules: ClusteringRules,
    completion_of: Callable[[InstantTime], InstantTime],
    *,
    all_small: bool,
    due: bool = True,
) -> ClusteringPlan:
    """Return what a clustering rewrites without changing the order of rows in a bucket.

    Args:
        slices: the latest committed slices of the chosen partitions; those that name no bucket are left alone.
        busy: file groups in a pending plan; what is before and behind one stays apart.
        rules: what is clustered, and how.
        completion_of: tells when a commit became visible, by its requested time.
        all_small: pack every run of small neighbours; False: only runs of enough files of about the same size.
        due: whether enough commits came; it is passed on.

    Raises:
        UnsupportedFeature: the rules ask for another order of rows.
    """
    if rules.order.columns:
        raise UnsupportedFeature(
            "the rows of a bucket of this table stay in the order in which they were written: cluster it without columns, or "
            "make a table with order='none'"
        )
    by_bucket: dict[tuple[PartitionPath, int], list[tuple[tuple[str, int], FileSlice]]] = {}
    for each in slices:
        bucket, position = queue_bucket_of(each.file_id), queue_position_of(each.file_id)
        if bucket is not None and position is not None:
            place = (completion_of(position[0]), position[1])
            by_bucket.setdefault((each.partition, bucket), []).append((place, each))
    groups: list[ClusteringGroup] = []
    for _, members in sorted(by_bucket.items(), key=lambda item: item[0]):
        ordered = [each for _, each in sorted(members, key=lambda member: member[0])]
        groups += _neighbours(ordered, frozenset(busy), rules, all_small=all_small)
    chosen = tuple(groups[: rules.max_groups])
    return ClusteringPlan(chosen, rules.order, rules.target_bytes, len(groups) - len(chosen), due)


def _neighbours(
    ordered: Sequence[FileSlice], busy: frozenset[GroupKey], rules: ClusteringRules, *, all_small: bool
) -> Iterator[ClusteringGroup]:
    """Yield the runs of one bucket that become fewer files."""

    def size_class(each: FileSlice) -> int:
        planned = slice_to_cluster(each)
        if (each.partition, each.file_id) in busy or planned.num_bytes >= min(rules.small_bytes, rules.full_bytes):
            return -1
        return 0 if all_small else int(log(max(planned.num_bytes, 1), _FAN_IN))

    for number, run in groupby(ordered, size_class):
        members = [slice_to_cluster(each) for each in run]
        if number < 0 or len(members) < (2 if all_small else _FAN_IN):
            continue
        for part in _parts(members, rules.group_bytes):
            outputs = max(1, -(-sum(each.num_bytes for each in part) // rules.target_bytes))
            if len(part) > outputs:
                yield ClusteringGroup(tuple(part), outputs)


def _parts(members: Sequence[ClusteringSlice], most_bytes: int) -> Iterator[list[ClusteringSlice]]:
    part: list[ClusteringSlice] = []
    size = 0
    for each in members:
        if part and size + each.num_bytes > most_bytes:
            yield part
            part, size = [], 0
        part.append(each)
        size += each.num_bytes
    yield part
