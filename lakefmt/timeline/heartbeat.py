"""Signs of life of pending instants: who is alive, who is dead, never merely slow (spec 8.3).

A writer claims an instant time by creating ``.hoodie/.heartbeat/<R>`` with its stamp, before any other file of that
instant exists, and refreshes its modification time. On a local disk it also keeps the file locked by the operating
system: a writer of this machine whose lock is gone is dead at once, and one that holds it is alive however slow.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lakefmt.errors import CorruptFile, LakefmtError, ObjectNotFound
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.storage.local.process_lock import ProcessLock, process_locks
from lakefmt.storage.time_source import TimeSource
from lakefmt.timeline.instant import Instant
from lakefmt.timeline.store import put_if_absent_confirmed
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = ["Heartbeat", "Liveness", "heartbeat_name", "is_alive"]

DIRECTORY = ".hoodie/.heartbeat"
_MAX_STAMP_BYTES = 64 * 1024


def heartbeat_name(time: InstantTime) -> str:
    """Return the heartbeat's name of an instant, relative to the table."""
    return f"{DIRECTORY}/{time}"


def make_stamp(owner: str) -> bytes:
    """Return the bytes that mark an instant as `owner`'s, with machine and process for people who look."""
    return json.dumps({"owner": owner, "host": socket.gethostname(), "pid": os.getpid()}).encode()


class Heartbeat:
    """The claim on one instant time, kept alive until :meth:`stop`."""

    def __init__(
        self, store: ObjectStore, time: InstantTime, owner: str, interval_seconds: float, time_source: TimeSource
    ) -> None:
        self._store = store
        self._locks = process_locks(store)
        self._time_source = time_source
        self._name = heartbeat_name(time)
        self._stamp = make_stamp(owner)
        self._interval = interval_seconds
        self._held: ProcessLock | None = None
        self._stop_beating: Callable[[], None] | None = None

    def claim(self) -> bool:
        """Take the instant time; False when somebody else has it."""
        if put_if_absent_confirmed(self._store, self._name, self._stamp, durable=False) is PutOutcome.REFUSED:
            return False
        if self._locks is not None:
            self._held = self._locks.hold(self._name)
        self._stop_beating = self._time_source.schedule_periodic(
            self._interval, self._beat, f"lakefmt-heartbeat-{self._name[-17:]}"
        )
        return True

    def _beat(self) -> None:
        try:
            self._refresh()
        except LakefmtError:
            # A beat that fails is a missed beat; the commit itself checks whether the instant is still ours.
            return

    def _refresh(self) -> None:
        if self._locks is not None and self._held is not None:
            self._locks.touch(self._name)
        elif self._store.info(self._name) is not None:
            self._store.put(self._name, self._stamp)

    def stop(self) -> None:
        """End the beat and remove the file (after commit or abort)."""
        self.abandon()
        self._store.delete([self._name])

    def abandon(self) -> None:
        """End the beat and leave the file, as a dead process would."""
        if self._stop_beating is not None:
            self._stop_beating()
            self._stop_beating = None
        if self._held is not None:
            self._held.release()
            self._held = None


@dataclass(frozen=True, slots=True)
class Liveness:
    """Whether a pending instant's writer lives, and how one knows."""

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
    """Tell whether the writer of a pending instant may still be alive.

    Args:
        store: the table's store.
        timeline: the timeline with the instant on it.
        instant: the pending instant.
        directory: the timeline's directory.
        now: tells the present.
        expiry_seconds: the age of a last sign of life at which a writer is dead.

    The file's lock decides on this machine; elsewhere the age of the last beat does; without a heartbeat file the
    age of the instant's newest file does, so that a Spark job that writes none is not rolled back under its feet.
    """
    name = heartbeat_name(instant.time)
    beat = store.info(name)
    locks = process_locks(store)
    if beat is not None and locks is not None and _is_ours(store, name):
        held = locks.is_held(name)
        return Liveness(held, "its process is running" if held else "its process ended")
    last = beat.modified if beat is not None else _newest_file(store, timeline, instant, directory)
    age = now().timestamp() - last
    sign = "heartbeat" if beat is not None else "file"
    if age > expiry_seconds:
        return Liveness(False, f"its last {sign} is {age:.0f} s old")
    return Liveness(True, f"its last {sign} is only {age:.0f} s old, {expiry_seconds:.0f} s are allowed")


def _newest_file(store: ObjectStore, timeline: Timeline, instant: Instant, directory: str) -> float:
    """Return when a writer without a heartbeat last showed itself: by a timeline file or a marker."""
    # An instant that is only claimed has no file, and its claim may have gone since it was listed.
    names = (f"{directory}/{file.file_name}" for file in timeline.files_of(instant) if file.file_name)
    states = [info.modified for info in map(store.info, names) if info is not None]
    markers = (o.modified for o in store.list(f".hoodie/.temp/{instant.time}"))
    return max((*states, *markers), default=0.0)


def _is_ours(store: ObjectStore, name: str) -> bool:
    # Only lakefmt writers of this machine lock the file; Hudi's heartbeat is empty and proves nothing by its lock.
    try:
        stamp = json.loads(store.read(name, _MAX_STAMP_BYTES) or b"null")
    except (ObjectNotFound, CorruptFile, ValueError, RecursionError):
        return False
    return isinstance(stamp, dict) and stamp.get("host") == socket.gethostname()
