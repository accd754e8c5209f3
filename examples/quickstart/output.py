"""What the quickstart prints: headings, lines, results of comparisons, the timeline and the files of the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text
from rich.tree import Tree

from examples.quickstart.comparison import Check
from lakefmt import Table
from lakefmt._core.cli.formatters import counted, draw_timeline, plain_console, printable, size_text

__all__ = ["Output", "draw_directory"]


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


def draw_directory(root: Path, opened: Sequence[str]) -> RenderableType:
    """Return a directory as a tree with sizes; folders outside `opened` show only their number of files.

    Args:
        root: a local directory.
        opened: folders whose files are listed, relative to `root`.
    """
    tree = Tree(Text(f"{root}  {_folder_size(root)}", "bold"), guide_style="dim")
    _add_folder(tree, root, root, frozenset(opened))
    return tree


def _add_folder(tree: Tree, folder: Path, root: Path, opened: frozenset[str]) -> None:
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
