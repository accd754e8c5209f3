"""Hadoop's MurmurHash2 by columns equals that of docs/format.md for every shape of column."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats import murmur
from lakefmt._core.formats.murmur import HashChain, chained_hashes, key_blocks, murmur_hadoop, positions_of
from lakefmt.errors import InvalidInputError, InvalidKey

MASK = 0xFFFFFFFF
M = 0x5BD1E995


def reference_hash(key: bytes, seed: int) -> int:
    """Hash one key step by step (docs/format.md, Bloom filter hash)."""
    h = (seed ^ len(key)) & MASK
    full = len(key) // 4 * 4
    for i in range(0, full, 4):
        word = int.from_bytes(key[i : i + 4], "little") * M & MASK
        word = (word ^ word >> 24) * M & MASK
        h = h * M & MASK ^ word
    rest = len(key) - full
    for back in range(1, rest + 1):
        signed = key[-back] - 256 if key[-back] >= 128 else key[-back]
        h ^= signed << 8 * (back - 1) & MASK
    if rest:
        h = h * M & MASK
    h = (h ^ h >> 13) * M & MASK
    return h ^ h >> 15


def reference_positions(key: bytes, k: int, m: int) -> list[int]:
    """Chained hashes, each reduced as Java's ``Math.abs(hash % m)``."""
    out, h = [], 0
    for _ in range(k):
        h = reference_hash(key, h)
        signed = h - (1 << 32) if h >> 31 else h
        out.append(abs(signed) % m)
    return out


def small_blocks(keys: int):
    """Make sorting groups and blocks so small that a few keys cross their borders."""
    return mock.patch.multiple(murmur, MAX_BLOCK_KEYS=keys, MIN_BLOCK_KEYS=1, BLOCK_BYTES=64, SORT_KEYS=3 * keys)


VECTORS = [
    (b"a", 0x92685F5E, 0x5B2B9C66),
    (b"id1", 0x73464131, 0x47EA405C),
    (b"abc", 0x69D3CF87, 0x58F8C988),
    ("é".encode(), 0xE91C0273, 0x6E360118),
    ("naïve".encode(), 0x565FC5C2, 0xC262A517),
    ("日本語キー".encode(), 0x828727E3, 0x5B900A8C),
    (b"key-00000001", 0x46B77310, 0x9BC47FE9),
    (bytes.fromhex("7fc280c3bf"), 0xF930B0E4, 0x8D41FB0F),
]

ID1_POSITIONS = [
    773447, 542080, 1764904, 1323242, 47268, 530308, 875727, 923636, 2378683, 1538245, 848945, 1226597, 598004, 87881,
    1862756, 1182080, 1860126, 1201193, 203703, 406894, 2077564, 2457222, 290866, 2106853, 1188753, 2103575, 1425238,
    2155547, 1305109, 116850,
]  # fmt: skip

raw_keys = st.lists(st.binary(max_size=70), max_size=40)


@pytest.mark.parametrize(("key", "first", "second"), VECTORS)
def test_hash_vectors_of_the_specification(key, first, second):
    keys = pa.array([key], pa.binary())
    assert murmur_hadoop(keys, 0).tolist() == [first]
    assert murmur_hadoop(keys, first).tolist() == [second]
    assert (reference_hash(key, 0), reference_hash(key, first)) == (first, second)


def test_hash_vectors_together_keep_their_order():
    keys = pa.array([key for key, _, _ in VECTORS], pa.binary())
    assert murmur_hadoop(keys).tolist() == [first for _, first, _ in VECTORS]


def test_positions_of_the_specification():
    assert positions_of(chained_hashes(pa.array(["id1"]), 30), 2587966).T.tolist() == [ID1_POSITIONS]


@given(raw_keys, st.integers(0, MASK))
def test_raw_bytes_hash_as_the_reference(keys, seed):
    assert murmur_hadoop(pa.array(keys, pa.binary()), seed).tolist() == [reference_hash(key, seed) for key in keys]


@given(st.lists(st.text(max_size=70)), st.integers(1, 12), st.integers(1, 2**31 - 1))
def test_text_positions_are_those_of_the_reference(keys, k, m):
    expected = [reference_positions(key.encode(), k, m) for key in keys]
    assert positions_of(chained_hashes(pa.array(keys, pa.string()), k), m).T.tolist() == expected


@given(raw_keys, st.integers(1, 5), st.integers(0, 2))
def test_borders_of_blocks_and_sorting_groups_change_nothing(keys, size, pieces):
    cut = len(keys) * pieces // 2
    chunked = pa.chunked_array([keys[:cut], keys[cut:]], pa.large_binary())
    with small_blocks(size):
        hashes = murmur_hadoop(chunked, 7).tolist()
    assert hashes == [reference_hash(key, 7) for key in keys]


@given(st.integers(0, 9), st.integers(1, 40), st.integers(1, 4), st.randoms(use_true_random=False))
def test_keys_of_one_length(length, count, size, random):
    keys = [random.randbytes(length) for _ in range(count)]
    with small_blocks(size):
        hashes = murmur_hadoop(pa.array(keys, pa.binary())).tolist()
    assert hashes == [reference_hash(key, 0) for key in keys]


