"""The names of errors that programs for the SDK catch, as members of lakefmt's tree.

::

    LakefmtError
    ├── Error                    of a connection and its cursors, as PEP 249 has them
    │   ├── InterfaceError
    │   └── DatabaseError
    │       ├── DataError
    │       ├── IntegrityError
    │       ├── InternalError
    │       ├── OperationalError
    │       ├── ProgrammingError
    │       └── NotSupportedError
    ├── StreamError, also named CZException
    │   ├── RowRefused             a row cannot be applied (also ValueError)
    │   ├── StreamClosed           use after close (also RuntimeError)
    │   └── FlushFailed, also named FlushTaskCallException
    └── InvalidInputError (also ValueError)
        └── CastFailed             a value does not fit its column
"""

from __future__ import annotations

from lakefmt.errors import FlushFailed, InvalidInputError, LakefmtError, StreamClosed, StreamError

__all__ = [
    "CZException",
    "CastFailed",
    "DataError",
    "DatabaseError",
    "DatabaseInternalError",
    "Error",
    "FlushTaskCallException",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "RowRefused",
    "StreamClosed",
]

#: What goes wrong with rows on their way into a table.
CZException = StreamError
#: Rows could not be made durable.
FlushTaskCallException = FlushFailed


class RowRefused(StreamError, InvalidInputError):
    """A row cannot be applied; nothing of the call was taken, and the stream goes on."""

    kind = "row_refused"


class CastFailed(InvalidInputError):
    """A value does not fit the SQL type of its column."""

    kind = "cast_failed"


class Error(LakefmtError):
    """Any error of a connection or a cursor."""

    kind = "sql"


class InterfaceError(Error):
    """A cursor or connection is used wrongly, for example after close."""

    kind = "sql_interface"


class DatabaseError(Error):
    """A statement failed."""

    kind = "sql_database"


class DataError(DatabaseError):
    """A value in a statement does not fit."""

    kind = "sql_data"


class IntegrityError(DatabaseError):
    """A statement contradicts keys of a table."""

    kind = "sql_integrity"


class DatabaseInternalError(DatabaseError):
    """lakefmt broke an invariant of its own while it ran a statement."""

    kind = "sql_internal"


#: What DB-API 2.0 calls it.
InternalError = DatabaseInternalError


class OperationalError(DatabaseError):
    """Storage or another writer is in the way of a statement."""

    kind = "sql_operational"


class ProgrammingError(DatabaseError):
    """A statement is wrong: its text, or a name in it."""

    kind = "sql_programming"


class NotSupportedError(DatabaseError):
    """A statement is none of the few that a cursor runs."""

    kind = "sql_not_supported"
