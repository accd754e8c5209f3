"""A write whose files are written by many tasks of a cluster: begun and committed by one process.

That process begins the write and commits it (:class:`~lakefmt._core.write.transaction.WriteTransaction`), with every row accounted
for; the tasks are given its context and its state, and key, place and write rows, each its own. What a task decides follows
from its number and its rows alone: a second attempt gives every file the name that the first one gave it, and adopts the
file. So two tasks must never have rows of one file group; who hands out the rows sees to that.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final
from uuid import NAMESPACE_OID, uuid5

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.murmur import murmur_hadoop
from lakefmt._core.index import Index, IndexKeys, PlacingIndex, capabilities_of, keeps_placement, places_new_keys
from lakefmt._core.index.bloom import SimpleIndex
from lakefmt._core.index.bucket_index import bucket_of
from lakefmt._core.index.bucket_ring import splits_buckets
from lakefmt._core.keys import KeySpec
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.open import open_store
from lakefmt._core.timeline.instant import Action
from lakefmt._core.transactions.client import write_client_of
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import RECORD_KEY, CommitResult, InstantTime, PartitionPath, sum_of_known
from lakefmt._core.write.assign import Assigned, new_rows, new_rows_by_partition, rows_by_file_group
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.commit.transaction import FirstSchema, PendingWrite, check_pending, concurrency_of
from lakefmt._core.write.context import APPENDING, MOVED_AWAY, BoundContext, WriteContext, WriteRequest, WriteStatus
from lakefmt._core.write.files.bucket_copies import SharedBuckets, share_buckets
from lakefmt._core.write.grouped_rows import NEW, FoundRows, GroupToWrite, numbered_file, plan_groups
from lakefmt._core.write.ingest import (
    KeyedBatch,
    combine,
    in_no_partition,
    key_batch,
    record_keys,
    with_keys,
    with_stored_keys,
)
from lakefmt._core.write.mutations import DeleteKeys, keys_anywhere
from lakefmt._core.write.pipeline import LocatedRows, PlacedRows, complete_log_rows, key_in_schema
from lakefmt._core.write.slice_state import log_placing
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import InvalidInputError

__all__ = [
    "SharedWrite",
    "TaskResult",
    "TaskRows",
    "TaskWriter",
    "TasksTransaction",
    "check_conservation",
    "find_keys",
    "key_again",
    "key_rows",
    "run_tasks_and_commit",
    "split_rows",
    "task_ids",
]

Numbers = npt.NDArray[np.int64]

#: Sequence numbers of files are numbers of tasks times this: no two tasks give one twice.
_FILES_OF_A_TASK: Final = 1 << 16
_SMALL_FILE_SETTING: Final = "hoodie.parquet.small.file.limit"


@dataclass(frozen=True, slots=True)
class SharedWrite:
    """What every task of one write is given. It pickles, and carries no secrets.

    Attributes:
        context: the write; one that is only planned serves to key rows.
        state: the table when the write began.
        across_partitions: a key is one row of the whole table (a global index).
        anywhere: rows are keys to delete, each wherever it is, and are keyed without a partition.
        key_spec: how keys and paths are made.
        combines: rows of one key become one.
        buckets: what was decided of the buckets of consistent hashing; None: the table has none.
        finds_keys: tasks have the index; False: the process that began the write has it alone, and looks keys up.
    """

    context: WriteContext
    state: TableState
    key_spec: KeySpec
    across_partitions: bool = False
    combines: bool = False
    buckets: SharedBuckets | None = None
    finds_keys: bool = True
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task did.

    Attributes:
        task: its number.
        statuses: the files that it wrote.
        rows_in: rows that it was given.
        null_elements: columns of lists with null elements among its rows.
        left_out: late rows among them that are in no file; None: not known.
    """

    task: int
    statuses: tuple[WriteStatus, ...]
    rows_in: int
    null_elements: frozenset[str] = frozenset()
    left_out: int | None = 0


