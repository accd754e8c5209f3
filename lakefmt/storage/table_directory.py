"""What is below ``.hoodie``, where one request of an object store tells all of it.

Such a listing replaces those of the timeline, heartbeats, markers and the metadata table that would be made at the same
moment, and shows by its mark whether a small object is still the one that was read before. It counts for the step that
it was made for, as any listing: the next step lists anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakefmt.errors import ObjectNotFound
from lakefmt.storage.api import ObjectInfo, ObjectStore, SupportsNames, SupportsTrees, Version, with_versions

__all__ = ["KeptDirectory", "SmallObjects", "TableDirectory", "list_names"]

TABLE_DIRECTORY = ".hoodie"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class TableDirectory:
    """The objects below ``.hoodie`` at one moment.

    Attributes:
        objects: by the directory that they are directly inside.
    """

    objects: dict[str, list[ObjectInfo]]

    @classmethod
    def of(cls, listed: Iterable[ObjectInfo]) -> TableDirectory:
        """Return the directory with these objects.

        Example:
            >>> directory = TableDirectory.of([ObjectInfo(".hoodie/.temp/1/p/x", 0), ObjectInfo(".hoodie/a", 1)])
            >>> [info.name for info in directory.inside(".hoodie")], directory.directories(".hoodie/.temp")
            (['.hoodie/a'], ['.hoodie/.temp/1'])
        """
        objects: dict[str, list[ObjectInfo]] = {}
        for info in listed:
            objects.setdefault(info.name.rpartition("/")[0], []).append(info)
        return cls(objects)

    def inside(self, directory: str) -> list[ObjectInfo]:
        """Return the objects directly inside a directory."""
        return self.objects.get(directory, [])

    def directories(self, directory: str) -> list[str]:
        """Return the directories directly inside a directory, relative to the table."""
        start = f"{directory}/"
        below = {name[len(start) :].partition("/")[0] for name in self.objects if name.startswith(start)}
        return sorted(start + name for name in below)

    def has_objects(self, directory: str) -> bool:
        """Return whether anything is below a directory."""
        return directory in self.objects or bool(self.directories(directory))

    def info(self, name: str) -> ObjectInfo | None:
        """Return an object's size and mark, None if it does not exist."""
        return next((info for info in self.inside(name.rpartition("/")[0]) if info.name == name), None)


def list_names(store: ObjectStore, directory: str, listed: TableDirectory | None) -> list[str]:
    """Return the names directly inside a directory, without it.

    Args:
        store: the table's store.
        directory: somewhere below ``.hoodie``.
        listed: all that is there; None: the directory is listed now.
    """
    if listed is None and isinstance(store, SupportsNames):
        return store.list_names(directory)
    objects = store.list(directory, recursive=False) if listed is None else listed.inside(directory)
    return [info.name.rpartition("/")[2] for info in objects]


@dataclass
class KeptDirectory:
    """A listing of ``.hoodie`` that counts once more: for the files of the state that was taken from it."""

    _kept: tuple[object, TableDirectory] | None = None

    def keep(self, state: object, directory: TableDirectory) -> None:
        """Keep the listing that a state was taken from, in the place of the one before."""
        self._kept = (state, directory)

    def take(self, state: object) -> TableDirectory | None:
        """Return, once, the listing that this very state was taken from; None: there is none."""
        kept = self._kept
        if kept is None or kept[0] is not state:
            return None
        self._kept = None
        return kept[1]


@dataclass
class SmallObjects:
    """Lists ``.hoodie``; small objects are not read again while such a listing shows that they are the same.

    Attributes:
        store: the table's store.
    """

    store: ObjectStore
    _versions: dict[str, Version] = field(default_factory=dict)
    _is_listed_by_parts: bool = False

    def list_directory(self) -> TableDirectory | None:
        """List what is below ``.hoodie`` with one request; None: it takes more, and is not tried again."""
        if self._is_listed_by_parts or not isinstance(self.store, SupportsTrees):
            return None
        listed = self.store.list_tree(TABLE_DIRECTORY)
        self._is_listed_by_parts = listed is None
        return None if listed is None else TableDirectory.of(listed)

    def read(self, name: str, max_bytes: int, directory: TableDirectory | None = None) -> bytes:
        """Return the bytes of an object as it is now, or as it was when `directory` was listed.

        Raises:
            ObjectNotFound: the object does not exist.
            CorruptFile: the object exceeds `max_bytes`.
        """
        if directory is not None:
            info, version = directory.info(name), self._versions.get(name)
            if info is None:
                raise ObjectNotFound(f"there is no object {name!r} in {self.store.url}")
            if version is not None and (info.mark, info.size) == (version.mark, len(version.data)):
                return version.data
        versions = with_versions(self.store)
        if versions is None:
            return self.store.read(name, max_bytes)
        version = versions.read_version(name, max_bytes)
        if version is None:
            raise ObjectNotFound(f"there is no object {name!r} in {self.store.url}")
        if version.mark and len(version.data) <= _MOST_BYTES:
            self._versions[name] = version
        return version.data
