"""A progress bar on stderr for commands that take more than a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["progress"]

_DELAY_SECONDS = 1.0


class _Bar:
    """Counts rows from the start; appears after `_DELAY_SECONDS`."""

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self._title, self._total, self._done, self._unit = title, total, 0, unit
        self._lock = threading.Lock()
        self._shown: Progress | None = None
        self._ended = False
        self._timer = threading.Timer(_DELAY_SECONDS, self._show)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, amount: int) -> None:
        """Count `amount` more."""
        with self._lock:
            self._done += amount
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], completed=self._done)

    def end(self) -> None:
        """Remove the bar."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._shown is not None:
                self._shown.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *((BarColumn(),) if self._total else ()),
            TextColumn(f"{{task.completed:,}} {self._unit}"),
            TimeElapsedColumn(),
        )
        with self._lock:
            if self._ended:
                return
            self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
            self._shown.add_task(self._title, total=self._total, completed=self._done)
            self._shown.start()


@contextmanager
def progress(title: str, total: int | None = None, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs, if stderr is a terminal; yields a function that counts rows.

    Args:
        title: text beside the bar.
        total: number of rows, if known.
        unit: what is counted, if not rows.
    """
    if not sys.stderr.isatty():
        yield lambda _amount: None
        return
    bar = _Bar(title, total, unit)
    try:
        yield bar.advance
    finally:
        bar.end()
