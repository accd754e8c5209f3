"""Write a DataFrame whose files Spark's tasks write: key, count, plan, look up, hand out, write, commit.

Only DataFrames are used, no RDDs and no context of Spark, so that Spark 3.5, 4 and Connect go the same way.

Keys are looked up in one of two ways. Tasks do it for rows of a partition path that are more than one task takes, and for
keys that may be in any partition path: they find file groups, the driver plans their files and hands the rows out. The
driver does it where it has the index alone: tasks combine rows and send their keys; the driver asks the index for some of
them at a time, and sends back one line for each piece of rows. So it holds keys of some pieces and the answers to all,
never rows.

Spark hands on the text alone of an error in a task; :func:`typed_errors` makes it an error of lakefmt again.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt import Table, create_table, errors
from lakefmt._core.compaction.scheduler import run_services
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.formats.murmur import murmur_hadoop
from lakefmt._core.index import Index, capabilities_of, keeps_placement, moves_between_partitions, places_new_keys
from lakefmt._core.keys import key_spec_from_properties
from lakefmt._core.schema import field_at
from lakefmt._core.storage.open import open_store
from lakefmt._core.values import RECORD_KEY, CommitResult, FileId, PartitionPath, WriteOperation
from lakefmt._core.write.commit.transaction import notify_callbacks
from lakefmt._core.write.context import APPENDING, REPLACING
from lakefmt._core.write.grouped_rows import NEW, FoundRows, GroupToWrite
from lakefmt._core.write.tasks import (
    SharedWrite,
    TaskResult,
    TaskRows,
    TaskWriter,
    check_conservation,
    find_keys,
    run_tasks_and_commit,
)
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.spark.options import WriteCall
from lakefmt.spark.writing.plan import (
    DONE,
    FILES_OF_A_TASK,
    FewRows,
    Limits,
    PartitionRows,
    SilentSteps,
    SparkWritePlan,
    Task,
    WriteFacts,
    count_task,
    direct_task,
    done_batch,
    few_rows_task,
    plan_spark_write,
    prepare_task,
    results_of,
    route_task,
    task_rows,
    write_task,
)
from lakefmt.spark.writing.staging import (
    COUNTED,
    PREPARED,
    ROUTED,
    by_partition,
    check_creation,
    line_of,
    pack,
    pre_images,
    request_of,
    resolve_operation,
    sorted_tables,
    unpack,
    write_and_commit,
    write_few_and_commit,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = [
    "COMBINED",
    "HANDED",
    "LOCATED",
    "LOCATED_ROWS",
    "Handing",
    "SparkWrite",
    "combine_task",
    "error_in",
    "found_rows",
    "group_task",
    "hand_out_task",
    "join_answers",
    "locate_task",
    "look_up_here",
    "plan_handing",
    "slot_images",
    "slot_of",
    "spread_over",
    "typed_errors",
]


def spread_over(rows: DataFrame, slots: int) -> DataFrame:
    """Return rows with a column ``slot``, made by :func:`slot_images`, in one task for each slot."""
    if _can_repartition_by_id(rows):
        return rows.repartitionById(slots, "slot")
    # With a number Spark neither joins nor splits the tasks.
    return rows.repartition(slots, "slot")


def slot_images(df: DataFrame, slots: int) -> list[int]:
    """Return the value of the column ``slot`` for each slot."""
    return list(range(slots)) if _can_repartition_by_id(df) else pre_images(slots)


def slot_of(df: DataFrame, slots: int) -> Callable[[int], int]:
    """Return the function from values of the column to slots."""
    return {image: slot for slot, image in enumerate(slot_images(df, slots))}.__getitem__


def _can_repartition_by_id(df: DataFrame) -> bool:
    return hasattr(df, "repartitionById")  # from 4.1 on


#: The last line of a traceback of Python, as Spark repeats it.
_RAISED_LINE: Final = re.compile(r"^lakefmt\.errors\.(\w+): (.*)$", re.MULTILINE)


def error_in(message: str) -> errors.LakefmtError | None:
    r"""Return the error of lakefmt that a text of Spark tells of; None: it tells of none.

    Example:
        >>> error_in("Traceback:\nlakefmt.errors.InvalidKey: 2 of 3 keys are null\n")
        InvalidKey('2 of 3 keys are null')
    """
    match = _RAISED_LINE.search(message)
    error_class = None if match is None else getattr(errors, match[1], None)
    if match is None or not isinstance(error_class, type) or not issubclass(error_class, errors.LakefmtError):
        return None
    return error_class(match[2])


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raise what a task raised, where Spark says what it was."""
    try:
        yield
    except Exception as error:
        typed = None if isinstance(error, errors.LakefmtError) else error_in(str(error))
        if typed is None:
            raise
        raise typed from error


