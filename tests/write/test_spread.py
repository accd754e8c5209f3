"""A window's rows by partition: each row once, in its order, whatever the chunks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt.values import RECORD_KEY
from lakefmt.write import bulk
from lakefmt.write.hands import Hands
from lakefmt.write.incoming import KeyedBatch


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=6),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([1, 4, 64]),
)
def test_every_row_goes_to_its_partition_once_and_in_order(
    chunks: list[list[int]], keyed: bool, threads: int, at_once: int
) -> None:
    codes = np.array([code for chunk in chunks for code in chunk], np.int32)
    numbers = iter(range(len(codes)))
    rows = pa.chunked_array([pa.array([next(numbers) for _ in chunk], pa.int64()) for chunk in chunks], pa.int64())
    names = pa.array([f"p{code}" for code in range(6)])
    keys = pa.array([f"k{row}" for row in range(len(codes))], pa.string()) if keyed else None
    batch = KeyedBatch(pa.table({"row": rows}), keys, pa.DictionaryArray.from_arrays(pa.array(codes), names))
    with pytest.MonkeyPatch.context() as patch, Hands(threads) as hands:
        patch.setattr(bulk, "_CHUNK_ROWS", at_once)
        found = [part for group in bulk._Spread(batch, hands).groups() for part in group]
    assert [name for name, _ in found] == [f"p{code}" for code in np.unique(codes)]
    for name, table in found:
        wanted = np.flatnonzero(codes == int(name[1:])).tolist()
        assert table["row"].to_pylist() == wanted
        if keyed:
            assert table[RECORD_KEY].to_pylist() == [f"k{row}" for row in wanted]


def test_a_window_is_copied_a_part_at_a_time() -> None:
    codes = pa.array(np.arange(600, dtype=np.int32) % 30)
    names = pa.array([f"p{code}" for code in range(30)])
    batch = KeyedBatch(pa.table({"row": range(600)}), None, pa.DictionaryArray.from_arrays(codes, names))
    with Hands(2) as hands:
        sizes = [sum(table.num_rows for _, table in group) for group in bulk._Spread(batch, hands).groups()]
    assert len(sizes) == 8
    assert max(sizes) <= 80
