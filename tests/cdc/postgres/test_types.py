"""Every type of PostgreSQL: what the snapshot and the log say is what SELECT says."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from lakefmt._core.cdc.events import SourceName
from lakefmt.errors import SourceRefused
from tests.cdc.applier import Applied, rows_in
from tests.cdc.postgres.kit import follow, select

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres at work")]

ITEMS = SourceName("public", "items")
#: Type → the type here, and literals; null is added to all of them.
TYPES: dict[str, tuple[pa.DataType, list[str]]] = {
    "boolean": (pa.bool_(), ["true", "false"]),
    "smallint": (pa.int32(), ["-32768", "32767"]),
    "integer": (pa.int32(), ["-2147483648", "2147483647"]),
    "bigint": (pa.int64(), ["-9223372036854775808", "9223372036854775807"]),
    "oid": (pa.int64(), ["0", "4294967295"]),
    "real": (pa.float32(), ["1.1", "-3.4028235e38", "1e-45", "'NaN'", "'Infinity'", "'-Infinity'"]),
    "double precision": (pa.float64(), ["0.1", "-1.7976931348623157e308", "5e-324", "'NaN'", "'Infinity'"]),
    "numeric(10,2)": (pa.decimal128(10, 2), ["99999999.99", "-0.01", "0"]),
    "numeric(38,10)": (pa.decimal128(38, 10), ["1234567890123456789012345678.0123456789"]),
    "numeric(3,-2)": (pa.decimal128(5, 0), ["99900", "-100"]),
    "numeric(2,5)": (pa.decimal128(5, 5), ["0.00099"]),
    "numeric(60,3)": (pa.string(), ["123456789012345678901234567890123456789012.123"]),
    "numeric": (pa.string(), ["1e100", "0.000000000000000000000000000000000000000001", "'NaN'", "1.10"]),
    "money": (pa.string(), ["12.34"]),
    "text": (pa.string(), ["''", "'a,b\"c'", "E'x\\r\\ny\\t'", "'größe 🦀'", "'\\.'", "'NULL'", "repeat('ü', 5000)"]),
    "varchar(5)": (pa.string(), ["'abc'"]),
    "char(5)": (pa.string(), ["'abc'"]),
    '"char"': (pa.string(), ["'a'"]),
    "name": (pa.string(), ["'public'"]),
    "bytea": (pa.binary(), ["''", r"'\x00ff10'", r"repeat('x', 5000)::bytea"]),
    "date": (pa.date32(), ["'0001-01-01'", "'2024-02-29'", "'9999-12-31'"]),
    "time": (pa.time64("us"), ["'00:00'", "'23:59:59.999999'"]),
    "time(0)": (pa.time64("us"), ["'12:34:56'"]),
    "timetz": (pa.string(), ["'12:34:56.7+05:30'"]),
    "timestamp": (pa.timestamp("us"), ["'0001-01-01'", "'2024-02-29 12:34:56.789012'", "'9999-12-31 23:59:59.999999'"]),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        ["'2024-03-31 02:30:00+02'", "'1883-11-18 12:00:00-05'", "'2024-01-01 00:00:00.5-12'"],
    ),
    "interval": (pa.string(), ["'1 year 2 months 3 days 04:05:06.789'", "'-1 day'"]),
    "uuid": (pa.string(), ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"]),
    "json": (pa.string(), ['\'{"b": 1, "a": [1, 2.50]}\'']),
    "jsonb": (pa.string(), ['\'{"b": 1, "a": [1, 2.50], "b": 2}\'', "'null'"]),
    "xml": (pa.string(), ["'<a>1</a>'"]),
    "inet": (pa.string(), ["'192.168.0.1/24'", "'::1'"]),
    "cidr": (pa.string(), ["'10.0.0.0/8'"]),
    "macaddr": (pa.string(), ["'08:00:2b:01:02:03'"]),
    "bit(5)": (pa.string(), ["B'10101'"]),
    "varbit": (pa.string(), ["B''", "B'1'"]),
    "point": (pa.string(), ["'(1.5,2)'"]),
    "box": (pa.string(), ["'(1,2),(3,4)'"]),
    "box[]": (pa.string(), ["ARRAY['(1,2),(3,4)'::box, '(5,6),(7,8)'::box]"]),
    "int4range": (pa.string(), ["'[1,5)'", "'empty'"]),
    "tsvector": (pa.string(), ["'a:1 b:2'"]),
    "int[]": (pa.list_(pa.int32()), ["'{1,2,NULL}'", "'{}'"]),
    "text[]": (
        pa.list_(pa.string()),
        ["ARRAY['', 'a,b', 'NULL', NULL, 'q\"\\', '{x}']", "'{}'", "ARRAY[repeat('x', 5000)]"],
    ),
    "bytea[]": (pa.list_(pa.binary()), [r"ARRAY['\x00ff'::bytea, '', NULL]"]),
    "numeric(10,2)[]": (pa.list_(pa.decimal128(10, 2)), ["'{1.50,NULL}'"]),
    "boolean[]": (pa.list_(pa.bool_()), ["'{t,f,NULL}'"]),
    "timestamptz[]": (pa.list_(pa.timestamp("us", "UTC")), ["ARRAY['2024-03-31 02:30:00.5+02'::timestamptz, NULL]"]),
    "date[]": (pa.list_(pa.date32()), ["'{2024-02-29}'"]),
    "mood": (pa.string(), ["'sad'", "'very happy'"]),
    "mood[]": (pa.list_(pa.string()), ["'{sad,\"very happy\"}'::mood[]"]),
    "cents": (pa.decimal128(12, 2), ["1.10"]),
    "cents2": (pa.decimal128(12, 2), ["2.20"]),
    "pair": (pa.string(), ["ROW(1, 'a \"b\"')"]),
}
OWN_TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'very happy')",
    "CREATE DOMAIN cents AS numeric(12,2) CHECK (VALUE >= 0)",
    "CREATE DOMAIN cents2 AS cents NOT NULL DEFAULT 0",
    "CREATE TYPE pair AS (x int, y text)",
)
#: What the client library makes of a value is not what it is here.
AS_TEXT = ("numeric", "numeric(60,3)", "timetz", "interval", "json", "jsonb", "int4range", "uuid", "mood[]")


def asked(type_name: str) -> str:
    """The expression that asks the server for what a value must be here."""
    cast = {"bytea": "v", "bytea[]": "v", "mood[]": "v::text[]"}.get(type_name, "v")
    return f"{cast}::text" if type_name in AS_TEXT and type_name != "mood[]" else cast


def told(value: object) -> object:
    """A value of the client library as Arrow shows it."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [told(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return "not a number"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    return value


