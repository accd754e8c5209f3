"""The writing road cut in four, for engines that spread the work: begin, write files, commit, abort.

``table.upsert`` is nothing but these calls. A driver begins and assigns; workers anywhere call :func:`write_files`,
twice or again after a crash as they like; the driver commits in one place under one lock.

Example:
    >>> import pyarrow as pa, lakefmt
    >>> table = lakefmt.create_table("memory://doc-lowlevel", schema=pa.schema([("id", pa.string())]), record_key="id")
    >>> context = begin_write(table, "upsert")
    >>> work = assign(context, pa.table({"id": ["a", "b"]}))
    >>> statuses = [write_files(context, assignment, batches) for assignment, batches in work]
    >>> commit(context, statuses).num_inserts
    2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt.errors import StateError
from lakefmt.storage.opening import open_store
from lakefmt.values import CommitResult, WriteOperation
from lakefmt.write.files import write_assigned
from lakefmt.write.request import WriteRequest
from lakefmt.write.session import WriteSession, find_session
from lakefmt.write.values import FileAssignment, WriteContext, WriteStatus

if TYPE_CHECKING:
    from lakefmt.table import Table

__all__ = ["FileAssignment", "WriteContext", "WriteStatus", "abort", "assign", "begin_write", "commit", "write_files"]


def begin_write(
    table: Table,
    operation: str | WriteOperation = "upsert",
    options: Mapping[str, object] | None = None,
    *,
    schema: pa.Schema | None = None,
    commit_metadata: Mapping[str, str] | None = None,
) -> WriteContext:
    """Begin a write: what dead writers left is undone, the instant is inflight, nothing is visible.

    Args:
        table: an open table.
        operation: ``upsert``, ``insert``, ``bulk_insert`` or ``delete``.
        options: settings of this write.
        schema: the incoming data's schema when it may add columns; None: the table's.
        commit_metadata: texts to keep in the commit.

    Returns:
        A frozen value that pickles without handles and secrets.

    Raises:
        WriterActive: another writer is at work.
        MetadataTablePresent: see there for the way out.
    """
    chosen = operation if isinstance(operation, WriteOperation) else WriteOperation(operation.upper())
    request = WriteRequest(chosen, dict(options or {}), dict(commit_metadata or {}))
    return WriteSession.begin(table.access, request, schema).context


def assign(context: WriteContext, data: object) -> list[tuple[FileAssignment, list[pa.Table]]]:
    """Give every row its file: keys, combining, look-up, file sizing. In the process that began the write.

    Raises:
        SchemaMismatch: the data do not fit the table.
        InvalidKey: a key or partition value cannot be used.
    """
    return _session(context).assign(data)


def write_files(
    context: WriteContext,
    assignment: FileAssignment,
    batches: Iterable[pa.Table],
    *,
    storage_options: Mapping[str, object] | None = None,
) -> WriteStatus:
    """Write one assigned file; runs anywhere, any number of times, at the same time if need be.

    Args:
        context: from :func:`begin_write`.
        assignment: from :func:`assign`.
        batches: the rows that :func:`assign` gave with it.
        storage_options: credentials, when this process did not begin the write; contexts carry none.

    Raises:
        StorageError: the store failed; call again.
    """
    session = find_session(context)
    store = session.access.store if session is not None else open_store(context.url, storage_options)
    return write_assigned(store, context, assignment, batches)


def commit(context: WriteContext, statuses: Sequence[WriteStatus]) -> CommitResult:
    """Make the write visible, all of it or nothing. In the process that began it.

    Raises:
        CommitConflict: a rival changed the same file groups meanwhile.
        InstantNotPending: this writer was declared dead and undone.
    """
    return _session(context).commit(statuses)


def abort(context: WriteContext) -> None:
    """Undo a write that began; its files go. Twice is fine."""
    session = find_session(context)
    if session is not None:
        session.abort()


def _session(context: WriteContext) -> WriteSession:
    session = find_session(context)
    if session is None:
        raise StateError(f"the write {context.instant} was not begun by this process, or has ended")
    return session
