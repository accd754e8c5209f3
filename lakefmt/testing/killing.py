"""Die for real: kill this process at its n-th call that changes the file system.

For tests in processes of their own: what a SIGKILL leaves behind is what a table must survive.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Lock

__all__ = ["die_at"]

#: Audit events of calls that change the file system.
_EFFECTS = frozenset({"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.utime"})
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def die_at(effect: int) -> None:
    """Kill this process just before its `effect`-th change of the file system from now on (1 is the next one).

    Example:
        >>> die_at(10**9)
    """
    counted = 0
    lock = Lock()

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal counted
        if event not in _EFFECTS and not (event == "open" and _writes(arguments)):
            return
        with lock:
            counted += 1
            if counted == effect:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _writes(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & _WRITE_FLAGS)
