"""T12: a job of Flink writes into our server by StarRocks' sink, exactly once, while the server is killed; the sink asks our MySQL port for columns.

Two sources: Flink's own generator, and MariaDB by Flink CDC, where the job is killed, too.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.loads.commit import LABEL_KEY, TRANSACTIONS_KEY
from tests.example_counts import seed_of_run
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.mariadb import ADMINISTRATOR, MariaServer
from tests.judges.starrocks import FlinkJob, flink_sink, newest_checkpoint, starrocks_missing

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROWS = 6_000
KILLS = 4
#: What of the chain is killed, in another order each time.
KILLED = ["server"] * 4 + ["job"] * 2 + ["both"]
#: Two to five minutes on two busy cores: a JVM begins four times.
SECONDS_OF_CHAIN = 900


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


def start(base: Path, port: int, mysql_port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lakefmt", "serve", "--base-path", str(base), "--json"]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--mysql-port", str(mysql_port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "url" in process.stdout.readline()
    return process


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def flink() -> None:
    if reason := starrocks_missing(flink=True):
        if os.environ.get("CI") == "true":
            pytest.fail(f"Flink is missing: {reason}")
        pytest.skip(f"Flink is missing: {reason}")


def statements_of_numbers(url: str, mysql_port: int, how: str) -> list[str]:
    """Return a job that writes the numbers from 1 on."""
    return [
        "create table source (id bigint, v string) with ('connector'='datagen','rows-per-second'='200','fields.v.length'='5',"
        f"'fields.id.kind'='sequence','fields.id.start'='1','fields.id.end'='{ROWS}')",
        flink_sink("t", "id bigint, v string", url, mysql_port, how),
        "insert into sink_t select * from source",
    ]


@pytest.mark.slow
@pytest.mark.test_all
@pytest.mark.xdist_group("starrocks")
@pytest.mark.usefixtures("flink")
@pytest.mark.parametrize("how", ["csv", "json"])
def test_t12_flink_writes_exactly_once_while_the_server_is_killed(tmp_path: Path, how: str) -> None:
    chance, base = random.Random(seed_of_run()), tmp_path / "lake"
    lakefmt.create_table(base / "db" / "t", schema=SCHEMA, kind="append")
    port, mysql_port = free_port(), free_port()
    server = start(base, port, mysql_port)
    try:
        with FlinkJob(statements_of_numbers(f"http://127.0.0.1:{port}", mysql_port, how), tmp_path) as job:
            deadline = time.monotonic() + 120
            # A job that has not begun does not know how to wait.
            while not lakefmt.open_table(base / "db" / "t").timeline.entries:
                assert time.monotonic() < deadline
                assert job.process.poll() is None
                time.sleep(0.2)
            for _ in range(KILLS):
                time.sleep(3 + 3 * chance.random())
                stop(server)
                time.sleep(2 * chance.random())
                server = start(base, port, mysql_port)
            job.process.wait(200)
    finally:
        stop(server)
    found = sorted(lakefmt.open_table(base / "db" / "t").read()["id"].to_pylist())
    assert found == list(range(1, ROWS + 1))


ITEMS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("note", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("weight", pa.float64()),
        ("made", pa.timestamp("us")),
        ("day", pa.date32()),
    ]
)
CHANGES = pa.schema([("n", pa.int64()), ("item", pa.int64()), ("what", pa.string())])
ITEMS_IN_FLINK = "id bigint, note string, price decimal(12, 2), weight double, made timestamp(6), `day` date"
CHANGES_IN_FLINK = "n bigint, item bigint, what string"
#: Nobody works with it: it is written behind all others.
LAST = 0


class Work:
    """Random transactions in MariaDB: rows of a table that come, change, get other keys and go, and one row for each change in a second one."""

    def __init__(self, server: MariaServer, database: str, draw: random.Random) -> None:
        self.random, self.transactions = draw, 0
        server.execute(
            f"create database {database}",
            f"use {database}",
            "create table items (id bigint primary key, note varchar(400), price decimal(12, 2), weight double, made datetime(6), day date)",
            "create table changes (n bigint primary key auto_increment, item bigint, what varchar(20))",
        )
        self.connection = server.connect(database, autocommit=False)

    def row(self) -> tuple[object, ...]:
        note = self.random.choice((None, "", "plain", "größe 🦀", 'a "quoted", text\n\tof \\lines', "x" * 300))
        made = datetime(2026, 1, 1) + timedelta(microseconds=self.random.randrange(10**14))
        price = self.random.choice((None, Decimal(self.random.randrange(-(10**9), 10**9)).scaleb(-2)))
        return note, price, self.random.randrange(-(10**6), 10**6) / 8, made, made.date()

    def step(self, statements: int) -> None:
        with self.connection.cursor() as cursor:
            for _ in range(statements):
                self._statement(cursor, self.random.randint(1, 80), self.random.randint(1, 80))
            if self.random.random() < 0.1:
                self.connection.rollback()
            else:
                self.connection.commit()
        self.transactions += 1

    def _statement(self, cursor: Any, key: int, other: int) -> None:
        what = self.random.choice(("upsert", "upsert", "update", "delete", "new key", "many"))
        if what == "upsert":
            cursor.execute("replace into items values (%s, %s, %s, %s, %s, %s)", (key, *self.row()))
        elif what == "update":
            cursor.execute(
                "update items set note = %s, price = %s, weight = %s, made = %s, day = %s where id = %s",
                (*self.row(), key),
            )
        elif what == "delete":
            cursor.execute("delete from items where id = %s", (key,))
        elif what == "new key":
            cursor.execute("update ignore items set id = %s where id = %s", (other, key))
        else:
            cursor.execute("update items set weight = weight + 0.5 where id between %s and %s", sorted((key, other)))
        cursor.execute("insert into changes (item, what) values (%s, %s)", (key, what))

    def end(self) -> None:
        """Write the last row of either table."""
        with self.connection.cursor() as cursor:
            cursor.execute("insert into items (id) values (%s)", (LAST,))
            cursor.execute("insert into changes (item, what) values (%s, 'last')", (LAST,))
        self.connection.commit()


def statements_of_chain(server: MariaServer, database: str, url: str, mysql_port: int, how: str) -> list[str]:
    """Return a job that copies both tables."""
    made = []
    for number, (name, columns, key) in enumerate(
        (("items", ITEMS_IN_FLINK, "id"), ("changes", CHANGES_IN_FLINK, "n"))
    ):
        source = {"connector": "mysql-cdc", "hostname": "127.0.0.1", "port": server.port, "username": ADMINISTRATOR}
        source |= {"password": "", "database-name": database, "table-name": name}
        source |= {"server-time-zone": "UTC", "server-id": 8801 + number, "scan.incremental.snapshot.chunk.size": 40}
        options = ", ".join(f"'{option}'='{value}'" for option, value in source.items())
        primary = f", primary key ({key}) not enforced"
        made.append(f"create table source_{name} ({columns}{primary}) with ({options})")
        # Without a key a change that comes twice is two rows.
        made.append(flink_sink(name, columns + (primary if name == "items" else ""), url, mysql_port, how))
        made.append(f"insert into sink_{name} select * from source_{name}")
    return made


def count(path: Path) -> int:
    return lakefmt.open_table(path).count()


def is_prepared(url: str) -> bool:
    """Return whether a transaction waits for its commit."""
    with urllib.request.urlopen(f"{url}/api/transaction/list", timeout=20) as reply:
        return any(each["State"] == "PREPARED" for each in json.load(reply)["Transactions"])


def last_has_come(path: Path, column: str) -> bool:
    return bool(lakefmt.open_table(path).read(columns=[column], filter=f"{column} = {LAST}").num_rows)


def labels_of_commits(path: Path) -> list[str]:
    """Return the labels that the newest commits name."""
    client = lakefmt.open_table(path).client
    table, labels = client.at(client.load()), list[str]()
    for instant in table.timeline.commits:
        said = table.commit_metadata(instant).extra_metadata
        if TRANSACTIONS_KEY in said:
            labels += [label for _, label, _ in json.loads(said[TRANSACTIONS_KEY])]
        elif LABEL_KEY in said:
            labels.append(said[LABEL_KEY])
    return labels


def sorted_rows(rows: pa.Table, schema: pa.Schema) -> list[tuple[Any, ...]]:
    """Return the rows by their first column, with times as the database has them: without a zone."""
    return sorted(
        (tuple(row.values()) for row in rows.select(schema.names).cast(schema).to_pylist()), key=itemgetter(0)
    )


@pytest.mark.slow
@pytest.mark.test_all
@pytest.mark.judge_rs
@pytest.mark.timeout(SECONDS_OF_CHAIN)
@pytest.mark.xdist_group("starrocks")
@pytest.mark.usefixtures("flink")
@pytest.mark.parametrize(("how", "table_type"), [("csv", "cow"), ("json", "mor")])
def test_t12_a_database_is_copied_exactly_once_while_server_and_job_are_killed(
    tmp_path: Path, mariadb: MariaServer, hudi_rs_judge: HudiRsJudge, how: str, table_type: str
) -> None:
    seed = f"{seed_of_run()}-{how}"
    print(f"seed {seed}")
    chance, base, database = random.Random(seed), tmp_path / "lake", f"chain_{how}"
    items, changes = base / "db" / "items", base / "db" / "changes"
    lakefmt.create_table(items, schema=ITEMS, record_key="id", table_type=table_type)
    lakefmt.create_table(changes, schema=CHANGES, kind="append")
    work = Work(mariadb, database, chance)
    for _ in range(20):
        work.step(20)
    port, mysql_port = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    statements = statements_of_chain(mariadb, database, url, mysql_port, how)
    deadline = time.monotonic() + SECONDS_OF_CHAIN - 60

    def wait_until(done: Callable[[], bool], *, works: bool = False) -> None:
        while not done():
            assert time.monotonic() < deadline, f"see flink.log in {tmp_path}"
            assert job.process.poll() is None
            if works:
                work.step(chance.choice((1, 2, 3, 12)))
            time.sleep(0.02)

    def work_for(seconds: float, sooner: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() > end or sooner(), works=True)

    def rows_of(path: Path) -> list[tuple[Any, ...]]:
        return list(mariadb.execute(f"select * from {database}.{path.name} order by 1"))

    server, job = start(base, port, mysql_port), FlinkJob(statements, tmp_path)
    try:
        job.wait_until_submitted()
        # Nobody writes until all rows are copied: of a server without MySQL's GTIDs Flink CDC 3.2.1 sends changes of that time twice
        # (apache/flink-cdc#2794).
        wait_until(lambda: newest_checkpoint(tmp_path) is not None)
        stop(server)
        server = start(base, port, mysql_port)
        wait_until(lambda: all(count(path) == len(rows_of(path)) for path in (items, changes)))
        for killed in chance.sample(KILLED, len(KILLED)):
            work_for(5 * chance.random())
            if chance.random() < 0.5:  # the worst moment is a short one
                work_for(5, lambda: is_prepared(url))
            if killed != "job":
                stop(server)
                work_for(2 * chance.random())
            if killed != "server":
                job.kill()
                work.step(12)
            if killed != "job":
                server = start(base, port, mysql_port)
            if killed != "server":
                job = FlinkJob(statements, tmp_path)
                job.wait_until_submitted()
        work.end()
        wait_until(lambda: last_has_come(items, "id") and last_has_come(changes, "item"))
    finally:
        job.kill()
        stop(server)
    for path, schema in ((items, ITEMS), (changes, CHANGES)):
        of_server = rows_of(path)
        assert sorted_rows(lakefmt.open_table(path).read(), schema) == of_server
        assert sorted_rows(hudi_rs_judge.snapshot(path), schema) == of_server
        labels = labels_of_commits(path)
        assert len(labels) == len(set(labels)) > 1
    print(f"{work.transactions} transactions, {len(labels)} loads of changes")
