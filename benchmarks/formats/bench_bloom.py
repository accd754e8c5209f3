"""How many keys a second go into bloom filters and through look-ups; on one core, best of some runs.

Usage::

    python benchmarks/formats/bench_bloom.py [--rows 60000 1000000] [--repeat 5]

Processor seconds are counted, so that a busy machine disturbs little. All filters have k = 30 (fpp = 1e-9).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from lakefmt._core.formats.bloom_filter import DYNAMIC, BloomFilter, decode_bloom_filter

FPP = 1e-9
ALPHABETS = {1: "abcdefghijklmnopqrstuvwxyz0123456789-", 2: "éüñçøåβλжш", 3: "日本語東京キー値"}


def even(rows: int, seed: int) -> pa.Array:
    """Keys of 36 ASCII characters, like UUIDs."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[np.random.default_rng(seed).integers(0, 16, (rows, 36))]
    digits[:, [8, 13, 18, 23]] = ord("-")
    return _text(digits.reshape(-1), np.full(rows, 36))


def mixed_ascii(rows: int, seed: int) -> pa.Array:
    """ASCII keys of 8 to 71 characters."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(8, 72, rows)
    letters = np.frombuffer(ALPHABETS[1].encode(), np.uint8)
    return _text(letters[rng.integers(0, len(letters), lengths.sum())], lengths)


def mixed_utf8(rows: int, seed: int) -> pa.Array:
    """Keys of 4 to 31 characters of one to three bytes each."""
    rng = np.random.default_rng(seed)
    letters = "".join(ALPHABETS.values())
    texts = np.array([letter.encode() for letter in letters], "S3")
    sizes = np.array([len(letter.encode()) for letter in letters])
    counts = rng.integers(4, 32, rows)
    choice = rng.integers(0, len(letters), counts.sum())
    padded = texts[choice].view(np.uint8).reshape(-1, 3)
    ends = np.cumsum(counts)
    lengths = np.diff(np.concatenate([[0], np.cumsum(sizes[choice])[ends - 1]]))
    return _text(padded[np.arange(3) < sizes[choice, None]], lengths)


def _text(data: np.ndarray, lengths: np.ndarray) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    keys = pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    keys.validate(full=True)
    return keys


def once(rows: int, kind: str, filters: int = 1) -> dict[str, float]:
    """Build `filters` filters of `rows` keys each; return processor seconds."""
    make = {made.__name__: made for made in (even, mixed_ascii, mixed_utf8)}[kind]
    keys = [make(rows, 1 + number) for number in range(filters)]
    begin = time.process_time()
    blooms = [BloomFilter.sized(rows, FPP, rows) for _ in keys]
    for bloom, mine in zip(blooms, keys, strict=True):
        bloom.add(mine)
    taken = time.process_time() - begin
    if any(bloom.k != 30 or not bloom.contains(mine).all() for bloom, mine in zip(blooms, keys, strict=True)):
        raise AssertionError("a filter is wrong")
    return {"build": taken}


def seconds(run: Callable[[], object], repeat: int) -> float:
    best = float("inf")
    for _ in range(repeat):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best


def measure(make: Callable[[int, int], pa.Array], rows: int, per_row: int, repeat: int) -> None:
    keys, strangers = make(rows, 1), make(rows, 2)

    def build() -> BloomFilter:
        bloom = BloomFilter.sized(per_row, FPP, rows)
        bloom.add(keys)
        return bloom

    bloom = build()
    if not bloom.contains(keys).all() or bloom.k != 30:
        raise SystemExit("the filter is wrong")
    text = bloom.encode()
    rates = [
        rows / seconds(run, repeat) / 1e6
        for run in (build, lambda: bloom.contains(keys), lambda: bloom.contains(strangers))
    ]
    codec = [1e3 * seconds(run, repeat) for run in (bloom.encode, lambda: decode_bloom_filter(text, DYNAMIC))]
    print(
        f"{make.__name__:12} {rows:>9,} {bloom.rows:>4} {rates[0]:>8.2f} {rates[1]:>8.2f} {rates[2]:>8.2f}"
        f" {codec[0]:>9.2f} {codec[1]:>9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[60_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print("million keys a second (one core); milliseconds for the text")
    print(
        f"{'keys':12} {'number':>9} {'rows':>4} {'build':>8} {'present':>8} {'absent':>8} {'encode':>9} {'decode':>9}"
    )
    for make in (even, mixed_ascii, mixed_utf8):
        for rows in options.rows:
            measure(make, rows, rows, options.repeat)
    measure(even, 100_000, 60_000, options.repeat)


if __name__ == "__main__":
    main()
