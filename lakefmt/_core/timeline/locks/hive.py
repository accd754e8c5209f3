"""Hudi's ``HiveMetastoreBasedLockProvider``: an exclusive lock on a table's name in a Hive metastore (docs/format.md, Locks).

The metastore keeps a queue: a request is answered with *acquired* or *waiting*, and its sender waits by asking again under the same number.
It takes back what was not heard of for its own time (``hive.txn.timeout``, five minutes).

Only the four calls that locks need are spoken, without Kerberos.
"""

from __future__ import annotations

import getpass
import importlib
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from lakefmt._core.storage.remote.clients import import_extra
from lakefmt._core.timeline.locks.api import LockHandle, LockOptions
from lakefmt._core.timeline.locks.thrift_wire import (
    Struct,
    ThriftConnection,
    flag,
    int32,
    int64,
    metastore_addresses,
    struct,
    structs,
    text,
)
from lakefmt.errors import StorageError

__all__ = ["HiveLockBackend", "HiveSession", "ThriftHiveSession", "open_hive_backend"]

_PROVIDER: Final = "HiveMetastoreBasedLockProvider"
ACQUIRED: Final = 1
WAITING: Final = 2
_EXCLUSIVE, _TABLE_LEVEL, _NO_TXN = 3, 2, 6


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
        self._connection = ThriftConnection(addresses, seconds, _PROVIDER)
        self._database = database
        self._table = table

    def lock(self) -> tuple[int, int]:
        """Ask for an exclusive lock on the table's name."""
        component: Struct = {
            1: int32(_EXCLUSIVE),
            2: int32(_TABLE_LEVEL),
            3: text(self._database),
            4: text(self._table),
            6: int32(_NO_TXN),
            7: flag(False),
        }
        request: Struct = {
            1: structs([component]),
            3: text(getpass.getuser()),
            4: text(socket.gethostname()),
            5: text("lakefmt"),
        }
        granted = self._result(self._connection.call("lock", {1: struct(request)}))
        if granted is None or 1 not in granted:
            what = f"{self._connection.what} refused to lock {self._database}.{self._table}"
            raise StorageError(what, transient=True)
        return int(granted[1][1]), _state_in(granted)

    def check(self, number: int) -> int | None:
        """Return the state of a lock, None when the metastore has taken it back."""
        state = self._result(self._connection.call("check_lock", _of_lock(number)))
        return None if state is None else _state_in(state)

    def heartbeat(self, number: int) -> bool:
        """Give a sign of life; any exception it answers with says that the lock is gone."""
        return not self._connection.call("heartbeat", _of_lock(number))

    def unlock(self, number: int) -> None:
        """Let go of a lock."""
        self._connection.call("unlock", _of_lock(number))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    @staticmethod
    def _result(answer: Struct) -> Struct | None:
        result = answer.get(0, (0, None))[1]
        return result if isinstance(result, dict) else None


def _of_lock(number: int) -> Struct:
    return {1: struct({1: int64(number)})}


def _state_in(granted: Struct) -> int:
    return int(granted[2][1]) if 2 in granted else 0


def open_hive_backend(options: LockOptions) -> HiveLockBackend:
    """Return the keeper that ``hoodie.write.lock.hivemetastore.*`` describes.

    Raises:
        UnsupportedFeature: a setting or the package thrift is missing.
        InvalidInputError: an address cannot be understood, or carries a password.
    """
    database, table = options.required("hivemetastore.database"), options.required("hivemetastore.table")
    addresses = metastore_addresses(options.required("hivemetastore.uris"), "hoodie.write.lock.hivemetastore.uris")
    beat = options.number("heartbeat_interval_ms", 60_000) / 1000
    import_extra(lambda: importlib.import_module("thrift.transport.TSocket"), options.short_name, "hive")
    what = f"the lock of {database}.{table} in the Hive metastore at {addresses[0][0]}:{addresses[0][1]}"
    seconds = options.number("zookeeper.connection_timeout_ms", 15_000) / 1000
    return HiveLockBackend(what, lambda: ThriftHiveSession(addresses, database, table, seconds), beat)
