"""Run programs on a virtual clock as greenlets: a switch takes a microsecond.

:class:`GreenletClock` is a fast :class:`~lakefmt.testing.virtual_time.VirtualTime`. It needs the
package ``greenlet``. Work in threads that a program starts takes no virtual time.
"""

from __future__ import annotations

from collections.abc import Callable

import greenlet

from lakefmt.testing.store_wrapper import SimulatedCrash
from lakefmt.testing.virtual_time import VirtualTime

__all__ = ["GreenletClock"]

_STEP_LIMIT = 400_000


class GreenletClock(VirtualTime):
    """A clock in seconds from 0; a waiting program yields to the one that is due next.

    Example:
        >>> time, seen = GreenletClock(), []
        >>> def program(name, seconds):
        ...     for _ in range(2):
        ...         time.sleep(seconds)
        ...         seen.append((name, time.now))
        >>> time.run([lambda: program("slow", 1.5), lambda: program("quick", 1.0)])
        >>> seen
        [('quick', 1.0), ('slow', 1.5), ('quick', 2.0), ('slow', 3.0)]
    """

    def __init__(self) -> None:
        super().__init__()
        self._hub: greenlet.greenlet = greenlet.getcurrent()
        self._turns: set[greenlet.greenlet] = set()

    @property
    def is_turn(self) -> bool:
        """Whether the caller is a program that may wait; False in threads that it started."""
        return greenlet.getcurrent() in self._turns

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`; in a thread that a program started, return at once."""
        current = greenlet.getcurrent()
        if current in self._turns:
            self.at(self.now + max(seconds, 0.0), current.switch)
            self._hub.switch()
        elif current is self._hub:
            super().sleep(seconds)

    def run(self, programs: list[Callable[[], None]]) -> None:
        """Run programs concurrently until all of them, and those they spawned, have ended.

        Raises:
            AssertionError: they have not ended after a very large number of steps.
        """
        self._hub = greenlet.getcurrent()
        for program in programs:
            self.spawn(program)
        for _ in range(_STEP_LIMIT):
            if not self._turns:
                return
            self._next()
        raise AssertionError(f"the programs have not ended after {_STEP_LIMIT:,} steps")

    def spawn(self, work: Callable[[], None]) -> None:
        """Run `work` concurrently from now on."""

        def whole() -> None:
            try:
                work()
            except SimulatedCrash:
                return
            finally:
                self._turns.discard(turn)

        turn = greenlet.greenlet(whole, parent=self._hub)
        self._turns.add(turn)
        self.at(self.now, turn.switch)
