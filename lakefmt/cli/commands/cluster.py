"""`lakefmt cluster`: pack small files and put rows in an order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.confirm import dry_run_option, run_plan, unneeded_yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.progress import progress
from lakefmt.cli.results import print_abandoned, print_rewrite

if TYPE_CHECKING:
    from lakefmt.compaction.cluster.plan import ClusteringPlan

__all__ = ["cluster"]


@click.command(short_help="Pack small files of a table, and put their rows in an order.")
@table_argument
@click.option("--column", "columns", metavar="COLUMN", multiple=True, help="Order rows by COLUMN. Repeatable.")
@click.option(
    "--order",
    type=click.Choice(["linear", "zorder", "hilbert"]),
    help="How rows are ordered by several columns: one after the other, or along a curve.",
)
@click.option("--where", metavar="FILTER", help='Only file slices that may have rows of FILTER, such as "n > 5".')
@click.option("--partition", "partitions", metavar="PATH", multiple=True, help="Only partition PATH; may be repeated.")
@click.option("--schedule", is_flag=True, help="Only request the clustering: write its plan to the timeline.")
@click.option(
    "--run", metavar="INSTANT", help="Only run the pending clustering INSTANT, also one that Spark requested."
)
@click.option("--abandon", metavar="INSTANT", help="Only remove the plan of the pending clustering INSTANT.")
@unneeded_yes_option
@dry_run_option
@table_options
def cluster(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    columns: tuple[str, ...],
    order: str | None,
    where: str | None,
    partitions: tuple[str, ...],
    schedule: bool,
    run: str | None,
    abandon: str | None,
    only_plan: bool,
) -> None:
    """Pack small files of TABLE into larger ones: run pending clusterings, then plan and run a new one.

    No row is lost or changed, so the command does not ask.
    """
    if sum((schedule, run is not None, abandon is not None, only_plan)) > 1:
        raise click.UsageError("give one of --schedule, --run, --abandon and --plan")
    opened = open_for(table, options, storage_options)
    if abandon is not None:
        opened.cluster(abandon=abandon)
        print_abandoned("clustering", abandon, as_json=as_json)
        return
    if run is not None:
        with progress("cluster"):
            result = opened.cluster(run=run)
        print_rewrite(result, "clustering", _plan_as_json(result.plan), schedule=False, as_json=as_json)
        return
    by = list(columns) or None
    chosen = list(partitions) or None
    plan = opened.cluster(by, order=order, where=where, partitions=chosen, dry_run=True).plan
    done = run_plan(
        "cluster",
        plan,
        lambda: opened.cluster(by, order=order, where=where, partitions=chosen, schedule=schedule),
        as_json=as_json,
        only_plan=only_plan,
        asks=False,
        shown=lambda: {"plan": _plan_as_json(plan), "instant": None},
    )
    if done is not None:
        print_rewrite(done, "clustering", _plan_as_json(done.plan), schedule=schedule, as_json=as_json)


def _plan_as_json(plan: ClusteringPlan) -> dict[str, object]:
    return {
        "groups": [
            {
                "partition": group.partition,
                "slices": [
                    {"file_id": each.file_id, "base": each.base_name, "logs": list(each.log_names)}
                    for each in group.slices
                ],
                "bytes": group.num_bytes,
                "files": group.num_outputs,
            }
            for group in plan.groups
        ],
        "columns": list(plan.order.columns),
        "order": plan.order.layout.value,
        "left": plan.left,
        "due": plan.due,
    }
