"""Filters of keys compared: Hudi's filter over columns, pybloom-live, and bits that mmh3 picks, at one false positive rate.

    python benchmarks/index/bench_key_filters.py [keys] [false positive rate]

Prints seconds to build a filter and to ask it for as many keys, of which half are in it, its false positives and its bytes.
A set of the keys, asked by Arrow, stands beside them. mmh3 and pybloom-live come with ``lakefmt[bench]``; what is not installed
is left out.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.formats.bloom_filter import BloomFilter

Answers = np.ndarray


@dataclass(frozen=True)
class Contestant:
    """A kind of filter: how it is built from keys, how it is asked, and how many bytes it has."""

    name: str
    build: Callable[[pa.Array], object]
    ask: Callable[[object, pa.Array], Answers]
    size: Callable[[object], int]


def hudi_filter(rate: float) -> Contestant:
    def build(keys: pa.Array) -> BloomFilter:
        bloom = BloomFilter.sized(len(keys), rate)
        bloom.add(keys)
        return bloom

    return Contestant("Hudi's, by columns", build, lambda bloom, keys: bloom.contains(keys), lambda b: len(b.encode()))


def arrow_set() -> Contestant:
    def ask(known: object, keys: pa.Array) -> Answers:
        return pc.is_in(keys, value_set=known).to_numpy(zero_copy_only=False)

    return Contestant("a set, by Arrow", lambda keys: keys, ask, lambda keys: keys.nbytes)


def pybloom(rate: float) -> Contestant | None:
    try:
        from pybloom_live import BloomFilter as Pybloom
    except ImportError:
        return None

    def build(keys: pa.Array) -> object:
        bloom = Pybloom(len(keys), rate)
        for key in keys.to_pylist():
            bloom.add(key)
        return bloom

    def ask(bloom: object, keys: pa.Array) -> Answers:
        return np.fromiter((key in bloom for key in keys.to_pylist()), np.bool_, len(keys))

    return Contestant("pybloom-live", build, ask, lambda bloom: bloom.num_bits // 8)


def mmh3_bits(rate: float) -> Contestant | None:
    try:
        import mmh3
    except ImportError:
        return None

    def places(keys: pa.Array, size: int) -> Iterator[np.ndarray]:
        hashes = np.array([mmh3.hash64(key, signed=False) for key in keys.to_pylist()], np.uint64).reshape(-1, 2)
        for number in range(math.ceil(-math.log2(rate))):
            yield (hashes[:, 0] + np.uint64(number) * hashes[:, 1]) % np.uint64(size)

    def build(keys: pa.Array) -> np.ndarray:
        flags = np.zeros(math.ceil(-len(keys) * math.log(rate) / math.log(2) ** 2), np.bool_)
        for each in places(keys, len(flags)):
            flags[each] = True
        return flags

    def ask(flags: np.ndarray, keys: pa.Array) -> Answers:
        return np.logical_and.reduce([flags[each] for each in places(keys, len(flags))])

    return Contestant("bits that mmh3 picks", build, ask, lambda flags: len(flags) // 8)


def main(count: int, rate: float) -> list[tuple[str, float, float, int, int]]:
    """Run every kind of filter once; return name, seconds to build, seconds to ask, false positives and bytes."""
    numbers = pa.array(np.arange(2 * count))
    texts = pc.binary_join_element_wise(pa.scalar("key-"), numbers.cast(pa.string()), "")
    stored, asked = texts.slice(0, count), texts.slice(count // 2, count)
    lines = []
    for contestant in filter(None, (hudi_filter(rate), arrow_set(), pybloom(rate), mmh3_bits(rate))):
        start = time.process_time()
        built = contestant.build(stored)
        middle = time.process_time()
        answers = contestant.ask(built, asked)
        end = time.process_time()
        inside = count - count // 2
        assert answers[:inside].all(), f"{contestant.name}: a stored key was denied"
        line = (contestant.name, middle - start, end - middle, int(answers[inside:].sum()), contestant.size(built))
        lines.append(line)
        print("{:22} build {:7.3f} s, ask {:7.3f} s, {:,} false positives, {:,} bytes".format(*line))
    return lines


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 1_000_000, float(given[1]) if given[1:] else 1e-6)
