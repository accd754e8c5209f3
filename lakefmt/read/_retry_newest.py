"""Reads of the newest state beside writers that clean: planned anew until they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from lakefmt.errors import SnapshotExpired

__all__ = ["read_newest", "scan_newest"]

T = TypeVar("T")


def read_newest(read: Callable[[], T]) -> T:
    """Return what a read of the newest state gives.

    A clean removes only files that a newer state does not need. So a read whose file is gone is planned anew on the state
    that is the newest by then, as often as files go; a file that the newer plan misses, too, is really gone.

    Args:
        read: loads the newest state and reads it.

    Raises:
        SnapshotExpired: two plans need one file, and it is not there.

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
    """Return a stream of the newest state, planned anew as long as nobody has seen a row of it.

    Args:
        scan: loads the newest state and plans a stream of it.

    Raises:
        SnapshotExpired: as for :func:`read_newest`; the stream raises it when a file goes after the first rows.
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
    """The files that plans needed and did not find."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def note(self, error: SnapshotExpired) -> None:
        """Remember what is missing; raise when it was missing before."""
        name = str(error).partition(" is gone")[0]
        if name in self._names:
            raise error
        self._names.add(name)
