"""Blocks of which few values are distinct are kept by look-ups, and are neither read nor decompressed again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakefmt._core.formats.hfile_container import HFileOptions, HFileReader, encode_hfile


def opened(values: int, block_bytes: int = 16_384) -> tuple[HFileReader, list[int]]:
    """A file of 4,400 records with so many distinct values, and the offsets that are read."""
    keys = pa.array([f"key-{number:05}".encode() for number in range(4_400)])
    texts = pa.array([f"value-{number % values}".encode() for number in range(4_400)])
    data = encode_hfile(keys, texts, HFileOptions(block_bytes=block_bytes))
    reads: list[int] = []

    def read_at(at: int, size: int) -> bytes:
        reads.append(at)
        return data[at : at + size]

    reader = HFileReader(read_at, len(data), "f.hfile")
    reads.clear()
    return reader, reads


@pytest.mark.parametrize("block_bytes", [16_384, 1 << 20])
def test_a_second_look_up_reads_nothing_and_finds_the_same(block_bytes: int) -> None:
    reader, reads = opened(3, block_bytes)
    rng = np.random.default_rng(1)
    asked = pa.array([f"key-{number:05}".encode() for number in rng.choice(8_000, 600, replace=False)])
    plain = reader.lookup(asked)
    reader.reserve = lambda size: True
    assert reader.lookup(asked) == plain
    reads.clear()
    assert reader.lookup(asked) == plain
    assert reader.lookup(asked.slice(0, 1)) == plain.filter(pa.compute.equal(plain["key"], asked[0]))
    assert not reads
    reader.forget_blocks()
    assert reader.lookup(asked) == plain
    assert reads


def test_what_may_not_be_kept_is_read_again() -> None:
    reader, reads = opened(3)
    asked = pa.array([f"key-{number:05}".encode() for number in range(0, 4_400, 7)])
    sizes: list[int] = []

    def reserve(size: int) -> bool:
        sizes.append(size)
        return len(sizes) == 1

    reader.reserve = reserve
    first = reader.lookup(asked)
    reads.clear()
    assert reader.lookup(asked) == first
    assert reads, "only one block was allowed"


def test_distinct_values_and_a_key_alone_are_not_kept() -> None:
    for values, keys in ((4_400, 600), (3, 1)):
        reader, reads = opened(values)
        asked = pa.array([f"key-{number:05}".encode() for number in range(keys)])
        reader.reserve = lambda size: True
        reader.lookup(asked)
        reads.clear()
        reader.lookup(asked)
        assert reads
