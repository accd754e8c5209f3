"""`lakefmt tables` lists the tables below a folder or in a catalog, `lakefmt sql` asks them by SQL of DuckDB: both are read-only.

`lakefmt sync` makes a table's entries in a catalog what the table says.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakefmt._core.cli.commands.rows import format_options, write_output
from lakefmt._core.cli.formatters import plain_console, print_json, print_lines, printable
from lakefmt._core.cli.options import open_for, table_argument, table_options
from lakefmt.errors import InvalidInputError, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.catalogs.entries import CatalogTable

__all__ = ["sql", "sync", "tables"]


@click.command(short_help="List the tables below a folder, or in a catalog.")
@click.argument("path", default=".")
@click.option("--rows", "count_rows", is_flag=True, help="Also count rows of base files: every footer is read.")
@table_options
def tables(
    path: str, as_json: bool, options: Mapping[str, str], storage_options: Mapping[str, object], count_rows: bool
) -> None:
    """List the tables below the folder or URL PATH with type, version and newest commit; default: the working directory.

    PATH may be a catalog, with or without a database: thrift://host:9083/trips, glue:, glue://region/trips.
    """
    from lakefmt._core.catalogs.sync import catalog_tables, is_catalog
    from lakefmt.find_tables import list_tables

    if is_catalog(path):
        if count_rows:
            raise click.UsageError("--rows needs a folder: a catalog does not count rows")
        _print_entries(path, catalog_tables(path), as_json=as_json)
        return

    listed = list_tables(path, storage_options=storage_options, count_rows=count_rows)
    if as_json:
        print_json([dataclasses.asdict(each) for each in listed])
        return
    if not listed:
        click.echo(f"no tables below {printable(path)}")
        return
    from rich.table import Table as DrawnTable

    drawn = DrawnTable(box=None, pad_edge=False)
    for title in ("table", "type", "version", *(["rows"] if count_rows else []), "newest commit"):
        drawn.add_column(title, justify="right" if title == "rows" else "left")
    for each in listed:
        rows = [f"{each.rows:,}" if each.rows is not None else ""] if count_rows else []
        newest = printable(each.problem) if each.problem else each.latest_commit or "none"
        drawn.add_row(printable(each.name), each.table_type or "", str(each.version or ""), *rows, newest)
    plain_console().print(drawn)


def _print_entries(address: str, entries: Sequence[CatalogTable], *, as_json: bool) -> None:
    rows = [
        {
            "name": f"{each.database}.{each.name}",
            "location": each.location,
            "synced": each.properties.get("last_commit_time_sync"),
        }
        for each in entries
    ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo(f"no Hudi tables in {printable(address)}")
        return
    from rich.table import Table as DrawnTable

    drawn = DrawnTable(box=None, pad_edge=False)
    for title in ("table", "synced up to", "location"):
        drawn.add_column(title)
    for row in rows:
        drawn.add_row(printable(str(row["name"])), printable(row["synced"] or "never"), printable(str(row["location"])))
    plain_console().print(drawn)


@click.command(short_help="Make a table's entry in a catalog what the table says.")
@table_argument
@click.argument("catalog")
@click.option("--database", help="The database of the entry; default: the table's, or default.")
@click.option("--name", help="The name of the entry; default: the table's.")
@table_options
def sync(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    catalog: str,
    database: str | None,
    name: str | None,
) -> None:
    """Make the entries of TABLE in CATALOG say what the table says now; repeated, it changes nothing.

    CATALOG is thrift://host:9083 of a Hive metastore, glue: or glue://region.
    """
    result = open_for(table, options, storage_options).sync(catalog, database=database, name=name)
    if as_json:
        print_json(dataclasses.asdict(result))
        return
    print_lines(str(result))


@click.command(short_help="Ask tables by SQL.")
@click.argument("query")
@click.argument("places", metavar="[[NAME=]TABLE]...", nargs=-1)
@format_options
@table_options
def sql(
    query: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    places: tuple[str, ...],
    how: str | None,
    output: Path | None,
    limit: int | None,
) -> None:
    """Run QUERY, SQL of DuckDB, over tables, and print what it returns; --json prints one object per line.

    One TABLE is `t` in the query, others have the name before `=`. Without any, the tables below the working directory have
    the names of their folders.
    """
    if places and not re.search(r"\s", query.strip()):
        raise click.UsageError(f"QUERY comes first, then its tables: {query!r} is no SQL")
    try:
        import duckdb
    except ModuleNotFoundError:
        raise UnsupportedFeature("lakefmt sql needs DuckDB: pip install 'lakefmt[duckdb]'") from None
    with duckdb.connect() as connection:
        for name, path in _named_tables(places, query, storage_options).items():
            if name.lower() in query.lower():  # what the query does not name is not read
                open_for(path, options, storage_options).to_duckdb(connection, name)
        try:
            answer: Any = connection.sql(query)  # None: it returns no rows
            rows = None if answer is None else answer.to_arrow_table()
        except duckdb.Error as error:
            raise InvalidInputError(f"DuckDB: {error}") from None
        if rows is not None:
            write_output(rows.schema, rows.to_batches(), as_json=as_json, how=how, output=output, limit=limit)


def _named_tables(
    table_arguments: tuple[str, ...], query: str, storage_options: Mapping[str, object]
) -> dict[str, str]:
    """Return the path of each table by its name in the query."""
    if not table_arguments:
        from lakefmt.find_tables import find_tables

        path_and_name_pairs = list(find_tables(".", storage_options=storage_options))
        by_name: dict[str, list[str]] = {}
        for path, name in path_and_name_pairs:
            by_name.setdefault(name.rpartition("/")[2], []).append(path)
        for name, paths in by_name.items():
            if len(paths) > 1 and name.lower() in query.lower():
                raise click.UsageError(f"{name} is {' and '.join(paths)}: say which, such as {name}={paths[0]}")
        return {name: paths[0] for name, paths in by_name.items()}
    named_paths = [_name_and_path(argument, alone=len(table_arguments) == 1) for argument in table_arguments]
    if len(dict(named_paths)) < len(named_paths):
        raise click.UsageError("give each table a name of its own: trips=./trips")
    return dict(named_paths)


def _name_and_path(argument: str, *, alone: bool) -> tuple[str, str]:
    name, sign, path = argument.partition("=")
    if sign and name.isidentifier():
        return name, path
    return ("t" if alone else argument.rstrip("/").rpartition("/")[2]), argument
