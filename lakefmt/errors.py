"""The errors of lakefmt: one tree, grouped by the caller's next step.

::

    LakefmtError
    ├── ConflictError            retry, or rebase the change
    │   ├── CommitConflict         another commit touched the same file groups
    │   ├── WriterActive           another writer's instant is pending and alive
    │   ├── ConsumerActive         another reader uses the consumer's id
    │   ├── LockUnavailable        the table lock is held by another writer
    │   ├── LeaseLost              this writer was declared dead; its commit is refused
    │   └── CheckpointMoved        another process of the ingest job committed first
    ├── NotFoundError            check the name (also KeyError)
    │   ├── TableNotFound
    │   ├── InstantNotFound
    │   ├── ObjectNotFound
    │   └── SnapshotExpired        files of a pinned snapshot were cleaned away
    │       └── DataExpired          a stream needs rows that were cleaned away (``oldest`` says what is left)
    ├── AlreadyExistsError       choose another name, or accept what is there
    │   └── TableExists
    ├── InvalidInputError        fix the call: data, filter or option (also ValueError)
    │   ├── SchemaMismatch
    │   │   └── SchemaChanged        the table's columns changed under a stream so that its rows do not fit
    │   ├── InvalidKey
    │   ├── DuplicateKey           a stream's strict insert found its key stored
    │   ├── KeyNotFound            a stream's strict update or delete did not find its key
    │   ├── InvalidExpression      an SQL expression is not understood, or fails for a row
    │   ├── InvalidFilter
    │   ├── MergerFailed           a merge function raised, or returned invalid rows
    │   ├── RowsRejected           rows of an ingest job cannot be stored, or fail a check
    │   └── UnknownSetting
    ├── UnsupportedError         not supported for this table; nothing was changed
    │   ├── UnsupportedVersion     upgrade lakefmt, or the table
    │   ├── UnsupportedFeature     change the table's settings, or use another engine
    │   │   └── MergerMissing        register the merge function of the table
    │   └── MetadataTablePresent   drop the metadata table first, on request
    ├── StateError               change the order of the calls
    │   ├── IllegalTransition
    │   └── InstantNotPending
    ├── StreamError              flush, wait for, reopen or close a stream of rows
    │   ├── StreamClosed           the stream is closed, or was forked (also RuntimeError)
    │   ├── BufferFull             flush: a stream without automatic flushes holds all it may
    │   ├── BackPressureTimeout    wait: storage is slower than the rows come
    │   ├── FlushFailed            rows could not be made durable; failed_rows() has them
    │   ├── CommitFailed           every row is durable and not committed: do not send them again
    │   └── StreamUnavailable      another process opened a stream of this writer
    ├── SourceError              look at the database that a table follows
    │   ├── SourceUnavailable      it cannot be reached now; nothing is lost, try again
    │   ├── SourceRefused          a setting, a right or a table of it: the message says what mends it
    │   ├── SourceChanged          its columns changed so that the table cannot follow
    │   └── PositionLost           it does not have the changes behind the stored position any more
    ├── LoadFailed               a server of loads refused, or did not answer (``transient`` says whether to try again)
    ├── FormatError              repair the table: stored bytes are not what they should be
    │   ├── CorruptFile
    │   ├── CompletedFileMissing   the completed file of an instant is missing
    │   └── UnsafePath             a stored path leaves the table
    ├── ServicesFailed           look at the services: commits stay valid
    ├── StorageError             wait and retry, or look at the store (``transient`` says which)
    └── InternalError            report it: an invariant was broken; nothing was committed

Every class has a stable ``kind`` code (append-only) that also appears in the JSON output of the
command line. Messages say what happened, to which instant or file, and what to try. They contain no
secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

__all__ = [
    "AlreadyExistsError",
    "BackPressureTimeout",
    "BufferFull",
    "CheckpointMoved",
    "CommitConflict",
    "CommitFailed",
    "CompletedFileMissing",
    "ConflictError",
    "ConsumerActive",
    "CorruptFile",
    "DataExpired",
    "DuplicateKey",
    "FlushFailed",
    "FormatError",
    "IllegalTransition",
    "InstantNotFound",
    "InstantNotPending",
    "InternalError",
    "InvalidExpression",
    "InvalidFilter",
    "InvalidInputError",
    "InvalidKey",
    "KeyNotFound",
    "LakefmtError",
    "LeaseLost",
    "LoadFailed",
    "LockUnavailable",
    "MergerFailed",
    "MergerMissing",
    "MetadataTablePresent",
    "NotFoundError",
    "ObjectNotFound",
    "PositionLost",
    "RowsRejected",
    "SchemaChanged",
    "SchemaMismatch",
    "ServicesFailed",
    "SnapshotExpired",
    "SourceChanged",
    "SourceError",
    "SourceRefused",
    "SourceUnavailable",
    "StateError",
    "StorageError",
    "StreamClosed",
    "StreamError",
    "StreamUnavailable",
    "TableExists",
    "TableNotFound",
    "UnknownSetting",
    "UnsafePath",
    "UnsupportedError",
    "UnsupportedFeature",
    "UnsupportedVersion",
    "WriterActive",
]


class LakefmtError(Exception):
    """The base of all lakefmt errors."""

    kind: ClassVar[str] = "lakefmt"

    def __str__(self) -> str:
        # KeyError would print the repr of its argument.
        return str(self.args[0]) if self.args else self.kind


class ConflictError(LakefmtError):
    """Another writer was faster or holds something; retry or rebase."""

    kind = "conflict"


_CONFLICT_FIELDS = ("other_instant", "writer", "file_groups", "partitions", "advice", "can_rebase")


class CommitConflict(ConflictError):
    """This write conflicts with another; nothing of this write is visible.

    Attributes:
        other_instant: requested time of the other instant; None if it is not a single instant.
        writer: the other writer's name, if known.
        file_groups: (partition, file id) pairs that both changed.
        partitions: common partitions, if not file groups.
        advice: how to avoid the conflict.
        can_rebase: True if the same write, repeated on the newest state, may succeed.
    """

    kind = "commit_conflict"

    def __init__(
        self,
        message: str,
        *,
        other_instant: str | None = None,
        writer: str | None = None,
        file_groups: tuple[tuple[str, str], ...] = (),
        partitions: tuple[str, ...] = (),
        advice: str = "",
        can_rebase: bool = True,
    ) -> None:
        super().__init__(message)
        self.other_instant = other_instant
        self.writer = writer
        self.file_groups = file_groups
        self.partitions = partitions
        self.advice = advice
        self.can_rebase = can_rebase

    def __reduce__(self) -> tuple[object, ...]:
        fields = {name: getattr(self, name) for name in _CONFLICT_FIELDS}
        return (_rebuild_commit_conflict, (type(self), self.args[0], fields))


class WriterActive(ConflictError):
    """Another writer's instant is pending and its heartbeat has not expired."""

    kind = "writer_active"


