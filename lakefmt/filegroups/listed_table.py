"""What a handle has listed of its table with one request, and what that still tells (effects on reading only).

A small table is listed as a whole: its timeline and its files. The answer need not be of one moment, so one of them is not
believed. Two of them, one after the other, with the same timeline tell the files of that timeline. Let a page be of one moment,
or be read in the order of its keys:

* a file of a commit that both have is in the second one, or was removed before that came to it;
* the first one has the files that were there when it came to them, and what was removed since then was removed by an instant
  that the second timeline would have, because that was requested before the first file went;
* of a partition that sorts before ``.hoodie`` the files are read before the timeline: of those it is the second listing that has
  every file, and its own timeline would have the instant that removed one.

So the files of both together are those of the timeline, and some that no commit has or that nothing needs any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial

from lakefmt.data_classes import dataclass
from lakefmt.filegroups.listing import KeptFiles
from lakefmt.storage.api import ObjectInfo, ObjectStore, SupportsTrees
from lakefmt.storage.table_directory import KeptDirectory, SmallObjects, TableDirectory
from lakefmt.timeline.timeline import Timeline

__all__ = ["KnownFiles", "ListedTable"]


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files of a timeline, as listings of the whole table told them.

    Attributes:
        objects: what is not below ``.hoodie``, by name.
        timeline: as it was found with them and again after that; None: it has to be listed again.
    """

    objects: dict[str, ObjectInfo]
    timeline: Timeline | None


@dataclass
class ListedTable:
    """The listings of one table's handle.

    Attributes:
        store: the table's store.
        kept: the listing that the timeline loaded last was taken from.
    """

    store: ObjectStore
    kept: KeptDirectory = field(default_factory=KeptDirectory)

    def __post_init__(self) -> None:
        self._objects = SmallObjects(self.store) if isinstance(self.store, SupportsTrees) else None
        #: The files of partitions that were listed one by one.
        self.files = KeptFiles(self.store)
        #: Whether one request can list many directories, and whether the whole table is known to take more than one.
        self.lists_at_once, self.is_large = self._objects is not None, False
        self._newest: TableDirectory | None = None
        #: The newest listing of the whole table that has ended, and the timeline in it.
        self.whole: tuple[Timeline, TableDirectory] | None = None
        self._proven: tuple[Timeline, KnownFiles] | None = None

    def list_directory(self) -> TableDirectory | None:
        """List what is below ``.hoodie`` with one request; None: its parts are to be listed one by one."""
        return None if self._objects is None else self._objects.list_directory()

    def list_table(self) -> TableDirectory | None:
        """List the whole table with one request; None: it takes more, and is not tried again."""
        if self._objects is None or self.is_large:
            return None
        directory = self._objects.list_table()
        self.is_large = directory is None
        return directory

    def small_objects(self, directory: TableDirectory | None) -> Callable[[str, int], bytes]:
        """Return what reads an object of at most that many bytes, or has its bytes where `directory` shows them unchanged."""
        return self.store.read if self._objects is None else partial(self._objects.read, directory=directory)

    def keep_written(self, name: str, data: bytes) -> None:
        """Keep a small object that was just put: it is not read while a listing shows that it is the same."""
        if self._objects is not None:
            self._objects.keep_written(name, data)

    def read_newest(self, name: str, max_bytes: int) -> bytes:
        """Return the bytes of a small object, by the newest listing where that shows what was read or put before.

        Raises:
            ObjectNotFound: the object does not exist.
            CorruptFile: it is larger.
        """
        return self.small_objects(self._newest)(name, max_bytes)

    def keep(
        self, timeline: Timeline, directory: TableDirectory, before: tuple[Timeline, TableDirectory] | None = None
    ) -> None:
        """Keep a listing, and the timeline that was taken from it.

        Args:
            timeline: what was taken from it.
            directory: the listing.
            before: what :attr:`whole` was when it began.
        """
        self.kept.keep(timeline, directory)
        self._newest = directory
        if directory.is_whole:
            self.whole = (timeline, directory)
            files = None if before is None else _joined(before, timeline, directory)
            self._proven = None if files is None else (timeline, files)

    def files_of(self, timeline: Timeline, read: Callable[[TableDirectory], Timeline]) -> KnownFiles | None:
        """Return, once, the files of a timeline that was taken from a listing of the whole table; None: it was not.

        Where one listing alone has that timeline, the table is listed again.

        Args:
            timeline: that very object.
            read: takes the timeline from a listing.
        """
        joined, first = self._proven, self.whole
        if joined is not None and joined[0] is timeline:
            self._proven = None
            return joined[1]
        if first is None or first[0] is not timeline:
            return None
        directory = self.list_table()
        if directory is None:
            return None
        now = read(directory)
        self.whole = (now, directory)
        return _joined(first, now, directory) or KnownFiles(directory.outside(), None)


def _joined(first: tuple[Timeline, TableDirectory], timeline: Timeline, directory: TableDirectory) -> KnownFiles | None:
    """Return the files of two listings that have one timeline; None: they have not."""
    if first[0] != timeline:
        return None
    return KnownFiles({**first[1].outside(), **directory.outside()}, timeline)
