"""`lakefmt alter`: what becomes of a table's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakefmt.cli.confirm import confirm, yes_option
from lakefmt.cli.options import open_for, table_argument, table_options
from lakefmt.cli.results import print_result

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["alter"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _place_options(command: _Command) -> _Command:
    """Add the options that say where a column goes."""
    after = click.option("--after", metavar="COLUMN", help="The column behind which it goes.")
    before = click.option("--before", metavar="COLUMN", help="The column before which it goes.")
    return after(before(command))


_comment_option = click.option("--comment", metavar="TEXT", help="What the column holds.")


@click.group(short_help="Add, drop, rename and change columns.")
def alter() -> None:
    """Columns of a table: what may become of them is in docs/schema.md.

    Names have dots for nested fields, `element` for the elements of a list and `value` for the values of a map.
    """


@alter.command("add-column", short_help="Add a column.")
@table_argument
@click.argument("name")
@click.argument("kind", metavar="TYPE")
@_place_options
@_comment_option
@table_options
def add_column_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    name: str,
    kind: str,
    after: str | None,
    before: str | None,
    comment: str | None,
) -> None:
    """Add the column NAME of TYPE, such as `int`, `decimal(10,2)` or `list<string>`, to TABLE; it is null in all rows."""
    made = open_for(table, options, storage_options).alter
    print_result(made.add_column(name, _parsed_type(kind), after, before=before, comment=comment), as_json)


@alter.command("drop-column", short_help="Drop a column.")
@table_argument
@click.argument("name")
@yes_option
@table_options
def drop_column_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    name: str,
    yes: bool,
) -> None:
    """Drop the column NAME of TABLE; a column that is added later under its name does not get its values.

    The command asks for confirmation. A rollback of its instant brings the values back.
    """
    alteration = open_for(table, options, storage_options).alter
    alteration.drop_column(name, dry_run=True)
    if not yes:
        confirm()
    print_result(alteration.drop_column(name), as_json)


@alter.command("rename-column", short_help="Rename a column.")
@table_argument
@click.argument("old")
@click.argument("new")
@table_options
def rename_column_command(
    table: str, as_json: bool, options: Mapping[str, str], storage_options: Mapping[str, object], old: str, new: str
) -> None:
    """Rename the column OLD of TABLE to NEW; it keeps its values."""
    print_result(open_for(table, options, storage_options).alter.rename_column(old, new), as_json)


@alter.command("update-column", short_help="Change a column's type, nullability, comment or place.")
@table_argument
@click.argument("name")
@click.option("--type", "kind", metavar="TYPE", help="A wider type, such as long, double or string.")
@click.option("--nullable", is_flag=True, help="Let a required column hold nulls.")
@_comment_option
@_place_options
@table_options
def update_column_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    name: str,
    kind: str | None,
    nullable: bool,
    comment: str | None,
    after: str | None,
    before: str | None,
) -> None:
    """Change the column NAME of TABLE."""
    result = open_for(table, options, storage_options).alter.update_column(
        name,
        type=None if kind is None else _parsed_type(kind),
        nullable=True if nullable else None,
        comment=comment,
        after=after,
        before=before,
    )
    print_result(result, as_json)


def _parsed_type(text: str) -> pa.DataType:
    # Imported here: pyarrow takes long to import, and `--help` need not wait for it.
    from lakefmt.cli.schema_text import parse_schema

    return parse_schema(f"column:{text}").field(0).type
