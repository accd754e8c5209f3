"""What the tests of loads share: a server without HTTP on a virtual clock, over stores that fail on demand."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.loads.bodies import Request
from lakefmt._core.loads.http import ANYBODY, User
from lakefmt._core.loads.protocol import LoadOptions
from lakefmt._core.loads.service import LoadService
from lakefmt._core.producers.stream.committing import commit_options
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.open import open_store
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.table import Table, open_table
from lakefmt.errors import StorageError
from lakefmt.testing.stores import Fault, FaultMode, FaultStore

T = TypeVar("T")
NUMBERS = itertools.count()
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.float64())])
PLAIN = pa.schema([("n", pa.int64())])
QUICK: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.client.heartbeat.tolerable.misses": 0,
}


class LeapingTime(SystemTimeSource):
    """Time that is over at once where a commit pauses before it tries again."""

    def __init__(self) -> None:
        self._slept = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += seconds


class WallClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def pass_seconds(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Faults:
    """The stores of a server: the effect of that number dies, and every effect after it; or some accesses fail, and it lives on.

    Attributes:
        quiet: accesses, reads too, that still succeed before some fail; None: all do.
        failing: how many fail then.
        hit: one has failed.
    """

    def __init__(self, number: int | None = None, mode: FaultMode = FaultMode.BEFORE) -> None:
        self.left, self.mode, self.count, self.dead = number, mode, 0, False
        self.quiet: int | None = None
        self.failing, self.hit = 0, False

    def fails(self) -> bool:
        """Whether the access at hand fails and the process goes on."""
        if self.quiet is None:
            return False
        self.quiet -= 1
        if not -self.failing <= self.quiet < 0:
            return False
        self.hit = True
        return True

    def heal(self) -> None:
        """Let every access succeed from now on."""
        self.quiet, self.hit = None, False

    def plan(self, effect: object) -> Fault | None:
        self.count += 1
        if self.fails():
            return Fault(self.mode, crash=False)
        if self.left is None:
            return None
        self.left -= 1
        if self.left > 0:
            return None
        self.dead = True
        return Fault(self.mode if not self.left else FaultMode.BEFORE, crash=True)


class FailingStore(FaultStore):
    """A store whose reads fail, too."""

    def __init__(self, inner: ObjectStore, faults: Faults) -> None:
        super().__init__(inner, faults.plan)
        self._faults = faults

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        if self._faults.fails():
            raise StorageError(f"{name} is not answered", transient=True)
        return super().look(kind, name, run)


class Base:
    """A base path with tables, and servers of it."""

    def __init__(self, **tables: Mapping[str, Any]) -> None:
        self.url = f"memory://loads-{next(NUMBERS)}"
        self.clock = WallClock()
        #: Settings of commits beside the quick ones.
        self.settings: dict[str, object] = {}
        for name, how in (tables or {"t": {"schema": KEYED, "record_key": "id"}}).items():
            lakefmt.create_table(f"{self.url}/db/{name}", **how)

    def service(self, options: LoadOptions | None = None, faults: Faults | None = None) -> LoadService:
        """Start a server."""
        chosen = options or LoadOptions(durable=False, wait_seconds=0)
        store: ObjectStore = open_store(self.url)
        if faults is not None:
            store = FailingStore(store, faults)
        service = LoadService(
            self.url, chosen, clock=self.clock, store=store, open_at=lambda path: self._open(path, faults)
        )
        service.start()
        return service

    def _open(self, path: str, faults: Faults | None) -> Table:
        table = open_table(path)
        settings = commit_options(table.client, {**QUICK, **self.settings})
        if faults is None:
            return open_table(path, options=settings)
        return Table(TableClient(FailingStore(table.client.store, faults), settings, time_source=LeapingTime()))

    def table(self, name: str = "t") -> Table:
        """Open a table as another program would."""
        return open_table(f"{self.url}/db/{name}", options=QUICK)

    def rows(self, name: str = "t") -> list[tuple[Any, ...]]:
        """The rows of a table in order."""
        found = self.table(name).read()
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


class Client:
    """A client without HTTP."""

    def __init__(self, service: LoadService, user: User = ANYBODY) -> None:
        self.service, self.user = service, user

    def ask(
        self, method: str, path: str, body: bytes = b"", query: Mapping[str, str] | None = None, **headers: object
    ) -> dict[str, Any]:
        """The body of the reply to a request."""
        given = {name: str(value) for name, value in headers.items()}
        request = Request(
            method, path, query or {}, given, io.BytesIO(body), self.user, len(body), "http://127.0.0.1:1"
        )
        reply = self.service.handle(request)
        return (
            dict(reply.body) if isinstance(reply.body, Mapping) else {"text": reply.body, "Status": str(reply.status)}
        )

    def transaction(self, operation: str, label: str, body: bytes = b"", **headers: object) -> dict[str, Any]:
        """The reply to an operation of a transaction."""
        given: dict[str, Any] = {"db": "db", "label": label, **headers}
        if operation in ("begin", "load"):
            given = {"table": "t", **given}
        given = {name: value for name, value in given.items() if value is not None}
        return self.ask("PUT" if operation == "load" else "POST", f"/api/transaction/{operation}", body, **given)

    def state(self, label: str) -> str:
        """The state of a label."""
        return str(self.ask("GET", "/api/db/get_load_state", query={"label": label})["state"])

    def whole(self, label: str, body: bytes, **headers: object) -> list[str]:
        """The statuses of a whole transaction."""
        steps = [self.transaction("begin", label), self.transaction("load", label, body, **headers)]
        steps += [self.transaction("prepare", label), self.transaction("commit", label)]
        return [str(step["Status"]) for step in steps]


def loaded(body: bytes, schema: pa.Schema = KEYED, **headers: object) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """The rows that a body comes to in a new table, and the reply to its load."""
    base = Base(t={"schema": schema, "record_key": "id"})
    client = Client(base.service())
    client.transaction("begin", "l")
    reply = client.transaction("load", "l", body, **headers)
    if reply["Status"] == "OK":
        reply = {**reply, "prepare": client.transaction("prepare", "l")}
        reply["commit"] = client.transaction("commit", "l") if reply["prepare"]["Status"] == "OK" else None
    return base.rows(), reply
