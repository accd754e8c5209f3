"""The store in a local directory.

Every write goes to a temporary file next to its destination and is renamed atomically, so an
interrupted process leaves only temporary files (:meth:`LocalStore.remove_leftovers`). Before an
object is replaced or removed, its Hadoop checksum file is removed (docs/format.md, Hadoop checksum
files).

Links: names cannot leave the base (``..`` is refused). Symbolic links below the base are followed,
as in Hadoop, by name and in listings; a link to an ancestor directory is an error. Removing a link
removes only the link.

Compare-and-swap works as object stores do it by ETag. A file's version is its inode, modification
time and size; every put creates a new file, so versions differ. Comparing and replacing are two
system calls; a lock on the directory makes them atomic between lakefmt processes of one machine.
Other writers (Spark) do not take that lock.
"""

from __future__ import annotations

import builtins
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

import pyarrow.fs as pafs

from lakefmt._core.storage.api import (
    TEMPORARY_PREFIX,
    Buffer,
    Capabilities,
    CasResult,
    ObjectInfo,
    PutBatch,
    PutOutcome,
    Version,
    directory_name,
    is_addressable,
    is_temporary,
    object_name,
    object_names,
)
from lakefmt._core.storage.atomic_files import (
    ABSENT,
    NOWHERE,
    READ_FLAGS,
    AtomicFiles,
    LocalObjectWriter,
    LocalPutBatch,
    forget_file,
    is_abandoned,
    is_directory,
    leads_back,
    names_in,
    remove_file,
    remove_tree,
    scan_directory,
    sidecar_of,
)
from lakefmt._core.storage.messages import os_failure
from lakefmt._core.storage.process_lock import ProcessLock, hold_file, is_held
from lakefmt.errors import CorruptFile, ObjectNotFound, StorageError, UnsafePath

__all__ = [
    "CAN_SWAP",
    "LocalStore",
    "read_marked",
    "swap_file",
]

if sys.platform != "win32":
    import fcntl


#: Whether this system can lock directories.
CAN_SWAP = sys.platform != "win32"


def _file_version(status: os.stat_result) -> str:
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
        return Version(os.read(descriptor, max_bytes), _file_version(status))
    finally:
        os.close(descriptor)


def swap_file(files: AtomicFiles, path: str, data: Buffer, mark: str | None) -> CasResult:
    """Replace the file with version `mark` by `data`; None: create it."""
    temporary = files.write_temporary(path, data, durable=False)
    new_version = _file_version(os.stat(temporary))  # a rename preserves all of it
    if mark is None or sys.platform == "win32":
        return (
            CasResult(PutOutcome.DONE, new_version) if files.place(temporary, path) else CasResult(PutOutcome.REFUSED)
        )
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Held for two system calls and freed when a process dies, so a spin wait is short.
        fcntl.flock(directory, fcntl.LOCK_EX)
        try:
            same = _file_version(os.stat(path)) == mark
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            same = False
        if same:
            files.replace(temporary, path)
            return CasResult(PutOutcome.DONE, new_version)
        return CasResult(PutOutcome.REFUSED)
    finally:
        os.close(directory)
        forget_file(temporary)


_SINK_BUFFER_BYTES: Final = 256 * 1024
_TREE_ATTEMPTS: Final = 10


