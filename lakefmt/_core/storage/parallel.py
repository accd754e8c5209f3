"""Run store requests concurrently when the store has high latency (effects)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Generic, TypeVar

from lakefmt._core.storage.api import ObjectStore
from lakefmt.errors import StorageError

__all__ = ["BegunRequest", "map_concurrently"]

T = TypeVar("T")

_AT_ONCE: Final = 16


def map_concurrently(store: ObjectStore, looks: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of several store requests in order; used where others wait, as under the table lock.

    Stores with low latency run them sequentially: a request is faster than starting a thread.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
        >>> store = MemoryStore()
        >>> map_concurrently(store, [lambda: store.info("a"), lambda: store.info("b")])
        [None, None]
    """
    if len(looks) < 2 or store.capabilities.low_latency:
        return [look() for look in looks]
    with ThreadPoolExecutor(min(_AT_ONCE, len(looks))) as pool:
        return list(pool.map(lambda look: look(), looks))


class BegunRequest(Generic[T]):
    """A store request that the next ones need not wait for; a call waits for its result, or raises its error.

    Stores with low latency answer it at once.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
        >>> store = MemoryStore()
        >>> begun = BegunRequest(store, lambda: store.put_if_absent("a", b""))
        >>> begun(), begun()
        (<PutOutcome.DONE: 'done'>, <PutOutcome.DONE: 'done'>)
    """

    def __init__(self, store: ObjectStore, act: Callable[[], T]) -> None:
        if store.capabilities.low_latency:
            self._answer: Future[T] = Future()
            self._answer.set_result(act())
            return
        pool = ThreadPoolExecutor(1)
        self._answer = pool.submit(act)
        pool.shutdown(wait=False)

    def __call__(self) -> T:
        """Wait for the result."""
        return self._answer.result()

    def end(self, error: type[BaseException] | None = StorageError, *_: object) -> None:
        """Wait where an error makes the result useless, so that the request changes nothing later."""
        if error is not None:
            with suppress(StorageError):
                self()
