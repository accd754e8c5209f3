"""The live view of the replay: bars that are drawn anew on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

__all__ = ["View"]

_LINE_SECONDS = 5.0
_BAR_WIDTH = 36
_BLOCKS = "▁▂▃▄▅▆▇█"
#: Seconds of one block of the line of rates.
_RATE_SECONDS = 1.0


class View:
    """Shows how many events are applied, durable, visible and committed, and how far the follower is behind."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(quiet=quiet)
        self._live = Live(console=self._console, auto_refresh=False) if sys.stdout.isatty() and not quiet else None
        self._next_line = 0.0
        self._said: list[str] = []
        self._times: list[float] = []
        self._applied: list[int] = []

    def show(
        self, seconds: float, total: int, writer: Mapping[str, int], follower: Mapping[str, int], visible: int
    ) -> None:
        """Show the numbers of now.

        Args:
            seconds: since the beginning.
            total: all events; each flight has two.
            writer: its note.
            follower: its note.
            visible: flights that a reader sees who asks for uncommitted rows, too.
        """
        applied, durable, committed = (writer.get(name, 0) for name in ("applied", "durable", "committed"))
        self._times.append(seconds)
        self._applied.append(applied)
        followed = f"{follower.get('inserted', 0):,} new, {follower.get('updated', 0):,} changed"
        if self._live is not None:
            self._live.update(self._frame(seconds, total, writer, followed, visible), refresh=True)
        elif seconds >= self._next_line:
            self._next_line = seconds + _LINE_SECONDS
            self._print(
                f"{seconds:5.1f} s  applied {applied:,} of {total:,} events, durable {durable:,}, visible {visible:,} flights, "
                f"committed {committed:,} in {writer.get('commits', 0):,} commits, followed {followed}"
            )

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self._said.append(text)
        if self._live is None:
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)

    def _frame(
        self, seconds: float, total: int, writer: Mapping[str, int], followed: str, visible: int
    ) -> RenderableType:
        applied, durable, committed = (writer.get(name, 0) for name in ("applied", "durable", "committed"))
        grid = Grid.grid(padding=(0, 2))
        rows = (
            ("applied", applied, total, f"{applied:,} of {total:,} events", "cyan"),
            ("durable", durable, total, f"{durable:,}, {self._lag(durable)}", "blue"),
            ("visible", visible, total // 2, f"{visible:,} of {total // 2:,} flights", "magenta"),
            ("committed", committed, total, f"{committed:,}, {self._lag(committed)}", "green"),
        )
        for name, value, whole, text, colour in rows:
            bar = ProgressBar(
                total=whole or 1, completed=value, width=_BAR_WIDTH, complete_style=colour, finished_style=colour
            )
            grid.add_row(Text(name, "bold"), bar, text)
        grid.add_row(Text("followed", "bold"), Text(followed), "by a second process")
        grid.add_row(Text("events/s", "bold"), Text(_line_of(self._rates(), _BAR_WIDTH), "cyan"), self._rate_text())
        notes = [Text(f"✗ {text}", "bold red") for text in self._said]
        commits = writer.get("commits", 0)
        return Panel(
            Group(grid, *notes),
            title=f" {seconds:.1f} s ",
            title_align="left",
            subtitle=f" {commits:,} commits of this writer ",
            subtitle_align="right",
            width=min(100, self._console.width),
        )

    def _lag(self, value: int) -> str:
        """Return how long ago as many events were applied."""
        if not self._applied or value >= self._applied[-1]:
            return "no lag"
        place = bisect_right(self._applied, value)
        return f"{self._times[-1] - self._times[place]:.1f} s behind"

    def _rates(self) -> list[float]:
        """Return the events applied in each second."""
        rates, start = list[float](), 0
        for place, time in enumerate(self._times):
            if time - self._times[start] >= _RATE_SECONDS:
                rates.append(max(0, self._applied[place] - self._applied[start]) / (time - self._times[start]))
                start = place
        return rates

    def _rate_text(self) -> str:
        rates = self._rates()
        return f"{rates[-1]:,.0f} now, {max(rates):,.0f} at most" if rates else ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def _line_of(values: list[float], width: int) -> str:
    """Return values as a line of blocks, the newest ones on the right.

    Example:
        >>> _line_of([0.0, 1.0, 2.0], 5)
        '▁▄█'
    """
    most = max(values, default=0.0) or 1.0
    return "".join(_BLOCKS[int(value / most * (len(_BLOCKS) - 1) + 0.5)] for value in values[-width:])
