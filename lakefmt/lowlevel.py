"""The steps of a write as single calls, for engines that spread the work over processes: begin, assign, write, commit.

``Table`` runs the same steps in one call. One process begins and assigns; workers anywhere call :func:`write_files`,
twice or again after a crash as they like; then one process commits or aborts. That may be another one than the one that
began: everything that it needs is in the :class:`WriteContext` and in the table. A context pickles, and is JSON text by
:meth:`WriteContext.to_json`.

While the process that began lives, it keeps the write alive by its heartbeat. A process that calls :func:`assign` or
:func:`commit` after its death takes the heartbeat over, unless another writer has rolled the write back by then.

Example:
    >>> import pyarrow as pa, lakefmt
    >>> table = lakefmt.create_table("memory://doc-lowlevel", schema=pa.schema([("id", pa.string())]), record_key="id")
    >>> context = begin_write(table, "upsert")
    >>> work = assign(context, pa.table({"id": ["a", "b"]}))
    >>> statuses = [write_files(context, assignment, batches) for assignment, batches in work]
    >>> commit(WriteContext.from_json(context.to_json()), statuses).num_inserts
    2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefmt._core.arguments import (
    flag_argument,
    foreign_items,
    instance_argument,
    mapping_argument,
    shown,
    text_argument,
)
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableClient, TableVerbs
from lakefmt._core.formats.murmur import murmur_hadoop
from lakefmt._core.storage.open import open_store
from lakefmt._core.values import RECORD_KEY, CommitResult, WriteOperation
from lakefmt._core.write.context import (
    BoundContext,
    FileAssignment,
    WriteContext,
    WriteRequest,
    WriteStatus,
    honour_spark_options,
)
from lakefmt._core.write.files.base_file import write_assigned
from lakefmt._core.write.files.bundles import route
from lakefmt._core.write.ingest import open_stream, read_all
from lakefmt._core.write.transaction import (
    WriteTransaction,
    abort_context,
    begin_saved,
    find_transaction,
    resume_transaction,
)
from lakefmt.errors import InvalidInputError, InvalidKey

if TYPE_CHECKING:
    from lakefmt._core.table import Table

__all__ = ["FileAssignment", "WriteContext", "WriteStatus", "abort", "assign", "begin_write", "commit", "write_files"]


def begin_write(
    table: Table,
    operation: str | WriteOperation = "upsert",
    options: Mapping[str, object] | None = None,
    *,
    schema: pa.Schema | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    partial: bool = False,
    drop_duplicates: bool = False,
) -> WriteContext:
    """Begin a write: writes of dead processes are rolled back, the instant is inflight, nothing is visible.

    Args:
        table: an open table.
        operation: ``upsert``, ``insert``, ``bulk_insert`` or ``delete``.
        options: settings of this write.
        schema: the incoming data's schema when it may add columns; None: the table's.
        commit_metadata: texts to keep in the commit.
        partial: of an upsert: rows may lack columns; stored values stay.
        drop_duplicates: of an insert: leave out rows whose key is stored already or comes twice.

    Returns:
        A frozen value without open files and secrets.

    Raises:
        WriterActive: another writer is at work.
        MetadataTablePresent: see there for the way out.

    Example:
        >>> import pyarrow as pa, lakefmt
        >>> table = lakefmt.create_table("memory://doc-low-begin", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> begin_write(table, "insert", {"hoodie.clean.automatic": False}).operation.value
        'INSERT'
    """
    request = WriteRequest(
        _operation(operation),
        mapping_argument(options, "options"),
        mapping_argument(commit_metadata, "commit_metadata"),
        partial=flag_argument(partial, "partial"),
        drop_duplicates=flag_argument(drop_duplicates, "drop_duplicates"),
    )
    if schema is not None:
        instance_argument(schema, pa.Schema, "schema")
    client = instance_argument(table, TableVerbs, "table").client
    return begin_saved(client, honour_spark_options(request), schema).context


def _operation(operation: str | WriteOperation) -> WriteOperation:
    if isinstance(operation, WriteOperation):
        return operation
    try:
        return WriteOperation(text_argument(operation, "operation").upper())
    except ValueError:
        raise InvalidInputError(
            f"unknown operation {shown(operation)}: expected 'upsert', 'insert', 'bulk_insert' or 'delete'"
        ) from None


def assign(
    context: WriteContext, data: object, *, storage_options: Mapping[str, object] | None = None
) -> list[tuple[FileAssignment, list[pa.Table]]]:
    """Give every row its file: keys, combining, look-up, file sizing; all rows of a write in one call.

    Args:
        context: from :func:`begin_write`.
        data: anything that holds Arrow data.
        storage_options: credentials, when another process began the write; contexts carry none.

    Raises:
        SchemaMismatch: the data do not fit the table.
        InvalidKey: a key or partition value cannot be used.
        CommitConflict: another writer is at work on one of the file groups.
        InstantNotPending: the write was committed, aborted or rolled back.
        StateError: rows of this write have files already.

    Example:
        >>> import pyarrow as pa, lakefmt
        >>> table = lakefmt.create_table("memory://doc-low-assign", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> work = assign(begin_write(table, "insert"), pa.table({"id": ["a", "b"]}))
        >>> [(assignment.num_rows, len(batches)) for assignment, batches in work]
        [(2, 1)]
    """
    transaction = _transaction(context, storage_options)
    schema, tables = open_stream(data)
    keyed = transaction.key(read_all(schema, tables))
    located = transaction.locate(keyed)
    placed = transaction.place(located)
    work = [(each.assignment, [route(placed.batch, each)]) for each in placed.assigned]
    return [(replace(file, digest=_digest(context, batches)), batches) for file, batches in work]


def _digest(context: WriteContext, batches: Iterable[pa.Table]) -> str:
    """Return a digest of the write and of the keys of some rows, in any order; of the write alone where keys are missing."""
    total = 0
    with suppress(KeyError, InvalidKey):  # keys are generated, or too long to be hashed
        for batch in batches:
            total += int(murmur_hadoop(batch.column(RECORD_KEY).cast(pa.string())).sum(dtype=np.uint64))
    return f"{context.owner}-{total:x}"


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
        storage_options: credentials, when another process began the write; contexts carry none.

    Raises:
        StorageError: the store failed; call again.
        InvalidInputError: these are not the rows that the assignment was made for.

    Example:
        >>> import pyarrow as pa, lakefmt
        >>> table = lakefmt.create_table("memory://doc-low-files", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> context = begin_write(table, "insert")
        >>> [(assignment, batches)] = assign(context, pa.table({"id": ["a", "b"]}))
        >>> again = [write_files(context, assignment, batches) for _ in range(2)]
        >>> commit(context, again).num_inserts
        2
    """
    running = find_transaction(instance_argument(context, WriteContext, "context"))
    instance_argument(assignment, FileAssignment, "assignment")
    items = foreign_items(batches, "batches takes the tables that assign gave")
    tables = [instance_argument(each, pa.Table, "batches") for each in items]
    if not tables:
        raise InvalidInputError("batches is empty: give the tables that assign gave with the assignment")
    num_rows = sum(table.num_rows for table in tables)
    if assignment.num_rows not in (None, num_rows) or assignment.digest not in (None, _digest(context, tables)):
        raise InvalidInputError(
            f"these are not the {assignment.num_rows} rows of {assignment.path}: give the tables that assign gave with it"
        )
    bound = BoundContext(open_store(context.url, storage_options), context) if running is None else running.bound
    return write_assigned(bound, assignment, tables)


def commit(
    context: WriteContext, statuses: Sequence[WriteStatus], *, storage_options: Mapping[str, object] | None = None
) -> CommitResult:
    """Make the write visible, all of it or nothing.

    Args:
        context: from :func:`begin_write`.
        statuses: what :func:`write_files` returned for every file, each once or several times.
        storage_options: credentials, when another process began the write; contexts carry none.

    Raises:
        CommitConflict: another writer changed the same file groups meanwhile.
        InstantNotPending: the write was committed or aborted already, or its process died and it was rolled back.
        StateError: a file that :func:`assign` gave has no status, or a status is of another write.

    Example:
        >>> import pyarrow as pa, lakefmt
        >>> table = lakefmt.create_table("memory://doc-low-commit", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> context = begin_write(table, "insert")
        >>> statuses = [write_files(context, *each) for each in assign(context, pa.table({"id": ["a"]}))]
        >>> commit(context, statuses).num_inserts, table.read().num_rows
        (1, 1)
    """
    given = foreign_items(statuses, "statuses takes what write_files returned")
    instance_argument(context, WriteContext, "context")
    checked = [instance_argument(each, WriteStatus, "statuses") for each in given]
    return _transaction(context, storage_options).commit(checked)


def abort(context: WriteContext, *, storage_options: Mapping[str, object] | None = None) -> None:
    """Undo a write that began; its files go. Twice is fine.

    Args:
        context: from :func:`begin_write`.
        storage_options: credentials, when another process began the write; contexts carry none.

    Raises:
        WriterActive: the instant belongs to another writer.

    Example:
        >>> import pyarrow as pa, lakefmt
        >>> table = lakefmt.create_table("memory://doc-low-abort", schema=pa.schema([("id", pa.string())]), record_key="id")
        >>> context = begin_write(table, "insert")
        >>> _ = [write_files(context, *each) for each in assign(context, pa.table({"id": ["a"]}))]
        >>> abort(context)
        >>> table.read().num_rows, len(table.timeline.timeline.pending)
        (0, 0)
    """
    abort_context(_client(instance_argument(context, WriteContext, "context"), storage_options), context)


def _transaction(context: WriteContext, storage_options: Mapping[str, object] | None) -> WriteTransaction:
    running = find_transaction(instance_argument(context, WriteContext, "context"))
    return resume_transaction(_client(context, storage_options), context) if running is None else running


def _client(context: WriteContext, storage_options: Mapping[str, object] | None) -> TableClient:
    running = find_transaction(context)
    if running is not None:
        return running.client
    return TableClient(open_store(context.url, storage_options), dict(context.options))
