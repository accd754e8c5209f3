"""Waiting: real time, or a test's virtual time (effects).

Lock polling, retry pauses and heartbeats use a given :class:`TimeSource`, so that a simulation can
run many writers on a virtual clock.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["SystemTimeSource", "TimeSource"]


class TimeSource(Protocol):
    """The protocol of waiting."""

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        ...

    def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
        """Acquire a lock of this process; False after `seconds`."""
        ...

    def jitter(self) -> float:
        """Return a number in [0, 1) that spreads competing writers."""
        ...

    def schedule_periodic(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        """Call `work` every `seconds` in the background; the returned function stops it."""
        ...


class SystemTimeSource:
    """Real time; each periodic job gets a daemon thread when it first runs.

    Example:
        >>> time_source = SystemTimeSource()
        >>> begin = time_source.monotonic()
        >>> stop = time_source.schedule_periodic(60.0, lambda: None, "lakefmt-example")
        >>> stop()
        >>> 0 <= time_source.jitter() < 1 and time_source.monotonic() >= begin
        True
    """

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        time.sleep(seconds)

    def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
        """Acquire a lock of this process; False after `seconds`."""
        return lock.acquire(timeout=seconds)

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        from random import SystemRandom  # few writes wait for others

        return SystemRandom().random()

    def schedule_periodic(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        """Call `work` every `seconds` in a daemon thread; the returned function stops it."""
        job = _Job(seconds, work, name)
        _alarm.set(job)
        return job.stop


class _Job:
    """A periodic job."""

    def __init__(self, seconds: float, work: Callable[[], None], name: str) -> None:
        self.due = time.monotonic() + seconds
        self._seconds = seconds
        self._work = work
        self._name = name
        self._stopping = threading.Event()

    def start(self) -> None:
        """Run it from now on in its own thread: no other job waits for a slow one."""
        threading.Thread(target=self._repeat, name=self._name, daemon=True).start()

    def _repeat(self) -> None:
        while not self._stopping.is_set():
            self._work()
            self._stopping.wait(self._seconds)

    def stop(self) -> None:
        """Stop it; a second call does nothing."""
        self._stopping.set()
        _alarm.forget(self)


class _Alarm:
    """Starts jobs when they are first due.

    A heartbeat is due after a minute, and a small commit takes milliseconds: starting and joining a
    thread for each took a tenth of such a commit. All jobs share one thread until they are due; it
    ends when nothing waits.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything after a fork: the parent's threads do not exist in the child."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting: set[_Job] = set()
        self._awake_at: float | None = None  # None: no thread is running

    def set(self, job: _Job) -> None:
        """Start a job when it is due."""
        with self._changed:
            if self._awake_at is None:
                threading.Thread(target=self._run, name="lakefmt-alarm", daemon=True).start()
                self._awake_at = job.due
            elif job.due < self._awake_at:
                self._changed.notify()
            self._waiting.add(job)

    def forget(self, job: _Job) -> None:
        """Do not start a job."""
        with self._changed:
            self._waiting.discard(job)

    def _run(self) -> None:
        with self._changed:
            try:
                while self._waiting:
                    now = time.monotonic()
                    for job in [job for job in self._waiting if job.due <= now]:
                        job.start()
                        self._waiting.discard(job)
                    if self._waiting:
                        self._awake_at = min(job.due for job in self._waiting)
                        self._changed.wait(self._awake_at - now)
            finally:
                self._awake_at = None  # the next job starts a new thread, also if a thread could not be started


_alarm = _Alarm()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alarm.reset)
