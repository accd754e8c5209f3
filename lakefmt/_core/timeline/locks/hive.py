"""Hudi's ``HiveMetastoreBasedLockProvider``: an exclusive lock on a table's name in a Hive metastore (docs/format.md, Locks).

The metastore keeps a queue: a request is answered with *acquired* or *waiting*, and its sender waits by asking again under the same number.
It takes back what was not heard of for its own time (``hive.txn.timeout``, five minutes).

Only the four calls that locks need are spoken, over Thrift's binary protocol, without Kerberos.
"""

from __future__ import annotations

import getpass
import importlib
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from lakefmt._core.timeline.locks.api import LockHandle, LockOptions
from lakefmt._core.timeline.locks.clients import ask_service, import_extra, without_password
from lakefmt.errors import InvalidInputError, LakefmtError, StorageError

__all__ = ["HiveLockBackend", "HiveSession", "ThriftHiveSession", "open_hive_backend"]

ACQUIRED: Final = 1
WAITING: Final = 2
_BOOL, _I32, _I64, _STRING, _STRUCT, _LIST, _STOP = 2, 8, 10, 11, 12, 15, 0
_CALL, _EXCEPTION = 1, 3
_EXCLUSIVE, _TABLE_LEVEL, _NO_TXN = 3, 2, 6
_MAX_TEXT_BYTES = 1 << 20
_MAX_ITEMS = 1 << 12
_MAX_DEPTH = 8
_PORT = 9083

#: A field of a Thrift struct on its way: number, type, value (of a struct: its fields; of a list: its structs).
Field = tuple[int, int, Any]


class HiveSession(Protocol):
    """A connection; everything may raise StorageError."""

    def lock(self) -> tuple[int, int]:
        """Ask for the lock; return its number and state."""
        ...

    def check(self, number: int) -> int | None:
        """Return the state of a lock, which counts as a sign of life; None when the metastore has taken it back."""
        ...

    def heartbeat(self, number: int) -> bool:
        """Give a sign of life; False when the metastore has taken the lock back."""
        ...

    def unlock(self, number: int) -> None:
        """Let go of a lock that is held or waited for; one that is gone is fine."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class HiveLockBackend:
    """One table's name in a metastore."""

    longest_pause = 0.25

    def __init__(self, what: str, connect: Callable[[], HiveSession], beat_seconds: float) -> None:
        self._what = what
        self._connect = connect
        self._beat = beat_seconds
        self._session: HiveSession | None = None
        self._waiting: int | None = None

    @property
    def what(self) -> str:
        """Metastore and name."""
        return self._what

    @property
    def hint(self) -> str:
        """A dead holder's lock is taken back by the metastore."""
        return "a dead holder's lock is taken back by the metastore (hive.txn.timeout)"

    def acquire(self) -> LockHandle | None:
        """Ask once for a place in the queue, then for its state; None while another holder is before us."""
        if self._session is None:
            self._session = self._connect()
        if self._waiting is None:
            self._waiting, state = self._session.lock()
        else:
            lock_state = self._session.check(self._waiting)
            state = WAITING if lock_state is None else lock_state
        if state == ACQUIRED:
            return HiveLockHandle(self._session, self._waiting, self._beat)
        if state != WAITING:
            self._session.unlock(self._waiting)
            self._waiting = None
        return None

    def close(self) -> None:
        """Leave the queue and end the connection."""
        session, waiting = self._session, self._waiting
        self._session = self._waiting = None
        if session is None:
            return
        try:
            if waiting is not None:
                session.unlock(waiting)
        except StorageError:
            pass  # the metastore takes it back when it hears no more of it
        finally:
            session.close()


class HiveLockHandle:
    """Our lock, by its number."""

    valid_seconds: float | None = None

    def __init__(self, session: HiveSession, number: int, beat_seconds: float) -> None:
        self._session = session
        self._number = number
        self.beat_seconds: float | None = beat_seconds
        self.token = str(number)

    def renew(self) -> bool:
        """Give a sign of life."""
        return self._session.heartbeat(self._number)

    def prove(self) -> bool:
        """Ask the metastore for its state."""
        return self._session.check(self._number) == ACQUIRED

    def release(self) -> None:
        """Let go; the number is ours alone."""
        self._session.unlock(self._number)


# ------------------------------------------------------------------------------------------------------------ the wire


