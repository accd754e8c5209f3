"""How many rows a second become Avro records, and come back; on one core, best of some runs.

Usage::

    python benchmarks/formats/bench_avro_rows.py [--rows 1000000] [--repeat 5]

Eighteen columns: Hudi's five meta columns, a key of 36 characters, texts, numbers, times and a date. Processor seconds
are counted, so that a busy machine disturbs little. Each result is compared with what went in.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from lakefmt._core.formats.avro.columnar.codec import decode_rows, encode_rows
from lakefmt._core.schema import arrow_to_avro

WORDS = ["oslo", "lima", "rome", "san francisco", "new york", "kyoto", "cairo", "la paz"]
#: Rows that a write makes ready together at most (``lakefmt/_core/write/assign.py``): their records are written, then let go.
BUNDLE_ROWS = 1 << 15
NULLED = ("name", "city", "amount", "count", "at", "flag")


def keys(rows: int, rng: np.random.Generator) -> pa.Array:
    """Keys of 36 characters, like UUIDs."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, (rows, 36))]
    offsets = np.arange(rows + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])


def choice(words: list[str], rows: int, rng: np.random.Generator) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), rows)))


@lru_cache(maxsize=1)
def make(rows: int, *, nulls: bool) -> pa.Table:
    """Rows of a table with meta columns; a third of the columns has nulls, if wanted."""
    rng = np.random.default_rng(7)
    key = keys(rows, rng)
    numbers = pa.array(np.arange(rows)).cast(pa.string())
    columns = {
        "_hoodie_commit_time": pa.repeat("20261121083512609", rows),
        "_hoodie_commit_seqno": pa.compute.binary_join_element_wise("20261121083512609_3", numbers, "_"),
        "_hoodie_record_key": key,
        "_hoodie_partition_path": choice([f"day=2026-11-{day:02}" for day in range(1, 31)], rows, rng),
        "_hoodie_file_name": pa.repeat("92376103-df7c-4c18-a2f7-8bacb701f34e-0", rows),
        "key": key,
        "name": choice([f"{word} {number}" for word in WORDS for number in range(120)], rows, rng),
        "city": choice(WORDS, rows, rng),
        "state": choice(["new", "paid", "sent", "returned"], rows, rng),
        "amount": pa.array(rng.normal(50, 20, rows)),
        "price": pa.array(rng.normal(5, 2, rows)),
        "weight": pa.array(rng.random(rows).astype(np.float32)),
        "count": pa.array(rng.integers(0, 500, rows).astype(np.int32)),
        "total": pa.array(rng.integers(-(10**9), 10**9, rows)),
        "ts": pa.array(1_763_700_000_000_000 + rng.integers(0, 10**12, rows)),
        "at": pa.array(1_763_700_000_000_000 + rng.integers(0, 10**12, rows)).cast(pa.timestamp("us", "UTC")),
        "day": pa.array(rng.integers(20_000, 20_030, rows).astype(np.int32)).cast(pa.date32()),
        "flag": pa.array(rng.integers(0, 2, rows).astype(bool)),
    }
    if nulls:
        for name in NULLED:
            columns[name] = pa.compute.if_else(pa.array(rng.random(rows) < 0.8), columns[name], None)
    return pa.table(columns)


def seconds(run: Callable[[], object], repeat: int) -> float:
    best = float("inf")
    for _ in range(repeat):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best


def once(rows: int, *, nulls: bool) -> dict[str, float]:
    """Encode `rows` rows, a bundle after the other as a write does, and decode them; processor seconds of both."""
    table = make(rows, nulls=nulls)
    schema = arrow_to_avro(table.schema, "trips")
    bundles = [table.slice(start, BUNDLE_ROWS) for start in range(0, rows, BUNDLE_ROWS)]
    begin = time.process_time()
    for bundle in bundles:
        encode_rows(bundle, schema, framed=True)
    encoded = time.process_time() - begin
    data, offsets = encode_rows(table, schema, framed=True)
    begin = time.process_time()
    found = decode_rows(data, offsets[:-1] + 4, offsets[1:], schema)
    decoded = time.process_time() - begin
    if not found.equals(table) or not _same_in_bundles(bundles, schema, data):
        raise AssertionError("rows came back wrong")
    return {"encode": encoded, "decode": decoded}


def _same_in_bundles(bundles: list[pa.Table], schema: str, data: pa.Buffer) -> bool:
    """Say whether the bundles' records are those of all rows together."""
    begin = 0
    for bundle in bundles:
        mine, _ = encode_rows(bundle, schema, framed=True)
        if not mine.equals(data.slice(begin, mine.size)):
            return False
        begin += mine.size
    return begin == data.size


def measure(rows: int, *, nulls: bool, repeat: int) -> None:
    table = make(rows, nulls=nulls)
    schema = arrow_to_avro(table.schema, "trips")
    data, offsets = encode_rows(table, schema)
    starts, ends = offsets[:-1], offsets[1:]
    if not decode_rows(data, starts, ends, schema).equals(table):
        raise SystemExit("rows came back wrong")
    times = [
        seconds(run, repeat)
        for run in (
            lambda: encode_rows(table, schema, framed=True),
            lambda: decode_rows(data, starts, ends, schema),
            lambda: decode_rows(data, starts, ends, schema, ["key", "ts"]),
        )
    ]
    rates = " ".join(f"{rows / each / 1e6:>8.2f} {each * 1e3:>9.2f}" for each in times)
    print(f"{'a third' if nulls else 'none':8} {rows:>9,} {data.size / rows:>6.0f} {rates}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 10_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    print("million rows a second and milliseconds: encode, decode, decode key and ts only")
    print(f"{'nulls':8} {'rows':>9} {'bytes':>6} {'encode':>18} {'decode':>18} {'two columns':>18}")
    for nulls in (False, True):
        for rows in options.rows:
            measure(rows, nulls=nulls, repeat=options.repeat)


if __name__ == "__main__":
    main()
