"""`lakefmt compact`, `cluster`, `clean` and `archive` run one table service, `lakefmt services` all of many tables.

`lakefmt compact` merges log files into base files, `lakefmt cluster` packs small files and puts rows in an order, `lakefmt clean`
removes old file slices, `lakefmt archive` moves old instants from the active timeline to the archived one. `lakefmt services` is
one process that runs them beside the writers of the tables.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from lakefmt._core.cli.confirm import dry_run_option, progress, run_plan, unneeded_yes_option, yes_option
from lakefmt._core.cli.formatters import print_abandoned, print_json, print_rewrite
from lakefmt._core.cli.options import open_for, table_argument, table_options
from lakefmt._core.config.table_config import KIND
from lakefmt.errors import UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.compaction.clean.plan import CleanPlan
    from lakefmt._core.compaction.cluster.plan import ClusteringPlan
    from lakefmt._core.compaction.compact.plan import CompactionPlan
    from lakefmt._core.timeline.archive.plan import ArchivePlan
    from lakefmt.services import ServicesStatus

__all__ = [
    "archive",
    "clean",
    "cluster",
    "compact",
    "services",
]


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
        shown=lambda: {"plan": _archive_plan_as_json(plan), "done": False},
        is_empty=not plan.instants,
    )
    if result is None:
        return
    if as_json:
        print_json({"plan": _archive_plan_as_json(result.plan), "done": True})
    else:
        click.echo(str(result))


def _archive_plan_as_json(plan: ArchivePlan) -> dict[str, object]:
    return {"instants": [str(i.time) for i in plan.instants], "commits": plan.num_commits, "barrier": plan.barrier}


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
    asked = _clean_settings(retain_commits, retain_versions, retain_hours)
    opened = open_for(table, options, storage_options)
    plan = opened.clean(dry_run=True, options=asked).plan
    result = run_plan(
        "clean",
        plan,
        lambda: opened.clean(schedule=schedule, options=asked),
        as_json=as_json,
        only_plan=only_plan,
        asks=not yes,
        shown=lambda: {"plan": _clean_plan_as_json(plan), "instant": None},
        is_empty=not plan.num_files,
    )
    if result is None:
        return
    if as_json:
        print_json(
            {"plan": _clean_plan_as_json(result.plan), "instant": result.instant, "deleted": result.files_deleted}
        )
    elif schedule:
        click.echo(f"clean {result.instant} is requested; the next clean runs it")
    else:
        click.echo(str(result))


def _clean_settings(commits: int | None, versions: int | None, hours: int | None) -> dict[str, object]:
    given = {"commits": commits, "fileversions": versions, "hours": hours}
    asked: dict[str, object] = {f"hoodie.clean.{k}.retained": v for k, v in given.items() if v is not None}
    if len(asked) > 1:
        raise click.UsageError("give one of --retain-commits, --retain-versions and --retain-hours")
    names = {"commits": "commits", "fileversions": "file_versions", "hours": "by_hours"}
    policies = [f"keep_latest_{names[k]}" for k, v in given.items() if v is not None]
    return {**asked, "hoodie.clean.policy": policies[0]} if policies else {}


def _clean_plan_as_json(plan: CleanPlan) -> dict[str, object]:
    return {
        "policy": plan.rules.policy.value,
        "earliest": None if plan.earliest is None else plan.earliest.time,
        "files": plan.paths,
        "bytes": plan.num_bytes,
    }


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
        print_rewrite(result, "clustering", _clustering_plan_as_json(result.plan), schedule=False, as_json=as_json)
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
        shown=lambda: {"plan": _clustering_plan_as_json(plan), "instant": None},
    )
    if done is not None:
        print_rewrite(done, "clustering", _clustering_plan_as_json(done.plan), schedule=schedule, as_json=as_json)


def _clustering_plan_as_json(plan: ClusteringPlan) -> dict[str, object]:
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
            result,
            "compaction",
            _compaction_plan_as_json(cast("CompactionPlan", result.plan)),
            schedule=False,
            as_json=as_json,
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
        shown=lambda: {"plan": _compaction_plan_as_json(plan), "instant": None},
    )
    if done is not None:
        print_rewrite(
            done,
            "compaction",
            _compaction_plan_as_json(cast("CompactionPlan", done.plan)),
            schedule=schedule,
            as_json=as_json,
        )


def _compaction_plan_as_json(plan: CompactionPlan) -> dict[str, object]:
    return {
        "operations": [
            {"partition": o.partition, "file_id": o.file_id, "base": o.base_name, "logs": list(o.log_names)}
            for o in plan.operations
        ],
        "log_bytes": plan.log_bytes,
        "left": plan.left,
        "due": plan.due,
    }


@click.command(short_help="Run the table services of many tables until stopped.")
@click.argument("tables", nargs=-1, required=True)
@click.option("--once", is_flag=True, help="Look at every table once, then end.")
@click.option(
    "--interval", type=click.FloatRange(0), default=10.0, show_default=True, metavar="S", help="Seconds between rounds."
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that execute the operations of compactions.",
)
@click.option(
    "--lease",
    "lease_seconds",
    type=click.FloatRange(0.1),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds after which another process takes the tables of one that died.",
)
@click.option(
    "--status-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the status to this file after every round: JSON when its name ends in .json, else text.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Serve /, /status.json and /metrics (Prometheus) on this port of 127.0.0.1.",
)
@table_options
def services(
    tables: tuple[str, ...],
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    once: bool,
    interval: float,
    workers: int,
    lease_seconds: float,
    status_file: Path | None,
    port: int | None,
) -> None:
    """Recover streams, compact, cluster, clean and archive TABLES, each by its own settings, beside their writers.

    A folder stands for the tables below it, also for those that are created later.

    Safe to run twice: a lease per table lets one process at a time serve it. SIGTERM or Ctrl-C lets the service that runs
    finish; a second one ends at once, and what had begun is finished by the next run. Status 1 when a service failed.
    """
    from lakefmt.services import ServiceLoop

    stop = threading.Event()
    loop = ServiceLoop(
        tables,
        interval=interval,
        workers=workers,
        options=options,
        storage_options=storage_options,
        lease_seconds=lease_seconds,
        stop=stop,
    )
    with ExitStack() as opened:
        opened.enter_context(_stopped_by_signals(stop))
        if port is not None:
            from lakefmt.services.status import serve_pages

            bound = opened.enter_context(serve_pages(port, lambda: loop.status))
            click.echo(f"status at http://127.0.0.1:{bound}/", err=True)
        status = loop.run(once=once, on_round=lambda now: _write_status(now, status_file))
    if as_json:
        from lakefmt.services.status import status_json

        print_json(status_json(status))
    else:
        click.echo(str(status))
    if status.has_failed:
        raise click.exceptions.Exit(1)


def _write_status(status: ServicesStatus, status_file: Path | None) -> None:
    if status_file is not None:
        from lakefmt.services.status import write_status_file

        write_status_file(status_file, status)


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at the first SIGTERM or SIGINT inside the block; the next one has its usual effect."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end(number: int, _frame: object) -> None:
        stop.set()
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
