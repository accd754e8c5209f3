"""The errors of lakefmt: one tree, grouped by what the caller does next.

::

    LakefmtError
    ├── ConflictError            retry, or rebase the change
    │   ├── CommitConflict         another commit touched the same file groups
    │   ├── WriterActive           another writer's instant is pending and alive
    │   ├── LockUnavailable        the table lock is held by somebody else
    │   └── LeaseLost              this writer was declared dead; its commit is refused
    ├── NotFoundError            check the name (also KeyError)
    │   ├── TableNotFound
    │   ├── InstantNotFound
    │   ├── ObjectNotFound
    │   └── SnapshotExpired        files of a pinned snapshot were cleaned away
    ├── AlreadyExistsError       choose another name, or accept what is there
    │   └── TableExists
    ├── InvalidInputError        fix the call: data, filter or option (also ValueError)
    │   ├── SchemaMismatch
    │   ├── InvalidKey
    │   ├── InvalidFilter
    │   ├── MergerFailed           a merge function raised, or gave an answer that cannot be written
    │   └── UnknownSetting
    ├── UnsupportedError         this lakefmt cannot do that to this table; nothing was changed
    │   ├── UnsupportedVersion     upgrade lakefmt, or the table
    │   ├── UnsupportedFeature     change the table's settings, or use another engine
    │   │   └── MergerMissing        hand in the function by which the table merges
    │   └── MetadataTablePresent   drop the metadata table first, on request
    ├── StateError               change the order of the calls
    │   ├── IllegalTransition
    │   └── InstantNotPending
    ├── FormatError              repair the table: stored bytes are not what they should be
    │   ├── CorruptFile
    │   ├── CompletedFileMissing   an instant was complete, and the file that says so is gone
    │   └── UnsafePath             a stored path leaves the table
    ├── StorageError             wait and retry, or look at the store (``transient`` says which)
    └── InternalError            report it: a law of lakefmt was broken; nothing was committed

Every class carries a stable ``kind`` code (append-only) that also appears in the JSON output of the
command line. Messages say what happened, to which instant or file, and what to try. Secrets never appear.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AlreadyExistsError",
    "CommitConflict",
    "CompletedFileMissing",
    "ConflictError",
    "CorruptFile",
    "FormatError",
    "IllegalTransition",
    "InstantNotFound",
    "InstantNotPending",
    "InternalError",
    "InvalidFilter",
    "InvalidInputError",
    "InvalidKey",
    "LakefmtError",
    "LeaseLost",
    "LockUnavailable",
    "MergerFailed",
    "MergerMissing",
    "MetadataTablePresent",
    "NotFoundError",
    "ObjectNotFound",
    "SchemaMismatch",
    "ServicesFailed",
    "SnapshotExpired",
    "StateError",
    "StorageError",
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
    """Base of every error that lakefmt raises on purpose."""

    kind: ClassVar[str] = "lakefmt"

    def __str__(self) -> str:
        # KeyError would print the repr of its argument; a sentence is wanted.
        return str(self.args[0]) if self.args else self.kind


class ConflictError(LakefmtError):
    """Somebody else was faster or holds something; retry or rebase."""

    kind = "conflict"


_SAID_OF_A_CONFLICT = ("rival", "writer", "file_groups", "partitions", "advice", "can_rebase")


class CommitConflict(ConflictError):
    """This write and what happened meanwhile cannot both stand; nothing of this write is visible.

    Attributes:
        rival: requested time of the other instant; None when it is not one instant that is in the way.
        writer: who wrote it, as far as it said so.
        file_groups: (partition, file id) of what both touched.
        partitions: where they met, when not in file groups.
        advice: the choice that would have avoided it.
        can_rebase: True when the same write, begun again on the newest state, may succeed.
    """

    kind = "commit_conflict"

    def __init__(
        self,
        message: str,
        *,
        rival: str | None = None,
        writer: str | None = None,
        file_groups: tuple[tuple[str, str], ...] = (),
        partitions: tuple[str, ...] = (),
        advice: str = "",
        can_rebase: bool = True,
    ) -> None:
        super().__init__(message)
        self.rival = rival
        self.writer = writer
        self.file_groups = file_groups
        self.partitions = partitions
        self.advice = advice
        self.can_rebase = can_rebase

    def __reduce__(self) -> tuple[object, ...]:
        said = {name: getattr(self, name) for name in _SAID_OF_A_CONFLICT}
        return (_rebuild_commit_conflict, (type(self), self.args[0], said))


class WriterActive(ConflictError):
    """Another writer's instant is pending and its heartbeat has not expired."""

    kind = "writer_active"


