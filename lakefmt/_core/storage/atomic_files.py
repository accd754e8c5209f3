"""Atomic local files: written under a temporary name, then renamed in one step.

Three ways create a name without replacing a file, best first: a hard link, a rename without replacement, and an exclusive
create followed by a rename. The first two are atomic; with the third a reader may see an empty file for a moment, so that
store does not claim put-if-absent.

The calls of the operating system that the local store makes are functions here; they raise OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import itertools
import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, cast

from lakefmt._core.storage.api import TEMPORARY_PREFIX, Buffer, ObjectWriter, PutOutcome, is_temporary
from lakefmt._core.storage.messages import is_full
from lakefmt.errors import StateError, StorageError

__all__ = [
    "ABSENT",
    "NOWHERE",
    "READ_FLAGS",
    "WAYS",
    "WRITE_FLAGS",
    "AtomicFiles",
    "LocalObjectWriter",
    "LocalPutBatch",
    "begin_flushing",
    "flush_descriptor",
    "flush_directory",
    "flush_path",
    "forget_file",
    "is_abandoned",
    "is_directory",
    "leads_back",
    "names_in",
    "remove_file",
    "remove_tree",
    "scan_directory",
    "sidecar_of",
    "write_all",
]

#: Converts an OSError to a StorageError, with the operation and the object's name.
Failure = Callable[[OSError, str, str], StorageError]
#: Finishes a put: outcome of the rename, name, path, and whether to sync.
_FinishPut = Callable[[bool, str, str, bool], PutOutcome]

try:
    import fcntl

    _FULL_FLUSH: int | None = getattr(fcntl, "F_FULLFSYNC", None)
except ImportError:  # pragma: no cover - not a POSIX system
    _FULL_FLUSH = None


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


#: Names the file `temporary` `final`; False if that name is taken. The temporary name may remain.
_NamingWay = Callable[[str, str], bool]

_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_UNSUPPORTED: Final = frozenset(
    {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EMLINK}
)


def _hard_link(temporary: str, final: str) -> bool:
    """Link the file to its final name: atomic, fails if the name is taken."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        # A network file system may repeat a request whose answer was lost: then the existing file
        # is ours.
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
    """Create the name empty, then rename the finished file over it: exclusive, but empty for a moment."""
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
WAYS: Final[tuple[_NamingWay, ...]] = (_hard_link, _rename_without_replacing, _exclusive_create)


@functools.cache
def _machine() -> str:
    """Return an id of this machine and its boot, for temporary names."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot = b""
    return hashlib.sha256(socket.gethostname().encode() + boot).hexdigest()[:12]


def is_abandoned(name: str) -> bool:
    """Return whether a temporary file's writer was a process of this machine that has ended.

    A reused process id counts as alive: that file is removed by its age.

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


#: The directory below the base for the test of atomic renames.
_TRIAL_DIRECTORY = (".hoodie", ".heartbeat")


