"""`lakefmt advise`: which index, table type, services and file sizes a table should have."""

from __future__ import annotations

from collections.abc import Mapping

import click

from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import print_json

__all__ = ["advise"]


@click.command(short_help="Advise on index, table type, services and file sizes.")
@table_argument
@click.option(
    "--reads-per-commit",
    type=click.FloatRange(min=0, max=1e6),
    default=1.0,
    show_default=True,
    metavar="N",
    help="Full reads between two commits.",
)
@click.option(
    "--filter-column", "columns", multiple=True, metavar="COLUMN", help="Readers filter by COLUMN. Repeatable."
)
@table_options
def advise(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    reads_per_commit: float,
    columns: tuple[str, ...],
) -> None:
    """Say what TABLE should be by its commits and measured costs, with reasons and the settings to paste.

    No row is read and nothing is changed.
    """
    opened = open_for(table, options, storage_options)
    advice = opened.advise(reads_per_commit=reads_per_commit, filter_columns=list(columns))
    print_json(advice.as_json()) if as_json else click.echo(str(advice))
