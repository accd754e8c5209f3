"""What every command that carries out a plan does: show it, ask, run, say (effects)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from lakefmt.cli.formatters import printable
from lakefmt.cli.progress import progress
from lakefmt.cli.results import say_json

__all__ = ["carry_out_plan", "dry_run_option", "show_plan", "yes_option"]

_Result = TypeVar("_Result")

yes_option = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
dry_run_option = click.option(
    "--plan", "--dry-run", "only_plan", is_flag=True, help="Show what would be done, and end: nothing is touched."
)


def show_plan(plan: object) -> None:
    """Print a plan for a person: its title, and one indented line per deed."""
    title, *deeds = str(plan).split("\n")
    click.echo("\n".join([printable(title), *(f"  {printable(deed.strip())}" for deed in deeds)]))


def carry_out_plan(
    name: str,
    undone: str,
    plan: object,
    run: Callable[[], _Result],
    *,
    as_json: bool,
    only_plan: bool,
    yes: bool,
    shown: Callable[[], dict[str, object]],
    is_empty: bool = False,
) -> _Result | None:
    """Show a plan, ask, and carry it out; None when there was nothing to do, or only the plan was wanted.

    Args:
        name: what the progress bar says.
        undone: what did not happen without a yes, such as ``"cleaned"``.
        plan: prints as one readable text.
        run: carries it out.
        as_json: nothing for people is printed.
        only_plan: end after the plan.
        yes: do not ask.
        shown: what is printed as JSON when nothing was run.
        is_empty: there is nothing to do.

    Raises:
        StateError: nobody said yes.
    """
    from lakefmt.errors import StateError

    if not as_json:
        show_plan(plan)
    if only_plan or is_empty:
        if as_json:
            say_json(shown())
        return None
    if not (yes or (sys.stdin.isatty() and click.confirm("Do it?", err=True))):
        raise StateError(f"nothing was {undone}: it takes your yes, or --yes")
    with progress(name):
        return run()
