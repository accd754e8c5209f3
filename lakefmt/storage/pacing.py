"""How time passes while something is waited for: real time, or the virtual time of a test that owns it (effects).

Locks poll, retries pause, heartbeats beat: all through a :class:`Pacing` that is handed in, so that a simulation can run
many writers on one clock of its own.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Pacing", "SystemPacing"]


class Pacing(Protocol):
    """How waiting is done."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...

    def take(self, lock: threading.Lock, seconds: float) -> bool:
        """Acquire a lock of this process; False when that took longer than `seconds`."""
        ...

    def fraction(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive); it spreads writers that wait for each other."""
        ...

    def every(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        """Do `work` every `seconds` beside everything else; the call that is returned ends that."""
        ...


class SystemPacing:
    """Real time; each thing that is repeated has a daemon thread of its own.

    Example:
        >>> pacing = SystemPacing()
        >>> begin = pacing.monotonic()
        >>> stop = pacing.every(60.0, lambda: None, "lakefmt-example")
        >>> stop()
        >>> 0 <= pacing.fraction() < 1 and pacing.monotonic() >= begin
        True
    """

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        time.sleep(seconds)

    def take(self, lock: threading.Lock, seconds: float) -> bool:
        """Acquire a lock of this process; False when that took longer than `seconds`."""
        return lock.acquire(timeout=seconds)

    def fraction(self) -> float:
        """Return a random number from 0 (inclusive) to 1 (exclusive)."""
        return random.SystemRandom().random()

    def every(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        """Do `work` every `seconds` in a daemon thread; the call that is returned ends it."""
        stopping = threading.Event()

        def repeat() -> None:
            while not stopping.wait(seconds):
                work()

        threading.Thread(target=repeat, name=name, daemon=True).start()
        return stopping.set
