"""Bloom filters are byte for byte those of Java: specification, stored vectors, and a slow filter as the judge."""

from __future__ import annotations

import base64
import itertools
import json
import math
import pickle
import tracemalloc
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats import bloom_filter
from lakefmt._core.formats import bloom_filter as bloom_module
from lakefmt._core.formats.bloom_filter import (
    DYNAMIC,
    SIMPLE,
    BloomFilter,
    add_to_filters,
    are_in_text,
    decode_bloom_filter,
    filter_size,
)
from lakefmt._core.formats.murmur import chained_hashes
from lakefmt.errors import CorruptFile, InvalidInputError, InvalidKey, UnsupportedFeature

DATA = Path(__file__).parent.parent / "data" / "formats"
MASK = 0xFFFFFFFF


# ------------------------------------------------------------------------------------------- the slow filter


def slow_positions(key: bytes, k: int, m: int) -> list[int]:
    """Hash one key, one byte at a time (docs/format.md, Bloom filter hash)."""
    out, seed = [], 0
    for _ in range(k):
        h, full = (seed ^ len(key)) & MASK, len(key) // 4 * 4
        for i in range(0, full, 4):
            word = int.from_bytes(key[i : i + 4], "little") * 0x5BD1E995 & MASK
            h = (h * 0x5BD1E995 & MASK) ^ ((word ^ word >> 24) * 0x5BD1E995 & MASK)
        for place, byte in enumerate(reversed(key[full:])):
            h ^= (byte - 256 if byte > 127 else byte) << 8 * place & MASK
        if len(key) > full:
            h = h * 0x5BD1E995 & MASK
        h = (h ^ h >> 13) * 0x5BD1E995 & MASK
        seed = h = h ^ h >> 15
        out.append(min(h, 2**32 - h) % m)
    return out


