"""The object store protocol: objects by name below a base, the outcomes of writes, and checks of names.

Names are relative to the base, parts joined by ``/``, without leading or trailing slash and without
``.`` or ``..``: :func:`check_name` checks them.

A write ends *done*, *refused* or *unknown* (the answer was lost). Callers handle all three.

Optional abilities of a store are separate protocols (``Supports…``).
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import field
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable

import pyarrow.fs as pafs

from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnsafePath

__all__ = [
    "TEMPORARY_PREFIX",
    "Capabilities",
    "CasResult",
    "ObjectInfo",
    "ObjectStore",
    "ObjectWriter",
    "PutBatch",
    "PutOutcome",
    "SupportsAbandoned",
    "SupportsBeginFlush",
    "SupportsIdentities",
    "SupportsLevels",
    "SupportsNames",
    "SupportsPutBatch",
    "SupportsTempCleanup",
    "SupportsTrees",
    "SupportsVersions",
    "SupportsWrittenFooters",
    "Version",
    "as_bytes",
    "check_name",
    "directory_name",
    "is_addressable",
    "is_temporary",
    "object_name",
    "object_names",
    "remove_abandoned",
    "with_versions",
]


Buffer = bytes | bytearray | memoryview


class PutOutcome(enum.Enum):
    """The outcome of a put-if-absent."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The guarantees of a store.

    Attributes:
        put_if_absent: an object appears completely or not at all, and never replaces another.
        directories: directories exist on their own, also empty ones.
        durable: ``durable=True`` syncs to disk before the call returns.
        low_latency: a request is faster than starting a thread; callers then run requests
            sequentially.
    """

    put_if_absent: bool
    directories: bool
    durable: bool
    low_latency: bool = False


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object's name, size in bytes and modification time in epoch seconds (0.0 if unknown).

    ``mark`` is that of the object's :class:`Version`, where a listing tells it; else empty.
    """

    name: str
    size: int
    modified: float = 0.0
    mark: str = field(default="", compare=False)


class ObjectWriter(Protocol):
    """Writes a large object, which :meth:`put_if_absent` creates; leaving the context discards an unfinished one."""

    @property
    def file(self) -> BinaryIO:
        """The append-only binary file to write to."""
        ...

    @property
    def size(self) -> int:
        """The number of bytes written."""
        ...

    def put_if_absent(self) -> PutOutcome:
        """Create the finished object unless the name is taken."""
        ...


@runtime_checkable
class SupportsBeginFlush(Protocol):
    """A writer of a large object whose bytes can be on their way to disk before it is finished."""

    def begin_flush(self) -> None:
        """Have the system begin to write the bytes so far to disk; nothing is waited for."""
        ...


class PutBatch(Protocol):
    """Puts many durable objects at once, in less time than one by one."""

    def add(self, writer: ObjectWriter) -> None:
        """Take a finished object."""
        ...

    def put_if_absent(self) -> list[PutOutcome]:
        """Create the objects, each unless its name is taken; what is said of each comes in the order of :meth:`add`."""
        ...


@runtime_checkable
class SupportsPutBatch(Protocol):
    """A store for which putting many durable objects at once takes less time."""

    def put_batch(self) -> PutBatch:
        """Return what does that."""
        ...


