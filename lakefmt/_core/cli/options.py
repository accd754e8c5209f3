"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from lakefmt._core.table import Table

    _ParamType = click.ParamType[tuple[str, object]]
else:
    _ParamType = click.ParamType  # takes no type parameter before click 8.3

__all__ = [
    "Pair",
    "as_mapping",
    "columns_option",
    "json_option",
    "open_for",
    "storage_option",
    "table_argument",
    "table_options",
    "wants_json",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_JSON = "lakefmt.cli.json"


class Pair(_ParamType):
    """``key=value``. Messages never show the value: it may be a secret."""

    name = "key=value"

    def __init__(self, *, typed: bool = False) -> None:
        """With `typed`, ``true``, ``false`` and JSON objects are parsed; other values stay text."""
        self._typed = typed

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, object]:
        """Return key and value."""
        if isinstance(value, tuple):
            return value
        key, sign, value_text = str(value).partition("=")
        if not sign or not key.strip():
            self.fail("expected key=value", param, ctx)
        return key.strip(), self._value(value_text, param, ctx) if self._typed else value_text

    def _value(self, value_text: str, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if value_text in ("true", "false"):
            return value_text == "true"
        if not value_text.startswith("{"):
            return value_text
        try:
            return json.loads(value_text)
        except ValueError:
            self.fail("a value that begins with { must be a JSON object", param, ctx)


def as_mapping(ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, object], ...]) -> dict[str, object]:
    """Return repeated pairs as a mapping; a repeated key is wrong usage."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise click.BadParameter("a key is repeated", ctx, param)
    return mapping


def _remember_json(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    ctx.meta[_JSON] = value
    return value


def wants_json(ctx: click.Context) -> bool:
    """Say whether the command was called with ``--json``."""
    return bool(ctx.meta.get(_JSON))


class Partition(_ParamType):
    """A partition: a path, a value, or a JSON object of the values of partition columns."""

    name = "partition"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a JSON object; other text stays text."""
        if not isinstance(value, str) or not value.startswith("{"):
            return value
        try:
            parsed = json.loads(value)
        except ValueError:
            self.fail(f'{value!r} is not a JSON object; an example is {{"city": "sf"}}', param, ctx)
        return parsed


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    # Eager: errors in later options are printed as JSON, too.
    is_eager=True,
    callback=_remember_json,
    help="Print JSON; errors are JSON objects on stderr.",
)

#: Repeated ``--storage-option KEY=VALUE``.
storage_option = click.option(
    "--storage-option",
    "storage_options",
    type=Pair(typed=True),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="Credential or setting of the store, passed to fsspec; never shown. Repeatable.",
)

_option = click.option(
    "--option",
    "options",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="Setting, such as hoodie.parquet.max.file.size=1048576 (docs/settings.md). Repeatable.",
)


#: The path or URL of the table.
table_argument = click.argument("table")


def table_options(command: _Command) -> _Command:
    """Add the options of every command on a table: ``--json``, ``--option``, ``--storage-option``."""
    for add in (storage_option, _option, json_option):
        command = add(command)
    return command


def open_for(table: str, options: Mapping[str, str], storage_options: Mapping[str, object]) -> Table:
    """Open the table of a command."""
    from lakefmt._core.table import open_table

    return open_table(table, options=options, storage_options=storage_options)


def columns_option(command: _Command) -> _Command:
    """Add the option that chooses columns: given several times it takes all of them."""
    return click.option(
        "--columns",
        "-c",
        multiple=True,
        callback=lambda _context, _option, values: ",".join(values) or None,
        metavar="NAMES",
        help="Columns to read, separated by commas.",
    )(command)
