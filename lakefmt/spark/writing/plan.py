"""Plan which way the rows of a DataFrame take into files, before the first effect, and the functions of Spark's tasks.

``driver``: one process writes them; ``direct``: every task writes the rows that it has; ``partition`` and ``bucket``: the
rows of a partition path, or of some of its buckets, go to one task; ``lookup``: tasks find out where keys are stored, then
the rows of a file group go to one task. Options limit how much one process takes, and name the order of rows.

Few rows reach the driver by one job of Spark, without workers of Python. A task in Python costs a small batch more than its
rows do: Spark collects the garbage of the worker after every task, and the JVM and the worker hand each other what they
have.

The driver shows on the standard error stream what they do: a line for each step, and a bar of its tasks. The bar is for a
terminal or a notebook, and goes when its step ends; elsewhere there are the lines alone.
"""

from __future__ import annotations

import heapq
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from importlib.util import find_spec
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt import Table
from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.index import PlacingIndex
from lakefmt._core.values import WriteOperation
from lakefmt._core.write.tasks import SharedWrite, TaskResult, TaskWriter, key_again, key_rows, split_rows
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import InvalidInputError, UnknownSetting
from lakefmt.spark.options import WriteCall
from lakefmt.spark.writing.staging import by_partition, pack, request_of, sorted_tables, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.status import StatusTracker
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = [
    "DONE",
    "FILES_OF_A_TASK",
    "LIMIT_OPTIONS",
    "FewRows",
    "Limits",
    "PartitionRows",
    "SilentSteps",
    "SparkWritePlan",
    "Task",
    "TaskPlace",
    "WriteFacts",
    "WriteSteps",
    "can_collect",
    "collect_few",
    "count_task",
    "count_tasks",
    "direct_task",
    "done_batch",
    "few_rows_task",
    "plan_spark_write",
    "prepare_task",
    "results_of",
    "route_task",
    "rows_to_ask_for",
    "take_limits",
    "take_sort",
    "task_rows",
    "write_task",
]

#: How many files, however small, are as much work for a task as the bytes that it should get.
FILES_OF_A_TASK: Final = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one process takes.

    Attributes:
        driver_rows: no more rows are written by the driver while tasks could write them.
        driver_bytes: the same in bytes of rows.
        driver_partitions: the same in partition paths, each of which has files to write.
        task_bytes: what a task should get, rows and stored files together.
        task_max_bytes: rows of one partition path that one task may be given.
        stage_bytes: rows that one process writes at most where tasks cannot.
        tasks: no more tasks.
    """

    driver_rows: int = 50_000
    driver_bytes: int = 32 << 20
    driver_partitions: int = 1000
    task_bytes: int = 64 << 20
    task_max_bytes: int = 256 << 20
    stage_bytes: int = 1 << 30
    tasks: int = 200

    def fit_driver(self, rows: int, num_bytes: int, partitions: int) -> bool:
        """Return whether the driver writes rows of some partition paths.

        Example:
            >>> Limits().fit_driver(10_000, 1 << 20, 1), Limits().fit_driver(10_000, 1 << 20, 5_000)
            (True, False)
        """
        return rows <= self.driver_rows and num_bytes <= self.driver_bytes and partitions <= self.driver_partitions


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """What was counted of one partition path.

    Attributes:
        partition: the path.
        rows: rows that go there.
        num_bytes: their bytes, as Arrow holds them.
        stored_bytes: bytes of the files that are there.
        is_stored: there are file groups.
    """

    partition: str
    rows: int
    num_bytes: int
    stored_bytes: int = 0
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class WriteFacts:
    """What is known of a write before its rows.

    Attributes:
        operation: Hudi's name.
        keeps_keys: rows meet stored rows of the same key.
        is_global: a key may be stored in any partition path.
        anywhere: keys are deleted that do not say their partition path.
        places: the index decides the file group of every key.
        asked_here: the index is asked by the driver, which has it alone.
        appends: nothing is looked up and no row changes hands: every task writes new files.
        alone: why one process has to write; empty: tasks can.
    """

    operation: str
    keeps_keys: bool
    is_global: bool = False
    anywhere: bool = False
    places: bool = False
    asked_here: bool = False
    appends: bool = False
    alone: str = ""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The tasks that write a partition path: `parts` of them, from `first` on."""

    first: int
    parts: int = 1


