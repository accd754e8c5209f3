"""Locks that a service keeps: ZooKeeper, a Hive metastore, DynamoDB (docs/format.md, Locks).

ZooKeeper (``ZookeeperBasedLockProvider``): a queue of ephemeral nodes, as Curator's mutex makes it.

Each writer has one ephemeral node ``_c_<uuid>-lock-<number>`` below ``<base_path>/<lock_key>``; the lowest number holds
the lock. ZooKeeper assigns the numbers, so waiting is fair, and removes the node with its session, so no lock outlives
its holder. A writer that does not learn whether its node was created finds it by the uuid.

One connection is opened per lock and closed with it; its threads are kazoo's.

Why not kazoo's own ``Lock``? Its constructor takes patterns of other clients' nodes but not the name of its own, which
Curator must be able to sort. Without blocking it gives up its place in the queue after each attempt. Its ``is_acquired``
is a flag that is not checked against the server, while a commit must know that the node still belongs to the session.

Hive (``HiveMetastoreBasedLockProvider``): an exclusive lock on a table's name. The metastore keeps a queue: a request
is answered with *acquired* or *waiting*, and its sender waits by asking again under the same number. It takes back what
was not heard of for its own time (``hive.txn.timeout``, five minutes).

Only the four calls that locks need are spoken, without Kerberos.

DynamoDB (``DynamoDBBasedLockProvider``): one item with a lease, as Amazon's lock client keeps it. The item carries a
version that its holder changes with every beat. No clocks are compared: who sees one version for as long as the item's
lease says, by its own clock, may replace exactly that version.

Credentials come from where botocore finds them (environment, profile, role), never from settings. botocore alone is asked for:
boto3 wants another release of it than the client of S3 takes, and the two could not be installed together.
"""

from __future__ import annotations

import functools
import getpass
import importlib
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.remote_clients import ask_service, import_extra, without_password
from lakefmt._core.storage.time_source import TimeSource
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
from lakefmt.errors import CorruptFile, StorageError

__all__ = [
    "BotoLockTable",
    "DynamoDBLockBackend",
    "HiveLockBackend",
    "HiveSession",
    "KazooSession",
    "LockItem",
    "LockTable",
    "ThriftHiveSession",
    "ZooKeeperLockBackend",
    "ZooKeeperSession",
    "decode_lock_item",
    "open_dynamodb_backend",
    "open_hive_backend",
    "open_zookeeper_backend",
]

T = TypeVar("T")

_PORT = 2181
_MARK = "lock-"


class ZooKeeperSession(Protocol):
    """A connection with a session; everything may raise StorageError."""

    def create(self, path: str, prefix: str) -> str:
        """Make an ephemeral node with the next number below `path`, and what is missing above; return its name."""
        ...

    def children(self, path: str) -> list[str]:
        """Return the names below `path`."""
        ...

    def is_ours(self, path: str, name: str) -> bool:
        """Return whether the node is there now and belongs to this session."""
        ...

    def delete(self, path: str, name: str) -> None:
        """Remove a node; one that is gone is fine."""
        ...

    def close(self) -> None:
        """End the session, and its nodes with it."""
        ...


