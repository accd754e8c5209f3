"""`lakefmt archive`: move old instants from the active timeline to the archived one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import dry_run_option, run_plan, unneeded_yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import print_json

if TYPE_CHECKING:
    from lakefmt.timeline.archive.plan import ArchivePlan

__all__ = ["archive"]


@click.command(short_help="Move old instants to the archived timeline.")
@table_argument
@click.option("--keep", type=click.IntRange(1), help="Completed commits to leave on the active timeline; default: 20.")
@unneeded_yes_option
@dry_run_option
@table_options
def archive(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    keep: int | None,
    only_plan: bool,
) -> None:
    """Move old instants of TABLE from the active timeline to the archived one, where reads still find them.

    Instants stay active if a pending write, a savepoint, the last clean, or a replacecommit whose replaced files still
    exist needs them. No data is removed, so the command does not ask.
    """
    asked: dict[str, object] = {}
    if keep is not None:
        asked = {"hoodie.keep.min.commits": keep, "hoodie.keep.max.commits": max(30, keep + 1)}
    opened = open_for(table, options, storage_options)
    plan = opened.archive(dry_run=True, options=asked).plan
    result = run_plan(
        "archive",
        plan,
        lambda: opened.archive(options=asked),
        as_json=as_json,
        only_plan=only_plan,
        asks=False,
        shown=lambda: {"plan": _plan_as_json(plan), "done": False},
        is_empty=not plan.instants,
    )
    if result is None:
        return
    if as_json:
        print_json({"plan": _plan_as_json(result.plan), "done": True})
    else:
        click.echo(str(result))


def _plan_as_json(plan: ArchivePlan) -> dict[str, object]:
    return {"instants": [str(i.time) for i in plan.instants], "commits": plan.num_commits, "barrier": plan.barrier}