@dataclass(frozen=True, slots=True)
class SparkWritePlan:
    """How a write will run; prints what and why.

    Attributes:
        way: ``driver``, ``direct``, ``partition``, ``bucket`` or ``lookup``.
        why: one sentence.
        operation: Hudi's name.
        rows: how many rows; None: they are not counted.
        num_bytes: their bytes, as Arrow holds them.
        tasks: how many tasks write.
        places: the tasks of each partition path.
        stored_files: file groups that are in these partition paths.
        stored_bytes: their bytes.
        asks_driver: the driver looks up the keys.
        anywhere: the keys do not say their partition path.
    """

    way: str
    why: str
    operation: str
    rows: int | None = None
    num_bytes: int = 0
    tasks: int = 1
    places: Mapping[str, TaskPlace] = field(default_factory=dict, repr=False)
    stored_files: int = 0
    stored_bytes: int = 0
    asks_driver: bool = False
    anywhere: bool = False

    @property
    def later_parts(self) -> frozenset[int]:
        """Tasks of a partition path but its first one: small files are that one's."""
        return frozenset(
            task_place.first + n for task_place in self.places.values() for n in range(1, task_place.parts)
        )

    def __str__(self) -> str:
        rows = "rows that are not counted" if self.rows is None else f"{self.rows:,} rows ({self.num_bytes:,} bytes)"
        lines = [
            f"{self.operation}: {rows} by {self.way}: {self.why}",
            f"  tasks       {self.tasks:,}",
            f"  partitions  {'all' if self.anywhere else f'{len(self.places):,}'}",
            f"  stored      {self.stored_files:,} file groups ({self.stored_bytes:,} bytes) in these partitions",
        ]
        split = [name for name, task_place in self.places.items() if task_place.parts > 1]
        return "\n".join(
            [*lines, *(f"  split       {name or '.'} over {self.places[name].parts} tasks" for name in split[:10])]
        )


def plan_spark_write(
    facts: WriteFacts, counted: Sequence[PartitionRows], limits: Limits, stored_files: int = 0
) -> SparkWritePlan:
    """Return the plan of a write.

    Args:
        facts: what is asked for.
        counted: the rows by partition path; nothing is counted where tasks append.
        limits: how much one process takes.
        stored_files: file groups in these partition paths.

    Example:
        >>> counted = [PartitionRows("a", 90_000, 70 << 20), PartitionRows("b", 10, 1000)]
        >>> plan = plan_spark_write(WriteFacts("upsert", keeps_keys=True), counted, Limits())
        >>> plan.way, plan.tasks, plan.places["a"].parts
        ('partition', 3, 2)
    """
    rows, num_bytes = sum(each.rows for each in counted), sum(each.num_bytes for each in counted)
    about: dict[str, Any] = {
        "operation": facts.operation,
        "stored_files": stored_files,
        "stored_bytes": sum(p.stored_bytes for p in counted),
        "anywhere": facts.anywhere,
    }
    if facts.appends:
        return SparkWritePlan("direct", "new files need no look-up, so no row changes hands", **about)
    about |= {"rows": rows, "num_bytes": num_bytes}
    if facts.alone:
        return SparkWritePlan("driver", facts.alone, places={p.partition: TaskPlace(0) for p in counted}, **about)
    if limits.fit_driver(rows, num_bytes, len(counted)):
        most = f"{limits.driver_rows:,} rows, {limits.driver_bytes:,} bytes and {limits.driver_partitions:,} partition paths"
        why = f"no more than {most}"
        return SparkWritePlan("driver", why, places={p.partition: TaskPlace(0) for p in counted}, **about)
    if facts.asked_here and facts.keeps_keys:
        tasks = _tasks_for(num_bytes, limits)
        anywhere = {p.partition: TaskPlace(0, tasks) for p in counted}
        why = "the index is of your own: the driver asks it, for the keys alone"
        return SparkWritePlan("lookup", why, tasks=tasks, places=anywhere, asks_driver=True, **about)
    if facts.is_global or facts.anywhere:
        tasks = _tasks_for(num_bytes, limits)
        anywhere = {p.partition: TaskPlace(0, tasks) for p in counted}
        why = "the index is global: a key may be in any partition"
        if not facts.is_global:
            why = "the keys to delete do not say their partition: each is looked up in all of them"
        return SparkWritePlan("lookup", why, tasks=tasks, places=anywhere, **about)
    large = [p for p in counted if _needs_one_task(p, facts) and p.num_bytes > limits.task_max_bytes]
    if large:
        why = f"the rows of partition {large[0].partition or '.'} are more than a task takes ({limits.task_max_bytes:,} bytes)"
        places, tasks = _task_places(replace(facts, keeps_keys=False), counted, limits)
        return SparkWritePlan("lookup", why, tasks=tasks, places=places, **about)
    places, tasks = _task_places(facts, counted, limits)
    if facts.places:
        return SparkWritePlan("bucket", "the key's hash tells its file group", tasks=tasks, places=places, **about)
    why = "the rows of every partition path fit a task" if facts.keeps_keys else "no stored row is looked for"
    return SparkWritePlan("partition", why, tasks=tasks, places=places, **about)


