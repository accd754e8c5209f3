"""`lakefmt create`, `lakefmt write`, `lakefmt delete` and `lakefmt alter`: make a table, and change its rows and columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import click
import pyarrow as pa

from lakefmt._core.cli.formatters import print_json, print_result
from lakefmt._core.cli.options import Pair, Partition, as_mapping, open_for, table_argument, table_options
from lakefmt._core.cli.plans import confirm, progress, yes_option
from lakefmt._core.data_classes import replace
from lakefmt._core.schema import unreadable_by_spark, without_meta_columns
from lakefmt._core.schema.types import field_at
from lakefmt.errors import InvalidInputError, TableNotFound

if TYPE_CHECKING:
    from lakefmt._core.ingest.inputs import Input
    from lakefmt._core.table import Table

__all__ = [
    "alter",
    "create",
    "delete",
    "erase",
    "write",
]

_INPUT_FORMAT = click.Choice(["parquet", "csv", "jsonl"])
_INPUT_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)
_metadata_option = click.option(
    "--commit-metadata",
    type=Pair(),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="Text to store in the commit. Repeatable.",
)
#: The default of each option that only some operations take, and these operations.
_OPERATION_OPTIONS = {
    "partial": (False, ("upsert",)),
    "drop_duplicates": (False, ("insert", "bulk_insert")),
    "sort": ("none", ("bulk_insert",)),
}
_Command = TypeVar("_Command", bound=Callable[..., Any])
_comment_option = click.option("--comment", metavar="TEXT", help="What the column holds.")


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
    "--type",
    "--table-type",
    "table_type",
    default="cow",
    show_default=True,
    metavar="cow|mor",
    help="Copy-on-write or merge-on-read.",
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
    from lakefmt._core.table import create_table

    if (schema_text is None) == (schema_from is None):
        raise click.UsageError("give either --schema or --schema-from")
    schema = (
        _schema_from_text(schema_text)
        if schema_text is not None
        else _schema_from_file(str(schema_from), (*record_key, *partition_by))
    )
    new_table = create_table(
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
    config = new_table.properties
    if names := unreadable_by_spark(new_table.schema):
        click.echo(f"warning: Spark cannot read the time columns {', '.join(names)}", err=True)
    if as_json:
        columns = {field.name: str(field.type) for field in new_table.schema}
        print_json(
            {
                "table": new_table.client.store.url,
                "name": config.name,
                "version": config.version.value,
                "columns": columns,
            }
        )
    else:
        click.echo(f"{config.name}: table of version {config.version.value} at {new_table.client.store.url}")


def _schema_from_text(schema_text: str) -> pa.Schema:
    from lakefmt._core.schema.types import parse_schema

    try:
        return parse_schema(schema_text)
    except InvalidInputError as error:
        raise click.BadParameter(str(error), param_hint="--schema") from None


def _schema_from_file(path: str, keys: Sequence[str]) -> pa.Schema:
    from lakefmt._core.ingest.inputs import Input, guess_format, read_schema

    how = guess_format(path)
    if how is None:
        raise click.BadParameter(
            f"the format of {path} is unknown: the name must end with .parquet, .csv or .jsonl",
            param_hint="--schema-from",
        )
    return without_meta_columns(read_schema(Input(path, how), keys))


@click.command(short_help="Write rows: upsert, insert or bulk_insert.")
@table_argument
@click.argument("inputs", nargs=-1, type=_INPUT_FILE)
@click.option(
    "--operation",
    type=click.Choice(["upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"]),
    default="upsert",
    show_default=True,
    help="Write operation; bulk_insert streams the rows in bounded memory.",
)
@click.option(
    "--format",
    "how",
    type=_INPUT_FORMAT,
    help="Input format; default: from the file name. Required for standard input.",
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
    "--rename",
    is_flag=True,
    help="Give columns whose names engines do not store similar ones: 'Order ID' becomes Order_ID.",
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
    "--table-type",
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
    rename: bool,
    create: bool,
    **new: Any,
) -> None:
    """Write the rows of INPUTS (Parquet, CSV or JSON lines; `-` or none: standard input) to TABLE.

    With --create -k COLUMN a table that is not there is created first.
    """
    from lakefmt._core.create_and_write import write_table
    from lakefmt._core.ingest.inputs import STDIN, open_batches

    if len(delimiter) != 1:
        raise click.BadParameter("must be one character", param_hint="--delimiter")
    extra = _options_of_operation(operation, partial=partial, drop_duplicates=drop_duplicates, sort=sort)
    sources = [_source_of_place(path, how, delimiter, nulls, partial) for path in inputs or (STDIN,)]
    creation: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in new.items() if value
    }
    if creation and not create:
        raise click.UsageError(f"--{next(iter(creation)).replace('_', '-')} needs --create")
    schema = _table_columns(table, options, storage_options, create=create)
    if rename:  # the inputs do not have the table's names
        schema = schema.empty_table().select([]).schema
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
            rename=rename,
            **creation,
            **extra,
        )
    print_result(result, as_json)


def _table_columns(
    table: str, options: Mapping[str, str], storage_options: Mapping[str, object], *, create: bool
) -> pa.Schema:
    """Return the columns of a table; none of one that is to be created.

    Raises:
        TableNotFound: there is no table; the message says how to create it.
    """
    from lakefmt._core.storage.messages import printable_url

    try:
        return open_for(table, options, storage_options).schema
    except TableNotFound as error:
        if create:
            return pa.schema([])
        hint = "to create it, add --create and its record key, such as --create -k id (lakefmt create has more options)"
        raise TableNotFound(f"no table at {printable_url(table)}: {hint}") from error


def _options_of_operation(operation: str, **options: object) -> dict[str, Any]:
    """Return the options that differ from their default; raise if the operation does not take one."""
    changed_options = {name: value for name, value in options.items() if value != _OPERATION_OPTIONS[name][0]}
    for name in changed_options:
        if operation not in _OPERATION_OPTIONS[name][1]:
            option, where = f"--{name.replace('_', '-')}", " or ".join(_OPERATION_OPTIONS[name][1])
            raise click.UsageError(f"{option} needs --operation {where}")
    return changed_options


def _source_of_place(
    path: str, how: str | None, delimiter: str = ",", nulls: tuple[str, ...] = (), absent_is_missing: bool = False
) -> Input:
    from lakefmt._core.ingest.inputs import STDIN, Input, guess_format

    format_name = how or guess_format(path)
    if format_name is None:
        what = "standard input has no file name" if path == STDIN else f"the format of {path} is unknown"
        raise click.UsageError(f"{what}: add --format")
    return Input(path, format_name, delimiter, nulls, absent_is_missing)


@click.command(short_help="Delete rows by key or by filter.")
@table_argument
@click.option(
    "--key", "keys", multiple=True, help="Record key; with several key columns a JSON object of them. Repeatable."
)
@click.option(
    "--keys-file",
    type=_INPUT_FILE,
    metavar="FILE",
    help="Parquet, CSV or JSON lines file with the key columns; `-`: standard input.",
)
@click.option("--format", "how", type=_INPUT_FORMAT, help="Format of the keys file; default: from its name.")
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
    num_selections = sum((bool(keys), keys_file is not None, condition is not None))
    if num_selections > 1 or not (num_selections or partitions):
        raise click.UsageError("give one of --key, --keys-file and --filter, or --partition alone")
    opened = open_for(table, options, storage_options)
    with progress("delete"):
        if not num_selections:
            result = opened.delete_partitions(list(partitions), commit_metadata=commit_metadata)
        else:
            what = _typed_keys(opened, keys) if keys else condition
            what = _keys_of_file(opened, _source_of_place(keys_file, how)) if keys_file is not None else what
            result = opened.delete(what, partitions=list(partitions) or None, commit_metadata=commit_metadata)
    print_result(result, as_json)


@click.command(short_help="Erase rows for good, and prove it.")
@table_argument
@click.option(
    "--key", "keys", multiple=True, help="Record key; with several key columns a JSON object of them. Repeatable."
)
@click.option("--filter", "-f", "condition", metavar="SQL", help="Condition, such as \"mail = 'ann@example.org'\".")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="TEXT",
    help="Text that must be nowhere afterwards; default: the keys of the rows. Repeatable.",
)
@yes_option
@table_options
def erase(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    keys: tuple[str, ...],
    condition: str | None,
    traces: tuple[str, ...],
    yes: bool,
) -> None:
    """Delete rows of TABLE, and everything that older states, logs, indexes and temporary files hold of them.

    Afterwards every file is searched; exit status 1 if something is left. Earlier states cannot be read any more.
    """
    if bool(keys) == (condition is not None):
        raise click.UsageError("give one of --key and --filter")
    opened = open_for(table, options, storage_options)
    if not yes:
        click.echo("erase: the rows, and with them every earlier state of the table")
        confirm()
    with progress("erase"):
        report = opened.erase(_typed_keys(opened, keys) if keys else condition, traces=list(traces or keys) or None)
    if as_json:
        print_json({**{each.name: getattr(report, each.name) for each in fields(report)}, "clean": report.is_clean})
    else:
        click.echo(str(report))
    if not report.is_clean:
        raise click.exceptions.Exit(1)


def _typed_keys(table: Table, keys: tuple[str, ...]) -> pa.Table | pa.Array:
    """Return the keys of the command line in the types of the key columns."""
    from lakefmt._core.ingest.inputs import parse_texts

    fields = table.properties.record_key_fields
    types = {name: pa.string() if (field := field_at(table.schema, name)) is None else field.type for name in fields}
    if len(fields) == 1:
        return parse_texts(fields[0], pa.array(keys), types[fields[0]])
    columns: dict[str, list[str]] = {name: [] for name in fields}
    for key in keys:
        for name, value in _key_object(key, fields).items():
            columns[name].append(value)
    return pa.table({n: parse_texts(n, pa.array(v, pa.string()), types[n]) for n, v in columns.items()})


def _key_object(json_text: str, fields: tuple[str, ...]) -> dict[str, str]:
    expected = f"must be a JSON object with {', '.join(fields)}"
    try:
        key = json.loads(json_text)
    except ValueError:
        raise click.BadParameter(expected, param_hint="--key") from None
    if not isinstance(key, dict) or set(key) != set(fields):
        raise click.BadParameter(expected, param_hint="--key")
    if any(value is None or isinstance(value, dict | list) for value in key.values()):
        raise click.BadParameter("the values of a key must be texts, numbers, true or false", param_hint="--key")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in key.items()}


def _keys_of_file(table: Table, source: Input) -> pa.Table:
    from lakefmt._core.ingest.inputs import open_batches

    spec = table.client.key_spec(table.properties)
    key_names = (*spec.record_key_fields, *(field.name for field in spec.partition_fields))
    names = dict.fromkeys(name.split(".", 1)[0] for name in key_names)
    inner = [
        (name, field.type) for name in key_names if "." in name and (field := field_at(table.schema, name)) is not None
    ]
    kinds = pa.schema([*(table.schema.field(name) for name in names), *inner])
    # Without partition columns the keys are deleted in every partition; null columns would name a partition.
    batches = list(open_batches([replace(source, absent_is_missing=True)], kinds))
    return pa.Table.from_batches(batches) if batches else kinds.empty_table()


def _place_options(command: _Command) -> _Command:
    """Add the options that say where a column goes."""
    after = click.option("--after", metavar="COLUMN", help="The column behind which it goes.")
    before = click.option("--before", metavar="COLUMN", help="The column before which it goes.")
    return after(before(command))


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
    alterations = open_for(table, options, storage_options).alter
    print_result(alterations.add_column(name, kind, after, before=before, comment=comment), as_json)


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
        type=kind,
        nullable=True if nullable else None,
        comment=comment,
        after=after,
        before=before,
    )
    print_result(result, as_json)