class ThriftHiveSession:
    """The four calls over one socket."""

    def __init__(self, addresses: Sequence[tuple[str, int]], database: str, table: str, seconds: float) -> None:
        sockets = import_extra(
            lambda: importlib.import_module("thrift.transport.TSocket"), "HiveMetastoreBasedLockProvider", "hive"
        )
        transports = import_extra(
            lambda: importlib.import_module("thrift.transport.TTransport"), "HiveMetastoreBasedLockProvider", "hive"
        )
        protocols = import_extra(
            lambda: importlib.import_module("thrift.protocol.TBinaryProtocol"), "HiveMetastoreBasedLockProvider", "hive"
        )
        self._database = database
        self._table = table
        self._what = f"the Hive metastore at {addresses[0][0]}:{addresses[0][1]}"
        self._calls = 0
        failure: LakefmtError | None = None
        for host, port in addresses:
            wire = sockets.TSocket(host, port)
            wire.setTimeout(int(seconds * 1000))
            self._transport = transports.TBufferedTransport(wire)
            self._protocol: Any = protocols.TBinaryProtocol(
                self._transport, string_length_limit=_MAX_TEXT_BYTES, container_length_limit=_MAX_ITEMS
            )
            try:
                ask_service(self._what, "connect to", self._transport.open)
            except StorageError as error:
                failure = error
            else:
                return
        raise failure or StorageError(f"{self._what} has no address")

    def lock(self) -> tuple[int, int]:
        """Ask for an exclusive lock on the table's name."""
        component: list[Field] = [
            (1, _I32, _EXCLUSIVE),
            (2, _I32, _TABLE_LEVEL),
            (3, _STRING, self._database),
            (4, _STRING, self._table),
            (6, _I32, _NO_TXN),
            (7, _BOOL, False),
        ]
        request: list[Field] = [
            (1, _LIST, [component]),
            (3, _STRING, getpass.getuser()),
            (4, _STRING, socket.gethostname()),
            (5, _STRING, "lakefmt"),
        ]
        answer = self._call("lock", request)
        fields = answer.get(0)
        if not isinstance(fields, dict) or not isinstance(fields.get(1), int):
            raise StorageError(f"{self._what} refused to lock {self._database}.{self._table}", transient=True)
        return int(fields[1]), int(fields.get(2, 0))

    def check(self, number: int) -> int | None:
        """Return the state of a lock, None when the metastore has taken it back."""
        fields = self._call("check_lock", [(1, _I64, number)]).get(0)
        return int(fields.get(2, 0)) if isinstance(fields, dict) else None

    def heartbeat(self, number: int) -> bool:
        """Give a sign of life; any exception it answers with says that the lock is gone."""
        return not self._call("heartbeat", [(1, _I64, number)])

    def unlock(self, number: int) -> None:
        """Let go of a lock."""
        self._call("unlock", [(1, _I64, number)])

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def _call(self, method: str, request: list[Field]) -> dict[int, Any]:
        """Return the fields of the answer: 0 is the result, others are exceptions that the call declares."""

        def exchange() -> tuple[int, dict[int, Any]]:
            protocol = self._protocol
            self._calls += 1
            protocol.writeMessageBegin(method, _CALL, self._calls)
            _write_struct(protocol, [(1, _STRUCT, request)])
            protocol.writeMessageEnd()
            self._transport.flush()
            _, kind, number = protocol.readMessageBegin()
            answer = _read_struct(protocol, 0)
            protocol.readMessageEnd()
            if number != self._calls:
                raise ConnectionError("an answer to another call came")
            return kind, answer

        kind, answer = ask_service(self._what, f"ask for {method} of", exchange)
        if kind == _EXCEPTION:
            raise StorageError(f"{self._what} failed in {method}: {str(answer.get(1))[:200]}", transient=True)
        return answer


def _write_struct(protocol: Any, fields: Sequence[Field]) -> None:
    for number, kind, value in fields:
        protocol.writeFieldBegin("", kind, number)
        if kind == _STRUCT:
            _write_struct(protocol, value)
        elif kind == _LIST:
            protocol.writeListBegin(_STRUCT, len(value))
            for item in value:
                _write_struct(protocol, item)
        else:
            _writers(protocol)[kind](value)
    protocol.writeFieldStop()


def _writers(protocol: Any) -> Mapping[int, Callable[[Any], None]]:
    return {_BOOL: protocol.writeBool, _I32: protocol.writeI32, _I64: protocol.writeI64, _STRING: protocol.writeString}


def _read_struct(protocol: Any, depth: int) -> dict[int, Any]:
    if depth > _MAX_DEPTH:
        raise ValueError("the answer is nested too deeply")
    fields: dict[int, Any] = {}
    readers = {_BOOL: protocol.readBool, _I32: protocol.readI32, _I64: protocol.readI64, _STRING: protocol.readString}
    while True:
        _, kind, number = protocol.readFieldBegin()
        if kind == _STOP:
            return fields
        if kind == _STRUCT:
            fields[number] = _read_struct(protocol, depth + 1)
        elif kind in readers:
            fields[number] = readers[kind]()
        else:
            protocol.skip(kind)


def open_hive_backend(options: LockOptions) -> HiveLockBackend:
    """Return the keeper that ``hoodie.write.lock.hivemetastore.*`` describes.

    Raises:
        UnsupportedFeature: a setting or the package thrift is missing.
        InvalidInputError: an address cannot be understood, or carries a password.
    """
    database, table = options.required("hivemetastore.database"), options.required("hivemetastore.table")
    addresses = [_address(uri.strip()) for uri in options.required("hivemetastore.uris").split(",")]
    beat = options.number("heartbeat_interval_ms", 60_000) / 1000
    import_extra(lambda: importlib.import_module("thrift.transport.TSocket"), options.short_name, "hive")
    what = f"the lock of {database}.{table} in the Hive metastore at {addresses[0][0]}:{addresses[0][1]}"
    seconds = options.number("zookeeper.connection_timeout_ms", 15_000) / 1000
    return HiveLockBackend(what, lambda: ThriftHiveSession(addresses, database, table, seconds), beat)


def _address(uri: str) -> tuple[str, int]:
    key = "hoodie.write.lock.hivemetastore.uris"
    parts = urlsplit(without_password(key, uri))
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "thrift" or not host:
        raise InvalidInputError(f"{key} is thrift://host:port, or several with commas between them")
    return host, port or _PORT
