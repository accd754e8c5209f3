"""What the quickstart prints: headings, lines, results of comparisons, the timeline and the files of the table."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, RenderableType

from examples.quickstart.comparison import Check
from lakefmt.cli.render import draw_directory, draw_timeline, plain_console
from lakefmt.table import Table

__all__ = ["Output"]


class Output:
    """Prints to standard output, in colour where that is a terminal; or nothing when it is `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console: Console | None = None if quiet else plain_console()

    def heading(self, title: str) -> None:
        """Print the title of a step."""
        self._print("")
        self._print(title, "bold")

    def line(self, text: str) -> None:
        """Print a line of a step."""
        self._print(f"  {text}")

    def check(self, check: Check) -> None:
        """Print the result of a comparison, in green or red."""
        self._print(f"  {check}", "green" if check.agrees else "bold red")

    def draw(self, table: Table, path: Path, late: str) -> None:
        """Print the timeline, then the directory with the files of the partition `late`."""
        self.heading("the timeline")
        self._print(draw_timeline(table.timeline.entries))
        self.heading("the files on disk, those of the late month one by one")
        self._print(draw_directory(path, [".hoodie", late]))

    def _print(self, content: RenderableType, style: str | None = None) -> None:
        if self._console is not None:
            self._console.print(content, style=style, markup=False)
