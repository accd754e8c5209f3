"""Can two commits stand beside each other? Pure.

``find_conflict`` compares what this write touched with what completed since it began: the same file group, or new keys
in the same partition, which might be the same keys twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.instant import Instant

__all__ = ["Conflict", "find_conflict"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a commit cannot stand: the rival and what both touched."""

    rival: Instant
    file_groups: tuple[tuple[str, str], ...]
    partitions: tuple[str, ...]

    def __str__(self) -> str:
        touched = ", ".join(f"{p or '.'}/{f}" for p, f in self.file_groups[:3])
        if touched:
            return f"{self.rival} completed meanwhile and changed the same file groups ({touched})"
        where = ", ".join(p or "." for p in self.partitions[:3])
        return f"{self.rival} completed meanwhile and added rows to the same partitions ({where})"


def find_conflict(
    mine: CommitMetadata, rivals: Iterable[tuple[Instant, CommitMetadata]], *, keys_are_unique: bool
) -> Conflict | None:
    """Return the first rival that this commit cannot stand beside, or None.

    Args:
        mine: what this write is about to commit.
        rivals: commits that completed since it began.
        keys_are_unique: True when this write promises one row per key; then new keys of both in one partition
            conflict, because they may be the same.
    """
    my_groups = mine.file_ids()
    my_inserts = {s.partition_path for s in mine.stats if s.num_inserts}
    for rival, theirs in rivals:
        shared = tuple(sorted(my_groups & theirs.file_ids()))
        if shared:
            return Conflict(rival, shared, ())
        their_inserts = {s.partition_path for s in theirs.stats if s.num_inserts}
        if keys_are_unique and my_inserts & their_inserts:
            return Conflict(rival, (), tuple(sorted(my_inserts & their_inserts)))
    return None
