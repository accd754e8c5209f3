"""Processes that execute the operations of compactions, one file slice each (effects)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from types import TracebackType

from lakefmt.compaction.operations import ServiceOperations, run_operation
from lakefmt.errors import ServicesFailed
from lakefmt.values import WriteStat

__all__ = ["OperationPool"]


class OperationPool:
    """A pool that starts when it is first used; a worker that dies fails the plan at hand, which stays pending.

    Parameters:
        workers: how many processes.
        storage_options: credentials; operations carry none.
    """

    def __init__(self, workers: int, storage_options: Mapping[str, object] | None = None) -> None:
        self._workers = workers
        self._storage_options = dict(storage_options or {})
        self._pool: ProcessPoolExecutor | None = None

    def run_operations(self, operations: ServiceOperations) -> list[tuple[WriteStat, ...]]:
        """Run all operations of a plan; what each wrote, in their order.

        Raises:
            ServicesFailed: a worker died.
            LakefmtError: what the first failing operation raised.
        """
        if self._pool is None:
            # Spawned, not forked: this process has threads.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, context, initializer=_begin_worker)
        pool, count = self._pool, len(operations.plan.operations)
        try:
            futures = [pool.submit(run_operation, operations, n, self._storage_options) for n in range(count)]
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            self.close()
            raise ServicesFailed(
                f"a worker died while it executed {operations.time}; the plan stays pending and is executed again"
            ) from error

    def close(self) -> None:
        """End the workers; what they have begun is finished."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def __enter__(self) -> OperationPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _begin_worker() -> None:
    """Leave signals to the coordinator, and end when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), name="lakefmt-parent", daemon=True).start()


def _end_with(sentinel: int) -> None:
    # A worker holds the pool's pipe open itself, so it would never hear that a killed coordinator is gone.
    wait([sentinel])
    os._exit(1)
