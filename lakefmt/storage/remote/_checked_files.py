"""Files of fsspec as Arrow reads them: every range whole or an error, and every error one of lakefmt's (effects).

A driver may return less than it was asked for when a connection was cut, and raises its client library's errors. Arrow takes
the first for the end of the file, so that a good file looks damaged, and passes the second on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from lakefmt.errors import LakefmtError
from lakefmt.storage.arrow_lifetime import track_arrow_use
from lakefmt.storage.remote.client_errors import check_length

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["CheckedHandler", "RangedObjects"]

T = TypeVar("T")

#: Makes an error of lakefmt's of what a client library raised, what was being done, and the name.
Failure = Callable[[Exception, str, str], LakefmtError]

#: Pauses before a range that came too short is asked for again; most drivers repeat their requests by themselves.
_PAUSES: Final = (0.0, 0.1, 0.3)


#: Fetched when a file is opened: as long as one more request would take, and more than a footer has.
_END_BYTES: Final = 256 * 1024
#: Of all small files that are kept between two opens.
_SMALL_BYTES: Final = 32 * 2**20


class RangedObjects(Protocol):
    """What a service offers when it is asked for ranges without a driver's file in between."""

    def get_end(self, name: str, length: int) -> tuple[bytes, int]:
        """Return the last `length` bytes of an object, or all of a smaller one, and its size."""
        ...

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return that range of an object, whole."""
        ...


class CheckedHandler(pafs.FSSpecHandler):  # type: ignore[misc]  # pyarrow is untyped
    """Arrow's own handler, but every range is fetched as asked: reading ahead fits neither footers nor columns."""

    def __init__(
        self, fs: AbstractFileSystem, prefix: str, failure: Failure, ranged: RangedObjects | None = None
    ) -> None:
        super().__init__(fs)
        self._prefix = prefix
        self._failure = failure
        self._ranged = ranged
        self._small = _SmallFiles()

    def get_file_info(self, paths: Iterable[str]) -> list[pafs.FileInfo]:
        """Return what is known of each path."""
        paths = list(paths)
        return self._ask("look at", ", ".join(paths), lambda: super(CheckedHandler, self).get_file_info(paths))

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return what is below a directory."""
        ask = super().get_file_info_selector
        return self._ask("list", selector.base_dir, lambda: ask(selector))

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading at random."""
        if self._ranged is not None and path.startswith(self._prefix):
            return self._checked(path, partial(self._open_ranges, self._ranged, path.removeprefix(self._prefix)))
        return self._checked(path, lambda: self.fs.open(path, mode="rb", cache_type="none"))

    def _open_ranges(self, objects: RangedObjects, name: str) -> _RangeFile:
        content = self._small.take(name)
        if content is not None:
            return _RangeFile(objects, name, content, len(content))
        end, size = objects.get_end(name, _END_BYTES)
        if len(end) == size:
            self._small.keep(name, end)
        return _RangeFile(objects, name, end, size)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading from its beginning: here reading ahead is right."""
        return self._checked(path, lambda: self.fs.open(path, mode="rb"))

    def _checked(self, path: str, open_file: Callable[[], Any]) -> pa.NativeFile:
        file = self._ask("open", path, open_file)
        return pa.PythonFile(track_arrow_use(_CheckedFile(file, path, self._ask)), mode="r")

    def _ask(self, doing: str, path: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except (LakefmtError, FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise  # Arrow and its callers know these words
        except Exception as error:  # noqa: BLE001 - client libraries raise what they like
            failure = self._failure(error, doing, path)
        # Raised out here, so that the original, whose text may hold what must not be shown, is not chained to it.
        raise failure


class _SmallFiles:
    """Small data files that were read whole when they were opened: the next open, often for rows behind a footer, takes them.

    Data files do not change under their name. What is taken is no longer kept, and what is not taken is bounded.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._contents: dict[str, bytes] = {}
        self._held_bytes = 0

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file's content for the next open."""
        with self._lock:
            if name.endswith(".parquet") and self._held_bytes + len(content) <= _SMALL_BYTES:
                self._held_bytes += len(content) - len(self._contents.get(name, b""))
                self._contents[name] = content

    def take(self, name: str) -> bytes | None:
        """Return a file's content, which is no longer kept then, or None."""
        with self._lock:
            content = self._contents.pop(name, None)
            self._held_bytes -= len(content or b"")
            return content


class _RangeFile:
    """An object whose end is at hand, with its footer or, of a small one, all of it; other ranges are requests of their own."""

    def __init__(self, objects: RangedObjects, name: str, end: bytes, size: int) -> None:
        self._objects = objects
        self._name = name
        self._end = end
        self._position = 0
        self.size = size
        self.closed = False

    def seek(self, offset: int) -> None:
        self._position = offset

    def read(self, length: int) -> bytes:
        start, stop = self._position, min(self._position + length, self.size)
        first = self.size - len(self._end)  # of what is at hand
        data = self._end[max(0, start - first) : max(0, stop - first)]
        if start < min(stop, first):
            wanted = min(stop, first) - start
            before = self._objects.get_range(self._name, start, wanted)
            data = before + data if len(before) == wanted else before
        self._position += len(data)
        return data

    def close(self) -> None:
        self.closed = True
        self._end = b""


class _CheckedFile:
    """A file of fsspec of known size, read by whole ranges."""

    def __init__(self, file: Any, path: str, ask: Callable[[str, str, Callable[[], Any]], Any]) -> None:
        self._file = file
        self._path = path
        self._ask = ask
        self._position = 0
        self._size: int = ask("look at", path, self._find_size)

    def _find_size(self) -> int:
        size = getattr(self._file, "size", None)
        return int(size) if isinstance(size, int) else int(self._file.seek(0, 2))

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._file.closed)

    def close(self) -> None:
        """Close it; twice is fine."""
        self._file.close()

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read at random."""
        return True

    def writable(self) -> bool:
        """Return that it cannot be written."""
        return False

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place; nothing is asked for."""
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def read(self, length: int | None = None) -> bytes:
        """Return the next `length` bytes, fewer only at the end of the file.

        Raises:
            StorageError: the store failed, or gave less than that again and again.
        """
        rest = max(0, self._size - self._position)
        wanted = rest if length is None or length < 0 else min(length, rest)
        data: bytes = self._ask("read", self._path, lambda: self._range(wanted)) if wanted else b""
        self._position += len(data)
        return data

    def _range(self, wanted: int) -> bytes:
        data = b""
        for pause in _PAUSES:
            if pause:
                time.sleep(pause)
            self._file.seek(self._position + len(data))
            while len(data) < wanted and (part := self._file.read(wanted - len(data))):
                data = data + part if data else part
            if len(data) == wanted:
                return data
        return check_length(data, wanted, self._path)