class TasksTransaction(WriteTransaction):
    """A write whose steps many processes do: what they must agree on is decided where it began."""

    def __init__(self, pending: PendingWrite) -> None:
        super().__init__(pending)
        self._changed_rings = frozenset[PartitionPath]()

    def decide(self, partitions: Collection[PartitionPath] | None) -> SharedWrite:
        """Return what the tasks are given; the rings of these partitions are stored.

        Args:
            partitions: those that the rows are for; None: keys are deleted wherever they are.

        Raises:
            CommitConflict: another writer has begun the same partition with another ring.
            CorruptFile: a ring, or a plan that changes one, is damaged.
        """
        shared, index = SharedWrite(self.context, self.state, self.key_spec, anywhere=partitions is None), self.index
        if not capabilities_of(index).in_tasks:
            return replace(shared, finds_keys=False)
        if not keeps_placement(index):
            return shared
        self.bound.wait_until_inflight()
        if partitions is None:  # a key may be in every partition with files
            partitions = {file_slice.partition for file_slice in self.client.at(self.state).slices()}
        buckets, changed = share_buckets(self._pending, index, partitions)
        self._changed_rings = frozenset(changed)
        return replace(shared, buckets=buckets)

    def follow(self, shared: SharedWrite) -> None:
        """Do as was decided."""
        if not shared.finds_keys:
            self._index = SimpleIndex()  # is asked for nothing
        elif shared.buckets is not None:
            self._index, self._bucket_copies = shared.buckets.applied(self._pending, self.index)

    def check_groups(self, groups: Sequence[GroupToWrite]) -> None:
        """Raise when files that are about to be written cannot stand; a clustering is withdrawn where settings say so.

        Raises:
            CommitConflict: another writer is at work on one of the file groups, or a clustering replaces it.
        """
        self.check_early([Assigned(group.assignment, np.empty(0, np.int64)) for group in groups])

    def take_over(self, null_elements: Iterable[str], covers: frozenset[PartitionPath] | None) -> None:
        """Remember what tasks found, and that no other write may have used a ring that this one has changed."""
        super().take_over(null_elements, None if covers is None else covers | self._changed_rings)


def key_rows(shared: SharedWrite, tables: Iterable[pa.Table]) -> Iterator[KeyedBatch]:
    """Yield rows in the table's schema with their keys and partition paths, those of one key combined table by table.

    Of keys that are deleted wherever they are only the key columns are left.

    Raises:
        SchemaMismatch: the rows do not fit the table.
        InvalidKey: a key or partition value cannot be used.
    """
    bound = BoundContext(open_store("memory://lakefmt-keys"), shared.context, shared.state.config)
    spec = shared.key_spec
    for table in tables:
        if shared.anywhere:
            yield keys_anywhere(spec, table, bound.schema)
            continue
        batch = key_in_schema(bound, spec, table)
        # A merge function may want all rows of a key at once, and deletes that it makes have no column to travel in.
        if shared.combines and batch.keys is not None and bound.rule.custom is None:
            combined = combine(
                batch, bound.rule, across_partitions=shared.across_partitions, whole=not shared.context.partial
            )
            batch = batch if MOVED_AWAY in combined.table.column_names else combined
        yield replace(batch, table=with_stored_keys(batch)) if spec.auto_keys else batch


def key_again(shared: SharedWrite, rows: pa.Table) -> KeyedBatch:
    """Return rows as :func:`key_rows` gave them, with their keys and partition paths."""
    spec = shared.key_spec
    if shared.anywhere:
        return keys_anywhere(spec, rows, rows.schema)
    return key_batch(spec, rows, rows.schema, allow_null_elements=True, new_rows=False)


def split_rows(
    batch: KeyedBatch, parts: int, index: PlacingIndex | None, buckets: SharedBuckets | None = None
) -> Numbers:
    """Return the part of every row (pure): all rows of a key, and of a bucket where an index places rows, are in one.

    Args:
        batch: the rows.
        parts: how many parts there are.
        index: decides the file group of every key; None: none does.
        buckets: what was decided of the buckets of consistent hashing.
    """
    if parts == 1:
        return np.zeros(batch.num_rows, np.int64)
    if batch.keys is None:
        return np.arange(batch.num_rows, dtype=np.int64) * parts // max(1, batch.num_rows)
    if index is None:
        return murmur_hadoop(batch.keys, 1).astype(np.int64) % parts
    if splits_buckets(index):
        return (buckets or SharedBuckets({})).numbers(index, IndexKeys(batch.keys, batch.partitions)) % parts
    placement = index.place(IndexKeys(batch.keys, batch.partitions), [], lambda: f"{'0' * 8}-0000-4000-8000-{'0' * 12}")
    of_groups = np.array([bucket_of(file_id) or 0 for _, file_id in placement.file_groups], np.int64)
    return of_groups[placement.groups] % parts


