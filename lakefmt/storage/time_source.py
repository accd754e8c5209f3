"""How time passes while something is waited for: real time, or the virtual time of a test that owns it (effects).

Locks poll, retries pause, heartbeats beat: all through a :class:`TimeSource` that is handed in, so that a simulation can run
many writers on one clock of its own.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["SystemTimeSource", "TimeSource"]


class TimeSource(Protocol):
    """How waiting is done."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...

    def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
        """Acquire a lock of this process; False when that took longer than `seconds`."""
        ...

    def jitter(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive); it spreads writers that wait for each other."""
        ...

    def schedule_periodic(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        """Do `work` every `seconds` beside everything else; the call that is returned ends that."""
        ...


class SystemTimeSource:
    """Real time; each thing that is repeated has a daemon thread of its own, from the first time that it is done.

    Example:
        >>> time_source = SystemTimeSource()
        >>> begin = time_source.monotonic()
        >>> stop = time_source.schedule_periodic(60.0, lambda: None, "lakefmt-example")
        >>> stop()
        >>> 0 <= time_source.jitter() < 1 and time_source.monotonic() >= begin
        True
    """

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        time.sleep(seconds)

    def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
        """Acquire a lock of this process; False when that took longer than `seconds`."""
        return lock.acquire(timeout=seconds)

    def jitter(self) -> float:
        """Return a random number from 0 (inclusive) to 1 (exclusive)."""
        return random.SystemRandom().random()

    def schedule_periodic(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        """Do `work` every `seconds` in a daemon thread; the call that is returned ends it."""
        job = _Job(seconds, work, name)
        _alarm.set(job)
        return job.stop


class _Job:
    """Something that is repeated until it is stopped."""

    def __init__(self, seconds: float, work: Callable[[], None], name: str) -> None:
        self.due = time.monotonic() + seconds
        self._seconds = seconds
        self._work = work
        self._name = name
        self._stopping = threading.Event()

    def start(self) -> None:
        """Do it from now on, in a thread of its own: no other job waits for a slow one."""
        threading.Thread(target=self._repeat, name=self._name, daemon=True).start()

    def _repeat(self) -> None:
        while not self._stopping.is_set():
            self._work()
            self._stopping.wait(self._seconds)

    def stop(self) -> None:
        """End it; twice is fine."""
        self._stopping.set()
        _alarm.forget(self)


class _Alarm:
    """Starts jobs when they are due for the first time.

    A heartbeat is due after a minute and a commit of some rows is done after milliseconds: a thread for each, started
    and awaited, was a tenth of such a commit. All of them share one thread, which ends when nothing waits.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: after a fork neither the threads nor what they did for the parent are ours."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting: set[_Job] = set()
        self._awake_at: float | None = None  # None: no thread runs

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
                self._awake_at = None  # the next job starts the thread anew, also after a thread could not be started


_alarm = _Alarm()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alarm.reset)
