"""The table of conversions: per SQL type what is stored for a value, and what is refused. Read by test_types.py."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

Point = namedtuple("Point", "a b")


@dataclass
class PointClass:
    a: int
    b: str


@dataclass(frozen=True)
class Line:
    """One line of the table of types.

    Attributes:
        sql: the type, as CREATE TABLE has it.
        stored: pairs of what a program sets and what a SELECT returns.
        refused: what a program must not set.
    """

    sql: str
    stored: tuple[tuple[Any, Any], ...]
    refused: tuple[Any, ...]


EAST, WEST = dt.timezone(dt.timedelta(hours=8)), dt.timezone(dt.timedelta(hours=-5))
NOON = dt.datetime(2026, 3, 4, 12, 0, 0, 123_457)
UTC_NOON = NOON.replace(tzinfo=dt.UTC)
#: This instant has a float timestamp that is one microsecond off.
INEXACT = dt.datetime(2014, 7, 22, 3, 51, 17, 847_371, tzinfo=dt.UTC)


def integers(sql: str, bits: int) -> Line:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return Line(
        sql,
        ((7, 7), (low, low), (high, high), ("12", 12), (" -5 ", -5), (3.0, 3), (np.int64(5), 5), (np.float32(2), 2)),
        (
            low - 1,
            high + 1,
            3.9,
            "3.9",
            "",
            "x",
            float("nan"),
            float("inf"),
            b"1",
            dt.date(2026, 1, 1),
            [1],
            1e300,
            10**400,
        ),
    )


LINES: dict[str, Line] = {
    "BOOLEAN": Line(
        "BOOLEAN",
        (
            (True, True),
            (False, False),
            (np.bool_(True), True),
            (0, False),
            (1, True),
            # The SDK stores true for each of these.
            ("false", False),
            ("F", False),
            ("0", False),
            ("True", True),
            ("t", True),
        ),
        ("yes", "", 2, -1, 1.0, b"true", [], None.__class__),
    ),
    "INT8": integers("TINYINT", 8),
    "INT16": integers("SMALLINT", 16),
    "INT32": integers("INT", 32),
    "INT64": integers("BIGINT", 64),
    "FLOAT": Line(
        "FLOAT",
        (
            (1.5, 1.5),
            ("2.5", 2.5),
            (Decimal("0.25"), 0.25),
            (3, 3.0),
            (float("inf"), float("inf")),
            (np.float32(0.5), 0.5),
        ),
        ("x", b"1.5", 1e39, -1e39, 10**400, 1j, [1.0], dt.date(2026, 1, 1)),
    ),
    "DOUBLE": Line(
        "DOUBLE",
        ((1e39, 1e39), ("2.5", 2.5), (Decimal("0.1"), 0.1), (float("-inf"), float("-inf")), (np.int8(3), 3.0)),
        ("x", b"1.5", 10**400, Decimal("1e400"), 1j, [1.0]),
    ),
    "DECIMAL": Line(
        "DECIMAL(6,2)",
        (
            (Decimal("1.005"), Decimal("1.01")),
            (Decimal("-1.005"), Decimal("-1.01")),
            (2.675, Decimal("2.68")),
            ("9999.99", Decimal("9999.99")),
            (7, Decimal("7.00")),
            (np.float64(0.5), Decimal("0.50")),
        ),
        # The SDK stores 0.00 for the first two.
        (
            Decimal("10000"),
            "9999.995",
            Decimal("NaN"),
            float("inf"),
            "x",
            b"1",
            Decimal("1E+999999"),
            [1],
            True,
            "1" * 2000,
        ),
    ),
    "CHAR": Line(
        "CHAR(3)",
        (("ab", "ab"), ("abcd", "abc"), ("äöü€", "äöü"), ("🎈🎈🎈🎈", "🎈🎈🎈"), (b"xy", "xy")),
        (1, b"\xff", "\ud800"),
    ),
    "VARCHAR": Line(
        "VARCHAR(3)", (("", ""), ("abcd", "abc"), ("日本語版", "日本語"), (b"abcd", "abc")), (1, 1.5, b"\xff", ["a"])
    ),
    "STRING": Line(
        "STRING", (("x" * 100, "x" * 100), (b"\xc3\xa9", "é"), (np.str_("n"), "n")), (1, b"\xff", "\udfff", {"a": 1})
    ),
    "JSON": Line(
        "JSON",
        (
            ('{"a": 1}', '{"a": 1}'),
            ("not json", "not json"),
            ({"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'),
            ([1, 2], "[1,2]"),
        ),
        (1, {"a": float("nan")}, {"a": {1, 2}}, b"\xff"),
    ),
    "BINARY": Line(
        "BINARY",
        ((b"\x00\xff", b"\x00\xff"), (bytearray(b"a"), b"a"), (memoryview(b"b"), b"b"), ("é", b"\xc3\xa9")),
        (1, [1, 2], 1.5, "\ud800"),
    ),
    "DATE": Line(
        "DATE",
        (
            (dt.date(2026, 3, 4), dt.date(2026, 3, 4)),
            (dt.date(1, 1, 1), dt.date(1, 1, 1)),
            (dt.date(9999, 12, 31), dt.date(9999, 12, 31)),
            (-1, dt.date(1969, 12, 31)),
            (np.int32(1), dt.date(1970, 1, 2)),
            ("1969-07-20", dt.date(1969, 7, 20)),
        ),
        (NOON, UTC_NOON, "20.07.1969", 3.0, True, 2_932_897, -719_163, pd.Timestamp("2026-01-01")),
    ),
    "TIMESTAMP_LTZ": Line(
        "TIMESTAMP_LTZ",
        (
            (UTC_NOON, UTC_NOON),
            (UTC_NOON.astimezone(EAST), UTC_NOON),
            (UTC_NOON.astimezone(WEST), UTC_NOON),
            (INEXACT, INEXACT),
            # Without a zone it is taken in the zone of the session, whatever the zone of the process is.
            (NOON, UTC_NOON),
            (1, dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)),
            (-1, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)),
            (dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
            (pd.Timestamp(UTC_NOON), UTC_NOON),
        ),
        (
            "2026-03-04",
            1.5,
            True,
            dt.date(2026, 3, 4),
            pd.NaT,
            pd.Timestamp("2026-01-01T00:00:00.000000001Z"),
            dt.datetime(1, 1, 1, tzinfo=EAST),
            10**19,
        ),
    ),
    "TIMESTAMP_NTZ": Line(
        "TIMESTAMP_NTZ",
        (
            (NOON, NOON),
            (dt.datetime(1, 1, 1), dt.datetime(1, 1, 1)),
            (0, dt.datetime(1970, 1, 1)),
            (pd.Timestamp(NOON), NOON),
        ),
        (UTC_NOON, "2026-03-04", dt.date(2026, 3, 4), 1.5, pd.NaT, True),
    ),
    "INTERVAL_DAY_TIME": Line(
        "INTERVAL DAY TO SECOND",
        (
            # The SDK stores a thousandth of the first two.
            (dt.timedelta(days=1, microseconds=1), dt.timedelta(days=1, microseconds=1)),
            (dt.timedelta(seconds=-1.5), dt.timedelta(seconds=-1.5)),
            (1_000_000, dt.timedelta(seconds=1)),
            (pd.Timedelta("3s"), dt.timedelta(seconds=3)),
        ),
        (1.5, "1 day", True, pd.NaT, dt.timedelta.max, 1 << 63),
    ),
    "ARRAY": Line(
        "ARRAY<INT>",
        (([1, None, "3"], [1, None, 3]), ((), []), ((1, 2), [1, 2])),
        ("123", {1, 2}, [1.5], [1 << 40], {"a": 1}, 7),
    ),
    "MAP": Line(
        "MAP<STRING, INT>",
        (
            ({"a": 1}, {"a": 1}),
            # The SDK loses maps of two entries and more, and fails at an empty one.
            ({"a": 1, "b": 2, "c": None}, {"a": 1, "b": 2, "c": None}),
            ({}, {}),
            ([("a", 1), ("b", 2)], {"a": 1, "b": 2}),
            (OrderedDict(z=1, a=2), {"z": 1, "a": 2}),
        ),
        ({None: 1}, {"a": "x"}, [("a",)], "ab", [("a", 1), (b"a", 2)], 7, ["ab"]),
    ),
    "MAP with other keys": Line(
        "MAP<INT, STRING>",
        (
            ({1: "a", 2: None}, [{"key": 1, "value": "a"}, {"key": 2, "value": None}]),
            ({}, []),
        ),
        ({None: "a"}, {"x": "a"}, [(1, "a"), ("1", "b")]),
    ),
    "STRUCT": Line(
        "STRUCT<a: INT, b: STRING>",
        (
            ({"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
            (Point(1, "x"), {"a": 1, "b": "x"}),
            ((1, None), {"a": 1, "b": None}),
            ([1, "x"], {"a": 1, "b": "x"}),
            (PointClass(1, "x"), {"a": 1, "b": "x"}),
            ('{"a": 1, "b": "x"}', {"a": 1, "b": "x"}),
        ),
        ({"a": 1}, {"a": 1, "b": "x", "c": 2}, (1,), (1, "x", 2), "[1]", "x", 7, {"a": "y", "b": "x"}, PointClass),
    ),
    "VECTOR": Line(
        "VECTOR(FLOAT, 3)",
        (([1, 2.5, "3"], [1.0, 2.5, 3.0]), (np.array([1, 2, 3], np.float32), [1.0, 2.0, 3.0])),
        ([1, 2], [1, 2, 3, 4], [1, None, 3], "abc", 7),
    ),
}