class ZooKeeperLockBackend:
    """One lock path; `connect` makes a session."""

    longest_pause = 0.1

    def __init__(self, path: str, connect: Callable[[], ZooKeeperSession]) -> None:
        self._path = path
        self._connect = connect
        self._session: ZooKeeperSession | None = None
        self._name: str | None = None
        self._prefix = ""

    @property
    def what(self) -> str:
        """The lock's node."""
        return f"ZooKeeper's lock {self._path}"

    @property
    def hint(self) -> str:
        """A dead holder's node goes with its session."""
        return "a dead holder's node goes with its session (hoodie.write.lock.zookeeper.session_timeout_ms)"

    def acquire(self) -> LockHandle | None:
        """Take a place in the queue, once, and see whether it is the first one."""
        if self._session is None:
            self._session = self._connect()
        names = self._queue(self._session)
        if self._name not in names:
            self._name = None  # lost with a session, or never had: behind everybody again
            return None
        if names[0] != self._name:
            return None
        return ZooKeeperLockHandle(self._session, self._path, self._name)

    def _queue(self, session: ZooKeeperSession) -> list[str]:
        if self._name is None:
            self._name = self._enter(session)
        return sorted(session.children(self._path), key=_number)

    def _enter(self, session: ZooKeeperSession) -> str | None:
        if self._prefix:
            # The response to an earlier attempt may be lost, and our node may exist already.
            names = [name for name in session.children(self._path) if name.startswith(self._prefix)]
            if names:
                return names[0]
        self._prefix = f"_c_{_uuid()}-{_MARK}"
        name = session.create(self._path, self._prefix)
        self._prefix = ""
        return name

    def close(self) -> None:
        """Leave the queue: nodes go with the session."""
        session, name = self._session, self._name
        self._session = self._name = None
        self._prefix = ""
        if session is None:
            return
        try:
            if name is not None:
                session.delete(self._path, name)
        except StorageError:
            pass  # the session's end removes it, at the latest when it times out
        finally:
            session.close()


class ZooKeeperLockHandle:
    """Our node, the first of the queue."""

    valid_seconds: float | None = None
    beat_seconds: float | None = None

    def __init__(self, session: ZooKeeperSession, path: str, name: str) -> None:
        self._session = session
        self._path = path
        self.token = name

    def renew(self) -> bool:
        """The session renews itself; see whether it did."""
        return self.prove()

    def prove(self) -> bool:
        """Ask whether the node is still there and of this session: the first of a queue stays the first."""
        return self._session.is_ours(self._path, self.token)

    def release(self) -> None:
        """Remove the node; its name is ours alone."""
        self._session.delete(self._path, self.token)


def _number(name: str) -> str:
    # As Curator sorts: what stands behind "lock-", ten digits; a stranger's node by its whole name.
    return name.rpartition(_MARK)[2]


def _uuid() -> str:
    hex_digits = secrets.token_hex(16)
    return "-".join((hex_digits[:8], hex_digits[8:12], hex_digits[12:16], hex_digits[16:20], hex_digits[20:]))


class KazooSession:
    """A session over kazoo."""

    def __init__(self, hosts: str, session_seconds: float, connection_seconds: float) -> None:
        kazoo = import_extra(lambda: importlib.import_module("kazoo.client"), "ZookeeperBasedLockProvider", "zookeeper")
        self._hosts = hosts
        # Of its own accord kazoo waits for ever for a server that is gone.
        self._seconds = min(session_seconds, connection_seconds)
        self._client: Any = kazoo.KazooClient(hosts=hosts, timeout=session_seconds)
        self._gone: Any = import_extra(
            lambda: importlib.import_module("kazoo.exceptions"), "ZookeeperBasedLockProvider", "zookeeper"
        ).NoNodeError
        try:
            self._ask("connect to", functools.partial(self._client.start, timeout=connection_seconds))
        except BaseException:
            self.close()
            raise

    def create(self, path: str, prefix: str) -> str:
        """Make an ephemeral node with the next number; return its name."""

        def make() -> str:
            self._client.ensure_path_async(path).get(timeout=self._seconds)
            data = socket.gethostname().encode()
            creation = self._client.create_async(f"{path}/{prefix}", data, ephemeral=True, sequence=True)
            return str(creation.get(timeout=self._seconds))

        return self._ask("enter the queue of", make).rpartition("/")[2]

    def children(self, path: str) -> list[str]:
        """Return the names below `path`; none when it is not there yet."""

        def look() -> list[str]:
            try:
                return [str(name) for name in self._client.get_children_async(path).get(timeout=self._seconds)]
            except self._gone:
                return []

        return self._ask("see the queue of", look)

    def is_ours(self, path: str, name: str) -> bool:
        """Return whether the node is there now: the server that is asked catches up first."""

        def look() -> bool:
            self._client.sync_async(path).get(timeout=self._seconds)
            status = self._client.exists_async(f"{path}/{name}").get(timeout=self._seconds)
            return status is not None and status.ephemeralOwner == self._client.client_id[0]

        return self._ask("look at the lock of", look)

    def delete(self, path: str, name: str) -> None:
        """Remove a node; one that is gone is fine."""

        def remove() -> None:
            try:
                self._client.delete_async(f"{path}/{name}").get(timeout=self._seconds)
            except self._gone:
                return

        self._ask("let go of the lock of", remove)

    def close(self) -> None:
        """End the session."""
        # What fails here ends by itself when it times out.
        if not isinstance(run_foreign(self._client.stop), Raised):
            run_foreign(self._client.close)

    def _ask(self, doing: str, act: Callable[[], T]) -> T:
        return ask_service(f"ZooKeeper at {self._hosts}", doing, act)


