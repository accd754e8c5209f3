"""Threads for tests that start at the same moment and are all joined."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

__all__ = ["together"]

T = TypeVar("T")

_BEGIN_WITHIN_SECONDS = 30.0


def together(acts: list[Callable[[], T]]) -> list[T]:
    """Run every act in its own thread, all starting at the same moment, and return their results in order.

    Example:
        >>> together([lambda: 1, lambda: 2])
        [1, 2]
    """
    barrier = Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        barrier.wait(_BEGIN_WITHIN_SECONDS)
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))
