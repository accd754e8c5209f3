"""Upserts with a bucket index beside bloom and simple: 1 % of the rows, and 100 rows, into a merge-on-read table.

    python benchmarks/index/bench_bucket.py [rows] [rounds]

Prints the medians of wall clock and processor time of each. The indexes take turns within a round, on tables of the same rows,
and with them plain pyarrow, which rewrites the files that hold updated rows: four files of rows in the order of their hash.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakefmt

OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "hoodie.compact.inline": False}
BUCKETS = "4"


def rows(keys: np.ndarray, value: int) -> pa.Table:
    numbers = pa.array(keys)
    texts = pc.binary_join_element_wise(pa.scalar("key-"), numbers.cast(pa.string()), "")
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


class Rewriting:
    """Plain pyarrow: the files that hold a key are read, changed and written again; no commit, no merge by event time."""

    def __init__(self, folder: Path, count: int) -> None:
        data = rows(np.arange(count), 0)
        self._files = [folder / f"plain-{number}.parquet" for number in range(int(BUCKETS))]
        for number, file in enumerate(self._files):
            self._write(data.take(pa.array(np.arange(number, count, int(BUCKETS)))), file)

    @staticmethod
    def _write(data: pa.Table, file: Path) -> None:
        pq.write_table(data, file, compression="zstd")

    def upsert(self, data: pa.Table) -> None:
        for file in self._files:
            stored = pq.read_table(file)
            places = pc.index_in(stored["id"], value_set=data["id"].combine_chunks())
            if places.null_count == len(places):
                continue
            changed = {"id": stored["id"]}
            for name in ("v", "x"):
                changed[name] = pc.coalesce(data[name].combine_chunks().take(places.combine_chunks()), stored[name])
            self._write(pa.table(changed), file)


def main(count: int, rounds: int) -> None:
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        tables = {index: make(Path(folder), index, count) for index in ("bucket", "bloom", "simple")}
        tables["pyarrow"] = Rewriting(Path(folder), count)
        for size, what in ((count // 100, "1 % of the rows"), (100, "100 rows")):
            taken: dict[str, list[tuple[float, float]]] = {index: [] for index in tables}
            for number in range(rounds + 1):
                data = rows(rng.choice(count, size, replace=False), number)
                for index, table in tables.items():
                    start, processor = time.perf_counter(), time.process_time()
                    table.upsert(data)
                    if number:  # the first one reads footers that are kept
                        taken[index].append((time.perf_counter() - start, time.process_time() - processor))
            for index, pairs in taken.items():
                wall, used = (1000 * statistics.median(column) for column in zip(*pairs, strict=True))
                print(f"{what}, {count:,} rows, {index:7}: {wall:7.1f} ms, {used:7.1f} ms of the processor")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given if len(given) == 2 else (1_000_000, 15)))