class LocalStore:
    """Objects as files below one directory.

    `root` is the base directory; it is made absolute and created by the first put.

    Example:
        >>> import tempfile
        >>> store = LocalStore(tempfile.mkdtemp())
        >>> store.put_if_absent("city=sf/a", b"one"), store.put_if_absent("city=sf/a", b"two")
        (<PutOutcome.DONE: 'done'>, <PutOutcome.REFUSED: 'refused'>)
        >>> store.read("city=sf/a")
        b'one'
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(os.fspath(root))
        self._base = self._root.rstrip(os.sep) + os.sep
        self._files = AtomicFiles(self._root)
        #: The absolute path of the base directory.
        self.url = self._root
        #: With the way by which files are named: a file system may refuse the best one later.
        self._capabilities: tuple[int, Capabilities] | None = None

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store is not pickled: reopen it with open_store on the other side")

    @property
    def capabilities(self) -> Capabilities:
        """The guarantees of this directory's file system."""
        if self._capabilities is not None and self._capabilities[0] == self._files.way:
            return self._capabilities[1]
        is_atomic = self._files.is_atomic
        capabilities = Capabilities(put_if_absent=is_atomic, directories=True, durable=True, low_latency=True)
        if self._files.way_is_known:
            self._capabilities = (self._files.way, capabilities)
        return capabilities

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return an object of at most `max_bytes` bytes.

        Raises:
            ObjectNotFound: the object does not exist.
            CorruptFile: the object exceeds `max_bytes`.
            StorageError: the file system failed.
        """
        path = self._path(name)
        try:
            descriptor = os.open(path, READ_FLAGS)
        except OSError as error:
            if error.errno in ABSENT:
                raise self._not_found(name) from None
            raise self._failure(error, "read", name) from error
        try:
            return self._read_open(descriptor, name, max_bytes)
        except OSError as error:
            raise self._failure(error, "read", name) from error
        finally:
            os.close(descriptor)

    def _read_open(self, descriptor: int, name: str, max_bytes: int | None) -> bytes:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise self._not_found(name)
        size = status.st_size
        if max_bytes is not None and size > max_bytes:
            raise CorruptFile(f"{name!r} in {self.url} has {size:,} bytes, at most {max_bytes:,} are expected")
        # One read is enough except for huge files, of which the system may return less.
        parts = []
        while size > 0 and (part := os.read(descriptor, size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def info(self, name: str) -> ObjectInfo | None:
        """Return an object's size and time, None if it does not exist.

        Raises:
            StorageError: the file system failed.
        """
        try:
            status = os.stat(self._path(name))
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise self._failure(error, "look at", name) from error
        return ObjectInfo(name, status.st_size, status.st_mtime) if stat.S_ISREG(status.st_mode) else None

    def identity(self, name: str) -> str | None:
        """Return what tells an object from every other one, also from a later one under its name; None: it does not exist."""
        path = self._path(name)
        try:
            status = os.stat(path)
        except OSError:
            return None
        return f"{path}:{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_size}"

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Yield the objects below the directory `prefix`, unordered; files that vanish meanwhile are skipped.

        Raises:
            UnsafePath: a link points to an ancestor directory.
            StorageError: the file system failed.
        """
        directory = directory_name(prefix)
        return self._walk_objects(directory) if recursive else iter(self._objects_in(directory)[0])

    def _walk_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        waiting = [prefix]
        while waiting:
            objects, inside, links = self._objects_in(waiting.pop())
            self._check_links(links)
            yield from objects
            waiting += inside

    def _objects_in(self, directory: str) -> tuple[builtins.list[ObjectInfo], builtins.list[str], builtins.list[str]]:
        """Return the objects directly inside a directory, and the names of its directories and links."""
        start = f"{directory}/" if directory else ""
        try:
            files, inside, links = scan_directory(self._base + directory)
        except OSError as error:
            if error.errno in ABSENT:
                return [], [], []
            raise self._failure(error, "list", directory) from error
        objects = [
            ObjectInfo(name, status.st_size, status.st_mtime)
            for name, status in (
                (start + last, status) for last, status in files if not last.startswith(TEMPORARY_PREFIX)
            )
            # Names from the system have no empty parts, and nearly none has invalid characters.
            if name.isascii() or is_addressable(name)
        ]
        return objects, [start + last for last in inside], [start + last for last in links]

    def _check_links(self, links: Iterable[str]) -> None:
        """Raise for links to an ancestor directory, which would repeat files endlessly.

        Raises:
            UnsafePath: a link points to an ancestor directory.
        """
        for name in links:
            if self._leads_back(name):
                raise UnsafePath(f"the link {name!r} in {self.url} leads to a directory above itself: remove the link")

    def _leads_back(self, name: str) -> bool:
        try:
            return leads_back(self._base, name)
        except OSError as error:
            if error.errno in NOWHERE:
                return False  # it vanished meanwhile
            raise self._failure(error, "look at", name) from error

    def _walk(self, prefix: str, recursive: bool) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield all files below a directory; links to ancestors are skipped."""
        waiting = [prefix]
        while waiting:
            directory = waiting.pop()
            for name, entry, is_inside in self._entries(directory):
                if not is_inside:
                    yield name, entry
                elif recursive and not (entry.is_symlink() and self._leads_back(name)):
                    waiting.append(name)

    def _entries(self, directory: str) -> builtins.list[tuple[str, os.DirEntry[str], bool]]:
        # Read at once: no descriptor stays open for a slow consumer, and a directory's entries fit
        # in memory.
        start = f"{directory}/" if directory else ""
        try:
            with os.scandir(self._base + directory) as entries:
                return [(start + entry.name, entry, is_directory(entry)) for entry in entries]
        except OSError as error:
            if error.errno in ABSENT:
                return []
            raise self._failure(error, "list", directory) from error

    def list_names(self, prefix: str) -> builtins.list[str]:
        """Return the names directly inside `prefix` without their directory: one call, no stat.

        Raises:
            StorageError: the file system failed.
        """
        directory = directory_name(prefix)
        try:
            return names_in(self._base + directory)
        except OSError as error:
            raise self._failure(error, "list", directory) from error

    def list_directories(self, prefix: str = "") -> builtins.list[str]:
        """Return the directories directly inside `prefix`, relative to the base.

        Raises:
            UnsafePath: a link points to an ancestor directory.
            StorageError: the file system failed.
        """
        entries = self._entries(directory_name(prefix))
        directories = [(name, entry) for name, entry, is_inside in entries if is_inside and is_addressable(name)]
        self._check_links(name for name, entry in directories if entry.is_symlink())
        return [name for name, _ in directories]

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return Arrow's local file system and the prefix of paths in it."""
        return pafs.LocalFileSystem(use_mmap=False), self._base

    # ------------------------------------------------------------------------------------------------------ writing

    def put_if_absent(self, name: str, data: Buffer, *, durable: bool = False) -> PutOutcome:
        """Create an object atomically unless the name is taken; `durable` syncs it to disk.

        Raises:
            StorageError: the object was not created, or (the message says so) may be lost on a
                power failure.
        """
        path = self._path(name)
        try:
            if len(memoryview(data)):
                placed = self._files.place(self._files.write_temporary(path, data, durable), path)
            else:
                placed = self._files.create_empty(path)
        except OSError as error:
            raise self._failure(error, "create", name) from error
        return self._placed(placed, name, path, durable)

    def put(self, name: str, data: Buffer, *, durable: bool = False) -> None:
        """Create or replace an object atomically; the old Hadoop checksum file is removed first.

        Raises:
            StorageError: the object is unchanged, or (the message says so) may be lost on a power
                failure.
        """
        path = self._path(name)
        try:
            temporary = self._files.write_temporary(path, data, durable)
            self._files.replace(temporary, path)
        except OSError as error:
            raise self._failure(error, "write", name) from error
        self._placed(True, name, path, durable)

    def create(self, name: str, *, durable: bool = False) -> LocalObjectWriter:
        """Open a writer for a large object; it is created only if absent.

        Raises:
            StorageError: the temporary file could not be created.

        Example:
            >>> import tempfile
            >>> store = LocalStore(tempfile.mkdtemp())
            >>> with store.create("big") as sink:
            ...     _ = sink.file.write(b"x" * 10)
            ...     print(sink.size, sink.put_if_absent())
            10 PutOutcome.DONE
        """
        return LocalObjectWriter(self._files, name, self._path(name), durable, self._failure, self._placed)

    def put_batch(self) -> PutBatch:
        """Return what puts many durable objects at once."""
        return LocalPutBatch(self._sync_entries)

    def make_directories(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Create directories and their parents; `durable` syncs the entries of all of them together.

        Raises:
            StorageError: the name is a file, or the file system failed.
        """
        if durable:
            paths = [directory_name(name) for name in names]
            try:
                self._files.link([self._base + name for name in paths])
            except OSError as error:
                raise self._failure(error, "make the directories of", paths[0]) from error
            return
        for name in [directory_name(name) for name in names]:
            try:
                os.makedirs(self._base + name, exist_ok=True)
            except OSError as error:
                raise self._failure(error, "make the directory", name) from error

    # ----------------------------------------------------------------------------------------------------- removing

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects and their Hadoop checksum files; missing ones are ignored.

        Raises:
            StorageError: at least one object was not removed; the others were.
        """
        failures = []
        for name in object_names(names):
            path = self._base + name
            try:
                # The checksum file first: a later object of that name must not have a stale one.
                remove_file(sidecar_of(path))
                remove_file(path)
            except OSError as error:
                failures.append(self._failure(error, "remove", name))
        if failures:
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise StorageError(f"{failures[0]}{more}", transient=all(failure.transient for failure in failures))

    def delete_tree(self, prefix: str) -> None:
        """Remove the directory `prefix` and everything in it, without following links.

        Raises:
            StorageError: something is left, for instance because a writer adds files.
        """
        path = self._base + directory_name(prefix)
        for attempt in range(1, _TREE_ATTEMPTS + 1):
            try:
                remove_tree(path)
                return
            except OSError as error:
                # An entry was added or removed meanwhile: repeat.
                raced = error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)
                if not raced or attempt == _TREE_ATTEMPTS:
                    raise self._failure(error, "remove the tree", prefix) from error
            finally:
                self._files.forget_synced(path)

    def remove_leftovers(self, older_than_epoch: float) -> int:
        """Remove temporary files written before `older_than_epoch` (epoch seconds); return their number.

        Raises:
            StorageError: a file was not removed.
        """
        removed = 0
        for name, entry in self._walk("", recursive=True):
            if not is_temporary(name):
                continue
            try:
                if entry.stat(follow_symlinks=False).st_mtime < older_than_epoch:
                    os.unlink(entry.path)
                    removed += 1
            except FileNotFoundError:
                continue  # its writer finished
            except OSError as error:
                raise self._failure(error, "remove", name) from error
        return removed

    def remove_abandoned(self, prefix: str = "", *, recursive: bool = True) -> int:
        """Remove temporary files below `prefix` whose process on this machine has ended; return their number.

        Raises:
            StorageError: a file was not removed.
        """
        temporary = [entry for name, entry in self._walk(directory_name(prefix), recursive) if is_temporary(name)]
        dead = [entry for entry in temporary if is_abandoned(entry.name)]
        for entry in dead:
            try:
                remove_file(entry.path)
            except OSError as error:
                raise self._failure(error, "remove", entry.name) from error
        return len(dead)

    def leave_temporary_object(self, name: str, data: Buffer) -> None:
        """Leave the temporary file of an interrupted put of `name` (for crash tests)."""
        try:
            self._files.write_temporary(self._path(name), data, durable=False)
        except OSError as error:
            raise self._failure(error, "create", name) from error

    # ------------------------------------------------------------------------------------------------------ versions

    @property
    def has_versions(self) -> bool:
        """Whether this system supports compare-and-swap between its processes."""
        return CAN_SWAP and self._files.is_atomic

    def read_version(self, name: str, max_bytes: int) -> Version | None:
        """Return an object of at most `max_bytes` bytes with its version, None if it does not exist.

        Raises:
            CorruptFile: the object exceeds `max_bytes`.
            StorageError: the file system failed.
        """
        try:
            marked = read_marked(self._path(name), max_bytes)
        except OSError as error:
            raise self._failure(error, "read", name) from error
        if isinstance(marked, int):
            raise CorruptFile(f"{name!r} in {self.url} has {marked:,} bytes, at most {max_bytes:,} are expected")
        return marked

    def put_if_match(self, name: str, data: Buffer, mark: str | None) -> CasResult:
        """Replace an object if its version is `mark`; None: create it unless the name is taken.

        Raises:
            StorageError: the file system failed.
        """
        try:
            return swap_file(self._files, self._path(name), data, mark)
        except OSError as error:
            raise self._failure(error, "replace", name) from error

    # ------------------------------------------------------------------------------------------------ process locks

    def hold(self, name: str) -> ProcessLock | None:
        """Lock the object `name` (created empty if missing) until release or process end; None if it is held."""
        try:
            return hold_file(Path(self._path(name)))
        except OSError as error:
            raise self._failure(error, "lock", name) from error

    def put_held(self, name: str, data: Buffer, *, durable: bool = False) -> tuple[PutOutcome, ProcessLock | None]:
        """Create the object `name` unless it is taken, locked from the moment at which others see it.

        Raises:
            StorageError: as for :meth:`put_if_absent`.
        """
        path = self._path(name)
        lock: ProcessLock | None = None
        try:
            temporary = self._files.write_temporary(path, data, durable)
            lock = hold_file(Path(temporary))
            outcome = self._placed(self._files.place(temporary, path), name, path, durable)
        except (OSError, StorageError) as error:
            if lock is not None:
                lock.release()
            raise self._failure(error, "create", name) if isinstance(error, OSError) else error from None
        if lock is not None and outcome is not PutOutcome.DONE:
            lock.release()
            return outcome, None
        return outcome, lock

    def is_held(self, name: str) -> bool:
        """Return whether a process holds the object `name`."""
        return is_held(Path(self._path(name)))

    def touch(self, name: str) -> None:
        """Set the modification time of `name` to now; a missing object stays missing.

        Raises:
            StorageError: the file system failed.
        """
        try:
            os.utime(self._path(name))
        except OSError as error:
            if error.errno not in ABSENT:
                raise self._failure(error, "touch", name) from error

    # ------------------------------------------------------------------------------------------------------- inside

    def _path(self, name: str) -> str:
        return self._base + object_name(name)

    def _failure(self, error: OSError, doing: str, name: str) -> StorageError:
        return os_failure(error, doing, name, self.url)

    def _not_found(self, name: str) -> ObjectNotFound:
        return ObjectNotFound(f"there is no object {name!r} in {self.url}")

    def _placed(self, placed: bool, name: str, path: str, durable: bool) -> PutOutcome:
        if placed and durable:
            self._sync_entries([(name, path)])
        return PutOutcome.DONE if placed else PutOutcome.REFUSED

    def _sync_entries(self, placed: Sequence[tuple[str, str]]) -> None:
        for name, path in placed:
            try:
                self._files.sync_entry(path)
            except OSError as error:
                why = f"{name!r} is in place in {self.url}, but may not survive a power failure: {error.strerror}"
                raise StorageError(why) from error
