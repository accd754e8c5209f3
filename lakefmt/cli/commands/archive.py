"""`lakefmt archive`: old instants leave the active timeline for the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import carry_out_plan, dry_run_option, yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import say_json

if TYPE_CHECKING:
    from lakefmt.timeline.archive.plan import ArchivePlan

__all__ = ["archive"]


@click.command(short_help="Move old instants into the history, where reads still find them.")
@table_argument
@click.option("--keep", type=click.IntRange(1), help="Completed commits that stay active; default: 20.")
@yes_option
@dry_run_option
@table_options
def archive(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    keep: int | None,
    yes: bool,
    only_plan: bool,
) -> None:
    """Move old instants of TABLE from its active timeline into the history. The plan is shown first, then you are asked.

    What a pending write, a savepoint, the last clean or a replacecommit with files left needs stays active.
    """
    asked: dict[str, object] = {}
    if keep is not None:
        asked = {"hoodie.keep.min.commits": keep, "hoodie.keep.max.commits": max(30, keep + 1)}
    opened = open_for(table, options, storage_options)
    plan = opened.archive(dry_run=True, options=asked).plan
    result = carry_out_plan(
        "archive",
        "archived",
        plan,
        lambda: opened.archive(options=asked),
        as_json=as_json,
        only_plan=only_plan,
        yes=yes,
        shown=lambda: {"plan": _plan_as_json(plan), "done": False},
        is_empty=not plan.instants,
    )
    if result is None:
        return
    if as_json:
        say_json({"plan": _plan_as_json(result.plan), "done": True})
    else:
        click.echo(str(result))


def _plan_as_json(plan: ArchivePlan) -> dict[str, object]:
    return {"instants": [str(i.time) for i in plan.instants], "commits": plan.num_commits, "barrier": plan.barrier}
