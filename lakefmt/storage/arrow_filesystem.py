"""Stores that Arrow has no file system for, shown to Arrow: sizes, listings and ranges, for reading only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NoReturn

import pyarrow as pa
import pyarrow.fs as pafs

from lakefmt.errors import UnsupportedError
from lakefmt.storage.api import ObjectInfo, ObjectStore
from lakefmt.storage.arrow_lifetime import track_arrow_use
from lakefmt.storage.object_names import is_addressable, is_temporary

__all__ = ["ArrowHandler", "arrow_view"]

#: Opens the object of that name for reading at random.
_Opener = Callable[[str], pa.NativeFile]


def arrow_view(store: ObjectStore, opener: _Opener | None = None) -> pafs.FileSystem:
    """Return an Arrow file system whose paths are the names of `store`; see :class:`ArrowHandler`.

    Example:
        >>> from lakefmt.storage.memory import MemoryStore
        >>> store = MemoryStore()
        >>> store.put("a", b"hello")
        >>> arrow_view(store).open_input_file("a").read_at(3, 1)
        b'ell'
    """
    return pafs.PyFileSystem(ArrowHandler(store, opener))


class ArrowHandler(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow is untyped
    """Answers Arrow's questions from an ObjectStore.

    `opener` opens an object by name; without one the object is read whole. Whoever wants ranges counted, delayed or
    failed hands in an opener that does so.
    """

    def __init__(self, store: ObjectStore, opener: _Opener | None = None) -> None:
        self._store = store
        self._opener = opener

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrowHandler) and other._store is self._store

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self._store)

    def get_type_name(self) -> str:
        """Return the name that Arrow shows for this kind of file system."""
        return "lakefmt"

    def normalize_path(self, path: str) -> str:
        """Return the path without the slash that Arrow may put at its end."""
        return path.rstrip("/")

    def get_file_info(self, paths: Iterable[str]) -> list[pafs.FileInfo]:
        """Return what is known of each path; a name that cannot be one is simply not there."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> pafs.FileInfo:
        name = path.rstrip("/")
        if name and not (is_addressable(name) and not is_temporary(name)):
            return pafs.FileInfo(path, pafs.FileType.NotFound)
        found = self._store.info(name) if name else None
        if found is not None:
            return _file_info(found)
        is_directory = not name or next(iter(self._store.list(name)), None) is not None
        return pafs.FileInfo(path, pafs.FileType.Directory if is_directory else pafs.FileType.NotFound)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return the objects and directories below a directory.

        Raises:
            FileNotFoundError: there is nothing (Arrow's own word for it), unless the selector allows that.
        """
        base = selector.base_dir.rstrip("/")
        files = [_file_info(found) for found in self._store.list(base, recursive=selector.recursive)]
        directories = self._directories(base, selector.recursive, [info.path for info in files])
        if base and not files and not directories and not selector.allow_not_found:
            raise FileNotFoundError(base)
        return [*files, *(pafs.FileInfo(name, pafs.FileType.Directory) for name in directories)]

    def _directories(self, base: str, recursive: bool, files: list[str]) -> list[str]:
        if not recursive:
            return list(self._store.list_directories(base))
        start = len(base) + 1 if base else 0
        found = set()
        for path in files:
            while (path := path.rpartition("/")[0]) and len(path) > start:
                found.add(path)
        return sorted(found)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open an object for reading at random."""
        return self._open(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open an object for reading from its beginning."""
        return self._open(path)

    def _open(self, path: str) -> pa.NativeFile:
        if self._opener is not None:
            return self._opener(path)
        return pa.BufferReader(track_arrow_use(memoryview(self._store.read(path))))

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UnsupportedError("this view is for reading only: write through the store")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def _file_info(found: ObjectInfo) -> pafs.FileInfo:
    modified = datetime.fromtimestamp(found.modified, UTC) if found.modified else None
    return pafs.FileInfo(found.name, pafs.FileType.File, size=found.size, mtime=modified)
