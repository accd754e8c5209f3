"""A stream's buffers and their flush: rows and Arrow data become segments, in their order, with attempts after failures (effects).

A stream may have a bound on the rows and bytes that it takes in a second (:class:`RateLimit`, which waits).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import field
from itertools import compress, groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arguments import Raised, run_foreign, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.producers.stream.committing import KeyScope, has_record_keys, key_scope, stored_rows
from lakefmt._core.producers.stream.options import (
    ErrorTypeHandler,
    FailedBatch,
    StreamOptions,
    chained,
    pause_seconds,
    retry_status_of,
    tries_again,
)
from lakefmt._core.producers.stream.rows import RowChecker
from lakefmt._core.schema import conform
from lakefmt._core.segments.codec import COLUMNS, OPERATOR, RowOperator, SegmentHeader, encode_segment, read_segments
from lakefmt._core.segments.pending import committed_of_streams
from lakefmt._core.segments.resolve import (
    check_altered_back,
    check_storable,
    codes_in,
    columns_since,
    current_rows,
    dropped_columns,
    fitted,
    is_set,
    joined_rows,
    moved_rows,
    number_keys,
    operators_of,
    places_since,
    row_identities,
    stored_identities,
    strict_violations,
)
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt.errors import (
    CorruptFile,
    DuplicateKey,
    FlushFailed,
    InvalidInputError,
    KeyNotFound,
    LakefmtError,
    ObjectNotFound,
    SchemaChanged,
    SchemaMismatch,
    StorageError,
    StreamUnavailable,
)

if TYPE_CHECKING:
    from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
    from lakefmt._core.producers.stream.committing import StreamMetrics
    from lakefmt._core.producers.stream.opening import SegmentWriter
    from lakefmt._core.schema.column_ids import ColumnPlaces

__all__ = [
    "Buffer",
    "Flusher",
    "RateLimit",
    "Tracked",
    "failed_batches",
    "finish_futures",
    "first_together",
    "take_tracked",
]

DEAD_LETTERS = ".hoodie/.lakefmt/dead-letters"

#: Takes a segment that is durable.
Confirm = Callable[[SegmentHeader], None]

_log = logging.getLogger("lakefmt.streams")


@dataclass(slots=True)
class _Segment:
    """A segment that is to be written; the same bytes at every attempt."""

    rows: pa.Table
    columns: str
    offset: Any
    tail: bool
    header: SegmentHeader | None = None
    data: bytes = b""


class RefusedRows(Exception):
    """Strict operators refuse some rows of a flush; the others are to be flushed without them.

    Attributes:
        rows: which are refused.
    """

    def __init__(self, rows: npt.NDArray[np.bool_]) -> None:
        super().__init__(f"{int(rows.sum())} of {len(rows)} rows are refused")
        self.rows = rows


class Flusher:
    """Writes buffers as segments. One thread at a time uses it.

    Args:
        client: the table.
        writer: writes segments.
        options: of the stream.
        metrics: counts.
        reclaim: takes the stream again after it was lost, and returns the new writer.
        pending: tells the segments that are durable and not committed.
        see: gets the table as it is when a segment is made.
    """

    def __init__(
        self,
        client: TableClient,
        writer: SegmentWriter,
        options: StreamOptions,
        metrics: StreamMetrics,
        reclaim: Callable[[], SegmentWriter],
        pending: Callable[[], Sequence[SegmentHeader]],
        see: Callable[[TableState], None],
    ) -> None:
        self.client, self.writer, self._options, self._metrics = client, writer, options, metrics
        self._reclaim, self._pending, self._see = reclaim, pending, see
        self._letters = 0
        #: The rows that strict operators of the flush refuse; None: it was not refused.
        self._refused: npt.NDArray[np.bool_] | None = None
        self._unmarked: list[Any] = []  # the offset of rows that were skipped, as long as it is not durable
        self._scope: tuple[object, KeyScope] | None = None

    def flush(self, buffers: Sequence[Buffer], confirm: Confirm, *, tail: bool) -> Exception | None:
        """Make buffers durable, and return why the last rows of them were skipped; None: they were not.

        Args:
            buffers: in order.
            confirm: is called with each segment once it is durable, whatever becomes of the next one.
            tail: their source sends their rows again unless a mark follows.

        Raises:
            FlushFailed: some rows are not durable; the error's ``batches`` have them.
            RefusedRows: some rows are refused and are not to end the stream; nothing was written.
        """
        start = self.client.time_source.monotonic()
        segments: list[_Segment] | None = None
        attempts, lost = 0, False
        first: Exception | None = None
        while True:
            try:
                if lost:
                    if self._settle(segments, confirm) is None:
                        raise StorageError("it is not known yet whether the segment before is durable", transient=True)
                    self.writer, lost = self._reclaim(), False
                    for segment in segments or ():
                        segment.header = None
                if segments is None:
                    segments = self._segments(buffers, tail=tail)
                self._write(segments, confirm)
                return None
            except LakefmtError as error:
                failure: Exception = error
            except Exception as error:  # noqa: BLE001  (an unexpected error must not lose rows)
                failure = error
            self._check_refused(buffers, failure)
            attempts += 1
            first = first or failure
            if not self._again(failure, attempts, self.client.time_source.monotonic() - start):
                chained(failure, first)
                is_told = self._settle(segments, confirm) is not None
                if segments is not None and not segments:
                    return None  # the last of them is durable: another process has committed it, or will
                rows = self._unsent(buffers, segments)
                if self._handled(rows, segments, failure, is_told=is_told) == "retry":
                    lost = lost or isinstance(failure, StreamUnavailable)
                    continue
                self._give_up(segments)
                self._mark_skipped(buffers, segments, confirm)
                return failure
            lost = lost or isinstance(failure, StreamUnavailable)

    def _check_refused(self, buffers: Sequence[Buffer], failure: Exception) -> None:
        """Have rows that are refused flushed apart from their neighbours, where they do not end the stream.

        Raises:
            RefusedRows: some are.
        """
        refused, self._refused = self._refused, None
        if refused is None or refused.all() or self._options.error_type_handler is ErrorTypeHandler.TERMINATE_INSTANCE:
            return
        (buffer,) = buffers  # those with strict operators are flushed alone
        if buffer.marked in (None, buffer.rows):
            raise RefusedRows(refused) from failure

    def _again(self, error: Exception, attempts: int, seconds: float) -> bool:
        """Wait and return True when another attempt is to be made."""
        status = retry_status_of(error)
        lost = isinstance(error, StreamUnavailable)
        if lost and self.writer.is_anonymous and attempts <= self._options.request_failed_retry_times:
            return True  # the process that took it only finished its work: no other opens a stream of this id
        if not tries_again(self._options, status, attempts, seconds) or lost:
            return False
        name = "" if status is None else status.name
        if self._options.request_failed_retry_log_debug_enable:
            _log.debug("stream %s: attempt %d failed (%s): %s", self.writer.stream, attempts, name, error)
        self._metrics.retried(name)
        time_source = self.client.time_source
        time_source.sleep(pause_seconds(self._options, attempts, time_source.jitter(), seconds))
        return True

    # --- segments ------------------------------------------------------------------------------------------------

    def _segments(self, buffers: Sequence[Buffer], *, tail: bool) -> list[_Segment]:
        """Return the segments of buffers: as few as the largest size of one allows."""
        # Before the table is looked at: a segment that is committed meanwhile is then in the table.
        before = list(self._pending()) if any(buffer.strict for buffer in buffers) else None
        state = self.client.load()
        table_at = self.client.at(state)
        self._see(state)
        schema, columns = table_at.schema(), columns_since(table_at)
        tables = [table for buffer in buffers for table in buffer.tables()]
        offsets = [buffer.offset for buffer in buffers if buffer.marked is not None]
        offset = offsets[-1] if offsets else None
        marked = [_Segment(_no_rows(schema), columns, each, tail=False) for each in self._unmarked]
        self._unmarked.clear()
        if not tables:
            return [*marked, _Segment(_no_rows(schema), columns, offset, tail)]
        since = next(buffer.checker.since for buffer in buffers if buffer.checker is not None)
        if since != columns:
            self._check_dropped(state, since, joined_rows(tables), buffers)
        rows = _in_schema(table_at, since, tables)
        check_storable(self.client.key_spec(state.config), rows, keyed=has_record_keys(table_at))
        if before is not None:
            self._check_strict(state, rows, before)
        count = max(1, -(-rows.nbytes // self._options.grpc_max_message_length))
        step = max(1, -(-rows.num_rows // count))
        starts = range(0, rows.num_rows, step)
        # The source sends the rows before an offset again as long as the offset is not there.
        is_tail = tail or (offset is not None and not self.writer.is_anonymous)
        parts = [
            _Segment(rows.slice(first, step), columns, offset, tail)
            if first == starts[-1]
            else _Segment(rows.slice(first, step), columns, None, is_tail)
            for first in starts
        ]
        return [*marked, *parts]

    def _check_dropped(self, state: TableState, since: str, rows: pa.Table, buffers: Sequence[Buffer]) -> None:
        """Refuse rows that were taken after a column was dropped and set it; of earlier ones it is left out.

        Raises:
            SchemaChanged: there are some.
        """
        dropped = dropped_columns(self.client.at(state), since)
        if not dropped or not rows.num_rows:
            return
        now = self.client.clock.now().timestamp() - self.client.time_source.monotonic()
        # Instants have milliseconds.
        arrival_times = np.floor((np.concatenate([buffer.times() for buffer in buffers]) + now) * 1000) / 1000
        for path, at in dropped:
            late = is_set(rows, path) & (arrival_times > at)
            if late.any():
                raise SchemaChanged(
                    f"column {'.'.join(path)!r} was dropped, and {int(late.sum())} rows that were applied later set it; "
                    "the rows are kept"
                )

    def _write(self, segments: list[_Segment], confirm: Confirm) -> None:
        """Write what is left of some segments."""
        while segments:
            segment = segments[0]
            if segment.header is None:
                segment.data = segment.data or encode_segment(segment.rows)
                scope = self._key_scope()
                # Only a segment with an offset ends a part of the source.
                segment.header = self.writer.header(
                    segment.rows.num_rows,
                    segment.data,
                    offset=segment.offset,
                    scope=scope,
                    tail=segment.tail,
                    columns=segment.columns,
                )
            self.writer.write(segment.header, segment.data)
            segments.pop(0)
            confirm(segment.header)

    def _key_scope(self) -> KeyScope:
        config = self.client.load_config()
        if self._scope is None or self._scope[0] is not config:
            state, scope = self.client.load(), KeyScope(across=False, stays=False)
            if has_record_keys(self.client.at(state)):
                scope = key_scope(self.client.at(state), self._options.properties)
            self._scope = (config, scope)
        return self._scope[1]

    def _settle(self, segments: list[_Segment] | None, confirm: Confirm) -> bool | None:
        """Return whether the first segment is durable after all, and remove it from the list then; None: not known."""
        header = segments[0].header if segments else None
        if segments is None or header is None or self.writer.in_doubt is None:
            return False
        outcome = self.writer.settle()
        if outcome:
            segments.pop(0)
            confirm(header)
        elif outcome is not None:
            segments[0].header = None
        return outcome

    def _give_up(self, segments: list[_Segment] | None) -> None:
        """Delete rows without a header of a segment that was given up."""
        header = segments[0].header if segments else None
        if header is not None and self.writer.in_doubt is None:
            try:
                self.writer.forget(header)
            except LakefmtError as error:
                _log.debug("stream %s: rows of a segment that was given up are left: %s", self.writer.stream, error)

    def _mark_skipped(self, buffers: Sequence[Buffer], segments: list[_Segment] | None, confirm: Confirm) -> None:
        """Make the offset of skipped rows durable, now or with the next rows: their source is not to send them again."""
        offsets = (
            [buffer.offset for buffer in buffers if buffer.marked is not None]
            if segments is None
            else [segment.offset for segment in segments if segment.offset is not None]
        )
        if not offsets or self.writer.is_anonymous:
            return
        self._unmarked[:] = offsets[-1:]
        try:
            state = self.client.load()
            columns = columns_since(self.client.at(state))
            self._write([_Segment(_no_rows(self.client.at(state).schema()), columns, offsets[-1], tail=False)], confirm)
        except LakefmtError as error:
            _log.debug("stream %s: the offset of skipped rows waits for the next ones: %s", self.writer.stream, error)
        else:
            self._unmarked.clear()

    def _unsent(self, buffers: Sequence[Buffer], segments: list[_Segment] | None) -> pa.Table:
        if segments is not None:
            return pa.concat_tables([segment.rows for segment in segments])
        tables = [table for buffer in buffers for table in buffer.tables()]
        return joined_rows(tables) if tables else pa.table({})

    # --- strict operators ----------------------------------------------------------------------------------------

    def _check_strict(self, state: TableState, rows: pa.Table, pending: Sequence[SegmentHeader]) -> None:
        """Look up the keys of strict operators in the table and in what is durable and not committed.

        Args:
            state: the table.
            rows: of the segment.
            pending: what was not committed before `state` was loaded.

        Raises:
            DuplicateKey: an insert of a key that is there.
            KeyNotFound: an update or delete of a key that is not there.
            ObjectNotFound: a pending segment is gone, and was not committed.
        """
        schema = self.client.at(state).schema()
        headers = self._waiting(state, pending)
        try:
            tables = current_rows(self.client.at(state), headers, read_segments(self.client.store, headers))
        except ObjectNotFound:
            still_pending, state = list(self._pending()), self.client.load()
            if self._waiting(state, still_pending) == headers:
                raise
            # Committed and deleted meanwhile: the table has them now.
            self._check_strict(state, rows, still_pending)
            return
        before = [fitted(table, schema) for table in tables]
        first = sum(table.num_rows for table in before)
        every = joined_rows([*before, rows])
        across = self._key_scope().across
        spec = self.client.key_spec(state.config)
        identities, keys, partitions = row_identities(spec, every, across=across)
        key_numbers, distinct = number_keys(identities)
        rows_there = stored_rows(self.client.at(state), self._options.properties, keys, partitions, [])
        stored = codes_in(stored_identities(rows_there, across=across), distinct)
        present = np.zeros(len(distinct), bool)
        present[stored[stored >= 0]] = True
        operators = operators_of(every)
        violations = strict_violations(operators, key_numbers, present, first)
        wrong = np.flatnonzero(violations)
        if not len(wrong):
            return
        self._refused = violations[first:]
        row = int(wrong[0])
        key, more = shown(str(keys[row])), f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        if operators[row] == RowOperator.INSERT.value:
            raise DuplicateKey(f"key {key}{more} cannot be inserted: the table has it; use UPSERT or INSERT_IGNORE")
        raise KeyNotFound(f"key {key}{more} cannot be changed: the table does not have it; use UPSERT or DELETE_IGNORE")

    def _waiting(self, state: TableState, pending: Sequence[SegmentHeader]) -> list[SegmentHeader]:
        """Return the segments that are not in the table: another stream may have committed some."""
        stream = self.writer.stream
        committed = committed_of_streams(self.client.at(state), {stream: self.writer.since}).get(stream)
        return [each for each in pending if committed is None or each.position > committed.position]

    # --- failures ------------------------------------------------------------------------------------------------

    def _handled(self, rows: pa.Table, segments: Sequence[_Segment] | None, error: Exception, *, is_told: bool) -> str:
        """Ask the handler; return ``"skip"`` or ``"retry"``.

        Args:
            rows: that are not durable.
            segments: that they are in, where these were made.
            error: why.
            is_told: the store said so; else they may be.

        Raises:
            FlushFailed: the stream fails.
        """
        answer = run_foreign(lambda: self._answer(rows, error))
        if isinstance(answer, Raised):
            error = answer.error
        elif answer != "fail":
            return answer
        subject = f"{rows.num_rows} rows of stream {self.writer.stream!r}"
        failed = FlushFailed(
            f"{subject} are not durable: {error}"
            if is_told
            else f"{subject} may be committed, the store does not say so: {error}; reopen() returns those to send again"
        )
        # Only the first segment was begun.
        first = rows.num_rows if segments is None or is_told else segments[0].rows.num_rows
        parts = [FailedBatch(rows.slice(0, first), error, may_be_committed=not is_told)]
        failed.batches = [*parts, *([FailedBatch(rows.slice(first), error)] if first < rows.num_rows else [])]
        raise failed from error

    def _answer(self, rows: pa.Table, error: Exception) -> str:
        """Return what the options or the caller's function say, once rows to be skipped are in the dead letters."""
        handler = self._options.error_type_handler
        if isinstance(handler, ErrorTypeHandler):
            answer = "skip" if handler is ErrorTypeHandler.IGNORE else "fail"
        else:
            answer = handler(FailedBatch(rows, error), error)
        if answer not in ("retry", "skip", "fail"):
            raise InvalidInputError(f"error_type_handler answered {shown(answer)}: expected 'retry', 'skip' or 'fail'")
        if answer == "skip":
            self._bury(rows, error)
        return answer

    def _bury(self, rows: pa.Table, error: Exception) -> None:
        """Write skipped rows to the dead letters, or log that they are lost."""
        folder = self._options.dead_letter_path
        if folder is None:
            self._metrics.dead_letter_rows += rows.num_rows
            _log.warning("stream %s: %d rows were skipped and are gone: %s", self.writer.stream, rows.num_rows, error)
            return
        self._letters += 1
        name = f"{DEAD_LETTERS}/{folder}/{self.writer.stream}-{self.writer.held.epoch:08d}-{self._letters:08d}.arrow"
        letter = rows.append_column("_error", pa.repeat(pa.scalar(str(error)), rows.num_rows))
        put_if_absent_confirmed(self.client.store, name, encode_segment(letter), durable=self.writer.durable)
        self._metrics.dead_letter_rows += rows.num_rows


