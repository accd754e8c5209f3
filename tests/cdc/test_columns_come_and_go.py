"""Columns that come, go and change their names on a real server at random: the columns that the server has are those of the table here."""

from __future__ import annotations

import contextlib
import itertools
import random
from datetime import datetime
from typing import Any

import pytest

import lakefmt
from lakefmt._core.cdc.events import SourceName
from lakefmt.cdc import CdcOptions, Follower
from lakefmt.errors import SourceChanged
from tests.cdc.mortal_source import Died, Mortal
from tests.cdc.mysql.following_kit import new_database, selected, source_of
from tests.example_counts import seeds_of_run
from tests.judges.mariadb import MariaServer

pytestmark = pytest.mark.xdist_group("mariadb")

NUMBERS = itertools.count()
NAMES = ("a", "b", "c", "d")
OPTIONS: dict[str, Any] = {"settings": {"lakefmt.durability": "none"}, "commit_interval": 0}


def alteration(draw: random.Random, columns: list[str]) -> str:
    """Return an alteration of the table, and do it to the names of its columns."""
    free = [name for name in NAMES if name not in columns]
    kind = draw.choice(
        ["add"] * bool(free) + ["drop", "rename"] * (len(columns) > 1) + ["exchange"] * (len(columns) > 2)
    )
    if kind == "add":
        name, default = draw.choice(free), draw.choice(("", " default null", " default 5", " not null default 7"))
        columns.append(name)
        return f"alter table t add column {name} int{default}"
    old = draw.choice(columns[1:])
    shown = draw.choice((old, old.upper()))  # one name to the server
    if kind == "drop":
        if draw.random() < 0.3:
            return f"alter table t drop column {shown}, add column {old} int"
        columns.remove(old)
        return f"alter table t drop column {shown}"
    place = columns.index(old)
    if kind == "exchange" or not free:
        other = draw.choice([name for name in columns[1:] if name != old] or [old])
        if other == old:
            return "alter table t comment 'nothing'"
        columns[columns.index(other)], columns[place] = old, other
        return f"alter table t rename column {old} to {other}, rename column {other} to {old}"
    columns[place] = draw.choice(free)
    return f"alter table t rename column {shown} to {columns[place]}"


def change(draw: random.Random, columns: list[str]) -> str:
    """Return a change of rows."""
    key, number = draw.randrange(8), draw.randrange(1000)
    values = ", ".join(f"{name} = {number + place}" for place, name in enumerate(columns[1:]))
    kind = draw.choice(("put", "put", "delete", "empty"))
    if kind == "delete":
        return f"delete from t where id = {key}"
    if kind == "empty":
        return f"update ignore t set id = id + {number + 10} where id = {key}"
    return f"insert into t set id = {key}, {values} on duplicate key update {values}" if values else "do 1"


@pytest.mark.parametrize("seed", seeds_of_run(5, 300))
def test_columns_of_the_server_are_those_of_the_table(mariadb: MariaServer, seed: int) -> None:
    draw = random.Random(seed)
    columns = ["id", "a", "b"]
    database = new_database(mariadb, "create table t (id int primary key, a int, b int)")
    path = f"memory://columns-{next(NUMBERS)}"

    def follow(events: int = 10_000) -> None:
        with contextlib.suppress(Died):
            Follower(
                lambda: Mortal(source_of(mariadb, database, chunk_rows=3), events),
                path,
                {},
                CdcOptions(**{**OPTIONS, "commit_interval": (0, 10**6)[seed % 2]}),
            ).run(until_now=True)

    told = list[str]()
    follow()
    for _ in range(12):
        for _ in range(draw.randrange(1, 5)):
            told.append(alteration(draw, columns) if draw.random() < 0.45 else change(draw, columns))
            mariadb.execute(told[-1], database=database)
        if draw.random() < 0.6:
            kill_after = draw.choice((10_000, draw.randrange(12)))
            told.append(f"-- followed, {kill_after} events")
            follow(kill_after)
    mariadb.execute("insert into t set id = -1", database=database)  # columns are told with the next row
    follow()
    expected = mariadb.execute(f"select {', '.join(columns)} from t order by id", database=database)
    found = lakefmt.open_table(f"{path}/{database}/t").read(columns=columns).sort_by("id")
    assert [tuple(row.values()) for row in found.to_pylist()] == [tuple(row) for row in expected], told


