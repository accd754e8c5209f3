"""Locks of this machine that cannot be lost while they are held: by threads, by the operating system (effects)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from lakefmt.errors import LockUnavailable
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.pacing import Pacing, SystemPacing
from lakefmt.storage.process_lock import HeldLock, SupportsProcessLocks
from lakefmt.timeline.lock_api import Lease, Patience

__all__ = ["InProcessLock", "LocalLock"]

LOCAL_LOCK_NAME = ".hoodie/.lakefmt/lock"
_LONGEST_PAUSE_SECONDS = 0.004


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
    """Excludes the threads and handles of this process from each other, per table (``InProcessLockProvider``)."""

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
    """Excludes processes on one machine; freed by the system when its holder dies, so it never goes stale."""

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
        self._patience = Patience(timeout_seconds)
        self._pacing = pacing or SystemPacing()

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the lock inside the block."""
        with self._inner.hold() as lease, self._acquire():
            yield lease

    def _acquire(self) -> HeldLock:
        for _ in self._patience.tries(self._pacing, _LONGEST_PAUSE_SECONDS):
            held = self._locks.hold(LOCAL_LOCK_NAME)
            if held is not None:
                return held
        raise LockUnavailable(f"another process held the lock of {self._url} for {self._patience.total:g} s")
