"""Cut what a query reads into parts that are read side by side: whole file slices, or whole sources of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.read.changes import ChangeSource, ChangesPlan, GroupFiles
from lakefmt._core.read.filters import Filter
from lakefmt._core.read.snapshot import Snapshot, matching_slices
from lakefmt._core.timeline.instant import Instant

__all__ = [
    "ChangesSplit",
    "ReadSplit",
    "changes_of_split",
    "choose_split_bytes",
    "pack_changes",
    "pack_slices",
    "plan_splits",
]

#: Bytes of files that one task reads at most, as ``spark.sql.files.maxPartitionBytes`` has it; and at least: a task costs
#: about as much as reading those bytes.
_MOST_BYTES, _LEAST_BYTES = 128 << 20, 8 << 20
_SPLITS_PER_SLOT = 3

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """File slices that one task reads.

    Attributes:
        slices: whole file slices; a base file and its logs are merged by the task that reads them.
        num_bytes: the bytes of their files.
    """

    slices: tuple[FileSlice, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ChangesSplit:
    """Sources of changes that one task reads.

    Attributes:
        work: commits with the sources.
        groups: the files of the sources' file groups.
        num_bytes: about the bytes of files that it takes.
    """

    work: tuple[tuple[Instant, tuple[ChangeSource, ...]], ...]
    groups: tuple[tuple[tuple[str, str], GroupFiles], ...]
    num_bytes: int


def choose_split_bytes(total: int, slots: int) -> int:
    """Return about how many bytes of files one task should read: a few tasks for each slot. Pure.

    Example:
        >>> choose_split_bytes(1 << 40, 16) >> 20, choose_split_bytes(0, 16) >> 20
        (128, 8)
    """
    return min(_MOST_BYTES, max(_LEAST_BYTES, total // (_SPLITS_PER_SLOT * max(1, slots))))


def pack_slices(slices: Sequence[FileSlice], target_bytes: int) -> list[ReadSplit]:
    """Pack file slices into parts of about `target_bytes`, in their order; a slice is never cut. Pure.

    Example:
        >>> pack_slices([], 1 << 20)
        []
    """
    packed = _packed(slices, lambda file_slice: file_slice.size_bytes, target_bytes)
    return [ReadSplit(tuple(part), num_bytes) for part, num_bytes in packed]


def pack_changes(plan: ChangesPlan, target_bytes: int) -> list[ChangesSplit]:
    """Pack the sources of changes into parts of about `target_bytes`, in their order. Pure."""
    pairs = [(commit, source) for commit, sources in plan.work for source in sources]
    packed = _packed(pairs, lambda pair: _bytes_of(plan, pair[1]), target_bytes)
    return [_changes_split(plan, part, num_bytes) for part, num_bytes in packed]


def changes_of_split(plan: ChangesPlan, split: ChangesSplit) -> ChangesPlan:
    """Return the part of a plan that one task reads; of the plan no work and no files are used. Pure."""
    return replace(plan, work=split.work, files=replace(plan.files, groups=dict(split.groups)))


def plan_splits(
    snapshot: Snapshot, filter: Filter = None, query: str = "snapshot", *, target_bytes: int = _MOST_BYTES
) -> list[ReadSplit]:
    """Return the parts of a snapshot that may have matching rows.

    Args:
        snapshot: what is read; it pickles, so that tasks read exactly the same state.
        filter: as for ``Table.read``; partitions and files that cannot match are left out.
        query: ``"snapshot"`` or ``"read_optimized"``.
        target_bytes: about how many bytes of files one part has.

    Raises:
        InvalidInputError: unknown query type.
        SnapshotExpired: files of the snapshot were cleaned.
    """
    return pack_slices(matching_slices(snapshot, filter, query), max(1, target_bytes))


def _packed(
    items: Iterable[_Item], size_of: Callable[[_Item], int], target_bytes: int
) -> list[tuple[list[_Item], int]]:
    """Return items in groups of about `target_bytes`, with the bytes of each."""
    packed: list[tuple[list[_Item], int]] = []
    for item in items:
        size = size_of(item)
        if packed and packed[-1][1] + size <= target_bytes:
            packed[-1][0].append(item)
            packed[-1] = (packed[-1][0], packed[-1][1] + size)
        else:
            packed.append(([item], size))
    return packed


def _bytes_of(plan: ChangesPlan, source: ChangeSource) -> int:
    """Return about how many bytes the changes of a source take: those of its group's largest base file, and its logs."""
    group = plan.files.groups.get((source.partition, source.file_id), GroupFiles())
    return max((base.size for base in group.bases), default=0) + sum(log.size for log in group.logs)


def _changes_split(plan: ChangesPlan, part: Sequence[tuple[Instant, ChangeSource]], num_bytes: int) -> ChangesSplit:
    work: list[tuple[Instant, tuple[ChangeSource, ...]]] = []
    for commit, source in part:
        if work and work[-1][0] == commit:
            work[-1] = (commit, (*work[-1][1], source))
        else:
            work.append((commit, (source,)))
    keys = {(source.partition, source.file_id) for _, source in part}
    groups = tuple((key, plan.files.groups[key]) for key in sorted(keys) if key in plan.files.groups)
    return ChangesSplit(tuple(work), groups, num_bytes)
