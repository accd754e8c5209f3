"""`lakefmt cdc`: let tables follow the tables of a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakefmt._core.cli.commands.services import stopped_by_signals
from lakefmt._core.cli.formatters import print_json
from lakefmt._core.cli.options import Pair, as_mapping, json_option, storage_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefmt._core.cdc.events import SourceFinding, SourceReader
    from lakefmt._core.cdc.follow import CdcProgress

__all__ = ["cdc"]

_MAX_PASSWORD_BYTES = 4096


@click.command(short_help="Let tables follow a database.")
@click.argument("source")
@click.option("--to", "base_path", metavar="FOLDER", help="Folder or URL of the tables: FOLDER/<schema>/<table>.")
@click.option(
    "--table",
    "tables",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="NAME=PATH",
    help="A table, or a pattern such as 'shop.*', and where it lies; {schema} and {table} in PATH are its names. "
    "PATH may be empty: then below --to. '!shop.audit=' leaves tables out. Repeatable; default: all tables of the database.",
)
@click.option(
    "--tables-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML with a section for each table or pattern: path, record_key, partition_by, ordering, rename. Beside --table.",
)
@click.option(
    "--mode", type=click.Choice(["upsert", "append_log"]), help="Mirror the source (default), or keep every change."
)
@click.option("--once", is_flag=True, help="End when everything that is committed in the source now is in the tables.")
@click.option("--check", "only_check", is_flag=True, help="Print what the database lacks to be followed, and end.")
@click.option(
    "--password-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File with the password."
)
@click.option(
    "--password-prompt", is_flag=True, help="Ask for the password. Default: the variable LAKEFMT_CDC_PASSWORD."
)
@click.option(
    "--option",
    "options",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="An option of docs/cdc.md, such as delete_mode=soft, a name of the connector guide, or a hoodie.* setting. Repeatable.",
)
@storage_option
@json_option
def cdc(
    source: str,
    base_path: str | None,
    tables: Mapping[str, str],
    tables_file: Path | None,
    mode: str | None,
    once: bool,
    only_check: bool,
    password_file: Path | None,
    password_prompt: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    as_json: bool,
) -> None:
    """Let tables follow the tables of SOURCE: mysql://user@host:3306/database, mariadb://… or postgresql://….

    Rows are read first, then every change. The position is stored in the commits, so the command can end at any moment, and the
    next one goes on. SIGINT and SIGTERM commit and end.
    """
    from lakefmt._core.cdc.follow import Follower, follower_text, source_opener, whole_names
    from lakefmt._core.cdc.options import effective_values, parse_options
    from lakefmt._core.ingest.run import load_config

    cdc_options, notes = parse_options({**options, **({} if mode is None else {"mode": mode})})
    for note in notes:
        click.echo(f"note: {note}", err=True)
    secret = _password(password_file, prompt=password_prompt)
    settings_of_tables = {} if tables_file is None else load_config(tables_file)
    paths = _with_paths(whole_names(source, settings_of_tables), whole_names(source, tables))
    opener = source_opener(source, list(paths), secret, follower_text(cdc_options.name, base_path, paths))
    if only_check:
        _print_findings(_findings(opener), as_json=as_json)
        return
    click.echo(f"options: {', '.join(effective_values(cdc_options)) or 'defaults'}", err=True)
    follower = Follower(
        opener,
        base_path,
        paths,
        cdc_options,
        storage_options=storage_options or None,
        on_commit=_printer(as_json=as_json),
    )
    with stopped_by_signals(follower.stop):
        progress = follower.run(until_now=once)
    if as_json:
        print_json({"ended": progress.as_dict()})
    else:
        click.echo(f"ended: {_numbers(progress)}")


def _with_paths(settings_of_tables: Mapping[str, object], paths: Mapping[str, object]) -> dict[str, object]:
    """Return what a file says of tables, with the paths of the command line, which say nothing else."""
    merged = dict(settings_of_tables)
    for name, path in paths.items():
        settings = merged.get(name)
        if not path:
            merged.setdefault(name, None)
        else:
            merged[name] = {**settings, "path": path} if isinstance(settings, Mapping) else path
    return merged


def _password(file: Path | None, *, prompt: bool) -> str | None:
    """Return the password of a file or of a prompt; None: that of the environment."""
    if file is not None:
        with file.open("rb") as opened:
            return opened.read(_MAX_PASSWORD_BYTES).decode("utf-8", "strict").rstrip("\r\n")
    return click.prompt("Password", hide_input=True, err=True) if prompt else None


def _findings(opener: Callable[[], SourceReader]) -> Sequence[SourceFinding]:
    source = opener()
    try:
        return source.preflight()
    finally:
        source.close()


def _print_findings(findings: Sequence[SourceFinding], *, as_json: bool) -> None:
    """Print what a source lacks; exit status 1 when it cannot be followed."""
    for finding in findings:
        if as_json:
            table = None if finding.table is None else str(finding.table)
            print_json({"message": finding.message, "mend": finding.mend, "stops": finding.stops, "table": table})
        else:
            severity = (
                "warning" if not finding.stops else "stops" if finding.table is None else f"stops {finding.table}"
            )
            click.echo(f"{severity}: {finding.message}")
            if finding.mend:
                click.echo(f"  {finding.mend}")
    if any(finding.stops for finding in findings):
        raise click.exceptions.Exit(1)
    if not as_json:
        click.echo("the database can be followed")


def _printer(*, as_json: bool) -> Callable[[CdcProgress], None]:
    """Return what prints a line after commits."""

    def line(progress: CdcProgress) -> None:
        if as_json:
            print_json(progress.as_dict())
        else:
            click.echo(_numbers(progress))

    return line


def _numbers(progress: CdcProgress) -> str:
    """Return the progress as a line."""
    numbers: dict[str, Any] = progress.as_dict()
    lag = "" if progress.lag_seconds is None else f", {progress.lag_seconds:.1f} s behind"
    rejected = f", {numbers['dead_letter_rows']} rejected" if numbers["dead_letter_rows"] else ""
    rejected += f", {numbers['tables_stopped']} stopped" if numbers["tables_stopped"] else ""
    source = "".join(f", {name} {value:g}" for name, value in progress.source.items())
    return f"{len(progress.tables)} tables, {numbers['events']} changes, {numbers['commits']} commits{lag}{rejected}{source}"
