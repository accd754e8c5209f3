"""Laws of `lakefmt.testing.multiset`, against a plain oracle that counts Python values."""

import datetime as dt
import math
import struct
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hs

from lakefmt.errors import InvalidInputError, SchemaMismatch, UnsupportedFeature
from lakefmt.testing.multiset import multiset_difference, multiset_digest, type_signature

POINT = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
FEW_TEXTS = hs.sampled_from(["", "a", "b", "a\x00", "ä"])
FEW_INTS = hs.integers(-1, 2)
POINTS = hs.fixed_dictionaries(
    {"x": hs.none() | FEW_INTS, "tags": hs.none() | hs.lists(hs.none() | FEW_TEXTS, max_size=2)}
)
MAPS = hs.dictionaries(FEW_TEXTS, hs.none() | FEW_INTS, max_size=3).map(lambda d: list(d.items()))
VALUES = {
    pa.int32(): FEW_INTS,
    pa.int64(): FEW_INTS,
    pa.bool_(): hs.booleans(),
    pa.float64(): hs.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5]),
    pa.float32(): hs.sampled_from([0.0, -0.0, math.nan, 1.5]),
    pa.string(): FEW_TEXTS,
    pa.binary(): hs.sampled_from([b"", b"\x00", b"\x00\x00", b"a"]),
    pa.date32(): hs.sampled_from([dt.date(1969, 12, 31), dt.date(2026, 1, 1)]),
    pa.timestamp("us", "UTC"): hs.sampled_from(
        [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)]
    ),
    pa.timestamp("us"): hs.sampled_from([dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1)]),
    pa.decimal128(10, 2): hs.sampled_from([Decimal("1.10"), Decimal("-1.10")]),
    pa.list_(pa.int32()): hs.lists(hs.none() | FEW_INTS, max_size=2),
    pa.list_(POINT): hs.lists(hs.none() | POINTS, max_size=2),
    pa.map_(pa.string(), pa.int64()): MAPS,
    POINT: POINTS,
}


@hs.composite
def tables(draw, count=1, rows=6):
    """`count` tables of one schema and few different values, so that rows repeat."""
    types = draw(hs.lists(hs.sampled_from(list(VALUES)), min_size=1, max_size=3))
    return [
        pa.table(
            [pa.array(draw(hs.lists(hs.none() | VALUES[t], min_size=n, max_size=n)), t) for t in types],
            names="abc"[: len(types)],
        )
        for n in draw(hs.lists(hs.integers(0, rows), min_size=count, max_size=count))
    ]


def plain(value, type_):
    """The oracle's view of a value: hashable, equal exactly where the rules say so."""
    if value is None:
        return None
    if pa.types.is_floating(type_):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    if pa.types.is_map(type_):
        return frozenset(Counter((k, plain(v, type_.item_type)) for k, v in value).items())
    if pa.types.is_list(type_):
        return tuple(plain(v, type_.value_type) for v in value)
    if pa.types.is_struct(type_):
        return tuple(plain(value[f.name], f.type) for f in type_)
    return value


def counted(table):
    return Counter(tuple(plain(row[f.name], f.type) for f in table.schema) for row in table.to_pylist())


@given(tables(count=2))
def test_difference_is_what_counting_says(pair):
    left, right = pair
    found = multiset_difference(left, right)
    assert counted(found.left_only) == counted(left) - counted(right)
    assert counted(found.right_only) == counted(right) - counted(left)
    assert bool(found) == (counted(left) != counted(right))
    assert (multiset_digest(left) == multiset_digest(right)) == (counted(left) == counted(right))


@given(tables(), hs.randoms(use_true_random=False))
def test_order_chunks_and_slices_mean_nothing(one, random):
    (table,) = one
    order = list(range(table.num_rows))
    random.shuffle(order)
    shuffled = table.take(pa.array(order, pa.int64())).select(sorted(table.column_names, key=lambda _: random.random()))
    padded = pa.concat_tables([table, table, table]).combine_chunks().slice(table.num_rows, table.num_rows)
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    for other in (shuffled, padded, chunked):
        assert not multiset_difference(table, other)
        assert multiset_digest(table) == multiset_digest(other)


