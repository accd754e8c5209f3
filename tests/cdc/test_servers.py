"""Real servers end to end: the walk-through of the connector guide in both modes, and what a follower says of a server."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lakefmt
from lakefmt._core.cdc.postgres.source import PostgresSource
from lakefmt._core.cli.root import main
from lakefmt.cdc import SourceReader, follow
from lakefmt.errors import SchemaMismatch, SourceChanged, SourceRefused, TableNotFound
from tests.cdc.mysql.following_kit import new_database, source_of
from tests.judges.mariadb import READER_PASSWORD, MariaServer
from tests.judges.postgres import PostgresServer

NUMBERS = itertools.count()
QUICK: dict[str, Any] = {"until_now": True, "settings": {"lakefmt.durability": "none"}}
MADE = "create table guide (id int primary key, name varchar(20))"
FILLED = "insert into guide values (1, 'a'), (2, 'b'), (3, 'c')"
CHANGED = "update guide set name = 'A' where id = 1"

Server = tuple[Callable[[], SourceReader], Callable[[str], None], str]


@pytest.fixture(params=["mariadb", "postgres"])
def server(request: pytest.FixtureRequest) -> Server:
    """A function that opens a source, one that executes a statement, and the schema of the guide's table."""
    if request.param == "mariadb":
        maria: MariaServer = request.getfixturevalue("mariadb")
        database = new_database(maria, MADE, FILLED)
        return (
            lambda: source_of(maria, database),
            lambda text: maria.execute(text, database=database) and None,
            database,
        )
    postgres: PostgresServer = request.getfixturevalue("postgres")
    shop: str = request.getfixturevalue("shop")
    postgres.execute(MADE, "alter table guide replica identity full", FILLED, database=shop)
    return (
        lambda: PostgresSource(postgres.host, postgres.port, "postgres", "", shop),
        lambda text: postgres.execute(text, database=shop),
        "public",
    )


def test_the_guide_gets_its_mirror_from_a_real_server(server: Server) -> None:
    source, execute, schema = server
    base = f"memory://guide-{next(NUMBERS)}"
    follow(source, base, **QUICK)
    execute(CHANGED)
    follow(source, base, **QUICK)
    table = lakefmt.open_table(f"{base}/{schema}/guide").read().sort_by("id")
    assert table.to_pylist() == [{"id": 1, "name": "A"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}]


def test_the_guide_gets_its_log_from_a_real_server(server: Server) -> None:
    source, execute, schema = server
    base = f"memory://guide-{next(NUMBERS)}"
    follow(source, base, mode="append_log", operation_column="op", **QUICK)
    execute(CHANGED)
    follow(source, base, mode="append_log", operation_column="op", **QUICK)
    rows = lakefmt.open_table(f"{base}/{schema}/guide").read().to_pylist()
    first = sorted((row for row in rows if row["id"] == 1), key=lambda row: row["_position"])
    assert [(row["op"], row["name"]) for row in first] == [
        ("INSERT", "a"),
        ("UPDATE_BEFORE", "a"),
        ("UPDATE_AFTER", "A"),
    ]
    assert len(rows) == 5


def test_a_column_that_comes_while_nobody_follows_is_there(server: Server) -> None:
    source, execute, schema = server
    base = f"memory://guide-{next(NUMBERS)}"
    follow(source, base, **QUICK)
    execute("alter table guide add column more int")
    execute("update guide set more = 7 where id = 2")
    execute("delete from guide where id = 3")
    follow(source, base, **QUICK)
    table = lakefmt.open_table(f"{base}/{schema}/guide").read().sort_by("id")
    assert table["more"].to_pylist() == [None, 7]