class ConsumerActive(ConflictError):
    """Another reader uses this id of a consumer, and was heard of lately."""

    kind = "consumer_active"


class LockUnavailable(ConflictError):
    """The table lock was not acquired in time."""

    kind = "lock_unavailable"


class LeaseLost(ConflictError):
    """This writer lost its lease or was rolled back by another; its commit is refused."""

    kind = "lease_lost"


class NotFoundError(LakefmtError, KeyError):
    """Something named in the call does not exist."""

    kind = "not_found"


class TableNotFound(NotFoundError):
    """The path holds no table."""

    kind = "table_not_found"


class InstantNotFound(NotFoundError):
    """The timeline (active and archived) has no such instant."""

    kind = "instant_not_found"


class ObjectNotFound(NotFoundError):
    """The store has no object of that name."""

    kind = "object_not_found"


class SnapshotExpired(NotFoundError):
    """Files that a pinned snapshot needs have been cleaned away."""

    kind = "snapshot_expired"


class DataExpired(SnapshotExpired):
    """A stream needs rows that have been cleaned away.

    Attributes:
        oldest: requested time of the oldest instant that can still be read; None: of none it is known.
    """

    kind = "data_expired"

    def __init__(self, message: str, *, oldest: str | None = None) -> None:
        super().__init__(message)
        self.oldest = oldest

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_data_expired, (type(self), self.args[0], self.oldest))


