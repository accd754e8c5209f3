"""Several looks at a store at once, where each of them is a journey (effects)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from lakefmt.storage.api import ObjectStore

__all__ = ["map_concurrently"]

T = TypeVar("T")

_AT_ONCE: Final = 16


def map_concurrently(store: ObjectStore, looks: Sequence[Callable[[], T]]) -> list[T]:
    """Return what several looks at the store find, in their order; for what others wait for, as under the table lock.

    A local disk or this memory answers sooner than a thread begins: there, one after the other.

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
