"""Segments in a store: write, list, read, delete (effects).

A segment is two objects: the rows, then the header that names them. Rows without a header are not durable, and no reader sees
them. A second write of one segment finds the first and succeeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import pyarrow as pa

from lakefmt.errors import CorruptFile, InternalError, ObjectNotFound, StreamUnavailable
from lakefmt.segments.codec import (
    MAX_HEADER_BYTES,
    MAX_SEGMENT_BYTES,
    SegmentHeader,
    decode_header,
    decode_segment,
    encode_header,
)
from lakefmt.segments.names import STREAMS, SegmentPosition, data_name, header_name, parse_header_name, stream_folder
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.storage.parallel import map_concurrently
from lakefmt.timeline.store import put_if_absent_confirmed

__all__ = [
    "delete_segments",
    "has_segments",
    "has_streams",
    "list_headers",
    "list_positions",
    "list_streams",
    "read_segments",
    "write_header",
    "write_segment_rows",
]


def write_segment_rows(store: ObjectStore, header: SegmentHeader, data: bytes, *, durable: bool) -> None:
    """Write the rows of a segment; they count from when :func:`write_header` names them. Arguments and errors as there."""
    _put(store, data_name(header.stream, header.position), data, durable=durable)


def write_header(store: ObjectStore, header: SegmentHeader, *, durable: bool) -> None:
    """Write the header of a segment; it is durable when this returns.

    Args:
        store: the table's.
        header: the segment.
        durable: also on the disk.

    Raises:
        StreamUnavailable: another process wrote a segment of this name.
        StorageError: the store failed; the segment may be there or not, and may be written again.
    """
    _put(store, header_name(header.stream, header.position), encode_header(header), durable=durable)


def _put(store: ObjectStore, name: str, data: bytes, *, durable: bool) -> None:
    if put_if_absent_confirmed(store, name, data, durable=durable) is PutOutcome.DONE:
        return
    # An earlier attempt of this process, whose answer was lost, or another process.
    if store.read(name, MAX_SEGMENT_BYTES) != data:
        raise StreamUnavailable(f"{name} was written by another process: this stream is not its owner any more")


def has_streams(store: ObjectStore) -> bool:
    """Return whether a table has the folder of any stream; one request."""
    return bool(store.list_directories(STREAMS))


def list_streams(store: ObjectStore) -> list[str]:
    """Return the ids of the streams that a table has a folder of."""
    return sorted(name.rpartition("/")[2] for name in store.list_directories(STREAMS))


def list_positions(store: ObjectStore, stream: str) -> tuple[list[SegmentPosition], list[SegmentPosition]]:
    """Return the segments of a stream with a header, and those that have rows but no header."""
    headers, data = set[SegmentPosition](), set[SegmentPosition]()
    for info in store.list(stream_folder(stream), recursive=False):
        parsed = parse_header_name(info.name)
        if parsed is not None:
            (headers if parsed[2] else data).add(parsed[1])
    return sorted(headers), sorted(data - headers)


def has_segments(store: ObjectStore, stream: str, headers: Iterable[SegmentHeader]) -> bool:
    """Return whether segments of a stream are all there."""
    return {header.position for header in headers} <= set(list_positions(store, stream)[0])


def list_headers(store: ObjectStore, stream: str) -> list[SegmentHeader]:
    """Return the headers of a stream's segments; one that is deleted meanwhile is left out.

    Raises:
        CorruptFile: a header is damaged.
    """
    positions, _ = list_positions(store, stream)
    headers = map_concurrently(store, [partial(_header, store, stream, position) for position in positions])
    return [header for header in headers if header is not None]


def _header(store: ObjectStore, stream: str, position: SegmentPosition) -> SegmentHeader | None:
    name = header_name(stream, position)
    try:
        header = decode_header(store.read(name, MAX_HEADER_BYTES), name)
    except ObjectNotFound:
        return None
    if (header.stream, header.position) != (stream, position):
        raise CorruptFile(f"{name} is the header of another segment")
    return header


def read_segments(store: ObjectStore, headers: Sequence[SegmentHeader]) -> list[pa.Table]:
    """Return the rows of segments.

    Raises:
        ObjectNotFound: one was committed and deleted meanwhile.
        CorruptFile: one is damaged.
    """

    def read(header: SegmentHeader) -> pa.Table:
        if header.bytes > MAX_SEGMENT_BYTES:
            raise CorruptFile(f"{header_name(header.stream, header.position)} names a segment of {header.bytes} bytes")
        return decode_segment(store.read(data_name(header.stream, header.position), header.bytes), header)

    return map_concurrently(store, [partial(read, header) for header in headers])


def delete_segments(store: ObjectStore, stream: str, positions: Iterable[SegmentPosition]) -> None:
    """Delete segments, headers first: what is left of a deletion that ends half-way is no segment."""
    each = list(positions)
    if not all(isinstance(position, SegmentPosition) for position in each):
        raise InternalError("only positions name segments")
    if each:
        store.delete([header_name(stream, position) for position in each])
        store.delete([data_name(stream, position) for position in each])