class AlreadyExistsError(LakefmtError):
    """Something of that name already exists."""

    kind = "already_exists"


class TableExists(AlreadyExistsError):
    """The path already holds a table."""

    kind = "table_exists"


class InvalidInputError(LakefmtError, ValueError):
    """The call is not valid; fix the data or the option."""

    kind = "invalid_input"


class SchemaMismatch(InvalidInputError):
    """The data do not fit the table's schema."""

    kind = "schema_mismatch"


class SchemaChanged(SchemaMismatch):
    """The table's columns changed so that rows buffered by a stream do not fit; the rows are kept."""

    kind = "schema_changed"


class InvalidKey(InvalidInputError):
    """A record key or partition value cannot be used."""

    kind = "invalid_key"


class DuplicateKey(InvalidInputError):
    """A strict insert found its key in the table."""

    kind = "duplicate_key"


class KeyNotFound(InvalidInputError):
    """A strict update or delete did not find its key in the table."""

    kind = "key_not_found"


class InvalidExpression(InvalidInputError):
    """An SQL expression is not valid, names unknown columns, or cannot be computed for every row."""

    kind = "invalid_expression"


class InvalidFilter(InvalidInputError):
    """A filter is not valid or names unknown columns."""

    kind = "invalid_filter"


class MergerFailed(InvalidInputError):
    """A merge function raised, or returned rows that do not match its arguments; nothing is visible."""

    kind = "merger_failed"


class RowsRejected(InvalidInputError):
    """Rows of an ingest job cannot be decoded or stored, or fail a check; nothing of the round was committed."""

    kind = "rows_rejected"


class UnknownSetting(InvalidInputError):
    """No setting has that name, or the value is not valid for it."""

    kind = "unknown_setting"


class UnsupportedError(LakefmtError):
    """This lakefmt does not support that for this table; nothing was changed."""

    kind = "unsupported"


class UnsupportedVersion(UnsupportedError):
    """The table's version or layout is not supported."""

    kind = "unsupported_version"


class UnsupportedFeature(UnsupportedError):
    """The table uses a feature that lakefmt does not support."""

    kind = "unsupported_feature"


class MergerMissing(UnsupportedFeature):
    """The table's merge function is not registered in this process."""

    kind = "merger_missing"


class MetadataTablePresent(UnsupportedError):
    """The table has a metadata table or index; a write without it would hide rows from other readers."""

    kind = "metadata_table_present"


class StateError(LakefmtError):
    """The calls came in the wrong order."""

    kind = "state"


class IllegalTransition(StateError):
    """An instant may not change to that state; nothing changed."""

    kind = "illegal_transition"


class ServicesFailed(LakefmtError):
    """Table services failed in the background, and no commit has reported it; commits stay valid."""

    kind = "services_failed"


class InstantNotPending(StateError):
    """The instant is not pending (completed, rolled back or never begun)."""

    kind = "instant_not_pending"


class StreamError(LakefmtError):
    """A stream of rows cannot go on as it is."""

    kind = "stream"


class StreamClosed(StreamError, RuntimeError):
    """The stream is closed, or belongs to the parent of this process."""

    kind = "stream_closed"


class BufferFull(StreamError):
    """A stream without automatic flushes holds as many bytes as it may; flush it."""

    kind = "buffer_full"


class BackPressureTimeout(StreamError):
    """Storage is slower than the rows come, and a row waited for its place too long."""

    kind = "back_pressure_timeout"


class FlushFailed(StreamError):
    """Rows could not be made durable; ``failed_rows()`` of the stream has them, its cause is chained."""

    kind = "flush_failed"
    #: The rows and the cause; empty: not known.
    batches: Sequence[object] = ()


class CommitFailed(StreamError):
    """Every row that a stream was given is durable, and they are not committed; the cause is chained.

    Do not send the rows again: the next commit takes them, or that of the stream that is opened next.
    """

    kind = "commit_failed"


