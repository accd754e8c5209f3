"""Write a large object to a local disk through a temporary file (effects)."""

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

#: Converts an OSError to a StorageError, with the operation and the object's name.
Failure = Callable[[OSError, str, str], StorageError]
#: Finishes a put: outcome of the rename, name, path, and whether to sync.
_Placed = Callable[[bool, str, str, bool], PutOutcome]

_SINK_BUFFER_BYTES: Final = 256 * 1024


class LocalObjectWriter:
    """The writer of a :class:`~lakefmt.storage.local.store.LocalStore` (:class:`lakefmt.storage.api.ObjectWriter`)."""

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

    def put_if_absent(self) -> PutOutcome:
        """Create the finished object unless the name is taken.

        Raises:
            StateError: called twice.
            StorageError: the object was not created, or (the message says so) may be lost on a
                power failure.
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
        # Bytes that cannot be flushed are discarded with the file.
        with contextlib.suppress(OSError):
            self.file.close()
        forget_file(self._temporary)
        # A full disk must be reported as such, not as an error of the library that writes to our
        # file.
        if is_full(error):
            raise self._failure(error, "write", self._name) from error
