"""`lakefmt read`, `lakefmt incremental` and `lakefmt changes` print or save rows; the others show what a table consists of.

These are `lakefmt timeline`, `lakefmt files`, `lakefmt stats` and `lakefmt explain`. All are read-only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakefmt._core.cli.formatters import draw_slices, draw_timeline, plain_console, print_json, write_rows
from lakefmt._core.cli.options import Partition, columns_option, open_for, table_argument, table_options
from lakefmt._core.cli.plans import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from lakefmt._core.filegroups.model import FileSlice
    from lakefmt._core.read.stats import TimelineEntry

__all__ = [
    "changes",
    "explain",
    "files",
    "format_options",
    "incremental",
    "read",
    "stats",
    "timeline",
    "write_output",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FORMAT_OF_SUFFIX = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def format_options(command: _Command) -> _Command:
    """Add the options of what is printed: ``--output``, ``--format``, ``--limit``."""
    for add in (
        click.option(
            "--output",
            "-O",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Write to FILE; it appears when it is complete.",
        ),
        click.option(
            "--format",
            "how",
            type=click.Choice(["table", "csv", "jsonl", "parquet"]),
            help="Output format; default: from the name of --output, else table.",
        ),
        click.option(
            "--limit",
            "-n",
            type=click.IntRange(min=0),
            help="Maximum number of rows; default: 20 for format table, else no limit.",
        ),
    ):
        command = add(command)
    return command


def _row_options(command: _Command) -> _Command:
    """Add the options that select rows, columns and the output."""
    meta = click.option("--meta-columns", is_flag=True, help="Include the five _hoodie_ meta columns.")
    return _image_options(meta(command))


def _range_options(command: _Command) -> _Command:
    """Add the options that select a range of instants."""
    start = click.option(
        "--start",
        required=True,
        metavar="INSTANT",
        help="Exclusive: a completion time, or an ISO date and time; 000: from the beginning.",
    )
    return start(click.option("--end", metavar="INSTANT", help="Inclusive; default: now.")(command))


def _image_options(command: _Command) -> _Command:
    """Add the options of `_row_options`, without meta columns."""
    for add in (
        table_options,
        format_options,
        click.option(
            "--filter", "-f", "condition", metavar="SQL", help="Condition, such as \"city = 'sf' and fare > 10\"."
        ),
        columns_option,
    ):
        command = add(command)
    return command


@click.command(short_help="Read rows.")
@table_argument
@click.option(
    "--as-of", metavar="INSTANT", help="The table as it was: an instant or an ISO date and time with its zone."
)
@click.option(
    "--schema-of",
    type=click.Choice(["then", "now"]),
    default="then",
    show_default=True,
    help="With --as-of: the columns of then or of now.",
)
@click.option(
    "--query",
    type=click.Choice(["snapshot", "read_optimized"]),
    default="snapshot",
    show_default=True,
    help="Query type.",
)
@_row_options
def read(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    columns: str | None,
    condition: str | None,
    meta_columns: bool,
    as_of: str | None,
    schema_of: str,
    query: str,
    **out: Any,
) -> None:
    """Read rows of TABLE; --json prints one object per line."""
    opened = open_for(table, options, storage_options)
    reader = opened.scan(
        _column_names(columns), condition, as_of, query, meta_columns=meta_columns, schema_of=schema_of
    )
    write_output(reader.schema, reader, as_json=as_json, **out)


@click.command(short_help="Read what was written since an instant.")
@table_argument
@_range_options
@_row_options
def incremental(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    columns: str | None,
    condition: str | None,
    meta_columns: bool,
    start: str,
    end: str | None,
    **out: Any,
) -> None:
    """Read the rows of TABLE written after --start, the latest image of each.

    The --start of the next call is printed on stderr, as `next start: INSTANT`.
    """
    opened = open_for(table, options, storage_options)
    rows = opened.incremental(start, end, _column_names(columns), condition, meta_columns=meta_columns)
    write_output(rows.schema.remove_metadata(), rows.replace_schema_metadata(None).to_batches(), as_json=as_json, **out)
    _print_next_start(rows.schema)


@click.command(short_help="Read every change since an instant.")
@table_argument
@_range_options
@_image_options
def changes(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    columns: str | None,
    condition: str | None,
    start: str,
    end: str | None,
    how: str | None,
    output: Path | None,
    limit: int | None,
) -> None:
    """Read what every commit after --start inserted, updated and deleted: op, ts_ms, and the rows before and after.

    CSV has one column for each column of both images. The --start of the next call is printed on stderr, as `next start: INSTANT`.
    """
    opened = open_for(table, options, storage_options)
    changed_rows = opened.changes(start, end, _column_names(columns), condition)
    rows = changed_rows.replace_schema_metadata(None)
    if _output_format(how, output, as_json=as_json) == "csv":
        rows = rows.flatten()
    write_output(rows.schema, rows.to_batches(), as_json=as_json, how=how, output=output, limit=limit)
    _print_next_start(changed_rows.schema)


def _print_next_start(schema: pa.Schema) -> None:
    """Print the --start of the next call, which the rows carry."""
    from lakefmt._core.read.snapshot import NEXT_START

    click.echo(f"next start: {schema.metadata[NEXT_START].decode()}", err=True)


def _column_names(columns: str | None) -> list[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",")]


def write_output(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    as_json: bool,
    how: str | None,
    output: Path | None,
    limit: int | None,
) -> None:
    """Print rows or write them to a file, in the chosen format."""
    format_name = _output_format(how, output, as_json=as_json)
    if format_name == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("Parquet cannot be printed on a terminal: add --output FILE or use a pipe")
    with progress("reading") as count:
        write_rows(schema, batches, format_name, output, limit, count)


def _output_format(how: str | None, output: Path | None, *, as_json: bool) -> str:
    if as_json:
        if how not in (None, "jsonl"):
            raise click.UsageError("--json prints JSON lines: remove --format")
        return "jsonl"
    if how is None and output is not None:
        how = _FORMAT_OF_SUFFIX.get(output.suffix.lower())
        if how is None:
            raise click.UsageError(f"the format of {output} is unknown: add --format")
    return how or "table"


@click.command(short_help="Show the timeline.")
@table_argument
@click.option("--limit", "-n", metavar="N", type=click.IntRange(min=1), help="Only the newest N instants.")
@click.option("--archived", is_flag=True, help="Also show the archived timeline.")
@click.option("--follow", "-f", is_flag=True, help="Print new instants until interrupted.")
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=2.0, help="Polling interval of --follow in seconds; default: 2."
)
@table_options
def timeline(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    limit: int | None,
    archived: bool,
    follow: bool,
    every: float,
) -> None:
    """Show the instants of TABLE, oldest first: action, state, rows, files, bytes and duration.

    --json prints an array, with --follow one object per line.
    """
    from lakefmt._core.read.stats import TimelineView, follow_timeline

    opened = open_for(table, options, storage_options)
    if follow:
        _print_new_instants(follow_timeline(opened.client, every), limit, as_json)
        return
    entries = TimelineView.load(opened.client, archived=archived, limit=limit).entries
    if as_json:
        print_json([dataclasses.asdict(entry) for entry in entries])
    else:
        plain_console().print(draw_timeline(entries))


def _print_new_instants(events: Iterable[Sequence[TimelineEntry]], limit: int | None, as_json: bool) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        for number, event in enumerate(events):
            new = event[-limit:] if limit and not number else event
            if as_json:
                for entry in new:
                    print_json(dataclasses.asdict(entry))
            elif new or not number:
                plain_console().print(draw_timeline(new, titles=not number))


@click.command(short_help="Show the files of the latest snapshot.")
@table_argument
@click.option(
    "--partition",
    "partitions",
    type=Partition(),
    multiple=True,
    metavar="PARTITION",
    help="Only this partition: path, value or JSON object of values. Repeatable.",
)
@table_options
def files(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    partitions: tuple[str | Mapping[str, object], ...],
) -> None:
    """Show the latest file slices of TABLE with their sizes; --json prints an array."""
    opened = open_for(table, options, storage_options)
    slices = opened.file_groups(list(partitions) or None)
    if as_json:
        print_json([_slice_as_json(file_slice) for file_slice in slices])
    else:
        plain_console().print(draw_slices(opened.client.store.url, slices))


def _slice_as_json(file_slice: FileSlice) -> dict[str, object]:
    return {
        "partition": file_slice.partition,
        "file_id": file_slice.file_id,
        "instant": file_slice.instant,
        "size_bytes": file_slice.size_bytes,
        "base_file": None if file_slice.base is None else file_slice.base.path,
        "log_files": [log.path for log in file_slice.logs],
    }


@click.command(short_help="Count rows, files and bytes.")
@table_argument
@table_options
def stats(table: str, as_json: bool, options: Mapping[str, str], storage_options: Mapping[str, object]) -> None:
    """Count the rows, files and bytes of TABLE's latest snapshot."""
    table_stats = open_for(table, options, storage_options).stats()
    if as_json:
        print_json(dataclasses.asdict(table_stats))
    else:
        click.echo(str(table_stats))


@click.command(short_help="Show what a filtered read opens.")
@table_argument
@click.option("--filter", "-f", "condition", metavar="SQL", help="Condition, such as \"city = 'sf' and fare > 10\".")
@click.option(
    "--as-of", metavar="INSTANT", help="The table as it was: an instant or an ISO date and time with its zone."
)
@click.option(
    "--query",
    type=click.Choice(["snapshot", "read_optimized"]),
    default="snapshot",
    show_default=True,
    help="Query type.",
)
@table_options
def explain(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    condition: str | None,
    as_of: str | None,
    query: str,
) -> None:
    """Show which files of TABLE `lakefmt read` with the same options opens, and what leaves out the rest."""
    report = open_for(table, options, storage_options).explain(condition, as_of, query)
    if as_json:
        print_json(dataclasses.asdict(report))
    else:
        click.echo(str(report))