class StreamUnavailable(StreamError):
    """Another process opened a stream of the same writer; this one must not write any more."""

    kind = "stream_unavailable"


class CheckpointMoved(ConflictError):
    """Another process of the same ingest job committed first; nothing of this round is visible, and the next one begins behind it."""

    kind = "checkpoint_moved"


class SourceError(LakefmtError):
    """A table cannot follow its database any further; earlier changes are committed, or the database sends them again."""

    kind = "source"


class SourceUnavailable(SourceError):
    """The database is unreachable, or closed the connection; no change is lost, and a later attempt continues."""

    kind = "source_unavailable"


class SourceRefused(SourceError):
    """A setting, a right, a table or an event of the database does not allow it to be followed without loss.

    Attributes:
        tables: the names of the tables in the database that it is about, each as schema and table: without them the others can be
            followed; empty: it is about the whole database.
    """

    kind = "source_refused"

    def __init__(self, message: str, *, tables: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.tables = tuple(tables)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_source_refused, (self.args[0], self.tables))


class SourceChanged(SourceError):
    """The columns of a table of the database changed so that the table here cannot follow; both types are named."""

    kind = "source_changed"


class PositionLost(SourceError):
    """The database does not have the changes behind the stored position any more, or is not the one they came from.

    Attributes:
        tables: the names of the tables in the database that it is about, each as schema and table; empty: all.
    """

    kind = "position_lost"

    def __init__(self, message: str, *, tables: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.tables = tuple(tables)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_position_lost, (self.args[0], self.tables))


class LoadFailed(LakefmtError):
    """A server of loads refused, or did not answer.

    Attributes:
        status: its word for it, such as ``FAILED`` or ``LABEL_ALREADY_EXISTS``; empty: there was no answer.
        body: its whole reply.
        transient: the same request may succeed later.
    """

    kind = "load_failed"

    def __init__(
        self, message: str, *, status: str = "", body: Mapping[str, Any] | None = None, transient: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.body, self.transient = status, dict(body or {}), transient

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_load_failed, (self.args[0], self.status, self.body, self.transient))


class FormatError(LakefmtError):
    """Stored bytes do not follow the format."""

    kind = "format"


class CorruptFile(FormatError):
    """A file cannot be decoded: truncated, damaged or of another kind."""

    kind = "corrupt_file"


class CompletedFileMissing(FormatError):
    """A pending instant was complete: heartbeat and markers are gone, and the completed file is missing."""

    kind = "completed_file_missing"


class UnsafePath(FormatError):
    """A path in a stored file is absolute, leaves the table, or has forbidden characters."""

    kind = "unsafe_path"


class StorageError(LakefmtError):
    """The store failed. ``transient`` says whether a retry may help, ``throttled`` whether it asked for fewer requests."""

    kind = "storage"

    def __init__(self, message: str, *, transient: bool = False, throttled: bool = False) -> None:
        super().__init__(message)
        self.transient, self.throttled = transient, throttled

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_storage_error, (type(self), self.args[0], self.transient, self.throttled))


class InternalError(LakefmtError):
    """An invariant of lakefmt was broken; the operation stopped before anything became visible."""

    kind = "internal"


def _rebuild_commit_conflict(cls: type[CommitConflict], message: str, fields: dict[str, Any]) -> CommitConflict:
    return cls(message, **fields)


def _rebuild_data_expired(cls: type[DataExpired], message: str, oldest: str | None) -> DataExpired:
    return cls(message, oldest=oldest)


def _rebuild_storage_error(
    cls: type[StorageError], message: str, transient: bool, throttled: bool = False
) -> StorageError:
    return cls(message, transient=transient, throttled=throttled)


def _rebuild_source_refused(message: str, tables: Sequence[tuple[str, str]]) -> SourceRefused:
    return SourceRefused(message, tables=tables)


def _rebuild_position_lost(message: str, tables: Sequence[tuple[str, str]]) -> PositionLost:
    return PositionLost(message, tables=tables)


def _rebuild_load_failed(message: str, status: str, body: dict[str, Any], transient: bool) -> LoadFailed:
    return LoadFailed(message, status=status, body=body, transient=transient)
