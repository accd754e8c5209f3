"""What went wrong: the status of an error, when it is tried again, and the rows that could not be made durable (pure)."""

from __future__ import annotations

from dataclasses import field
from typing import Final

import pyarrow as pa

from lakefmt.data_classes import dataclass
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
from lakefmt.producers.stream.options import RetryMode, RetryStatus, StreamOptions

__all__ = ["FailedBatch", "chained", "passes_by_itself", "pause_seconds", "retry_status_of", "tries_again"]

_LONGEST_SECONDS: Final = 60.0


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
    last, seen = error, {id(first)}
    while id(last) not in seen:
        seen.add(id(last))
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
    left = max(0.0, options.retry_deadline_seconds - seconds)
    return min(left, min(_LONGEST_SECONDS, pause) * (1 - jitter / 5))
