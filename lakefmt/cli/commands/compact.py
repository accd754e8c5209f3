"""`lakefmt compact`: merge log files into base files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import click

from lakefmt.cli.confirm import dry_run_option, run_plan, unneeded_yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.progress import progress
from lakefmt.cli.results import print_abandoned, print_rewrite
from lakefmt.config.append_layout import KIND
from lakefmt.errors import UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt.compaction.compact.plan import CompactionPlan

__all__ = ["compact"]


@click.command(short_help="Merge the log files of a merge-on-read table into base files.")
@table_argument
@click.option("--schedule", is_flag=True, help="Only request the compaction: write its plan to the timeline.")
@click.option(
    "--run", metavar="INSTANT", help="Only run the pending compaction INSTANT, also one that Spark requested."
)
@click.option("--abandon", metavar="INSTANT", help="Only remove the plan of the pending compaction INSTANT.")
@click.option(
    "--log",
    is_flag=True,
    help="Log compaction: merge the log files of each file slice into one log file; base files stay.",
)
@click.option("--verify", is_flag=True, help="Compare each new base file with its file slice before the commit.")
@unneeded_yes_option
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
    only_plan: bool,
) -> None:
    """Merge the log files of TABLE into base files: run pending compactions, then plan and run a new one.

    No row is lost or changed, so the command does not ask.
    """
    if sum((schedule, run is not None, abandon is not None, only_plan)) > 1:
        raise click.UsageError("give one of --schedule, --run, --abandon and --plan")
    opened = open_for(table, options, storage_options)
    if opened.client.load_config().properties.get(KIND) == "append":
        raise UnsupportedFeature(f"{table} is an append table: lakefmt cluster packs its small files")
    if abandon is not None:
        opened.compact(abandon=abandon)
        print_abandoned("compaction", abandon, as_json=as_json)
        return
    if run is not None:
        with progress("compact"):
            result = opened.compact(run=run, verify=verify)
        print_rewrite(
            result, "compaction", _plan_as_json(cast("CompactionPlan", result.plan)), schedule=False, as_json=as_json
        )
        return
    plan = cast("CompactionPlan", opened.compact(dry_run=True, log=log).plan)
    done = run_plan(
        "compact",
        plan,
        lambda: opened.compact(schedule=schedule, verify=verify, log=log),
        as_json=as_json,
        only_plan=only_plan,
        asks=False,
        shown=lambda: {"plan": _plan_as_json(plan), "instant": None},
    )
    if done is not None:
        print_rewrite(
            done, "compaction", _plan_as_json(cast("CompactionPlan", done.plan)), schedule=schedule, as_json=as_json
        )


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
