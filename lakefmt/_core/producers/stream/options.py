"""The options of a stream: their defaults, which values are valid, and when an error is tried again. Pure.

An error has a status (:func:`retry_status_of`); rows that could not be made durable are a :class:`FailedBatch`. What a row does to
its key is in :mod:`lakefmt._core.segments.codec`; callers import :class:`RowOperator` from here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any, Final, TypedDict

import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.segments.codec import DELETES, STRICT, WHOLE_ROWS, RowOperator, parse_operator
from lakefmt.errors import (
    CommitConflict,
    FormatError,
    InvalidInputError,
    LakefmtError,
    LeaseLost,
    LockUnavailable,
    StateError,
    StorageError,
    StreamUnavailable,
    TableNotFound,
    UnsupportedError,
    WriterActive,
)

__all__ = [
    "DEFAULT_RETRY_STATUS",
    "DELETES",
    "STRICT",
    "WHOLE_ROWS",
    "ErrorTypeHandler",
    "FailedBatch",
    "FlushMode",
    "NamedStreamSettings",
    "RetryMode",
    "RetryStatus",
    "RowOperator",
    "StreamOptions",
    "StreamSettings",
    "chained",
    "parse_operator",
    "passes_by_itself",
    "pause_seconds",
    "retry_status_of",
    "tries_again",
]


class FlushMode(enum.Enum):
    """The way rows become durable: by a worker, by the call that fills a buffer, or at `flush`."""

    #: Full buffers are written by a worker; `apply` goes on.
    AUTO_FLUSH_BACKGROUND = "auto_flush_background"
    #: The `apply` that fills a buffer waits until it is durable.
    AUTO_FLUSH_SYNC = "auto_flush_sync"
    #: Nothing is written before `flush`.
    MANUAL_FLUSH = "manual_flush"


class RetryStatus(enum.Enum):
    """Kinds of failures, of which an option says which are tried again."""

    THROTTLED = "throttled"
    FAILED = "failed"
    NOT_FOUND = "not_found"
    INTERNAL_ERROR = "internal_error"
    PRECHECK_FAILED = "precheck_failed"
    STREAM_UNAVAILABLE = "stream_unavailable"


class RetryMode(enum.Enum):
    """The mode of retries: every mode but the last retries a whole segment."""

    BATCH_REQUEST_MODE = "batch_request_mode"
    ROW_REQUEST_MODE = "row_request_mode"
    NO_RETRY_MODE = "no_retry_mode"


class ErrorTypeHandler(enum.Enum):
    """The reaction of a stream to rows that cannot be made durable."""

    #: The stream fails: `flush` raises, `failed_rows` has the rows.
    TERMINATE_INSTANCE = "terminate_instance"
    #: The rows go to the dead-letter file, and the stream goes on.
    IGNORE = "ignore"


#: Failures that are tried again unless the options say otherwise.
DEFAULT_RETRY_STATUS: Final = frozenset(
    {RetryStatus.THROTTLED, RetryStatus.INTERNAL_ERROR, RetryStatus.FAILED, RetryStatus.PRECHECK_FAILED}
)

_MIB: Final = 1024 * 1024
_POSITIVE_NUMBERS: Final = (
    "mutation_buffer_lines_num",
    "mutation_buffer_space",
    "mutation_buffer_max_num",
    "grpc_max_message_length",
    "max_buffered_bytes",
    "request_failed_retry_interval_ms",
    "lease_interval_ms",
)
_NOT_NEGATIVE_NUMBERS: Final = ("flush_interval", "commit_interval", "commit_bytes")
_OPTION_TYPES: Final = {
    "flush_mode": FlushMode,
    "request_failed_retry_mode": RetryMode,
}


_LONGEST_PAUSE_SECONDS: Final = 60.0


ErrorHandler = Callable[["FailedBatch", BaseException], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of one stream; they never change.

    Attributes:
        flush_mode: who makes rows durable; tables with keys write one buffer after the other in any mode but manual.
        flush_interval: milliseconds after the first row of a buffer at which it is written; 0: no timer.
        mutation_buffer_lines_num: rows of a full buffer.
        mutation_buffer_space: bytes of a full buffer, estimated.
        mutation_buffer_max_num: full buffers that may wait; beyond, `apply` waits.
        max_buffered_bytes: bytes of all buffers together.
        apply_timeout: milliseconds that `apply` waits for a place among the buffers; None: without end.
        error_type_handler: what becomes of rows that cannot be made durable: a member of :class:`ErrorTypeHandler`, or a
            function ``(batch, error) -> "retry" | "skip" | "fail"``.
        dead_letter_path: name of the file below the table's private folder that takes skipped rows; None: they are
            counted and dropped with a warning.
        request_failed_retry_enable: try again after a failure.
        request_failed_retry_mode: accepted; whole segments are tried again.
        request_failed_retry_times: attempts after the first.
        request_failed_retry_interval_ms: pause before the first of them; it grows, up to a minute.
        request_failed_retry_deadline_ms: all attempts end by then; None: twice the times times the interval.
        request_failed_retry_log_debug_enable: log every attempt.
        request_failed_retry_status: the failures that are tried again.
        grpc_max_message_length: bytes of the largest segment, and of the largest row.
        commit_interval: milliseconds after the first uncommitted segment at which it is committed; 0: with every flush.
        commit_bytes: bytes of uncommitted segments that are committed earlier; 0: no such limit.
        lease_interval_ms: pause between renewals of the claim on the writer's id; two missed ones end it.
        auto_refresh: follow changes of the table's columns.
        allow_new_columns: columns seen first in dict rows are added to the table.
        strict_columns: a row that lacks a nullable column is refused; False: it is null.
        rows_per_second: most rows that `apply` takes in a second; None: no limit.
        bytes_per_second: most bytes, estimated; None: no limit.
        protocol_type: accepted, without effect.
        tablet_idle_recreate_support: accepted, without effect.
        tablet_idle_status: accepted, without effect.
        properties: settings of the commits, such as ``hoodie.*`` keys.

    Example:
        >>> StreamOptions(flush_interval=500).flush_interval
        500
        >>> StreamOptions(mutation_buffer_lines_num=0, flush_interval=-1)
        Traceback (most recent call last):
        lakefmt.errors.InvalidInputError: options of a stream: mutation_buffer_lines_num must be above 0, not 0; \
flush_interval must be at least 0, not -1
    """

    flush_mode: FlushMode = FlushMode.AUTO_FLUSH_BACKGROUND
    flush_interval: int = 10_000
    mutation_buffer_lines_num: int = 1_000
    mutation_buffer_space: int = 10 * _MIB
    mutation_buffer_max_num: int = 50
    max_buffered_bytes: int = 256 * _MIB
    apply_timeout: int | None = None
    error_type_handler: ErrorTypeHandler | ErrorHandler = ErrorTypeHandler.TERMINATE_INSTANCE
    dead_letter_path: str | None = None
    request_failed_retry_enable: bool = True
    request_failed_retry_mode: RetryMode = RetryMode.BATCH_REQUEST_MODE
    request_failed_retry_times: int = 5
    request_failed_retry_interval_ms: int = 5_000
    request_failed_retry_deadline_ms: int | None = None
    request_failed_retry_log_debug_enable: bool = True
    request_failed_retry_status: frozenset[RetryStatus] = DEFAULT_RETRY_STATUS
    grpc_max_message_length: int = 25 * _MIB
    commit_interval: int = 60_000
    commit_bytes: int = 128 * _MIB
    lease_interval_ms: int = 60_000
    auto_refresh: bool = True
    allow_new_columns: bool = False
    strict_columns: bool = False
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    protocol_type: object = None
    tablet_idle_recreate_support: bool = True
    tablet_idle_status: object = None
    properties: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = [*self._wrong_numbers(), *self._wrong_choices()]
        if wrong:
            raise InvalidInputError(f"options of a stream: {'; '.join(wrong)}")
        object.__setattr__(self, "request_failed_retry_status", frozenset(self.request_failed_retry_status))
        object.__setattr__(self, "properties", MappingProxyType(dict(self.properties)))

    def _wrong_numbers(self) -> list[str]:
        """Return what is wrong with numbers, a sentence each."""
        wrong = [
            f"{name} must be above 0, not {value!r}"
            for name in _POSITIVE_NUMBERS
            if not _is_count(value := self[name], 1)
        ]
        wrong += [
            f"{name} must be at least 0, not {value!r}"
            for name in _NOT_NEGATIVE_NUMBERS
            if not _is_count(value := self[name], 0)
        ]
        if not wrong and self.mutation_buffer_space > self.grpc_max_message_length:
            wrong.append(
                f"mutation_buffer_space {self.mutation_buffer_space} is above grpc_max_message_length "
                f"{self.grpc_max_message_length}"
            )
        if self.request_failed_retry_enable and not _is_count(self.request_failed_retry_times, 1):
            wrong.append(f"request_failed_retry_times must be above 0, not {self.request_failed_retry_times!r}")
        for name in ("apply_timeout", "request_failed_retry_deadline_ms", "rows_per_second", "bytes_per_second"):
            value = self[name]
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                wrong.append(f"{name} must be above 0 or None, not {value!r}")
        return wrong

    def _wrong_choices(self) -> list[str]:
        """Return what is wrong with the rest, a sentence each."""
        wrong = [
            f"{name} must be a {option_type.__name__}, not {self[name]!r}"
            for name, option_type in _OPTION_TYPES.items()
            if not isinstance(self[name], option_type)
        ]
        # The caller may have given anything.
        handler: object = self["error_type_handler"]
        statuses: Any = self["request_failed_retry_status"]
        if not isinstance(handler, ErrorTypeHandler) and not callable(handler):
            wrong.append(f"error_type_handler must be an ErrorTypeHandler or a function, not {handler!r}")
        if isinstance(statuses, str) or not all(isinstance(each, RetryStatus) for each in statuses):
            wrong.append(f"request_failed_retry_status must hold members of RetryStatus, not {statuses!r}")
        if not isinstance(self["properties"], Mapping):
            wrong.append(f"properties must be a mapping, not {self.properties!r}")
        return wrong

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def to_dict(self) -> dict[str, object]:
        """Return every option by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"properties": dict(self.properties)}

    @property
    def retry_deadline_seconds(self) -> float:
        """The seconds after which no attempt is made any more."""
        deadline = self.request_failed_retry_deadline_ms
        if deadline is None:
            deadline = self.request_failed_retry_times * self.request_failed_retry_interval_ms * 2
        return deadline / 1000


class StreamSettings(TypedDict, total=False):
    """Single fields of :class:`StreamOptions`, which tells what they mean, as keyword arguments of ``table.open_stream``.

    Attributes:
        flush_mode: also its name as a text, such as ``"manual_flush"``.
    """

    flush_mode: FlushMode | str
    flush_interval: int
    mutation_buffer_lines_num: int
    mutation_buffer_space: int
    mutation_buffer_max_num: int
    max_buffered_bytes: int
    apply_timeout: int | None
    error_type_handler: ErrorTypeHandler | ErrorHandler
    dead_letter_path: str | None
    request_failed_retry_enable: bool
    request_failed_retry_mode: RetryMode
    request_failed_retry_times: int
    request_failed_retry_interval_ms: int
    request_failed_retry_deadline_ms: int | None
    request_failed_retry_log_debug_enable: bool
    request_failed_retry_status: Iterable[RetryStatus]
    grpc_max_message_length: int
    commit_interval: int
    commit_bytes: int
    lease_interval_ms: int
    auto_refresh: bool
    allow_new_columns: bool
    strict_columns: bool
    rows_per_second: float | None
    bytes_per_second: float | None
    protocol_type: object
    tablet_idle_recreate_support: bool
    tablet_idle_status: object
    properties: Mapping[str, object]


class NamedStreamSettings(StreamSettings, total=False):
    """The same, and the name of the writer.

    Attributes:
        writer_id: a name that is the same at every start of the program: rows are then written exactly once. None: a name of
            its own for each stream.
    """

    writer_id: str | None


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """Rows that are not durable.

    Attributes:
        rows: with the column ``_lakefmt_operator``.
        cause: why; None: they waited behind others that failed.
        may_be_committed: the store did not say whether they are durable. ``reopen`` of the stream finds out.
    """

    rows: pa.Table = field(repr=False)
    cause: BaseException | None
    may_be_committed: bool = False

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self.rows.num_rows)


def retry_status_of(error: BaseException) -> RetryStatus | None:
    """Return the status of an error; None: it will not pass.

    Example:
        >>> retry_status_of(StorageError("it timed out", transient=True)).name, retry_status_of(ValueError("x")).name
        ('FAILED', 'INTERNAL_ERROR')
    """
    if isinstance(error, StreamUnavailable):
        return RetryStatus.STREAM_UNAVAILABLE
    if isinstance(error, TableNotFound):
        return RetryStatus.NOT_FOUND
    if isinstance(error, LockUnavailable):
        return RetryStatus.THROTTLED
    if isinstance(error, WriterActive):
        return RetryStatus.PRECHECK_FAILED
    if isinstance(error, CommitConflict | LeaseLost):
        return RetryStatus.FAILED
    if isinstance(error, StorageError):
        if error.throttled:
            return RetryStatus.THROTTLED
        return RetryStatus.FAILED if error.transient else None
    if isinstance(error, InvalidInputError | FormatError | UnsupportedError | StateError):
        return None
    return None if isinstance(error, LakefmtError) else RetryStatus.INTERNAL_ERROR


def passes_by_itself(error: BaseException) -> bool:
    """Return whether a later commit may work though nobody does anything.

    Example:
        >>> passes_by_itself(LockUnavailable("held")), passes_by_itself(UnsupportedError("no"))
        (True, False)
    """
    lasting = (None, RetryStatus.INTERNAL_ERROR, RetryStatus.NOT_FOUND)
    return retry_status_of(error) not in lasting


def tries_again(options: StreamOptions, status: RetryStatus | None, attempts: int, seconds: float) -> bool:
    """Return whether another attempt is made.

    Args:
        options: of the stream.
        status: of the last failure.
        attempts: made so far.
        seconds: since the first.

    Example:
        >>> [tries_again(StreamOptions(request_failed_retry_times=2), RetryStatus.FAILED, n, 0.0) for n in (1, 2, 3)]
        [True, True, False]
    """
    enabled = options.request_failed_retry_enable and options.request_failed_retry_mode is not RetryMode.NO_RETRY_MODE
    listed = status in options.request_failed_retry_status
    in_time = seconds < options.retry_deadline_seconds
    return enabled and listed and in_time and attempts <= options.request_failed_retry_times


def chained(error: BaseException, first: BaseException) -> BaseException:
    """Return the failure of the last attempt; at the end of its causes stands the one of the first attempt.

    Example:
        >>> error = chained(StorageError("down"), StorageError("slow"))
        >>> str(error.__cause__)
        'slow'
    """
    last, visited = error, {id(first)}
    while id(last) not in visited:
        visited.add(id(last))
        before = last.__cause__ or last.__context__
        if before is None:
            last.__cause__ = first
            break
        last = before
    return error


def pause_seconds(options: StreamOptions, attempts: int, jitter: float, seconds: float = 0.0) -> float:
    """Return the pause before the next attempt: twice as long each time, at most a minute, less up to a fifth.

    It ends at the deadline, so that the last attempt is made there.

    Args:
        options: of the stream.
        attempts: made so far, at least 1.
        jitter: in [0, 1).
        seconds: since the first attempt.

    Example:
        >>> pause_seconds(StreamOptions(), 1, 0.0), pause_seconds(StreamOptions(), 9, 0.0)
        (5.0, 50.0)
        >>> pause_seconds(StreamOptions(), 2, 0.0, 45.0)
        5.0
    """
    pause = options.request_failed_retry_interval_ms / 1000 * float(2 ** min(attempts - 1, 20))
    remaining = max(0.0, options.retry_deadline_seconds - seconds)
    return min(remaining, min(_LONGEST_PAUSE_SECONDS, pause) * (1 - jitter / 5))
