"""Tables that come, go and change their shape; keys that only the server can order; a reader that others end."""

from __future__ import annotations

import threading

import pytest

import lakefmt
from lakefmt import cdc
from lakefmt._core.cdc.events import (
    Border,
    RowChanges,
    SourceName,
    TableChanged,
    TableGone,
    TableLoaded,
    TableTruncated,
)
from lakefmt.errors import InvalidInputError, SourceChanged, SourceRefused, SourceUnavailable
from tests.cdc.mysql.following_kit import Sink, borders, differences, follow, new_database, source_of
from tests.judges.mariadb import READER, READER_PASSWORD

pytestmark = pytest.mark.xdist_group("mariadb")
TABLE = "create table t (id int primary key, v varchar(40))"
ROWS = "insert into t values (1,'a'), (2,'b'), (3,'c')"


@pytest.fixture
def followed(mariadb):
    """A database with a table whose rows have been read: its name, the table's and the sink."""
    database = new_database(mariadb, TABLE, ROWS)
    sink = Sink()
    assert follow(source_of(mariadb, database), sink)
    return database, SourceName(database, "t"), sink


def said(sink, *types):
    return [event for event in sink.said if isinstance(event, types)]


class TestColumns:
    """A table is decoded as it was where the event is, not as it is now."""

    def test_statements_that_came_while_the_reader_was_away(self, mariadb, followed):
        database, name, sink = followed
        mariadb.execute(
            "insert into t values (4, 'd')",
            "alter table t add column n int first",
            "insert into t (n, id, v) values (40, 5, 'e')",
            "alter table t drop column v, add column v int after id",
            "insert into t (n, id, v) values (50, 6, 66)",
            "alter table t rename column n to m, change id id bigint",
            "insert into t (m, id, v) values (60, 7, 77)",
            "alter table t drop column v",
            database=database,
        )
        sink.changes.clear()
        assert follow(source_of(mariadb, database), sink)
        shapes = [[f"{field.name} {field.type}" for field in change.table.columns] for change in sink.changes]
        assert shapes == [
            ["id int32", "v string"],
            ["n int32", "id int32", "v string"],
            ["n int32", "id int32", "v int32"],
            ["m int32", "id int64", "v int32"],
            ["m int32", "id int64"],  # all rows are read again, for a column with an old name came
        ]
        assert [change.renamed for change in sink.changes] == [{}, {}, {}, {"n": "m"}, {}]
        assert [sink.rows[name][(str(key),)]["m"] for key in (5, 6, 7)] == [40, 50, 60]

    def test_a_table_that_is_altered_between_two_chunks(self, mariadb):
        database = new_database(mariadb, TABLE, "insert into t select seq, seq from seq_1_to_10")
        sink, name = Sink(), SourceName(database, "t")
        events = source_of(mariadb, database, chunk_rows=3).events({}, logs=False, until_now=True)
        for event in borders(events, 2):
            sink.take(event)
        mariadb.execute("alter table t add column n int", "update t set n = id", database=database)
        for event in events:
            sink.take(event)
        assert differences(mariadb, sink, name) == []

    @pytest.mark.parametrize(
        ("mode", "is_read"), [("", True), ("strict_trans_tables", False), ("strict_all_tables", False)]
    )
    def test_wider_whole_numbers_are_read_again_where_the_session_may_have_clamped_others(self, mariadb, mode, is_read):
        database = new_database(mariadb, "create table t (id int primary key, n int)", "insert into t values (1, 1)")
        sink = Sink()
        follow(source_of(mariadb, database), sink)
        sink.said.clear()
        mariadb.execute(f"set sql_mode = '{mode}'", "alter table t modify n bigint", database=database)
        mariadb.execute("insert into t values (2, 2)", database=database)
        follow(source_of(mariadb, database), sink)
        assert any(event.is_snapshot for event in said(sink, RowChanges)) is is_read

    def test_a_column_of_bytes_that_the_server_shows_as_text(self, mariadb):
        database = new_database(mariadb, "create table t (id int primary key, u uuid, b binary(16))")
        sink, name = Sink(), SourceName(database, "t")
        follow(source_of(mariadb, database), sink)
        text = "123e4567-e89b-12d3-a456-426614174000"
        mariadb.execute(
            f"insert into t values (1, '{text}', x'01')",
            "alter table t change u w uuid, add x inet6",
            database=database,
        )
        mariadb.execute(f"insert into t values (2, '{text}', x'02', '::1')", "drop table t", database=database)
        sink.said.clear()
        follow(source_of(mariadb, database), sink)
        rows = [row for event in said(sink, RowChanges) for row in event.rows.to_pylist()]
        assert rows[0] == {"id": 1, "u": text, "b": b"\x01" + bytes(15)}
        assert rows[1]["b"] == b"\x02" + bytes(15)
        assert [event.name for event in said(sink, TableGone)] == [name]