def task_ids(owner: str, task: int) -> Callable[[], str]:
    """Return the function that gives a task's new file groups their ids: the same ones at every attempt.

    Example:
        >>> task_ids("w", 3)() == task_ids("w", 3)() != task_ids("w", 4)()
        True
    """
    numbers = count()
    return lambda: str(uuid5(NAMESPACE_OID, f"{owner}/{task}/{next(numbers)}"))


@dataclass(frozen=True, slots=True)
class _TaskIds:
    new_uuid: Callable[[], str]


class TaskWriter:
    """Writes the rows of one task, in one step or in several.

    Args:
        shared: the write.
        task: the task's number.
        storage_options: credentials of the store.
        fills_small_files: new rows may go to small files; False: another task fills those of the same partition.
    """

    def __init__(
        self,
        shared: SharedWrite,
        task: int,
        storage_options: Mapping[str, object] | None = None,
        *,
        fills_small_files: bool = True,
    ) -> None:
        context, self._task, self._anywhere = shared.context, task, shared.anywhere
        if not fills_small_files:
            context = replace(context, options={**context.options, _SMALL_FILE_SETTING: 0})
        store = open_store(context.url, storage_options)
        ids = _TaskIds(task_ids(context.owner, task))
        client = TableClient(store, dict(context.options), ids=ids, metadata_listing=ListingByMetadata())
        bound = BoundContext(store, context, shared.state.config)
        self._write_client = write_client_of(client, bound.settings, context.owner)
        # Without a heartbeat: the process that began keeps the write alive.
        instant = InstantTransaction(self._write_client, context.instant, Action(context.action))
        pending = PendingWrite(self._write_client, bound, shared.state, concurrency_of(self._write_client), instant)
        self._transaction = TasksTransaction(pending)
        self._transaction.follow(shared)
        self._statuses: list[WriteStatus] = []
        self._files = self._rows_in = 0

    def write(self, table: pa.Table, *, in_order: bool = True) -> None:
        """Key, look up, place and write rows.

        Args:
            table: the rows.
            in_order: sort them by partition and key, because they may come in another order the next time.

        Raises:
            InstantNotPending: the write was aborted or rolled back: its files would stay for ever.
            InvalidInputError: an earlier attempt of this task had other rows.
        """
        transaction = self._transaction
        self._rows_in += table.num_rows
        batch = transaction.key(table)
        if in_order and batch.keys is not None:
            batch = batch.take(pc.sort_indices(batch.partitions_and_keys()))
        placed = transaction.place(transaction.locate(batch))
        digests = _RowDigests(placed.batch)
        assigned = [
            _numbered_assignment(each, transaction.context.instant, self._first + n, digests)
            for n, each in enumerate(placed.assigned)
        ]
        self._files += len(assigned)
        self._check_pending()
        self._statuses += transaction.write(PlacedRows(placed.batch, assigned))

    def locate(self, table: pa.Table) -> Iterator[tuple[FoundRows, float, pa.Table]]:
        """Key rows and look up their keys: yield the rows of each file group, and those of each partition that are new.

        A key that leaves its partition is in both, marked as leaving where it is stored; one to delete that is stored in
        several file groups is in all of them, and in none where it is not stored.

        Returns:
            For each what was found, the bytes that a stored row takes, and the rows with their keys.
        """
        batch, transaction = self._keyed(table), self._transaction
        if self._anywhere:
            located = transaction.locate_deletes(DeleteKeys(record_keys(batch)))
            size = transaction.sizing(batch.table).record_bytes
        else:
            located = transaction.locate(batch)
            size = located.sizing.record_bytes
        rows = with_keys(located.batch.table, located.batch.keys)
        for group, some, leaves in _by_file_group(located):
            given = rows.take(from_numpy(some))
            yield group, size, _marked_as_leaving(given) if leaves else given

    def combine(self, table: pa.Table) -> tuple[KeyedBatch, float]:
        """Key rows, and combine those of one key; their keys are looked up elsewhere.

        Returns:
            The rows with their keys, and the bytes that a stored row takes.
        """
        batch = self._keyed(table)
        size = self._transaction.sizing(batch.table).record_bytes
        return replace(batch, table=with_keys(batch.table, batch.keys)), size

    def _keyed(self, table: pa.Table) -> KeyedBatch:
        self._rows_in += table.num_rows
        transaction = self._transaction
        if self._anywhere:
            keys = record_keys(keys_anywhere(transaction.key_spec, table, transaction.bound.schema))
            return KeyedBatch(pa.table({}), keys.take(pc.sort_indices(keys)), in_no_partition(len(keys)))
        batch = transaction.key(table)
        return batch.take(pc.sort_indices(batch.partitions_and_keys()))

    def plan(self, located_rows: Sequence[FoundRows], record_bytes: float) -> list[GroupToWrite]:
        """Return the files to write for what the tasks have found.

        Args:
            located_rows: of a file group one entry.
            record_bytes: the bytes that a stored row takes.

        Raises:
            CommitConflict: another writer is at work on one of the file groups, or a clustering replaces it.
        """
        transaction, client, state = self._transaction, self._write_client.client, self._transaction.state
        table_at = client.at(state)
        sizing = replace(transaction.sizing(pa.table({})), record_bytes=record_bytes)
        groups = plan_groups(
            located_rows,
            table_at.slices(list({each.partition: None for each in located_rows})),
            sizing,
            transaction.context.instant,
            client.ids.new_uuid,
            log_placing(table_at),
            appends=transaction.context.operation in APPENDING,
        )
        transaction.check_groups(groups)
        return groups

    def write_group(self, group: GroupToWrite, tables: Iterable[pa.Table]) -> None:
        """Write the file of one file group.

        Args:
            group: the file.
            tables: its rows, with their keys, as :meth:`locate` gave them.

        Raises:
            InstantNotPending: the write was aborted or rolled back: its file would stay for ever.
            InvalidInputError: an earlier attempt at this file had other rows.
        """
        transaction, file = self._transaction, group.assignment
        rows = pa.concat_tables(tables, promote_options="default")  # only rows that leave have the column that says so
        self._rows_in += rows.num_rows
        keys = rows.column(RECORD_KEY).combine_chunks()
        here = pa.DictionaryArray.from_arrays(from_numpy(np.zeros(len(keys), np.int32)), pa.array([file.partition]))
        batch = KeyedBatch(rows.drop_columns([RECORD_KEY]), keys, here)
        each = Assigned(file, np.arange(len(keys)))
        if group.file_slice is not None and file.log is not None:
            client, bound, state = self._write_client.client, transaction.bound, transaction.state
            (each,) = complete_log_rows(
                client.at(state), bound, [each], [group.file_slice], keys, batch.table.column_names
            )
        each = replace(each, assignment=replace(file, digest=_RowDigests(batch).of(each.rows)))
        self._check_pending()
        self._statuses += transaction.write(PlacedRows(batch, [each]))

    @property
    def _first(self) -> int:
        return self._task * _FILES_OF_A_TASK + self._files

    def _check_pending(self) -> None:
        timeline = self._write_client.timeline(self._transaction.state.config).load()
        check_pending(timeline, self._transaction.context.instant)

    def result(self) -> TaskResult:
        """Return what was done so far."""
        transaction = self._transaction
        statuses = tuple(self._statuses)
        return TaskResult(self._task, statuses, self._rows_in, transaction.null_elements, transaction.left_out)


