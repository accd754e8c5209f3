"""Locks that can be lost: waiting for one, keeping it alive, proving it, giving it back (effects).

Everything that locks with a lease share is here, once; what they do not share is a :class:`LockBackend`.

A lease is counted from *before* the request that gained or renewed it, on the monotonic clock of its holder: whatever the
answer's delay, the holder stops believing in it before anybody else may take it. Once lost it stays lost – it is never
revived, and a commit that asks for it is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.timeline.locks.api import Lease, LockBackend, LockHandle, RetryPolicy
from lakefmt._core.timeline.locks.local import InProcessLock
from lakefmt.errors import LakefmtError, LeaseLost, LockUnavailable, StorageError

__all__ = ["LeasedLock", "TimedLease"]

_log = logging.getLogger("lakefmt.timeline")

#: A commit that begins to complete has at least this share of the lease before it.
_LEAST_SHARE_LEFT = 0.1
_PROOF_PAUSES = (0.05, 0.2, 0.5)
_RELEASE_PAUSES = (1.0, 2.0, 4.0)
_BUSY_SECONDS = 60.0


class TimedLease:
    """One tenure of a lock, as its holder sees it."""

    def __init__(self, handle: LockHandle, what: str, time_source: TimeSource, request_time: float) -> None:
        self._handle = handle
        self._what = what
        self._time_source = time_source
        self._ends = self._end_from(request_time)
        self._lost: str | None = None
        # A beat, a check and the release must not overlap: each of them may change what the tenure is called.
        self._busy = Lock()

    @property
    def token(self) -> str:
        """What this tenure, and no other, is called where the lock lives."""
        return self._handle.token

    @property
    def expires(self) -> float | None:
        """Monotonic seconds at which it ends unless renewed; None when only its keeper knows."""
        return self._ends

    def check(self) -> None:
        """Prove that the lock is still ours.

        Raises:
            LeaseLost: it is not, or that is not known.
        """
        if not self._time_source.acquire_lock(self._busy, _BUSY_SECONDS):
            self._lose(f"its renewal has not returned for {_BUSY_SECONDS:g} s")
        try:
            self._check_time()
            if self._is_short() and not self._attempt("renewed", self._renew):
                self._lose("somebody else has it")
            if not self._attempt("proved", self._handle.prove):
                self._lose("it was removed or taken over while held")
            self._check_time()  # the proof may have taken all that was left
        finally:
            self._busy.release()

    def start(self) -> Callable[[], None]:
        """Begin to renew it in the background; the call that is returned ends that."""
        beat = self._handle.beat_seconds
        return (lambda: None) if beat is None else self._time_source.schedule_periodic(beat, self.beat, "lakefmt-lock")

    def beat(self) -> None:
        """Renew it once, unless it is lost; a renewal without an answer is tried again by the next beat."""
        if self._lost is not None or not self._busy.acquire(blocking=False):
            return
        try:
            self._check_time()
            if not self._renew():
                self._lose("somebody else has it")
        except LakefmtError as error:
            _log.warning("%s was not renewed: %s", self._what, error)
        finally:
            self._busy.release()

    def end(self) -> None:
        """Give it back; what cannot be given back ends by itself, so a commit that is complete is not failed for it."""
        self._lost = self._lost or "it was given back"
        for pause in (*_RELEASE_PAUSES, None):
            try:
                self._handle.release()
            except StorageError as error:
                if pause is not None and error.transient:
                    self._time_source.sleep(pause)
                    continue
                _log.warning("%s could not be given back: %s", self._what, error)
            return

    def _attempt(self, doing: str, ask: Callable[[], bool]) -> bool:
        for pause in (*_PROOF_PAUSES, None):
            try:
                return ask()
            except StorageError as error:
                if pause is None or not error.transient:
                    self._lose(f"it could not be {doing}: {error}")
                self._time_source.sleep(pause or 0.0)
        raise AssertionError("the last attempt returns or raises")

    def _renew(self) -> bool:
        request_time = self._time_source.monotonic()
        if not self._handle.renew():
            return False
        self._ends = self._end_from(request_time)
        return True

    def _end_from(self, request_time: float) -> float | None:
        valid = self._handle.valid_seconds
        return None if valid is None else request_time + valid

    def _is_short(self) -> bool:
        valid, ends = self._handle.valid_seconds, self._ends
        if valid is None or ends is None or self._handle.beat_seconds is None:
            return False
        return ends - self._time_source.monotonic() < valid * _LEAST_SHARE_LEFT

    def _check_time(self) -> None:
        if self._lost is None and self._ends is not None and self._time_source.monotonic() >= self._ends:
            self._lost = "its time was over before the work was done"
        if self._lost is not None:
            self._lose(self._lost)

    def _lose(self, why: str) -> None:
        self._lost = why
        raise LeaseLost(f"{self._what} is not ours any more: {why}; the commit is refused, try again")


class LeasedLock:
    """A :class:`~lakefmt._core.timeline.locks.api.TableLock` over a keeper; threads of one process queue before they ask it."""

    def __init__(
        self, backend: LockBackend, url: str, retry_policy: RetryPolicy, time_source: TimeSource | None = None
    ) -> None:
        self._backend = backend
        self._patience = retry_policy
        self._time_source = time_source or SystemTimeSource()
        self._turn = InProcessLock(url, retry_policy.total, self._time_source)

    @contextmanager
    def hold(self) -> Iterator[Lease]:
        """Hold the lock inside the block."""
        with self._turn.hold():
            try:
                lease = self._acquire()
                stop = lease.start()
                try:
                    yield lease
                finally:
                    stop()
                    lease.end()
            finally:
                self._backend.close()

    def _acquire(self) -> TimedLease:
        backend = self._backend
        failure: StorageError | None = None
        for _ in self._patience.tries(self._time_source, backend.longest_pause):
            request_time = self._time_source.monotonic()
            try:
                handle = backend.acquire()
            except StorageError as error:
                if not error.transient:
                    raise
                failure = error
                continue
            if handle is not None:
                return TimedLease(handle, backend.what, self._time_source, request_time)
            failure = None
        if failure is not None:
            raise failure
        raise LockUnavailable(f"{backend.what} was held for {self._patience.total:g} s; {backend.hint}")
