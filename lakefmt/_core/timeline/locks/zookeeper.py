"""Hudi's ``ZookeeperBasedLockProvider``: a queue of ephemeral nodes, as Curator's mutex makes it (docs/format.md, Locks).

Each writer has one ephemeral node ``_c_<uuid>-lock-<number>`` below ``<base_path>/<lock_key>``; the lowest number holds
the lock. ZooKeeper assigns the numbers, so waiting is fair, and removes the node with its session, so no lock outlives
its holder. A writer that does not learn whether its node was created finds it by the uuid.

One connection is opened per lock and closed with it; its threads are kazoo's.

Why not kazoo's own ``Lock``? Its constructor takes patterns of other clients' nodes but not the name of its own, which
Curator must be able to sort. Without blocking it gives up its place in the queue after each attempt. Its ``is_acquired``
is a flag that is not checked against the server, while a commit must know that the node still belongs to the session.
"""

from __future__ import annotations

import functools
import importlib
import secrets
import socket
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.storage.remote.clients import ask_service, import_extra, without_password
from lakefmt._core.timeline.locks.api import LockHandle, LockOptions
from lakefmt.errors import StorageError

__all__ = ["KazooSession", "ZooKeeperLockBackend", "ZooKeeperSession", "open_zookeeper_backend"]

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
            # The answer to an earlier attempt was lost: a node of ours may be there.
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
