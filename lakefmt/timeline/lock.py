"""One table lock: who may choose instants and complete them right now (effects).

Three keepers behind one protocol:

* :class:`LocalLock` – a file locked by the operating system under ``.hoodie/.lakefmt``; a process that dies lets go
  of it, so it never goes stale. The default on a local disk.
* :class:`InProcessLock` – threads of one process; the default for memory and, with a word of warning in the docs,
  for object stores (one writer process).
* :class:`FileSystemLock` – Hudi's own file ``.hoodie/lock`` (spec 2.5): shared with Spark writers that name
  ``FileSystemBasedLockProvider``. Before completing, the holder proves that the file is still its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Protocol

from lakefmt.errors import LeaseLost, LockUnavailable, ObjectNotFound
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.storage.pacing import Pacing, SystemPacing
from lakefmt.storage.process_lock import SupportsProcessLocks

__all__ = ["FileSystemLock", "InProcessLock", "Lease", "LocalLock", "TableLock", "open_lock"]

_POLL_SECONDS = 0.002
LOCAL_LOCK_NAME = ".hoodie/.lakefmt/lock"
FILE_SYSTEM_LOCK_NAME = ".hoodie/lock"


class Lease(Protocol):
    """A lock that is held."""

    def check(self) -> None:
        """Raise LeaseLost unless the lock is still ours."""
        ...


class TableLock(Protocol):
    """Mutual exclusion of everybody who writes one table."""

    def hold(self) -> AbstractContextManager[Lease]:
        """Wait for the lock (bounded), hold it inside the ``with`` block.

        Raises:
            LockUnavailable: it could not be had in time.
        """
        ...


class _Certain:
    """A lease that cannot be lost while it is held."""

    def check(self) -> None:
        """Nothing to check."""


_process_locks: dict[str, Lock] = {}
_process_locks_guard = Lock()


def _process_lock(url: str) -> Lock:
    # Per table, never global: two tables must not wait for each other.
    with _process_locks_guard:
        return _process_locks.setdefault(url, Lock())


class InProcessLock:
    """Excludes the threads and handles of this process from each other, per table."""

    def __init__(self, url: str, timeout_seconds: float = 60.0, pacing: Pacing | None = None) -> None:
        self._url = url
        self._lock = _process_lock(url)
        self._timeout = timeout_seconds
        self._pacing = pacing or SystemPacing()

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the lock inside the block."""
        if not self._pacing.take(self._lock, self._timeout):
            raise LockUnavailable(f"another thread held the lock of {self._url} for {self._timeout:g} s")
        try:
            yield _Certain()
        finally:
            self._lock.release()


class LocalLock:
    """Excludes processes on one machine; freed by the system when its holder dies."""

    def __init__(
        self,
        store: ObjectStore,
        locks: SupportsProcessLocks,
        timeout_seconds: float = 60.0,
        pacing: Pacing | None = None,
    ) -> None:
        self._inner = InProcessLock(store.url, timeout_seconds, pacing)
        self._locks = locks
        self._url = store.url
        self._timeout = timeout_seconds
        self._pacing = pacing or SystemPacing()

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the lock inside the block."""
        with self._inner.hold() as lease:
            deadline = self._pacing.monotonic() + self._timeout
            while (held := self._locks.hold(LOCAL_LOCK_NAME)) is None:
                if self._pacing.monotonic() > deadline:
                    raise LockUnavailable(f"another process held the lock of {self._url} for {self._timeout:g} s")
                self._pacing.sleep(_POLL_SECONDS)
            with held:
                yield lease


class _FileLease:
    def __init__(self, store: ObjectStore, stamp: bytes) -> None:
        self._store = store
        self._stamp = stamp

    def check(self) -> None:
        try:
            found = self._store.read(FILE_SYSTEM_LOCK_NAME, 1 << 16)
        except ObjectNotFound:
            found = b""
        if found != self._stamp:
            raise LeaseLost(f"{FILE_SYSTEM_LOCK_NAME} was removed or taken over while held; the commit is refused")


class FileSystemLock:
    """Hudi's ``FileSystemBasedLockProvider``: the file ``.hoodie/lock``, present while somebody holds it."""

    def __init__(
        self,
        store: ObjectStore,
        owner: str,
        timeout_seconds: float = 60.0,
        pacing: Pacing | None = None,
    ) -> None:
        self._inner = InProcessLock(store.url, timeout_seconds, pacing)
        self._store = store
        self._stamp = f'{{"owner": "{owner}"}}'.encode()
        self._timeout = timeout_seconds
        self._pacing = pacing or SystemPacing()

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the lock inside the block; let go only of a file that is still ours."""
        with self._inner.hold():
            self._acquire()
            lease = _FileLease(self._store, self._stamp)
            try:
                yield lease
            finally:
                self._release(lease)

    def _acquire(self) -> None:
        deadline = self._pacing.monotonic() + self._timeout
        while True:
            outcome = self._store.put_if_absent(FILE_SYSTEM_LOCK_NAME, self._stamp)
            if outcome is PutOutcome.DONE:
                return
            if outcome is PutOutcome.UNKNOWN and self._holds():
                return
            if self._pacing.monotonic() > deadline:
                raise LockUnavailable(
                    f"{FILE_SYSTEM_LOCK_NAME} of {self._store.url} was held for {self._timeout:g} s; "
                    "when its holder is dead, remove that file"
                )
            self._pacing.sleep(_POLL_SECONDS)

    def _holds(self) -> bool:
        try:
            _FileLease(self._store, self._stamp).check()
        except LeaseLost:
            return False
        return True

    def _release(self, lease: _FileLease) -> None:
        try:
            lease.check()
        except LeaseLost:
            return  # somebody else's file: not ours to remove
        self._store.delete([FILE_SYSTEM_LOCK_NAME])


def open_lock(
    store: ObjectStore, provider: str | None, owner: str, timeout_seconds: float, pacing: Pacing | None = None
) -> TableLock:
    """Return the table's lock: `provider` is a class name of Hudi, or None for the best the store offers."""
    short = (provider or "").rsplit(".", 1)[-1]
    if short == "FileSystemBasedLockProvider":
        return FileSystemLock(store, owner, timeout_seconds, pacing)
    if short != "InProcessLockProvider" and isinstance(store, SupportsProcessLocks):
        return LocalLock(store, store, timeout_seconds, pacing)
    return InProcessLock(store.url, timeout_seconds, pacing)
