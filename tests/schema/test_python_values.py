"""Values of Python become values of a column exactly, or are refused (docs/errors.md, Values)."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import subprocess
import sys
import uuid
from collections import namedtuple
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.types as pt
import pytest

from lakefmt._core.schema.python_values import arrow_array, arrow_scalar
from lakefmt.errors import SchemaMismatch

_FUZZ = Path(__file__).with_name("fuzz_conversions.py")
_EAST = dt.timezone(dt.timedelta(hours=2))


class Level(enum.IntEnum):
    HIGH = 3


class Color(enum.StrEnum):
    RED = "red"


class Shout(str):
    def __str__(self) -> str:
        return self.upper()


Point = namedtuple("Point", "x y")
D, N = decimal.Decimal, np

#: What a column of a type takes, and what it stores.
EXACT: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), 3.0, 3),
    (pa.int64(), -0.0, 0),
    (pa.int64(), D("3.00"), 3),
    (pa.int64(), N.uint64(7), 7),
    (pa.int64(), N.float32(2), 2),
    (pa.int64(), Level.HIGH, 3),
    (pa.int64(), 2**63 - 1, 2**63 - 1),
    (pa.int64(), pa.scalar(5, pa.int8()), 5),
    (pa.float64(), 2**53, float(2**53)),
    (pa.float64(), D("0.5"), 0.5),
    (pa.float64(), float("inf"), float("inf")),
    (pa.float32(), 0.1, float(N.float32(0.1))),
    (pa.float32(), 16777216, 16777216.0),
    (pa.decimal128(5, 2), 3, D("3.00")),
    (pa.decimal128(5, 2), D("1.2"), D("1.20")),
    (pa.decimal128(5, 2), D("1.2000"), D("1.20")),
    (pa.bool_(), N.bool_(True), True),
    (pa.string(), Color.RED, "red"),
    (pa.string(), Shout("a"), "a"),
    (pa.string(), N.str_("s"), "s"),
    (pa.binary(), bytearray(b"a"), b"a"),
    (pa.binary(), memoryview(b"ab"), b"ab"),
    (pa.binary(16), uuid.UUID(int=1), uuid.UUID(int=1).bytes),
    (pa.date32(), N.datetime64("2026-01-02"), dt.date(2026, 1, 2)),
    (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, 2, tzinfo=_EAST), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    (pa.timestamp("us", "UTC"), N.datetime64("2026-01-01T00:00:00.000001000"), dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)),
    (pa.timestamp("ms", "UTC"), pd.Timestamp("2026-01-01T00:00:00.001"), dt.datetime(2026, 1, 1, 0, 0, 0, 1000, dt.UTC)),
    (pa.timestamp("us"), dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1)),
    (pa.time64("us"), dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 4)),
    (pa.duration("us"), pd.Timedelta(5000), dt.timedelta(microseconds=5)),
    (pa.list_(pa.int64()), (1, 2.0), [1, 2]),
    (pa.list_(pa.int64()), N.array([1, 2]), [1, 2]),
    (pa.list_(pa.list_(pa.int8())), N.zeros((1, 2)), [[0, 0]]),
    (pa.map_(pa.string(), pa.int64()), {"k": 1.0}, [("k", 1)]),
    (pa.map_(pa.string(), pa.int64()), [("k", None)], [("k", None)]),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), {"x": 1}, {"x": 1, "y": None}),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), (1, "b"), {"x": 1, "y": "b"}),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), Point(1, "b"), {"x": 1, "y": "b"}),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), [("y", "b"), ("x", 1)], {"x": 1, "y": "b"}),
]  # fmt: skip
#: What a column does not take: Arrow itself would cut most of them, or take them for something else.
REFUSED: list[tuple[pa.DataType, Any]] = [
    *((pa.int64(), value) for value in (1.5, float("nan"), float("inf"), D("1.9"), D("NaN"), D("1E+999999"), 1e30)),
    *((pa.int64(), value) for value in (2**63, True, N.bool_(True), "3", b"3", None.__class__, 1j, N.datetime64("2026-01-01"))),
    (pa.int32(), 2**31),
    (pa.float64(), 2**53 + 1),
    (pa.float64(), D("0.1")),
    (pa.float64(), "1.5"),
    (pa.float64(), True),
    (pa.float64(), 10**400),
    (pa.float32(), 1e300),
    (pa.float32(), 1e-60),
    (pa.float32(), 16777217),
    (pa.decimal128(5, 2), D("1.239")),
    (pa.decimal128(5, 2), 1.5),
    (pa.decimal128(5, 2), 10**30),
    (pa.decimal128(5, 2), D("sNaN")),
    *((pa.bool_(), value) for value in (1, 0, "true", N.int8(1))),
    *((pa.string(), value) for value in (1, 1.0, b"a", uuid.UUID(int=1), "\ud800", Level.HIGH)),
    (pa.binary(), "a"),
    (pa.binary(2), b"a"),
    *((pa.date32(), value) for value in (dt.datetime(2026, 1, 1), pd.Timestamp("2026-01-01"), 1.5, 5, "2026-01-01")),
    *((pa.timestamp("us", "UTC"), value) for value in (dt.date(2026, 1, 1), 5, pd.Timestamp("2026-01-01T00:00:00.000000001"))),
    (pa.timestamp("us", "UTC"), N.datetime64("2026-01-01T00:00:00.000000001")),
    (pa.timestamp("ms", "UTC"), dt.datetime(2026, 1, 1, 0, 0, 0, 1)),
    (pa.timestamp("us"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    (pa.time64("us"), N.bool_(True)),
    (pa.time32("ms"), dt.time(0, 0, 0, 1)),
    (pa.time64("us"), dt.time(1, tzinfo=dt.UTC)),
    *((pa.list_(pa.string()), value) for value in ("true", b"ab", {"a": 1}, 5)),
    (pa.list_(pa.int64()), [1.5]),
    (pa.list_(pa.date32()), [dt.datetime(2026, 1, 1, 23)]),
    (pa.list_(pa.field("element", pa.int64(), nullable=False)), [None]),
    *((pa.map_(pa.string(), pa.int64()), value) for value in ([None], {None: 1}, [("a", 1), ("a", 2)], "ab", {1: 1}, [1])),
    *((pa.struct([("x", pa.int64())]), value) for value in ({"x": 1, "y": 2}, {"x": 1.5}, (1, 2), [1], "x", {1: 2})),
    (pa.struct([pa.field("x", pa.int64(), nullable=False)]), {"x": None}),
]  # fmt: skip


def _numbered(cases: Sequence[tuple[Any, ...]]) -> list[str]:
    return [f"{number}-{case[0]}" for number, case in enumerate(cases)]


@pytest.mark.parametrize(("kind", "value", "stored"), EXACT, ids=_numbered(EXACT))
def test_a_value_that_fits_is_stored_as_it_is(kind: pa.DataType, value: object, stored: object) -> None:
    assert arrow_scalar(value, kind, "v").as_py() == stored
    assert arrow_array([None, value, pd.NA], kind, "v").to_pylist() == [None, stored, None]


@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=_numbered(REFUSED))
def test_a_value_that_does_not_fit_is_refused_by_name(kind: pa.DataType, value: object) -> None:
    with pytest.raises(SchemaMismatch, match="'v'"):
        arrow_array([value], kind, "v")
    with pytest.raises(SchemaMismatch, match="'v'"):
        arrow_scalar(value, kind, "v")


def test_each_value_by_each_type_is_exact_or_refused() -> None:
    kinds = {str(kind): kind for kind, *_ in (*EXACT, *REFUSED) if not pt.is_nested(kind)}
    values = [value for _, value, *_ in (*EXACT, *REFUSED)]
    taken = 0
    for kind in kinds.values():
        for value in values:
            try:
                stored = arrow_scalar(value, kind, "v")
            except SchemaMismatch:
                continue
            taken += 1
            assert _means(stored, kind) == _meaning(value, kind), (value, kind)
    assert taken > 100


def _meaning(value: Any, kind: pa.DataType) -> object:
    """Return what a value says, by other means than the conversion's."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, dt.datetime | np.datetime64) and pt.is_timestamp(kind):
        moment = pd.Timestamp(value)
        return (moment if moment.tzinfo is not None else moment.tz_localize("UTC")).as_unit("ns").value
    if isinstance(value, np.datetime64):
        return value.item()
    if isinstance(value, dt.timedelta):
        return pd.Timedelta(value).as_unit("ns").value
    if isinstance(value, dt.date | dt.time | bool | np.bool_):
        return value
    value = value.item() if isinstance(value, np.number) else value
    if isinstance(value, float) and not np.isfinite(value):
        return str(float(value))
    return Fraction(float(np.float32(value))) if pt.is_float32(kind) else Fraction(value)


