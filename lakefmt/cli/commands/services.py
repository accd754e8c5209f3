"""`lakefmt services`: one process that runs the table services of many tables."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefmt.cli.options import table_options
from lakefmt.cli.results import print_json

if TYPE_CHECKING:
    from lakefmt.services import ServicesStatus

__all__ = ["services"]


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
            from lakefmt.services.pages import serve_pages

            bound = opened.enter_context(serve_pages(port, lambda: loop.status))
            click.echo(f"status at http://127.0.0.1:{bound}/", err=True)
        status = loop.run(once=once, on_round=lambda now: _after_round(now, status_file))
    if as_json:
        from lakefmt.services.status import status_json

        print_json(status_json(status))
    else:
        click.echo(str(status))
    if status.has_failed:
        raise click.exceptions.Exit(1)


def _after_round(status: ServicesStatus, status_file: Path | None) -> None:
    if status_file is not None:
        from lakefmt.services.pages import write_status_file

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
