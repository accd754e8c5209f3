"""The footer of a Parquet file without its entries. Pure.

Hudi's key filter is an entry of the footer: of a file of 650,000 rows it is 5 MB of text, and Arrow copies it several times
before it has told the first row group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.errors import InternalError
from lakefmt.formats.parquet._compact import after_list, fields_of
from lakefmt.formats.parquet.duplicate_columns import MAGIC, with_length

__all__ = ["LARGE_FOOTER", "read_short_footer"]

#: A footer of fewer bytes is read as it is.
LARGE_FOOTER: Final = 128 << 10
_TAIL_BYTES: Final = 8
#: What stands before the entries takes less, unless there are a thousand column chunks.
_HEAD_BYTES: Final = 64 << 10
_WINDOW_BYTES: Final = 512
_ENTRIES: Final = 5

ReadAt = Callable[[int, int], bytes]


class _Window:
    """The bytes of a footer, of which those that are asked for are read, some at a time."""

    def __init__(self, read_at: ReadAt) -> None:
        self._read_at, self._begin, self._data = read_at, 0, b""

    def __getitem__(self, place: int, /) -> int:
        if not self._begin <= place < self._begin + len(self._data):
            self._begin, self._data = place, self._read_at(place, _WINDOW_BYTES)
        return self._data[place - self._begin]


def read_short_footer(read_at: ReadAt, size: int) -> pq.FileMetaData | None:
    """Return the footer of a Parquet file without its entries; None: it is small, or not as it is expected to be.

    Parameters:
        read_at: reads bytes of the file.
        size: bytes of the file.
    """
    tail = read_at(size - _TAIL_BYTES, _TAIL_BYTES) if size > _TAIL_BYTES else b""
    length = int.from_bytes(tail[:4], "little")
    begin = size - _TAIL_BYTES - length
    if tail[4:] != MAGIC or length < LARGE_FOOTER or begin < 0:
        return None

    def in_footer(offset: int, count: int) -> bytes:
        return read_at(begin + offset, max(0, min(count, length - offset)))

    try:
        footer = _without_entries(in_footer, length)
        return pq.read_metadata(pa.BufferReader(b"".join([MAGIC, with_length(footer)])))
    except (IndexError, InternalError, RecursionError, pa.ArrowException, OSError):
        return None  # Arrow will tell of the whole footer what is wrong with it


def _without_entries(read_at: ReadAt, length: int) -> bytes:
    """Return the bytes of a footer without its entries.

    Raises:
        IndexError, InternalError, RecursionError: it is damaged, or its head is long.
    """
    head = read_at(0, _HEAD_BYTES)
    fields = fields_of(head, stop=_ENTRIES)
    if len(fields) < 2 or fields[-1].number != _ENTRIES:
        raise InternalError("a large footer has entries")
    before, entries = fields[-2:]
    end = after_list(_Window(read_at), entries.start)
    rest = read_at(end, length - end)
    if not rest or len(rest) > _HEAD_BYTES:
        raise InternalError("a footer without entries is not large")
    # A field says how many numbers it is behind the one before it.
    if rest[0]:
        step = (rest[0] >> 4) + _ENTRIES - before.number
        if not rest[0] >> 4 or step > 15:
            raise InternalError("the fields of a footer are not in order")
        rest = bytes([step << 4 | rest[0] & 15]) + rest[1:]
    return head[: before.end] + rest
