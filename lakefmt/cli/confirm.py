"""Show the plan of a command, ask for confirmation where data is removed, and run it (effects)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from lakefmt.cli.formatters import printable
from lakefmt.cli.progress import progress
from lakefmt.cli.results import print_json

__all__ = ["confirm", "dry_run_option", "run_plan", "show_plan", "unneeded_yes_option", "yes_option"]

_Result = TypeVar("_Result")

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
#: For commands that remove nothing and so do not ask: scripts may pass --yes to every command.
unneeded_yes_option = click.option(
    "--yes", "-y", is_flag=True, hidden=True, expose_value=False, help="Accepted; the command does not ask."
)
dry_run_option = click.option(
    "--plan", "--dry-run", "only_plan", is_flag=True, help="Show the plan and exit; nothing is changed."
)


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


def run_plan(
    name: str,
    plan: object,
    run: Callable[[], _Result],
    *,
    as_json: bool,
    only_plan: bool,
    asks: bool,
    shown: Callable[[], dict[str, object]],
    is_empty: bool = False,
) -> _Result | None:
    """Show a plan, ask for confirmation, and run it; None if nothing was run.

    Args:
        name: the title of the progress bar.
        plan: anything whose text is the plan, one step per line.
        run: runs the plan.
        as_json: print nothing for people.
        only_plan: exit after the plan.
        asks: ask before running; False with ``--yes``, and for commands that remove nothing.
        shown: returns what is printed as JSON if nothing was run.
        is_empty: the plan has no steps.

    Raises:
        StateError: the user did not confirm.
    """
    if not as_json:
        show_plan(plan)
    if only_plan or is_empty:
        if as_json:
            print_json(shown())
        return None
    if asks:
        confirm()
    with progress(name):
        return run()
