"""What is said for sure of the columns of an event is so, however much was altered before the catalog was asked."""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.cdc.postgres.rows import (
    AttributeRow,
    ColumnRow,
    KnownColumns,
    changes_of_names,
    numbers_of,
)
from lakefmt.cdc import CdcOptions, Follower
from tests.cdc.mortal_source import Died, Mortal
from tests.cdc.postgres.kit import source_of
from tests.example_counts import examples, seeds_of_run
from tests.judges.postgres import PostgresServer

NAMES = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(NAMES), st.sampled_from([23, 25])),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("rename"), st.integers(0, 3), st.sampled_from(NAMES)),
        st.tuples(st.just("exchange"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("event"), st.integers(0, 6), st.just(0)),
    ),
    max_size=14,
)


class History:
    """A table of a server: each state has all columns that were ever added, None in place of one that is gone."""

    def __init__(self, steps: list[tuple[str, Any, Any]]) -> None:
        columns: list[ColumnRow | None] = [
            ColumnRow("id", 20, -1),
            ColumnRow("a", 23, -1),
            None,
            ColumnRow("b", 23, -1),
        ]
        self.states = [list(columns)]
        #: The number of the state of each event, and how many states later the catalog is asked.
        self.events: list[tuple[int, int]] = []
        for kind, first, second in steps:
            live = [number for number, column in enumerate(columns) if column is not None]
            names = {columns[number].name for number in live}  # type: ignore[union-attr]
            if kind == "event":
                self.events.append((len(self.states) - 1, first))
                continue
            if kind == "add" and first not in names:
                columns.append(ColumnRow(first, second, -1))
            elif kind == "drop" and len(live) > 1:
                columns[live[1 + first % (len(live) - 1)]] = None
            elif kind == "rename" and second not in names:
                number = live[first % len(live)]
                columns[number] = columns[number]._replace(name=second)  # type: ignore[union-attr]
            elif kind == "exchange":
                one, other = (live[place % len(live)] for place in (first, second))
                was, will = columns[one], columns[other]
                columns[one], columns[other] = was._replace(name=will.name), will._replace(name=was.name)  # type: ignore[union-attr]
            self.states.append(list(columns))

    def sent(self, state: int) -> dict[int, ColumnRow]:
        return {number + 1: each for number, each in enumerate(self.states[state]) if each is not None}

    def catalog(self, state: int) -> list[AttributeRow]:
        gone = ColumnRow("........pg.dropped.0........", 0, -1)
        return [
            AttributeRow(number, each or gone, each is None, each is not None)
            for number, each in enumerate(self.states[min(state, len(self.states) - 1)], 1)
        ]

    def known(self, state: int) -> KnownColumns:
        now = self.sent(state)
        return KnownColumns(tuple(now), tuple(now.values()), len(self.states[state]))


@settings(max_examples=examples(3_000), derandomize=True, deadline=None)
@given(steps=STEPS)
def test_numbers_that_are_told_are_those_of_the_event(steps: list[tuple[str, Any, Any]]) -> None:
    history = History(steps)
    known, read = history.known(0), 0
    for state, later in history.events:
        if state < read:
            continue
        columns = history.sent(state)
        numbers = numbers_of(list(columns.values()), known, history.catalog(state + later))
        if numbers is None:  # all rows are read again, as of now
            read = min(state + later, len(history.states) - 1)
            known = history.known(read)
            continue
        assert numbers == tuple(columns)
        known = KnownColumns(numbers, tuple(columns.values()), max(*numbers, known.attributes))


@settings(max_examples=examples(1_000), derandomize=True, deadline=None)
@given(steps=STEPS, kind=st.sampled_from(["add", "drop", "rename"]), later=st.integers(0, 20))
def test_alterations_of_one_kind_are_always_told_and_names_at_any_time(
    steps: list[tuple[str, Any, Any]], kind: str, later: int
) -> None:
    history = History([step for step in steps if step[0] in (kind, "rename", "exchange")])
    last = len(history.states) - 1
    for state in (last, max(0, last - later)):
        columns = history.sent(state)
        told = numbers_of(list(columns.values()), history.known(0), history.catalog(last))
        if state == last or kind != "drop":
            assert told == tuple(columns)
        else:
            assert told in (None, tuple(columns))


