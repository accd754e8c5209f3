"""A table that is followed equals the server's, whatever happened in between."""

from __future__ import annotations

import pytest

from lakefmt._core.cdc.events import SourceName
from tests.cdc.mysql.following_kit import Sink, differences, follow, new_database, source_of

pytestmark = pytest.mark.xdist_group("mariadb")


def test_a_table_is_read_and_its_changes_follow(mariadb):
    database = new_database(
        mariadb, "create table t (id int primary key, v varchar(20))", "insert into t values (1,'a'),(2,'b'),(3,'c')"
    )
    sink, name = Sink(), SourceName(database, "t")
    assert follow(source_of(mariadb, database), sink)
    assert sorted(row["id"] for row in sink.rows[name].values()) == [1, 2, 3]
    mariadb.execute(
        "insert into t values (4,'d')",
        "update t set v='B' where id=2",
        "delete from t where id=3",
        "update t set id=9 where id=1",
        database=database,
    )
    assert follow(source_of(mariadb, database), sink)
    assert differences(mariadb, sink, name) == []
    assert [kind for kind, _ in sink.log[name]] == ["+I", "+I", "+I", "+I", "-U", "+U", "-D", "-U", "+U"]


def test_a_column_may_get_the_name_that_another_one_had(mariadb):
    """All names of one statement change at once, those of two statements one after the other."""
    database = new_database(
        mariadb, "create table t (id int primary key, a int, b int)", "insert into t values (1,10,20)"
    )
    sink, name = Sink(), SourceName(database, "t")
    assert follow(source_of(mariadb, database), sink)
    mariadb.execute(
        "alter table t rename column a to b, rename column b to c",
        "alter table t rename column c to d",
        "insert into t (id, b, d) values (2, 11, 21)",
        database=database,
    )
    assert follow(source_of(mariadb, database), sink)
    assert sink.changes[-1].renamed == {"a": "b", "b": "d"}
    assert differences(mariadb, sink, name) == []


@pytest.mark.parametrize("logs", [False, True])
def test_a_reader_that_is_killed_at_any_event_goes_on(mariadb, logs):
    database = new_database(
        mariadb, "create table t (id int primary key, v varchar(20))", "insert into t select seq, seq from seq_1_to_25"
    )
    name = SourceName(database, "t")
    sink, kill_after = Sink(), 0
    for number in range(34):
        mariadb.execute(
            f"insert into t values ({100 + number}, 'n')",
            f"update t set v = concat(v, '!') where id = {number % 25 + 1}",
            f"delete from t where id = {number}",
            database=database,
        )
        follow(source_of(mariadb, database, chunk_rows=4), sink, logs=logs, kill_after=kill_after)
        kill_after = (kill_after + 1) % 17
    assert follow(source_of(mariadb, database, chunk_rows=4), sink, logs=logs)
    assert differences(mariadb, sink, name) == []
