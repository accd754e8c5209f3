"""What a file's keys are narrowed down to before they are compared: no key that is looked for may be lost."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.index.lookup import _stored_flags_and_rows, prefilter_rows

texts = st.text(alphabet="abcß日😀", max_size=14)


@given(
    st.lists(texts, min_size=8, max_size=60),
    st.lists(texts, max_size=3),
    st.integers(0, 8),
    st.sampled_from(["", "longer-than-a-word-", "id-00000"]),
    st.data(),
)
def test_every_key_that_is_looked_for_is_left(stored, others, cut, lead, data):
    stored, others = [lead + key for key in stored], [lead + key for key in others]
    wanted = pa.array([*data.draw(st.lists(st.sampled_from(stored), max_size=5)), *others], pa.string())
    whole = pa.array(["before", *stored], pa.string())[1:]
    chunks = pa.chunked_array([whole[:cut], pa.array([], pa.string()), whole[cut:]])
    rows = prefilter_rows(wanted, chunks)
    if rows is not None:
        assert set(rows.tolist()) >= {n for n, key in enumerate(stored) if key in set(wanted.to_pylist())}


@pytest.mark.parametrize("made", ["{:012}", "{:012}-{:04}", "{}", "k{:09}é"])
def test_few_others_are_left_and_places_are_the_same(made, monkeypatch):
    stored = pa.chunked_array([[made.format(n, n % 7) for n in range(part, 10_000, 2)] for part in range(2)])
    wanted = pa.array([made.format(n, n % 7) for n in range(0, 20_000, 97)])
    rows = prefilter_rows(wanted, stored)
    if made == "{}":  # keys that are shorter than a word are not told apart
        assert rows is None
    else:
        assert 104 <= len(rows) <= 1000
    numbers = pc.add(pa.array(range(10_000)), 5).to_numpy()
    found = _stored_flags_and_rows(wanted, stored, numbers)
    monkeypatch.setattr("lakefmt._core.index.lookup.prefilter_rows", lambda *_: None)
    for mine, theirs in zip(found, _stored_flags_and_rows(wanted, stored, numbers), strict=True):
        assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("wanted", "stored"),
    [
        (pa.array([], pa.string()), pa.chunked_array([["long enough"] * 20])),
        (pa.array(["long enough"]), pa.chunked_array([["long enough"] * 7])),
        (pa.array(["long enough", None]), pa.chunked_array([["long enough"] * 20])),
        (pa.array(["long enough"]), pa.chunked_array([["long enough"] * 20, [None]])),
        (pa.array(["long enough"]), pa.chunked_array([["long enough"] * 20]).cast(pa.large_string())),
    ],
)
def test_where_it_does_not_pay_or_cannot_be_told_nothing_is_left_out(wanted, stored):
    assert prefilter_rows(wanted, stored) is None


def test_few_stored_keys_are_compared_at_once(monkeypatch):
    def refused(*_: object) -> None:
        raise AssertionError("the calls take longer than the keys")

    monkeypatch.setattr("lakefmt._core.index.lookup.prefilter_rows", refused)
    stored = pa.chunked_array([[f"key-{n:06}" for n in range(1000)]])
    flags, places = _stored_flags_and_rows(
        pa.array(["key-000007", "key-001000"]), stored, pc.add(pa.array(range(1000)), 5).to_numpy()
    )
    assert (flags.tolist(), places.tolist()) == ([True, False], [12, -1])
