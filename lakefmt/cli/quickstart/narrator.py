"""Who tells the quickstart's story: to a person, or to nobody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lakefmt.cli.quickstart.checks import Check

if TYPE_CHECKING:
    from lakefmt.table import Table

__all__ = ["Narrator", "Printed", "Silent"]


class Narrator(Protocol):
    """Takes the story as it happens."""

    def scene(self, title: str) -> None:
        """Begin a new scene."""

    def line(self, text: str) -> None:
        """Say something."""

    def check(self, check: Check) -> None:
        """Say what a judge said."""

    def draw(self, table: Table, path: Path, late: str) -> None:
        """Draw the timeline of the table and its files, those of the partition `late` one by one."""


class Silent:
    """Says nothing."""

    def scene(self, title: str) -> None:
        """Say nothing."""

    def line(self, text: str) -> None:
        """Say nothing."""

    def check(self, check: Check) -> None:
        """Say nothing."""

    def draw(self, table: Table, path: Path, late: str) -> None:
        """Draw nothing."""


class Printed:
    """Prints to standard output, in colour where that is a terminal."""

    def __init__(self) -> None:
        from lakefmt.cli.render import plain_console

        self._console = plain_console()

    def scene(self, title: str) -> None:
        """Print a heading."""
        self._say("")
        self._say(title, "bold")

    def line(self, text: str) -> None:
        """Print a line."""
        self._say(f"  {text}")

    def check(self, check: Check) -> None:
        """Print a verdict, in green or red."""
        self._say(f"  {check}", "green" if check.agrees else "bold red")

    def draw(self, table: Table, path: Path, late: str) -> None:
        """Print the timeline, then the directory, the files of the partition `late` one by one."""
        from lakefmt.cli.render import draw_directory, draw_timeline

        self.scene("the timeline")
        self._console.print(draw_timeline(table.timeline.entries))
        self.scene("the files on disk, those of the late month one by one")
        self._console.print(draw_directory(path, [".hoodie", late]))

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style or None, markup=False)
