"""`lakefmt check` and `vacuum`, `rollback`, `savepoint`, `restore` and `upgrade`: find damage and repair it, go back, go on.

`check --repair` repairs a table; `vacuum` removes files that nothing needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt._core.cli.formatters import print_json, print_lines, printable, result_as_json
from lakefmt._core.cli.options import Partition, open_for, table_argument, table_options
from lakefmt._core.cli.plans import PlannedCall, confirm, plan_as_json, planned, progress
from lakefmt.errors import InstantNotFound

if TYPE_CHECKING:
    from lakefmt._core.check.findings import CheckReport, Finding, Step
    from lakefmt._core.filegroups.table_client import TableClient
    from lakefmt._core.table import Table
    from lakefmt._core.timeline.rollback import RollbackPlan
    from lakefmt._core.undo import RollbackResult

__all__ = [
    "check",
    "restore",
    "rollback",
    "savepoint",
    "upgrade",
    "vacuum",
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


@click.command(short_help="Find damage, and repair it.")
@table_argument
@click.option(
    "--full", is_flag=True, help="Also read the key columns: bloom filters, key ranges, duplicate keys, partitions."
)
@click.option(
    "--partition",
    "partitions",
    type=Partition(),
    multiple=True,
    metavar="PARTITION",
    help="Only this partition: path, value or JSON object of values. Repeatable.",
)
@click.option("--repair", is_flag=True, help="Show the repair plan, ask for confirmation, and run it.")
@click.option("--plan", "only_plan", is_flag=True, help="Show the repair plan and exit; nothing is changed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--accept-loss", is_flag=True, help="Also run repair steps that lose rows.")
@table_options
def check(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    full: bool,
    partitions: tuple[str | Mapping[str, object], ...],
    repair: bool,
    only_plan: bool,
    yes: bool,
    accept_loss: bool,
) -> None:
    """Find damage in TABLE: orphan and missing files, wrong counts, failed writes, duplicate keys.

    Nothing is changed without --repair. Exit status 1 if there are findings (with --repair: if some remain).
    """
    from lakefmt._core.check.run import check_table

    client = _table_client(table, options, storage_options)
    with progress("check"):
        report = check_table(client, "full" if full else "fast", list(partitions) or None)
    plan = report.plan
    if not as_json:
        print_lines(str(report))
        if (repair or only_plan) and not report.is_clean:
            print_lines(str(plan))
    if only_plan or not repair or plan.is_empty:
        if as_json:
            print_json({**_report_as_json(report), "plan": [_step_as_json(step) for step in plan.steps]})
        _exit_unless_clean(report)
        return
    from lakefmt._core.check.repair import repair_table

    if not yes:
        confirm()
    with progress("repair"):
        repair_result = repair_table(client, plan, check_table, accept_loss=accept_loss)
    if as_json:
        outcomes = [{"state": o.state, "why": o.why, **_step_as_json(o.step)} for o in repair_result.outcomes]
        print_json({**_report_as_json(report), "outcomes": outcomes, "after": _report_as_json(repair_result.after)})
    else:
        print_lines(str(repair_result))
    _exit_unless_clean(repair_result.after)


def _table_client(table: str, options: Mapping[str, str], storage_options: Mapping[str, object]) -> TableClient:
    # open_table would refuse a table with damaged properties, which check has to report.
    from lakefmt._core.filegroups.table_client import TableClient
    from lakefmt._core.storage.open import open_store

    return TableClient(open_store(table, storage_options), dict(options))


def _exit_unless_clean(report: CheckReport) -> None:
    if not report.is_clean:
        click.get_current_context().exit(1)


def _report_as_json(report: CheckReport) -> dict[str, object]:
    return {
        "table": report.url,
        "level": report.level,
        "files": report.files,
        "is_clean": report.is_clean,
        "findings": [_finding_as_json(finding) for finding in report.findings],
        "notes": [_finding_as_json(note) for note in report.notes],
        "skipped": list(report.skipped),
    }


def _finding_as_json(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind.value,
        "where": finding.where,
        "what": finding.what,
        "consequence": finding.consequence,
        "remedy": finding.remedy,
        "loses": finding.loses,
        "mendable": bool(finding.steps),
    }


def _step_as_json(step: Step) -> dict[str, object]:
    return {"step": type(step).__name__, "does": str(step), "loses": step.loses}


@click.command(short_help="Remove files that nothing needs.")
@planned(asks=True)
@click.option("--orphans", is_flag=True, help="Remove orphan files: what failed writes left. Has to be said.")
@click.option(
    "--older-than",
    default="1d",
    show_default=True,
    metavar="AGE",
    help="Least age of a file: seconds, or 90m, 12h, 1d.",
)
def vacuum(call: PlannedCall, orphans: bool, older_than: str) -> None:
    """Remove files of TABLE that failed writes and dead processes left, and that nothing names.

    Kept is what commits of the active and archived timeline, the metadata table, savepoints, tags, pending instants, saved
    writes and uncommitted stream segments name. When any of these cannot be read, nothing is removed. The plan is shown,
    then the command asks for confirmation.
    """
    if not orphans:
        raise click.UsageError("say --orphans: vacuum removes nothing else")
    plan = call.table.vacuum(orphans=True, older_than=older_than, dry_run=True).plan
    call.run(
        plan,
        lambda: call.table.vacuum(orphans=True, older_than=older_than),
        undone={"deleted": None},
        done=lambda result: {"deleted": result.files_deleted},
        is_empty=not plan.items,
    )
