"""`lakefmt clean`: remove old file slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import dry_run_option, run_plan, yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import print_json

if TYPE_CHECKING:
    from lakefmt.compaction.clean.plan import CleanPlan

__all__ = ["clean"]


@click.command(short_help="Remove old file slices.")
@table_argument
@click.option(
    "--retain-commits", metavar="N", type=click.IntRange(1), help="Keep the file slices of the latest N commits."
)
@click.option(
    "--retain-versions", metavar="N", type=click.IntRange(1), help="Keep the latest N file slices of each file group."
)
@click.option("--retain-hours", metavar="N", type=click.IntRange(1), help="Keep the file slices of the last N hours.")
@click.option("--schedule", is_flag=True, help="Only request the clean: write its plan to the timeline.")
@yes_option
@dry_run_option
@table_options
def clean(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    retain_commits: int | None,
    retain_versions: int | None,
    retain_hours: int | None,
    schedule: bool,
    yes: bool,
    only_plan: bool,
) -> None:
    """Remove old file slices of TABLE. Time travel can no longer read the states that need them.

    File slices of savepoints, pending plans and registered consumers stay. The plan is shown, then the command asks for
    confirmation. Without --retain-… the table's settings decide (10 commits).
    """
    asked = _rules(retain_commits, retain_versions, retain_hours)
    opened = open_for(table, options, storage_options)
    plan = opened.clean(dry_run=True, options=asked).plan
    result = run_plan(
        "clean",
        plan,
        lambda: opened.clean(schedule=schedule, options=asked),
        as_json=as_json,
        only_plan=only_plan,
        asks=not yes,
        shown=lambda: {"plan": _plan_as_json(plan), "instant": None},
        is_empty=not plan.num_files,
    )
    if result is None:
        return
    if as_json:
        print_json({"plan": _plan_as_json(result.plan), "instant": result.instant, "deleted": result.files_deleted})
    elif schedule:
        click.echo(f"clean {result.instant} is requested; the next clean runs it")
    else:
        click.echo(str(result))


def _rules(commits: int | None, versions: int | None, hours: int | None) -> dict[str, object]:
    given = {"commits": commits, "fileversions": versions, "hours": hours}
    asked: dict[str, object] = {f"hoodie.clean.{k}.retained": v for k, v in given.items() if v is not None}
    if len(asked) > 1:
        raise click.UsageError("give one of --retain-commits, --retain-versions and --retain-hours")
    names = {"commits": "commits", "fileversions": "file_versions", "hours": "by_hours"}
    policies = [f"keep_latest_{names[k]}" for k, v in given.items() if v is not None]
    return {**asked, "hoodie.clean.policy": policies[0]} if policies else {}


def _plan_as_json(plan: CleanPlan) -> dict[str, object]:
    return {
        "policy": plan.rules.policy.value,
        "earliest": None if plan.earliest is None else plan.earliest.time,
        "files": plan.paths,
        "bytes": plan.num_bytes,
    }
