"""`lakefmt read`, `lakefmt incremental` and `lakefmt changes`: print or save rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["changes", "incremental", "read"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


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
        click.option(
            "--filter", "-f", "condition", metavar="SQL", help="Condition, such as \"city = 'sf' and fare > 10\"."
        ),
        click.option("--columns", "-c", metavar="NAMES", help="Columns to read, separated by commas."),
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
    reader = opened.scan(_names(columns), condition, as_of, query, meta_columns=meta_columns, schema_of=schema_of)
    _write(reader.schema, reader, as_json=as_json, **out)


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
    from lakefmt.read.snapshot import NEXT_START

    opened = open_for(table, options, storage_options)
    rows = opened.incremental(start, end, _names(columns), condition, meta_columns=meta_columns)
    _write(rows.schema.remove_metadata(), rows.replace_schema_metadata(None).to_batches(), as_json=as_json, **out)
    click.echo(f"next start: {rows.schema.metadata[NEXT_START].decode()}", err=True)


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
    from lakefmt.read.snapshot import NEXT_START

    opened = open_for(table, options, storage_options)
    changed_rows = opened.changes(start, end, _names(columns), condition)
    rows = changed_rows.replace_schema_metadata(None)
    if _format(how, output, as_json=as_json) == "csv":
        rows = rows.flatten()
    _write(rows.schema, rows.to_batches(), as_json=as_json, how=how, output=output, limit=limit)
    click.echo(f"next start: {changed_rows.schema.metadata[NEXT_START].decode()}", err=True)


def _names(columns: str | None) -> list[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",")]


def _write(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    as_json: bool,
    how: str | None,
    output: Path | None,
    limit: int | None,
) -> None:
    from lakefmt.cli.outputs import write_rows

    chosen = _format(how, output, as_json=as_json)
    if chosen == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("Parquet cannot be printed on a terminal: add --output FILE or use a pipe")
    with progress("reading") as count:
        write_rows(schema, batches, chosen, output, limit, count)


def _format(how: str | None, output: Path | None, *, as_json: bool) -> str:
    if as_json:
        if how not in (None, "jsonl"):
            raise click.UsageError("--json prints JSON lines: remove --format")
        return "jsonl"
    if how is None and output is not None:
        how = _SUFFIXES.get(output.suffix.lower())
        if how is None:
            raise click.UsageError(f"the format of {output} is unknown: add --format")
    return how or "table"
