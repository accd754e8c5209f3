"""Sort keys compare as their rows do, and curves go where independent constructions of them go."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hilbertcurve.hilbertcurve import HilbertCurve
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.arguments import parse_member
from lakefmt._core.sorting import (
    Layout,
    RowOrder,
    check_order,
    column_scale,
    hilbert_places,
    ordered_bytes,
    ordered_numbers,
    sort_keys,
    zorder_places,
)
from lakefmt.errors import InvalidInputError, UnknownSetting

TEXTS = st.text("ab\x00é\uffee😀", max_size=10)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats()),
    "text": (pa.string(), TEXTS),
    "large_text": (pa.large_string(), TEXTS),
    "bytes": (pa.binary(), st.binary(max_size=10)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1))),
    "decimal": (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2).map(Decimal)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
}


def rank(value: Any) -> tuple[int, Any]:
    """Where a value stands: nulls first, NaN last, texts by their bytes."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value.encode() if isinstance(value, str) else value)


@st.composite
def columns(draw: st.DrawFn) -> pa.ChunkedArray:
    kind, values = COLUMNS[draw(st.sampled_from(list(COLUMNS)))]
    found = draw(st.lists(st.none() | values, min_size=1, max_size=12))
    cut = draw(st.integers(0, len(found)))
    if pa.types.is_dictionary(kind):
        return pa.chunked_array([pa.array(found, pa.string()).dictionary_encode()])
    return pa.chunked_array([pa.array(found[:cut], kind), pa.array(found[cut:], kind)], kind)


@given(columns())
def test_bytes_compare_as_the_values(column: pa.ChunkedArray) -> None:
    values, made = column.to_pylist(), ordered_bytes(column).to_pylist()
    for (one, low), (other, high) in itertools.combinations(zip(values, made, strict=True), 2):
        assert (low < high, low == high) == (rank(one) < rank(other), rank(one) == rank(other)), (one, other)
        assert low == high or not high.startswith(low), "a longer key would compare by what follows"


@given(columns(), st.booleans())
def test_numbers_keep_the_order(column: pa.ChunkedArray, scaled: bool) -> None:
    values = column.to_pylist()
    scale = column_scale(column.slice(0, max(1, len(values) // 2))) if scaled else None
    numbers = ordered_numbers(column, scale).tolist()
    for (one, low), (other, high) in itertools.combinations(zip(values, numbers, strict=True), 2):
        if rank(one) < rank(other):
            assert low <= high, (one, other)
        if rank(one) == rank(other):
            assert low == high, (one, other)


@given(st.lists(st.tuples(st.none() | TEXTS, st.none() | st.floats(), st.integers(-5, 5)), max_size=20))
def test_linear_keys_sort_rows_column_by_column(rows: list[tuple[Any, ...]]) -> None:
    table = pa.table(
        {
            "t": pa.array([r[0] for r in rows], pa.string()),
            "f": pa.array([r[1] for r in rows], pa.float64()),
            "n": pa.array([r[2] for r in rows], pa.int32()),
        }
    )
    order = pc.sort_indices(sort_keys(table, RowOrder(("t", "f", "n")))).to_pylist()
    found = [tuple(rank(value) for value in rows[n]) for n in order]
    assert found == sorted(found)


# ------------------------------------------------------------------------------------------------------------ curves


def place_of(row: np.ndarray, bits: int) -> int:
    return int.from_bytes(row.tobytes(), "big") >> (8 * len(row) - bits)


def grid(dimensions: int, bits: int) -> np.ndarray:
    return np.array(list(np.ndindex(*[1 << bits] * dimensions)), np.uint64)


def interleaved(point: tuple[int, ...], bits: int) -> int:
    """The z-order value by its definition, bit by bit."""
    return int("".join(str(axis >> bit & 1) for bit in reversed(range(bits)) for axis in point), 2)


def hilbert_by_rotation(x: int, y: int, bits: int) -> int:
    """The Hilbert index of two dimensions by turning quadrants: another construction than the one that is tested."""
    distance, side = 0, 1 << (bits - 1)
    while side:
        right, upper = int(x & side > 0), int(y & side > 0)
        distance += side * side * ((3 * right) ^ upper)
        if not upper:
            if right:
                x, y = (1 << bits) - 1 - x, (1 << bits) - 1 - y
            x, y = y, x
        side >>= 1
    return distance


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 4), (2, 1), (2, 3), (3, 2), (4, 2)])
def test_zorder_is_the_bits_in_turn(dimensions: int, bits: int) -> None:
    points = grid(dimensions, bits)
    places = zorder_places([points[:, n] for n in range(dimensions)], bits)
    found = [place_of(row, dimensions * bits) for row in places]
    assert found == [interleaved(tuple(map(int, point)), bits) for point in points]


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5])
def test_hilbert_of_two_dimensions_is_that_of_turned_quadrants(bits: int) -> None:
    points = grid(2, bits)
    found = [place_of(row, 2 * bits) for row in hilbert_places([points[:, 0], points[:, 1]], bits)]
    # The first step of a curve goes along one axis or the other; which one alternates with its depth.
    expected = [hilbert_by_rotation(int(x), int(y), bits) for x, y in points]
    mirrored = [hilbert_by_rotation(int(y), int(x), bits) for x, y in points]
    assert found in (expected, mirrored)


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 1), (2, 5), (3, 3), (4, 2), (5, 2), (6, 1)])
def test_hilbert_is_that_of_the_library(dimensions: int, bits: int) -> None:
    points = grid(dimensions, bits)
    found = [place_of(row, dimensions * bits) for row in hilbert_places(list(points.T), bits)]
    expected = [int(place) for place in HilbertCurve(bits, dimensions).distances_from_points(points.astype(int))]
    assert found == expected
    # Another order of the axes is another curve: the comparison can fail.
    assert [place_of(row, dimensions * bits) for row in hilbert_places(list(points.T[::-1]), bits)] != expected


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 4), (3, 3), (4, 2), (5, 1)])
def test_hilbert_visits_every_point_once_and_never_jumps(dimensions: int, bits: int) -> None:
    points = grid(dimensions, bits)
    places = [place_of(row, dimensions * bits) for row in hilbert_places(list(points.T), bits)]
    assert sorted(places) == list(range(len(points)))
    steps = np.abs(np.diff(points[np.argsort(places)].astype(np.int64), axis=0)).sum(axis=1)
    assert (steps == 1).all()


