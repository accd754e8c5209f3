"""The digest that decides whether a peer returned the right rows."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.data import make_base
from benchmarks.harness.digest import digest

_MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
_ROW = st.tuples(
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("0123456789abcdef"),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.booleans(),
    st.none() | _MOMENTS,
)
_SCHEMA = pa.schema(
    [("s", pa.string()), ("i", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()), ("t", pa.timestamp("us"))]
)


def _table(rows):
    return pa.Table.from_arrays(
        [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(_SCHEMA)], schema=_SCHEMA
    )


@given(st.lists(_ROW, max_size=12), st.randoms(use_true_random=False), st.integers(1, 5))
def test_neither_order_nor_chunks_nor_encoding_matter(rows, random, size):
    table = _table(rows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    other = _table(shuffled)
    chunked = pa.Table.from_batches(other.to_batches(max_chunksize=size), _SCHEMA)
    coded = other.set_column(0, "s", other["s"].dictionary_encode()).select(["t", "b", "f", "i", "s"])
    large = other.set_column(0, "s", other["s"].cast(pa.large_string()))
    assert digest(table) == digest(other) == digest(chunked) == digest(coded) == digest(large)


@given(st.lists(_ROW, min_size=1, max_size=6, unique=True), _ROW, st.data())
def test_another_bag_of_rows_is_another_digest(rows, row, data):
    at = data.draw(st.integers(0, len(rows) - 1))
    assert digest(_table(rows)) != digest(_table([*rows, row]))
    assert digest(_table(rows)) != digest(_table([*rows[:at], *rows[at + 1 :]]))
    if row not in rows:
        assert digest(_table(rows)) != digest(_table([*rows[:at], row, *rows[at + 1 :]]))


def test_a_byte_of_one_key_in_many():
    rows = make_base(3_000)
    wrong = rows["uuid"].to_pylist()
    wrong[1_234] = wrong[1_234][:-1] + ("0" if wrong[1_234][-1] != "0" else "1")
    assert digest(rows) != digest(rows.set_column(0, "uuid", pa.array(wrong)))


def test_values_that_change_columns_or_rows():
    rows = pa.table({"a": [1, 2], "b": [4, 3]})
    assert digest(rows) != digest(rows.rename_columns(["b", "a"]).select(["a", "b"]))
    assert digest(rows) != digest(pa.table({"a": [1, 2], "b": [3, 4]}))
    assert digest(pa.table({"a": [1]})) != digest(pa.table({"b": [1]}))
    assert digest(pa.table({"a": pa.array([None, 1])})) != digest(pa.table({"a": pa.array([0, 1])}))


def test_the_zone_of_a_moment_does_not_matter_and_units_meet_in_microseconds():
    at = pa.array([1_700_000_000_000_000], pa.timestamp("us"))
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.timestamp("ns", "UTC")):
        assert digest(pa.table({"t": at})) == digest(pa.table({"t": at.cast(kind)}))


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="list"):
        digest(pa.table({"l": [[1]]}))


def test_texts_that_come_by_either_road():
    alone = pa.table({"s": ["0123456789abcdef"]})
    together = pa.table({"s": ["0123456789abcdef", "x"]})
    only = together.filter(pc.equal(together["s"], "0123456789abcdef"))
    assert digest(alone) == digest(only)
    parts = [digest(alone), digest(pa.table({"s": ["x"]}))]
    total = sum(int(part.split(":")[1], 16) for part in parts) % 2**64
    assert digest(together) == f"2:{total:016x}"
