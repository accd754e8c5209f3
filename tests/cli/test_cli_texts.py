"""Columns as text: what a program reads back is what the rows held."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.arrow_texts import cell_texts, csv_head, csv_lines, json_lines, text_bytes
from lakefmt._core.cli.formatters import write_rows
from lakefmt.errors import UnsupportedFeature

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
LEAVES = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    (pa.binary(), st.binary(max_size=8)),
    (pa.binary(4), st.binary(min_size=4, max_size=4)),
    (pa.date32(), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", "UTC"), MOMENTS.map(lambda m: m.replace(tzinfo=UTC))),
    (pa.decimal128(10, 3), st.decimals(-9999, 9999, places=3)),
    (pa.null(), st.none()),
]


def columns(depth=2):
    leaves = st.sampled_from(LEAVES)
    if not depth:
        return leaves
    inner = columns(depth - 1)
    lists = inner.map(lambda c: (pa.list_(c[0]), st.lists(c[1] | st.none(), max_size=3)))
    maps = inner.map(
        lambda c: (
            pa.map_(pa.string(), c[0]),
            st.dictionaries(TEXTS, c[1] | st.none(), max_size=3).map(lambda d: list(d.items())),
        )
    )
    structs = inner.map(
        lambda c: (
            pa.struct([("p", c[0]), ('q"', pa.int32())]),
            st.fixed_dictionaries({"p": c[1] | st.none(), 'q"': st.just(7)}),
        )
    )
    return leaves | lists | maps | structs


@st.composite
def arrays(draw):
    """An array with nulls, perhaps a slice of a longer one."""
    kind, values = draw(columns())
    rows = draw(st.lists(values | st.none(), max_size=6))
    return pa.array(rows, kind).slice(draw(st.integers(0, len(rows))), draw(st.integers(0, 6)))


def meant(value, kind):
    """What JSON should say of a value."""
    if value is None:
        return None
    if pa.types.is_dictionary(kind):
        return value
    if pa.types.is_map(kind):
        return {key: meant(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [meant(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {name: meant(item, kind.field(name).type) for name, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if pa.types.is_float32(kind):
        return float(str(np.float32(value)))  # the shortest decimal that means it
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if kind.tz else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time):
        return value.isoformat(timespec="microseconds")
    return float(value) if isinstance(value, Decimal) else value


@given(arrays(), TEXTS)
def test_json_lines_say_what_the_rows_hold(array, name):
    written = bytes(text_bytes(json_lines(pa.record_batch([array], [name])))).decode()
    rows = [json.loads(line) for line in written.split("\n")[:-1]]
    expected = [{name: meant(value, array.type)} for value in array.to_pylist()]
    assert repr(rows) == repr(expected)  # tells 0.0 from -0.0 and 1 from 1.0


@given(st.lists(st.tuples(TEXTS | st.none(), st.floats() | st.none(), st.binary(max_size=4) | st.none()), max_size=5))
def test_csv_lines_are_read_by_another_reader(rows):
    batch = pa.record_batch(
        [pa.array([row[i] for row in rows], kind) for i, kind in enumerate((pa.string(), pa.float64(), pa.binary()))],
        ["a,b", 'c"', "d"],
    )
    written = csv_head(batch.schema) + bytes(text_bytes(csv_lines(batch))).decode()
    head, *found = csv.reader(io.StringIO(written, newline=""), strict=True)
    assert head == ["a,b", 'c"', "d"]
    for line, (text, number, data) in zip(found, rows, strict=True):
        assert line[0] == (text or "")
        assert line[1] == "" if number is None else repr(float(line[1])) == repr(number)
        assert base64.b64decode(line[2]) == (data or b"")


def test_csv_tells_null_from_empty_text():
    batch = pa.record_batch({"a": ["", None, " x", "1"]})
    assert csv_lines(batch).to_pylist() == ['""\n', "\n", " x\n", "1\n"]


def test_whole_floats_stay_floats():
    batch = pa.record_batch({"a": [1.0, -0.0, 1e300]})
    assert json_lines(batch).to_pylist() == ['{"a": 1.0}\n', '{"a": -0.0}\n', '{"a": 1e+300}\n']


@pytest.mark.parametrize("control", ["\x1b[2J", "\x07", "\x7f", "\x9b1m", "\r", "\n"])
def test_no_value_gives_orders_to_a_terminal(control):
    for array in (pa.array([control]), pa.array([[control]]), pa.array([{"x": control}])):
        (shown,) = cell_texts(array, 40).to_pylist()
        assert shown.isprintable()
        (line,) = json_lines(pa.record_batch([array], ["a"])).to_pylist()
        assert line.rstrip("\n").isprintable()
        assert json.loads(line)["a"] == array.to_pylist()[0]


def test_long_values_are_cut():
    assert cell_texts(pa.array(["x" * 41, "y" * 40, None]), 40).to_pylist() == ["x" * 39 + "…", "y" * 40, "null"]


def test_a_type_without_a_text_is_refused(tmp_path):
    batch = pa.record_batch({"a": pa.array([1], pa.duration("s"))})
    for how in ("table", "csv", "jsonl"):
        with pytest.raises(UnsupportedFeature, match="duration"):
            write_rows(batch.schema, [batch], how, tmp_path / "x", None, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_a_limit_stops_reading(tmp_path):
    asked = []

    def batches():
        for number in range(5):
            asked.append(number)
            yield pa.record_batch({"a": [number] * 10})

    schema = pa.schema([("a", pa.int64())])
    write_rows(schema, batches(), "jsonl", tmp_path / "x", 15, lambda _: None)
    assert len((tmp_path / "x").read_text().splitlines()) == 15
    assert asked == [0, 1]