def test_the_known_curve_of_three_dimensions() -> None:
    """A curve of one bit is Gray's code."""
    cube = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1), (1, 0, 0)]
    axes = np.array(cube, np.uint64).T
    assert [place_of(row, 3) for row in hilbert_places(list(axes), 1)] == list(range(8))


def test_a_curve_that_swaps_two_points_is_seen() -> None:
    points = grid(2, 2)
    places = [place_of(row, 4) for row in hilbert_places(list(points.T), 2)]
    places[3], places[9] = places[9], places[3]
    steps = np.abs(np.diff(points[np.argsort(places)].astype(np.int64), axis=0)).sum(axis=1)
    assert not (steps == 1).all()


@pytest.mark.parametrize("layout", [Layout.ZORDER, Layout.HILBERT])
def test_both_columns_count_whatever_their_scale(layout: Layout) -> None:
    """A quarter of each column is in few of the files, though one is a text with a long prefix and one a small number."""
    generator = np.random.default_rng(7)
    big, small = generator.integers(0, 10**12, 4096), generator.integers(0, 16, 4096)
    table = pa.table({"t": [f"customer-{n:013d}" for n in big], "n": pa.array(small, pa.int16())})
    scales = {name: column_scale(table.column(name)) for name in table.column_names}
    ordered = table.take(pc.sort_indices(sort_keys(table, RowOrder(("t", "n"), layout), scales)))
    files = [ordered.slice(start, 64) for start in range(0, 4096, 64)]

    def touched(column: str, low: Any, high: Any) -> int:
        ends = [pc.min_max(file.column(column)) for file in files]
        return sum(low <= each["max"].as_py() and each["min"].as_py() <= high for each in ends)

    assert touched("n", 0, 3) <= 24
    assert touched("t", "customer-0000000000000", "customer-0250000000000") <= 24


# --------------------------------------------------------------------------------------------------------- arguments


def test_what_has_no_order_is_refused() -> None:
    schema = pa.schema(
        [("id", pa.string()), ("tags", pa.list_(pa.string())), ("at", pa.struct([("city", pa.string())]))]
    )
    check_order(RowOrder(("id", "at.city")), schema)
    for columns_, message in (
        (("id", "id"), "twice"),
        (("gone",), "no such column"),
        (("tags",), "single values"),
        (("at",), "single values"),
        (("at.street",), "no such column"),
        (("id.city",), "no struct"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            check_order(RowOrder(columns_), schema)
    with pytest.raises(UnknownSetting, match="linear, zorder, hilbert"):
        parse_member(Layout, "peano", "order")
