"""A store over fsspec: S3, Google Cloud Storage, Azure and whatever else has an fsspec driver.

Nothing is answered from a cache: listings are not kept, sizes are asked for anew, and Arrow's reads go straight to
the store. (Footers of Parquet files that this process writes are kept until they are asked for.) There is no rename; an
object appears whole because the service works that way, and where it does not (`capabilities.put_if_absent` is false) only
one writer may be at work.

A driver may return less than it was asked for when a connection was cut, and raises its client library's errors. Arrow
takes the first for the end of the file, so that a good file looks damaged, and passes the second on. So Arrow reads through
files of this module: every range whole or an error, and every error one of lakefmt's.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import logging
import os
import secrets
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import pyarrow.fs as pafs

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.storage.api import (
    TEMPORARY_PREFIX,
    Buffer,
    Capabilities,
    CasResult,
    ObjectInfo,
    PutOutcome,
    Version,
    as_bytes,
    directory_name,
    is_addressable,
    is_temporary,
    object_name,
    object_names,
)
from lakefmt._core.storage.arrow_filesystem import track_arrow_use
from lakefmt._core.storage.messages import Redactor, is_full, os_failure, printable_url
from lakefmt._core.storage.remote_clients import (
    Payload,
    check_length,
    describe,
    is_throttled,
    is_transient,
    is_transient_word,
    misspelt,
    unknown_option,
)
from lakefmt._core.storage.remote_fsspec import AzureObjects, FsspecObjects, GcsObjects
from lakefmt._core.storage.remote_s3 import S3Objects
from lakefmt.errors import CorruptFile, LakefmtError, ObjectNotFound, StateError, StorageError, UnsupportedFeature

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = [
    "CheckedHandler",
    "RangedObjects",
    "RemoteStore",
    "WrittenFooters",
    "read_footer",
]

T = TypeVar("T")
#: Makes an error of lakefmt's of what a client library raised, what was being done, and the name.
Failure = Callable[[Exception, str, str], LakefmtError]
_log = logging.getLogger("lakefmt.storage")
#: One record for each request, at DEBUG.
_requests = logging.getLogger("lakefmt.requests")

_PARQUET_MAGIC: Final = b"PAR1"
_LENGTH_AND_MAGIC: Final = 8
_MOST_FOOTER_BYTES: Final = 8 << 20


def read_footer(file: BinaryIO, size: int) -> bytes | None:
    """Return the end of a Parquet file from the first byte of its footer on; None for another file, or a very large footer."""
    if size <= 2 * _LENGTH_AND_MAGIC:
        return None
    file.seek(size - _LENGTH_AND_MAGIC)
    end = file.read(_LENGTH_AND_MAGIC)
    length = int.from_bytes(end[:4], "little") + _LENGTH_AND_MAGIC
    if end[4:] != _PARQUET_MAGIC or length > min(size, _MOST_FOOTER_BYTES // 4):
        return None
    file.seek(size - length)
    return file.read(length)


class WrittenFooters:
    """The footers of the files that were put last, up to 8 MiB; each is handed out once.

    Example:
        >>> footers = WrittenFooters()
        >>> footers.keep("a", b"footer")
        >>> footers.take("a"), footers.take("a")
        (b'footer', None)
    """

    def __init__(self) -> None:
        self._footers: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def keep(self, name: str, footer: bytes) -> None:
        """Keep a footer."""
        with self._lock:
            self._footers[name] = footer
            self._bytes += len(footer)
            while self._bytes > _MOST_FOOTER_BYTES:
                self._bytes -= len(self._footers.popitem(last=False)[1])

    def take(self, name: str) -> bytes | None:
        """Return a footer and forget it; None: there is none."""
        with self._lock:
            footer = self._footers.pop(name, None)
            self._bytes -= len(footer or b"")
            return footer


#: Pauses before a range that came too short is asked for again; most drivers repeat their requests by themselves.
_SHORT_READ_PAUSES: Final = (0.0, 0.1, 0.3)


#: Fetched when a file is opened: as long as one more request would take, and more than a footer has.
_FETCHED_END_BYTES: Final = 256 * 1024
#: Of all small files that are kept between two opens.
_KEPT_SMALL_FILE_BYTES: Final = 32 * 2**20


class RangedObjects(Protocol):
    """The reads of byte ranges that a service offers without a driver's file object."""

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
        end, size = objects.get_end(name, _FETCHED_END_BYTES)
        if len(end) == size:
            self._small.keep(name, end)
        return _RangeFile(objects, name, end, size)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading from its beginning: here reading ahead is right."""
        return self._checked(path, lambda: self.fs.open(path, mode="rb"))

    def _checked(self, path: str, open_file: Callable[[], object]) -> pa.NativeFile:
        file = self._ask("open", path, open_file)
        return pa.PythonFile(track_arrow_use(_CheckedFile(file, path, self._ask)), mode="r")

    def _ask(self, doing: str, path: str, act: Callable[[], T]) -> T:
        answer = run_foreign(act)
        if not isinstance(answer, Raised):
            return answer
        if isinstance(answer.error, LakefmtError | FileNotFoundError | IsADirectoryError | NotADirectoryError):
            raise answer.error  # Arrow and its callers know these words
        # The original, whose text may hold what must not be shown, is not chained to it.
        raise self._failure(answer.error, doing, path)


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
            if name.endswith(".parquet") and self._held_bytes + len(content) <= _KEPT_SMALL_FILE_BYTES:
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
            num_bytes = min(stop, first) - start
            before = self._objects.get_range(self._name, start, num_bytes)
            data = before + data if len(before) == num_bytes else before
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
        """Move the position; send no request."""
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def read(self, length: int | None = None) -> bytes:
        """Return the next `length` bytes, fewer only at the end of the file.

        Raises:
            StorageError: the store failed, or gave less than that again and again.
        """
        rest = max(0, self._size - self._position)
        num_bytes = rest if length is None or length < 0 else min(length, rest)
        data: bytes = self._ask("read", self._path, lambda: self._range(num_bytes)) if num_bytes else b""
        self._position += len(data)
        return data

    def _range(self, num_bytes: int) -> bytes:
        data = b""
        for pause in _SHORT_READ_PAUSES:
            if pause:
                time.sleep(pause)
            self._file.seek(self._position + len(data))
            while len(data) < num_bytes and (part := self._file.read(num_bytes - len(data))):
                data = data + part if data else part
            if len(data) == num_bytes:
                return data
        return check_length(data, num_bytes, self._path)


#: Services that are asked for more than every file system of fsspec can do.
_OBJECTS_OF_SCHEME: Final[Mapping[str, Callable[[AbstractFileSystem, str], RemoteObjects]]] = {
    "s3": S3Objects,
    "s3a": S3Objects,
    "gs": GcsObjects,
    "gcs": GcsObjects,
    "abfs": AzureObjects,
    "abfss": AzureObjects,
    "az": AzureObjects,
}


class RemoteObjects(Protocol):
    """The operations that a service offers; names are relative, errors are the client library's own."""

    conditional: bool
    directories: bool

    def get(self, name: str, limit: int | None) -> bytes: ...

    def head(self, name: str) -> ObjectInfo | None: ...

    def pages(self, prefix: str, recursive: bool) -> Iterator[tuple[list[ObjectInfo], list[str]]]: ...

    def put(self, name: str, payload: Payload) -> None: ...

    def create(self, name: str, payload: Payload) -> PutOutcome: ...

    def remove(self, names: list[str]) -> dict[str, str]: ...

    def remove_tree(self, prefix: str) -> dict[str, str]: ...

    def make_directory(self, name: str) -> None: ...


