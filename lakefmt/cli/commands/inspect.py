"""`lakefmt timeline`, `lakefmt files`, `lakefmt stats` and `lakefmt explain`: read-only."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt.cli.options import Partition, open_for, table_argument, table_options
from lakefmt.cli.results import print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lakefmt.filegroups.model import FileSlice
    from lakefmt.filegroups.table_client import TableClient

__all__ = ["explain", "files", "stats", "timeline"]


def _draw(drawing: RenderableType) -> None:
    from lakefmt.cli.render import plain_console

    plain_console().print(drawing)


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
    from lakefmt.cli.render import draw_timeline
    from lakefmt.read.stats import TimelineView

    opened = open_for(table, options, storage_options)
    if follow:
        _follow(opened.client, every, limit, as_json)
        return
    entries = TimelineView.load(opened.client, archived=archived, limit=limit).entries
    if as_json:
        print_json([dataclasses.asdict(entry) for entry in entries])
    else:
        _draw(draw_timeline(entries))


def _follow(client: TableClient, every: float, limit: int | None, as_json: bool) -> None:
    from lakefmt.cli.render import draw_timeline
    from lakefmt.read.stats import follow_timeline

    with contextlib.suppress(KeyboardInterrupt):
        for number, event in enumerate(follow_timeline(client, every)):
            new = event[-limit:] if limit and not number else event
            if as_json:
                for entry in new:
                    print_json(dataclasses.asdict(entry))
            elif new or not number:
                _draw(draw_timeline(new, titles=not number))


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
    from lakefmt.cli.render import draw_slices

    opened = open_for(table, options, storage_options)
    slices = opened.file_groups(list(partitions) or None)
    if as_json:
        print_json([_slice_as_json(file_slice) for file_slice in slices])
    else:
        _draw(draw_slices(opened.client.store.url, slices))


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