def all_told(rows: list[tuple]) -> list[tuple]:
    return sorted((tuple(told(value) for value in row) for row in rows), key=repr)


def rounded(rows: list[tuple], type_name: str) -> list[tuple]:
    """Floats of 32 bits as such: the client library reads their digits as a longer number."""
    if type_name != "real":
        return rows
    as_short = lambda value: pa.array([value], pa.float32())[0].as_py() if isinstance(value, float) else value  # noqa: E731
    return [tuple(as_short(value) for value in row) for row in rows]


def test_every_type_is_what_the_server_shows(postgres, shop):
    """All types in one database, each in a table of its own: half its rows come by the snapshot, all again by the log."""
    tables = {type_name: f"t{number}" for number, type_name in enumerate(TYPES)}
    postgres.execute(*OWN_TYPES, database=shop)
    for type_name, table in tables.items():
        literals = TYPES[type_name][1]
        nullable = [] if type_name == "cents2" else ["NULL"]
        postgres.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v {type_name})",
            *(f"INSERT INTO {table} VALUES ({n}, {text})" for n, text in enumerate([*literals, *nullable])),
            database=shop,
        )
    applied = Applied()
    follow(postgres, shop, applied)
    compare(postgres, shop, applied, tables)
    for type_name, table in tables.items():
        postgres.execute(
            *(f"INSERT INTO {table} VALUES ({n + 100}, {text})" for n, text in enumerate(TYPES[type_name][1])),
            f"UPDATE {table} SET id = id + 1000 WHERE id < 100",
            database=shop,
        )
    follow(postgres, shop, applied)
    compare(postgres, shop, applied, tables)


def compare(postgres, shop, applied, tables):
    wrong = {}
    for type_name, table in tables.items():
        name = SourceName("public", table)
        assert applied.tables[name].columns.field("v").type == TYPES[type_name][0], type_name
        query = f"SELECT id, {asked(type_name)} FROM {table}"
        connection = postgres.connect(shop)
        with connection.cursor() as cursor:
            cursor.execute("SET intervalstyle = iso_8601")
            cursor.execute(query)
            expected = rounded(all_told(cursor.fetchall()), type_name)
        connection.close()
        found = all_told(rows_in(applied, name))
        if sorted(found, key=repr) != sorted(expected, key=repr):
            wrong[type_name] = (found, expected)
    assert not wrong


@pytest.mark.parametrize(
    ("type_name", "literal"),
    [
        ("date", "'infinity'"),
        ("date", "'10000-01-01'"),
        ("date", "'0001-01-01 BC'"),
        ("timestamp", "'-infinity'"),
        ("timestamptz", "'infinity'"),
        ("timestamptz", "'20000-01-01'"),
        ("time", "'24:00:00'"),
        ("numeric(10,2)", "'NaN'"),
        ("int[]", "'{{1,2},{3,4}}'"),
        ("int[]", "'[0:1]={1,2}'"),
    ],
)
@pytest.mark.parametrize("by", ["rows", "log"])
def test_a_value_that_its_type_cannot_hold_is_refused_null_or_text_but_never_another(
    postgres, shop, type_name, literal, by
):
    postgres.execute(f"CREATE TABLE items (id int PRIMARY KEY, v {type_name})", database=shop)
    refused, null, text = Applied(), Applied(), Applied()
    if by == "log":
        follow(postgres, shop, refused, slot="a")
        follow(postgres, shop, null, slot="b", odd_values="null")
        follow(postgres, shop, text, slot="c", text_columns=["items.v"])
    postgres.execute(f"INSERT INTO items VALUES (1, {literal})", database=shop)
    with pytest.raises(SourceRefused, match=r"items\.v.*text_columns"):
        follow(postgres, shop, refused, slot="a")
    follow(postgres, shop, null, slot="b", odd_values="null")
    assert rows_in(null, ITEMS) == [(1, None)]
    follow(postgres, shop, text, slot="c", text_columns=["items.v"])
    assert rows_in(text, ITEMS) == select(postgres, shop, "SELECT id, v::text FROM items")


def test_a_generated_column_is_left_out_and_a_decimal_stays_exact(postgres, shop):
    postgres.execute(
        "CREATE TABLE items (id int PRIMARY KEY, v numeric(38,18), g numeric GENERATED ALWAYS AS (v * 2) STORED)",
        "INSERT INTO items (id, v) VALUES (1, 0.1)",
        database=shop,
    )
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.execute("INSERT INTO items (id, v) VALUES (2, 12345678901234567890.000000000000000001)", database=shop)
    follow(postgres, shop, applied)
    assert rows_in(applied, ITEMS) == [
        (1, Decimal("0.100000000000000000")),
        (2, Decimal("12345678901234567890.000000000000000001")),
    ]
