"""Debezium reads the servers itself: the table of its messages is that of our readers, and what SELECT says."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lakefmt._core.cdc.debezium_decoder import DebeziumDecoder
from lakefmt._core.cdc.events import SourceName
from tests.cdc.applier import Applied, rows_in
from tests.judges.debezium import DebeziumEngines, Message, debezium_missing
from tests.judges.postgres import postgres_missing, postgres_service

pytestmark = [pytest.mark.test_all, pytest.mark.slow, pytest.mark.xdist_group("debezium")]

MARK = 999_999
#: Larger than what PostgreSQL keeps in a row's page.
LARGE = 9_000
COLUMNS = {
    "postgres": "id int PRIMARY KEY, note text, big text, price numeric(12,2), any_size numeric, rate double precision, flag boolean, "
    "day date, moment timestamp, instant timestamptz, clock time, bytes bytea, doc jsonb, mark uuid, many int[], "
    "need_text text NOT NULL DEFAULT repeat('t', 9000), need_bytes bytea NOT NULL DEFAULT decode(repeat('ab', 9000), 'hex'), "
    "need_doc jsonb NOT NULL DEFAULT to_jsonb(repeat('d', 9000)), need_texts text[] NOT NULL DEFAULT ARRAY[repeat('a', 9000)], "
    "need_many int[] NOT NULL DEFAULT array_fill(7, ARRAY[3000])",
    "mariadb": "id int PRIMARY KEY, note varchar(100), big longtext, price decimal(12,2), rate double, day date, moment datetime(6), "
    "instant timestamp(6) null, span time(6), bytes varbinary(20), mood enum('sad','happy')",
}
EXTRA = {
    "postgres": [
        *("-12345678901234567890.123456789", "0.1", "true", "2024-02-29", "2024-02-29 12:34:56.789012"),
        *("2024-03-31 01:30:00.5+00", "23:59:59.999999", "\\x00ff10", '{"a": [1, 2.50]}'),
        *("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{1,NULL,3}"),
    ],
    "mariadb": [
        *("0.1", "2024-02-29", "2024-02-29 12:34:56.789012", "2024-03-31 01:30:00.500000", "-838:59:58.999999"),
        *("\x01x", "happy"),
    ],
}
#: The text of the row that comes last.
LAST = "the last one"
CONFIGURATIONS = {
    "precise": {"decimal.handling.mode": "precise", "converter.schemas.enable": "true"},
    "text": {"decimal.handling.mode": "string", "converter.schemas.enable": "false"},
    "double": {"decimal.handling.mode": "double", "converter.schemas.enable": "true"},
}

#: Where the messages go that tests/cdc/debezium/test_recorded.py reads.
RECORDED = os.environ.get("LAKEFMT_RECORD_DEBEZIUM", "")


def record(path: Path, databases: dict[str, Database], messages: dict[str, list[Message]]) -> None:
    """Write all messages and the rows of the servers."""
    whole = {
        "rows": {
            kind: [[str(value) for value in row[:4]] for row in database.select()]
            for kind, database in databases.items()
        },
        "messages": {
            name: [[topic, *(None if part is None else part.decode() for part in parts)] for topic, *parts in found]
            for name, found in messages.items()
        },
    }
    path.write_bytes(gzip.compress(json.dumps(whole).encode(), mtime=0))


class Database:
    """One of the two servers, with a table that changes."""

    kind = ""
    name: SourceName

    def run(self, statement: str, *values: object) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)

    def create(self) -> None:
        self.run(f"CREATE TABLE items ({COLUMNS[self.kind]})")
        if self.kind == "postgres":
            # Large values are stored outside the row, and are not sent where they do not change, required ones neither.
            for column in ("big", "need_text", "need_bytes", "need_doc", "need_texts", "need_many"):
                self.run(f"ALTER TABLE items ALTER {column} SET STORAGE EXTERNAL")
        for number in range(20):
            self.insert(number)

    def insert(self, number: int, note: str | None = None) -> None:
        extra = EXTRA[self.kind] if number % 3 else [None] * len(EXTRA[self.kind])
        values = [
            number,
            note or ("größe 🦀" if number % 2 else ""),
            "x" * LARGE if number % 4 else "small",
            f"{number}.25",
            *extra,
        ]
        self.run(f"INSERT INTO items VALUES ({', '.join(['%s'] * len(values))})", *values)

    def work(self, draw: random.Random) -> None:
        for step in range(60):
            key, other = draw.randrange(20), 100 + step
            chosen = draw.randrange(5)
            if chosen == 0:
                self.run("UPDATE items SET note = %s WHERE id = %s", f"note {step}", key)
            elif chosen == 1:
                self.run("UPDATE items SET id = %s WHERE id = %s", other, key)
            elif chosen == 2:
                self.run("DELETE FROM items WHERE id = %s", key)
            elif chosen == 3:
                self.insert(other)
            else:
                self.run("UPDATE items SET price = price + 1, big = %s WHERE id = %s", "y" * LARGE, key)

    def select(self) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM items WHERE id < {MARK}")
            return [*cursor.fetchall()]


class Postgres(Database):
    kind = "postgres"

    def __init__(self, server: Any) -> None:
        self.server, self.database = server, server.database()
        self.connection = server.connect(self.database)
        self.name = SourceName("public", "items")

    def properties(self, number: int) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": "postgres",
            "database.password": "unused",
            "database.dbname": self.database,
            "plugin.name": "pgoutput",
            "publication.name": f"debezium{number}",
            "publication.autocreate.mode": "filtered",
            "table.include.list": "public.items",
            "slot.name": f"debezium{number}",
        }

    def source(self) -> Any:
        from lakefmt._core.cdc.postgres.source import PostgresSource

        return PostgresSource(self.server.host, self.server.port, "postgres", "", self.database)


class MariaDb(Database):
    kind = "mariadb"

    def __init__(self, server: Any, folder: Path) -> None:
        self.server, self.folder = server, folder
        server.execute("drop database if exists judged", "create database judged")
        self.user, self.password = server.create_reader(
            ("SELECT", "REPLICATION SLAVE", "BINLOG MONITOR", "RELOAD", "LOCK TABLES", "SHOW DATABASES")
        )
        self.connection = server.connect("judged")
        self.run("SET time_zone = '+00:00'")
        self.name = SourceName("judged", "items")

    def properties(self, number: int) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self.folder / f"history{number}"),
            "schema.history.internal.store.only.captured.tables.ddl": "true",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.user,
            "database.password": self.password,
            "database.server.id": str(7771 + number),
            "database.include.list": "judged",
            "table.include.list": "judged.items",
        }

    def source(self) -> Any:
        from lakefmt._core.cdc.mysql.source import MySQLSource

        return MySQLSource(
            "127.0.0.1", self.server.port, user=self.user, password=self.password, tables=["judged.items"]
        )


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, mariadb: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Both servers after the same kind of work, what our readers say, and all messages of each engine."""
    from tests.judges.plugin import LEDGER, _refuse

    lacking = debezium_missing() or postgres_missing()
    if lacking:
        _refuse(request.config, "DEBEZIUM", lacking)
    folder = tmp_path_factory.mktemp("debezium")
    with postgres_service() as server:
        databases: dict[str, Database] = {"postgres": Postgres(server), "mariadb": MariaDb(mariadb, folder)}
        settings = {}
        for kind, database in databases.items():
            database.create()
            for number, (name, configuration) in enumerate(CONFIGURATIONS.items()):
                told = {
                    key.removeprefix("converter."): value
                    for key, value in configuration.items()
                    if key.startswith("converter.")
                }
                converters = {
                    f"{side}.converter.{key}": value for side in ("key", "value") for key, value in told.items()
                }
                decimals = {key: value for key, value in configuration.items() if not key.startswith("converter.")}
                settings[f"{kind}-{name}"] = {**database.properties(number), **decimals, **converters}
        messages: dict[str, list[Message]] = {}
        with DebeziumEngines(folder, settings) as engines:
            for name in settings:
                engines.wait_for(name, b'"op":"r"')
            for database in databases.values():
                database.work(random.Random(5))
                database.insert(MARK, LAST)
            for name in settings:
                messages[name] = engines.wait_for(name, LAST.encode())
        ours = {}
        for kind, database in databases.items():
            ours[kind] = Applied()
            source = database.source()
            ours[kind].apply_all(source.events({}, logs=False, until_now=True))
            source.close()
        if RECORDED:
            record(Path(RECORDED), databases, messages)
        yield databases, ours, messages
        request.config.stash[LEDGER].add("DEBEZIUM", "Debezium 3.5.0.Final", sum(map(len, messages.values())))
        databases["postgres"].connection.close()
        databases["mariadb"].connection.close()


