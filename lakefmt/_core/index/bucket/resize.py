"""Which buckets of a ring are split, and which are merged: Hudi's rules (docs/index.md, Consistent hashing). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lakefmt._core.config.settings import Settings
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.index.bucket.ring import HashNode, HashRing
from lakefmt._core.values import FileId, PartitionPath

__all__ = ["BucketChange", "ResizeRules", "plan_changes", "resize_rules", "ring_after"]


@dataclass(frozen=True, slots=True)
class ResizeRules:
    """When buckets are split and merged.

    Attributes:
        min_buckets: a partition keeps this many buckets.
        max_buckets: a partition gets no more than these.
        split_bytes: a bucket with more bytes is split into two.
        merge_bytes: neighbours with no more bytes than these, each and together, are merged.
    """

    min_buckets: int
    max_buckets: int
    split_bytes: int
    merge_bytes: int


@dataclass(frozen=True, slots=True)
class BucketChange:
    """One bucket that is split, or several that are merged.

    Attributes:
        partition: the partition's path.
        slices: the file slices whose rows move.
        dropped: the values of their nodes.
        nodes: the nodes that take their rows.
    """

    partition: PartitionPath
    slices: tuple[FileSlice, ...]
    dropped: tuple[int, ...]
    nodes: tuple[HashNode, ...]

    @property
    def is_split(self) -> bool:
        """True for a bucket that is split."""
        return len(self.nodes) > len(self.dropped)

    @property
    def num_bytes(self) -> int:
        """Bytes of the files whose rows move."""
        return sum(map(slice_bytes, self.slices))


def resize_rules(settings: Settings, num_buckets: int) -> ResizeRules:
    """Return the rules that settings ask for.

    Args:
        settings: of the call and of the table.
        num_buckets: the number of buckets that a partition begins with; without settings it has no less and no more.
    """
    size = settings.integer("hoodie.parquet.max.file.size")
    least, most = (settings.values[f"hoodie.bucket.index.{end}.num.buckets"] for end in ("min", "max"))
    return ResizeRules(
        min_buckets=num_buckets if least is None else int(least),
        max_buckets=num_buckets if most is None else int(most),
        split_bytes=int(size * settings.number("hoodie.bucket.index.split.threshold")),
        merge_bytes=int(size * settings.number("hoodie.bucket.index.merge.threshold")),
    )


def slice_bytes(file_slice: FileSlice) -> int:
    """Return the bytes of a slice's base file and logs."""
    return (0 if file_slice.base is None else file_slice.base.size) + sum(log.size for log in file_slice.logs)


def plan_changes(
    ring: HashRing,
    slices: Sequence[FileSlice],
    busy: Collection[tuple[PartitionPath, FileId]],
    rules: ResizeRules,
    new_uuid: Callable[[], str],
) -> list[BucketChange]:
    """Return the splits and merges of a partition; none while a plan is pending for one of its file groups.

    Args:
        ring: the partition's.
        slices: its latest file slices.
        busy: file groups in pending compactions and clusterings.
        rules: when buckets are split and merged.
        new_uuid: makes the ids of new file groups.
    """
    if any((file_slice.partition, file_slice.file_id) in busy for file_slice in slices):
        return []
    stored = {file_slice.file_id: file_slice for file_slice in slices}
    by_node = [stored.get(node.file_id) for node in ring.nodes]
    changes: list[BucketChange] = []
    taken: set[int] = set()
    for number, file_slice in enumerate(by_node):  # file groups, not rows
        if len(ring.nodes) + len(changes) >= rules.max_buckets:
            break
        if file_slice is None or slice_bytes(file_slice) <= rules.split_bytes:
            continue
        nodes = ring.split(number, new_uuid)
        if nodes is not None:
            changes.append(BucketChange(ring.partition, (file_slice,), (ring.nodes[number].value,), nodes))
            taken.add(number)
    left = len(ring.nodes) + len(changes) - rules.min_buckets
    for run in _mergeable(by_node, taken, left, rules.merge_bytes):
        members = tuple(file_slice for number in run if (file_slice := by_node[number]) is not None)
        values = tuple(ring.nodes[number].value for number in run)
        changes.append(BucketChange(ring.partition, members, values, (HashNode(values[-1], new_uuid()),)))
    return changes


def _mergeable(
    by_node: Sequence[FileSlice | None], taken: Collection[int], left: int, merge_bytes: int
) -> list[list[int]]:
    """Return runs of neighbours that are merged; together they take at most `left` buckets away."""
    runs: list[list[int]] = []
    run: list[int] = []
    total = 0
    for number, file_slice in enumerate(by_node):  # file groups, not rows
        size = 0 if file_slice is None else slice_bytes(file_slice)
        fits = file_slice is not None and number not in taken and size <= merge_bytes
        if run and fits and total + size <= merge_bytes and left > 0:
            run.append(number)
            total += size
            left -= 1
            continue
        runs.append(run)
        run, total = ([number], size) if fits else ([], 0)
    return [run for run in [*runs, run] if len(run) > 1]


def ring_after(ring: HashRing, changes: Sequence[BucketChange]) -> HashRing:
    """Return the ring after some changes of its nodes, without an instant."""
    dropped = [value for change in changes for value in change.dropped]
    return ring.replaced("", dropped, [node for change in changes for node in change.nodes])