@runtime_checkable
class ObjectStore(Protocol):
    """Objects by name below one base."""

    @property
    def url(self) -> str:
        """The base URL without secrets, safe to print."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The guarantees of this store."""
        ...

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return the bytes of an object.

        Raises:
            ObjectNotFound: the object does not exist.
            CorruptFile: the object exceeds `max_bytes`; checked before allocation.
            StorageError: the store failed.
        """
        ...

    def info(self, name: str) -> ObjectInfo | None:
        """Return an object's size and time, None if it does not exist; never cached."""
        ...

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Yield the objects below the directory `prefix`, unordered, never cached.

        Not recursive: only objects directly inside. A missing prefix yields nothing. Temporary objects, those of unfinished puts, are
        never yielded.
        """
        ...

    def list_directories(self, prefix: str = "") -> builtins.list[str]:
        """Return the directories directly inside `prefix`, relative to the base."""
        ...

    def put_if_absent(self, name: str, data: Buffer, *, durable: bool = False) -> PutOutcome:
        """Create an object atomically, unless the name is taken."""
        ...

    def put(self, name: str, data: Buffer, *, durable: bool = False) -> None:
        """Create or replace an object atomically."""
        ...

    def create(self, name: str, *, durable: bool = False) -> AbstractContextManager[ObjectWriter]:
        """Open a writer for a large object; it is created only if absent."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; missing ones are ignored.

        Raises:
            StorageError: at least one object was not removed; the message names it.
        """
        ...

    def delete_tree(self, prefix: str) -> None:
        """Remove the directory `prefix` and everything in it."""
        ...

    def make_directories(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Create directories, durable ones with one sync for all; does nothing in stores without directories."""
        ...

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return a read-only Arrow file system and the prefix of paths in it."""
        ...


@runtime_checkable
class SupportsNames(Protocol):
    """A store that lists names much faster than sizes and times."""

    def list_names(self, prefix: str) -> builtins.list[str]:
        """Return the names directly inside `prefix` without their directory, unordered, directories included.

        Temporary objects are omitted; a missing prefix has no names.
        """
        ...


@runtime_checkable
class SupportsIdentities(Protocol):
    """A store that tells whether an object is the very one that was there before."""

    def identity(self, name: str) -> str | None:
        """Return a text that no other object ever has, whatever its name; None: the object does not exist, or cannot be told apart."""
        ...


@runtime_checkable
class SupportsLevels(Protocol):
    """A store that lists the objects and the directories directly inside a directory with one request."""

    def list_level(self, prefix: str) -> tuple[builtins.list[ObjectInfo], builtins.list[str]]:
        """Return the objects, and the names of the directories, directly inside `prefix`; unordered, never cached."""
        ...


@runtime_checkable
class SupportsTrees(Protocol):
    """A store that lists many objects, in whatever directories, with one request, and tells their versions."""

    def list_tree(self, prefix: str) -> builtins.list[ObjectInfo] | None:
        """Return everything below the directory `prefix` with its marks; never cached.

        None: one request does not tell all of it, or no marks.
        """
        ...


@runtime_checkable
class SupportsWrittenFooters(Protocol):
    """A store that keeps the footers of Parquet files that were just put, so that they need not be fetched."""

    def take_footer(self, name: str) -> bytes | None:
        """Return the end of a file that this object put lately, once: its whole footer; None: it has to be read."""
        ...


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an object: its bytes and its ETag or generation."""

    data: bytes
    mark: str


class CasResult(NamedTuple):
    """The outcome of a compare-and-swap, and the version of the new object if the store returns it."""

    outcome: PutOutcome
    mark: str | None = None


@runtime_checkable
class SupportsVersions(Protocol):
    """A store with compare-and-swap: it replaces an object only if its version is unchanged."""

    @property
    def has_versions(self) -> bool:
        """Whether this instance supports versions; wrappers report for the wrapped store."""
        ...

    def read_version(self, name: str, max_bytes: int) -> Version | None:
        """Return an object of at most `max_bytes` with its version, None if it does not exist; never cached."""
        ...

    def put_if_match(self, name: str, data: Buffer, mark: str | None) -> CasResult:
        """Replace an object if its version is `mark`; None: create it unless the name is taken.

        If a client library repeated the request, the result may be REFUSED although the first one succeeded: read the
        object to find out.
        """
        ...


def with_versions(store: ObjectStore) -> SupportsVersions | None:
    """Return the store if it supports versions, else None.

    Example:
        >>> from lakefmt._core.storage.memory import MemoryStore
        >>> with_versions(MemoryStore()) is not None
        True
    """
    return store if isinstance(store, SupportsVersions) and store.has_versions else None


@runtime_checkable
class SupportsTempCleanup(Protocol):
    """A store in which an interrupted put leaves a temporary object."""

    def remove_leftovers(self, older_than_epoch: float) -> int:
        """Remove temporary objects written before `older_than_epoch` (epoch seconds); return their number."""
        ...

    def leave_temporary_object(self, name: str, data: Buffer) -> None:
        """Leave the temporary object of an interrupted put of `name` (for crash tests)."""
        ...