class SlowFilter:
    """Row by row; None as `limit` is SIMPLE (docs/format.md, Bloom filter size; Bloom filter bytes)."""

    def __init__(self, n: int, p: float, limit: int | None) -> None:
        self.n, self.limit = n, limit
        self.m = math.ceil(n * (-math.log(p) / math.log(2) ** 2))
        self.k = math.ceil(math.log(2) * self.m / n)
        self.rows = [bytearray(-(-self.m // 8))]
        self.counter, self.full, self.turn = 0, False, 0

    def choose(self) -> int:
        if self.limit is None:
            return 0
        if self.full:
            self.turn += 1
            return (self.turn - 1) % len(self.rows)
        if self.counter >= self.n:
            if len(self.rows) * self.n >= self.limit:
                self.full = True
                return 0
            self.rows.append(bytearray(-(-self.m // 8)))
            self.counter = 0
        return len(self.rows) - 1

    def add(self, keys: list[bytes]) -> None:
        for key in keys:
            row = self.rows[self.choose()]
            self.counter += 1
            for i in slow_positions(key, self.k, self.m):
                row[i >> 3] |= 1 << (i & 7)

    def has(self, key: bytes) -> bool:
        places = slow_positions(key, self.k, self.m)
        return any(all(row[i >> 3] >> (i & 7) & 1 for i in places) for row in self.rows)

    def encode(self) -> str:
        def i32(number: int) -> bytes:
            return number.to_bytes(4, "big", signed=True)

        head = i32(-1) + i32(self.k) + b"\x01" + i32(self.m)
        body = head + bytes(self.rows[0])
        if self.limit is not None:
            counters = i32(self.n) + i32(self.counter) + i32(len(self.rows))
            body = head + counters + b"".join(head + bytes(row) for row in self.rows)
        return base64.b64encode(body).decode()

    def reread(self) -> None:
        """Forget what the bytes do not keep."""
        self.full, self.turn = False, 0
        self.limit = None if self.limit is None else 0


def binary(keys: list[bytes]) -> pa.Array:
    return pa.array(keys, pa.binary())


def make(n: int, p: float, limit: int | None) -> BloomFilter:
    return BloomFilter.simple(n, p) if limit is None else BloomFilter.sized(n, p, limit)


texts = st.text(max_size=23).map(str.encode)
keys_of = st.lists(st.one_of(texts, st.binary(max_size=70)), max_size=30)
shares = st.sampled_from([1e-9, 1e-3, 0.01, 0.3, 0.5, 0.9])
limits = st.one_of(st.none(), st.integers(1, 40))


# ------------------------------------------------------------------------------------------------------ laws


@given(st.integers(1, 20), shares, limits, st.lists(keys_of, max_size=4), st.integers(0, 4), keys_of)
def test_equals_the_slow_filter_also_after_rereading(n, p, limit, batches, reread_at, strangers):
    fast, slow = make(n, p, limit), SlowFilter(n, p, limit)
    for i, batch in enumerate(batches):
        if i == reread_at:
            fast = decode_bloom_filter(fast.encode(), fast.type_code)
            fast.add(pa.array([], pa.string()))  # encoded anew
            slow.reread()
        fast.add(binary(batch))
        slow.add(batch)
        assert fast.encode() == slow.encode()
    probes = [key for batch in batches for key in batch] + strangers
    assert fast.contains(binary(probes)).tolist() == [slow.has(key) for key in probes]
    assert fast.rows == len(slow.rows)


@given(st.integers(1, 6), st.integers(1, 20), st.lists(st.integers(0, 30), max_size=5))
def test_one_call_or_many_is_the_same(n, limit, cuts):
    keys = binary([b"key-%d" % i for i in range(30)])
    bounds = sorted({0, 30, *cuts})
    parts = [keys[a:b] for a, b in itertools.pairwise(bounds)]
    whole, chunked, single = (BloomFilter.sized(n, 0.01, limit) for _ in range(3))
    whole.add(keys)
    chunked.add(pa.chunked_array(parts, pa.binary()))
    for part in parts:
        single.add(part)
    assert whole == chunked == single
    assert whole.num_keys == 30


@given(
    st.one_of(st.none(), st.integers(1, 20)),
    st.lists(st.integers(0, 30), max_size=5),
    st.sampled_from([0, 1 << 9, 1 << 26]),
    st.sampled_from([0, 1 << 40]),
    st.sampled_from([1, 1 << 23]),
    st.sampled_from([None, 1, 50, 1 << 20]),
)
def test_pieces_are_the_same_as_one_call(limit, cuts, memory, worth, own_pages, sorted_together):
    keys = binary([b"key-%d" % i for i in range(30)])
    bounds = sorted({0, 30, *cuts})
    whole, pieces = make(6, 0.01, limit), make(6, 0.01, limit)
    before = binary([b"a", b"b"])
    whole.add(before)
    pieces.add(before)
    whole.add(keys)
    patched = {
        "_WORTH_UNPACKING": worth,
        "_OWN_PAGES_BYTES": own_pages,
        "_PACKED_TOGETHER_BYTES": 3,
        "_FEW_POSITIONS": 100,
    }
    with mock.patch.multiple(bloom_filter, _SORTED_TOGETHER=sorted_together, **patched):
        parts = (keys[a:b] for a, b in itertools.pairwise(bounds))
        pieces.add_pieces(parts, memory, in_order=sorted_together is not None)
    assert pieces == whole
    assert pieces.num_keys == whole.num_keys


def test_a_piece_that_is_refused_leaves_those_before_it():
    bloom, first = BloomFilter.sized(100, 0.01), BloomFilter.sized(100, 0.01)
    first.add(pa.array(["a"]))
    with pytest.raises(InvalidKey):
        bloom.add_pieces([pa.array(["a"]), pa.array([None], pa.string())], 1 << 20)
    assert bloom == first


@pytest.mark.parametrize(("memory", "unpacked"), [(1 << 30, True), (2 << 10, True), (1 << 10, False), (0, False)])
def test_bits_are_unpacked_within_the_memory_only(memory, unpacked):
    asked, bloom = [], BloomFilter.sized(100, 1e-4)
    with mock.patch.object(bloom_module, "zeroed", lambda size: asked.append(size) or np.zeros(size, np.uint8)):
        bloom.add_pieces([pa.array(["a"]), pa.array(["b"])], memory)
    assert asked == ([1920] if unpacked else [])


@given(st.integers(1, 9), st.integers(1, 60), keys_of)
def test_bits_are_the_same_whether_collected_in_bytes_or_set_in_place(n, limit, keys):
    packed, unpacked = BloomFilter.sized(n, 0.01, limit), BloomFilter.sized(n, 0.01, limit)
    with mock.patch.object(bloom_module, "_MAX_UNPACKED", 0):
        packed.add(binary(keys))
    with mock.patch.object(bloom_filter, "_WORTH_UNPACKING", 1 << 40):
        unpacked.add(binary(keys))
    assert packed == unpacked


@given(st.integers(1, 9), st.integers(1, 60), keys_of, keys_of, st.integers(1, 3))
def test_looking_at_few_rows_at_a_time_changes_no_answer(n, limit, keys, strangers, step):
    bloom = BloomFilter.sized(n, 0.3, limit)
    bloom.add(binary(keys))
    probes = binary(keys + strangers)
    expected = bloom.contains(probes).tolist()
    with mock.patch.object(bloom_module, "_MAX_TESTS", step):
        assert bloom.contains(probes).tolist() == expected
    assert all(expected[: len(keys)])


@given(st.integers(1, 20), shares, limits, keys_of, keys_of)
def test_bits_that_are_decoded_alone_give_the_same_answers(n, p, limit, keys, strangers):
    bloom = make(n, p, limit)
    bloom.add(binary(keys))
    asked, text = binary([*keys, *strangers]), bloom.encode().encode()

    def hashes_of(k):
        return chained_hashes(asked, k)

    assert are_in_text(text, bloom.type_code, hashes_of).tolist() == bloom.contains(asked).tolist()
    for damaged in (text[:-4], text[:8], text[:7], b"", b"A" * len(text), b"\xff" + text[1:]):
        assert are_in_text(damaged, bloom.type_code, hashes_of) is None
    assert are_in_text(text, "OTHER", hashes_of) is None


@given(st.integers(1, 30), shares, limits, keys_of)
def test_decoding_and_encoding_returns_the_text(n, p, limit, keys):
    bloom = make(n, p, limit)
    bloom.add(binary(keys))
    again = decode_bloom_filter(bloom.encode(), bloom.type_code)
    again.add(pa.array([], pa.string()))  # encoded anew
    assert again == bloom
    assert again.encode() == bloom.encode() == pickle.loads(pickle.dumps(bloom)).encode()
    assert again.num_keys == (None if limit is None else bloom.num_keys)


@given(st.integers(1, 30), shares, limits, keys_of, st.integers(1, 90))
def test_a_text_that_is_made_in_parts_is_that_of_all_bytes(n, p, limit, keys, together):
    bloom, slow = make(n, p, limit), SlowFilter(n, p, limit)
    bloom.add(binary(keys))
    slow.add(keys)
    with mock.patch.object(bloom_module, "_ENCODED_TOGETHER_BYTES", together):
        parts = list(bloom.text_parts())
    assert b"".join(parts).decode() == slow.encode()
    assert sum(map(len, parts)) == bloom.text_bytes
    again = decode_bloom_filter(slow.encode(), bloom.type_code)
    assert (b"".join(again.text_parts()).decode(), again.text_bytes) == (slow.encode(), bloom.text_bytes)


def test_decoded_simple_filter_takes_more_keys():
    whole, first = BloomFilter.simple(100, 1e-3), BloomFilter.simple(100, 1e-3)
    whole.add(pa.array(["a", "b", "c"]))
    first.add(pa.array(["a"]))
    again = decode_bloom_filter(first.encode())
    again.add(pa.array(["b", "c"]))
    assert again == whole
    assert (whole.num_keys, again.num_keys) == (3, None)


@pytest.mark.parametrize(("few_hashes", "k"), [(False, 7), (True, 3)])
def test_false_answers_stay_near_the_wanted_share(few_hashes, k):
    bloom = BloomFilter.sized(20_000, 0.01, few_hashes=few_hashes)
    assert bloom.k == k
    bloom.add(pa.array([f"here-{i}" for i in range(20_000)]))
    wrong = bloom.contains(pa.array([f"not-here-{i}" for i in range(50_000)])).sum()
    assert 300 < wrong < 750


def test_many_keys_of_every_length_are_found_again():
    rng = np.random.default_rng(3)
    ends = np.cumsum(np.concatenate([[0], rng.integers(0, 70, 50_000)])).astype(np.int32)
    data = rng.integers(0, 256, int(ends[-1]), dtype=np.uint8)
    keys = pa.Array.from_buffers(pa.binary(), 50_000, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    bloom, some = BloomFilter.sized(30_000, 1e-9, 60_000), SlowFilter(30_000, 1e-9, 60_000)
    bloom.add(keys)
    some.add(keys[:300].to_pylist())
    assert bloom.contains(keys).all()
    assert bloom.rows == 2
    row = np.frombuffer(some.rows[0], np.uint8)
    assert (bloom._bits[0] & row == row).all()


# --------------------------------------------------------------------------------------------------- vectors


def test_simple_vector_of_the_specification():
    bloom = BloomFilter.simple(10, 0.01)
    bloom.add(pa.array(["a", "日本", "é"]))
    assert (bloom.m, bloom.k, bloom.type_code) == (96, 7, SIMPLE)
    assert bloom.encode() == "/////wAAAAcBAAAAYKAgAEFgYERQhAKAGA=="
    bits = np.flatnonzero(np.unpackbits(bloom._bits[0], bitorder="little"))
    assert set(bits) == {66, 38, 46, 5, 91, 7, 62} | {60, 7, 54, 87, 92, 45, 30} | {13, 24, 50, 37, 73, 71, 30}


def test_dynamic_vector_of_the_specification():
    bloom = BloomFilter.sized(20, 1e-9, 100)
    bloom.add(pa.array([f"k{i}" for i in range(20)]))
    assert bloom.encode() == (
        "/////wAAAB4BAAADXwAAABQAAAAUAAAAAf////8AAAAeAQAAA19t00awIelYWmFsatSqjU0rNHqb4UkcDwxM3h5RSSQIzT06UKIgl14W0"
        "7ikCi74c1+ye2RdqlFIH+pqf7d61Kc7mdz9jvP1czuyLG0Ttd9QBLnTCRFLB6rC7pjW0bxq3O6qrlzuLGiwFpKBICk="
    )
    assert bloom.num_keys == 20


@pytest.mark.parametrize(
    ("n", "p", "m", "k"),
    [(60_000, 1e-9, 2_587_966, 30), (20, 1e-9, 863, 30), (10, 0.01, 96, 7), (1000, 1e-9, 43_133, 30)],
)
def test_sizes_of_the_specification(n, p, m, k):
    dynamic, simple = BloomFilter.sized(n, p), BloomFilter.simple(n, p)
    assert (dynamic.m, dynamic.k) == (simple.m, simple.k) == (m, k)


@given(st.integers(1, 1 << 22), st.floats(1e-15, 1e-3))
def test_few_hashes_have_the_same_rate_for_few_more_bits(n, p):
    (most, k), (more, few) = filter_size(n, p), filter_size(n, p, few_hashes=True)
    assert few == k // 2
    # n keys leave a bit unset with the chance exp(-few n / more).
    assert (1 - math.exp(-few * n / more)) ** few <= p * (1 + 1e-9)
    assert more - 1 <= most * 1.3


def test_default_filter_has_the_stored_length():
    text = BloomFilter.sized(60_000, 1e-9, 100_000).encode()
    assert (len(base64.b64decode(text)), len(text)) == (323_534, 431_380)


@pytest.mark.parametrize("case", json.loads((DATA / "bloom_footers.json").read_text("utf-8")))
def test_footers_of_files_that_spark_wrote(case):
    stored = decode_bloom_filter(case["text"].encode(), case["type_code"])
    keys = pa.array(case["keys"])
    assert stored.contains(keys).all()
    assert not stored.contains(pa.array([key + "?" for key in case["keys"]])).any()
    assert stored.encode() == case["text"]
    stored.add(pa.array([], pa.string()))  # encoded anew
    assert stored.encode() == case["text"]
    limit = None if case["type_code"] is None else 100_000
    rebuilt = make(case["num_entries"], case["fpp"], limit)
    rebuilt.add(keys)
    assert rebuilt.encode() == case["text"]


def test_filters_that_java_made_key_by_key():
    """Each case may have been re-read after some keys: what Java forgets then, is forgotten here."""
    cases = json.loads((DATA / "bloom_java.json").read_text("utf-8"))
    for case in cases:
        limit = None if case["type_code"] == SIMPLE else case["max_entries"]
        bloom, keys, cut = make(case["num_entries"], case["fpp"], limit), pa.array(case["keys"]), case["reread_after"]
        if cut is not None and cut < len(keys):
            bloom.add(keys[:cut])
            bloom, keys = decode_bloom_filter(bloom.encode(), case["type_code"]), keys[cut:]
        bloom.add(keys)
        assert bloom.encode() == case["text"], case
    assert {(case["type_code"], case["reread_after"] is None) for case in cases} == {
        (kind, reread) for kind in (SIMPLE, DYNAMIC) for reread in (True, False)
    }


# ------------------------------------------------------------------------------------------------- numbers


def test_numbers_of_a_growing_filter():
    bloom = BloomFilter.sized(10, 0.01, 25)
    assert (bloom.rows, bloom.num_keys, bloom.capacity) == (1, 0, 30)
    bloom.add(pa.array([str(i) for i in range(35)]))
    assert (bloom.rows, bloom.num_keys, bloom.capacity) == (3, 35, 30)
    assert repr(bloom) == "BloomFilter(DYNAMIC_V0, k=7, m=96, rows=3, num_keys=35)"
    again = decode_bloom_filter(bloom.encode(), DYNAMIC)
    assert (again.rows, again.num_keys, again.capacity) == (3, 35, 30)


def test_capacity_of_simple_filters():
    bloom = BloomFilter.simple(500, 1e-9)
    assert bloom.capacity == 500
    assert 0.99 * 500 < decode_bloom_filter(bloom.encode()).capacity <= 500


def test_filters_of_another_kind_or_content_differ():
    simple, dynamic = BloomFilter.simple(10, 0.01), BloomFilter.sized(10, 0.01)
    assert simple != dynamic
    assert simple != "text"
    other = BloomFilter.simple(10, 0.01)
    other.add(pa.array(["a"]))
    assert simple != other


@pytest.mark.parametrize("keys", [pa.array(["a", None]), pa.chunked_array([["a"], [None]], pa.string()), pa.array([1])])
def test_bad_keys_add_nothing(keys):
    bloom = BloomFilter.sized(10, 0.01)
    before = bloom.encode()
    with pytest.raises(InvalidKey):
        bloom.add(keys)
    with pytest.raises(InvalidKey):
        bloom.contains(keys)
    assert bloom.encode() == before


@pytest.mark.parametrize(
    ("n", "p", "limit"),
    [(0, 0.1, None), (-1, 0.1, 5), (1, 0.0, None), (1, 1.0, None), (1, math.nan, None), (2**31 - 1, 1e-9, None),
     (2**40, 0.1, None), (1, 0.1, 0), (1, 0.1, 2**31)],
)  # fmt: skip
def test_sizes_out_of_range(n, p, limit):
    with pytest.raises(InvalidInputError):
        BloomFilter.sized(n, p, limit)
    if limit is None:
        with pytest.raises(InvalidInputError):
            BloomFilter.simple(n, p)


def test_a_counter_never_passes_what_the_bytes_hold():
    raw = bytearray(base64.b64decode(BloomFilter.sized(1, 0.5).encode()))
    raw[17:21] = (2**31 - 2).to_bytes(4, "big")
    bloom = decode_bloom_filter(base64.b64encode(raw), DYNAMIC)
    bloom.add(pa.array(["a"]))
    with pytest.raises(InvalidInputError, match="counts up to"):
        bloom.add(pa.array(["b"]))


# ------------------------------------------------------------------------------------------- damaged bytes


def sample(type_code: str) -> bytes:
    bloom = BloomFilter.simple(10, 0.01) if type_code == SIMPLE else BloomFilter.sized(5, 0.01, 20)
    bloom.add(pa.array([f"k{i}" for i in range(12)]))
    return base64.b64decode(bloom.encode())


def decode_raw(raw: bytes, type_code: str) -> BloomFilter:
    return decode_bloom_filter(base64.b64encode(raw), type_code)


@pytest.mark.parametrize("type_code", [SIMPLE, DYNAMIC])
def test_every_truncation_and_every_surplus_is_found(type_code):
    raw = sample(type_code)
    for size in range(len(raw)):
        with pytest.raises(CorruptFile):
            decode_raw(raw[:size], type_code)
    with pytest.raises(CorruptFile):
        decode_raw(raw + b"\0", type_code)


@given(st.sampled_from([SIMPLE, DYNAMIC]), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 255)), max_size=4))
def test_damaged_bytes_are_an_error_or_a_filter(type_code, flips):
    raw = bytearray(sample(type_code))
    for place, mask in flips:
        raw[place % len(raw)] ^= mask
    try:
        bloom = decode_raw(bytes(raw), type_code)
    except (CorruptFile, UnsupportedFeature):
        return
    bloom.add(pa.array(["a", "b"]))
    assert bloom.contains(pa.array(["a", "b"])).all()


@given(st.one_of(st.text(max_size=80), st.binary(max_size=80)), st.sampled_from([None, SIMPLE, DYNAMIC]))
def test_any_text_is_an_error_or_a_filter(text, type_code):
    try:
        bloom = decode_bloom_filter(text, type_code)
    except (CorruptFile, UnsupportedFeature):
        return
    assert decode_bloom_filter(bloom.encode(), type_code) == bloom


@pytest.mark.parametrize(("type_code", "size", "unnoticed"), [(SIMPLE, 13, 3 + 8), (DYNAMIC, 38, 31 + 31)])
def test_each_bit_of_the_headers(type_code, size, unnoticed):
    """Unnoticed are only those of k up to 2048, and in a DYNAMIC filter those of the two counters but their signs."""
    raw = sample(type_code)
    filters = 0
    for bit in range(8 * size):
        damaged = bytearray(raw)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            filters += decode_raw(bytes(damaged), type_code).m > 0
        except (CorruptFile, UnsupportedFeature):
            continue
    assert filters == unnoticed


@pytest.mark.parametrize(
    ("type_code", "fields"),
    [
        (SIMPLE, (2**31 - 1, None, None, None, None)),
        (SIMPLE, (96, 2**31 - 1, None, None, None)),
        (DYNAMIC, (2**31 - 1, None, None, None, None)),
        (DYNAMIC, (96, None, None, None, 2**31 - 1)),
        (DYNAMIC, (1, None, None, None, 2**31 - 1)),
    ],
)
def test_sizes_are_checked_before_memory_is_taken(type_code, fields):
    raw = bytearray(sample(type_code))
    for at, value in zip((9, 5, 13, 17, 21), fields, strict=True):
        if value is not None:
            raw[at : at + 4] = value.to_bytes(4, "big")
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile):
            decode_raw(bytes(raw), type_code)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("n", "p", "limit"), [(60_000, 1e-9, None), (60_000, 1e-9, 60_000), (1, 0.5, 100_000)])
def test_decoding_takes_memory_like_the_text(n, p, limit):
    bloom = make(n, p, limit)
    bloom._bits = np.repeat(bloom._bits, 20_000 if n == 1 else 1, axis=0)
    text = bloom.encode()
    tracemalloc.start()
    try:
        decode_bloom_filter(text, bloom.type_code)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(text)


def test_bits_behind_the_last_one_are_forgotten():
    bloom = BloomFilter.simple(1, 0.5)
    raw = bytearray(base64.b64decode(bloom.encode()))
    assert bloom.m % 8
    raw[-1] |= 0x80
    assert decode_raw(bytes(raw), SIMPLE) == bloom


@pytest.mark.parametrize("text", ["not base64!", "AAA", b"\xff\xfe", "é", "/////w\n==", ""])
def test_texts_that_are_no_filters(text):
    with pytest.raises(CorruptFile):
        decode_bloom_filter(text)


def test_what_is_not_supported_says_so():
    raw = bytearray(sample(SIMPLE))
    raw[8] = 0
    with pytest.raises(UnsupportedFeature, match="Jenkins"):
        decode_raw(bytes(raw), SIMPLE)
    old = (7).to_bytes(4, "big") + raw[9:]
    with pytest.raises(UnsupportedFeature, match="Jenkins"):
        decode_raw(old, SIMPLE)
    with pytest.raises(UnsupportedFeature, match="DYNAMIC_V1"):
        decode_bloom_filter("", "DYNAMIC_V1")


def test_a_row_with_another_header_is_found():
    raw = bytearray(sample(DYNAMIC))
    raw[25 + 7] ^= 1
    with pytest.raises(CorruptFile, match="repeat"):
        decode_raw(bytes(raw), DYNAMIC)


def test_the_text_of_a_filter_is_stored_on_until_keys_come() -> None:
    bloom = BloomFilter.sized(100, 1e-9)
    bloom.add(pa.array(["a"]))
    text = bloom.encode()
    again = decode_bloom_filter(text, DYNAMIC)
    assert again.encode() is text
    again.add(pa.array(["b"]))
    bloom.add(pa.array(["b"]))
    assert again.encode() == bloom.encode() != text
    two = [decode_bloom_filter(text, DYNAMIC), decode_bloom_filter(text, DYNAMIC)]
    add_to_filters(two, [pa.array(["b"]), pa.array([], pa.string())])
    assert [each.encode() for each in two] == [bloom.encode(), text]
