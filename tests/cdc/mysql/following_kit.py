"""What tests of the source share: a reader that can be killed at any event, and tables made of what it said."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakefmt._core.cdc.events import (
    Border,
    Event,
    RowChanges,
    RowKind,
    SourceName,
    TableChanged,
    TableGone,
    TableLoaded,
    TableTruncated,
)
from lakefmt._core.cdc.mysql.snapshot import expression, quoted, selected_column
from lakefmt._core.cdc.mysql.source import MySQLSource
from lakefmt._core.cdc.mysql.statements import column_of_server
from tests.judges.mariadb import READER, READER_PASSWORD, MariaServer

_NUMBERS = itertools.count(1)


def new_database(server: MariaServer, *statements: str) -> str:
    """Make a database, in which these statements are executed; return its name."""
    name = f"d{next(_NUMBERS)}"
    server.create_reader()
    server.execute(f"create database {name}", f"use {name}", *statements)
    return name


def source_of(server: MariaServer, database: str, **options: Any) -> MySQLSource:
    given = {"tables": [f"{database}.*"], "user": READER, "password": READER_PASSWORD, **options}
    return MySQLSource("127.0.0.1", server.port, **given)


class Sink:
    """Tables as a sink would have them: what was committed survives a kill, what was not is forgotten.

    Attributes:
        positions: what the newest commit of each table stores.
        rows: table → key → row, of the newest commit.
        log: table → (kind, row), of all commits.
    """

    def __init__(self) -> None:
        self.positions: dict[SourceName, Any] = {}
        self.rows: dict[SourceName, dict[Any, dict[str, Any]]] = {}
        self.log: dict[SourceName, list[tuple[str, dict[str, Any]]]] = {}
        self.places: dict[SourceName, list[str]] = {}
        self.changes: list[TableChanged] = []
        self.said: list[Event] = []
        self.tables: dict[SourceName, Any] = {}
        self._pending: list[Event] = []

    def take(self, event: Event, *, commits: bool = True) -> None:
        """Take an event; a border commits what came before it."""
        if not isinstance(event, Border):
            self._pending.append(event)
            return
        if not commits:
            return
        touched = set(self.positions)
        for each in self._pending:
            self._apply(each)
            touched.add(each.table.name if isinstance(each, TableChanged) else each.name)
        self._pending.clear()
        for name in touched:
            if name in self.rows:
                self.positions[name] = event.position_of(name)
            else:  # it is gone
                assert event.position_of(name) is not None
                self.positions.pop(name, None)

    def forget(self) -> None:
        """Lose what no border came behind."""
        self._pending.clear()

    def _apply(self, event: Event) -> None:
        self.said.append(event)
        if isinstance(event, TableChanged):
            for row in self.rows.get(event.table.name, {}).values():
                row |= {new: row.pop(old, None) for old, new in event.renamed.items()}
            self.tables[event.table.name] = event.table
            self.changes.append(event)
            self.rows.setdefault(event.table.name, {})
            self.log.setdefault(event.table.name, [])
        elif isinstance(event, TableTruncated):
            self.rows[event.name] = {}
        elif isinstance(event, TableGone):
            self.rows.pop(event.name)
        elif isinstance(event, RowChanges):
            self._apply_rows(event)
        else:
            assert isinstance(event, TableLoaded)

    def _apply_rows(self, event: RowChanges) -> None:
        table = self.tables[event.name]
        assert event.rows.schema.equals(table.columns), (event.rows.schema, table.columns)
        event.rows.validate(full=True)
        rows = self.rows[event.name]
        assert event.positions is not None
        self.places.setdefault(event.name, []).extend(event.positions.to_pylist())
        for code, row in zip(event.kinds.to_pylist(), event.rows.to_pylist(), strict=True):
            kind = RowKind(code)
            key = key_of(row, table.keys)
            self.log[event.name].append((kind.short, row))
            if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                rows.pop(key, None)
            else:
                rows[key] = row


def key_of(row: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """The key of a row; without keys all values of it."""
    return tuple(map(repr, (row[name] for name in keys or row)))


def follow(
    source: MySQLSource, sink: Sink, *, logs: bool = False, kill_after: int | None = None, until_now: bool = True
) -> bool:
    """Read into a sink; end after so many events as a killed process would; return whether all was read."""
    events = source.events(dict(sink.positions), logs=logs, until_now=until_now)
    for count, event in enumerate(events):
        if count == kill_after:
            events.close()
            sink.forget()
            return False
        sink.take(event)
    sink.forget()
    return True


def selected(server: MariaServer, name: SourceName) -> pa.Table:
    """What SELECT says of a table, with the types that its values have here."""
    rows = server.execute(
        "select column_name, data_type, column_type, is_nullable from information_schema.columns "
        f"where table_schema = '{name.schema}' and table_name = '{name.table}' order by ordinal_position"
    )
    columns = [column_of_server(row[0], row[1], row[2], is_nullable=row[3] == "YES") for row in rows]
    import pymysql

    plain = {key: value for key, value in pymysql.converters.conversions.items() if not isinstance(key, int)}
    connection = server.connect(name.schema, conv=plain)
    try:
        with connection.cursor() as cursor:
            cursor.execute("set time_zone = '+00:00'")
            cursor.execute(f"select {', '.join(expression(c.name, c.type) for c in columns)} from {quoted(name.table)}")
            found = list(cursor.fetchall())
    finally:
        connection.close()
    values = list(zip(*found, strict=True)) or [()] * len(columns)
    return pa.table({c.name: selected_column(c.type, list(each)) for c, each in zip(columns, values, strict=True)})


def differences(server: MariaServer, sink: Sink, name: SourceName) -> list[Any]:
    """The rows that the sink has otherwise than SELECT says; columns that the server dropped are left out."""
    says = selected(server, name)
    keys = sink.tables[name].keys
    server_rows = {key_of(row, keys): row for row in says.to_pylist()}
    sink_rows = {key: {column: row.get(column) for column in says.column_names} for key, row in sink.rows[name].items()}
    return [
        (key, server_rows.get(key), sink_rows.get(key))
        for key in sorted({*server_rows, *sink_rows})
        if server_rows.get(key) != sink_rows.get(key)
    ]


def borders(events: Iterator[Event], count: int) -> list[Event]:
    """Take events until so many borders came."""
    found: list[Event] = []
    for event in events:
        found.append(event)
        count -= isinstance(event, Border)
        if not count:
            return found
    return found