class TestTables:
    """A name is what is followed."""

    def test_all_rows_that_go_at_once(self, mariadb, followed):
        database, name, sink = followed
        mariadb.execute("truncate table t", "insert into t values (9,'x')", database=database)
        assert follow(source_of(mariadb, database), sink)
        assert len(said(sink, TableTruncated)) == 1
        assert differences(mariadb, sink, name) == []

    def test_a_table_that_is_dropped_and_made_again(self, mariadb, followed):
        database, name, sink = followed
        mariadb.execute(
            "drop table t", "create table t (k char(3) primary key)", "insert into t values ('x')", database=database
        )
        assert follow(source_of(mariadb, database), sink)
        assert [type(event) for event in sink.said[-5:]] == [
            TableChanged,
            TableGone,
            TableChanged,
            TableLoaded,
            RowChanges,
        ]
        assert differences(mariadb, sink, name) == []

    def test_a_table_that_replaces_another_one(self, mariadb, followed):
        database, name, sink = followed
        mariadb.execute(
            "create or replace table t (k char(3) primary key)", "insert into t values ('x')", database=database
        )
        assert follow(source_of(mariadb, database), sink)
        assert differences(mariadb, sink, name) == []

    def test_a_database_that_is_dropped(self, mariadb, followed):
        database, _, sink = followed
        mariadb.execute(f"drop database {database}")
        assert follow(source_of(mariadb, database), sink)
        assert sink.rows == {}
        assert sink.positions == {}
        assert follow(source_of(mariadb, database), sink), "nothing is left to follow"

    @pytest.mark.parametrize("is_there", [False, True], ids=["away", "there"])
    @pytest.mark.parametrize("logs", [False, True])
    def test_two_tables_that_swap_their_names(self, mariadb, logs, is_there):
        database = new_database(mariadb, TABLE, ROWS)
        sink, name = Sink(), SourceName(database, "t")
        source = source_of(mariadb, database, tables=[str(name)], chunk_rows=2)
        events = source.events({}, logs=logs, until_now=False)
        while not said(sink, TableLoaded):
            sink.take(next(events))
        if not is_there:
            events.close()
        mariadb.execute(
            "create table _new (id int primary key, v varchar(40), n int)",
            "insert into _new select id, upper(v), 1 from t where id > 1",
            "insert into _new values (7, 'seven', 7)",
            "insert into t values (8, 'in the old table')",
            "rename table t to _old, _new to t",
            "insert into t values (9, 'in the new table', 9)",
            database=database,
        )
        if is_there:
            while not said(sink, TableTruncated) or len(said(sink, TableLoaded)) < 2 or len(sink.rows[name]) < 4:
                sink.take(next(events))
            events.close()
        assert follow(source_of(mariadb, database, tables=[str(name)], chunk_rows=2), sink, logs=logs)
        assert differences(mariadb, sink, name) == []
        assert ("8",) not in sink.rows[name]

    def test_a_table_that_gets_a_name_that_is_followed(self, mariadb, followed):
        database, _, sink = followed
        sink = Sink()
        name = SourceName(database, "u")
        pattern = {"tables": [f"{database}.u*"]}
        assert follow(source_of(mariadb, database, **pattern), sink)
        events = source_of(mariadb, database, **pattern).events({}, logs=True, until_now=False)
        borders(events, 1)
        mariadb.execute("rename table t to u", "insert into u values (4,'d')", database=database)
        while len(sink.rows.get(name, ())) < 4:
            sink.take(next(events))
        events.close()
        assert differences(mariadb, sink, name) == []

    def test_a_partition_that_goes_takes_its_rows_along(self, mariadb):
        parts = "partition by range (id) (partition p0 values less than (10), partition p1 values less than (20))"
        database = new_database(mariadb, f"{TABLE} {parts}", "insert into t values (1,'a'),(11,'b')")
        sink, name = Sink(), SourceName(database, "t")
        follow(source_of(mariadb, database), sink)
        mariadb.execute("alter table t drop partition p0", "insert into t values (12,'c')", database=database)
        assert follow(source_of(mariadb, database), sink)
        assert differences(mariadb, sink, name) == []

    def test_a_table_that_is_made_later_joins_without_a_stop(self, mariadb, followed):
        database, name, sink = followed
        events = source_of(mariadb, database).events(dict(sink.positions), logs=True, until_now=False)
        borders(events, 1)
        mariadb.execute(
            "create table u (id int primary key)",
            "insert into u values (1)",
            "insert into t values (4,'d')",
            database=database,
        )
        later = SourceName(database, "u")
        while len(sink.rows.get(later, ())) < 1 or len(sink.rows[name]) < 4:
            sink.take(next(events))
        events.close()
        mariadb.execute(
            "create table w (id int primary key)",
            "insert into w values (1)",
            "insert into u values (2)",
            database=database,
        )
        assert follow(source_of(mariadb, database), sink, logs=True)
        assert {table: differences(mariadb, sink, table) for table in sink.rows} == {table: [] for table in sink.rows}
        assert sorted(table.table for table in sink.rows) == ["t", "u", "w"]
        assert [len(sink.log[table]) for table in sorted(sink.log)] == [4, 2, 1]

    def test_a_table_without_rows(self, mariadb):
        database = new_database(mariadb, TABLE)
        sink = Sink()
        assert follow(source_of(mariadb, database), sink)
        assert [type(event) for event in sink.said] == [TableChanged, TableLoaded]
        assert sink.rows == {SourceName(database, "t"): {}}

    def test_a_table_that_is_dropped_while_it_is_read(self, mariadb):
        database = new_database(
            mariadb, TABLE, "insert into t select seq, seq from seq_1_to_10", "create table u (id int primary key)"
        )
        sink = Sink()
        events = source_of(mariadb, database, chunk_rows=3).events({}, logs=True, until_now=True)
        for event in borders(events, 2):
            sink.take(event)
        mariadb.execute("drop table t", database=database)
        for event in events:
            sink.take(event)
        follow(source_of(mariadb, database), sink)
        assert sink.rows == {SourceName(database, "u"): {}}

    def test_a_table_of_another_pattern_and_a_sequence_and_a_view_are_left_alone(self, mariadb, followed):
        database, name, sink = followed
        mariadb.execute(
            "create sequence s",
            "select nextval(s)",
            "create view w as select * from t",
            "insert into t values (4,'d')",
            database=database,
        )
        assert follow(source_of(mariadb, database), sink)
        assert list(sink.rows) == [name]
        assert [table.name for table in source_of(mariadb, database).tables()] == [name]

    def test_two_tables_at_different_positions(self, mariadb):
        database = new_database(mariadb, TABLE, "create table u (id int primary key)")
        sink, names = Sink(), [SourceName(database, table) for table in "tu"]
        follow(source_of(mariadb, database), sink, logs=True)
        old = dict(sink.positions)
        mariadb.execute("insert into t values (1,'a')", "insert into u values (1)", database=database)
        follow(source_of(mariadb, database), sink, logs=True)
        sink.positions[names[1]] = old[names[1]]
        sink.log[names[1]].clear()
        mariadb.execute("insert into t values (2,'a')", "insert into u values (2)", database=database)
        follow(source_of(mariadb, database), sink, logs=True)
        assert [[row["id"] for _, row in sink.log[name]] for name in names] == [[1, 2], [1, 2]]


