"""`lakefmt upgrade`: a table becomes one of a newer version, never silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import carry_out_plan, dry_run_option, yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import say_json

if TYPE_CHECKING:
    from lakefmt.upgrade.plan import UpgradePlan

__all__ = ["upgrade"]


@click.command(short_help="Turn a table into one of a newer version.")
@table_argument
@click.option("--to", "version", type=click.Choice(["8", "9"]), required=True, help="The table version wanted.")
@yes_option
@dry_run_option
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
    from lakefmt.upgrade.run import upgrade_table

    client = open_for(table, options, storage_options).client
    plan = upgrade_table(client, version, dry_run=True)
    done = carry_out_plan(
        "upgrade",
        "upgraded",
        plan,
        lambda: upgrade_table(client, version),
        as_json=as_json,
        only_plan=only_plan,
        yes=yes,
        shown=lambda: {"plan": _plan_as_json(plan), "done": False},
        is_empty=plan.is_empty,
    )
    if done is None:
        return
    if as_json:
        say_json({"plan": _plan_as_json(done), "done": True})
    else:
        click.echo(f"upgraded to version {done.target.value}")


def _plan_as_json(plan: UpgradePlan) -> dict[str, object]:
    from lakefmt.upgrade.plan import NEW_HISTORY

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