def open_zookeeper_backend(options: LockOptions) -> ZooKeeperLockBackend:
    """Return the keeper that ``hoodie.write.lock.zookeeper.*`` describes.

    Raises:
        UnsupportedFeature: a setting or the package kazoo is missing.
        InvalidInputError: the address carries a password.
    """
    url = without_password("hoodie.write.lock.zookeeper.url", options.required("zookeeper.url"))
    port = int(options.number("zookeeper.port", _PORT))
    hosts, _, chroot = url.partition("/")
    host_list = ",".join(host if ":" in host else f"{host}:{port}" for host in hosts.split(","))
    key = options.text("zookeeper.lock_key") or options.table_name()
    path = f"/{options.required('zookeeper.base_path').strip('/')}/{key}"
    session = options.number("zookeeper.session_timeout_ms", 60_000) / 1000
    connection = options.number("zookeeper.connection_timeout_ms", 15_000) / 1000
    import_extra(
        lambda: importlib.import_module("kazoo.client"), options.short_name, "zookeeper"
    )  # said now, not when a commit waits
    address = f"{host_list}/{chroot}" if chroot else host_list
    return ZooKeeperLockBackend(path, lambda: KazooSession(address, session, connection))


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


_KEY = "key"
_BEATS_PER_LEASE = 3
_MAX_LEASE_DIGITS = 12
_TABLE_POLL_SECONDS = 1.0
_VERSION_IS = "recordVersionNumber = :seen"


@dataclass(frozen=True, slots=True)
class LockItem:
    """The item: who has it, in which version, for how long from the moment that version was first seen."""

    owner: str
    version: str
    lease_ms: int
    released: bool = False


def decode_lock_item(item: object) -> LockItem:
    """Return what DynamoDB's answer says.

    Args:
        item: attributes by name, each ``{"S": text}``.

    Raises:
        CorruptFile: it is not an item of Amazon's lock client.

    Example:
        >>> said = {"ownerName": "a", "recordVersionNumber": "v", "leaseDuration": "20000"}
        >>> decode_lock_item({name: {"S": text} for name, text in said.items()})
        LockItem(owner='a', version='v', lease_ms=20000, released=False)
    """
    texts = (
        {name: value.get("S") for name, value in item.items() if isinstance(value, dict)}
        if isinstance(item, dict)
        else {}
    )
    owner, version, lease = (texts.get(name) for name in ("ownerName", "recordVersionNumber", "leaseDuration"))
    is_length = isinstance(lease, str) and lease.isdecimal() and len(lease) <= _MAX_LEASE_DIGITS
    if isinstance(owner, str) and isinstance(version, str) and is_length:
        return LockItem(owner, version, int(str(lease)), "isReleased" in texts)
    raise CorruptFile("the item of the DynamoDB lock is not of Amazon's lock client: choose another partition key")


class LockTable(Protocol):
    """The requests; everything may raise StorageError, which leaves open whether the request took effect."""

    @property
    def what(self) -> str:
        """Table and key, for people."""
        ...

    def get(self) -> LockItem | None:
        """Return the item as it is now."""
        ...

    def put(self, item: LockItem, seen: str | None) -> bool:
        """Put the item in the place of the version `seen` (None: of none); False when that is not there."""
        ...

    def delete(self, seen: str) -> bool:
        """Remove the item if its version is `seen`."""
        ...