#: Rows of one file group, or new ones of one partition path; and a line that says how many rows a task was given.
LOCATED: Final = (
    "partition string, file string, source int, number int, rows bigint, given bigint, size double, data binary"
)
#: Rows of one file group.
HANDED: Final = "slot int, file_group int, source int, number int, rows bigint, data binary"

LOCATED_ROWS: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("file", pa.string()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.int64()),
        ("given", pa.int64()),
        ("size", pa.float64()),
        ("data", pa.binary()),
    ]
)
_HANDED_SCHEMA: Final = pa.schema(
    [
        ("slot", pa.int32()),
        ("file_group", pa.int32()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.int64()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Handing:
    """Which rows go where: made on the driver from counts.

    Attributes:
        groups: the files to write.
        slots: the task of each.
        num_slots: how many tasks there are.
        numbers: the file of rows whose key is in a file group, by partition path and file id.
        shares: of new rows: by partition path the files that take them, and up to which hash each does.
    """

    groups: Sequence[GroupToWrite]
    slots: Sequence[int]
    num_slots: int
    numbers: Mapping[tuple[str, str], int]
    shares: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


def plan_handing(groups: Sequence[GroupToWrite], record_bytes: float, task_bytes: int, tasks: int) -> Handing:
    """Return which rows go where (pure).

    Args:
        groups: the files to write.
        record_bytes: the bytes that a stored row takes.
        task_bytes: what a task should get, rows and stored files together.
        tasks: no more tasks.
    """
    weights = [
        task_bytes // FILES_OF_A_TASK
        + int((group.found_rows + group.new_rows) * record_bytes)
        + (0 if group.assignment.base is None else group.assignment.base.size)
        for group in groups
    ]
    num_slots = max(1, min(tasks, len(groups), -(-sum(weights) // task_bytes)))
    slots, load = [0] * len(groups), [(0, slot) for slot in range(num_slots)]
    for number in sorted(range(len(groups)), key=lambda n: -weights[n]):  # the largest first, each to the least loaded
        weight, slot = heapq.heappop(load)
        slots[number] = slot
        heapq.heappush(load, (weight + weights[number], slot))
    numbers: dict[tuple[str, str], int] = {
        (g.assignment.partition, g.assignment.file_id): n for n, g in enumerate(groups)
    }
    taking: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        if group.new_rows:
            taking.setdefault(group.assignment.partition, []).append(number)
    shares = {
        partition: (tuple(group_numbers), _hash_bounds([groups[n].new_rows for n in group_numbers]))
        for partition, group_numbers in taking.items()
    }
    return Handing(groups, slots, num_slots, numbers, shares)


def _hash_bounds(counts: Sequence[int]) -> tuple[int, ...]:
    """Return up to which 32-bit hash each file takes new rows.

    Example:
        >>> _hash_bounds([1, 1]) == (1 << 31, 1 << 32)
        True
    """
    ends = np.cumsum(np.array(counts, np.float64))
    bounds = np.ceil(ends / ends[-1] * (1 << 32)).astype(np.int64)
    bounds[-1] = 1 << 32
    return tuple(map(int, bounds))


def found_rows(located: DataFrame) -> tuple[list[FoundRows], int, float]:
    """Return what tasks have found, how many rows they were given, and the bytes of a stored row."""
    from pyspark.sql import functions as f

    sums = [f.sum("rows").alias("rows"), f.sum("given").alias("given"), f.max("size").alias("size")]
    counted = located.groupBy("partition", "file").agg(*sums).collect()
    located = [
        FoundRows(PartitionPath(row["partition"]), FileId(row["file"]), row["rows"]) for row in counted if row["rows"]
    ]
    located.sort(key=lambda each: (each.partition, each.file_id))
    return located, sum(row["given"] for row in counted), max((row["size"] for row in counted), default=0.0)


def locate_task(shared: SharedWrite, storage: Mapping[str, object], slot_of: Callable[[int], int]) -> Task:
    """Return the task that looks up the keys of its rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task, tables in task_rows(batches, slot_of):
            writer, rows = TaskWriter(shared, task, storage), pa.concat_tables(tables)
            number = -1
            for number, (located, size, table) in enumerate(writer.locate(rows)):
                line = (located.partition, located.file_id, task, number, located.rows, 0, size, pack(table))
                yield line_of(line, LOCATED_ROWS)
            yield line_of(("", "", task, number + 1, 0, rows.num_rows, 0.0, b""), LOCATED_ROWS)

    return run


def hand_out_task(handing: Handing, images: Sequence[int]) -> Task:
    """Return the task that tells located rows their file and its task; new rows are spread by their keys."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():  # packed rows, not rows
                if not row["rows"]:
                    continue
                for number, table in _files(row):
                    data = row["data"] if table is None else pack(table)
                    rows = row["rows"] if table is None else table.num_rows
                    line = (images[handing.slots[number]], number, row["source"], row["number"], rows, data)
                    yield line_of(line, _HANDED_SCHEMA)

    def _files(row: Mapping[str, Any]) -> list[tuple[int, pa.Table | None]]:
        partition, file_id = row["partition"], row["file"]
        if file_id != NEW:
            return [(handing.numbers[partition, file_id], None)]
        files, bounds = handing.shares[partition]
        if len(files) == 1:
            return [(files[0], None)]
        rows = unpack(row["data"])
        hashes = murmur_hadoop(rows.column(RECORD_KEY), 2).astype(np.int64)
        share = np.searchsorted(np.array(bounds), hashes, side="right")
        return [(files[n], rows.filter(pa.array(share == n))) for n in map(int, np.unique(share))]

    return run


def group_task(
    handing: Handing, shared: SharedWrite, storage: Mapping[str, object], slot_of: Callable[[int], int]
) -> Task:
    """Return the task that writes its files, one file group after the other."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = [batch for batch in batches if batch.num_rows]
        slots = {slot for batch in filled for slot in batch.column("slot").unique().to_pylist()}
        for slot in sorted(slots):
            writer = TaskWriter(shared, slot_of(slot), storage)
            own_rows = pa.Table.from_batches(filled).filter(pc.field("slot") == slot)
            for number in sorted(own_rows.column("file_group").unique().to_pylist()):  # files, not rows
                packed = own_rows.filter(pc.field("file_group") == number)
                writer.write_group(handing.groups[number], sorted_tables(packed.to_batches()))
            yield done_batch(writer.result())

    return run


#: Rows of one partition path, and their keys; and a line that says how many rows a task was given.
COMBINED: Final = (
    "partition string, source int, number int, rows bigint, given bigint, size double, keys binary, data binary"
)
#: How many rows one answer is about.
_PIECE_ROWS: Final = 1 << 16
#: Packed keys and answers take less than they do unpacked, and an index needs room of its own.
_PACKED_SHARE: Final = 8

_COMBINED_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.int64()),
        ("given", pa.int64()),
        ("size", pa.float64()),
        ("keys", pa.binary()),
        ("data", pa.binary()),
    ]
)
_ANSWERS_SCHEMA: Final = "source int, number int, answer binary"

Answer = tuple[int, int, bytearray]


def combine_task(shared: SharedWrite, storage: Mapping[str, object], slot_of: Callable[[int], int]) -> Task:
    """Return the task that keys and combines its rows, and packs their keys beside them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task, tables in task_rows(batches, slot_of):
            writer, rows, number = TaskWriter(shared, task, storage), pa.concat_tables(tables), 0
            batch, size = writer.combine(rows)
            for partition, own_rows in by_partition(batch):
                for start in range(0, own_rows.num_rows, _PIECE_ROWS):  # pieces, not rows
                    part = own_rows.slice(start, _PIECE_ROWS)
                    keys = pack(part.select([RECORD_KEY]))
                    yield line_of((partition, task, number, part.num_rows, 0, size, keys, pack(part)), _COMBINED_SCHEMA)
                    number += 1
            yield line_of(("", task, number, 0, rows.num_rows, 0.0, b"", b""), _COMBINED_SCHEMA)

    return run


def look_up_here(
    transaction: WriteTransaction,
    combined: DataFrame,
    names: Sequence[str],
    most_bytes: int,
    *,
    anywhere: bool = False,
) -> list[Answer]:
    """Ask the index of a write for the keys of all pieces.

    Args:
        transaction: the write.
        combined: what :func:`combine_task` answers; kept by Spark.
        names: the columns of the rows.
        most_bytes: of keys that are held at once, about.
        anywhere: the keys are deleted wherever they are.

    Returns:
        For each piece the file groups of its rows, packed.
    """
    answers: list[Answer] = []
    pieces: list[Row] = []
    held_bytes = 0
    for line in combined.where("rows > 0").select("partition", "source", "number", "keys").toLocalIterator():
        pieces.append(line)
        held_bytes += len(line["keys"])
        if held_bytes >= most_bytes // _PACKED_SHARE:
            answers += _answers_to_pieces(transaction, pieces, names, anywhere=anywhere)
            pieces, held_bytes = [], 0
    answers += _answers_to_pieces(transaction, pieces, names, anywhere=anywhere) if pieces else ()
    return answers


def _answers_to_pieces(
    transaction: WriteTransaction, lines: Sequence[Row], names: Sequence[str], *, anywhere: bool
) -> Iterable[Answer]:
    """Yield the answers to some pieces: for each pair of row and file group the row's number and the group's path."""
    parts = [unpack(line["keys"])[RECORD_KEY].combine_chunks() for line in lines]
    ends = np.cumsum([len(part) for part in parts])
    codes = {name: code for code, name in enumerate(dict.fromkeys(line["partition"] for line in lines))}
    indices = np.repeat(np.array([codes[line["partition"]] for line in lines], np.int32), [len(part) for part in parts])
    partitions = pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(codes), pa.string()))
    meant_for = None if anywhere else partitions
    groups_of_rows = list(find_keys(transaction, pa.concat_arrays(parts), meant_for, names))
    rows = np.concatenate([np.empty(0, np.int64), *(row_numbers for _, row_numbers in groups_of_rows)])
    files = np.repeat(
        np.arange(len(groups_of_rows), dtype=np.int32), [len(row_numbers) for _, row_numbers in groups_of_rows]
    )
    order = np.argsort(rows, kind="stable")
    rows, files = rows[order], files[order]
    paths = pa.array([f"{each.partition}/{each.file_id}" for each, _ in groups_of_rows], pa.string())
    for line, begin, end in zip(lines, [0, *ends[:-1]], ends, strict=True):
        first, last = np.searchsorted(rows, [begin, end])
        numbers, own_ids = np.unique(files[first:last], return_inverse=True)
        groups = pa.DictionaryArray.from_arrays(pa.array(own_ids.astype(np.int32)), paths.take(pa.array(numbers)))
        answer = pa.table({"row": pa.array((rows[first:last] - begin).astype(np.int32)), "file": groups})
        yield line["source"], line["number"], bytearray(pack(answer))


def join_answers(combined: DataFrame, answers: Sequence[Answer]) -> DataFrame:
    """Return rows by file group, as the look-up by tasks does.

    Args:
        combined: what :func:`combine_task` answers.
        answers: what :func:`look_up_here` found.
    """
    from pyspark.sql import functions as f

    answered = f.broadcast(combined.sparkSession.createDataFrame(answers, _ANSWERS_SCHEMA))
    rows = combined.drop("keys").join(answered, ["source", "number"], "left")
    names = [name for name in _COMBINED_SCHEMA.names if name != "keys"]
    return rows.select(*names, "answer").mapInArrow(_split_by_answer, LOCATED)


def _split_by_answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each file group."""
    for batch in batches:
        for line in batch.to_pylist():  # packed rows, not rows
            if not line["rows"]:
                yield line_of(("", "", line["source"], line["number"], 0, line["given"], 0.0, b""), LOCATED_ROWS)
                continue
            rows, answer = unpack(line["data"]), unpack(line["answer"])
            groups = answer["file"].combine_chunks()
            codes, numbers = groups.indices.to_numpy(), answer["row"].to_numpy()
            for code, path in enumerate(groups.dictionary.to_pylist()):  # file groups, not rows
                own_rows = rows.take(pa.array(numbers[codes == code]))
                partition, _, file_id = path.rpartition("/")
                where = (partition, file_id, line["source"], line["number"])
                yield line_of((*where, own_rows.num_rows, 0, line["size"], pack(own_rows)), LOCATED_ROWS)


#: How many rows Spark hands to Python at once, and how many packed ones, of 32 MiB each, it may be.
_BATCH_ROWS_OPTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PACKED_ROWS: Final = "32"


class SparkWrite:
    """One write of a DataFrame; :meth:`close` lets Spark forget the rows.

    Args:
        df: the rows.
        path: the table.
        mode: a save mode of Spark.
        schema: the schema of the rows.
        call: what the options ask for.
        limits: how much one process takes.
        table: the table; None: there is none yet.
        sort: the order of a bulk insert: ``none``, ``partition`` (in each task) or ``global``.
        steps: shows what is done.

    Attributes:
        few: the rows that :meth:`run_few` has counted.
    """

    def __init__(
        self,
        df: DataFrame,
        path: str,
        mode: str,
        schema: pa.Schema,
        call: WriteCall,
        limits: Limits,
        table: Table | None,
        sort: str = "none",
        steps: SilentSteps | None = None,
    ) -> None:
        self._df, self._path, self._schema, self._call, self._limits = df, path, schema, call, limits
        self._table, self._sort, self._steps = table, sort, steps or SilentSteps()
        self._mode = mode
        operation = resolve_operation(call, mode, table, schema)
        if operation is None:
            known_key = call.creation.get("record_key") if table is None else table.properties.record_key_fields
            operation = "upsert" if known_key else "insert"
        self._request = request_of(WriteOperation(operation.upper()), call)
        self._prepared: DataFrame | None = None
        trial = None if table is not None else self._create(f"memory://lakefmt-trial/{uuid4().hex}", {})
        planned_table = table or trial
        assert planned_table is not None  # noqa: S101  (one of the two)
        check_creation(table, call)
        try:
            planned = WriteTransaction.plan_only(planned_table.client, self._request, schema)
            key_spec = planned.key_spec
            self._index = planned.index
            self._anywhere = deletes_anywhere(planned_table, self._request.operation, self._index, schema)
            self._facts = self._facts_of(planned_table, planned)
        finally:
            if trial is not None:
                trial.client.store.delete_tree("")
        combines = self._request.operation is WriteOperation.UPSERT and planned.combines
        self._planned = SharedWrite(
            planned.context, planned.state, key_spec, self._index.is_global, combines, anywhere=self._anywhere
        )
        self._plan: SparkWritePlan | None = None
        self._stored_files = 0
        self._few: list[Row] = []
        self.few = FewRows(0, 0)
        self._transaction: WriteTransaction | None = None
        self._kept: list[DataFrame] = []

    def _create(self, path: str, storage: Any) -> Table:
        creation = {**self._call.creation}
        creation["name"] = creation.get("name") or self._path.rstrip("/").rsplit("/", 1)[-1] or None
        return create_table(
            path,
            schema=self._schema,
            if_exists="error" if self._mode in ("error", "errorifexists", "ignore") else "open",
            storage_options=storage,
            options=dict(self._call.settings),
            **creation,
        )

    def _facts_of(self, table: Table, planned: WriteTransaction) -> WriteFacts:
        request, index = self._request, self._index
        keeps_keys = request.drop_duplicates or request.operation not in {*APPENDING, *REPLACING}
        combines = planned.combines
        alone = why_alone(table, request.operation, index, self._schema, keeps_keys=keeps_keys, combines=combines)
        if self._anywhere and keeps_placement(index) and planned.state.timeline.pending_clusterings:
            alone = "a clustering of buckets waits, and the keys to delete do not say their partition"
        places = places_new_keys(index)
        appends = request.operation is WriteOperation.BULK_INSERT and not (keeps_keys or combines or places)
        return WriteFacts(
            request.operation.value.lower(),
            keeps_keys=keeps_keys,
            places=places,
            asked_here=not capabilities_of(index).in_tasks,
            appends=appends and not alone,
            is_global=keeps_keys and index.is_global,
            anywhere=self._anywhere,
            alone=alone,
        )

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns outside the key, which identify a row with it; none with a global index."""
        spec = self._planned.key_spec
        names = [] if self._index.is_global else [each.name for each in spec.partition_fields]
        return [name for name in names if name not in spec.record_key_fields]

    # --- plan ----------------------------------------------------------------------------------------------------

    def plan(self) -> SparkWritePlan:
        """Return how the rows will be written; counts them where that decides it."""
        if self._plan is None:
            counted = [] if self._facts.alone or self._facts.appends else self._counted()
            self._plan = plan_spark_write(self._facts, counted, self._limits, self._stored_files)
        return self._plan

    def _counted(self) -> list[PartitionRows]:
        """Key the rows and count them; few rows come along."""
        prepared = self._df.mapInArrow(prepare_task(self._planned, self._schema), PREPARED).persist()
        try:
            with self._stage("key and count the rows"):
                lines = prepared.mapInArrow(count_task(self._most_bytes), COUNTED).collect()
        finally:
            self._prepared = prepared  # now its own plan is made: what follows reads packed rows
        self._few = [line for line in lines if line["data"] is not None]
        return self._sums(lines)

    @property
    def _most_bytes(self) -> int:
        """How many packed bytes one task hands to the driver, beside its counts."""
        return self._limits.driver_bytes // self._limits.tasks

    def _sums(self, lines: Sequence[Row]) -> list[PartitionRows]:
        """Return what the tasks have counted, by partition path."""
        counts: dict[str, list[int]] = {}
        for line in lines:  # partitions of a task, and packed rows
            if line["partition"] is not None:
                count = counts.setdefault(line["partition"], [0, 0])
                count[0] += line["rows"]
                count[1] += line["bytes"]
        stored = self._stored_bytes(None if self._anywhere else list(map(PartitionPath, counts)))
        return [
            PartitionRows(partition, rows, num_bytes, *stored.get(partition, (0, False)))
            for partition, (rows, num_bytes) in sorted(counts.items())
        ]

    def _stored_bytes(self, partitions: Sequence[PartitionPath] | None) -> dict[str, tuple[int, bool]]:
        """Return the bytes of the files of each partition path; None: of all together, where the keys do not say it."""
        stored: dict[str, tuple[int, bool]] = {}
        if self._table is None:
            return stored
        for file_slice in self._table.client.at(self._planned.state).slices(partitions):
            size = 0 if file_slice.base is None else file_slice.base.size
            partition = "" if partitions is None else file_slice.partition
            stored[partition] = (stored.get(partition, (0, True))[0] + size, True)
            self._stored_files += 1
        return stored

    # --- run -----------------------------------------------------------------------------------------------------

    def run(self) -> CommitResult | None:
        """Write and commit; None: tasks cannot write these rows, so that one process has to.

        Raises:
            CommitConflict: another writer changed the same file groups meanwhile.
            InvalidInputError: the input is not repeatable, and was asked for twice; the table is as it was.
        """
        plan = self.plan()
        self._steps.say(str(plan))
        if plan.way == "driver" and self._prepared is not None:
            return self._write_here()
        if plan.way == "driver":
            return None
        table = self._table or self._create(self._path, dict(self._call.storage))
        client, request = table.client, self._request
        # What is looked up is counted in between, too.
        rows = None if plan.way == "lookup" else plan.rows
        counted_rows = TaskRows(rows, None if self._anywhere else frozenset(map(PartitionPath, plan.places)))
        result = run_tasks_and_commit(
            client, request, self._schema, counted_rows, lambda shared: self._results(plan, shared), self._begin
        )
        if result is None:
            return CommitResult(None, operation=request.operation)
        result = notify_callbacks(client, result, request, None)
        failures = run_services(client, request.options, beside=table.services)
        return result if not failures else _with_warnings(result, failures)

    def run_few(self) -> CommitResult | None:
        """Write and commit few rows: one job of Spark, one worker of Python for each of its tasks, nothing persisted.

        Returns:
            What was committed, without an instant where there was no row; None: the rows are not few, nothing was done.
        """
        if self._facts.alone or self._facts.appends or self._table is None:
            return None
        with self._stage("key and count the rows, and send few of them to the driver"):
            task = few_rows_task(self._planned, self._schema, self._most_bytes)
            lines = self._df.mapInArrow(task, COUNTED).collect()
        rows = sum(line["rows"] for line in lines)  # packed rows count none
        tables = in_order_of_source([line for line in lines if line["data"] is not None])
        num_bytes = sum(line["bytes"] for line in lines)
        self.few = FewRows(rows, num_bytes)
        partitions = len({line["partition"] for line in lines if line["partition"] is not None})
        is_whole = sum(table.num_rows for table in tables) == rows
        if not is_whole or not self._limits.fit_driver(rows, num_bytes, partitions):
            return None
        if not rows:
            return CommitResult(None, operation=self._request.operation)
        return write_few_and_commit(self._table, self._mode, self._call, tables)

    def _write_here(self) -> CommitResult:
        """Write few rows in this process."""
        tables = in_order_of_source(self._few)
        if self._prepared is not None and sum(table.num_rows for table in tables) != self.plan().rows:
            with self._stage("hand the rows to the driver"):
                tables = in_order_of_source(self._prepared.select("source", "number", "data").collect())
        schema = tables[0].schema if tables else self._schema
        return write_and_commit(self._path, self._mode, self._call, schema, lambda: tables)

    def _begin(self, transaction: WriteTransaction) -> None:
        self._transaction = transaction

    def _results(self, plan: SparkWritePlan, shared: SharedWrite) -> list[TaskResult]:
        storage = dict(self._call.storage)
        if plan.way == "direct":
            written = self._sorted(shared).mapInArrow(direct_task(shared, self._schema, storage), DONE)
        else:
            spread = self._spread(plan, shared)
            if plan.way == "lookup":
                return self._look_up_and_write(plan, shared, spread)
            written = spread.mapInArrow(write_task(plan, shared, storage, slot_of(self._df, plan.tasks)), DONE)
        with self._stage(f"write files by {plan.way}"):
            return results_of(written.collect())

    def _sorted(self, shared: SharedWrite) -> DataFrame:
        """Return the rows in the order that a bulk insert is to have."""
        spec = key_spec_from_properties(shared.context.properties)
        names = [field.name for field in spec.partition_fields]
        names += [] if spec.auto_keys else [name for name in spec.record_key_fields if name not in names]
        if self._sort == "none" or not names:
            return self._df
        return self._df.sort(*names) if self._sort == "global" else self._df.sortWithinPartitions(*names)

    def _spread(self, plan: SparkWritePlan, shared: SharedWrite) -> DataFrame:
        """Return the rows where their tasks are."""
        index = self._index
        if shared.buckets is not None:
            store = partial(open_store, shared.context.url, dict(self._call.storage))
            index = shared.buckets.index_for(index, store)
        placing = index if places_new_keys(index) and not self._anywhere else None
        assert self._prepared is not None  # noqa: S101  (the plan has counted rows)
        images = slot_images(self._df, plan.tasks)
        return spread_over(self._prepared.mapInArrow(route_task(plan, shared, placing, images), ROUTED), plan.tasks)

    def _look_up_and_write(self, plan: SparkWritePlan, shared: SharedWrite, spread: DataFrame) -> list[TaskResult]:
        storage = dict(self._call.storage)
        slots = slot_of(self._df, plan.tasks)
        if plan.asks_driver:
            located = self._looked_up_here(spread.mapInArrow(combine_task(shared, storage, slots), COMBINED)).persist()
        else:
            located = spread.mapInArrow(locate_task(shared, storage, slots), LOCATED).persist()
        try:
            with self._stage("look up the keys"):
                located_rows, num_rows, record_bytes = found_rows(located)
            check_conservation(plan.rows, [TaskResult(0, (), num_rows)])
            if not located_rows:
                return []
            groups = TaskWriter(shared, 0, storage).plan(located_rows, record_bytes)
            handing = plan_handing(groups, record_bytes, self._limits.task_bytes, self._limits.tasks)
            handed = located.mapInArrow(hand_out_task(handing, slot_images(self._df, handing.num_slots)), HANDED)
            task = group_task(handing, shared, storage, slot_of(self._df, handing.num_slots))
            written = spread_over(handed, handing.num_slots).mapInArrow(task, DONE)
            self._steps.say(f"{len(groups):,} files, {sum(each.rows for each in located_rows):,} rows for them")
            with self._stage("write files by lookup"):
                results = results_of(written.collect())
            check_conservation(sum(each.rows for each in located_rows), results)
            if results and moves_between_partitions(self._index):
                # Late rows that would move are in no file, and only the tasks that looked keys up have seen them.
                results[0] = replace(results[0], left_out=None)
            return results
        finally:
            located.unpersist()

    def _looked_up_here(self, combined: DataFrame) -> DataFrame:
        """Return rows with the file group of each, as the write's index knows it, which gets the keys alone."""
        assert self._transaction is not None  # noqa: S101  (the write has begun)
        self._kept.append(combined.persist())
        with self._stage("look up the keys by the driver"):
            names, most_bytes = self._schema.names, self._limits.driver_bytes
            answers = look_up_here(self._transaction, combined, names, most_bytes, anywhere=self._anywhere)
        return join_answers(combined, answers)

    @contextmanager
    def _stage(self, description: str) -> Iterator[None]:
        spark = self._df.sparkSession
        with (
            self._steps.step(spark, description),
            typed_errors(),
            job_description(spark, f"lakefmt: {description} ({self._path})"),
            small_batches(spark, self._prepared),
        ):
            yield

    def close(self) -> None:
        """Let Spark forget the rows."""
        for rows in (self._prepared, *self._kept):
            if rows is not None:
                rows.unpersist()


def why_alone(
    table: Table, operation: WriteOperation, index: Index, schema: pa.Schema, *, keeps_keys: bool, combines: bool
) -> str:
    """Return why one process has to write; empty: tasks can."""
    if operation is WriteOperation.DELETE and table.client.key_spec(table.properties).auto_keys:
        return "the table generates its keys: a row does not say its own"
    if deletes_anywhere(table, operation, index, schema):
        return ""
    if combines and not keeps_keys and index.is_global:
        return "the index is global: rows of one key are combined across partition paths before they are inserted"
    if capabilities_of(index).in_tasks:
        return ""
    subject = f"the index {index.name} is of your own and"
    if places_new_keys(index):
        return f"{subject} places keys: where it puts a new one only it can say again"
    if keeps_keys and index.is_global:
        return f"{subject} global: whether a key moves to another partition is decided by its row, not by the key alone"
    if keeps_keys and operation not in (WriteOperation.DELETE, WriteOperation.UPSERT):
        return f"{subject} is asked which rows are to be dropped"
    return ""


def deletes_anywhere(table: Table, operation: WriteOperation, index: Index, schema: pa.Schema) -> bool:
    """Return whether keys are deleted wherever they are: their rows lack a partition column, or the index is global."""
    spec = table.client.key_spec(table.properties)
    if operation is not WriteOperation.DELETE or spec.auto_keys or not spec.partition_fields:
        return False
    return index.is_global or any(field_at(schema, field.name) is None for field in spec.partition_fields)


def in_order_of_source(packed: Sequence[Row]) -> list[pa.Table]:
    """Return packed rows that Spark has collected."""
    return [unpack(row["data"]) for row in sorted(packed, key=lambda row: (row["source"], row["number"]))]


@contextmanager
def job_description(spark: SparkSession, description: str) -> Iterator[None]:
    """Let Spark's pages show what a job does; Connect has no such names."""
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(description)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)


@contextmanager
def small_batches(spark: SparkSession, packed: DataFrame | None) -> Iterator[None]:
    """Let Spark hand few packed rows at a time to Python, where it counts rows and not their bytes (before 4.1).

    A batch of Arrow holds no more than 2 GiB of one column.
    """
    if packed is None or hasattr(packed, "repartitionById"):
        yield
        return
    before = spark.conf.get(_BATCH_ROWS_OPTION)
    spark.conf.set(_BATCH_ROWS_OPTION, _PACKED_ROWS)
    try:
        yield
    finally:
        spark.conf.set(_BATCH_ROWS_OPTION, before)


def _with_warnings(result: CommitResult, more: Sequence[str]) -> CommitResult:
    return replace(result, warnings=(*result.warnings, *more))
