"""Heartbeats of pending instants (docs/format.md, Heartbeats).

A writer claims an instant time by creating ``.hoodie/.heartbeat/<R>`` before any other file of the
instant, and renews its modification time. On a local disk it also holds an operating system lock on
the file: a writer of this machine without the lock is dead at once, and one that holds it is alive,
however slow.
"""

from __future__ import annotations

import json
import os
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import ObjectStore, PutOutcome
from lakefmt._core.storage.process_lock import ProcessLock, process_locks
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.timeline.instant import Instant
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime
from lakefmt.errors import CorruptFile, LakefmtError, ObjectNotFound

__all__ = ["DIRECTORY", "Heartbeat", "Liveness", "heartbeat_name", "is_alive", "leave", "read_stamp", "stamp_text"]

DIRECTORY = ".hoodie/.heartbeat"
#: Instants that this process has left pending, by table, with what their heartbeats said then; b"": they had none.
_LEFT: OrderedDict[tuple[str, InstantTime], bytes] = OrderedDict()
_MOST_LEFT = 1024
_MAX_STAMP_BYTES = 64 * 1024


def heartbeat_name(time: InstantTime) -> str:
    """Return the path of an instant's heartbeat relative to the table."""
    return f"{DIRECTORY}/{time}"


def make_stamp(owner: str) -> bytes:
    """Return the content of a heartbeat: owner, host and process."""
    return json.dumps({"owner": owner, "host": socket.gethostname(), "pid": os.getpid()}).encode()


def read_stamp(store: ObjectStore, time: InstantTime) -> dict[str, object] | None:
    """Return what the heartbeat of an instant says about its writer.

    None: there is no heartbeat, or it is not one of lakefmt (Hudi's is empty).
    """
    try:
        stamp = json.loads(store.read(heartbeat_name(time), _MAX_STAMP_BYTES) or b"null")
    except (ObjectNotFound, CorruptFile, ValueError, RecursionError):
        return None
    return stamp if isinstance(stamp, dict) else None


def stamp_text(stamp: Mapping[str, object]) -> str:
    """Return a stamp as people read it.

    Example:
        >>> stamp_text({"owner": "o", "host": "h", "pid": 7})
        'o on h, process 7'
    """
    return f"{stamp.get('owner')} on {stamp.get('host')}, process {stamp.get('pid')}"


def leave(store: ObjectStore, time: InstantTime, stamp: bytes = b"") -> None:
    """Note that this process goes on and has left an instant pending: it needs no expiry to know that nobody works on it."""
    _LEFT[store.url, time] = stamp
    while len(_LEFT) > _MOST_LEFT:
        _LEFT.popitem(last=False)


def _was_left(store: ObjectStore, time: InstantTime, *, beats: bool) -> bool:
    """Return whether this process has left an instant, and no other has taken it over since."""
    stamp = _LEFT.get((store.url, time))
    if stamp is None or not beats:
        return stamp is not None
    try:
        return bool(stamp) and store.read(heartbeat_name(time), _MAX_STAMP_BYTES) == stamp
    except ObjectNotFound:
        return True


