"""Delay the interpreter's exit until Arrow's threads have released their Python objects (effects).

An Arrow thread reports its last rows before it releases the file and the file system that it read.
Releasing a Python object needs the GIL; a finalizing interpreter terminates threads that request
it, and terminating a C++ thread this way aborts the process: "terminate called without an active
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

#: Maximum wait: an object that is held longer is kept on purpose; Arrow's threads need
#: microseconds.
_LONGEST_SECONDS = 0.5
_PAUSE_SECONDS = 0.0005
_MANY = 256

# No callbacks: they could switch threads before the releasing thread is done.
_known: dict[int, ref[Any]] = {}
_many = [_MANY]


def track_arrow_use(value: T) -> T:
    """Return an object that is passed to Arrow, and track it by a weak reference.

    Example:
        >>> bytes(track_arrow_use(memoryview(b"columns")))
        b'columns'
    """
    _known[id(value)] = ref(value)
    if len(_known) > _many[0]:
        _still_used_by_arrow()
        _many[0] = max(_MANY, 2 * len(_known))  # do not scan long-lived entries for each new one
    return value


def _still_used_by_arrow() -> bool:
    # Keys alone: pairs are new objects, and with a new object the collector may run code that tracks others.
    for key in list(_known):
        reference = _known.get(key)
        if reference is not None and reference() is None and _known.get(key) is reference:  # an id may have been reused
            _known.pop(key, None)
    return bool(_known)


def wait_for_arrow(sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic) -> bool:
    """Wait until all tracked objects are released; False if some are not after half a second."""
    end, waited = now() + _LONGEST_SECONDS, False
    while _still_used_by_arrow() and now() < end:
        sleep(_PAUSE_SECONDS)  # releases the GIL
        waited = True
    if waited:
        sleep(_PAUSE_SECONDS)  # the last thread may still be releasing it
    return not _known


atexit.register(wait_for_arrow)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_known.clear)  # the parent's threads do not exist here
