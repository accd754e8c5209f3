"""`lakefmt ui` serves a page of tables to this machine's browser; `lakefmt report` writes one file of them."""

from __future__ import annotations

import os
import threading
import webbrowser
from collections.abc import Mapping
from pathlib import Path

import click

from lakefmt._core.cli.commands.services import stopped_by_signals
from lakefmt._core.cli.formatters import counted, print_json
from lakefmt._core.cli.options import table_options
from lakefmt._core.values import SystemClock
from lakefmt.errors import TableNotFound

__all__ = ["report", "ui"]

_TOKEN_VARIABLE = "LAKEFMT_UI_TOKEN"  # noqa: S105 - a name


@click.command(short_help="Show tables in the browser.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: any free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; any other needs --token.")
@click.option(
    "--token",
    envvar=_TOKEN_VARIABLE,
    help=f"Who has it may look; default: a new one, printed. Better in the variable {_TOKEN_VARIABLE}.",
)
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="Host name under which the page is reached. Repeatable."
)
@click.option("--open/--no-open", "opens", default=False, help="Open the browser.")
@click.option(
    "--allow-actions", is_flag=True, help="Also plan, confirm and run services, savepoints, rollbacks, restores."
)
@click.option(
    "--audit-log",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("lakefmt-ui-audit.jsonl"),
    show_default=True,
    help="With --allow-actions: where each run is noted.",
)
@click.option("--journal", metavar="URL", help="Where `lakefmt serve` stores transactions, if not below its base path.")
@table_options
def ui(
    paths: tuple[str, ...],
    port: int,
    host: str,
    token: str | None,
    names: tuple[str, ...],
    opens: bool,
    allow_actions: bool,
    audit_log: Path,
    journal: str | None,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
) -> None:
    """Show tables in the browser: timeline, files, rows, services, health. PATH is a table, a folder of tables, or a file of paths.

    The address is printed with its token. The page only reads, unless --allow-actions is given. SIGINT and SIGTERM end it.
    """
    from lakefmt._core.page.actions import PageActions
    from lakefmt._core.page.html import render
    from lakefmt._core.page.server import PageServer
    from lakefmt._core.page.tables import PageTables

    for path in paths:
        if "://" not in path and not Path(path).exists():
            raise click.UsageError(f"{path} does not exist: name a table, a folder of tables, or a file of paths")
    render("_layout.html", {"picture": ""})  # without Jinja2 it says so before it listens
    tables = PageTables(paths, options=options, storage_options=storage_options or None, journal=journal)
    actions = PageActions(audit_log) if allow_actions else None
    page = PageServer(tables, host=host, port=port, token=token, names=names, actions=actions)
    ended = threading.Event()
    with stopped_by_signals(ended.set), page:
        if as_json:
            print_json({"url": page.url, "pid": os.getpid(), "actions": allow_actions})
        else:
            click.echo(f"open {page.url}")
        if opens:
            webbrowser.open(page.url)
        ended.wait()


@click.command(short_help="Write a report of tables into one file.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The HTML file to write.",
)
@table_options
def report(
    paths: tuple[str, ...],
    output: Path,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
) -> None:
    """Write a report on tables into one HTML file without scripts: summary, timeline, layout, services, health, advice.

    PATH is a table, a folder of tables, or a file of paths; a report of several tables begins with an index.
    """
    from lakefmt._core.page.html import write_report
    from lakefmt._core.page.tables import PageTables

    tables, problems = PageTables(paths, options=options, storage_options=storage_options or None).listed()
    if not tables:
        raise TableNotFound(
            f"no tables: {'; '.join(f'{path}: {why}' for path, why in problems.items()) or 'nothing there'}"
        )
    size = write_report(output, tables, SystemClock().now())
    if as_json:
        print_json({"file": str(output), "bytes": size, "tables": len(tables), "problems": problems})
    else:
        click.echo(f"{output}: {counted(len(tables), 'table')}, {size:,} bytes")
        for path, why in problems.items():
            click.echo(f"warning: {path}: {why}", err=True)
