"""`lakefmt clean`: file slices that nobody can ask for any more go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import carry_out_plan, dry_run_option, yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import say_json

if TYPE_CHECKING:
    from lakefmt.compaction import CleanPlan

__all__ = ["clean"]


@click.command(short_help="Remove old file slices that no readable state needs.")
@table_argument
@click.option("--retain-commits", type=click.IntRange(1), help="Keep the states of so many commits readable.")
@click.option("--retain-versions", type=click.IntRange(1), help="Keep so many file slices per file group.")
@click.option("--retain-hours", type=click.IntRange(1), help="Keep the states of so many hours readable.")
@click.option("--schedule", is_flag=True, help="Only put the plan on the timeline.")
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
    """Remove the file slices of TABLE that no readable state, savepoint, pending plan or consumer needs.

    The plan is shown first, then you are asked. Without --retain-… the table's settings decide (10 commits).
    """
    asked = _rules(retain_commits, retain_versions, retain_hours)
    opened = open_for(table, options, storage_options)
    plan = opened.clean(dry_run=True, options=asked).plan
    result = carry_out_plan(
        "clean",
        "cleaned",
        plan,
        lambda: opened.clean(schedule=schedule, options=asked),
        as_json=as_json,
        only_plan=only_plan,
        yes=yes,
        shown=lambda: {"plan": _plan_as_json(plan), "instant": None},
        is_empty=not plan.num_files,
    )
    if result is None:
        return
    if as_json:
        say_json({"plan": _plan_as_json(result.plan), "instant": result.instant, "deleted": result.files_deleted})
    elif schedule:
        click.echo(f"clean {result.instant} is requested; the next clean carries it out")
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
