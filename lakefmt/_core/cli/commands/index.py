"""`lakefmt index`: the indexes of a table's metadata table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lakefmt._core.cli.formatters import print_json, print_lines, printable
from lakefmt._core.cli.options import Pair, Partition, as_mapping, open_for, table_argument, table_options
from lakefmt._core.cli.plans import confirm, dry_run_option, progress, show_plan, unneeded_yes_option, yes_option

if TYPE_CHECKING:
    from lakefmt._core.check.run import IndexReport
    from lakefmt._core.index.bucket_ring import BucketChange
    from lakefmt._core.metadata.manage import MetadataIndex
    from lakefmt._core.write.bucket_resize import ResizeResult

__all__ = ["index"]

_columns_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="COLUMN",
    help="Column of a secondary or expression index, or one with statistics. Repeatable.",
)
_name_option = click.option("--name", help="Name of a secondary or expression index; default: its column.")
_partitioned_option = click.option(
    "--partitioned", is_flag=True, help="A record index whose keys are unique in their data partition only."
)


@click.group(short_help="Make, list, check and drop indexes; resize buckets.")
def index() -> None:
    """Indexes of Hudi's metadata table, and the bucket index: docs/metadata-table.md, docs/index.md."""


@index.command("list", short_help="List the indexes.")
@table_argument
@table_options
def list_indexes_command(
    table: str, as_json: bool, options: Mapping[str, str], storage_options: Mapping[str, object]
) -> None:
    """List the indexes that TABLE advertises, with their state and size."""
    indexes = open_for(table, options, storage_options).index.list()
    if as_json:
        print_json([_index_as_json(each) for each in indexes])
        return
    for each in indexes:
        click.echo(printable(str(each)))
    if not indexes:
        click.echo("no metadata table")


@index.command("create", short_help="Make an index.")
@table_argument
@click.argument("kind")
@_columns_option
@_name_option
@_partitioned_option
@click.option("--function", help="Function of an expression index, such as from_unixtime.")
@click.option(
    "--index-type",
    type=click.Choice(["column_stats", "bloom_filters"]),
    help="What an expression index keeps of the function's values; default: column_stats.",
)
@click.option(
    "--function-option",
    "function_options",
    type=Pair(),
    callback=as_mapping,
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the function, such as format=yyyy-MM-dd. Repeatable.",
)
@unneeded_yes_option
@table_options
def create_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    kind: str,
    columns: tuple[str, ...],
    name: str | None,
    partitioned: bool,
    function: str | None,
    index_type: str | None,
    function_options: Mapping[str, str],
) -> None:
    """Make an index of KIND for TABLE from what is committed, and what it rests on.

    KIND is files, column_stats, partition_stats, bloom_filters, record_index, secondary_index or expression_index.
    """
    opened = open_for(table, options, storage_options)
    with progress("index"):
        new_index = opened.index.create(
            kind,
            list(columns) or None,
            name=name,
            partitioned=partitioned,
            function=function,
            index_type=index_type,
            function_options=function_options or None,
        )
    print_json(_index_as_json(new_index)) if as_json else click.echo(printable(str(new_index)))


@index.command("schedule", short_help="Plan an index, to be made while others write.")
@table_argument
@click.argument("kind")
@_columns_option
@_name_option
@_partitioned_option
@unneeded_yes_option
@table_options
def schedule_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    kind: str,
    columns: tuple[str, ...],
    name: str | None,
    partitioned: bool,
) -> None:
    """Plan an index of KIND for TABLE; `lakefmt index run` makes it.

    KIND is as for `lakefmt index create`, but for expression_index, which is made at once.
    """
    view = open_for(table, options, storage_options).index
    instant = view.schedule(kind, list(columns) or None, name=name, partitioned=partitioned)
    if as_json:
        print_json({"instant": instant})
    else:
        click.echo(f"indexing {instant} is planned; lakefmt index run makes it")


@index.command("run", short_help="Make the indexes that are planned.")
@table_argument
@click.argument("instant", required=False)
@unneeded_yes_option
@table_options
def run_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    instant: str | None,
) -> None:
    """Make the indexes that are planned for TABLE, or those of the plan INSTANT, while others write to it.

    Plans of Apache Hudi are run, too. A run that died is begun again.
    """
    view = open_for(table, options, storage_options).index
    with progress("index"):
        ready = view.run(instant)
    if as_json:
        print_json({"indexes": list(ready)})
    else:
        click.echo(f"ready: {printable(', '.join(ready)) or 'no metadata table'}")


