"""`lakefmt compact`, `cluster`, `clean` and `archive` run one table service, `lakefmt services` all of many tables.

`lakefmt compact` merges log files into base files, `lakefmt cluster` packs small files and puts rows in an order, `lakefmt clean`
removes old file slices, `lakefmt archive` moves old instants from the active timeline to the archived one. `lakefmt services` is
one process that runs them beside the writers of the tables.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakefmt._core.cli.formatters import print_json, warnings_on_stderr
from lakefmt._core.cli.options import table_options
from lakefmt._core.cli.plans import PlannedCall, plan_as_json, planned, progress
from lakefmt._core.config.table_config import KIND
from lakefmt.errors import UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.compaction.operations import RewriteResult
    from lakefmt.services import ServicesStatus

__all__ = [
    "archive",
    "clean",
    "cluster",
    "compact",
    "services",
    "stopped_by_signals",
]


@click.command(short_help="Move old instants to the archived timeline.")
@planned(asks=False)
@click.option("--keep", type=click.IntRange(1), help="Completed commits to leave on the active timeline; default: 20.")
def archive(call: PlannedCall, keep: int | None) -> None:
    """Move old instants of TABLE from the active timeline to the archived one, where reads still find them.

    Instants stay active if a pending write, a savepoint, the last clean, or a replacecommit whose replaced files still
    exist needs them. No data is removed, so the command does not ask.
    """
    settings: dict[str, object] = {}
    if keep is not None:
        settings = {"hoodie.keep.min.commits": keep, "hoodie.keep.max.commits": max(30, keep + 1)}
    plan = call.table.archive(dry_run=True, options=settings).plan
    call.run(
        plan,
        lambda: call.table.archive(options=settings),
        undone={"done": False},
        done=lambda _: {"done": True},
        is_empty=not plan.instants,
    )


@click.command(short_help="Remove old file slices.")
@planned(asks=True)
@click.option(
    "--retain-commits", metavar="N", type=click.IntRange(1), help="Keep the file slices of the latest N commits."
)
@click.option(
    "--retain-versions", metavar="N", type=click.IntRange(1), help="Keep the latest N file slices of each file group."
)
@click.option("--retain-hours", metavar="N", type=click.IntRange(1), help="Keep the file slices of the last N hours.")
@click.option("--schedule", is_flag=True, help="Only request the clean: write its plan to the timeline.")
def clean(
    call: PlannedCall,
    retain_commits: int | None,
    retain_versions: int | None,
    retain_hours: int | None,
    schedule: bool,
) -> None:
    """Remove old file slices of TABLE. Time travel can no longer read the states that need them.

    File slices of savepoints, pending plans and registered consumers stay. The plan is shown, then the command asks for
    confirmation. Without --retain-… the table's settings decide (10 commits).
    """
    settings = _clean_settings(retain_commits, retain_versions, retain_hours)
    plan = call.table.clean(dry_run=True, options=settings).plan
    call.run(
        plan,
        lambda: call.table.clean(schedule=schedule, options=settings),
        undone={"instant": None},
        done=lambda result: {"instant": result.instant, "deleted": result.files_deleted},
        says=lambda result: f"clean {result.instant} is requested; the next clean runs it" if schedule else str(result),
        is_empty=not plan.num_files,
    )


def _clean_settings(commits: int | None, versions: int | None, hours: int | None) -> dict[str, object]:
    retention = {"commits": commits, "fileversions": versions, "hours": hours}
    settings: dict[str, object] = {f"hoodie.clean.{k}.retained": v for k, v in retention.items() if v is not None}
    if len(settings) > 1:
        raise click.UsageError("give one of --retain-commits, --retain-versions and --retain-hours")
    names = {"commits": "commits", "fileversions": "file_versions", "hours": "by_hours"}
    policies = [f"keep_latest_{names[k]}" for k, v in retention.items() if v is not None]
    return {**settings, "hoodie.clean.policy": policies[0]} if policies else {}


@click.command(short_help="Pack small files of a table, and put their rows in an order.")
@planned(asks=False)
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
def cluster(
    call: PlannedCall,
    columns: tuple[str, ...],
    order: str | None,
    where: str | None,
    partitions: tuple[str, ...],
    schedule: bool,
    run: str | None,
    abandon: str | None,
) -> None:
    """Pack small files of TABLE into larger ones: run pending clusterings, then plan and run a new one.

    No row is lost or changed, so the command does not ask.
    """
    verb = partial(
        call.table.cluster, list(columns) or None, order=order, where=where, partitions=list(partitions) or None
    )
    _rewrite(call, "clustering", call.table.cluster, verb, verb, schedule=schedule, run=run, abandon=abandon)


@click.command(short_help="Merge the log files of a merge-on-read table into base files.")
@planned(asks=False)
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
def compact(
    call: PlannedCall,
    schedule: bool,
    run: str | None,
    abandon: str | None,
    log: bool,
    verify: bool,
) -> None:
    """Merge the log files of TABLE into base files: run pending compactions, then plan and run a new one.

    No row is lost or changed, so the command does not ask.
    """
    if call.table.client.load_config().properties.get(KIND) == "append":
        raise UnsupportedFeature(f"{call.path} is an append table: lakefmt cluster packs its small files")
    one, plan = partial(call.table.compact, verify=verify), partial(call.table.compact, log=log)
    _rewrite(call, "compaction", one, plan, partial(one, log=log), schedule=schedule, run=run, abandon=abandon)


def _rewrite(
    call: PlannedCall,
    service: str,
    one: Callable[..., RewriteResult[Any]],
    plan: Callable[..., RewriteResult[Any]],
    verb: Callable[..., RewriteResult[Any]],
    *,
    schedule: bool,
    run: str | None,
    abandon: str | None,
) -> None:
    """Do what the options of a service that rewrites file slices say.

    Args:
        call: the call of the command.
        service: its name in messages.
        one: runs or abandons one pending plan.
        plan: returns the plan.
        verb: plans and runs.
        schedule: only request.
        run: the pending instant to run.
        abandon: the pending instant whose plan is removed.
    """
    if sum((schedule, run is not None, abandon is not None, call.only_plan)) > 1:
        raise click.UsageError("give one of --schedule, --run, --abandon and --plan")
    if abandon is not None:
        one(abandon=abandon)
        print_json({"abandoned": abandon}) if call.as_json else click.echo(f"plan of {service} {abandon} removed")
        return
    if run is not None:
        with progress(call.name):
            result = one(run=run)
        line = _rewrite_text(result, service, schedule=False)
        if call.as_json:
            print_json({"plan": plan_as_json(result.plan), **_rewrite_as_json(result)})
        elif line:
            click.echo(line)
        return
    call.run(
        plan(dry_run=True).plan,
        lambda: verb(schedule=schedule),
        undone={"instant": None},
        done=_rewrite_as_json,
        says=lambda result: _rewrite_text(result, service, schedule=schedule),
    )


def _rewrite_as_json(result: RewriteResult[Any]) -> dict[str, object]:
    return {
        "instant": result.instant,
        "finished": list(result.finished),
        "files": [stat.path for stat in result.files],
        "rows": result.num_rows,
        "bytes": result.bytes_written,
    }


def _rewrite_text(result: RewriteResult[Any], service: str, *, schedule: bool) -> str:
    lines = [f"pending {service} {time} is completed" for time in result.finished]
    if result.instant is not None:
        requested = f"{service} {result.instant} is requested; the next {service} runs it"
        lines.append(requested if schedule else str(result))
    return "\n".join(lines)


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
    from lakefmt.services.status import serve_pages, status_json, write_status_file

    def write_status(status: ServicesStatus) -> None:
        if status_file is not None:
            write_status_file(status_file, status)

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
        opened.enter_context(stopped_by_signals(stop.set))
        opened.enter_context(warnings_on_stderr(as_json=as_json))
        if port is not None:
            bound = opened.enter_context(serve_pages(port, lambda: loop.status))
            click.echo(f"status at http://127.0.0.1:{bound}/", err=True)
        status = loop.run(once=once, on_round=write_status)
    if as_json:
        print_json(status_json(status))
    else:
        click.echo(str(status))
    if status.has_failed:
        raise click.exceptions.Exit(1)


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first SIGTERM or SIGINT inside the block; the next one has its usual effect."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end(number: int, _frame: object) -> None:
        stop()
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
