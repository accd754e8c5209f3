"""Python objects that Arrow's threads hold: the interpreter does not end before they have let go of them (effects).

A thread of Arrow's that has decoded the last rows says so first, and drops the file and the file system it read from afterwards.
Where these are Python objects, or lie in one, dropping them takes the interpreter's lock; an interpreter that is ending ends
the threads that ask for that, and a thread of C++ that is ended so ends the process: "terminate called without an active
exception".
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

__all__ = ["track_arrow_use", "wait_for_arrow"]

T = TypeVar("T")

#: What somebody keeps for good is not waited for any longer; a thread of Arrow's needs microseconds.
_LONGEST_SECONDS = 0.5
_PAUSE_SECONDS = 0.0005
_MANY = 256

# Without callbacks: they would let others have the interpreter before the thread that drops the object is done with it.
_known: dict[int, ref[Any]] = {}
_many = [_MANY]


def track_arrow_use(value: T) -> T:
    """Return an object that is handed to Arrow, remembered for as long as it lives.

    Example:
        >>> bytes(track_arrow_use(memoryview(b"columns")))
        b'columns'
    """
    _known[id(value)] = ref(value)
    if len(_known) > _many[0]:
        _still_used_by_arrow()
        _many[0] = max(_MANY, 2 * len(_known))  # what lives on is not looked at again with every new one
    return value


def _still_used_by_arrow() -> bool:
    for key, known in list(_known.items()):
        if known() is None and _known.get(key) is known:  # a new object may stand where an old one was
            _known.pop(key, None)
    return bool(_known)


def wait_for_arrow(sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic) -> bool:
    """Wait until nobody holds what was lent; False when somebody still does after half a second."""
    end, waited = now() + _LONGEST_SECONDS, False
    while _still_used_by_arrow() and now() < end:
        sleep(_PAUSE_SECONDS)  # lets them have the interpreter
        waited = True
    if waited:
        sleep(_PAUSE_SECONDS)  # whoever was the last is still about to give it back
    return not _known


atexit.register(wait_for_arrow)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_known.clear)  # its parent's threads are not there
