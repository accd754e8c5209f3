"""A bounded, thread-safe LRU cache of values read from immutable files, keyed by partition, name and size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Generic, TypeVar

from lakefmt.filegroups.model import BaseFile
from lakefmt.values import PartitionPath

__all__ = ["Kept"]

T = TypeVar("T")

#: Partition, name and size of a file.
_Name = tuple[PartitionPath, str, int]


class Kept(Generic[T]):
    """A bounded LRU cache of values read from immutable files; thread-safe.

    Args:
        most: the maximum total weight.

    Example:
        >>> from lakefmt.filegroups.model import parse_files
        >>> from lakefmt.storage.api import ObjectInfo
        >>> (file,), _ = parse_files(PartitionPath("p"), [ObjectInfo("p/f-0_1-0-0_20260101000000000.parquet", 9)])
        >>> kept = Kept[str](most=100)
        >>> kept.keep(file, "footer", 10)
        >>> kept.get(file), len(kept)
        ('footer', 1)
        >>> kept.forget_absent([PartitionPath("p")], [])
        >>> kept.get(file), kept.weight
        (None, 0)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.weight = 0
        self._values: OrderedDict[_Name, tuple[T, int, PartitionPath]] = OrderedDict()
        self._names_by_partition: dict[PartitionPath, set[_Name]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, file: BaseFile) -> T | None:
        """Return the cached value of a file, or None."""
        name = (file.partition, file.name, file.size)
        with self._lock:
            if name not in self._values:
                return None
            self._values.move_to_end(name)
            return self._values[name][0]

    def keep(self, file: BaseFile, value: T, weight: int) -> None:
        """Cache the value of a file if it fits."""
        name = (file.partition, file.name, file.size)
        with self._lock:
            # Another thread may have read the same file. A value larger than the cache would evict all
            # others.
            if name in self._values or weight > self.most:
                return
            self._values[name] = (value, weight, file.partition)
            self._names_by_partition.setdefault(file.partition, set()).add(name)
            self.weight += weight
            while self.weight > self.most:
                self._drop(next(iter(self._values)))

    def forget_absent(self, partitions: Collection[PartitionPath] | None, present: Iterable[BaseFile]) -> None:
        """Drop the values of files that a listing did not return: a clean removed them.

        Args:
            partitions: the listed partitions; None: the whole table.
            present: the files in the listing.
        """
        with self._lock:
            listed = [
                p
                for p in (self._names_by_partition if partitions is None else partitions)
                if p in self._names_by_partition
            ]
            if not listed:
                return
            looked_into = set(listed)
            there = {(file.partition, file.name, file.size) for file in present if file.partition in looked_into}
            for partition in listed:
                for name in self._names_by_partition.get(partition, set()) - there:
                    self._drop(name)

    def _drop(self, name: _Name) -> None:
        _, weight, partition = self._values.pop(name)
        self.weight -= weight
        self._names_by_partition[partition].discard(name)
        if not self._names_by_partition[partition]:
            del self._names_by_partition[partition]
