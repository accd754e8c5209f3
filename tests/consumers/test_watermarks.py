"""The rule of watermarks in commits: they never fall, and a commit without one inherits."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.timeline.consumers import (
    batch_watermark,
    check_watermark,
    event_time_maximum,
    newest_watermark,
    next_watermark,
)
from lakefmt.errors import InvalidInputError

MARKS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(MARKS))
def test_ap_12_watermarks_of_commits_never_fall(given_marks: list[int | None]) -> None:
    newest = None
    for mark in given_marks:
        now = next_watermark(mark, newest)
        assert newest is None or (now is not None and now >= newest)
        assert (now is None) == (mark is None and newest is None)
        newest = now
    assert newest == max((mark for mark in given_marks if mark is not None), default=None)


@given(st.lists(MARKS))
def test_ap_12_commits_of_other_engines_are_passed_over(marks: list[int | None]) -> None:
    extras = [{} if mark is None else {"lakefmt.watermark": str(mark)} for mark in marks]
    assert newest_watermark(extras) == next((mark for mark in marks if mark is not None), None)


@pytest.mark.parametrize("value", [True, 1.5, "7", None, 1 << 63])
def test_ap_12_only_whole_milliseconds_are_watermarks(value: object) -> None:
    with pytest.raises(InvalidInputError, match="milliseconds since 1970"):
        check_watermark(value)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), None]), 2_000),
        (pa.array([5, 3], pa.timestamp("s")), 5_000),
        (pa.array([1_999_999], pa.timestamp("ns")), 1),
        (pa.array([-1], pa.timestamp("us")), -1),
        (pa.array([date(1970, 1, 3)]), 172_800_000),
        (pa.array([86_400_000], pa.date64()), 86_400_000),
        (pa.array([None], pa.int64()), None),
        (pa.chunked_array([[4], [2]]), 4),
    ],
)
def test_ap_11_the_largest_event_time_of_a_batch(column: pa.Array, expected: int | None) -> None:
    assert event_time_maximum(column) == expected


def test_ap_11_a_batch_promises_its_largest_event_time_less_the_delay() -> None:
    assert batch_watermark(10_000, 5_000) == 5_000
    assert batch_watermark(-(1 << 63), 1) == -(1 << 63)
    with pytest.raises(InvalidInputError, match="'note'"):
        event_time_maximum(pa.array(["now"]), "note")
