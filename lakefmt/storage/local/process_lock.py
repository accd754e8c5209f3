"""Locks that the operating system frees when a process dies: the only honest sign of life on one machine.

A local store offers them; object stores do not, and there leases by time take their place.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Protocol, cast, runtime_checkable

if sys.platform != "win32":
    import fcntl

    _LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC

__all__ = [
    "ProcessLock",
    "ProcessName",
    "SupportsProcessLocks",
    "has_ended",
    "hold_file",
    "is_held",
    "process_locks",
    "this_process",
]


class ProcessLock:
    """A lock that this process holds until :meth:`release`, or until it dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let go; twice is fine."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> ProcessLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class ProcessName:
    """What no other process is called while this machine runs.

    Attributes:
        machine: the host name and the start of its system.
        space: the namespace in which `pid` counts; containers have their own.
        pid: the process number.
        started: when the process was started, in ticks since the system was.
    """

    machine: str
    space: str
    pid: int
    started: int


def this_process() -> ProcessName | None:
    """Return the name of this process; None where the system does not tell all of it.

    Example:
        >>> name = this_process()
        >>> name is None or has_ended(name)
        False
    """
    return _named(os.getpid())


# By number: a forked child is another process, and may count in a space of its own.
@lru_cache(maxsize=4)
def _named(pid: int) -> ProcessName | None:
    place, started = _place(), _start_of("self")
    return None if place is None or started is None else ProcessName(*place, pid, started)


def _place() -> tuple[str, str] | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    except (OSError, UnicodeDecodeError):
        return None
    return (f"{socket.gethostname()} {boot}", space) if boot else None


def _start_of(process: str) -> int | None:
    """Return when a process was started, None when nobody can tell; 0 for one that ended and was not yet waited for."""
    try:
        # The name of the program, in brackets, may hold anything: what follows the last bracket is fixed.
        fields = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return 0 if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def has_ended(name: ProcessName) -> bool:
    """Return whether a process has certainly ended: False for one of another machine, container or start of the system.

    Example:
        >>> has_ended(ProcessName("another machine", "pid:[1]", 1, 1))
        False
    """
    mine = this_process()
    if mine is None or (mine.machine, mine.space) != (name.machine, name.space):
        return False
    try:
        os.kill(name.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it is there, and somebody else's
    started = _start_of(str(name.pid))
    # A number is given out again: then the process that has it now was started later.
    return started is not None and started != name.started


@runtime_checkable
class SupportsProcessLocks(Protocol):
    """A store on this machine's disk whose objects can be locked by processes."""

    def hold(self, name: str) -> ProcessLock | None:
        """Lock the object `name` (created empty if need be); None when another handle holds it."""
        ...

    def is_held(self, name: str) -> bool:
        """Return whether some living process holds the object `name`."""
        ...

    def touch(self, name: str) -> None:
        """Set the modification time of `name` to now; an object that is gone stays gone."""
        ...


def process_locks(store: object) -> SupportsProcessLocks | None:
    """Return the store as one whose objects can be locked by processes, None when it is none.

    A commit asks ten times, and a protocol compares every name of a class each time: the answer is kept by class.

    Example:
        >>> process_locks("no store") is None
        True
    """
    return cast(SupportsProcessLocks, store) if _can_lock(cast(Hashable, type(store))) else None


@lru_cache(maxsize=64)
def _can_lock(kind: Hashable) -> bool:
    return all(callable(getattr(kind, name, None)) for name in ("hold", "is_held", "touch"))


def hold_file(path: Path) -> ProcessLock | None:
    """Lock a file without waiting; None when it is held or the system has no such locks."""
    if sys.platform == "win32":
        return None  # leases by time take its place there
    try:
        descriptor = os.open(path, _LOCK_FLAGS, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, _LOCK_FLAGS, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return ProcessLock(descriptor)


def is_held(path: Path) -> bool:
    """Return whether a living process holds the file; a file that is not there is not held."""
    if sys.platform == "win32":
        return False
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
