"""Shows the plan of a command, asks for confirmation where data is removed, and shows a progress bar (effects).

The bar is on stderr, for commands that take more than a second.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lakefmt._core.cli.formatters import printable

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = [
    "confirm",
    "dry_run_option",
    "progress",
    "show_plan",
    "unneeded_yes_option",
    "yes_option",
]

_BAR_DELAY_SECONDS = 1.0
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
#: For commands that remove nothing and so do not ask: scripts may pass --yes to every command.
unneeded_yes_option = click.option(
    "--yes", "-y", is_flag=True, hidden=True, expose_value=False, help="Accepted; the command does not ask."
)
dry_run_option = click.option(
    "--plan", "--dry-run", "only_plan", is_flag=True, help="Show the plan and exit; nothing is changed."
)


class _ProgressBar:
    """Counts rows from the start; appears after `_BAR_DELAY_SECONDS`."""

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self._title, self._total, self._done, self._unit = title, total, 0, unit
        self._lock = threading.Lock()
        self._shown: Progress | None = None
        self._ended = False
        self._timer = threading.Timer(_BAR_DELAY_SECONDS, self._show)
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
    bar = _ProgressBar(title, total, unit)
    try:
        yield bar.advance
    finally:
        bar.end()


def show_plan(plan: object) -> None:
    """Print a plan: its title, then one indented line for each step."""
    title, *steps = str(plan).split("\n")
    click.echo("\n".join([printable(title), *(f"  {printable(step.strip())}" for step in steps)]))


def confirm() -> None:
    """Ask on the terminal whether to proceed.

    Raises:
        StateError: the answer is no, or there is no terminal to ask on.
    """
    from lakefmt.errors import StateError

    if not (sys.stdin.isatty() and click.confirm("Proceed?", err=True)):
        raise StateError("aborted, nothing was changed: confirm, or pass --yes")
