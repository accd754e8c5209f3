"""Plans which file slices a clustering packs and orders, and when one is due (docs/services.md, Clustering). Pure.

Small slices of a partition are packed into groups; a group becomes as many files as its bytes need. Slices that have not
the wanted order are put into groups, too, whatever their size. Files between the small limit and the target size are left
alone; when no two small ones are left and there are still more files than their bytes need, they are packed as well. Files that
are as large as the full ones that a clustering writes are never packed, whatever the limits. So packing ends, and it writes a byte
three times at most.

Partitions are chosen by Hudi's strategies and filters. Tables with consistent hashing, and tables that keep the order of rows in
a bucket, have planners of their own.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from math import log
from typing import Final

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice, join_path
from lakefmt._core.formats.names import queue_bucket_of, queue_position_of
from lakefmt._core.index.bucket_ring import BucketChange, HashNode, HashRing, NodeChange, ResizeRules, plan_changes
from lakefmt._core.notebook import NotebookText
from lakefmt._core.sorting import RowOrder
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import InvalidInputError, UnsupportedFeature

__all__ = [
    "FULL",
    "ClusteringGroup",
    "ClusteringPlan",
    "ClusteringRules",
    "ClusteringSlice",
    "ClusteringStrategy",
    "PartitionFilter",
    "PartitionMode",
    "choose_cluster_partitions",
    "full_bytes",
    "is_clustering_due",
    "plan_bucket_clustering",
    "plan_clustering",
    "plan_queue_clustering",
    "slice_to_cluster",
]

#: With day-rolling, each hour of a day has its share of the partitions.
_HOURS_OF_A_DAY = 24
_MIB = 1 << 20
#: A file is full at this part of the target size: what is written next could be more than its rest.
FULL = 15 / 16
#: And a file of this part is taken for a full one: how large its filter becomes is known only when it is written.
_AS_GOOD_AS_FULL = 7 / 8
GroupKey = tuple[PartitionPath, FileId]
#: Neighbours of about the same size that are packed after a commit.
_QUEUE_FAN_IN: Final = 16

# ----------------------------------------------------------------------------------------------------------- partitions


class PartitionMode(enum.Enum):
    """How partitions are chosen, with Hudi's names."""

    NONE = "NONE"
    RECENT_DAYS = "RECENT_DAYS"
    SELECTED_PARTITIONS = "SELECTED_PARTITIONS"
    DAY_ROLLING = "DAY_ROLLING"


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Which partitions are looked at.

    Attributes:
        mode: how they are chosen.
        recent: with RECENT_DAYS, how many of the latest ones.
        skipped: with RECENT_DAYS, how many of the latest are passed over first.
        first: with SELECTED_PARTITIONS, the first one by its text; "": from the beginning.
        last: with SELECTED_PARTITIONS, the last one; "": to the end.
        named: only these; None: any.
        pattern: only those that this regular expression matches as a whole; "": any.
    """

    mode: PartitionMode = PartitionMode.NONE
    recent: int = 2
    skipped: int = 0
    first: str = ""
    last: str = ""
    named: frozenset[PartitionPath] | None = None
    pattern: str = ""

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise InvalidInputError(f"{self.pattern!r} is no regular expression: {error}") from None


def choose_cluster_partitions(
    partitions: Sequence[PartitionPath], rules: PartitionFilter, hour: int
) -> list[PartitionPath]:
    """Return the partitions that a clustering considers.

    Args:
        partitions: all that there are.
        rules: which of them.
        hour: of the day, in the table's zone.

    Example:
        >>> days = ["2026-01-01", "2026-01-02", "2026-01-03"]
        >>> choose_cluster_partitions(days, PartitionFilter(PartitionMode.RECENT_DAYS, recent=1, skipped=1), 0)
        ['2026-01-02']
    """
    candidates = sorted(p for p in partitions if rules.named is None or p in rules.named)
    if rules.pattern:
        pattern = re.compile(rules.pattern)
        candidates = [partition for partition in candidates if pattern.fullmatch(partition)]
    match rules.mode:
        case PartitionMode.RECENT_DAYS:
            latest = candidates[::-1][rules.skipped : rules.skipped + rules.recent]
            return sorted(latest)
        case PartitionMode.SELECTED_PARTITIONS:
            return [p for p in candidates if p >= rules.first and (not rules.last or p <= rules.last)]
        case PartitionMode.DAY_ROLLING:
            return [p for number, p in enumerate(candidates) if number % _HOURS_OF_A_DAY == hour]
        case _:
            return candidates


# --------------------------------------------------------------------------------------------------------------- slices


def full_bytes(target_bytes: int) -> int:
    """Return the size from which on a file is not packed: it would come back as it is.

    Example:
        >>> full_bytes(1024)
        896
    """
    return max(1, int(target_bytes * _AS_GOOD_AS_FULL))


class ClusteringStrategy(enum.Enum):
    """How slices are chosen, with Hudi's names without the engine before them."""

    SIZE_BASED = "SizeBasedClusteringPlanStrategy"
    RECENT_DAYS = "RecentDaysClusteringPlanStrategy"
    SELECTED_PARTITIONS = "SelectedPartitionsClusteringPlanStrategy"
    SINGLE_FILE_SORT = "SingleFileSortPlanStrategy"
    CONSISTENT_BUCKET = "ConsistentBucketClusteringPlanStrategy"


