"""`lakefmt create`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from lakefmt.cli.options import Pair, as_mapping, table_argument, table_options
from lakefmt.cli.results import print_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["create"]


@click.command(short_help="Create a table.")
@table_argument
@click.option(
    "--schema",
    "schema_text",
    metavar="COLUMNS",
    help="Columns, such as 'id:string!,ts:timestamp,tags:list<string>'; `!`: not null.",
)
@click.option(
    "--schema-from",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Use the columns of a Parquet, CSV or JSON lines file; its rows are not written.",
)
@click.option("--record-key", "-k", multiple=True, metavar="COLUMN", help="Column of the record key. Repeatable.")
@click.option(
    "--partition-by", "-p", multiple=True, metavar="COLUMN", help="Column whose values make the partitions. Repeatable."
)
@click.option(
    "--ordering",
    "-o",
    multiple=True,
    metavar="COLUMN",
    help="Ordering field: of two rows with the same key, the larger value wins. Repeatable.",
)
@click.option(
    "--type", "table_type", default="cow", show_default=True, metavar="cow|mor", help="Copy-on-write or merge-on-read."
)
@click.option("--table-version", type=int, default=8, show_default=True, help="Hudi's table version: 6, 8 or 9.")
@click.option(
    "--index", default="bloom", show_default=True, help="Index: bloom, simple, global_bloom or global_simple."
)
@click.option(
    "--metadata-index",
    "indexes",
    multiple=True,
    metavar="KIND",
    help="Index of the metadata table: files, column_stats, partition_stats, bloom_filters, record_index. Repeatable.",
)
@click.option(
    "--merge",
    type=click.Choice(["event_time", "commit_time"]),
    help="Record merge mode; default: event_time with --ordering, else commit_time.",
)
@click.option("--name", help="Table name; default: the last part of the path.")
@click.option("--database", help="Database name.")
@click.option(
    "--property",
    "properties",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="Additional table property. Repeatable.",
)
@click.option(
    "--if-exists",
    type=click.Choice(["error", "open"]),
    default="error",
    show_default=True,
    help="What to do if the table exists.",
)
@table_options
def create(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    schema_text: str | None,
    schema_from: str | None,
    record_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    ordering: tuple[str, ...],
    indexes: tuple[str, ...],
    **more: object,
) -> None:
    """Create an Apache Hudi table at TABLE, a path or URL."""
    from lakefmt.schema import unreadable_by_spark
    from lakefmt.table import create_table

    if (schema_text is None) == (schema_from is None):
        raise click.UsageError("give either --schema or --schema-from")
    schema = (
        _schema_from_text(schema_text)
        if schema_text is not None
        else _schema_from_file(str(schema_from), (*record_key, *partition_by))
    )
    made = create_table(
        table,
        schema=schema,
        record_key=list(record_key) or None,
        partition_by=list(partition_by) or None,
        ordering=list(ordering) or None,
        indexes=list(indexes) or None,
        options=options,
        storage_options=storage_options,
        **more,  # type: ignore[arg-type]  # the options of this command are named as the arguments
    )
    config = made.properties
    if names := unreadable_by_spark(made.schema):
        click.echo(f"warning: Spark cannot read the time columns {', '.join(names)}", err=True)
    if as_json:
        columns = {field.name: str(field.type) for field in made.schema}
        print_json(
            {"table": made.client.store.url, "name": config.name, "version": config.version.value, "columns": columns}
        )
    else:
        click.echo(f"{config.name}: table of version {config.version.value} at {made.client.store.url}")


def _schema_from_text(text: str) -> pa.Schema:
    from lakefmt.cli.schema_text import parse_schema
    from lakefmt.errors import InvalidInputError

    try:
        return parse_schema(text)
    except InvalidInputError as error:
        raise click.BadParameter(str(error), param_hint="--schema") from None


def _schema_from_file(place: str, keys: Sequence[str]) -> pa.Schema:
    from lakefmt.cli.inputs import Source, guess_format, read_schema
    from lakefmt.schema import without_meta_columns

    how = guess_format(place)
    if how is None:
        raise click.BadParameter(
            f"the format of {place} is unknown: the name must end with .parquet, .csv or .jsonl",
            param_hint="--schema-from",
        )
    return without_meta_columns(read_schema(Source(place, how), keys))