def test_what_is_not_known_is_named() -> None:
    known = KnownColumns((1, 2), (ColumnRow("id", 20, -1), ColumnRow("b", 23, -1)), 2)
    catalog = [
        AttributeRow(1, ColumnRow("id", 20, -1), False, True),
        AttributeRow(2, ColumnRow("", 0, -1), True, False),
        AttributeRow(3, ColumnRow("a", 23, -1), False, True),
    ]
    columns = [ColumnRow("id", 20, -1), ColumnRow("a", 23, -1)]
    assert numbers_of(columns, known, catalog) is None  # renamed, and then dropped and added anew; or dropped and added
    renamed, reason = changes_of_names(known, columns, None)
    assert (renamed, "'id', 'b'" in reason, "'id', 'a'" in reason) == ({}, True, True)
    assert numbers_of(columns, known, []) is None  # the table is gone
    assert numbers_of(columns, None, catalog) == (1, 3)
    assert numbers_of(columns[:1], None, catalog) is None


# ------------------------------------------------------------------------------------------------------- a real server

TABLES = itertools.count()
OPTIONS: dict[str, Any] = {"settings": {"lakefmt.durability": "none"}, "commit_interval": 0}


def follow_into(
    server: PostgresServer, shop: str, path: str, events: int = 10_000, options: CdcOptions | None = None
) -> Follower:
    """Follow until now, or until so many events came."""
    options = options or CdcOptions(**OPTIONS)
    follower = Follower(lambda: Mortal(source_of(server, shop, slot=options.mode), events), path, {}, options)
    with contextlib.suppress(Died):
        follower.run(until_now=True)
    return follower


def alteration(draw: random.Random, columns: list[str]) -> list[str]:
    """Return statements of one transaction that alter the table, and do it to the names of its columns."""
    free = [name for name in ("a", "b", "c", "d") if name not in columns]
    kind = draw.choice(
        ["add"] * bool(free) + ["drop", "rename"] * (len(columns) > 1) + ["exchange"] * (len(columns) > 2)
    )
    if kind == "add":
        name, default = draw.choice(free), draw.choice(("", " DEFAULT 5", " NOT NULL DEFAULT 7"))
        columns.append(name)
        return [f"ALTER TABLE t ADD COLUMN {name} int{default}"]
    old = draw.choice(columns[1:])
    if kind == "drop":
        columns.remove(old)
        dropped = [f"ALTER TABLE t DROP COLUMN {old}"]
        if draw.random() < 0.3:
            columns.append(old)
            return [*dropped, f"ALTER TABLE t ADD COLUMN {old} int"]
        return dropped
    if kind == "exchange" or not free:
        other = draw.choice([name for name in columns[1:] if name != old] or [old])
        if other == old:
            return ["ANALYZE t"]
        place, other_place = columns.index(old), columns.index(other)
        columns[place], columns[other_place] = other, old
        return [f"ALTER TABLE t RENAME {was} TO {will}" for was, will in ((old, "x"), (other, old), ("x", other))]
    new = draw.choice(free)
    columns[columns.index(old)] = new
    wider = [f"ALTER TABLE t ALTER {new} TYPE bigint"] if draw.random() < 0.3 else []
    return [f"ALTER TABLE t RENAME {old} TO {new}", *wider]


def change(draw: random.Random, columns: list[str]) -> list[str]:
    """Return a change of rows."""
    key, number = draw.randrange(8), draw.randrange(1000)
    kind = draw.choice(("put", "put", "delete", "move"))
    if kind == "delete":
        return [f"DELETE FROM t WHERE id = {key}"]
    if kind == "move":
        return [f"UPDATE t SET id = {number + 10} WHERE id = {key}"]
    values = [number + place for place in range(len(columns) - 1)]
    names = ", ".join(["id", *columns[1:]])
    sets = ", ".join(f"{name} = {value}" for name, value in zip(columns[1:], values, strict=True))
    end = f"DO UPDATE SET {sets}" if sets else "DO NOTHING"
    return [f"INSERT INTO t ({names}) VALUES ({', '.join(map(str, [key, *values]))}) ON CONFLICT (id) {end}"]


