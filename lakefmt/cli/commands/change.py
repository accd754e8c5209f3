"""`lakefmt write` and `lakefmt delete`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lakefmt.cli.options import Pair, Partition, as_mapping, open_for, table_argument, table_options
from lakefmt.cli.progress import progress
from lakefmt.cli.results import print_result
from lakefmt.data_classes import replace

if TYPE_CHECKING:
    import pyarrow as pa

    from lakefmt.cli.inputs import Source
    from lakefmt.table import Table

__all__ = ["delete", "write"]

_FORMAT = click.Choice(["parquet", "csv", "jsonl"])
_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)
_metadata_option = click.option(
    "--commit-metadata",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="Text to store in the commit. Repeatable.",
)


@click.command(short_help="Write rows: upsert, insert or bulk_insert.")
@table_argument
@click.argument("inputs", nargs=-1, type=_FILE)
@click.option(
    "--operation",
    type=click.Choice(["upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"]),
    default="upsert",
    show_default=True,
    help="Write operation; bulk_insert streams the rows in bounded memory.",
)
@click.option(
    "--format", "how", type=_FORMAT, help="Input format; default: from the file name. Required for standard input."
)
@click.option("--delimiter", default=",", show_default=True, help="CSV delimiter.")
@click.option(
    "--null",
    "nulls",
    multiple=True,
    metavar="TEXT",
    help="Text that means null in CSV, in addition to an empty cell. Repeatable.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="upsert: columns may be missing, and stored values stay. In JSON lines: a field that no line has.",
)
@click.option(
    "--drop-duplicates",
    is_flag=True,
    help="insert, bulk_insert: skip rows whose key is stored already or appears twice.",
)
@click.option(
    "--sort",
    type=click.Choice(["none", "partition", "global"]),
    default="none",
    show_default=True,
    help="bulk_insert: sort order of the rows.",
)
@click.option(
    "--schema-change",
    type=click.Choice(["add", "strict"]),
    default="add",
    show_default=True,
    help="Add new columns to the table, or refuse them.",
)
@click.option(
    "--create", is_flag=True, help="Create the table first if there is none; it gets the columns of the rows."
)
@click.option(
    "--record-key", "-k", multiple=True, metavar="COLUMN", help="--create: column of the record key. Repeatable."
)
@click.option(
    "--partition-by",
    "-p",
    multiple=True,
    metavar="COLUMN",
    help="--create: column whose values make the partitions. Repeatable.",
)
@click.option(
    "--ordering",
    "-o",
    multiple=True,
    metavar="COLUMN",
    help="--create: ordering field; of two rows with the same key, the larger value wins. Repeatable.",
)
@click.option(
    "--type",
    "table_type",
    type=click.Choice(["cow", "mor"]),
    help="--create: copy-on-write (default) or merge-on-read.",
)
@_metadata_option
@table_options
def write(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    inputs: tuple[str, ...],
    operation: str,
    how: str | None,
    delimiter: str,
    nulls: tuple[str, ...],
    partial: bool,
    drop_duplicates: bool,
    sort: str,
    schema_change: str,
    commit_metadata: Mapping[str, str],
    create: bool,
    **new: Any,
) -> None:
    """Write the rows of INPUTS (Parquet, CSV or JSON lines; `-` or none: standard input) to TABLE.

    With --create -k COLUMN a table that is not there is created first.
    """
    from lakefmt.cli.inputs import STDIN, open_batches
    from lakefmt.create_and_write import write_table

    if len(delimiter) != 1:
        raise click.BadParameter("must be one character", param_hint="--delimiter")
    extra = _extra(operation, partial=partial, drop_duplicates=drop_duplicates, sort=sort)
    sources = [_source(place, how, delimiter, nulls, partial) for place in inputs or (STDIN,)]
    creation: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in new.items() if value
    }
    if creation and not create:
        raise click.UsageError(f"--{next(iter(creation)).replace('_', '-')} needs --create")
    schema = _schema_of(table, options, storage_options, create=create)
    replaces = operation == "insert_overwrite_table"
    with progress(operation) as count:
        result = write_table(
            table,
            open_batches(sources, schema, count, keys=(*new["record_key"], *new["partition_by"])),
            mode="overwrite" if replaces else "append",
            operation=None if replaces else operation,
            storage_options=storage_options,
            options=options,
            schema_change=schema_change,
            commit_metadata=commit_metadata,
            **creation,
            **extra,
        )
    print_result(result, as_json)


def _schema_of(
    table: str, options: Mapping[str, str], storage_options: Mapping[str, object], *, create: bool
) -> pa.Schema:
    """Return the columns of a table; none of one that is to be created.

    Raises:
        TableNotFound: there is no table; the message says how to create it.
    """
    import pyarrow as pa

    from lakefmt.errors import TableNotFound
    from lakefmt.storage.redaction import printable_url

    try:
        return open_for(table, options, storage_options).schema
    except TableNotFound as error:
        if create:
            return pa.schema([])
        hint = "to create it, add --create and its record key, such as --create -k id (lakefmt create has more options)"
        raise TableNotFound(f"no table at {printable_url(table)}: {hint}") from error


#: The default of each option that only some operations take, and these operations.
_EXTRA = {
    "partial": (False, ("upsert",)),
    "drop_duplicates": (False, ("insert", "bulk_insert")),
    "sort": ("none", ("bulk_insert",)),
}


def _extra(operation: str, **given: object) -> dict[str, Any]:
    """Return the options that differ from their default; raise if the operation does not take one."""
    asked = {name: value for name, value in given.items() if value != _EXTRA[name][0]}
    for name in asked:
        if operation not in _EXTRA[name][1]:
            option, where = f"--{name.replace('_', '-')}", " or ".join(_EXTRA[name][1])
            raise click.UsageError(f"{option} needs --operation {where}")
    return asked


def _source(
    place: str, how: str | None, delimiter: str = ",", nulls: tuple[str, ...] = (), absent_is_missing: bool = False
) -> Source:
    from lakefmt.cli.inputs import STDIN, Source, guess_format

    chosen = how or guess_format(place)
    if chosen is None:
        what = "standard input has no file name" if place == STDIN else f"the format of {place} is unknown"
        raise click.UsageError(f"{what}: add --format")
    return Source(place, chosen, delimiter, nulls, absent_is_missing)


@click.command(short_help="Delete rows by key or by filter.")
@table_argument
@click.option(
    "--key", "keys", multiple=True, help="Record key; with several key columns a JSON object of them. Repeatable."
)
@click.option(
    "--keys-file",
    type=_FILE,
    metavar="FILE",
    help="Parquet, CSV or JSON lines file with the key columns; `-`: standard input.",
)
@click.option("--format", "how", type=_FORMAT, help="Format of the keys file; default: from its name.")
@click.option("--filter", "-f", "condition", metavar="SQL", help="Condition, such as \"city = 'sf' and fare > 10\".")
@click.option(
    "--partition",
    "partitions",
    type=Partition(),
    multiple=True,
    metavar="PARTITION",
    help="Delete in this partition only (path, value or JSON object of values); alone: delete the whole partition. Repeatable.",
)
@_metadata_option
@table_options
def delete(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    keys: tuple[str, ...],
    keys_file: str | None,
    how: str | None,
    condition: str | None,
    partitions: tuple[str | Mapping[str, object], ...],
    commit_metadata: Mapping[str, str],
) -> None:
    """Delete rows of TABLE by key or by condition, or delete whole partitions."""
    asked = sum((bool(keys), keys_file is not None, condition is not None))
    if asked > 1 or not (asked or partitions):
        raise click.UsageError("give one of --key, --keys-file and --filter, or --partition alone")
    opened = open_for(table, options, storage_options)
    with progress("delete"):
        if not asked:
            result = opened.delete_partitions(list(partitions), commit_metadata=commit_metadata)
        else:
            what = _typed_keys(opened, keys) if keys else condition
            what = _keys_of_file(opened, _source(keys_file, how)) if keys_file is not None else what
            result = opened.delete(what, partitions=list(partitions) or None, commit_metadata=commit_metadata)
    print_result(result, as_json)


def _typed_keys(table: Table, keys: tuple[str, ...]) -> pa.Table | pa.Array:
    """Return the keys of the command line in the types of the key columns."""
    import pyarrow as pa

    from lakefmt.cli.inputs import parse_texts
    from lakefmt.schema.types import field_at

    fields = table.properties.record_key_fields
    types = {name: pa.string() if (field := field_at(table.schema, name)) is None else field.type for name in fields}
    if len(fields) == 1:
        return parse_texts(fields[0], pa.array(keys), types[fields[0]])
    columns: dict[str, list[str]] = {name: [] for name in fields}
    for key in keys:
        for name, value in _key_object(key, fields).items():
            columns[name].append(value)
    return pa.table({n: parse_texts(n, pa.array(v, pa.string()), types[n]) for n, v in columns.items()})


def _key_object(text: str, fields: tuple[str, ...]) -> dict[str, str]:
    expected = f"must be a JSON object with {', '.join(fields)}"
    try:
        key = json.loads(text)
    except ValueError:
        raise click.BadParameter(expected, param_hint="--key") from None
    if not isinstance(key, dict) or set(key) != set(fields):
        raise click.BadParameter(expected, param_hint="--key")
    if any(value is None or isinstance(value, dict | list) for value in key.values()):
        raise click.BadParameter("the values of a key must be texts, numbers, true or false", param_hint="--key")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in key.items()}


def _keys_of_file(table: Table, source: Source) -> pa.Table:
    import pyarrow as pa

    from lakefmt.cli.inputs import open_batches
    from lakefmt.schema.types import field_at

    spec = table.client.key_spec(table.properties)
    named = (*spec.record_key_fields, *(field.name for field in spec.partition_fields))
    names = dict.fromkeys(name.split(".", 1)[0] for name in named)
    inner = [
        (name, field.type) for name in named if "." in name and (field := field_at(table.schema, name)) is not None
    ]
    kinds = pa.schema([*(table.schema.field(name) for name in names), *inner])
    # Without partition columns the keys are deleted in every partition; null columns would name a partition.
    batches = list(open_batches([replace(source, absent_is_missing=True)], kinds))
    return pa.Table.from_batches(batches) if batches else kinds.empty_table()
