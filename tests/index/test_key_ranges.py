"""Key ranges hold in either order of texts that a footer's bounds may come from (spec 5.1)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.index.lookup import KeyRanges

#: Characters on both sides of every place where UTF-8 order and Java's UTF-16 order differ.
texts = st.text(alphabet="ab\ud7ff\ue000\uffff\U00010000\U0010ffff", max_size=3)


def utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


@given(st.lists(texts, min_size=1, max_size=8), texts, texts, st.data())
def test_inside_is_inside_by_either_order(keys: list[str], low: str, high: str, data: st.DataObject) -> None:
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(keys) - 1)))), np.int64)
    found = KeyRanges(pa.array(keys, pa.string()), [rows]).inside(rows, low, high)
    expected = [
        n
        for n in rows
        if utf16(low) <= utf16(keys[n]) <= utf16(high) or low.encode() <= keys[n].encode() <= high.encode()
    ]
    assert sorted(found.tolist()) == expected


@given(st.lists(texts, min_size=1, max_size=6), st.sampled_from([utf16, str.encode]))
def test_no_stored_key_is_left_out(stored: list[str], order: object) -> None:
    ends = sorted(stored, key=order)  # type: ignore[call-overload]
    rows = np.arange(len(stored))
    found = KeyRanges(pa.array(stored, pa.string()), [rows]).inside(rows, ends[0], ends[-1])
    assert sorted(found.tolist()) == rows.tolist()


def test_each_group_of_rows_keeps_to_itself() -> None:
    odd, even = np.array([1, 3]), np.array([0, 2])
    ranges = KeyRanges(pa.array(["a", "b", "c", "d"]), [odd, even, odd])
    assert ranges.inside(odd, "a", "z").tolist() == [1, 3]
    assert ranges.inside(even, "b", "z").tolist() == [2]
    assert ranges.inside(even, "x", "a").tolist() == []