def find_keys(
    transaction: WriteTransaction, keys: pa.StringArray, partitions: pa.DictionaryArray | None, names: Sequence[str]
) -> Iterator[tuple[FoundRows, Numbers]]:
    """Look up keys whose rows tasks have: yield the numbers of those in each file group, and of the new ones of each partition.

    Args:
        transaction: the write, with an index that is not global and places no keys, unless keys are deleted anywhere.
        keys: some of its keys, each once in a partition.
        partitions: the partition path of each; None: keys to delete wherever they are, each once.
        names: the columns of the rows.
    """
    if partitions is None:
        located = transaction.locate_deletes(DeleteKeys(keys))
    else:
        fields = [field for field in transaction.bound.schema if field.name in names]
        nothing = pa.table([pa.nulls(len(keys), field.type) for field in fields], schema=pa.schema(fields))
        located = transaction.locate(KeyedBatch(nothing, keys, partitions))
    # No other write may change these partitions: their keys need not be kept.
    transaction.rely_on(located.footprint.without_keys())
    for group, some, _ in _by_file_group(located):
        yield group, some


def _by_file_group(located: LocatedRows) -> Iterator[tuple[FoundRows, Numbers, bool]]:
    """Yield the rows of each file group, with whether they leave it, and those of each partition that are new."""
    batch, routes = located.batch, located.routes
    for pairs, leaves in ((routes.stay, False), (routes.leave, True)):
        for number, some in () if pairs is None else rows_by_file_group(pairs.slices, pairs.rows):
            each = located.slices[number]
            yield FoundRows(each.partition, each.file_id, len(some)), some, leaves
    for partition, some in new_rows_by_partition(batch.partitions, new_rows(batch.num_rows, routes)):
        yield FoundRows(partition, NEW, len(some)), some, False


