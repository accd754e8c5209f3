"""`lakefmt check` finds damage in a table, and `--repair` repairs it; `lakefmt vacuum` removes files that nothing needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt._core.cli.formatters import print_json, print_lines
from lakefmt._core.cli.options import Partition, table_argument, table_options
from lakefmt._core.cli.plans import PlannedCall, confirm, planned, progress

if TYPE_CHECKING:
    from lakefmt._core.check.findings import CheckReport, Finding, Step
    from lakefmt._core.filegroups.table_client import TableClient

__all__ = [
    "check",
    "vacuum",
]


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
