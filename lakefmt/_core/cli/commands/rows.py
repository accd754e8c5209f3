"""`lakefmt read`, `incremental`, `changes` and `stream` print or save rows; the others show what a table consists of.

`lakefmt consumers` looks after who reads a table as a stream. The others are `lakefmt timeline`, `lakefmt files`, `lakefmt stats` and `lakefmt explain`. All are read-only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakefmt._core.arrow_texts import csv_head, csv_lines, json_lines, text_bytes
from lakefmt._core.cli.formatters import draw_slices, draw_timeline, plain_console, print_json, write_rows
from lakefmt._core.cli.options import Partition, columns_option, open_for, table_argument, table_options
from lakefmt._core.cli.plans import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from lakefmt._core.consumers.registry import ConsumerInfo
    from lakefmt._core.consumers.stream import StreamBatch
    from lakefmt._core.filegroups.model import FileSlice
    from lakefmt._core.read.stats import TimelineEntry

__all__ = [
    "changes",
    "consumers",
    "explain",
    "files",
    "format_options",
    "incremental",
    "read",
    "stats",
    "stream",
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


@click.command(short_help="Print rows as they come.")
@table_argument
@click.option(
    "--start",
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="earliest, latest, full, an instant, an ISO date and time, or watermark=MILLISECONDS.",
)
@click.option("--end", metavar="WHERE", help="latest, an instant, an ISO date and time, or watermark=MILLISECONDS.")
@click.option("--follow", is_flag=True, help="Wait for new commits until interrupted.")
@click.option(
    "--order",
    type=click.Choice(["commit", "bucket"]),
    help="commit: one commit after the other; bucket: buckets side by side.",
)
@columns_option
@click.option("--filter", "-f", "condition", metavar="SQL", help="Condition, such as \"city = 'sf' and fare > 10\".")
@click.option("--row-kinds", is_flag=True, help="Add the column _row_kind: +I, -U, +U, -D.")
@click.option("--consumer", metavar="ID", help="Keep the progress in the table under this id, and go on from there.")
@click.option("--takeover", is_flag=True, help="With --consumer: also when another reader uses the id.")
@click.option(
    "--poll-interval",
    type=click.FloatRange(0.001, 86_400),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for new commits.",
)
@table_options
def stream(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    start: str,
    end: str | None,
    follow: bool,
    order: str | None,
    columns: str | None,
    condition: str | None,
    row_kinds: bool,
    consumer: str | None,
    takeover: bool,
    poll_interval: float,
) -> None:
    """Print the rows of TABLE commit by commit, as CSV or with --json as JSON lines; --follow waits for more.

    A table with record keys prints changes: op is i, u or d. With --consumer the next call goes on after the last commit that
    was printed to its end.
    """
    opened = open_for(table, options, storage_options)
    with opened.stream(
        _where(start),
        end=None if end is None else _where(end),
        follow=follow,
        columns=None if columns is None else [name.strip() for name in columns.split(",")],
        filter=condition,
        order=order,
        include_row_kind=row_kinds,
        consumer_id=consumer,
        mode="at_least_once",
        takeover=takeover,
        poll_interval=poll_interval,
    ) as batches:
        names: list[str] | None = None
        for batch in batches:
            names = _print_batch(batch, names, as_json=as_json)


def _where(option_value: str) -> Any:
    name, sign, number = option_value.partition("=")
    if not sign:
        return option_value
    if name != "watermark" or not number.lstrip("-").isdigit() or len(number) > 20:
        raise click.UsageError(f"{option_value[:60]!r}: watermark=MILLISECONDS is expected")
    return {"watermark": int(number)}


def _print_batch(batch: StreamBatch, names: list[str] | None, *, as_json: bool) -> list[str]:
    """Print the rows of a batch; a line with the columns comes first, and when they change."""
    columns = list(batch.rows.schema.names)
    target = sys.stdout.buffer
    if as_json:
        target.write(text_bytes(json_lines(batch.rows)))
    else:
        if columns != names:
            target.write(csv_head(batch.rows.schema).encode())
        target.write(text_bytes(csv_lines(batch.rows)))
    target.flush()
    return columns


@click.group(short_help="Who reads a table as a stream.")
def consumers() -> None:
    """List, reset and delete the consumers that keep their progress in a table."""


@consumers.command("list", short_help="List consumers and how far they are behind.")
@table_argument
@table_options
def list_consumers(
    table: str, as_json: bool, options: Mapping[str, str], storage_options: Mapping[str, object]
) -> None:
    """List the consumers of TABLE with what they have not read yet: instants, bytes, seconds."""
    for info in open_for(table, options, storage_options).consumers.list():
        if as_json:
            print_json(_as_json(info))
        else:
            click.echo(str(info))


def _as_json(info: ConsumerInfo) -> dict[str, object]:
    return {
        "id": info.id,
        "shard": info.shard,
        "next_start": info.next_start,
        "instant": info.instant,
        "mode": info.mode,
        "updated": None if info.updated is None else info.updated.isoformat(),
        "active": info.is_active,
        "expires": None if info.expires is None else info.expires.isoformat(),
        "expired": info.is_expired,
        "lag": {"instants": info.lag.instants, "bytes": info.lag.num_bytes, "seconds": round(info.lag.seconds, 3)},
    }


@consumers.command("reset", short_help="Set where a consumer goes on.")
@table_argument
@click.argument("consumer_id", metavar="ID")
@click.option(
    "--to", "where", default="earliest", show_default=True, help="earliest, latest, full, an instant or a time."
)
@click.option("--shard", metavar="I/N", help="Of one shard only.")
@click.option("--force", is_flag=True, help="Also when a reader uses the id; its next progress is refused.")
@click.option("--create", is_flag=True, help="Make the consumer if there is none of that id.")
@table_options
def reset_consumer(
    table: str,
    consumer_id: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    where: str,
    shard: str | None,
    force: bool,
    create: bool,
) -> None:
    """Set where the consumer ID of TABLE goes on; --create makes one of a new id."""
    opened = open_for(table, options, storage_options)
    opened.consumers.reset(consumer_id, where, shard=_shard(shard), force=force, create=create)
    _report(f"{consumer_id} goes on from {where}", {"reset": consumer_id}, as_json=as_json)


@consumers.command("delete", short_help="Remove consumers.")
@table_argument
@click.argument("consumer_id", metavar="ID")
@click.option("--exclude", metavar="PATTERN", help="Ids that stay, where ID is a pattern such as 'report-*'.")
@click.option("--force", is_flag=True, help="Also when a reader uses an id; its next progress is refused.")
@table_options
def delete_consumer(
    table: str,
    consumer_id: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    exclude: str | None,
    force: bool,
) -> None:
    """Remove the consumers of TABLE whose id is ID, or matches it; the table then keeps no rows for them."""
    removed = open_for(table, options, storage_options).consumers.delete(consumer_id, exclude=exclude, force=force)
    _report(f"removed: {', '.join(removed) or 'none'}", {"deleted": removed}, as_json=as_json)


def _shard(option_value: str | None) -> tuple[int, int] | None:
    if option_value is None:
        return None
    number, _, count = option_value.partition("/")
    if not (number.isdigit() and count.isdigit() and len(option_value) < 12):
        raise click.UsageError(f"--shard {option_value[:20]!r}: I/N is expected")
    return int(number), int(count)


def _report(line: str, value: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        click.echo(line)