class AtomicFiles:
    """Writes files below `root` atomically; raises OSError.

    An interrupted write leaves only temporary files.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        # Machine and process id tell whether a writer is alive; the process id is added per file,
        # because a fork copies this object.
        self._unique = f"{TEMPORARY_PREFIX}{_machine()}-{os.urandom(4).hex()}"
        self._numbers = itertools.count()
        #: Which of :data:`WAYS` is used.
        self.way = 0
        #: Whether the file system has shown which way works.
        self.way_is_known = False
        # Directories whose entries, up to the base, are synced.
        self._entries_synced: set[str] = set()
        #: Directories whose own entry, and those of all above, are synced.
        self._linked: set[str] = set()
        #: Directories whose entries were listed before they were synced.
        self._listed: set[str] = set()

    @property
    def is_atomic(self) -> bool:
        """Whether naming is atomic; tested once with two temporary files, when the base exists."""
        if not self.way_is_known:
            self._try_ways()
        return WAYS[self.way] is not _exclusive_create

    def temporary_beside(self, path: str) -> str:
        """Return a new temporary path in the directory of `path`."""
        return f"{os.path.dirname(path)}{os.sep}{self._unique}-{os.getpid()}-{next(self._numbers)}"

    def open_temporary(self, temporary: str) -> int:
        """Create the new file `temporary` and its parent directories; return the descriptor."""
        try:
            return os.open(temporary, WRITE_FLAGS, 0o666)
        except FileNotFoundError:
            directory = os.path.dirname(temporary)
            self._entries_synced.discard(directory)
            above = directory
            while len(above) > len(self._root):  # those above may be gone with it
                self._linked.discard(above)
                above = os.path.dirname(above)
            os.makedirs(directory, exist_ok=True)
            return os.open(temporary, WRITE_FLAGS, 0o666)

    def write_temporary(self, path: str, data: Buffer, durable: bool) -> str:
        """Write `data` next to `path` and return the temporary path; a failure leaves nothing."""
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
        """Create an empty file unless its name is taken; it needs no temporary file.

        Markers are such files; Spark would misinterpret a directory of markers with a temporary
        file in it.
        """
        try:
            os.close(self.open_temporary(path))
        except FileExistsError:
            return False
        return True

    def place(self, temporary: str, path: str) -> bool:
        """Give a temporary file its final name unless that is taken; the temporary name is removed in any case."""
        try:
            for number in range(self.way, len(WAYS)):
                try:
                    placed = WAYS[number](temporary, path)
                except OSError as error:
                    if number + 1 == len(WAYS) or error.errno not in _UNSUPPORTED:
                        raise
                else:
                    self.way, self.way_is_known = number, True
                    return placed
            raise AssertionError("the last way returns or raises")
        finally:
            forget_file(temporary)

    def _try_ways(self) -> None:
        # Where every write looks for files of dead processes, if that directory exists.
        swept = os.path.join(self._root, *_TRIAL_DIRECTORY)
        target = self.temporary_beside(os.path.join(swept if os.path.isdir(swept) else self._root, "x"))
        probe = self.temporary_beside(target)
        try:
            os.close(os.open(probe, WRITE_FLAGS, 0o666))
            self.place(probe, target)
        except OSError:
            return  # a missing or read-only base proves nothing: test again later
        finally:
            forget_file(target)

    def replace(self, temporary: str, path: str) -> None:
        """Rename a temporary file over `path`."""
        try:
            # First remove the checksum file of the old bytes: a missing one is harmless, a stale
            # one is not.
            remove_file(sidecar_of(path))
            os.replace(temporary, path)
        except BaseException:
            forget_file(temporary)
            raise

    def sync_entry(self, path: str) -> None:
        """Sync the directory entry of `path`, the first time with all directories up to the base."""
        directory = os.path.dirname(path)
        flush_directory(directory)
        if directory not in self._entries_synced:
            self._link_above(directory)
            self._entries_synced.add(directory)

    def _link_above(self, directory: str) -> None:
        """Sync the entry of a directory in the one above it, and so on up to the base; what is synced is left out."""
        synced: list[str] = []
        listed: list[str] = []
        while directory not in self._linked and directory.startswith(self._root):
            above = os.path.dirname(directory)
            if above.startswith(self._root) and above not in self._listed:
                # The first sync of a directory is one of every entry that it has: thirty partitions need one, not thirty.
                synced += _directories_in(above)
                listed.append(above)
            flush_directory(above)
            synced.append(directory)
            if above == directory:  # the root of the file system
                break
            directory = above
        # Not before all of them are: another thread, or the next attempt, would take the rest for synced.
        self._linked.update(synced)
        self._listed.update(listed)

    def forget_synced(self, path: str) -> None:
        """Forget that the directory `path` and those below it are synced, because they were removed."""
        below = path.rstrip(os.sep) + os.sep
        self._entries_synced = {
            directory for directory in self._entries_synced if not f"{directory}{os.sep}".startswith(below)
        }
        self._linked = {directory for directory in self._linked if not f"{directory}{os.sep}".startswith(below)}

    def link(self, directories: Iterable[str]) -> None:
        """Create directories below the root, and sync each directory above them once, not for each of their files."""
        new_directories = [path for path in directories if path not in self._linked]
        above: set[str] = set()
        for path in new_directories:
            os.makedirs(path, exist_ok=True)
            parent = os.path.dirname(path)
            while parent.startswith(self._root) and parent not in above:
                above.add(parent)
                parent = os.path.dirname(parent)
        for parent in sorted(above):
            flush_directory(parent)
        self._linked.update(new_directories)


def _directories_in(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


_SINK_BUFFER_BYTES: Final = 256 * 1024
#: To begin the flush of fewer bytes saves less time than the call takes.
_LEAST_FLUSHED_BYTES: Final = 1 << 22


class LocalObjectWriter:
    """The writer of a :class:`~lakefmt._core.storage.local.LocalStore` (:class:`lakefmt._core.storage.api.ObjectWriter`)."""

    def __init__(
        self, files: AtomicFiles, name: str, path: str, durable: bool, failure: Failure, placed: _FinishPut
    ) -> None:
        self._files = files
        self._failure = failure
        self._placed = placed
        self._name = name
        self._path = path
        self._durable = durable
        self._temporary = files.temporary_beside(path)
        self._file: BinaryIO | None = None
        self._size: int | None = None
        #: Bytes that the system has begun to write to disk.
        self._flushing = 0

    @property
    def file(self) -> BinaryIO:
        """The binary file to write to."""
        if self._file is None:
            raise StateError("a sink is written to inside its with block")
        return self._file

    @property
    def size(self) -> int:
        """The number of bytes written."""
        if self._size is not None:
            return self._size
        # Some libraries close the file that they write to.
        return os.path.getsize(self._temporary) if self.file.closed else self.file.tell()

    @property
    def name_and_path(self) -> tuple[str, str]:
        """The object's name, and the path of its file."""
        return self._name, self._path

    def put_if_absent(self) -> PutOutcome:
        """Create the finished object unless the name is taken.

        Raises:
            StateError: called twice.
            StorageError: the object was not created, or (the message says so) may be lost on a
                power failure.
        """
        self.end()
        if self._durable:
            self.flush()
        return self._placed(self.place(), self._name, self._path, self._durable)

    def begin_flush(self) -> None:
        """Have the system begin to write the bytes so far to disk, where they are to be durable; nothing is waited for.

        Raises:
            StorageError: bytes could not be written.
        """
        if self._durable and self.size - self._flushing >= _LEAST_FLUSHED_BYTES:
            try:
                self._begin_flush()
            except OSError as error:
                raise self._failed(error) from error

    def _begin_flush(self) -> None:
        if not self.file.closed:
            self.file.flush()
            end = self.file.tell()
            begin_flushing(self.file.fileno(), self._flushing, end)
            self._flushing = end

    def end(self, *, begin_flush: bool = False) -> None:
        """Take no more bytes: the first step of a put; `begin_flush`: have the system begin to write them to disk.

        Raises:
            StateError: the object was put already.
            StorageError: bytes could not be written.
        """
        if self._size is not None:
            raise StateError(f"the sink of {self._name!r} is finished already")
        try:
            if begin_flush:
                self._begin_flush()
            self.file.close()
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """Sync the bytes to disk.

        Raises:
            StorageError: that failed.
        """
        try:
            flush_path(self._temporary)
        except OSError as error:
            raise self._failed(error) from error

    def place(self) -> bool:
        """Give the file its name; False if that is taken.

        Raises:
            StorageError: the file system failed.
        """
        try:
            self._size = os.path.getsize(self._temporary)
            return self._files.place(self._temporary, self._path)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        return self._failure(error, "create", self._name)

    def __enter__(self) -> LocalObjectWriter:
        try:
            descriptor = self._files.open_temporary(self._temporary)
        except OSError as error:
            raise self._failed(error) from error
        self._file = os.fdopen(descriptor, "wb", buffering=_SINK_BUFFER_BYTES)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Bytes that cannot be flushed are discarded with the file.
        with contextlib.suppress(OSError):
            self.file.close()
        if self._size is None:  # else it has its final name, or was removed
            forget_file(self._temporary)
        # A full disk must be reported as such, not as an error of the library that writes to our
        # file.
        if error is not None and is_full(error):
            raise self._failure(error, "write", self._name) from error