@runtime_checkable
class SupportsAbandoned(Protocol):
    """A store that knows whether the process of a temporary object has ended."""

    def remove_abandoned(self, prefix: str = "", *, recursive: bool = True) -> int:
        """Remove temporary objects below `prefix` whose process on this machine has ended; return their number."""
        ...


def remove_abandoned(store: ObjectStore, prefix: str = "", *, recursive: bool = True) -> int:
    """Remove temporary objects of ended processes of this machine; 0 if the store cannot know them."""
    return store.remove_abandoned(prefix, recursive=recursive) if isinstance(store, SupportsAbandoned) else 0


_FORBIDDEN_PARTS = frozenset({"", ".", ".."})


#: The prefix of temporary names. The leading dot and the missing ``.log.`` or extension keep them
#: from parsing as base file, log file, instant or properties file (docs/format.md, File names;
#: lakefmt's own files).
TEMPORARY_PREFIX = ".lakefmt-tmp-"


def is_temporary(name: str) -> bool:
    """Return whether `name` is that of an unfinished put.

    Example:
        >>> is_temporary("city=sf/.lakefmt-tmp-1a2b-77-0"), is_temporary("city=sf/a.parquet")
        (True, False)
    """
    # The substring search comes first: it settles nearly every name.
    return TEMPORARY_PREFIX in name and name.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def check_name(name: str) -> str:
    """Return `name` if it stays below the base.

    Raises:
        UnsafePath: the name is empty or absolute, or has ``.``, ``..``, empty parts, a drive letter
            or NUL.

    Example:
        >>> check_name("city=sf/a.parquet")
        'city=sf/a.parquet'
    """
    if "\x00" in name or not _FORBIDDEN_PARTS.isdisjoint(name.split("/")):
        raise UnsafePath(f"path {name!r} is not a plain path below the table")
    return name


def object_name(name: str) -> str:
    """Return `name` if an object may have it.

    Raises:
        UnsafePath: the name leaves the base (see :func:`check_name`) or is not
            valid Unicode.
        InvalidInputError: the name is reserved for temporary objects.

    Example:
        >>> object_name("city=sf/a.parquet")
        'city=sf/a.parquet'
    """
    check_name(name)
    _check_unicode(name)
    if is_temporary(name):
        raise InvalidInputError(
            f"{name!r} is a name for unfinished objects: names beginning {TEMPORARY_PREFIX!r} are kept"
        )
    return name


def object_names(names: Iterable[str]) -> list[str]:
    """Return all names after checking each.

    Raises:
        InvalidInputError: `names` is one text, whose letters would be taken as names.
        UnsafePath: a name leaves the base.

    Example:
        >>> object_names(("a", "b/c"))
        ['a', 'b/c']
    """
    if isinstance(names, str):
        raise InvalidInputError(f"a collection of names is expected, not the text {names!r}")
    return [object_name(name) for name in names]


def directory_name(prefix: str) -> str:
    """Return `prefix` if it is a directory below the base; empty means the base.

    Raises:
        UnsafePath: the directory is outside of the base.

    Example:
        >>> directory_name(""), directory_name(".hoodie/timeline")
        ('', '.hoodie/timeline')
    """
    if prefix:
        check_name(prefix)
        _check_unicode(prefix)
    return prefix


def is_addressable(name: str) -> bool:
    """Return whether a listed name is valid; others belong to no table.

    Example:
        >>> is_addressable("a/b"), is_addressable("a//b")
        (True, False)
    """
    try:
        check_name(name)
        _check_unicode(name)
    except UnsafePath:
        return False
    return True


def as_bytes(data: Buffer) -> bytes:
    """Return `data` as bytes, without a copy if it is bytes already.

    Example:
        >>> as_bytes(memoryview(b"abc"))
        b'abc'
    """
    return data if isinstance(data, bytes) else bytes(data)


def _check_unicode(name: str) -> None:
    if name.isascii():
        return
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UnsafePath(f"path {name!r} is not valid Unicode") from None
