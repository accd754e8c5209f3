"""What is too much for memory waits in temporary files (effects); first of all the keys of files in the making.

A filter can be built only when the number of its keys is known, so a file's keys are kept until it is finished: with
many files open at a time they would outgrow every window.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from lakefmt.formats.bloom.bloom_filter import BloomFilter
from lakefmt.formats.parquet.base_file import key_range, outermost
from lakefmt.storage.os_errors import os_failure

__all__ = ["FileKeys", "row_memory", "spilling", "widened"]

#: What a sort and writers of pages take however little they hold: code, pages of each column, what allocators keep.
_FIXED_BYTES = 30 << 20
_LEAST_PART = 4

#: A piece of spilled keys is this part of the memory, and the bits of a filter, as a byte each, are that part at most.
_KEY_PARTS, _FLAG_PARTS = 16, 2
#: The flags of a filter of fewer keys, 35 bytes for each, are in a cache.
_CACHED_KEYS = 1 << 17

_SCHEMA = pa.schema([("key", pa.string())])


def row_memory(limit_bytes: int) -> int:
    """Return how much of a limit is left for rows, keys and filters of a bounded load.

    Example:
        >>> [row_memory(limit << 20) >> 20 for limit in (8, 48, 128)]
        [2, 18, 98]
    """
    return max(limit_bytes - _FIXED_BYTES, limit_bytes // _LEAST_PART)


@contextmanager
def spilling() -> Iterator[None]:
    """Turn what the system raises while temporary files are written or read into a typed error.

    Raises:
        StorageError: the temporary directory could not take the bytes, or lost them.
    """
    try:
        yield
    except OSError as error:
        raise os_failure(error, "use", "a temporary file", _temporary_directory()) from error


def _temporary_directory() -> str:
    from tempfile import gettempdir

    try:
        return gettempdir()
    except OSError:  # none of those that Python tries can take files
        return "the temporary directory"


class FileKeys:
    """Number and range of a growing file's keys, and the keys themselves: in memory, until they are spilled.

    Example:
        >>> keys = FileKeys()
        >>> keys.add(pa.chunked_array([["b", "c"]]))
        >>> keys.spill()
        >>> keys.add(pa.chunked_array([["a"]]))
        >>> len(keys), keys.range, [file_slice.to_pylist() for file_slice in keys.pieces(1 << 20)]
        (3, ('a', 'c'), [['b', 'c', 'a']])
        >>> keys.close()
    """

    def __init__(self) -> None:
        self._held: list[pa.Array] = []
        self._count = 0
        self._bounds: list[str] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def range(self) -> tuple[str | None, str | None]:
        """The smallest and the largest key in Java's string order, None for no keys."""
        return (self._bounds[0], self._bounds[-1]) if self._bounds else (None, None)

    @property
    def held_bytes(self) -> int:
        """Bytes of the keys in memory."""
        return sum(chunk.nbytes for chunk in self._held)

    def add(self, keys: pa.ChunkedArray, *, copy: bool = False, ends: tuple[str, str] | None = None) -> None:
        """Take more keys.

        Args:
            keys: the keys, in file order.
            copy: keep a copy, because the keys are part of something larger that would stay with them.
            ends: the smallest and the largest of them, where that is known.
        """
        if copy and keys.num_chunks:
            # Concatenating copies just the arrays' own rows, and makes one of many.
            keys = pa.chunked_array([pa.concat_arrays(keys.chunks)])
        low, high = ends or key_range(keys)
        if low is None or high is None:
            return
        self._held += keys.chunks
        self._count += len(keys)
        self._bounds = list(outermost([*self._bounds, low, high]))

    def spill(self) -> None:
        """Move the keys in memory to a temporary file.

        Raises:
            StorageError: it could not take them.
        """
        from tempfile import TemporaryFile  # few writes spill keys

        with spilling():
            if self._writer is None:
                self._file = TemporaryFile(prefix="lakefmt-keys-")  # noqa: SIM115 (closed by close)
                self._writer = pa.ipc.new_stream(self._file, _SCHEMA)
            for chunk in self._held:
                self._writer.write_batch(pa.record_batch([chunk], schema=_SCHEMA))
        self._held = []

    def few(self, most: int) -> pa.ChunkedArray | None:
        """Return all keys when they are few enough and in memory, else None."""
        held = self._writer is None and 0 < self._count <= most
        return pa.chunked_array(self._held, pa.string()) if held else None

    def pieces(self, piece_bytes: int) -> Iterator[pa.ChunkedArray]:
        """Yield all keys, in file order, about `piece_bytes` of spilled ones at a time; nothing can be added afterwards."""
        if self._writer is None or self._file is None:
            yield pa.chunked_array(self._held, pa.string())
            return
        self.spill()
        self._writer.close()
        self._file.seek(0)
        waiting: list[pa.Array] = []
        size = 0
        for batch in pa.ipc.open_stream(self._file):
            waiting.append(batch.column(0))
            size += batch.nbytes
            if size >= piece_bytes:
                yield pa.chunked_array(waiting)
                waiting, size = [], 0
        if waiting:
            yield pa.chunked_array(waiting)

    def add_to(self, bloom: BloomFilter, memory_bytes: int) -> None:
        """Add all keys to a filter; nothing can be added here afterwards.

        Args:
            bloom: the filter.
            memory_bytes: what keys and flags may take.
        """
        in_order = False
        if self._count > _CACHED_KEYS:
            from lakefmt.sorting.memory_speed import far_writes_are_slow  # few files are large

            in_order = far_writes_are_slow()
        parts = self.pieces(max(1, memory_bytes // _KEY_PARTS))
        bloom.add_pieces(parts, memory_bytes // _FLAG_PARTS, in_order=in_order)

    def close(self) -> None:
        """Let go of the temporary file."""
        if self._file is not None:
            self._file.close()
        self._held = []


def widened(ends: tuple[str, str] | None, new: tuple[str, str] | None) -> tuple[str, str] | None:
    """Return the range of stored keys and new ones; None where that of the stored ones is not known for certain.

    Args:
        ends: what a footer says of the stored keys; None: nothing.
        new: the range of the new keys; None: there are none.

    Example:
        >>> widened(("b", "c"), ("a", "b")), widened(None, ("a", "b"))
        (('a', 'c'), None)
    """
    if ends is None or not (ends[0] + ends[1]).isascii():  # some writers compare beyond ASCII by bytes
        return None
    return ends if new is None else outermost([*ends, *new])
