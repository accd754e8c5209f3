"""The stream of events of a server's log."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import zlib
from collections.abc import Iterator
from typing import Final

from lakefmt._core.cdc.mysql.connection import Account, Session, translated
from lakefmt._core.cdc.mysql.log_events import HEADER_BYTES, EventHeader, EventType, read_header
from lakefmt._core.cdc.mysql.positions import Gtids, lost_position, parse_gtids, text_of
from lakefmt.errors import PositionLost, SourceRefused, SourceUnavailable

__all__ = ["LogStream"]

_DUMP: Final = 0x12
#: The server says that it is there whenever it has nothing to send for so long.
HEARTBEAT_SECONDS: Final = 1.0
#: A server that does not is gone.
_SECONDS_OF_SILENCE: Final = 30.0
_LARGEST: Final = 0xFFFFFF
_READ_BYTES: Final = 1 << 18
#: The server cannot send the log from there.
_NO_POSITION: Final = 1236
_SAME_READER: Final = frozenset((4052, 1872))
#: Of several things that the server cannot, which is a position that it does not have.
_LOST: Final = ("too old", "purged", "not in the master's binlog", "first log file", "diverged")
_NO_RIGHT: Final = frozenset((1044, 1045, 1142, 1227))


class LogStream:
    """The events behind a position, one after another; the server waits for more."""

    def __init__(self, account: Account, gtids: Gtids, server_id: int) -> None:
        self._account = account
        self._gtids = gtids
        self._session = Session(account)
        self._buffer = bytearray()
        self._at = 0
        self._is_closed = False
        self._has_checksums = False
        self._begin(server_id)

    def _begin(self, server_id: int) -> None:
        rows = self._session.rows
        self._has_checksums = self._session.value("@@global.binlog_checksum") != "NONE"
        rows("set @master_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4")
        rows(f"set @master_heartbeat_period = {int(HEARTBEAT_SECONDS * 1e9)}")
        rows("set @slave_connect_state = %s", [text_of(self._gtids)])
        rows("set @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0")
        connection = self._session.raw
        with translated(self._account):
            connection._execute_command(_DUMP, struct.pack("<IHI", 4, 0, server_id))
        # From here on the connection is this stream's: the client would reply to what it does not know.
        self._socket: socket.socket = connection._sock
        self._socket.settimeout(_SECONDS_OF_SILENCE)

    def has_more(self) -> bool:
        """Return whether bytes are here that were not read."""
        if len(self._buffer) > self._at:
            return True
        pending = getattr(self._socket, "pending", None)
        if pending is not None and pending():
            return True
        try:
            return bool(select.select([self._socket], [], [], 0)[0])
        except (OSError, ValueError):
            return False

    def events(self) -> Iterator[tuple[EventHeader, bytes]]:
        """Return the events: the header, and the bytes behind it without the checksum.

        Raises:
            SourceUnavailable: the connection is lost.
            PositionLost: the server does not have what comes behind the position.
            SourceRefused: an event is damaged, or the server refuses.
        """
        while True:
            packet = self._packet()
            if packet is None:
                return
            if packet[0] == 0xFF:
                self._raise(packet)
            if packet[0] == 0xFE and len(packet) < 9:
                raise SourceUnavailable(f"MariaDB at {self._account.host}:{self._account.port} ended the log")
            header = read_header(packet[1 : 1 + HEADER_BYTES])
            yield header, self._body(header, packet)

    def _body(self, header: EventHeader, packet: bytes) -> bytes:
        if header.type == EventType.FORMAT:
            self._has_checksums = packet[-5] == 1
            return packet[1 + HEADER_BYTES : -5]
        if not self._has_checksums:
            return packet[1 + HEADER_BYTES :]
        if zlib.crc32(memoryview(packet)[1:-4]) != int.from_bytes(packet[-4:], "little"):
            if header.type == EventType.ROTATE:  # one that the server makes up, before it says what the file has
                return packet[1 + HEADER_BYTES :]
            raise SourceRefused("the log has an event whose checksum is wrong")
        return packet[1 + HEADER_BYTES : -4]

    def _packet(self) -> bytes | None:
        # What is longer than a packet of the protocol comes in several.
        parts = []
        while True:
            header = self._take(4)
            if header is None:
                return None
            size = int.from_bytes(header[:3], "little")
            part = self._take(size)
            if part is None:
                return None
            parts.append(part)
            if size < _LARGEST:
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, size: int) -> bytes | None:
        while len(self._buffer) - self._at < size:
            if self._at:
                del self._buffer[: self._at]
                self._at = 0
            try:
                more = self._socket.recv(max(_READ_BYTES, size - len(self._buffer)))
            except (OSError, ValueError) as error:
                if self._is_closed:
                    return None
                raise self._lost(str(error) or type(error).__name__) from None
            if not more:
                if self._is_closed:
                    return None
                raise self._lost("it closed the connection")
            self._buffer += more
        found = bytes(memoryview(self._buffer)[self._at : self._at + size])
        self._at += size
        return found

    def _lost(self, reason: str) -> SourceUnavailable:
        return SourceUnavailable(f"the log of MariaDB at {self._account.host}:{self._account.port} is lost: {reason}")

    def _raise(self, packet: bytes) -> None:
        code = int.from_bytes(packet[1:3], "little")
        message = packet[9:].decode("utf-8", "replace")
        if code in _SAME_READER:
            raise SourceRefused(f"another reader of the log has the same server_id: give each its own ({message})")
        if code == _NO_POSITION and any(words in message for words in _LOST):
            raise self._position_lost(message)
        said = f"MariaDB at {self._account.host}:{self._account.port} ended the log: {message} ({code})"
        raise SourceRefused(said) if code == _NO_POSITION or code in _NO_RIGHT else SourceUnavailable(said)

    def _position_lost(self, message: str) -> PositionLost:
        # The server has one code, and texts that do not tell the cases apart; what it has does.
        with contextlib.closing(Session(self._account)) as session:
            newest = parse_gtids(session.value("@@gtid_binlog_pos"))
            oldest = session.rows("show binary logs")[0][0]
        position = text_of(self._gtids)
        return lost_position(newest, self._gtids) or PositionLost(
            f"position {position} is too old: the server has purged the files of its log before {oldest} ({message})"
        )

    def close(self) -> None:
        """End the stream; another thread may call this."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(Exception):
            self._session.raw._force_close()
