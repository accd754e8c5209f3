"""A real-time stream and its options under the SDK's names, on top of :class:`lakefmt._core.producers.stream.stream.Stream`."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from lakefmt._core.arguments import mapping_argument, shown
from lakefmt._core.data_classes import replace
from lakefmt._core.producers.stream.options import (
    DEFAULT_RETRY_STATUS,
    ErrorHandler,
    ErrorTypeHandler,
    FlushMode,
    RetryMode,
    RetryStatus,
    RowOperator,
    StreamOptions,
    parse_operator,
)
from lakefmt.errors import CommitFailed, InvalidInputError, LakefmtError, StreamClosed, StreamError
from lakefmt.realtime.errors import RowRefused
from lakefmt.realtime.rows import ConversionRules, Row, RowLayout
from lakefmt.realtime.statements import decode_types

if TYPE_CHECKING:
    from lakefmt._core.producers.stream.rows import RowChecker
    from lakefmt._core.producers.stream.stream import Stream

__all__ = [
    "CZSessionOptions",
    "ProtocolType",
    "RealtimeOperation",
    "RealtimeOptionsBuilder",
    "RealtimeStream",
]


class RealtimeOperation(enum.StrEnum):
    """What a stream may do to its table."""

    #: Rows are added; for tables without a key.
    APPEND_ONLY = "append_only"
    #: Rows replace and delete others with the same key.
    CDC = "cdc"


class ProtocolType(enum.StrEnum):
    """Accepted, without effect: rows travel within the process."""

    V2 = "v2"


class CZSessionOptions(StreamOptions):
    """The options of one stream; they never change. The SDK's name for :class:`StreamOptions`."""

    __slots__ = ()

    DEFAULT_FLUSH_MODE: ClassVar = FlushMode.AUTO_FLUSH_BACKGROUND
    DEFAULT_MUTATION_FLUSH_INTERVAL: ClassVar = 10_000
    DEFAULT_MUTATION_BUFFER_SIZE: ClassVar = 10 * 1024 * 1024
    DEFAULT_MUTATION_BUFFER_MAX_NUM: ClassVar = 50
    DEFAULT_MUTATION_LINES_NUM: ClassVar = 1_000
    DEFAULT_ERROR_HANDLER: ClassVar = ErrorTypeHandler.TERMINATE_INSTANCE
    DEFAULT_REQUEST_FAILED_RETRY_ENABLE: ClassVar = True
    DEFAULT_REQUEST_FAILED_RETRY_MODE: ClassVar = RetryMode.BATCH_REQUEST_MODE
    DEFAULT_REQUEST_FAILED_RETRY_TIMES: ClassVar = 5
    DEFAULT_REQUEST_FAILED_RETRY_INTERNAL_MS: ClassVar = 5_000
    DEFAULT_REQUEST_FAILED_RETRY_LOG_DEBUG_ENABLE: ClassVar = True
    DEFAULT_PROTOCOL_TYPE: ClassVar = ProtocolType.V2
    DEFAULT_GRPC_MAX_MESSAGE_LENGTH: ClassVar = 25 * 1024 * 1024
    DEFAULT_RETRY_STATUS: ClassVar = DEFAULT_RETRY_STATUS

    @classmethod
    def default(cls) -> Self:
        """Return the options that a stream has when none are given."""
        return cls(protocol_type=ProtocolType.V2)

    @property
    def request_failed_retry_internal_ms(self) -> int:
        """The SDK's spelling of ``request_failed_retry_interval_ms``."""
        return self.request_failed_retry_interval_ms

    @property
    def request_failed_retry_register_status(self) -> frozenset[RetryStatus]:
        """The SDK's name of ``request_failed_retry_status``."""
        return self.request_failed_retry_status

    def to_dict(self) -> dict[str, object]:
        """Return every option by its name, those of the SDK among them."""
        return super().to_dict() | {
            "request_failed_retry_internal_ms": self.request_failed_retry_internal_ms,
            "request_failed_retry_register_status": self.request_failed_retry_register_status,
        }


