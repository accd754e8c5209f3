"""`lakefmt vacuum`: remove files that nothing needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import dry_run_option, run_plan, yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import print_json

if TYPE_CHECKING:
    from lakefmt.check.vacuum import VacuumPlan

__all__ = ["vacuum"]


@click.command(short_help="Remove files that nothing needs.")
@table_argument
@click.option("--orphans", is_flag=True, help="Remove orphan files: what failed writes left. Has to be said.")
@click.option(
    "--older-than",
    default="1d",
    show_default=True,
    metavar="AGE",
    help="Least age of a file: seconds, or 90m, 12h, 1d.",
)
@yes_option
@dry_run_option
@table_options
def vacuum(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    orphans: bool,
    older_than: str,
    yes: bool,
    only_plan: bool,
) -> None:
    """Remove files of TABLE that failed writes and dead processes left, and that nothing names.

    Kept is what commits of the active and archived timeline, the metadata table, savepoints, tags, pending instants, saved
    writes and uncommitted stream segments name. When any of these cannot be read, nothing is removed. The plan is shown,
    then the command asks for confirmation.
    """
    if not orphans:
        raise click.UsageError("say --orphans: vacuum removes nothing else")
    opened = open_for(table, options, storage_options)
    plan = opened.vacuum(orphans=True, older_than=older_than, dry_run=True).plan
    result = run_plan(
        "vacuum",
        plan,
        lambda: opened.vacuum(orphans=True, older_than=older_than),
        as_json=as_json,
        only_plan=only_plan,
        asks=not yes,
        shown=lambda: {"plan": _plan_as_json(plan), "deleted": None},
        is_empty=not plan.items,
    )
    if result is None:
        return
    if as_json:
        print_json({"plan": _plan_as_json(result.plan), "deleted": result.files_deleted})
    else:
        click.echo(str(result))


def _plan_as_json(plan: VacuumPlan) -> dict[str, object]:
    files = [{"path": item.path, "bytes": item.size, "why": item.why} for item in plan.items]
    return {"files": files, "bytes": plan.num_bytes, "younger": plan.younger}
