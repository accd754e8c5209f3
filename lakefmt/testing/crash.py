"""Crash tests: kill this process at its n-th change of the file system.

For tests in child processes: a table must survive what a SIGKILL leaves behind.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from threading import Lock

__all__ = ["count_effects", "die_at"]

#: Audit events of calls that change the file system.
_EFFECTS = frozenset({"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.utime"})
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def die_at(effect: int) -> None:
    """Kill this process just before its `effect`-th change of the file system from now on (1 is the next).

    Example:
        >>> die_at(10**9)
    """

    def kill(number: int) -> None:
        if number == effect:
            os.kill(os.getpid(), signal.SIGKILL)

    _watch(kill)


def count_effects() -> Callable[[], int]:
    """Return a function that counts this process's changes of the file system; see :func:`die_at`.

    Example:
        >>> import tempfile
        >>> counted = count_effects()
        >>> os.rmdir(tempfile.mkdtemp())
        >>> counted()
        2
    """
    counted = 0

    def remember(number: int) -> None:
        nonlocal counted
        counted = number

    _watch(remember)
    return lambda: counted


def _watch(seen: Callable[[int], None]) -> None:
    """Call `seen` with 1, 2, … before every change of the file system; the audit hook stays until the process ends."""
    counted = 0
    lock = Lock()

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal counted
        if event not in _EFFECTS and not (event == "open" and _writes(arguments)):
            return
        with lock:
            counted += 1
            seen(counted)

    sys.addaudithook(watch)


def _writes(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & _WRITE_FLAGS)
