"""A store that delegates to another: the base of the wrappers in :mod:`lakefmt.testing.stores`.

An *effect* is one change of the store: a put, a put-if-absent (of a writer, too), one removed name,
one removed tree, or one call of make_directories.

Process locks (:mod:`lakefmt._core.storage.process_lock`) are not delegated: a test that simulates a
dead process would still hold them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import BinaryIO, Final, Generic, NoReturn, TypeVar

import pyarrow.fs as pafs

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import (
    Buffer,
    Capabilities,
    CasResult,
    ObjectInfo,
    ObjectStore,
    ObjectWriter,
    PutOutcome,
    SupportsTempCleanup,
    SupportsVersions,
    Version,
    object_names,
    remove_abandoned,
    with_versions,
)
from lakefmt.errors import StateError, UnsupportedFeature

__all__ = ["Effect", "SimulatedCrash", "Step", "WrapperStore"]

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The simulated end of the process. Not an Exception, so that no handler catches it."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One change of a store: number (from 1), kind, object or directory, and size in bytes if it has one."""

    number: int
    kind: str
    name: str
    size: int = 0


@dataclass(frozen=True)
class Step(Generic[T]):
    """An effect to perform: how to do it, how to do half of it, and the answer for 'unknown'."""

    kind: str
    name: str
    size: int
    run: Callable[[], T]
    tear: Callable[[], None]
    unknown: T | None = None


