"""What was read of immutable files and is kept: by name and size, within bounds, as long as the files are there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Generic, TypeVar

from lakefmt.filegroups.model import BaseFile
from lakefmt.values import PartitionPath

__all__ = ["Kept"]

T = TypeVar("T")

_Name = tuple[str, int]


class Kept(Generic[T]):
    """What was read of files lately; what was not asked for longest goes first. Any number of threads may ask.

    Args:
        most: the weight of all that is kept.

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
        self._found: OrderedDict[_Name, tuple[T, int, PartitionPath]] = OrderedDict()
        self._inside: dict[PartitionPath, set[_Name]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, file: BaseFile) -> T | None:
        """Return what is kept of a file."""
        name = (file.path, file.size)
        with self._lock:
            if name not in self._found:
                return None
            self._found.move_to_end(name)
            return self._found[name][0]

    def keep(self, file: BaseFile, value: T, weight: int) -> None:
        """Keep what was read of a file, if it fits."""
        name = (file.path, file.size)
        with self._lock:
            # Two threads may have read the same; one that takes all the room alone would only push the others out.
            if name in self._found or weight > self.most:
                return
            self._found[name] = (value, weight, file.partition)
            self._inside.setdefault(file.partition, set()).add(name)
            self.weight += weight
            while self.weight > self.most:
                self._drop(next(iter(self._found)))

    def forget_absent(self, partitions: Collection[PartitionPath] | None, present: Iterable[BaseFile]) -> None:
        """Drop what is kept of files that a listing did not show: a clean has removed them.

        Args:
            partitions: what was listed; None: the whole table.
            present: the files that are there.
        """
        with self._lock:
            listed = [p for p in (self._inside if partitions is None else partitions) if p in self._inside]
            if not listed:
                return
            looked_into = set(listed)
            there = {(file.path, file.size) for file in present if file.partition in looked_into}
            for partition in listed:
                for name in self._inside.get(partition, set()) - there:
                    self._drop(name)

    def _drop(self, name: _Name) -> None:
        _, weight, partition = self._found.pop(name)
        self.weight -= weight
        self._inside[partition].discard(name)
        if not self._inside[partition]:
            del self._inside[partition]
