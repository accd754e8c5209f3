"""`lakefmt compact`: logs become part of base files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import carry_out_plan, dry_run_option, yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.progress import progress
from lakefmt.cli.results import say_json

if TYPE_CHECKING:
    from lakefmt.compaction import CompactionPlan, CompactionResult

__all__ = ["compact"]


@click.command(short_help="Merge the logs of a merge-on-read table into base files.")
@table_argument
@click.option("--schedule", is_flag=True, help="Only put the plan on the timeline.")
@click.option("--run", metavar="INSTANT", help="Only carry out the plan that waits at INSTANT, whoever made it.")
@click.option("--abandon", metavar="INSTANT", help="Only withdraw the plan that waits at INSTANT.")
@click.option("--log", is_flag=True, help="Fold the logs of a slice into one log; base files stay as they are.")
@click.option("--verify", is_flag=True, help="Compare every new file with its slice before anything becomes visible.")
@yes_option
@dry_run_option
@table_options
def compact(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    schedule: bool,
    run: str | None,
    abandon: str | None,
    log: bool,
    verify: bool,
    yes: bool,
    only_plan: bool,
) -> None:
    """Merge the logs of TABLE into base files: what waits is carried out first, then a new plan.

    The plan is shown first, then you are asked. No row changes; what is read is the same before and after.
    """
    if sum((schedule, run is not None, abandon is not None, only_plan)) > 1:
        raise click.UsageError("give one of --schedule, --run, --abandon and --plan")
    opened = open_for(table, options, storage_options)
    if abandon is not None:
        opened.compact(abandon=abandon)
        say_json({"abandoned": abandon}) if as_json else click.echo(f"compaction {abandon} is withdrawn")
        return
    if run is not None:
        with progress("compact"):
            _say(opened.compact(run=run, verify=verify), schedule=False, as_json=as_json)
        return
    plan = opened.compact(dry_run=True, log=log).plan
    result = carry_out_plan(
        "compact",
        "compacted",
        plan,
        lambda: opened.compact(schedule=schedule, verify=verify, log=log),
        as_json=as_json,
        only_plan=only_plan,
        yes=yes,
        shown=lambda: {"plan": _plan_as_json(plan), "instant": None},
    )
    if result is not None:
        _say(result, schedule=schedule, as_json=as_json)


def _say(result: CompactionResult, *, schedule: bool, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "plan": _plan_as_json(result.plan),
                "instant": result.instant,
                "finished": list(result.finished),
                "files": [stat.path for stat in result.files],
                "rows": result.num_rows,
                "bytes": result.bytes_written,
            }
        )
        return
    for time in result.finished:
        click.echo(f"compaction {time}, which waited, is done")
    if result.instant is None:
        return
    if schedule:
        click.echo(f"compaction {result.instant} is requested; the next compaction carries it out")
    else:
        click.echo(str(result))


def _plan_as_json(plan: CompactionPlan) -> dict[str, object]:
    return {
        "operations": [
            {"partition": o.partition, "file_id": o.file_id, "base": o.base_name, "logs": list(o.log_names)}
            for o in plan.operations
        ],
        "log_bytes": plan.log_bytes,
        "left": plan.left,
        "due": plan.due,
    }
