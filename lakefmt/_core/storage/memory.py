"""The store in memory, for tests and small work; named ones are shared within the process.

It behaves like an object store: no directories, no durability, put-if-absent under a lock.
"""

from __future__ import annotations

import builtins
import io
import itertools
import threading
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, NoReturn

import pyarrow.fs as pafs

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
    is_temporary,
    object_name,
    object_names,
)
from lakefmt._core.storage.arrow_filesystem import arrow_view
from lakefmt.errors import CorruptFile, ObjectNotFound, StateError

__all__ = ["MemoryStore"]


#: The character that sorts right behind a slash.
_AFTER_SLASH: Final = chr(ord("/") + 1)


class _StoredObject(NamedTuple):
    """A stored object: bytes, modification time, and a unique version number."""

    data: bytes
    modified: float
    number: int


class _Space:
    """The objects of all stores with one name, by full name. Its methods are called under its lock."""

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self.objects: Final[dict[str, _StoredObject]] = {}
        self.numbers: Final = itertools.count()
        # In order: what is below a directory is found without a look at everything that other tables hold.
        self._names: list[str] = []
        self._created: dict[str, int] = {}

    def keep(self, name: str, entry: _StoredObject) -> None:
        """Create or replace an object."""
        if name not in self.objects:
            insort(self._names, name)
            self._created[name] = entry.number
        self.objects[name] = entry

    def drop(self, name: str) -> bool:
        """Remove an object; False if it does not exist."""
        if self.objects.pop(name, None) is None:
            return False
        del self._names[bisect_left(self._names, name)], self._created[name]
        return True

    def below(self, start: str) -> list[str]:
        """Return the names that begin with a text that is empty or ends with a slash, those created first first.

        Names are random, and what depends on their order would be another thing in every process.
        """
        first, end = 0, None
        if start:
            first = bisect_left(self._names, start)
            end = bisect_left(self._names, f"{start[:-1]}{_AFTER_SLASH}", first)
        return sorted(self._names[first:end], key=self._created.__getitem__)


_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()
_anonymous = itertools.count(1)