@dataclass(frozen=True, slots=True)
class ClusteringRules:
    """What is clustered, and how.

    Attributes:
        strategy: how slices are chosen.
        order: how the rows of a group are ordered.
        small_bytes: slices below this size are packed.
        target_bytes: a new file is full at this size.
        group_bytes: bytes of a group.
        max_groups: groups of a plan.
        single_slices: a group may have one slice.
        partitions: which partitions are looked at.
        max_commits: commits after which a clustering is due.
    """

    strategy: ClusteringStrategy = ClusteringStrategy.SIZE_BASED
    order: RowOrder = field(default_factory=RowOrder)
    small_bytes: int = 300 * _MIB
    target_bytes: int = 1024 * _MIB
    group_bytes: int = 2048 * _MIB
    max_groups: int = 30
    single_slices: bool = True
    partitions: PartitionFilter = field(default_factory=PartitionFilter)
    max_commits: int = 4

    def __post_init__(self) -> None:
        if min(self.target_bytes, self.group_bytes, self.max_groups, self.max_commits) < 1 or self.small_bytes < 0:
            raise InvalidInputError("limits of a clustering are at least 1, and the limit of small files at least 0")

    @property
    def full_bytes(self) -> int:
        """From this size on a file is not packed."""
        return full_bytes(self.target_bytes)


