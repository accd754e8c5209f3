"""Footers of Parquet files without the key filter that Hudi stores in them.

The filter is an entry of the footer: 2.6 MB of text in a file of 400,000 rows. Arrow copies each entry of a footer that it reads
twice, into memory that it does not count, and holds the copies as long as anything refers to the footer. So its value is cut out of
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
from lakefmt._core.formats.parquet._compact import BINARY, number_at
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
#: A number of 64 bits has ten bytes of seven each.
_MOST_NUMBER_BYTES: Final = 10
#: The head of a field of text that comes behind the one before it.
_TEXT_FIELD: Final = 1 << 4 | BINARY


@dataclass(frozen=True, slots=True)
class ShortFooter:
    """A footer without its key filter.

    Attributes:
        metadata: the footer.
        left_out: the entries that are empty there: where the text of each is in the file.
    """

    metadata: pq.FileMetaData
    left_out: Mapping[str, Span]

    def texts(self, read_at: ReadBytes) -> dict[str, bytes]:
        """Return the entries that were left out.

        Args:
            read_at: reads bytes of the file.
        """
        return {name: read_at(span.offset, span.size) for name, span in self.left_out.items()}


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
        with suppress(IndexError, InternalError):
            bare, left_out = _without_filter(in_footer, length)
    if not left_out:
        if least:
            return None
        bare = in_footer(0, length)
    try:
        metadata = pq.read_metadata(pa.BufferReader(b"".join([MAGIC, with_length(bare)])))
    except (pa.ArrowException, OSError, UnicodeDecodeError):  # the text of an error may be no text
        return None  # Arrow will tell of the whole footer what is wrong with it
    if any((metadata.metadata or {}).get(name.encode()) != b"" for name in left_out):
        return None  # what was cut out was no entry
    return ShortFooter(metadata, {name: Span(begin + at.offset, at.size) for name, at in left_out.items()})


def _without_filter(read_at: ReadBytes, length: int) -> tuple[bytes, dict[str, Span]]:
    """Return the bytes of a footer whose key filter is empty, and where in them the filter was.

    The filter is found by its name, because going through all row groups before it takes longer than Arrow takes to read them.

    Raises:
        IndexError, InternalError: it is damaged, or has no large filter.
    """
    size = _HEAD_BYTES
    while True:
        head = read_at(0, min(size, length))
        found = [(name, at) for name in (BLOOM_KEY, LEGACY_BLOOM_KEY) if (at := head.find(_entry_named(name))) >= 0]
        if found or size >= min(length, _MOST_HEAD_BYTES):
            break
        size *= 8
    for name, position in found:
        place = position + len(_entry_named(name))  # of the number that tells how long the value is
        window = (
            head if len(head) >= place + _MOST_NUMBER_BYTES else head + bytes(read_at(len(head), _MOST_NUMBER_BYTES))
        )
        count, begin = number_at(window, place)
        end = begin + count
        if _LARGE_FILTER <= count < length and length - _MOST_REST_BYTES <= end < length:
            bare = b"".join([head[:place], b"\0", read_at(end, length - end)])
            if bare.count(name.encode()) == 1:  # else some other text may have it
                return bare, {name: Span(begin, count)}
    raise InternalError("a large footer has a key filter")


def _entry_named(name: str) -> bytes:
    """Return how an entry begins: its name, behind the length, and the head of the field with its value."""
    return b"".join([bytes([_TEXT_FIELD, len(name)]), name.encode(), bytes([_TEXT_FIELD])])