@given(raw_keys.filter(bool), st.data())
def test_taking_keys_from_a_running_chain_keeps_the_others_right(keys, data):
    flags = data.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
    with small_blocks(len(keys)):
        blocks = list(key_blocks(pa.array(keys, pa.large_binary())))
    for block in blocks:
        chain = HashChain(block)
        chain.advance()
        rows = np.arange(len(keys))[chain.block.rows]
        index = np.flatnonzero(np.array(flags)[rows])
        chain.keep(index)
        expected = [reference_hash(keys[row], reference_hash(keys[row], 0)) for row in rows[index]]
        assert chain.advance().tolist() == expected
        assert np.arange(len(keys))[chain.block.rows].tolist() == rows[index].tolist()


TEXTS = ["", "k", "日本語", "a longer key of more than twelve bytes", "k"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_every_text_type_sliced_or_not(kind):
    keys = pa.array(TEXTS).cast(kind)
    expected = [reference_hash(text.encode(), 0) for text in TEXTS]
    assert murmur_hadoop(keys).tolist() == expected
    assert murmur_hadoop(keys.slice(1, 3)).tolist() == expected[1:4]
    assert murmur_hadoop(keys.slice(2, 0)).tolist() == []


@pytest.mark.parametrize(("kind", "plain"), [(pa.string_view(), pa.string()), (pa.binary_view(), pa.binary())])
def test_views_hash_as_text_or_are_refused_by_name(kind, plain):
    """Old releases of pyarrow have the types but cannot convert them."""
    keys = pa.array(pa.array(TEXTS).cast(plain).to_pylist(), kind)
    try:
        hashes = murmur_hadoop(keys).tolist()
    except InvalidKey as refusal:
        assert str(kind) in str(refusal)  # noqa: PT017
    else:
        assert hashes == [reference_hash(text.encode(), 0) for text in TEXTS]


def test_dictionary_and_fixed_size_binary():
    assert murmur_hadoop(pa.array(["a", "b", "a"]).dictionary_encode()).tolist() == [
        reference_hash(key, 0) for key in (b"a", b"b", b"a")
    ]
    fixed = pa.array([b"abcde", b"vwxyz", b"\x80\xff\x00\x01\x02"], pa.binary(5))
    assert murmur_hadoop(fixed).tolist() == [reference_hash(key, 0) for key in fixed.to_pylist()]


def test_a_few_long_keys_among_short_ones():
    keys = [b"short", b"x" * 70_000, b"", b"y" * 9_001, b"z" * 70_001]
    assert murmur_hadoop(pa.array(keys, pa.binary())).tolist() == [reference_hash(key, 0) for key in keys]


@given(raw_keys, st.integers(1, 7), st.integers(1, 200), st.lists(st.integers(0, 40), max_size=9))
def test_joining_short_chunks_keeps_every_key_in_its_place(keys, join, size, cuts):
    bounds = sorted({0, len(keys), *(min(cut, len(keys)) for cut in cuts)})
    parts = [binary_slice(keys, a, b) for a, b in itertools.pairwise(bounds)]
    with mock.patch.multiple(murmur, JOIN_KEYS=join, JOIN_BYTES=size):
        arrays = murmur.key_arrays(pa.chunked_array(parts, pa.binary()))
    assert [key for array in arrays for key in array.to_pylist()] == keys
    rows = [len(array) for array in arrays]
    assert all(
        a + b > join or arrays[i].nbytes + arrays[i + 1].nbytes > size
        for i, (a, b) in enumerate(itertools.pairwise(rows))
    )


def binary_slice(keys, start, stop):
    return pa.array(keys, pa.binary())[start:stop]


def test_thousands_of_chunks_of_one_key():
    keys = pa.chunked_array([[f"key-{i}"] for i in range(3000)])
    assert len(murmur.key_arrays(keys)) == 1
    assert (murmur_hadoop(keys) == murmur_hadoop(keys.combine_chunks())).all()


def test_only_empty_keys():
    assert murmur_hadoop(pa.array(["", ""])).tolist() == [reference_hash(b"", 0)] * 2


@pytest.mark.parametrize("m", [1, 2, 3, 7, 8, 96, 863, 2587966, 2**16, 2**30 + 1, 2**31 - 2, 2**31 - 1])
def test_reduction_is_javas_at_the_edges_and_everywhere(m):
    edges = [0, 1, m - 1, m, m + 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - m, 2**32 - m - 1, 2**32 - 1]
    hashes = np.concatenate([np.array(edges, np.uint32), np.random.default_rng(m).integers(0, 2**32, 5000, np.uint32)])
    chain = HashChain(next(key_blocks(pa.array(["k"] * len(hashes)))))
    chain._hash[:] = hashes
    signed = hashes.astype(np.int64) - (hashes >> 31).astype(np.int64) * 2**32
    java = [abs(int(math.fmod(h, m))) for h in signed.tolist()]  # fmod is exact and truncates like Java
    assert chain.positions(m).tolist() == java


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (pa.array(["a", None]), "1 of 2 record keys are null"),
        (pa.chunked_array([["a"], [None, None]], pa.string()), "2 of 2"),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None])), "null"),
        (pa.array([1, 2]), "not int64"),
        (pa.array(["x" * ((1 << 20) + 1)]), "1,048,577 bytes"),
    ],
)
def test_keys_that_are_none(keys, message):
    with pytest.raises(InvalidKey, match=message):
        murmur_hadoop(keys)


@pytest.mark.parametrize(("k", "m"), [(0, 5), (1, 0), (1, 2**31), (-1, 1)])
def test_positions_in_impossible_filters(k, m):
    with pytest.raises(InvalidInputError, match="does not exist"):
        positions_of(chained_hashes(pa.array(["a"]), k), m)