@dataclass(frozen=True, slots=True)
class ClusteringSlice:
    """One file slice whose rows move.

    Attributes:
        partition: where its files are.
        file_id: its file group.
        base_name: name of the base file; None when there is none.
        log_names: names of the logs, oldest first.
        base_bytes: size of the base file.
        log_bytes: size of the logs.
    """

    partition: PartitionPath
    file_id: FileId
    base_name: str | None
    log_names: tuple[str, ...] = ()
    base_bytes: int = 0
    log_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Size of its files."""
        return self.base_bytes + self.log_bytes

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files, relative to the table."""
        names = self.log_names if self.base_name is None else (self.base_name, *self.log_names)
        return tuple(join_path(self.partition, name) for name in names)


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """Slices of one partition whose rows become new file groups together.

    Attributes:
        slices: the slices.
        num_outputs: how many files are expected.
        buckets: with consistent hashing, the buckets that get the rows; None: the rows go to any file group.
    """

    slices: tuple[ClusteringSlice, ...]
    num_outputs: int = 1
    buckets: NodeChange | None = None

    @property
    def partition(self) -> PartitionPath:
        """Where its files are."""
        return self.slices[0].partition

    @property
    def num_bytes(self) -> int:
        """Size of its files."""
        return sum(each.num_bytes for each in self.slices)

    @property
    def metrics(self) -> dict[str, float]:
        """Files, bytes and MiB, with the names of Hudi's plans."""
        read = sum(each.num_bytes // _MIB for each in self.slices)
        write = sum(each.base_bytes // _MIB for each in self.slices)
        return {
            "TOTAL_LOG_FILES": float(sum(len(each.log_names) for each in self.slices)),
            "TOTAL_IO_READ_MB": float(read),
            "TOTAL_IO_WRITE_MB": float(write),
            "TOTAL_IO_MB": float(read + write),
            "TOTAL_LOG_FILES_SIZE": float(sum(each.log_bytes for each in self.slices)),
        }


@dataclass(frozen=True, slots=True)
class ClusteringPlan(NotebookText):
    """What a clustering rewrites: prints one line per group.

    Attributes:
        groups: the groups, in the order in which they are rewritten.
        order: how the rows of a group are ordered.
        target_bytes: a new file is full at this size; 0: as the settings of the executor say.
        left: groups that did not fit into the plan.
        due: whether enough commits came since the last clustering; a call can ask for one that is not due.
    """

    groups: tuple[ClusteringGroup, ...] = ()
    order: RowOrder = field(default_factory=RowOrder)
    target_bytes: int = 0
    left: int = 0
    due: bool = True

    @property
    def num_slices(self) -> int:
        """How many slices are rewritten."""
        return sum(len(group.slices) for group in self.groups)

    @property
    def num_bytes(self) -> int:
        """Size of the files that are rewritten."""
        return sum(group.num_bytes for group in self.groups)

    @property
    def partitions(self) -> tuple[PartitionPath, ...]:
        """The partitions of the groups, each once."""
        return tuple(dict.fromkeys(group.partition for group in self.groups))

    @property
    def log_paths(self) -> tuple[str, ...]:
        """The logs, relative to the table."""
        slices = [each for group in self.groups for each in group.slices]
        return tuple(join_path(each.partition, name) for each in slices for name in each.log_names)

    def without_logs(self, paths: Collection[str]) -> ClusteringPlan:
        """Return the plan without some logs, and without slices and groups of which nothing is left."""
        groups = []
        for group in self.groups:
            slices = [
                replace(each, log_names=tuple(n for n in each.log_names if join_path(each.partition, n) not in paths))
                for each in group.slices
            ]
            groups.append(replace(group, slices=tuple(each for each in slices if each.paths)))
        return replace(self, groups=tuple(group for group in groups if group.slices))

    @property
    def file_groups(self) -> frozenset[GroupKey]:
        """The file groups whose rows move."""
        return frozenset((each.partition, each.file_id) for group in self.groups for each in group.slices)

    @property
    def opened(self) -> frozenset[GroupKey]:
        """The file groups of the buckets that it opens; none where rows go to any file group."""
        return frozenset(
            (group.partition, node.file_id)
            for group in self.groups
            if group.buckets is not None
            for node in group.buckets.nodes
        )

    def __str__(self) -> str:
        rest = f"; {self.left:,} groups left for later" if self.left else ""
        early = "" if self.due else "; not due yet"
        title = (
            f"cluster: {self.num_slices:,} slices in {len(self.groups):,} groups, {self.num_bytes:,} bytes, "
            f"rows {self.order}{rest}{early}"
        )
        lines = [
            f"  {group.partition or '.'}: {len(group.slices):,} slices, {group.num_bytes:,} bytes → "
            f"{group.num_outputs:,} {'files' if group.buckets is None else 'buckets'}"
            for group in self.groups
        ]
        return "\n".join([title, *lines])


def is_clustering_due(timeline: Timeline, max_commits: int) -> bool:
    """Return whether enough commits came since the last clustering, finished or planned.

    Args:
        timeline: the active timeline.
        max_commits: how many are enough.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.commit" for n in range(3)]
        >>> [is_clustering_due(timeline_from_names(names, 2), n) for n in (3, 4)]
        [True, False]
    """
    replacing = [i.time for i in timeline.completed_of(Action.REPLACE_COMMIT)]
    planned = [i.time for i in timeline.pending if i.action in (Action.CLUSTERING, Action.REPLACE_COMMIT)]
    last = max([*replacing, *planned], default="")
    return sum(i.time > last for i in timeline.commits) >= max_commits


def slice_to_cluster(file_slice: FileSlice) -> ClusteringSlice:
    """Return a file slice as a plan names it."""
    base = file_slice.base
    return ClusteringSlice(
        file_slice.partition,
        file_slice.file_id,
        None if base is None else base.name,
        tuple(log.name for log in file_slice.logs),
        0 if base is None else base.size,
        sum(log.size for log in file_slice.logs),
    )


def plan_clustering(
    slices: Iterable[FileSlice],
    busy: Collection[GroupKey],
    rules: ClusteringRules,
    *,
    ordered: Collection[GroupKey] = (),
    due: bool = True,
) -> ClusteringPlan:
    """Return what a clustering rewrites.

    Args:
        slices: the latest committed slices of the chosen partitions.
        busy: file groups in a pending plan.
        rules: what is clustered, and how.
        ordered: file groups whose rows have the wanted order already.
        due: whether enough commits came; it is passed on.

    Example:
        >>> from lakefmt._core.filegroups.model import BaseFile
        >>> files = [BaseFile("p", f"f{n}-0_0-0-0_20260101000000000.parquet", f"f{n}-0", "", "20260101000000000", 9)
        ...          for n in range(3)]
        >>> slices = [FileSlice("p", file.file_id, file.instant, file) for file in files]
        >>> print(plan_clustering(slices, (), ClusteringRules()))
        cluster: 3 slices in 1 groups, 27 bytes, rows as they are
          p: 3 slices, 27 bytes → 1 files
    """
    by_partition: dict[PartitionPath, list[ClusteringSlice]] = {}
    for file_slice in slices:
        if (file_slice.partition, file_slice.file_id) not in busy:
            by_partition.setdefault(file_slice.partition, []).append(slice_to_cluster(file_slice))
    groups: list[ClusteringGroup] = []
    for partition in sorted(by_partition):
        groups += _groups_of_partition(by_partition[partition], rules, frozenset(ordered))
    first_groups = tuple(groups[: rules.max_groups])
    return ClusteringPlan(first_groups, rules.order, rules.target_bytes, len(groups) - len(first_groups), due)


def _groups_of_partition(
    slices: Sequence[ClusteringSlice], rules: ClusteringRules, ordered: frozenset[GroupKey]
) -> list[ClusteringGroup]:
    """Return the groups of one partition."""
    # The largest first, as in Hudi; names make it the same in every run.
    largest_first = sorted(slices, key=lambda each: (-each.num_bytes, each.file_id))
    unordered = [
        each for each in largest_first if rules.order.columns and (each.partition, each.file_id) not in ordered
    ]
    if rules.strategy is ClusteringStrategy.SINGLE_FILE_SORT:
        with_logs = [each for each in largest_first if each.log_names]
        return [ClusteringGroup((each,)) for each in (unordered if rules.order.columns else with_logs)]
    packed = set(_slices_to_pack(largest_first, rules))
    members = [each for each in largest_first if each in packed or each in unordered]
    return [
        ClusteringGroup(tuple(run), max(1, -(-sum(each.num_bytes for each in run) // rules.target_bytes)))
        for run in _runs_of_slices(members, rules.group_bytes)
        if _is_worth_rewriting(run, rules, unordered)
    ]


def _slices_to_pack(slices: Sequence[ClusteringSlice], rules: ClusteringRules) -> list[ClusteringSlice]:
    """Return the slices that are packed: small ones, else all that are not full where they are more than their bytes need."""
    not_full = [each for each in slices if each.num_bytes < rules.full_bytes]
    small = [each for each in not_full if each.num_bytes < rules.small_bytes]
    if len(small) > 1 or not rules.small_bytes:
        return small
    needed = -(-sum(each.num_bytes for each in not_full) // rules.target_bytes)
    return not_full if len(not_full) > needed + 1 else small


def _runs_of_slices(members: Sequence[ClusteringSlice], group_bytes: int) -> list[list[ClusteringSlice]]:
    """Return slices in runs of at most `group_bytes`; a larger slice is a run of its own."""
    runs: list[list[ClusteringSlice]] = []
    total = 0
    for each in members:  # slices, not rows
        if not runs or total + each.num_bytes > group_bytes:
            runs.append([])
            total = 0
        runs[-1].append(each)
        total += each.num_bytes
    return runs


def _is_worth_rewriting(
    run: Sequence[ClusteringSlice], rules: ClusteringRules, unordered: Collection[ClusteringSlice]
) -> bool:
    """Return whether a group changes anything: several slices become fewer, or rows get their order."""
    if len(run) > 1:
        return True
    return rules.single_slices and (run[0] in unordered or bool(run[0].log_names))


# ---------------------------------------------------------------------------------------- buckets of consistent hashing


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
    """Return which buckets of consistent hashing a clustering splits, merges and orders (docs/index.md, Consistent hashing).

    As Hudi's SparkConsistentBucketClusteringPlanStrategy, but for buckets that are neither split nor merged: they are rewritten
    only where their rows have not the wanted order. Nothing is planned in a partition with a file group in a pending plan.

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
        groups += [_group_of_change(ring, change) for change in chosen]
        moved = {each.file_id for change in chosen for each in change.slices}
        rest = {node: stored[node.file_id] for node in ring.nodes if node.file_id in stored.keys() - moved}
        groups += _unordered_buckets(ring, rest, rules, only, ordered, new_uuid)
    chosen_groups = tuple(groups[: rules.max_groups])
    return ClusteringPlan(chosen_groups, rules.order, rules.target_bytes, len(groups) - len(chosen_groups), due)


def _group_of_change(ring: HashRing, change: BucketChange) -> ClusteringGroup:
    renewed = {node.value for node in change.nodes}
    dropped = tuple(value for value in change.dropped if value not in renewed)
    nodes = NodeChange(ring.sequence, dropped, change.nodes)
    return ClusteringGroup(tuple(map(slice_to_cluster, change.slices)), len(change.nodes), nodes)


def _unordered_buckets(
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


# ------------------------------------------------------------------------------------ rows in the order of their bucket


def plan_queue_clustering(
    slices: Iterable[FileSlice],
    busy: Collection[GroupKey],
    rules: ClusteringRules,
    completion_of: Callable[[InstantTime], InstantTime],
    *,
    all_small: bool,
    due: bool = True,
) -> ClusteringPlan:
    """Return what a clustering rewrites without changing the order of rows in a bucket (docs/append.md).

    Only neighbours of one bucket become one file, in their order. A call packs every run of small neighbours. After commits only
    runs of at least sixteen of about the same size are packed: a row is written once more each time its file grows to sixteen
    times its size, and not with every commit.

    Args:
        slices: the latest committed slices of the chosen partitions; those that name no bucket are left alone.
        busy: file groups in a pending plan, or left out by a filter; what is before and behind one stays apart.
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
            queue_position = (completion_of(position[0]), position[1])
            by_bucket.setdefault((each.partition, bucket), []).append((queue_position, each))
    groups: list[ClusteringGroup] = []
    for _, members in sorted(by_bucket.items(), key=lambda item: item[0]):
        ordered = [each for _, each in sorted(members, key=lambda member: member[0])]
        groups += _groups_of_neighbours(ordered, frozenset(busy), rules, all_small=all_small)
    first_groups = tuple(groups[: rules.max_groups])
    return ClusteringPlan(first_groups, rules.order, rules.target_bytes, len(groups) - len(first_groups), due)


def _groups_of_neighbours(
    ordered: Sequence[FileSlice], busy: frozenset[GroupKey], rules: ClusteringRules, *, all_small: bool
) -> Iterator[ClusteringGroup]:
    """Yield the runs of one bucket that become fewer files."""

    def size_class(each: FileSlice) -> int:
        planned = slice_to_cluster(each)
        if (each.partition, each.file_id) in busy or planned.num_bytes >= min(rules.small_bytes, rules.full_bytes):
            return -1
        return 0 if all_small else int(log(max(planned.num_bytes, 1), _QUEUE_FAN_IN))

    for number, run in groupby(ordered, size_class):
        members = [slice_to_cluster(each) for each in run]
        if number < 0 or len(members) < (2 if all_small else _QUEUE_FAN_IN):
            continue
        for part in _runs_of_neighbours(members, rules.group_bytes):
            outputs = max(1, -(-sum(each.num_bytes for each in part) // rules.target_bytes))
            if len(part) > outputs:
                yield ClusteringGroup(tuple(part), outputs)


def _runs_of_neighbours(members: Sequence[ClusteringSlice], most_bytes: int) -> Iterator[list[ClusteringSlice]]:
    part: list[ClusteringSlice] = []
    size = 0
    for each in members:
        if part and size + each.num_bytes > most_bytes:
            yield part
            part, size = [], 0
        part.append(each)
        size += each.num_bytes
    yield part