def _no_rows(schema: pa.Schema) -> pa.Table:
    fields = [field.with_nullable(True) for field in schema]
    return pa.schema([*fields, pa.field(OPERATOR, pa.int8())]).empty_table()


def _in_schema(table_at: TableAt, since: str, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of buffers in the table's columns as they are now.

    Args:
        table_at: the table, at one moment.
        since: what :func:`columns_since` said when the rows were taken.
        tables: the rows.

    Raises:
        SchemaChanged: they do not fit any more.
    """
    rows, schema = joined_rows(list(tables)), table_at.schema()
    try:
        check_altered_back(table_at, since, rows)
        fit = fitted(_moved(rows, schema, places_since(table_at, since)), schema)
    except (CorruptFile, SchemaMismatch) as error:
        buffered = pa.schema([field for field in rows.schema if not field.name.startswith("_lakefmt_")])
        raise SchemaChanged(
            f"the table's columns were changed so that rows of the stream do not fit: {error}; they were {buffered.names}, "
            f"and are {schema.names}; the rows are kept"
        ) from None
    present = set(fit.column_names)
    required = [field.name for field in schema if not field.nullable and field.name not in present]
    if required:
        raise SchemaChanged(f"the table has new required columns {', '.join(required)}, which rows of the stream lack")
    return fit


def _moved(rows: pa.Table, schema: pa.Schema, column_places: ColumnPlaces | None) -> pa.Table:
    """Return the rows of buffers with the present names and types of their columns.

    Raises:
        SchemaMismatch: a column was dropped, and a new one of its name takes no values of its type.
    """
    moved = moved_rows(rows, column_places)
    new = frozenset(schema.names) - frozenset(moved.column_names)
    reused_names = (
        [] if column_places is None else [name for name in column_places.left_out(rows.column_names) if name in new]
    )
    conform(rows.select(reused_names).slice(0, 0), pa.schema([schema.field(name) for name in reused_names]))
    return moved


#: Rows that come within so many seconds have one time.
_SAME_TIME_SECONDS: Final = 0.0002
#: Set columns of a row, as a segment stores them.
_COLUMNS_TYPE: Final = pa.string()


@dataclass(slots=True)
class _RowRun:
    """Rows that follow one another, with one operator each."""

    checker: RowChecker
    rows: list[Any] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    columns: dict[int, str] = field(default_factory=dict)

    def table(self) -> pa.Table:
        table = self.checker.columns(self.rows)
        table = table.append_column(OPERATOR, pa.array(self.operators, pa.int8()))
        if not self.columns:
            return table
        column_sets = np.full(len(self.rows), None, object)
        column_sets[list(self.columns)] = list(self.columns.values())
        return table.append_column(COLUMNS, pa.array(column_sets, _COLUMNS_TYPE))


@dataclass(frozen=True, slots=True)
class Tracked:
    """A row that a caller follows.

    Attributes:
        future: is done at the moment asked for.
        until: ``"durable"`` or ``"committed"``.
        row: its number in its buffer.
    """

    future: Future[object]
    until: str
    row: int


def _cut_part(part: _RowRun | pa.Table, first: int, end: int) -> _RowRun | pa.Table:
    if isinstance(part, pa.Table):
        return part.slice(first, end - first)
    columns = {number - first: encoded for number, encoded in part.columns.items() if first <= number < end}
    return _RowRun(part.checker, part.rows[first:end], part.operators[first:end], columns)


def _part_of(part: _RowRun | pa.Table, mask: npt.NDArray[np.bool_]) -> _RowRun | pa.Table:
    if isinstance(part, pa.Table):
        return part.filter(pa.array(mask))
    indices = np.cumsum(mask) - 1
    columns = {int(indices[number]): encoded for number, encoded in part.columns.items() if mask[number]}
    return _RowRun(part.checker, list(compress(part.rows, mask)), list(compress(part.operators, mask)), columns)


@dataclass(slots=True)
class Buffer:
    """What was applied since the last seal.

    Attributes:
        rows: how many.
        bytes: about how large.
        opened: monotonic seconds of the first row behind the last mark.
        offset: what the program said last of its position in its source.
        marked: rows up to the last mark; None: there was none.
        tracked: futures of rows that a caller follows.
        strict: whether a row has an operator that looks its key up.
        trigger: why it was sealed.
        tail: it was sealed by itself, behind the last mark of a stream that marks offsets.
        checker: of the columns that all its rows have; None: it has no rows.
    """

    opened: float = 0.0
    rows: int = 0
    bytes: int = 0
    offset: object = None
    marked: int | None = None
    strict: bool = False
    trigger: str = ""
    tail: bool = False
    tracked: list[Tracked] = field(default_factory=list)
    checker: RowChecker | None = None
    _parts: list[_RowRun | pa.Table] = field(default_factory=list)
    #: The number of a row, and when it and those that follow were taken.
    _times: list[tuple[int, float]] = field(default_factory=list)

    def note_time(self, time_source: TimeSource) -> None:
        """Note when the next row is taken."""
        now = time_source.monotonic()
        if self.rows == self.marked or not self.rows:
            self.opened = now
        if not self._times or now - self._times[-1][1] >= _SAME_TIME_SECONDS:
            self._times.append((self.rows, now))

    def times(self) -> npt.NDArray[np.float64]:
        """Return the monotonic seconds at which each row was taken."""
        starts = [number for number, _ in self._times]
        counts = np.diff([*starts, self.rows]) if starts else np.array([], np.int64)
        return np.repeat(np.array([seconds for _, seconds in self._times], np.float64), counts)

    def add_row(
        self, checker: RowChecker, values: object, operator: RowOperator, size: int, columns: str | None = None
    ) -> None:
        """Take a row that was checked."""
        parts = self._parts
        last = parts[-1] if parts else None
        if last is None or type(last) is not _RowRun:
            last = _RowRun(checker)
            parts.append(last)
            self.checker = checker
        if columns is not None:
            last.columns[len(last.rows)] = columns
        last.rows.append(values)
        last.operators.append(operator.value)
        self.rows += 1
        self.bytes += size

    def add_table(self, checker: RowChecker, table: pa.Table) -> None:
        """Take Arrow data with the columns of a segment."""
        self.checker = checker
        self._parts.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def mark(self, offset: object) -> None:
        """Note the position in the source of the rows so far."""
        self.offset, self.marked = offset, self.rows

    def split(self) -> Buffer | None:
        """Take away and return what was applied after the last mark; None: nothing was."""
        if self.marked is None or self.marked == self.rows:
            return None
        rest = Buffer(opened=self.opened, strict=self.strict, checker=self.checker)
        remaining_rows, parts = self.marked, self._parts
        self._parts = []
        for part in parts:
            count = len(part.rows) if isinstance(part, _RowRun) else part.num_rows
            here = min(count, max(remaining_rows, 0))
            remaining_rows -= here
            if here:
                self._parts.append(_cut_part(part, 0, here))
            if here < count:
                rest._parts.append(_cut_part(part, here, count))
        before = [each for each in self._times if each[0] <= self.marked]
        after = [(number - self.marked, seconds) for number, seconds in self._times if number > self.marked]
        rest._times = [*((0, seconds) for _, seconds in before[-1:] if not after or after[0][0]), *after]
        self._times = [each for each in before if each[0] < self.marked]
        rest.rows, self.rows = self.rows - self.marked, self.marked
        rest.bytes = self.bytes * rest.rows // (rest.rows + self.rows)
        self.bytes -= rest.bytes
        rest.tracked = [replace(each, row=each.row - self.marked) for each in self.tracked if each.row >= self.marked]
        self.tracked = [each for each in self.tracked if each.row < self.marked]
        return rest

    def parted(self, mask: npt.NDArray[np.bool_]) -> tuple[Buffer, Buffer]:
        """Return the chosen rows and the others, each with what its callers follow; the others keep the mark.

        Args:
            mask: of all rows; the mark is behind the last one, or there is none.
        """
        return self._select(mask, is_marked=False), self._select(~mask, is_marked=True)

    def _select(self, mask: npt.NDArray[np.bool_], *, is_marked: bool) -> Buffer:
        indices = np.cumsum(mask) - 1
        selection = Buffer(self.opened, strict=self.strict, trigger=self.trigger, tail=self.tail, checker=self.checker)
        selection.rows = int(mask.sum())
        selection.bytes = self.bytes * selection.rows // self.rows
        if is_marked and self.marked is not None:
            selection.offset, selection.marked = self.offset, selection.rows
        first = 0
        for part in self._parts:
            count = len(part.rows) if isinstance(part, _RowRun) else part.num_rows
            selection._parts.append(_part_of(part, mask[first : first + count]))
            first += count
        times = self.times()[mask]
        changes = np.flatnonzero(np.diff(times, prepend=np.nan) != 0)
        selection._times = list(zip(map(int, changes), map(float, times[changes]), strict=True))
        selection.tracked = [replace(each, row=int(indices[each.row])) for each in self.tracked if mask[each.row]]
        return selection

    def tables(self) -> list[pa.Table]:
        """Return the rows as columns, in order; rows of one schema are one table.

        Raises:
            SchemaMismatch: a value does not fit its column after all.
        """
        return [part.table() if isinstance(part, _RowRun) else part for part in self._parts]


def first_together(buffers: Iterable[Buffer], most_bytes: int) -> list[Buffer]:
    """Return the first of some buffers that become one segment: with the same columns, as far as its size allows.

    Args:
        buffers: that are sealed, in order.
        most_bytes: of a segment.
    """
    group, size, checker = list[Buffer](), 0, None
    for buffer in buffers:
        if group:
            alone = group[-1].tail != buffer.tail or group[-1].strict or buffer.strict
            other = checker is not None and buffer.checker is not None and buffer.checker is not checker
            if alone or other or size + buffer.bytes > most_bytes:
                break
        group.append(buffer)
        size += buffer.bytes
        checker = buffer.checker or checker
    return group


def failed_batches(buffers: Iterable[Buffer], cause: BaseException | None) -> list[FailedBatch]:
    """Return the rows of buffers that are not durable; those with the same columns are one batch.

    Args:
        buffers: in order.
        cause: why; None: they waited behind others that failed.
    """
    runs = groupby((buffer for buffer in buffers if buffer.rows), key=lambda buffer: id(buffer.checker))
    return [batch for _, run in runs for batch in _batch_of_buffers(list(run), cause)]


def _batch_of_buffers(buffers: Sequence[Buffer], cause: BaseException | None) -> list[FailedBatch]:
    """Return the rows of buffers as one batch; where they do not become columns, each row as a text."""
    rows = run_foreign(lambda: joined_rows([table for buffer in buffers for table in buffer.tables()]))
    if isinstance(rows, Raised):  # whatever it is, a stream that cannot fail would try for ever
        return [FailedBatch(_readable_rows(part), cause) for buffer in buffers for part in buffer._parts]
    return [FailedBatch(rows, cause)]


def _readable_rows(part: _RowRun | pa.Table) -> pa.Table:
    if isinstance(part, pa.Table):
        return part
    names = part.checker.names
    lines = [shown(dict(zip(names, values, strict=True))) for values in part.rows]
    return pa.table({"row": pa.array(lines, _COLUMNS_TYPE)})


def take_tracked(buffers: Sequence[Buffer], rows: int) -> list[Tracked]:
    """Take away and return what callers follow of the first rows of some buffers.

    Args:
        buffers: in order.
        rows: how many rows of all of them together.
    """
    removed, first = list[Tracked](), 0
    for buffer in buffers:
        removed += [each for each in buffer.tracked if first + each.row < rows]
        buffer.tracked = [each for each in buffer.tracked if first + each.row >= rows]
        first += buffer.rows
    return removed


def finish_futures(
    futures: Iterable[Future[object]], result: object = None, error: BaseException | None = None
) -> None:
    """Give futures their result or their error; one that its caller has cancelled, as a timeout does, stays as it is."""
    for future in futures:
        with suppress(InvalidStateError):
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


@dataclass(slots=True)
class RateLimit:
    """Lets through as much as the rates allow; what comes faster waits.

    Attributes:
        time_source: waits.
        rows_per_second: None: any number.
        bytes_per_second: None: any number.
    """

    time_source: TimeSource
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    _free_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, options: StreamOptions, time_source: TimeSource) -> RateLimit | None:
        """Return the bound of a stream's options; None: there is none."""
        if options.rows_per_second is None and options.bytes_per_second is None:
            return None
        return cls(time_source, options.rows_per_second, options.bytes_per_second)

    def take(self, rows: int, size: int) -> None:
        """Wait until so much may come."""
        costs = [0.0]
        if self.rows_per_second is not None:
            costs.append(rows / self.rows_per_second)
        if self.bytes_per_second is not None:
            costs.append(size / self.bytes_per_second)
        with self._lock:
            now = self.time_source.monotonic()
            begins = max(now, self._free_at)
            self._free_at = begins + max(costs)
        if begins > now:
            self.time_source.sleep(begins - now)
