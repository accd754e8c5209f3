"""Compare-and-swap of local files, as object stores do by ETag.

A file's version is its inode, modification time and size; every put creates a new file, so versions
differ. Comparing and replacing are two system calls; a lock on the directory makes them atomic
between lakefmt processes of one machine. Other writers (Spark) do not take that lock.
"""

from __future__ import annotations

import os
import stat
import sys

from lakefmt.storage.api import Buffer, CasResult, PutOutcome, Version
from lakefmt.storage.local._posix import ABSENT, READ_FLAGS, forget_file
from lakefmt.storage.local.atomic_files import AtomicFiles

if sys.platform != "win32":
    import fcntl

__all__ = ["CAN_SWAP", "read_marked", "swap_file"]

#: Whether this system can lock directories.
CAN_SWAP = sys.platform != "win32"


def _mark(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def read_marked(path: str, max_bytes: int) -> Version | int | None:
    """Return a file with its version, its size if that exceeds `max_bytes`, None if it does not exist."""
    try:
        descriptor = os.open(path, READ_FLAGS)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > max_bytes:
            return status.st_size
        return Version(os.read(descriptor, max_bytes), _mark(status))
    finally:
        os.close(descriptor)


def swap_file(files: AtomicFiles, path: str, data: Buffer, mark: str | None) -> CasResult:
    """Replace the file with version `mark` by `data`; None: create it."""
    temporary = files.write_temporary(path, data, durable=False)
    ours = _mark(os.stat(temporary))  # a rename preserves all of it
    if mark is None or sys.platform == "win32":
        return CasResult(PutOutcome.DONE, ours) if files.place(temporary, path) else CasResult(PutOutcome.REFUSED)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Held for two system calls and freed when a process dies, so a spin wait is short.
        fcntl.flock(directory, fcntl.LOCK_EX)
        try:
            same = _mark(os.stat(path)) == mark
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            same = False
        if same:
            files.replace(temporary, path)
            return CasResult(PutOutcome.DONE, ours)
        return CasResult(PutOutcome.REFUSED)
    finally:
        os.close(directory)
        forget_file(temporary)
