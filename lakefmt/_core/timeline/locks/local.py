"""Locks of this machine that cannot be lost while they are held: by threads, by the operating system (effects)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import cast
from weakref import WeakValueDictionary

from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.local.process_lock import ProcessLock, SupportsProcessLocks
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.timeline.locks.api import Lease, RetryPolicy
from lakefmt.errors import LockUnavailable

__all__ = ["LOCAL_LOCK_NAME", "InProcessLock", "LocalLock"]

LOCAL_LOCK_NAME = ".hoodie/.lakefmt/lock"
_LONGEST_PAUSE_SECONDS = 0.004


class _Certain:
    """A lease that cannot be lost while it is held."""

    def check(self) -> None:
        """Nothing to check."""


class _Queue:
    """A lock that goes to the thread that has waited longest: one that goes to the quickest lets the others starve."""

    def __init__(self) -> None:
        self.guard = Lock()
        self.is_held = False
        self.waiting: deque[Lock] = deque()

    def release(self) -> None:
        """Hand it to the first in the queue."""
        with self.guard:
            if self.waiting:
                self.waiting.popleft().release()
            else:
                self.is_held = False


class _Ticket:
    """A place in the queue, from the first time that the lock is asked for; used as a lock by a pacing."""

    def __init__(self, queue: _Queue) -> None:
        self._queue = queue
        self._baton: Lock | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, or wait for it, as a lock of the process does."""
        queue = self._queue
        if self._baton is None:
            with queue.guard:
                if not queue.is_held:
                    queue.is_held = True
                    return True
                self._baton = Lock()
                self._baton.acquire()
                queue.waiting.append(self._baton)
        return self._baton.acquire(blocking, timeout)

    def leave(self) -> None:
        """Give the place up; the lock, too, when it was handed over just now."""
        queue, baton = self._queue, self._baton
        if baton is None:
            return
        with queue.guard:
            if baton in queue.waiting:
                queue.waiting.remove(baton)
                return
        queue.release()


#: A queue lives as long as somebody holds a lock with it.
_queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()
_queues_guard = Lock()


def _queue_of(url: str) -> _Queue:
    # Per table, never global: two tables must not wait for each other.
    with _queues_guard:
        queue = _queues.get(url)
        if queue is None:
            queue = _queues[url] = _Queue()
        return queue


class InProcessLock:
    """Excludes the threads and handles of this process from each other, per table (``InProcessLockProvider``).

    They get it in the order in which they asked.
    """

    def __init__(self, url: str, timeout_seconds: float = 60.0, time_source: TimeSource | None = None) -> None:
        self._url = url
        self._queue = _queue_of(url)
        self._timeout = timeout_seconds
        self._time_source = time_source or SystemTimeSource()

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the lock inside the block."""
        ticket = _Ticket(self._queue)
        try:
            taken = self._time_source.acquire_lock(cast("Lock", ticket), self._timeout)
        except BaseException:
            ticket.leave()
            raise
        if not taken:
            ticket.leave()
            raise LockUnavailable(f"another thread held the lock of {self._url} for {self._timeout:g} s")
        try:
            yield _Certain()
        finally:
            self._queue.release()


class LocalLock:
    """Excludes processes on one machine; freed by the system when its holder dies, so it never goes stale."""

    def __init__(
        self,
        store: ObjectStore,
        locks: SupportsProcessLocks,
        timeout_seconds: float = 60.0,
        time_source: TimeSource | None = None,
    ) -> None:
        self._inner = InProcessLock(store.url, timeout_seconds, time_source)
        self._locks = locks
        self._url = store.url
        self._patience = RetryPolicy(timeout_seconds)
        self._time_source = time_source or SystemTimeSource()

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the lock inside the block."""
        with self._inner.hold() as lease, self._acquire():
            yield lease

    def _acquire(self) -> ProcessLock:
        for _ in self._patience.tries(self._time_source, _LONGEST_PAUSE_SECONDS):
            held = self._locks.hold(LOCAL_LOCK_NAME)
            if held is not None:
                return held
        raise LockUnavailable(f"another process held the lock of {self._url} for {self._patience.total:g} s")