def _needs_one_task(each: PartitionRows, facts: WriteFacts) -> bool:
    """Return whether one task must have all rows of a partition path: it looks for their keys in files that others would write."""
    return facts.keeps_keys and each.is_stored and not facts.places


def _tasks_for(num_bytes: int, limits: Limits) -> int:
    return max(1, min(limits.tasks, -(-num_bytes // limits.task_bytes)))


def _task_places(
    facts: WriteFacts, counted: Sequence[PartitionRows], limits: Limits
) -> tuple[dict[str, TaskPlace], int]:
    """Return the tasks of each partition path: large ones have several, small ones share one."""
    places: dict[str, TaskPlace] = {}
    small: list[tuple[int, str]] = []
    tasks = 0
    for each in counted:
        weight = each.num_bytes + (each.stored_bytes if facts.keeps_keys else 0)
        parts = 1 if _needs_one_task(each, facts) else _tasks_for(weight, limits)
        if parts > 1:
            places[each.partition] = TaskPlace(tasks, parts)
            tasks += parts
        else:
            small.append((weight + limits.task_bytes // FILES_OF_A_TASK, each.partition))
    if small:
        shared = min(len(small), _tasks_for(sum(weight for weight, _ in small), limits))
        load = [(0, tasks + number) for number in range(shared)]
        for weight, partition in sorted(small, reverse=True):  # the largest first, each to the task with the least
            assigned, task = heapq.heappop(load)
            places[partition] = TaskPlace(task)
            heapq.heappush(load, (assigned + weight, task))
        tasks += shared
    return places, tasks


SORT_OPTION: Final = "hoodie.bulkinsert.sort.mode"
#: Hudi brings the rows of a partition path together with and without an order; here they come in that of their keys.
_SORT_MODES: Final = {
    "NONE": "none",
    "PARTITION_SORT": "partition",
    "PARTITION_PATH_REPARTITION": "partition",
    "PARTITION_PATH_REPARTITION_AND_SORT": "partition",
    "GLOBAL_SORT": "global",
}

#: Option → attribute of :class:`~lakefmt.spark.writing.plan.Limits`.
LIMIT_OPTIONS: Final = {
    "lakefmt.spark.driver.max.rows": "driver_rows",
    "lakefmt.spark.driver.max.bytes": "driver_bytes",
    "lakefmt.spark.driver.max.partitions": "driver_partitions",
    "lakefmt.spark.task.bytes": "task_bytes",
    "lakefmt.spark.task.max.bytes": "task_max_bytes",
    "lakefmt.spark.stage.max.bytes": "stage_bytes",
}


def take_limits(options: dict[str, str], tasks: int = 200) -> Limits:
    """Take the limits out of the options of a write.

    Args:
        options: of the write.
        tasks: no more tasks; the parallelism of the options goes before.

    Raises:
        InvalidInputError: one is no number.

    Example:
        >>> take_limits({"lakefmt.spark.driver.max.rows": "10"}).driver_rows
        10
    """
    limits = {
        attribute: _parse_limit(name, options.pop(name)) for name, attribute in LIMIT_OPTIONS.items() if name in options
    }
    if not limits.get("task_bytes", 1) or not limits.get("task_max_bytes", 1):
        raise InvalidInputError("lakefmt.spark.task.bytes and lakefmt.spark.task.max.bytes are at least 1")
    return Limits(**limits, tasks=_parallelism(options) or tasks)


def take_sort(options: dict[str, str]) -> str:
    """Take the order of a bulk insert out of the options of a write: ``none``, ``partition`` or ``global``.

    Raises:
        UnknownSetting: Hudi has no such order, or lakefmt does not have it.

    Example:
        >>> take_sort({"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}), take_sort({})
        ('global', 'none')
    """
    mode = options.pop(SORT_OPTION, "NONE")
    if mode.upper() not in _SORT_MODES:
        raise UnknownSetting(f"{SORT_OPTION} does not take {mode[:40]!r}: expected {', '.join(_SORT_MODES)}")
    return _SORT_MODES[mode.upper()]


def _parallelism(options: Mapping[str, str]) -> int:
    operation = options.get("hoodie.datasource.write.operation", "upsert").lower().replace("_", "")
    value = options.get(f"hoodie.{operation}.shuffle.parallelism", "0")
    return int(value) if value.isdecimal() and len(value) < 7 else 0


def _parse_limit(name: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 18:
        raise InvalidInputError(f"{name} takes a number, not {value[:40]!r}")
    return int(value)


_PARTITION_NUMBER: Final = "__lakefmt_partition_number"


@dataclass(frozen=True, slots=True)
class FewRows:
    """What was written of a batch of few rows.

    Attributes:
        rows: how many.
        num_bytes: their bytes, as Arrow holds them.
    """

    rows: int
    num_bytes: int


def can_collect(df: DataFrame) -> bool:
    """Return whether Spark hands the rows of a DataFrame to this process as Arrow has them; Connect of 3.5 does not."""
    return hasattr(df, "toArrow") or hasattr(df, "_collect_as_arrow")


def rows_to_ask_for(limits: Limits, row_bytes: float) -> int:
    """Return how many rows are few, where rows are as large as those of the batch before (pure).

    Example:
        >>> rows_to_ask_for(Limits(), 100.0), rows_to_ask_for(Limits(), 1 << 20), rows_to_ask_for(Limits(), 0.0)
        (50000, 32, 50000)
    """
    return min(limits.driver_rows, int(limits.driver_bytes / max(1.0, row_bytes)))


def collect_few(
    df: DataFrame, schema: pa.Schema, limits: Limits, row_bytes: float, table: Table, call: WriteCall
) -> pa.Table | None:
    """Return the rows of a DataFrame in their order; None: they are not few.

    Args:
        df: the rows; no more of them are handed to this process than are few, and one.
        schema: what they are cast to.
        limits: how much this process takes.
        row_bytes: about the bytes of a row: Spark limits rows and not their bytes.
        table: where they go.
        call: what the options ask for: an upsert or an insert.
    """
    most = rows_to_ask_for(limits, row_bytes)
    # A limit joins partitions in no order that is the same every time; which of two rows of a key wins may depend on it.
    numbered = df.selectExpr("*", f"spark_partition_id() AS {_PARTITION_NUMBER}").limit(most + 1)
    rows = _in_partition_order(_collect_numbered(numbered, schema))
    if rows.num_rows > most:
        return None
    return rows if limits.fit_driver(rows.num_rows, rows.nbytes, _count_partitions(rows, limits, table, call)) else None


def _collect_numbered(df: Any, schema: pa.Schema) -> pa.Table:
    """Return rows with the number of their partition of Spark."""
    numbered_schema = schema.append(pa.field(_PARTITION_NUMBER, pa.int32()))
    if hasattr(df, "toArrow"):
        rows = df.toArrow()
    else:
        batches = df._collect_as_arrow()
        rows = pa.Table.from_batches(batches) if batches else numbered_schema.empty_table()
    return rows.select(numbered_schema.names).cast(numbered_schema)


def _in_partition_order(rows: pa.Table) -> pa.Table:
    """Return rows by their partition, those of one in the order that they have (pure): a shuffle keeps it."""
    numbers = rows.column(_PARTITION_NUMBER).to_numpy()
    rows = rows.select(rows.column_names[:-1])
    is_sorted = bool((numbers[1:] >= numbers[:-1]).all())
    return rows if is_sorted else rows.take(pa.array(np.argsort(numbers, kind="stable")))


def _count_partitions(rows: pa.Table, limits: Limits, table: Table, call: WriteCall) -> int:
    """Return how many partition paths rows have; or how many they have at most, where that is few enough."""
    if rows.num_rows <= limits.driver_partitions:
        return int(rows.num_rows)
    request = request_of(WriteOperation.INSERT, call)
    planned = WriteTransaction.plan_only(table.client, request, rows.schema)
    keyed = key_rows(SharedWrite(planned.context, planned.state, planned.key_spec), [rows])
    return sum(len(batch.partitions.dictionary) for batch in keyed)  # one batch


#: How often Spark is asked how far its tasks are.
_POLL_SECONDS: Final = 0.2


class SilentSteps:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Take a text that is not shown."""

    @contextmanager
    def step(self, _spark: SparkSession, text: str) -> Iterator[None]:
        """Run a step of the write."""
        self.say(text)
        yield


class WriteSteps(SilentSteps):
    """Shows a line for each step of a write, and a bar of its tasks while it runs.

    Args:
        console: where to show them; None: the standard error stream.
        poll_seconds: how often Spark is asked.
    """

    def __init__(self, console: Console | None = None, poll_seconds: float = _POLL_SECONDS) -> None:
        self._console, self._poll_seconds = console, poll_seconds

    def say(self, text: str) -> None:
        """Show a line."""
        stream = sys.stderr if self._console is None else self._console.file
        print("lakefmt:", text, file=stream, flush=True)

    @contextmanager
    def step(self, spark: SparkSession, text: str) -> Iterator[None]:
        """Run a step of the write; a bar shows how many of its tasks are done, with Connect only that it runs."""
        self.say(text)
        if find_spec("rich") is None:  # it comes with the extra `cli`
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = self._console or Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress_display:
            bar = progress_display.add_task(f"lakefmt: {text}", total=None)
            context = getattr(spark, "_sc", None)
            if context is None:
                yield
                return
            with _renewing_bar(context.statusTracker(), progress_display, bar, self._poll_seconds):
                yield


def count_tasks(tracker: StatusTracker, earlier_stages: frozenset[int], ended: dict[int, int]) -> tuple[int, int]:
    """Return how many tasks of Spark's stages are done, and how many there are.

    Args:
        tracker: Spark's status tracker.
        earlier_stages: stages that ran before, which are not counted; those that other threads begin meanwhile are.
        ended: the tasks of each stage that was seen, which gets those that run; a stage that runs no more has ended.
    """
    finished, running = 0, set()
    for stage in tracker.getActiveStageIds():
        info = None if stage in earlier_stages else tracker.getStageInfo(stage)
        if info is not None:
            running.add(stage)
            ended[stage] = info.numTasks
            finished += info.numCompletedTasks
    finished += sum(tasks for stage, tasks in ended.items() if stage not in running)
    return finished, sum(ended.values())


@contextmanager
def _renewing_bar(
    tracker: StatusTracker, progress_display: Progress, bar: TaskID, poll_seconds: float
) -> Iterator[None]:
    """Renew a bar while the block runs, in a thread."""
    earlier_stages, ended, is_over = frozenset(tracker.getActiveStageIds()), dict[int, int](), Event()

    def renew() -> None:
        while not is_over.wait(poll_seconds):
            counted = run_foreign(lambda: count_tasks(tracker, earlier_stages, ended))
            if isinstance(counted, Raised):
                return  # the session may end meanwhile; what is lost is a bar
            finished, tasks = counted
            if tasks:
                progress_display.update(bar, completed=finished, total=tasks)

    thread = Thread(target=renew, name="lakefmt-task-bar", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: What a writing task answers.
DONE: Final = "result binary"
#: Rows are keyed together, and packed rows handed out, until they have this many bytes.
_KEYED_BYTES: Final = 32 << 20
#: Rows of a stream are written together until they have this many bytes.
_WINDOW_BYTES: Final = 128 << 20

_PREPARED_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("data", pa.binary()),
    ]
)
_COUNTED_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("data", pa.binary()),
    ]
)
_ROUTED_SCHEMA: Final = pa.schema(
    [("slot", pa.int32()), ("source", pa.int32()), ("number", pa.int32()), ("rows", pa.int64()), ("data", pa.binary())]
)
_DONE_SCHEMA: Final = pa.schema([("result", pa.binary())])


def prepare_task(shared: SharedWrite, schema: pa.Schema) -> Task:
    """Return the task that keys rows and packs those of each partition path."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source, number = _partition_number(), 0
        for batch in key_rows(shared, _in_windows(batches, schema, _KEYED_BYTES)):
            columns: dict[str, list[object]] = {name: [] for name in _PREPARED_SCHEMA.names}
            for partition, rows in by_partition(batch):
                values = (partition, source, number, rows.num_rows, rows.nbytes, pack(rows))
                for name, value in zip(columns, values, strict=True):
                    columns[name].append(value)
                number += 1
            yield pa.RecordBatch.from_pydict(columns, schema=_PREPARED_SCHEMA)

    return run


def count_task(most_bytes: int) -> Task:
    """Return the task that counts packed rows by partition path, and hands them on where they are few.

    So few rows are with the driver after one job.

    Args:
        most_bytes: packed rows of one task that are handed on.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: dict[str, list[int]] = {}
        retained_batches: list[pa.RecordBatch] | None = []
        size = 0
        for batch in batches:
            sums = pa.Table.from_batches([batch]).group_by("partition").aggregate([("rows", "sum"), ("bytes", "sum")])
            for line in sums.to_pylist():  # partitions, not rows
                count = counts.setdefault(line["partition"], [0, 0])
                count[0] += line["rows_sum"]
                count[1] += line["bytes_sum"]
            size += batch.column("data").nbytes
            if retained_batches is not None:
                retained_batches.append(batch.select(["source", "number", "data"]))
            if size > most_bytes:
                retained_batches = None
        lines = [(partition, rows, num_bytes) for partition, (rows, num_bytes) in counts.items()]
        nothing = [None] * len(lines)
        columns = [*map(list, zip(*lines, strict=True)), nothing, nothing, nothing] if lines else [[]] * 6
        yield pa.RecordBatch.from_pydict(dict(zip(_COUNTED_SCHEMA.names, columns, strict=True)), schema=_COUNTED_SCHEMA)
        for batch in retained_batches or ():
            zeros = pa.array(np.zeros(batch.num_rows, np.int64))
            yield pa.RecordBatch.from_arrays(
                [pa.nulls(batch.num_rows, pa.string()), zeros, zeros, *batch.columns], schema=_COUNTED_SCHEMA
            )

    return run


def few_rows_task(shared: SharedWrite, schema: pa.Schema, most_bytes: int) -> Task:
    """Return the task that does what :func:`prepare_task` and :func:`count_task` do, in one worker of Python."""
    prepare, count = prepare_task(shared, schema), count_task(most_bytes)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return count(prepare(batches))

    return run


def route_task(plan: SparkWritePlan, shared: SharedWrite, index: PlacingIndex | None, images: Sequence[int]) -> Task:
    """Return the task that tells packed rows their task; rows of a partition path that several tasks write are split.

    Args:
        plan: the plan of the write.
        shared: the write.
        index: decides the file group of every key; None: none does.
        images: the value of the column ``slot`` for each task (:func:`~lakefmt.spark.writing.distributed.slot_images`).
    """
    first_partition = min(plan.places, default="")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Many small partition paths make thousands of packed rows: a batch of Arrow for each would cost more than they do.
        columns: dict[str, list[object]] = {name: [] for name in _ROUTED_SCHEMA.names}
        held_bytes = 0
        for batch in batches:
            for row in batch.to_pylist():  # packed rows, not rows
                routed = _routed(row)
                for name, values in routed.items():
                    columns[name] += values
                held_bytes += sum(map(len, routed["data"]))
                if held_bytes >= _KEYED_BYTES:
                    yield pa.RecordBatch.from_pydict(columns, schema=_ROUTED_SCHEMA)
                    columns, held_bytes = {name: [] for name in _ROUTED_SCHEMA.names}, 0
        if columns["slot"]:
            yield pa.RecordBatch.from_pydict(columns, schema=_ROUTED_SCHEMA)

    def _routed(row: dict[str, Any]) -> dict[str, list[Any]]:
        # A partition path that was not counted: the input is not repeatable, which the count of rows will show.
        task_place = plan.places.get(row["partition"]) or plan.places[first_partition]
        tables = (
            {task_place.first: None}
            if task_place.parts == 1
            else _split(row["data"], task_place.parts, task_place.first)
        )
        slots = list(tables)
        return {
            "slot": [images[slot] for slot in slots],
            "source": [row["source"]] * len(slots),
            "number": [row["number"]] * len(slots),
            "rows": [row["rows"] if rows is None else rows.num_rows for rows in tables.values()],
            "data": [row["data"] if rows is None else pack(rows) for rows in tables.values()],
        }

    def _split(data: bytes, parts: int, first: int) -> dict[int, pa.Table | None]:
        rows = unpack(data)
        numbers = split_rows(key_again(shared, rows), parts, index, shared.buckets)
        return {first + part: rows.filter(pa.array(numbers == part)) for part in map(int, np.unique(numbers))}

    return run


def write_task(
    plan: SparkWritePlan, shared: SharedWrite, storage: Mapping[str, object], slot_of: Callable[[int], int]
) -> Task:
    """Return the task that writes the rows of one task, all of them together."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task, tables in task_rows(batches, slot_of):
            writer = TaskWriter(shared, task, storage, fills_small_files=task not in plan.later_parts)
            writer.write(pa.concat_tables(tables))
            yield done_batch(writer.result())

    return run


def task_rows(batches: Iterable[pa.RecordBatch], slot_of: Callable[[int], int]) -> Iterator[tuple[int, list[pa.Table]]]:
    """Yield the number of the task whose rows these are, and the rows in the order of their sources; nothing without rows."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    table = pa.Table.from_batches(filled)
    for slot in sorted(table.column("slot").unique().to_pylist()):  # one, as a rule
        yield slot_of(slot), sorted_tables(table.filter(pc.field("slot") == slot).to_batches())


def direct_task(shared: SharedWrite, schema: pa.Schema, storage: Mapping[str, object]) -> Task:
    """Return the task that writes the rows as they come: no other task has rows of its new files."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TaskWriter(shared, _partition_number(), storage)
        for table in _in_windows(batches, schema, _WINDOW_BYTES):
            writer.write(table, in_order=False)
        yield done_batch(writer.result())

    return run


def results_of(rows: Iterable[Row]) -> list[TaskResult]:
    """Return what tasks answered."""
    # Pickled by our own tasks a moment ago, never stored.
    return [pickle.loads(bytes(row["result"])) for row in rows]  # noqa: S301


def done_batch(result: TaskResult) -> pa.RecordBatch:
    """Return a task's answer."""
    return pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]}, schema=_DONE_SCHEMA)


def _in_windows(batches: Iterator[pa.RecordBatch], schema: pa.Schema, most: int) -> Iterator[pa.Table]:
    """Yield the rows as tables of at least `most` bytes; the last one may be smaller."""
    pending: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        pending.append(batch.select(schema.names).cast(schema))
        held_bytes += pending[-1].nbytes
        if held_bytes >= most:
            yield pa.Table.from_batches(pending, schema)
            pending, held_bytes = [], 0
    if sum(batch.num_rows for batch in pending):
        yield pa.Table.from_batches(pending, schema)


def _partition_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
