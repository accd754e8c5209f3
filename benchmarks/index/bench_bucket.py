"""Upserts with a bucket index beside bloom and simple: 1 % of the rows, and 100 rows, into a merge-on-read table.

    python benchmarks/index/bench_bucket.py [rows] [rounds]

Prints the median of each and its quartiles. The indexes take turns within a round, on tables of the same rows.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakefmt

OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "hoodie.compact.inline": False}
BUCKETS = "4"


def rows(keys: np.ndarray, value: int) -> pa.Table:
    numbers = pa.array(keys)
    texts = pa.compute.binary_join_element_wise(pa.scalar("key-"), numbers.cast(pa.string()), "")
    return pa.table({"id": texts, "v": pa.array(np.full(len(keys), value)), "x": pa.array(keys * 0.5)})


def make(folder: Path, index: str, count: int) -> lakefmt.Table:
    properties = {"hoodie.bucket.index.num.buckets": BUCKETS} if index == "bucket" else {}
    data = rows(np.arange(count), 0)
    table = lakefmt.create_table(
        str(folder / index),
        data=data,
        record_key="id",
        table_type="mor",
        index=index,
        properties=properties,
        options=OPTIONS,
    )
    table.bulk_insert(data)
    return table


def main(count: int, rounds: int) -> None:
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        tables = {index: make(Path(folder), index, count) for index in ("bucket", "bloom", "simple")}
        for size, what in ((count // 100, "1 % of the rows"), (100, "100 rows")):
            seconds: dict[str, list[float]] = {index: [] for index in tables}
            for number in range(rounds + 1):
                data = rows(rng.choice(count, size, replace=False), number)
                for index, table in tables.items():
                    start = time.perf_counter()
                    table.upsert(data)
                    if number:  # the first one reads footers that are kept
                        seconds[index].append(time.perf_counter() - start)
            for index, taken in seconds.items():
                low, middle, high = (1000 * q for q in statistics.quantiles(taken, n=4))
                print(f"{what}, {count:,} rows, {index:7}: {middle:7.1f} ms ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given if len(given) == 2 else (1_000_000, 15)))
