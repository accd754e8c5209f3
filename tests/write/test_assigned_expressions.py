"""SQL expressions that an update or a merge assigns to columns."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import InvalidExpression, SchemaMismatch

ASSIGNED_NUMBERS = itertools.count()


ASSIGNED = {
    "fare": [("0.5", 0.5), ("fee", 1.25), ("fee * 2 + 0.1", 2.6), ("-1.5", -1.5), ("1e3", 1000.0), ("2", 2.0)],
    "near": [("0.1", np.float32(0.1).item()), ("fee", 1.25)],
    "day": [("'2024-02-29'", date(2024, 2, 29)), ("day + 1", date(2024, 1, 2))],
    "at": [("'2024-02-29 01:02:03'", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC))],
    "n": [("2.0", 2), ("3", 3)],
    "fee": [("1.5", Decimal("1.50")), ("2", Decimal("2.00"))],
}


@pytest.mark.parametrize(
    ("column", "sql", "value"), [(name, *each) for name, some in ASSIGNED.items() for each in some]
)
@pytest.mark.parametrize("verb", ["update", "merge"])
def test_a_literal_takes_the_type_of_the_column_that_is_assigned(
    column: str, sql: str, value: object, verb: str
) -> None:
    """SQL's 0.5 is a decimal, and a date is written as a text."""
    types = {
        "id": pa.string(),
        "fare": pa.float64(),
        "near": pa.float32(),
        "day": pa.date32(),
        "n": pa.int32(),
        "at": pa.timestamp("us", "UTC"),
        "fee": pa.decimal128(10, 2),
    }
    row = {"id": "a", "fare": 1.0, "near": 1.0, "day": date(2024, 1, 1), "n": 1, "at": datetime(2024, 1, 1, tzinfo=UTC)}
    rows = pa.Table.from_pylist([{**row, "fee": Decimal("1.25")}], pa.schema(list(types.items())))
    table = lakefmt.create_table(f"memory://assigned-{next(ASSIGNED_NUMBERS)}", schema=rows.schema, record_key="id")
    table.upsert(rows)
    if verb == "update":
        table.update(None, expressions={column: sql})
    else:
        names = [name for name in types if name != column]
        plain = {name: f"t.{name}" for name in names if name != "id"}
        to_target = re.sub(r"(?<!')\b(fee|day)\b(?!-)", r"t.\1", sql)
        table.merge(pa.table({"id": ["a"]}), "id").when_matched({**plain, column: to_target}).execute()
    assert table.read().column(column).to_pylist() == [value]


@pytest.mark.parametrize(
    ("column", "sql"),
    [("n", "2.5"), ("day", "'2024-02-30'"), ("fee", "1.255"), ("n", "fee"), ("fare", "9007199254740993")],
)
def test_a_literal_that_a_column_does_not_hold_is_refused(column: str, sql: str) -> None:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("n", pa.int32()),
            ("day", pa.date32()),
            ("fee", pa.decimal128(10, 2)),
            ("fare", pa.float64()),
        ]
    )
    table = lakefmt.create_table(f"memory://assigned-{next(ASSIGNED_NUMBERS)}", schema=schema, record_key="id")
    rows = pa.Table.from_pylist(
        [{"id": "a", "n": 1, "day": date(2024, 1, 1), "fee": Decimal("1.25"), "fare": 1.0}], schema
    )
    table.upsert(rows)
    with pytest.raises((InvalidExpression, SchemaMismatch)):
        table.update(None, expressions={column: sql})
    assert table.read().equals(rows)