def _means(stored: pa.Scalar, kind: pa.DataType) -> object:
    if pt.is_timestamp(kind) or pt.is_duration(kind):
        return stored.value * {"ms": 10**6, "us": 10**3}[kind.unit]
    value = stored.as_py()
    if pt.is_floating(kind) and not np.isfinite(value):
        return str(value)
    return Fraction(value) if pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind) else value


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        ([1, D("1.25")], pa.decimal128(3, 2)),
        ([np.int16(1), 2], pa.int64()),
        ([np.int16(1)], pa.int16()),
        ([{"a": 1}, {"b": [None]}], pa.struct([("a", pa.int64()), ("b", pa.list_(pa.null()))])),
        ([uuid.UUID(int=5)], pa.binary(16)),
        ([None], pa.null()),
    ],
    ids=str,
)
def test_the_type_of_a_new_column_holds_all_values(values: list[object], kind: pa.DataType) -> None:
    assert arrow_array(values, None, "v").type == kind


@pytest.mark.parametrize(
    "values",
    [
        [dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 13)],
        ["a", b"b"],
        [2**53 + 1, 1.5],
        [2**63],
        [True, 1],
        [pd.Timestamp("2026-01-01T00:00:00.000000001")],
        [[1], 1],
        [{"a": 1}, [("a", 1)]],
        [1j],
    ],
    ids=str,
)
def test_values_of_no_one_type_make_no_column(values: list[object]) -> None:
    with pytest.raises(SchemaMismatch, match="'v'"):
        arrow_array(values, None, "v")


@pytest.mark.slow
def test_no_value_ends_the_process() -> None:
    done = subprocess.run(
        [sys.executable, str(_FUZZ), "20260105", "1200"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "whole"), done.stderr[-2000:]
