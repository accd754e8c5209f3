"""The process for services: round after round over its tables until it is asked to stop.

One process at a time serves a table, by a lease in ``.hoodie/.lakefmt/services.lease``: the object of Hudi's storage lock
under a name of its own, replaced only as it was found, renewed while a round runs, marked as given back at its end. The
lease of a process that died ends by the clock, and the next process takes it. It saves work and is not needed for safety:
every service takes the table lock and a heartbeat, as it does anywhere. So a store without compare-and-swap is served
without a lease.

Operations of compactions, one file slice each, are executed by processes of a pool.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import field
from multiprocessing.connection import wait
from types import TracebackType
from typing import TYPE_CHECKING, Final

from lakefmt._core.arguments import Raised, mapping_argument, run_foreign
from lakefmt._core.compaction.operations import ServiceOperations, run_operation
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.storage.api import remove_abandoned, with_versions
from lakefmt._core.storage.messages import printable_url
from lakefmt._core.storage.open import is_missing_folder, open_store
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.table import Table, open_table
from lakefmt._core.timeline.locks.lease import TimedLease
from lakefmt._core.timeline.locks.objects import StorageLockBackend
from lakefmt._core.values import WriteStat
from lakefmt.errors import InvalidInputError, LakefmtError, ServicesFailed, TableNotFound
from lakefmt.find_tables import find_tables
from lakefmt.services.round import QUIET_SECONDS, TableRound, failure_text, needed_services
from lakefmt.services.status import ServicesStatus, ServiceStep, TableStatus, with_steps

if TYPE_CHECKING:
    from lakefmt._core.timeline.instant import Instant

__all__ = [
    "LEASE_NAME",
    "OperationPool",
    "ServiceLoop",
    "hold_table",
    "run",
]

_log = logging.getLogger("lakefmt.services")

LEASE_NAME: Final = ".hoodie/.lakefmt/services.lease"
#: A lease is renewed this many times before it would end.
_RENEWALS_PER_LEASE: Final = 4


@contextmanager
def hold_table(client: TableClient, owner: str, seconds: float) -> Iterator[Callable[[], None] | None]:
    """Hold the lease of a table inside the block; the call does not wait for it.

    Args:
        client: the table.
        owner: id of the process.
        seconds: how long the lease lasts unless it is renewed.

    Yields:
        A function that raises LeaseLost when the lease is lost; None: another process serves the table.

    Raises:
        CorruptFile: the lease is damaged.
        StorageError: the store did not answer.
    """
    store = client.store
    swapping = with_versions(store)
    if swapping is None:
        yield lambda: None
        return
    backend = StorageLockBackend(
        store,
        swapping,
        owner,
        lambda: client.clock.now().timestamp(),
        valid_seconds=seconds,
        beat_seconds=seconds / _RENEWALS_PER_LEASE,
        name=LEASE_NAME,
    )
    requested_at = client.time_source.monotonic()
    handle = backend.acquire()
    if handle is None:
        yield None
        return
    # A process that was killed while it renewed the lease left the temporary file of that write.
    remove_abandoned(store, LEASE_NAME.rpartition("/")[0], recursive=False)
    lease = TimedLease(handle, backend.what, client.time_source, requested_at)
    stop = lease.start()
    try:
        yield lease.check
    finally:
        stop()
        lease.end()


class OperationPool:
    """A pool that starts when it is first used; a worker that dies fails the plan at hand, which stays pending.

    Parameters:
        workers: how many processes.
        storage_options: credentials; operations carry none.
    """

    def __init__(self, workers: int, storage_options: Mapping[str, object] | None = None) -> None:
        self._workers = workers
        self._storage_options = dict(storage_options or {})
        self._pool: ProcessPoolExecutor | None = None

    def run_operations(self, operations: ServiceOperations) -> list[tuple[WriteStat, ...]]:
        """Run all operations of a plan; what each wrote, in their order.

        Raises:
            ServicesFailed: a worker died.
            LakefmtError: what the first failing operation raised.
        """
        if self._pool is None:
            # Spawned, not forked: this process has threads.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, context, initializer=_begin_worker)
        pool, count = self._pool, len(operations.plan.operations)
        try:
            futures = [pool.submit(run_operation, operations, n, self._storage_options) for n in range(count)]
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            self.close()
            raise ServicesFailed(
                f"a worker died while it executed {operations.time}; the plan stays pending and is executed again"
            ) from error

    def close(self) -> None:
        """End the workers; what they have begun is finished."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def __enter__(self) -> OperationPool:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _begin_worker() -> None:
    """Leave signals to the coordinator, and end when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(
            target=_end_with_coordinator, args=(parent.sentinel,), name="lakefmt-parent", daemon=True
        ).start()


def _end_with_coordinator(sentinel: int) -> None:
    # A worker holds the pool's pipe open itself, so it would never hear that a killed coordinator is gone.
    wait([sentinel])
    os._exit(1)


AnyTable = str | os.PathLike[str] | Table


def run(
    tables: AnyTable | Iterable[AnyTable],
    *,
    once: bool = False,
    interval: float = 10.0,
    workers: int = 1,
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, object] | None = None,
    lease_seconds: float = 60.0,
    stop: threading.Event | None = None,
    on_round: Callable[[ServicesStatus], None] | None = None,
    time_source: TimeSource | None = None,
) -> ServicesStatus:
    """Serve tables: recover streams, compact, cluster, clean and archive as the settings of each table say.

    Writers go on beside it; they do best with ``lakefmt.write.only=true``, so that only this process runs services. Safe to
    run twice, and to be killed: what it had begun is finished by the next round of any process.

    Args:
        tables: tables, or their paths or URLs; one or several.
        once: True returns after one round.
        interval: seconds between two rounds.
        workers: processes that execute the operations of compactions; 1: this process does.
        options: settings, above those of the tables.
        storage_options: credentials of tables given by path or URL.
        lease_seconds: how long a process that died keeps others from its table.
        stop: when set, the service that runs is finished and the call returns.
        on_round: called after every round with the status.
        time_source: how time passes; a virtual one in tests.

    Returns:
        The status after the last round.

    Raises:
        InvalidInputError: there is no table, or a limit that cannot be.
        TableNotFound: no local path is there.

    Example:
        >>> import lakefmt, lakefmt.services, pyarrow as pa
        >>> t = lakefmt.create_table("memory://doc-serve", schema=pa.schema([("id", pa.string())]), record_key="id",
        ...     table_type="mor", options={"lakefmt.write.only": True})
        >>> for _ in range(6): _ = t.upsert(pa.table({"id": ["a"]}))
        >>> status = lakefmt.services.run(t, once=True)
        >>> status.tables[0].steps["compaction"].result
        'done'
    """
    loop = ServiceLoop(
        tables,
        interval=interval,
        workers=workers,
        options=options,
        storage_options=storage_options,
        lease_seconds=lease_seconds,
        stop=stop,
        time_source=time_source,
    )
    return loop.run(once=once, on_round=on_round)


@dataclass
class _ServedTable:
    """One table, and what the last complete round saw of it."""

    given: AnyTable
    status: TableStatus
    table: Table | None = None
    seen: tuple[Instant, ...] | None = None
    seen_at: float = field(default=0.0)
    failure: str = ""


class ServiceLoop:
    """Rounds over tables; :attr:`status` may be read from any thread. See :func:`run`."""

    def __init__(
        self,
        tables: AnyTable | Iterable[AnyTable],
        *,
        interval: float = 10.0,
        workers: int = 1,
        options: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
        lease_seconds: float = 60.0,
        stop: threading.Event | None = None,
        time_source: TimeSource | None = None,
    ) -> None:
        sources = [tables] if isinstance(tables, (str, os.PathLike, Table)) else list(tables)
        if not sources:
            raise InvalidInputError("services need at least one table")
        if not all(isinstance(each, (str, os.PathLike, Table)) for each in sources):
            raise InvalidInputError("services take tables, or their paths or URLs")
        if interval < 0 or workers < 1 or lease_seconds <= 0:
            raise InvalidInputError("services need workers and a lease, and an interval that is not negative")
        # A round serves a table with the handle's own settings: those that keep its commits from running services go.
        self._options = {**mapping_argument(options, "options"), "lakefmt.write.only": False}
        self._storage_options = storage_options
        self._interval = interval
        self._lease_seconds = lease_seconds
        self._workers = workers
        self._stop = stop or threading.Event()
        self._time_source = time_source
        sources = [each if isinstance(each, Table) else os.fspath(each) for each in sources]
        self._paths = [each for each in sources if isinstance(each, str)]
        self._served = {each: _ServedTable(each, TableStatus(_name_of_table(each))) for each in sources}
        self._owner = ""
        self._rounds = 0

    @property
    def status(self) -> ServicesStatus:
        """What was done so far."""
        return ServicesStatus(
            self._owner, self._rounds, tuple(each.status for each in self._served.values()), self._stop.is_set()
        )

    def stop(self) -> None:
        """Let the service that runs finish, and end."""
        self._stop.set()

    def run(self, *, once: bool = False, on_round: Callable[[ServicesStatus], None] | None = None) -> ServicesStatus:
        """Run rounds until :meth:`stop`; with `once`, one round.

        Args:
            once: return after one round.
            on_round: called after every round.

        Raises:
            TableNotFound: no local path is there.
        """
        storage_options = None if self._storage_options is None else dict(self._storage_options)
        self._check_folders()
        with OperationPool(self._workers, storage_options) as pool:
            while not self._stop.is_set():
                self._look_for_tables()
                for served in list(self._served.values()):
                    if not self._stop.is_set():
                        self._serve(served, pool)
                self._rounds += 1
                if on_round is not None:
                    on_round(self.status)
                if once or self._wait():
                    break
        return self.status

    def _check_folders(self) -> None:
        """Check that there is something to serve; of several paths one that is not there fails alone.

        Raises:
            TableNotFound: no local path is there.
        """
        missing = [path for path in self._paths if is_missing_folder(open_store(path, self._storage_options))]
        if len(missing) == len(self._served):
            paths = ", ".join(map(printable_url, missing))
            raise TableNotFound(f"{paths} is not there: name tables, or folders of tables")

    def _wait(self) -> bool:
        """Wait for the next round; True when the loop is to end."""
        if self._time_source is None:
            return self._stop.wait(self._interval)
        self._time_source.sleep(self._interval)
        return self._stop.is_set()

    def _look_for_tables(self) -> None:
        """Take the tables below folders that were given, also those that came since the last round."""
        for path in self._paths:
            served = self._served.get(path)
            if served is not None and served.table is not None:
                continue
            paths = self._tables_below(path)
            if paths and path not in paths:
                self._served.pop(path, None)
                for each in paths:
                    self._served.setdefault(each, _ServedTable(each, TableStatus(_name_of_table(each))))

    def _tables_below(self, path: str) -> list[str]:
        try:
            return [table_path for table_path, _ in find_tables(path, storage_options=self._storage_options)]
        except LakefmtError:
            return []  # whoever opens it says why

    def _serve(self, served: _ServedTable, pool: OperationPool) -> None:
        served.status = replace(served.status, state="working", message="")
        # A table that cannot be served must not end the services of others.
        outcome = run_foreign(lambda: self._round(served, pool))
        if isinstance(outcome, Raised):
            self._fail(served, failure_text(outcome.error))
            return
        served.failure = ""
        state, steps = outcome
        for step in steps:
            if step.result == "failed":
                _log.warning("%s: %s", served.status.table, step)
        served.status = with_steps(replace(served.status, state=state), steps)

    def _fail(self, served: _ServedTable, message: str) -> None:
        if message != served.failure:
            _log.warning("%s: %s", served.status.table, message)
        served.failure = message
        served.status = replace(served.status, state="failed", message=message)

    def _round(self, served: _ServedTable, pool: OperationPool) -> tuple[str, tuple[ServiceStep, ...]]:
        table = self._opened(served)
        client = table.client
        state = client.load()
        steps: tuple[ServiceStep, ...] = ()
        name = "idle"
        if self._is_new(served, state, client.time_source.monotonic()) and needed_services(
            client.at(state), self._options
        ):
            with hold_table(client, self._owner, self._lease_seconds) as still_ours:
                if still_ours is None:
                    name = "elsewhere"
                else:
                    steps = TableRound(
                        table,
                        self._options,
                        run_operations=pool.run_operations if self._spreads(client.store.url) else None,
                        still_ours=still_ours,
                        is_stopping=self._stop.is_set,
                    ).run()
            state = client.load()
        settled = name == "idle" and all(step.result in ("done", "nothing") for step in steps)
        did_work = any(step.result == "done" for step in steps)
        # After a round that did something there may be more to do, which the next round sees.
        served.seen = state.timeline.instants if settled and not did_work else None
        served.seen_at = client.time_source.monotonic()
        served.status = replace(
            served.status,
            looked_at=client.clock.now(),
            commits=len(state.timeline.commits),
            pending=tuple(str(instant) for instant in state.timeline.pending),
        )
        return name, steps

    def _is_new(self, served: _ServedTable, state: TableState, now: float) -> bool:
        """Return whether anything changed since the last look; time alone may make a service due, so also after a while."""
        return served.seen != state.timeline.instants or now - served.seen_at >= QUIET_SECONDS / 5

    def _spreads(self, url: str) -> bool:
        return self._workers > 1 and not url.startswith("memory://")

    def _opened(self, served: _ServedTable) -> Table:
        if served.table is None:
            source = served.given
            if not isinstance(source, Table):
                source = open_table(source, storage_options=self._storage_options)
            served.table = source
            served.status = replace(served.status, table=source.client.store.url)
        if not self._owner:
            self._owner = served.table.client.ids.new_uuid()
        return served.table


def _name_of_table(source: AnyTable) -> str:
    return source.client.store.url if isinstance(source, Table) else printable_url(os.fspath(source))
