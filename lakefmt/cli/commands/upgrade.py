"""`lakefmt upgrade`: upgrade a table to a newer table version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import dry_run_option, run_plan, yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import print_json

if TYPE_CHECKING:
    from lakefmt.upgrade.plan import UpgradePlan

__all__ = ["upgrade"]


@click.command(short_help="Upgrade a table to a newer table version.")
@table_argument
@click.option("--to", "version", type=click.Choice(["8", "9"]), required=True, help="Target table version.")
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
    """Upgrade TABLE to a newer table version. There is no downgrade.

    Programs that support only the old version cannot read the table afterwards. The plan is shown, then the command asks
    for confirmation. A metadata table is made anew; `--option hoodie.metadata.enable=false` only deletes it.
    """
    from lakefmt.upgrade.run import upgrade_table

    client = open_for(table, options, storage_options).client
    plan = upgrade_table(client, version, dry_run=True)
    done = run_plan(
        "upgrade",
        plan,
        lambda: upgrade_table(client, version),
        as_json=as_json,
        only_plan=only_plan,
        asks=not yes,
        shown=lambda: {"plan": _plan_as_json(plan), "done": False},
        is_empty=plan.is_empty,
    )
    if done is None:
        return
    if as_json:
        print_json({"plan": _plan_as_json(done), "done": True})
    else:
        click.echo(f"upgraded to version {done.target.value}")


def _plan_as_json(plan: UpgradePlan) -> dict[str, object]:
    from lakefmt.upgrade.plan import NEW_HISTORY

    return {
        "source": plan.source.value,
        "target": plan.target.value,
        "pending": [instant.time for instant in plan.pending],
        "drops_metadata_table": plan.drops_metadata_table,
        "indexes": [request.partition for request in plan.indexes],
        "stale": list(plan.stale),
        "moves": {move.source: move.target for move in plan.moves},
        "history": {f"{NEW_HISTORY}/{part.name}": len(part.instants) for part in plan.history},
        "properties": dict(plan.properties),
        "leftovers": list(plan.leftovers),
    }
