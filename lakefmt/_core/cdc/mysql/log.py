"""Connections to a MariaDB server, and its log: events as bytes, their stream, and positions in it.

What the server documents, as far as a reader of rows needs it. Whatever is not known here is a reason to stop, not to skip.
"""

from __future__ import annotations

import contextlib
import importlib
import selectors
import socket
import ssl
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lakefmt._core.arguments import library, shown
from lakefmt._core.cdc.mysql.statements import SourceColumn
from lakefmt.errors import InvalidInputError, PositionLost, SourceRefused, SourceUnavailable

__all__ = [
    "Account",
    "EventHeader",
    "EventType",
    "GtidEvent",
    "Gtids",
    "LogStatement",
    "LogStream",
    "RowsEvent",
    "Session",
    "TablePosition",
    "covers",
    "is_covered",
    "lost_position",
    "lowest",
    "parse_gtids",
    "read_gtid",
    "read_header",
    "read_length",
    "read_query",
    "read_rotate",
    "read_rows",
    "read_xa_prepare",
    "text_of",
    "translated",
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
    """The event header: timestamp, type, server id, length, position of the next event, flags."""

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
    """A statement, the database it was given in, and whether values that do not fit were errors to its session."""

    database: str
    text: str
    is_strict: bool = False


class RowsEvent(NamedTuple):
    """Rows of one table: the operation, and their bytes from `begin` on."""

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


#: STRICT_TRANS_TABLES and STRICT_ALL_TABLES, as the log has them.
_STRICT_MODES: Final = (1 << 21) | (1 << 22)


def read_query(body: bytes, *, compressed: bool = False) -> LogStatement:
    """Return a statement of the log."""
    database_length, variables = body[8], int.from_bytes(body[11:13], "little")
    at = 13 + variables
    database = body[at : at + database_length].decode("utf-8", "replace")
    statement = body[at + database_length + 1 :]
    plain = (decompress(statement) if compressed else statement).decode("utf-8", "replace")
    return LogStatement(database, plain, is_strict=bool(_session_mode(body[13:at]) & _STRICT_MODES))


def _session_mode(variables: bytes) -> int:
    """Return the `sql_mode` of a statement's session, which only its flags precede; 0: it is not said."""
    at = 5 if variables[:1] == b"\0" else 0
    return int.from_bytes(variables[at + 1 : at + 9], "little") if variables[at : at + 1] == b"\1" else 0


def read_xa_prepare(body: bytes) -> bool:
    """Return whether the transaction was committed in one phase: there was nothing to prepare."""
    return bool(body[0])


def read_rows(type: int, body: bytes) -> RowsEvent:
    """Return an event of rows; `is_complete`: it has all columns of each image.

    Raises:
        SourceRefused: it is damaged.
    """
    operation, is_long, is_compressed = ROWS[type]
    table = int.from_bytes(body[:6], "little")
    at = 8 + (int.from_bytes(body[8:10], "little") if is_long else 0)
    columns, at = read_length(body, at)
    width = (columns + 7) // 8
    full = (1 << columns) - 1
    images = 2 if operation == "update" else 1
    present = [int.from_bytes(body[at + i * width : at + (i + 1) * width], "little") for i in range(images)]
    at += images * width
    if is_compressed:
        body, at = decompress(body[at:]), 0
    return RowsEvent(operation, table, columns, all(bits & full == full for bits in present), body, at)


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
    """The events after a position, one after another; the server waits for more."""

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
            with selectors.DefaultSelector() as selector:  # `select` takes no file above number 1,023
                selector.register(self._socket, selectors.EVENT_READ)
                return bool(selector.select(0))
        except (OSError, ValueError):
            return False

    def events(self) -> Iterator[tuple[EventHeader, bytes]]:
        """Return the events: the header, and the bytes after it without the checksum.

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
        data = bytes(memoryview(self._buffer)[self._at : self._at + size])
        self._at += size
        return data

    def _lost(self, reason: str) -> SourceUnavailable:
        return SourceUnavailable(f"the log of MariaDB at {self._account.host}:{self._account.port} is lost: {reason}")

    def _raise(self, packet: bytes) -> None:
        code = int.from_bytes(packet[1:3], "little")
        message = packet[9:].decode("utf-8", "replace")
        if code in _SAME_READER:
            raise SourceRefused(f"another reader of the log has the same server_id: give each its own ({message})")
        if code == _NO_POSITION and any(words in message for words in _LOST):
            raise self._position_lost(message)
        description = f"MariaDB at {self._account.host}:{self._account.port} ended the log: {message} ({code})"
        raise (
            SourceRefused(description) if code == _NO_POSITION or code in _NO_RIGHT else SourceUnavailable(description)
        )

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


_VERSION: Final = 1


class Gtid(NamedTuple):
    """The newest transaction of a domain: which server wrote it, and its number."""

    server: int
    number: int


#: The newest transaction of each domain.
Gtids = Mapping[int, Gtid]


def parse_gtids(gtid_list: str) -> dict[int, Gtid]:
    """Return the transactions that a text of the server names.

    Raises:
        InvalidInputError: it is no such text.

    Example:
        >>> parse_gtids("0-1-5,7-1-12")[7].number
        12
    """
    gtids = {}
    try:
        for part in filter(None, (part.strip() for part in gtid_list.split(","))):
            domain, server, number = map(int, part.split("-"))
            gtids[domain] = Gtid(server, number)
    except ValueError:
        raise InvalidInputError(f"{shown(gtid_list)} is no list of transactions such as 0-1-5") from None
    return gtids


def text_of(gtids: Gtids) -> str:
    """Return the text that :func:`parse_gtids` reads."""
    return ",".join(f"{domain}-{gtid.server}-{gtid.number}" for domain, gtid in sorted(gtids.items()))


def covers(gtids: Gtids, others: Gtids) -> bool:
    """Return whether everything in `others` came before `gtids`, or with it."""
    return all(is_covered(gtids, domain, gtid.number) for domain, gtid in others.items())


def is_covered(gtids: Gtids, domain: int, number: int) -> bool:
    """Return whether a transaction came before `gtids`, or with it."""
    newest = gtids.get(domain)
    return newest is not None and newest.number >= number


def lowest(all_gtids: Iterable[Gtids]) -> dict[int, Gtid]:
    """Return the oldest of all in each domain; a domain that one of them lacks has to be read from its begin."""
    first, *remaining = all_gtids
    minimum = dict(first)
    for gtids in remaining:
        minimum = {
            domain: min(gtid, gtids[domain], key=lambda each: each.number)
            for domain, gtid in minimum.items()
            if domain in gtids
        }
    return minimum


def lost_position(newest: Gtids, gtids: Gtids) -> PositionLost | None:
    """Return an error if a server whose newest transactions are `newest` cannot have a position; None if it may have it.

    A server sends its whole log to a reader whose position has none of its domains.
    """
    unknown = sorted(set(gtids) - set(newest))
    if unknown:
        domains = ", ".join(map(str, unknown))
        return PositionLost(
            f"position {text_of(gtids)} is of another server: this one has no transactions of the domain {domains}"
        )
    if not covers(newest, gtids):
        return PositionLost(
            f"position {text_of(gtids)} is ahead of the server, which has come to {text_of(newest)}: it was restored from a "
            "backup, or is a replica that lags"
        )
    return None


class TablePosition(NamedTuple):
    """A table up to a transaction.

    Attributes:
        gtids: the newest transactions that the table has.
        read_from: where the log must be read from: before `gtids` if a prepared transaction was open.
        server: which server it was read from, as it names itself.
        epoch: sorts before positions in the files of another server; seconds since 1970.
        is_read: all rows were read from the table.
        last_key: else the key of the last row that was read; None: none was.
        columns: of the table at `gtids`; empty: not known.
        keys: of its primary key.
        reads_again: the table has rows already, and all are read once more.
        renamed: columns that have other names by now, which no row has shown yet.
        dropped: columns that are no more, which no row has shown yet.
    """

    gtids: Gtids
    read_from: Gtids
    server: str
    epoch: int
    is_read: bool
    last_key: tuple[object, ...] | None
    columns: tuple[SourceColumn, ...]
    keys: tuple[str, ...]
    reads_again: bool = False
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the value that a commit stores."""
        value: dict[str, Any] = {
            "source": "mariadb",
            "version": _VERSION,
            "server": self.server,
            "epoch": self.epoch,
            "gtid": text_of(self.gtids),
            "schema": {"columns": [column.to_json() for column in self.columns], "keys": list(self.keys)},
        }
        if dict(self.read_from) != dict(self.gtids):
            value["read_from"] = text_of(self.read_from)
        if not self.is_read:
            value["snapshot"] = {"last_key": None if self.last_key is None else list(self.last_key)}
            if self.reads_again:
                value["snapshot"]["again"] = True
        if self.renamed or self.dropped:
            value["names"] = {"renamed": [list(pair) for pair in self.renamed], "dropped": list(self.dropped)}
        return value

    @classmethod
    def of_json(cls, value: Any) -> TablePosition:
        """Return the position that a commit stored.

        Raises:
            InvalidInputError: it is none.
        """
        try:
            if value["source"] != "mariadb" or value["version"] != _VERSION:
                raise InvalidInputError(f"the stored position is not one of a MariaDB server: {shown(value)}")
            gtids = parse_gtids(value["gtid"])
            snapshot = value.get("snapshot")
            last = None if snapshot is None else snapshot["last_key"]
            names = value.get("names", {"renamed": [], "dropped": []})
            return cls(
                gtids,
                parse_gtids(value["read_from"]) if "read_from" in value else gtids,
                str(value["server"]),
                int(value["epoch"]),
                snapshot is None,
                None if last is None else tuple(last),
                tuple(SourceColumn.of_json(column) for column in value["schema"]["columns"]),
                tuple(map(str, value["schema"]["keys"])),
                snapshot is not None and snapshot.get("again") is True,
                tuple((str(old), str(new)) for old, new in names["renamed"]),
                tuple(map(str, names["dropped"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInputError(f"the stored position cannot be read: {shown(value)}") from None


_SECONDS_TO_CONNECT: Final = 15
#: Seconds without a response after which the connection of a statement is considered lost.
_SECONDS_TO_ANSWER: Final = 600
#: Too many connections, server shuts down, connection killed, and all codes of the client from 2000 on.
_NO_TLS: Final = 2026
_PASSING: Final = frozenset((1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1317, 1927))
#: The session of a reader: times in UTC, no limit of a statement's time, text as it is stored.
_SESSION: Final = (
    "set time_zone = '+00:00', sql_mode = '', max_statement_time = 0, net_write_timeout = 600",
    "set session transaction isolation level repeatable read",
)


class Account(NamedTuple):
    """Where a server is, and who asks it."""

    host: str
    port: int
    user: str
    password: str
    tls: bool | str

    def __repr__(self) -> str:
        return f"Account({self.host!r}, {self.port}, {self.user!r})"


@contextlib.contextmanager
def translated(account: Account) -> Iterator[None]:
    """Turn errors of the client into those of a source.

    Raises:
        SourceUnavailable: the connection is lost, or there is none.
        SourceRefused: the server refuses what it was asked.
    """
    errors = library(lambda: importlib.import_module("pymysql.err"), "pymysql", "mysql")
    try:
        yield
    except (errors.OperationalError, errors.InterfaceError, OSError) as error:
        code, message = _parts(error)
        where = f"MariaDB at {account.host}:{account.port}"
        if code == _NO_TLS or isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            raise SourceRefused(f"{where} is not trusted: {message} ({code})") from None
        if isinstance(error, errors.OperationalError) and code not in _PASSING and not 2000 <= code < 3000:
            raise SourceRefused(f"{where} refuses: {message} ({code})") from None
        raise SourceUnavailable(f"{where} cannot be reached: {message} ({code})") from None
    except errors.MySQLError as error:
        code, message = _parts(error)
        raise SourceRefused(f"MariaDB at {account.host}:{account.port} refuses: {message} ({code})") from error


def _parts(error: BaseException) -> tuple[int, str]:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    return code, str(error.args[-1]) if error.args else type(error).__name__


class Session:
    """A connection for statements; values come as text, or as bytes where their type is one of bytes."""

    def __init__(self, account: Account) -> None:
        self.account = account
        pymysql = library(lambda: importlib.import_module("pymysql"), "pymysql", "mysql")
        # Text of the server stays text: what it means is decided by column, in Arrow.
        plain = {key: value for key, value in pymysql.converters.conversions.items() if not isinstance(key, int)}
        with translated(account):
            self._connection = pymysql.connect(
                host=account.host,
                port=account.port,
                user=account.user,
                password=account.password,
                charset="utf8mb4",
                autocommit=True,
                conv=plain,
                connect_timeout=_SECONDS_TO_CONNECT,
                read_timeout=_SECONDS_TO_ANSWER,
                ssl=_context(account.tls),
                ssl_disabled=account.tls is False,
                program_name="lakefmt",
            )
        if account.tls is not False and not getattr(self._connection, "_secure", False):
            self.close()  # older clients go on without a word
            raise SourceRefused(f"the server at {account.host}:{account.port} has no TLS")
        version = str(self._connection.get_server_info())
        if "mariadb" not in version.lower():
            self.close()
            raise SourceRefused(
                f"the server at {account.host}:{account.port} is not MariaDB ({version}): the log of MySQL cannot be read"
            )
        for statement in _SESSION:
            self.rows(statement)

    @property
    def raw(self) -> Any:
        """The client's connection."""
        return self._connection

    def rows(self, statement: str, arguments: Sequence[object] = ()) -> Sequence[tuple[Any, ...]]:
        """Execute a statement and return all its rows.

        Raises:
            SourceUnavailable: the connection is lost.
            SourceRefused: the server refuses the statement.
        """
        with translated(self.account), self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(arguments) or None)
            return tuple(cursor.fetchall())

    def value(self, expression: str) -> str:
        """Return the value of an expression; "" for null."""
        ((value,),) = self.rows(f"select {expression}")
        return "" if value is None else str(value)

    def close(self) -> None:
        """Close the connection, also amid the rows of a statement; a second call does nothing."""
        result = getattr(self._connection, "_result", None)
        if result is not None and getattr(result, "unbuffered_active", False):
            result.unbuffered_active = False  # or it reads all that is left when it goes
            self._connection._force_close()
        with contextlib.suppress(Exception):
            self._connection.close()


def _context(tls: bool | str) -> ssl.SSLContext | None:
    # True: the certificates that this machine trusts; a text: the file of the authority's certificate.
    if tls is False:
        return None
    return ssl.create_default_context(cafile=tls if isinstance(tls, str) else None)
