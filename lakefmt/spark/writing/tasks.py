"""What Spark's tasks do of a write: functions from Arrow batches to Arrow batches, for ``mapInArrow``.

The driver shows on the standard error stream what they do: a line for each step, and a bar of its tasks. The bar is for a
terminal or a notebook, and goes when its step ends; elsewhere there are the lines alone.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.index import PlacingIndex
from lakefmt._core.write.tasks import SharedWrite, TaskResult, TaskWriter, key_again, key_rows, split_rows
from lakefmt.spark.writing.plan import SparkWritePlan
from lakefmt.spark.writing.staging import by_partition, pack, sorted_tables, unpack

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.status import StatusTracker
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = [
    "DONE",
    "SilentSteps",
    "Task",
    "WriteSteps",
    "count_task",
    "count_tasks",
    "direct_task",
    "done_batch",
    "few_rows_task",
    "prepare_task",
    "results_of",
    "route_task",
    "task_rows",
    "write_task",
]

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
    """Yield rows in tables of at least `most` bytes, but the last one."""
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
