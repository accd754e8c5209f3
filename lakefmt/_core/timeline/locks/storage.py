"""Hudi's ``StorageBasedLockProvider`` (1.1 and newer): one JSON object, changed by conditional puts only (docs/format.md, Locks).

``.hoodie/.locks/table_lock.json`` says who has the lock and until when. Who finds it expired, or absent, replaces
exactly what it found; the holder renews it the same way and marks it expired in the end. The object is never removed. No
server is asked but the store itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import CasResult, ObjectStore, PutOutcome, SupportsVersions
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.timeline.locks.api import LockHandle, RetryPolicy
from lakefmt._core.timeline.locks.lease import LeasedLock
from lakefmt.errors import CorruptFile, StorageError

__all__ = [
    "STORAGE_LOCK_NAME",
    "LockRecord",
    "StorageLock",
    "StorageLockBackend",
    "decode_lock_record",
    "encode_lock_record",
]

STORAGE_LOCK_NAME: Final = ".hoodie/.locks/table_lock.json"
#: How far the clocks of two writers may be apart; as Hudi has it.
_CLOCK_DRIFT_SECONDS: Final = 0.5
_MAX_BYTES: Final = 1 << 16
_MAX_MILLISECONDS: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class LockRecord:
    """What the object says: the holder, until when (epoch milliseconds), and whether it was given back."""

    owner: str
    valid_until: int
    expired: bool


def encode_lock_record(record: LockRecord) -> bytes:
    """Return the object's bytes, as Hudi writes and reads them.

    Example:
        >>> encode_lock_record(LockRecord("me", 17, False))
        b'{"expired":false,"validUntil":17,"owner":"me"}'
    """
    content = {"expired": record.expired, "validUntil": record.valid_until, "owner": record.owner}
    return json.dumps(content, separators=(",", ":")).encode()


def decode_lock_record(data: bytes, name: str = STORAGE_LOCK_NAME) -> LockRecord:
    """Return what the object says.

    Args:
        data: its bytes; Hudi requires all three fields.
        name: of the object, for errors.

    Raises:
        CorruptFile: it is not such an object.

    Example:
        >>> decode_lock_record(b'{"owner":"you","validUntil":5,"expired":true}')
        LockRecord(owner='you', valid_until=5, expired=True)
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        owner, until, expired = content.get("owner"), content.get("validUntil"), content.get("expired")
        if (
            isinstance(owner, str)
            and isinstance(expired, bool)
            and type(until) is int
            and 0 <= until < _MAX_MILLISECONDS
        ):
            return LockRecord(owner, until, expired)
    raise CorruptFile(
        f"{name} is no lock of Hudi's StorageBasedLockProvider: look at it, and remove it when no writer is at work"
    )


class StorageLockBackend:
    """The object; `now` tells epoch seconds."""

    longest_pause = 0.25

    def __init__(
        self,
        store: ObjectStore,
        swapping: SupportsVersions,
        owner: str,
        now: Callable[[], float],
        *,
        valid_seconds: float,
        beat_seconds: float,
        name: str = STORAGE_LOCK_NAME,
    ) -> None:
        self._swapping = swapping
        self._name = name
        self._url = store.url
        self._owner = owner
        self._now = now
        self._valid = valid_seconds
        self._beat = beat_seconds

    @property
    def what(self) -> str:
        """The object's name."""
        return f"{self._name} of {self._url}"

    @property
    def hint(self) -> str:
        """Its holder is at work; a dead one's lease ends by itself."""
        return f"a dead holder's lease ends by itself within hoodie.write.lock.storage.validity.timeout.secs ({self._valid:g})"

    def acquire(self) -> LockHandle | None:
        """Replace what says that the lock is free; None while another holder has it."""
        stored = self._swapping.read_version(self._name, _MAX_BYTES)
        if stored is not None:
            record = decode_lock_record(stored.data, self._name)
            # Ours: a request that was given up for lost arrived after all.
            is_free = record.expired or record.owner == self._owner
            if not is_free and self._now() * 1000 <= record.valid_until + _CLOCK_DRIFT_SECONDS * 1000:
                return None
        handle = StorageLockHandle(self._swapping, self._owner, self._now, self._valid, self._beat, self._name)
        return handle if handle.put(None if stored is None else stored.mark) else None

    def close(self) -> None:
        """Nothing is kept open."""


class StorageLockHandle:
    """Our object: its mark is what no other request can have."""

    def __init__(
        self,
        swapping: SupportsVersions,
        owner: str,
        now: Callable[[], float],
        valid_seconds: float,
        beat_seconds: float,
        name: str = STORAGE_LOCK_NAME,
    ) -> None:
        self._swapping = swapping
        self._name = name
        self._owner = owner
        self._now = now
        self._mark = ""
        self._until = 0
        self.valid_seconds: float | None = valid_seconds
        self.beat_seconds: float | None = beat_seconds

    @property
    def token(self) -> str:
        """The owner and the mark of the object."""
        return f"{self._owner} {self._mark}"

    def put(self, mark: str | None, *, expired: bool = False) -> bool:
        """Replace the object with that mark by ours; False when another holder has it.

        Raises:
            StorageError: that is not known.
        """
        until = self._until if expired else int((self._now() + (self.valid_seconds or 0.0)) * 1000)
        data = encode_lock_record(LockRecord(self._owner, until, expired))
        swap = self._swapping.put_if_match(self._name, data, mark)
        settled = self._settle(swap, data, mark)
        if settled is None:
            return False
        self._mark, self._until = settled, until
        return True

    def _settle(self, swap: CasResult, data: bytes, mark: str | None) -> str | None:
        """Return the mark of our object, None when another one is there."""
        if swap.outcome is PutOutcome.DONE and swap.mark is not None:
            return swap.mark
        # A refusal may have met our own object, put by a request that a client library repeated: the bytes decide, which
        # name us and this very moment.
        version = self._swapping.read_version(self._name, _MAX_BYTES)
        if version is not None and version.data == data:
            return version.mark
        if swap.outcome is PutOutcome.UNKNOWN and (None if version is None else version.mark) == mark:
            raise StorageError(f"a put of {self._name} was lost, or is still on its way", transient=True)
        return None

    def renew(self) -> bool:
        """Make it last from now on, if it is still the one we put."""
        # A renewal that was given up for lost may have arrived since: the object is ours under another mark.
        return self.put(self._mark) or (self.prove() and self.put(self._mark))

    def prove(self) -> bool:
        """Read it: the owner decides, because a renewal that was given up for lost may have arrived."""
        version = self._swapping.read_version(self._name, _MAX_BYTES)
        if version is None:
            return False
        record = decode_lock_record(version.data, self._name)
        if record.owner != self._owner or record.expired:
            return False
        self._mark, self._until = version.mark, record.valid_until
        return True

    def release(self) -> None:
        """Mark it as given back, if it is still the one we put."""
        if not self.put(self._mark, expired=True) and self.prove():
            self.put(self._mark, expired=True)


class StorageLock(LeasedLock):
    """The lock that lakefmt and Spark writers with ``StorageBasedLockProvider`` share on an object store."""

    def __init__(
        self,
        store: ObjectStore,
        swapping: SupportsVersions,
        owner: str,
        retry_policy: RetryPolicy,
        time_source: TimeSource | None = None,
        now: Callable[[], float] = time.time,
        *,
        valid_seconds: float = 300.0,
        beat_seconds: float = 30.0,
    ) -> None:
        backend = StorageLockBackend(
            store, swapping, owner, now, valid_seconds=valid_seconds, beat_seconds=beat_seconds
        )
        super().__init__(backend, store.url, retry_policy, time_source)
