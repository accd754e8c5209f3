"""Do the parts of a work in this thread and in others that are kept for the next work (effects: threads).

To start a thread takes longer than to search a page, on a busy machine some milliseconds: it is waited for until it runs. A
kept one that has not begun when all is done is not waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Final, TypeVar

__all__ = ["do_side_by_side"]

A = TypeVar("A")
B = TypeVar("B")

#: More threads wait for memory.
_MOST_THREADS: Final = 4


class _Others:
    """The threads that are kept; they are started when they are needed first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, work: Callable[[], None], count: int) -> list[Future[None]]:
        """Begin a work in some threads; in none while the interpreter ends."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_MOST_THREADS - 1, "lakefmt-search")
            try:
                return [self._pool.submit(work) for _ in range(count)]
            except RuntimeError:
                return []

    def forget(self) -> None:
        """Forget the threads of the process that this one was forked from."""
        self._lock, self._pool = Lock(), None


_others = _Others()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_others.forget)


def do_side_by_side(act: Callable[[A], B], parts: Sequence[A]) -> list[B]:
    """Return what a function returns for each part, as ``map`` does; the first error of a thread is raised.

    Parameters:
        act: called with each part, by several threads at the same time.
        parts: each is taken by the thread that is ready first.

    Example:
        >>> do_side_by_side(len, ["a", "bc"])
        [1, 2]
    """
    done: list[B | None] = [None] * len(parts)
    left = iter(range(len(parts)))

    def work() -> None:
        for number in left:
            done[number] = act(parts[number])

    others = min(_MOST_THREADS, os.cpu_count() or 1, len(parts)) - 1
    begun = _others.begin(work, others) if others > 0 else []
    try:
        work()
    finally:
        running = [future for future in begun if not future.cancel()]
        errors = [future.exception() for future in running]
    for error in errors:
        if error is not None:
            raise error
    return done  # type: ignore[return-value]
