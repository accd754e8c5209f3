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
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt.arguments import foreign_items, instance_argument, mapping_argument, shown, text_argument
from lakefmt.errors import InvalidInputError, StateError
from lakefmt.filegroups.table_client import TableVerbs
from lakefmt.storage.open import open_store
from lakefmt.values import CommitResult, WriteOperation
from lakefmt.write.context import FileAssignment, WriteContext, WriteRequest, WriteStatus
from lakefmt.write.files.base_file import write_assigned
from lakefmt.write.session import WriteSession, find_session

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
    request = WriteRequest(
        _operation(operation),
        mapping_argument(options, "options"),
        mapping_argument(commit_metadata, "commit_metadata"),
    )
    if schema is not None:
        instance_argument(schema, pa.Schema, "schema")
    return WriteSession.begin(instance_argument(table, TableVerbs, "table").client, request, schema).context


def _operation(operation: str | WriteOperation) -> WriteOperation:
    if isinstance(operation, WriteOperation):
        return operation
    try:
        return WriteOperation(text_argument(operation, "operation").upper())
    except ValueError:
        raise InvalidInputError(
            f"unknown operation {shown(operation)}: expected 'upsert', 'insert', 'bulk_insert' or 'delete'"
        ) from None


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
    session = find_session(instance_argument(context, WriteContext, "context"))
    instance_argument(assignment, FileAssignment, "assignment")
    store = session.client.store if session is not None else open_store(context.url, storage_options)
    items = foreign_items(batches, "batches takes the tables that assign gave")
    tables = (instance_argument(one, pa.Table, "batches") for one in items)
    first = next(tables, None)
    if first is None:
        raise InvalidInputError("batches is empty: give the tables that assign gave with the assignment")
    return write_assigned(store, context, assignment, chain([first], tables))


def commit(context: WriteContext, statuses: Sequence[WriteStatus]) -> CommitResult:
    """Make the write visible, all of it or nothing. In the process that began it.

    Raises:
        CommitConflict: a rival changed the same file groups meanwhile.
        InstantNotPending: this writer was declared dead and undone.
    """
    session = _session(context)
    given = foreign_items(statuses, "statuses takes what write_files returned")
    return session.commit([instance_argument(one, WriteStatus, "statuses") for one in given])


def abort(context: WriteContext) -> None:
    """Undo a write that began; its files go. Twice is fine."""
    session = find_session(instance_argument(context, WriteContext, "context"))
    if session is not None:
        session.abort()


def _session(context: WriteContext) -> WriteSession:
    session = find_session(instance_argument(context, WriteContext, "context"))
    if session is None:
        raise StateError(f"the write {context.instant} was not begun by this process, or has ended")
    return session
