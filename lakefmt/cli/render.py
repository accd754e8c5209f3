"""Render a table's timeline and file slices for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lakefmt.cli.formatters import counted, printable, size_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lakefmt.filegroups.model import FileSlice
    from lakefmt.read.timeline_format import TimelineEntry

__all__ = ["draw_slices", "draw_timeline", "plain_console"]

_WIDTH_WITHOUT_TERMINAL = 400
_COLOURS = {"○": "yellow", "◐": "yellow", "●": "green", "✗": "red"}


def plain_console() -> Console:
    """Return a console on standard output without highlighting; without a terminal it does not wrap lines."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, emoji=False, width=None if is_terminal else _WIDTH_WITHOUT_TERMINAL)


def draw_timeline(entries: Sequence[TimelineEntry], *, titles: bool = True) -> RenderableType:
    """Return the timeline as one line per instant, oldest first, as ``print(table.timeline)`` prints it."""
    from rich.text import Text

    from lakefmt.read.timeline_format import draw_lines

    drawn = Text(no_wrap=True, overflow="ellipsis")
    for number, line in enumerate(draw_lines(entries, titles=titles)):
        colour = _COLOURS.get(line[:1], "dim" if line[:1] in " │" else "")
        drawn.append("\n" if number else "")
        drawn.append(line[:1], colour)
        drawn.append(line[1:], "dim" if line.startswith(" ") else "")
    return drawn


def draw_slices(root: str, slices: Iterable[FileSlice]) -> RenderableType:
    """Return the latest file slices as a tree of partitions and file groups with their sizes."""
    from rich.text import Text
    from rich.tree import Tree

    grouped: dict[str, list[FileSlice]] = {}
    for file_slice in slices:
        grouped.setdefault(file_slice.partition, []).append(file_slice)
    total = sum(file_slice.size_bytes for members in grouped.values() for file_slice in members)
    tree = Tree(Text(f"{root}  {size_text(total)}", "bold"), guide_style="dim")
    for partition, members in sorted(grouped.items()):
        size = size_text(sum(file_slice.size_bytes for file_slice in members))
        branch = tree.add(
            Text(f"{printable(partition) or '(no partitions)'}  {counted(len(members), 'file group')}, {size}")
        )
        for file_slice in members:
            logs = f", {counted(len(file_slice.logs), 'log file')}" if file_slice.logs else ""
            branch.add(
                Text(f"{printable(file_slice.file_id)}  {file_slice.instant}  {size_text(file_slice.size_bytes)}{logs}")
            )
    return tree
