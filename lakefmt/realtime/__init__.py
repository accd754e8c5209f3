"""Real-time streams under the names of the ClickZetta SDK (docs/realtime.md).

A program written for it changes its imports and how it connects. ``connection``, with its cursor, and ``stream``, with its
options, act; ``rows`` turns values into what a table stores; ``statements`` reads SQL and SQL types; ``errors`` has the SDK's names. The rows themselves travel through ``lakefmt._core.producers.stream``.
"""

from lakefmt._core.producers.stream.options import ErrorTypeHandler, FlushMode, RetryMode, RetryStatus, RowOperator
from lakefmt.realtime.connection import Connection, Cursor, FolderCatalog, TableCatalog, connect
from lakefmt.realtime.errors import (
    CastFailed,
    CZException,
    DatabaseError,
    DataError,
    Error,
    FlushTaskCallException,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    RowRefused,
    StreamClosed,
)
from lakefmt.realtime.rows import Row
from lakefmt.realtime.stream import (
    CZSessionOptions,
    ProtocolType,
    RealtimeOperation,
    RealtimeOptionsBuilder,
    RealtimeStream,
)

__all__ = [
    "CZException",
    "CZSessionOptions",
    "CastFailed",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Error",
    "ErrorTypeHandler",
    "FlushMode",
    "FlushTaskCallException",
    "FolderCatalog",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "ProtocolType",
    "RealtimeOperation",
    "RealtimeOptionsBuilder",
    "RealtimeStream",
    "RetryMode",
    "RetryStatus",
    "Row",
    "RowOperator",
    "RowRefused",
    "StreamClosed",
    "TableCatalog",
    "connect",
]