@runtime_checkable
class VersionedObjects(Protocol):
    """What a service offers beside :class:`RemoteObjects` when it compares and swaps."""

    versioned: bool

    def get_version(self, name: str, limit: int) -> Version | None: ...

    def replace(self, name: str, payload: Payload, mark: str) -> CasResult: ...


class RemoteStore:
    """Objects below `root` of an fsspec file system.

    `fs` is the file system, which keeps no listings; `root` its path of the base (``bucket/table``); `url`
    the base for people, made from both when it is not given.

    Example:
        >>> from fsspec.implementations.memory import MemoryFileSystem
        >>> store = RemoteStore(MemoryFileSystem(skip_instance_cache=True), "/doctest")
        >>> store.put("a", b"x")
        >>> store.read("a"), store.capabilities.put_if_absent
        (b'x', False)
    """

    def __init__(self, fs: AbstractFileSystem, root: str, *, url: str | None = None) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        protocols = [fs.protocol] if isinstance(fs.protocol, str) else list(fs.protocol)
        self._url = printable_url(url or f"{protocols[0]}://{self._root.lstrip('/')}").rstrip("/")
        self._redact = Redactor(getattr(fs, "storage_options", {}))
        if hasattr(fs, "dircache"):
            fs.dircache.use_listings_cache = False
        fs.invalidate_cache()
        objects_class = next(
            (_OBJECTS_OF_SCHEME[protocol] for protocol in protocols if protocol in _OBJECTS_OF_SCHEME), FsspecObjects
        )
        self._objects: RemoteObjects = objects_class(fs, self._root)
        self._written = WrittenFooters()
        if not self._objects.conditional:
            _log.warning(
                "%s cannot put objects only if they are absent: one writer at a time, or commits are lost", self._url
            )

    def __repr__(self) -> str:
        return f"RemoteStore({self._url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store is not pickled: reopen it with open_store on the other side")

    @property
    def url(self) -> str:
        """The base without user information, query or options."""
        return self._url

    @property
    def capabilities(self) -> Capabilities:
        """What the service promises: objects are durable once a put has returned."""
        has_directories = self._objects.directories
        # Of the clients of file servers not all take several threads: they are asked one thing after the other.
        return Capabilities(
            self._objects.conditional, has_directories, not has_directories, low_latency=has_directories
        )

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return a whole object; of one larger than `max_bytes` no more than that is fetched.

        Raises:
            ObjectNotFound: there is none.
            CorruptFile: it is larger than `max_bytes`.
            StorageError: the store failed.
        """
        limit = None if max_bytes is None else max_bytes + 1
        data = self._ask("read", object_name(name), lambda: self._get(name, limit))
        if data is None:
            raise ObjectNotFound(f"there is no object {name!r} in {self.url}")
        if max_bytes is not None and len(data) > max_bytes:
            raise CorruptFile(f"{name!r} in {self.url} has more than the {max_bytes:,} bytes expected")
        return data

    def info(self, name: str) -> ObjectInfo | None:
        """Return an object's size and time, or None when there is none.

        Raises:
            StorageError: the store failed.
        """
        return self._ask("look at", object_name(name), lambda: self._objects.head(name))

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Yield the objects below the directory `prefix`, page by page, in no order.

        Raises:
            StorageError: the store failed; what was yielded before is not the whole.
        """
        return self._list(directory_name(prefix), recursive)

    def _list(self, prefix: str, recursive: bool) -> Iterator[ObjectInfo]:
        for objects, _ in self._pages(prefix, recursive):
            # Markers of directories (their keys end with a slash) and other names that no table uses fall away here.
            yield from (info for info in objects if is_addressable(info.name) and not is_temporary(info.name))

    def _pages(self, prefix: str, recursive: bool) -> Iterator[tuple[builtins.list[ObjectInfo], builtins.list[str]]]:
        pages = self._objects.pages(prefix, recursive)
        while True:
            page = self._ask("list", prefix, lambda: next(pages, None))
            if page is None:
                return
            yield page

    def list_directories(self, prefix: str = "") -> builtins.list[str]:
        """Return the names of the directories directly inside `prefix`.

        Raises:
            StorageError: the store failed.
        """
        pages = self._pages(directory_name(prefix), recursive=False)
        return [name for _, directories in pages for name in directories if is_addressable(name)]

    def list_level(self, prefix: str) -> tuple[builtins.list[ObjectInfo], builtins.list[str]]:
        """Return the objects, and the names of the directories, directly inside the directory `prefix`.

        Raises:
            StorageError: the store failed.
        """
        pages = [*self._pages(directory_name(prefix), recursive=False)]
        objects = [
            info for page, _ in pages for info in page if is_addressable(info.name) and not is_temporary(info.name)
        ]
        return objects, [name for _, directories in pages for name in directories if is_addressable(name)]

    def list_tree(self, prefix: str) -> builtins.list[ObjectInfo] | None:
        """Return everything below the directory `prefix` with its ETags; None: one request does not tell it.

        Raises:
            StorageError: the store failed.
        """
        objects = self._objects
        if not isinstance(objects, S3Objects) or not objects.versioned:
            return None
        listed = self._ask("list", directory_name(prefix), lambda: objects.tree(prefix))
        if listed is None:
            return None
        return [info for info in listed if is_addressable(info.name) and not is_temporary(info.name)]

    def take_footer(self, name: str) -> bytes | None:
        """Return the footer of a Parquet file that a writer of this store put lately, once; None: it has to be read."""
        return self._written.take(name)

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return an Arrow file system over fsspec's and the prefix that turns a name into its path there."""
        prefix = f"{self._root}/"
        ranged = self._objects if isinstance(self._objects, S3Objects) else None
        return pafs.PyFileSystem(CheckedHandler(self._fs, prefix, self._failure, ranged)), prefix

    # ------------------------------------------------------------------------------------------------------ writing

    def put_if_absent(self, name: str, data: Buffer, *, durable: bool = False) -> PutOutcome:
        """Create an object whole, unless the name is taken; UNKNOWN when the answer was lost.

        Raises:
            StorageError: the store turned the request down; nothing became visible.
        """
        return self._create(object_name(name), Payload.of(as_bytes(data)))

    def _create(self, name: str, payload: Payload) -> PutOutcome:
        return self._ask("create", name, lambda: self._objects.create(name, payload))

    def put(self, name: str, data: Buffer, *, durable: bool = False) -> None:
        """Create or replace an object whole.

        Raises:
            StorageError: the store failed; when `transient` is set, the object may be the old or the new one.
        """
        payload = Payload.of(as_bytes(data))
        self._ask("write", object_name(name), lambda: self._objects.put(name, payload))

    def create(self, name: str, *, durable: bool = False) -> RemoteObjectWriter:
        """Open a sink for a large object: its bytes wait in a temporary file of this machine, then go up at once."""
        return RemoteObjectWriter(self, object_name(name))

    def make_directories(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Create directories where the service has such things.

        Raises:
            StorageError: the store failed.
        """
        for name in [directory_name(name) for name in names]:
            self._ask("make the directory", name, functools.partial(self._objects.make_directory, name))

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects, many per request; those that are not there are ignored.

        Raises:
            StorageError: at least one could not be removed; the message names it.
        """
        checked = object_names(names)
        if checked:
            self._complain(self._ask("remove", checked[0], lambda: self._objects.remove(checked)))

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below the directory `prefix`.

        Raises:
            StorageError: something could not be removed; the message names it.
        """
        directory_name(prefix)
        self._complain(self._ask("remove the tree", prefix, lambda: self._objects.remove_tree(prefix)))

    def _complain(self, failed: dict[str, str]) -> None:
        if failed:
            name, why = next(iter(failed.items()))
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            transient = all(map(is_transient_word, failed.values()))
            raise StorageError(f"cannot remove {name!r} in {self.url}: {self._redact(why)}{more}", transient=transient)

    @property
    def has_versions(self) -> bool:
        """Whether the service replaces an object only if its ETag, or generation, is still the one that was seen."""
        return isinstance(self._objects, VersionedObjects) and self._objects.versioned

    def read_version(self, name: str, max_bytes: int) -> Version | None:
        """Return an object of at most `max_bytes` bytes with its ETag or generation, None when there is none.

        Raises:
            CorruptFile: it is larger than `max_bytes`.
            StorageError: the store failed.
        """
        objects = self._versioned()
        versioned = self._ask("read", object_name(name), lambda: objects.get_version(name, max_bytes + 1))
        if versioned is not None and len(versioned.data) > max_bytes:
            raise CorruptFile(f"{name!r} in {self.url} has more than the {max_bytes:,} bytes expected")
        return versioned

    def put_if_match(self, name: str, data: Buffer, mark: str | None) -> CasResult:
        """Replace an object if its ETag or generation is still `mark`; with None: create it. UNKNOWN when the answer was lost.

        Raises:
            StorageError: the store turned the request down; nothing was changed.
        """
        if mark is None:
            return CasResult(self.put_if_absent(name, data))
        objects, payload, expected = self._versioned(), Payload.of(as_bytes(data)), mark
        return self._ask("replace", object_name(name), lambda: objects.replace(name, payload, expected))

    def _versioned(self) -> VersionedObjects:
        if isinstance(self._objects, VersionedObjects) and self._objects.versioned:
            return self._objects
        raise UnsupportedFeature(f"{self.url} cannot replace an object only if it is still the one that was seen")

    def prove_put_if_absent(self) -> bool:
        """Try with two puts of one temporary name whether the service keeps its promise; it costs three requests.

        Some services that speak S3 ignore the condition and overwrite; nothing but a try can tell.

        Raises:
            StorageError: the store failed.
        """
        name = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        try:
            self._create(name, Payload.of(b"first"))
            return self._create(name, Payload.of(b"second")) is PutOutcome.REFUSED
        finally:
            self._ask("remove", name, lambda: self._objects.remove([name]))

    def _get(self, name: str, limit: int | None) -> bytes | None:
        try:
            return self._objects.get(name, limit)
        except (FileNotFoundError, IsADirectoryError):
            return None

    def _ask(self, doing: str, name: str, act: Callable[[], T]) -> T:
        """Return what `act` returns; what a client library raises becomes a StorageError without secrets."""
        began = time.perf_counter() if (noted := _requests.isEnabledFor(logging.DEBUG)) else 0.0
        answer = run_foreign(act)
        if noted:
            _requests.debug("%s %r in %s: %.1f ms", doing, name, self.url, (time.perf_counter() - began) * 1000)
        if not isinstance(answer, Raised):
            return answer
        if isinstance(answer.error, LakefmtError):
            raise answer.error
        # The original, whose text may hold what must not be shown, is not chained to it.
        raise self._failure(answer.error, doing, name)

    def _failure(self, error: Exception, doing: str, name: str) -> LakefmtError:
        wrong = misspelt(error, getattr(self._fs, "storage_options", {}))
        if wrong is not None:
            return unknown_option(wrong, frozenset(), self.url.partition("://")[0])
        what = repr(name) if name else "the base"
        why = self._redact(describe(error))
        message = f"cannot {doing} {what} in {self.url}: {why}"
        return StorageError(message, transient=is_transient(error), throttled=is_throttled(error))


class RemoteObjectWriter:
    """A large object of a :class:`RemoteStore` in the making; see :class:`lakefmt._core.storage.api.ObjectWriter`."""

    def __init__(self, store: RemoteStore, name: str) -> None:
        self._store = store
        self._name = name
        self._path = ""
        self._file: BinaryIO | None = None
        self._size: int | None = None

    @property
    def file(self) -> BinaryIO:
        """The writable binary file that takes the bytes."""
        if self._file is None:
            raise StateError("a sink is written to inside its with block")
        return self._file

    @property
    def size(self) -> int:
        """Bytes written so far."""
        if self._size is not None:
            return self._size
        return os.path.getsize(self._path) if self.file.closed else self.file.tell()

    def put_if_absent(self) -> PutOutcome:
        """Give the finished object its name, whole, unless the name is taken; UNKNOWN when the answer was lost.

        Raises:
            StateError: it was called before.
            StorageError: the store turned the request down, or this machine's temporary directory failed.
        """
        if self._size is not None:
            raise StateError(f"the sink of {self._name!r} is finished already")
        payload = self._store._ask("create", self._name, self._close)
        self._size = payload.size
        outcome = self._store._create(self._name, payload)
        if outcome is PutOutcome.DONE and self._name.endswith(".parquet"):
            self._keep_footer(payload.size)
        return outcome

    def _keep_footer(self, size: int) -> None:
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            footer = read_footer(file, size)
            if footer is not None:
                self._store._written.keep(self._name, footer)

    def __enter__(self) -> RemoteObjectWriter:
        # Not a nameless file: some writers close the file they were given, which would be its end.
        descriptor, self._path = self._store._ask("buffer", self._name, lambda: tempfile.mkstemp(prefix="lakefmt-"))
        self._file = os.fdopen(descriptor, "wb")
        return self

    def _close(self) -> Payload:
        self.file.close()
        return Payload.of_file(self._path)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        if is_full(error):
            raise os_failure(error, "buffer", self._name, tempfile.gettempdir()) from error
