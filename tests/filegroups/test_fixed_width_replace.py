"""Values replaced by one store: what a list of Python objects would hold, or left to Arrow."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.arrays import replaced_items

MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda moment: moment.replace(tzinfo=datetime.UTC)),
    pa.decimal128(30, 2): st.decimals(-(10**20), 10**20, places=2, allow_nan=False),
    pa.string(): st.sampled_from(["abc", "déf", "x-z"]),
    pa.binary(): st.binary(min_size=4, max_size=4),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int8()): st.lists(st.integers(0, 3), max_size=2),
    pa.binary(3): st.binary(min_size=3, max_size=3),
}
#: What one store replaces when nothing is null; texts of one length among them.
PLAIN = [kind for kind in VALUES if kind not in (pa.bool_(), pa.list_(pa.int8()), pa.binary(3), pa.string())]


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
@given(data=st.data())
def test_as_a_list_replaces(kind: pa.DataType, data: st.DataObject) -> None:
    values = VALUES[kind] if data.draw(st.booleans()) else st.none() | VALUES[kind]
    before = data.draw(st.integers(0, 2))
    old = pa.array(data.draw(st.lists(values, min_size=before, max_size=9)), kind).slice(before)
    rows = data.draw(st.lists(st.integers(0, max(0, len(old) - 1)), max_size=len(old), unique=True).map(sorted))
    new = pa.array(data.draw(st.lists(values, min_size=len(rows) + 1, max_size=len(rows) + 1)), kind).slice(1)
    at = np.array(rows, np.int64)
    found = replaced_items(old, at, new)
    nulls = old.null_count + new.null_count
    if found is None:
        assert nulls or not len(old) or kind not in PLAIN
        return
    found.validate(full=True)
    assert not nulls
    assert found.type == kind
    texts = old.to_pylist()
    for row, value in zip(rows, new.to_pylist(), strict=True):
        texts[row] = value
    assert found.equals(pa.array(texts, kind)) or (
        pa.types.is_floating(kind) and str(found) == str(pa.array(texts, kind))
    )


def test_texts_of_two_lengths_and_other_types_are_left() -> None:
    old, at = pa.array(["ab", "cd"]), np.array([0])
    assert replaced_items(old, at, pa.array(["abc"])) is None
    assert replaced_items(pa.array(["ab", "c"]), at, pa.array(["xy"])) is None
    assert replaced_items(pa.array(["", ""]), at, pa.array([""])) is None
    assert replaced_items(pa.array([1], pa.int64()), at, pa.array([1], pa.int32())) is None
    assert replaced_items(pa.array([decimal.Decimal(1)]), at, pa.array([None], pa.decimal128(1))) is None
