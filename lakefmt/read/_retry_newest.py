"""Retry reads of the newest state when a clean removes their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from lakefmt.errors import SnapshotExpired

__all__ = ["read_newest", "scan_newest"]

T = TypeVar("T")


def read_newest(read: Callable[[], T]) -> T:
    """Return the result of a read of the newest state.

    A clean removes only files that a newer state does not need. A read with a missing file is
    therefore planned again on the newest state; a file that is missing twice is an error.

    Args:
        read: loads the newest state and reads it.

    Raises:
        SnapshotExpired: two plans need the same missing file.

    Example:
        >>> read_newest(lambda: 3)
        3
    """
    missed = _Missed()
    while True:
        try:
            return read()
        except SnapshotExpired as error:
            missed.note(error)


def scan_newest(scan: Callable[[], pa.RecordBatchReader]) -> pa.RecordBatchReader:
    """Return a stream of the newest state; it is planned again until the first row is returned.

    Args:
        scan: loads the newest state and plans a stream of it.

    Raises:
        SnapshotExpired: as for :func:`read_newest`; also when a file disappears after the first
            rows.
    """
    first = read_newest(scan)
    schema = first.schema

    def batches() -> Iterator[pa.RecordBatch]:
        reader, missed = first, _Missed()
        while True:
            has_begun = False
            try:
                for batch in reader:
                    has_begun = True
                    yield batch
                return
            except SnapshotExpired as error:
                if has_begun:
                    raise
                missed.note(error)
            reader = read_newest(scan)
            if not reader.schema.equals(schema):
                raise SnapshotExpired("a column was added while the stream was planned; read again")

    return pa.RecordBatchReader.from_batches(schema, batches())


class _Missed:
    """The missing files of earlier plans."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def note(self, error: SnapshotExpired) -> None:
        """Record the missing file; raise if it was missing before."""
        name = str(error).partition(" is gone")[0]
        if name in self._names:
            raise error
        self._names.add(name)
