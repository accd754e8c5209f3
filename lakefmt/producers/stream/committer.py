"""Commits the segments of an open stream: once a minute, by size, or with every flush (effects)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from lakefmt.errors import CommitFailed, LakefmtError, StreamUnavailable
from lakefmt.filegroups.table_client import TableClient
from lakefmt.producers.stream.buffer import finish_futures
from lakefmt.producers.stream.committing import SegmentCommit
from lakefmt.producers.stream.failures import chained, passes_by_itself, pause_seconds, retry_status_of, tries_again
from lakefmt.producers.stream.metrics import StreamMetrics
from lakefmt.producers.stream.opening import Finish, SegmentWriter
from lakefmt.producers.stream.options import StreamOptions
from lakefmt.segments.codec import Committed, SegmentHeader
from lakefmt.segments.files import delete_segments
from lakefmt.segments.names import SegmentPosition
from lakefmt.segments.pending import committed_of_streams
from lakefmt.values import CommitResult

__all__ = ["Committer"]

_log = logging.getLogger("lakefmt.streams")

#: So many commits in a row may fail for a reason that passes before the program is told.
_MOST_QUIET: Final = 2


class Committer:
    """Commits what a stream has made durable.

    Args:
        client: the table.
        writer: the writer of the segments.
        options: of the stream.
        settings: of the commits.
        finish: runs a commit, and what follows it.
        metrics: counts.
    """

    def __init__(
        self,
        client: TableClient,
        writer: SegmentWriter,
        options: StreamOptions,
        settings: Mapping[str, object],
        finish: Finish,
        metrics: StreamMetrics,
    ) -> None:
        self._client, self._writer, self._options = client, writer, options
        self._settings, self._finish, self._metrics = settings, finish, metrics
        self._lock = threading.Lock()  # protects what follows; held for moments
        self._committing = threading.Lock()
        self._pending: list[SegmentHeader] = []
        #: With the segment that their rows are in.
        self._futures: list[tuple[SegmentPosition, Future[Any]]] = []
        self._times: list[float] = []  # monotonic seconds at which each pending segment became durable
        self._stop_timer: Callable[[], None] | None = None
        self._stop_soon: Callable[[], None] | None = None
        self._stopped = False
        self._failed_in_a_row = 0
        #: A commit that the stream made by itself failed, and no call has said so.
        self.untold: CommitFailed | None = None
        self.last_committed: Committed | None = writer.committed
        self._confirmed = SegmentPosition(writer.held.epoch, 0)

    @property
    def pending(self) -> list[SegmentHeader]:
        """The segments that are durable and not committed, in order."""
        with self._lock:
            return list(self._pending)

    @property
    def last_confirmed(self) -> SegmentPosition:
        """The newest segment that is durable; of a claim that has none the position before its first."""
        with self._lock:
            return self._confirmed

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest uncommitted segment has waited."""
        with self._lock:
            return self._client.time_source.monotonic() - self._times[0] if self._times else 0.0

    def add(self, header: SegmentHeader, futures: Sequence[Future[Any]]) -> None:
        """Take a segment that is durable; its commit is due when a timer or the size of all says so."""
        with self._lock:
            self._pending.append(header)
            self._futures += [(header.position, future) for future in futures]
            self._confirmed = header.position
            self._times.append(self._client.time_source.monotonic())
            self._set_timers()

    def _set_timers(self, *, soon: bool = True) -> None:
        """Arrange the next commit; call with the lock.

        Args:
            soon: at once, if there are many bytes.
        """
        schedule, options = self._client.time_source.schedule_periodic, self._options
        if not self._pending or not options.commit_interval or self._stopped:
            return
        if self._stop_timer is None:
            self._stop_timer = schedule(options.commit_interval / 1000, self._on_time, "lakefmt-stream-commit")
        due = self._pending[: self._due_count(whole=False)]
        full = options.commit_bytes and sum(header.bytes for header in due) >= options.commit_bytes
        if full and soon and self._stop_soon is None:
            self._stop_soon = schedule(0.0, self._on_time, "lakefmt-stream-commit-by-size")

    def _on_time(self) -> None:
        try:
            self.commit(whole=False)
        except CommitFailed as error:
            cause = error.__cause__ or error
            if not passes_by_itself(cause) or self._failed_in_a_row > _MOST_QUIET:
                self._note(error)
            _log.warning("%s", error)
            with self._lock:
                self._clear_timers()
                self._set_timers(soon=False)

    def _note(self, error: CommitFailed) -> None:
        """Remember a failure for the next call, and tell those who wait for the commit of their rows."""
        with self._lock:
            self.untold = error
            futures, self._futures = [future for _, future in self._futures], []
        finish_futures(futures, error=error)

    def take_untold(self) -> CommitFailed | None:
        """Return a failure that no call has said; the caller does."""
        with self._lock:
            error, self.untold = self.untold, None
        return error

    def _clear_timers(self) -> None:
        for stop in (self._stop_timer, self._stop_soon):
            if stop is not None:
                stop()
        self._stop_timer = self._stop_soon = None

    def commit_if_due(self) -> None:
        """Commit when every flush is to be a commit; :attr:`untold` is the failure."""
        if self._options.commit_interval or not self._pending:
            return
        try:
            self.commit(whole=False)
        except CommitFailed as error:
            self._note(error)

    def commit(self, *, whole: bool) -> CommitResult | None:
        """Commit what is durable; None: there was nothing.

        Args:
            whole: also what stands behind the last mark of a stream that marks offsets.

        Raises:
            CommitFailed: the rows stay durable; its cause is the last failure, after as many attempts as the options say.
        """
        with self._committing:
            headers = self._due(whole=whole)
            if not headers:
                return None
            begun = self._client.time_source.monotonic()
            try:
                result = self._committed(headers, begun)
            except Exception as error:
                raise self._failure(headers, error) from error
            seconds = self._client.time_source.monotonic() - begun
            self._metrics.committed(sum(header.rows for header in headers), seconds, result.instant)
            with self._lock:
                self._pending, last = self._pending[len(headers) :], headers[-1].position
                futures = [future for position, future in self._futures if position <= last]
                self._futures = [each for each in self._futures if each[0] > last]
                self._times = self._times[len(headers) :]
                self._failed_in_a_row, self.untold = 0, None
                self._clear_timers()
                self._set_timers()
            try:
                self._remember()
                delete_segments(self._client.store, self._writer.stream, [header.position for header in headers])
            except LakefmtError as error:
                _log.warning("stream %s: committed segments are left: %s", self._writer.stream, error)
        finish_futures(futures, result)
        return result

    def _failure(self, headers: Sequence[SegmentHeader], error: Exception) -> CommitFailed:
        """Return what a commit of segments failed with, and count it."""
        self._failed_in_a_row += 1
        self._metrics.commit_failed(error)
        rows = sum(header.rows for header in headers)
        return CommitFailed(
            f"{rows} rows of stream {self._writer.stream!r} are durable and not committed: {error}; do not send them again: "
            "the next commit takes them"
        )

    def _due(self, *, whole: bool) -> list[SegmentHeader]:
        with self._lock:
            count = self._due_count(whole=whole)
            if not count:
                self._clear_timers()
                self._set_timers()
            return self._pending[:count]

    def _due_count(self, *, whole: bool) -> int:
        """Return how many segments the next commit takes; call with the lock."""
        count = len(self._pending)
        while not whole and count and self._pending[count - 1].tail:
            count -= 1
        return count

    def _committed(self, headers: Sequence[SegmentHeader], begun: float) -> CommitResult:
        """Commit segments, with attempts after failures."""
        attempts = 0
        first: LakefmtError | None = None
        while True:
            commit = SegmentCommit(self._client, self._writer.stream, headers, self._settings, self._writer.since)
            try:
                return self._finish(commit.run, commit.request)
            except LakefmtError as error:
                attempts += 1
                first = first or error
                seconds = self._client.time_source.monotonic() - begun
                status = retry_status_of(error)
                again = tries_again(self._options, status, attempts, seconds)
                if isinstance(error, StreamUnavailable) or not again or self._stopped:
                    chained(error, first)
                    raise
                self._metrics.retried("" if status is None else status.name)
                jitter = self._client.time_source.jitter()
                self._client.time_source.sleep(pause_seconds(self._options, attempts, jitter, seconds))

    def _remember(self) -> None:
        state = self._client.load()
        entries = committed_of_streams(self._client, state, {self._writer.stream: self._writer.since})
        self.last_committed = entries.get(self._writer.stream, self.last_committed)

    def follow(self, writer: SegmentWriter) -> None:
        """Go on with a new claim: what was pending was committed when it was taken, but for what is behind the last mark."""
        with self._committing, self._lock:
            self._writer, self._pending = writer, list(writer.kept)
            self._confirmed = SegmentPosition(writer.held.epoch, 0)
            self._times = [self._client.time_source.monotonic()] * len(self._pending)
            self.last_committed = writer.committed
            kept = {header.position for header in self._pending}
            futures = [future for position, future in self._futures if position not in kept]
            self._futures = [each for each in self._futures if each[0] in kept]
        finish_futures(futures, writer.recovered.result)

    def stop(self) -> None:
        """Commit nothing more by itself."""
        with self._lock:
            self._stopped = True
            self._clear_timers()
