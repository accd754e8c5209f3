"""The thread pool of one write: Arrow and NumPy release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

__all__ = ["WorkerPool", "results", "thread_count"]

U = TypeVar("U")

#: Up to this number of rows a thread takes longer to start than the logs take to be encoded.
_FEW_ROWS = 2000


def thread_count(most: int, files: int, rows: int, *, only_logs: bool, waits: bool) -> int:
    """Return how many threads write the files of a commit.

    Args:
        most: threads.
        files: to be written.
        rows: of all files.
        only_logs: all files are logs.
        waits: storing a file takes the time of a disk or a network.

    Example:
        >>> [thread_count(8, 4, rows, only_logs=True, waits=False) for rows in (100, 100_000)]
        [1, 4]
    """
    return 1 if only_logs and rows <= _FEW_ROWS and not waits else min(most, files)


def results(works: Iterable[Future[U]]) -> list[U]:
    """Wait for works and return what they made, in their order; the first error is raised."""
    return [work.result() for work in works]


class WorkerPool:
    """A thread pool. On exit, queued tasks are cancelled and running ones are waited for.

    Threads that end give back what Arrow's allocator keeps for each of them.

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

    def submit(self, work: Callable[..., U], *arguments: object) -> Future[U]:
        """Have a work done; the answer holds its result, or its error, which with one thread is raised at once."""
        if self._pool is not None:
            return self._pool.submit(work, *arguments)
        done: Future[U] = Future()
        done.set_result(work(*arguments))
        return done