def test_the_command_follows_once_and_says_no_password(
    mariadb: MariaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = new_database(mariadb, MADE, FILLED)
    monkeypatch.setenv("LAKEFMT_CDC_PASSWORD", READER_PASSWORD)
    url = f"mysql://reader@127.0.0.1:{mariadb.port}/{database}"
    checked = CliRunner().invoke(main, ["cdc", url, "--check"])
    assert (checked.exit_code, checked.stdout) == (0, "the database can be followed\n"), checked.output
    done = CliRunner().invoke(main, ["cdc", url, "--to", str(tmp_path), "--once", "--option", "delete_mode=soft"])
    assert done.exit_code == 0, done.output
    assert "1 tables, 3 changes" in done.stdout
    assert READER_PASSWORD not in done.output + checked.output
    assert lakefmt.open_table(tmp_path / database / "guide").read().num_rows == 3
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert READER_PASSWORD.encode() not in stored


def test_a_file_says_what_is_special_of_tables(
    mariadb: MariaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = "create table odd (id int primary key, `Straße` varchar(9), city varchar(9))"
    database = new_database(mariadb, made, "insert into odd values (1, 'x', 'oslo')")
    monkeypatch.setenv("LAKEFMT_CDC_PASSWORD", READER_PASSWORD)
    command = ["cdc", f"mysql://reader@127.0.0.1:{mariadb.port}/{database}", "--to", str(tmp_path / "lake"), "--once"]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert f"{database}.odd cannot be followed: column name 'Straße'" in refused.output
    file = tmp_path / "tables.toml"
    file.write_text(f'["{database}.odd"]\npartition_by = "city"\nrename = {{"Straße" = "street"}}\n', "utf-8")
    done = CliRunner().invoke(main, [*command, "--tables-file", str(file)])
    assert done.exit_code == 0, done.output
    assert lakefmt.open_table(tmp_path / "lake" / database / "odd").read(columns=["street"]).to_pylist() == [
        {"street": "x"}
    ]
    elsewhere = tmp_path / "elsewhere"
    beside = [*command, "--tables-file", str(file), "--table", f"odd={elsewhere}"]
    done = CliRunner().invoke(main, beside)
    assert done.exit_code == 0, done.output
    assert lakefmt.open_table(elsewhere).read(columns=["street"]).num_rows == 1, (
        "a path takes the place of a path alone"
    )
    made = "create table other (id int primary key)"
    mariadb.execute(made, "insert into other values (1)", database=database)
    neighbour = new_database(mariadb, made, "insert into other values (2)")
    file.write_text('["!odd"]\n', "utf-8")
    left_out = CliRunner().invoke(main, [*command[:3], str(tmp_path / "others"), "--once", "--tables-file", str(file)])
    assert left_out.exit_code == 0, left_out.output
    assert [path.name for path in (tmp_path / "others" / database).iterdir()] == ["other"]
    assert not (tmp_path / "others" / neighbour).exists(), "of all tables of the database that the address names"
    file.write_text(f'["{database}.odd"]\nkeys = "city"\n', "utf-8")
    assert "unknown 'keys'" in CliRunner().invoke(main, [*command, "--tables-file", str(file)]).output


def test_a_wrong_password_is_an_error_without_it(mariadb: MariaServer, tmp_path: Path) -> None:
    database = new_database(mariadb, MADE)
    file = tmp_path / "password"
    file.write_text("Not-this-one\n", "utf-8")
    url = f"mysql://reader@127.0.0.1:{mariadb.port}/{database}"
    done = CliRunner().invoke(main, ["cdc", url, "--to", str(tmp_path), "--once", "--password-file", str(file)])
    assert done.exit_code == 1
    assert "error[source_refused]" in done.stderr
    assert "Not-this-one" not in done.output


def test_a_table_that_cannot_be_stored_stops_alone_and_is_the_servers_when_it_is_mended(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    source, execute, schema = server
    base, told = f"memory://guide-{next(NUMBERS)}", list[Any]()
    more = {**QUICK, "on_commit": told.append}
    execute("create table odd (id int primary key, v int)")
    execute("create table odder (id int primary key, größe int)")
    execute("insert into odd values (1, 1), (2, 2), (3, 3)")
    execute("insert into odder values (1, 7)")
    with pytest.raises(SchemaMismatch, match=f"{schema}.odder cannot be followed: column name 'größe'"):
        follow(source, base, **more)
    assert ids(base, schema, "odd") == ids(base, schema, "guide") == [1, 2, 3]
    assert told[-1].as_dict()["tables_stopped"] == 1
    assert "größe" in told[-1].tables[f"{schema}.odder"].error
    assert f"{schema}.odder stops, 2 others go on" in caplog.text

    execute("delete from odd where id = 1")
    execute("alter table odd drop column v")
    execute("alter table odd add column v varchar(9)")
    execute("insert into odd values (4, 'four')")
    execute("delete from guide where id = 2")
    with pytest.raises(SourceChanged, match="2 tables stopped"):
        follow(source, base, **more)
    execute("delete from odd where id = 2")
    execute("insert into odd values (5, 'five')")
    execute("insert into guide values (6, 'six')")
    with pytest.raises(SourceChanged, match="2 tables stopped"):
        follow(source, base, **more)
    assert ids(base, schema, "guide") == [1, 3, 6]
    follow(
        source,
        base,
        tables={f"{schema}.odder": {"rename": {"größe": "size"}}, f"{schema}.*": None},
        on_type_changed="new_column",
        **more,
    )
    assert (ids(base, schema, "odd"), ids(base, schema, "odder")) == ([3, 4, 5], [1])
    table = lakefmt.open_table(f"{base}/{schema}/odd").read(columns=["id", "v__v2"]).sort_by("id")
    assert table["v__v2"].to_pylist() == [None, "four", "five"]
    assert told[-1].as_dict()["tables_stopped"] == 0


#: By scheme: a table that the source refuses when it begins, and the statement that mends it.
REFUSED = {
    "mysql": ("alter table bad add system versioning", "alter table bad drop system versioning"),
    "postgres": ("alter table bad drop constraint bad_pkey", "alter table bad add primary key (id)"),
}
#: What makes a table that is followed one that cannot be read, and what mends it.
REFUSED_LATER = {
    "mysql": REFUSED["mysql"],
    "postgres": ("insert into bad values (4, 'infinity')", "update bad set day = '2026-01-04' where id = 4"),
}


def test_a_table_that_the_check_refuses_is_left_out_and_the_others_are_followed(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    source, execute, schema = server
    base, told = f"memory://guide-{next(NUMBERS)}", list[Any]()
    more = {**QUICK, "on_commit": told.append}
    breaks, mends = REFUSED[scheme_of(schema)]
    execute("create table bad (id int primary key, day date)")
    execute("insert into bad values (1, '2026-01-01')")
    execute(breaks)
    for _ in range(2):
        execute("insert into guide select max(id) + 1, 'x' from guide")
        with pytest.raises(SourceRefused, match=rf"{schema}\.bad"):
            follow(source, base, **more)
        assert f"{schema}.bad stops, 1 others go on" in caplog.text
        assert told[-1].as_dict()["tables_stopped"] == 1
    assert ids(base, schema, "guide") == [1, 2, 3, 4, 5]
    with pytest.raises(TableNotFound):
        lakefmt.open_table(f"{base}/{schema}/bad")
    for option in ({"on_table_error": "fail"}, {"tables": [f"{schema}.bad"]}, {"mode": "append_log"}):
        with pytest.raises(SourceRefused, match=rf"{schema}\.bad"):
            follow(source, f"memory://guide-{next(NUMBERS)}", **option, **QUICK)
    execute(mends)
    follow(source, base, **more)
    assert (ids(base, schema, "bad"), ids(base, schema, "guide")) == ([1], [1, 2, 3, 4, 5])


def test_a_table_that_is_refused_while_it_is_followed_stops_alone_and_is_the_servers_when_it_is_mended(
    server: Server,
) -> None:
    source, execute, schema = server
    base = f"memory://guide-{next(NUMBERS)}"
    breaks, mends = REFUSED_LATER[scheme_of(schema)]
    execute("create table bad (id int primary key, day date)")
    execute("insert into bad values (1, '2026-01-01'), (2, '2026-01-02'), (3, '2026-01-03')")
    follow(source, base, **QUICK)
    execute(breaks)
    execute("delete from bad where id = 2")
    execute("insert into guide values (7, 'seven')")
    for _ in range(2):
        with pytest.raises(SourceRefused, match=rf"{schema}\.bad"):
            follow(source, base, **QUICK)
    assert ids(base, schema, "guide") == [1, 2, 3, 7]
    assert set(ids(base, schema, "bad")) >= {1, 3}
    execute("delete from bad where id = 3")
    execute(mends)
    follow(source, base, **QUICK)
    assert ids(base, schema, "bad") == ([1] if scheme_of(schema) == "mysql" else [1, 4])


def scheme_of(schema: str) -> str:
    return "postgres" if schema == "public" else "mysql"


def ids(base: str, schema: str, name: str) -> list[int]:
    return sorted(lakefmt.open_table(f"{base}/{schema}/{name}").read(columns=["id"]).column("id").to_pylist())


def test_a_table_that_stops_ends_the_follower_where_it_is_to(server: Server) -> None:
    source, execute, schema = server
    base = f"memory://guide-{next(NUMBERS)}"
    execute("create table odder (id int primary key, größe int)")
    with pytest.raises(SchemaMismatch, match="odder cannot be followed"):
        follow(source, base, on_table_error="fail", **QUICK)
    with pytest.raises(TableNotFound):
        lakefmt.open_table(f"{base}/{schema}/odder")


def test_a_log_that_cannot_follow_ends_the_follower_and_nothing_is_twice(server: Server) -> None:
    source, execute, schema = server
    base = f"memory://guide-{next(NUMBERS)}"
    execute("create table odd (id int primary key, v int)")
    follow(source, base, mode="append_log", **QUICK)
    execute("alter table odd add column größe int")
    execute("insert into odd values (1, 1, 1)")
    execute("insert into guide values (9, 'nine')")
    with pytest.raises(SchemaMismatch, match=f"{schema}.odd cannot be followed"):
        follow(source, base, mode="append_log", **QUICK)
    renamed = {f"{schema}.odd": {"rename": {"größe": "size"}}, f"{schema}.*": None}
    follow(source, base, mode="append_log", tables=renamed, **QUICK)
    assert (ids(base, schema, "odd"), ids(base, schema, "guide")) == ([1], [1, 2, 3, 9])