class Heartbeat:
    """The claim on one instant time, renewed until :meth:`stop`.

    Attributes:
        time: the instant time.
    """

    def __init__(
        self, store: ObjectStore, time: InstantTime, owner: str, interval_seconds: float, time_source: TimeSource
    ) -> None:
        self._store = store
        self._locks = process_locks(store)
        self._time_source = time_source
        self._name, self.time = heartbeat_name(time), time
        self._stamp = make_stamp(owner)
        self._interval = interval_seconds
        self._held: ProcessLock | None = None
        self._stop_beating: Callable[[], None] | None = None

    def claim(self) -> bool:
        """Claim the instant time; False if it is taken."""
        if put_if_absent_confirmed(self._store, self._name, self._stamp, durable=False) is PutOutcome.REFUSED:
            return False
        self._begin()
        return True

    def take_over(self) -> None:
        """Replace the heartbeat of a dead writer; call under the table lock.

        It is never deleted first: a process that died in between would leave an instant without heartbeat, which counts as
        alive for as long as a writer of an engine without heartbeats may be silent.
        """
        self._store.put(self._name, self._stamp)
        self._begin()

    def _begin(self) -> None:
        _LEFT.pop((self._store.url, self.time), None)
        if self._locks is not None:
            self._held = self._locks.hold(self._name)
        self._stop_beating = self._time_source.schedule_periodic(
            self._interval, self._beat, f"lakefmt-heartbeat-{self._name[-17:]}"
        )

    @property
    def is_beating(self) -> bool:
        """True until the heartbeat is stopped or abandoned, or its file is gone."""
        return self._stop_beating is not None

    def is_ours(self) -> bool:
        """Return whether the stored heartbeat is that of this process: none has taken the instant over, nor ended it."""
        try:
            return self._store.read(self._name, _MAX_STAMP_BYTES) == self._stamp
        except ObjectNotFound:
            return False

    def _beat(self) -> None:
        try:
            if self._store.info(self._name) is None:
                self.abandon()  # the write was committed or undone by another process
                return
            self._refresh()
        except LakefmtError:
            # A failed renewal is a missed one; the commit checks whether the instant is still ours.
            return

    def _refresh(self) -> None:
        if self._locks is not None and self._held is not None:
            self._locks.touch(self._name)
        else:
            self._store.put(self._name, self._stamp)

    def stop(self, with_names: Sequence[str] = ()) -> None:
        """Stop renewing and remove the file (after commit or abort), and in the same request other objects."""
        self.abandon()
        self._store.delete([self._name, *with_names])
        _LEFT.pop((self._store.url, self.time), None)

    def leave(self) -> None:
        """Stop renewing and keep the file; this process goes on, and knows that nobody works on the instant."""
        self.abandon()
        leave(self._store, self.time, self._stamp)

    def abandon(self) -> None:
        """Stop renewing and keep the file, as a dead process would."""
        if self._stop_beating is not None:
            self._stop_beating()
            self._stop_beating = None
        if self._held is not None:
            self._held.release()
            self._held = None


@dataclass(frozen=True, slots=True)
class Liveness:
    """Whether the writer of a pending instant is alive, and the reason."""

    alive: bool
    reason: str


def is_alive(
    store: ObjectStore,
    timeline: Timeline,
    instant: Instant,
    directory: str,
    now: Callable[[], datetime],
    expiry_seconds: float,
) -> Liveness:
    """Return whether the writer of a pending instant may be alive.

    Args:
        store: the table's store.
        timeline: a timeline that contains the instant.
        instant: the pending instant.
        directory: the timeline's directory.
        now: returns the current time.
        expiry_seconds: the age of the last renewal at which a writer is dead.

    Of what this process has left it knows. On this machine the lock decides, elsewhere the age of the heartbeat. Without a heartbeat the
    age of the instant's newest file decides, so that a running Spark job without heartbeats is not
    rolled back.
    """
    name = heartbeat_name(instant.time)
    beat = store.info(name)
    locks = process_locks(store)
    if _was_left(store, instant.time, beats=beat is not None):
        return Liveness(False, "this process has left it")
    if beat is not None and locks is not None and _is_of_this_machine(store, instant.time):
        is_locked = locks.is_held(name)
        return Liveness(is_locked, "its process is running" if is_locked else "its process ended")
    last = beat.modified if beat is not None else _newest_file(store, timeline, instant, directory)
    age = now().timestamp() - last
    sign = "heartbeat" if beat is not None else "file"
    if age > expiry_seconds:
        return Liveness(False, f"its last {sign} is {age:.0f} s old")
    return Liveness(True, f"its last {sign} is only {age:.0f} s old, {expiry_seconds:.0f} s are allowed")


def _newest_file(store: ObjectStore, timeline: Timeline, instant: Instant, directory: str) -> float:
    """Return the newest time of a timeline file or marker of a writer without a heartbeat."""
    # An instant that is only claimed has no file, and its claim may have been removed since the
    # listing.
    names = (f"{directory}/{file.file_name}" for file in timeline.files_of(instant) if file.file_name)
    states = [info.modified for info in map(store.info, names) if info is not None]
    markers = (o.modified for o in store.list(f".hoodie/.temp/{instant.time}"))
    return max((*states, *markers), default=0.0)


def _is_of_this_machine(store: ObjectStore, time: InstantTime) -> bool:
    # Only lakefmt writers of this machine lock the file; Hudi's heartbeat is empty and proves nothing by its lock.
    stamp = read_stamp(store, time)
    return stamp is not None and stamp.get("host") == socket.gethostname()