class WrapperStore:
    """Delegates everything to `inner`: the base of store wrappers.

    Override :meth:`perform` for effects and :meth:`look` for reads.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
        >>> WrapperStore(MemoryStore()).put_if_absent("a", b"x")
        <PutOutcome.DONE: 'done'>
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner: Final = inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store is not pickled: wrap another one on the other side")

    def perform(self, step: Step[T]) -> T:
        """Perform one effect."""
        return step.run()

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Perform one read of `kind` read, info, list or list_directories."""
        return run()

    @property
    def url(self) -> str:
        """The inner store's base."""
        return self.inner.url

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's guarantees."""
        return self.inner.capabilities

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return an object of the inner store."""
        return self.look("read", name, lambda: self.inner.read(name, max_bytes))

    def info(self, name: str) -> ObjectInfo | None:
        """Return the info of an object in the inner store."""
        return self.look("info", name, lambda: self.inner.info(name))

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Return the inner store's listing."""
        return self.look("list", prefix, lambda: self.inner.list(prefix, recursive=recursive))

    def list_directories(self, prefix: str = "") -> builtins.list[str]:
        """Return the inner store's directories."""
        return self.look("list_directories", prefix, lambda: self.inner.list_directories(prefix))

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return the inner store's Arrow file system."""
        return self.inner.arrow_filesystem()

    def put_if_absent(self, name: str, data: Buffer, *, durable: bool = False) -> PutOutcome:
        """Create an object, as one effect."""
        return self.perform(
            Step(
                "put_if_absent",
                name,
                len(data),
                lambda: self.inner.put_if_absent(name, data, durable=durable),
                lambda: self.leave_temporary_object(name, data[: len(data) // 2]),
                PutOutcome.UNKNOWN,
            )
        )

    def put(self, name: str, data: Buffer, *, durable: bool = False) -> None:
        """Create or replace an object, as one effect."""
        self.perform(
            Step(
                "put",
                name,
                len(data),
                lambda: self.inner.put(name, data, durable=durable),
                lambda: self.leave_temporary_object(name, data[: len(data) // 2]),
            )
        )

    @property
    def has_versions(self) -> bool:
        """Whether the inner store supports versions."""
        return with_versions(self.inner) is not None

    def read_version(self, name: str, max_bytes: int) -> Version | None:
        """Return an object of the inner store with its version, as one read."""
        inner = self._versions()
        return self.look("read_version", name, lambda: inner.read_version(name, max_bytes))

    def put_if_match(self, name: str, data: Buffer, mark: str | None) -> CasResult:
        """Replace an object of the inner store if its version is unchanged, as one effect."""
        inner = self._versions()
        return self.perform(
            Step(
                "put_if_match",
                name,
                len(data),
                lambda: inner.put_if_match(name, data, mark),
                lambda: self.leave_temporary_object(name, data[: len(data) // 2]),
                CasResult(PutOutcome.UNKNOWN),
            )
        )

    def _versions(self) -> SupportsVersions:
        versions = with_versions(self.inner)
        if versions is None:
            raise UnsupportedFeature(f"{self.url} does not compare and swap")
        return versions

    def create(self, name: str, *, durable: bool = False) -> AbstractContextManager[ObjectWriter]:
        """Open a writer whose put_if_absent is one effect."""
        return _WrappedObjectWriter(self, name, self.inner.create(name, durable=durable))

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects one by one, each as one effect."""
        waiting = object_names(names)
        while waiting:
            self.perform(self._removal(tuple(waiting)))
            waiting.pop(0)

    def _removal(self, waiting: tuple[str, ...]) -> Step[None]:
        first, half = waiting[0], waiting[: len(waiting) // 2]
        return Step("delete", first, 0, lambda: self.inner.delete([first]), lambda: self.inner.delete(half))

    def delete_tree(self, prefix: str) -> None:
        """Remove a tree, as one effect."""
        self.perform(
            Step("delete_tree", prefix, 0, lambda: self.inner.delete_tree(prefix), lambda: self._tear_tree(prefix))
        )

    def _tear_tree(self, prefix: str) -> None:
        names = sorted(info.name for info in self.inner.list(prefix))
        self.inner.delete(names[: len(names) // 2])

    def make_directories(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Create directories, as one effect."""
        directories = [*names]
        self.perform(
            Step(
                "make_directories",
                directories[0] if directories else "",
                0,
                lambda: self.inner.make_directories(directories, durable=durable),
                lambda: self.inner.make_directories(directories[: len(directories) // 2], durable=durable),
            )
        )

    def remove_leftovers(self, older_than_epoch: float) -> int:
        """Remove the inner store's temporary objects, if it has any; return their number."""
        return self.inner.remove_leftovers(older_than_epoch) if isinstance(self.inner, SupportsTempCleanup) else 0

    def remove_abandoned(self, prefix: str = "", *, recursive: bool = True) -> int:
        """Remove temporary objects of dead processes in the inner store, if it can; return their number."""
        return remove_abandoned(self.inner, prefix, recursive=recursive)

    def leave_temporary_object(self, name: str, data: Buffer) -> None:
        """Leave a temporary object in the inner store, if it has any."""
        if isinstance(self.inner, SupportsTempCleanup):
            self.inner.leave_temporary_object(name, data)


class _WrappedObjectWriter:
    """A writer of the inner store whose put_if_absent goes through the wrapper."""

    def __init__(self, store: WrapperStore, name: str, inner: AbstractContextManager[ObjectWriter]) -> None:
        self._store = store
        self._name = name
        self._context = inner
        self._sink: ObjectWriter | None = None

    @property
    def _entered(self) -> ObjectWriter:
        if self._sink is None:
            raise StateError("a sink is written to inside its with block")
        return self._sink

    @property
    def file(self) -> BinaryIO:
        """The inner writer's file."""
        return self._entered.file

    @property
    def size(self) -> int:
        """The number of bytes written."""
        return self._entered.size

    def put_if_absent(self) -> PutOutcome:
        """Create the object, as one effect."""
        return self._store.perform(
            Step(
                "sink.put_if_absent",
                self._name,
                self.size,
                self._entered.put_if_absent,
                lambda: self._store.leave_temporary_object(self._name, b"half of it"),
                PutOutcome.UNKNOWN,
            )
        )

    def __enter__(self) -> _WrappedObjectWriter:
        self._sink = self._context.__enter__()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.__exit__(error_type, error, trace)
        if isinstance(error, SimulatedCrash):
            # The inner writer cleaned up; a dying process does not.
            self._store.leave_temporary_object(self._name, b"half of it")
