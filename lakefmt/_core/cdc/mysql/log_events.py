"""The bytes of the events of a binary log (pure).

What the server documents, as far as a reader of rows needs it. Whatever is not known here is a reason to stop, not to skip.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from lakefmt.errors import SourceRefused

__all__ = [
    "EventHeader",
    "EventType",
    "GtidEvent",
    "LogStatement",
    "RowsEvent",
    "read_gtid",
    "read_header",
    "read_length",
    "read_query",
    "read_rotate",
    "read_rows",
    "read_xa_prepare",
]

HEADER_BYTES: Final = 19
#: The server's own limit of a packet; what a compressed event says of its size is not trusted beyond it.
_MOST_BYTES: Final = 1 << 30


class EventType:
    """Codes of events."""

    QUERY: Final = 2
    STOP: Final = 3
    ROTATE: Final = 4
    INTVAR: Final = 5
    RAND: Final = 13
    USER_VAR: Final = 14
    FORMAT: Final = 15
    XID: Final = 16
    TABLE_MAP: Final = 19
    INCIDENT: Final = 26
    HEARTBEAT: Final = 27
    XA_PREPARE: Final = 38
    ANNOTATE_ROWS: Final = 160
    CHECKPOINT: Final = 161
    GTID: Final = 162
    GTID_LIST: Final = 163
    START_ENCRYPTION: Final = 164
    QUERY_COMPRESSED: Final = 165


#: The code of an event of rows → (what it is, whether it has the longer header, whether it is compressed).
ROWS: Final = {
    23: ("insert", False, False),
    24: ("update", False, False),
    25: ("delete", False, False),
    30: ("insert", True, False),
    31: ("update", True, False),
    32: ("delete", True, False),
    166: ("insert", False, True),
    167: ("update", False, True),
    168: ("delete", False, True),
    169: ("insert", True, True),
    170: ("update", True, True),
    171: ("delete", True, True),
}
#: Events that say nothing about rows.
SILENT: Final = frozenset(
    (
        EventType.STOP,
        EventType.INTVAR,
        EventType.RAND,
        EventType.USER_VAR,
        EventType.ANNOTATE_ROWS,
        EventType.CHECKPOINT,
        EventType.GTID_LIST,
        EventType.START_ENCRYPTION,
    )
)


class EventHeader(NamedTuple):
    """What stands before each event: when, which type, which server, how long, where the next one begins, flags."""

    time: int
    type: int
    server: int
    size: int
    end: int
    flags: int


class GtidEvent(NamedTuple):
    """The begin of a transaction, or of a statement that stands alone."""

    domain: int
    number: int
    stands_alone: bool
    is_ddl: bool
    prepares: bool
    completes: bool
    xid: bytes


class LogStatement(NamedTuple):
    """A statement, and the database it was given in."""

    database: str
    text: str


class RowsEvent(NamedTuple):
    """Rows of one table: what happened to them, and their bytes from `begin` on."""

    kind: str
    table: int
    columns: int
    is_complete: bool
    body: bytes
    begin: int


_HEADER = struct.Struct("<IBIIIH")


def read_header(packet: bytes) -> EventHeader:
    """Return the header of an event."""
    return EventHeader(*_HEADER.unpack_from(packet, 0))


def read_length(body: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    first = body[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(body[at + 1 : at + 1 + width], "little"), at + 1 + width


def read_rotate(body: bytes) -> tuple[str, int]:
    """Return the name of the next file, and where its first event is."""
    return body[8:].decode(), int.from_bytes(body[:8], "little")


_ALONE, _GROUP, _DDL, _PREPARES, _COMPLETES = 1, 2, 32, 64, 128


def read_gtid(body: bytes) -> GtidEvent:
    """Return the begin of a transaction."""
    number, domain, flags = struct.unpack_from("<QIB", body, 0)
    at = 13 + 8 * bool(flags & _GROUP)
    xid = b""
    if flags & (_PREPARES | _COMPLETES):
        lengths = body[at + 4] + body[at + 5]
        xid = body[at : at + 6 + lengths]
    return GtidEvent(
        domain,
        number,
        bool(flags & _ALONE),
        bool(flags & _DDL),
        bool(flags & _PREPARES),
        bool(flags & _COMPLETES),
        xid,
    )


def read_query(body: bytes, *, compressed: bool = False) -> LogStatement:
    """Return a statement of the log."""
    database_length, variables = body[8], int.from_bytes(body[11:13], "little")
    at = 13 + variables
    database = body[at : at + database_length].decode("utf-8", "replace")
    text = body[at + database_length + 1 :]
    return LogStatement(database, (decompress(text) if compressed else text).decode("utf-8", "replace"))


def read_xa_prepare(body: bytes) -> bool:
    """Return whether the transaction was committed in one phase: there was nothing to prepare."""
    return bool(body[0])


def read_rows(type: int, body: bytes) -> RowsEvent:
    """Return an event of rows; `is_complete`: it has all columns of each image.

    Raises:
        SourceRefused: it is damaged.
    """
    kind, is_long, is_compressed = ROWS[type]
    table = int.from_bytes(body[:6], "little")
    at = 8 + (int.from_bytes(body[8:10], "little") if is_long else 0)
    columns, at = read_length(body, at)
    width = (columns + 7) // 8
    full = (1 << columns) - 1
    images = 2 if kind == "update" else 1
    present = [int.from_bytes(body[at + i * width : at + (i + 1) * width], "little") for i in range(images)]
    at += images * width
    if is_compressed:
        body, at = decompress(body[at:]), 0
    return RowsEvent(kind, table, columns, all(bits & full == full for bits in present), body, at)


def decompress(data: bytes) -> bytes:
    """Return what MariaDB compressed: a byte with the algorithm and the width of the length, the length, zlib's bytes.

    Raises:
        SourceRefused: it is damaged, or too large.
    """
    width = data[0] & 7
    size = int.from_bytes(data[1 : 1 + width], "big")
    if (data[0] >> 4) & 7 or size > _MOST_BYTES:
        raise SourceRefused("the log has an event whose compression cannot be read")
    engine = zlib.decompressobj()
    plain = engine.decompress(data[1 + width :], size + 1)
    if len(plain) != size:
        raise SourceRefused("the log has a compressed event that is damaged")
    return plain
