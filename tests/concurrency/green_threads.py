"""Writers that take turns: each in a thread of its own, one running at a time, stopped at every lock and every pause."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError

_PATIENCE = 60.0
_FINISHED = itertools.count(1)

#: What makes a writer quick and one of many.
MANY: dict[str, object] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.archive.automatic": False,
}


class Gate(SystemTimeSource):
    """Stops whoever waits, until it is its turn."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.stopped = threading.Semaphore(0)
        self.waits: list[float] = []

    def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
        self._stop()
        return lock.acquire(timeout=_PATIENCE)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._stop()

    def jitter(self) -> float:
        return 0.5

    def schedule_periodic(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        return lambda: None

    def _stop(self) -> None:
        self.stopped.release()
        assert self.go.acquire(timeout=_PATIENCE), "nobody gave the turn back"


class Writer:
    """One call of a verb, from lock to lock."""

    def __init__(self, store: ObjectStore, call: Callable[[Table], Any], options: dict[str, object]) -> None:
        self.gate = Gate()
        self.table = Table(TableClient(store, options, time_source=self.gate))
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.finished = 0
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()
        self._wait()

    def _run(self, call: Callable[[Table], Any]) -> None:
        try:
            self.result = call(self.table)
        except LakefmtError as error:
            self.error = error
        except BaseException as error:
            self.error = RuntimeError("not an error of lakefmt's")
            self.error.__cause__ = error
        self.finished = next(_FINISHED)
        self.done = True
        self.gate.stopped.release()

    def _wait(self) -> None:
        assert self.gate.stopped.acquire(timeout=_PATIENCE), "the writer is stuck"

    def step(self) -> None:
        """Let it run to its next stop."""
        if not self.done:
            self.gate.go.release()
            self._wait()

    def finish(self) -> None:
        """Let it run to its end."""
        while not self.done:
            self.step()


def take_turns(
    store: ObjectStore, calls: Sequence[Callable[[Table], Any]], script: str, options: dict[str, object] | None = None
) -> list[Writer]:
    """Let writers run by a script such as ``"ABAB"``, then to their ends in turn; what they raised is theirs."""
    writers = [Writer(store, call, {**MANY, **(options or {})}) for call in calls]
    for letter in script:
        writers["ABCDE".index(letter)].step()
    while not all(writer.done for writer in writers):
        for writer in writers:
            writer.step()
    return writers
