"""The statements that a cursor reads."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt.errors import LakefmtError
from lakefmt.realtime import Error, NotSupportedError, ProgrammingError
from lakefmt.realtime.statements import CreateTable, DropTable, Select, TableName, parse_statement


def created(text: str) -> CreateTable:
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    return statement


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("BOOLEAN", "BOOLEAN"),
        ("BOOL", "BOOLEAN"),
        ("TINYINT", "INT8"),
        ("INT8", "INT8"),
        ("SMALLINT", "INT16"),
        ("INT16", "INT16"),
        ("INT", "INT32"),
        ("INTEGER", "INT32"),
        ("INT32", "INT32"),
        ("BIGINT", "INT64"),
        ("INT64", "INT64"),
        ("FLOAT", "FLOAT"),
        ("DOUBLE", "DOUBLE"),
        ("DECIMAL(10,2)", "DECIMAL(10,2)"),
        ("DECIMAL(5)", "DECIMAL(5,0)"),
        ("DECIMAL", "DECIMAL(10,0)"),
        ("CHAR(3)", "CHAR(3)"),
        ("CHAR", "CHAR(1)"),
        ("VARCHAR(10)", "VARCHAR(10)"),
        ("VARCHAR", "STRING"),
        ("STRING", "STRING"),
        ("JSON", "JSON"),
        ("BINARY", "BINARY"),
        ("DATE", "DATE"),
        ("TIMESTAMP", "TIMESTAMP_LTZ"),
        ("TIMESTAMP_LTZ", "TIMESTAMP_LTZ"),
        ("TIMESTAMP(6)", "TIMESTAMP_LTZ"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("INTERVAL DAY TO SECOND", "INTERVAL_DAY_TIME"),
        ("INTERVAL_DAY_TIME", "INTERVAL_DAY_TIME"),
        ("ARRAY<INT>", "ARRAY<INT32>"),
        ("MAP<STRING, ARRAY<DATE>>", "MAP<STRING, ARRAY<DATE>>"),
        ("STRUCT<a: INT, b: STRUCT<c: STRING>>", "STRUCT<a: INT32, b: STRUCT<c: STRING>>"),
        ("VECTOR(FLOAT, 3)", "VECTOR(FLOAT, 3)"),
    ],
)
def test_types(sql: str, expected: str) -> None:
    assert str(created(f"CREATE TABLE t (c {sql})").columns[0].type) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "DECIMAL(39,0)",
        "DECIMAL(5,6)",
        "DECIMAL(1,2,3)",
        "CHAR(0)",
        "VECTOR(STRING, 3)",
        "VECTOR(FLOAT)",
        "ARRAY",
        "MAP<STRING>",
        "STRUCT",
        "GEOGRAPHY",
        "BITMAP",
        "INTERVAL YEAR TO MONTH",
        "INTERVAL_YEAR_MONTH",
        "UUID",
        "STRUCT<a: INT PRIMARY KEY>",
        "INT DEFAULT 3",
        "INT UNIQUE",
        "INT GENERATED ALWAYS AS IDENTITY",
    ],
)
def test_types_and_constraints_that_cannot_be_stored_are_refused(sql: str) -> None:
    with pytest.raises((NotSupportedError, ProgrammingError)):
        created(f"CREATE TABLE t (c {sql})")


def test_keys_partitions_and_nullability() -> None:
    inline = created("create table if not exists s.t (id string primary key, v int not null comment 'x', w int)")
    assert inline.table == TableName("s", "t")
    assert inline.if_not_exists
    assert inline.key == ("id",)
    assert [c.nullable for c in inline.columns] == [False, False, True]
    trailing = created("CREATE TABLE `t` (a INT, b STRING, v INT, PRIMARY KEY (a, b)) PARTITIONED BY (b);")
    assert (trailing.key, trailing.partitions, trailing.if_not_exists) == (("a", "b"), ("b",), False)
    assert [c.nullable for c in trailing.columns] == [False, False, True]
    plain = created("CREATE TABLE w.s.t (a INT, b STRING) PARTITIONED BY (b) COMMENT 'events'")
    assert (plain.table, plain.key, plain.partitions) == (TableName("s", "t"), (), ("b",))


def test_partition_columns_must_be_in_the_key() -> None:
    with pytest.raises(ProgrammingError, match="partition columns must be part of the primary key, and b is not"):
        parse_statement("CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a)) PARTITIONED BY (b)")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a INT, PRIMARY KEY (z))",
        "CREATE TABLE t (a INT, a INT)",
        "CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))",
        "CREATE TABLE t (a INT) PARTITIONED BY (z)",
        "CREATE TABLE t (a",
        "",
        "   ",
        ";",
        "nonsense",
        "SELECT",
        "SELECT a FROM t WHERE a = ?",
    ],
)
def test_what_is_wrong_is_said(text: str) -> None:
    with pytest.raises(Error):
        parse_statement(text)


def test_selects() -> None:
    t = TableName(None, "t")
    assert parse_statement("select * from t") == Select(t, None, None, None)
    assert parse_statement('select "a", t.b as c from s.t') == Select(
        TableName("s", "t"), (("a", "a"), ("b", "c")), None, None
    )
    assert parse_statement("select count(*) as n from t where t.a > 1") == Select(t, None, "n", "a > 1")


def test_values_take_the_places_of_question_marks_in_order() -> None:
    text = "select a from t where a = ? and (b > ? or c < ?) and d = ? and e = ? and f = ?"
    statement = parse_statement(text, [1, "x'y", -2.5, Decimal("1.5"), dt.date(2026, 1, 2), True])
    assert isinstance(statement, Select)
    assert statement.where == "a = 1 AND (b > 'x''y' OR c < -2.5) AND d = 1.5 AND e = '2026-01-02' AND f = TRUE"
    with pytest.raises(ProgrammingError, match="6 question marks, and 1 values"):
        parse_statement(text, [1])
    with pytest.raises(ProgrammingError, match="cannot be a value"):
        parse_statement("select a from t where a = ?", [object()])


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "ALTER TABLE t ADD COLUMN b INT",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TABLE t AS SELECT 1",
        "CREATE OR REPLACE TABLE t (a INT)",
        "CREATE TABLE t (a INT) USING parquet",
        "CREATE TABLE t (a INT) PARTITIONED BY (bucket(3, a))",
        "CREATE TABLE t LIKE u",
        "DROP VIEW v",
        "DROP TABLE t CASCADE",
        pytest.param("DROP TABLE t, u", marks=pytest.mark.newest_only("the oldest sqlglot says that this is no SQL")),
        "SELECT a FROM t ORDER BY a",
        "SELECT a FROM t LIMIT 1",
        "SELECT a FROM t GROUP BY a",
        "SELECT DISTINCT a FROM t",
        "SELECT a + 1 FROM t",
        "SELECT COUNT(*), a FROM t",
        "SELECT *, a FROM t",
        "SELECT MAX(a) FROM t",
        "SELECT COUNT(a) FROM t",
        "SELECT a FROM t JOIN u ON t.a = u.a",
        "SELECT a FROM t, u",
        "SELECT a FROM (SELECT a FROM t)",
        "SELECT 1",
        "WITH t AS (SELECT 1) SELECT * FROM t",
        "SELECT a FROM t UNION SELECT a FROM u",
        "SELECT a FROM t; SELECT a FROM t",
        "SHOW TABLES",
        "SET x = 1",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(NotSupportedError):
        parse_statement(text)


def test_drops() -> None:
    assert parse_statement("DROP TABLE s.t") == DropTable(TableName("s", "t"), if_exists=False)
    assert parse_statement("drop table if exists `t`;") == DropTable(TableName(None, "t"), if_exists=True)


@given(st.text(max_size=80))
def test_any_text_is_a_statement_or_a_typed_error(text: str) -> None:
    with suppress(LakefmtError):
        parse_statement(text)


WORDS = [
    "select",
    "create",
    "table",
    "drop",
    "from",
    "where",
    "t",
    "a",
    "(",
    ")",
    ",",
    "*",
    "?",
    ";",
    "int",
    "primary",
    "key",
    "count",
]


@given(
    st.lists(
        st.sampled_from(WORDS),
        max_size=12,
    )
)
def test_any_words_are_a_statement_or_a_typed_error(words: list[str]) -> None:
    with suppress(LakefmtError):
        parse_statement(" ".join(words))
