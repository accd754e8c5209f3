"""Footers of Parquet files without the key filter that Hudi stores in them.

The filter is an entry of the footer: 2.6 MB of text in a file of 400,000 rows. Arrow copies each entry of a footer that it reads
twice, into memory that it does not count, and holds the copies as long as anything refers to the footer. So the entry is cut out of
the bytes before Arrow reads them, and whoever asks for the filter reads its text from the place where it is.

A footer is what a stored file says, so that nothing in it is believed: what is gone through is bounded, and bytes that are not as
they are expected to be are left to Arrow, which tells what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.parquet._compact import (
    BINARY,
    STRUCT,
    Field,
    count_at,
    encode_list,
    fields_of,
    only_field,
)
from lakefmt._core.formats.parquet.duplicate_columns import MAGIC, Span, with_length
from lakefmt.errors import InternalError

__all__ = [
    "BLOOM_KEY",
    "LARGE_FOOTER",
    "LEGACY_BLOOM_KEY",
    "ReadBytes",
    "ShortFooter",
    "in_memory",
    "read_short_footer",
]

#: Returns bytes from an offset on, as many as asked for, fewer only at the end.
ReadBytes = Callable[[int, int], bytes]

BLOOM_KEY: Final = "org.apache.hudi.bloomfilter"
LEGACY_BLOOM_KEY: Final = "com.uber.hoodie.bloomfilter"
#: A footer of fewer bytes is read as it is, and so is a filter of fewer bytes than the second number.
LARGE_FOOTER: Final = 64 << 10
_LARGE_FILTER: Final = 32 << 10
_TAIL_BYTES: Final = 8
#: What Arrow reads of the end of a file before it knows how long the footer is.
_END_BYTES: Final = 64 << 10
#: What stands before the entries takes less than the first number, unless there are a thousand column chunks.
_HEAD_BYTES, _MOST_HEAD_BYTES = 64 << 10, 4 << 20
#: What stands behind the entries: who wrote the file, and a few bytes for each column.
_MOST_REST_BYTES: Final = 1 << 20
_WINDOW_BYTES: Final = 512
#: Bytes that are looked at one by one, of all entries: a file of Hudi has ten entries.
_MOST_LOOKED_AT: Final = 1 << 16
_MOST_NAME_BYTES: Final = 1 << 10
# Numbers of fields in parquet.thrift.
_ENTRIES, _ENTRY_NAME, _ENTRY_VALUE = 5, 1, 2


@dataclass(frozen=True, slots=True)
class ShortFooter:
    """A footer without its key filter.

    Attributes:
        metadata: the footer.
        left_out: the entries that it lacks: where the text of each is in the file.
    """

    metadata: pq.FileMetaData
    left_out: Mapping[str, Span]

    def texts(self, read_at: ReadBytes) -> dict[str, bytes]:
        """Return the entries that were left out.

        Args:
            read_at: reads bytes of the file.
        """
        return {name: read_at(span.offset, span.size) for name, span in self.left_out.items()}


class _Window:
    """The bytes of a footer, of which those that are asked for are read, some at a time."""

    def __init__(self, read_at: ReadBytes) -> None:
        self._read_at, self._begin, self._data, self._left = read_at, 0, b"", _MOST_LOOKED_AT

    def __getitem__(self, place: int, /) -> int:
        self._left -= 1
        if self._left < 0:
            raise InternalError("a footer has more entries than expected")
        if not self._begin <= place < self._begin + len(self._data):
            self._begin, self._data = place, self._read_at(place, _WINDOW_BYTES)
        return self._data[place - self._begin]


def in_memory(read_at: ReadBytes, size: int) -> ReadBytes:
    """Read the footer of a file that is far away, by as many requests as Arrow takes, and return what reads from it.

    Args:
        read_at: reads bytes of the file.
        size: bytes of the file.
    """
    begin = max(0, size - _END_BYTES)
    data = read_at(begin, size - begin)
    first = size - _TAIL_BYTES - int.from_bytes(data[-_TAIL_BYTES : -len(MAGIC)], "little")
    if data[-len(MAGIC) :] == MAGIC and 0 <= first < begin:
        begin, data = first, read_at(first, begin - first) + data

    def read_held(offset: int, count: int) -> bytes:
        return data[offset - begin : offset - begin + count] if offset >= begin else b""

    return read_held


def read_short_footer(read_at: ReadBytes, size: int, least: int = LARGE_FOOTER) -> ShortFooter | None:
    """Return the footer of a Parquet file without its key filter; None: it is small, or not as it is expected to be.

    Args:
        read_at: reads bytes of the file.
        size: bytes of the file.
        least: a footer of fewer bytes is small; 0: it is read in any case.

    Example:
        >>> sink = pa.BufferOutputStream()
        >>> with pq.ParquetWriter(sink, pa.schema({"n": pa.int64()})) as writer:
        ...     writer.add_key_value_metadata({BLOOM_KEY: "A" * LARGE_FOOTER})
        >>> file = sink.getvalue().to_pybytes()
        >>> footer = read_short_footer(lambda offset, count: file[offset : offset + count], len(file))
        >>> footer.metadata.num_columns, footer.left_out[BLOOM_KEY].size == LARGE_FOOTER
        (1, True)
    """
    if size <= max(least, _TAIL_BYTES):  # so is its footer
        return None
    tail = read_at(size - _TAIL_BYTES, _TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    begin = size - _TAIL_BYTES - length
    if tail[4:] != MAGIC or length < least or begin < 0:
        return None

    def in_footer(offset: int, count: int) -> bytes:
        return read_at(begin + offset, max(0, min(count, length - offset)))

    bare, left_out = b"", dict[str, Span]()
    if length >= LARGE_FOOTER:
        with suppress(IndexError, InternalError, RecursionError, UnicodeDecodeError):
            bare, left_out = _without_filter(in_footer, length)
    if not left_out:
        if least:
            return None
        bare = in_footer(0, length)
    try:
        metadata = pq.read_metadata(pa.BufferReader(b"".join([MAGIC, with_length(bare)])))
    except (pa.ArrowException, OSError, UnicodeDecodeError):  # the text of an error may be no text
        return None  # Arrow will tell of the whole footer what is wrong with it
    return ShortFooter(metadata, {name: Span(begin + at.offset, at.size) for name, at in left_out.items()})


def _without_filter(read_at: ReadBytes, length: int) -> tuple[bytes, dict[str, Span]]:
    """Return the bytes of a footer without its key filter, and where in them that was.

    Raises:
        IndexError, InternalError, RecursionError, UnicodeDecodeError: it is damaged, or has no large filter.
    """
    head, position = _head_of(read_at, length)
    window = _Window(read_at)
    kind = window[position] & 15
    count, offset = count_at(window, position)
    remaining_entries: list[bytes] = []
    left_out: dict[str, Span] = {}
    names: set[str] = set()
    for _ in range(count):
        fields = fields_of(window, offset)
        end = (fields[-1].end if fields else offset) + 1
        name = _text_at(read_at, window, only_field(fields, _ENTRY_NAME)).decode()
        value = next((field for field in fields if field.number == _ENTRY_VALUE), None)
        if kind != STRUCT or end > length or name in names:  # of two entries of a name Arrow tells one
            raise InternalError("the entries of a footer are not as expected")
        names.add(name)
        if value is not None and name in (BLOOM_KEY, LEGACY_BLOOM_KEY) and value.end - value.start >= _LARGE_FILTER:
            left_out[name] = _span_of(window, value)
        else:
            remaining_entries.append(read_at(offset, end - offset))
        offset = end
    if not left_out or length - offset > _MOST_REST_BYTES:
        raise InternalError("a large footer has a key filter")
    return b"".join([head[:position], encode_list(remaining_entries), read_at(offset, length - offset)]), left_out


def _head_of(read_at: ReadBytes, length: int) -> tuple[bytes, int]:
    """Return the first bytes of a footer, and where among them its entries begin."""
    size = _HEAD_BYTES
    while True:
        head = read_at(0, min(size, length))
        try:
            return head, only_field(fields_of(head, stop=_ENTRIES), _ENTRIES).start
        except IndexError:
            if size >= min(length, _MOST_HEAD_BYTES):
                raise
            size *= 8


def _span_of(window: _Window, field: Field) -> Span:
    """Return where a text is, behind its length."""
    if field.kind != BINARY:
        raise InternalError("an entry of a footer is no text")
    begin = field.start
    while window[begin] & 0x80:
        begin += 1
    return Span(begin + 1, field.end - begin - 1)


def _text_at(read_at: ReadBytes, window: _Window, field: Field) -> bytes:
    span = _span_of(window, field)
    if not 0 <= span.size <= _MOST_NAME_BYTES:
        raise InternalError("the name of an entry is long")
    return read_at(span.offset, span.size)
