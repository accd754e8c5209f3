"""Hudi's ``FileSystemBasedLockProvider``: the file ``.hoodie/lock``, present while somebody holds it (spec 2.5, effects).

Whoever creates the file has the lock; Spark writers do the same. It says nothing of time. With an expiry
(``hoodie.write.lock.filesystem.expire``, minutes) a file that was last touched longer ago may be taken over; a holder on a
local disk keeps touching its own. A file that is not ours any more is never removed by us.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable

from lakefmt.errors import ObjectNotFound
from lakefmt.storage.api import ObjectStore, PutOutcome, with_versions
from lakefmt.storage.pacing import Pacing
from lakefmt.storage.process_lock import SupportsProcessLocks
from lakefmt.timeline.lock_api import Patience, Tenure
from lakefmt.timeline.lock_lease import LeasedLock

__all__ = ["FileKeeper", "FileSystemLock"]

FILE_SYSTEM_LOCK_NAME = ".hoodie/lock"
_MAX_BYTES = 1 << 20
_BEATS_PER_EXPIRY = 4


class FileKeeper:
    """The file; `now` tells epoch seconds as the clock that dates files does."""

    longest_pause = 0.02

    def __init__(
        self,
        store: ObjectStore,
        owner: str,
        now: Callable[[], float],
        *,
        name: str = FILE_SYSTEM_LOCK_NAME,
        expire_seconds: float = 0.0,
    ) -> None:
        self._store = store
        self._stamp = json.dumps({"owner": owner, "host": socket.gethostname(), "pid": os.getpid()}).encode()
        self._now = now
        self._name = name
        self._expire = expire_seconds

    @property
    def what(self) -> str:
        """The file's name."""
        return f"{self._name} of {self._store.url}"

    @property
    def hint(self) -> str:
        """What to do when its holder is dead."""
        return "when its holder is dead, remove that file (or set hoodie.write.lock.filesystem.expire everywhere)"

    def acquire(self) -> Tenure | None:
        """Create the file, or take over one that has expired; None while somebody else has it."""
        outcome = self._store.put_if_absent(self._name, self._stamp)
        if outcome is PutOutcome.REFUSED and self._expire:
            outcome = self._take_over()
        tenure = FileTenure(self._store, self._name, self._stamp, self._expire)
        if outcome is PutOutcome.DONE or (outcome is PutOutcome.UNKNOWN and tenure.prove()):
            return tenure
        return None

    def _take_over(self) -> PutOutcome:
        swapping = with_versions(self._store)
        seen = None if swapping is None else swapping.read_version(self._name, _MAX_BYTES)
        # Asked after the file was looked at: the age is of what was seen, or of something younger.
        info = self._store.info(self._name)
        if info is not None and self._now() - info.modified <= self._expire:
            return PutOutcome.REFUSED
        if swapping is not None and seen is not None:
            return swapping.put_if_match(self._name, self._stamp, seen.mark).outcome
        if info is not None:
            self._store.delete([self._name])
        return self._store.put_if_absent(self._name, self._stamp)

    def close(self) -> None:
        """Nothing is kept open."""


class FileTenure:
    """Our file."""

    def __init__(self, store: ObjectStore, name: str, stamp: bytes, expire_seconds: float) -> None:
        self._store = store
        self._name = name
        self._stamp = stamp
        can_touch = expire_seconds > 0 and isinstance(store, SupportsProcessLocks)
        self.token = stamp.decode()
        self.valid_seconds: float | None = expire_seconds or None
        self.beat_seconds: float | None = expire_seconds / _BEATS_PER_EXPIRY if can_touch else None

    def renew(self) -> bool:
        """Touch the file, if it is ours."""
        if not self.prove():
            return False
        if isinstance(self._store, SupportsProcessLocks):
            self._store.touch(self._name)
        return True

    def prove(self) -> bool:
        """Compare the file with what we wrote: Hudi 1.0.2 removes the file of a holder when it fails to get it."""
        try:
            return self._store.read(self._name, _MAX_BYTES) == self._stamp
        except ObjectNotFound:
            return False

    def release(self) -> None:
        """Remove the file, if it is ours."""
        if self.prove():
            self._store.delete([self._name])


class FileSystemLock(LeasedLock):
    """The lock that lakefmt and Spark writers with ``FileSystemBasedLockProvider`` share."""

    def __init__(
        self,
        store: ObjectStore,
        owner: str,
        patience: Patience,
        pacing: Pacing | None = None,
        now: Callable[[], float] = time.time,
        *,
        name: str = FILE_SYSTEM_LOCK_NAME,
        expire_seconds: float = 0.0,
    ) -> None:
        keeper = FileKeeper(store, owner, now, name=name, expire_seconds=expire_seconds)
        super().__init__(keeper, store.url, patience, pacing)
