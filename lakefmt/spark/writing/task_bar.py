"""What a write does, on the standard error stream: a line for each step, and a bar of its tasks (effects).

The bar is for a terminal or a notebook, and goes when its step ends; elsewhere there are the lines alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

__all__ = ["SilentSteps", "WriteSteps", "count_tasks"]

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
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.say(text)
        console = self._console or Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as shown:
            bar = shown.add_task(f"lakefmt: {text}", total=None)
            context = getattr(spark, "_sc", None)
            if context is None:
                yield
                return
            with _watched(context.statusTracker(), shown, bar, self._poll_seconds):
                yield


def count_tasks(tracker: Any, others: frozenset[int], ended: dict[int, int]) -> tuple[int, int]:
    """Return how many tasks of Spark's stages are done, and how many there are.

    Args:
        tracker: Spark's status tracker.
        others: stages that ran before, which are not counted; those that other threads begin meanwhile are.
        ended: the tasks of each stage that was seen, which gets those that run; a stage that runs no more has ended.
    """
    done, running = 0, set()
    for stage in tracker.getActiveStageIds():
        info = None if stage in others else tracker.getStageInfo(stage)
        if info is not None:
            running.add(stage)
            ended[stage] = info.numTasks
            done += info.numCompletedTasks
    done += sum(tasks for stage, tasks in ended.items() if stage not in running)
    return done, sum(ended.values())


@contextmanager
def _watched(tracker: Any, shown: Any, bar: Any, poll_seconds: float) -> Iterator[None]:
    """Renew a bar while the block runs, in a thread."""
    others, ended, is_over = frozenset(tracker.getActiveStageIds()), dict[int, int](), Event()

    def renew() -> None:
        while not is_over.wait(poll_seconds):
            try:
                done, tasks = count_tasks(tracker, others, ended)
            except Exception:  # noqa: BLE001 - the session may end meanwhile; what is lost is a bar
                return
            if tasks:
                shown.update(bar, completed=done, total=tasks)

    thread = Thread(target=renew, name="lakefmt-task-bar", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