class RealtimeOptionsBuilder:
    """Collects options; :meth:`build` checks them all and may be called again.

    Example:
        >>> options = RealtimeOptionsBuilder().with_flush_interval(500).with_mutation_buffer_lines_num(100).build()
        >>> options.flush_interval, options.mutation_buffer_lines_num
        (500, 100)
    """

    def __init__(self) -> None:
        self._given: dict[str, Any] = {"protocol_type": ProtocolType.V2}

    def _with(self, name: str, value: object) -> Self:
        self._given[name] = value
        return self

    def with_flush_mode(self, flush_mode: FlushMode) -> Self:
        """Set who makes rows durable, and when."""
        return self._with("flush_mode", flush_mode)

    def with_flush_interval(self, flush_interval: int) -> Self:
        """Set the milliseconds after the first row of a buffer at which it is written; 0: no timer."""
        return self._with("flush_interval", flush_interval)

    def with_mutation_buffer_space(self, buffer_space: int) -> Self:
        """Set the bytes of a full buffer."""
        return self._with("mutation_buffer_space", buffer_space)

    def with_mutation_buffer_max_num(self, max_num: int) -> Self:
        """Set how many full buffers may wait."""
        return self._with("mutation_buffer_max_num", max_num)

    def with_mutation_buffer_lines_num(self, lines_num: int) -> Self:
        """Set the rows of a full buffer."""
        return self._with("mutation_buffer_lines_num", lines_num)

    def with_error_type_handler(self, handler: ErrorTypeHandler | ErrorHandler) -> Self:
        """Set what becomes of rows that cannot be made durable: a member, or a function of batch and error."""
        return self._with("error_type_handler", handler)

    def with_request_failed_retry_enable(self, enabled: bool) -> Self:
        """Set whether failures are tried again."""
        return self._with("request_failed_retry_enable", enabled)

    def with_request_failed_retry_mode(self, mode: RetryMode) -> Self:
        """Set what is tried again; whole buffers in any mode."""
        return self._with("request_failed_retry_mode", mode)

    def with_request_failed_retry_times(self, times: int) -> Self:
        """Set the attempts after the first."""
        return self._with("request_failed_retry_times", times)

    def with_request_failed_retry_internal_ms(
        self, internal_ms: int | None = None, *, retry_interval_ms: int | None = None
    ) -> Self:
        """Set the milliseconds before the second attempt.

        Args:
            internal_ms: the milliseconds, by the SDK's name.
            retry_interval_ms: the same, under the name that it should have.

        Raises:
            InvalidInputError: neither or both are given.
        """
        if (internal_ms is None) == (retry_interval_ms is None):
            raise InvalidInputError("give either internal_ms or retry_interval_ms")
        return self._with("request_failed_retry_interval_ms", retry_interval_ms if internal_ms is None else internal_ms)

    def with_retry_interval_ms(self, interval_ms: int) -> Self:
        """Set the milliseconds before the second attempt."""
        return self._with("request_failed_retry_interval_ms", interval_ms)

    def with_request_failed_retry_log_debug_enable(self, enabled: bool) -> Self:
        """Set whether every attempt is logged."""
        return self._with("request_failed_retry_log_debug_enable", enabled)

    def with_request_failed_retry_status(self, *retry_status: RetryStatus | Iterable[RetryStatus]) -> Self:
        """Set which failures are tried again, instead of those set before: one, several, or an iterable of them.

        Example:
            >>> builder = RealtimeOptionsBuilder().with_request_failed_retry_status(RetryStatus.THROTTLED)
            >>> [status.name for status in builder.build().request_failed_retry_status]
            ['THROTTLED']
        """
        statuses: list[object] = []
        for status in retry_status:
            if isinstance(status, Iterable) and not isinstance(status, (str, RetryStatus)):
                statuses.extend(status)
            else:
                statuses.append(status)
        return self._with("request_failed_retry_status", tuple(statuses))

    def with_protocol_type(self, protocol_type: ProtocolType) -> Self:
        """Accept the SDK's protocol; without effect."""
        return self._with("protocol_type", protocol_type)

    def with_properties(self, properties: Mapping[str, object] | None) -> Self:
        """Add settings: of conversions (``lakefmt.realtime.*``), of the table and its commits."""
        added = mapping_argument(properties, "properties")
        return self._with("properties", {**self._given.get("properties", {}), **added})

    def with_grpc_max_message_length(self, max_length: int) -> Self:
        """Set the bytes of the largest segment, and of the largest row."""
        return self._with("grpc_max_message_length", max_length)

    def with_tablet_idle_recreate_support(self, enabled: bool) -> Self:
        """Accept an option of the SDK; it has no effect here."""
        return self._with("tablet_idle_recreate_support", enabled)

    def with_tablet_idle_status(self, status_set: Iterable[RetryStatus]) -> Self:
        """Accept an option of the SDK; it has no effect here."""
        return self._with("tablet_idle_status", status_set)

    def with_max_buffered_bytes(self, bytes_: int) -> Self:
        """Set the bytes that all buffers of the stream hold together; not in the SDK."""
        return self._with("max_buffered_bytes", bytes_)

    def with_apply_timeout(self, milliseconds: int | None) -> Self:
        """Set how long `apply` waits for a place among the buffers; None: without end. Not in the SDK."""
        return self._with("apply_timeout", milliseconds)

    def with_commit_interval(self, milliseconds: int) -> Self:
        """Set how long after a flush rows are committed at the latest; 0: with every flush. Not in the SDK."""
        return self._with("commit_interval", milliseconds)

    def with_commit_bytes(self, bytes_: int) -> Self:
        """Set the bytes of flushed rows that are committed earlier; 0: no such limit. Not in the SDK."""
        return self._with("commit_bytes", bytes_)

    def with_dead_letter_path(self, path: str | None) -> Self:
        """Set the file, below the table's private folder, that takes rows which are skipped. Not in the SDK."""
        return self._with("dead_letter_path", path)

    def build(self) -> CZSessionOptions:
        """Return the options.

        Raises:
            InvalidInputError: names every option that is not valid.
        """
        return CZSessionOptions(**self._given)