SAME = [
    (pa.array(["a", None, ""]), pa.array(["a", None, ""], pa.large_string())),
    (pa.array(["a", None, "a"]), pa.array(["a", None, "a"]).dictionary_encode()),
    (pa.array([b"ab", None], pa.binary(2)), pa.array([b"ab", None], pa.large_binary())),
    (pa.array([[1], None, []]), pa.array([[1], None, []], pa.large_list(pa.field("element", pa.int64(), nullable=False)))),
    (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.array([[1, 2], None])),
    (pa.array([1, None], pa.timestamp("us", "UTC")), pa.array([1, None], pa.timestamp("us", "+00:00"))),
    (pa.array([1], pa.timestamp("us", "UTC")), pa.array([1], pa.timestamp("us", "Europe/Paris"))),
    (pa.array([1000], pa.timestamp("us")), pa.array([1], pa.timestamp("ms"))),
    (pa.array([Decimal("1.5"), None], pa.decimal128(4, 1)), pa.array([Decimal("1.5"), None], pa.decimal256(4, 1))),
    (pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())), pa.array([[("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int64()))),
    (pa.array([np.nan]), pa.array(np.array([0xFFF8000000000001], np.uint64)).view(pa.float64())),
    (pa.array([{"a": None}, None], pa.struct([("a", pa.int8())])), pa.StructArray.from_arrays([pa.array([None, 7], pa.int8())], ["a"], mask=pa.array([False, True]))),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SAME, ids=[f"{a.type}-{b.type}" for a, b in SAME])
def test_one_value_kept_in_two_ways_is_one_value(left, right):
    left, right = pa.table({"v": left}), pa.table({"v": right})
    assert not multiset_difference(left, right)
    assert multiset_digest(left) == multiset_digest(right)


OTHER = [
    (pa.array([None], pa.string()), pa.array([""])),
    (pa.array([None], pa.list_(pa.int64())), pa.array([[]], pa.list_(pa.int64()))),
    (pa.array([None], POINT), pa.array([{"x": None, "tags": None}], POINT)),
    (pa.array([0.0]), pa.array([-0.0])),
    (pa.array([["a", "b"]]), pa.array([["ab"]])),
    (pa.array([["a", "b"]]), pa.array([["b", "a"]])),
    (pa.array([1, 1, 2]), pa.array([1, 2, 2])),
    (pa.array([1]), pa.array([1, 1])),
]


@pytest.mark.parametrize(("left", "right"), OTHER, ids=[f"{a.to_pylist()}-{b.to_pylist()}" for a, b in OTHER])
def test_different_rows_differ(left, right):
    left, right = pa.table({"v": left}), pa.table({"v": right})
    assert multiset_difference(left, right)
    assert multiset_digest(left) != multiset_digest(right)


def test_neighbouring_columns_do_not_run_together():
    left = pa.table({"a": ["x", "y"], "b": ["", "z"]})
    right = pa.table({"a": ["", "yz"], "b": ["x", ""]})
    assert multiset_difference(left, right).left_only.num_rows == 2
    assert multiset_digest(left) != multiset_digest(right)


def test_types_and_names_are_compared_before_rows():
    one = pa.table({"a": pa.array([1], pa.int32())})
    with pytest.raises(SchemaMismatch, match="a: int32 left, int64 right"):
        multiset_difference(one, pa.table({"a": [1]}))
    with pytest.raises(SchemaMismatch, match=r"only left: \['a'\], only right: \['b'\]"):
        multiset_difference(one, pa.table({"b": [1]}))
    assert multiset_digest(one) != multiset_digest(one.cast(pa.schema([("a", pa.int64())])))
    assert multiset_digest(one) != multiset_digest(one.rename_columns(["b"]))
    assert type_signature(pa.timestamp("us")) != type_signature(pa.timestamp("us", "UTC"))


def test_what_has_no_rule_is_refused():
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(UnsupportedFeature, match="union"):
        multiset_digest(pa.table({"u": union}))
    with pytest.raises(InvalidInputError, match="share a name"):
        multiset_digest(pa.table([[1], [2]], names=["a", "a"]))


def test_the_digest_stays_what_it_was():
    """Recorded digests must go on meaning the same rows."""
    table = pa.table({"k": [1, 2, None], "v": pa.array(["x", None, ""])})
    assert multiset_digest(table) == "ff197a3a75f94de09e44464fcad9c556259639a68585443dba02b6630098762d"
    assert multiset_digest(table.slice(0, 0)) != multiset_digest(table.slice(0, 0).drop_columns(["v"]))


def test_many_rows_over_several_batches():
    numbers = np.arange(150_000) % 70_000
    table = pa.table({"n": numbers, "s": pa.array(numbers).cast(pa.string())})
    changed = table.set_column(0, "n", pa.array(np.where(np.arange(150_000) == 149_999, -1, numbers)))
    found = multiset_difference(table, changed.slice(7))
    assert found.right_only["n"].to_pylist() == [-1]
    assert sorted(found.left_only["n"].to_pylist()) == sorted([*range(7), int(numbers[-1])])