@pytest.mark.parametrize("seed", seeds_of_run(4, 300))
def test_columns_of_the_server_are_those_of_the_table(postgres: PostgresServer, shop: str, seed: int) -> None:
    """Renamed, exchanged, dropped and added anew, while the follower runs, is away, or dies."""
    from psycopg2.errors import UniqueViolation

    draw = random.Random(seed)
    columns, path = ["id", "a", "b"], f"memory://attributes-{next(TABLES)}"
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", database=shop)
    follow_into(postgres, shop, path)
    told = list[str]()
    for _ in range(8):
        for _ in range(draw.randrange(1, 5)):
            statements = alteration(draw, columns) if draw.random() < 0.45 else change(draw, columns)
            told += statements
            with contextlib.suppress(UniqueViolation):
                postgres.execute("; ".join(statements), database=shop)
        if draw.random() < 0.6:
            events = draw.choice((10_000, draw.randrange(12)))
            told.append(f"-- followed, {events} events")
            follow_into(postgres, shop, path, events)
    postgres.execute("INSERT INTO t (id) VALUES (-1)", database=shop)  # columns are told with the next row
    follow_into(postgres, shop, path)
    expected = postgres.rows(f"SELECT {', '.join(columns)} FROM t ORDER BY id", shop)
    found = lakefmt.open_table(f"{path}/public/t").read(columns=columns).to_pylist()
    assert [tuple(row.values()) for row in sorted(found, key=lambda row: row["id"])] == expected, told


def rows_here(path: str) -> list[dict[str, Any]]:
    return sorted(lakefmt.open_table(f"{path}/public/t").read().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("is_away", [False, True])
def test_a_renamed_column_is_renamed_and_nothing_is_read_again(
    postgres: PostgresServer, shop: str, is_away: bool
) -> None:
    """Also when it got one name after the other since."""
    path = f"memory://attributes-{next(TABLES)}"
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 10, 100)", database=shop
    )
    follow_into(postgres, shop, path)
    read = 0
    for statements in (
        ["ALTER TABLE t RENAME a TO x", "INSERT INTO t VALUES (2, 20, 200)"],
        ["ALTER TABLE t RENAME x TO y", "ALTER TABLE t RENAME b TO a"],
        ["ALTER TABLE t RENAME y TO z", "INSERT INTO t VALUES (3, 30, 300)"],
    ):
        postgres.execute(*statements, database=shop)
        if not is_away:
            read += follow_into(postgres, shop, path).progress().tables["public.t"].rows
    read += follow_into(postgres, shop, path).progress().tables["public.t"].rows
    assert rows_here(path) == [{"id": n, "z": 10 * n, "a": 100 * n} for n in (1, 2, 3)]
    assert read == 2


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize(
    ("column", "alter", "value"),
    [
        ("int", "TYPE bigint USING v * 1000", 7),
        ("varchar(10)", "TYPE varchar(20) USING upper(v)", "z"),
        ("varchar(10)", "TYPE text USING v || '!'", "z"),
        ("numeric(10, 3)", "TYPE numeric(10, 1)", 2),
        ("real", "TYPE double precision USING v / 3", 0.5),
    ],
)
def test_values_that_a_new_type_computes_are_read_again(
    postgres: PostgresServer, shop: str, is_away: bool, column: str, alter: str, value: object
) -> None:
    path, first = f"memory://attributes-{next(TABLES)}", "a" if isinstance(value, str) else "1.26"
    shown = f"'{first}'::text::{column}"
    postgres.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, v {column})",
        f"INSERT INTO t VALUES (1, {shown if column != 'int' else 5}), (2, NULL)",
        database=shop,
    )
    follow_into(postgres, shop, path)
    postgres.execute(f"ALTER TABLE t ALTER v {alter}", database=shop)
    if not is_away:
        follow_into(postgres, shop, path)
    postgres.execute(f"INSERT INTO t VALUES (3, {value!r})", database=shop)
    follow_into(postgres, shop, path)
    assert [(row["id"], row["v"]) for row in rows_here(path)] == postgres.rows("SELECT id, v FROM t ORDER BY id", shop)


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize(
    "alter",
    [
        "ALTER v TYPE int USING v * 1000",
        "ALTER v TYPE int USING id",
        "ADD w double precision DEFAULT random()",
        "ADD w text DEFAULT 'x' || clock_timestamp()::text",
    ],
)
def test_rows_that_an_alteration_writes_anew_are_read_again(
    postgres: PostgresServer, shop: str, is_away: bool, alter: str
) -> None:
    """Also where the type stays: no message of the log tells, and the rows are in another file."""
    path = f"memory://attributes-{next(TABLES)}"
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 5), (2, NULL)", database=shop
    )
    follow_into(postgres, shop, path)
    postgres.execute(f"ALTER TABLE t {alter}", database=shop)
    if not is_away:
        follow_into(postgres, shop, path)
    postgres.execute("INSERT INTO t (id, v) VALUES (3, 7)", database=shop)
    follow_into(postgres, shop, path)
    rows = rows_here(path)
    assert [tuple(row.values()) for row in rows] == postgres.rows(
        f"SELECT {', '.join(rows[0])} FROM t ORDER BY id", shop
    )