class TestKeys:
    """What comes before what is the server's to say."""

    @pytest.mark.in_turn(2)
    @pytest.mark.parametrize(
        ("key", "values"),
        [
            (
                "varchar(20) collate utf8mb4_unicode_ci",
                ["'a'", "'B'", "'ä1'", "'Z'", "'_'", "'é'", "'ß'", "'ssx'", "'  '", "'日'"],
            ),
            (
                "varchar(20) character set latin1 collate latin1_german2_ci",
                ["'a'", "'B'", "'ä'", "'aez'", "'Z'", "'ü'", "'\\''"],
            ),
            ("varchar(9) collate utf8mb4_bin", ["'a'", "'A'", "'é'", "'Z'", "''"]),
            ("bigint unsigned", ["0", "18446744073709551615", "9223372036854775808", "5"]),
            ("decimal(20,5)", ["-1.5", "0", "100000000000000.00001", "-0.00001"]),
            ("datetime(6)", ["'2024-01-01'", "'2024-01-01 00:00:00.000001'", "'1000-01-01'", "'9999-12-31'"]),
            ("date", ["'2024-01-01'", "'1000-01-01'", "'9999-12-31'"]),
            ("timestamp(3)", ["'2024-01-01'", "'2024-10-27 00:30:00.5'", "'2024-10-27 01:30:00.5'"]),
            ("varbinary(8)", ["x''", "x'00'", "x'0000'", "x'ff'", "x'61'"]),
            ("binary(3)", ["x'000000'", "x'00ff00'", "x'ff'"]),
            ("uuid", ["'123e4567-e89b-12d3-a456-426614174000'", "'023e4567-e89b-12d3-a456-426614174001'", "uuid()"]),
            ("inet6", ["'::1'", "'::1.2.3.4'", "'ff::'"]),
            ("enum('z','a','m')", ["'z'", "'a'", "'m'"]),
            ("float", ["1.5", "-1.5", "3e10"]),
        ],
    )
    @pytest.mark.parametrize("logs", [False, True])
    def test_chunks_of_any_key_have_each_row_once(self, mariadb, key, values, logs):
        database = new_database(mariadb, f"create table t (k {key}, i int, v int, primary key (k, i))")
        mariadb.execute(
            *(f"insert into t values ({value}, {i}, 0)" for value in values for i in (1, 2)), database=database
        )
        sink, name = Sink(), SourceName(database, "t")
        for count in range(7):  # killed after each border, while all rows change
            events = source_of(mariadb, database, chunk_rows=3).events(dict(sink.positions), logs=logs, until_now=True)
            for event in borders(events, 1 + count % 2):
                sink.take(event)
            events.close()
            mariadb.execute(
                "update t set v = v + 1", "delete from t where i = 2 order by k desc limit 1", database=database
            )
        assert follow(source_of(mariadb, database, chunk_rows=3), sink, logs=logs)
        assert differences(mariadb, sink, name) == []
        if logs:
            inserted = [row for kind, row in sink.log[name] if kind == "+I"]
            assert len(inserted) == len({(repr(row["k"]), row["i"]) for row in inserted}), "each row came once"

    def test_a_table_without_a_key(self, mariadb):
        database = new_database(
            mariadb, "create table t (id int, v text)", "insert into t select seq, 'x' from seq_1_to_25000"
        )
        sink, name = Sink(), SourceName(database, "t")
        assert follow(source_of(mariadb, database), sink, logs=True)
        mariadb.execute("update t set v = 'y' where id = 7", "delete from t where id = 8", database=database)
        assert follow(source_of(mariadb, database), sink, logs=True)
        assert len(sink.log[name]) == 25_000 + 3
        assert differences(mariadb, sink, name) == []
        assert sink.tables[name].keys == ()

    def test_keys_that_the_server_takes_for_equal(self, mariadb):
        database = new_database(
            mariadb,
            "create table t (k varchar(5) collate utf8mb4_general_ci primary key, v int)",
            "insert into t values ('a', 1)",
        )
        sink, name = Sink(), SourceName(database, "t")
        follow(source_of(mariadb, database), sink)
        mariadb.execute(
            "update t set k = 'A'",
            "replace into t values ('a', 2)",
            "replace into t values ('Ä', 3)",
            database=database,
        )
        follow(source_of(mariadb, database), sink)
        assert differences(mariadb, sink, name) == []
        assert len(sink.rows[name]) == 1


