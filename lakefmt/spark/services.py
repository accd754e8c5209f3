"""Table services on the cluster: the driver plans and commits, every operation of the plan is one task.

The plan, the table lock, the heartbeat and the commit are those of the core. A task that fails, or runs twice, writes the
file of the same name; a driver that dies leaves a pending plan, which the next run of the service executes again, here, in
plain lakefmt or in Hudi.

Beside a stream, compaction and clustering run in a thread of their own (:class:`StreamServices`). A write of a batch only
plans a service, when one is due. The thread lets the tasks of the cluster execute it while the stream goes on. What a
process leaves pending that ends meanwhile is executed by the next one, whichever engine that is.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa

from lakefmt import Table, open_table
from lakefmt._core.arguments import Raised, check_flags, check_texts, run_foreign
from lakefmt._core.compaction.clean_run import CleanResult, run_clean
from lakefmt._core.compaction.cluster_run import ClusterCall, ClusteringResult
from lakefmt._core.compaction.cluster_run import cluster_table as cluster_call
from lakefmt._core.compaction.compact_run import CompactionResult, run_compaction
from lakefmt._core.compaction.log_compact import run_log_compaction
from lakefmt._core.compaction.operations import (
    ClusteringOperations,
    ServiceOperations,
    run_clustering_operation,
    run_operation,
)
from lakefmt._core.filegroups.pending_plans import pending_clusterings
from lakefmt._core.storage.open import open_store
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import WriteStat
from lakefmt.errors import InstantNotFound, InvalidInputError, LakefmtError, ServicesFailed
from lakefmt.spark.options import SparkServiceOptions, option_texts, parse_write_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "CLUSTER_INLINE",
    "INLINE",
    "SCHEDULE",
    "SCHEDULE_CLUSTERING",
    "StreamServices",
    "clean_table",
    "cluster_by_tasks",
    "compact_table",
]

_log = logging.getLogger("lakefmt.spark")

_Rows = Iterator[pa.RecordBatch]
#: Files that one task of a clean deletes; the store takes them in requests of many.
_FILES_PER_TASK: Final = 2000


def compact_table(
    spark: SparkSession,
    path: str,
    *,
    schedule: bool = False,
    run: str | None = None,
    log: bool = False,
    verify: bool = False,
    **options: Unpack[SparkServiceOptions],
) -> CompactionResult:
    """Merge logs into base files: every file slice of the plan is merged by one task of the cluster.

    Args:
        spark: the session, classic or Connect.
        path: the table.
        schedule: only request the plan; the next compaction, or another engine's, executes it.
        run: only execute the pending compaction, or log compaction, of this requested time.
        log: run a log compaction instead: merge the logs of a file slice into one log.
        verify: compare every new base file with its file slice before the compaction completes.
        **options: settings by their names, and ``storage.…`` for the store.

    Raises:
        TableNotFound: there is none.
        UnsupportedFeature: the table is copy-on-write.
        ServicesFailed: a task failed every time it was tried; the plan stays pending.
        WriterActive: another process executes a compaction.
        InstantNotFound: no compaction is pending at `run`.

    Example::

        lakefmt.spark.compact(spark, "/data/trips", verify=True)
    """
    check_flags(schedule=schedule, log=log, verify=verify)
    check_texts(run=run)
    if schedule and run is not None:
        raise InvalidInputError("compact takes one of schedule and run")
    call = parse_write_options(option_texts(options))
    client = open_table(path, options=call.settings, storage_options=call.storage).client
    if run is not None:
        pending = client.load().timeline.pending
        log = any(instant.time == run and instant.action is Action.LOG_COMPACTION for instant in pending)

    def run_operations(operations: ServiceOperations) -> list[tuple[WriteStat, ...]]:
        def merge(number: int) -> tuple[WriteStat, ...]:
            return run_operation(operations, number, call.storage)

        return _run_tasks(spark, merge, len(operations.plan.operations), f"compaction {operations.time}")

    if log:
        return run_log_compaction(client, schedule=schedule, run=run, run_operations=run_operations)
    return run_compaction(client, schedule=schedule, run=run, verify=verify, run_operations=run_operations)


def cluster_by_tasks(
    spark: SparkSession,
    path: str,
    columns: str | Sequence[str] | None = None,
    *,
    order: str | None = None,
    where: str | None = None,
    partitions: str | Sequence[str] | None = None,
    schedule: bool = False,
    run: str | None = None,
    **options: Unpack[SparkServiceOptions],
) -> ClusteringResult:
    """Pack small files and put rows in an order: every group of the plan is rewritten by one task of the cluster.

    Args:
        spark: the session, classic or Connect.
        path: the table.
        columns: the rows of a group are ordered by these; None: by those of the settings, or not at all.
        order: ``"linear"``, ``"zorder"`` or ``"hilbert"``.
        where: only file slices that may have rows of this filter.
        partitions: only these partitions.
        schedule: only request the plan; the next clustering, or another engine's, executes it.
        run: only execute the pending clustering of this requested time.
        **options: settings by their names, such as ``hoodie.clustering.plan.strategy.target.file.max.bytes``, and
            ``storage.…`` for the store.

    Raises:
        TableNotFound: there is none.
        UnsupportedFeature: the index of the table decides the file group of a key.
        ServicesFailed: a task failed every time it was tried; the plan stays pending.
        WriterActive: another process executes a clustering.
        InstantNotFound: no clustering is pending at `run`.

    Example::

        lakefmt.spark.cluster(spark, "/data/trips", ["city", "ts"], order="hilbert")
    """
    check_flags(schedule=schedule)
    check_texts(order=order, where=where, run=run)
    call = parse_write_options(option_texts(options))
    client = open_table(path, options=call.settings, storage_options=call.storage).client

    def run_groups(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        def rewrite(number: int) -> tuple[WriteStat, ...]:
            return run_clustering_operation(operations, number, call.storage)

        return _run_tasks(spark, rewrite, len(operations.plan.groups), f"clustering {operations.time}")

    request = ClusterCall(columns, order, where, partitions, schedule, run)
    return cluster_call(client, request, None, run_groups)


def clean_table(
    spark: SparkSession, path: str, *, schedule: bool = False, **options: Unpack[SparkServiceOptions]
) -> CleanResult:
    """Delete the file slices that no reader can ask for any more; the tasks of the cluster delete the files.

    Args:
        spark: the session, classic or Connect.
        path: the table.
        schedule: only request the plan; the next clean, or another engine's, executes it.
        **options: settings by their names, such as ``hoodie.clean.commits.retained``, and ``storage.…`` for the store.

    Raises:
        TableNotFound: there is none.
        ServicesFailed: a task failed every time it was tried; the plan stays pending.
        WriterActive: another process executes a clean.

    Example::

        lakefmt.spark.clean(spark, "/data/trips", **{"hoodie.clean.commits.retained": 20})
    """
    check_flags(schedule=schedule)
    call = parse_write_options(option_texts(options))
    client = open_table(path, options=call.settings, storage_options=call.storage).client

    def delete_files(names: Sequence[str]) -> None:
        parts = [names[first : first + _FILES_PER_TASK] for first in range(0, len(names), _FILES_PER_TASK)]

        def delete(number: int) -> int:
            open_store(path, call.storage).delete(parts[number])
            return len(parts[number])

        _run_tasks(spark, delete, len(parts), "clean")

    return run_clean(client, schedule=schedule, delete_files=delete_files)


def _run_tasks(spark: SparkSession, run_one: Callable[[int], Any], count: int, what: str) -> list[Any]:
    """Run a function once for each number below `count`, each in a task of its own; return what it returned, in order.

    Raises:
        ServicesFailed: a task failed every time it was tried.
    """

    def run(batches: _Rows) -> _Rows:
        for batch in batches:
            for number in batch.column(0).to_numpy():  # one in each task
                result = pickle.dumps((int(number), run_one(int(number))))
                yield pa.RecordBatch.from_pydict({"done": pa.array([result], pa.binary())})

    numbers = spark.range(0, count, 1, max(1, count))
    rows = run_foreign(lambda: numbers.mapInArrow(run, "done binary").collect())
    if isinstance(rows, Raised):
        if isinstance(rows.error, LakefmtError):
            raise rows.error
        lines = [line for line in str(rows.error).splitlines() if line.strip()]
        why = next((line.strip() for line in reversed(lines) if "lakefmt.errors." in line), lines[0] if lines else "")
        raise ServicesFailed(f"a task of the {what} failed: {why[:500]}") from rows.error
    results = dict(pickle.loads(bytes(row[0])) for row in rows)  # noqa: S301 - made by our own tasks
    if sorted(results) != list(range(count)):
        raise ServicesFailed(f"the {what} has {count} operations, and Spark returned those of {len(results)}")
    return [results[number] for number in range(count)]


#: By these settings a write plans a service when one is due, and executes none; compactions of merge-on-read tables.
SCHEDULE: Final = "hoodie.compact.schedule.inline"
SCHEDULE_CLUSTERING: Final = "hoodie.clustering.schedule.inline"
INLINE: Final = "hoodie.compact.inline"
CLUSTER_INLINE: Final = "hoodie.clustering.inline"


class StreamServices:
    """Executes pending services of one table; at most one thread runs at a time.

    Args:
        path: the table.
        options: of the stream's writes.
        compacts: the thread executes compactions.
        clusters: the thread executes clusterings.
    """

    def __init__(self, path: str, options: Mapping[str, str], *, compacts: bool = True, clusters: bool = False) -> None:
        self._path, self._compacts, self._clusters = path, compacts, clusters
        self._options: dict[str, Any] = {n: v for n, v in options.items() if not n.startswith("lakefmt.spark.")}
        self._guard = Lock()  # protects the attributes below; held for moments
        self._thread: Thread | None = None
        self._is_due = False
        self._ended = 0

    @property
    def ended_clusterings(self) -> int:
        """How many clusterings have ended here."""
        return self._ended

    def wake(self, spark: SparkSession) -> None:
        """Execute what is pending soon; returns at once."""
        with self._guard:
            self._is_due = True
            if self._thread is None:
                self._thread = Thread(target=self._run_due, args=(spark,), name="lakefmt-services", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Return when nothing is due and nothing runs."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def compact(self, spark: SparkSession) -> None:
        """Execute the pending compactions, in this thread; a failure is a warning, and its plan stays pending."""
        try:
            pending = self._table().client.load().timeline.pending
            for time in [instant.time for instant in pending if instant.action is Action.COMPACTION]:
                with suppress(InstantNotFound):  # another process has executed or withdrawn it
                    compact_table(spark, self._path, run=time, **self._options)
        except LakefmtError as error:
            _log.warning("%s: the compaction beside the stream failed and stays planned: %s", self._path, error)

    def _cluster(self, spark: SparkSession) -> None:
        """Execute the pending clusterings, as :meth:`compact` does."""
        try:
            client = self._table().client
            for time in [instant.time for instant in pending_clusterings(client.at(client.load()))]:
                with suppress(InstantNotFound):  # another process has executed or withdrawn it
                    cluster_by_tasks(spark, self._path, run=time, **self._options)
                with self._guard:
                    self._ended += 1
        except LakefmtError as error:
            _log.warning("%s: the clustering beside the stream failed and stays planned: %s", self._path, error)

    def _run_due(self, spark: SparkSession) -> None:
        while True:
            with self._guard:
                if not self._is_due:
                    self._thread = None
                    return
                self._is_due = False
            try:
                if self._compacts:
                    self.compact(spark)
                if self._clusters:
                    self._cluster(spark)
            except Exception as error:  # noqa: BLE001 - nothing catches what a thread raises: a session may have ended
                _log.warning("%s: the services beside the stream ended: %s", self._path, error)

    def _table(self) -> Table:
        call = parse_write_options(self._options)
        return open_table(self._path, options=call.settings, storage_options=call.storage)
