"""`lakefmt stream` and `lakefmt consumers`: print rows as they come, and look after who reads a table so."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lakefmt._core.arrow_texts import csv_head, csv_lines, json_lines, text_bytes
from lakefmt._core.cli.formatters import print_json
from lakefmt._core.cli.options import columns_option, open_for, table_argument, table_options

if TYPE_CHECKING:
    from lakefmt._core.consumers.registry import ConsumerInfo
    from lakefmt._core.consumers.stream import StreamBatch

__all__ = ["consumers", "stream"]


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
