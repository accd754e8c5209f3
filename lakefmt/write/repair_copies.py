"""Copies of what a repair replaces (effects)."""

from __future__ import annotations

from lakefmt.errors import CorruptFile
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.timeline.store import MAX_BODY_BYTES, settle_put

__all__ = ["KEPT", "keep_copy"]

#: Where copies of what was replaced are kept.
KEPT = ".hoodie/.lakefmt/repaired"
_COPIES = 1000


def keep_copy(store: ObjectStore, name: str, data: bytes) -> None:
    """Keep a copy of an object that will be replaced; the same bytes are kept once."""
    for number in range(_COPIES):
        target = f"{KEPT}/{name.rpartition('/')[2]}.{number}"
        if settle_put(store, target, data, durable=True) is PutOutcome.DONE:
            return
        if store.read(target, max(len(data), MAX_BODY_BYTES)) == data:
            return
    raise CorruptFile(f"{KEPT} holds {_COPIES} copies of {name} already: make room there first")
