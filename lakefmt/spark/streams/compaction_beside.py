"""Compaction beside a stream, in a thread of its own (effects).

A write of a batch only plans a compaction, when one is due. The thread lets the tasks of the cluster execute it while the
stream goes on. What a process leaves pending that ends meanwhile is executed by the next one, whichever engine that is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from lakefmt import open_table
from lakefmt.errors import InstantNotFound, LakefmtError
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.services import compact_table
from lakefmt.timeline.instant import Action

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["INLINE", "SCHEDULE", "CompactionBeside"]

#: By this setting a write of a merge-on-read table plans a compaction when one is due, and executes none.
SCHEDULE: Final = "hoodie.compact.schedule.inline"
INLINE: Final = "hoodie.compact.inline"
_log = logging.getLogger("lakefmt.spark")


class CompactionBeside:
    """Executes pending compactions of one table; at most one thread runs at a time.

    Args:
        path: the table.
        options: of the stream's writes.
    """

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self._path = path
        self._options: dict[str, Any] = {n: v for n, v in options.items() if not n.startswith("lakefmt.spark.")}
        self._guard = Lock()  # protects the attributes below; held for moments
        self._thread: Thread | None = None
        self._is_due = False

    def wake(self, spark: SparkSession) -> None:
        """Execute what is pending soon; returns at once."""
        with self._guard:
            self._is_due = True
            if self._thread is None:
                self._thread = Thread(target=self._run_due, args=(spark,), name="lakefmt-compaction", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Return when nothing is due and nothing runs."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def run(self, spark: SparkSession) -> None:
        """Execute the pending compactions, in this thread; a failure is a warning, and its plan stays pending."""
        try:
            for time in self._pending():
                try:
                    compact_table(spark, self._path, run=time, **self._options)
                except InstantNotFound:
                    continue  # another process has executed or withdrawn it
        except LakefmtError as error:
            _log.warning("%s: the compaction beside the stream failed and stays planned: %s", self._path, error)

    def _run_due(self, spark: SparkSession) -> None:
        while True:
            with self._guard:
                if not self._is_due:
                    self._thread = None
                    return
                self._is_due = False
            try:
                self.run(spark)
            except Exception as error:  # noqa: BLE001 - nothing catches what a thread raises: a session may have ended
                _log.warning("%s: the compaction beside the stream ended: %s", self._path, error)

    def _pending(self) -> list[str]:
        call = parse_write_options(self._options)
        client = open_table(self._path, options=call.settings, storage_options=call.storage).client
        return [instant.time for instant in client.load().timeline.pending if instant.action is Action.COMPACTION]
