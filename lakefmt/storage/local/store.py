"""A store in a directory of this machine, straight over the operating system's calls.

Every write goes to a temporary file beside its destination and gets its final name in one atomic step, so a process
that dies leaves temporary files only (:meth:`LocalStore.remove_leftovers`). Beside an object that is replaced or
removed, the checksum sidecar that Hadoop may have left (``.<name>.crc``, spec 2.6) goes first.

Links: a name never leaves the base by itself (``..`` is refused). Symbolic links that somebody put below it are what they
lead to, as Hadoop has it, when named and when listed; a link to a directory above itself is an error. Removing an object or a
tree that is a link removes the link, and nothing behind it.
"""

from __future__ import annotations

import builtins
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NoReturn

import pyarrow.fs as pafs

from lakefmt.errors import CorruptFile, ObjectNotFound, StorageError, UnsafePath
from lakefmt.storage.api import Buffer, Capabilities, CasResult, ObjectInfo, PutOutcome, Version
from lakefmt.storage.local._compare_and_swap import CAN_SWAP, read_marked, swap_file
from lakefmt.storage.local._object_writer import LocalObjectWriter
from lakefmt.storage.local._posix import (
    ABSENT,
    NOWHERE,
    READ_FLAGS,
    is_directory,
    leads_back,
    names_in,
    remove_file,
    remove_tree,
    scan_directory,
    sidecar_of,
)
from lakefmt.storage.local.atomic_files import AtomicFiles, is_abandoned
from lakefmt.storage.local.process_lock import ProcessLock, hold_file, is_held
from lakefmt.storage.object_names import directory_name, is_addressable, is_temporary, object_name, object_names
from lakefmt.storage.os_errors import os_failure

__all__ = ["LocalStore"]

_SINK_BUFFER_BYTES: Final = 256 * 1024
_TREE_ATTEMPTS: Final = 10