@pytest.mark.parametrize(
    "statement", ["VACUUM FULL t", "CREATE INDEX ON t (v)", "ALTER TABLE t ALTER v SET STATISTICS 9"]
)
def test_rows_that_no_alteration_writes_anew_are_not_read_again(
    postgres: PostgresServer, shop: str, statement: str
) -> None:
    path = f"memory://attributes-{next(TABLES)}"
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 5), (2, 6)", database=shop)
    follow_into(postgres, shop, path)
    postgres.execute(statement, database=shop)
    postgres.execute("INSERT INTO t VALUES (3, 7)", database=shop)
    assert follow_into(postgres, shop, path).progress().tables["public.t"].rows == 1


def test_a_column_that_was_dropped_and_added_anew_does_not_show_the_old_values(
    postgres: PostgresServer, shop: str
) -> None:
    path, log_path = (f"memory://attributes-{next(TABLES)}" for _ in range(2))
    logs = CdcOptions(**OPTIONS, mode="append_log")
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10)", database=shop)
    follow_into(postgres, shop, path)
    follow_into(postgres, shop, log_path, options=logs)
    postgres.execute("ALTER TABLE t DROP a", "ALTER TABLE t ADD a int", "INSERT INTO t VALUES (2, 20)", database=shop)
    follow_into(postgres, shop, path)
    follow_into(postgres, shop, log_path, options=logs)
    assert rows_here(path) == [{"id": 1, "a": None}, {"id": 2, "a": 20}]
    assert [(row["id"], row["a"]) for row in rows_here(log_path)] == [(1, 10), (2, 20)]


def test_a_column_with_a_default_does_not_keep_rows_that_are_gone_when_all_are_read_again(
    postgres: PostgresServer, shop: str
) -> None:
    path = f"memory://attributes-{next(TABLES)}"
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 10), (2, 20)", database=shop
    )
    follow_into(postgres, shop, path)
    postgres.execute(
        "ALTER TABLE t DROP a, ADD c int DEFAULT 5",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (3)",
        database=shop,
    )
    follow_into(postgres, shop, path)
    assert [(row["id"], row["c"]) for row in rows_here(path)] == [(1, 5), (3, 5)]


def test_a_column_that_was_generated_brings_the_values_that_are_there(postgres: PostgresServer, shop: str) -> None:
    path = f"memory://attributes-{next(TABLES)}"
    postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int GENERATED ALWAYS AS (id * 10) STORED)",
        "INSERT INTO t VALUES (1)",
        database=shop,
    )
    follow_into(postgres, shop, path)
    assert rows_here(path) == [{"id": 1}]
    postgres.execute("ALTER TABLE t ALTER a DROP EXPRESSION", "INSERT INTO t VALUES (2, 5)", database=shop)
    follow_into(postgres, shop, path)
    assert rows_here(path) == [{"id": 1, "a": 10}, {"id": 2, "a": 5}]
