"""NumPy arrays as Arrow arrays, and sets of row numbers: as PyArrow's and NumPy's own functions, which import more."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lakefmt._core.arrays import distinct, from_numpy, other_rows

KINDS = st.sampled_from([np.bool_, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64])


@given(hnp.arrays(KINDS, st.integers(0, 70)), st.data())
def test_an_arrow_array_of_a_numpy_array_is_pyarrows(values: np.ndarray, data: st.DataObject) -> None:
    step = data.draw(st.sampled_from([1, 2, -1]))
    values = values[data.draw(st.integers(0, 3)) :: step]  # parts, and with other rows between them
    made = from_numpy(values)
    made.validate(full=True)
    assert made.type == pa.array(values).type
    assert made.to_numpy(zero_copy_only=False).tobytes() == values.tobytes(), "NaN and the sign of zero, too"


@given(hnp.arrays(KINDS, st.integers(0, 70)), st.data())
def test_nulls_are_where_the_mask_says(values: np.ndarray, data: st.DataObject) -> None:
    valid = data.draw(hnp.arrays(np.bool_, len(values)))
    made = from_numpy(values, valid)
    assert made.is_valid().to_pylist() == valid.tolist()
    assert made.null_count == np.count_nonzero(~valid)
    assert made.drop_null().to_numpy(zero_copy_only=False).tobytes() == values[valid].tobytes()


def test_numbers_are_not_copied() -> None:
    numbers = np.arange(1000)
    assert from_numpy(numbers).buffers()[1].address == numbers.ctypes.data


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64])
@given(st.data())
def test_distinct_numbers_are_those_of_numpy(kind: type, data: st.DataObject) -> None:
    numbers = data.draw(hnp.arrays(kind, st.integers(0, 40), elements=st.integers(0, 9)))
    before = numbers.copy()
    assert distinct(numbers).tolist() == np.unique(numbers).tolist()
    assert distinct(numbers).dtype == kind
    assert (numbers == before).all()


@given(st.integers(0, 30), st.data())
def test_other_rows_are_the_difference_of_numpy(count: int, data: st.DataObject) -> None:
    rows = data.draw(
        hnp.arrays(np.int64, st.integers(0, 40 if count else 0), elements=st.integers(0, max(0, count - 1)))
    )
    assert other_rows(count, rows).tolist() == np.setdiff1d(np.arange(count), rows).tolist()
