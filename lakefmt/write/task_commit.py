"""A write whose files are written by tasks: begun and committed here, with every row accounted for (effects)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError
from lakefmt.filegroups.table_client import TableClient
from lakefmt.index import Index, places_new_keys
from lakefmt.values import CommitResult, PartitionPath
from lakefmt.write.commit.retry import retried
from lakefmt.write.commit.transaction import FirstSchema
from lakefmt.write.context import APPENDING, WriteRequest
from lakefmt.write.task_writer import SharedWrite, TaskResult, TasksTransaction
from lakefmt.write.transaction import WriteTransaction

__all__ = ["TaskRows", "check_conservation", "run_tasks_and_commit"]


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Rows that were counted before they went to the tasks.

    Attributes:
        rows: how many; None: they are not counted, since they do not change hands.
        partitions: the partitions that they are for; None: they are keys to delete wherever they are.
    """

    rows: int | None
    partitions: frozenset[PartitionPath] | None


def check_conservation(expected: int | None, results: Sequence[TaskResult]) -> None:
    """Raise when tasks were given other rows than were counted, or wrote one file group twice (pure).

    Raises:
        InvalidInputError: rows were lost or doubled on their way to the tasks.

    Example:
        >>> check_conservation(3, [TaskResult(0, (), 1), TaskResult(1, (), 2)])
    """
    came = sum(result.rows_in for result in results)
    if expected is not None and came != expected:
        raise InvalidInputError(
            f"{expected:,} rows were counted and {came:,} came to the tasks: the input of this write is not repeatable, "
            "so nothing is committed; store it first (a checkpoint, a table), then write it"
        )
    tasks = [result.task for result in results]
    groups = [(s.stat.partition_path, s.stat.file_id) for result in results for s in result.statuses]
    if len(set(tasks)) != len(tasks) or len(set(groups)) != len(groups):
        twice = sorted(f"{partition}/{file_id}" for (partition, file_id), n in Counter(groups).items() if n > 1)
        raise InvalidInputError(
            f"a task or a file group was written twice, so nothing is committed: {', '.join(twice[:3]) or sorted(tasks)[:3]}"
        )


def run_tasks_and_commit(
    client: TableClient,
    request: WriteRequest,
    schema: pa.Schema,
    given: TaskRows,
    run: Callable[[SharedWrite], Sequence[TaskResult]],
    begun: Callable[[WriteTransaction], object] = lambda _: None,
) -> CommitResult | None:
    """Begin a write, let tasks write its files, and commit; None when there was nothing to write.

    Args:
        client: the table.
        request: what is asked for.
        schema: the schema of the rows; it may widen the table's.
        given: the rows that the tasks will be given.
        run: runs the tasks, and again after a conflict with another writer.
        begun: gets the write before its tasks run: it has the index where tasks have none.

    Raises:
        CommitConflict: another commit completed meanwhile that this write would undo.
        InvalidInputError: rows were lost or doubled on their way to the tasks; the table is as it was.
    """
    first = FirstSchema()

    def attempt() -> CommitResult | None:
        transaction = TasksTransaction.begin(client, request, schema, None, first)
        with transaction.aborted_on_error():
            index = transaction.index
            begun(transaction)
            results = run(transaction.decide(given.partitions))
            check_conservation(given.rows, results)
            nulls = frozenset[str]().union(*(result.null_elements for result in results))
            transaction.take_over(nulls, _relied_on(request, index, given.partitions))
            return transaction.commit_unless_empty([s for result in results for s in result.statuses])

    return retried(client, request, attempt)


def _relied_on(
    request: WriteRequest, index: Index, partitions: frozenset[PartitionPath] | None
) -> frozenset[PartitionPath] | None:
    """Return the partitions in which other writers must not have brought a key: the keys themselves stay in the tasks."""
    if partitions is None:
        return None
    appends = request.operation in APPENDING and not request.drop_duplicates
    if appends or places_new_keys(index):
        return frozenset()
    return None if index.is_global else partitions