@index.command("resize-buckets", short_help="Split and merge the buckets of consistent hashing.")
@table_argument
@click.option(
    "--partition",
    "partitions",
    type=Partition(),
    multiple=True,
    metavar="PARTITION",
    help="Only this partition: path, value or JSON object of values. Repeatable.",
)
@dry_run_option
@unneeded_yes_option
@table_options
def resize_buckets_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    partitions: tuple[str | Mapping[str, object], ...],
    only_plan: bool,
) -> None:
    """Split large buckets of TABLE and merge small ones, as its settings hoodie.bucket.index.* say.

    No row is lost or changed, so the command does not ask.
    """
    view = open_for(table, options, storage_options).index
    requested_partitions = list(partitions) or None
    if only_plan:
        result = view.resize_buckets(requested_partitions, dry_run=True)
    else:
        with progress("resize-buckets"):
            result = view.resize_buckets(requested_partitions)
    if as_json:
        print_json(_resize_as_json(result))
    elif only_plan:
        show_plan("\n".join([str(result), *map(_change_text, result.changes)]))
    else:
        click.echo(printable(str(result)))


@index.command("drop", short_help="Drop an index.")
@table_argument
@click.argument("name")
@yes_option
@table_options
def drop_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    name: str,
    yes: bool,
) -> None:
    """Drop the index NAME of TABLE, and those that rest on it; `files` drops the metadata table.

    No row is lost: an index can be made again. The command asks for confirmation.
    """
    opened = open_for(table, options, storage_options)
    if not yes:
        confirm()
    remaining = opened.index.drop(name)
    if as_json:
        print_json({"dropped": name, "indexes": list(remaining)})
    else:
        click.echo(f"{printable(name)} is dropped; left: {', '.join(remaining) or 'no metadata table'}")


@index.command("check", short_help="Compare the indexes with what is stored, and repair them.")
@table_argument
@click.option("--repair", is_flag=True, help="Make anew what differs; asks for confirmation.")
@dry_run_option
@yes_option
@table_options
def check_command(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    repair: bool,
    only_plan: bool,
    yes: bool,
) -> None:
    """Compare the metadata table of TABLE with its files and rows: listings, sizes, statistics, filters, keys.

    Nothing is changed without --repair. Exit status 1 if there are findings (with --repair: if some remain).
    """
    view = open_for(table, options, storage_options).index
    with progress("check"):
        report = view.check()
    if not as_json:
        print_lines(str(report))
    if repair and not only_plan and report.plan:
        if not yes:
            confirm()
        with progress("repair"):
            report = view.check(repair=True)
        if not as_json:
            print_lines(str(report))
    if as_json:
        print_json(_report_as_json(report))
    if not report.is_clean:
        click.get_current_context().exit(1)


def _index_as_json(each: MetadataIndex) -> dict[str, object]:
    return {
        "name": each.name,
        "kind": each.kind,
        "state": each.state.value,
        "columns": list(each.columns),
        "partitioned": each.partitioned,
        "file_groups": each.file_groups,
        "records": each.records,
        "bytes": each.size_bytes,
    }


def _change_text(change: BucketChange) -> str:
    return f"{change.partition or '.'}: {len(change.dropped)} → {len(change.nodes)} buckets, {change.num_bytes:,} bytes"


def _resize_as_json(result: ResizeResult) -> dict[str, object]:
    return {
        "instant": result.instant,
        "changes": [
            {
                "partition": change.partition,
                "before": len(change.dropped),
                "after": len(change.nodes),
                "bytes": change.num_bytes,
            }
            for change in result.changes
        ],
        "rows": result.rows,
    }


def _report_as_json(report: IndexReport) -> dict[str, object]:
    return {
        "table": report.url,
        "indexes": list(report.indexes),
        "is_clean": report.is_clean,
        "findings": [
            {
                "kind": finding.kind.value,
                "index": finding.index,
                "count": len(finding),
                "first": finding.shown(),
                "consequence": finding.consequence,
                "mendable": finding.is_mendable,
            }
            for finding in report.findings
        ],
        "skipped": list(report.skipped),
        "plan": [{"step": step.kind.value, "index": step.index, "does": str(step)} for step in report.plan],
        "done": [step.kind.value for step in report.done],
        "after": None if report.after is None else _report_as_json(report.after),
    }