@pytest.mark.parametrize(
    ("made", "altered"),
    [
        ("x decimal(10, 4)", "modify x decimal(10, 1)"),
        ("x datetime(6)", "modify x datetime(2)"),
        ("x double", "modify x float"),
        ("x int as (id + 1) virtual", "modify x int as (id + 100) virtual"),
        ("x int as (id + 1) persistent", "drop x, add x int as (id + 100) persistent"),
    ],
)
def test_values_that_an_alteration_changes_are_those_of_the_server(
    mariadb: MariaServer, made: str, altered: str
) -> None:
    """They are rounded or computed anew, and no event of rows tells."""
    database = new_database(mariadb, f"create table t (id int primary key, {made})")
    path = f"memory://columns-{next(NUMBERS)}"

    def follow() -> None:
        Follower(lambda: source_of(mariadb, database), path, {}, CdcOptions(**OPTIONS)).run(until_now=True)

    value = {"de": "1.2345", "da": "'2026-01-02 03:04:05.678901'", "do": "0.1"}.get(made[2:4], "default")
    mariadb.execute(f"insert into t values (1, {value})", database=database)
    follow()
    mariadb.execute(f"alter table t {altered}", f"insert into t values (2, {value})", database=database)
    follow()
    found = lakefmt.open_table(f"{path}/{database}/t").read().sort_by("id")["x"].to_pylist()
    assert len(found) == 2
    assert len(set(found)) == (2 if value == "default" else 1)
    if value == "default":
        assert found == [101, 102]


#: Definitions of a column, and values that it takes.
FIRST: dict[str, tuple[str, ...]] = {
    "int": ("-5", "300", "70000"),
    "bigint unsigned": ("5", "9223372036854775813"),
    "decimal(10,4)": ("1.2345", "-1.5", "99999.9999"),
    "double": ("1.5", "-2e8", "0.1"),
    "varchar(40)": ("'abc'", "'ABC'", "'a  '", "'12'", "''", "'größe'"),
    "text": ("'123E4567-E89B-12D3-A456-426614174000'", "'::0001'"),
    "enum('x','y','z')": ("'x'", "'z'"),
    "set('x','y')": ("'x,y'", "'y'", "''"),
    "datetime(6)": ("'2026-01-02 03:04:05.678901'", "'1901-01-02 00:00:00'"),
    "time(6)": ("'03:04:05.678901'", "'-100:00:00'"),
    "date": ("'2026-01-02'", "'1000-01-01'"),
    "year": ("2026", "1999"),
    "varbinary(8)": ("x'0102'", "x'ff00000000000001'"),
    "binary(4)": ("x'0102'",),
}
LATER = (
    *("tinyint", "int", "bigint", "int unsigned", "tinyint unsigned", "year", "int not null", "bool", "serial"),
    *("decimal(8,1)", "decimal(30,8)", "numeric", "float", "double", "double precision", "real", "bigint as (id)"),
    *("varchar(2)", "varchar(60)", "char(10)", "national char(10)", "tinytext", "varchar(40) character set latin1"),
    *("enum('y','z')", "enum('z','y','x','w')", "set('x')", "text not null", "json", "uuid", "inet6"),
    *("datetime", "timestamp", "date", "time", "binary(10)", "varbinary(2)", "blob", "varchar(30) not null"),
)


@pytest.mark.parametrize("seed", seeds_of_run(2, 60))
def test_values_of_every_alteration_that_the_server_takes_are_the_servers(mariadb: MariaServer, seed: int) -> None:
    """Also those that a session that is not strict clamps, cuts or empties; or the table stops."""
    import pymysql

    draw = random.Random(seed)
    cases = [
        (draw.choice(list(FIRST)), draw.choice(LATER), draw.choice(("", "strict_trans_tables"))) for _ in range(30)
    ]
    database = new_database(mariadb)
    for number, (first, _, _) in enumerate(cases):
        rows = ", ".join(f"({key}, {value})" for key, value in enumerate((*FIRST[first], "null")))
        mariadb.execute(
            f"create table t{number} (id int primary key, x {first}) character set utf8mb4",
            f"insert into t{number} values {rows}",
            database=database,
        )
    path, names = f"memory://columns-{next(NUMBERS)}", {"tables": [f"{database}.*"]}
    followers = [Follower(lambda: source_of(mariadb, database, **names), path, {}, CdcOptions(**OPTIONS)) for _ in "ab"]
    followers[0].run(until_now=True)
    for number, (_, later, mode) in enumerate(cases):
        how = draw.choice(("modify x", "modify column x", "change x x", "change column if exists `x` X"))
        with contextlib.suppress(pymysql.MySQLError):  # the server refuses some
            mariadb.execute(
                "set names utf8mb4",
                f"set sql_mode = '{mode}'",
                f"alter table t{number} {how} {later}",
                database=database,
            )
        # Columns are told with the next row.
        mariadb.execute("set sql_mode = ''", f"insert into t{number} (id) values (99)", database=database)
    with contextlib.suppress(SourceChanged):
        followers[1].run(until_now=True)
    found = dict[str, tuple[Any, Any]]()
    for number, case in enumerate(cases):
        progress = followers[1].progress().tables[f"{database}.t{number}"]
        if progress.error is None:
            here = lakefmt.open_table(f"{path}/{database}/t{number}").read().sort_by("id").to_pylist()
            there = selected(mariadb, SourceName(database, f"t{number}")).sort_by("id").to_pylist()
            found[str(case)] = plain(here), plain(there)
    assert {case: here for case, (here, _) in found.items()} == {case: there for case, (_, there) in found.items()}


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Values without names in other letters and without zones."""
    return [tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row.values()) for row in rows]
