"""`lakefmt upgrade`: a table becomes one of a newer version, never silently."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.progress import progress
from lakefmt.cli.results import say_json
from lakefmt.cli.units import printable

if TYPE_CHECKING:
    from lakefmt.write.upgrade_plan import UpgradePlan

__all__ = ["upgrade"]


@click.command(short_help="Turn a table into one of a newer version.")
@table_argument
@click.option("--to", "version", type=click.Choice(["8", "9"]), required=True, help="The table version wanted.")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be done, and end.")
@table_options
def upgrade(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    version: str,
    yes: bool,
    only_plan: bool,
) -> None:
    """Make TABLE one of a newer table version: the plan is shown, then you are asked. There is no way back.

    Programs that know only the old version cannot read the table afterwards. A metadata table is dropped with
    `--option hoodie.metadata.enable=false`.
    """
    from lakefmt.errors import StateError
    from lakefmt.write.upgrade import upgrade_table

    access = open_for(table, options, storage_options).access
    plan = upgrade_table(access, version, dry_run=True)
    if not as_json:
        title, *deeds = str(plan).split("\n")
        click.echo("\n".join([title, *(f"  {printable(deed)}" for deed in deeds)]))
    if only_plan or plan.is_empty:
        if as_json:
            say_json({"plan": _plan_as_json(plan), "done": False})
        return
    if not (yes or (sys.stdin.isatty() and click.confirm("Do it?", err=True))):
        raise StateError("nothing was upgraded: it takes your yes, or --yes")
    with progress("upgrade"):
        done = upgrade_table(access, version)
    if as_json:
        say_json({"plan": _plan_as_json(done), "done": True})
    else:
        click.echo(f"upgraded to version {done.target.value}")


def _plan_as_json(plan: UpgradePlan) -> dict[str, object]:
    from lakefmt.write.upgrade_plan import NEW_HISTORY

    return {
        "source": plan.source.value,
        "target": plan.target.value,
        "pending": [instant.time for instant in plan.pending],
        "drops_metadata_table": plan.drops_metadata_table,
        "stale": list(plan.stale),
        "moves": {move.source: move.target for move in plan.moves},
        "history": {f"{NEW_HISTORY}/{part.name}": len(part.instants) for part in plan.history},
        "properties": dict(plan.properties),
        "leftovers": list(plan.leftovers),
    }
