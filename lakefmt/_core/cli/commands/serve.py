"""`lakefmt serve`, `load`, `ui` and `report`: a server of two-phase loads and its client, and the page of tables."""

from __future__ import annotations

import os
import ssl
import sys
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from lakefmt._core.cli.commands.services import stopped_by_signals
from lakefmt._core.cli.formatters import counted, print_json
from lakefmt._core.cli.options import Pair, as_mapping, json_option, storage_option, table_options
from lakefmt._core.values import SystemClock
from lakefmt.errors import TableNotFound, UnknownSetting

if TYPE_CHECKING:
    from lakefmt._core.loads.http import LoadServer
    from lakefmt._core.loads.mysql_port import MySQLPort
    from lakefmt._core.loads.protocol import LoadOptions

__all__ = [
    "load",
    "report",
    "serve_loads",
    "ui",
]

#: The environment variable that has the password of a user.
PASSWORD_VARIABLE = "LAKEFMT_LOAD_PASSWORD"  # noqa: S105  (a name)
_BLOCK = 1 << 18


@click.command("serve", short_help="Answer clients that load over HTTP.")
@click.option("--base-path", metavar="FOLDER", help="Folder or URL of the tables: FOLDER/<database>/<table>.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address; others than loopback need --users.")
@click.option("--port", type=click.IntRange(0, 65535), default=8030, show_default=True, help="0: a free one.")
@click.option(
    "--table",
    "tables",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="DATABASE.TABLE=PATH",
    help="A table that lies elsewhere. Repeatable.",
)
@click.option(
    "--users",
    "users_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with a line for each user, as --hash-password prints it.",
)
@click.option("--tls-certificate", type=click.Path(exists=True, dir_okay=False), help="Certificate: answer by HTTPS.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Key of the certificate.")
@click.option(
    "--mysql-port",
    type=click.IntRange(0, 65535),
    help="Also answer StarRocks' Flink sink, which asks a MySQL port for columns; on a loopback address only.",
)
@click.option("--hash-password", metavar="USER", help="Ask for a password, print the line of a file of users, and end.")
@click.option(
    "--patterns", default="*", show_default=True, help="With --hash-password: tables, such as 'sales.*,hr.staff'."
)
@click.option(
    "--option",
    "options",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="An option of docs/http-loads.md, such as timeout=900, or a setting of commits. Repeatable.",
)
@storage_option
@json_option
def serve_loads(
    base_path: str | None,
    host: str,
    port: int,
    tables: Mapping[str, str],
    users_file: Path | None,
    tls_certificate: str | None,
    tls_key: str | None,
    mysql_port: int | None,
    hash_password: str | None,
    patterns: str,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    as_json: bool,
) -> None:
    """Answer clients that load CSV and JSON over HTTP, as they do into StarRocks: begin, load, prepare, commit, rollback.

    What is prepared is on the disk, and outlives this process. SIGINT and SIGTERM end it: running loads end first.
    """
    from lakefmt._core.loads import http
    from lakefmt.server import serve

    if hash_password is not None:
        secret = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        click.echo(http.hash_password(hash_password, secret, patterns))
        return
    if base_path is None:
        raise click.UsageError("--base-path says where the tables are")
    tls = None
    if tls_certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(tls_certificate, tls_key)
    ended = threading.Event()
    with stopped_by_signals(ended.set):
        server = serve(
            base_path,
            host=host,
            port=port,
            users=None if users_file is None else http.load_users(users_file),
            tls=tls,
            options=_parse_options(options, tables),
            storage_options=storage_options or None,
        )
        columns = None if mysql_port is None else _open_mysql_port(server, host, mysql_port)
        if as_json:
            print_json({"url": server.url} | ({} if columns is None else {"mysql_port": columns.port}))
        else:
            click.echo(f"{base_path} is loaded into at {server.url}")
        while not ended.wait(0.5):
            pass
    if columns is not None:
        columns.stop()
    server.stop()


def _open_mysql_port(server: LoadServer, host: str, port: int) -> MySQLPort:
    """Open the port; a server that could not have it ends.

    Raises:
        InvalidInputError: others than this machine could ask.
    """
    from lakefmt._core.loads.mysql_port import MySQLPort

    try:
        return MySQLPort(server.service.target, host, port)
    except BaseException:
        server.stop()
        raise


