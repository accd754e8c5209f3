"""The order of ordering values is Java's, in every comparison that merging makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.config.merge_rule import Order
from lakefmt._core.filegroups.merge import choose_survivors
from lakefmt._core.filegroups.ordering import comparable, incoming_wins, ordering_columns
from lakefmt._core.filegroups.precombine import order_ranks
from lakefmt._core.values import MergeMode
from lakefmt.errors import UnsupportedFeature
from tests.compat.ordering_tables import KINDS, java_key
from tests.example_counts import examples

#: Values of which many are equal, and bits of NaN that Java takes for one.
NEGATIVE_NAN = float(np.array([-1], np.int64).view(np.float64)[0])
KIND_VALUES = {name: (kind, values) for name, (kind, values) in KINDS.items() if name not in ("float16", "uint64")}


@st.composite
def ordering_values(draw: st.DrawFn) -> tuple[pa.Array, list[Any]]:
    kind, pool = KIND_VALUES[draw(st.sampled_from(sorted(KIND_VALUES)))]
    values = st.one_of(st.none(), st.sampled_from(pool))
    if kind == pa.float64():
        values |= st.floats() | st.just(NEGATIVE_NAN)
    elif kind == pa.float32():
        values |= st.floats(width=32)
    elif kind in (pa.binary(), pa.string()):
        values |= st.binary(max_size=3) if kind == pa.binary() else st.text(max_size=3)
    rows = draw(st.lists(values, min_size=2, max_size=12))
    before = draw(st.integers(0, len(rows) - 2))
    return pa.array(rows, kind).slice(before), rows[before:]


@given(ordering_values())
def test_every_comparison_is_javas(drawn: tuple[pa.Array, list[Any]]) -> None:
    column, values = drawn
    ordered = sorted(map(java_key, values))
    distinct = [key for at, key in enumerate(ordered) if not at or ordered[at - 1] < key]
    ranks = [sum(key < java_key(value) for key in distinct) for value in values]
    assert order_ranks([column], len(column)).tolist() == ranks
    turned = column.take(pa.array(np.arange(len(column))[::-1].copy()))
    assert incoming_wins([column], [turned]).tolist() == [a >= b for a, b in zip(ranks, ranks[::-1], strict=True)]
    codes = np.arange(len(values)) % 2
    kept = choose_survivors(codes, [pa.chunked_array([column])], MergeMode.EVENT_TIME_ORDERING)
    of_keys = [max(range(key, len(values), 2), key=lambda at: (ranks[at], at)) for key in (0, 1)]
    assert (list(range(len(values))) if kept is None else kept.tolist()) == sorted(of_keys)


@settings(max_examples=examples(30))
@given(st.lists(st.floats() | st.sampled_from([0.0, -0.0, NEGATIVE_NAN]), min_size=1, max_size=9))
def test_the_reverse_order_of_floats_is_the_order_from_behind(values: list[float]) -> None:
    rows = pa.table({"ts": pa.array(values, pa.float64())})
    forth = order_ranks(ordering_columns(rows, Order(("ts",))), len(values))
    back = order_ranks(ordering_columns(rows, Order(("ts",), reverse=True)), len(values))
    assert (back == forth.max() - forth).all()


def test_chunks_and_dictionaries_compare_as_their_values() -> None:
    chunks = pa.chunked_array([pa.array([1.5, None]), pa.array([float("nan")])])
    assert comparable(chunks).equals(comparable(pa.array([1.5, None, float("nan")])))
    coded = pa.array(["b", "a", None]).dictionary_encode()
    assert comparable(coded).to_pylist() == ["b", "a", None]


def test_a_list_has_no_order() -> None:
    with pytest.raises(UnsupportedFeature, match="have no order"):
        comparable(pa.array([[1]]))
