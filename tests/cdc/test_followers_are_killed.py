"""``lakefmt cdc`` as a process, killed by signal 9 again and again while a real server works: in the end the tables are the server's.

In the usual run each server works for some seconds; ``LAKEFMT_CDC_SECONDS`` makes it longer, such as 1800. The seed is printed.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lakefmt
from lakefmt._core.cdc.events import SourceName
from tests.cdc.mysql.following_kit import new_database, selected
from tests.cdc.postgres.kit import select
from tests.cdc.postgres.workload import TABLES, Workload
from tests.example_counts import seed_of_run
from tests.judges.mariadb import READER_PASSWORD, MariaServer
from tests.judges.postgres import PostgresServer
from tests.kit import SECONDS_FOR_A_CHILD, THOROUGH

SECONDS = float(os.environ.get("LAKEFMT_CDC_SECONDS", "8" if THOROUGH else "4"))
#: Seconds between two kills, at most.
PAUSE = 20.0 if SECONDS > 60 else 2.5
#: Seconds between two transactions; ``LAKEFMT_CDC_PAUSE`` makes it shorter in a long run, in which a follower that is killed all the
#: time stays behind and has to catch up at the end.
BETWEEN_TRANSACTIONS = float(os.environ.get("LAKEFMT_CDC_PAUSE", "0.1" if SECONDS > 60 else "0.005"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(int(SECONDS) * 2 + 240)]


def follower(url: str, base: Path, *more: str, password: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lakefmt", "cdc", url, "--to", str(base), "--option", "commit_interval=0.3", *more]
    return subprocess.Popen(
        [*command, "--option", "lakefmt.durability=none"],
        env={**os.environ, "LAKEFMT_CDC_PASSWORD": password},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def working(step: Callable[[], None]) -> Iterator[None]:
    """Repeat a step in a thread."""
    ended, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not ended.wait(BETWEEN_TRANSACTIONS):
                step()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


def kill_again_and_again(start: Callable[..., subprocess.Popen[str]], draw: random.Random) -> int:
    """Start followers and kill them until the time is over, then let one end; return how many were killed."""
    end, kills = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        process = start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, said = process.communicate(timeout=draw.uniform(0.3, PAUSE))
            raise AssertionError(f"the follower ended by itself: {said[-2000:]}")
        process.kill()
        process.communicate()
        kills += 1
    return kills


def end_well(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("--once")
    _, said = process.communicate(timeout=SECONDS_FOR_A_CHILD * 4 + SECONDS)
    assert process.returncode == 0, said[-3000:]


class MariaWork:
    """Random transactions of two tables, some of them taken back, and columns that come."""

    def __init__(self, server: MariaServer, database: str, draw: random.Random) -> None:
        self.random, self.columns = draw, 0
        self.connection = server.connect(database, autocommit=False)

    def step(self) -> None:
        with self.connection.cursor() as cursor:
            for _ in range(self.random.choice((1, 2, 3, 12))):
                self._statement(cursor)
            if self.random.random() < 0.1:
                self.connection.rollback()
            else:
                self.connection.commit()
            if self.random.random() < 0.004 and self.columns < 20:
                self.columns += 1
                cursor.execute(f"alter table a add column more{self.columns} int default {self.columns}")

    def _statement(self, cursor: Any) -> None:
        table, key, other = self.random.choice("ab"), self.random.randint(0, 200), self.random.randint(0, 200)
        text = self.random.choice((None, "", "plain", "größe 🦀", "x" * 300))
        choice = self.random.random()
        if choice < 0.35:
            cursor.execute(f"replace into {table} (id, note, price) values (%s, %s, %s)", (key, text, key / 7))
        elif choice < 0.55:
            cursor.execute(f"update {table} set note = %s, price = price + 1 where id = %s", (text, key))
        elif choice < 0.65:
            cursor.execute(f"update ignore {table} set id = %s where id = %s", (other, key))
        elif choice < 0.85:
            cursor.execute(f"delete from {table} where id = %s", (key,))
        elif choice < 0.95:
            cursor.execute("savepoint here")
            cursor.execute(f"insert ignore into {table} (id, note) values (%s, 'gone')", (key,))
            cursor.execute("rollback to savepoint here")
        else:
            cursor.execute(
                f"insert into {table} (id, note) values (%s, %s) on duplicate key update note = 'again'", (key, text)
            )


@pytest.mark.in_turn(2, "killed processes")
def test_tables_equal_mariadb_whenever_the_follower_is_killed(mariadb: MariaServer, tmp_path: Path) -> None:
    seed = seed_of_run()
    made = "(id int primary key, note varchar(400), price decimal(12,4))"
    database = new_database(mariadb, f"create table a {made}", f"create table b {made}")
    mariadb.execute("insert into a select seq, 'first', seq from seq_0_to_150", database=database)
    work = MariaWork(mariadb, database, random.Random(seed))

    def start(*more: str) -> subprocess.Popen[str]:
        return follower(
            f"mysql://reader@127.0.0.1:{mariadb.port}/{database}", tmp_path, *more, password=READER_PASSWORD
        )

    with working(work.step):
        kills = kill_again_and_again(start, random.Random(seed + 1))
    end_well(start)
    print(f"seed {seed}: {kills} kills")
    for name in "ab":
        rows = lakefmt.open_table(tmp_path / database / name).read().sort_by("id")
        says = selected(mariadb, SourceName(database, name)).sort_by("id")
        assert rows.select(says.column_names).to_pylist() == says.to_pylist(), (name, seed)


@pytest.mark.in_turn(2, "killed processes")
def test_tables_equal_postgres_whenever_the_follower_is_killed(
    postgres: PostgresServer, shop: str, tmp_path: Path
) -> None:
    seed = seed_of_run()
    with contextlib.closing(postgres.connect(shop)) as connection:
        work = Workload(seed, connection, full_identity=False)
        work.create()

        def start(*more: str) -> subprocess.Popen[str]:
            return follower(f"postgresql://postgres@{postgres.host}:{postgres.port}/{shop}", tmp_path, *more)

        def step() -> None:
            work.alters = work.added < 20
            work.transaction()

        with working(step):
            kills = kill_again_and_again(start, random.Random(seed + 1))
        end_well(start)
    print(f"seed {seed}: {kills} kills")
    for name in TABLES:
        rows = lakefmt.open_table(tmp_path / "public" / name).read()
        says = select(postgres, shop, f"SELECT {', '.join(rows.column_names)} FROM {name}")
        assert sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr) == says, (name, seed)
