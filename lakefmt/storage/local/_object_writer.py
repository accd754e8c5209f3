"""A large object on a local disk in the making: a temporary file beside its place (effects)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, Final

from lakefmt.errors import StateError, StorageError
from lakefmt.storage.api import PutOutcome
from lakefmt.storage.local._posix import flush_path, forget_file
from lakefmt.storage.local.atomic_files import AtomicFiles
from lakefmt.storage.os_errors import is_full

__all__ = ["LocalObjectWriter"]

#: Makes a StorageError of what the system raised, what was being done, and the name.
Failure = Callable[[OSError, str, str], StorageError]
#: Finishes a put: whether the name was given, the name, its path, and whether the disk shall have it.
_Placed = Callable[[bool, str, str, bool], PutOutcome]

_SINK_BUFFER_BYTES: Final = 256 * 1024


class LocalObjectWriter:
    """A large object of a :class:`~lakefmt.storage.local.store.LocalStore` in the making; see :class:`lakefmt.storage.api.ObjectWriter`."""

    def __init__(
        self, files: AtomicFiles, name: str, path: str, durable: bool, failure: Failure, placed: _Placed
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

    @property
    def file(self) -> BinaryIO:
        """The writable binary file that takes the bytes."""
        if self._file is None:
            raise StateError("a sink is written to inside its with block")
        return self._file

    @property
    def size(self) -> int:
        """Bytes written so far."""
        if self._size is not None:
            return self._size
        # Some writers close the file they were given.
        return os.path.getsize(self._temporary) if self.file.closed else self.file.tell()

    def put_if_absent(self) -> PutOutcome:
        """Give the finished object its name, whole, unless the name is taken.

        Raises:
            StateError: it was called before.
            StorageError: nothing became visible, or (the message says so) it may not survive a power failure.
        """
        if self._size is not None:
            raise StateError(f"the sink of {self._name!r} is finished already")
        try:
            self.file.close()
            if self._durable:
                flush_path(self._temporary)
            self._size = os.path.getsize(self._temporary)
            placed = self._files.place(self._temporary, self._path)
        except OSError as error:
            raise self._failure(error, "create", self._name) from error
        return self._placed(placed, self._name, self._path, self._durable)

    def __enter__(self) -> LocalObjectWriter:
        try:
            descriptor = self._files.open_temporary(self._temporary)
        except OSError as error:
            raise self._failure(error, "create", self._name) from error
        self._file = os.fdopen(descriptor, "wb", buffering=_SINK_BUFFER_BYTES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Bytes that cannot be written out any more are dropped with the file.
        with contextlib.suppress(OSError):
            self.file.close()
        forget_file(self._temporary)
        # A full disk, met while somebody wrote to our file object, must not look like a fault of that writer.
        if is_full(error):
            raise self._failure(error, "write", self._name) from error
