"""Reads the blocks of a page and runs them as a reader would: in order, in one folder, with one set of names.

* ```` ```python ```` blocks of a page share their names.
* ```` ```console ````, ``bash``, ``sh`` and ``shell`` blocks: each ``lakefmt …`` line is run (after a ``$`` where the
  block shows prompts; other lines are then output). ``make`` lines must name a target that exists. Any other command
  has to be marked.
* A block after ``<!-- not run: reason -->`` is not run, and the reason is required.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONSOLE = frozenset({"console", "bash", "sh", "shell"})
#: Commands that a reader types before there is a lakefmt; the tests stand where they lead to.
SETTING_UP = frozenset({"pip", "git", "cd", "uv"})
SECONDS_PER_COMMAND = 120

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w+-]*)[^\n]*$")
_NOT_RUN = re.compile(r"^\s*<!--\s*not run:\s*(?P<reason>.*?)\s*-->\s*$")
#: What only a shell understands, where no quotes are around it.
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\\\]*\"")
_OF_A_SHELL = re.compile(r"[|&;<>()$`*?\[~\"'\\\\]|^[A-Z_]+=")
_MAKE_TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


class PageError(AssertionError):
    """A block of a page cannot be run, or failed; the message names page and line."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line it begins at, and why it is not run (None: it is)."""

    language: str
    text: str
    line: int
    not_run: str | None = None

    @property
    def is_runnable(self) -> bool:
        """Whether this kind of block is run at all."""
        return self.language == "python" or self.language in CONSOLE


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a Markdown page in order."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    lines: list[str] = []
    begin, not_run = 0, None
    for number, line in enumerate(page.splitlines(), start=1):
        if opened is None:
            if (opened := _FENCE.match(line)) is not None:
                begin, lines = number + 1, []
            elif (marked := _NOT_RUN.match(line)) is not None:
                not_run = marked["reason"]
            elif line.strip():
                not_run = None
        elif line.strip() == opened["fence"]:
            found.append(Block(opened["language"].lower(), "\n".join(lines) + "\n", begin, not_run))
            opened, not_run = None, None
        else:
            lines.append(line.removeprefix(opened["indent"]))
    if opened is not None:
        raise PageError(f"line {begin - 1}: the block is never closed")
    return found


def commands(block: Block) -> list[str]:
    """Return the commands of a console block, continued lines joined, comments left out."""
    joined = re.sub(r"\s*\\\n\s*", " ", block.text).splitlines()
    prompted = any(line.startswith("$ ") for line in joined)
    rows = [line[2:] for line in joined if line.startswith("$ ")] if prompted else joined
    return [bare for row in rows if (bare := re.sub(r"(^|\s)#\s.*$", "", row).strip())]


class Page:
    """One page being read: a folder, one set of names, one way to call lakefmt."""

    def __init__(self, name: str, folder: Path, make_targets: frozenset[str]) -> None:
        self.name = name
        self.folder = folder
        self.make_targets = make_targets
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.did: list[str] = []
        self.has_called = False

    def run(self, page: str) -> None:
        """Run every block of `page`; the working directory must already be the page's folder."""
        for block in blocks(page):
            where = f"{self.name}:{block.line}"
            if not block.is_runnable:
                continue
            if block.not_run is not None:
                if len(block.not_run.split()) < 2:
                    raise PageError(f"{where}: a block is not run and gives no reason")
                self.did.append(f"{where} not run: {block.not_run}")
            elif block.language == "python":
                self._run_python(block, where)
            else:
                self._run_console(block, where)

    def _run_python(self, block: Block, where: str) -> None:
        # Empty lines in front make the line numbers of a traceback those of the page.
        code = compile("\n" * (block.line - 1) + block.text, self.name, "exec", dont_inherit=True)
        try:
            exec(code, self.names)  # the point of this runner: what the page shows is what runs
        except Exception as error:
            raise PageError(f"{where}: {type(error).__name__}: {error}") from error
        self.did.append(f"{where} python")

    def _run_console(self, block: Block, where: str) -> None:
        for command in commands(block):
            first = shlex.split(command, comments=True)[0]
            if first == "lakefmt":
                self._run_lakefmt(command, where)
            elif first == "make":
                self._check_make(command, where)
            elif first not in SETTING_UP:
                raise PageError(f"{where}: `{first}` is not run here: mark the block <!-- not run: reason -->")

    def _run_lakefmt(self, command: str, where: str) -> None:
        # The first command of a page is a process, as for its reader; a start costs more than most commands.
        in_this_process = self.has_called and not _OF_A_SHELL.search(_QUOTED.sub("", command))
        status, said = _call_here(command) if in_this_process else self._call_in_shell(command)
        if status:
            raise PageError(f"{where}: `{command}` ended with {status}:\n{said}")
        self.has_called = True
        self.did.append(f"{where} {command}")

    def _call_in_shell(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": f"{_shim_folder(self.folder)}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS_PER_COMMAND,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def _check_make(self, command: str, where: str) -> None:
        named = [
            word for word in shlex.split(command, comments=True)[1:] if "=" not in word and not word.startswith("-")
        ]
        unknown = sorted(set(named) - self.make_targets)
        if unknown:
            raise PageError(f"{where}: the Makefile has no target {', '.join(unknown)}")
        self.did.append(f"{where} {command} (target exists)")


def _call_here(command: str) -> tuple[int, str]:
    from click.testing import CliRunner

    from lakefmt._core.cli import main

    with warnings.catch_warnings():
        warnings.simplefilter("default")  # of pytest they would be errors
        done = CliRunner().invoke(main, shlex.split(command, comments=True)[1:])
    return done.exit_code, done.output


def _shim_folder(folder: Path) -> Path:
    """Return a folder with a `lakefmt` command that runs the lakefmt of this interpreter."""
    shims = folder.parent / (folder.name + "-bin")
    script = shims / "lakefmt"
    if not script.exists():
        shims.mkdir(parents=True, exist_ok=True)
        call = "import sys; from lakefmt._core.cli import main; sys.exit(main())"
        script.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c '{call}' \"$@\"\n", "utf-8")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return shims


def make_targets(makefile: str) -> frozenset[str]:
    """Return the targets that a Makefile defines."""
    return frozenset(_MAKE_TARGET.findall(makefile))


def pages(root: Path) -> Iterator[Path]:
    """Yield the pages whose blocks are run: those at the root and every chapter."""
    yield from sorted(path for path in root.glob("*.md") if path.name != "CHANGELOG.md")
    yield from sorted((root / "docs").rglob("*.md"))
