"""Atomic files on a local file system: written under a temporary name, then given the final one in one step.

There are three ways to give a name without replacing what has it, best first: a hard link, a rename that never
replaces, and an exclusive create followed by a rename. The first two are atomic; with the third a reader may see an
empty object for a moment, so a store that is left with it does not claim put-if-absent.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import itertools
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lakefmt.storage.api import Buffer
from lakefmt.storage.local._posix import (
    WRITE_FLAGS,
    flush_descriptor,
    flush_directory,
    forget_file,
    remove_file,
    sidecar_of,
    write_all,
)
from lakefmt.storage.object_names import TEMPORARY_PREFIX

__all__ = ["WAYS", "AtomicFiles", "is_abandoned"]

#: Gives the file `temporary` the name `final`; False when that is taken. The temporary name may remain.
_Way = Callable[[str, str], bool]

_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_UNSUPPORTED: Final = frozenset(
    {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EMLINK}
)


def _hard_link(temporary: str, final: str) -> bool:
    """Link the file to its final name: atomic, and refused by the file system when the name is taken."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        # A network file system may repeat a request whose answer was lost: then it is ours that has the name.
        return os.stat(temporary).st_nlink > 1
    return True


def _rename_without_replacing(temporary: str, final: str) -> bool:
    """Rename with Linux's RENAME_NOREPLACE, for file systems without hard links."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        raise OSError(errno.ENOSYS, "no renameat2 in this C library") from None
    if rename(_AT_FDCWD, os.fsencode(temporary), _AT_FDCWD, os.fsencode(final), _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    raise OSError(code, os.strerror(code), final)


def _exclusive_create(temporary: str, final: str) -> bool:
    """Claim the name with an empty file, then put the finished one over it: exclusive, but seen empty for a moment."""
    try:
        os.close(os.open(final, WRITE_FLAGS, 0o666))
    except FileExistsError:
        return False
    try:
        os.replace(temporary, final)
    except OSError:
        forget_file(final)
        raise
    return True


#: The ways, best first.
WAYS: Final[tuple[_Way, ...]] = (_hard_link, _rename_without_replacing, _exclusive_create)


@functools.cache
def _machine() -> str:
    """Return what this machine is called in temporary names, the same until it starts anew."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot = b""
    return hashlib.sha256(socket.gethostname().encode() + boot).hexdigest()[:12]


def is_abandoned(name: str) -> bool:
    """Return whether a temporary file's writer was a process of this machine that has ended.

    A process number that was given out again counts as alive: such a leftover waits for its age.

    Example:
        >>> is_abandoned(".lakefmt-tmp-of another machine-00-1-0")
        False
    """
    parts = name.rpartition("/")[2].removeprefix(TEMPORARY_PREFIX).split("-")
    if len(parts) != 4 or parts[0] != _machine() or not parts[2].isdigit():
        return False
    try:
        os.kill(int(parts[2]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


#: The directory below the base in which names are tried out.
_TRIED_IN = (".hoodie", ".heartbeat")


class AtomicFiles:
    """Writes files below `root` that appear whole or not at all; raises OSError, in the system's words.

    A process that dies leaves temporary files only.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        # Machine and process tell whether a leftover's writer still lives; the process id is added per file, because
        # a fork copies this object.
        self._unique = f"{TEMPORARY_PREFIX}{_machine()}-{secrets.token_hex(4)}"
        self._numbers = itertools.count()
        self._way = 0
        self._way_is_known = False
        # Directories whose own entries, up to the base, have reached the disk.
        self._settled: set[str] = set()

    @property
    def is_atomic(self) -> bool:
        """Whether a name is given in one step; tried out once, with two temporary files, when the base exists."""
        if not self._way_is_known:
            self._try_ways()
        return WAYS[self._way] is not _exclusive_create

    def temporary_beside(self, path: str) -> str:
        """Return a fresh temporary path in the directory of `path`."""
        return f"{os.path.dirname(path)}{os.sep}{self._unique}-{os.getpid()}-{next(self._numbers)}"

    def open_temporary(self, temporary: str) -> int:
        """Create the file `temporary`, which must be new, and the directories above it; return its descriptor."""
        try:
            return os.open(temporary, WRITE_FLAGS, 0o666)
        except FileNotFoundError:
            directory = os.path.dirname(temporary)
            self._settled.discard(directory)
            os.makedirs(directory, exist_ok=True)
            return os.open(temporary, WRITE_FLAGS, 0o666)

    def write_temporary(self, path: str, data: Buffer, durable: bool) -> str:
        """Write `data` beside `path` and return the temporary path; when that fails nothing is left."""
        temporary = self.temporary_beside(path)
        descriptor = self.open_temporary(temporary)
        try:
            try:
                write_all(descriptor, data)
                if durable:
                    flush_descriptor(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            forget_file(temporary)
            raise
        return temporary

    def create_empty(self, path: str) -> bool:
        """Create an empty file unless its name is taken: it is whole from the start and needs no temporary one.

        Markers are such files; a temporary file beside them would make Spark take their directory for something else.
        """
        try:
            os.close(self.open_temporary(path))
        except FileExistsError:
            return False
        return True

    def place(self, temporary: str, path: str) -> bool:
        """Give a temporary file its final name unless that is taken; the temporary name is gone in any case."""
        try:
            return self._place(temporary, path)
        finally:
            forget_file(temporary)

    def _place(self, temporary: str, path: str) -> bool:
        for number in range(self._way, len(WAYS)):
            try:
                placed = WAYS[number](temporary, path)
            except OSError as error:
                if number + 1 == len(WAYS) or error.errno not in _UNSUPPORTED:
                    raise
            else:
                self._way, self._way_is_known = number, True
                return placed
        raise AssertionError("the last way returns or raises")

    def _try_ways(self) -> None:
        # Where every write looks for what the dead have left, when there is such a place.
        swept = os.path.join(self._root, *_TRIED_IN)
        target = self.temporary_beside(os.path.join(swept if os.path.isdir(swept) else self._root, "x"))
        probe = self.temporary_beside(target)
        try:
            os.close(os.open(probe, WRITE_FLAGS, 0o666))
            self.place(probe, target)
        except OSError:
            return  # a base that is missing, or not ours to write to, proves nothing: the answer stays open
        finally:
            forget_file(target)

    def replace(self, temporary: str, path: str) -> None:
        """Put a temporary file in the place of whatever has the name `path`."""
        try:
            # The sidecar of the old bytes first: an object without one is fine, one with a stale one is not.
            remove_file(sidecar_of(path))
            os.replace(temporary, path)
        except BaseException:
            forget_file(temporary)
            raise

    def settle(self, path: str) -> None:
        """Bring the directory entry of `path` to the disk, the first time with all directories up to the base."""
        directory = above = os.path.dirname(path)
        flush_directory(directory)
        if directory in self._settled:
            return
        while above.startswith(self._root) and os.path.dirname(above) != above:
            above = os.path.dirname(above)
            flush_directory(above)
        self._settled.add(directory)

    def unsettle(self) -> None:
        """Forget what is on the disk, because directories were removed."""
        self._settled.clear()
