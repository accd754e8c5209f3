"""Images of changes as Hudi's Spark data source shows them (``test_same_job.py`` compares whole queries with Hudi)."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt.spark.reading import image_texts

ROW = pa.struct(
    [
        ("text", pa.string()),
        ("number", pa.int64()),
        ("list", pa.list_(pa.struct([("s", pa.string())]))),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("flag", pa.bool_()),
    ]
)
TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROWS = st.lists(
    st.none()
    | st.fixed_dictionaries(
        {
            "text": TEXTS,
            "number": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
            "list": st.none() | st.lists(st.none() | st.fixed_dictionaries({"s": TEXTS}), max_size=3),
            "map": st.none()
            | st.dictionaries(st.text('ab"\\\n', max_size=3), st.none() | st.integers(0, 9), max_size=3),
            "flag": st.none() | st.booleans(),
        }
    ),
    max_size=5,
)


@given(ROWS, st.integers(0, 4))
def test_texts_are_json_of_the_same_values(rows, start):
    given_rows = [None if row is None else {**row, "map": row["map"] and list(row["map"].items())} for row in rows]
    texts = image_texts(pa.array(given_rows, ROW).slice(start)).to_pylist()
    wanted = [None if row is None else {**row, "map": row["map"]} for row in rows[start:]]
    assert [json.loads(text) for text in texts] == [
        None if row is None else {**row, "map": None if row["map"] is None else dict(row["map"])} for row in wanted
    ]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.float64(), 1.0, "1.0"),
        (pa.float64(), 1e10, "1.0E10"),
        (pa.float64(), float("nan"), '"NaN"'),
        (pa.float64(), float("-inf"), '"-Infinity"'),
        (pa.float32(), 0.1, "0.1"),
        (pa.decimal128(10, 2), Decimal("7.00"), "[0, 0, 0, 2, -68]"),
        (pa.decimal128(38, 0), Decimal(-1), f"[{', '.join(['-1'] * 16)}]"),
        (pa.date32(), dt.date(2026, 1, 2), "20455"),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "1767225600000000"),
        (pa.binary(), b"\x80x\xff", '"\\u0080x\u00ff"'),
        (pa.string(), "\u2028\x7f\u00e9", '"\\u2028\\u007F\u00e9"'),
        (pa.struct([]), {}, "{}"),
        (pa.null(), None, "null"),
    ],
)
def test_values(kind, value, text):
    assert image_texts(pa.array([value], kind)).to_pylist() == [text]
