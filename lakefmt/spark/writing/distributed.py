"""One write of a DataFrame whose files Spark's tasks write (effects): key, count, plan, hand out, write, commit.

Only DataFrames are used, no RDDs and no context of Spark, so that Spark 3.5, 4 and Connect go the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from lakefmt import Table, create_table
from lakefmt.compaction.scheduler import run_services
from lakefmt.data_classes import replace
from lakefmt.index import Index, places_new_keys, rings_of
from lakefmt.index.custom import CheckedIndex
from lakefmt.keys import key_spec_from_properties
from lakefmt.schema import field_at
from lakefmt.spark.options import WriteCall
from lakefmt.spark.writing.commit import (
    check_creation,
    request_of,
    resolve_operation,
    write_and_commit,
    write_few_and_commit,
)
from lakefmt.spark.writing.driver_lookup import COMBINED, combine_task, join_answers, look_up_here
from lakefmt.spark.writing.few_rows import FewRows
from lakefmt.spark.writing.lookup import (
    HANDED,
    LOCATED,
    found_rows,
    group_task,
    hand_out_task,
    locate_task,
    plan_handing,
)
from lakefmt.spark.writing.packed_rows import COUNTED, PREPARED, ROUTED, unpack
from lakefmt.spark.writing.plan import Limits, PartitionRows, SparkWritePlan, WriteFacts, plan_spark_write
from lakefmt.spark.writing.spread import slot_images, slot_of, spread_over
from lakefmt.spark.writing.task_bar import SilentSteps
from lakefmt.spark.writing.task_errors import typed_errors
from lakefmt.spark.writing.tasks import (
    DONE,
    count_task,
    direct_task,
    few_rows_task,
    prepare_task,
    results_of,
    route_task,
    write_task,
)
from lakefmt.storage.open import open_store
from lakefmt.values import CommitResult, PartitionPath, WriteOperation
from lakefmt.write.commit.callbacks import notify_callbacks
from lakefmt.write.context import APPENDING, REPLACING
from lakefmt.write.task_commit import TaskRows, check_conservation, run_tasks_and_commit
from lakefmt.write.task_writer import SharedWrite, TaskResult, TaskWriter
from lakefmt.write.transaction import WriteTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkWrite"]

#: How many rows Spark hands to Python at once, and how many packed ones, of 32 MiB each, it may be.
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
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
        self._few: list[Any] = []
        self.few = FewRows(0, 0)
        self._transaction: WriteTransaction | None = None
        self._kept: list[DataFrame] = []

    def _create(self, place: str, storage: Any) -> Table:
        creation = {**self._call.creation}
        creation["name"] = creation.get("name") or self._path.rstrip("/").rsplit("/", 1)[-1] or None
        return create_table(
            place,
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
        if self._anywhere and rings_of(index) is not None and planned.state.timeline.pending_clusterings:
            alone = "a clustering of buckets waits, and the keys to delete do not say their partition"
        places = places_new_keys(index)
        appends = request.operation is WriteOperation.BULK_INSERT and not (keeps_keys or combines or places)
        return WriteFacts(
            request.operation.value.lower(),
            keeps_keys=keeps_keys,
            places=places,
            asked_here=isinstance(index, CheckedIndex),
            appends=appends and not alone,
            is_global=keeps_keys and index.is_global,
            anywhere=self._anywhere,
            alone=alone,
        )

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

    def _sums(self, lines: Sequence[Any]) -> list[PartitionRows]:
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
        for file_slice in self._table.client.slices(self._planned.state, partitions):
            size = 0 if file_slice.base is None else file_slice.base.size
            place = "" if partitions is None else file_slice.partition
            stored[place] = (stored.get(place, (0, True))[0] + size, True)
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
        given = TaskRows(rows, None if self._anywhere else frozenset(map(PartitionPath, plan.places)))
        result = run_tasks_and_commit(
            client, request, self._schema, given, lambda shared: self._results(plan, shared), self._begin
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
                located_rows, given, record_bytes = found_rows(located)
            check_conservation(plan.rows, [TaskResult(0, (), given)])
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
    def _stage(self, text: str) -> Iterator[None]:
        spark = self._df.sparkSession
        with (
            self._steps.step(spark, text),
            typed_errors(),
            job_description(spark, f"lakefmt: {text} ({self._path})"),
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
    if not isinstance(index, CheckedIndex):
        return ""
    own = f"the index {index.name} is of your own and"
    if places_new_keys(index):
        return f"{own} places keys: where it puts a new one only it can say again"
    if keeps_keys and index.is_global:
        return f"{own} global: whether a key moves to another partition is decided by its row, not by the key alone"
    if keeps_keys and operation not in (WriteOperation.DELETE, WriteOperation.UPSERT):
        return f"{own} is asked which rows are to be dropped"
    return ""


def deletes_anywhere(table: Table, operation: WriteOperation, index: Index, schema: pa.Schema) -> bool:
    """Return whether keys are deleted wherever they are: their rows lack a partition column, or the index is global."""
    spec = table.client.key_spec(table.properties)
    if operation is not WriteOperation.DELETE or spec.auto_keys or not spec.partition_fields:
        return False
    return index.is_global or any(field_at(schema, field.name) is None for field in spec.partition_fields)


def in_order_of_source(packed: Sequence[Any]) -> list[pa.Table]:
    """Return packed rows that Spark has collected."""
    return [unpack(row["data"]) for row in sorted(packed, key=lambda row: (row["source"], row["number"]))]


@contextmanager
def job_description(spark: SparkSession, text: str) -> Iterator[None]:
    """Let Spark's pages show what a job does; Connect has no such names."""
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
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
    before = spark.conf.get(_BATCH_ROWS)
    spark.conf.set(_BATCH_ROWS, _PACKED_ROWS)
    try:
        yield
    finally:
        spark.conf.set(_BATCH_ROWS, before)


def _with_warnings(result: CommitResult, more: Sequence[str]) -> CommitResult:
    return replace(result, warnings=(*result.warnings, *more))
