"""A random workload, a reader that is killed at random: the table equals the server's, and the log has each change once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lakefmt._core.cdc.events import SourceName
from tests.cdc.mysql.following_kit import Sink, differences, follow, key_of, new_database, source_of
from tests.example_counts import seed_of_run
from tests.kit import THOROUGH

pytestmark = [pytest.mark.xdist_group("mariadb"), pytest.mark.slow]

ROUNDS = 400 if THOROUGH else 25
TABLES = (
    "create table a (id int primary key, v varchar(30), n int)",
    "create table b (w varchar(10) collate utf8mb4_general_ci, k smallint, d decimal(8,2), primary key (w, k))",
    "create table c (k varbinary(4) primary key, t datetime(3), s set('x','y','z'))",
)
WORDS = ("a", "B", "ä", "zebra", "Zz", "é", "10", "9", "_")


class Workload:
    """Changes tables at random, in transactions of one to four statements."""

    def __init__(self, draw: random.Random, *, alters: bool) -> None:
        self.draw, self.alters, self.columns = draw, alters, 0

    def transaction(self) -> list[str]:
        draw = self.draw
        if self.alters and draw.random() < 0.08:
            return [self.alter()]
        statements = ["start transaction", self.change()]
        for _ in range(draw.randrange(4)):
            statements.append(self.change())
            if draw.random() < 0.2:
                statements += ["savepoint s", self.change(), "rollback to savepoint s"]
        return [*statements, "rollback" if draw.random() < 0.1 else "commit"]

    def change(self) -> str:
        draw = self.draw
        number, other, word = draw.randrange(40), draw.randrange(40), draw.choice(WORDS)
        return draw.choice(
            (
                f"replace into a (id, v, n) values ({number}, '{word}', {other})",
                f"insert into a (id, v, n) values ({number}, '{word}', 1) on duplicate key update n = n + 1",
                f"insert ignore into a (id, v) select seq, '{word}' from seq_{number}_to_{number + 5}",
                f"update a set v = concat(left(v, 20), '{word}') where id between {number} and {other}",
                f"update ignore a set id = {other} where id = {number}",
                f"delete from a where id % 7 = {number % 7}",
                f"replace into b values ('{word}', {number % 6}, {other}.5)",
                f"update ignore b set w = '{draw.choice(WORDS)}' where k = {number % 6} and w = '{word}'",
                f"update b set d = d + 1 where k >= {number % 6}",
                f"delete from b where w = '{word}' and k > {number % 4}",
                f"replace into c values (x'{number:04x}00', '2024-01-{number % 28 + 1:02} 10:00:00.{other:03}', 'x,z')",
                f"update ignore c set k = x'{other:04x}', s = '' where k = x'{number:04x}00'",
                f"delete from c where k > x'{other:04x}'",
            )
        )

    def alter(self) -> str:
        draw = self.draw
        self.columns += 1
        last = self.columns - 1
        return draw.choice(
            (
                f"alter table a add column if not exists c{self.columns} int",
                f"alter table a add column if not exists c{self.columns} varchar(5) first",
                f"alter table a add column if not exists c{self.columns} int default {self.columns}",
                f"alter table a add column (c{self.columns} int not null default 3)",
                f"alter table a modify n bigint, add c{self.columns} int as (id + {self.columns}) persistent",
                f"alter table a drop column if exists c{last}",
                f"alter table a change column if exists c{last} r{self.columns} int",
                "alter table a modify n bigint",
                "alter table b modify d decimal(12,2)",
                "truncate table c",
                "flush logs",
            )
        )


def replayed(sink: Sink, name: SourceName) -> dict[Any, dict[str, Any]]:
    """Apply the log of a table, each change to what is there: one that came twice or not at all does not fit."""
    rows: dict[Any, dict[str, Any]] = {}
    keys = sink.tables[name].keys
    for kind, row in sink.log[name]:
        key = key_of(row, keys)
        if kind in ("+I", "+U"):
            assert key not in rows, (name, kind, row)
            rows[key] = row
        else:
            stored = rows.pop(key)
            assert {n: v for n, v in stored.items() if n in row} == {n: v for n, v in row.items() if n in stored}
    return rows


@pytest.mark.parametrize("logs", [False, True], ids=["last state", "every change"])
def test_a_random_workload_with_kills_ends_equal(mariadb, logs):
    draw = random.Random(f"{seed_of_run()} {logs}")
    database = new_database(mariadb, *TABLES)
    names = [SourceName(database, table) for table in "abc"]
    work, sink = Workload(draw, alters=not logs), Sink()
    connection = mariadb.connect(database)
    cursor = connection.cursor()
    for number in range(ROUNDS):
        for _ in range(draw.randrange(25)):
            for statement in work.transaction():
                cursor.execute(statement)
        kill_after = None if number % 5 == 4 else draw.randrange(30)
        source = source_of(mariadb, database, chunk_rows=draw.choice((3, 7, 50)))
        follow(source, sink, logs=logs, kill_after=kill_after)
        if kill_after is None:
            assert {name: differences(mariadb, sink, name) for name in names} == {name: [] for name in names}
            if logs:
                assert all(replayed(sink, name) == sink.rows[name] for name in names)
    connection.close()
    for name in names if logs else ():
        assert sink.places[name] == sorted(sink.places[name]), "positions sort as the changes happened"


def test_rows_that_change_while_they_are_read_are_not_lost(mariadb):
    draw = random.Random(seed_of_run())
    database = new_database(mariadb, *TABLES, "insert into a (id, v) select seq, seq from seq_0_to_39")
    name = SourceName(database, "a")
    for logs in (False, True):
        work, sink = Workload(draw, alters=False), Sink()
        connection = mariadb.connect(database)
        cursor = connection.cursor()
        source = source_of(mariadb, database, chunk_rows=2)
        for number, event in enumerate(source.events({}, logs=logs, until_now=False)):
            if number < 150:
                for statement in work.transaction():
                    cursor.execute(statement)
            sink.take(event)
            if number >= 150 and getattr(event, "caught_up", False):
                break
        source.close()
        connection.close()
        assert differences(mariadb, sink, name) == []
        assert replayed(sink, name) == sink.rows[name] if logs else True
