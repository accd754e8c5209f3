"""A read-only Arrow file system over an object store.

The interpreter's exit waits until Arrow's threads have released their Python objects (:func:`wait_for_arrow`). An Arrow
thread reports its last rows before it releases the file and the file system that it read. Releasing a Python object needs
the GIL; a finalizing interpreter terminates threads that request it, and terminating a C++ thread this way aborts the
process: "terminate called without an active exception".
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar
from weakref import ref

import pyarrow as pa
import pyarrow.fs as pafs

from lakefmt._core.storage.api import ObjectInfo, ObjectStore, is_addressable, is_temporary
from lakefmt.errors import UnsupportedError

__all__ = [
    "ArrowHandler",
    "arrow_view",
    "track_arrow_use",
    "wait_for_arrow",
]

#: Opens an object by name for random access.
_Opener = Callable[[str], pa.NativeFile]

T = TypeVar("T")

#: Maximum wait: an object that is held longer is kept on purpose; Arrow's threads need
#: microseconds.
_LONGEST_WAIT_SECONDS = 0.5
_PAUSE_SECONDS = 0.0005
_FEWEST_TO_SWEEP = 256

# No callbacks: they could switch threads before the releasing thread is done.
_tracked: dict[int, ref[Any]] = {}
_sweep_at = [_FEWEST_TO_SWEEP]


def track_arrow_use(value: T) -> T:
    """Return an object that is passed to Arrow, and track it by a weak reference.

    Example:
        >>> bytes(track_arrow_use(memoryview(b"columns")))
        b'columns'
    """
    _tracked[id(value)] = ref(value)
    if len(_tracked) > _sweep_at[0]:
        _still_used_by_arrow()
        _sweep_at[0] = max(_FEWEST_TO_SWEEP, 2 * len(_tracked))  # do not scan long-lived entries for each new one
    return value


def _still_used_by_arrow() -> bool:
    # Keys alone: pairs are new objects, and with a new object the collector may run code that tracks others.
    for key in list(_tracked):
        reference = _tracked.get(key)
        # An id may have been reused.
        if reference is not None and reference() is None and _tracked.get(key) is reference:
            _tracked.pop(key, None)
    return bool(_tracked)


def wait_for_arrow(sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic) -> bool:
    """Wait until all tracked objects are released; False if some are not after half a second."""
    end, waited = now() + _LONGEST_WAIT_SECONDS, False
    while _still_used_by_arrow() and now() < end:
        sleep(_PAUSE_SECONDS)  # releases the GIL
        waited = True
    if waited:
        sleep(_PAUSE_SECONDS)  # the last thread may still be releasing it
    return not _tracked


atexit.register(wait_for_arrow)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tracked.clear)  # the parent's threads do not exist here


def arrow_view(store: ObjectStore, opener: _Opener | None = None) -> pafs.FileSystem:
    """Return an Arrow file system over `store`; paths are object names.

    Example:
        >>> from lakefmt._core.storage.memory import MemoryStore
        >>> store = MemoryStore()
        >>> store.put("a", b"hello")
        >>> arrow_view(store).open_input_file("a").read_at(3, 1)
        b'ell'
    """
    return pafs.PyFileSystem(ArrowHandler(store, opener))


class ArrowHandler(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow is untyped
    """Implements Arrow's file system handler with an ObjectStore.

    `opener` opens an object by name; without one, objects are read whole. Tests pass an opener that
    counts, delays or fails reads.
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
        """Return Arrow's type name of this file system."""
        return "lakefmt"

    def normalize_path(self, path: str) -> str:
        """Return the path without a trailing slash."""
        return path.rstrip("/")

    def get_file_info(self, paths: Iterable[str]) -> list[pafs.FileInfo]:
        """Return the file info of each path; invalid names do not exist."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> pafs.FileInfo:
        name = path.rstrip("/")
        if name and not (is_addressable(name) and not is_temporary(name)):
            return pafs.FileInfo(path, pafs.FileType.NotFound)
        info = self._store.info(name) if name else None
        if info is not None:
            return _file_info(info)
        is_directory = not name or next(iter(self._store.list(name)), None) is not None
        return pafs.FileInfo(path, pafs.FileType.Directory if is_directory else pafs.FileType.NotFound)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return the objects and directories below a directory.

        Raises:
            FileNotFoundError: the directory does not exist and the selector does not allow that.
        """
        base = selector.base_dir.rstrip("/")
        files = [_file_info(entry) for entry in self._store.list(base, recursive=selector.recursive)]
        directories = self._directories(base, selector.recursive, [info.path for info in files])
        if base and not files and not directories and not selector.allow_not_found:
            raise FileNotFoundError(base)
        return [*files, *(pafs.FileInfo(name, pafs.FileType.Directory) for name in directories)]

    def _directories(self, base: str, recursive: bool, files: list[str]) -> list[str]:
        if not recursive:
            return list(self._store.list_directories(base))
        start = len(base) + 1 if base else 0
        directories = set()
        for path in files:
            while (path := path.rpartition("/")[0]) and len(path) > start:
                directories.add(path)
        return sorted(directories)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open an object for random access."""
        return self._open(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open an object for sequential reading."""
        return self._open(path)

    def _open(self, path: str) -> pa.NativeFile:
        if self._opener is not None:
            return self._opener(path)
        return pa.BufferReader(track_arrow_use(memoryview(self._store.read(path))))

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UnsupportedError("this view is for reading only: write through the store")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def _file_info(info: ObjectInfo) -> pafs.FileInfo:
    modified = datetime.fromtimestamp(info.modified, UTC) if info.modified else None
    return pafs.FileInfo(info.name, pafs.FileType.File, size=info.size, mtime=modified)
