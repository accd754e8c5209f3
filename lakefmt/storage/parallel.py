"""Run store requests concurrently when the store has high latency (effects)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from lakefmt.storage.api import ObjectStore

__all__ = ["map_concurrently"]

T = TypeVar("T")

_AT_ONCE: Final = 16


def map_concurrently(store: ObjectStore, looks: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of several store requests in order; used where others wait, as under the table lock.

    Stores with low latency run them sequentially: a request is faster than starting a thread.

    Example:
        >>> from lakefmt.storage import MemoryStore
        >>> store = MemoryStore()
        >>> map_concurrently(store, [lambda: store.info("a"), lambda: store.info("b")])
        [None, None]
    """
    if len(looks) < 2 or store.capabilities.low_latency:
        return [look() for look in looks]
    with ThreadPoolExecutor(min(_AT_ONCE, len(looks))) as pool:
        return list(pool.map(lambda look: look(), looks))
