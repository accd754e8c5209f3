"""The buffers of a stream and who empties them, and its commits: once a minute, by size, or with every flush (effects).

One lock protects the buffers and is held for moments; another one orders the writing of segments, a third one commits. No lock
is held while a row waits for a place.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from typing import Final

import pyarrow as pa

from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.producers.stream.committing import SegmentCommit, StreamMetrics
from lakefmt._core.producers.stream.flushing import (
    Buffer,
    Flusher,
    RateLimit,
    RefusedRows,
    Tracked,
    failed_batches,
    finish_futures,
    first_together,
    take_tracked,
)
from lakefmt._core.producers.stream.opening import Finish, SegmentWriter
from lakefmt._core.producers.stream.options import (
    FailedBatch,
    FlushMode,
    StreamOptions,
    chained,
    passes_by_itself,
    pause_seconds,
    retry_status_of,
    tries_again,
)
from lakefmt._core.producers.stream.rows import FollowedColumns, RowChecker
from lakefmt._core.segments.codec import (
    STRICT,
    Committed,
    RowOperator,
    SegmentHeader,
    SegmentPosition,
    checked_offset,
    delete_segments,
)
from lakefmt._core.segments.pending import committed_of_streams
from lakefmt._core.values import CommitResult
from lakefmt.errors import (
    BackPressureTimeout,
    BufferFull,
    CommitFailed,
    FlushFailed,
    InvalidInputError,
    LakefmtError,
    StorageError,
    StreamClosed,
    StreamError,
    StreamUnavailable,
)

__all__ = [
    "GIVEN_UP",
    "Committer",
    "StreamCore",
]

_log = logging.getLogger("lakefmt.streams")

#: So many commits in a row may fail for a reason that passes before the program is told.
_MOST_QUIET_FAILURES: Final = 2


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
        self._futures: list[tuple[SegmentPosition, Future[object]]] = []
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

    def add(self, header: SegmentHeader, futures: Sequence[Future[object]]) -> None:
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
            if not passes_by_itself(cause) or self._failed_in_a_row > _MOST_QUIET_FAILURES:
                self._note(error)
            _log.warning("%s", error)
            with self._lock:
                self._clear_timers()
                self._set_timers(soon=False)

    def _note(self, error: CommitFailed) -> None:
        """Store a failure for the next call, and pass it to callers that wait for the commit of their rows."""
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
            start = self._client.time_source.monotonic()
            try:
                result = self._committed(headers, start)
            except Exception as error:
                raise self._failure(headers, error) from error
            seconds = self._client.time_source.monotonic() - start
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

    def _committed(self, headers: Sequence[SegmentHeader], start: float) -> CommitResult:
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
                seconds = self._client.time_source.monotonic() - start
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
        entries = committed_of_streams(self._client.at(state), {self._writer.stream: self._writer.since})
        self.last_committed = entries.get(self._writer.stream, self.last_committed)

    def follow(self, writer: SegmentWriter) -> None:
        """Go on with a new claim: what was pending was committed when it was taken, but for what is behind the last mark."""
        with self._committing, self._lock:
            self._writer, self._pending = writer, list(writer.kept)
            self._confirmed = SegmentPosition(writer.held.epoch, 0)
            self._times = [self._client.time_source.monotonic()] * len(self._pending)
            self.last_committed = writer.committed
            pending_positions = {header.position for header in self._pending}
            futures = [future for position, future in self._futures if position not in pending_positions]
            self._futures = [each for each in self._futures if each[0] in pending_positions]
        finish_futures(futures, writer.recovered.result)

    def stop(self) -> None:
        """Commit nothing more by itself."""
        with self._lock:
            self._stopped = True
            self._clear_timers()


#: Is set when nobody waits for the running call any more: then it takes no row.
GIVEN_UP: Final[ContextVar[threading.Event | None]] = ContextVar("GIVEN_UP", default=None)


class StreamCore:
    """What a stream does; its face is :class:`lakefmt._core.producers.stream.stream.Stream`.

    Args:
        client: the table.
        writer: writes segments.
        options: of the stream.
        columns: of the table.
        finish: runs a commit, and what follows it.
        commit_options: settings of the commits.
    """

    def __init__(
        self,
        client: TableClient,
        writer: SegmentWriter,
        options: StreamOptions,
        columns: FollowedColumns,
        finish: Finish,
        commit_options: Mapping[str, object],
    ) -> None:
        self.client, self.options, self.columns = client, options, columns
        self.metrics = StreamMetrics()
        self._commit_options, self._finish = commit_options, finish
        self.committer = Committer(client, writer, options, commit_options, finish, self.metrics)
        self.flusher = Flusher(
            client, writer, options, self.metrics, self._reclaim, lambda: self.committer.pending, columns.see
        )
        self.is_closed = False
        self._is_closing = False  # a row that came now would be behind the last flush
        self.failure: FlushFailed | None = None
        self._failed: list[FailedBatch] = []
        self._buffer = Buffer()
        self._sealed: deque[Buffer] = deque()
        self._bytes = 0  # of the sealed buffers; that of the open one is its own
        # A program that has marked offsets goes on to do so: rows before its next mark are sent again.
        self._marks = writer.marks_offsets
        self._changed = threading.Condition(threading.Lock())
        self._writing = threading.Lock()
        self._worker: threading.Thread | None = None
        self._stop_timer: Callable[[], None] | None = None
        self._process = os.getpid()
        self._rate = RateLimit.of(options, client.time_source)
        self._manual = options.flush_mode is FlushMode.MANUAL_FLUSH
        self._background = options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND

    # --- taking rows ---------------------------------------------------------------------------------------------

    def take_row(
        self,
        checker: RowChecker,
        values: Sequence[object],
        operator: RowOperator,
        columns: str | None = None,
        tracked: Tracked | None = None,
    ) -> None:
        """Take a row that was checked.

        Raises:
            InvalidInputError: it is larger than the largest segment.
            BufferFull: the stream flushes by hand only, and holds all it may.
            BackPressureTimeout: there was no place for it in time.
            FlushFailed: the stream has failed.
            StreamClosed: it was closed.
        """
        size, options = checker.size(values), self.options
        if size > options.grpc_max_message_length:
            raise InvalidInputError(
                f"a row of about {size:,} bytes is larger than grpc_max_message_length {options.grpc_max_message_length:,}"
            )
        self._check_mine()
        if self._rate is not None:
            self._rate.take(1, size)
        with self._changed:
            self._wait_for_room(size)
            sealed = self._seal_other_columns(checker)
            if not self._manual and self._buffer.rows and self._buffer.bytes + size > options.mutation_buffer_space:
                sealed = self._seal("bytes")
            buffer = self._buffer
            buffer.note_time(self.client.time_source)
            if tracked is not None:
                buffer.tracked.append(Tracked(tracked.future, tracked.until, buffer.rows))
            buffer.add_row(checker, values, operator, size, columns)
            if operator in STRICT and checker.keys:
                buffer.strict = True
            self.metrics.rows_applied += 1
            sealed = self._after_rows() or sealed
        if sealed and not self._background:
            self.drain()

    def _seal_other_columns(self, checker: RowChecker) -> bool:
        """Seal buffered rows whose columns differ from those of the next rows: a segment has one set of columns; call with the lock."""
        sealed = False
        while self._buffer.rows and self._buffer.checker is not checker:
            sealed = self._seal("columns")
        return sealed and not self._manual

    def take_table(self, checker: RowChecker, table: pa.Table, *, strict: bool) -> None:
        """Take Arrow data with the columns of a segment; errors as for :meth:`take_row`, before any row is taken.

        Args:
            checker: of the columns that the data have.
            table: the data.
            strict: some rows have an operator that looks its key up.
        """
        self._check_mine()
        # A part of the pool at a time, so that a large table meets the bound of bytes as rows do.
        step = max(1, table.num_rows * self.options.grpc_max_message_length // max(1, table.nbytes))
        for first in range(0, table.num_rows, step):
            part = table.slice(first, step)
            if self._rate is not None:
                self._rate.take(part.num_rows, part.nbytes)
            with self._changed:
                if not first or not self._manual:  # a stream that is flushed by hand takes all of the data or nothing
                    self._wait_for_room(table.nbytes if self._manual else part.nbytes, goes_on=first > 0)
                self._check_takes()
                sealed = self._seal_other_columns(checker)
                self._buffer.note_time(self.client.time_source)
                self._buffer.add_table(checker, part)
                self._buffer.strict |= strict
                self.metrics.rows_applied += part.num_rows
                sealed = self._after_rows() or sealed
            if sealed and not self._background:
                self.drain()

    def _after_rows(self) -> bool:
        """Seal the buffer when it is full, else set its timer; call with the lock."""
        buffer, options = self._buffer, self.options
        if self._manual:
            return False
        if buffer.rows >= options.mutation_buffer_lines_num:
            return self._seal("rows")
        if buffer.bytes >= options.mutation_buffer_space:
            return self._seal("bytes")
        if options.flush_interval and self._stop_timer is None:
            self._set_timer()
        return False

    @property
    def flushes_by_hand(self) -> bool:
        """Whether rows stay in the buffer until the program flushes them."""
        return self._manual

    @property
    def is_mine(self) -> bool:
        """Whether this process opened the stream."""
        return self._process == os.getpid()

    def _check_mine(self) -> None:
        if not self.is_mine:  # before a lock is taken: no thread of a forked child would release it
            raise StreamClosed("the stream belongs to the process that opened it: a forked child opens its own")

    def check_usable(self) -> None:
        """Raise when the stream takes no rows.

        Raises:
            StreamClosed: it was closed.
            FlushFailed: it has failed.
        """
        if self.is_closed:
            raise StreamClosed("the stream is closed")
        if self.failure is not None:
            # A new error each time: one that is raised twice collects the traces of both.
            raise FlushFailed(str(self.failure)) from self.failure.__cause__

    def _has_room(self, size: int) -> bool:
        used_bytes = self._bytes + self._buffer.bytes
        within = used_bytes + size <= self.options.max_buffered_bytes or not used_bytes
        return within and (self._manual or len(self._sealed) < self.options.mutation_buffer_max_num)

    def _check_takes(self) -> None:
        self.check_usable()
        if self._is_closing:
            raise StreamClosed("the stream is being closed")
        given_up = GIVEN_UP.get()
        if given_up is not None and given_up.is_set():
            raise StreamError("the call was cancelled before its row was taken")

    def give_up(self, call: threading.Event) -> None:
        """Let a call, which has the event as its :data:`GIVEN_UP`, take no row from now on."""
        with self._changed:
            call.set()
            self._changed.notify_all()

    def _wait_for_room(self, size: int, *, goes_on: bool = False) -> None:
        """Wait until a row of `size` bytes has a place; call with the lock, which is not held meanwhile.

        Args:
            size: in bytes.
            goes_on: other rows of the same call were taken: wait without end.
        """
        self._check_takes()
        if self._has_room(size):
            return
        if self._manual:
            raise BufferFull(
                f"the stream holds {self._bytes + self._buffer.bytes:,} bytes, as many as max_buffered_bytes allows: flush it"
            )
        monotonic = self.client.time_source.monotonic
        start, timeout = monotonic(), None if goes_on else self.options.apply_timeout
        while not self._has_room(size):
            if not self._sealed:
                self._seal("bytes")  # no other buffer would make place
            if not self._background:
                self._changed.release()
                try:
                    self.drain()
                finally:
                    self._changed.acquire()
            else:
                waited = monotonic() - start
                if timeout is not None and waited * 1000 >= timeout:
                    raise BackPressureTimeout(
                        f"no buffer was free within {timeout} ms: storage is slower than the rows come"
                    )
                self._changed.wait(None if timeout is None else timeout / 1000 - waited)
            self._check_takes()
        self.metrics.backpressure_seconds += monotonic() - start

    def would_wait(self, size: int = 0) -> bool:
        """Return whether a row applied now might wait."""
        with self._changed:
            last = self._buffer.rows + 1 >= self.options.mutation_buffer_lines_num
            full = self._rate is not None or not self._has_room(size) or self.committer.untold is not None
            return full or (last and not self._background and not self._manual)

    def mark(self, offset: object) -> None:
        """Associate a position in the source with the rows so far.

        Raises:
            InvalidInputError: it is no JSON value, or too long for a commit.
        """
        self._check_mine()
        position = checked_offset(offset)
        with self._changed:
            self._check_takes()
            # A source cannot ask how far a stream without a name came, and sends nothing again.
            self._marks = not self.flusher.writer.is_anonymous
            self._buffer.mark(position)

    # --- sealing -------------------------------------------------------------------------------------------------

    def _seal(self, trigger: str) -> bool:
        """Close the buffer; call with the lock. False: there is nothing to write."""
        buffer = self._buffer
        if self._stop_timer is not None:
            self._stop_timer()
            self._stop_timer = None
        if not buffer.rows and buffer.marked is None:
            return False
        by_itself = trigger in ("rows", "bytes", "timer", "columns", "failure")
        rest = buffer.split() if by_itself and buffer.marked is not None else None
        buffer.trigger = trigger
        buffer.tail = by_itself and self._marks and buffer.marked is None
        self._buffer = rest or Buffer()
        self._sealed.append(buffer)
        self._bytes += buffer.bytes
        if rest is not None and self.options.flush_interval:
            self._set_timer(self.client.time_source.monotonic() - rest.opened)
        if self._background:
            self._start_worker()
            self._changed.notify_all()
        return True

    def _set_timer(self, waited: float = 0.0) -> None:
        """Set the timer that seals the buffer; its first row came `waited` seconds ago."""
        seconds = max(0.001, self.options.flush_interval / 1000 - waited)
        self._stop_timer = self.client.time_source.schedule_periodic(
            seconds, partial(self._on_time, self._buffer), "lakefmt-stream-flush"
        )

    def _on_time(self, buffer: Buffer) -> None:
        with self._changed:
            if buffer is not self._buffer or self.is_closed or not self._seal("timer"):
                return
        if not self._background:
            self._drain_quietly()

    def _start_worker(self) -> None:
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="lakefmt-stream-writer", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._sealed or self.failure is not None:
                    if self.is_closed:
                        return
                    self._changed.wait()
            self._drain_quietly()

    def _drain_quietly(self) -> None:
        try:
            self.drain()
        except FlushFailed as error:
            _log.warning("stream %s failed: %s", self.flusher.writer.stream, error)
        except Exception as error:  # noqa: BLE001  (the worker lives as long as the stream: others wait for it)
            _log.warning("stream %s: %s", self.flusher.writer.stream, error)

    # --- writing -------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Write every sealed buffer, in order; return when all are durable.

        Raises:
            FlushFailed: some rows are not.
        """
        with self._writing:
            while self.failure is None and (buffers := self._next_buffers()):
                self._write(buffers)
        if self.failure is not None:
            raise FlushFailed(str(self.failure)) from self.failure.__cause__
        self.committer.commit_if_due()

    def _next_buffers(self) -> list[Buffer]:
        """Return the first buffers that wait; several make one segment, as far as its size allows."""
        with self._changed:
            return first_together(self._sealed, self.options.grpc_max_message_length)

    def _write(self, buffers: Sequence[Buffer]) -> None:
        monotonic = self.client.time_source.monotonic
        start, rows = monotonic(), 0

        def confirm(header: SegmentHeader) -> None:
            nonlocal rows
            rows += header.rows
            tracked = take_tracked(buffers, rows)
            self.committer.add(header, [each.future for each in tracked if each.until == "committed"])
            finish_futures(each.future for each in tracked if each.until == "durable")

        try:
            skipped = self.flusher.flush(buffers, confirm, tail=buffers[-1].tail)
        except RefusedRows as error:
            with self._changed:
                refused, remaining = self._sealed.popleft().parted(error.rows)
                self._bytes += refused.bytes + remaining.bytes - buffers[0].bytes
                self._sealed.extendleft((remaining, refused))
            return
        except FlushFailed as error:
            self._fail(error, buffers)
            return
        except Exception as error:  # noqa: BLE001  (whatever it is, the rows are the caller's)
            failed = FlushFailed(f"rows of stream {self.flusher.writer.stream!r} are not durable: {error}")
            failed.__cause__ = error
            self._fail(failed, buffers)
            return
        self.metrics.flushed(buffers[-1].trigger, rows, monotonic() - start)
        with self._changed:
            for buffer in buffers:
                self._sealed.popleft()
                self._bytes -= buffer.bytes
            self._changed.notify_all()
        if skipped is not None:
            finish_futures((each.future for buffer in buffers for each in buffer.tracked), error=skipped)

    def _fail(self, error: FlushFailed, buffers: Sequence[Buffer]) -> None:
        """Stop taking rows; everything that is not durable is a failed row."""
        with self._changed:
            buffers_left = [*list(self._sealed)[len(buffers) :], self._buffer]
            batches_of_error = [batch for batch in error.batches if isinstance(batch, FailedBatch)]
            first = batches_of_error or failed_batches(buffers, error.__cause__)
            self._failed += [*first, *failed_batches(buffers_left, None)]
            tracked = [each for buffer in (*self._sealed, self._buffer) for each in buffer.tracked]
            self._sealed.clear()
            self._bytes, self._buffer, self.failure = 0, Buffer(), error
            if self._stop_timer is not None:
                self._stop_timer()
                self._stop_timer = None
            self._changed.notify_all()
        finish_futures((each.future for each in tracked), error=error)

    # --- flush, close --------------------------------------------------------------------------------------------

    def flush(self, trigger: str = "explicit") -> None:
        """Make everything durable that was applied before the call.

        Raises:
            FlushFailed: some rows are not.
            StreamClosed: the stream was closed.
        """
        self._check_mine()
        with self._changed:
            self.check_usable()
            self._is_closing |= trigger == "close"
            self._seal(trigger)
        self.drain()

    def write_buffers(self) -> list[SegmentHeader]:
        """Write everything that was applied, and return the segments that are not committed.

        What is behind the last mark stays so: the source sends it again if this process dies before the next mark.

        Raises:
            FlushFailed: some rows are not durable.
            StreamClosed: the stream was closed.
        """
        self._check_mine()
        for _ in range(2):  # what stands behind a mark is a segment of its own
            with self._changed:
                self.check_usable()
                self._seal("rows")
            self.drain()
        return self.committer.pending

    def tell(self) -> None:
        """Raise when a commit that the stream made by itself has failed, and no call has said so.

        Raises:
            CommitFailed: all rows so far are durable.
            FlushFailed: some are not.
        """
        if self.committer.untold is None:
            return
        with self._changed:
            self._seal("failure")
        self.drain()
        error = self.committer.take_untold()
        if error is not None:
            # A new error: one that is raised twice collects the traces of both.
            raise CommitFailed(str(error)) from error.__cause__

    def failed_rows(self) -> list[FailedBatch]:
        """Return the rows that are not durable, and why."""
        with self._changed:
            return list(self._failed)

    def reopen(self) -> list[FailedBatch]:
        """Take rows again after a failure, under a new claim; return the failed rows, which are the caller's."""
        self._check_mine()
        with self._writing:
            if self.is_closed:
                raise StreamClosed("the stream is closed: open another one")
            doubt = self.flusher.writer.in_doubt
            writer = self._reclaim()
            self.flusher.writer, writer.in_doubt = writer, doubt
            is_durable = writer.settle()
            if is_durable is None:
                raise StorageError(
                    "it is not known yet whether failed rows are durable: call reopen again", transient=True
                )
            with self._changed:
                failed = [
                    replace(batch, may_be_committed=False)
                    for batch in self._failed
                    if not (is_durable and batch.may_be_committed)
                ]
                self.failure = None
                self._failed.clear()
                self._changed.notify_all()
            return failed

    def _reclaim(self) -> SegmentWriter:
        """Claim the stream again; commit confirmed segments, and discard the others."""
        old = self.flusher.writer
        old.held.release()
        confirmed = self.committer.last_confirmed
        writer = SegmentWriter.open(
            self.client,
            old.stream,
            self._commit_options,
            self._finish,
            self.options.lease_interval_ms,
            confirmed,
        )
        self.committer.follow(writer)
        return writer

    def rows_at_risk(self) -> int:
        """Return how many rows were applied and are not durable."""
        with self._changed:
            return self._buffer.rows + sum(buffer.rows for buffer in self._sealed)

    def gauges(self) -> dict[str, object]:
        """Return what is held now."""
        with self._changed:
            return {
                "bytes_buffered": self._bytes + self._buffer.bytes,
                "buffers_waiting": len(self._sealed),
                "rows_buffered": self._buffer.rows + sum(buffer.rows for buffer in self._sealed),
            }

    def discard(self) -> int:
        """Drop the open buffer; return how many rows it had."""
        with self._changed:
            self._is_closing = True
            rows, tracked = self._buffer.rows, self._buffer.tracked
            self._buffer = Buffer()
            if self._stop_timer is not None:
                self._stop_timer()
                self._stop_timer = None
        for each in tracked:
            each.future.cancel()
        return rows

    def end(self) -> None:
        """Release everything; call once."""
        with self._changed:
            self.is_closed = True
            if self._stop_timer is not None:
                self._stop_timer()
                self._stop_timer = None
            self._changed.notify_all()
        self.committer.stop()
        worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join()
        try:
            self.flusher.writer.end()
        except LakefmtError as error:
            # A recovery of streams removes what is left, once the claim is dead.
            _log.warning("stream %s: it was closed, and its claim is left: %s", self.flusher.writer.stream, error)
