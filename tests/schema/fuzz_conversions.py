"""Throws values of every kind at every conversion, in a process of its own: Arrow ends a process where it finds a fault."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import sys
import uuid
import warnings
from collections import OrderedDict

import numpy as np
import pandas as pd
import pyarrow as pa

from lakefmt._core.producers.stream.options import RowOperator
from lakefmt._core.producers.stream.rows import RowChecker
from lakefmt._core.schema import conform, normalise_schema
from lakefmt._core.schema.python_values import arrow_array, arrow_scalar
from lakefmt.errors import LakefmtError
from lakefmt.realtime.rows import ConversionRules
from lakefmt.realtime.rows import column_converter as sql_converter
from lakefmt.realtime.statements import decode_types

SCALARS = [
    None, True, 0, -1, 2**31, 2**63, -(2**63), 10**40, 1.5, -0.0, float("nan"), float("inf"), 1e300, "x", "", "1", "é", "\ud800",
    b"", b"ab", bytearray(b"q"), memoryview(b"mv"), decimal.Decimal("1.5"), decimal.Decimal("NaN"), decimal.Decimal("1E+999999"),
    dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3), dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
    dt.time(1, 2), dt.timedelta(days=1), np.int8(3), np.float32(0.5), np.bool_(True), np.datetime64("NaT"), np.str_("s"),
    np.datetime64("2026-01-01T00:00:00.000000001"), np.timedelta64(5, "ns"), pd.NA, pd.NaT, pd.Timestamp("2026-01-01T00:00:00.1"),
    pd.Timedelta(1), uuid.UUID(int=5), object(), 1j, float, range(3), {1, 2}, np.longdouble(1), np.arange(3), np.array(["a"], object),
    np.zeros((2, 2)), pa.scalar(1), pa.scalar(None, pa.int8()), pa.array([1, None]), pd.Series([1.0, None]),
]  # fmt: skip
LEAVES = [
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.binary(2), pa.date32(),
    pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.time64("us"), pa.time32("ms"), pa.decimal128(5, 2), pa.duration("us"),
]  # fmt: skip


def any_type(rng: random.Random, depth: int = 3) -> pa.DataType:
    form = rng.randrange(6) if depth else 0
    if form <= 1:
        return rng.choice(LEAVES)
    if form == 2:
        return pa.list_(pa.field("element", any_type(rng, depth - 1), rng.random() < 0.7))
    if form == 3:
        return pa.map_(pa.string(), pa.field("value", any_type(rng, depth - 1), rng.random() < 0.7))
    names = rng.sample(["a", "b", "c"], rng.randint(1, 3))
    return pa.struct([pa.field(name, any_type(rng, depth - 1), rng.random() < 0.7) for name in names])


def any_value(rng: random.Random, depth: int = 3) -> object:
    form = rng.randrange(10) if depth else 0
    if form <= 4:
        return rng.choice(SCALARS)
    inner = [any_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if form == 5:
        return inner
    if form == 6:
        return tuple(inner)
    if form == 7:
        return [(rng.choice(["a", "b", None, 1]), each) for each in inner]
    return OrderedDict(zip(rng.choices(["a", "b", "c", "k"], k=3), inner, strict=False))


def odd_column(rng: random.Random) -> pa.Array:
    """Return an Arrow column of a form that no table stores."""
    plain = pa.array(rng.choice([[1, None, 3], ["a", None, "b"], [[1], None, [None]], [{"x": 1}, None, {"x": None}]]))
    form = rng.randrange(6)
    if form == 0 and not pa.types.is_nested(plain.type):
        return plain.dictionary_encode()
    if form == 1 and not pa.types.is_nested(plain.type):
        return pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 4], pa.int32()), plain)
    if form == 2:
        return pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [plain, pa.array([True, False, None])])
    if form == 3:
        return pa.UnionArray.from_dense(pa.array([0, 0, 0], pa.int8()), pa.array([0, 1, 2], pa.int32()), [plain])
    if form == 4:
        return pa.array([[("k", None)], None, []], pa.map_(pa.string(), pa.int64()))
    return plain.slice(rng.randrange(2))


def attempts(rng: random.Random) -> None:
    kind = any_type(rng)
    values = [any_value(rng) for _ in range(rng.randint(1, 3))]
    schema = pa.schema([pa.field("v", kind)])

    def of_a_stream() -> None:
        checker = RowChecker(schema, ())
        taken = []
        for value in values:
            try:
                taken.append(checker.values(RowOperator.INSERT, {"v": value})[0])
            except LakefmtError:
                continue
        # What was taken one by one becomes columns together.
        if taken:
            checker.columns(taken).validate(full=True)

    def of_the_client() -> None:
        stored = normalise_schema(schema)
        convert = sql_converter(decode_types(None, stored)[0], stored.field(0).type, ConversionRules())
        taken = []
        for value in values:
            try:
                taken.append(None if value is None else convert(value))
            except (ValueError, TypeError, ArithmeticError):
                continue
        pa.array(taken, stored.field(0).type).validate(full=True)

    column = odd_column(rng)
    for attempt in (
        lambda: arrow_array(values, kind, "v").validate(full=True),
        lambda: arrow_array(values, None, "v").validate(full=True),
        lambda: arrow_scalar(values[0], kind, "v").validate(full=True),
        of_a_stream,
        of_the_client,
        lambda: conform(pa.table({"v": column}), normalise_schema(schema)).validate(full=True),
    ):
        try:
            attempt()
        except LakefmtError:
            continue


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    generator = random.Random(int(sys.argv[1]))
    for _number in range(int(sys.argv[2])):
        attempts(generator)
    print("whole")