class TestTheReader:
    """What whoever runs it can rely on."""

    def test_an_idle_server_gives_a_border_each_second_and_the_position_moves(self, mariadb, followed):
        database, name, sink = followed
        events = source_of(mariadb, database).events(dict(sink.positions), logs=False, until_now=False)
        first = next(event for event in events if isinstance(event, Border) and event.caught_up)
        other = new_database(mariadb, "create table x (id int primary key)", "insert into x values (1)")
        assert other != database
        second = next(event for event in events if isinstance(event, Border) and event.caught_up)
        assert first.position_of(name)["gtid"] != second.position_of(name)["gtid"]
        events.close()

    def test_transactions_of_several_domains(self, mariadb, followed):
        database, name, sink = followed
        for number in range(4, 10):
            domain = 7 if number % 3 else 20 + number
            mariadb.execute(
                f"set session gtid_domain_id = {domain}", f"insert into t values ({number}, 'x')", database=database
            )
            assert follow(source_of(mariadb, database), sink, logs=True)
        assert [row["id"] for _, row in sink.log[name]] == list(range(1, 10))

    def test_a_server_of_mysql_is_refused(self, mariadb, followed, monkeypatch):
        database, _, _ = followed
        monkeypatch.setattr("pymysql.connections.Connection.get_server_info", lambda _: "8.4.3")
        with pytest.raises(SourceRefused, match="not MariaDB"):
            source_of(mariadb, database).preflight()

    def test_another_thread_ends_it(self, mariadb, followed):
        database, _, sink = followed
        source = source_of(mariadb, database)
        events = source.events(dict(sink.positions), logs=False, until_now=False)
        borders(events, 1)
        thread = threading.Timer(0.2, source.close)
        thread.start()
        assert all(isinstance(event, Border) for event in events)
        thread.join()
        source.close()

    def test_the_password_is_never_shown(self, mariadb, followed):
        database, _, sink = followed
        source = source_of(mariadb, database)
        shown = [repr(source), str(sink.positions), repr(source._account), source.identity]
        for wrong in ({"password": "An0ther:secret"}, {"user": "nobody"}):
            with pytest.raises(SourceRefused) as error:
                source_of(mariadb, database, **wrong).tables()
            shown += [str(error.value), repr(error.value.__cause__), repr(error.value.__context__)]
        with pytest.raises(InvalidInputError) as refused:
            type(source).from_url(f"mysql://{READER}:secret@localhost/d", tables=["*"])
        text = " ".join([*shown, str(refused.value)])
        assert all(secret not in text for secret in (READER_PASSWORD, "An0ther:secret", "secret"))

    def test_an_address_names_the_server_and_the_database(self, mariadb, followed):
        database, name, _ = followed
        url = f"mysql://{READER}@127.0.0.1:{mariadb.port}/{database}"
        source = source_of(mariadb, database).from_url(url, password=READER_PASSWORD, tables=["*"])
        assert [table.name for table in source.tables()] == [name]

    def test_a_server_that_is_not_there(self, mariadb, followed):
        database, _, _ = followed
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            source_of(mariadb, database).from_url(f"mysql://u@127.0.0.1:1/{database}", tables=["*"]).preflight()

    def test_rights_that_are_missing_are_named(self, mariadb, followed):
        database, _, _ = followed
        mariadb.create_reader(["SELECT"])
        found = source_of(mariadb, database).preflight()
        assert [finding.mend.split(" ON ")[0] for finding in found if finding.stops] == [
            "GRANT BINLOG MONITOR",
            "GRANT REPLICATION SLAVE",
        ]
        with pytest.raises(SourceRefused):
            follow(source_of(mariadb, database), Sink())
        mariadb.create_reader()
        assert not [finding for finding in source_of(mariadb, database).preflight() if finding.stops]

    def test_settings_that_lose_changes_are_named_with_the_statement_that_mends_them(self, mariadb, followed):
        database, _, _ = followed
        settings = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
        wrong = {"binlog_format": "MIXED", "binlog_row_image": "MINIMAL", "binlog_row_metadata": "MINIMAL"}
        try:
            mariadb.execute(*(f"set global {name} = {value}" for name, value in wrong.items()))
            found = source_of(mariadb, database).preflight()
            mends = [finding.mend for finding in found if finding.stops]
            assert len(mends) == 3
            mariadb.execute(*mends)
        finally:
            mariadb.execute(*(f"set global {name} = {value}" for name, value in settings.items()))
        assert [finding for finding in source_of(mariadb, database).preflight() if finding.stops] == []

    @pytest.mark.parametrize("position", [None, 7, {}, {"source": "postgresql"}, {"source": "mariadb", "version": 2}])
    def test_a_position_of_something_else_is_refused(self, mariadb, followed, position):
        database, name, _ = followed
        with pytest.raises(InvalidInputError, match="position"):
            next(source_of(mariadb, database).events({name: position}, logs=False, until_now=True))


