"""Which small files of an append table are packed now (docs/services.md, A process for services). Pure.

Files have levels by their size: a level is ten times the one below. Ten files of one level, with the smaller ones, become
one file of a higher level. So a byte is written once per level, and not once per packing, however long rows are appended.
When nothing was appended for a while, all small files of a partition are packed once more, to as few as their bytes need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lakefmt.compaction.cluster.plan import full_bytes
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError
from lakefmt.values import FileId, PartitionPath

__all__ = ["MIN_PACKED", "PackingRules", "SliceSize", "choose_packed"]

_UNIT: Final = 4096
#: Files of a level that are packed together, unless a table says otherwise.
MIN_PACKED: Final = 10


@dataclass(frozen=True, slots=True)
class PackingRules:
    """When files are packed.

    Attributes:
        small_bytes: only files below this size are packed, and none that is full.
        target_bytes: a packed file is full at this size.
        min_files: files of a level that are packed together, and the ratio of one level to the next.
    """

    small_bytes: int = 300 << 20
    target_bytes: int = 1 << 30
    min_files: int = MIN_PACKED

    def __post_init__(self) -> None:
        if self.min_files < 2 or self.target_bytes < 1 or self.small_bytes < 0:
            raise InvalidInputError("files are packed by two or more, into files of at least one byte")


@dataclass(frozen=True, slots=True)
class SliceSize:
    """A file slice: its partition, its file group and its bytes."""

    partition: PartitionPath
    file_id: FileId
    num_bytes: int


def choose_packed(
    slices: Iterable[SliceSize], rules: PackingRules, *, quiet: bool
) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups that are packed now.

    Args:
        slices: the latest slices that no pending plan has.
        rules: when files are packed.
        quiet: nothing was appended for a while.

    Example:
        >>> tens = [SliceSize("p", f"f{n}", 5000) for n in range(10)]
        >>> len(choose_packed(tens[:9], PackingRules(), quiet=False)), len(choose_packed(tens, PackingRules(), quiet=False))
        (0, 10)
        >>> len(choose_packed(tens[:9], PackingRules(), quiet=True))
        9
    """
    by_partition: dict[PartitionPath, list[SliceSize]] = {}
    limit = min(rules.small_bytes, full_bytes(rules.target_bytes))
    for each in slices:
        if each.num_bytes < limit:
            by_partition.setdefault(each.partition, []).append(each)
    chosen: set[tuple[PartitionPath, FileId]] = set()
    for small in by_partition.values():
        packed = _rest(small, rules) if quiet else _full_levels(small, rules)
        chosen.update((each.partition, each.file_id) for each in packed)
    return frozenset(chosen)


def _rest(small: Sequence[SliceSize], rules: PackingRules) -> Sequence[SliceSize]:
    """Return all small files, unless they are as few as their bytes need."""
    needed = -(-sum(each.num_bytes for each in small) // rules.target_bytes)
    return small if len(small) > needed + 1 or (len(small) > 1 and needed <= 1) else ()


def _full_levels(small: Sequence[SliceSize], rules: PackingRules) -> Sequence[SliceSize]:
    """Return the files up to the highest level that has enough of them."""
    counts: dict[int, int] = {}
    for each in small:
        level = _level(each.num_bytes, rules.min_files)
        counts[level] = counts.get(level, 0) + 1
    full = [level for level, count in counts.items() if count >= rules.min_files]
    if not full:
        return ()
    return [each for each in small if _level(each.num_bytes, rules.min_files) <= max(full)]


def _level(num_bytes: int, ratio: int) -> int:
    level, limit = 0, _UNIT
    while num_bytes >= limit:
        level, limit = level + 1, limit * ratio
    return level