class LockUnavailable(ConflictError):
    """The table lock could not be had within the time allowed."""

    kind = "lock_unavailable"


class LeaseLost(ConflictError):
    """This writer lost its lease or was rolled back by another; its commit is refused."""

    kind = "lease_lost"


class NotFoundError(LakefmtError, KeyError):
    """Something named in the call is not there."""

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


class AlreadyExistsError(LakefmtError):
    """Something of that name is already there."""

    kind = "already_exists"


class TableExists(AlreadyExistsError):
    """The path already holds a table."""

    kind = "table_exists"


class InvalidInputError(LakefmtError, ValueError):
    """The call cannot be carried out as given; fix the data or the option."""

    kind = "invalid_input"


class SchemaMismatch(InvalidInputError):
    """The data do not fit the table's schema."""

    kind = "schema_mismatch"


class InvalidKey(InvalidInputError):
    """A record key or partition value cannot be used."""

    kind = "invalid_key"


class InvalidFilter(InvalidInputError):
    """A filter cannot be understood or names unknown columns."""

    kind = "invalid_filter"


class MergerFailed(InvalidInputError):
    """A merge function raised, or answered with rows that cannot stand for those it was given; nothing is visible."""

    kind = "merger_failed"


class UnknownSetting(InvalidInputError):
    """No setting has that name, or the value is not one it takes."""

    kind = "unknown_setting"


class UnsupportedError(LakefmtError):
    """This lakefmt does not do that to this table; nothing was changed."""

    kind = "unsupported"


class UnsupportedVersion(UnsupportedError):
    """The table's version or layout is not one that lakefmt reads."""

    kind = "unsupported_version"


class UnsupportedFeature(UnsupportedError):
    """The table uses a feature that lakefmt cannot keep."""

    kind = "unsupported_feature"


class MergerMissing(UnsupportedFeature):
    """The table merges by a function that this process does not have."""

    kind = "merger_missing"


class MetadataTablePresent(UnsupportedError):
    """The table advertises a metadata table or index; writing past it would hide rows from other readers."""

    kind = "metadata_table_present"


class StateError(LakefmtError):
    """The call came in the wrong order."""

    kind = "state"


class IllegalTransition(StateError):
    """An instant may not move to that state; nothing moved."""

    kind = "illegal_transition"


class ServicesFailed(LakefmtError):
    """Services failed in the background, and no commit has reported it; what was committed stands."""

    kind = "services_failed"


class InstantNotPending(StateError):
    """The instant is not pending any more (completed, rolled back or never begun)."""

    kind = "instant_not_pending"


class FormatError(LakefmtError):
    """Stored bytes are not what the format asks for."""

    kind = "format"


class CorruptFile(FormatError):
    """A file cannot be decoded: truncated, damaged or of another kind."""

    kind = "corrupt_file"


class CompletedFileMissing(FormatError):
    """A pending instant was complete: its files are there, its writer removed claim and markers, its completed file is gone."""

    kind = "completed_file_missing"


class UnsafePath(FormatError):
    """A path found in a stored file is absolute, leaves the table, or holds forbidden characters."""

    kind = "unsafe_path"


class StorageError(LakefmtError):
    """The store failed. ``transient`` says whether waiting may help."""

    kind = "storage"

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_storage_error, (type(self), self.args[0], self.transient))


class InternalError(LakefmtError):
    """A law of lakefmt was broken; the operation stopped before anything became visible."""

    kind = "internal"


def _rebuild_commit_conflict(cls: type[CommitConflict], message: str, said: dict[str, Any]) -> CommitConflict:
    return cls(message, **said)


def _rebuild_storage_error(cls: type[StorageError], message: str, transient: bool) -> StorageError:
    return cls(message, transient=transient)
