"""Programs written for the SDK, with other imports and another connect call: the scenarios C1 to C32 as far as they go through
its names. The same scenarios of buffers, retries and crashes are tests of tests/producers/stream, beneath these names."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
import lakefmt.realtime
from lakefmt.errors import InvalidInputError, LakefmtError, StreamClosed
from lakefmt.realtime import (
    Connection,
    CZException,
    DatabaseError,
    Error,
    FlushMode,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
    RealtimeOperation,
    RealtimeOptionsBuilder,
    RealtimeStream,
    RowOperator,
    connect,
)
from lakefmt.realtime.rows import Row

NUMBERS = itertools.count()


@pytest.fixture
def connection() -> Connection:
    made = connect(
        base_path=f"memory://realtime-{next(NUMBERS)}",
        username="user",
        password="secret",
        service="service",
        instance="instance",
        workspace="workspace",
        schema="public",
        vcluster="default",
        protocol="http",
    )
    made.cursor().execute("CREATE TABLE plain (id BIGINT, name STRING)")
    made.cursor().execute("CREATE TABLE keyed (id STRING NOT NULL, name STRING, count INT, PRIMARY KEY (id))")
    return made


def rows(connection: Connection, table: str) -> list[tuple[Any, ...]]:
    return sorted(connection.cursor().execute(f"SELECT * FROM {table}").fetchall())


def count(connection: Connection, table: str) -> int:
    (number,) = connection.cursor().execute(f"SELECT COUNT(*) FROM {table}").fetchone() or (None,)
    return int(number)


def plain_row(stream: RealtimeStream, number: int) -> Row:
    row = stream.create_row()
    row.set_value("id", number)
    row.set_value("name", f"name {number}")
    return row


def keyed_row(stream: RealtimeStream, key: str, name: str, number: int) -> Row:
    row = stream.create_row(RowOperator.UPSERT)
    row.set_value("id", key)
    row.set_value("name", name)
    row.set_value("count", number)
    return row


def delete_row(stream: RealtimeStream, key: str) -> Row:
    row = stream.create_row(RowOperator.DELETE_IGNORE)
    row.set_value("id", key)
    return row


def test_one_row(connection: Connection) -> None:
    options = RealtimeOptionsBuilder().with_flush_mode(FlushMode.AUTO_FLUSH_BACKGROUND).build()
    stream = connection.get_realtime_stream(
        operate=RealtimeOperation.APPEND_ONLY, schema="public", table="plain", options=options
    )
    stream.apply(plain_row(stream, 1))
    stream.close()
    assert rows(connection, "plain") == [(1, "name 1")]


def test_the_example_of_the_guide(connection: Connection) -> None:
    options = RealtimeOptionsBuilder().with_flush_mode(FlushMode.AUTO_FLUSH_SYNC).build()
    stream = connection.get_realtime_stream(operate=RealtimeOperation.CDC, table="keyed", options=options)
    for number in range(10):
        stream.apply(keyed_row(stream, f"id{number}", "first", number))
    for number in range(5):
        stream.apply(keyed_row(stream, f"id{number}", "second", number))
    for number in range(2):
        stream.apply(delete_row(stream, f"id{number}"))
    stream.close()
    assert count(connection, "keyed") == 8
    expected = [(f"id{n}", "second" if n < 5 else "first", n) for n in range(2, 10)]
    assert rows(connection, "keyed") == expected


def test_the_default_operation(connection: Connection) -> None:
    with_key = connection.get_realtime_stream(table="keyed")
    with_key.apply(keyed_row(with_key, "a", "x", 1))
    with_key.close()
    assert rows(connection, "keyed") == [("a", "x", 1)]
    without = connection.get_realtime_stream(table="plain")
    without.apply(plain_row(without, 1))
    without.close()
    assert count(connection, "plain") == 1


def test_append_only_is_not_for_tables_with_a_key(connection: Connection) -> None:
    with pytest.raises(ValueError, match=r"RealtimeOperation\.CDC"):
        connection.get_realtime_stream(operate=RealtimeOperation.APPEND_ONLY, table="keyed")


@pytest.mark.parametrize("operate", list(RealtimeOperation))
def test_tables_without_a_key_take_insert_only(connection: Connection, operate: RealtimeOperation) -> None:
    stream = connection.get_realtime_stream(operate=operate, table="plain")
    for operator in set(RowOperator) - {RowOperator.INSERT}:
        for given in (operator, operator.name):
            with pytest.raises(ValueError, match="support INSERT only"):
                stream.create_row(given)
    stream.close()


def test_operators_by_name(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    for given in ("UPSERT", "upsert", "Upsert", RowOperator.UPSERT):
        assert stream.create_row(given).operator is RowOperator.UPSERT
    for nonsense in ("nonsense", "", 7, None):
        with pytest.raises(ValueError, match=r"^Invalid operator"):
            stream.create_row(nonsense)  # type: ignore[arg-type]
    stream.close()


def test_columns_have_exact_names(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    row = stream.create_row("upsert")
    for column in ("nothing", "ID", 3, -1):
        with pytest.raises(ValueError, match="has no column") as caught:
            row.set_value(column, 1)
        assert str(column) in str(caught.value)
    stream.close()


def test_a_row_that_lacks_a_column_is_refused_at_apply(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    for operator in ("insert", "insert_ignore", "upsert"):
        row = stream.create_row(operator)
        row.set_value("id", "a")
        row.set_value("name", None)
        with pytest.raises(CZException, match=r"^Failed to apply row.*count is not") as caught:
            stream.apply(row)
        assert isinstance(caught.value, LakefmtError)
    good, bad = keyed_row(stream, "good", "x", 1), stream.create_row("upsert")
    with pytest.raises(CZException, match=r"^Failed to apply row"):
        stream.apply(good, bad)
    stream.apply(keyed_row(stream, "b", "x", 1))
    stream.close()
    assert rows(connection, "keyed") == [("b", "x", 1)], "of a refused call nothing is taken, and the stream goes on"


def test_a_delete_needs_its_key_and_no_more(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    stream.apply(keyed_row(stream, "a", "x", 1), keyed_row(stream, "b", "x", 1))
    stream.apply(delete_row(stream, "a"))
    for operator in ("delete", "delete_ignore", "update"):
        with pytest.raises(CZException, match=r"^Failed to apply row.*key column 'id'"):
            stream.apply(stream.create_row(operator))
    stream.close()
    assert rows(connection, "keyed") == [("b", "x", 1)]


def test_the_last_of_equal_keys_in_one_buffer_wins(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    stream.apply(keyed_row(stream, "a", "x", 1), keyed_row(stream, "a", "y", 2))
    stream.apply(keyed_row(stream, "b", "x", 1), delete_row(stream, "b"), keyed_row(stream, "b", "z", 3))
    stream.apply(keyed_row(stream, "c", "x", 1), delete_row(stream, "c"))
    stream.close()
    assert rows(connection, "keyed") == [("a", "y", 2), ("b", "z", 3)]


def test_an_update_sets_some_columns(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    stream.apply(keyed_row(stream, "a", "x", 1))
    row = stream.create_row(RowOperator.UPDATE)
    row.set_value("id", "a")
    row.set_value("count", 2)
    stream.apply(row)
    stream.close()
    assert rows(connection, "keyed") == [("a", "x", 2)]


def test_use_after_close(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="plain")
    row = plain_row(stream, 1)
    stream.close()
    calls: list[Callable[[], object]] = [stream.create_row, lambda: stream.apply(row), stream.flush]
    for call in calls:
        with pytest.raises(RuntimeError, match="closed") as caught:
            call()
        assert isinstance(caught.value, StreamClosed)
    stream.close()  # the SDK raises here: a documented difference


def test_every_name_that_programs_import_is_in_one_module() -> None:
    names = (
        "connect Connection RealtimeOperation RealtimeOptionsBuilder FlushMode RetryStatus RetryMode ErrorTypeHandler "
        "ProtocolType CZSessionOptions RowOperator CZException FlushTaskCallException Error InterfaceError DatabaseError "
        "DataError IntegrityError InternalError OperationalError ProgrammingError NotSupportedError"
    )
    missing = [name for name in names.split() if not hasattr(lakefmt.realtime, name)]
    assert not missing
    assert [each.name for each in RowOperator] == [
        "INSERT",
        "INSERT_IGNORE",
        "UPDATE",
        "UPSERT",
        "DELETE",
        "DELETE_IGNORE",
        "UPDATE_IGNORE",  # not of the SDK
    ]
    assert [each.value for each in RealtimeOperation] == ["append_only", "cdc"]
    assert [each.value for each in FlushMode] == ["auto_flush_background", "auto_flush_sync", "manual_flush"]


def test_errors_are_one_tree() -> None:
    assert issubclass(CZException, LakefmtError)
    assert issubclass(StreamClosed, CZException)
    assert issubclass(StreamClosed, RuntimeError)
    assert issubclass(ProgrammingError, DatabaseError)
    assert issubclass(DatabaseError, Error)
    assert issubclass(Error, LakefmtError)
    assert not issubclass(CZException, Error)


def test_rows_are_durable_without_a_flush(connection: Connection) -> None:
    options = RealtimeOptionsBuilder().with_mutation_buffer_lines_num(10).with_flush_interval(0)
    stream = connection.get_realtime_stream(
        table="plain", options=options.with_flush_mode(FlushMode.AUTO_FLUSH_SYNC).build()
    )
    for number in range(25):
        stream.apply(plain_row(stream, number))
    assert count(connection, "plain") == 20
    stream.flush()
    assert count(connection, "plain") == 25
    assert stream.get_metrics()["rows_applied"] == 25
    stream.close()


def test_a_manual_stream_is_manual(connection: Connection) -> None:
    options = RealtimeOptionsBuilder().with_mutation_buffer_lines_num(2).with_flush_mode(FlushMode.MANUAL_FLUSH).build()
    stream = connection.get_realtime_stream(table="plain", options=options)
    for number in range(9):
        stream.apply(plain_row(stream, number))
    assert count(connection, "plain") == 0
    stream.flush()
    assert count(connection, "plain") == 9
    stream.close()


def test_four_threads(connection: Connection) -> None:
    options = RealtimeOptionsBuilder().with_mutation_buffer_lines_num(50).build()
    stream = connection.get_realtime_stream(table="plain", options=options)

    def send(first: int) -> None:
        for number in range(first, first + 200):
            stream.apply(plain_row(stream, number))

    threads = [threading.Thread(target=send, args=(first,)) for first in range(0, 800, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.close()
    assert [number for number, _ in rows(connection, "plain")] == list(range(800))


def test_a_small_pool_does_not_hang(connection: Connection) -> None:
    options = RealtimeOptionsBuilder().with_mutation_buffer_max_num(3).with_mutation_buffer_lines_num(1).build()
    stream = connection.get_realtime_stream(table="plain", options=options)
    for number in range(50):
        stream.apply(plain_row(stream, number))
    stream.close()
    assert count(connection, "plain") == 50


def test_a_keyed_table_keeps_the_caller_s_options(connection: Connection) -> None:
    options = RealtimeOptionsBuilder().with_mutation_buffer_lines_num(1).build()
    before = replace(options)
    stream = connection.get_realtime_stream(table="keyed", options=options)
    for number in range(5):
        stream.apply(keyed_row(stream, "same", f"name {number}", number))
    stream.close()
    assert options == before
    assert options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND
    assert rows(connection, "keyed") == [("same", "name 4", 4)]


def test_an_apply_that_fills_a_buffer_of_a_keyed_table_makes_it_durable(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    assert stream.native.options.flush_mode is FlushMode.AUTO_FLUSH_SYNC
    for number in range(stream.options.mutation_buffer_lines_num):
        stream.apply(keyed_row(stream, f"k{number}", "x", number))
    assert count(connection, "keyed") == stream.options.mutation_buffer_lines_num
    stream.apply(keyed_row(stream, "late", "x", 1))
    with pytest.warns(RuntimeWarning, match="1 rows .* were dropped"):
        stream.close(discard=True)
    assert count(connection, "keyed") == stream.options.mutation_buffer_lines_num


def test_the_defaults_of_the_next_stream_stay(connection: Connection) -> None:
    first = connection.get_realtime_stream(table="keyed")
    second = connection.get_realtime_stream(table="plain")
    assert second.options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND
    assert second.native.options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND
    first.close()
    second.close()


def test_flushed_rows_are_seen_through_the_connection_and_committed_later(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="plain")
    stream.apply(plain_row(stream, 1))
    stream.flush()
    table = connection.open_table("plain")
    assert count(connection, "plain") == 1
    assert table.read().num_rows == 0
    assert table.incremental("0").num_rows == 0
    stream.close()
    assert table.read().num_rows == 1
    assert table.incremental("0").num_rows == 1


def test_a_connection_may_hide_what_is_not_committed() -> None:
    place = f"memory://realtime-{next(NUMBERS)}"
    connection = connect(base_path=place, include_uncommitted=False)
    connection.cursor().execute("CREATE TABLE plain (id BIGINT, name STRING)")
    stream = connection.get_realtime_stream(table="plain")
    stream.apply(plain_row(stream, 1))
    stream.flush()
    assert count(connection, "plain") == 0
    stream.close()
    assert count(connection, "plain") == 1


def test_partition_columns_outside_the_key_are_refused_at_creation(connection: Connection) -> None:
    with pytest.raises(ProgrammingError, match="partition columns must be part of the primary key"):
        connection.cursor().execute("CREATE TABLE p (a INT, b STRING, PRIMARY KEY (a)) PARTITIONED BY (b)")
    connection.cursor().execute("CREATE TABLE p (a INT, b STRING, v INT, PRIMARY KEY (a, b)) PARTITIONED BY (b)")
    stream = connection.get_realtime_stream(table="p")
    row = stream.create_row("upsert")
    for position, value in enumerate((1, "x", 2)):
        row.set_value(position, value)
    stream.apply(row)
    stream.close()
    assert rows(connection, "p") == [(1, "x", 2)]


def test_a_column_that_another_writer_adds(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="plain")
    old = plain_row(stream, 1)
    connection.open_table("plain").alter.add_column("extra", pa.int32())
    stream.native.refresh_schema()
    row = plain_row(stream, 2)
    row.set_value("extra", 5)
    stream.apply(old, row)
    stream.close()
    assert rows(connection, "plain") == [(1, "name 1", None), (2, "name 2", 5)]


def test_columns_are_followed_without_being_asked(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="plain")
    early, unaware = plain_row(stream, 1), plain_row(stream, 2)
    connection.open_table("plain").alter.add_column("extra", pa.int32())
    early.set_value("extra", 5)
    with pytest.raises(ValueError, match="'more'"):
        early.set_value("more", 5)
    stream.apply(early)
    stream.flush()
    connection.open_table("plain").alter.add_column("more", pa.string())
    stream.apply(unaware)
    stream.flush()  # a buffer is sealed, and the columns are looked at
    row = plain_row(stream, 3)
    row.set_value("more", "x")
    stream.apply(row, plain_row(stream, 4))  # a program that knows of no new column goes on
    connection.open_table("plain").alter.drop_column("name")
    stream.flush()
    with pytest.raises(CZException, match="no column 'name'"):
        stream.apply(unaware)
    stream.close()
    assert sorted(
        connection.open_table("plain").read(["id", "extra", "more"]).to_pylist(), key=lambda each: each["id"]
    ) == [
        {"id": 1, "extra": 5, "more": None},
        {"id": 2, "extra": None, "more": None},
        {"id": 3, "extra": None, "more": "x"},
        {"id": 4, "extra": None, "more": None},
    ]


def test_an_update_sets_no_column_that_it_does_not_name(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    stream.apply(keyed_row(stream, "a", "first", 1))
    connection.open_table("keyed").alter.add_column("extra", pa.int32())
    stream.flush()
    row = keyed_row(stream, "a", "second", 2)
    row.set_value("extra", 7)
    stream.apply(row)
    row = stream.create_row("update")
    row.set_value("id", "a")
    row.set_value("name", "third")
    stream.apply(row)
    stream.close()
    assert rows(connection, "keyed") == [("a", "third", 2, 7)]


def test_a_key_that_is_empty_is_refused_by_apply(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    with pytest.raises(CZException, match=r"^Failed to apply row.*empty"):
        stream.apply(keyed_row(stream, "", "nobody", 1))
    stream.apply(keyed_row(stream, "a", "somebody", 1))
    stream.close()
    assert rows(connection, "keyed") == [("a", "somebody", 1)]


def test_a_dropped_table_is_an_error_of_flush(connection: Connection) -> None:
    options = RealtimeOptionsBuilder().with_request_failed_retry_enable(False).with_commit_interval(0).build()
    stream = connection.get_realtime_stream(table="plain", options=options)
    connection.cursor().execute("DROP TABLE plain")
    stream.apply(plain_row(stream, 1))
    with pytest.raises(LakefmtError):
        stream.flush()
    with pytest.raises(LakefmtError):
        stream.close()
    stream.close()


def test_rows_of_another_stream_and_other_things_are_refused(connection: Connection) -> None:
    first, second = (connection.get_realtime_stream(table="plain") for _ in range(2))
    with pytest.raises(CZException, match="another stream"):
        second.apply(plain_row(first, 1))
    for nonsense in ({"id": 1}, None, 7):
        with pytest.raises(CZException, match=r"^Failed to apply row"):
            second.apply(nonsense)  # type: ignore[arg-type]
    first.close()
    second.close()


def test_connect_needs_no_credentials_and_keeps_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "lakefmt.realtime"):
        made = connect(base_path="memory://realtime-connect", username="user", password="secret", magic_token="secret")
    assert "password" in caplog.text
    assert "secret" not in caplog.text + repr(made)
    assert len(caplog.records) == 1
    for wrong in ({}, {"base_path": "x", "catalog": object()}, {"catalog": object()}):
        with pytest.raises(InvalidInputError):
            connect(**wrong)  # type: ignore[arg-type]


def test_a_catalog_says_where_tables_are() -> None:
    class Places:
        def location(self, schema: str, table: str) -> str:
            return f"memory://realtime-catalog/{schema}-{table}"

    made = connect(catalog=Places(), schema="s")
    made.cursor().execute("CREATE TABLE t (a INT)")
    assert lakefmt.open_table("memory://realtime-catalog/s-t").schema.names == ["a"]
    made.use_schema("other")
    assert made.get_schema() == "other"
    with pytest.raises(ProgrammingError):
        made.cursor().execute("SELECT a FROM t")
    assert made.cursor().execute("SELECT a FROM s.t").fetchall() == []


@pytest.mark.parametrize("name", ['"../x"', '"a/b"', '".."', '".hoodie"', '"a b"'])
def test_names_stay_below_the_base_path(connection: Connection, name: str) -> None:
    with pytest.raises(ProgrammingError, match="is no name of a table"):
        connection.cursor().execute(f"CREATE TABLE {name} (a INT)")


def test_a_cursor(connection: Connection) -> None:
    stream = connection.get_realtime_stream(table="keyed")
    for number in range(5):
        stream.apply(keyed_row(stream, f"id{number}", "x", number))
    stream.close()
    with connection.cursor() as cursor:
        assert cursor.description is None
        assert cursor.rowcount == -1
        cursor.execute("SELECT count AS n, id FROM public.keyed WHERE count >= ? AND id <> ?", [1, "id4"])
        assert cursor.rowcount == 3
        assert [column[:2] for column in cursor.description or ()] == [("n", "INT32"), ("id", "STRING")]
        first = cursor.fetchone()
        assert sorted([first, *cursor.fetchmany(1), *cursor.fetchall()]) == [(1, "id1"), (2, "id2"), (3, "id3")]  # type: ignore[type-var]
        assert cursor.fetchone() is None
        assert cursor.execute("SELECT COUNT(*) FROM keyed WHERE count > 2").fetchall() == [(2,)]
        for wrong in ("SELECT nothing FROM keyed", "SELECT id FROM nothing", "CREATE TABLE keyed (a INT)"):
            with pytest.raises(ProgrammingError):
                cursor.execute(wrong)
        with pytest.raises(ProgrammingError):
            cursor.fetchone()
        with pytest.raises(NotSupportedError):
            cursor.execute("INSERT INTO keyed VALUES ('a', 'b', 1)")
        cursor.execute("CREATE TABLE IF NOT EXISTS keyed (a INT)")
    with pytest.raises(InterfaceError):
        cursor.execute("SELECT id FROM keyed")
    with pytest.raises(NotSupportedError):
        connection.create_bulkload_stream()
    connection.commit()
    connection.close()
    with pytest.raises(InterfaceError):
        connection.cursor()


def test_drop_removes_a_table_and_finishes_a_drop_that_was_interrupted(connection: Connection) -> None:
    cursor = connection.cursor()
    store = connection.open_table("plain").client.store
    cursor.execute("DROP TABLE plain")
    assert list(store.list()) == []
    with pytest.raises(ProgrammingError):
        cursor.execute("DROP TABLE plain")
    cursor.execute("DROP TABLE IF EXISTS plain")
    store.put(".hoodie/left", b"x")
    cursor.execute("DROP TABLE plain")
    assert list(store.list()) == []
    cursor.execute("CREATE TABLE plain (a INT)")
    assert count(connection, "plain") == 0