@pytest.mark.parametrize("statement", ["truncate table t", "drop table t", "rename table t to other"])
def test_a_statement_on_a_table_whose_position_alone_is_known_is_told(mariadb, statement):
    database = new_database(mariadb, "create table t (id int primary key)", "insert into t values (1)")
    name = SourceName(database, "t")
    source = source_of(mariadb, database)
    position = source.latest()
    mariadb.execute(statement, database=database)
    told = [type(event) for event in source.events({name: position}, logs=False, until_now=True)]
    assert TableTruncated in told or TableGone in told


@pytest.mark.parametrize(
    "steps",
    [("drop table t", "create table t (id int primary key)"), ("create or replace table t (id int primary key)",)],
)
def test_a_table_that_was_made_again_is_the_servers(mariadb, tmp_path, steps):
    database = new_database(mariadb, "create table t (id int primary key)", "insert into t values (1), (2)")
    opener = lambda: source_of(mariadb, database)  # noqa: E731
    cdc.follow(opener, str(tmp_path), until_now=True)
    mariadb.execute(*steps, "insert into t values (3)", database=database)
    with pytest.raises(SourceChanged, match="is there again"):
        cdc.follow(opener, str(tmp_path), until_now=True)
    cdc.follow(opener, str(tmp_path), until_now=True, on_truncate="apply")
    assert lakefmt.open_table(tmp_path / database / "t").read(columns=["id"]).column("id").to_pylist() == [3]