class DynamoDBLockBackend:
    """The item of one table's lock."""

    longest_pause = 0.25

    def __init__(
        self,
        table: LockTable,
        owner: str,
        lease_seconds: float,
        time_source: TimeSource,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._table = table
        self._owner = owner
        self._lease_ms = int(lease_seconds * 1000)
        self._time_source = time_source
        self._seen: tuple[str, float] | None = None
        self._prepare = prepare

    @property
    def what(self) -> str:
        """Table and key."""
        return self._table.what

    @property
    def hint(self) -> str:
        """A dead holder's lease ends by itself."""
        return "a dead holder's lease ends by itself"

    def acquire(self) -> LockHandle | None:
        """Put our item where there is none, where it was released, or where its lease is over."""
        if self._prepare is not None:
            self._prepare()
            self._prepare = None
        item = self._table.get()
        # Ours: a request that was given up for lost arrived after all.
        if item is not None and not item.released and item.owner != self._owner and not self._is_over(item):
            return None
        handle = DynamoDBLockHandle(self._table, self._owner, self._lease_ms)
        return handle if handle.put(None if item is None else item.version) else None

    def _is_over(self, item: LockItem) -> bool:
        now = self._time_source.monotonic()
        if self._seen is None or self._seen[0] != item.version:
            self._seen = (item.version, now)
        return now - self._seen[1] >= item.lease_ms / 1000

    def close(self) -> None:
        """What was seen, and when, is remembered: a lease may be longer than one wait."""


class DynamoDBLockHandle:
    """Our item."""

    def __init__(self, table: LockTable, owner: str, lease_ms: int) -> None:
        self._table = table
        self._owner = owner
        self._lease_ms = lease_ms
        self.token = ""
        self.valid_seconds: float | None = lease_ms / 1000
        self.beat_seconds: float | None = lease_ms / 1000 / _BEATS_PER_LEASE

    def put(self, seen: str | None) -> bool:
        """Put a new version of our item in the place of `seen`."""
        item = LockItem(self._owner, secrets.token_hex(16), self._lease_ms)
        if not self._table.put(item, seen):
            # botocore repeats a request whose answer was lost: the refusal may have met our own item.
            stored = self._table.get()
            if stored is None or stored.version != item.version:
                return False
        self.token = item.version
        return True

    def renew(self) -> bool:
        """Change the version, if it is still ours; after a lost answer ours may be another than the last one known."""
        return self.put(self.token) or (self.prove() and self.put(self.token))

    def prove(self) -> bool:
        """Read the item."""
        item = self._table.get()
        if item is None or item.owner != self._owner or item.released:
            return False
        self.token = item.version
        return True

    def release(self) -> None:
        """Remove the item, if it is ours."""
        if not self._table.delete(self.token) and self.prove():
            self._table.delete(self.token)


class BotoLockTable:
    """The item over botocore's client of DynamoDB."""

    def __init__(self, client: Any, table: str, key: str) -> None:
        self._client = client
        self._table = table
        self._key = key

    @property
    def what(self) -> str:
        """Table and key."""
        return f"the lock {self._key!r} in DynamoDB's table {self._table!r}"

    def get(self) -> LockItem | None:
        """Return the item as it is now (a consistent read)."""
        item = self._ask("read", self._client.get_item, Key={_KEY: {"S": self._key}}, ConsistentRead=True).get("Item")
        return None if item is None else decode_lock_item(item)

    def put(self, item: LockItem, seen: str | None) -> bool:
        """Put the item in the place of the version `seen` (None: of none)."""
        values = {
            _KEY: self._key,
            "ownerName": item.owner,
            "leaseDuration": str(item.lease_ms),
            "recordVersionNumber": item.version,
        }
        attributes = {name: {"S": value} for name, value in values.items()}
        if seen is None:
            condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(#key)"}
            condition["ExpressionAttributeNames"] = {"#key": _KEY}
        else:
            condition = {"ConditionExpression": _VERSION_IS, "ExpressionAttributeValues": {":seen": {"S": seen}}}
        return self._conditional("write", self._client.put_item, Item=attributes, **condition)

    def delete(self, seen: str) -> bool:
        """Remove the item if its version is `seen`."""
        values = {":seen": {"S": seen}}
        return self._conditional(
            "release",
            self._client.delete_item,
            Key={_KEY: {"S": self._key}},
            ConditionExpression=_VERSION_IS,
            ExpressionAttributeValues=values,
        )

    def make_table(self, billing_mode: str, capacity: tuple[int, int], seconds: float, time_source: TimeSource) -> None:
        """Create the table unless it is there, and wait until it can be used.

        Raises:
            StorageError: it cannot be made, or is not ready after `seconds`.
        """
        deadline = time_source.monotonic() + seconds
        while (status := self._status()) != "ACTIVE":
            if status is None:
                self._create(billing_mode, capacity)
            if time_source.monotonic() >= deadline:
                raise StorageError(f"DynamoDB's table {self._table!r} is not ready after {seconds:g} s", transient=True)
            time_source.sleep(_TABLE_POLL_SECONDS)

    def _status(self) -> str | None:
        def look() -> str | None:
            try:
                return str(self._client.describe_table(TableName=self._table)["Table"]["TableStatus"])
            except self._client.exceptions.ResourceNotFoundException:
                return None

        return ask_service(self.what, "look for", look)

    def _create(self, billing_mode: str, capacity: tuple[int, int]) -> None:
        more: dict[str, Any] = {}
        if billing_mode == "PROVISIONED":
            more["ProvisionedThroughput"] = {"ReadCapacityUnits": capacity[0], "WriteCapacityUnits": capacity[1]}

        def make() -> None:
            try:
                self._client.create_table(
                    TableName=self._table,
                    KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                    AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                    BillingMode=billing_mode,
                    **more,
                )
            except self._client.exceptions.ResourceInUseException:
                return  # another writer was first

        ask_service(self.what, "make the table of", make)

    def _conditional(self, doing: str, call: Callable[..., Any], **arguments: Any) -> bool:
        def act() -> bool:
            try:
                call(TableName=self._table, **arguments)
            except self._client.exceptions.ConditionalCheckFailedException:
                return False
            return True

        return ask_service(self.what, doing, act)

    def _ask(self, doing: str, call: Callable[..., Any], **arguments: Any) -> Any:
        return ask_service(self.what, doing, functools.partial(call, TableName=self._table, **arguments))


def open_dynamodb_backend(options: LockOptions, owner: str, time_source: TimeSource) -> DynamoDBLockBackend:
    """Return the keeper that ``hoodie.write.lock.dynamodb.*`` describes; its table is made when it is missing.

    Raises:
        UnsupportedFeature: a setting or the package botocore is missing.
        InvalidInputError: the address carries a password.
        StorageError: no client can be made of these settings.
    """
    table, key = options.required("dynamodb.table"), options.text("dynamodb.partition_key") or options.table_name()
    endpoint = options.text("dynamodb.endpoint_url")
    if endpoint is not None:
        endpoint = without_password("hoodie.write.lock.dynamodb.endpoint_url", endpoint)
        endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
    import_extra(lambda: importlib.import_module("botocore"), options.short_name, "dynamodb")
    region = options.text("dynamodb.region")
    lock_table = BotoLockTable(ask_service("DynamoDB", "open", lambda: _client(region, endpoint)), table, key)
    capacity = (int(options.number("dynamodb.read_capacity", 20)), int(options.number("dynamodb.write_capacity", 10)))
    seconds = options.number("dynamodb.table_creation_timeout", 600_000) / 1000
    mode = options.text("dynamodb.billing_mode") or "PAY_PER_REQUEST"

    def prepare() -> None:
        lock_table.make_table(mode, capacity, seconds, time_source)

    return DynamoDBLockBackend(lock_table, owner, options.retry_policy.seconds, time_source, prepare)


@functools.lru_cache(maxsize=8)
def _client(region: str | None, endpoint: str | None) -> Any:
    # Kept: making one takes a tenth of a second, and threads may share it.
    session = import_extra(
        lambda: importlib.import_module("botocore.session"), "DynamoDBBasedLockProvider", "dynamodb"
    ).get_session()
    where = region or session.get_config_variable("region") or "us-east-1"
    return session.create_client("dynamodb", region_name=where, endpoint_url=endpoint)