def _marked_as_leaving(rows: pa.Table) -> pa.Table:
    """Return rows whose key leaves the file group that they go to."""
    unmarked_rows = rows.drop_columns([MOVED_AWAY]) if MOVED_AWAY in rows.column_names else rows
    return unmarked_rows.append_column(MOVED_AWAY, from_numpy(np.ones(rows.num_rows, bool)))


class _RowDigests:
    """Tells the rows of one attempt from those of another, by their keys; where keys are generated, by all rows."""

    def __init__(self, batch: KeyedBatch) -> None:
        self._keys = batch.keys
        self._whole = "" if batch.keys is not None else _digest_of_rows(batch.table)

    def of(self, rows: Numbers) -> str:
        """Return the digest of rows by their numbers."""
        if self._keys is None:
            return f"{self._whole}-{len(rows)}"
        return _digest_of_rows(pa.table({"key": self._keys.take(from_numpy(rows))}))


def _digest_of_rows(table: pa.Table) -> str:
    sink = _HashingFile()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return sink.hash.hexdigest()


class _HashingFile:
    """A file that keeps the hash of what is written."""

    closed = False

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)

    def write(self, data: bytes) -> int:
        """Take bytes."""
        self.hash.update(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _numbered_assignment(each: Assigned, instant: InstantTime, number: int, digests: _RowDigests) -> Assigned:
    """Return an assignment whose file has the sequence number of its task, and that knows its rows."""
    file = numbered_file(each.assignment, instant, number)
    return replace(each, assignment=replace(file, digest=digests.of(each.rows)))


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
    total = sum(result.rows_in for result in results)
    if expected is not None and total != expected:
        raise InvalidInputError(
            f"{expected:,} rows were counted and {total:,} came to the tasks: the input of this write is not repeatable, "
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
            transaction.take_over(nulls, _partitions_relied_on(request, index, given.partitions))
            transaction.leave_out(sum_of_known(result.left_out for result in results))
            return transaction.commit_unless_empty([s for result in results for s in result.statuses])

    return retried(client, request, attempt)


def _partitions_relied_on(
    request: WriteRequest, index: Index, partitions: frozenset[PartitionPath] | None
) -> frozenset[PartitionPath] | None:
    """Return the partitions in which other writers must not have brought a key: the keys themselves stay in the tasks."""
    if partitions is None:
        return None
    appends = request.operation in APPENDING and not request.drop_duplicates
    if appends or places_new_keys(index):
        return frozenset()
    return None if index.is_global else partitions
