"""Hudi's ``FileSystemBasedLockProvider``: the file ``.hoodie/lock``, present while it is held (docs/format.md, Locks).

Who creates the file has the lock; Spark writers do the same. It says nothing of time. With an expiry
(``hoodie.write.lock.filesystem.expire``, minutes) a file that was last touched longer ago may be taken over; a holder on a
local disk keeps touching its own. A file that is not ours any more is never removed by us.

A process of lakefmt that is killed leaves the file. So the file names its process, and beside it lies a note that the process
keeps locked: where both the process has ended and the operating system has freed the note, the next process of lakefmt on
that machine takes the file over at once (:mod:`lakefmt.timeline.locks._owner_notes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lakefmt.errors import LakefmtError, ObjectNotFound
from lakefmt.storage.api import ObjectStore, PutOutcome, with_versions
from lakefmt.storage.local.process_lock import SupportsProcessLocks
from lakefmt.storage.time_source import TimeSource
from lakefmt.timeline.locks._owner_notes import HolderNotes, decode_stamp, encode_stamp
from lakefmt.timeline.locks.api import LockHandle, RetryPolicy
from lakefmt.timeline.locks.lease import LeasedLock

__all__ = ["FileLockBackend", "FileSystemLock"]

FILE_SYSTEM_LOCK_NAME = ".hoodie/lock"
_MAX_BYTES = 1 << 20
_BEATS_PER_EXPIRY = 4


class FileLockBackend:
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
        self._owner = owner
        self._notes = HolderNotes(store, name)
        self._stamp = b""
        self._now = now
        self._name = name
        self._expire = expire_seconds

    @property
    def what(self) -> str:
        """The file's name."""
        return f"{self._name} of {self._store.url}"

    @property
    def hint(self) -> str:
        """Who holds it, as far as the file says so, and what to do when its holder is dead."""
        return (
            f"{self._holder()}; when that is dead, remove the file (or set hoodie.write.lock.filesystem.expire to minutes, "
            "the same for every writer)"
        )

    def _holder(self) -> str:
        try:
            seen = decode_stamp(self._store.read(self._name, _MAX_BYTES))
        except LakefmtError:
            seen = None
        if seen is None:
            return "its holder is another engine, which names no process"
        return f"its holder is process {seen.pid} of lakefmt on {seen.host!r}"

    def acquire(self) -> LockHandle | None:
        """Create the file, or take over one that is dead or has expired; None while another holder has it."""
        self._stamp = self._stamp or encode_stamp(self._owner, self._notes.begin())
        outcome = self._store.put_if_absent(self._name, self._stamp)
        if outcome is PutOutcome.REFUSED:
            outcome = self._notes.take_over(self._stamp)
        if outcome is PutOutcome.REFUSED and self._expire:
            outcome = self._take_over()
        handle = FileLockHandle(self._store, self._name, self._stamp, self._expire)
        if outcome is PutOutcome.DONE or (outcome is PutOutcome.UNKNOWN and handle.prove()):
            self._notes.sweep()
            return handle
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
        """Remove the note, unless the file could not be given back and still names it."""
        self._notes.end(self._stamp)
        self._stamp = b""


class FileLockHandle:
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
        retry_policy: RetryPolicy,
        time_source: TimeSource | None = None,
        now: Callable[[], float] = time.time,
        *,
        name: str = FILE_SYSTEM_LOCK_NAME,
        expire_seconds: float = 0.0,
    ) -> None:
        backend = FileLockBackend(store, owner, now, name=name, expire_seconds=expire_seconds)
        super().__init__(backend, store.url, retry_policy, time_source)