def of_messages(messages: list[Message], parts: int) -> tuple[Applied, DebeziumDecoder]:
    """Apply messages in calls of some size, as a consumer polls them."""
    decoder, applied = DebeziumDecoder(), Applied()
    # A key's deletion and the insertion of its new key come from one poll.
    for begin in range(0, len(messages), parts):
        applied.apply_all(decoder.decode(messages[begin : begin + parts]))
    assert decoder.take_rejected() == []
    return applied, decoder


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_the_table_of_the_messages_is_that_of_our_reader_and_of_the_server(judged, kind):
    databases, ours, messages = judged
    name = databases[kind].name
    applied, decoder = of_messages(messages[f"{kind}-precise"], 10_000)
    for rows in (applied.rows[name], ours[kind].rows[name]):
        rows.pop((MARK,))
    assert decoder.skipped["tombstone"] > 0
    assert rows_in(applied, name) == rows_in(ours[kind], name) != []
    assert applied.tables[name] == ours[kind].tables[name]
    told = sorted((row[:4] for row in databases[kind].select()), key=repr)
    assert sorted((row[:4] for row in rows_in(applied, name)), key=repr) == told


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
@pytest.mark.parametrize("mode", ["text", "double"])
def test_messages_without_a_schema_and_with_other_decimals_give_the_same_rows(judged, kind, mode):
    databases, _, messages = judged
    name = databases[kind].name
    applied, _ = of_messages(messages[f"{kind}-{mode}"], 10_000)
    applied.rows[name].pop((MARK,))
    made = str if mode == "text" else float

    def with_price(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(made(value) if isinstance(value, Decimal) else value for value in row[:4])

    told = sorted((with_price(row) for row in databases[kind].select()), key=repr)
    assert sorted((row[:4] for row in rows_in(applied, name)), key=repr) == told
