"""`lakefmt rollback`, `lakefmt savepoint` and `lakefmt restore` go back; `lakefmt upgrade` goes on to a newer table version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt._core.cli.formatters import print_json, printable, result_as_json
from lakefmt._core.cli.options import open_for, table_argument, table_options
from lakefmt._core.cli.plans import PlannedCall, plan_as_json, planned
from lakefmt.errors import InstantNotFound

if TYPE_CHECKING:
    from lakefmt._core.table import Table
    from lakefmt._core.timeline.rollback import RollbackPlan
    from lakefmt._core.undo import RollbackResult

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
@planned(asks=True)
@click.argument("instant")
@_force_option
@click.option(
    "--withdraw/--keep-plan",
    default=None,
    help="Whether to also remove the plan of a pending compaction or clustering. Default: only that of a clustering.",
)
def rollback(call: PlannedCall, instant: str, force: bool, withdraw: bool | None) -> None:
    """Roll back a pending INSTANT of TABLE, or its newest commit (`latest`).

    The plan is shown, then the command asks for confirmation.
    """
    from lakefmt._core.undo import plan_undo

    time = _instant_to_undo(call.table, instant)
    plan = plan_undo(call.table.client, time)
    call.run(
        plan,
        lambda: call.table.rollback(time, force=force, withdraw=withdraw),
        planned=lambda _: plan,
        undone={},
        done=lambda result: {"result": {key: value for key, value in result_as_json(result).items() if key != "plan"}},
        says=lambda result: _rollback_text(plan, result),
    )


def _instant_to_undo(table: Table, instant: str) -> str:
    return (table.snapshot().instant or instant) if instant == "latest" else instant


def _rollback_text(plan: RollbackPlan, result: RollbackResult) -> str:
    if result.action == "rollback" and result.instant is not None:
        return f"rolled back {plan.target}: {plan.num_files} files deleted, by rollback {result.instant}"
    if result.action == "rollback":
        return f"rolled back {plan.target}: {plan.num_files} files deleted; its plan is pending again"
    return f"{result.action} {plan.target}: {'plan removed' if result.instant is None else 'completed'}"


@click.group(short_help="Create, list and delete savepoints.")
def savepoint() -> None:
    """Create, list and delete savepoints. Cleans keep the files of a savepoint, and `lakefmt restore` can go back to it."""


@savepoint.command("create", short_help="Create a savepoint of a commit.")
@planned(asks=False)
@click.argument("instant", default="latest")
@click.option("--comment", default="", help="Comment to store in the savepoint.")
@click.option("--user", default="", help="User to store in the savepoint.")
def create_savepoint_command(call: PlannedCall, instant: str, comment: str, user: str) -> None:
    """Create a savepoint of commit INSTANT of TABLE (default: `latest`). It lasts until it is deleted.

    Nothing is removed, so the command does not ask.
    """
    requested_instant = None if instant == "latest" else instant
    plan = call.table.savepoint(requested_instant, comment=comment, user=user, dry_run=True)
    call.run(
        plan,
        lambda: call.table.savepoint(plan.instant, comment=comment, user=user),
        key="savepoint",
        undone={"done": False},
        done=lambda _: {"done": True},
        says=lambda new_savepoint: f"savepoint {new_savepoint.instant} created",
    )


@savepoint.command("list", short_help="List savepoints.")
@table_argument
@table_options
def list_command(table: str, as_json: bool, options: Mapping[str, str], storage_options: Mapping[str, object]) -> None:
    """List the savepoints of TABLE, oldest commit first."""
    savepoints = open_for(table, options, storage_options).savepoints()
    if as_json:
        print_json([plan_as_json(each) for each in savepoints])
        return
    for each in savepoints:
        click.echo(printable(str(each)))
    if not savepoints:
        click.echo("no savepoints")


@savepoint.command("delete", short_help="Delete a savepoint.")
@planned(asks=True)
@click.argument("instant")
def delete_savepoint_command(call: PlannedCall, instant: str) -> None:
    """Delete the savepoint of commit INSTANT of TABLE (`latest`: the newest). The next clean may remove its files."""
    existing = call.table.savepoints()
    savepoint_to_delete = next((each for each in reversed(existing) if instant in (each.instant, "latest")), None)
    if savepoint_to_delete is None:
        raise InstantNotFound(f"there is no savepoint of {instant}; `lakefmt savepoint list` shows all")
    call.run(
        savepoint_to_delete,
        lambda: call.table.delete_savepoint(savepoint_to_delete.instant),
        planned=lambda _: savepoint_to_delete,
        key="savepoint",
        shown=f"delete {savepoint_to_delete}",
        undone={"done": False},
        done=lambda _: {"done": True},
        says=lambda _: f"savepoint {savepoint_to_delete.instant} deleted",
    )


@click.command(short_help="Restore an older state.")
@planned(asks=True)
@click.argument("instant")
@_force_option
def restore(call: PlannedCall, instant: str, force: bool) -> None:
    """Restore TABLE to savepoint or commit INSTANT (`latest`: the newest savepoint). Later commits are rolled back for good.

    The plan is shown, then the command asks for confirmation.
    """
    if instant == "latest":
        instant = next((each.instant for each in reversed(call.table.savepoints())), instant)
    plan = call.table.restore(instant, dry_run=True).plan
    call.run(
        plan,
        lambda: call.table.restore(instant, force=force),
        undone={"instant": None},
        done=lambda result: {"instant": result.instant},
        is_empty=not plan.instants,
    )


@click.command(short_help="Upgrade a table to a newer table version.")
@planned(asks=True)
@click.option("--to", "version", type=click.Choice(["8", "9"]), required=True, help="Target table version.")
def upgrade(call: PlannedCall, version: str) -> None:
    """Upgrade TABLE to a newer table version. There is no downgrade.

    Programs that support only the old version cannot read the table afterwards. The plan is shown, then the command asks
    for confirmation. A metadata table is made anew; `--option hoodie.metadata.enable=false` only deletes it.
    """
    plan = call.table.upgrade(int(version), dry_run=True)
    call.run(
        plan,
        lambda: call.table.upgrade(int(version)),
        undone={"done": False},
        done=lambda _: {"done": True},
        says=lambda result: f"upgraded to version {result.target.value}",
        is_empty=plan.is_empty,
    )
