"""What readers of the log lose or repeat without a word: each is either right here, or a reason to stop."""

from __future__ import annotations

import contextlib
import itertools
import time

import pytest

from lakefmt._core.cdc.events import Border, RowChanges, SourceName
from lakefmt.errors import PositionLost, SourceRefused, SourceUnavailable
from tests.cdc.mysql.following_kit import Sink, borders, differences, follow, new_database, source_of
from tests.judges.mariadb import READER

pytestmark = pytest.mark.xdist_group("mariadb")
TABLE = "create table t (id int primary key, v longtext)"


@pytest.fixture
def followed(mariadb):
    """A database with a table whose rows have been read: its name, the table's and the sink."""
    database = new_database(mariadb, TABLE, "insert into t values (1,'a'), (2,'b'), (3,'c')")
    sink = Sink()
    assert follow(source_of(mariadb, database), sink)
    return database, SourceName(database, "t"), sink


def ids(sink, name):
    return sorted(row["id"] for row in sink.rows[name].values())


def test_a_long_backlog_comes_once_and_ends(mariadb, followed):
    database, name, sink = followed
    mariadb.execute("insert into t select seq, 'x' from seq_1000_to_21000", database=database)
    mariadb.execute(*(f"insert into t values ({n}, 'y')" for n in range(30000, 30500)), database=database)
    assert follow(source_of(mariadb, database), sink, logs=True)
    assert len(sink.log[name]) == 3 + 20001 + 500
    assert differences(mariadb, sink, name) == []


def test_a_connection_that_the_server_ends_is_told_and_nothing_comes_twice(mariadb, followed):
    database, name, sink = followed
    for number in range(3):
        mariadb.execute(f"insert into t values ({100 + number}, 'x')", database=database)
        source = source_of(mariadb, database)
        events = source.events(dict(sink.positions), logs=True, until_now=False)
        for event in events:
            sink.take(event)
            if isinstance(event, Border) and 100 + number in ids(sink, name):
                break
        for (thread,) in mariadb.execute(
            f"select id from information_schema.processlist where command = 'Binlog Dump' and user = '{READER}'"
        ):
            with contextlib.suppress(Exception):  # one that is going already
                mariadb.execute(f"kill {thread}")
        with pytest.raises(SourceUnavailable):
            any(sink.take(event) for event in events)
    assert len(sink.log[name]) == 3 + 3


def test_a_server_that_dies_and_comes_back_is_followed_on(mariadb, followed):
    database, name, sink = followed
    events = source_of(mariadb, database).events(dict(sink.positions), logs=True, until_now=False)
    borders(events, 1)
    mariadb.kill()
    with pytest.raises(SourceUnavailable):
        list(events)
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        follow(source_of(mariadb, database), sink)
    mariadb.start()
    mariadb.execute("insert into t values (4,'b')", "flush logs", "insert into t values (5,'c')", database=database)
    assert follow(source_of(mariadb, database), sink, logs=True)
    assert [row["id"] for _, row in sink.log[name]] == [1, 2, 3, 4, 5]


def test_compressed_events_are_read(mariadb, followed):
    database, name, sink = followed
    try:
        mariadb.execute("set global log_bin_compress = 1", "set global log_bin_compress_min_len = 10")
        mariadb.execute(
            "insert into t values (7, repeat('z', 5000))",
            "update t set v = repeat('y', 4000) where id = 7",
            "delete from t where id = 1",
            f"alter table t add column {'n' * 60} int, comment = '{'c' * 500}'",
            "insert into t values (8, repeat('w', 300000), 5)",
            database=database,
        )
    finally:
        mariadb.execute("set global log_bin_compress = 0")
    assert follow(source_of(mariadb, database), sink)
    assert differences(mariadb, sink, name) == []
    assert ids(sink, name) == [2, 3, 7, 8]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("format", ["STATEMENT", "MIXED"])
@pytest.mark.parametrize(
    "statement",
    [
        "insert into t values (9, 'x')",
        "/* here */ update t set v = 'x'",
        "delete from t where id = 1",
        "replace into t values (1, 'x')",
    ],
)
def test_changes_that_the_log_has_as_statements_stop_the_reader(mariadb, followed, format, statement):
    database, name, sink = followed
    mariadb.execute(f"set session binlog_format = {format}", statement, database=database)
    with pytest.raises(SourceRefused, match="SET GLOBAL binlog_format = ROW"):
        follow(source_of(mariadb, database), sink)
    assert ids(sink, name) == [1, 2, 3]


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_images_without_all_columns_stop_the_reader(mariadb, followed, image):
    database, name, sink = followed
    mariadb.execute(f"set session binlog_row_image = {image}", "update t set v = 'x' where id = 2", database=database)
    if image == "NOBLOB":  # it has the column when that is what changed: without it
        mariadb.execute(
            "alter table t add n int",
            f"set session binlog_row_image = {image}",
            "update t set n = 1",
            database=database,
        )
    with pytest.raises(SourceRefused, match="SET GLOBAL binlog_row_image = FULL"):
        follow(source_of(mariadb, database), sink)
    assert sink.rows[name][("2",)]["v"] == "b"


