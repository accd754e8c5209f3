"""Render a table's timeline, file slices and directory for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakefmt.cli.formatters import counted, printable, size_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.tree import Tree

    from lakefmt.filegroups.model import FileSlice
    from lakefmt.read.timeline_format import TimelineEntry

__all__ = ["draw_directory", "draw_slices", "draw_timeline", "plain_console"]

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


def draw_directory(root: Path, opened: Sequence[str]) -> RenderableType:
    """Return a directory as a tree with sizes; folders outside `opened` show only their number of files.

    Args:
        root: a local directory.
        opened: folders whose files are listed, relative to `root`.
    """
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(f"{root}  {_folder_size(root)}", "bold"), guide_style="dim")
    _add_folder(tree, root, root, frozenset(opened))
    return tree


def _add_folder(tree: Tree, folder: Path, root: Path, opened: frozenset[str]) -> None:
    from rich.text import Text

    for path in sorted(folder.iterdir(), key=_by_kind_and_number):
        name = path.relative_to(root).as_posix()
        if not path.is_dir():
            tree.add(Text(f"{printable(path.name)}  {size_text(path.stat().st_size)}"))
            continue
        branch = tree.add(Text(f"{printable(path.name)}/  {_folder_size(path)}"))
        if name in opened:
            _add_folder(branch, path, root, opened)


def _by_kind_and_number(path: Path) -> tuple[bool, str, int, str]:
    """Folders first; month=2 before month=10."""
    head, _, tail = path.name.rpartition("=")
    return (not path.is_dir(), head, int(tail) if tail.isdecimal() else 0, path.name)


def _folder_size(folder: Path) -> str:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{counted(len(sizes), 'file')}, {size_text(sum(sizes))}" if sizes else "empty"