class MemoryStore:
    """Objects in memory.

    Without a `name` the store is private; with one (``"bucket/some/table"``) it is shared within
    the process: the part before the first slash names the space, the rest a directory in it. `now`
    returns modification times in epoch seconds.

    Example:
        >>> MemoryStore("demo/trips").put("a", b"x")
        >>> MemoryStore("demo").read("trips/a")
        b'x'
    """

    def __init__(self, name: str | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        if name is None:
            self._space, self._base, self._url = _Space(), "", f"memory://#{next(_anonymous)}"
            return
        space, _, below = object_name(name.strip("/")).partition("/")
        with _spaces_lock:
            self._space = _spaces.setdefault(space, _Space())
        self._base = f"{below}/" if below else ""
        self._url = f"memory://{name.strip('/')}"

    def __repr__(self) -> str:
        return f"MemoryStore({self._url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store is not pickled: reopen it with open_store (a memory store is another one elsewhere)")

    @property
    def url(self) -> str:
        """``memory://`` and the name; a store without a name has a unique number."""
        return self._url

    @property
    def capabilities(self) -> Capabilities:
        """Atomic, without directories, lost when the process ends."""
        return Capabilities(put_if_absent=True, directories=False, durable=False, low_latency=True)

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return an object of at most `max_bytes` bytes.

        Raises:
            ObjectNotFound: the object does not exist.
            CorruptFile: the object exceeds `max_bytes`.
        """
        stored = self._space.objects.get(self._base + object_name(name))
        if stored is None:
            raise ObjectNotFound(f"there is no object {name!r} in {self.url}")
        data = stored.data
        if max_bytes is not None and len(data) > max_bytes:
            raise CorruptFile(f"{name!r} in {self.url} has {len(data):,} bytes, at most {max_bytes:,} are expected")
        return data

    def info(self, name: str) -> ObjectInfo | None:
        """Return an object's size and time, None if it does not exist."""
        stored = self._space.objects.get(self._base + object_name(name))
        return None if stored is None else ObjectInfo(name, len(stored.data), stored.modified)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Yield the objects below the directory `prefix` as of the first step, unordered."""
        return self._list(directory_name(prefix), recursive)

    def _list(self, prefix: str, recursive: bool) -> Iterator[ObjectInfo]:
        start = f"{prefix}/" if prefix else ""
        for name, stored in self._below(start):
            if not is_temporary(name) and (recursive or "/" not in name[len(start) :]):
                yield ObjectInfo(name, len(stored.data), stored.modified)

    def _below(self, start: str) -> builtins.list[tuple[str, _StoredObject]]:
        full_prefix, cut = self._base + start, len(self._base)
        with self._space.lock:
            objects = self._space.objects
            return [(name[cut:], objects[name]) for name in self._space.below(full_prefix)]

    def list_directories(self, prefix: str = "") -> builtins.list[str]:
        """Return the directories directly inside `prefix` that contain an object."""
        start = f"{directory_name(prefix)}/" if prefix else ""
        inside = (name[len(start) :].partition("/") for name, _ in self._below(start) if not is_temporary(name))
        return sorted({start + first for first, slash, _ in inside if slash})

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return an Arrow file system over the stored bytes (not copied) and an empty prefix."""
        return arrow_view(self), ""

    # ------------------------------------------------------------------------------------------------------ writing

    def put_if_absent(self, name: str, data: Buffer, *, durable: bool = False) -> PutOutcome:
        """Create an object unless the name is taken."""
        key, value = self._base + object_name(name), self._stored_object(data)
        with self._space.lock:
            if key in self._space.objects:
                return PutOutcome.REFUSED
            self._space.keep(key, value)
        return PutOutcome.DONE

    def put(self, name: str, data: Buffer, *, durable: bool = False) -> None:
        """Create or replace an object."""
        key, value = self._base + object_name(name), self._stored_object(data)
        with self._space.lock:
            self._space.keep(key, value)

    def _stored_object(self, data: Buffer) -> _StoredObject:
        return _StoredObject(as_bytes(data), self._now(), next(self._space.numbers))

    @property
    def has_versions(self) -> bool:
        """True: compare-and-swap runs under one lock."""
        return True

    def read_version(self, name: str, max_bytes: int) -> Version | None:
        """Return an object of at most `max_bytes` bytes with its version, None if it does not exist.

        Raises:
            CorruptFile: the object exceeds `max_bytes`.
        """
        stored = self._space.objects.get(self._base + object_name(name))
        if stored is None:
            return None
        if len(stored.data) > max_bytes:
            raise CorruptFile(f"{name!r} in {self.url} has {len(stored.data):,} bytes, at most {max_bytes:,} expected")
        return Version(stored.data, str(stored.number))

    def put_if_match(self, name: str, data: Buffer, mark: str | None) -> CasResult:
        """Replace an object if its version is `mark`; None: create it unless the name is taken."""
        key, value = self._base + object_name(name), self._stored_object(data)
        with self._space.lock:
            stored = self._space.objects.get(key)
            if (None if stored is None else str(stored.number)) != mark:
                return CasResult(PutOutcome.REFUSED)
            self._space.keep(key, value)
        return CasResult(PutOutcome.DONE, str(value.number))

    def create(self, name: str, *, durable: bool = False) -> MemoryObjectWriter:
        """Open a writer for a large object; it is created only if absent."""
        return MemoryObjectWriter(self, object_name(name))

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; missing ones are ignored."""
        checked = object_names(names)
        with self._space.lock:
            for name in checked:
                self._space.drop(self._base + name)

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below the directory `prefix`."""
        start = self._base + (f"{directory_name(prefix)}/" if prefix else "")
        with self._space.lock:
            for name in self._space.below(start):
                self._space.drop(name)

    def make_directories(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Check the names; this store has no directories."""
        for name in names:
            directory_name(name)

    def remove_leftovers(self, older_than_epoch: float) -> int:
        """Remove temporary objects written before `older_than_epoch` (epoch seconds); return their number."""
        old = [name for name, entry in self._below("") if is_temporary(name) and entry.modified < older_than_epoch]
        with self._space.lock:
            return sum(self._space.drop(self._base + name) for name in old)

    def leave_temporary_object(self, name: str, data: Buffer) -> None:
        """Leave the temporary object of an interrupted put of `name` (for crash tests)."""
        directory, slash, _ = object_name(name).rpartition("/")
        key = f"{self._base}{directory}{slash}{TEMPORARY_PREFIX}{next(self._space.numbers)}"
        value = self._stored_object(data)
        with self._space.lock:
            self._space.keep(key, value)


class MemoryObjectWriter:
    """The writer of a :class:`MemoryStore`; see :class:`lakefmt._core.storage.api.ObjectWriter`."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self._store = store
        self._name = name
        self._file: _KeptBytes | None = None
        self._finished = False

    @property
    def file(self) -> BinaryIO:
        """The binary file to write to."""
        if self._file is None:
            raise StateError("a sink is written to inside its with block")
        return self._file

    @property
    def size(self) -> int:
        """The number of bytes written."""
        return 0 if self._file is None else self._file.size

    def put_if_absent(self) -> PutOutcome:
        """Create the finished object unless the name is taken.

        Raises:
            StateError: called twice, or outside of the with block.
        """
        if self._file is None or self._finished:
            raise StateError(f"the sink of {self._name!r} is finished already, or was not entered")
        self._finished = True
        return self._store.put_if_absent(self._name, self._file.kept())

    def __enter__(self) -> MemoryObjectWriter:
        self._file = _KeptBytes()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


class _KeptBytes(io.BytesIO):
    """A BytesIO whose bytes remain after close: some libraries close the file that they write to."""

    _closed_bytes: bytes | None = None

    @property
    def size(self) -> int:
        return self.getbuffer().nbytes if self._closed_bytes is None else len(self._closed_bytes)

    def kept(self) -> bytes:
        return self.getvalue() if self._closed_bytes is None else self._closed_bytes

    def close(self) -> None:
        if self._closed_bytes is None:
            self._closed_bytes = self.getvalue()
        super().close()
