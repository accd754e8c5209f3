"""File locks of the operating system, freed when a process dies: the only reliable liveness check on one machine.

Local stores support them; object stores use leases instead.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Protocol, cast, runtime_checkable
from weakref import WeakSet

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import PutOutcome

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
    """A lock that this process holds until :meth:`release` or its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> ProcessLock:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


#: The locks of this process.
_held: WeakSet[ProcessLock] = WeakSet()


def _release_inherited() -> None:
    """Close the locks of the parent in a forked child: it would keep them for as long as it lives itself."""
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_inherited)


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A unique name of a process while its machine runs.

    Attributes:
        machine: host name and boot id.
        space: the process id namespace; containers have their own.
        pid: the process id.
        started: start of the process in clock ticks since boot.
    """

    machine: str
    space: str
    pid: int
    started: int


def this_process() -> ProcessName | None:
    """Return the name of this process; None if the system does not provide it.

    Example:
        >>> name = this_process()
        >>> name is None or has_ended(name)
        False
    """
    return _process_name(os.getpid())


# By process id: a forked child is another process, possibly in another namespace.
@lru_cache(maxsize=4)
def _process_name(pid: int) -> ProcessName | None:
    namespace, started = _pid_namespace(), _start_of("self")
    return None if namespace is None or started is None else ProcessName(*namespace, pid, started)


def _pid_namespace() -> tuple[str, str] | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    except (OSError, UnicodeDecodeError):
        return None
    return (f"{socket.gethostname()} {boot}", space) if boot else None


def _start_of(process: str) -> int | None:
    """Return the start of a process, None if unknown; 0 for a zombie."""
    try:
        # The program name in parentheses may contain anything; the fields after the last
        # parenthesis are fixed.
        fields = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return 0 if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def has_ended(name: ProcessName) -> bool:
    """Return whether a process has certainly ended; False for another machine, container or boot.

    Example:
        >>> has_ended(ProcessName("another machine", "pid:[1]", 1, 1))
        False
    """
    current = this_process()
    if current is None or (current.machine, current.space) != (name.machine, name.space):
        return False
    try:
        os.kill(name.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it exists and belongs to another user
    started = _start_of(str(name.pid))
    # A process id may be reused: then that process started later.
    return started is not None and started != name.started


@runtime_checkable
class SupportsProcessLocks(Protocol):
    """A store on a local disk whose objects processes can lock."""

    def hold(self, name: str) -> ProcessLock | None:
        """Lock the object `name` (created empty if missing); None if another handle holds it."""
        ...

    def put_held(self, name: str, data: bytes, *, durable: bool = False) -> tuple[PutOutcome, ProcessLock | None]:
        """Create the object `name` unless it is taken, locked from the moment at which others see it."""
        ...

    def is_held(self, name: str) -> bool:
        """Return whether a process holds the object `name`."""
        ...

    def touch(self, name: str) -> None:
        """Set the modification time of `name` to now; a missing object stays missing."""
        ...


def process_locks(store: object) -> SupportsProcessLocks | None:
    """Return the store if processes can lock its objects, else None.

    Cached by class: a commit asks ten times, and isinstance of a protocol compares all its names.

    Example:
        >>> process_locks("no store") is None
        True
    """
    return cast(SupportsProcessLocks, store) if _can_lock(cast(Hashable, type(store))) else None


@lru_cache(maxsize=64)
def _can_lock(store_class: Hashable) -> bool:
    return all(callable(getattr(store_class, name, None)) for name in ("hold", "put_held", "is_held", "touch"))


def hold_file(path: Path) -> ProcessLock | None:
    """Lock a file without waiting; None if it is held or the system has no such locks."""
    if sys.platform == "win32":
        return None  # leases are used there
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
    """Return whether a process holds the file; a missing file is not held."""
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
