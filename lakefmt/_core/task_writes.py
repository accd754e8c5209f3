"""Writes of frames whose rows lie in tasks of another engine, as Daft and Ray have them (effects)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from lakefmt._core.arguments import mapping_argument, shown, text_argument
from lakefmt._core.table import Table
from lakefmt._core.values import CommitResult, WriteOperation
from lakefmt._core.write.context import WriteRequest
from lakefmt._core.write.tasks import SharedWrite, TaskResult, TaskRows, TaskWriter, run_tasks_and_commit
from lakefmt.errors import InvalidInputError

__all__ = ["bulk_insert_by_tasks", "is_written_by_tasks", "pickled_result"]

#: Verbs that one writer runs for all rows.
_VERBS: Final = ("upsert", "insert", "insert_overwrite", "insert_overwrite_table", "append")


def is_written_by_tasks(operation: object) -> bool:
    """Return whether the tasks write the files of an operation; one writer runs the others.

    Raises:
        InvalidInputError: there is no such operation.

    Example:
        >>> is_written_by_tasks("bulk_insert"), is_written_by_tasks("upsert")
        (True, False)
    """
    if text_argument(operation, "operation") == "bulk_insert":
        return True
    if operation not in _VERBS:
        raise InvalidInputError(
            f"unknown operation {shown(operation)}: give 'bulk_insert' or one of {', '.join(_VERBS)}"
        )
    return False


def bulk_insert_by_tasks(
    table: Table,
    schema: pa.Schema,
    run: Callable[[SharedWrite], Iterable[bytes]],
    call: Mapping[str, Any],
    source: str,
) -> CommitResult:
    """Commit the files that the tasks of another engine write.

    Args:
        table: an open table.
        schema: of the rows.
        run: runs the tasks with what they share; returns the :func:`pickled_result` of each.
        call: the keyword arguments of the user's call.
        source: what holds the rows, for messages, such as ``a DataFrame``.

    Raises:
        InvalidInputError: a bulk insert does not take an argument.
    """
    if unknown := sorted(set(call) - {"options", "commit_metadata"}):
        raise InvalidInputError(f"a bulk_insert of {source} does not take {unknown[0]}")
    request = WriteRequest(
        WriteOperation.BULK_INSERT,
        mapping_argument(call.get("options"), "options"),
        mapping_argument(call.get("commit_metadata"), "commit_metadata"),
    )

    def write(shared: SharedWrite) -> Sequence[TaskResult]:
        return [pickle.loads(each) for each in run(shared)]  # noqa: S301  (pickled by our own tasks a moment ago, never stored)

    result = run_tasks_and_commit(table.client, request, schema, TaskRows(None, frozenset()), write)
    return CommitResult(None, operation=request.operation) if result is None else result


def pickled_result(writer: TaskWriter) -> bytes:
    """Return what the task of a writer has written, for :func:`bulk_insert_by_tasks`."""
    return pickle.dumps(writer.result())
