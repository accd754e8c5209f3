"""Threads of one write: what Arrow and NumPy do outside the interpreter's lock is done side by side (effects)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from lakefmt.write.values import WriteContext

__all__ = ["Hands", "results", "side_by_side", "threads_of"]

T = TypeVar("T")
U = TypeVar("U")


def threads_of(context: WriteContext) -> int:
    """Return how many threads a write may use."""
    return context.settings.integer("lakefmt.write.threads") or min(8, os.cpu_count() or 1)


def side_by_side(threads: int, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """Return what `work` makes of each item, in their order; threads live as long as the call."""
    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    # Threads that end give back what Arrow's allocator keeps for each of them.
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(work, items))


def results(works: Iterable[Future[U]]) -> list[U]:
    """Wait for works and return what they made, in their order; the first error is raised."""
    return [work.result() for work in works]


class Hands:
    """Threads that take works first come, first served. At its end what has not begun is dropped, what has is waited for.

    Args:
        threads: how many; with one, a work is done where it is given.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def give(self, work: Callable[..., U], *arguments: object) -> Future[U]:
        """Have a work done; the answer holds its result, or its error."""
        if self._pool is not None:
            return self._pool.submit(work, *arguments)
        done: Future[U] = Future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:  # noqa: BLE001 (it is raised where the result is asked for, as a thread's is)
            done.set_exception(error)
        return done