class LocalStore:
    """Objects as files below one directory.

    `root` is the base directory (made absolute; it need not exist yet: the first put makes it).

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

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store is not pickled: reopen it with open_store on the other side")

    @property
    def url(self) -> str:
        """The base directory's absolute path."""
        return self._root

    @property
    def capabilities(self) -> Capabilities:
        """What this directory's file system can promise."""
        return Capabilities(put_if_absent=self._files.is_atomic, directories=True, durable=True, low_latency=True)

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return a whole object of at most `max_bytes` bytes.

        Raises:
            ObjectNotFound: there is none.
            CorruptFile: it is larger than `max_bytes`.
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
        # One read is enough for all but huge files, of which the system may return less than asked for.
        parts = []
        while size > 0 and (part := os.read(descriptor, size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def info(self, name: str) -> ObjectInfo | None:
        """Return an object's size and time, or None when there is none.

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

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Yield the objects below the directory `prefix`, in no order; what vanishes meanwhile is left out.

        Raises:
            UnsafePath: a link leads to a directory above itself.
            StorageError: the file system failed.
        """
        return self._list(directory_name(prefix), recursive)

    def _list(self, prefix: str, recursive: bool) -> Iterator[ObjectInfo]:
        waiting = [prefix]
        while waiting:
            directory = waiting.pop()
            start = f"{directory}/" if directory else ""
            try:
                files, inside, links = scan_directory(self._base + directory)
                self._check_links([start + last for last in links] if recursive else [])
            except OSError as error:
                if error.errno in ABSENT:
                    continue
                raise self._failure(error, "list", directory) from error
            for last, status in files:
                name = start + last
                # The system's names have no empty parts, and nearly all of them no letters that could be broken.
                if not is_temporary(name) and (name.isascii() or is_addressable(name)):
                    yield ObjectInfo(name, status.st_size, status.st_mtime)
            if recursive:
                waiting += [start + last for last in inside]

    def _check_links(self, links: Iterable[str]) -> None:
        """Refuse links to a directory above them: whoever follows them finds the same files again and again.

        Raises:
            UnsafePath: one is such a link.
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
        """Yield everything below a directory that is not a directory itself; links that lead back are passed over."""
        waiting = [prefix]
        while waiting:
            directory = waiting.pop()
            for name, entry, is_inside in self._entries(directory):
                if not is_inside:
                    yield name, entry
                elif recursive and not (entry.is_symlink() and self._leads_back(name)):
                    waiting.append(name)

    def _entries(self, directory: str) -> builtins.list[tuple[str, os.DirEntry[str], bool]]:
        # Taken whole: no open descriptor waits for a slow consumer, and a directory's entries fit in memory.
        start = f"{directory}/" if directory else ""
        try:
            with os.scandir(self._base + directory) as entries:
                return [(start + entry.name, entry, is_directory(entry)) for entry in entries]
        except OSError as error:
            if error.errno in ABSENT:
                return []
            raise self._failure(error, "list", directory) from error

    def list_names(self, prefix: str) -> builtins.list[str]:
        """Return the last parts of the names directly inside `prefix`: one call, no look at any file.

        Raises:
            StorageError: the file system failed.
        """
        directory = directory_name(prefix)
        try:
            return names_in(self._base + directory)
        except OSError as error:
            raise self._failure(error, "list", directory) from error

    def list_directories(self, prefix: str = "") -> builtins.list[str]:
        """Return the names (relative to the base) of the directories directly inside `prefix`.

        Raises:
            UnsafePath: a link leads to a directory above itself.
            StorageError: the file system failed.
        """
        entries = self._entries(directory_name(prefix))
        found = [(name, entry) for name, entry, is_inside in entries if is_inside and is_addressable(name)]
        self._check_links(name for name, entry in found if entry.is_symlink())
        return [name for name, _ in found]

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return Arrow's local file system and the prefix that turns a name into its path there."""
        return pafs.LocalFileSystem(use_mmap=False), self._base

    # ------------------------------------------------------------------------------------------------------ writing

    def put_if_absent(self, name: str, data: Buffer, *, durable: bool = False) -> PutOutcome:
        """Create an object whole, unless the name is taken; `durable` waits until the disk has it.

        Raises:
            StorageError: nothing became visible, or (the message says so) it may not survive a power failure.
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
        """Create or replace an object whole; a Hadoop sidecar of the old bytes is removed first (spec 2.6).

        Raises:
            StorageError: the object is what it was, or (the message says so) it may not survive a power failure.
        """
        path = self._path(name)
        try:
            temporary = self._files.write_temporary(path, data, durable)
            self._files.replace(temporary, path)
        except OSError as error:
            raise self._failure(error, "write", name) from error
        self._placed(True, name, path, durable)

    def create(self, name: str, *, durable: bool = False) -> LocalObjectWriter:
        """Open a sink for a large object that appears by put-if-absent.

        Raises:
            StorageError: the temporary file cannot be made.

        Example:
            >>> import tempfile
            >>> store = LocalStore(tempfile.mkdtemp())
            >>> with store.create("big") as sink:
            ...     _ = sink.file.write(b"x" * 10)
            ...     print(sink.size, sink.put_if_absent())
            10 PutOutcome.DONE
        """
        return LocalObjectWriter(self._files, name, self._path(name), durable, self._failure, self._placed)

    def make_directories(self, names: Iterable[str]) -> None:
        """Create directories, with those above them.

        Raises:
            StorageError: a file has the name, or the file system failed.
        """
        for name in [directory_name(name) for name in names]:
            try:
                os.makedirs(self._base + name, exist_ok=True)
            except OSError as error:
                raise self._failure(error, "make the directory", name) from error

    # ----------------------------------------------------------------------------------------------------- removing

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects and their Hadoop sidecars (spec 2.6); those that are not there are ignored.

        Raises:
            StorageError: at least one could not be removed; the others were.
        """
        failures = []
        for name in object_names(names):
            path = self._base + name
            try:
                # The sidecar first: a later object of that name must not meet a stale one.
                remove_file(sidecar_of(path))
                remove_file(path)
            except OSError as error:
                failures.append(self._failure(error, "remove", name))
        if failures:
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise StorageError(f"{failures[0]}{more}", transient=all(failure.transient for failure in failures))

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below the directory `prefix` and the directory itself; links are not followed.

        Raises:
            StorageError: something is left, for instance because a writer keeps adding to it.
        """
        path = self._base + directory_name(prefix)
        for attempt in range(1, _TREE_ATTEMPTS + 1):
            try:
                remove_tree(path)
                return
            except OSError as error:
                # Somebody removed or added an entry while we walked: look again.
                raced = error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)
                if not raced or attempt == _TREE_ATTEMPTS:
                    raise self._failure(error, "remove the tree", prefix) from error
            finally:
                self._files.unsettle()

    def remove_leftovers(self, older_than_epoch: float) -> int:
        """Remove temporary files last written before `older_than_epoch` (epoch seconds); return how many.

        Raises:
            StorageError: one could not be removed.
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
        """Remove temporary files below `prefix` whose process on this machine has ended; return how many.

        Raises:
            StorageError: one could not be removed.
        """
        found = [entry for name, entry in self._walk(directory_name(prefix), recursive) if is_temporary(name)]
        dead = [entry for entry in found if is_abandoned(entry.name)]
        for entry in dead:
            try:
                remove_file(entry.path)
            except OSError as error:
                raise self._failure(error, "remove", entry.name) from error
        return len(dead)

    def leave_temporary_object(self, name: str, data: Buffer) -> None:
        """Leave the file that a put of `name` leaves behind when its process dies half-way (for crash tests)."""
        try:
            self._files.write_temporary(self._path(name), data, durable=False)
        except OSError as error:
            raise self._failure(error, "create", name) from error

    # ------------------------------------------------------------------------------------------------------ versions

    @property
    def has_versions(self) -> bool:
        """Whether this system can compare and swap between the processes of one machine."""
        return CAN_SWAP and self._files.is_atomic

    def read_version(self, name: str, max_bytes: int) -> Version | None:
        """Return an object of at most `max_bytes` bytes with its mark, None when there is none.

        Raises:
            CorruptFile: it is larger than `max_bytes`.
            StorageError: the file system failed.
        """
        try:
            found = read_marked(self._path(name), max_bytes)
        except OSError as error:
            raise self._failure(error, "read", name) from error
        if isinstance(found, int):
            raise CorruptFile(f"{name!r} in {self.url} has {found:,} bytes, at most {max_bytes:,} are expected")
        return found

    def put_if_match(self, name: str, data: Buffer, mark: str | None) -> CasResult:
        """Replace an object if its mark is still `mark`; with None: create it unless the name is taken.

        Raises:
            StorageError: the file system failed.
        """
        try:
            return swap_file(self._files, self._path(name), data, mark)
        except OSError as error:
            raise self._failure(error, "replace", name) from error

    # ------------------------------------------------------------------------------------------------ process locks

    def hold(self, name: str) -> ProcessLock | None:
        """Lock the object `name` (created empty if need be) until released or dead; None when another holds it."""
        try:
            return hold_file(Path(self._path(name)))
        except OSError as error:
            raise self._failure(error, "lock", name) from error

    def is_held(self, name: str) -> bool:
        """Return whether some living process holds the object `name`."""
        return is_held(Path(self._path(name)))

    def touch(self, name: str) -> None:
        """Set the modification time of `name` to now; an object that is gone stays gone.

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
        if not placed:
            return PutOutcome.REFUSED
        if durable:
            try:
                self._files.settle(path)
            except OSError as error:
                why = f"{name!r} is in place in {self.url}, but may not survive a power failure: {error.strerror}"
                raise StorageError(why) from error
        return PutOutcome.DONE
