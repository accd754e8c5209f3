"""`lakefmt ingest` and `lakefmt cdc`: rows of files, topics and databases into tables; progress as a page, JSON and metrics."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lakefmt._core.cli.commands.services import stopped_by_signals
from lakefmt._core.cli.formatters import print_json, warnings_on_stderr
from lakefmt._core.cli.options import Pair, as_mapping, json_option, storage_option
from lakefmt.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefmt._core.cdc.events import SourceFinding, SourceReader
    from lakefmt._core.cdc.follow import CdcProgress
    from lakefmt._core.ingest.run import Ingester, IngestProgress, RoundEngine

__all__ = [
    "cdc",
    "ingest",
    "page_texts",
    "progress_json",
    "progress_metrics",
    "status_text",
]

#: Options of Hudi Streamer that ask for nothing here, and why.
_WITHOUT_EFFECT: Final = {
    "enable-sync": "catalogs are synced by lakefmt.catalogs, or `lakefmt sync`",
    "schemaprovider-class": "the schema is that of the rows, of the registry and of the table",
    "spark-master": "there is no Spark",
    "base-file-format": "files are Parquet",
    "payload-class": "the table says which row wins",
    "commit-on-errors": "rejected rows go to the table that --errors names",
    "retry-interval-seconds": "pauses grow from a second to a minute",
    "delta-sync-scheduling-weight": "there are no Spark pools",
    "compact-scheduling-weight": "there are no Spark pools",
}
_MOST_INCLUDES: Final = 10
_MOST_PROPERTIES_BYTES: Final = 4 << 20
_FLAGS: Final = frozenset({"enable-sync", "commit-on-errors"})


def _without_effect(command: Any) -> Any:
    """Add the options of Hudi Streamer that change nothing, so that its command lines are understood."""
    for name, why in _WITHOUT_EFFECT.items():
        flag: dict[str, Any] = {"is_flag": True} if name in _FLAGS else {}
        command = click.option(f"--{name}", hidden=True, help=f"Of Hudi Streamer, without effect: {why}.", **flag)(
            command
        )
    return command


@click.command(short_help="Take rows of files, topics, tables and databases into tables.")
@click.argument("config", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--source", help="Folder, URL or pattern of files; a topic; a table; a database URL.")
@click.option("--source-kind", help="files (default), kafka, table, query, http or rows.")
@click.option("--source-class", help="The same by Hudi's class of the source, such as JsonDFSSource.")
@click.option("--table", "--target-base-path", "table", metavar="PATH", help="Path or URL of the table.")
@click.option("--target-table", "table_name", metavar="NAME", help="The name of a table that is made.")
@click.option("--key", "-k", multiple=True, metavar="COLUMN", help="Key of a table that is made. Repeatable.")
@click.option("--partition-by", multiple=True, metavar="COLUMN", help="Partitions of a table that is made. Repeatable.")
@click.option(
    "--ordering",
    "--source-ordering-field",
    "--source-ordering-fields",
    "ordering",
    metavar="COLUMNS",
    help="The larger value wins where rows have one key.",
)
@click.option("--table-type", help="cow (default) or mor.")
@click.option("--table-version", type=int, help="6, 8 (default) or 9, of a table that is made.")
@click.option(
    "--operation",
    "--op",
    "operation",
    help="upsert (default), insert, bulk_insert, insert_overwrite or insert_overwrite_table.",
)
@click.option("--filter-dupes", is_flag=True, default=None, help="Leave out rows whose key is stored already.")
@click.option("--format", help="parquet, csv, jsonl, avro or orc; default: by the files' names.")
@click.option("--source-limit", type=int, help="About how many bytes of files, or messages, one commit takes.")
@click.option("--checkpoint", help="Begin at this checkpoint, once.")
@click.option("--ignore-checkpoint", metavar="TEXT", help="Begin anew; the same TEXT given again does nothing.")
@click.option(
    "--initial-checkpoint-provider",
    metavar="NAME",
    help="Where a table without a checkpoint begins: 'table:PATH', 'python:module:function', or Hudi's class.",
)
@click.option(
    "--max-pending-compactions",
    type=int,
    help="A continuous job waits while more are pending; default: it does not wait.",
)
@click.option("--max-pending-clustering", type=int, help="The same of clusterings.")
@click.option(
    "--commit-empty",
    "--allow-commit-on-no-checkpoint-change",
    "commit_empty",
    is_flag=True,
    default=None,
    help="Commit also when there is nothing new.",
)
@click.option(
    "--transform",
    "transformers",
    multiple=True,
    help="'flatten', SQL with <SRC>, 'sql-file:PATH' or 'python:module:function'. Repeatable.",
)
@click.option("--transformer-class", "transformer_classes", help="The same by Hudi's classes, with commas between.")
@click.option("--errors", metavar="PATH", help="Table of rejected rows; without it the first one ends the round.")
@click.option("--props", metavar="FILE", help="File of Hudi's properties.")
@click.option(
    "--hoodie-conf",
    "--option",
    "options",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="A property of Hudi, or a setting of docs/ingest.md. Repeatable.",
)
@click.option("--from-delta", metavar="PATH", help="Copy a Delta table into a new table, once, and compare all rows.")
@click.option("--from-iceberg", metavar="FILE", help="The same for an Iceberg table, by its metadata file.")
@click.option(
    "--from-parquet", metavar="FOLDER", help="The same for a folder of Parquet files; later runs go on from it."
)
@click.option("--once", is_flag=True, help="One round (default).")
@click.option("--until-idle", is_flag=True, help="Rounds until nothing is new.")
@click.option("--continuous", is_flag=True, help="Rounds until SIGTERM or SIGINT; the round at hand ends.")
@click.option(
    "--interval",
    "--min-sync-interval-seconds",
    "interval",
    type=click.FloatRange(0),
    help="Seconds between two rounds; default: 10.",
)
@click.option(
    "--max-retry-count", "attempts", type=click.IntRange(0), default=10, help="Attempts after a failure that may pass."
)
@click.option("--retry-on-source-failures", is_flag=True, hidden=True, help="Of Hudi Streamer: so it is always.")
@click.option(
    "--post-write-termination-strategy-class",
    "termination",
    hidden=True,
    help="Of Hudi Streamer: NoNewDataTerminationStrategy is --until-idle.",
)
@click.option(
    "--engine", type=click.Choice(["python", "spark"]), default="python", help="Who reads and writes; default: python."
)
@click.option("--dry-run", is_flag=True, help="Print what the next round would do, and where each setting comes from.")
@click.option(
    "--status-file", type=click.Path(dir_okay=False, path_type=Path), help="File for the status, replaced each round."
)
@click.option("--port", type=click.IntRange(0, 65535), help="Serve status and metrics on this port of 127.0.0.1.")
@_without_effect
@storage_option
@json_option
@click.pass_context
def ingest(
    ctx: click.Context,
    /,
    config: Path | None,
    props: str | None,
    options: Mapping[str, str],
    once: bool,
    until_idle: bool,
    continuous: bool,
    interval: float | None,
    attempts: int,
    engine: str,
    dry_run: bool,
    status_file: Path | None,
    port: int | None,
    storage_options: Mapping[str, object],
    as_json: bool,
    **arguments: Any,
) -> None:
    """Take what is new in a source into a table, or what CONFIG, a TOML file, says of many tables.

    The checkpoint is in the commits, by Hudi Streamer's own keys, so the command may end at any moment, and Hudi's tool and this one
    may take turns. Hudi's options and properties are understood.
    """
    stop = threading.Event()
    mode_flags = {"once": once, "until_idle": until_idle, "continuous": continuous}
    mode = _chosen_mode(mode_flags, str(arguments.pop("termination", None) or ""))
    arguments.pop("retry_on_source_failures", None)
    for name, why in _WITHOUT_EFFECT.items():
        if arguments.pop(name.replace("-", "_"), None):
            click.echo(f"note: --{name} has no effect: {why}", err=True)
    command_options = {name: value for name, value in arguments.items() if value not in (None, (), "")}
    origins = {
        source_format: command_options.pop(f"from_{source_format}")
        for source_format in ("delta", "iceberg", "parquet")
        if f"from_{source_format}" in command_options
    }
    if origins:
        _migrate(origins, command_options, storage_options, as_json=as_json)
        return
    ingester = _opened(
        config, props, options, command_options, interval, attempts, storage_options, stop, status_file, engine
    )
    if dry_run:
        for plan in ingester.plans():
            print_json(_plan_json(plan)) if as_json else click.echo(str(plan))
        return
    with ExitStack() as opened:
        opened.enter_context(stopped_by_signals(stop.set))
        opened.enter_context(warnings_on_stderr(as_json=as_json))
        if port is not None:
            from lakefmt.services.status import serve_texts

            bound = opened.enter_context(serve_texts(port, page_texts(lambda: ingester.progress)))
            click.echo(f"status at http://127.0.0.1:{bound}/", err=True)
        progress = ingester.run(mode)
    if as_json:
        print_json(progress_json(progress))
    else:
        click.echo(str(progress))
    if progress.has_failed:
        ctx.exit(1)


def _chosen_mode(mode_flags: Mapping[str, bool], termination: str) -> str:
    """Return the mode of a run: ``once``, ``until_idle`` or ``continuous``.

    Args:
        mode_flags: the modes, and whether each was asked for.
        termination: Hudi's class that ends a continuous run.

    Raises:
        click.UsageError: several were asked for.
    """
    modes = [name for name, is_asked in mode_flags.items() if is_asked]
    if len(modes) > 1:
        given_modes = " and ".join("--" + each.replace("_", "-") for each in modes)
        raise click.UsageError(f"{given_modes} were given: one of them says how long to run")
    if termination.endswith("NoNewDataTerminationStrategy"):
        return "until_idle"
    return modes[0] if modes else "once"


def _opened(
    config: Path | None,
    props: str | None,
    options: Mapping[str, str],
    command_options: Mapping[str, object],
    interval: float | None,
    attempts: int,
    storage_options: Mapping[str, object],
    stop: threading.Event,
    status_file: Path | None,
    engine: str,
) -> Ingester:
    """Return what runs the job that the command line describes."""
    from lakefmt._core.ingest.options import table_layers
    from lakefmt._core.ingest.run import Ingester, load_config, resolve_jobs

    loaded = {} if config is None else load_config(config)
    pause: Any = loaded.pop("interval", 10.0)
    above: list[Any] = [] if props is None else _property_layers(props)
    above += [("--hoodie-conf", options), ("command line", command_options)]
    tables = [[("", {})]] if config is None else table_layers(loaded, str(config))
    jobs = resolve_jobs([[*layers, *above] for layers in tables])

    def write_status(progress: IngestProgress) -> None:
        if status_file is not None:
            from lakefmt.services.status import replace_text

            replace_text(status_file, status_text(progress, as_json=status_file.suffix == ".json"))

    return Ingester(
        [job for job, _ in jobs],
        storage_options=storage_options or None,
        interval=pause if interval is None else interval,
        attempts=attempts,
        stop=stop,
        engine=_spark_engine(storage_options) if engine == "spark" else None,
        on_round=write_status,
        notes=[notes for _, notes in jobs],
    )


def _spark_engine(storage_options: Mapping[str, object]) -> RoundEngine:
    from lakefmt.spark.ingest import SparkEngine

    return SparkEngine(storage_options=storage_options or None)


def _migrate(
    origins: Mapping[str, Any],
    command_options: Mapping[str, Any],
    storage_options: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    """Copy a table of another format once."""
    from lakefmt._core.ingest.migrate import migrate

    accepted = {"table", "key", "partition_by", "ordering", "table_type", "table_version"}
    if len(origins) > 1 or set(command_options) - accepted or "table" not in command_options:
        raise click.UsageError(
            "a migration takes one --from-…, --table, --key, --partition-by, --ordering and --table-type"
        )
    more = {name: value for name, value in command_options.items() if name in accepted - {"table", "ordering"}}
    ordering = str(command_options.get("ordering", "")).split(",") if command_options.get("ordering") else []
    (source_format, source), *_ = origins.items()
    migration = migrate(
        source_format,
        source,
        command_options["table"],
        ordering=ordering,
        storage_options=storage_options or None,
        **more,
    )
    if as_json:
        from dataclasses import asdict

        print_json(asdict(migration))
    else:
        click.echo(str(migration))


def _property_layers(location: str, depth: int = 0) -> list[tuple[str, Mapping[str, object]]]:
    """Return the layers of a property file: first those that it includes, as Hudi does."""
    from lakefmt._core.formats.properties import decode_properties

    path = Path(location.removeprefix("file://"))
    if not path.is_file() or depth > _MOST_INCLUDES or path.stat().st_size > _MOST_PROPERTIES_BYTES:
        raise InvalidInputError(f"{location} is no file of properties that can be read")
    values = dict(decode_properties(path.read_bytes(), location))
    included = values.pop("include", None)
    before = [] if included is None else _property_layers(str(path.parent / included), depth + 1)
    return [*before, (location, values)]


def _plan_json(plan: Any) -> dict[str, object]:
    return {
        "table": plan.job.table,
        "source": plan.source,
        "after": plan.after,
        "checkpoint": plan.checkpoint,
        "takes": plan.summary,
        "expected_rows": plan.expected_rows,
        "columns": None if plan.columns is None else {each.name: str(each.type) for each in plan.columns},
        "origins": dict(plan.job.origins),
        "notes": list(plan.notes),
    }


# ------------------------------------------------------------------------------------------------------------- progress

_COUNTERS = {
    "rounds": "Rounds in which the source was asked.",
    "commits": "Commits.",
    "rows": "Rows written.",
    "rejected_rows": "Rows rejected.",
    "failures": "Rounds that failed.",
    "seconds": "Seconds of rounds that committed.",
}


def progress_json(progress: IngestProgress) -> dict[str, object]:
    """Return the progress as a dictionary for JSON."""
    return {"stopping": progress.is_stopping, "tables": [asdict(table) for table in progress.tables]}


def status_text(progress: IngestProgress, *, as_json: bool) -> str:
    """Return the content of a status file."""
    return (json.dumps(progress_json(progress), indent=1) if as_json else str(progress)) + "\n"


def progress_metrics(progress: IngestProgress) -> str:
    r"""Return the progress in the text format of Prometheus.

    Example:
        >>> from lakefmt._core.ingest.run import IngestProgress, JobProgress
        >>> page = progress_metrics(IngestProgress((JobProgress("a", "/lake/a", rows=3),)))
        >>> [line for line in page.splitlines() if line.startswith("lakefmt_ingest_rows_total")]
        ['lakefmt_ingest_rows_total{table="/lake/a"} 3']
    """
    lines = list[str]()
    for name, help_text in _COUNTERS.items():
        lines += [f"# HELP lakefmt_ingest_{name}_total {help_text}", f"# TYPE lakefmt_ingest_{name}_total counter"]
        lines += [
            f'lakefmt_ingest_{name}_total{{table="{_label(table.table)}"}} {getattr(table, name):.15g}'
            for table in progress.tables
        ]
    lines += ["# HELP lakefmt_ingest_failed 1 when the last round failed.", "# TYPE lakefmt_ingest_failed gauge"]
    lines += [
        f'lakefmt_ingest_failed{{table="{_label(table.table)}"}} {int(table.state == "failed")}'
        for table in progress.tables
    ]
    return "\n".join([*lines, ""])


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def page_texts(read: Callable[[], IngestProgress]) -> Mapping[str, tuple[str, Callable[[], str]]]:
    """Return the pages of a process: path → type and content."""
    return {
        "/": ("text/plain; charset=utf-8", lambda: f"{read()}\n"),
        "/status.json": ("application/json", lambda: json.dumps(progress_json(read()))),
        "/metrics": ("text/plain; version=0.0.4; charset=utf-8", lambda: progress_metrics(read())),
    }


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
