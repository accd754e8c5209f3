"""The options of a real-time stream under the SDK's names (pure)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from lakefmt._core.arguments import mapping_argument
from lakefmt._core.producers.stream.options import (
    DEFAULT_RETRY_STATUS,
    ErrorHandler,
    ErrorTypeHandler,
    FlushMode,
    RetryMode,
    RetryStatus,
    StreamOptions,
)
from lakefmt.errors import InvalidInputError

__all__ = ["CZSessionOptions", "ProtocolType", "RealtimeOperation", "RealtimeOptionsBuilder"]


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
        for given in retry_status:
            if isinstance(given, Iterable) and not isinstance(given, (str, RetryStatus)):
                statuses.extend(given)
            else:
                statuses.append(given)
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
        """Accept the SDK's option; without effect."""
        return self._with("tablet_idle_recreate_support", enabled)

    def with_tablet_idle_status(self, status_set: Iterable[RetryStatus]) -> Self:
        """Accept the SDK's option; without effect."""
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
