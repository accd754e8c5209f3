"""Each type: a row of the log equals the same row of a SELECT, and both equal what the server shows."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import pytest

from lakefmt._core.cdc.events import RowChanges, SourceName
from tests.cdc.mysql.following_kit import Sink, follow, new_database, selected, source_of

pytestmark = pytest.mark.xdist_group("mariadb")

UTC = datetime.UTC
SECOND = 1_000_000
#: name → (type of the column, value in SQL, what it is here); a value of None: not given.
COLUMNS: dict[str, tuple[str, str | None, Any]] = {
    "u8": ("tinyint unsigned", "255", 255),
    "u16": ("smallint unsigned", "65535", 65535),
    "u24": ("mediumint unsigned", "16777215", 16777215),
    "u32": ("int unsigned", "4294967295", 4294967295),
    "u64": ("bigint unsigned", "18446744073709551615", Decimal(18446744073709551615)),
    "i8": ("tinyint", "-128", -128),
    "i16": ("smallint", "-32768", -32768),
    "i24": ("mediumint", "-8388608", -8388608),
    "i64": ("bigint", "-9223372036854775808", -9223372036854775808),
    "filled": ("int(8) zerofill", "42", 42),
    "wide": (
        "decimal(65,30)",
        "'-12345678901234567890123456789012345.123456789012345678901234567890'",
        "-12345678901234567890123456789012345.123456789012345678901234567890",
    ),
    "money": ("decimal(10,2)", "-0.01", Decimal("-0.01")),
    "part": ("decimal(38,38)", "-0.5", Decimal("-0.5")),
    "whole": ("decimal(30,0)", "-500", Decimal(-500)),
    "mixed": ("decimal(30,10) unsigned", "12345.5", Decimal("12345.5")),
    "f": ("float", "16777217", 16777216.0),
    "f6": ("float", "1.2345678", struct.unpack("f", struct.pack("f", 1.2345678))[0]),
    "d": ("double", "0.1", 0.1),
    "large": ("double", "1e308", 1e308),
    "zero_datetime": ("datetime", "'0000-00-00 00:00:00'", None),
    "zero_month": ("datetime", "'2024-00-15 01:02:03'", None),
    "last": ("datetime(6)", "'9999-12-31 23:59:59.999999'", datetime.datetime.max),
    "tenth": ("datetime(1)", "'2000-02-29 23:59:59.9'", datetime.datetime(2000, 2, 29, 23, 59, 59, 900_000)),
    "old": ("datetime(3)", "'1000-02-28 23:59:59.987'", datetime.datetime(1000, 2, 28, 23, 59, 59, 987_000)),
    "at": ("timestamp null", "'2024-06-01 12:00:00'", datetime.datetime(2024, 6, 1, 6, 30, tzinfo=UTC)),
    "zero_at": ("timestamp null", "'0000-00-00 00:00:00'", None),
    "at6": ("timestamp(6) null", "'2024-06-01 12:00:00.123456'", datetime.datetime(2024, 6, 1, 6, 30, 0, 123_456, UTC)),
    "zero_date": ("date", "'0000-00-00'", None),
    "zero_day": ("date", "'2024-02-00'", None),
    "day": ("date", "'1969-12-31'", datetime.date(1969, 12, 31)),
    "lowest_time": ("time", "'-838:59:59'", -3_020_399 * SECOND),
    "long_time": ("time(3)", "'123:45:06.789'", 445_506_789_000),
    "tiny_time": ("time(6)", "'-00:00:00.000001'", -1),
    "negative_time": ("time(1)", "'-00:00:01.5'", -1_500_000),
    "zero_year": ("year", "0", 0),
    "year": ("year", "2155", 2155),
    "label": ("enum('a','b''c','ü')", "'ü'", "ü"),
    "no_label": ("enum('a','b')", "'zzz'", ""),
    "latin_label": ("enum('é','b') character set latin1", "'é'", "é"),
    "members": ("set('x','y','z')", "'z,x'", ["x", "z"]),
    "no_member": ("set('x','y')", "''", []),
    "bits": ("bit(10)", "b'1000000001'", b"\x02\x01"),
    "flag": ("bit(1)", "b'1'", True),
    "all_bits": ("bit(64)", f"b'{'1' * 64}'", b"\xff" * 8),
    "document": ("json", '\'{"a": [1, 2.5, null, "ü"]}\'', '{"a": [1, 2.5, null, "ü"]}'),
    "text": ("varchar(300)", "'grüße 🎉'", "grüße 🎉"),
    "latin": ("varchar(20) character set latin1", "x'8180e9'", "\x81€é"),
    "sjis": ("varchar(20) character set sjis", "'日本'", "日本"),
    "ucs2": ("varchar(20) character set ucs2", "'aé'", "aé"),
    "utf16": ("varchar(20) character set utf16", "'aé🎉'", "aé🎉"),
    "utf32": ("varchar(20) character set utf32", "'aé🎉'", "aé🎉"),
    "padded": ("char(5)", "'ab  '", "ab"),
    "bytes": ("binary(5)", "x'6100620000'", b"a\0b\0\0"),
    "many_bytes": ("binary(255)", "x'00'", bytes(255)),
    "some_bytes": ("varbinary(10)", "x'00ff00'", b"\0\xff\0"),
    "blob": ("blob", "x'00ff'", b"\0\xff"),
    "long_text": ("mediumtext", "repeat('x',70000)", "x" * 70000),
    "virtual": ("int as (id+1) virtual", None, 2),
    "stored": ("int as (id+2) persistent", None, 3),
    "address6": ("inet6", "'::ffff:1.2.3.4'", "::ffff:1.2.3.4"),
    "any6": ("inet6", "'::'", "::"),
    "address4": ("inet4", "'10.1.2.0'", "10.1.2.0"),
    "uuid": ("uuid", "'f23e4567-e89b-42d3-a456-426614174000'", "f23e4567-e89b-42d3-a456-426614174000"),
    "uuid7": ("uuid", "'018f4567-e89b-7ed3-a456-426614174000'", "018f4567-e89b-7ed3-a456-426614174000"),
    "compressed": ("varchar(100) compressed", "repeat('q',99)", "q" * 99),
    "short": ("varchar(100) compressed", "'q'", "q"),
    "compressed_blob": ("blob compressed", "repeat('qr',9999)", b"qr" * 9999),
    "größe": ("int", "7", 7),
    "hidden": ("int invisible default 5", None, 5),
}
POINT = b"\0\0\0\0\x01\x01\0\0\0\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@"


@pytest.fixture(scope="module")
def of_both(mariadb):
    """The same rows twice: read from the table, and from the log; and the SELECT of the test."""
    columns = ", ".join(f"`{name}` {shown}" for name, (shown, _, _) in COLUMNS.items())
    given = {name: value for name, (_, value, _) in COLUMNS.items() if value is not None}
    names = ", ".join(f"`{name}`" for name in given)
    insert = (
        f"insert into t (id, {names}, place) values (1, {', '.join(given.values())}, ST_GeomFromText('POINT(1 2)'))",
        "insert into t (id) values (2)",
    )
    database = new_database(mariadb, f"create table t (id int primary key, {columns}, place point)")
    sink, name = Sink(), SourceName(database, "t")
    follow(source_of(mariadb, database), sink)
    mariadb.execute("set sql_mode='', time_zone='+05:30'", *insert, database=database)
    follow(source_of(mariadb, database), sink)
    other = Sink()
    follow(source_of(mariadb, database), other)
    (of_log,) = (event.rows for event in sink.said if isinstance(event, RowChanges))
    (of_table,) = (event.rows for event in other.said if isinstance(event, RowChanges))
    assert [change.before for change in sink.changes] == [None, None], "the log describes the table as the server does"
    return of_log.combine_chunks(), of_table.combine_chunks(), selected(mariadb, name)


@pytest.mark.parametrize("column", [*COLUMNS, "place"])
def test_a_value_is_the_same_from_the_log_from_the_table_and_from_select(of_both, column):
    value = POINT if column == "place" else COLUMNS[column][2]
    has_default = column in ("virtual", "stored", "hidden")
    for rows in of_both:
        first, second = rows.sort_by("id")[column].to_pylist()
        assert (first, type(first)) == (value, type(value))
        assert (second is None) != has_default
    assert of_both[0][column].equals(of_both[1][column])
