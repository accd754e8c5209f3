"""Table services in a thread of the writing process.

A commit starts the thread; it compacts, cleans and archives as the settings say, under the table lock like every writer,
and ends when nothing is due. It is a daemon thread: a process that ends waits some seconds for a running service; a
service that takes longer stays pending, and the next run of the service finishes it.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable, Mapping
from threading import Lock
from types import TracebackType
from weakref import WeakSet

from lakefmt.compaction.scheduler import BACKGROUND, run_waiting_services
from lakefmt.errors import ServicesFailed, StateError
from lakefmt.filegroups.table_client import TableClient

__all__ = ["BackgroundServices"]

#: Between a commit and the services that it starts; long enough that a burst of commits starts them once.
_PAUSE_SECONDS = 0.01
_PATIENCE_SECONDS = 1.0
#: How long a process that ends waits for running services.
_ENDING_SECONDS = 10.0

_log = logging.getLogger("lakefmt.services")


class BackgroundServices:
    """Runs the table services of one table handle in the background; failures are kept until they are reported.

    A context manager: its end waits for what is due and raises failures that were not reported.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> t = lakefmt.create_table("memory://doc-background", schema=pa.schema([("id", pa.string())]),
        ...     record_key="id", table_type="mor", options={"hoodie.compact.inline.max.delta.commits": 2})
        >>> with t.services():
        ...     for _ in range(3): _ = t.upsert(pa.table({"id": ["a"]}))
        >>> "commit" in {instant.action.value for instant in t.timeline.timeline.commits}
        True
    """

    def __init__(self, client: TableClient) -> None:
        self._client = client
        self._options = dict(client.options)
        client.options = {**client.options, BACKGROUND: True}
        self._guard = Lock()  # protects the attributes below; held for moments
        self._due: dict[str, object] | None = None
        self._stop: Callable[[], None] | None = None
        self._failures: list[str] = []
        self._closed = False
        self._busy = Lock()  # held while services run

    @property
    def is_closed(self) -> bool:
        """Whether the services were closed."""
        return self._closed

    def wake(self, options: Mapping[str, object] | None = None) -> None:
        """Run what is due soon; every commit of the handle calls this.

        Args:
            options: settings of the call that committed.

        Raises:
            StateError: the services were closed.
        """
        with self._guard:
            if self._closed:
                raise StateError("these services are closed: ask the table for new ones")
            self._due = {**(self._due or {}), **(options or {})}
            if self._stop is None:
                _living.add(self)
                self._stop = self._client.time_source.schedule_periodic(
                    _PAUSE_SECONDS, self._beside, "lakefmt-services"
                )

    def wait(self) -> None:
        """Return when nothing is due and nothing runs; what is due may run in this call."""
        while not self._client.time_source.acquire_lock(self._busy, _PATIENCE_SECONDS):
            pass  # a compaction may take long; it raises when it cannot take the table lock
        try:
            self._run_due()
        finally:
            self._busy.release()

    def take_failures(self) -> tuple[str, ...]:
        """Return what failed since the last call, one sentence each."""
        with self._guard:
            failures, self._failures = tuple(self._failures), []
        return failures

    def close(self) -> None:
        """Wait for what is due and end; later commits run their services in their own call.

        Raises:
            ServicesFailed: services failed, and no commit has reported it; the commits stand.
        """
        with self._guard:
            was_closed, self._closed = self._closed, True
        self.wait()
        if not was_closed:
            self._client.options = self._options
        failures = self.take_failures()
        if failures:
            raise ServicesFailed("; ".join(failures))

    def __enter__(self) -> BackgroundServices:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ServicesFailed as failed:
            if error is None:
                raise
            error.add_note(f"besides, {failed}")

    # ------------------------------------------------------------------------------------------------------- the thread

    def _beside(self) -> None:
        if not self._busy.acquire(blocking=False):
            return  # the round before still runs, and sees what has become due
        try:
            self._run_due()
        except BaseException as error:  # noqa: BLE001 - nothing catches what a thread raises: reported like the others
            self._tell((f"the background services ended: {type(error).__name__}: {error}",))
        finally:
            self._busy.release()

    def _run_due(self) -> None:
        while (options := self._next()) is not None:
            try:
                self._tell(run_waiting_services(self._client, options))
            except Exception as error:  # noqa: BLE001 - a defect of a service is reported, too
                self._tell((f"a background service failed: {type(error).__name__}: {error}",))

    def _next(self) -> dict[str, object] | None:
        """Take what is due; when nothing is due, the thread ends."""
        with self._guard:
            options, self._due = self._due, None
            if options is None and self._stop is not None:
                self._stop()
                self._stop = None
        return options

    def _tell(self, failures: tuple[str, ...]) -> None:
        for failure in failures:
            _log.warning("%s: %s", self._client.store.url, failure)
        with self._guard:
            self._failures += failures

    def hold(self, seconds: float) -> bool:
        """Let no service begin any more; False when one still runs after `seconds`."""
        return self._busy.acquire(timeout=max(0.0, seconds))


#: Background services that ran something.
_living: WeakSet[BackgroundServices] = WeakSet()


def hold_all(seconds: float = _ENDING_SECONDS) -> bool:
    """Let no service begin any more, and wait for running ones; False when one still runs after `seconds`.

    An interpreter that ends stops a daemon thread where it returns from Arrow, and that aborts the process in C++. The table
    would be safe, as after any death of a process.
    """
    end = time.monotonic() + seconds
    held = [
        services.hold(end - time.monotonic()) for services in list(_living)
    ]  # hold all of them, also after one that is slow
    return all(held)


atexit.register(hold_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_living.clear)  # the child has no threads of its parent
