"""`lakefmt rollback`, `lakefmt savepoint` and `lakefmt restore` go back; `lakefmt upgrade` goes on to a newer table version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt._core.cli.confirm import dry_run_option, run_plan, unneeded_yes_option, yes_option
from lakefmt._core.cli.formatters import print_json, printable, result_as_json
from lakefmt._core.cli.options import open_for, table_argument, table_options

if TYPE_CHECKING:
    from lakefmt._core.table import Table
    from lakefmt._core.timeline.restore import RestorePlan
    from lakefmt._core.timeline.rollback import RollbackPlan
    from lakefmt._core.timeline.savepoint import Savepoint
    from lakefmt._core.undo.rollback import RollbackResult
    from lakefmt._core.upgrade.plan import UpgradePlan

__all__ = [
    "restore",
    "rollback",
    "savepoint",
    "upgrade",
]

_force_option = click.option(
    "--force", is_flag=True, help="Roll back a pending instant even if its heartbeat has not expired."
)


@click.command(short_help="Roll back an instant.")
@table_argument
@click.argument("instant")
@yes_option
@dry_run_option
@_force_option
@click.option(
    "--withdraw/--keep-plan",
    default=None,
    help="Whether to also remove the plan of a pending compaction or clustering. Default: only that of a clustering.",
)
@table_options
def rollback(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    instant: str,
    yes: bool,
    only_plan: bool,
    force: bool,
    withdraw: bool | None,
) -> None:
    """Roll back a pending INSTANT of TABLE, or its newest commit (`latest`).

    The plan is shown, then the command asks for confirmation.
    """
    from lakefmt._core.undo.rollback import plan_undo

    opened = open_for(table, options, storage_options)
    time = _instant_to_undo(opened, instant)
    plan = plan_undo(opened.client, time)
    result = run_plan(
        "rollback",
        plan,
        lambda: opened.rollback(time, force=force, withdraw=withdraw),
        as_json=as_json,
        only_plan=only_plan,
        asks=not yes,
        shown=lambda: {"plan": _rollback_as_json(plan)},
    )
    if result is not None:
        _print_rollback(plan, result, as_json)


def _instant_to_undo(table: Table, instant: str) -> str:
    return (table.snapshot().instant or instant) if instant == "latest" else instant


def _print_rollback(plan: RollbackPlan, result: RollbackResult, as_json: bool) -> None:
    if as_json:
        shown = {key: value for key, value in result_as_json(result).items() if key != "plan"}
        print_json({"plan": _rollback_as_json(plan), "result": shown})
    elif result.action == "rollback" and result.instant is not None:
        click.echo(f"rolled back {plan.target}: {plan.num_files} files deleted, by rollback {result.instant}")
    elif result.action == "rollback":
        click.echo(f"rolled back {plan.target}: {plan.num_files} files deleted; its plan is pending again")
    else:
        click.echo(f"{result.action} {plan.target}: {'plan removed' if result.instant is None else 'completed'}")


def _rollback_as_json(plan: RollbackPlan) -> dict[str, object]:
    return {
        "target": plan.target,
        "action": plan.action.value,
        "files": [name for names in plan.files.values() for name in names],
        "logs": [name for logs in plan.shared for name in logs.sizes],
    }


@click.group(short_help="Create, list and delete savepoints.")
def savepoint() -> None:
    """Create, list and delete savepoints. Cleans keep the files of a savepoint, and `lakefmt restore` can go back to it."""


@savepoint.command("create", short_help="Create a savepoint of a commit.")
@table_argument
@click.argument("instant", default="latest")
@click.option("--comment", default="", help="Comment to store in the savepoint.")
@click.option("--user", default="", help="User to store in the savepoint.")
@unneeded_yes_option
@dry_run_option
@table_options
def create_savepoint_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    instant: str,
    comment: str,
    user: str,
    only_plan: bool,
) -> None:
    """Create a savepoint of commit INSTANT of TABLE (default: `latest`). It lasts until it is deleted.

    Nothing is removed, so the command does not ask.
    """
    opened = open_for(table, options, storage_options)
    asked = None if instant == "latest" else instant
    plan = opened.savepoint(asked, comment=comment, user=user, dry_run=True)
    made = run_plan(
        "savepoint",
        plan,
        lambda: opened.savepoint(plan.instant, comment=comment, user=user),
        as_json=as_json,
        only_plan=only_plan,
        asks=False,
        shown=lambda: {"savepoint": _savepoint_as_json(plan), "done": False},
    )
    if made is None:
        return
    if as_json:
        print_json({"savepoint": _savepoint_as_json(made), "done": True})
    else:
        click.echo(f"savepoint {made.instant} created")


@savepoint.command("list", short_help="List savepoints.")
@table_argument
@table_options
def list_command(table: str, as_json: bool, options: Mapping[str, str], storage_options: Mapping[str, object]) -> None:
    """List the savepoints of TABLE, oldest commit first."""
    savepoints = open_for(table, options, storage_options).savepoints()
    if as_json:
        print_json([_savepoint_as_json(each) for each in savepoints])
        return
    for each in savepoints:
        click.echo(printable(str(each)))
    if not savepoints:
        click.echo("no savepoints")


@savepoint.command("delete", short_help="Delete a savepoint.")
@table_argument
@click.argument("instant")
@yes_option
@dry_run_option
@table_options
def delete_savepoint_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    instant: str,
    yes: bool,
    only_plan: bool,
) -> None:
    """Delete the savepoint of commit INSTANT of TABLE (`latest`: the newest). The next clean may remove its files."""
    from lakefmt.errors import InstantNotFound

    opened = open_for(table, options, storage_options)
    existing = opened.savepoints()
    chosen = next((each for each in reversed(existing) if instant in (each.instant, "latest")), None)
    if chosen is None:
        raise InstantNotFound(f"there is no savepoint of {instant}; `lakefmt savepoint list` shows all")
    run_plan(
        "savepoint",
        f"delete {chosen}",
        lambda: opened.delete_savepoint(chosen.instant),
        as_json=as_json,
        only_plan=only_plan,
        asks=not yes,
        shown=lambda: {"savepoint": _savepoint_as_json(chosen), "done": False},
    )
    if only_plan:
        return
    if as_json:
        print_json({"savepoint": _savepoint_as_json(chosen), "done": True})
    else:
        click.echo(f"savepoint {chosen.instant} deleted")


def _savepoint_as_json(kept: Savepoint) -> dict[str, object]:
    created = None if kept.created is None else kept.created.isoformat()
    return {
        "instant": kept.instant,
        "user": kept.user,
        "comment": kept.comment,
        "created": created,
        "files": list(kept.files),
    }


@click.command(short_help="Restore an older state.")
@table_argument
@click.argument("instant")
@yes_option
@dry_run_option
@_force_option
@table_options
def restore(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    instant: str,
    yes: bool,
    only_plan: bool,
    force: bool,
) -> None:
    """Restore TABLE to savepoint or commit INSTANT (`latest`: the newest savepoint). Later commits are rolled back for good.

    The plan is shown, then the command asks for confirmation.
    """
    opened = open_for(table, options, storage_options)
    if instant == "latest":
        instant = next((each.instant for each in reversed(opened.savepoints())), instant)
    plan = opened.restore(instant, dry_run=True).plan
    result = run_plan(
        "restore",
        plan,
        lambda: opened.restore(instant, force=force),
        as_json=as_json,
        only_plan=only_plan,
        asks=not yes,
        shown=lambda: {"plan": _restore_as_json(plan), "instant": None},
        is_empty=not plan.instants,
    )
    if result is None:
        return
    if as_json:
        print_json({"plan": _restore_as_json(result.plan), "instant": result.instant})
    else:
        click.echo(str(result))


def _restore_as_json(plan: RestorePlan) -> dict[str, object]:
    return {
        "target": plan.target,
        "savepoint": plan.is_savepoint,
        "instants": [i.time for i in plan.instants],
        "files": list(plan.paths),
    }


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
    from lakefmt._core.upgrade.run import upgrade_table

    client = open_for(table, options, storage_options).client
    plan = upgrade_table(client, version, dry_run=True)
    done = run_plan(
        "upgrade",
        plan,
        lambda: upgrade_table(client, version),
        as_json=as_json,
        only_plan=only_plan,
        asks=not yes,
        shown=lambda: {"plan": _upgrade_as_json(plan), "done": False},
        is_empty=plan.is_empty,
    )
    if done is None:
        return
    if as_json:
        print_json({"plan": _upgrade_as_json(done), "done": True})
    else:
        click.echo(f"upgraded to version {done.target.value}")


def _upgrade_as_json(plan: UpgradePlan) -> dict[str, object]:
    from lakefmt._core.upgrade.plan import NEW_HISTORY

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
