"""The longest chain of requests that wait for each other, counted on a clock on which every request takes one tick.

Requests that threads make side by side count once: a task begins at the time of the thread that submits it, or when a worker
of its pool is free, and who takes its result waits for its end.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from lakefmt._core.storage.remote_s3 import S3Objects


class RequestClock:
    """A clock of each thread in ticks, and how many requests there were.

    Example:
        >>> clock = RequestClock()
        >>> with clock.installed(), ThreadPoolExecutor(2) as pool:
        ...     clock.request()
        ...     _ = list(pool.map(lambda _: clock.request(), range(4)))
        >>> clock.now, clock.requests
        (3, 5)
    """

    def __init__(self) -> None:
        self._threads = threading.local()
        self._lock = threading.Lock()
        self._free: WeakKeyDictionary[ThreadPoolExecutor, list[int]] = WeakKeyDictionary()
        self.requests = 0

    @property
    def now(self) -> int:
        """The time of this thread."""
        return getattr(self._threads, "now", 0)

    def _set(self, moment: int) -> None:
        self._threads.now = moment

    def _take_worker(self, pool: ThreadPoolExecutor, submitted: int) -> None:
        """Begin a task when the first worker of its pool is free, whichever thread runs it."""
        with self._lock:
            free = self._free.setdefault(pool, [submitted] * pool._max_workers)
            self._set(max(submitted, heapq.heappop(free)))

    def _free_worker(self, pool: ThreadPoolExecutor) -> int:
        with self._lock:
            heapq.heappush(self._free[pool], self.now)
        return self.now

    def request(self) -> None:
        """Let one request pass."""
        self._set(self.now + 1)
        with self._lock:
            self.requests += 1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Count the requests of every S3 store, and follow the pools of threads."""
        submit, result = ThreadPoolExecutor.submit, Future.result

        def submit_counted(pool: ThreadPoolExecutor, act: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
            begun = self.now
            ended = [begun]

            def run() -> Any:
                self._take_worker(pool, begun)
                try:
                    return act(*args, **named)
                finally:
                    ended[0] = self._free_worker(pool)

            future = submit(pool, run)
            future.ended = ended  # type: ignore[attr-defined]
            return future

        def result_counted(future: Any, timeout: float | None = None) -> Any:
            try:
                return result(future, timeout)
            finally:
                self._set(max(self.now, getattr(future, "ended", [0])[0]))

        def counted(method: Callable[..., Any]) -> Callable[..., Any]:
            def ask(*args: Any, **named: Any) -> Any:
                self.request()
                return method(*args, **named)

            return ask

        with (
            patch.object(ThreadPoolExecutor, "submit", submit_counted),
            patch.object(Future, "result", result_counted),
            patch.object(S3Objects, "_call", counted(S3Objects._call)),
            patch.object(S3Objects, "_fetched", counted(S3Objects._fetched)),
        ):
            yield
