"""Looks at the segments of streams for a check (effects: reads only)."""

from __future__ import annotations

from collections.abc import Iterator

from lakefmt.check.findings import DeleteFiles, Finding, Kind, SetAside
from lakefmt.errors import CorruptFile, ObjectNotFound
from lakefmt.filegroups.table_client import TableClient
from lakefmt.segments.claims import is_blank, is_owned, list_claims, list_epochs
from lakefmt.segments.codec import MAX_HEADER_BYTES, Claim, SegmentHeader, decode_claim, decode_header, decode_note
from lakefmt.segments.files import list_positions, list_streams, read_segments
from lakefmt.segments.names import STREAMS, SegmentPosition, claim_name, data_name, header_name, note_name
from lakefmt.storage.api import ObjectStore

__all__ = ["find_stream_damage"]

_CONSEQUENCE = "the stream cannot be recovered, and uncommitted rows cannot be read, while it is there"


def find_stream_damage(client: TableClient, *, whole: bool) -> list[Finding]:
    """Return what is wrong with the segments of streams.

    Args:
        client: the table.
        whole: also read their rows.
    """
    store = client.store
    if not store.list_directories(STREAMS):
        return []
    return [
        finding
        for stream in list_streams(store)
        for finding in _of_stream(store, stream, client.clock.now().timestamp(), whole=whole)
    ]


def _of_stream(store: ObjectStore, stream: str, now: float, *, whole: bool) -> Iterator[Finding]:
    headers, headless = list_positions(store, stream)
    for position in headers:
        problem = _problem(store, stream, position, whole=whole)
        if problem is not None:
            names = (header_name(stream, position), data_name(stream, position))
            loses = f"the rows of segment {position.epoch}-{position.sequence} of stream {stream}, which were flushed"
            steps = tuple(SetAside(name, "", loses) for name in names)
            yield Finding(Kind.CORRUPT_SEGMENT, names[0], problem, _CONSEQUENCE, "give the segment up", steps)
    yield from _of_owners(store, stream, now)
    if not headless:
        return
    try:
        claims = list_claims(store, stream)
    except CorruptFile:
        return  # it is among the owners' files
    if claims and is_owned(store, stream, claims[-1], now):
        return  # its owner may be about to write the header
    for position in headless:
        name = data_name(stream, position)
        why = "a flush ended before its header was written, and its writer is dead"
        yield Finding(
            Kind.ORPHAN_FILE, name, why, "it takes room; no reader sees it", "delete it", (DeleteFiles((name,)),)
        )


def _of_owners(store: ObjectStore, stream: str, now: float) -> Iterator[Finding]:
    """Yield what is wrong with the claims on a stream, and with what their owners have noted."""
    for epoch in list_epochs(store, stream):
        name, note = claim_name(stream, epoch), note_name(stream, epoch)
        try:
            data = store.read(name, MAX_HEADER_BYTES)
        except ObjectNotFound:
            continue
        if is_blank(data):
            claim = Claim(epoch, "", "", 0)
            if not is_owned(store, stream, claim, now):
                why = "the owner that made it has written nothing to it, and is gone"
                steps = (DeleteFiles((name,)),)
                yield Finding(Kind.ORPHAN_FILE, name, why, "it takes room; the next owner goes on", "delete it", steps)
            continue
        try:
            claim = decode_claim(data, None, name)
        except CorruptFile as error:
            loses = "nothing but who owned the stream"
            yield Finding(
                Kind.CORRUPT_SEGMENT, name, str(error), _CONSEQUENCE, "set it aside", (SetAside(name, "", loses),)
            )
            continue
        try:
            decode_note(store.read(note, MAX_HEADER_BYTES), claim, note)
        except ObjectNotFound:
            continue
        except CorruptFile as error:
            loses = "which segments of earlier owners count: what one of them wrote too late would be committed"
            yield Finding(
                Kind.CORRUPT_SEGMENT, note, str(error), _CONSEQUENCE, "set it aside", (SetAside(note, "", loses),)
            )


def _problem(store: ObjectStore, stream: str, position: SegmentPosition, *, whole: bool) -> str | None:
    """Return what is wrong with a segment; None: nothing, or it was deleted meanwhile."""
    name = header_name(stream, position)
    try:
        header = decode_header(store.read(name, MAX_HEADER_BYTES), name)
    except ObjectNotFound:
        return None
    except CorruptFile as error:
        return str(error)
    if (header.stream, header.position) != (stream, position):
        return "it is the header of another segment"
    return _problem_of_rows(store, header, whole=whole)


def _problem_of_rows(store: ObjectStore, header: SegmentHeader, *, whole: bool) -> str | None:
    info = store.info(data_name(header.stream, header.position))
    if info is None:
        was_deleted = store.info(header_name(header.stream, header.position)) is None
        return None if was_deleted else "its rows are gone"
    if info.size != header.bytes:
        return f"its rows have {info.size} bytes, not {header.bytes}"
    if whole:
        try:
            read_segments(store, [header])
        except CorruptFile as error:
            return str(error)
        except ObjectNotFound:
            return None
    return None
