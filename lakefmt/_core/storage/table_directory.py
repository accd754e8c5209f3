"""What is below ``.hoodie``, or in the whole of a small table, where one request of an object store tells all of it.

Such a listing replaces those of the timeline, heartbeats, markers and the metadata table that would be made at the same
moment, and shows by its mark whether a small object is still the one that was read before. It counts for the step that
it was made for, as any listing: the next step lists anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from hashlib import md5

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import (
    ObjectInfo,
    ObjectStore,
    SupportsNames,
    SupportsTrees,
    Version,
    with_versions,
)
from lakefmt.errors import ObjectNotFound

__all__ = [
    "KeptDirectory",
    "SmallObjects",
    "TableDirectory",
    "list_names",
]

TABLE_DIRECTORY = ".hoodie"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class TableDirectory:
    """The objects below ``.hoodie``, or those of the whole table, as one request tells them.

    Attributes:
        objects: by the directory that they are directly inside.
        is_whole: they are those of the whole table.
    """

    objects: dict[str, list[ObjectInfo]]
    is_whole: bool = False

    @classmethod
    def of(cls, listed: Iterable[ObjectInfo], *, is_whole: bool = False) -> TableDirectory:
        """Return the directory with these objects.

        Example:
            >>> directory = TableDirectory.of([ObjectInfo(".hoodie/.temp/1/p/x", 0), ObjectInfo(".hoodie/a", 1)])
            >>> [info.name for info in directory.inside(".hoodie")], directory.directories(".hoodie/.temp")
            (['.hoodie/a'], ['.hoodie/.temp/1'])
        """
        objects: dict[str, list[ObjectInfo]] = {}
        for info in listed:
            objects.setdefault(info.name.rpartition("/")[0], []).append(info)
        return cls(objects, is_whole)

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

    def outside(self) -> dict[str, ObjectInfo]:
        """Return by name what is not below ``.hoodie``: the partitions and their files.

        Example:
            >>> listed = [ObjectInfo("p/a", 0), ObjectInfo("b", 0), ObjectInfo(".hoodie/.temp/x", 0)]
            >>> list(TableDirectory.of(listed, is_whole=True).outside())
            ['p/a', 'b']
        """
        start = f"{TABLE_DIRECTORY}/"
        inside = (infos for name, infos in self.objects.items() if not f"{name}/".startswith(start))
        return {info.name: info for infos in inside for info in infos}


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
        cached_listing = self._kept
        if cached_listing is None or cached_listing[0] is not state:
            return None
        self._kept = None
        return cached_listing[1]


@dataclass
class SmallObjects:
    """Lists ``.hoodie``; small objects are not read again while such a listing shows that they are the same.

    Attributes:
        store: the table's store.
    """

    store: ObjectStore
    _versions: dict[str, Version] = field(default_factory=dict)
    _written: dict[str, bytes] = field(default_factory=dict)
    _is_listed_by_parts: bool = False

    def list_table(self) -> TableDirectory | None:
        """List the whole table with one request; None: it takes more."""
        listed = self.store.list_tree("") if isinstance(self.store, SupportsTrees) else None
        return None if listed is None else TableDirectory.of(listed, is_whole=True)

    def list_directory(self) -> TableDirectory | None:
        """List what is below ``.hoodie`` with one request; None: it takes more, and is not tried again."""
        if self._is_listed_by_parts or not isinstance(self.store, SupportsTrees):
            return None
        listed = self.store.list_tree(TABLE_DIRECTORY)
        self._is_listed_by_parts = listed is None
        return None if listed is None else TableDirectory.of(listed)

    def keep_written(self, name: str, data: bytes) -> None:
        """Keep what was just put: it is not read while its mark in a listing is the MD5 digest of it, as S3's ETag is."""
        self._written[name] = data

    def _is_written(self, info: ObjectInfo, data: bytes) -> bool:
        return info.size == len(data) and info.mark.strip('"') == md5(data, usedforsecurity=False).hexdigest()

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
            written = self._written.get(name)
            if written is not None and self._is_written(info, written):
                self._versions[name] = Version(written, info.mark)
                return written
        versions = with_versions(self.store)
        if versions is None:
            return self.store.read(name, max_bytes)
        version = versions.read_version(name, max_bytes)
        if version is None:
            raise ObjectNotFound(f"there is no object {name!r} in {self.store.url}")
        if version.mark and len(version.data) <= _MOST_BYTES:
            self._versions[name] = version
        return version.data
