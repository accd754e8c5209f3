"""Cut a snapshot into parts that are read side by side: one part is whole file slices of about equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakefmt.filegroups.model import FileSlice
from lakefmt.read.filters import Filter
from lakefmt.read.snapshot import Snapshot, matching_slices

__all__ = ["ReadSplit", "pack_slices", "plan_splits"]


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """File slices that one task reads.

    Attributes:
        slices: whole file slices; a base file and its logs are merged by the task that reads them.
        num_bytes: the bytes of their files.
    """

    slices: tuple[FileSlice, ...]
    num_bytes: int


def pack_slices(slices: Sequence[FileSlice], target_bytes: int) -> list[ReadSplit]:
    """Pack file slices into parts of about `target_bytes`, in their order; a slice is never cut. Pure.

    Example:
        >>> pack_slices([], 1 << 20)
        []
    """
    splits: list[ReadSplit] = []
    held: list[FileSlice] = []
    held_bytes = 0
    for file_slice in slices:
        size = file_slice.size_bytes
        if held and held_bytes + size > target_bytes:
            splits.append(ReadSplit(tuple(held), held_bytes))
            held, held_bytes = [], 0
        held.append(file_slice)
        held_bytes += size
    return [*splits, ReadSplit(tuple(held), held_bytes)] if held else splits


def plan_splits(
    snapshot: Snapshot, filter: Filter = None, query: str = "snapshot", *, target_bytes: int = 128 << 20
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
