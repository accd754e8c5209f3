"""Compare and swap of files: what an object store does by an ETag, for the writers of one machine.

The mark of a file is its inode with modification time and size: every put makes a file of its own, so no two states share
one. Comparing and replacing are two steps for the system; between writers of lakefmt the directory, locked for those two
steps, makes them one. Others (a Spark writer) do not know that lock.
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

#: Whether this system locks directories.
CAN_SWAP = sys.platform != "win32"


def _mark(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def read_marked(path: str, max_bytes: int) -> Version | int | None:
    """Return a file with its mark, its size when that is above `max_bytes`, None when there is none."""
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
    """Put `data` in the place of the file whose mark is `mark` (None: of no file)."""
    temporary = files.write_temporary(path, data, durable=False)
    ours = _mark(os.stat(temporary))  # a rename keeps all of it
    if mark is None or sys.platform == "win32":
        return CasResult(PutOutcome.DONE, ours) if files.place(temporary, path) else CasResult(PutOutcome.REFUSED)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Held for two calls of the system and freed when a process dies: nobody waits long, so nobody waits politely.
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
