"""The live view of the replay: a table that is drawn anew on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

__all__ = ["View"]

_LINE_SECONDS = 5.0


class View:
    """Shows how many events are applied, durable, visible and committed, and how far the follower is behind."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(quiet=quiet)
        self._live = Live(console=self._console, auto_refresh=False) if sys.stdout.isatty() and not quiet else None
        self._next_line = 0.0

    def show(
        self, seconds: float, total: int, writer: Mapping[str, int], follower: Mapping[str, int], visible: int
    ) -> None:
        """Show the numbers of now.

        Args:
            seconds: since the beginning.
            total: all events.
            writer: its note.
            follower: its note.
            visible: flights that a reader sees who asks for uncommitted rows, too.
        """
        applied, durable, committed = (writer.get(name, 0) for name in ("applied", "durable", "committed"))
        seen = follower.get("inserted", 0) + follower.get("updated", 0)
        numbers = {
            "applied": f"{applied:,} of {total:,} events",
            "durable": f"{durable:,}",
            "visible": f"{visible:,} flights",
            "committed": f"{committed:,} in {writer.get('commits', 0):,} commits",
            "not committed": f"{applied - committed:,}",
            "followed": f"{follower.get('inserted', 0):,} new, {follower.get('updated', 0):,} changed",
        }
        if self._live is not None:
            self._live.update(_grid(seconds, numbers), refresh=True)
        elif seconds >= self._next_line:
            self._next_line = seconds + _LINE_SECONDS
            self.say(
                f"{seconds:5.1f} s  "
                + ", ".join(f"{name} {value}" for name, value in numbers.items() if value)
                + ("" if seen else " (nothing yet)")
            )

    def say(self, text: str) -> None:
        """Print a line of its own."""
        self._console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def _grid(seconds: float, numbers: Mapping[str, str]) -> Grid:
    grid = Grid(show_header=False, box=None, title=f"{seconds:.1f} s", title_justify="left")
    for name, value in numbers.items():
        grid.add_row(f"  {name}", value)
    return grid
