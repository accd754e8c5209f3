"""`lakefmt rollback`, `lakefmt savepoint` and `lakefmt restore`: undoing and keeping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import carry_out_plan, dry_run_option, yes_option
from lakefmt.cli.formatters import printable
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import result_as_json, say_json

if TYPE_CHECKING:
    from lakefmt.table import Table
    from lakefmt.timeline.restore import RestorePlan
    from lakefmt.timeline.rollback import RollbackPlan
    from lakefmt.timeline.savepoint import Savepoint
    from lakefmt.undo.rollback import RollbackResult

__all__ = ["restore", "rollback", "savepoint"]

_force_option = click.option(
    "--force", is_flag=True, help="Also when the writer of a pending instant may still be alive."
)


@click.command(short_help="Undo an instant.")
@table_argument
@click.argument("instant")
@yes_option
@dry_run_option
@_force_option
@click.option(
    "--withdraw/--keep-plan",
    default=None,
    help="Whether the plan of a pending compaction or clustering goes, too. Default: a clustering's does.",
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
    """Undo a pending INSTANT of TABLE, or its newest commit (`latest`): the plan is shown, then you are asked."""
    from lakefmt.undo.rollback import plan_undo

    opened = open_for(table, options, storage_options)
    time = _commit(opened, instant)
    plan = plan_undo(opened.client, time)
    result = carry_out_plan(
        "rollback",
        "rolled back",
        plan,
        lambda: opened.rollback(time, force=force, withdraw=withdraw),
        as_json=as_json,
        only_plan=only_plan,
        yes=yes,
        shown=lambda: {"plan": _rollback_as_json(plan)},
    )
    if result is not None:
        _say_rollback(plan, result, as_json)


def _commit(table: Table, instant: str) -> str:
    return (table.snapshot().instant or instant) if instant == "latest" else instant


def _say_rollback(plan: RollbackPlan, result: RollbackResult, as_json: bool) -> None:
    if as_json:
        said = {key: value for key, value in result_as_json(result).items() if key != "plan"}
        say_json({"plan": _rollback_as_json(plan), "result": said})
    elif result.action == "rollback" and result.instant is not None:
        click.echo(f"rolled back {plan.target}: {plan.num_files} files deleted, by rollback {result.instant}")
    elif result.action == "rollback":
        click.echo(f"rolled back {plan.target}: {plan.num_files} files deleted; its plan waits again")
    else:
        click.echo(f"{result.action} {plan.target} is {'withdrawn' if result.instant is None else 'finished'}")


def _rollback_as_json(plan: RollbackPlan) -> dict[str, object]:
    return {
        "target": plan.target,
        "action": plan.action.value,
        "files": [name for names in plan.files.values() for name in names],
        "logs": [name for logs in plan.shared for name in logs.sizes],
    }


@click.group(short_help="Keep the state of a commit; list and delete what is kept.")
def savepoint() -> None:
    """Keep the state of a commit: cleans leave its files alone, and `lakefmt restore` can go back to it."""


@savepoint.command(short_help="Keep the state of a commit.")
@table_argument
@click.argument("instant", default="latest")
@click.option("--comment", default="", help="Why; kept in the savepoint.")
@click.option("--user", default="", help="Who asks for it; kept in the savepoint.")
@yes_option
@dry_run_option
@table_options
def create(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    instant: str,
    comment: str,
    user: str,
    yes: bool,
    only_plan: bool,
) -> None:
    """Keep the state of commit INSTANT of TABLE (`latest`, unless given) until its savepoint is deleted."""
    opened = open_for(table, options, storage_options)
    asked = None if instant == "latest" else instant
    plan = opened.savepoint(asked, comment=comment, user=user, dry_run=True)
    made = carry_out_plan(
        "savepoint",
        "kept",
        plan,
        lambda: opened.savepoint(plan.instant, comment=comment, user=user),
        as_json=as_json,
        only_plan=only_plan,
        yes=yes,
        shown=lambda: {"savepoint": _savepoint_as_json(plan), "done": False},
    )
    if made is None:
        return
    if as_json:
        say_json({"savepoint": _savepoint_as_json(made), "done": True})
    else:
        click.echo(f"{made.instant} is kept")


@savepoint.command("list", short_help="Show what is kept.")
@table_argument
@table_options
def list_them(table: str, as_json: bool, options: Mapping[str, str], storage_options: Mapping[str, object]) -> None:
    """Show the savepoints of TABLE, oldest commit first."""
    found = open_for(table, options, storage_options).savepoints()
    if as_json:
        say_json([_savepoint_as_json(one) for one in found])
        return
    for one in found:
        click.echo(printable(str(one)))
    if not found:
        click.echo("no savepoints")


@savepoint.command(short_help="Keep a state no longer.")
@table_argument
@click.argument("instant")
@yes_option
@dry_run_option
@table_options
def delete(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    instant: str,
    yes: bool,
    only_plan: bool,
) -> None:
    """Delete the savepoint of commit INSTANT of TABLE (`latest`: the newest): the next clean may take its files."""
    from lakefmt.errors import InstantNotFound

    opened = open_for(table, options, storage_options)
    there = opened.savepoints()
    found = next((one for one in reversed(there) if instant in (one.instant, "latest")), None)
    if found is None:
        raise InstantNotFound(f"no savepoint keeps {instant}; `lakefmt savepoint list` shows those there are")
    carry_out_plan(
        "savepoint",
        "deleted",
        f"delete {found}",
        lambda: opened.delete_savepoint(found.instant),
        as_json=as_json,
        only_plan=only_plan,
        yes=yes,
        shown=lambda: {"savepoint": _savepoint_as_json(found), "done": False},
    )
    if only_plan:
        return
    if as_json:
        say_json({"savepoint": _savepoint_as_json(found), "done": True})
    else:
        click.echo(f"{found.instant} is kept no longer")


def _savepoint_as_json(one: Savepoint) -> dict[str, object]:
    created = None if one.created is None else one.created.isoformat()
    return {
        "instant": one.instant,
        "user": one.user,
        "comment": one.comment,
        "created": created,
        "files": list(one.files),
    }


@click.command(short_help="Bring an older state back.")
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
    """Bring the state of a savepoint or commit INSTANT of TABLE back: every later commit is undone for good.

    The plan is shown, then you are asked. `latest` is the newest savepoint.
    """
    opened = open_for(table, options, storage_options)
    if instant == "latest":
        instant = next((one.instant for one in reversed(opened.savepoints())), instant)
    plan = opened.restore(instant, dry_run=True).plan
    result = carry_out_plan(
        "restore",
        "restored",
        plan,
        lambda: opened.restore(instant, force=force),
        as_json=as_json,
        only_plan=only_plan,
        yes=yes,
        shown=lambda: {"plan": _restore_as_json(plan), "instant": None},
        is_empty=not plan.instants,
    )
    if result is None:
        return
    if as_json:
        say_json({"plan": _restore_as_json(result.plan), "instant": result.instant})
    else:
        click.echo(str(result))


def _restore_as_json(plan: RestorePlan) -> dict[str, object]:
    return {
        "target": plan.target,
        "savepoint": plan.is_savepoint,
        "instants": [i.time for i in plan.instants],
        "files": list(plan.paths),
    }
