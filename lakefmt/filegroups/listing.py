"""Where file names come from: the protocol, and the listing of storage (effects).

The metadata table, when it is kept, will be handed in as another :class:`FileListing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lakefmt.filegroups.model import BaseFile, LogFile
from lakefmt.filegroups.view import parse_files
from lakefmt.formats.names import PARTITION_METADATA
from lakefmt.storage.api import ObjectInfo, ObjectStore
from lakefmt.values import PartitionPath

__all__ = ["FileListing", "StorageListing"]


class FileListing(Protocol):
    """Which partitions a table has, and which files are in them (committed or not)."""

    def partitions(self) -> list[PartitionPath]:
        """Return the partition paths, sorted."""
        ...

    def files(self, partitions: Iterable[PartitionPath]) -> tuple[list[BaseFile], list[LogFile]]:
        """Return the files of the partitions named."""
        ...


class StorageListing:
    """Lists the store itself, never from a cache.

    `depth`: number of partition path levels when it is known (spec 2.3), so that a plain ``list`` of directories
    suffices; None walks until partition metadata is found.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def partitions(self) -> list[PartitionPath]:
        """Walk the directories: one is a partition when it holds partition metadata (spec 2.3)."""
        if not self._store.capabilities.directories:
            return self._flat_partitions()
        found: list[PartitionPath] = []
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            if self._store.info(f"{directory}/{PARTITION_METADATA}" if directory else PARTITION_METADATA):
                found.append(PartitionPath(directory))
                continue
            waiting.extend(d for d in self._store.list_directories(directory) if not d.startswith(".hoodie"))
        return sorted(found)

    def _flat_partitions(self) -> list[PartitionPath]:
        suffix = "/" + PARTITION_METADATA
        names = (item.name for item in self._store.list())
        found = [n for n in names if not n.startswith(".hoodie/") and ("/" + n).endswith(suffix)]
        return sorted(PartitionPath(n[: -len(suffix)] if "/" in n else "") for n in found)

    def files(self, partitions: Iterable[PartitionPath]) -> tuple[list[BaseFile], list[LogFile]]:
        """List each partition's directory."""
        bases: list[BaseFile] = []
        logs: list[LogFile] = []
        for partition in partitions:
            inside: Iterable[ObjectInfo] = self._store.list(partition, recursive=False)
            more_bases, more_logs = parse_files(partition, inside)
            bases += more_bases
            logs += more_logs
        return bases, logs
