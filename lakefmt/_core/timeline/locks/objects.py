"""Locks that are objects beside the table: Hudi's providers of a file system and of storage (docs/format.md, Locks).

``StorageBasedLockProvider`` (1.1 and newer): one JSON object, changed by conditional puts only.
``.hoodie/.locks/table_lock.json`` says who has the lock and until when. Who finds it expired, or absent, replaces
exactly what it found; the holder renews it the same way and marks it expired in the end. The object is never removed. No
server is asked but the store itself.

``FileSystemBasedLockProvider``: the file ``.hoodie/lock``, present while it is held. Who creates the file has the lock; Spark writers do the same. It says nothing of time. With an expiry
(``hoodie.write.lock.filesystem.expire``, minutes) a file that was last touched longer ago may be taken over; a holder on a
local disk keeps touching its own. A file that is not ours any more is never removed by us.

A process of lakefmt that is killed leaves the file. So a holder creates a note of its own beside the lock file and keeps it
locked (``flock``), and only then creates the lock file, whose text names the process and the note. The next process of
lakefmt on that machine takes the file over at once where two checks agree:

* the process has ended: same machine since the same start of its system, same space of process numbers, and its number is
  free or was given to a later process;
* the note is there, and is not locked.

The first tells a process from one of another machine or container; the second also holds where copies of one virtual machine
share a disk. A text that lacks any of this, an empty file of a writer on the JVM for example, is never taken over this way.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import CasResult, ObjectStore, PutOutcome, SupportsVersions, with_versions
from lakefmt._core.storage.process_lock import (
    ProcessLock,
    ProcessName,
    SupportsProcessLocks,
    has_ended,
    process_locks,
    this_process,
)
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.timeline.locks.api import LockHandle, RetryPolicy
from lakefmt._core.timeline.locks.lease import LeasedLock
from lakefmt.errors import CorruptFile, LakefmtError, ObjectNotFound, StorageError

__all__ = [
    "FILE_SYSTEM_LOCK_NAME",
    "STORAGE_LOCK_NAME",
    "FileLockBackend",
    "FileSystemLock",
    "HolderNotes",
    "LockRecord",
    "Stamp",
    "StorageLock",
    "StorageLockBackend",
    "Vouched",
    "decode_lock_record",
    "decode_stamp",
    "encode_lock_record",
    "encode_stamp",
]

_MAX_NOTE_BYTES: Final = 1 << 16
_NOTE_PREFIX: Final = "lock_holder-"


@dataclass(frozen=True, slots=True)
class Vouched:
    """What lets the operating system vouch for a holder: its process, and the note that it keeps locked."""

    process: ProcessName
    note: str


@dataclass(frozen=True, slots=True)
class Stamp:
    """The text of a lock file of lakefmt: who wrote it, on which host, in which process; and what vouches for it."""

    owner: str
    host: str
    pid: int
    vouched: Vouched | None


def encode_stamp(owner: str, vouched: Vouched | None) -> bytes:
    """Return the text of a lock file.

    Example:
        >>> decode_stamp(encode_stamp("me", None)).owner
        'me'
    """
    note: dict[str, object] = {"owner": owner, "host": socket.gethostname(), "pid": os.getpid()}
    if vouched is not None:
        note |= {"process": asdict(vouched.process), "note": vouched.note}
    return json.dumps(note).encode()


def decode_stamp(data: bytes) -> Stamp | None:
    """Return what the text of a lock file says; None when lakefmt did not write it.

    Example:
        >>> decode_stamp(b"") is None
        True
    """
    try:
        note = json.loads(data)
        owner, host, pid = note["owner"], note["host"], note["pid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not (isinstance(owner, str) and isinstance(host, str) and type(pid) is int):
        return None
    return Stamp(owner, host, pid, _decode_vouched(note))


def _decode_vouched(content: dict[str, object]) -> Vouched | None:
    process, note = content.get("process"), content.get("note")
    if not isinstance(process, dict) or not isinstance(note, str) or "/" in note or not note.startswith(_NOTE_PREFIX):
        return None
    kinds = {"machine": str, "space": str, "pid": int, "started": int}
    if process.keys() != kinds.keys() or any(
        type(process[name]) is not expected_type for name, expected_type in kinds.items()
    ):
        return None
    return Vouched(ProcessName(**process), note)


class HolderNotes:
    """The notes beside one lock file, as one who wants the lock writes and reads them.

    Args:
        store: holds the lock file; notes exist only where the operating system locks its files.
        lock_name: the lock file.
    """

    def __init__(self, store: ObjectStore, lock_name: str) -> None:
        above = lock_name.rpartition("/")[0]
        self._store = store
        self._locks = process_locks(store)
        self._lock_name = lock_name
        self._directory = f"{above}/.lakefmt" if above else ".lakefmt"
        self._note = _NOTE_PREFIX + os.urandom(12).hex()  # no other lock has this name
        self._held: ProcessLock | None = None

    def _path(self, note: str) -> str:
        return f"{self._directory}/{note}"

    def begin(self) -> Vouched | None:
        """Create our note and keep it locked until :meth:`end`; None where nothing could vouch for us."""
        process = None if self._locks is None else this_process()
        if self._locks is None or process is None:
            return None
        try:
            self._held = self._held or self._locks.hold(self._path(self._note))
        except StorageError:
            return None  # the lock file itself is what counts
        return None if self._held is None else Vouched(process, self._note)

    def take_over(self, stamp: bytes) -> PutOutcome:
        """Put `stamp` in the place of a lock file whose holder is certainly dead; REFUSED when that is not so.

        Raises:
            StorageError: the file system failed.
        """
        swapping = with_versions(self._store)
        if self._locks is None or swapping is None:
            return PutOutcome.REFUSED
        lock_version = swapping.read_version(self._lock_name, _MAX_NOTE_BYTES)
        earlier = None if lock_version is None else decode_stamp(lock_version.data)
        if lock_version is None or earlier is None or earlier.vouched is None or not has_ended(earlier.vouched.process):
            return PutOutcome.REFUSED
        note = self._path(earlier.vouched.note)
        if self._store.info(note) is None:
            return PutOutcome.REFUSED  # a note that was removed says nothing
        note_lock = self._locks.hold(note)
        if note_lock is None:
            return PutOutcome.REFUSED
        with note_lock:
            outcome = swapping.put_if_match(self._lock_name, stamp, lock_version.mark).outcome
            if outcome is PutOutcome.DONE:
                self._store.delete([note])
        return outcome

    def sweep(self) -> None:
        """Remove the notes of processes that died before they had the lock; only who has the lock may ask."""
        if self._held is None or self._locks is None:
            return
        try:
            for item in self._store.list(self._directory, recursive=False):
                last = item.name.rpartition("/")[2]
                note_lock = None
                if last.startswith(_NOTE_PREFIX) and last != self._note:
                    note_lock = self._locks.hold(item.name)
                if note_lock is not None:
                    with note_lock:
                        self._store.delete([item.name])
        except LakefmtError:
            return  # the next holder sweeps

    def end(self, stamp: bytes) -> None:
        """Let go of our note; it stays where the lock file still names it, so that the next one may take that over."""
        note_lock, self._held = self._held, None
        if note_lock is None:
            return
        with note_lock:
            try:
                if self._store.read(self._lock_name, _MAX_NOTE_BYTES) != stamp:
                    self._store.delete([self._path(self._note)])
            except ObjectNotFound:
                self._store.delete([self._path(self._note)])
            except LakefmtError:
                return  # the next holder sweeps


FILE_SYSTEM_LOCK_NAME = ".hoodie/lock"
_MAX_LOCK_FILE_BYTES = 1 << 20
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
            stamp = decode_stamp(self._store.read(self._name, _MAX_LOCK_FILE_BYTES))
        except LakefmtError:
            stamp = None
        if stamp is None:
            return "its holder is another engine, which names no process"
        return f"its holder is process {stamp.pid} of lakefmt on {stamp.host!r}"

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
        lock_version = None if swapping is None else swapping.read_version(self._name, _MAX_LOCK_FILE_BYTES)
        # Asked after the file was looked at: the age is of what was seen, or of something younger.
        info = self._store.info(self._name)
        if info is not None and self._now() - info.modified <= self._expire:
            return PutOutcome.REFUSED
        if swapping is not None and lock_version is not None:
            return swapping.put_if_match(self._name, self._stamp, lock_version.mark).outcome
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
            return self._store.read(self._name, _MAX_LOCK_FILE_BYTES) == self._stamp
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