@pytest.mark.parametrize("metadata", ["MINIMAL", "NO_LOG"])
def test_tables_without_names_of_columns_stop_the_reader(mariadb, followed, metadata):
    database, _, sink = followed
    try:
        mariadb.execute(f"set global binlog_row_metadata = {metadata}")
        mariadb.execute("insert into t values (9, 'x')", database=database)
    finally:
        mariadb.execute("set global binlog_row_metadata = FULL")
    with pytest.raises(SourceRefused, match="SET GLOBAL binlog_row_metadata = FULL"):
        follow(source_of(mariadb, database), sink)


def test_rows_of_a_prepared_transaction_come_when_it_commits(mariadb, followed):
    database, name, sink = followed
    with (
        contextlib.closing(mariadb.connect(database)) as first,
        contextlib.closing(mariadb.connect(database)) as second,
    ):
        for connection, xid, row in ((first, "one", 11), (second, "two", 12)):
            with connection.cursor() as cursor:
                for statement in (
                    f"xa start '{xid}'",
                    f"insert into t values ({row}, 'x')",
                    f"xa end '{xid}'",
                    f"xa prepare '{xid}'",
                ):
                    cursor.execute(statement)
        mariadb.execute("insert into t values (13, 'plain')", database=database)
        assert follow(source_of(mariadb, database), sink, logs=True)
        assert ids(sink, name) == [1, 2, 3, 13], "neither is committed"
        # The reader is another one from here on: what it held is read again from the log.
        first.cursor().execute("xa commit 'one'")
        second.cursor().execute("xa rollback 'two'")
    mariadb.execute("update t set v = 'later' where id = 11", database=database)
    assert follow(source_of(mariadb, database), sink, logs=True)
    assert ids(sink, name) == [1, 2, 3, 11, 13]
    assert [(kind, row["id"]) for kind, row in sink.log[name][3:]] == [("+I", 13), ("+I", 11), ("-U", 11), ("+U", 11)]


def test_a_system_versioned_table_stops_the_reader(mariadb, followed):
    database, _, sink = followed
    mariadb.execute("alter table t add system versioning", "update t set v = 'x' where id = 1", database=database)
    with pytest.raises(SourceRefused, match="DROP SYSTEM VERSIONING"):
        follow(source_of(mariadb, database), sink)
    found = [finding for finding in source_of(mariadb, database).preflight() if finding.stops]
    assert [finding.mend for finding in found] == [f"ALTER TABLE {database}.t DROP SYSTEM VERSIONING"]
    with pytest.raises(SourceRefused, match="DROP SYSTEM VERSIONING"):
        follow(source_of(mariadb, database), Sink())


def test_a_row_larger_than_a_packet_is_read(mariadb, followed):
    database, name, sink = followed
    mariadb.execute("set global max_allowed_packet = 67108864")
    mariadb.execute(
        "insert into t values (7, concat(repeat('z', 20000000), 'end'))",
        "insert into t values (8, 'x')",
        database=database,
    )
    assert follow(source_of(mariadb, database), sink)
    assert len(sink.rows[name][("7",)]["v"]) == 20_000_003
    assert ids(sink, name) == [1, 2, 3, 7, 8]


def test_a_transaction_larger_than_a_batch_is_committed_at_its_end_only(mariadb, followed):
    database, _, sink = followed
    mariadb.execute("insert into t select seq, repeat('x', 300) from seq_100_to_160000", database=database)
    events = list(source_of(mariadb, database).events(dict(sink.positions), logs=True, until_now=True))
    sizes = [event.rows.num_rows for event in events if isinstance(event, RowChanges)]
    assert len(sizes) > 1
    assert sum(sizes) == 159_901
    kinds = [type(event) for event, _ in itertools.groupby(events, type)]
    assert len([event for event in events if isinstance(event, Border)]) == 1, kinds


class TestPositionsThatAreLost:
    """Three reasons, three messages: only one of them is a log that was purged."""

    def test_a_purged_log(self, mariadb, followed):
        database, _, sink = followed
        mariadb.execute(
            "insert into t values (5,'b')",
            "flush logs",
            "insert into t values (6,'c')",
            "flush logs",
            database=database,
        )
        last = mariadb.execute("show binary logs")[-1][0]
        deadline = time.monotonic() + 60
        # A file stays while the server has not missed a reader that went.
        while mariadb.execute("show binary logs")[0][0] != last:
            assert time.monotonic() < deadline
            mariadb.execute(f"purge binary logs to '{last}'")
        with pytest.raises(PositionLost, match="too old: the server has purged"):
            follow(source_of(mariadb, database), sink)

    def test_a_server_that_is_behind(self, mariadb, followed):
        database, name, sink = followed
        sink.positions[name] = {**sink.positions[name], "gtid": "7-1-99999999"}
        with pytest.raises(PositionLost, match="ahead of the server"):
            follow(source_of(mariadb, database), sink, until_now=False)

    def test_another_server(self, mariadb, followed):
        database, name, sink = followed
        sink.positions[name] = {**sink.positions[name], "gtid": "77-1-5"}
        with pytest.raises(PositionLost, match="another server: this one has no transactions of the domain 77"):
            follow(source_of(mariadb, database), sink, until_now=False)


def test_two_readers_with_one_id_are_told(mariadb, followed):
    database, _, sink = followed
    first, second = (source_of(mariadb, database, server_id=4711) for _ in range(2))
    events = first.events(dict(sink.positions), logs=False, until_now=False)
    borders(events, 1)
    others = second.events(dict(sink.positions), logs=False, until_now=False)
    borders(others, 1)
    with pytest.raises(SourceRefused, match="same server_id"):
        borders(events, 20)
    others.close()
