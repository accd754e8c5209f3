"""Locks of this machine that cannot be lost while they are held: by threads, by the operating system (effects).

A reentrant lock wraps any lock of a table: it stays held while what is done under it asks for it again. A write that lost takes its turn: it
keeps the lock under which it learnt so until its next attempt is committed, and no other write completes in between. Undoing, beginning and committing each ask for the lock; inside a turn they find that it is theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Final, cast
from weakref import WeakValueDictionary

from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.process_lock import ProcessLock, SupportsProcessLocks
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.timeline.locks.api import FencedLease, Lease, RetryPolicy, TableLock
from lakefmt.errors import CommitConflict, LockUnavailable
from lakefmt.events import emit

__all__ = [
    "LOCAL_LOCK_NAME",
    "HeldLock",
    "InProcessLock",
    "LocalLock",
    "expires_after",
    "held_lock_of",
    "held_lock_scope",
]

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
    """A place in the queue, taken at the first attempt to acquire the lock; pacing code uses it as a lock."""

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
            is_acquired = self._time_source.acquire_lock(cast("Lock", ticket), self._timeout)
        except BaseException:
            ticket.leave()
            raise
        if not is_acquired:
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
            lock = self._locks.hold(LOCAL_LOCK_NAME)
            if lock is not None:
                return lock
        raise LockUnavailable(f"another process held the lock of {self._url} for {self._patience.total:g} s")


#: A wait for the lock from which on it is an event.
_NOTED_SECONDS: Final = 0.1


class HeldLock:
    """The lock of one table, held longer than for one step when that is wanted.

    Attributes:
        url: of the table.
        keeps: asked when a write meets a conflict under the lock: shall it be kept?
        waited: seconds for which the lock was waited for.
        lease: what is held; None: nothing.

    Example:
        >>> from lakefmt._core.timeline.locks.local import InProcessLock
        >>> lock = InProcessLock("memory://doc-turn")
        >>> with held_lock_scope("memory://doc-turn") as held_lock:
        ...     lease = held_lock.take(held_lock.over(lock))
        ...     with held_lock.over(lock).hold():
        ...         print("held once, asked for twice", held_lock_of("memory://another"))
        held once, asked for twice None
    """

    def __init__(self, time_source: TimeSource, url: str = "") -> None:
        self.time_source = time_source
        self.url = url
        self.keeps: Callable[[Lease], bool] = lambda lease: False
        self.waited = 0.0
        self._held = ExitStack()
        self.lease: Lease | None = None

    def over(self, lock: TableLock) -> TableLock:
        """Return a lock that is this turn while it is held, and else `lock`, which may become the turn."""
        return _Within(self, lock)

    def take(self, lock: TableLock) -> Lease:
        """Hold `lock` until :meth:`end`.

        Raises:
            LockUnavailable: it could not be had in time.
        """
        self.lease = lease = self._held.enter_context(lock.hold())
        return lease

    def adopt(self, stack: ExitStack, lease: Lease) -> None:
        """Keep what is held already."""
        self._held, self.lease = stack.pop_all(), lease

    def end(self) -> None:
        """Give the lock back; twice is fine."""
        self.lease = None
        self._held.close()


#: Of this thread (or greenlet) alone: what runs beside it, a service in the background, does not hold the lock.
_held_locks: ContextVar[tuple[tuple[str, HeldLock], ...]] = ContextVar("lakefmt_turns", default=())


@contextmanager
def held_lock_scope(url: str, time_source: TimeSource | None = None) -> Iterator[HeldLock]:
    """Let the locks of the table at `url` that are opened inside the block become a turn, which ends with it."""
    held_lock = HeldLock(time_source or SystemTimeSource(), url)
    before = _held_locks.set(((url, held_lock), *_held_locks.get()))
    try:
        yield held_lock
    finally:
        _held_locks.reset(before)
        held_lock.end()


def held_lock_of(url: str) -> HeldLock | None:
    """Return the turn that this very thread may have or take at the table, None outside of :func:`held_lock_scope`."""
    return next((held_lock for held_url, held_lock in _held_locks.get() if held_url == url), None)


class _Within:
    def __init__(self, held_lock: HeldLock, lock: TableLock) -> None:
        self._turn = held_lock
        self._lock = lock

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the lock inside the block, and behind it when that is wanted.

        Raises:
            LeaseLost: it was held, and is lost.
            LockUnavailable: it could not be had in time.
        """
        lease = self._turn.lease
        if lease is not None:
            lease.check()  # another writer may have it by now, and work where only one may
            yield lease
            return
        with ExitStack() as stack:
            request_time = self._turn.time_source.monotonic()
            lease = stack.enter_context(self._lock.hold())
            waited = self._turn.time_source.monotonic() - request_time
            self._turn.waited += waited
            if waited > _NOTED_SECONDS:
                emit("lock_wait", self._turn.url, seconds=waited)
            try:
                yield lease
            except CommitConflict as conflict:
                if conflict.can_rebase and self._turn.keeps(lease):
                    self._turn.adopt(stack, lease)
                raise


def expires_after(lease: Lease, now: float, seconds: float) -> bool:
    """Return whether a lease lasts for so long, if it is never renewed.

    Args:
        lease: the lock's.
        now: monotonic seconds of the pacing.
        seconds: how long it is wanted.
    """
    ends = lease.expires if isinstance(lease, FencedLease) else None
    return ends is None or ends - now >= seconds
