"""How the tests follow a PostgreSQL."""

from __future__ import annotations

from lakefmt._core.cdc.postgres.source import PostgresSource
from tests.cdc.applier import Applied
from tests.judges.postgres import PostgresServer


def source_of(server: PostgresServer, database: str, **options: object) -> PostgresSource:
    return PostgresSource(server.host, server.port, "postgres", "", database, **{"look_seconds": 0.05, **options})


def follow(server: PostgresServer, database: str, applied: Applied, *, logs: bool = False, **options: object) -> None:
    """Apply everything that is committed now, as a process of its own would."""
    source = source_of(server, database, **options)
    try:
        for event in source.events(applied.positions, logs=logs, until_now=True):
            applied.apply(event)
        source.confirm(applied.positions)
    finally:
        source.close()


def select(server: PostgresServer, database: str, query: str = "SELECT * FROM items") -> list[tuple]:
    return sorted(server.rows(query, database), key=repr)
