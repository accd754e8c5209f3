"""Every index answers like a dictionary; bloom opens few files (spec 5.1, 6)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import (
    BLOOM_KEY,
    BLOOM_TYPE_KEY,
    MAX_KEY,
    MIN_KEY,
    BaseFileFooter,
    key_range,
)
from lakefmt._core.index import IndexKeys, open_index
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import UnknownSetting

R = InstantTime("20260101000000000")
#: Characters on both sides of every place where UTF-8 order and Java's UTF-16 order differ.
key_texts = st.text(alphabet="ab~é\ud7ff\ue000\uffff\U00010000\U0010ffff", min_size=1, max_size=3)


class Files:
    """Base files in memory that count what is opened."""

    def __init__(self, contents: list[tuple[str, list[str]]], *, blooms: bool = True, ranges: bool = True) -> None:
        self.contents = {f"f{n}": keys for n, (_, keys) in enumerate(contents)}
        self.slices = [
            FileSlice(
                PartitionPath(p),
                FileId(f"f{n}"),
                R,
                BaseFile(PartitionPath(p), f"f{n}", FileId(f"f{n}"), "0-0-0", R, 1),
            )
            for n, (p, _) in enumerate(contents)
        ]
        self.blooms, self.ranges = blooms, ranges
        self.opened: list[str] = []

    def footer(self, file: BaseFile) -> BaseFileFooter:
        keys = self.contents[file.name]
        low, high = key_range(pa.chunked_array([pa.array(keys, pa.string())]))
        entries = {} if low is None or high is None or not self.ranges else {MIN_KEY: low, MAX_KEY: high}
        bloom = self.bloom_filter(file)
        if bloom is not None:
            entries |= {BLOOM_KEY: bloom.encode(), BLOOM_TYPE_KEY: bloom.type_code}
        return BaseFileFooter(len(keys), pa.schema([]), entries)

    def bloom_filter(self, file: BaseFile) -> BloomFilter | None:
        if not self.blooms:
            return None
        bloom = BloomFilter.sized(100, 1e-9, 1000)
        bloom.add(pa.array(self.contents[file.name], pa.string()))
        return bloom

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        self.opened.append(file.name)
        return pa.chunked_array([pa.array(self.contents[file.name], pa.string())])


contents = st.lists(st.tuples(st.sampled_from(["p", "q"]), st.lists(key_texts, max_size=4)), max_size=5)
wanted_rows = st.lists(st.tuples(st.sampled_from(["p", "q", "r"]), key_texts), max_size=8)


@settings(deadline=None)
@given(contents, wanted_rows, st.sampled_from(["bloom", "simple"]), st.booleans(), st.booleans(), st.booleans())
def test_an_index_equals_a_dictionary(
    files: list[tuple[str, list[str]]],
    rows: list[tuple[str, str]],
    name: str,
    is_global: bool,
    blooms: bool,
    ranges: bool,
) -> None:
    reader = Files(files, blooms=blooms, ranges=ranges)
    wanted = IndexKeys(
        pa.array([k for _, k in rows], pa.string()), pa.array([p for p, _ in rows], pa.string()).dictionary_encode()
    )
    located = open_index(name, is_global=is_global).locate(wanted, reader.slices, reader)
    expected = [
        (row, number)
        for row, (partition, key) in enumerate(rows)
        for number, (place, keys) in enumerate(files)
        if key in keys and (is_global or place == partition)
    ]
    assert list(zip(located.rows.tolist(), located.slices.tolist(), strict=True)) == expected


def test_bloom_opens_only_files_that_can_hold_the_keys() -> None:
    reader = Files([("p", [f"k{n:02d}{i:02d}" for i in range(50)]) for n in range(30)])
    wanted = IndexKeys(pa.array(["k0700", "k0712", "k9999"]), pa.array(["p"] * 3).dictionary_encode())
    located = open_index("bloom").locate(wanted, reader.slices, reader)
    assert reader.opened == ["f7"]
    assert located.rows.tolist() == [0, 1]
    assert [step.files for step in located.steps] == [30, 1, 1, 1]


@given(st.lists(key_texts, min_size=1, max_size=6))
def test_key_ranges_are_in_javas_string_order(keys: list[str]) -> None:
    java = sorted(keys, key=lambda k: k.encode("utf-16-be", "surrogatepass"))
    assert key_range(pa.chunked_array([pa.array(keys, pa.string())])) == (java[0], java[-1])


def test_no_keys_have_no_range() -> None:
    assert key_range(pa.chunked_array([], pa.string())) == (None, None)


@given(
    st.sampled_from(["ab", "0123456789abcdef", "日本語東京キ値\uffee\uffff", "éüñçøåβλ\u07ff", "\U0001f600\U0010ffff"]),
    st.integers(0, 99),
    st.integers(2, 13),
)
def test_of_many_keys_of_one_length_the_range_is_that_of_all(letters: str, seed: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    heads = "".join(rng.choice(list(letters), length - 1))  # they differ in their last letters only, or everywhere
    texts = [(heads if seed % 2 else "") + "".join(tail) for tail in rng.choice(list(letters), (1_200, length))]
    texts[7] = texts[0]
    java = sorted(texts, key=lambda text: text.encode("utf-16-be"))
    keys = pa.concat_arrays([pa.array(["x"]), pa.array(texts, pa.string())])[1:]
    assert key_range(pa.chunked_array([keys])) == (java[0], java[-1])
    bare = pa.Array.from_buffers(
        pa.string(), len(texts), [pa.array([True, *[False] * 1_199]).buffers()[1], *pa.array(texts).buffers()[1:]]
    )
    assert bare.null_count == 1_199
    assert key_range(pa.chunked_array([bare])) == (texts[0], texts[0])


def test_unknown_indexes_are_refused() -> None:
    with pytest.raises(UnknownSetting, match="bloom, simple"):
        open_index("btree")


def test_row_numbers_are_int64() -> None:
    reader = Files([("p", ["a"])])
    wanted = IndexKeys(pa.array(["a"]), pa.array(["p"]).dictionary_encode())
    assert open_index("simple").locate(wanted, reader.slices, reader).rows.dtype == np.int64
