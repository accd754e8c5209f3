"""Programs written for the SDK, as its users write them; run by its released client: ``python programs.py NAME SERVICE``."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from typing import Any

from clickzetta.connector.v0.connection import connect
from clickzetta.connector.v0.enums import RealtimeOperation
from clickzetta_ingestion.realtime.arrow_stream import RowOperator
from clickzetta_ingestion.realtime.realtime_options import FlushMode, RealtimeOptionsBuilder


def open_connection(service: str) -> Any:
    return connect(
        username="user",
        password="password",
        service=service,
        instance="instance",
        workspace="workspace",
        schema="public",
        vcluster="default",
        protocol="http",
    )


def plain(service: str) -> None:
    """25 rows in batches of at most ten, into a table without a key."""
    options = (
        RealtimeOptionsBuilder()
        .with_flush_mode(FlushMode.AUTO_FLUSH_BACKGROUND)
        .with_mutation_buffer_lines_num(10)
        .with_request_failed_retry_internal_ms(50)
        .build()
    )
    with open_connection(service) as connection:
        stream = connection.get_realtime_stream(
            operate=RealtimeOperation.APPEND_ONLY, schema="public", table="plain", options=options
        )
        for number in range(25):
            row = stream.create_row(RowOperator.INSERT)
            row.set_value("id", number)
            row.set_value("flag", number % 2 == 0)
            row.set_value("small", number - 100)
            row.set_value("big", number * 10**15)
            row.set_value("ratio", number / 8)
            row.set_value("price", Decimal(number) / 4)
            row.set_value("code", f"code-{number}")
            row.set_value("note", None if number % 5 == 0 else f"note ü {number}")
            row.set_value("raw", bytes([number]))
            row.set_value("day", dt.date(2026, 1, 1) + dt.timedelta(days=number))
            row.set_value("at", 1_700_000_000_000_000 + number)
            row.set_value("tags", [number, number + 1])
            row.set_value("place", {"x": number, "y": f"y{number}"})
            stream.apply(row)
        stream.close()


def keyed(service: str) -> None:
    """The guide's example: ten upserts, five of keys that exist, two deletes; then a partial update."""
    options = RealtimeOptionsBuilder().with_flush_mode(FlushMode.AUTO_FLUSH_SYNC).build()
    with open_connection(service) as connection:
        stream = connection.get_realtime_stream(
            operate=RealtimeOperation.CDC, schema="public", table="keyed", options=options
        )
        for number in range(10):
            row = stream.create_row(RowOperator.UPSERT)
            row.set_value("id", f"id{number}")
            row.set_value("name", f"first {number}")
            row.set_value("count", number)
            stream.apply(row)
        stream.flush()
        for number in range(5):
            row = stream.create_row(RowOperator.UPSERT)
            row.set_value("id", f"id{number}")
            row.set_value("name", f"second {number}")
            row.set_value("count", 100 + number)
            stream.apply(row)
        for number in range(2):
            row = stream.create_row(RowOperator.DELETE_IGNORE)
            row.set_value("id", f"id{number}")
            stream.apply(row)
        stream.flush()
        row = stream.create_row(RowOperator.UPDATE)
        row.set_value("id", "id9")
        row.set_value("count", 999)
        stream.apply(row)
        stream.close()


def retried(service: str) -> None:
    """Five batches while the service refuses the first requests."""
    options = (
        RealtimeOptionsBuilder()
        .with_flush_mode(FlushMode.AUTO_FLUSH_SYNC)
        .with_mutation_buffer_lines_num(1)
        .with_request_failed_retry_internal_ms(50)
        .build()
    )
    with open_connection(service) as connection:
        stream = connection.get_realtime_stream(
            operate=RealtimeOperation.CDC, schema="public", table="keyed", options=options
        )
        for number in range(5):
            row = stream.create_row(RowOperator.UPSERT)
            row.set_value("id", "same")
            row.set_value("name", f"name {number}")
            row.set_value("count", number)
            stream.apply(row)
        stream.close()


if __name__ == "__main__":
    {"plain": plain, "keyed": keyed, "retried": retried}[sys.argv[1]](sys.argv[2])
    print("done")
