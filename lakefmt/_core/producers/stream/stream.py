"""A stream: what a program holds while it sends rows; :class:`AsyncStream` is the same for programs that await (effects)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import warnings
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence, Sized
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from lakefmt._core.arguments import shown
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.producers.stream.committing import commit_options, has_record_keys
from lakefmt._core.producers.stream.core import GIVEN_UP, StreamCore
from lakefmt._core.producers.stream.flushing import Tracked
from lakefmt._core.producers.stream.opening import Finish, SegmentWriter, recover_others
from lakefmt._core.producers.stream.options import FailedBatch, FlushMode, StreamOptions
from lakefmt._core.producers.stream.rows import (
    FollowedColumns,
    Numbers,
    RowChecker,
    arrow_rows,
    encode_columns,
    has_strict,
    operator_numbers,
    row_mapping,
    without_column,
)
from lakefmt._core.segments.codec import (
    ANONYMOUS,
    DELETES,
    Committed,
    RowOperator,
    SegmentHeader,
    check_writer_id,
    parse_operator,
)
from lakefmt._core.values import CommitResult
from lakefmt._core.write.ingest import open_stream, read_all, rows_of_dicts
from lakefmt.errors import InvalidInputError, LakefmtError, SchemaMismatch, StreamClosed

__all__ = [
    "AsyncStream",
    "Stream",
    "open_row_stream",
]

AddColumns = Callable[[pa.Schema], None]


class Stream:
    """Rows into one table: buffered, durable after a flush, committed once a minute. Several threads may use it.

    Open it with ``table.open_stream``. It is a context manager: leaving it normally flushes and commits, leaving it by an
    exception drops the open buffer and commits what is durable, up to the last mark if the stream marks offsets.

    Example:
        >>> import lakefmt
        >>> t = lakefmt.create_table("memory://doc-row-stream", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
        >>> with t.open_stream() as stream:
        ...     stream.upsert({"id": "a", "v": 1})
        ...     stream.flush()
        ...     t.read().num_rows, t.read(include_uncommitted=True).num_rows
        (0, 1)
        >>> t.read().num_rows
        1
    """

    def __init__(
        self,
        client: TableClient,
        core: StreamCore,
        operators: frozenset[RowOperator],
        default: RowOperator,
        add_columns: AddColumns,
    ) -> None:
        self._client, self._core = client, core
        self._operators, self._default = operators, default
        self._add_columns = add_columns

    # --- rows ----------------------------------------------------------------------------------------------------

    @property
    def options(self) -> StreamOptions:
        """The options that the stream was opened with."""
        return self._core.options

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows have."""
        return self.checker.schema

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that make keys and partition paths; empty: the table has no keys."""
        return self.checker.keys

    @property
    def checker(self) -> RowChecker:
        """What checks rows now; another object when the table's columns have changed."""
        return self._core.columns.checker

    @property
    def is_keyed(self) -> bool:
        """Whether rows of one key replace one another."""
        return RowOperator.UPSERT in self._operators

    @property
    def writer_id(self) -> str:
        """The id of the stream in commits and in the table's private folder."""
        return self._core.flusher.writer.stream

    @property
    def may_wait(self) -> bool:
        """Whether a row applied now might wait for a place, or for its buffer to be written."""
        return self._core.would_wait()

    def insert(self, row: object) -> None:
        """Insert a row; on a table with keys :meth:`flush` fails when its key is stored.

        Args:
            row: a mapping, a dataclass or an object with named fields.

        Raises:
            SchemaMismatch: a value does not fit its column, or there is no such column.
            InvalidKey: a key column is missing or null.
            CommitFailed: a commit of the stream failed, and all rows, this one too, are durable: do not send it again.
            FlushFailed: rows are not durable, perhaps this one; :meth:`failed_rows` has them.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-insert", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> with t.open_stream() as stream:
            ...     stream.insert({"id": "a", "v": 1})
            >>> t.read().to_pylist()
            [{'id': 'a', 'v': 1}]
        """
        self._take(RowOperator.INSERT, row)

    def upsert(self, row: object) -> None:
        """Insert a row, or replace the stored row of its key.

        Args:
            row: as for :meth:`insert`; errors, too.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-upsert", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> with t.open_stream() as stream:
            ...     stream.upsert({"id": "a", "v": 1})
            ...     stream.upsert({"id": "a", "v": 2})
            >>> t.read().to_pylist()
            [{'id': 'a', 'v': 2}]
        """
        self._take(RowOperator.UPSERT, row)

    def update(self, row: object) -> None:
        """Replace the columns that are set; :meth:`flush` fails when the key is not stored.

        Args:
            row: with the key columns and those to replace; as for :meth:`insert`, errors, too.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-update", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a"], "v": [1]}))
            >>> with t.open_stream() as stream:
            ...     stream.update({"id": "a", "v": 5})
            >>> t.read().to_pylist()
            [{'id': 'a', 'v': 5}]
        """
        self._take(RowOperator.UPDATE, row)

    def delete(self, key: object) -> None:
        """Delete the row of a key, if there is one.

        Args:
            key: a mapping or an object with the key columns; where there is one key column, its value; where there are
                several, a tuple of their values.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-delete", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"], "v": [1, 2]}))
            >>> with t.open_stream() as stream:
            ...     stream.delete("a")
            >>> t.read()["id"].to_pylist()
            ['b']
        """
        self._take(RowOperator.DELETE_IGNORE, self._key_row(key))

    def _key_row(self, key: object) -> object:
        names = self.key_columns
        if isinstance(key, tuple) and len(key) == len(names) and not hasattr(key, "_fields"):
            return dict(zip(names, key, strict=True))
        if len(names) == 1 and isinstance(key, str | bytes | int | float):
            return {names[0]: key}
        return key

    def _take(self, operator: RowOperator, row: object, tracked: Tracked | None = None) -> None:
        """Take the row of a call, and raise what the program has to know."""
        self._apply(operator, row, tracked)
        if self._core.committer.untold is not None:
            self.check_commits()

    def check_commits(self) -> None:
        """Raise when a commit that the stream made by itself has failed, and no call has said so.

        Raises:
            CommitFailed: all rows so far are durable.
            FlushFailed: some are not.
        """
        if not self._core.flushes_by_hand:  # there rows stay in the buffer until a flush, which tells
            self._core.tell()

    def _apply(self, operator: RowOperator, row: object, tracked: Tracked | None = None) -> None:
        core = self._core
        if operator not in self._operators:
            raise self._refused(operator)
        mapping: Any = row if type(row) is dict else row_mapping(row)
        checker = core.columns.checker
        values: Sequence[Any]
        try:
            values, columns = checker.values(operator, mapping)
        except InvalidInputError as error:
            core.check_usable()
            checker, values, columns = self._values_after(error, operator, mapping)
        core.take_row(checker, values, operator, None if columns is None else encode_columns(columns), tracked)

    def _values_after(
        self, error: InvalidInputError, operator: RowOperator, row: Mapping[str, object]
    ) -> tuple[RowChecker, Sequence[Any], tuple[str, ...] | None]:
        """Return the values of a row that was refused, by the columns that the table has, or gets, now."""
        try:
            if not isinstance(error, SchemaMismatch) or not self._follows(row):
                raise error
            checker = self.checker
            return checker, *checker.values(operator, row)
        except InvalidInputError:
            self._core.metrics.rows_rejected += 1
            raise

    def _refused(self, operator: RowOperator) -> InvalidInputError:
        if not self.is_keyed:
            return InvalidInputError(
                f"the stream appends rows and supports INSERT only, not {operator.name}: the table has no keys"
            )
        return InvalidInputError(f"the stream does not take {operator.name}")

    def _follows(self, row: Mapping[str, object]) -> bool:
        """Return whether the table has, or gets now, the columns that a row brings."""
        if not self.options.auto_refresh:
            return False
        changed = self.refresh_schema()
        names = set(self.checker.names)
        new = {name: row[name] for name in row if name not in names and row[name] is not None}
        if not new or not self.options.allow_new_columns:
            return changed
        try:
            self._add_columns(rows_of_dicts([new]).schema)
        except LakefmtError:
            # Another writer may have added them first.
            if not self.refresh_schema():
                raise
            return True
        return self.refresh_schema() or changed

    def apply_rows(self, operator: RowOperator | str, rows: Iterable[object]) -> None:
        """Take rows; all are checked before the first is taken.

        Args:
            operator: what they do.
            rows: mappings, dataclasses or objects with named fields.

        Raises:
            SchemaMismatch: a value does not fit; none of the rows is taken.
        """
        row_operator, core = parse_operator(operator), self._core
        if row_operator not in self._operators:
            raise self._refused(row_operator)
        mappings = [row_mapping(row) for row in rows]
        for row in mappings:
            try:
                self.checker.values(row_operator, row)
            except InvalidInputError as error:
                core.check_usable()
                self._values_after(error, row_operator, row)
        for row in mappings:
            self._apply(row_operator, row)
        self.check_commits()

    def apply_values(
        self,
        operator: RowOperator,
        rows: Sequence[Sequence[object]],
        columns: tuple[str, ...] | None = None,
        checker: RowChecker | None = None,
    ) -> None:
        """Take rows whose values are of the column types already.

        Args:
            operator: what the rows do.
            rows: each a list of values in the order of the checker's columns, None where nothing is set.
            columns: the columns that were set; None: all.
            checker: of the columns that the values are for; None: of those of now.

        A failed commit is told by :meth:`check_commits`, when all rows of a call are taken.

        Raises:
            InvalidKey: no commit could store a key; none of the rows is taken.
        """
        core = self._core
        if operator not in self._operators:
            raise self._refused(operator)
        checker = self.checker if checker is None else checker
        encoded_columns = None if columns is None else encode_columns(columns)
        for row in rows:
            checker.refuse_odd(row, stores=operator not in DELETES)
        for row in rows:
            core.take_row(checker, row, operator, encoded_columns)

    def extend(self, rows: Iterable[object], operator: RowOperator | str | None = None) -> None:
        """Take rows one after the other; errors as for :meth:`insert`, and those before the bad row are taken.

        Args:
            rows: mappings, dataclasses or objects with named fields.
            operator: what they do; None: upsert where the table has keys, else insert.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-extend", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> with t.open_stream() as stream:
            ...     stream.extend({"id": name, "v": 0} for name in "ab")
            >>> t.read().num_rows
            2
        """
        row_operator = self._default if operator is None else parse_operator(operator)
        tells = not isinstance(rows, Sized)  # an iterator may never end, and what it gave is taken
        for row in rows:
            self._apply(row_operator, row)
            if tells:
                self.check_commits()
        self.check_commits()

    def apply_tracked(self, operator: RowOperator | str, row: object, until: str = "committed") -> Future[Any]:
        """Take a row, and return a future that is done when it is durable or committed, or fails if the row is skipped.

        Args:
            operator: what it does.
            row: as for :meth:`insert`.
            until: ``"durable"`` or ``"committed"``: then the future's result is the commit.
        """
        if until not in ("durable", "committed"):
            raise InvalidInputError(f"unknown until {shown(until)}: expected 'durable' or 'committed'")
        future: Future[Any] = Future()
        self._take(parse_operator(operator), row, Tracked(future, until, 0))
        return future

    def write_arrow(
        self, data: object, operator: RowOperator | str | None = None, *, operator_column: str | None = None
    ) -> None:
        """Take Arrow data: tables, batches, frames, lists of dicts; no row of them is looked at one by one.

        Args:
            data: anything that holds Arrow data.
            operator: what the rows do; None: upsert where the table has keys, else insert.
            operator_column: a column of the data with the name of each row's operator; null: as `operator` says.

        Raises:
            SchemaMismatch: the data do not fit the table's columns, or a key column is missing or null.
            InvalidKey: a key is empty, or a partition path cannot be used.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-arrow", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> with t.open_stream() as stream:
            ...     stream.write_arrow(pa.table({"id": ["a", "b"], "v": [1, 2]}))
            >>> t.read().num_rows
            2
        """
        row_operator = self._default if operator is None else parse_operator(operator)
        if row_operator not in self._operators:
            raise self._refused(row_operator)
        self._core.check_usable()
        schema, tables = open_stream(data)
        rows = read_all(schema, tables)
        operators: RowOperator | Numbers = row_operator
        if operator_column is not None:
            rows, column = without_column(rows, operator_column, self.checker)
            operators = operator_numbers(column, row_operator)
        checker = self.checker
        try:
            table = arrow_rows(rows, checker, operators, self._operators)
        except SchemaMismatch:
            if not self.options.auto_refresh or not self.refresh_schema():
                raise
            checker = self.checker
            table = arrow_rows(rows, checker, operators, self._operators)
        self._core.take_table(checker, table, strict=self.is_keyed and has_strict(table))
        self.check_commits()

    # --- flush, commit, close ------------------------------------------------------------------------------------

    def flush(self, wait: str = "durable") -> None:
        """Make everything durable that was applied so far.

        Args:
            wait: ``"durable"`` or ``"committed"``.

        Raises:
            FlushFailed: rows are not durable; :meth:`failed_rows` has them.
            CommitFailed: all rows are durable, and a commit failed.
            StreamClosed: the stream was closed.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-flush", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> with t.open_stream() as stream:
            ...     stream.upsert({"id": "a", "v": 1})
            ...     stream.flush("committed")
            ...     t.read().num_rows
            1
        """
        if wait not in ("durable", "committed"):
            raise InvalidInputError(f"unknown wait {shown(wait)}: expected 'durable' or 'committed'")
        self._core.flush()
        if wait == "committed":
            self._core.committer.commit(whole=True)
        self._core.tell()

    def write_buffers(self) -> Sequence[SegmentHeader]:
        """Write all rows so far, and return the segments that are not committed; what is behind the last mark stays behind it.

        Raises:
            FlushFailed: rows are not durable.
        """
        return self._core.write_buffers()

    def commit_marked(self) -> CommitResult | None:
        """Commit what is before the last mark; None: there was nothing.

        Raises:
            FlushFailed: rows are not durable.
            CommitFailed: all rows are durable, and the commit failed.
        """
        self._core.write_buffers()
        self._core.committer.take_untold()  # this commit tells
        return self._core.committer.commit(whole=False)

    def commit(self) -> CommitResult | None:
        """Flush, and commit what is durable; None: there was nothing to commit.

        Raises:
            FlushFailed: rows are not durable; :meth:`failed_rows` has them.
            CommitFailed: all rows are durable, and the commit failed.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-commit", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> with t.open_stream() as stream:
            ...     stream.upsert({"id": "a", "v": 1})
            ...     stream.commit().num_inserts, stream.commit()
            (1, None)
        """
        self._core.flush()
        self._core.committer.take_untold()  # this commit tells
        return self._core.committer.commit(whole=True)

    def close(self, discard: bool = False) -> None:
        """Flush, commit and release the stream; a second call does nothing.

        Args:
            discard: drop what is not durable and what the stream sealed by itself behind its last mark, commit the rest, and
                do not raise.

        Raises:
            FlushFailed: rows are not durable. The stream is closed all the same.
            CommitFailed: all rows are durable, and the commit failed: the stream that is opened next commits them.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-close", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> stream = t.open_stream()
            >>> stream.upsert({"id": "a", "v": 1})
            >>> stream.close()
            >>> stream.closed, t.read().num_rows
            (True, 1)
        """
        core = self._core
        if core.is_closed:
            return
        if not core.is_mine:
            core.is_closed = True  # of a forked child; what is open is its parent's
            return
        try:
            if discard:
                self._discard()
            else:
                core.flush("close")
                core.committer.commit(whole=True)
        finally:
            core.end()

    def _discard(self) -> None:
        core = self._core
        dropped = core.discard()
        with contextlib.suppress(LakefmtError):  # failed_rows() has them
            core.drain()
        # The next stream that is opened commits what is durable. The source sends again what is behind the last mark.
        with contextlib.suppress(LakefmtError):
            core.committer.commit(whole=False)
        if dropped:
            warnings.warn(f"{dropped} rows of stream {self.writer_id!r} were dropped", RuntimeWarning, stacklevel=4)

    def give_up(self, call: threading.Event) -> None:
        """Let a call that runs in another thread take no row from now on.

        Args:
            call: the event that is the call's ``GIVEN_UP``.
        """
        self._core.give_up(call)

    def failed_rows(self) -> list[FailedBatch]:
        """Return the rows that could not be made durable, and why."""
        return self._core.failed_rows()

    def reopen(self) -> list[FailedBatch]:
        """Take rows again after a failure, and return the rows that are to be sent again: none of them is in the table.

        Raises:
            StorageError: the store does not say yet whether rows are durable; call it again.
        """
        return self._core.reopen()

    @property
    def closed(self) -> bool:
        """Whether the stream was closed."""
        return self._core.is_closed

    # --- source, schema, metrics ---------------------------------------------------------------------------------

    def mark(self, offset: object) -> None:
        """Associate a position in the source with the rows applied so far.

        The position is committed together with the rows. Segments that the stream seals by itself end at a mark.

        Args:
            offset: a JSON value.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-rows-mark", data=pa.table({"id": ["a"], "v": [1]}), record_key="id")
            >>> with t.open_stream(writer_id="w") as stream:
            ...     stream.upsert({"id": "a", "v": 1})
            ...     stream.mark({"line": 1})
            >>> with t.open_stream(writer_id="w") as stream:
            ...     stream.last_committed.offset
            {'line': 1}
        """
        self._core.mark(offset)

    @property
    def last_committed(self) -> Committed | None:
        """The newest committed segment of this writer and its offset; None: the table has nothing of it."""
        return self._core.committer.last_committed

    def refresh_schema(self) -> bool:
        """Look at the table's columns again; return whether they changed."""
        return self._core.columns.refresh()

    def metrics(self) -> dict[str, Any]:
        """Return the stream's counters by name (docs/streams.md, Metrics)."""
        core = self._core
        oldest = core.committer.oldest_seconds
        return core.metrics.as_dict() | core.gauges() | {"oldest_uncommitted_age_seconds": oldest}

    # --- life ----------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Stream({self._client.store.url!r}, {self.writer_id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(discard=error_type is not None)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a stream belongs to the process that opened it and cannot be pickled")

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.is_closed and core.is_mine:
            warnings.warn(
                f"stream {core.flusher.writer.stream!r} was not closed: {core.rows_at_risk()} rows are not durable",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )


T = TypeVar("T")


class AsyncStream:
    """A stream whose methods are awaited: a row that has to wait for its place does not stop the event loop.

    A call that is cancelled, as by a timeout, leaves the order of rows as it is: its row stands before those of later calls, or
    is not taken at all; of several rows that holds for each.

    Args:
        opens: opens the stream.

    Example:
        >>> import lakefmt
        >>> t = lakefmt.create_table("memory://doc-awaited", data=pa.table({"id": ["a"]}), record_key="id")
        >>> async def send():
        ...     async with t.open_stream_async() as stream:
        ...         await stream.upsert({"id": "a"})
        ...         await stream.flush()
        >>> asyncio.run(send())
        >>> t.read().num_rows
        1
    """

    def __init__(self, opens: Callable[[], Stream]) -> None:
        self._opens = opens
        self._stream: Stream | None = None

    async def __aenter__(self) -> Self:
        self._stream = await asyncio.to_thread(self._opens)
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(discard=error_type is not None)

    @property
    def stream(self) -> Stream:
        """The stream itself.

        Raises:
            StreamClosed: it is not open yet.
        """
        if self._stream is None:
            raise StreamClosed("the stream is not open: use it in `async with`")
        return self._stream

    async def apply(self, row: object, operator: RowOperator | str | None = None) -> None:
        """Take a row; waits while the buffers are full.

        Args:
            row: as for ``Stream.insert``; errors, too.
            operator: what it does; None: upsert where the table has keys, else insert.
        """
        stream = self.stream
        if stream.may_wait:
            await self._in_thread(stream.extend, [row], operator)
        else:
            stream.extend([row], operator)

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        """Run a call that takes rows in a thread; when nobody waits for it any more, it takes no more of them."""
        given_up = threading.Event()

        def run() -> T:
            GIVEN_UP.set(given_up)  # in the context of this call only
            return call(*arguments)

        try:
            return await asyncio.to_thread(run)
        except asyncio.CancelledError:
            self.stream.give_up(given_up)
            raise

    async def insert(self, row: object) -> None:
        """Insert a row.

        Args:
            row: as for ``Stream.insert``; errors, too.
        """
        await self.apply(row, RowOperator.INSERT)

    async def upsert(self, row: object) -> None:
        """Insert a row, or replace the stored row of its key.

        Args:
            row: as for ``Stream.upsert``; errors, too.
        """
        await self.apply(row, RowOperator.UPSERT)

    async def update(self, row: object) -> None:
        """Replace the columns that are set.

        Args:
            row: as for ``Stream.update``; errors, too.
        """
        await self.apply(row, RowOperator.UPDATE)

    async def delete(self, key: object) -> None:
        """Delete the row of a key, if there is one.

        Args:
            key: as for ``Stream.delete``; errors, too.
        """
        await self._in_thread(self.stream.delete, key)

    async def extend(
        self, rows: Iterable[object] | AsyncIterable[object], operator: RowOperator | str | None = None
    ) -> None:
        """Take rows one after the other.

        Args:
            rows: as for ``Stream.extend``, or an asynchronous iterator of such rows; errors, too.
            operator: what they do; None: upsert where the table has keys, else insert.
        """
        if isinstance(rows, AsyncIterable):
            async for row in rows:
                await self.apply(row, operator)
            return
        for row in rows:
            await self.apply(row, operator)

    async def apply_tracked(self, row: object, operator: RowOperator | str, until: str = "committed") -> Any:
        """Take a row, and return an awaitable that is done when the row is durable or committed.

        Args:
            row: as for ``Stream.insert``; errors, too.
            operator: what it does.
            until: ``"durable"`` or ``"committed"``.
        """
        future = await self._in_thread(self.stream.apply_tracked, operator, row, until)
        return asyncio.wrap_future(future)

    async def write_arrow(self, data: object, operator: RowOperator | str | None = None) -> None:
        """Take Arrow data.

        Args:
            data: anything that holds Arrow data; errors as for ``Stream.write_arrow``.
            operator: what the rows do; None: upsert where the table has keys, else insert.
        """
        await self._in_thread(self.stream.write_arrow, data, operator)

    async def flush(self, wait: str = "durable") -> None:
        """Make everything durable that was applied so far.

        Args:
            wait: ``"durable"`` or ``"committed"``; errors as for ``Stream.flush``.
        """
        await asyncio.to_thread(self.stream.flush, wait)

    async def commit(self) -> CommitResult | None:
        """Flush, and commit what is durable; None: there was nothing to commit. Errors as for ``Stream.commit``."""
        return await asyncio.to_thread(self.stream.commit)

    async def close(self, discard: bool = False) -> None:
        """Flush, commit and release the stream; a second call does nothing.

        Args:
            discard: as for ``Stream.close``; errors, too.
        """
        if self._stream is not None:
            await asyncio.to_thread(self._stream.close, discard)

    def mark(self, offset: object) -> None:
        """Associate a position in the source with the rows applied so far.

        Args:
            offset: a JSON value.
        """
        self.stream.mark(offset)


_log = logging.getLogger("lakefmt.streams")


def open_row_stream(
    client: TableClient,
    operation: str | None,
    writer_id: str | None,
    options: StreamOptions,
    finish: Finish,
    add_columns: AddColumns,
) -> Stream:
    """Open a stream; see ``Table.open_stream``."""
    state = client.load()
    table_at = client.at(state)
    keyed = has_record_keys(table_at)
    if keyed and operation == "append":
        raise InvalidInputError("the table has keys: a stream into it needs operation='upsert' (CDC), not 'append'")
    if keyed and options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND:
        _log.info("%s has keys: buffers of a stream are written one after the other", client.store.url)
    stream = f"{ANONYMOUS}{client.ids.new_uuid()}" if writer_id is None else check_writer_id(writer_id)
    if writer_id is not None and writer_id.startswith(ANONYMOUS):
        raise InvalidInputError(f"a writer id must not begin with {ANONYMOUS!r}")
    settings = commit_options(client, options.properties)
    recover_others(client, settings, finish, left_out=stream)
    writer = SegmentWriter.open(client, stream, settings, finish, options.lease_interval_ms)
    columns = FollowedColumns(table_at, options, keyed=keyed)
    core = StreamCore(client, writer, options, columns, finish, settings)
    operators = frozenset(RowOperator) if keyed else frozenset({RowOperator.INSERT})
    return Stream(client, core, operators, RowOperator.UPSERT if keyed else RowOperator.INSERT, add_columns)
