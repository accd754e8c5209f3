"""Buffers: rows and Arrow data in the order in which they were applied, until they become a segment.

A stream may have a bound on the rows and bytes that it takes in a second (:class:`RateLimit`, which waits).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import field
from itertools import compress, groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arguments import Raised, run_foreign, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.producers.stream.options import FailedBatch, RowOperator, StreamOptions
from lakefmt._core.producers.stream.rows import RowChecker
from lakefmt._core.segments.codec import COLUMNS, OPERATOR
from lakefmt._core.segments.resolve import joined_rows
from lakefmt._core.storage.time_source import TimeSource

__all__ = [
    "Buffer",
    "RateLimit",
    "Tracked",
    "failed_batches",
    "finish_futures",
    "first_together",
    "take_tracked",
]


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
