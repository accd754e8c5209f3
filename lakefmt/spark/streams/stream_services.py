"""Compaction and clustering beside a stream, in a thread of their own (effects).

A write of a batch only plans a service, when one is due. The thread lets the tasks of the cluster execute it while the
stream goes on. What a process leaves pending that ends meanwhile is executed by the next one, whichever engine that is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from lakefmt import Table, open_table
from lakefmt.errors import InstantNotFound, LakefmtError
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.services import cluster_by_tasks, compact_table
from lakefmt.timeline.instant import Action
from lakefmt.transactions.clustering_plans import pending_clusterings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CLUSTER_INLINE", "INLINE", "SCHEDULE", "SCHEDULE_CLUSTERING", "StreamServices"]

#: By these settings a write plans a service when one is due, and executes none; compactions of merge-on-read tables.
SCHEDULE: Final = "hoodie.compact.schedule.inline"
SCHEDULE_CLUSTERING: Final = "hoodie.clustering.schedule.inline"
INLINE: Final = "hoodie.compact.inline"
CLUSTER_INLINE: Final = "hoodie.clustering.inline"
_log = logging.getLogger("lakefmt.spark")


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
            for time in [instant.time for instant in pending_clusterings(client, client.load())]:
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
