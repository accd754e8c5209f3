"""Copies of one table whose writers can be repeated: the same calls leave the same bytes, and these are checked once.

A sweep over the effects of a write meets many states more than once: what a process leaves that dies after an effect is
what it leaves when it dies before the next one. A check that asks nothing but the state gives the same answer again. That
holds to the byte, since all copies have one address, all handles read a clock that starts at the same moment and ids that
are numbered, and the state before is part of what is compared. Where something still differs, the check runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table

#: After it every heartbeat of a dead process has expired.
LATER = timedelta(hours=1)


class StepClock:
    """A clock that goes on by a millisecond each time it is read."""

    def __init__(self, first: datetime) -> None:
        self._next = first

    def now(self) -> datetime:
        """Return the moment, one millisecond after the last."""
        self._next += timedelta(milliseconds=1)
        return self._next


class NumberedIds:
    """UUIDs by number; each source counts in a range of its own."""

    def __init__(self, source: int) -> None:
        self._next = source << 64

    def new_uuid(self) -> str:
        """Return the next UUID."""
        self._next += 1
        return str(UUID(int=self._next))


class _Copy(MemoryStore):
    """A store of its own under the address of the table that was copied: plans hold it."""

    def __init__(self, url: str, moment: float) -> None:
        super().__init__(now=lambda: moment)
        self._url = url


class Repeatable:
    """A table in memory of which copies are made, and which states of them have been checked.

    Args:
        made: holds the table; what becomes of it later is not seen.
    """

    def __init__(self, made: ObjectStore) -> None:
        self._url = made.url
        self._objects = {found.name: made.read(found.name) for found in made.list()}
        self._begin = datetime.now(UTC)
        self._checked: set[bytes] = set()

    def copy(self) -> MemoryStore:
        """Return a store of its own that holds the table, under the table's address."""
        store = _Copy(self._url, self._begin.timestamp())
        self.copy_to(store)
        return store

    def copy_to(self, store: ObjectStore) -> None:
        """Put the table's objects into another store."""
        for name, data in self._objects.items():
            store.put(name, data)

    def client(self, store: ObjectStore, options: Mapping[str, object], process: float = 0, **more: Any) -> TableClient:
        """Return a handle on a copy; what the process with that number does it does again in the same way.

        Every process begins long after the one before it, so that heartbeats of that one have expired; one with a fraction
        of a number begins soon after it.
        """
        clock, ids = StepClock(self._begin + process * LATER), NumberedIds(1 + int(1000 * process))
        return TableClient(store, options, clock=clock, ids=ids, **more)

    def table(self, store: ObjectStore, options: Mapping[str, object], process: float = 0, **more: Any) -> Table:
        """Return a table over such a handle."""
        return Table(self.client(store, options, process, **more))

    def is_new(self, store: MemoryStore, *more: object) -> bool:
        """Say whether a state is met for the first time; from now on it is known.

        Args:
            store: all of its objects count, temporary ones too.
            more: what else the check depends on, that has a stable text.
        """
        held = store._space.objects  # lists leave temporary objects out
        digest = hashlib.sha256(repr(more).encode())
        for name in sorted(held):
            digest.update(f"\0{name}\0{len(held[name].data)}\0".encode())
            digest.update(held[name].data)
        known = digest.digest() in self._checked
        self._checked.add(digest.digest())
        return not known