class LocalPutBatch:
    """Puts many durable files at once (:class:`lakefmt._core.storage.api.PutBatch`).

    While one is written the system brings those before to the disk; then to sync each waits for little.

    Args:
        sync_entries: syncs the directory entries of some paths, by their names and paths.
    """

    def __init__(self, sync_entries: Callable[[Sequence[tuple[str, str]]], None]) -> None:
        self._sync_entries = sync_entries
        self._writers: list[LocalObjectWriter] = []

    def add(self, writer: ObjectWriter) -> None:
        """Take a finished object.

        Raises:
            StorageError: bytes could not be written.
        """
        if not isinstance(writer, LocalObjectWriter):
            raise StateError("a batch of local files takes no other object")
        writer.end(begin_flush=True)
        self._writers.append(writer)

    def put_if_absent(self) -> list[PutOutcome]:
        """Create the objects, each unless its name is taken; what is said of each comes in the order of :meth:`add`.

        Raises:
            StorageError: not all of them were created, or (the message says so) some may be lost on a power failure.
        """
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.flush()
        placed = [writer.place() for writer in writers]
        put = (writer.name_and_path for writer, is_placed in zip(writers, placed, strict=True) if is_placed)
        # One sync of a directory is one of all its entries.
        self._sync_entries(list({os.path.dirname(path): (name, path) for name, path in put}.values()))
        return [PutOutcome.DONE if is_placed else PutOutcome.REFUSED for is_placed in placed]