def _parse_options(options: Mapping[str, str], tables: Mapping[str, str]) -> LoadOptions:
    """Return the options of a server.

    ``length.database.table.column`` sets the longest text of a column; any other name with a dot is a setting of commits.

    Raises:
        UnknownSetting: there is no such option, or its value is none.
    """
    from lakefmt._core.loads.protocol import LoadOptions

    defaults = LoadOptions()
    lengths = {
        name.removeprefix("length."): int(str(_parse_value(name, value, 0)))
        for name, value in options.items()
        if name.startswith("length.")
    }
    settings = {name: value for name, value in options.items() if "." in name and not name.startswith("length.")}
    parsed_options: dict[str, Any] = {}
    names = [each.name for each in fields(LoadOptions) if each.name not in ("tables", "settings", "lengths")]
    for name, option_value in options.items():
        if "." in name:
            continue
        if name not in names:
            raise UnknownSetting(f"there is no option {name!r}; there are {', '.join(names)}")
        parsed_options[name] = _parse_value(name, option_value, getattr(defaults, name))
    return LoadOptions(tables=dict(tables), settings=settings, lengths=lengths, **parsed_options)


def _parse_value(name: str, value: str, default: object) -> object:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        return type(default)(value) if isinstance(default, int | float) else value
    except (KeyError, ValueError):
        raise UnknownSetting(f"option {name}: {value!r} is no {type(default).__name__}") from None


@click.command(short_help="Load a file over HTTP.")
@click.argument("file", type=click.File("rb"))
@click.option("--url", required=True, help="Of the server, such as http://127.0.0.1:8030.")
@click.option("--table", "table", required=True, metavar="DATABASE.TABLE", help="What is loaded into.")
@click.option("--label", help="Name of the transaction: a file that is loaded twice under one label is loaded once.")
@click.option("--format", "data_format", type=click.Choice(["csv", "json"]), help="Default: by the name of the file.")
@click.option("--user", help="The password is in the variable LAKEFMT_LOAD_PASSWORD, or is asked for.")
@click.option("--password-prompt", is_flag=True, help="Ask for the password.")
@click.option(
    "--header",
    "headers",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="A header of the load, such as column_separator=, or max_filter_ratio=0.1. Repeatable.",
)
@click.option("--quiet", is_flag=True, help="No progress bar.")
@json_option
def load(
    file: IO[bytes],
    url: str,
    table: str,
    label: str | None,
    data_format: str | None,
    user: str | None,
    password_prompt: bool,
    headers: Mapping[str, str],
    quiet: bool,
    as_json: bool,
) -> None:
    """Load FILE (- for the standard input) in one transaction, by a server of lakefmt or of StarRocks."""
    from lakefmt.client import StreamLoad

    database, dot, name = table.partition(".")
    if not dot or not name:
        raise click.BadParameter("expected DATABASE.TABLE", param_hint="--table")
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if password_prompt:
        password = click.prompt("Password", hide_input=True, err=True)
    load_headers = dict(headers)
    is_json = str(getattr(file, "name", "")).endswith((".json", ".jsonl", ".ndjson"))
    load_headers.setdefault("format", data_format or ("json" if is_json else "csv"))
    client = StreamLoad(url, database, name, label=label, user=user, password=password)
    with client:
        reply = client.load(_blocks(file, show_progress=not quiet and not as_json and file.seekable()), **load_headers)
    if as_json:
        print_json({"label": client.label, **reply.body})
    else:
        click.echo(f"{reply.rows} rows, label {client.label}")


def _blocks(file: IO[bytes], *, show_progress: bool) -> Iterator[bytes]:
    """Yield the blocks of a file; with a progress bar on the standard error."""
    if not show_progress:
        while block := file.read(_BLOCK):
            yield block
        return
    begin = file.tell()
    size = file.seek(0, 2) - begin
    file.seek(begin)
    with click.progressbar(length=size, label="loading", file=sys.stderr) as bar:
        while block := file.read(_BLOCK):
            yield block
            bar.update(len(block))


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
    from lakefmt._core.page.html import render
    from lakefmt._core.page.server import PageServer
    from lakefmt._core.page.services import PageActions
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
