"""Services beside writes, in the same process: a thread that lives as long as something is due (effects).

A commit wakes it; it compacts, cleans and archives as the settings say, under the same table lock as everybody, and ends.
It is a daemon: a process that ends waits some seconds for what is at work; a service that takes longer leaves what a dead
service leaves, and the next one takes that up.
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

from lakefmt.compaction.scheduler import run_waiting_services
from lakefmt.errors import ServicesFailed, StateError
from lakefmt.filegroups.table_client import TableClient

__all__ = ["BACKGROUND", "BackgroundServices"]

BACKGROUND = "lakefmt.write.services.background"
#: Between a commit and the services that it wakes; long enough for a burst of commits to wake them once.
_PAUSE_SECONDS = 0.01
_PATIENCE_SECONDS = 1.0
#: So long does a process that ends wait for services at work.
_ENDING_SECONDS = 10.0

_log = logging.getLogger("lakefmt.services")


class BackgroundServices:
    """Runs the services of one table handle in the background; what fails is kept until somebody has been told.

    A context manager: its end waits for what is due, and raises what nobody has heard of yet.

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
        self._guard = Lock()  # held for moments: what is below it
        self._due: dict[str, object] | None = None
        self._stop: Callable[[], None] | None = None
        self._failures: list[str] = []
        self._closed = False
        self._busy = Lock()  # held by whoever carries services out

    @property
    def is_closed(self) -> bool:
        """Whether they have been closed."""
        return self._closed

    def wake(self, options: Mapping[str, object] | None = None) -> None:
        """Have services looked at soon; every commit of the handle does it.

        Args:
            options: settings of the call that committed.

        Raises:
            StateError: they were closed.
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
        """Return when nothing is due and nothing is at work; what is due may be done in this very call."""
        while not self._client.time_source.acquire_lock(self._busy, _PATIENCE_SECONDS):
            pass  # a compaction takes as long as it takes, and tells when its lock does not come
        try:
            self._run_due()
        finally:
            self._busy.release()

    def take_failures(self) -> tuple[str, ...]:
        """Return what failed since somebody asked last, a sentence each."""
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
            return  # the round before is still at work, and sees what has become due
        try:
            self._run_due()
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to: told like the others
            self._tell((f"the background services ended: {type(error).__name__}: {error}",))
        finally:
            self._busy.release()

    def _run_due(self) -> None:
        while (options := self._next()) is not None:
            try:
                self._tell(run_waiting_services(self._client, options))
            except Exception as error:  # noqa: BLE001 - a defect of a service must reach somebody, too
                self._tell((f"a background service failed: {type(error).__name__}: {error}",))

    def _next(self) -> dict[str, object] | None:
        """Take what is due; when nothing is, the thread ends."""
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
        """Let nothing begin any more; False when something is still at work after so many seconds."""
        return self._busy.acquire(timeout=max(0.0, seconds))


#: Services that have had something to do.
_living: WeakSet[BackgroundServices] = WeakSet()


def hold_all(seconds: float = _ENDING_SECONDS) -> bool:
    """Let no service begin any more, and wait for those at work; False when one is still after so many seconds.

    An interpreter that is ending ends a daemon's thread where it comes back from Arrow, and frames of C++ that are ended so
    abort the process, though the table is as after any death.
    """
    end = time.monotonic() + seconds
    held = [services.hold(end - time.monotonic()) for services in list(_living)]  # of all, also behind one that is slow
    return all(held)


atexit.register(hold_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_living.clear)  # its parent's threads are not there
