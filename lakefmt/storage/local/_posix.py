"""Operating system calls of the local store; they raise OSError."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, cast

from lakefmt.storage.api import Buffer
from lakefmt.storage.object_names import TEMPORARY_PREFIX, is_temporary

try:
    import fcntl

    _FULL_FLUSH: int | None = getattr(fcntl, "F_FULLFSYNC", None)
except ImportError:  # pragma: no cover - not a POSIX system
    _FULL_FLUSH = None

__all__ = [
    "ABSENT",
    "NOWHERE",
    "READ_FLAGS",
    "WRITE_FLAGS",
    "begin_flushing",
    "flush_descriptor",
    "flush_directory",
    "flush_path",
    "forget_file",
    "is_directory",
    "leads_back",
    "names_in",
    "remove_file",
    "remove_tree",
    "scan_directory",
    "sidecar_of",
    "write_all",
]

_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)
# Non-blocking: a named pipe in the table must not block a reader. Regular files ignore it.
READ_FLAGS: Final = os.O_RDONLY | _CLOEXEC | _BINARY | getattr(os, "O_NONBLOCK", 0)
WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC | _BINARY

#: Errors for a path that cannot exist: no such entry, a file instead of a directory, a name too
#: long.
ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})

#: Errors for a link without a target, or in a cycle.
NOWHERE: Final = ABSENT | {errno.ELOOP}


def scan_directory(path: str) -> tuple[list[tuple[str, os.stat_result]], list[str], list[str]]:
    """Return a directory's regular files with status, its directories, and which of these are links.

    Links are followed, as in Hadoop; one without a target is ignored. The listing is read at once:
    no descriptor stays open for a slow consumer.
    """
    files, inside, links = [], [], []
    with _entries_of(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inside.append(entry.name)
                continue
            try:
                status = entry.stat()
            except OSError as error:
                if error.errno in NOWHERE:
                    continue  # it vanished, or is a link without a target
                raise
            if stat.S_ISREG(status.st_mode):
                files.append((entry.name, status))
            elif stat.S_ISDIR(status.st_mode):
                inside.append(entry.name)
                links.append(entry.name)
    return files, inside, links


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a directory or a link to one."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno in NOWHERE:
            return False
        raise


def leads_back(base: str, name: str) -> bool:
    """Return whether the directory `name` below `base` is `base` or one of its own ancestors."""
    status = os.stat(f"{base}{name}")
    parts = name.split("/")
    above = (base + "/".join(parts[:count]) for count in range(len(parts)))
    return any(os.path.samestat(status, os.stat(path)) for path in above)


@contextlib.contextmanager
def _entries_of(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    if os.scandir not in os.supports_fd:  # pragma: no cover - not a POSIX system
        with os.scandir(path) as entries:
            yield entries
        return
    # Relative to an open directory a stat takes two thirds of the time.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            yield cast("Iterator[os.DirEntry[str]]", entries)
    finally:
        os.close(descriptor)


def names_in(path: str) -> list[str]:
    """Return the names in a directory without temporary ones; none if it does not exist."""
    try:
        names = os.listdir(path)
    except OSError as error:
        if error.errno in ABSENT:
            return []
        raise
    # One search over all names: temporary names are rare, and a timeline has thousands of others.
    return [name for name in names if not is_temporary(name)] if TEMPORARY_PREFIX in "/".join(names) else names


def sidecar_of(path: str) -> str:
    """Return the path of Hadoop's checksum file (docs/format.md, Hadoop checksum files).

    Example:
        >>> sidecar_of("/t/.hoodie/hoodie.properties")
        '/t/.hoodie/.hoodie.properties.crc'
    """
    directory, name = os.path.split(path)
    return f"{directory.rstrip(os.sep)}{os.sep}.{name}.crc"


def remove_file(path: str) -> None:
    """Remove a file; a missing file or a directory (not an object) is ignored."""
    try:
        os.unlink(path)
    except OSError as error:
        # Some systems answer "not permitted" for a directory.
        is_directory = error.errno == errno.EISDIR or (error.errno == errno.EPERM and os.path.isdir(path))
        if error.errno not in ABSENT and not is_directory:
            raise


def forget_file(path: str) -> None:
    """Remove a temporary file if possible; one that stays is hidden and removed later."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def remove_tree(path: str) -> None:
    """Remove a directory with its content, or a link to one; a missing one or a file is ignored."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        if error.errno in ABSENT:
            return
        raise
    if stat.S_ISLNK(mode):
        os.unlink(path)
    elif stat.S_ISDIR(mode):
        from shutil import rmtree  # brings formats of archives along

        rmtree(path)


def write_all(descriptor: int, data: Buffer) -> None:
    """Write all of `data`: the system may write less per call, and always does above 2 GiB."""
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    written = os.write(descriptor, data)
    if written < size:
        rest = memoryview(data).cast("B")
        while written < size:
            written += os.write(descriptor, rest[written:])


def flush_descriptor(descriptor: int) -> None:
    """Sync a file to disk."""
    if _FULL_FLUSH is None:
        os.fsync(descriptor)
    else:  # pragma: no cover - macOS, where fsync leaves the bytes in the drive's own cache
        fcntl.fcntl(descriptor, _FULL_FLUSH)


def begin_flushing(descriptor: int, start: int, end: int) -> None:
    """Have the system begin to write bytes of a file to disk, where it can be asked; nothing is waited for.

    Args:
        descriptor: the file.
        start: the first byte; those before it are not named again, because what is on disk would leave the memory.
        end: the byte behind the last one.
    """
    if hasattr(os, "posix_fadvise"):
        # Linux takes bytes that are not needed again to the disk first; those on the way stay in memory.
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


def flush_path(path: str) -> None:
    """Sync the file at `path` to disk."""
    descriptor = os.open(path, os.O_RDONLY | _CLOEXEC)
    try:
        flush_descriptor(descriptor)
    finally:
        os.close(descriptor)


def flush_directory(path: str) -> None:
    """Sync a directory's entries to disk, where the system supports it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _CLOEXEC)
    except PermissionError:
        return  # a directory above the base that we may not read
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems flush entries themselves and reject the call.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)
