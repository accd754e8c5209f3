"""How long the look-up of some random keys takes, against plain pyarrow on the same files.

Usage::

    python benchmarks/index/bench_lookup.py [--files 30] [--rows 33000] [--keys 100] [--repeat 15]

The table is made in memory of files on a local disk (durability "none"). Every run begins without a footer in memory;
the page cache is warm for all. "plain" is what one writes without an index: of three ways to find the keys by their
column with pyarrow, the one that was fastest. All ways take turns, so that a busy machine disturbs them alike.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.index import Index, IndexKeys, open_index
from lakefmt._core.index.key_reader import KeyFiles
from lakefmt._core.values import RECORD_KEY

LIMIT = 1.2


def random_keys(rows: int, seed: int) -> pa.Array:
    """Keys of 32 characters, like UUIDs."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[np.random.default_rng(seed).integers(0, 16, (rows, 32))]
    offsets = np.arange(rows + 1, dtype=np.int32) * 32
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(digits.reshape(-1))])


def make_table(path: str, files: int, rows: int) -> TableClient:
    """Write a table of `files` base files of `rows` random keys each."""
    keys = random_keys(files * rows, 1)
    data = pa.table({"id": keys, "number": np.arange(len(keys)), "share": np.random.default_rng(2).random(len(keys))})
    table = lakefmt.create_table(path, data=data, record_key="id")
    for start in range(0, len(keys), rows):
        table.bulk_insert(data.slice(start, rows), options={"lakefmt.durability": "none"})
    return table.client


def plain_ways(paths: Sequence[str], keys: pa.Array) -> dict[str, Callable[[], int]]:
    """Return ways to count the keys without an index."""

    def whole() -> int:
        return int(ds.dataset(list(paths)).to_table([RECORD_KEY], filter=pc.field(RECORD_KEY).isin(keys)).num_rows)

    def filtered() -> int:
        wanted = pc.field(RECORD_KEY).isin(keys)
        return sum(pq.read_table(path, columns=[RECORD_KEY], filters=wanted).num_rows for path in paths)

    def by_column() -> int:
        columns = (pq.ParquetFile(path).read(columns=[RECORD_KEY]).column(0) for path in paths)
        return sum(pc.sum(pc.is_in(column, value_set=keys)).as_py() for column in columns)

    return {"plain: one dataset": whole, "plain: file by file": filtered, "plain: column by column": by_column}


def index_ways(client: TableClient, keys: pa.Array) -> dict[str, Callable[[], int]]:
    """Return the look-ups of each index."""
    slices = client.at(client.load()).slices()
    wanted = IndexKeys(keys, pa.array([""] * len(keys)).dictionary_encode())

    def look_up(index: Index) -> Callable[[], int]:
        return lambda: len(index.locate(wanted, slices, KeyFiles(client.store)).rows)

    return {name: look_up(open_index(name)) for name in ("bloom", "simple")}


def measure(ways: dict[str, Callable[[], int]], expected: int, repeat: int) -> dict[str, list[float]]:
    """Run all ways in turn and return the seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, run in ways.items():
            begin = time.perf_counter()
            found = run()
            seconds[name].append(time.perf_counter() - begin)
            if found != expected:
                raise SystemExit(f"{name} found {found} of {expected} keys")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--rows", type=int, default=33_000)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        client = make_table(f"{folder}/table", options.files, options.rows)
        paths = sorted(map(str, Path(folder).glob("table/*.parquet")))
        rows = options.files * options.rows
        wanted = np.random.default_rng(3).choice(rows, options.keys, replace=False)
        keys = random_keys(rows, 1).take(pa.array(wanted))
        seconds = measure({**plain_ways(paths, keys), **index_ways(client, keys)}, len(keys), options.repeat)
    plain = min(median(taken) for name, taken in seconds.items() if name.startswith("plain"))
    print(f"{options.keys} random keys in {len(paths)} files of {options.rows:,} rows; milliseconds")
    print(f"{'':24} {'best':>7} {'median':>7} {'of plain':>9}")
    for name, taken in seconds.items():
        print(f"{name:24} {1e3 * min(taken):>7.1f} {1e3 * median(taken):>7.1f} {median(taken) / plain:>9.2f}")
    ratio = median(seconds["bloom"]) / plain
    print(f"bloom: {ratio:.2f} times plain pyarrow; the limit is {LIMIT}: {'kept' if ratio <= LIMIT else 'MISSED'}")


if __name__ == "__main__":
    main()
