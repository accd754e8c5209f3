"""What a store is: objects by name under one base, with the answers an effect can have.

Rules of residence: pure declarations. Names are relative to the table's base, parts joined by ``/``, without
leading or trailing slash, never with ``.`` or ``..`` as a part: :func:`check_name` is the gate.

Every effect may end *done*, *refused* or *unknown* (the answer was lost). Callers handle all three.

What stores with temporary objects offer beside the common verbs.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable

import pyarrow.fs as pafs

from lakefmt.errors import UnsafePath

__all__ = [
    "Capabilities",
    "CasResult",
    "ObjectInfo",
    "ObjectStore",
    "ObjectWriter",
    "PutOutcome",
    "SupportsAbandoned",
    "SupportsNames",
    "SupportsTempCleanup",
    "SupportsVersions",
    "Version",
    "check_name",
    "remove_abandoned",
    "with_versions",
]


Buffer = bytes | bytearray | memoryview


class PutOutcome(enum.Enum):
    """How a put-if-absent ended."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can promise.

    Attributes:
        put_if_absent: an object appears whole or not at all, and never over another one.
        directories: directories exist by themselves (and empty ones can be left behind).
        durable: ``durable=True`` really reaches the disk before the call returns.
        at_hand: several looks at it are taken one after the other: it answers sooner than a thread begins.
    """

    put_if_absent: bool
    directories: bool
    durable: bool
    low_latency: bool = False


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object: its name, size in bytes and modification time in epoch seconds (0.0 when unknown)."""

    name: str
    size: int
    modified: float = 0.0


class ObjectWriter(Protocol):
    """An object in the making. Nothing is visible before :meth:`put_if_absent`; leaving the context drops the rest."""

    @property
    def file(self) -> BinaryIO:
        """The writable, append-only binary file that takes the bytes."""
        ...

    @property
    def size(self) -> int:
        """Bytes written so far."""
        ...

    def put_if_absent(self) -> PutOutcome:
        """Give the finished object its name, whole, unless the name is taken."""
        ...


@runtime_checkable
class ObjectStore(Protocol):
    """Objects by name under one base."""

    @property
    def url(self) -> str:
        """The base as text that is safe to print (no secrets)."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this store can promise."""
        ...

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return a whole object.

        Raises:
            ObjectNotFound: there is none.
            CorruptFile: it is larger than `max_bytes` (checked before allocation).
            StorageError: the store failed.
        """
        ...

    def info(self, name: str) -> ObjectInfo | None:
        """Return an object's size and time, or None when there is none. Never answered from a cache."""
        ...

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Yield the objects below the directory `prefix`, in no order; never from a cache.

        Not recursive: only objects directly inside. A prefix that does not exist yields nothing. Temporary
        objects of unfinished puts are never yielded.
        """
        ...

    def list_directories(self, prefix: str = "") -> builtins.list[str]:
        """Return the names (relative to the base) of the directories directly inside `prefix`."""
        ...

    def put_if_absent(self, name: str, data: Buffer, *, durable: bool = False) -> PutOutcome:
        """Create an object whole, unless the name is taken."""
        ...

    def put(self, name: str, data: Buffer, *, durable: bool = False) -> None:
        """Create or replace an object whole (readers see the old or the new bytes)."""
        ...

    def create(self, name: str, *, durable: bool = False) -> AbstractContextManager[ObjectWriter]:
        """Open a sink for a large object that appears by put-if-absent."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; those that are not there are ignored.

        Raises:
            StorageError: at least one could not be removed; the message names it.
        """
        ...

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below the directory `prefix` and the directory itself."""
        ...

    def make_directories(self, names: Iterable[str]) -> None:
        """Create directories where the store has such things; nothing elsewhere."""
        ...

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return an Arrow file system and the prefix that turns a name into its path there (reading only)."""
        ...


@runtime_checkable
class SupportsNames(Protocol):
    """A store that lists names much faster than names with sizes and times."""

    def list_names(self, prefix: str) -> builtins.list[str]:
        """Return the last parts of the names directly inside `prefix`, in no order; directories among them.

        Temporary objects are left out; a prefix that does not exist gives nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Version:
    """An object as it was once: its bytes, and the store's word for exactly this state of it (an ETag, a number)."""

    data: bytes
    mark: str


class CasResult(NamedTuple):
    """How a compare and swap ended, and the mark of the object that was put where the store tells it at once."""

    outcome: PutOutcome
    mark: str | None = None


@runtime_checkable
class SupportsVersions(Protocol):
    """A store that replaces an object only if it is still the one that was seen (compare and swap)."""

    @property
    def has_versions(self) -> bool:
        """Whether this very store can; wrappers and services answer for what is behind them."""
        ...

    def read_version(self, name: str, max_bytes: int) -> Version | None:
        """Return an object of at most `max_bytes` with its mark, never from a cache; None when there is none."""
        ...

    def put_if_match(self, name: str, data: Buffer, mark: str | None) -> CasResult:
        """Replace an object whole if its mark is still `mark`; with None: create it unless the name is taken.

        A request that was repeated by a client library may be REFUSED although the first one arrived: who must know
        reads the object.
        """
        ...


def with_versions(store: ObjectStore) -> SupportsVersions | None:
    """Return the store as one that compares and swaps, None when it cannot.

    Example:
        >>> from lakefmt.storage.memory import MemoryStore
        >>> with_versions(MemoryStore()) is not None
        True
    """
    return store if isinstance(store, SupportsVersions) and store.has_versions else None


_FORBIDDEN_PARTS = frozenset({"", ".", ".."})


def check_name(name: str) -> str:
    """Return `name` when it stays under the table's base.

    Raises:
        UnsafePath: it is empty, absolute, has ``.``, ``..`` or empty parts, a backslash drive or a NUL.

    Example:
        >>> check_name("city=sf/a.parquet")
        'city=sf/a.parquet'
    """
    if "\x00" in name or not _FORBIDDEN_PARTS.isdisjoint(name.split("/")):
        raise UnsafePath(f"path {name!r} is not a plain path below the table")
    return name


@runtime_checkable
class SupportsTempCleanup(Protocol):
    """A store whose unfinished puts leave temporary objects when their process dies."""

    def remove_leftovers(self, older_than_epoch: float) -> int:
        """Remove temporary objects last written before `older_than_epoch` (epoch seconds); return how many."""
        ...

    def leave_temporary_object(self, name: str, data: Buffer) -> None:
        """Leave what a put of `name` leaves behind when its process dies half-way (for crash tests)."""
        ...


@runtime_checkable
class SupportsAbandoned(Protocol):
    """A store that can tell temporary objects of dead processes from those of living ones."""

    def remove_abandoned(self, prefix: str = "", *, recursive: bool = True) -> int:
        """Remove temporary objects below `prefix` whose process on this machine has ended; return how many."""
        ...


def remove_abandoned(store: ObjectStore, prefix: str = "", *, recursive: bool = True) -> int:
    """Remove what dead processes of this machine left unfinished; 0 where a store cannot tell."""
    return store.remove_abandoned(prefix, recursive=recursive) if isinstance(store, SupportsAbandoned) else 0
