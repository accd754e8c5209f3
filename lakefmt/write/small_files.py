"""Which small base files of a partition are merged (pure).

A row is written once when it comes in, and again with every file that is filled with newer rows or merged. ``fill`` is Hudi's
way: new rows go to small files first, so that a file is rewritten with every small commit. ``tiers`` fills a file where it is
rewritten anyway, or is small beside the rows that come in; other rows open files, and when a partition has too many small
ones, some of about the same size are merged into one. Both the files of a partition and the times a row is rewritten stay few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from lakefmt.values import PartitionPath

__all__ = ["choose_files_to_merge", "crowded_partitions"]


def choose_files_to_merge(sizes: Sequence[int], max_bytes: int, most: int) -> list[int]:
    """Return which files of a partition are merged into one; none while there are few, or where no two fit together.

    The smallest ones are merged, as many as make the fewest bytes written for each pair of files that are no longer there
    (of n files n - 1): a large file waits until others have grown.

    Args:
        sizes: bytes of the small files.
        max_bytes: no file is planned larger.
        most: how many files may stay.

    Example:
        >>> choose_files_to_merge([40, 9, 1, 1, 1], 100, most=4)
        [2, 3, 4]
        >>> choose_files_to_merge([40, 9, 1, 1], 100, most=4)
        []
    """
    order = sorted(range(len(sizes)), key=lambda number: sizes[number])
    chosen, least, total = 0, 0.0, 0
    for count, number in enumerate(order, 1):
        total += sizes[number]
        if total > max_bytes:
            break
        cost = total / max(count - 1, 1) ** 2
        if count > 1 and (not chosen or cost <= least):
            chosen, least = count, cost
    return sorted(order[:chosen]) if len(sizes) > most else []


def crowded_partitions(
    small: Iterable[PartitionPath], opened: Collection[PartitionPath], most: int
) -> frozenset[PartitionPath]:
    """Return the partitions in which a write opens file groups, and that then have too many small files.

    Args:
        small: the partition of each small file before the write.
        opened: the partition of each file group that it opens.
        most: how many may stay.

    Example:
        >>> crowded_partitions(["a", "a", "b"], ["a"], 2)
        frozenset({'a'})
    """
    counts = Counter(opened)
    before = Counter(path for path in small if path in counts)
    return frozenset(path for path, count in counts.items() if count + before[path] > most)
