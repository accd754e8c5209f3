"""A table lock that stays held while what is done under it asks for it again (effects).

A write that lost takes its turn: it keeps the lock under which it was told so until its next attempt is committed, and nobody
completes in between. Undoing, beginning and committing each ask for the lock; inside a turn they find that it is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from lakefmt.errors import CommitConflict
from lakefmt.storage.scheduler import Pacing, SystemPacing
from lakefmt.timeline.locks.api import FencedLease, Lease, TableLock

__all__ = ["Turn", "lasts", "turn_at", "turn_of"]


class Turn:
    """The lock of one table, held longer than for one step when that is wanted.

    Attributes:
        keeps: asked when a write meets a conflict under the lock: shall it be kept?
        waited: seconds for which the lock was waited for.

    Example:
        >>> from lakefmt.timeline.locks.local import InProcessLock
        >>> lock = InProcessLock("memory://doc-turn")
        >>> with turn_at("memory://doc-turn") as turn:
        ...     lease = turn.take(turn.over(lock))
        ...     with turn.over(lock).hold():
        ...         print("held once, asked for twice", turn_of("memory://another"))
        held once, asked for twice None
    """

    def __init__(self, pacing: Pacing) -> None:
        self.pacing = pacing
        self.keeps: Callable[[Lease], bool] = lambda lease: False
        self.waited = 0.0
        self._held = ExitStack()
        self._lease: Lease | None = None

    @property
    def lease(self) -> Lease | None:
        """What is held; None: nothing."""
        return self._lease

    def over(self, lock: TableLock) -> TableLock:
        """Return a lock that is this turn while it is held, and else `lock`, which may become the turn."""
        return _Within(self, lock)

    def take(self, lock: TableLock) -> Lease:
        """Hold `lock` until :meth:`end`.

        Raises:
            LockUnavailable: it could not be had in time.
        """
        self._lease = lease = self._held.enter_context(lock.hold())
        return lease

    def adopt(self, held: ExitStack, lease: Lease) -> None:
        """Keep what is held already."""
        self._held, self._lease = held.pop_all(), lease

    def end(self) -> None:
        """Give the lock back; twice is fine."""
        self._lease = None
        self._held.close()


#: Of this thread (or greenlet) alone: what runs beside it, a service in the background, does not hold the lock.
_turns: ContextVar[tuple[tuple[str, Turn], ...]] = ContextVar("lakefmt_turns", default=())


@contextmanager
def turn_at(url: str, pacing: Pacing | None = None) -> Iterator[Turn]:
    """Let the locks of the table at `url` that are opened inside the block become a turn, which ends with it."""
    turn = Turn(pacing or SystemPacing())
    before = _turns.set(((url, turn), *_turns.get()))
    try:
        yield turn
    finally:
        _turns.reset(before)
        turn.end()


def turn_of(url: str) -> Turn | None:
    """Return the turn that this very thread may have or take at the table, None outside of :func:`turn_at`."""
    return next((turn for known, turn in _turns.get() if known == url), None)


class _Within:
    def __init__(self, turn: Turn, lock: TableLock) -> None:
        self._turn = turn
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
            lease.check()  # somebody else may have it by now, and work where only one may
            yield lease
            return
        with ExitStack() as held:
            asked = self._turn.pacing.monotonic()
            lease = held.enter_context(self._lock.hold())
            self._turn.waited += self._turn.pacing.monotonic() - asked
            try:
                yield lease
            except CommitConflict as conflict:
                if conflict.can_rebase and self._turn.keeps(lease):
                    self._turn.adopt(held, lease)
                raise


def lasts(lease: Lease, now: float, seconds: float) -> bool:
    """Return whether a lease lasts for so long, if it is never renewed.

    Args:
        lease: the lock's.
        now: monotonic seconds of the pacing.
        seconds: how long it is wanted.
    """
    ends = lease.expires if isinstance(lease, FencedLease) else None
    return ends is None or ends - now >= seconds