_FAILED: Final = "Failed to apply row"
_ONLY_INSERT: Final = frozenset({RowOperator.INSERT})
_LOG: Final = logging.getLogger("lakefmt.realtime")


class RealtimeStream:
    """Rows into one table; made by ``connection.get_realtime_stream``.

    Args:
        native: the stream that takes the rows.
        table: the table's name, for messages.
        sql_types: the table's property of SQL types; None where it has none.
        rules: of conversions.
        options: as the caller gave them.
    """

    def __init__(
        self, native: Stream, table: str, sql_types: str | None, rules: ConversionRules, options: CZSessionOptions
    ) -> None:
        self._native = native
        self._table = table
        self._sql_types = sql_types
        self._rules = rules
        self._operators = frozenset(RowOperator) if native.is_keyed else _ONLY_INSERT
        self._by_name: dict[object, RowOperator] = {each: each for each in self._operators} | {
            name: each for each in self._operators for name in (each.name, each.name.lower())
        }
        self._first = frozenset(native.schema.names)
        self._layout = self._layout_of(native.checker)
        self.options = options

    def _layout_of(self, checker: RowChecker) -> RowLayout:
        fields = decode_types(self._sql_types, checker.schema)
        # A program that does not know of a column goes on: its rows have null there.
        later = [field.name for field in fields if field.nullable and field.name not in self._first]
        rules = self._rules if checker.null_elements else replace(self._rules, null_elements=False)
        return RowLayout(self._table, fields, checker, rules, later, self._look_again)

    def _current_layout(self) -> RowLayout:
        checker, layout = self._native.checker, self._layout
        if checker is not layout.checker:
            self._layout = layout = self._layout_of(checker)
        return layout

    def _look_again(self) -> RowLayout:
        """Return the layout of the table's columns as they are now."""
        if self.options.auto_refresh and not self._native.closed:
            self._native.refresh_schema()
        return self._current_layout()

    def create_row(self, operator: RowOperator | str = RowOperator.INSERT) -> Row:
        """Return a new row without values.

        Args:
            operator: what the row does, or its name in any letter case; tables without a key take INSERT only.

        Raises:
            StreamClosed: the stream is closed.
            InvalidInputError: no such operator, or this table does not take it.
        """
        checked = self._by_name.get(operator)
        if checked is None:
            checked = self._checked_operator(operator)
        if self._native.closed:
            raise StreamClosed(f"the stream into table {self._table!r} is closed")
        return Row(self._current_layout(), checked)

    def _checked_operator(self, operator: object) -> RowOperator:
        if not isinstance(operator, (RowOperator, str)):
            raise InvalidInputError(f"Invalid operator {shown(operator)}: expected a RowOperator or its name")
        checked = parse_operator(operator)
        if checked not in self._operators:
            raise InvalidInputError(
                f"Invalid operator {checked.name}: table {self._table!r} has no key, so its streams are append-only and "
                "support INSERT only"
            )
        return checked

    def apply(self, *rows: Row) -> None:
        """Take rows in their order; they are durable after :meth:`flush` or when a buffer is full.

        Args:
            *rows: made by :meth:`create_row`; none is taken when one is refused.

        Raises:
            StreamClosed: the stream is closed.
            CommitFailed: the rows are durable, as all before them, and a commit failed: do not apply them again.
            CZException: a row lacks columns, or could not be taken; the text begins with ``Failed to apply row``.
        """
        native = self._native
        if native.closed:
            raise StreamClosed(f"the stream into table {self._table!r} is closed")
        try:
            if len(rows) == 1 and type(rows[0]) is Row:
                row, layout = rows[0], self._current_layout()
                if row.layout is not layout:
                    row = self._moved_to_layout(row, layout)
                row.validate()
                values, columns = row.taken()
                native.apply_values(row.operator, (values,), columns, layout.checker)
            else:
                self._apply_several(rows)
            native.check_commits()
        except StreamError as error:
            raise self._as_apply_error(error) from error
        except (LakefmtError, ValueError, TypeError) as error:
            raise RowRefused(f"{_FAILED} to table {self._table!r}: {error}") from error

    def _as_apply_error(self, error: StreamError) -> StreamError:
        """Return an error of the same class whose text begins as programs expect it."""
        if isinstance(error, StreamClosed | CommitFailed) or str(error).startswith(_FAILED):
            return error
        return type(error)(f"{_FAILED} to table {self._table!r}: {error}")

    def _moved_to_layout(self, row: Row, layout: RowLayout) -> Row:
        if row.layout.table != layout.table or row.layout.rules is not layout.rules:
            raise RowRefused(f"{_FAILED} to table {self._table!r}: the row was made by another stream")
        return row.moved(layout)

    def _apply_several(self, rows: tuple[Row, ...]) -> None:
        checked: list[Row] = []
        layout = self._current_layout()
        for row in rows:
            if not isinstance(row, Row):
                raise RowRefused(
                    f"{_FAILED} to table {self._table!r}: apply takes rows of create_row, not {shown(row)}"
                )
            checked_row = self._moved_to_layout(row, layout)
            checked_row.validate()
            checked.append(checked_row)
        # One call per run of equal rows keeps their order.
        run: list[list[Any]] = []
        last: tuple[RowOperator, tuple[str, ...] | None] | None = None
        for checked_row in checked:
            values, columns = checked_row.taken()
            if last is not None and last != (checked_row.operator, columns):
                self._native.apply_values(last[0], run, last[1], layout.checker)
                run = []
            last = (checked_row.operator, columns)
            run.append(values)
        if last is not None:
            self._native.apply_values(last[0], run, last[1], layout.checker)

    def flush(self) -> None:
        """Make all applied rows durable; readers that ask for uncommitted rows see them then.

        Raises:
            StreamClosed: the stream is closed.
            CZException: rows could not be made durable; :meth:`failed_rows` has them.
        """
        if self._native.closed:
            raise StreamClosed(f"the stream into table {self._table!r} is closed")
        self._native.flush()

    def close(self, discard: bool = False) -> None:
        """Flush, commit and end the stream. A second call does nothing.

        Args:
            discard: drop what is not durable, commit the rest, and do not raise.

        Raises:
            CZException: rows could not be made durable or committed; the stream is closed all the same.
        """
        self._native.close(discard=discard)
        if self._rules.notes.truncated:
            _LOG.warning(
                "table %s: %d values of CHAR and VARCHAR columns were shortened",
                self._table,
                self._rules.notes.truncated,
            )

    def failed_rows(self) -> list[Any]:
        """Return the rows that a terminal failure left, with its cause."""
        return self._native.failed_rows()

    def reopen(self) -> list[Any]:
        """Take rows again after a terminal failure, and return the rows that are to be sent again.

        Raises:
            StreamClosed: the stream is closed.
            StorageError: the store does not say yet whether rows are durable; call it again.
        """
        return self._native.reopen()

    def get_metrics(self) -> dict[str, Any]:
        """Return the stream's counters (docs/streams.md), and ``rows_truncated``: values that were shortened."""
        return {**self._native.metrics(), "rows_truncated": self._rules.notes.truncated}

    @property
    def native(self) -> Stream:
        """The stream with lakefmt's own interface: dict rows, Arrow data, marks."""
        return self._native

    @property
    def closed(self) -> bool:
        """Whether the stream was closed."""
        return self._native.closed
